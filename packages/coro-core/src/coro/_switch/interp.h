/* The interpreter state that belongs to a thread of ours, and the switch of it, for CPython 3.11 to 3.15.

   CPython keeps one PyThreadState per OS thread. Part of it describes the code that happens to run (frames, data
   stack, handled exception, recursion depth) and must travel with a thread of ours; part belongs to the OS thread and
   must stay. This header and interp.c are the only files that know which is which: every field of the structure is
   ruled on below, version by version (Include/cpython/pystate.h and Include/internal/pycore_tstate.h of each).

   Saved on leaving, loaded on entering:
     context                        the thread's contextvars; context_ver is bumped so that per-variable caches miss
     exc_info                       the stack of handled exceptions. A new thread's bottom item lies in its own object;
                                    tstate->exc_state, the bottom item of the OS thread's own stack, therefore stays
     cframe (3.11, 3.12)            points into the C stack; a new thread's first one lies in its own object
     current_frame (3.13+)          innermost frame. A new thread starts at NULL, from 3.15 on at tstate->base_frame,
                                    where the sampling profiler expects every chain of frames to end
     datastack_chunk, _top, _limit  the thread's own data stack (_switch/datastack.h)
     recursion depth                kept as "used", so that sys.setrecursionlimit() acts on every thread. 3.11 has one
                                    counter for Python and C calls, clamped to what a slot bears. As it looks at the
                                    interpreter's limit again before it raises, that one is replaced while a thread
                                    runs: sys.getrecursionlimit() tells the clamped limit there, and a higher one that
                                    a thread sets is clamped from its next slice on. 3.12 and 3.13 count C calls
                                    apart, absolutely; from 3.14 on the C stack is checked by address
     trash nesting (3.11, 3.12)     depth of nested deallocations, non-zero when a __del__ switches
     current_executor (3.14+)       the JIT's running trace
   Saved only when not empty, in a block of its own ("rare"), because at nearly every switch all of it is NULL:
     c_tracefunc/obj, c_profilefunc/obj, tracing, what_event   sys.settrace and sys.setprofile act per thread
     the exception being raised     normally NULL wherever C code may be called; handed over all the same
     trash list / delete_later      objects whose deallocation the thread has postponed (reference count 0: never
                                    visited, never counted, only carried)
     asyncio_running_loop, _task (3.13+, 3.14+)  asyncio.run() in one thread is invisible in another. 3.11 and 3.12 keep
                                    the loop in `dict`: a change of that dictionary is what tells of one. A switch of
                                    any other thread pays for one look at the version of the dictionary (3.11), or at
                                    a flag that is set by a watcher of it (3.12). Up to 3.13 the running task is kept
                                    per loop
     errno of ctypes                what ctypes keeps of errno, in an object of its own in `dict`. The emulation says
                                    where; nobody else pays more than a look at a zero
     async_gen_firstiter, async_gen_finalizer (while a loop is running)   hooks of that loop: of two loops that overlap,
                                    each would else put back those of the other
   Left alone, with the reason:
     datastack_cached_chunk         a spare for whoever runs next
     dict (but for asyncio's loop), threading_local_key, threading_local_sentinel, id, thread_id,
     native_thread_id               per OS thread by definition
     gilstate_counter, ensure (3.15)   plain counters; nested Ensure/Release pairs of several threads still balance
     async_exc, eval_breaker, interp, prev, next, state, holds_gil, gil_requested, _status, _whence   the OS thread's
     critical_section               always 0 with the GIL; free-threaded builds are refused below
     recursion_headroom             raised only inside one C call that does not switch
     coroutine_origin_tracking_depth   asyncio sets it around a running loop in debug mode, and restores it itself
     previous_executor (3.13), jit_exit, jit_tracer_state, generator_return_kind, lazy_imports (3.15)   written and read
                                    with no call to Python code between
     dict_global_version, remote_debugger_support, trace_info (3.11), on_delete   caches and OS thread housekeeping
     c_stack_top/soft/hard (3.14+)  set through PyUnstable_ThreadState_SetStackProtection by _switch/slice.h
     eval_breaker's version of monitoring events (3.15)   the interpreter's; a thread that finds another one than at its
                                    last switch gives monitoring data to the code of its frames, as the interpreter
                                    does for all frames it sees; not to static code, which nothing monitors
     last_profiled_frame (3.15)     an address cached by the sampling profiler: forgotten at every switch

   Cost: about 20 loads and stores each way. */
