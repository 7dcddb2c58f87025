# cython: language_level=3, binding=False, embedsignature=True, embedsignature.format=clinic
"""The scheduler: thread objects, run queue, interruptions, timers, the loop, and how a loop ends.

One loop runs in one OS thread. *Main* is the code of the loop itself; it runs on the OS thread's own stack and never
runs user code. Threads always swap to main, and main swaps to the next one.

Run queue. Two intrusive lists: `ready` collects whoever is scheduled, `batch` is what main works off now. When the
batch is empty the two change places. A thread that cannot run for lack of memory waits in `postponed` for the next pass
of the loop. A thread is in at most one list, once, and leaves it in O(1).

A pass of the loop: timers that are due; the threads that were postponed; the threads that called yield_slice() before
the last poll; functions posted by other OS threads; then the run queue until it is empty or 10 ms have gone by; then
the poller, without waiting if anything is left to run. A pass that ends for lack of memory is begun anew: each step
leaves what it has not done to the next.

Interruptions. What interrupts a thread is noted on the thread (`attention`), one kind apart from the other: shutdown,
exceptions sent by users (a queue), timeouts that expired (a list). A thread that is suspended and not scheduled is then
scheduled with DELIVER set and raises the first of them when it runs: shutdown before users' exceptions before timeouts.
A thread that is scheduled already keeps its wake-up; what came too late for it is delivered at its next suspension,
which is when it is put at the end of the run queue with DELIVER, so that expired timeouts in a loop starve nobody.
Nothing that was noted is ever discarded, except by a shutdown (which drops users' exceptions) and by leaving the scope
of a timeout.

Why one file of this length: thread object, run queue, timers and loop are one state machine with shared invariants;
every cut tried so far ran through the middle of a transition. What could be taken out is out: stacks and interpreter
state (C files), the heap, the registry, the wording of reports, and everything that only calls what is here.

Invariants:
 1. SCHEDULED is set exactly while the thread's link is in `ready`, `batch` or `postponed`; IN_SLICE exactly while it
    is in `slicers`.
 2. The registry owns one reference to every thread that is scheduled or started and not dead.
 3. `running` is NULL whenever main runs.
 4. Nothing reachable from the heap points into a thread's C stack while the thread is suspended.
 5. A thread that is DEAD is in no list, has no timer, and never runs again.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from posix.unistd cimport usleep

from coro._clock.ticks cimport (CORO_TICKS_FOREVER, clock, coro_clock, coro_clock_due, coro_from_seconds, coro_now,
                          coro_to_ns_up, coro_to_seconds, tend)

from coro._runtime.abi cimport CORO_ABI
from coro._runtime.likely cimport likely, unlikely

import sys
from collections import deque

from coro.exceptions import (DeadCoroutine, Interrupted, LoopError, NoSwitchError, NotStartedError,
                             ScheduleError, Shutdown, StackSlotError, TimeoutError, WrongThreadError, YieldFromMain)


cdef extern from "Python.h":
    ctypedef struct PyThreadState:
        pass
    PyThreadState *PyThreadState_Get()
    void PyErr_SetHandledException(PyObject *)
    PyThreadState *PyThreadState_Next(PyThreadState *)
    void *PyInterpreterState_Get()
    PyThreadState *PyInterpreterState_ThreadHead(void *)
    PyObject *PyContext_CopyCurrent() except NULL
    PyObject *PyObject_Call(PyObject *, PyObject *, PyObject *)
    void PyObject_GC_Track(PyObject *)
    void PyObject_GC_UnTrack(PyObject *)
    bint PyObject_GC_IsTracked(PyObject *)
    bint PyObject_IS_GC(PyObject *)
    bint PyFunction_Check(PyObject *)
    PyObject *PyFunction_GET_CODE(PyObject *)
    bint PyMethod_Check(PyObject *)
    PyObject *PyMethod_GET_FUNCTION(PyObject *)
    object PyObject_GenericGetAttr(object, object)
    PyObject *Py_TYPE(object)
    object PyType_GetQualName(PyObject *)
    bint PyExceptionClass_Check(PyObject *)
    bint PyExceptionInstance_Check(PyObject *)
    void *PyMem_RawMalloc(size_t) nogil
    void PyMem_RawFree(void *) nogil
    Py_ssize_t Py_REFCNT(PyObject *)
    int check_signals "PyErr_CheckSignals"() except -1

cdef extern from *:
    """
    #include <pthread.h>
    /* Its __qualname__, borrowed: no more than a name, but every thread that ends looks for one. */
    static inline PyObject *coro_function_name(PyObject *f) { return ((PyFunctionObject *)f)->func_qualname; }
    static inline PyObject *coro_context_of(PyThreadState *ts) { return ts->context; }
    /* A thread state that CPython is about to free has a thread's data stack, which is not CPython's to free. */
    static inline void coro_forget_datastack(PyThreadState *ts) { ts->datastack_chunk = NULL; }
    static inline int coro_has_weakrefs(PyObject *o) {
        return *(PyObject **)((char *)o + Py_TYPE(o)->tp_weaklistoffset) != NULL;
    }
    """
    PyObject *coro_function_name(PyObject *)
    PyObject *coro_context_of(PyThreadState *)
    void coro_forget_datastack(PyThreadState *) nogil
    int pthread_atfork(void *, void *, void (*)() noexcept nogil) nogil
    bint has_weakrefs "coro_has_weakrefs"(PyObject *)

cdef extern from "_switch/os_thread.h":
    void *coro_os_thread() nogil

cdef extern from "_switch/signal_text.h":
    ctypedef struct coro_who:
        int running
        unsigned long long number
        PyObject *name
        int frames_known
    ctypedef void (*coro_look)(coro_who *) noexcept nogil

cdef extern from "_switch/slice.h":
    int coro_main_away
    void coro_enter_main(PyThreadState *)
    void coro_forget_main()
    int coro_stack_begin(coro_stack *, void (*)(void *) noexcept, void *)
    int coro_stack_run(PyThreadState *, coro_stack *)
    void coro_stack_park(coro_stack *)
    void coro_call_thread(PyObject *, PyObject *, PyObject *, PyObject *, coro_stack *, void (*)(PyObject *) noexcept,
                          int (*)(PyObject *, PyObject *) noexcept)
    PyObject *coro_take_exception()
    void coro_stack_prefetch(coro_stack *)
    bint coro_main_is_traced()
    void coro_inherit_tracing()
    void coro_interp_clear(PyThreadState *)
    void coro_interp_setup(size_t)
    void coro_interp_init(coro_interp *, PyThreadState *, PyObject *, void *, PyObject **, PyObject **)
    PyObject *coro_interp_frame_object(PyThreadState *, void *)
    void coro_interp_set_profile(PyThreadState *, void *)
    int coro_interp_trace_parked(PyThreadState *, coro_interp *, void *, PyObject *, PyObject *) except -1
    ctypedef struct coro_interp_facts:
        int *collecting
    coro_interp_facts coro_interp_known
    void *coro_datastack_root(const void *, PyObject ***, PyObject ***)
    void coro_datastack_release(void *, void *)
    void coro_datastack_setup()
    void *coro_interp_chunk "CORO_INTERP_CHUNK"(coro_interp *)
    size_t coro_datastack_size(const void *)
    void *coro_present_chunk(PyThreadState *)
    ctypedef struct coro_slot_counters:
        uint64_t evacuations, evacuated_bytes, restorations, restored_bytes, collisions, trims
    coro_slot_counters coro_slot_counted
    coro_slot *coro_slots
    int coro_slot_count
    size_t coro_slot_size
    int coro_slots_map(int, size_t)
    coro_slot *coro_slots_choose()
    int coro_slots_evacuate(coro_slot *)
    void coro_slots_leave(coro_stack *, int)
    void coro_slots_abandon()
    void coro_slots_trim()
    void *coro_slots_frame(const coro_stack *)
    int CORO_STACK_COMPRESS
    int CORO_SMALLEST_STACK

cdef extern from "_switch/guard.h":
    void coro_guard_enter(coro_look)
    void coro_guard_leave()

cdef extern from "_runtime/watchdog.h":
    void coro_watchdog_init(const uint64_t *, const uint64_t *, coro_look)
    int coro_watchdog_set(double, int, int)
    void coro_watchdog_enter(PyThreadState *)
    void coro_watchdog_leave()
    void coro_watchdog_after_fork()

cdef extern from "_runtime/timers.h":
    ctypedef struct coro_timer_entry:
        int64_t when
        coro_timer *timer
    ctypedef struct coro_timer_heap:
        coro_timer_entry *entries
        size_t count
    int coro_timers_insert(coro_timer_heap *, coro_timer *, int64_t)
    void coro_timers_remove(coro_timer_heap *, coro_timer *)
    coro_timer *coro_timers_pop_due(coro_timer_heap *, int64_t)
    void coro_timers_clear(coro_timer_heap *)

cdef extern from "_runtime/registry.h":
    ctypedef struct coro_registry_entry:
        uint64_t id
        PyObject *thread
    coro_registry_entry *coro_registry
    size_t coro_registry_room
    size_t coro_registry_count
    int coro_registry_add(uint64_t, PyObject *)
    PyObject *coro_registry_find(uint64_t)
    PyObject *coro_registry_remove(uint64_t)


cdef enum:              # coro.attention
    ATTEND_SHUTDOWN = 1
    ATTEND_USER = 2
    ATTEND_TIMEOUT = 4
    ATTEND_FORCE = 8    # the grace period is over: every blocking call raises at once

cdef enum:              # how a thread dies, see die()
    ENDED
    CANCELLED
    GIVEN_UP
    LOST

cdef enum:
    NOT_ENDING = 0
    GRACE = 1
    FORCED = 2

cdef enum:
    SWITCHES_BETWEEN_LOOKS = 256
    MEMORY_LOOK_US = 1000
    MOST_REFUSALS = 100
    DEADLOCK_LOOK_NS = 1000000000
    SMALLEST_COMPRESSED = 128
    LOCALS_ROUNDS = 4       # what POSIX has at least for pthread_key_create(3)'s destructors

cdef int DEFAULT_SLOTS = 128 if sizeof(void *) > 4 else 16
cdef size_t DEFAULT_SLOT_SIZE = (4 if sizeof(void *) > 4 else 1) * 1024 * 1024

cdef coro_clock *ticker = clock()

cdef PyObject *running = NULL          # borrowed; the thread that executes now
cdef PyThreadState *loop_ts = NULL     # of the OS thread whose loop runs
cdef void *loop_os_thread = NULL       # that OS thread
cdef coro_link ready, batch, slicers, postponed   # circular, these are their sentinels
cdef coro_timer_heap timers
cdef uint64_t last_number = 0
cdef uint64_t n_switches = 0, n_spawned = 0, n_passes = 0, n_polls = 0, n_timers_fired = 0, n_bounded = 0
cdef Py_ssize_t n_objects = 0, n_counted = 0, n_own_os_threads = 0
cdef Py_ssize_t n_io = 0, n_offloaded = 0   # threads suspended until the kernel, or a worker OS thread, wakes them
cdef Py_ssize_t n_helpers = 0, n_forgotten = 0   # living threads with HELPER, FORGOTTEN
cdef int64_t loop_now = 0, slice_start = 0
cdef bint slots_ready = False, stopping = False, any_ran = False
cdef int slots_wanted = DEFAULT_SLOTS
cdef size_t slot_size_wanted = DEFAULT_SLOT_SIZE
cdef int64_t latency_limit = 0, drain_budget = 0
cdef int64_t trim_at = 0, trim_every = 0
cdef int latency_factor = 1
cdef int selfish_default = 4
cdef unsigned long collecting_in = 0   # the OS thread that the cyclic collector runs in

cdef int ending = NOT_ENDING
cdef bint exit_wanted = False
cdef object wanted_code = 0
cdef double DEFAULT_GRACE = 5.0
cdef double exit_grace = DEFAULT_GRACE
cdef int64_t exit_deadline = 0
cdef uint64_t forced_switches = 0      # how many there had been when somebody was last known to have ended by force
cdef object end_reason = "done", end_code = 0   # why the loop ends, and with which exit code or error
cdef object posts = deque()
cdef Py_ssize_t n_posts = 0            # its length, for the loop's look at it in every pass; both change under the GIL
cdef int posts_state = 0               # 0: no loop yet, 1: a loop runs, 2: it has ended
cdef Py_ssize_t most_posts = 65536
cdef list main_drops = []              # what main must not release itself
cdef Poller the_poller = None
cdef object poller_factory = None
cdef object notifier = None            # user's, None: the default
cdef object default_notifier = None
cdef object with_timeout_elsewhere = None, sleep_elsewhere = None      # of coro.optional
cdef object latency_reporter = None
cdef object deadlock_reporter = None
cdef object packer = None, unpacker = None
cdef bint deadlock_waits = False, deadlock_reported = False
cdef object refused = []               # (thread, where) of threads that had to be given up
cdef object idle_hook = None           # of coro.testing: asked before a poll that would wait
cdef object poll_hook = None           # of coro.microthreads.notifiers: polls in place of the poller
cdef profile_hook profiler = NULL      # who is told of slices and waits
cdef uint64_t order_state = 0          # of coro.testing's random order; 0: threads run in the order they were scheduled


cdef inline void list_init(coro_link *head) noexcept:
    head.next = head
    head.prev = head
    head.thread = NULL


cdef inline void list_append(coro_link *head, coro_link *link) noexcept:
    link.prev = head.prev
    link.next = head
    head.prev.next = link
    head.prev = link


cdef inline void list_unlink(coro_link *link) noexcept:
    link.prev.next = link.next
    link.next.prev = link.prev
    link.next = NULL
    link.prev = NULL


cdef inline bint list_empty(coro_link *head) noexcept:
    return head.next == head


cdef inline void list_splice(coro_link *to, coro_link *source) noexcept:
    """Move all of `source` behind `to`'s last."""
    if source.next != source:
        source.next.prev = to.prev
        to.prev.next = source.next
        source.prev.next = to
        to.prev = source.prev
        list_init(source)


