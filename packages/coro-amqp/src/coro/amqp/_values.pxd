# The primitive fields of AMQP 0-9-1 for the other compiled modules of this package; explained in _values.pyx.
# cython: language_level=3
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t


cdef class Output:
    cdef unsigned char *data
    cdef Py_ssize_t size        # bytes written
    cdef Py_ssize_t room        # bytes allocated

    cdef unsigned char *extend(self, Py_ssize_t n) except NULL
    cdef int grow(self, Py_ssize_t n) except -1
    cdef bytes take(self)


# What is left to read. Lies on the C stack: nothing that reads switches threads.
cdef struct cursor:
    const unsigned char *at
    const unsigned char *end
    int depth                   # how deep tables may still lie in one another


# A string inside the bytes that are read.
cdef struct text:
    const char *at
    Py_ssize_t size


cdef int put_u8(Output o, object value, str what) except -1
cdef int put_u16(Output o, object value, str what) except -1
cdef int put_u32(Output o, object value, str what) except -1
cdef int put_u64(Output o, object value, str what) except -1
cdef int put_timestamp(Output o, object value, str what) except -1
cdef int put_shortstr(Output o, object value, str what) except -1
cdef int put_longstr(Output o, object value, str what) except -1
cdef int put_table(Output o, object value, str what) except -1

cdef int short_of(cursor *c, Py_ssize_t n) except -1
cdef object get_table(cursor *c)
cdef bytes get_longstr(cursor *c)
cdef object get_shortstr(cursor *c)
cdef object text_str(text t)


cdef inline void write_u16(unsigned char *p, unsigned int v) noexcept:
    p[0] = <unsigned char>(v >> 8)
    p[1] = <unsigned char>v


cdef inline void write_u32(unsigned char *p, uint32_t v) noexcept:
    p[0] = <unsigned char>(v >> 24)
    p[1] = <unsigned char>(v >> 16)
    p[2] = <unsigned char>(v >> 8)
    p[3] = <unsigned char>v


cdef inline void write_u64(unsigned char *p, uint64_t v) noexcept:
    write_u32(p, <uint32_t>(v >> 32))
    write_u32(p + 4, <uint32_t>v)


cdef inline unsigned int read_u16(const unsigned char *p) noexcept:
    return (<unsigned int>p[0] << 8) | p[1]


cdef inline uint32_t read_u32(const unsigned char *p) noexcept:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | p[3]


cdef inline uint64_t read_u64(const unsigned char *p) noexcept:
    return (<uint64_t>read_u32(p) << 32) | read_u32(p + 4)


cdef inline int need(cursor *c, Py_ssize_t n) except -1:
    if c.end - c.at < n:
        short_of(c, n)
    return 0


cdef inline uint8_t get_u8(cursor *c) except? 99:
    need(c, 1)
    c.at += 1
    return c.at[-1]


cdef inline uint16_t get_u16(cursor *c) except? 9999:
    need(c, 2)
    c.at += 2
    return <uint16_t>read_u16(c.at - 2)


cdef inline uint32_t get_u32(cursor *c) except? 99999999:
    need(c, 4)
    c.at += 4
    return read_u32(c.at - 4)


cdef inline uint64_t get_u64(cursor *c) except? 99999999:
    need(c, 8)
    c.at += 8
    return read_u64(c.at - 8)


cdef inline int get_text(cursor *c, text *into) except -1:
    cdef Py_ssize_t n = get_u8(c)
    need(c, n)
    into.at = <const char *>c.at
    into.size = n
    c.at += n
    return 0
