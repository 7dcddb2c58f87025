# cython: language_level=3, binding=False, embedsignature=True, embedsignature.format=clinic
"""Locks: mutex, rw_lock, semaphore. Who waits, in which order, and what an interruption does is in _sync/waiters.pyx.

All of them hand over: whoever releases books the lock for the first in line before that thread runs, so nobody who
comes along in between can take it. Threads are known by object, never by number. The result of the "try" methods
surprises everybody once: True means *failed*, the operation would have had to wait. ``acquire(blocking=False)`` beside
them answers the usual way, as in threading.

Operations that need not wait work everywhere: in a thread, in main, with or without a loop. In another OS thread than
the loop's they raise WrongThreadError. Each wait takes a ``timeout`` and raises coro.TimeoutError when it is over.

Cost: a mutex is 96 bytes, locking and unlocking one that is free takes no allocation. An rw_lock keeps a dictionary of
its readers, which is what makes re-entrant reading safe while writers wait.

A thread that ends while it holds a mutex or the write side of an rw_lock leaves it locked: nobody can know what state
it protected. The next one to wait for it gets a RuntimeWarning. Only in a forked child, where the other threads died
through no fault of theirs, the lock is taken from the dead, also with a RuntimeWarning.

Invariants:
 1. owner is None exactly while depth is 0.
 2. A free mutex has nobody in its line; a semaphore's first waiter wants more than avail.
 3. An rw_lock has an owner, or readers, or neither; both only when they are the same thread. Readers wait while there
    is another owner or a writer in line; a writer waits while there is another owner or any reader.
"""

from libc.stdint cimport uint64_t

from coro._runtime.abi cimport require_abi
from coro._runtime.scheduler cimport DEAD, SCHEDULED, WAIT_JOIN, WAIT_OBJECT, check_timeout, coro, may_wait, whoever
from coro._sync.waiters cimport (NOT_NOW, Counted, Primitive, died_by_fork, drop_doomed, is_dead, stand, take_first,
                                 threads_of, units_of, wait_line, waiter, waiting_in)

import warnings

from coro._runtime import scheduler
from coro._sync.records import MutexStatistics, RWLockStatistics, SemaphoreStatistics
from coro.exceptions import LockError

require_abi()


cdef object cycle_reporter = None      # of _introspection: asked when a wait may close a cycle of locks


def _set_cycle_reporter(function):
    """Have ``function(lock)`` called when the running thread is about to wait for a lock and one of its holders itself
    waits for an object or the end of a thread; what it raises breaks off the wait. None: nobody. Returns the one
    before."""
    global cycle_reporter
    before = cycle_reporter
    cycle_reporter = function
    return before


cdef inline bint waits_too(object holder) noexcept:
    """Does a holder wait for what threads may hold? Most others may run, sleep, or wait for the kernel."""
    return (isinstance(holder, coro) and ((<coro>holder).kind == WAIT_OBJECT or (<coro>holder).kind == WAIT_JOIN)
            and not (<coro>holder).link.flags & (SCHEDULED | DEAD))


cdef int warn_of_the_dead(object lock, object thread, bint taken) except -1:
    if taken:
        what = ("it died in the fork of this process and the lock is taken from it; "
                "what the lock protects may be half done")
    else:
        what = "it ended without unlocking, so this wait can only end by an interruption"
    warnings.warn(f"{lock!r} is held by a dead thread: {what}", RuntimeWarning, stacklevel=2)
    return 0


cdef object thread_or_caller(object thread):
    """The argument of has_lock() and the like. TypeError when it is neither None nor a thread."""
    if thread is None:
        return whoever()
    if not isinstance(thread, (coro, type(scheduler.MAIN))):
        raise TypeError(f"expected a thread (see coro.spawn) or None, not {type(thread).__name__}: {thread!r}")
    return thread


cdef int check_blocking(object blocking, object timeout) except -1:
    if not blocking and timeout is not None:
        raise ValueError("blocking=False and a timeout contradict each other: leave one of them out")
    return 0


