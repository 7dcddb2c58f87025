# cython: language_level=3, binding=False, embedsignature=True, embedsignature.format=clinic
"""The profiler's core: turns the accounting of profiler/_core/accounts.h on and off, and hands its trees out as Python
objects.

The scheduler calls `told()` where a slice begins or ends and where main waits for the kernel; calls and returns come
from sys.monitoring and from functions that report themselves, or from 3.11's profile function, which the scheduler puts
into every thread. There is one session per process, because the interpreter reports to one place.

Cost: nothing while off but a branch at each switch. On: see profiler/_core/accounts.h; taking the trees out at the end
is one tuple per node.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t, uint32_t, uint64_t

from coro._runtime.scheduler cimport (DEAD, PROFILE_SLICE_BEGINS, PROFILE_SLICE_ENDS, PROFILE_WAIT_BEGINS,
                                      PROFILE_WAIT_ENDS, coro, set_profiler)
from coro._clock.ticks cimport clock, coro_clock, coro_from_seconds

from coro._runtime.abi cimport require_abi

import sys
from types import CodeType

require_abi()

cdef enum:
    CALLBACKS = 5       # those of profiler/_core/events.h


cdef extern from "profiler/_core/events.h":
    int CORO_PROFILE_RUSAGE
    int CORO_PROFILE_PYTHON
    int CORO_PROFILE_OFTEN
    int CORO_PROFILE_COUNTED
    int CORO_PROFILE_PARKS
    int CORO_PROFILE_TIMED
    ctypedef struct coro_profile_node:
        coro_profile_node *parent
        uint32_t function
        int64_t calls
        int64_t waited
        int64_t *own
    ctypedef struct coro_profile_thread:
        uint64_t number
        coro_profile_node *root
        coro_profile_node *node
        int64_t left_at
        uint64_t slices
        PyObject *label
        int ended
    ctypedef struct coro_profile_function:
        PyObject *object
        PyObject *name
        int kind
    ctypedef struct coro_profile_state:
        int64_t last
        int values
        int active
        void *os_thread
        coro_profile_thread *current
        coro_profile_thread *main
        coro_profile_thread *others
        coro_profile_node *sink
        coro_profile_node *wait
        coro_profile_thread **threads
        size_t threads_room
        coro_profile_thread **ended
        size_t ended_count
        coro_profile_function *functions
        size_t functions_count
        uint64_t dropped
    coro_profile_state coro_profile
    int coro_profile_begin(const coro_clock *, int, size_t, size_t, int64_t, PyObject *(*)(PyObject *) noexcept)
    void coro_profile_finish()
    void coro_profile_free()
    void coro_profile_slice_begins(uint64_t, int64_t)
    int64_t coro_profile_slice_ends()
    void coro_profile_wait(int)
    void coro_profile_end_thread(uint64_t, PyObject *)
    coro_profile_thread *coro_profile_note_thread(uint64_t)
    coro_profile_node *coro_profile_find(coro_profile_node *, const void *, PyObject *, int)
    coro_profile_node *coro_profile_following(coro_profile_node *, coro_profile_node *, int *)
    void *coro_os_thread()
    object coro_profile_callback_object(int)
    void *coro_profile_tracer()
    void coro_profile_report_itself(object, int)
    void coro_profile_report_no_more()

cdef extern from "Python.h":
    bint PyMethod_Check(PyObject *)
    PyObject *PyMethod_GET_FUNCTION(PyObject *)
    bint PyType_Check(PyObject *)
    bint PyCFunction_Check(PyObject *)
    bint PyModule_Check(PyObject *)

cdef extern from *:
    """
    #define own_self(f) (((PyCFunctionObject *)(f))->m_self)
    #define own_module(f) (((PyCFunctionObject *)(f))->m_module)
    #define own_name(f) (((PyCFunctionObject *)(f))->m_ml->ml_name)
    """
    PyObject *own_self(PyObject *)
    PyObject *own_module(PyObject *)
    const char *own_name(PyObject *)


# Values measured by the two kinds of sessions.
TICKS = 1
RUSAGE = 1 + CORO_PROFILE_RUSAGE
# Calls of a place after which it gets no events if they need none.
OFTEN = CORO_PROFILE_OFTEN

cdef int64_t started_at = 0


cdef int64_t told(int what, PyObject *thread, int64_t now) noexcept:
    """From main, while a thread's interpreter state may still be in place: no Python object is made here."""
    if what == PROFILE_SLICE_BEGINS:
        coro_profile_slice_begins((<coro>thread).number, now)
    elif what == PROFILE_SLICE_ENDS:
        now = coro_profile_slice_ends()
        if (<coro>thread).link.flags & DEAD:
            coro_profile_end_thread((<coro>thread).number, <PyObject *>(<coro>thread).label)
    else:
        coro_profile_wait(what == PROFILE_WAIT_BEGINS)
    return now