list_init(&ready)
list_init(&batch)
list_init(&slicers)
list_init(&postponed)


# ---------------------------------------------------------------------------------------------- thread objects

@cython.final
@cython.internal
cdef class Extra:
    """What few threads have: kept apart so that the others do not pay for it."""
    cdef object shutdown      # the Shutdown class or instance to raise
    cdef list exceptions      # sent by users, in order
    cdef list bombs           # expired timeouts, in order
    cdef list joiners
    cdef list locals          # weak references to the ThreadLocals that have values for the thread


cdef inline Extra extra_of(coro t):
    if t.extra is None:
        t.extra = Extra.__new__(Extra)
    return <Extra>t.extra


@cython.final
cdef class coro:
    """A thread. Made by ``coro.new`` and ``coro.spawn``; not constructed directly.

    Attributes (read-only): ``id`` (positive, never reused), ``name``, ``dead``, ``started``, ``scheduled``,
    ``daemon``, ``value`` (what the next resumption will deliver), ``result`` (of the function, once it has returned),
    ``exception`` (that ended it, else None), ``waiting_for``, ``stack_size``. ``compress`` may be set: the
    saved stack is then kept compressed.
    """

    def __cinit__(self):
        global n_objects
        n_objects += 1
        self.link.thread = <PyObject *>self
        self.timer.owner = <void *>self

    def __init__(self, *args, **kwargs):
        raise TypeError("threads are made by coro.spawn(function, ...) or coro.new(function, ...), "
                        "not by calling the class")

    def __dealloc__(self):
        global n_objects
        n_objects -= 1

    # -- looking

    @property
    def id(self):
        return self.number

    @property
    def name(self):
        return thread_name(self)

    @property
    def dead(self):
        return (self.flags & DEAD) != 0

    @property
    def started(self):
        return (self.flags & STARTED) != 0

    @property
    def scheduled(self):
        return (self.flags & SCHEDULED) != 0

    @property
    def daemon(self):
        return (self.flags & DAEMON) != 0

    @property
    def value(self):
        return None if self.flags & WAKE_ERROR else self.wake_value

    @property
    def result(self):
        return None if self.flags & FAILED else self.outcome

    @property
    def exception(self):
        return self.outcome if self.flags & FAILED else None

    @property
    def waiting_for(self):
        """What a suspended thread waits for, as (kind, object): ('read', 5), ('join', <thread>), … or None."""
        if not self.flags & STARTED or self.flags & (DEAD | SCHEDULED) or running == <PyObject *>self:
            return None
        if self.kind == WAIT_READ or self.kind == WAIT_WRITE:
            return KINDS[self.kind], (self.ident if self.what is None else self.what)
        return KINDS[self.kind], self.what

    @property
    def stack_size(self):
        """Sizes of the saved stack in bytes, as (uncompressed, kept); (0, 0) while it is in its slot or there is
        none."""
        return self.stack.size, (self.stack.packed if self.stack.packed else self.stack.size)

    @property
    def compress(self):
        return (self.stack.flags & CORO_STACK_COMPRESS) != 0

    @compress.setter
    def compress(self, value):
        if value:
            load_packer()
            self.stack.flags |= CORO_STACK_COMPRESS
        else:
            self.stack.flags &= ~CORO_STACK_COMPRESS

    def __repr__(self):
        return (f"<coro #{self.number} name={thread_name(self)!r} dead={(self.flags & DEAD) != 0:d} "
                f"started={(self.flags & STARTED) != 0:d} scheduled={(self.flags & SCHEDULED) != 0:d} "
                f"at {<size_t><PyObject *>self:#x}>")

    def get_frame(self):
        """The innermost Python frame: of the caller for the running thread, where it is parked for a suspended one;
        None for one that has not run, is dead, or runs no Python function."""
        check_os_thread()
        if running == <PyObject *>self:
            return sys._getframe()
        if not self.flags & STARTED or self.flags & DEAD:
            return None
        return parked_frame(self)

    def set_name(self, name):
        """Name the thread; returns it, so that calls chain: ``coro.spawn(f).set_name("x")``. TypeError unless str."""
        if not isinstance(name, str):
            raise TypeError(f"a thread's name is a str, not {type(name).__name__}: {name!r}")
        self.label = name
        return self

    def get_name(self):
        """The thread's name."""
        return thread_name(self)

    def setName(self, name):
        """Deprecated alias of set_name."""
        return self.set_name(name)

    def getName(self):
        """Deprecated alias of get_name."""
        return thread_name(self)

    def thread_id(self):
        """Deprecated alias of the ``id`` attribute."""
        return self.number

    # -- acting

    def start(self):
        """Schedule the thread for the first time.

        ScheduleError when it was started or scheduled before, DeadCoroutine when it was cancelled, LoopError while the
        loop ends, WrongThreadError outside the loop's OS thread."""
        check_os_thread()
        if self.flags & DEAD:
            raise DeadCoroutine(self)
        if self.flags & (STARTED | SCHEDULED):
            raise ScheduleError(self)
        start_thread(self)

    def schedule(self, value=None):
        """Make the thread runnable; its ``_yield()`` (or whatever it is blocked in) returns ``value``.

        A thread that has not run is started, the value being ignored. ScheduleError when it is scheduled already or is
        the running one, DeadCoroutine when it has ended."""
        check_os_thread()
        schedule_thread(self, value)

    def raise_exception(self, the_exception, force=True, cancel_start=False):
        """Interrupt the thread: it raises ``the_exception`` (class or instance) where it is suspended.

        Shutdown is delivered before anything else; other exceptions one per suspension, in the order sent. With
        ``force`` a thread that is scheduled already raises it instead of getting its wake-up value; without, that is a
        ScheduleError. A thread that has not run gives NotStartedError, unless ``cancel_start``: then it is cancelled
        and never runs. DeadCoroutine when it has ended; ScheduleError for the running thread; TypeError when it is not
        an exception."""
        check_os_thread()
        if not (PyExceptionClass_Check(<PyObject *>the_exception)
                or PyExceptionInstance_Check(<PyObject *>the_exception)):
            raise TypeError(f"expected an exception class or instance to raise in the thread, not {the_exception!r}")
        if self.flags & DEAD:
            raise DeadCoroutine(self)
        if not self.flags & STARTED:
            if not cancel_start:
                raise NotStartedError(self)
            cancel(self)
            return
        if running == <PyObject *>self:
            raise ScheduleError(self)
        if self.flags & SCHEDULED and not force:
            raise ScheduleError(self)
        send_exception(self, the_exception)

    def shutdown(self):
        """Ask the thread to end: Shutdown is raised where it is suspended; one that has not run is cancelled. Does
        nothing to a dead thread. On the running thread Shutdown is raised at once."""
        check_os_thread()
        if self.flags & DEAD:
            return
        if running == <PyObject *>self:
            raise Shutdown
        shut_down(self)

    def interrupt(self, value=None):
        """Deprecated: raise ``Interrupted`` (or ``Interrupted(value)``) in the thread unless it is scheduled."""
        import warnings
        warnings.warn("coro.interrupt() is deprecated, use raise_exception()", DeprecationWarning, stacklevel=2)
        self.raise_exception(Interrupted if value is None else Interrupted(value), force=False)

    def resume_with_exc(self, exc_type, exc_value=None):
        """Deprecated: raise ``exc_type`` in the thread unless it is scheduled; a value that is no instance becomes its
        argument."""
        import warnings
        warnings.warn("coro.resume_with_exc() is deprecated, use raise_exception()", DeprecationWarning, stacklevel=2)
        if exc_value is None:
            exc = exc_type
        elif type(exc_value) is exc_type:
            exc = exc_value
        else:
            exc = exc_type(exc_value)
        self.raise_exception(exc, force=False)

    def join(self):
        """Wait until the thread has ended; returns None. Any number of threads may wait. AssertionError when a thread
        waits for itself; a thread that is never started never ends."""
        cdef coro me
        check_os_thread()
        if self.flags & DEAD:
            return
        me = running_thread()
        if me is self:
            raise AssertionError("a thread cannot wait for its own end: join() was called on the running thread")
        add_joiner(self, me)
        try:
            while not self.flags & DEAD:
                suspend(me, WAIT_JOIN, self)
        finally:
            remove_joiner(self, me)

    def set_max_selfish_acts(self, maximum):
        """How many socket operations in a row may succeed without waiting before the thread lets others run; returns
        the previous number. ValueError unless 1..32768."""
        cdef int before = self.selfish_most
        if not isinstance(maximum, int) or isinstance(maximum, bool):
            raise TypeError(f"expected an int from 1 to 32768, not {maximum!r}")
        if not 1 <= maximum <= 32768:
            raise ValueError(f"selfish acts must be between 1 and 32768, not {maximum}")
        self.selfish_most = maximum
        self.selfish_left = maximum
        return before

    def _yield(self):
        """The module's ``_yield()``, for the running thread only (ScheduleError otherwise)."""
        me = running_thread()
        if me is not self:
            raise ScheduleError(self)
        return suspend(me, WAIT_YIELD, None)


cdef object parked_frame(coro t):
    """The innermost Python frame of a thread that is suspended, or will never run again; None where there is none."""
    cdef PyObject *frame
    if not t.flags & STARTED:
        return None
    if t.stack.packed:
        unpack(t)
    frame = coro_interp_frame_object(PyThreadState_Get(), coro_slots_frame(&t.stack))
    if frame == NULL:
        return None
    result = <object>frame
    Py_DECREF(result)
    return result


KINDS = ("yield", "sleep", "read", "write", "event", "join", "object", "slice", "in_thread", "select")


cdef object thread_name(coro t):
    cdef object name = t.label
    if name is None:
        if t.function is None:
            return f"coro {t.number}"
        if PyFunction_Check(<PyObject *>t.function):
            name = <object>coro_function_name(<PyObject *>t.function)
        else:
            name = name_of(t.function)
        t.label = name
    return name


cdef object name_of(object function):
    """What something that can be called is called. In main without asking users' code, which ``__getattr__`` may be."""
    cdef PyObject *f = <PyObject *>function
    name = None
    try:
        if PyMethod_Check(f):
            f = PyMethod_GET_FUNCTION(f)
        try:
            name = PyObject_GenericGetAttr(<object>f, "__qualname__")
        except AttributeError:
            if running != NULL or loop_ts == NULL:
                name = getattr(function, "__qualname__", None)
    except Exception:
        pass    # whatever is wrong with it, the thread gets a name
    if type(name) is not str:
        name = PyType_GetQualName(Py_TYPE(function))
    return name


cdef const void *learning_key(object function) noexcept:
    cdef PyObject *f = <PyObject *>function
    if PyMethod_Check(f):
        f = PyMethod_GET_FUNCTION(f)
    if PyFunction_Check(f):
        return PyFunction_GET_CODE(f)
    return f


cdef coro make_thread(object function, tuple args, object kwargs, object name, bint daemon):
    global last_number, n_spawned
    cdef coro t
    cdef PyThreadState *ts = PyThreadState_Get()
    if not callable(function):
        raise TypeError(f"expected something to call, not {type(function).__name__}: {function!r}")
    if name is not None and not isinstance(name, str):
        raise TypeError(f"thread_name is a str, not {type(name).__name__}: {name!r}")
    t = coro.__new__(coro)
    last_number += 1
    t.number = last_number
    t.function = function
    t.args = args
    t.kwargs = kwargs if kwargs else None
    t.label = name
    if daemon:
        t.flags = DAEMON
    t.selfish_left = t.selfish_most = selfish_default
    if coro_context_of(ts) != NULL:
        context = <object>PyContext_CopyCurrent()
        Py_DECREF(context)
        t.context = context
    t.stack.key = learning_key(function)
    n_spawned += 1
    return t


cdef int register(coro t) except -1:
    """Make the registry own a reference; the collector need not look at the thread while it is reachable from there."""
    global n_counted
    if coro_registry_add(t.number, <PyObject *>t) < 0:
        raise MemoryError("no memory to register another thread")
    Py_INCREF(t)
    t.flags |= REGISTERED
    if not t.flags & DAEMON:
        n_counted += 1
    if PyObject_GC_IsTracked(<PyObject *>t):
        PyObject_GC_UnTrack(<PyObject *>t)
    return 0


