"""Queues of the test broker: order, redelivery, limits, dead letters, and who gets the next message.

A queue holds messages in the order in which they came; one that comes back takes its old place, marked redelivered.
Nothing here does I/O or waits. Consumers are objects that say whether they have room and take a message (`Taker`);
time is coro's own, so it stands still and jumps with `coro.testing.virtual_clock`.

What RabbitMQ names in arguments of a queue, and is known here: x-message-ttl, x-expires, x-max-length,
x-max-length-bytes, x-overflow, x-dead-letter-exchange, x-dead-letter-routing-key, x-max-priority,
x-single-active-consumer, and x-queue-type classic and quorum with x-delivery-limit. A quorum queue differs in what a
client can see: it counts deliveries and ends them at the limit; there is no replication.

Cost: a message is one object; putting one back is a search by halves.
"""

from __future__ import annotations

from bisect import bisect
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from .routing import Routable

__all__ = ["Stored", "Queue", "Taker", "Unacked"]


class Stored:
    """A message in the broker. `encoded` are its properties as the publisher wrote them, None once they changed."""

    __slots__ = (
        "body",
        "deliveries",
        "encoded",
        "exchange",
        "expires",
        "priority",
        "properties",
        "redelivered",
        "routing_key",
        "sequence",
    )

    def __init__(
        self, exchange: str, routing_key: str, properties: dict[str, Any], body: bytes, encoded: Any = None
    ) -> None:
        self.encoded = encoded
        self.exchange = exchange
        self.routing_key = routing_key
        self.properties = properties
        self.body = body
        self.sequence = 0
        self.deliveries = 0
        self.redelivered = False
        self.priority = 0
        #: In seconds of the broker's clock; None: never.
        self.expires: float | None = None

    def copy(self) -> Stored:
        """For another queue: each counts for itself."""
        return Stored(self.exchange, self.routing_key, self.properties, self.body, self.encoded)

    def __repr__(self) -> str:
        return f"<message to {self.exchange!r} with key {self.routing_key!r}, {len(self.body)} bytes>"


class Taker(Protocol):
    """A consumer, as a queue sees it."""

    no_ack: bool
    priority: int

    def has_room(self) -> bool: ...

    def take(self, queue: Queue, message: Stored) -> None: ...

    def cancelled_by_broker(self) -> None: ...


class Unacked:
    """A message that a client has and has not acknowledged."""

    __slots__ = ("consumer", "message", "queue")

    def __init__(self, queue: Queue, message: Stored, consumer: Taker | None) -> None:
        self.queue = queue
        self.message = message
        self.consumer = consumer


class DeadLetters(Protocol):
    """Where messages go that a queue gives up."""

    def dead(self, queue: Queue, message: Stored, reason: str) -> None: ...

    def now(self) -> float: ...


