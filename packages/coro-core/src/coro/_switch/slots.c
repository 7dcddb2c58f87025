/* Mapping, choosing, evacuating and restoring stack slots; see _switch/slots.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "_switch/slots.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "_switch/datastack.h"

#if defined(CORO_VALGRIND)
#include <valgrind/memcheck.h>
#include <valgrind/valgrind.h>
#endif

enum {
    GUARD = 64 * 1024,        /* larger than the frame of any C function that does not probe its stack */
    STAGGER = 576,            /* nine cache lines */
    STAGGER_SPAN = 3072,
    LARGE_SLICE = 16 * 1024,
    EXCURSION = 256 * 1024,
    LINKS_AT_ONCE = 8,
    SPARE_ROOM = 128,         /* a kept buffer may be this much larger than what it has to hold */
    SHARED_AT_LEAST = 64,
    CANDIDATES = 16,          /* looked at for a new thread where no slot is empty */
};

coro_slot *coro_slots;
int coro_slot_count;
size_t coro_slot_size;
coro_slot_counters coro_slot_counted;

static char *mapping;
static size_t mapping_size;
static int first_empty;       /* no slot before it is empty */
static int next_shared;

int
coro_slots_map(int count, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), stride;
    coro_slot *slots;
    char *region;
    int i, failed = 0;
    size = (size + page - 1) & ~(page - 1);
    stride = size + GUARD;
    if (count < 1 || (size_t)count > SIZE_MAX / 2 / stride) {
        return EINVAL;
    }
    slots = PyMem_RawCalloc((size_t)count, sizeof(*slots));
    if (slots == NULL) {
        return ENOMEM;
    }
    region = mmap(NULL, (size_t)count * stride, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS
#ifdef MAP_NORESERVE
                      | MAP_NORESERVE
#endif
#ifdef MAP_STACK
                      | MAP_STACK
#endif
                  ,
                  -1, 0);
    if (region == MAP_FAILED) {
        failed = errno;
        PyMem_RawFree(slots);
        return failed;
    }
#ifdef MADV_NOHUGEPAGE
    madvise(region, (size_t)count * stride, MADV_NOHUGEPAGE);
#endif
    for (i = 0; i < count && !failed; i++) {
        char *low = region + (size_t)i * stride;
        if (mprotect(low, GUARD, PROT_NONE) < 0) {
            failed = errno;
        }
        slots[i].base = low + GUARD;
        slots[i].top = low + stride - (((size_t)i * STAGGER) % STAGGER_SPAN & ~(size_t)63);
#if defined(CORO_VALGRIND)
        (void)VALGRIND_STACK_REGISTER(slots[i].base, low + stride);
#endif
    }
    if (failed) {
        munmap(region, (size_t)count * stride);
        PyMem_RawFree(slots);
        return failed;
    }
    if (mapping != NULL) {
        munmap(mapping, mapping_size);
        PyMem_RawFree(coro_slots);
    }
    mapping = region;
    mapping_size = (size_t)count * stride;
    coro_slots = slots;
    first_empty = next_shared = 0;
    coro_slot_count = count;
    coro_slot_size = size;
    return 0;
}

/* The first empty slot, because its top is most likely in memory already. Where there is none, one of the first half is
   shared, of 64 at least.

   Threads that take turns in a slot are copied however many they are. So the fewer slots that happens in, the more
   threads stay uncopied, and the fewer pages all those copies go through. Measured with more than 64, which outgrow the
   processor's smallest table of pages: 1 to 3 % of an echo request.

   Of the shared slots one with few threads is taken, not the one with the fewest. Reading all of them would take longer
   than the rest of a thread's start. */
coro_slot *
coro_slots_choose(void)
{
    coro_slot *best = NULL;
    int i, at = next_shared, shared = coro_slot_count / 2;
    while (first_empty < coro_slot_count) {
        coro_slot *slot = &coro_slots[first_empty++];
        if (slot->threads == 0) {
            slot->crowded = 0;
            slot->threads = 1;
            return slot;
        }
    }
    if (shared < SHARED_AT_LEAST) {
        shared = coro_slot_count < SHARED_AT_LEAST ? coro_slot_count : SHARED_AT_LEAST;
    }
    for (i = 0; i < CANDIDATES && i < shared; i++) {
        coro_slot *slot = &coro_slots[at];
        at = at + 1 < shared ? at + 1 : 0;
        if (best == NULL || (best->crowded && !slot->crowded)
            || (best->crowded == slot->crowded && slot->threads < best->threads)) {
            best = slot;
        }
    }
    next_shared = best - coro_slots + 1 < shared ? (int)(best - coro_slots) + 1 : 0;
    coro_slot_counted.collisions++;
    best->threads++;
    return best;
}

/* A buffer of (nearly) exactly `size` bytes for a thread's copy: the one of its last evacuation if that fits. */
static inline char *
room_for(coro_stack *stack, size_t size)
{
    if (stack->capacity < size || stack->capacity > size + SPARE_ROOM) {
        PyMem_RawFree(stack->copy);
        stack->capacity = 0;
        stack->copy = PyMem_RawMalloc(size);
        if (stack->copy == NULL) {
            return NULL;
        }
        stack->capacity = (uint32_t)size;
    }
    return stack->copy;
}

/* The bytes of a parked thread begin a little below sp where the ABI grants leaf functions a red zone; nobody uses it
   across a call, so sp is the exact limit. */
