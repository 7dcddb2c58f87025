"""Compares coro's public names with the list checked in, `packages/coro-core/public_api.txt`.

A name that appears, disappears or moves is a decision, so it has to show in the change that makes it.  The
list holds a line for each public module, for each public name in it, and for each public attribute of our
own classes.  Run it with the Python that has coro-core installed; with --update it writes the list.  It
imports nearly every public module, which takes about a second.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import pkgutil
import sys
import types
from collections.abc import Iterator
from pathlib import Path

LIST = Path(__file__).resolve().parents[1] / "packages" / "coro-core" / "public_api.txt"
PACKAGE = "coro"

# What these hold depends on the system and the Python version: name spaces of the system's socket constants,
# exceptions named for its error numbers.
SYSTEM_CONSTANTS = "coro._net.constants"
ERRNO_CLASSES = "coro.oserrors"

# Not looked at: programs to be run, and modules that need what not every Python has beside it.
LEFT_OUT = {"coro.demo", "coro.testing.pytest_plugin", "coro.microthreads.tk"}

# What other distributions add to the package.
OTHERS = {"coro.clocks"}


def modules(name: str) -> Iterator[types.ModuleType]:
    """The public modules below and including `name`."""
    module = importlib.import_module(name)
    yield module
    for found in pkgutil.iter_modules(getattr(module, "__path__", ()), name + "."):
        if not found.name.rpartition(".")[2].startswith("_") and found.name not in LEFT_OUT | OTHERS:
            yield from modules(found.name)


def ours(thing: object) -> bool:
    return (getattr(thing, "__module__", None) or "").split(".")[0] == PACKAGE


def attributes(cls: type) -> set[str]:
    """Public attributes defined by our own classes among the bases of `cls`."""
    return {name for base in cls.__mro__ if ours(base) for name in vars(base) if not name.startswith("_")}


def listed(module: types.ModuleType) -> set[str]:
    """The public names of `module`: its `__all__`, or else what of ours it holds."""
    found = set(getattr(module, "__all__", ()))
    if not found or module.__name__ == PACKAGE:
        # The package itself leaves out of `__all__` what a star import must not bring: names of built-ins.
        for name, value in vars(module).items():
            if not name.startswith("_") and not isinstance(value, types.ModuleType) and ours(value):
                found.add(name)
    if module.__name__ == ERRNO_CLASSES:
        found -= set(vars(errno))
    return found


def names(module: types.ModuleType) -> Iterator[str]:
    """The lines for one module."""
    for name in sorted(listed(module)):
        # Raises AttributeError for a name in __all__ that is not there.
        value = getattr(module, name)
        full = f"{module.__name__}.{name}"
        yield full
        if isinstance(value, type) and ours(value) and value.__module__ != SYSTEM_CONSTANTS:
            for attribute in sorted(attributes(value)):
                yield f"{full}.{attribute}"


def current() -> list[str]:
    lines = []
    for module in modules(PACKAGE):
        lines.append(f"# {module.__name__}")
        lines += names(module)
    return lines


def main() -> int:
    lines = current()
    if "--update" in sys.argv[1:]:
        LIST.write_text("\n".join(lines) + "\n")
        print(f"{LIST.name}: {len(lines)} lines written")
        return 0
    kept = LIST.read_text().splitlines() if LIST.exists() else []
    difference = list(difflib.unified_diff(kept, lines, "checked in", "installed", lineterm="", n=0))
    if difference:
        print("\n".join(difference))
        print(f"The public names differ from {LIST.name}. If that is meant: python3 -m tools.dev api --update")
        return 1
    print(f"public names: {len(lines)} lines as checked in")
    return 0


if __name__ == "__main__":
    sys.exit(main())
