"""Finds the Pythons coro can be built and tested with, one for each minor version.

Looked at, in this order: the paths in CORO_PYTHONS (separated like PATH), the running interpreter, pyenv's
versions (newest first), PATH, and the root made by `tools.dev pythons --provision`.  A name proves nothing
(pyenv puts shims on PATH for versions that are not active; distributions ship Pythons without headers or
without venv), so each candidate is started and asked.  Cost: about 50 ms for each candidate.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.dev import provision

MINORS = (11, 12, 13, 14, 15)

# Run by the candidate; one line of JSON. `_base_executable` is the interpreter behind a virtual environment.
PROBE = """
import importlib.util as u, json, os, platform, sys, sysconfig
print(json.dumps({
    "path": getattr(sys, "_base_executable", None) or sys.executable,
    "version": list(sys.version_info[:3]),
    "implementation": sys.implementation.name,
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "headers": os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")),
    "venv": bool(u.find_spec("venv")),
    "pip": bool(u.find_spec("ensurepip") or u.find_spec("pip")),
}))
"""


@dataclasses.dataclass(frozen=True)
class Python:
    """An interpreter that can build and test coro."""

    path: Path
    version: tuple[int, int, int]

    @property
    def minor(self) -> int:
        return self.version[1]

    @property
    def short(self) -> str:
        """The version as people say it, "3.12"."""
        return f"3.{self.minor}"

    @property
    def full(self) -> str:
        return ".".join(map(str, self.version))


def candidates(minor: int) -> Iterator[Path]:
    """Paths that may be a Python 3.`minor`, best first; they need not exist."""
    name = f"python3.{minor}"
    for entry in os.environ.get("CORO_PYTHONS", "").split(os.pathsep):
        if entry:
            path = Path(entry)
            yield path / name if path.is_dir() else path
    if sys.version_info[:2] == (3, minor):
        yield Path(sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"

    def patch(folder: Path) -> int:
        found = re.fullmatch(rf"3\.{minor}\.(\d+)", folder.name)
        return int(found[1]) if found else -1

    if pyenv.is_dir():
        for folder in sorted(pyenv.iterdir(), key=patch, reverse=True):
            if patch(folder) >= 0:
                yield folder / "bin" / name
    for entry in os.environ.get("PATH", os.defpath).split(os.pathsep):
        yield Path(entry) / name
    for entry in os.environ.get("PATH", os.defpath).split(os.pathsep):
        yield Path(entry) / "python3"
    yield provision.python_path(minor)


def probe(path: Path, minor: int) -> tuple[Python | None, str]:
    """Start `path` and ask what it is: the Python, or None and why it cannot be used."""
    if shutil.which(path) is None:
        return None, ""
    try:
        done = subprocess.run([path, "-I", "-c", PROBE], capture_output=True, text=True, timeout=60, check=True)
        facts = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None, f"{path} does not start"
    version = tuple(facts["version"])
    if version[:2] != (3, minor) or facts["implementation"] != "cpython":
        return None, ""
    if facts["free_threaded"]:
        return None, f"{path} is a free-threaded build"
    if version in ((3, 14, 0), (3, 14, 1)):
        return None, f"{path} is {'.'.join(map(str, version))}; 3.14.2 is the first that works"
    for need, package in (("headers", "dev"), ("venv", "venv"), ("pip", "venv")):
        if not facts[need]:
            return None, f"{path} lacks {need} (Debian: python3.{minor}-{package})"
    return Python(Path(facts["path"]), version), ""


def find(minors: tuple[int, ...] = MINORS) -> tuple[dict[int, Python], dict[int, list[str]]]:
    """Look for each of `minors`.

    Returns the Pythons found, and for the other versions what was wrong with what was there.
    """
    found: dict[int, Python] = {}
    problems: dict[int, list[str]] = {}
    for minor in minors:
        seen: set[Path] = set()
        notes: list[str] = []
        for path in candidates(minor):
            if path in seen:
                continue
            seen.add(path)
            python, problem = probe(path, minor)
            if python is not None:
                found[minor] = python
                break
            if problem:
                notes.append(problem)
        else:
            problems[minor] = notes
    return found, problems
