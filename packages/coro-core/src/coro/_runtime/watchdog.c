/* The watchdog's OS thread and its signal handler; see _runtime/watchdog.h.

   Locking: `lock` guards everything the OS thread and the setters share. The handler takes no lock; it reads `request`,
   which is set before the signal is sent, and writes `answered`. The handler stays installed for good: a signal that
   was sent just before the watchdog was switched off must not kill the program.

   C functions have no Python frame. The handler takes down the addresses of its own stack with backtrace(3), where the
   C library has that, and the OS thread finds out afterwards in which files they are: asking the dynamic linker is
   nothing for a handler. backtrace() is called once before the first report, as its first call loads a library.

   A signal would end some system calls early, whatever its handler's flags say: those that sleep, poll or select,
   (signal(7), "Interruption of system calls and library functions by signal handlers"), and in fact futex(2) with a
   time limit, by which sem_timedwait(3) waits. Linux tells in proc(5) which
   one an OS thread is blocked in. If it is one of these, the watchdog sends no signal and reads the frames itself, by
   process_vm_readv(2), which gives an error for memory that is gone. The report is written only if the thread is still
   in the same call afterwards, so that nothing has changed meanwhile. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "_runtime/watchdog.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#endif
#if defined(__GLIBC__) || defined(__APPLE__)
#include <dlfcn.h>
#include <execinfo.h>
#define HAS_BACKTRACE 1
#endif

#include "_switch/interp.h"

enum { NOTHING = 0, REPORT = 1, FIND_HOLDER = 2 };
enum { LOOKS_PER_LIMIT = 8 };
/* Of C functions: how many are looked at, and milliseconds that the OS thread waits for the handler. */
enum { MOST_CALLS = 48, WAIT_FOR_CALLS = 50 };

int coro_watchdog_asleep;

static const volatile uint64_t *slices, *passes;
static coro_look look;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned generation; /* changes when an OS thread of ours is to end */
static int watching;        /* a loop runs, in the OS thread `target` with the state `target_state` */
static pthread_t target;
static PyThreadState *target_state;
static int signal_number;

static volatile sig_atomic_t request, answered, without_gil;
static volatile int report_fd = -1;
static volatile unsigned report_tenths; /* of a second */
#ifdef HAS_BACKTRACE
static void *calls[MOST_CALLS]; /* written by the handler, read when it has answered */
static volatile int calls_taken;
#endif

typedef struct {
    unsigned generation;
    double limit;
} job;

static void
add_seconds(coro_text *l)
{
    coro_text_number(l, report_tenths / 10);
    coro_text_add(l, ".");
    coro_text_number(l, report_tenths % 10);
    coro_text_add(l, " s");
}

/* The first line of a report; `where` says more about where it is, or is empty. */
static void
add_head(coro_text *l, coro_who *who, const char *where)
{
    memset(who, 0, sizeof(*who));
    look(who);
    coro_text_add(l, "coro watchdog: ");
    if (who->running) {
        coro_text_thread(l, who);
        coro_text_add(l, " has run for ");
    } else {
        coro_text_add(l, "the loop has not come round for ");
    }
    add_seconds(l);
    coro_text_add(l, where);
    coro_text_add(l, who->frames_known ? " (most recent call first):\n" : "\n");
    coro_text_flush(l);
}

/* In the handler, on the loop's OS thread. */
static void
report(void)
{
    coro_who who;
    coro_text l;
    int gil = PyGILState_Check();
    coro_text_begin(&l, report_fd);
    add_head(&l, &who, gil ? "" : ", now in a system call or waiting for a lock or the GIL");
    if (who.frames_known) {
        coro_interp_dump(report_fd, target_state);
    }
#ifdef HAS_BACKTRACE
    calls_taken = backtrace(calls, MOST_CALLS);
#endif
    without_gil = !gil;
}

