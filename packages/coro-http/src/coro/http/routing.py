"""Applications: functions that are called for a method and a path, and what they return.

    app = http.App()

    @app.get("/user/{id}")
    def user(request, id: int):
        return {"id": id}

A path is split at its slashes before it is percent-decoded, so an encoded slash never makes another segment. Routes
without parameters are found by one look-up with the bytes of the request line; others walk a tree of segments, a step
for each. A literal segment goes before a parameter, and a parameter before ``{rest:path}``.

Cost: nothing for a fixed route; a microsecond per segment for others. Rejected: a regular expression per route (tried
one after the other, and open to patterns that take for ever).
"""

from __future__ import annotations

import inspect
import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote

from coro.http import h1
from coro.http._connection import http_request as Request
from coro.http._content import Compressor, choose
from coro.http.exceptions import HTTPException

__all__ = ["App", "Hosts", "Request", "Response", "redirect"]

_F = TypeVar("_F", bound=Callable[..., Any])

#: Bodies below this many bytes are not compressed: they fit into a packet anyway.
COMPRESS_FROM = 860
_COMPRESSIBLE = ("text/", "application/json", "application/javascript", "application/xml", "image/svg+xml")


class Response:
    """An answer. ``body``: str (UTF-8), bytes, an iterable of them that is sent piece by piece, or None; ``headers``:
    pairs or a mapping; ``content_type`` goes before the usual one for the kind of body."""

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(
        self,
        body: Any = b"",
        status: int = 200,
        headers: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        content_type: str | None = None,
    ) -> None:
        self.body = body
        self.status = status
        self.headers: list[tuple[Any, Any]] = list(headers.items() if isinstance(headers, Mapping) else headers)
        self.content_type = content_type

    def set_cookie(self, name: str, value: str, **attributes: Any) -> None:
        """Add a Set-Cookie field; ``attributes`` as `coro.http.cookies.SetCookie` takes them."""
        from coro.http.cookies import SetCookie

        self.headers.append(("set-cookie", str(SetCookie(name, value, **attributes))))

    def __repr__(self) -> str:
        return f"<Response {self.status} {h1.phrase(self.status)}>"


def redirect(location: str, status: int = 303) -> Response:
    """An answer that sends the client to ``location``."""
    return Response(b"", status, [("location", location)])


def _body(value: Any) -> tuple[Any, str | None]:
    """What is sent for a returned value, and its type."""
    if value is None:
        return b"", None
    if isinstance(value, str):
        return value.encode(), "text/plain; charset=utf-8"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value), "application/octet-stream"
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(), "application/json"
    if hasattr(value, "__iter__"):
        return value, "application/octet-stream"
    raise TypeError(
        f"expected str, bytes, dict, list, an iterator or a Response from a handler, not {type(value).__name__}"
    )


def answer(request: Request, value: Any, compress: bool = True) -> None:
    """Send what a handler has returned."""
    if not isinstance(value, Response):
        if isinstance(value, tuple) and 2 <= len(value) <= 3 and isinstance(value[1], int):
            value = Response(*value)
        else:
            value = Response(value)
    body, kind = _body(value.body)
    headers = list(value.headers)
    names = {name.lower() if isinstance(name, str) else bytes(name).decode("latin-1").lower() for name, _ in headers}
    kind = value.content_type or kind
    if "content-type" not in names and kind is not None and value.status not in (204, 304):
        headers.append(("content-type", kind))
    if isinstance(body, bytes):
        if compress and len(body) >= COMPRESS_FROM and "content-encoding" not in names and value.status == 200:
            body = _compressed(request, body, headers)
        request.respond(value.status, headers, body)
        return
    try:
        request.start(value.status, headers)
        if request.method != "head":
            for piece in body:
                request.send(piece.encode() if isinstance(piece, str) else piece)
        request.finish()
    finally:
        close = getattr(body, "close", None)
        if close is not None:
            close()


def _compressed(request: Request, body: bytes, headers: list[tuple[Any, Any]]) -> bytes:
    kind = next((_text(value) for name, value in headers if _text(name).lower() == "content-type"), "")
    if not kind.startswith(_COMPRESSIBLE):
        return body
    headers.append(("vary", "accept-encoding"))
    coding = choose(request.headers.get_one("accept-encoding"))
    if coding is None:
        return body
    compressor = Compressor(coding)
    headers.append(("content-encoding", coding))
    for place, (name, value) in enumerate(headers):
        if _text(name).lower() == "etag" and not _text(value).startswith("W/"):
            headers[place] = (name, f"W/{_text(value)}")  # RFC 9110 8.8.3: these are not the bytes it was made of
    return compressor.compress(body) + compressor.finish()


def _text(value: Any) -> str:
    return bytes(value).decode("latin-1") if isinstance(value, (bytes, bytearray)) else str(value)


