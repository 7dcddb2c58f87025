"""``coro.debug``: pdb of one thread over a socket, while the rest of the process goes on.

    coro.debug.start()              # in the program, once
    coro.debug.set_trace()          # where one thread is to stop
    $ python -m coro.debug PID      # in a terminal
    $ python -m coro.debug PID 7    # the same, for the thread with that number (or name), whatever it does

A thread that stops waits in pdb like in any other blocking call, because pdb's input and output are a coro socket: the
other threads run. The trace function belongs to the thread (it is switched with it), so nobody else is slowed down or
stopped, and several threads can be traced, each by its own debugger or by a tracer of the program.

Clients connect and wait in a queue until a thread wants one: ``set_trace()`` takes the first that is idle, and does
nothing when there is none, so that it may stay in code that runs unattended. ``continue`` gives the client back to the
queue (breakpoints stay; a thread that meets one takes an idle client again, or goes on without), ``quit`` and the end
of the input let the program continue and close the connection.

A client may also ask for a thread. That one is attached to, and since it may wait for ever, the client gets a prompt at
the place where it waits, at once. A helper thread has that prompt; the thread itself does not run for it. If it goes on
meanwhile, it stops at its next line until the client has decided.

Limits: a step over a blocking call ends when the call does. Breakpoints are shared by all debuggers of a process,
which is bdb's way. From Python 3.12 on tracing one thread makes the code it runs slower for others, too, because the
interpreter instruments the code and not the thread.
"""

from __future__ import annotations

import contextlib
import os
import pdb
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

import coro
from coro._introspection.reports import describe_wait
from coro._runtime import scheduler
from coro._runtime.output import one_line
from coro.backdoor import _server
from coro.backdoor._channel import Channel

__all__ = ["MAX_CLIENTS", "Server", "attach", "default_path", "serve", "set_trace", "start"]

#: Clients that may wait at a time: a person has few terminals.
MAX_CLIENTS = 8
#: Threads that an error lists.
MOST_LISTED = 30


def default_path(pid: int | None = None) -> str:
    """Where ``serve()`` of the process ``pid`` (default: this one) listens."""
    return _server.default_path("debug", pid)


