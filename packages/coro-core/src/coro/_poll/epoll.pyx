# cython: language_level=3, binding=False, auto_pickle=False, embedsignature=True, embedsignature.format=clinic
"""The Linux side of the poller: epoll, with pidfd for processes (SIGCHLD where that is refused) and inotify for files.

Owned descriptors are registered once for reading, edge triggered, and once more when a thread first waits to write
(from the start would mean an event "writable" for each new connection): after that a wait costs no system call.
Edge triggering also means that no event can repeat for ever, whatever nobody reads.  Other descriptors are
registered for one event at a time (EPOLLONESHOT), with one mask for all their waiters; where the kernel
answers ENOENT the number was closed and belongs to another file now, so it is added anew and older waiters
are told.

Longer than most files here, because epoll, pidfd and inotify share one event buffer and one way of dispatching.

The event data carry the descriptor number and the generation of its record.  Bit 31 marks the poller's own
descriptors.

Sleeping is exact to the kernel's high-resolution timers with epoll_pwait2(2) (Linux 5.11); where that is
missing the time is rounded up to milliseconds, so a timer may be late by one but the loop never spins.  A call
that may sleep long takes no timeout: setting up and taking down a kernel timer for each of a server's sleeps,
which nearly always end by an event, costs as much as an epoll_wait.  Instead an alarm, a timerfd(2), is left
running over many sleeps.  It is set only where it would ring too late; when it rings too early, which happens
once for each time it was set, the loop finds nothing due and sleeps on.  The interpreter lock is released only
where the call may sleep, and only if there is another OS thread (glibc says so since 2.32): to hand it over and back
are a fifth of the instructions of a request where one connection is busy.  Beside another OS thread a look with the
lock may go before the sleep without it: `_poll/events.pyx` says when.

Costs: one epoll_wait per turn, 12 KiB for its buffer, five descriptors (epoll, eventfd, alarm, the two ends of
the signal pipe; with VNODE a sixth).  poll() makes no Python object for a thread that waits in a socket call.

What inotify(7) can say about an open file: DELETE is seen when the last link goes, EXTEND by comparing sizes,
LINK by comparing link counts, WRITE, ATTRIB and RENAME directly, REVOKE when the file system is unmounted.
Changes made through mmap(2) are not seen.
"""

from libc.errno cimport EBADF, ECHILD, EEXIST, EINTR, EINVAL, ENOENT, ENOSYS, EPERM, ESRCH, errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF

from coro._poll.events cimport EventPoller, UNLOOKED
from coro._poll.descriptors cimport (
    EV_EOF, EV_ERROR, FD_EXCEPT_READY, FD_HANDLERS, FD_NO_SHORTCUT, FD_OWNED, FD_READ_READY, FD_REGISTERED,
    FD_WRITE_READY, FOREIGN, F_PROC, F_READ, F_SIGNAL, F_WRITE, fd_lookup, fd_state, fd_wanted, kevent_target,
    new_event, new_key,
)
from coro._runtime.abi cimport require_abi
from coro._runtime.likely cimport likely, unlikely
from coro._runtime.scheduler cimport TimerTarget, coro, sleep_note, timer_add, timer_cancel, wake
from coro._clock.ticks cimport from_ns, now as ticks_now

import signal as _signal

from coro import oserrors
from coro._poll.events import _ignore_signal
from coro.exceptions import LoopError

require_abi()

cdef int *asleep = sleep_note()

