/* The profiler's trees of calls and its table of functions; see profiler/_core/accounts.h for the idea.

   Finding the child looks at the one found last, then at the one that followed that one when it was left before (a loop
   that calls the same functions in turn finds each at the second look), then at all brothers, and from 17 children on
   in a hash table of the node's.

   Memory: 80 bytes and 8 for each value measured, per node. There are at most `most_nodes`. It comes from malloc(3),
   because main allocates some of it while no thread's interpreter state is in place. */
#ifndef CORO_PROFILE_TREE_H
#define CORO_PROFILE_TREE_H

#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "_clock/ticks.h"

enum { CORO_PROFILE_RUSAGE = 16, CORO_PROFILE_LINEAR = 16 };

/* How often a place calls what needs no event before it gets none, see profiler/_core/places.h. */
enum { CORO_PROFILE_OFTEN = 2000, CORO_PROFILE_FIRST_PLACES = 1024 };

/* What a node's function is. */
enum { CORO_PROFILE_ROOT = 0, CORO_PROFILE_PYTHON = 1, CORO_PROFILE_C = 2 };

/* What every event needs comes last, together with the ticks. */
typedef struct coro_profile_node coro_profile_node;
struct coro_profile_node {
    coro_profile_node *next;   /* of the parent's children, in a circle */
    coro_profile_node **table; /* of the children, by key; NULL while they are few */
    uint32_t room, children;
    uint32_t function;
    int32_t kind;
    int64_t waited;            /* ticks that the thread was parked while this was the innermost call */
    const void *key;
    coro_profile_node *parent;
    coro_profile_node *last;   /* the child found last */
    coro_profile_node *then;   /* the brother found after it when it was the last, or itself */
    int64_t calls;
    int64_t own[1];            /* ticks, then the fields of getrusage(2) if they are wanted */
};

typedef struct {
    uint64_t number;
    coro_profile_node *root, *node;
    int64_t left_at;  /* when it was parked, 0 for never */
    uint64_t slices;
    uint64_t skipped; /* active calls of Python functions for which there was no node */
    PyObject *label;  /* a thread that ended: its name, owned */
    int ended;
} coro_profile_thread;

typedef struct {
    const void *key;
    PyObject *object; /* owned: what keeps the key from being used again, or NULL */
    PyObject *name;   /* owned; NULL for Python functions, whose code tells it */
    int kind;
} coro_profile_function;

typedef struct {
    const void *code; /* NULL: free */
    int32_t offset;
    int32_t calls;    /* of what needs no event, -1 when something else was called */
} coro_profile_call_place;

typedef struct {
    coro_profile_node *sink;
    coro_profile_thread *current;
    int64_t last;              /* tick up to which everything has been charged */
    const coro_clock *clock;
    void *os_thread;
    int values;                /* measured for each node */
    int active;
    int buried;                /* main has been busy with a thread that ended */
    int looked;                /* `last` is good for the end of the slice: all that followed is that a thread parks */
    int64_t sampled_at, sample_every; /* getrusage(2) */
    int64_t sampled[CORO_PROFILE_RUSAGE];
    coro_profile_node *wait;
    coro_profile_thread *main, *others; /* others: those that ended and were too many to keep */
    coro_profile_thread **threads;      /* by number, open addressing */
    size_t threads_room, threads_count;
    coro_profile_thread **ended;
    size_t ended_count, ended_room, most_ended;
    coro_profile_function *functions;
    size_t functions_count, functions_room;
    uint32_t *function_table;
    size_t function_table_room;
    coro_profile_call_place *places; /* where calls come from, open addressing */
    size_t places_room, places_count;
    coro_profile_node *spare;  /* nodes of merged trees, linked by parent */
    size_t nodes, most_nodes;
    uint64_t dropped;          /* calls that got no node */
    PyObject *(*name_of)(PyObject *callable); /* new reference, NULL without an error set */
} coro_profile_state;

#define CORO_PROFILE_RARE(x) __builtin_expect(!!(x), 0)

static coro_profile_state coro_profile;
static const char coro_profile_wait_key = 0;

static inline size_t
coro_profile_hash(const void *key)
{
    return (size_t)(((uint64_t)(uintptr_t)key * 0x9E3779B97F4A7C15u) >> 32);
}

