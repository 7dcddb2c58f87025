# The life of a thread on its own stack: its first run, its slices, the end of its function, and main's part of its
# burial. Only a thread may release what users gave it, since finalisers may block.

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
            if not me.link.flags & FAILED:      # else _note_failure() was called, and this is None
                me.outcome = <object>result
            Py_DECREF(<object>result)
        else:
            # Not by try/except: that would put a line of this file into the traceback.
            result = coro_take_exception()
            me.outcome = <object>result
            Py_DECREF(<object>result)
            me.link.flags |= FAILED
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


def _note_failure(exc):
    """For groups: what the running thread has failed with, before it returns None. Nobody else is told of it."""
    cdef coro me = <coro>running
    me.outcome = exc
    me.link.flags |= FAILED


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
    me.link.attention = 0
    release_call(me)
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
    me.link.flags |= FORGOTTEN
    n_forgotten += 1
    outcome, extra = me.outcome, me.extra
    me.outcome = me.extra = None
    outcome = extra = None
    coro_interp_clear(loop_ts)      # a finaliser may have set context variables
    n_forgotten -= 1                # or, where it is never left, end_forgetting()
    return 0


cdef int end_forgetting(coro t) noexcept:
    """The thread will never run again, perhaps in the midst of forget_outcome()."""
    global n_forgotten
    if t.link.flags & FORGOTTEN:
        t.link.flags &= ~<uint32_t>FORGOTTEN
        n_forgotten -= 1
    return 0


cdef void thread_entry(void *thread) noexcept:
    """The base of a thread's stack. Deals in bare pointers and calls the rest out of line, because its frame is part of
    what is copied for every parked thread."""
    coro_call_thread(<PyObject *>thread, <PyObject *>(<coro><PyObject *>thread).function,
                     <PyObject *>(<coro><PyObject *>thread).args, <PyObject *>(<coro><PyObject *>thread).kwargs,
                     &(<coro><PyObject *>thread).stack, begin_body, end_body)


cdef int notify() noexcept:
    """Call the exception notifier inside an except block; for one that fails, that is told, and the default one
    called."""
    try:
        used = notifier
        if used is not None:
            try:
                used()
                return 0
            except Shutdown:
                raise
            except BaseException:
                if notifier_failed is not None:
                    notifier_failed(used)
        if default_notifier is not None:
            default_notifier()
    except BaseException:
        pass
    return 0


def set_exception_notifier(function):
    """Have ``function()`` called, in the thread that failed and while ``sys.exc_info()`` tells the error, for every
    exception that leaves a thread (except Shutdown). None restores the default, which writes a traceback to stderr.
    When ``function`` raises, its name and that exception are written to stderr, the default notifier writes the one it
    was called for, and ``function`` stays in use.
    Returns the notifier set before, None for the default. TypeError when it cannot be called."""
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
    t.link.flags |= STARTED
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
    if unlikely(not t.link.flags & STARTED):
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
    if unlikely(t.link.flags & DEAD):
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
    coro_queue_postpone(&queue, &t.link)
    return 0


cdef int report_latency(coro t, int64_t ticks) noexcept:
    try:
        if latency_reporter is not None:
            latency_reporter(t, coro_to_seconds(ticker, ticks))
    except BaseException:
        pass
    return 0
