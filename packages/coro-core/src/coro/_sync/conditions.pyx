# cython: language_level=3, binding=False, embedsignature=True, embedsignature.format=clinic
"""What threads wait for without coming to own it: condition_variable, inverted_semaphore, event, latch, barrier.

A wake-up is remembered by the waiter, not by the primitive: whoever was let go stays let go, even if an event is
cleared, or an inverted semaphore rises again, before the thread has run. Only the wake-ups of a condition variable's
``wake_one`` and ``wake_n`` are a scarce good; one that meets an interruption is passed on to the next waiter.

Each wait takes a ``timeout`` and raises coro.TimeoutError when it is over. What need not wait works everywhere, as with
locks.

Rejected: a barrier that breaks for everybody when one waiter is interrupted (as the standard library's does). Here the
interrupted one has simply not arrived, and the others wait for somebody else.

Invariants:
 1. Nobody is in the line of an event that is set, a latch that is open, an inverted semaphore at 0.
 2. A barrier has fewer waiters than parties.
"""

from libc.stdint cimport uint64_t

from coro._runtime.abi cimport require_abi
from coro._runtime.scheduler cimport check_timeout, may_wait, whoever
from coro._sync.waiters cimport (NOT_NOW, Counted, Primitive, grant_all, set_value, skip_doomed, stand, take_any,
                                 take_first, threads_of, units_of, wait_line, waiter, waiting_in)

import warnings

from coro._runtime import scheduler
from coro._sync.records import BarrierStatistics, ConditionStatistics, EventStatistics, SemaphoreStatistics

require_abi()


cdef enum:
    FOR_ONE = 1     # waiter.amount: this wake-up was meant for one thread and is passed on


cdef class condition_variable(Primitive):
    """condition_variable()\n--\n\n\
    Threads wait, and other threads wake them. It has no lock and no memory: a wake-up is lost if no thread waits.

    ``len(c)`` is the number of threads that wait."""

    def wait(self, timeout=None):
        """Wait for a wake-up; returns the ``args`` given there, ``()`` by default.

        ``timeout`` is a number of seconds, None for ever; ``coro.TimeoutError`` when it is over (with 0 that is always
        so, since there is no memory). TypeError or ValueError when it is not a number; YieldFromMain outside a
        thread."""
        check_timeout(timeout)
        return stand(self, &self.line, may_wait(timeout, "condition_variable.wait()"), 0, timeout,
                     "condition_variable.wait()")

    def wait_timeout(self, delta):
        """Deprecated: ``c.wait(timeout=delta)``."""
        warnings.warn("condition_variable.wait_timeout(t) is deprecated, use its wait(timeout=t)",
                      DeprecationWarning, stacklevel=2)
        return scheduler.with_timeout(delta, self.wait)

    cdef Py_ssize_t wake(self, Py_ssize_t most, object args) except -1:
        cdef waiter *w
        cdef Py_ssize_t count = 0
        while count < most and self.line.count:
            w = take_first(&self.line)
            if w != NULL:
                w.amount = FOR_ONE
                set_value(w, args)
                count += 1
        return count

    def wake_one(self, args=()):
        """Wake the thread that has waited longest; its wait() returns ``args``. Returns True if there was one."""
        whoever()
        return self.wake_n(1, args) == 1

    def wake_n(self, count, args=()):
        """Wake up to ``count`` threads; their wait() returns ``args``. Returns how many were woken. TypeError or
        ValueError when ``count`` is not an int >= 0."""
        cdef Py_ssize_t wanted = units_of(count, "the number of threads to wake")
        cdef Py_ssize_t n
        whoever()
        n = self.wake(wanted, args)
        self.woken += n
        if n == 0 and wanted:
            self.unheard += 1
        return n

    def wake_all(self, args=()):
        """Wake all threads that wait now; their wait() returns ``args``."""
        cdef waiter *w
        whoever()
        if self.line.count == 0:
            self.unheard += 1
        while self.line.count:
            w = take_any(&self.line)
            if w != NULL:
                set_value(w, args)
                self.woken += 1

    def raise_all(self, exc):
        """Interrupt all threads that wait now: their wait() raises ``exc`` (class or instance). TypeError when it is
        not an exception."""
        whoever()
        if not isinstance(exc, BaseException) and not (isinstance(exc, type) and issubclass(exc, BaseException)):
            raise TypeError(f"expected an exception class or instance to raise, not {exc!r}")
        for thread in dict.fromkeys(threads_of(&self.line)):
            if not thread.dead and thread is not scheduler.current():
                thread.raise_exception(exc)
        skip_doomed(&self.line)

    cdef int give_back(self, waiter *w) except -1:
        if w.amount == FOR_ONE:
            self.wake(1, <object>w.value)
        return 0

    cdef wait_line *line_of(self, int operation) noexcept:
        return &self.line

    @property
    def waiting(self):
        """The threads that wait, first come first."""
        return threads_of(&self.line)

    @property
    def _waiting(self):
        return self.waiting

    def statistics(self):
        """A ConditionStatistics(waiting, woken, unheard)."""
        return ConditionStatistics(waiting_in(&self.line), self.woken, self.unheard)

    def __len__(self):
        return waiting_in(&self.line)

    def __repr__(self):
        return f"<{type(self).__name__} {waiting_in(&self.line)} waiting, at {<size_t><void *>self:#x}>"


