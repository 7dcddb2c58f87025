"""``coro.debug``: pdb of one thread over a socket, while the rest of the process goes on.

    coro.debug.start()              # in the program, once
    coro.debug.set_trace()          # where one thread is to stop
    $ python -m coro.debug PID      # in a terminal

A thread that stops waits in pdb like in any other blocking call, because pdb's input and output are a coro socket: the
other threads run. The trace function belongs to the thread (it is switched with it), so nobody else is slowed down or
stopped, and several threads can be traced, each by its own debugger or by a tracer of the program.

Clients connect and wait in a queue until a thread wants one: ``set_trace()`` takes the first that is idle, and does
nothing when there is none, so that it may stay in code that runs unattended. ``continue`` gives the client back to the
queue (breakpoints stay; a thread that meets one takes an idle client again, or goes on without), ``quit`` and the end
of the input let the program continue and close the connection.

Limits: a step over a blocking call ends when the call does. Breakpoints are shared by all debuggers of a process,
which is bdb's way. From Python 3.12 on tracing one thread makes the code it runs slower for others, too, because the
interpreter instruments the code and not the thread.
"""

from __future__ import annotations

import contextlib
import os
import pdb
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

import coro
from coro._runtime import scheduler
from coro.backdoor import _server
from coro.backdoor._channel import Channel

__all__ = ["MAX_CLIENTS", "Server", "attach", "default_path", "serve", "set_trace", "start"]

#: Clients that may wait at a time: a person has few terminals.
MAX_CLIENTS = 8


def default_path(pid: int | None = None) -> str:
    """Where ``serve()`` of the process ``pid`` (default: this one) listens."""
    return _server.default_path("debug", pid)


class _Client:
    """A person with a terminal: idle in the queue, or lent to one debugger."""

    def __init__(self, sock: Any) -> None:
        self.channel = Channel(sock, session=False)
        self.idle = True
        self.channel.on_end = self._ended

    def _ended(self) -> None:
        if self.idle and not self.is_open:
            self.leave()

    def leave(self) -> None:
        """Close the connection, and queue no more."""
        with contextlib.suppress(ValueError):
            _clients.remove(self)
        self.channel.close()

    @property
    def is_open(self) -> bool:
        return self.channel.is_open and not self.channel.at_end

    # What pdb needs of its files. No error of a connection may become an exception in the program under test.

    def write(self, text: str) -> int:
        self.channel.adopt()
        with contextlib.suppress(coro.Shutdown, coro.ClosedError, OSError):
            self.channel.write(text)
        return len(text)

    def flush(self) -> None:
        self.channel.adopt()
        with contextlib.suppress(OSError, coro.ClosedError):
            self.channel.flush()

    def readline(self) -> str:
        self.channel.adopt()
        try:
            line = self.channel.read_line("")
        except KeyboardInterrupt:
            return "\n"
        return "" if line is None else line + "\n"


_clients: deque[_Client] = deque()


def _take_client() -> _Client | None:
    for client in list(_clients):
        if not client.is_open:
            if client.idle:
                client.leave()
        elif client.idle:
            client.idle = False
            return client
    return None


class _Nobody:
    """The terminal of a debugger that has no client."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass

    def readline(self) -> str:
        return ""


_nobody: Any = _Nobody()


@contextlib.contextmanager
def _without_readline() -> Iterator[None]:
    """pdb.Pdb() imports readline, which takes the program's terminal, and sets its delimiters."""
    modules: Any = sys.modules
    present = modules.get("readline")
    if present is None:
        modules["readline"] = None  # Python's way to say that there is none
        try:
            yield
        finally:
            del modules["readline"]
    else:
        delimiters = present.get_completer_delims()
        try:
            yield
        finally:
            present.set_completer_delims(delimiters)


class _Debugger(pdb.Pdb):
    """pdb for one thread. Holds a client from the moment it stops until it is told to continue."""

    def __init__(self, thread: Any) -> None:
        options: dict[str, Any] = {"backend": "settrace"} if sys.version_info >= (3, 14) else {}
        with _without_readline():
            super().__init__(stdin=_nobody, stdout=_nobody, nosigint=True, readrc=False, **options)
        self.use_rawinput = False
        self.prompt = "(Pdb) "
        self.thread = thread
        self.client: _Client | None = None
        self._watched = False

    def _release(self) -> None:
        client, self.client = self.client, None
        self.stdin = self.stdout = _nobody
        if client is not None:
            client.idle = True
            if not client.is_open:
                client.leave()

    def _end_with_thread(self) -> None:
        """Body of a helper thread: a thread that ends in the middle of a step gives its client back."""
        self.thread.join()
        if self.client is not None:
            self.client.channel.write(f"--the thread has ended: {self.thread!r}--\n")
            self._release()

    def prepare(self, frame: FrameType | None) -> None:
        """Stop at the next line that is run in this frame or in one that called it. (bdb's own set_trace() stops at the
        present line from Python 3.13 on, and at the next one before.)"""
        self.reset()
        while frame is not None:
            frame.f_trace = self.trace_dispatch
            self.botframe = frame
            frame = frame.f_back
        self.set_step()

    def interaction(self, *args: Any, **kwargs: Any) -> None:
        """Stop here, if there is somebody to talk to."""
        if self.client is None:
            client: Any = _take_client()
            if client is None:
                self.set_continue()
                return
            self.client = self.stdin = self.stdout = client
            if not self._watched:
                self._watched = True
                coro.spawn(self._end_with_thread, thread_name="debugger's end", daemon=True)
            self.message(f"--stopped in {self.thread!r}--")
        super().interaction(*args, **kwargs)

    def set_continue(self) -> None:
        super().set_continue()
        self._release()

    def _leave(self, arg: str = "") -> bool:
        """quit, and the end of the input: the program goes on, the client goes."""
        self.clear_all_breaks()
        client = self.client
        self.set_continue()
        if client is not None:
            client.leave()
        return True

    do_q = do_quit = do_exit = do_EOF = _leave

    def do_run(self, arg: str) -> None:
        """A thread cannot be started again."""
        self.error("a thread of a running program cannot be restarted")

    do_restart = do_run


