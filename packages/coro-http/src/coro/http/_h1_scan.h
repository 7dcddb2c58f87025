/* Heads, chunk lines and trailers of HTTP/1.1 in plain C: what RFC 9112 allows, and no more.

   A head is read line by line where it lies. What comes out are offsets into it, one span for each field, so nothing is
   copied and no object is made. An incomplete head may be read again when more of it has come: the reading goes on at
   the line where it stopped, and the search for its end behind the bytes that were searched before, so the cost is
   linear for any way in which the bytes arrive.

   Line ends are CR LF. A bare LF, a bare CR, NUL, other controls, blanks before the colon, and continuation lines are
   errors (RFC 9112 2.2, 5.1, 5.2): two readers that disagree about one of them are how requests are smuggled.

   Cost: a search for the line's end, a table look-up per byte of a name, eight bytes at a time of a value. */

#ifndef CORO_HTTP_H1_SCAN_H
#define CORO_HTTP_H1_SCAN_H

#include <stdint.h>
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#define H1_TOKEN 1              /* tchar, RFC 9110 5.6.2 */
#define H1_FIELD 2              /* field-content: VCHAR, SP, HTAB, obs-text, RFC 9110 5.5 */
#define H1_TARGET 4             /* what a request target may have: VCHAR, but for the "#" of a fragment, RFC 9112 3.2 */
#define H1_NAME 8               /* reg-name, RFC 3986 3.2.2, but for percent-encoding, and for the comma of lists */

static uint8_t h1_class[256];
static uint8_t h1_lower[256];

static void h1_tables(void)
{
    int c;
    for (c = 0; c < 256; c++) {
        h1_class[c] = 0;
        h1_lower[c] = (uint8_t)(c >= 'A' && c <= 'Z' ? c + 32 : c);
        if (c >= 0x21 && c <= 0x7e) {
            h1_class[c] |= c == '#' ? H1_FIELD : H1_TARGET | H1_FIELD;
            if ((c >= '0' && c <= '9') || (h1_lower[c] >= 'a' && h1_lower[c] <= 'z') || strchr("!#$%&'*+-.^_`|~", c))
                h1_class[c] |= H1_TOKEN;
            if ((c >= '0' && c <= '9') || (h1_lower[c] >= 'a' && h1_lower[c] <= 'z') || strchr("-._~!$&'()*+;=", c))
                h1_class[c] |= H1_NAME;
        }
        if (c >= 0x80 || c == ' ' || c == '\t')
            h1_class[c] |= H1_FIELD;
    }
}

/* Results. Errors are negative; h1.pyx has a sentence and a status code for each. */
enum {
    H1_MORE = 0,
    H1_DONE = 1,
    H1_BAD_LINE_END = -1,
    H1_BAD_REQUEST_LINE = -2,
    H1_BAD_STATUS_LINE = -3,
    H1_BAD_VERSION = -4,
    H1_BAD_NAME = -5,
    H1_BAD_VALUE = -6,
    H1_FOLDED = -7,
    H1_NO_COLON = -8,
    H1_LINE_LONG = -9,
    H1_HEADER_LONG = -10,
    H1_HEAD_LONG = -11,
    H1_HEADERS_MANY = -12,
    H1_BAD_LENGTH = -13,
    H1_TWO_LENGTHS = -14,
    H1_BAD_CODING = -15,
    H1_LENGTH_AND_CODING = -16,
    H1_TWO_HOSTS = -17,
    H1_NO_HOST = -18,
    H1_BAD_HOST = -19,
    H1_NO_MEMORY = -20,
    H1_BAD_CHUNK = -21,
    H1_CHUNK_LONG = -22,
    H1_BAD_CHUNK_END = -23,
    H1_BAD_TRAILER = -24,
    H1_CODING_IN_1_0 = -25,
    H1_BAD_TARGET = -26,
    H1_BAD_METHOD = -27,
    H1_CODING_UNKNOWN = -28,
};

/* What the fields of a head say, as far as it concerns the connection. */
enum {
    H1_HAS_LENGTH = 1,
    H1_CHUNKED = 2,
    H1_HAS_CODING = 4,
    H1_CLOSE = 8,
    H1_KEEP_ALIVE = 16,
    H1_UPGRADE_NAMED = 32,      /* Connection has the token */
    H1_HAS_UPGRADE = 64,
    H1_EXPECT = 128,            /* Expect: 100-continue */
    H1_HAS_HOST = 256,
    H1_TWO = 512,               /* a second host */
    H1_EXPECT_OTHER = 1024,     /* Expect: anything else */
};

