# C-level interface of the pollers: the record kept per descriptor number, and the base class for what stands
# above (`_poll/events.pyx`, then a kernel's own file).  Sockets compile against this file; `_poll/descriptors.pyx` says
# how it works.

from libc.stdint cimport int64_t, uint32_t, uint64_t
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF

from coro._runtime.likely cimport unlikely
from coro._runtime.scheduler cimport (Poller, TimerTarget, WAIT_READ, WAIT_WRITE, begin_io, coro, end_io,
                                      raise_due)


cdef enum:
    FD_REGISTERED = 1        # the kernel knows this number (owned: for its life; others: one shot per wait)
    FD_READ_READY = 2        # an event said "readable" and nobody consumed it yet (owned descriptors only)
    FD_WRITE_READY = 4
    FD_NO_SHORTCUT = 8       # RDHUP, HUP, ERR or PRI was seen; stays until own() or disown()
    FD_OWNED = 16            # a sock of ours owns the number
    FD_EXCEPT_READY = 32     # exceptional condition (urgent data)
    FD_UNPOLLABLE = 64       # owned, and the kernel refuses to watch it (regular file): a wait only gives way
    FD_HANDLERS = 128        # at least one slot holds a kevent_target, not a thread
    FD_LINGERS = 256         # owned, not registered: the reader is to be woken after the next poll, to try again
    FD_LINGERED = 512        # and so it was; not known yet whether it was worth it


cdef enum:                   # filters and flags of _poll/filters.py, for C
    F_READ = -1
    F_WRITE = -2
    F_VNODE = -4
    F_PROC = -5
    F_SIGNAL = -6
    F_TIMER = -7
    F_EXCEPT = -15
    EV_ADD = 0x1
    EV_DELETE = 0x2
    EV_ONESHOT = 0x10
    EV_ERROR = 0x4000
    EV_EOF = 0x8000
    FOREIGN = 0x10000        # event_flags(): what came belongs to another filter


cdef enum:                   # kevent_target.state
    NEW = 0
    SUBMITTED = 1
    FIRED = 2
    ABORTED = 3


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
    uint32_t armed           # directions the kernel watches for us now (FD_*_READY bits; owned: besides reading)


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
    cdef dict targets                 # kevent_key -> kevent_target: handlers, waits without descriptor
    cdef int n_handlers
    cdef bint can_linger              # the kernel's file looks at n_lingering in poll()
    cdef int *lingering               # descriptor numbers
    cdef int n_lingering, lingering_room
    cdef int luck, declined           # from -LUCK to LUCK: how often lingering was worth it; how often it was left out
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
    cdef object statistics_dict(self)

    # -- for subclasses
    cdef int wait_on(self, coro me, fd_state *s, int fd, uint32_t ready, bint fresh) except -1
    cdef int check_slot(self, int fd, fd_state *s, PyObject **slot, object me, int filter) except -1
    cdef int clear_slots(self, int fd, fd_state *s, PyObject *but, object closer) except -1
    cdef int deliver(self, int fd, fd_state *s, uint32_t ready) except -1
    cdef int forget_all(self) except -1
    cdef bint linger(self, int fd) noexcept
    cdef int judge(self, fd_state *s, bint worth_it) noexcept
    cdef int end_lingering(self) except -1

    # -- what EventPoller adds
    cdef int remove(self, kevent_target t) except -1
    cdef int fired(self, kevent_target t, unsigned int flags, unsigned int fflags, int64_t data) except -1

    # -- what a kernel's file adds
    cdef unsigned int event_flags(self, int filter, uint32_t revents)
    cdef int arm(self, int fd, fd_state *s, PyObject *mine, bint fresh) except -1   # 0; 1: cannot be polled
    cdef int arm_writing(self, int fd, fd_state *s) except -1 # owned and registered: before each wait to write
    cdef int retract(self, int fd, fd_state *s) except -1     # not owned: watch for those who remain
    cdef int forget(self, int fd, fd_state *s) except -1      # end the registration
    cdef int released(self, int fd, fd_state *s) except -1    # after disown(): the number stays open
    # What the last event of a direction said beyond its flags: the amount, 0 where it is unknown; fflags
    cdef int64_t details(self, int fd, uint32_t ready, unsigned int *fflags) except? -1


