/* What happens when a thread's stack runs into the guard zone of its slot, or a thread touches that of another slot,
   as code that copies stacks may: a dump that names the thread, then the
   signal's earlier action (faulthandler's, if it is enabled, else death by SIGSEGV). Never silent corruption.

   The handler needs a stack of its own, because the ordinary one has just overflowed. Such an alternate stack belongs
   to one OS thread: two that shared one would write over each other's frames. So the OS thread of a loop gets one while
   the loop runs, unless the program has given it one already. Cost: five system calls per loop; 64 KiB of address
   space, of which nothing is committed before a signal comes. */
#ifndef CORO_GUARD_H
#define CORO_GUARD_H

#include "_switch/signal_text.h"

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

/* A loop begins in the calling OS thread: give it an alternate signal stack if it has none, and, the first time,
   install the handler for SIGSEGV and SIGBUS, which asks `look` who runs. What the system refuses is done without. */
void coro_guard_enter(coro_look look);

/* The loop of the calling OS thread has ended: it has no alternate stack of ours any more. One that the program has
   installed meanwhile stays. */
void coro_guard_leave(void);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#endif