typedef struct {
    uint32_t name, name_len, value, value_len;
} h1_span;

typedef struct {
    /* limits */
    uint32_t max_line, max_header, max_headers, max_count;
    /* progress; offsets from the beginning of the head */
    uint32_t pos, scanned;
    int stage;                  /* 0: start line, 1: fields */
    int skipped;                /* empty lines before the start line */
    /* what was found */
    uint32_t method_len, target, target_len, reason, reason_len;
    int status, minor;
    uint32_t flags;
    int64_t length;
    h1_span *spans;
    uint32_t count, room;
} h1_scan;

static void h1_scan_again(h1_scan *s)
{
    s->pos = s->scanned = 0;
    s->stage = s->skipped = 0;
    s->flags = 0;
    s->length = 0;
    s->count = 0;
    s->method_len = s->target_len = s->reason_len = 0;
}

static inline int h1_same(const char *p, const char *lower, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++)
        if (h1_lower[(uint8_t)p[i]] != (uint8_t)lower[i])
            return 0;
    return 1;
}

/* Are all bytes field-content? Eight at a time: none below 0x20 and none 0x7f; a tab is left to the table. */
static inline int h1_is_field(const char *p, size_t n)
{
    const uint64_t ones = 0x0101010101010101ull, high = 0x8080808080808080ull;
    while (n >= 8) {
        uint64_t x, y;
        memcpy(&x, p, 8);
        y = x ^ (0x7f * ones);
        if ((((x - 0x20 * ones) & ~x) | ((y - ones) & ~y)) & high) {
            int i;
            for (i = 0; i < 8; i++)
                if (!(h1_class[(uint8_t)p[i]] & H1_FIELD))
                    return 0;
        }
        p += 8;
        n -= 8;
    }
    while (n--)
        if (!(h1_class[(uint8_t)*p++] & H1_FIELD))
            return 0;
    return 1;
}

static inline int h1_is(const char *p, size_t n, int wanted)
{
    while (n--)
        if (!(h1_class[(uint8_t)*p++] & wanted))
            return 0;
    return 1;
}

/* 1*DIGIT, at most 19 digits and no more than INT64_MAX: -1 otherwise. Signs, blanks, "0x", lists and digits of other
   scripts are no numbers (RFC 9110 8.6). */
static int64_t h1_number(const char *p, size_t n)
{
    uint64_t v = 0;
    if (n == 0 || n > 19)
        return -1;
    while (n--) {
        unsigned d = (unsigned)(uint8_t)*p++ - '0';
        if (d > 9)
            return -1;
        v = v * 10 + d;
    }
    return v > (uint64_t)INT64_MAX ? -1 : (int64_t)v;
}

/* The next member of a list without quotes, from place *i on (RFC 9110 5.6.1): its length, and where it begins; 0 when
   there is none. */
static inline size_t h1_next_member(const char *p, size_t n, size_t *i, const char **begin)
{
    size_t first, end;
    while (*i < n && (p[*i] == ' ' || p[*i] == '\t' || p[*i] == ','))
        (*i)++;
    first = *i;
    while (*i < n && p[*i] != ',')
        (*i)++;
    end = *i;
    while (end > first && (p[end - 1] == ' ' || p[end - 1] == '\t'))
        end--;
    *begin = p + first;
    return end - first;
}

/* The tokens of a Connection field, RFC 9110 7.6.1. */
static void h1_connection_tokens(h1_scan *s, const char *p, size_t n)
{
    size_t i = 0, length;
    const char *token;
    while ((length = h1_next_member(p, n, &i, &token)) > 0) {
        if (length == 5 && h1_same(token, "close", 5))
            s->flags |= H1_CLOSE;
        else if (length == 10 && h1_same(token, "keep-alive", 10))
            s->flags |= H1_KEEP_ALIVE;
        else if (length == 7 && h1_same(token, "upgrade", 7))
            s->flags |= H1_UPGRADE_NAMED;
    }
}

/* The expectations of an Expect field, RFC 9110 10.1.1. There is one; in quotes, a comma makes an unknown one two. */
static void h1_expectations(h1_scan *s, const char *p, size_t n)
{
    size_t i = 0, length;
    const char *member;
    while ((length = h1_next_member(p, n, &i, &member)) > 0)
        s->flags |= length == 12 && h1_same(member, "100-continue", 12) ? H1_EXPECT : H1_EXPECT_OTHER;
}

