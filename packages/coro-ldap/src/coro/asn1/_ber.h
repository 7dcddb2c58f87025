/* Tags, lengths and integers of BER (ITU-T X.690) in plain C: what every reader and writer of this package is made of.
 *
 * Reading looks at nothing behind the end it is given, and says which rule was broken.  Writing goes backwards: the
 * content of an element is there before its header, so the length is known and nothing is ever moved or measured twice.
 * Cost: about a nanosecond for a short header; the buffer doubles when it is full.
 *
 * Encoding content first and header last is an old trick of BER encoders; writing forwards would need either a pass
 * that only measures, or a memmove for each level.
 */
#ifndef CORO_ASN1_BER_H
#define CORO_ASN1_BER_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* X.690, 8.1.2.2: the two high bits are the class, the third says that the content is made of elements. */
#define BER_STRUCTURED 0x20
#define BER_CLASS 0xC0

enum {
    BER_OK = 0,
    BER_SHORT = -1,       /* the header is cut off */
    BER_LENGTH_LONG = -2, /* more than four bytes of length, or 2 GiB and more */
    BER_INDEFINITE = -3,  /* the length is left open (8.1.3.6) */
    BER_TAG_LONG = -4,    /* a tag number of more than five bytes with the first */
    BER_TAG_PADDED = -5,  /* a tag number that begins with zeros (8.1.2.4.2 c), or is below 31 in the long form */
    BER_LENGTH_PADDED = -6, /* a length that could be shorter; only where DER is asked for (10.1) */
    BER_LENGTH_RESERVED = -7, /* the first byte of the length is ff (8.1.3.5 c) */
};

typedef struct {
    uint32_t tag;   /* the number */
    uint8_t flags;  /* class and BER_STRUCTURED */
    uint8_t header; /* bytes of tag and length, 2 to 10 */
    uint32_t length; /* bytes of content, below 2 GiB */
} ber_tlv;

/* The long forms of tag and length. */
static int ber_read_long(const uint8_t *p, size_t left, int strict, ber_tlv *out) {
    size_t at = 1;
    uint32_t tag = p[0] & 0x1f;
    if (tag == 0x1f) {
        uint8_t byte;
        tag = 0;
        do {
            if (at == 5)
                return BER_TAG_LONG;
            if (at >= left)
                return BER_SHORT;
            byte = p[at];
            if (at == 1 && byte == 0x80)
                return BER_TAG_PADDED;
            tag = tag << 7 | (byte & 0x7f);
            at++;
        } while (byte & 0x80);
        if (tag < 31)
            return BER_TAG_PADDED;
    }
    out->tag = tag;
    out->flags = p[0] & (BER_STRUCTURED | BER_CLASS);
    if (at >= left)
        return BER_SHORT;
    uint32_t length = p[at++];
    if (length == 0x80) {
        out->header = (uint8_t)at;
        out->length = 0;
        return BER_INDEFINITE;
    }
    if (length == 0xff)
        return BER_LENGTH_RESERVED;
    if (length > 0x80) {
        unsigned count = length & 0x7f;
        if (count > 4)
            return BER_LENGTH_LONG;
        if (left - at < count)
            return BER_SHORT;
        length = 0;
        int padded = p[at] == 0;
        while (count--)
            length = length << 8 | p[at++];
        if (length >> 31)
            return BER_LENGTH_LONG;
        if (strict && (padded || length < 0x80))
            return BER_LENGTH_PADDED;
    }
    out->header = (uint8_t)at;
    out->length = length;
    return BER_OK;
}

/* The header at `p`, of which `left` bytes may be read.  Whether the content is there is the caller's question. */
static inline int ber_read(const uint8_t *p, size_t left, int strict, ber_tlv *out) {
    if (left >= 2 && (p[0] & 0x1f) != 0x1f && p[1] < 0x80) {
        out->tag = p[0] & 0x1f;
        out->flags = p[0] & (BER_STRUCTURED | BER_CLASS);
        out->header = 2;
        out->length = p[1];
        return BER_OK;
    }
    if (left == 0)
        return BER_SHORT;
    return ber_read_long(p, left, strict, out);
}

/* Two's complement of one to eight bytes (8.3.3). */
static inline int64_t ber_get_integer(const uint8_t *p, size_t length) {
    uint64_t value = p[0] & 0x80 ? UINT64_MAX : 0;
    for (size_t i = 0; i < length; i++)
        value = value << 8 | p[i];
    return (int64_t)value;
}

