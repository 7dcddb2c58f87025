# The loop itself: pass after pass, from the first poller to the last post.

cdef int64_t poll_timeout(int64_t longest_ns) noexcept:
    cdef int64_t wait, now
    if anything_to_run():
        return 0
    wait = longest_ns
    if timers.count:
        now = coro_now(ticker)
        if timers.entries[0].when <= now:
            return 0
        wait = min(wait, coro_to_ns_up(ticker, timers.entries[0].when - now))
    if unlikely(ending == GRACE):
        now = coro_now(ticker)
        wait = 0 if exit_deadline <= now else min(wait, coro_to_ns_up(ticker, exit_deadline - now))
    return wait


cdef bint looks_with_gil() noexcept:
    """For pollers, in main: is the kernel to be asked once with the GIL, before a sleep without it?

    An OS thread that waits for the GIL is served when nobody has released it for a switch interval. A release of a
    moment wakes it, and where it comes too late, its interval begins anew. Beside a loop that finds events at every
    look that may go on for ever. Where it comes in time, it takes a whole interval for each pass of the loop. So the
    GIL is kept where there are events, except while a worker has a job that may be short: luck serves that sooner."""
    if PyThreadState_Next(PyInterpreterState_ThreadHead(PyInterpreterState_Get())) == NULL:
        return False
    return n_offloaded == 0 or coro_now(ticker) - offloaded_at >= short_job


cdef const int64_t *slice_beginning() noexcept:
    """Where the tick stands at which the running thread's slice has begun."""
    return &slice_start


cdef int *sleep_note() noexcept:
    """For pollers: what is 1 while they sleep, without the GIL where others may want it."""
    return &coro_watchdog_asleep


cdef int nap(PyThreadState *ts) noexcept:
    """Main has no memory for what it has to do. Other OS threads may give some back, and so may a signal handler."""
    global running
    coro_enter_main(ts)
    running = NULL
    with nogil:
        usleep(MEMORY_LOOK_US)
    return 0


cdef int run_passes(PyThreadState *ts, int64_t longest_ns) except -1:
    """Pass after pass, until the loop has ended. MemoryError: call it again, it goes on where it was."""
    global loop_now, slice_start, n_passes, n_polls, exit_wanted, trim_at, end_reason, end_code, deadlock_reported
    cdef int64_t wait
    while True:
        n_passes += 1
        loop_now = slice_start = coro_now(ticker)
        if unlikely(coro_clock_due(ticker, loop_now)):
            tend(loop_now)
            slice_start = coro_now(ticker)
        if timers.count and timers.entries[0].when <= loop_now:
            fire_timers(loop_now)
            slice_start = coro_now(ticker)      # what timers did is not the time of the first thread
        coro_queue_release(&queue)
        if unlikely(n_posts != 0):
            take_posts()
            slice_start = coro_now(ticker)
        if unlikely(main_drops and ending == NOT_ENDING):
            spawn_internal(_empty_drops, (), True)
        if drain(ts) and timers.count:
            fire_timers(coro_now(ticker))
        if unlikely(main_thread != NULL and (<coro>main_thread).link.flags & DEAD and not exit_wanted
                    and end_reason == "done"):
            end_reason = "main"
            begin_ending(ts)
        if unlikely(exit_wanted):
            exit_wanted = False
            if end_reason == "done" or end_reason == "main":
                end_reason, end_code = "exit", wanted_code
            if ending == NOT_ENDING:
                begin_ending(ts)
            else:
                exit_deadline_from_now()
        if unlikely(ending != NOT_ENDING):
            if coro_registry_count == 0:
                return 0
            if ending == GRACE and (coro_now(ticker) >= exit_deadline
                                    or (not anything_to_run() and n_awaited() == 0)):
                force_ending()
            elif ending == FORCED and not coro_queue_busy(&queue) and hopeless():
                give_up()
                return 0
            if ending == FORCED:
                continue
        elif unlikely(n_counted == 0 and n_posts == 0):
            # Daemon threads are ended in order, too.
            begin_ending(ts)
            continue
        wait = poll_timeout(longest_ns)
        if unlikely(idle_hook is not None and wait != 0):
            wait = ask_idle_hook(wait)
        if wait != 0:
            if unlikely(ending == NOT_ENDING and deadlocked()):
                if deadlock_waits or others_may_post():
                    if not deadlock_waits:
                        # The last of the other OS threads may end without a word: look again soon.
                        wait = min(wait, DEADLOCK_LOOK_NS)
                        if not deadlock_reported and deadlock_reporter is not None:
                            deadlock_reported = True
                            deadlock_reporter(True)
                else:
                    end_reason, end_code = "deadlock", deadlock_reporter(False)
                    begin_ending(ts)
                    continue
        elif unlikely(queue.postponed != 0 and not coro_queue_busy(&queue) and n_posts == 0):
            nap(ts)
        if unlikely(loop_now >= trim_at):
            trim_at = loop_now + trim_every
            coro_slots_trim()
        n_polls += 1
        if unlikely(profiler != NULL and wait != 0):
            profiler(PROFILE_WAIT_BEGINS, NULL, 0)
        if likely(poll_hook is None):
            the_poller.poll(wait)
        else:
            poll_hook(wait)
        if unlikely(profiler != NULL and wait != 0):
            profiler(PROFILE_WAIT_ENDS, NULL, 0)


