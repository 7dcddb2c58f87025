/* The accounting core of the profiler: trees of calls, one for each thread, and what the interpreter reports into them.

   A node of a tree stands for a function called along one path; the node of the innermost active call is all there is
   of a thread's call stack, so a call is "find the child", a return is "go to the parent", and nothing is pushed.
   Between two events all that was consumed is charged to one node, the sink. Aggregates, callers and flame graphs are
   computed from the trees when profiling has ended, not while the program runs.

   The trees are in profiler/_core/tree.h, what the interpreter reports in profiler/_core/events.h, what functions
   report themselves in profiler/_core/primitives.h; here are the charging, the threads and what the scheduler tells.
   Calls for which there are too many nodes are charged to the innermost caller that has one. An event costs one reading
   of the tick counter, which is most of what is spent here, and a few cache lines; a switch costs no reading: where a
   slice begins the scheduler has just looked, and where it ends the function that parks has.

   All of this is static because only _profiler uses it. */
#ifndef CORO_PROFILE_H
#define CORO_PROFILE_H

#include <sys/resource.h>

#include "_switch/os_thread.h"
#include "profiler/_core/tree.h"

/* ------------------------------------------------------------------------------------------ charging */

static void
coro_profile_sample(int64_t now, int64_t *values)
{
    struct rusage r;
#if defined(RUSAGE_THREAD)
    getrusage(RUSAGE_THREAD, &r);
#else
    getrusage(RUSAGE_SELF, &r);
#endif
    values[0] = (int64_t)r.ru_utime.tv_sec * 1000000 + r.ru_utime.tv_usec;
    values[1] = (int64_t)r.ru_stime.tv_sec * 1000000 + r.ru_stime.tv_usec;
    values[2] = r.ru_maxrss;
    values[3] = r.ru_ixrss;
    values[4] = r.ru_idrss;
    values[5] = r.ru_isrss;
    values[6] = r.ru_minflt;
    values[7] = r.ru_majflt;
    values[8] = r.ru_nswap;
    values[9] = r.ru_inblock;
    values[10] = r.ru_oublock;
    values[11] = r.ru_msgsnd;
    values[12] = r.ru_msgrcv;
    values[13] = r.ru_nsignals;
    values[14] = r.ru_nvcsw;
    values[15] = r.ru_nivcsw;
    coro_profile.sampled_at = now;
}

static __attribute__((noinline)) void
coro_profile_charge_usage(int64_t now)
{
    coro_profile_state *p = &coro_profile;
    int64_t values[CORO_PROFILE_RUSAGE];
    int i;
    coro_profile_sample(now, values);
    for (i = 0; i < CORO_PROFILE_RUSAGE; i++) {
        p->sink->own[i + 1] += values[i] - p->sampled[i];
        p->sampled[i] = values[i];
    }
}

/* Everything since the last event belongs to the sink. */
static inline void
coro_profile_charge(int64_t now)
{
    coro_profile_state *p = &coro_profile;
    p->sink->own[0] += now - p->last;
    p->last = now;
    if (p->values > 1 && now - p->sampled_at >= p->sample_every) {
        coro_profile_charge_usage(now);
    }
}

/* ------------------------------------------------------------------------------------------ threads */

static coro_profile_thread *
coro_profile_new_thread(uint64_t number)
{
    coro_profile_thread *t = calloc(1, sizeof(*t));
    if (t != NULL) {
        t->number = number;
        t->root = t->node = coro_profile_new_node(NULL, NULL, 0, CORO_PROFILE_ROOT);
        if (t->root == NULL) {
            free(t);
            return NULL;
        }
    }
    return t;
}

/* The place of a thread in the table, or where it would have to be. Numbers are given in turn, so they need no hash. */
static inline size_t
coro_profile_place(uint64_t number)
{
    coro_profile_state *p = &coro_profile;
    size_t mask = p->threads_room - 1, i = (size_t)number & mask;
    while (p->threads[i] != NULL && p->threads[i]->number != number) {
        i = (i + 1) & mask;
    }
    return i;
}

