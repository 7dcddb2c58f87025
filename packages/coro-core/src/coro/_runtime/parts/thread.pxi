# Thread objects: what a thread is made of, what can be seen of one, and how it comes into the registry. What many do
# not have stands apart in an Extra, so that a parked thread costs little.

@cython.final
@cython.internal
cdef class Extra:
    """What few threads have: kept apart so that the others do not pay for it."""
    cdef object shutdown      # the Shutdown class or instance to raise
    cdef list exceptions      # sent by users, in order
    cdef list bombs           # expired timeouts, in order
    cdef list joiners
    cdef list locals          # weak references to the ThreadLocals that have values for the thread


cdef inline Extra extra_of(coro t):
    if t.extra is None:
        t.extra = Extra.__new__(Extra)
    return <Extra>t.extra


@cython.final
cdef class coro:
    """A thread. ``coro.spawn`` and ``coro.new`` make threads; calling the class is a TypeError. In annotations,
    ``coro.coro[int]`` is a thread whose function returns an int.

    These attributes can only be read:

    * ``id``: a positive number that no other thread of the process ever has. ``name``: a str, see ``set_name``.
    * ``started``: whether it has run. ``scheduled``: whether it is in the run queue. ``dead``: whether it has ended.
    * ``daemon``: whether a loop ends without waiting for it.
    * ``result``: what its function has returned; None before that. ``exception``: what its function has raised, else
      None.
    * ``value``: what its next ``_yield()`` will return. ``waiting_for``, ``stack_size``: see there.

    ``compress`` may be set. If it is true, the thread's stack is compressed whenever it is copied out of its slot.
    """

    def __cinit__(self):
        global n_objects
        n_objects += 1
        self.link.thread = <PyObject *>self
        self.timer.owner = <void *>self

    def __init__(self, *args, **kwargs):
        raise TypeError("threads are made by coro.spawn(function, ...) or coro.new(function, ...), "
                        "not by calling the class")

    def __dealloc__(self):
        global n_objects
        n_objects -= 1

    @classmethod
    def __class_getitem__(cls, item):
        """``coro.coro[int]`` in annotations, a thread whose function returns an int, is just ``coro.coro``."""
        return cls

    # -- looking

    @property
    def id(self):
        return self.number

    @property
    def name(self):
        return thread_name(self)

    @property
    def dead(self):
        return (self.link.flags & DEAD) != 0

    @property
    def started(self):
        return (self.link.flags & STARTED) != 0

    @property
    def scheduled(self):
        return (self.link.flags & SCHEDULED) != 0

    @property
    def daemon(self):
        return (self.link.flags & DAEMON) != 0

    @property
    def value(self):
        return None if self.link.flags & WAKE_ERROR else self.wake_value

    @property
    def result(self):
        return None if self.link.flags & FAILED else self.outcome

    @property
    def exception(self):
        return self.outcome if self.link.flags & FAILED else None

    @property
    def waiting_for(self):
        """What a suspended thread waits for, as a tuple (kind, object): ('read', 5), ('join', <thread>), and so on.
        None if it does not wait."""
        if not self.link.flags & STARTED or self.link.flags & (DEAD | SCHEDULED) or running == <PyObject *>self:
            return None
        if self.kind == WAIT_READ or self.kind == WAIT_WRITE:
            return KINDS[self.kind], (self.ident if self.what is None else self.what)
        return KINDS[self.kind], self.what

    @property
    def stack_size(self):
        """How large the saved stack is, in bytes: a tuple (uncompressed, as it is kept). (0, 0) if there is no stack,
        or if it is in its slot."""
        return self.stack.size, (self.stack.packed if self.stack.packed else self.stack.size)

    @property
    def compress(self):
        return (self.stack.flags & CORO_STACK_COMPRESS) != 0

    @compress.setter
    def compress(self, value):
        if value:
            load_packer()
            self.stack.flags |= CORO_STACK_COMPRESS
        else:
            self.stack.flags &= ~CORO_STACK_COMPRESS

    def __repr__(self):
        return f"<coro thread {self.number} {shown_name(self)} {state_of(self)}>"

    def get_frame(self):
        """The innermost Python frame: of the running thread the caller's, of a suspended thread the one in which it
        waits. None for a thread that has not run, has ended, or runs no Python function.

        Raises WrongThreadError in another OS thread than the loop's."""
        check_os_thread()
        if running == <PyObject *>self:
            return sys._getframe()
        if not self.link.flags & STARTED or self.link.flags & DEAD:
            return None
        return parked_frame(self)

    def set_name(self, name):
        """Give the thread the name ``name``. Returns the thread, so calls can be chained:
        ``coro.spawn(f).set_name("x")``. Raises TypeError if the name is no str."""
        if not isinstance(name, str):
            raise TypeError(f"a thread's name is a str, not {type(name).__name__}: {name!r}")
        self.label = name
        return self

    def get_name(self):
        """The thread's name, a str."""
        return thread_name(self)

    def setName(self, name):
        """Deprecated alias of set_name."""
        return self.set_name(name)

    def getName(self):
        """Deprecated alias of get_name."""
        return thread_name(self)

    def thread_id(self):
        """Deprecated alias of the ``id`` attribute."""
        return self.number

    # -- acting

    def start(self):
        """Start a thread that ``coro.new`` has made. Returns None; the thread runs when the caller waits.

        Raises ScheduleError if it was started or scheduled before; DeadCoroutine if it was cancelled; LoopError while
        the loop ends; WrongThreadError in another OS thread than the loop's."""
        check_os_thread()
        if self.link.flags & DEAD:
            raise DeadCoroutine(self)
        if self.link.flags & (STARTED | SCHEDULED):
            raise ScheduleError(self)
        start_thread(self)

    def schedule(self, value=None):
        """Make the thread runnable. The ``_yield()`` in which it waits returns ``value``. Returns None.

        A thread that has not run is started; the value is then ignored. Raises ScheduleError if the thread is scheduled
        already or is the running one; DeadCoroutine if it has ended; WrongThreadError in another OS thread than the
        loop's."""
        check_os_thread()
        schedule_thread(self, value)

    def raise_exception(self, the_exception, force=True, cancel_start=False):
        """Interrupt the thread: ``the_exception``, a class or an instance, is raised where it waits. Returns None.

        If several exceptions are sent, the thread gets one at each wait: Shutdown first, the others in the order in
        which they were sent.

        * ``force``: if the thread is scheduled already, the exception replaces the value that it would have got. With
          ``force=False``, ScheduleError is raised instead.
        * ``cancel_start``: a thread that has not run is cancelled and never runs. Without it, NotStartedError is
          raised.

        Raises TypeError if ``the_exception`` is not an exception; DeadCoroutine if the thread has ended; ScheduleError
        if it is the running one; WrongThreadError in another OS thread than the loop's."""
        check_os_thread()
        if not (PyExceptionClass_Check(<PyObject *>the_exception)
                or PyExceptionInstance_Check(<PyObject *>the_exception)):
            raise TypeError(f"expected an exception class or instance to raise in the thread, not {the_exception!r}")
        if self.link.flags & DEAD:
            raise DeadCoroutine(self)
        if not self.link.flags & STARTED:
            if not cancel_start:
                raise NotStartedError(self)
            cancel(self)
            return
        if running == <PyObject *>self:
            raise ScheduleError(self)
        if self.link.flags & SCHEDULED and not force:
            raise ScheduleError(self)
        send_exception(self, the_exception)

    def shutdown(self):
        """Ask the thread to end: Shutdown is raised where it waits. Returns None, without waiting for its end.

        A thread that has not run is cancelled. A thread that has ended stays as it is. If the running thread calls this
        for itself, Shutdown is raised at once. Raises WrongThreadError in another OS thread than the loop's."""
        check_os_thread()
        if self.link.flags & DEAD:
            return
        if running == <PyObject *>self:
            raise Shutdown
        shut_down(self)

    def interrupt(self, value=None):
        """Deprecated, use ``raise_exception``: raise ``Interrupted`` in the thread, or ``Interrupted(value)`` if
        ``value`` is not None. Raises what ``raise_exception`` with ``force=False`` raises."""
        import warnings
        warnings.warn("coro.interrupt() is deprecated, use raise_exception()", DeprecationWarning, stacklevel=2)
        self.raise_exception(Interrupted if value is None else Interrupted(value), force=False)

    def resume_with_exc(self, exc_type, exc_value=None):
        """Deprecated, use ``raise_exception``: raise ``exc_type`` in the thread, or ``exc_value`` if that is an
        instance of it, or else ``exc_type(exc_value)``. Raises what ``raise_exception`` with ``force=False`` raises."""
        import warnings
        warnings.warn("coro.resume_with_exc() is deprecated, use raise_exception()", DeprecationWarning, stacklevel=2)
        if exc_value is None:
            exc = exc_type
        elif type(exc_value) is exc_type:
            exc = exc_value
        else:
            exc = exc_type(exc_value)
        self.raise_exception(exc, force=False)

    def join(self, timeout=None):
        """Wait until the thread has ended. Returns None. Any number of threads may wait for it. A thread that is never
        started never ends.

        ``timeout`` is a number of seconds; 0 only looks, None is for ever.

        Raises ``coro.TimeoutError`` if the thread has not ended by then (``threading`` returns None); AssertionError if
        a thread waits for itself; TypeError or ValueError if the timeout is not a number; YieldFromMain outside a
        thread if it would have to wait; WrongThreadError in another OS thread than the loop's."""
        await_end(self, timeout, "join()")

    def get(self, timeout=None):
        """Wait until the thread has ended. Return what its function returned, or raise what it raised::

            page = coro.spawn(fetch, url).get(timeout=10)

        What is raised is the same exception object, with its traceback. Any number of threads may call this, as often
        as they like. The exception notifier is still told of the exception when the thread ends.

        ``timeout`` is a number of seconds; 0 only looks, None is for ever.

        Raises ``coro.CancelledError`` if the thread was shut down (a Shutdown would look like one of the caller), was
        cancelled before it ran, or was given up when its loop ended. Raises ``coro.TimeoutError`` if the thread has not
        ended in time. A thread that ended with a TimeoutError of its own looks the same; its ``dead`` tells the
        difference. Other errors are those of ``join``.

        In gevent this is ``Greenlet.get``, in concurrent.futures ``Future.result``."""
        await_end(self, timeout, "get()")
        return outcome_of(self)

    def set_max_selfish_acts(self, maximum):
        """Let other threads run when ``maximum`` socket operations in a row needed no waiting. Returns the number
        before.

        Raises TypeError if ``maximum`` is no int, ValueError if it is not from 1 to 32768."""
        cdef int before = self.selfish_most
        if not isinstance(maximum, int) or isinstance(maximum, bool):
            raise TypeError(f"expected an int from 1 to 32768, not {maximum!r}")
        if not 1 <= maximum <= 32768:
            raise ValueError(f"expected an int from 1 to 32768, not {maximum}")
        self.selfish_most = maximum
        self.selfish_left = maximum
        return before

    def _yield(self):
        """The module's ``_yield()``, for the running thread only (ScheduleError otherwise)."""
        me = running_thread()
        if me is not self:
            raise ScheduleError(self)
        return suspend(me, WAIT_YIELD, None)


