# cython: language_level=3, boundscheck=False, wraparound=False
# cython: embedsignature=True, embedsignature.format=clinic
"""The primitive fields of AMQP 0-9-1 and its field tables: Python values to bytes and back.

The grammar is section 4.2.5 of the specification (https://www.rabbitmq.com/resources/specs/amqp0-9-1.pdf). Field tables
follow what brokers and clients really send, which differs from the specification's table 4.2.5.5 in the letters
(https://www.rabbitmq.com/amqp-0-9-1-errata.html, section 3); `value_kinds` below is the list.

Python and AMQP:

* short strings are `str`; bytes that are not UTF-8 survive as lone surrogates (PEP 383) and go out as they came in;
* a long string in a table (`S`) is `str` where it is UTF-8, else `bytes`; as an argument of a method it is `bytes`;
* `bytes` go out as `S`, which every broker understands; `ByteArray` is the rare `x`;
* an `int` is `I` where it fits and `l` otherwise; a `datetime` is `T`, taken as UTC if it names no zone.

`Output` is a growing buffer in C that everything is written to; `cursor` is what is left to read. Each read is checked
against the end, so a wrong length is an error and never a read beyond. Nothing is allocated by an announced length:
strings are copied only after the bytes were found to be there. How deep tables lie in one another is limited in both
directions; recursion ends there. Cost: a copy of each value, no objects in between.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t
from libc.string cimport memcpy

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

from datetime import datetime as _datetime
from datetime import timedelta as _timedelta
from datetime import timezone as _timezone
from decimal import Decimal as _Decimal

from coro.amqp.exceptions import EncodeError, LimitExceeded, ProtocolError

cdef enum:
    MOST_SHORT = 255            # bytes of a short string: its length is one octet
    DEPTH = 16                  # tables within tables, unless told otherwise

cdef object EPOCH = _datetime(1970, 1, 1, tzinfo=_timezone.utc)
cdef object LONGEST = (1 << 32) - 1
cdef double INFINITE = float("inf")
cdef double LARGEST_SINGLE = 3.4028235677973366e38      # what would be rounded to more has no form of 32 bits

MAX_TABLE_DEPTH = DEPTH


class ByteArray(bytes):
    """Bytes that go into a field table as the type ``x``; plain ``bytes`` go as the more usual ``S``."""

    __slots__ = ()


class Timestamp(int):
    """A moment as seconds since 1970, sent as the type ``T``; received where a ``datetime`` cannot hold the moment."""

    __slots__ = ()


cdef class Output:
    """A buffer that grows."""

    def __cinit__(self):
        self.data = NULL
        self.size = self.room = 0

    def __dealloc__(self):
        PyMem_Free(self.data)

    cdef int grow(self, Py_ssize_t n) except -1:
        cdef Py_ssize_t wanted = self.size + n
        cdef Py_ssize_t room = self.room * 2 if self.room else 256
        cdef unsigned char *data
        if room < wanted:
            room = wanted
        data = <unsigned char *>PyMem_Realloc(self.data, room)
        if data == NULL:
            raise MemoryError()
        self.data = data
        self.room = room
        return 0

    cdef unsigned char *extend(self, Py_ssize_t n) except NULL:
        """`n` more bytes to write to. The pointer holds until the next call."""
        cdef unsigned char *p
        if self.room - self.size < n:
            self.grow(n)
        p = self.data + self.size
        self.size += n
        return p

    cdef bytes take(self):
        """What was written, as bytes; the buffer is empty after it, and keeps its room."""
        cdef bytes found = PyBytes_FromStringAndSize(<char *>self.data, self.size)
        self.size = 0
        return found


# ---- writing

cdef object wrong(str what, object expected, object value):
    return EncodeError(f"{what}: expected {expected}, got {type(value).__name__} {_short(value)}")


def _short(object value):
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


cdef uint64_t whole(object value, uint64_t most, str what) except? 99999999:
    cdef uint64_t v
    if type(value) is not int and not (isinstance(value, int) and not isinstance(value, bool)):
        raise wrong(what, "an int", value)
    try:
        v = value
    except OverflowError:
        raise wrong(what, f"an int from 0 to {most}", value) from None
    if v > most:
        raise wrong(what, f"an int from 0 to {most}", value)
    return v


cdef int put_u8(Output o, object value, str what) except -1:
    cdef uint64_t v = whole(value, 0xff, what)
    o.extend(1)[0] = <unsigned char>v
    return 0


cdef int put_u16(Output o, object value, str what) except -1:
    cdef uint64_t v = whole(value, 0xffff, what)
    write_u16(o.extend(2), <unsigned int>v)
    return 0


cdef int put_u32(Output o, object value, str what) except -1:
    cdef uint64_t v = whole(value, 0xffffffff, what)
    write_u32(o.extend(4), <uint32_t>v)
    return 0


cdef int put_u64(Output o, object value, str what) except -1:
    cdef uint64_t v = whole(value, 0xffffffffffffffff, what)
    write_u64(o.extend(8), v)
    return 0


cdef int put_timestamp(Output o, object value, str what) except -1:
    """Seconds since 1970, or a datetime."""
    if isinstance(value, _datetime):
        value = seconds_of(value, what)
    return put_u64(o, value, what)


cdef object seconds_of(object moment, str what):
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=_timezone.utc)
    seconds = (moment - EPOCH) // _timedelta(seconds=1)
    if seconds < 0:
        raise wrong(what, "a moment after 1970", moment)
    return seconds


cdef int put_raw(Output o, const char *p, Py_ssize_t n) except -1:
    if n:
        memcpy(o.extend(n), p, n)
    return 0


cdef bytes encoded(object value, str what):
    """A str that is not plain UTF-8: with what came as other bytes (PEP 383)."""
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as exc:
        raise EncodeError(f"{what}: expected text that UTF-8 can express, got {_short(value)}") from exc


cdef int put_shortstr(Output o, object value, str what) except -1:
    cdef const char *p
    cdef Py_ssize_t n
    cdef unsigned char *q
    if isinstance(value, str):
        try:
            p = PyUnicode_AsUTF8AndSize(value, &n)
        except UnicodeEncodeError:
            value = encoded(value, what)
            p = PyBytes_AS_STRING(value)
            n = PyBytes_GET_SIZE(value)
    elif isinstance(value, bytes):
        p = PyBytes_AS_STRING(value)
        n = PyBytes_GET_SIZE(value)
    else:
        raise wrong(what, "a str", value)
    if n > MOST_SHORT:
        raise EncodeError(f"{what}: expected at most {MOST_SHORT} bytes, got {n}: {_short(value)}")
    q = o.extend(n + 1)
    q[0] = <unsigned char>n
    memcpy(q + 1, p, n)
    return 0


cdef int put_longstr(Output o, object value, str what) except -1:
    cdef bytes data
    if isinstance(value, str):
        data = encoded(value, what)
    elif isinstance(value, bytes):
        data = <bytes>value     # or of a subclass
    elif isinstance(value, (bytearray, memoryview)):
        data = bytes(value)
    else:
        raise wrong(what, "bytes or str", value)
    if len(data) > LONGEST:
        raise EncodeError(f"{what}: expected at most {LONGEST} bytes, got {len(data)}")
    write_u32(o.extend(4), <uint32_t>PyBytes_GET_SIZE(data))
    return put_raw(o, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


cdef int put_table(Output o, object value, str what) except -1:
    """A field table; None is an empty one."""
    if value is None:
        write_u32(o.extend(4), 0)
        return 0
    return put_table_in(o, value, what, DEPTH)


cdef int fill_length(Output o, Py_ssize_t start, str what) except -1:
    """Write the length of what follows `start` + 4 there."""
    cdef Py_ssize_t n = o.size - start - 4
    if n > <Py_ssize_t>0xffffffff:
        raise EncodeError(f"{what}: expected a table of at most {LONGEST} bytes, got {n}")
    write_u32(o.data + start, <uint32_t>n)
    return 0


cdef int put_table_in(Output o, object table, str what, int depth) except -1:
    cdef Py_ssize_t start = o.size
    if depth == 0:
        raise EncodeError(f"{what}: expected tables and lists within one another at most {DEPTH} deep, got more")
    if not isinstance(table, dict):
        try:
            table = dict(table)
        except (TypeError, ValueError):
            raise wrong(what, "a dict", table) from None
    o.extend(4)
    for key, value in (<dict>table).items():
        put_shortstr(o, key, what)
        put_value(o, value, what, depth)
    return fill_length(o, start, what)


cdef int put_list_in(Output o, object values, str what, int depth) except -1:
    cdef Py_ssize_t start = o.size
    if depth == 0:
        raise EncodeError(f"{what}: expected tables and lists within one another at most {DEPTH} deep, got more")
    o.extend(4)
    for value in values:
        put_value(o, value, what, depth)
    return fill_length(o, start, what)


cdef int put_tag(Output o, char tag) except -1:
    o.extend(1)[0] = <unsigned char>tag
    return 0


cdef int put_int(Output o, object value, str what) except -1:
    cdef int64_t v
    cdef unsigned char *p
    try:
        v = value
    except OverflowError:
        raise wrong(what, "an int of at most 64 bits with sign", value) from None
    if -0x80000000 <= v <= 0x7fffffff:
        p = o.extend(5)
        p[0] = c'I'
        write_u32(p + 1, <uint32_t><int32_t>v)
    else:
        p = o.extend(9)
        p[0] = c'l'
        write_u64(p + 1, <uint64_t>v)
    return 0


cdef int put_double(Output o, double value) except -1:
    cdef uint64_t bits
    memcpy(&bits, &value, 8)
    write_u64(o.extend(8), bits)
    return 0


cdef int put_decimal(Output o, object value, str what) except -1:
    """A scale and an unsigned number: 12.34 is (2, 1234)."""
    cdef unsigned char *p
    if not value.is_finite():
        raise wrong(what, "a finite Decimal", value)
    sign, digits, exponent = value.as_tuple()
    number = int("".join(map(str, digits)) or "0")
    # 1E+999999999 is a short text and a number of a gigabyte.
    if 0 < exponent <= 10:
        number *= 10 ** exponent
        exponent = 0
    if sign and number or exponent > 0 or exponent < -255 or number > LONGEST:
        raise wrong(what, f"a Decimal from 0 to {LONGEST} without its point, and at most 255 digits behind it", value)
    p = o.extend(5)
    p[0] = <unsigned char><int>-exponent
    write_u32(p + 1, <uint32_t>number)
    return 0


cdef int put_value(Output o, object value, str what, int depth) except -1:
    """The letter of the type, and the value."""
    if isinstance(value, str):
        put_tag(o, c'S')
        put_longstr(o, value, what)
    elif value is True or value is False:
        put_tag(o, c't')
        put_tag(o, 1 if value is True else 0)
    elif isinstance(value, int):
        if isinstance(value, Timestamp):
            put_tag(o, c'T')
            put_u64(o, value, what)
        else:
            put_int(o, value, what)
    elif value is None:
        put_tag(o, c'V')
    elif isinstance(value, bytes):
        put_tag(o, c'x' if isinstance(value, ByteArray) else c'S')
        put_longstr(o, value, what)
    elif isinstance(value, float):
        put_tag(o, c'd')
        put_double(o, value)
    elif isinstance(value, dict):
        put_tag(o, c'F')
        put_table_in(o, value, what, depth - 1)
    elif isinstance(value, (list, tuple)):
        put_tag(o, c'A')
        put_list_in(o, value, what, depth - 1)
    elif isinstance(value, _datetime):
        put_tag(o, c'T')
        put_u64(o, seconds_of(value, what), what)
    elif isinstance(value, _Decimal):
        put_tag(o, c'D')
        put_decimal(o, value, what)
    elif isinstance(value, (bytearray, memoryview)):
        put_tag(o, c'S')
        put_longstr(o, value, what)
    else:
        raise wrong(
            what, "str, bytes, bool, int, float, Decimal, datetime, None, or a list or dict of such values", value
        )
    return 0


# ---- reading

cdef int short_of(cursor *c, Py_ssize_t n) except -1:
    raise ProtocolError(f"expected {n} more bytes in a frame, {c.end - c.at} are left", 502)


cdef object text_str(text t):
    return PyUnicode_DecodeUTF8(t.at, t.size, "surrogateescape")


cdef object get_shortstr(cursor *c):
    cdef text t
    get_text(c, &t)
    return PyUnicode_DecodeUTF8(t.at, t.size, "surrogateescape")


cdef Py_ssize_t get_length(cursor *c) except -1:
    cdef uint32_t n = get_u32(c)
    need(c, n)
    return n


cdef bytes get_longstr(cursor *c):
    cdef Py_ssize_t n = get_length(c)
    c.at += n
    return PyBytes_FromStringAndSize(<char *>c.at - n, n)


cdef object get_text_or_bytes(cursor *c):
    cdef Py_ssize_t n = get_length(c)
    c.at += n
    try:
        return PyUnicode_DecodeUTF8(<char *>c.at - n, n, NULL)
    except UnicodeDecodeError:
        return PyBytes_FromStringAndSize(<char *>c.at - n, n)


cdef int enter(cursor *c) except -1:
    if c.depth <= 0:
        raise LimitExceeded("expected tables within one another no deeper than the limit `max_table_depth`", 506)
    c.depth -= 1
    return 0


cdef object get_table(cursor *c):
    cdef Py_ssize_t n
    cdef cursor inner
    cdef dict found = {}
    enter(c)
    n = get_length(c)
    inner.at = c.at
    inner.end = c.at + n
    inner.depth = c.depth
    while inner.at < inner.end:
        key = get_shortstr(&inner)
        found[key] = get_value(&inner)
    c.at += n
    c.depth += 1
    return found


cdef object get_array(cursor *c):
    cdef Py_ssize_t n
    cdef cursor inner
    cdef list found = []
    enter(c)
    n = get_length(c)
    inner.at = c.at
    inner.end = c.at + n
    inner.depth = c.depth
    while inner.at < inner.end:
        found.append(get_value(&inner))
    c.at += n
    c.depth += 1
    return found


cdef double get_double(cursor *c) except? -1:
    cdef uint64_t bits = get_u64(c)
    cdef double value
    memcpy(&value, &bits, 8)
    return value


cdef double get_float(cursor *c) except? -1:
    cdef uint32_t bits = get_u32(c)
    cdef float value
    memcpy(&value, &bits, 4)
    return value


cdef object get_decimal(cursor *c):
    cdef unsigned int scale = get_u8(c)
    cdef uint32_t number = get_u32(c)
    return _Decimal((0, tuple(map(int, str(number))), -<int>scale))


cdef object get_timestamp(cursor *c):
    cdef uint64_t seconds = get_u64(c)
    try:
        return EPOCH + _timedelta(seconds=seconds)
    except OverflowError:
        return Timestamp(seconds)


cdef object get_value(cursor *c):
    """A value of a table: https://www.rabbitmq.com/amqp-0-9-1-errata.html, section 3; `B`, `u`, `i`, `L` as RabbitMQ's
    parser reads them (rabbit_binary_parser.erl)."""
    cdef unsigned char tag = get_u8(c)
    if tag == c'S':
        return get_text_or_bytes(c)
    if tag == c'I':
        return <int32_t>get_u32(c)
    if tag == c'l' or tag == c'L':
        return <int64_t>get_u64(c)
    if tag == c't':
        return get_u8(c) != 0
    if tag == c'F':
        return get_table(c)
    if tag == c'A':
        return get_array(c)
    if tag == c'V':
        return None
    if tag == c'T':
        return get_timestamp(c)
    if tag == c'd':
        return get_double(c)
    if tag == c'f':
        return get_float(c)
    if tag == c'x':
        return ByteArray(get_longstr(c))
    if tag == c'D':
        return get_decimal(c)
    if tag == c'b':
        return <int8_t>get_u8(c)
    if tag == c'B':
        return get_u8(c)
    if tag == c's':
        return <int16_t>get_u16(c)
    if tag == c'u':
        return get_u16(c)
    if tag == c'i':
        return get_u32(c)
    raise ProtocolError(f"expected the letter of a type, one of tbBsuIilLfdDSxATFV, in a table, got {chr(tag)!r}", 502)


# ---- the same for Python

cdef int begin(cursor *c, const unsigned char[::1] data, Py_ssize_t pos) except -1:
    cdef Py_ssize_t n = data.shape[0]
    if pos < 0 or pos > n:
        raise ProtocolError(f"expected a position from 0 to {n}, got {pos}", 502)
    c.at = (&data[0] if n else <const unsigned char *>b"") + pos
    c.end = c.at + (n - pos)
    c.depth = DEPTH
    return 0


def pack_octet(value):
    """An int from 0 to 255 as one byte. EncodeError for anything else."""
    cdef Output o = Output.__new__(Output)
    put_u8(o, value, "octet")
    return o.take()


def pack_bool(value):
    """True or False as one byte."""
    return b"\1" if value else b"\0"


def pack_short(value):
    """An int from 0 to 65535 as two bytes. EncodeError for anything else."""
    cdef Output o = Output.__new__(Output)
    put_u16(o, value, "short")
    return o.take()


def pack_long(value):
    """An int below 2**32 as four bytes. EncodeError for anything else."""
    cdef Output o = Output.__new__(Output)
    put_u32(o, value, "long")
    return o.take()


def pack_longlong(value):
    """An int below 2**64 as eight bytes. EncodeError for anything else."""
    cdef Output o = Output.__new__(Output)
    put_u64(o, value, "longlong")
    return o.take()


def pack_timestamp(value):
    """Seconds since 1970, or a ``datetime``, as eight bytes. EncodeError for anything else."""
    cdef Output o = Output.__new__(Output)
    put_timestamp(o, value, "timestamp")
    return o.take()


def pack_shortstr(value):
    """A ``str`` of at most 255 bytes in UTF-8 behind its length. EncodeError for anything else."""
    cdef Output o = Output.__new__(Output)
    put_shortstr(o, value, "shortstr")
    return o.take()


def pack_longstr(value):
    """``bytes`` or ``str`` behind a length of four bytes. EncodeError for anything else."""
    cdef Output o = Output.__new__(Output)
    put_longstr(o, value, "longstr")
    return o.take()


def pack_float(value):
    """A float of 32 bits. EncodeError unless it is a number in that range."""
    cdef Output o = Output.__new__(Output)
    cdef float single
    cdef uint32_t bits
    if not isinstance(value, (float, int)) or LARGEST_SINGLE < abs(value) and abs(value) != INFINITE:
        raise wrong("float", "a number of 32 bits", value)
    single = value
    memcpy(&bits, &single, 4)
    write_u32(o.extend(4), bits)
    return o.take()


def pack_double(value):
    """A float of 64 bits. EncodeError unless it is a number."""
    cdef Output o = Output.__new__(Output)
    if not isinstance(value, (float, int)):
        raise wrong("double", "a number", value)
    try:
        put_double(o, value)
    except OverflowError:
        raise wrong("double", "a number of 64 bits", value) from None
    return o.take()


def pack_decimal(value):
    """A ``Decimal`` as a scale and an unsigned number of 32 bits. EncodeError where that cannot express it."""
    cdef Output o = Output.__new__(Output)
    if not isinstance(value, _Decimal):
        raise wrong("decimal", "a Decimal", value)
    put_decimal(o, value, "decimal")
    return o.take()


def pack_table(value):
    """A dict (or None, which is an empty one) as a field table. EncodeError names what cannot be in one."""
    cdef Output o = Output.__new__(Output)
    put_table(o, value, "table")
    return o.take()


def pack_field_value(value):
    """A value of a table: the letter of its type, and the value. EncodeError for what has no such type."""
    cdef Output o = Output.__new__(Output)
    put_value(o, value, "field value", DEPTH)
    return o.take()


def pack_field_array(value):
    """A list as an array of field values, behind its length in bytes. EncodeError names what cannot be in one."""
    cdef Output o = Output.__new__(Output)
    if not isinstance(value, (list, tuple)):
        raise wrong("field array", "a list", value)
    put_list_in(o, value, "field array", DEPTH)
    return o.take()


def unpack_octet(const unsigned char[::1] data, Py_ssize_t pos=0):
    """``(int, position behind it)``. ProtocolError where bytes are missing, as in all these calls."""
    cdef cursor c
    begin(&c, data, pos)
    return get_u8(&c), pos + 1


def unpack_bool(const unsigned char[::1] data, Py_ssize_t pos=0):
    """``(bool, position behind it)``."""
    cdef cursor c
    begin(&c, data, pos)
    return get_u8(&c) != 0, pos + 1


def unpack_short(const unsigned char[::1] data, Py_ssize_t pos=0):
    """``(int, position behind it)``."""
    cdef cursor c
    begin(&c, data, pos)
    return get_u16(&c), pos + 2


def unpack_long(const unsigned char[::1] data, Py_ssize_t pos=0):
    """``(int, position behind it)``."""
    cdef cursor c
    begin(&c, data, pos)
    return get_u32(&c), pos + 4


def unpack_longlong(const unsigned char[::1] data, Py_ssize_t pos=0):
    """``(int, position behind it)``."""
    cdef cursor c
    begin(&c, data, pos)
    return get_u64(&c), pos + 8


def unpack_timestamp(const unsigned char[::1] data, Py_ssize_t pos=0):
    """``(seconds since 1970, position behind it)``."""
    cdef cursor c
    begin(&c, data, pos)
    return get_u64(&c), pos + 8


def unpack_shortstr(const unsigned char[::1] data, Py_ssize_t pos=0):
    """``(str, position behind it)``; bytes that are not UTF-8 are lone surrogates (PEP 383)."""
    cdef cursor c
    begin(&c, data, pos)
    value = get_shortstr(&c)
    return value, pos + behind(&c, data, pos)


def unpack_longstr(const unsigned char[::1] data, Py_ssize_t pos=0):
    """``(bytes, position behind it)``."""
    cdef cursor c
    begin(&c, data, pos)
    value = get_longstr(&c)
    return value, pos + behind(&c, data, pos)


def unpack_float(const unsigned char[::1] data, Py_ssize_t pos=0):
    """``(float, position behind it)`` of 32 bits."""
    cdef cursor c
    begin(&c, data, pos)
    return get_float(&c), pos + 4


def unpack_double(const unsigned char[::1] data, Py_ssize_t pos=0):
    """``(float, position behind it)`` of 64 bits."""
    cdef cursor c
    begin(&c, data, pos)
    return get_double(&c), pos + 8


def unpack_decimal(const unsigned char[::1] data, Py_ssize_t pos=0):
    """``(Decimal, position behind it)``."""
    cdef cursor c
    begin(&c, data, pos)
    return get_decimal(&c), pos + 5


def unpack_table(const unsigned char[::1] data, Py_ssize_t pos=0):
    """``(dict, position behind it)``. LimitExceeded where tables lie too deep in one another."""
    cdef cursor c
    begin(&c, data, pos)
    value = get_table(&c)
    return value, pos + behind(&c, data, pos)


def unpack_field_array(const unsigned char[::1] data, Py_ssize_t pos=0):
    """``(list, position behind it)``. LimitExceeded where tables lie too deep in one another."""
    cdef cursor c
    begin(&c, data, pos)
    value = get_array(&c)
    return value, pos + behind(&c, data, pos)


def unpack_field_value(const unsigned char[::1] data, Py_ssize_t pos=0):
    """``(value, position behind it)`` of the type that the letter at ``pos`` names."""
    cdef cursor c
    begin(&c, data, pos)
    value = get_value(&c)
    return value, pos + behind(&c, data, pos)


cdef Py_ssize_t behind(cursor *c, const unsigned char[::1] data, Py_ssize_t pos) noexcept:
    """How many bytes have been read."""
    return data.shape[0] - pos - (c.end - c.at)

