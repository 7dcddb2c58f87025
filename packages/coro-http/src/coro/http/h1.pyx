# cython: language_level=3, nonecheck=True, binding=False, embedsignature=True, embedsignature.format=clinic
"""HTTP/1.1 without a network: bytes in, events out; messages in, bytes out. Both roles, RFC 9112 and RFC 9110, strict.

    c = h1.Connection(h1.SERVER)
    c.feed(b"GET / HTTP/1.1\\r\\nHost: example.org\\r\\n\\r\\n")
    request = c.next_event()                    # <Request GET / HTTP/1.1>
    c.next_event()                              # EndOfMessage
    c.response(200, [("content-length", "2")])  # bytes to send
    c.data(b"hi"), c.end()

What arrives is read where it lies (`_h1_scan.h`): `feed` keeps a reference to the bytes and copies only what is left of
them when more come. A head becomes one object with one piece of memory, the bytes and the offsets of the fields; names
and values become objects when somebody asks for them. Memory grows as bytes arrive: nothing is allocated by an
announced length. A message that two readers could understand differently is an error, and after an error no more is
read: that is what keeps a request from hiding in another one's body.

Exceptions: `LocalError` for a mistake of the caller, `RemoteError` for one of the peer, with the status code for the
answer. Nothing else is raised, whatever is fed.

Cost: 0.3 us for a request with few fields, and as much for a response.

Longer than most files: both roles and both directions are one state machine over the same fields.
"""

# Rejected: callbacks per field (an object and a call each, wanted or not), a copy of all input in a buffer of ours,
# regular expressions.

# Invariants of Connection:
#
# 1. `base[at:stop]` is what came and was not consumed. While a head is read `at` stays at its beginning, for the
#    offsets in `scan` count from there.
# 2. `base` is memory of `own`, of the object `held`, or borrowed from the caller of c_feed() until c_keep().
# 3. `piece` points into it, and is valid until the next call of the reading side.
# 4. After `error` was set, c_next() does nothing but raise it.
# 5. A server reads no second head before its response to the first is complete.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memmove, memset

from http import HTTPStatus as _HTTPStatus

from coro.http.exceptions import IncompleteError, LimitError, LocalError, RemoteError
from coro.http.headers import header_set as _header_set

__all__ = [
    "CLIENT", "CLOSED", "NEED_DATA", "PAUSED", "SERVER", "Connection", "Data", "EndOfMessage", "Head",
    "InformationalResponse", "Request", "Response", "phrase",
]

cdef extern from "http/_h1_scan.h":
    enum: H1_TOKEN, H1_FIELD, H1_TARGET, H1_MORE, H1_DONE
    enum: H1_HAS_LENGTH, H1_CHUNKED, H1_HAS_CODING, H1_CLOSE, H1_KEEP_ALIVE, H1_UPGRADE_NAMED, H1_HAS_UPGRADE
    enum: H1_EXPECT, H1_HAS_HOST
    enum: H1_BAD_LINE_END, H1_BAD_REQUEST_LINE, H1_BAD_STATUS_LINE, H1_BAD_VERSION, H1_BAD_NAME, H1_BAD_VALUE
    enum: H1_FOLDED, H1_NO_COLON, H1_LINE_LONG, H1_HEADER_LONG, H1_HEAD_LONG, H1_HEADERS_MANY, H1_BAD_LENGTH
    enum: H1_TWO_LENGTHS, H1_BAD_CODING, H1_LENGTH_AND_CODING, H1_TWO_HOSTS, H1_NO_HOST, H1_BAD_HOST, H1_NO_MEMORY
    enum: H1_BAD_CHUNK, H1_CHUNK_LONG, H1_BAD_CHUNK_END, H1_BAD_TRAILER, H1_CODING_IN_1_0, H1_BAD_TARGET
    enum: H1_BAD_METHOD, H1_CODING_UNKNOWN
    void h1_tables()
    void h1_scan_again(h1_scan *s)
    int h1_scan_head(h1_scan *s, const char *base, size_t n, int response)
    int h1_chunk_line(const char *p, size_t n, size_t limit, int64_t *size, size_t *used)
    int h1_is_field(const char *p, size_t n)
    int h1_is(const char *p, size_t n, int wanted)
    int h1_same(const char *p, const char *lower, size_t n)
    int64_t h1_number(const char *p, size_t n)
    void h1_connection_tokens(h1_scan *s, const char *p, size_t n)

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object)
    const char *PyUnicode_AsUTF8AndSize(object, Py_ssize_t *) except NULL
    str PyUnicode_DecodeLatin1(const char *, Py_ssize_t, const char *)

h1_tables()

SERVER = "server"
CLIENT = "client"


class _Mark:
    """An event without content."""

    __slots__ = ("name",)

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return self.name

    def __reduce__(self):
        return self.name


NEED_DATA = _Mark("NEED_DATA")
PAUSED = _Mark("PAUSED")
CLOSED = _Mark("CLOSED")

cdef enum:
    R_HEAD = 0              # a head comes next
    R_BODY = 1
    R_OVER = 2              # the message is over, and EV_END was not told yet
    R_WAITS = 3             # server: for its own response to be complete
    R_CLOSED = 4            # nothing more is read
    R_SWITCHED = 5

    C_SIZE = 0              # within a chunked body: what comes next
    C_DATA = 1
    C_DATA_END = 2
    C_TRAILER = 3

    W_WAITS = 0             # server: no request has come
    W_READY = 1
    W_BODY = 2
    W_DONE = 3              # server: the response is complete, the request is not
    W_CLOSED = 4

    OUT_DATE = 1 << 16      # flags of put_fields(), beside H1_*
    OUT_SERVER = 1 << 17
    OUT_CONNECTION = 1 << 18

    JOINED = 65536          # bytes of small chunks that one Data may join
    OVERHEAD = 16384        # bytes of chunk lines beyond what chunks of a decent size have
    INFORMATIONAL = 32      # responses 1xx to one request

# What a sender must not put behind a body: fields for routing, authentication, the request's conditions, the control of
# the response and the content's form (RFC 9110 6.5.1). Those for framing are seen by put_fields().
cdef frozenset NO_TRAILERS = frozenset(
    b"age authorization cache-control content-encoding content-range content-type cookie date expect expires host "
    b"if-match if-modified-since if-none-match if-range if-unmodified-since location max-forwards pragma "
    b"proxy-authenticate proxy-authorization range retry-after set-cookie te trailer vary warning "
    b"www-authenticate".split()
)

