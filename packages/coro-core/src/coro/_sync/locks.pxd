# C-level interface of the locks; explained in _sync/locks.pyx.
# cython: language_level=3
from libc.stdint cimport uint64_t

from coro._sync.waiters cimport Counted, Primitive, wait_line


cdef class mutex(Primitive):
    cdef wait_line line
    cdef readonly object owner
    cdef Py_ssize_t depth
    cdef uint64_t contended
    cdef bint enter(self, object timeout) except -1
    cdef bint take_now(self) except -1
    cdef bint leave(self) except -1
    cdef bint hand_over(self) except -1


cdef class rw_lock(Primitive):
    cdef wait_line readers_line
    cdef wait_line writers_line
    cdef readonly object owner
    cdef Py_ssize_t depth
    cdef dict readers
    cdef uint64_t contended
    cdef bint may_read_now(self, object me) except -1
    cdef bint may_write_now(self, object me) except -1
    cdef bint lock_to_read(self, object timeout) except -1
    cdef bint lock_to_write(self, object timeout) except -1
    cdef int look_for_the_dead(self) except -1


cdef class semaphore(Counted):
    cdef wait_line line
    cdef readonly Py_ssize_t avail
    cdef uint64_t contended
    cdef int take_units(self, Py_ssize_t units, object timeout) except -1
    cdef bint take_now(self, Py_ssize_t units) except -1
    cdef int give_units(self, Py_ssize_t units) except -1
