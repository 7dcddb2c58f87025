/* The parts of the interpreter-state switch that need CPython's internal headers or hardly ever run; see interp.h.
   Longer than most files: it has a section for each version of CPython, and they are read side by side. */
#ifndef Py_BUILD_CORE_MODULE
#define Py_BUILD_CORE_MODULE 1
#endif
#include "_switch/interp.h"

#include "_switch/signal_text.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>
#if defined(CORO_VALGRIND)
#include <valgrind/memcheck.h>
#endif

#include "internal/pycore_frame.h"
#include "internal/pycore_interp.h"
#include "internal/pycore_pystate.h"
#if PY_VERSION_HEX >= 0x030D0000
#include "internal/pycore_tstate.h"
#endif
#if PY_VERSION_HEX >= 0x030E0000
#include "internal/pycore_interpframe.h"
#include "internal/pycore_interpframe_structs.h"
#endif

static int no_errno; /* always 0 */
static int always = 1, in_doubt;
coro_interp_facts coro_interp_known = {.ctypes_errno = &no_errno};

/* C stack that one level of the recursion counter is allowed to use, and what is kept free for the last levels. */
#if PY_VERSION_HEX < 0x030C0000
enum { BYTES_PER_LEVEL = 3900, STACK_RESERVE = 256 * 1024 }; /* 4 MiB bear the default limit of 1000 */
#else
enum { BYTES_PER_LEVEL = 4096, STACK_RESERVE = 256 * 1024 };
#endif

void
coro_interp_doubt(void)
{
    in_doubt = 1;
    coro_interp_known.doubt = &always;
}

void
coro_interp_init(coro_interp *s, PyThreadState *ts, PyObject *context, _PyStackChunk *root, PyObject **top,
                 PyObject **limit)
{
    memset(s, 0, sizeof(*s));
    s->exc_info = &s->exc_state;
    s->context = context;
    s->chunk = root;
    s->stack_top = top;
    s->stack_limit = limit;
#if CORO_HAS_C_COUNTER
    s->c_remaining = coro_interp_known.c_limit;
#endif
#if CORO_HAS_CFRAME
    s->base_cframe.previous = &ts->root_cframe;
    s->cframe = &s->base_cframe;
#elif PY_VERSION_HEX >= 0x030F0000
    s->frame = ts->base_frame;
#endif
    (void)ts;
}

#if CORO_HAS_RUNNING_LOOP
#if !CORO_HAS_RUNNING_TASK
_Static_assert(offsetof(_PyThreadStateImpl, asyncio_running_loop) == sizeof(PyThreadState), "see CORO_RUNNING_LOOP");
#endif

static PyObject *
take_loop(PyThreadState *ts, coro_interp_rare *r)
{
    PyObject *loop = CORO_RUNNING_LOOP(ts);
    CORO_RUNNING_LOOP(ts) = NULL;
#if CORO_HAS_RUNNING_TASK
    r->running_task = CORO_RUNNING_TASK(ts);
    CORO_RUNNING_TASK(ts) = NULL;
#else
    (void)r;
#endif
    return loop;
}

static void
put_loop(PyThreadState *ts, coro_interp_rare *r)
{
    CORO_RUNNING_LOOP(ts) = r->running_loop;
#if CORO_HAS_RUNNING_TASK
    CORO_RUNNING_TASK(ts) = r->running_task;
#endif
}

static int
watch_loops(void)
{
    return 0;
}
#else
static PyObject *loop_key; /* under which asyncio keeps the running loop in the thread state's dict */

#if PY_VERSION_HEX < 0x030C0000
/* What asyncio keeps there (Modules/_asynciomodule.c): a new one whenever a loop is set. asyncio has a pointer to the
   last one elsewhere, so that it is changed in place and stays where it is. */
typedef struct {
    PyObject_HEAD
    PyObject *loop; /* None: no loop */
    pid_t pid;
} loop_holder;

