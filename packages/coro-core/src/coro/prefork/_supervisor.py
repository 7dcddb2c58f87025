"""``coro.prefork(workers, serve, address)``: one process per core behind one listening address, supervised.

The parent opens the address, forks workers, and does nothing else than to look after them; each worker runs a loop of
its own in which ``serve(worker)`` is called.  The parent is deliberately no coro program but a plain loop around
poll(2): nothing is running in it when it forks, there is no state of a loop that a child would have to forget, and what
keeps everything alive is small.  It asks waitpid(2) for each worker whenever anything happens, so that no lost or
merged signal matters.

Two ways to share the address.

*Shared listener* (the default): all workers accept from the parent's socket.  The queue of connections belongs to no
worker, so one that dies takes only those it has accepted with it.  Each worker's poller registers the socket without
EPOLLEXCLUSIVE, on purpose: with it the kernel wakes one worker per connection, and when this one dies (or is busy)
between the wake-up and its accept, nobody else hears of the connection until the next one comes (epoll_ctl(2) promises
only "one or more" wake-ups).  Without it all idle workers wake, one gets the connection and the others find nothing: a
few microseconds of each idle core, against a client that waits for ever.

*reuse_port*: each worker has a listener of its own and the kernel spreads connections over them by a hash of the
addresses (socket(7), SO_REUSEPORT).  No worker wakes in vain, but the queue belongs to the worker: when it dies, what
it had not accepted is reset, unless the system moves it (``net.ipv4.tcp_migrate_req`` of Linux 5.14).

What happens in a worker is in prefork/_worker.py.

Cost: an idle parent sleeps in poll; a fork takes about a millisecond and shares the parent's memory until written to.
Rejected: passing accepted connections from the parent to the workers (a system call and a wake-up more for each),
spawning new interpreters (slow, and nothing could be shared), making the parent a coro program (see above).

A little longer than most files: the states of a worker as its parent sees them belong together.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, NoReturn, Self

from coro._entry.loop import run
from coro._net.listeners import Listener, open_listeners
from coro._runtime import arguments, scheduler
from coro._runtime.output import write_stderr
from coro.exceptions import LoopError, WrongThreadError
from coro.prefork._worker import KILL_GRACE, Worker, signal_at_end

__all__ = ["Prefork", "PreforkError", "PreforkStatistics", "Worker", "WorkerEvent", "prefork"]

#: Seconds: the first pause before a worker is replaced that failed soon after its start; doubles up to the second.
BACKOFF_FIRST = 0.1
BACKOFF_MOST = 10.0
#: A worker that has lived so many seconds was healthy: its end counts as the first failure again.
HEALTHY = 10.0
#: One that ends with status 0 after so many seconds did it on purpose, to be replaced by a fresh one.
RECYCLED = 1.0
#: The parent looks at its workers at least this often (seconds), signals or not.
LOOK = 5.0
#: How a worker ends whose function raised, in sysexits(3) terms EX_SOFTWARE.
EXIT_FAILED = 70

_HANDLED = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD]

Kind = Literal["started", "ready", "exited", "failed", "killed", "reloading", "reloaded", "reload failed", "stopping"]


class PreforkError(Exception):
    """Workers failed again and again, and the parent has given up. All workers have ended."""


class WorkerEvent(NamedTuple):
    """Something that happened to a worker, or to all of them."""

    #: "started", "ready"; "exited" (because it was told to, or with status 0); "failed" (a signal or another status
    #: ended it, it was not ready in time, or the system refused to start it); "killed" (it did not end in time). About
    #: all workers: "reloading", "reloaded", "reload failed", "stopping".
    kind: Kind
    #: The worker (its index), None when it is about all.
    worker: int | None
    #: Its process, None when it is about all, or when none could be started.
    pid: int | None
    #: More about it as text; may be empty.
    detail: str


class PreforkStatistics(NamedTuple):
    """Counts of a supervisor."""

    #: Processes that exist.
    processes: int
    #: Workers that are ready and not told to end.
    ready: int
    #: Forks so far.
    started: int
    #: Workers that ended without being told to.
    failed: int
    #: Workers that had to be killed because they did not end in time.
    killed: int
    #: Reloads that were completed.
    reloads: int


class _Child:
    """A worker process as the parent sees it."""

    def __init__(self, slot: _Slot, pid: int, link: socket.socket) -> None:
        self.slot = slot
        self.pid = pid
        self.link = link
        self.started = time.monotonic()
        self.ready = self.told = self.killed = False
        self.heard = False  # nothing more is to be expected of the link
        self.deadline: float | None = None  # by when it must be ready, or gone


class _Slot:
    """The place of a worker: its index, who holds it, and who is going to after a reload."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.generation = 0
        self.current: _Child | None = None
        self.incoming: _Child | None = None
        self.failures = 0  # in a row
        self.refused = 0  # how often in a row the system gave no process
        self.start_at: float | None = 0.0  # monotonic; None while somebody holds it