def set_trace(frame: FrameType | None = None) -> bool:
    """Stop the running thread here and let an idle client look at it; the other threads go on.

    frame: stop in that frame of the running thread instead of the caller's. Returns True when there was a client, False
    when there was none and nothing happened. YieldFromMain outside a thread; TypeError when ``frame`` is none.
    """
    if frame is not None and not isinstance(frame, FrameType):
        raise TypeError(f"expected a frame, not {type(frame).__name__}: {frame!r}")
    thread = scheduler._running_thread()
    if not any(client.idle and client.is_open for client in _clients):
        return False
    present = getattr(sys.gettrace(), "__self__", None)
    debugger = present if isinstance(present, _Debugger) else _Debugger(thread)
    debugger.prepare(sys._getframe(1) if frame is None else frame)
    sys.settrace(debugger.trace_dispatch)
    return True


def attach(thread: Any) -> None:
    """Have another thread stop as soon as it goes on, at its next line of Python; a client has to be idle by then.

    TypeError when it is not a thread; ScheduleError when it is the running one or has not run; DeadCoroutine when it
    has ended; RuntimeError when it is traced already, or runs no Python function.
    """
    if not isinstance(thread, scheduler.coro):
        raise TypeError(f"expected a thread (see coro.spawn), not {type(thread).__name__}: {thread!r}")
    if thread is coro.current():
        raise coro.ScheduleError(thread)
    frame = thread.get_frame()
    if frame is None and thread.started and not thread.dead:
        raise RuntimeError(f"{thread!r} runs no Python function that a debugger could show")
    debugger = _Debugger(thread)
    scheduler._trace_thread(thread, sys.settrace, debugger.trace_dispatch)
    debugger.prepare(frame)


class Server:
    """Takes clients in. ``address`` is the path of its UNIX socket, or (ip, port)."""

    def __init__(self, address: Any = None) -> None:
        self._file: tuple[int, int] | None = None
        self.is_open = True
        self.sock: Any
        if address is None or isinstance(address, (str, os.PathLike)):
            self.address: Any = default_path() if address is None else os.fspath(address)
            self.sock = _server.listen_unix(self.address)
            found = os.lstat(self.address)
            self._file = (found.st_dev, found.st_ino)
        elif isinstance(address, tuple) and len(address) == 2:
            self.sock = _server.listen_tcp(address[0], [address[1]], False, "")
            self.address = self.sock.getsockname()[:2]
        else:
            raise TypeError(f"expected the path of a UNIX socket or (ip, port), not {address!r}")

    def __repr__(self) -> str:
        return f"<debug server at {self.address!r}: {'open' if self.is_open else 'closed'}>"

    def run(self) -> None:
        """Accept clients until ``close``."""
        scheduler._set_helper(True)  # a debugger that is not connected wakes nobody: no standstill is hidden by it
        try:
            while self.is_open:
                try:
                    sock, _ = self.sock.accept()
                except coro.ClosedError:
                    return
                _welcome(sock)
                del sock
        finally:
            scheduler._set_helper(False)
            self.close()

    def close(self) -> None:
        """Take no more clients in; those there are stay."""
        if self.is_open:
            self.is_open = False
            self.sock.close()
            if self._file is not None:
                _server.remove_socket(self.address, self._file)


def _welcome(sock: Any) -> None:
    if len(_clients) >= MAX_CLIENTS:
        with contextlib.suppress(OSError):
            sock.send(f"{len(_clients)} debugger clients wait already; close one\r\n".encode())
        sock.close()
        return
    client = _Client(sock)
    client.channel.start()
    _clients.append(client)
    client.channel.write("waiting for coro.debug.set_trace() in a thread\n")


def serve(address: Any = None, global_dict: Mapping[str, Any] | None = None) -> None:
    """Take debugger clients in, in the running thread; does not return. Usually
    ``coro.spawn(coro.debug.serve, daemon=True)``.

    address: the path of a UNIX socket (made with mode 0600; default: ``default_path()``), or (ip, port) of the loopback
    interface. global_dict has no effect: it is what programs may still pass. OSError when the address cannot be had,
    ValueError when it is not of the loopback interface, TypeError when it is neither form.
    """
    Server(address).run()


def start(address: Any = None) -> Server:
    """Like ``serve``, but in a daemon thread of its own. Returns the Server, which already listens; its ``close()``
    ends it. ``address`` and errors as for ``serve``."""
    server = Server(address)
    try:
        coro.spawn(server.run, thread_name="debugger", daemon=True)
    except BaseException:
        server.close()
        raise
    return server


if __name__ == "__main__":
    from coro.backdoor import _client

    sys.exit(_client.main(program="python -m coro.debug", kind="debug"))
