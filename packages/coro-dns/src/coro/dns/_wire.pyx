# cython: language_level=3, nonecheck=True, binding=False, boundscheck=False, wraparound=False, initializedcheck=False
"""Whole DNS messages as a resolver and a server see them (RFC 1035, section 4): names and data stay in wire form.

A name is bytes: labels with their length bytes, the root's zero byte at the end, letters in lower case. So names are
compared, hashed and cut (`parent`) without being decoded. A record is a tuple `(owner, type, class, ttl, data)`. In the
data of the types that may be compressed (RFC 3597, section 4) names are expanded; all else is as it came.

The message of a peer is hostile. A pointer has to go to a place before the name that it is in, and each further one to
a place before that (so there are no loops), a name has at most 255 bytes, a header may not announce more records than
there are bytes for, and what expands to more than EXPANDED bytes is refused. Everything wrong is a ValueError.

Cost: one pass, one tuple of five objects for each record. Rejected: the types of the public codec for these, since a
resolver looks at few records and forwards most; objects of class "record", which cost more memory in a cache.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy, memcmp

cdef enum:
    NAME_MAX = 255          # RFC 1035, section 2.3.4
    EXPANDED = 1 << 20      # of data of one message: 16 times the longest message
    POINTER_MAX = 0x3FFF
    OPT = 41
    TSIG = 250


cdef inline int low(int c) noexcept nogil:
    return c + 32 if 65 <= c <= 90 else c


cdef Py_ssize_t expand(const uint8_t *p, Py_ssize_t n, Py_ssize_t at, uint8_t *out, int *length, bint fold) except -1:
    """Copy the name at `at` into `out` (256 bytes); returns where it ends."""
    cdef Py_ssize_t after = -1, limit = at, target
    cdef int size = 0, c, i
    while True:
        if at >= n:
            raise ValueError("a name goes on beyond the end of the message")
        c = p[at]
        if c < 64:
            if at + 1 + c > n:
                raise ValueError("a label goes on beyond the end of the message")
            if size + 1 + c > NAME_MAX:
                raise ValueError("a name of more than 255 bytes")
            out[size] = c
            for i in range(1, c + 1):
                out[size + i] = low(p[at + i]) if fold else p[at + i]
            size += c + 1
            at += c + 1
            if c == 0:
                break
        elif c >= 192:
            if at + 2 > n:
                raise ValueError("a pointer goes on beyond the end of the message")
            target = (c & 63) << 8 | p[at + 1]
            if after < 0:
                after = at + 2
            if target >= limit:
                raise ValueError("a compression pointer that does not go backwards")
            at = limit = target
        else:
            raise ValueError(f"a label of the unknown kind {c >> 6}")
    length[0] = size
    return at if after < 0 else after


cdef inline int u16(const uint8_t *p) noexcept nogil:
    return p[0] << 8 | p[1]


cdef inline uint32_t u32(const uint8_t *p) noexcept nogil:
    return <uint32_t>p[0] << 24 | <uint32_t>p[1] << 16 | <uint32_t>p[2] << 8 | p[3]


cdef int names_of(int rtype, int *before) noexcept nogil:
    """How many names are in the data of a type, after how many bytes; the rest follows unchanged. RFC 3597, 4."""
    before[0] = 0
    if rtype in (2, 3, 4, 5, 7, 8, 9, 12, 39):      # NS, MD, MF, CNAME, MB, MG, MR, PTR, DNAME
        return 1
    if rtype == 6 or rtype == 14 or rtype == 17:    # SOA, MINFO, RP
        return 2
    if rtype == 15 or rtype == 18 or rtype == 21 or rtype == 36:    # MX, AFSDB, RT, KX
        before[0] = 2
        return 1
    if rtype == 26:                                 # PX
        before[0] = 2
        return 2
    if rtype == 33:                                 # SRV
        before[0] = 6
        return 1
    return 0


cdef class Message:
    """What parse() has read. `flags` is the second word of the header, `question` the name as it came."""

    cdef readonly int id, flags, qtype, qclass, questions
    cdef readonly bytes qname, question
    cdef readonly list answer, authority, additional
    cdef readonly int udp_size          # of EDNS; 0: there is none
    cdef readonly bint dnssec_ok
    cdef readonly int edns_version
    cdef readonly list options          # of EDNS: [(code, bytes), ...]
    cdef readonly int rcode             # with the upper bits that EDNS has

    @property
    def truncated(self):
        """Is TC set?"""
        return (self.flags & 0x0200) != 0

    @property
    def authoritative(self):
        """Is AA set?"""
        return (self.flags & 0x0400) != 0

    @property
    def is_reply(self):
        """Is QR set?"""
        return (self.flags & 0x8000) != 0

    @property
    def opcode(self):
        """The four bits of the kind of query."""
        return self.flags >> 11 & 15


cdef list read_section(Message m, const uint8_t *p, Py_ssize_t n, Py_ssize_t *where, int count, Py_ssize_t *spent,
                       bint additional):
    cdef uint8_t name[256]
    cdef int length, rtype, klass, before, names, size
    cdef uint32_t ttl
    cdef Py_ssize_t at = where[0], end, here
    cdef list out = []
    cdef bytes owner, last = None
    cdef bytearray built
    if count * 11 > n - at:
        raise ValueError("the header announces more records than there are bytes for")
    while count:
        count -= 1
        at = expand(p, n, at, name, &length, True)
        if last is not None and PyBytes_GET_SIZE(last) == length and memcmp(PyBytes_AS_STRING(last), name, length) == 0:
            owner = last
        else:
            owner = last = PyBytes_FromStringAndSize(<char *>name, length)
            spent[0] += length
        if at + 10 > n:
            raise ValueError("a record goes on beyond the end of the message")
        rtype = u16(p + at)
        klass = u16(p + at + 2)
        ttl = u32(p + at + 4)
        size = u16(p + at + 8)
        at += 10
        end = at + size
        if end > n:
            raise ValueError("the data of a record goes on beyond the end of the message")
        if rtype == OPT:
            if not additional or m.udp_size or length != 1:
                raise ValueError("an OPT record at a wrong place, or two of them")
            read_options(m, p, at, end, klass, ttl)
            at = end
            continue
        if ttl & 0x80000000:
            ttl = 0                                 # RFC 2181, section 8
        names = names_of(rtype, &before)
        if names and (size or klass < 254):         # nothing at all: only in updates (RFC 2136, section 2.5)
            if size < before:
                raise ValueError("data too short for its type")
            built = bytearray(PyBytes_FromStringAndSize(<char *>p + at, before))
            here = at + before
            while names:
                names -= 1
                here = expand(p, end, here, name, &length, False)
                built += PyBytes_FromStringAndSize(<char *>name, length)
            if here > end:
                raise ValueError("a name goes on beyond the end of its record")
            built += PyBytes_FromStringAndSize(<char *>p + here, end - here)
            data = bytes(built)
        else:
            data = PyBytes_FromStringAndSize(<char *>p + at, size)
        spent[0] += len(data)
        if spent[0] > EXPANDED:
            raise ValueError("a message whose names expand to more than a MiB")
        out.append((owner, rtype, klass, <long>ttl, data))
        at = end
    where[0] = at
    return out


cdef int read_options(Message m, const uint8_t *p, Py_ssize_t at, Py_ssize_t end, int size, uint32_t ttl) except -1:
    # RFC 6891, section 6.1
    cdef int length
    m.udp_size = max(size, 512)
    m.edns_version = ttl >> 16 & 255
    m.dnssec_ok = (ttl >> 15) & 1
    m.rcode |= (ttl >> 24) << 4
    while at < end:
        if at + 4 > end or at + 4 + u16(p + at + 2) > end:
            raise ValueError("an EDNS option goes on beyond its record")
        length = u16(p + at + 2)
        m.options.append((u16(p + at), PyBytes_FromStringAndSize(<char *>p + at + 4, length)))
        at += 4 + length
    return 0


def parse(bytes data not None, bint head_only=False):
    """Read a message. `head_only`: not beyond the question, for replies that were truncated.

    Raises ValueError for everything that is no message.
    """
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef Py_ssize_t n = PyBytes_GET_SIZE(data), at = 12, spent = 0
    cdef uint8_t name[256]
    cdef int length = 0, i
    cdef Message m = Message.__new__(Message)
    if n < 12:
        raise ValueError(f"a message has a header of 12 bytes, this one is {n} long")
    m.id = u16(p)
    m.flags = u16(p + 2)
    m.rcode = m.flags & 15
    m.questions = u16(p + 4)
    m.qname = m.question = b""
    m.options = []
    m.answer = m.authority = m.additional = []
    if m.questions > 1:
        raise ValueError("more than one question")
    if m.questions:
        at = expand(p, n, at, name, &length, False)
        m.question = PyBytes_FromStringAndSize(<char *>name, length)
        m.qname = lower(m.question)
        if at + 4 > n:
            raise ValueError("a question goes on beyond the end of the message")
        m.qtype = u16(p + at)
        m.qclass = u16(p + at + 2)
        at += 4
    if head_only:
        return m
    m.answer = read_section(m, p, n, &at, u16(p + 6), &spent, False)
    m.authority = read_section(m, p, n, &at, u16(p + 8), &spent, False)
    m.additional = read_section(m, p, n, &at, u16(p + 10), &spent, True)
    if at != n:
        raise ValueError("bytes after the end of the message")
    return m


# -- names


cpdef bytes lower(bytes name):
    """The name in lower case (label lengths are below 64, so they are no letters)."""
    cdef Py_ssize_t i, n = len(name)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, n)
    cdef uint8_t *q = <uint8_t *>PyBytes_AS_STRING(out)
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(name)
    for i in range(n):
        q[i] = low(p[i])
    return out


cpdef bint below(bytes name, bytes zone):
    """Is `name` equal to `zone`, or below it?"""
    cdef Py_ssize_t n = len(name), z = len(zone), at = 0
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(name)
    if z > n or memcmp(p + n - z, PyBytes_AS_STRING(zone), z) != 0:
        return False
    while at < n - z:
        at += p[at] + 1
    return at == n - z


cpdef bytes parent(bytes name):
    """The name without its first label; the root's is the root."""
    if len(name) <= 1:
        return b"\0"
    return name[<uint8_t>PyBytes_AS_STRING(name)[0] + 1:]


