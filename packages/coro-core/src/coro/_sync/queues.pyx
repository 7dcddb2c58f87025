# cython: language_level=3, binding=False, embedsignature=True, embedsignature.format=clinic
"""Queues between threads: fifo (unbounded, or with a maximum) and channel (bounded, can be closed, can be iterated).

Values lie in a ring (a Python list, so that the cyclic collector sees them). When one comes in and a thread waits, the
thread is promised a value (`promised`) and woken; the value stays in the ring until the thread takes it. So nothing has
to be put back if the thread is interrupted instead: the promise just goes to the next one, and the order of values is
kept. The other direction is the same: a thread that waits for room is booked a slot (`slots`) and puts its value in
when it runs. A put that raises has put nothing, a get that raises has taken nothing.

Consequence: among threads that put at the same time, values are in the order in which the calls come to their end.

A channel of capacity 0 is a rendezvous: the room there is are the threads that wait for a value. Only if such a thread
is interrupted in the moment between, its value stays inside for the next one.

Cost: 160 bytes and the ring (8 bytes a value); no allocation to put or get.

Invariants:
 1. 0 <= promised <= count (until the end of a closed channel); everything not promised may be taken by anybody.
 2. A thread waits for a value only while count == promised, and for room only while room() <= 0.
 3. The length of the ring is a power of two and at least count.
"""

cimport cython
from libc.stdint cimport uint64_t

from coro._runtime.abi cimport require_abi
from coro._runtime.scheduler cimport (begin_limit, check_timeout, end_limit, is_foreign, may_wait, running_thread,
                                      whoever)
from coro._sync.waiters cimport (GET, NOT_NOW, Primitive, drop_doomed, new_ticket, stand_in_line, take, take_any,
                                 take_first, stand_timed, threads_of, units_of, wait_line, waiter, waiting_in)

from coro._runtime import scheduler
from coro._sync.records import BufferStatistics
from coro.exceptions import ChannelClosed, Interrupted

require_abi()


cdef enum:
    SMALLEST_RING = 8
    LARGEST_IDLE_RING = 64

cdef enum:          # waiter.amount
    TAKER = 0
    GIVER = 1
    LAST_CALL = 2   # woken only to see that the channel is at its end


