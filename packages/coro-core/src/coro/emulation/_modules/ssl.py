"""Emulated TLS sockets: the class `ssl.SSLSocket`, changed in place.

An SSLSocket does its work through an object of OpenSSL's, `_sslobj`, which reads and writes the descriptor itself.
That attribute becomes a property: whoever looks gets a stand-in whose read, write, handshake and shutdown put the
socket into non-blocking mode for the moment of the call, and suspend the coro thread for what OpenSSL wants. How calls
are repeated is in _net/tls.py, which ``coro.tls`` stands on, too.

Cost: two system calls for the mode above those of the original. Rejected: memory buffers as ``coro.tls`` has them. A
program that was written for the original may look at the descriptor between two calls, or hand it to somebody else, and
must find there what OpenSSL has not read.
"""

from __future__ import annotations

from typing import Any

from coro._net.tls import until_done
from coro.emulation import _blocking
from coro.emulation._modules import socket as _socket
from coro.emulation._plan import Plan

__all__ = ["plan"]

try:
    import ssl
except ImportError:  # a Python without OpenSSL
    ssl = None  # type: ignore[assignment]


def _call(sock: Any, method: Any, args: tuple[Any, ...], what: str) -> Any:
    timeout = _socket._gettimeout(sock)
    if timeout == 0.0 or not _blocking.in_thread_of_loop():
        return method(*args)
    deadline = _socket._deadline(timeout)

    def wait(writing: bool) -> None:
        _socket.wait_socket(sock, writing, deadline, what)

    return until_done(
        ssl.SSLWantReadError, ssl.SSLWantWriteError, wait, _socket.at_once, sock, timeout, method, *args
    )


class _Waiting:
    """Stands for the object of OpenSSL's while one method runs."""

    __slots__ = ("_real", "_sock")
    _real: Any
    _sock: Any

    def __init__(self, sock: Any, real: Any) -> None:
        object.__setattr__(self, "_sock", sock)
        object.__setattr__(self, "_real", real)

    def read(self, *args: Any) -> Any:
        return _call(self._sock, self._real.read, args, "The read operation timed out")

    def write(self, *args: Any) -> Any:
        return _call(self._sock, self._real.write, args, "The write operation timed out")

    def do_handshake(self) -> Any:
        return _call(self._sock, self._real.do_handshake, (), "_ssl.c: The handshake operation timed out")

    def shutdown(self) -> Any:
        return _call(self._sock, self._real.shutdown, (), "The read operation timed out")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._real, name, value)


def _get(self: Any) -> Any:
    try:
        real = self.__dict__["_sslobj"]
    except KeyError:
        raise AttributeError(f"{type(self).__name__!r} object has no attribute '_sslobj'") from None
    return None if real is None else _Waiting(self, real)


def _set(self: Any, value: Any) -> None:
    self.__dict__["_sslobj"] = value


def _delete(self: Any) -> None:
    del self.__dict__["_sslobj"]


def plan(p: Plan) -> None:
    """What to replace."""
    if ssl is not None:
        p.replace(ssl.SSLSocket, "_sslobj", property(_get, _set, _delete))
