/* What the interpreter reports to the profiler: calls and returns.

   Events come from sys.monitoring (3.12 on) through objects with a vectorcall slot and nothing else, or from a profile
   function as PyEval_SetProfile() takes it (3.11). Those of other OS threads are ignored. Every Python function that is
   entered is left again; C functions may be left without a word when an exception goes through them, so leaving a Python
   function also leaves the C functions above it. Cost: see _profile.h. */
#ifndef CORO_PROFILE_EVENTS_H
#define CORO_PROFILE_EVENTS_H

#include "_profile.h"

#if PY_VERSION_HEX < 0x030C0000
#include <opcode.h>
#endif

/* ------------------------------------------------------------------------------------------ calls and returns */

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
   from the processor's counter, in a thread all of whose calls have nodes, and the child entered is the one found last or
   the one expected after it, the function left the innermost. 0: it is none of these, and nothing was done. */

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

/* What stands for a callable that is no Python function, NULL for one that is: bound and unbound methods of C are known
   by their definition, which they share and which lives as long as the process. */
static const void *
coro_profile_key_of(PyObject *callable)
{
    PyTypeObject *type = Py_TYPE(callable);
    if (type == &PyCFunction_Type) {
        return ((PyCFunctionObject *)callable)->m_ml;
    }
    if (type == &PyMethodDescr_Type || type == &PyClassMethodDescr_Type) {
        return ((PyMethodDescrObject *)callable)->d_method;
    }
    if (type == &PyFunction_Type) {
        return NULL;
    }
    if (type == &PyMethod_Type) {
        PyObject *function = PyMethod_GET_FUNCTION(callable);
        return PyFunction_Check(function) ? NULL : coro_profile_key_of(function);
    }
    if (PyType_Check(callable) || type == &PyWrapperDescr_Type) {
        return callable;
    }
    if (PyCFunction_Check(callable)) {
        return ((PyCFunctionObject *)callable)->m_ml;
    }
    return type;
}

/* The same for the two most frequent kinds; NULL: see above. */
static inline const void *
coro_profile_usual_key(PyObject *callable)
{
    PyTypeObject *type = Py_TYPE(callable);
    if (type == &PyCFunction_Type) {
        return ((PyCFunctionObject *)callable)->m_ml;
    }
    return type == &PyMethodDescr_Type ? ((PyMethodDescrObject *)callable)->d_method : NULL;
}

static inline int
coro_profile_elsewhere(void)
{
    return CORO_PROFILE_RARE(coro_profile_os_thread() != coro_profile.os_thread);
}

static __attribute__((noinline)) void
coro_profile_c_call_unusual(PyObject *callable)
{
    const void *key = coro_profile_key_of(callable);
    if (key != NULL && !coro_profile_enter_usual(key, 1)) {
        coro_profile_enter(key, callable, CORO_PROFILE_C, 1);
    }
}

static __attribute__((noinline)) void
coro_profile_c_leave_unusual(PyObject *callable)
{
    const void *key = coro_profile_key_of(callable);
    if (key != NULL && !coro_profile_leave_usual(key)) {
        coro_profile_leave_c(key);
    }
}

static inline void
coro_profile_tell_c_call(PyObject *callable)
{
    const void *key = coro_profile_usual_key(callable);
    if (Py_TYPE(callable) != &PyFunction_Type && !coro_profile_elsewhere()
        && (key == NULL || !coro_profile_enter_usual(key, 1))) {
        coro_profile_c_call_unusual(callable);
    }
}

static inline void
coro_profile_tell_c_leave(PyObject *callable)
{
    const void *key = coro_profile_usual_key(callable);
    if (!coro_profile_elsewhere() && (key == NULL || !coro_profile_leave_usual(key))) {
        coro_profile_c_leave_unusual(callable);
    }
}

#if PY_VERSION_HEX >= 0x030C0000

/* sys.monitoring calls these with (code, offset, ...). */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
} coro_profile_callback;

static __attribute__((noinline)) PyObject *
coro_profile_py_enter_unusual(PyObject *code, int counts)
{
    coro_profile_enter(code, code, CORO_PROFILE_PYTHON, counts);
    Py_RETURN_NONE;
}

static __attribute__((noinline)) PyObject *
coro_profile_py_leave_unusual(PyObject *code)
{
    coro_profile_leave_python(code);
    Py_RETURN_NONE;
}

