"""The other end of ``_attach``: what a thread of the program's loop runs when a client has found its way in."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Callable
from typing import Any

import coro
from coro.backdoor._session import backdoor

__all__ = ["prompt", "session"]


def session(fd: int, begin: Callable[[Any], object]) -> None:
    """Body of a thread: ``begin(sock)`` for the connected UNIX socket ``fd``, which it owns. What goes wrong is told to
    the client, and not to the program."""
    sock = coro.sock(socket.AF_UNIX, socket.SOCK_STREAM, 0, fd)
    try:
        begin(sock)
    except (OSError, coro.ClosedError):
        sock.close()  # the client has gone
    except Exception:
        text = traceback.format_exc()
        try:
            sock.sendall(text.encode("utf-8", "backslashreplace"))
        except (OSError, coro.ClosedError):
            pass
        sock.close()


def prompt(sock: Any) -> None:
    """A session of the back door."""
    backdoor(sock).read_eval_print_loop()
