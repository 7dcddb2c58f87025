"""JSON-RPC 2.0 over HTTP, and the 1.0 form that older programs speak: a handler for servers, and a proxy for clients.

    class Root:
        def handle_json_rpc(self, method, params):
            return getattr(self, "do_" + method)(*params)

    server.push_handler(json_rpc.json_rpc_handler(Root()))

    remote = json_rpc.json_rpc_remote("http://127.0.0.1:8080/jsonrpc")
    print(remote.sum(1, 2))

The specification is https://www.jsonrpc.org/specification: batches, notifications, and the errors -32700 to -32603. A
failure of the program is told as "internal error"; its text and traceback go to the log and not to the network. Cost: a
request each; a batch is answered in order, one call after the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import count
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from coro.http._client.session import Client
from coro.http._ws_handshake import check_origin
from coro.http.exceptions import HandshakeError, HTTPError, HTTPException
from coro.log import Facility

__all__ = ["Error", "RPCError", "json_rpc_handler", "json_rpc_remote"]

LOG = Facility("http handlers")

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
_TEXTS = {
    PARSE_ERROR: "parse error",
    INVALID_REQUEST: "invalid request",
    METHOD_NOT_FOUND: "method not found",
    INVALID_PARAMS: "invalid params",
    INTERNAL_ERROR: "internal error",
}
#: Calls of one batch that are answered.
MOST_CALLS = 1000


class Error(HTTPError):
    """The server answered with a status other than 200: ``args[0]`` is (status, body)."""


class RPCError(Error):
    """A call failed on the other side, or is to fail there: raised by a handler's function, it becomes the error
    object.

    ``code`` and ``message`` as the specification has them, ``data`` anything that JSON can write.
    """

    def __init__(self, code: int, message: str | None = None, data: Any = None) -> None:
        self.code = code
        self.message = _TEXTS.get(code, "server error") if message is None else message
        self.data = data
        super().__init__((code, self.message))

    def __str__(self) -> str:
        return f"{self.message} ({self.code})" + (f": {self.data!r}" if self.data is not None else "")

    def as_object(self) -> dict[str, Any]:
        """The error object."""
        found: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.data is not None:
            found["data"] = self.data
        return found


class _Root(Protocol):
    def handle_json_rpc(self, method: str, params: Any) -> Any: ...


class json_rpc_handler:
    """Answers POSTs to ``path`` by ``root.handle_json_rpc(method, params)``.

    root: an object with that method, or a function of both arguments. What it returns is the result; RPCError becomes
    the error object, AttributeError and KeyError for the method's own name "method not found", any other exception
    "internal error". path: where; ``/jsonrpc``. most: bytes of a request. origins: the pages whose scripts may call,
    for a browser sends what the page of any other site tells it, and with the user's cookies: ``"same"`` for those of
    this host, a list of origins, None for all. Programs that are no browsers name no origin, and may call.
    """

    def __init__(
        self,
        root: _Root | Callable[[str, Any], Any],
        path: str = "/jsonrpc",
        *,
        most: int = 1024 * 1024,
        origins: Literal["same"] | Iterable[str] | None = "same",
    ) -> None:
        self.root = root
        self.path = path
        self.most = most
        self.origins: str | list[str | None] | None = (
            origins if origins is None or isinstance(origins, str) else [None, *origins]
        )
        self._call: Callable[[str, Any], Any] = getattr(root, "handle_json_rpc", root)  # type: ignore[arg-type]

    def match(self, request: Any) -> bool:
        """Whether the request is one of its own."""
        return bool(request.path == self.path)

    def handle_request(self, request: Any) -> None:
        """Answer a request."""
        if request.method != "post":
            request.respond(405, [("Allow", "POST")], b"")
            return
        try:
            check_origin(request.headers.get("origin"), request.host or "", request.scheme, self.origins)
        except HandshakeError as e:
            raise HTTPException(403, str(e)) from None
        registry = getattr(getattr(request, "server", None), "registry", None)
        answer = self.answer(request.read(self.most), None if registry is None else registry.may_log)
        if answer is None:
            request.respond(204, [], b"")
        else:
            request.respond(200, [("Content-Type", "application/json")], answer)

    __call__ = handle_request

    def answer(self, data: bytes, may_log: Callable[[], bool] | None = None) -> bytes | None:
        """What to answer to a body; None if it has notifications only. may_log: asked before the traceback of a failure
        is logged; a server asks for its ``log_limit``. None: each is logged."""
        try:
            given = json.loads(data)
        except (ValueError, RecursionError):
            return _dumped(_failed(RPCError(PARSE_ERROR), None, True))
        may_log = _always if may_log is None else may_log
        if not isinstance(given, list):
            one = self._one(given, may_log)
            return None if one is None else _dumped(one)
        if not given or len(given) > MOST_CALLS:
            return _dumped(_failed(RPCError(INVALID_REQUEST), None, True))
        answers = [answer for answer in (self._one(call, may_log) for call in given) if answer is not None]
        return _dumped(answers) if answers else None

    def _one(self, call: Any, may_log: Callable[[], bool]) -> dict[str, Any] | None:
        modern = not isinstance(call, dict) or "jsonrpc" in call
        number = call.get("id") if isinstance(call, dict) else None
        if not isinstance(number, (str, int, float, type(None))):
            number = None
        if (
            not isinstance(call, dict)
            or not isinstance(call.get("method"), str)
            or (modern and call["jsonrpc"] != "2.0")
            or not isinstance(call.get("params", []), (list, dict))
        ):
            return _failed(RPCError(INVALID_REQUEST), number, modern)
        try:
            result = self._call(call["method"], call.get("params", []))
            answer = {"jsonrpc": "2.0", "result": result} if modern else {"result": result, "error": None}
            json.dumps(result)  # what cannot be written is this call's failure, and not the batch's
        except RPCError as e:
            answer = _failed(e, number, modern)
        except Exception as e:
            code = METHOD_NOT_FOUND if _is_missing(e, call["method"]) else INTERNAL_ERROR
            if code == INTERNAL_ERROR and may_log():
                LOG.exc()
            answer = _failed(RPCError(code), number, modern)
        if "id" not in call or (not modern and number is None):
            return None  # a notification
        answer["id"] = number
        return answer


def _always() -> bool:
    return True


def _is_missing(error: Exception, method: str) -> bool:
    """Whether looking the method up failed, by its name; the same errors from within it are its own."""
    if isinstance(error, AttributeError):
        return isinstance(error.name, str) and error.name.endswith(method)
    return isinstance(error, KeyError) and error.args == (method,)


def _failed(error: RPCError, number: Any, modern: bool) -> dict[str, Any]:
    if modern:
        return {"jsonrpc": "2.0", "error": error.as_object(), "id": number}
    return {"result": None, "error": error.as_object(), "id": number}


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8")


class json_rpc_remote:
    """Calls the methods of a server: ``remote.sum(1, 2)``.

    url: where. auth_info: (user, password) for Basic. client: a ``Client`` to use in place of one of its own; it stays
    the caller's. It connects at the first call. Every attribute that is not one of its own is a remote method.
    """

    def __init__(self, url: str, auth_info: tuple[str, str] | None = None, *, client: Client | None = None) -> None:
        self._url = url
        self._auth = auth_info
        self._own = client is None
        self._client = Client() if client is None else client
        self._numbers = count(1)

    def __repr__(self) -> str:
        return f"<json_rpc_remote {self._url}>"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self.invoke(name, *args, **kwargs)

    def invoke(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call a method with positional arguments or with keywords, and return its result. RPCError when it failed;
        Error when the server does not answer with a result; RequestError when it does not answer. TypeError for both
        kinds of arguments at once."""
        call = self._call(name, args, kwargs) | {"id": next(self._numbers)}
        answer = self._exchange(call)
        if not isinstance(answer, dict) or answer.get("id") != call["id"]:
            raise Error((200, f"expected the answer to call {call['id']}, not {str(answer)[:200]!r}"))
        return _result(answer)

    def notify(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Call a method whose result nobody wants. Errors of the method are not told."""
        self._exchange(self._call(name, args, kwargs), answered=False)

    def batch(self, calls: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Make many calls in one request; each is (name, argument, ...). A list of results in the same order; a failed
        call has its RPCError there."""
        sent = [self._call(name, args, {}) | {"id": next(self._numbers)} for name, *args in calls]
        if not sent:
            return []
        answers = self._exchange(sent)
        if not isinstance(answers, list):
            _result(answers if isinstance(answers, dict) else {})
            raise Error((200, "expected a list of answers"))
        found = {answer.get("id"): answer for answer in answers if isinstance(answer, dict)}
        results: list[Any] = []
        for call in sent:
            try:
                results.append(_result(found.get(call["id"], {})))
            except Error as e:
                results.append(e)
        return results

    def close(self) -> None:
        """Close the connection, if the client is its own."""
        if self._own:
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, name: str, args: Iterable[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        given = list(args)
        if given and kwargs:
            raise TypeError("a call has positional arguments or keywords, not both (section 4.2 of the specification)")
        return {"jsonrpc": "2.0", "method": name, "params": kwargs or given}

    def _exchange(self, message: Any, answered: bool = True) -> Any:
        response = self._client.post(self._url, json=message, **({"auth": self._auth} if self._auth else {}))
        if not answered and response.status in (200, 202, 204):
            return None
        if response.status != 200:
            raise Error((response.status, response.content))
        try:
            return response.json()
        except ValueError:
            raise Error((200, response.content)) from None


def _result(answer: dict[str, Any]) -> Any:
    error = answer.get("error")
    if error is not None:
        if isinstance(error, dict) and isinstance(error.get("code"), int):
            raise RPCError(error["code"], str(error.get("message", "")), error.get("data"))
        raise RPCError(INTERNAL_ERROR, str(error))
    if "result" not in answer:
        raise Error((200, "the answer has neither a result nor an error"))
    return answer["result"]
