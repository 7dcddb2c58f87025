"""The program's own terminal: single keys, and a Python prompt.

    with coro.frontdoor.stdin() as terminal:
        key = terminal.read(1)

    coro.frontdoor.interact()

The mode of the terminal is restored when the block is left, and at the latest when the process exits normally.
"""

# The terminal is opened anew under its name, for a file description of our own: O_NONBLOCK set on the inherited one
# would be set for every process that shares it, the shell included, and stay when we are gone.

from __future__ import annotations

import atexit
import errno
import os
import termios
from collections.abc import Iterable, Mapping
from typing import Any

import coro
from coro.backdoor import backdoor

__all__ = ["interact", "stdin"]


def _open(fd: int) -> Any:
    """A sock on the terminal that ``fd`` is; OSError when it is none."""
    if not os.isatty(fd):
        raise OSError(errno.ENOTTY, f"descriptor {fd} is not a terminal; start the program from one")
    return coro.fd_sock(os.open(os.ttyname(fd), os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK))


class stdin:
    """The terminal, key by key: no line editing, no echo, no flow control by Ctrl-S and Ctrl-Q.

    fd: a descriptor of the terminal. interrupt: the character that sends SIGINT, ``b""`` for none; None leaves it as it
    is, usually Ctrl-C. Use it in a ``with`` block, or call ``restore``. Raises OSError when there is no terminal.

    If other programs read the same terminal, they get some of the keys.
    """

    def __init__(self, fd: int = 0, interrupt: bytes | None = None) -> None:
        self.sock = _open(fd)
        try:
            number = self.sock.fileno()
            self._before = termios.tcgetattr(number)
            mode = termios.tcgetattr(number)
            mode[0] &= ~(termios.IXON | termios.IXOFF | termios.ICRNL)
            mode[3] &= ~(termios.ICANON | termios.ECHO)
            mode[6][termios.VMIN] = 1
            mode[6][termios.VTIME] = 0
            if interrupt is not None:
                mode[6][termios.VINTR] = interrupt or b"\0"
            termios.tcsetattr(number, termios.TCSANOW, mode)
        except BaseException:
            self.sock.close()
            raise
        atexit.register(self.restore)

    def read(self, n: int) -> bytes:
        """Wait for keys and return what they send, at most ``n`` bytes. Empty when the terminal has gone."""
        try:
            return bytes(self.sock.read(n))
        except OSError as exc:
            if exc.errno == errno.EIO:
                return b""
            raise

    def write(self, data: bytes) -> int:
        """Show the bytes ``data``. Returns their number."""
        self.sock.write(data)
        return len(data)

    def writelines(self, data: Iterable[bytes]) -> None:
        """Show the bytes objects in ``data``, but the empty ones."""
        whole = b"".join(data)
        if whole:
            self.write(whole)

    def restore(self) -> None:
        """Put the terminal's mode back and close it; later calls do nothing."""
        if self.sock.closed:
            return
        atexit.unregister(self.restore)
        try:
            termios.tcsetattr(self.sock.fileno(), termios.TCSANOW, self._before)
        except termios.error:
            pass  # the terminal has gone
        finally:
            self.sock.close()

    close = restore

    def __enter__(self) -> stdin:
        return self

    def __exit__(self, *args: object) -> None:
        self.restore()


class _Terminal:
    """A terminal in its ordinary mode as the socket of a session: the kernel edits lines and echoes."""

    def __init__(self, fd: int) -> None:
        self._sock = _open(fd)

    def recv(self, n: int) -> bytes:
        try:
            return bytes(self._sock.read(n))
        except OSError as exc:
            if exc.errno == errno.EIO:  # what Linux gives when the terminal has gone
                return b""
            raise

    def sendall(self, data: bytes) -> None:
        self._sock.write(data)

    def fileno(self) -> int:
        return int(self._sock.fileno())

    def close(self) -> None:
        self._sock.close()


def interact(global_dict: Mapping[str, Any] | None = None, welcome_message: str | None = None, *, fd: int = 0) -> None:
    """A session of the back door on the program's own terminal; returns when it ends (Ctrl-D, ``exit()``).

    Only the calling thread waits. Parameters as for ``coro.backdoor.serve``; fd is a descriptor of the terminal.
    OSError when it is not a terminal.
    """
    backdoor(_Terminal(fd), "\n", welcome_message, global_dict).read_eval_print_loop()
