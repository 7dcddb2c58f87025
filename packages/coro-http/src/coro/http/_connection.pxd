# The C face of a server's connection and of its requests. See _connection.pyx.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from coro.capi cimport sock
from coro.http.h1 cimport Connection, Head
from coro.http.headers cimport header_set


cdef enum:                      # fields that a handler's headers have
    WITH_DATE = 1
    WITH_SERVER = 2
    WITH_LENGTH = 4             # the right one
    WITH_ODDITIES = 8           # which respond_whole() leaves to others


cdef class Registry:
    cdef connection first
    cdef public bint draining
    # settings, times in ticks
    cdef int64_t head_time, idle_time, write_time, body_grace, linger_time
    cdef double body_rate               # bytes a tick
    cdef readonly int64_t drain_limit
    cdef dict limits                    # keywords for h1.Connection
    cdef public bytes server_line       # "server: coro\r\n", or empty
    cdef dict routes                    # b"GET /path" -> function
    cdef object handler                 # function of a request
    cdef object answer                  # function of a request and what the handler returned
    cdef object failed                  # function of a request and an exception
    cdef object connect                 # function of a stream and an address: a connection
    cdef object log                     # function of a finished request, or None
    cdef public Py_ssize_t max_body
    # counts
    cdef readonly uint64_t connections, requests, bytes_in, bytes_out, expired
    cdef public uint64_t errors
    cdef uint64_t by_class[6]
    cdef uint64_t buckets[16]
    cdef double seconds
    cdef readonly int open
    # messages about faults: most in a period (-1: no limit), left in this one, left out in it and altogether
    cdef int64_t log_most, log_left, log_until
    cdef uint64_t log_skipped
    cdef readonly uint64_t unlogged

    cdef int enter(self, connection c) except -1
    cdef int leave(self, connection c) except -1
    cdef int count(self, http_request r) except -1
    cdef int tell_skipped(self) except -1


cdef class connection:
    cdef readonly object server, conn, peer
    cdef public object remote           # what a trusted proxy says that the peer is
    cdef public object proxied          # whom a PROXY header has named as the peer
    cdef public object local
    cdef public bint is_tls
    cdef public object protocol
    cdef public object user             # whatever a handler wants to keep with the connection
    cdef public object wsgi_base, asgi_base     # what the bridges keep of one request for the next
    cdef object raw                     # the sock below `conn`
    cdef sock fast                      # `conn`, if it is a plain sock
    cdef Registry registry
    cdef connection next, prev
    cdef bint entered
    cdef Connection h1
    cdef http_request current
    cdef readonly int64_t request_number
    cdef int64_t deadline
    cdef int phase
    cdef bint expired
    cdef bint taken                     # somebody else has the stream
    cdef object returned                # event: the stream was handed back
    cdef object at_drain                # function: whoever has the stream wants to know when the server begins to end
    cdef public bint gone               # the client was seen to leave
    cdef int64_t waited                 # of the body: ticks that the client made us wait
    cdef int64_t body_got
    cdef readonly uint64_t sent
    cdef object __weakref__
    cdef dict __dict__

    cdef int fill(self, int phase) except -1
    cdef int64_t begin_fill(self, int phase) except -1
    cdef int end_fill(self, int phase, int64_t begin, Py_ssize_t n) except -1
    cdef int put_out(self, bytes data) except -1
    cdef int put_bytes(self, object owner, const char *p, Py_ssize_t n) except -1
    cdef int next_request(self) except -1
    cdef int c_run(self) except -1
    cdef int end_run(self, int failed) except -1
    cdef int serve_next(self) except -1
    cdef int serve_one(self, http_request r) except -1
    cdef int tell_of_drain(self) except -1
    cdef bint has_left(self) except -1
    cdef int conclude(self, http_request r) except -1
    cdef int drain_body(self) except -1
    cdef int refuse(self, object error) except -1
    cdef int linger(self) except -1


cdef class http_request:
    cdef readonly connection connection
    cdef readonly Head head
    cdef Connection h1
    cdef readonly object server
    cdef header_set replies             # reply_headers
    cdef list added                     # pairs that go with the reply
    cdef public int reply_code
    cdef readonly bint started, finished
    cdef bint continued                 # 100 was sent, or need not be
    cdef bint body_over
    cdef bint is_connect, taking
    cdef readonly bint body_began
    cdef Py_ssize_t path_at             # in head.text: of a whole URL as target, where its path begins
    cdef Py_ssize_t path_len            # without the query
    cdef Py_ssize_t rest_len            # with the query
    cdef int64_t began
    cdef readonly int64_t request_number
    cdef readonly int64_t bytes_sent
    cdef uint64_t sent_before
    cdef int64_t dropped                # bytes of a body that an answer to HEAD was given
    cdef object done_event
    cdef public object params, route
    cdef object body_file
    cdef object classic                 # what push() needs: see _ClassicOutput
    cdef object __weakref__
    cdef dict __dict__

    cdef bytes head_bytes(self, int status, object headers, object reason)
    cdef int put_date(self) except -1
    cdef object c_read_some(self, Py_ssize_t limit)
    cdef int respond_plain(
        self, const char *kind, Py_ssize_t kind_len, object owner, const char *p, Py_ssize_t n
    ) except -1
    cdef bint respond_whole(self, int status, list headers, int kinds, bytes data) except -1
    cdef bint is_usual(self) except -1
    cdef bint respond_prepared(self, bytes lines, int fd, int64_t count) except -1
    cdef int send_file(self, bytes head, int fd, int64_t offset, int64_t count) except -1
    cdef int drop(self, Py_ssize_t n) except -1
    cdef int over(self) except -1
