"""ASGI 3: `ASGIHandler(app)` is a handler for `coro.http.server` that calls an ASGI application.

    coro.http.serve(ASGIHandler(app), ("127.0.0.1", 8000))

The application runs on the asyncio event loop of `coro.asyncio_bridge`, which shares the OS thread and the place to
wait with coro's threads. The idea: most requests need no event loop. The connection's thread begins the application's
task itself (an eager task, CPython 3.12 and newer), with the request at hand; when the task ends without having waited,
the answer is sent in one call, and asyncio's loop has not run at all. What does wait goes on in asyncio's loop, while
the connection's thread moves the bytes: it reads the body when it is asked for, sends what the application has sent,
and notices that the client leaves.

Code of asyncio's takes for granted that nothing else of its loop runs between two `await`, so `receive` and `send`
never touch the network: they pass messages to the connection's thread.

Cost: about 5 us a request besides the application and the server; about 60 us more when the application waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, NoReturn, Self

import coro
from coro import asyncio_bridge
from coro.exceptions import ClosedError
from coro.http._connection import LOG, LOG_HANDLERS, http_request
from coro.http._gateway import scope_headers, scope_path
from coro.http.exceptions import HandshakeError, LifespanError, WebSocketClosed
from coro.http.websocket import DRAIN_CODE, accept

__all__ = ["ASGIHandler", "LifespanError"]

_Message = MutableMapping[str, Any]
_App = Callable[[dict[str, Any], Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]], Any]

#: Bytes of an answer, or of messages, that may wait in either direction.
HIGH_WATER = 65536
#: Seconds for the closing handshake of a WebSocket that is interrupted: its process has little more, and other things
#: to do.
CLOSE_TIMEOUT = 0.5
#: Seconds for the application to start and to end.
LIFESPAN_TIMEOUT = 60.0
# From 2.4 on Starlette listens for no http.disconnect while it streams, and hears of a client that has left only when
# it sends: a silent stream of events would stay for ever, and one that is cut would end with an exception.
_ASGI = {"version": "3.0", "spec_version": "2.3"}
_EMPTY_REQUEST = {"type": "http.request", "body": b"", "more_body": False}


class _Running:
    """A task of the application, begun at once in this thread where the Python can do that."""

    __slots__ = ("changed", "loop", "reader", "task")

    request: http_request

    def __init__(self) -> None:
        self.loop: Any = asyncio_bridge.get_loop()
        self.task: asyncio.Task[Any] | None = None
        self.changed: coro.event | None = None
        self.reader: _Reader | None = None

    def begin(self, coroutine: Any) -> bool:
        """Begin the task. Returns whether it has ended."""
        task = asyncio_bridge.start_task(coroutine, self._created)
        if task is None:
            return False
        self.task = task
        if task.done():
            return True
        task.add_done_callback(self.wake)
        return False

    def _created(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        task.add_done_callback(self.wake)

    def wake(self, task: object = None) -> None:
        """Something has changed for the thread that waits."""
        if self.changed is not None:
            self.changed.set()

    def done(self) -> bool:
        return self.task is not None and self.task.done()

    def resolve(self, future: asyncio.Future[Any], value: Any) -> None:
        """From a thread: give a future of asyncio's its result."""
        self.loop.call_soon_threadsafe(_set_result, future, value)

    def raise_failure(self, otherwise: str) -> NoReturn:
        """The application has ended too early: raise what it raised, or RuntimeError."""
        failure = self.failure()
        if failure is None:
            raise RuntimeError(otherwise)
        if not isinstance(failure, Exception):
            raise RuntimeError("the application was cancelled before its response was complete") from failure
        raise failure

    def report_later(self) -> None:
        if self.task is not None:
            self.task.add_done_callback(self.report)

    def report(self, task: asyncio.Task[Any]) -> None:
        """The application has ended, and there is no client to be told what it raised."""
        error = None if task.cancelled() else task.exception()
        if error is None or isinstance(error, OSError) or not self.request.server.registry.may_log():
            return
        if self.request.connection.gone:
            # Most say only what they were told, each framework with a class of its own.
            LOG("the client has left, and the application ended with", repr(self.request), repr(error))
        else:
            LOG_HANDLERS.failure(error, "error after the response", repr(self.request))

    def has_left(self) -> bool:
        """Wait for `changed`, or for the client to leave: True."""
        request, changed = self.request, self.changed
        assert changed is not None
        conn = request.connection.conn
        if not isinstance(conn, coro.sock):
            if self.reader is None:
                self.reader = _Reader(conn, changed)
            changed.wait()
            return self.reader.has_ended
        ready = coro.select(coro.case.wait(changed), coro.case.read(conn))
        if ready.kind != "read":
            return False
        try:
            there = conn.recv(1, coro.MSG.PEEK | coro.MSG.DONTWAIT)
        except coro.oserrors.EAGAIN:
            return False
        except OSError:
            there = b""
        if there:
            # What comes next: read when this is over. Nothing can be seen behind it.
            changed.wait()
            return False
        return True

    def stop_reading(self) -> None:
        """The stream is for others to read from now on."""
        reader, self.reader = self.reader, None
        if reader is not None:
            reader.stop()

    def cancel(self) -> None:
        if self.task is not None and not self.task.done():
            self.loop.call_soon_threadsafe(self.task.cancel)

    def failure(self) -> BaseException | None:
        """What the task raised, if it has ended; a cancelled one raised CancelledError."""
        task = self.task
        if task is None or not task.done():
            return None
        return asyncio.CancelledError() if task.cancelled() else task.exception()