cdef class mutex(Primitive):
    """mutex()\n--\n\n\
    A lock that one thread at a time holds. That thread may lock it again, and has to unlock it as often.

    ``owner`` is the thread that holds it, or None; ``len(m)`` the number of threads that wait. ``with m:`` locks and
    unlocks."""

    def lock(self, timeout=None):
        """Wait until the mutex is free and take it. Returns False when it was to be had at once (or was the caller's
        already), True when the thread had to wait.

        ``timeout`` is a number of seconds, 0 to try only, None for ever; ``coro.TimeoutError`` when it is over, and
        the mutex is not taken. TypeError or ValueError when it is not a number; YieldFromMain outside a thread if it
        would have to wait."""
        return self.enter(timeout)

    cdef bint enter(self, object timeout) except -1:
        if timeout is not None:
            check_timeout(timeout)
        if self.take_now():
            return False
        me = may_wait(timeout, "mutex.lock()")
        self.must_wait()
        stand(self, &self.line, me, 0, timeout, "mutex.lock()")
        return True

    def acquire(self, blocking=True, timeout=None):
        """Take the mutex; returns True when the caller has it. With ``blocking=False`` nothing is waited for, and False
        means that somebody else has it.

            if not m.acquire(blocking=False):
                print("busy")

        The names are those of ``threading.RLock``, but for ``timeout``: it raises ``coro.TimeoutError``, as everywhere
        in coro, where threading returns a False that is easily overlooked. Errors as for lock(); ValueError for a
        timeout beside ``blocking=False``."""
        check_blocking(blocking, timeout)
        if not blocking:
            return self.take_now()
        self.enter(timeout)
        return True

    def release(self):
        """unlock() under the name that ``threading.RLock`` has for it; returns None."""
        self.leave()

    cdef bint take_now(self) except -1:
        """Take it, or lock it once more, if that needs no waiting."""
        cdef object me = whoever()
        if self.owner is None:
            self.owner = me
            self.depth = 1
            return True
        if self.owner is me:
            self.depth += 1
            return True
        return False

    cdef int must_wait(self) except -1:
        self.contended += 1
        if is_dead(self.owner):
            taken = died_by_fork(self.owner)
            warn_of_the_dead(self, self.owner, taken)
            if taken and is_dead(self.owner):
                self.hand_over()
        elif cycle_reporter is not None and waits_too(self.owner):
            cycle_reporter(self)
        return 0

    cdef object attempt(self, int operation, object value, Py_ssize_t amount):
        return None if self.take_now() else NOT_NOW

    cdef wait_line *line_of(self, int operation) noexcept:
        return &self.line

    def trylock(self):
        """Take the mutex if that needs no waiting. Returns True on FAILURE (somebody else holds it), False when the
        caller has it now."""
        return not self.take_now()

    def try_lock(self):
        """The same as trylock(): True on FAILURE."""
        return self.trylock()

    def unlock(self):
        """Undo one lock(). The last one hands the mutex to the first in line, who owns it from now on: True then, else
        False. LockError when the caller does not hold it."""
        return self.leave()

    cdef bint leave(self) except -1:
        if self.owner is None:
            whoever()
            raise LockError(f"{self!r} cannot be unlocked: it is not locked")
        me = whoever()
        if self.owner is not me:
            raise LockError(f"{self!r} cannot be unlocked by {me!r}: only its owner may do that")
        if self.depth > 1:
            self.depth -= 1
            return False
        return self.hand_over()

    cdef bint hand_over(self) except -1:
        cdef waiter *w
        while self.line.count:
            w = take_first(&self.line)
            if w != NULL:
                self.owner = <object>w.thread
                self.depth = 1
                return True
        self.depth = 0
        self.owner = None
        return False

    cdef int advance(self) except -1:
        if self.owner is None:
            self.hand_over()
        return 0

    cdef int give_back(self, waiter *w) except -1:
        self.depth = 0
        self.owner = None
        return 0

    def locked(self):
        """Whether a thread holds it."""
        return self.owner is not None

    def has_lock(self, thread=None):
        """Whether the thread (default: the caller) holds it. TypeError when it is not a thread."""
        return self.owner is not None and self.owner is thread_or_caller(thread)

    @property
    def waiting(self):
        """The threads that wait, first come first."""
        return threads_of(&self.line)

    @property
    def _waiting(self):
        return self.waiting

    @property
    def _owner(self):
        return self.owner

    @property
    def _locked(self):
        return self.depth

    def statistics(self):
        """A MutexStatistics(owner, depth, waiting, contended)."""
        return MutexStatistics(self.owner, self.depth, waiting_in(&self.line), self.contended)

    def __len__(self):
        return waiting_in(&self.line)

    def __enter__(self):
        self.enter(None)
        return self

    def __exit__(self, kind, exc, traceback):
        self.leave()
        return False

    def __repr__(self):
        state = "free" if self.owner is None else f"locked {self.depth} times by {self.owner!r}"
        return f"<{type(self).__name__} {state}, {waiting_in(&self.line)} waiting, at {<size_t><void *>self:#x}>"