#ifndef CORO_INTERP_H
#define CORO_INTERP_H

#include <Python.h>
#include <stdint.h>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x03100000
#error "coro-core switches interpreter state of CPython 3.11 to 3.15; this version needs a section in interp.h"
#endif
#if PY_VERSION_HEX >= 0x030E0000 && PY_VERSION_HEX < 0x030E0200
#error "coro-core needs CPython 3.14.2 or newer of the 3.14 series: earlier ones cannot be told about separate C stacks"
#endif
#ifdef Py_GIL_DISABLED
#error "coro-core does not support the free-threaded build of CPython; use the default build"
#endif
#if defined(PYPY_VERSION) || defined(GRAALVM_PYTHON)
#error "coro-core switches stacks inside CPython itself and works with no other implementation"
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

#define CORO_HAS_CFRAME (PY_VERSION_HEX < 0x030D0000)
#define CORO_HAS_ENTRY_FRAMES (PY_VERSION_HEX >= 0x030C0000) /* interpreter entry frames lie on the C stack */
#define CORO_HAS_C_COUNTER (PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030E0000)
#define CORO_HAS_STACK_LIMITS (PY_VERSION_HEX >= 0x030E0000)
#define CORO_HAS_LOCAL_RAISE (PY_VERSION_HEX >= 0x030F0000) /* exceptions are looked up in the code's monitoring data */
#define CORO_HAS_TRASH_NESTING (PY_VERSION_HEX < 0x030D0000)
#define CORO_HAS_RUNNING_LOOP (PY_VERSION_HEX >= 0x030D0000) /* the thread state knows asyncio's loop */
#define CORO_HAS_RUNNING_TASK (PY_VERSION_HEX >= 0x030E0000) /* and the task */

struct _PyInterpreterFrame;

typedef struct {
    Py_tracefunc tracefunc, profilefunc;
    PyObject *traceobj, *profileobj;
    int tracing, what_event;
#if PY_VERSION_HEX < 0x030C0000
    PyObject *raised_type, *raised_value, *raised_traceback;
#else
    PyObject *raised;
#endif
    PyObject *delete_later;
    PyObject *running_loop, *running_task;
    int loop_pid;                    /* the process where the loop was set, 3.11 only */
    PyObject *firstiter, *finalizer; /* asyncio's hooks for asynchronous generators; only with a running loop */
    int ctypes_errno;
} coro_interp_rare;

typedef struct {
    _PyErr_StackItem *exc_info;
    PyObject *context;
    _PyStackChunk *chunk;
    PyObject **stack_top;
    PyObject **stack_limit;
#if CORO_HAS_CFRAME
    _PyCFrame *cframe;
#else
    struct _PyInterpreterFrame *frame;
#endif
#if PY_VERSION_HEX >= 0x030E0000
    PyObject *executor;
#endif
    coro_interp_rare *rare; /* NULL while all of it is empty */
    int used;               /* recursion depth */
#if CORO_HAS_LOCAL_RAISE
    uint32_t monitoring;    /* version of sys.monitoring's (and sys.settrace's) events when this was saved */
#endif
#if CORO_HAS_C_COUNTER
    int c_remaining;
#endif
#if CORO_HAS_TRASH_NESTING
    int trash_nesting;
#endif
    _PyErr_StackItem exc_state; /* bottom of exc_info */
#if CORO_HAS_CFRAME
    _PyCFrame base_cframe;      /* bottom of cframe */
#endif
} coro_interp;

