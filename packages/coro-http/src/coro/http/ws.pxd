# The codec's face for the connection, which takes events without an object for each.
# cython: language_level=3
from libc.stdint cimport uint8_t, uint64_t

cdef extern from "http/_ws_bytes.h":
    ctypedef struct ws_utf8:
        unsigned char missing

# Kinds that step() returns besides the opcodes 1, 2, 8, 9 and 10.
cdef enum:
    NOTHING = 0
    FRAGMENT = 16

# Where the parser stands.
cdef enum:
    IN_HEADER = 0
    IN_PAYLOAD = 1


cdef class Event:
    pass

cdef class Message(Event):
    cdef readonly object data

cdef class Fragment(Event):
    cdef readonly bytes data
    cdef readonly int opcode
    cdef readonly bint final
    cdef readonly object mask

cdef class Ping(Event):
    cdef readonly bytes payload

cdef class Pong(Event):
    cdef readonly bytes payload

cdef class Close(Event):
    cdef readonly int code
    cdef readonly str reason


cdef class Codec:
    # -- of the frame under way
    cdef bytes data                     # what was fed, used up to `at`
    cdef Py_ssize_t at
    cdef uint64_t left                  # bytes of payload still to come
    cdef list more                      # what was fed while `data` was not used up, or None
    cdef uint8_t stage, opcode, final, header_have
    cdef uint8_t is_client, assemble
    cdef unsigned char mask[4]
    cdef unsigned int mask_phase
    cdef unsigned char header_bytes[14]
    cdef uint8_t control_have
    cdef unsigned char control[125]
    # -- of the message under way
    cdef uint8_t in_message, message_opcode, compressed
    cdef ws_utf8 utf8
    cdef unsigned char *message_data
    cdef Py_ssize_t message_have, message_room
    cdef uint64_t message_wire, frames
    # -- of the connection
    cdef uint64_t max_frame, max_message, max_inflated, max_fragments
    cdef readonly bint close_sent, close_received
    cdef int close_code
    cdef object value                   # of the event that step() found
    cdef object error
    cdef uint8_t open_message           # the opcode of a message being sent in fragments, or 0
    # -- permessage-deflate
    cdef readonly object deflate
    cdef object inflater, deflater
    cdef int in_bits, out_bits, streams
    cdef bint in_fresh, out_fresh
    cdef Py_ssize_t threshold

    cdef int c_feed(self, bytes data) except -1
    cdef int step(self) except -1
    cdef bint next_chunk(self)
    cdef Py_ssize_t header(self, const unsigned char *p, Py_ssize_t there) except -1
    cdef int check_first(self, uint8_t first) except -1
    cdef int check_second(self, int opcode, uint8_t second) except -1
    cdef int begin_frame(self, const unsigned char *h, Py_ssize_t size) except -1
    cdef int payload(self, const unsigned char *p, Py_ssize_t n) except -1
    cdef int direct(self, const unsigned char *p, Py_ssize_t n) except -1
    cdef int gather(self, const unsigned char *p, Py_ssize_t n) except -1
    cdef int inflate(self, const unsigned char *p, Py_ssize_t n) except -1
    cdef int inflate_more(self, bytes data) except -1
    cdef bytes next_stream(self, bytes rest)
    cdef int end_message(self) except -1
    cdef int end_fragment(self) except -1
    cdef int end_control(self) except -1
    cdef int grow(self, Py_ssize_t size) except -1
    cdef void let_go(self) noexcept
    cdef int fail(self, error, cause=*) except -1
    cdef bytes c_message(self, data, int compress)
    cdef bytes data_frame(self, int opcode, const char *p, Py_ssize_t n, int compress)
    cdef bytes packed(self, bytes data, bint final)
    cdef bytes control_frame(self, int opcode, payload)
    cdef bytes frame(self, int first, const char *p, Py_ssize_t n)
