# Methods of threading.Condition and threading.Event, compiled. The classes stay the standard library's: what is here
# takes the place of their methods in Python, works on the same attributes, and so gets on with those that a subclass
# has of its own. Queues, semaphores, barriers, executors and timers are Python code on top of these two.
#
# Where the lock is one of ours and nobody has changed how it is taken, it is not asked by its methods: a wait and the
# notification that ends it then cost about what two locks cost. In all other cases the methods are called that the
# standard library calls, in the same order.

cdef object threading_condition = None     # the class, see know_condition()
cdef object the_deque = deque


def know_condition(cls):
    """``cls`` is threading.Condition: an instance of it, and not of a subclass, has no methods of its own."""
    global threading_condition
    threading_condition = cls


cdef inline Guard plain_lock(condition):
    """The lock of a condition if both are what they seem; None: ask their methods."""
    if type(condition) is threading_condition:
        lock = condition._lock
        if type(lock) is RLock or type(lock) is Lock:
            return <Guard>lock
    return None


cdef inline bint is_owned(Guard lock) noexcept:
    """What Condition._is_owned() says: of a lock without an owner, that somebody has it."""
    if type(lock) is RLock:
        return (<RLock>lock).count > 0 and (<RLock>lock).owner == ident_here()
    return lock.taken


cdef int enter(Guard lock) except -1:
    cdef unsigned long long me = 0
    if type(lock) is RLock:
        me = ident_here()
        if (<RLock>lock).count and (<RLock>lock).owner == me:
            (<RLock>lock).count += 1
            return 0
    if not lock.taken:
        lock.take()
    else:
        lock.wait(-1)
    if type(lock) is RLock:
        (<RLock>lock).owner = me
        (<RLock>lock).count = 1
    return 0


cdef int enter_again(Guard lock, unsigned long long owner, Py_ssize_t count) except -1:
    """At the end of a wait the lock is taken whatever happens, because whoever waited releases it: an interruption
    meanwhile is raised when it is. Not when there is no waiting any more, and not for one who is told to end again and
    again: a loop that ends does not wait for ever."""
    cdef int told_to_end = 0
    interruption = None
    while lock.taken:
        try:
            lock.wait(-1)
            break
        except (MemoryError, NoSwitchError, YieldFromMain):
            raise
        except Shutdown as exc:
            told_to_end += 1
            if told_to_end == 3:
                raise
            interruption = exc
        except BaseException as exc:
            interruption = exc
    else:
        lock.take()
    if type(lock) is RLock:
        (<RLock>lock).owner = owner
        (<RLock>lock).count = count
    if interruption is not None:
        raise interruption
    return 0


cdef int leave_plain(Guard lock) except -1:
    """Release it, without giving way: for the middle of something."""
    if type(lock) is RLock:
        if not (<RLock>lock).count or (<RLock>lock).owner != ident_here():
            raise RuntimeError("cannot release un-acquired lock")
        (<RLock>lock).count -= 1
        if not (<RLock>lock).count:
            (<RLock>lock).owner = 0
            lock.pass_on()
    elif not lock.taken:
        raise RuntimeError("release unlocked lock")
    else:
        lock.pass_on()
    return 0


cdef bint wait_for_notification(Lock waiter, timeout) except -1:
    cdef double seconds
    if timeout is None:
        if waiter.taken:
            waiter.wait(-1)
        else:
            waiter.take()
        return True
    if timeout <= 0:                       # not so NaN, which is an error
        return waiter.acquire(False)
    seconds = checked_timeout(True, timeout)
    if not waiter.taken:
        waiter.take()
        return True
    return waiter.wait(seconds)


cdef bint wait_plainly(condition, Guard lock, timeout) except -1:
    """Condition.wait() where the lock is ours."""
    cdef Lock waiter
    cdef unsigned long long owner = 0
    cdef Py_ssize_t count = 0
    cdef bint notified = False
    if not is_owned(lock):
        raise RuntimeError("cannot wait on un-acquired lock")
    waiter = Lock.__new__(Lock)
    waiter.take()
    waiters = condition._waiters
    waiters.append(waiter)
    if type(lock) is RLock:
        owner, count = (<RLock>lock).owner, (<RLock>lock).count
        (<RLock>lock).owner = 0
        (<RLock>lock).count = 0
    lock.pass_on()
    try:
        notified = wait_for_notification(waiter, timeout)
    finally:
        try:
            enter_again(lock, owner, count)
        finally:
            if not notified:
                withdraw(condition, waiter)
    return notified