static PyObject *
coro_profile_py_start(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    if (coro_profile_elsewhere() || coro_profile_enter_usual(args[0], 1)) {
        Py_RETURN_NONE;
    }
    return coro_profile_py_enter_unusual(args[0], 1);
}

static PyObject *
coro_profile_py_resume(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    if (coro_profile_elsewhere() || coro_profile_enter_usual(args[0], 0)) {
        Py_RETURN_NONE;
    }
    return coro_profile_py_enter_unusual(args[0], 0);
}

static PyObject *
coro_profile_py_leave(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    if (coro_profile_elsewhere() || coro_profile_leave_usual(args[0])) {
        Py_RETURN_NONE;
    }
    return coro_profile_py_leave_unusual(args[0]);
}

static PyObject *
coro_profile_c_call(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    coro_profile_tell_c_call(args[2]);
    Py_RETURN_NONE;
}

static PyObject *
coro_profile_c_leave(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    coro_profile_tell_c_leave(args[2]);
    Py_RETURN_NONE;
}

static PyTypeObject coro_profile_callback_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "coro._profiler.callback",
    .tp_basicsize = sizeof(coro_profile_callback),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_vectorcall_offset = offsetof(coro_profile_callback, call),
    .tp_call = PyVectorcall_Call,
    .tp_doc = "Takes one kind of event for the profiler.",
};

enum { CORO_PROFILE_CALLBACKS = 5 };
static coro_profile_callback coro_profile_callbacks[CORO_PROFILE_CALLBACKS] = {
    {PyObject_HEAD_INIT(&coro_profile_callback_type) coro_profile_py_start},
    {PyObject_HEAD_INIT(&coro_profile_callback_type) coro_profile_py_resume},
    {PyObject_HEAD_INIT(&coro_profile_callback_type) coro_profile_py_leave},
    {PyObject_HEAD_INIT(&coro_profile_callback_type) coro_profile_c_call},
    {PyObject_HEAD_INIT(&coro_profile_callback_type) coro_profile_c_leave},
};

/* A new reference to the i-th of them, in the order of the table above. NULL with an error set. */
static PyObject *
coro_profile_callback_object(int i)
{
    if (PyType_Ready(&coro_profile_callback_type) < 0) {
        return NULL;
    }
    return Py_NewRef((PyObject *)&coro_profile_callbacks[i]);
}

static void *
coro_profile_tracer(void)
{
    return NULL;
}

#else

static __attribute__((noinline)) void
coro_profile_tell_py_call(PyFrameObject *frame)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    /* It stands at RESUME 0 when the function begins, at RESUME 1 to 3 when a generator goes on, and at the yield
       when something is thrown into that. */
    int lasti = PyFrame_GetLasti(frame);
    const unsigned char *at = (const unsigned char *)code->co_code_adaptive + lasti;
    int starts = lasti < 0 || (at[0] != YIELD_VALUE && (at[1] & 3) == 0);
    if (!coro_profile_enter_usual(code, starts)) {
        coro_profile_enter(code, (PyObject *)code, CORO_PROFILE_PYTHON, starts);
    }
    Py_DECREF(code);
}

static __attribute__((noinline)) void
coro_profile_tell_py_leave(PyFrameObject *frame)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    if (!coro_profile_leave_usual(code)) {
        coro_profile_leave_python(code);
    }
    Py_DECREF(code);
}

static int
coro_profile_trace(PyObject *self, PyFrameObject *frame, int what, PyObject *arg)
{
    if (what == PyTrace_C_CALL) {
        coro_profile_tell_c_call(arg);
    }
    else if (what == PyTrace_C_RETURN || what == PyTrace_C_EXCEPTION) {
        coro_profile_tell_c_leave(arg);
    }
    else if (!coro_profile_elsewhere()) {
        if (what == PyTrace_CALL) {
            coro_profile_tell_py_call(frame);
        }
        else if (what == PyTrace_RETURN) {
            coro_profile_tell_py_leave(frame);
        }
    }
    return 0;
}

static PyObject *
coro_profile_callback_object(int i)
{
    PyErr_SetString(PyExc_SystemError, "there is no sys.monitoring before Python 3.12");
    return NULL;
}

static void *
coro_profile_tracer(void)
{
    return (void *)coro_profile_trace;
}

#endif

#endif
