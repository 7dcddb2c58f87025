/* Stack slots: where the machine stacks of threads live, and how they are copied away.

   There are N slots, regions of address space with a guard zone below each, committed only where they were touched. A
   thread is bound to one slot when it first runs and always runs there, because its frames hold addresses into it.
   Suspending a thread copies nothing: it stays in its slot as the slot's owner. Only when another thread of the same
   slot has to run is the owner evacuated (the bytes from its stack pointer to the slot's top go to the heap, exact
   size), and the other one's bytes are put back. So up to N busy threads switch without a copy; beyond that a switch
   of those that share a slot costs one evacuation and one restoration of typically under 1 KiB, and an idle thread
   costs its own bytes alone. N = 1 is the classical design of stack-copying threads.

   While a thread is evacuated nothing may follow a pointer into its stack. From CPython 3.12 on the chain of Python
   frames leads across entry frames that lie there, so evacuation reroutes those links and restoration puts them back
   (coro_interp_bypass).

   The tops of the slots are staggered by a few cache lines so that the busiest part of every stack does not compete
   for the same cache sets. Huge pages are switched off: a slot touched in one byte would cost 2 MiB. */
#ifndef CORO_SLOTS_H
#define CORO_SLOTS_H

#include <Python.h>
#include <stddef.h>
#include <stdint.h>

#include "_switch/interp.h"

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

/* Less would not hold the frames of a few nested calls through C; CPython 3.14 and newer refuse less than 48 KiB, 96 or
   192 KiB with sanitizers (_PyOS_MIN_STACK_SIZE). */
#define CORO_SMALLEST_STACK (192 * 1024)

struct coro_stack;

typedef struct {
    char *base;                /* lowest usable address; the guard zone ends here */
    char *top;
    struct coro_stack *owner;  /* whose stack is in place, or NULL */
    uint32_t threads;          /* bound to this slot and alive */
    uint8_t crowded;           /* its last owner left a large slice: new threads go elsewhere */
    uint8_t ran;               /* since the last look for deep excursions */
    uint8_t padding[2];
} coro_slot;

/* The stack and interpreter state of one thread; part of the thread object. */
typedef struct coro_stack {
    void *sp;                  /* of the parked stack */
    coro_slot *slot;           /* NULL until the thread first runs */
    char *copy;                /* links, then the bytes sp..top, when the thread is evacuated; a thread in place keeps
                                  the buffer for its next evacuation */
    uint32_t size;             /* of those bytes, uncompressed; 0 while the thread is in place */
    uint32_t capacity;         /* of `copy` */
    uint32_t packed;           /* size of `copy` in compressed form, 0 when it is plain */
    uint16_t links;
    uint16_t flags;
    _PyStackChunk *root;       /* of the data stack */
    const void *key;           /* what the data stack's size is learned by */
    coro_interp interp;
} coro_stack;

enum { CORO_STACK_COMPRESS = 1, CORO_STACK_NOTED = 2 /* the use of its data stack */ };

/* Counters since the process began. A collision: a new thread had to share a slot with living ones. */
typedef struct {
    uint64_t evacuations, evacuated_bytes, restorations, restored_bytes, collisions, trims;
} coro_slot_counters;

extern coro_slot *coro_slots;
extern int coro_slot_count;
extern size_t coro_slot_size;
extern coro_slot_counters coro_slot_counted;

/* Map `count` slots of `size` usable bytes each. Returns 0, or an errno. */
int coro_slots_map(int count, size_t size);

/* Choose a slot for a thread that runs for the first time. */
coro_slot *coro_slots_choose(void);

/* Copy the owner of a slot away. Returns 0, or -1 when memory ran out (the owner is still in place). */
int coro_slots_evacuate(coro_slot *slot);

/* Put a thread's bytes back; its slot must have no owner and its copy must be plain. */
void coro_slots_restore(coro_stack *stack);

/* The thread is dead: leave the slot. With `abandoned` it still has live frames: their links are rerouted for good. */
void coro_slots_leave(coro_stack *stack, int abandoned);

/* In a forked child whose threads are all gone: leave slots and stacks as they are, for good, and forget them. */
void coro_slots_abandon(void);

/* Give pages back that an excursion deeper than 256 KiB below the parked stack pointer has touched. */
void coro_slots_trim(void);

/* Innermost frame of a parked thread whose copy, if any, is plain. */
struct _PyInterpreterFrame *coro_slots_frame(const coro_stack *stack);

/* The slot whose guard zone contains an address, or NULL. Async-signal-safe. */
coro_slot *coro_slots_guard_hit(const void *address);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

/* Bring a thread's stack into place. Returns -1 when memory ran out: nothing has changed then. */
static inline int
coro_slots_place(coro_stack *stack)
{
    coro_slot *slot = stack->slot;
    if (slot->owner == stack) {
        return 0;
    }
    if (slot->owner != NULL && coro_slots_evacuate(slot) < 0) {
        return -1;
    }
    slot->owner = stack;
    if (stack->size != 0) {
        coro_slots_restore(stack);
    }
    return 0;
}

#endif
