# Suspending the running thread and waking another: who may block at all, the kinds of waits, and the way back onto
# the CPU. The hot part of the scheduler beside drain.pxi; a wait comes in three steps for callers that want little on
# the stack which a parked thread leaves behind.

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
    if coro_interp_known.doubt != coro_interp_known.collecting:
        look_at_others(me)
    return me


cdef int look_at_others(coro me) except -1:
    """Raise if a switch would tear what another library keeps for the OS thread."""
    cdef PyObject *module = NULL
    cdef int obstacle = coro_obstacle_now(me.stack.slot.top, &module)
    if obstacle == CORO_GREENLET:
        raise NoSwitchError("a blocking operation was tried in a greenlet; greenlet knows OS threads only, and would "
                            "mix up the greenlets of two threads of the loop. Wait in the main greenlet, or run the "
                            "function that uses greenlets in an OS thread: coro.in_thread(function, ...)")
    if obstacle == CORO_PYBIND11:
        raise NoSwitchError(f"a blocking operation was tried in Python code that C++ code of {<object>module} calls; "
                            "pybind11 knows OS threads only, and would abort the process if another thread of the loop "
                            "ran meanwhile. Call that function of the module in an OS thread: "
                            "coro.in_thread(function, ...)")
    return 0


cdef PyObject *running_borrowed() except NULL:
    if likely(running != NULL and coro_os_thread() == loop_os_thread and not (<coro>running).no_switch_depth
              and not coro_interp_known.doubt[0]):
        return running
    refuse_switch(PyThreadState_Get())
    return running


cdef coro running_thread():
    return <coro>running_borrowed()


cdef object whoever():
    """Who calls: the running thread, or the stand-in for main. Raises only WrongThreadError."""
    check_os_thread()
    return <coro>running if running != NULL else MAIN


cdef coro current_or_none():
    """The running thread if it is that which calls, None in another OS thread and in main."""
    if running != NULL and coro_os_thread() == loop_os_thread:
        return <coro>running
    return None


def _note_collection(phase, info):
    """For gc.callbacks: remember which OS thread the collector runs in (another one's does not hinder a switch)."""
    global collecting_in
    collecting_in = PyThread_get_thread_ident() if phase == "start" else 0


cdef bint wake(coro t, object value) noexcept:
    if unlikely(t.link.flags & (SCHEDULED | DEAD | REFUSED | STARTED) != STARTED or running == <PyObject *>t):
        return False
    t.wake_value = value
    coro_queue_add(&queue, &t.link)
    coro_stack_prefetch(&t.stack)
    return True


cdef bint wake_error(coro t, object exc) noexcept:
    if not wake(t, exc):
        return False
    t.link.flags |= WAKE_ERROR
    return True


cdef bint deliverable(coro t):
    cdef uint32_t a = t.link.attention
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
    if me.link.attention & ATTEND_FORCE:
        me.refusals += 1
        if me.refusals <= MOST_REFUSALS:
            raise Shutdown("the event loop has ended; this thread must end too")
        me.link.flags |= REFUSED
        return 0
    if deliverable(me):
        me.link.flags |= DELIVER
        coro_queue_add(&queue, &me.link)
    return 0


cdef object resumed(coro me):
    """Back on the CPU with DELIVER or WAKE_ERROR set: raise what is due."""
    cdef Extra extra
    cdef timebomb bomb
    cdef uint32_t flags = me.link.flags
    value = me.wake_value
    me.wake_value = None
    what = me.what
    me.what = None
    me.link.flags &= ~<uint32_t>(DELIVER | WAKE_ERROR)
    if flags & DELIVER:
        extra = <Extra>me.extra if me.extra is not None else None
        if me.link.attention & ATTEND_FORCE:
            raise Shutdown("the event loop has ended; this thread must end too")
        if me.link.attention & ATTEND_SHUTDOWN and me.shield_level == 0:
            exc, dropped = extra.shutdown, extra.exceptions
            extra.shutdown = None
            extra.exceptions = None
            me.link.attention &= ~<uint32_t>(ATTEND_SHUTDOWN | ATTEND_USER)
            dropped = None      # last: a finaliser of one of them may block
            raise fresh(exc)
        if me.link.attention & ATTEND_USER:
            exc = extra.exceptions.pop(0)
            if not extra.exceptions:
                me.link.attention &= ~<uint32_t>ATTEND_USER
            raise fresh(exc)
        if me.link.attention & ATTEND_TIMEOUT:
            for bomb in extra.bombs:
                if bomb.level >= me.shield_level:
                    exc = limit_expired(bomb, me, what)
                    forget_bomb(me, bomb)
                    raise exc
    if flags & WAKE_ERROR:
        raise value
    return value


