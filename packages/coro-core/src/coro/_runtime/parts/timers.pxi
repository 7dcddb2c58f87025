# What happens at a certain tick: targets of timers, alarms of waiting threads, and the bombs of time limits. The heap
# is in timers.c. In main, so a target wakes threads and runs no user code.

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
        if t is None or t.link.flags & DEAD:
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
        t.link.attention |= ATTEND_TIMEOUT
        if not t.link.flags & SCHEDULED and self.level >= t.shield_level:
            urge(t)
        return 0

    def __repr__(self):
        return f"<timebomb of {self.target!r}>"


cdef int forget_bomb(coro t, timebomb bomb) except -1:
    cdef Extra extra = <Extra>t.extra
    bomb.noted = False
    extra.bombs.remove(bomb)
    if not extra.bombs:
        t.link.attention &= ~<uint32_t>ATTEND_TIMEOUT
    return 0


cdef double seconds_of(object delta) except? -1.0:
    """`delta` as a number of seconds, see _runtime/arguments.py, which says what is wrong with it: TypeError,
    ValueError."""
    cdef double seconds
    if type(delta) is float:
        seconds = PyFloat_AS_DOUBLE(delta)
        if seconds == seconds:
            return seconds
    elif type(delta) is int:
        seconds = PyLong_AsDouble(delta)
        if seconds != -1.0 or PyErr_Occurred() == NULL:
            return seconds
        PyErr_Clear()       # too large for a float
    return number_of_seconds(delta)


cdef int64_t deadline_after(object delta) except -1:
    """`delta` seconds from now in ticks; TypeError and ValueError say what is wrong with it."""
    cdef double seconds = seconds_of(delta)
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
