"""Compares the public names of each package with the list checked in, `packages/NAME/public_api.txt`.

A name that appears, disappears or moves is a decision, so it has to show in the change that makes it. The list holds a
line for each public module, for each public name in it, and for each public attribute of our own classes. Run it with a
Python that has packages of ours installed: `public_api.py [--update] [NAME ...]`, by default for all packages that are
installed there. With --update it writes the lists. It imports nearly every public module, which takes about a second.
"""

from __future__ import annotations

import argparse
import difflib
import errno
import importlib
import importlib.metadata
import pkgutil
import sys
import types
from collections.abc import Collection, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.dev import packages

PACKAGE = "coro"

# What these hold depends on the system and the Python version: name spaces of the system's socket constants,
# exceptions named for its error numbers.
SYSTEM_CONSTANTS = "coro._net.constants"
ERRNO_CLASSES = "coro.oserrors"

# Not looked at: programs to be run, modules that need what not every Python has beside it, and the build hook, which is
# used by name from a pyproject.toml.
LEFT_OUT = {"coro.demo", "coro.testing.pytest_plugin", "coro.microthreads.tk", "coro_build"}


def modules(name: str, left_out: Collection[str]) -> Iterator[types.ModuleType]:
    """The public modules below and including `name`, but for those of `left_out`."""
    module = importlib.import_module(name)
    yield module
    for found in pkgutil.iter_modules(getattr(module, "__path__", ()), name + "."):
        if not found.name.rpartition(".")[2].startswith("_") and found.name not in left_out:
            yield from modules(found.name, left_out)


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


def current(package: Path) -> list[str]:
    """The lines for the package in this folder, from what is installed."""
    # What other distributions add to the same import package is not this one's.
    foreign = {name for other in packages.others() if other != package for name in packages.import_names(other)}
    left_out = LEFT_OUT | foreign
    lines = []
    for top in packages.import_names(package):
        if top not in left_out:
            for module in modules(top, left_out):
                lines.append(f"# {module.__name__}")
                lines += names(module)
    return lines


def check(package: Path, update: bool) -> bool:
    """Compare one package with its list, or write the list; is all well?"""
    lines, path = current(package), package / "public_api.txt"
    if update:
        path.write_text("\n".join(lines) + "\n")
        print(f"{package.name}: {len(lines)} lines written")
        return True
    kept = path.read_text().splitlines() if path.exists() else []
    difference = list(difflib.unified_diff(kept, lines, "checked in", "installed", lineterm="", n=0))
    if difference:
        print("\n".join(difference))
        where = f"packages/{package.name}/public_api.txt"
        print(f"The public names differ from {where}. If that is meant: python3 -m tools.dev api --update")
        return False
    print(f"public names of {package.name}: {len(lines)} lines as checked in")
    return True


def installed(package: Path) -> bool:
    """Is there an installed distribution of that name?"""
    try:
        importlib.metadata.distribution(package.name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare public names with the lists checked in.")
    parser.add_argument("--update", action="store_true", help="write the lists instead")
    parser.add_argument("names", nargs="*", metavar="NAME", help="packages (default: all that are installed)")
    options = parser.parse_args()
    there = {package.name: package for package in packages.packages()}
    for name in options.names:
        if name not in there:
            parser.error(f"expected one of {', '.join(there)}, got {name!r}")
    chosen = [package for name, package in there.items() if name in options.names]
    if not options.names:
        chosen = [package for package in there.values() if installed(package)]
    if not chosen:
        parser.error(f"expected an installed package, found none of {', '.join(there)} in {sys.prefix}")
    differ = [package.name for package in chosen if not check(package, options.update)]
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
