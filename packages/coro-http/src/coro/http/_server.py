"""``coro.http.server`` and ``coro.http.serve``: an HTTP server on `coro.Server`.

`server` holds the settings and the handlers; connections and requests are in `_connection`. It decides three things
about a request: who answers it, what becomes of what that returned, and what is answered when it failed. What a client
is told of a failure is the status and a sentence; the traceback goes to the log.

Cost: one more thread per server, which ends what is late.
"""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self

import coro
from coro.exceptions import LoopError, SimultaneousError
from coro.http import h1
from coro.http._connection import LOG, LOG_HANDLERS, Registry, connection, http_request
from coro.http.exceptions import HTTPException, RemoteError
from coro.http.routing import App
from coro.http.routing import answer as answer_value

__all__ = ["serve", "server"]

#: Seconds that a TLS handshake or a PROXY header may take.
HANDSHAKE_TIMEOUT = 10.0
#: Seconds in which an idle connection may still send a request after the server began to end.
LINGER_IDLE = 1.0
#: Characters of the field Accept that are looked at.
MAX_ACCEPT = 1000
#: Descriptors that connections leave to the program: for files, modules to import, connections to databases.
RESERVE = 16
#: Seconds between attempts of the classic ``start`` to get an address.
RETRY_PAUSE = 1.0


class _Classic:
    """Classic handlers: the first whose ``match`` is true gets ``handle_request``, and may answer later."""

    def __init__(self, handlers: list[Any]) -> None:
        self.handlers = handlers

    def __call__(self, request: http_request) -> Any:
        picked = request.connection.pick_handler(request)
        if picked is None:
            raise HTTPException(404)
        result = picked.handle_request(request)
        if result is None and not request.finished and not request.is_upgraded():
            request.wait_until_done()
        return result


class _Inner(coro.Server):
    """The server below; when it is to end, connections are told."""

    outer: server

    def stop(self) -> None:
        self.outer._ending()
        super().stop()


class _Stream:
    """What a connection's thread gets after the handshake: the sock, and the stream over it."""

    __slots__ = ("is_tls", "raw", "remote", "stream")

    def __init__(self, raw: Any, stream: Any, remote: Any, is_tls: bool) -> None:
        self.raw, self.stream, self.remote, self.is_tls = raw, stream, remote, is_tls

    def close(self) -> None:
        if self.stream is not self.raw:
            self.stream.close()


