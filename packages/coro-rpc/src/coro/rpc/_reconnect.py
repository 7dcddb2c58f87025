"""Something that is connected when it is needed, and anew when the connection has gone.

Shared by the client of fast_rpc and that of bare packets, which differ in what a connection is. A thread of its own
connects; those who need the connection wait for it, each no longer than its own limit, and all of them get what comes
of this attempt: the connection, or the error. So a caller never waits for the attempts that others make after its own.
Pauses between attempts grow from FIRST_PAUSE to LAST_PAUSE and vary by chance, so that clients which lost the same
server do not come back in step. With a connection at hand it costs two attribute look-ups.

``Limit`` is the time of one call from its entry to its return: connecting, repetitions, and pauses between them.
"""

from __future__ import annotations

import copy
import math
import os
import random
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import coro
from coro.rpc._calls import _leave_call, current_call
from coro.rpc.exceptions import (
    AuthenticationError,
    CallTimeout,
    ConnectionLost,
    ForkedError,
    GoingAway,
    ProtocolError,
    RpcError,
)

#: Seconds: the pause after the first failure to connect, doubled after each further one up to the second.
FIRST_PAUSE = 0.05
LAST_PAUSE = 5.0


class _Closable(Protocol):
    @property
    def closing(self) -> bool: ...
    def close(self, timeout: float = ...) -> bool: ...
    def abort(self) -> None: ...


_C = TypeVar("_C", bound=_Closable)


def now() -> float:
    """Seconds on the loop's clock."""
    return float(coro.get_now() / coro.ticks_per_sec)


class Limit:
    """The time that a call may take.

    seconds: from now on; None or ``math.inf`` for no limit. A call that is made while another one is executed here
    takes no longer than that one has left. what: the call, for the error.
    """

    __slots__ = ("_end", "_what", "seconds")

    def __init__(self, seconds: float | None, what: str) -> None:
        self.seconds: float | None = None if seconds is None or seconds == math.inf else seconds
        self._what = what
        self._end = math.inf if self.seconds is None else now() + self.seconds
        above = current_call()
        if above is not None:
            self._end = min(self._end, now() + above.remaining)

    @property
    def left(self) -> float:
        """Seconds that are left, ``math.inf`` without a limit."""
        return self._end if self._end == math.inf else max(0.0, self._end - now())

    @property
    def over(self) -> bool:
        """Is nothing left?"""
        return self._end != math.inf and self._end <= now()

    def error(self) -> CallTimeout:
        """What to raise when it is over."""
        limit = "the limit of the call that it belongs to" if self.seconds is None else f"{self.seconds:g} seconds"
        return CallTimeout(
            f"expected an end of {self._what} within {limit}, connecting and repetitions included", self.seconds
        )


class _Attempt(Generic[_C]):
    """A connection that is being made, and who makes it."""

    def __init__(self) -> None:
        self.done = coro.event()
        self.connection: _C | None = None
        self.error: BaseException | None = None
        self.thread: Any = None


class Reconnecting(Generic[_C]):
    """The present connection of a client, and its counts.

    connect: makes one, or raises OSError or RpcError. retry: seconds for which one attempt goes on trying; 0 tries
    once. on_connect: called with each new connection before anybody uses it, in the thread that connects.
    """

    def __init__(
        self, connect: Callable[[], _C], retry: float, on_connect: Callable[[_C], object] | None = None
    ) -> None:
        self._connect, self._retry, self._on_connect = connect, retry, on_connect
        self.current: _C | None = None
        self.closed = False
        self.connects = self.failures = 0
        #: Threads that wait for a connection.
        self.waiting = 0
        self._attempt: _Attempt[_C] | None = None
        self._pid = os.getpid()
        self._pause = 0.0

    def get(self, limit: Limit | None = None) -> _C:
        """The present connection, made now if there is none that takes calls.

        limit: how long the caller may wait; None: as long as the attempt takes. Raises CallTimeout when it is over,
        ForkedError in a forked child, GoingAway after the end, and what connecting raised."""
        if self._pid != os.getpid():
            raise ForkedError("this client belongs to the process that forked this one; make a new one")
        if self.closed:
            raise GoingAway("the client is closed")
        current = self.current
        if current is not None and not current.closing:
            return current
        attempt = self._attempt
        if attempt is None:
            attempt = self._attempt = _Attempt()
            attempt.thread = coro.spawn(self._make, attempt, thread_name="connecting of a client", daemon=True)
        self.waiting += 1
        try:
            if limit is None or limit.left == math.inf:
                attempt.done.wait()
            else:
                with coro.move_on_after(limit.left) as scope:
                    attempt.done.wait()
                if scope.expired:
                    raise limit.error()
        finally:
            self.waiting -= 1
        if attempt.error is not None:
            raise _own(attempt.error)
        assert attempt.connection is not None
        return attempt.connection

    def _make(self, attempt: _Attempt[_C]) -> None:
        """In a thread of its own: connect, for all who wait."""
        _leave_call()
        try:
            attempt.connection = self._try()
        except Exception as e:
            attempt.error = e
        except BaseException:
            attempt.error = (
                GoingAway("the client is closed")
                if self.closed
                else ConnectionLost("the thread that connects was stopped")
            )
            raise
        finally:
            self._attempt = None
            attempt.done.set()

    def _try(self) -> _C:
        began = now()
        while True:
            if self._pause:
                coro.sleep_relative(self._pause * random.uniform(0.5, 1.0))
            try:
                connection = self._connect()
            except (AuthenticationError, ProtocolError):
                self.failures += 1
                raise
            except (OSError, RpcError):
                self.failures += 1
                self._pause = min(max(FIRST_PAUSE, self._pause * 2), LAST_PAUSE)
                if now() - began + self._pause / 2 >= self._retry:
                    raise
                continue
            self._pause = 0.0
            self.connects += 1
            try:
                if self._on_connect is not None:
                    self._on_connect(connection)
                if self.closed:
                    raise GoingAway("the client is closed")
            except BaseException:
                connection.abort()
                raise
            self.current = connection
            return connection

    def close(self, timeout: float | None) -> None:
        """The end; in order within ``timeout`` seconds, or at once with None."""
        self.closed = True
        attempt = self._attempt
        if attempt is not None and attempt.thread is not coro.current():
            attempt.thread.shutdown()
        if self.current is not None:
            if timeout is None:
                self.current.abort()
            else:
                self.current.close(timeout)


def _own(error: BaseException) -> BaseException:
    """The same error for one of several threads that raise it: each adds a traceback of its own."""
    try:
        copied = copy.copy(error)
    except Exception:
        return error
    copied.__cause__ = error.__cause__
    return copied.with_traceback(error.__traceback__)
