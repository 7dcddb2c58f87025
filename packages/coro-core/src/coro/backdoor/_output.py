"""What a session prints goes to the session: ``sys.stdin``, ``stdout`` and ``stderr`` that look who is asking.

While there is a session the three streams are replaced by dispatchers. A dispatcher looks up the session of the running
code in a context variable: threads that a session spawns inherit it, and so do functions that it gives to
``coro.in_thread``. Everybody else gets the stream that was there before, attribute by attribute; with the last session
the dispatchers go, too.

A program may replace ``sys.stdout`` itself meanwhile (``contextlib.redirect_stdout``); therefore every command of a
session looks first whether the dispatchers are still in place. Rejected: swapping the streams for the time of a
command, because a command may wait, and then everybody's output lands in the session.

Cost: one context variable lookup for each access while a session exists, nothing otherwise.
"""

from __future__ import annotations

import io
import sys
from contextvars import ContextVar
from typing import Any, Protocol

__all__ = ["Dispatcher", "Terminal", "enter", "install", "leave", "session"]


class Terminal(Protocol):
    """What a session has to offer."""

    def write(self, text: str) -> None: ...
    def read_line(self, prompt: str = "") -> str | None: ...
    def show(self, value: object) -> None: ...
    @property
    def is_open(self) -> bool: ...


#: The session in whose behalf the running code works, if any.
session: ContextVar[Terminal | None] = ContextVar("coro back door session", default=None)


class _SessionStream(io.TextIOBase):
    """The stream of one session as user code sees it."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, terminal: Terminal, name: str) -> None:
        self._terminal = terminal
        self.name = name

    def readable(self) -> bool:
        return self.name == "<stdin>"

    def writable(self) -> bool:
        return self.name != "<stdin>"

    def write(self, text: str, /) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() takes a str, not {type(text).__name__}")
        if not self.writable():
            raise io.UnsupportedOperation("not writable")
        self._terminal.write(text)
        return len(text)

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        if not self.readable():
            raise io.UnsupportedOperation("not readable")
        line = self._terminal.read_line()
        return "" if line is None else line + "\n"

    def read(self, size: int | None = -1, /) -> str:
        return "".join(self)

    def close(self) -> None:
        """The session closes its streams, nobody else."""


class Dispatcher:
    """Stands in ``sys`` for one of the three streams."""

    def __init__(self, name: str, original: Any) -> None:
        self.__dict__["_name"] = name
        self.__dict__["_original"] = original

    def _stream(self) -> Any:
        here = session.get()
        if here is None or not here.is_open:
            return self._original
        return _SessionStream(here, self._name)

    def write(self, text: str) -> Any:
        stream = self._stream()
        return len(text) if stream is None else stream.write(text)  # a program without a terminal has no streams

    def flush(self) -> None:
        stream = self._stream()
        if stream is not None:
            stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._original, name, value)

    def __iter__(self) -> Any:
        return iter(self._stream())

    def __repr__(self) -> str:
        return f"<back door dispatcher of {self._name}: {self._original!r}>"


def _display(value: object) -> None:
    """``sys.displayhook`` meanwhile: the result of an expression belongs to the session, ``builtins._`` does not."""
    here = session.get()
    if here is None or not here.is_open:
        _program_display(value)
    else:
        here.show(value)


_STREAMS = ("stdin", "stdout", "stderr")
_program_display: Any = sys.displayhook
_sessions = 0


def install() -> None:
    """See that the dispatchers are in place."""
    global _program_display
    for name in _STREAMS:
        present = getattr(sys, name)
        if not isinstance(present, Dispatcher):
            setattr(sys, name, Dispatcher(f"<{name}>", present))
    if sys.displayhook is not _display:
        _program_display = sys.displayhook
        sys.displayhook = _display


def enter(terminal: Terminal) -> None:
    """The running thread becomes (the first of) a session's."""
    global _sessions
    _sessions += 1
    session.set(terminal)
    install()


def leave() -> None:
    """A session is over; with the last one the program's own streams return."""
    global _sessions
    _sessions -= 1
    session.set(None)
    if _sessions:
        return
    for name in _STREAMS:
        present = getattr(sys, name)
        if isinstance(present, Dispatcher):
            setattr(sys, name, present._original)
    if sys.displayhook is _display:
        sys.displayhook = _program_display
