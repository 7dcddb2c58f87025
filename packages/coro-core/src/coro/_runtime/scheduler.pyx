# cython: language_level=3, binding=False, embedsignature=True, embedsignature.format=clinic
"""The scheduler: thread objects, run queue, interruptions, timers, the loop, and how a loop ends.

One loop runs in one OS thread. *Main* is the code of the loop itself; it runs on the OS thread's own stack and never
runs user code. Threads always swap to main, and main swaps to the next one.

The run queue is in run_queue.h: its lists, and all that moves a thread between them.

A pass of the loop: timers that are due; the threads that called yield_slice() or were postponed before the last poll;
functions posted by other OS threads; then the run queue until it is empty or 10 ms have gone by; then the poller,
without waiting if anything is left to run. A pass that ends for lack of memory is begun anew: each step
leaves what it has not done to the next.

Interruptions. What interrupts a thread is noted on the thread (`attention`), one kind apart from the other: shutdown,
exceptions sent by users (a queue), timeouts that expired (a list). A thread that is suspended and not scheduled is then
scheduled with DELIVER set and raises the first of them when it runs: shutdown before users' exceptions before timeouts.
A thread that is scheduled already keeps its wake-up; what came too late for it is delivered at its next suspension,
which is when it is put at the end of the run queue with DELIVER, so that expired timeouts in a loop starve nobody.
Nothing that was noted is ever discarded, except by a shutdown (which drops users' exceptions) and by leaving the scope
of a timeout.

Why one module: thread object, run queue, timers and loop are one state machine with shared invariants, and the chain
from drain() to park() and wake() lives from being inlined. Its text is in parts by topic, parts/*.pxi, included at the
end in the order in which they build on one another; here are the declarations and the state that they share. What could
be taken out is out: stacks and interpreter state (C files), the run queue, the heap, the registry, the wording of
reports, and everything that only calls what is here.

Invariants:
 1. A thread is in at most one list of the run queue; its flags say in which kind. See run_queue.h.
 2. The registry owns one reference to every thread that is scheduled or started and not dead.
 3. `running` is NULL whenever main runs.
 4. Nothing reachable from the heap points into a thread's C stack while the thread is suspended.
 5. A thread that is DEAD is in no list, has no timer, and never runs again.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer
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
from functools import partial

from coro._runtime.arguments import number_of_seconds
from coro.exceptions import (CancelledError, DeadCoroutine, Interrupted, LoopError, NoSwitchError, NotStartedError,
                             ScheduleError, Shutdown, StackSlotError, TimeoutError, WrongThreadError, YieldFromMain)


cdef extern from "Python.h":
    ctypedef struct PyThreadState:
        pass
    PyThreadState *PyThreadState_Get()
    PyObject *PyThreadState_GetDict()
    PyObject *PyInterpreterState_GetDict(void *)
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
    double PyFloat_AS_DOUBLE(object)
    double PyLong_AsDouble(object)              # -1.0 with an exception set: too large
    PyObject *PyErr_Occurred()
    void PyErr_Clear()

cdef extern from *:
    """
    #include <pthread.h>
    /* Its __qualname__, borrowed: no more than a name, but every thread that ends looks for one. */
    static inline PyObject *coro_function_name(PyObject *f) { return ((PyFunctionObject *)f)->func_qualname; }
    /* Is this the code of an async def function, which a call does not run? */
    static inline int coro_is_async(PyObject *code) {
        return ((PyCodeObject *)code)->co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR);
    }
    /* As isinstance() of a plain class, which would ask a stranger's __class__. */
    static inline int coro_is_a(PyObject *o, PyObject *cls) { return PyObject_TypeCheck(o, (PyTypeObject *)cls); }
    static inline PyObject *coro_context_of(PyThreadState *ts) { return ts->context; }
    /* A thread state that CPython is about to free has a thread's data stack, which is not CPython's to free. */
    static inline void coro_forget_datastack(PyThreadState *ts) { ts->datastack_chunk = NULL; }
    static inline int coro_has_weakrefs(PyObject *o) {
        return *(PyObject **)((char *)o + Py_TYPE(o)->tp_weaklistoffset) != NULL;
    }
    """
    PyObject *coro_function_name(PyObject *)
    bint coro_is_async(PyObject *)
    bint coro_is_a(PyObject *, PyObject *)
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
        const void *slot
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
    int coro_interp_setup(size_t) except -1
    void coro_interp_init(coro_interp *, PyThreadState *, PyObject *, void *, PyObject **, PyObject **)
    PyObject *coro_interp_frame_object(PyThreadState *, void *)
    void coro_interp_set_profile(PyThreadState *, void *)
    void coro_interp_ctypes_errno(int *)
    PyObject *coro_interp_handled(const coro_interp *)
    int coro_interp_trace_parked(PyThreadState *, coro_interp *, void *, PyObject *, PyObject *) except -1
    ctypedef struct coro_interp_facts:
        int *collecting
        int *doubt
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

cdef extern from "_switch/obstacle.h":
    int CORO_GREENLET, CORO_PYBIND11
    void coro_obstacle_greenlet(void **)
    void coro_obstacle_loop()
    int coro_obstacle_pybind11(object, object) except -1
    int coro_obstacle_now(const char *, PyObject **)

cdef extern from "_switch/guard.h":
    void coro_guard_enter(coro_look)
    void coro_guard_leave()

cdef extern from "_runtime/watchdog.h":
    int coro_watchdog_asleep
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

cdef extern from "_runtime/run_queue.h":
    ctypedef struct coro_run_queue:
        coro_link ready, batch, slicers
        unsigned int postponed
    void coro_list_append(coro_link *, coro_link *)
    void coro_list_unlink(coro_link *)
    void coro_list_splice(coro_link *, coro_link *)
    bint coro_list_empty(coro_link *)
    void coro_queue_reset(coro_run_queue *)
    void coro_queue_add(coro_run_queue *, coro_link *)
    void coro_queue_add_slicer(coro_run_queue *, coro_link *)
    void coro_queue_postpone(coro_run_queue *, coro_link *)
    void coro_queue_move_last(coro_run_queue *, coro_link *)
    void coro_queue_leave(coro_link *)
    coro_link *coro_queue_take(coro_run_queue *)
    void coro_queue_release(coro_run_queue *)
    bint coro_queue_busy(coro_run_queue *)
    bint coro_queue_empty(coro_run_queue *)

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
    LONGEST_SHOWN_NAME = 40
    LOCALS_ROUNDS = 4       # what POSIX has at least for pthread_key_create(3)'s destructors

cdef int DEFAULT_SLOTS = 128 if sizeof(void *) > 4 else 16
cdef size_t DEFAULT_SLOT_SIZE = (4 if sizeof(void *) > 4 else 1) * 1024 * 1024

cdef coro_clock *ticker = clock()

cdef PyObject *running = NULL          # borrowed; the thread that executes now
cdef PyThreadState *loop_ts = NULL     # of the OS thread whose loop runs
cdef void *loop_os_thread = NULL       # that OS thread
cdef coro_run_queue queue
cdef coro_timer_heap timers
cdef uint64_t last_number = 0
cdef uint64_t n_switches = 0, n_spawned = 0, n_passes = 0, n_polls = 0, n_timers_fired = 0, n_bounded = 0
cdef Py_ssize_t n_objects = 0, n_counted = 0, n_own_os_threads = 0
cdef Py_ssize_t n_io = 0, n_offloaded = 0   # threads suspended until the kernel, or a worker OS thread, wakes them
cdef int64_t offloaded_at = 0          # when the last thread began to wait for a worker OS thread
cdef Py_ssize_t n_helpers = 0, n_forgotten = 0   # living threads with HELPER, FORGOTTEN
cdef int64_t loop_now = 0, slice_start = 0
cdef bint slots_ready = False, any_ran = False
cdef int slots_wanted = DEFAULT_SLOTS
cdef size_t slot_size_wanted = DEFAULT_SLOT_SIZE
cdef int64_t latency_limit = 0, drain_budget = 0, short_job = 0
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
cdef object notifier_failed = None       # told of a notifier that raises, before the default one takes its place
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


coro_queue_reset(&queue)


include "parts/thread.pxi"
include "parts/suspension.pxi"
include "parts/interruption.pxi"
include "parts/ends.pxi"
include "parts/death.pxi"
include "parts/timers.pxi"
include "parts/scopes.pxi"
include "parts/sleeping.pxi"
include "parts/spawning.pxi"
include "parts/settings.pxi"
include "parts/finding.pxi"
include "parts/compression.pxi"
include "parts/life.pxi"
include "parts/drain.pxi"
include "parts/ending.pxi"
include "parts/deadlock.pxi"
include "parts/loop.pxi"
include "parts/hooks.pxi"
include "parts/exit.pxi"
include "parts/posts.pxi"
include "parts/fork.pxi"
include "parts/inspection.pxi"
