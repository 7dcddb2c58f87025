# The relation to POSIX time of a scale that is not coro-core's own.  Included by posix_time.pyx and mach_time.pyx:
# taken over from coro-core, whose relation has a number, whenever that number has changed.


cdef int scale_relation(int64_t *tick, int64_t *usec) except -1:
    global taken, relation_tick, relation_usec
    cdef int64_t now = coro_now(core), before, after, width = INT64_MAX
    cdef int64_t core_tick, core_usec
    cdef uint64_t number
    if coro_clock_due(core, now):
        ticks_tend(now)
    number = ticks_relation(&core_tick, &core_usec)
    if number != taken:
        for _ in range(5):                       # the narrowest: an interrupt may come between
            before = scale_read()
            now = coro_now(core)
            after = scale_read()
            if after - before < width:
                width = after - before
                relation_tick = before + width // 2
                relation_usec = ticks_posix_usec(now)
        taken = number
    tick[0] = relation_tick
    usec[0] = relation_usec
    return 0


cdef object scale_attribute(str module, str name):
    """What a module of this scale has as values that change."""
    cdef int64_t tick, usec
    cdef uint64_t num, den
    if name in ("ticks_per_sec", "ticks_per_usec"):
        scale_rate(&num, &den)
        return num // den if name == "ticks_per_sec" else num // (den * 1000000)
    if name in ("relative_tsc_time", "relative_usec_time", "relative_sec_time"):
        scale_relation(&tick, &usec)
        return {"relative_tsc_time": tick, "relative_usec_time": usec, "relative_sec_time": usec // 1000000}[name]
    raise AttributeError(f"module 'coro.clocks.{module}' has no attribute {name!r}")