cdef object limit_expired(timebomb bomb, coro me, object what):
    """What breaks off the wait. It has with it what the text of the TimeoutError needs, but no thread and nothing that
    might lead back to the exception."""
    exc = Interrupted(bomb)
    if type(what) is coro:
        what = (<coro>what).number
    elif me.kind == WAIT_READ or me.kind == WAIT_WRITE:
        what = me.ident if what is None else what
    elif what is not None:
        what = type(what)
    exc._wait = (me.number, thread_name(me), KINDS[me.kind], what)
    return exc


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
    if me.link.attention:
        attend(me)
    me.kind = kind
    if what is not None:
        me.what = what
    coro_stack_park(&me.stack)
    if me.link.flags & (DELIVER | WAKE_ERROR):
        return resumed(me)
    if what is not None:
        me.what = None
    value = me.wake_value
    me.wake_value = None
    return value


cdef object suspend_outside(coro me, int kind, object what, bint os_thread):
    """suspend() until something comes from outside the loop: from the kernel or, with `os_thread`, from another OS
    thread. While somebody waits like this there is no deadlock. Nothing can be raised while the wait is counted."""
    global n_io, n_offloaded, offloaded_at
    if me.link.attention:
        attend(me)
    me.kind = kind
    me.what = what
    if os_thread:
        offloaded_at = coro_now(ticker)
        n_offloaded += 1
        coro_stack_park(&me.stack)
        n_offloaded -= 1
    else:
        n_io += 1
        coro_stack_park(&me.stack)
        n_io -= 1
    if me.link.flags & (DELIVER | WAKE_ERROR):
        return resumed(me)
    me.what = None
    value = me.wake_value
    me.wake_value = None
    return value


cdef object suspend_fd(coro me, int kind, int fd):
    """The same for a descriptor."""
    if me.link.attention:
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
    """True: call raise_due(me), which raises."""
    global n_io
    n_io -= 1
    if me.link.flags & (DELIVER | WAKE_ERROR):
        return True
    if me.wake_value is not None:
        me.wake_value = None
    return False


cdef int raise_due(coro me) except -1:
    resumed(me)
    return 0


cdef int begin_slice(coro me) except -1:
    """The thread is about to let every other one run."""
    if me.link.attention:
        attend(me)
    if not me.link.flags & (SCHEDULED | REFUSED):
        coro_queue_add_slicer(&queue, &me.link)
    me.kind = WAIT_SLICE
    return 0


cdef int end_slice(coro me) except -1:
    if me.link.flags & (DELIVER | WAKE_ERROR):
        resumed(me)
    else:
        me.wake_value = None
    return 0


cdef int give_way(coro me) except -1:
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
    return coro_queue_busy(&queue)


cdef bint is_foreign() noexcept:
    """Does a loop run, and in another OS thread than the caller's?"""
    return loop_ts != NULL and coro_os_thread() != loop_os_thread


cdef void count_io(int delta) noexcept:
    global n_io
    n_io += delta


cdef int schedule_thread(coro t, object value) except -1:
    if t.link.flags & DEAD:
        raise DeadCoroutine(t)
    if t.link.flags & SCHEDULED or running == <PyObject *>t:
        raise ScheduleError(t)
    if not t.link.flags & STARTED:
        start_thread(t)
    else:
        wake(t, value)
    return 0