static void
on_signal(int signum, siginfo_t *info, void *context)
{
    int kept = errno;
    (void)signum, (void)info, (void)context;
    if (request == REPORT && pthread_equal(pthread_self(), target)) {
        request = NOTHING;
        report();
        answered = 1;
    } else if (request == FIND_HOLDER && !pthread_equal(pthread_self(), target) && PyGILState_Check()) {
        PyThreadState *ts = PyGILState_GetThisThreadState();
        coro_text l;
        request = NOTHING;
        coro_text_begin(&l, report_fd);
        coro_text_add(&l, "coro watchdog: the GIL is held by another OS thread (most recent call first):\n");
        coro_text_flush(&l);
        if (ts != NULL) {
            coro_interp_dump(report_fd, ts);
        }
    }
    errno = kept;
}

#if defined(__linux__) && defined(SYS_tgkill)
/* Send the signal to the OS thread of a state, and go on to the next one or the one before. The state may be freed at
   any moment, so the kernel reads it: an address that is no longer there is an error of this call, and no crash. */
static PyThreadState *
ask_and_go_on(PyThreadState *ts, size_t way)
{
    unsigned long id = 0;
    PyThreadState *other = NULL;
    struct iovec to[2] = {{&id, sizeof(id)}, {&other, sizeof(other)}};
    struct iovec from[2] = {{&ts->native_thread_id, sizeof(id)}, {(char *)ts + way, sizeof(other)}};
    if (process_vm_readv(getpid(), to, 2, from, 2, 0) != (ssize_t)(sizeof(id) + sizeof(other))) {
        return NULL;
    }
    syscall(SYS_tgkill, (int)getpid(), (int)id, signal_number);
    return other;
}
#endif

/* Ask every other OS thread that Python knows whether it holds the GIL. They come and go meanwhile: when the loop was
   waiting for the GIL a moment ago, the holder may end now. A number that has gone gives an error, and so does one that
   never was an OS thread's. */
static void
find_holder(void)
{
#if defined(__linux__) && defined(SYS_tgkill)
    PyThreadState *ts;
    int most = 1000;
    request = FIND_HOLDER;
    for (ts = target_state->next; ts != NULL && most > 0; most--) {
        ts = ask_and_go_on(ts, offsetof(PyThreadState, next));
    }
    for (ts = target_state->prev; ts != NULL && most > 0; most--) {
        ts = ask_and_go_on(ts, offsetof(PyThreadState, prev));
    }
#endif
}

#if defined(__linux__)
/* Calls that a signal ends early. */
static const long cut_short[] = {
    SYS_clock_nanosleep, SYS_nanosleep, SYS_ppoll, SYS_pselect6, SYS_epoll_pwait, SYS_rt_sigtimedwait,
    SYS_rt_sigsuspend, SYS_io_getevents, SYS_restart_syscall,
#ifdef SYS_poll
    SYS_poll, SYS_select, SYS_epoll_wait, SYS_pause,
#endif
#ifdef SYS__newselect
    SYS__newselect,
#endif
#ifdef SYS_io_uring_enter
    SYS_io_uring_enter,
#endif
#ifdef SYS_io_pgetevents
    SYS_io_pgetevents,
#endif
#ifdef SYS_epoll_pwait2
    SYS_epoll_pwait2,
#endif
#ifdef SYS_semop
    SYS_semop, SYS_semtimedop, SYS_msgrcv, SYS_msgsnd,
#endif
#ifdef SYS_clock_nanosleep_time64
    SYS_clock_nanosleep_time64, SYS_ppoll_time64, SYS_pselect6_time64, SYS_rt_sigtimedwait_time64,
    SYS_semtimedop_time64,
#endif
};

/* Calls that a signal ends early if the socket has a time limit (SO_RCVTIMEO, SO_SNDTIMEO). */
static const long cut_with_limit[] = {
    SYS_connect, SYS_recvfrom, SYS_recvmsg, SYS_recvmmsg, SYS_sendto, SYS_sendmsg, SYS_sendmmsg, SYS_accept4, SYS_read,
    SYS_write, SYS_readv, SYS_writev,
#ifdef SYS_accept
    SYS_accept,
#endif
};

