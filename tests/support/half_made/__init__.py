"""Shows of each class of a distribution's compiled modules that no use of its objects can crash the process.

A test of a package says which distribution it means, and how whole objects are made where `cls()` is not enough:

    SAMPLES = {"coro.example.Thing": lambda: Thing(1), ...}         # in example_samples.py

    NAMES = half_made.names("coro-example")
    outcomes = half_made.fixture("coro-example", Path(__file__).with_name("example_samples.py"))

    @pytest.mark.parametrize("name", NAMES)
    def test_no_use_of_a_class_crashes(outcomes, name):
        outcomes.check(name)

What is done with the objects is in `attack.py`, which runs as a program: each class has a process of its own. Python's
allocator fills what it gives and what it takes back with patterns there, and checks what stands around it, so that a
use of memory that was never set or is not there any more crashes instead of going unnoticed.

Cost: 0.05 s a class. Rejected: the same in the process of the tests, where one crash would hide all others.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["Outcomes", "classes", "fixture", "names"]

PROGRAM = Path(__file__).with_name("attack.py")


def modules(distribution: str) -> list[str]:
    """The names of its compiled modules."""
    found = []
    for file in importlib.metadata.files(distribution) or []:
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            if file.name.endswith(suffix):
                found.append(".".join([*file.parts[:-1], file.name.removesuffix(suffix)]))
                break
    return sorted(found)


def classes(distribution: str) -> dict[str, type]:
    """All classes of a distribution's compiled modules, by their full names."""
    found = {}
    for name in modules(distribution):
        for attribute, value in vars(importlib.import_module(name)).items():
            if isinstance(value, type) and value.__module__ == name and value.__name__ == attribute:
                found[f"{name}.{attribute}"] = value
    return found


def names(distribution: str, but: frozenset[str] = frozenset()) -> list[str]:
    """The full names of the classes. ``but``: names without modules that are left out."""
    found = [name for name in classes(distribution) if name.rpartition(".")[2] not in but]
    assert found, f"{distribution} has no compiled classes: is it installed?"
    return found


class Outcomes:
    """How it went with each class."""

    def __init__(self, distribution: str, samples: Path | None) -> None:
        done = subprocess.run(
            [
                sys.executable,
                *("-W", "ignore::DeprecationWarning"),
                str(PROGRAM),
                distribution,
                "" if samples is None else str(samples),
            ],
            env={**os.environ, "PYTHONMALLOC": "debug"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        self.output = done.stdout + done.stderr
        lines = [line.split(" ", 2) for line in done.stdout.splitlines() if line.startswith("== ")]
        self.ended = {line[1]: line[2] for line in lines if len(line) == 3}

    def check(self, name: str) -> None:
        """The objects of this class did no harm."""
        assert self.ended.get(name) == "ok", self.output


def fixture(distribution: str, samples: Path | None = None) -> Any:
    """A fixture of a module: its `Outcomes`. ``samples``: a file with functions that make whole objects."""
    import pytest

    @pytest.fixture(scope="module", name="outcomes")
    def outcomes() -> Outcomes:
        return Outcomes(distribution, samples)

    return outcomes
