/* Where main is while a thread runs; see _switch/slice.h. */
#include "_switch/slice.h"

void *coro_main_sp;
coro_interp coro_main_state;
int coro_main_away;
#if CORO_HAS_STACK_LIMITS
coro_slot *coro_protected;
#endif