static inline size_t
coro_profile_place_hash(const void *code, int64_t offset)
{
    uintptr_t a = (uintptr_t)code;
    return (size_t)((a >> 5) + (a >> 13) + (uintptr_t)(offset >> 1));
}

/* ------------------------------------------------------------------------------------------ functions */

/* The number of a function, which is noted if it is new. -1: no memory. */
static int64_t
coro_profile_function_of(const void *key, PyObject *object, int kind)
{
    coro_profile_state *p = &coro_profile;
    coro_profile_function *f;
    size_t mask, i;
    if (p->functions_count * 2 >= p->function_table_room) {
        size_t room = p->function_table_room ? p->function_table_room * 2 : 256, j;
        uint32_t *table = calloc(room, sizeof(*table));
        if (table == NULL) {
            return -1;
        }
        for (j = 0; j < p->functions_count; j++) {
            i = coro_profile_hash(p->functions[j].key) & (room - 1);
            while (table[i]) {
                i = (i + 1) & (room - 1);
            }
            table[i] = (uint32_t)j + 1;
        }
        free(p->function_table);
        p->function_table = table;
        p->function_table_room = room;
    }
    mask = p->function_table_room - 1;
    for (i = coro_profile_hash(key) & mask; p->function_table[i]; i = (i + 1) & mask) {
        if (p->functions[p->function_table[i] - 1].key == key) {
            return p->function_table[i] - 1;
        }
    }
    if (p->functions_count == p->functions_room) {
        size_t room = p->functions_room ? p->functions_room * 2 : 128;
        coro_profile_function *larger = realloc(p->functions, room * sizeof(*larger));
        if (larger == NULL) {
            return -1;
        }
        p->functions = larger;
        p->functions_room = room;
    }
    f = &p->functions[p->functions_count];
    f->key = key;
    f->kind = kind;
    f->object = NULL;
    f->name = NULL;
    if (kind == CORO_PROFILE_C) {
        f->name = p->name_of(object);
        if (!PyCFunction_Check(object)) {
            f->object = Py_NewRef(Py_TYPE(object) == key ? (PyObject *)Py_TYPE(object) : object);
        }
    }
    else if (object != NULL) {
        f->object = Py_NewRef(object);
    }
    p->function_table[i] = (uint32_t)++p->functions_count;
    return (int64_t)p->functions_count - 1;
}

/* ------------------------------------------------------------------------------------------ nodes */

static size_t
coro_profile_node_size(void)
{
    return offsetof(coro_profile_node, own) + (size_t)coro_profile.values * sizeof(int64_t);
}

static coro_profile_node *
coro_profile_new_node(coro_profile_node *parent, const void *key, uint32_t function, int kind)
{
    coro_profile_state *p = &coro_profile;
    coro_profile_node *n = p->spare;
    if (n != NULL) {
        p->spare = n->parent;
        memset(n, 0, coro_profile_node_size());
    }
    else {
        n = calloc(1, coro_profile_node_size());
        if (n == NULL) {
            return NULL;
        }
    }
    p->nodes++;
    n->key = key;
    n->parent = parent;
    n->next = n->then = n;
    n->function = function;
    n->kind = kind;
    return n;
}

static void
coro_profile_table_put(coro_profile_node **table, uint32_t room, coro_profile_node *n)
{
    size_t i = coro_profile_hash(n->key) & (room - 1);
    while (table[i] != NULL) {
        i = (i + 1) & (room - 1);
    }
    table[i] = n;
}

static void
coro_profile_grow_table(coro_profile_node *n)
{
    uint32_t room = n->room ? n->room * 2 : CORO_PROFILE_LINEAR * 4;
    coro_profile_node **table = calloc(room, sizeof(*table)), *c = n->last;
    if (table == NULL) {
        return; /* it goes on with what it has, slowly; a table is never filled, see below */
    }
    do {
        coro_profile_table_put(table, room, c);
        c = c->next;
    } while (c != n->last);
    free(n->table);
    n->table = table;
    n->room = room;
}

static coro_profile_node *
coro_profile_look(const coro_profile_node *n, const void *key)
{
    coro_profile_node *c = n->last;
    if (n->table != NULL) {
        size_t mask = n->room - 1, i;
        for (i = coro_profile_hash(key) & mask; n->table[i] != NULL; i = (i + 1) & mask) {
            if (n->table[i]->key == key) {
                return n->table[i];
            }
        }
        return NULL;
    }
    if (c != NULL) {
        coro_profile_node *first = c;
        do {
            if (c->key == key) {
                return c;
            }
            c = c->next;
        } while (c != first);
    }
    return NULL;
}

