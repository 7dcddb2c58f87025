# Looking inside: reports, counters, memory, the watchdog, the profiler.

def _hooks(default_notifier_=None, latency_reporter_=None, deadlock_reporter_=None, notifier_failed_=None):
    """Install the functions that word reports; the scheduler itself writes nothing."""
    global default_notifier, latency_reporter, deadlock_reporter, notifier_failed
    default_notifier = default_notifier_
    latency_reporter = latency_reporter_
    deadlock_reporter = deadlock_reporter_
    notifier_failed = notifier_failed_


def _without_loop(with_timeout_, sleep_relative_):
    """Install what does the work of these two where no loop runs."""
    global with_timeout_elsewhere, sleep_elsewhere
    with_timeout_elsewhere = with_timeout_
    sleep_elsewhere = sleep_relative_


def _loop_now():
    """The tick at which the present pass of the loop began, or the present tick without a loop."""
    return loop_now if loop_ts != NULL else coro_now(ticker)


def _counters():
    """The scheduler's counters, as a dictionary for coro.statistics()."""
    return {
        "switches": n_switches,
        "evacuations": coro_slot_counted.evacuations,
        "evacuated_bytes": coro_slot_counted.evacuated_bytes,
        "restorations": coro_slot_counted.restorations,
        "restored_bytes": coro_slot_counted.restored_bytes,
        "slot_collisions": coro_slot_counted.collisions,
        "stack_trims": coro_slot_counted.trims,
        "passes": n_passes,
        "polls": n_polls,
        "bounded_drains": n_bounded,
        "timers": timers.count,
        "timers_fired": n_timers_fired,
        "threads": coro_registry_count,
        "counted_threads": n_counted,
        "thread_objects": n_objects,
        "spawned": n_spawned,
        "slots": coro_slot_count,
        "slot_size": coro_slot_size,
        "posts_waiting": n_posts,
    }


cdef extern from *:
    """
    /* What a thread is called, borrowed: the name it was given, or that of its function, as far as nothing has to be
       computed for it. */
    static PyObject *coro_known_name(PyObject *label, PyObject *function) {
        if (label == Py_None && function != NULL && PyMethod_Check(function)) {
            function = PyMethod_GET_FUNCTION(function);
        }
        return label == Py_None && function != NULL && PyFunction_Check(function)
               ? ((PyFunctionObject *)function)->func_qualname : label;
    }
    """
    PyObject *coro_known_name(PyObject *, PyObject *) noexcept nogil


cdef void who_runs(coro_who *who) noexcept nogil:
    """For signal handlers: what runs; touches no reference count."""
    who.running = running != NULL
    who.frames_known = running != NULL or not coro_main_away
    if running != NULL:
        who.number = (<coro>running).number
        who.slot = (<coro>running).stack.slot
        who.name = coro_known_name(<PyObject *>(<coro>running).label, <PyObject *>(<coro>running).function)


def _thread_memory(thread):
    """Bytes of a thread as (object, saved stack with what is in its slot, data stack)."""
    cdef coro t = <coro?>thread
    cdef size_t stack = t.stack.capacity
    check_os_thread()
    if t.link.flags & STARTED and not t.link.flags & DEAD and t.stack.slot.owner == <void *>&t.stack:
        stack += t.stack.slot.top - <char *>(&stack if running == <PyObject *>t else t.stack.sp)
    return (sys.getsizeof(t), stack,
            0 if t.stack.root == NULL else
            coro_datastack_size(coro_present_chunk(PyThreadState_Get()) if running == <PyObject *>t
                                else coro_interp_chunk(&t.stack.interp)))


def _trace_thread(thread, settrace, function):
    """Have ``settrace(function)`` act on a suspended thread. ScheduleError when it is the running one or has not run,
    DeadCoroutine when it has ended, RuntimeError when it is traced already."""
    cdef coro t = <coro?>thread
    check_os_thread()
    if t.link.flags & DEAD:
        raise DeadCoroutine(t)
    if not t.link.flags & STARTED or running == <PyObject *>t:
        raise ScheduleError(t)
    if t.stack.packed:
        unpack(t)
    coro_interp_trace_parked(PyThreadState_Get(), &t.stack.interp, coro_slots_frame(&t.stack), <PyObject *>settrace,
                             <PyObject *>function)


def _set_watchdog(double seconds, int fd, int signum):
    """0, an errno, or -1 when the program has a handler for that signal; see coro.set_watchdog()."""
    coro_watchdog_init(&n_switches, &n_passes, who_runs)
    return coro_watchdog_set(seconds, fd, signum)


def _watchdog_after_fork():
    coro_watchdog_after_fork()


cdef void set_profiler(profile_hook hook, void *tracer) noexcept:
    """Have `hook` told of slices and waits, and (3.11) every thread run with the profile function `tracer`. NULL:
    stop."""
    global profiler
    profiler = hook
    coro_interp_set_profile(PyThreadState_Get(), tracer)


def _handled_exception(coro t):
    """The exception that a parked thread handles, or None."""
    cdef PyObject *found
    if running == <PyObject *>t or not t.link.flags & STARTED or t.link.flags & DEAD:
        return None
    found = coro_interp_handled(&t.stack.interp)
    return <object>found if found != NULL else None


def _share_ctypes_errno(bint share):
    """Let each thread have an errno of ctypes of its own. ctypes has one for each OS thread; the calling one is the
    loop's. Returns the object that has it, which must be kept from then on, or None if ctypes has made none yet."""
    cdef PyObject *own = PyThreadState_GetDict()
    if not share:
        coro_interp_ctypes_errno(NULL)
        return None
    capsule = None if own == NULL else (<object>own).get("ctypes.error_object")
    if capsule is not None:
        coro_interp_ctypes_errno(<int *>PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)))
    return capsule


def abi_version():
    """Version of the C-level interface in the .pxd files; see coro._runtime.abi."""
    return CORO_ABI
