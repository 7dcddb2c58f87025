# cython: language_level=3, binding=False, embedsignature=True, embedsignature.format=clinic
"""What emulated blocking is made of: locks for coro threads and OS threads alike, waits for descriptors, sleep, idents,
and which files `open` makes waiting ones.

`coro.emulation` puts these in the place of the standard library's. Whoever calls is one of three: a coro thread, which
is suspended; an OS thread without a loop, which is blocked the ordinary way; or the loop itself (a signal handler that
it runs, say), which can do neither and gets YieldFromMain if it would have to wait.

A lock is a flag and a line of waiters. release() hands the lock to the first in the line instead of opening it, so
nobody is starved by a thread that locks again at once; a waiter that goes away after it was given the lock passes it
on. Everything happens under the GIL and between two bytecodes, so there is no inner lock, and release() may be called
from finalisers and signal handlers.

The *main thread* of the emulated program is a coro thread (the one that called install, or main of `coro.run`). It
bears the ident of the OS thread, so that `threading.main_thread()` is who it was, and Python-level signal handlers run
in it: whatever emulated call it is blocked in is interrupted for that, and goes on afterwards unless the handler
raised.

Programs for OS threads rely on being preempted: one that asks again and again whether something has happened would
never let it happen here. So whoever has held the CPU for 5 ms gives way at the next emulated call that succeeds, or
fails, without waiting. Each such call reads the clock. A thread does not give way where it could not wait either:
inside a greenlet, or in a function that a call into a pybind11 module runs (`_switch/obstacle.h`).

Cost: an uncontended acquire and release are about as fast as the standard library's; a contended one costs a waiter
object of about 80 bytes and two switches; a wait with a time limit one timer more. A line has a deque only if a second
one stands in it.

Why one module: locks, conditions, waits, sockets and sleep share who calls, how the main thread is interrupted, and
when to give way; all of that is a handful of C variables, and every acquire looks at them. Conditions, sockets and
the import lock are in files of their own, in `parts`.

Invariants:
 1. A waiter stands in a line exactly while neither granted nor left.
 2. A lock with somebody in its line is locked.
 3. Nothing here keeps a pointer into a C stack: limits and waiters are objects.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.pythread cimport (PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock,
                               PyThread_get_thread_ident, PyThread_release_lock, PyThread_type_lock, WAIT_LOCK)
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint32_t

from coro._runtime.abi cimport require_abi
from coro._net.posix cimport MSG_DONTWAIT, MSG_TRUNC, POLLIN, POLLOUT, POLLPRI, coro_poll_one
from coro._poll.descriptors cimport (FD_EXCEPT_READY, FD_READ_READY, FD_WRITE_READY, FdPoller, fd_lookup, fd_poller,
                                     fd_state)
from coro._runtime.scheduler cimport (WAIT_OBJECT, WAIT_SLEEP, TimerTarget, coro, count_io, current_or_none,
                                      give_way, running_thread, slice_beginning, suspend, suspend_outside, timer_add,
                                      timer_cancel, wake)
from coro._clock.ticks cimport clock, coro_clock, coro_now, from_ns, now as ticks_now

import _imp
import _thread
import errno as _errno
import io as _io
import operator
import os
import sys
import time
from collections import deque
from time import monotonic

from coro import offload
from coro._runtime import scheduler
from coro.exceptions import ClosedError, NoSwitchError, Shutdown, SimultaneousError, WrongThreadError, YieldFromMain

require_abi()

cdef extern from *:
    """
    #include <pthread.h>
    /* What the interpreter says of an exception that leaves a thread of _thread.start_new_thread(). */
    static void coro_unraisable(PyObject *exc, PyObject *function) {
        PyErr_SetObject((PyObject *)Py_TYPE(exc), exc);
    #if PY_VERSION_HEX >= 0x030D0000
        PyErr_FormatUnraisable("Exception ignored in thread started by %R", function);
    #else
        _PyErr_WriteUnraisableMsg("in thread started by", function);
    #endif
    }

    /* How often this process was forked off, counted before any Python code runs in the child. */
    static int coro_n_forks = 0;
    static void coro_emulated_in_child(void) { coro_n_forks++; }
    static void coro_count_forks(void) { pthread_atfork(NULL, NULL, coro_emulated_in_child); }

    static int coro_lock_timed(PyThread_type_lock lock, long long microseconds) {
        return (int)PyThread_acquire_lock_timed(lock, (PY_TIMEOUT_T)microseconds, 1);
    }
    """
    void coro_unraisable(object, object)
    int coro_n_forks
    void coro_count_forks() nogil
    int coro_lock_timed(PyThread_type_lock, long long) nogil
    int PY_LOCK_ACQUIRED, PY_LOCK_INTR

cdef extern from "sys/socket.h" nogil:
    ssize_t c_recv "recv"(int, void *, size_t, int)
    ssize_t c_send "send"(int, const void *, size_t, int)

ctypedef unsigned long long uint64_number

cdef extern from "Python.h":
    bytes PyBytes_FromStringAndSize(char *, Py_ssize_t)
    ctypedef struct PyTypeObject:
        const char *tp_name

coro_count_forks()

cdef int _EAGAIN = _errno.EAGAIN
cdef object wait_many = None           # what the modules built on this one do for it, see hand_over()
cdef object make_open = None
cdef object count_os_threads = _thread._count
cdef double TIMEOUT_MAX = _thread.TIMEOUT_MAX
cdef unsigned long main_ident = PyThread_get_thread_ident()   # of the OS thread that the program began in
cdef uint64_number main_number = 0     # id of the coro thread that stands for the main thread, 0: none
cdef coro main_waits = None            # that thread, while it is blocked in an emulated call
cdef object signal_calls = deque()     # (handler, signum): what it has to call when it runs again

# -- Who calls ---------------------------------------------------------------------------------------

cdef inline object here():
    """The coro thread that runs, or None in an OS thread without a loop and in the loop itself."""
    return current_or_none()


cdef coro blockable():
    """The coro thread to suspend; None where the OS thread has to be blocked. Raises where neither will do."""
    try:
        return running_thread()
    except WrongThreadError:
        return None
    except YieldFromMain:
        if scheduler.coro_is_running():
            raise
        return None


cdef unsigned long long ident_here() noexcept:
    cdef coro thread = current_or_none()
    if thread is not None:
        return thread.number if thread.number != main_number else main_ident
    return PyThread_get_thread_ident()


def get_ident():
    """Return a non-zero integer that uniquely identifies the current thread: the id of a coro thread (the main
    thread's is its OS thread's), the system's number of any other."""
    return ident_here()