int
coro_slots_evacuate(coro_slot *slot)
{
    coro_stack *owner = slot->owner;
    const char *sp = owner->sp;
    size_t size = (size_t)(slot->top - sp), head;
    coro_interp_link few[LINKS_AT_ONCE], *many = NULL;
    int links;
    struct _PyInterpreterFrame *frame = coro_slots_frame(owner);
    struct _PyInterpreterFrame *outermost
        = coro_datastack_bottom(owner->root, owner->interp.chunk, owner->interp.stack_top);
    char *copy;

    links = coro_interp_bypass(frame, outermost, sp, slot->top, few, LINKS_AT_ONCE);
    head = (size_t)links * sizeof(*few);
    copy = links > UINT16_MAX ? NULL : room_for(owner, head + size);
    if (links > LINKS_AT_ONCE) {
        if (copy == NULL) {
            return -1; /* nothing was rerouted yet */
        }
        many = (coro_interp_link *)copy;
        coro_interp_bypass(frame, outermost, sp, slot->top, many, links);
    } else if (copy == NULL) {
        coro_interp_relink(few, links);
        return -1;
    } else {
        memcpy(copy, few, head);
    }
#if defined(CORO_VALGRIND)
    VALGRIND_DISABLE_ERROR_REPORTING;
#endif
    memcpy(copy + head, sp, size);
#if defined(CORO_VALGRIND)
    VALGRIND_ENABLE_ERROR_REPORTING;
    (void)VALGRIND_MAKE_MEM_DEFINED(copy, head + size); /* compression reads the holes of the frames, too */
#endif
    owner->size = (uint32_t)size;
    owner->links = (uint16_t)links;
    owner->packed = 0;
    slot->owner = NULL;
    slot->crowded = size > LARGE_SLICE;
    /* Once is enough for a thread whose frames fit where they are. */
    if (!(owner->flags & CORO_STACK_NOTED) || owner->interp.chunk != owner->root) {
        owner->flags |= CORO_STACK_NOTED;
        coro_datastack_note(owner->key, owner->root, owner->interp.chunk, owner->interp.stack_top);
    }
    coro_slot_counted.evacuations++;
    coro_slot_counted.evacuated_bytes += size;
    return 0;
}

void
coro_slots_restore(coro_stack *stack)
{
    size_t head = (size_t)stack->links * sizeof(coro_interp_link);
#if defined(CORO_VALGRIND)
    VALGRIND_MAKE_MEM_UNDEFINED(stack->sp, stack->size);
    VALGRIND_DISABLE_ERROR_REPORTING;
#endif
    memcpy(stack->sp, stack->copy + head, stack->size);
#if defined(CORO_VALGRIND)
    VALGRIND_ENABLE_ERROR_REPORTING;
#endif
    coro_interp_relink((const coro_interp_link *)stack->copy, stack->links);
    coro_slot_counted.restorations++;
    coro_slot_counted.restored_bytes += stack->size;
    stack->size = 0;
    stack->links = 0;
}

void
coro_slots_leave(coro_stack *stack, int abandoned)
{
    coro_slot *slot = stack->slot;
    if (slot == NULL) {
        return;
    }
    if (slot->owner == stack) {
        if (abandoned && coro_slots_evacuate(slot) < 0) {
            return; /* no memory even for this: the slot stays occupied for ever, which harms nobody */
        }
        slot->owner = NULL;
    }
    PyMem_RawFree(stack->copy);
    stack->copy = NULL;
    stack->size = stack->packed = stack->capacity = 0;
    stack->links = 0;
    stack->slot = NULL;
    slot->threads--;
    if (slot->threads == 0 && slot - coro_slots < first_empty) {
        first_empty = (int)(slot - coro_slots);
    }
}

void
coro_slots_abandon(void)
{
    mapping = NULL;
    coro_slots = NULL;
    coro_slot_count = first_empty = next_shared = 0;
}

void
coro_slots_trim(void)
{
#if defined(MADV_DONTNEED) && defined(__linux__)
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int i;
    for (i = 0; i < coro_slot_count; i++) {
        coro_slot *slot = &coro_slots[i];
        char *sp, *deep;
        unsigned char resident = 0;
        if (!slot->ran) {
            continue;
        }
        slot->ran = 0;
        sp = slot->owner != NULL ? (char *)slot->owner->sp : slot->top;
        deep = (char *)((uintptr_t)(sp - EXCURSION) & ~(uintptr_t)(page - 1));
        /* A stack grows downwards page by page, so whoever went deeper has touched the page just beyond the limit. */
        if (deep <= slot->base || mincore(deep - page, page, &resident) < 0 || !(resident & 1)) {
            continue;
        }
        madvise(slot->base, (size_t)(deep - slot->base), MADV_DONTNEED);
        coro_slot_counted.trims++;
    }
#endif
}

struct _PyInterpreterFrame *
coro_slots_frame(const coro_stack *stack)
{
    const char *sp = stack->sp, *now = sp;
    if (stack->slot == NULL) {
        return NULL;
    }
    if (stack->size != 0) {
        now = stack->copy + (size_t)stack->links * sizeof(coro_interp_link);
    }
    return coro_interp_top_frame(&stack->interp, sp, stack->slot->top, now);
}

coro_slot *
coro_slots_guard_hit(const void *address)
{
    int i;
    const char *at = address;
    for (i = 0; i < coro_slot_count; i++) {
        if (at >= coro_slots[i].base - GUARD && at < coro_slots[i].base) {
            return &coro_slots[i];
        }
    }
    return NULL;
}
