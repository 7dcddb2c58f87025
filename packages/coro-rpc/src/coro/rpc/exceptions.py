"""Every exception of coro.rpc, with a sentence on when it is raised.

Two families answer the question whose fault it is: LocalError is the caller's mistake, RemoteError what the other side
did or said. ConnectionLost and CallTimeout are nobody's: the call may have happened or not. All are ordinary
Exceptions. Interruptions of the calling thread (coro.timeout, shutdown) stay what they are.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AuthenticationError",
    "BadArguments",
    "Busy",
    "CallCancelled",
    "CallTimeout",
    "ConnectionLost",
    "DecodeError",
    "EncodeError",
    "ForkedError",
    "GoingAway",
    "LocalError",
    "NoSuchMethod",
    "NotPermitted",
    "PacketTooBig",
    "PeerUnresponsive",
    "ProtocolError",
    "RemoteError",
    "RpcError",
    "UploadError",
]


class RpcError(Exception):
    """The base of all exceptions of coro.rpc."""


class LocalError(RpcError):
    """This side was used wrongly; the connection is as it was."""


class EncodeError(LocalError):
    """An argument, an item or a result cannot be encoded by the codec of the connection. Nothing was sent."""


class PacketTooBig(LocalError):
    """A packet is larger than this side, or the other one, allows. Nothing was sent. ``size`` and ``limit`` are
    bytes."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(size, limit)
        self.size, self.limit = size, limit

    def __str__(self) -> str:
        return (
            f"expected a packet of at most {self.limit} bytes, got {self.size}; send it as a stream, or raise "
            f"max_packet on both sides"
        )


class ForkedError(LocalError):
    """The connection belongs to the parent of this forked process, which goes on using it. Connect anew."""


class ConnectionLost(RpcError):
    """The connection broke or was closed before the answer came, so the call may have been executed or not.
    ``__cause__`` is the reason where there is one."""


class PeerUnresponsive(ConnectionLost):
    """The connection was given up because nothing came from the other side for too long: it has died, the network is
    cut, or a function there blocks its loop."""


class GoingAway(ConnectionLost):
    """The other side is shutting down and takes no new calls; or this side's connection is being closed. The call was
    not executed, so it can be repeated elsewhere."""


class CallTimeout(RpcError):
    """The time limit of a call is over, which covers connecting and repetitions. The other side is told to stop.
    ``seconds`` is the limit, None where it was
    that of the call being served (its deadline is passed on)."""

    def __init__(self, message: str = "", seconds: float | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds


class CallCancelled(RpcError):
    """``cancel()`` was called for this call, or the other side stopped it."""


class RemoteError(RpcError):
    """The call failed on the other side: its function raised an exception that is not registered here.

    ``type`` is the qualified name of its class, ``message`` its text, ``details`` its ``args`` as far as they are plain
    values, and ``remote_traceback`` the traceback as text where the server sends it, else None."""

    def __init__(
        self, message: str = "", type: str = "", details: tuple[Any, ...] = (), remote_traceback: str | None = None
    ) -> None:
        super().__init__(message)
        self.message, self.type, self.details, self.remote_traceback = message, type, details, remote_traceback

    def __str__(self) -> str:
        text = f"{self.type}: {self.message}" if self.type else self.message
        return f"{text}\n\nRemote traceback:\n{self.remote_traceback}" if self.remote_traceback else text


class NoSuchMethod(RemoteError):
    """The other side exports no method of this name (to us)."""


class BadArguments(RemoteError):
    """The method does not take these arguments, or is called in the wrong form (a stream as a plain call)."""


class Busy(RemoteError):
    """The other side executes as many calls as it may, or calls back and forth are nested deeper than that. The call
    was not executed and can be repeated later."""


class NotPermitted(RemoteError):
    """The method exists, but this identity may not call it."""


class AuthenticationError(RemoteError):
    """One side could not prove who it is: wrong or missing secret, certificate or user."""


class ProtocolError(RemoteError):
    """The other side broke the protocol; the connection is closed. The text says what was expected and what came."""


class DecodeError(RemoteError):
    """A message cannot be decoded: damaged, above a limit, or with a class that is not registered. Only the call that
    it belongs to fails."""


class UploadError(RemoteError):
    """The iterator that the caller sends failed on its side; raised in the method that reads it."""
