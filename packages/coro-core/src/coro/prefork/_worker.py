"""The worker's side of ``coro.prefork``: being told to end, noticing that the parent is dead, coming to an end in time.

Parent and worker share a socket pair.  The worker says "ready" on it; its end-of-file tells the worker that the parent
is dead, however it died.  A worker too busy to look is sent SIGTERM by the kernel for the same event (F_SETSIG, Linux)
and then given the same time as any other: when it is over, the kernel's timer ends the process, whatever it is doing.
What remains is a worker that never comes back to the interpreter, in a C function that hangs, while its parent dies.

Cost: one thread a process, and a second and third one when it ends.  Rejected: PR_SET_PDEATHSIG (no access from
Python but by ctypes), an OS thread that watches (it would be there in every fork that the worker makes).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

from coro import servers
from coro._net.listeners import Listener
from coro._net.sock import fd_sock, sock
from coro._runtime import escalation, scheduler
from coro._sync.conditions import event
from coro.exceptions import ClosedError, LoopError, Shutdown
from coro.servers import Server, serve

__all__ = ["KILL_GRACE", "Worker", "signal_at_end"]

#: Seconds between the end of the drain limit and SIGKILL: for the clean-up of handlers that were shut down.
KILL_GRACE = 3.0


class Worker:
    """What ``serve`` gets in a worker process.

    ``index`` is a number from 0 to the number of workers less one. The replacement of a worker has the same index, and
    ``generation`` counts these processes from 0. ``listeners`` are the listening sockets; each is an address for
    ``coro.Server`` and has the sock as its attribute ``sock``. ``stopping`` is a ``coro.event`` that is set when the
    worker has to end, for programs that do not use ``coro.Server``. ``drain_timeout`` is how many seconds it then has.
    """

    def __init__(self, index: int, generation: int, drain_timeout: float, link: socket.socket) -> None:
        self.index = index
        self.generation = generation
        self.listeners: list[Listener] = []
        self.drain_timeout = drain_timeout
        self.stopping = event()
        self._link = link
        self._told = self._signalled = self._is_ready = False

    def __repr__(self) -> str:
        return f"<Worker {self.index}, generation {self.generation}, process {os.getpid()}>"

    def ready(self) -> None:
        """Tell the parent that this worker is ready. Not needed with ``coro.Server``, ``coro.serve`` or the ``serve``
        of this object: the first server that starts does it."""
        if not self._is_ready:
            self._is_ready = True
            with contextlib.suppress(OSError):  # the parent has gone; that is found out elsewhere
                self._link.send(b"R")

    def serve(self, handler: Callable[[Any, Any], object], **options: Any) -> None:
        """``coro.serve(handler, listeners, **options)``: returns when the worker was told to end and has drained."""
        serve(handler, self.listeners, **options)

    # -- in the worker's own process

    def _run(self, function: Callable[[Worker], object], ready_now: bool) -> None:
        servers._supervised(self._server_started)
        watched = fd_sock(self._link.fileno())
        try:
            # Counted: a worker in which everybody waits to be told to end is in no deadlock.
            scheduler.spawn(self._watch_parent, watched, thread_name="watch over the parent")
            if ready_now:
                self.ready()
            function(self)
        except Shutdown:
            if not self._signalled:
                raise  # else it was told to end, and had to be interrupted
        finally:
            watched.detach()

    def _watch_parent(self, link: sock) -> None:
        try:
            link.recv(1)
        except ClosedError:
            return  # the function has returned; the loop is ending
        except OSError:
            pass
        self._tell()

    def _on_signal(self, signum: int, frame: Any) -> None:
        """SIGTERM.  Runs between two bytecodes of whatever runs, also where nobody gets back to the loop."""
        self._signalled = True
        if not self._told:
            # In case the parent is dead, and cannot kill us when we do not come to an end.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, self.drain_timeout + 2 * KILL_GRACE)
            with contextlib.suppress(LoopError):
                scheduler.post(self._tell)
            # A thread that never waits is to run its clean-up before the process is killed.
            escalation.watch(self.drain_timeout)

    def _tell(self) -> None:
        """End in order: all servers drain, then the function should return; in the end it is made to."""
        if self._told:
            return
        self._told = True
        self.stopping.set()
        with contextlib.suppress(LoopError):  # the function has returned, and the loop is ending already
            for server in servers._running():
                scheduler.spawn(server.drain, self.drain_timeout, thread_name="drain", daemon=True)
            scheduler.spawn(self._last_resort, thread_name="end of the worker", daemon=True)

    def _last_resort(self) -> None:
        scheduler.sleep_relative(self.drain_timeout + KILL_GRACE / 3)
        scheduler.set_exit(0, grace=KILL_GRACE / 3)

    def _server_started(self, server: Server) -> None:
        self.ready()
        if self._told:
            server.stop()


def signal_at_end(link: socket.socket) -> None:
    """Have the kernel send SIGTERM when the other end is closed, where it can (fcntl(2), F_SETSIG)."""
    if hasattr(fcntl, "F_SETSIG"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(link, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(link, fcntl.F_SETSIG, signal.SIGTERM)
            fcntl.fcntl(link, fcntl.F_SETFL, fcntl.fcntl(link, fcntl.F_GETFL) | os.O_ASYNC)