def _loop(double longest, thread=None):
    """Run the loop until no counted thread is left or an exit was asked for.

    ``longest`` is the most seconds that one poll may wait; ``thread`` is run()'s main thread, whose end ends the loop.
    Returns (reason, code): 'done', 'exit', or 'deadlock' with the report's exception as code."""
    global loop_ts, loop_os_thread, ending, exit_wanted, running, posts_state, the_poller, any_ran, drain_budget
    global latency_limit, short_job, main_thread, deadlock_reported, exit_grace, trim_at, trim_every, main_told
    global end_reason, end_code, n_io, n_offloaded
    cdef PyThreadState *ts = PyThreadState_Get()
    cdef int64_t longest_ns = CORO_TICKS_FOREVER if longest > 4e9 else <int64_t>(longest * 1e9)
    cdef coro main = thread
    if loop_ts != NULL:
        if ts != loop_ts:
            check_os_thread()
        raise LoopError("an event loop is running in this OS thread already; use coro.spawn() or a plain call")
    if not slots_ready:
        map_slots(slots_wanted, slot_size_wanted)
    coro_interp_setup(coro_slot_size)
    coro_datastack_setup()
    coro_guard_enter(who_runs)
    coro_obstacle_loop()
    any_ran = True
    drain_budget = coro_from_seconds(ticker, 0.010)
    short_job = coro_from_seconds(ticker, 0.020)
    trim_every = coro_from_seconds(ticker, 1.0)  # a system call for each slot that ran: not at every pass
    trim_at = 0
    latency_limit = coro_from_seconds(ticker, 0.2 * latency_factor) if latency_factor else CORO_TICKS_FOREVER
    loop_ts = ts
    loop_os_thread = coro_os_thread()
    coro_watchdog_enter(ts)
    ending = NOT_ENDING
    posts_state = 1
    deadlock_reported = False
    n_io = n_offloaded = 0      # threads that the last loop had to give up never left their waits
    if not exit_wanted:
        exit_grace = DEFAULT_GRACE
    main_thread = <PyObject *>main if main is not None else NULL
    main_told = False
    end_reason, end_code = "done", 0
    try:
        while True:
            try:
                poller()
                if end_reason != "done" and ending == NOT_ENDING:
                    begin_ending(ts)    # there was no memory for it
                run_passes(ts, longest_ns)
                break
            except MemoryError:
                nap(ts)
                check_signals()
    finally:
        coro_enter_main(ts)
        running = NULL
        try:
            if coro_registry_count:
                finish_now(ts)
        finally:
            coro_watchdog_leave()
            coro_guard_leave()
            try:
                take_last_posts()
            finally:
                loop_ts = NULL
                loop_os_thread = NULL
                main_thread = NULL
                exit_wanted = False
                ending = NOT_ENDING
                p = the_poller
                the_poller = None
                if p is not None:
                    p.shut()
    reason, code, told = end_reason, end_code, main_told
    end_code = 0
    main_drops.clear()      # a finaliser may run a loop of its own here, with an end of its own
    main_told = told
    return reason, code