class server:
    """An HTTP server: ``with coro.http.server(app, address=("127.0.0.1", 8080)) as s: s.wait()``.

    ``handler`` is a function of a request, an `App`, or a classic handler with ``match`` and ``handle_request``; more
    of the latter come by ``push_handler``. ``address`` is what `coro.Server` takes: (host, port), the path of a UNIX
    socket, a listening socket, or a list of these. It listens at once and accepts from ``start`` or the ``with`` block
    on.

    ``tls``: a context object, or an `ssl.SSLContext`. ``access_log``: a function of a finished request, or the name of
    a format of `coro.http.access_log`. ``trusted_proxies``: networks of proxies that are believed, and
    ``trusted_headers``: the names of the fields that they set or remove, whatever the client sends: of
    x-forwarded-for, x-forwarded-proto, x-forwarded-host and forwarded. ``proxy_protocol``: whether each connection
    begins with a PROXY header (only behind a proxy that sends one); the address in it is then what has to be trusted.
    ``server_name`` is sent as Server, None for no such field; ``max_connections`` limits the connections served at
    once (None: as many as there are descriptors when it begins to listen, but for 16, so that handlers can open files
    and connections of their own), ``max_body`` the bytes that ``request.read()`` takes.

    Times are in seconds: ``head_timeout`` for a request's head, ``idle_timeout`` between requests, ``write_timeout``
    for each 256 KiB sent, ``handshake_timeout`` for TLS, ``drain_timeout`` for an end in order. ``body_rate`` is the
    least number of bytes a second of a body, counted after ``body_grace`` seconds of waiting, 0 for none. ``max_line``,
    ``max_header``, ``max_headers`` and ``max_header_count`` limit heads, see `coro.http.h1.Connection`.
    ``log_limit`` is how many messages about refused requests and failing handlers go to the log in ten seconds, so that
    no client fills a disk with them: others are counted, and their number is logged. None is no limit.

    Raises what `coro.Server` raises.
    """

    #: Classic: seconds within which a request has to be read.
    client_timeout = 30

    def __init__(
        self,
        handler: Any = None,
        address: Any = None,
        *,
        tls: Any = None,
        access_log: Callable[[http_request], object] | str | None = None,
        server_name: str | None = "coro",
        max_connections: int | None = None,
        backlog: int = 4096,
        reuse_port: bool = False,
        trusted_proxies: Iterable[str] = (),
        trusted_headers: Iterable[str] = ("x-forwarded-for", "x-forwarded-proto"),
        proxy_protocol: bool = False,
        head_timeout: float | None = None,
        idle_timeout: float = 75.0,
        write_timeout: float = 30.0,
        handshake_timeout: float = HANDSHAKE_TIMEOUT,
        body_rate: float = 1024.0,
        body_grace: float = 10.0,
        drain_timeout: float | None = 30.0,
        max_body: int = 16 * 1024 * 1024,
        max_line: int = 8192,
        max_header: int = 16384,
        max_headers: int = 65536,
        max_header_count: int = 128,
        compress: bool = True,
        log_limit: int | None = 100,
    ) -> None:
        self.handlers: list[Any] = []
        self.tls = _tls_context(tls)
        self.compress = compress
        self.drain_timeout = drain_timeout
        self.proxy_protocol = proxy_protocol
        self._handshake_timeout = handshake_timeout
        self._options: dict[str, Any] = {
            "max_connections": max_connections,
            "backlog": backlog,
            "reuse_port": reuse_port,
        }
        self.shutdown_flag = False
        self._sweeper = 0
        self._trusted = None
        if trusted_proxies:
            from coro.http.forwarded import Trusted

            self._trusted = Trusted(trusted_proxies, trusted_headers)
        self._json_errors = isinstance(handler, App)
        routes = getattr(handler, "fixed_routes", {}) if self._trusted is None else {}
        if isinstance(access_log, str):
            from coro.http.access_log import to_stderr

            access_log = to_stderr(access_log)
        self.registry = Registry(
            self._handler(handler),
            self._answer,
            self._failed,
            self._connect,
            log=access_log,
            routes=routes,
            limits={
                "max_line": max_line,
                "max_header": max_header,
                "max_headers": max_headers,
                "max_header_count": max_header_count,
            },
            head_timeout=self.client_timeout if head_timeout is None else head_timeout,
            idle_timeout=idle_timeout,
            write_timeout=write_timeout,
            body_rate=body_rate,
            body_grace=body_grace,
            max_body=max_body,
            log_limit=log_limit,
            server_line=b"" if server_name is None else f"server: {server_name}\r\n".encode("latin-1"),
        )
        self.inner: _Inner | None = None
        if address is not None:
            self._listen(address)

    def __repr__(self) -> str:
        counts = self.registry.counts()
        where = ", ".join(map(str, self.addresses)) or "nothing"
        return f"<{type(self).__name__} on {where}: {counts['open']} connections, {counts['requests']} requests>"

    # -- who answers

    def _handler(self, handler: Any) -> Callable[[http_request], Any]:
        if handler is None or hasattr(handler, "handle_request"):
            if handler is not None:
                self.handlers.append(handler)
            chosen: Callable[[http_request], Any] = _Classic(self.handlers)
        elif callable(handler):
            chosen = handler
        else:
            raise TypeError(f"a handler is a function of a request, or has match and handle_request: {handler!r}")
        if self._trusted is None:
            return chosen
        trusted = self._trusted

        def behind_proxy(request: http_request) -> Any:
            trusted.apply(request)
            return chosen(request)

        return behind_proxy

    def push_handler(self, handler: Any) -> None:
        """Add a classic handler, an object with ``match(request)`` and ``handle_request(request)``."""
        self.handlers.append(handler)

    def _answer(self, request: http_request, value: Any) -> None:
        if value is None:
            return
        if request.started:
            if not request.finished:
                request.finish()
            return
        answer_value(request, value, self.compress)

    def _failed(self, request: http_request, e: BaseException | None) -> None:
        """Answer a request whose handler has raised, or answered nothing."""
        if isinstance(e, HTTPException):
            status, detail, headers = e.status, e.detail or h1.phrase(e.status), e.headers
        elif isinstance(e, RemoteError):
            status, detail, headers = e.status, str(e), []
        else:
            status, detail, headers = 500, h1.phrase(500), []
            if not self.registry.may_log():
                pass
            elif e is None:
                LOG_HANDLERS("the handler returned None and sent nothing; return '' for an empty answer", repr(request))
            else:
                LOG_HANDLERS.failure(e, "error", repr(request))
        wants_json = self._json_errors and _prefers_json(request)
        try:
            _respond(request, status, detail, headers, wants_json)
        except Exception as impossible:
            if request.started:
                raise
            # A field that was added to the answer, or what came with the exception: text that has no UTF-8, pairs that
            # are none. Without them, there is an answer.
            if not isinstance(e, type(impossible)) and self.registry.may_log():
                LOG_HANDLERS.failure(impossible, "error", repr(request))
            request._drop_added()
            _respond(request, 500, h1.phrase(500), [], wants_json)

    # -- life

    def _listen(self, address: Any) -> None:
        options = dict(self._options)
        if options["max_connections"] is None:
            options["max_connections"] = _free_descriptors()
        self.inner = _Inner(
            self.registry.serve, address, wrap=self._handshake, wrap_timeout=self._handshake_timeout, **options
        )
        self.inner.outer = self

    @property
    def addresses(self) -> list[Any]:
        """Where it listens, as ``getsockname`` says."""
        return [] if self.inner is None else self.inner.addresses

    @property
    def addr(self) -> Any:
        """The first address that it listens on, None before."""
        return self.addresses[0] if self.inner is not None else None

    @property
    def port(self) -> int:
        """The port of the first address. ValueError for a UNIX socket."""
        address = self.addr
        if not isinstance(address, tuple):
            raise ValueError(f"this server has no port: it listens on {address!r}")
        return int(address[1])

    def start(self, addr: Any = None, retries: int = 5) -> Self:
        """Begin to accept. ``addr``: where to listen, if the constructor was not told; an address that is in use is
        tried ``retries`` times more, a second apart. Raises what `coro.Server` raises."""
        if addr is not None:
            for left in range(retries, -1, -1):
                try:
                    self._listen(addr)
                    break
                except (coro.oserrors.EADDRINUSE, coro.oserrors.EADDRNOTAVAIL):
                    if left == 0:
                        raise
                    coro.sleep_relative(RETRY_PAUSE)
        if self.inner is None:
            raise ValueError("expected an address: give it to the constructor or to start()")
        self.inner.start()
        return self

    def stop(self) -> None:
        """Accept no more; requests that are answered now are completed, and then their connections closed."""
        if self.inner is not None:
            self.inner.stop()

    def shutdown(self) -> None:
        """Accept no more, and interrupt all connections. Does not wait."""
        self.shutdown_flag = True
        if self.inner is not None:
            self.inner.shutdown()

    def drain(self, timeout: float | None = None) -> bool:
        """End in order: returns True when all connections have ended by themselves within ``timeout`` seconds (None:
        ``drain_timeout``); the others are interrupted."""
        if self.inner is None:
            return True
        return self.inner.drain(self.drain_timeout if timeout is None else timeout)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the server has ended, as `coro.Server.wait`."""
        if self.inner is not None:
            self.inner.wait(timeout)

    def close(self) -> None:
        """Interrupt all connections and wait for the end."""
        if self.inner is not None:
            self.inner.close()

    def __enter__(self) -> Self:
        if self.inner is None:
            raise ValueError("expected an address: give it to the constructor")
        self.inner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        self.close()
        return False

    def statistics(self) -> dict[str, Any]:
        """Counts of connections and requests; those of the accepting side under ``"accepting"``."""
        counts: dict[str, Any] = self.registry.counts()
        counts["accepting"] = None if self.inner is None else self.inner.statistics()._asdict()
        return counts

    def _ending(self) -> None:
        self.shutdown_flag = True
        if not self.registry.draining:
            self.registry.drain(LINGER_IDLE)
            if self.registry.open and coro.coro_is_running():
                self._start_sweeper()

    # -- connections

    def _handshake(self, conn: Any) -> _Stream | Any:
        """In the connection's own thread: what comes before HTTP."""
        remote = None
        if self.proxy_protocol:
            from coro.http.forwarded import read_proxy_header

            try:
                remote = read_proxy_header(conn)
            except RemoteError as e:
                # Whoever connects can send anything here: no failure of ours, and nothing to answer.
                self.registry.errors += 1
                if self.registry.may_log():
                    LOG("no PROXY header", str(conn.getpeername()), str(e))
                raise ConnectionAbortedError(str(e)) from e
        if self.tls is None:
            return conn if remote is None else _Stream(conn, conn, remote, False)
        return _Stream(conn, self.tls.wrap(conn, server_side=True), remote, True)

    def create_connection(self, conn: Any, addr: Any) -> connection:
        """The `connection` for an accepted stream."""
        return connection(self, conn, addr, self.registry)

    def _connect(self, conn: Any, address: Any) -> connection:
        if type(conn) is _Stream:
            made = connection(self, conn.stream, address, self.registry, conn.raw)
            made.is_tls = conn.is_tls
            if conn.remote is not None:
                made.remote = made.proxied = conn.remote
        else:
            made = self.create_connection(conn, address)
        if not self._sweeper:
            self._start_sweeper()
        return made

    def _start_sweeper(self) -> None:
        number = self._sweeper + 1
        try:
            coro.spawn(self._sweep, number, thread_name="deadlines of the HTTP server", daemon=True)
        except LoopError:
            return  # the loop is ending, and interrupts the connections itself
        self._sweeper = number

    def _sweep(self, number: int) -> None:
        """Ends what is late, as long as there are connections."""
        while number == self._sweeper:
            seconds = self.registry.sweep()
            if seconds is None:
                self._sweeper = 0
                return
            coro.sleep_relative(seconds)

    def log(self, *data: Any) -> None:
        """Log ``data`` with the server's address before it."""
        LOG(str(self.addr), *data)