def owned(method, bint of_cursor):
    """A method of a database connection (or of a cursor, which has one) that looks first whether its owner calls.

    It is made here because what is compiled has no frame: `method` may warn of its caller's line."""
    @cython.binding(True)
    def call(self, *args, **kwargs):
        connection = self.connection if of_cursor else self
        owner = getattr(connection, "_coro_owner", 0)
        if owner and owner != ident_here():
            connection._coro_check()
        return method(self, *args, **kwargs)

    call.__name__ = method.__name__
    call.__qualname__ = method.__qualname__
    call.__doc__ = method.__doc__
    return call


def hand_over(wait_many_, make_open_):
    """Before anything is emulated: ``wait_many(pairs, timeout)``, which waits for several descriptors, and
    ``make_open()``, which makes the open() for files that wait."""
    global wait_many, make_open
    wait_many = wait_many_
    make_open = make_open_


def in_thread_of_loop():
    """Does a coro thread call?"""
    return here() is not None


def set_main(number, ident):
    """The coro thread with this id (0: none) is the main thread from now on, and `ident` what get_ident() says
    there."""
    global main_number, main_ident
    main_number = number
    main_ident = ident


def get_main():
    """The id of the coro thread that is the main thread, or 0."""
    return main_number


# -- Giving way ----------------------------------------------------------------------------------------

cdef coro_clock *ticker = clock()
cdef const int64_t *slice_began = slice_beginning()
cdef int64_t longest_slice = from_ns(5000000)      # what sys.getswitchinterval() says
cdef int64_t look_at = 0               # the tick from which on a slice may be over, never later than the running one's


cdef int end_slice_if_over(int64_t now) except -1:
    """Give way if the running thread's slice is over, and can be ended here."""
    global look_at
    cdef coro me = current_or_none()
    look_at = slice_began[0] + longest_slice
    if now < look_at and me is not None:
        return 0
    # Who cannot give way is asked again after as long a time: looking may cost something.
    look_at = now + longest_slice
    if me is None or (fork_depths and me.number in fork_depths):
        return 0
    try:
        me = running_thread()
    except NoSwitchError:
        return 0
    give_way(me)
    look_at = slice_began[0] + longest_slice
    return 0


