# The C face of coro.http.h1, for code that moves bytes itself: a server's connection, say. See h1.pyx.

from libc.stdint cimport int64_t, uint32_t

from coro.http.headers cimport HeaderSource, header_set


cdef extern from "http/_h1_scan.h":
    ctypedef struct h1_span:
        uint32_t name, name_len, value, value_len
    ctypedef struct h1_scan:
        uint32_t max_line, max_header, max_headers, max_count
        uint32_t pos, scanned
        int stage, skipped
        uint32_t method_len, target, target_len, reason, reason_len
        int status, minor
        uint32_t flags
        int64_t length
        h1_span *spans
        uint32_t count, room
    ctypedef struct h1_out:
        char *p
        size_t n, room
    int h1_put(h1_out *o, const char *p, size_t n) nogil
    int h1_put_number(h1_out *o, int64_t value) nogil
    int h1_put_hex(h1_out *o, int64_t value) nogil


cdef enum:                      # what c_next() tells of
    EV_NEED_DATA = 0
    EV_HEAD = 1                 # `head` is new
    EV_DATA = 2                 # `piece`, `piece_len`: borrowed, until the next call of the reading side
    EV_END = 3                  # the message is over; `trailers`
    EV_PAUSED = 4
    EV_CLOSED = 5

cdef enum:                      # how a body is delimited
    BODY_NONE = 0
    BODY_LENGTH = 1
    BODY_CHUNKED = 2
    BODY_CLOSE = 3

cdef enum:                      # Head.flags: H1_* of _h1_scan.h
    HEAD_HAS_LENGTH = 1
    HEAD_CHUNKED = 2
    HEAD_CLOSE = 8
    HEAD_KEEP_ALIVE = 16
    HEAD_UPGRADE_NAMED = 32
    HEAD_HAS_UPGRADE = 64
    HEAD_EXPECT = 128
    HEAD_EXPECT_OTHER = 1024


cdef class Head(HeaderSource):
    cdef char *block            # the spans, then the bytes
    cdef char *text             # the bytes of the head, within `block`
    cdef uint32_t text_len, count, flags
    cdef uint32_t method_len, target_at, target_len, reason_at, reason_len
    cdef int code, minor
    cdef int64_t length
    cdef header_set fields

    cdef inline h1_span *spans(self):
        return <h1_span *>self.block

    cdef Py_ssize_t find(self, const char *lower, Py_ssize_t n, Py_ssize_t start) noexcept
    cdef bytes value_at(self, Py_ssize_t i)
    cdef bint wants_keep_alive(self) noexcept
    cdef header_set header_fields(self)


cdef class Connection:
    cdef readonly bint is_client
    # -- reading
    cdef h1_scan scan
    cdef const char *base       # what came; `at` to `stop` was not consumed
    cdef Py_ssize_t at, stop
    cdef char *own              # a copy of it that is ours, of `own_room` bytes
    cdef Py_ssize_t own_room
    cdef object held            # the bytes object that `base` points into
    cdef bint eof
    cdef int reading            # R_*
    cdef int body               # BODY_*: of the message that is read
    cdef int chunk              # C_*
    cdef int64_t left           # bytes of the body or of the chunk
    cdef int64_t overhead       # of chunk lines
    cdef Py_ssize_t max_chunk_line
    cdef int informational
    cdef Head head
    cdef Head trailers
    cdef const char *piece
    cdef Py_ssize_t piece_len
    cdef object error           # (class, message, status, limit) of the peer's fault
    cdef list expected          # client: (method, has Upgrade) of requests that wait for their response
    cdef Py_ssize_t expected_at
    # -- writing
    cdef int writing            # W_*
    cdef int out_body           # BODY_*: of the message that is written
    cdef int64_t out_left
    cdef bint must_close        # this side has said, or understood, that this is the last message
    cdef bint is_head           # the response to write is one to HEAD, or has no body for another reason
    cdef readonly bint switched

    cdef int c_feed(self, const char *p, Py_ssize_t n) except -1
    cdef int c_feed_eof(self) except -1
    cdef int own_copy(self, Py_ssize_t room) except -1
    cdef int c_keep(self) except -1
    cdef int c_forget(self) except -1
    cdef int c_next(self) except -1
    cdef bint c_has_input(self) noexcept
    cdef int fail(self, int code) except -1
    cdef int fail_with(self, object cls, str message, int status, Py_ssize_t limit) except -1
    cdef int next_head(self) except -1
    cdef int head_done(self) except -1
    cdef int body_of_request(self, Head head) except -1
    cdef int body_of_response(self, Head head) except -1
    cdef int begin_chunks(self) except -1
    cdef int next_chunk(self) except -1
    cdef int cycle(self) except -1
    cdef object joined(self)
    cdef int begun(self, int body, int64_t length) except -1
    cdef int next_trailer(self) except -1
    cdef int message_over(self) except -1
    cdef int clean_end(self) except -1
    cdef Head take_head(self, type cls, uint32_t n)
    cdef int put_response(self, h1_out *o, int status, object headers, object reason) except -1
    cdef int put_fields(self, h1_out *o, object headers, uint32_t *flags, int64_t *length) except -1
    cdef int put_frame(self, h1_out *o, const char *p, Py_ssize_t n) except -1
    cdef int count_out(self, Py_ssize_t n) except -1
    cdef int put_end(self, h1_out *o, object trailers) except -1
    cdef int written(self) except -1


cdef h1_out *output() noexcept
cdef bytes taken(h1_out *o)
cdef int put_field(h1_out *o, object name, object value) except -1
