/* An imitation of kqueue(2) for Linux, to run the poller of the BSDs and its tests where there is no BSD.
 *
 * Written from the manual pages of FreeBSD and macOS, and strict: it does what they promise and nothing that only
 * one implementation happens to do.  Real descriptors are watched, by an epoll instance for each of READ, WRITE and
 * EXCEPT, by pidfd_open(2) for PROC and inotify(7) for VNODE.  What is imitated:
 *
 *  - changes are applied first, in order; a refused one becomes an event with EV_ERROR, or -1 when there is no room;
 *    when there was one, the call returns without looking for events.  EV_RECEIPT.  EINTR comes after the changes.
 *  - level-triggered by default; EV_CLEAR, EV_ONESHOT, EV_DISPATCH, EV_ENABLE, EV_DISABLE.  Adding what is there
 *    changes its udata and fflags and enables it, but neither its kind nor what EV_CLEAR has reported already.
 *  - closing a descriptor ends its registrations.  A library cannot see close(2); so at each call descriptors are
 *    compared (fstat(2)) with the file that was registered.  Not noticed: the same file put back under its number.
 *  - data: bytes that can be read or written, length of a listener's queue.  EV_EOF, with data that is left.
 *  - EVFILT_PROC for a process that is dead but not reaped: ESRCH as on macOS, or after fake_zombies(1) the event at
 *    once as on FreeBSD.
 *  - the queue is not inherited by fork(2).
 *
 * Not imitated: EVFILT_SIGNAL, EVFILT_TIMER and EVFILT_AIO (EINVAL), which the poller does not use; fflags of EV_EOF,
 * because reading a socket's error on Linux takes it away from the program.  fake_inject() makes such events by hand.
 *
 * Cost: linear in the number of registrations for each call.  Only for tests.  Longer than most files, because it is
 * loaded as one library without any other. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <linux/sockios.h>
#include <time.h>
#include <unistd.h>

#include "_poll/kqueue.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#define EXPORT __attribute__((visibility("default")))

enum { EV_DISABLE_ = 0x0008, MOST_QUEUES = 64, MOST_INJECTED = 64 };
enum { WATCH_READ, WATCH_WRITE, WATCH_EXCEPT, WATCHES };

typedef struct knote {
    struct knote *next;
    struct kevent e;         /* udata, fflags as asked for; data and fflags of the event are computed */
    unsigned int kind;       /* EV_CLEAR, EV_ONESHOT, EV_DISPATCH */
    int enabled;
    int armed;               /* level-triggered: epoll will report once */
    int pending;             /* happened, not delivered */
    uint32_t seen;           /* PROC, VNODE, USER: what happened */
    uint32_t id;             /* names it in epoll's data */
    dev_t dev;
    ino_t ino;
    int watch;               /* PROC: pidfd; VNODE: inotify watch */
    uint64_t size, links;    /* VNODE */
} knote;

typedef struct queue {
    int kq;                  /* the number the program sees: that of the first epoll instance */
    int ep[WATCHES];         /* side by side: nested ones take only some hundred duplicates of a file */
    int trigger, inotify;
    int turn;
    int waiting;
    uint32_t next_id;
    knote *notes;
} queue;

