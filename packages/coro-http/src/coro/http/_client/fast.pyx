# cython: language_level=3, nonecheck=True, binding=False, embedsignature=True, embedsignature.format=clinic
"""The short way of a client: a request whose head was made before, over an idle connection, and a response that comes
in one piece.

`quick` does what the general way does (`session`, `pool`, `links`, one after the other), for the one case that is
nearly all of the traffic of a busy program: the head is sent in one system call that does not wait, the response is
received in one, and between them lie a look at the connection and one timer. Whatever is not like that is handed to the
general way in a state that it can go on from: None, if nothing was sent or the connection turned out to be closed, or
what has come so far.

The states of a link, a pool and a response are the fields of classes of this file, whose subclasses in `links`, `pool`
and `messages` have the methods. That makes the fields reachable without a lookup.

Invariants: a link that was taken out of `_idle` is given back, or in the result. `_used` and the semaphore's units
change together. `codec.c_keep()` comes before anything that may switch, since the codec reads from `data`.

Cost: two system calls, a look (recv(2) with MSG_PEEK), a bytes object for what came, one for the body, and the
Response.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t

from coro.capi cimport sock, ticks_now
from coro.capi cimport require_abi
from coro._sync.locks cimport semaphore
from coro.http.h1 cimport EV_DATA, EV_END, EV_HEAD, Connection, Head

from coro._clock import ticks
from coro._runtime.scheduler import timeout
from coro.exceptions import TimeoutError
from coro.http.exceptions import DeadlineExceeded, LimitError, ReadTimeout, RemoteError

require_abi()

__all__ = ["LinkState", "Plan", "PoolState", "ResponseState", "quick"]

cdef extern from "sys/socket.h" nogil:
    ssize_t c_recv "recv"(int fd, void *p, size_t n, int flags)
    ssize_t c_send "send"(int fd, const void *p, size_t n, int flags)
    enum:
        MSG_PEEK
        MSG_DONTWAIT
        MSG_NOSIGNAL

cdef enum:
    BLOCK = 65536
    MOST_INTERIM = 16

cdef tuple GET = (b"GET", False)


cdef class LinkState:
    """The fields of a link."""

    cdef public Connection codec
    cdef public object stream
    cdef public object raw
    cdef public object key
    cdef public object uses
    cdef public int64_t idle_since
    cdef public bint heard
    cdef public bint continued

    def is_quiet(self):
        """Whether nothing has come since the last response, not even the end of the stream."""
        return quiet(self)


cdef bint quiet(LinkState link) except -1:
    cdef char c
    cdef ssize_t r
    cdef Connection codec = link.codec
    if not codec.keep_alive or codec.c_has_input():
        return False
    if not isinstance(link.raw, sock):
        return not link.stream.closed
    if (<sock>link.raw).fd < 0:
        return False
    r = c_recv((<sock>link.raw).fd, &c, 1, MSG_PEEK | MSG_DONTWAIT)
    return r < 0 and (errno == EAGAIN or errno == EINTR)


cdef class PoolState:
    """The fields of a pool."""

    cdef public semaphore _places
    cdef public dict _idle
    cdef public Py_ssize_t _idle_count
    cdef public Py_ssize_t _most_idle
    cdef public Py_ssize_t _used
    cdef public Py_ssize_t _made
    cdef public Py_ssize_t _reused
    cdef public bint _closed
    cdef public bint _per_origin
    cdef public int64_t _next_look
    cdef public int64_t _idle_ticks


cdef class ResponseState:
    """The fields of a response. What is None is made when somebody asks."""

    cdef public int status
    cdef public double elapsed
    cdef public bint _used
    cdef public object _head
    cdef public object _headers
    cdef public object _content
    cdef public object _source
    cdef public object _encoding
    cdef public object _reason
    cdef public object _request
    cdef public object _plan
    cdef public object _history
    cdef public object _trailers


@cython.final
cdef class Plan:
    """Plan(key, head, request, version, read, total, most)\n--\n\n\
    A request that can be repeated by sending ``head``. ``version``: that of the client's headers when it was made."""

    cdef readonly object key
    cdef readonly bytes head
    cdef readonly object request
    cdef readonly object version
    cdef readonly object read
    cdef readonly object total
    cdef readonly Py_ssize_t most
    cdef object first               # the shorter of the two limits

    def __init__(self, key, bytes head not None, request, version, read, total, Py_ssize_t most):
        self.key = key
        self.head = head
        self.request = request
        self.version = version
        self.read = read
        self.total = total
        self.most = most
        if read is None or total is None:
            self.first = total if read is None else read
        else:
            self.first = min(read, total)
        if self.first is None:
            self.first = 1e9


