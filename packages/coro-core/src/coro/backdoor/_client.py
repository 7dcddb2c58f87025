"""The client of the back door, ``python -m coro.backdoor ADDRESS``, and of the debugger.

An ordinary blocking program without coro's loop. Line editing, history and completion are readline's, here and not at
the other end: the server never has to know about terminals. It says when it wants a line, and with which prompt (see
``_telnet`` for how); whatever else comes is shown as it is. Without a terminal lines are taken from stdin as they
are, so that commands can be piped in.

Where a process has no door open, ``_attach`` finds a way in, from Python 3.14 on.
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

from coro.backdoor import _attach, _telnet

__all__ = ["Client", "connect", "main"]

HISTORY = "~/.coro_backdoor_history"
HISTORY_LINES = 1000


class _Gone(Exception):
    """The server has closed the connection."""


class _Refused(Exception):
    """The server cannot do what was asked for when the session began."""


class Client:
    """The conversation over a connected socket; ``interactive`` with line editing, else with the lines of stdin.
    ``thread``: the number or name of the thread that a debugger is to stop."""

    def __init__(self, sock: Any, interactive: bool, thread: str | None = None) -> None:
        self.sock = sock
        self.interactive = interactive
        self.thread = thread
        self.secret = False
        self._data = b""
        self._matches: list[str] = []
        self._tail = ""  # what was shown since the last line end
        self._rich = False
        self._asking = False
        self._sending = False

    def interrupt(self, signum: int, frame: object) -> None:
        """Handler of SIGINT: a line that is being typed is given up, otherwise it is the server's command that is
        meant. Raising an exception wherever this program happens to be would lose what is being shown."""
        if self._asking:
            raise KeyboardInterrupt
        if not self._sending:
            self.sock.sendall(_telnet.message(b"I"))

    def _send(self, data: bytes) -> None:
        self._sending = True
        try:
            self.sock.sendall(data)
        finally:
            self._sending = False

    def run(self) -> None:
        """Until the server closes the connection or stdin ends. OSError when the connection breaks; _Refused when the
        server has no such thread."""
        self._send(_telnet.message(b"H", b"1"))
        try:
            if self.thread is not None:
                self._choose_thread(self.thread)
            while True:
                prompt = self._until(b"P").decode("utf-8", "replace")
                try:
                    line = self._ask(prompt)
                except KeyboardInterrupt:
                    self._send(_telnet.message(b"I"))
                    continue
                except EOFError:
                    self.sock.shutdown(socket.SHUT_WR)
                    self._until(b"")
                self._send(line.encode("utf-8", "replace") + b"\n")
        except _Gone:
            pass

    def _choose_thread(self, thread: str) -> None:
        self._send(_telnet.message(b"T", thread.encode("utf-8", "replace")))
        kind = b""
        while kind != b"T":  # what comes before is for those who wait for any thread
            kind, payload = self._next()
            self._rich |= kind == b"H"
        if payload:
            raise _Refused(payload.decode("utf-8", "replace"))

    def _ask(self, prompt: str) -> str:
        if not self.interactive:
            line = sys.stdin.readline()
            if not line:
                raise EOFError
            return line.rstrip("\n")
        if self._tail:
            prompt = self._tail + prompt  # readline has to know what is on the line already
            self._tail = ""
            sys.stdout.write("\r")
        sys.stdout.flush()
        self._asking = True
        try:
            return getpass.getpass(prompt) if self.secret else input(prompt)
        finally:
            self._asking = False

    def _until(self, wanted: bytes) -> bytes:
        """Show what comes until a message of that kind; its contents. _Gone at the end."""
        while True:
            kind, payload = self._next()
            if kind == b"":
                self._show(payload)
            elif kind == b"H":
                self._rich = True
            elif kind == wanted:
                return payload

    def _show(self, data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        if not self._rich:
            text = text.replace("\r\n", "\n")
            text = text[: text.rfind("\n") + 1]  # the prompt for somebody else's client
        if not text:
            return
        head, newline, tail = text.rpartition("\n")
        self._tail = tail if newline else self._tail + tail
        sys.stdout.write(text)
        sys.stdout.flush()

    def _next(self) -> tuple[bytes, bytes]:
        """The next piece of text, as (b"", text), or message, as (kind, contents)."""
        while True:
            at = self._data.find(b"\xff")
            if at != 0 and self._data:
                cut = self._complete_text(self._data if at < 0 else self._data[:at], at >= 0)
                if cut:
                    text, self._data = self._data[:cut], self._data[cut:]
                    return b"", text
            if at == 0 and len(self._data) >= 3:
                verb, option = self._data[1], self._data[2]
                if verb == _telnet.SB:
                    end = self._data.find(bytes([_telnet.IAC, _telnet.SE]))
                    if end >= 0:
                        message, self._data = self._data[3:end], self._data[end + 2 :]
                        return message[:1], message[1:]
                else:
                    if option == _telnet.ECHO:
                        self.secret = verb == _telnet.WILL
                    self._data = self._data[3:]
                    continue
            more = self.sock.recv(65536)
            if not more:
                raise _Gone
            self._data += more

    def _complete_text(self, data: bytes, ended: bool) -> int:
        """How many bytes of the data are whole characters."""
        if ended:
            return len(data)
        for back in range(1, min(4, len(data)) + 1):
            byte = data[-back]
            if byte >= 0xC0:
                needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
                return len(data) if back >= needed else len(data) - back
            if byte < 0x80:
                break
        return len(data)

    def complete(self, text: str, state: int) -> str | None:
        """For readline: ask the server."""
        if state == 0:
            self._matches = []
            if not text:
                self._matches = ["    "]
            else:
                try:
                    self._send(_telnet.message(b"C", text.encode("utf-8", "replace")))
                    self._matches = json.loads(self._until(b"C"))
                except (OSError, _Gone):
                    return None
        return self._matches[state] if state < len(self._matches) else None


@contextlib.contextmanager
def line_editing(complete: Callable[[str, int], str | None], history: str = HISTORY) -> Iterator[None]:
    """readline with completion and a history file, where this Python has it."""
    try:
        import readline
    except ImportError:
        yield
        return
    path = os.path.expanduser(history)
    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n`~!@#$%^&*()-=+[{]}\\|;:'\",<>/?")
    readline.parse_and_bind("bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete")
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    try:
        yield
    finally:
        readline.set_history_length(HISTORY_LINES)
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
            readline.write_history_file(path)


def connect(address: str, cafile: str | None = None, kind: str = "backdoor") -> socket.socket:
    """Connect to ``HOST:PORT``, to a UNIX socket, or to the default one of a process id. OSError, ValueError."""
    if address.isdigit():
        from coro.backdoor._server import default_path

        address = default_path(kind, int(address))
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit() and "/" not in address:
        sock = socket.create_connection((host.strip("[]") or "127.0.0.1", int(port)))
        if cafile is not None:
            import ssl

            return ssl.create_default_context(cafile=cafile).wrap_socket(sock, server_hostname=host.strip("[]"))
        return sock
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(address)
    except OSError as exc:
        sock.close()
        exc.filename = address
        raise
    return sock


def _is_closed(address: str, error: Exception) -> bool:
    """Was a process named by its id, at whose default path nobody listens?"""
    return address.isdigit() and isinstance(error, (FileNotFoundError, ConnectionRefusedError))


def _why_not(address: str, kind: str, error: Exception) -> str:
    """Why nobody could be reached, and what to do. "" if the process has no door open."""
    if not _is_closed(address, error):
        return f"cannot connect to {address}: {error}"
    filename = getattr(error, "filename", None)
    try:
        os.kill(int(address), 0)
    except (ProcessLookupError, OverflowError):
        return f"there is no process {address}, and nobody listens at {filename!r}"
    except PermissionError:
        return (
            f"process {address} belongs to another user, who alone may enter: its door is a UNIX socket of mode 0600 "
            "in a private folder; run this command as that user"
        )
    return ""


def _enter(address: str, cafile: str | None, kind: str, patience: float) -> socket.socket:
    """A connection to the program: through the door that it has open, or else ``_attach``. CannotAttach."""
    try:
        return connect(address, cafile, kind)
    except (OSError, ValueError) as exc:
        why = _why_not(address, kind, exc)
        if why:
            raise _attach.CannotAttach(why) from None
        door = "back door" if kind == "backdoor" else f"{kind} door"
        closed = f"no {door} is open in process {address}: nobody listens at {getattr(exc, 'filename', None)!r}."
    advice = (
        f"The program has to open it with coro.{kind}.start(); give the path or HOST:PORT if it listens somewhere else"
    )
    if not _attach.is_possible():
        raise _attach.CannotAttach(f"{closed} {advice}")
    try:
        sock = _attach.attach(int(address), kind, patience)
    except _attach.CannotAttach as exc:
        raise _attach.CannotAttach(f"{closed} The way without it does not work either: {exc}. {advice}") from None
    print(f"{closed} This session came in through sys.remote_exec.", file=sys.stderr)
    return sock


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"expected seconds above 0, not {text}")
    return value


def main(arguments: list[str] | None = None, program: str = "python -m coro.backdoor", kind: str = "backdoor") -> int:
    """The program; returns its exit status. ``kind`` chooses the default path of a process."""
    parser = argparse.ArgumentParser(
        prog=program,
        description=f"Talk to the {kind} server of a running program. Ctrl-C interrupts, Ctrl-D ends the session.",
    )
    parser.add_argument(
        "address",
        help="path of a UNIX socket, HOST:PORT, or the id of a process that uses the default. From Python 3.14 on a "
        "process needs no server for it",
    )
    if kind == "debug":
        parser.add_argument(
            "thread", nargs="?", help="number or name of the thread to look at; default: wait for set_trace() in any"
        )
        parser.add_argument(
            "--interrupt",
            action="store_true",
            help="have the program end, and interrupt the thread that runs if it does not give way; needs no session. "
            "Only for a process of your own, which has left SIGINT to coro",
        )
    parser.add_argument("--cafile", help="use TLS, and trust the certificates in this file")
    parser.add_argument(
        "--wait",
        type=_seconds,
        default=_attach.PATIENCE,
        metavar="SECONDS",
        help="how long a process without a server may take to let this command in (%(default)g)",
    )
    options = parser.parse_args(arguments)
    if getattr(options, "interrupt", False):
        if not options.address.isdigit():
            parser.error(f"--interrupt needs the id of a process, not {options.address!r}")
        try:
            _attach.interrupt(int(options.address), options.wait)
        except _attach.CannotAttach as exc:
            print(exc, file=sys.stderr)
            return 1
        return 0
    try:
        sock = _enter(options.address, options.cafile, kind, options.wait)
    except _attach.CannotAttach as exc:
        print(exc, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted before the session began", file=sys.stderr)
        return 130
    with sock:
        interactive = sys.stdin.isatty()
        client = Client(sock, interactive, getattr(options, "thread", None))
        try:
            if interactive:
                signal.signal(signal.SIGINT, client.interrupt)
                with line_editing(client.complete):
                    client.run()
            else:
                client.run()
        except _Refused as exc:
            print(exc, file=sys.stderr)
            return 1
        except OSError as exc:
            print(f"the connection broke: {exc}", file=sys.stderr)
            return 1
        if interactive:
            print()
    return 0