static loop_holder *
find_holder(PyThreadState *ts)
{
    PyObject *found = PyDict_GetItemWithError(ts->dict, loop_key);
    return found != NULL && Py_TYPE(found)->tp_basicsize == sizeof(loop_holder) ? (loop_holder *)found : NULL;
}

static PyObject *
take_loop(PyThreadState *ts, coro_interp_rare *r)
{
    loop_holder *holder = find_holder(ts);
    PyObject *loop;
    coro_interp_known.dict_seen = ((PyDictObject *)ts->dict)->ma_version_tag;
    if (holder == NULL || holder->loop == Py_None) {
        return NULL;
    }
    loop = holder->loop;
    holder->loop = Py_NewRef(Py_None);
    r->loop_pid = holder->pid;
    return loop;
}

static void
put_loop(PyThreadState *ts, coro_interp_rare *r)
{
    loop_holder *holder = find_holder(ts);
    PyObject *old = r->running_loop;
    if (holder != NULL) {
        old = holder->loop;
        holder->loop = r->running_loop;
        holder->pid = r->loop_pid;
    }
    coro_interp_known.dict_seen = 0;
    Py_DECREF(old);
}

static int
watch_loops(void)
{
    coro_interp_known.dict_seen = 0;
    return 0;
}
#else
static int watcher = -1;

static int
note_loop(PyDict_WatchEvent event, PyObject *dict, PyObject *key, PyObject *new_value)
{
    if (key == loop_key && new_value != NULL && new_value != Py_None) {
        coro_interp_known.has_loop = 1;
    }
    (void)event;
    (void)dict;
    return 0;
}

/* asyncio's function runs no Python code. What it may fail for is memory: then the loop stays where it is, or is
   forgotten, and asyncio says so. */
static void
set_loop(PyObject *loop)
{
    PyObject *result = PyObject_CallOneArg(coro_interp_known.set_loop, loop);
    if (result == NULL) {
        PyErr_Clear();
    }
    Py_XDECREF(result);
}

static int
find_set_loop(void)
{
    PyObject *module, *function;
    if (coro_interp_known.set_loop == NULL) {
        module = PyDict_GetItemString(PyImport_GetModuleDict(), "_asyncio");
        if (module == NULL || !PyModule_Check(module)) {
            return 0;
        }
        function = PyDict_GetItemString(PyModule_GetDict(module), "_set_running_loop");
        if (function == NULL || !PyCFunction_Check(function)) {
            return 0;
        }
        coro_interp_known.set_loop = Py_NewRef(function);
    }
    return 1;
}

static PyObject *
take_loop(PyThreadState *ts, coro_interp_rare *r)
{
    PyObject *loop = PyDict_GetItemWithError(ts->dict, loop_key);
    if (loop == Py_None || loop == NULL || !find_set_loop()) {
        loop = NULL;
    }
    else {
        Py_INCREF(loop);
        set_loop(Py_None);
    }
    coro_interp_known.has_loop = coro_interp_known.unwatched;
    (void)r;
    return loop;
}

static void
put_loop(PyThreadState *ts, coro_interp_rare *r)
{
    set_loop(r->running_loop); /* the watcher notes it */
    Py_DECREF(r->running_loop);
    (void)ts;
}

static int
watch_loops(void)
{
    if (watcher < 0) {
        watcher = PyDict_AddWatcher(note_loop);
    }
    if (watcher < 0 || PyDict_Watch(watcher, PyThreadState_GetDict()) < 0) {
        PyErr_Clear(); /* others have all the watchers that there may be */
        coro_interp_known.unwatched = 1;
    }
    coro_interp_known.has_loop = 1;
    return 0;
}
#endif
#endif

