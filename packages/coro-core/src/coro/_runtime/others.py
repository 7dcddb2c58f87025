"""Libraries that keep account of the stack of each OS thread, and therefore forbid switches: greenlet and pybind11.

`_switch/obstacle.h` says why, and how it is seen at a wait. The scheduler has to be told that they are there. Modules
that are loaded when a loop begins are looked at then; the emulation, which sees imports, tells of later ones.

Cost: two look-ups per loop. If something in the process was made with pybind11, the names of all C modules are looked
through for its functions: a few milliseconds for one with thousands of them. One function of each shared library would
be enough, but some modules have functions from several.
"""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Iterable
from importlib.machinery import ExtensionFileLoader
from typing import Any

from coro._runtime import scheduler

__all__ = ["found", "look_at", "look_at_loaded"]

#: Modules that were found -> what they were made with.
found: dict[str, str] = {}

_METHODS = (staticmethod, classmethod)


def _uses_pybind11() -> bool:
    """Has anything in this process been made with pybind11? It keeps what its modules share in one of two places."""
    places: Iterable[Iterable[Any]] = (vars(builtins), scheduler._interpreter_dict())
    return any("pybind11_internals" in str(name) for place in places for name in list(place))


def _look_at_functions(names: dict[str, Any], module: str, seen: set[int], all_classes: bool) -> None:
    for value in list(names.values()):
        if isinstance(value, _METHODS):
            value = value.__func__
        elif isinstance(value, property):
            value = value.fget
        if isinstance(value, type | types.ModuleType):
            own = value.__name__ if isinstance(value, types.ModuleType) else value.__module__
            # A module has its parts: submodules, and classes that name it as theirs.
            mine = isinstance(own, str) and (own + ".").startswith(module + ".")
            if id(value) not in seen and (mine or (all_classes and isinstance(value, type))):
                seen.add(id(value))
                _look_at_functions(dict(vars(value)), module, seen, all_classes)
        elif value is not None and scheduler._watch_pybind11(value, module):
            found[module] = "pybind11"


def _look_at_all(modules: Iterable[types.ModuleType]) -> None:
    """Classes that name another module as theirs come last: they may be shown by a module that has not made them, or
    be all that a library has."""
    modules = list(modules)
    for all_classes in (False, True):
        for module in modules:
            _look_at_functions(dict(vars(module)), module.__name__, {id(module)}, all_classes)


def look_at(module: types.ModuleType) -> None:
    """A C module was loaded."""
    name = module.__name__
    if name == "greenlet._greenlet":
        scheduler._watch_greenlets(vars(module)["_C_API"])
        found[name] = "greenlet"
    elif _uses_pybind11():
        _look_at_all([module])


def look_at_loaded() -> None:
    """Look at all C modules there are."""
    if "greenlet._greenlet" in sys.modules:
        look_at(sys.modules["greenlet._greenlet"])
    if _uses_pybind11():
        _look_at_all(
            module
            for module in list(sys.modules.values())
            if isinstance(getattr(getattr(module, "__spec__", None), "loader", None), ExtensionFileLoader)
        )
