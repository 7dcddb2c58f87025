# What is between an engine of TLS and its stream, see _channels.pyx.

cdef class Channel:
    cpdef object read(self, Py_ssize_t size)
    cpdef Py_ssize_t read_into(self, Py_ssize_t size, object view) except -2
    cpdef Py_ssize_t write(self, data) except -1
    cpdef bint handshake(self) except -1
    cpdef bint shutdown(self) except -1
    cpdef Py_ssize_t pending(self) except -1
    cpdef object feed(self, data)
    cpdef Py_ssize_t received(self) except -1
    cpdef bytes take(self)
    cpdef Py_ssize_t unsent(self) except -1