cdef inline int be_fair() except -1:
    # Once more also where the clock has been set back, as a virtual one is: what is left is never more than a slice.
    cdef int64_t now = coro_now(ticker)
    if <uint64_number>(look_at - now - 1) >= <uint64_number>longest_slice:
        end_slice_if_over(now)
    return 0


def set_longest_slice(double seconds):
    """How long a thread may have the CPU before it gives way."""
    global longest_slice, look_at
    longest_slice = from_ns(<int64_t>(min(seconds, 4e9) * 1e9))
    look_at = 0


def fair():
    """Something was done without waiting: let others run if the calling thread has had the CPU for long."""
    be_fair()


# -- Forks ---------------------------------------------------------------------------------------------
#
# Hooks of os.register_at_fork take and release locks, so they give way; then somebody else would run between the first
# hook and the last, in the child as well, where the parent's threads have no business. So a thread that forks does not
# give way. One that has to wait for another thread does wait: nobody but that thread could end it.

cdef dict fork_depths = {}             # id of a thread that is forking -> how many pairs of hooks are open


def fork_begins():
    """A hook before a fork: the calling thread does not give way until fork_is_over() was called as often."""
    cdef coro thread = current_or_none()
    if thread is not None:
        fork_depths[thread.number] = fork_depths.get(thread.number, 0) + 1


def fork_is_over():
    """The hook in the parent that belongs to fork_begins()."""
    cdef coro thread = current_or_none()
    cdef int depth
    if thread is not None:
        depth = fork_depths.pop(thread.number, 0) - 1
        if depth > 0:
            fork_depths[thread.number] = depth


def forget_forks():
    """The hook in the child."""
    fork_depths.clear()


def is_forking():
    """Does the calling thread run hooks of a fork?"""
    if not fork_depths:
        return False
    cdef coro thread = current_or_none()
    return thread is not None and thread.number in fork_depths


# -- Signals and time limits ---------------------------------------------------------------------------

def interrupt_main(handler, signum):
    """A signal came while another than the main thread runs. True: the main thread will call ``handler(signum, None)``;
    False: it is not blocked in an emulated call, or there is none."""
    if main_waits is None:
        return False
    signal_calls.append((handler, signum))
    wake(main_waits, None)
    return True


cdef int call_signal_handlers() except -1:
    while signal_calls:
        handler, signum = signal_calls.popleft()
        handler(signum, None)
    return 0


cdef class Limit(TimerTarget):
    """Wakes a thread once at a certain time."""
    cdef coro thread
    cdef bint over

    cdef int fire(self) except -1:
        self.over = True
        if self.thread is not None:
            wake(self.thread, None)
        return 0


cdef Limit limit_of(coro me, double seconds):
    cdef Limit limit = Limit.__new__(Limit)
    limit.thread = me
    timer_add(limit, ticks_now() + from_ns(<int64_t>(min(seconds, 4e9) * 1e9)))
    return limit


cdef inline bint main_blocks(coro me) noexcept:
    """Note that the main thread is blocked; True if the caller is that thread. A signal may end any of its waits, so
    they count as waiting for something outside: a program that waits for Ctrl-C is no deadlock."""
    global main_waits
    if me.number == main_number:
        main_waits = me
        count_io(1)
        return True
    return False


cdef inline void main_goes_on() noexcept:
    global main_waits
    main_waits = None
    count_io(-1)


cdef int suspend_once(coro me, int kind, object what, bint os_thread=False) except -1:
    """Suspend once; runs signal handlers when that is why the thread was woken. `os_thread`: one of the program's OS
    threads may wake it."""
    cdef bint is_main = main_blocks(me)
    try:
        if os_thread:
            suspend_outside(me, kind, what, True)
        else:
            suspend(me, kind, what)
    finally:
        if is_main:
            main_goes_on()
    if is_main and signal_calls:
        call_signal_handlers()
    return 0


def sleep_thread(double seconds):
    """Suspend the calling coro thread for that many seconds (0: let all others run)."""
    cdef coro me
    cdef Limit limit
    if seconds <= 0:
        try:
            scheduler.yield_slice()
        except NoSwitchError:
            pass                       # nothing is waited for
        return
    me = running_thread()
    limit = limit_of(me, seconds)
    try:
        while not limit.over:
            suspend_once(me, WAIT_SLEEP, None)
    finally:
        timer_cancel(limit)
        limit.thread = None


