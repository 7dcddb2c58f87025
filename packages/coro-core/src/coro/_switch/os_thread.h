/* Which OS thread is this? An address that no two living OS threads share, for comparisons.

   Where the compiler knows the thread pointer it is one instruction; elsewhere pthread_self(), which is a call. Asking
   CPython for the thread state would be dearer than either, and says nothing in an OS thread without one. */
#ifndef CORO_OS_THREAD_H
#define CORO_OS_THREAD_H

#include <pthread.h>

static inline void *
coro_os_thread(void)
{
#if defined(__has_builtin)
#if __has_builtin(__builtin_thread_pointer)
    return __builtin_thread_pointer();
#else
    return (void *)pthread_self();
#endif
#else
    return (void *)pthread_self();
#endif
}

#endif
