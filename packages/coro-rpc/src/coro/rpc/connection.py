"""A connection of fast_rpc as users see it: calls in all forms, proxies, the handshake.

The hot parts are in _calls.pyx; here is what happens once a connection, and the forms of a call. `Callable` is what a
connection, a client and a pool have in common: they differ only in which connection a call takes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, cast

import coro
from coro._runtime import scheduler
from coro.rpc import _auth
from coro.rpc._calls import IncomingCall, Limits, Pending, RpcStream, Stream
from coro.rpc._registry import Registry, is_stream, members
from coro.rpc.codecs import JSON, Codec, Pickle
from coro.rpc.exceptions import (
    AuthenticationError,
    CallTimeout,
    ConnectionLost,
    ProtocolError,
    RemoteError,
    RpcError,
)
from coro.rpc.packet_stream import Outstanding, PacketStatistics

__all__ = ["Caller", "Connection", "Proxy", "Remote"]

_P = TypeVar("_P")

#: Seconds that a handshake may take.
HANDSHAKE_TIMEOUT = 10.0


class Caller:
    """The forms of a call: what ``Connection``, ``Client`` and ``Pool`` share.

    ``timeout`` is a number of seconds, None for the connection's (60 unless told otherwise), ``math.inf`` for no
    limit; it travels with the call, and the other side stops when it is over. ``metadata`` is a dict of strings for
    the hooks of the other side. A method with a parameter of one of these names is called with ``call_with``.
    """

    def _connection(self) -> RpcStream:
        raise NotImplementedError

    def call(
        self, method: str, /, *args: Any, timeout: float | None = None, metadata: Any = None, **kwargs: Any
    ) -> Any:
        """Call ``method(*args, **kwargs)`` on the other side and return its result.

        Arguments and result are values that the codec has. One argument may be an iterator: its items are sent as the
        method asks for them.

        Raises CallTimeout when the time is over; ConnectionLost, PeerUnresponsive or GoingAway when the connection
        ends; Busy, NoSuchMethod, BadArguments, NotPermitted; EncodeError and PacketTooBig for arguments that cannot be
        sent; a registered exception, or RemoteError, for what the method raised. An interruption (a ``coro.timeout``
        around it, a shutdown) ends the wait, and the other side is told to stop."""
        return self._connection().call(method, args, kwargs, timeout, metadata)

    def call_with(
        self,
        method: str,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Any:
        """``call`` with the arguments as a sequence and a dict, for methods whose parameters have other names than
        ``call`` leaves free."""
        return self._connection().call(method, tuple(args), kwargs, timeout, metadata)

    def call_async(
        self, method: str, /, *args: Any, timeout: float | None = None, metadata: Any = None, **kwargs: Any
    ) -> Pending:
        """Send a call and return its handle, which has ``wait()``, ``cancel()`` and ``done``. Raises what stands before
        a call is sent; ``wait()`` raises the rest."""
        return self._connection().call_async(method, args, kwargs, timeout, metadata)

    def stream(
        self, method: str, /, *args: Any, timeout: float | None = None, metadata: Any = None, **kwargs: Any
    ) -> Stream:
        """Call a method that answers with a stream: an iterator. There is no time limit unless ``timeout`` gives one
        for the whole."""
        return self._connection().open_stream(method, args, kwargs, timeout, metadata)

    def cast(self, method: str, /, *args: Any, metadata: Any = None, **kwargs: Any) -> None:
        """Call without an answer: nobody learns whether it worked. Waits only while the other side has too many of
        them, and raises CallTimeout, with nothing sent, when that lasts longer than the connection's ``timeout``."""
        self._connection().cast(method, args, kwargs, metadata)

    def batch(
        self,
        calls: Iterable[tuple[Any, ...]],
        *,
        timeout: float | None = None,
        return_exceptions: bool = False,
    ) -> list[Any]:
        """Make several calls at once and return their results in order.

        calls: tuples ``(method, *args)``. timeout: seconds for each. return_exceptions: an exception takes the place of
        a result; without it the first one is raised when all have ended, and the rest is cancelled."""
        pending: list[Any] = []
        try:
            for method, *args in calls:
                try:
                    pending.append(self.call_async(method, *args, timeout=timeout))
                except RpcError as e:
                    if not return_exceptions:
                        raise
                    pending.append(e)
            results: list[Any] = []
            for one in pending:
                if isinstance(one, BaseException):
                    results.append(one)
                    continue
                try:
                    results.append(one.wait())
                except Exception as e:
                    if not return_exceptions:
                        raise
                    results.append(e)
            return results
        finally:
            for one in pending:
                if isinstance(one, Pending):
                    one.cancel()

    def proxy(self, protocol: type[_P], name: str | None = None, *, timeout: float | None = None) -> _P:
        """An object with the methods of a Protocol class: each call of one is a remote call of ``NAME.method``.

        protocol: the class, for type checkers and for its names; a method whose return type is an Iterator, Iterable or
        Generator is a stream. name: None takes the protocol's. timeout: seconds for each call."""
        return cast(_P, Proxy(self, protocol, name if name is not None else protocol.__name__, timeout))

    @property
    def remote(self) -> Remote:
        """Calls in the style of attributes: ``conn.remote.accounts.balance(7)``."""
        return Remote(self, "")


