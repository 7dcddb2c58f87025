"""Sockets that somebody else listens on: systemd's socket activation, sd_listen_fds(3).

    http.serve(app, activation.listeners() or ("127.0.0.1", 8080))

Systemd listens on the address of a ``.socket`` unit, starts the program at the first connection, and keeps the socket
while the program is started anew, so that no client is refused meanwhile. Descriptors come from 3 on, as many as the
variable LISTEN_FDS says; LISTEN_PID says for whom they are. ``python -m coro.http serve`` does this without ``--bind``.

Cost: nothing after the start.
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

__all__ = ["listeners"]

#: SD_LISTEN_FDS_START: the first descriptor.
FIRST = 3
#: Nobody passes more: a number beyond is no number of sockets.
MOST = 1024


def listeners(
    environ: MutableMapping[str, str] | None = None, *, first: int = FIRST, keep: bool = False
) -> list[socket.socket]:
    """The listening sockets that were passed to this process, each an address for `coro.http.server`; an empty list if
    there are none.

    ``environ``: where the variables are, by default ``os.environ``; they are removed unless ``keep``, so that programs
    started later do not take the sockets for theirs. ``first``: the first descriptor. ValueError for a LISTEN_FDS or
    LISTEN_PID that is no number, or a descriptor that is no stream socket in the state of listening.
    """
    variables = os.environ if environ is None else environ
    for_whom, count = variables.get("LISTEN_PID"), variables.get("LISTEN_FDS")
    if for_whom is None or count is None:
        return []
    numbers = []
    for name, text in (("LISTEN_PID", for_whom), ("LISTEN_FDS", count)):
        if not (text.isascii() and text.isdigit() and len(text) <= 10):
            raise ValueError(f"expected a number in the variable {name}, as systemd sets it, not {text!r}")
        numbers.append(int(text))
    if numbers[0] != os.getpid():
        return []  # they are for another process, whose variables we have inherited
    if numbers[1] > MOST:
        raise ValueError(f"expected at most {MOST} sockets in the variable LISTEN_FDS, not {numbers[1]}")
    if not keep:
        for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
            variables.pop(name, None)
    found: list[socket.socket] = []
    try:
        for fd in range(first, first + numbers[1]):
            os.set_inheritable(fd, False)
            found.append(socket.socket(fileno=fd))
            if found[-1].type != socket.SOCK_STREAM or not found[-1].getsockopt(
                socket.SOL_SOCKET, socket.SO_ACCEPTCONN
            ):
                raise ValueError(f"the descriptor {fd} is no stream socket that listens: see ListenStream= of the unit")
    except (OSError, ValueError) as e:
        for sock in found:
            sock.detach()
        if isinstance(e, OSError):
            raise ValueError(f"LISTEN_FDS promises {numbers[1]} sockets from descriptor {first} on, but: {e}") from e
        raise
    return found
