# Forking: in a child no thread goes on but the one that forked. The others are dead there without having run any
# clean-up: their frames are never unwound and what they hold is never released.

cdef void at_fork_in_child() noexcept nogil:
    # Inside fork(2), before CPython frees the states of the OS threads that are gone. When one of them ran the loop,
    # its state may have a thread's data stack, and frames of main that other frames lead to.
    global child_unclean
    if loop_ts == NULL:
        return
    if coro_os_thread() != loop_os_thread:
        coro_forget_datastack(loop_ts)
    elif forker != NULL and forker == running and not child_unclean:
        # The interpreter runs hooks of others before ours. Until ours has, the parent's threads stand in the run queue:
        # no switch.
        child_unclean = 1
        forker_depth[0] += 1


pthread_atfork(NULL, NULL, at_fork_in_child)

def _before_fork():
    """In the parent, and not where C code forks without the interpreter's hooks."""
    global forker, forker_depth
    if running != NULL and coro_os_thread() == loop_os_thread:
        forker = running
        forker_depth = &(<coro>running).no_switch_depth


def _after_fork_in_parent():
    """The end of what _before_fork() began."""
    global forker
    if running == forker and coro_os_thread() == loop_os_thread:
        forker = NULL


cdef coro successor = None             # in a forked child: who took the place of run()'s main thread


def _after_fork_in_child():
    """In a forked child: no thread but the one that forked goes on; true if there were others.

    When the loop's own OS thread forked, the loop goes on with that thread, which takes the place of run()'s main
    thread; otherwise there is no loop, but may be started. Without a loop nothing ran that could be lost: threads
    that were spawned for a loop to come are there in both processes."""
    global loop_ts, loop_os_thread, main_thread, running, posts_state, the_poller, ending, exit_wanted, n_io
    global n_posts, n_offloaded
    global n_switches, n_spawned, n_passes, n_polls, n_timers_fired, n_bounded, successor, slots_ready, refused
    global deadlock_reported, main_told, forker, child_unclean
    forker = NULL
    if child_unclean:
        child_unclean = 0
        (<coro>running).no_switch_depth -= 1
    n_switches = n_spawned = n_passes = n_polls = n_timers_fired = n_bounded = 0
    memset(&coro_slot_counted, 0, sizeof(coro_slot_counted))
    if the_poller is not None:
        the_poller.after_fork()
    if loop_ts == NULL:
        return False
    posts.clear()
    n_posts = 0
    n_io = n_offloaded = 0      # of all threads only the running one goes on, which does not wait
    deadlock_reported = False
    successor = None
    if PyThreadState_Get() != loop_ts:
        loop_ts = NULL
        loop_os_thread = NULL
        main_thread = NULL
        running = NULL
        posts_state = 2
        the_poller = None
        ending = NOT_ENDING
        exit_wanted = False
        refused = []
        lose_everybody()
        # One thread may have been running: where its stack ends is unknown, so it cannot be copied away. All stay where
        # they are, and the next loop gets other slots.
        coro_slots_abandon()
        slots_ready = False
        coro_forget_main()
    else:
        lose_all_but_running()
        if main_thread != NULL and main_thread != running:
            main_thread = running
            if running != NULL:
                successor = <coro>running
                main_told = False
    return True


cdef int lose(coro t) noexcept:
    """Mark a thread that did not come along in a fork. Its frames are never unwound and its references never released;
    the registry's joins those."""
    global n_objects
    die(t, LOST)
    end_forgetting(t)
    n_objects -= 1
    return 0


cdef int lose_everybody() except -1:
    cdef coro t
    coro_queue_reset(&queue)
    coro_timers_clear(&timers)
    for t in _all_threads():
        t.link.flags &= ~<uint32_t>(SCHEDULED | IN_SLICE | DELIVER)      # the lists are no more
        lose(t)
    return 0


cdef int lose_all_but_running() except -1:
    cdef coro t
    cdef size_t i
    cdef PyObject *owner
    cdef list doomed = []
    for t in _all_threads():
        if <PyObject *>t == running:
            continue
        lose(t)
        coro_slots_leave(&t.stack, 1)
    for i in range(timers.count):
        owner = <PyObject *>timers.entries[i].timer.owner
        if type(<object>owner) is timebomb:
            owner = <PyObject *>(<timebomb>owner).target
        if type(<object>owner) is coro and (<coro>owner).link.flags & THREAD_LOST:
            doomed.append(<size_t>timers.entries[i].timer)
    for place in doomed:
        coro_timers_remove(&timers, <coro_timer *><size_t>place)
    return 0


def _take_successor():
    """The thread that took main's place in a forked child, or None; for run(), whose result its outcome is."""
    global successor
    found = successor
    successor = None
    return found
