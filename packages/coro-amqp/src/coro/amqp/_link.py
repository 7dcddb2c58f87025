"""One connection to a broker, from the socket to its loss: the thread that reads, the one that writes, heartbeats.

A client with recovery goes through many of these, one after the other; none is used twice.

* The **reader** hands what comes to the owner, one event after the other; what the owner does there must not wait.
* The **writer** sends what all threads have encoded since its last turn in one ``writev``. A thread that encodes wakes
  it only if it sleeps. `HIGH` bytes that are not sent yet are enough: whoever wants to publish more waits (`wait_room`)
  before it encodes, so an interruption leaves nothing half sent.
* The **pulse** sends a heartbeat when nothing else has gone out, and ends the connection when nothing has come in for
  two intervals. It counts its own turns, not the clock: a thread that computes for a minute makes us late, not the
  broker dead.

Reading stops while inboxes of consumers are full and nobody waits for an answer of the broker. TCP then makes the
broker wait. Heartbeats and acknowledgements go on, and the broker's silence is not counted meanwhile. RabbitMQ gives up
a client that takes nothing for half a minute, so a piece is read every `TRICKLE` seconds, up to 64 MiB.

Cost: three threads a connection; for each turn of the loop one system call in each direction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import coro
from coro._clock import ticks
from coro.amqp import _sasl, spec
from coro.amqp._protocol import Message, Protocol, VersionRefused
from coro.amqp.exceptions import (
    AMQPError,
    AMQPTimeout,
    AuthenticationError,
    ConnectionBlocked,
    ConnectionClosed,
    ConnectionLost,
    ProtocolError,
    RemoteError,
)
from coro.log import Facility

if TYPE_CHECKING:
    from coro.amqp._channel import channel
    from coro.amqp._urls import Address

__all__ = ["Link"]

#: Bytes encoded and not yet sent above which publishers wait.
HIGH = 256 << 10
RECEIVED = 1 << 16
TRICKLE = 1.0
LOG = Facility("amqp")


class Link:
    """See above. ``channels`` maps the numbers in use to the channels that take their events."""

    def __init__(
        self, protocol: Protocol, on_method: Callable[[Link, Any], None], on_end: Callable[[Link], None]
    ) -> None:
        self.protocol = protocol
        self.channels: dict[int, channel] = {}
        self._early: list[Any] | None = None  # what came in one packet with the end of the handshake
        self.error: AMQPError | None = None  # why it ended
        self.alive = False
        self.blocked: str | None = None  # the broker's reason, while it takes no messages
        self.server_properties: dict[str, Any] = {}
        self.tune: spec.connection.tune | None = None
        self.host = 0  # which of the client's
        self.peer = ""  # the address of the broker
        self.heartbeats_out = 0
        self.last_send = 0  # ticks
        self.full = 0  # inboxes that are full
        self.flooded = 0  # those that have grown far beyond
        self.waiting = 0  # threads that wait for an answer of the broker
        protocol.waker = self.wake
        self.debug = False
        self._on_method = on_method
        self._on_end = on_end
        self._sock: Any = None
        self._work = coro.event()
        self._room = coro.condition_variable()  # publishers, for bytes to be sent or the broker to unblock
        self._reading = coro.event()  # a paused reader, for an inbox to be emptied
        self._paused = False
        self._ended = coro.event()
        self._dying = False

    # ---- opening

    def open(
        self,
        address: Address,
        *,
        tls_ctx: Any,
        server_hostname: str | None,
        credentials: tuple[str, str],
        mechanism: str | None,
        virtual_host: str,
        heartbeat: int | None,
        properties: dict[str, Any],
        timeout: float,
    ) -> None:
        """Connect and log in, within ``timeout`` seconds. Raises OSError, AMQPTimeout or a RemoteError."""
        scope = coro.move_on_after(timeout)
        try:
            with scope:
                self._connect(address, tls_ctx, server_hostname)
                self._handshake(credentials, mechanism, virtual_host, heartbeat, properties)
                self.alive = True
        finally:
            if not self.alive and self._sock is not None:
                self._sock.close()
        if not self.alive:
            step = "an answer to the connection" if self._sock is None else f"the broker (state {self.protocol.state})"
            raise AMQPTimeout(
                f"expected {step} at {address} within {timeout:g} s, got none; is it an AMQP broker, and is it well?"
            )
        coro.spawn(self._read, thread_name=f"amqp reader {address}", daemon=True)
        coro.spawn(self._write, thread_name=f"amqp writer {address}", daemon=True)
        if self.protocol.heartbeat:
            coro.spawn(self._pulse, thread_name=f"amqp heartbeat {address}", daemon=True)

    def _connect(self, address: Address, tls_ctx: Any, server_hostname: str | None) -> None:
        if address.host.startswith("/"):
            self._sock = coro.connect(address.host)
        else:
            self._sock = coro.connect(address.host, address.port)
            self.peer = self._sock.getpeername()[0]
        if tls_ctx is not None:
            context = coro.tls.context(tls_ctx)
            self._sock = context.wrap(self._sock, server_hostname=server_hostname or address.host)

    def _handshake(
        self,
        credentials: tuple[str, str],
        mechanism: str | None,
        virtual_host: str,
        heartbeat: int | None,
        properties: dict[str, Any],
    ) -> None:
        """Specification, 2.2.4."""
        protocol, user = self.protocol, credentials[0]
        events: list[Any] = []
        protocol.send_header()
        start = self._expect(events, "before connection.start", spec.connection.start)
        self.server_properties = start.server_properties
        chosen = _sasl.choose(start.mechanisms.decode("utf-8", "replace"), mechanism)
        login = spec.connection.start_ok(properties, chosen, _sasl.response(chosen, *credentials), "en_US")
        self._answer(events, user, login)
        reply = self._expect(events, user, spec.connection.secure, spec.connection.tune)
        if isinstance(reply, spec.connection.secure):
            raise AuthenticationError(f"expected {chosen} to need one step, the broker asks for another")
        self.tune = reply
        if heartbeat and reply.heartbeat:
            heartbeat = min(heartbeat, reply.heartbeat)
        tune_ok = protocol.answer_tune(reply, reply.heartbeat if heartbeat is None else heartbeat)
        self._answer(events, user, tune_ok)
        protocol.send_method(0, spec.connection.open(virtual_host))
        self._expect(events, "", spec.connection.open_ok)
        self._early = events

    def _answer(self, events: list[Any], context: str, method: Any) -> None:
        """Send a step of the handshake, unless the broker has closed the connection right behind its own."""
        if self.protocol.state == "closed":
            self._expect([each for each in events if isinstance(each[1], spec.connection.close)], context)
        self.protocol.send_method(0, method)

    def _expect(self, events: list[Any], context: str, *expected: type) -> Any:
        """The next method of the handshake."""
        protocol = self.protocol
        while not events:
            self._send(protocol.take_output())
            data = self._sock.recv(RECEIVED)
            if not data:
                capabilities = self.server_properties.get("capabilities")
                says_so = isinstance(capabilities, dict) and capabilities.get("authentication_failure_close")
                if spec.connection.tune in expected and not says_so:
                    raise AuthenticationError(
                        f"the broker closed the connection after the login of user {context!r}: it refuses the user, "
                        "or does not let it connect from here"
                    )
                raise ConnectionLost(f"the peer closed the connection in state {protocol.state}; is it an AMQP broker?")
            events += protocol.receive(data)
        what = events.pop(0)[1]
        if isinstance(what, expected):
            return what
        if isinstance(what, VersionRefused):
            raise ProtocolError(f"the broker refuses AMQP 0-9-1; it speaks {what.version}", 501)
        if isinstance(what, spec.connection.close):
            self._send(protocol.take_output())
            if what.reply_code == spec.ACCESS_REFUSED and spec.connection.open_ok not in expected:
                raise AuthenticationError(f"the broker refuses user {context!r}: {what.reply_text}", what.reply_code)
            raise ConnectionClosed(what.reply_code, what.reply_text, what.class_id, what.method_id)
        raise ProtocolError(f"expected {', '.join(cls.__name__ for cls in expected)}, got {what!r}", 503)

    # ---- the threads

    def _send(self, pieces: list[Any]) -> None:
        self.last_send = ticks.get_now()
        if len(pieces) == 1:
            self._sock.sendall(pieces[0])
        elif pieces:
            self._sock.writev(pieces)

    def _read(self) -> None:
        protocol, sock, channels = self.protocol, self._sock, self.channels
        error: BaseException | None = None
        try:
            while self.alive:
                if self._early is not None:
                    events, self._early = self._early, None
                else:
                    while self.full and (not self.waiting or self.flooded) and self.alive:
                        if not self._pause() and not self.flooded:
                            break
                    data = sock.recv(RECEIVED)
                    if not data:
                        protocol.eof()
                        raise ConnectionLost("the broker closed the connection without a word")
                    events = protocol.receive(data)
                if self.debug:
                    LOG("received", [(number, repr(what)) for number, what in events])
                for number, what in events:
                    if number:
                        found = channels.get(number)
                        if found is not None:
                            if type(what) is Message:
                                found._message(what)
                            else:
                                found._method(what)
                    else:
                        self._on_method(self, what)
                if protocol.error is not None:
                    raise protocol.error
                if protocol.idle and protocol.pending:
                    self.wake()
        except ProtocolError as exc:
            self._complain(exc)
            error = exc
        except (RemoteError, OSError, EOFError, coro.ClosedError) as exc:
            error = exc
        except Exception as exc:
            # A mistake here or in a callback: it must not leave others waiting.
            LOG.exc()
            error = exc
        except BaseException as exc:
            self.end(ConnectionLost("the thread that reads the connection was interrupted"), exc)
            raise
        self.end(error if isinstance(error, AMQPError) else ConnectionLost(f"the connection broke: {error}"), error)

    def _complain(self, exc: ProtocolError) -> None:
        """Tell the broker what it did wrong, as the specification has it (4.2.7), if it listens."""
        try:
            self.protocol.send_method(0, spec.connection.close(exc.reply_code, str(exc)[:200], 0, 0))
            with coro.move_on_after(1):
                self._send(self.protocol.take_output())
        except (AMQPError, OSError, coro.ClosedError):
            pass

    def _pause(self) -> bool:
        """Wait for somebody to want more; False if nobody does for a while."""
        self._paused = True
        self._reading.clear()
        try:
            with coro.move_on_after(TRICKLE):
                self._reading.wait()
                return True
            return False
        finally:
            self._paused = False

    def begin_wait(self) -> None:
        """A thread waits for an answer of the broker from now on, until it subtracts one from ``waiting``."""
        self.waiting += 1
        if self._paused:
            self._reading.set()

    def resume(self) -> None:
        """An inbox has room again."""
        if self._paused:
            self._reading.set()

    def _write(self) -> None:
        protocol = self.protocol
        error: BaseException | None = None
        try:
            while self.alive:
                if not protocol.pending:
                    self._work.clear()
                    protocol.idle = True
                    self._work.wait()
                    protocol.idle = False
                    continue
                self._send(protocol.take_output())
                if len(self._room) and protocol.pending < HIGH:
                    self._room.wake_all()
        except (OSError, coro.ClosedError) as exc:
            error = exc
        except BaseException as exc:
            self.end(ConnectionLost("the thread that writes to the connection was interrupted"), exc)
            raise
        if error is not None:
            # What the broker said last may explain it: the reader comes upon the end by itself, and soon.
            with coro.move_on_after(0.5):
                self._ended.wait()
            self.end(ConnectionLost(f"the connection broke: {error}"), error)

    def _pulse(self) -> None:
        protocol = self.protocol
        interval = protocol.heartbeat / 2
        sent = received = -1
        silent = 0
        while self.alive:
            with coro.move_on_after(interval):
                self._ended.wait()
            if self._ended.is_set():
                return
            if protocol.bytes_out == sent:
                protocol.send_heartbeat()
                self.heartbeats_out += 1
                self.flush()
            sent = protocol.bytes_out
            if self._paused or protocol.bytes_in != received:
                silent = 0
            else:
                silent += 1
            received = protocol.bytes_in
            if silent >= 4:
                self.end(
                    ConnectionLost(
                        f"expected a sign of life at least every {protocol.heartbeat} s, the broker was silent for "
                        f"{2 * protocol.heartbeat}"
                    )
                )

    # ---- what others call

    def wake(self) -> None:
        """Have the writer send what is encoded."""
        self.protocol.idle = False
        self._work.set()

    def flush(self) -> None:
        """The same, if it sleeps."""
        if self.protocol.idle:
            self.wake()

    def wait_room(self, timeout: float) -> None:
        """Wait until there is room to publish: the broker takes messages, and not too much waits to be sent.

        Raises ConnectionBlocked or AMQPTimeout after ``timeout`` seconds, and why the connection ended if it did.
        """
        with coro.move_on_after(timeout):
            while self.alive and (self.blocked is not None or self.protocol.pending > HIGH):
                self._room.wait()
            if not self.alive:
                self.raise_error()
            return
        if self.blocked is not None:
            raise ConnectionBlocked(f"the broker has blocked publishing for {timeout:g} s and more: {self.blocked}")
        raise AMQPTimeout(f"expected the broker to read what is published, it has not for {timeout:g} s")

    def set_blocked(self, reason: str | None) -> None:
        """The broker has said so."""
        self.blocked = reason
        if reason is None:
            self._room.wake_all()

    def raise_error(self) -> NoReturn:
        """Raise why the connection has ended: a copy for each caller, as each adds a traceback."""
        error = self.error
        if error is None:
            raise ConnectionLost("the connection has not been opened")
        raise again(error)

    def wait_end(self, timeout: float) -> bool:
        """Wait for the end; False if it does not come in time."""
        with coro.move_on_after(timeout):
            self._ended.wait()
        return self._ended.is_set()

    def end(self, error: AMQPError, cause: BaseException | None = None) -> None:
        """The connection is over. Tells the owner and closes the socket, once."""
        if self._dying:
            return
        self._dying = True
        self.alive = False
        self.protocol.idle = False
        if cause is not None and cause is not error and error.__cause__ is None:
            error.__cause__ = cause
        self.error = error
        self._ended.set()
        self._work.set()
        self._reading.set()
        self._room.wake_all()
        self._on_end(self)
        self.protocol.abandon()
        try:
            self._sock.close()
        except (OSError, coro.ClosedError):
            pass


def call_back(function: Callable[..., object], *arguments: object, **facts: object) -> None:
    """Call a function of the user in the reader. What it raises is logged: it must not end the connection of others."""
    try:
        function(*arguments, **facts)
    except Exception:
        LOG.exc()


def again(error: AMQPError) -> AMQPError:
    """A copy of an error to raise, with the same cause."""
    copy: AMQPError
    if isinstance(error, ProtocolError | AuthenticationError):
        copy = type(error)(str(error), error.reply_code)
    else:
        copy = type(error)(*error.args)
    copy.__cause__ = error.__cause__ or error
    return copy