enum { SYSCALL_ROOM = 256 };

/* What proc(5) says of the loop's OS thread: the number and arguments of its system call. 0: it says nothing. */
static int
read_syscall(char *line)
{
    char path[64];
    ssize_t got;
    int fd;
    snprintf(path, sizeof(path), "/proc/self/task/%lu/syscall", target_state->native_thread_id);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    got = read(fd, line, SYSCALL_ROOM - 1);
    close(fd);
    line[got < 0 ? 0 : got] = 0;
    return got > 0;
}

static int
has_limit(int fd, int option)
{
    struct timeval limit = {0, 0};
    socklen_t size = sizeof(limit);
    return getsockopt(fd, SOL_SOCKET, option, &limit, &size) == 0 && (limit.tv_sec != 0 || limit.tv_usec != 0);
}

#if defined(__GLIBC__) && defined(SYS_futex)
/* Does the thread wait by futex(2) and not for the GIL, which waits again by itself? There the handler has to see.
   Other C libraries wait for the GIL at an address that is not the GIL's. */
static int
waits_with_limit(long number, unsigned long at, unsigned long operation, unsigned long limit)
{
    enum { WAIT = 0, WAIT_BITSET = 9, COMMAND = 127 };
    int waits = number == SYS_futex;
#ifdef SYS_futex_time64
    waits |= number == SYS_futex_time64;
#endif
    operation &= COMMAND;
    return waits && limit != 0 && (operation == WAIT || operation == WAIT_BITSET)
           && !coro_interp_is_of_gil(target_state, at);
}
#else
#define waits_with_limit(number, at, operation, limit) 0
#endif

static int
is_cut_short(const char *line)
{
    long number;
    unsigned long first, second, third, fourth;
    size_t i;
    if (sscanf(line, "%ld %lx %lx %lx %lx", &number, &first, &second, &third, &fourth) != 5) {
        return 0; /* "running" */
    }
    if (waits_with_limit(number, first, second, fourth)) {
        return 1;
    }
    for (i = 0; i < sizeof(cut_short) / sizeof(*cut_short); i++) {
        if (number == cut_short[i]) {
            return 1;
        }
    }
    for (i = 0; i < sizeof(cut_with_limit) / sizeof(*cut_with_limit); i++) {
        if (number == cut_with_limit[i]) {
            return has_limit((int)first, SO_RCVTIMEO) || has_limit((int)first, SO_SNDTIMEO);
        }
    }
    return 0;
}

static int
peek(void *to, const void *from, size_t size)
{
    struct iovec there = {to, size}, here = {(void *)from, size};
    return process_vm_readv(getpid(), &there, 1, &here, 1, 0) == (ssize_t)size;
}

/* Report on an OS thread that must not get a signal now. The text waits in a pipe until it is known to be true. Returns
   0 if a signal will do, 1 when that is done, -1 if the thread has gone on meanwhile. */
static int
report_blocked(uint64_t present)
{
    char before[SYSCALL_ROOM], after[SYSCALL_ROOM], bytes[1024];
    coro_who who;
    coro_text l;
    ssize_t got, ignored;
    int ends[2], same;
    if (!read_syscall(before) || !is_cut_short(before) || pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) {
        return 0;
    }
    coro_text_begin(&l, ends[1]);
    add_head(&l, &who, ", now asleep or polling in a system call that a signal would end");
    if (who.frames_known) {
        coro_interp_dump_blocked(ends[1], target_state, peek);
    }
    close(ends[1]);
    same = read_syscall(after) && strcmp(before, after) == 0 && present == *slices + *passes;
    while (same && (got = read(ends[0], bytes, sizeof(bytes))) > 0) {
        ignored = write(report_fd, bytes, (size_t)got);
        (void)ignored;
    }
    close(ends[0]);
    return same ? 1 : -1;
}
#else
static int
report_blocked(uint64_t present)
{
    (void)present;
    return 0;
}
#endif

