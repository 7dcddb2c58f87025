# Asking a loop to end, by programs and by signals; and what can be asked about a loop from outside.

cdef int finish_now(PyThreadState *ts) except -1:
    """The loop itself failed (an exception in main, say of a signal handler): end every thread without a grace
    period."""
    global slice_start
    try:
        force_ending()
        while True:
            slice_start = coro_now(ticker)
            if not drain(ts):
                if hopeless():
                    break
                coro_queue_release(&queue)
    finally:
        # Also when the same happened once more meanwhile: the next loop must not meet threads of this one.
        give_up()
    return 0


cdef int exit_deadline_from_now() noexcept:
    """A second request to end only ever shortens the grace period."""
    global exit_deadline
    cdef int64_t deadline = coro_now(ticker) + coro_from_seconds(ticker, exit_grace)
    if deadline < exit_deadline:
        exit_deadline = deadline
    return 0


cdef Py_ssize_t n_awaited():
    """Threads worth waiting for while a loop ends: those that wait for a descriptor or a worker, daemons included, and
    those in a shield, whose own limit is a timer. Timers of others are nothing to wait for: who merely sleeps or waits
    for another thread in its clean-up ends now."""
    cdef coro t
    cdef Py_ssize_t count = 0
    for t in _all_threads():
        if t.link.flags & STARTED and not t.link.flags & (SCHEDULED | DEAD | REFUSED) and (t.shield_level or t.kind in (
                WAIT_READ, WAIT_WRITE, WAIT_EVENT, WAIT_OFFLOAD) or (t.kind == WAIT_SELECT and t.ident)):
            count += 1
    return count


def set_exit(exit_code=0, *, grace=5.0):
    """Ask the running loop to end with ``SystemExit(exit_code)``.

    Every thread gets Shutdown and has ``grace`` seconds to end. After that every call that waits raises Shutdown at
    once, and threads that still do not end are given up. The time is over early when no thread is runnable and none
    waits for a descriptor or a worker, or in a ``coro.shield``; 0 skips it. TypeError or ValueError when ``grace`` is
    not a number of seconds >= 0."""
    global exit_wanted, wanted_code, exit_grace
    if not isinstance(grace, (int, float)) or isinstance(grace, bool):
        raise TypeError(f"expected the grace period in seconds, not {grace!r}")
    if not grace >= 0:
        raise ValueError(f"the grace period must be 0 or more seconds, not {grace}")
    check_os_thread()
    wanted_code = exit_code
    exit_grace = grace
    exit_wanted = True
    if the_poller is not None:
        the_poller.interrupt()


def _request_end(code, grace):
    """The same from a signal handler, whatever code it interrupted."""
    global exit_wanted, wanted_code, exit_grace
    wanted_code = code
    exit_grace = grace
    exit_wanted = True
    if the_poller is not None:
        the_poller.interrupt()


cdef extern from "Python.h":
    int Py_AddPendingCall(int (*)(void *) except -1, void *)

# A thread in which Shutdown is to be raised, if it still runs the same slice by then.
cdef uint64_t shutdown_thread = 0, shutdown_slice = 0
cdef object shutdown_words = None


cdef int raise_shutdown(void *unused) except -1:
    """A pending call of the interpreter: between two bytecodes of the main OS thread."""
    if running != NULL and (<coro>running).number == shutdown_thread and n_switches == shutdown_slice:
        raise Shutdown(shutdown_words)
    return 0


def _raise_shutdown_in(number, slice, words):
    """From any OS thread: raise Shutdown at the next bytecode of thread ``number`` of a loop in the main OS thread,
    unless it has ended the slice that ``_progress()`` told."""
    global shutdown_thread, shutdown_slice, shutdown_words
    shutdown_thread, shutdown_slice, shutdown_words = number, slice, words
    Py_AddPendingCall(raise_shutdown, NULL)     # a full line is tried again at the next look


def _progress():
    """For any OS thread: (slices that have ended, passes of the loop, number of the thread that runs or 0)."""
    return n_switches, n_passes, (<coro>running).number if running != NULL else 0


def _has_run_for():
    """In a signal handler: for how many seconds the thread that it has interrupted has run; 0 if there is none."""
    if running == NULL or not _in_loop_os_thread():
        return 0.0
    return coro_to_seconds(ticker, coro_now(ticker) - slice_start)


def _exit_pending():
    return exit_wanted or ending != NOT_ENDING


def _discard_exit():
    global exit_wanted
    exit_wanted = False


def coro_is_running():
    """Whether an event loop is running in this process."""
    return loop_ts != NULL


def _check_os_thread():
    """WrongThreadError while a loop runs in another OS thread than the caller's."""
    check_os_thread()


def _in_loop_os_thread():
    return loop_ts != NULL and PyThreadState_Get() == loop_ts


def set_deadlock(mode):
    """Set what to do when every counted thread waits and nothing can wake one: 'raise' DeadlockError (the default) or
    'wait' for ever. Returns the mode set before; ValueError for anything else."""
    global deadlock_waits
    before = "wait" if deadlock_waits else "raise"
    if mode not in ("raise", "wait"):
        raise ValueError(f"expected 'raise' or 'wait', not {mode!r}")
    deadlock_waits = mode == "wait"
    return before


def _take_refused():
    """The (thread, frame) pairs of threads that had to be given up at the last end of a loop."""
    global refused
    found = refused
    refused = []
    return found
