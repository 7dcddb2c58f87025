# cython: language_level=3, nonecheck=True
"""BER and DER (ITU-T X.690): functions that write one element each, and a decoder that gives Python values.

    from coro.asn1 import ber

    data = ber.SEQUENCE(ber.INTEGER(34), ber.OCTET_STRING(b"fishing line"))
    value, end = ber.decode(data)               # [34, b"fishing line"], 19

The decoder reads each byte once and looks at nothing that it has not checked to be there.  No length is believed before
its bytes have come, nothing is allocated by an announced length, and nesting ends at 100 levels.  It does no I/O and
knows no clock.  Any bytes give a value or a `DecodeError`.

Cost: about 20 ns for each small value, most of it for the Python object.  Recursion takes some 200 bytes of C stack for
each level, so a hundred levels fit on the stack of any coro thread.

`nodes` has what keeps an encoding as it was; `streams` cuts elements out of a stream.

Longer than most files: each type is written and read here, and the two have to agree.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_Append
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from coro.asn1._real import real_value
from coro.asn1._times import generalized_time, utc_time
from coro.asn1.exceptions import (
    DecodeError,
    EncodeError,
    IndefiniteLength,
    InsufficientData,
    LengthTooLong,
    MultiByteTag,
)

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1
    object PyUnicode_DecodeUTF8(const char *data, Py_ssize_t size, const char *errors)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    int isfinite(double value)

__all__ = [
    "APPLICATION",
    "BITSTRING",
    "BOOLEAN",
    "CHOICE",
    "CONTEXT",
    "ENUMERATED",
    "FLAGS_APPLICATION",
    "FLAGS_CONTEXT",
    "FLAGS_PRIVATE",
    "FLAGS_STRUCTURED",
    "FLAGS_UNIVERSAL",
    "INTEGER",
    "MAX_DEPTH",
    "MAX_ELEMENT",
    "NULL",
    "OBJID",
    "OCTET_STRING",
    "SEQUENCE",
    "SET",
    "TAGS_BITSTRING",
    "TAGS_BOOLEAN",
    "TAGS_EMBEDDED_PDV",
    "TAGS_ENUMERATED",
    "TAGS_EXTERNAL",
    "TAGS_INTEGER",
    "TAGS_NULL",
    "TAGS_OBJDESCRIPTOR",
    "TAGS_OBJID",
    "TAGS_OCTET_STRING",
    "TAGS_REAL",
    "TAGS_SEQUENCE",
    "TAGS_SET",
    "TAGS_UTF8STRING",
    "TAG_TABLE",
    "TLV",
    "UTF8_STRING",
    "DecodeError",
    "EncodeError",
    "IndefiniteLength",
    "InsufficientData",
    "LengthTooLong",
    "MultiByteTag",
    "decode",
    "encode",
    "encode_double",
    "encode_long_integer",
]

FLAGS_UNIVERSAL = 0x00
FLAGS_STRUCTURED = 0x20
FLAGS_APPLICATION = 0x40
FLAGS_CONTEXT = 0x80
FLAGS_PRIVATE = 0xC0

TAGS_BOOLEAN = 1
TAGS_INTEGER = 2
TAGS_BITSTRING = 3
TAGS_OCTET_STRING = 4
TAGS_NULL = 5
TAGS_OBJID = 6
TAGS_OBJDESCRIPTOR = 7
TAGS_EXTERNAL = 8
TAGS_REAL = 9
TAGS_ENUMERATED = 10
TAGS_EMBEDDED_PDV = 11
TAGS_UTF8STRING = 12
TAGS_SEQUENCE = 16
TAGS_SET = 17

#: The numbers of X.680, 8.6, table 1, and what the tuples of `decode` call them.
TAG_TABLE = {
    1: "BOOLEAN",
    2: "INTEGER",
    3: "BITSTRING",
    4: "OCTET_STRING",
    5: "NULL",
    6: "OBJID",
    7: "OBJDESCRIPTOR",
    8: "EXTERNAL",
    9: "REAL",
    10: "ENUMERATED",
    11: "EMBEDDED_PDV",
    12: "UTF8STRING",
    16: "SEQUENCE",
    17: "SET",
    18: "NUMERIC_STRING",
    19: "PRINTABLE_STRING",
    20: "T61_STRING",
    21: "VIDEOTEX_STRING",
    22: "IA5_STRING",
    23: "UTC_TIME",
    24: "GENERALIZED_TIME",
    25: "GRAPHIC_STRING",
    26: "VISIBLE_STRING",
    27: "GENERAL_STRING",
    28: "UNIVERSAL_STRING",
    30: "BMP_STRING",
}

#: Levels of elements within elements.  A certificate has about ten, an LDAP filter of a program some twenty.
MAX_DEPTH = 100
#: Bytes of an element, header included.
MAX_ELEMENT = 64 * 1024 * 1024

cdef enum:
    # A tag number has at most four bytes of seven bits behind the first one.
    LARGEST_TAG = 0xFFFFFFF
    # UUIDs below 2.25 are the longest arcs in use: 128 bits, which are 19 bytes.
    ARC_BYTES = 20

cdef enum:
    BOOLEAN_ = 1
    INTEGER_ = 2
    BITS = 3
    OCTETS = 4
    NULL_ = 5
    OID = 6
    DESCRIPTOR = 7
    REAL = 9
    ENUM = 10
    UTF8 = 12
    SEQUENCE_ = 16
    SET_ = 17
    UTC = 23
    GENERALIZED = 24

# Character sets of the string types.  T.61, Videotex, Graphic and General strings switch sets by escape sequences that
# nobody sends any more; Latin-1 is what other decoders read them as, and loses nothing.
cdef dict CHARACTERS = {
    7: "latin-1",
    18: "ascii",
    19: "ascii",
    20: "latin-1",
    21: "latin-1",
    22: "ascii",
    25: "latin-1",
    26: "ascii",
    27: "latin-1",
    28: "utf-32-be",
    30: "utf-16-be",
}
# X.680, 41.2 and 41.4, tables 9 and 10.
cdef bytes NUMERIC = b"0123456789 "
cdef bytes PRINTABLE = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 '()+,-./:=?"

cdef dict NAME_OF = TAG_TABLE
cdef dict TAG_OF = {name: tag for tag, name in TAG_TABLE.items()}
cdef tuple CLASS_NAMES = (None, "application", "context", "private")


# ---- writing


cdef bytes taken(ber_out *out):
    """What was written, as bytes; the buffer is freed in any case."""
    try:
        return PyBytes_FromStringAndSize(<char *>out.base + out.at, <Py_ssize_t>ber_used(out))
    finally:
        free(out.base)
        out.base = NULL


cdef int no_room() except -1:
    raise EncodeError("expected an encoding below 2 GiB, or there is no memory for it; send it in parts")


cdef uint8_t _flags(object flags) except? 0xFF:
    cdef long value = flags
    if value & ~(BER_STRUCTURED | BER_CLASS):
        raise EncodeError(f"expected FLAGS_STRUCTURED and one of the classes, got {flags:#x}")
    return <uint8_t>value


cdef uint32_t _tag(object tag) except? 0xFFFFFFFF:
    if not isinstance(tag, int):
        raise TypeError(f"expected the number of a tag, not {type(tag).__name__}: {tag!r:.60}")
    if not 0 <= tag <= LARGEST_TAG:
        raise EncodeError(f"expected a tag number from 0 to {LARGEST_TAG}, got {tag}")
    return tag


cdef bytes element(uint32_t tag, uint8_t flags, const void *data, Py_ssize_t size):
    """A whole element with these bytes in it."""
    cdef uint8_t[12] header
    cdef ber_out out
    cdef bytes result
    cdef Py_ssize_t before
    if size >= <Py_ssize_t>1 << 31:
        no_room()
    out.base = header
    out.at = out.size = 12
    ber_put_header(&out, tag, flags, size)
    before = 12 - <Py_ssize_t>out.at
    result = PyBytes_FromStringAndSize(NULL, before + size)
    memcpy(PyBytes_AS_STRING(result), header + out.at, before)
    if size:
        memcpy(PyBytes_AS_STRING(result) + before, data, size)
    return result


cdef bytes joined(uint32_t tag, uint8_t flags, tuple parts):
    """A whole element with the bytes of these parts in it."""
    cdef uint8_t[12] header
    cdef ber_out out
    cdef bytes result
    cdef Py_ssize_t before, size = 0
    cdef char *at
    for part in parts:
        if type(part) is not bytes:
            return joined(tag, flags, tuple([_bytes_of(part) for part in parts]))
        size += PyBytes_GET_SIZE(part)
    if size >= <Py_ssize_t>1 << 31:
        no_room()
    out.base = header
    out.at = out.size = 12
    ber_put_header(&out, tag, flags, size)
    before = 12 - <Py_ssize_t>out.at
    result = PyBytes_FromStringAndSize(NULL, before + size)
    at = PyBytes_AS_STRING(result)
    memcpy(at, header + out.at, before)
    at += before
    for part in parts:
        size = PyBytes_GET_SIZE(part)
        memcpy(at, PyBytes_AS_STRING(part), size)
        at += size
    return result


cdef bytes _bytes_of(object part):
    if type(part) is bytes:
        return part
    if isinstance(part, (bytes, bytearray, memoryview)):
        return bytes(part)
    raise TypeError(f"expected bytes, such as the other functions here return, not {type(part).__name__}: {part!r:.60}")


cdef int put_int(ber_out *out, uint32_t tag, uint8_t flags, object number) except -1:
    """An integer of any size."""
    cdef int overflow
    cdef long long small = PyLong_AsLongLongAndOverflow(number, &overflow)
    cdef bytes content
    if not overflow:
        if ber_put_integer(out, tag, flags, small) < 0:
            no_room()
        return 0
    content = encode_long_integer(number)
    if ber_put_element(out, tag, flags, PyBytes_AS_STRING(content), PyBytes_GET_SIZE(content)) < 0:
        no_room()
    return 0


cdef bytes integer(uint32_t tag, object number):
    cdef uint8_t[24] room
    cdef ber_out out
    cdef int overflow
    cdef long long small
    cdef bytes content
    if not isinstance(number, int):
        raise TypeError(f"expected an int, not {type(number).__name__}: {number!r:.60}")
    small = PyLong_AsLongLongAndOverflow(number, &overflow)
    if overflow:
        content = encode_long_integer(number)
        return element(tag, 0, PyBytes_AS_STRING(content), PyBytes_GET_SIZE(content))
    out.base = room
    out.at = out.size = 24
    ber_put_integer(&out, tag, 0, small)
    return PyBytes_FromStringAndSize(<char *>room + out.at, 24 - <Py_ssize_t>out.at)


def TLV(tag, flags, /, *data):
    """TLV(tag, flags, /, *data)

    An element: tag, length and the concatenated data.

    tag: its number, 0 to 2**28 - 1.  flags: one of the classes FLAGS_UNIVERSAL, FLAGS_APPLICATION, FLAGS_CONTEXT and
    FLAGS_PRIVATE, and FLAGS_STRUCTURED where the data are elements.  data: bytes.

    The length is definite and as short as possible (X.690, 10.1).  Raises EncodeError where tag or flags are out of
    range or the element has 2 GiB and more, and TypeError for data that are no bytes.
    """
    return joined(_tag(tag), _flags(flags), data)


def INTEGER(n, /):
    """INTEGER(n, /)

    An INTEGER (X.690, 8.3) of any size.  Raises TypeError if n is no int.
    """
    return integer(INTEGER_, n)


def ENUMERATED(n, /):
    """ENUMERATED(n, /)

    An ENUMERATED value (X.690, 8.4).  Raises TypeError if n is no int.
    """
    return integer(ENUM, n)


def BOOLEAN(x, /):
    """BOOLEAN(x, /)

    A BOOLEAN, true or false as x is; true is ff, as DER wants it (X.690, 11.1).
    """
    return b"\x01\x01\xff" if x else b"\x01\x01\x00"


def NULL():
    """NULL()

    The NULL value (X.690, 8.8).
    """
    return b"\x05\x00"


def OCTET_STRING(b, /):
    """OCTET_STRING(b, /)

    An OCTET STRING of these bytes.  Raises TypeError if b is no bytes.
    """
    return joined(OCTETS, 0, (b,))


def UTF8_STRING(s, /):
    """UTF8_STRING(s, /)

    A UTF8String of a str; bytes are taken as they are.  Raises EncodeError for lone surrogates, which UTF-8 has not.
    """
    if isinstance(s, str):
        return joined(UTF8, 0, (_utf8(s),))
    return joined(UTF8, 0, (s,))


cdef bytes _utf8(str text):
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as exc:
        raise EncodeError(f"expected text that UTF-8 can express: {exc}") from None


def BITSTRING(unused_bits, b, /):
    """BITSTRING(unused_bits, b, /)

    A BIT STRING of the bits in b without the last unused_bits (0 to 7) ones.

    Raises EncodeError if that is another number, or more bits than there are.
    """
    data = _bytes_of(b)
    _check_unused(unused_bits, data)
    return joined(BITS, 0, (bytes((unused_bits,)), data))


cdef int _check_unused(object unused, bytes data) except -1:
    if not 0 <= unused <= (7 if data else 0):
        raise EncodeError(f"expected 0 to {7 if data else 0} unused bits in {len(data)} bytes, got {unused}")
    return 0


cdef int _put_bits(ber_out *out, object unused, bytes data) except -1:
    cdef uint8_t first
    cdef size_t before = ber_used(out)
    _check_unused(unused, data)
    first = unused
    if ber_put(out, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)) < 0 or ber_put(out, &first, 1) < 0:
        no_room()
    if ber_put_header(out, BITS, 0, ber_used(out) - before) < 0:
        no_room()
    return 0


def SEQUENCE(*elems):
    """SEQUENCE(*elems)

    A SEQUENCE of elements that are encoded already.  Raises TypeError for what is no bytes.
    """
    return joined(SEQUENCE_, BER_STRUCTURED, elems)


def SET(*elems):
    """SET(*elems)

    A SET of elements that are encoded already, in the order given.  DER wants them sorted: give `*sorted(elems)` for a
    SET OF (X.690, 11.6).  Raises TypeError for what is no bytes.
    """
    return joined(SET_, BER_STRUCTURED, elems)


def OBJID(arcs, /):
    """OBJID(arcs, /)

    An OBJECT IDENTIFIER (X.690, 8.19) of a list of ints.

    Raises EncodeError unless there are two arcs at least, the first is at most 2, the second below 40 where the first
    is 0 or 1, and none is longer than 20 bytes.
    """
    cdef ber_out out
    out.base = NULL
    out.at = out.size = 0
    try:
        _put_oid(&out, arcs)
        return taken(&out)
    finally:
        free(out.base)


cdef int _bad_arcs(list numbers) except -1:
    """Raise what is wrong with these arcs; 0 if nothing is."""
    if len(numbers) < 2:
        raise EncodeError(f"expected two arcs at least, got {numbers!r:.60}")
    for number in numbers:
        if not isinstance(number, int):
            raise TypeError(f"expected arcs that are ints, not {type(number).__name__}: {number!r:.60}")
        if number < 0 or number >> (7 * ARC_BYTES - 1):
            raise EncodeError(f"expected arcs from 0 to 2**{7 * ARC_BYTES - 1} - 1, got {number:#x}")
    first, second = numbers[0], numbers[1]
    if first > 2 or (first < 2 and second >= 40):
        raise EncodeError(
            f"expected a first arc of 0, 1 or 2, and below 0 and 1 a second one under 40, got {first}.{second}"
        )
    return 0


cdef bint _usual_arcs(list numbers) except -1:
    """Whether all arcs are plain ints of 63 bits and in their ranges; else `_bad_arcs` looks closer."""
    cdef int overflow
    cdef long long arc, first = 0
    cdef Py_ssize_t i
    for i in range(len(numbers)):
        if type(numbers[i]) is not int:
            return False
        arc = PyLong_AsLongLongAndOverflow(numbers[i], &overflow)
        if overflow or arc < 0:
            return False
        if i == 0:
            first = arc
        elif i == 1 and (first > 2 or (first < 2 and arc >= 40)):
            return False
    return len(numbers) >= 2


cdef int _put_arc(ber_out *out, object number) except -1:
    """An arc in base 128 (X.690, 8.19.2), its last byte first."""
    cdef int overflow
    cdef long long small = PyLong_AsLongLongAndOverflow(number, &overflow)
    cdef uint8_t more = 0
    if ber_need(out, ARC_BYTES + 1) < 0:
        no_room()
    while overflow:
        out.at -= 1
        out.base[out.at] = <uint8_t>(number & 0x7F) | more
        more = 0x80
        number >>= 7
        small = PyLong_AsLongLongAndOverflow(number, &overflow)
    while True:
        out.at -= 1
        out.base[out.at] = <uint8_t>(small & 0x7F) | more
        more = 0x80
        small >>= 7
        if small == 0:
            return 0


cdef int _put_oid(ber_out *out, object arcs) except -1:
    cdef list numbers = list(arcs)
    cdef size_t before = ber_used(out)
    cdef Py_ssize_t i = len(numbers)
    if not _usual_arcs(numbers):
        _bad_arcs(numbers)
    while i > 2:
        i -= 1
        _put_arc(out, numbers[i])
    _put_arc(out, 40 * numbers[0] + numbers[1])
    if ber_put_header(out, OID, 0, ber_used(out) - before) < 0:
        no_room()
    return 0


def APPLICATION(n, structured, data, /):
    """APPLICATION(n, structured, data, /)

    An element with the tag number n of the application class.

    structured: whether data are elements.  Raises as `TLV` does.
    """
    return joined(_tag(n), 0x40 | (BER_STRUCTURED if structured else 0), (data,))


def CONTEXT(n, structured, data, /):
    """CONTEXT(n, structured, data, /)

    An element with the tag number n of the context class.

    structured: whether data are elements.  Raises as `TLV` does.
    """
    return joined(_tag(n), 0x80 | (BER_STRUCTURED if structured else 0), (data,))


def CHOICE(n, structured, /):
    """CHOICE(n, structured, /)

    The number n with the bit FLAGS_STRUCTURED, if asked for, and FLAGS_CONTEXT: the first byte of such an element.
    """
    return n | (BER_STRUCTURED if structured else 0) | 0x80


def encode_double(f, /):
    """encode_double(f, /)

    A REAL (X.690, 8.5) of a float, in base 2 as DER has it (11.3.1); infinities, minus zero and NaN as 8.5.9 has them.
    """
    cdef double value = f
    cdef uint8_t[12] content
    if isfinite(value) and value != 0:
        return element(REAL, 0, content, ber_real_content(value, content))
    if value == 0:
        return b"\x09\x01\x43" if str(value)[0] == "-" else b"\x09\x00"
    if value != value:
        return b"\x09\x01\x42"
    return b"\x09\x01\x40" if value > 0 else b"\x09\x01\x41"


def encode_long_integer(n, /):
    """encode_long_integer(n, /)

    The content of an INTEGER without tag and length: the shortest two's complement, most significant byte first.
    """
    if not isinstance(n, int):
        raise TypeError(f"expected an int, not {type(n).__name__}: {n!r:.60}")
    bits = (n if n >= 0 else ~n).bit_length()
    return int(n).to_bytes(bits // 8 + 1, "big", signed=True)


def encode(value, /):
    """encode(value, /)

    The DER of a value of the kind that `decode` gives, written in one go.

    value: None, bool, int, float (as REAL), bytes, str (as UTF8String), or a list, which is a SEQUENCE.  Tuples are
    what `decode` makes of other types: ("oid", arcs), ("bitstring", (unused, bytes)), (name, tag, bytes) with a name of
    TAG_TABLE or "unknown", and ("application" | "context" | "private", tag, a list of values or bytes).  Besides,
    ("SET", 17, list) and ("ENUMERATED", 10, int), which `decode` does not tell from a list and an int.  The elements
    of a SET are written in the order of their encodings.

    Raises EncodeError for values nested deeper than 100, a cycle among them, and where a number is out of the range of
    its type; TypeError for objects of other types.
    """
    cdef ber_out out
    out.base = NULL
    out.at = out.size = 0
    try:
        _put(&out, value, 0)
        return taken(&out)
    finally:
        free(out.base)


cdef int _put_list(ber_out *out, uint32_t tag, uint8_t flags, list items, int depth) except -1:
    cdef size_t before = ber_used(out)
    cdef Py_ssize_t i = len(items)
    while i > 0:
        i -= 1
        # Another thread cannot run in here, but a subclass of int may have its say.
        if i < len(items):
            _put(out, items[i], depth)
    if ber_put_header(out, tag, flags, ber_used(out) - before) < 0:
        no_room()
    return 0


cdef int _put_bytes(ber_out *out, uint32_t tag, uint8_t flags, bytes data) except -1:
    if ber_put_element(out, tag, flags, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)) < 0:
        no_room()
    return 0


cdef int _put(ber_out *out, object value, int depth) except -1:
    cdef type kind = type(value)
    cdef const char *text
    cdef Py_ssize_t size
    if kind is bytes:
        return _put_bytes(out, OCTETS, 0, value)
    if kind is int:
        return put_int(out, INTEGER_, 0, value)
    if kind is str:
        try:
            text = PyUnicode_AsUTF8AndSize(value, &size)
        except UnicodeEncodeError as exc:
            raise EncodeError(f"expected text that UTF-8 can express: {exc}") from None
        if ber_put_element(out, UTF8, 0, text, size) < 0:
            no_room()
        return 0
    if value is None:
        return _put_bytes(out, NULL_, 0, b"")
    if kind is bool:
        return _put_bytes(out, BOOLEAN_, 0, b"\xff" if value else b"\x00")
    if kind is list:
        if depth >= MAX_DEPTH:
            raise EncodeError(f"expected values nested at most {MAX_DEPTH} deep, got deeper ones or a cycle")
        return _put_list(out, SEQUENCE_, BER_STRUCTURED, value, depth + 1)
    if kind is tuple:
        if depth >= MAX_DEPTH:
            raise EncodeError(f"expected values nested at most {MAX_DEPTH} deep, got deeper ones or a cycle")
        return _put_tuple(out, value, depth)
    if kind is float:
        data = encode_double(value)
    elif isinstance(value, int):
        return put_int(out, INTEGER_, 0, value)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        return _put_bytes(out, OCTETS, 0, bytes(value))
    elif isinstance(value, str):
        data = UTF8_STRING(value)
    elif isinstance(value, float):
        data = encode_double(value)
    elif isinstance(value, list):
        return _put(out, list(value), depth)
    else:
        raise TypeError(f"expected a value as decode() gives it, not {type(value).__name__}: {value!r:.60}")
    if ber_put(out, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)) < 0:
        no_room()
    return 0


cdef int _put_tuple(ber_out *out, tuple value, int depth) except -1:
    cdef uint8_t flags = 0
    name = value[0] if value else None
    if name == "oid" and len(value) == 2:
        return _put_oid(out, value[1])
    if name == "bitstring" and len(value) == 2:
        unused, data = value[1]
        return _put_bits(out, unused, _bytes_of(data))
    if len(value) == 3:
        _name, tag, content = value
        if name is not None and name in CLASS_NAMES:
            flags = <uint8_t>(CLASS_NAMES.index(name) << 6)
            if isinstance(content, list):
                return _put_list(out, _tag(tag), flags | BER_STRUCTURED, content, depth + 1)
            return _put_bytes(out, _tag(tag), flags, _bytes_of(content))
        if name == "SET" and tag == SET_ and isinstance(content, list):
            parts = sorted([encode(item) for item in content])
            data = SET(*parts)
            if ber_put(out, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)) < 0:
                no_room()
            return 0
        if name == "ENUMERATED" and tag == ENUM and isinstance(content, int):
            return put_int(out, ENUM, 0, content)
        if name == "unknown" or TAG_OF.get(name) == tag:
            return _put_bytes(out, _tag(tag), 0, _bytes_of(content))
    raise TypeError(
        "expected a tuple as decode() gives it: ('oid', arcs), ('bitstring', (unused, bytes)), "
        f"('context', tag, value) or (name, tag, bytes); got {value!r:.80}"
    )


# ---- reading


cdef struct Options:
    int strict
    int indefinite
    int text
    int times
    int max_depth
    Py_ssize_t max_element


cdef int broken_header(int code, Py_ssize_t at) except -1:
    """Raise what the code of `ber_read` says about the header at byte `at`."""
    if code == BER_SHORT:
        raise InsufficientData(f"expected the tag and length of an element at byte {at}, but the data end within them")
    if code == BER_LENGTH_LONG:
        raise LengthTooLong(f"expected a length of up to four bytes and below 2 GiB in the element at byte {at}")
    if code == BER_INDEFINITE:
        raise IndefiniteLength(
            f"expected a definite length, got an indefinite one in the element at byte {at}; "
            "decode(..., indefinite=True) accepts it for constructed elements"
        )
    if code == BER_LENGTH_PADDED:
        raise DecodeError(f"expected DER, whose lengths are as short as possible, got a longer one at byte {at}")
    if code == BER_LENGTH_RESERVED:
        raise DecodeError(f"expected a length at byte {at}, got the reserved value ff")
    raise MultiByteTag(
        f"expected a tag number of up to five bytes, without leading zeros and not below 31, at byte {at}"
    )


cdef inline int header(
    const uint8_t *base, Py_ssize_t at, Py_ssize_t end, const Options *o, ber_tlv *tlv
) except -1:
    """Read a header and check that its content is there.  1 for an indefinite length, else 0."""
    cdef int code = ber_read(base + at, <size_t>(end - at), o.strict, tlv)
    if code == BER_OK:
        if <Py_ssize_t>tlv.length > end - at - tlv.header:
            raise InsufficientData(
                f"the element at byte {at} should have {tlv.length} bytes of content, "
                f"but {end - at - tlv.header} are there"
            )
        return 0
    if code == BER_INDEFINITE and o.indefinite and not o.strict and tlv.flags & BER_STRUCTURED:
        return 1
    return broken_header(code, at)


cdef inline int is_end(const uint8_t *base, Py_ssize_t at, Py_ssize_t end) noexcept:
    """Whether the two zeros that end an indefinite length are here (X.690, 8.1.5)."""
    return end - at >= 2 and base[at] == 0 and base[at + 1] == 0


cdef list items(
    const uint8_t *base, Py_ssize_t at, Py_ssize_t end, const Options *o, int depth, int open_, Py_ssize_t *after
):
    """The values of the elements from `at` to `end`, or to the end-of-contents if the length is open."""
    cdef list found = []
    if depth > o.max_depth:
        raise DecodeError(f"expected elements nested at most {o.max_depth} deep, got deeper ones at byte {at}")
    while True:
        if open_:
            if is_end(base, at, end):
                after[0] = at + 2
                return found
        elif at >= end:
            after[0] = at
            return found
        PyList_Append(found, value_at(base, at, end, o, depth, &at))


cdef Py_ssize_t skip(const uint8_t *base, Py_ssize_t at, Py_ssize_t end, const Options *o, int depth) except -1:
    """Where the elements of an open length end: the place of its end-of-contents."""
    cdef ber_tlv tlv
    cdef int open_
    if depth > o.max_depth:
        raise DecodeError(f"expected elements nested at most {o.max_depth} deep, got deeper ones at byte {at}")
    while not is_end(base, at, end):
        open_ = header(base, at, end, o, &tlv)
        at += tlv.header
        at = skip(base, at, end, o, depth + 1) + 2 if open_ else at + tlv.length
    return at


cdef bytes segments(
    const uint8_t *base, Py_ssize_t at, Py_ssize_t end, const Options *o, int depth, int open_, uint32_t tag,
    Py_ssize_t *after
):
    """The content of a string that was sent in segments (X.690, 8.6.4 and 8.7.3).

    The segments of a BIT STRING are BIT STRINGs, and the result begins with the number of unused bits; those of all
    others are OCTET STRINGs.
    """
    cdef list parts = []
    cdef ber_tlv tlv
    cdef int inner, unused = 0
    cdef bytes part
    if o.strict:
        raise DecodeError(f"expected DER, where strings are in one piece, got one in segments at byte {at}")
    if depth > o.max_depth:
        raise DecodeError(f"expected elements nested at most {o.max_depth} deep, got deeper ones at byte {at}")
    while True:
        if open_:
            if is_end(base, at, end):
                after[0] = at + 2
                break
        elif at >= end:
            after[0] = at
            break
        inner = header(base, at, end, o, &tlv)
        if tlv.tag != tag or tlv.flags & BER_CLASS:
            raise DecodeError(f"expected a segment with the tag {tag} at byte {at}, got the tag {tlv.tag}")
        if unused:
            raise DecodeError(f"expected unused bits in the last segment only, got another segment at byte {at}")
        at += tlv.header
        if tlv.flags & BER_STRUCTURED:
            part = segments(base, at, end if inner else at + tlv.length, o, depth + 1, inner, tag, &at)
        else:
            part = PyBytes_FromStringAndSize(<char *>base + at, tlv.length)
            if tag == BITS:
                check_bits(<const uint8_t *>PyBytes_AS_STRING(part), tlv.length, at, 0)
            at += tlv.length
        if tag == BITS and part:
            unused = part[0]
            part = part[1:]
        parts.append(part)
    if tag == BITS:
        parts.insert(0, bytes((unused,)))
    return b"".join(parts)


cdef int check_bits(const uint8_t *p, Py_ssize_t size, Py_ssize_t at, int strict) except -1:
    """The first byte of a BIT STRING (X.690, 8.6.2), and in DER that unused bits are zero (11.2.1)."""
    if size == 0:
        if strict:
            raise DecodeError(f"expected the number of unused bits at byte {at}, got an empty BIT STRING")
        return 0
    if p[0] > 7 or (size == 1 and p[0]):
        raise DecodeError(f"expected 0 to {7 if size > 1 else 0} unused bits at byte {at}, got {p[0]}")
    if strict and p[0] and p[size - 1] & ((1 << p[0]) - 1):
        raise DecodeError(f"expected DER, where unused bits are zero, in the BIT STRING that ends at byte {at + size}")
    return 0


cdef object oid_value(const uint8_t *p, Py_ssize_t size, Py_ssize_t at):
    """The arcs of an OBJECT IDENTIFIER."""
    cdef list arcs = []
    cdef Py_ssize_t i = 0, begin
    cdef uint64_t arc
    if size == 0:
        raise InsufficientData(f"expected the arcs of an OBJECT IDENTIFIER at byte {at}, got none")
    while i < size:
        begin = i
        arc = 0
        if p[i] == 0x80:
            raise DecodeError(f"expected an arc without leading zeros at byte {at + i}")
        while True:
            arc = arc << 7 | (p[i] & 0x7F)
            i += 1
            if not p[i - 1] & 0x80:
                break
            if i == size:
                raise InsufficientData(f"the OBJECT IDENTIFIER at byte {at} ends within an arc")
            if i - begin == ARC_BYTES:
                raise DecodeError(f"expected arcs of at most {ARC_BYTES} bytes, got a longer one at byte {at + begin}")
        number = arc if i - begin <= 9 else long_arc(p + begin, i - begin)
        if begin == 0:
            if number < 80:
                PyList_Append(arcs, number // 40)
                PyList_Append(arcs, number % 40)
            else:
                PyList_Append(arcs, 2)
                PyList_Append(arcs, number - 80)
        else:
            PyList_Append(arcs, number)
    return ("oid", arcs)


cdef object long_arc(const uint8_t *p, Py_ssize_t size):
    number = 0
    for i in range(size):
        number = number << 7 | (p[i] & 0x7F)
    return number


cdef object integer_value(const uint8_t *p, Py_ssize_t size, Py_ssize_t at, int strict):
    if strict and (size == 0 or (size > 1 and ((p[0] == 0 and p[1] < 0x80) or (p[0] == 0xFF and p[1] >= 0x80)))):
        raise DecodeError(f"expected an integer as short as possible at byte {at}, got {size} bytes")
    if size == 0:
        return 0
    if size <= 8:
        return ber_get_integer(p, size)
    return int.from_bytes(PyBytes_FromStringAndSize(<char *>p, size), "big", signed=True)


cdef object utf8_value(const uint8_t *p, Py_ssize_t size, Py_ssize_t at):
    try:
        return PyUnicode_DecodeUTF8(<const char *>p, size, NULL)
    except UnicodeDecodeError as exc:
        raise DecodeError(f"expected UTF-8 in the string at byte {at}: {exc.reason} at byte {at + exc.start}") from None


cdef object text_value(uint32_t tag, bytes raw, Py_ssize_t at, int strict):
    """The text of a string type other than UTF8String."""
    if strict and tag in (18, 19) and raw.strip(NUMERIC if tag == 18 else PRINTABLE):
        # strip() leaves whatever stands between two foreign characters, so anything left means a foreign one.
        raise DecodeError(f"expected the characters of a {NAME_OF[tag]} only at byte {at}, got {raw!r:.60}")
    try:
        return raw.decode(CHARACTERS[tag])
    except UnicodeDecodeError as exc:
        raise DecodeError(f"the {NAME_OF[tag]} at byte {at} has other characters: {exc.reason}") from None


cdef int check_set(const uint8_t *base, Py_ssize_t at, Py_ssize_t end, const Options *o) except -1:
    """DER: a SET is sorted by tags (X.690, 10.3), a SET OF by encodings (11.6); the type is not known here.

    Either order is accepted.  Elements of one tag can only be a SET OF.
    """
    cdef ber_tlv tlv
    cdef Py_ssize_t before = -1, before_size = 0, size
    cdef int by_tag = 1, by_bytes = 1, order
    cdef uint64_t key, before_key = 0
    while at < end:
        header(base, at, end, o, &tlv)
        size = tlv.header + <Py_ssize_t>tlv.length
        key = <uint64_t>(tlv.flags & BER_CLASS) << 32 | tlv.tag
        if before >= 0:
            if key <= before_key:
                by_tag = 0
            order = memcmp(base + before, base + at, <size_t>min(size, before_size))
            # A shorter encoding is compared as if zeros followed it, so equal up to there means not greater.
            if order > 0:
                by_bytes = 0
        if not (by_tag or by_bytes):
            raise DecodeError(f"expected DER, where the elements of a SET are sorted, got others at byte {at}")
        before, before_size, before_key = at, size, key
        at += size
    return 0


cdef object value_at(
    const uint8_t *base, Py_ssize_t at, Py_ssize_t end, const Options *o, int depth, Py_ssize_t *after
):
    """The value of the element at byte `at`, whose bytes end at `end` the latest; `after` is where the next begins."""
    cdef ber_tlv tlv
    cdef int open_ = header(base, at, end, o, &tlv)
    cdef Py_ssize_t begin = at + tlv.header
    cdef Py_ssize_t size = tlv.length
    cdef uint32_t tag = tlv.tag
    cdef const uint8_t *p = base + begin
    cdef bytes raw
    if not open_:
        end = begin + size
        after[0] = end
    if tlv.flags & BER_CLASS:
        name = CLASS_NAMES[tlv.flags >> 6]
        if tlv.flags & BER_STRUCTURED:
            return (name, tag, items(base, begin, end, o, depth + 1, open_, after))
        return (name, tag, PyBytes_FromStringAndSize(<char *>p, size))
    if tlv.flags & BER_STRUCTURED:
        if tag == SEQUENCE_:
            return items(base, begin, end, o, depth + 1, open_, after)
        if tag == SET_:
            if o.strict:
                check_set(base, begin, end, o)
            return items(base, begin, end, o, depth + 1, open_, after)
        if tag in (BOOLEAN_, INTEGER_, NULL_, OID, REAL, ENUM):
            raise DecodeError(f"expected a primitive {NAME_OF[tag]} at byte {at}, got a constructed one")
        if tag == OCTETS or tag == UTF8 or tag == BITS or tag in CHARACTERS or tag == UTC or tag == GENERALIZED:
            raw = segments(base, begin, end, o, depth + 1, open_, BITS if tag == BITS else OCTETS, after)
            p = <const uint8_t *>PyBytes_AS_STRING(raw)
            size = PyBytes_GET_SIZE(raw)
            return simple_value(tag, p, size, begin, o)
        if open_:
            end = skip(base, begin, end, o, depth + 1)
            after[0] = end + 2
        return (NAME_OF.get(tag, "unknown"), tag, PyBytes_FromStringAndSize(<char *>p, end - begin))
    return simple_value(tag, p, size, begin, o)


cdef object simple_value(uint32_t tag, const uint8_t *p, Py_ssize_t size, Py_ssize_t at, const Options *o):
    """The value of a universal type from its content, which begins at byte `at`."""
    cdef bytes raw
    if tag == OCTETS:
        return PyBytes_FromStringAndSize(<char *>p, size)
    if tag == INTEGER_ or tag == ENUM:
        return integer_value(p, size, at, o.strict)
    if tag == UTF8:
        return utf8_value(p, size, at)
    if tag == OID:
        return oid_value(p, size, at)
    if tag == BOOLEAN_:
        if size > 1 or (o.strict and (size == 0 or (p[0] != 0 and p[0] != 0xFF))):
            raise DecodeError(f"expected one byte of a BOOLEAN{', 00 or ff,' if o.strict else ''} at byte {at}")
        return size == 1 and p[0] != 0
    if tag == NULL_:
        if size:
            raise DecodeError(f"expected a NULL without content, got {size} bytes at byte {at}")
        return None
    if tag == BITS:
        check_bits(p, size, at, o.strict)
        if size == 0:
            return ("bitstring", (0, b""))
        return ("bitstring", (p[0], PyBytes_FromStringAndSize(<char *>p + 1, size - 1)))
    if tag == SEQUENCE_ or tag == SET_:
        raise DecodeError(f"expected a constructed {NAME_OF[tag]} before byte {at}, got a primitive one")
    raw = PyBytes_FromStringAndSize(<char *>p, size)
    if tag == REAL:
        return real_value(raw, at, bool(o.strict))
    if o.times:
        if tag == UTC:
            return utc_time(raw, at, bool(o.strict))
        if tag == GENERALIZED:
            return generalized_time(raw, at, bool(o.strict))
    if o.text and tag in CHARACTERS:
        return text_value(tag, raw, at, o.strict)
    return (NAME_OF.get(tag, "unknown"), tag, raw)


def decode(
    data,
    Py_ssize_t pos=0,
    just_tlv=False,
    *,
    strict=False,
    indefinite=False,
    text=False,
    times=False,
    max_depth=None,
    max_element=None,
):
    """decode(data, pos=0, just_tlv=False, *, strict=False, indefinite=False, text=False, times=False, max_depth=None, \
max_element=None)

    The value of the element that begins at byte pos, and where it ends: (value, end).

    An OCTET STRING is bytes, a UTF8String str, INTEGER and ENUMERATED int, BOOLEAN bool, NULL None, REAL float,
    SEQUENCE and SET a list.  An OBJECT IDENTIFIER is ("oid", [arcs]), a BIT STRING ("bitstring", (unused bits, bytes)),
    another universal type (name, tag, content) with a name of TAG_TABLE or "unknown".  Elements of the other classes
    are ("application" | "context" | "private", tag, value), where value is a list if the element is constructed, else
    bytes.

    data: anything with a buffer.  just_tlv: give ((tag, flags, length), place of the content) instead; the content
    need not be there.  strict: refuse what is not DER (X.690, 10 and 11).  indefinite: accept indefinite lengths.
    text: give all string types as str.  times: give UTCTime and GeneralizedTime as datetime.  max_depth: levels of
    nesting, 100 unless given, at most 200.  max_element: bytes of the element, header included, 64 MiB unless given.

    An INTEGER, BOOLEAN or BIT STRING without content is 0, False or empty, unless strict.

    Raises InsufficientData where the data end too early, LengthTooLong, IndefiniteLength, MultiByteTag, and for
    whatever else is wrong their common class DecodeError.  Raises ValueError if pos is negative.
    """
    cdef Options o
    cdef Py_buffer view
    cdef ber_tlv tlv
    cdef Py_ssize_t after = 0
    cdef int code
    o.strict = bool(strict)
    o.indefinite = bool(indefinite)
    o.text = bool(text)
    o.times = bool(times)
    o.max_depth = MAX_DEPTH if max_depth is None else max_depth
    o.max_element = MAX_ELEMENT if max_element is None else max_element
    if pos < 0:
        raise ValueError(f"expected a position from 0 on, got {pos}")
    if not 1 <= o.max_depth <= 200:
        raise ValueError(f"expected a depth from 1 to 200, got {max_depth}; deeper ones do not fit on every stack")
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        base = <const uint8_t *>view.buf
        code = ber_read(base + pos, <size_t>(view.len - pos), o.strict, &tlv) if pos < view.len else BER_SHORT
        if just_tlv:
            if code != BER_OK:
                broken_header(code, pos)
            return (tlv.tag, tlv.flags, tlv.length), pos + tlv.header
        if code == BER_OK and tlv.header + <Py_ssize_t>tlv.length > o.max_element:
            raise LengthTooLong(
                f"expected an element of at most {o.max_element} bytes at byte {pos}, "
                f"got one of {tlv.header + <Py_ssize_t>tlv.length}; max_element sets the limit"
            )
        if code == BER_SHORT:
            broken_header(code, pos)
        end = view.len
        if code == BER_INDEFINITE and end - pos > o.max_element:
            end = pos + o.max_element
        value = value_at(base, pos, end, &o, 0, &after)
        return value, after
    finally:
        PyBuffer_Release(&view)
