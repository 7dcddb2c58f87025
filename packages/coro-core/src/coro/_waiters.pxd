# Lines of waiting threads, shared by all synchronisation primitives; explained in _waiters.pyx.
# cython: language_level=3
from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from coro._scheduler cimport coro


cdef enum:              # waiter.state
    QUEUED = 0
    GRANTED = 1
    SKIPPED = 2


cdef struct waiter:
    waiter *next
    waiter *prev
    PyObject *thread    # owned
    PyObject *value     # owned, or NULL: what the wait returns
    uint64_t ticket     # order in the line
    Py_ssize_t amount   # units wanted, or what else the primitive needs to know
    int state


cdef struct wait_line:
    waiter *first
    waiter *last
    Py_ssize_t count


cdef class Primitive:
    cdef object __weakref__
    cdef list watchers
    cdef int advance(self) except -1
    cdef int give_back(self, waiter *w) except -1
    cdef bint is_ready(self, bint to_put)


cdef object caller()
cdef uint64_t new_ticket() noexcept
cdef object stand_in_line(Primitive what, wait_line *line, coro me, Py_ssize_t amount, uint64_t ticket)
cdef waiter *take_first(wait_line *line)
cdef waiter *take_any(wait_line *line)
cdef int grant_all(wait_line *line) except -1
cdef int skip_doomed(wait_line *line) except -1
cdef int drop_doomed(wait_line *line) except -1
cdef int set_value(waiter *w, object value) except -1
cdef tuple threads_of(wait_line *line)
cdef Py_ssize_t units_of(object n, object what) except -1
cdef int announce_to(list watchers) except -1
cdef bint died_by_fork(object thread)
cdef bint is_dead(object thread)


cdef inline int announce(Primitive p) except -1:
    if p.watchers is not None:
        announce_to(p.watchers)
    return 0
