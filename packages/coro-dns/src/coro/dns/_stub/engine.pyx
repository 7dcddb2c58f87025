# cython: language_level=3, nonecheck=True, binding=False, boundscheck=False, wraparound=False, initializedcheck=False
"""One question to one server over UDP, what its answer says, and the cache of answers: the short way of the stub
resolver, compiled.

What makes forging hard (RFC 5452): each query has a socket of its own, so a port that the system chooses; it is
connected, so only that server's datagrams come in; the id and the case of each letter of the name are random (the
server copies both); and a cookie (RFC 7873). Random bits are the kernel's, fetched 4 KiB at a time and thrown away in a
forked child. A datagram that does not fit changes nothing: the right one is still waited for (a resolver that gives up
at the first bad one can be stopped by anybody who sends one: CVE-2023-29483).

Of a reply only the answer to the question is believed: the records of the name, or of what its aliases lead to, link by
link. What else is in it (additional addresses, name servers) is never looked at, so it cannot poison anything.

Invariants:
1. A socket is closed by the call that has made it, whatever ends the call.
2. The cache has at most `limit` bytes by its own count, which is never below what the objects take.
3. What is made here without a wait between (a query in `scratch`, the random bits) is not shared between threads.

Cost of a query beside the system calls: about 3 us. Rejected: one socket for many queries (its port can be found by
trying, CVE-2020-25705), a thread that reads for all (two switches more).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memcmp, memcpy

from coro.capi cimport require_abi, sock

import copy
import os
import socket as _socket
import time

from coro import TimeoutError as _TimeoutError
from coro import event as _event
from coro import timeout as _timeout
from coro.dns import _wire

require_abi()

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object)
    const char *PyUnicode_AsUTF8AndSize(object, Py_ssize_t *) except NULL

cdef extern from "arpa/inet.h":
    const char *inet_ntop(int, const void *, char *, uint32_t)

cdef enum:
    ROOM = 16000            # of a datagram: much more than we tell the server that we take
    RANDOM = 4096
    HOPS_MOST = 12          # aliases after each other
    RECORDS_MOST = 10000    # of one answer
    TTL_MOST = 604800       # seconds: a week (RFC 8767, section 4)
    NEGATIVE_MOST = 10800   # seconds: three hours (RFC 2308, section 5)
    OVERHEAD = 600          # bytes of an answer's objects and its place in the cache; measured with a little room
    PER_RECORD = 160
    INET = 2
    CNAME = 5
    SOA = 6
    A = 1
    AAAA = 28
    COOKIE = 10             # EDNS options: RFC 7873 and RFC 7830
    PADDING = 12

cdef int INET6 = int(_socket.AF_INET6), DGRAM = int(_socket.SOCK_DGRAM)
cdef object _monotonic = time.monotonic
cdef object _urandom = os.urandom
cdef object _parse = _wire.parse

# -- randomness

cdef bytes pool = b""
cdef Py_ssize_t pool_at = 0


def forget_random():
    """After a fork: the parent uses these bits, too."""
    global pool, pool_at
    pool = b""
    pool_at = 0


os.register_at_fork(after_in_child=forget_random)


cdef const uint8_t *random_bytes(Py_ssize_t n) except NULL:
    """`n` bytes that nobody has seen; valid until the next call."""
    global pool, pool_at
    if pool_at + n > PyBytes_GET_SIZE(pool):
        pool = _urandom(RANDOM)
        pool_at = 0
    pool_at += n
    return <const uint8_t *>PyBytes_AS_STRING(pool) + pool_at - n


# -- servers and queries


cdef class Server:
    """A name server and what is known of it. `address` is (host, port)."""

    cdef readonly tuple address
    cdef readonly int family
    cdef public double no_edns_until    # monotonic seconds: it has answered a query with EDNS by FORMERR
    cdef public bint no_mixing          # it does not copy the letters of the name, as its replies over TCP show
    cdef public bytes cookie            # ours, and behind it the server's once it has sent one
    cdef public double failed_at        # monotonic seconds, 0: it has answered since
    cdef public long sent, replies, forged, failures
    cdef public double seconds          # smoothed time of a reply

    def __cinit__(self, tuple address not None):
        self.address = address
        self.family = INET6 if ":" in address[0] else INET
        self.cookie = _urandom(8)

    @property
    def no_edns(self):
        """Did it not understand EDNS a short time ago?"""
        return self.no_edns_until != 0 and self.no_edns_until > <double>_monotonic()

    @property
    def text(self):
        """``192.0.2.1:53``, ``[2001:db8::1]:53``"""
        host, port = self.address[:2]
        if "/" in host:
            return host
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def __repr__(self):
        return f"<Server {self.text}>"


cdef uint8_t scratch[1024]


cpdef bytes wire_name(text):
    """A name as text in wire form and lower case; as _wire.from_text, but host names take a shorter way."""
    cdef uint8_t out[256]
    cdef const char *p
    cdef Py_ssize_t n = 0, i
    cdef int start = 0, c
    if type(text) is not str or not PyUnicode_IS_COMPACT_ASCII(text):
        return _wire.from_text(text)
    p = PyUnicode_AsUTF8AndSize(text, &n)
    if n == 0 or n > 253:
        return _wire.from_text(text)
    for i in range(n):
        c = <uint8_t>p[i]
        if c == 46:
            if i == start or i - start > 63:
                return _wire.from_text(text)
            out[start] = i - start
            start = i + 1
        elif 97 <= c <= 122 or 48 <= c <= 57 or c == 45 or c == 95:
            out[i + 1] = c
        elif 65 <= c <= 90:
            out[i + 1] = c + 32
        else:
            return _wire.from_text(text)
    if start < n:
        if n - start > 63:
            return _wire.from_text(text)
        out[start] = n - start
        start = n + 1
    out[start] = 0
    return PyBytes_FromStringAndSize(<char *>out, start + 1)


cpdef bytes query(bytes name, int rtype, Server server, int size, bint dnssec, bint trust, bint datagram=True,
          int padding=0):
    """A query: `name` in lower case. `size` of the largest reply over UDP, 0 for no EDNS; `dnssec`: DO; `trust`: AD;
    `padding`: a multiple of this many bytes (RFC 8467)."""
    cdef const uint8_t *bits
    cdef Py_ssize_t n = len(name), at, left, cookie
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(name)
    cdef int label, i, c, options = 0
    if n > 255:
        raise ValueError("a name has at most 255 bytes")
    bits = random_bytes(2 + (n >> 3) + 1)       # 0x20: a bit for each letter
    scratch[0] = bits[0]
    scratch[1] = bits[1]
    bits += 2
    scratch[2] = 1                                  # RD
    scratch[3] = 0x20 if trust else 0               # AD: RFC 6840, section 5.7
    scratch[4], scratch[5] = 0, 1
    scratch[6] = scratch[7] = scratch[8] = scratch[9] = scratch[10] = 0
    scratch[11] = 1 if size else 0
    at = 0
    while at < n:
        label = p[at]
        scratch[12 + at] = label
        for i in range(at + 1, at + 1 + label):
            c = p[i]
            if 97 <= c <= 122 and not server.no_mixing and bits[i >> 3] >> (i & 7) & 1:
                c -= 32
            scratch[12 + i] = c
        at += label + 1
    at = 12 + n
    scratch[at] = rtype >> 8
    scratch[at + 1] = rtype & 255
    scratch[at + 2], scratch[at + 3] = 0, 1
    at += 4
    if size:
        # RFC 6891, section 6.1.2
        scratch[at], scratch[at + 1], scratch[at + 2] = 0, 0, 41
        scratch[at + 3] = size >> 8
        scratch[at + 4] = size & 255
        scratch[at + 5] = scratch[at + 6] = scratch[at + 8] = 0
        scratch[at + 7] = 0x80 if dnssec else 0
        left = at + 9
        at += 11
        cookie = len(server.cookie)
        if cookie and datagram:
            scratch[at], scratch[at + 1], scratch[at + 2] = 0, COOKIE, 0
            scratch[at + 3] = cookie
            memcpy(scratch + at + 4, PyBytes_AS_STRING(server.cookie), cookie)
            at += 4 + cookie
        if padding:
            i = (padding - (at + 4) % padding) % padding
            scratch[at], scratch[at + 1], scratch[at + 2] = 0, PADDING, i >> 8
            scratch[at + 3] = i & 255
            at += 4
            while i:
                scratch[at] = 0
                at += 1
                i -= 1
        options = at - left - 2
        scratch[left] = options >> 8
        scratch[left + 1] = options & 255
    return PyBytes_FromStringAndSize(<char *>scratch, at)


cdef enum:
    FOREIGN = 0
    CASE = 1                # all but the letters of the name
    FITS = 2


cdef int fitting(const uint8_t *p, Py_ssize_t n, const uint8_t *q, Py_ssize_t name) noexcept:
    """Is it the reply to the query `q`, whose question's name has `name` bytes? RFC 5452, section 9.1."""
    cdef Py_ssize_t i
    cdef int rcode
    if n < 12 or p[0] != q[0] or p[1] != q[1] or p[2] & 0xF8 != 0x80:
        return FOREIGN
    rcode = p[3] & 15
    if p[4] == 0 and p[5] == 0:
        return FITS if rcode == 1 or rcode == 4 or rcode == 5 else FOREIGN     # errors may come without the question
    if p[4] != 0 or p[5] != 1 or n < 16 + name:
        return FOREIGN
    if memcmp(p + 12, q + 12, name + 4) == 0:
        return FITS
    if memcmp(p + 12 + name, q + 12 + name, 4) != 0:
        return FOREIGN
    for i in range(12, 12 + name):
        if low(p[i]) != low(q[i]):
            return FOREIGN
    return CASE


