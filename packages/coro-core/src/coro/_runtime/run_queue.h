/* The run queue: which threads are to run, in which order, and all that moves a thread between its lists.

   There are three intrusive lists, each a circle with a sentinel. `ready` collects whoever is scheduled. `batch` is
   what main works off now; when it is empty it takes over all of `ready`. `slicers` are those that come back with the
   next pass of the loop: they let everybody else run first, or were postponed, for lack of memory for their stack.

   Invariants, kept here and nowhere else:
   1. A thread is in at most one list, once.
   2. CORO_SCHEDULED is set exactly while it is in `ready` or `batch`, or was postponed; CORO_IN_SLICE exactly while it
      is in `slicers` and was not postponed.
   3. `postponed` is more than 0 when somebody is postponed.

   Cost: all is constant time but the release of slicers, which is linear in their number. Everything is inline, since
   it is part of each switch. */
#ifndef CORO_RUN_QUEUE_H
#define CORO_RUN_QUEUE_H

#include <Python.h>
#include <stdint.h>

enum { CORO_SCHEDULED = 4, CORO_IN_SLICE = 8 };

/* The first thing in a thread object. The flags have many other bits, see scheduler.pxd. `attention` is here because it
   fills the word. */
typedef struct coro_link {
    struct coro_link *next, *prev;
    PyObject *thread; /* that this is the link of; NULL in a sentinel */
    uint32_t flags;
    uint32_t attention;
} coro_link;

typedef struct {
    coro_link ready, batch, slicers;
    unsigned int postponed; /* how often since the slicers were released */
} coro_run_queue;

static inline void
coro_list_init(coro_link *head)
{
    head->next = head->prev = head;
}

static inline int
coro_list_empty(const coro_link *head)
{
    return head->next == head;
}

static inline void
coro_list_append(coro_link *head, coro_link *link)
{
    link->prev = head->prev;
    link->next = head;
    head->prev->next = link;
    head->prev = link;
}

static inline void
coro_list_unlink(coro_link *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    link->next = link->prev = NULL;
}

/* Move all of `from` behind the last of `to`. */
static inline void
coro_list_splice(coro_link *to, coro_link *from)
{
    if (from->next != from) {
        from->next->prev = to->prev;
        to->prev->next = from->next;
        from->prev->next = to;
        to->prev = from->prev;
        coro_list_init(from);
    }
}

/* At the start; and in a forked child, whose other threads are in no list whatever their flags say. */
static inline void
coro_queue_reset(coro_run_queue *q)
{
    coro_list_init(&q->ready);
    coro_list_init(&q->batch);
    coro_list_init(&q->slicers);
    q->postponed = 0;
}

/* Schedule a thread that is in no list, or among the slicers. */
static inline void
coro_queue_add(coro_run_queue *q, coro_link *link)
{
    if (__builtin_expect(link->flags & CORO_IN_SLICE, 0)) {
        link->flags &= ~(uint32_t)CORO_IN_SLICE;
        coro_list_unlink(link);
    }
    link->flags |= CORO_SCHEDULED;
    coro_list_append(&q->ready, link);
}

/* Let a thread that is in no list run after everybody else. */
static inline void
coro_queue_add_slicer(coro_run_queue *q, coro_link *link)
{
    link->flags |= CORO_IN_SLICE;
    coro_list_append(&q->slicers, link);
}

/* Have a thread that is in no list, having just been taken out, tried again in the next pass. */
static inline void
coro_queue_postpone(coro_run_queue *q, coro_link *link)
{
    link->flags |= CORO_SCHEDULED;
    coro_list_append(&q->slicers, link);
    q->postponed++;
}

/* Put a scheduled thread behind all others. */
static inline void
coro_queue_move_last(coro_run_queue *q, coro_link *link)
{
    coro_list_unlink(link);
    coro_list_append(&q->ready, link);
}

/* Take a thread out of whatever list it is in, if any. */
static inline void
coro_queue_leave(coro_link *link)
{
    if (link->flags & (CORO_SCHEDULED | CORO_IN_SLICE)) {
        coro_list_unlink(link);
        link->flags &= ~(uint32_t)(CORO_SCHEDULED | CORO_IN_SLICE);
    }
}

/* Take out the first of the batch, which must not be empty. */
static inline coro_link *
coro_queue_take(coro_run_queue *q)
{
    coro_link *link = q->batch.next;
    coro_list_unlink(link);
    link->flags &= ~(uint32_t)CORO_SCHEDULED;
    return link;
}

/* A new pass: those who waited for one are ready. */
static inline void
coro_queue_release(coro_run_queue *q)
{
    coro_link *link;
    if (coro_list_empty(&q->slicers)) {
        return;
    }
    for (link = q->slicers.next; link != &q->slicers; link = link->next) {
        link->flags = (link->flags & ~(uint32_t)CORO_IN_SLICE) | CORO_SCHEDULED;
    }
    coro_list_splice(&q->ready, &q->slicers);
    q->postponed = 0;
}

/* Will somebody run in this pass? */
static inline int
coro_queue_busy(const coro_run_queue *q)
{
    return !(coro_list_empty(&q->batch) && coro_list_empty(&q->ready));
}

/* Is nobody in any list? */
static inline int
coro_queue_empty(const coro_run_queue *q)
{
    return coro_list_empty(&q->batch) && coro_list_empty(&q->ready) && coro_list_empty(&q->slicers);
}

#endif