cdef inline void unregister(coro t) noexcept:
    """The caller takes over the registry's reference."""
    global n_counted, n_helpers
    coro_registry_remove(t.number)
    if not t.flags & DAEMON:
        n_counted -= 1
    elif unlikely(t.flags & HELPER):
        n_helpers -= 1
    t.flags &= ~<uint32_t>(REGISTERED | HELPER)


cdef int start_thread(coro t) except -1:
    if ending != NOT_ENDING:
        raise LoopError("the event loop is ending: no thread can be started any more")
    if t.number == 0:
        raise TypeError("this object was not made by coro.spawn(function, ...) or coro.new(function, ...): "
                        "it has nothing to run")
    register(t)
    t.flags |= SCHEDULED
    list_append(&ready, &t.link)
    return 0


cdef int track(coro t) noexcept:
    if not PyObject_GC_IsTracked(<PyObject *>t):
        PyObject_GC_Track(<PyObject *>t)
    return 0


# ---------------------------------------------------------------------------------------------- who may do what

cdef inline int check_os_thread() except -1:
    if loop_ts != NULL and coro_os_thread() != loop_os_thread:
        raise WrongThreadError("the event loop runs in another OS thread; from here use coro.post(function, *args), "
                               "which runs the function in a thread of that loop")
    return 0


cdef PyObject *forker = NULL           # the thread that the interpreter forks in now, with hooks to follow
cdef int *forker_depth = NULL          # its no_switch_depth
cdef int child_unclean = 0             # in a forked child, until _after_fork_in_child() has been called


cdef coro refuse_switch(PyThreadState *ts):
    """Why the caller must not block now; returns the running thread when it may after all."""
    cdef coro me
    if loop_ts != NULL and ts != loop_ts:
        check_os_thread()
    if running == NULL:
        if loop_ts == NULL:
            raise YieldFromMain("a blocking operation needs a thread and a running loop; "
                                "use coro.run(function) or coro.spawn(function) and coro.event_loop()")
        raise YieldFromMain("a blocking operation was tried in the event loop itself (a signal handler or a callback "
                            "that it runs); spawn a thread for it with coro.spawn(function)")
    me = <coro>running
    if child_unclean:
        raise NoSwitchError("a hook of os.register_at_fork tried to block in the child before coro had left the "
                            "parent's threads behind; register it after importing coro")
    if me.no_switch_depth:
        raise NoSwitchError("a blocking operation was tried inside coro.no_switch(); move it out of the block")
    if coro_interp_known.collecting[0] and (collecting_in == 0 or collecting_in == PyThread_get_thread_ident()):
        raise NoSwitchError("a blocking operation was tried by a finaliser or callback that the cyclic garbage "
                            "collector runs; spawn a thread for it instead")
    return me


cdef PyObject *running_borrowed() except NULL:
    if likely(running != NULL and coro_os_thread() == loop_os_thread and not (<coro>running).no_switch_depth
              and not coro_interp_known.collecting[0]):
        return running
    refuse_switch(PyThreadState_Get())
    return running


cdef coro running_thread():
    return <coro>running_borrowed()


cdef object whoever():
    """Who calls: the running thread, or the stand-in for main. Raises only WrongThreadError."""
    check_os_thread()
    return <coro>running if running != NULL else MAIN


cdef inline coro current_thread_or_none():
    if running != NULL and coro_os_thread() == loop_os_thread:
        return <coro>running
    return None


def _note_collection(phase, info):
    """For gc.callbacks: remember which OS thread the collector runs in (another one's does not hinder a switch)."""
    global collecting_in
    collecting_in = PyThread_get_thread_ident() if phase == "start" else 0


# ---------------------------------------------------------------------------------------------- suspend and wake

cdef inline void enqueue(coro t) noexcept:
    if unlikely(t.flags & IN_SLICE):
        t.flags &= ~<uint32_t>IN_SLICE
        list_unlink(&t.link)
    t.flags |= SCHEDULED
    list_append(&ready, &t.link)


cdef bint wake(coro t, object value) noexcept:
    if unlikely(t.flags & (SCHEDULED | DEAD | REFUSED | STARTED) != STARTED or running == <PyObject *>t):
        return False
    t.wake_value = value
    enqueue(t)
    coro_stack_prefetch(&t.stack)
    return True


cdef bint wake_error(coro t, object exc) noexcept:
    if not wake(t, exc):
        return False
    t.flags |= WAKE_ERROR
    return True


cdef bint deliverable(coro t):
    cdef uint32_t a = t.attention
    cdef timebomb bomb
    if a & (ATTEND_FORCE | ATTEND_USER):
        return True
    if a & ATTEND_SHUTDOWN and t.shield_level == 0:
        return True
    if a & ATTEND_TIMEOUT:
        for bomb in (<Extra>t.extra).bombs:
            if bomb.level >= t.shield_level:
                return True
    return False


cdef int attend(coro me) except -1:
    """About to suspend with something noted."""
    if me.attention & ATTEND_FORCE:
        me.refusals += 1
        if me.refusals <= MOST_REFUSALS:
            raise Shutdown("the event loop has ended; this thread must end too")
        me.flags |= REFUSED
        return 0
    if deliverable(me):
        me.flags |= DELIVER
        enqueue(me)
    return 0


cdef object resumed(coro me):
    """Back on the CPU with DELIVER or WAKE_ERROR set: raise what is due."""
    cdef Extra extra
    cdef timebomb bomb
    cdef uint32_t flags = me.flags
    value = me.wake_value
    me.wake_value = None
    me.flags &= ~<uint32_t>(DELIVER | WAKE_ERROR)
    if flags & DELIVER:
        extra = <Extra>me.extra if me.extra is not None else None
        if me.attention & ATTEND_FORCE:
            raise Shutdown("the event loop has ended; this thread must end too")
        if me.attention & ATTEND_SHUTDOWN and me.shield_level == 0:
            exc = extra.shutdown
            extra.shutdown = None
            extra.exceptions = None
            me.attention &= ~<uint32_t>(ATTEND_SHUTDOWN | ATTEND_USER)
            raise fresh(exc)
        if me.attention & ATTEND_USER:
            exc = extra.exceptions.pop(0)
            if not extra.exceptions:
                me.attention &= ~<uint32_t>ATTEND_USER
            raise fresh(exc)
        if me.attention & ATTEND_TIMEOUT:
            for bomb in extra.bombs:
                if bomb.level >= me.shield_level:
                    forget_bomb(me, bomb)
                    raise Interrupted(bomb)
    if flags & WAKE_ERROR:
        raise value
    return value


cdef object fresh(object exc):
    """An instance that was raised elsewhere already carries that traceback and context; raise a copy of it."""
    if PyExceptionInstance_Check(<PyObject *>exc) and exc.__traceback__ is not None:
        import copy
        try:
            duplicate = copy.copy(exc)
        except Exception:
            return exc
        duplicate.__traceback__ = None
        duplicate.__context__ = None
        return duplicate
    return exc


cdef object suspend(coro me, int kind, object what):
    if me.attention:
        attend(me)
    me.kind = kind
    if what is not None:
        me.what = what
    coro_stack_park(&me.stack)
    if what is not None:
        me.what = None
    if me.flags & (DELIVER | WAKE_ERROR):
        return resumed(me)
    value = me.wake_value
    me.wake_value = None
    return value


cdef object suspend_outside(coro me, int kind, object what, bint os_thread):
    """suspend() until something comes from outside the loop: from the kernel or, with `os_thread`, from another OS
    thread. While somebody waits like this there is no deadlock. Nothing can be raised while the wait is counted."""
    global n_io, n_offloaded
    if me.attention:
        attend(me)
    me.kind = kind
    me.what = what
    if os_thread:
        n_offloaded += 1
        coro_stack_park(&me.stack)
        n_offloaded -= 1
    else:
        n_io += 1
        coro_stack_park(&me.stack)
        n_io -= 1
    me.what = None
    if me.flags & (DELIVER | WAKE_ERROR):
        return resumed(me)
    value = me.wake_value
    me.wake_value = None
    return value


cdef object suspend_fd(coro me, int kind, int fd):
    """The same for a descriptor."""
    if me.attention:
        attend(me)
    begin_io(me, kind, fd)
    coro_stack_park(&me.stack)
    if end_io(me):
        return resumed(me)


# A wait in three steps, for whoever wants little on the stack that a parked thread leaves behind: what stands before it
# and after it has returned when the thread is parked.

cdef void park(coro me) noexcept:
    """Suspend the running thread. begin_io() or begin_slice() has gone before; end_io() or end_slice() follows, which
    is told apart by `kind`."""
    coro_stack_park(&me.stack)


cdef void begin_io(coro me, int kind, int fd) noexcept:
    """The thread is about to wait for a descriptor; the caller has seen that nothing is to be attended to."""
    global n_io
    me.kind = kind
    me.ident = fd
    me.selfish_left = me.selfish_most       # whoever really waits lets the others run
    n_io += 1


cdef bint end_io(coro me) noexcept:
    """True: call deliver(me), which raises."""
    global n_io
    n_io -= 1
    if me.flags & (DELIVER | WAKE_ERROR):
        return True
    if me.wake_value is not None:
        me.wake_value = None
    return False


cdef int deliver(coro me) except -1:
    resumed(me)
    return 0


cdef int begin_slice(coro me) except -1:
    """The thread is about to let every other one run."""
    if me.attention:
        attend(me)
    if not me.flags & (SCHEDULED | REFUSED):
        me.flags |= IN_SLICE
        list_append(&slicers, &me.link)
    me.kind = WAIT_SLICE
    return 0


cdef int end_slice(coro me) except -1:
    if me.flags & (DELIVER | WAKE_ERROR):
        resumed(me)
    else:
        me.wake_value = None
    return 0


cdef int slice(coro me) except -1:
    begin_slice(me)
    coro_stack_park(&me.stack)
    return end_slice(me)


cdef int selfish(coro me) noexcept:
    """Count a socket operation that did not wait; 1 when it is time to let others run (the counter is refilled)."""
    me.selfish_left -= 1
    if me.selfish_left < 0:
        me.selfish_left = me.selfish_most
        return 1
    return 0


cdef bint others_run() noexcept:
    """Will another thread run before the kernel is asked for events again?"""
    return not (list_empty(&batch) and list_empty(&ready))


cdef bint is_foreign() noexcept:
    """Does a loop run, and in another OS thread than the caller's?"""
    return loop_ts != NULL and coro_os_thread() != loop_os_thread


cdef void count_io(int delta) noexcept:
    global n_io
    n_io += delta


cdef int schedule_thread(coro t, object value) except -1:
    if t.flags & DEAD:
        raise DeadCoroutine(t)
    if t.flags & SCHEDULED or running == <PyObject *>t:
        raise ScheduleError(t)
    if not t.flags & STARTED:
        start_thread(t)
    else:
        wake(t, value)
    return 0


# ---------------------------------------------------------------------------------------------- interruptions

cdef int urge(coro t) except -1:
    """Something deliverable was noted on a suspended thread: make it run, at the end of the queue."""
    if t.flags & SCHEDULED:
        list_unlink(&t.link)
        list_append(&ready, &t.link)
        t.flags |= DELIVER
    elif not t.flags & REFUSED:
        t.flags |= DELIVER
        enqueue(t)
    return 0


cdef int send_exception(coro t, object exc) except -1:
    cdef Extra extra = extra_of(t)
    dropped = None
    if isinstance(exc, Shutdown) or (isinstance(exc, type) and issubclass(exc, Shutdown)):
        dropped = (extra.shutdown, extra.exceptions)
        extra.shutdown = exc
        t.attention |= ATTEND_SHUTDOWN
        if t.shield_level:
            return 0            # it waits; users' exceptions are delivered inside the shield as ever
        extra.exceptions = None
        t.attention &= ~<uint32_t>ATTEND_USER
    else:
        if t.attention & ATTEND_SHUTDOWN and not t.shield_level:
            return 0
        if extra.exceptions is None:
            extra.exceptions = []
        extra.exceptions.append(exc)
        t.attention |= ATTEND_USER
    return urge(t)


cdef int shut_down(coro t) except -1:
    if t.flags & DEAD:
        return 0
    if not t.flags & STARTED:
        return cancel(t)
    return send_exception(t, Shutdown)


cdef tuple take_call(coro t):
    """What the thread was to call, for the caller to release: an attribute that is overwritten is released while it
    can still be seen, and a finaliser that looks would get an object that is going away."""
    call = (t.function, t.args, t.kwargs, t.context)
    t.function = t.args = t.kwargs = t.context = None
    return call


