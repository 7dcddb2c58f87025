"""What a client allows: seconds for each phase, connections, sizes, and when to try again.

Four small records with checked values; nothing here does anything. The defaults end every wait: a server that is
silent, that trickles, or that never stops sending ends in a typed error and not in a thread that waits for ever.
"""

from __future__ import annotations

import random as _random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from coro._runtime.arguments import number_of_seconds, whole

__all__ = ["DEFAULT_TIMEOUT", "IDEMPOTENT", "Limits", "Retries", "Timeout", "as_retries", "as_timeout"]

#: RFC 9110 section 9.2.2: doing it twice is the same as doing it once.
IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"})
MIB = 1024 * 1024


@dataclass(frozen=True)
class Timeout:
    """Seconds for each phase of a request; None for no limit.

    pool: wait for a free connection. connect: look up the name and connect (each address has its share, see
    ``coro.connect``). tls: the TLS handshake, and that with a proxy. write: each piece of the request, until the kernel
    has taken it. read: the silence before the next bytes of the response. total: everything together, redirects,
    retries, their pauses and the body included.

    ``read`` alone does not end a response that comes a byte a second; ``total`` does. TypeError and ValueError for
    values that are no number of seconds.
    """

    total: float | None = 300.0
    pool: float | None = 30.0
    connect: float | None = 15.0
    tls: float | None = 15.0
    write: float | None = 30.0
    read: float | None = 60.0

    def __post_init__(self) -> None:
        for name in ("total", "pool", "connect", "tls", "write", "read"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, number_of_seconds(value, name))


DEFAULT_TIMEOUT = Timeout()


def as_timeout(given: Timeout | float | None) -> Timeout:
    """A Timeout from what a user may write: a number is the total, None no limits at all."""
    if isinstance(given, Timeout):
        return given
    if given is None:
        return Timeout(None, None, None, None, None, None)
    return Timeout(total=number_of_seconds(given, "timeout"))


@dataclass(frozen=True)
class Limits:
    """How much a client holds and takes.

    connections: open at once, those without work included. per_origin: in use at once for one scheme, host and port,
    None for no limit of its own. idle: kept open without work. idle_seconds: how long; servers close them after 5 to
    75 s, and what is about to be closed is not worth keeping. body: bytes of a response that ``get`` and its like
    collect; ``stream`` has no such limit. headers, header_count: bytes and number of the response's fields. ratio,
    ratio_floor: how many times its size a compressed body may grow, from so many bytes on.
    """

    connections: int = 100
    per_origin: int | None = None
    idle: int = 100
    idle_seconds: float = 15.0
    body: int = 256 * MIB
    headers: int = 65_536
    header_count: int = 128
    ratio: int = 1000
    ratio_floor: int = 100 * MIB

    def __post_init__(self) -> None:
        for name, least in (
            ("connections", 1),
            ("idle", 0),
            ("body", 0),
            ("headers", 64),
            ("header_count", 1),
            ("ratio", 1),
            ("ratio_floor", 0),
        ):
            whole(getattr(self, name), name, least)
        if self.per_origin is not None:
            whole(self.per_origin, "per_origin", 1)
        object.__setattr__(self, "idle_seconds", number_of_seconds(self.idle_seconds, "idle_seconds"))


@dataclass(frozen=True)
class Retries:
    """When a request is sent again.

    attempts: how often at most, the first time included; 1 for never. methods: which requests; those that may be
    repeated without harm by RFC 9110 section 9.2.2 unless told otherwise, so a POST is sent once. statuses: responses
    after which to try again; their Retry-After is kept. wait_initial, wait_max, wait_exp_base, wait_jitter: the pause
    after attempt number n is ``wait_initial * wait_exp_base ** (n - 1)`` seconds and up to ``wait_jitter`` by chance,
    ``wait_max`` at most; a Retry-After that is longer than ``wait_max`` ends the attempts. random: returns 0 to 1.

    Beside these, a failure to connect is tried again for every method, since nothing was sent. stale: whether a request
    of ``methods`` is sent again at once, and without counting, when it went out on a connection that had been idle and
    turned out to be closed: servers may close those at any time. A body that cannot be read twice is never sent twice.
    """

    attempts: int = 1
    methods: frozenset[str] = IDEMPOTENT
    statuses: frozenset[int] = frozenset({429, 502, 503, 504})
    wait_initial: float = 0.1
    wait_max: float = 30.0
    wait_exp_base: float = 2.0
    wait_jitter: float = 0.5
    stale: bool = True
    random: Callable[[], float] = field(default=_random.random, repr=False, compare=False)

    def __post_init__(self) -> None:
        whole(self.attempts, "attempts", 1)
        methods: Iterable[str] = self.methods
        if isinstance(methods, str):
            raise TypeError(f"expected a set of methods, not a str; write {{{methods!r}}}")
        object.__setattr__(self, "methods", frozenset(m.upper() for m in methods))
        object.__setattr__(self, "statuses", frozenset(self.statuses))
        for name in ("wait_initial", "wait_max", "wait_jitter"):
            object.__setattr__(self, name, number_of_seconds(getattr(self, name), name))
        if not self.wait_exp_base >= 1:
            raise ValueError(f"wait_exp_base is at least 1, not {self.wait_exp_base!r}")

    def pause_after(self, number: int) -> float:
        """Seconds to wait after the attempt with this number; the first is 1."""
        try:
            grown = self.wait_initial * self.wait_exp_base ** (number - 1)
        except OverflowError:
            grown = self.wait_max
        return min(self.wait_max, grown + self.wait_jitter * self.random())


def as_retries(given: Retries | int | None) -> Retries:
    """A Retries from what a user may write: a number of attempts beyond the first, None for none."""
    if isinstance(given, Retries):
        return given
    more: Any = 0 if given is None else whole(given, "retries", 0)
    return Retries(attempts=more + 1)