cdef class inverted_semaphore(Counted):
    """inverted_semaphore(value=0)\n--\n\n\
    Counts what is under way; ``block_till_zero()`` waits until nothing is.

    ``value`` (int >= 0, also ``int(s)``) is the count. ``with s:`` counts the block."""

    def __cinit__(self, value=0):
        self.value = units_of(value, "the count")

    def acquire(self, n=1):
        """Add ``n`` to the count; never waits. TypeError or ValueError when ``n`` is not an int >= 0."""
        self.add(units_of(n, "the amount to add"))

    cdef int add(self, Py_ssize_t units) except -1:
        whoever()
        units_of(self.value + units, "the sum")
        self.value += units
        return 0

    def release(self, n=1):
        """Take ``n`` from the count; never waits. When that makes it 0, all waiting threads go on. TypeError when ``n``
        is not an int, ValueError when it is negative or more than the count."""
        self.subtract(units_of(n, "the amount to subtract"))

    cdef int subtract(self, Py_ssize_t units) except -1:
        whoever()
        if units > self.value:
            raise ValueError(f"cannot release {units} from {self!r}: more would be given back than was acquired")
        self.value -= units
        self.advance()
        return 0

    cdef int enter(self) except -1:
        return self.add(1)

    cdef int leave(self) except -1:
        return self.subtract(1)

    def block_till_zero(self, timeout=None):
        """Wait until the count is 0, or was 0 in between. Returns at once if it is 0 now.

        ``timeout`` is a number of seconds, 0 to look only, None for ever; ``coro.TimeoutError`` when it is over.
        TypeError or ValueError when it is not a number; YieldFromMain outside a thread if it would have to wait."""
        whoever()
        check_timeout(timeout)
        if self.value:
            me = may_wait(timeout, "inverted_semaphore.block_till_zero()")
            self.must_wait()
            stand(self, &self.line, me, 0, timeout, "inverted_semaphore.block_till_zero()")

    cdef int must_wait(self) except -1:
        self.contended += 1
        return 0

    cdef int advance(self) except -1:
        if self.value == 0:
            grant_all(&self.line)
        return 0

    cdef object attempt(self, int operation, object value, Py_ssize_t amount):
        return None if self.value == 0 else NOT_NOW

    cdef wait_line *line_of(self, int operation) noexcept:
        return &self.line

    @property
    def waiting(self):
        """The threads that wait for 0."""
        return threads_of(&self.line)

    @property
    def _waiting(self):
        return self.waiting

    def statistics(self):
        """A SemaphoreStatistics(value, waiting, contended)."""
        return SemaphoreStatistics(self.value, waiting_in(&self.line), self.contended)

    def __int__(self):
        return self.value

    def __repr__(self):
        return (f"<{type(self).__name__} at {self.value}, {waiting_in(&self.line)} waiting, "
                f"at {<size_t><void *>self:#x}>")


cdef class event(Primitive):
    """event()\n--\n\n\
    Something that has happened or not. ``set()`` lets all waiting threads go on; ``clear()`` makes it not have
    happened.

    A thread that ``set()`` has let go stays so, even if the event is cleared before the thread has run."""

    def is_set(self):
        """Whether it has happened."""
        return self.on

    def set(self):
        """Say that it has happened: threads that wait go on, and ``wait()`` returns at once from now on."""
        whoever()
        self.on = True
        self.advance()

    def clear(self):
        """Let threads wait again."""
        whoever()
        self.on = False

    def wait(self, timeout=None):
        """Wait until it has happened; returns at once if it has.

        ``timeout`` is a number of seconds, 0 to look only, None for ever; ``coro.TimeoutError`` when it is over
        (``threading.Event.wait`` returns False then). TypeError or ValueError when it is not a number; YieldFromMain
        outside a thread if it would have to wait."""
        whoever()
        check_timeout(timeout)
        if not self.on:
            stand(self, &self.line, may_wait(timeout, "event.wait()"), 0, timeout, "event.wait()")

    cdef int advance(self) except -1:
        if self.on:
            grant_all(&self.line)
        return 0

    cdef object attempt(self, int operation, object value, Py_ssize_t amount):
        return None if self.on else NOT_NOW

    cdef wait_line *line_of(self, int operation) noexcept:
        return &self.line

    @property
    def waiting(self):
        """The threads that wait."""
        return threads_of(&self.line)

    def statistics(self):
        """An EventStatistics(is_set, missing, waiting)."""
        return EventStatistics(self.on, 0 if self.on else 1, waiting_in(&self.line))

    def __repr__(self):
        return (f"<{type(self).__name__} {'set' if self.on else 'not set'}, {waiting_in(&self.line)} waiting, "
                f"at {<size_t><void *>self:#x}>")


