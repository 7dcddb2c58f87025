"""What was declared through a client, in a form that can be declared again on another connection.

Recorded are exchanges, queues and bindings that a call has made; what somebody else made is his to restore. A queue
that the broker named gets another name next time; bindings and consumers follow, and `renamed` tells the new name.
"""

from __future__ import annotations

from typing import Any

from coro.amqp import spec
from coro.amqp._method import Method

__all__ = ["Topology"]


class Topology:
    """See above."""

    def __init__(self) -> None:
        self.exchanges: dict[str, spec.exchange.declare] = {}
        self.queues: dict[str, tuple[spec.queue.declare, bool]] = {}  # and whether the broker chose the name
        self.bindings: dict[tuple[Any, ...], Method] = {}
        self._last_queue = ""
        self._names: dict[str, str] = {}  # name that the broker chose -> the one it chose last

    def exchange_declared(self, method: spec.exchange.declare) -> None:
        """It is there now."""
        if method.exchange and not method.exchange.startswith("amq."):
            self.exchanges[method.exchange] = method

    def exchange_deleted(self, name: str) -> None:
        """It is gone, and with it what was bound to it."""
        self.exchanges.pop(name, None)
        self.bindings = {key: each for key, each in self.bindings.items() if name not in _exchanges_of(each)}

    def queue_declared(self, method: spec.queue.declare, name: str) -> None:
        """It is there now, under this name."""
        self.queues[name] = method, not method.queue
        self._last_queue = name

    def queue_deleted(self, name: str) -> None:
        """It is gone, and with it its bindings."""
        name = name or self._last_queue
        self.queues.pop(name, None)
        for key, each in list(self.bindings.items()):
            if isinstance(each, spec.queue.bind) and each.queue == name:
                del self.bindings[key]

    def consumer_ended(self, queue: str, others: bool) -> None:
        """A consumer has gone; a queue that deletes itself goes with the last one."""
        found = self.queues.get(queue)
        if found is not None and found[0].auto_delete and not others:
            self.queue_deleted(queue)

    def bound(self, method: spec.queue.bind | spec.exchange.bind) -> None:
        """This binding is there now."""
        if isinstance(method, spec.queue.bind) and not method.queue:
            method.queue = self._last_queue
        self.bindings[_key(method)] = method

    def queue_unbound(self, method: spec.queue.unbind) -> None:
        """This binding is gone."""
        queue = method.queue or self._last_queue
        bound = spec.queue.bind(0, queue, method.exchange, method.routing_key, False, method.arguments)
        self.bindings.pop(_key(bound), None)

    def exchange_unbound(self, method: spec.exchange.unbind) -> None:
        """This binding is gone."""
        bound = spec.exchange.bind(0, method.destination, method.source, method.routing_key, False, method.arguments)
        self.bindings.pop(_key(bound), None)

    def renamed(self, queue: str) -> str:
        """The name of a queue now, by one that it had."""
        seen = set()
        while queue in self._names and queue not in seen:
            seen.add(queue)
            queue = self._names[queue]
        return queue

    def rename(self, old: str, new: str) -> None:
        """The broker has chosen another name for a queue."""
        if old == new:
            return
        self._names[old] = new
        self.queues[new] = self.queues.pop(old)
        bindings, self.bindings = self.bindings, {}
        for each in bindings.values():
            if isinstance(each, spec.queue.bind) and each.queue == old:
                each.queue = new
            self.bindings[_key(each)] = each


def _key(method: Method) -> tuple[Any, ...]:
    return (type(method), *(repr(value) for name, value in method.fields().items() if name != "nowait"))


def _exchanges_of(method: Method) -> tuple[str, ...]:
    if isinstance(method, spec.queue.bind):
        return (method.exchange,)
    assert isinstance(method, spec.exchange.bind)
    return method.destination, method.source