static int h1_hex(uint8_t c)
{
    return c >= '0' && c <= '9' ? c - '0' : h1_lower[c] >= 'a' && h1_lower[c] <= 'f' ? h1_lower[c] - 'a' + 10 : -1;
}

/* The length of an IP-literal, RFC 3986 3.2.2, at the begin of so many bytes; 0 if there is none. */
static size_t h1_ip_literal(const char *p, size_t n)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr address;
    size_t i, end = 1;
    while (end < n && p[end] != ']')
        end++;
    if (end == n)
        return 0;
    if (end > 1 && h1_lower[(uint8_t)p[1]] == 'v') {    /* IPvFuture: "v" HEX "." name */
        for (i = 2; i < end && h1_hex((uint8_t)p[i]) >= 0; i++)
            ;
        if (i == 2 || i + 1 >= end || p[i] != '.')
            return 0;
        for (i++; i < end; i++)
            if (!(h1_class[(uint8_t)p[i]] & H1_NAME) && p[i] != ':')
                return 0;
        return end + 1;
    }
    if (end - 1 >= sizeof(text))
        return 0;
    memcpy(text, p + 1, end - 1);
    text[end - 1] = 0;
    return strlen(text) == end - 1 && inet_pton(AF_INET6, text, &address) == 1 ? end + 1 : 0;
}

/* uri-host [ ":" port ], RFC 9110 7.2, or nothing at all (RFC 9112 3.2): what cannot be read as another host. */
static int h1_is_host(const char *p, size_t n)
{
    size_t i = 0, digits;
    unsigned long port = 0;
    if (n == 0)
        return 1;
    if (p[0] == '[') {
        i = h1_ip_literal(p, n);
        if (i == 0)
            return 0;
    } else {
        while (i < n && p[i] != ':') {
            if (h1_class[(uint8_t)p[i]] & H1_NAME) {
                i++;
            } else if (p[i] == '%' && n - i > 2 && h1_hex((uint8_t)p[i + 1]) >= 8 && h1_hex((uint8_t)p[i + 2]) >= 0) {
                i += 3;         /* of UTF-8; what is ASCII need not be encoded, and might mean something else then */
            } else {
                return 0;
            }
        }
        if (i == 0)
            return 0;
    }
    if (i == n)
        return 1;
    if (p[i++] != ':' || n - i > 5)
        return 0;
    for (digits = i; i < n; i++) {
        if (p[i] < '0' || p[i] > '9')
            return 0;
        port = port * 10 + (unsigned long)(p[i] - '0');
    }
    return digits == n || port <= 65535;
}

/* A field that decides about framing or the connection. */
static int h1_known(h1_scan *s, const char *name, size_t n, const char *value, size_t v)
{
    switch (n) {
    case 4:
        if (h1_same(name, "host", 4)) {
            if (s->flags & H1_HAS_HOST)
                return H1_TWO_HOSTS;
            if (!h1_is_host(value, v))
                return H1_BAD_HOST;
            s->flags |= H1_HAS_HOST;
        }
        break;
    case 6:
        if (h1_same(name, "expect", 6))
            h1_expectations(s, value, v);
        break;
    case 7:
        if (h1_same(name, "upgrade", 7))
            s->flags |= H1_HAS_UPGRADE;
        break;
    case 10:
        if (h1_same(name, "connection", 10))
            h1_connection_tokens(s, value, v);
        break;
    case 14:
        if (h1_same(name, "content-length", 14)) {
            if (s->flags & H1_HAS_LENGTH)
                return H1_TWO_LENGTHS;
            s->length = h1_number(value, v);
            if (s->length < 0)
                return H1_BAD_LENGTH;
            s->flags |= H1_HAS_LENGTH;
        }
        break;
    case 17:
        if (h1_same(name, "transfer-encoding", 17)) {
            if (s->flags & H1_HAS_CODING)
                return H1_BAD_CODING;
            s->flags |= H1_HAS_CODING;
            if (v != 7 || !h1_same(value, "chunked", 7))
                return H1_CODING_UNKNOWN;
            s->flags |= H1_CHUNKED;
        }
        break;
    }
    return 0;
}

static int h1_version(h1_scan *s, const char *p)
{
    if (memcmp(p, "HTTP/", 5) != 0 || p[6] != '.' || p[5] < '0' || p[5] > '9' || p[7] < '0' || p[7] > '9')
        return -1;
    if (p[5] != '1')
        return H1_BAD_VERSION;
    s->minor = p[7] - '0';
    return 0;
}