cdef class latch(Primitive):
    """latch(count=1)\n--\n\n\
    Opens for good when it has been counted down ``count`` times (int >= 0, default 1). ``missing`` is how many are
    left."""

    def __cinit__(self, count=1):
        self.missing = units_of(count, "the count")

    def count_down(self, n=1):
        """Count down by ``n``. At 0 all waiting threads go on, and ``wait()`` returns at once from then on. Calls after
        that change nothing. TypeError or ValueError when ``n`` is not an int >= 0."""
        cdef Py_ssize_t units = units_of(n, "the amount to count down")
        whoever()
        self.missing -= min(units, self.missing)
        self.advance()

    @property
    def is_open(self):
        """Whether it has been counted down to 0."""
        return self.missing == 0

    def wait(self, timeout=None):
        """Wait until it is open; returns at once if it is.

        ``timeout`` is a number of seconds, 0 to look only, None for ever; ``coro.TimeoutError`` when it is over.
        TypeError or ValueError when it is not a number; YieldFromMain outside a thread if it would have to wait."""
        whoever()
        check_timeout(timeout)
        if self.missing:
            stand(self, &self.line, may_wait(timeout, "latch.wait()"), 0, timeout, "latch.wait()")

    cdef int advance(self) except -1:
        if self.missing == 0:
            grant_all(&self.line)
        return 0

    cdef object attempt(self, int operation, object value, Py_ssize_t amount):
        return None if self.missing == 0 else NOT_NOW

    cdef wait_line *line_of(self, int operation) noexcept:
        return &self.line

    @property
    def waiting(self):
        """The threads that wait."""
        return threads_of(&self.line)

    def statistics(self):
        """An EventStatistics(is_set, missing, waiting)."""
        return EventStatistics(self.missing == 0, self.missing, waiting_in(&self.line))

    def __repr__(self):
        state = f"{self.missing} missing" if self.missing else "open"
        return f"<{type(self).__name__} {state}, {waiting_in(&self.line)} waiting, at {<size_t><void *>self:#x}>"


cdef class barrier(Primitive):
    """barrier(parties)\n--\n\n\
    Lets ``parties`` threads (int >= 1) go on together: each waits until as many have come. Then it starts over.

    A thread that is interrupted while it waits counts as not having come."""

    def __cinit__(self, parties):
        self.parties = units_of(parties, "the number of parties")
        if self.parties == 0:
            raise ValueError("expected the number of parties to be 1 or more, not 0")

    def wait(self, timeout=None):
        """Wait for the others. Returns 0 to ``parties`` - 1, a different number to each, in the order of arrival; the
        one that came last has the highest.

        ``timeout`` is a number of seconds, None for ever; with 0 only the last one to come goes on.
        ``coro.TimeoutError`` when it is over: the caller has not come then, and the others wait for somebody else
        (``threading.Barrier`` breaks for everybody). TypeError or ValueError when it is not a number; YieldFromMain
        outside a thread."""
        check_timeout(timeout)
        if timeout is not None:
            skip_doomed(&self.line)
        me = may_wait(timeout if self.line.count + 1 < self.parties else None, "barrier.wait()")
        return stand(self, &self.line, me, 0, timeout, "barrier.wait()")

    cdef int advance(self) except -1:
        cdef waiter *w
        cdef Py_ssize_t place = 0
        if self.line.count < self.parties:
            return 0
        skip_doomed(&self.line)
        if self.line.count < self.parties:
            return 0
        self.rounds += 1
        while place < self.parties:
            w = take_any(&self.line)
            set_value(w, place)
            place += 1
        return 0

    @property
    def waiting(self):
        """The threads that have come and wait."""
        return threads_of(&self.line)

    def statistics(self):
        """A BarrierStatistics(parties, waiting, rounds)."""
        return BarrierStatistics(self.parties, waiting_in(&self.line), self.rounds)

    def __repr__(self):
        return (f"<{type(self).__name__} {waiting_in(&self.line)} of {self.parties} waiting, "
                f"at {<size_t><void *>self:#x}>")
