"""Docstrings of everything public: each is there, and speaks of every parameter by its name.

A docstring may leave its parameters to another one ("those of ``coro.Server``"). Records have a comment for each field
instead. Objects that only coro makes have no parameters that a program could pass.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

import coro

#: Public modules beside `coro` itself. Their `__all__` says what is public.
MODULES = """
    asyncio_bridge backdoor debug emulation file_watcher files frontdoor gc_monitor groups limits locksmith log lru
    microthreads offload optional outcomes parallel pools prefork process profiler rates read_stream resolver retries
    servers signal_handler task_queues tb testing
""".split()

#: Classes whose objects are made by functions or by other objects.
MADE_BY_OTHERS = {
    "coro.Statistics": "statistics()",
    "microthreads.micro_thread": "start_in_parallel()",
    "prefork.Worker": "prefork()",
    "process.CoroProcess": "spawn_job_bg()",
    "retries.Attempt": "retry",
    "testing.memory_stream": "stream_pair()",
}

#: "those of ``coro.Server``", "like ``capture``", "The same as put()": another docstring has the parameters.
ELSEWHERE = re.compile(
    r"(?:those\s+of|same\s+as|[Ll]ike|as\s+for|alias\s+of)\s+[`\w.]*\w(?:\(|`|,|\.|;|$)"
)


def is_record(thing: Any) -> bool:
    return isinstance(thing, type) and (hasattr(thing, "_fields") or dataclasses.is_dataclass(thing))


def public() -> Iterator[tuple[str, Any]]:
    """Name and object of each function, class and method that programs may call, the same object once."""
    seen: set[int] = set()
    found = [(f"coro.{name}", getattr(coro, name)) for name in [*coro.__all__, "TimeoutError", "NameError"]]
    for short in MODULES:
        module = importlib.import_module(f"coro.{short}")
        found += [(f"{short}.{name}", getattr(module, name)) for name in getattr(module, "__all__", ())]
    for name, thing in found:
        if not callable(thing) or id(thing) in seen:
            continue
        seen.add(id(thing))
        yield name, thing
        if isinstance(thing, type):
            for attribute in vars(thing):
                if not attribute.startswith("_") and callable(getattr(thing, attribute)):
                    yield f"{name}.{attribute}", getattr(thing, attribute)


PUBLIC = dict(public())


def parameters(thing: Any) -> list[str]:
    """What a caller may name; `*args` and `**kwargs` are passed on."""
    try:
        found = inspect.signature(thing).parameters.values()
    except ValueError:  # a class that says in its docstring who makes its objects
        return []
    passed_on = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in found if p.name not in ("self", "cls") and p.kind not in passed_on]


def unnamed(text: str, names: list[str]) -> list[str]:
    """Those of the parameters of which a docstring says nothing."""
    if ELSEWHERE.search(text):
        return []
    return [name for name in names if not re.search(rf"\b{re.escape(name)}\b", text)]


@pytest.mark.parametrize("name", PUBLIC)
def test_a_docstring_is_there_and_names_each_parameter(name: str) -> None:
    thing = PUBLIC[name]
    text = inspect.getdoc(thing)
    assert text, "expected a docstring, found none"
    if is_record(thing) or name in MADE_BY_OTHERS or (isinstance(thing, type) and issubclass(thing, BaseException)):
        return
    assert unnamed(text, parameters(thing)) == [], f"expected a word about each parameter in:\n{text}"


def test_no_docstring_calls_the_scheduler_main() -> None:
    word = re.compile(r"\bin main\b|\bwhen main\b")
    assert [name for name, thing in PUBLIC.items() if word.search(inspect.getdoc(thing) or "")] == []


def test_what_is_missing_is_found() -> None:
    assert unnamed("Wait for ``seconds``.", ["seconds", "sec"]) == ["sec"]
    assert unnamed("Like ``wait``, but twice.", ["seconds"]) == []
    assert unnamed("Undo put().", ["timeout"]) == ["timeout"]
    assert {"coro.spawn", "coro.coro.get", "coro.serve", "read_stream.sock_stream", "testing.coro_test"} <= set(PUBLIC)
    assert len(PUBLIC) > 400