cdef inline bint die(coro t, int how) noexcept:
    """The one way out of life, for threads that have returned or raised (`how` is ENDED), were cancelled before they
    ran (CANCELLED), would not end (GIVEN_UP) or did not come along in a fork (LOST).

    In here is what cannot fail: out of every list, dead, joiners, registry. The caller does the rest, what may fail or
    run users' code last. True: the registry's reference is the caller's now."""
    cdef Extra extra
    cdef bint registered = (t.flags & REGISTERED) != 0
    if t.flags & (SCHEDULED | IN_SLICE):
        list_unlink(&t.link)
        t.flags &= ~<uint32_t>(SCHEDULED | IN_SLICE | DELIVER)
    if unlikely(t.timer.place != 0):
        coro_timers_remove(&timers, &t.timer)
    t.flags |= DEAD if how != LOST else DEAD | THREAD_LOST
    t.attention = 0
    if t.extra is not None and how != LOST:
        extra = <Extra>t.extra
        if extra.joiners is not None:
            joiners = extra.joiners
            extra.joiners = None
            for joiner in joiners:
                wake(<coro>joiner, None)
    if registered:
        unregister(t)
    return registered


cdef int cancel(coro t) except -1:
    """End a thread that has not run. What it holds may run finalisers when released, which main must not do."""
    cdef bint registered = die(t, CANCELLED)
    try:
        thread_name(t)
        call = take_call(t)
        if running == NULL and loop_ts != NULL:
            drop_later((call, t))
    finally:
        if registered:
            Py_DECREF(t)
    return 0


cdef int add_joiner(coro t, coro me) except -1:
    """Have `me` woken when the thread ends, until remove_joiner()."""
    cdef Extra extra = extra_of(t)
    if extra.joiners is None:
        extra.joiners = []
    extra.joiners.append(me)
    return 0


cdef int remove_joiner(coro t, coro me) except -1:
    """Undo one add_joiner(); harmless when the thread has ended."""
    cdef list joiners = (<Extra>t.extra).joiners if t.extra is not None else None
    if joiners is not None and me in joiners:
        joiners.remove(me)
    return 0


cdef list locals_of(coro t):
    """Where the ThreadLocals note that they have values for the thread."""
    cdef Extra extra = extra_of(t)
    if extra.locals is None:
        extra.locals = []
    return extra.locals


cdef int drop_later(object what) except -1:
    main_drops.append(what)
    return 0


def _empty_drops():
    """Body of the helper thread that releases what main must not: finalisers are user code."""
    while main_drops:
        main_drops.pop()


# ---------------------------------------------------------------------------------------------- timers

cdef class TimerTarget:
    """Something that happens in main at a certain tick; subclasses override fire(), which must not run user code."""

    def __cinit__(self):
        self.timer.owner = <void *>self

    def __dealloc__(self):
        coro_timers_remove(&timers, &self.timer)

    cdef int fire(self) except -1:
        return 0


cdef int timer_add(TimerTarget t, int64_t when_ticks) except -1:
    coro_timers_remove(&timers, &t.timer)
    if coro_timers_insert(&timers, &t.timer, when_ticks) < 0:
        raise MemoryError("no memory for another timer")
    return 0


cdef void timer_cancel(TimerTarget t) noexcept:
    coro_timers_remove(&timers, &t.timer)


@cython.final
cdef class timebomb(TimerTarget):
    """A time limit of one thread. Travels as ``Interrupted(timebomb)`` from where the thread was blocked to the
    ``with_timeout`` (or ``coro.timeout``) that owns it."""
    cdef coro target
    cdef int level          # the thread's shield level inside the scope
    cdef bint noted         # in the target's list of expired ones

    cdef int fire(self) except -1:
        cdef coro t = self.target
        cdef Extra extra
        if t is None or t.flags & DEAD:
            return 0
        try:
            extra = extra_of(t)
            if extra.bombs is None:
                extra.bombs = []
            extra.bombs.append(self)
        except MemoryError:
            coro_timers_insert(&timers, &self.timer, loop_now)      # where there was a timer there is room for one
            raise
        self.noted = True
        t.attention |= ATTEND_TIMEOUT
        if not t.flags & SCHEDULED and self.level >= t.shield_level:
            urge(t)
        return 0

    def __repr__(self):
        return f"<timebomb of {self.target!r}>"


cdef int forget_bomb(coro t, timebomb bomb) except -1:
    cdef Extra extra = <Extra>t.extra
    bomb.noted = False
    extra.bombs.remove(bomb)
    if not extra.bombs:
        t.attention &= ~<uint32_t>ATTEND_TIMEOUT
    return 0


cdef int64_t deadline_after(object delta) except -1:
    """`delta` seconds from now in ticks; TypeError and ValueError say what is wrong with it."""
    cdef double seconds
    if not isinstance(delta, (int, float)):
        if not hasattr(type(delta), "__float__"):
            raise TypeError(f"expected a number of seconds, not {type(delta).__name__}: {delta!r}")
        seconds = float(delta)
    else:
        try:
            seconds = delta
        except OverflowError:
            seconds = 1e18 if delta > 0 else 0.0
    if seconds != seconds:
        raise ValueError("expected a number of seconds, not NaN")
    if seconds <= 0:
        return coro_now(ticker)
    return coro_now(ticker) + coro_from_seconds(ticker, seconds)


cdef bint is_past(int64_t when) noexcept:
    return when <= coro_now(ticker)


cdef int set_alarm(coro me, int64_t when) except -1:
    """Have the thread woken at that tick, until cancel_alarm(). For one wait at a time: sleeping uses the same
    timer."""
    if coro_timers_insert(&timers, &me.timer, when) < 0:
        raise MemoryError("no memory for another timer")
    return 0


cdef void cancel_alarm(coro me) noexcept:
    coro_timers_remove(&timers, &me.timer)


cdef int arm(timebomb bomb, coro me, object delta) except -1:
    cdef int64_t when = deadline_after(delta)
    bomb.target = me
    bomb.level = me.shield_level
    if coro_timers_insert(&timers, &bomb.timer, when) < 0:
        raise MemoryError("no memory for another timer")
    return 0


cdef int disarm(timebomb bomb) except -1:
    coro_timers_remove(&timers, &bomb.timer)
    if bomb.noted:
        forget_bomb(bomb.target, bomb)
    bomb.target = None
    return 0


cdef object limit_exceeded(object exc):
    """The exception to raise for an expired limit; what was noted on the interruption (bytes_sent) stays known."""
    raised = TimeoutError()
    raised.__dict__.update(exc.__dict__)
    return raised


cdef inline bint caused_by(object exc, timebomb bomb):
    return isinstance(exc, Interrupted) and len(exc.args) == 1 and exc.args[0] is bomb


cdef coro scope_owner():
    """The running thread, for operations that open a scope but do not block themselves."""
    if running != NULL and coro_os_thread() == loop_os_thread:
        return <coro>running
    return refuse_switch(PyThreadState_Get())


def with_timeout(delta, function, /, *args, **kwargs):
    """Call ``function(*args, **kwargs)`` with a time limit of ``delta`` seconds (int or float; negative counts as 0).

    Returns what it returns. When the time is over before, the call that the thread is blocked in is interrupted and
    ``coro.TimeoutError`` is raised here; an inner ``with_timeout`` does not turn an outer one's expiry into its own.
    A function that never blocks is never interrupted. TypeError or ValueError when ``delta`` is not a number."""
    cdef timebomb bomb
    cdef coro me
    if loop_ts == NULL:
        return with_timeout_elsewhere(delta, function, *args, **kwargs)
    me = scope_owner()
    bomb = timebomb.__new__(timebomb)
    arm(bomb, me, delta)
    try:
        return function(*args, **kwargs)
    except Interrupted as exc:
        if caused_by(exc, bomb):
            raise limit_exceeded(exc) from None
        raise
    finally:
        disarm(bomb)


@cython.final
cdef class timeout:
    """``with coro.timeout(seconds):`` limits a block like ``with_timeout`` limits a call.

    ``expired`` tells afterwards whether the limit struck. The limit belongs to the thread that enters the block, so do
    not yield inside one in a generator: while the generator is suspended the limit goes on for whoever runs it, and
    strikes there as a bare ``Interrupted``. Closing the generator, in whatever thread, ends the limit."""
    cdef timebomb bomb
    cdef object seconds
    cdef readonly bint expired

    def __init__(self, seconds, /):
        deadline_after(seconds)
        self.seconds = seconds

    def __enter__(self):
        cdef coro me = scope_owner()
        if self.bomb is not None:
            raise RuntimeError("this coro.timeout is in use already; make a new one for every block")
        self.expired = False
        self.bomb = timebomb.__new__(timebomb)
        arm(self.bomb, me, self.seconds)
        return self

    def __exit__(self, kind, exc, traceback):
        cdef timebomb bomb = self.bomb
        self.bomb = None
        if bomb is None:
            return False
        disarm(bomb)
        if exc is not None and caused_by(exc, bomb):
            self.expired = True
            raise limit_exceeded(exc) from None
        return False


@cython.final
cdef class shield:
    """``with coro.shield(seconds):`` protects a clean-up section: Shutdown and the timeouts of scopes outside wait
    until it is left; they are delivered at the next suspension then. The section has its own limit of ``seconds``,
    after which the blocked call raises ``coro.TimeoutError``."""
    cdef timebomb bomb
    cdef object seconds
    cdef coro thread

    def __init__(self, seconds, /):
        deadline_after(seconds)
        self.seconds = seconds

    def __enter__(self):
        cdef coro me = scope_owner()
        if self.bomb is not None:
            raise RuntimeError("this coro.shield is in use already; make a new one for every block")
        self.thread = me
        self.bomb = timebomb.__new__(timebomb)
        me.shield_level += 1
        try:
            arm(self.bomb, me, self.seconds)
        except BaseException:
            me.shield_level -= 1
            self.bomb = None
            raise
        return self

    def __exit__(self, kind, exc, traceback):
        cdef timebomb bomb = self.bomb
        self.bomb = None
        if bomb is None:
            return False
        self.thread.shield_level -= 1
        self.thread = None
        disarm(bomb)
        if exc is not None and caused_by(exc, bomb):
            raise limit_exceeded(exc) from None
        return False


@cython.final
cdef class no_switch:
    """``with coro.no_switch():`` guards code that must not be parked: a blocking call inside raises NoSwitchError.

    For sections that hold an OS-level lock, or C code that keeps pointers into its stack where others follow them."""
    cdef coro thread

    def __enter__(self):
        cdef coro me = current_thread_or_none()
        if self.thread is not None:
            raise RuntimeError("this coro.no_switch is in use already; make a new one for every block")
        if me is not None:
            me.no_switch_depth += 1
            self.thread = me
        return self

    def __exit__(self, kind, exc, traceback):
        if self.thread is not None:
            self.thread.no_switch_depth -= 1
            self.thread = None
        return False


cdef int sleep_until_tick(coro me, int64_t when) except -1:
    set_alarm(me, when)
    if me.attention:
        try:
            attend(me)
        except BaseException:
            coro_timers_remove(&timers, &me.timer)
            raise
    me.kind = WAIT_SLEEP
    coro_stack_park(&me.stack)
    coro_timers_remove(&timers, &me.timer)
    if me.flags & (DELIVER | WAKE_ERROR):
        resumed(me)
    else:
        me.wake_value = None
    return 0


def sleep_relative(delta, /):
    """Sleep for ``delta`` seconds (int or float); 0 or less lets everybody else run once, like yield_slice().

    Returns None, early if somebody schedules the thread. TypeError or ValueError when it is not a number."""
    cdef coro me
    cdef int64_t when
    if loop_ts == NULL:
        return sleep_elsewhere(delta)
    me = running_thread()
    when = deadline_after(delta)
    if when <= coro_now(ticker):
        slice(me)
    else:
        sleep_until_tick(me, when)


def sleep_absolute(when, /):
    """Sleep until the tick ``when`` (see coro.get_now); a tick gone by lets everybody else run once. TypeError when it
    is not an int."""
    cdef coro me = running_thread()
    cdef int64_t tick
    if not isinstance(when, int):
        raise TypeError(f"expected an absolute time in ticks (int, see coro.get_now()), not {when!r}")
    tick = min(max(when, 0), 2 * <object>CORO_TICKS_FOREVER)
    if tick <= coro_now(ticker):
        slice(me)
    else:
        sleep_until_tick(me, tick)


# ---------------------------------------------------------------------------------------------- public functions

def new(function, /, *args, thread_name=None, daemon=False, **kwargs):
    """Make a thread that will call ``function(*args, **kwargs)``, without starting it.

    ``thread_name`` is its name (default: the function's qualified name). A loop does not wait for a ``daemon`` thread.
    TypeError when the function cannot be called; WrongThreadError outside the loop's OS thread."""
    check_os_thread()
    return make_thread(function, args, kwargs, thread_name, daemon)


def spawn(function, /, *args, thread_name=None, daemon=False, **kwargs):
    """Make a thread that will call ``function(*args, **kwargs)`` and schedule it; the caller keeps running.

    Parameters and errors as for ``coro.new``; LoopError while the loop is ending."""
    cdef coro t
    check_os_thread()
    t = make_thread(function, args, kwargs, thread_name, daemon)
    start_thread(t)
    return t


def _spawn_main(function, args, kwargs):
    """For run(): like spawn(), but every keyword is the function's."""
    cdef coro t
    check_os_thread()
    t = make_thread(function, args, kwargs, None, False)
    start_thread(t)
    return t


