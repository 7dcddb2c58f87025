/* kqueue(2) behind a table of functions, so that the poller's logic can be compiled, and run, without a BSD.
 *
 * On FreeBSD and macOS the table points at the system's own calls, and names and layout come from <sys/event.h>.
 * Elsewhere they are declared here, with FreeBSD's numbers and the layout that macOS and libkqueue share, and the table
 * is empty until coro_kq_load() fills it from a shared library: the tests' own imitation, or libkqueue.  That library
 * has a header, too: -DCORO_KQUEUE_HEADER compiles against it, as a check of what is written here.
 *
 * Cost: an indirect call for each poll. */

#ifndef CORO_KQUEUE_H
#define CORO_KQUEUE_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#if defined(__APPLE__) || defined(__FreeBSD__)
#define CORO_KQUEUE_NATIVE 1
#endif

#if defined(CORO_KQUEUE_NATIVE) || defined(CORO_KQUEUE_HEADER)
#include <sys/event.h>
#else

struct kevent {
    uintptr_t ident;
    short filter;
    unsigned short flags;
    unsigned int fflags;
    intptr_t data;
    void *udata;
};

#define EVFILT_READ (-1)
#define EVFILT_WRITE (-2)
#define EVFILT_VNODE (-4)
#define EVFILT_PROC (-5)
#define EVFILT_USER (-11)
#define EVFILT_EXCEPT (-15)

#define EV_ADD 0x0001
#define EV_DELETE 0x0002
#define EV_ENABLE 0x0004
#define EV_ONESHOT 0x0010
#define EV_CLEAR 0x0020
#define EV_RECEIPT 0x0040
#define EV_DISPATCH 0x0080
#define EV_OOBAND 0x2000
#define EV_ERROR 0x4000
#define EV_EOF 0x8000

#define NOTE_TRIGGER 0x01000000
#define NOTE_EXIT 0x80000000
#define NOTE_OOB 0x00000002

#endif

#ifndef EV_OOBAND               /* macOS: urgent data is in the socket */
#define EV_OOBAND 0
#endif
#ifdef EVFILT_EXCEPT            /* macOS only */
#define CORO_EVFILT_EXCEPT EVFILT_EXCEPT
#define CORO_NOTE_OOB NOTE_OOB
#else
#define CORO_EVFILT_EXCEPT 0
#define CORO_NOTE_OOB 0
#endif

typedef struct {
    int (*kqueue)(void);
    int (*kevent)(int, const struct kevent *, int, struct kevent *, int, const struct timespec *);
    int (*close)(int);
    /* closing a descriptor leaves its knotes behind (libkqueue): they are deleted first, with a call of their own */
    int sloppy_close;
} coro_kq_table;

#ifdef CORO_KQUEUE_NATIVE
static coro_kq_table coro_kq = { kqueue, kevent, close, 0 };
#else
static coro_kq_table coro_kq;
#endif

/* NULL, or what the loader says. */
static const char *coro_kq_load(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    coro_kq_table t;
    if (library == NULL) return dlerror();
    *(void **)&t.kqueue = dlsym(library, "kqueue");
    *(void **)&t.kevent = dlsym(library, "kevent");
    *(void **)&t.close = dlsym(library, "kqueue_close");
    if (t.kqueue == NULL || t.kevent == NULL) return "it has no functions kqueue and kevent";
    t.sloppy_close = t.close == NULL;
    if (t.close == NULL) t.close = close;
    coro_kq = t;
    return NULL;
}

static int coro_kq_open(void) {
    int kq = coro_kq.kqueue();
    if (kq >= 0) fcntl(kq, F_SETFD, FD_CLOEXEC);
    return kq;
}

/* One call.  ns < 0: no limit.  Returns the number of events, or -errno. */
static int coro_kq_call(int kq, const struct kevent *changes, int n_changes, struct kevent *events, int room,
                        int64_t ns) {
    struct timespec ts;
    int n;
    if (ns >= 0) {
        /* Systems differ in what they take; an early return costs a turn of the loop once a day. */
        if (ns > INT64_C(86400) * 1000000000) ns = INT64_C(86400) * 1000000000;
        ts.tv_sec = (time_t)(ns / 1000000000);
        ts.tv_nsec = (long)(ns % 1000000000);
    }
    n = coro_kq.kevent(kq, changes, n_changes, events, room, ns < 0 ? NULL : &ts);
    return n < 0 ? -errno : n;
}

static void coro_kq_set(struct kevent *e, uintptr_t ident, int filter, unsigned int flags, unsigned int fflags,
                        uintptr_t udata) {
    memset(e, 0, sizeof *e);
    e->ident = ident;
    e->filter = (short)filter;
    e->flags = (unsigned short)flags;
    e->fflags = fflags;
    e->udata = (void *)udata;
}

/* One change, now, without fetching events: 0 or errno. */
static int coro_kq_apply(int kq, uintptr_t ident, int filter, unsigned int flags, unsigned int fflags,
                         uintptr_t udata) {
    struct kevent change, receipt;
    int n;
    coro_kq_set(&change, ident, filter, flags | EV_RECEIPT, fflags, udata);
    n = coro_kq_call(kq, &change, 1, &receipt, 1, 0);
    if (n < 0) return -n;
    return n > 0 && receipt.flags & EV_ERROR ? (int)receipt.data : 0;
}

/* From another OS thread. */
static void coro_kq_trigger(int kq) {
    struct kevent change;
    coro_kq_set(&change, 0, EVFILT_USER, 0, NOTE_TRIGGER, 0);
    coro_kq_call(kq, &change, 1, NULL, 0, 0);
}

/* 0: may be watched; 1: a file or folder, which is always ready; -errno */
static int coro_kq_is_file(int fd) {
    struct stat st;
    if (fstat(fd, &st) < 0) return -errno;
    return S_ISREG(st.st_mode) || S_ISDIR(st.st_mode);
}

#endif
