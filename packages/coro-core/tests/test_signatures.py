"""`inspect.signature` of everything compiled that is public, compared with the stub beside it.

`help` and editors show these signatures. Those of functions and methods come from Cython; a class that is made by
calling it has its own at the beginning of its docstring. Both can only show defaults that are plain values, so a
constant of C as a default loses the whole signature.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import coro

#: Classes whose objects are made by others; calling them says by whom.
NOT_CALLED = {"case", "coro", "kevent_target", "py_event", "py_kevent"}

#: What the stub has in several forms, because type checkers cannot say it in one.
SEVERAL_FORMS = {
    "new": "(function, /, *args, thread_name=None, daemon=False, **kwargs)",
    "spawn": "(function, /, *args, thread_name=None, daemon=False, **kwargs)",
    "case.wait": "(what)",
    "select": "(*cases, timeout=None)",
}

Stub = dict[str, Any]


def compiled(module: str) -> bool:
    return not (getattr(sys.modules.get(module), "__file__", None) or ".py").endswith(".py")


def targets() -> Iterator[tuple[str, Any]]:
    """Everything public and compiled: ``("mutex.lock", coro.mutex.lock)``."""
    for name in sorted({*coro.__all__, "exception_notifier"}):
        thing = getattr(coro, name)
        if not callable(thing) or not compiled(getattr(thing, "__module__", None) or ""):
            continue
        yield name, thing
        if isinstance(thing, type):
            for attribute in sorted(dir(thing)):
                if not attribute.startswith("_") and callable(getattr(thing, attribute)):
                    yield f"{name}.{attribute}", getattr(thing, attribute)


TARGETS = dict(targets())


@functools.cache
def stub(module: str) -> Stub:
    """The functions and classes of a stub by name; of classes, those of the bases in the same stub too."""
    source = importlib.import_module(module).__file__
    assert source is not None
    path = Path(source).parent / (module.rpartition(".")[2] + ".pyi")
    found: Stub = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.ClassDef):
            members: Stub = {}
            for base in reversed(node.bases):
                members |= found.get(getattr(base, "id", ""), {})
            found[node.name] = members | {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
    return found


def from_stub(node: ast.FunctionDef | None, method: bool) -> list[tuple[str, str, object]]:
    """(kind, name, default) of each parameter; without ``self``."""
    if node is None:
        return []
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    found = [
        ("POSITIONAL_ONLY" if arg in arguments.posonlyargs else "POSITIONAL_OR_KEYWORD", arg.arg, default)
        for arg, default in zip(positional, defaults, strict=True)
    ]
    if method and not any(getattr(d, "id", "") == "staticmethod" for d in node.decorator_list):
        del found[0]
    if arguments.vararg:
        found.append(("VAR_POSITIONAL", arguments.vararg.arg, None))
    for arg, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found.append(("KEYWORD_ONLY", arg.arg, default))
    if arguments.kwarg:
        found.append(("VAR_KEYWORD", arguments.kwarg.arg, None))
    return [(kind, name, "none" if value is None else ast.literal_eval(value)) for kind, name, value in found]


def of_object(thing: Any) -> list[tuple[str, str, object]]:
    parameters = list(inspect.signature(thing).parameters.values())
    if parameters and parameters[0].name == "self":
        del parameters[0]
    return [(p.kind.name, p.name, "none" if p.default is p.empty else p.default) for p in parameters]


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in NOT_CALLED])
def test_a_signature_is_that_of_the_stub(name):
    thing = TARGETS[name]
    if name in SEVERAL_FORMS:
        assert str(inspect.signature(thing)) == SEVERAL_FORMS[name]
        return
    owner, _, method = name.rpartition(".")
    if method and owner:
        cls = TARGETS[owner]
        node = stub(cls.__module__)[cls.__name__].get(method)
        assert node is not None, f"{method} is not in the stub of {cls.__module__}, nor in a base there"
        assert of_object(thing) == from_stub(node, method=True)
    elif isinstance(thing, type):
        members = stub(thing.__module__)[thing.__name__]
        assert of_object(thing) == from_stub(members.get("__init__"), method=True)
    else:
        assert of_object(thing) == from_stub(stub(thing.__module__)[thing.__name__], method=False)


@pytest.mark.parametrize("name", sorted(NOT_CALLED))
def test_classes_that_are_not_called_say_so(name):
    with pytest.raises(TypeError, match="made by"):
        TARGETS[name]()


def test_there_is_something_to_compare():
    assert {"spawn", "sock", "sock.recv", "fifo", "fifo.push", "timeout", "wait_for", "get_now"} <= set(TARGETS)
    assert len(TARGETS) > 150


@pytest.mark.parametrize("name", ["semaphore", "timeout", "sock"])
def test_a_docstring_does_not_show_the_signature_twice(name):
    assert "--" not in (TARGETS[name].__doc__ or "").split("\n\n")[0]
    assert inspect.getdoc(TARGETS[name])
