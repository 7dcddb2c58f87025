/* The indexed 4-ary heap declared in _runtime/timers.h. */
#include "_runtime/timers.h"

#include <stdlib.h>

enum { ARITY = 4, SMALLEST = 64 };

static inline int
before(const coro_timer_entry *a, const coro_timer_entry *b)
{
    return a->when != b->when ? a->when < b->when : a->sequence < b->sequence;
}

static inline void
put(coro_timer_heap *heap, size_t index, coro_timer_entry entry)
{
    heap->entries[index] = entry;
    entry.timer->place = index + 1;
}

static void
sift_up(coro_timer_heap *heap, size_t index, coro_timer_entry entry)
{
    while (index > 0) {
        size_t parent = (index - 1) / ARITY;
        if (!before(&entry, &heap->entries[parent])) {
            break;
        }
        put(heap, index, heap->entries[parent]);
        index = parent;
    }
    put(heap, index, entry);
}

static void
sift_down(coro_timer_heap *heap, size_t index, coro_timer_entry entry)
{
    for (;;) {
        size_t child = index * ARITY + 1, last = child + ARITY, least = child;
        if (child >= heap->count) {
            break;
        }
        if (last > heap->count) {
            last = heap->count;
        }
        for (child++; child < last; child++) {
            if (before(&heap->entries[child], &heap->entries[least])) {
                least = child;
            }
        }
        if (!before(&heap->entries[least], &entry)) {
            break;
        }
        put(heap, index, heap->entries[least]);
        index = least;
    }
    put(heap, index, entry);
}

static int
resize(coro_timer_heap *heap, size_t capacity)
{
    coro_timer_entry *entries;
    if (capacity > SIZE_MAX / sizeof(*entries)) {
        return -1;
    }
    entries = realloc(heap->entries, capacity * sizeof(*entries));
    if (entries == NULL) {
        return -1;
    }
    heap->entries = entries;
    heap->capacity = capacity;
    return 0;
}

int
coro_timers_insert(coro_timer_heap *heap, coro_timer *timer, int64_t when)
{
    coro_timer_entry entry;
    if (heap->count == heap->capacity && resize(heap, heap->capacity ? heap->capacity * 2 : SMALLEST) < 0) {
        return -1;
    }
    entry.when = when;
    entry.sequence = heap->next_sequence++;
    entry.timer = timer;
    sift_up(heap, heap->count++, entry);
    return 0;
}

void
coro_timers_remove(coro_timer_heap *heap, coro_timer *timer)
{
    size_t index;
    coro_timer_entry last;
    if (timer->place == 0) {
        return;
    }
    index = timer->place - 1;
    timer->place = 0;
    last = heap->entries[--heap->count];
    if (index < heap->count) {
        if (index > 0 && before(&last, &heap->entries[(index - 1) / ARITY])) {
            sift_up(heap, index, last);
        } else {
            sift_down(heap, index, last);
        }
    }
    if (heap->capacity > SMALLEST && heap->count < heap->capacity / 4) {
        resize(heap, heap->capacity / 2); /* a shrink that fails leaves the larger array, which is as good */
    }
}

coro_timer *
coro_timers_pop_due(coro_timer_heap *heap, int64_t now)
{
    coro_timer *timer;
    if (heap->count == 0 || heap->entries[0].when > now) {
        return NULL;
    }
    timer = heap->entries[0].timer;
    coro_timers_remove(heap, timer);
    return timer;
}

void
coro_timers_clear(coro_timer_heap *heap)
{
    size_t i;
    for (i = 0; i < heap->count; i++) {
        heap->entries[i].timer->place = 0;
    }
    free(heap->entries);
    heap->entries = NULL;
    heap->count = heap->capacity = 0;
}
