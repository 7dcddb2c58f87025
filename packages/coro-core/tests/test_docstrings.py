"""Docstrings of everything public: each is there, speaks of every parameter by its name, and its examples run.

A docstring may leave its parameters to another one ("those of ``coro.Server``"). Records have a comment for each field
instead. Objects that only coro makes have no parameters that a program could pass.

Examples are run as the manual's code blocks are (tests/support/manual_blocks). What comes before and after one, which a
docstring does not show, stands here.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import manual_blocks
import pytest

import coro

#: Public modules beside `coro` itself. Their `__all__` says what is public.
MODULES = """
    asyncio_bridge backdoor debug emulation file_watcher files frontdoor gc_monitor groups limits locksmith log lru
    microthreads offload optional outcomes parallel pools prefork process profiler rates read_stream resolver retries
    servers signal_handler task_queues tb testing tls
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
ELSEWHERE = re.compile(r"(?:those\s+of|same\s+as|[Ll]ike|as\s+for|alias\s+of)\s+[`\w.]*\w(?:\(|`|,|\.|;|$)")


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
    if is_record(thing) or name in MADE_BY_OTHERS:
        return
    if isinstance(thing, type) and issubclass(thing, (BaseException, enum.Enum)):
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


FETCHING = """
    urls = ["/a", "/b", "/c"]
    def fetch(url):
        coro.sleep(0.1)
        return url
"""

#: What each docstring with an example takes for granted, and what has to hold after the example.
EXAMPLES = {
    "coro.as_completed": (
        """
        def download(seconds):
            coro.sleep(seconds)
            return seconds
        downloads = [coro.spawn(download, seconds, thread_name="t") for seconds in (0.2, 0.1)]
        """,
        "assert printed().split() == ['t', '0.1', 't', '0.2']",
    ),
    "coro.coro.get": (FETCHING + "    url = urls[0]", "assert page == '/a'"),
    "coro.move_on_after": ("peer, ask = 1, lambda peer: coro.sleep(10)", "assert scope.expired and answer is None"),
    "coro.mutex.acquire": ("m = coro.mutex(); coro.spawn(m.lock).join()", "assert printed() == 'busy\\n'"),
    "coro.pool": (FETCHING, "assert downloads.statistics().finished == 6"),
    "coro.priority_queue": ("", "assert q.get() == (2, 'later')"),
    "coro.queue": (
        """
        class job:
            ran = 0
            def run():
                job.ran += 1
        coro.spawn(lambda: worker(), daemon=True)
        """,
        "assert job.ran == 1",
    ),
    "coro.rate_limiter": (FETCHING, "assert limiter.statistics().taken == 3"),
    "coro.retry": (FETCHING + "    url = urls[1]", "assert page is None"),
    "coro.wait": ("peers, ask = [1, 10], coro.sleep", "assert (len(done), len(late)) == (1, 1)"),
    "log.Background": (
        "import sys; from coro.log import *; before = get_logger()",
        "assert isinstance(set_logger(before), FileLogger)",
    ),
    "emulation.check": ("import coro.emulation", ""),
    "emulation.offload": ("import coro.emulation", ""),
    "testing.coro_test": (
        "import unittest; from coro.testing import coro_test",
        "assert issubclass(EchoTest, unittest.TestCase)",
    ),
    "testing.sequencer": ("", "assert seq"),
}


def examples(text: str) -> list[str]:
    """The examples of a docstring: what is set apart by a blank line and four spaces, as in the manual."""
    found = re.findall(r"(?:^|\n\n)((?: {4}.*(?:\n|$)|\n(?= {4}))+)", text)
    return [textwrap.dedent(code).strip("\n") for code in found]


def test_examples_of_a_docstring() -> None:
    assert examples("One::\n\n    a = 1\n\n    b = 2\n\nTwo:\n\n    c = 3") == ["a = 1\n\nb = 2", "c = 3"]
    assert examples("* point\n    goes on\n") == []


def test_each_example_is_run() -> None:
    assert {name for name, thing in PUBLIC.items() if examples(inspect.getdoc(thing) or "")} == set(EXAMPLES)


@pytest.mark.slow
def test_examples_run(tmp_path: Path) -> None:
    page = []
    for name, (before, after) in EXAMPLES.items():
        code = "\n".join(examples(inspect.getdoc(PUBLIC[name]) or ""))
        page += [f"Example of {name}", "", ".. block: fresh", ".. block: virtual clock"]
        for heading, text in (
            (".. block: before", before),
            (".. code-block:: python", code),
            (".. block: after", after),
        ):
            if text:
                page += ["", heading, "", textwrap.indent(textwrap.dedent(text).strip("\n"), "   ")]
        page.append("")
    (tmp_path / "docstrings.rst").write_text("\n".join(page), encoding="utf-8")
    manual_blocks.check(str(tmp_path / "docstrings.rst"))
