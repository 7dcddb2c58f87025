/* The functions of coro that switch or make others run tell the profiler themselves that they begin and end.

   A program that switches all the time calls them more often than anything else, and an event of the interpreter costs
   as much as what they do. So while a profiler runs their method definitions, which the interpreter reads at each call
   however it came to it, lead to functions that tell the profiler, call the real one and tell again. Otherwise nothing
   of this is there, not even a test. The places that call them need no events then, see profiler/_core/places.h. Calls
   from C, of which there are no events, are counted as well. What takes less time than two readings of the counter is
   counted only, and what it takes charged to its caller.

   A table of static functions stands for closures: each knows by its number which function it stands for. A thread may
   be parked in one of them when the profile ends and return to it when there is none, or another one.

   Cost: two readings of the tick counter and about 80 instructions for a call, 40 bytes of a parked thread's stack. On
   Python 3.11, where all events come or none, only fewer readings of the counter are left of it. */
#ifndef CORO_PROFILE_PRIMITIVES_H
#define CORO_PROFILE_PRIMITIVES_H

#include "profiler/_core/calls.h"

/* How a function reports itself: what follows CORO_PROFILE_PARKS is the switch. */
enum { CORO_PROFILE_TIMED = 0, CORO_PROFILE_PARKS = 1, CORO_PROFILE_COUNTED = 2 };

static __attribute__((noinline)) void
coro_profile_count_unusual(const void *key, PyObject *object)
{
    coro_profile_state *p = &coro_profile;
    coro_profile_node *n = p->current->skipped == 0
        ? coro_profile_find(p->current->node, key, object, CORO_PROFILE_C) : NULL;
    if (n != NULL) {
        n->calls++;
    }
    else {
        p->dropped++;
    }
}

/* A function of C is called, and nothing is charged to it. */
static inline __attribute__((always_inline)) void
coro_profile_count(const void *key, PyObject *object)
{
    coro_profile_thread *t = coro_profile.current;
    coro_profile_node *c;
    if (coro_profile_elsewhere()) {
        return;
    }
    c = t->node->last;
    if (CORO_PROFILE_RARE(c == NULL || t->skipped != 0)) {
        coro_profile_count_unusual(key, object);
        return;
    }
    if (c->key != key) {
        c = c->then;
        if (CORO_PROFILE_RARE(c->key != key)) {
            coro_profile_count_unusual(key, object);
            return;
        }
        t->node->last = c;
    }
    c->calls++;
}

#if PY_VERSION_HEX >= 0x030C0000

typedef PyObject *(*coro_profile_long_call)(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);

typedef struct {
    const void *key;      /* what stands for it in the trees: its method definition */
    PyMethodDef *definition;
    PyObject *object;     /* owned */
    PyCFunction function; /* the real one */
    int parks;            /* it does next to nothing but park */
} coro_profile_primitive;


/* Where those with one argument end in the table, those with any number of them, and those that are counted only. */
enum { CORO_PROFILE_SHORT = 4, CORO_PROFILE_LONG = 24, CORO_PROFILE_ALL = 28, CORO_PROFILE_KNOWN = 64 };
static coro_profile_primitive coro_profile_primitives[CORO_PROFILE_ALL];
static const void *coro_profile_known[CORO_PROFILE_KNOWN]; /* the keys of those that report now, open addressing */

/* ------------------------------------------------------------------------------------------ reporting */

/* Not inlined, so that the functions below need few registers. */
static __attribute__((noinline)) void
coro_profile_primitive_begins_unusual(const coro_profile_primitive *f)
{
    coro_profile_enter(f->key, f->object, CORO_PROFILE_C, 1);
}

static __attribute__((noinline)) void
coro_profile_primitive_ends_unusual(const coro_profile_primitive *f)
{
    coro_profile_leave_c(f->key);
}

static inline __attribute__((always_inline)) void
coro_profile_primitive_begins(const coro_profile_primitive *f)
{
    if (coro_profile_elsewhere()) {
        return;
    }
    if (CORO_PROFILE_RARE(!coro_profile_enter_usual(f->key, 1))) {
        coro_profile_primitive_begins_unusual(f);
    }
    coro_profile.looked = f->parks;
}

static inline __attribute__((always_inline)) void
coro_profile_primitive_ends(const coro_profile_primitive *f)
{
    if (coro_profile_elsewhere()) {
        return;
    }
    coro_profile.looked = 0;
    if (CORO_PROFILE_RARE(!coro_profile_leave_usual(f->key))) {
        coro_profile_primitive_ends_unusual(f);
    }
}

#define CORO_PROFILE_SHORT_CALLS(X) X(0) X(1) X(2) X(3)
#define CORO_PROFILE_LONG_CALLS(X) \
    X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)

#define CORO_PROFILE_COUNTED_CALLS(X) X(24) X(25) X(26) X(27)

#define CORO_PROFILE_DEFINE_SHORT(i) \
    static PyObject *coro_profile_call_##i(PyObject *self, PyObject *argument) \
    { \
        PyObject *result; \
        coro_profile_primitive_begins(&coro_profile_primitives[i]); \
        result = coro_profile_primitives[i].function(self, argument); \
        coro_profile_primitive_ends(&coro_profile_primitives[i]); \
        return result; \
    }

#define CORO_PROFILE_LONG(i) ((coro_profile_long_call)(void (*)(void))coro_profile_primitives[i].function)

#define CORO_PROFILE_DEFINE_LONG(i) \
    static PyObject *coro_profile_call_##i(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) \
    { \
        PyObject *result; \
        coro_profile_primitive_begins(&coro_profile_primitives[i]); \
        result = CORO_PROFILE_LONG(i)(self, args, count, names); \
        coro_profile_primitive_ends(&coro_profile_primitives[i]); \
        return result; \
    }

