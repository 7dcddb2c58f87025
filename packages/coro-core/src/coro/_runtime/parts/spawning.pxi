# Making threads and letting others run: the functions that programs call most, how the emulation has its part in
# run()'s main thread, and the stand-in for code outside any thread.

cdef object main_wrapper = None, main_started = None     # of the emulation, see _set_main_wrapper()


def new(function, /, *args, thread_name=None, daemon=False, **kwargs):
    """Make a thread that will call ``function(*args, **kwargs)``, and return it. ``start()`` or ``schedule()`` of the
    thread starts it.

    ``thread_name`` is its name, a str; None takes the function's qualified name. A loop does not wait for a ``daemon``
    thread.

    Raises TypeError if the function cannot be called or is an ``async def`` function (see coro.asyncio_bridge), or if
    the name is no str; WrongThreadError in another OS thread than the loop's."""
    check_os_thread()
    return make_thread(function, args, kwargs, thread_name, daemon)


def spawn(function, /, *args, thread_name=None, daemon=False, **kwargs):
    """Start a thread that calls ``function(*args, **kwargs)``, and return it.

    The caller keeps running: the new thread runs for the first time when the caller waits. Its ``get()`` returns what
    the function returns. Without a loop, it waits for the next one.

    ``thread_name`` is the thread's name, a str; None takes the function's qualified name. The loop does not wait for a
    ``daemon`` thread.

    Raises what ``coro.new`` raises, and LoopError while the loop ends."""
    cdef coro t
    check_os_thread()
    t = make_thread(function, args, kwargs, thread_name, daemon)
    start_thread(t)
    return t


def _set_main_wrapper(wrapper, started=None):
    """For the emulation: what run() is given is called through ``wrapper(function, args, kwargs)``, which returns
    another function without arguments, and ``started(thread)`` is told of the thread. None: as usual."""
    global main_wrapper, main_started
    main_wrapper = wrapper
    main_started = started


def _spawn_main(function, args, kwargs):
    """For run(): like spawn(), but every keyword is the function's."""
    cdef coro t
    check_os_thread()
    if main_wrapper is not None:
        _check_function(function)
        t = make_thread(main_wrapper(function, args, kwargs), (), None, None, False)
        start_thread(t)
        main_started(t)
        return t
    t = make_thread(function, args, kwargs, None, False)
    start_thread(t)
    return t


cdef coro spawn_internal(object fun, tuple args, bint daemon):
    cdef coro t = make_thread(fun, args, None, None, daemon)
    start_thread(t)
    return t


def current():
    """The thread that makes this call.

    In code that runs outside any thread (in the scheduler, in another OS thread, without a loop), the result is a
    stand-in with the ``id`` -1 and the ``name`` 'main/scheduler'."""
    if running != NULL and coro_os_thread() == loop_os_thread:
        return <coro>running
    return MAIN


def schedule(thread, value=None):
    """Make ``thread`` runnable. The ``_yield()`` in which it waits returns ``value``. Returns None.

    The same as ``thread.schedule(value)``, which see. Raises what that raises, and TypeError if it is not a thread."""
    check_os_thread()
    if type(thread) is not coro:
        raise TypeError(f"expected a thread (see coro.spawn), not {type(thread).__name__}: {thread!r}")
    schedule_thread(<coro>thread, value)


def _yield():
    """Suspend the running thread until another one calls its ``schedule(value)``, and return that value.

    Raises an exception that is sent to the thread meanwhile (see ``raise_exception``), and YieldFromMain outside a
    thread."""
    # suspend(), but without a frame of its own: every parked thread would keep a copy of it.
    cdef coro me = running_thread()
    if me.link.attention:
        attend(me)
    me.kind = WAIT_YIELD
    coro_stack_park(&me.stack)
    if me.link.flags & (DELIVER | WAKE_ERROR):
        return resumed(me)
    value = me.wake_value
    me.wake_value = None
    return value


def yield_slice():
    """Let all other runnable threads run once, and look at timers and I/O, before going on. Returns None.

    Raises an exception that is sent to the thread meanwhile, and YieldFromMain outside a thread."""
    give_way(running_thread())


class MainStub:
    """Stands for the code that runs outside any thread."""

    id = -1
    name = "main/scheduler"
    dead = False
    started = True
    scheduled = False
    daemon = False

    def get_name(self):
        return self.name

    def __repr__(self):
        return "<coro main/scheduler>"


MAIN = MainStub()