/* method SP request-target SP HTTP-version, RFC 9112 3 */
static int h1_request_line(h1_scan *s, const char *base, uint32_t n)
{
    const char *end = base + n - 8, *p = base;
    int r;
    if (n < 12 || end[-1] != ' ')
        return H1_BAD_REQUEST_LINE;
    while (p < end && h1_class[(uint8_t)*p] & H1_TOKEN)
        p++;
    if (p == base || *p != ' ')
        return H1_BAD_METHOD;
    s->method_len = (uint32_t)(p - base);
    s->target = s->method_len + 1;
    if (s->target + 9 >= n)
        return H1_BAD_REQUEST_LINE;
    s->target_len = n - 9 - s->target;
    if (!h1_is(base + s->target, s->target_len, H1_TARGET))
        return H1_BAD_TARGET;
    r = h1_version(s, end);
    return r == -1 ? H1_BAD_REQUEST_LINE : r;
}

/* HTTP-version SP status-code [ SP [ reason-phrase ] ], RFC 9112 4 (the second SP is often left out) */
static int h1_status_line(h1_scan *s, const char *p, uint32_t n)
{
    int r, i;
    if (n < 12 || p[8] != ' ')
        return H1_BAD_STATUS_LINE;
    r = h1_version(s, p);
    if (r)
        return r == -1 ? H1_BAD_STATUS_LINE : r;
    s->status = 0;
    for (i = 9; i < 12; i++) {
        if (p[i] < '0' || p[i] > '9')
            return H1_BAD_STATUS_LINE;
        s->status = s->status * 10 + (p[i] - '0');
    }
    if (s->status < 100)
        return H1_BAD_STATUS_LINE;
    s->reason = 13;
    s->reason_len = 0;
    if (n > 12) {
        if (p[12] != ' ')
            return H1_BAD_STATUS_LINE;
        s->reason_len = n - 13;
        if (!h1_is_field(p + 13, s->reason_len))
            return H1_BAD_STATUS_LINE;
    }
    return 0;
}

