# cython: language_level=3, nonecheck=True, binding=False, embedsignature=True, embedsignature.format=clinic
"""A server's connection: reads requests one after the other, has each answered, and looks after time.

One thread per connection does all of it: it waits for a head, calls the handler, and goes on when the answer is
complete, so answers leave in the order of the requests whatever a client pipelines. A request is an object with one
piece of memory (`h1.Head`); its method, path and fields become Python objects when the handler asks for them. An answer
made of one piece leaves in one system call, head and body in one bytes object.

Time. A connection has one deadline, a number of ticks that is written before each wait and costs nothing else. The
registry of the server goes through its connections when the first of them can be over, and ends what is late by
shutdown(2), which the waiting thread sees as the end of its stream: no interruption can be lost, none can come at the
wrong moment. What counts: a head as a whole; silence between requests; a body against a rate, only while its reader
waits; each piece that is sent.

What a handler leaves unread of a body is read up to a limit, or the connection is closed after the answer: it must
never be taken for a request. A connection that is closed with something unread first ends its own direction and reads
on for a while, so that the answer is not lost in a reset (RFC 9112 9.6).

Cost: two system calls a request, about 500 bytes and the thread's stack for an idle connection. Rejected: a timer per
connection (an entry in a heap for each wait), a thread per request (a microsecond more, and answers would have to be
put in order), a buffer per connection (16 KiB for nothing in most of ten thousand).

Longer than most files here: a request and its connection share their fields, and a Cython class cannot be spread over
modules.
"""

# Invariants:
#
# 1. Between two waits `deadline` belongs to `phase`; 0 means that the registry has nothing to end.
# 2. What was received lies in `block`, which all connections share, only from the return of the system call to
#    c_keep(). Nothing in between can switch threads, or run code of a program, which could: so next_request(),
#    c_read_some() and drain_body() end with it.
# 3. After an exception of the peer, or a cut answer, no further request is read.
# 4. `finished` is set once, and the request is counted and logged then.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset
from libc.time cimport gmtime_r, time, time_t, tm

from coro.capi cimport coro_clock, coro_now, require_abi, sock, ticks_clock, ticks_from_seconds, ticks_to_seconds
from coro.http.h1 cimport (BODY_CHUNKED, BODY_CLOSE, BODY_LENGTH, BODY_NONE, EV_CLOSED, EV_DATA, EV_END, EV_HEAD,
                           EV_NEED_DATA, EV_PAUSED, HEAD_CHUNKED, HEAD_CLOSE, HEAD_EXPECT, HEAD_EXPECT_OTHER,
                           Connection, Head, h1_out, h1_put, h1_put_number, output, put_field, taken)
from coro.http.headers cimport header_set

import sys

import coro
from coro.exceptions import ClosedError, LoopError
from coro.http import h1 as _h1
from coro.http._reports import LOG, LOG_HANDLERS
from coro.http.exceptions import HTTP_Upgrade, HTTPException, IncompleteError, LimitError, LocalError, RemoteError

require_abi()

__all__ = ["Registry", "connection", "http_request"]

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object)
    const char *PyUnicode_AsUTF8AndSize(object, Py_ssize_t *) except NULL
    str PyUnicode_DecodeLatin1(const char *, Py_ssize_t, const char *)

cdef extern from *:
    """
    #include <sys/types.h>
    #include <sys/socket.h>
    #define CORO_WAS_RAISED(failed) (failed)
    #ifdef __linux__
    #include <sys/sendfile.h>
    #define CORO_HAS_SENDFILE 1
    #define coro_http_sendfile(out, in, at, n) sendfile(out, in, at, n)
    #else
    #include <errno.h>
    #define CORO_HAS_SENDFILE 0
    #define MSG_MORE 0
    static ssize_t coro_http_sendfile(int out, int in, off_t *at, size_t n)
    { (void)out; (void)in; (void)at; (void)n; errno = ENOSYS; return -1; }
    #endif
    """
    ctypedef long off_t
    int was_raised "CORO_WAS_RAISED"(int failed) except -1      # passes on an exception that is set, if it has failed
    bint HAS_SENDFILE "CORO_HAS_SENDFILE"
    int MSG_MORE
    Py_ssize_t c_sendfile "coro_http_sendfile"(int out, int fd, off_t *at, size_t n)

cdef enum:
    CLIENT_LEFT = 499       # for the log and the counts: nothing of the answer was sent (the number is nginx's)
    BLOCK = 65536           # bytes of the block that everybody receives into
    SLICE = 262144          # bytes sent under one deadline
    SMALL = 800             # characters of text that nobody would compress
    JOIN = 65536            # a piece of a body up to this size is copied behind its frame

    P_NONE = 0
    P_IDLE = 1              # waits for the first byte of a request
    P_HEAD = 2
    P_BODY = 3
    P_WRITE = 4
    P_LINGER = 5

cdef char block[BLOCK]
cdef coro_clock *clock = ticks_clock()

# the date line of this second
cdef time_t date_at = 0
cdef char date_line[40]
cdef int date_len = 0
cdef bytes DAYS = b"SunMonTueWedThuFriSat"
cdef bytes MONTHS = b"JanFebMarAprMayJunJulAugSepOctNovDec"

# Seconds over which messages about faults are counted for the limit of the log.
LOG_SECONDS = 10
cdef int64_t log_time = ticks_from_seconds(LOG_SECONDS)

# upper bounds of the buckets of the histogram of durations, in seconds
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
cdef int64_t[15] bounds
for _i in range(15):
    bounds[_i] = ticks_from_seconds(BOUNDS[_i])


