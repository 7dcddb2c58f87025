"""Wheels are built once for each Python, whichever environment needs them, and again when something has changed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.dev import environments
from tools.dev.environments import Environment
from tools.dev.pythons import Python


class Steps:
    """What was really done, instead of doing it: building takes a minute, and what pip does is its own business."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def build(self, python: Path, package: Path, into: Path, short: str) -> None:
        self.done.append(f"build {package.name} with {python.parents[1].name}")
        (into / f"{package.name.replace('-', '_')}-0.1.0-cp312.whl").write_text("wheel")

    def call(self, *command: str | Path, **options: object) -> None:
        words = [str(part) for part in command]
        if "venv" in words:
            python = Path(words[-1]) / "bin" / "python"
            python.parent.mkdir(parents=True)
            python.write_text("")
        elif words[-1].endswith(".whl"):
            self.done.append(f"install {Path(words[-1]).name.partition('-')[0]} in {Path(words[0]).parents[1].name}")

    def take(self) -> list[str]:
        done, self.done = self.done, []
        return done


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Steps:
    found = Steps()
    for name in ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS", "CORO_DEBUG_SYMBOLS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("coro-core", "coro-zebra"):
        (tmp_path / name / "src").mkdir(parents=True)
        (tmp_path / name / "src" / "a.pyx").write_text("1")
    monkeypatch.setattr(environments, "DEV", tmp_path / ".dev")
    monkeypatch.setattr(environments, "CORE", tmp_path / "coro-core")
    monkeypatch.setattr(environments, "build", found.build)
    monkeypatch.setattr(environments, "call", found.call)
    return found


PYTHON = Python(Path("/usr/bin/python3.12"), (3, 12, 1))
NEEDS = ["hatchling>=1.27", "Cython>=3.1", "setuptools>=77"]


def test_a_wheel_serves_all_environments(steps: Steps, tmp_path: Path) -> None:
    core, zebra = tmp_path / "coro-core", tmp_path / "coro-zebra"
    # One that has what a build needs builds by itself.
    test = Environment(PYTHON, "test")
    test.prepare([*NEEDS, "pytest>=8"])
    environments.install(test, [core])
    assert steps.take() == ["build coro-core with test-3.12", "install coro_core in test-3.12"]
    environments.install(test, [core])
    assert steps.take() == []
    # Another one takes the same wheel.
    docs = Environment(PYTHON, "docs")
    docs.prepare(["sphinx"])
    environments.install(docs, [core])
    assert steps.take() == ["install coro_core in docs-3.12"]
    # Without what a build needs, it has another one build. That one needs coro-core, which brings the build hook.
    environments.install(docs, [core, zebra])
    assert steps.take() == [
        "install coro_core in build-3.12",
        "build coro-zebra with build-3.12",
        "install coro_zebra in docs-3.12",
    ]


def test_what_has_changed_is_built_again(steps: Steps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core, zebra = tmp_path / "coro-core", tmp_path / "coro-zebra"
    test = Environment(PYTHON, "test")
    test.prepare(NEEDS)
    everything = [
        "build coro-core with test-3.12",
        "install coro_core in test-3.12",
        "build coro-zebra with test-3.12",
        "install coro_zebra in test-3.12",
    ]

    def done() -> list[str]:
        environments.install(test, [core, zebra])
        return sorted(steps.take())

    assert done() == sorted(everything)
    (zebra / "src" / "a.pyx").write_text("2")
    assert done() == everything[2:]
    # What zebra was compiled against.
    (core / "src" / "a.pyx").write_text("2")
    assert done() == sorted(everything)
    # Tests and what a build has left are no sources.
    for place in ("tests", "build", "newsfragments"):
        (zebra / place).mkdir()
        (zebra / place / "file").write_text("1")
    assert done() == []
    # Other flags make other wheels, which do not take the place of the usual ones.
    with monkeypatch.context() as m:
        m.setenv("CORO_DEBUG_SYMBOLS", "1")
        assert done() == sorted(everything)
    assert done() == ["install coro_core in test-3.12", "install coro_zebra in test-3.12"]


def test_where_results_of_builds_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CORO_BUILD_CACHE", raising=False)
    assert environments.variables()["CORO_BUILD_CACHE"] == str(environments.DEV / "build")
    monkeypatch.setenv("CORO_BUILD_CACHE", str(tmp_path))
    assert environments.variables()["CORO_BUILD_CACHE"] == str(tmp_path)