#define CORO_PROFILE_DEFINE_COUNTED(i) \
    static PyObject *coro_profile_call_##i(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) \
    { \
        coro_profile_count(coro_profile_primitives[i].key, coro_profile_primitives[i].object); \
        return CORO_PROFILE_LONG(i)(self, args, count, names); \
    }

#define CORO_PROFILE_ENTRY(i) (PyCFunction)(void (*)(void))coro_profile_call_##i,

CORO_PROFILE_SHORT_CALLS(CORO_PROFILE_DEFINE_SHORT)
CORO_PROFILE_LONG_CALLS(CORO_PROFILE_DEFINE_LONG)
CORO_PROFILE_COUNTED_CALLS(CORO_PROFILE_DEFINE_COUNTED)

static const PyCFunction coro_profile_entries[CORO_PROFILE_ALL] = {
    CORO_PROFILE_SHORT_CALLS(CORO_PROFILE_ENTRY) CORO_PROFILE_LONG_CALLS(CORO_PROFILE_ENTRY)
    CORO_PROFILE_COUNTED_CALLS(CORO_PROFILE_ENTRY)
};

/* ------------------------------------------------------------------------------------------ who reports */

/* Method definitions are 32 bytes, in tables. */
static inline size_t
coro_profile_known_at(const void *key)
{
    return ((uintptr_t)key >> 5) & (CORO_PROFILE_KNOWN - 1);
}

static inline int
coro_profile_is_primitive(const void *key)
{
    size_t i = coro_profile_known_at(key);
    for (; coro_profile_known[i] != NULL; i = (i + 1) & (CORO_PROFILE_KNOWN - 1)) {
        if (coro_profile_known[i] == key) {
            return 1;
        }
    }
    return 0;
}

/* From now on the function, a function or method of C, reports itself. It goes on without when it takes its arguments
   in another way than those in the table, or the table is full. */
static void
coro_profile_report_itself(PyObject *function, int how)
{
    PyMethodDef *d;
    coro_profile_primitive *f;
    int i, end, form;
    size_t at;
    if (Py_TYPE(function) == &PyCFunction_Type) {
        d = ((PyCFunctionObject *)function)->m_ml;
    }
    else if (Py_TYPE(function) == &PyMethodDescr_Type) {
        d = ((PyMethodDescrObject *)function)->d_method;
    }
    else {
        return;
    }
    form = d->ml_flags & (METH_VARARGS | METH_KEYWORDS | METH_NOARGS | METH_O | METH_FASTCALL | METH_METHOD);
    if (form == METH_NOARGS || form == METH_O) {
        i = 0;
        end = CORO_PROFILE_SHORT;
    }
    else if (form == (METH_FASTCALL | METH_KEYWORDS)) {
        i = how == CORO_PROFILE_COUNTED ? CORO_PROFILE_LONG : CORO_PROFILE_SHORT;
        end = how == CORO_PROFILE_COUNTED ? CORO_PROFILE_ALL : CORO_PROFILE_LONG;
    }
    else {
        return;
    }
    /* A place in the table is never given to another function: threads may still return there. */
    while (i < end && coro_profile_primitives[i].definition != NULL && coro_profile_primitives[i].definition != d) {
        i++;
    }
    if (i == end || coro_profile_is_primitive(d)) {
        return;
    }
    f = &coro_profile_primitives[i];
    if (f->definition == NULL) {
        f->key = f->definition = d;
        f->object = Py_NewRef(function);
    }
    f->function = d->ml_meth;
    f->parks = how == CORO_PROFILE_PARKS;
    for (at = coro_profile_known_at(d); coro_profile_known[at] != NULL; at = (at + 1) & (CORO_PROFILE_KNOWN - 1)) {
    }
    coro_profile_known[at] = d;
    d->ml_meth = coro_profile_entries[i];
}

/* Nothing reports itself any more. */
static void
coro_profile_report_no_more(void)
{
    int i;
    for (i = 0; i < CORO_PROFILE_ALL; i++) {
        coro_profile_primitive *f = &coro_profile_primitives[i];
        if (f->definition != NULL && f->definition->ml_meth == coro_profile_entries[i]) {
            f->definition->ml_meth = f->function;
        }
    }
    memset(coro_profile_known, 0, sizeof(coro_profile_known));
}

#else

/* Events tell of them, but of some something else than of other functions. By how they report: their definitions. */
enum { CORO_PROFILE_SPECIAL = 4 };
static const void *coro_profile_special[CORO_PROFILE_COUNTED + 1][CORO_PROFILE_SPECIAL];

static inline int
coro_profile_is_special(const void *key, int how)
{
    int i;
    for (i = 0; i < CORO_PROFILE_SPECIAL; i++) {
        if (coro_profile_special[how][i] == key) {
            return 1;
        }
    }
    return 0;
}

static inline int
coro_profile_is_primitive(const void *key)
{
    return 0;
}

static void
coro_profile_report_itself(PyObject *function, int how)
{
    const void *key = Py_TYPE(function) == &PyCFunction_Type ? (const void *)((PyCFunctionObject *)function)->m_ml
        : Py_TYPE(function) == &PyMethodDescr_Type ? (const void *)((PyMethodDescrObject *)function)->d_method : NULL;
    int i;
    for (i = 0; i < CORO_PROFILE_SPECIAL && how != CORO_PROFILE_TIMED && key != NULL; i++) {
        if (coro_profile_special[how][i] == NULL) {
            coro_profile_special[how][i] = key;
            return;
        }
    }
}

static void
coro_profile_report_no_more(void)
{
    memset(coro_profile_special, 0, sizeof(coro_profile_special));
}

#endif

#endif
