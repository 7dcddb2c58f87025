# cython: language_level=3, binding=False, embedsignature=True, embedsignature.format=clinic
"""Lines of waiting threads: the one place where blocking in a synchronisation primitive, and its interruption, happens.

A thread that has to wait stands in a line (a doubly linked list of small C records on the heap). Whoever has something
to give takes the first record out of the line, marks it GRANTED, books the thing for its thread and wakes it. What was
granted belongs to the waiter from that moment on, so a newcomer cannot take it; the waiter merely has to run and find
out. That makes every primitive first come, first served, and immune to wake-ups that mean nothing: a thread that comes
back without a grant goes on waiting at its old place.

An interruption may strike before the grant (the record just leaves the line), or after it and before the thread has
run: then the primitive takes the grant back and hands it to the next one. Either way the primitive's `advance()` is
called, because the departure alone may let others in (readers behind a writer, small requests behind a large one).

A thread whose interruption is on its way already when its turn comes is passed over (SKIPPED). Should it come back in
spite of that (the interruption waits for the end of a `coro.shield`), it stands in line again where it stood before:
tickets tell the order.

Cost: one record of 56 bytes per waiting thread, O(1) to join, leave and wake. A record is never on a C stack, since
stacks are copied away while threads are parked.

Invariants:
 1. A record is linked exactly while its state is QUEUED.
 2. It is freed by the thread that waits, on its way out; by others only when that thread is dead and never gets there.
 3. advance() leaves no line whose first waiter could be granted what it wants.

Who looks for the first of several things to happen (`coro.select`) registers as a watcher: watchers are woken whenever
a primitive has something left to give after the line was served. A watcher owns nothing and must try for itself.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libc.stdint cimport uint64_t

from coro._abi cimport require_abi
from coro._scheduler cimport WAIT_OBJECT, coro, running_thread, suspend, wake

import os

from coro import _scheduler
from coro.exceptions import NoSwitchError, YieldFromMain

require_abi()

cdef uint64_t last_ticket = 0
cdef uint64_t fork_horizon = 0      # threads with smaller ids that are dead in this process died by a fork
cdef object current_thread = _scheduler.current


cdef class Primitive:
    """What everything that threads wait for has in common. Not for users."""

    cdef int advance(self) except -1:
        """Grant whatever there is to whoever is first, as long as it lasts."""
        return 0

    cdef int give_back(self, waiter *w) except -1:
        """The thread of `w` was interrupted after it had been granted something: undo that. advance() follows."""
        return 0

    cdef bint is_ready(self, bint to_put):
        return False

    def _ready(self, bint to_put=False):
        """For select: would the operation (get or wait; with ``to_put`` the other direction) succeed at once?"""
        caller()
        return self.is_ready(to_put)

    def _watch(self, coro thread not None):
        """For select: wake the thread when this may have become ready; until _unwatch()."""
        caller()
        if self.watchers is None:
            self.watchers = []
        self.watchers.append(thread)

    def _unwatch(self, coro thread not None):
        """For select: undo one _watch(); harmless when there was none."""
        cdef list watchers = self.watchers
        if watchers is not None and thread in watchers:
            watchers.remove(thread)
            if not watchers:
                self.watchers = None


cdef object caller():
    """Who calls: the thread, or the stand-in for main where there is none. Raises only WrongThreadError."""
    try:
        return running_thread()
    except (YieldFromMain, NoSwitchError):
        return current_thread()


cdef uint64_t new_ticket() noexcept:
    global last_ticket
    last_ticket += 1
    return last_ticket


cdef void join_line(wait_line *line, waiter *w) noexcept:
    """Put the record where its ticket belongs, which is the end unless it was in the line before."""
    cdef waiter *before = line.last
    while before != NULL and before.ticket > w.ticket:
        before = before.prev
    w.prev = before
    if before == NULL:
        w.next = line.first
        line.first = w
    else:
        w.next = before.next
        before.next = w
    if w.next == NULL:
        line.last = w
    else:
        w.next.prev = w
    line.count += 1
    w.state = QUEUED


cdef void leave_line(wait_line *line, waiter *w, int state) noexcept:
    if w.prev == NULL:
        line.first = w.next
    else:
        w.prev.next = w.next
    if w.next == NULL:
        line.last = w.prev
    else:
        w.next.prev = w.prev
    w.next = w.prev = NULL
    line.count -= 1
    w.state = state


cdef int free_waiter(waiter *w) except -1:
    cdef PyObject *thread = w.thread
    cdef PyObject *value = w.value
    PyMem_Free(w)
    Py_XDECREF(value)
    Py_XDECREF(thread)
    return 0


cdef object stand_in_line(Primitive what, wait_line *line, coro me, Py_ssize_t amount, uint64_t ticket):
    """Wait until granted; returns the value that came with the grant, or None. Raises what interrupts the thread: then
    nothing is granted and others have been served in its place.

    `line` lies inside `what`; `me` is running_thread(); `ticket` is a new_ticket(), or the one of an earlier wait."""
    cdef waiter *w = <waiter *>PyMem_Malloc(sizeof(waiter))
    if w == NULL:
        raise MemoryError("no memory to wait in line")
    Py_INCREF(me)
    w.thread = <PyObject *>me
    w.value = NULL
    w.amount = amount
    w.ticket = ticket
    try:
        while True:
            join_line(line, w)
            what.advance()
            while w.state == QUEUED:
                suspend(me, WAIT_OBJECT, what)
            if w.state == GRANTED:
                return None if w.value == NULL else <object>w.value
    except:
        if w.state == GRANTED:
            what.give_back(w)
        elif w.state == QUEUED:
            leave_line(line, w, SKIPPED)
        what.advance()
        raise
    finally:
        free_waiter(w)


cdef waiter *take_first(wait_line *line):
    """Take the first record out of the line (which must not be empty). Returns it GRANTED, its thread awake or about to
    run; NULL when that thread is dead, or will raise an interruption as soon as it runs."""
    cdef waiter *w = line.first
    cdef coro t = <coro>w.thread
    if wake(t, None):
        leave_line(line, w, GRANTED)
        return w
    if t.dead:
        leave_line(line, w, SKIPPED)
        free_waiter(w)
        return NULL
    if t.attention and current_thread() is not t:
        leave_line(line, w, SKIPPED)
        return NULL
    leave_line(line, w, GRANTED)
    return w


cdef waiter *take_any(wait_line *line):
    """The same for grants that nobody else misses: only the dead are passed over."""
    cdef waiter *w = line.first
    cdef coro t = <coro>w.thread
    if not wake(t, None) and t.dead:
        leave_line(line, w, SKIPPED)
        free_waiter(w)
        return NULL
    leave_line(line, w, GRANTED)
    return w


cdef int grant_all(wait_line *line) except -1:
    """Let everybody go who waits now."""
    while line.count:
        take_any(line)
    return 0


cdef int skip_doomed(wait_line *line) except -1:
    """Take out everybody who is dead or about to be interrupted, wherever in the line."""
    cdef waiter *w = line.first
    cdef waiter *following
    cdef coro t
    while w != NULL:
        following = w.next
        t = <coro>w.thread
        if t.dead:
            leave_line(line, w, SKIPPED)
            free_waiter(w)
        elif t.attention and t.scheduled:
            leave_line(line, w, SKIPPED)
        w = following
    return 0


cdef int drop_doomed(wait_line *line) except -1:
    """The same for those at the head of the line only. The dead are threads abandoned at the end of a loop, or lost in
    a fork."""
    cdef waiter *w = line.first
    cdef coro t
    while w != NULL:
        t = <coro>w.thread
        if t.dead:
            leave_line(line, w, SKIPPED)
            free_waiter(w)
        elif t.attention and t.scheduled:
            leave_line(line, w, SKIPPED)
        else:
            break
        w = line.first
    return 0


cdef int set_value(waiter *w, object value) except -1:
    cdef PyObject *before = w.value
    Py_INCREF(value)
    w.value = <PyObject *>value
    Py_XDECREF(before)
    return 0


cdef tuple threads_of(wait_line *line):
    cdef waiter *w = line.first
    cdef list found = []
    while w != NULL:
        found.append(<object>w.thread)
        w = w.next
    return tuple(found)


cdef Py_ssize_t units_of(object n, object what) except -1:
    """`n` as a number of units. TypeError unless an int, ValueError when negative or absurdly large."""
    cdef Py_ssize_t units
    if not isinstance(n, int) or isinstance(n, bool):
        raise TypeError(f"expected {what} as an int, not {type(n).__name__}: {n!r}")
    try:
        units = n
    except OverflowError:
        units = -1
    if units < 0 or units > (<Py_ssize_t>1 << (8 * sizeof(Py_ssize_t) - 2)):
        raise ValueError(f"expected {what} to be 0 or more (and to fit half a machine word), not {n}")
    return units


cdef int announce_to(list watchers) except -1:
    for t in watchers:
        wake(<coro>t, None)
    return 0


cdef bint is_dead(object thread):
    return isinstance(thread, coro) and (<coro>thread).dead


cdef bint died_by_fork(object thread):
    return is_dead(thread) and (<coro>thread).number <= fork_horizon


def _after_fork_in_child():
    """Every other thread that existed is dead here; what they had locked is taken from them when somebody wants it."""
    global fork_horizon
    fork_horizon = _scheduler._counters()["spawned"]


os.register_at_fork(after_in_child=_after_fork_in_child)
