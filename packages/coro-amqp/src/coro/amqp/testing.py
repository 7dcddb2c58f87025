"""A broker inside the process, for tests of programs that use AMQP: `Broker`.

    from coro import amqp
    from coro.amqp import testing

    with testing.Broker() as broker, amqp.connect(broker.url) as client:
        ...

It speaks AMQP 0-9-1 on a TCP port of the loopback interface, so any client can talk to it, in this process or another.
It answers as RabbitMQ does, with its reply codes and texts; the tests of this package run the same programs against
both. It keeps everything in memory, starts in a millisecond, and does on demand what a real broker does rarely: it
blocks publishers, refuses messages, holds confirms back, cancels consumers, closes or cuts connections, stops and
starts again.

What it has not: streams, policies, clusters, permissions other than a password, and the speed of a real broker.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

import coro
from coro.amqp import spec
from coro.amqp._broker.queues import Queue, Stored
from coro.amqp._broker.routing import Exchange
from coro.amqp._broker.sessions import FAREWELL, Session
from coro.amqp._broker.world import World
from coro.amqp.wire import CHANNEL_MAX, FRAME_MAX, MAX_BODY

__all__ = ["Broker", "BrokerStatistics"]


class BrokerStatistics(NamedTuple):
    """Counts of a Broker since it was made; debugging information."""

    #: Connections that are open.
    connections: int
    #: Channels that are open.
    channels: int
    #: Queues there are.
    queues: int
    #: Messages that wait in queues.
    ready: int
    #: Messages that clients have and have not acknowledged.
    unacknowledged: int
    #: Messages that clients have published.
    published: int
    #: Messages that were sent to clients, each time counted.
    delivered: int
    #: Messages that were acknowledged.
    acknowledged: int
    #: Messages that no binding led anywhere.
    unroutable: int
    #: Messages that went to a dead-letter exchange.
    dead_lettered: int


class Broker:
    """``with Broker() as broker:`` runs a broker on a free port of 127.0.0.1, which ``broker.url`` leads to.

    ``port``: 0 for a free one. ``users`` maps names to passwords; guest with password guest by default.
    ``virtual_hosts`` are the names of those that exist. ``frame_max``, ``channel_max`` and ``heartbeat`` (seconds) are
    what it offers a client; ``max_body`` is how many bytes a message may have. ``tls_ctx`` is a context object with
    ``wrap(sock, server_side=True)``; then ``url`` begins with amqps.

    It has to be used in a loop of coro. Calls that change something do it at once, and do not wait unless it is said.

    ``refusals`` lists what was refused so far, as pairs of reply code and text; ``secrets`` what clients have sent by
    update-secret.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        users: Mapping[str, str] | None = None,
        virtual_hosts: tuple[str, ...] = ("/",),
        frame_max: int = FRAME_MAX,
        channel_max: int = CHANNEL_MAX,
        heartbeat: int = 60,
        max_body: int = MAX_BODY,
        tls_ctx: Any = None,
    ) -> None:
        self.users = dict(users if users is not None else {"guest": "guest"})
        self.frame_max = frame_max
        self.channel_max = channel_max
        self.heartbeat = heartbeat
        self.max_body = max_body
        self.port = port
        self.refusals: list[tuple[int, str]] = []
        self.secrets: list[str] = []
        self.counts: Counter[str] = Counter()
        #: The reason while publishers are blocked, else None.
        self.blocked: str | None = None
        #: While it is true no confirm is sent; see ``hold_confirms``.
        self.holds_confirms = False
        #: While it is true nothing at all is sent, as if the network swallowed it.
        self.silent = False
        self._tls = tls_ctx
        self._refuse_next = 0
        self._unblocked = coro.event()
        self._time_changed = coro.event()
        self._worlds = {name: World(name, self._time_changed.set) for name in virtual_hosts}
        self._sessions: dict[Session, None] = {}
        self._server: coro.Server | None = None
        self._clock: Any = None

    def __repr__(self) -> str:
        state = "stopped" if self._server is None else f"on port {self.port}"
        return f"<Broker {state}: {len(self._sessions)} connections>"

    # -- start and end

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return ("127.0.0.1", self.port)

    @property
    def url(self) -> str:
        """Of the first user and virtual host, for ``amqp.connect``."""
        user, password = next(iter(self.users.items()))
        host = next(iter(self._worlds)).replace("/", "%2f")
        return f"amqp{'s' if self._tls is not None else ''}://{user}:{password}@127.0.0.1:{self.port}/{host}"

    def start(self) -> None:
        """Listen; after ``stop`` on the same port as before. Does nothing when it runs. OSError when the port is
        taken."""
        if self._server is not None:
            return
        wrap = None
        if self._tls is not None:
            context = self._tls

            def wrap(conn: Any) -> Any:
                return context.wrap(conn, server_side=True)

        self._server = coro.Server(self._serve, ("127.0.0.1", self.port), wrap=wrap, daemon=True).start()
        self.port = self._server.addresses[0][1]
        self._clock = coro.spawn(self._keep_time, thread_name="broker's clock", daemon=True)

    def stop(self, *, crash: bool = False) -> None:
        """End as a broker that is restarted does: every client is told (connection.close, 320), or with ``crash`` cut
        off. What is durable stays for ``start``. Waits at most a second for the clients."""
        server, self._server = self._server, None
        if server is None:
            return
        if crash:
            self.cut_connections()
        else:
            self.close_connections("shutdown")
        self.unblock()
        self._clock.shutdown()
        self._clock.join()
        server.drain(FAREWELL)
        for world in self._worlds.values():
            world.crash()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop(crash=exc is not None)

    def _serve(self, conn: Any, address: Any) -> None:
        session = Session(self, conn)
        self._sessions[session] = None
        try:
            session.run()
        finally:
            del self._sessions[session]

    def _keep_time(self) -> None:
        """Messages and queues expire."""
        while True:
            self._time_changed.clear()
            due = [world.expire() for world in self._worlds.values()]
            soonest = min((each for each in due if each is not None), default=None)
            if soonest is None:
                self._time_changed.wait()
            else:
                world = next(iter(self._worlds.values()))
                with coro.move_on_after(max(0.0, soonest - world.now())):
                    self._time_changed.wait()

    def _world(self, name: str) -> World:
        from coro.amqp._broker.world import Refusal

        world = self._worlds.get(name)
        if world is None:
            raise Refusal(spec.NOT_ALLOWED, f"vhost {name} not found")
        return world

    # -- looking

    @property
    def world(self) -> World:
        """The first virtual host."""
        return next(iter(self._worlds.values()))

    @property
    def queues(self) -> dict[str, Queue]:
        """The queues of the first virtual host by name. ``len()`` of one is how many messages are ready; iterating
        gives them, with ``body``, ``properties``, ``exchange`` and ``routing_key``."""
        return self.world.queues

    @property
    def exchanges(self) -> dict[str, Exchange]:
        """The exchanges of the first virtual host by name, with their ``bindings``."""
        return self.world.exchanges

    @property
    def sessions(self) -> list[Session]:
        """The connections there are, with ``user`` and ``client_properties``."""
        return list(self._sessions)

    def statistics(self) -> BrokerStatistics:
        """Counts for tests and debugging."""
        queues = [queue for world in self._worlds.values() for queue in world.queues.values()]
        return BrokerStatistics(
            connections=len(self._sessions),
            channels=sum(len(session.channels) for session in self._sessions),
            queues=len(queues),
            ready=sum(map(len, queues)),
            unacknowledged=sum(queue.unacked for queue in queues),
            published=self.counts["published"],
            delivered=self.counts["delivered"],
            acknowledged=self.counts["acknowledged"],
            unroutable=sum(world.unroutable for world in self._worlds.values()),
            dead_lettered=sum(world.dead_lettered for world in self._worlds.values()),
        )

    # -- doing

    def publish(
        self, body: bytes, *, exchange: str = "", routing_key: str = "", properties: Mapping[str, Any] | None = None
    ) -> bool:
        """Publish a message as another client would; whether it reached a queue. KeyError for an unknown exchange.
        ``properties`` have the names that AMQP gives them, as in ``message.properties``."""
        message = Stored(exchange, routing_key, dict(properties or {}), bytes(body))
        reached, _ = self.world.publish(self.exchanges[exchange], message)
        return reached

    def block(self, reason: str = "low on memory") -> None:
        """Block who publishes, as an alarm does: a client that publishes from now on gets connection.blocked, and is
        read from no more."""
        self.blocked = reason
        self._unblocked.clear()
        for session in self.sessions:
            session.has_published = False

    def unblock(self) -> None:
        """End ``block``: clients get connection.unblocked."""
        self.blocked = None
        for session in self.sessions:
            session.tell_blocked()
        self._unblocked.set()

    def refuse_publishes(self, count: int = 1) -> None:
        """Answer the next ``count`` messages that are published in confirm mode with basic.nack, and drop them."""
        self._refuse_next = count

    def _takes_refusal(self) -> bool:
        if self._refuse_next:
            self._refuse_next -= 1
            return True
        return False

    @contextlib.contextmanager
    def hold_confirms(self) -> Iterator[None]:
        """A block in which no message is confirmed; at its end all that were published in it are."""
        self.holds_confirms = True
        try:
            yield
        finally:
            self.holds_confirms = False
            for session in self.sessions:
                for channel in list(session.channels.values()):
                    channel.flush_confirms()

    def cancel_consumers(self, queue: str) -> int:
        """Cancel who consumes from a queue, as RabbitMQ does when it moves or loses one: they get basic.cancel. The
        queue stays. Returns how many there were. KeyError for an unknown queue."""
        found = self.queues[queue]
        takers, found.takers, found.exclusive_taker = found.takers, [], None
        for taker in takers:
            taker.cancelled_by_broker()
        return len(takers)

    def delete_queue(self, queue: str) -> None:
        """Delete a queue, as an operator does: who consumes from it is told. KeyError for an unknown one."""
        self.world.drop_queue(self.queues[queue])

    def close_connections(self, reason: str = "closed by the operator") -> None:
        """Close every connection in order, with reply code 320, as ``rabbitmqctl close_all_connections`` does."""
        for session in self.sessions:
            session.close(
                spec.CONNECTION_FORCED,
                f"CONNECTION_FORCED - broker forced connection closure with reason '{reason}'",
            )

    def close_channels(self, code: int = spec.PRECONDITION_FAILED, text: str = "PRECONDITION_FAILED - test") -> None:
        """Close every channel with this reply code and text."""
        for session in self.sessions:
            for number, channel in list(session.channels.items()):
                channel.send(spec.channel.close(code, text, 0, 0))
                session._drop(number)

    def cut_connections(self) -> None:
        """End every connection without a word, as a broken network does."""
        for session in self.sessions:
            session.cut()
