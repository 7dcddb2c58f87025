"""One session of the back door: read a line, compile it, run it, show what it gives.

The loop is that of Python's own interactive interpreter: a statement may go on over several lines (``codeop`` decides),
an empty line ends a block, ``_`` is the last result. Assignments stay in the session, whose namespace is a copy; the
objects in it are the program's own.

A command runs in the session's thread like any code of the program: while it computes, nobody else runs, and while it
waits, everybody else does. It is ended by Ctrl-C of our own client or of telnet (KeyboardInterrupt), and when the peer
goes away (Shutdown); a command that never waits can be ended by neither.
"""

from __future__ import annotations

import codeop
import hmac
import pydoc
import sys
import traceback
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import __main__
import coro
from coro._runtime.output import one_line
from coro.backdoor import _output
from coro.backdoor._channel import Channel
from coro.backdoor._strangers import Stranger

__all__ = ["LOGIN_SECONDS", "backdoor"]

#: Who has not shown the token by then has no business here.
LOGIN_SECONDS = 30.0
FILE_NAME = "<back door>"


class _Leave:
    """``exit`` and ``quit``: end the session. (Those of ``site`` close the program's stdin first.)"""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, code: object = None) -> None:
        raise SystemExit(code)

    def __repr__(self) -> str:
        return f"Use {self._name}() or Ctrl-D to end this session; coro.set_exit() ends the program."


class _Help:
    """``help``: pydoc's, written to the session; without its pager, which would take the program's terminal."""

    def __call__(self, *request: Any) -> None:
        helper: Any = pydoc.Helper(sys.stdin, sys.stdout)
        if not request:
            print(repr(self))
        elif isinstance(request[0], str) and request[0].strip() in {**pydoc.Helper.topics, **pydoc.Helper.keywords}:
            # Before Python 3.14 a topic always goes through the pager of the process.
            print(helper._gettopic(request[0].strip())[0])
        else:
            helper.help(*request)

    def __repr__(self) -> str:
        return "Type help(object) for help about object, or help('topics') for a list of topics."


def threads(part: str = "") -> None:
    """Print a line for every thread: id, name, what it waits for, where it is. ``part``: only those with that text."""
    from coro._introspection.reports import describe_wait

    for number, (name, thread, where) in sorted(coro.where_all().items()):
        line = f"{number:>6} {one_line(name):<24} {one_line(describe_wait(thread))}\n       at {one_line(where)}"
        if part in line:
            print(line)


def thread(number: int) -> Any:
    """The thread with that id. KeyError when there is none."""
    return coro.get_thread_by_id(number)


def commands() -> dict[str, Any]:
    """The names that a session finds beside those of the program."""
    return {
        "coro": coro,
        "exit": _Leave("exit"),
        "help": _Help(),
        "memory": coro.memory,
        "quit": _Leave("quit"),
        "thread": thread,
        "threads": threads,
        "where": coro.where,
        "where_all": coro.where_all,
    }