static queue *queues[MOST_QUEUES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* What tests steer and read. */
static struct kevent injected[MOST_INJECTED];
static int n_injected, zombies_fire, die_first, interrupt_calls, refuse_filter, refuse_errno, room_limit;
static long calls, changes_made;

static int watch_of(int filter) {
    return filter == EVFILT_READ ? WATCH_READ : filter == EVFILT_WRITE ? WATCH_WRITE
         : filter == EVFILT_EXCEPT ? WATCH_EXCEPT : -1;
}

static uint32_t interest(int filter) {
    return filter == EVFILT_READ ? EPOLLIN | EPOLLRDHUP | EPOLLPRI : filter == EVFILT_WRITE ? EPOLLOUT : EPOLLPRI;
}

static queue *find_queue(int kq) {
    for (int i = 0; i < MOST_QUEUES; i++)
        if (queues[i] != NULL && queues[i]->kq == kq) return queues[i];
    return NULL;
}

static int set_epoll(int ep, int op, int fd, uint32_t events, uint64_t data) {
    struct epoll_event e = { .events = events, .data.u64 = data };
    return epoll_ctl(ep, op, fd, &e) < 0 ? errno : 0;
}

static knote *find_note(queue *q, uintptr_t ident, int filter) {
    for (knote *k = q->notes; k != NULL; k = k->next)
        if (k->e.ident == ident && k->e.filter == filter) return k;
    return NULL;
}

static void drop_note(queue *q, knote *k, int closed) {
    int w = watch_of(k->e.filter);
    for (knote **p = &q->notes; *p != NULL; p = &(*p)->next)
        if (*p == k) {
            *p = k->next;
            break;
        }
    if (w >= 0 && !closed) epoll_ctl(q->ep[w], EPOLL_CTL_DEL, (int)k->e.ident, NULL);
    if (k->e.filter == EVFILT_PROC && k->watch >= 0) close(k->watch);
    if (k->e.filter == EVFILT_VNODE) {
        int shared = 0;
        for (knote *o = q->notes; o != NULL; o = o->next)
            shared |= o->e.filter == EVFILT_VNODE && o->watch == k->watch;
        if (!shared) inotify_rm_watch(q->inotify, k->watch);
    }
    free(k);
}

/* Registrations of descriptors that were closed are gone. */
static void drop_closed(queue *q) {
    knote *next;
    for (knote *k = q->notes; k != NULL; k = next) {
        struct stat st;
        next = k->next;
        if (watch_of(k->e.filter) < 0 && k->e.filter != EVFILT_VNODE) continue;
        if (fstat((int)k->e.ident, &st) < 0 || st.st_dev != k->dev || st.st_ino != k->ino) drop_note(q, k, 1);
    }
}

static int ended(int pid) {
    siginfo_t info;
    memset(&info, 0, sizeof info);
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

static int links_and_size(knote *k) {
    struct stat st;
    if (fstat((int)k->e.ident, &st) < 0) return -1;
    k->size = (uint64_t)st.st_size;
    k->links = (uint64_t)st.st_nlink;
    return 0;
}

static int attach(queue *q, knote *k) {
    int w = watch_of(k->e.filter), fd = (int)k->e.ident, e;
    struct stat st;
    char path[40];
    if (w >= 0 || k->e.filter == EVFILT_VNODE) {
        if (fstat(fd, &st) < 0) return EBADF;
        k->dev = st.st_dev;
        k->ino = st.st_ino;
    }
    if (w >= 0) {
        uint32_t events = interest(k->e.filter) | (k->kind & EV_CLEAR ? EPOLLET : EPOLLONESHOT);
        e = set_epoll(q->ep[w], EPOLL_CTL_ADD, fd, events, (uint64_t)k->id);
        if (e == EEXIST)                         /* left by a closed one */
            e = set_epoll(q->ep[w], EPOLL_CTL_MOD, fd, events, (uint64_t)k->id);
        k->armed = 1;
        return e;
    }
    switch (k->e.filter) {
    case EVFILT_USER:
        return 0;
    case EVFILT_VNODE:
        links_and_size(k);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        k->watch = inotify_add_watch(q->inotify, path,
                                     IN_MODIFY | IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF | IN_CREATE | IN_DELETE |
                                     IN_MOVED_FROM | IN_MOVED_TO | IN_MASK_ADD);
        return k->watch < 0 ? errno : 0;
    case EVFILT_PROC:
        if (die_first) {
            siginfo_t info;
            die_first = 0;
            kill(fd, SIGKILL);
            waitid(P_PID, (id_t)fd, &info, WEXITED | WNOWAIT);
        }
        if (ended(fd)) {
            if (!zombies_fire) return ESRCH;
            k->pending = 1;
            k->seen = NOTE_EXIT;
            return 0;
        }
        k->watch = (int)syscall(SYS_pidfd_open, fd, 0);
        if (k->watch < 0) return errno == EINVAL ? ESRCH : errno;
        return set_epoll(q->ep[WATCH_READ], EPOLL_CTL_ADD, k->watch, EPOLLIN | EPOLLONESHOT, (uint64_t)k->id);
    }
    return EINVAL;
}

static int change_one(queue *q, const struct kevent *c) {
    knote *k;
    int e;
    if (refuse_errno && c->filter == refuse_filter && !(c->flags & EV_DELETE)) {
        e = refuse_errno;
        refuse_errno = 0;
        return e;
    }
    if (watch_of(c->filter) < 0 && c->filter != EVFILT_VNODE && c->filter != EVFILT_PROC && c->filter != EVFILT_USER)
        return EINVAL;
    if ((watch_of(c->filter) >= 0 || c->filter == EVFILT_VNODE) && fcntl((int)c->ident, F_GETFD) < 0) return EBADF;
    k = find_note(q, c->ident, c->filter);
    if (k == NULL) {
        if (!(c->flags & EV_ADD)) return ENOENT;
        k = calloc(1, sizeof *k);
        if (k == NULL) return ENOMEM;
        k->e = *c;
        k->kind = c->flags & (EV_CLEAR | EV_ONESHOT | EV_DISPATCH);
        k->id = ++q->next_id;
        k->watch = -1;
        k->enabled = !(c->flags & EV_DISABLE_);
        e = attach(q, k);
        if (e) {
            free(k);
            return e;
        }
        k->next = q->notes;
        q->notes = k;
        return 0;
    }
    if (c->flags & EV_DELETE) {
        drop_note(q, k, 0);
        return 0;
    }
    k->e.udata = c->udata;
    if (c->filter == EVFILT_USER) {
        if (c->fflags & NOTE_TRIGGER) {
            uint64_t one = 1;
            k->pending = 1;
            if (write(q->trigger, &one, sizeof one) < 0) return errno;
        }
    } else {
        k->e.fflags = c->fflags;
    }
    if (c->flags & EV_DISABLE_)
        k->enabled = 0;
    else if (c->flags & (EV_ENABLE | EV_ADD))
        k->enabled = 1;
    return 0;
}

static intptr_t readable(int fd) {
    int n = 0, listening = 0;
    socklen_t size = sizeof listening;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 && listening) {
        struct tcp_info info;
        size = sizeof info;
        if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0) return (intptr_t)info.tcpi_unacked;
        return 1;
    }
    return ioctl(fd, FIONREAD, &n) < 0 ? 0 : n;
}

