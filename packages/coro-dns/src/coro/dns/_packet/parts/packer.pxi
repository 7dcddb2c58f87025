# Writing.

cdef struct Suffix:
    uint32_t hash
    uint32_t place      # in the message, 0: none


cdef int encode_name(object name, uint8_t *out, uint8_t *starts, int *labels) except -1:
    """Text to a name in wire form; where its labels begin into `starts`. Returns its length."""
    cdef const uint8_t *p
    cdef Py_ssize_t n, i = 0, size
    cdef int at = 1, start = 0, c, count = 0
    if isinstance(name, str):
        if not PyUnicode_IS_ASCII(name):
            raise PackError(f"expected a name of ASCII characters, not {name!r}: encode it (IDNA) first")
        p = <const uint8_t *>PyUnicode_AsUTF8AndSize(name, &size)
        n = size
    elif isinstance(name, bytes):
        p = <const uint8_t *>PyBytes_AS_STRING(name)
        n = PyBytes_GET_SIZE(name)
    else:
        raise PackError(f"expected a name as text, not {type(name).__name__}")
    while True:
        c = p[i] if i < n else 46
        i += 1
        if c == 46:
            if at - start > 1:                  # empty labels are left out
                if at - start > 64:
                    raise PackError("label too long")
                out[start] = at - start - 1
                starts[count] = start
                count += 1
                start = at
                at += 1
            if i > n:
                break
            continue
        if c == 92:
            if i + 2 < n and 48 <= p[i] <= 57 and 48 <= p[i + 1] <= 57 and 48 <= p[i + 2] <= 57:
                c = (p[i] - 48) * 100 + (p[i + 1] - 48) * 10 + p[i + 2] - 48
                i += 3
                if c > 255:
                    raise PackError(f"a backslash is followed by three digits up to 255: {name!r}")
            elif i < n and not 48 <= p[i] <= 57:
                c = p[i]
                i += 1
            else:
                raise PackError(f"a backslash is followed by a character or by three digits: {name!r}")
        if at - start > 63:
            raise PackError("label too long")
        if at >= NAME_MAX - 1:
            raise PackError("a name has at most 255 bytes")
        out[at] = c
        at += 1
    out[start] = 0
    labels[0] = count
    return start + 1


