# cython: language_level=3, nonecheck=True
"""An open WebSocket: the codec of coro.http.ws over a stream, for threads that block.

Receiving. There is no thread that reads: whoever calls ``receive`` reads, and others that want messages meanwhile wait
for it. So an echo costs two system calls and no switch, and what a peer may have on its way is bounded by what the
kernel buffers. Only when the program has not received for a while, a thread of ours reads in its place, so that pings
are answered and a close is noticed; it keeps a few messages, and leaves as soon as the program wants to receive.

Sending. Frames leave in the order of the calls, control frames before them. A thread that finds nobody sending sends by
itself. Otherwise its frame goes to a list, which a thread of ours empties with one call for all that is there; when the
list holds more than SEND_AHEAD bytes, senders wait. A large message leaves in fragments, so that a ping or a pong goes
out between two of them. A sender that is interrupted leaves what it began to that thread: frames are never cut.

Keepalive. Each connection has one timer. When nothing was heard for an interval it sends a ping, and when nothing at
all is heard for the time that a pong may take, the connection has failed; but as long as the peer takes what we send it
is alive, however long the ping stands behind that in the queues of the kernels.

Cost: an idle connection is this object, about 300 bytes, the codec's, and a timer; no thread of its own and no buffer.
"""

from coro.capi cimport (TimerTarget, deadline_after, require_abi, spawn_internal, ticks_now, ticks_to_seconds,
                        timer_add, timer_cancel)
from coro.http.ws cimport FRAGMENT, NOTHING, Codec

import fcntl
import struct
import termios
from collections import deque
from os import urandom
from typing import NamedTuple

from coro import SHUT, ClosedError, Interrupted, LoopError, condition_variable, move_on_after, shield, with_timeout
from coro.http.exceptions import LocalError, WebSocketClosed, WebSocketProtocolError

require_abi()

SHUT_WR = SHUT.WR

__all__ = ["WebSocket", "WebSocketStatistics"]

DEF TEXT = 1
DEF BINARY = 2
DEF CLOSE = 8
DEF PING = 9
DEF PONG = 10

#: Bytes asked for at a time.
DEF BLOCK = 65536
#: Payload of the fragments of a large message: what a ping may have to wait for.
DEF PIECE = 65536
#: Bytes that may wait to be sent before senders have to wait.
DEF SEND_AHEAD = 65536
#: Messages that the keepalive reads ahead when the program receives none; then it reads no further.
DEF READ_AHEAD = 16
#: Pongs that wait to be sent. A peer that sends more pings than it reads pongs gets the newest
#: (RFC 6455, section 5.5.3).
DEF MOST_PONGS = 64
#: Looks at a connection during an interval of the keepalive.
DEF TICKS = 4
#: Bytes in the kernel's send queue up to which it is not taken to be busy.
DEF BULK = 4096
#: Most blocks that are read and forgotten while a connection is closed.
DEF MOST_DRAINED = 256


class WebSocketStatistics(NamedTuple):
    """Counts of a WebSocket, for debugging."""

    #: Messages received and sent.
    messages_received: int
    messages_sent: int
    #: Bytes received from the stream, and given to it.
    bytes_received: int
    bytes_sent: int
    #: Pings that the keepalive sent or ``ping`` did, and pongs received.
    pings_sent: int
    pongs_received: int
    #: Bytes that wait to be sent.
    bytes_waiting: int
    #: Messages that were read ahead.
    messages_waiting: int


cdef class _Alarm(TimerTarget):
    """The timer of a connection. It runs in the scheduler, and so only starts threads, if they are necessary."""
    cdef WebSocket socket
    cdef int quiet

    cdef int fire(self) except -1:
        cdef WebSocket ws = self.socket
        if ws is None or ws.ended is not None:
            return 0
        if ws.heard:
            ws.heard = False
            self.quiet = 0
        else:
            self.quiet += 1
        if not ws.reading and not ws.pumping:
            ws.pumping = True
            spawn_internal(ws._pump, (), True)
        if self.quiet >= TICKS:
            self.quiet = 0
            spawn_internal(ws._check_alive, (), True)
        else:
            timer_add(self, deadline_after(ws.tick))
        return 0


