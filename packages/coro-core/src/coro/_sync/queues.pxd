# C-level interface of fifo and channel; explained in _sync/queues.pyx.
# cython: language_level=3
from libc.stdint cimport uint64_t

from coro._sync.waiters cimport Primitive, wait_line, waiter


cdef class Buffer(Primitive):
    cdef wait_line takers
    cdef wait_line givers
    cdef list ring
    cdef Py_ssize_t head
    cdef Py_ssize_t count
    cdef Py_ssize_t promised
    cdef Py_ssize_t slots
    cdef Py_ssize_t capacity
    cdef uint64_t total
    cdef readonly bint closed
    cdef int append(self, object item, bint in_front) except -1
    cdef object take(self)
    cdef Py_ssize_t room(self) except? -1
    cdef bint has_partner(self, waiter *giver) noexcept
    cdef bint takes_now(self) except -1
    cdef bint use_slot(self) except -1
    cdef int put_in(self, object item, bint in_front) except -1
    cdef int insert(self, object item, bint in_front, object timeout) except -1
    cdef int await_room(self, object timeout) except -1
    cdef bint await_item(self, object timeout) except -1


cdef class fifo(Buffer):
    pass


cdef class channel(Buffer):
    pass