def _respond(request: http_request, status: int, detail: str, headers: list[tuple[Any, Any]], in_json: bool) -> None:
    """Answer with an error: a line of text, or problem details (RFC 9457)."""
    if status in (204, 304):
        kind, body = "text/plain; charset=utf-8", b""
    elif in_json:
        problem = {"title": h1.phrase(status), "status": status, "detail": detail}
        kind, body = "application/problem+json", json.dumps(problem, ensure_ascii=False).encode()
    else:
        kind, body = "text/plain; charset=utf-8", f"{detail}\n".encode()
    request.respond(status, [*headers, ("content-type", kind)], body)


def _prefers_json(request: http_request) -> bool:
    """Whether the client names JSON in Accept (RFC 9110 12.5.1), and nothing that people read at least as much. A
    client that takes everything and has sent JSON takes JSON."""
    best = {True: 0.0, False: 0.0}
    for part in (request.headers.get("accept") or "")[:MAX_ACCEPT].split(","):
        kind, _, parameters = part.partition(";")
        kind = kind.strip().lower()
        is_json = _is_json(kind)
        if is_json or kind.startswith("text/") or kind == "application/xhtml+xml":
            best[is_json] = max(best[is_json], _quality(parameters))
    if not best[True] and not best[False]:
        return _is_json((request.headers.get("content-type") or "").partition(";")[0].strip().lower())
    return best[True] > best[False]


