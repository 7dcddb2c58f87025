# C-level face of the frame codec; explained in frames.pyx.
# cython: language_level=3
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef enum:
    PUSH = 1
    REQUEST = 2
    REPLY = 3
    FAIL = 4
    CANCEL = 5
    ITEM_UP = 6
    END_UP = 7
    ITEM_DOWN = 8
    CREDIT_UP = 9
    CREDIT_DOWN = 10
    PING = 11
    PONG = 12
    GOODBYE = 13

    HEADER = 16
    PREAMBLE = 16
    MORE = 1
    PIECE = 2
    CHUNK = 262144

cdef void put_header(char *p, uint32_t length, int kind, int flags, uint64_t number) noexcept nogil


cdef class FrameReader:
    cdef char *buf
    cdef Py_ssize_t start, end          # what is in buf
    cdef Py_ssize_t max_packet, block    # of block, as many bytes of buf are used
    cdef int max_parts
    cdef public object peer_version
    cdef readonly unsigned long peer_max_packet, peer_window
    cdef bint greeted
    # the frame whose payload is being gathered
    cdef bint in_body
    cdef int kind, flags
    cdef uint64_t number
    cdef Py_ssize_t left
    cdef PyObject *data                 # bytes that grow, owned
    cdef Py_ssize_t size, room_
    cdef list segments                  # pieces of this packet that are complete
    cdef Py_ssize_t before              # their bytes
    cdef dict parts                     # key -> (bytes, size): packets of which more chunks are to come
    cdef set skipped                    # keys of packets that nobody waits for
    cdef bint skipping, dropping
    cdef bint expects_chunk
    cdef bint failed
    cdef readonly uint64_t frames, packets
    # the packet that next() has found
    cdef int out_kind
    cdef uint64_t out_number
    cdef object out_payload
    cdef list out_segments              # None, or the pieces that come behind out_payload

    cdef int bound(self, Py_ssize_t max_packet, int max_parts) except -1
    cdef int drop(self) except -1
    cdef bytes whole(self)
    cdef char *room(self, Py_ssize_t *n) except NULL
    cdef int received(self, Py_ssize_t n) except -1
    cdef bint next(self) except -1
    cdef int greet(self) except -1
    cdef bint begin(self) except -1
    cdef bint finish_frame(self) except -1
    cdef Py_ssize_t first_room(self, Py_ssize_t length, int flags) noexcept
    cdef int grow(self, Py_ssize_t wanted) except -1