cdef class Buffer(Primitive):
    """What fifo and channel have in common. Not for users."""

    def __cinit__(self):
        self.ring = [None] * SMALLEST_RING

    @cython.boundscheck(False)
    @cython.wraparound(False)
    cdef int append(self, object item, bint in_front) except -1:
        """Put the value into the ring, at its end or its front."""
        cdef Py_ssize_t size = len(self.ring)
        cdef list ring
        if self.count == size:
            ring = self.ring[self.head:] + self.ring[:self.head]
            ring.extend([None] * size)
            self.ring = ring
            self.head = 0
            size *= 2
        if in_front:
            self.head = (self.head - 1) & (size - 1)
            self.ring[self.head] = item
        else:
            self.ring[(self.head + self.count) & (size - 1)] = item
        self.count += 1
        self.total += 1
        return 0

    @cython.boundscheck(False)
    @cython.wraparound(False)
    cdef object take(self):
        """Take the first value out of the ring, which must not be empty. Room may have come of it."""
        cdef list ring = self.ring
        cdef Py_ssize_t head = self.head
        item = ring[head]
        ring[head] = None
        self.head = (head + 1) & (len(ring) - 1)
        self.count -= 1
        if self.count == 0 and len(ring) > LARGEST_IDLE_RING:
            self.ring = [None] * SMALLEST_RING
            self.head = 0
        if self.givers.count or self.closed:
            self.advance()
        return item

    cdef Py_ssize_t room(self) except? -1:
        """How many values may be put in now; less than 1 means none."""
        if self.capacity:
            return self.capacity - self.count - self.slots
        drop_doomed(&self.takers)
        return self.takers.count + self.promised - self.count - self.slots

    cdef int advance(self) except -1:
        cdef waiter *w
        while self.takers.count and self.count > self.promised:
            w = take_first(&self.takers)
            if w != NULL:
                self.promised += 1
        if self.closed:
            if self.count == 0:
                while self.takers.count:
                    w = take_any(&self.takers)
                    if w != NULL:
                        w.amount = LAST_CALL
        elif self.capacity >= 0:
            while self.givers.count and self.room() > 0:
                w = self.givers.first
                if self.capacity == 0:
                    while w != NULL and not self.has_partner(w):
                        w = w.next
                    if w == NULL:
                        break
                w = take(&self.givers, w)
                if w != NULL:
                    self.slots += 1
        return 0

    cdef bint has_partner(self, waiter *giver) noexcept:
        """Capacity 0: does another thread than the giver's own wait for the value? (A select may do both.)"""
        cdef Py_ssize_t others = self.promised - self.count - self.slots
        cdef waiter *w = self.takers.first
        while w != NULL:
            if w.thread != giver.thread:
                others += 1
                if others > 0:
                    return True
            w = w.next
        return False

    cdef int give_back(self, waiter *w) except -1:
        if w.amount == TAKER:
            self.promised -= 1
        elif w.amount == GIVER:
            self.slots -= 1
        return 0

    cdef bint takes_now(self) except -1:
        """May a value be put in without waiting (or will that fail at once)? With capacity 0 there may be room while
        somebody waits for it: a select that cannot be its own partner."""
        return self.closed or self.capacity < 0 or (self.room() > 0 and (self.givers.count == 0 or self.capacity == 0))

    cdef object attempt(self, int operation, object value, Py_ssize_t amount):
        if operation == GET:
            if self.count > self.promised:
                return self.take()
            if self.closed and self.count == 0:
                raise nothing_left(self)
            return NOT_NOW
        if not self.takes_now():
            return NOT_NOW
        self.insert(value, False, None)
        return None

    cdef wait_line *line_of(self, int operation) noexcept:
        return &self.takers if operation == GET else &self.givers

    cdef object conclude(self, int operation, object value, waiter *w):
        if operation == GET:
            if w.amount == LAST_CALL:
                raise nothing_left(self)
            self.promised -= 1
            return self.take()
        if not self.use_slot():
            return NOT_NOW
        self.put_in(value, False)
        return None

    cdef bint use_slot(self) except -1:
        """A slot was booked and its thread runs: is there still room? A taker that made it may have gone."""
        self.slots -= 1
        if self.closed:
            raise ChannelClosed("the channel was closed while a thread waited to put a value into it", self)
        return self.room() > 0

    cdef int put_in(self, object item, bint in_front) except -1:
        self.append(item, in_front)
        if self.takers.count:
            self.advance()
        return 0

    cdef int insert(self, object item, bint in_front, object timeout) except -1:
        """Put the value in when there is room and it is this thread's turn."""
        if is_foreign():
            whoever()
        if timeout is not None:
            check_timeout(timeout)
        if self.closed or self.capacity >= 0:       # else there is room
            if self.closed:
                raise ChannelClosed("nothing can be put into a closed channel; "
                                    "whoever closes it has to know that nobody puts any more", self)
            if not self.takes_now():
                self.await_room(timeout)
        self.append(item, in_front)
        if self.takers.count:
            self.advance()
        return 0

    cdef int await_room(self, object timeout) except -1:
        cdef uint64_t ticket
        call = "fifo.push()" if isinstance(self, fifo) else "channel.put()"
        me = may_wait(timeout, call)
        limit = begin_limit(me, timeout)
        ticket = new_ticket()
        try:
            while True:
                stand_in_line(self, &self.givers, me, GIVER, ticket)
                if self.use_slot():
                    return 0
        except Interrupted as exc:
            end_limit(limit, timeout, call, exc)
            raise
        finally:
            end_limit(limit, timeout, call, None)

    cdef bint await_item(self, object timeout) except -1:
        """Wait until a value may be taken (the caller must do so at once); False at the end of a closed channel."""
        if is_foreign():
            whoever()
        if timeout is not None:
            check_timeout(timeout)
        if self.count > self.promised:
            return True
        if self.closed and self.count == 0:
            return False
        if timeout is None:
            stand_in_line(self, &self.takers, running_thread(), TAKER, new_ticket())
        else:
            call = "fifo.pop()" if isinstance(self, fifo) else "channel.get()"
            stand_timed(self, &self.takers, may_wait(timeout, call), TAKER, timeout, call)
        if self.count == 0:
            return False
        self.promised -= 1
        return True

    @classmethod
    def __class_getitem__(cls, item):
        """``fifo[int]`` in annotations is just ``fifo``."""
        return cls

    def __len__(self):
        return self.count

    def statistics(self):
        """A BufferStatistics(items, capacity, takers_waiting, givers_waiting, total, closed)."""
        return BufferStatistics(self.count, None if self.capacity < 0 else self.capacity, waiting_in(&self.takers),
                                waiting_in(&self.givers), self.total, self.closed)

    @property
    def waiting(self):
        """The threads that wait: for a value, or for room; first come first."""
        return threads_of(&self.takers) + threads_of(&self.givers)

    @property
    def _waiting(self):
        return self.waiting


cdef object no_room(Buffer what):
    from queue import Full
    return Full(f"there is no room in {what!r} now; put() and push() wait for some")