cdef int await_end(coro t, object timeout, str call) except -1:
    cdef coro me
    check_os_thread()
    if timeout is not None:
        check_timeout(timeout)
    if t.link.flags & DEAD:
        return 0
    me = may_wait(timeout, call)
    if me is t:
        raise AssertionError(f"a thread cannot wait for its own end: {call} was called on the running thread")
    if timeout is None:
        stand_for_end(t, me)
        return 0
    limit = begin_limit(me, timeout)
    try:
        stand_for_end(t, me)
    except Interrupted as exc:
        end_limit(limit, timeout, call, exc)
        raise
    finally:
        end_limit(limit, timeout, call, None)
    return 0


cdef int stand_for_end(coro t, coro me) except -1:
    add_joiner(t, me)
    try:
        while not t.link.flags & DEAD:
            suspend(me, WAIT_JOIN, t)
    finally:
        remove_joiner(t, me)
    return 0


cdef object outcome_of(coro t):
    """What get() returns or raises for a thread that has ended."""
    if t.link.flags & FAILED:
        if isinstance(t.outcome, Shutdown):
            raise CancelledError(t, "was shut down") from t.outcome
        raise t.outcome
    if t.link.flags & THREAD_LOST:
        raise CancelledError(t, "was lost when this process was forked")
    if t.link.flags & REFUSED:
        raise CancelledError(t, "was given up when its loop ended")
    if not t.link.flags & STARTED:
        raise CancelledError(t, "was cancelled before it ran")
    return t.outcome


