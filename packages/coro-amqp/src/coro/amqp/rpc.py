"""Request and reply over queues: `client` asks, `server` answers.

The pattern is that of RabbitMQ's tutorial (https://www.rabbitmq.com/tutorials/tutorial-six-python), so each side works
with programs that know nothing of coro: a request names the queue for its reply in ``reply-to`` and itself in
``correlation-id``, which the reply repeats. What is added stays within AMQP's properties: a request expires with the
caller's patience (``expiration``), so no server works for somebody who has gone; a reply that tells of a failure has
the type ``rpc-error`` and says in its headers what went wrong. Where both sides name an exchange for it (``cancels``),
a caller that does not wait any more says so there, by the ``correlation-id`` of its request and the type
``rpc-cancel``. All servers hear it, because nobody knows which of them has the request or will get it.

    with rpc.client(connection.channel()) as caller:
        reply = caller.request(b"21", "double", timeout=5)

    with rpc.server(connection.channel(), "double", handler=lambda message: str(int(message.body) * 2)):
        ...

Matching is a dictionary from correlation ids to waiting threads, filled before the request is sent; the reader of the
connection wakes the thread. Cost: an event and an entry of a dictionary for each call.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import coro
from coro.amqp.exceptions import AMQP_Consumer_Closed, AMQPError, AMQPTimeout, RemoteError, StateError
from coro.exceptions import LoopError
from coro.log import Facility

if TYPE_CHECKING:
    from coro.amqp._channel import channel as Channel
    from coro.amqp._consumer import consumer as Consumer
    from coro.amqp._protocol import Message

__all__ = [
    "ClientStatistics",
    "DIRECT",
    "RPCError",
    "RPCFailed",
    "RPCTimeout",
    "RPCUnroutable",
    "RPC_Client_Error",
    "ServerStatistics",
    "client",
    "server",
]

LOG = Facility("amqp")

#: The queue of a client that wants RabbitMQ's direct reply-to: replies come without a queue
#: (https://www.rabbitmq.com/docs/direct-reply-to).
DIRECT = "amq.rabbitmq.reply-to"

#: The type of a reply that tells of a failure.
ERROR_TYPE = "rpc-error"

#: The type of a message that takes a request back.
CANCEL_TYPE = "rpc-cancel"

#: Requests that were taken back before they came, which a server remembers.
REMEMBERED = 1000

#: Seconds that a call waits for its reply, unless told otherwise.
TIMEOUT = 30.0

#: Calls of one client that may wait for their replies at once.
LIMIT = 1000

Properties = Mapping[str, Any]


class RPC_Client_Error(AMQPError):
    """A call has got no reply, and will get none: the client was closed, or its channel or connection ended. The cause
    is chained. The server may have done what was asked."""


class RPCTimeout(RPC_Client_Error, AMQPTimeout):
    """No reply came in time. The server may still do what was asked; its reply will be dropped."""


class RPCUnroutable(RPC_Client_Error, RemoteError):
    """The request came back: there is no queue for it. Nobody has seen it."""


class RPCFailed(RPC_Client_Error, RemoteError):
    """The server says that it has failed. ``kind`` is the name of its exception, ``text`` what it tells of it."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"the server failed: {kind}" + (f": {text}" if text else ""))
        self.kind = kind
        self.text = text

    def __reduce__(self) -> Any:
        return type(self), (self.kind, self.text)


class RPCError(AMQPError):
    """For handlers to raise: the caller gets RPCFailed with this text. Of other exceptions it learns the name only."""


class ClientStatistics(NamedTuple):
    """Counts of an rpc.client; debugging information."""

    #: Calls that wait for their replies.
    waiting: int
    #: Calls that have been made.
    calls: int
    #: Replies that came for a call.
    replies: int
    #: Replies that came for no call: too late, or sent twice.
    late: int
    #: Calls that ended without a reply.
    failed: int


class ServerStatistics(NamedTuple):
    """Counts of an rpc.server; debugging information."""

    #: Requests that are being handled.
    active: int
    #: Requests that have been answered.
    answered: int
    #: Requests whose handler failed.
    failed: int
    #: Requests without a reply-to, handled and not answered.
    one_way: int
    #: Requests that their callers have taken back.
    cancelled: int = 0


