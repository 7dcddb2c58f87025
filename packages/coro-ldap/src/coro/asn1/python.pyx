# cython: language_level=3, nonecheck=True
"""Simple Python values as BER: what pickle is good for, without what makes it dangerous.

    from coro.asn1 import python

    data = python.encode({"port": 389, "names": ["a", "b"], "key": b"\\x00\\x01"})
    value, end = python.decode(data)

    int      INTEGER          02        list       SEQUENCE         30
    None     NULL             05        tuple      [0]              a0
    bytes    OCTET STRING     04        dict       [1] of pairs     a1
    str      UTF8String       0c        set        [2]              a2
    bool     BOOLEAN          01        float      [3] eight bytes  83
    frozenset   [4]           a4        datetime   [5] text, ISO 8601     85
    Decimal     [6] text      86        UUID       [7] 16 bytes           87
    registered class          [8]       a8: its name and a plain value

Only these types are read and written, and exactly these: no subclass, so nothing comes back as something else.  Reading
calls no code but the functions that `Registry.register` was given.  Equal sets give equal bytes, because members are
sorted by their encodings; `canonical` does the same with the keys of a dict.

Cost: about 30 ns for each small value and way.  Nothing is allocated by an announced length, and nesting ends at 100.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_Append
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from coro.asn1.ber cimport (
    BER_OK,
    BER_STRUCTURED,
    ber_get_integer,
    ber_out,
    ber_put,
    ber_put_element,
    ber_put_header,
    ber_read,
    ber_tlv,
    ber_used,
    broken_header,
    put_int,
    taken,
)

import datetime as _datetime
import decimal as _decimal
import re as _re
import uuid as _uuid

from coro.asn1.exceptions import DecodeError, DecodingError, EncodeError, EncodingError, InsufficientData

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char *data, Py_ssize_t size, const char *errors)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

__all__ = ["DecodingError", "EncodingError", "MAX_DEPTH", "Registry", "decode", "encode"]

#: Values inside values.
MAX_DEPTH = 100
#: Bytes of a value.
MAX_SIZE = 64 * 1024 * 1024

cdef enum:
    DEPTH = 100

cdef type Datetime = _datetime.datetime
cdef type Decimal = _decimal.Decimal
cdef type UUID = _uuid.UUID
# What str() of a Decimal writes; the constructor takes more (blanks, underscores, other digits), which would let two
# texts stand for one value.
cdef object DECIMAL = _re.compile(r"-?(?:[0-9]+(?:\.[0-9]+)?(?:E[+-][0-9]{1,18})?|Infinity|s?NaN[0-9]*)", _re.ASCII)


class Registry:
    """Registry()

    The classes that one kind of data may contain besides the built-in ones.

    Both ends register a class under the same name.  A value of it is written as that name and a plain value, so it can
    be read wherever the name is known, and is a `DecodingError` elsewhere.
    """

    __slots__ = ("_by_class", "_by_name")

    def __init__(self) -> None:
        self._by_class = {}
        self._by_name = {}

    def register(self, cls, name, to_plain, from_plain):
        """register(cls, name, to_plain, from_plain)

        Write objects whose type is exactly cls.

        name: what stands for the class in the data, a str.  to_plain: called with an object, gives a value that
        `encode` takes.  from_plain: called with that value, gives the object; data from strangers reach it, so it has
        to check them, and what it raises is reported as a DecodingError.

        Raises ValueError if the class or the name is registered already, or the type is one of the built-in ones.
        """
        if not isinstance(cls, type):
            raise TypeError(f"expected a class, not {type(cls).__name__}: {cls!r:.60}")
        if type(name) is not str or not name:
            raise TypeError(f"expected a name that is a str and not empty, got {name!r:.60}")
        if cls in BUILT_IN:
            raise ValueError(f"expected a class that has no encoding yet, got {cls.__name__}")
        if cls in self._by_class or name in self._by_name:
            raise ValueError(f"{cls.__name__} or the name {name!r} is registered already; each may be once")
        self._by_class[cls] = (name, to_plain)
        self._by_name[name] = from_plain

    def __repr__(self):
        return f"<Registry of {', '.join(sorted(self._by_name)) or 'nothing'}>"


BUILT_IN = frozenset(
    (int, type(None), bytes, str, bool, list, tuple, dict, set, float, frozenset, Datetime, Decimal, UUID)
)


# ---- writing


cdef int full() except -1:
    raise EncodingError(f"expected a value of at most {MAX_SIZE} bytes, or there is no memory; write it in parts")


cdef inline int put_bytes(ber_out *out, uint32_t tag, uint8_t flags, bytes data) except -1:
    if ber_put_element(out, tag, flags, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)) < 0:
        full()
    return 0


cdef int put_items(
    ber_out *out, uint32_t tag, uint8_t flags, object items, dict classes, int canonical, int depth
) except -1:
    """A list or tuple; written backwards, like everything."""
    cdef size_t before = ber_used(out)
    cdef Py_ssize_t i = len(items)
    while i > 0:
        i -= 1
        put(out, items[i], classes, canonical, depth)
    if ber_put_header(out, tag, flags | BER_STRUCTURED, ber_used(out) - before) < 0:
        full()
    return 0


cdef bytes alone(object value, dict classes, int canonical, int depth):
    """One value in a buffer of its own."""
    cdef ber_out out
    out.base = NULL
    out.at = out.size = 0
    try:
        put(&out, value, classes, canonical, depth)
        return taken(&out)
    finally:
        free(out.base)


cdef int put_sorted(ber_out *out, uint32_t tag, object items, dict classes, int canonical, int depth) except -1:
    """Members of a set, or the pairs of a dict whose order must not matter."""
    cdef list parts = [alone(item, classes, canonical, depth) for item in items]
    parts.sort()
    return put_bytes(out, tag, 0x80 | BER_STRUCTURED, b"".join(parts))


cdef int put(ber_out *out, object value, dict classes, int canonical, int depth) except -1:
    cdef type kind = type(value)
    cdef const char *text
    cdef Py_ssize_t size
    cdef double number
    cdef uint64_t bits
    cdef uint8_t[8] big
    cdef int i
    if ber_used(out) > <size_t>MAX_SIZE:
        full()
    if kind is int:
        return put_int(out, 2, 0, value)
    if kind is str:
        try:
            text = PyUnicode_AsUTF8AndSize(value, &size)
        except UnicodeEncodeError as exc:
            raise EncodingError(f"expected text that UTF-8 can express: {exc}") from None
        if ber_put_element(out, 12, 0, text, size) < 0:
            full()
        return 0
    if kind is bytes:
        return put_bytes(out, 4, 0, value)
    if value is None:
        return put_bytes(out, 5, 0, b"")
    if kind is bool:
        return put_bytes(out, 1, 0, b"\xff" if value else b"\x00")
    if kind is float:
        number = value
        memcpy(&bits, &number, 8)
        for i in range(8):
            big[i] = <uint8_t>(bits >> (56 - 8 * i))
        if ber_put_element(out, 3, 0x80, big, 8) < 0:
            full()
        return 0
    if depth >= DEPTH:
        raise EncodingError(f"expected values nested at most {DEPTH} deep, got deeper ones or a cycle")
    if kind is list:
        # A copy: `to_plain` of a registered class may change the list.
        return put_items(out, 16, 0, list(value), classes, canonical, depth + 1)
    if kind is tuple:
        return put_items(out, 0, 0x80, value, classes, canonical, depth + 1)
    if kind is dict:
        if canonical:
            return put_sorted(out, 1, (<dict>value).items(), classes, canonical, depth + 1)
        return put_items(out, 1, 0x80, list((<dict>value).items()), classes, canonical, depth + 1)
    if kind is set:
        return put_sorted(out, 2, value, classes, canonical, depth + 1)
    if kind is frozenset:
        return put_sorted(out, 4, value, classes, canonical, depth + 1)
    if kind is Datetime:
        if not (value.tzinfo is None or type(value.tzinfo) is _datetime.timezone):
            value = value.replace(tzinfo=_datetime.timezone(value.utcoffset()))
        return put_bytes(out, 5, 0x80, value.isoformat().encode("ascii"))
    if kind is Decimal:
        return put_bytes(out, 6, 0x80, str(value).encode("ascii"))
    if kind is UUID:
        return put_bytes(out, 7, 0x80, value.bytes)
    if classes is not None and kind in classes:
        name, to_plain = classes[kind]
        return put_items(out, 8, 0x80, [name, to_plain(value)], classes, canonical, depth + 1)
    raise EncodingError(
        f"expected int, str, bytes, bool, float, None, list, tuple, dict, set, frozenset, datetime, Decimal, UUID or a "
        f"registered class, and no subclass of them; got {kind.__module__}.{kind.__qualname__}: {value!r:.60}"
    )


def encode(ob, *, registry=None, canonical=False):
    """encode(ob, *, registry=None, canonical=False)

    The bytes of a value.

    registry: a `Registry` of further classes.  canonical: sort the keys of dicts by their encodings, so that equal
    values are equal bytes.

    Raises EncodingError for an object of another type, subclasses included, for values nested deeper than 100, cycles
    among them, and for values of 64 MiB and more.  What a registered to_plain raises is passed on.
    """
    cdef dict classes = None if registry is None else registry._by_class
    data = alone(ob, classes, bool(canonical), 0)
    if len(data) > MAX_SIZE:
        full()
    return data


# ---- reading


cdef struct Place:
    const uint8_t *base


cdef list get_items(Place *p, Py_ssize_t at, Py_ssize_t end, dict names, int depth):
    cdef list found = []
    if depth > DEPTH:
        raise DecodingError(f"expected values nested at most {DEPTH} deep, got deeper ones at byte {at}")
    while at < end:
        PyList_Append(found, get(p, at, end, names, depth, &at))
    return found


cdef object hashed(object make, list found, Py_ssize_t at):
    """A set of these members, which the peer chose: they may not be hashable, or equal ones may be among them."""
    try:
        result = make(found)
    except TypeError:
        raise DecodingError(
            f"expected members that can be in a set before byte {at}, got a list, dict or set"
        ) from None
    if len(result) != len(found):
        raise DecodingError(f"expected different members in the set that ends at byte {at}, got equal ones")
    return result


cdef object get_dict(list found, Py_ssize_t at):
    cdef dict result = {}
    for pair in found:
        if type(pair) is not tuple or len(<tuple>pair) != 2:
            raise DecodingError(f"expected pairs in the dict that ends at byte {at}, got {pair!r:.60}")
        try:
            result[(<tuple>pair)[0]] = (<tuple>pair)[1]
        except TypeError:
            raise DecodingError(
                f"expected keys that can be in a dict before byte {at}, got a list, dict or set"
            ) from None
    if len(result) != len(found):
        raise DecodingError(f"expected different keys in the dict that ends at byte {at}, got equal ones")
    return result


cdef object get_text(const uint8_t *p, Py_ssize_t size, Py_ssize_t at):
    try:
        return PyUnicode_DecodeUTF8(<const char *>p, size, NULL)
    except UnicodeDecodeError as exc:
        raise DecodingError(f"expected UTF-8 at byte {at + exc.start}: {exc.reason}") from None


cdef object get_registered(list found, dict names, Py_ssize_t at):
    if len(found) != 2 or type(found[0]) is not str:
        raise DecodingError(f"expected the name of a class and a value before byte {at}, got {found!r:.60}")
    from_plain = None if names is None else names.get(found[0])
    if from_plain is None:
        raise DecodingError(
            f"expected a registered class before byte {at}, got the name {found[0]!r:.60}; "
            "register it, and give the registry to decode()"
        )
    try:
        return from_plain(found[1])
    except DecodeError:
        raise
    except Exception as exc:
        raise DecodingError(f"{found[0]!r:.60} before byte {at} is refused: {type(exc).__name__}: {exc}") from exc


cdef object get_special(uint32_t tag, const uint8_t *p, Py_ssize_t size, Py_ssize_t at):
    """The types that are text or a few bytes."""
    cdef double number
    cdef uint64_t bits = 0
    cdef Py_ssize_t i
    if tag == 3:
        if size != 8:
            raise DecodingError(f"expected a float of 8 bytes at byte {at}, got {size}")
        for i in range(8):
            bits = bits << 8 | p[i]
        memcpy(&number, &bits, 8)
        return number
    raw = PyBytes_FromStringAndSize(<char *>p, size)
    try:
        if tag == 7:
            return UUID(bytes=raw)
        text = raw.decode("ascii")
        if tag == 5:
            value = Datetime.fromisoformat(text)
            if value.isoformat() != text:
                raise ValueError(f"another way to write {value.isoformat()}")
            return value
        if tag == 6:
            if size > 10_000 or DECIMAL.fullmatch(text) is None:
                raise ValueError("not what str(Decimal) writes")
            return Decimal(text)
    except (ValueError, OverflowError, ArithmeticError) as exc:
        raise DecodingError(f"expected a datetime, Decimal or UUID at byte {at}: {exc}; got {raw!r:.60}") from None
    raise DecodingError(f"expected one of the types that encode() writes at byte {at}, got the context tag {tag}")


cdef object get(Place *p, Py_ssize_t at, Py_ssize_t end, dict names, int depth, Py_ssize_t *after):
    cdef ber_tlv tlv
    cdef int code = ber_read(p.base + at, <size_t>(end - at), 0, &tlv)
    cdef Py_ssize_t begin, size
    cdef const uint8_t *content
    if code != BER_OK:
        try:
            broken_header(code, at)
        except InsufficientData:
            raise
        except DecodeError as exc:
            raise DecodingError(str(exc)) from None
    begin = at + tlv.header
    size = tlv.length
    if size > end - begin:
        raise InsufficientData(f"the value at byte {at} should have {size} bytes, but {end - begin} are there")
    end = begin + size
    after[0] = end
    content = p.base + begin
    if tlv.flags == 0:
        if tlv.tag == 2 and size:
            if size <= 8:
                return ber_get_integer(content, size)
            return int.from_bytes(PyBytes_FromStringAndSize(<char *>content, size), "big", signed=True)
        if tlv.tag == 12:
            return get_text(content, size, begin)
        if tlv.tag == 4:
            return PyBytes_FromStringAndSize(<char *>content, size)
        if tlv.tag == 5 and size == 0:
            return None
        if tlv.tag == 1 and size == 1:
            return content[0] != 0
    elif tlv.flags == BER_STRUCTURED and tlv.tag == 16:
        return get_items(p, begin, end, names, depth + 1)
    elif tlv.flags == 0x80 | BER_STRUCTURED and tlv.tag <= 8:
        found = get_items(p, begin, end, names, depth + 1)
        if tlv.tag == 0:
            return tuple(found)
        if tlv.tag == 1:
            return get_dict(found, end)
        if tlv.tag == 2:
            return hashed(set, found, end)
        if tlv.tag == 4:
            return hashed(frozenset, found, end)
        if tlv.tag == 8:
            return get_registered(found, names, end)
    elif tlv.flags == 0x80:
        return get_special(tlv.tag, content, size, begin)
    raise DecodingError(
        f"expected one of the types that encode() writes at byte {at}, "
        f"got the tag {tlv.tag} with flags {tlv.flags:#04x} and {size} bytes"
    )


def decode(data, Py_ssize_t start=0, *, registry=None, exact=False, max_size=None):
    """decode(data, start=0, *, registry=None, exact=False, max_size=None)

    The value that begins at byte start, and where it ends: (value, end).

    data: anything with a buffer.  registry: a `Registry` of further classes.  exact: the value has to end where the
    data end.  max_size: bytes of data that are read at most, 64 MiB unless given.

    Raises InsufficientData where the data end within the value, DecodingError for everything else that `encode` does
    not write; both are DecodeErrors.  Raises ValueError if start is negative.
    """
    cdef Py_buffer view
    cdef Place place
    cdef Py_ssize_t after = 0, limit = MAX_SIZE if max_size is None else max_size
    cdef dict names = None if registry is None else registry._by_name
    if start < 0:
        raise ValueError(f"expected a position from 0 on, got {start}")
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if start >= view.len:
            raise InsufficientData(f"expected a value at byte {start}, but there are {view.len} bytes")
        place.base = <const uint8_t *>view.buf
        end = min(view.len, start + limit)
        try:
            value = get(&place, start, end, names, 0, &after)
        except InsufficientData:
            if end < view.len:
                raise DecodingError(
                    f"expected a value of at most {limit} bytes at byte {start}; max_size sets it"
                ) from None
            raise
        if exact and after != view.len:
            raise DecodingError(f"expected one value, but {view.len - after} bytes follow it at byte {after}")
        return value, after
    finally:
        PyBuffer_Release(&view)