class Queue(Routable):
    """One queue. `owner` is the session that alone may use it, or None."""

    def __init__(
        self,
        name: str,
        world: DeadLetters,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        owner: object = None,
        arguments: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(name)
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner = owner
        self.arguments = arguments or {}
        self.takers: list[Taker] = []
        self.exclusive_taker: Taker | None = None
        #: Messages that clients have and have not acknowledged.
        self.unacked = 0
        self.deleted = False
        self._world = world
        self._sequence = 0
        self._turn = 0
        self._bytes = 0
        self._pumping = False
        self.last_used = world.now()
        levels = int(self.arguments.get("x-max-priority") or 0) + 1
        self._levels: list[deque[Stored]] = [deque() for _ in range(levels)]

    def __repr__(self) -> str:
        return f"<queue {self.name!r}: {len(self)} ready, {self.unacked} unacknowledged, {len(self.takers)} consumers>"

    def __len__(self) -> int:
        return sum(map(len, self._levels))

    def __iter__(self) -> Iterator[Stored]:
        """The messages that are ready, in the order in which they would be delivered."""
        for level in reversed(self._levels):
            yield from level

    @property
    def is_quorum(self) -> bool:
        return self.arguments.get("x-queue-type") == "quorum"

    # -- messages

    def accepts(self) -> bool:
        """False: a message published now is refused (x-overflow reject-publish)."""
        if str(self.arguments.get("x-overflow", "")).startswith("reject-publish"):
            most = self.arguments.get("x-max-length")
            return most is None or len(self) < most
        return True

    def put(self, message: Stored, ttl: float | None) -> None:
        """Take a message. `ttl`: its own limit in seconds; the shorter of that and the queue's counts."""
        self._sequence += 1
        message.sequence = self._sequence
        own = self.arguments.get("x-message-ttl")
        limits = [limit for limit in (ttl, None if own is None else own / 1000) if limit is not None]
        if limits:
            message.expires = self._world.now() + min(limits)
        message.priority = min(message.priority, len(self._levels) - 1)
        self._levels[message.priority].append(message)
        self._bytes += len(message.body)
        self.pump()
        self._keep_to_length()

    def _keep_to_length(self) -> None:
        most, most_bytes = self.arguments.get("x-max-length"), self.arguments.get("x-max-length-bytes")
        while self and (
            (most is not None and len(self) > most) or (most_bytes is not None and self._bytes > most_bytes)
        ):
            level = next(level for level in self._levels if level)
            message = level.popleft()
            self._bytes -= len(message.body)
            self._world.dead(self, message, "maxlen")

    def __bool__(self) -> bool:
        return any(self._levels)

    def _first(self) -> Stored | None:
        """Remove and return the next message that has not expired."""
        now = self._world.now()
        for level in reversed(self._levels):
            while level:
                message = level.popleft()
                self._bytes -= len(message.body)
                if message.expires is not None and message.expires <= now:
                    self._world.dead(self, message, "expired")
                    continue
                return message
        return None

    def expire(self) -> float | None:
        """Give up what has expired at the head; returns when the next one does, or None."""
        now = self._world.now()
        soonest = None
        for level in self._levels:
            while level and level[0].expires is not None and level[0].expires <= now:
                message = level.popleft()
                self._bytes -= len(message.body)
                self._world.dead(self, message, "expired")
            if level and level[0].expires is not None:
                soonest = level[0].expires if soonest is None else min(soonest, level[0].expires)
        return soonest

    def get(self) -> Stored | None:
        """The next message, for basic.get."""
        self.last_used = self._world.now()
        message = self._first()
        if message is not None:
            message.deliveries += 1
        return message

    def put_back(self, message: Stored) -> None:
        """A message returns unacknowledged, to its old place. Its delivery may have been the last one allowed."""
        limit = self.arguments.get("x-delivery-limit") if self.is_quorum else None
        if limit is not None and message.deliveries > limit:
            self._world.dead(self, message, "delivery_limit")
            return
        message.redelivered = True
        level = self._levels[message.priority]
        if not level or message.sequence < level[0].sequence:
            level.appendleft(message)
        else:
            level.insert(bisect(level, message.sequence, key=lambda other: other.sequence), message)
        self._bytes += len(message.body)

    def purge(self) -> int:
        count = len(self)
        for level in self._levels:
            level.clear()
        self._bytes = 0
        return count

    def keep(self, wanted: Callable[[Stored], bool]) -> None:
        """Drop the messages that are not wanted."""
        self._levels = [deque(filter(wanted, level)) for level in self._levels]
        self._bytes = sum(len(message.body) for message in self)

    # -- consumers

    def add(self, taker: Taker, exclusive: bool) -> None:
        """Takers of a higher priority come first; among equals each has its turn."""
        at = bisect(self.takers, -taker.priority, key=lambda other: -other.priority)
        self.takers.insert(at, taker)
        if exclusive:
            self.exclusive_taker = taker
        self.last_used = self._world.now()

    def remove(self, taker: Taker) -> None:
        if taker in self.takers:
            self.takers.remove(taker)
        if self.exclusive_taker is taker:
            self.exclusive_taker = None
        self.last_used = self._world.now()

    def _next_taker(self) -> Taker | None:
        if self.arguments.get("x-single-active-consumer"):
            return self.takers[0] if self.takers and self.takers[0].has_room() else None
        ready = [taker for taker in self.takers if taker.has_room()]
        if not ready:
            return None
        ready = [taker for taker in ready if taker.priority == ready[0].priority]
        self._turn += 1
        return ready[self._turn % len(ready)]

    def pump(self) -> None:
        """Hand out messages for as long as a consumer has room."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while self:
                taker = self._next_taker()
                if taker is None:
                    return
                message = self._first()
                if message is None:
                    return
                message.deliveries += 1
                taker.take(self, message)
        finally:
            self._pumping = False