int
coro_interp_setup(size_t stack_size)
{
    size_t levels = stack_size > STACK_RESERVE * 2 ? (stack_size - STACK_RESERVE) / BYTES_PER_LEVEL
                                                   : stack_size / 2 / BYTES_PER_LEVEL;
    int bears = levels > 1000000 ? 1000000 : (int)levels;
    coro_interp_known.collecting = &PyInterpreterState_Get()->gc.collecting;
    coro_interp_known.doubt = in_doubt ? &always : coro_interp_known.collecting;
#if PY_VERSION_HEX < 0x030C0000
    coro_interp_known.limit_3_11 = bears;
    coro_interp_known.limit = &PyInterpreterState_Get()->ceval.recursion_limit;
    coro_interp_known.limit_replaced_by = -1;
#elif PY_VERSION_HEX < 0x030D0000
    coro_interp_known.c_limit = bears < C_RECURSION_LIMIT ? bears : C_RECURSION_LIMIT;
#elif PY_VERSION_HEX < 0x030E0000
    coro_interp_known.c_limit = bears < Py_C_RECURSION_LIMIT ? bears : Py_C_RECURSION_LIMIT;
#else
    (void)bears;
    coro_interp_known.running_loop = offsetof(_PyThreadStateImpl, asyncio_running_loop);
    coro_interp_known.running_task = offsetof(_PyThreadStateImpl, asyncio_running_task);
#endif
#if !CORO_HAS_RUNNING_LOOP
    if (loop_key == NULL) {
        loop_key = PyUnicode_InternFromString("__asyncio_running_event_loop__");
    }
    if (loop_key == NULL || PyThreadState_GetDict() == NULL) {
        PyErr_NoMemory();
        return -1;
    }
#endif
    return watch_loops();
}

void
coro_interp_ctypes_errno(int *where)
{
    coro_interp_known.ctypes_errno = where != NULL ? where : &no_errno;
}

int
coro_interp_save_rare(PyThreadState *ts, coro_interp *s)
{
    coro_interp_rare *r = PyMem_RawCalloc(1, sizeof(*r));
    if (r == NULL) {
        return -1;
    }
    r->tracefunc = ts->c_tracefunc;
    r->profilefunc = ts->c_profilefunc;
    r->traceobj = ts->c_traceobj;
    r->profileobj = ts->c_profileobj;
    r->tracing = ts->tracing;
    ts->c_tracefunc = ts->c_profilefunc = NULL;
    ts->c_traceobj = ts->c_profileobj = NULL;
    ts->tracing = 0;
#if PY_VERSION_HEX < 0x030C0000
    r->what_event = ts->tracing_what;
    r->raised_type = ts->curexc_type;
    r->raised_value = ts->curexc_value;
    r->raised_traceback = ts->curexc_traceback;
    ts->curexc_type = ts->curexc_value = ts->curexc_traceback = NULL;
    r->delete_later = ts->trash_delete_later;
    ts->trash_delete_later = NULL;
#else
    r->what_event = ts->what_event;
    r->raised = ts->current_exception;
    ts->current_exception = NULL;
#if PY_VERSION_HEX < 0x030D0000
    r->delete_later = ts->trash.delete_later;
    ts->trash.delete_later = NULL;
#else
    r->delete_later = ts->delete_later;
    ts->delete_later = NULL;
#endif
    ts->what_event = -1;
#endif
    r->running_loop = take_loop(ts, r); /* after the exception being raised was put aside: C code is called */
    if (r->running_loop != NULL) {
        r->firstiter = ts->async_gen_firstiter;
        r->finalizer = ts->async_gen_finalizer;
        ts->async_gen_firstiter = ts->async_gen_finalizer = NULL;
    }
    r->ctypes_errno = *coro_interp_known.ctypes_errno;
    if (r->ctypes_errno != 0) {
        *coro_interp_known.ctypes_errno = 0;
    }
    s->rare = r;
    return 0;
}

