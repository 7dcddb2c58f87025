# C-level interface of the event interface: the class that a kernel's file (epoll, kqueue) completes.

from libc.stdint cimport int64_t

from coro._poll.descriptors cimport FdPoller, kevent_target, py_kevent
from coro._runtime.scheduler cimport coro


cdef enum:
    UNLOOKED = 8


cdef class EventPoller(FdPoller):
    cdef dict lost_signals            # signal number -> count, of waiters interrupted after their signal came
    cdef int signal_read, signal_write
    cdef int program_fd               # where the program wants signals told, as by signal.set_wakeup_fd(); -1: nowhere
    cdef bint program_warned          # and that it is told when that is full
    cdef int sleeping, interrupted    # set only around a call that may sleep; interrupt() triggers only then

    cdef int unlooked                 # sleeps to come before which it is not looked first

    cdef bint looks_first(self) noexcept                      # is a sleep without the GIL to begin with a look with it?
    cdef bint going_to_sleep(self) noexcept                   # False: interrupted, so it must not. Then woke_up()
    cdef void woke_up(self) noexcept
    cdef int drop_handlers(self) except -1
    cdef py_kevent wait_event(self, object ident, int filter, unsigned int fflags, int64_t data)
    cdef py_kevent wait_fd_event(self, coro me, object ident, int filter)
    cdef int add_handler(self, object ident, int filter, object handler, unsigned int flags,
                         unsigned int fflags, int64_t data) except -1
    cdef int run_handler(self, kevent_target t, py_kevent event) except -1
    cdef int handler_done(self, kevent_target t) except -1
    cdef int begin(self, kevent_target t, int64_t data) except -1
    cdef int end(self, kevent_target t) except -1

    # -- signals
    cdef int open_signals(self) except -1
    cdef int close_signals(self) except -1
    cdef int read_signals(self) except -1
    cdef int look_at_children(self) except -1
    cdef int want_child_signals(self) except -1
    cdef int tell_program(self, unsigned char *numbers, ssize_t n) except -1

    # -- what a kernel's file adds
    cdef int close_kernel(self) noexcept                      # end it, with all registrations
    cdef int leave_kernel(self) noexcept                      # after a fork: it is the parent's, whose it stays
    cdef int trigger(self) noexcept nogil                     # end the call that sleeps now
    cdef int begin_other(self, kevent_target t) except -1     # PROC, VNODE
    cdef int end_other(self, kevent_target t) except -1
    cdef int watch_signals(self, int fd) except -1
    cdef int unwatch_signals(self, int fd) except -1