_CONVERTERS: dict[Any, Callable[[str], Any]] = {
    int: lambda text: int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else _no(),
    float: lambda text: float(text) if text.isascii() and text.replace(".", "", 1).isdigit() else _no(),
    uuid.UUID: uuid.UUID,
    str: str,
}


def _no() -> Any:
    raise ValueError


class _Node:
    __slots__ = ("literal", "methods", "parameter", "rest")

    def __init__(self) -> None:
        self.literal: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        self.methods: dict[str, _Route] = {}
        self.rest: dict[str, _Route] = {}


class _Route:
    __slots__ = ("convert", "function", "names", "path")

    def __init__(self, path: str, function: Callable[..., Any], names: list[str]) -> None:
        self.path = path
        self.function = function
        self.names = names
        self.convert: list[Callable[[str], Any]] = []
        parameters = inspect.signature(function, eval_str=True).parameters if names else {}
        several = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        for name in names:
            if name not in parameters and not several:
                raise TypeError(f"{function.__name__}() has no parameter {name!r}, which the path {path!r} names")
            kind = parameters[name].annotation if name in parameters else str
            self.convert.append(_CONVERTERS.get(kind, str))

    def call(self, request: Request, values: list[str]) -> Any:
        if not values:
            return self.function(request)
        try:
            found = {n: c(v) for n, c, v in zip(self.names, self.convert, values, strict=True)}
        except ValueError:
            raise HTTPException(404) from None
        request.params = found
        return self.function(request, **found)


class App:
    """A table of routes. An App is a handler: give it to `coro.http.server` or `coro.http.serve`.

    ``compress``: whether text of some size is compressed for clients that take it. Routes are functions of the request
    and of the parameters that their path names, ``{name}`` for a segment and ``{name:path}`` for the rest; an
    annotation ``int``, ``float`` or ``uuid.UUID`` converts it, and what cannot be converted is not found (404). A route
    for GET answers HEAD, too.
    """

    def __init__(self, compress: bool = True) -> None:
        self.compress = compress
        self._root = _Node()
        self._fixed: dict[bytes, Callable[[Request], Any]] = {}
        #: The same for servers, which look here first: nothing, if something has to be asked before.
        self._direct: dict[bytes, Callable[[Request], Any]] = {}
        self._middleware: list[Callable[[Request, Callable[[Request], Any]], Any]] = []
        self._errors: dict[int, Callable[[Request, HTTPException], Any]] = {}
        self._mounted: list[tuple[str, Any]] = []
        self._chain: Callable[[Request], Any] = self._dispatch

    # -- making the table

    def route(self, path: str, methods: Iterable[str] = ("GET",)) -> Callable[[_F], _F]:
        """A decorator: the function answers ``methods`` on ``path``. ValueError for a path without leading slash, or
        one that is taken; TypeError for a function that lacks a parameter of the path."""

        def add(function: _F) -> _F:
            self.add_route(path, function, methods)
            return function

        return add

    def add_route(self, path: str, function: Callable[..., Any], methods: Iterable[str] = ("GET",)) -> None:
        """As `route`, without the decorator."""
        if not path.startswith("/"):
            raise ValueError(f"a path begins with a slash: {path!r}")
        node, names, rest = self._root, [], False
        segments = path[1:].split("/")
        for i, segment in enumerate(segments):
            if segment.startswith("{") and segment.endswith("}"):
                name, _, kind = segment[1:-1].partition(":")
                names.append(name)
                if kind == "path":
                    if i != len(segments) - 1:
                        raise ValueError(f"{{{name}:path}} takes the rest of the path and has to be last: {path!r}")
                    rest = True
                    break
                if kind:
                    raise ValueError(f"expected {{name}} or {{name:path}}, not {segment!r}; annotate int and float")
                if node.parameter is None:
                    node.parameter = _Node()
                node = node.parameter
            else:
                node = node.literal.setdefault(segment, _Node())
        route = _Route(path, function, names)
        table = node.rest if rest else node.methods
        for method in methods:
            if method in table:
                raise ValueError(f"{method} {path} has a handler already: {table[method].function!r}")
            table[method] = route
            if not names and path.isascii() and "%" not in path:
                self._fixed[f"{method} {path}".encode()] = function
                if not self._middleware and not self._errors:
                    self._direct[f"{method} {path}".encode()] = function

    def get(self, path: str) -> Callable[[_F], _F]:
        """A decorator for GET, and HEAD, on ``path``."""
        return self.route(path, ("GET",))

    def post(self, path: str) -> Callable[[_F], _F]:
        """A decorator for POST on ``path``."""
        return self.route(path, ("POST",))

    def put(self, path: str) -> Callable[[_F], _F]:
        """A decorator for PUT on ``path``."""
        return self.route(path, ("PUT",))

    def patch(self, path: str) -> Callable[[_F], _F]:
        """A decorator for PATCH on ``path``."""
        return self.route(path, ("PATCH",))

    def delete(self, path: str) -> Callable[[_F], _F]:
        """A decorator for DELETE on ``path``."""
        return self.route(path, ("DELETE",))

    def mount(self, prefix: str, handler: Any) -> None:
        """Paths below ``prefix`` that no route has go to another handler, which sees the whole path."""
        if not prefix.startswith("/"):
            raise ValueError(f"a prefix begins with a slash: {prefix!r}")
        self._mounted.append((prefix.rstrip("/") + "/", handler))
        self._mounted.sort(key=lambda pair: -len(pair[0]))

    def middleware(self, function: Callable[[Request, Callable[[Request], Any]], Any]) -> Any:
        """A decorator: ``function(request, proceed)`` is called for each request; ``proceed(request)`` goes on, and
        returns what the handler returned. The last one added is the outermost."""
        self._middleware.append(function)
        self._direct.clear()
        chain = self._chain
        self._chain = lambda request: function(request, chain)
        return function

    def error(self, status: int) -> Callable[[_F], _F]:
        """A decorator: ``function(request, exception)`` makes the answer for this status."""

        def add(function: _F) -> _F:
            self._errors[status] = function
            self._direct.clear()
            return function

        return add

    @property
    def fixed_routes(self) -> dict[bytes, Callable[[Request], Any]]:
        """``b"GET /path"`` -> function, for routes that need nothing else. It changes with the App; it is empty as soon
        as there is middleware."""
        return self._direct

    # -- serving

    def __call__(self, request: Request) -> Any:
        if not self._errors:
            return self._chain(request)
        try:
            return self._chain(request)
        except HTTPException as e:
            handler = self._errors.get(e.status)
            if handler is None or request.started:
                raise
            return handler(request, e)

    def _dispatch(self, request: Request) -> Any:
        path = request.path
        if not path.startswith("/"):
            if path == "*":
                return Response(b"", 204, [("allow", "GET, HEAD, OPTIONS")])
            raise HTTPException(404)
        segments = [unquote(segment) if "%" in segment else segment for segment in path[1:].split("/")]
        values: list[str] = []
        allowed: set[str] = set()
        route = _find(self._root, segments, 0, request.method_raw, values, allowed)
        if route is not None:
            request.route = route.path
            return route.call(request, values)
        for prefix, handler in self._mounted:
            if path.startswith(prefix) or path == prefix[:-1]:
                return handler(request)
        if not allowed:
            raise HTTPException(404)
        if "GET" in allowed:
            allowed.add("HEAD")
        names = ", ".join(sorted(allowed))
        if request.method_raw == "OPTIONS":
            return Response(b"", 204, [("allow", names)])
        raise HTTPException(405, headers=[("allow", names)])

    def __repr__(self) -> str:
        return f"<App with {len(self._fixed)} fixed routes, {len(self._mounted)} mounted>"