cdef PyObject *name_of(PyObject *function) noexcept:
    """The name of something that is called and not a Python function: module:name or module:Type.name. Reads types and
    modules only: asking the object could run its code."""
    try:
        name = c_name(<object>function)
        Py_INCREF(name)
        return <PyObject *>name
    except BaseException:
        return NULL


cdef str type_name(type t):
    """module.Type of a type, from its dictionary: a metaclass may have ideas of its own."""
    cdef object fields = type.__dict__["__dict__"].__get__(t)
    module = fields.get("__module__")
    if type(module) is not str:
        module = type.__dict__["__module__"].__get__(t)
    name = type.__dict__["__qualname__"].__get__(t)
    return f"{public_module(module, name, t)}:{name}"


cdef object public_module(object module, object name, object thing):
    """Where users find what a private room of coro exports: "coro". Reports do not change when rooms move."""
    if type(module) is str and module.startswith("coro._"):
        package = sys.modules.get("coro")
        if package is not None and package.__dict__.get(name) is thing:
            return "coro"
    return module


cdef object c_name(object function):
    cdef PyObject *f = <PyObject *>function
    if PyMethod_Check(f):
        return c_name(<object>PyMethod_GET_FUNCTION(f))
    if PyType_Check(f):
        return type_name(function)
    if PyCFunction_Check(f):
        name = own_name(f).decode("utf-8", "replace")
        if own_self(f) == NULL or PyModule_Check(own_self(f)):
            module = <object>own_module(f) if own_module(f) != NULL else None
            return f"{public_module(module, name, function)}:{name}" if type(module) is str else name
        owner = <object>own_self(f)
        return f"{type_name(owner if isinstance(owner, type) else type(owner))}.{name}"
    if type(function) in DESCRIPTORS:
        return f"{type_name(function.__objclass__)}.{function.__name__}"
    return type_name(type(function))


cdef tuple DESCRIPTORS = (type(str.join), type(dict.__dict__["fromkeys"]), type(str.__len__))


# ---------------------------------------------------------------------------------------------- a session

def begin(int values, size_t most_nodes, size_t most_ended, double sample_every):
    """Start to account. ``values`` is TICKS or RUSAGE, ``most_nodes`` how many nodes all trees may have,
    ``most_ended`` how many threads that ended keep a tree of their own, ``sample_every`` the seconds after which
    getrusage(2) is called at a call or return, too. SystemError when a session is on; MemoryError."""
    global started_at
    if values not in (TICKS, RUSAGE):
        raise SystemError(f"expected TICKS or RUSAGE, not {values}")
    if coro_profile.main != NULL:
        raise SystemError("a profiler is active already; stop it first (coro.get_the_profiler().stop())")
    if coro_profile_begin(clock(), values, most_nodes, most_ended, coro_from_seconds(clock(), sample_every),
                          name_of) < 0:
        coro_profile_free()
        raise MemoryError("no memory for a profile")
    started_at = coro_profile.last


cdef int need_session() except -1:
    if coro_profile.main == NULL:
        raise SystemError("no profiler is active")
    return 0


