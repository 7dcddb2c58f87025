/* How the profiler takes what it is told: a function is entered, a function is left.

   Every Python function that is entered is left again; C functions may be left without a word when an exception goes
   through them, so leaving a Python function also leaves the C functions above it. Cost: see accounts.h. */
#ifndef CORO_PROFILE_CALLS_H
#define CORO_PROFILE_CALLS_H

#include "profiler/_core/accounts.h"

static inline int
coro_profile_elsewhere(void)
{
    return CORO_PROFILE_RARE(coro_os_thread() != coro_profile.os_thread);
}

static inline void
coro_profile_enter(const void *key, PyObject *object, int kind, int counts)
{
    coro_profile_state *p = &coro_profile;
    coro_profile_thread *t = p->current;
    coro_profile_node *n = t->node, *c = n->last;
    coro_profile_charge(coro_now(p->clock));
    if (t->skipped != 0) {
        t->skipped += kind == CORO_PROFILE_PYTHON;
        p->dropped++;
        return;
    }
    if (c == NULL || c->key != key) {
        c = coro_profile_find(n, key, object, kind);
        if (c == NULL) {
            t->skipped += kind == CORO_PROFILE_PYTHON;
            p->dropped++;
            p->sink = n;
            return;
        }
    }
    c->calls += counts;
    t->node = c;
    p->sink = c;
}

static inline void
coro_profile_leave_python(const void *key)
{
    coro_profile_state *p = &coro_profile;
    coro_profile_thread *t = p->current;
    coro_profile_node *n = t->node;
    coro_profile_charge(coro_now(p->clock));
    if (t->skipped != 0) {
        t->skipped--;
        return;
    }
    while (n->key != key && n->parent != NULL) {
        n = n->parent;
    }
    if (n->parent != NULL) {
        n = n->parent;
    }
    else {
        /* It was entered before its thread was watched; all that is left of it may be C functions it called. */
        n = t->node;
        while (n->kind == CORO_PROFILE_C) {
            n = n->parent;
        }
    }
    t->node = p->sink = n;
}

static inline void
coro_profile_leave_c(const void *key)
{
    coro_profile_state *p = &coro_profile;
    coro_profile_thread *t = p->current;
    coro_profile_node *n = t->node;
    coro_profile_charge(coro_now(p->clock));
    if (t->skipped != 0) {
        return;
    }
    while (n->kind == CORO_PROFILE_C && n->key != key) {
        n = n->parent;
    }
    if (n->kind == CORO_PROFILE_C) {
        t->node = n->parent;
    }
    p->sink = t->node;
}

/* The usual case of the three above, without a call of another function, which is what makes it quick: ticks only, read
   from the processor's counter, in a thread all of whose calls have nodes, and the child entered is the one found last
   or the one expected after it, the function left the innermost. 0: it is none of these, and nothing was done. */

static inline int
coro_profile_is_usual(const coro_profile_thread *t)
{
    const coro_profile_state *p = &coro_profile;
    return !CORO_PROFILE_RARE(t->skipped != 0 || p->values > 1 || p->clock->mode != CORO_CLOCK_COUNTER);
}

static inline void
coro_profile_charge_usual(void)
{
    coro_profile_state *p = &coro_profile;
    int64_t now = (int64_t)coro_counter();
    p->sink->own[0] += now - p->last;
    p->last = now;
}

static inline int
coro_profile_enter_usual(const void *key, int counts)
{
    coro_profile_state *p = &coro_profile;
    coro_profile_thread *t = p->current;
    coro_profile_node *n = t->node, *c = n->last;
    if (CORO_PROFILE_RARE(c == NULL) || !coro_profile_is_usual(t)) {
        return 0;
    }
    if (c->key != key) {
        c = c->then;
        if (c->key != key) {
            return 0;
        }
        n->last = c;
    }
    coro_profile_charge_usual();
    c->calls += counts;
    t->node = p->sink = c;
    return 1;
}

static inline int
coro_profile_leave_usual(const void *key)
{
    coro_profile_state *p = &coro_profile;
    coro_profile_thread *t = p->current;
    coro_profile_node *n = t->node;
    if (CORO_PROFILE_RARE(n->key != key) || !coro_profile_is_usual(t)) {
        return 0;
    }
    coro_profile_charge_usual();
    t->node = p->sink = n->parent;
    return 1;
}

#endif
