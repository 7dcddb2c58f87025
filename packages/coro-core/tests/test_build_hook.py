"""The build hook refuses, with a sentence that helps, every target the runtime was not written for."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

PROJECT = Path(__file__).resolve().parents[1]

GOOD = {
    "version": (3, 12, 1),
    "implementation": "cpython",
    "free_threaded": False,
    "os_name": "linux",
    "machine": "x86_64",
    "pointer": 8,
}


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("coro_hatch_build", PROJECT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"version": (3, 11, 0)},
        {"version": (3, 13, 9)},
        {"version": (3, 14, 2)},
        {"version": (3, 15, 0)},
        {"machine": "aarch64"},
        {"machine": "arm64", "os_name": "darwin"},
        {"machine": "amd64", "os_name": "freebsd"},
        {"machine": "i686", "pointer": 4},
        {"machine": "x86_64", "pointer": 4},
    ],
)
def test_accepted(hook: ModuleType, change: dict[str, object]) -> None:
    assert hook.refusal(**(GOOD | change)) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": (3, 10, 13)}, ["CPython 3.11 to 3.15", "3.10.13"]),
        ({"version": (3, 16, 0)}, ["CPython 3.11 to 3.15", "3.16.0"]),
        ({"version": (4, 12, 0)}, ["4.12.0"]),
        ({"implementation": "pypy"}, ["pypy"]),
        ({"free_threaded": True}, ["GIL", "free-threaded"]),
        ({"version": (3, 14, 0)}, ["3.14.0", "3.14.2 or later"]),
        ({"version": (3, 14, 1)}, ["3.14.1", "3.14.2 or later"]),
        ({"os_name": "win32"}, ["Linux, macOS and FreeBSD", "win32"]),
        ({"machine": "riscv64"}, ["x86-64, i386 and aarch64", "riscv64", "_switch"]),
        ({"machine": "aarch64", "pointer": 4}, ["32-bit"]),
    ],
)
def test_refused(hook: ModuleType, change: dict[str, object], words: list[str]) -> None:
    reason = hook.refusal(**(GOOD | change))
    assert reason is not None
    for word in words:
        assert word in reason


def test_refusal_stops_the_build(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hatchling.builders.wheel import WheelBuilder

    monkeypatch.setattr(sys, "version_info", (3, 99, 0, "final", 0))
    builder = WheelBuilder(str(PROJECT))
    config = builder.config.target_config["hooks"]["custom"]
    build_hook = hook.CustomBuildHook(
        str(PROJECT), config, builder.config, builder.metadata, str(PROJECT), "wheel", builder.app
    )
    with pytest.raises(SystemExit):
        build_hook.initialize("standard", {"force_include": {}})
    said = capsys.readouterr()
    assert "this is Python 3.99.0" in said.out + said.err


def test_every_source_is_named(hook: ModuleType) -> None:
    """No compiled module, C file or assembly file of the package is forgotten in the table of extensions."""
    import glob
    import tomllib

    with open(PROJECT / "pyproject.toml", "rb") as f:
        custom = tomllib.load(f)["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    source = PROJECT / "src"
    named = set()
    for key, table in custom.items():
        if key.startswith("extensions"):
            for patterns in table.values():
                for pattern in patterns:
                    named.update(glob.glob(pattern, root_dir=source))
    there = {str(p.relative_to(source)) for s in ("*.pyx", "*.c", "*.S") for p in source.rglob(s)}
    assert there - named == set()
