/* A watchdog that needs no GIL: an OS thread that notices that the loop makes no progress, and has its OS thread say
   where it stands.

   Progress is a pair of counters that the scheduler keeps anyway: slices, and passes of the loop. The watchdog reads
   them a few times per limit, which costs the scheduler nothing. When they stand still it sends a signal to the loop's
   OS thread. The signal handler there writes which thread runs, and its Python functions. So the thread describes
   itself: nothing it looks at can change meanwhile, and it works while the GIL is held by somebody else or not at all.

   An idle loop stands still, too; it says so while it sleeps in its poller, which is no longer than the system call:
   afterwards it may have to wait for the GIL. Where it does, the other OS threads are asked who holds it. No signal is
   sent before the limit, and on Linux none while it would end a system call early: see watchdog.c.

   Rejected:
     faulthandler.dump_traceback_later()  has to be re-armed all the time, walks the frames of running threads from
                                          outside, and knows no coro threads
     a Python OS thread                   needs the GIL, which is what may be missing
     SIGALRM or SIGPROF timers            programs and profilers use them

   Cost: an OS thread that wakes 8 times per limit; two stores for each sleep in the poller. */
#ifndef CORO_WATCHDOG_H
#define CORO_WATCHDOG_H

#include <Python.h>
#include <stdint.h>

#include "_switch/signal_text.h"

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

/* 1 while the loop sleeps in its poller, or in a wait that takes its place. */
extern int coro_watchdog_asleep;

/* What to watch, and who tells what runs, in a signal handler on the loop's OS thread; before anything else. */
void coro_watchdog_init(const uint64_t *slices, const uint64_t *passes, coro_look look);

/* Report after `seconds` without progress (0: no more) to descriptor `fd`, by means of signal `signum`. Returns 0, an
   errno, or -1 when the program has a handler for that signal. */
int coro_watchdog_set(double seconds, int fd, int signum);

/* The loop begins and ends in the calling OS thread. */
void coro_watchdog_enter(PyThreadState *ts);
void coro_watchdog_leave(void);

/* In a forked child: there is no watchdog any more. */
void coro_watchdog_after_fork(void);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#endif