def wait_for_wake(what, timeout=None):
    """Suspend the calling coro thread until scheduler._wake() or a signal handler has run, at most ``timeout``
    seconds. For waits whose condition the caller looks at again."""
    cdef coro me = running_thread()
    cdef Limit limit = None
    if timeout is not None:
        limit = limit_of(me, timeout)
    try:
        suspend_once(me, WAIT_OBJECT, what)
    finally:
        if limit is not None:
            timer_cancel(limit)
            limit.thread = None


# -- Locks -----------------------------------------------------------------------------------------

@cython.freelist(32)
cdef class Waiter:
    cdef coro thread                    # None: an OS thread, which sleeps on `bell`
    cdef PyThread_type_lock bell
    cdef bint granted
    cdef bint waiting
    cdef int n_forks                    # it stayed behind in the parent if that has changed

    def __cinit__(self):
        self.n_forks = coro_n_forks

    def __dealloc__(self):
        if self.bell != NULL:
            PyThread_free_lock(self.bell)


def _rouse(Waiter w):
    """In the loop, for another OS thread that granted a lock."""
    if w.waiting and w.thread is not None:
        wake(w.thread, None)


cdef bint grant(Waiter w):
    """Give the lock to a waiter; False if it is beyond receiving anything."""
    if w.n_forks != coro_n_forks:
        return False
    if w.thread is None:
        w.granted = True
        PyThread_release_lock(w.bell)
        return True
    if w.thread.dead:
        return False
    w.granted = True
    if scheduler._in_loop_os_thread():
        wake(w.thread, None)
        return True
    if scheduler._post_internal(_rouse, w):
        return True
    w.granted = False
    return False


cdef class Guard:
    """What Lock and RLock share: the flag and the line. Most lines are of one, for whom there is a place without a
    deque; it is the front of the line, and empty only when somebody has left it and nobody moved up."""
    cdef bint taken
    cdef bint by_os_thread              # the owner is no thread of the loop, so its release is not our deadlock
    cdef Waiter first
    cdef object line                    # those behind the first, None: there never were any
    cdef object __weakref__

    cdef bint wait(self, double seconds) except -1:
        """Wait for the lock, which is taken: at most so many seconds, or for ever if less than 0. False: time is up."""
        cdef coro me = blockable()
        cdef Waiter w = Waiter.__new__(Waiter)
        w.thread = me
        w.waiting = True
        if me is None:
            return self.wait_in_os_thread(w, seconds)
        return self.wait_in_thread(w, me, seconds)

    cdef bint wait_in_thread(self, Waiter w, coro me, double seconds) except -1:
        cdef Limit limit = None
        # Where OS threads of the program's run, one of them may come and release the lock: no deadlock.
        cdef bint foreign = self.by_os_thread or count_os_threads() > offload._pool.counted
        self.stand(w)
        try:
            if seconds >= 0:
                limit = limit_of(me, seconds)
            while not w.granted:
                suspend_once(me, WAIT_OBJECT, self, foreign)
                if not w.granted and limit is not None and limit.over:
                    return False
            self.by_os_thread = False
            return True
        except:
            if w.granted:
                self.pass_on()
            raise
        finally:
            w.waiting = False
            if not w.granted:
                self.leave(w)
            if limit is not None:
                timer_cancel(limit)
                limit.thread = None

    cdef bint wait_in_os_thread(self, Waiter w, double seconds) except -1:
        cdef int outcome
        cdef long long microseconds = -1
        cdef double deadline = 0
        w.bell = PyThread_allocate_lock()
        if w.bell == NULL:
            raise MemoryError("no memory for another lock")
        PyThread_acquire_lock(w.bell, WAIT_LOCK)
        if seconds >= 0:
            deadline = monotonic() + seconds
        self.stand(w)
        try:
            while not w.granted:
                if seconds >= 0:
                    microseconds = <long long>(max(0.0, deadline - <double>monotonic()) * 1e6)
                with nogil:
                    outcome = coro_lock_timed(w.bell, microseconds)
                if outcome == PY_LOCK_INTR:
                    PyErr_CheckSignals()
                elif outcome != PY_LOCK_ACQUIRED and not w.granted:
                    return False
            self.by_os_thread = True
            return True
        except:
            if w.granted:
                self.pass_on()
            raise
        finally:
            w.waiting = False
            if not w.granted:
                self.leave(w)

    cdef inline bint has_line(self) noexcept:
        return self.first is not None or (self.line is not None and len(<object>self.line) > 0)

    cdef inline int stand(self, Waiter w) except -1:
        if not self.has_line():
            self.first = w
            return 0
        if self.line is None:
            self.line = deque()
        self.line.append(w)
        return 0

    cdef inline Waiter take_first(self):
        """Out of a line that somebody stands in."""
        cdef Waiter w = self.first
        if w is None:
            return <Waiter>self.line.popleft()
        self.first = None
        return w

    cdef int leave(self, Waiter w) except -1:
        if self.first is w:
            self.first = None
        elif self.line is not None:
            try:
                self.line.remove(w)
            except ValueError:
                pass
        return 0

    cdef void forget_line(self) noexcept:
        self.first = None
        self.line = None

    cdef int pass_on(self) except -1:
        """The owner is done: the next one gets it."""
        while self.has_line():
            if grant(self.take_first()):
                return 0
        self.taken = False
        return 0

    cdef inline int take(self) except -1:
        self.taken = True
        self.by_os_thread = current_or_none() is None
        return 0


