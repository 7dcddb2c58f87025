"""A person at the other end of a socket: lines in, text out, and the one to interrupt.

A reader thread takes everything that comes, at once, so that an interruption reaches a command that runs and never
looks at its input. Lines wait in a queue; when it is full the reader stops, and the peer with it.

Output of the session's own thread goes straight to the socket, a line at a time: a peer that reads slowly holds up that
thread and nobody else. Other threads that print to the session (those it has spawned, its functions in worker OS
threads) are never held up: what they print waits in a buffer of bounded size, and what does not fit is dropped with a
note, because such a thread may do real work, and a terminal that was stopped with Ctrl-S must not stop that.

After the end of its input a session has time to finish the commands it was given (``printf ... | nc``), unless the
peer has closed the connection altogether.

Cost: two threads a session; at most MAX_PENDING bytes of lines, MAX_LATE bytes of output.
"""

from __future__ import annotations

import contextlib
import json
import select
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import coro
from coro._runtime import scheduler
from coro.backdoor import _telnet
from coro.backdoor._complete import complete

__all__ = ["Channel"]

#: Bytes of lines that may wait for the session's thread.
MAX_PENDING = 1024 * 1024
#: Bytes of output of other threads that may wait for the peer.
MAX_LATE = 256 * 1024
#: What the session's own thread prints is sent in pieces of at most this many characters.
PIECE = 32 * 1024
#: Seconds that commands may go on after the end of the input.
EOF_GRACE = 30.0