def _report(what: WorkerEvent) -> None:
    """The default for ``on_event``: a line for what should not happen."""
    if what.kind in ("failed", "killed", "reload failed"):
        process = "" if what.pid is None else f" (process {what.pid})"
        who = "" if what.worker is None else f"worker {what.worker}{process} "
        write_stderr(f"{time.ctime()} prefork: {who}{what.kind}: {what.detail}\n")


class Prefork:
    """The supervisor behind ``coro.prefork`` as an object, for programs that inspect it, or direct it from
    ``on_event``.

    The parameters are those of ``coro.prefork``. ``addresses`` is where it listens, once the object is made.
    """

    def __init__(
        self,
        workers: int | None,
        serve: Callable[[Worker], object],
        address: Any = None,
        *,
        reuse_port: bool = False,
        backlog: int = 4096,
        drain_timeout: float = 30.0,
        start_timeout: float = 60.0,
        restart_limit: int = 5,
        restart_window: float = 60.0,
        on_event: Callable[[WorkerEvent], object] | None = None,
    ) -> None:
        if workers is None:
            workers = _cores()
        for name, number, least in (("workers", workers, 1), ("restart_limit", restart_limit, 0)):
            arguments.whole(number, name, least)
        if not callable(serve):
            raise TypeError(f"serve is a function of a Worker, not {type(serve).__name__}: {serve!r}")
        if on_event is not None and not callable(on_event):
            raise TypeError(f"on_event is a function of a WorkerEvent, not {on_event!r}")
        self._function = serve
        self._reuse_port = bool(reuse_port)
        self._backlog = backlog
        self._drain_timeout = arguments.seconds(drain_timeout, "drain_timeout")
        self._start_timeout = arguments.seconds(start_timeout, "start_timeout")
        self._restart_window = arguments.seconds(restart_window, "restart_window")
        self._restart_limit = restart_limit
        self._on_event = on_event or _report
        self._slots = [_Slot(index) for index in range(workers)]
        self._children: dict[int, _Child] = {}
        self._failures: deque[float] = deque()
        self._given_up = ""
        self._signals: set[int] = set()
        self._stopping = self._ran = self._running = self._reload_again = False
        self._reloading: deque[_Slot] | None = None
        self._started = self._failed = self._killed = self._reloads = 0
        self._listeners: list[Listener] = []
        if address is not None:
            # With reuse_port these only hold the port: a socket that does not listen gets no connections.
            self._listeners = open_listeners(address, backlog=-1 if reuse_port else backlog, reuse_port=reuse_port)
        #: Where the workers listen, as ``getsockname`` says.
        self.addresses: list[Any] = [listener.sock.getsockname() for listener in self._listeners]
        if reuse_port and not all(isinstance(a, tuple) for a in self.addresses):
            self._close_listeners()
            raise ValueError("reuse_port is for TCP addresses; a UNIX socket can only be shared")

    def __repr__(self) -> str:
        return f"<Prefork of {len(self._slots)} workers at {self.addresses}: {self.statistics()}>"

    # -- for callbacks

    def stop(self) -> None:
        """End as after SIGTERM: drain the workers, then return from ``run``. May be called by ``on_event``, by signal
        handlers and from other OS threads."""
        self._signals.add(signal.SIGTERM)
        self._wake()

    def reload(self) -> None:
        """Replace all workers as after SIGHUP. May be called like ``stop``."""
        self._signals.add(signal.SIGHUP)
        self._wake()

    def statistics(self) -> PreforkStatistics:
        """Counts for debugging."""
        ready = sum(1 for child in self._children.values() if child.ready and not child.told)
        return PreforkStatistics(len(self._children), ready, self._started, self._failed, self._killed, self._reloads)

    @property
    def pids(self) -> list[int]:
        """The worker processes that exist."""
        return list(self._children)

    def close(self) -> None:
        """Close the listening sockets of an object that will not run. The end of a ``with`` block does so, too.

        May be called again, and after ``run``. PreforkError while it runs: call ``stop`` then.
        """
        if self._running:
            raise PreforkError("a supervisor that runs cannot be closed; call stop()")
        self._ran = True
        self._close_listeners()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if not self._running:
            self.close()

    # -- the loop of the parent

    def run(self) -> PreforkStatistics:
        """Start the workers and supervise them until told to stop; see ``coro.prefork``."""
        if self._ran:
            raise PreforkError("a supervisor runs once, and not after close(); make a new one")
        if scheduler.coro_is_running():
            raise LoopError("prefork has to fork where no loop runs: call it instead of coro.run, not inside")
        if threading.current_thread() is not threading.main_thread():
            raise WrongThreadError("prefork handles signals: call it in the main OS thread")
        self._ran = True
        self._ring, self._bell = socket.socketpair()
        self._running = True
        self._ring.setblocking(False)
        self._bell.setblocking(False)
        before = {signum: signal.signal(signum, self._note) for signum in _HANDLED}
        wakeup = signal.set_wakeup_fd(self._bell.fileno(), warn_on_full_buffer=False)
        try:
            while True:
                self._reap()
                self._obey()
                if self._stopping and not self._children:
                    break
                look_at = self._fill(time.monotonic())
                self._go_on_reloading()
                look_at = min(look_at, self._watch(time.monotonic()))
                self._sleep(look_at - time.monotonic())
        finally:
            signal.set_wakeup_fd(wakeup)
            for signum, handler in before.items():
                signal.signal(signum, signal.SIG_DFL if handler is None else handler)
            self._kill_all()
            self._close_listeners()
            self._ring.close()
            self._bell.close()
            self._running = False
        if self._given_up:
            raise PreforkError(self._given_up)
        return self.statistics()

    def _note(self, signum: int, frame: Any) -> None:
        self._signals.add(signum)

    def _wake(self) -> None:
        if self._running:
            with contextlib.suppress(OSError):  # full: it will wake; closed: it has ended
                self._bell.send(b"\0")

    def _sleep(self, seconds: float) -> None:
        waiting = select.poll()
        waiting.register(self._ring, select.POLLIN)
        links = {child.link.fileno(): child for child in self._children.values() if not child.heard}
        for fd in links:
            waiting.register(fd, select.POLLIN)
        for fd, _ in waiting.poll(max(0.0, seconds) * 1000 + 1):
            child = links.get(fd)
            if child is not None:
                self._listen_to(child)
        with contextlib.suppress(BlockingIOError):
            while len(self._ring.recv(4096)) == 4096:
                continue

    def _listen_to(self, child: _Child) -> None:
        try:
            said = child.link.recv(1)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        child.heard = True
        if said:
            child.ready = True
            if not child.told:
                child.deadline = None
            self._say("ready", child)

    def _say(self, kind: Kind, child: _Child | None = None, detail: str = "") -> None:
        index, pid = (None, None) if child is None else (child.slot.index, child.pid)
        self._tell(WorkerEvent(kind, index, pid, detail))

    def _tell(self, what: WorkerEvent) -> None:
        try:
            self._on_event(what)
        except Exception:
            write_stderr(f"{time.ctime()} prefork: on_event failed for {what}\n{traceback.format_exc()}")

    # -- ends of workers

    def _reap(self) -> None:
        for child in list(self._children.values()):
            try:
                pid, status = os.waitpid(child.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status = child.pid, 0  # reaped by somebody else
            if pid:
                del self._children[pid]
                if not child.heard:
                    self._listen_to(child)  # its last word may be that it was ready
                child.link.close()
                self._ended(child, os.waitstatus_to_exitcode(status))

    def _ended(self, child: _Child, code: int) -> None:
        slot, lived = child.slot, time.monotonic() - child.started
        how = f"signal {-code}" if code < 0 else f"status {code}"
        if child.told and not child.killed:
            self._say("exited", child, how)
        elif code == 0 and child.ready and not child.killed:
            self._say("exited", child, f"{how} after {lived:.1f} s")
        elif not child.killed:
            self._failed += 1
            self._say("failed", child, f"{how} after {lived:.1f} s")
        if slot.incoming is child:
            slot.incoming = None
            if not child.told or child.killed:
                self._abandon_reload(f"the new worker {slot.index} ended with {how} before it was ready")
        if slot.current is not child:
            return
        slot.current = None
        clean = code == 0 and lived >= RECYCLED
        slot.failures = 0 if clean or lived >= HEALTHY else slot.failures + 1
        pause = 0.0 if slot.failures <= 1 else min(BACKOFF_FIRST * 2.0 ** min(slot.failures - 2, 30), BACKOFF_MOST)
        slot.start_at = time.monotonic() + pause
        if not clean and not self._stopping:
            self._count_failure(child, how)

    def _count_failure(self, child: _Child, how: str) -> None:
        """Has it become pointless?"""
        now = time.monotonic()
        self._failures.append(now)
        while self._failures and self._failures[0] < now - self._restart_window:
            self._failures.popleft()
        if len(self._failures) > self._restart_limit * len(self._slots):
            self._given_up = (
                f"workers ended by themselves {len(self._failures)} times within {self._restart_window:g} seconds, "
                f"the last one ({child.slot.index}) with {how}; see what they wrote to stderr"
            )
            self._stop()

    def _terminate(self, child: _Child, now: float) -> None:
        child.told = True
        child.deadline = now + self._drain_timeout + KILL_GRACE
        self._send(child, signal.SIGTERM)

    def _send(self, child: _Child, signum: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signum)

    def _kill_all(self) -> None:
        """No worker outlives run(), whatever ended it."""
        for child in self._children.values():
            self._send(child, signal.SIGKILL)
        for child in self._children.values():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, 0)
            child.link.close()
        self._children.clear()

    # -- what is to do

    def _obey(self) -> None:
        while self._signals:
            signum = self._signals.pop()
            if signum in (signal.SIGTERM, signal.SIGINT):
                if self._stopping:  # said twice: somebody is in a hurry
                    for child in self._children.values():
                        child.deadline = 0.0
                self._stop()
            elif signum == signal.SIGHUP and not self._stopping:
                if self._reloading is not None:
                    self._reload_again = True
                else:
                    self._say("reloading")
                    self._reloading = deque(self._slots)

    def _stop(self) -> None:
        if not self._stopping:
            self._stopping = True
            self._reloading = None
            for listener in self._listeners:
                listener.refuse()  # before the workers accept what is left, and close their copies
            self._close_listeners()
            self._say("stopping", None, self._given_up)
        now = time.monotonic()
        for child in self._children.values():
            if not child.told:
                self._terminate(child, now)

    def _watch(self, now: float) -> float:
        """Kill what is overdue; returns when to look again."""
        next_time = now + LOOK
        for child in self._children.values():
            if child.deadline is None:
                continue
            if now < child.deadline:
                next_time = min(next_time, child.deadline)
            elif not child.killed:
                child.killed = True
                self._killed += 1
                why = "was not ready in time; does it call ready()?" if not child.told else "did not end in time"
                self._say("killed", child, why)
                self._send(child, signal.SIGKILL)
        return next_time

    def _fill(self, now: float) -> float:
        """Start workers where there are none; returns when to look again."""
        for slot in self._slots:
            if self._stopping or slot.start_at is None or now < slot.start_at:
                continue
            slot.start_at = None
            slot.current = self._fork(slot)
        waiting = [slot.start_at for slot in self._slots if slot.start_at is not None]
        return now + LOOK if self._stopping else min(waiting, default=now + LOOK)

    def _go_on_reloading(self) -> None:
        while self._reloading is not None:
            slot = self._reloading[0] if self._reloading else None
            if slot is None:
                self._reloads += 1
                self._reloading = deque(self._slots) if self._reload_again else None
                self._reload_again = False
                self._say("reloaded")
                continue
            if slot.incoming is None:
                if slot.current is None:
                    self._reloading.popleft()  # its next worker is new anyway
                    continue
                slot.incoming = self._fork(slot)
                return
            if not slot.incoming.ready:
                return
            old, slot.current, slot.incoming = slot.current, slot.incoming, None
            slot.start_at = None
            slot.failures = 0
            if old is not None:
                self._terminate(old, time.monotonic())
            self._reloading.popleft()

    def _abandon_reload(self, why: str) -> None:
        if self._reloading is not None:
            self._reloading = None
            self._reload_again = False
            self._say("reload failed", None, f"{why}; the old workers that are left go on")

    # -- forking

    def _fork(self, slot: _Slot) -> _Child | None:
        """A new worker in this slot; None when the system refuses (it is tried again)."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as e:  # no descriptor is left, most likely
            self._refused(slot, e)
            return None
        ours.setblocking(False)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()  # or the child would write it again
        # A signal that comes before the child has handlers of its own would be noted in a copy of our memory.
        old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        try:
            parent = os.getpid()
            pid = os.fork()
            if pid == 0:
                self._in_child(slot, parent, theirs, ours, old_mask)
        except OSError as e:
            ours.close()
            self._refused(slot, e)
            return None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
            theirs.close()
        child = _Child(slot, pid, ours)
        child.deadline = child.started + self._start_timeout
        slot.refused = 0
        slot.generation += 1
        self._started += 1
        self._children[pid] = child
        self._say("started", child)
        return child

    def _refused(self, slot: _Slot, error: OSError) -> None:
        """The system gives no descriptor or process for a new worker. The others go on, and what is lacking may come
        back at any time."""
        pause = min(BACKOFF_FIRST * 2.0 ** min(slot.refused, 30), BACKOFF_MOST)
        if slot.current is None:
            slot.start_at = time.monotonic() + pause
        slot.refused += 1
        self._tell(WorkerEvent("failed", slot.index, None, f"cannot be started: {error}; it is tried again"))
        if self._reloading is not None:
            self._abandon_reload(f"the new worker {slot.index} cannot be started")

    def _in_child(
        self, slot: _Slot, parent: int, link: socket.socket, other_end: socket.socket, mask: set[Any]
    ) -> NoReturn:
        code: Any = EXIT_FAILED
        try:
            worker = Worker(slot.index, slot.generation, self._drain_timeout, link)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            # Ctrl-C and a hang-up of the terminal reach the whole process group; the parent decides what they mean.
            # Not SIG_IGN, which programs that the worker runs would inherit.
            for signum in (signal.SIGINT, signal.SIGHUP):
                signal.signal(signum, lambda signum, frame: None)
            signal.signal(signal.SIGTERM, worker._on_signal)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            self._ring.close()
            self._bell.close()
            other_end.close()
            for child in self._children.values():
                child.link.close()
            signal_at_end(link)
            if os.getppid() == parent:
                code = self._work(worker)
        except BaseException:
            write_stderr(f"{time.ctime()} worker {slot.index} (process {os.getpid()}):\n{traceback.format_exc()}")
        finally:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(BaseException):
                    stream.flush()
            os._exit(code if isinstance(code, int) and not isinstance(code, bool) else EXIT_FAILED)

    def _work(self, worker: Worker) -> Any:
        if self._reuse_port:
            self._close_listeners()
            worker.listeners = open_listeners(list(self.addresses), backlog=self._backlog, reuse_port=True)
        else:
            # Its copies of the descriptors are the worker's to close; the socket lives on in the other processes.
            worker.listeners = [Listener(listener.sock, True) for listener in self._listeners]
        try:
            run(worker._run, self._function, not worker.listeners)
        except SystemExit as e:
            return 0 if e.code is None else e.code if isinstance(e.code, int) else 1
        return 0

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()


def _cores() -> int:
    """The processors this process may use."""
    if hasattr(os, "process_cpu_count"):
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


def prefork(
    workers: int | None,
    serve: Callable[[Worker], object],
    address: Any = None,
    *,
    reuse_port: bool = False,
    backlog: int = 4096,
    drain_timeout: float = 30.0,
    start_timeout: float = 60.0,
    restart_limit: int = 5,
    restart_window: float = 60.0,
    on_event: Callable[[WorkerEvent], object] | None = None,
) -> PreforkStatistics:
    """Run ``serve(worker)`` in several processes, each with a loop of its own, and supervise them.

    Call it in the main OS thread, instead of ``coro.run``. It returns when it was told to stop and all workers have
    ended.

    workers: how many processes; None for one per processor that this process may use. serve: a function of a
    ``coro.prefork.Worker``; ``worker.serve(handler)`` is all it has to do. address: where to listen, as for
    ``coro.Server``; None for workers that do not. reuse_port: each worker opens a listener of its own with SO_REUSEPORT
    instead of sharing one. drain_timeout: seconds that a worker has for its connections when it has to end; handlers
    that take longer get Shutdown, and a few seconds later the process is killed. start_timeout: seconds in which a new
    worker must have started a server or called ``worker.ready()``. on_event: called with a ``WorkerEvent``, in the
    parent; by default, failures are written to stderr.

    A worker that ends by itself is replaced: at once if it had worked for a while, otherwise after a pause. Pauses
    double from 0.1 to 10 seconds. The parent gives up when this happens more than ``restart_limit`` times per worker
    (on average) within ``restart_window`` seconds. If the system refuses a new process (no descriptor is left, for
    example), the other workers continue, and the parent tries again after such pauses, without a limit. A worker whose
    ``serve`` returns after more than a second is replaced and not counted: so a program can renew its processes.

    Signals to the parent: SIGTERM and SIGINT stop it in order, a second one at once. SIGHUP replaces one worker after
    the other; each new one is ready before the old one stops accepting. If the parent dies, the workers end as after
    SIGTERM.

    Raises PreforkError when it gave up; what ``coro.Server`` raises for the address; LoopError inside a loop;
    WrongThreadError outside the main OS thread; TypeError and ValueError for malformed arguments.
    """
    return Prefork(
        workers,
        serve,
        address,
        reuse_port=reuse_port,
        backlog=backlog,
        drain_timeout=drain_timeout,
        start_timeout=start_timeout,
        restart_limit=restart_limit,
        restart_window=restart_window,
        on_event=on_event,
    ).run()
