"""``coro.serve(handler, address)`` and ``coro.Server``: a stream server with a thread for each connection.

A server is three kinds of threads: a runner, which owns two groups; an acceptor for each listening socket, in the
first; and one for each connection, in the second.  Ending is the order in which the runner leaves its groups: acceptors
first, then the listeners are closed, then connections are waited for.  So "drain" is "stop the acceptors and wait",
and nothing a connection does reaches the others: what its handler raises goes to the exception notifier.

Limits.  ``max_connections`` is the limit of the second group.  An acceptor waits for room *before* it accepts, so that
surplus clients queue in the kernel, not in our memory, and get served by another process if one shares the socket.
Several acceptors may each find the last place free: what they accept too much, at most one connection each, waits as a
queued member of the group; handlers never run in greater number than allowed.

When the process is out of descriptors or the kernel out of buffers, ``accept_many`` itself pauses and tells (see
_net/sock_receive.pxi).  Other errors of accept(2) belong to one connection ("Error handling" in accept(2): network
errors that were pending on the new socket are reported by accept) or come from a packet filter (EPERM): they are
counted and followed by a pause.  Those that say that the listener itself is no good end the server.

Cost: one thread and three small objects a connection, no task switch between accepting and the first handler's start.
Rejected: handlers as pooled threads (a new thread costs a few microseconds here), closing connections above the limit
(clients see resets instead of waiting), level-triggered listeners (the acceptor asks the kernel anew before each wait
anyway, so that nothing is stranded when processes share a listener).
"""

from __future__ import annotations

import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Literal, NamedTuple, SupportsFloat, TypeVar

from coro import oserrors
from coro._net.listeners import Listener, open_listeners
from coro._net.sock import sock
from coro._runtime import arguments, escalation, scheduler
from coro._sync.conditions import event
from coro._sync.group_calls import ServerCall
from coro.exceptions import ClosedError, LoopError, Shutdown, TimeoutError
from coro.groups import GroupError, check_limit, group
from coro.signal_handler import register, unregister

__all__ = ["Server", "ServerError", "ServerStatistics", "serve"]

#: What a handler gets: the sock, or what ``wrap`` made of it.
_S = TypeVar("_S")

#: Connections accepted in one go: the acceptor runs again after those threads had their first turn.
BATCH = 64
#: Seconds of rest after an error of accept(2) that is not our lack of resources.
ERROR_PAUSE = 0.05
#: Seconds without a new connection after which a listener that refuses others has none left: longer than a round trip,
#: within which a handshake of TCP's that has begun is completed.
LAST_LOOK = 0.1
#: Seconds that the last accepting may take altogether.
LAST_ACCEPTS = 1.0
#: Seconds that a handshake (``wrap``) may take: enough for a slow line, too short to hoard connections.
WRAP_TIMEOUT = 10.0
#: Seconds that closing a wrapped stream may take (a farewell message to a peer that does not read).
CLOSE_TIMEOUT = 1.0

_FATAL = (oserrors.EBADF, oserrors.EINVAL, oserrors.ENOTSOCK, oserrors.EOPNOTSUPP, oserrors.EFAULT)

# The servers of this process that are not at their end.
_live: dict[Server, None] = {}
# In a worker process of prefork: what to call when a server has started.
_started: Callable[[Server], object] | None = None


def _supervised(started: Callable[[Server], object]) -> None:
    """From now on somebody who is told of each server that starts ends them all: ``serve`` itself minds no signal."""
    global _started
    _started = started


def _running() -> list[Server]:
    """The servers that are not at their end."""
    return list(_live)


class ServerError(Exception):
    """The server cannot do this now: it was started before, or one of its own handlers asked it to wait for all of
    them."""


class ServerStatistics(NamedTuple):
    """State of a server; debugging information."""

    #: Connections whose handler (or ``wrap``) runs.
    active: int
    #: Accepted connections that wait for room under ``max_connections``.
    queued: int
    #: Connections accepted so far.
    accepted: int
    #: Connections whose handler has ended so far, for whatever reason.
    finished: int
    #: Handlers that raised something other than Shutdown, and did not end by a reset.
    failed: int
    #: Connections given up because ``wrap`` failed or took too long.
    wrap_failures: int
    #: Errors of accept(2) that were not waited out by the socket itself.
    accept_errors: int
    #: How many may be active at once, or None.
    max_connections: int | None
    #: Whether it accepts connections.
    accepting: bool
    #: Handlers that ended because their client had gone; they are not among the failed ones.
    resets: int


