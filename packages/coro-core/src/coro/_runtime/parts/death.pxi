# How threads die, whichever way, and who is told. Bookkeeping that cannot fail comes first, then joiners and
# registry, then whatever may run users' code.

cdef int release_call(coro t) noexcept:
    """Release what the thread was to call. Not by overwriting the attributes: what is overwritten is released while it
    can still be seen, and a finaliser that looks would get an object that is going away."""
    function, args, kwargs, context = t.function, t.args, t.kwargs, t.context
    t.function = t.args = t.kwargs = t.context = None
    function = args = kwargs = context = None
    return 0


cdef tuple take_call(coro t):
    """The same for a caller that must not release anything now: what the thread was to call."""
    call = (t.function, t.args, t.kwargs, t.context)
    t.function = t.args = t.kwargs = t.context = None
    return call


cdef inline bint die(coro t, int how) noexcept:
    """The one way out of life, for threads that have returned or raised (`how` is ENDED), were cancelled before they
    ran (CANCELLED), would not end (GIVEN_UP) or did not come along in a fork (LOST).

    In here is what cannot fail: out of every list, dead, joiners, registry. The caller does the rest, what may fail or
    run users' code last. True: the registry's reference is the caller's now."""
    cdef bint registered = (t.link.flags & REGISTERED) != 0
    if how != ENDED:        # one that runs is in no list, and its timer is not set
        coro_queue_leave(&t.link)
        coro_timers_remove(&timers, &t.timer)
    t.link.flags |= DEAD if how != LOST else DEAD | THREAD_LOST
    t.link.attention = 0
    if t.extra is not None:
        wake_joiners(<Extra>t.extra, how != LOST)
    if registered:
        unregister(t)
    return registered


cdef void wake_joiners(Extra extra, bint threads_too) noexcept:
    cdef list joiners = extra.joiners
    cdef Py_ssize_t i
    if joiners is not None:
        extra.joiners = None
        for i in range(len(joiners)):
            if type(joiners[i]) is EndNote:
                note_end(<EndNote>joiners[i])
            elif threads_too:
                wake(<coro>joiners[i], None)


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


cdef int add_joiner(coro t, object me) except -1:
    """Have the thread `me` woken, or an EndNote told, when the thread ends, until remove_joiner()."""
    cdef Extra extra = extra_of(t)
    if extra.joiners is None:
        extra.joiners = []
    extra.joiners.append(me)
    return 0


cdef int remove_joiner(coro t, object me) except -1:
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