cpdef int labels(bytes name):
    """How many labels a name has: 0 for the root."""
    cdef Py_ssize_t at = 0, size = len(name)
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(name)
    cdef int n = 0
    while at < size and p[at]:
        at += p[at] + 1
        n += 1
    return n


def from_text(text not None):
    """`"www.example."` as a name, in lower case; with or without the dot at the end, and with the escapes of zone
    files. Raises ValueError for what cannot be one."""
    cdef bytearray out = bytearray(), label = bytearray()
    cdef bytes raw
    cdef Py_ssize_t i = 0, n
    if not text.isascii():
        raise ValueError(f"expected a name of ASCII characters, not {text!r}: encode it (IDNA) first")
    raw = text.encode()
    if raw == b"." or raw == b"":
        return b"\0"
    n = len(raw)
    while i < n:
        c = raw[i]
        i += 1
        if c == 46:
            if not label:
                raise ValueError(f"a name has no empty labels: {text!r}")
            out.append(len(label))
            out += label
            label = bytearray()
            continue
        if c == 92:
            if raw[i:i + 3].isdigit() and len(raw[i:i + 3]) == 3 and int(raw[i:i + 3]) < 256:
                c = int(raw[i:i + 3])
                i += 3
            elif i < n and not raw[i:i + 1].isdigit():
                c = raw[i]
                i += 1
            else:
                raise ValueError(f"a backslash is followed by a character or by three digits up to 255: {text!r}")
        label.append(low(c))
        if len(label) > 63:
            raise ValueError(f"a label has at most 63 bytes: {text!r}")
    if label:
        out.append(len(label))
        out += label
    out.append(0)
    if len(out) > NAME_MAX:
        raise ValueError(f"a name has at most 255 bytes, this one {len(out)}: {text!r}")
    return bytes(out)


