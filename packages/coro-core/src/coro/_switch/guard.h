/* What happens when a thread's stack runs into the guard zone of its slot: a dump that names the thread, then the
   signal's earlier action (faulthandler's, if it is enabled, else death by SIGSEGV). Never silent corruption. */
#ifndef CORO_GUARD_H
#define CORO_GUARD_H

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

/* Given a slot, stores the id of the thread that runs and returns its name (ASCII) or NULL. Async-signal-safe. */
typedef const char *(*coro_guard_names)(void *slot, unsigned long long *id);

/* Install the handler for SIGSEGV and SIGBUS in the calling OS thread, once. Returns 0, or -1 when the system refuses
   (the program then runs without the dump). */
int coro_guard_install(coro_guard_names names);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#endif