cdef object parked_frame(coro t):
    """The innermost Python frame of a thread that is suspended, or will never run again; None where there is none."""
    cdef PyObject *frame
    if not t.link.flags & STARTED:
        return None
    if t.stack.packed:
        unpack(t)
    frame = coro_interp_frame_object(PyThreadState_Get(), coro_slots_frame(&t.stack))
    if frame == NULL:
        return None
    result = <object>frame
    Py_DECREF(result)
    return result


KINDS = ("yield", "sleep", "read", "write", "event", "join", "object", "slice", "in_thread", "select")


cdef object thread_name(coro t):
    cdef object name = t.label
    if name is None:
        if t.function is None:
            return f"coro {t.number}"
        if PyFunction_Check(<PyObject *>t.function):
            name = <object>coro_function_name(<PyObject *>t.function)
        else:
            name = name_of(t.function)
        t.label = name
    return name


cdef str shown_name(coro t):
    """The thread's name in quotes, on one line and not long."""
    cdef object name = thread_name(t)
    if str.__len__(name) > LONGEST_SHOWN_NAME:
        name = str.__getitem__(name, slice(0, LONGEST_SHOWN_NAME - 3)) + "..."
    return str.__repr__(name)


cdef str state_of(coro t):
    """What the thread does now, in a few words. Of what users gave it only types are named: a repr is their code, and
    that of a lock shows its owner, so that threads which wait for each other would have a text without end."""
    cdef uint32_t flags = t.link.flags
    if flags & THREAD_LOST:
        return "lost in a fork"
    if flags & DEAD:
        if flags & FAILED:
            return f"ended with {PyType_GetQualName(Py_TYPE(t.outcome))}"
        return "ended" if t.outcome is None else "ended with a result"
    if running == <PyObject *>t:
        return "running"
    if flags & SCHEDULED or (flags & STARTED and t.kind == WAIT_SLICE):
        return "scheduled"
    if not flags & STARTED:
        return "new"
    if t.kind == WAIT_SLEEP:
        return "sleeping"
    if t.kind == WAIT_YIELD:
        return "waiting for schedule()"
    if t.kind == WAIT_SELECT:
        return "waiting in select"
    if t.kind == WAIT_OFFLOAD:
        return "waiting for a worker OS thread"
    if t.kind == WAIT_READ or t.kind == WAIT_WRITE:
        return f"waiting for {KINDS[t.kind]} of fd {t.ident if t.what is None else t.what}"
    if t.kind == WAIT_JOIN and isinstance(t.what, coro):
        return f"waiting for the end of thread {(<coro>t.what).number} {shown_name(<coro>t.what)}"
    if t.kind == WAIT_EVENT:
        return "waiting for an event of the kernel"
    return f"waiting for {'something' if t.what is None else PyType_GetQualName(Py_TYPE(t.what))}"


