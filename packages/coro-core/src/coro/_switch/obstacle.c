/* What other libraries keep for each OS thread; see obstacle.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "_switch/obstacle.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <unwind.h>

#include "_switch/interp.h"

/* -- greenlet: places in its table are part of its C interface ----------------------------------------------------- */

enum { GET_CURRENT = 4, IS_MAIN = 8 };

static PyObject *(*get_current)(void);
static int (*is_main)(PyObject *);
static PyObject *home; /* borrowed: in which the loop runs, so it outlives the loop. NULL: nobody has looked yet */

void
coro_obstacle_greenlet(void **api)
{
    if (get_current == NULL) {
        is_main = (int (*)(PyObject *))api[IS_MAIN];
        get_current = (PyObject * (*)(void)) api[GET_CURRENT];
        home = NULL;
        coro_interp_doubt();
    }
}

void
coro_obstacle_loop(void)
{
    home = NULL;
    if (get_current != NULL) {
        home = get_current();
        if (home == NULL) {
            PyErr_Clear();
        }
        Py_XDECREF(home);
    }
}

static int
in_greenlet(void)
{
    PyObject *current = get_current();
    int away;
    if (current == NULL) {
        PyErr_Clear(); /* the interpreter is ending */
        return 0;
    }
    if (home == NULL && is_main(current) > 0) {
        home = current; /* greenlet was imported after the loop had begun */
    }
    away = current != home;
    Py_DECREF(current);
    return away;
}

int
coro_obstacle_has_greenlet(void)
{
    return get_current != NULL;
}

/* -- pybind11 ------------------------------------------------------------------------------------------------------ */

/* How much code of a dispatcher is looked at; those of current compilers have 3 to 10 KiB. */
enum { LONGEST_FUNCTION = 64 * 1024 };

typedef struct {
    uintptr_t start;
    PyObject *module;
} dispatcher;

static dispatcher *dispatchers; /* in the order of their addresses */
static size_t count, room;
static uintptr_t lowest, reach; /* of all of them */

static _Unwind_Reason_Code (*backtrace_of)(_Unwind_Trace_Fn, void *);
static _Unwind_Ptr (*region_start)(struct _Unwind_Context *);
static _Unwind_Word (*frame_address)(struct _Unwind_Context *);

/* The last one that does not begin behind an address, or NULL. */
static dispatcher *
dispatcher_before(uintptr_t address)
{
    size_t from = 0, to = count;
    while (from < to) {
        size_t middle = (from + to) / 2;
        if (dispatchers[middle].start <= address) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from == 0 ? NULL : &dispatchers[from - 1];
}

/* A C++ module has brought an unwinder with it; C modules need none. */
static void
find_unwinder(uintptr_t in)
{
    Dl_info found;
    void *library = NULL;
    if (backtrace_of != NULL) {
        return;
    }
    if (dladdr((void *)in, &found) != 0 && found.dli_fname != NULL) {
        library = dlopen(found.dli_fname, RTLD_LAZY | RTLD_NOLOAD); /* kept open: it is there for good anyway */
    }
    if (library == NULL) {
        library = RTLD_DEFAULT;
    }
    region_start = (_Unwind_Ptr(*)(struct _Unwind_Context *))dlsym(library, "_Unwind_GetRegionStart");
    frame_address = (_Unwind_Word(*)(struct _Unwind_Context *))dlsym(library, "_Unwind_GetCFA");
    if (region_start != NULL && frame_address != NULL) {
        backtrace_of =
            (_Unwind_Reason_Code(*)(_Unwind_Trace_Fn, void *))dlsym(library, "_Unwind_Backtrace");
    }
}

/* 1 if it was not known before, 0 if it was, -1 with an exception set. */
static int
add_dispatcher(uintptr_t start, PyObject *module)
{
    dispatcher *before = dispatcher_before(start);
    size_t at = before == NULL ? 0 : (size_t)(before - dispatchers) + 1;
    if (before != NULL && before->start == start) {
        return 0;
    }
    if (count == room) {
        dispatcher *larger = PyMem_RawRealloc(dispatchers, (room + 16) * sizeof(*larger));
        if (larger == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        dispatchers = larger;
        room += 16;
    }
    memmove(dispatchers + at + 1, dispatchers + at, (count - at) * sizeof(*dispatchers));
    dispatchers[at].start = start;
    dispatchers[at].module = Py_NewRef(module);
    count++;
    lowest = dispatchers[0].start;
    reach = dispatchers[count - 1].start + LONGEST_FUNCTION - lowest;
    find_unwinder(start);
    coro_interp_doubt();
    return 1;
}

/* A function of pybind11's has its record as `self`: an object of a class of pybind11's own or, before 3.0, a capsule.
   The capsule had no name at first; then the flags are all there is to know it by. */
static int
is_record(PyObject *self, int flags)
{
    if (self == NULL) {
        return 0;
    }
    if (PyCapsule_CheckExact(self)) {
        const char *name = PyCapsule_GetName(self);
        return name == NULL ? flags == (METH_VARARGS | METH_KEYWORDS) : strncmp(name, "pybind11_", 9) == 0;
    }
    return strstr(Py_TYPE(self)->tp_name, "pybind11_detail_function_record") != NULL;
}

int
coro_obstacle_pybind11(PyObject *function, PyObject *module)
{
    if (PyInstanceMethod_Check(function)) {
        function = PyInstanceMethod_GET_FUNCTION(function);
    }
    if (!PyCFunction_Check(function)
        || !is_record(PyCFunction_GET_SELF(function), PyCFunction_GET_FLAGS(function))) {
        return 0;
    }
    return add_dispatcher((uintptr_t)PyCFunction_GET_FUNCTION(function), module);
}

typedef struct {
    uintptr_t reached;        /* how far up the stack the unwinder came */
    const dispatcher *found;
} search;

static _Unwind_Reason_Code
look_at_frame(struct _Unwind_Context *frame, void *argument)
{
    search *s = argument;
    uintptr_t start = (uintptr_t)region_start(frame);
    const dispatcher *d = dispatcher_before(start);
    s->reached = (uintptr_t)frame_address(frame);
    if (d != NULL && d->start == start) {
        s->found = d;
        return _URC_NORMAL_STOP;
    }
    return _URC_NO_REASON;
}

/* The dispatcher that has not returned on the present stack, or NULL. */
static __attribute__((noinline)) const dispatcher *
find_dispatcher(const char *top)
{
    const uintptr_t *word = __builtin_frame_address(0), *end = (const uintptr_t *)top;
    const dispatcher *last = NULL;
    const uintptr_t *last_at = NULL;
    search s = {0, NULL};
    for (; word < end; word++) {
        if (__builtin_expect(*word - lowest < reach, 0)) {
            const dispatcher *d = dispatcher_before(*word);
            if (*word - d->start < LONGEST_FUNCTION) {
                last = d;
                last_at = word;
            }
        }
    }
    if (last == NULL || backtrace_of == NULL) {
        return last;
    }
    backtrace_of(look_at_frame, &s);
    if (s.found == NULL && s.reached < (uintptr_t)last_at) {
        return last; /* a frame on the way cannot be unwound: believe the word */
    }
    return s.found;
}

/* -- Both ---------------------------------------------------------------------------------------------------------- */

int
coro_obstacle_now(const char *top, PyObject **module)
{
    const dispatcher *d;
    if (get_current != NULL && in_greenlet()) {
        return CORO_GREENLET;
    }
    if (count != 0) {
        d = find_dispatcher(top);
        if (d != NULL) {
            *module = d->module;
            return CORO_PYBIND11;
        }
    }
    return CORO_NO_OBSTACLE;
}