cdef coro spawn_internal(object fun, tuple args, bint daemon):
    cdef coro t = make_thread(fun, args, None, None, daemon)
    start_thread(t)
    return t


def current():
    """The running thread; in main, and outside any loop, a stand-in with id -1 and name 'main/scheduler'."""
    if running != NULL and coro_os_thread() == loop_os_thread:
        return <coro>running
    return MAIN


def schedule(thread, value=None):
    """Make a thread runnable, see the method of that name. TypeError when it is not a thread."""
    check_os_thread()
    if type(thread) is not coro:
        raise TypeError(f"expected a thread (see coro.spawn), not {type(thread).__name__}: {thread!r}")
    schedule_thread(<coro>thread, value)


def _yield():
    """Suspend the running thread until somebody schedules it; returns the value given there, or raises the exception
    sent to it. YieldFromMain outside a thread."""
    # suspend(), but without a frame of its own: every parked thread would keep a copy of it.
    cdef coro me = running_thread()
    if me.attention:
        attend(me)
    me.kind = WAIT_YIELD
    coro_stack_park(&me.stack)
    if me.flags & (DELIVER | WAKE_ERROR):
        return resumed(me)
    value = me.wake_value
    me.wake_value = None
    return value


def yield_slice():
    """Let every other runnable thread run, and look at timers and I/O once, before going on. Returns None."""
    slice(running_thread())


class MainStub:
    """Stands for the code that runs outside any thread."""

    id = -1
    name = "main/scheduler"
    dead = False
    started = True
    scheduled = False
    daemon = False

    def get_name(self):
        return self.name

    def __repr__(self):
        return "<coro main/scheduler>"


MAIN = MainStub()


def set_latency_warning(factor):
    """Warn of threads that hold the CPU for more than ``factor`` times 0.2 seconds; 0 never warns. Returns the factor
    set before. TypeError unless int, ValueError outside 0..300."""
    global latency_factor, latency_limit
    cdef int before = latency_factor
    if not isinstance(factor, int) or isinstance(factor, bool):
        raise TypeError(f"expected an int from 0 to 300, not {factor!r}")
    if not 0 <= factor <= 300:
        raise ValueError(f"the latency factor must be between 0 and 300, not {factor}")
    latency_factor = factor
    latency_limit = coro_from_seconds(ticker, 0.2 * factor) if factor else CORO_TICKS_FOREVER
    return before


def set_selfishness(number):
    """How many socket operations in a row threads made from now on may do without waiting before others run. TypeError
    unless int, ValueError outside 1..32768."""
    global selfish_default
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"expected an int from 1 to 32768, not {number!r}")
    if not 1 <= number <= 32768:
        raise ValueError(f"selfish acts must be between 1 and 32768, not {number}")
    selfish_default = number


def set_stack_slots(number, size=None):
    """Use ``number`` stack slots of ``size`` bytes each (default: as before; 4 MiB, 1 MiB on 32-bit machines).

    One slot per thread that is busy at the same time avoids copying; more threads share slots. Address space is taken
    for all of it, memory only where stacks reach. TypeError unless ints; StackSlotError after the first thread ran,
    or when that many slots of that size cannot be had."""
    global slots_wanted, slot_size_wanted
    if size is None:
        size = slot_size_wanted
    for value, what in ((number, "number of slots"), (size, "size of a slot in bytes")):
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"expected an int for the {what}, not {value!r}")
    if any_ran:
        raise StackSlotError("stack slots are laid out before the first thread runs; call set_stack_slots() earlier")
    if not 1 <= number <= 65536:
        raise StackSlotError(f"expected 1 to 65536 stack slots, not {number}")
    if not CORO_SMALLEST_STACK <= size <= (1 << 30):
        raise StackSlotError(f"a stack slot needs at least {CORO_SMALLEST_STACK} bytes and at most {1 << 30}, "
                             f"not {size}")
    map_slots(number, size)
    slots_wanted = number
    slot_size_wanted = size


cdef int map_slots(int number, size_t size) except -1:
    global slots_ready
    cdef int failed = coro_slots_map(number, size)
    if failed:
        import os
        raise StackSlotError(f"the system has no address space for {number} stack slots of {size} bytes: "
                             f"{os.strerror(failed)}; ask for fewer or smaller ones")
    coro_interp_setup(size)
    slots_ready = True
    return 0


def get_stack_slots():
    """Number and size in bytes of the stack slots in use (or to be used)."""
    return slots_wanted, slot_size_wanted


def _slot_owners():
    """For tests: how many threads are bound to each slot now."""
    return [coro_slots[i].threads for i in range(coro_slot_count)]


def get_live_coros():
    """Number of thread objects in memory, those not started and dead ones included."""
    return n_objects


def get_thread_by_id(thread_id):
    """The living thread with that id. KeyError when there is none, TypeError unless int."""
    cdef PyObject *found
    if not isinstance(thread_id, int):
        raise TypeError(f"a thread's id is an int, not {thread_id!r}")
    check_os_thread()
    found = coro_registry_find(thread_id) if 0 < thread_id < (1 << 63) else NULL
    if found == NULL or (<coro>found).flags & FORGOTTEN:
        raise KeyError(thread_id)
    return <object>found


def _all_threads():
    """A list of the registered threads in order of their ids."""
    cdef size_t i
    check_os_thread()
    found = [<object>coro_registry[i].thread for i in range(coro_registry_room) if coro_registry[i].id]
    found.sort(key=lambda t: t.id)
    return found


def _thread_ids():
    """The ids of those that get_thread_by_id() finds."""
    return [t.id for t in _all_threads() if not (<coro>t).flags & FORGOTTEN]


def _thread_count():
    return coro_registry_count - n_forgotten


# ---------------------------------------------------------------------------------------------- compression

cdef int load_packer() except -1:
    global packer, unpacker
    if packer is None:
        from coro._runtime import compression
        packer, unpacker = compression.pack, compression.unpack
    return 0


cdef int pack(coro t) except -1:
    """Compress the copy of an evacuated thread; a copy that does not shrink stays as it is."""
    cdef size_t head = <size_t>t.stack.links * 2 * sizeof(void *)
    cdef bytes packed
    cdef char *copy
    cdef Py_ssize_t size
    if t.stack.packed or t.stack.size < SMALLEST_COMPRESSED:
        return 0
    packed = packer((<char *>t.stack.copy)[:head + t.stack.size])
    size = len(packed)
    if <size_t>size >= head + t.stack.size:
        return 0
    copy = <char *>PyMem_RawMalloc(size)
    if copy == NULL:
        return 0
    memcpy(copy, <char *>packed, size)
    PyMem_RawFree(t.stack.copy)
    t.stack.copy = copy
    t.stack.capacity = <uint32_t>size
    t.stack.packed = <uint32_t>size
    return 0


cdef int unpack(coro t) except -1:
    """Expand it again; -1 with MemoryError set when there is no memory."""
    cdef size_t total = <size_t>t.stack.links * 2 * sizeof(void *) + t.stack.size
    cdef bytes plain = unpacker((<char *>t.stack.copy)[:t.stack.packed], total)
    cdef char *copy
    if <size_t>len(plain) != total:
        raise SystemError(f"a compressed stack expands to {len(plain)} bytes instead of {total}")
    copy = <char *>PyMem_RawMalloc(total)
    if copy == NULL:
        raise MemoryError("no memory to expand a compressed stack")
    memcpy(copy, <char *>plain, total)
    PyMem_RawFree(t.stack.copy)
    t.stack.copy = copy
    t.stack.capacity = <uint32_t>total
    t.stack.packed = 0
    return 0


def compress(thread):
    """Compress the saved stack of a suspended thread now; returns its size before and after in bytes.

    The stack is copied out of its slot first if need be. TypeError when it is not a thread, ScheduleError when it is
    the running one or has not run, DeadCoroutine when it has ended."""
    cdef coro t
    check_os_thread()
    if type(thread) is not coro:
        raise TypeError(f"expected a thread (see coro.spawn), not {type(thread).__name__}: {thread!r}")
    t = <coro>thread
    if t.flags & DEAD:
        raise DeadCoroutine(t)
    if not t.flags & STARTED or running == <PyObject *>t:
        raise ScheduleError(t)
    load_packer()
    if t.stack.slot.owner == <void *>&t.stack and coro_slots_evacuate(t.stack.slot) < 0:
        raise MemoryError("no memory to copy the stack of the thread")
    before = t.stack.packed if t.stack.packed else t.stack.size
    pack(t)
    return before, (t.stack.packed if t.stack.packed else t.stack.size)


# ---------------------------------------------------------------------------------------------- life of a thread

cdef PyObject *main_thread = NULL      # of run(): its exception is run's affair, not the notifier's
cdef bint main_told = False            # unless the notifier was told of it already
cdef object locals_ender = None        # (thread number, list of locals_of()) -> None; of the ThreadLocal module


cdef void begin_body(PyObject *thread) noexcept:
    """First thing on a new thread's stack."""
    if coro_main_is_traced():
        try:
            coro_inherit_tracing()
        except BaseException:
            notify()


cdef bint untold(exc) noexcept:
    """Will run() not raise the error of its main thread, because the loop ends for another reason?"""
    return (ending != NOT_ENDING or exit_wanted) and not isinstance(exc, (SystemExit, KeyboardInterrupt))


def _main_was_told():
    """Has the notifier been told of the error that ended run()'s main thread?"""
    return main_told


def _set_locals_ender(function):
    """For the ThreadLocal module: what clears the values of a thread that ends."""
    global locals_ender
    locals_ender = function


cdef int end_locals(coro me) noexcept:
    """Clear the thread's ThreadLocal values. Their finalisers may set some again, but are not followed for ever."""
    cdef Extra extra = <Extra>me.extra
    cdef int rounds = 0
    while extra.locals is not None and rounds < LOCALS_ROUNDS:
        found = extra.locals
        extra.locals = None
        rounds += 1
        try:
            locals_ender(me.number, found)
        except BaseException:
            notify()
    extra.locals = None
    return 0


cdef int note_outcome(coro me, PyObject *result) noexcept:
    """Keep what the function returned or, for NULL, raised, and tell of an error; keep the thread's name."""
    global main_told
    cdef PyObject *thread = <PyObject *>me
    try:
        if result != NULL:
            me.outcome = <object>result
            Py_DECREF(<object>result)
        else:
            # Not by try/except: that would put a line of this file into the traceback.
            result = coro_take_exception()
            me.outcome = <object>result
            Py_DECREF(<object>result)
            me.flags |= FAILED
            if not isinstance(me.outcome, Shutdown) and (thread != main_thread or untold(me.outcome)):
                if thread == main_thread:
                    main_told = True
                PyErr_SetHandledException(result)
                notify()
                PyErr_SetHandledException(NULL)
        thread_name(me)
    except BaseException:
        # A function object with an odd name misbehaved; the thread dies all the same.
        notify()
    return 0


cdef int end_body(PyObject *thread, PyObject *result) noexcept:
    """The function has returned `result`, or raised (NULL): everything a thread does after that, on its own stack."""
    cdef coro me = <coro>thread
    if result != NULL and PyFunction_Check(<PyObject *>me.function):
        me.outcome = <object>result         # the same as note_outcome() does, where nothing can fail
        Py_DECREF(<object>result)
        if me.label is None:
            me.label = <object>coro_function_name(<PyObject *>me.function)
    else:
        note_outcome(me, result)
    # Whatever runs user code when it is released goes now: a finaliser may still block here, main must not run it, and
    # a dead thread cannot.
    me.attention = 0
    released = take_call(me)
    released = None
    if me.extra is not None and (<Extra>me.extra).locals is not None:
        end_locals(me)
    coro_interp_clear(loop_ts)
    if (me.outcome is not None or me.extra is not None) and Py_REFCNT(thread) <= 3 and not has_weakrefs(thread):
        forget_outcome(me)
    die(me, ENDED)
    if me.outcome is not None and PyObject_IS_GC(<PyObject *>me.outcome):
        track(me)
    return 0


cdef int forget_outcome(coro me) noexcept:
    """With three references (the registry's, main's, its own) nobody will ask for the outcome any more, so it goes
    while a finaliser may block. Meanwhile nobody can come by the thread who might ask after all."""
    global n_forgotten
    me.flags |= FORGOTTEN
    n_forgotten += 1
    outcome, extra = me.outcome, me.extra
    me.outcome = me.extra = None
    outcome = extra = None
    coro_interp_clear(loop_ts)      # a finaliser may have set context variables
    n_forgotten -= 1
    return 0


cdef void thread_entry(void *thread) noexcept:
    """The base of a thread's stack. Deals in bare pointers and calls the rest out of line, because its frame is part of
    what is copied for every parked thread."""
    coro_call_thread(<PyObject *>thread, <PyObject *>(<coro><PyObject *>thread).function,
                     <PyObject *>(<coro><PyObject *>thread).args, <PyObject *>(<coro><PyObject *>thread).kwargs,
                     &(<coro><PyObject *>thread).stack, begin_body, end_body)


