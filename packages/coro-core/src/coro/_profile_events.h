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

/* What stands for a callable that is no Python function, NULL for one that is: bound and unbound methods of C are known
   by their definition, which they share and which lives as long as the process. */
static inline const void *
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

#if PY_VERSION_HEX >= 0x030C0000

/* sys.monitoring calls these with (code, offset, ...). */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
} coro_profile_callback;

static PyObject *
coro_profile_py_start(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    if (coro_profile_os_thread() == coro_profile.os_thread) {
        coro_profile_enter(args[0], args[0], CORO_PROFILE_PYTHON, 1);
    }
    return Py_NewRef(Py_None);
}

static PyObject *
coro_profile_py_resume(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    if (coro_profile_os_thread() == coro_profile.os_thread) {
        coro_profile_enter(args[0], args[0], CORO_PROFILE_PYTHON, 0);
    }
    return Py_NewRef(Py_None);
}

static PyObject *
coro_profile_py_leave(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    if (coro_profile_os_thread() == coro_profile.os_thread) {
        coro_profile_leave_python(args[0]);
    }
    return Py_NewRef(Py_None);
}

static PyObject *
coro_profile_c_call(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    const void *key = coro_profile_key_of(args[2]);
    if (key != NULL && coro_profile_os_thread() == coro_profile.os_thread) {
        coro_profile_enter(key, args[2], CORO_PROFILE_C, 1);
    }
    return Py_NewRef(Py_None);
}

static PyObject *
coro_profile_c_leave(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    const void *key = coro_profile_key_of(args[2]);
    if (key != NULL && coro_profile_os_thread() == coro_profile.os_thread) {
        coro_profile_leave_c(key);
    }
    return Py_NewRef(Py_None);
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

static int
coro_profile_trace(PyObject *self, PyFrameObject *frame, int what, PyObject *arg)
{
    const void *key;
    if (coro_profile_os_thread() != coro_profile.os_thread) {
        return 0;
    }
    switch (what) {
    case PyTrace_CALL: {
        PyCodeObject *code = PyFrame_GetCode(frame);
        /* It stands at RESUME 0 when the function begins, at RESUME 1 to 3 when a generator goes on, and at the yield
           when something is thrown into that. */
        const unsigned char *at = (const unsigned char *)code->co_code_adaptive + PyFrame_GetLasti(frame);
        int starts = PyFrame_GetLasti(frame) < 0 || (at[0] != YIELD_VALUE && (at[1] & 3) == 0);
        coro_profile_enter(code, (PyObject *)code, CORO_PROFILE_PYTHON, starts);
        Py_DECREF(code);
        break;
    }
    case PyTrace_RETURN: {
        PyCodeObject *code = PyFrame_GetCode(frame);
        coro_profile_leave_python(code);
        Py_DECREF(code);
        break;
    }
    case PyTrace_C_CALL:
        key = coro_profile_key_of(arg);
        if (key != NULL) {
            coro_profile_enter(key, arg, CORO_PROFILE_C, 1);
        }
        break;
    case PyTrace_C_RETURN:
    case PyTrace_C_EXCEPTION:
        key = coro_profile_key_of(arg);
        if (key != NULL) {
            coro_profile_leave_c(key);
        }
        break;
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
