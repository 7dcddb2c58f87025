"""What may be called: a table of names, filled by hand. Nothing is looked up by attribute when a call comes.

    registry = Registry()

    @registry.export
    def add(a: int, b: int) -> int:
        return a + b

    registry.export_service(Accounts(), AccountsProtocol, "accounts")

A name consists of identifiers and dots; none of its parts begins with an underscore, and "rpc" is the package's own.
The table is a dictionary of byte strings, so a call costs one lookup, and a name that is not in it is nothing but
unknown.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeVar, overload

from coro._runtime import scheduler
from coro.rpc._calls import IncomingCall, Method
from coro.rpc.exceptions import LocalError

__all__ = ["Registry", "ServiceError", "is_stream", "members"]

_F = TypeVar("_F", bound=Callable[..., Any])
Hook = Callable[..., object]


class ServiceError(LocalError):
    """An object does not do what the Protocol says that it is exported for. The text names every difference."""


class _Hooks:
    def __init__(self) -> None:
        self.before: list[Hook] = []
        self.after: list[Hook] = []


class Registry:
    """The callables that one side exports. One registry may serve any number of connections, and grow meanwhile."""

    def __init__(self) -> None:
        self._methods: dict[bytes, Method] = {}
        self._hooks = _Hooks()

    def __repr__(self) -> str:
        return f"<Registry of {', '.join(self) or 'nothing'}>"

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(name.decode() for name in self._methods))

    def __len__(self) -> int:
        return len(self._methods)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.encode() in self._methods

    @overload
    def export(self, function: _F, name: str | None = None, /) -> _F: ...
    @overload
    def export(
        self,
        function: None = None,
        name: str | None = None,
        /,
        *,
        limit: int | None = None,
        max_time: float | None = None,
        serial: Literal["method", "client"] | None = None,
        allow: Iterable[str] | None = None,
        idempotent: bool = False,
    ) -> Callable[[_F], _F]: ...
    @overload
    def export(
        self,
        function: _F,
        name: str | None = None,
        /,
        *,
        limit: int | None = None,
        max_time: float | None = None,
        serial: Literal["method", "client"] | None = None,
        allow: Iterable[str] | None = None,
        idempotent: bool = False,
    ) -> _F: ...
    def export(
        self,
        function: Any = None,
        name: str | None = None,
        /,
        *,
        limit: int | None = None,
        max_time: float | None = None,
        serial: Literal["method", "client"] | None = None,
        allow: Iterable[str] | None = None,
        idempotent: bool = False,
    ) -> Any:
        """Export a callable; with or without arguments also a decorator.

        name: what it is called on the wire, its ``__name__`` if None. limit: executions at a time, over all
        connections; further calls are refused as busy. max_time: seconds that an execution may take, whatever the
        caller allows. serial: with "method", one call after the other; with "client", one after the other for each
        connection. allow:
        the identities that may call it, None for all. idempotent: callers are told that they may repeat it.

        A generator function answers with a stream. Raises LocalError for a name that is not allowed or is taken, and
        TypeError for what cannot be called, an ``async def`` function among it."""
        if function is None:
            return lambda f: self.export(
                f, name, limit=limit, max_time=max_time, serial=serial, allow=allow, idempotent=idempotent
            )
        if not callable(function):
            raise TypeError(f"expected a callable to export, got {function!r}")
        scheduler._check_function(function)
        wire = name if name is not None else getattr(function, "__name__", "")
        check_name(wire)
        if wire.partition(".")[0] == "rpc":
            raise LocalError(
                f"expected a name that does not begin with 'rpc', which is the package's own, got {wire!r}"
            )
        if serial not in (None, "method", "client"):
            raise ValueError(f"expected serial as None, 'method' or 'client', got {serial!r}")
        if limit is not None and limit < 1:
            raise ValueError(f"expected a limit of at least 1 execution at a time, got {limit}")
        if max_time is not None and not max_time > 0:
            raise ValueError(f"expected max_time as a number of seconds above 0, got {max_time}")
        self._add(wire, function, limit or 0, max_time, serial, allow, idempotent)
        return function

    def _add(
        self,
        name: str,
        function: Any,
        limit: int = 0,
        max_time: float | None = None,
        serial: str | None = None,
        allow: Iterable[str] | None = None,
        idempotent: bool = False,
    ) -> None:
        if name.encode() in self._methods:
            raise LocalError(f"expected a name that is free, {name!r} is exported already")
        try:
            signature = str(inspect.signature(function))
        except (TypeError, ValueError):
            signature = "(...)"
        self._methods[name.encode()] = Method(
            name,
            function,
            limit=limit,
            max_time=max_time,
            serial=serial,
            allow=frozenset(allow) if allow is not None else None,
            idempotent=idempotent,
            doc=inspect.getdoc(function) or "",
            signature=signature,
        )

    def export_service(self, service: object, protocol: type, name: str | None = None, **options: Any) -> None:
        """Export the methods of an object that a Protocol class names, as ``NAME.method``.

        service: the object. protocol: the class; its methods, and no others, are exported, after a look whether the
        object has each of them with parameters that fit. name: None takes the protocol's. options: as for ``export``.

        Raises ServiceError, which names all that is missing or different."""
        prefix = name if name is not None else protocol.__name__
        wrong = []
        found = {}
        for method, described in members(protocol).items():
            function = getattr(service, method, None)
            if not callable(function):
                wrong.append(f"{method}() is missing")
                continue
            found[method] = function
            wrong += [f"{method}(): {text}" for text in _differences(described, function)]
        if wrong:
            raise ServiceError(
                f"expected {type(service).__name__} to be a {protocol.__name__}; {'; '.join(wrong)}; "
                "change the object or the protocol"
            )
        if not found:
            raise ServiceError(f"expected a class with public methods, {protocol.__name__} has none")
        for method, function in found.items():
            self.export(function, f"{prefix}.{method}", **options)

    def before(self, hook: Callable[[IncomingCall, tuple[Any, ...], dict[str, Any]], object]) -> Any:
        """Call ``hook(call, args, kwargs)`` before each execution, in its thread; returns the hook. What it raises is
        the outcome of the call: raise NotPermitted to refuse it."""
        self._hooks.before.append(hook)
        return hook

    def after(self, hook: Callable[[IncomingCall, Any], object]) -> Any:
        """Call ``hook(call, result)`` after each execution that did not fail; returns the hook."""
        self._hooks.after.append(hook)
        return hook

    def describe(self, name: str) -> dict[str, Any]:
        """What is known about a method: name, signature, doc, and what ``export`` was told. KeyError if there is
        none."""
        m = self._methods[name.encode()]
        return {
            "name": m.name,
            "signature": m.signature,
            "doc": m.doc,
            "limit": m.limit or None,
            "max_time": m.max_time,
            "serial": m.serial,
            "idempotent": m.idempotent,
            "stream": inspect.isgeneratorfunction(m.function),
        }


def check_name(name: str) -> None:
    """LocalError for what no method can be called."""
    parts = name.split(".") if isinstance(name, str) else [""]
    if not all(part.isidentifier() and not part.startswith("_") for part in parts) or len(name.encode()) > 1000:
        raise LocalError(
            f"expected a name of identifiers and dots, none with an underscore at its front, got {name!r}; "
            "give another one: export(function, 'name')"
        )


def members(protocol: type) -> dict[str, Any]:
    """The public methods that a Protocol class describes, by name."""
    found: dict[str, Any] = {}
    for base in reversed(protocol.__mro__):
        if base in (object, typing.Protocol, typing.Generic):
            continue
        for name, value in vars(base).items():
            if not name.startswith("_") and inspect.isfunction(value):
                found[name] = value
    return found


_STREAMS = {"Iterator", "Iterable", "Generator"}


def is_stream(function: Any) -> bool:
    """Does a method of a Protocol answer with a stream? Its return type says so."""
    kind = getattr(function, "__annotations__", {}).get("return")
    if isinstance(kind, str):
        return kind.partition("[")[0].rpartition(".")[2] in _STREAMS
    kind = typing.get_origin(kind) or kind
    return getattr(kind, "__name__", "") in _STREAMS


def _differences(described: Any, function: Any) -> list[str]:
    """Calls that the protocol allows and the function does not take."""
    try:
        has = inspect.signature(function)
    except (TypeError, ValueError):
        return []
    wanted = list(inspect.signature(described).parameters.values())[1:]
    takes = dict(has.parameters)
    any_args = any(p.kind is p.VAR_POSITIONAL for p in takes.values())
    any_keywords = any(p.kind is p.VAR_KEYWORD for p in takes.values())
    positional = [p for p in takes.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    wrong = []
    for i, p in enumerate(wanted):
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            if not (any_args if p.kind is p.VAR_POSITIONAL else any_keywords):
                wrong.append(f"takes no {p}")
            continue
        mine = takes.get(p.name)
        if p.kind is p.KEYWORD_ONLY:
            if mine is None and not any_keywords:
                wrong.append(f"has no parameter {p.name!r}")
        elif i >= len(positional):
            if not any_args:
                wrong.append(f"has no parameter {p.name!r}")
        elif p.kind is p.POSITIONAL_OR_KEYWORD and positional[i].name != p.name:
            wrong.append(f"expected {p.name!r} as parameter {i + 1}, got {positional[i].name!r}")
        if mine is not None and p.default is not p.empty and mine.default is mine.empty:
            wrong.append(f"{p.name!r} needs a default")
    names = {p.name for p in wanted}
    for i, p in enumerate(takes.values()):
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name not in names:
            if p.kind is p.KEYWORD_ONLY or i >= len(wanted):
                wrong.append(f"needs {p.name!r}, which the protocol has not")
    return wrong