cdef int notify() noexcept:
    """Call the exception notifier inside an except block; a notifier that fails is replaced by the default one."""
    try:
        if notifier is not None:
            try:
                notifier()
                return 0
            except Shutdown:
                raise
            except BaseException:
                pass
        if default_notifier is not None:
            default_notifier()
    except BaseException:
        pass
    return 0


def set_exception_notifier(function):
    """Have ``function()`` called, in the thread that failed and while ``sys.exc_info()`` tells the error, for every
    exception that leaves a thread (except Shutdown). None restores the default, which writes a line to stderr. Returns
    the notifier set before, None for the default. TypeError when it cannot be called."""
    global notifier
    check_os_thread()
    if function is not None and not callable(function):
        raise TypeError(f"expected something to call, or None for the default notifier, not {function!r}")
    before = notifier
    notifier = function
    return before


cdef bint first_run(coro t, PyThreadState *ts) except -1:
    """Give the thread a data stack and a slot. False when there is no memory for either."""
    cdef PyObject **top
    cdef PyObject **limit
    cdef PyObject *context = NULL
    cdef void *root = coro_datastack_root(t.stack.key, &top, &limit)
    if root == NULL:
        return False
    t.stack.slot = coro_slots_choose()
    make_way(t.stack.slot, ts)
    if coro_stack_begin(&t.stack, thread_entry, <void *>t) < 0:
        coro_datastack_release(root, root)
        return False
    if t.context is not None:
        context = <PyObject *>t.context
        Py_INCREF(t.context)
        t.context = None
    t.stack.root = root
    coro_interp_init(&t.stack.interp, ts, context, root, top, limit)
    t.flags |= STARTED
    return True


cdef int bury(coro t) except -1:
    """Main's part of a death: the slot, the data stack, the registry's reference."""
    coro_slots_leave(&t.stack, 0)
    coro_datastack_release(t.stack.root, coro_interp_chunk(&t.stack.interp))
    t.stack.root = NULL
    if (has_weakrefs(<PyObject *>t)
            or (t.outcome is not None or t.extra is not None) and Py_REFCNT(<PyObject *>t) <= 2):
        drop_later(t)
    Py_DECREF(t)
    return 0


cdef inline int make_way(coro_slot *slot, PyThreadState *ts) except -1:
    """An owner that wants its copy compressed is evacuated here, before somebody else takes the slot."""
    cdef coro_stack *owner = <coro_stack *>slot.owner
    if unlikely(owner != NULL and owner.flags & CORO_STACK_COMPRESS):
        pack_owner(slot, ts)
    return 0


cdef int pack_owner(coro_slot *slot, PyThreadState *ts) except -1:
    cdef coro_stack *owner = <coro_stack *>slot.owner
    coro_enter_main(ts)
    if coro_slots_evacuate(slot) == 0:
        try:
            pack(<coro>thread_of(owner))
        except MemoryError:
            pass  # it stays as it is
    return 0


cdef int run_slice(coro t, PyThreadState *ts) except -1:
    """Run one thread until it parks. Its SCHEDULED flag is cleared already."""
    global running, slice_start, n_switches
    cdef int64_t now
    cdef coro_stack *owner
    if unlikely(not t.flags & STARTED):
        coro_enter_main(ts)
        if not first_run(t, ts):
            postpone(t)
            return 0
    owner = <coro_stack *>t.stack.slot.owner
    if owner != &t.stack:
        if unlikely(t.stack.packed) and not unpacked(t, ts):
            return 0
        make_way(t.stack.slot, ts)
    running = <PyObject *>t
    if unlikely(profiler != NULL):
        profiler(PROFILE_SLICE_BEGINS, running, slice_start)
    if unlikely(coro_stack_run(ts, &t.stack) < 0):
        running = NULL
        if profiler != NULL:
            profiler(PROFILE_SLICE_ENDS, <PyObject *>t, 0)
        postpone(t)
        return 0
    running = NULL
    n_switches += 1
    if likely(profiler == NULL):
        now = coro_now(ticker)
    else:
        now = profiler(PROFILE_SLICE_ENDS, <PyObject *>t, 0)
    if unlikely(now - slice_start > latency_limit):
        coro_enter_main(ts)
        report_latency(t, now - slice_start)
        now = coro_now(ticker)
    slice_start = now
    if unlikely(t.flags & DEAD):
        coro_enter_main(ts)
        bury(t)
    return 0


cdef bint unpacked(coro t, PyThreadState *ts) except -1:
    """Uncompress what the thread has on its stack. False: no memory for it now, it is postponed."""
    coro_enter_main(ts)
    try:
        unpack(t)
    except MemoryError:
        postpone(t)
        return False
    return True


cdef inline PyObject *thread_of(coro_stack *stack) noexcept:
    """The thread object that a stack is part of."""
    return <PyObject *>(<char *>stack - (<char *>&(<coro><PyObject *>0).stack - <char *>0))


cdef int postpone(coro t) noexcept:
    """No memory to run it now. Not before the next pass of the loop: what gives memory back may be due by a timer."""
    t.flags |= SCHEDULED
    list_append(&postponed, &t.link)
    return 0


cdef int report_latency(coro t, int64_t ticks) noexcept:
    try:
        if latency_reporter is not None:
            latency_reporter(t, coro_to_seconds(ticker, ticks))
    except BaseException:
        pass
    return 0


# ---------------------------------------------------------------------------------------------- the loop

cdef class Poller:
    """What the loop needs of a kernel's event interface; see the epoll and kqueue modules for implementations."""

    cdef int poll(self, int64_t timeout_ns) except -1:
        raise NotImplementedError

    cdef int interrupt(self) noexcept nogil:
        return 0

    cdef int shut(self) except -1:
        return 0

    cdef int after_fork(self) noexcept:
        return 0

    cdef int handlers_registered(self):
        return 0

    cdef int drop_handlers(self) except -1:
        return 0

    cdef object statistics_dict(self):
        return {}


cdef Poller poller():
    global the_poller
    if the_poller is None:
        if poller_factory is None:
            raise LoopError("no poller is installed; import coro, which chooses the one of this system")
        the_poller = poller_factory()
    return the_poller


def set_poller_factory(factory):
    """Have ``factory()`` make the poller of the next loop."""
    global poller_factory
    poller_factory = factory


cdef int fire_timers(int64_t now) except -1:
    global n_timers_fired
    cdef coro_timer *timer
    cdef PyObject *owner
    while True:
        timer = coro_timers_pop_due(&timers, now)
        if timer == NULL:
            return 0
        n_timers_fired += 1
        owner = <PyObject *>timer.owner
        if type(<object>owner) is coro:
            wake(<coro>owner, None)
        else:
            (<TimerTarget>owner).fire()


cdef int release_slicers() except -1:
    cdef coro_link *link
    cdef coro t
    while not list_empty(&slicers):
        link = slicers.next
        enqueue(<coro>link.thread)
    return 0


cdef int take_posts() except -1:
    """Do what was posted. A user's call becomes a thread before it leaves the line, so that none is lost to a lack of
    memory; while the loop ends there is none."""
    global n_posts
    cdef coro t
    while n_posts:
        kind, function, args, context = posts[0]
        if kind == 0:
            posts.popleft()
            n_posts -= 1
            function(*args)
        else:
            t = make_thread(function, args, None, None, False)
            t.context = context
            start_thread(t)
            posts.popleft()
            n_posts -= 1
    return 0


cdef int take_last_posts() except -1:
    """The loop has ended, and no more is taken: do what we posted ourselves. What users had posted to a loop that
    failed is released when main may."""
    global posts_state, n_posts
    posts_state = 2
    n_posts = 0
    while posts:
        kind, function, args, context = posts.popleft()
        if kind == 0:
            try:
                function(*args)
            except Exception:
                notify()
        else:
            drop_later((function, args, context))
    return 0


cdef int drain(PyThreadState *ts) except -1:
    """Run what is runnable; 1 when the time was up first, 0 when nothing is left. `slice_start` is now."""
    global n_bounded
    cdef int64_t until = slice_start + drain_budget
    cdef int count = 0
    cdef coro_link *link
    cdef coro t
    if unlikely(order_state):
        until = 2 * CORO_TICKS_FOREVER
    while True:
        if list_empty(&batch):
            if list_empty(&ready):
                coro_enter_main(ts)
                return 0
            if unlikely(slice_start >= until):
                break
            list_splice(&batch, &ready)
            if unlikely(order_state):
                mix_batch()
        link = batch.next
        list_unlink(link)
        t = <coro>link.thread
        t.flags &= ~<uint32_t>SCHEDULED
        if not list_empty(&batch):
            coro_stack_prefetch(&(<coro>batch.next.thread).stack)
        run_slice(t, ts)
        count += 1
        if unlikely(count >= SWITCHES_BETWEEN_LOOKS):
            count = 0
            if slice_start >= until or order_state or idle_hook is not None:
                break   # a virtual clock may stand still, and a random order must not depend on the time at all
    coro_enter_main(ts)
    n_bounded += 1
    return not (list_empty(&batch) and list_empty(&ready))


cdef inline bint anything_to_run() noexcept:
    return (not (list_empty(&batch) and list_empty(&ready) and list_empty(&slicers) and list_empty(&postponed))
            or n_posts > 0)


cdef int begin_ending(PyThreadState *ts) except -1:
    """Send Shutdown to everybody; handlers are dropped. Calls that were posted become threads before: whoever posted
    them was told that they run."""
    global ending, exit_deadline
    cdef coro t
    take_posts()
    threads = _all_threads()
    ending = GRACE
    exit_deadline = coro_now(ticker) + coro_from_seconds(ticker, exit_grace)
    if the_poller is not None:
        the_poller.drop_handlers()
    for t in threads:
        if t.flags & STARTED:
            shut_down(t)
        else:
            # Runnable, but the drain's time was up before its turn: it still runs, as far as its first suspension.
            extra_of(t).shutdown = Shutdown
            t.attention |= ATTEND_SHUTDOWN
    return 0


cdef int force_ending() except -1:
    """The grace period is over."""
    global ending, forced_switches
    cdef coro t
    threads = _all_threads()
    ending = FORCED
    forced_switches = n_switches
    for t in threads:
        t.attention |= ATTEND_FORCE
        if not t.flags & STARTED:
            cancel(t)
        else:
            urge(t)
    return 0


cdef bint hopeless() noexcept:
    """Is nobody left to be forced, or nobody who could run with the memory there is?"""
    global forced_switches
    if list_empty(&postponed) or n_switches == forced_switches:
        return True
    forced_switches = n_switches    # somebody ran since, and may have given memory back
    return False


cdef int give_up() except -1:
    """Threads that would not end are marked dead where they are; their frames are never unwound."""
    cdef coro t
    for t in _all_threads():
        die(t, GIVEN_UP)
        # The registry's reference is given up, too, but the frames on its stack hold another that nobody releases.
        try:
            thread_name(t)
            refused.append((t, parked_frame(t)))
        except Exception:
            notify()
        if not t.stack.packed:
            coro_slots_leave(&t.stack, 1)
    return 0


cdef bint others_may_post():
    """Is an OS thread alive that is neither the loop's nor one of our own idle workers?"""
    cdef Py_ssize_t count = 0
    cdef PyThreadState *ts = PyInterpreterState_ThreadHead(PyInterpreterState_Get())
    while ts != NULL:
        count += 1
        ts = PyThreadState_Next(ts)
    return count > 1 + n_own_os_threads


cdef bint deadlocked() except -1:
    """Nothing is left that could wake a counted thread (nothing is runnable; the caller has looked). A thread that
    waits for a descriptor may wake another when something comes, a daemon as well; only a helper of ours does not."""
    return (timers.count == 0 and n_offloaded == 0 and n_io <= n_helpers and n_io == helpers_awaiting()
            and (the_poller is None or the_poller.handlers_registered() == 0))


cdef Py_ssize_t helpers_awaiting() noexcept:
    """How many helpers wait for the kernel."""
    cdef Py_ssize_t count = 0
    cdef size_t i
    cdef coro t
    if n_helpers:
        for i in range(coro_registry_room):
            if coro_registry[i].id:
                t = <coro>coro_registry[i].thread
                count += (t.flags & HELPER) != 0 and t.kind in (WAIT_READ, WAIT_WRITE, WAIT_EVENT)
    return count


def _set_helper(bint yes):
    """Say of the running thread whether it is a helper of ours whose waits for the kernel wake nobody: somebody who is
    not there yet would have to come first. Without effect for a thread that is no daemon: that is what the program
    does."""
    global n_helpers
    cdef coro me = running_thread()
    if me.flags & DAEMON and yes != ((me.flags & HELPER) != 0):
        me.flags ^= HELPER
        n_helpers += 1 if yes else -1


cdef int64_t poll_timeout(int64_t longest_ns) noexcept:
    cdef int64_t wait, now
    if anything_to_run():
        return 0
    wait = longest_ns
    if timers.count:
        now = coro_now(ticker)
        if timers.entries[0].when <= now:
            return 0
        wait = min(wait, coro_to_ns_up(ticker, timers.entries[0].when - now))
    if unlikely(ending == GRACE):
        now = coro_now(ticker)
        wait = 0 if exit_deadline <= now else min(wait, coro_to_ns_up(ticker, exit_deadline - now))
    return wait