cdef inline int low(int c) noexcept nogil:
    return c + 32 if 65 <= c <= 90 else c


def reads(bytes data not None, bytes query not None, Py_ssize_t name, bint any_case=False):
    """The message, if it is the reply to the query; None if it is not or cannot be read."""
    cdef int how = fitting(<const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data),
                           <const uint8_t *>PyBytes_AS_STRING(query), name)
    if how == FOREIGN or how == CASE and not any_case:
        return None
    try:
        return _parse(data, (data[2] & 2) != 0)
    except ValueError:
        return None


def copies_letters(bytes data not None, bytes query not None, Py_ssize_t name):
    """Has the server copied the name letter by letter?"""
    return data[12:12 + name] == query[12:12 + name]


cdef bint cookie_fits(Server server, object message):
    """RFC 7873, section 5.3: ours must come back; the server's is kept."""
    for code, value in message.options:
        if code == COOKIE:
            if len(value) < 16 and len(value) != 8 or len(value) > 40 or value[:8] != server.cookie[:8]:
                return False
            server.cookie = value
            return True
    # a server that has sent one sends it always, so without it comes from somebody else
    return len(server.cookie) == 8


cdef class Exchange:
    """One query over UDP. `mixed`: a reply came whose letters differ; `bare`: one without the server's cookie."""

    cdef readonly bint mixed, bare

    cpdef tuple ask(self, Server server, bytes query, Py_ssize_t name, object source=None):
        """Send it, and wait for the reply as long as the limit of the caller allows: ``(message, bytes)``. OSError if
        the system says that there will be none."""
        cdef sock s = sock(server.family, DGRAM)
        cdef bytes data
        cdef int how
        cdef object message
        try:
            if source is not None:
                s.bind((source, 0))
            s.c_connect(server.address, False)
            server.sent += 1
            s.c_send(PyBytes_AS_STRING(query), len(query), 0)
            s.c_expect()  # a tenth of a lookup: no attempt to read what cannot have come
            while True:
                data = s.c_recv(ROOM, 0)
                how = fitting(<const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data),
                              <const uint8_t *>PyBytes_AS_STRING(query), name)
                if how == FITS:
                    try:
                        message = _parse(data, (data[2] & 2) != 0)
                    except ValueError:
                        pass
                    else:
                        if data[2] & 2 or cookie_fits(server, message):
                            server.replies += 1
                            return message, data
                        self.bare = True
                elif how == CASE:
                    self.mixed = True
                server.forged += 1
        finally:
            s.c_close()


