# Reading.


cdef class Header:
    """Header()

    The first twelve bytes of a message as numbers, all of them 0 at first: ``id``; ``qr`` (1: a reply), ``opcode``,
    ``aa``, ``tc``, ``rd``, ``ra``, ``z`` (the reserved bit), ``ad`` and ``cd`` (RFC 4035), ``rcode`` (four bits); and
    how many entries the sections have: ``qdcount``, ``ancount``, ``nscount``, ``arcount``.
    """

    cdef public int id, qr, opcode, aa, tc, rd, ra, z, ad, cd, rcode, qdcount, ancount, nscount, arcount

    def __repr__(self):
        cdef list set_ = [name for name in ("qr", "aa", "tc", "rd", "ra", "ad", "cd") if getattr(self, name)]
        return (f"<Header id={self.id} opcode={self.opcode} rcode={self.rcode} {' '.join(set_)} "
                f"{self.qdcount}/{self.ancount}/{self.nscount}/{self.arcount}>")


cdef object text_of(const char *data, Py_ssize_t n):
    out = PyUnicode_New(n, 127)
    memcpy(PyUnicode_DATA(out), data, n)
    return out


cdef Py_ssize_t read_name(const uint8_t *p, Py_ssize_t n, Py_ssize_t at, char *out, Py_ssize_t *size, bint fold
                          ) except -1:
    """The name at `at` as text into `out` (TEXT_MAX + 2 bytes); returns where it ends."""
    cdef Py_ssize_t after = -1, limit = at, target, i, end
    cdef int total = 1, c, kind
    cdef char *q = out
    while True:
        if at >= n:
            raise UnpackError("a name goes on beyond the end of its data")
        c = p[at]
        if c == 0:
            at += 1
            break
        if c < 64:
            end = at + 1 + c
            total += c + 1
            if end > n:
                raise UnpackError("a label goes on beyond the end of its data")
            if total > NAME_MAX:
                raise UnpackError("a name of more than 255 bytes")
            if q != out:
                q[0] = 46
                q += 1
            for i in range(at + 1, end):
                c = p[i]
                kind = escapes[c]
                if kind == 0:
                    q[0] = low(c) if fold else c
                    q += 1
                elif kind == 1:
                    q[0] = 92
                    q[1] = c
                    q += 2
                else:
                    q[0] = 92
                    q[1] = 48 + c // 100
                    q[2] = 48 + c // 10 % 10
                    q[3] = 48 + c % 10
                    q += 4
            at = end
        elif c >= 192:
            if at + 2 > n:
                raise UnpackError("a pointer goes on beyond the end of its data")
            target = (c & 63) << 8 | p[at + 1]
            if after < 0:
                after = at + 2
            if target >= limit:
                raise UnpackError("a compression pointer that does not go backwards")
            at = limit = target
        else:
            raise UnpackError(f"a label of the unknown kind {c >> 6}")
    size[0] = q - out
    return at if after < 0 else after


