# Is anything left that could wake a counted thread? Asked only when nothing is runnable and nothing is due.

cdef bint others_may_post():
    """Is an OS thread alive that is neither the loop's nor one of our own idle workers?"""
    cdef Py_ssize_t count = 0
    cdef PyThreadState *ts = PyInterpreterState_ThreadHead(PyInterpreterState_Get())
    while ts != NULL:
        count += 1
        ts = PyThreadState_Next(ts)
    return count > 1 + n_own_os_threads


cdef bint deadlocked() except -1:
    """Nothing is left that could wake a counted thread (nothing is runnable; the caller has looked). A thread that
    waits for a descriptor may wake another when something comes, a daemon as well; only a helper of ours does not."""
    return (timers.count == 0 and n_offloaded == 0 and n_io <= n_helpers and n_io == helpers_awaiting()
            and (the_poller is None or the_poller.handlers_registered() == 0))


cdef Py_ssize_t helpers_awaiting() noexcept:
    """How many helpers wait for the kernel."""
    cdef Py_ssize_t count = 0
    cdef size_t i
    cdef coro t
    if n_helpers:
        for i in range(coro_registry_room):
            if coro_registry[i].id:
                t = <coro>coro_registry[i].thread
                count += (t.link.flags & HELPER) != 0 and t.kind in (WAIT_READ, WAIT_WRITE, WAIT_EVENT)
    return count


def _set_helper(bint yes):
    """Say of the running thread whether it is a helper of ours whose waits for the kernel wake nobody: somebody who is
    not there yet would have to come first. Without effect for a thread that is no daemon: that is what the program
    does."""
    global n_helpers
    cdef coro me = running_thread()
    if me.link.flags & DAEMON and yes != ((me.link.flags & HELPER) != 0):
        me.link.flags ^= HELPER
        n_helpers += 1 if yes else -1