# The peer's faults: class, sentence, status code.
cdef dict _FAULTS = {
    H1_BAD_LINE_END: (RemoteError, "expected CR LF at the end of each line of a head, and found one alone", 400),
    H1_BAD_REQUEST_LINE: (RemoteError, "expected a request line 'METHOD target HTTP/1.1', found something else", 400),
    H1_BAD_STATUS_LINE: (RemoteError, "expected a status line 'HTTP/1.1 200 reason', found something else", 502),
    H1_BAD_VERSION: (RemoteError, "expected HTTP/1.0 or HTTP/1.1, and found another version", 505),
    H1_BAD_METHOD: (RemoteError, "expected a method made of token characters and a space behind it", 400),
    H1_BAD_TARGET: (RemoteError, "expected a request target of visible ASCII characters, without a fragment", 400),
    H1_BAD_NAME: (RemoteError, "expected a header name of token characters and a colon right behind it", 400),
    H1_BAD_VALUE: (RemoteError, "a header value has a control character", 400),
    H1_FOLDED: (RemoteError, "a header line begins with a blank: continuation lines are not allowed", 400),
    H1_NO_COLON: (RemoteError, "expected a header line 'Name: value', and found no colon", 400),
    H1_BAD_LENGTH: (RemoteError, "expected a Content-Length of at most 19 digits", 400),
    H1_TWO_LENGTHS: (RemoteError, "there is more than one Content-Length", 400),
    H1_BAD_CODING: (RemoteError, "there is more than one Transfer-Encoding", 400),
    H1_CODING_UNKNOWN: (RemoteError, "expected Transfer-Encoding: chunked, and found another coding", 501),
    H1_LENGTH_AND_CODING: (RemoteError, "there are both Content-Length and Transfer-Encoding", 400),
    H1_CODING_IN_1_0: (RemoteError, "HTTP/1.0 has no Transfer-Encoding", 400),
    H1_TWO_HOSTS: (RemoteError, "there is more than one Host", 400),
    H1_NO_HOST: (RemoteError, "a request of HTTP/1.1 must have a Host", 400),
    H1_BAD_HOST: (RemoteError, "the Host is no host name with or without a port", 400),
    H1_BAD_CHUNK: (RemoteError, "expected the size of a chunk in hexadecimal digits and CR LF", 400),
    H1_BAD_CHUNK_END: (RemoteError, "expected CR LF behind the data of a chunk", 400),
    H1_BAD_TRAILER: (RemoteError, "a trailer has a field that only a head may have", 400),
}

cdef list _lines = [None] * 1000        # status code -> b"HTTP/1.1 200 OK\r\n"
cdef h1_out _out


cdef h1_out *output() noexcept:
    """The one buffer that heads are built in. Take what is in it before anything can switch, or run code of a program:
    `text` and `pair_of` see to it where that cannot be known."""
    _out.n = 0
    return &_out


cdef bytes taken(h1_out *o):
    cdef bytes result = PyBytes_FromStringAndSize(o.p, o.n)
    if o.room > 262144:
        free(o.p)
        o.p = NULL
        o.room = 0
    o.n = 0
    return result


cdef int put(h1_out *o, const char *p, Py_ssize_t n) except -1:
    if h1_put(o, p, n):
        raise MemoryError()
    return 0


def phrase(int status):
    """The reason phrase of a status code, as IANA has it; an empty string for an unknown one."""
    try:
        return _HTTPStatus(status).phrase
    except ValueError:
        return ""


cdef bytes status_line(int status):
    cdef object line = _lines[status]
    if line is None:
        line = _lines[status] = f"HTTP/1.1 {status} {phrase(status)}\r\n".encode("ascii")
    return <bytes>line


cdef bytes unusual(object value, str what):
    """The bytes of what is not bytes, int, or a str of ASCII. This may run code of a program, as a subclass of str has
    it, which may make a head of its own meanwhile; so what is in the buffer is put back after it."""
    cdef bytes before = PyBytes_FromStringAndSize(_out.p, _out.n)
    cdef object made
    try:
        if isinstance(value, str):
            made = value.encode("latin-1")
        elif isinstance(value, int) and not isinstance(value, bool):
            made = b"%d" % value
        elif isinstance(value, (bytearray, memoryview)):
            made = bytes(value)
        else:
            raise LocalError(f"expected {what} as str or bytes, not {type(value).__name__}: {value!r}")
        if type(made) is not bytes:
            raise LocalError(f"expected {what} as str or bytes, not {type(value).__name__}, which is no str after all")
    except UnicodeEncodeError:
        raise LocalError(f"{what} can have characters of ISO 8859-1 only; encode it otherwise: {value!r}") from None
    _out.n = 0
    put(&_out, PyBytes_AS_STRING(before), PyBytes_GET_SIZE(before))
    return made


cdef tuple pair_of(object pair):
    """A pair from what is no tuple of two, with the same care."""
    cdef bytes before = PyBytes_FromStringAndSize(_out.p, _out.n)
    cdef tuple made = tuple(pair)
    if len(made) != 2:
        raise LocalError(f"expected headers as pairs of name and value, not {made!r}")
    _out.n = 0
    put(&_out, PyBytes_AS_STRING(before), PyBytes_GET_SIZE(before))
    return made


cdef object text(object value, const char **p, Py_ssize_t *n, str what):
    """The bytes of a str (ISO 8859-1), bytes-like object or int; returns the object that owns them."""
    cdef bytes made
    if type(value) is str and PyUnicode_IS_COMPACT_ASCII(value):
        p[0] = PyUnicode_AsUTF8AndSize(value, n)
        return value
    if type(value) is bytes:
        made = <bytes>value
    elif type(value) is int:
        made = b"%d" % value
    else:
        made = unusual(value, what)
    p[0] = PyBytes_AS_STRING(made)
    n[0] = PyBytes_GET_SIZE(made)
    return made


cdef int put_field(h1_out *o, object name, object value) except -1:
    """One field line, if there is nothing in it that would be read as more than that."""
    cdef const char *p
    cdef const char *v
    cdef Py_ssize_t n, m
    cdef object keep_name = text(name, &p, &n, "a header name")
    cdef object keep_value = text(value, &v, &m, "a header value")
    check_field(name, p, n, value, v, m)
    put(o, p, n)
    put(o, b": ", 2)
    put(o, v, m)
    put(o, b"\r\n", 2)
    return 0


