# Finding threads: by id, all of them, how many.

def get_live_coros():
    """Number of thread objects in memory, those not started and dead ones included."""
    return n_objects


def get_thread_by_id(thread_id):
    """The living thread with the ``id`` ``thread_id``. Raises KeyError if there is none, TypeError if it is no int."""
    cdef PyObject *found
    if not isinstance(thread_id, int):
        raise TypeError(f"a thread's id is an int, not {thread_id!r}")
    check_os_thread()
    found = coro_registry_find(thread_id) if 0 < thread_id < (1 << 63) else NULL
    if found == NULL or (<coro>found).link.flags & FORGOTTEN:
        raise KeyError(thread_id)
    return <object>found


def _all_threads():
    """A list of the registered threads in order of their ids."""
    cdef size_t i
    check_os_thread()
    found = [<object>coro_registry[i].thread for i in range(coro_registry_room) if coro_registry[i].id]
    found.sort(key=lambda t: t.id)
    return found


def _thread_ids():
    """The ids of those that get_thread_by_id() finds."""
    return [t.id for t in _all_threads() if not (<coro>t).link.flags & FORGOTTEN]


def _thread_count():
    return coro_registry_count - n_forgotten
