"""The C interface and its number: neither changes without the other, and every extension checks it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
from pathlib import Path

import pytest

import coro

INSTALLED = Path(coro.get_include())
TOOL = Path(__file__).resolve().parents[4] / "tools" / "abi.py"


@pytest.fixture(scope="module")
def abi():
    spec = importlib.util.spec_from_file_location("abi", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copy(tmp_path):
    """The .pxd files and headers of the installed coro-core, to be changed. Not those of other packages beside it."""
    files = importlib.metadata.files("coro-core")
    assert files
    for file in files:
        if file.suffix in (".pxd", ".h"):
            path = Path(file.locate()).resolve()
            target = tmp_path / path.relative_to(INSTALLED.resolve())
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    return tmp_path


def change(path, old, new):
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def test_the_number_stands_for_this_layout(abi, copy):
    assert abi.layout(copy) == abi.recorded(copy), "the layout has changed: python3 tools/abi.py --update"


def test_what_others_compile_against_is_looked_at(abi, copy):
    names = {str(path.relative_to(copy)) for path in abi.headers(copy)}
    assert {"_clock/ticks.h", "_switch/slots.h", "_runtime/timers.h"} <= names


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("_runtime/scheduler.pxd", "    cdef int shield_level\n", "    cdef long shield_level\n"),
        ("_runtime/scheduler.pxd", "    WAIT_SELECT = 9\n", "    WAIT_SELECT = 10\n"),
        ("_clock/ticks.h", "uint32_t seq;", "uint64_t seq;"),
        ("_switch/slots.h", "uint16_t links;", "uint32_t links;"),
        ("capi.pxd", "    wake_error,\n", ""),
    ],
)
def test_a_change_is_seen_and_raises_the_number(abi, copy, name, old, new):
    before = abi.number(copy)
    change(copy / name, old, new)
    assert abi.main([str(copy)]) == 1
    assert abi.main(["--update", str(copy)]) == 0
    assert abi.number(copy) == before + 1
    assert abi.main([str(copy)]) == 0


def test_comments_and_spaces_are_no_change(abi, copy):
    with open(copy / "_clock/ticks.h", "a") as f:
        f.write("\n/* one\n   more */   // and this\n")
    with open(copy / "_runtime/scheduler.pxd", "a") as f:
        f.write("\n# one more\n")
    assert abi.main([str(copy)]) == 0


def test_a_number_alone_does_not_fit(abi, copy):
    change(copy / "_runtime/abi.pxd", f"CORO_ABI = {abi.number(copy)}\n", f"CORO_ABI = {abi.number(copy) + 1}\n")
    assert abi.main([str(copy)]) == 1


def test_every_extension_above_the_scheduler_checks_the_number():
    below = {INSTALLED / "_clock" / "ticks.pyx", INSTALLED / "_runtime" / "scheduler.pyx"}
    sources = set(INSTALLED.rglob("*.pyx")) - below
    assert len(sources) >= 13
    # A module that compiles against nothing of coro has no number to check.
    texts = {s: s.read_text() for s in sources}
    depends = {s for s, text in texts.items() if re.search(r"^\s*(from coro\b.* cimport|cimport coro)\b", text, re.M)}
    assert len(depends) >= 13
    assert [s for s in depends if not re.search(r"^require_abi\(\)$", texts[s], re.M)] == []