cdef int check_field(object name, const char *p, Py_ssize_t n, object value, const char *v, Py_ssize_t m) except -1:
    if n == 0 or not h1_is(p, n, H1_TOKEN):
        raise LocalError(f"a header name consists of letters, digits and !#$%&'*+-.^_`|~, not {name!r}")
    if not h1_is_field(v, m):
        raise LocalError(f"a header value must not have line ends or other control characters: {name!r}: {value!r}")
    return 0


cdef list field_pairs(object headers):
    """A list of pairs from whatever somebody passes as headers."""
    if isinstance(headers, header_set):
        return (<header_set>headers).items()
    if isinstance(headers, dict) or hasattr(headers, "items"):
        headers = headers.items()
    return [tuple(pair) for pair in headers]


cdef class Head(HeaderSource):
    """The head of a message: its first line and its fields. `Request` and `Response` are heads."""

    def __dealloc__(self):
        if self.block != NULL:
            PyMem_Free(self.block)

    cdef list pairs(self):
        cdef list result = []
        cdef h1_span *s = self.spans()
        cdef uint32_t i
        for i in range(self.count):
            result.append((
                PyUnicode_DecodeLatin1(self.text + s[i].name, s[i].name_len, NULL).lower(),
                PyUnicode_DecodeLatin1(self.text + s[i].value, s[i].value_len, NULL),
            ))
        return result

    cdef object first(self, const char *lower, Py_ssize_t n):
        cdef Py_ssize_t i = self.find(lower, n, 0)
        cdef h1_span *s
        if i < 0:
            return None
        s = &self.spans()[i]
        return PyUnicode_DecodeLatin1(self.text + s.value, s.value_len, NULL)

    cdef Py_ssize_t find(self, const char *lower, Py_ssize_t n, Py_ssize_t start) noexcept:
        """The number of the first field of that name from `start` on, -1 if there is none."""
        cdef h1_span *s = self.spans()
        cdef Py_ssize_t i
        for i in range(start, <Py_ssize_t>self.count):
            if s[i].name_len == <uint32_t>n and h1_same(self.text + s[i].name, lower, n):
                return i
        return -1

    cdef bytes value_at(self, Py_ssize_t i):
        cdef h1_span *s = &self.spans()[i]
        return PyBytes_FromStringAndSize(self.text + s.value, s.value_len)

    cdef bint wants_keep_alive(self) noexcept:
        if self.flags & H1_CLOSE:
            return False
        return self.minor >= 1 or (self.flags & H1_KEEP_ALIVE) != 0

    cdef header_set header_fields(self):
        cdef header_set fields = self.fields
        if fields is None:
            fields = header_set.__new__(header_set)
            fields.source = self
            self.fields = fields
        return fields

    @property
    def version(self):
        """(1, 0) or (1, 1)."""
        return (1, self.minor)

    @property
    def headers(self):
        """The fields as a `header_set`."""
        return self.header_fields()

    @property
    def raw_headers(self):
        """The fields as they came: ``[(name, value)]``, both bytes."""
        cdef list result = []
        cdef h1_span *s = self.spans()
        cdef uint32_t i
        for i in range(self.count):
            result.append((
                PyBytes_FromStringAndSize(self.text + s[i].name, s[i].name_len),
                PyBytes_FromStringAndSize(self.text + s[i].value, s[i].value_len),
            ))
        return result

    def get(self, name, default=None):
        """The first value of a field as bytes, or ``default``."""
        cdef bytes lower = name.lower() if isinstance(name, bytes) else name.lower().encode("latin-1", "replace")
        cdef Py_ssize_t i = self.find(lower, len(lower), 0)
        return default if i < 0 else self.value_at(i)

    @property
    def content_length(self):
        """The Content-Length; 0 without one, -1 with a chunked body."""
        if self.flags & H1_CHUNKED:
            return -1
        return self.length if self.flags & H1_HAS_LENGTH else 0

    @property
    def chunked(self):
        """Whether the body comes in chunks."""
        return (self.flags & H1_CHUNKED) != 0

    @property
    def keep_alive(self):
        """Whether the sender is ready for another message on the connection (RFC 9112 9.3)."""
        return self.wants_keep_alive()

    @property
    def expect_continue(self):
        """Whether the client waits for 100 (Continue) before it sends the body (RFC 9110 10.1.1)."""
        return (self.flags & H1_EXPECT) != 0 and self.minor >= 1

    @property
    def upgrade(self):
        """The protocols that Upgrade names, as bytes in lower case, if Connection names Upgrade (RFC 9110 7.8)."""
        cdef Py_ssize_t i
        if not (self.flags & H1_UPGRADE_NAMED and self.flags & H1_HAS_UPGRADE and self.minor >= 1):
            return None
        i = self.find(b"upgrade", 7, 0)
        return self.value_at(i).lower()


cdef class Request(Head):
    """The head of a request."""

    @property
    def method(self):
        """The method as it came, bytes."""
        return PyBytes_FromStringAndSize(self.text, self.method_len)

    @property
    def target(self):
        """The request target as it came, bytes."""
        return PyBytes_FromStringAndSize(self.text + self.target_at, self.target_len)

    def __repr__(self):
        return f"<Request {self.method.decode()} {self.target.decode()} HTTP/1.{self.minor}>"


cdef class Response(Head):
    """The head of a response."""

    @property
    def status(self):
        """The status code."""
        return self.code

    @property
    def reason(self):
        """The reason phrase, bytes; empty if there is none."""
        return PyBytes_FromStringAndSize(self.text + self.reason_at, self.reason_len)

    def __repr__(self):
        return f"<{type(self).__name__} HTTP/1.{self.minor} {self.code} {self.reason.decode('latin-1')}>"


cdef class InformationalResponse(Response):
    """The head of a response 1xx, which another response follows."""


cdef class Data:
    """A piece of a body."""

    cdef readonly bytes data

    def __init__(self, bytes data not None):
        self.data = data

    def __repr__(self):
        return f"<Data of {len(self.data)} bytes>"


cdef class EndOfMessage:
    """The end of a message."""

    cdef Head head

    @property
    def trailers(self):
        """The fields behind a chunked body, as a `header_set`."""
        if self.head is None:
            return _header_set()
        return self.head.header_fields()

    def __repr__(self):
        return "<EndOfMessage>"


