"""One client's connection to the test broker: login, reading, writing, heartbeats, and the end.

Three threads of coro: the reader, which does what the client asks for; the writer, which sends what has gathered, in
one call; and one for heartbeats. Deliveries stop while more than `HIGH` bytes wait for the client, and nothing more is
read while four times that wait, so that a client that does not read costs a bounded amount of memory.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any

import coro
from coro.amqp import spec, wire
from coro.amqp._broker.channels import Channel
from coro.amqp._broker.world import Refusal
from coro.amqp.exceptions import AMQPError, LocalError, ProtocolError

if TYPE_CHECKING:
    from coro.amqp.testing import Broker

__all__ = ["Session"]

#: Bytes that may wait for a client before it gets no more messages.
HIGH = 1 << 20

#: Seconds that a login may take, and the answer to connection.close.
HANDSHAKE, FAREWELL = 10.0, 1.0

_CAPABILITIES = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)


class Session:
    """A connection. `user` is who has logged in."""

    def __init__(self, broker: Broker, conn: Any) -> None:
        self.broker = broker
        self.conn = conn
        self.protocol = wire.Protocol(
            "server",
            frame_max=broker.frame_max,
            channel_max=broker.channel_max,
            heartbeat=broker.heartbeat,
            max_body=broker.max_body,
        )
        self.channels: dict[int, Channel] = {}
        self.user = ""
        self.client_properties: dict[str, Any] = {}
        self.world: Any = None
        self.has_published = False
        self._told_blocked = False
        self._output = coro.event()
        self._drained = coro.event()
        self._ended = False
        self._last_read = 0

    def __repr__(self) -> str:
        return f"<session of {self.user or 'nobody yet'}: {self.protocol.state}, {len(self.channels)} channels>"

    def can(self, name: str) -> bool:
        """Has the client said that it knows this extension?"""
        capabilities = self.client_properties.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(name) is True

    # -- threads

    def run(self) -> None:
        """Until the client has gone."""
        with coro.group() as threads:
            threads.spawn(self._write, thread_name="broker's writer")
            try:
                with coro.timeout(HANDSHAKE) as limit:
                    while self.protocol.state != "opened":
                        if not self._read_once():
                            return
                if self.protocol.heartbeat:
                    threads.spawn(self._beat, thread_name="broker's heartbeat")
                while self._read_once():
                    self._gate()
            except coro.TimeoutError:
                if not limit.expired:
                    raise
            except (OSError, EOFError, coro.ClosedError):
                pass
            finally:
                self._ended = True
                self._leave()
                with coro.shield(FAREWELL), coro.move_on_after(FAREWELL):
                    self._flush()
                threads.shutdown()

    def _read_once(self) -> bool:
        """Read and do what came; False at the end."""
        data = self.conn.recv(1 << 18)
        if not data:
            return False
        try:
            events = self.protocol.receive(data)
            for number, what in events:
                self._do(number, what)
            if self.protocol.error is not None:
                raise self.protocol.error
        except ProtocolError as error:
            self._refuse_connection(Refusal(error.reply_code, str(error), hard=True), 0, 0)
        for channel in list(self.channels.values()):
            channel.flush_confirms()
        self.wake_writer()
        while self.protocol.pending > 4 * HIGH and not self._ended:
            self._drained.clear()
            self._drained.wait()
        return self.protocol.error is None and self.protocol.state != "closed"

    def _write(self) -> None:
        while True:
            self._output.wait()
            self._output.clear()
            full = not self.writable()
            try:
                self._flush()
            except (OSError, coro.ClosedError):
                self.cut()
                return
            if full:
                for channel in list(self.channels.values()):
                    channel.pump()
            self._drained.set()

    def _flush(self) -> None:
        pieces = self.protocol.take_output()
        if pieces and not self.broker.silent:
            self.conn.writev(pieces)

    def _beat(self) -> None:
        """A heartbeat where nothing else has gone for half the interval; the end when nothing came for two."""
        half = self.protocol.heartbeat / 2
        sent = self.protocol.bytes_out
        received, quiet = self.protocol.bytes_in, 0
        while not self._ended:
            coro.sleep_relative(half)
            if self.protocol.bytes_out == sent:
                self.protocol.send_heartbeat()
                self.wake_writer()
            sent = self.protocol.bytes_out
            quiet = quiet + 1 if self.protocol.bytes_in == received else 0
            received = self.protocol.bytes_in
            if quiet > 4 and not self._told_blocked:
                self.broker.counts["missed heartbeats"] += 1
                self.cut()
                return

    def wake_writer(self) -> None:
        self._output.set()

    def writable(self) -> bool:
        return bool(self.protocol.pending < HIGH)

    def _gate(self) -> None:
        """Who publishes while the broker is blocked is read from no more until it is not."""
        while self.broker.blocked is not None and self.has_published and not self._ended:
            self.tell_blocked()
            self.broker._unblocked.wait()

    def tell_blocked(self) -> None:
        """Send connection.blocked or connection.unblocked if the client does not know yet."""
        reason = self.broker.blocked
        if (reason is not None) == self._told_blocked or self.protocol.state != "opened":
            return
        if reason is not None and not self.has_published:
            return
        self._told_blocked = reason is not None
        if self.can("connection.blocked"):
            method = spec.connection.unblocked() if reason is None else spec.connection.blocked(reason)
            self.protocol.send_method(0, method)
            self.wake_writer()

    # -- the end

    def cut(self) -> None:
        """End the connection without a word."""
        self._ended = True
        self._drained.set()
        try:
            self.conn.shutdown(coro.SHUT.RDWR)
        except (OSError, coro.ClosedError):
            pass

    def close(self, code: int, text: str) -> None:
        """Send connection.close; the client answers, and then the connection ends."""
        if self.protocol.state in ("opened", "open"):
            self.protocol.send_method(0, spec.connection.close(code, text, 0, 0))
            self.wake_writer()
            self._leave()
        else:
            self.cut()

    def _leave(self) -> None:
        """What the client had is given back, and what was its own goes."""
        channels, self.channels = self.channels, {}
        for channel in channels.values():
            channel.leave()
        if self.world is not None:
            for queue in list(self.world.queues.values()):
                if queue.owner is self:
                    self.world.drop_queue(queue)

    def _refuse_connection(self, refusal: Refusal, class_id: int, method_id: int) -> None:
        if self.protocol.state in ("closing", "closed"):
            return
        self.broker.refusals.append((refusal.code, refusal.text))
        if self.protocol.state == "header":
            # Not even AMQP: the answer is the version that this broker speaks (4.2.2).
            self.protocol.send_header()
        else:
            self.protocol.send_method(0, spec.connection.close(refusal.code, refusal.text[:255], class_id, method_id))
        self._leave()

    # -- what the client sends

    def _do(self, number: int, what: Any) -> None:
        if self.protocol.state == "closing" and number:
            return
        if isinstance(what, wire.Message):
            method_id = spec.basic.publish.id
        else:
            method_id = getattr(what, "id", (0, 0))
        try:
            if number == 0:
                self._connection_method(what)
            elif isinstance(what, spec.channel.open):
                self.channels[number] = Channel(self, number)
                self.protocol.send_method(number, spec.channel.open_ok())
            elif isinstance(what, spec.channel.close):
                self._drop(number)
            elif isinstance(what, spec.channel.close_ok):
                pass
            elif number in self.channels:
                channel = self.channels[number]
                if isinstance(what, wire.Message):
                    self.has_published = True
                    channel.on_publish(what)
                else:
                    self._channel_method(channel, what)
        except Refusal as refusal:
            if refusal.hard or number == 0:
                self._refuse_connection(refusal, *method_id)
            else:
                self.broker.refusals.append((refusal.code, refusal.text))
                channel = self.channels[number]
                channel.flush_confirms()
                if channel.is_open():
                    close = spec.channel.close(refusal.code, refusal.text[:255], *method_id)
                    self.protocol.send_method(number, close)
                self._drop(number)
        except LocalError as error:
            # What a client sent fits no frame of those it asked for.
            self._refuse_connection(Refusal(spec.INTERNAL_ERROR, str(error)), *method_id)

    def _drop(self, number: int) -> None:
        channel = self.channels.pop(number, None)
        if channel is not None:
            channel.leave()

    def _channel_method(self, channel: Channel, method: Any) -> None:
        handler = getattr(channel, "on_" + method._name.replace(".", "_"), None)
        if handler is None:
            raise Refusal(spec.COMMAND_INVALID, f"{method._name} is not for a broker")
        handler(method)

    def _connection_method(self, what: Any) -> None:
        if what is wire.HEADER_OK:
            self.protocol.send_method(
                0,
                spec.connection.start(
                    server_properties={
                        "product": "coro.amqp.testing",
                        "capabilities": dict.fromkeys(_CAPABILITIES, True),
                    },
                    mechanisms=b"PLAIN AMQPLAIN",
                ),
            )
        elif isinstance(what, spec.connection.start_ok):
            self._log_in(what)
        elif isinstance(what, spec.connection.open):
            self.world = self.broker._world(what.virtual_host)
            self.protocol.send_method(0, spec.connection.open_ok())
            self.tell_blocked()
        elif isinstance(what, spec.connection.update_secret):
            self.broker.secrets.append(_text(what.new_secret))
            self.protocol.send_method(0, spec.connection.update_secret_ok())

    def _log_in(self, method: Any) -> None:
        self.client_properties = method.client_properties or {}
        user, password = "", ""
        if method.mechanism == "PLAIN":
            parts = _bytes(method.response).split(b"\0")
            if len(parts) == 3:
                user, password = (_text(part) for part in parts[1:])
        elif method.mechanism == "AMQPLAIN":
            # A field table without its length.
            data = _bytes(method.response)
            try:
                table, _ = wire.unpack_table(len(data).to_bytes(4, "big") + data, 0)
            except AMQPError:
                table = {}
            user, password = str(table.get("LOGIN", "")), str(table.get("PASSWORD", ""))
        else:
            raise Refusal(
                spec.ACCESS_REFUSED, f"Login was refused: mechanism {method.mechanism} is not offered", hard=True
            )
        wanted = self.broker.users.get(user)
        if not hmac.compare_digest(password.encode(), (wanted or "").encode()) or wanted is None:
            text = f"Login was refused using authentication mechanism {method.mechanism}."
            if self.can("authentication_failure_close"):
                raise Refusal(spec.ACCESS_REFUSED, text, hard=True)
            self.cut()
            return
        self.user = user
        self.protocol.send_method(
            0, spec.connection.tune(self.broker.channel_max, self.broker.frame_max, self.broker.heartbeat)
        )


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value or b"")


def _text(value: Any) -> str:
    return _bytes(value).decode("utf-8", "replace")
