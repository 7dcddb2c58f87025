# How a loop ends its threads: asked first, then forced, then given up.

cdef int begin_ending(PyThreadState *ts) except -1:
    """Send Shutdown to everybody; handlers are dropped. Calls that were posted become threads before: whoever posted
    them was told that they run."""
    global ending, exit_deadline
    cdef coro t
    take_posts()
    threads = _all_threads()
    ending = GRACE
    exit_deadline = coro_now(ticker) + coro_from_seconds(ticker, exit_grace)
    if the_poller is not None:
        the_poller.drop_handlers()
    for t in threads:
        if t.link.flags & STARTED:
            shut_down(t)
        else:
            # Runnable, but the drain's time was up before its turn: it still runs, as far as its first suspension.
            extra_of(t).shutdown = Shutdown
            t.link.attention |= ATTEND_SHUTDOWN
    return 0


cdef int force_ending() except -1:
    """The grace period is over."""
    global ending, forced_switches
    cdef coro t
    threads = _all_threads()
    ending = FORCED
    forced_switches = n_switches
    for t in threads:
        t.link.attention |= ATTEND_FORCE
        if not t.link.flags & STARTED:
            cancel(t)
        else:
            urge(t)
    return 0


cdef bint hopeless() noexcept:
    """Is nobody left to be forced, or nobody who could run with the memory there is?"""
    global forced_switches
    if queue.postponed == 0 or n_switches == forced_switches:
        return True
    forced_switches = n_switches    # somebody ran since, and may have given memory back
    return False


cdef int give_up() except -1:
    """Threads that would not end are marked dead where they are; their frames are never unwound."""
    cdef coro t
    for t in _all_threads():
        die(t, GIVEN_UP)
        end_forgetting(t)
        # The registry's reference is given up, too, but the frames on its stack hold another that nobody releases.
        try:
            thread_name(t)
            refused.append((t, parked_frame(t)))
        except Exception:
            notify()
        if not t.stack.packed:
            coro_slots_leave(&t.stack, 1)
    return 0