cdef double checked_timeout(bint blocking, object timeout) except? -2:
    """Seconds to wait, -1 for ever; raises what the standard library's locks raise."""
    cdef double seconds
    if type(timeout) is not float and type(timeout) is not int:
        if (isinstance(timeout, str)
                or not hasattr(type(timeout), "__float__") and not hasattr(type(timeout), "__index__")):
            raise TypeError(f"'{type(timeout).__name__}' object cannot be interpreted as an integer or float")
    try:
        seconds = timeout
    except OverflowError:
        seconds = 1e300 if timeout > 0 else -2.0
    if seconds == -1:
        return -1 if blocking else 0
    if not blocking:
        raise ValueError("can't specify a timeout for a non-blocking call")
    if seconds != seconds:
        raise ValueError("Invalid value NaN (not a number)")
    if seconds < 0:
        raise ValueError("timeout value must be a non-negative number")
    if seconds > TIMEOUT_MAX:
        raise OverflowError("timeout value is too large")
    return seconds


cdef object MINUS_ONE = -1


@cython.final
@cython.freelist(32)
cdef class Lock(Guard):
    """Lock()\n--\n\n\
    A lock for coro threads and OS threads: not re-entrant, owned by nobody, as ``threading.Lock``."""

    def __init__(self):
        pass

    def acquire(self, blocking=True, timeout=-1):
        """Lock the lock; see threading.Lock.acquire. Suspends only the calling coro thread."""
        cdef double seconds = -1
        if blocking is not True or timeout is not MINUS_ONE:
            seconds = checked_timeout(blocking, timeout)
        if not self.taken:
            self.take()
            return True
        if seconds == 0:
            be_fair()
            return False
        return self.wait(seconds)

    def release(self):
        """Unlock the lock, which need not have been locked by the same thread. RuntimeError when it is not locked."""
        if not self.taken:
            raise RuntimeError("release unlocked lock")
        if not self.has_line():
            self.taken = False
        else:
            self.pass_on()
        be_fair()

    def locked(self):
        """Is the lock locked?"""
        return self.taken

    def acquire_lock(self, blocking=True, timeout=-1):
        """An obsolete synonym of acquire()."""
        return self.acquire(blocking, timeout)

    def release_lock(self):
        """An obsolete synonym of release()."""
        self.release()

    def locked_lock(self):
        """An obsolete synonym of locked()."""
        return self.taken

    def __enter__(self):
        if not self.taken:
            self.take()
        else:
            self.wait(-1)
        return True

    def __exit__(self, *exc):
        self.release()

    def _at_fork_reinit(self):
        self.taken = False
        self.forget_line()

    def __repr__(self):
        state = "locked" if self.taken else "unlocked"
        return f"<{state} _thread.lock object at {<size_t><PyObject *>self:#x}>"