def to_text(bytes name not None):
    """A name as text without a dot at the end, the root as ``"."``, with the escapes of zone files."""
    cdef list out = []
    cdef Py_ssize_t at = 0
    cdef int c
    while name[at]:
        part = []
        for c in name[at + 1:at + 1 + name[at]]:
            if c == 46 or c == 92 or c == 34 or c == 59 or c == 40 or c == 41 or c == 64 or c == 36:
                part.append("\\" + chr(c))
            elif 33 <= c <= 126:
                part.append(chr(c))
            else:
                part.append(f"\\{c:03d}")
        out.append("".join(part))
        at += name[at] + 1
    return ".".join(out) or "."


# -- writing


cdef int put_name(bytearray out, dict known, bytes name, Py_ssize_t start, bint compress) except -1:
    """Append a name; suffixes that `known` has become pointers. In `known` names are in lower case."""
    cdef Py_ssize_t at = 0, n = PyBytes_GET_SIZE(name)
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(name)
    cdef bytes folded = lower(name), rest
    while p[at]:
        rest = folded[at:] if at else folded
        place = known.get(rest)
        if place is not None and compress:
            out.append(0xC0 | <int>place >> 8)
            out.append(<int>place & 255)
            return 0
        if place is None and len(out) - start <= POINTER_MAX:
            known[rest] = len(out) - start
        out += name[at:at + p[at] + 1]
        at += p[at] + 1
    out.append(0)
    return 0