cdef object nothing_left(Buffer what):
    return ChannelClosed("the channel is closed and has no value left", what)


@cython.final
cdef class values_line:
    """``fifo.cv``: the line of those who wait for a value, for programs that look at them, interrupt them, or wait
    without taking."""

    cdef fifo queue

    def __cinit__(self, fifo queue not None):
        self.queue = queue

    def wait(self, timeout=None):
        """Wait until there is a value, which stays inside; somebody else may take it before the caller does.
        ``timeout`` and errors as for ``fifo.pop``."""
        self.queue.await_item(timeout)
        self.queue.advance()

    def raise_all(self, exc):
        """Interrupt everybody who waits for a value now with ``exc`` (class or instance). TypeError when it is not an
        exception."""
        whoever()
        if not isinstance(exc, BaseException) and not (isinstance(exc, type) and issubclass(exc, BaseException)):
            raise TypeError(f"expected an exception class or instance to raise, not {exc!r}")
        for thread in dict.fromkeys(self.waiting):
            if not thread.dead and thread is not scheduler.current():
                thread.raise_exception(exc)
        drop_doomed(&self.queue.takers)

    @property
    def waiting(self):
        """The threads that wait for a value, first come first."""
        return threads_of(&self.queue.takers)

    @property
    def _waiting(self):
        return self.waiting

    def __len__(self):
        return waiting_in(&self.queue.takers)

    def __repr__(self):
        return f"<{len(self)} waiting for a value of {self.queue!r}>"


cdef class fifo(Buffer):
    """fifo(maxsize=None)\n--\n\n\
    A queue: push() puts a value in at the end, pop() takes the first one, and waits if there is none.

    ``maxsize`` (int >= 1) is how many values fit: push() waits for room. None is no limit. ``len(f)`` is the number of
    values. Iterating shows them, the first one first, and takes none. TypeError or ValueError for another
    ``maxsize``."""

    def __cinit__(self, maxsize=None):
        self.capacity = -1
        if maxsize is not None:
            self.capacity = units_of(maxsize, "maxsize")
            if self.capacity == 0:
                raise ValueError("expected maxsize to be 1 or more, or None for no limit; not 0")

    @property
    def maxsize(self):
        """How many values fit, or None."""
        return None if self.capacity < 0 else self.capacity

    @property
    def cv(self):
        """The threads that wait for a value, as a condition variable: ``len(f.cv)``, ``f.cv.raise_all(exc)``.
        ``f.cv.wait()`` waits until there is a value, and does not take it."""
        return values_line(self)

    def push(self, item, timeout=None):
        """Put the value ``item`` in at the end. Waits only while ``maxsize`` values are inside.

        ``timeout`` is a number of seconds; 0 only tries, None is for ever. Raises ``coro.TimeoutError`` when it is
        over; nothing was put in then (``queue.Queue`` raises Full). Raises TypeError or ValueError if the timeout is
        not a number; YieldFromMain outside a thread if it would have to wait."""
        self.insert(item, False, timeout)

    def push_front(self, item, timeout=None):
        """Put the value ``item`` in before all others. ``timeout`` and errors as for push()."""
        self.insert(item, True, timeout)

    def try_push(self, item):
        """Put the value ``item`` in at the end if there is room. Returns True on FAILURE (no room), False on
        success."""
        whoever()
        if not self.takes_now():
            return True
        self.insert(item, False, None)
        return False

    def push_nowait(self, item):
        """Put the value ``item`` in at the end, without waiting. Raises ``queue.Full`` if there is no room, like
        ``queue.Queue.put_nowait``."""
        if self.try_push(item):
            raise no_room(self)

    def pop(self, timeout=None):
        """Take the first value out and return it. Waits if there is none.

        ``timeout`` is a number of seconds; 0 only tries, None is for ever. Raises ``coro.TimeoutError`` when it is
        over; nothing was taken then (``queue.Queue`` raises Empty). Raises TypeError or ValueError if the timeout is
        not a number; YieldFromMain outside a thread if it would have to wait."""
        self.await_item(timeout)
        return self.take()

    def pop_nowait(self):
        """Take the first value out and return it, without waiting. Raises IndexError if there is none, or only such as
        are reserved for threads that wait."""
        whoever()
        if self.count <= self.promised:
            raise IndexError("the fifo has no value to be had; pop() waits for one")
        return self.take()

    def pop_all(self, timeout=None):
        """Take all values out and return them as a list, the first one first. Waits if there is none. ``timeout`` and
        errors as for pop()."""
        cdef Py_ssize_t n
        self.await_item(timeout)
        n = self.count - self.promised
        return [self.take() for _ in range(n)]

    def top(self):
        """The first value, which stays inside. Raises IndexError if there is none."""
        if self.count == 0:
            raise IndexError("the fifo is empty")
        return self.ring[self.head]

    def __iter__(self):
        cdef Py_ssize_t i
        return iter([self.ring[(self.head + i) & (len(self.ring) - 1)] for i in range(self.count)])

    def __repr__(self):
        limit = "" if self.capacity < 0 else f" of at most {self.capacity}"
        return (f"<{type(self).__name__} with {self.count}{limit} values, {waiting_in(&self.takers)} waiting to pop, "
                f"{waiting_in(&self.givers)} to push, at {<size_t><void *>self:#x}>")


