# Scopes: time limits, shields, and sections without a switch. A limit belongs to the thread that enters its scope,
# and an expiry is seen by the scope it belongs to and by no other.

cdef object limit_exceeded(object exc, object seconds, object limit):
    """The exception to raise for an expired limit; what was noted on the interruption (bytes_sent) stays known. Its
    text is made when somebody asks for it."""
    raised = TimeoutError()
    raised.__dict__.update(exc.__dict__)
    raised.seconds = seconds
    raised._limit = limit
    return raised


cdef inline bint caused_by(object exc, timebomb bomb):
    return isinstance(exc, Interrupted) and len(exc.args) == 1 and exc.args[0] is bomb


cdef coro scope_owner(object scope):
    """The running thread, for operations that open a scope but do not block themselves."""
    if running != NULL and coro_os_thread() == loop_os_thread:
        return <coro>running
    if loop_ts == NULL:
        # Libraries open such blocks, so the reader may never have written one.
        raise YieldFromMain(f"what waits needs a thread of a running loop, and no loop runs: put the program into a "
                            f"function, main, and call coro.run(main) (coro.{type(scope).__name__} was entered; a time "
                            f"limit without a loop is coro.with_timeout(seconds, function))")
    return refuse_switch(PyThreadState_Get())


def with_timeout(delta, function, /, *args, **kwargs):
    """Call ``function(*args, **kwargs)`` with a time limit of ``delta`` seconds (negative counts as 0).

    Returns what the function returns. If the time is over before, the call in which the thread waits is interrupted,
    and ``coro.TimeoutError`` is raised here. An inner ``with_timeout`` does not take the limit of an outer one for its
    own. A function that never waits is never interrupted. TypeError or ValueError when ``delta`` is not a number."""
    cdef timebomb bomb
    cdef coro me
    if loop_ts == NULL:
        return with_timeout_elsewhere(delta, function, *args, **kwargs)
    me = scope_owner(None)
    bomb = timebomb.__new__(timebomb)
    arm(bomb, me, delta)
    try:
        return function(*args, **kwargs)
    except Interrupted as exc:
        if caused_by(exc, bomb):
            raise limit_exceeded(exc, delta, "coro.with_timeout") from None
        raise
    finally:
        disarm(bomb)


@cython.internal
cdef class Limit:
    """What timeout and move_on_after have in common: all but what becomes of the interruption. Not for users."""
    cdef timebomb bomb
    cdef object seconds
    cdef readonly bint expired

    def __init__(self, seconds, /):
        deadline_after(seconds)
        self.seconds = seconds

    def __enter__(self):
        cdef coro me = scope_owner(self)
        if self.bomb is not None:
            raise RuntimeError(f"this coro.{type(self).__name__} is in use already; make a new one for every block")
        self.expired = False
        self.bomb = timebomb.__new__(timebomb)
        arm(self.bomb, me, self.seconds)
        return self


cdef bint leave_limit(Limit scope, object exc) except -1:
    """The block is left with `exc` or None: was it this limit that broke it off?"""
    cdef timebomb bomb = scope.bomb
    scope.bomb = None
    if bomb is None:
        return False
    disarm(bomb)
    if exc is not None and caused_by(exc, bomb):
        scope.expired = True
        return True
    return False


@cython.final
cdef class timeout(Limit):
    """timeout(seconds, /)\n--\n\n\
    ``with coro.timeout(seconds):`` limits a block like ``with_timeout`` limits a call.

    Afterwards ``expired`` tells whether the limit struck. The limit belongs to the thread that enters the block. So do
    not yield inside such a block in a generator: while the generator is suspended the limit goes on for the thread that
    runs it, and strikes there as a bare ``Interrupted``. Closing the generator, in any thread, ends the limit."""

    def __exit__(self, kind, exc, traceback):
        if leave_limit(self, exc):
            raise limit_exceeded(exc, self.seconds, "coro.timeout") from None
        return False


@cython.final
cdef class move_on_after(Limit):
    """move_on_after(seconds, /)\n--\n\n\
    ``with coro.move_on_after(seconds) as scope:`` limits a block without an error: when the time is over, the call
    that the thread waits in is broken off and the program goes on behind the block.

    ``scope.expired`` tells afterwards whether that has happened. A negative number of seconds counts as 0.
    Everything else that leaves the block is raised as ever, the limits of blocks outside too, and for generators the
    same holds as for ``coro.timeout``. The name is trio's; it is ``ignore_after`` in curio, ``Timeout(seconds, False)``
    in gevent::

        with coro.move_on_after(2) as scope:
            answer = ask(peer)
        if scope.expired:
            answer = None

    TypeError or ValueError when ``seconds`` is not a number; RuntimeError for a scope that is in use; YieldFromMain
    outside a thread."""

    def __exit__(self, kind, exc, traceback):
        return leave_limit(self, exc)