/* A child that is not there yet. NULL: there are too many nodes, or no memory. */
static coro_profile_node *
coro_profile_add(coro_profile_node *n, const void *key, int64_t function, PyObject *object, int kind)
{
    coro_profile_state *p = &coro_profile;
    coro_profile_node *c;
    if (p->nodes >= p->most_nodes) {
        return NULL;
    }
    if (n->table != NULL && (n->children + 1) * 2 > n->room) {
        coro_profile_grow_table(n);
        if ((n->children + 1) >= n->room) {
            return NULL;
        }
    }
    if (function < 0) {
        function = coro_profile_function_of(key, object, kind);
        if (function < 0) {
            return NULL;
        }
    }
    c = coro_profile_new_node(n, key, (uint32_t)function, kind);
    if (c == NULL) {
        return NULL;
    }
    if (n->last != NULL) {
        c->next = n->last->next;
        n->last->next = n->last->then = c;
    }
    n->last = c;
    n->children++;
    if (n->table != NULL) {
        coro_profile_table_put(n->table, n->room, c);
    }
    else if (n->children > CORO_PROFILE_LINEAR) {
        coro_profile_grow_table(n);
    }
    return c;
}

/* Not inlined: the child found last, or the one that followed it before, is nearly always the one. */
static __attribute__((noinline)) coro_profile_node *
coro_profile_find(coro_profile_node *n, const void *key, PyObject *object, int kind)
{
    coro_profile_node *c = coro_profile_look(n, key);
    if (c == NULL) {
        return coro_profile_add(n, key, -1, object, kind);
    }
    n->last->then = c;
    n->last = c;
    return c;
}

/* The next node of a tree in the order parent, children; `depth` is kept. NULL after the last one. */
static coro_profile_node *
coro_profile_following(coro_profile_node *root, coro_profile_node *n, int *depth)
{
    if (n->last != NULL) {
        ++*depth;
        return n->last->next;
    }
    while (n != root) {
        if (n != n->parent->last) {
            return n->next;
        }
        n = n->parent;
        --*depth;
    }
    return NULL;
}

/* Give the nodes of a tree back, the tables first while the links are good. */
static void
coro_profile_drop_tree(coro_profile_node *root)
{
    coro_profile_state *p = &coro_profile;
    coro_profile_node *n, *order = NULL;
    int depth = 0;
    for (n = root; n != NULL; n = coro_profile_following(root, n, &depth)) {
        free(n->table);
        n->table = (coro_profile_node **)order; /* a chain through the nodes passed, which need no table any more */
        order = n;
    }
    while (order != NULL) {
        n = order;
        order = (coro_profile_node *)n->table;
        n->table = NULL;
        n->parent = p->spare;
        p->spare = n;
        p->nodes--;
    }
}

static void
coro_profile_sum(coro_profile_node *to, const coro_profile_node *from)
{
    int i;
    to->calls += from->calls;
    to->waited += from->waited;
    for (i = 0; i < coro_profile.values; i++) {
        to->own[i] += from->own[i];
    }
}

/* Add a tree to another one, node by node. What finds no room is added to its caller. */
static void
coro_profile_merge(coro_profile_node *to, coro_profile_node *root)
{
    coro_profile_node *n = root, *place = to;
    int depth = 0, before = 0;
    while (1) {
        coro_profile_sum(place, n);
        before = depth;
        n = coro_profile_following(root, n, &depth);
        if (n == NULL) {
            return;
        }
        for (; before >= depth; before--) {
            place = place->parent;
        }
        {
            coro_profile_node *c = coro_profile_look(place, n->key);
            if (c == NULL) {
                /* The tree that goes gives more nodes back than are needed here. */
                size_t most = coro_profile.most_nodes;
                coro_profile.most_nodes = SIZE_MAX;
                c = coro_profile_add(place, n->key, n->function, NULL, n->kind);
                coro_profile.most_nodes = most;
            }
            if (c == NULL) {
                return; /* no memory at all: the rest of that thread is lost */
            }
            place = c;
        }
    }
}

#endif