/* -- writing */

typedef struct {
    uint8_t *base; /* malloc()ed */
    size_t at;     /* what is written is base[at:size] */
    size_t size;
} ber_out;

/* Room for `count` more bytes; -1 without memory or beyond 2 GiB, and the buffer is as it was. */
static int ber_grow(ber_out *o, size_t count) {
    size_t used = o->size - o->at;
    if (count >= ((size_t)1 << 31) - used)
        return -1;
    size_t size = o->size ? o->size : 256;
    while (size - used < count)
        size *= 2;
    uint8_t *base = (uint8_t *)malloc(size);
    if (base == NULL)
        return -1;
    if (used)
        memcpy(base + size - used, o->base + o->at, used);
    free(o->base);
    o->base = base;
    o->at = size - used;
    o->size = size;
    return 0;
}

static inline int ber_need(ber_out *o, size_t count) { return o->at >= count ? 0 : ber_grow(o, count); }

static inline size_t ber_used(const ber_out *o) { return o->size - o->at; }

static inline int ber_put(ber_out *o, const void *data, size_t count) {
    if (ber_need(o, count) < 0)
        return -1;
    o->at -= count;
    if (count)
        memcpy(o->base + o->at, data, count);
    return 0;
}

/* The header of an element whose `length` bytes of content were written last. */
static inline int ber_put_header(ber_out *o, uint32_t tag, uint8_t flags, size_t length) {
    if (ber_need(o, 12) < 0)
        return -1;
    uint8_t *p = o->base + o->at;
    if (length < 0x80) {
        *--p = (uint8_t)length;
    } else {
        unsigned count = 0;
        do {
            *--p = (uint8_t)length;
            length >>= 8;
            count++;
        } while (length);
        *--p = (uint8_t)(0x80 | count);
    }
    if (tag < 31) {
        *--p = (uint8_t)(flags | tag);
    } else {
        *--p = tag & 0x7f;
        while (tag >>= 7)
            *--p = (uint8_t)(0x80 | (tag & 0x7f));
        *--p = (uint8_t)(flags | 0x1f);
    }
    o->at = (size_t)(p - o->base);
    return 0;
}

/* An element with bytes as its content. */
static inline int ber_put_element(ber_out *o, uint32_t tag, uint8_t flags, const void *data, size_t count) {
    return ber_put(o, data, count) < 0 ? -1 : ber_put_header(o, tag, flags, count);
}

/* An element whose content is the shortest two's complement of `value` (8.3.2). */
static inline int ber_put_integer(ber_out *o, uint32_t tag, uint8_t flags, int64_t value) {
    uint8_t bytes[8];
    unsigned at = 8;
    int64_t rest = value;
    do {
        bytes[--at] = (uint8_t)rest;
        rest >>= 8;
    } while (at && !((rest == 0 && !(bytes[at] & 0x80)) || (rest == -1 && (bytes[at] & 0x80))));
    return ber_put_element(o, tag, flags, bytes + at, 8 - at);
}

/* A REAL in base 2 as DER has it (8.5, 11.3.1): an odd mantissa, the shortest exponent.  `value` is finite and not
 * zero; at most 11 bytes go to `out`, the result is how many. */
static unsigned ber_real_content(double value, uint8_t *out) {
    uint64_t bits, mantissa;
    memcpy(&bits, &value, 8);
    int exponent = (int)(bits >> 52 & 0x7ff);
    mantissa = bits & (((uint64_t)1 << 52) - 1);
    if (exponent)
        mantissa |= (uint64_t)1 << 52;
    else
        exponent = 1;
    exponent -= 1075;
    while (!(mantissa & 1)) {
        mantissa >>= 1;
        exponent++;
    }
    unsigned n = 0, shift = 56;
    int two = exponent < -128 || exponent > 127;
    out[n++] = (uint8_t)(0x80 | (bits >> 63 ? 0x40 : 0) | two);
    if (two)
        out[n++] = (uint8_t)((unsigned)exponent >> 8);
    out[n++] = (uint8_t)exponent;
    while (!(mantissa >> shift & 0xff))
        shift -= 8;
    for (;; shift -= 8) {
        out[n++] = (uint8_t)(mantissa >> shift);
        if (shift == 0)
            return n;
    }
}

#endif
