# Hooks into the loop: a random order of threads and an idle clock for coro.testing, polls that notifiers make, and the
# way to the exception notifier for other rooms.

cdef uint64_t next_random() noexcept:
    """xorshift64*: the same numbers on every machine and Python."""
    global order_state
    order_state ^= order_state >> 12
    order_state ^= order_state << 25
    order_state ^= order_state >> 27
    return (order_state * <uint64_t>2685821657736338717) >> 32


cdef void mix_batch() noexcept:
    """Bring the batch into a random order and keep a random part of it for later; without memory it stays as it is."""
    cdef size_t n = 0, i, j, most
    cdef coro_link *link = queue.batch.next
    cdef coro_link **links
    while link != &queue.batch:
        n += 1
        link = link.next
    if n < 2:
        return
    links = <coro_link **>PyMem_RawMalloc(n * sizeof(coro_link *))
    if links == NULL:
        return
    for i in range(n):
        links[i] = queue.batch.next
        coro_list_unlink(links[i])
    most = 1 + next_random() % n
    for i in range(n):
        j = i + next_random() % (n - i)
        link = links[j]
        links[j] = links[i]
        coro_list_append(&queue.batch if i < most else &queue.ready, link)
    PyMem_RawFree(links)


cdef int64_t ask_idle_hook(int64_t wait) except -1:
    """How many ns the poll may wait; 0 when the hook, or a look at the kernel before it, gave somebody something to
    do."""
    the_poller.poll(0)
    return 0 if anything_to_run() else idle_hook(wait)


def _set_idle_hook(hook):
    """Have main call ``hook(wait)`` when nothing is runnable and a poll would wait for ``wait`` ns; it returns how long
    to wait instead, 0 to look again at once. It must be ours and never block. None: nobody is asked."""
    global idle_hook
    idle_hook = hook


def _notify():
    """Call the exception notifier for the exception being handled; for one that fails, that is told, and the default
    one called. A thread goes on afterwards, so what interrupts it meanwhile leaves here; main is never interrupted."""
    if running == NULL:
        notify()
        return
    try:
        used = notifier
        if used is not None:
            try:
                used()
                return
            except Exception:
                if notifier_failed is not None:
                    notifier_failed(used)
        if default_notifier is not None:
            default_notifier()
    except Exception:
        pass


def _interpreter_dict():
    """Where C modules keep what they share in this interpreter."""
    cdef PyObject *found = PyInterpreterState_GetDict(PyInterpreterState_Get())
    return {} if found == NULL else <object>found


def _watch_greenlets(capsule):
    """greenlet was imported: no thread is suspended in a greenlet. `capsule`: its C interface."""
    coro_obstacle_greenlet(<void **>PyCapsule_GetPointer(capsule, "greenlet._C_API"))


def _watch_pybind11(function, module):
    """If it is a function of pybind11's, no thread is suspended in a call of it, or of another one of the same shared
    library. `module`: the name to report. Says whether it is the first one of that library."""
    return coro_obstacle_pybind11(function, module) != 0


def _set_poll_hook(hook):
    """Have main call ``hook(wait)`` wherever it would poll the kernel for at most ``wait`` ns (0: only look). The hook
    calls _poll_kernel() itself, waits for other things as it likes, and must not raise. None: as usual."""
    global poll_hook
    poll_hook = hook


def _poll_kernel(int64_t wait):
    """For the poll hook: poll for at most ``wait`` ns and wake whom it concerns. Says whether anything can run now."""
    the_poller.poll(wait)
    return bool(anything_to_run())


def _note_sleep(bint asleep):
    """For the poll hook: something sleeps in the poller's place, from now on or no longer."""
    global coro_watchdog_asleep
    coro_watchdog_asleep = asleep


def _begin_watch():
    """For the poll hook: a descriptor that becomes readable when the poller has something to report; -2 when it has
    already, -1 where there is no such descriptor. After a descriptor was returned _end_watch() must be called."""
    begin = getattr(the_poller, "begin_watch", None)
    return -1 if begin is None else begin()


def _end_watch():
    """For the poll hook: the descriptor is watched no longer."""
    the_poller.end_watch()


def _idle_facts():
    """What an idle loop waits for: (ns to the next timer or the end of the grace period or None, number of descriptors
    and handlers that something may come from, jobs in worker OS threads, OS threads besides the loop's and our workers,
    switches so far, is the loop ending)."""
    cdef object following = None
    cdef int64_t when = 0
    cdef Py_ssize_t count = -1 - n_own_os_threads
    cdef PyThreadState *ts = PyInterpreterState_ThreadHead(PyInterpreterState_Get())
    while ts != NULL:
        count += 1
        ts = PyThreadState_Next(ts)
    if timers.count:
        when = timers.entries[0].when
    if ending == GRACE and (timers.count == 0 or exit_deadline < when):
        when = exit_deadline
    if timers.count or ending == GRACE:
        following = coro_to_ns_up(ticker, max(when - coro_now(ticker), 0))
    return (following, n_io + (0 if the_poller is None else the_poller.handlers_registered()), n_offloaded,
            count, n_switches, ending != NOT_ENDING)


def _set_random_order(seed):
    """Let chance decide in which order runnable threads run, by this seed (an int); None: in the order they were
    scheduled. Returns the state before, to be given back to this function: an int or None."""
    global order_state
    before = order_state if order_state else None
    order_state = 0 if seed is None else ((<object>seed & 0xFFFFFFFFFFFFFFFF) or 1)
    return before


def _refresh_now():
    """The virtual clock was moved: the present pass of the loop and the present slice go on at the new time. The jump
    is no time that the running thread has used."""
    global loop_now, slice_start
    loop_now = slice_start = coro_now(ticker)
