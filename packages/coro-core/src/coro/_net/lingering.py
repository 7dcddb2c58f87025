"""Closes sockets with SO_LINGER: Linux waits in close(2) for what has not been sent, also where the descriptor does not
block (socket(7)). A worker OS thread does so, and only the calling thread waits for it.

Where nobody can wait (the loop itself, a finaliser, a ``coro.no_switch()`` block) the option is switched off before:
the kernel sends the rest in the background. Without a loop close(2) waits, as it does for every program.

Cost: a system call for a socket on which the option may be set, a worker for one on which it is.
"""

from __future__ import annotations

import os
import socket
import struct

from coro import offload
from coro._runtime import scheduler
from coro.exceptions import NoSwitchError, WrongThreadError, YieldFromMain

__all__ = ["close", "stop"]

_OFF = struct.pack("ii", 0, 0)


def _seconds(fd: int) -> int:
    with socket.socket(fileno=os.dup(fd)) as view:
        on, seconds = struct.unpack("ii", view.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, len(_OFF)))
    return int(seconds) if on else 0


def stop(fd: int) -> None:
    """Have close(2) of this socket wait for nothing."""
    with socket.socket(fileno=os.dup(fd)) as view:
        view.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _OFF)


def close(fd: int) -> None:
    """Close a socket that no table knows any more. Whoever is interrupted meanwhile leaves at once, and the worker goes
    on. OSError of close(2)."""
    if not scheduler.coro_is_running() or not _seconds(fd):
        os.close(fd)
        return
    turn: list[None] = [None]

    def work() -> None:
        if offload._comes_first(turn):
            os.close(fd)

    try:
        offload.in_thread(work)
    except BaseException as e:
        if not offload._comes_first(turn):
            raise  # the worker has it
        stop(fd)
        os.close(fd)
        if not isinstance(e, (YieldFromMain, NoSwitchError, WrongThreadError)):
            raise
