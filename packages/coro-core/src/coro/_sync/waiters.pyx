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

A thread in `coro.select` has a record (a `choice`) in the line of everything it waits for. Whoever grants it one takes
the others out of their lines in the same breath, so it is given one thing only, and nobody who counts a line counts a
thread that is going to leave it. For the primitives it is a waiter like any other.

Time limits (``timeout=`` of everything that waits) are those of coro.timeout, begun when it is clear that the thread
has to wait. So one that strikes is an interruption like any other, and what was said of these holds: it leaves no
damage. With 0 nothing is waited for and nobody else runs.

Cost: one record of 56 bytes per waiting thread, O(1) to join, leave and wake. A record is never on a C stack, since
stacks are copied away while threads are parked.

Invariants:
 1. A record is linked exactly while its state is QUEUED.
 2. It is freed by the thread that waits, on its way out; by others only when that thread is dead and never gets there
    (the array of a select's records is then lost with the rest of that thread's stack).
 3. At most one record of a select is GRANTED, and none is QUEUED then.
 4. advance() leaves no line whose first waiter could be granted what it wants.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libc.stdint cimport uint64_t

from coro._runtime.abi cimport require_abi
from coro._runtime.scheduler cimport THREAD_LOST, WAIT_OBJECT, begin_limit, coro, end_limit, suspend, wake

from coro._runtime import scheduler
from coro.exceptions import Interrupted

require_abi()

cdef uint64_t last_ticket = 0
cdef object current_thread = scheduler.current
NOT_NOW = object()


cdef class Primitive:
    """What everything that threads wait for has in common. Not for users."""

    cdef int advance(self) except -1:
        """Grant whatever there is to whoever is first, as long as it lasts."""
        return 0

    cdef int give_back(self, waiter *w) except -1:
        """The thread of `w` was interrupted after it had been granted something: undo that. advance() follows."""
        return 0

    cdef object attempt(self, int operation, object value, Py_ssize_t amount):
        """Perform the operation and return its result, or NOT_NOW if the caller would have to wait. Raises what the
        operation raises."""
        return NOT_NOW

    cdef int must_wait(self) except -1:
        """The caller is going to stand in line: count it, warn it. May run code of users."""
        return 0

    cdef wait_line *line_of(self, int operation) noexcept:
        """The line to stand in for the operation; it lies inside this object."""
        return NULL

    cdef object conclude(self, int operation, object value, waiter *w):
        """The thread of `w`, which was granted, runs: finish the operation and return its result. NOT_NOW if it has
        to stand in line again. Whatever comes of it, what was booked for `w` is booked no more."""
        return None if w.value == NULL else <object>w.value


cdef class Counted(Primitive):
    """The ``with`` form of what counts units: one in the block. Not for users."""

    cdef int enter(self) except -1:
        return 0

    cdef int leave(self) except -1:
        return 0

    def __enter__(self):
        self.enter()
        return self

    def __exit__(self, kind, exc, traceback):
        self.leave()
        return False


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
    w.is_choice = False
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


cdef object stand_timed(Primitive what, wait_line *line, coro me, Py_ssize_t amount, object timeout, str call):
    """The same at the end of the line and for no longer than ``timeout`` seconds; TimeoutError names the call. What was
    granted in the moment in which the time is over counts, as with every limit."""
    limit = begin_limit(me, timeout)
    try:
        return stand_in_line(what, line, me, amount, new_ticket())
    except Interrupted as exc:
        end_limit(limit, timeout, call, exc)
        raise
    finally:
        end_limit(limit, timeout, call, None)


cdef void grant(wait_line *line, waiter *w) noexcept:
    cdef choices *all
    leave_line(line, w, GRANTED)
    if w.is_choice:
        all = (<choice *>w).all
        all.granted = <choice *>w
        leave_others(all)


cdef void leave_others(choices *all) noexcept:
    """Take the records of a select out of every line they are in."""
    cdef Py_ssize_t i
    cdef choice *c
    for i in range(all.count):
        c = &all.first[i]
        if c.w.state == QUEUED:
            leave_line(c.line, &c.w, SKIPPED)


cdef int remove_dead(wait_line *line, waiter *w) except -1:
    """Its thread is dead: it leaves the line, or all its lines."""
    leave_line(line, w, SKIPPED)
    if w.is_choice:
        leave_others((<choice *>w).all)
    else:
        free_waiter(w)
    return 0


cdef waiter *take(wait_line *line, waiter *w):
    """Take a record out of its line. Returns it GRANTED, its thread awake or about to run; NULL when that thread is
    dead, or will raise an interruption as soon as it runs."""
    cdef coro t = <coro>w.thread
    if wake(t, None):
        grant(line, w)
        return w
    if t.dead:
        remove_dead(line, w)
        return NULL
    if t.link.attention and current_thread() is not t:
        leave_line(line, w, SKIPPED)
        return NULL
    grant(line, w)
    return w


cdef waiter *take_first(wait_line *line):
    """The same for the first in line, which must not be empty."""
    return take(line, line.first)


cdef waiter *take_any(wait_line *line):
    """The same for grants that nobody else misses: only the dead are passed over."""
    cdef waiter *w = line.first
    cdef coro t = <coro>w.thread
    if not wake(t, None) and t.dead:
        remove_dead(line, w)
        return NULL
    grant(line, w)
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
    cdef bint others_too
    cdef coro t
    while w != NULL:
        following = w.next
        t = <coro>w.thread
        if t.dead:
            others_too = w.is_choice
            remove_dead(line, w)
            if others_too:
                following = line.first
        elif t.link.attention and t.scheduled:
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
            remove_dead(line, w)
        elif t.link.attention and t.scheduled:
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
    """Who waits, for reports. The dead are left out: they stay in line, after a fork say, until their turn comes."""
    cdef waiter *w = line.first
    cdef list found = []
    while w != NULL:
        if not (<coro>w.thread).dead:
            found.append(<object>w.thread)
        w = w.next
    return tuple(found)


cdef Py_ssize_t waiting_in(wait_line *line):
    """How many these are."""
    cdef waiter *w = line.first
    cdef Py_ssize_t n = 0
    while w != NULL:
        n += not (<coro>w.thread).dead
        w = w.next
    return n


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


cdef bint is_dead(object thread):
    return isinstance(thread, coro) and (<coro>thread).dead


cdef bint died_by_fork(object thread):
    return isinstance(thread, coro) and ((<coro>thread).link.flags & THREAD_LOST) != 0
