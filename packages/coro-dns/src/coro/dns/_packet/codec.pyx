# cython: language_level=3, nonecheck=True, binding=False, boundscheck=False, wraparound=False, initializedcheck=False
"""Messages to Python values and back, both from the front to the end (RFC 1035, section 4). See `coro.dns.packet`.

The idea: names go from the wire to text in one pass over a buffer on the stack, and a name that a pointer leads to is
made once for the whole message. The Packer writes into one growing buffer and finds suffixes again by a table of hashes
of places in that buffer, without Python objects. What a record consists of says the table in `fields.py`.

The message of a peer is hostile: pointers go strictly backwards and each one to before the one that led there, a name
has at most 255 bytes, a header may not announce more than there are bytes for, and what names expand to is limited for
the whole message. All that is wrong is an UnpackError. Text is in `parts/`.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_Append
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from coro.dns._packet.fields import FIELDS as _FIELDS, ONLY_IN as _ONLY_IN
from coro.dns._packet.numbers import CLASS_MAP as _CLASS_MAP, TYPE_MAP as _TYPE_MAP
from coro.dns._packet.numbers import class_number as _class_number, type_number as _type_number

cdef extern from "Python.h":
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 most)
    void *PyUnicode_DATA(object text)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    bint PyUnicode_IS_ASCII(object text)

cdef extern from "<arpa/inet.h>":
    const char *inet_ntop(int family, const void *raw, char *text, unsigned int size) nogil
    int inet_pton(int family, const char *text, void *raw) nogil

cdef extern from "<sys/socket.h>":
    enum:
        AF_INET
        AF_INET6

cdef enum:
    NAME_MAX = 255          # RFC 1035, section 2.3.4
    TEXT_MAX = 4 * 255      # of a name as text: every byte escaped
    EXPANDED = 1 << 20      # characters of all names of a message
    POINTER_MAX = 0x3FFF
    KNOWN = 24              # names of a message that are remembered by their place
    OPT = 41


class PackError(ValueError):
    """What was to be written cannot be: a label of more than 63 bytes, a name of more than 255, a number out of its
    range, data that does not fit the type."""


class UnpackError(ValueError):
    """The message is none, or its data ends too early, or a record's data does not fit its type. The only exception
    that bytes of a peer cause."""


# number -> name, or the number itself: tuples, because a look-up in a dict costs more than the rest of a record
cdef tuple type_names = tuple([_TYPE_MAP.get(i, i) for i in range(260)])
cdef tuple class_names = tuple([_CLASS_MAP.get(i, i) for i in range(256)])
cdef tuple programs = tuple([_FIELDS.get(i, "").encode() for i in range(260)])
cdef dict more_programs = {number: fields.encode() for number, fields in _FIELDS.items() if number >= 260}
cdef uint8_t only_in[260]
memset(only_in, 0, 260)
for _i in _ONLY_IN:
    only_in[<int>_i] = 1


cdef inline bytes program_of(int rtype, int klass):
    """The fields of a type, b"" for raw bytes."""
    if rtype < 260:
        if only_in[rtype] and klass != 1 and klass != 254:
            return b""
        return <bytes>programs[rtype]
    return <bytes>more_programs.get(rtype, b"")


cdef inline int low(int c) noexcept nogil:
    return c + 32 if 65 <= c <= 90 else c


cdef inline int u16(const uint8_t *p) noexcept nogil:
    return p[0] << 8 | p[1]


cdef inline uint32_t u32(const uint8_t *p) noexcept nogil:
    return <uint32_t>p[0] << 24 | <uint32_t>p[1] << 16 | <uint32_t>p[2] << 8 | p[3]


# What a byte of a label becomes in text: 0 itself, 1 behind a backslash, 2 as \DDD. The same as in coro.dns._wire.
cdef uint8_t escapes[256]
for _i in range(256):
    escapes[<int>_i] = 0 if 33 <= _i <= 126 else 2
for _i in bytearray(b'."\\;()@$'):
    escapes[<int>_i] = 1


include "parts/unpacker.pxi"
include "parts/packer.pxi"
include "parts/rdata.pxi"