cdef class channel(Buffer):
    """channel(capacity=1)\n--\n\n\
    A pipe for values between threads, which can be closed.

    ``capacity`` (int >= 0) is how many values fit. With 0, put() waits until a thread takes the value. After close(),
    nothing can be put in. What is inside can still be taken; after that, get() raises ChannelClosed.

    ``for value in c:`` takes values until then. ``with c:`` closes the channel at the end of the block. A put() that
    raises has put nothing in, a get() that raises has taken nothing. TypeError or ValueError for another
    ``capacity``."""

    def __cinit__(self, capacity=1):
        self.capacity = units_of(capacity, "capacity")

    @property
    def maxsize(self):
        """The capacity."""
        return self.capacity

    def put(self, item, timeout=None):
        """Put the value ``item`` in. Waits if there is no room.

        ``timeout`` is a number of seconds; 0 only tries, None is for ever. Raises ``coro.TimeoutError`` when it is
        over; nothing was put in then (``queue.Queue`` raises Full). Raises ChannelClosed if the channel is closed,
        before the call or during it; TypeError or ValueError if the timeout is not a number; YieldFromMain outside a
        thread if it would have to wait."""
        self.insert(item, False, timeout)

    def send(self, item, timeout=None):
        """The same as put(), with its parameters and errors."""
        self.insert(item, False, timeout)

    def try_put(self, item):
        """Put the value ``item`` in if there is room (with capacity 0: if a thread waits for a value). Returns True on
        FAILURE, False on success. Raises ChannelClosed if the channel is closed."""
        whoever()
        if not self.takes_now():
            return True
        self.insert(item, False, None)
        return False

    def put_nowait(self, item):
        """Put the value ``item`` in, without waiting. Raises ``queue.Full`` if there is no room (with capacity 0: if no
        thread waits for a value), like ``queue.Queue.put_nowait``; ChannelClosed if the channel is closed."""
        if self.try_put(item):
            raise no_room(self)

    def get(self, timeout=None):
        """Take the first value out and return it. Waits if there is none.

        ``timeout`` is a number of seconds; 0 only tries, None is for ever. Raises ``coro.TimeoutError`` when it is
        over; nothing was taken then (``queue.Queue`` raises Empty). Raises ChannelClosed if the channel is closed and
        empty; TypeError or ValueError if the timeout is not a number; YieldFromMain outside a thread if it would have
        to wait."""
        if not self.await_item(timeout):
            raise nothing_left(self)
        return self.take()

    def receive(self, timeout=None):
        """The same as get(), with its parameters and errors."""
        return self.get(timeout)

    def get_nowait(self):
        """Take the first value out and return it, without waiting. Raises IndexError if there is none now,
        ChannelClosed if the channel is closed and empty."""
        whoever()
        if self.count > self.promised:
            return self.take()
        if self.closed and self.count == 0:
            raise nothing_left(self)
        raise IndexError("the channel has no value to be had now; get() waits for one")

    def close(self):
        """Let no more values in. Threads that wait for room get ChannelClosed at once. Threads that wait for a value
        get it when the last value has been taken. Closing the channel again does nothing."""
        cdef waiter *w
        whoever()
        if self.closed:
            return
        self.closed = True
        while self.givers.count:
            w = take_any(&self.givers)
            if w != NULL:
                self.slots += 1
        self.advance()

    def __iter__(self):
        return self

    def __next__(self):
        if not self.await_item(None):
            raise StopIteration
        return self.take()

    def __enter__(self):
        return self

    def __exit__(self, kind, exc, traceback):
        self.close()
        return False

    def __repr__(self):
        state = "closed" if self.closed else "open"
        return (f"<{type(self).__name__} {state}, with {self.count} of at most {self.capacity} values, "
                f"{waiting_in(&self.takers)} waiting to get, {waiting_in(&self.givers)} to put, "
                f"at {<size_t><void *>self:#x}>")