cdef extern from *:
    """
    #include <dlfcn.h>
    #include <errno.h>
    #include <limits.h>
    #include <stdint.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/epoll.h>
    #include <sys/eventfd.h>
    #include <sys/inotify.h>
    #include <sys/syscall.h>
    #include <sys/timerfd.h>
    #include <time.h>
    #include <unistd.h>

    #define CORO_OWN_TAG 0x80000000u
    #define CORO_NOTE_EXIT 0x80000000u
    #define CORO_OWNED_MASK ((uint32_t)(EPOLLIN | EPOLLRDHUP | EPOLLPRI) | (uint32_t)EPOLLET)
    #define CORO_BROKEN ((uint32_t)(EPOLLHUP | EPOLLERR))

    #ifndef SYS_pidfd_open
    #define SYS_pidfd_open 434
    #endif
    #define CORO_SYS_EPOLL_PWAIT2 441    /* the same number on every architecture */

    static int coro_epoll_ms(int64_t ns) {
        if (ns < 0) return -1;
        if (ns / 1000000 >= INT_MAX) return INT_MAX;
        return (int)(ns / 1000000 + (ns % 1000000 != 0));
    }

    /* Sleeps from here on are left to the alarm: long enough that few are, short beside what people wait for. */
    enum { CORO_LONG_SLEEP = 20 * 1000 * 1000 };

    typedef struct {
        int fd;                 /* -1: not there */
        int64_t rings_at;       /* CLOCK_MONOTONIC, ns; 0: not set */
        int64_t set_for;        /* the sleep it was set for, ns; 0: it rang since, or was not set */
    } coro_alarm;

    static int64_t coro_alarm_clock_ns(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    }

    /* Edge triggered: nobody ever reads how often it rang.  Where there is none, each sleep has its own timeout. */
    static void coro_alarm_open(coro_alarm *alarm, int ep, uint64_t data) {
        struct epoll_event ev;
        memset(&ev, 0, sizeof ev);
        ev.events = EPOLLIN | EPOLLET;
        ev.data.u64 = data;
        alarm->rings_at = alarm->set_for = 0;
        alarm->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (alarm->fd >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, alarm->fd, &ev) < 0) {
            close(alarm->fd);
            alarm->fd = -1;
        }
    }

    /* Have the alarm ring in at most ns.  0: that cannot be had. */
    static int coro_alarm_set(coro_alarm *alarm, int64_t ns) {
        int64_t now, when;
        struct itimerspec wanted;
        now = coro_alarm_clock_ns();
        if (ns > INT64_MAX - now) ns = INT64_MAX - now;
        when = now + ns;
        if (alarm->rings_at > now && alarm->rings_at <= when) return 1;
        memset(&wanted, 0, sizeof wanted);
        /* Relative: a library that fakes the clock (libfaketime) does not fake that of the kernel's timers. */
        wanted.it_value.tv_sec = (time_t)(ns / 1000000000);
        wanted.it_value.tv_nsec = (long)(ns % 1000000000);
        if (timerfd_settime(alarm->fd, 0, &wanted, NULL) < 0) return 0;
        alarm->rings_at = when;
        alarm->set_for = ns;
        return 1;
    }

    /* The same, if it is not so already.  A sleep no shorter than the one for which the alarm was set ends later,
       whatever the time is now: servers without timeouts do not look at the clock here. */
    static inline __attribute__((always_inline)) int coro_alarm_within(coro_alarm *alarm, int64_t ns) {
        return (alarm->set_for && ns >= alarm->set_for) || coro_alarm_set(alarm, ns);
    }

    /* Sleep at most ns.  The 64-bit time layout is the one this system call has on 32-bit systems as well. */
    static inline __attribute__((always_inline)) int
    coro_epoll_sleep(int ep, struct epoll_event *ev, int max, int64_t ns, int *no_pwait2, coro_alarm *alarm) {
        if (ns >= CORO_LONG_SLEEP && alarm->fd >= 0 && coro_alarm_within(alarm, ns))
            return epoll_wait(ep, ev, max, -1);
        if (ns > 0 && !*no_pwait2) {
            struct { long long sec, nsec; } ts = { ns / 1000000000, ns % 1000000000 };
            int n = (int)syscall(CORO_SYS_EPOLL_PWAIT2, ep, ev, max, &ts, NULL, 0);
            if (n >= 0 || (errno != ENOSYS && errno != EPERM)) return n;
            *no_pwait2 = 1;              /* old kernel, or a sandbox that does not know the call */
        }
        return epoll_wait(ep, ev, max, coro_epoll_ms(ns));
    }

    /* The same, noting in *asleep that nothing else is done meanwhile. */
    static inline __attribute__((always_inline)) int
    coro_epoll_wait(int ep, struct epoll_event *ev, int max, int64_t ns, int *no_pwait2, coro_alarm *alarm,
                    int *asleep) {
        int n;
        __atomic_store_n(asleep, 1, __ATOMIC_RELAXED);
        n = coro_epoll_sleep(ep, ev, max, ns, no_pwait2, alarm);
        __atomic_store_n(asleep, 0, __ATOMIC_RELAXED);
        return n;
    }

    static const char *coro_single_threaded;     /* glibc's __libc_single_threaded; NULL: there is no such thing */

    static void coro_find_single_threaded(void) {
        coro_single_threaded = (const char *)dlsym(RTLD_DEFAULT, "__libc_single_threaded");
    }

    /* Is this the only OS thread of the process? Then there is nobody who could want the interpreter lock, and nobody
       but this thread could start one who will. */
    static int coro_alone(void) {
        return coro_single_threaded != NULL && *(const volatile char *)coro_single_threaded;
    }

    static int coro_epoll_wait_without_gil(int ep, struct epoll_event *ev, int max, int64_t ns, int *no_pwait2,
                                           coro_alarm *alarm, int *asleep) {
        PyThreadState *released = PyEval_SaveThread();
        int n = coro_epoll_wait(ep, ev, max, ns, no_pwait2, alarm, asleep);
        PyEval_RestoreThread(released);     /* keeps errno */
        return n;
    }

    static int coro_epoll_set(int ep, int op, int fd, uint32_t events, uint64_t data) {
        struct epoll_event ev;
        memset(&ev, 0, sizeof ev);
        ev.events = events;
        ev.data.u64 = data;
        return epoll_ctl(ep, op, fd, &ev) < 0 ? errno : 0;
    }

    static int coro_pidfd_open(int pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

    /* Watch the file that is open as fd, whatever its name is by now. */
    static int coro_inotify_add(int in, int fd, uint32_t mask) {
        char path[40];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        return inotify_add_watch(in, path, mask | IN_MASK_ADD);
    }

    static int coro_wake_now(int fd) {
        uint64_t one = 1;
        return write(fd, &one, sizeof one) == sizeof one;
    }
    """
    ctypedef union epoll_data_t:
        uint64_t u64
    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data
    cdef struct inotify_event:
        int wd
        uint32_t mask
        uint32_t len
    enum:
        EPOLL_CLOEXEC
        EPOLL_CTL_ADD
        EPOLL_CTL_MOD
        EPOLL_CTL_DEL
        EFD_CLOEXEC
        EFD_NONBLOCK
        IN_CLOEXEC
        IN_NONBLOCK
    uint32_t EPOLLIN, EPOLLOUT, EPOLLPRI, EPOLLERR, EPOLLHUP, EPOLLRDHUP, EPOLLONESHOT
    uint32_t EPOLLET
    uint32_t OWN_TAG "CORO_OWN_TAG"
    uint32_t NOTE_EXIT "CORO_NOTE_EXIT"
    uint32_t OWNED_MASK "CORO_OWNED_MASK"
    uint32_t BROKEN "CORO_BROKEN"
    uint32_t IN_MODIFY, IN_ATTRIB, IN_MOVE_SELF, IN_DELETE_SELF, IN_UNMOUNT, IN_CREATE, IN_DELETE
    uint32_t IN_MOVED_FROM, IN_MOVED_TO, IN_ISDIR, IN_Q_OVERFLOW
    int epoll_create1(int) nogil
    int epoll_wait(int, epoll_event *, int, int) nogil
    int eventfd(unsigned int, int) nogil
    int inotify_init1(int) nogil
    int inotify_rm_watch(int, int) nogil
    ctypedef struct coro_alarm:
        int fd
        int64_t rings_at, set_for
    void coro_alarm_open(coro_alarm *, int, uint64_t) nogil
    int coro_alone() noexcept
    int coro_epoll_wait(int, epoll_event *, int, int64_t, int *, coro_alarm *, int *)
    int coro_epoll_wait_without_gil(int, epoll_event *, int, int64_t, int *, coro_alarm *, int *)
    int coro_epoll_set(int, int, int, uint32_t, uint64_t) nogil
    int coro_pidfd_open(int) nogil
    int coro_inotify_add(int, int, uint32_t) nogil
    void coro_find_single_threaded() noexcept nogil
    int coro_wake_now(int) noexcept nogil
    void __atomic_store_n(int *, int, int) noexcept nogil
    int __atomic_load_n(int *, int) noexcept nogil
    int __ATOMIC_SEQ_CST

