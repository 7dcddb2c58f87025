"""Something that is connected when it is needed, and anew when the connection has gone.

Shared by the client of fast_rpc and that of bare packets, which differ in what a connection is. One thread connects;
the others wait for it. Pauses between attempts grow from FIRST_PAUSE to LAST_PAUSE and vary by chance, so that clients
which lost the same server do not come back in step. With a connection at hand it costs two attribute look-ups.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import coro
from coro.rpc.exceptions import AuthenticationError, ForkedError, GoingAway, ProtocolError, RpcError

#: Seconds: the pause after the first failure to connect, doubled after each further one up to the second.
FIRST_PAUSE = 0.05
LAST_PAUSE = 5.0


class _Closable(Protocol):
    @property
    def closing(self) -> bool: ...
    def close(self, timeout: float = ...) -> bool: ...
    def abort(self) -> None: ...


_C = TypeVar("_C", bound=_Closable)


class Reconnecting(Generic[_C]):
    """The present connection of a client, and its counts.

    connect: makes one, or raises OSError or RpcError. retry: seconds for which a caller goes on trying; 0 tries once.
    on_connect: called with each new connection before anybody uses it.
    """

    def __init__(
        self, connect: Callable[[], _C], retry: float, on_connect: Callable[[_C], object] | None = None
    ) -> None:
        self._connect, self._retry, self._on_connect = connect, retry, on_connect
        self.current: _C | None = None
        self.closed = False
        self.connects = self.failures = 0
        self._lock = coro.mutex()
        self._pid = os.getpid()
        self._pause = 0.0
        self._began: float | None = None

    def get(self) -> _C:
        """The present connection, made now if there is none that takes calls. Raises ForkedError in a forked child,
        GoingAway after the end, and what connecting raised last."""
        if self._pid != os.getpid():
            raise ForkedError("this client belongs to the process that forked this one; make a new one")
        with self._lock:
            if self.closed:
                raise GoingAway("the client is closed")
            current = self.current
            if current is not None and not current.closing:
                return current
            last: Exception | None = None
            while True:
                if self._pause:
                    self._wait(last)
                try:
                    connection = self._connect()
                except (AuthenticationError, ProtocolError):
                    self.failures += 1
                    raise
                except (OSError, RpcError) as e:
                    self.failures += 1
                    last = e
                    self._pause = min(max(FIRST_PAUSE, self._pause * 2), LAST_PAUSE)
                    if not self._may_retry():
                        raise
                    continue
                self._pause = 0.0
                self.connects += 1
                self._began = None
                if self._on_connect is not None:
                    try:
                        self._on_connect(connection)
                    except BaseException:
                        connection.abort()
                        raise
                self.current = connection
                return connection

    def _wait(self, last: Exception | None) -> None:
        """The pause before an attempt."""
        pause = self._pause * random.uniform(0.5, 1.0)
        if self._retry:
            with coro.move_on_after(self._retry) as scope:
                coro.sleep_relative(pause)
            if scope.expired and last is not None:
                raise last
        elif last is None:
            coro.sleep_relative(pause)

    def _may_retry(self) -> bool:
        """Is there time for another attempt?"""
        now = coro.ticks_to_absolute_secs(coro.get_now())
        if self._began is None:
            self._began = now
        if now - self._began >= self._retry:
            self._began = None
            return False
        return True

    def close(self, timeout: float | None) -> None:
        """The end; in order within ``timeout`` seconds, or at once with None."""
        self.closed = True
        if self.current is not None:
            if timeout is None:
                self.current.abort()
            else:
                self.current.close(timeout)