/* field-name ":" OWS field-value OWS, RFC 9112 5 */
static int h1_field_line(h1_scan *s, const char *base, uint32_t at, uint32_t n)
{
    const char *p = base + at, *end = p + n, *name = p;
    h1_span *span;
    if (*p == ' ' || *p == '\t')
        return H1_FOLDED;
    if (s->count == s->max_count)
        return H1_HEADERS_MANY;
    while (p < end && h1_class[(uint8_t)*p] & H1_TOKEN)
        p++;
    if (p == end)
        return H1_NO_COLON;
    if (*p != ':' || p == name)
        return H1_BAD_NAME;
    if (s->count == s->room) {
        uint32_t room = s->room ? s->room * 2 : 16;
        h1_span *more = (h1_span *)realloc(s->spans, room * sizeof(h1_span));
        if (!more)
            return H1_NO_MEMORY;
        s->spans = more;
        s->room = room;
    }
    span = &s->spans[s->count];
    span->name = at;
    span->name_len = (uint32_t)(p - name);
    p++;
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    while (end > p && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    if (!h1_is_field(p, (size_t)(end - p)))
        return H1_BAD_VALUE;
    span->value = (uint32_t)(p - base);
    span->value_len = (uint32_t)(end - p);
    s->count++;
    return h1_known(s, name, span->name_len, p, span->value_len);
}

static int h1_scan_too_long(h1_scan *s)
{
    return s->stage == 0 ? H1_LINE_LONG : H1_HEADER_LONG;
}

/* Reads on in the head that begins at `base`, of which `len` bytes are there. H1_DONE: `pos` is where it ends.
   `response`: a status line is expected, not a request line; `stage` 1 at the beginning: fields alone (trailers). */
static int h1_scan_head(h1_scan *s, const char *base, size_t len, int response)
{
    for (;;) {
        const char *lf;
        uint32_t n, limit = s->stage == 0 ? s->max_line : s->max_header;
        size_t have;
        int r;
        if (len > (size_t)s->max_headers + s->max_line)
            len = (size_t)s->max_headers + s->max_line;     /* (never looks at more than that) */
        have = len - s->scanned;
        lf = have ? (const char *)memchr(base + s->scanned, '\n', have) : NULL;
        if (lf == NULL) {
            s->scanned = (uint32_t)len;
            n = (uint32_t)len - s->pos;
            if (n > limit)
                return h1_scan_too_long(s);
            if (s->pos + n > s->max_headers + s->max_line - 1)
                return H1_HEAD_LONG;
            /* What cannot become a start line is refused at once: a TLS handshake has no line end. */
            if (s->stage == 0 && n && !(h1_class[(uint8_t)base[s->pos]] & H1_TOKEN) && base[s->pos] != '\r')
                return response ? H1_BAD_STATUS_LINE : H1_BAD_METHOD;
            if (s->stage == 0 && n > 1 && base[s->pos] == '\r')
                return H1_BAD_LINE_END;
            return H1_MORE;
        }
        n = (uint32_t)(lf - base) - s->pos;
        if (n == 0 || lf[-1] != '\r')
            return H1_BAD_LINE_END;
        n--;
        if (n > limit)
            return h1_scan_too_long(s);
        if (s->stage == 0) {
            if (n == 0) {
                /* RFC 9112 2.2: one empty line before a request is no part of it. */
                if (response || s->skipped)
                    return response ? H1_BAD_STATUS_LINE : H1_BAD_REQUEST_LINE;
                s->skipped = 1;
                s->pos = s->scanned = (uint32_t)(lf - base) + 1;
                return H1_MORE;     /* (the caller drops it, and calls again) */
            }
            r = response ? h1_status_line(s, base, n) : h1_request_line(s, base, n);
            if (r)
                return r;
            s->stage = 1;
        } else {
            if (n == 0) {
                s->pos = (uint32_t)(lf - base) + 1;
                return H1_DONE;
            }
            r = h1_field_line(s, base, s->pos, n);
            if (r)
                return r;
        }
        s->pos = s->scanned = (uint32_t)(lf - base) + 1;
        if (s->stage == 1 && s->pos > s->max_headers + s->max_line)
            return H1_HEAD_LONG;
    }
}

/* chunk-size [ chunk-ext ] CRLF, RFC 9112 7.1. H1_DONE: `size`, and `used` bytes were read. Neither sign, "0x" nor
   blanks; at most 15 digits. An extension is skipped; what is in it has to be field-content. */
static int h1_chunk_line(const char *p, size_t len, size_t limit, int64_t *size, size_t *used)
{
    const char *lf;
    size_t n, i;
    uint64_t v = 0;
    size_t look = len < limit + 2 ? len : limit + 2;
    lf = look ? (const char *)memchr(p, '\n', look) : NULL;
    n = lf ? (size_t)(lf - p) : look;
    for (i = 0; i < n; i++) {
        uint8_t c = (uint8_t)p[i];
        unsigned d;
        if (c >= '0' && c <= '9')
            d = c - '0';
        else if (h1_lower[c] >= 'a' && h1_lower[c] <= 'f')
            d = h1_lower[c] - 'a' + 10;
        else
            break;
        if (i == 15)
            return H1_BAD_CHUNK;
        v = v << 4 | d;
    }
    if (lf == NULL) {
        if (i < n && (i == 0 || (p[i] != ';' && !(p[i] == '\r' && i + 1 == n))))
            return H1_BAD_CHUNK;
        return len > limit ? H1_CHUNK_LONG : H1_MORE;
    }
    if (i == 0 || n == 0 || p[n - 1] != '\r')
        return H1_BAD_CHUNK;
    n--;
    if (i < n && (p[i] != ';' || !h1_is_field(p + i, n - i)))
        return H1_BAD_CHUNK;
    *size = (int64_t)v;
    *used = (size_t)(lf - p) + 1;
    return H1_DONE;
}

/* Output: a head is built in one growing piece of memory and copied into its bytes object at the end. Nothing that can
   switch threads happens in between. */
typedef struct {
    char *p;
    size_t n, room;
} h1_out;

static int h1_room(h1_out *o, size_t more)
{
    size_t room;
    char *p;
    if (o->n + more <= o->room)
        return 0;
    room = (o->n + more) * 2 + 1024;
    p = (char *)realloc(o->p, room);
    if (!p)
        return -1;
    o->p = p;
    o->room = room;
    return 0;
}

static inline int h1_put(h1_out *o, const char *p, size_t n)
{
    if (o->n + n > o->room && h1_room(o, n))
        return -1;
    memcpy(o->p + o->n, p, n);
    o->n += n;
    return 0;
}

static inline int h1_put_number(h1_out *o, int64_t value)
{
    char digits[20];
    int i = 20;
    do {
        digits[--i] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    return h1_put(o, digits + i, (size_t)(20 - i));
}

static inline int h1_put_hex(h1_out *o, uint64_t value)
{
    char digits[16];
    int i = 16;
    do {
        digits[--i] = "0123456789abcdef"[value & 15];
        value >>= 4;
    } while (value);
    return h1_put(o, digits + i, (size_t)(16 - i));
}

#endif