# -- answers


cdef class Answer:
    """What a reply says about its question: `records` of the type as [(seconds to live, data)], at the end of `aliases`
    (names in wire form). `rcode` is 0 or 3."""

    cdef readonly int rcode
    cdef readonly bint authenticated
    cdef readonly list records
    cdef readonly tuple aliases
    cdef readonly bytes message
    cdef readonly double came, expires

    @property
    def name(self):
        """The canonical name, in wire form; b"" if it is the one asked for."""
        return self.aliases[len(self.aliases) - 1] if self.aliases else b""

    def left(self):
        """The records, with the seconds that they have left."""
        cdef int passed = <int>(<double>_monotonic() - self.came)
        if passed <= 0:
            return self.records
        return [(ttl - passed if ttl > passed else 0, data) for ttl, data in self.records]

    def values(self, int rtype):
        """The same with addresses as text, for A and AAAA."""
        cdef int passed = <int>(<double>_monotonic() - self.came)
        if passed < 0:
            passed = 0
        return [(ttl - passed if ttl > passed else 0, address(data)) for ttl, data in self.records]


def address(bytes data not None):
    """An address as text. ValueError unless it has 4 or 16 bytes."""
    cdef char text[64]
    cdef Py_ssize_t n = PyBytes_GET_SIZE(data)
    if n != 4 and n != 16:
        raise ValueError(f"an address of {n} bytes")
    inet_ntop(INET if n == 4 else INET6, PyBytes_AS_STRING(data), text, 64)
    return text.decode("ascii")