cdef int put16(bytearray out, int n) except -1:
    out.append(n >> 8 & 255)
    out.append(n & 255)
    return 0


cdef int put_record(bytearray out, dict known, tuple record) except -1:
    cdef bytes owner = record[0], data = record[4]
    cdef int rtype = record[1], before, names
    cdef uint32_t ttl = record[3]
    cdef Py_ssize_t at, here, i
    put_name(out, known, owner, 0, True)
    put16(out, rtype)
    put16(out, record[2])
    put16(out, ttl >> 16)
    put16(out, ttl & 0xFFFF)
    at = len(out)
    put16(out, 0)
    # only the types of RFC 1035 may be compressed when sent (RFC 3597, section 4)
    names = names_of(rtype, &before) if rtype in (2, 5, 6, 12, 15) and len(data) else 0
    if names:
        out += data[:before]
        here = before
        while names:
            names -= 1
            i = here
            while data[i]:
                i += data[i] + 1
            put_name(out, known, data[here:i + 1], 0, True)
            here = i + 1
        out += data[here:]
    else:
        out += data
    i = len(out) - at - 2
    if i > 65535:
        raise ValueError(f"the data of a record has at most 65535 bytes, not {i}")
    out[at] = i >> 8
    out[at + 1] = i & 255
    return 0