void
coro_interp_load_rare(PyThreadState *ts, coro_interp *s)
{
    coro_interp_rare *r = s->rare;
    s->rare = NULL;
    if (r->ctypes_errno != 0 && coro_interp_known.ctypes_errno != &no_errno) {
        *coro_interp_known.ctypes_errno = r->ctypes_errno;
    }
    if (r->running_loop != NULL) {
        put_loop(ts, r);
        ts->async_gen_firstiter = r->firstiter;
        ts->async_gen_finalizer = r->finalizer;
    }
    ts->c_tracefunc = r->tracefunc;
    ts->c_profilefunc = r->profilefunc;
    ts->c_traceobj = r->traceobj;
    ts->c_profileobj = r->profileobj;
    ts->tracing = r->tracing;
#if PY_VERSION_HEX < 0x030C0000
    ts->tracing_what = r->what_event;
    ts->curexc_type = r->raised_type;
    ts->curexc_value = r->raised_value;
    ts->curexc_traceback = r->raised_traceback;
    ts->trash_delete_later = r->delete_later;
#else
    ts->what_event = r->what_event;
    ts->current_exception = r->raised;
#if PY_VERSION_HEX < 0x030D0000
    ts->trash.delete_later = r->delete_later;
#else
    ts->delete_later = r->delete_later;
#endif
#endif
    PyMem_RawFree(r);
}

void
coro_interp_set_profile(PyThreadState *ts, void *function)
{
#if PY_VERSION_HEX < 0x030C0000
    PyEval_SetProfile((Py_tracefunc)function, NULL);
    coro_interp_known.profiler = (Py_tracefunc)function;
#endif
    (void)ts;
    (void)function;
}

void
coro_interp_clear(PyThreadState *ts)
{
    PyObject *context;
    if (ts->c_tracefunc != NULL) {
        PyEval_SetTrace(NULL, NULL);
    }
    if (ts->c_profilefunc != NULL) {
        PyEval_SetProfile(NULL, NULL);
    }
    if (coro_interp_has_rare(ts)) {
        coro_interp_rare rare = {0};
        Py_XDECREF(take_loop(ts, &rare));
        Py_XDECREF(rare.running_task);
    }
    if (*coro_interp_known.ctypes_errno != 0) {
        *coro_interp_known.ctypes_errno = 0;
    }
    while ((context = ts->context) != NULL) { /* a finaliser that uses a context variable makes a new one */
        ts->context = NULL;
        ts->context_ver++;
        Py_DECREF(context);
    }
}

struct _PyInterpreterFrame *
coro_interp_top_frame(const coro_interp *s, const char *base, const char *top, const char *copy)
{
#if CORO_HAS_CFRAME
    const char *at = (const char *)s->cframe;
    struct _PyInterpreterFrame *frame;
    if (at >= base && at < top) {
        at = copy + (at - base);
    }
    frame = ((const _PyCFrame *)at)->current_frame;
#else
    struct _PyInterpreterFrame *frame = s->frame;
#endif
    /* An entry frame is innermost while a returning function's locals are released: skip it, wherever it is now. */
    while ((const char *)frame >= base && (const char *)frame < top) {
        frame = ((const struct _PyInterpreterFrame *)(copy + ((const char *)frame - base)))->previous;
    }
    return frame;
}

PyObject *
coro_interp_frame_object(PyThreadState *ts, struct _PyInterpreterFrame *frame)
{
    PyObject *result;
    if (frame == NULL) {
        return NULL;
    }
#if CORO_HAS_CFRAME
    {
        _PyCFrame mine = *ts->cframe, *kept = ts->cframe;
        mine.current_frame = frame;
        mine.previous = kept;
        ts->cframe = &mine;
        result = (PyObject *)PyThreadState_GetFrame(ts);
        ts->cframe = kept;
    }
#else
    {
        struct _PyInterpreterFrame *kept = ts->current_frame;
        ts->current_frame = frame;
        result = (PyObject *)PyThreadState_GetFrame(ts);
        ts->current_frame = kept;
    }
#endif
    return result;
}

