/* Timers: an indexed 4-ary heap of (deadline, sequence number) pairs.

   Every timer knows its place in the heap, so cancelling one costs O(log n) and leaves nothing behind: a server that
   guards each request with a timeout inserts and cancels all day without the heap growing. Equal deadlines fire in
   insertion order, by a 64-bit sequence number. Four children a node halve the depth of a binary heap and keep the
   children of a node within two cache lines. Memory: 24 bytes an entry in the heap array, 16 in the timer itself; the
   array shrinks again when three quarters of it are free. */
#ifndef CORO_TIMERS_H
#define CORO_TIMERS_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

/* Part of the object it wakes. `place` is 0 while the timer is not in a heap, else its index plus one. */
typedef struct coro_timer {
    size_t place;
    void *owner; /* the object to wake, borrowed: whoever inserts keeps it alive */
} coro_timer;

typedef struct {
    int64_t when;
    uint64_t sequence;
    coro_timer *timer;
} coro_timer_entry;

typedef struct {
    coro_timer_entry *entries;
    size_t count;
    size_t capacity;
    uint64_t next_sequence;
} coro_timer_heap;

/* Insert a timer that is in no heap. Returns 0, or -1 when memory ran out (nothing was changed). */
int coro_timers_insert(coro_timer_heap *heap, coro_timer *timer, int64_t when);

/* Take a timer out; nothing happens when it is in no heap. */
void coro_timers_remove(coro_timer_heap *heap, coro_timer *timer);

/* Take out and return the first timer that is due at `now`, or NULL. */
coro_timer *coro_timers_pop_due(coro_timer_heap *heap, int64_t now);

/* Give the memory back; timers still inside are marked as being in no heap. */
void coro_timers_clear(coro_timer_heap *heap);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#endif