/* NULL: no memory; the thread is not told apart from main then. */
static coro_profile_thread *
coro_profile_note_thread(uint64_t number)
{
    coro_profile_state *p = &coro_profile;
    coro_profile_thread *t;
    if ((p->threads_count + 1) * 2 > p->threads_room) {
        size_t room = p->threads_room ? p->threads_room * 2 : 64, old = p->threads_room, i;
        coro_profile_thread **before = p->threads, **larger = calloc(room, sizeof(*larger));
        if (larger == NULL) {
            return NULL;
        }
        p->threads = larger;
        p->threads_room = room;
        for (i = 0; i < old; i++) {
            if (before[i] != NULL) {
                p->threads[coro_profile_place(before[i]->number)] = before[i];
            }
        }
        free(before);
    }
    t = coro_profile_new_thread(number);
    if (t != NULL) {
        p->threads[coro_profile_place(number)] = t;
        p->threads_count++;
    }
    return t;
}

/* Not inlined: nearly every thread stands where its number says. */
static __attribute__((noinline)) coro_profile_thread *
coro_profile_look_for_thread(uint64_t number)
{
    coro_profile_state *p = &coro_profile;
    if (p->threads_room != 0) {
        coro_profile_thread *t = p->threads[coro_profile_place(number)];
        if (t != NULL) {
            return t;
        }
    }
    return coro_profile_note_thread(number);
}

static inline coro_profile_thread *
coro_profile_thread_of(uint64_t number)
{
    coro_profile_state *p = &coro_profile;
    if (p->threads_room != 0) {
        coro_profile_thread *t = p->threads[(size_t)number & (p->threads_room - 1)];
        if (t != NULL && t->number == number) {
            return t;
        }
    }
    return coro_profile_look_for_thread(number);
}

static void
coro_profile_free_thread(coro_profile_thread *t)
{
    coro_profile_drop_tree(t->root);
    Py_XDECREF(t->label);
    free(t);
}

/* A thread has ended: out of the table; kept as it is, or added to the others when there are enough. Not inlined, like
   all that is not done at each switch. */
static __attribute__((noinline)) void
coro_profile_end_thread(uint64_t number, PyObject *label)
{
    coro_profile_state *p = &coro_profile;
    size_t mask = p->threads_room - 1, i, j;
    coro_profile_thread *t;
    if (p->threads_room == 0) {
        return;
    }
    i = coro_profile_place(number);
    t = p->threads[i];
    if (t == NULL) {
        return;
    }
    p->threads[i] = NULL;
    p->threads_count--;
    for (j = (i + 1) & mask; p->threads[j] != NULL; j = (j + 1) & mask) {
        size_t home = (size_t)p->threads[j]->number & mask;
        if (((j - home) & mask) >= ((j - i) & mask)) {
            p->threads[i] = p->threads[j];
            p->threads[j] = NULL;
            i = j;
        }
    }
    p->buried = 1;
    t->ended = 1;
    t->node = t->root;
    if (p->ended_count < p->most_ended) {
        if (p->ended_count == p->ended_room) {
            size_t room = p->ended_room ? p->ended_room * 2 : 64;
            coro_profile_thread **larger = realloc(p->ended, room * sizeof(*larger));
            if (larger != NULL) {
                p->ended = larger;
                p->ended_room = room;
            }
        }
        if (p->ended_count < p->ended_room) {
            t->label = Py_XNewRef(label);
            p->ended[p->ended_count++] = t;
            return;
        }
    }
    p->others->slices += t->slices;
    p->others->ended++;
    coro_profile_merge(p->others->root, t->root);
    coro_profile_free_thread(t);
}

/* What the scheduler tells. In main, with no interpreter state of a thread's in place. */

/* `now` is when the scheduler last looked: before this batch of slices or after the slice before this one. The counter
   is not read again, so that what a switch takes is charged to the function that goes on. */
static inline void
coro_profile_slice_begins(uint64_t number, int64_t now)
{
    coro_profile_state *p = &coro_profile;
    coro_profile_thread *t = coro_profile_thread_of(number);
    if (CORO_PROFILE_RARE(p->buried)) {
        p->buried = 0;
        now = coro_now(p->clock);
    }
    /* Python code that ran in main since then has been charged already. */
    coro_profile_charge(now < p->last ? p->last : now);
    now = p->last;
    if (CORO_PROFILE_RARE(t == NULL)) {
        t = p->main;
    }
    else if (t->left_at != 0) {
        t->node->waited += now - t->left_at;
    }
    t->slices++;
    p->current = t;
    p->sink = t->node;
}