class backdoor:
    """A session with the person at the other end of ``sock``, a connected socket that the session owns.

    ``line_separator`` ends the lines of the output. ``welcome_message`` follows the lines about Python. The namespace
    is a copy of ``global_dict`` (default: that of ``__main__``). With a ``token``, the peer has to send it first. To
    change what a session does, override ``login`` and ``print_result`` in a subclass and give it to ``serve`` as
    ``client_class``.
    """

    def __init__(
        self,
        sock: Any,
        line_separator: str = "\r\n",
        welcome_message: str | None = None,
        global_dict: Mapping[str, Any] | None = None,
        *,
        token: str | None = None,
    ) -> None:
        self.sock = sock
        self.welcome_message = welcome_message
        self.token = token
        self.env: dict[str, Any] = {**commands(), **(vars(__main__) if global_dict is None else global_dict)}
        for name in ("exit", "quit", "help"):
            self.env[name] = commands()[name]
        self.channel = Channel(sock, line_separator)
        self.channel.namespace = lambda: self.env
        self._compile = codeop.CommandCompiler()
        #: What the server knows of a peer that has not shown a token yet.
        self._stranger: Stranger | None = None
        #: Called after the login: why there is no place for one more session, or None.
        self._come_in: Callable[[], str | None] = lambda: None

    # -- for subclasses

    def login(self) -> bool:
        """Is the peer allowed in? This one asks for the token, if there is one. It may use ``read_line`` and
        ``send``."""
        if self.token is None:
            return True
        try:
            with coro.timeout(LOGIN_SECONDS):
                answer = self.channel.ask_secretly("token: ")
        except coro.TimeoutError:
            return self._refuse(f"no token within {LOGIN_SECONDS:g} s")
        except KeyboardInterrupt:
            return self._refuse("it interrupted the question for the token")
        if answer is None:
            self._refuse("it has gone without a token")
        elif self._compare(answer, self.token):
            return True
        self.send("wrong token\n")
        return False

    def _refuse(self, why: str) -> bool:
        if self._stranger is not None:
            self._stranger.refuse(why)
        return False

    def _compare(self, answer: str, token: str) -> bool:
        """Is that the token? Addresses from which wrong ones came have to wait for this answer."""
        stranger = self._stranger
        if stranger is not None and (seconds := stranger.pause()) > 0:
            try:
                coro.sleep_relative(seconds)
            except KeyboardInterrupt:
                return self._refuse("it interrupted the pause after wrong tokens")
        if hmac.compare_digest(answer.encode("utf-8", "replace"), token.encode("utf-8")):
            return True
        if stranger is not None:
            stranger.was_wrong()
        return False

    def print_result(self, result: Any) -> None:
        """Show ``result``, the value of an expression. This one prints its ``repr`` unless it is None, and keeps it as
        ``_``."""
        if result is not None:
            self.env["_"] = None
            print(repr(result))
            self.env["_"] = result

    # -- the terminal

    @property
    def is_open(self) -> bool:
        """Is the peer still there?"""
        return self.channel.is_open

    def send(self, data: str) -> None:
        """Send the text ``data`` to the peer; ``\\n`` becomes the line separator. Errors of the connection are
        ignored."""
        self.channel.write(data)

    write = send

    def show(self, value: object) -> None:
        """Show ``value`` as ``sys.displayhook`` does for code of this session."""
        self.print_result(value)

    @property
    def prompt(self) -> str:
        """``sys.ps1``, or what Python uses without."""
        return str(getattr(sys, "ps1", ">>> "))

    def read_line(self, prompt: str = "") -> str | None:
        """Show ``prompt`` and return the next line of the peer, without its end; None if there are no more. Raises
        KeyboardInterrupt if the peer interrupts."""
        return self.channel.read_line(prompt)

    def send_welcome_message(self) -> None:
        """Python's version, and the message of the program."""
        self.send(f"Python {sys.version} on {sys.platform}\n{sys.copyright.splitlines()[0]}\n")
        if self.welcome_message is not None:
            self.send(self.welcome_message + "\n")

    # -- the loop

    def read_eval_print_loop(self) -> None:
        """The whole session; returns when the peer has gone or wants no more, and the socket is closed then."""
        self.channel.start()
        _output.enter(self)
        try:
            if not self.login():
                return
            if (text := self._come_in()) is not None:
                self.send(text.replace("\r\n", "\n"))
                return
            self.send_welcome_message()
            block: list[str] = []
            interrupted = False
            while True:
                try:
                    if interrupted:  # said here and not below, where another one would go astray
                        interrupted = False
                        self.send("\nKeyboardInterrupt\n")
                    line = self.read_line(str(getattr(sys, "ps2", "... ")) if block else self.prompt)
                    if line is None or (not block and line == "\x04"):
                        break
                    block.append(line)
                    if not self.parse("\n".join(block), self.env):
                        block = []
                except KeyboardInterrupt:
                    block = []
                    interrupted = True
        except SystemExit:
            pass
        finally:
            try:
                self.channel.flush()
            except (coro.Interrupted, KeyboardInterrupt):
                pass
            finally:
                _output.leave()
                self.channel.close()

    def parse(self, source: str, env: dict[str, Any]) -> bool:
        """Compile the command ``source`` and run it with the names in ``env``. True if it is incomplete: more lines
        have to come.

        What the command raises is shown, but for SystemExit and Shutdown, which end the session.
        """
        _output.install()
        with self.channel.command():
            try:
                code = self._compile(source, FILE_NAME, "single")
            except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError):
                self._show_error(*sys.exc_info(), frames=False)
                return False
            if code is None:
                return True
            try:
                exec(code, env)
            except (SystemExit, coro.Shutdown):
                raise
            except BaseException:
                self._show_error(*sys.exc_info())
            return False

    def _show_error(self, kind: Any, value: Any, trace: TracebackType | None, *, frames: bool = True) -> None:
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next  # this file's own frames say nothing to the user
        try:
            lines = traceback.format_exception(kind, value, trace if frames else None)
        except Exception as exc:
            lines = [f"{kind.__name__} (and its text cannot be made: {type(exc).__name__})\n"]
        self.send("".join(lines))


ClientClass = Callable[..., Any]