cdef class Unpacker:
    """Unpacker(data)

    Reads the message ``data``, bytes, from front to end. Each method reads what its name says and moves on. Names are
    text in small letters without a dot at the end, the root is ``""``; a dot within a label, and whatever else has a
    meaning in zone files, is escaped as there. All methods raise UnpackError if what they read is not there.

    After ``unpack``, ``edns`` is what the OPT record says: a tuple ``(size, dnssec_ok, version, extended_rcode,
    options)``; None if there is none. ``options`` are pairs of a number and bytes. ``place`` is how many bytes have
    been read.
    """

    cdef bytes data
    cdef const uint8_t *p
    cdef Py_ssize_t n, at, spent
    cdef bint fold
    cdef int places[KNOWN]
    cdef list names
    cdef int known
    cdef readonly object edns

    def __init__(self, bytes data not None):
        self.start(data, True)

    cdef void start(self, bytes data, bint fold):
        self.data = data
        self.p = <const uint8_t *>PyBytes_AS_STRING(data)
        self.n = PyBytes_GET_SIZE(data)
        self.at = self.spent = 0
        self.known = 0
        self.names = []
        self.edns = None
        self.fold = fold

    @property
    def place(self):
        """How many bytes have been read."""
        return self.at

    cdef int need(self, Py_ssize_t count, Py_ssize_t end) except -1:
        if count > end - self.at:
            raise UnpackError(f"{count} bytes were to be read at {self.at}, and {end - self.at} are left")
        return 0

    def ensure(self, Py_ssize_t count):
        """Check that ``count`` more bytes are there."""
        if count < 0:
            raise UnpackError("a negative number of bytes")
        self.need(count, self.n)

    def getbyte(self):
        """The next byte, a number."""
        self.need(1, self.n)
        self.at += 1
        return self.p[self.at - 1]

    def getbytes(self, Py_ssize_t count):
        """The next ``count`` bytes."""
        self.ensure(count)
        return self.take(count)

    cdef bytes take(self, Py_ssize_t count):
        self.at += count
        return PyBytes_FromStringAndSize(<const char *>self.p + self.at - count, count)

    def get16bit(self):
        """A number of 16 bits."""
        self.need(2, self.n)
        self.at += 2
        return u16(self.p + self.at - 2)

    def get32bit(self):
        """A number of 32 bits."""
        self.need(4, self.n)
        self.at += 4
        return u32(self.p + self.at - 4)

    def getaddr(self):
        """An IPv4 address as text."""
        return self.field(52, self.n)

    getAdata = getaddr

    def getAAAAdata(self):
        """An IPv6 address as text."""
        return self.field(54, self.n)

    def getstring(self):
        """A string of up to 255 bytes, whose length is the byte before it."""
        return self.string(self.n)

    def getname(self):
        """A name."""
        return self.name(self.n)

    getCNAMEdata = getname
    getNSdata = getname
    getPTRdata = getname

    def getHINFOdata(self):
        """The pair ``(cpu, os)``, bytes."""
        return self.string(self.n), self.string(self.n)

    def getMXdata(self):
        """The pair ``(preference, name)``."""
        return self.get16bit(), self.name(self.n)

    def getSOAdata(self):
        """``(mname, rname, serial, refresh, retry, expire, minimum)``; all times in seconds."""
        return self.fields(b"nnlllll", self.n)

    def getTXTdata(self):
        """The strings up to the end of the message, a list of bytes. Within ``getRR`` they end with the record."""
        return self.strings(self.n)

    cdef object string(self, Py_ssize_t end):
        cdef int size
        self.need(1, end)
        size = self.p[self.at]
        self.need(1 + size, end)
        self.at += 1
        return self.take(size)

    cdef list strings(self, Py_ssize_t end):
        cdef list out = []
        while True:
            out.append(self.string(end))
            if self.at >= end:
                return out

    cdef object name(self, Py_ssize_t end):
        cdef char text[TEXT_MAX + 2]
        cdef Py_ssize_t size, at = self.at
        cdef int i, place = <int>at
        cdef bint pointer = False
        if at + 1 < end and self.p[at] >= 192:
            pointer = True
            place = (self.p[at] & 63) << 8 | self.p[at + 1]
            for i in range(self.known):
                if self.places[i] == place and place < at:
                    self.at = at + 2
                    return self.names[i]
        elif at < end and self.p[at] == 0:
            self.at = at + 1
            return ""
        self.at = read_name(self.p, end, at, text, &size, self.fold)
        self.spent += size
        if self.spent > EXPANDED:
            raise UnpackError("a message whose names expand to more than a MiB")
        out = text_of(text, size)
        if self.known < KNOWN and place <= POINTER_MAX:
            self.places[self.known] = place
            self.known += 1
            self.names.append(out)
        return out

    cdef object field(self, int kind, Py_ssize_t end):
        """A field of the kind `fields.py` says, in data that goes to `end`."""
        cdef const uint8_t *p
        cdef char text[64]
        cdef char *q
        cdef int i, c, size
        if kind == 110 or kind == 78 or kind == 77:         # n N M
            return self.name(end)
        p = self.p + self.at
        if kind == 52:                                      # 4
            self.need(4, end)
            self.at += 4
            q = text
            for i in range(4):
                c = p[i]
                if c >= 100:
                    q[0] = 48 + c // 100
                    q += 1
                if c >= 10:
                    q[0] = 48 + c // 10 % 10
                    q += 1
                q[0] = 48 + c % 10
                q[1] = 46
                q += 2
            return text_of(text, q - text - 1)
        if kind == 104 or kind == 121:                      # h y
            self.need(2, end)
            self.at += 2
            return u16(p)
        if kind == 108 or kind == 105:                      # l i
            self.need(4, end)
            self.at += 4
            return u32(p)
        if kind == 98:                                      # b
            self.need(1, end)
            self.at += 1
            return p[0]
        if kind == 54:                                      # 6
            self.need(16, end)
            self.at += 16
            inet_ntop(AF_INET6, p, text, sizeof(text))
            size = 0
            while text[size]:
                size += 1
            return text_of(text, size)
        if kind == 115 or kind == 99 or kind == 72 or kind == 117:     # s c H u
            return self.string(end)
        if kind == 83:                                      # S
            return self.strings(end)
        if kind == 114 or kind == 101 or kind == 109:       # r e m
            self.need(0, end)
            return self.take(end - self.at)
        if kind == 116:                                     # t
            self.need(6, end)
            self.at += 6
            return (<uint64_t>u16(p) << 32) | u32(p + 2)
        if kind == 113:                                     # q
            self.need(2, end)
            size = u16(p)
            self.need(2 + size, end)
            self.at += 2
            return self.take(size)
        if kind == 119:                                     # w
            return self.types(end)
        if kind == 112:                                     # p
            return self.pairs(end, True)
        if kind == 111:                                     # o
            return self.pairs(end, False)
        return self.prefixes(end)                           # g

    cdef tuple types(self, Py_ssize_t end):
        cdef list out = []
        cdef int window, before = -1, size, i, j
        while self.at < end:
            self.need(2, end)
            window = self.p[self.at]
            size = self.p[self.at + 1]
            self.need(2 + size, end)
            if window <= before or size == 0 or size > 32:
                raise UnpackError("a set of types whose blocks are out of order, empty or too long")
            before = window
            self.at += 2
            for i in range(size):
                for j in range(8):
                    if self.p[self.at + i] & 128 >> j:
                        out.append(window << 8 | i << 3 | j)
            self.at += size
        return tuple(out)

    cdef list pairs(self, Py_ssize_t end, bint ascending):
        cdef list out = []
        cdef int key, before = -1, size
        while self.at < end:
            self.need(4, end)
            key = u16(self.p + self.at)
            size = u16(self.p + self.at + 2)
            self.need(4 + size, end)
            if ascending and key <= before:
                raise UnpackError("parameters of a service that are not in ascending order")
            before = key
            self.at += 4
            out.append((key, self.take(size)))
        return out

    cdef list prefixes(self, Py_ssize_t end):
        cdef list out = []
        cdef int family, prefix, size, negated
        while self.at < end:
            self.need(4, end)
            family = u16(self.p + self.at)
            prefix = self.p[self.at + 2]
            negated = self.p[self.at + 3] >> 7
            size = self.p[self.at + 3] & 127
            self.need(4 + size, end)
            self.at += 4
            if family == 1 and (size > 4 or prefix > 32) or family == 2 and (size > 16 or prefix > 128):
                raise UnpackError("an address prefix that is too long")
            if size and self.p[self.at + size - 1] == 0:
                raise UnpackError("an address prefix with zero bytes at its end")
            out.append((family, prefix, bool(negated), self.take(size)))
        return out

    cdef object fields(self, bytes program, Py_ssize_t end):
        cdef Py_ssize_t count = PyBytes_GET_SIZE(program), i
        cdef const uint8_t *kinds = <const uint8_t *>PyBytes_AS_STRING(program)
        cdef tuple out
        if count == 1:
            return self.field(kinds[0], end)
        out = PyTuple_New(count)
        for i in range(count):
            one = self.field(kinds[i], end)
            Py_INCREF(one)
            PyTuple_SET_ITEM(out, i, one)
        return out

    cdef object rdata(self, int rtype, int klass, Py_ssize_t size):
        cdef Py_ssize_t end = self.at + size
        cdef bytes program = program_of(rtype, klass)
        if PyBytes_GET_SIZE(program) == 0 or size == 0 and klass >= 254:    # RFC 2136, section 2.4: no data
            return self.take(size)
        out = self.fields(program, end)
        if self.at != end:
            raise UnpackError(f"the data of a record of the type {rtype} ends {end - self.at} bytes before its length")
        return out

    def getHeader(self):
        """The header, a ``Header``."""
        cdef Header h = Header.__new__(Header)
        cdef const uint8_t *p = self.p + self.at
        cdef int flags
        self.need(12, self.n)
        self.at += 12
        h.id = u16(p)
        flags = u16(p + 2)
        h.qr = flags >> 15
        h.opcode = flags >> 11 & 15
        h.aa = flags >> 10 & 1
        h.tc = flags >> 9 & 1
        h.rd = flags >> 8 & 1
        h.ra = flags >> 7 & 1
        h.z = flags >> 6 & 1
        h.ad = flags >> 5 & 1
        h.cd = flags >> 4 & 1
        h.rcode = flags & 15
        h.qdcount = u16(p + 4)
        h.ancount = u16(p + 6)
        h.nscount = u16(p + 8)
        h.arcount = u16(p + 10)
        return h

    def getQuestion(self):
        """A question: ``(name, qtype, qclass)``, both numbers."""
        name = self.name(self.n)
        self.need(4, self.n)
        self.at += 4
        return name, u16(self.p + self.at - 4), u16(self.p + self.at - 2)

    def getRRheader(self):
        """What is before a record's data: ``(name, type, class, ttl, rdlength)``, all but the name numbers."""
        name = self.name(self.n)
        self.need(10, self.n)
        self.at += 10
        cdef const uint8_t *p = self.p + self.at - 10
        return name, u16(p), u16(p + 2), u32(p + 4), u16(p + 8)

    def getRR(self):
        """A record: ``(name, type, class, ttl, data)``.

        Type and class are their names if they have one (``TYPE_MAP``, ``CLASS_MAP``), otherwise numbers. ``ttl`` is in
        seconds; one with the top bit set is 0 (RFC 2181, section 8). ``data`` is what the typed readers give, a tuple
        if the type has several fields, and bytes for types that are not known. ``docs`` has the table of fields.
        """
        return self.record()

    cdef tuple record(self):
        cdef int rtype, klass, size
        cdef uint32_t ttl
        cdef const uint8_t *p
        name = self.name(self.n)
        self.need(10, self.n)
        p = self.p + self.at
        rtype = u16(p)
        klass = u16(p + 2)
        ttl = u32(p + 4)
        size = u16(p + 8)
        self.at += 10
        self.need(size, self.n)
        if ttl & 0x80000000 and rtype != OPT:
            ttl = 0
        data = self.rdata(rtype, klass, size)
        return (
            name,
            type_names[rtype] if rtype < 260 else _TYPE_MAP.get(rtype, rtype),
            class_names[klass] if klass < 256 else klass,
            ttl,
            data,
        )

    cdef list section(self, int count):
        cdef list out = []
        while count:
            count -= 1
            PyList_Append(out, self.record())
        return out

    def unpack(self):
        """The whole message: ``(header, questions, answers, authority, additional)``. The header is a ``Header``, the
        others are lists of what ``getQuestion`` and ``getRR`` give. Bytes after the last record are an error, as are
        two OPT records."""
        cdef Header h
        cdef list questions = [], additional
        cdef int i
        cdef long ttl
        self.at = 0
        h = self.getHeader()
        if 5 * h.qdcount + 11 * (h.ancount + h.nscount + h.arcount) > self.n - self.at:
            raise UnpackError("the header announces more than there are bytes for")
        for i in range(h.qdcount):
            questions.append(self.getQuestion())
        answers = self.section(h.ancount)
        authority = self.section(h.nscount)
        additional = self.section(h.arcount)
        if self.at != self.n:
            raise UnpackError(f"{self.n - self.at} bytes after the end of the message")
        for record in additional:
            if record[1] == "OPT":
                if self.edns is not None or record[0] != "":
                    raise UnpackError("two OPT records, or one whose name is not the root (RFC 6891, section 6.1.1)")
                ttl = record[3]
                klass = record[2]
                size = klass if isinstance(klass, int) else _class_number(klass)
                self.edns = (size, bool(ttl >> 15 & 1), ttl >> 16 & 255, ttl >> 24 & 255, record[4])
        return h, questions, answers, authority, additional
