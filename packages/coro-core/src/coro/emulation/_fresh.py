"""C modules that are loaded afresh: a second copy gets the same replacements as the first.

A program that takes `_queue` or `select` out of `sys.modules` and imports it again, as CPython's tests do, gets a new
module object with the functions that block. Python modules need no such care: what they are made of comes from these.
A finder in front of the others wraps the loader of each module with replaced names; the loader's work done, the names
of the new module are replaced and written down in the plan, so that uninstalling puts them back. The same finder warns
of modules that are known to block, and sends calls of others to workers.

Cost: one look into a dictionary per module that is imported for the first time.
"""

from __future__ import annotations

import sys
import types
from importlib.machinery import BuiltinImporter, ExtensionFileLoader, ModuleSpec
from typing import Any

from coro.emulation import _blockers, _offloaded
from coro.emulation._plan import Plan

__all__ = ["Finder"]


class _Loader:
    """Does what the module's own loader does, and replaces names afterwards."""

    def __init__(self, own: Any, finder: Finder) -> None:
        self.own = own
        self.finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def create_module(self, spec: ModuleSpec) -> Any:
        return self.own.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self.own
        self.own.exec_module(module)
        self.finder.replace(module)


class Finder:
    """For sys.meta_path. Invariant: it never finds a module that the other finders do not find."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.asking: set[str] = set()
        self.names: dict[str, list[tuple[str, Any]]] = {}
        for owner, name, new in plan.wanted:
            if isinstance(owner, types.ModuleType) and owner.__name__ not in plan.makers:
                self.names.setdefault(owner.__name__, []).append((name, new))

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The module's spec with the loader wrapped; None for modules without replaced names, and for Python modules
        of the standard library."""
        any_kind = fullname in self.plan.makers or fullname in _blockers.KNOWN or fullname in _offloaded.modules
        known = fullname in self.names or any_kind
        if not known or fullname in self.asking:
            return None
        self.asking.add(fullname)  # another finder may ask all others, too
        try:
            spec = self.ask_others(fullname, path, target)
        finally:
            self.asking.discard(fullname)
        own: Any = None if spec is None else spec.loader
        changed = any_kind and hasattr(own, "exec_module")
        if own is not BuiltinImporter and not isinstance(own, ExtensionFileLoader) and not changed:
            return None
        assert spec is not None
        wrapped: Any = _Loader(own, self)
        spec.loader = wrapped
        return spec

    def ask_others(self, *args: Any) -> ModuleSpec | None:
        """What the import system would have found."""
        for finder in sys.meta_path:
            find: Any = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find is None else find(*args)
            if spec is not None:
                return spec
        return None

    def replace(self, module: types.ModuleType) -> None:
        """Replace the names of a module that was just loaded."""
        _blockers.warn_of(module.__name__, stacklevel=3)  # the line with the import
        self.plan.make_all(module)
        _offloaded.replace_in(module)
        for name, new in self.names.get(module.__name__, ()):
            if vars(module).get(name, new) is not new:
                self.plan.set(module, name, new)

    def put_in_front(self) -> None:
        """Take part in imports from now on."""
        sys.meta_path.insert(0, self)

    def take_out(self) -> None:
        """Take part no longer."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