cdef double _second = 1.0 / ticks.ticks_per_sec


def quick(PoolState pool not None, Plan plan not None, bytes head not None, cls):
    """A Response whose body is there; None if the general way has to be taken from its beginning; or (link, head of the
    response or None, pieces of its body) if it has to go on from there. head: what to send, ``plan.head`` but for
    cookies. cls: the class of the response."""
    cdef LinkState link
    cdef list links = pool._idle.get(plan.key)
    cdef int64_t began
    if not links or pool._per_origin or pool._closed or type((<LinkState>links[len(links) - 1]).stream) is not sock:
        return None
    if not pool._places.take_now(1):
        return None
    pool._used += 1
    began = ticks_now()
    link = links.pop()
    pool._idle_count -= 1
    try:
        if link.idle_since < began - pool._idle_ticks or not quiet(link):
            pool.give_back(link, False)
            return None
        return exchange(pool, plan, link, head, cls, began)
    except BaseException:
        pool.give_back(link, False)
        raise


cdef object exchange(PoolState pool, Plan plan, LinkState link, bytes head, cls, int64_t began):
    cdef sock s = link.stream
    cdef Connection codec = link.codec
    cdef ssize_t r
    cdef bytes data
    pool._reused += 1
    link.uses += 1
    link.heard = False
    r = c_send(s.fd, PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head), MSG_DONTWAIT | MSG_NOSIGNAL)
    if r != PyBytes_GET_SIZE(head):
        # Not all of it at once, or an error: rare on a connection without anything on its way.
        pool.give_back(link, False)
        return None
    codec.expected.append(GET)
    limit = timeout(plan.first)
    try:
        with limit:
            data = s.c_recv(BLOCK, 0)
    except TimeoutError:
        if not limit.expired:
            raise
        if plan.read is None or (plan.total is not None and plan.total <= plan.read):
            raise DeadlineExceeded(
                f"GET {plan.request.url} took longer than its total limit of {plan.total:g} seconds") from None
        raise ReadTimeout(f"the server sent nothing for {plan.read:g} seconds") from None
    except OSError:
        pool.give_back(link, False)
        return None
    if not data:
        pool.give_back(link, False)
        return None
    link.heard = True
    codec.c_feed(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    try:
        return answered(pool, plan, link, cls, began)
    finally:
        codec.c_keep()


cdef object answered(PoolState pool, Plan plan, LinkState link, cls, int64_t began):
    cdef Connection codec = link.codec
    cdef Head head
    cdef ResponseState response
    cdef bytes content = None
    cdef list more = None
    cdef int kind
    cdef int interim = 0
    cdef int64_t now
    while True:
        kind = codec.c_next()
        if kind != EV_HEAD:
            return link, None, ()
        head = codec.head
        if head.status >= 200:
            break
        interim += 1
        if interim > MOST_INTERIM:
            raise RemoteError(f"the server sent more than {MOST_INTERIM} interim responses before its response")
    now = ticks_now()
    if head.find(b"content-encoding", 16, 0) >= 0:
        return link, head, ()
    while True:
        kind = codec.c_next()
        if kind == EV_DATA:
            piece = PyBytes_FromStringAndSize(codec.piece, codec.piece_len)
            if content is None:
                content = piece
            elif more is None:
                more = [content, piece]
            else:
                more.append(piece)
        elif kind == EV_END:
            break
        else:
            return link, head, more if more is not None else (content,) if content is not None else ()
    if more is not None:
        content = b"".join(more)
    if content is None:
        content = b""
    elif PyBytes_GET_SIZE(content) > plan.most:
        raise LimitError(f"the body is larger than {plan.most} bytes; take it in pieces with stream(), or allow more",
                         413, plan.most)
    response = cls.__new__(cls)
    response.status = head.status
    response._head = head
    response._content = content
    response._plan = plan
    response.elapsed = (now - began) * _second
    if codec.trailers is not None:
        response._trailers = codec.trailers
    if pool._idle_count < pool._most_idle and not pool._closed and codec.keep_alive and not codec.c_has_input():
        link.idle_since = now
        links = pool._idle.get(plan.key)
        if links is None:
            pool._idle[plan.key] = [link]
        else:
            (<list>links).append(link)
        pool._idle_count += 1
        pool._used -= 1
        pool._places.give_units(1)
    else:
        pool.give_back(link, True)
    return response
