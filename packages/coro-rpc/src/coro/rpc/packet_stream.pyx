# cython: language_level=3, nonecheck=True, binding=False, embedsignature=True, embedsignature.format=clinic
"""Packets over any connected stream: one-way pushes, and requests that are answered in any order.

    with packet_stream.PacketStream(conn, handler=answer) as packets:
        reply = packets.request(b"question", timeout=5)

Both ends are the same. A connection has two threads. The *reader* receives, cuts into packets (_wire/frames.pyx) and
hands them out: an answer wakes the thread that waits for it, a request gets a thread of its own. The reader never runs
a handler and never waits for anything but the stream, so requests may be nested in both directions to any depth. The
*writer* sends: whoever has something to say puts it into a buffer and wakes it, so what many threads say in one turn of
the loop leaves in one system call, frames never interleave, and a finaliser may say something, too.

Small packets are copied into the buffer. A packet above BULK is cut into chunks of which the writer adds one per round
and packet (at most PARTS at a time), straight from where its data lie, so others pass it. What belongs to the same
request waits behind it.

The races are solved by one rule: who makes the outcome of a call (answer, time limit, cancellation, death of the
stream) writes it into the Call, takes the call out of `pending`, and wakes the thread if one waits. A thread that is
woken twice, interrupted at the same moment, or dead, looks at the Call and nowhere else. Answers to calls that are not
pending are counted and dropped; ids are not used again.

Memory that the other side can make us use is bounded: incomplete packets (frames), requests that run or wait
(max_running, max_held), pushes and stream items (bytes of credit), answers to pings (one at a time), and answers in
general: a side that does not read what it asks for is disconnected.

Cost: two threads and 64 KiB a connection; 250 bytes a call. A call needs no Python object for its frame but the
payload.

Rejected: sending from the caller (saves a switch when one thread talks, costs a system call per call when many do); a
lock around the stream (a killed holder, a finaliser inside it); a thread pool for handlers (a thread costs less than
a microsecond here, and one that is killed must not be used again).

Longer than most files: a connection is one state machine.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.buffer cimport PyBUF_WRITE
from libc.string cimport memcpy

from coro.capi cimport (WAIT_OBJECT, require_abi, running_thread, spawn_internal, suspend, ticks_from_ns,
                        ticks_from_seconds, ticks_now, ticks_to_ns, ticks_to_seconds, timer_add, timer_cancel, wake,
                        wake_error)
from coro.rpc._wire.frames cimport (CANCEL, CHUNK, CREDIT_DOWN, CREDIT_UP, END_UP, FAIL, GOODBYE, HEADER, ITEM_DOWN,
                                    ITEM_UP, MORE, PIECE, PING, PONG, PUSH, REPLY, REQUEST, put_header)

import math
import os
import random
from typing import NamedTuple

from coro._runtime import scheduler
from coro._runtime.scheduler import move_on_after
from coro.exceptions import ClosedError, Interrupted, Shutdown, SimultaneousError
from coro.rpc._wire.frames import preamble
from coro.rpc.exceptions import (AuthenticationError, BadArguments, Busy, CallCancelled, CallTimeout, ConnectionLost,
                                 DecodeError, ForkedError, GoingAway, LocalError, NoSuchMethod, NotPermitted,
                                 PacketTooBig, PeerUnresponsive, ProtocolError, RemoteError)

require_abi()

__all__ = ["Call", "Outstanding", "PacketStatistics", "PacketStream"]

cdef extern from "Python.h":
    object PyMemoryView_FromMemory(char *, Py_ssize_t, int)

cdef enum:
    BULK = 65536            # a packet with more bytes than this is not copied into the buffer
    PARTS = 4               # packets that are sent in chunks at a time; what the other side allows, too
    FIRST_BUFFER = 8192
    KEPT_BUFFER = 262144    # a larger one is given back when it is empty

#: Seconds a request may take when nobody says otherwise.
DEFAULT_TIMEOUT = 60.0
#: Seconds after which the other side is asked for a sign of life, and how long it then has.
KEEPALIVE = 20.0
KEEPALIVE_TIMEOUT = 20.0

cdef unsigned long generation = 0       # how often this process has been forked off

def _after_fork():
    global generation
    generation += 1

os.register_at_fork(after_in_child=_after_fork)

_CODES = {
    CODE_BUSY: Busy, CODE_NO_METHOD: NoSuchMethod, CODE_BAD_ARGUMENTS: BadArguments, CODE_EXCEPTION: RemoteError,
    CODE_DEADLINE: CallTimeout, CODE_CANCELLED: CallCancelled, CODE_GOING_AWAY: GoingAway,
    CODE_NOT_AUTHENTICATED: AuthenticationError, CODE_NOT_PERMITTED: NotPermitted, CODE_BAD_ENCODING: DecodeError,
    CODE_TOO_BIG: RemoteError,
}
_GOODBYES = {0: "it is closing", 1: "protocol error", 2: "limit exceeded", 3: "not authenticated", 4: "idle"}
# The last word of a side that has closed in order: what it has not answered by now it has not executed.
_DONE = 5
# Seconds that a side which has said its last word waits for the other one to close: a connection that is closed while
# data comes in is reset, and the word may be lost.
_LINGER = 0.5
# Seconds after a failure to send in which the reader may find out why: the other side's last word may still be there.
_LAST_WORD = 1.0


class PacketStatistics(NamedTuple):
    """Counts of a connection, for debugging."""

    #: Requests of ours that are outstanding.
    outstanding: int
    #: Requests of the other side that are being executed.
    running: int
    #: Bytes that wait to be sent.
    queued_bytes: int
    #: Packets sent and received so far, and bytes of both.
    packets_sent: int
    packets_received: int
    bytes_sent: int
    bytes_received: int
    #: System calls (or calls of the stream) that sent and received them.
    writes: int
    reads: int
    #: Requests made, answered by a failure, timed out, cancelled.
    calls: int
    failed: int
    timeouts: int
    cancelled: int
    #: Requests executed for the other side, and refused because too many ran.
    served: int
    refused: int
    #: Answers that came after their call had ended, and answers to calls that never were.
    late_replies: int
    unknown_replies: int
    #: Pushes received.
    pushes: int
    #: How many requests took less than 2**i microseconds (and not less than half of it), i from 0 to 31.
    latencies: tuple[int, ...]
    #: "open", "closing" or "closed".
    state: str


class Outstanding(NamedTuple):
    """A request that has not been answered, or is being executed."""

    #: "call" for one of ours, "serving" for one of the other side.
    kind: str
    id: int
    #: What it is about: the method, or the size of the request.
    what: str
    #: Seconds since it began.
    age: float
    #: The thread that waits, or executes it.
    thread: object


cdef class Bulk:
    """A large packet on its way out."""

    cdef int kind
    cdef uint64_t number
    cdef list pieces            # memoryviews; from the third on, each is memory of its own for the receiver, too
    cdef Py_ssize_t index, offset, left, total
    cdef list after             # [(kind, number, pieces, total)]: what must not come before it


cdef inline int64_t ticks_of(object seconds) except -1:
    if seconds is None or seconds == math.inf:
        return 0
    return ticks_from_seconds(seconds)


def _positive(value, str name, bint none=True):
    if value is None and none:
        return None
    value = float(value)
    if not value > 0:
        raise ValueError(f"expected {name} as a number of seconds above 0, got {value}")
    return value


cdef class Call(TimerTarget):
    """A request on its way. Made by ``PacketStream.begin()`` and the calls of fast_rpc; not by users.

    It ends exactly once: by an answer, its time limit, ``cancel()``, or the end of the connection."""

    def __dealloc__(self):
        timer_cancel(self)      # before the fields go: with them code of a program may run, and wait

    cdef int limit(self, object seconds) except -1:
        """Start the clock."""
        cdef int64_t ticks
        self.started = ticks_now()
        self.seconds = seconds
        if seconds is not None and seconds != math.inf:
            ticks = ticks_from_seconds(seconds)
            timer_add(self, self.started + (ticks if ticks > 0 else 0))
        return 0

    cdef int fire(self) except -1:
        if self.state == WAITING:
            self.stream.n_timeouts += 1
            if self.thread is None:
                # `pending` may have the only reference, and what goes with it is not for main to release.
                spawn_internal(_let_go, (self,), True)
            self.abandon(TIMED_OUT)
        return 0

    cdef int finish(self, int state, object payload) except -1:
        """The outcome. Whoever calls this has taken it out of `pending`."""
        cdef int64_t micro
        cdef int bit = 0
        if self.state != WAITING:
            return 0
        self.state = state
        self.payload = payload
        timer_cancel(self)
        if state == REPLIED or state == FAILED:
            micro = ticks_to_ns(ticks_now() - self.started) // 1000
            while micro and bit < 31:
                micro >>= 1
                bit += 1
            self.stream.histogram[bit] += 1
            if state == FAILED:
                self.stream.n_failed += 1
        if self.thread is not None:
            wake(self.thread, None)
        if self.on_end is not None:
            spawn_internal(self.on_end, (self,), True)
            self.on_end = None
        if self.stream.room_waiters:
            self.stream.wake_room()
        return 0

    cdef int abandon(self, int state) except -1:
        """End it from this side, and tell the other one."""
        cdef PacketStream s = self.stream
        if self.state != WAITING:
            return 0
        if self.id and s.pending.pop(self.id, None) is not None and s.state != CLOSED:
            try:
                s.frames.skip(REPLY, self.id)
                s.frames.skip(ITEM_DOWN, self.id)
            except ProtocolError as e:
                s.kick(e)               # the peer's fault, and no affair of who gives up, who may be main
            s.put(CANCEL, self.id, NULL, 0, NULL, 0)
        self.finish(state, None)
        if s.end_waiters:
            s.wake_room()
        return 0

    cdef int await_end(self, coro me) except -1:
        if self.state == WAITING:
            if self.thread is not None:
                raise SimultaneousError(me, self.thread, self)
            self.thread = me
            try:
                while self.state == WAITING:
                    suspend(me, WAIT_OBJECT, self)
            finally:
                self.thread = None
        return 0

    cdef object outcome(self):
        """What was answered, or the exception."""
        if self.state == REPLIED:
            return self.payload
        raise self.stream.failure(self)

    cdef int take_item(self, object payload) except -1:
        raise ProtocolError(f"expected an answer to request {self.id}, got an item of a stream")

    cdef int take_credit(self, int64_t n) except -1:
        raise ProtocolError(f"expected an answer to request {self.id}, got credit for a stream that it has not")

    @property
    def done(self):
        """Has it ended, one way or another?"""
        return self.state != WAITING

    def wait(self, timeout=None):
        """The answer: bytes. Raises what ``PacketStream.request()`` raises. Any thread may call it, one at a time, and
        again after the end. timeout: seconds for this call of ``wait`` alone, after which ``coro.TimeoutError`` is
        raised, and the request goes on."""
        cdef coro me
        if self.state == WAITING:
            me = running_thread()
            if timeout is None:
                self.await_end(me)
            else:
                with scheduler._CallLimit(timeout, "Call.wait()"):
                    self.await_end(me)
        return self.outcome()

    def cancel(self):
        """End it: who waits gets CallCancelled, and the other side is told to stop. Does nothing after the end."""
        if self.state == WAITING:
            self.stream.n_cancelled += 1
            self.abandon(CANCELLED)

    def __repr__(self):
        names = ("waiting", "answered", "failed", "lost", "timed out", "cancelled")
        where = "" if self.stream is None else f" at {self.stream.name}"
        return f"<{type(self).__name__} {self.id} of {self.what or 'nothing'}{where}: {names[self.state]}>"


@cython.final
cdef class Heartbeat(TimerTarget):
    """Looks at a connection now and then: is the other side alive, is anybody using it?"""

    cdef PacketStream stream

    cdef int fire(self) except -1:
        cdef PacketStream s = self.stream
        cdef int64_t now = ticks_now(), next_look
        if s is None or s.state == CLOSED:
            self.stream = None
            return 0
        next_look = now + ticks_from_seconds(3600)
        if s.idle_timeout:
            if not s.pending and not s.serving and now - s.active >= s.idle_timeout:
                s.kick(GoingAway(f"nobody used the connection for {ticks_to_seconds(s.idle_timeout):g} seconds"))
                return 0
            next_look = min(next_look, max(s.active + s.idle_timeout, now + s.idle_timeout // 16))
        if s.write_timeout and s.send_began:
            if now - s.send_began >= s.write_timeout:
                s.kick(PeerUnresponsive(f"the other side has taken nothing of what was sent for "
                                        f"{ticks_to_seconds(now - s.send_began):g} seconds: it does not read"))
                return 0
        if s.write_timeout:
            next_look = min(next_look, now + s.write_timeout // 4)
        if s.keepalive:
            if s.pinged and s.heard >= s.pinged_at:
                s.pinged = s.suspect = False
            if now - s.heard < s.keepalive:
                next_look = min(next_look, s.heard + s.keepalive)
            elif not s.pinged:
                s.pinged = True
                s.pinged_at = now
                s.put(PING, 0, NULL, 0, NULL, 0)
                next_look = min(next_look, now + s.keepalive_timeout)
            elif now - s.pinged_at < s.keepalive_timeout:
                next_look = min(next_look, s.pinged_at + s.keepalive_timeout)
            elif not s.suspect:
                # Perhaps it is this loop that stood still; what has come meanwhile is read before the next look.
                s.suspect = True
                next_look = min(next_look, now + s.keepalive_timeout // 8)
            else:
                s.kick(PeerUnresponsive(f"nothing came from the other side for {ticks_to_seconds(now - s.heard):.3g} "
                                        "seconds: it is dead, cut off, or a function blocks its loop"))
                return 0
        timer_add(self, max(next_look, now + 1))
        return 0


cdef class Incoming(TimerTarget):
    """A request of the other side, while it is executed."""

    def __dealloc__(self):
        timer_cancel(self)      # before the fields go, as in Call

    cdef int fire(self) except -1:
        if not self.done:
            self.expired = True
            self.stop()
        return 0

    cdef int stop(self) except -1:
        """The answer is not wanted any more."""
        # A thread that has not begun would never run, and nobody would tidy up: it looks at `cancelled` itself.
        if self.thread is not None and not self.done and self.begun:
            if self.thread is scheduler.current():
                spawn_internal(_stop_later, (self,), True)
            else:
                self.thread.shutdown()
        return 0


def _read(PacketStream s not None):
    s._read_all()


def _write(PacketStream s not None):
    s._write_all()


def _let_go(Call call):
    """Has released what the call had."""


def _stop_later(Incoming inc not None):
    """The handler has ended its own connection: it is told so when it waits."""
    inc.stop()


def _serve(Incoming inc not None):
    cdef PacketStream s = inc.stream
    inc.begun = True
    try:
        s.serve(inc)
    finally:
        s.served(inc)


def _serve_pushes(PacketStream s not None):
    s._push_all()


cdef class PacketStream:
    """PacketStream(stream, *, handler=None, push_handler=None, timeout=60.0, max_packet=16777216, \
max_queued=16777216, max_outstanding=1000, max_running=1000, max_held=67108864, window=1048576, keepalive=20.0, \
keepalive_timeout=20.0, write_timeout=60.0, idle_timeout=None, tell_errors=False, name=None, on_close=None)\n--\n\n\
    Packets over a connected stream: a ``coro.sock``, a TLS stream, anything that is a ``coro.Stream``. Both ends are
    made alike. ``start()`` or a ``with`` block starts it; leaving the block closes it.

    handler: ``handler(data) -> bytes`` answers a request, in a thread of its own for each; None refuses requests.
    push_handler: ``push_handler(data)`` gets one-way packets, one after the other; None drops them. timeout: seconds
    that a request may take, unless it says otherwise; ``math.inf`` for no limit. max_packet: bytes of payload of a
    packet, both ways. max_queued: bytes that wait to be sent before callers have to wait. max_outstanding: requests of
    ours at a time; further callers wait. max_running: requests of the other side at a time; further ones are refused
    as busy. max_held: bytes of such requests. window: bytes of pushes (and of each stream of fast_rpc) that the other
    side may send before they are handled. keepalive: after so many seconds without a sign of life the other side is
    asked for one, and has keepalive_timeout seconds; None for never. write_timeout: seconds that the other side may
    take to read a block. idle_timeout: the connection is closed when nobody has used it for so many seconds.
    tell_errors: send the text of exceptions that the handler raises; without it, the name of the class. name: for
    threads and reports. on_close: called with the PacketStream, in a thread, when it has ended.

    Raises TypeError and ValueError for malformed arguments."""

    # Invariants:
    # 1. A Call is in `pending` exactly while its state is WAITING and its request has been put.
    # 2. After lost() nothing is put, `pending` is empty, and all who wait have been woken.
    # 3. Only the writer touches `sending`, only put*() touch `out`; `out_n` of `out` are to be sent.
    # 4. A key of `bulk_of` is that of a packet in `bulks`.

    def __cinit__(self):
        self.out = <char *>PyMem_RawMalloc(FIRST_BUFFER)
        self.sending = <char *>PyMem_RawMalloc(FIRST_BUFFER)
        if self.out == NULL or self.sending == NULL:
            raise MemoryError()
        self.out_room = self.sending_room = FIRST_BUFFER
        self.pending = {}
        self.serving = {}
        self.bulks = []
        self.bulk_of = {}
        self.room_waiters = []
        self.end_waiters = []
        self.pushes = []
        self.pings = {}
        self.next_id = self.next_push = 1

    def __dealloc__(self):
        PyMem_RawFree(self.out)
        PyMem_RawFree(self.sending)

    def __init__(self, stream, *, handler=None, push_handler=None, timeout=60.0, max_packet=16777216,
                 max_queued=16777216, max_outstanding=1000, max_running=1000, max_held=67108864, window=1048576,
                 keepalive=20.0, keepalive_timeout=20.0, write_timeout=60.0, idle_timeout=None, tell_errors=False,
                 name=None, on_close=None):
        if self.frames is not None:
            raise RuntimeError("a PacketStream cannot be initialised twice: make a new one")
        for number, what in ((max_packet, "max_packet"), (max_queued, "max_queued"), (max_held, "max_held"),
                             (max_outstanding, "max_outstanding"), (max_running, "max_running"), (window, "window")):
            if not isinstance(number, int) or not 1 <= number <= 0x7fffffff:
                raise ValueError(f"expected {what} as an int from 1 to {0x7fffffff}, got {number!r}")
        for function, what in ((handler, "handler"), (push_handler, "push_handler"), (on_close, "on_close")):
            if function is not None:
                if not callable(function):
                    raise TypeError(f"expected {what} as a function or None, got {function!r}")
                scheduler._check_function(function)
        self.stream = stream
        self.direct = stream if type(stream) is sock else None
        self.frames = FrameReader(max_packet, PARTS)
        self.handler = handler
        self.push_handler = push_handler
        self.timeout = math.inf if timeout is None else _positive(timeout, "timeout")
        self.max_packet = max_packet
        self.chunk = min(<Py_ssize_t>CHUNK, <Py_ssize_t>max_packet)
        self.max_queued = max_queued
        self.max_outstanding = max_outstanding
        self.max_running = max_running
        self.max_held = max_held
        self.window = window
        self.keepalive = ticks_of(_positive(keepalive, "keepalive"))
        self.keepalive_timeout = ticks_of(_positive(keepalive_timeout, "keepalive_timeout"))
        self.write_timeout = ticks_of(_positive(write_timeout, "write_timeout"))
        self.idle_timeout = ticks_of(_positive(idle_timeout, "idle_timeout"))
        self.tell_errors = bool(tell_errors)
        self.name = str(name) if name is not None else _peer(stream)
        self.on_close = on_close
        self.generation = generation

    def __repr__(self):
        states = ("open", "closing", "closed")
        return (f"<{type(self).__name__} {self.name}: {states[self.state] if self.started else 'not started'}, "
                f"{len(self.pending)} calls, {len(self.serving)} served>")

    # -- life

    def start(self):
        """Start it; returns itself. Does not wait. Raises LocalError when it was started before."""
        cdef bytes hello
        cdef Heartbeat watch
        if self.started:
            raise LocalError("a packet stream is started once; make a new one for a new connection")
        self.started = True
        self.heard = self.active = ticks_now()
        hello = preamble(self.max_packet, self.window)
        self.reserve(PyBytes_GET_SIZE(hello))
        memcpy(self.out + self.out_n, PyBytes_AS_STRING(hello), PyBytes_GET_SIZE(hello))
        self.out_n += PyBytes_GET_SIZE(hello)
        self.queued += PyBytes_GET_SIZE(hello)
        self.reader = spawn_internal(_read, (self,), True)
        self.reader.set_name(f"reader of {self.name}")
        self.writer = spawn_internal(_write, (self,), True)
        self.writer.set_name(f"writer of {self.name}")
        if self.keepalive or self.idle_timeout or self.write_timeout:
            watch = Heartbeat.__new__(Heartbeat)
            watch.stream = self
            self.watch = watch
            watch.fire()
        return self

    def __enter__(self):
        if not self.started:
            self.start()
        return self

    def __exit__(self, kind, exc, traceback):
        if kind is None:
            self.close()
        else:
            self.abort()
        return False

    def close(self, timeout=5.0):
        """Close in order: take no new requests, wait until those under way are answered and everything is sent, at most
        ``timeout`` seconds, then tell the other side so and close the stream, once it has closed its own or half a
        second later. Returns whether all came to their end. Does nothing when it is closed. An interruption closes at
        once."""
        cdef bint orderly = True
        if self.generation != generation:
            return True
        if not self.started:
            self.started = True
            self.state = CLOSED
            self.error_class, self.error_text = ConnectionLost, "the connection was closed by this side"
            self.stream.close()
            return True
        if self.state == CLOSED:
            self._join()
            return True
        running_thread()                # (refuses what is no thread before anything changes)
        if self.state == OPEN:
            self.state = CLOSING
            self._goodbye(0, "")
        try:
            with move_on_after(timeout) as scope:
                self._wait_end()
                if self.state != CLOSED and not self.said_done:
                    self.said_done = True
                    self._goodbye(_DONE, "what was not answered was not executed")
                    self._wait_end()
            orderly = not scope.expired
            if orderly:
                with move_on_after(_LINGER):
                    while self.state != CLOSED:
                        self._wait_once()
        finally:
            self.abort()
        self._join()
        return orderly

    def _wait_end(self):
        """Until nothing is under way and everything is sent, or the connection has ended."""
        while self.state != CLOSED and (self.pending or self.serving or self.queued):
            self._wait_once()

    def _wait_once(self):
        cdef coro me = running_thread()
        self.end_waiters.append(me)
        try:
            suspend(me, WAIT_OBJECT, self)
        finally:
            if me in self.end_waiters:
                self.end_waiters.remove(me)

    def abort(self):
        """Close at once: whoever waits gets ConnectionLost. Does not wait."""
        if self.generation != generation:
            return
        if not self.started:
            self.close()
        elif self.state != CLOSED:
            self.lost(ConnectionLost, "the connection was closed by this side", None)
            self.kick(None)

    def _join(self):
        """Wait until the stream has been closed."""
        if self.reader is not None and not self.reader.dead and self.reader is not scheduler.current():
            self.reader.join()

    def wait_closed(self, timeout=None):
        """Wait until the connection has ended, at most ``timeout`` seconds (then ``coro.TimeoutError``)."""
        if self.reader is not None:
            self.reader.join(timeout)

    @property
    def closed(self):
        """Has it ended? Nothing comes or goes any more."""
        return self.state == CLOSED

    @property
    def closing(self):
        """Does this side, or the other one, take no new requests?"""
        return self.state != OPEN or self.peer_going

    @property
    def error(self):
        """What ended it: an exception, or None while it has not ended."""
        return self.make_error() if self.state == CLOSED else None

    cdef int check_usable(self) except -1:
        if self.generation != generation:
            raise ForkedError("this connection belongs to the process that forked this one; connect anew")
        if self.state != OPEN:
            if self.state == CLOSED:
                raise self.make_error()
            raise GoingAway("this side of the connection is being closed, it takes no new calls")
        if self.peer_going:
            raise GoingAway(f"{self.name} is closing the connection, it takes no new calls; connect anew")
        if not self.started:
            raise LocalError("the packet stream has not been started: call start(), or use it in a with block")
        return 0

    cdef object make_error(self):
        """A fresh exception each time: it gets the traceback of the thread that it is raised in."""
        error = self.error_class(self.error_text)
        error.__cause__ = self.cause
        return error

    cdef int lost(self, object error_class, str text, object cause) except -1:
        """The end. Everybody who waits is told; the stream is closed by the reader, see kick()."""
        cdef Call call
        cdef Incoming inc
        if self.state == CLOSED:
            return 0
        self.state = CLOSED
        self.error_class = error_class
        self.error_text = text
        self.cause = cause
        calls = list(self.pending.values())
        self.pending.clear()
        for call in calls:
            call.finish(LOST, None)
        for inc in list(self.serving.values()):
            inc.cancelled = True
            inc.stop()
        self.bulks.clear()
        self.bulk_of.clear()
        self.pushes.clear()
        self.pushes_head = 0
        if self.pusher is not None and self.pusher is not scheduler.current():
            self.pusher.shutdown()
        self.out_n = 0
        self.queued = 0
        if self.watch is not None:
            timer_cancel(<Heartbeat>self.watch)
            (<Heartbeat>self.watch).stream = None
        for thread in self.pings.values():
            wake(<coro>thread, None)
        self.wake_room()
        if self.writer is not None:
            wake(self.writer, None)
        return 0

    cdef int kick(self, object exc) except -1:
        """Get the reader to end, which closes the stream. With an exception: because of that."""
        if self.reader is None:
            return 0
        if exc is not None:
            # In a thread: closing a stream may wait.
            spawn_internal(_end_with, (self, exc), True)
        elif not self.reader.dead and self.reader is not scheduler.current():
            wake_error(self.reader, Stop())
            if self.writer is not None and self.send_began:
                wake_error(self.writer, Stop())
        return 0

    # -- putting packets

    cdef int reserve(self, Py_ssize_t n) except -1:
        cdef Py_ssize_t room = self.out_room
        cdef char *p
        if self.out_n + n <= room:
            return 0
        while room < self.out_n + n:
            room *= 2
        p = <char *>PyMem_RawRealloc(self.out, room)
        if p == NULL:
            raise MemoryError()
        self.out = p
        self.out_room = room
        return 0

    cdef int wake_writer(self) except -1:
        if self.writer_idle:
            self.writer_idle = False
            wake(self.writer, None)
        return 0

    cdef int put(self, int kind, uint64_t number, const char *a, Py_ssize_t an, const char *b, Py_ssize_t bn) except -1:
        """A small packet, of two parts. Does not wait."""
        cdef char *p
        if self.state == CLOSED:
            return 0
        if self.bulk_of and self._behind(kind, number):
            return self.put_pieces(kind, number, [PyBytes_FromStringAndSize(a, an), PyBytes_FromStringAndSize(b, bn)],
                                   an + bn)
        self.reserve(HEADER + an + bn)
        p = self.out + self.out_n
        put_header(p, an + bn, kind, 0, number)
        if an:
            memcpy(p + HEADER, a, an)
        if bn:
            memcpy(p + HEADER + an, b, bn)
        self.out_n += HEADER + an + bn
        self.queued += HEADER + an + bn
        self.n_sent_packets += 1
        if self.writer_idle:
            self.writer_idle = False
            wake(self.writer, None)
        return 0

    cdef int put_bytes(self, int kind, uint64_t number, bytes payload) except -1:
        if PyBytes_GET_SIZE(payload) > BULK:
            return self.put_pieces(kind, number, [payload], PyBytes_GET_SIZE(payload))
        return self.put(kind, number, NULL, 0, PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))

    def _behind(self, int kind, uint64_t number):
        """Is a large packet on its way that this one must not overtake?"""
        return (_side(kind), number) in self.bulk_of

    cdef int put_pieces(self, int kind, uint64_t number, list pieces, Py_ssize_t total) except -1:
        """A packet of several parts. Large ones are not copied: what is mutable must have been."""
        cdef Bulk bulk
        cdef object key = (_side(kind), number)
        cdef bytes data
        if self.state == CLOSED:
            return 0
        bulk = self.bulk_of.get(key)
        if bulk is not None:
            bulk.after.append((kind, number, pieces, total))
            self.queued += HEADER + total
            return 0
        if total <= BULK:
            # A piece may be an object of a program's own, whose code runs when it is looked at, and may put a packet.
            data = b"".join(pieces)
            total = PyBytes_GET_SIZE(data)
            if self.state == CLOSED:
                return 0
            self.reserve(HEADER + total)
            put_header(self.out + self.out_n, total, kind, 0, number)
            memcpy(self.out + self.out_n + HEADER, PyBytes_AS_STRING(data), total)
            self.out_n += HEADER + total
        else:
            views = [memoryview(piece).cast("B") for piece in pieces]
            if self.state == CLOSED:
                return 0
            total = sum([view.nbytes for view in views])
            bulk = Bulk.__new__(Bulk)
            bulk.kind = kind
            bulk.number = number
            bulk.pieces = views
            bulk.left = bulk.total = total
            bulk.after = []
            self.bulks.append(bulk)
            self.bulk_of[key] = bulk
        self.queued += HEADER + total
        self.n_sent_packets += 1
        self.wake_writer()
        return 0

    cdef int put_credit(self, int kind, uint64_t number, Py_ssize_t n) except -1:
        cdef bytes data = int(n).to_bytes(4, "big")
        return self.put(kind, number, PyBytes_AS_STRING(data), 4, NULL, 0)

    cdef int fail(self, uint64_t number, int code, object text) except -1:
        """Answer a request with a failure. A peer that asks and asks and never reads is cut off."""
        cdef Py_ssize_t most = min(<Py_ssize_t>65536, self.max_packet)
        if self.ready:
            most = min(most, <Py_ssize_t>self.frames.peer_max_packet)
        self.put_bytes(FAIL, number, (bytes([code]) + text.encode("utf-8", "replace"))[:most])
        if self.queued > 2 * self.max_queued:
            self.lost(ConnectionLost, f"{self.queued} bytes of answers wait to be sent, and the other side asks for "
                      "more without reading", None)
            self.kick(None)
        return 0

    cdef int check_size(self, Py_ssize_t n) except -1:
        cdef Py_ssize_t limit = self.max_packet
        if self.ready and <Py_ssize_t>self.frames.peer_max_packet < limit:
            limit = self.frames.peer_max_packet
        if n > limit:
            raise PacketTooBig(n, limit)
        return 0

    def _goodbye(self, int code, str text):
        cdef bytes data = code.to_bytes(2, "big") + text.encode("utf-8", "replace")[:500]
        self.put(GOODBYE, 0, NULL, 0, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    # -- waiting for room

    cdef bint is_full(self) noexcept:
        return self.queued > self.max_queued or <Py_ssize_t>len(self.pending) >= self.max_outstanding

    cdef int wait_for_room(self, coro me, Call call) except -1:
        """Until the queue and the table of calls have room, or the call has ended. Leaves no trace."""
        while self.state == OPEN and not self.peer_going and (call is None or call.state == WAITING) and \
                (self.queued > self.max_queued or
                 call is not None and <Py_ssize_t>len(self.pending) >= self.max_outstanding):
            self.room_waiters.append(me)
            if call is not None:
                call.thread = me
            try:
                suspend(me, WAIT_OBJECT, self if call is None else call)
            finally:
                if call is not None:
                    call.thread = None
                if me in self.room_waiters:
                    self.room_waiters.remove(me)
                    if self.room_waiters and not self.is_full():
                        self.wake_room()
        return 0

    cdef int wake_room(self) except -1:
        """Let those who wait look again: as many as may go on."""
        cdef Py_ssize_t n
        if self.room_waiters:
            n = len(self.room_waiters)
            if self.state == OPEN and not self.peer_going:
                n = min(n, max(<Py_ssize_t>1, self.max_outstanding - <Py_ssize_t>len(self.pending)))
            waiting = self.room_waiters[:n]
            del self.room_waiters[:n]
            for thread in waiting:
                wake(<coro>thread, None)
        if self.end_waiters and (self.state == CLOSED or not self.pending and not self.serving):
            waiting = self.end_waiters
            self.end_waiters = []
            for thread in waiting:
                wake(<coro>thread, None)
        return 0

    cdef int wait_ready(self, coro me, Call call) except -1:
        """Until the other side's preamble has come."""
        while not self.ready and self.state == OPEN and (call is None or call.state == WAITING):
            self.room_waiters.append(me)
            if call is not None:
                call.thread = me
            try:
                suspend(me, WAIT_OBJECT, self if call is None else call)
            finally:
                if call is not None:
                    call.thread = None
                if me in self.room_waiters:
                    self.room_waiters.remove(me)
        return 0

    # -- for users

    cdef uint64_t new_id(self) except 0:
        cdef uint64_t number
        while True:
            number = self.next_id
            self.next_id += 1
            if number and number not in self.pending:
                return number

    cdef int begin_call(self, Call call, coro me) except -1:
        """What stands before the request of a call is put: may wait. Its clock runs already."""
        if not self.ready:
            self.wait_ready(me, call)
        if self.queued > self.max_queued or <Py_ssize_t>len(self.pending) >= self.max_outstanding:
            self.wait_for_room(me, call)
        if call.state != WAITING:
            raise self.failure(call)
        self.check_usable()
        call.id = self.new_id()
        return 0

    def begin(self, data, timeout=None):
        """Send a request and return its ``Call`` at once; ``Call.wait()`` has the answer. It waits only when the queue
        is full, or too many requests are outstanding. Parameters and exceptions as for ``request``."""
        cdef Call call
        cdef bytes payload = _payload(data)
        cdef coro me = running_thread()
        self.check_usable()
        self.check_size(PyBytes_GET_SIZE(payload))
        call = Call.__new__(Call)
        call.stream = self
        call.caller = me
        call.what = f"{PyBytes_GET_SIZE(payload)} bytes"
        call.limit(self.timeout if timeout is None else _positive(timeout, "timeout"))
        try:
            self.begin_call(call, me)
        except BaseException:
            call.abandon(CANCELLED)
            raise
        self.check_size(PyBytes_GET_SIZE(payload))
        self.active = call.started
        self.n_calls += 1
        self.pending[call.id] = call
        self.put_bytes(REQUEST, call.id, payload)
        return call

    def request(self, data, timeout=None):
        """Send a request and wait for its answer: bytes.

        data: bytes-like. timeout: seconds; None for the connection's, ``math.inf`` for no limit.

        Raises CallTimeout when the limit is over; ConnectionLost (or PeerUnresponsive, GoingAway) when the connection
        ends, ended before, or takes no more requests; Busy, NoSuchMethod (no handler), RemoteError when the other side
        refuses or fails; PacketTooBig; ForkedError in a forked child. Whatever ends the wait early, the other side is
        told to stop."""
        cdef Call call = self.begin(data, timeout)
        try:
            call.await_end(running_thread())
        except BaseException:
            self.n_cancelled += 1
            call.abandon(CANCELLED)
            raise
        return call.outcome()

    def push(self, data):
        """Send a one-way packet. Waits while the queue is full, or the other side has not handled what it got before,
        for as long as the connection's ``timeout``.

        Pushes arrive in the order of the calls; those of more than 64 KiB may be passed by later ones. Raises
        CallTimeout, with nothing sent, when that time is over; what ``request`` raises for a connection that cannot be
        used; and PacketTooBig."""
        cdef bytes payload = _payload(data)
        self._push(payload)

    def _push(self, bytes payload not None):
        cdef coro me = running_thread()
        self.check_usable()
        self.check_size(PyBytes_GET_SIZE(payload))
        if not self.ready or self.push_credit <= 0 or self.queued > self.max_queued:
            # The other side may live, answer pings, and never grant credit again.
            with move_on_after(min(self.timeout, 1e9)) as limit:
                self.wait_to_push(me)
            if limit.expired:
                raise CallTimeout(f"expected {self.name} to take a one-way packet within {self.timeout:g} seconds, it "
                                  "has not handled those before; nothing was sent", self.timeout)
        self.check_usable()
        self.check_size(PyBytes_GET_SIZE(payload))
        self.push_credit -= PyBytes_GET_SIZE(payload) + HEADER
        self.active = ticks_now()
        self.put_bytes(PUSH, self.next_push, payload)
        self.next_push += 1

    cdef int wait_to_push(self, coro me) except -1:
        """Until a one-way packet may be sent, or never will."""
        if not self.ready:
            self.wait_ready(me, None)
        while self.state == OPEN and not self.peer_going and (self.push_credit <= 0 or self.queued > self.max_queued):
            self.room_waiters.append(me)
            try:
                suspend(me, WAIT_OBJECT, self)
            finally:
                if me in self.room_waiters:
                    self.room_waiters.remove(me)
        return 0

    def ping(self, timeout=None):
        """Ask for a sign of life and return the seconds that it took. timeout: seconds, None for the connection's.
        Raises CallTimeout, and ConnectionLost and its kinds."""
        cdef coro me = running_thread()
        cdef uint64_t number
        cdef int64_t begin = ticks_now()
        self.check_usable()
        seconds = self.timeout if timeout is None else _positive(timeout, "timeout")
        self.next_ping += 1
        number = self.next_ping
        self.pings[number] = me
        self.put(PING, number, NULL, 0, NULL, 0)
        try:
            with move_on_after(min(seconds, 1e9)):
                while number in self.pings and self.state != CLOSED:
                    suspend(me, WAIT_OBJECT, self)
        finally:
            waiting = self.pings.pop(number, None)
        if self.state == CLOSED:
            raise self.make_error()
        if waiting is not None:
            raise CallTimeout(f"expected an answer to a ping within {seconds:g} seconds from {self.name}, none came",
                              seconds)
        return ticks_to_seconds(ticks_now() - begin)

    def _set_next_id(self, number):
        """For tests."""
        self.next_id = number

    def _grant_pushes(self, n):
        """For tests: send more than the other side allows."""
        self.push_credit += n

    def statistics(self):
        """Counts, as PacketStatistics."""
        cdef int i
        return PacketStatistics(
            len(self.pending), len(self.serving), self.queued, self.n_sent_packets, self.frames.packets,
            self.n_sent_bytes, self.n_received_bytes, self.n_writes, self.n_reads, self.n_calls, self.n_failed,
            self.n_timeouts, self.n_cancelled, self.n_served, self.n_busy, self.n_late, self.n_unknown, self.n_pushes,
            tuple([self.histogram[i] for i in range(32)]), ("open", "closing", "closed")[self.state])

    def dump(self):
        """What is under way, oldest first: a list of Outstanding."""
        cdef Call call
        cdef Incoming inc
        cdef int64_t now = ticks_now()
        found = []
        for call in self.pending.values():
            found.append(Outstanding("call", call.id, str(call.what), ticks_to_seconds(now - call.started),
                                     call.thread if call.thread is not None else call.caller))
        for inc in self.serving.values():
            what = getattr(inc.method, "name", None)
            found.append(Outstanding("serving", inc.id, what or f"{inc.size} bytes",
                                     ticks_to_seconds(now - inc.started), inc.thread))
        found.sort(key=_age, reverse=True)
        return found

    # -- the writer

    def _write_all(self):
        cdef coro me = running_thread()
        cdef Py_ssize_t n, room
        cdef char *p
        if self.writer is not me:
            raise LocalError("the thread that sends is the packet stream's own: call start()")
        try:
            while self.state != CLOSED:
                if not self.out_n and not self.bulks and not self.pong_wanted:
                    self.writer_idle = True
                    if self.end_waiters:
                        self._look_end()
                    try:
                        suspend(me, WAIT_OBJECT, self)
                    finally:
                        self.writer_idle = False
                    continue
                if self.pong_wanted:
                    self.pong_wanted = False
                    self.put(PONG, self.pong_id, NULL, 0, PyBytes_AS_STRING(self.pong_payload),
                             PyBytes_GET_SIZE(self.pong_payload))
                n = self.out_n
                p = self.out
                room = self.out_room
                self.out = self.sending
                self.out_room = self.sending_room
                self.sending = p
                self.sending_room = room
                self.out_n = 0
                self.send_began = ticks_now()
                if self.bulks:
                    n = self._send_round(n)
                elif self.direct is not None:
                    self.direct.c_send(p, n, 0)
                else:
                    self.stream.sendall(PyMemoryView_FromMemory(p, n, PyBUF_WRITE).tobytes())
                self.send_began = 0
                self.n_writes += 1
                self.n_sent_bytes += n
                if self.state == CLOSED:
                    return
                self.queued -= n
                if self.sending_room > KEPT_BUFFER:
                    p = <char *>PyMem_RawRealloc(self.sending, FIRST_BUFFER)
                    if p != NULL:
                        self.sending = p
                        self.sending_room = FIRST_BUFFER
                if self.room_waiters and self.queued <= self.max_queued:
                    self.wake_room()
        except Stop:
            pass
        except Exception as e:
            self.send_began = 0
            try:
                with move_on_after(_LAST_WORD):
                    while self.state != CLOSED:
                        self._wait_once()
            except Stop:
                pass
            self.lost(ConnectionLost, f"sending to {self.name} failed: {_text(e)}", e)
            self.kick(None)
        except BaseException:
            self.lost(ConnectionLost, "the thread that sends was stopped", None)
            self.kick(None)
            raise
        finally:
            self.send_began = 0

    def _look_end(self):
        """Everything is sent: has close() been waiting for that?"""
        if self.queued == 0 and not self.pending and not self.serving:
            self.wake_room()

    def _send_round(self, Py_ssize_t n):
        """What is in the buffer, and a chunk of each large packet. Returns how many bytes."""
        cdef Bulk bulk
        cdef Py_ssize_t size, take, at, total = n
        cdef int flags
        cdef char header[HEADER]
        cdef list parts = []
        cdef list done = []
        if not 0 <= n <= self.sending_room:
            raise LocalError(f"expected a number of bytes in the buffer, got {n}")
        if n:
            parts.append(PyBytes_FromStringAndSize(self.sending, n))
        for bulk in self.bulks[:PARTS]:
            while bulk.offset == <Py_ssize_t>len(bulk.pieces[bulk.index]):
                bulk.index += 1
                bulk.offset = 0
            flags = PIECE if bulk.index >= 2 and bulk.offset == 0 else 0
            at = len(parts)
            parts.append(None)
            size = 0
            while size < self.chunk and size < bulk.left:
                piece = bulk.pieces[bulk.index]
                take = min(self.chunk - size, <Py_ssize_t>len(piece) - bulk.offset)
                if take:
                    parts.append(piece[bulk.offset:bulk.offset + take])
                    bulk.offset += take
                    size += take
                if bulk.offset == <Py_ssize_t>len(piece):
                    if size == bulk.left or bulk.index > 0 and size:
                        break               # the next piece begins a frame
                    bulk.index += 1
                    bulk.offset = 0
            put_header(header, size, bulk.kind, flags | (MORE if size < bulk.left else 0), bulk.number)
            parts[at] = PyBytes_FromStringAndSize(header, HEADER)
            total += HEADER + size
            if bulk.left != bulk.total:
                self.queued += HEADER       # each frame but the first has one that nobody has counted
            bulk.left -= size
            if not bulk.left:
                done.append(bulk)
        if self.direct is not None:
            self.direct.c_writev(parts)
        else:
            for piece in parts:
                self.stream.sendall(piece)
        if self.state == CLOSED:
            return total
        for bulk in done:
            self.bulks.remove(bulk)
            del self.bulk_of[_side(bulk.kind), bulk.number]
            for kind, number, pieces, size in bulk.after:
                self.queued -= HEADER + size    # counted already
                self.put_pieces(kind, number, pieces, size)
        return total

    # -- the reader

    def _read_all(self):
        cdef Py_ssize_t n, r
        cdef char *p
        cdef bytes data
        cdef FrameReader frames = self.frames
        if self.reader is not running_thread():
            raise LocalError("the thread that receives is the packet stream's own: call start()")
        try:
            while self.state != CLOSED:
                p = frames.room(&n)
                if self.direct is not None:
                    r = self.direct.c_recv_into(p, n, 0)
                else:
                    data = self.stream.recv(n)
                    r = len(data)
                    if r > n:
                        raise ValueError(f"expected at most {n} bytes of the stream's recv(), got {r}")
                    memcpy(p, PyBytes_AS_STRING(data), r)
                if self.state == CLOSED:
                    return
                if r == 0:
                    where = "between two packets" if frames.idle else "in the middle of a packet"
                    self.lost(ConnectionLost, f"{self.name} closed the connection {where}", None)
                    return
                self.n_reads += 1
                self.n_received_bytes += r
                self.heard = ticks_now()
                frames.received(r)
                while frames.next():
                    self.dispatch(frames.out_kind, frames.out_number, frames.out_payload)
                    if self.state == CLOSED:
                        return
                frames.out_payload = None
                if not self.ready and frames.greeted:
                    self.on_greeted()
        except Stop:
            pass
        except RemoteError as e:
            self._reject(e)
        except Exception as e:
            self.lost(ConnectionLost, f"receiving from {self.name} failed: {_text(e)}", e)
        except BaseException:
            self.lost(ConnectionLost, "the thread that receives was stopped", None)
            raise
        finally:
            self.lost(ConnectionLost, "the connection was closed", None)
            if self.writer is not None and not self.writer.dead:
                if self.send_began:
                    wake_error(self.writer, Stop())
                else:
                    wake(self.writer, None)
            self.frames.drop()
            self._forget()
            try:
                self.stream.close()
            except (OSError, EOFError):
                pass
            if self.on_close is not None:
                spawn_internal(self.on_close, (self,), True)
                self.on_close = None

    def _forget(self):
        """The connection has ended: what is kept beyond that, nobody needs."""

    def _reject(self, error):
        """The other side broke the rules: tell it which, and end."""
        code = 3 if isinstance(error, AuthenticationError) else 1
        text = str(error)
        if self.state == CLOSED:
            return
        # A word of farewell, if the queue is short and nobody is sending; not more.
        data = code.to_bytes(2, "big") + text.encode("utf-8", "replace")[:500]
        head = bytearray(HEADER)
        head[0:4] = len(data).to_bytes(4, "big")
        head[4] = GOODBYE
        farewell = None
        if not self.send_began and not self.bulks and self.out_n <= BULK:
            farewell = PyBytes_FromStringAndSize(self.out, self.out_n) + bytes(head) + data
        if isinstance(error, AuthenticationError):
            self.lost(AuthenticationError, text, None)
        else:
            self.lost(ConnectionLost, f"{self.name} broke the protocol: {text}", error)
        if farewell is not None:
            try:
                with move_on_after(0.5):
                    self.stream.sendall(farewell)
            except (OSError, EOFError):
                pass

    cdef int on_greeted(self) except -1:
        """The other side's preamble is there."""
        self.ready = True
        self.push_credit = self.frames.peer_window
        self.wake_room()
        if self.room_waiters:
            waiting = self.room_waiters
            self.room_waiters = []
            for thread in waiting:
                wake(<coro>thread, None)
        return 0

    cdef int dispatch(self, int kind, uint64_t number, object payload) except -1:
        cdef Call call
        cdef Incoming inc
        cdef int64_t n
        if not self.ready:
            self.on_greeted()
        if self.frames.out_segments is not None and not (self.takes_pieces and (kind == REPLY or kind == REQUEST)):
            payload = self.frames.whole()
        if kind == REPLY or kind == FAIL:
            found = self.pending.pop(number, None)
            if found is None:
                if number < self.next_id:
                    self.n_late += 1
                else:
                    self.n_unknown += 1
                return 0
            call = <Call>found
            call.segments = self.frames.out_segments
            call.finish(REPLIED if kind == REPLY else FAILED, payload)
            self.active = self.heard
            if self.end_waiters:
                self.wake_room()
        elif kind == ITEM_DOWN:
            found = self.pending.get(number)
            if found is None:
                self.n_late += 1
                return 0
            (<Call>found).take_item(payload)
        elif kind == REQUEST:
            if number == 0 or number in self.serving:
                raise ProtocolError(f"expected a request with an id that is not in use, got {number}")
            self.active = self.heard
            self.on_request(number, <bytes>payload)
        elif kind == PUSH:
            self.push_held += PyBytes_GET_SIZE(<bytes>payload) + HEADER
            if self.push_held > <Py_ssize_t>self.window + self.max_packet + HEADER:
                raise ProtocolError(f"expected pushes of {self.window} bytes at most before they are handled, got more")
            self.active = self.heard
            self.n_pushes += 1
            self.on_push(number, <bytes>payload)
        elif kind == CANCEL:
            self.frames.skip(ITEM_UP, number)
            found = self.serving.get(number)
            if found is not None:
                inc = <Incoming>found
                inc.cancelled = True
                inc.stop()
        elif kind == ITEM_UP:
            self.on_item_up(number, <bytes>payload)
        elif kind == END_UP:
            self.on_end_up(number, <bytes>payload)
        elif kind == CREDIT_UP or kind == CREDIT_DOWN:
            n = int.from_bytes(payload, "big")
            if kind == CREDIT_UP and number == 0:
                self.push_credit += n
                if self.push_credit > 0x7fffffff:
                    raise ProtocolError("expected no more credit for pushes than was used up")
                if self.push_credit > 0:
                    self._wake_all_room()
            elif kind == CREDIT_UP:
                found = self.pending.get(number)
                if found is not None:
                    (<Call>found).take_credit(n)
            else:
                found = self.serving.get(number)
                if found is not None:
                    inc = <Incoming>found
                    inc.credit += n
                    if inc.credit > 0x7fffffff:
                        raise ProtocolError("expected no more credit for a stream than was used up")
                    if inc.credit_waiter is not None and inc.credit > 0:
                        wake(inc.credit_waiter, None)
        elif kind == PING:
            # One answer at a time, whatever is asked: the last one is as good a sign as all of them.
            self.pong_wanted = True
            self.pong_id = number
            self.pong_payload = payload
            self.wake_writer()
        elif kind == PONG:
            thread = self.pings.pop(number, None)
            if thread is not None:
                wake(<coro>thread, None)
        elif kind == GOODBYE:
            code = int.from_bytes(payload[:2], "big")
            text = payload[2:].decode("utf-8", "replace")
            if len(payload) < 2 or code == 0:
                self.peer_going = True
                self._wake_all_room()
            elif code == _DONE:
                self.lost(GoingAway, f"{self.name} has closed the connection; it did not execute what it has not "
                          "answered, so connect anew and repeat it", None)
            else:
                what = _GOODBYES.get(code, f"code {code}")
                self.lost(AuthenticationError if code == 3 else ConnectionLost,
                          f"{self.name} closed the connection ({what}): {text}", None)
        return 0

    def _wake_all_room(self):
        waiting = self.room_waiters
        self.room_waiters = []
        for thread in waiting:
            wake(<coro>thread, None)

    # -- requests of the other side

    cdef int admit(self, Incoming inc) except -1:
        """1: there is room for it. 0: it was refused."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(<bytes>inc.payload)
        if inc.segments is not None:
            for piece in inc.segments:
                size += len(piece)
        inc.size = size
        if self.state != OPEN:
            self.fail(inc.id, CODE_GOING_AWAY, "this side is closing")
            return 0
        if <Py_ssize_t>len(self.serving) >= self.max_running or self.held + size > self.max_held and self.serving:
            self.n_busy += 1
            self.fail(inc.id, CODE_BUSY, f"{len(self.serving)} calls run on this connection, it allows "
                      f"{self.max_running} and {self.max_held} bytes; repeat it later")
            return 0
        return 1

    cdef int start_serving(self, Incoming inc) except -1:
        self.held += inc.size
        inc.started = self.heard
        inc.credit = self.frames.peer_window
        self.serving[inc.id] = inc
        inc.thread = spawn_internal(_serve, (inc,), True)
        return 0

    cdef int on_request(self, uint64_t number, bytes payload) except -1:
        cdef Incoming inc
        if self.handler is None:
            return self.fail(number, CODE_NO_METHOD, "this side answers no requests")
        inc = Incoming.__new__(Incoming)
        inc.stream = self
        inc.id = number
        inc.payload = payload
        if self.admit(inc):
            self.start_serving(inc)
        return 0

    cdef int serve(self, Incoming inc) except -1:
        """In a thread of its own."""
        cdef bytes data
        if inc.cancelled:
            return 0
        try:
            answer = self.handler(inc.payload)
            if type(answer) is not bytes:
                answer = bytes(memoryview(answer))
            data = answer
            self.check_size(PyBytes_GET_SIZE(data))
            if not inc.cancelled:
                self._drain(inc)
                self.put_bytes(REPLY, inc.id, data)
        except Interrupted:
            # Not CODE_GOING_AWAY, which promises that nothing was handled.
            if not inc.cancelled:
                self.fail(inc.id, CODE_CANCELLED, "the handler was stopped")
            raise
        except PacketTooBig as e:
            self.fail(inc.id, CODE_TOO_BIG, str(e))
        except Exception as e:
            if not inc.cancelled:
                self.fail(inc.id, CODE_EXCEPTION, _text(e) if self.tell_errors else type(e).__name__)
        except BaseException as e:
            # SystemExit, KeyboardInterrupt: the thread ends by it, and the other side is told.
            if not inc.cancelled:
                self.fail(inc.id, CODE_EXCEPTION, type(e).__name__)
            raise
        return 0

    def _drain(self, Incoming inc not None):
        """An answer waits until the other side has taken earlier ones."""
        if self.queued > self.max_queued:
            self.wait_for_room(running_thread(), None)

    cdef int served(self, Incoming inc) except -1:
        inc.done = True
        inc.thread = None
        timer_cancel(inc)
        if self.serving.pop(inc.id, None) is not None:
            self.held -= inc.size
            inc.size = 0
            inc.payload = b""
        self.n_served += 1
        if self.end_waiters:
            self.wake_room()
        return 0

    cdef int on_push(self, uint64_t number, bytes payload) except -1:
        if self.push_handler is None:
            self.n_dropped_pushes += 1
            return self.return_push_credit(PyBytes_GET_SIZE(payload) + HEADER)
        self.pushes.append(payload)
        if self.pusher is None:
            self.pusher = spawn_internal(_serve_pushes, (self,), True)
            self.pusher.set_name(f"pushes of {self.name}")
        return 0

    def _push_all(self):
        """The thread that handles pushes, one after the other, as long as there are any."""
        cdef bytes payload
        try:
            while self.pushes_head < <Py_ssize_t>len(self.pushes):
                payload = self.pushes[self.pushes_head]
                self.pushes[self.pushes_head] = None
                self.pushes_head += 1
                if self.pushes_head > 100 and self.pushes_head * 2 > <Py_ssize_t>len(self.pushes):
                    del self.pushes[:self.pushes_head]
                    self.pushes_head = 0
                try:
                    self.push_handler(payload)
                except Exception:
                    scheduler._notify()
                self.return_push_credit(PyBytes_GET_SIZE(payload) + HEADER)
        finally:
            self.pusher = None
            if self.pushes_head >= <Py_ssize_t>len(self.pushes):
                self.pushes.clear()
                self.pushes_head = 0
            elif self.state != CLOSED:
                # It was stopped by its handler; what is left still has to be handled.
                try:
                    self.pusher = spawn_internal(_serve_pushes, (self,), True)
                except Exception:
                    pass        # the loop is ending

    cdef int return_push_credit(self, Py_ssize_t n) except -1:
        self.push_held -= n
        self.push_used += n
        if self.push_used * 2 >= <Py_ssize_t>self.window and self.state != CLOSED:
            self.put_credit(CREDIT_UP, 0, self.push_used)
            self.push_used = 0
        return 0

    cdef int on_item_up(self, uint64_t number, bytes payload) except -1:
        if number in self.serving:
            raise ProtocolError(f"expected no stream with request {number}")
        return 0

    cdef int on_end_up(self, uint64_t number, bytes payload) except -1:
        return 0

    cdef object failure(self, Call call):
        """The exception for a call that has ended without an answer."""
        if call.state == TIMED_OUT:
            limit = "within its limit" if call.inherited else f"within {call.seconds:g} seconds"
            return CallTimeout(f"expected an answer of {self.name} to {call.what} {limit}, none came; the other side "
                               "was told to stop", None if call.inherited else call.seconds)
        if call.state == CANCELLED:
            return CallCancelled(f"the call of {call.what} was cancelled")
        if call.state == LOST:
            return self.make_error()
        data = call.payload
        code = data[0] if data else 0
        return _failure(code, data[1:].decode("utf-8", "replace"))


class Stop(Exception):
    """Ends the threads of a connection; raised nowhere else."""


def _end_with(PacketStream s not None, exc):
    s.lost(type(exc), str(exc), None)
    s.kick(None)


cdef inline object _side(int kind):
    """Packets of one request and direction keep their order: who counts the ids is what tells them apart."""
    if kind == REPLY or kind == FAIL or kind == ITEM_DOWN or kind == CREDIT_UP:
        return 1
    if kind == PUSH:
        return 2
    return 0


def _failure(code, str text):
    """The exception for a FAIL."""
    return _CODES.get(code, RemoteError)(text)


def _text(exc):
    text = str(exc)
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__


def _age(what):
    return what.age


cdef bytes _payload(object data):
    if type(data) is bytes:
        return <bytes>data
    if isinstance(data, str):
        raise TypeError(f"expected the data of a packet as bytes, got str: encode {data[:40]!r} first")
    return bytes(memoryview(data))


def _peer(stream):
    """What to call the other side."""
    try:
        return str(stream.getpeername() or "a UNIX socket")
    except Exception:
        return type(stream).__name__
