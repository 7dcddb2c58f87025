# cython: language_level=3, binding=False, embedsignature=True, embedsignature.format=clinic
"""The call that a thread of a group makes, and the one that a thread of a server makes for its connection.

Such a thread waits below this call for most of its life, ten thousand at a time, so each byte of C stack here and each
Python frame is paid for by every connection. The calls are therefore made in C, without a frame of Python, and what has
to happen after them (exceptions are sorted, streams closed) is in functions of their own, which are not on the stack
while the thread waits. No function that waits has a ``try``: it would keep a dozen words for the exceptions that it may
have to handle. The exception is taken from the thread state after the call, and has no line of this file in its
traceback.

Cost: 700 bytes less for a waiting connection than the same in Python, and a microsecond less for its beginning and end.

Invariants:
 1. `counted` is set from the end of __init__ to the first line of the thread. Who dies with it was cancelled, and its
    group is told.
 2. After `call`, an exception is set if and only if it returned NULL.
"""

from cpython.object cimport PyObject

from coro._runtime.abi cimport require_abi

from coro._runtime import scheduler
from coro.exceptions import Shutdown

require_abi()

__all__ = ["GroupCall", "ServerCall"]

cdef extern from *:
    """
    /* The exception that is set, a new reference, with its traceback; none is set afterwards. */
    static PyObject *coro_taken_exception(void) {
    #if PY_VERSION_HEX >= 0x030C0000
        return PyErr_GetRaisedException();
    #else
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        PyErr_NormalizeException(&type, &value, &traceback);
        if (traceback != NULL) {
            PyException_SetTraceback(value, traceback);
        }
        Py_XDECREF(type);
        Py_XDECREF(traceback);
        return value;
    #endif
    }
    /* Set it again, with the traceback that it has. Returns -1, as a function that has raised it. */
    static int coro_raise(PyObject *exc) {
    #if PY_VERSION_HEX >= 0x030C0000
        PyErr_SetRaisedException(Py_NewRef(exc));
    #else
        PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(exc)), Py_NewRef(exc), PyException_GetTraceback(exc));
    #endif
        return -1;
    }
    #define coro_call_tuple(f, args) \
        PyObject_Vectorcall(f, &PyTuple_GET_ITEM(args, 0), (size_t)PyTuple_GET_SIZE(args), NULL)
    """
    PyObject *coro_taken_exception() noexcept
    int coro_raise(object) except -1
    int coro_set_exception "coro_raise"(object) noexcept
    PyObject *coro_call_tuple(PyObject *, PyObject *) noexcept
    PyObject *PyObject_Call(PyObject *, PyObject *, PyObject *) noexcept
    PyObject *PyObject_Vectorcall(PyObject *, PyObject **, size_t, PyObject *) noexcept
    void PyErr_SetHandledException(PyObject *)
    void Py_DECREF(PyObject *)
    void Py_INCREF(PyObject *)


cdef class GroupCall:
    """GroupCall(group, function, args, kwargs)\n--\n\n\
    The call of a thread of ``group``. It lives exactly as long as the call may still happen or is going on."""

    cdef readonly object group, function
    cdef tuple args
    cdef dict kwargs
    cdef bint counted           # the group counts this call, and it has not begun

    def __init__(self, group, function, tuple args, dict kwargs):
        self.group = group
        self.function = function
        self.args = args
        self.kwargs = kwargs or None
        self.counted = True

    def __call__(self):
        # What is called before and behind the waiting call is called through pointers: the compiler would make it part
        # of this function, and its variables part of what is kept.
        self.begin()
        return self.end(self.call())

    cdef int begin(self) except -1:
        self.counted = False
        self.group._children[scheduler.current()] = None
        return 0

    cdef PyObject *call(self) noexcept:
        if self.kwargs is None:
            return coro_call_tuple(<PyObject *>self.function, <PyObject *>self.args)
        return PyObject_Call(<PyObject *>self.function, <PyObject *>self.args, <PyObject *>self.kwargs)

    cdef object end(self, PyObject *result):
        """What the thread returns, or raises, after `call` has returned this."""
        cdef object outcome = None, failure = None
        if result == NULL:
            failure = taken_exception()
        else:
            outcome = <object>result
            Py_DECREF(result)
        try:
            if failure is not None and not isinstance(failure, Shutdown):       # which is the silent way to end
                scheduler._note_failure(failure)
                self.group._fail(failure)
                failure = None
        finally:
            self.group._leave(scheduler.current())
        if failure is not None:
            coro_raise(failure)
        return outcome

    def __del__(self):
        if self.counted:
            self.group._cancelled()


cdef class ServerCall(GroupCall):
    """ServerCall(group, handler, server, conn, address)\n--\n\n\
    The call of ``handler`` for a connection of ``server``, which is closed behind it."""

    cdef object server, conn, address
    cdef object stream              # what the handler gets; None before `wrap`, and if that has failed

    def __init__(self, group, handler, server, conn, address):
        self.server = server
        self.conn = conn
        self.address = address
        if server._wrap is None:
            self.stream = conn
        GroupCall.__init__(self, group, handler, (), None)

    cdef PyObject *call(self) noexcept:
        cdef PyObject *args[2]
        if self.stream is None and not self.make_stream():
            return NULL
        if self.stream is None:
            Py_INCREF(<PyObject *>None)
            return <PyObject *>None
        args[0] = <PyObject *>self.stream
        args[1] = <PyObject *>self.address
        return PyObject_Vectorcall(<PyObject *>self.function, args, 2, NULL)

    cdef bint make_stream(self) noexcept:
        """False: there is none, and an exception is set."""
        try:
            self.stream = self.server._wrapped(self.conn)
        except BaseException as e:
            coro_set_exception(e)
            return False
        return True

    cdef object end(self, PyObject *result):
        return GroupCall.end(self, self.close(result))

    cdef PyObject *close(self, PyObject *result) noexcept:
        """What is to become of the thread: None, or NULL with an exception set."""
        try:
            try:
                if result == NULL:
                    self.judge(taken_exception())
                else:
                    Py_DECREF(result)
            finally:
                try:
                    if self.stream is not None and self.stream is not self.conn:
                        self.server._close_stream(self.stream)
                finally:
                    self.conn.close()
        except BaseException as e:
            coro_set_exception(e)
            return NULL
        Py_INCREF(<PyObject *>None)
        return <PyObject *>None

    cdef int judge(self, object failure) except -1:
        """What the handler has raised."""
        if isinstance(failure, Shutdown):
            coro_raise(failure)
        PyErr_SetHandledException(<PyObject *>failure)
        try:
            self.server._handler_failed(failure, self.conn)
        finally:
            PyErr_SetHandledException(NULL)
        return 0


cdef object taken_exception():
    cdef PyObject *raised = coro_taken_exception()
    exc = <object>raised
    Py_DECREF(raised)
    return exc