cdef class WebSocket:
    """An open WebSocket connection; made by ``coro.http.websocket.connect`` and ``coro.http.websocket.accept``.

        for message in ws:              # str for text, bytes for binary; ends when the peer closes
            ws.send(message)

    Any number of threads may call its methods at once. It is closed by ``close``, and at the end of a ``with`` block.

    """
    # Invariants:
    #
    # 1. Only the thread that set `reading` reads the stream, only the one that set `writing` writes it.
    # 2. `first` of the outgoing list is whole frames but for its first entry, which may be the rest of one; control
    #    frames go before the others, but not before that.
    # 3. After `ended` is set nothing is read or written.
    cdef readonly object stream
    cdef readonly Codec codec
    #: The subprotocol that was agreed on, or None.
    cdef readonly object subprotocol
    #: The request of the opening handshake, on a server; else None.
    cdef readonly object request
    #: The headers of the response to the opening handshake, on a client; else None.
    cdef readonly object response_headers
    cdef object recv_call, send_call
    cdef object queue               # messages read ahead, or None
    cdef object changed             # the condition that waiting threads wait for, or None
    cdef Py_ssize_t waiters
    cdef bint reading, writing, flushing, pumping, heard, bulk
    cdef Py_ssize_t receivers       # threads that wait in receive() while another one reads
    cdef bytes rest                 # of a frame whose sender was interrupted
    cdef list control               # frames that go first
    cdef list frames                # others
    cdef Py_ssize_t waiting_bytes
    cdef _Alarm alarm
    cdef readonly object ping_interval
    cdef readonly object pong_timeout
    cdef readonly object close_timeout
    #: The code that this side closes with when its server begins to end.
    cdef readonly int drain_code
    cdef bint leaving               # it has: whatever the peer answers, that is the end
    cdef object ended               # a WebSocketClosed, once it is
    cdef object cause
    cdef dict pings                 # payload -> tick, of those that ping() waits for
    cdef double tick
    cdef unsigned long long messages_in, messages_out, bytes_in, bytes_out, pings_out, pongs_in
    cdef object __weakref__

    def __init__(
        self,
        stream,
        Codec codec not None,
        *,
        subprotocol=None,
        request=None,
        response_headers=None,
        ping_interval=20.0,
        pong_timeout=20.0,
        close_timeout=5.0,
        drain_code=1012,
        early=b"",
    ):
        if self.codec is not None:
            raise RuntimeError("a WebSocket cannot be initialised twice: make a new one")
        self.stream = stream
        self.codec = codec
        self.recv_call = stream.recv
        self.send_call = stream.sendall
        self.subprotocol = subprotocol
        self.request = request
        self.response_headers = response_headers
        self.ping_interval = ping_interval
        self.pong_timeout = pong_timeout
        self.close_timeout = close_timeout
        self.drain_code = drain_code
        self.control = []
        self.frames = []
        if early:
            codec.c_feed(bytes(early))
        if ping_interval is not None:
            self.alarm = _Alarm()
            self.alarm.socket = self
            self.tick = ping_interval / TICKS
            timer_add(self.alarm, deadline_after(self.tick))

    def __dealloc__(self):
        if self.alarm is not None:
            timer_cancel(self.alarm)

    def __repr__(self):
        state = "closed" if self.ended is not None else "closing" if self.codec.closing else "open"
        try:
            peer = self.stream.getpeername()
        except Exception:
            peer = None
        return f"<WebSocket: {self.codec.role}, {'' if peer is None else f'peer {peer}, '}{state}>"

    # -- receiving

    def receive(self, timeout=None):
        """Wait for the next message: ``str`` for text, ``bytes`` for binary.

        timeout: seconds, None for ever; ``coro.TimeoutError`` when they are over, and nothing is lost. Raises
        WebSocketClosed when the connection is closed, by whichever side. Its cause is the failure, if there was one: a
        WebSocketProtocolError when the peer broke the rules, an OSError of the connection.
        """
        if timeout is None:
            return self.c_receive()
        return with_timeout(timeout, self._receive)

    def _receive(self):
        return self.c_receive()

    cdef object c_receive(self):
        cdef int kind
        while True:
            if self.queue is not None and self.queue:
                return self.queue.popleft()
            if self.ended is None and (self.reading or self.codec.close_received):
                self.receivers += 1
                try:
                    self.wait()
                finally:
                    self.receivers -= 1
                continue
            kind = self.next()
            if kind == NOTHING:
                if self.ended is not None:
                    raise self.closed_error()
                self.fill()
            elif kind == TEXT or kind == BINARY or kind == FRAGMENT:
                value, self.codec.value = self.codec.value, None
                return value

    def __iter__(self):
        return self

    def __next__(self):
        """The next message; the iteration ends when the connection was closed in order (1000, 1001 or no code, or by
        this side because its server ends), and raises WebSocketClosed when it ended otherwise."""
        try:
            return self.c_receive()
        except WebSocketClosed as e:
            if (e.code in (1000, 1001, 1005) or self.leaving) and e.__cause__ is None:
                raise StopIteration from None
            raise

    cdef int next(self) except -1:
        """The kind of the next data event of the codec; control frames are dealt with. NOTHING: read, or it ended."""
        cdef int kind
        while True:
            if self.ended is not None:
                return NOTHING
            try:
                kind = self.codec.step()
            except WebSocketProtocolError as e:
                self.fail(e.code, e.reason, e)
                return NOTHING
            if kind == TEXT or kind == BINARY or kind == FRAGMENT:
                self.messages_in += 1
                return kind
            if kind == NOTHING:
                return kind
            value, self.codec.value = self.codec.value, None
            if kind == PING:
                self.answer(value)
            elif kind == PONG:
                self.pongs_in += 1
                if self.pings is not None and value in self.pings:
                    self.pings[value] = ticks_now()
                    self.wake()
            else:
                self.peer_closes(self.codec.close_code, value)
                return NOTHING

    cdef int fill(self) except -1:
        """As the reader: wait for bytes of the peer and give them to the codec."""
        cdef bytes data
        self.reading = True
        try:
            data = self.recv_call(BLOCK)
        except (OSError, EOFError, ClosedError) as e:
            self.end(1006, "", e)
            return 0
        finally:
            self.reading = False
            if self.waiters:
                self.wake()
        if not data:
            self.end(1006, "", None)
            return 0
        self.heard = True
        self.bytes_in += len(data)
        self.codec.c_feed(data)
        return 0

    cdef int answer(self, bytes payload) except -1:
        """To a ping: with a pong, soon, by whoever sends next."""
        if self.codec.close_sent:
            return 0
        if len(self.control) >= MOST_PONGS:
            del self.control[0]
        self.control.append(self.codec.pong(payload))
        self.need_flush()
        return 0

    cdef int wait(self) except -1:
        """Until something changed."""
        if self.changed is None:
            self.changed = condition_variable()
        self.waiters += 1
        try:
            self.changed.wait()
        finally:
            self.waiters -= 1
        return 0

    cdef int wake(self) except -1:
        if self.changed is not None:
            self.changed.wake_all()
        return 0

    # -- sending

    def send(self, data, *, compress=None):
        """Send a message: ``str`` as text, anything bytes-like as binary.

        compress: whether, when permessage-deflate was agreed on; None lets its ``threshold`` decide. Waits while more
        than 64 KiB wait to be sent. A message larger than that is sent in fragments. If the thread is interrupted while
        it waits, the message is sent nevertheless: look at ``statistics().bytes_waiting``.

        Raises LocalError for other data, WebSocketClosed when the connection is closed or fails meanwhile.
        """
        if self.ended is not None or self.codec.close_sent:
            raise self.closed_error()
        if self.bulk:
            self.wait_for_bulk()
        if len(data) > PIECE:
            self.send_pieces(self.codec.fragments(data, PIECE, compress=compress))
        else:
            self.put(self.codec.c_message(data, -1 if compress is None else bool(compress)))
        self.messages_out += 1

    def send_fragments(self, parts):
        """Send one message whose parts come from an iterable, each as a fragment: all ``str``, or all bytes-like.

        Other threads that send wait until it is complete. When the iterable raises, or the thread is interrupted, the
        message cannot be completed, so the connection is closed with 1011. Raises as ``send`` does.
        """
        if self.bulk:
            self.wait_for_bulk()
        if self.ended is not None or self.codec.close_sent:
            raise self.closed_error()
        self.bulk = True
        last = None
        try:
            for part in parts:
                if last is not None:
                    self.put(self.codec.fragment(last, final=False))
                last = part
            if last is None:
                raise LocalError("a message needs at least one part")
            self.put(self.codec.fragment(last, final=True))
            self.messages_out += 1
        except BaseException as e:
            if self.codec.open_message:
                self.fail(1011, "a message could not be completed", e)
            raise
        finally:
            self.bulk = False
            self.wake()

    def _send_part(self, data, bint final):
        """For the classic interface: a fragment, whose message the caller guards."""
        if self.bulk:
            self.wait_for_bulk()
        self.put(self.codec.fragment(data, final=final))

    def _waiting_control(self):
        """For tests: control frames that wait."""
        return list(self.control)

    def _send_ping(self, bytes payload):
        """For the classic interface: a ping whose pong nobody waits for."""
        if self.ended is not None or self.codec.close_sent:
            raise self.closed_error()
        self.control.append(self.codec.ping(payload))
        self.pings_out += 1
        self.need_flush()

    cdef int wait_for_bulk(self) except -1:
        while self.bulk:
            self.wait()
        if self.ended is not None or self.codec.close_sent:
            raise self.closed_error()
        return 0

    cdef int send_pieces(self, pieces) except -1:
        self.bulk = True
        try:
            for piece in pieces:
                self.put(piece)
        except BaseException:
            # What was begun has to be completed, or nothing could follow it.
            if self.ended is None:
                for piece in pieces:
                    self.frames.append(piece)
                    self.waiting_bytes += len(piece)
                self.need_flush()
            raise
        finally:
            self.bulk = False
            if self.waiters:
                self.wake()
        return 0

    cdef int put(self, bytes frame) except -1:
        """Send a frame, after those that wait."""
        if self.ended is not None or self.codec.close_sent:
            raise self.closed_error()
        if self.writing or self.flushing or self.control or self.frames or self.rest is not None:
            self.frames.append(frame)
            self.waiting_bytes += len(frame)
            self.need_flush()
            while self.waiting_bytes > SEND_AHEAD and self.ended is None:
                self.wait()
        else:
            self.write(frame)
            if self.control or self.frames or self.rest is not None:
                self.need_flush()
        if self.ended is not None:
            raise self.closed_error()
        return 0

    cdef int write(self, bytes data) except -1:
        """As the only one who writes."""
        self.writing = True
        try:
            self.send_call(data)
            self.bytes_out += len(data)
        except (OSError, ClosedError) as e:
            self.end(1006, "", e)
        except BaseException as e:
            sent = getattr(e, "bytes_sent", None)
            if sent is None:
                self.end(1006, "", e)
            else:
                self.bytes_out += sent
                if sent < len(data):
                    self.rest = data[sent:]
                    self.waiting_bytes += len(self.rest)
                    self.need_flush()
            raise
        finally:
            self.writing = False
            if self.waiters:
                self.wake()
        return 0

    cdef int need_flush(self) except -1:
        """Have somebody send what waits: whoever sends now, or a thread of ours."""
        if not self.flushing and self.ended is None:
            self.flushing = True
            try:
                spawn_internal(self._flush, (), True)
            except LoopError:
                self._flush()       # the loop is ending: nobody else can
        return 0

    def _flush(self):
        """The body of the thread that sends what waits."""
        cdef bytes block
        cdef list pieces
        cdef Py_ssize_t size, n
        try:
            while self.ended is None and (self.rest is not None or self.control or self.frames):
                if self.writing:
                    self.wait()
                    continue
                pieces = []
                if self.rest is not None:
                    pieces.append(self.rest)
                    self.waiting_bytes -= len(self.rest)
                    self.rest = None
                if self.control:
                    pieces += self.control
                    self.control.clear()
                size = n = 0
                while n < len(self.frames) and size < PIECE:
                    size += len(self.frames[n])
                    n += 1
                pieces += self.frames[:n]
                del self.frames[:n]
                block = pieces[0] if len(pieces) == 1 else b"".join(pieces)
                try:
                    self.write(block)
                finally:
                    self.waiting_bytes -= size
                    if self.waiters:
                        self.wake()
        finally:
            self.flushing = False
            if self.waiters:
                self.wake()
        if self.ended is None and (self.rest is not None or self.control or self.frames):
            self.need_flush()

    # -- closing

    def close(self, code=1000, reason=""):
        """Close in order: what waits is sent, then a close frame, and the peer's is waited for; what it still sends is
        dropped. All that takes at most ``close_timeout`` seconds; then the connection is ended without it. Does nothing
        when it is closed.

        code: why, see RFC 6455, section 7.4.1; None sends none. reason: at most 123 bytes in UTF-8. LocalError when
        they may not be sent.
        """
        cdef int kind
        if self.ended is not None:
            return
        if not self.codec.close_sent:
            frame = self.codec.close(code, reason)
            self.frames.append(frame)
            self.waiting_bytes += len(frame)
            self.need_flush()
        try:
            with move_on_after(self.close_timeout):
                while self.ended is None:
                    if self.reading or self.codec.close_received:
                        self.wait()
                        continue
                    kind = self.next()
                    self.codec.value = None
                    if kind == NOTHING and self.ended is None:
                        self.fill()
        finally:
            self.end(1006, "", None)

    def _leave(self):
        """The server begins to end: close with `drain_code`, behind the message that is being sent. Threads that wait
        to receive get that code, whatever the peer answers, and if it does not."""
        with move_on_after(self.close_timeout):
            while self.bulk and self.ended is None:
                self.wait()
        if self.ended is None and not self.codec.close_sent:
            self.leaving = True
            self.close(self.drain_code)

    def __enter__(self):
        return self

    def __exit__(self, kind, exc, traceback):
        """Close: with 1000, or 1011 when an exception leaves the block, or 1001 when it is an interruption. On a server
        the WebSocketClosed of a client that has gone ends here: that is no failure of the handler."""
        if kind is None or issubclass(kind, WebSocketClosed):
            gone = self.ended is not None
            self.close()
            return gone and kind is not None and not self.codec.is_client
        elif issubclass(kind, Interrupted):
            with shield(1.0):
                self.close(1001)
        else:
            self.close(1011)
        return False

    cdef int drop_waiting(self) except -1:
        """The peer will not read what waits; but the rest of a frame has to go out."""
        self.frames.clear()
        self.control.clear()
        self.waiting_bytes = 0 if self.rest is None else len(self.rest)
        return 0

    cdef int peer_closes(self, int code, str reason) except -1:
        """As the reader: the close frame of the peer has come."""
        cdef int i
        try:
            if not self.codec.close_sent:
                self.drop_waiting()
                self.frames.append(self.codec.close(code))
                self.need_flush()
            with move_on_after(self.close_timeout):
                self.wait_flushed()
                if self.codec.is_client and self.ended is None:
                    # The server ends the connection first (RFC 6455, section 7.1.1).
                    self.drain()
        finally:
            self.end(code, reason, None)
        return 0

    cdef int fail(self, int code, str reason, cause) except -1:
        """End the connection because something went wrong, and tell the peer if it listens."""
        cdef bint may_read = not self.reading
        if self.ended is not None:
            return 0
        try:
            self.drop_waiting()
            if not self.codec.close_sent:
                self.frames.append(self.codec.close(code, short(reason)))
                self.need_flush()
            if may_read:
                self.reading = True
            with move_on_after(self.close_timeout):
                self.wait_flushed()
                if may_read and self.ended is None:
                    # Closing with bytes unread would reset the connection, and our close frame with it.
                    try:
                        self.stream.shutdown(SHUT_WR)
                    except (OSError, ClosedError):
                        pass
                    self.drain()
        finally:
            if may_read:
                self.reading = False
            self.end(1006, "", cause)
        return 0

    cdef int wait_flushed(self) except -1:
        while self.ended is None and (self.flushing or self.writing):
            self.wait()
        return 0

    cdef int drain(self) except -1:
        """Read and forget what comes, until the peer's end of the stream."""
        cdef int i
        try:
            for i in range(MOST_DRAINED):
                if not self.recv_call(BLOCK):
                    break
        except (OSError, EOFError, ClosedError):
            pass
        return 0

    cdef int end(self, int code, str reason, cause) except -1:
        """The connection has ended: everybody who waits gets to know."""
        if self.ended is not None:
            return 0
        if self.leaving:
            code, reason, cause = self.drain_code, "", None
        self.ended = WebSocketClosed(code, reason)
        self.cause = cause
        if self.alarm is not None:
            timer_cancel(self.alarm)
            self.alarm.socket = None
        self.drop_waiting()
        self.rest = None
        try:
            self.stream.close()
        except (OSError, ClosedError):
            pass
        finally:
            self.wake()
        return 0

    cdef object closed_error(self):
        if self.ended is None:
            return WebSocketClosed(1000, "this side has closed it")
        error = WebSocketClosed(self.ended.code, self.ended.reason)
        error.__cause__ = self.cause
        return error

    @property
    def closed(self):
        """Whether the connection has ended."""
        return self.ended is not None

    @property
    def close_code(self):
        """The code of the peer's close frame: 1005 if it had none, 1006 if none came, ``drain_code`` if the server's
        end was the reason; None while it is open."""
        return None if self.ended is None else self.ended.code

    @property
    def close_reason(self):
        """The reason in the peer's close frame; None while it is open."""
        return None if self.ended is None else self.ended.reason

    # -- keepalive

    def ping(self, payload=None, timeout=None):
        """Send a ping and wait for its pong. Returns the seconds between them.

        payload: at most 125 bytes, random ones if None. timeout: seconds, None for ever; ``coro.TimeoutError`` when
        they are over. LocalError for a longer payload, or one that is waited for; WebSocketClosed as for ``receive``.
        """
        if timeout is not None:
            return with_timeout(timeout, self.ping, payload)
        if self.ended is not None or self.codec.close_sent:
            raise self.closed_error()
        payload = urandom(8) if payload is None else bytes(payload)
        if self.pings is None:
            self.pings = {}
        if payload in self.pings:
            raise LocalError(f"a ping with the payload {payload!r} is under way: use another one, or None")
        self.control.append(self.codec.ping(payload))
        self.pings_out += 1
        self.pings[payload] = 0
        began = ticks_now()
        try:
            self.need_flush()
            while not self.pings[payload]:
                if self.ended is not None:
                    raise self.closed_error()
                self.need_pump()
                self.wait()
            return ticks_to_seconds(self.pings[payload] - began)
        finally:
            del self.pings[payload]

    def pong(self, payload=b""):
        """Send a pong that nobody asked for (RFC 6455, section 5.5.3). Does not wait. Raises as ``send`` does."""
        if self.ended is not None or self.codec.close_sent:
            raise self.closed_error()
        self.control.append(self.codec.pong(payload))
        self.need_flush()

    cdef int need_pump(self) except -1:
        """Somebody has to read."""
        if not self.reading and not self.pumping and self.ended is None:
            self.pumping = True
            spawn_internal(self._pump, (), True)
        return 0

    def _pump(self):
        """The body of the thread that reads while the program does not."""
        cdef int kind
        try:
            while self.ended is None and not self.reading and not self.codec.close_received:
                if self.queue is not None and len(self.queue) >= READ_AHEAD:
                    return
                kind = self.next()
                if kind != NOTHING:
                    value, self.codec.value = self.codec.value, None
                    if self.queue is None:
                        self.queue = deque()
                    self.queue.append(value)
                    if self.waiters:
                        self.wake()
                elif self.receivers:
                    return
                elif self.ended is None:
                    self.fill()
        finally:
            self.pumping = False
            if self.waiters:
                self.wake()

    def _check_alive(self):
        """The body of the thread that sends a ping and waits for a sign of life."""
        try:
            while not self.codec.closing and self.ended is None:
                if not self.heard and not self.alive():
                    self.fail(1011, "no answer to a ping", TimeoutError("the peer did not answer a ping in time"))
                return
        finally:
            if self.ended is None and self.alarm is not None:
                timer_add(self.alarm, deadline_after(self.tick))

    cdef bint alive(self) except -1:
        before = self.taken()
        self.control.append(self.codec.ping(urandom(4)))
        self.pings_out += 1
        self.need_flush()
        while True:
            with move_on_after(self.pong_timeout) as limit:
                while not self.heard and self.ended is None and not self.codec.closing:
                    if self.queue is not None and len(self.queue) >= READ_AHEAD:
                        return True     # the program is slow, not the peer
                    self.need_pump()
                    self.wait()
            if not limit.expired:
                return True
            # A peer that takes what we send is alive, though the ping stands behind that.
            if before is None or self.taken() == before:
                return False
            before = self.taken()

    cdef tuple taken(self):
        """What changes while the peer takes what we send; None when nothing much is on its way."""
        try:
            unsent, = struct.unpack("i", fcntl.ioctl(self.stream.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"))
        except Exception:
            unsent = 0      # not a stream of the kernel's
        if unsent <= BULK and not self.writing and not self.bulk and not self.waiting_bytes:
            return None
        return self.bytes_out, unsent

    def statistics(self):
        """Counts for debugging, see WebSocketStatistics."""
        return WebSocketStatistics(
            self.messages_in,
            self.messages_out,
            self.bytes_in,
            self.bytes_out,
            self.pings_out,
            self.pongs_in,
            self.waiting_bytes,
            0 if self.queue is None else len(self.queue),
        )


cdef str short(str reason):
    """At most 123 bytes of it in UTF-8."""
    return reason.encode(errors="replace")[:123].decode(errors="ignore")
