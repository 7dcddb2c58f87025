# Declarations of `_ber.h` for the compiled modules of this package.
# cython: language_level=3

from libc.stdint cimport int64_t, uint8_t, uint32_t


cdef extern from "asn1/_ber.h" nogil:
    const int BER_OK, BER_SHORT, BER_LENGTH_LONG, BER_INDEFINITE, BER_TAG_LONG, BER_TAG_PADDED, BER_LENGTH_PADDED
    const int BER_LENGTH_RESERVED
    const int BER_STRUCTURED, BER_CLASS

    ctypedef struct ber_tlv:
        uint32_t tag
        uint8_t flags
        uint8_t header
        uint32_t length

    ctypedef struct ber_out:
        uint8_t *base
        size_t at
        size_t size

    int ber_read(const uint8_t *p, size_t left, int strict, ber_tlv *out)
    int64_t ber_get_integer(const uint8_t *p, size_t length)
    int ber_need(ber_out *o, size_t count)
    size_t ber_used(const ber_out *o)
    int ber_put(ber_out *o, const void *data, size_t count)
    int ber_put_header(ber_out *o, uint32_t tag, uint8_t flags, size_t length)
    int ber_put_element(ber_out *o, uint32_t tag, uint8_t flags, const void *data, size_t count)
    int ber_put_integer(ber_out *o, uint32_t tag, uint8_t flags, int64_t value)
    unsigned ber_real_content(double value, uint8_t *out)


cdef int put_int(ber_out *out, uint32_t tag, uint8_t flags, object number) except -1
cdef int broken_header(int code, Py_ssize_t at) except -1
cdef bytes taken(ber_out *out)
