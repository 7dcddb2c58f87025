# Functions in whose place another function in C would stand: a debugger that follows the program must not step into
# them, and pickle and xmlrpc.client tell functions in C from others. What they are about is told in `_modules.time` and
# `_modules.imports`.

cdef object native_sleep = time.sleep
cdef object index_of = operator.index
cdef double LONGEST = 2.0 ** 63 / 1e9      # seconds; what the original takes


def sleep(seconds, /):
    """Delay execution of the calling thread for that many seconds; other coro threads run meanwhile, but not while a
    fork is going on."""
    if here() is None or is_forking():
        native_sleep(seconds)
        return
    if not isinstance(seconds, float):
        try:
            seconds = index_of(seconds)
        except TypeError:
            if hasattr(seconds, "__index__"):
                raise
            raise TypeError(
                f"'{type(seconds).__name__}' object cannot be interpreted as an integer or float"
            ) from None
    if seconds != seconds:
        raise ValueError("Invalid value NaN (not a number)")
    if seconds >= LONGEST:
        raise OverflowError("timestamp out of range for platform time_t")
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    sleep_thread(seconds)


cdef object native_acquire = _imp.acquire_lock
cdef object native_release = _imp.release_lock
cdef unsigned long long importing = 0      # the ident of the coro thread that has the import lock, 0: none
cdef Py_ssize_t import_depth = 0
cdef int import_forks = 0                  # how often this process was forked off when that was noted
cdef object import_bells = deque()         # locks that those who wait hold and wait for


cdef int ring_for_import() except -1:
    """Let the first that waits look again."""
    if import_bells:
        (<Lock>import_bells.popleft()).release()
    return 0


def wait_for_imports():
    """Wait until no other coro thread has the import lock. Returns the ident of the calling one."""
    global importing, import_depth
    cdef unsigned long long me = ident_here()
    cdef Lock bell
    while importing != 0 and importing != me:
        if import_forks != coro_n_forks:   # the owner stayed in the parent
            importing = 0
            import_depth = 0
            import_bells.clear()
            break
        bell = Lock.__new__(Lock)
        bell.take()
        import_bells.append(bell)
        try:
            bell.wait(-1)
        finally:
            if bell in import_bells:
                import_bells.remove(bell)
            elif importing == 0:
                ring_for_import()          # for the case that this thread was interrupted and does not come round
    return me


def acquire_lock():
    """Acquires the interpreter's import lock for the current thread; see _imp.acquire_lock."""
    global importing, import_depth, import_forks
    if here() is not None:
        importing = wait_for_imports()
        import_forks = coro_n_forks
        import_depth += 1
    native_acquire()


def release_lock():
    """Release the interpreter's import lock; see _imp.release_lock. RuntimeError if it is not held."""
    global importing, import_depth
    native_release()
    if import_depth and importing == ident_here() and here() is not None:
        import_depth -= 1
        if not import_depth:
            importing = 0
            ring_for_import()
