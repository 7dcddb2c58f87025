"""Connections that are kept for the next request: ``Pool``.

A place is a unit of one semaphore, taken before anything is made and given back in one function, so an interruption at
whatever point leaves no place taken: while it waits for a place (the semaphore passes the unit on), while the name is
looked up, connected, or the handshake is under way (``take`` gives it back), or while the response is read (whoever
holds the link does). Idle connections hold no place. They are closed when a new one would exceed the limit, when they
get too old, and when there are too many.

Of idle connections the one used last is taken first: the others then reach their age, and the pool shrinks to what is
needed. Each is looked at before it is used again, because a server may have closed it, or sent what nobody asked for.

Cost: a dictionary of lists; one look (poll(2)) for each use. There is no thread that sweeps: every ``idle_seconds`` a
request does, and ``close`` closes them all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from coro._clock import ticks
from coro._runtime import scheduler
from coro._sync.locks import semaphore
from coro.exceptions import TimeoutError
from coro.http._client.fast import PoolState
from coro.http._client.limits import Limits
from coro.http._client.links import Link
from coro.http.exceptions import LocalError, PoolTimeout

__all__ = ["Pool", "PoolStatistics"]


class PoolStatistics(NamedTuple):
    """State of a client's connections; debugging information."""

    #: Connections that a request or a response holds, those being made included.
    used: int
    #: Open ones without work.
    idle: int
    #: Threads that wait for a place.
    waiting: int
    #: How many may be open at once.
    size: int
    #: Connections made so far.
    made: int
    #: Requests that went out on one that had been used before.
    reused: int


class Pool(PoolState):
    """At most ``limits.connections`` at once, filed by what they lead to."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._origins: dict[Hashable, semaphore] = {}
        self._per_origin = limits.per_origin is not None
        self._places = semaphore(limits.connections)
        self._idle = {}  # key -> links, the one used last at the end
        self._most_idle = limits.idle
        self._next_look = 0
        self._idle_ticks = int(min(limits.idle_seconds, 1e9) * ticks.ticks_per_sec)

    def __repr__(self) -> str:
        return f"<pool: {self._used} used, {self._idle_count} idle of {self.limits.connections}>"

    def statistics(self) -> PoolStatistics:
        """Figures for debugging."""
        waiting = len(self._places.waiting) + sum(len(s.waiting) for s in self._origins.values())
        return PoolStatistics(self._used, self._idle_count, waiting, self.limits.connections, self._made, self._reused)

    def take(self, key: Hashable, connect: Callable[[], tuple[Any, Any]], seconds: float | None) -> Link:
        """A link to what ``key`` stands for, which now is the caller's: an idle one, or what ``connect()`` makes, a
        stream and the sock below it.

        seconds: to wait for a place; PoolTimeout. LocalError when the pool is closed. Raises what ``connect`` raises.
        """
        if self._closed:
            raise LocalError("the client is closed; make another one")
        self._enter(key, seconds)
        self._used += 1
        try:
            if ticks.get_now() >= self._next_look:
                self.expire()
            link = self._take_idle(key)
            if link is None:
                if self._used + self._idle_count > self.limits.connections:
                    self._close_oldest()
                stream, raw = connect()
                self._made += 1
                link = Link(stream, raw, key, self.limits)
            else:
                self._reused += 1
        except BaseException:
            self._leave(key)
            raise
        return link

    def give_back(self, link: Link, whole: bool) -> None:
        """The caller does not need the link any more. whole: whether another request may follow. Never waits."""
        try:
            if (
                whole
                and not self._closed
                and self.limits.idle
                and link.codec.keep_alive
                and not link.codec.trailing_data
                and not link.stream.closed
            ):
                if self._idle_count >= self.limits.idle:
                    self._close_oldest()
                link.idle_since = ticks.get_now()
                self._idle.setdefault(link.key, []).append(link)
                self._idle_count += 1
            elif whole:
                link.close()
            else:
                link.abort()
        finally:
            self._leave(link.key)

    def _enter(self, key: Hashable, seconds: float | None) -> None:
        most = self.limits.per_origin
        limit = scheduler.timeout(1e9 if seconds is None else seconds)
        try:
            with limit:
                if most is not None:
                    self._origins.setdefault(key, semaphore(most)).acquire()
                try:
                    self._places.acquire()
                except BaseException:
                    if most is not None:
                        self._leave_origin(key)
                    raise
        except TimeoutError:
            if not limit.expired:
                raise
            raise PoolTimeout(
                f"no connection became free within {seconds:g} seconds: {self._used} of "
                f"{self.limits.connections} are in use; close responses that are not read, or allow more"
            ) from None

    def _leave(self, key: Hashable) -> None:
        self._used -= 1
        self._places.release()
        if self.limits.per_origin is not None:
            self._leave_origin(key)

    def _leave_origin(self, key: Hashable) -> None:
        places = self._origins[key]
        places.release()
        if places.avail == self.limits.per_origin and not places.waiting:
            del self._origins[key]

    def _take_idle(self, key: Hashable) -> Link | None:
        links = self._idle.get(key)
        if not links:
            return None
        oldest = ticks.get_now() - self._idle_ticks
        while links:
            link = links.pop()
            self._idle_count -= 1
            if link.idle_since >= oldest and link.is_quiet():
                return link
            link.abort()
        return None

    def _close_oldest(self) -> None:
        oldest: Link | None = None
        for links in self._idle.values():
            if links and (oldest is None or links[0].idle_since < oldest.idle_since):
                oldest = links[0]
        if oldest is not None:
            del self._idle[oldest.key][0]
            self._idle_count -= 1
            oldest.close()

    def expire(self) -> None:
        """Close the idle connections that are too old."""
        now = ticks.get_now()
        self._next_look = now + self._idle_ticks
        oldest = now - self._idle_ticks
        for key, links in list(self._idle.items()):
            kept = [link for link in links if link.idle_since >= oldest]
            self._idle_count -= len(links) - len(kept)
            old = links[: len(links) - len(kept)]
            if kept:
                links[:] = kept
            else:
                del self._idle[key]
            for link in old:
                link.close()

    def close(self) -> None:
        """Close all idle connections; those in use are closed when they are given back."""
        self._closed = True
        idle, self._idle, self._idle_count = self._idle, {}, 0
        for links in idle.values():
            for link in links:
                link.close()
