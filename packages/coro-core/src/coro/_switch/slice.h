/* One slice: main puts a thread's stack in place, loads its interpreter state, swaps, and takes both back.

   Threads never switch to each other; each swaps to main and main swaps to the next (a star). Main's own interpreter
   state is not loaded between two slices: the loop does nothing there that could notice. Whoever in main wants to
   call into Python calls coro_enter_main() first. The functions are inlined into the scheduler's loop; the state is in
   slice.c, so that it exists once. */
#ifndef CORO_SLICE_H
#define CORO_SLICE_H

#include <string.h>

#include "_switch/datastack.h"
#include "_switch/slots.h"
#include "_switch/swap.h"

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

extern void *coro_main_sp;           /* of main's parked stack, while a thread runs */
extern coro_interp coro_main_state;
extern int coro_main_away;           /* main's interpreter state is in coro_main_state, not in the thread state */
#if CORO_HAS_STACK_LIMITS
extern coro_slot *coro_protected;    /* the slot whose limits the thread state knows now */
#endif

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

static inline void
coro_enter_main(PyThreadState *ts)
{
    if (coro_main_away) {
        coro_interp_load(ts, &coro_main_state, 0);
#if CORO_HAS_STACK_LIMITS
        if (coro_protected != NULL) {
            PyUnstable_ThreadState_ResetStackProtection(ts);
            coro_protected = NULL;
        }
#endif
        coro_main_away = 0;
    }
}

/* In a forked child: the OS thread whose main this was is gone. What main held is never released. */
static inline void
coro_forget_main(void)
{
    memset(&coro_main_state, 0, sizeof(coro_main_state));
    coro_main_away = 0;
#if CORO_HAS_STACK_LIMITS
    coro_protected = NULL;
#endif
#if PY_VERSION_HEX < 0x030C0000
    if (coro_interp_known.limit != NULL && *coro_interp_known.limit == coro_interp_known.limit_replaced_by) {
        *coro_interp_known.limit = coro_interp_known.limit_replaced;
    }
    coro_interp_known.limit_replaced_by = -1;
#endif
}

/* Prepare the stack of a thread that runs for the first time, in the slot it was given. Returns -1 when memory ran out;
   the thread has left the slot then. */
static inline int
coro_stack_begin(coro_stack *s, void (*function)(void *), void *argument)
{
    if (coro_slots_place(s) < 0) {
        coro_slots_leave(s, 0);
        return -1;
    }
    s->sp = coro_swap_prepare(s->slot->top, function, argument);
    return 0;
}

/* Run one slice of a thread; returns when it parks. -1: its stack could not be put in place for lack of memory. */
static inline int
coro_stack_run(PyThreadState *ts, coro_stack *s)
{
    if (__builtin_expect(coro_slots_place(s) < 0, 0)) {
        return -1;
    }
    if (!coro_main_away) {
        coro_interp_save(ts, &coro_main_state);
        coro_main_away = 1;
    }
    coro_interp_load(ts, &s->interp, 1);
#if CORO_HAS_STACK_LIMITS
    if (coro_protected != s->slot) {
        PyUnstable_ThreadState_SetStackProtection(ts, s->slot->base, coro_slot_size);
        coro_protected = s->slot;
    }
#endif
    s->slot->ran = 1;
    coro_swap(&coro_main_sp, s->sp);
    coro_interp_save(ts, &s->interp);
    return 0;
}

/* Called on a thread's stack: park it. */
static inline void
coro_stack_park(coro_stack *s)
{
    coro_swap(&s->sp, coro_main_sp);
}

/* The base frame of every thread: call its function, then end(), then park for good. This frame is copied for each
   parked thread, so nothing is kept in it across the call but two pointers, and the compiler is kept from inlining
   begin() and end(), which are 200 bytes of it. */
static inline void
coro_call_thread(PyObject *thread, PyObject *function, PyObject *args, PyObject *kwargs, coro_stack *stack,
                 void (*begin)(PyObject *), int (*end)(PyObject *, PyObject *))
{
    __asm__("" : "+r"(begin), "+r"(end));
    begin(thread);
    end(thread, PyObject_Call(function, args, kwargs == Py_None ? NULL : kwargs));
    (void)stack;
    coro_stack_park(stack);
}

/* The thread will run soon: begin to fetch what its restoration and its innermost frames will touch, and what moving
   the present owner of its slot away reads. Always inlined: gcc takes a function that only prefetches for one without
   any effect, and drops its calls. */
static inline __attribute__((always_inline)) void
coro_stack_prefetch(const coro_stack *s)
{
    if (s->size != 0) {
        const char *copy = s->copy, *end = copy + (s->size < 1024 ? s->size : 1024);
        const char *frames = (const char *)s->interp.stack_top;
        for (; copy < end; copy += 64) {
            __builtin_prefetch(copy);
        }
        __builtin_prefetch(frames - 64);
        __builtin_prefetch(frames - 128);
        __builtin_prefetch(frames - 192);
        __builtin_prefetch(frames - 256);
        if (s->slot->owner != NULL) {
            const coro_stack *owner = s->slot->owner;
            const char *line = owner->sp, *owners_frames = (const char *)owner->interp.stack_top;
            for (end = line + 1024 < s->slot->top ? line + 1024 : s->slot->top; line < end; line += 64) {
                __builtin_prefetch(line);
            }
            __builtin_prefetch(owners_frames - 64);
            __builtin_prefetch(owners_frames - 128);
        }
    }
}

/* What main traced with before the loop began (sys.settrace, sys.setprofile), for threads to inherit. */
static inline int
coro_main_is_traced(void)
{
    return coro_main_away && coro_main_state.rare != NULL
        && (coro_main_state.rare->tracefunc != NULL || coro_main_state.rare->profilefunc != NULL);
}

static inline void
coro_inherit_tracing(void)
{
    coro_interp_rare *r = coro_main_state.rare;
    if (r->tracefunc != NULL) {
        PyEval_SetTrace(r->tracefunc, r->traceobj);
    }
    if (r->profilefunc != NULL) {
        PyEval_SetProfile(r->profilefunc, r->profileobj);
    }
}

#endif