class _Reader:
    """A thread that reads from a stream of TLS, where only reading shows that the client leaves; what comes is kept by
    the stream for whoever reads next. It costs a thread for each request that waits for its client to leave."""

    __slots__ = ("changed", "conn", "has_ended", "thread")

    def __init__(self, conn: Any, changed: coro.event) -> None:
        self.conn = conn
        self.changed = changed
        self.has_ended = False
        self.thread = coro.spawn(self.read, thread_name=f"watch over {conn!r}", daemon=True)

    def read(self) -> None:
        try:
            self.has_ended = not self.conn.wait_for_read()
        except (OSError, EOFError):
            self.has_ended = True
        if self.has_ended:
            self.changed.set()

    def stop(self) -> None:
        self.thread.shutdown()
        self.thread.join()


def _set_result(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


class _HTTP(_Running):
    """One request: the messages between the application and the connection's thread."""

    __slots__ = (
        "asked",
        "body_read",
        "complete",
        "disconnected",
        "head",
        "out",
        "request",
        "room",
        "started",
        "waiting",
    )

    def __init__(self, request: http_request) -> None:
        super().__init__()
        self.request = request
        self.body_read = False
        self.head: tuple[int, Any] | None = None
        self.started = False  # the application has begun to answer
        self.complete = False  # and has ended to
        self.disconnected = False
        self.out: list[Any] = []  # what it has sent: bytes, and dicts of trailers
        self.waiting = 0  # bytes in there
        self.asked: asyncio.Future[_Message] | None = None  # receive() waits
        self.room: asyncio.Future[None] | None = None  # send() waits

    # -- called by the application

    async def receive(self) -> _Message:
        if self.disconnected or self.complete:
            return {"type": "http.disconnect"}
        if not self.body_read and not self.request.has_body():
            self.body_read = True
            return dict(_EMPTY_REQUEST)
        if self.asked is None:
            self.asked = self.loop.create_future()
            self.wake()
        asked = self.asked
        # Several may wait for the same message: the end. Each gets its own copy. Who is cancelled here has not got it,
        # and the next call does.
        message = await asyncio.shield(asked)
        if self.asked is asked:
            self.asked = None
        return dict(message)

    async def send(self, message: _Message) -> None:
        kind = message["type"]
        if kind == "http.response.body":
            if not self.started:
                raise RuntimeError("expected http.response.start before http.response.body")
            if self.complete:
                raise RuntimeError("the response is complete: nothing can be sent after more_body=False")
            body = message.get("body", b"")
            if type(body) is not bytes:
                body = bytes(body)
            self.out.append(body)
            self.waiting += len(body)
            if not message.get("more_body", False):
                self.complete = True
            self.wake()
            if self.disconnected:
                raise OSError("the client has gone")
            if self.waiting > HIGH_WATER and not self.complete:
                self.room = self.loop.create_future()
                await self.room
        elif kind == "http.response.start":
            if self.started:
                raise RuntimeError("expected http.response.body, not another http.response.start")
            self.started = True
            self.head = (message["status"], message.get("headers", ()))
        else:
            raise RuntimeError(f"expected http.response.start or http.response.body, not {kind!r}")

    # -- the connection's thread

    def serve(self, coroutine: Any) -> None:
        request = self.request
        if self.begin(coroutine):
            failure = self.failure()
            if failure is not None:
                self.fail(failure)
            self.flush()
            return
        self.changed = changed = coro.event()
        try:
            while True:
                changed.clear()
                if self.out or (self.complete and not request.finished):
                    self.flush()
                if self.complete or self.done():
                    break
                if self.asked is not None and not self.asked.done():
                    if self.body_read:
                        if self.has_left():
                            raise _client_left(request)
                        continue
                    self.read_body()
                    continue
                changed.wait()
        except BaseException:
            # The client has gone, or the server ends.
            self.leave()
            raise
        finally:
            self.stop_reading()
        if not self.complete:
            failure = self.failure()
            if failure is not None:
                self.fail(failure)
            if not self.complete:
                self.raise_failure("the application returned before its response was complete")
        elif not self.done():
            # It goes on after its answer (a background task); what it raises has no client to be told to.
            if self.asked is not None:
                self.resolve(self.asked, {"type": "http.disconnect"})
            self.loop.call_soon_threadsafe(self.report_later)

    def fail(self, failure: BaseException) -> None:
        """The application has raised."""
        if self.complete:
            if self.request.server.registry.may_log():
                LOG_HANDLERS.failure(failure, "error after the response", repr(self.request))
            return
        if not isinstance(failure, Exception):
            raise RuntimeError("the application was cancelled before its response was complete") from failure
        if self.out:
            self.flush()
        raise failure

    def read_body(self) -> None:
        """Answer receive() with a piece of the body."""
        piece = self.request.read_some(65536)
        if not piece:
            self.body_read = True
        asked, changed = self.asked, self.changed
        assert asked is not None and changed is not None
        asked.add_done_callback(self.wake)
        self.resolve(asked, {"type": "http.request", "body": piece, "more_body": bool(piece)})
        while not asked.done():
            changed.wait()
            changed.clear()

    def leave(self) -> None:
        """The client has gone, or will have: the application is told."""
        self.disconnected = True
        if self.asked is not None:
            self.resolve(self.asked, {"type": "http.disconnect"})
        if self.room is not None:
            self.resolve(self.room, None)
        if not self.done():
            self.loop.call_soon_threadsafe(self.report_later)

    def flush(self) -> None:
        """Send what the application has sent."""
        out, self.out = self.out, []
        self.waiting = 0
        head, self.head = self.head, None
        _send_answer(self.request, head, out[0] if len(out) == 1 else b"".join(out), self.complete)
        room, self.room = self.room, None
        if room is not None:
            self.resolve(room, None)


def _send_answer(request: http_request, head: tuple[int, Any] | None, body: bytes, complete: bool) -> None:
    """Send what there is of an answer: its status and fields if they were not sent, a piece of its body, its end."""
    if head is not None:
        status, headers = head
        if type(headers) is not list:
            headers = list(headers)
        if complete:
            length = _length(headers)
            if length == len(body) or (length < 0 and (body or request.method != "head")):
                if length >= 0:
                    headers = [pair for pair in headers if pair[0].lower() != b"content-length"]
                request.respond(status, _without_hop_by_hop(headers), body)
                return
        request.start(status, _without_hop_by_hop(headers))
    if body:
        request.send(body)
    if complete:
        request.finish()


def _client_left(request: http_request) -> ClosedError:
    request.connection.gone = True
    return ClosedError("the client has gone")


def _length(headers: list[Any]) -> int:
    for name, value in headers:
        if len(name) == 14 and name.lower() == b"content-length":
            return int(value)
    return -1


def _without_hop_by_hop(headers: list[Any]) -> list[Any]:
    """The server decides about the framing; applications send `transfer-encoding` and `connection` all the same."""
    for name, _ in headers:
        if len(name) in (10, 17) and name.lower() in (b"transfer-encoding", b"connection"):
            return [p for p in headers if p[0].lower() not in (b"transfer-encoding", b"connection")]
    return headers


class _WebSocket(_Running):
    """One WebSocket. The connection's thread reads; another one sends."""

    __slots__ = (
        "asked", "decision", "denied", "gone", "inbox", "inbox_bytes", "options", "out", "out_bytes", "out_changed",
        "request", "room", "ws",
    )  # fmt: skip

    def __init__(self, request: http_request, options: dict[str, Any]) -> None:
        super().__init__()
        self.request = request
        self.options = options
        self.inbox: deque[_Message] = deque([{"type": "websocket.connect"}])
        self.inbox_bytes = 0
        self.asked: asyncio.Future[None] | None = None
        self.room: asyncio.Future[None] | None = None
        self.decision: _Message | None = None
        self.denied = False  # by an answer of the application's own, which is complete
        self.gone = False  # the client, before there was a decision
        self.out: deque[Any] = deque()
        self.out_bytes = 0
        self.out_changed = coro.event()
        self.ws: Any = None

    async def receive(self) -> _Message:
        while not self.inbox:
            if self.asked is None or self.asked.done():
                self.asked = self.loop.create_future()
            await asyncio.shield(self.asked)
        message = self.inbox.popleft()
        self.inbox_bytes -= len(message.get("bytes") or message.get("text") or b"")
        self.wake()
        return message

    async def send(self, message: _Message) -> None:
        kind = message["type"]
        if self.gone:
            raise OSError("the client has gone")
        if self.decision is None or self.decision["type"] == "websocket.http.response.start":
            if kind == "websocket.http.response.body" and self.decision is not None:
                if self.denied:
                    raise RuntimeError("the response is complete: nothing can be sent after more_body=False")
                await self.put_out(bytes(message.get("body", b"")), last=not message.get("more_body", False))
                return
            if self.decision is not None or kind not in (
                "websocket.accept", "websocket.close", "websocket.http.response.start"
            ):  # fmt: skip
                raise RuntimeError(f"expected websocket.accept or websocket.close, not {kind!r}")
            self.decision = message
            self.wake()
            return
        if kind == "websocket.send":
            if self.ws is not None and self.ws.closed:
                raise OSError("the WebSocket is closed")
            data = message.get("bytes")
            if data is None:
                data = message["text"]
            await self.put_out(data)
        elif kind == "websocket.close":
            self.out.append((message.get("code", 1000), message.get("reason") or ""))
            self.out_changed.set()
        else:
            raise RuntimeError(f"expected websocket.send or websocket.close, not {kind!r}")

    async def put_out(self, data: Any, last: bool = False) -> None:
        self.out.append(data)
        self.out_bytes += len(data)
        if last:
            self.denied = True
        self.out_changed.set()
        if self.out_bytes > HIGH_WATER and not last:
            self.room = self.loop.create_future()
            await self.room

    def make_room(self) -> None:
        room, self.room = self.room, None
        if room is not None:
            self.resolve(room, None)

    def put(self, message: _Message) -> None:
        self.inbox.append(message)
        self.inbox_bytes += len(message.get("bytes") or message.get("text") or b"")
        if self.asked is not None:
            self.resolve(self.asked, None)

    def serve(self, coroutine: Any) -> None:
        self.changed = changed = coro.event()
        self.begin(coroutine)
        try:
            try:
                while self.decision is None and not self.done():
                    if self.has_left():
                        raise _client_left(self.request)
                    changed.clear()
            finally:
                self.stop_reading()
            decision = self.decision
            if decision is not None and decision["type"] == "websocket.http.response.start":
                self.deny((decision["status"], decision.get("headers") or ()))
        except BaseException:
            self.gone = True
            self.make_room()
            self.put({"type": "websocket.disconnect", "code": 1006, "reason": ""})
            if not self.done():
                self.loop.call_soon_threadsafe(self.report_later)
            raise
        if decision is None or decision["type"] != "websocket.accept":
            self.refuse(decision)
            return
        headers = [(bytes(n).decode("latin-1"), bytes(v).decode("latin-1")) for n, v in decision.get("headers") or ()]
        wanted = decision.get("subprotocol")
        try:
            ws = accept(self.request, subprotocols=[wanted] if wanted else None, headers=headers, **self.options)
        except HandshakeError:
            self.put({"type": "websocket.disconnect", "code": 1006, "reason": ""})
            self.cancel()
            return
        self.ws = ws
        sender = coro.spawn(self.sender, thread_name=f"sender of {ws}")
        code, reason = 1006, ""
        try:
            while True:
                data = ws.receive()
                key = "text" if isinstance(data, str) else "bytes"
                self.put({"type": "websocket.receive", key: data})
                while self.inbox_bytes > HIGH_WATER and not self.done():
                    changed.clear()
                    changed.wait()
        except WebSocketClosed as e:
            code, reason = e.code, e.reason
        except coro.Interrupted:
            code = ws.drain_code or DRAIN_CODE
            # A drain has sent the close frame long ago, to a client that does not answer.
            is_told = ws.drain_code and self.request.server.registry.draining
            with suppress(coro.TimeoutError), coro.shield(0.0 if is_told else CLOSE_TIMEOUT):
                ws.close(code)
            raise
        finally:
            self.put({"type": "websocket.disconnect", "code": code, "reason": reason})
            self.finish(sender)

    def finish(self, sender: Any) -> None:
        """The WebSocket is closed; let the application end."""
        self.make_room()
        changed = self.changed
        assert changed is not None
        while not self.done():
            changed.clear()
            changed.wait()
        self.out_changed.set()
        sender.join()
        failure = self.failure()
        if failure is not None and not isinstance(failure, asyncio.CancelledError):
            if isinstance(failure, OSError) and self.ws.closed:
                return  # it sent to somebody who had gone
            raise failure

    def wake(self, task: object = None) -> None:
        super().wake(task)
        if task is not None:
            self.out_changed.set()

    def sender(self) -> None:
        """The body of the thread that sends."""
        ws = self.ws
        try:
            while not ws.closed:
                if self.out:
                    item = self.out.popleft()
                    if type(item) is tuple:
                        ws.close(*item)
                        return
                    self.out_bytes -= len(item)
                    ws.send(item)
                    if self.out_bytes <= HIGH_WATER:
                        self.make_room()
                    continue
                if self.done():
                    ws.close(1000 if self.failure() is None else 1011)
                    return
                self.out_changed.clear()
                self.out_changed.wait()
        except WebSocketClosed:
            return
        finally:
            self.make_room()

    def deny(self, head: tuple[int, Any] | None) -> None:
        """Send the answer that the application gives in place of an open WebSocket."""
        while not self.denied or self.out:
            self.out_changed.clear()
            body = b"".join(self.out)
            self.out.clear()
            self.out_bytes = 0
            if body or self.denied:
                _send_answer(self.request, head, body, self.denied)
                head = None
                self.make_room()
            elif self.done():
                self.raise_failure("the application returned before its response was complete")
            else:
                self.out_changed.wait()

    def refuse(self, decision: _Message | None) -> None:
        """The application does not want this WebSocket."""
        request = self.request
        if decision is None:
            self.raise_failure("the application returned without websocket.accept or websocket.close")
        if decision["type"] == "websocket.close":
            request.respond(403, [("content-type", "text/plain")], b"this WebSocket is not accepted\n")
        self.put({"type": "websocket.disconnect", "code": 1006, "reason": ""})


class ASGIHandler:
    """A handler that calls an ASGI 3 application for each request and each WebSocket.

    root_path: where the application is mounted. lifespan: ``"on"``, ``"off"``, or ``"auto"``, which does without it
    when the application raises before it answers ``lifespan.startup``. websocket: options of
    ``coro.http.websocket.accept``; pages of all origins may connect unless ``origins`` says otherwise, because checking
    that is the application's affair.

    ``startup()`` and ``shutdown()``, or a ``with`` block, are the application's lifespan.
    """

    def __init__(
        self,
        app: _App,
        *,
        root_path: str = "",
        lifespan: Literal["auto", "on", "off"] = "auto",
        websocket: dict[str, Any] | None = None,
    ) -> None:
        if not callable(app):
            raise TypeError(f"expected an ASGI application, a callable of scope, receive and send, not {app!r}")
        if lifespan not in ("auto", "on", "off"):
            raise ValueError(f"expected lifespan 'auto', 'on' or 'off', not {lifespan!r}")
        self.app = app
        self.root_path = root_path.rstrip("/")
        self.lifespan = lifespan
        self.state: dict[str, Any] = {}
        self._websocket = {"origins": None, **(websocket or {})}
        self._life: _Lifespan | None = None

    def startup(self) -> None:
        """Tell the application that it begins, and wait for it. LifespanError if it cannot."""
        if self.lifespan != "off":
            self._life = _Lifespan(self)
            self._life.startup()

    def shutdown(self) -> None:
        """Tell the application that it ends, and wait for it."""
        life, self._life = self._life, None
        if life is not None:
            life.shutdown()

    def __enter__(self) -> Self:
        self.startup()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.shutdown()

    def _scope(self, request: http_request) -> dict[str, Any]:
        connection = request.connection
        known = connection.asgi_base
        if known is not None and known[1] is connection.remote and known[0] == request.scheme:
            scheme, _, client, server = known
        else:
            client = _pair(request.remote)
            try:
                server = _pair(connection.conn.getsockname())
            except (OSError, AttributeError):
                server = None
            scheme = request.scheme
            connection.asgi_base = (scheme, connection.remote, client, server)
        path, raw_path = scope_path(request)
        return {
            "type": "http",
            "asgi": dict(_ASGI),
            "http_version": request.version,
            "method": request.method_raw,
            "scheme": scheme,
            "path": path,
            "raw_path": raw_path,
            "query_string": request.query_string,
            "root_path": self.root_path,
            "headers": scope_headers(request),
            "client": client,
            "server": server,
            "state": self.state.copy(),
            "extensions": {},
        }

    def __call__(self, request: http_request) -> None:
        scope = self._scope(request)
        if request.head.upgrade is not None and request.head.upgrade.lower() == b"websocket":
            self._serve_websocket(request, scope)
            return
        exchange = _HTTP(request)
        exchange.serve(_guarded(self.app(scope, exchange.receive, exchange.send)))

    def _serve_websocket(self, request: http_request, scope: dict[str, Any]) -> None:
        del scope["method"]
        scope["type"] = "websocket"
        scope["scheme"] = "wss" if request.is_tls else "ws"
        names = [
            name.strip() for line in request.headers.get_all("sec-websocket-protocol") or () for name in line.split(",")
        ]
        scope["subprotocols"] = [name for name in names if name]
        scope["extensions"] = {"websocket.http.response": {}}
        exchange = _WebSocket(request, self._websocket)
        exchange.serve(_guarded(self.app(scope, exchange.receive, exchange.send)))


async def _guarded(application: Awaitable[Any]) -> None:
    """asyncio's loop ends with a task that raises SystemExit, and all other tasks with it."""
    try:
        await application
    except SystemExit as e:
        raise RuntimeError("the application raised SystemExit, which ends nothing but its own request") from e


def _pair(address: Any) -> list[Any] | tuple[Any, Any] | None:
    if isinstance(address, tuple):
        return (str(address[0]), int(address[1])) if len(address) > 1 else (str(address[0]), 0)
    return (str(address), 0) if isinstance(address, str) and address else None


class _Lifespan(_Running):
    """The lifespan of an application."""

    __slots__ = ("answers", "asked", "handler", "messages", "supported")

    def __init__(self, handler: ASGIHandler) -> None:
        super().__init__()
        self.handler = handler
        self.messages: deque[_Message] = deque([{"type": "lifespan.startup"}])
        self.asked: asyncio.Future[None] | None = None
        self.answers: deque[_Message] = deque()
        self.supported = False
        self.changed = coro.event()

    async def receive(self) -> _Message:
        while not self.messages:
            self.asked = self.loop.create_future()
            await self.asked
        return self.messages.popleft()

    async def send(self, message: _Message) -> None:
        self.answers.append(message)
        self.wake()

    def wait(self, phase: str) -> _Message | None:
        """The answer; None when the application has ended without one."""
        changed = self.changed
        assert changed is not None
        try:
            with coro.timeout(LIFESPAN_TIMEOUT):
                while not self.answers and not self.done():
                    changed.wait()
                    changed.clear()
        except coro.TimeoutError:
            self.cancel()
            raise LifespanError(f"the application did not answer lifespan.{phase} in {LIFESPAN_TIMEOUT:g} s") from None
        return self.answers.popleft() if self.answers else None

    def startup(self) -> None:
        handler = self.handler
        scope = {"type": "lifespan", "asgi": dict(_ASGI), "state": handler.state}
        self.begin(handler.app(scope, self.receive, self.send))
        answer = self.wait("startup")
        if answer is None:
            failure = self.failure()
            if handler.lifespan == "on":
                raise LifespanError("the application has no lifespan: it ended without an answer") from failure
            return
        if answer["type"] == "lifespan.startup.failed":
            raise LifespanError(f"the application refused to start: {answer.get('message', '')}")
        self.supported = True

    def shutdown(self) -> None:
        if not self.supported or self.done():
            return
        self.messages.append({"type": "lifespan.shutdown"})
        if self.asked is not None:
            self.resolve(self.asked, None)
        answer = self.wait("shutdown")
        if answer is not None and answer["type"] == "lifespan.shutdown.failed":
            LOG_HANDLERS("the application reports a failure at its end:", answer.get("message", ""))
