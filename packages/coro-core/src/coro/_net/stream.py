"""``coro.Stream``: what a connected stream can do, whatever carries the bytes.

A protocol in the sense of `typing`: classes need not name it. ``coro.sock`` has these calls, and so have the streams of
``coro.testing`` and wrappers such as TLS. Code that is annotated with it runs over all of them, and is tested without
a network. It has what every stream can do; what needs a descriptor or an address family is left to ``coro.sock``.

Imported when it is first asked for: a program that does not use it pays nothing.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

__all__ = ["Stream"]


@runtime_checkable
class Stream(Protocol):
    """A connected stream of bytes, for annotations: ``def handler(conn: coro.Stream, address: object) -> None``.

    ``coro.sock``, ``coro.testing.memory_stream`` and ``coro.testing.faulty_stream`` are streams in this sense, and so
    is every class with these methods. ``isinstance`` works, and looks only whether the names are there. Errors are
    those that ``coro.sock`` documents for the same methods.
    """

    @property
    def closed(self) -> bool:
        """Whether this side has been closed."""

    def recv(self, size: int, /) -> bytes:
        """At least one and at most ``size`` bytes; ``b""`` at the end of the stream."""

    def recv_exact(self, size: int, /) -> bytes:
        """Exactly ``size`` bytes. ``EOFError(partial)`` when the stream ends before; an interrupted call loses
        nothing."""

    def recv_into(self, buffer: bytearray | memoryview, nbytes: int = 0, /) -> int:
        """Receive into a buffer, at most ``nbytes`` bytes (0: what it holds). Returns how many came, 0 at the end."""

    def send(self, data: bytes | bytearray | memoryview, /) -> int:
        """Send all of ``data`` and return its length. An exception that ends the call has ``bytes_sent``."""

    def sendall(self, data: bytes | bytearray | memoryview, /) -> int:
        """Send all of ``data``: the same as ``send``."""

    def shutdown(self, how: int, /) -> None:
        """End receiving (``how`` is ``coro.SHUT.RD``), sending (``SHUT.WR``) or both (``SHUT.RDWR``)."""

    def close(self) -> None:
        """Close this side. Threads that wait in it get ClosedError; closing twice is no error."""

    def getpeername(self) -> Any:
        """The address of the other side."""

    def getsockname(self) -> Any:
        """The address of this side."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...