PyObject *
coro_interp_handled(const coro_interp *s)
{
    const _PyErr_StackItem *item = s->exc_info;
    while ((item->exc_value == NULL || item->exc_value == Py_None) && item->previous_item != NULL) {
        item = item->previous_item;
    }
    return item->exc_value == Py_None ? NULL : item->exc_value;
}

#if CORO_HAS_ENTRY_FRAMES
#if PY_VERSION_HEX < 0x030D0000
#define ENTRY_MARK(f) ((uintptr_t)(f)->prev_instr)
#else
#define ENTRY_MARK(f) ((uintptr_t)(f)->instr_ptr)
#endif

/* All entry frames point at the same instructions, the ones that leave the interpreter. Learned from the first entry
   frame met; 1 when two were seen to differ, which no released version does. */
static uintptr_t entry_mark;

static inline void
learn_mark(const struct _PyInterpreterFrame *entry)
{
    uintptr_t mark = ENTRY_MARK(entry);
    if (mark != entry_mark) {
        entry_mark = entry_mark == 0 ? mark : 1;
    }
}

/* How many words of base..top say "entry frame": never fewer than there are entry frames. */
static int
count_marks(const char *base, const char *top)
{
    const uintptr_t *word = (const uintptr_t *)base, *end = (const uintptr_t *)top, mark = entry_mark;
    int count = 0;
#if defined(CORO_VALGRIND)
    VALGRIND_DISABLE_ERROR_REPORTING;
#endif
    for (; end - word >= 4; word += 4) {
        if ((word[0] == mark) | (word[1] == mark) | (word[2] == mark) | (word[3] == mark)) {
            count += (word[0] == mark) + (word[1] == mark) + (word[2] == mark) + (word[3] == mark);
        }
    }
    for (; word < end; word++) {
        count += *word == mark;
    }
#if defined(CORO_VALGRIND)
    VALGRIND_ENABLE_ERROR_REPORTING;
    (void)VALGRIND_MAKE_MEM_DEFINED(&count, sizeof(count)); /* what lies in the holes can only add to it */
#endif
    return count;
}
#endif

#if CORO_HAS_ENTRY_FRAMES
static int
ignore_event(PyObject *object, PyFrameObject *frame, int what, PyObject *arg)
{
    (void)object, (void)frame, (void)what, (void)arg;
    return 0;
}
#endif