cdef bytes target_of(bytes data):
    return _wire.lower(data)


cpdef Answer understood(object message, bytes data, bytes name, int rtype, bint trust):
    """The Answer in a reply with rcode 0 or 3. ValueError if it contradicts itself."""
    cdef Answer answer = Answer.__new__(Answer)
    cdef list records = message.answer, found = []
    cdef bytes at = name
    cdef list aliases = []
    cdef double now = _monotonic()
    cdef long least = TTL_MOST, ttl
    cdef tuple record
    cdef int seen, size = 4 if rtype == A else 16 if rtype == AAAA else -1
    if len(records) > RECORDS_MOST:
        raise ValueError(f"an answer of more than {RECORDS_MOST} records")
    while True:
        link = None
        for record in records:
            if <object>record[0] != at or <int>record[2] != 1:
                continue
            seen = record[1]
            if seen == rtype:
                if size >= 0 and len(<bytes>record[4]) != size:
                    raise ValueError(f"an address of {len(record[4])} bytes")
                ttl = record[3]
                if ttl > TTL_MOST:
                    ttl = TTL_MOST
                if ttl < least:
                    least = ttl
                found.append((ttl, record[4]))
            elif seen == CNAME and link is None:
                link = record
        if found or link is None:
            break
        if link[3] < least:
            least = link[3]
        at = target_of(link[4])
        if at == name or at in aliases:
            raise ValueError("aliases that lead in a circle")
        aliases.append(at)
        if len(aliases) > HOPS_MOST:
            raise ValueError(f"more than {HOPS_MOST} aliases after each other")
    if found and message.rcode:
        raise ValueError("records of a name that does not exist")
    if found and len(found) > 1:
        # RFC 2181, section 5.2: one TTL for a set; copies of a record are one
        found = [(least if ttl > least else ttl, one) for one, ttl in {one: ttl for ttl, one in found}.items()]
    if not found:
        least = 0
        for record in message.authority:
            if <int>record[1] == SOA and len(<bytes>record[4]) >= 22 and _wire.below(at, record[0]):
                ttl = int.from_bytes((<bytes>record[4])[len(<bytes>record[4]) - 4:], "big")
                least = min(ttl, record[3], NEGATIVE_MOST)      # RFC 2308, section 5
    answer.rcode = message.rcode
    answer.authenticated = trust and (message.flags & 0x20) != 0
    answer.records = found
    answer.aliases = tuple(aliases)
    answer.message = data
    answer.came = now
    answer.expires = now + least
    return answer


def begin(Server server, bytes name not None, int rtype, int size, bint dnssec, bint trust, object seconds,
          object source):
    """The first attempt, which is mostly the last one, too: the Answer if the server gives one over UDP in time.
    Otherwise ``(exchange, reply, error)``: what the long way goes on with."""
    cdef Exchange exchange = Exchange.__new__(Exchange)
    cdef bytes data = query(name, rtype, server, 0 if server.no_edns else size, dnssec, trust)
    cdef object limit = _timeout(seconds), message
    cdef tuple reply = None
    try:
        with limit:
            reply = exchange.ask(server, data, PyBytes_GET_SIZE(name), source)
    except _TimeoutError:
        if not limit.expired:
            raise
        return exchange, None, None
    except OSError as e:
        return exchange, None, e
    server.failed_at = 0
    message = reply[0]
    if (message.rcode == 0 or message.rcode == 3) and not message.flags & 0x0200 and (message.answer or message.rcode):
        try:
            return understood(message, reply[1], name, rtype, trust)
        except ValueError:
            pass
    return exchange, reply, None