static double
now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

#ifdef HAS_BACKTRACE
/* Where a program, a shared library or a C module begins in memory; NULL for an address in none of them. */
static const void *
image_of(const void *address, Dl_info *found)
{
    return dladdr(address, found) != 0 && found->dli_fname != NULL ? found->dli_fbase : NULL;
}

/* Can a C module be in this function of Python's while it does something of its own? */
static int
is_for_c_code(const void *function)
{
    return function == (const void *)PyEval_RestoreThread || function == (const void *)PyEval_AcquireThread ||
           function == (const void *)PyGILState_Ensure;
}

/* The C function that Python has called last and that has not returned: the file it is in goes to `module`, and to
   `inner` a library that it has called. Returns 0 if what runs is a Python function or part of the interpreter. */
static int
find_c_code(Dl_info *module, Dl_info *inner)
{
    const void *python, *ours, *libraries[3];
    Dl_info here, library;
    int i, n, found = 0, any_python = 0, python_for_c = 0;
    python = image_of((const void *)PyErr_Occurred, &library);
    ours = image_of((const void *)coro_watchdog_set, &library);
    libraries[0] = image_of((const void *)nanosleep, &library);
    libraries[1] = image_of((const void *)pthread_create, &library);
    libraries[2] = image_of((const void *)memcpy, &library);
    for (i = 0; i < calls_taken; i++) {
        const void *image = image_of(calls[i], &here);
        if (image == python && image != NULL) {
            if (found) {
                break;
            }
            any_python = 1;
            python_for_c |= is_for_c_code(here.dli_saddr);
            continue;
        }
        for (n = 0; n < 3 && image != libraries[n]; n++) {
        }
        /* The dynamic linker finds thread-local variables and functions for all others, the interpreter too. */
        if (image == NULL || image == ours || n < 3 || strstr(here.dli_fname, "vdso") != NULL
            || strstr(here.dli_fname, "/ld-linux") != NULL) {
            if (found && image == ours) {
                break;
            }
            continue;
        }
        if (!found) {
            *inner = here;
        }
        *module = here;
        found = 1;
    }
    return found && (!any_python || python_for_c);
}
#endif

/* Add to the report in which C module the thread is, if it is in one. */
static void
report_c_code(unsigned mine)
{
#ifdef HAS_BACKTRACE
    struct timespec t = {0, 1000000};
    Dl_info module, inner;
    int n;
    for (n = 0; n < WAIT_FOR_CALLS && !answered; n++) {
        nanosleep(&t, NULL);
    }
    if (!answered || !find_c_code(&module, &inner)) {
        return;
    }
    pthread_mutex_lock(&lock);
    if (generation == mine) { /* or the descriptor may be closed, and somebody else's */
        coro_text l;
        coro_text_begin(&l, report_fd);
        coro_text_add(&l, "  called into C code of ");
        coro_text_add(&l, module.dli_fname);
        if (inner.dli_fbase != module.dli_fbase) {
            coro_text_add(&l, ", now in ");
            coro_text_add(&l, inner.dli_fname);
        }
        coro_text_add(&l, "\n");
        coro_text_flush(&l);
    }
    pthread_mutex_unlock(&lock);
#else
    (void)mine;
#endif
}

