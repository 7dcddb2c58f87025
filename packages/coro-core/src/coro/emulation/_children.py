"""Children of an emulated program that run the same Python are emulated programs, too.

Reloaders of development servers, servers that replace themselves, and the start methods of `multiprocessing` start
``sys.executable`` with the program to run. Here ``-m coro --emulate`` comes between the two. That is done where all of
them end up: the function that forks and executes, and those of `os` that execute. A command that a shell reads, or the
script of a program with its own first line, is left as it is.

Rejected: a variable in the environment that each Python looks at. It would concern Pythons without coro, and programs
that the program merely uses.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from coro.emulation._plan import Plan

__all__ = ["command_line", "inherit", "is_inherited", "plan"]

_EMULATED = ["-m", "coro", "--emulate"]
#: Letters of Python's command line: those with something behind them, which may be the next word, and those that are
#: followed by what is to run. With these letters nothing runs.
_WITH_VALUE, _LAST, _NOTHING_RUNS = "WX", "cm", "?hVi"
#: It waits for its parent's end, and starts before it is known whether anybody needs it.
_HELPER = "multiprocessing.resource_tracker"

_inherited = False


def inherit() -> None:
    """From the next installation on, children are emulated, too."""
    global _inherited
    _inherited = True


def is_inherited() -> bool:
    """Are children emulated, too?"""
    return _inherited


def command_line(arguments: Sequence[Any]) -> list[Any] | None:
    """The command line of a Python, changed so that its program runs under emulation; None if it need not be."""
    words = [os.fsdecode(word) for word in arguments]
    at = 1
    while at < len(words):
        word = words[at]
        if not word.startswith("-") or word == "-":
            break
        if word.startswith("--"):
            if word.partition("=")[0] != "--check-hash-based-pycs":
                return None  # --help and --version
            at += 1 if "=" in word else 2
            continue
        for place, letter in enumerate(word[1:], 1):
            if letter in _NOTHING_RUNS:
                return None
            if letter in _WITH_VALUE:
                at += word[place + 1 :] == ""
                break
            if letter in _LAST:
                return _with_last(list(arguments), words, at, place)
        at += 1
    if at >= len(words) or words[at] == "-":
        return None  # it reads what somebody types
    return [*arguments[:at], *_EMULATED, *arguments[at:]]


def _with_last(arguments: list[Any], words: list[str], at: int, place: int) -> list[Any] | None:
    word = words[at]
    value = word[place + 1 :] or "".join(words[at + 1 : at + 2])
    rest = arguments[at + (1 if word[place + 1 :] else 2) :]
    if not value or (word[place] == "m" and value == "coro") or (word[place] == "c" and _HELPER in value):
        return None
    before = [*arguments[:at], *(["-" + word[1:place]] if place > 1 else [])]
    return [*before, *_EMULATED, "-" + word[place], value, *rest]


def _is_this_python(path: Any) -> bool:
    try:
        return bool(sys.executable) and os.fsdecode(path) == sys.executable
    except TypeError:
        return False


def _changed(path: Any, arguments: Any) -> Any:
    if not _is_this_python(path) or not isinstance(arguments, (list, tuple)):
        return arguments
    try:
        new = command_line(arguments)
    except (TypeError, ValueError):
        return arguments  # the original says what is wrong with them
    if new is None:
        return arguments
    if isinstance(arguments[0], bytes):
        new = [os.fsencode(word) for word in new]
    return type(arguments)(new)


def _executing(native: Any) -> Callable[..., Any]:
    def call(path: Any, argv: Any, *more: Any, **named: Any) -> Any:
        return native(path, _changed(path, argv), *more, **named)

    call.__name__ = call.__qualname__ = native.__name__
    call.__doc__ = native.__doc__
    return call


def _forking(native: Any) -> Callable[..., Any]:
    def fork_exec(args: Any, executable_list: Any, *more: Any) -> Any:
        if len(executable_list) == 1:
            args = _changed(executable_list[0], args)
        return native(args, executable_list, *more)

    return fork_exec


def plan(p: Plan) -> None:
    """What to replace."""
    if not _inherited:
        return
    for name in ("execv", "execve", "posix_spawn", "posix_spawnp"):
        native = getattr(os, name, None)
        if native is not None:
            p.replace(os, name, _executing(native))
    module: Any = importlib.import_module("_posixsubprocess")
    p.replace(module, "fork_exec", _forking(module.fork_exec))
