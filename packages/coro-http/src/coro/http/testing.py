"""For the tests of programs that serve or ask over HTTP: a client without a network, and servers that are made up.

    from coro.http import testing

    with testing.client(app) as client:                 # a handler, an App, a WSGI or an ASGI application
        assert client.get("/hello").text == "hello"

    mock = testing.Mock()
    mock.get("https://api.example.org/user/7", json={"name": "Ada"})
    program(Client(transport=mock))
    assert mock.requests[0].headers["accept"] == "application/json"

``client`` runs the real server and the real client over two streams in memory: parsing, limits, keep-alive and
streaming are those of production, and with ``coro.testing.virtual_clock`` and a seeded order each run is the same.
``Mock`` stands in the place of the network and gives the responses that it was told to.

Cost: a thread and a pair of buffers for each connection.
"""

from __future__ import annotations

import inspect
import json as _json
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

from coro._runtime import scheduler
from coro.http._client.fields import Headers, HeaderTypes
from coro.http._client.messages import Request, Response
from coro.http._client.session import UNSET, Client
from coro.http._client.urls import URL, parse
from coro.testing import memory_stream, stream_pair

__all__ = ["InProcessClient", "Mock", "UnexpectedRequest", "client"]

Kind = Literal["auto", "handler", "wsgi", "asgi"]


class InProcessClient(Client):
    """A ``Client`` whose connections all lead to one application in this process; ``client()`` makes it. Leaving its
    ``with`` block ends the connections and waits for their threads."""

    def __init__(self, handler: Any, capacity: int, **options: Any) -> None:
        from coro.http._server import server

        self._handler = handler
        self._server = server(handler)
        self._capacity = capacity
        self._threads: list[scheduler.coro] = []
        self._begun = False
        options.setdefault("base_url", "http://testserver")
        super().__init__(connector=self._connect_in_process, **options)

    def _connect_in_process(self, url: URL) -> Any:
        if not self._begun:
            self._begun = True
            start = getattr(self._handler, "startup", None)
            if callable(start):
                start()
        mine, theirs = stream_pair(self._capacity, names=("client", "server"))
        self._threads = [thread for thread in self._threads if not thread.dead]
        self._threads.append(scheduler.spawn(self._serve, theirs, thread_name=f"in-process server of {url.host}"))
        return mine

    def _serve(self, stream: memory_stream) -> None:
        with stream:
            self._server.create_connection(stream, ("127.0.0.1", 0)).run()

    def close(self) -> None:
        """Close the connections, wait for the threads that served them, and end the application."""
        super().close()
        for thread in self._threads:
            # A handler that waits for something else than its client would never learn that the client has gone.
            if not thread.dead:
                scheduler.yield_slice()
            if not thread.dead:
                thread.shutdown()
                thread.join()
        self._threads.clear()
        if self._begun:
            self._begun = False
            end = getattr(self._handler, "shutdown", None)
            if callable(end):
                end()


def client(app: Any, *, kind: Kind = "auto", capacity: int = 65_536, **options: Any) -> InProcessClient:
    """A client of ``app``, without a network.

    app: what ``coro.http.server`` takes, or a WSGI or ASGI application. kind: which of these it is; "auto" takes an
    async function (or an object whose call is one) for ASGI, a function of two arguments named environ and
    start_response for WSGI, and everything else for a handler. capacity: bytes that may be under way in each direction;
    a small one tests backpressure. The other arguments are those of ``Client``; the base URL is ``http://testserver``
    unless given. ValueError for an unknown kind.
    """
    if kind == "auto":
        kind = _kind_of(app)
    if kind == "wsgi":
        from coro.http import wsgi

        app = wsgi.WSGIHandler(app)
    elif kind == "asgi":
        from coro.http import asgi

        app = asgi.ASGIHandler(app)
    elif kind != "handler":
        raise ValueError(f"expected the kind 'auto', 'handler', 'wsgi' or 'asgi', not {kind!r}")
    return InProcessClient(app, capacity, **options)


