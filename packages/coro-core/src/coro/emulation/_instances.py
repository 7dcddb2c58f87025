"""Objects that were made before the emulation came: locks and thread-local data are replaced where they are kept.

A native lock that is free is exchanged for an emulated one in every module, object, list and closure that holds it; an
emulated lock serves OS threads just as well, so it may stay for good. What is locked at the moment, or held by
something that cannot be changed, is described, for the warning.

Cost: one look at everything that the cyclic garbage collector tracks and what it refers to, about 0.3 s for a million
objects, once per installation.
"""

from __future__ import annotations

import _queue
import _thread
import gc
import io
import select
import socket
import threading
import types
from collections import deque
from typing import Any

from coro._sync.local import LocalValues
from coro.emulation import _blocking
from coro.emulation._modules import multiprocessing as _multiprocessing

__all__ = ["exchange"]

_LOCK: Any = type(_thread.allocate_lock())
_RLOCK: Any = type(_thread.RLock())
_LOCAL: Any = _thread._local
_SIMPLE_QUEUE: Any = _queue.SimpleQueue
_NATIVE: frozenset[Any] = frozenset((_LOCK, _RLOCK, _LOCAL))
_POLLS: frozenset[Any] = frozenset(
    [type(select.poll())] * hasattr(select, "poll") + [getattr(select, "epoll", _LOCK)] * hasattr(select, "epoll")
)
_BUFFERS: frozenset[Any] = frozenset((io.BufferedReader, io.BufferedWriter, io.BufferedRWPair))
# What cannot be changed, or refers to a lock only for the moment.
_PASSED_OVER: frozenset[Any] = frozenset(
    (tuple, types.FrameType, types.BuiltinFunctionType, types.MethodType, types.FunctionType, types.CodeType, set,
     frozenset, types.GenericAlias, types.MappingProxyType)
)  # fmt: skip


def _is_free(lock: Any) -> bool:
    if not lock.acquire(False):
        return False
    lock.release()
    # An RLock that the caller owns is taken once more: look whether it was the first time.
    return not (type(lock) is _RLOCK and lock._is_owned())


def _new_local(old: Any) -> LocalValues:
    new = LocalValues()
    for name, value in vars(old).items():
        setattr(new, name, value)
    return new


class _Exchange:
    """One pass. Invariant: an object that was replaced once is replaced by the same one everywhere."""

    def __init__(self) -> None:
        self.new: dict[int, tuple[Any, Any]] = {}
        self.problems: set[str] = set()
        self.modules = {id(vars(module)): name for name, module in _modules()}
        self.conditions: list[threading.Condition] = []

    def stand_in(self, old: Any) -> Any:
        """What to put in the place of an object; None if it has to stay."""
        found = self.new.get(id(old))
        if found is None:
            new: Any = None
            if type(old) is _LOCAL:
                new = _new_local(old)
            elif _is_free(old):
                new = _blocking.Lock() if type(old) is _LOCK else _blocking.RLock()
            found = self.new[id(old)] = (old, new)
        return found[1]

    def look_at(self, holder: Any) -> None:
        kind = type(holder)
        if kind in _PASSED_OVER or str(kind.__module__).startswith("coro."):
            return  # what is ours holds native ones on purpose
        if isinstance(holder, threading.Condition):
            self.conditions.append(holder)
        elif kind.__module__ == "multiprocessing.synchronize" and _multiprocessing.stand_in(holder) is False:
            self.problems.add(f"a lock in use, {holder!r}")
        for old in gc.get_referents(holder):
            if type(old) in _NATIVE:
                self.exchange(holder, kind, old)
            elif type(old) is _SIMPLE_QUEUE:
                self.problems.add(f"a SimpleQueue in {self.name_of(holder)}")
            elif type(old) in _POLLS and not getattr(old, "closed", False):
                self.problems.add(f"a polling object in {self.name_of(holder)}")
        if kind in _BUFFERS and isinstance(getattr(holder, "raw", None), socket.SocketIO):
            self.problems.add(f"a buffered file of a socket, {holder!r}")
        # asyncio has its own in C, and this one for Pythons without.
        if isinstance(holder, _LOCAL) and kind is not _LOCAL and kind.__module__ != "asyncio.events":
            self.problems.add(f"thread-local data of the class {kind.__module__}.{kind.__qualname__}")

    def exchange(self, holder: Any, kind: Any, old: Any) -> None:
        new = self.stand_in(old)
        if new is None:
            name = self.name_of(holder)
            # The ends of threads are told by locks, and imports hold some for a moment.
            is_end = isinstance(holder, dict) and holder.get("_tstate_lock") is old
            if not is_end and not name.startswith(("threading.", "coro", "_frozen_importlib.")):
                self.problems.add(f"a lock in use in {name}")
            return
        if not self.put(holder, old, new):
            self.problems.add(f"a lock or thread-local data in {self.name_of(holder)}")

    def put(self, holder: Any, old: Any, new: Any) -> bool:
        """Put the new object wherever the holder has the old one."""
        done = False
        if isinstance(holder, dict):
            for key, value in list(holder.items()):
                if value is old:
                    holder[key] = new
                    done = True
        elif isinstance(holder, (list, deque)):
            for index, value in enumerate(holder):
                if value is old:
                    holder[index] = new
                    done = True
        elif isinstance(holder, types.CellType):
            holder.cell_contents = new
            done = True
        elif isinstance(holder, types.ModuleType):
            return self.put(vars(holder), old, new)
        else:
            done = self.put_attributes(holder, old, new)
        return done

    def put_attributes(self, holder: Any, old: Any, new: Any) -> bool:
        done = False
        names = list(getattr(holder, "__dict__", ()))
        for cls in type(holder).__mro__:
            slots = cls.__dict__.get("__slots__", ())
            names += [slots] if isinstance(slots, str) else list(slots)
        for name in names:
            if getattr(holder, name, None) is old:
                try:
                    (type.__setattr__ if isinstance(holder, type) else object.__setattr__)(holder, name, new)
                    done = True
                except (AttributeError, TypeError):
                    pass
        return done

    def name_of(self, holder: Any) -> str:
        if isinstance(holder, dict):
            if id(holder) in self.modules:
                return self.modules[id(holder)]
            owners = [owner for owner in gc.get_referrers(holder) if getattr(owner, "__dict__", None) is holder]
            if not owners:
                return "a dictionary"
            holder = owners[0]
        return f"{type(holder).__module__}.{type(holder).__qualname__}"

    def renew_conditions(self) -> None:
        """A condition keeps methods of its lock."""
        for condition in self.conditions:
            lock = getattr(condition, "_lock", None)
            if isinstance(lock, (_blocking.Lock, _blocking.RLock)):
                waiters = condition._waiters  # type: ignore[attr-defined]
                condition.__init__(lock)  # type: ignore[misc]
                condition._waiters = waiters  # type: ignore[attr-defined]


def _modules() -> list[tuple[str, types.ModuleType]]:
    import sys

    return [(name, module) for name, module in list(sys.modules.items()) if isinstance(module, types.ModuleType)]


def exchange() -> list[str]:
    """Replace everything replaceable; returns descriptions of what is not, in order."""
    work = _Exchange()
    mine = {id(work), id(work.new), id(work.modules), id(vars(work)), id(_NATIVE)}
    for holder in gc.get_objects():
        if id(holder) not in mine:
            try:
                work.look_at(holder)
            except ReferenceError:  # a weak proxy
                pass
    work.renew_conditions()
    return sorted(work.problems)