def build(int ident, int flags, bytes question, int qtype, int qclass, answer=(), authority=(), additional=(),
          int udp_size=0, bint dnssec_ok=False, int extended=0, options=(), int limit=65535, int needed=0):
    """A message of at most `limit` bytes. What does not fit is left out from the end and, but for the additional
    section, TC is set (RFC 2181, section 9); for its first `needed` records as well.

    `question` is a name (`None`: no question), the records are tuples as in a Message. With `udp_size` there is an OPT
    record; `extended` are the upper bits of the rcode and `options` pairs of a code and bytes.
    """
    cdef bytearray out = bytearray(12), tail = bytearray()
    cdef dict known = {}
    cdef int counts[3]
    cdef int i, before
    cdef Py_ssize_t room, size
    cdef bint cut = False
    cdef tuple record
    if question is not None:
        put_name(out, known, question, 0, True)
        put16(out, qtype)
        put16(out, qclass)
        out[5] = 1
    if udp_size:
        tail.append(0)
        put16(tail, OPT)
        put16(tail, udp_size)
        tail.append(extended)
        tail.append(0)
        put16(tail, 0x8000 if dnssec_ok else 0)
        put16(tail, 0)
        for code, data in options:
            put16(tail, code)
            put16(tail, len(data))
            tail += data
        size = len(tail) - 11
        tail[9] = size >> 8
        tail[10] = size & 255
    room = limit - len(tail)
    for i in range(3):
        counts[i] = 0
        if cut:
            continue
        for record in (answer, authority, additional)[i]:
            size = len(out)
            put_record(out, known, record)
            if len(out) > room:
                del out[size:]
                cut = True
                if i < 2 or counts[2] < needed:
                    flags |= 0x0200
                break
            counts[i] += 1
    out += tail
    if tail:
        counts[2] += 1
    out[0] = ident >> 8 & 255
    out[1] = ident & 255
    out[2] = flags >> 8 & 255
    out[3] = flags & 255
    for i in range(3):
        out[6 + 2 * i] = counts[i] >> 8 & 255
        out[7 + 2 * i] = counts[i] & 255
    return bytes(out)


def ttl_places(bytes message not None):
    """Where the TTLs of a message's records stand, but for the OPT record's: a tuple of places, for answers that are
    sent again later."""
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(message)
    cdef Py_ssize_t n = PyBytes_GET_SIZE(message), at = 12
    cdef uint8_t name[256]
    cdef int length, i, count
    cdef list out = []
    if n < 12:
        raise ValueError("no header")
    if u16(p + 4):
        at = expand(p, n, at, name, &length, False) + 4
    count = u16(p + 6) + u16(p + 8) + u16(p + 10)
    for i in range(count):
        at = expand(p, n, at, name, &length, False)
        if at + 10 > n:
            raise ValueError("a record goes on beyond the end of the message")
        if u16(p + at) != OPT:
            out.append(at + 4)
        at += 10 + u16(p + at + 8)
    return tuple(out)


def signature(bytes message not None):
    """The TSIG record of a message (RFC 8945, section 4.2): `(place, owner, class, ttl, data)`, the owner in lower
    case; None if it has none. Raises ValueError if it is not the last record, and for what is no message."""
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(message)
    cdef Py_ssize_t n = PyBytes_GET_SIZE(message), at = 12, begin = 0
    cdef uint8_t name[256]
    cdef int length, i, count, more, rtype = 0, size
    if n < 12:
        raise ValueError("no header")
    for i in range(u16(p + 4)):
        at = expand(p, n, at, name, &length, False) + 4
    more = u16(p + 10)
    count = u16(p + 6) + u16(p + 8) + more
    for i in range(count):
        begin = at
        at = expand(p, n, at, name, &length, True)
        if at + 10 > n:
            raise ValueError("a record goes on beyond the end of the message")
        rtype = u16(p + at)
        size = u16(p + at + 8)
        if at + 10 + size > n:
            raise ValueError("the data of a record goes on beyond the end of the message")
        if rtype == TSIG and (i + 1 < count or not more):
            raise ValueError("a TSIG record that is not the last one")
        at += 10 + size
    if rtype != TSIG:
        return None
    if at != n:
        raise ValueError("bytes after the end of the message")
    return (begin, PyBytes_FromStringAndSize(<char *>name, length), u16(p + at - size - 8), u32(p + at - size - 6),
            PyBytes_FromStringAndSize(<char *>p + at - size, size))
