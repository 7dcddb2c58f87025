"""Existing programs as the main thread of a loop: what Python's own command line does for a file, a module or code.

The code runs in a module of its own that takes the name ``__main__``. So a program finds itself there, as do pickle,
the start methods of `multiprocessing`, and reloaders, which look at its ``__spec__``, ``__package__`` and ``__file__``.
The module stays when the code has run: threads that go on need it.

Cost: what Python needs itself to start a program.
"""

from __future__ import annotations

import importlib.util
import io
import marshal
import os
import pkgutil
import runpy
import shutil
import sys
import types
from importlib.machinery import ModuleSpec
from types import CodeType
from typing import Any

from coro._entry.loop import run

__all__ = ["NoSuchProgram", "run_code", "run_file", "run_module"]

#: Bytes before the code in a compiled file: of which version, and of which source (PEP 552).
_HEAD_OF_COMPILED = 16


class NoSuchProgram(Exception):
    """There is no program of that name, or it is none of Python's."""


def run_code(code: str, name: str, **names: Any) -> None:
    """Run source code; `names` are there from the beginning."""
    _run(compile(code, name, "exec"), None, names)


def run_file(path: str) -> None:
    """Run a file, compiled or not, a folder or archive with a ``__main__.py``, or the script that a command of this
    name is. NoSuchProgram if there is none."""
    if not os.path.exists(path) and os.sep not in path:
        path = shutil.which(path) or path
        sys.argv[0] = path
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    if pkgutil.get_importer(path) is not None:  # a folder or an archive, which may begin with a line for the shell
        run(runpy.run_path, path, run_name="__main__")
        return
    try:
        with io.open_code(os.path.abspath(path)) as file:
            source = file.read()
    except OSError as e:
        raise NoSuchProgram(f"can't open file {path!r}: {e}") from None
    if source[:4] == b"\x7fELF" or (source[:2] == b"#!" and b"python" not in source.partition(b"\n")[0]):
        raise NoSuchProgram(f"{path!r} is no Python program")
    code: CodeType
    if source[: len(importlib.util.MAGIC_NUMBER)] == importlib.util.MAGIC_NUMBER:
        code = marshal.loads(memoryview(source)[_HEAD_OF_COMPILED:])
    elif path.endswith(".pyc"):
        raise NoSuchProgram(f"{path!r} was compiled by another version of Python")
    else:
        code = compile(source, path, "exec")
    _run(code, None, {"__file__": os.path.abspath(path)})


def run_module(name: str) -> None:
    """Run a module, or the ``__main__`` of a package, as ``python -m`` does. NoSuchProgram if there is none."""
    spec = _find(name)
    if spec.submodule_search_locations is not None:
        spec = _find(f"{name}.__main__", f"; {name!r} is a package and cannot be directly executed")
    code: CodeType | None = None
    get_code = getattr(spec.loader, "get_code", None)
    if get_code is not None:
        code = get_code(spec.name)
    if code is None:
        raise NoSuchProgram(f"no code object available for {spec.name}")
    if spec.origin is not None:
        sys.argv[0] = spec.origin
    _run(code, spec, {"__file__": spec.origin, "__cached__": spec.cached})


def _find(name: str, why: str = "") -> ModuleSpec:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, AttributeError, TypeError, ValueError) as e:
        raise NoSuchProgram(f"error while finding module specification for {name!r} ({type(e).__name__}: {e})") from e
    if spec is None:
        raise NoSuchProgram(f"no module named {name}{why}")
    return spec


def _run(code: CodeType, spec: ModuleSpec | None, names: dict[str, Any]) -> None:
    module = types.ModuleType("__main__")
    module.__spec__ = spec
    module.__loader__ = None if spec is None else spec.loader
    module.__package__ = None if spec is None else spec.parent
    vars(module).update(names)
    sys.modules["__main__"] = module
    run(exec, code, vars(module))
