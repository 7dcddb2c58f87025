"""A virtual host of the test broker: its exchanges and queues, what may be done to them, and the way of a message.

What RabbitMQ refuses is refused here with its reply code and in its words, so that a program's handling of errors can
be tested: `Refusal` ends the channel, or the connection when `hard`. RabbitMQ's own texts are the source; its source
files rabbit_channel.erl, rabbit_amqqueue.erl and rabbit_exchange.erl say when each is sent.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from coro._clock import ticks
from coro.amqp import spec
from coro.amqp._broker.queues import Queue, Stored
from coro.amqp._broker.routing import TYPES, Exchange, Routable, carbon_copies

__all__ = ["Refusal", "World"]

#: Direct reply-to: what a client consumes from, and names as reply-to.
REPLY_TO = "amq.rabbitmq.reply-to"

_NAMES = {
    spec.ACCESS_REFUSED: "ACCESS_REFUSED",
    spec.CHANNEL_ERROR: "CHANNEL_ERROR",
    spec.COMMAND_INVALID: "COMMAND_INVALID",
    spec.CONNECTION_FORCED: "CONNECTION_FORCED",
    spec.FRAME_ERROR: "FRAME_ERROR",
    spec.INTERNAL_ERROR: "INTERNAL_ERROR",
    spec.NOT_ALLOWED: "NOT_ALLOWED",
    spec.NOT_FOUND: "NOT_FOUND",
    spec.NOT_IMPLEMENTED: "NOT_IMPLEMENTED",
    spec.PRECONDITION_FAILED: "PRECONDITION_FAILED",
    spec.RESOURCE_LOCKED: "RESOURCE_LOCKED",
    spec.SYNTAX_ERROR: "SYNTAX_ERROR",
    spec.UNEXPECTED_FRAME: "UNEXPECTED_FRAME",
}

#: Those that end a channel, and not the connection (0-9-1 specification, section 1.2).
_SOFT = (spec.ACCESS_REFUSED, spec.NOT_FOUND, spec.RESOURCE_LOCKED, spec.PRECONDITION_FAILED)

#: The longest time that RabbitMQ takes, in milliseconds.
_LONGEST = (1 << 32) - 1

#: Arguments of a queue that have to be a number, with the least one and the greatest.
_NUMBERS = {
    "x-message-ttl": (0, _LONGEST),
    "x-expires": (1, _LONGEST),
    "x-max-length": (0, 1 << 63),
    "x-max-length-bytes": (0, 1 << 63),
    "x-max-priority": (0, 255),
    "x-delivery-limit": (0, 1 << 63),
}

#: Those that have to be text.
_TEXTS = ("x-dead-letter-exchange", "x-dead-letter-routing-key", "x-overflow", "x-queue-type")


class Refusal(Exception):
    """What the broker does not do. It goes to the client as channel.close or connection.close."""

    def __init__(self, code: int, text: str, hard: bool | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.text = f"{_NAMES.get(code, 'ERROR')} - {text}"
        self.hard = code not in _SOFT if hard is None else hard


def _shown(value: object) -> str:
    """A value as RabbitMQ writes it in its errors."""
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


class World:
    """The state of one virtual host. Everything here happens at once: no call waits."""

    def __init__(self, name: str, changed: Callable[[], object]) -> None:
        self.name = name
        #: Called when there may be a new point of time to look at (expiry).
        self._changed = changed
        self.exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, Queue] = {}
        #: Tokens of direct reply-to, and who gets what is sent to them.
        self.repliers: dict[str, Any] = {}
        self.published = self.unroutable = self.dead_lettered = 0
        self.exchanges[""] = Exchange("", "direct", durable=True)
        for kind, more in (*((kind, kind) for kind in TYPES), ("headers", "match")):
            self.exchanges[f"amq.{more}"] = Exchange(f"amq.{more}", kind, durable=True)

    def now(self) -> float:
        """Seconds of coro's clock."""
        return ticks.ticks_to_fsec(ticks.get_now())

    def _what(self, kind: str, name: str) -> str:
        return f"{kind} '{name}' in vhost '{self.name}'"

    # -- exchanges

    def exchange(self, name: str) -> Exchange:
        found = self.exchanges.get(name)
        if found is None:
            raise Refusal(spec.NOT_FOUND, f"no {self._what('exchange', name)}")
        return found

    def declare_exchange(self, method: Any) -> Exchange:
        name, kind = method.exchange, method.type
        if not name:
            raise Refusal(spec.ACCESS_REFUSED, "operation not permitted on the default exchange")
        if method.passive:
            return self.exchange(name)
        if kind not in TYPES:
            raise Refusal(spec.COMMAND_INVALID, f"unknown exchange type '{kind}'")
        arguments = dict(method.arguments or {})
        if not isinstance(arguments.get("alternate-exchange", ""), str):
            raise Refusal(
                spec.PRECONDITION_FAILED, f"invalid arg 'alternate-exchange' for {self._what('exchange', name)}"
            )
        found = self.exchanges.get(name)
        if found is None:
            if name.startswith("amq."):
                raise Refusal(spec.ACCESS_REFUSED, f"exchange name '{name}' contains reserved prefix 'amq.*'")
            found = self.exchanges[name] = Exchange(
                name,
                kind,
                durable=method.durable,
                auto_delete=method.auto_delete,
                internal=method.internal,
                arguments=arguments,
            )
            return found
        wanted = {
            "type": (kind, found.kind),
            "durable": (method.durable, found.durable),
            "auto_delete": (method.auto_delete, found.auto_delete),
            "internal": (method.internal, found.internal),
            "alternate-exchange": (arguments.get("alternate-exchange"), found.arguments.get("alternate-exchange")),
        }
        self._compare(wanted, self._what("exchange", name))
        return found

    def _compare(self, values: dict[str, tuple[Any, Any]], what: str) -> None:
        for name, (received, current) in values.items():
            if received != current:
                raise Refusal(
                    spec.PRECONDITION_FAILED,
                    f"inequivalent arg '{name}' for {what}: received '{_shown(received)}' but current is "
                    f"'{_shown(current)}'",
                )

    def delete_exchange(self, name: str, if_unused: bool) -> None:
        if not name:
            raise Refusal(spec.ACCESS_REFUSED, "operation not permitted on the default exchange")
        if name.startswith("amq."):
            raise Refusal(spec.ACCESS_REFUSED, f"exchange name '{name}' contains reserved prefix 'amq.*'")
        found = self.exchanges.get(name)
        if found is None:
            return
        if if_unused and found.bindings:
            raise Refusal(spec.PRECONDITION_FAILED, f"{self._what('exchange', name)} in use")
        del self.exchanges[name]
        found.bindings.clear()
        self._forget(found)

    def _forget(self, target: Routable) -> None:
        """`target` is gone: so are the bindings to it, and exchanges that lived only as long as they had some."""
        for exchange in list(self.exchanges.values()):
            if exchange.forget(target):
                self._end_if_unbound(exchange)

    def _end_if_unbound(self, exchange: Exchange) -> None:
        if exchange.auto_delete and not exchange.bindings and self.exchanges.get(exchange.name) is exchange:
            del self.exchanges[exchange.name]
            self._forget(exchange)

    def bind(self, source: str, target: Routable, key: str, arguments: dict[str, Any] | None) -> None:
        if not source or not target.name:
            raise Refusal(spec.ACCESS_REFUSED, "operation not permitted on the default exchange")
        exchange = self.exchange(source)
        if exchange.kind == "headers":
            how = (arguments or {}).get("x-match", "all")
            if how not in ("all", "any", "all-with-x", "any-with-x"):
                raise Refusal(
                    spec.PRECONDITION_FAILED,
                    f"Invalid x-match field value {how!r}; expected all, any, all-with-x, or any-with-x",
                )
        exchange.bind(target, key, dict(arguments or {}))

    def unbind(self, source: str, target: Routable, key: str, arguments: dict[str, Any] | None) -> None:
        if not source or not target.name:
            raise Refusal(spec.ACCESS_REFUSED, "operation not permitted on the default exchange")
        exchange = self.exchange(source)
        if exchange.unbind(target, key, dict(arguments or {})):
            self._end_if_unbound(exchange)

    # -- queues

    def queue(self, name: str, session: object) -> Queue:
        """A queue that `session` may use."""
        found = self.queues.get(name)
        if found is None:
            raise Refusal(spec.NOT_FOUND, f"no {self._what('queue', name)}")
        self._check_owner(found, session)
        return found

    def _check_owner(self, queue: Queue, session: object) -> None:
        if queue.owner is not None and queue.owner is not session:
            raise Refusal(
                spec.RESOURCE_LOCKED,
                f"cannot obtain exclusive access to locked {self._what('queue', queue.name)}. It could be originally "
                "declared on another connection or the exclusive property value does not match that of the original "
                "declaration.",
            )

    def declare_queue(self, method: Any, session: object) -> Queue:
        name = method.queue
        if method.passive:
            return self.queue(name, session)
        arguments = dict(method.arguments or {})
        self._check_arguments(name, method, arguments)
        found = self.queues.get(name)
        if found is not None:
            self._check_owner(found, session)
            if method.exclusive != (found.owner is not None):
                raise Refusal(
                    spec.RESOURCE_LOCKED,
                    f"cannot obtain exclusive access to locked {self._what('queue', name)}. It could be originally "
                    "declared on another connection or the exclusive property value does not match that of the "
                    "original declaration.",
                )
            wanted = {
                "durable": (method.durable, found.durable),
                "auto_delete": (method.auto_delete, found.auto_delete),
            }
            names = [*arguments, *(each for each in found.arguments if each not in arguments)]
            wanted |= {
                each: (arguments.get(each), found.arguments.get(each)) for each in names if each.startswith("x-")
            }
            self._compare(wanted, self._what("queue", name))
            return found
        if name.startswith("amq."):
            raise Refusal(spec.ACCESS_REFUSED, f"queue name '{name}' contains reserved prefix 'amq.*'")
        if not name:
            name = "amq.gen-" + secrets.token_urlsafe(16)
        queue = Queue(
            name,
            self,
            durable=method.durable,
            auto_delete=method.auto_delete,
            owner=session if method.exclusive else None,
            arguments=arguments,
        )
        self.queues[name] = queue
        self.exchanges[""].bind(queue, name, {})
        self._changed()
        return queue

    def _check_arguments(self, name: str, method: Any, arguments: dict[str, Any]) -> None:
        what = self._what("queue", name)
        for each, (least, most) in _NUMBERS.items():
            value = arguments.get(each)
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most
            ):
                raise Refusal(spec.PRECONDITION_FAILED, f"invalid arg '{each}' for {what}: {value!r}")
        for each in _TEXTS:
            value = arguments.get(each, "")
            if not isinstance(value, str):
                raise Refusal(spec.PRECONDITION_FAILED, f"invalid arg '{each}' for {what}: {value!r}")
        kind = arguments.get("x-queue-type", "classic")
        if kind == "stream":
            raise Refusal(spec.NOT_IMPLEMENTED, "streams: the test broker has none, use RabbitMQ")
        if kind not in ("classic", "quorum"):
            raise Refusal(
                spec.PRECONDITION_FAILED, f"invalid arg 'x-queue-type' for {what}: unsupported queue type '{kind}'"
            )
        if kind == "quorum":
            for wrong, text in (
                (not method.durable, "non-durable"),
                (method.exclusive, "exclusive"),
                (method.auto_delete, "auto-delete"),
            ):
                if wrong:
                    raise Refusal(spec.PRECONDITION_FAILED, f"invalid property '{text}' for {what}")
        if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
            raise Refusal(
                spec.PRECONDITION_FAILED,
                f"invalid arg 'x-dead-letter-routing-key' for {what}: routing_key_but_no_dlx_defined",
            )

    def delete_queue(self, name: str, session: object, if_unused: bool = False, if_empty: bool = False) -> int:
        found = self.queues.get(name)
        if found is None:
            return 0
        self._check_owner(found, session)
        if if_unused and found.takers:
            raise Refusal(spec.PRECONDITION_FAILED, f"{self._what('queue', name)} in use")
        if if_empty and found:
            raise Refusal(spec.PRECONDITION_FAILED, f"{self._what('queue', name)} not empty")
        return self.drop_queue(found)

    def drop_queue(self, queue: Queue) -> int:
        """The end of a queue: who consumed from it is told. The number of messages that were ready."""
        if self.queues.get(queue.name) is not queue:
            return 0
        del self.queues[queue.name]
        queue.deleted = True
        count = queue.purge()
        self._forget(queue)
        takers, queue.takers = queue.takers, []
        for taker in takers:
            taker.cancelled_by_broker()
        return count

    def consumer_left(self, queue: Queue) -> None:
        if queue.auto_delete and not queue.takers:
            self.drop_queue(queue)
        else:
            queue.pump()

    # -- messages

    def route(self, exchange: Exchange, message: Stored) -> list[Queue]:
        """The queues that a message goes to, each once."""
        headers = message.properties.get("headers") or {}
        found: dict[Queue, None] = {}
        for key in (message.routing_key, *carbon_copies(headers)):
            self._follow(exchange, key, headers, found, set())
        return list(found)

    def _follow(
        self, exchange: Exchange, key: str, headers: dict[str, Any], found: dict[Queue, None], seen: set[str]
    ) -> None:
        if exchange.name in seen:
            return
        seen.add(exchange.name)
        reached = False
        for target in exchange.matches(key, headers):
            reached = True
            if isinstance(target, Queue):
                found[target] = None
            elif isinstance(target, Exchange):
                self._follow(target, key, headers, found, seen)
        alternate = self.exchanges.get(exchange.arguments.get("alternate-exchange") or "")
        if not reached and alternate is not None and alternate.name:
            self._follow(alternate, key, headers, found, seen)

    def publish(self, exchange: Exchange, message: Stored) -> tuple[bool, bool]:
        """Put a message where it belongs. Did it reach a queue; has every queue accepted it?"""
        self.published += 1
        properties = message.properties
        token = self.repliers.get(message.routing_key) if not exchange.name else None
        if token is not None:
            token.take_reply(message)
            return True, True
        queues = self.route(exchange, message)
        if not queues:
            self.unroutable += 1
            return False, True
        headers = properties.get("headers") or {}
        if "BCC" in headers:
            # Nobody is to see it.
            kept = {name: value for name, value in headers.items() if name != "BCC"}
            message.properties = properties = {**properties, "headers": kept}
            message.encoded = None
        ttl = milliseconds(properties.get("expiration"))
        accepted = True
        for number, queue in enumerate(queues):
            if not queue.accepts():
                accepted = False
                if queue.arguments.get("x-overflow") == "reject-publish-dlx":
                    self.dead(queue, message.copy(), "maxlen")
                continue
            each = message if number == 0 else message.copy()
            each.priority = properties.get("priority") or 0
            queue.put(each, ttl)
            if each.expires is not None:
                self._changed()
        return True, accepted

    def dead(self, queue: Queue, message: Stored, reason: str) -> None:
        """A queue gives a message up: it goes to the queue's dead-letter exchange, with a note of what happened."""
        name = queue.arguments.get("x-dead-letter-exchange")
        exchange = self.exchanges.get(name) if name is not None else None
        if exchange is None:
            return
        properties = dict(message.properties)
        headers = dict(properties.get("headers") or {})
        deaths = _deaths(headers.get("x-death"))
        if reason != "rejected" and _is_circle(queue.name, deaths):
            return
        self.dead_lettered += 1
        same = next((d for d in deaths if d["queue"] == queue.name and d["reason"] == reason), None)
        if same is None:
            same = {
                "count": 0,
                "reason": reason,
                "queue": queue.name,
                "time": datetime.fromtimestamp(int(time.time()), UTC),
                "exchange": message.exchange,
                "routing-keys": [message.routing_key],
            }
            if reason == "expired" and "expiration" in properties:
                same["original-expiration"] = properties["expiration"]
        else:
            deaths.remove(same)
        same["count"] += 1
        headers["x-death"] = [same, *deaths]
        headers.setdefault("x-first-death-reason", reason)
        headers.setdefault("x-first-death-queue", queue.name)
        headers.setdefault("x-first-death-exchange", message.exchange)
        properties["headers"] = headers
        properties.pop("expiration", None)
        key = queue.arguments.get("x-dead-letter-routing-key", message.routing_key)
        self.publish(exchange, Stored(exchange.name, key, properties, message.body))

    # -- time

    def expire(self) -> float | None:
        """Do what is due; returns when to look again, or None."""
        soonest: list[float] = []
        for queue in list(self.queues.values()):
            due = queue.expire()
            if due is not None:
                soonest.append(due)
            limit = queue.arguments.get("x-expires")
            if limit is not None and not queue.takers:
                end = queue.last_used + limit / 1000
                if end <= self.now():
                    self.drop_queue(queue)
                else:
                    soonest.append(end)
        return min(soonest, default=None)

    def crash(self) -> None:
        """The broker has stopped: only what is durable is left of it."""
        self.repliers.clear()
        for queue in list(self.queues.values()):
            queue.takers.clear()
            queue.exclusive_taker = None
            if not queue.durable or queue.owner is not None:
                self.drop_queue(queue)
            elif not queue.is_quorum:
                queue.keep(lambda message: message.properties.get("delivery-mode") == 2)
        for exchange in list(self.exchanges.values()):
            if not exchange.durable:
                del self.exchanges[exchange.name]
                self._forget(exchange)


def _deaths(header: object) -> list[dict[str, Any]]:
    """What a header x-death tells. A client can write what it likes there; what no broker wrote counts for nothing."""
    if not isinstance(header, list):
        return []
    return [
        dict(each)
        for each in header
        if isinstance(each, dict)
        and isinstance(each.get("queue"), str)
        and isinstance(each.get("reason"), str)
        and isinstance(each.get("count"), int)
    ]


def _is_circle(queue: str, deaths: list[dict[str, Any]]) -> bool:
    """Has a message come round to this queue without anybody having rejected it on the way? It would for ever."""
    for death in deaths:
        if death["reason"] == "rejected":
            return False
        if death["queue"] == queue:
            return True
    return False


def milliseconds(text: str | None) -> float | None:
    """The seconds of an ``expiration``. A Refusal unless it is a number of milliseconds, as text."""
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) > _LONGEST:
        raise Refusal(spec.PRECONDITION_FAILED, f"invalid expiration '{text}': expected an integer number of ms")
    return int(text) / 1000
