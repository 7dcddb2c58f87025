# Data of one record alone: for zone files, caches, and everything that keeps records in wire form.


def fields_of(int rtype, bytes data not None, int klass=1, bint fold=False):
    """The data of a record as a list of fields, names in their own letters unless `fold`; None if it is just bytes."""
    cdef bytes program = program_of(rtype, klass)
    cdef Unpacker u = Unpacker.__new__(Unpacker)
    cdef int kind
    u.start(data, fold)
    if not program:
        return None
    out = [u.field(kind, u.n) for kind in program]
    if u.at != u.n:
        raise UnpackError(f"the data of a record of the type {rtype} ends {u.n - u.at} bytes before its length")
    return out


def data_of(int rtype, object values not None, int klass=1):
    """The data of a record in wire form, without compression, from a list of fields."""
    cdef bytes program = program_of(rtype, klass)
    cdef Packer p = Packer.__new__(Packer)
    cdef Py_ssize_t i
    cdef int kind
    if len(values) != len(program):
        raise PackError(f"expected {len(program)} fields for data of the type {rtype}, not {len(values)}")
    for i in range(len(program)):
        kind = program[i]
        p.field(78 if kind == 110 else kind, values[i])
    if p.size > 65535:
        raise PackError(f"the data of a record has at most 65535 bytes, not {p.size}")
    return p.getbuf()


def kinds_of(int rtype, int klass=1):
    """The kinds of a type's fields, "" for bytes."""
    return program_of(rtype, klass).decode()


def strings_of(bytes data not None):
    """The strings that bytes consist of. Raises UnpackError if the last one is cut off."""
    cdef Unpacker u = Unpacker.__new__(Unpacker)
    u.start(data, False)
    return u.strings(u.n)


def value_of(int rtype, bytes data not None, int klass=1):
    """The value of data in wire form, as ``Unpacker.getRR`` gives it. Raises UnpackError if it does not fit the
    type."""
    cdef Unpacker u = Unpacker.__new__(Unpacker)
    u.start(data, True)
    return u.rdata(rtype, klass, u.n)


def canonical(int rtype, bytes data not None, int klass=1):
    """Data in the canonical form of RFC 4034, section 6.2 (and RFC 6840, section 5.1): names are not compressed, and in
    small letters for the types of that list. Raises UnpackError if the data does not fit the type."""
    cdef bytes program = program_of(rtype, klass)
    if not program or b"n" not in program and b"N" not in program:
        return data
    fields = fields_of(rtype, data, klass)
    for i, kind in enumerate(program):
        if kind == 110 or kind == 78:
            fields[i] = fields[i].lower()
    return data_of(rtype, fields, klass)


# -- small ones of the first interface


def pack16bit(n):
    """The lowest 16 bits of a number as two bytes."""
    return (n & 0xFFFF).to_bytes(2, "big")


def pack32bit(n):
    """The lowest 32 bits of a number as four bytes."""
    return (n & 0xFFFFFFFF).to_bytes(4, "big")


def unpack16bit(bytes b not None):
    """The number that two bytes are. Raises UnpackError for another length."""
    if PyBytes_GET_SIZE(b) != 2:
        raise UnpackError(f"expected 2 bytes, not {len(b)}")
    return u16(<const uint8_t *>PyBytes_AS_STRING(b))


def unpack32bit(bytes b not None):
    """The number that four bytes are. Raises UnpackError for another length."""
    if PyBytes_GET_SIZE(b) != 4:
        raise UnpackError(f"expected 4 bytes, not {len(b)}")
    return u32(<const uint8_t *>PyBytes_AS_STRING(b))