@cython.final
cdef class Sentinel(Guard):
    """A lock that a thread holds as long as it lives. Whoever joins it takes the lock and releases it, and goes on in
    the belief that nobody has it then (`threading` of Python 3.11 and 3.12 asserts that): so release() opens the lock
    for all who wait instead of handing it to one of them."""

    def acquire(self, blocking=True, timeout=-1):
        """See threading.Lock.acquire."""
        cdef double seconds = checked_timeout(blocking, timeout)
        cdef double deadline = 0
        if seconds > 0:
            deadline = <double>monotonic() + seconds
        while self.taken:
            if seconds == 0:
                be_fair()
                return False
            if seconds > 0:
                seconds = max(0.0, deadline - <double>monotonic())
            if not self.wait(seconds):
                return False
        self.take()
        return True

    def release(self):
        """See threading.Lock.release."""
        if not self.taken:
            raise RuntimeError("release unlocked lock")
        self.taken = False
        while self.has_line():
            grant(self.take_first())

    cdef int pass_on(self) except -1:
        return 0                        # who was told that it is open, and goes away, has nothing to pass on

    def locked(self):
        """Is the lock locked?"""
        return self.taken

    def _at_fork_reinit(self):
        self.taken = False
        self.forget_line()

    def __repr__(self):
        state = "locked" if self.taken else "unlocked"
        return f"<{state} _thread.lock object at {<size_t><PyObject *>self:#x}>"


cdef class RLock(Guard):
    """A re-entrant lock whose owner is a coro thread or an OS thread."""
    cdef unsigned long long owner
    cdef Py_ssize_t count

    def __init__(self, *args, **kwargs):
        # Arguments are accepted, and warned of by threading.RLock, where the standard library does the same.
        pass

    def acquire(self, blocking=True, timeout=-1):
        """Lock the lock, or count one up where the caller owns it; see threading.RLock.acquire."""
        cdef double seconds = -1
        cdef unsigned long long me
        if blocking is not True or timeout is not MINUS_ONE:
            seconds = checked_timeout(blocking, timeout)
        me = ident_here()
        if self.count and self.owner == me:
            self.count += 1
            return True
        if not self.taken:
            self.take()
        elif seconds == 0:
            be_fair()
            return False
        elif not self.wait(seconds):
            return False
        self.owner = me
        self.count = 1
        return True

    def release(self):
        """Count one down; the last one unlocks. RuntimeError unless the caller owns the lock."""
        if not self.count or self.owner != ident_here():
            raise RuntimeError("cannot release un-acquired lock")
        self.count -= 1
        if not self.count:
            self.owner = 0
            self.pass_on()
            be_fair()

    def locked(self):
        """Is the lock locked, by whomever?"""
        return self.taken

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *exc):
        self.release()

    def _is_owned(self):
        return self.count > 0 and self.owner == ident_here()

    def _recursion_count(self):
        return self.count if self.owner == ident_here() else 0

    def _release_save(self):
        if not self.count:
            raise RuntimeError("cannot release un-acquired lock")
        saved = (self.count, self.owner)
        self.count = 0
        self.owner = 0
        self.pass_on()
        return saved

    def _acquire_restore(self, state):
        count, owner = state
        if not self.taken:
            self.take()
        else:
            self.wait(-1)
        self.owner = owner
        self.count = count

    def _at_fork_reinit(self):
        self.taken = False
        self.forget_line()
        self.owner = 0
        self.count = 0

    def __repr__(self):
        state = "locked" if self.count else "unlocked"
        return (f"<{state} {type(self).__module__}.{type(self).__qualname__} object owner={self.owner} "
                f"count={self.count} at {<size_t><PyObject *>self:#x}>")


# trio asserts that the class comes from there. That of Lock has no name in `_thread` that pickle would find everywhere.
(<PyTypeObject *>RLock).tp_name = "_thread.RLock"


# -- Sleep, and the import lock --------------------------------------------------------------------

include "parts/imports.pxi"

# -- Conditions ------------------------------------------------------------------------------------

include "parts/conditions.pxi"

# -- Descriptors -----------------------------------------------------------------------------------

cdef dict private_waits = {}           # descriptor -> threads that wait for it with a kernel object of their own


def poll_now(int fd, int events):
    """What poll(2) says at this moment of one descriptor."""
    be_fair()
    return coro_poll_one(fd, <short>events)


def wait_fd(int fd, bint writing, timeout=None, bint urgent=False):
    """Suspend the calling coro thread until the descriptor is ready, at most ``timeout`` seconds; False: time is up.

    Any number of threads may wait for one descriptor. OSError(EBADF) when it is closed meanwhile."""
    return wait_for_fd(fd, writing, urgent, -1 if timeout is None else max(0.0, <double>timeout))