def adopt(thread, list codes, bint current):
    """Make the path of a thread that runs already known: code objects, outermost first. ``thread`` is None for main.
    ``current`` when it is the caller's own."""
    cdef coro_profile_thread *t = coro_profile.main
    cdef coro_profile_node *n
    need_session()
    if thread is not None:
        t = coro_profile_note_thread((<coro?>thread).number)
        if t == NULL:
            raise MemoryError("no memory for a profile")
        t.left_at = 0 if current else coro_profile.last
    for code in codes:
        if type(code) is not CodeType:
            raise SystemError(f"expected code objects, not {type(code).__name__}")
        n = coro_profile_find(t.node, <PyObject *>code, <PyObject *>code, CORO_PROFILE_PYTHON)
        if n == NULL:
            break
        t.node = n
    if current:
        coro_profile.current = t
        coro_profile.sink = t.node


def switch_on(tuple counted, tuple parking, tuple timed):
    """From here on the scheduler, these functions of coro and, up to 3.11, the interpreter report. ``counted`` are
    functions of which calls are counted only, ``parking`` those that park the caller and do nothing else."""
    need_session()
    for function in counted:
        coro_profile_report_itself(function, CORO_PROFILE_COUNTED)
    for function in parking:
        coro_profile_report_itself(function, CORO_PROFILE_PARKS)
    for function in timed:
        coro_profile_report_itself(function, CORO_PROFILE_TIMED)
    set_profiler(told, coro_profile_tracer())


def is_ours():
    """Is the caller's OS thread the one that is profiled?"""
    return coro_os_thread() == coro_profile.os_thread


def switch_off():
    """Nobody reports any more; the elapsed ticks. Events from elsewhere must have ended before."""
    need_session()
    set_profiler(NULL, NULL)
    coro_profile_report_no_more()
    coro_profile_finish()
    return coro_profile.last - started_at


def callback(int i):
    """The i-th receiver of events for sys.monitoring: starts, resumptions, ends of Python functions, calls and ends of
    other callables."""
    if not 0 <= i < CALLBACKS:
        raise SystemError(f"expected a number from 0 to {CALLBACKS - 1}, not {i}")
    return coro_profile_callback_object(i)


cdef list nodes_of(coro_profile_node *root):
    """A tree as tuples (depth, function, calls, ticks waited, own values...), callers before callees."""
    cdef list out = []
    cdef coro_profile_node *n = root
    cdef int depth = 0, i
    while n != NULL:
        out.append((depth, n.function, n.calls, n.waited) + tuple([n.own[i] for i in range(coro_profile.values)]))
        n = coro_profile_following(root, n, &depth)
    return out


cdef tuple thread_tuple(coro_profile_thread *t):
    return (t.number, <object>t.label if t.label != NULL else None, t.ended, t.slices, nodes_of(t.root))


def take():
    """Everything accounted since begin(), and nothing is kept: (functions, threads, main, others, wait, dropped).

    ``functions`` are names, or code objects for Python functions, or None for main and the wait; threads are (number,
    name or None, ended, slices, nodes), see nodes_of(); ``others`` is what ended threads came to that were too many."""
    cdef size_t i
    cdef list functions = [], threads = []
    need_session()
    set_profiler(NULL, NULL)    # who takes without having switched off gets no events for what is gone
    coro_profile_report_no_more()
    for i in range(coro_profile.functions_count):
        if coro_profile.functions[i].kind == CORO_PROFILE_PYTHON:
            functions.append(<object>coro_profile.functions[i].object)
        elif coro_profile.functions[i].name != NULL:
            functions.append(<object>coro_profile.functions[i].name)
        else:
            functions.append(None)
    for i in range(coro_profile.ended_count):
        threads.append(thread_tuple(coro_profile.ended[i]))
    for i in range(coro_profile.threads_room):
        if coro_profile.threads[i] != NULL:
            threads.append(thread_tuple(coro_profile.threads[i]))
    result = (functions, threads, thread_tuple(coro_profile.main), thread_tuple(coro_profile.others),
              nodes_of(coro_profile.wait), coro_profile.dropped)
    coro_profile_free()
    return result


def abandon():
    """Forget a session that could not begin."""
    set_profiler(NULL, NULL)
    coro_profile_report_no_more()
    coro_profile_free()