class _Client:
    """A person with a terminal: idle in the queue, or lent to one debugger."""

    def __init__(self, sock: Any) -> None:
        self.channel = Channel(sock, session=False)
        self.idle = True
        #: Whom it is lent to.
        self.debugger: _Debugger | None = None
        self.channel.on_end = self._ended
        self.channel.on_interrupt = self._interrupted
        self.channel.on_thread = self._choose

    def _ended(self) -> None:
        if self.is_open:
            return
        if self.debugger is not None and not self.debugger.talks:
            self.debugger.set_continue()  # the thread may never come to its next line
        if self.idle:
            self.leave()

    def _interrupted(self) -> bool:
        """Ctrl-C without a prompt: have another look at the thread, or leave if there is none."""
        debugger = self.debugger
        if debugger is None:
            self.leave()
            return True
        return not debugger.talks and debugger.begin_to_look()

    def _choose(self, wanted: str) -> tuple[str, Callable[[], object]]:
        """The peer asks for a thread: why it cannot have it, or "", and what to do when it has been told."""
        try:
            if not self.idle:
                raise LookupError("this client has a thread already")
            debugger = _attach(find_thread(wanted))
        except (LookupError, RuntimeError) as exc:
            text = exc.args[0] if isinstance(exc, LookupError) else f"thread {wanted!r} cannot be debugged: {exc}"
            return str(text), self.leave
        debugger.take(self)
        return "", debugger.begin_to_look

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
#: The debuggers of the threads that are traced by one.
_debuggers: weakref.WeakKeyDictionary[Any, _Debugger] = weakref.WeakKeyDictionary()


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
    """pdb for one thread. Holds a client from the moment it stops, or is asked for, until it is told to continue.

    Invariants: 1. While ``_looks``, a helper thread has the prompt, and the thread itself waits if it comes here.
    2. While ``_loose``, the thread is still traced, but what it comes across switches that off.
    """

    def __init__(self, thread: Any) -> None:
        options: dict[str, Any] = {"backend": "settrace"} if sys.version_info >= (3, 14) else {}
        with _without_readline():
            super().__init__(stdin=_nobody, stdout=_nobody, nosigint=True, readrc=False, **options)
        self.use_rawinput = False
        self.prompt = "(Pdb) "
        self.stdin: Any
        self.stdout: Any
        self._thread = weakref.ref(thread)
        self.client: _Client | None = None
        #: Does somebody have the prompt?
        self.talks = False
        self._watched = False
        self._looks = False
        self._arrived = False
        self._loose = False
        self._decided = coro.condition_variable()

    @property
    def thread(self) -> Any:
        return self._thread()

    def take(self, client: _Client) -> None:
        """From now on the client is this debugger's."""
        client.idle = False
        client.debugger = self
        self.client = self.stdin = self.stdout = client
        if not self._watched:
            self._watched = True
            coro.spawn(self._end_with_thread, thread_name="debugger's end", daemon=True)

    def _release(self) -> None:
        client, self.client = self.client, None
        self.stdin = self.stdout = _nobody
        if client is not None:
            client.idle = True
            client.debugger = None
            if not client.is_open:
                client.leave()

    def _end_with_thread(self) -> None:
        """Body of a helper thread: a thread that ends in the middle of a step gives its client back."""
        thread = self.thread
        thread.join()
        if self.client is not None:
            self.client.channel.write(f"--the thread has ended: {thread!r}--\n")
        while self._looks:
            self._decided.wait()
        self._release()

    def prepare(self, frame: FrameType | None) -> None:
        """Stop at the next line that is run in this frame or in one that called it. (bdb's own set_trace() stops at the
        present line from Python 3.13 on, and at the next one before.)"""
        self.reset()
        self._loose = False
        while frame is not None:
            frame.f_trace = self.trace_dispatch
            self.botframe = frame
            frame = frame.f_back
        self.set_step()

    def begin_to_look(self) -> bool:
        """Give the client a prompt at the place where the thread waits. False: the thread does not wait in Python."""
        if self._looks or self.thread.dead or self.thread.get_frame() is None:
            return False
        self._looks = True
        self._arrived = False
        self.talks = True
        coro.spawn(self._look, thread_name="debugger's look", daemon=True)
        return True

    def _look(self) -> None:
        """Body of a helper thread."""
        thread = self.thread
        try:
            frame = None if thread.dead else thread.get_frame()
            if frame is not None:
                self.message(f"--{thread!r} is here, and stops at its next line--")
                super().interaction(frame, None)
        finally:
            self.talks = False
            self._looks = False
            self._decided.wake_all()
        if self.client is not None and not self._arrived and not thread.dead:
            self.message(f"--{thread!r} has not come to a line yet; Ctrl-C looks at it again--")

    def _wait_for_decision(self, frame: FrameType) -> bool:
        """The thread has come here while somebody looks at it. Is it to stop here?"""
        self._arrived = True
        while self._looks:
            self._decided.wait()
        if self._loose:
            self._untrace()
        if self.client is None:
            return False
        return self.stop_here(frame) or bool(self.get_break(frame.f_code.co_filename, frame.f_lineno))

    def interaction(self, *args: Any, **kwargs: Any) -> None:
        """Stop here, if there is somebody to talk to."""
        if self._looks and not self._wait_for_decision(args[0]):
            return
        if self.client is None:
            client: Any = _take_client()
            if client is None:
                self.set_continue()
                return
            self.take(client)
            self.message(f"--stopped in {self.thread!r}--")
        self.talks = True
        try:
            super().interaction(*args, **kwargs)
        finally:
            self.talks = False

    def trace_dispatch(self, frame: FrameType, event: str, arg: Any) -> Any:
        """bdb's, for a thread that has not been let go while it waited."""
        if self._loose:
            self._untrace()
            return None
        return super().trace_dispatch(frame, event, arg)

    def _untrace(self) -> None:
        """In the thread: switch tracing off, unless there are breakpoints by now."""
        self._loose = False
        super().set_continue()
        if not self.breaks:
            _debuggers.pop(self.thread, None)

    def set_continue(self) -> None:
        """Let the thread go on without the client."""
        self._set_stopinfo(self.botframe, None, -1)  # type: ignore[attr-defined]
        if coro.current() is self.thread:
            self._untrace()
        else:
            self._loose = not self.breaks
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
    _debuggers[thread] = debugger
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
    _attach(thread)


def _attach(thread: Any) -> _Debugger:
    if thread is coro.current():
        raise coro.ScheduleError(thread)
    frame = thread.get_frame()
    if frame is None and thread.started and not thread.dead:
        raise RuntimeError(f"{thread!r} runs no Python function that a debugger could show")
    debugger = _debuggers.get(thread)
    if debugger is not None and debugger.client is not None:
        raise RuntimeError(f"{thread!r} is traced already, by the debugger of another client")
    if debugger is None:
        debugger = _Debugger(thread)
        scheduler._trace_thread(thread, sys.settrace, debugger.trace_dispatch)
        _debuggers[thread] = debugger
    else:  # one that was told to let the thread go, and may not have had an opportunity
        with contextlib.suppress(RuntimeError):
            scheduler._trace_thread(thread, sys.settrace, debugger.trace_dispatch)
    debugger.prepare(frame)
    return debugger


def find_thread(wanted: str) -> Any:
    """The living thread with that number or, if there is none, that name. LookupError, which lists the threads, when
    none or several are called so."""
    if wanted.isdecimal():
        with contextlib.suppress(KeyError):
            return coro.get_thread_by_id(int(wanted))
    threads = scheduler._all_threads()
    found = [t for t in threads if t.name == wanted]
    if len(found) == 1:
        return found[0]
    if found:
        raise LookupError(f"{len(found)} threads are called {wanted!r}; give the number of one:\n{_listed(found)}")
    raise LookupError(f"no thread has the number or name {wanted!r}. There are:\n{_listed(threads)}")


def _listed(threads: list[Any]) -> str:
    me = coro.current()
    lines = [
        f"{t.id:>6} {one_line(t.name)[:40]:<24} {one_line(describe_wait(t))}"
        for t in threads[:MOST_LISTED]
        if t is not me
    ]
    if len(threads) > MOST_LISTED:
        lines.append(f"       and {len(threads) - MOST_LISTED} more")
    return "\n".join(lines)


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