# Limits of single calls: `timeout=` of whatever waits. Begun only once it is clear that the thread has to wait, so a
# call that need not wait costs no more than a look at the argument.

cdef int check_timeout(object seconds) except -1:
    """TypeError and ValueError for what is neither None nor a number of seconds."""
    if seconds is not None:
        deadline_after(seconds)
    return 0


cdef coro may_wait(object seconds, str call):
    """The call would have to wait: the running thread, which may do so. TimeoutError when it was only to be tried, so
    nothing else runs then and no thread is needed."""
    if seconds is not None and is_past(deadline_after(seconds)):
        raise limit_of_call(call, seconds)
    return running_thread()


cdef object begin_limit(coro me, object seconds):
    """What end_limit() wants back; None for no limit."""
    cdef timebomb bomb
    if seconds is None:
        return None
    bomb = timebomb.__new__(timebomb)
    arm(bomb, me, seconds)
    return bomb


cdef int end_limit(object limit, object seconds, str call, object exc) except -1:
    """The call ends, by `exc` or None; raises TimeoutError when the limit caused that."""
    if limit is None:
        return 0
    disarm(<timebomb>limit)
    if exc is not None and caused_by(exc, <timebomb>limit):
        raise limit_of_call(call, seconds) from None
    return 0


cdef object limit_of_call(str call, object seconds):
    if seconds_of(seconds) > 0:
        return TimeoutError(f"{call} had to wait for longer than its timeout of {seconds} s")
    return TimeoutError(f"{call} would have to wait, which its timeout of {seconds} s does not allow")


@cython.final
cdef class _CallLimit:
    """The same for a call that is written in Python: ``with _CallLimit(timeout, "group.wait_for_room()"):`` around the
    waiting. Made before anything is done, because it looks at the timeout; entered when it is clear that the call has
    to wait. TimeoutErrors of others pass unchanged."""
    cdef object seconds
    cdef str call
    cdef object limit

    def __init__(self, seconds, str call not None):
        check_timeout(seconds)
        self.seconds = seconds
        self.call = call

    def __enter__(self):
        self.limit = begin_limit(may_wait(self.seconds, self.call), self.seconds)
        return self

    def __exit__(self, kind, exc, traceback):
        limit = self.limit
        self.limit = None
        end_limit(limit, self.seconds, self.call, exc)
        return False


@cython.final
cdef class shield:
    """shield(seconds, /)\n--\n\n\
    ``with coro.shield(seconds):`` protects a clean-up section. Shutdown and limits set outside are held back until
    the block is left, and are delivered at the next wait after it. The section has a limit of its own: after
    ``seconds`` the call in which it waits raises ``coro.TimeoutError``."""
    cdef timebomb bomb
    cdef object seconds
    cdef coro thread

    def __init__(self, seconds, /):
        deadline_after(seconds)
        self.seconds = seconds

    def __enter__(self):
        cdef coro me = scope_owner(self)
        if self.bomb is not None:
            raise RuntimeError("this coro.shield is in use already; make a new one for every block")
        self.thread = me
        self.bomb = timebomb.__new__(timebomb)
        me.shield_level += 1
        try:
            arm(self.bomb, me, self.seconds)
        except BaseException:
            me.shield_level -= 1
            self.bomb = None
            raise
        return self

    def __exit__(self, kind, exc, traceback):
        cdef timebomb bomb = self.bomb
        self.bomb = None
        if bomb is None:
            return False
        self.thread.shield_level -= 1
        self.thread = None
        disarm(bomb)
        if exc is not None and caused_by(exc, bomb):
            raise limit_exceeded(exc, self.seconds, "coro.shield") from None
        return False


@cython.final
cdef class no_switch:
    """no_switch()\n--\n\n\
    ``with coro.no_switch():`` guards code in which no other thread may run: a call that waits inside raises
    NoSwitchError.

    It is for sections that hold a lock of OS threads, and for C code that keeps pointers into its stack where other
    code follows them."""
    cdef coro thread

    def __enter__(self):
        cdef coro me = current_or_none()
        if self.thread is not None:
            raise RuntimeError("this coro.no_switch is in use already; make a new one for every block")
        if me is not None:
            me.no_switch_depth += 1
            self.thread = me
        return self

    def __exit__(self, kind, exc, traceback):
        if self.thread is not None:
            self.thread.no_switch_depth -= 1
            self.thread = None
        return False