static intptr_t writable(int fd) {
    int room = 0, used = 0;
    socklen_t size = sizeof room;
    if (getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, &size) == 0) {
        if (ioctl(fd, SIOCOUTQ, &used) < 0) used = 0;
    } else {
        room = fcntl(fd, F_GETPIPE_SZ);
        if (room < 0 || ioctl(fd, FIONREAD, &used) < 0) used = 0;
    }
    return room > used ? room - used : 1;
}

static int is_datagram(int fd) {
    int type = 0;
    socklen_t size = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type != SOCK_STREAM;
}

/* Deliver a registration; the state after it depends on its kind. */
static void deliver(queue *q, knote *k, uint32_t mask, struct kevent *out) {
    int fd = (int)k->e.ident;
    *out = k->e;
    out->flags = (unsigned short)k->kind;
    out->fflags = k->seen;
    out->data = 0;
    switch (k->e.filter) {
    case EVFILT_READ:
        out->fflags = 0;
        out->data = readable(fd);
        if (mask & (EPOLLRDHUP | EPOLLHUP) || (mask & EPOLLERR && !is_datagram(fd))) out->flags |= EV_EOF;
        if (mask & EPOLLPRI) out->flags |= EV_OOBAND;
        break;
    case EVFILT_WRITE:
        out->fflags = 0;
        out->data = writable(fd);
        if (mask & EPOLLHUP || (mask & EPOLLERR && !is_datagram(fd))) out->flags |= EV_EOF;
        break;
    case EVFILT_EXCEPT:
        out->fflags = mask & EPOLLPRI ? NOTE_OOB : 0;
        if (mask & (EPOLLHUP | EPOLLERR)) out->flags |= EV_EOF;
        break;
    }
    k->pending = 0;
    k->seen = 0;
    if (k->kind & EV_ONESHOT)
        drop_note(q, k, 0);
    else if (k->kind & EV_DISPATCH)
        k->enabled = 0;
}

static void note_file(knote *k, uint32_t mask) {
    uint64_t size = k->size, links = k->links;
    uint32_t bits = 0;
    links_and_size(k);
    if (mask & IN_MODIFY) bits |= 0x02 | (k->size > size ? 0x04 : 0);
    if (mask & (IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)) bits |= 0x02 | (mask & IN_ISDIR ? 0x10 : 0);
    if (mask & IN_ATTRIB) bits |= k->links == 0 ? 0x01 : k->links != links ? 0x10 : 0x08;
    if (mask & IN_MOVE_SELF) bits |= 0x20;
    if (mask & IN_DELETE_SELF) bits |= 0x01;
    if (mask & IN_UNMOUNT) bits |= 0x40;
    bits &= k->e.fflags;
    k->seen |= bits;
    if (bits) k->pending = 1;
}