class _Call:
    """A thread that waits for its reply."""

    __slots__ = ("error", "event", "reply")

    def __init__(self) -> None:
        self.event = coro.event()
        self.reply: Message | None = None
        self.error: RPC_Client_Error | None = None


class client:
    """The asking side, on a channel of its own; any number of threads may call at once.

    ``queue`` is where replies go: a queue that exists, "" for a fresh exclusive one, or ``rpc.DIRECT`` for RabbitMQ's
    direct reply-to, which is fastest. ``uuid_fun`` makes correlation ids; without it they are a random prefix and a
    number, which tell nothing about this machine. ``timeout`` is how many seconds a call waits, ``limit`` how many
    calls may wait at once; further ones wait for their turn, within their timeout. ``cancels`` is the name of an
    exchange, which is declared as a fanout: a call that is interrupted, or waits no longer, is told there, and a server
    with the same name interrupts its handler. Without it the server works on until the request expires.

    Raises what ``channel.queue_declare`` and ``channel.basic_consume`` raise.
    """

    def __init__(
        self,
        channel: Channel,
        queue: str = "",
        uuid_fun: Callable[[], object] | None = None,
        *,
        timeout: float = TIMEOUT,
        limit: int = LIMIT,
        cancels: str | None = None,
    ) -> None:
        self.channel = channel
        self.timeout = timeout
        self._uuid_fun = uuid_fun
        self._prefix = secrets.token_hex(8)
        self._number = self._replies = self._late = self._failed = 0
        self._calls: dict[str, _Call] = {}
        self._room = coro.semaphore(limit)
        self._closed = False
        self._cancels = cancels
        if cancels is not None:
            channel.exchange_declare(cancels, "fanout")
        channel.on_return(self._take_return)
        channel.conn.add_listener(self._take_event)
        if not queue:
            answer = channel.queue_declare("", exclusive=True)
            assert answer is not None
            queue = answer.queue
        # Nobody else gets the replies, and who is gone does not need them again: no acknowledgements.
        self._consumer = channel.basic_consume(queue, no_ack=True, callback=self._take_reply)

    def __repr__(self) -> str:
        return f"<rpc.client with replies to {self.queue!r}: {len(self._calls)} calls wait>"

    @property
    def queue(self) -> str:
        """Where replies go."""
        return self._consumer.queue

    # -- in the reader of the connection: nothing here waits

    def _take_reply(self, message: Message | None) -> None:
        if message is None:
            self._fail_all("the consumer of the replies has ended", self._consumer.error)
            return
        try:
            found = self._calls.pop(str(message.correlation_id), None)
        except AMQPError:
            found = None  # its properties are damaged: it belongs to nobody
        if found is None:
            self._late += 1
            return
        self._replies += 1
        found.reply = message
        found.event.set()

    def _take_return(self, message: Message) -> None:
        found = self._calls.pop(str(message.correlation_id), None)
        if found is not None:
            found.error = RPCUnroutable(
                f"there is no queue for exchange {message.exchange!r} and routing key {message.routing_key!r} "
                f"({message.reply_code} {message.reply_text}): is the server running?"
            )
            found.event.set()

    def _take_event(self, name: str, **facts: Any) -> None:
        if name in ("lost", "closed"):
            self._fail_all("the connection has ended, and replies with it", facts.get("error"))
        elif name == "channel-lost" and facts["channel"] is self.channel:
            self._fail_all("the broker has closed the channel, and replies may be lost with it", facts["error"])

    def _fail_all(self, text: str, cause: BaseException | None) -> None:
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.error = RPC_Client_Error(text if cause is None else f"{text}: {cause}")
            call.error.__cause__ = cause
            call.event.set()

    # -- for users

    def call(
        self,
        properties: Properties | None,
        payload: Any,
        exchange: str = "",
        routing_key: str = "",
        *,
        timeout: float | None = None,
    ) -> tuple[Any, dict[str, Any], bytes]:
        """Ask, and wait for the reply: ``(frame, properties, reply)``, of which the frame is a ``spec.basic.deliver``.

        ``properties`` go with the request, and are not changed; ``reply-to``, ``correlation-id`` and, unless it is
        given, ``expiration`` are added. See ``request`` for the rest.
        """
        message = self.request(payload, routing_key, exchange=exchange, properties=properties, timeout=timeout)
        return message.deliver_method(), message.properties, message.body

    def request(
        self,
        payload: Any,
        routing_key: str,
        *,
        exchange: str = "",
        properties: Properties | None = None,
        timeout: float | None = None,
    ) -> Message:
        """Ask, and wait for the reply, a ``Message``.

        ``timeout``: seconds for all of it, None for the client's. Raises RPCTimeout when they are over, RPCUnroutable
        when there is no queue for the request, RPCFailed when the server says that it has failed, RPC_Client_Error
        when there can be no reply any more, StateError when the client is closed, and what ``channel.basic_publish``
        raises. An interrupted call is forgotten; others do not notice.
        """
        if timeout is None:
            timeout = self.timeout
        self._number += 1
        call = _Call()
        if self._uuid_fun is None:
            identity = f"{self._prefix}-{self._number}"
        else:
            identity = str(self._uuid_fun())
        answered = False
        try:
            with coro.move_on_after(timeout):
                with self._room:
                    if self._closed or self._consumer.closed:
                        self._refuse()
                    self._calls[identity] = call
                    self._send(identity, payload, exchange, routing_key, properties, timeout)
                    call.event.wait()
                    answered = call.reply is not None
        finally:
            sent = self._calls.pop(identity, None) is not None
            if not answered:
                self._failed += 1
                if sent and self._cancels is not None:
                    self._take_back(identity)
        if call.error is not None:
            raise call.error
        if call.reply is None:
            raise RPCTimeout(
                f"expected a reply to a request for exchange {exchange!r} and routing key {routing_key!r} within "
                f"{timeout:g} s, none came"
            )
        return _checked(call.reply)

    def _take_back(self, identity: str) -> None:
        """Tell the servers that nobody waits for this reply; in a thread of its own, because this one has no time."""
        try:
            coro.spawn(self._publish_cancel, identity, thread_name=f"cancel of rpc {identity}", daemon=True)
        except LoopError:
            pass  # the loop is ending: the request expires

    def _publish_cancel(self, identity: str) -> None:
        try:
            assert self._cancels is not None
            properties = {"type": CANCEL_TYPE, "correlation-id": identity}
            if self.channel.confirm_mode:
                self.channel.publish(b"", self._cancels, properties=properties)
            else:
                self.channel.basic_publish(b"", self._cancels, properties=properties)
        except AMQPError as e:
            LOG("rpc cancel not sent", identity, str(e))

    def _refuse(self) -> None:
        if self._closed:
            raise StateError("this rpc.client was closed: make another one")
        error = RPC_Client_Error(f"the consumer of the replies has ended: {self._consumer.error}")
        raise error from self._consumer.error

    def _send(
        self,
        identity: str,
        payload: Any,
        exchange: str,
        routing_key: str,
        properties: Properties | None,
        timeout: float,
    ) -> None:
        own = {name.replace("_", "-"): value for name, value in (properties or {}).items()}
        own["reply-to"] = self.queue
        own["correlation-id"] = identity
        # Whoever would answer later than that answers nobody. Limits that say "for ever" do not fit.
        if "expiration" not in own and timeout < 1e6:
            own["expiration"] = str(max(1, int(timeout * 1000)))
        if self.channel.confirm_mode:
            # The reply is the confirmation.
            self.channel.publish(payload, exchange, routing_key, properties=own, mandatory=True)
        else:
            self.channel.basic_publish(payload, exchange, routing_key, mandatory=True, properties=own)

    def cancel(self) -> None:
        """End it: calls that wait get RPC_Client_Error. The channel stays open, and keeps nothing of it. Nothing
        happens the second time."""
        if self._closed:
            return
        self._closed = True
        self.channel.remove_on_return(self._take_return)
        self.channel.conn.remove_listener(self._take_event)
        self._fail_all("the rpc.client was closed", None)
        self._consumer.close()

    close = cancel

    def statistics(self) -> ClientStatistics:
        """Counts for debugging."""
        return ClientStatistics(len(self._calls), self._number, self._replies, self._late, self._failed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cancel()


def _checked(reply: Message) -> Message:
    if reply.type == ERROR_TYPE:
        headers = reply.headers
        raise RPCFailed(str(headers.get("error", "Error")), str(headers.get("message", "")))
    return reply


class server:
    """The answering side: takes requests from ``queue`` and publishes replies to ``exchange``, by default the one that
    leads to queues by their names.

    Either pass ``handler(message)``, which returns the reply (bytes, or str as UTF-8), or a pair of properties and
    reply; or derive a class and define ``handle_request(properties, request)``, which returns such a pair. It starts
    at once, in threads of its own.

    ``workers`` is how many requests are handled at once; no more are fetched from the queue. A request is acknowledged
    when its reply has been sent, so one that a server dies of is given to another. ``time_limit``: seconds that a
    handler may take, None for as long as the caller waits (``expiration``); then it is interrupted.

    A handler that raises RPCError sends its text to the caller. Of every other exception the caller learns the name
    only, or with ``expose_errors`` the text, too; the log has all of it.

    ``cancels`` is the name of the exchange by which clients take requests back, see ``client``. The handler of such a
    request is interrupted and its reply not sent; a request that is still in the queue is dropped when it comes.
    """

    def __init__(
        self,
        channel: Channel,
        queue: str,
        exchange: str = "",
        *,
        handler: Callable[[Message], Any] | None = None,
        workers: int = 10,
        time_limit: float | None = None,
        expose_errors: bool = False,
        cancels: str | None = None,
    ) -> None:
        if workers < 1:
            raise ValueError(f"expected at least one worker, got {workers}")
        self.channel = channel
        self.queue = queue
        self.exchange = exchange
        self.workers = workers
        self.time_limit = time_limit
        self.expose_errors = expose_errors
        self._handler = handler
        self._active = self._answered = self._failed = self._one_way = self._cancelled = 0
        self._handling: dict[str, coro.coro[tuple[dict[str, Any], Any]]] = {}
        self._taken_back: dict[str, None] = {}  # in their order
        self._cancel_consumer = None if cancels is None else self._hear(channel, cancels)
        self._consumer = channel.consume(queue, prefetch=workers)
        self._thread = coro.spawn(self._serve, thread_name=f"rpc server of {queue}")

    def __repr__(self) -> str:
        return f"<rpc.server of {self.queue!r}: {self._active} requests, {self._answered} answered>"

    def handle_request(self, properties: dict[str, Any], request: bytes) -> Any:
        """Define this in a class of your own, unless you pass ``handler``: returns ``(properties, reply)``."""
        raise NotImplementedError("pass handler=..., or define handle_request(properties, request)")

    def _handle(self, message: Message) -> tuple[dict[str, Any], Any]:
        """Properties and payload of the reply."""
        if self._handler is not None:
            reply = self._handler(message)
        else:
            reply = self.handle_request(message.properties, message.body)
        if isinstance(reply, tuple):
            properties, payload = reply
            return {name.replace("_", "-"): value for name, value in (properties or {}).items()}, payload
        return {}, b"" if reply is None else reply

    def _serve(self) -> None:
        try:
            self._consumer.run(self._request, self.workers)
        except AMQP_Consumer_Closed as exc:
            LOG("rpc server ended", self.queue, str(exc))

    def _request(self, message: Message) -> None:
        self._active += 1
        try:
            result = self._result(message) if self._cancel_consumer is None else self._cancellable(message)
            if result is not None:
                self._answer(message, *result)
        finally:
            self._active -= 1

    def _hear(self, channel: Channel, exchange: str) -> Consumer:
        """Listen to what is taken back."""
        channel.exchange_declare(exchange, "fanout")
        queue = channel.queue_declare(exclusive=True).queue
        channel.queue_bind(queue, exchange)
        return channel.basic_consume(queue, no_ack=True, callback=self._take_cancel)

    def _take_cancel(self, message: Message | None) -> None:
        """In the reader of the connection: never waits."""
        if message is None or message.type != CANCEL_TYPE or message.correlation_id is None:
            return
        identity = message.correlation_id
        thread = self._handling.pop(identity, None)
        if thread is not None:
            thread.shutdown()
            return
        self._taken_back[identity] = None
        if len(self._taken_back) > REMEMBERED:
            del self._taken_back[next(iter(self._taken_back))]

    def _cancellable(self, message: Message) -> tuple[dict[str, Any], Any] | None:
        """What to answer; None if the caller does not wait any more. The handler has a thread of its own for that."""
        identity = message.correlation_id
        if identity is None:
            return self._result(message)
        if identity in self._taken_back:
            del self._taken_back[identity]
            self._cancelled += 1
            return None
        thread = coro.spawn(self._result, message, thread_name=f"rpc {identity}")
        self._handling[identity] = thread
        try:
            return thread.get()
        except coro.CancelledError:
            self._cancelled += 1
            return None
        finally:
            if self._handling.get(identity) is thread:
                del self._handling[identity]
            if not thread.dead:
                thread.shutdown()

    def _limit(self, message: Message) -> float | None:
        if self.time_limit is not None:
            return self.time_limit
        text = message.expiration
        return int(text) / 1000 if text is not None and text.isascii() and text.isdigit() else None

    def _result(self, message: Message) -> tuple[dict[str, Any], Any]:
        """What to answer, be it that the handler failed."""
        try:
            limit = self._limit(message)
            if limit is None:
                return self._handle(message)
            with coro.move_on_after(limit):
                return self._handle(message)
            raise RPCError(f"the handler took longer than {limit:g} s")
        except RPCError as e:
            self._failed += 1
            return self._failure("RPCError", str(e))
        except Exception as e:
            self._failed += 1
            LOG("rpc handler failed", self.queue)
            LOG.exc()
            return self._failure(type(e).__name__, str(e) if self.expose_errors else "")

    def _failure(self, kind: str, text: str) -> tuple[dict[str, Any], Any]:
        return {"type": ERROR_TYPE, "headers": {"error": kind, "message": text}}, b""

    def _answer(self, message: Message, properties: dict[str, Any], payload: Any) -> None:
        if message.reply_to is None:
            self._one_way += 1
            return
        if message.correlation_id is not None:
            properties["correlation-id"] = message.correlation_id
        try:
            self._publish(message.reply_to, properties, payload)
        except ValueError as e:
            # What the handler returned cannot be sent; that it failed can.
            self._failed += 1
            LOG("rpc reply refused", self.queue, str(e))
            properties, payload = self._failure(type(e).__name__, str(e) if self.expose_errors else "")
            if message.correlation_id is not None:
                properties["correlation-id"] = message.correlation_id
            self._publish(message.reply_to, properties, payload)
        self._answered += 1

    def _publish(self, queue: str, properties: dict[str, Any], payload: Any) -> None:
        # Not mandatory: a caller that has gone is no failure of ours.
        if self.channel.confirm_mode:
            self.channel.publish(payload, self.exchange, queue, properties=properties)
        else:
            self.channel.basic_publish(payload, self.exchange, queue, properties=properties)

    def cancel(self, timeout: float | None = 30.0) -> None:
        """Take no more requests, and wait until those that are being handled have been answered.

        After ``timeout`` seconds (None: no limit) handlers that still run get Shutdown; their requests go back to the
        queue. Nothing happens the second time.
        """
        self._consumer.close()
        if self._cancel_consumer is not None:
            self._cancel_consumer.close()
        try:
            self._thread.join(timeout)
        except coro.TimeoutError:
            self._thread.shutdown()
            self._thread.join()

    close = cancel

    def statistics(self) -> ServerStatistics:
        """Counts for debugging."""
        return ServerStatistics(self._active, self._answered, self._failed, self._one_way, self._cancelled)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cancel(0.0 if exc is not None else 30.0)