cdef void two(char *p, int n) noexcept:
    p[0] = <char>(48 + n // 10)
    p[1] = <char>(48 + n % 10)


cdef int tell_date() noexcept:
    """date_line: "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n", made once a second."""
    global date_at, date_len
    cdef time_t now = time(NULL)
    cdef tm t
    cdef char *p = date_line
    if now == date_at:
        return 0
    gmtime_r(&now, &t)
    memcpy(p, b"date: ", 6)
    memcpy(p + 6, <const char *>DAYS + 3 * t.tm_wday, 3)
    memcpy(p + 9, b", ", 2)
    two(p + 11, t.tm_mday)
    p[13] = 32
    memcpy(p + 14, <const char *>MONTHS + 3 * t.tm_mon, 3)
    p[17] = 32
    two(p + 18, (t.tm_year + 1900) // 100)
    two(p + 20, t.tm_year % 100)
    p[22] = 32
    two(p + 23, t.tm_hour)
    p[25] = 58
    two(p + 26, t.tm_min)
    p[28] = 58
    two(p + 29, t.tm_sec)
    memcpy(p + 31, b" GMT\r\n", 6)
    date_len = 37
    date_at = now
    return 0


cdef inline int put(h1_out *o, const char *p, Py_ssize_t n) except -1:
    if h1_put(o, p, n):
        raise MemoryError()
    return 0


def now_header():
    """The present time as the value of a Date field, bytes."""
    tell_date()
    return PyBytes_FromStringAndSize(date_line + 6, 29)


cdef class Registry:
    """Registry(handler, answer, failed, connect, **settings)\n--\n\n\
    The connections of one server, their settings and their counts. Made by `coro.http.server`.

    ``handler``: function of a request; ``answer``: function of a request and what the handler returned; ``failed``:
    function of a request and the exception of its handler; ``connect``: function of a stream and an address that makes
    a `connection`. Times are in seconds.
    """

    def __init__(self, handler, answer, failed, connect, *, log=None, dict routes=None, dict limits=None,
                 double head_timeout=30.0, double idle_timeout=75.0, double write_timeout=30.0,
                 double body_grace=10.0, double body_rate=1024.0, double linger_timeout=2.0, drain_limit=262144,
                 max_body=16777216, bytes server_line not None=b"", log_limit=None):
        self.handler = handler
        self.answer = answer
        self.failed = failed
        self.connect = connect
        self.log = log
        self.routes = {} if routes is None else routes
        self.limits = limits or {}
        self.head_time = ticks_from_seconds(head_timeout)
        self.idle_time = ticks_from_seconds(idle_timeout)
        self.write_time = ticks_from_seconds(write_timeout)
        self.body_grace = ticks_from_seconds(body_grace)
        self.linger_time = ticks_from_seconds(linger_timeout)
        self.body_rate = body_rate / ticks_from_seconds(1.0)
        self.drain_limit = drain_limit
        self.max_body = max_body
        self.server_line = server_line
        self.log_most = -1 if log_limit is None else log_limit

    def serve(self, conn, address, /):
        """Serve a stream: the handler of the server below. Compiled, so that a connection that waits has no frame."""
        cdef connection made = self.connect(conn, address)
        if type(made) is connection:
            made.c_run()
        else:
            made.run()

    cdef int enter(self, connection c) except -1:
        c.next = self.first
        if self.first is not None:
            self.first.prev = c
        self.first = c
        c.entered = True
        self.open += 1
        self.connections += 1
        return 0

    cdef int leave(self, connection c) except -1:
        if not c.entered:
            return 0
        if c.prev is None:
            self.first = c.next
        else:
            c.prev.next = c.next
        if c.next is not None:
            c.next.prev = c.prev
        c.next = c.prev = None
        c.entered = False
        self.open -= 1
        return 0

    cdef int count(self, http_request r) except -1:
        cdef int64_t took = coro_now(clock) - r.began
        cdef int kind = r.reply_code // 100
        cdef int i = 0
        self.requests += 1
        if 0 <= kind < 6:
            self.by_class[kind] += 1
        while i < 15 and took > bounds[i]:
            i += 1
        self.buckets[i] += 1
        self.seconds += ticks_to_seconds(took)
        return 0

    def sweep(self):
        """End what is late; returns how many seconds to wait until the next call, None if there are no connections."""
        cdef connection c = self.first, following
        cdef int64_t now = coro_now(clock)
        cdef int64_t soonest = now + min(self.head_time, self.idle_time, self.write_time, self.body_grace,
                                         self.linger_time)
        if c is None:
            return None
        if self.log_skipped and now >= self.log_until:
            self.tell_skipped()
        while c is not None:
            following = c.next
            if c.deadline:
                if c.deadline <= now:
                    c.expire()
                elif c.deadline < soonest:
                    soonest = c.deadline
            c = following
        return max(ticks_to_seconds(soonest - now), 0.01)

    def drain(self, double linger):
        """No further requests on the connections: those that are idle get ``linger`` seconds in which a request that is
        on its way is still answered. Those that other protocols have taken over are told."""
        cdef connection c = self.first
        cdef int64_t late = coro_now(clock) + ticks_from_seconds(linger)
        self.draining = True
        while c is not None:
            if c.phase == P_IDLE and (c.deadline == 0 or c.deadline > late):
                c.deadline = late
            if c.at_drain is not None:
                c.tell_of_drain()
            c = c.next

    def may_log(self):
        """Whether a message about a fault may be logged now; what may not is counted, and told later in one line."""
        cdef int64_t now
        if self.log_most < 0:
            return True
        now = coro_now(clock)
        if now >= self.log_until:
            self.log_until = now + log_time
            self.log_left = self.log_most
            if self.log_skipped:
                self.tell_skipped()
        if self.log_left > 0:
            self.log_left -= 1
            return True
        self.log_skipped += 1
        self.unlogged += 1
        return False

    cdef int tell_skipped(self) except -1:
        skipped = self.log_skipped
        self.log_skipped = 0
        LOG("not logged", skipped, f"more messages than {self.log_most} in {LOG_SECONDS} s: see log_limit")
        return 0

    def counts(self):
        """The counts as a dict: requests by class of status, durations by bucket, bytes, connections."""
        return {
            "connections": self.connections,
            "open": self.open,
            "requests": self.requests,
            "by_class": {f"{i}xx": self.by_class[i] for i in range(1, 6)},
            "durations": [self.buckets[i] for i in range(16)],
            "seconds": self.seconds,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "expired": self.expired,
            "errors": self.errors,
            "unlogged": self.unlogged,
        }

    def all(self):
        """The connections, newest first."""
        cdef connection c = self.first
        found = []
        while c is not None:
            found.append(c)
            c = c.next
        return found


cdef class connection:
    """connection(server, conn, addr, registry, raw=None)\n--\n\n\
    One client of a server: ``run()`` reads its requests until it goes.

    ``conn`` is the stream, ``addr`` the peer's address, ``raw`` the sock below a stream of TLS. ``remote`` is the
    address that a trusted proxy has told, ``local`` that of this side; ``proxied`` is the one in the PROXY header, None
    without one.
    """

    def __init__(self, server, conn, addr, Registry registry not None, raw=None):
        if self.h1 is not None:
            raise RuntimeError("a connection cannot be initialised twice: make a new one")
        self.server = server
        self.conn = conn
        self.raw = conn if raw is None else raw
        self.peer = self.remote = addr
        self.registry = registry
        self.protocol = "http"
        if type(conn) is sock:
            self.fast = <sock>conn
        self.h1 = Connection(_h1.SERVER, **registry.limits)

    def __repr__(self):
        state = ("closed", "idle", "reading a head", "reading a body", "sending", "closing")[self.phase]
        if self.phase == P_NONE and self.entered:
            state = "answering"
        return f"<connection from {self.peer}: {state}, {self.request_number} requests>"

    @property
    def over_tls(self):
        """Whether the connection itself is one of TLS, whatever a proxy says of the client's."""
        return self.raw is not self.conn

    def expire(self):
        """The registry's: what this connection waits for is late."""
        cdef int phase = self.phase
        self.deadline = 0
        if phase == P_NONE:
            return
        self.expired = True
        self.registry.expired += 1
        try:
            # Reading ends, and an answer can still be sent; a stuck sender is not to be helped.
            self.raw.shutdown(coro.SHUT.RD if phase in (P_HEAD, P_BODY, P_IDLE) else coro.SHUT.RDWR)
        except OSError:
            return                              # it has gone by itself

    # -- bytes

    cdef int fill(self, int phase) except -1:
        """Receive; the number of bytes, 0 at the end of the stream."""
        # What is here is on the stack of each connection that waits; so it is little, and has no ``try``.
        cdef int64_t begin = self.begin_fill(phase)
        if self.fast is not None:
            return self.end_fill(phase, begin, (<waiting><void *>receive_fast)(self))
        return self.end_fill(phase, begin, (<waiting><void *>receive)(self))

    cdef int64_t begin_fill(self, int phase) except -1:
        cdef Registry g = self.registry
        cdef int64_t begin
        self.h1.c_keep()
        begin = coro_now(clock)
        if phase == P_HEAD:
            if self.phase != P_HEAD:
                self.deadline = begin + g.head_time
        elif phase == P_IDLE:
            self.deadline = begin + (g.idle_time if self.request_number else g.head_time)
            if g.draining:
                self.deadline = begin + min(g.linger_time, g.idle_time)
        elif phase == P_BODY:
            self.deadline = begin + g.body_grace - self.waited
            if g.body_rate > 0:
                self.deadline += <int64_t>(self.body_got / g.body_rate)
        elif self.phase != phase:
            self.deadline = begin + g.linger_time
        self.phase = phase
        return begin

    cdef int end_fill(self, int phase, int64_t begin, Py_ssize_t n) except -1:
        if phase != P_HEAD and phase != P_IDLE:
            self.phase = P_NONE
            self.deadline = 0
        if n < 0:
            return -1                           # an exception is set
        if n == 0:
            self.h1.c_feed_eof()
        elif self.fast is not None:
            self.h1.c_feed(block, n)
        if phase == P_BODY:
            self.waited += coro_now(clock) - begin
            self.body_got += n
        self.registry.bytes_in += n
        return <int>n

    cdef int put_bytes(self, object owner, const char *p, Py_ssize_t n) except -1:
        """Send; `owner` has the memory."""
        cdef Registry g = self.registry
        cdef Py_ssize_t done = 0, now
        cdef int before = self.phase
        if n == 0:
            return 0
        self.phase = P_WRITE
        try:
            if self.fast is None:
                while done < n:
                    now = min(n - done, <Py_ssize_t>SLICE)
                    self.deadline = coro_now(clock) + g.write_time
                    self.conn.send(owner if type(owner) is bytes and PyBytes_GET_SIZE(owner) == now
                                   else PyBytes_FromStringAndSize(p + done, now))
                    done += now
            else:
                while done < n:
                    now = min(n - done, <Py_ssize_t>SLICE)
                    self.deadline = coro_now(clock) + g.write_time
                    self.fast.c_send(p + done, now, 0)
                    done += now
        except BaseException:
            self.h1.must_close = True
            raise
        finally:
            self.phase = before if before != P_IDLE else P_NONE
            self.deadline = 0
        self.sent += n
        g.bytes_out += n
        return 0

    cdef int put_out(self, bytes data) except -1:
        return self.put_bytes(data, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    def send(self, data):
        """Send bytes as they are: for protocols that have taken the connection over."""
        self.put_out(bytes(data))

    # -- requests

    cdef int next_request(self) except -1:
        """1: `h1.head` is a new request; 0: there will be none. Raises RemoteError."""
        cdef int kind
        cdef bint begun = False
        cdef Connection c = self.h1
        self.expired = False
        while True:
            kind = c.c_next()
            if kind == EV_HEAD:
                c.c_keep()                      # (requests behind it, or the beginning of its body)
                self.phase = P_NONE
                self.deadline = 0
                self.waited = self.body_got = 0
                return 1
            if kind != EV_NEED_DATA:
                return 0
            begun = c.c_has_input()
            if self.fill(P_HEAD if begun else P_IDLE) == 0 and self.expired and not begun:
                return 0                        # silent for too long, or the server is to end

    def run(self):
        """Serve this connection until it ends. Does not raise for what the peer does."""
        self.c_run()

    cdef int c_run(self) except -1:
        if self.h1 is None:
            raise TypeError("this connection was not initialised: have __init__ of its class call super().__init__()")
        if self.entered:
            raise RuntimeError("this connection is being served: run() is called once")
        self.registry.enter(self)
        return self.end_run((<working><void *>serve_requests)(self))

    cdef int end_run(self, int failed) except -1:
        """`failed`: there will be no further requests because of an exception, which is set."""
        cdef Registry g = self.registry
        try:
            was_raised(failed)
            if self.taken:
                if self.returned is not None:
                    self.returned.wait()
            else:
                self.linger()
        except RemoteError as e:
            g.errors += 1
            self.refuse(e)
        except (OSError, EOFError, ClosedError):
            return 0                            # the client has gone
        finally:
            self.phase = P_NONE
            self.deadline = 0
            self.current = self.at_drain = None
            g.leave(self)
        return 0

    def make_request(self):
        """The request that was read: `http_request`, or what a subclass makes of it."""
        cdef http_request r = http_request.__new__(http_request)
        cdef Head head = self.h1.head
        cdef char *query
        r.connection = self
        r.server = self.server
        r.head = head
        r.h1 = self.h1
        r.reply_code = 200
        r.began = coro_now(clock)
        r.request_number = self.request_number
        r.sent_before = self.sent
        if head.method_len == 7 and memcmp(head.text, b"CONNECT", 7) == 0:
            # Whatever is answered but a success, what the client sends next may be the tunnel's.
            r.is_connect = self.h1.must_close = True
        r.path_at = head.target_at
        r.rest_len = head.target_len
        if head.text[r.path_at] != 47 and not r.is_connect:
            find_path(r)
        query = <char *>memchr(head.text + r.path_at, 63, r.rest_len)
        r.path_len = query - (head.text + r.path_at) if query != NULL else r.rest_len
        if self.h1.body == BODY_NONE:
            self.h1.c_next()                    # EV_END
            r.body_over = True
        # (HTTP/1.0 knows no expectations, RFC 9110 10.1.1)
        r.continued = not head.flags & (HEAD_EXPECT | HEAD_EXPECT_OTHER) or head.minor == 0 or r.body_over
        return r

    cdef int serve_next(self) except -1:
        """Answer the request whose head was read."""
        cdef http_request r
        self.request_number += 1
        r = self.make_request()
        self.current = r
        self.serve_one(r)
        self.current = None
        return 0

    cdef int serve_one(self, http_request r) except -1:
        cdef Registry g = self.registry
        cdef Head head = r.head
        cdef object result, handler = None
        try:
            if head.flags & HEAD_EXPECT_OTHER and head.minor:
                raise HTTPException(417, "expected 'Expect: 100-continue', or none")
            if g.routes:
                handler = g.routes.get(PyBytes_FromStringAndSize(head.text, head.target_at + r.path_len))
            result = (g.handler if handler is None else handler)(r)
            if result is None:
                if not r.finished and not self.taken:
                    g.answer(r, result)
            elif r.is_connect and not r.started:
                g.failed(r, HTTPException(405))
            elif type(result) is str and len(<str>result) < SMALL and not r.started:
                r.respond_text(result)
            else:
                g.answer(r, result)
        except HTTP_Upgrade:
            if not self.taken:
                self.taken = True
                self.returned = coro.event()
            return 0
        except (OSError, EOFError, ClosedError) as e:
            if self.is_ours(e):
                self.h1.must_close = True
                if not r.finished:
                    if not r.started or self.sent == r.sent_before:
                        r.reply_code = CLIENT_LEFT      # (100, which may have been sent, is no answer)
                    r.over()
                raise
            self.fault(r, e)
        except (Exception, SystemExit) as e:    # (a handler that exits ends nothing but its own request)
            self.fault(r, e)
        except BaseException:
            self.h1.must_close = True
            raise
        if not self.taken:
            self.conclude(r)
        return 0

    def is_ours(self, e):
        """Whether the exception says that this connection is gone, and not another one that the handler uses."""
        if isinstance(e, ClosedError):
            return self.gone or self.raw.closed
        if isinstance(e, (ConnectionResetError, BrokenPipeError)):
            return self.expired or getattr(self.raw, "_peer_reset", True)
        # A TLS client that went without a farewell: the error names the sock.
        return isinstance(e, ConnectionError) and getattr(e, "_sock", None) is self.raw

    def fault(self, http_request r, e):
        """The handler has raised `e`."""
        self.registry.errors += not isinstance(e, HTTPException)
        if self.taken:
            if self.registry.may_log():
                LOG_HANDLERS.failure(e, "error", repr(r))
            return
        if r.started:
            # Half an answer is out: the client sees that the rest is missing, and nothing that looks like an answer.
            self.h1.must_close = True
            if not r.finished:
                if not isinstance(e, RemoteError) and self.registry.may_log():
                    LOG_HANDLERS.failure(e, "error", repr(r))
                r.over()
                self.cut()
            return
        self.registry.failed(r, e)

    def cut(self):
        """End the connection so that the client cannot take what it has for the whole."""
        try:
            if self.h1.out_body == BODY_CLOSE and self.fast is not None:
                # an end in order would look like the end of the body: a reset does not
                self.fast.setsockopt(coro.SOL.SOCKET, coro.SO.LINGER, b"\x01\0\0\0\0\0\0\0")
            self.raw.shutdown(coro.SHUT.RDWR)
        except OSError:
            return

    cdef bint has_left(self) except -1:
        """Whether the peer has ended its direction, as far as that can be seen without reading."""
        if type(self.raw) is not sock:
            return False
        try:
            return not self.raw.recv(1, coro.MSG.PEEK | coro.MSG.DONTWAIT)
        except coro.oserrors.EAGAIN:
            return False
        except OSError:
            return True

    cdef int conclude(self, http_request r) except -1:
        """After the handler: the answer is completed, and the rest of the body read."""
        if not r.finished:
            if not r.started:
                self.registry.failed(r, None)
            else:
                r.finish()
        if not r.body_over and not self.h1.must_close:
            self.drain_body()
        return 0

    cdef int drain_body(self) except -1:
        """Read what the handler has left, up to a limit."""
        cdef int64_t limit = self.registry.drain_limit
        cdef int kind
        while True:
            kind = self.h1.c_next()
            if kind == EV_DATA:
                limit -= self.h1.piece_len
                if limit < 0:
                    self.h1.must_close = True
                    self.h1.c_keep()
                    return 0
            elif kind == EV_NEED_DATA:
                self.fill(P_BODY)
            else:
                self.h1.c_keep()
                return 0

    cdef int refuse(self, object error) except -1:
        """Answer something that is no request, and close."""
        cdef int status = error.status
        cdef bytes said
        if self.expired:
            status = 408
        elif isinstance(error, IncompleteError):
            return 0                            # nobody is there to read it
        if self.current is not None and self.current.started:
            return 0
        try:
            said = (str(error) + "\n").encode("utf-8", "replace")
            if status == 408:
                said = b"the request did not arrive in time\n"
            self.h1.writing = 0
            self.h1.head = None
            self.put_out(self.h1.response(status, [
                ("content-type", "text/plain; charset=utf-8"), ("content-length", len(said)), ("connection", "close"),
                ("date", now_header())]) + said)
            if self.registry.may_log():
                LOG("refused", self.peer, status, str(error))
            self.linger()
        except (OSError, EOFError, ClosedError):
            return 0
        return 0

    cdef int linger(self) except -1:
        """Before the connection is closed: have the client see the end of what was sent, not a reset."""
        cdef Py_ssize_t left = 262144
        cdef Py_ssize_t n
        if self.h1.reading == 0 or self.h1.eof:
            return 0                            # nothing can be under way
        if self.raw is not self.conn:
            return 0                            # TLS has an end of its own
        try:
            self.conn.shutdown(coro.SHUT.WR)
            while left > 0:
                self.h1.at = self.h1.stop
                n = self.fill(P_LINGER)
                if n == 0:
                    return 0
                left -= n
        except (OSError, EOFError, ClosedError):
            return 0
        return 0

    def pick_handler(self, request):
        """Classic: the first of the server's handlers whose ``match(request)`` is true, or None."""
        for handler in self.server.handlers:
            if handler.match(request):
                return handler
        return None

    def close(self):
        """Close the stream."""
        self.conn.close()

    def call_at_drain(self, function):
        """Have ``function()`` called, in a thread of its own, when the server begins to end; at once if it has begun.
        For protocols that have taken the connection over: the server waits for them as it does for a request."""
        self.at_drain = function
        if self.registry.draining:
            self.tell_of_drain()

    cdef int tell_of_drain(self) except -1:
        function, self.at_drain = self.at_drain, None
        try:
            coro.spawn(function, thread_name=f"end of {self!r}", daemon=True)
        except LoopError:
            return 0                            # the loop is ending, and interrupts the connections itself
        return 0

    def hand_back(self):
        """After HTTP_Upgrade: whoever took the stream over is ready, and the server may close it."""
        if self.returned is not None:
            self.returned.set()

    def log(self, *data):
        """Log ``data`` with the protocol and the peer before it."""
        LOG(self.protocol, self.peer, *data)


# These wait and do not handle what they raise: they are called as functions that raise nothing, and the caller, which
# then needs no ``try``, passes on that they have failed. A ``try`` is a hundred bytes of stack for each connection.
ctypedef Py_ssize_t (*waiting)(connection) noexcept
ctypedef int (*working)(connection) noexcept


cdef Py_ssize_t receive_fast(connection c) except -1:
    return c.fast.c_recv_into(block, BLOCK, 0)


cdef Py_ssize_t receive(connection c) except -1:
    data = c.conn.recv(16384)
    if data:
        c.h1.feed(data)
    return len(data)


cdef int serve_requests(connection c) except -1:
    """All requests of a connection, one after the other."""
    while c.next_request():
        c.serve_next()
        if c.taken or c.h1.must_close:
            return 0
        c.h1.c_forget()
    return 0


cdef int find_path(http_request r) except -1:
    """The path of a target that does not begin with one, RFC 9112 3.2: a whole URL, or the ``*`` of OPTIONS. Raises
    RemoteError for anything else.

    Clients send to a proxy what is meant here, so a server has to take it (3.2.2). The host in it has to be the one of
    the field Host: who looks at one of them sees the same as who looks at the other.
    """
    cdef Head head = r.head
    cdef bytes target = head.target, rest, authority
    cdef Py_ssize_t slash
    if target == b"*" and head.method == b"OPTIONS":
        return 0
    scheme, _, rest = target.partition(b"://")
    if scheme.lower() not in (b"http", b"https") or not rest:
        raise RemoteError("expected a request target such as /path or http://host/path; '*' is for OPTIONS, and "
                          "host:port for CONNECT", status=400)
    slash = rest.find(b"/")
    mark = rest.find(b"?")
    if 0 <= mark and (slash < 0 or mark < slash):   # "http://host?query", whose path is empty
        slash = mark
    authority = rest if slash < 0 else rest[:slash]
    if not authority or b"@" in authority:
        raise RemoteError("expected http://host/path as the request target, without a user's name", status=400)
    host = head.header_fields().get("host")
    if host is not None and host_of(host.encode("latin-1"), scheme) != host_of(authority, scheme):
        raise RemoteError("expected the same host in the request target and in the field Host", status=400)
    if slash < 0:                               # "http://host": its second slash is the path
        r.path_at += len(scheme) + 2
        r.rest_len = 1
    elif slash == mark:
        # An empty path is "/" (RFC 9112 3.2.1), for which there is no place but the host's last letter.
        head.target_at += len(scheme) + 3 + slash - 1
        head.target_len -= len(scheme) + 3 + slash - 1
        head.text[head.target_at] = 47
        r.path_at = head.target_at
        r.rest_len = head.target_len
    else:
        r.path_at += len(scheme) + 3 + slash
        r.rest_len = len(rest) - slash
    return 0


def no_number(name):
    """For the parser of JSON, which would take it."""
    raise ValueError(f"{name} is no number of JSON")


cdef bytes host_of(bytes authority, bytes scheme):
    """For a comparison: in lower case, without the port that the scheme has anyway (RFC 3986 6.2.3)."""
    cdef bytes lower = authority.lower()
    return lower.removesuffix(b":443" if scheme.lower() == b"https" else b":80").removesuffix(b":")


cdef class http_request:
    """One request and its answer. The server makes it; a handler gets it.

    What was asked: ``method_raw``, ``target``, ``path``, ``query``, ``headers``; its body by ``read``, ``read_some``,
    iteration or ``file``. The answer: what the handler returns, or ``respond``, or ``start``, ``send`` and ``finish``;
    in the classic form ``request[name] = value``, ``push`` and ``done``.
    """

    # -- what was asked

    @property
    def method(self):
        """The method in lower case."""
        return PyUnicode_DecodeLatin1(self.head.text, self.head.method_len, NULL).lower()

    @property
    def method_raw(self):
        """The method as it came."""
        return PyUnicode_DecodeLatin1(self.head.text, self.head.method_len, NULL)

    @property
    def target(self):
        """The request target as it came, bytes."""
        return PyBytes_FromStringAndSize(self.head.text + self.head.target_at, self.head.target_len)

    @property
    def uri(self):
        """The request target as text."""
        return PyUnicode_DecodeLatin1(self.head.text + self.head.target_at, self.head.target_len, NULL)

    @property
    def request(self):
        """The request line."""
        return f"{self.method_raw} {self.uri} HTTP/{self.version}"

    @property
    def path(self):
        """The path of the target, as it came: percent-encoded, without the query. That of a whole URL, too."""
        return PyUnicode_DecodeLatin1(self.head.text + self.path_at, self.path_len, NULL)

    @property
    def query(self):
        """The query with its question mark, or None."""
        if self.path_len == self.rest_len:
            return None
        return PyUnicode_DecodeLatin1(self.head.text + self.path_at + self.path_len,
                                      self.rest_len - self.path_len, NULL)

    @property
    def query_string(self):
        """The query without its question mark, bytes, perhaps empty."""
        cdef Py_ssize_t skip = min(self.path_len + 1, self.rest_len)
        return PyBytes_FromStringAndSize(self.head.text + self.path_at + skip, self.rest_len - skip)

    @property
    def version(self):
        """"1.1" or "1.0"."""
        return "1.1" if self.head.minor else "1.0"

    @property
    def headers(self):
        """The fields of the request, a `header_set`."""
        return self.head.header_fields()

    @property
    def request_headers(self):
        """The fields of the request, a `header_set`."""
        return self.head.header_fields()

    @property
    def raw_headers(self):
        """The fields as they came: ``[(name, value)]``, both bytes."""
        return self.head.raw_headers

    def get_headers(self):
        """The fields of the request as lines."""
        return [f"{name}: {value}" for name, value in self.headers.items()]

    @property
    def client(self):
        """The `connection`."""
        return self.connection

    @property
    def peer(self):
        """The address of the other end of the connection."""
        return self.connection.peer

    @property
    def remote(self):
        """The client's address: that of the other end, or what a trusted proxy says."""
        return self.connection.remote

    @property
    def is_tls(self):
        """Whether the request came over TLS."""
        return self.connection.is_tls

    @property
    def scheme(self):
        """"https" or "http"."""
        return "https" if self.connection.is_tls else "http"

    @property
    def host(self):
        """The Host field, perhaps with a port; None without one."""
        return self.head.header_fields().get("host")

    @property
    def bad(self):
        """Whether the target has no path: the ``*`` of OPTIONS, or what CONNECT names."""
        return self.head.text[self.path_at] != 47

    @property
    def is_done(self):
        """Whether the answer is complete."""
        return self.finished

    @property
    def tstart(self):
        """When the head was complete, in ticks."""
        return self.began

    @property
    def seconds(self):
        """Seconds since the head was complete."""
        return ticks_to_seconds(coro_now(clock) - self.began)

    def __repr__(self):
        return f"<request from {self.connection.peer}: {self.request!r}>"

    def __getitem__(self, name):
        """The value of a field of the request, None if there is none."""
        return self.head.header_fields().get_one(name)

    def __setitem__(self, name, value):
        """Add a field to the answer."""
        self.reply_headers[name] = value

    # -- its body

    @property
    def body_length(self):
        """Bytes of the body: 0 without one, -1 if it comes in chunks."""
        return self.head.content_length

    def has_body(self):
        """Whether the request has a body."""
        return self.h1.body != BODY_NONE or self.body_began or not self.body_over

    @property
    def trailers(self):
        """The fields behind a chunked body that was read, a `header_set`; None if there are none."""
        return self.h1.trailers.header_fields() if self.body_over and self.h1.trailers is not None else None

    cdef object c_read_some(self, Py_ssize_t limit):
        cdef Connection c = self.h1
        cdef connection conn = self.connection
        cdef int kind
        cdef bytes data
        if limit < 1:
            raise ValueError(f"expected a number of bytes above 0, not {limit}")
        if self.body_over:
            return b""
        self.body_began = True
        if not self.continued:
            self.continued = True
            if not self.started:
                conn.put_out(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            while True:
                kind = c.c_next()
                if kind == EV_DATA:
                    if c.piece_len > limit:
                        self.give_back(c.piece_len - limit)
                    data = PyBytes_FromStringAndSize(c.piece, c.piece_len)
                    c.c_keep()                  # (further chunks)
                    return data
                if kind == EV_NEED_DATA:
                    conn.fill(P_BODY)
                else:
                    self.body_over = True
                    c.c_keep()
                    return b""
        except RemoteError as e:
            self.body_over = True
            conn.h1.must_close = True
            c.c_keep()
            if conn.expired:
                raise RemoteError("the body came too slowly", 408) from e
            raise

    def give_back(self, Py_ssize_t n):
        """Of the last piece, the last ``n`` bytes are for the next call."""
        cdef Connection c = self.h1
        c.at -= n
        c.left += n
        c.piece_len -= n
        if c.body == BODY_CHUNKED:
            c.chunk = 1                         # C_DATA
        else:
            c.reading = 1                       # R_BODY

    def read_some(self, Py_ssize_t n=65536):
        """The next piece of the body, at most ``n`` bytes; ``b""`` at its end. The first call tells a client that waits
        for it to send the body.

        `IncompleteError` if the client ends before the body does, `RemoteError` for a damaged one or one that comes too
        slowly (status 408), ValueError for ``n`` below 1.
        """
        return self.c_read_some(n)

    def read(self, limit=None):
        """The whole body. ``limit``: the most bytes, the server's ``max_body`` if None; more than that is a
        `LimitError` (413). Raises as ``read_some`` does."""
        cdef list pieces = []
        cdef Py_ssize_t total = 0
        cdef Py_ssize_t most = self.connection.registry.max_body if limit is None else limit
        if self.body_over:
            return b""
        if self.head.content_length > most:
            raise LimitError(f"the body of {self.head.content_length} bytes is longer than {most}", 413, most)
        while True:
            piece = self.c_read_some(65536)
            if not piece:
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            total += PyBytes_GET_SIZE(piece)
            if total > most:
                self.h1.must_close = True
                raise LimitError(f"the body is longer than {most} bytes", 413, most)
            pieces.append(piece)

    def readinto(self, buffer):
        """Read a piece of the body into a writable buffer; returns the number of bytes, 0 at the end."""
        view = memoryview(buffer).cast("B")
        if not len(view):
            return 0
        data = self.c_read_some(len(view))
        view[:len(data)] = data
        return len(data)

    def __iter__(self):
        return iter(self.read_some, b"")

    @property
    def file(self):
        """The body as a classic ``http_file``, None if there is none."""
        if self.body_file is None and (not self.body_over or self.body_began):
            from coro.http.protocol import http_file
            self.body_file = http_file(self)
        return self.body_file

    def wait_until_read(self):
        """Wait until somebody has read the whole body."""
        if self.file is not None:
            self.file.wait()

    # -- what it means

    def json(self):
        """The body as JSON. `HTTPException` 400 if it is none, or has one of NaN and Infinity (RFC 8259 6)."""
        import json
        body = self.read()
        try:
            return json.loads(body, parse_constant=no_number)
        except (ValueError, RecursionError) as e:
            raise HTTPException(400, f"the body is no JSON: {e}") from None

    def form(self, **limits):
        """The body as a `coro.http.forms.Form`, urlencoded or multipart; ``limits`` as `coro.http.forms.read_form`."""
        from coro.http.forms import read_form
        return read_form(self, **limits)

    @property
    def cookies(self):
        """The cookies that the client sent, a dict."""
        from coro.http.cookies import parse_cookie
        return parse_cookie(self.head.header_fields().get_one("cookie"))

    @property
    def query_pairs(self):
        """The pairs of the query, decoded: ``[(name, value)]``. `HTTPException` 400 for more than a thousand."""
        from coro.http.routing import query
        return query(self)

    # -- the answer

    @property
    def reply_headers(self):
        """The fields that the answer will have besides those it is given, a `header_set`."""
        if self.replies is None:
            self.replies = header_set()
        return self.replies

    def add_header(self, name, value):
        """Add a field to the answer, whoever begins it."""
        if self.started:
            raise LocalError("the head of the answer has been sent: add fields before")
        if self.added is None:
            self.added = []
        self.added.append((name, value))

    def _drop_added(self):
        """The server's, for an answer after one of the fields was found impossible."""
        self.added = self.replies = None

    cdef int put_date(self) except -1:
        return tell_date()

    cdef bytes head_bytes(self, int status, object headers, object reason):
        """The head of the answer, but for the empty line at its end; it counts as started."""
        cdef Connection c = self.h1
        cdef h1_out *o
        cdef list fields
        cdef bint date = True, server = self.connection.registry.server_line != b""
        if self.started:
            raise LocalError("the answer to this request has begun: one request has one answer")
        if type(headers) is list and self.added is None and self.replies is None:
            fields = <list>headers
        else:
            if isinstance(headers, header_set):
                headers = (<header_set>headers).items()
            elif hasattr(headers, "items"):
                headers = headers.items()
            fields = list(headers)
            if self.added is not None:
                fields += self.added
            if self.replies is not None:
                fields += self.replies.items()
        if self.is_connect and 200 <= status < 300 and not self.taking:
            raise LocalError("a 2xx to CONNECT makes the connection a tunnel: use takeover(), or answer otherwise")
        if self.connection.registry.draining:
            c.must_close = True
        if status >= 200 and not self.body_over and not self.continued:
            # The client may send the body it has announced, or not: nobody can know what its next bytes are.
            c.must_close = True
        elif (status >= 200 and not self.body_over and c.body == BODY_LENGTH
              and c.left > self.connection.registry.drain_limit):
            if not self.body_began:
                c.must_close = True
        o = output()
        for pair in fields:
            name = pair[0]
            if len(name) == 4 and name.lower() in ("date", b"date"):
                date = False
            elif len(name) == 6 and name.lower() in ("server", b"server"):
                server = False
        o = output()
        c.put_response(o, status, fields, reason)
        if date:
            tell_date()
            put(o, date_line, date_len)
        if server:
            line = self.connection.registry.server_line
            put(o, PyBytes_AS_STRING(line), PyBytes_GET_SIZE(line))
        if status >= 200 or status == 101:
            self.started = True
            self.reply_code = status
        return taken(o)

    def start(self, int status=200, headers=(), reason=None):
        """Begin the answer: its status, its fields as pairs or a mapping, and a reason phrase if not the usual one.

        A ``content-length`` delimits the body; without one it is chunked, or ended by the end of the connection.
        `LocalError` if it has begun before, or for a field that HTTP has no form for. Statuses 1xx but 101 may come
        before, any number of times.
        """
        cdef bytes head = self.head_bytes(status, headers, reason)
        self.connection.put_out(head + b"\r\n")
        if self.h1.switched:
            self.h1.written()

    def send(self, data):
        """Send a piece of the body, any bytes-like object. `LocalError` before ``start``, or for more than was
        announced. What an answer to HEAD is given is left out. After 256 KiB of it, or when the client has gone, the
        connection is closed and `ClosedError` raised."""
        cdef Py_buffer view
        cdef Connection c = self.h1
        cdef h1_out *o
        if not self.started or self.finished:
            raise LocalError("a body is sent between start() and finish()")
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if view.len == 0:
                return
            if c.out_body == BODY_NONE and (c.is_head or self.reply_code in (204, 304)):
                if c.is_head:
                    self.drop(view.len)
                return
            if c.out_body == BODY_CHUNKED and view.len > JOIN:
                before, behind = c.frame(view.len)
                self.connection.put_out(before)
                self.connection.put_bytes(None, <const char *>view.buf, view.len)
                self.connection.put_out(behind)
            elif c.out_body == BODY_CHUNKED:
                o = output()
                c.put_frame(o, <const char *>view.buf, view.len)
                framed = taken(o)
                self.connection.put_out(framed)
            else:
                c.count_out(view.len)
                self.connection.put_bytes(data, <const char *>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    cdef int drop(self, Py_ssize_t n) except -1:
        """A piece of what nobody gets. Sending it neither waits nor fails, so without an end who sends for ever would
        do so indeed, and beside nobody else."""
        self.dropped += n
        if self.dropped > self.connection.registry.drain_limit or self.connection.has_left():
            self.h1.must_close = True
            self.connection.raw.close()
            raise ClosedError()
        return 0

    def finish(self, trailers=()):
        """Complete the answer. ``trailers``: fields behind a chunked body. `LocalError` if the body is shorter than
        announced, or it was finished before."""
        cdef h1_out *o
        cdef bytes rest
        if not self.started:
            raise LocalError("the answer has not begun: call start() or respond()")
        if self.finished:
            raise LocalError("the answer is finished")
        if self.h1.switched:
            self.over()
            return
        if type(trailers) is not list:
            trailers = list(trailers.items() if hasattr(trailers, "items") else trailers)
        o = output()
        self.h1.put_end(o, trailers)
        rest = taken(o)
        if rest:
            self.connection.put_out(rest)
        self.over()

    cdef int over(self) except -1:
        """The answer is complete, or will never be."""
        cdef Registry g = self.connection.registry
        self.finished = True
        self.bytes_sent = self.connection.sent - self.sent_before
        g.count(self)
        if self.done_event is not None:
            self.done_event.set()
        if g.log is not None:
            g.log(self)
        return 0

    def flush(self):
        """Nothing is held back: what was sent is with the kernel."""

    def respond(self, int status=200, headers=(), body=b""):
        """Send the whole answer: ``body`` is bytes-like or str (UTF-8). A ``content-length`` is added."""
        cdef Connection c = self.h1
        cdef h1_out *o
        cdef bytes head, data
        cdef Py_ssize_t n
        if type(body) is bytes:
            data = <bytes>body
        else:
            data = body.encode() if isinstance(body, str) else bytes(body)
        n = PyBytes_GET_SIZE(data)
        if status >= 200 and status != 204 and status != 304:
            if type(headers) is list:
                headers = (<list>headers) + [("content-length", n)]
            else:
                headers = [*(headers.items() if hasattr(headers, "items") else headers), ("content-length", n)]
        head = self.head_bytes(status, headers, None)
        if c.switched:
            self.connection.put_out(head + b"\r\n")
            c.written()
            self.over()
            return
        if c.out_body == BODY_NONE:
            self.connection.put_out(head + b"\r\n")
        elif n > JOIN:
            c.count_out(n)
            self.connection.put_out(head + b"\r\n")
            self.connection.put_out(data)
        else:
            c.count_out(n)
            self.connection.put_out(head + b"\r\n" + data)
        o = output()
        c.put_end(o, [])
        taken(o)
        self.over()

    def respond_text(self, str value):
        """Send ``value`` as text/plain in UTF-8, status 200, as the whole answer."""
        cdef Py_ssize_t n
        cdef const char *p = PyUnicode_AsUTF8AndSize(value, &n)
        self.respond_plain(b"text/plain; charset=utf-8", 25, value, p, n)

    cdef bint is_usual(self) except -1:
        """Whether an answer with a body is still to be sent, and the connection goes on behind it."""
        cdef Connection c = self.h1
        return (not self.started and not self.connection.registry.draining and c.writing == 1 and not c.must_close
                and not c.is_head and self.body_over and self.added is None and self.replies is None
                and not self.is_connect)

    cdef int respond_plain(self, const char *kind, Py_ssize_t kind_len, object owner, const char *p,
                           Py_ssize_t n) except -1:
        cdef Connection c = self.h1
        cdef connection conn = self.connection
        cdef h1_out *o
        cdef bytes line, whole
        if not self.is_usual() or not self.head.minor or n > JOIN:
            self.respond(200, [("content-type", PyBytes_FromStringAndSize(kind, kind_len))],
                         PyBytes_FromStringAndSize(p, n))
            return 0
        # The usual case: HTTP/1.1, the connection goes on, everything is there.
        tell_date()
        line = conn.registry.server_line
        o = output()
        put(o, b"HTTP/1.1 200 OK\r\ncontent-type: ", 31)
        put(o, kind, kind_len)
        put(o, b"\r\ncontent-length: ", 18)
        h1_put_number(o, n)
        put(o, b"\r\n", 2)
        put(o, date_line, date_len)
        put(o, PyBytes_AS_STRING(line), PyBytes_GET_SIZE(line))
        put(o, b"\r\n", 2)
        put(o, p, n)
        whole = taken(o)
        self.started = True
        c.begun(BODY_LENGTH, 0)
        conn.put_bytes(whole, PyBytes_AS_STRING(whole), PyBytes_GET_SIZE(whole))
        c.written()
        self.over()
        return 0

    cdef bint respond_whole(self, int status, list headers, int kinds, bytes data) except -1:
        """Send the whole answer in the usual case: a body to send, over a connection that goes on. ``kinds``: WITH_*,
        which of the fields that the server has to add are there. False: nothing has been done, `respond` has to."""
        cdef Connection c = self.h1
        cdef connection conn = self.connection
        cdef h1_out *o
        cdef bytes line, whole
        cdef Py_ssize_t n = PyBytes_GET_SIZE(data)
        if (not self.is_usual() or n > JOIN or status < 200 or status == 204 or status == 304
                or kinds & WITH_ODDITIES):
            return False
        if not kinds & WITH_LENGTH:
            headers = headers + [("content-length", n)]
        o = output()
        c.put_response(o, status, headers, None)
        if not kinds & WITH_DATE:
            tell_date()
            put(o, date_line, date_len)
        if not kinds & WITH_SERVER:
            line = conn.registry.server_line
            put(o, PyBytes_AS_STRING(line), PyBytes_GET_SIZE(line))
        put(o, b"\r\n", 2)
        put(o, PyBytes_AS_STRING(data), n)
        whole = taken(o)
        self.started = True
        self.reply_code = status
        c.count_out(n)
        conn.put_bytes(whole, PyBytes_AS_STRING(whole), PyBytes_GET_SIZE(whole))
        c.written()
        self.over()
        return True

    def sendfile(self, file, offset=0, count=None):
        """Send ``count`` bytes of a file from ``offset`` on as body, by sendfile(2) where that is possible. ``start``
        must have announced a ``content-length``; LocalError otherwise. A file that turns out shorter cuts the
        connection."""
        cdef Connection c = self.h1
        cdef connection conn = self.connection
        cdef int64_t left, at = offset, n
        if not self.started or self.finished or c.out_body not in (BODY_LENGTH, BODY_NONE):
            raise LocalError("a file is sent after start() with a content-length")
        if c.out_body == BODY_NONE:
            return
        left = c.out_left if count is None else count
        while left:
            n = min(left, <int64_t>SLICE * 4)
            conn.phase = P_WRITE
            conn.deadline = coro_now(clock) + conn.registry.write_time
            try:
                if conn.fast is not None:
                    done = conn.fast.sendfile(file, at, n)
                    conn.sent += done
                    conn.registry.bytes_out += done
                    c.count_out(done)
                else:
                    import os
                    data = os.pread(file if isinstance(file, int) else file.fileno(), min(n, 65536), at)
                    done = len(data)
                    self.send(data)
            finally:
                conn.phase = P_NONE
                conn.deadline = 0
            if done == 0:
                raise EOFError(f"the file ended {left} bytes early")
            at += done
            left -= done

    def respond_file(self, int status, headers, int fd, int64_t offset, int64_t count):
        """Send the whole answer: the fields, and ``count`` bytes of the open file ``fd`` from ``offset`` on, by
        sendfile(2) where the stream is a plain socket. A ``content-length`` is added. EOFError if the file is shorter:
        the connection is cut then."""
        cdef connection conn = self.connection
        cdef Connection c = self.h1
        cdef bytes head
        cdef list fields = list(headers)
        fields.append(("content-length", count))
        head = self.head_bytes(status, fields, None) + b"\r\n"
        if conn.fast is None or c.out_body != BODY_LENGTH or not HAS_SENDFILE or count == 0:
            conn.put_out(head)
            self.sendfile(fd, offset, count)
            self.finish()
            return
        self.send_file(head, fd, offset, count)

    cdef bint respond_prepared(self, bytes lines, int fd, int64_t count) except -1:
        """Send the whole answer, status 200, in the usual case: ``lines`` of the head, content-length among them, and
        as many bytes of a file. False: nothing has been done."""
        cdef Connection c = self.h1
        cdef connection conn = self.connection
        cdef h1_out *o
        cdef bytes line
        if (not self.is_usual() or conn.fast is None or not HAS_SENDFILE or not self.head.minor or count == 0):
            return False
        tell_date()
        line = conn.registry.server_line
        o = output()
        put(o, b"HTTP/1.1 200 OK\r\n", 17)
        put(o, PyBytes_AS_STRING(lines), PyBytes_GET_SIZE(lines))
        put(o, date_line, date_len)
        put(o, PyBytes_AS_STRING(line), PyBytes_GET_SIZE(line))
        put(o, b"\r\n", 2)
        line = taken(o)
        self.started = True
        c.begun(BODY_LENGTH, count)
        self.send_file(line, fd, 0, count)
        return True

    cdef int send_file(self, bytes head, int fd, int64_t offset, int64_t count) except -1:
        """Send the head, and bytes of a file as the whole body, over a plain socket."""
        cdef connection conn = self.connection
        cdef Connection c = self.h1
        cdef sock fast = conn.fast
        cdef Py_ssize_t n
        cdef off_t at = offset
        cdef int64_t end = offset + count
        conn.phase = P_WRITE
        conn.deadline = coro_now(clock) + conn.registry.write_time
        try:
            # The head waits in the kernel for the first bytes of the file: one packet instead of two.
            fast.c_send(PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head), MSG_MORE)
            while at < end:
                if fast.fd < 0:
                    raise ClosedError()
                n = c_sendfile(fast.fd, fd, &at, min(end - at, <int64_t>SLICE * 4))
                if n > 0:
                    conn.deadline = coro_now(clock) + conn.registry.write_time
                elif n == 0:
                    raise EOFError(f"the file ended {end - at} bytes early")
                elif errno == EAGAIN:
                    fast.wait_for_write()
                elif errno != EINTR:
                    raise coro.oserrors.make(errno)
        except BaseException:
            c.must_close = True
            conn.cut()
            raise
        finally:
            conn.phase = P_NONE
            conn.deadline = 0
        conn.sent += PyBytes_GET_SIZE(head) + count
        conn.registry.bytes_out += PyBytes_GET_SIZE(head) + count
        c.out_left = 0
        c.written()
        self.over()

    def takeover(self, int status=101, headers=()):
        """Hand the connection to another protocol: sends the head of the answer, ``101`` with ``headers``, and returns
        ``(stream, early)``, the stream and what came of it already. Whoever gets it uses it in this thread and returns;
        the server closes it then. `LocalError` if the client did not ask for another protocol."""
        cdef bytes early, head
        self.taking = True
        head = self.head_bytes(status, headers, None)
        self.connection.put_out(head + b"\r\n")
        if not self.h1.switched:
            raise LocalError("only 101, or a 2xx to CONNECT, hands a connection over")
        self.h1.written()
        self.connection.taken = True
        early = self.h1.trailing_data
        self.h1.at = self.h1.stop
        self.h1.c_keep()
        self.over()
        return self.connection.conn, early

    # -- the classic interface

    def push(self, data, flush=False):
        """Send a piece of the answer, str (UTF-8) or bytes. The first call sends the head before it; ``flush`` sends
        what is held back."""
        if self.classic is None:
            from coro.http.protocol import classic_output
            self.classic = classic_output(self)
        self.classic.push(data, flush)

    def done(self):
        """The answer is complete: has to be called once. A second call is only logged."""
        if self.finished:
            LOG("done() called twice", repr(self))
            return
        if self.classic is None:
            from coro.http.protocol import classic_output
            self.classic = classic_output(self)
        self.classic.done()

    def set_deflate(self):
        """Compress what is pushed, if the client takes it; returns the compressor or None."""
        if self.classic is None:
            from coro.http.protocol import classic_output
            self.classic = classic_output(self)
        return self.classic.set_deflate()

    def is_upgraded(self):
        """Whether the connection was handed to another protocol."""
        return self.connection.taken

    def can_deflate(self):
        """Whether the client takes a compressed answer."""
        from coro.http._content import choose
        return choose(self.head.header_fields().get_one("accept-encoding")) is not None

    def error(self, int code, reason=None):
        """Answer with a page for this status. ``reason``: a sentence for people, escaped."""
        from coro.http.protocol import error_page
        if self.started:
            raise LocalError("the answer has begun: no page can be put into it")
        self.respond(code, [("content-type", "text/html; charset=utf-8")], error_page(code, reason))

    def response(self, int code):
        """The status line."""
        return f"HTTP/{self.version} {code} {_h1.phrase(code)}"

    @property
    def done_cv(self):
        """The event of the answer's end."""
        if self.done_event is None:
            self.done_event = coro.event()
            if self.finished:
                self.done_event.set()
        return self.done_event

    def wait_until_done(self):
        """Wait until the answer is complete."""
        if not self.finished:
            self.done_cv.wait()

    def log_line(self):
        """What the log has of it: protocol, peer, request line, status, bytes sent, seconds."""
        return (self.connection.protocol, self.peer, self.request, self.reply_code, self.bytes_sent,
                f"{self.seconds:.4f}")
