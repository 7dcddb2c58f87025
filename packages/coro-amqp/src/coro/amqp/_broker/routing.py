"""Exchanges and bindings of the test broker: which queues does a message go to?

The four kinds of AMQP 0-9-1 (section 3.1.3), bindings from exchange to exchange, alternate exchanges, and the headers
CC and BCC, as RabbitMQ has them. A message goes to each queue once, however many bindings lead there.

Cost: a direct or fanout exchange looks at the bindings that match, a topic or headers exchange at all of its bindings.
That is slower than a trie, and easier to believe.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["TYPES", "Binding", "Exchange", "Routable", "topic_matches"]

TYPES = ("direct", "fanout", "topic", "headers")


def topic_matches(pattern: str, key: str) -> bool:
    """Does a routing key match the pattern of a topic binding? ``*`` is one word, ``#`` any number of words."""
    words = _words(key)
    # The places in `words` that the pattern's beginning can have come to.
    places = {0}
    for part in _words(pattern):
        if part == "#":
            places = set(range(min(places), len(words) + 1))
        else:
            places = {at + 1 for at in places if at < len(words) and part in ("*", words[at])}
        if not places:
            return False
    return len(words) in places


def _words(text: str) -> list[str]:
    return text.split(".") if text else []


class Routable:
    """What a binding may lead to: a queue or an exchange."""

    def __init__(self, name: str) -> None:
        self.name = name


class Binding:
    """From an exchange to a queue or another exchange."""

    __slots__ = ("arguments", "key", "source", "target")

    def __init__(self, source: Exchange, target: Routable, key: str, arguments: dict[str, Any]) -> None:
        self.source = source
        self.target = target
        self.key = key
        self.arguments = arguments

    def same(self, target: Routable, key: str, arguments: dict[str, Any]) -> bool:
        return self.target is target and self.key == key and self.arguments == arguments

    def __repr__(self) -> str:
        return f"<binding {self.source.name!r} -> {self.target.name!r} by {self.key!r}>"


class Exchange(Routable):
    """One exchange with the bindings that start at it."""

    def __init__(
        self,
        name: str,
        kind: str,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(name)
        self.kind = kind
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments or {}
        self.bindings: list[Binding] = []

    def __repr__(self) -> str:
        return f"<exchange {self.name!r}: {self.kind}, {len(self.bindings)} bindings>"

    def bind(self, target: Routable, key: str, arguments: dict[str, Any]) -> None:
        if not any(binding.same(target, key, arguments) for binding in self.bindings):
            self.bindings.append(Binding(self, target, key, arguments))

    def unbind(self, target: Routable, key: str, arguments: dict[str, Any]) -> bool:
        """Whether there was such a binding."""
        for binding in self.bindings:
            if binding.same(target, key, arguments):
                self.bindings.remove(binding)
                return True
        return False

    def forget(self, target: Routable) -> bool:
        """Remove every binding that leads to `target`; whether there was one."""
        before = len(self.bindings)
        self.bindings = [binding for binding in self.bindings if binding.target is not target]
        return len(self.bindings) != before

    def matches(self, key: str, headers: dict[str, Any]) -> Iterator[Routable]:
        """Where a message goes from here."""
        for binding in self.bindings:
            if (
                self.kind == "fanout"
                or (self.kind == "direct" and binding.key == key)
                or (self.kind == "topic" and topic_matches(binding.key, key))
                or (self.kind == "headers" and _headers_match(binding.arguments, headers))
            ):
                yield binding.target


def _headers_match(wanted: dict[str, Any], headers: dict[str, Any]) -> bool:
    """As RabbitMQ: names that begin with ``x-`` do not count, unless x-match is all-with-x or any-with-x; a value None
    in the binding asks only whether the header is there."""
    how = str(wanted.get("x-match", "all"))
    names = [name for name in wanted if name != "x-match" and (how.endswith("-with-x") or not name.startswith("x-"))]
    found = (
        name in headers
        and (wanted[name] is None or (type(wanted[name]) is type(headers[name]) and wanted[name] == headers[name]))
        for name in names
    )
    return any(found) if how.startswith("any") else all(found)


def carbon_copies(headers: dict[str, Any]) -> Iterable[str]:
    """The further routing keys that a message names in its headers."""
    for name in ("CC", "BCC"):
        value = headers.get(name)
        if isinstance(value, list):
            yield from (key for key in value if isinstance(key, str))
