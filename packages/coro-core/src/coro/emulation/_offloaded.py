"""Calls of libraries in C that go to worker OS threads, everywhere and without a change of those who make them.

A name says which: ``package.module.function`` or ``package.module.Class.method``. The function that takes its place
asks who calls. A coro thread waits for a worker that runs the original; everybody else runs it directly. What is not
loaded yet is replaced when it is: each beginning of the name may be the module. A class in C cannot be changed; if it
can be derived from, a class with the method stands for it wherever it was known.

The workers have no bound: calls that block OS threads in the program as it was written may wait for one another.

Cost: a microsecond for whoever is no coro thread, and a call of coro.in_thread() for those who are.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from coro import offload as _workers
from coro.emulation import _blocking
from coro.emulation._plan import Plan

__all__ = ["add", "apply", "modules", "replace_in"]


class _Entry(NamedTuple):
    name: str
    when: Callable[..., bool] | None


_entries: dict[str, _Entry] = {}
#: Beginnings of names that may be modules -> the names.
modules: dict[str, list[str]] = {}
#: That of the installation, while there is one.
_plan: Plan | None = None


def add(name: str, when: Callable[..., bool] | None = None) -> None:
    """See coro.emulation.offload."""
    if not isinstance(name, str):
        raise TypeError(f"expected the name of a function, not {type(name).__name__}: {name!r}")
    if when is not None and not callable(when):
        raise TypeError(f"expected a function that says whether a call may wait, not {when!r}")
    parts = name.split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise ValueError(f"expected a name like 'package.Class.method', not {name!r}")
    if name not in _entries:
        for end in range(1, len(parts)):
            modules.setdefault(".".join(parts[:end]), []).append(name)
    _entries[name] = _Entry(name, when)
    if _plan is not None:
        _apply(name, None)


def _find(name: str, only_in: types.ModuleType | None) -> tuple[types.ModuleType, list[str]] | None:
    """The module of a name and the rest of it, if that is there."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        module = sys.modules.get(".".join(parts[:end])) if only_in is None else only_in
        if only_in is not None and only_in.__name__ != ".".join(parts[:end]):
            continue
        if isinstance(module, types.ModuleType) and _is_there(module, parts[end:]):
            return module, parts[end:]
    return None


def _is_there(owner: Any, path: list[str]) -> bool:
    for part in path:
        if not hasattr(owner, part):
            return False
        owner = getattr(owner, part)
    return callable(owner)


def _apply(name: str, module: types.ModuleType | None) -> None:
    found = _find(name, module)
    plan = _plan
    if found is None or plan is None:
        return
    module, path = found
    holder: Any = None
    owner: Any = module
    for part in path[:-1]:
        holder, owner = owner, getattr(owner, part)
    last = path[-1]
    old = vars(owner).get(last)
    bare = getattr(owner, last) if old is None else old
    if hasattr(bare, "_coro_offloaded"):
        return
    new: Any
    if isinstance(bare, staticmethod | classmethod):
        new = type(bare)(_in_worker(bare.__func__, name))
    else:
        new = _in_worker(bare, name)
    if owner is module:
        plan.replace_now(module, last, new)
        return
    try:
        setattr(owner, last, bare)
    except TypeError:
        plan.replace_now(holder, path[-2], _derived(owner, last, new))
    else:
        if old is None:
            delattr(owner, last)
        plan.set(owner, last, new)


def _derived(owner: Any, name: str, new: Any) -> Any:
    """A class that stands for one in C."""
    try:
        members = {"__module__": owner.__module__, "__doc__": owner.__doc__, name: new}
        return type(owner)(owner.__name__, (owner,), members)
    except TypeError as e:
        raise TypeError(
            f"cannot send {owner.__qualname__}.{name} to a worker: the class can neither be changed nor derived from; "
            "name a function that calls it"
        ) from e


def _in_worker(function: Any, name: str) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        when = _entries[name].when
        if not _blocking.in_thread_of_loop() or (when is not None and not when(*args, **kwargs)):
            return function(*args, **kwargs)
        return _workers._in_thread_of_its_own(function, *args, **kwargs)

    call._coro_offloaded = True  # type: ignore[attr-defined]
    functools.update_wrapper(call, function, updated=())
    return call


def replace_in(module: types.ModuleType) -> None:
    """A module was just loaded."""
    for name in modules.get(module.__name__, ()):
        _apply(name, module)


def apply(plan: Plan | None) -> None:
    """The emulation was installed, with this plan, or uninstalled: None."""
    global _plan
    _plan = plan
    if plan is not None:
        for name in _entries:
            _apply(name, None)


def _may_wait_zmq(_: Any, *args: Any, **kwargs: Any) -> bool:
    """Of Socket.recv(flags), Socket.send(data, flags)."""
    flags = kwargs.get("flags", next((arg for arg in args if isinstance(arg, int)), 0))
    return not int(flags) & 1


def _has_limit(_: Any, *args: Any, **kwargs: Any) -> bool:
    """Of poll(timeout): 0 does not wait."""
    return kwargs.get("timeout", next((arg for arg in args[-1:] if isinstance(arg, int | float)), None)) != 0


def _add_known() -> None:
    """Libraries that wait in C whatever one does, and parts of scipy that keep the function which they call back for
    each OS thread: a thread that gave way there got the values of another one's function, or crashed."""
    connection = "MySQLdb.connections.Connection."
    for method in (
        "__init__ query store_result use_result next_result commit rollback ping autocommit select_db change_user "
        "set_character_set kill shutdown close"
    ).split():
        add(connection + method)
    for method in ("fetchone", "fetchmany", "fetchall", "close"):
        add("MySQLdb.cursors.SSCursor." + method)
    for kind, methods in {
        "Consumer": "poll consume commit committed position seek list_topics offsets_for_times close",
        "Producer": "poll flush list_topics init_transactions commit_transaction abort_transaction",
    }.items():
        for method in methods.split():
            add(f"confluent_kafka.cimpl.{kind}.{method}", _has_limit if method == "poll" else None)
    for method in ("recv", "send"):
        add("zmq.sugar.socket.Socket." + method, _may_wait_zmq)
    add("zmq.sugar.socket.Socket.poll", _has_limit)
    add("zmq.sugar.poll.Poller.poll", _has_limit)
    for function in (
        "_csv.read_csv _csv.open_csv _json.read_json _feather.read_table parquet.core.read_table "
        "parquet.core.ParquetFile.__init__ parquet.core.ParquetFile.read"
    ).split():
        add("pyarrow." + function)
    for module, functions in {
        "integrate._quadpack": "_qagse _qagie _qagpe _qawoe _qawfe _qawse _qawce",
        "integrate._odepack": "odeint",
        "optimize._minpack": "_hybrd _hybrj _lmdif _lmder",
    }.items():
        for function in functions.split():
            add(f"scipy.{module}.{function}")


_add_known()