cdef class Connection:
    """Connection(role, *, max_line=8192, max_header=16384, max_headers=65536, max_header_count=128, \
max_chunk_line=4096)\n--\n\n\
    One end of an HTTP/1.1 connection, without the connection.

    ``role``: ``h1.SERVER`` or ``h1.CLIENT``, what this end is. The limits are bytes of the first line, of one header
    line, of all of them, their number, and bytes of the line before a chunk. More than that from the peer is a
    `LimitError`. ValueError for another role or a limit below 1.
    """

    def __cinit__(self, role, *, Py_ssize_t max_line=8192, Py_ssize_t max_header=16384, Py_ssize_t max_headers=65536,
                  Py_ssize_t max_header_count=128, Py_ssize_t max_chunk_line=4096):
        if role != SERVER and role != CLIENT:
            raise ValueError(f"expected the role h1.SERVER or h1.CLIENT, not {role!r}")
        for limit in (max_line, max_header, max_headers, max_header_count, max_chunk_line):
            if not 1 <= limit <= 1 << 30:
                raise ValueError(f"a limit is from 1 to 2**30, not {limit}")
        self.is_client = role == CLIENT
        self.scan.max_line = max_line
        self.scan.max_header = max_header
        self.scan.max_headers = max_headers
        self.scan.max_count = max_header_count
        self.max_chunk_line = max_chunk_line
        self.writing = W_READY if self.is_client else W_WAITS
        if self.is_client:
            self.expected = []

    def __dealloc__(self):
        free(self.scan.spans)
        PyMem_Free(self.own)

    def __repr__(self):
        return (f"<Connection of a {CLIENT if self.is_client else SERVER}: "
                f"{self.stop - self.at} bytes to read{', switched' if self.switched else ''}>")

    # -- what came

    cdef int c_feed(self, const char *p, Py_ssize_t n) except -1:
        """`p` stays the caller's and is read from until c_keep(), which has to come before it changes."""
        if n == 0:
            return 0
        if self.at == self.stop:
            self.base = p
            self.at = 0
            self.stop = n
            self.held = None
            return 0
        self.c_keep()
        if self.base != self.own:               # (it lies in `held`)
            self.own_copy(self.stop - self.at + n)
        elif self.stop + n > self.own_room:
            self.own_copy(self.stop - self.at + n)
        memcpy(self.own + self.stop, p, n)
        self.stop += n
        return 0

    cdef int own_copy(self, Py_ssize_t room) except -1:
        """What is left moves to the beginning of memory of our own, with at least that much room."""
        cdef Py_ssize_t n = self.stop - self.at
        cdef char *more
        if self.base == self.own and self.at:
            memmove(self.own, self.own + self.at, n)
        if room > self.own_room:
            room = max(room, 2 * self.own_room, 512)
            more = <char *>PyMem_Realloc(self.own, room)
            if more == NULL:
                raise MemoryError()
            if self.base == self.own:
                self.base = more
            self.own = more
            self.own_room = room
        if self.base != self.own:
            memcpy(self.own, self.base + self.at, n)
            self.base = self.own
        self.held = None
        self.at = 0
        self.stop = n
        return 0

    cdef int c_keep(self) except -1:
        """From now on nothing of the caller's memory is used."""
        if self.at == self.stop:
            self.base = NULL
            self.at = self.stop = 0
            self.held = None
            if self.own != NULL:
                PyMem_Free(self.own)
                self.own = NULL
                self.own_room = 0
        elif self.base != self.own and self.held is None:
            self.own_copy(self.stop - self.at)
        return 0

    cdef int c_forget(self) except -1:
        """Between two messages: give back all memory that can be had again."""
        if self.reading == R_HEAD and self.at == self.stop:
            self.head = self.trailers = None
            if self.scan.spans != NULL:
                free(self.scan.spans)
                self.scan.spans = NULL
                self.scan.room = 0
        return 0

    cdef int c_feed_eof(self) except -1:
        self.eof = True
        return 0

    cdef bint c_has_input(self) noexcept:
        return self.at < self.stop

    def feed(self, data):
        """Take in what the peer has sent, any bytes-like object; empty: its stream has ended.

        Never raises for what the bytes are: ``next_event`` does.
        """
        cdef Py_buffer view
        if type(data) is not bytes:
            PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
            try:
                data = PyBytes_FromStringAndSize(<char *>view.buf, view.len)
            finally:
                PyBuffer_Release(&view)
        if PyBytes_GET_SIZE(data) == 0:
            self.c_feed_eof()
        elif self.at == self.stop:
            self.c_feed(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
            self.held = data
        else:
            self.c_feed(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    @property
    def trailing_data(self):
        """The bytes that came and were not consumed: those of the other protocol, once it was switched."""
        return PyBytes_FromStringAndSize(self.base + self.at, self.stop - self.at)

    @property
    def keep_alive(self):
        """Whether another message can follow the present one."""
        return not (self.must_close or self.switched or self.error is not None or self.reading == R_CLOSED)

    @property
    def closing(self):
        """Whether what is written or was written now is the last message."""
        return self.must_close

    # -- reading

    cdef int fail(self, int code) except -1:
        if code == H1_NO_MEMORY:
            raise MemoryError()
        if code == H1_LINE_LONG:
            return self.fail_with(LimitError, f"the first line is longer than {self.scan.max_line} bytes",
                                  502 if self.is_client else 414, self.scan.max_line)
        if code == H1_HEADER_LONG:
            return self.fail_with(LimitError, f"a header line is longer than {self.scan.max_header} bytes", 431,
                                  self.scan.max_header)
        if code == H1_HEAD_LONG:
            return self.fail_with(LimitError, f"the headers are longer than {self.scan.max_headers} bytes", 431,
                                  self.scan.max_headers)
        if code == H1_HEADERS_MANY:
            return self.fail_with(LimitError, f"there are more than {self.scan.max_count} header lines", 431,
                                  self.scan.max_count)
        if code == H1_CHUNK_LONG:
            return self.fail_with(LimitError, f"the line before a chunk is longer than {self.max_chunk_line} bytes, or "
                                  f"such lines have more than {OVERHEAD} bytes beyond the usual", 400,
                                  self.max_chunk_line)
        cls, message, status = _FAULTS[code]
        return self.fail_with(cls, message, status, 0)

    cdef int fail_with(self, object cls, str message, int status, Py_ssize_t limit) except -1:
        self.error = (cls, message, status, limit)
        self.reading = R_CLOSED
        self.must_close = True
        raise self.made_error()

    def made_error(self):
        """The peer's fault as an exception, or None."""
        if self.error is None:
            return None
        cls, message, status, limit = self.error
        if issubclass(cls, LimitError):
            return cls(message, status, limit)
        return cls(message, status)

    cdef int c_next(self) except -1:
        """EV_*: what comes next. Raises RemoteError."""
        if self.error is not None:
            raise self.made_error()
        if self.reading == R_HEAD:
            return self.next_head()
        if self.reading == R_BODY:
            if self.body == BODY_CHUNKED:
                return self.next_chunk()
            self.piece_len = self.stop - self.at
            if self.body == BODY_LENGTH:
                if self.piece_len > self.left:
                    self.piece_len = self.left
                self.left -= self.piece_len
                if self.left == 0:
                    self.reading = R_OVER
            if self.piece_len:
                self.piece = self.base + self.at
                self.at += self.piece_len
                return EV_DATA
            if not self.eof:
                return EV_NEED_DATA
            if self.body == BODY_CLOSE:
                self.reading = R_OVER
            else:
                self.fail_with(IncompleteError, f"the peer's stream ended {self.left} bytes before the end of the body",
                               400, 0)
        if self.reading == R_OVER:
            return self.message_over()
        if self.reading == R_WAITS or self.reading == R_SWITCHED:
            return EV_PAUSED
        return EV_CLOSED

    cdef int next_head(self) except -1:
        cdef int r
        if self.at == self.stop:
            return EV_NEED_DATA if not self.eof else self.clean_end()
        if self.is_client and self.expected_at == len(self.expected):
            self.fail_with(RemoteError, "the server sent something that nobody had asked for", 502, 0)
        while True:
            r = h1_scan_head(&self.scan, self.base + self.at, self.stop - self.at, self.is_client)
            if r != H1_MORE or self.scan.stage or not self.scan.pos:
                break
            self.at += self.scan.pos            # an empty line before the request
            self.scan.pos = self.scan.scanned = 0
            if self.at == self.stop:
                return EV_NEED_DATA if not self.eof else self.clean_end()
        if r == H1_DONE:
            return self.head_done()
        if r == H1_MORE:
            if self.eof:
                self.fail_with(IncompleteError, "the peer's stream ended within a head", 400, 0)
            return EV_NEED_DATA
        return self.fail(r)

    cdef int clean_end(self) except -1:
        self.reading = R_CLOSED
        self.must_close = True
        return EV_CLOSED

    cdef Head take_head(self, type cls, uint32_t n):
        """The scanned head as an object."""
        cdef Head head = cls.__new__(cls)
        cdef h1_scan *s = &self.scan
        cdef size_t room = s.count * sizeof(h1_span)
        head.block = <char *>PyMem_Malloc(room + n)
        if head.block == NULL:
            raise MemoryError()
        if room:
            memcpy(head.block, s.spans, room)
        head.text = head.block + room
        memcpy(head.text, self.base + self.at, n)
        head.text_len = n
        head.count = s.count
        head.flags = s.flags
        head.method_len = s.method_len
        head.target_at = s.target
        head.target_len = s.target_len
        head.reason_at = s.reason
        head.reason_len = s.reason_len
        head.code = s.status
        head.minor = 1 if s.minor else 0
        head.length = s.length
        return head

    cdef int head_done(self) except -1:
        cdef h1_scan *s = &self.scan
        cdef uint32_t n = s.pos
        cdef Head head
        cdef type cls
        if s.flags & H1_HAS_CODING:
            if s.flags & H1_HAS_LENGTH:
                return self.fail(H1_LENGTH_AND_CODING)
            if s.minor == 0:
                return self.fail(H1_CODING_IN_1_0)
        if not self.is_client:
            if s.minor and not s.flags & H1_HAS_HOST:
                return self.fail(H1_NO_HOST)
            cls = Request
        elif s.status < 200 and s.status != 101:
            cls = InformationalResponse
        else:
            cls = Response
        head = self.take_head(cls, n)
        self.head = head
        self.trailers = None
        self.at += n
        h1_scan_again(s)
        if self.is_client:
            self.body_of_response(head)
        else:
            self.body_of_request(head)
        return EV_HEAD

    cdef int body_of_request(self, Head head) except -1:
        """RFC 9112 6.3: how the body of a request is delimited."""
        self.writing = W_READY
        self.is_head = head.method_len == 4 and memcmp(head.text, b"HEAD", 4) == 0
        if not head.wants_keep_alive():
            self.must_close = True
        self.body = BODY_NONE
        self.reading = R_OVER
        if head.flags & H1_CHUNKED:
            self.body = BODY_CHUNKED
            self.begin_chunks()
        elif head.length:
            self.body = BODY_LENGTH
            self.left = head.length
            self.reading = R_BODY
        return 0

    cdef int body_of_response(self, Head head) except -1:
        """RFC 9112 6.3: how the body of a response is delimited."""
        cdef bint upgrades
        method, upgrades = self.expected[self.expected_at]
        if head.code < 200:
            if head.code != 101:
                self.informational += 1
                if self.informational > INFORMATIONAL:
                    self.fail_with(LimitError, f"there are more than {INFORMATIONAL} responses 1xx to one request", 502,
                                   INFORMATIONAL)
                return 0
            if not upgrades:
                self.fail_with(RemoteError, "the server switched protocols (101), and nobody had asked for it", 502, 0)
        self.informational = 0
        if head.code == 101 or (method == b"CONNECT" and 200 <= head.code < 300):
            self.switched = True
            self.reading = R_SWITCHED
            return 0
        if not head.wants_keep_alive():
            self.must_close = True
        self.reading = R_BODY
        if method == b"HEAD" or head.code == 204 or head.code == 304:
            self.body = BODY_NONE
            self.reading = R_OVER
        elif head.flags & H1_CHUNKED:
            self.body = BODY_CHUNKED
            self.begin_chunks()
        elif head.flags & H1_HAS_LENGTH:
            self.body = BODY_LENGTH
            self.left = head.length
            if head.length == 0:
                self.reading = R_OVER
        else:
            self.body = BODY_CLOSE
            self.must_close = True
        return 0

    cdef int begin_chunks(self) except -1:
        self.chunk = C_SIZE
        self.overhead = 0
        self.reading = R_BODY
        return 0

    cdef int next_chunk(self) except -1:
        cdef size_t used = 0
        cdef int64_t size = 0
        cdef const char *p
        cdef int r
        while True:
            if self.chunk == C_TRAILER:
                return self.next_trailer()
            if self.at == self.stop:
                break
            p = self.base + self.at
            if self.chunk == C_DATA:
                self.piece = p
                self.piece_len = min(self.left, self.stop - self.at)
                self.at += self.piece_len
                self.left -= self.piece_len
                if self.left == 0:
                    self.chunk = C_DATA_END
                return EV_DATA
            if self.chunk == C_DATA_END:
                # (the first byte is looked at when it is there: what is wrong is told at once)
                if p[0] != 13 or (self.stop - self.at > 1 and p[1] != 10):
                    return self.fail(H1_BAD_CHUNK_END)
                if self.stop - self.at < 2:
                    break
                self.at += 2
                self.chunk = C_SIZE
                continue
            r = h1_chunk_line(p, self.stop - self.at, self.max_chunk_line, &size, &used)
            if r == H1_MORE:
                break
            if r != H1_DONE:
                return self.fail(r)
            # Lines count against a budget, which data fill up again: a body of tiny chunks, or of long extensions,
            # costs more to read than it carries.
            self.overhead += <int64_t>used - 16 - 2 * size
            if self.overhead < 0:
                self.overhead = 0
            if self.overhead > OVERHEAD:
                return self.fail(H1_CHUNK_LONG)
            self.at += used
            self.left = size
            self.chunk = C_DATA if size else C_TRAILER
        if self.eof:
            self.fail_with(IncompleteError, "the peer's stream ended within a chunked body", 400, 0)
        return EV_NEED_DATA

    cdef int next_trailer(self) except -1:
        cdef int r
        cdef uint32_t n
        self.scan.stage = 1
        if self.at == self.stop:
            r = H1_MORE
        else:
            r = h1_scan_head(&self.scan, self.base + self.at, self.stop - self.at, self.is_client)
        if r == H1_MORE:
            if self.eof:
                self.fail_with(IncompleteError, "the peer's stream ended within the trailers", 400, 0)
            return EV_NEED_DATA
        if r != H1_DONE:
            return self.fail(r)
        if self.scan.flags:
            return self.fail(H1_BAD_TRAILER)
        n = self.scan.pos
        if self.scan.count:
            self.trailers = self.take_head(Head, n)
        self.at += n
        h1_scan_again(&self.scan)
        return self.message_over()

    cdef int message_over(self) except -1:
        """EV_END, and where the reading goes on."""
        if self.is_client:
            self.expected_at += 1
            if self.expected_at > 64:
                del self.expected[:self.expected_at]
                self.expected_at = 0
            self.reading = R_CLOSED if self.must_close else R_HEAD
        elif self.switched:
            self.reading = R_SWITCHED
        elif self.writing == W_DONE:
            self.cycle()
        else:
            self.reading = R_WAITS
        return EV_END

    cdef int cycle(self) except -1:
        """Server: request and response are complete."""
        if self.must_close:
            self.reading = R_CLOSED
            self.writing = W_CLOSED
        else:
            self.reading = R_HEAD
            self.writing = W_WAITS
        return 0

    def next_event(self):
        """What comes next of what was fed: a `Request` or `Response`, `InformationalResponse`, `Data`, `EndOfMessage`,
        or ``NEED_DATA``: nothing complete is there. ``PAUSED``: a server has to complete its response first; or the
        protocol was switched. ``CLOSED``: the peer has ended between two messages, or the last one was read.

        Raises `RemoteError` for what is not HTTP, and the same again from then on.
        """
        cdef int kind = self.c_next()
        cdef EndOfMessage end
        if kind == EV_HEAD:
            return self.head
        if kind == EV_DATA:
            return self.joined()
        if kind == EV_END:
            end = EndOfMessage.__new__(EndOfMessage)
            end.head = self.trailers
            return end
        if kind == EV_NEED_DATA:
            return NEED_DATA
        return PAUSED if kind == EV_PAUSED else CLOSED

    cdef object joined(self):
        """A Data; of a chunked body, with the chunks behind it that are there."""
        cdef bytes data = PyBytes_FromStringAndSize(self.piece, self.piece_len)
        cdef list more = None
        cdef Py_ssize_t n = self.piece_len
        cdef size_t used = 0
        cdef int64_t size = 0
        while self.body == BODY_CHUNKED and n < JOINED:
            # Only if the line before the next chunk is whole: what else comes is for the next call.
            if self.chunk == C_DATA_END:
                if self.stop - self.at < 3 or self.base[self.at] != 13 or self.base[self.at + 1] != 10:
                    break
                if h1_chunk_line(self.base + self.at + 2, self.stop - self.at - 2, self.max_chunk_line, &size,
                                 &used) != H1_DONE:
                    break
                if size == 0 or self.at + 2 + <Py_ssize_t>used >= self.stop:
                    break
            else:
                break
            try:
                if self.next_chunk() != EV_DATA:
                    break
            except RemoteError:
                break           # (too many chunk lines: told by the next call)
            if more is None:
                more = [data]
            more.append(PyBytes_FromStringAndSize(self.piece, self.piece_len))
            n += self.piece_len
        return Data(data if more is None else b"".join(more))

    # -- writing

    cdef int put_fields(self, h1_out *o, object headers, uint32_t *flags, int64_t *length) except -1:
        """The fields but those that delimit the body; these are told in `flags` and `length`."""
        cdef const char *p
        cdef const char *v
        cdef Py_ssize_t n, m
        cdef h1_scan found
        if type(headers) is not list:
            headers = field_pairs(headers)
        found.flags = flags[0]
        for pair in <list>headers:
            if type(pair) is not tuple or len(<tuple>pair) != 2:
                pair = pair_of(pair)
            name = text((<tuple>pair)[0], &p, &n, "a header name")
            value = text((<tuple>pair)[1], &v, &m, "a header value")
            check_field(name, p, n, value, v, m)
            if n == 14 and h1_same(p, b"content-length", 14):
                if found.flags & H1_HAS_LENGTH:
                    raise LocalError("there is more than one content-length in the headers; leave one of them out")
                length[0] = h1_number(v, m)
                if length[0] < 0:
                    raise LocalError(f"expected a content-length of at most 19 digits, not {value!r}")
                found.flags |= H1_HAS_LENGTH
                continue
            if n == 17 and h1_same(p, b"transfer-encoding", 17):
                if m != 7 or not h1_same(v, b"chunked", 7):
                    raise LocalError(f"the only transfer-encoding is chunked, not {value!r}")
                found.flags |= H1_CHUNKED
                continue
            if n == 10 and h1_same(p, b"connection", 10):
                h1_connection_tokens(&found, v, m)
                found.flags |= OUT_CONNECTION
            elif n == 4 and h1_same(p, b"date", 4):
                found.flags |= OUT_DATE
            elif n == 4 and h1_same(p, b"host", 4):
                if found.flags & H1_HAS_HOST:
                    raise LocalError("there is more than one host in the headers; leave one of them out")
                found.flags |= H1_HAS_HOST
            elif n == 6 and h1_same(p, b"server", 6):
                found.flags |= OUT_SERVER
            elif n == 7 and h1_same(p, b"upgrade", 7):
                found.flags |= H1_HAS_UPGRADE
            put(o, p, n)
            put(o, b": ", 2)
            put(o, v, m)
            put(o, b"\r\n", 2)
        if found.flags & H1_HAS_LENGTH and found.flags & H1_CHUNKED:
            raise LocalError("a message has either a content-length or transfer-encoding: chunked, and these headers "
                             "have both")
        flags[0] = found.flags
        return 0

    cdef int put_response(self, h1_out *o, int status, object headers, object reason) except -1:
        """The head of a response, but for the empty line behind it: more fields may be put. Then `begun`."""
        cdef uint32_t flags = 0
        cdef int64_t length = 0
        cdef Head request = self.head
        cdef const char *p
        cdef Py_ssize_t n
        cdef bint new = request is None or request.minor >= 1
        if self.is_client:
            raise LocalError("a client sends requests; response() is for the role h1.SERVER")
        if self.writing >= W_BODY:
            raise LocalError("the response to this request has been sent; wait for the next request")
        if not 100 <= status <= 999:
            raise LocalError(f"a status code is from 100 to 999, not {status}")
        if reason is None:
            line = status_line(status)
            put(o, PyBytes_AS_STRING(line), PyBytes_GET_SIZE(line))
        else:
            keep = text(reason, &p, &n, "a reason phrase")
            if not h1_is_field(p, n):
                raise LocalError(f"a reason phrase must not have line ends or other control characters: {reason!r}")
            put(o, b"HTTP/1.1 ", 9)
            h1_put_number(o, status)
            put(o, b" ", 1)
            put(o, p, n)
            put(o, b"\r\n", 2)
        self.put_fields(o, headers, &flags, &length)
        if self.writing >= W_BODY:
            raise LocalError("the response to this request was begun while its headers were read; begin one of them")
        if status < 200:
            if flags & (H1_HAS_LENGTH | H1_CHUNKED):
                raise LocalError("a response 1xx has no body, and so neither content-length nor transfer-encoding")
            if status != 101:
                if not new:
                    raise LocalError("HTTP/1.0 has no responses 1xx")
                return 0
            if request is None or request.upgrade is None:
                raise LocalError("the client did not ask for another protocol: answer with another status than 101")
            self.switched = True
            self.begun(BODY_NONE, 0)
            return 0
        if self.writing == W_WAITS:
            self.must_close = True              # an answer to something that was no request
        if flags & H1_CLOSE or (request is not None and not request.wants_keep_alive()):
            self.must_close = True
        if (request is not None and request.method_len == 7 and memcmp(request.text, b"CONNECT", 7) == 0
                and 200 <= status < 300):
            self.switched = True
            self.begun(BODY_NONE, 0)
            return 0
        if status == 204:
            self.begun(BODY_NONE, 0)
        elif flags & H1_HAS_LENGTH:
            put(o, b"content-length: ", 16)
            h1_put_number(o, length)
            put(o, b"\r\n", 2)
            self.begun(BODY_NONE if self.is_head or status == 304 else BODY_LENGTH, length)
        elif self.is_head or status == 304:
            self.begun(BODY_NONE, 0)
        elif new:
            put(o, b"transfer-encoding: chunked\r\n", 28)
            self.begun(BODY_CHUNKED, 0)
        else:
            self.must_close = True
            self.begun(BODY_CLOSE, 0)
        if not flags & OUT_CONNECTION:
            if self.must_close:
                put(o, b"connection: close\r\n", 19)
            elif not new:
                put(o, b"connection: keep-alive\r\n", 24)
        elif self.must_close and not flags & H1_CLOSE:
            put(o, b"connection: close\r\n", 19)
        return 0

    cdef int begun(self, int body, int64_t length) except -1:
        self.out_body = body
        self.out_left = length
        self.writing = W_BODY
        return 0

    def response(self, int status, headers=(), reason=None):
        """The head of a response as bytes. ``headers``: pairs, a dict or a `header_set`; ``reason``: the reason phrase,
        None for the usual one.

        A ``content-length`` in the headers delimits the body; without one it is chunked, or ended by the end of the
        connection for a client of HTTP/1.0. ``connection`` is added where it is needed. Any number of responses 1xx may
        come first. `LocalError` if it is not this side's turn, or the headers are impossible.
        """
        cdef h1_out *o
        if type(headers) is not list:
            headers = field_pairs(headers)
        o = output()
        self.put_response(o, status, headers, reason)
        put(o, b"\r\n", 2)
        result = taken(o)
        if self.switched:
            self.written()
        return result

    def request(self, method, target, headers=()):
        """The head of a request as bytes. ``method`` and ``target``: str or bytes; ``headers`` as for ``response``.

        A ``content-length`` or ``transfer-encoding: chunked`` in the headers announces a body; without one there is
        none, and the message is complete. The next request may be sent before the response has come. `LocalError` if
        the body of the last one is not complete, or for headers that are impossible; ``host`` is required.
        """
        cdef const char *p
        cdef const char *t
        cdef Py_ssize_t n, m
        cdef uint32_t flags = 0
        cdef int64_t length = 0
        cdef h1_out *o
        if not self.is_client:
            raise LocalError("a server sends responses; request() is for the role h1.CLIENT")
        if self.writing != W_READY:
            raise LocalError("the last request is not complete: call end() first")
        if self.must_close or self.switched or self.error is not None or self.reading >= R_CLOSED:
            raise LocalError("the connection takes no more requests: open another one")
        if type(headers) is not list:
            headers = field_pairs(headers)
        method_kept = text(method, &p, &n, "a method")
        if n == 0 or not h1_is(p, n, H1_TOKEN):
            raise LocalError(f"a method consists of letters, digits and !#$%&'*+-.^_`|~, not {method!r}")
        target_kept = text(target, &t, &m, "a request target")
        if m == 0 or not h1_is(t, m, H1_TARGET):
            raise LocalError(f"a request target consists of visible ASCII characters, without a fragment; "
                             f"percent-encode others: {target!r}")
        o = output()
        put(o, p, n)
        put(o, b" ", 1)
        put(o, t, m)
        put(o, b" HTTP/1.1\r\n", 11)
        self.put_fields(o, headers, &flags, &length)
        if self.writing != W_READY:
            raise LocalError("another request was begun while the headers of this one were read; end that one first")
        if not flags & H1_HAS_HOST:
            raise LocalError("a request of HTTP/1.1 must have the header host")
        if flags & H1_HAS_LENGTH:
            put(o, b"content-length: ", 16)
            h1_put_number(o, length)
            put(o, b"\r\n", 2)
            self.out_body = BODY_LENGTH
        elif flags & H1_CHUNKED:
            put(o, b"transfer-encoding: chunked\r\n", 28)
            self.out_body = BODY_CHUNKED
        else:
            self.out_body = BODY_NONE
        put(o, b"\r\n", 2)
        self.out_left = length
        self.expected.append((PyBytes_FromStringAndSize(p, n),
                              (flags & H1_HAS_UPGRADE) != 0 and (flags & H1_UPGRADE_NAMED) != 0))
        if flags & H1_CLOSE:
            self.must_close = True
        if self.out_body == BODY_CHUNKED or length:
            self.writing = W_BODY
        return taken(o)

    cdef int count_out(self, Py_ssize_t n) except -1:
        """Before `n` bytes of a body are written."""
        if self.writing != W_BODY:
            raise LocalError("there is no message whose body could be sent now: send its head first")
        if self.out_body == BODY_LENGTH:
            if n > self.out_left:
                raise LocalError(f"the body is longer than its content-length: {self.out_left} bytes are left, "
                                 f"and {n} came")
            self.out_left -= n
        elif self.out_body == BODY_NONE and n:
            raise LocalError("this message has no body (a response to HEAD, 1xx, 204 or 304, or a request without "
                             "content-length and transfer-encoding)")
        return 0

    cdef int put_frame(self, h1_out *o, const char *p, Py_ssize_t n) except -1:
        """`n` bytes of a body with what is around them."""
        self.count_out(n)
        if n == 0:
            return 0
        if self.out_body != BODY_CHUNKED:
            return put(o, p, n)
        if h1_put_hex(o, n):
            raise MemoryError()
        put(o, b"\r\n", 2)
        put(o, p, n)
        return put(o, b"\r\n", 2)

    def data(self, piece):
        """A piece of the body with what is around it, as bytes. `LocalError` if it is more than was announced."""
        cdef Py_buffer view
        cdef h1_out *o
        PyObject_GetBuffer(piece, &view, PyBUF_SIMPLE)
        try:
            o = output()
            self.put_frame(o, <const char *>view.buf, view.len)
            return taken(o)
        finally:
            PyBuffer_Release(&view)

    def frame(self, Py_ssize_t n):
        """``(before, behind)``: the bytes around ``n`` bytes of the body, for those who send them without copying them
        (``writev``). The ``n`` bytes count as sent. `LocalError` if that is more than was announced; ValueError for a
        negative number."""
        if n < 0:
            raise ValueError(f"a number of bytes is not negative: {n}")
        self.count_out(n)
        if n == 0 or self.out_body != BODY_CHUNKED:
            return b"", b""
        return b"%x\r\n" % n, b"\r\n"

    cdef int put_end(self, h1_out *o, object trailers) except -1:
        cdef uint32_t flags = 0
        cdef int64_t length = 0
        if self.writing != W_BODY:
            if self.is_client and self.writing == W_READY:
                return 0                        # a request without a body was complete with its head
            raise LocalError("there is no message that could be ended now")
        if self.out_body == BODY_LENGTH and self.out_left:
            raise LocalError(f"the body is {self.out_left} bytes shorter than its content-length")
        if trailers and self.out_body != BODY_CHUNKED:
            raise LocalError("only a chunked message has trailers: leave content-length out")
        if self.out_body == BODY_CHUNKED:
            for pair in trailers:
                name = pair[0]
                if (name if type(name) is bytes else str(name).encode("latin-1", "replace")).lower() in NO_TRAILERS:
                    raise LocalError(f"{name!r} has to be in the head: nobody takes it from a trailer")
            if self.writing != W_BODY:
                raise LocalError("the message was ended while its trailers were read; end it once")
            o = output()                        # (what has run meanwhile may have used it)
            put(o, b"0\r\n", 3)
            if trailers:
                self.put_fields(o, trailers, &flags, &length)
                if flags & ~<uint32_t>(OUT_DATE | OUT_SERVER):
                    raise LocalError("a trailer must not have fields that delimit the message or control the "
                                     "connection")
            put(o, b"\r\n", 2)
        return self.written()

    cdef int written(self) except -1:
        """This side's message is complete."""
        if self.is_client:
            self.writing = W_READY
        elif self.switched:
            self.writing = W_CLOSED
            if self.reading == R_WAITS:
                self.reading = R_SWITCHED
        elif self.reading == R_WAITS:
            self.cycle()
        elif self.reading == R_BODY or self.reading == R_OVER:
            self.writing = W_DONE
        else:
            self.must_close = True
            self.cycle()
        return 0

    def end(self, trailers=()):
        """The end of a message as bytes, often none. ``trailers``: fields behind a chunked body, as ``headers``.

        `LocalError` if the body is shorter than announced.
        """
        cdef h1_out *o
        if type(trailers) is not list:
            trailers = field_pairs(trailers)
        o = output()
        self.put_end(o, trailers)
        return taken(o)
