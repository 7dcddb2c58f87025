# Interruptions that one thread sends to another, noted on the thread and raised where it is suspended; the rules are
# in scheduler.pyx. What is raised, and in which order, says resumed() in suspension.pxi.

cdef int urge(coro t) except -1:
    """Something deliverable was noted on a suspended thread: make it run, at the end of the queue."""
    if t.link.flags & SCHEDULED:
        coro_queue_move_last(&queue, &t.link)
        t.link.flags |= DELIVER
    elif not t.link.flags & REFUSED:
        t.link.flags |= DELIVER
        coro_queue_add(&queue, &t.link)
    return 0


cdef int send_exception(coro t, object exc) except -1:
    cdef Extra extra = extra_of(t)
    dropped = None
    if isinstance(exc, Shutdown) or (isinstance(exc, type) and issubclass(exc, Shutdown)):
        dropped = (extra.shutdown, extra.exceptions)
        extra.shutdown = exc
        t.link.attention |= ATTEND_SHUTDOWN
        if t.shield_level:
            return 0            # it waits; users' exceptions are delivered inside the shield as ever
        extra.exceptions = None
        t.link.attention &= ~<uint32_t>ATTEND_USER
    else:
        if t.link.attention & ATTEND_SHUTDOWN and not t.shield_level:
            return 0
        if extra.exceptions is None:
            extra.exceptions = []
        extra.exceptions.append(exc)
        t.link.attention |= ATTEND_USER
    return urge(t)


cdef int shut_down(coro t) except -1:
    if t.link.flags & DEAD:
        return 0
    if not t.link.flags & STARTED:
        return cancel(t)
    return send_exception(t, Shutdown)
