# cython: language_level=3, binding=False, embedsignature=True, embedsignature.format=clinic
"""ThreadLocal: attributes that every thread has values of its own for. LocalValues is the same without methods, for
programs that may give an attribute any name (threading.local under emulation).

The values of a thread are a dictionary. Before each access the dictionary of the running thread becomes the object's
`__dict__`, and Python's ordinary attribute look-up does the rest, so properties, methods and class attributes of
subclasses work as anywhere. The dictionaries are kept by thread number, which is never used twice. The thread knows (by
weak references) which objects have values for it, and has them cleared as the last thing that it does: finalisers of
values run in their own thread and may still wait. Threads that never come to their end (lost in a fork, given up at
the end of a loop) are looked for each time the table has doubled.

Cost: one dictionary per thread that sets anything; about 30 ns above an ordinary attribute.

Rejected: a context variable. Those are inherited by spawned threads, and nothing may be inherited here.

Invariants:
 1. `__dict__` is the dictionary of the thread that `shown` numbers, 0 meaning none of the table's.
 2. A thread's dictionary is in the table while the thread lives; subclasses' __init__ has run for each.
 3. Then the thread's locals_of() has a weak reference to the object.
"""

from cpython.object cimport PyObject_GenericGetAttr, PyObject_GenericSetAttr
from libc.stdint cimport uint64_t

from coro._runtime.abi cimport require_abi
from coro._runtime.scheduler cimport coro, locals_of, whoever

import threading
import weakref

from coro._runtime import scheduler
from coro._sync.records import LocalStatistics
from coro.exceptions import WrongThreadError

require_abi()

cdef extern from "Python.h":
    int delete_attribute "PyObject_GenericSetAttr"(object, object, void *) except -1
    int set_dict "PyObject_GenericSetDict"(object, object, void *) except -1


cdef class LocalValues:
    """LocalValues(*args, **kwargs)\n--\n\n\
    What ThreadLocal is, without a public attribute of its own."""

    cdef dict __dict__
    cdef object __weakref__
    cdef dict table         # thread number -> values
    cdef object outside     # a threading.local for everybody who is no thread of ours
    cdef tuple args
    cdef dict kwargs
    cdef uint64_t shown
    cdef Py_ssize_t look_at

    def __cinit__(self, *args, **kwargs):
        if (args or kwargs) and type(self).__init__ is object.__init__:
            raise TypeError(f"{type(self).__name__}() takes no arguments unless its class defines __init__")
        self.table = {}
        self.outside = threading.local()
        self.args = args
        self.kwargs = kwargs
        self.look_at = 16
        # The creator's values; __init__ runs for them in the ordinary way.
        self.values_of(self.whose(), False)

    cdef object whose(self):
        try:
            return whoever()
        except WrongThreadError:
            return None

    cdef int show(self) except -1:
        """Make the running thread's dictionary the object's own."""
        cdef object me = self.whose()
        if isinstance(me, coro) and (<coro>me).number == self.shown:
            return 0
        values = self.values_of(me, True)
        # __init__ may have let other threads run.
        set_dict(self, values, NULL)
        self.shown = (<coro>me).number if isinstance(me, coro) else 0
        return 0

    cdef dict values_of(self, object me, bint initialise):
        cdef dict values
        if not isinstance(me, coro):
            values = self.outside.__dict__
            if "values" in values:
                return values["values"]
            values["values"] = {}
            values = values["values"]
        else:
            values = self.table.get((<coro>me).number)
            if values is not None:
                return values
            values = {}
            if len(self.table) >= self.look_at:
                self.forget_the_dead()
            note(me, self)
            self.table[(<coro>me).number] = values
        set_dict(self, values, NULL)
        self.shown = (<coro>me).number if isinstance(me, coro) else 0
        if initialise and type(self).__init__ is not object.__init__:
            try:
                type(self).__init__(self, *self.args, **self.kwargs)
            except:
                if isinstance(me, coro):
                    self.forget((<coro>me).number)
                else:
                    self.outside.__dict__.pop("values", None)
                    self.hide()
                raise
        return values

    cdef int hide(self) except -1:
        self.shown = 0
        set_dict(self, {}, NULL)
        return 0

    cdef int forget(self, uint64_t number) except -1:
        # The values are released last: their finalisers may do anything.
        values = self.table.pop(number, None)
        if self.shown == number:
            self.hide()
        values = None
        return 0

    cdef int forget_the_dead(self) except -1:
        living = {t.id for t in scheduler._all_threads()}
        for number in [n for n in self.table if n not in living]:
            self.forget(number)
        self.look_at = max(16, 2 * len(self.table))
        return 0

    def __getattribute__(self, name):
        self.show()
        return PyObject_GenericGetAttr(self, name)

    def __setattr__(self, name, value):
        if name == "__dict__":
            raise AttributeError(f"{type(self).__name__!r} object attribute '__dict__' is read-only; "
                                 "set attributes instead")
        self.show()
        PyObject_GenericSetAttr(self, name, value)

    def __delattr__(self, name):
        if name == "__dict__":
            raise AttributeError("the __dict__ of a ThreadLocal cannot be deleted; delete attributes instead")
        self.show()
        delete_attribute(self, name, NULL)

    def __repr__(self):
        return f"<{type(self).__name__} at {<size_t><void *>self:#x}>"


cdef class ThreadLocal(LocalValues):
    """ThreadLocal(*args, **kwargs)\n--\n\n\
    Attributes with a value for each thread. If one thread sets ``local.x = 1``, no other sees it. The values vanish
    with their thread. Code outside any thread (the scheduler, other OS threads) has values of its own, one set for each
    OS thread.

    Reading or deleting what the thread has not set is an AttributeError. ``local.__dict__`` shows the thread's values.
    A subclass may define ``__init__``: it runs again, with the same arguments, in every thread that uses the object.
    ``__slots__`` in subclasses are shared by all threads."""

    def statistics(self):
        """A LocalStatistics(threads, values)."""
        return LocalStatistics(len(self.table), sum(map(len, self.table.values())))


cdef int note(coro thread, LocalValues local) except -1:
    """Have the thread clear its values of `local` when it ends. A thread may outlive many such objects, so what refers
    to none any more is dropped each time the list has doubled."""
    cdef list known = locals_of(thread)
    cdef Py_ssize_t n = len(known)
    if n >= 16 and n & (n - 1) == 0:
        known[:] = [ref for ref in known if ref() is not None]
    known.append(weakref.ref(local))
    return 0


def _end_locals(uint64_t number, list known):
    """The thread of that number ends."""
    cdef LocalValues local
    for ref in known:
        local = ref()
        if local is not None:
            local.forget(number)


scheduler._set_locals_ender(_end_locals)