cdef object name_of(object function):
    """What something that can be called is called. In main without asking users' code, which ``__getattr__`` may be."""
    cdef PyObject *f = <PyObject *>function
    name = None
    try:
        if PyMethod_Check(f):
            f = PyMethod_GET_FUNCTION(f)
        try:
            name = PyObject_GenericGetAttr(<object>f, "__qualname__")
        except AttributeError:
            if running != NULL or loop_ts == NULL:
                name = getattr(function, "__qualname__", None)
    except Exception:
        pass    # whatever is wrong with it, the thread gets a name
    if type(name) is not str:
        name = PyType_GetQualName(Py_TYPE(function))
    return name


cdef int refuse_uncallable(object function) except -1:
    raise TypeError(f"expected a function to call in a thread, not {type(function).__name__}: {function!r}; its "
                    "arguments come after it, as in coro.spawn(function, 1, 2), not coro.spawn(function(1, 2))")


cdef int refuse_async(object function) except -1:
    name = name_of(function)
    raise TypeError(f"{name} is an async def function: a call of it makes a coroutine object and runs nothing. "
                    f"Write it with plain def (calls of coro block only their thread), or leave it to asyncio: "
                    f"coro.asyncio_bridge.run({name}(...)) in a thread")


cdef int refuse_async_partial(object function) except -1:
    _check_function(function.func)
    return 0