/* Where the fields live that only internal headers name, found once by coro_interp_setup(). */
typedef struct {
    int *collecting;           /* non-zero while the cyclic collector runs */
    int *doubt;                /* non-zero when a switch may have to be refused: the same, or a constant from the time
                                  on when there is more to look at than the collector (obstacle.h) */
    size_t running_loop;       /* offset of asyncio_running_loop in the thread state, 3.14+ */
    size_t running_task;
    int *ctypes_errno;         /* what ctypes.get_errno() returns in the loop's OS thread; never NULL */
#if PY_VERSION_HEX < 0x030C0000
    uint64_t dict_seen;        /* version of the thread state's dict when it had no running loop; 0: it has one */
#elif !CORO_HAS_RUNNING_LOOP
    PyObject *set_loop;        /* asyncio's function that sets the running loop, NULL until one was found */
    int has_loop;              /* the thread that runs may have a running loop */
    int unwatched;             /* nothing tells that it has: look at every switch */
#endif
    int limit_3_11;            /* recursion limit that a slot bears, 3.11 only */
    int *limit;                /* the interpreter's own (sys.setrecursionlimit), 3.11 only */
    int limit_replaced;        /* what it was before limit_replaced_by took its place, */
    int limit_replaced_by;     /* or -1 while it is what users want */
#if PY_VERSION_HEX < 0x030C0000
    Py_tracefunc profiler;     /* profile function of main and of all threads that have none of their own, or NULL */
#endif
    int c_limit;               /* first value of the C recursion counter, 3.12 and 3.13 only */
} coro_interp_facts;

extern coro_interp_facts coro_interp_known;

/* Fill coro_interp_known; `stack_size` is the size of a slot in bytes. Call with the GIL held, in the OS thread of the
   loop. Returns -1 with an exception set when memory ran out. */
int coro_interp_setup(size_t stack_size);

/* From now on there is more to look at before a switch than the collector. */
void coro_interp_doubt(void);

/* Make `s` the state of a thread that has not run. Takes over the reference to `context` (may be NULL). */
void coro_interp_init(coro_interp *s, PyThreadState *ts, PyObject *context, _PyStackChunk *root, PyObject **top,
                      PyObject **limit);

/* Move the rare fields between the thread state and a block; out of line because it hardly ever happens. Saving
   returns -1 when memory for the block ran out (the state stays in the thread state then, which the next thread
   inherits: a trace function, at worst). */
int coro_interp_save_rare(PyThreadState *ts, coro_interp *s);
void coro_interp_load_rare(PyThreadState *ts, coro_interp *s);

/* Drop what a dead thread still holds. Runs arbitrary code (finalisers), so call it on the thread itself. */
void coro_interp_clear(PyThreadState *ts);

/* 3.11: profile the running code, main and every thread with a function that looks at no object of its own. NULL: no
   more. Later versions have sys.monitoring, which is not switched, and nothing is done here. */
void coro_interp_set_profile(PyThreadState *ts, void *function);

/* Where ctypes keeps errno of the OS thread of the loop; NULL: nowhere. The memory is never given back. */
void coro_interp_ctypes_errno(int *where);

/* Innermost frame of a parked thread, `base`..`top` being its part of the C stack at its usual address and `copy`
   where those bytes are now (the same address while the thread still owns its slot). */
struct _PyInterpreterFrame *coro_interp_top_frame(const coro_interp *s, const char *base, const char *top,
                                                  const char *copy);

/* The frame object of a parked thread's innermost frame, a new reference, or NULL without an error set when no Python
   function is active in it. */
PyObject *coro_interp_frame_object(PyThreadState *ts, struct _PyInterpreterFrame *frame);

/* The exception that a parked thread handles, borrowed, or NULL. */
PyObject *coro_interp_handled(const coro_interp *s);

/* Make sys.settrace (given as `settrace`) act on a parked thread, whose innermost frame is `frame`, instead of on the
   caller. Returns -1 with an exception set when the thread is traced already or the call failed. */
int coro_interp_trace_parked(PyThreadState *ts, coro_interp *s, struct _PyInterpreterFrame *frame, PyObject *settrace,
                             PyObject *function);

