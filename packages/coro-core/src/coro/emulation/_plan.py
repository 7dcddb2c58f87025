"""A list of attributes that were replaced, so that they can be put back.

A room of the emulation writes down `(owner, name, new)` for modules and classes; apply() sets them and remembers what
was there. Replacing `time.sleep` does not reach a module that did `from time import sleep`, so every module's names,
the attributes of its classes, and the default arguments of its functions are looked through afterwards for objects
that were replaced, by identity.

Cost: one pass over the names of all modules, a few milliseconds for a program with a thousand of them.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["MISSING", "Plan", "modules_to_patch"]

MISSING: Any = object()


def modules_to_patch() -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and names of every module but coro's own, which are written for coro threads."""
    for name, module in list(sys.modules.items()):
        if name == "coro" or name.startswith("coro.") or not isinstance(module, types.ModuleType):
            continue
        yield name, vars(module)


def _set(owner: Any, name: str, value: Any) -> None:
    if value is MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, value)


class Plan:
    """What one installation replaced. Invariant: `done` undone from the end gives the state before."""

    def __init__(self) -> None:
        self.wanted: list[tuple[Any, str, Any]] = []
        self.done: list[tuple[Any, str, Any, Any]] = []
        self.mapped: dict[int, tuple[Any, Any]] = {}  # id of an original -> (the original, what stands for it)
        self.makers: dict[str, list[tuple[str, Callable[[types.ModuleType], Any]]]] = {}

    def replace(self, owner: Any, name: str, new: Any) -> None:
        """Have `owner.name` become `new`; an owner without that attribute is left alone if it is a module. A function
        says from then on that it is what it stands for: pickle writes that down, and another process, or another
        interpreter, that reads it has its own. Its signature is that of the original."""
        if isinstance(owner, types.ModuleType) and isinstance(new, types.FunctionType | types.BuiltinFunctionType):
            if str(new.__module__).startswith("coro.emulation."):
                new.__module__ = owner.__name__
                if isinstance(new, types.FunctionType):
                    new.__name__ = new.__qualname__ = name
                    if hasattr(owner, name):
                        vars(new).setdefault("__wrapped__", getattr(owner, name))
        self.wanted.append((owner, name, new))

    def replace_in_each(self, module: str, name: str, make: Callable[[types.ModuleType], Any]) -> None:
        """Have `module.name` become what `make(module)` returns, now or, as loading a large module only to change it
        would be a waste, when somebody imports it."""
        self.makers.setdefault(module, []).append((name, make))
        loaded = sys.modules.get(module)
        if loaded is not None:
            self.replace(loaded, name, make(loaded))

    def make_all(self, module: types.ModuleType) -> None:
        """A module was just loaded: replace what replace_in_each() was told of."""
        for name, make in self.makers.get(module.__name__, ()):
            old = vars(module).get(name)
            if old is not None:
                new = make(module)
                if callable(new):
                    self.mapped[id(old)] = (old, new)
                self.set(module, name, new)

    def set(self, owner: Any, name: str, new: Any) -> None:
        """Replace at once."""
        old = vars(owner).get(name, MISSING)
        self.done.append((owner, name, old, new))
        _set(owner, name, new)

    def apply(self) -> None:
        """Replace everything wanted, here and in whatever module has the same objects under other names."""
        for owner, name, new in self.wanted:
            old = vars(owner).get(name, MISSING)
            if old is new or (old is MISSING and isinstance(owner, types.ModuleType)):
                continue  # only copies of the module need it, or this Python has no such function
            if isinstance(owner, types.ModuleType) and callable(old):
                self.mapped[id(old)] = (old, new)
            self.set(owner, name, new)
        self.wanted.clear()
        for _, names in modules_to_patch():
            self._look_through(names)

    def replace_now(self, owner: Any, name: str, new: Any) -> None:
        """Replace one thing when all others have been, here and in whatever module has it under other names."""
        old = vars(owner)[name]
        others, self.mapped = self.mapped, {id(old): (old, new)}
        try:
            self.set(owner, name, new)
            for _, names in modules_to_patch():
                self._look_through(names)
        finally:
            self.mapped = {**others, **self.mapped}

    def _look_through(self, names: dict[str, Any]) -> None:
        module = names.get("__name__")
        for name, value in list(names.items()):
            found = self.mapped.get(id(value))
            if found is not None:
                self.done.append((names, name, value, found[1]))
                names[name] = found[1]
            elif isinstance(value, type) and getattr(value, "__module__", None) == module:
                self._look_into(value)
            elif type(value) is types.FunctionType and value.__defaults__:
                self._look_at_defaults(value)

    def _look_into(self, cls: type) -> None:
        for name, value in list(vars(cls).items()):
            bare = value.__func__ if isinstance(value, staticmethod) else value
            if type(bare) is types.FunctionType and bare.__defaults__:
                self._look_at_defaults(bare)
            found = self.mapped.get(id(bare))
            if found is None:
                continue
            new = found[1]
            if isinstance(new, types.FunctionType):
                new = staticmethod(new)  # a built-in function, unlike this one, does not become a method
            try:
                setattr(cls, name, new)
            except (AttributeError, TypeError):
                continue
            self.done.append((cls, name, value, new))

    def _look_at_defaults(self, function: types.FunctionType) -> None:
        old = function.__defaults__ or ()
        new = tuple(self.mapped.get(id(value), (None, value))[1] for value in old)
        if any(a is not b for a, b in zip(old, new, strict=True)):
            function.__defaults__ = new
            self.done.append((function, "__defaults__", old, new))

    def undo(self) -> None:
        """Put back what nobody else has replaced meanwhile, and what was imported since."""
        back = {id(new): (new, old) for old, new in self.mapped.values()}
        for owner, name, old, new in reversed(self.done):
            if isinstance(owner, dict):
                if owner.get(name) is new:
                    owner[name] = old
            elif isinstance(owner, types.FunctionType):
                owner.__defaults__ = old
            elif vars(owner).get(name, MISSING) is new:
                _set(owner, name, old)
        self.done.clear()
        self.mapped = back
        for _, names in modules_to_patch():
            self._look_through(names)
        self.done.clear()
        self.mapped.clear()