def _kind_of(app: Any) -> Kind:
    if inspect.iscoroutinefunction(app) or inspect.iscoroutinefunction(
        inspect.getattr_static(type(app), "__call__", None)
    ):
        return "asgi"
    try:
        required = [
            parameter.name
            for parameter in inspect.signature(app).parameters.values()
            if parameter.default is parameter.empty
            and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        return "handler"
    if len(required) == 2 and (required[1].startswith("start") or hasattr(app, "wsgi_app")):
        return "wsgi"
    return "handler"


class UnexpectedRequest(AssertionError):
    """A Mock was asked for something that it has no response for."""


class _Rule(NamedTuple):
    method: str
    url: URL
    with_query: bool
    answers: list[Any]


class Mock:
    """A transport that answers from a list: ``Client(transport=mock)``.

    ``requests`` are those that came, in order. ``add`` and the methods named after those of HTTP say what is answered;
    the request's query counts if the URL of the rule has one. Rules of the same method and URL are used in turn, and
    the last of them for ever. UnexpectedRequest, an AssertionError, for a request without a rule. As a context manager
    it checks at the end of the block that each rule was used.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._rules: list[_Rule] = []
        self._unused: dict[int, str] = {}

    def __repr__(self) -> str:
        return f"<Mock of {len(self._rules)} URLs: {len(self.requests)} requests>"

    def add(
        self,
        method: str,
        url: str,
        content: bytes | str = b"",
        *,
        status: int = 200,
        headers: HeaderTypes | None = None,
        json: Any = UNSET,
        answer: Callable[[Request], Response] | None = None,
        error: BaseException | None = None,
    ) -> Self:
        """Answer ``method`` at ``url`` with a response of these parts, with what the function ``answer`` returns, or by
        raising ``error``. Returns the Mock."""
        where = parse(url)
        made: Any
        if error is not None or answer is not None:
            made = error if error is not None else answer
        else:
            body = content.encode("utf-8") if isinstance(content, str) else content
            fields: list[tuple[Any, Any]] = list(Headers(headers).pairs() if headers is not None else ())
            if json is not UNSET:
                body = _json.dumps(json).encode("utf-8")
                fields.append(("Content-Type", "application/json"))
            made = (status, fields, body)
        for rule in self._rules:
            if (rule.method, rule.url) == (method.upper(), where):
                rule.answers.append(made)
                break
        else:
            self._rules.append(_Rule(method.upper(), where, bool(where.query), [made]))
        self._unused[id(made)] = f"{method.upper()} {where}"
        return self

    def get(self, url: str, content: bytes | str = b"", **parts: Any) -> Self:
        """``add("GET", url, content, **parts)``."""
        return self.add("GET", url, content, **parts)

    def post(self, url: str, content: bytes | str = b"", **parts: Any) -> Self:
        """``add("POST", url, content, **parts)``."""
        return self.add("POST", url, content, **parts)

    def put(self, url: str, content: bytes | str = b"", **parts: Any) -> Self:
        """``add("PUT", url, content, **parts)``."""
        return self.add("PUT", url, content, **parts)

    def delete(self, url: str, content: bytes | str = b"", **parts: Any) -> Self:
        """``add("DELETE", url, content, **parts)``."""
        return self.add("DELETE", url, content, **parts)

    def __call__(self, request: Request) -> Response:
        self.requests.append(request)
        for rule in sorted(self._rules, key=lambda rule: not rule.with_query):
            url = request.url
            if rule.method != request.method or rule.url.origin != url.origin or rule.url.path != url.path:
                continue
            if rule.with_query and rule.url.query != url.query:
                continue
            made = rule.answers[0] if len(rule.answers) == 1 else rule.answers.pop(0)
            self._unused.pop(id(made), None)
            if isinstance(made, BaseException):
                raise made
            if isinstance(made, tuple):
                status, fields, body = made
                return Response(status, fields, body, request=request)
            response: Response = made(request)
            response.request = request
            return response
        known = ", ".join(f"{rule.method} {rule.url}" for rule in self._rules) or "nothing"
        raise UnexpectedRequest(f"no response for {request.method} {request.url}; there are some for {known}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc is None and self._unused:
            raise AssertionError(f"these were never asked for: {', '.join(self._unused.values())}")