def _find(
    node: _Node, segments: list[str], at: int, method: str, values: list[str], allowed: set[str]
) -> _Route | None:
    """The route for these segments; `values` gets the parameters, `allowed` the methods of what fits but for it."""
    if at == len(segments):
        return _pick(node.methods, method, allowed)
    segment = segments[at]
    below = node.literal.get(segment)
    if below is not None:
        found = _find(below, segments, at + 1, method, values, allowed)
        if found is not None:
            return found
    if node.parameter is not None and segment:
        values.append(segment)
        found = _find(node.parameter, segments, at + 1, method, values, allowed)
        if found is not None:
            return found
        values.pop()
    if node.rest:
        found = _pick(node.rest, method, allowed)
        if found is not None:
            values.append("/".join(segments[at:]))
            return found
    return None


def _pick(table: dict[str, _Route], method: str, allowed: set[str]) -> _Route | None:
    allowed.update(table)
    return table.get(method) or (table.get("GET") if method == "HEAD" else None)


class Hosts:
    """Virtual hosts: a handler for each host name. ``hosts`` maps names to handlers; ``"*.example.org"`` is every name
    below, ``"*"`` any other. Without one, an unknown host is answered with 421 (Misdirected Request)."""

    def __init__(self, hosts: Mapping[str, Any]) -> None:
        self._hosts = {name.lower(): handler for name, handler in hosts.items()}

    def __call__(self, request: Request) -> Any:
        host = (request.host or "").lower()
        name = host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
        name = name.rstrip(".")
        handler = self._hosts.get(name)
        while handler is None and "." in name:
            name = name.partition(".")[2]
            handler = self._hosts.get(f"*.{name}")
        handler = handler or self._hosts.get("*")
        if handler is None:
            raise HTTPException(421, "this server has no such host")
        return handler(request)


def query(request: Request) -> list[tuple[str, str]]:
    """The pairs of a request's query, decoded; at most a thousand. `HTTPException` 400 for more."""
    try:
        return parse_qsl(request.query_string.decode("latin-1"), keep_blank_values=True, max_num_fields=1000)
    except ValueError as e:
        raise HTTPException(400, str(e)) from None