cdef class Packer:
    """Packer()

    Writes a message from front to end. A name is text, with or without a dot at its end, and with the escapes of zone
    files; empty labels are left out. What cannot be written raises PackError, and leaves the message as it was.
    """

    cdef uint8_t *buffer
    cdef Py_ssize_t size, room
    cdef Suffix *table
    cdef int slots, used
    cdef Py_ssize_t record

    def __cinit__(self):
        self.room = 512
        self.buffer = <uint8_t *>PyMem_Malloc(self.room)
        self.slots = 64
        self.table = <Suffix *>PyMem_Malloc(self.slots * sizeof(Suffix))
        if self.buffer == NULL or self.table == NULL:
            raise MemoryError()
        memset(self.table, 0, self.slots * sizeof(Suffix))
        self.record = -1

    def __dealloc__(self):
        PyMem_Free(self.buffer)
        PyMem_Free(self.table)

    def getbuf(self):
        """The bytes so far."""
        return PyBytes_FromStringAndSize(<char *>self.buffer, self.size)

    def __len__(self):
        return self.size

    cdef int grow(self, Py_ssize_t count) except -1:
        cdef Py_ssize_t room = self.room
        cdef uint8_t *buffer
        if self.size + count > room:
            while self.size + count > room:
                room *= 2
            buffer = <uint8_t *>PyMem_Realloc(self.buffer, room)
            if buffer == NULL:
                raise MemoryError()
            self.buffer = buffer
            self.room = room
        return 0

    cdef int put(self, const void *data, Py_ssize_t count) except -1:
        self.grow(count)
        memcpy(self.buffer + self.size, data, count)
        self.size += count
        return 0

    cdef int put16(self, int n) except -1:
        self.grow(2)
        self.buffer[self.size] = n >> 8 & 255
        self.buffer[self.size + 1] = n & 255
        self.size += 2
        return 0

    cdef int put32(self, uint32_t n) except -1:
        self.put16(n >> 16)
        return self.put16(n & 0xFFFF)

    def addbyte(self, int n):
        """Append a byte, a number up to 255."""
        if not 0 <= n <= 255:
            raise PackError(f"expected a number up to 255, not {n}")
        cdef uint8_t c = n
        self.put(&c, 1)

    def addbytes(self, bytes data not None):
        """Append bytes."""
        self.put(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    def add16bit(self, long long n):
        """Append a number of 16 bits; higher ones are cut off."""
        self.put16(n & 0xFFFF)

    def add32bit(self, long long n):
        """Append a number of 32 bits; higher ones are cut off."""
        self.put32(n & 0xFFFFFFFF)

    def addaddr(self, object address):
        """Append an IPv4 address, given as text."""
        self.field(52, address)

    def addstring(self, object data):
        """Append a string of up to 255 bytes, its length before it."""
        self.string(data)

    def addname(self, object name):
        """Append a name. The longest suffix that is in the message already, without regard to the case of letters,
        becomes a pointer."""
        self.name(name, True)

    compressed_addname = addname

    cdef int string(self, object data) except -1:
        cdef uint8_t c
        if isinstance(data, str) and PyUnicode_IS_ASCII(data):
            data = data.encode()
        if not isinstance(data, bytes):
            raise PackError(f"expected a string as bytes, not {type(data).__name__}")
        if PyBytes_GET_SIZE(data) > 255:
            raise PackError(f"a string has at most 255 bytes, not {len(data)}")
        c = <uint8_t>PyBytes_GET_SIZE(data)
        self.put(&c, 1)
        return self.put(PyBytes_AS_STRING(data), c)

    cdef int name(self, object name, bint compress) except -1:
        cdef uint8_t raw[NAME_MAX + 2]
        cdef uint8_t starts[130]
        cdef uint32_t hashes[130]
        cdef int labels, i, j, length = encode_name(name, raw, starts, &labels), found = labels
        cdef uint32_t h = 2166136261
        cdef uint32_t place = 0
        cdef uint8_t zero = 0
        if not compress or labels == 0:
            return self.put(raw, length)
        for i in range(labels - 1, -1, -1):
            for j in range(starts[i], starts[i] + raw[starts[i]] + 1):
                h = (h ^ <uint32_t>low(raw[j])) * <uint32_t>16777619
            hashes[i] = h
        for i in range(labels):
            place = self.find(hashes[i], raw + starts[i])
            if place:
                found = i
                break
        self.grow(length + 2)
        for i in range(found):
            if self.size <= POINTER_MAX:
                self.remember(hashes[i], <uint32_t>self.size + 1)
            self.put(raw + starts[i], raw[starts[i]] + 1)
        if place:
            return self.put16(0xC000 | <int>(place - 1))
        return self.put(&zero, 1)

    cdef uint32_t find(self, uint32_t h, const uint8_t *name) noexcept:
        """Where that name is (plus one), 0: nowhere."""
        cdef int i = h & (self.slots - 1)
        while self.table[i].place:
            if self.table[i].hash == h and self.same(self.table[i].place - 1, name):
                return self.table[i].place
            i = i + 1 & (self.slots - 1)
        return 0

    cdef bint same(self, Py_ssize_t at, const uint8_t *name) noexcept:
        cdef const uint8_t *p = self.buffer
        cdef int i
        while True:
            while p[at] >= 192:
                at = (p[at] & 63) << 8 | p[at + 1]
            if p[at] != name[0]:
                return False
            if p[at] == 0:
                return True
            for i in range(1, name[0] + 1):
                if low(p[at + i]) != low(name[i]):
                    return False
            at += name[0] + 1
            name += name[0] + 1

    cdef int remember(self, uint32_t h, uint32_t place) except -1:
        cdef Suffix *old = self.table
        cdef Suffix *new
        cdef int i, j, slots = self.slots
        if 4 * self.used > 3 * slots:
            new = <Suffix *>PyMem_Malloc(4 * slots * sizeof(Suffix))
            if new == NULL:
                raise MemoryError()
            memset(new, 0, 4 * slots * sizeof(Suffix))
            self.slots = 4 * slots
            self.table = new
            for i in range(slots):
                if old[i].place:
                    j = old[i].hash & (self.slots - 1)
                    while new[j].place:
                        j = j + 1 & (self.slots - 1)
                    new[j] = old[i]
            PyMem_Free(old)
        i = h & (self.slots - 1)
        while self.table[i].place:
            i = i + 1 & (self.slots - 1)
        self.table[i].hash = h
        self.table[i].place = place
        self.used += 1
        return 0

    cdef unsigned long long number(self, object value, unsigned long long most) except? 0xFFFFFFFFFFFFFFFF:
        cdef unsigned long long n
        if not isinstance(value, int):
            raise PackError(f"expected a number, not {value!r}")
        if value < 0 or value > most:
            raise PackError(f"expected a number up to {most}, not {value}")
        n = value
        return n

    cdef int field(self, int kind, object value) except -1:
        """A field of the kind `fields.py` says."""
        cdef uint8_t raw[16]
        cdef unsigned long long n
        if kind == 110:                                     # n
            return self.name(value, True)
        if kind == 78 or kind == 77:                        # N M
            return self.name(value, False)
        if kind == 52 or kind == 54:                        # 4 6
            if (not isinstance(value, str) or not PyUnicode_IS_ASCII(value)
                    or inet_pton(AF_INET if kind == 52 else AF_INET6, PyUnicode_AsUTF8AndSize(value, NULL), raw) != 1):
                raise PackError(f"expected an IPv{kind - 48} address as text, not {value!r}")
            return self.put(raw, 4 if kind == 52 else 16)
        if kind == 104 or kind == 121:                      # h y
            return self.put16(<int>self.number(value, 0xFFFF))
        if kind == 108 or kind == 105:                      # l i
            return self.put32(<uint32_t>self.number(value, 0xFFFFFFFF))
        if kind == 98:                                      # b
            raw[0] = <uint8_t>self.number(value, 255)
            return self.put(raw, 1)
        if kind == 115 or kind == 99 or kind == 72 or kind == 117:     # s c H u
            return self.string(value)
        if kind == 83:                                      # S
            if not isinstance(value, (list, tuple)) or not value:
                raise PackError(f"expected a list of strings, one at least, not {value!r}")
            for one in value:
                self.string(one)
            return 0
        if kind == 116:                                     # t
            n = self.number(value, 0xFFFFFFFFFFFF)
            self.put16(<int>(n >> 32))
            return self.put32(n & 0xFFFFFFFF)
        if kind == 119:                                     # w
            return self.types(value)
        if kind == 112 or kind == 111:                      # p o
            return self.pairs(value, kind == 112)
        if kind == 103:                                     # g
            return self.prefixes(value)
        if not isinstance(value, bytes):                    # r e m q
            raise PackError(f"expected bytes, not {type(value).__name__}")
        if kind == 113:
            if len(value) > 65535:
                raise PackError(f"expected up to 65535 bytes, not {len(value)}")
            self.put16(<int>len(value))
        return self.put(PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))

    cdef int types(self, object value) except -1:
        cdef uint8_t block[34]
        cdef int window = -1, top = 0, n
        for one in sorted(set(value)):
            n = <int>self.number(one, 0xFFFF)
            if n >> 8 != window:
                if window >= 0:
                    self.put(block, top + 2)
                memset(block, 0, sizeof(block))
                window = n >> 8
                block[0] = window
            top = (n & 255) // 8 + 1
            block[1] = top
            block[1 + top] |= 128 >> (n & 7)
        return self.put(block, top + 2) if window >= 0 else 0

    cdef int pairs(self, object value, bint ascending) except -1:
        cdef int key, before = -1
        for pair in sorted(value) if ascending else value:
            key = <int>self.number(pair[0], 0xFFFF)
            if ascending and key == before:
                raise PackError(f"the parameter {key} is there twice")
            before = key
            self.put16(key)
            self.field(113, pair[1])
        return 0

    cdef int prefixes(self, object value) except -1:
        cdef uint8_t c
        for family, prefix, negated, data in value:
            if not isinstance(data, bytes) or len(data) > 127 or data.endswith(b"\0"):
                raise PackError(f"expected up to 127 bytes without zero bytes at their end, not {data!r}")
            self.put16(<int>self.number(family, 0xFFFF))
            c = <uint8_t>self.number(prefix, 255)
            self.put(&c, 1)
            c = (128 if negated else 0) | <uint8_t>len(data)
            self.put(&c, 1)
            self.put(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        return 0

    def addHeader(self, Header h not None):
        """Append a header."""
        self.put16(h.id)
        self.put16((h.qr & 1) << 15 | (h.opcode & 15) << 11 | (h.aa & 1) << 10 | (h.tc & 1) << 9 | (h.rd & 1) << 8
                   | (h.ra & 1) << 7 | (h.z & 1) << 6 | (h.ad & 1) << 5 | (h.cd & 1) << 4 | h.rcode & 15)
        self.put16(h.qdcount)
        self.put16(h.ancount)
        self.put16(h.nscount)
        self.put16(h.arcount)

    def addQuestion(self, object name, object qtype, object qclass):
        """Append a question; type and class are numbers, or names as in ``TYPE`` and ``CLASS``."""
        cdef int rtype = code(qtype, True), klass = code(qclass, False)
        self.name(name, True)
        self.put16(rtype)
        self.put16(klass)

    cdef int header(self, object name, int rtype, int klass, object ttl) except -1:
        cdef uint32_t seconds = <uint32_t>self.number(ttl, 0xFFFFFFFF)
        cdef Py_ssize_t size
        self.name(name, True)
        self.put16(rtype)
        self.put16(klass)
        self.put32(seconds)
        self.record = self.size
        return self.put16(0)

    cdef int end(self) except -1:
        cdef Py_ssize_t size = self.size - self.record - 2
        if self.record < 0:
            raise PackError("endRR() without addRRheader()")
        if size > 65535:
            raise PackError(f"the data of a record has at most 65535 bytes, not {size}")
        self.buffer[self.record] = size >> 8
        self.buffer[self.record + 1] = size & 255
        self.record = -1
        return 0

    cdef int undo(self, Py_ssize_t size) except -1:
        # what was remembered beyond goes, too: the table is made again, without it
        cdef Suffix *old
        cdef int i, slots = self.slots
        self.size = size
        self.record = -1
        old = <Suffix *>PyMem_Malloc(slots * sizeof(Suffix))
        if old == NULL:
            raise MemoryError()
        memcpy(old, self.table, slots * sizeof(Suffix))
        memset(self.table, 0, slots * sizeof(Suffix))
        self.used = 0
        for i in range(slots):
            if old[i].place and old[i].place <= size:
                self.remember(old[i].hash, old[i].place)
        PyMem_Free(old)
        return 0

    cdef int whole(self, object name, int rtype, int klass, object ttl, bytes program, object data) except -1:
        """A record; if its data is wrong, nothing has happened."""
        cdef Py_ssize_t before = self.size, count = PyBytes_GET_SIZE(program), i
        try:
            self.header(name, rtype, klass, ttl)
            if count == 0 or isinstance(data, bytes):
                if not isinstance(data, bytes):
                    raise PackError(f"expected bytes for data of the type {rtype}, not {type(data).__name__}")
                self.put(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
            elif count == 1:
                self.field(<uint8_t>PyBytes_AS_STRING(program)[0], data)
            else:
                if not isinstance(data, (tuple, list)) or len(data) != count:
                    raise PackError(f"expected {count} fields for data of the type {rtype}, not {data!r}")
                for i in range(count):
                    self.field(<uint8_t>PyBytes_AS_STRING(program)[i], data[i])
            self.end()
        except BaseException as e:
            self.undo(before)
            if isinstance(e, (TypeError, IndexError)) or isinstance(e, ValueError) and not isinstance(e, PackError):
                raise PackError(f"data that does not fit the type {rtype}: {e}") from e
            raise
        return 0

    def addRRheader(self, object name, object type, object klass, object ttl):
        """Begin a record: its data is what is appended until ``endRR``. ``ttl`` is in seconds."""
        self.header(name, code(type, True), code(klass, False), ttl)

    def endRR(self):
        """End a record: write the length of its data."""
        self.end()

    def addRR(self, object name, object type, object klass, object ttl, object data):
        """Append a record. Type and class are numbers or names, and ``data`` is what ``Unpacker.getRR`` gives for the
        type; bytes are taken as they are, for any type (RFC 3597)."""
        cdef int rtype = code(type, True), number = code(klass, False)
        self.whole(name, rtype, number, ttl, program_of(rtype, number), data)

    def addA(self, object name, object ttl, object address):
        """Append an address record of the class IN."""
        self.whole(name, 1, 1, ttl, b"4", address)

    def addAAAA(self, object name, object ttl, object address):
        """Append an IPv6 address record of the class IN."""
        self.whole(name, 28, 1, ttl, b"6", address)

    def addCNAME(self, object name, object klass, object ttl, object cname):
        """Append an alias."""
        self.whole(name, 5, code(klass, False), ttl, b"n", cname)

    def addNS(self, object name, object klass, object ttl, object nsdname):
        """Append a record that names a server of a zone."""
        self.whole(name, 2, code(klass, False), ttl, b"n", nsdname)

    def addPTR(self, object name, object klass, object ttl, object ptrdname):
        """Append a record that names the host of an address."""
        self.whole(name, 12, code(klass, False), ttl, b"n", ptrdname)

    def addHINFO(self, object name, object klass, object ttl, object cpu, object os):
        """Append a record with what a host is: two strings."""
        self.whole(name, 13, code(klass, False), ttl, b"ss", (cpu, os))

    def addMX(self, object name, object klass, object ttl, object preference, object exchange):
        """Append a record that names a mail server."""
        self.whole(name, 15, code(klass, False), ttl, b"hn", (preference, exchange))

    def addSOA(self, object name, object klass, object ttl, object mname, object rname, object serial, object refresh,
               object retry, object expire, object minimum):
        """Append the record of a zone's authority; all times are in seconds."""
        self.whole(name, 6, code(klass, False), ttl, b"nnlllll",
                   (mname, rname, serial, refresh, retry, expire, minimum))

    def addTXT(self, object name, object klass, object ttl, object list_of_strings):
        """Append a record with a list of strings."""
        self.whole(name, 16, code(klass, False), ttl, b"S", list_of_strings)

    def addOPT(self, int size=1232, bint dnssec_ok=False, int version=0, int extended_rcode=0, object options=()):
        """Append the record of EDNS (RFC 6891): ``size`` is how many bytes the sender can take in a datagram,
        ``extended_rcode`` the upper eight bits of the rcode, ``options`` are pairs of a number and bytes."""
        if not 0 <= size <= 65535 or not 0 <= version <= 255 or not 0 <= extended_rcode <= 255:
            raise PackError("expected a size of 16 bits, a version and an extended rcode of 8 bits")
        self.whole("", OPT, size, <uint32_t>extended_rcode << 24 | version << 16 | (0x8000 if dnssec_ok else 0),
                   b"o", options)


cdef int code(object value, bint is_type) except -1:
    cdef int n
    if isinstance(value, str):
        try:
            return _type_number(value) if is_type else _class_number(value)
        except ValueError as e:
            raise PackError(str(e)) from None
    if not isinstance(value, int) or not 0 <= value <= 65535:
        raise PackError(f"expected a number of 16 bits or a name, not {value!r}")
    n = value
    return n