cdef FdPoller fd_poller()
cdef int begin_unusual_wait(coro me, fd_state *s, int fd, uint32_t ready) except -1
cdef int end_unusual_wait(coro me, fd_state *s, uint32_t ready, uint32_t epoch) except -1
cdef fd_state *fd_lookup(int fd) noexcept nogil               # NULL when never seen
cdef int fd_each(int fd) noexcept nogil                       # the next number >= fd that has a record, or -1
cdef uint32_t fd_wanted(fd_state *s) noexcept                 # FD_*_READY bits somebody waits for
cdef int note_handlers(fd_state *s) noexcept                  # set or clear FD_HANDLERS after a slot changed
cdef dict current_targets()
cdef object filter_name(int filter)
cdef py_kevent new_event(object ident, int filter, unsigned int flags, unsigned int fflags, int64_t data)
cdef kevent_key new_key(int filter, object ident)
cdef kevent_target new_target(kevent_key key, object target, unsigned int flags)


cdef inline PyObject **slot_of(fd_state *s, uint32_t ready) noexcept:
    if ready == FD_READ_READY:
        return &s.reader
    if ready == FD_WRITE_READY:
        return &s.writer
    return &s.excepter


cdef inline uint32_t ready_bit(int filter) noexcept:
    if filter == F_READ:
        return FD_READ_READY
    if filter == F_WRITE:
        return FD_WRITE_READY
    if filter == F_EXCEPT:
        return FD_EXCEPT_READY
    return 0


cdef inline int filter_of(uint32_t ready) noexcept:
    return F_READ if ready == FD_READ_READY else F_WRITE if ready == FD_WRITE_READY else F_EXCEPT


# Enter a free slot, which then owns a reference; leave it again, where nobody else has taken the thread out.
cdef inline void stand(PyObject **slot, coro me) noexcept:
    Py_INCREF(me)
    slot[0] = <PyObject *>me


cdef inline bint stand_down(PyObject **slot, coro me) noexcept:
    if slot[0] != <PyObject *>me:
        return False
    slot[0] = NULL
    Py_DECREF(me)
    return True


# Waiting with little on the stack: what a parked thread leaves there is copied whenever two threads share a slot, so
# what stands before the wait and after it has returned by then.

# Before a wait of the owner of a descriptor.  0: ready already; 1: stands in the slot, so _scheduler.park(me), then
# end_wait(); 2: not for this road, call wait_read() or wait_write().
cdef inline int begin_wait(coro me, fd_state *s, int fd, uint32_t ready) except -1:
    cdef PyObject **slot = &s.reader if ready == FD_READ_READY else &s.writer
    if (s.flags & (FD_OWNED | FD_REGISTERED | FD_UNPOLLABLE | ready)) != (FD_OWNED | FD_REGISTERED) \
            or slot[0] != NULL or me.link.attention or ready == FD_WRITE_READY and not s.armed & FD_WRITE_READY:
        return begin_unusual_wait(me, s, fd, ready)
    stand(slot, me)
    begin_io(me, WAIT_READ if ready == FD_READ_READY else WAIT_WRITE, fd)
    return 1


# After it; `epoch` is the record's at begin_wait().  Raises what interrupted the wait, or ClosedError.
cdef inline int end_wait(coro me, fd_state *s, uint32_t ready, uint32_t epoch) except -1:
    if unlikely(s.flags & FD_LINGERS or s.epoch != epoch
                or (s.reader if ready == FD_READ_READY else s.writer) == <PyObject *>me):
        return end_unusual_wait(me, s, ready, epoch)
    if unlikely(end_io(me)):
        return raise_due(me)
    s.flags &= ~ready
    return 0