cdef int nap(PyThreadState *ts) noexcept:
    """Main has no memory for what it has to do. Other OS threads may give some back, and so may a signal handler."""
    global running
    coro_enter_main(ts)
    running = NULL
    with nogil:
        usleep(MEMORY_LOOK_US)
    return 0


cdef int run_passes(PyThreadState *ts, int64_t longest_ns) except -1:
    """Pass after pass, until the loop has ended. MemoryError: call it again, it goes on where it was."""
    global loop_now, slice_start, n_passes, n_polls, exit_wanted, trim_at, end_reason, end_code, deadlock_reported
    cdef int64_t wait
    while True:
        n_passes += 1
        loop_now = slice_start = coro_now(ticker)
        if unlikely(coro_clock_due(ticker, loop_now)):
            tend(loop_now)
            slice_start = coro_now(ticker)
        if timers.count and timers.entries[0].when <= loop_now:
            fire_timers(loop_now)
            slice_start = coro_now(ticker)      # what timers did is not the time of the first thread
        list_splice(&ready, &postponed)
        release_slicers()
        if unlikely(n_posts != 0):
            take_posts()
            slice_start = coro_now(ticker)
        if unlikely(main_drops and ending == NOT_ENDING):
            spawn_internal(_empty_drops, (), True)
        if drain(ts) and timers.count:
            fire_timers(coro_now(ticker))
        if unlikely(main_thread != NULL and (<coro>main_thread).flags & DEAD and not exit_wanted
                    and end_reason == "done"):
            end_reason = "main"
            begin_ending(ts)
        if unlikely(exit_wanted):
            exit_wanted = False
            if end_reason == "done" or end_reason == "main":
                end_reason, end_code = "exit", wanted_code
            if ending == NOT_ENDING:
                begin_ending(ts)
            else:
                exit_deadline_from_now()
        if unlikely(ending != NOT_ENDING):
            if coro_registry_count == 0:
                return 0
            if ending == GRACE and (coro_now(ticker) >= exit_deadline
                                    or (not anything_to_run() and n_awaited() == 0)):
                force_ending()
            elif ending == FORCED and list_empty(&batch) and list_empty(&ready) and hopeless():
                give_up()
                return 0
            if ending == FORCED:
                continue
        elif unlikely(n_counted == 0 and n_posts == 0):
            # Daemon threads are ended in order, too.
            begin_ending(ts)
            continue
        wait = poll_timeout(longest_ns)
        if unlikely(idle_hook is not None and wait != 0):
            wait = ask_idle_hook(wait)
        if wait != 0:
            if unlikely(ending == NOT_ENDING and deadlocked()):
                if deadlock_waits or others_may_post():
                    if not deadlock_waits:
                        # The last of the other OS threads may end without a word: look again soon.
                        wait = min(wait, DEADLOCK_LOOK_NS)
                        if not deadlock_reported and deadlock_reporter is not None:
                            deadlock_reported = True
                            deadlock_reporter(True)
                else:
                    end_reason, end_code = "deadlock", deadlock_reporter(False)
                    begin_ending(ts)
                    continue
        elif unlikely(not list_empty(&postponed) and list_empty(&ready) and list_empty(&slicers) and not n_posts):
            nap(ts)
        if unlikely(loop_now >= trim_at):
            trim_at = loop_now + trim_every
            coro_slots_trim()
        n_polls += 1
        if unlikely(profiler != NULL and wait != 0):
            profiler(PROFILE_WAIT_BEGINS, NULL, 0)
        if likely(poll_hook is None):
            the_poller.poll(wait)
        else:
            poll_hook(wait)
        if unlikely(profiler != NULL and wait != 0):
            profiler(PROFILE_WAIT_ENDS, NULL, 0)


def _loop(double longest, thread=None):
    """Run the loop until no counted thread is left or an exit was asked for.

    ``longest`` is the most seconds that one poll may wait; ``thread`` is run()'s main thread, whose end ends the loop.
    Returns (reason, code): 'done', 'exit', or 'deadlock' with the report's exception as code."""
    global loop_ts, loop_os_thread, ending, exit_wanted, running, posts_state, the_poller, any_ran, drain_budget
    global latency_limit, main_thread, deadlock_reported, exit_grace, trim_at, trim_every, main_told
    global end_reason, end_code, n_io, n_offloaded
    cdef PyThreadState *ts = PyThreadState_Get()
    cdef int64_t longest_ns = CORO_TICKS_FOREVER if longest > 4e9 else <int64_t>(longest * 1e9)
    cdef coro main = thread
    if loop_ts != NULL:
        if ts != loop_ts:
            check_os_thread()
        raise LoopError("an event loop is running in this OS thread already; use coro.spawn() or a plain call")
    if not slots_ready:
        map_slots(slots_wanted, slot_size_wanted)
    coro_interp_setup(coro_slot_size)
    coro_datastack_setup()
    coro_guard_enter(who_runs)
    any_ran = True
    drain_budget = coro_from_seconds(ticker, 0.010)
    trim_every = coro_from_seconds(ticker, 1.0)  # a system call for each slot that ran: not at every pass
    trim_at = 0
    latency_limit = coro_from_seconds(ticker, 0.2 * latency_factor) if latency_factor else CORO_TICKS_FOREVER
    loop_ts = ts
    loop_os_thread = coro_os_thread()
    coro_watchdog_enter(ts)
    ending = NOT_ENDING
    posts_state = 1
    deadlock_reported = False
    n_io = n_offloaded = 0      # threads that the last loop had to give up never left their waits
    if not exit_wanted:
        exit_grace = DEFAULT_GRACE
    main_thread = <PyObject *>main if main is not None else NULL
    main_told = False
    end_reason, end_code = "done", 0
    try:
        while True:
            try:
                poller()
                if end_reason != "done" and ending == NOT_ENDING:
                    begin_ending(ts)    # there was no memory for it
                run_passes(ts, longest_ns)
                break
            except MemoryError:
                nap(ts)
                check_signals()
    finally:
        coro_enter_main(ts)
        running = NULL
        try:
            if coro_registry_count:
                finish_now(ts)
        finally:
            coro_watchdog_leave()
            coro_guard_leave()
            try:
                take_last_posts()
            finally:
                loop_ts = NULL
                loop_os_thread = NULL
                main_thread = NULL
                exit_wanted = False
                ending = NOT_ENDING
                p = the_poller
                the_poller = None
                if p is not None:
                    p.shut()
    main_drops.clear()
    reason, code = end_reason, end_code
    end_code = 0
    return reason, code


# ---------------------------------------------------------------------------------------------- for coro.testing

cdef uint64_t next_random() noexcept:
    """xorshift64*: the same numbers on every machine and Python."""
    global order_state
    order_state ^= order_state >> 12
    order_state ^= order_state << 25
    order_state ^= order_state >> 27
    return (order_state * <uint64_t>2685821657736338717) >> 32


cdef void mix_batch() noexcept:
    """Bring the batch into a random order and keep a random part of it for later; without memory it stays as it is."""
    cdef size_t n = 0, i, j, most
    cdef coro_link *link = batch.next
    cdef coro_link **links
    while link != &batch:
        n += 1
        link = link.next
    if n < 2:
        return
    links = <coro_link **>PyMem_RawMalloc(n * sizeof(coro_link *))
    if links == NULL:
        return
    for i in range(n):
        links[i] = batch.next
        list_unlink(links[i])
    most = 1 + next_random() % n
    for i in range(n):
        j = i + next_random() % (n - i)
        link = links[j]
        links[j] = links[i]
        list_append(&batch if i < most else &ready, link)
    PyMem_RawFree(links)


cdef int64_t ask_idle_hook(int64_t wait) except -1:
    """How many ns the poll may wait; 0 when the hook, or a look at the kernel before it, gave somebody something to
    do."""
    the_poller.poll(0)
    return 0 if anything_to_run() else idle_hook(wait)


def _set_idle_hook(hook):
    """Have main call ``hook(wait)`` when nothing is runnable and a poll would wait for ``wait`` ns; it returns how long
    to wait instead, 0 to look again at once. It must be ours and never block. None: nobody is asked."""
    global idle_hook
    idle_hook = hook


def _notify():
    """Call the exception notifier for the exception being handled."""
    notify()


def _set_poll_hook(hook):
    """Have main call ``hook(wait)`` wherever it would poll the kernel for at most ``wait`` ns (0: only look). The hook
    calls _poll_kernel() itself, waits for other things as it likes, and must not raise. None: as usual."""
    global poll_hook
    poll_hook = hook


def _poll_kernel(int64_t wait):
    """For the poll hook: poll for at most ``wait`` ns and wake whom it concerns. Says whether anything can run now."""
    the_poller.poll(wait)
    return bool(anything_to_run())


def _begin_watch():
    """For the poll hook: a descriptor that becomes readable when the poller has something to report; -2 when it has
    already, -1 where there is no such descriptor. After a descriptor was returned _end_watch() must be called."""
    begin = getattr(the_poller, "begin_watch", None)
    return -1 if begin is None else begin()


def _end_watch():
    """For the poll hook: the descriptor is watched no longer."""
    the_poller.end_watch()


def _idle_facts():
    """What an idle loop waits for: (ns to the next timer or the end of the grace period or None, number of descriptors
    and handlers that something may come from, jobs in worker OS threads, OS threads besides the loop's and our workers,
    switches so far, is the loop ending)."""
    cdef object following = None
    cdef int64_t when = 0
    cdef Py_ssize_t count = -1 - n_own_os_threads
    cdef PyThreadState *ts = PyInterpreterState_ThreadHead(PyInterpreterState_Get())
    while ts != NULL:
        count += 1
        ts = PyThreadState_Next(ts)
    if timers.count:
        when = timers.entries[0].when
    if ending == GRACE and (timers.count == 0 or exit_deadline < when):
        when = exit_deadline
    if timers.count or ending == GRACE:
        following = coro_to_ns_up(ticker, max(when - coro_now(ticker), 0))
    return (following, n_io + (0 if the_poller is None else the_poller.handlers_registered()), n_offloaded,
            count, n_switches, ending != NOT_ENDING)


def _set_random_order(seed):
    """Let chance decide in which order runnable threads run, by this seed (an int); None: in the order they were
    scheduled. Returns the state before, to be given back to this function: an int or None."""
    global order_state
    before = order_state if order_state else None
    order_state = 0 if seed is None else ((<object>seed & 0xFFFFFFFFFFFFFFFF) or 1)
    return before


def _refresh_now():
    """The virtual clock was moved: the present pass of the loop goes on at the new time."""
    global loop_now
    loop_now = coro_now(ticker)


cdef int finish_now(PyThreadState *ts) except -1:
    """The loop itself failed (an exception in main, say of a signal handler): end every thread without a grace
    period."""
    global slice_start
    force_ending()
    while True:
        slice_start = coro_now(ticker)
        if not drain(ts):
            if hopeless():
                break
            list_splice(&ready, &postponed)
    give_up()
    return 0


cdef int exit_deadline_from_now() noexcept:
    """A second request to end only ever shortens the grace period."""
    global exit_deadline
    cdef int64_t deadline = coro_now(ticker) + coro_from_seconds(ticker, exit_grace)
    if deadline < exit_deadline:
        exit_deadline = deadline
    return 0


cdef Py_ssize_t n_awaited():
    """Threads worth waiting for while a loop ends: those that wait for a descriptor or a worker, daemons included, and
    those in a shield, whose own limit is a timer. Timers of others are nothing to wait for: who merely sleeps or waits
    for another thread in its clean-up ends now."""
    cdef coro t
    cdef Py_ssize_t count = 0
    for t in _all_threads():
        if t.flags & STARTED and not t.flags & (SCHEDULED | DEAD | REFUSED) and (t.shield_level or t.kind in (
                WAIT_READ, WAIT_WRITE, WAIT_EVENT, WAIT_OFFLOAD) or (t.kind == WAIT_SELECT and t.ident)):
            count += 1
    return count


def set_exit(exit_code=0, *, grace=5.0):
    """Ask the running loop to end with ``SystemExit(exit_code)``.

    Every thread gets Shutdown and has ``grace`` seconds to end; after that every blocking call raises Shutdown at once,
    and threads that still do not end are given up. The grace period is over early when nothing is runnable and nobody
    waits for a descriptor or a worker, or in a ``coro.shield``; 0 skips it. TypeError or ValueError when ``grace`` is
    not a number of seconds >= 0."""
    global exit_wanted, wanted_code, exit_grace
    if not isinstance(grace, (int, float)) or isinstance(grace, bool):
        raise TypeError(f"expected the grace period in seconds, not {grace!r}")
    if not grace >= 0:
        raise ValueError(f"the grace period must be 0 or more seconds, not {grace}")
    check_os_thread()
    wanted_code = exit_code
    exit_grace = grace
    exit_wanted = True
    if the_poller is not None:
        the_poller.interrupt()


