# Lines of waiting threads, shared by all synchronisation primitives; explained in _sync/waiters.pyx.
# cython: language_level=3
from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from coro._runtime.scheduler cimport coro


cdef enum:              # waiter.state
    QUEUED = 0
    GRANTED = 1
    SKIPPED = 2

cdef enum:              # what a case of a select does
    GET = 0
    PUT = 1
    WAIT = 2
    ACQUIRE = 3
    LOCK = 4
    JOIN = 5
    READ = 6
    WRITE = 7


cdef struct waiter:
    waiter *next
    waiter *prev
    PyObject *thread    # owned
    PyObject *value     # owned, or NULL: what the wait returns
    uint64_t ticket     # order in the line
    Py_ssize_t amount   # units wanted, or what else the primitive needs to know
    int state
    bint is_choice      # it begins a `choice`


cdef struct wait_line:
    waiter *first
    waiter *last
    Py_ssize_t count


# A thread in a select has a record in several lines; the first grant takes the others out.
cdef struct choice:
    waiter w
    wait_line *line
    choices *all


cdef struct choices:
    Py_ssize_t count
    choice *first       # an array
    choice *granted     # or NULL


cdef class Primitive:
    cdef object __weakref__
    cdef int advance(self) except -1
    cdef int give_back(self, waiter *w) except -1
    # for select; the operation is one that the primitive has
    cdef object attempt(self, int operation, object value, Py_ssize_t amount)
    cdef int must_wait(self) except -1
    cdef wait_line *line_of(self, int operation) noexcept
    cdef object conclude(self, int operation, object value, waiter *w)


cdef class Counted(Primitive):
    cdef int enter(self) except -1
    cdef int leave(self) except -1


cdef object NOT_NOW     # attempt(): would have to wait; conclude(): has to wait again

cdef uint64_t new_ticket() noexcept
cdef object stand_in_line(Primitive what, wait_line *line, coro me, Py_ssize_t amount, uint64_t ticket)
cdef object stand_timed(Primitive what, wait_line *line, coro me, Py_ssize_t amount, object timeout, str call)
cdef void join_line(wait_line *line, waiter *w) noexcept
cdef void leave_line(wait_line *line, waiter *w, int state) noexcept
cdef waiter *take(wait_line *line, waiter *w)
cdef waiter *take_first(wait_line *line)
cdef waiter *take_any(wait_line *line)
cdef int grant_all(wait_line *line) except -1
cdef int skip_doomed(wait_line *line) except -1
cdef int drop_doomed(wait_line *line) except -1
cdef int set_value(waiter *w, object value) except -1
cdef tuple threads_of(wait_line *line)
cdef Py_ssize_t waiting_in(wait_line *line)
cdef Py_ssize_t units_of(object n, object what) except -1
cdef bint died_by_fork(object thread)
cdef bint is_dead(object thread)


cdef inline object stand(Primitive what, wait_line *line, coro me, Py_ssize_t amount, object timeout, str call):
    """stand_in_line() at the end, for no longer than ``timeout`` seconds. Inline: a parked thread keeps a copy of each
    frame."""
    if timeout is None:
        return stand_in_line(what, line, me, amount, new_ticket())
    return stand_timed(what, line, me, amount, timeout, call)

