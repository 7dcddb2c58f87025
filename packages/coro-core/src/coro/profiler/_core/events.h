/* What the interpreter reports to the profiler: calls and returns.

   Events come from sys.monitoring (3.12 on) through objects with a vectorcall slot and nothing else, or from a profile
   function as PyEval_SetProfile() takes it (3.11). Those of other OS threads are ignored, and those of functions that
   report themselves (profiler/_core/primitives.h). What events mean is in profiler/_core/calls.h. Cost: see
   profiler/_core/accounts.h. */
#ifndef CORO_PROFILE_EVENTS_H
#define CORO_PROFILE_EVENTS_H

#include "profiler/_core/places.h"
#include "profiler/_core/primitives.h"

#if PY_VERSION_HEX < 0x030C0000
#include <opcode.h>
#endif

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

static __attribute__((noinline)) void
coro_profile_c_call_unusual(PyObject *callable)
{
    const void *key = coro_profile_key_of(callable);
    if (key != NULL && !coro_profile_is_primitive(key) && !coro_profile_enter_usual(key, 1)) {
        coro_profile_enter(key, callable, CORO_PROFILE_C, 1);
    }
}

static __attribute__((noinline)) void
coro_profile_c_leave_unusual(PyObject *callable)
{
    const void *key = coro_profile_key_of(callable);
    if (key != NULL && !coro_profile_is_primitive(key) && !coro_profile_leave_usual(key)) {
        coro_profile_leave_c(key);
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

/* sys.monitoring calls these with (code, offset, ...). Programs can get hold of them and call them with anything: the
   number of arguments is looked at first, and their types where they are first taken for what they should be. What an
   event of a known place and function costs grows by the look at the number. */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
} coro_profile_callback;

static __attribute__((noinline, cold)) PyObject *
coro_profile_misused(void)
{
    PyErr_SetString(PyExc_TypeError, "expected (code, offset, ...), as sys.monitoring calls it");
    return NULL;
}

static __attribute__((noinline)) PyObject *
coro_profile_py_enter_unusual(PyObject *code, int counts)
{
    if (!PyCode_Check(code)) {
        return coro_profile_misused();
    }
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
    if (CORO_PROFILE_RARE(PyVectorcall_NARGS(count) == 0)) {
        return coro_profile_misused();
    }
    if (coro_profile_elsewhere() || coro_profile_enter_usual(args[0], 1)) {
        Py_RETURN_NONE;
    }
    return coro_profile_py_enter_unusual(args[0], 1);
}

static PyObject *
coro_profile_py_resume(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    if (CORO_PROFILE_RARE(PyVectorcall_NARGS(count) == 0)) {
        return coro_profile_misused();
    }
    if (coro_profile_elsewhere() || coro_profile_enter_usual(args[0], 0)) {
        Py_RETURN_NONE;
    }
    return coro_profile_py_enter_unusual(args[0], 0);
}

static PyObject *
coro_profile_py_leave(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    if (CORO_PROFILE_RARE(PyVectorcall_NARGS(count) == 0)) {
        return coro_profile_misused();
    }
    if (coro_profile_elsewhere() || coro_profile_leave_usual(args[0])) {
        Py_RETURN_NONE;
    }
    return coro_profile_py_leave_unusual(args[0]);
}

static PyObject *coro_profile_disable; /* sys.monitoring.DISABLE, owned */

static PyObject *
coro_profile_c_call(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    PyObject *callable;
    PyTypeObject *type;
    const void *key;
    if (CORO_PROFILE_RARE(PyVectorcall_NARGS(count) < 3) || !PyCode_Check(args[0]) || !PyLong_CheckExact(args[1])
        || !PyUnstable_Long_IsCompact((PyLongObject *)args[1])) {
        return coro_profile_misused();
    }
    callable = args[2];
    type = Py_TYPE(callable);
    if (coro_profile_elsewhere()) {
        Py_RETURN_NONE;
    }
    key = coro_profile_usual_key(callable);
    if (type == &PyFunction_Type || (key != NULL && coro_profile_is_primitive(key))
        || (type == &PyMethod_Type && PyFunction_Check(PyMethod_GET_FUNCTION(callable)))) {
        return Py_NewRef(coro_profile_place_is_quiet(args[0], args[1]) ? coro_profile_disable : Py_None);
    }
    coro_profile_place_is_needed(args[0], args[1]);
    if (key == NULL || !coro_profile_enter_usual(key, 1)) {
        coro_profile_c_call_unusual(callable);
    }
    Py_RETURN_NONE;
}

static PyObject *
coro_profile_c_leave(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    const void *key;
    if (CORO_PROFILE_RARE(PyVectorcall_NARGS(count) < 3)) {
        return coro_profile_misused();
    }
    key = coro_profile_usual_key(args[2]);
    if (key == NULL || !coro_profile_is_primitive(key)) {
        coro_profile_tell_c_leave(args[2]);
    }
    Py_RETURN_NONE;
}

static PyTypeObject coro_profile_callback_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "coro.profiler._core.accounting.callback",
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
    if (coro_profile_disable == NULL) {
        PyObject *monitoring = PySys_GetObject("monitoring");
        coro_profile_disable = monitoring != NULL ? PyObject_GetAttrString(monitoring, "DISABLE") : NULL;
        if (coro_profile_disable == NULL) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_RuntimeError, "expected sys.monitoring, but there is none");
            }
            return NULL;
        }
    }
    return Py_NewRef((PyObject *)&coro_profile_callbacks[i]);
}

static void *
coro_profile_tracer(void)
{
    return NULL;
}

#else

static inline void
coro_profile_tell_c_call(PyObject *callable)
{
    const void *key = coro_profile_usual_key(callable);
    if (Py_TYPE(callable) == &PyFunction_Type || coro_profile_elsewhere()) {
        return;
    }
    if (key != NULL && coro_profile_is_special(key, CORO_PROFILE_COUNTED)) {
        coro_profile_count(key, callable);
        return;
    }
    if (key == NULL || !coro_profile_enter_usual(key, 1)) {
        coro_profile_c_call_unusual(callable);
    }
    coro_profile.looked = key != NULL && coro_profile_is_special(key, CORO_PROFILE_PARKS);
}

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
        const void *key = coro_profile_usual_key(arg);
        if (key == NULL || !coro_profile_is_special(key, CORO_PROFILE_COUNTED)) {
            if (!coro_profile_elsewhere()) {
                coro_profile.looked = 0;
            }
            coro_profile_tell_c_leave(arg);
        }
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
