"""The standard library as it was: what coro itself uses, and programs that need a real OS thread.

`original("threading")` is a second copy of that module, loaded before anything is replaced, because the classes of
`threading` look up the primitives they are made of in their own module. Every other original is a view: the real
module, with the old objects in the place of those that were replaced.
"""

from __future__ import annotations

import _thread
import importlib
import importlib.util
import sys
import types
from typing import Any

__all__ = ["ORIGINALS", "keep", "original", "take_copies"]

ORIGINALS: dict[str, types.ModuleType] = {}


class _View(types.ModuleType):
    """A module whose replaced attributes are the old ones."""

    def __init__(self, name: str) -> None:
        super().__init__(name, f"The original {name}, as it was before coro.install_thread_emulation().")
        self.__dict__["_module"] = importlib.import_module(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_module"], name)


def keep(name: str, attribute: str, value: Any) -> None:
    """Remember an attribute of a module that is about to be replaced. The first one counts."""
    view = ORIGINALS.get(name)
    if view is None:
        view = ORIGINALS[name] = _View(name)
    view.__dict__.setdefault(attribute, value)


def take_copies() -> None:
    """Load the second copy of `threading`; later calls do nothing."""
    if "threading" in ORIGINALS:
        return
    spec = importlib.util.find_spec("threading")
    if spec is None or spec.loader is None:
        raise ImportError("the source of the threading module cannot be found")
    module = importlib.util.module_from_spec(spec)
    # Making its main thread object must not take away the lock that tells of the end of the OS thread that runs this.
    native: Any = _thread
    copy: Any = module
    sentinel = getattr(native, "_set_sentinel", None)
    if sentinel is not None:
        native._set_sentinel = native.allocate_lock
    try:
        spec.loader.exec_module(module)
    finally:
        if sentinel is not None:
            native._set_sentinel = copy._set_sentinel = sentinel
    real: Any = sys.modules["threading"]
    main, ident = copy._main_thread, real._main_thread.ident
    if main.ident != ident:
        copy._active.pop(main.ident, None)
        main._ident = ident
        copy._active[ident] = main
    copy._register_atexit = real._register_atexit  # the interpreter calls what the real one knows
    ORIGINALS["threading"] = module


def original(name: str) -> Any:
    """See coro.emulation.original."""
    if not isinstance(name, str):
        raise TypeError(f"expected the name of a module, not {type(name).__name__}: {name!r}")
    if name == "threading":
        take_copies()
    found = ORIGINALS.get(name)
    return found if found is not None else importlib.import_module(name)