cdef class rw_lock(Primitive):
    """rw_lock()\n--\n\n\
    A lock for many readers or one writer; waiting writers go before readers.

    A thread that holds it for reading may read-lock it again at once, even if others wait. A thread that holds it for
    writing may lock it again either way. A reader cannot become a writer, since two threads that tried would wait for
    each other. A thread that unlocks the write side while it is still reading goes on as a reader.

    ``owner`` is the thread that writes, or None; ``with lock.read():`` and ``with lock.write():`` lock and unlock."""

    def __cinit__(self):
        self.readers = {}

    cdef bint may_read_now(self, object me) except -1:
        """Count the caller in as a reader, if that needs no waiting."""
        held = self.readers.get(me)
        if held is None:
            if self.owner is not me and (self.owner is not None or self.writers_line.count):
                return False
            held = 0
        self.readers[me] = held + 1
        return True

    def read_lock(self, timeout=None):
        """Wait until nobody writes or waits to write, and hold the lock for reading. Returns True when the thread had
        to wait, else False.

        ``timeout`` is a number of seconds, 0 to try only, None for ever; ``coro.TimeoutError`` when it is over, and
        the lock is not held. TypeError or ValueError when it is not a number; YieldFromMain outside a thread if it
        would have to wait."""
        return self.lock_to_read(timeout)

    cdef bint lock_to_read(self, object timeout) except -1:
        check_timeout(timeout)
        if self.may_read_now(whoever()):
            return False
        me = may_wait(timeout, "rw_lock.read_lock()")
        self.look_for_the_dead()
        self.contended += 1
        stand(self, &self.readers_line, me, 0, timeout, "rw_lock.read_lock()")
        return True

    def try_read_lock(self):
        """Hold the lock for reading if that needs no waiting. Returns True on FAILURE, False on success."""
        return not self.may_read_now(whoever())

    def write_lock(self, timeout=None):
        """Wait until nobody else holds the lock and hold it for writing. Returns True when the thread had to wait, else
        False. ``timeout`` and errors as for read_lock(); LockError for a thread that holds it for reading only."""
        return self.lock_to_write(timeout)

    cdef bint lock_to_write(self, object timeout) except -1:
        cdef object me = whoever()
        check_timeout(timeout)
        if self.may_write_now(me):
            return False
        if me in self.readers:
            raise LockError(f"{me!r} holds {self!r} for reading and cannot become its writer; "
                            f"call read_unlock() first, then look again at what you read")
        me = may_wait(timeout, "rw_lock.write_lock()")
        self.look_for_the_dead()
        self.contended += 1
        stand(self, &self.writers_line, me, 1, timeout, "rw_lock.write_lock()")
        return True

    cdef bint may_write_now(self, object me) except -1:
        """Make the caller the writer, once more perhaps, if that needs no waiting."""
        if self.owner is me:
            self.depth += 1
            return True
        if self.owner is None and not self.readers:
            self.owner = me
            self.depth = 1
            return True
        return False

    def try_write_lock(self):
        """Hold the lock for writing if that needs no waiting. Returns True on FAILURE, False on success."""
        return not self.may_write_now(whoever())

    def read_unlock(self):
        """Undo one read_lock(). The last reader lets the first waiting writer in. LockError when the caller does not
        hold it for reading."""
        cdef object me = whoever()
        held = self.readers.get(me)
        if held is None:
            raise LockError(f"{self!r} cannot be read-unlocked by {me!r}, which does not hold it for reading")
        if held > 1:
            self.readers[me] = held - 1
        else:
            del self.readers[me]
            self.advance()

    def write_unlock(self):
        """Undo one write_lock(). The last one lets the first waiting writer in, or, if there is none, all waiting
        readers. LockError when the caller does not hold it for writing."""
        cdef object me = whoever()
        if self.owner is None:
            raise LockError(f"{self!r} cannot be write-unlocked: nobody holds it for writing")
        if self.owner is not me:
            raise LockError(f"{self!r} cannot be write-unlocked by {me!r}: only its owner may do that")
        if self.depth > 1:
            self.depth -= 1
        else:
            self.depth = 0
            self.owner = None
            self.advance()

    cdef int advance(self) except -1:
        cdef waiter *w
        if self.owner is not None:
            return 0
        while self.writers_line.count:
            if self.readers:
                drop_doomed(&self.writers_line)
                break
            w = take_first(&self.writers_line)
            if w != NULL:
                self.owner = <object>w.thread
                self.depth = 1
                return 0
        if not self.writers_line.count:
            while self.readers_line.count:
                w = take_first(&self.readers_line)
                if w != NULL:
                    self.readers[<object>w.thread] = 1
        return 0

    cdef int give_back(self, waiter *w) except -1:
        if w.amount:
            self.depth = 0
            self.owner = None
        else:
            del self.readers[<object>w.thread]
        return 0

    cdef int look_for_the_dead(self) except -1:
        """Before waiting: warn of a holder that is dead, or take the lock from it if it died in a fork."""
        if is_dead(self.owner):
            taken = died_by_fork(self.owner)
            warn_of_the_dead(self, self.owner, taken)
            if taken and is_dead(self.owner):
                self.depth = 0
                self.owner = None
        dead = [t for t in self.readers if is_dead(t)]
        if dead:
            taken = all([died_by_fork(t) for t in dead])
            warn_of_the_dead(self, dead[0], taken)
            if taken:
                for t in dead:
                    self.readers.pop(t, None)
        if cycle_reporter is not None and (waits_too(self.owner) or any([waits_too(t) for t in self.readers])):
            cycle_reporter(self)
        return 0

    def read(self):
        """A context manager that holds the lock for reading. It has ``acquire(blocking=True, timeout=None)``, which
        returns whether the lock is held now, and ``release()``, too: it is the read side as a lock of its own."""
        return hold.__new__(hold, self, False)

    def write(self):
        """The same for writing."""
        return hold.__new__(hold, self, True)

    @property
    def owners(self):
        """All threads that hold it: the writer, or the readers."""
        return tuple(self.readers) if self.owner is None else (self.owner,)

    @property
    def waiting(self):
        """The threads that wait: writers, then readers, each first come first."""
        return threads_of(&self.writers_line) + threads_of(&self.readers_line)

    @property
    def _waiting(self):
        return self.waiting

    def statistics(self):
        """An RWLockStatistics(owner, depth, readers, readers_waiting, writers_waiting, contended)."""
        return RWLockStatistics(self.owner, self.depth, len(self.readers), waiting_in(&self.readers_line),
                                waiting_in(&self.writers_line), self.contended)

    def __repr__(self):
        if self.owner is not None:
            state = f"write-locked by {self.owner!r}"
        elif self.readers:
            state = f"read-locked by {len(self.readers)} threads"
        else:
            state = "free"
        return (f"<{type(self).__name__} {state}, {waiting_in(&self.writers_line)} writers and "
                f"{waiting_in(&self.readers_line)} readers waiting, at {<size_t><void *>self:#x}>")


