# C-level interface of the pollers: the record kept per descriptor number, and the base class that a kernel
# interface (epoll, kqueue) fills in.  Sockets compile against this file; `_poller.pyx` says how it works.

from libc.stdint cimport int64_t, uint32_t, uint64_t
from cpython.object cimport PyObject

from coro._scheduler cimport Poller, TimerTarget, coro


cdef enum:
    FD_REGISTERED = 1        # the kernel was told about this number (owned: for its life; others: one shot per wait)
    FD_READ_READY = 2        # an event said "readable" and nobody consumed it yet (owned descriptors only)
    FD_WRITE_READY = 4
    FD_NO_SHORTCUT = 8       # RDHUP, HUP, ERR or PRI was seen on this registration; never cleared before own()/disown()
    FD_OWNED = 16            # a sock of ours owns the number
    FD_EXCEPT_READY = 32     # exceptional condition (urgent data)
    FD_UNPOLLABLE = 64       # the kernel refuses to watch it (regular file): waiting is a yield_slice (owned only)
    FD_HANDLERS = 128        # at least one slot holds a kevent_target, not a thread


cdef struct fd_state:
    # One per descriptor number, at the same address until the process ends.  Each slot owns a reference to
    # the waiting thread, or to the kevent_target of a handler.
    PyObject *reader
    PyObject *writer
    PyObject *excepter
    uint32_t flags
    uint32_t generation      # goes into the kernel's event data: an event of another generation is stale
    uint32_t epoch           # counts own()/disown(): a waiter that sees another one was closed
    uint32_t revents         # the last event mask of the kernel
    uint32_t armed           # not owned: directions the kernel watches for us now (FD_*_READY bits)


cdef class py_kevent:
    cdef readonly object ident
    cdef readonly int filter
    cdef readonly unsigned int flags
    cdef readonly unsigned int fflags
    cdef readonly int64_t data
    cdef readonly uint64_t udata_addr


cdef class kevent_key:
    cdef readonly int filter
    cdef readonly object ident


cdef class kevent_target:
    cdef readonly kevent_key key
    cdef readonly object target       # the waiting thread, or the handler
    cdef readonly unsigned int flags  # EV bits
    cdef readonly int index           # place in the change list (kqueue), else -1
    cdef int state                    # NEW, SUBMITTED, FIRED, ABORTED
    cdef unsigned int fflags          # NOTE bits asked for
    cdef int64_t period               # TIMER: nanoseconds
    cdef bint is_handler
    cdef object label                 # name for the handler's threads
    cdef bint running                 # a handler thread of this registration is alive
    cdef bint missed                  # something happened while it ran: report it when it ends
    cdef int64_t missed_data
    cdef unsigned int missed_fflags
    cdef object context               # the registrar's contextvars context
    cdef py_kevent event              # a waiting thread's result
    cdef TimerTarget timer
    cdef object previous              # SIGNAL: the handler that was installed before
    cdef int fd                       # PROC: pidfd; VNODE: watch descriptor
    cdef uint64_t size, links         # VNODE: what fstat said last


cdef class FdPoller(Poller):
    cdef dict targets                 # kevent_key -> kevent_target: handlers, and waits for other things than descriptors
    cdef dict lost_signals            # signal number -> count, of waiters interrupted after their signal came
    cdef int n_handlers
    cdef int signal_read, signal_write
    cdef object wakeup_before
    cdef uint64_t n_polls, n_blocking, n_events, n_stale, n_wakes, n_changes, n_interrupts

    # -- for sockets
    cdef fd_state *state_of(self, int fd) except NULL
    cdef int own(self, int fd) except -1
    cdef int disown(self, int fd, object closer) except -1
    cdef int wait_read(self, fd_state *s, int fd) except -1
    cdef int wait_write(self, fd_state *s, int fd) except -1
    # The same without trusting the remembered readiness: the kernel is asked anew (explicit wait_for_read()).
    cdef int wait_read_fresh(self, fd_state *s, int fd) except -1
    cdef int wait_write_fresh(self, fd_state *s, int fd) except -1

    # -- for the scheduler
    cdef int handlers_registered(self)
    cdef int drop_handlers(self) except -1
    cdef object statistics_dict(self)

    # -- events and handlers
    cdef int wait_on(self, coro me, fd_state *s, int fd, uint32_t ready, bint fresh) except -1
    cdef int check_slot(self, int fd, fd_state *s, PyObject **slot, object me, int filter) except -1
    cdef py_kevent wait_event(self, object ident, int filter, unsigned int fflags, int64_t data)
    cdef py_kevent wait_fd_event(self, coro me, object ident, int filter)
    cdef int add_handler(self, object ident, int filter, object handler, unsigned int flags, unsigned int fflags,
                         int64_t data) except -1
    cdef int remove(self, kevent_target t) except -1
    cdef int fired(self, kevent_target t, unsigned int flags, unsigned int fflags, int64_t data) except -1
    cdef int run_handler(self, kevent_target t, py_kevent event) except -1
    cdef int handler_done(self, kevent_target t) except -1
    cdef int deliver(self, int fd, fd_state *s, uint32_t ready) except -1
    cdef int begin(self, kevent_target t, int64_t data) except -1
    cdef int end(self, kevent_target t) except -1
    cdef int clear_slots(self, int fd, fd_state *s, PyObject *but, object error) except -1
    cdef int forget_all(self) except -1
    cdef unsigned int event_flags(self, int filter, uint32_t revents)

    # -- signals (any kernel)
    cdef int open_signals(self) except -1
    cdef int close_signals(self) except -1
    cdef int read_signals(self) except -1

    # -- what a kernel interface provides
    cdef int arm(self, int fd, fd_state *s, PyObject *mine, bint fresh) except -1     # 0, or 1: cannot be polled
    cdef int retract(self, int fd, fd_state *s) except -1     # not owned: watch for the remaining waiters only
    cdef int forget(self, int fd, fd_state *s) except -1      # end the registration
    cdef int begin_other(self, kevent_target t) except -1     # PROC, VNODE
    cdef int end_other(self, kevent_target t) except -1
    cdef int watch_signals(self, int fd) except -1
    cdef int unwatch_signals(self, int fd) except -1


cdef FdPoller fd_poller()
cdef fd_state *fd_lookup(int fd) noexcept nogil               # NULL when never seen
cdef py_kevent new_event(object ident, int filter, unsigned int flags, unsigned int fflags, int64_t data)
cdef int fd_each(int fd) noexcept nogil                       # the next number >= fd that has a record, or -1
cdef uint32_t fd_wanted(fd_state *s) noexcept                 # FD_*_READY bits somebody waits for