/* Returns the tick, that of the last event when it was the call that parks: what follows is the switch. */
static inline int64_t
coro_profile_slice_ends(void)
{
    coro_profile_state *p = &coro_profile;
    int64_t now = p->looked ? p->last : coro_now(p->clock);
    p->looked = 0;
    p->sink->own[0] += now - p->last;
    p->last = now;
    if (p->values > 1) {
        coro_profile_charge_usage(now);
    }
    p->current->left_at = now;
    p->current = p->main;
    p->sink = p->main->root;
    return now;
}

static __attribute__((noinline)) void
coro_profile_wait(int begins)
{
    coro_profile_state *p = &coro_profile;
    int64_t now = coro_now(p->clock);
    p->sink->own[0] += now - p->last;
    p->last = now;
    if (p->values > 1) {
        coro_profile_charge_usage(now);
    }
    p->current = p->main;
    p->sink = begins ? p->wait : p->main->root;
}

/* ------------------------------------------------------------------------------------------ begin and end */

/* -1: no memory. */
static int
coro_profile_begin(const coro_clock *clock, int values, size_t most_nodes, size_t most_ended, int64_t sample_every,
                   PyObject *(*name_of)(PyObject *))
{
    coro_profile_state *p = &coro_profile;
    memset(p, 0, sizeof(*p));
    p->clock = clock;
    p->values = values;
    p->most_nodes = most_nodes;
    p->most_ended = most_ended;
    p->sample_every = sample_every;
    p->name_of = name_of;
    p->os_thread = coro_os_thread();
    if (coro_profile_function_of(NULL, NULL, CORO_PROFILE_ROOT) < 0
        || coro_profile_function_of(&coro_profile_wait_key, NULL, CORO_PROFILE_ROOT) < 0) {
        return -1;
    }
    p->main = coro_profile_new_thread(0);
    p->others = coro_profile_new_thread(0);
    p->wait = coro_profile_new_node(NULL, &coro_profile_wait_key, 1, CORO_PROFILE_ROOT);
    p->places = calloc(CORO_PROFILE_FIRST_PLACES, sizeof(*p->places));
    p->places_room = CORO_PROFILE_FIRST_PLACES;
    if (p->main == NULL || p->others == NULL || p->wait == NULL || p->places == NULL) {
        return -1;
    }
    p->current = p->main;
    p->sink = p->main->root;
    p->last = coro_now(clock);
    if (values > 1) {
        coro_profile_sample(p->last, p->sampled);
    }
    p->active = 1;
    return 0;
}

/* Charge what is left and let go of nothing yet. */
static void
coro_profile_finish(void)
{
    coro_profile_state *p = &coro_profile;
    int64_t now = coro_now(p->clock);
    size_t i;
    p->sink->own[0] += now - p->last;
    p->last = now;
    if (p->values > 1) {
        coro_profile_charge_usage(now);
    }
    for (i = 0; i < p->threads_room; i++) {
        coro_profile_thread *t = p->threads[i];
        if (t != NULL && t != p->current && t->left_at != 0) {
            t->node->waited += now - t->left_at;
        }
    }
    p->active = 0;
    p->os_thread = NULL; /* whoever still tells something does so elsewhere */
}

/* Free everything. Objects are released last, because that may run finalisers. */
static void
coro_profile_free(void)
{
    coro_profile_state p;
    size_t i;
    for (i = 0; i < coro_profile.threads_room; i++) {
        if (coro_profile.threads[i] != NULL) {
            coro_profile_free_thread(coro_profile.threads[i]);
        }
    }
    for (i = 0; i < coro_profile.ended_count; i++) {
        coro_profile_free_thread(coro_profile.ended[i]);
    }
    if (coro_profile.main != NULL) {
        coro_profile_free_thread(coro_profile.main);
    }
    if (coro_profile.others != NULL) {
        coro_profile_free_thread(coro_profile.others);
    }
    free(coro_profile.wait);
    p = coro_profile;
    memset(&coro_profile, 0, sizeof(coro_profile));
    while (p.spare != NULL) {
        coro_profile_node *n = p.spare;
        p.spare = n->parent;
        free(n);
    }
    free(p.threads);
    free(p.ended);
    free(p.places);
    free(p.function_table);
    for (i = 0; i < p.functions_count; i++) {
        Py_XDECREF(p.functions[i].object);
        Py_XDECREF(p.functions[i].name);
    }
    free(p.functions);
}

#endif
