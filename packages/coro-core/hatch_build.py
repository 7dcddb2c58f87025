"""Build hook of coro-core: the one that it ships for others (src/coro_build), with checks of the target on top.

The hook is loaded by its path from this very checkout, under a name of its own: hatchling would find only one that is
installed, which may be older.

Refused here, at build time, because at run time the result would be memory corruption: a minor version whose
thread state the runtime does not describe, free-threaded builds, 3.14.0 and 3.14.1, unknown systems and
processors.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import struct
import sys
import sysconfig
from types import ModuleType

# The minor versions whose interpreter state src/coro/_switch describes.
FIRST_MINOR, LAST_MINOR = 11, 15

# PyUnstable_ThreadState_SetStackProtection appeared in 3.14.2; without it the interpreter believes that a
# thread on a foreign stack has overflown its own.
BROKEN_RELEASES = {(3, 14, 0), (3, 14, 1)}

# Processor as platform.machine() names it, and pointer size in bytes -> the assembly file written for it.
PROCESSORS = {
    ("x86_64", 8): "x86_64",
    ("amd64", 8): "x86_64",
    ("x86_64", 4): "i386",  # a 32-bit Python on a 64-bit kernel
    ("i386", 4): "i386",
    ("i486", 4): "i386",
    ("i586", 4): "i386",
    ("i686", 4): "i386",
    ("aarch64", 8): "aarch64",
    ("arm64", 8): "aarch64",
}


def _load(folder: str, name: str) -> ModuleType:
    """Import the package in `folder` as `name`, with its modules below it."""
    spec = importlib.util.spec_from_file_location(name, os.path.join(folder, "__init__.py"))
    assert spec is not None and spec.loader is not None
    package = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    return importlib.import_module(f"{name}.hook")


_hook = _load(os.path.join(os.path.dirname(os.path.abspath(__file__)), "src", "coro_build"), "coro_build_of_this_tree")


def refusal(
    version: tuple[int, int, int],
    implementation: str,
    free_threaded: bool,
    os_name: str,
    machine: str,
    pointer: int,
) -> str | None:
    """Why coro-core cannot be built for this target, as a sentence for the user; None when it can.

    `machine` is `platform.machine()`, `pointer` the size of a pointer in bytes.
    """
    dotted = ".".join(map(str, version))
    known = f"CPython 3.{FIRST_MINOR} to 3.{LAST_MINOR}"
    if implementation != "cpython":
        return f"coro-core needs {known}; this is {implementation}, whose state it cannot switch."
    if version[0] != 3 or not FIRST_MINOR <= version[1] <= LAST_MINOR:
        return (
            f"coro-core knows the interpreter state of {known}; this is Python {dotted}. "
            "Use one of those, or a release of coro-core that names this version."
        )
    if free_threaded:
        return (
            f"coro-core needs the GIL; this Python {dotted} is a free-threaded build. "
            "Use the ordinary build of the same version."
        )
    if version in BROKEN_RELEASES:
        return (
            f"Python {dotted} cannot be told about a foreign C stack (the call came with 3.14.2). "
            "Upgrade to Python 3.14.2 or later."
        )
    if os_name not in _hook.table.SYSTEMS:
        return f"coro-core runs on Linux, macOS and FreeBSD; this is {os_name!r}. On Windows use its Linux subsystem."
    if (machine.lower(), pointer) not in PROCESSORS:
        return (
            f"coro-core has a stack switch for x86-64, i386 and aarch64; this is {machine!r} with "
            f"{pointer * 8}-bit pointers. A new one goes into src/coro/_switch."
        )
    return None


class CustomBuildHook(_hook.CompilingHook):  # type: ignore[misc, name-defined]
    """The hook named in pyproject.toml; its configuration is the table of extension modules there."""

    def core(self) -> str:
        """The package folder in this checkout."""
        return os.path.join(self.root, "src", "coro")

    def check_target(self) -> None:
        """Stop with an explanation if this Python is none we can build for."""
        reason = refusal(
            sys.version_info[:3],
            sys.implementation.name,
            bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
            _hook.table.system(),
            platform.machine(),
            struct.calcsize("P"),
        )
        if reason is not None:
            raise _hook.BuildError(reason)


class CustomMetadataHook(_hook.ReadmeHook):  # type: ignore[misc, name-defined]
    """The hook named in pyproject.toml that makes the description; nothing is different for coro-core."""