def _is_json(kind: str) -> bool:
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _quality(parameters: str) -> float:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def _free_descriptors() -> int | None:
    """How many connections leave the program RESERVE descriptors, as it is now; None where nothing limits them."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most == resource.RLIM_INFINITY:
        return None
    try:
        used = len(os.listdir("/dev/fd"))
    except OSError:
        return None
    return max(1, most - used - RESERVE)


def _tls_context(given: Any) -> Any:
    if given is None or hasattr(given, "wrap"):
        return given
    from importlib import import_module

    return import_module("coro.tls").context(given)


def serve(handler: Any, address: Any, *, started: Callable[[server], object] | None = None, **settings: Any) -> None:
    """Serve until told to stop: SIGTERM ends the server in order. ``settings`` are those of `server`;
    ``started(server)`` is called once it listens. Starts a loop if none is running."""
    if not coro.coro_is_running():
        coro.run(lambda: serve(handler, address, started=started, **settings))
        return
    with server(handler, address, **settings) as made:
        if started is not None:
            started(made)

        def on_sigterm(signum: int) -> None:
            coro.spawn(made.drain, thread_name="drain after SIGTERM")

        try:
            coro.signal_handler.register(signal.SIGTERM, on_sigterm)
        except (SimultaneousError, ValueError):
            made.wait()  # somebody else minds it: coro.prefork, which drains every server
            return
        try:
            made.wait()
        finally:
            with suppress(KeyError):  # an ending loop has dropped it
                coro.signal_handler.unregister(signal.SIGTERM)