cdef bint wait_for_fd(int fd, bint writing, bint urgent, double seconds) except -1:
    """As wait_fd(); less than 0 seconds: for ever."""
    cdef coro me = running_thread()
    cdef uint32_t ready = FD_EXCEPT_READY if urgent else FD_WRITE_READY if writing else FD_READ_READY
    cdef FdPoller poller = fd_poller()
    cdef fd_state *s
    cdef Limit limit = None
    cdef bint is_main
    cdef int outcome
    if seconds >= 0:
        if seconds == 0:
            return coro_poll_one(fd, POLLPRI if urgent else POLLOUT if writing else POLLIN) != 0
        limit = limit_of(me, seconds)
    try:
        s = poller.state_of(fd)
        while True:
            is_main = main_blocks(me)
            try:
                outcome = poller.wait_on(me, s, fd, ready, True)
            finally:
                if is_main:
                    main_goes_on()
            if is_main and signal_calls:
                call_signal_handlers()
            if outcome != 1:
                return True
            if limit is not None and limit.over:
                return False
    except ClosedError:
        raise OSError(_errno.EBADF, os.strerror(_errno.EBADF)) from None
    except SimultaneousError:
        pass
    finally:
        if limit is not None:
            timer_cancel(limit)
            limit.thread = None
    return wait_beside(fd, POLLPRI if urgent else POLLOUT if writing else POLLIN, None if seconds < 0 else seconds)


cdef object wait_beside(int fd, int events, object timeout):
    """Somebody waits for that descriptor already, and the poller knows one waiter each: watch it with an epoll object
    of our own, and wait for that."""
    return bool(wait_many([(fd, events)], timeout))


def closing(int fd):
    """A descriptor is about to be closed: whoever waits for it gets OSError(EBADF)."""
    cdef fd_state *s = fd_lookup(fd)
    if s != NULL and (s.reader != NULL or s.writer != NULL or s.excepter != NULL) and here() is not None:
        fd_poller().disown(fd, None)


cdef bint would_wait(int error) except -1:
    """After a failed call: True when it would have to wait, False to try again; the other errors are raised."""
    if error == _EAGAIN:
        return True
    if error != EINTR:
        raise OSError(error, os.strerror(error))
    PyErr_CheckSignals()
    return False


def recv_now(int fd, Py_ssize_t size, int flags):
    """recv(2) without waiting: bytes, or None if it would have to wait.

    With MSG_TRUNC they are as many as the kernel says, as the original has it, but zeros where it delivered none."""
    cdef ssize_t got
    cdef int error
    cdef bytes data = bytes(size) if flags & MSG_TRUNC else PyBytes_FromStringAndSize(NULL, size)
    cdef char *start = <char *>data
    be_fair()
    while True:
        with nogil:
            got = c_recv(fd, start, <size_t>size, flags | MSG_DONTWAIT)
            error = errno
        if got == size:
            return data
        if got > size and flags & MSG_TRUNC:
            return data + bytes(got - size)
        if got >= 0:
            return data[:got]
        if would_wait(error):
            return None


def recv_into_now(int fd, buffer, Py_ssize_t size, int flags):
    """recv(2) into the first ``size`` bytes of a buffer (0: all of it): how many, or None if it would have to wait."""
    return receive_into(fd, buffer, size, flags)


cdef object receive_into(int fd, buffer, Py_ssize_t size, int flags):
    cdef Py_buffer view
    cdef ssize_t got
    cdef int error
    be_fair()
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        if size > view.len:
            raise ValueError("buffer too small for requested bytes")
        if size == 0:
            size = view.len
        while True:
            with nogil:
                got = c_recv(fd, view.buf, <size_t>size, flags | MSG_DONTWAIT)
                error = errno
            if got >= 0:
                return got
            if would_wait(error):
                return None
    finally:
        PyBuffer_Release(&view)


def send_now(int fd, data, Py_ssize_t begin, int flags):
    """send(2) of everything from ``begin`` on: how many bytes went out, or None if it would have to wait."""
    cdef Py_ssize_t total
    return transmit(fd, data, begin, flags, &total)