cdef int withdraw(condition, waiter) except -1:
    """Somebody waits no longer. If he was notified all the same, the next one is in his place."""
    try:
        condition._waiters.remove(waiter)
    except ValueError:
        wake_waiters(condition, 1)
    return 0


cdef int wake_waiters(condition, Py_ssize_t n) except -1:
    """The first `n` that wait are told. One that was given up may be open already: the next one is told instead."""
    waiters = condition._waiters
    while n > 0 and waiters:
        waiter = waiters[0]
        if type(waiter) is Lock:
            if (<Lock>waiter).taken:
                (<Lock>waiter).pass_on()
                n -= 1
        else:
            try:
                waiter.release()
            except RuntimeError:
                pass
            else:
                n -= 1
        # Another thread may have been here meanwhile.
        if type(waiters) is the_deque and len(waiters) and waiters[0] is waiter:
            waiters.popleft()
        else:
            try:
                waiters.remove(waiter)
            except ValueError:
                pass
    return 0


@cython.binding(True)
def condition_enter(self):
    cdef Guard lock = plain_lock(self)
    if lock is None:
        return self._lock.__enter__()
    enter(lock)
    return True


@cython.binding(True)
def condition_exit(self, kind, exc, traceback, /):
    cdef Guard lock = plain_lock(self)
    if lock is None:
        return self._lock.__exit__(kind, exc, traceback)
    leave_plain(lock)
    be_fair()


@cython.binding(True)
def condition_wait(self, timeout=None):
    """Wait until notified or until a timeout occurs; see threading.Condition.wait. False: time was up. RuntimeError
    unless the caller has the lock."""
    cdef Guard lock = plain_lock(self)
    cdef Lock waiter
    cdef bint notified = False
    if lock is not None:
        return wait_plainly(self, lock, timeout)
    if not self._is_owned():
        raise RuntimeError("cannot wait on un-acquired lock")
    waiter = Lock.__new__(Lock)
    waiter.take()
    self._waiters.append(waiter)
    saved = self._release_save()
    try:
        notified = wait_for_notification(waiter, timeout)
    finally:
        try:
            self._acquire_restore(saved)
        finally:
            if not notified:
                withdraw(self, waiter)
    return notified


@cython.binding(True)
def condition_notify(self, n=1):
    """Wake up so many threads that wait on this condition; see threading.Condition.notify. RuntimeError unless the
    caller has the lock."""
    cdef Guard lock = plain_lock(self)
    if not (self._is_owned() if lock is None else is_owned(lock)):
        raise RuntimeError("cannot notify on un-acquired lock")
    wake_waiters(self, n)
    be_fair()


@cython.binding(True)
def condition_notify_all(self):
    """Wake up all threads that wait on this condition; see threading.Condition.notify_all."""
    if type(self) is threading_condition:
        condition_notify(self, len(self._waiters))
    else:
        self.notify(len(self._waiters))


@cython.binding(True)
def event_set(self):
    """Set the flag and wake all who wait for it; see threading.Event.set."""
    condition = self._cond
    cdef Guard lock = plain_lock(condition)
    if lock is None:
        with condition:
            self._flag = True
            condition.notify_all()
        return
    enter(lock)
    try:
        self._flag = True
        if condition._waiters:
            wake_waiters(condition, len(condition._waiters))
    finally:
        leave_plain(lock)
    be_fair()


@cython.binding(True)
def event_clear(self):
    """Reset the flag; see threading.Event.clear."""
    condition = self._cond
    cdef Guard lock = plain_lock(condition)
    if lock is None:
        with condition:
            self._flag = False
        return
    enter(lock)
    try:
        self._flag = False
    finally:
        leave_plain(lock)
    be_fair()


@cython.binding(True)
def event_wait(self, timeout=None):
    """Wait until the flag is set, at most ``timeout`` seconds; False: time was up. See threading.Event.wait."""
    condition = self._cond
    cdef Guard lock = plain_lock(condition)
    if lock is None:
        with condition:
            signaled = self._flag
            if not signaled:
                signaled = condition.wait(timeout)
            return signaled
    enter(lock)
    try:
        signaled = self._flag
        if not signaled:
            signaled = wait_plainly(condition, lock, timeout)
    finally:
        leave_plain(lock)
    be_fair()
    return signaled