def _request_end(code, grace):
    """The same from a signal handler, whatever code it interrupted."""
    global exit_wanted, wanted_code, exit_grace
    wanted_code = code
    exit_grace = grace
    exit_wanted = True
    if the_poller is not None:
        the_poller.interrupt()


def _exit_pending():
    return exit_wanted or ending != NOT_ENDING


def _discard_exit():
    global exit_wanted
    exit_wanted = False


def coro_is_running():
    """Is an event loop running in this process (be it in a thread or in main)?"""
    return loop_ts != NULL


def _check_os_thread():
    """WrongThreadError while a loop runs in another OS thread than the caller's."""
    check_os_thread()


def _in_loop_os_thread():
    return loop_ts != NULL and PyThreadState_Get() == loop_ts


def set_deadlock(mode):
    """What to do when every counted thread is blocked and nothing can wake one: 'raise' DeadlockError (the default) or
    'wait' for ever. Returns the mode set before; ValueError for anything else."""
    global deadlock_waits
    before = "wait" if deadlock_waits else "raise"
    if mode not in ("raise", "wait"):
        raise ValueError(f"expected 'raise' or 'wait', not {mode!r}")
    deadlock_waits = mode == "wait"
    return before


def _take_refused():
    """The (thread, frame) pairs of threads that had to be given up at the last end of a loop."""
    global refused
    found = refused
    refused = []
    return found


# ---------------------------------------------------------------------------------------------- other OS threads

def post(function, /, *args):
    """Run ``function(*args)`` in a new thread of the loop; may be called from any OS thread and from signal handlers.

    Posted functions start in the order posted. Before the first loop they are kept for it. TypeError when the function
    cannot be called; LoopError after the loop has ended, in a forked child without a loop, or when 65536 calls wait
    already."""
    global n_posts
    if not callable(function):
        raise TypeError(f"expected something to call, not {type(function).__name__}: {function!r}")
    context = None
    if coro_context_of(PyThreadState_Get()) != NULL:
        context = <object>PyContext_CopyCurrent()
        Py_DECREF(context)
    entry = (1, function, args, context)
    # Nothing below gives up the GIL: the loop cannot end between the question and the answer.
    if posts_state == 2 or ending != NOT_ENDING:
        raise LoopError("the event loop has ended or is ending: nothing would run what is posted now")
    if n_posts >= most_posts:
        raise LoopError(f"{most_posts} posted calls wait already; the loop does not keep up with whoever posts them")
    posts.append(entry)
    n_posts += 1
    cdef Poller p = the_poller
    if p is not None:
        p.interrupt()


def _post_internal(function, /, *args):
    """From any OS thread: have main call ``function(*args)``, which must be ours, short, and never block. False when
    no loop runs."""
    global n_posts
    entry = (0, function, args, None)
    if posts_state != 1:
        return False
    posts.append(entry)
    n_posts += 1
    cdef Poller p = the_poller
    if p is not None:
        p.interrupt()
    return True


def _wake(thread, value=None):
    return wake(<coro?>thread, value)


def _wake_error(thread, exc):
    return wake_error(<coro?>thread, exc)


def _running_thread():
    """The running thread; raises what a blocking operation would raise here."""
    return running_thread()


def _suspend(what):
    return suspend(running_thread(), WAIT_OBJECT, what)


def _suspend_outside(what):
    """The same until something comes from outside the loop, though from no descriptor that the poller knows: while
    somebody waits like this there is no deadlock."""
    return suspend_outside(running_thread(), WAIT_OBJECT, what, False)


def _suspend_offloaded(what):
    """The same for what a worker OS thread does."""
    return suspend_outside(running_thread(), WAIT_OFFLOAD, what, True)


def _count_own_os_threads(int delta):
    """One of our own worker OS threads began or ended: it posts only what it was asked for."""
    global n_own_os_threads
    n_own_os_threads += delta


# ---------------------------------------------------------------------------------------------- fork

cdef void at_fork_in_child() noexcept nogil:
    # Inside fork(2), before CPython frees the states of the OS threads that are gone. When one of them ran the loop,
    # its state may have a thread's data stack, and frames of main that other frames lead to.
    global child_unclean
    if loop_ts == NULL:
        return
    if coro_os_thread() != loop_os_thread:
        coro_forget_datastack(loop_ts)
    elif forker != NULL and forker == running and not child_unclean:
        # The interpreter runs hooks of others before ours. Until ours has, the parent's threads stand in the run queue:
        # no switch.
        child_unclean = 1
        forker_depth[0] += 1


pthread_atfork(NULL, NULL, at_fork_in_child)

def _before_fork():
    """In the parent, and not where C code forks without the interpreter's hooks."""
    global forker, forker_depth
    if running != NULL and coro_os_thread() == loop_os_thread:
        forker = running
        forker_depth = &(<coro>running).no_switch_depth


def _after_fork_in_parent():
    """The end of what _before_fork() began."""
    global forker
    if running == forker and coro_os_thread() == loop_os_thread:
        forker = NULL


cdef coro successor = None             # in a forked child: who took the place of run()'s main thread


def _after_fork_in_child():
    """In a forked child: no thread but the one that forked goes on; true if there were others.

    When the loop's own OS thread forked, the loop goes on with that thread, which takes the place of run()'s main
    thread; otherwise there is no loop, but may be started. Without a loop nothing ran that could be lost: threads
    that were spawned for a loop to come are there in both processes."""
    global loop_ts, loop_os_thread, main_thread, running, posts_state, the_poller, ending, exit_wanted, n_io
    global n_posts, n_offloaded
    global n_switches, n_spawned, n_passes, n_polls, n_timers_fired, n_bounded, successor, slots_ready, refused
    global deadlock_reported, main_told, forker, child_unclean
    forker = NULL
    if child_unclean:
        child_unclean = 0
        (<coro>running).no_switch_depth -= 1
    n_switches = n_spawned = n_passes = n_polls = n_timers_fired = n_bounded = 0
    memset(&coro_slot_counted, 0, sizeof(coro_slot_counted))
    if the_poller is not None:
        the_poller.after_fork()
    if loop_ts == NULL:
        return False
    posts.clear()
    n_posts = 0
    n_io = n_offloaded = 0      # of all threads only the running one goes on, which does not wait
    deadlock_reported = False
    successor = None
    if PyThreadState_Get() != loop_ts:
        loop_ts = NULL
        loop_os_thread = NULL
        main_thread = NULL
        running = NULL
        posts_state = 2
        the_poller = None
        ending = NOT_ENDING
        exit_wanted = False
        refused = []
        lose_everybody()
        # One thread may have been running: where its stack ends is unknown, so it cannot be copied away. All stay where
        # they are, and the next loop gets other slots.
        coro_slots_abandon()
        slots_ready = False
        coro_forget_main()
    else:
        lose_all_but_running()
        if main_thread != NULL and main_thread != running:
            main_thread = running
            if running != NULL:
                successor = <coro>running
                main_told = False
    return True


cdef int lose(coro t) noexcept:
    """Mark a thread that did not come along in a fork. Its frames are never unwound and its references never released;
    the registry's joins those."""
    global n_objects
    die(t, LOST)
    n_objects -= 1
    return 0


cdef int lose_everybody() except -1:
    cdef coro t
    list_init(&ready)
    list_init(&batch)
    list_init(&slicers)
    list_init(&postponed)
    coro_timers_clear(&timers)
    for t in _all_threads():
        t.flags &= ~<uint32_t>(SCHEDULED | IN_SLICE | DELIVER)      # the lists are no more
        lose(t)
    return 0


cdef int lose_all_but_running() except -1:
    cdef coro t
    cdef size_t i
    cdef PyObject *owner
    cdef list doomed = []
    for t in _all_threads():
        if <PyObject *>t == running:
            continue
        lose(t)
        coro_slots_leave(&t.stack, 1)
    for i in range(timers.count):
        owner = <PyObject *>timers.entries[i].timer.owner
        if type(<object>owner) is timebomb:
            owner = <PyObject *>(<timebomb>owner).target
        if type(<object>owner) is coro and (<coro>owner).flags & THREAD_LOST:
            doomed.append(<size_t>timers.entries[i].timer)
    for place in doomed:
        coro_timers_remove(&timers, <coro_timer *><size_t>place)
    return 0


def _take_successor():
    """The thread that took main's place in a forked child, or None; for run(), whose result its outcome is."""
    global successor
    found = successor
    successor = None
    return found


# ---------------------------------------------------------------------------------------------- looking inside

def _hooks(default_notifier_=None, latency_reporter_=None, deadlock_reporter_=None):
    """Install the functions that word reports; the scheduler itself writes nothing."""
    global default_notifier, latency_reporter, deadlock_reporter
    default_notifier = default_notifier_
    latency_reporter = latency_reporter_
    deadlock_reporter = deadlock_reporter_


def _without_loop(with_timeout_, sleep_relative_):
    """Install what does the work of these two where no loop runs."""
    global with_timeout_elsewhere, sleep_elsewhere
    with_timeout_elsewhere = with_timeout_
    sleep_elsewhere = sleep_relative_


def _loop_now():
    """The tick at which the present pass of the loop began, or the present tick without a loop."""
    return loop_now if loop_ts != NULL else coro_now(ticker)


def _counters():
    """The scheduler's counters, as a dictionary for coro.statistics()."""
    return {
        "switches": n_switches,
        "evacuations": coro_slot_counted.evacuations,
        "evacuated_bytes": coro_slot_counted.evacuated_bytes,
        "restorations": coro_slot_counted.restorations,
        "restored_bytes": coro_slot_counted.restored_bytes,
        "slot_collisions": coro_slot_counted.collisions,
        "stack_trims": coro_slot_counted.trims,
        "passes": n_passes,
        "polls": n_polls,
        "bounded_drains": n_bounded,
        "timers": timers.count,
        "timers_fired": n_timers_fired,
        "threads": coro_registry_count,
        "counted_threads": n_counted,
        "thread_objects": n_objects,
        "spawned": n_spawned,
        "slots": coro_slot_count,
        "slot_size": coro_slot_size,
        "posts_waiting": n_posts,
    }


cdef extern from *:
    """
    /* What a thread is called, borrowed: the name it was given, or that of its function, as far as nothing has to be
       computed for it. */
    static PyObject *coro_known_name(PyObject *label, PyObject *function) {
        if (label == Py_None && function != NULL && PyMethod_Check(function)) {
            function = PyMethod_GET_FUNCTION(function);
        }
        return label == Py_None && function != NULL && PyFunction_Check(function)
               ? ((PyFunctionObject *)function)->func_qualname : label;
    }
    """
    PyObject *coro_known_name(PyObject *, PyObject *) noexcept nogil


cdef void who_runs(coro_who *who) noexcept nogil:
    """For signal handlers: what runs; touches no reference count."""
    who.running = running != NULL
    who.frames_known = running != NULL or not coro_main_away
    if running != NULL:
        who.number = (<coro>running).number
        who.name = coro_known_name(<PyObject *>(<coro>running).label, <PyObject *>(<coro>running).function)


def _thread_memory(thread):
    """Bytes of a thread as (object, saved stack with what is in its slot, data stack)."""
    cdef coro t = <coro?>thread
    cdef size_t stack = t.stack.capacity
    check_os_thread()
    if t.flags & STARTED and not t.flags & DEAD and t.stack.slot.owner == <void *>&t.stack:
        stack += t.stack.slot.top - <char *>(&stack if running == <PyObject *>t else t.stack.sp)
    return (sys.getsizeof(t), stack,
            0 if t.stack.root == NULL else
            coro_datastack_size(coro_present_chunk(PyThreadState_Get()) if running == <PyObject *>t
                                else coro_interp_chunk(&t.stack.interp)))


def _trace_thread(thread, settrace, function):
    """Have ``settrace(function)`` act on a suspended thread. ScheduleError when it is the running one or has not run,
    DeadCoroutine when it has ended, RuntimeError when it is traced already."""
    cdef coro t = <coro?>thread
    check_os_thread()
    if t.flags & DEAD:
        raise DeadCoroutine(t)
    if not t.flags & STARTED or running == <PyObject *>t:
        raise ScheduleError(t)
    if t.stack.packed:
        unpack(t)
    coro_interp_trace_parked(PyThreadState_Get(), &t.stack.interp, coro_slots_frame(&t.stack), <PyObject *>settrace,
                             <PyObject *>function)


def _set_watchdog(double seconds, int fd, int signum):
    """0, an errno, or -1 when the program has a handler for that signal; see coro.set_watchdog()."""
    coro_watchdog_init(&n_switches, &n_passes, who_runs)
    return coro_watchdog_set(seconds, fd, signum)


def _watchdog_after_fork():
    coro_watchdog_after_fork()


cdef void set_profiler(profile_hook hook, void *tracer) noexcept:
    """Have `hook` told of slices and waits, and (3.11) every thread run with the profile function `tracer`. NULL:
    stop."""
    global profiler
    profiler = hook
    coro_interp_set_profile(PyThreadState_Get(), tracer)


def abi_version():
    """Version of the C-level interface in the .pxd files; see coro._runtime.abi."""
    return CORO_ABI