/* A link of the chain of frames that leads across an entry frame, which lies on the C stack. */
typedef struct {
    struct _PyInterpreterFrame *frame;
    struct _PyInterpreterFrame *entry;
} coro_interp_link;

/* Make the chain of frames that begins at `frame` skip whatever lies in base..top, so that walking it (f_back,
   faulthandler, profilers) never reads a C stack that somebody else uses now. Stores up to `room` links and returns
   how many there are; nothing is changed when they are more than `room`. `outermost` is the frame at the bottom of the
   thread's data stack, NULL when that is empty; `base` and `top` are aligned to words. */
int coro_interp_bypass(struct _PyInterpreterFrame *frame, struct _PyInterpreterFrame *outermost, const char *base,
                       const char *top, coro_interp_link *links, int room);

/* Undo coro_interp_bypass. */
void coro_interp_relink(const coro_interp_link *links, int count);

/* Write the functions of a chain of frames, innermost first, to a descriptor. Async-signal-safe. */
void coro_interp_dump(int fd, PyThreadState *ts);

/* The same from another OS thread, while the one of `ts` is blocked in a system call. As nothing keeps it there, all is
   copied with `peek`, which returns 0 for what cannot be read. Not reentrant. */
typedef int (*coro_peek)(void *to, const void *from, size_t size);
void coro_interp_dump_blocked(int fd, PyThreadState *ts, coro_peek peek);

/* Is something at this address part of the GIL of a state's interpreter? Takes no lock, and needs none. */
int coro_interp_is_of_gil(PyThreadState *ts, uintptr_t address);

#if CORO_HAS_LOCAL_RAISE
/* Events were switched on while this thread (or main) was away. CPython gives monitoring data to the code of all frames
   that it can see then, and takes for granted that the code of a running frame has some. */
void coro_interp_catch_up(PyThreadState *ts);

static inline uint32_t
coro_interp_monitoring(PyThreadState *ts)
{
    return (uint32_t)(ts->eval_breaker >> 8); /* _PY_EVAL_EVENTS_BITS */
}
#endif

/* The chunk of the data stack in use: of a thread that is parked, and of whoever runs. */
#define CORO_INTERP_CHUNK(s) ((void *)(s)->chunk)

static inline void *
coro_present_chunk(PyThreadState *ts)
{
    return ts->datastack_chunk;
}