cdef class _Flight:
    """A question under way."""

    cdef object bell, result, error


cdef class Flights:
    """Questions under way: a second thread that has the same one waits for the first one's answer. `joined` counts
    these. If the first one gives up (its own deadline, an interruption) one of the others asks anew; a failure of the
    servers is everybody's."""

    cdef readonly dict table
    cdef readonly long joined

    def __cinit__(self):
        self.table = {}

    def forget(self):
        """After a fork: nobody in this process asks these."""
        self.table.clear()

    def share(self, bytes key not None, ask, *args):
        """What ``ask(*args)`` returns, or what it returns to another thread that has begun with the key already. An
        Exception of it is raised in all of them, anything else in its own thread only."""
        cdef dict table = self.table
        cdef object found
        cdef _Flight flight
        while True:
            found = table.get(key)
            if found is None:
                break
            flight = <_Flight>found
            if flight.bell is None:
                flight.bell = _event()
            self.joined += 1
            flight.bell.wait()
            if flight.error is not None:
                raise copy.copy(flight.error) from flight.error
            if flight.result is not None:
                return flight.result
        flight = _Flight.__new__(_Flight)
        table[key] = flight
        try:
            flight.result = ask(*args)
        except Exception as e:
            flight.error = e
            raise
        finally:
            if table.get(key) is flight:
                del table[key]
            if flight.bell is not None:
                flight.bell.set()
        return flight.result


cdef class Cache:
    """Answers under their questions, at most `limit` bytes. Two generations: one that fills, and the one before it; an
    entry that is used moves into the young one, and what was not used in the meantime goes with the old one."""

    cdef dict young, old
    cdef readonly Py_ssize_t limit
    cdef Py_ssize_t young_bytes, old_bytes
    cdef readonly long hits, misses, expired, evicted

    def __cinit__(self, Py_ssize_t limit):
        self.limit = limit
        self.young = {}
        self.old = {}

    cdef Py_ssize_t size(self, bytes key, Answer answer):
        return OVERHEAD + len(key) + len(answer.message) + PER_RECORD * len(answer.records) \
            + 300 * len(answer.aliases) + sum([len(data) for _, data in answer.records])

    cpdef object get(self, bytes key):
        """The answer that may still be used, or None."""
        cdef object found = self.young.get(key)
        cdef bint young = found is not None
        if found is None:
            found = self.old.get(key)
        if found is None:
            self.misses += 1
            return None
        if (<Answer>found).expires <= <double>_monotonic():
            self.forget(key)
            self.expired += 1
            self.misses += 1
            return None
        if not young:
            del self.old[key]
            self.old_bytes -= self.size(key, found)
            self.insert(key, found)
        self.hits += 1
        return found

    cpdef object put(self, bytes key, Answer answer):
        """Keep an answer, unless its time is over already or it is too large."""
        if answer.expires <= answer.came or 4 * self.size(key, answer) > self.limit:
            return None
        self.forget(key)
        self.insert(key, answer)

    cdef int insert(self, bytes key, Answer answer) except -1:
        cdef Py_ssize_t size = self.size(key, answer)
        if self.young_bytes + size > self.limit // 2:
            self.evicted += len(self.old)
            self.old, self.young = self.young, {}
            self.old_bytes, self.young_bytes = self.young_bytes, 0
        self.young[key] = answer
        self.young_bytes += size
        return 0

    cpdef bint forget(self, bytes key) except -1:
        """Drop one; was it there?"""
        cdef object found = self.young.pop(key, None)
        if found is not None:
            self.young_bytes -= self.size(key, found)
            return True
        found = self.old.pop(key, None)
        if found is not None:
            self.old_bytes -= self.size(key, found)
            return True
        return False

    def clear(self):
        """Drop all."""
        self.young.clear()
        self.old.clear()
        self.young_bytes = self.old_bytes = 0

    def items(self):
        """Keys and answers, as they are now."""
        return [*self.young.items(), *self.old.items()]

    @property
    def bytes_used(self):
        """By our own count."""
        return self.young_bytes + self.old_bytes

    def __len__(self):
        return len(self.young) + len(self.old)
