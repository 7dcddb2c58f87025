# cython: language_level=3, binding=False, embedsignature=True, embedsignature.format=clinic
"""coro.select: wait for the first of several things.

Each thing is a `case` made beforehand: an operation and what it is performed on. A select first tries its cases one
after the other, beginning at a random one, and performs the first that need not wait; then nobody is switched to.
Otherwise the thread stands in the line of every primitive at once, like any other waiter, so it is served in its turn,
and nobody who waits in the ordinary way overtakes it or is overtaken by it. Whoever grants it something takes it out of
all other lines in the same moment (see _sync/waiters.pyx): that is what makes exactly one operation happen. An
interruption that comes after the grant gives it back, as everywhere.

Descriptors, threads that end and time limits are different: to have become readable, to have ended, to be over is not
used up by being noticed. For these the thread is merely woken and looks for itself; if something was granted as well by
then, that is what happened. Whether a descriptor is ready is asked of poll(2) each time, one call for all of them,
because what the poller remembers may be out of date; it is asked after the poller was told whom to wake, so that no
change gets lost in between.

Cost: O(number of cases) for every call, and for every wake-up, which are few; 72 bytes a case while it waits. A select
that need not wait takes one small allocation, and one more for descriptors.

Why more than 500 lines: the texts of the eight kinds of cases; what runs is half of it.

Rejected: watchers that are woken whenever something may be had and try again (a steady stream of ordinary waiters
starves them); a barrier as a case (who comes to a barrier lets the others rely on it and cannot take part in another
operation instead); results by position (a list that changes makes them wrong without a word).

Invariants:
 1. A case is `used` exactly while a select has it, so the state of the waiting lies in the case itself.
 2. Only while `wait()` runs, records are in lines, the thread is in slots of the poller and among joiners.
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.errno cimport EBADF
from libc.stdint cimport int64_t, uint32_t, uint64_t

from coro._runtime.abi cimport require_abi
from coro._poll.descriptors cimport (FD_OWNED, FD_READ_READY, FD_REGISTERED, FD_WRITE_READY, FdPoller, fd_poller,
                                     fd_state, filter_of, slot_of, stand, stand_down)
from coro._runtime.scheduler cimport (WAIT_SELECT, add_joiner, cancel_alarm, coro, deadline_after, is_past,
                                      remove_joiner, running_thread, set_alarm, suspend, suspend_outside, whoever)
from coro._net.posix cimport POLLIN, POLLNVAL, POLLOUT, coro_poll_now, pollfd
from coro._net.sock cimport _descriptor, _receiver, reader_busy
from coro._sync.waiters cimport (ACQUIRE, GET, JOIN, LOCK, NOT_NOW, PUT, QUEUED, READ, SKIPPED, WAIT, WRITE, Primitive,
                                 choice, choices, join_line, leave_line, new_ticket, units_of, waiter)

from coro import oserrors
from coro._sync.conditions import condition_variable, event, inverted_semaphore, latch
from coro._sync.locks import mutex, semaphore
from coro._sync.queues import channel, fifo
from coro.exceptions import ClosedError

require_abi()

cdef tuple NAMES = ("get", "put", "wait", "acquire", "lock", "join", "read", "write")
cdef tuple WORDS = ("to get from", "to put into", "for", "for units of", "for", "for the end of", "to read", "to write")

# Marsaglia's xorshift; the seed is the same in every process, so that programs can be repeated.
cdef uint64_t random_state = 0x2545F4914F6CDD1D


cdef Py_ssize_t random_below(Py_ssize_t n) noexcept:
    global random_state
    random_state ^= random_state << 13
    random_state ^= random_state >> 7
    random_state ^= random_state << 17
    return <Py_ssize_t>((random_state >> 16) % <uint64_t>n)


def _seed(uint64_t number):
    """For tests: begin the random order of cases anew."""
    global random_state
    random_state = number * 2 + 1


cdef class case:
    """One of the operations that a ``coro.select`` waits for. The static methods ``get``, ``put``, ``wait``,
    ``acquire``, ``lock``, ``join``, ``read`` and ``write`` make cases. Calling the class is a TypeError.

    ``what`` is the object, ``kind`` the name of the operation. ``value`` is what the operation returned, if the select
    chose this case. It stays until a select gets the case again. A case may be used any number of times, in one select
    at a time."""

    cdef int operation
    cdef Primitive served       # whose line to stand in: `what`; of a queue, one of its two semaphores
    cdef int step               # what is done there
    cdef object refuse          # a queue's: raises when it is shut down
    cdef object finish          # a queue's: puts or gets, once there is a unit
    cdef readonly object what
    cdef readonly object value
    cdef object given           # PUT: the value
    cdef Py_ssize_t amount      # ACQUIRE: units
    cdef bint used
    # while a select has it:
    cdef int fd                 # READ, WRITE
    cdef Py_ssize_t place       # in the select's array of pollfd, or of choices
    cdef bint joined            # JOIN: among the joiners
    cdef fd_state *state        # READ, WRITE: once the poller was told
    cdef uint32_t epoch

    def __init__(self, *args, **kwargs):
        raise TypeError("cases are made by coro.case.get(queue), coro.case.read(sock) and so on, not by calling the "
                        "class")

    @staticmethod
    def get(queue):
        """Take the first value out of ``queue``, a fifo, channel or queue (also lifo_queue, priority_queue); the case's
        ``value`` is that. The select raises ChannelClosed if the channel is closed and empty, QueueShutDown if the
        queue is shut down and empty. Raises TypeError if it is none of these."""
        if isinstance(queue, (fifo, channel)):
            return new_case(GET, queue)
        if not hasattr(type(queue), "_parts_for_select"):
            raise TypeError(f"expected a coro.fifo, coro.channel or coro.queue to get a value from, not {named(queue)}")
        return queue_case(GET, queue)

    @staticmethod
    def put(queue, item):
        """Put ``item`` into ``queue``, a fifo, channel or queue (also lifo_queue, priority_queue). The select raises
        ChannelClosed or QueueShutDown if it is closed or shut down. Raises TypeError if it is none of these."""
        cdef case c
        if isinstance(queue, (fifo, channel)):
            c = new_case(PUT, queue)
        elif hasattr(type(queue), "_parts_for_select"):
            c = queue_case(PUT, queue)
        else:
            raise TypeError(f"expected a coro.fifo, coro.channel or coro.queue to put a value into, not {named(queue)}")
        c.given = item
        return c

    @staticmethod
    def wait(what):
        """Wait for ``what``: until an event is set or a latch open, until a condition_variable wakes the thread (the
        case's ``value`` is then the ``args``), or until an inverted_semaphore is at 0. Raises TypeError for anything
        else."""
        if not isinstance(what, (event, latch, condition_variable, inverted_semaphore)):
            raise TypeError(f"expected a coro.event, latch, condition_variable or inverted_semaphore to wait for, not "
                            f"{named(what)}; for a barrier, and whatever else can only be waited for alone, "
                            f"spawn a thread that waits and use coro.case.join(thread)")
        return new_case(WAIT, what)

    @staticmethod
    def acquire(what, n=1):
        """Take ``n`` units of ``what``, a semaphore. Raises TypeError if it is none; TypeError or ValueError if ``n``
        is not an int >= 0."""
        cdef case c
        if not isinstance(what, semaphore):
            raise TypeError(f"expected a coro.semaphore to take units from, not {named(what)}; for a pool or a "
                            f"rate_limiter, spawn a thread that waits and use coro.case.join(thread)")
        c = new_case(ACQUIRE, what)
        c.amount = units_of(n, "the number of units")
        return c

    @staticmethod
    def lock(what):
        """Lock ``what``, a mutex. Raises TypeError if it is none."""
        if not isinstance(what, mutex):
            raise TypeError(f"expected a coro.mutex to lock, not {named(what)}")
        return new_case(LOCK, what)

    @staticmethod
    def join(thread):
        """Wait for the end of ``thread``; the case's ``value`` is the thread. The select raises AssertionError if it is
        called in that thread. Raises TypeError if it is not a thread."""
        if not isinstance(thread, coro):
            raise TypeError(f"expected a thread (see coro.spawn) to join, not {named(thread)}")
        return new_case(JOIN, thread)

    @staticmethod
    def read(what):
        """Wait until ``what`` is readable, at its end or broken. Nothing is read. ``what`` is a sock, another object
        with ``fileno()``, or the number of a descriptor. The select raises ClosedError if it is closed,
        SimultaneousError if another thread waits to read from it. Raises TypeError for anything else."""
        return descriptor_case(READ, what)

    @staticmethod
    def write(what):
        """Wait until ``what`` can be written. ``what`` and errors as for read()."""
        return descriptor_case(WRITE, what)

    @property
    def kind(self):
        return NAMES[self.operation]

    def _words(self):
        """For reports: what a thread with this case waits for."""
        if self.operation >= READ:
            return f"{WORDS[self.operation]} {'descriptor ' if isinstance(self.what, int) else ''}{self.what!r}"
        return f"{WORDS[self.operation]} {self.what!r}"

    @classmethod
    def __class_getitem__(cls, item):
        """``case[int]`` in annotations is just ``case``."""
        return cls

    def __repr__(self):
        return f"<{type(self).__name__} {NAMES[self.operation]} {self.what!r}>"


cdef object named(object what):
    return f"{type(what).__name__}: {what!r}"


cdef case new_case(int operation, object what):
    cdef case c = case.__new__(case)
    c.operation = c.step = operation
    c.what = what
    c.served = what if isinstance(what, Primitive) else None
    c.fd = -1
    return c


cdef case queue_case(int operation, object queue):
    """A queue is a container between two semaphores: take a unit of the right one, then put or get."""
    cdef case c = new_case(operation, queue)
    c.served, c.refuse, c.finish = queue._parts_for_select(operation == PUT)
    c.step = ACQUIRE
    c.amount = 1
    return c


cdef case descriptor_case(int operation, object what):
    if isinstance(what, bool) or not (isinstance(what, int) or callable(getattr(what, "fileno", None))):
        raise TypeError(f"expected a sock, an object with fileno() or a descriptor number, not {named(what)}")
    if isinstance(what, int) and not 0 <= what <= 0x7fffffff:
        raise ValueError(f"a descriptor number is from 0 to {0x7fffffff}, not {what}")
    return new_case(operation, what)


cdef inline uint32_t direction(case c) noexcept:
    return FD_READ_READY if c.operation == READ else FD_WRITE_READY


cdef class Selection:
    """One call of select."""

    cdef tuple cases
    cdef Py_ssize_t begun       # cases that are ours
    cdef Py_ssize_t n_fds
    cdef Py_ssize_t n_lines
    cdef pollfd *polled
    cdef choice *records
    cdef choices all
    cdef coro me

    def __dealloc__(self):
        PyMem_Free(self.polled)
        PyMem_Free(self.records)

    cdef int begin(self) except -1:
        """Take the cases into use. What is released here may run code of users, so may the fileno() of their objects;
        from here on none does until something has happened."""
        cdef case c
        for c in self.cases:
            if c.used:
                raise RuntimeError(f"{c!r} is in use already: a case may stand in one select at a time, and once; make "
                                   f"another one")
            c.used = True
            self.begun += 1
        for c in self.cases:
            c.value = None
            if c.operation >= READ:
                c.fd = number_of(c.what)
                c.place = self.n_fds
                self.n_fds += 1
        if self.n_fds:
            self.polled = <pollfd *>PyMem_Calloc(self.n_fds, sizeof(pollfd))
            if self.polled == NULL:
                raise MemoryError("no memory to select")
            for c in self.cases:
                if c.operation >= READ:
                    self.polled[c.place].fd = c.fd
                    self.polled[c.place].events = POLLIN if c.operation == READ else POLLOUT
        return 0

    cdef int end(self) except -1:
        cdef Py_ssize_t i
        cdef case c
        for i in range(self.begun):
            c = <case>self.cases[i]
            c.state = NULL
            c.used = False
        return 0

    cdef int ask_kernel(self) except -1:
        """Which descriptors are ready now?"""
        cdef Py_ssize_t i
        cdef int failed = coro_poll_now(self.polled, self.n_fds)
        if failed:
            raise oserrors.make(failed)
        for i in range(self.n_fds):
            if self.polled[i].revents & POLLNVAL:
                raise oserrors.make(EBADF)
        return 0

    cdef bint has_happened(self, case c):
        """For what is not used up by being noticed."""
        if c.operation == JOIN:
            return (<coro>c.what).dead
        if self.polled[c.place].revents:
            return True
        return c.operation == READ and isinstance(c.what, _receiver) and (<_receiver>c.what).back is not None

    cdef case attempt(self):
        """Perform the first operation that need not wait; None when there is none."""
        cdef case c
        cdef Py_ssize_t i, n = len(self.cases), at = random_below(n)
        if self.n_fds:
            self.ask_kernel()
        for i in range(n):
            c = <case>self.cases[at]
            at += 1
            if at == n:
                at = 0
            if c.operation >= JOIN:
                if self.has_happened(c):
                    return noticed(c)
            else:
                if c.refuse is not None:
                    c.refuse()
                value = None if c.served is None else c.served.attempt(c.step, c.given, c.amount)
                if value is not NOT_NOW:
                    if c.finish is not None:
                        value = finished(c)
                    c.value = value
                    return c
        return None

    # -- waiting

    cdef case wait(self, coro me, bint limited, int64_t when):
        """Stand everywhere until one of the cases happens; None when that tick comes first."""
        cdef case c
        cdef waiter *w
        self.me = me
        for c in self.cases:
            self.prepare(c)
        self.make_records()
        try:
            if limited:
                set_alarm(me, when)
            while True:
                self.stand()
                if self.all.granted == NULL:
                    c = self.look_around()
                    if c is not None:
                        return c
                    if limited and is_past(when):
                        return None
                    me.ident = 1 if self.n_fds else 0
                    if self.n_fds:
                        suspend_outside(me, WAIT_SELECT, self.cases, False)
                    else:
                        suspend(me, WAIT_SELECT, self.cases)
                if self.all.granted != NULL:
                    w = &self.all.granted.w
                    c = self.case_of(self.all.granted)
                    self.all.granted = NULL
                    w.state = SKIPPED
                    value = c.served.conclude(c.step, c.given, w)
                    if value is not NOT_NOW:
                        if c.finish is not None:
                            value = finished(c)
                        c.value = value
                        return c
        except:
            if self.all.granted != NULL:
                w = &self.all.granted.w
                c = self.case_of(self.all.granted)
                self.all.granted = NULL
                w.state = SKIPPED
                c.served.give_back(w)
            raise
        finally:
            if limited:
                cancel_alarm(me)
            self.leave()

    cdef int prepare(self, case c) except -1:
        """What may raise, or run code of users, before the thread stands anywhere."""
        if c.operation == JOIN:
            if c.what is self.me:
                raise AssertionError("a thread cannot wait for its own end: select was given a join of the running "
                                     "thread")
        elif c.operation >= READ:
            if c.operation == READ and isinstance(c.what, _receiver) and (<_receiver>c.what).reader is not None:
                reader_busy(<_receiver>c.what, self.me)
        else:
            c.served.must_wait()
            self.n_lines += 1
        return 0

    cdef int make_records(self) except -1:
        cdef case c
        cdef choice *r
        cdef Py_ssize_t i = 0
        cdef uint64_t ticket = new_ticket()
        if self.n_lines == 0:
            return 0
        self.records = <choice *>PyMem_Calloc(self.n_lines, sizeof(choice))
        if self.records == NULL:
            raise MemoryError("no memory to wait in line")
        self.all.first = self.records
        for c in self.cases:
            if c.operation < JOIN:
                r = &self.records[i]
                r.w.thread = <PyObject *>self.me    # which outlives the record
                r.w.ticket = ticket
                r.w.state = SKIPPED
                r.w.is_choice = True
                r.line = c.served.line_of(c.step)
                r.all = &self.all
                c.place = i
                i += 1
        self.all.count = i
        return 0

    cdef case case_of(self, choice *r):
        cdef case c
        for c in self.cases:
            if c.operation < JOIN and &self.records[c.place] == r:
                return c
        return None

    cdef int stand(self) except -1:
        """Take the places that the thread does not have (yet, or any more), until one of them is granted."""
        cdef case c
        cdef choice *r
        for c in self.cases:
            if self.all.granted != NULL:
                break
            if c.operation == JOIN:
                if not c.joined:
                    add_joiner(<coro>c.what, self.me)
                    c.joined = True
            elif c.operation >= READ:
                self.take_slot(c)
            else:
                r = &self.records[c.place]
                if r.w.state == SKIPPED:
                    if c.refuse is not None:
                        c.refuse()      # a queue that was shut down lets those go who stood in line
                    r.w.amount = c.amount if c.step == ACQUIRE else c.step if c.step <= PUT else 0
                    drop_value(&r.w)
                    join_line(r.line, &r.w)
                    c.served.advance()
        return 0

    cdef int take_slot(self, case c) except -1:
        """Have the poller wake the thread, as _poll/descriptors.pyx has it in wait_on()."""
        cdef FdPoller p = fd_poller()
        cdef fd_state *s
        cdef PyObject **slot
        cdef uint32_t ready = direction(c)
        cdef int refused = -1
        if c.state == NULL:
            s = p.state_of(c.fd)
            c.epoch = s.epoch
            c.state = s
        s = c.state
        if s.epoch != c.epoch:
            raise ClosedError(None, what=f"descriptor {c.fd}")
        slot = slot_of(s, ready)
        if slot[0] == <PyObject *>self.me:
            return 0
        if slot[0] != NULL:
            p.check_slot(c.fd, s, slot, self.me, filter_of(ready))
        stand(slot, self.me)
        if (s.flags & (FD_OWNED | FD_REGISTERED)) != (FD_OWNED | FD_REGISTERED):
            s.flags &= ~ready
            refused = p.arm(c.fd, s, <PyObject *>self.me, False)
            if refused:     # what the kernel does not watch is always ready for poll(2)
                stand_down(slot, self.me)
        elif ready == FD_WRITE_READY:
            p.arm_writing(c.fd, s)
        return 0

    cdef case look_around(self):
        """Has anything happened that is not granted but noticed?"""
        cdef case c
        cdef Py_ssize_t i, n = len(self.cases), at
        if self.n_lines == n:
            return None
        if self.n_fds:
            self.ask_kernel()
        at = random_below(n)
        for i in range(n):
            c = <case>self.cases[at]
            at += 1
            if at == n:
                at = 0
            if c.operation >= JOIN and self.has_happened(c):
                return noticed(c)
        return None

    cdef int leave(self) except -1:
        """Take the thread out of wherever it stands. First what cannot fail."""
        cdef case c
        cdef Py_ssize_t i
        cdef waiter *w
        for i in range(self.all.count):
            w = &self.records[i].w
            if w.state == QUEUED:
                leave_line(self.records[i].line, w, SKIPPED)
        for c in self.cases:
            if c.operation >= READ and c.state != NULL:
                # Marked by `joined` for the second round below.
                c.joined = stand_down(slot_of(c.state, direction(c)), self.me)
            elif c.operation == JOIN and c.joined:
                c.joined = False
                remove_joiner(<coro>c.what, self.me)
        for c in self.cases:
            if c.operation < JOIN:
                # That the thread has left may let others in.
                c.served.advance()
            elif c.joined:
                c.joined = False
                if not c.state.flags & FD_OWNED:
                    fd_poller().retract(c.fd, c.state)
        for i in range(self.all.count):
            drop_value(&self.records[i].w)
        return 0


cdef case noticed(case c):
    if c.operation == JOIN:
        c.value = c.what
    return c


cdef object finished(case c):
    """The case of a queue, which has a unit for it: put or get."""
    return c.finish() if c.operation == GET else c.finish(c.given)


cdef int drop_value(waiter *w) except -1:
    cdef PyObject *value = w.value
    w.value = NULL
    Py_XDECREF(value)
    return 0


cdef int number_of(object what) except -1:
    if isinstance(what, _descriptor):
        (<_descriptor>what).check()
        return (<_descriptor>what).fd
    if isinstance(what, int):
        return what
    number = what.fileno()
    if not isinstance(number, int):
        raise TypeError(f"expected fileno() to return an int, not {number!r}; the object is {what!r}")
    if number < 0:
        raise ClosedError(what=repr(what))
    return number


def select(*cases, timeout=None):
    """Wait until one of several operations is possible, perform that one and no other, and return its case.

    ``cases`` are made by ``coro.case.get(queue)`` and the other static methods of ``coro.case``. Compare the result
    with ``is``. Its ``value`` is what the operation returned. ``timeout`` is a number of seconds; when it is over, the
    result is None. With 0 or less, select does not wait. None is for ever.

    If several operations are possible at once, one of them is chosen at random. If none is, the thread waits in line
    for all of them.

    Raises what an operation raises: ChannelClosed, QueueShutDown, ClosedError, SimultaneousError. Raises what
    interrupts the wait; no operation was performed then. Raises TypeError for an argument that is not a case;
    ValueError if there are no cases; RuntimeError for a case that is in use, or is given twice; TypeError or ValueError
    if the timeout is not a number; YieldFromMain or NoSwitchError if it would have to wait where that is not possible;
    WrongThreadError in another OS thread than the loop's."""
    cdef Selection s
    cdef case found
    cdef int64_t when = 0
    cdef bint limited = timeout is not None, may_wait = True
    if not cases:
        raise ValueError("expected at least one case to select: without any, nothing could ever happen")
    for c in cases:
        if not isinstance(c, case):
            raise TypeError("expected cases made by coro.case.get(queue), coro.case.read(sock) and so on, not "
                            f"{named(c)}")
        if (<case>c).what is None:
            raise TypeError("expected cases made by coro.case.get(queue), coro.case.read(sock) and so on, not one made "
                            "by case.__new__(), which is about nothing")
    whoever()
    if limited:
        when = deadline_after(timeout)
        may_wait = not is_past(when)
    s = Selection.__new__(Selection)
    s.cases = cases
    try:
        s.begin()
        found = s.attempt()
        if found is None and may_wait:
            found = s.wait(running_thread(), limited, when)
    finally:
        s.end()
    return found