cdef object wrapper_type = None         # see _know_wrapper()


def _know_wrapper(cls, /):
    """Instances of ``cls`` and its subclasses call what they have as their attribute ``function``: they need as much
    stack as that."""
    global wrapper_type
    wrapper_type = cls


cdef const void *learning_key(object function) except NULL:
    """What threads with the same function share. TypeError for an async def function."""
    cdef PyObject *f = <PyObject *>function
    if PyMethod_Check(f):
        f = PyMethod_GET_FUNCTION(f)
    if PyFunction_Check(f):
        f = PyFunction_GET_CODE(f)
        if unlikely(coro_is_async(f)):
            refuse_async(function)
    elif wrapper_type is not None and coro_is_a(f, <PyObject *>wrapper_type):
        return learning_key(function.function)
    elif unlikely(type(function) is partial):
        refuse_async_partial(function)
        return learning_key(function.func)
    return f


def _check_function(function, /):
    """TypeError for what a thread cannot call, for those that pass the call on."""
    if not callable(function):
        refuse_uncallable(function)
    learning_key(function)


cdef coro make_thread(object function, tuple args, dict kwargs, object name, bint daemon):
    global last_number, n_spawned
    cdef coro t
    cdef PyThreadState *ts = loop_ts if loop_ts != NULL else PyThreadState_Get()
    cdef const void *key
    if not callable(function):
        refuse_uncallable(function)
    key = learning_key(function)
    if name is not None and not isinstance(name, str):
        raise TypeError(f"thread_name is a str, not {type(name).__name__}: {name!r}")
    t = coro.__new__(coro)
    last_number += 1
    t.number = last_number
    t.function = function
    t.args = args
    t.kwargs = kwargs if kwargs else None
    t.label = name
    if daemon:
        t.link.flags = DAEMON
    t.selfish_left = t.selfish_most = selfish_default
    if coro_context_of(ts) != NULL:
        context = <object>PyContext_CopyCurrent()
        Py_DECREF(context)
        t.context = context
    t.stack.key = key
    n_spawned += 1
    return t


cdef int register(coro t) except -1:
    """Make the registry own a reference; the collector need not look at the thread while it is reachable from there."""
    global n_counted
    if coro_registry_add(t.number, <PyObject *>t) < 0:
        raise MemoryError("no memory to register another thread")
    Py_INCREF(t)
    t.link.flags |= REGISTERED
    if not t.link.flags & DAEMON:
        n_counted += 1
    if PyObject_GC_IsTracked(<PyObject *>t):
        PyObject_GC_UnTrack(<PyObject *>t)
    return 0


cdef inline void unregister(coro t) noexcept:
    """The caller takes over the registry's reference."""
    global n_counted, n_helpers
    coro_registry_remove(t.number)
    if not t.link.flags & DAEMON:
        n_counted -= 1
    elif unlikely(t.link.flags & HELPER):
        n_helpers -= 1
    t.link.flags &= ~<uint32_t>(REGISTERED | HELPER)


cdef int start_thread(coro t) except -1:
    if ending != NOT_ENDING:
        raise LoopError("the event loop is ending: no thread can be started any more; "
                        "do it before coro.run() returns, or in the next loop")
    if t.number == 0:
        raise TypeError("this object was not made by coro.spawn(function, ...) or coro.new(function, ...): "
                        "it has nothing to run")
    register(t)
    coro_queue_add(&queue, &t.link)
    return 0


cdef int track(coro t) noexcept:
    if not PyObject_GC_IsTracked(<PyObject *>t):
        PyObject_GC_Track(<PyObject *>t)
    return 0