cdef object transmit(int fd, data, Py_ssize_t begin, int flags, Py_ssize_t *size):
    """As send_now(), and tells how many bytes `data` has."""
    cdef Py_buffer view
    cdef ssize_t sent
    cdef int error
    be_fair()
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    size[0] = view.len
    try:
        if begin > view.len:
            begin = view.len
        while True:
            with nogil:
                sent = c_send(fd, <char *>view.buf + begin, <size_t>(view.len - begin), flags | MSG_DONTWAIT)
                error = errno
            if sent >= 0:
                return sent
            if would_wait(error):
                return None
    finally:
        PyBuffer_Release(&view)


# -- Sockets ---------------------------------------------------------------------------------------

include "parts/sockets.pxi"

# -- Files -----------------------------------------------------------------------------------------

cdef object real_open = _io.open
cdef object stat_of = os.stat
cdef object os_path = os.fspath
cdef object opens_waiting = None       # what make_open() gave, when the first such file is opened


cpdef bint may_wait(file) except -1:
    """Is it a FIFO, a socket or a terminal? False for what the original will not open."""
    cdef int kind
    try:
        found = stat_of(file)
    except (OSError, OverflowError, TypeError, ValueError):
        return False
    kind = found.st_mode & 0o170000
    if kind == 0o020000:               # a character device
        return (<int>found.st_rdev >> 8) != 1   # of which Linux's memory devices, /dev/null and so on, never wait
    return kind == 0o010000 or kind == 0o140000


class Waits(Exception):
    """Stops an open(): its opener has come with a descriptor that may wait."""

    def __init__(self, fd):
        self.fd = fd


class StopsAtWaiting:
    """An opener that does what another does, unless that comes with a descriptor that may wait."""

    def __init__(self, opener):
        self.opener = opener

    def __call__(self, path, flags):
        fd = self.opener(path, flags)
        if type(fd) is int and fd >= 0 and may_wait(fd):
            raise Waits(fd)
        return fd


cdef inline bint is_text(value) noexcept:
    return value is None or isinstance(value, str)


def open(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True, opener=None):
    """Open a file; see open. Reading and writing a pipe, a terminal or a socket suspends only the calling coro thread.

    Not a Python function: kept in a class it must not become a method, and the lines that warnings name count frames.
    """
    global opens_waiting
    if here() is None:
        return real_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
    if type(file) is not str and type(file) is not int:
        if not isinstance(file, int):
            file = os_path(file)
    if opener is not None and not isinstance(file, int):
        try:
            return real_open(file, mode, buffering, encoding, errors, newline, closefd, StopsAtWaiting(opener))
        except Waits as found:
            fd = found.fd
        opener = lambda path, flags: fd
    elif not (isinstance(mode, str) and isinstance(buffering, int) and is_text(encoding) and is_text(errors)
              and is_text(newline) and may_wait(file)):
        return real_open(file, mode, buffering, encoding, errors, newline, closefd, None)
    if opens_waiting is None:
        opens_waiting = make_open()
    return opens_waiting(file, mode, buffering, encoding, errors, newline, closefd, opener)


cdef object real_raw = _io.FileIO
cdef object open_descriptor = None     # os.open as the emulation has it, see know_open()


def know_open(function):
    """What opens a FIFO that has no other end yet."""
    global open_descriptor
    open_descriptor = function


@cython.binding(True)
def make_raw(cls, *args, **kwargs):
    """The call of the class that stands for ``io.FileIO``, or of one that a program has derived from it.

    It is made here because what is compiled has no frame: the original may warn of its caller's line."""
    cdef object opener
    if cls.__dict__.get("_native") is not real_raw:
        return type.__call__(cls, *args, **kwargs)
    if here() is None or not (args or "file" in kwargs):
        return real_raw(*args, **kwargs)
    file = args[0] if args else kwargs["file"]
    opener = args[3] if len(args) > 3 else kwargs.get("opener")
    if opener is not None and not isinstance(file, int):
        args, kwargs = args[:3], {**kwargs, "opener": StopsAtWaiting(opener)}
        try:
            return real_raw(*args, **kwargs)
        except Waits as waits:
            fd = waits.fd
        kwargs["opener"] = lambda path, flags: fd
    elif type(file) is bool or not may_wait(file):
        return real_raw(*args, **kwargs)
    elif not isinstance(file, int):
        args, kwargs = args[:3], {**kwargs, "opener": open_descriptor}
    return type.__call__(cls, *args, **kwargs)


def write_unraisable(exc, function):
    """Report an exception that left a thread of start_new_thread(), through sys.unraisablehook."""
    coro_unraisable(exc, function)