static void read_inotify(queue *q) {
    _Alignas(struct inotify_event) char buffer[4096];
    ssize_t n;
    while ((n = read(q->inotify, buffer, sizeof buffer)) > 0)
        for (char *p = buffer; p < buffer + n;) {
            struct inotify_event *e = (struct inotify_event *)p;
            p += sizeof *e + e->len;
            /* Of a file in a watched folder: only its coming and going changes the folder. */
            if (e->len) e->mask &= ~(uint32_t)(IN_MODIFY | IN_ATTRIB);
            for (knote *k = q->notes; k != NULL; k = k->next)
                if (k->e.filter == EVFILT_VNODE && k->watch == e->wd) note_file(k, e->mask);
        }
}

/* Level-triggered registrations are looked at anew in each call. */
static void arm_all(queue *q) {
    for (knote *k = q->notes; k != NULL; k = k->next) {
        int w = watch_of(k->e.filter);
        if (w < 0 || k->kind & EV_CLEAR || !k->enabled || k->armed) continue;
        set_epoll(q->ep[w], EPOLL_CTL_MOD, (int)k->e.ident, interest(k->e.filter) | EPOLLONESHOT, (uint64_t)k->id);
        k->armed = 1;
    }
}

static int collect(queue *q, struct kevent *events, int room) {
    struct epoll_event found[64];
    uint64_t count;
    knote *k, *next;
    int n = 0, full = 0;
    if (room_limit && room > room_limit) room = room_limit;
    while (n < room && n_injected > 0) {
        events[n++] = injected[0];
        memmove(injected, injected + 1, (size_t)--n_injected * sizeof injected[0]);
    }
    if (read(q->trigger, &count, sizeof count) < 0 && errno != EAGAIN) return n;
    read_inotify(q);
    for (int i = 0; i < WATCHES && n < room; i++) {
        int w = (q->turn + i) % WATCHES, got;
        do {
            int want = room - n < 64 ? room - n : 64;
            got = epoll_wait(q->ep[w], found, want, 0);
            for (int j = 0; j < got; j++) {
                for (k = q->notes; k != NULL && k->id != (uint32_t)found[j].data.u64; k = k->next) {}
                if (k == NULL) continue;         /* of a file that was closed */
                k->armed = 0;
                if (k->e.filter == EVFILT_PROC) {
                    k->pending = 1;
                    k->seen = NOTE_EXIT;
                } else if (!k->enabled) {
                    k->pending = k->kind & EV_CLEAR ? 1 : 0;
                } else {
                    deliver(q, k, found[j].events, &events[n++]);
                }
            }
            full = got == want;
        } while (full && n < room);
    }
    q->turn++;
    for (k = q->notes; k != NULL && n < room; k = next) {
        next = k->next;
        if (k->pending && k->enabled) deliver(q, k, 0, &events[n++]);
    }
    if (n == room && room > 0) {
        uint64_t one = 1;                        /* there may be more: do not sleep in the next call */
        if (write(q->trigger, &one, sizeof one) < 0) return n;
    }
    return n;
}

static int64_t now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

EXPORT int kevent(int kq, const struct kevent *changes, int n_changes, struct kevent *events, int room,
                  const struct timespec *timeout) {
    int64_t until = timeout == NULL ? -1 : now_ns() + (int64_t)timeout->tv_sec * 1000000000 + timeout->tv_nsec;
    int n = 0, any = 0, i, e;
    queue *q;
    pthread_mutex_lock(&lock);
    calls++;
    changes_made += n_changes;
    q = find_queue(kq);
    if (q == NULL || set_epoll(kq, EPOLL_CTL_MOD, q->trigger, EPOLLIN, 0) != 0) {
        pthread_mutex_unlock(&lock);
        errno = EBADF;
        return -1;
    }
    drop_closed(q);
    for (i = 0; i < n_changes; i++) {
        e = change_one(q, &changes[i]);
        if (e == 0 && !(changes[i].flags & EV_RECEIPT)) continue;
        if (n == room) {
            pthread_mutex_unlock(&lock);
            if (e == 0) return n;
            errno = e;
            return -1;
        }
        events[n] = changes[i];
        events[n].flags = EV_ERROR;
        events[n].data = e;
        n++;
        any = 1;
    }
    if (any || room == 0) {
        pthread_mutex_unlock(&lock);
        return n;
    }
    if (interrupt_calls) {
        interrupt_calls--;
        pthread_mutex_unlock(&lock);
        errno = EINTR;
        return -1;
    }
    for (;;) {
        struct pollfd p[] = {
            { q->ep[0], POLLIN, 0 }, { q->ep[1], POLLIN, 0 }, { q->ep[2], POLLIN, 0 }, { q->inotify, POLLIN, 0 },
        };
        struct timespec left = { 0, 0 };
        int64_t ns = 0;
        arm_all(q);
        n = collect(q, events, room);
        if (n > 0) break;
        if (until >= 0) {
            ns = until - now_ns();
            if (ns <= 0) break;
            left.tv_sec = ns / 1000000000;
            left.tv_nsec = ns % 1000000000;
        }
        pthread_mutex_unlock(&lock);
        i = ppoll(p, 4, until < 0 ? NULL : &left, NULL);
        e = errno;
        pthread_mutex_lock(&lock);
        if (i < 0) {
            pthread_mutex_unlock(&lock);
            errno = e;
            return -1;
        }
    }
    pthread_mutex_unlock(&lock);
    return n;
}

