# cython: language_level=3, nonecheck=True, binding=False, boundscheck=False, wraparound=False, initializedcheck=False
"""The short way of a server: answers that were given before are sent again, from their bytes.

An answer is kept without its OPT record under its question. A query that asks for it gets a copy with its own id, its
RD and CD bits, the letters of its own name, TTLs less by the seconds that have passed, and an OPT record if it has one
itself. Everything else (another opcode, records where none belong, answers too long for UDP) takes the long way, which
is a Python function with the query and the sender.

`serve` reads and writes datagrams in batches, in memory that belongs to it; for an answer that is kept it makes one
Python object, the key. Cost: the key (the question's bytes), the answer's bytes, 80 bytes for the object and its place
in a dictionary. Two generations bound the memory, as in `_recursive/store.py`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from coro.capi cimport coro_mmsghdr, require_abi, sock

import socket as _socket
import time

from coro.dns import _wire

require_abi()

cdef extern from "sys/uio.h":
    struct iovec:
        void *iov_base
        size_t iov_len

cdef extern from "sys/socket.h":
    ctypedef unsigned int socklen_t
    struct sockaddr_storage:
        pass

cdef enum:
    BATCH = 64
    ROOM = 4096             # of a datagram; a longer query is refused
    SHORTEST = 17           # a header and the question for the root
    OPT = 11
    COOKIE = 10             # an option (RFC 7873)
    PAYLOAD = 1232          # no answer over UDP is longer
    PLACES = 1 << 14        # of a RateLimit

cdef object _monotonic = time.monotonic


cdef class Prepared:
    """One answer."""

    cdef bytes message
    cdef double born, expires
    cdef tuple places       # of the TTLs
    cdef bint for_all       # from a zone of the server: whoever asks gets it, with or without RD, and it gets no older


cdef class Answers:
    """The answers of a server, at most `size`."""

    cdef dict young, old
    cdef Py_ssize_t half
    cdef readonly long hits, misses
    cdef readonly bint for_all  # was the last answer one that everybody may have?
    cdef public bint validated  # who asks whether an answer is authentic takes the long way, unless with DO

    def __cinit__(self, Py_ssize_t size):
        self.young = {}
        self.old = {}
        self.half = max(size // 2, 1)

    def __len__(self):
        return len(self.young) + len(self.old)

    def clear(self):
        """Forget all."""
        self.young = {}
        self.old = {}

    def put(self, bytes name not None, int rtype, bint dnssec, bytes message not None, object seconds):
        """Keep a message, which has no OPT record, as the answer to a question for `seconds`; None: as one of a zone,
        until all are forgotten. `name` is in wire form and lower case."""
        cdef Prepared entry = Prepared.__new__(Prepared)
        cdef bytes key = name + bytes((rtype >> 8, rtype & 255, dnssec))
        if PyBytes_GET_SIZE(message) > PAYLOAD - OPT or seconds is not None and seconds <= 0:
            return
        entry.message = message
        entry.born = _monotonic()
        entry.for_all = seconds is None
        entry.places = () if seconds is None else _wire.ttl_places(message)
        entry.expires = 1e300 if seconds is None else entry.born + <double>seconds
        if len(self.young) >= self.half and key not in self.young:
            self.old = self.young
            self.young = {}
        self.young[key] = entry

    cdef Prepared look(self, bytes key, double now):
        cdef Prepared entry = self.young.get(key)
        if entry is None:
            entry = self.old.pop(key, None) if self.old else None
            if entry is None:
                return None
            self.young[key] = entry
        if entry.expires < now:
            del self.young[key]
            return None
        return entry

    cdef int reply(self, const uint8_t *query, Py_ssize_t n, uint8_t *out, double now) except -1:
        """The length of the answer in `out`; 0: take the long way."""
        cdef uint8_t key[260]
        cdef const uint8_t *p
        cdef uint8_t *ttl
        cdef Py_ssize_t at = 12, size, end
        cdef int c, i, most = 512, length
        cdef uint32_t left, passed
        cdef bint edns = False, dnssec = False
        cdef Prepared entry
        cdef bytes name
        if n < SHORTEST or query[2] & 0xFE or query[3] & 0x8F or query[4] or query[5] != 1 or query[6] or query[7] \
                or query[8] or query[9] or query[10] or query[11] > 1:
            return 0
        while True:
            if at >= n:
                return 0
            c = query[at]
            if c > 63 or at + c - 12 > 254 or at + c >= n:
                return 0
            key[at - 12] = c
            at += 1
            if c == 0:
                break
            for i in range(c):
                key[at - 12] = query[at] + 32 if 65 <= query[at] <= 90 else query[at]
                at += 1
        if at + 4 > n or query[at + 2] or query[at + 3] != 1:
            return 0
        length = at - 12
        key[length] = query[at]
        key[length + 1] = query[at + 1]
        at += 4
        if query[11]:
            # RFC 6891, section 6.1: options may be there; only a cookie is looked at, elsewhere
            if at + OPT > n or query[at] or query[at + 1] or query[at + 2] != 41 or query[at + 6]:
                return 0
            edns = True
            dnssec = query[at + 7] >> 7
            most = min(max(query[at + 3] << 8 | query[at + 4], 512), PAYLOAD)
            end = at + OPT + (query[at + 9] << 8 | query[at + 10])
            at += OPT
            while at + 4 <= end and end <= n:
                if query[at] == 0 and query[at + 1] == COOKIE:
                    return 0
                at += 4 + (query[at + 2] << 8 | query[at + 3])
        if at != n:
            return 0
        key[length + 2] = dnssec
        entry = self.look(PyBytes_FromStringAndSize(<char *>key, length + 3), now)
        if entry is None:
            return 0
        self.for_all = entry.for_all
        if not entry.for_all and (not query[2] or self.validated and query[3] & 0x20 and not dnssec):
            return 0
        size = PyBytes_GET_SIZE(entry.message)
        if size + (OPT if edns else 0) > most:
            return 0
        memcpy(out, PyBytes_AS_STRING(entry.message), size)
        out[0] = query[0]
        out[1] = query[1]
        out[2] = out[2] & 0xFE | query[2] & 1
        out[3] = out[3] & 0xEF | query[3] & 0x10
        memcpy(out + 12, query + 12, length)
        passed = 0 if entry.for_all else <uint32_t>(now - entry.born)
        if passed:
            for place in entry.places:
                ttl = out + <Py_ssize_t>place
                left = <uint32_t>ttl[0] << 24 | <uint32_t>ttl[1] << 16 | <uint32_t>ttl[2] << 8 | ttl[3]
                left = left - passed if left > passed else 0
                ttl[0] = left >> 24
                ttl[1] = left >> 16 & 255
                ttl[2] = left >> 8 & 255
                ttl[3] = left & 255
        if edns:
            memset(out + size, 0, OPT)
            out[size + 2] = 41
            out[size + 3] = PAYLOAD >> 8
            out[size + 4] = PAYLOAD & 255
            out[size + 7] = dnssec << 7
            size += OPT
            out[11] += 1
            if out[11] == 0:
                out[10] += 1
        return size

    def answer(self, bytes query not None):
        """The answer to a query that came alone (over TCP), None if none is kept."""
        cdef bytes out = PyBytes_FromStringAndSize(NULL, PAYLOAD)
        cdef int n = self.reply(<const uint8_t *>PyBytes_AS_STRING(query), PyBytes_GET_SIZE(query),
                                <uint8_t *>PyBytes_AS_STRING(out), _monotonic())
        if n:
            self.hits += 1
            return out[:n]
        self.misses += 1
        return None


cdef inline uint64_t turned(uint64_t x, int bits) noexcept nogil:
    return x << bits | x >> (64 - bits)


cdef inline void sip_round(uint64_t *v) noexcept nogil:
    v[0] += v[1]
    v[1] = turned(v[1], 13) ^ v[0]
    v[0] = turned(v[0], 32)
    v[2] += v[3]
    v[3] = turned(v[3], 16) ^ v[2]
    v[0] += v[3]
    v[3] = turned(v[3], 21) ^ v[0]
    v[2] += v[1]
    v[1] = turned(v[1], 17) ^ v[2]
    v[2] = turned(v[2], 32)


cdef inline uint64_t little(const uint8_t *p, Py_ssize_t n) noexcept nogil:
    cdef uint64_t out = 0
    cdef Py_ssize_t i
    for i in range(n):
        out |= <uint64_t>p[i] << (8 * i)
    return out


def siphash(bytes key not None, bytes data not None):
    """SipHash-2-4 of some data with a key of 16 bytes, as 8 bytes, the lowest first (Aumasson and Bernstein, 2012; what
    RFC 9018 makes cookies with)."""
    cdef const uint8_t *k = <const uint8_t *>PyBytes_AS_STRING(key)
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef Py_ssize_t n = PyBytes_GET_SIZE(data), at = 0
    cdef uint64_t v[4]
    cdef uint64_t m, k0, k1
    cdef uint8_t out[8]
    cdef int i
    if PyBytes_GET_SIZE(key) != 16:
        raise ValueError(f"expected a key of 16 bytes, not {len(key)}")
    k0 = little(k, 8)
    k1 = little(k + 8, 8)
    v[0] = k0 ^ <uint64_t>0x736F6D6570736575
    v[1] = k1 ^ <uint64_t>0x646F72616E646F6D
    v[2] = k0 ^ <uint64_t>0x6C7967656E657261
    v[3] = k1 ^ <uint64_t>0x7465646279746573
    while True:
        if n - at >= 8:
            m = little(p + at, 8)
        else:
            m = little(p + at, n - at) | <uint64_t>(n & 255) << 56
        v[3] ^= m
        sip_round(v)
        sip_round(v)
        v[0] ^= m
        at += 8
        if at > n:
            break
    v[2] ^= 255
    for i in range(4):
        sip_round(v)
    m = v[0] ^ v[1] ^ v[2] ^ v[3]
    for i in range(8):
        out[i] = m >> (8 * i) & 255
    return PyBytes_FromStringAndSize(<char *>out, 8)


cdef object address_of(const uint8_t *p, bint six):
    # ip(7), ipv6(7): sockaddr_in and sockaddr_in6 have the port behind two bytes, in the order of the network
    cdef int port = p[2] << 8 | p[3]
    if six:
        return (_socket.inet_ntop(_socket.AF_INET6, p[8:24]), port, 0, (<const uint32_t *>(p + 24))[0])
    return (_socket.inet_ntop(_socket.AF_INET, p[4:8]), port)


cdef class Memory:
    # of one serve(): queries, answers, headers for both
    cdef char *all

    def __cinit__(self, Py_ssize_t size):
        self.all = <char *>PyMem_Malloc(size)
        if self.all == NULL:
            raise MemoryError()
        memset(self.all, 0, size)

    def __dealloc__(self):
        PyMem_Free(self.all)


cdef bint may_ask(const uint8_t *name, bint six, dict known, object allowed) except -1:
    """Ask `allowed`, a function, about the sender; what it said is in `known`."""
    cdef bytes raw = PyBytes_FromStringAndSize(<char *>name + (8 if six else 4), 16 if six else 4)
    said = known.get(raw)
    if said is None:
        if len(known) >= 10_000:
            known.clear()
        said = known[raw] = bool(allowed(address_of(name, six)[0]))
    return said


cdef class RateLimit:
    """What each network of clients (/24 of IPv4, /56 of IPv6) may cause in a second, `rate` of it, and `burst` at once.

    A table of fixed size has one number for each place: the time at which what was caused is paid for (the generic cell
    rate algorithm). Networks have places by a hash with a secret `key` of 16 bytes; two that share one have one share
    together, which is so for one of 16384."""

    cdef Memory memory
    cdef double interval, allowance
    cdef uint64_t k0, k1
    cdef readonly long truncated, dropped

    def __cinit__(self, double rate, double burst, bytes key not None):
        if not 0 < rate < 1e300 or not burst > 0 or PyBytes_GET_SIZE(key) != 16:
            raise ValueError(f"expected a rate and a burst above 0 and a key of 16 bytes, not {rate}, {burst}, {key!r}")
        self.memory = Memory(PLACES * sizeof(double))
        self.interval = 1 / rate
        self.allowance = burst / rate
        self.k0 = little(<const uint8_t *>PyBytes_AS_STRING(key), 8)
        self.k1 = little(<const uint8_t *>PyBytes_AS_STRING(key) + 8, 8) | 1

    cdef double *place(self, const uint8_t *address, Py_ssize_t n) noexcept:
        # RFC 4291, section 2.5.5.2: of an IPv4 address in one of IPv6, the network of the former
        cdef uint64_t x
        cdef int i
        cdef bint mapped = n == 16 and address[10] == 255 and address[11] == 255
        if mapped:
            for i in range(10):
                mapped = mapped and not address[i]
        if mapped:
            x = little(address + 12, 3)
        elif n == 16:
            x = little(address, 7) | <uint64_t>1 << 63
        else:
            x = little(address, 3)
        x = (x ^ self.k0) * self.k1
        x ^= x >> 29
        x = (x ^ turned(self.k0, 32)) * self.k1
        return <double *>self.memory.all + (x >> 50)

    cdef int check(self, const uint8_t *address, Py_ssize_t n, double now) noexcept:
        """May one more response be sent? 0: yes; 1: one that is truncated, since who is real asks again over TCP, so
        each second one; 2: none."""
        cdef double *paid = self.place(address, n)
        if paid[0] - now > self.allowance:
            if self.dropped <= self.truncated:
                self.dropped += 1
                return 2
            self.truncated += 1
            return 1
        paid[0] = max(paid[0], now) + self.interval
        return 0

    def response(self, bytes address not None):
        """May one more response be sent to an address of 4 or 16 bytes? 0: yes, 1: a truncated one, 2: none."""
        return self.check(<const uint8_t *>PyBytes_AS_STRING(address), checked(address), _monotonic())

    def charge(self, bytes address not None, double cost):
        """The client has caused so much."""
        cdef double *paid = self.place(<const uint8_t *>PyBytes_AS_STRING(address), checked(address))
        paid[0] = max(paid[0], <double>_monotonic()) + cost * self.interval

    def is_spent(self, bytes address not None):
        """Has the client's network caused more than its share?"""
        cdef double *paid = self.place(<const uint8_t *>PyBytes_AS_STRING(address), checked(address))
        return paid[0] - <double>_monotonic() > self.allowance


