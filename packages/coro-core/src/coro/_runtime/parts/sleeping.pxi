# Sleeping: a wait for nothing but a tick.

cdef int sleep_until_tick(coro me, int64_t when) except -1:
    set_alarm(me, when)
    if me.link.attention:
        try:
            attend(me)
        except BaseException:
            coro_timers_remove(&timers, &me.timer)
            raise
    me.kind = WAIT_SLEEP
    coro_stack_park(&me.stack)
    coro_timers_remove(&timers, &me.timer)
    if me.link.flags & (DELIVER | WAKE_ERROR):
        resumed(me)
    else:
        me.wake_value = None
    return 0


def sleep(seconds, /):
    """Sleep for a number of seconds; with 0 everybody else runs once, like in yield_slice().

    Returns None, early if somebody schedules the thread. As ``time.sleep`` does, it raises TypeError for what is not a
    number, and ValueError for a negative number and NaN. Without a loop it is ``time.sleep``."""
    if seconds_of(seconds) < 0:
        raise ValueError(f"expected a number of seconds to sleep of at least 0, not {seconds!r}")
    sleep_relative(seconds)


def sleep_relative(delta, /):
    """The classic name of ``coro.sleep``, with one difference: a negative number counts as 0.

    Sleeps for ``delta`` seconds; 0 or less lets everybody else run once. Returns None, early if somebody
    schedules the thread. TypeError or ValueError when it is not a number."""
    cdef coro me
    cdef int64_t when
    if loop_ts == NULL:
        return sleep_elsewhere(delta)
    me = running_thread()
    when = deadline_after(delta)
    if when <= coro_now(ticker):
        give_way(me)
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
        give_way(me)
    else:
        sleep_until_tick(me, tick)