static void destroy(queue *q) {
    while (q->notes != NULL) drop_note(q, q->notes, 1);
    for (int i = 1; i < WATCHES; i++) close(q->ep[i]);
    close(q->trigger);
    close(q->inotify);
    for (int i = 0; i < MOST_QUEUES; i++)
        if (queues[i] == q) queues[i] = NULL;
    free(q);
}

static void before_fork(void) { pthread_mutex_lock(&lock); }

static void after_fork(void) { pthread_mutex_unlock(&lock); }

static void after_fork_in_child(void) {
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < MOST_QUEUES; i++)
        if (queues[i] != NULL) {
            close(queues[i]->kq);
            destroy(queues[i]);
        }
}

EXPORT int kqueue(void) {
    static int hooked;
    queue *q = calloc(1, sizeof *q);
    int i, place = -1;
    if (q == NULL) return -1;
    pthread_mutex_lock(&lock);
    if (!hooked) {
        pthread_atfork(before_fork, after_fork, after_fork_in_child);
        hooked = 1;
    }
    for (i = 0; i < MOST_QUEUES && place < 0; i++)
        if (queues[i] == NULL) place = i;
    q->trigger = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    q->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    for (i = 0; i < WATCHES; i++) q->ep[i] = epoll_create1(EPOLL_CLOEXEC);
    q->kq = q->ep[0];
    set_epoll(q->kq, EPOLL_CTL_ADD, q->trigger, EPOLLIN, 0);
    if (place < 0 || q->kq < 0 || q->trigger < 0 || q->inotify < 0) {
        pthread_mutex_unlock(&lock);
        errno = EMFILE;
        return -1;
    }
    queues[place] = q;
    pthread_mutex_unlock(&lock);
    return q->kq;
}

EXPORT int kqueue_close(int kq) {
    queue *q;
    pthread_mutex_lock(&lock);
    q = find_queue(kq);
    if (q != NULL) destroy(q);
    pthread_mutex_unlock(&lock);
    return close(kq);
}

/* -- for tests */

/* The next call finds this event first. */
EXPORT int fake_inject(uintptr_t ident, int filter, unsigned int flags, unsigned int fflags, intptr_t data,
                       void *udata) {
    struct kevent e = { ident, (short)filter, (unsigned short)flags, fflags, data, udata };
    if (n_injected == MOST_INJECTED) return -1;
    injected[n_injected++] = e;
    return 0;
}

/* The next change with this filter, deletions aside, is refused. */
EXPORT void fake_refuse(int filter, int error) {
    refuse_filter = filter;
    refuse_errno = error;
}

/* So many calls that would look for events end with EINTR. */
EXPORT void fake_interrupt(int n) { interrupt_calls = n; }

/* No call returns more events than this (0: no limit). */
EXPORT void fake_room(int n) { room_limit = n; }

EXPORT void fake_zombies(int fire) { zombies_fire = fire; }

/* The next process to be registered is killed just before. */
EXPORT void fake_die_first(void) { die_first = 1; }

EXPORT long fake_calls(void) { return calls; }

EXPORT long fake_changes(void) { return changes_made; }

/* udata of a registration in any queue, or -1 when there is none. */
EXPORT int64_t fake_udata(uintptr_t ident, int filter) {
    for (int i = 0; i < MOST_QUEUES; i++)
        if (queues[i] != NULL) {
            knote *k = find_note(queues[i], ident, filter);
            if (k != NULL) return (int64_t)(uintptr_t)k->e.udata;
        }
    return -1;
}