int
coro_interp_trace_parked(PyThreadState *ts, coro_interp *s, struct _PyInterpreterFrame *frame, PyObject *settrace,
                         PyObject *function)
{
    Py_tracefunc own_function = ts->c_tracefunc, handed_function;
    PyObject *own_object = ts->c_traceobj, *handed_object, *result;
    coro_interp_rare *r = s->rare;
#if CORO_HAS_CFRAME
    _PyCFrame mine = *ts->cframe, *kept = ts->cframe;
#else
    struct _PyInterpreterFrame *kept = ts->current_frame;
#endif
    if (r == NULL) {
        r = PyMem_RawCalloc(1, sizeof(*r));
        if (r == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        r->what_event = -1;
    } else if (r->tracefunc != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the thread is being traced already, by sys.settrace() in it");
        return -1;
    }
    /* From 3.12 on sys.settrace() also prepares the code of all functions that are being executed, which it finds from
       the thread state: so for the time of the call the thread state leads to the parked thread's frames. */
    ts->c_tracefunc = NULL;
    ts->c_traceobj = NULL;
#if CORO_HAS_CFRAME
    mine.current_frame = frame;
    mine.previous = kept;
    ts->cframe = &mine;
#else
    ts->current_frame = frame;
#endif
    result = PyObject_CallOneArg(settrace, function);
#if CORO_HAS_ENTRY_FRAMES
    {
        /* When something is traced already, nothing new is switched on and no code prepared: switch on something that
           is not, for a moment. */
        Py_tracefunc profile_function = ts->c_profilefunc;
        PyObject *profile_object = ts->c_profileobj;
        ts->c_profilefunc = NULL;
        ts->c_profileobj = NULL;
        PyEval_SetProfile(ignore_event, NULL);
        PyEval_SetProfile(NULL, NULL);
        ts->c_profilefunc = profile_function;
        ts->c_profileobj = profile_object;
    }
#endif
#if CORO_HAS_CFRAME
    ts->cframe = kept;
#else
    ts->current_frame = kept;
#endif
#if CORO_HAS_LOCAL_RAISE
    coro_interp_catch_up(ts); /* the caller's own functions could not be found meanwhile */
#endif
    handed_function = ts->c_tracefunc;
    handed_object = ts->c_traceobj;
    ts->c_tracefunc = own_function;
    ts->c_traceobj = own_object;
    if (result == NULL) {
        if (r != s->rare) {
            PyMem_RawFree(r);
        }
        return -1;
    }
    Py_DECREF(result);
    r->tracefunc = handed_function;
    r->traceobj = handed_object;
    s->rare = r;
    return 0;
}

#if PY_VERSION_HEX < 0x030D0000
#define NEXT_INSTRUCTION(f) ((f)->prev_instr)
#else
#define NEXT_INSTRUCTION(f) ((f)->instr_ptr)
#endif

/* The code of a frame, or NULL where the interpreter made the frame for itself. Of the latter kind are
     entry frames (3.12 and newer), on the C stack, one for each time that C code calls the interpreter;
     the bottom of a thread state's chain (3.15);
     the frame between a class that is called and its __init__ (3.13 and newer, once the call is specialised). It lies
     on the data stack like any other and belongs to the thread, but its code is static and read-only. */
static inline PyObject *
executable_of(const struct _PyInterpreterFrame *f)
{
#if PY_VERSION_HEX < 0x030C0000
    return (PyObject *)f->f_code;
#elif PY_VERSION_HEX < 0x030D0000
    return f->owner == FRAME_OWNED_BY_CSTACK ? NULL : (PyObject *)f->f_code;
#elif PY_VERSION_HEX < 0x030E0000
    return f->owner == FRAME_OWNED_BY_CSTACK ? NULL : f->f_executable;
#else
    return f->owner >= FRAME_OWNED_BY_INTERPRETER ? NULL : PyStackRef_AsPyObjectBorrow(f->f_executable);
#endif
}

static inline int
is_of_program(PyObject *executable)
{
#if PY_VERSION_HEX < 0x030D0000
    (void)executable;
    return 1;
#else
    return PyCode_Check(executable) && !(((PyCodeObject *)executable)->co_flags & CO_NO_MONITORING_EVENTS);
#endif
}

static inline PyCodeObject *
code_of(const struct _PyInterpreterFrame *f)
{
    PyObject *executable = executable_of(f);
    return executable != NULL && is_of_program(executable) ? (PyCodeObject *)executable : NULL;
}

#if CORO_HAS_LOCAL_RAISE
void
coro_interp_catch_up(PyThreadState *ts)
{
    struct _PyInterpreterFrame *f = ts->current_frame;
    for (; f != NULL; f = f->previous) {
        PyCodeObject *code = code_of(f);
        if (code != NULL && code->_co_monitoring == NULL) {
            /* All zero is "no events"; CPython fills it in when the function is next entered, and frees it. */
            code->_co_monitoring = PyMem_Calloc(1, sizeof(*code->_co_monitoring));
        }
    }
}
#endif

int
coro_interp_bypass(struct _PyInterpreterFrame *frame, struct _PyInterpreterFrame *outermost, const char *base,
                   const char *top, coro_interp_link *links, int room)
{
#if CORO_HAS_ENTRY_FRAMES
    struct _PyInterpreterFrame *f, *next;
    int count = 0, entries = 0, i;
#define ON_STACK(p) ((const char *)(p) >= base && (const char *)(p) < top)
    while (ON_STACK(frame)) {
        frame = frame->previous;
    }
    /* Many Python frames under few entry frames: when all entry frames but one have been found, the last one is where
       the outermost frame leads, and the frames between need not be fetched from memory, which is what takes time here.
       The C stack is in the cache, so counting on it is cheap, but dearer than to look at a second frame. */
    if (frame != NULL && outermost != NULL && frame != outermost && frame->previous != outermost && entry_mark > 1) {
        entries = count_marks(base, top);
    }
    for (f = frame; f != NULL; f = next) {
        next = f->previous;
        if (ON_STACK(next)) {
            learn_mark(next);
            if (count < room) {
                links[count].frame = f;
                links[count].entry = next;
            }
            count++;
            while (ON_STACK(next)) {
                next = next->previous;
            }
        }
        if (entries == count + 1 && f != outermost && ON_STACK(outermost->previous)
            && ENTRY_MARK(outermost->previous) == entry_mark) {
            next = outermost;
            entries = 0;
        }
    }
    if (count <= room) {
        for (i = 0; i < count; i++) {
            next = links[i].entry;
            while (ON_STACK(next)) {
                next = next->previous;
            }
            links[i].frame->previous = next;
        }
    }
#undef ON_STACK
    return count;
#else
    (void)frame, (void)outermost, (void)base, (void)top, (void)links, (void)room;
    return 0;
#endif
}

void
coro_interp_relink(const coro_interp_link *links, int count)
{
    int i;
    for (i = 0; i < count; i++) {
        links[i].frame->previous = links[i].entry;
    }
}

enum { MOST_FRAMES = 100 };

/* Where the frame is in its code, in bytes, or -1 if it is being entered: tracebacks leave it out, too. `start` is
   where the instructions are, `code` perhaps a copy of the object. */
static int
place_in(const struct _PyInterpreterFrame *f, const PyCodeObject *code, const char *start)
{
    const char *at = (const char *)NEXT_INSTRUCTION(f);
    if (f->owner != FRAME_OWNED_BY_GENERATOR && at < start + code->_co_firsttraceable * (int)sizeof(_Py_CODEUNIT)) {
        return -1;
    }
    return (int)(at - start);
}

static void
dump_line(int line, coro_text *text)
{
    coro_text_add(text, "\", line ");
    if (line < 0) {
        coro_text_add(text, "?");
    } else {
        coro_text_number(text, (unsigned)line);
    }
    coro_text_add(text, " in ");
}

void
coro_interp_dump(int fd, PyThreadState *ts)
{
    struct _PyInterpreterFrame *f;
    coro_text text;
    int depth = 0;
    coro_text_begin(&text, fd);
#if CORO_HAS_CFRAME
    f = ts->cframe->current_frame;
#else
    f = ts->current_frame;
#endif
    for (; f != NULL && depth < MOST_FRAMES; f = f->previous, depth++) {
        PyCodeObject *code = code_of(f);
        int place = code == NULL ? -1 : place_in(f, code, (const char *)_PyCode_CODE(code));
        if (place < 0) {
            continue;
        }
        coro_text_add(&text, "  File \"");
        coro_text_name(&text, code->co_filename, '"');
        dump_line(PyCode_Addr2Line(code, place), &text);
        coro_text_name(&text, code->co_qualname, 0);
        coro_text_add(&text, "\n");
        coro_text_flush(&text);
    }
}

/* What the OS thread of the watchdog has copied; there is one at a time. */
static struct {
    struct _PyInterpreterFrame frame;
    PyCodeObject code;
    union {
        PyUnicodeObject object;
        PyASCIIObject ascii;
        char bytes[sizeof(PyCompactUnicodeObject) + 4 * (CORO_TEXT_LONGEST_NAME + 1)];
    } name;
    union {
        PyBytesObject object;
        char bytes[64 * 1024];
    } lines;
} peeked;

/* A name that was copied, or "?" where it cannot be. */
static void
dump_peeked_name(PyObject *name, coro_peek peek, char quote, coro_text *text)
{
    size_t size, length;
    PyObject *copy = NULL;
    if (peek(&peeked.name, name, sizeof(PyASCIIObject)) && Py_TYPE(&peeked.name.ascii) == &PyUnicode_Type
        && peeked.name.ascii.state.compact && peeked.name.ascii.length >= 0) {
        length = (size_t)peeked.name.ascii.length;
        if (length > CORO_TEXT_LONGEST_NAME) {
            length = CORO_TEXT_LONGEST_NAME + 1;
        }
        size = (peeked.name.ascii.state.ascii ? sizeof(PyASCIIObject) : sizeof(PyCompactUnicodeObject))
            + length * peeked.name.ascii.state.kind;
        if (size <= sizeof(peeked.name) && peek(&peeked.name, name, size)) {
            peeked.name.ascii.length = (Py_ssize_t)length;
            copy = (PyObject *)&peeked.name;
        }
    }
    coro_text_name(text, copy, quote);
}

/* The line of a place in the code that was copied, or -1. */
static int
peeked_line(int place, coro_peek peek)
{
    PyObject *table = peeked.code.co_linetable;
    size_t size;
    if (!peek(&peeked.lines, table, sizeof(PyBytesObject)) || Py_TYPE(&peeked.lines.object) != &PyBytes_Type) {
        return -1;
    }
    size = offsetof(PyBytesObject, ob_sval) + (size_t)Py_SIZE(&peeked.lines.object) + 1;
    if (size > sizeof(peeked.lines) || !peek(&peeked.lines, table, size)) {
        return -1;
    }
    peeked.code.co_linetable = (PyObject *)&peeked.lines;
#if PY_VERSION_HEX < 0x030C0000
    peeked.code._co_linearray = NULL;
#else
    peeked.code._co_monitoring = NULL;
#endif
    return PyCode_Addr2Line(&peeked.code, place);
}

void
coro_interp_dump_blocked(int fd, PyThreadState *ts, coro_peek peek)
{
    struct _PyInterpreterFrame *f;
    coro_text text;
    int depth = 0, place;
#if CORO_HAS_CFRAME
    _PyCFrame innermost;
    f = peek(&innermost, ts->cframe, sizeof(innermost)) ? innermost.current_frame : NULL;
#else
    f = ts->current_frame;
#endif
    coro_text_begin(&text, fd);
    for (; f != NULL && depth < MOST_FRAMES && peek(&peeked.frame, f, sizeof(peeked.frame)); depth++) {
        PyObject *executable = executable_of(&peeked.frame);
        f = peeked.frame.previous;
        if (executable == NULL || !peek(&peeked.code, executable, sizeof(peeked.code))
            || Py_TYPE(&peeked.code) != &PyCode_Type || !is_of_program((PyObject *)&peeked.code)) {
            continue;
        }
        place = place_in(&peeked.frame, &peeked.code,
                         (const char *)executable + offsetof(PyCodeObject, co_code_adaptive));
        if (place < 0 || place >= Py_SIZE(&peeked.code) * (int)sizeof(_Py_CODEUNIT)) {
            continue;
        }
        coro_text_add(&text, "  File \"");
        dump_peeked_name(peeked.code.co_filename, peek, '"', &text);
        dump_line(peeked_line(place, peek), &text);
        dump_peeked_name(peeked.code.co_qualname, peek, 0, &text);
        coro_text_add(&text, "\n");
        coro_text_flush(&text);
    }
}

int
coro_interp_is_of_gil(PyThreadState *ts, uintptr_t address)
{
#if PY_VERSION_HEX < 0x030C0000
    const struct _gil_runtime_state *gil = &_PyRuntime.ceval.gil;
    (void)ts;
#else
    const struct _gil_runtime_state *gil = ts->interp->ceval.gil;
#endif
    return address - (uintptr_t)gil < sizeof(*gil);
}
