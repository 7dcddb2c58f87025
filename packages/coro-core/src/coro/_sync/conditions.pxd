# C-level interface of what threads wait for without owning it; explained in _sync/conditions.pyx.
# cython: language_level=3
from libc.stdint cimport uint64_t

from coro._sync.waiters cimport Counted, Primitive, wait_line


cdef class condition_variable(Primitive):
    cdef wait_line line
    cdef uint64_t woken
    cdef uint64_t unheard
    cdef Py_ssize_t wake(self, Py_ssize_t most, object args) except -1


cdef class inverted_semaphore(Counted):
    cdef wait_line line
    cdef readonly Py_ssize_t value
    cdef uint64_t contended
    cdef int add(self, Py_ssize_t units) except -1
    cdef int subtract(self, Py_ssize_t units) except -1


cdef class event(Primitive):
    cdef wait_line line
    cdef bint on


cdef class latch(Primitive):
    cdef wait_line line
    cdef readonly Py_ssize_t missing


cdef class barrier(Primitive):
    cdef wait_line line
    cdef readonly Py_ssize_t parties
    cdef uint64_t rounds