static void *
watch(void *argument)
{
    job mine = *(job *)argument;
    double pause = mine.limit / LOOKS_PER_LIMIT, since = now(), next = mine.limit, asked_at = 0;
    uint64_t last = 0;
    int asked = 0;
    struct timespec t;
    PyMem_RawFree(argument);
    if (pause > 0.25) {
        pause = 0.25;
    }
    t.tv_sec = (time_t)pause;
    t.tv_nsec = (long)((pause - (double)t.tv_sec) * 1e9);
    for (;;) {
        uint64_t present;
        double stalled;
        int reported = 0;
        nanosleep(&t, NULL);
        pthread_mutex_lock(&lock);
        if (generation != mine.generation) {
            pthread_mutex_unlock(&lock);
            return NULL;
        }
        present = *slices + *passes;
        stalled = now() - since;
        if (!watching || present != last || __atomic_load_n(&coro_watchdog_asleep, __ATOMIC_RELAXED)) {
            last = present;
            since = now();
            next = mine.limit;
            asked = 0;
        } else if (asked && !answered && now() - asked_at > 1.0) {
            coro_text l;
            coro_text_begin(&l, report_fd);
            asked = 0;
            request = NOTHING;
            coro_text_add(&l, "coro watchdog: no progress for ");
            add_seconds(&l);
            coro_text_add(&l, ", and the loop's OS thread does not take signals\n");
            coro_text_flush(&l);
        } else if (asked && answered) {
            asked = 0;
            if (without_gil) {
                find_holder();
            }
        } else if (stalled >= next) {
            int done;
            report_tenths = (unsigned)(stalled * 10);
            done = report_blocked(present);
            if (done >= 0) {
                next *= 2;
            }
            if (done == 0) {
                answered = 0;
                asked = 1;
                asked_at = now();
                request = REPORT;
                reported = 1;
                pthread_kill(target, signal_number);
            }
        }
        pthread_mutex_unlock(&lock);
        if (reported) {
            report_c_code(mine.generation);
        }
    }
}

void
coro_watchdog_init(const uint64_t *slices_, const uint64_t *passes_, coro_look look_)
{
    slices = slices_;
    passes = passes_;
    look = look_;
}

static int
install_handler(int signum)
{
    struct sigaction action, before;
    if (sigaction(signum, NULL, &before) < 0) {
        return errno;
    }
    if ((before.sa_flags & SA_SIGINFO) && before.sa_sigaction == on_signal) {
        return 0;
    }
    if ((before.sa_flags & SA_SIGINFO) || (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)) {
        return -1;
    }
    memset(&action, 0, sizeof(action));
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    return sigaction(signum, &action, NULL) < 0 ? errno : 0;
}

int
coro_watchdog_set(double seconds, int fd, int signum)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    job *mine = NULL;
    int failed = 0;
#ifdef HAS_BACKTRACE
    void *first_call;
#endif
    if (seconds > 0) {
        failed = install_handler(signum);
        if (failed) {
            return failed;
        }
#ifdef HAS_BACKTRACE
        (void)backtrace(&first_call, 1);
#endif
        mine = PyMem_RawMalloc(sizeof(*mine));
        if (mine == NULL) {
            return ENOMEM;
        }
    }
    pthread_mutex_lock(&lock);
    generation++;
    request = NOTHING;
    if (mine != NULL) {
        mine->generation = generation;
        mine->limit = seconds;
        signal_number = signum;
        report_fd = fd;
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        pthread_attr_setstacksize(&attributes, 128 * 1024);
        /* Signals of the program are for its own OS threads. */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        failed = pthread_create(&thread, &attributes, watch, mine);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attributes);
        if (failed) {
            PyMem_RawFree(mine);
        }
    }
    pthread_mutex_unlock(&lock);
    return failed;
}

void
coro_watchdog_enter(PyThreadState *ts)
{
    pthread_mutex_lock(&lock);
    target = pthread_self();
    target_state = ts;
    watching = 1;
    pthread_mutex_unlock(&lock);
}

void
coro_watchdog_leave(void)
{
    pthread_mutex_lock(&lock);
    watching = 0;
    pthread_mutex_unlock(&lock);
}

void
coro_watchdog_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    generation++;
    request = NOTHING;
    if (watching) {
        target = pthread_self();
    }
}