class Remote:
    """A name on the other side; calling it calls that method. Made by ``remote``."""

    def __init__(self, caller: Caller, name: str) -> None:
        self._caller, self._name = caller, name

    def __getattr__(self, name: str) -> Remote:
        if name.startswith("_"):
            raise AttributeError(f"no remote name begins with an underscore: {name!r}")
        return Remote(self._caller, f"{self._name}.{name}" if self._name else name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._caller.call_with(self._name, args, kwargs)

    def __repr__(self) -> str:
        return f"<Remote {self._name!r}>"


class Proxy:
    """What ``proxy`` returns."""

    def __init__(self, caller: Caller, protocol: type, name: str, timeout: float | None) -> None:
        for method, described in members(protocol).items():
            make = _streaming if is_stream(described) else _calling
            function = make(caller, f"{name}.{method}", timeout)
            function.__name__, function.__doc__ = method, described.__doc__
            setattr(self, method, function)
        self._name = name

    def __repr__(self) -> str:
        return f"<Proxy {self._name!r}>"


def _calling(caller: Caller, name: str, timeout: float | None) -> Callable[..., Any]:
    def method(*args: Any, **kwargs: Any) -> Any:
        return caller.call_with(name, args, kwargs, timeout=timeout)

    return method


def _streaming(caller: Caller, name: str, timeout: float | None) -> Callable[..., Any]:
    def method(*args: Any, **kwargs: Any) -> Any:
        return caller._connection().open_stream(name, args, kwargs, timeout, None)

    return method


class Connection(Caller):
    """A connection over a stream that is there already; ``connect`` and ``Server`` make them.

    stream: a connected ``coro.Stream``. registry: what the other side may call here, None for nothing. server_side:
    whether this side waits for the other one's greeting; one of the two has to. codecs: which this side has, the
    preferred first; default ``Pickle()``, ``JSON()``. secret: a shared secret of at least 16 bytes; the server may give
    a dict of them by user name. user: a client's user name. unix_users: for a server, who may connect over a UNIX
    socket: "same" for the user of this process, or a set of user ids. name: what to tell the other side. errors:
    exception classes that are raised again as such when a remote method raised them. tracebacks: send the traceback of
    a method that failed. in_order: execute calls one after the other. limits: Limits shared with other connections.
    slow, on_slow: ``on_slow(call, seconds)`` for executions that take longer. on_error: ``on_error(call, exception)``
    for methods that raise. options: those of PacketStream.
    """

    def __init__(
        self,
        stream: Any,
        registry: Registry | None = None,
        *,
        server_side: bool = False,
        codecs: Iterable[Codec] | None = None,
        secret: bytes | Mapping[str, bytes] | None = None,
        user: str | None = None,
        unix_users: Literal["same"] | Iterable[int] | None = None,
        name: str = "",
        errors: Iterable[type[Exception]] = (),
        tracebacks: bool = False,
        in_order: bool = False,
        limits: Limits | None = None,
        slow: float | None = None,
        on_slow: Callable[[IncomingCall, float], object] | None = None,
        on_error: Callable[[IncomingCall, Exception], object] | None = None,
        peer_name: str | None = None,
        _builtins: Registry | None = None,
        **options: Any,
    ) -> None:
        self.registry = registry if registry is not None else Registry()
        self._codecs: list[Codec] = list(codecs) if codecs is not None else [Pickle(), JSON()]
        if not self._codecs:
            raise ValueError("expected at least one codec")
        self._server_side = bool(server_side)
        self._name = name
        self._user = user
        if isinstance(secret, Mapping):
            if not server_side:
                raise TypeError("a client has one secret; only a server has one for each user")
            self._secrets: dict[str, bytes] | None = {u: _auth.check_secret(s) for u, s in secret.items()}
        else:
            self._secrets = None if secret is None else {user or "": _auth.check_secret(secret)}
        self._users = unix_users if unix_users is None or unix_users == "same" else frozenset(unix_users)
        self._transcript = b""
        self._chosen: Codec | None = None
        self._ready = coro.event()
        self._pending_identity: str | None = None
        #: What the other side said of itself: name, build.
        self.peer: dict[str, Any] = {}
        #: Who the other side is, if it has proved that: a str, else None.
        self.identity: str | None = None
        self._rpc = RpcStream(stream, name=peer_name, **options)
        self._rpc.prepare(
            facade=self,
            methods=self.registry._methods,
            hooks=self.registry._hooks,
            limits=limits,
            tracebacks=tracebacks,
            in_order=in_order,
            is_server=self._server_side,
            greeter=self._greet if self._server_side else None,
            errors={_qualified(kind): kind for kind in errors},
            slow=slow,
            on_slow=on_slow,
            on_error=on_error,
            builtins=None if _builtins is None else _builtins._methods,
            greetings=1 if self._secrets is None else 2,
        )

    def __repr__(self) -> str:
        who = f" as {self.identity}" if self.identity else ""
        return f"<Connection to {self._rpc.name}{who}: {_state(self._rpc)}>"

    def _connection(self) -> RpcStream:
        return self._rpc

    # -- life

    def start(self, timeout: float = HANDSHAKE_TIMEOUT) -> Self:
        """Start, and wait for the end of the handshake, at most ``timeout`` seconds. Raises AuthenticationError,
        ProtocolError, CallTimeout or ConnectionLost; then the connection is closed."""
        self._rpc.start()
        try:
            if self._server_side:
                self._await_greeting(timeout)
            else:
                self._greet_server(timeout)
        except BaseException:
            self._rpc.abort()
            raise
        return self

    def __enter__(self) -> Self:
        if not self._ready.is_set():
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        if kind is None:
            self.close()
        else:
            self.abort()
        return False

    def __del__(self) -> None:
        rpc = getattr(self, "_rpc", None)
        if rpc is not None and not rpc.closed and not self._server_side and coro.coro_is_running():
            warnings.warn(f"the connection to {rpc.name} was never closed", ResourceWarning, source=self, stacklevel=2)
            try:
                scheduler._post_internal(rpc.abort)
            except Exception:
                return

    def close(self, timeout: float = 5.0) -> bool:
        """Close in order: no new calls, in either direction, those under way may end within ``timeout`` seconds.
        Returns whether all did. Does nothing when it is closed."""
        return self._rpc.close(timeout)

    def abort(self) -> None:
        """Close at once, without waiting: whoever waits gets ConnectionLost."""
        self._rpc.abort()

    def wait_closed(self, timeout: float | None = None) -> None:
        """Wait until it has ended, at most ``timeout`` seconds (then ``coro.TimeoutError``)."""
        self._rpc.wait_closed(timeout)

    @property
    def closed(self) -> bool:
        """Has it ended?"""
        return self._rpc.closed

    @property
    def closing(self) -> bool:
        """Does one of the sides take no new calls?"""
        return self._rpc.closing

    def ping(self, timeout: float | None = None) -> float:
        """Ask for a sign of life; the seconds that it took."""
        return self._rpc.ping(timeout)

    def statistics(self) -> PacketStatistics:
        """Counts, for debugging."""
        return self._rpc.statistics()

    def dump(self) -> list[Outstanding]:
        """Calls under way, in both directions, the oldest first."""
        return self._rpc.dump()

    # -- the client's side of the handshake

    def _greet_server(self, timeout: float) -> None:
        hello = _auth.dump(
            {
                "rpc": _auth.PROTOCOL,
                "codecs": [codec.name for codec in self._codecs],
                "name": self._name,
                "build": _auth.BUILD,
                "nonce": _auth.new_nonce(),
                "user": self._user,
                "secret": self._secrets is not None,
            }
        )
        answer = self._ask(hello, timeout)
        said = _auth.load(answer, rpc=int, codec=str, nonce=str, auth=str)
        if said["rpc"] != _auth.PROTOCOL:
            raise ProtocolError(f"expected version {_auth.PROTOCOL} of fast_rpc, the server has {said['rpc']}")
        self.peer = {key: str(said.get(key, ""))[:200] for key in ("name", "build")}
        codec = next((codec for codec in self._codecs if codec.name == said["codec"]), None)
        if codec is None:
            raise ProtocolError(f"expected a codec that was offered, the server chose {said['codec']!r}")
        proved = False
        if self._secrets is not None:
            if said["auth"] != "secret":
                raise AuthenticationError(
                    "this side has a secret and the server asks for none, so it cannot prove who it is"
                )
            (secret,) = self._secrets.values()
            transcript = hello + b"\n" + answer
            reply = self._ask(_auth.dump({"proof": _auth.proof(secret, "client", transcript)}), timeout)
            if not _auth.same(_auth.load(reply, proof=str)["proof"], _auth.proof(secret, "server", transcript)):
                raise AuthenticationError("the server does not know the secret")
            proved = True
        elif said["auth"] != "none":
            raise AuthenticationError("the server wants a secret: pass secret=... (and user=... if it has several)")
        stream = self._rpc.stream
        name = _auth.certificate_name(stream)
        self.identity = name
        if getattr(codec, "unrestricted", False) and not (proved or name or _auth.same_user(stream)):
            raise AuthenticationError("unrestricted pickle needs a server that has proved who it is")
        self._rpc.agree(codec, self.identity)
        self._ready.set()

    def _ask(self, message: bytes, timeout: float) -> bytes:
        try:
            return self._rpc.request(message, timeout)
        except AuthenticationError:
            raise
        except RemoteError as e:
            raise ProtocolError(f"the server refused the handshake: {e}") from None

    # -- the server's

    def _await_greeting(self, timeout: float) -> None:
        with coro.move_on_after(timeout) as scope:
            while not self._ready.is_set() and not self._rpc.closed:
                self._ready.wait()
        if scope.expired and self._rpc._is_agreed() is False:
            self._rpc.reject(AuthenticationError(f"expected an end of the handshake within {timeout:g} seconds"))
            raise CallTimeout(f"expected an end of the handshake within {timeout:g} seconds", timeout)
        if not self._rpc._is_agreed():
            raise self._rpc.error or ConnectionLost("the connection was closed during the handshake")

    def _greet(self, number: int, payload: bytes) -> None:
        """In a thread of its own: a message of the client."""
        try:
            if not self._transcript:
                self._first(number, payload)
            else:
                self._second(number, payload)
        except Exception as e:
            if not isinstance(e, RpcError):
                e = ProtocolError(f"expected a message of the handshake, got one that raises {type(e).__name__}")
            # Its traceback refers to this connection, which the stream refers to.
            self._rpc.reject(e.with_traceback(None))
            self._ready.set()

    def _first(self, number: int, payload: bytes) -> None:
        said = _auth.load(payload, rpc=int, codecs=list, nonce=str)
        if said["rpc"] != _auth.PROTOCOL:
            raise ProtocolError(f"expected version {_auth.PROTOCOL} of fast_rpc, the client has {said['rpc']}")
        self.peer = {key: str(said.get(key, ""))[:200] for key in ("name", "build")}
        mine = {codec.name: codec for codec in self._codecs}
        chosen = next((mine[name] for name in said["codecs"] if isinstance(name, str) and name in mine), None)
        if chosen is None:
            raise ProtocolError(f"expected one of the codecs {', '.join(mine)}, got {str(said['codecs'])[:200]}")
        stream = self._rpc.stream
        user = _auth.peer_user(stream)
        if self._users is not None:
            _auth.refuse_user(user, self._users)
        identity = _auth.certificate_name(stream)
        if identity is None and user is not None:
            identity = f"uid:{user}"
        self._chosen, self._pending_identity = chosen, identity
        answer = _auth.dump(
            {
                "rpc": _auth.PROTOCOL,
                "codec": chosen.name,
                "name": self._name,
                "build": _auth.BUILD,
                "nonce": _auth.new_nonce(),
                "auth": "none" if self._secrets is None else "secret",
                "identity": identity,
            }
        )
        self._transcript = payload + b"\n" + answer
        self._user = said.get("user") if isinstance(said.get("user"), str) else None
        if self._secrets is None:
            known = self._users is not None or _auth.same_user(stream) or _auth.certificate_name(stream) is not None
            self._finish(number, answer, chosen, identity, known)
        else:
            self._rpc.answer(number, answer)

    def _second(self, number: int, payload: bytes) -> None:
        assert self._secrets is not None and self._chosen is not None
        said = _auth.load(payload, proof=str)
        several = set(self._secrets) != {""}
        secret, known = _auth.secret_of(self._secrets, self._user if several else None)
        if not _auth.same(said["proof"], _auth.proof(secret, "client", self._transcript)) or not known:
            raise AuthenticationError("the client does not know the secret")
        identity = self._user if several else self._pending_identity or "secret"
        answer = _auth.dump({"proof": _auth.proof(secret, "server", self._transcript), "identity": identity})
        self._finish(number, answer, self._chosen, identity, True)

    def _finish(self, number: int, answer: bytes, codec: Codec, identity: str | None, proved: bool) -> None:
        if getattr(codec, "unrestricted", False) and not proved:
            raise AuthenticationError("unrestricted pickle is for clients that have proved who they are")
        self.identity = identity
        self._rpc.answer(number, answer)
        self._rpc.agree(codec, identity)
        self._ready.set()


def _qualified(kind: type[Exception]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _state(rpc: RpcStream) -> str:
    return "closed" if rpc.closed else "closing" if rpc.closing else "open"