class Server:
    """``with coro.Server(handler, address) as server:`` accepts connections and calls ``handler(conn, address)`` for
    each, in a thread of its own.

    ``handler`` gets the connected sock and the peer's address. When it returns or raises, the connection is closed; an
    exception goes to the exception notifier, and the server goes on. A client that goes away is no failure: when the
    handler raises ConnectionResetError or BrokenPipeError because its own connection was reset, coro.tls.TruncatedError
    because it ended without TLS's farewell, or ClosedError for it while the server is ending, that only counts in the
    statistics, unless ``report_resets``.

    ``address`` is ``(host, port)``, the path of a UNIX socket (str, bytes, path object), a listening socket (a ``sock``
    or one of the standard library; it is not closed), or a list of these. Host None or ``""`` is every address of the
    machine, IPv4 and IPv6 in one socket; port 0 is a free one, see ``addresses``. A UNIX socket left over by a process
    that has died is replaced, and the file is removed at the end.

    ``max_connections``: while so many handlers run, the server does not accept; further connections queue in the
    kernel. ``backlog`` is how many may queue there. ``reuse_port`` sets SO_REUSEPORT, so that several processes can
    listen on one port. ``nodelay`` sets TCP_NODELAY on the connections. ``wrap(conn)`` is called in the connection's
    own thread before the handler, and the handler gets what it returns: use it for a TLS handshake. ``wrap_timeout`` is
    how many seconds it may take. A ``wrap`` that fails with OSError or EOFError, or takes too long, only counts in the
    statistics; other exceptions go to the notifier. The wrapped stream's ``close`` is called before the connection's.
    ``daemon``: the server does not keep the loop from ending.

    The sockets listen as soon as the object is made; connections are accepted from ``start`` on, which the ``with``
    block calls. Leaving the block calls ``close``.

    Raises OSError, with the address in its text, when it cannot listen there; coro.NameError for a host name without
    address; TypeError and ValueError for malformed arguments, an ``async def`` function among them.
    """

    def __init__(
        self,
        handler: Callable[[_S, Any], object],
        address: Any,
        *,
        max_connections: int | None = None,
        backlog: int = 4096,
        reuse_port: bool = False,
        nodelay: bool = True,
        wrap: Callable[[sock], _S] | None = None,
        wrap_timeout: float = WRAP_TIMEOUT,
        daemon: bool = False,
        report_resets: bool = False,
    ) -> None:
        if not callable(handler):
            raise TypeError(f"the handler is a function of a connection and an address, not {handler!r}")
        scheduler._check_function(handler)
        if wrap is not None and not callable(wrap):
            raise TypeError(f"wrap is a function of a connection that returns a stream, not {wrap!r}")
        if wrap is not None:
            scheduler._check_function(wrap)
        check_limit(max_connections, "max_connections", "connections that are handled at once")
        self._wrap_timeout = arguments.seconds(wrap_timeout, "wrap_timeout")
        self._handler: Callable[[Any, Any], object] = handler
        self._wrap: Callable[[sock], Any] | None = wrap
        self._daemon = bool(daemon)
        self._most = max_connections
        self._report_resets = bool(report_resets)
        self._accepted = self._failed = self._resets = self._wrap_failures = self._accept_errors = 0
        self._acceptors: group | None = None
        self._connections: group | None = None
        self._error: BaseException | None = None
        self._started = self._stopping = self._closing = False
        self._ended = event()
        self._listeners: list[Listener] = open_listeners(
            address, backlog=backlog, reuse_port=reuse_port, nodelay=nodelay
        )
        #: Where it listens, as ``getsockname`` says: one entry a listening socket.
        self.addresses: list[Any] = [listener.sock.getsockname() for listener in self._listeners]

    def __repr__(self) -> str:
        s = self.statistics()
        state = "ended" if self._ended.is_set() else "accepting" if s.accepting else "not accepting"
        where = ", ".join(map(str, self.addresses))
        return f"<Server on {where}: {state}, {s.active} connections>"

    # -- from outside

    def start(self) -> Server:
        """Begin to accept; returns the server. Does not wait. ServerError when it was started or closed before;
        LoopError while the loop ends; WrongThreadError in another OS thread than the loop's."""
        if self._started or self._stopping:
            raise ServerError(f"a server is started once, and not after its end; make a new one: {self!r}")
        scheduler.spawn(self._run, thread_name=f"server on {self.addresses[0]}", daemon=self._daemon)
        self._started = True
        return self

    def stop(self) -> None:
        """Accept no more connections; existing ones continue. Does not wait. Connections that the kernel has queued
        are accepted first, as far as ``max_connections`` allows, unless the listening socket is the caller's."""
        self._stopping = True
        if self._acceptors is not None:
            self._acceptors.shutdown()
        elif not self._started:
            self._finish()

    def shutdown(self) -> None:
        """Accept no more connections and send Shutdown to all handlers. Does not wait."""
        self._closing = True
        self.stop()
        if self._connections is not None:
            self._connections.shutdown()

    def wait(self, timeout: SupportsFloat | None = None) -> None:
        """Wait until the server has ended: it was stopped, and all handlers have returned.

        ``timeout`` is a number of seconds, 0 to look only, None for ever; ``coro.TimeoutError`` when it is over, and
        the server goes on. TypeError or ValueError when it is not a number. Raises the OSError or ClosedError that
        ended it, if one did; ServerError in one of its own handlers.
        """
        self._refuse_inside("wait")
        limit = scheduler._CallLimit(timeout, "Server.wait()")
        if not self._ended.is_set():
            with limit:
                self._ended.wait()
        if self._error is not None:
            raise self._error.with_traceback(None)

    def serve_until_stopped(self, drain_timeout: SupportsFloat | None = None) -> None:
        """Start it unless it was started, wait until it has ended as ``wait`` does, and close it in any case.

        drain_timeout: if not None, SIGTERM makes the server drain with that limit in seconds instead of ending the
        loop; only in the main OS thread. Under ``coro.prefork`` that makes no difference, because SIGTERM drains every
        server there. TypeError or ValueError when it is not a number; SimultaneousError when SIGTERM has another
        handler; else what ``wait`` raises.
        """
        seconds = None if drain_timeout is None else arguments.seconds(drain_timeout, "drain_timeout")
        with self:
            if seconds is None or _started is not None:
                self.wait()
            else:
                with _drained_by_sigterm(self, seconds):
                    self.wait()

    def drain(self, timeout: SupportsFloat | None = None) -> bool:
        """End in order: accept no more connections, and wait until the handlers have returned.

        After ``timeout`` seconds (None: no limit) those that still run get Shutdown and are waited for. Returns
        whether all had returned by themselves. ServerError in one of the server's own handlers; TypeError or
        ValueError when ``timeout`` is not a number.
        """
        self._refuse_inside("drain")
        if timeout is not None:
            timeout = arguments.number_of_seconds(timeout, "timeout")
        self.stop()
        if timeout is None:
            self._ended.wait()
            return True
        with scheduler.move_on_after(timeout) as scope:
            self._ended.wait()
        if scope.expired:
            self.shutdown()
            self._ended.wait()
        return not scope.expired

    def close(self) -> None:
        """Shut down and wait for the end. Does nothing when the server has ended. In one of the server's own handlers
        it does not wait."""
        self.shutdown()
        if not self._is_inside() and not self._ended.is_set():
            self._ended.wait()

    def statistics(self) -> ServerStatistics:
        """Counts for debugging."""
        active = queued = finished = 0
        if self._connections is not None:
            s = self._connections.statistics()
            active, queued, finished = s.running, s.queued, s.finished
        return ServerStatistics(
            active,
            queued,
            self._accepted,
            finished,
            self._failed,
            self._wrap_failures,
            self._accept_errors,
            self._most,
            self._started and not self._stopping,
            self._resets,
        )

    def __enter__(self) -> Server:
        if not self._started:
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        self.close()
        return False

    def _is_inside(self) -> bool:
        return self._connections is not None and scheduler.current() in self._connections.threads

    def _refuse_inside(self, what: str) -> None:
        if self._is_inside():
            raise ServerError(f"{what}() in one of the server's own handlers would wait for itself; use stop() there")

    # -- the runner

    def _run(self) -> None:
        _live[self] = None
        try:
            with group(self._most) as self._connections:
                with group() as self._acceptors:
                    if self._stopping:
                        self._acceptors.shutdown()
                    else:
                        for listener in self._listeners:
                            self._acceptors.spawn(
                                self._accept, listener, thread_name=f"acceptor on {listener.sock.getsockname()}"
                            )
                        if _started is not None:
                            _started(self)
                self._close_listeners()
                if self._closing:
                    self._connections.shutdown()
        finally:
            self._finish()

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()

    def _finish(self) -> None:
        self._stopping = True
        _live.pop(self, None)
        self._close_listeners()
        self._ended.set()

    # -- acceptors

    def _accept(self, listener: Listener) -> None:
        connections = self._connections
        assert connections is not None
        try:
            while True:
                connections.wait_for_room()
                try:
                    self._spawn(connections, listener.sock.accept_many(self._room(connections)))
                except (*_FATAL, ClosedError) as e:
                    self._fail(e)
                    return
                except OSError:
                    self._accept_errors += 1
                    scheduler.sleep_relative(ERROR_PAUSE)
        except (GroupError, LoopError):
            return  # no more threads: the server or the loop is ending
        except Shutdown:
            if self._stopping and not self._closing and listener.ours:
                self._accept_rest(connections, listener)
            raise

    def _room(self, connections: group) -> int:
        if self._most is None:
            return BATCH
        return max(1, min(BATCH, (self._most - connections.statistics().running) // len(self._listeners)))

    def _spawn(self, connections: group, batch: list[Any]) -> None:
        while batch:
            conn, address = batch.pop(0)
            self._accepted += 1
            try:
                if connections.closed:
                    raise connections._too_late(self._handler)
                call = ServerCall(connections, self._handler, self, conn, address)
                connections._start(call, f"connection from {address}", self._daemon)
            except BaseException:
                conn.close()
                for conn, _ in batch:
                    conn.close()
                raise

    def _accept_rest(self, connections: group, listener: Listener) -> None:
        """What the kernel has queued, or is just making, would be reset when the listener is closed."""
        listener.refuse()
        look = select.poll()
        look.register(listener.sock.fileno(), select.POLLIN)
        last = False
        try:
            with scheduler.timeout(LAST_ACCEPTS):
                while self._most is None or connections.statistics().running < self._most:
                    if look.poll(0):
                        self._spawn(connections, [listener.sock.accept()])
                        last = False
                    elif last:
                        return
                    else:
                        scheduler.sleep_relative(LAST_LOOK)
                        last = True
        except (TimeoutError, OSError, GroupError, LoopError):
            return  # it went away, or we must

    def _fail(self, exc: BaseException) -> None:
        """A listener is no good any more: end in order, and have wait() say why."""
        self._error = exc
        self.stop()

    # -- connections

    def _handler_failed(self, exc: BaseException, conn: sock) -> None:
        """The handler of this connection has raised that; it is the exception that is handled now."""
        if self._is_farewell(exc, conn):
            self._resets += 1
            if not self._report_resets:
                return
        else:
            self._failed += 1
        scheduler._notify()

    def _is_farewell(self, exc: BaseException, conn: sock) -> bool:
        """Does this say only that the client of this connection has gone, or that the server is ending? A reset of
        another connection, of a data base, say, is a failure like any other."""
        if isinstance(exc, BaseExceptionGroup):
            return all(self._is_farewell(one, conn) for one in exc.exceptions)
        if isinstance(exc, ClosedError):
            return self._stopping and conn.closed
        if getattr(exc, "_sock", None) is conn and isinstance(exc, ConnectionError):
            return True  # a TLS client that went without a farewell
        return isinstance(exc, (ConnectionResetError, BrokenPipeError)) and conn._peer_reset

    def _wrapped(self, conn: sock) -> Any:
        """What the handler gets, or None."""
        assert self._wrap is not None
        limit = scheduler.timeout(self._wrap_timeout)
        try:
            with limit:
                return self._wrap(conn)
        except (OSError, EOFError):
            self._wrap_failures += 1
        except TimeoutError:
            if not limit.expired:
                raise
            self._wrap_failures += 1
        except Exception:
            self._wrap_failures += 1
            scheduler._notify()
        return None

    def _close_stream(self, stream: Any) -> None:
        close = getattr(stream, "close", None)
        if close is None:
            return
        try:
            scheduler.with_timeout(CLOSE_TIMEOUT, close)
        except (OSError, EOFError, TimeoutError):
            return  # the peer has gone, or does not listen
        except Exception:
            scheduler._notify()


# -- the blocking form

_draining: dict[Server, float] = {}  # by SIGTERM: server -> seconds
_ignored: Any = None  # the handler that ``register`` has set


def _on_sigterm(signum: int) -> None:
    for server, seconds in list(_draining.items()):
        scheduler.spawn(server.drain, seconds, thread_name="drain after SIGTERM")


@contextmanager
def _drained_by_sigterm(server: Server, seconds: float) -> Iterator[None]:
    global _ignored
    if not _draining:
        register(signal.SIGTERM, _on_sigterm)
        _ignored = signal.signal(signal.SIGTERM, _note_sigterm)
    _draining[server] = seconds
    try:
        yield
    finally:
        del _draining[server]
        if not _draining:
            if signal.getsignal(signal.SIGTERM) is _note_sigterm:
                signal.signal(signal.SIGTERM, _ignored)
            unregister(signal.SIGTERM)
            if not scheduler._exit_pending():
                escalation.reset()


def _note_sigterm(signum: int, frame: object) -> None:
    """Runs between two bytecodes, also of a thread that lets neither the loop nor ``_on_sigterm`` run."""
    escalation.asked(signum, max(_draining.values(), default=0.0))


def serve(
    handler: Callable[[_S, Any], object],
    address: Any,
    *,
    drain_timeout: float | None = None,
    started: Callable[[Server], object] | None = None,
    max_connections: int | None = None,
    backlog: int = 4096,
    reuse_port: bool = False,
    nodelay: bool = True,
    wrap: Callable[[sock], _S] | None = None,
    wrap_timeout: float = WRAP_TIMEOUT,
    report_resets: bool = False,
) -> None:
    """Serve until told to stop: ``handler(conn, address)`` in a thread for each connection.

    The calling thread waits. ``serve`` returns after ``stop``, ``drain`` or ``close`` of the server, when all handlers
    have returned. ``started(server)`` is called once the server listens. If the calling thread is interrupted, the
    server is closed. drain_timeout: if not None, SIGTERM makes the server drain with that limit in seconds, and
    ``serve`` return, instead of ending the loop; only in the main OS thread. Under ``coro.prefork`` this is not needed,
    because SIGTERM drains every server. The other parameters are those of ``coro.Server``.

    Raises what ``coro.Server`` raises, and OSError when a listening socket fails for good; SimultaneousError when
    ``drain_timeout`` is given and SIGTERM has another handler.
    """
    if started is not None and not callable(started):
        raise TypeError(f"started is a function of the server, not {started!r}")
    if drain_timeout is not None:
        drain_timeout = arguments.seconds(drain_timeout, "drain_timeout")
    scheduler._running_thread()  # refuse before anything is opened
    server = Server(
        handler,
        address,
        max_connections=max_connections,
        backlog=backlog,
        reuse_port=reuse_port,
        nodelay=nodelay,
        wrap=wrap,
        wrap_timeout=wrap_timeout,
        report_resets=report_resets,
    )
    with server:
        if started is not None:
            started(server)
        server.serve_until_stopped(drain_timeout)


def _after_fork_in_child() -> None:
    _live.clear()
    _draining.clear()