cdef class hold:
    """``with`` form of an rw_lock; may be used again and again, and by several threads."""
    cdef rw_lock lock
    cdef bint writing

    def __cinit__(self, rw_lock lock not None, bint writing):
        self.lock = lock
        self.writing = writing

    def acquire(self, blocking=True, timeout=None):
        """Take this side of the lock; returns True when the caller holds it. With ``blocking=False`` nothing is waited
        for, and False means that it is not to be had. ``timeout`` and errors as for read_lock() and write_lock();
        ValueError for a timeout beside ``blocking=False``."""
        check_blocking(blocking, timeout)
        if not blocking:
            return self.lock.may_write_now(whoever()) if self.writing else self.lock.may_read_now(whoever())
        if self.writing:
            self.lock.lock_to_write(timeout)
        else:
            self.lock.lock_to_read(timeout)
        return True

    def release(self):
        """Undo one acquire(). LockError when the caller does not hold it."""
        if self.writing:
            self.lock.write_unlock()
        else:
            self.lock.read_unlock()

    def __enter__(self):
        if self.writing:
            self.lock.lock_to_write(None)
        else:
            self.lock.lock_to_read(None)
        return self.lock

    def __exit__(self, kind, exc, traceback):
        self.release()
        return False


cdef class semaphore(Counted):
    """semaphore(value)\n--\n\n\
    A number of units that threads take and give back, first come first served.

    ``value`` is how many there are at first (int >= 0). A request for many units is not overtaken by requests for few.
    ``avail`` (and ``int(s)``) is the number that can be taken now; units reserved for a thread that was woken and has
    not run yet are not among them. ``with s:`` takes one unit and gives it back."""

    def __cinit__(self, value):
        self.avail = units_of(value, "the number of units")

    def acquire(self, n=1, timeout=None, *, blocking=True):
        """Take ``n`` units, waiting until it is this thread's turn and there are as many; returns True. With
        ``blocking=False`` nothing is waited for, and False means that they are not to be had now.

        ``timeout`` is a number of seconds, 0 to try only, None for ever; ``coro.TimeoutError`` when it is over, and
        nothing is taken (``threading.Semaphore`` returns False then). TypeError or ValueError when ``n`` is not an int
        >= 0 or the timeout not a number; ValueError for a timeout beside ``blocking=False``; YieldFromMain outside a
        thread if it would have to wait."""
        cdef Py_ssize_t units = units_of(n, "the number of units")
        check_blocking(blocking, timeout)
        if not blocking:
            return self.take_now(units)
        self.take_units(units, timeout)
        return True

    cdef int take_units(self, Py_ssize_t units, object timeout) except -1:
        check_timeout(timeout)
        if self.take_now(units):
            return 0
        me = may_wait(timeout, "semaphore.acquire()")
        self.must_wait()
        stand(self, &self.line, me, units, timeout, "semaphore.acquire()")
        return 0

    cdef bint take_now(self, Py_ssize_t units) except -1:
        """Take them if that needs no waiting."""
        whoever()
        if units == 0:
            return True
        if self.line.count:
            self.advance()
        if self.avail >= units and self.line.count == 0:
            self.avail -= units
            return True
        return False

    cdef int must_wait(self) except -1:
        self.contended += 1
        return 0

    cdef object attempt(self, int operation, object value, Py_ssize_t amount):
        return None if self.take_now(amount) else NOT_NOW

    cdef wait_line *line_of(self, int operation) noexcept:
        return &self.line

    def try_acquire(self, n=1):
        """Take ``n`` units if that needs no waiting. Returns True on FAILURE (too few, or others wait already), False
        on success. TypeError or ValueError when ``n`` is not an int >= 0."""
        return not self.take_now(units_of(n, "the number of units"))

    def release(self, n=1):
        """Give ``n`` units back (or add new ones) and wake whom they suffice for. TypeError or ValueError when ``n`` is
        not an int >= 0."""
        self.give_units(units_of(n, "the number of units"))

    cdef int give_units(self, Py_ssize_t units) except -1:
        whoever()
        units_of(self.avail + units, "the sum of units")
        self.avail += units
        self.advance()
        return 0

    cdef int enter(self) except -1:
        return self.take_units(1, None)

    cdef int leave(self) except -1:
        return self.give_units(1)

    cdef int advance(self) except -1:
        cdef waiter *w
        while self.line.count:
            if self.line.first.amount > self.avail:
                drop_doomed(&self.line)
                if self.line.first == NULL or self.line.first.amount > self.avail:
                    break
            w = take_first(&self.line)
            if w != NULL:
                self.avail -= w.amount
        return 0

    cdef int give_back(self, waiter *w) except -1:
        self.avail += w.amount
        return 0

    @property
    def waiting(self):
        """The threads that wait, first come first."""
        return threads_of(&self.line)

    @property
    def _waiting(self):
        cdef waiter *w = self.line.first
        cdef list found = []
        while w != NULL:
            found.append((w.amount, <object>w.thread))
            w = w.next
        return found

    def statistics(self):
        """A SemaphoreStatistics(value, waiting, contended)."""
        return SemaphoreStatistics(self.avail, waiting_in(&self.line), self.contended)

    def __int__(self):
        return self.avail

    def __repr__(self):
        return (f"<{type(self).__name__} {self.avail} available, {waiting_in(&self.line)} waiting, "
                f"at {<size_t><void *>self:#x}>")
