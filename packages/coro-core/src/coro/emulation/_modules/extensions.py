"""C modules that are imported: those made with pybind11, and greenlet, forbid switches at certain moments.

What they need is told to the scheduler, see `_runtime/others.py`. C modules of all names are concerned, so it is the
method that loads them which is replaced, and imports of Python modules cost nothing.

Cost: a look-up for each C module.
"""

from __future__ import annotations

import types
from importlib.machinery import ExtensionFileLoader
from typing import Any

from coro._runtime import others
from coro.emulation._plan import Plan

__all__ = ["plan"]

_exec_module: Any = ExtensionFileLoader.exec_module


def exec_module(self: ExtensionFileLoader, module: types.ModuleType) -> None:
    """Initialize an extension module; see importlib.machinery.ExtensionFileLoader.exec_module."""
    _exec_module(self, module)
    others.look_at(module)


def plan(p: Plan) -> None:
    """What to replace."""
    p.replace(ExtensionFileLoader, "exec_module", exec_module)
    others.look_at_loaded()