cdef extern from "signal.h" nogil:
    int SIGCHLD
    int kill(int, int)

cdef extern from "_poll/children.h" nogil:
    int coro_child_ended(int, int *)
    int coro_stat(int, uint64_t *, uint64_t *)

cdef extern from "unistd.h" nogil:
    int close(int)
    ssize_t read(int, void *, size_t)

cdef enum:
    BUFFER_EVENTS = 1024
    NOTE_DELETE = 0x01
    NOTE_WRITE = 0x02
    NOTE_EXTEND = 0x04
    NOTE_ATTRIB = 0x08
    NOTE_LINK = 0x10
    NOTE_RENAME = 0x20
    NOTE_REVOKE = 0x40
    NOTE_VNODE = 0x7F
    TAG_WAKE = 1             # beside bit 31, in the low word of the event data
    TAG_SIGNAL = 2
    TAG_INOTIFY = 3
    TAG_PROC = 4             # the high word is the pidfd
    TAG_ALARM = 5
    RARE_LOOK_NS = 1000000000
    FREQUENT_LOOK_NS = 20000000

coro_find_single_threaded()


cdef inline uint64_t own_data(int tag, int fd) noexcept:
    return (<uint64_t>fd << 32) | OWN_TAG | tag


cdef inline int wake_waiter(PyObject **slot) noexcept:
    cdef PyObject *p = slot[0]
    cdef int n = 0
    if p != NULL:
        slot[0] = NULL
        n = wake(<coro>p, None)
        Py_DECREF(<object>p)
    return n


