/* What signal handlers write: text put together in a buffer and written when it is full or finished.

   All of it is async-signal-safe: no memory is asked for, no lock taken, no reference counted, and only write(2)
   called.

   Names come from programs and from what they have read. They are escaped as repr() does it: a name cannot end its
   line, forge another one or give orders to a terminal. What is printable is written in UTF-8, whatever the locale. */
#ifndef CORO_SIGNAL_TEXT_H
#define CORO_SIGNAL_TEXT_H

#include <Python.h>
#include <unistd.h>

enum {
    CORO_TEXT_BUFFER = 256,
    CORO_TEXT_LONGEST_NAME = 500, /* characters; longer names end in "..." */
};

typedef struct {
    int fd;
    size_t used;
    char bytes[CORO_TEXT_BUFFER];
} coro_text;

/* Who runs, as the scheduler tells a signal handler on the loop's OS thread. */
typedef struct {
    int running;               /* a thread runs, not main */
    unsigned long long number; /* its id */
    PyObject *name;            /* borrowed; a str, or NULL where there is none */
    const void *slot;          /* where its stack is */
    int frames_known;          /* the thread state describes what runs, so its frames can be walked */
} coro_who;

typedef void (*coro_look)(coro_who *);

static inline void
coro_text_begin(coro_text *t, int fd)
{
    t->fd = fd;
    t->used = 0;
}

static inline void
coro_text_flush(coro_text *t)
{
    ssize_t ignored = write(t->fd, t->bytes, t->used);
    (void)ignored;
    t->used = 0;
}

static inline void
coro_text_byte(coro_text *t, unsigned byte)
{
    if (t->used == sizeof(t->bytes)) {
        coro_text_flush(t);
    }
    t->bytes[t->used++] = (char)byte;
}

static inline void
coro_text_add(coro_text *t, const char *text)
{
    for (; *text != 0; text++) {
        coro_text_byte(t, (unsigned char)*text);
    }
}

static inline void
coro_text_number(coro_text *t, unsigned long long number)
{
    char digits[24];
    int i = (int)sizeof(digits) - 1;
    digits[i] = 0;
    do {
        digits[--i] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    coro_text_add(t, digits + i);
}

static inline void
coro_text_hex(coro_text *t, char letter, unsigned digits, Py_UCS4 c)
{
    coro_text_byte(t, '\\');
    coro_text_byte(t, (unsigned char)letter);
    while (digits > 0) {
        digits--;
        coro_text_byte(t, (unsigned char)"0123456789abcdef"[c >> (4 * digits) & 15]);
    }
}

/* One character of a name; `quote` is what stands around the name, 0 for nothing. */
static inline void
coro_text_character(coro_text *t, Py_UCS4 c, char quote)
{
    if (c == '\\' || (quote != 0 && c == (Py_UCS4)(unsigned char)quote)) {
        coro_text_byte(t, '\\');
        coro_text_byte(t, c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
        coro_text_byte(t, '\\');
        coro_text_byte(t, c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    } else if (c >= ' ' && c < 0x7f) {
        coro_text_byte(t, c);
    } else if (!Py_UNICODE_ISPRINTABLE(c)) {
        coro_text_hex(t, c < 0x100 ? 'x' : c < 0x10000 ? 'u' : 'U', c < 0x100 ? 2 : c < 0x10000 ? 4 : 8, c);
    } else if (c < 0x800) {
        coro_text_byte(t, 0xc0 | c >> 6);
        coro_text_byte(t, 0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        coro_text_byte(t, 0xe0 | c >> 12);
        coro_text_byte(t, 0x80 | (c >> 6 & 0x3f));
        coro_text_byte(t, 0x80 | (c & 0x3f));
    } else {
        coro_text_byte(t, 0xf0 | c >> 18);
        coro_text_byte(t, 0x80 | (c >> 12 & 0x3f));
        coro_text_byte(t, 0x80 | (c >> 6 & 0x3f));
        coro_text_byte(t, 0x80 | (c & 0x3f));
    }
}

/* A name, escaped, "?" for what is no string. */
static inline void
coro_text_name(coro_text *t, PyObject *name, char quote)
{
    Py_ssize_t i, length;
    if (name == NULL || !PyUnicode_Check(name)
#if PY_VERSION_HEX < 0x030C0000
        || !PyUnicode_IS_READY(name)
#endif
    ) {
        coro_text_byte(t, '?');
        return;
    }
    length = PyUnicode_GET_LENGTH(name);
    for (i = 0; i < length && i < CORO_TEXT_LONGEST_NAME; i++) {
        coro_text_character(t, PyUnicode_READ_CHAR(name, i), quote);
    }
    if (i < length) {
        coro_text_add(t, "...");
    }
}

/* A thread: thread #3 'its name' */
static inline void
coro_text_thread(coro_text *t, const coro_who *who)
{
    coro_text_add(t, "thread #");
    coro_text_number(t, who->number);
    coro_text_add(t, " '");
    coro_text_name(t, who->name, '\'');
    coro_text_add(t, "'");
}

#endif
