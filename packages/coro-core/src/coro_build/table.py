"""Reads the table of modules in a pyproject.toml: what a mistake there means is said here, before anything is compiled.

    [tool.hatch.build.targets.wheel.hooks.coro.modules]
    "coro.NAME._wire.frames" = "coro/NAME/_wire/frames.pyx"     # sources relative to src/
    "coro.NAME._wire.mask" = ["coro/NAME/_wire/mask.pyx", "coro/NAME/_wire/mask_*.c"]

`modules-linux`, `modules-darwin` and `modules-freebsd` hold modules for one operating system only.  No import of
hatchling here, and no compiler.
"""

from __future__ import annotations

import dataclasses
import glob
import os
import sys
from collections.abc import Mapping
from typing import Any

SYSTEMS = ("linux", "darwin", "freebsd")

#: The kinds of sources: Cython, C, assembly that the C compiler preprocesses.
ENDINGS = (".pyx", ".c", ".S")

#: Keys that hatchling itself understands in the table of any hook.
OF_HATCHLING = ("dependencies", "enable-by-default", "path", "require-runtime-dependencies", "require-runtime-features")


class BuildError(Exception):
    """The build cannot go on; the message says what was expected, what there is, and what to do."""


@dataclasses.dataclass(frozen=True)
class Module:
    """An extension module: its full name, and its sources relative to the folder of sources."""

    name: str
    sources: tuple[str, ...]


def system() -> str:
    """The operating system: `sys.platform` without a version number."""
    return sys.platform.rstrip("0123456789.")


def _expand(name: str, pattern: object, folder: str) -> list[str]:
    """The files that one entry of module `name` stands for; a plain name must exist, a pattern may match nothing."""
    if not isinstance(pattern, str) or not pattern:
        raise BuildError(f"{name}: expected the path of a source below {folder}, got {pattern!r}")
    if os.path.isabs(pattern) or ".." in pattern.split("/"):
        raise BuildError(f"{name}: expected a path below {folder}, got {pattern!r}; write it relative to that folder")
    if not pattern.endswith(ENDINGS):
        raise BuildError(f"{name}: expected a source that ends in {', '.join(ENDINGS)}, got {pattern!r}")
    matches = sorted(glob.glob(pattern, root_dir=folder))
    if not matches and not glob.has_magic(pattern):
        raise BuildError(
            f"{name}: its source {pattern} is missing in {folder}; "
            "correct the table of modules, or get a complete checkout"
        )
    # Not what Cython wrote beside its source when somebody called it by hand.
    return [m for m in matches if not (m.endswith(".c") and os.path.exists(os.path.join(folder, m[:-2] + ".pyx")))]


def _module(name: str, entry: object, folder: str) -> Module:
    if not all(part.isidentifier() for part in name.split(".")) or "." not in name:
        raise BuildError(f"expected the full name of a module, such as 'coro.NAME._wire', got {name!r}")
    patterns = entry if isinstance(entry, list) else [entry]
    sources: list[str] = []
    for pattern in patterns:
        sources += [found for found in _expand(name, pattern, folder) if found not in sources]
    if not sources:
        raise BuildError(f"{name}: expected at least one source, found none; correct the table of modules")
    made = [source for source in sources if source.endswith(".pyx")]
    if len(made) > 1:
        raise BuildError(f"{name}: expected one .pyx, got {', '.join(made)}; each .pyx is a module of its own")
    return Module(name, tuple(sources))


def read(config: Mapping[str, Any], folder: str, os_name: str | None = None) -> list[Module]:
    """The modules for this operating system that the hook's table `config` asks for.

    folder: where the sources are.  os_name: another operating system, as `system()` has it.
    Raises BuildError for unknown keys, for values of another form, and where a source is missing.
    """
    known = ["modules", *(f"modules-{name}" for name in SYSTEMS)]
    for key in config:
        if key not in known and key not in OF_HATCHLING:
            raise BuildError(f"expected {', '.join(known)} in the table of the build hook, got the key {key!r}")
    modules: dict[str, Module] = {}
    for key in ("modules", f"modules-{os_name or system()}"):
        table = config.get(key, {})
        if not isinstance(table, dict):
            raise BuildError(f"{key}: expected a table of module names and sources, got {table!r}")
        for name, entry in table.items():
            if name in modules:
                raise BuildError(f"{name}: expected in modules or in {key}, found in both; leave one out")
            modules[name] = _module(name, entry, folder)
    if not any(key in config for key in known):
        raise BuildError(
            "expected a table of modules for the build hook, found none; write "
            "[tool.hatch.build.targets.wheel.hooks.coro.modules] with lines such as "
            '"coro.NAME._x" = "coro/NAME/_x.pyx"'
        )
    return list(modules.values())
