/* System calls that wait for as long as they like, each in an OS thread of its own that knows nothing of Python, and
   that a signal takes out of the kernel when nobody wants the outcome any more.

   Who calls owns one reference of a coro_wait, its OS thread the other. The OS thread writes to `told_by` when it has
   the outcome: whoever polls `told` sees that. To close it would not do, as a child made by fork(2) has it, too. The
   signal has a handler that does nothing and no SA_RESTART, so that the call ends with EINTR, see signal(7). One that
   comes just before the call would be lost: it is sent until the thread has answered. All other signals are blocked
   there and go to the OS threads of the program.

   The signal is one without a handler. If the program gives it one meanwhile, or ignores it, it is not sent: then the
   OS thread waits on, and undoes what it gets.

   Cost: an OS thread with a stack of 256 KiB and a pipe for the time of the wait, some 50 us. */

#ifndef CORO_EMULATION_KERNEL_WAITS_H
#define CORO_EMULATION_KERNEL_WAITS_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/signalfd.h>
#endif

#ifdef SIGRTMAX
#define CORO_FIRST_SIGNAL (SIGRTMAX - 2)
#define CORO_LAST_SIGNAL SIGRTMIN
#else
#define CORO_FIRST_SIGNAL SIGIO         /* ignored unless a program wants it */
#define CORO_LAST_SIGNAL SIGIO
#endif

enum { CORO_WAIT_FLOCK, CORO_WAIT_FCNTL, CORO_WAIT_OPEN };
enum { CORO_WAIT_GOES_ON, CORO_WAIT_OVER, CORO_WAIT_ABANDONED };

typedef struct {
    int kind, fd, command;              /* the operation of flock, the command of fcntl, the flags of open */
    int unlock;                         /* for fcntl: the command of its kind that does not wait */
    mode_t mode;
    char *data;                         /* a struct flock, or a path; freed with the rest */
    int result, error;
    int told, told_by;
    int signal;                         /* 0: there is none to be had */
    int cancelled, references, state;   /* atomic */
    pthread_t thread;
} coro_wait;

static void coro_wait_release(coro_wait *w)
{
    if (__atomic_sub_fetch(&w->references, 1, __ATOMIC_ACQ_REL) == 0) {
        free(w->data);
        free(w);
    }
}

static void coro_wait_nothing(int signum)
{
    (void)signum;
}

static int coro_wait_has_signal(int signum)
{
    struct sigaction present;
    return signum != 0 && sigaction(signum, NULL, &present) == 0 && present.sa_handler == coro_wait_nothing;
}

/* A signal with our handler; 0 if the program uses all of them. */
static int coro_wait_find_signal(void)
{
    struct sigaction present, ours;
    int signum;
    memset(&ours, 0, sizeof ours);
    ours.sa_handler = coro_wait_nothing;
    sigemptyset(&ours.sa_mask);
    for (signum = CORO_FIRST_SIGNAL; signum >= CORO_LAST_SIGNAL; signum--) {
        if (coro_wait_has_signal(signum)) {
            return signum;
        }
        if (sigaction(signum, NULL, &present) == 0 && present.sa_handler == SIG_DFL
            && sigaction(signum, &ours, NULL) == 0) {
            return signum;
        }
    }
    return 0;
}

/* What nobody wants has come. */
static void coro_wait_undo(coro_wait *w)
{
    if (w->result < 0) {
        return;
    }
    switch (w->kind) {
    case CORO_WAIT_FLOCK:
        flock(w->fd, LOCK_UN);
        break;
    case CORO_WAIT_FCNTL:
        ((struct flock *)w->data)->l_type = F_UNLCK;
        fcntl(w->fd, w->unlock, w->data);
        break;
    default:
        close(w->result);
    }
}