cdef class _ChildLook(TimerTarget):
    """The timer that looks at children where no pidfd tells of them."""
    cdef EpollPoller poller

    cdef int fire(self) except -1:
        cdef EpollPoller p = self.poller
        if p is not None:
            p.look_at_children()
            p.want_child_signals()
        return 0


cdef class EpollPoller(EventPoller):
    """The poller of Linux.

    Invariants: (1) events before `position` in the buffer are done, those up to `filled` are not: an
    exception out of poll() loses none; (2) `sleeping` is set only around a call that may sleep, and
    interrupt() writes to the eventfd only then; (3) while epoll_fd is -1 nothing is registered anywhere, and
    no system call is made to end a registration.
    """

    cdef int epoll_fd, event_fd, inotify_fd, no_pwait2
    cdef coro_alarm alarm
    cdef epoll_event *events
    cdef int position, filled
    cdef dict children          # pidfd -> kevent_target
    cdef list by_signal         # of children that no pidfd tells of
    cdef bint holds_sigchld     # its action was the default; a SIGNAL target may have taken over since
    cdef _ChildLook child_look  # the timer beside the signal; None unless there are such
    cdef dict watches           # inotify watch descriptor -> list of kevent_target

    def __cinit__(self):
        self.epoll_fd = self.event_fd = self.inotify_fd = self.alarm.fd = -1
        self.children = {}
        self.by_signal = []
        self.watches = {}
        self.can_linger = True

    def __dealloc__(self):
        # shut() was not called: the process is ending, or a loop was never run.
        self.close_kernel()

    # -- kernel objects

    cdef int open_kernel(self) except -1:
        cdef int e
        if self.epoll_fd >= 0:
            return 0
        if self.events == NULL:
            self.events = <epoll_event *>malloc(BUFFER_EVENTS * sizeof(epoll_event))
            if self.events == NULL:
                raise MemoryError()
        self.epoll_fd = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll_fd < 0:
            raise oserrors.make(errno)
        __atomic_store_n(&self.event_fd, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), __ATOMIC_SEQ_CST)
        if self.event_fd < 0:
            e = errno
            self.close_kernel()
            raise oserrors.make(e)
        self.set_own(self.event_fd, EPOLLIN, own_data(TAG_WAKE, 0))
        self.open_signals()
        coro_alarm_open(&self.alarm, self.epoll_fd, own_data(TAG_ALARM, 0))
        return 0

    cdef int close_kernel(self) noexcept:
        cdef int event_fd = self.event_fd
        __atomic_store_n(&self.event_fd, -1, __ATOMIC_SEQ_CST)
        if event_fd >= 0:
            close(event_fd)
        if self.inotify_fd >= 0:
            close(self.inotify_fd)
        if self.alarm.fd >= 0:
            close(self.alarm.fd)
        if self.epoll_fd >= 0:
            close(self.epoll_fd)
        self.inotify_fd = self.epoll_fd = self.alarm.fd = -1
        free(self.events)
        self.events = NULL
        self.position = self.filled = 0
        return 0

    cdef int set_own(self, int fd, uint32_t events, uint64_t data) except -1:
        cdef int e = coro_epoll_set(self.epoll_fd, EPOLL_CTL_ADD, fd, events, data)
        if e:
            raise oserrors.make(e)
        return 0

    cdef int trigger(self) noexcept nogil:
        coro_wake_now(__atomic_load_n(&self.event_fd, __ATOMIC_SEQ_CST))
        return 0

    # -- the poll

    cdef int poll(self, int64_t timeout_ns) except -1:
        cdef int n, e = 0
        if self.position >= self.filled:
            if unlikely(self.epoll_fd < 0):
                self.open_kernel()
            self.position = self.filled = 0
            self.n_polls += 1
            if self.n_lingering:
                timeout_ns = 0
            if timeout_ns != 0 and not self.going_to_sleep():
                timeout_ns = 0
            if timeout_ns == 0:
                n = epoll_wait(self.epoll_fd, self.events, BUFFER_EVENTS, 0)
                if n < 0:
                    e = errno
            else:
                if likely(coro_alone()):
                    self.n_blocking += 1
                    n = coro_epoll_wait(self.epoll_fd, self.events, BUFFER_EVENTS, timeout_ns, &self.no_pwait2,
                                        &self.alarm, asleep)
                else:
                    n = self.sleep_beside_others(timeout_ns)
                if unlikely(n < 0):
                    e = errno
                self.woke_up()
            if unlikely(n < 0):
                if e == EINTR:
                    PyErr_CheckSignals()
                    return 0
                if e == EBADF or e == EINVAL:
                    raise LoopError(
                        f"the epoll descriptor {self.epoll_fd} of the loop was closed by other code "
                        f"({oserrors.make(e)}); close only descriptors you opened")
                raise oserrors.make(e)
            self.filled = n
            self.n_events += n
        n = self.dispatch()
        if self.n_lingering:
            n += self.end_lingering()
        self.n_wakes += n
        return n

    cdef int sleep_beside_others(self, int64_t timeout_ns) noexcept:
        # A negative number: see errno.
        cdef int n
        if self.looks_first():
            n = epoll_wait(self.epoll_fd, self.events, BUFFER_EVENTS, 0)
            if n != 0:
                return n
            self.unlooked = UNLOOKED
            self.n_polls += 1
        self.n_blocking += 1
        return coro_epoll_wait_without_gil(self.epoll_fd, self.events, BUFFER_EVENTS, timeout_ns, &self.no_pwait2,
                                           &self.alarm, asleep)

    cdef int dispatch(self) except -1:
        cdef epoll_event *ev
        cdef fd_state *s
        cdef uint32_t low, high, mask
        cdef int n = 0
        cdef bint signals = False
        while self.position < self.filled:
            ev = &self.events[self.position]
            self.position += 1
            low = <uint32_t>ev.data.u64
            high = <uint32_t>(ev.data.u64 >> 32)
            if unlikely(low & OWN_TAG):
                if low == (OWN_TAG | TAG_SIGNAL):
                    signals = True
                else:
                    n += self.own_event(<int>(low & ~OWN_TAG), <int>high)
                continue
            s = fd_lookup(<int>low)
            if unlikely(s == NULL or s.generation != high):
                self.n_stale += 1
                continue
            mask = ev.events
            s.revents = mask
            if mask != EPOLLIN or s.flags & (FD_OWNED | FD_HANDLERS) != FD_OWNED:
                n += self.dispatch_one(<int>low, s, mask)
                continue
            # The same for what a server sees nearly always: data for one of our sockets.
            s.flags |= FD_READ_READY
            n += wake_waiter(&s.reader)
        if unlikely(signals):
            n += self.read_signals()
        return n

    cdef int dispatch_one(self, int fd, fd_state *s, uint32_t mask) except -1:
        cdef uint32_t ready = 0
        cdef int n = 0
        if mask & (EPOLLIN | EPOLLRDHUP | BROKEN):
            ready = FD_READ_READY
        if mask & (EPOLLOUT | BROKEN):
            ready |= FD_WRITE_READY
        if mask & (EPOLLPRI | EPOLLRDHUP | BROKEN):
            if mask & (EPOLLPRI | BROKEN):
                ready |= FD_EXCEPT_READY
            if s.flags & FD_OWNED:
                s.flags |= FD_NO_SHORTCUT
                ready |= FD_READ_READY     # urgent data: a recv(MSG_OOB) may be what the reader is after
        if s.flags & FD_OWNED:
            s.flags |= ready
        else:
            s.armed = 0
        if s.flags & FD_HANDLERS:
            n += self.deliver(fd, s, ready)
        else:
            if ready & FD_READ_READY:
                n += wake_waiter(&s.reader)
            if ready & FD_WRITE_READY:
                n += wake_waiter(&s.writer)
            if ready & FD_EXCEPT_READY:
                n += wake_waiter(&s.excepter)
        if not s.flags & FD_OWNED and fd_wanted(s):
            n += self.watch_rest(fd, s)
        return n

    # One of the waiters of a one-shot registration got its event: go on watching for the others.
    cdef int watch_rest(self, int fd, fd_state *s) except -1:
        try:
            self.arm(fd, s, NULL, False)
        except OSError:          # closed by other code while several waited
            self.clear_slots(fd, s, NULL, None)
            return 1
        return 0

    cdef int own_event(self, int tag, int fd) except -1:
        cdef uint64_t count = 0
        cdef kevent_target t
        cdef int status = 0, r
        if tag == TAG_WAKE:
            read(self.event_fd, &count, sizeof(count))
            self.n_interrupts += 1
        elif tag == TAG_INOTIFY:
            return self.read_inotify()
        elif tag == TAG_PROC:
            t = self.children.get(fd)
            if t is not None:
                r = coro_child_ended(t.key.ident, &status)
                if r < 0:
                    return self.fired(t, EV_ERROR, 0, -r)
                return self.fired(t, 0, NOTE_EXIT, status)
        elif tag == TAG_ALARM:
            self.alarm.set_for = 0
        return 0

    # -- registrations of descriptors

    cdef int arm(self, int fd, fd_state *s, PyObject *mine, bint fresh) except -1:
        cdef uint32_t events, wanted = 0
        cdef int e = 0, op
        cdef bint owned = s.flags & FD_OWNED
        if self.epoll_fd < 0:
            self.open_kernel()
        for _ in range(3):
            s.generation += 1
            wanted = fd_wanted(s)
            if owned:
                wanted |= s.armed & FD_WRITE_READY
                events = OWNED_MASK
                if wanted & FD_WRITE_READY:
                    events |= EPOLLOUT
            else:
                events = EPOLLONESHOT
                if wanted & FD_READ_READY:
                    events |= EPOLLIN | EPOLLRDHUP
                if wanted & FD_WRITE_READY:
                    events |= EPOLLOUT
                if wanted & FD_EXCEPT_READY:
                    events |= EPOLLPRI
            self.n_changes += 1
            op = EPOLL_CTL_MOD if s.flags & FD_REGISTERED else EPOLL_CTL_ADD
            e = coro_epoll_set(self.epoll_fd, op, fd, events, (<uint64_t>s.generation << 32) | <uint32_t>fd)
            if e == 0:
                s.flags |= FD_REGISTERED
                s.armed = wanted
                return 0
            if e == EEXIST:
                s.flags |= FD_REGISTERED
            elif e == ENOENT and s.flags & FD_REGISTERED:
                # The number is another file by now.  Who else waits here waits for the file that is gone.
                s.flags &= ~<uint32_t>FD_REGISTERED
                if not owned:
                    s.armed = 0
                    self.clear_slots(fd, s, mine, None)
                    if not fd_wanted(s):
                        return 0
            elif e == EPERM:
                return 1
            else:
                break
        s.flags &= ~<uint32_t>FD_REGISTERED
        raise oserrors.make(e)

    cdef int arm_writing(self, int fd, fd_state *s) except -1:
        if not s.armed & FD_WRITE_READY:
            s.armed |= FD_WRITE_READY
            self.arm(fd, s, NULL, False)
        return 0

    cdef int retract(self, int fd, fd_state *s) except -1:
        if self.epoll_fd < 0 or not s.flags & FD_REGISTERED:
            return 0
        if fd_wanted(s):
            self.watch_rest(fd, s)
        elif s.armed:
            self.forget(fd, s)
        return 0

    cdef int forget(self, int fd, fd_state *s) except -1:
        s.flags &= ~<uint32_t>FD_REGISTERED
        s.armed = 0
        s.generation += 1
        if self.epoll_fd >= 0:
            self.n_changes += 1
            # ENOENT, EBADF: closed by other code already
            coro_epoll_set(self.epoll_fd, EPOLL_CTL_DEL, fd, 0, 0)
        return 0

    cdef unsigned int event_flags(self, int filter, uint32_t revents):
        cdef unsigned int flags = EV_EOF if revents & BROKEN else 0
        cdef uint32_t own
        if filter == F_READ:
            own = EPOLLIN | EPOLLRDHUP | BROKEN
            if revents & EPOLLRDHUP:
                flags = EV_EOF
        elif filter == F_WRITE:
            own = EPOLLOUT | BROKEN
        else:
            own = EPOLLPRI | BROKEN
        return flags if revents & own else flags | FOREIGN

    # -- processes and files

    cdef int begin_other(self, kevent_target t) except -1:
        if self.epoll_fd < 0:
            self.open_kernel()
        if t.key.filter == F_PROC:
            return self.begin_child(t)
        return self.begin_file(t)

    cdef int begin_child(self, kevent_target t) except -1:
        cdef int pid, status = 0, r
        if t.fflags & ~NOTE_EXIT:
            raise ValueError("fflags of PROC may be NOTE.EXIT only on Linux, which reports nothing else, "
                             f"not {t.fflags:#x}")
        pid = t.key.ident
        t.fd = coro_pidfd_open(pid)
        if t.fd < 0:
            if errno == ENOSYS or errno == EPERM:
                return self.begin_child_by_signal(t)
            raise oserrors.make(errno)
        r = coro_child_ended(pid, &status)
        if r == 0:
            r = -coro_epoll_set(self.epoll_fd, EPOLL_CTL_ADD, t.fd, EPOLLIN | EPOLLONESHOT,
                                own_data(TAG_PROC, t.fd))
        elif r > 0:
            t.event = new_event(t.key.ident, F_PROC, 0, NOTE_EXIT, status)
        if r < 0:
            close(t.fd)
            t.fd = -1
            raise oserrors.make(-r)
        self.children[t.fd] = t
        return 0

    # Without pidfd_open(2) (Linux before 5.3, or a sandbox that refuses it) SIGCHLD says that one of the children has
    # ended, and each that is awaited is looked at. Signals merge, and the program may change the action. So a timer
    # looks, too: seldom where the signal comes, often where it cannot (a loop beside the main OS thread).
    cdef int begin_child_by_signal(self, kevent_target t) except -1:
        cdef int status = 0, r
        self.by_signal.append(t)
        try:
            self.want_child_signals()
            r = coro_child_ended(t.key.ident, &status)     # after that, so that no end is missed
            if r < 0:
                if r == -ECHILD and kill(t.key.ident, 0) < 0 and errno == ESRCH:
                    r = -ESRCH
                raise oserrors.make(-r)
        except:
            self.end_other(t)
            raise
        if r > 0:
            t.event = new_event(t.key.ident, F_PROC, 0, NOTE_EXIT, status)
        return 0

    cdef int want_child_signals(self) except -1:
        cdef bint comes
        if not self.by_signal:
            return 0
        action = _signal.getsignal(SIGCHLD)
        if self.signal_read >= 0 and action is _signal.SIG_DFL:
            _signal.signal(SIGCHLD, _ignore_signal)
            comes = self.holds_sigchld = True
        else:
            comes = self.signal_read >= 0 and callable(action)
        if self.child_look is None:
            self.child_look = _ChildLook.__new__(_ChildLook)
            self.child_look.poller = self
        timer_cancel(self.child_look)
        timer_add(self.child_look, ticks_now() + from_ns(RARE_LOOK_NS if comes else FREQUENT_LOOK_NS))
        return 0

    cdef int end_child_by_signal(self, kevent_target t) except -1:
        if t not in self.by_signal:
            return 0
        self.by_signal.remove(t)
        if self.by_signal:
            return 0
        if self.child_look is not None:
            timer_cancel(self.child_look)
            self.child_look.poller = None
            self.child_look = None
        if self.holds_sigchld:
            self.holds_sigchld = False
            if (_signal.getsignal(SIGCHLD) is _ignore_signal
                    and new_key(F_SIGNAL, SIGCHLD) not in self.targets):
                _signal.signal(SIGCHLD, _signal.SIG_DFL)
        return 0

    cdef int look_at_children(self) except -1:
        cdef kevent_target t
        cdef int status = 0, r, n_wakes = 0
        for t in list(self.by_signal):
            r = coro_child_ended(t.key.ident, &status)
            if r < 0:
                n_wakes += self.fired(t, EV_ERROR, 0, -r)
            elif r > 0:
                n_wakes += self.fired(t, 0, NOTE_EXIT, status)
        return n_wakes

    cdef int begin_file(self, kevent_target t) except -1:
        cdef int fd = t.key.ident, e
        if not t.fflags or t.fflags & ~<uint32_t>NOTE_VNODE:
            raise ValueError("fflags of VNODE must be made of NOTE.DELETE, WRITE, EXTEND, ATTRIB, LINK, RENAME "
                             f"and REVOKE, at least one, not {t.fflags:#x}")
        e = coro_stat(fd, &t.size, &t.links)
        if e:
            raise oserrors.make(e)
        if self.inotify_fd < 0:
            self.inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK)
            if self.inotify_fd < 0:
                raise oserrors.make(errno)
            self.set_own(self.inotify_fd, EPOLLIN, own_data(TAG_INOTIFY, 0))
        t.fd = coro_inotify_add(self.inotify_fd, fd, IN_MODIFY | IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF
                                | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)
        if t.fd < 0:
            raise oserrors.make(errno)
        self.watches.setdefault(t.fd, []).append(t)
        return 0

    cdef int end_other(self, kevent_target t) except -1:
        cdef int fd = t.fd
        t.fd = -1
        if fd < 0:
            return self.end_child_by_signal(t) if t.key.filter == F_PROC else 0
        if t.key.filter == F_PROC:
            self.children.pop(fd, None)
            if self.epoll_fd >= 0:
                coro_epoll_set(self.epoll_fd, EPOLL_CTL_DEL, fd, 0, 0)
            close(fd)
            return 0
        watchers = self.watches.get(fd)
        if watchers is not None:
            watchers.remove(t)
            if not watchers:
                del self.watches[fd]
                if self.inotify_fd >= 0:
                    inotify_rm_watch(self.inotify_fd, fd)
        return 0

    cdef int read_inotify(self) except -1:
        cdef char buffer[4096]
        cdef inotify_event *ev
        cdef ssize_t n, at
        cdef int n_wakes = 0
        cdef uint32_t bits, mask
        cdef kevent_target t
        cdef dict seen = {}
        while True:
            n = read(self.inotify_fd, buffer, sizeof(buffer))
            if n <= 0:
                break
            at = 0
            while at < n:
                ev = <inotify_event *>(buffer + at)
                at += sizeof_inotify_event() + ev.len
                if ev.mask & IN_Q_OVERFLOW:       # the kernel dropped some: everybody has to look
                    for watchers in self.watches.values():
                        for t in watchers:
                            seen[t] = t.fflags
                    continue
                mask = ev.mask
                if ev.len:                        # a file in a watched folder: only its coming and going concern that
                    mask &= ~<uint32_t>(IN_MODIFY | IN_ATTRIB)
                for t in self.watches.get(ev.wd, ()):
                    bits = self.notes_of(t, mask) & t.fflags
                    if bits:
                        seen[t] = seen.get(t, 0) | bits
        for target, notes in seen.items():
            n_wakes += self.fired(target, 0, notes, 0)
        return n_wakes

    cdef uint32_t notes_of(self, kevent_target t, uint32_t mask):
        cdef uint64_t size = t.size, links = t.links
        cdef uint32_t bits = 0
        if coro_stat(t.key.ident, &size, &links) != 0:
            size, links = t.size, t.links
        if mask & IN_MODIFY:
            bits |= NOTE_WRITE
            if size > t.size:
                bits |= NOTE_EXTEND
        if mask & (IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO):
            bits |= NOTE_WRITE
            if mask & IN_ISDIR:
                bits |= NOTE_LINK
        if mask & IN_ATTRIB:
            bits |= NOTE_DELETE if links == 0 else NOTE_LINK if links != t.links else NOTE_ATTRIB
        if mask & IN_MOVE_SELF:
            bits |= NOTE_RENAME
        if mask & IN_DELETE_SELF:
            bits |= NOTE_DELETE
        if mask & IN_UNMOUNT:
            bits |= NOTE_REVOKE
        t.size, t.links = size, links
        return bits

    # -- signals

    cdef int watch_signals(self, int fd) except -1:
        if self.epoll_fd < 0:
            self.open_kernel()      # comes back to open_signals(), which has nothing left to do
        return self.set_own(fd, EPOLLIN, own_data(TAG_SIGNAL, 0))

    cdef int unwatch_signals(self, int fd) except -1:
        if self.epoll_fd >= 0:
            coro_epoll_set(self.epoll_fd, EPOLL_CTL_DEL, fd, 0, 0)
        return 0

    def begin_watch(self):
        """Somebody else is about to wait for this poller's news: the epoll instance, a descriptor that can be read
        while there are events to be fetched or after interrupt(); or -2 when there is news already. end_watch()
        follows."""
        if self.epoll_fd < 0:
            self.open_kernel()
        if self.position < self.filled or self.n_lingering:
            return -2
        return self.epoll_fd if self.going_to_sleep() else -2

    def end_watch(self):
        """The wait is over."""
        self.woke_up()

    def _round_to_milliseconds(self, yes):
        """For tests: behave as on a kernel without epoll_pwait2.  yes: whether to."""
        self.no_pwait2 = bool(yes)

    def _alarm_rings_at(self):
        """For tests: for when the alarm was set last, in ns of CLOCK_MONOTONIC; 0 when it never was."""
        return self.alarm.rings_at


cdef inline size_t sizeof_inotify_event() noexcept:
    return sizeof(inotify_event)