/* The exception being raised, with its traceback, as a new reference; nothing is being raised afterwards. */
static inline PyObject *
coro_take_exception(void)
{
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

static inline PyObject **
coro_interp_field(PyThreadState *ts, size_t offset)
{
    return (PyObject **)((char *)ts + offset);
}

#if PY_VERSION_HEX >= 0x030E0000
#define CORO_RUNNING_LOOP(ts) (*coro_interp_field(ts, coro_interp_known.running_loop))
#define CORO_RUNNING_TASK(ts) (*coro_interp_field(ts, coro_interp_known.running_task))
#elif CORO_HAS_RUNNING_LOOP
#define CORO_RUNNING_LOOP(ts) (*coro_interp_field(ts, sizeof(PyThreadState))) /* as interp.c asserts */
#endif

static inline int
coro_interp_has_rare(PyThreadState *ts)
{
    uintptr_t any = (uintptr_t)ts->c_tracefunc | (uintptr_t)ts->c_profilefunc | (uintptr_t)ts->tracing;
#if PY_VERSION_HEX < 0x030C0000
    any |= (uintptr_t)ts->curexc_type | (uintptr_t)ts->trash_delete_later;
#else
    any |= (uintptr_t)ts->current_exception;
#if PY_VERSION_HEX < 0x030D0000
    any |= (uintptr_t)ts->trash.delete_later;
#else
    any |= (uintptr_t)ts->delete_later;
#endif
#endif
#if CORO_HAS_RUNNING_LOOP
    any |= (uintptr_t)CORO_RUNNING_LOOP(ts);
#elif PY_VERSION_HEX >= 0x030C0000
    any |= (uintptr_t)coro_interp_known.has_loop;
#else
    any |= (uintptr_t)(((PyDictObject *)ts->dict)->ma_version_tag ^ coro_interp_known.dict_seen);
#endif
    any |= (uintptr_t)*coro_interp_known.ctypes_errno;
    return __builtin_expect(any != 0, 0);
}

static inline void
coro_interp_save(PyThreadState *ts, coro_interp *s)
{
    s->exc_info = ts->exc_info;
    s->context = ts->context;
    s->chunk = ts->datastack_chunk;
    s->stack_top = ts->datastack_top;
    s->stack_limit = ts->datastack_limit;
#if PY_VERSION_HEX < 0x030C0000
    s->used = ts->recursion_limit - ts->recursion_remaining;
    s->trash_nesting = ts->trash_delete_nesting;
#else
    s->used = ts->py_recursion_limit - ts->py_recursion_remaining;
#endif
#if CORO_HAS_C_COUNTER
    s->c_remaining = ts->c_recursion_remaining;
#endif
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000
    s->trash_nesting = ts->trash.delete_nesting;
#endif
#if CORO_HAS_CFRAME
    s->cframe = ts->cframe;
#else
    s->frame = ts->current_frame;
#endif
#if PY_VERSION_HEX >= 0x030E0000
    s->executor = ts->current_executor;
#endif
#if CORO_HAS_LOCAL_RAISE
    s->monitoring = coro_interp_monitoring(ts);
#endif
#if PY_VERSION_HEX < 0x030C0000
    if (ts->c_profilefunc == coro_interp_known.profiler) {
        ts->c_profilefunc = NULL;
    }
#endif
    if (coro_interp_has_rare(ts)) {
        coro_interp_save_rare(ts, s);
    }
}

/* `slot` is true for a thread of ours and false for main, which has the OS thread's whole C stack. */
static inline void
coro_interp_load(PyThreadState *ts, coro_interp *s, int slot)
{
    (void)slot;
    ts->exc_info = s->exc_info;
    ts->context = s->context;
    ts->context_ver++;
    ts->datastack_chunk = s->chunk;
    ts->datastack_top = s->stack_top;
    ts->datastack_limit = s->stack_limit;
#if PY_VERSION_HEX < 0x030C0000
    {
        coro_interp_facts *known = &coro_interp_known;
        int limit = *known->limit;
        if (!slot) {
            if (limit == known->limit_replaced_by) {
                *known->limit = limit = known->limit_replaced; /* nobody has set another one since */
            }
            known->limit_replaced_by = -1;
        }
        else if (limit > known->limit_3_11) {
            known->limit_replaced = limit;
            *known->limit = known->limit_replaced_by = limit = known->limit_3_11;
        }
        ts->recursion_limit = limit;
        ts->recursion_remaining = limit - s->used;
    }
    ts->trash_delete_nesting = s->trash_nesting;
#else
    ts->py_recursion_remaining = ts->py_recursion_limit - s->used;
#endif
#if CORO_HAS_C_COUNTER
    ts->c_recursion_remaining = s->c_remaining;
#endif
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000
    ts->trash.delete_nesting = s->trash_nesting;
#endif
#if CORO_HAS_CFRAME
    ts->cframe = s->cframe;
#else
    ts->current_frame = s->frame;
#endif
#if PY_VERSION_HEX >= 0x030E0000
    ts->current_executor = s->executor;
#endif
#if PY_VERSION_HEX >= 0x030F0000
    ts->last_profiled_frame = NULL;
    ts->last_profiled_frame_seq++;
#endif
#if CORO_HAS_LOCAL_RAISE
    if (__builtin_expect(s->monitoring != coro_interp_monitoring(ts), 0)) {
        coro_interp_catch_up(ts);
    }
#endif
    if (__builtin_expect(s->rare != NULL, 0)) {
        coro_interp_load_rare(ts, s);
    }
#if PY_VERSION_HEX < 0x030C0000
    if (ts->c_profilefunc == NULL) {
        ts->c_profilefunc = coro_interp_known.profiler;
    }
    ts->cframe->use_tracing = ts->tracing == 0 && (ts->c_tracefunc || ts->c_profilefunc) ? 255 : 0;
#endif
}

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#endif