static void *coro_wait_run(void *argument)
{
    coro_wait *w = argument;
    int tell = w->told_by;
    ssize_t told;
    do {
        if (__atomic_load_n(&w->cancelled, __ATOMIC_ACQUIRE)) {
            w->result = -1;
            w->error = ECANCELED;
            break;
        }
        switch (w->kind) {
        case CORO_WAIT_FLOCK:
            w->result = flock(w->fd, w->command);
            break;
        case CORO_WAIT_FCNTL:
            w->result = fcntl(w->fd, w->command, w->data);
            break;
        default:
            w->result = openat(w->fd, w->data, w->command, w->mode);
        }
        w->error = w->result < 0 ? errno : 0;
    } while (w->error == EINTR);
    if (__atomic_exchange_n(&w->state, CORO_WAIT_OVER, __ATOMIC_ACQ_REL) == CORO_WAIT_ABANDONED) {
        coro_wait_undo(w);
    }
    told = write(tell, "", 1);          /* fails if nobody listens any more; SIGPIPE is blocked here */
    (void)told;
    close(tell);
    coro_wait_release(w);
    return NULL;
}

/* 0, or the number of an error. The data is taken over in both cases. */
static int coro_wait_start(coro_wait **made, int kind, int fd, int command, int unlock, mode_t mode, char *data)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    int ends[2], error;
    size_t stack = 262144;
    coro_wait *w = calloc(1, sizeof *w);
    if (w == NULL || data == NULL || pipe(ends) < 0) {
        error = w == NULL || data == NULL ? ENOMEM : errno;
        free(data);
        free(w);
        return error;
    }
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    w->kind = kind;
    w->fd = fd;
    w->command = command;
    w->unlock = unlock;
    w->mode = mode;
    w->data = data;
    w->told = ends[0];
    w->told_by = ends[1];
    w->references = 2;
    w->signal = coro_wait_find_signal();
#ifdef PTHREAD_STACK_MIN
    if (stack < (size_t)PTHREAD_STACK_MIN) {
        stack = (size_t)PTHREAD_STACK_MIN;
    }
#endif
    sigfillset(&all);
    if (w->signal) {
        sigdelset(&all, w->signal);
    }
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, stack);
    pthread_sigmask(SIG_SETMASK, &all, &before);        /* a new thread begins with the mask of its maker */
    error = pthread_create(&w->thread, &attributes, coro_wait_run, w);
    if (error == EINVAL) {              /* the thread-local data of all libraries does not fit into that stack */
        error = pthread_create(&w->thread, NULL, coro_wait_run, w);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (error) {
        close(ends[0]);
        close(ends[1]);
        w->references = 1;
        coro_wait_release(w);
        return error;
    }
    *made = w;
    return 0;
}

/* Does the OS thread have the outcome? Waits for that at most so many milliseconds. */
static int coro_wait_is_over(coro_wait *w, int milliseconds)
{
    struct pollfd about = { w->told, POLLIN, 0 };
    return poll(&about, 1, milliseconds) > 0;
}

/* Take the OS thread out of the kernel. 0: it does not come out soon, as from a call to a file server that does not
   answer, or there is no signal for it. It undoes by itself what it gets then. */
static int coro_wait_cancel(coro_wait *w)
{
    int attempt;
    __atomic_store_n(&w->cancelled, 1, __ATOMIC_RELEASE);
    for (attempt = 0; attempt < 100 && coro_wait_has_signal(w->signal); attempt++) {
        pthread_kill(w->thread, w->signal);
        if (coro_wait_is_over(w, 1)) {
            return 1;
        }
    }
    return __atomic_exchange_n(&w->state, CORO_WAIT_ABANDONED, __ATOMIC_ACQ_REL) == CORO_WAIT_OVER;
}

/* The caller has done with it. */
static void coro_wait_end(coro_wait *w, int is_over)
{
    if (is_over) {
        pthread_join(w->thread, NULL);
    } else {
        pthread_detach(w->thread);
    }
    close(w->told);
    coro_wait_release(w);
}

/* A descriptor that is readable while one of the signals is pending; -1 with errno. */
static int coro_signal_descriptor(const sigset_t *signals)
{
#ifdef __linux__
    return signalfd(-1, signals, SFD_CLOEXEC | SFD_NONBLOCK);
#else
    (void)signals;
    errno = ENOSYS;
    return -1;
#endif
}

#endif