class Channel:
    """Lines and text over ``sock``, which it owns: anything with ``recv``, ``sendall``, ``close`` and ``fileno``.

    Invariants: 1. Only ``owner`` is ever suspended in write(). 2. ``pending`` is the size of the lines in the queue.
    """

    def __init__(self, sock: Any, line_separator: str = "\r\n", session: bool = True) -> None:
        self.sock = sock
        self.line_separator = line_separator
        self.owner: Any = None
        #: Does the owner live for this channel, and end with it?
        self.session = session
        self.is_open = True
        #: Does the peer speak our own protocol?
        self.rich = False
        #: Is the owner in the middle of a command, which an interruption is to end?
        self.busy = False
        self._interrupted = False  # by what was received last: once is enough
        #: What the peer's completion looks at.
        self.namespace: Callable[[], Mapping[str, Any]] = dict
        #: Called when nothing more will come.
        self.on_end: Callable[[], object] = bool
        #: Called for an interruption outside of a command; True when it has been dealt with.
        self.on_interrupt: Callable[[], bool] = bool
        #: Asked for a thread by number or name: why not, or "", and what to do after the answer.
        self.on_thread: Callable[[str], tuple[str, Callable[[], object]]] = _no_threads
        self._decoder = _telnet.Decoder()
        self._lines: coro.fifo[Any] = coro.fifo()
        self._pending = 0
        self._room = coro.condition_variable()
        self._prompt: str | None = None
        self._ended = False
        self._hung_up = False
        self._out = bytearray()
        self._late = bytearray()
        self._late_lost = 0
        self._late_thread = False

    @contextlib.contextmanager
    def command(self) -> Iterator[None]:
        """While a command runs, an interruption is for it."""
        self.busy = True
        try:
            yield
        finally:
            self.busy = False

    def start(self) -> None:
        """Begin to read; the running thread is the owner from now on."""
        self.owner = coro.current()
        coro.spawn(self._read, thread_name="terminal reader", daemon=True)

    def adopt(self) -> None:
        """The running thread becomes the owner."""
        self.owner = coro.current()

    @property
    def at_end(self) -> bool:
        """Has the peer sent all that it will send?"""
        return self._ended or (self._hung_up and len(self._lines) <= 1)

    def close(self) -> None:
        """Close the socket; nothing can be read or written any more. Never raises OSError."""
        if not self.is_open:
            return
        self.is_open = False
        self._room.wake_all()
        with contextlib.suppress(OSError):
            self.sock.close()

    # -- input

    def read_line(self, prompt: str = "") -> str | None:
        """The next line, without its end; None at the end of the input. KeyboardInterrupt when the peer asks for it."""
        if self._ended:
            return None
        self._prompt = prompt
        try:
            self._send_prompt()
            item = self._lines.pop()
        finally:
            self._prompt = None
        if item is None:
            self._ended = True
            return None
        if item is _telnet.INTERRUPT:
            raise KeyboardInterrupt
        self._pending -= len(item)
        self._room.wake_all()
        return str(item)

    def _send_prompt(self) -> None:
        if self.rich:
            self.flush()
            self._send(_telnet.message(b"P", (self._prompt or "").encode("utf-8", "replace")))
        else:
            if self._prompt:
                self.write(self._prompt)
            self.flush()

    def ask_secretly(self, prompt: str) -> str | None:
        """A line that the peer's terminal program is asked not to show while it is typed."""
        self._out += self._decoder.ask(_telnet.WILL, _telnet.ECHO)
        try:
            return self.read_line(prompt)
        finally:
            self._out += self._decoder.ask(_telnet.WONT, _telnet.ECHO)
            self.write("\n")

    def _read(self) -> None:
        """The reader thread."""
        try:
            while True:
                data = self.sock.recv(4096)
                if not data:
                    break
                self._interrupted = False
                for event in self._decoder.feed(data):
                    self._event(event)
                    while self._pending > MAX_PENDING and self.is_open:
                        self._room.wait()
                if self._decoder.answers:
                    answers = bytes(self._decoder.answers)
                    self._decoder.answers.clear()
                    self.sock.sendall(answers)
            for event in self._decoder.finish():
                self._event(event)
            self._hung_up = True
            self._lines.push(None)
            if self.session:
                self._linger()
        except _telnet.TooLong as exc:
            self._print_late(f"\n{exc}; the session ends\n")
            self._give_up()
        except (OSError, coro.ClosedError):
            self._give_up()
        self.on_end()

    def _event(self, event: Any) -> None:
        if isinstance(event, _telnet.Line):
            self._pending += len(event)
            self._lines.push(event)
        elif isinstance(event, _telnet.Message):
            self._message(event[:1], bytes(event[1:]))
        elif event is _telnet.INTERRUPT:
            self.interrupt()
        else:
            self._lines.push(None)

    def _message(self, kind: bytes, payload: bytes) -> None:
        if kind == b"H":
            self.rich = True
            self.sock.sendall(_telnet.message(b"H", b"1"))
            if self._prompt is not None:
                self.sock.sendall(_telnet.message(b"P", self._prompt.encode("utf-8", "replace")))
        elif kind == b"I":
            self.interrupt()
        elif kind == b"C":
            found = complete(payload.decode("utf-8", "replace"), self.namespace())
            self.sock.sendall(_telnet.message(b"C", json.dumps(found).encode("ascii")))

        elif kind == b"T":
            refusal, then = self.on_thread(payload.decode("utf-8", "replace"))
            self.sock.sendall(_telnet.message(b"T", refusal.encode("utf-8", "replace")))
            then()

    def interrupt(self) -> None:
        """The peer wants to stop what runs: KeyboardInterrupt in the owner, whose queued lines are forgotten."""
        ended = False
        with contextlib.suppress(IndexError):
            while True:
                ended |= self._lines.pop_nowait() is None
        self._pending = 0
        self._room.wake_all()
        if not self.busy:
            if not self.on_interrupt():
                self._lines.push(_telnet.INTERRUPT)
        elif not self._interrupted and not self.owner.dead:
            self._interrupted = True
            self.owner.raise_exception(KeyboardInterrupt)
        if ended:
            self._lines.push(None)

    def _linger(self) -> None:
        """The input has ended. Let the commands that were given end, but not for ever, and not for nobody."""
        waited = 0.0
        while self.is_open and waited < EOF_GRACE:
            poll = select.poll()
            poll.register(self.sock.fileno(), 0)
            if poll.poll(0):
                break  # POLLHUP or POLLERR: closed in both directions
            coro.sleep_relative(0.5)
            waited += 0.5
        self._give_up()

    def _give_up(self) -> None:
        """The peer has gone: so does the session, whatever it does."""
        self._hung_up = True
        if self.is_open:
            self._lines.push(None)
            if self.session and not self.owner.dead:
                self.owner.shutdown()

    # -- output

    def write(self, text: str) -> None:
        """Send text; ``\\n`` becomes the line separator. Errors of the connection are no errors of the printing code:
        in the owner they end the session (Shutdown), elsewhere the text is lost."""
        if not self.is_open:
            return
        if not scheduler._in_loop_os_thread() or coro.current() is not self.owner:
            self._print_late(text)
            return
        for at in range(0, len(text), PIECE):
            self._out += self._encode(text[at : at + PIECE])
            if len(self._out) > PIECE:
                self.flush()
        if text.endswith("\n"):
            self.flush()

    def _encode(self, text: str) -> bytes:
        text = text.replace("\r\n", "\n")
        if not self.rich and self.line_separator != "\n":
            text = text.replace("\n", self.line_separator)
        return text.encode("utf-8", "backslashreplace")

    def flush(self) -> None:
        """Send what the owner has written."""
        if self._out:
            data = bytes(self._out)
            self._out.clear()
            self._send(data)

    def _send(self, data: bytes) -> None:
        try:
            self.sock.sendall(data)
        except (OSError, coro.ClosedError):
            self.close()
            raise coro.Shutdown("the peer of this session has closed the connection") from None
        except BaseException as exc:
            # Interrupted in the middle: what is left goes first the next time, or a message would be cut in two.
            self._out[:0] = data[getattr(exc, "bytes_sent", 0) :]
            raise

    def _print_late(self, text: str) -> None:
        room = MAX_LATE - len(self._late)
        if room <= 0 or len(text) > room:
            self._late_lost += len(text)
        else:
            self._late += self._encode(text)
        if not self._late_thread:
            self._late_thread = True
            _in_loop(self._spawn_late)

    def _spawn_late(self) -> None:
        try:
            coro.spawn(self._send_late, thread_name="back door output", daemon=True)
        except coro.LoopError:
            self._late.clear()

    def _send_late(self) -> None:
        try:
            while self.is_open and (self._late or self._late_lost):
                waiting, self._late = self._late, bytearray()
                data = bytes(waiting)
                lost, self._late_lost = self._late_lost, 0
                if lost:
                    note = f"\n[{lost} characters of other threads were dropped: this terminal is too slow]\n"
                    data += self._encode(note)
                self.sock.sendall(data)
        except (OSError, coro.ClosedError):
            self._late.clear()
        finally:
            self._late_thread = False


def _no_threads(wanted: str) -> tuple[str, Callable[[], object]]:
    return "a session of this server has no thread to look at; python -m coro.debug has", bool


def _in_loop(function: Callable[[], object]) -> None:
    """Call a short function of ours in the loop's OS thread: at once if this is it."""
    if scheduler._in_loop_os_thread():
        function()
    else:
        scheduler._post_internal(function)