cdef Py_ssize_t checked(bytes address) except -1:
    if PyBytes_GET_SIZE(address) not in (4, 16):
        raise ValueError(f"expected an address of 4 or 16 bytes, not {address!r}")
    return PyBytes_GET_SIZE(address)


cdef int cut(uint8_t *message, int size) noexcept:
    """Leave the header and the question of a reply, and say that it is truncated. The size that it has then."""
    cdef int at = 12
    while at < size and message[at]:
        at += message[at] + 1
    at += 5
    if at > size:
        return size
    message[2] |= 2
    memset(message + 6, 0, 6)
    return at


def truncated(bytes reply not None):
    """A reply of which only the header and the question are left, marked as truncated."""
    cdef bytes out = PyBytes_FromStringAndSize(PyBytes_AS_STRING(reply), PyBytes_GET_SIZE(reply))
    if PyBytes_GET_SIZE(out) < 12:
        return out
    return out[:cut(<uint8_t *>PyBytes_AS_STRING(out), PyBytes_GET_SIZE(out))]


def serve(sock s not None, Answers answers not None, object miss not None, object allowed=None, RateLimit limit=None):
    """Answer datagrams until the socket is closed or the thread interrupted. `miss(query, address)` gets each query
    that takes the long way: also those from senders for whom `allowed(host)` is false, unless everybody may have the
    answer. If it returns bytes, these are sent; `limit` is about all others."""
    cdef bint six = s.domain == _socket.AF_INET6
    cdef Py_ssize_t one = 2 * ROOM + 2 * sizeof(coro_mmsghdr) + 2 * sizeof(iovec) + sizeof(sockaddr_storage)
    cdef Memory memory = Memory(BATCH * one)
    cdef char *data = memory.all
    cdef char *out = data + BATCH * ROOM
    cdef coro_mmsghdr *got = <coro_mmsghdr *>(out + BATCH * ROOM)
    cdef coro_mmsghdr *put = got + BATCH
    cdef iovec *pieces = <iovec *>(put + BATCH)
    cdef sockaddr_storage *names = <sockaddr_storage *>(pieces + 2 * BATCH)
    cdef int i, n, size, count, sent, missed, direct, limited, verdict
    cdef double now
    cdef dict known = {}
    for i in range(BATCH):
        pieces[i].iov_base = data + i * ROOM
        pieces[i].iov_len = ROOM
        (<void **>&got[i].msg_hdr.msg_iov)[0] = &pieces[i]
        got[i].msg_hdr.msg_iovlen = 1
        got[i].msg_hdr.msg_name = &names[i]
        pieces[BATCH + i].iov_base = out + i * ROOM
        (<void **>&put[i].msg_hdr.msg_iov)[0] = &pieces[BATCH + i]
        put[i].msg_hdr.msg_iovlen = 1
    while True:
        for i in range(BATCH):
            got[i].msg_hdr.msg_namelen = sizeof(sockaddr_storage)
        n = s.c_recvmmsg(got, BATCH, 0)
        now = _monotonic()
        count = missed = direct = limited = 0
        for i in range(n):
            size = answers.reply(<const uint8_t *>data + i * ROOM, got[i].msg_len, <uint8_t *>out + count * ROOM, now)
            if not size or not (answers.for_all or allowed is None
                                or may_ask(<const uint8_t *>&names[i], six, known, allowed)):
                missed += 1
                said = miss(PyBytes_FromStringAndSize(data + i * ROOM, got[i].msg_len),
                            address_of(<const uint8_t *>&names[i], six))
                if type(said) is not bytes or PyBytes_GET_SIZE(said) > ROOM:
                    continue
                size = PyBytes_GET_SIZE(said)
                memcpy(out + count * ROOM, PyBytes_AS_STRING(said), size)
                direct += 1
            elif limit is not None:
                verdict = limit.check(<const uint8_t *>&names[i] + (8 if six else 4), 16 if six else 4, now)
                if verdict == 2:
                    limited += 1
                    continue
                if verdict:
                    size = cut(<uint8_t *>out + count * ROOM, size)
            pieces[BATCH + count].iov_len = size
            put[count].msg_hdr.msg_name = &names[i]
            put[count].msg_hdr.msg_namelen = got[i].msg_hdr.msg_namelen
            count += 1
        answers.hits += count - direct + limited
        answers.misses += missed
        sent = 0
        while sent < count:
            try:
                sent += s.c_sendmmsg(put + sent, count - sent, 0)
            except OSError:
                if s.fd < 0:
                    raise
                sent += 1           # nobody can be reached there
