"""No import goes up: a room of `src/coro` uses only rooms that stand before it in ORDER.

The order is written here and nowhere else as a rule; the list of rooms in docs/contributing/index.rst is compared with
it. Python modules and stubs are read by `ast`; Cython sources, whose grammar `ast` does not know, by their lines:
`import`, `cimport`, `include` and `extern from`; C sources and assembly by what they include. An import inside a
function counts like any other: it hides a cycle and does not undo it.

Cost: a quarter of a second for all sources.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "coro"
MANUAL = Path(__file__).parents[3] / "docs" / "contributing" / "index.rst"

#: The rooms from the bottom up: a folder, or a module at the top. A private room is a floor of its own. On the floor of
#: public modules each stands behind those it uses. What stands behind `__init__` is built on the public names.
ORDER = """
    exceptions oserrors tb
    _switch
    _clock
    _runtime
    offload resolver optional
    _poll
    _net
    capi
    _sync
    _introspection
    groups outcomes parallel pools rates retries task_queues signal_handler servers process files event_queue lru limits
    read_stream locksmith gc_monitor tls
    asyncio_bridge log microthreads profiler print_profile file_watcher emulation
    _entry
    prefork
    __init__
    backdoor frontdoor debug testing test demo __main__
""".split()

#: (file, what it looks up at): why it may.
EXCEPTIONS = {
    ("_entry/loop.py", "coro"): "programs switch signal handlers off by assigning to coro.install_signal_handlers",
    **{
        ("__init__.py", f"coro.{name}"): "an attribute that __getattr__ makes; the line is for type checkers"
        for name in ("backdoor", "debug", "demo", "frontdoor", "test", "testing")
    },
}


class Use(NamedTuple):
    """A line that names another module or file of the package."""

    line: int
    #: "coro._runtime.scheduler", or a file from the package's folder on: "_switch/slots.h".
    what: str


def line_of(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def by_ast(text: str) -> Iterator[Use]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (Use(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:  # others stay inside of a room
            yield from (Use(node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


CYTHON_FROM = re.compile(r"^[ \t]*from[ \t]+([\w.]+)[ \t]+c?import[ \t]+(\([^)]*\)|[^\n]*)", re.M)
CYTHON_IMPORT = re.compile(r"^[ \t]*c?import[ \t]+([\w., \t]+)", re.M)
CYTHON_FILE = re.compile(r"""^[ \t]*(?:include|cdef[ \t]+extern[ \t]+from)[ \t]+["']([^"'\n]+)["']""", re.M)
C_FILE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"\n]+)"', re.M)
LOOKED_UP = re.compile(r"""(?:sys\.modules(?:\.get\(|\[)|import_module\()["']([\w.]+)["']""")


def without_docstrings(text: str) -> str:
    """Cython sources with the insides of long strings blanked, but for the C code in them."""
    return re.sub(
        r'"""(.*?)"""', lambda m: m[0] if "#include" in m[1] else "\n" * m[0].count("\n"), text, flags=re.S
    )


def by_lines(text: str) -> Iterator[Use]:
    text = without_docstrings(text)
    for found in CYTHON_FROM.finditer(text):
        names = re.sub(r"#[^\n]*", "", found[2])
        for name in re.findall(r"(\w+)(?:[ \t]+as[ \t]+\w+)?[ \t]*(?:,|\)|$|\n)", names):
            yield Use(line_of(text, found.start()), f"{found[1]}.{name}")
    for found in CYTHON_IMPORT.finditer(text):
        for name in found[1].split(","):
            yield Use(line_of(text, found.start()), name.split()[0])
    for pattern in (CYTHON_FILE, C_FILE):
        yield from (Use(line_of(text, found.start()), found[1]) for found in pattern.finditer(text))


def uses(path: Path) -> Iterator[Use]:
    """What a file names, from outside of the package as well."""
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".py", ".pyi"):
        yield from by_ast(text)
        yield from (Use(line_of(text, found.start()), found[1]) for found in LOOKED_UP.finditer(text))
    elif path.suffix in (".pyx", ".pxd", ".pxi"):
        yield from by_lines(text)
    elif path.suffix in (".c", ".h", ".S"):
        yield from (Use(line_of(text, found.start()), found[1]) for found in C_FILE.finditer(text))


def is_there(path: Path) -> bool:
    """Is it a module or a folder? The path has no suffix."""
    return path.is_dir() or any(path.with_suffix(suffix).exists() for suffix in (".py", ".pyi", ".pyx", ".pxd"))


def room_of(source: Path, what: str) -> str | None:
    """The room that a line names; None where it names something else."""
    if "/" in what:
        first = what.split("/")[0]
        return first if (source / first).is_dir() else None
    if what.split(".")[0] != "coro":
        return None
    inside = what.split(".")[1:]
    if inside and is_there(source / inside[0]):
        return inside[0]
    return "__init__"  # a public name, or the package itself


def faults(source: Path) -> list[str]:
    """What goes up in a folder of sources, a line each."""
    found = []
    for path in sorted(source.rglob("*")):
        file = path.relative_to(source)
        mine = file.parts[0] if len(file.parts) > 1 else file.stem
        for use in uses(path) if path.is_file() else ():
            theirs = room_of(source, use.what)
            if theirs in (None, mine) or (file.as_posix(), use.what) in EXCEPTIONS:
                continue
            unknown = [room for room in (mine, theirs) if room not in ORDER]
            if unknown:
                rule = f"ORDER does not know the room {unknown[0]!r}: put it behind all that it uses"
            elif ORDER.index(theirs) > ORDER.index(mine):
                rule = (
                    f"a room uses only what stands before it, and {theirs} stands behind {mine}: move what is needed "
                    "down, or have the upper room register it (a hook)"
                )
            else:
                continue
            found.append(f"{file}:{use.line}: {use.what}: {rule}")
    return found


def test_no_import_goes_up():
    assert faults(SOURCE) == []


def test_every_room_has_its_place():
    rooms = {path.name.partition(".")[0] for path in SOURCE.iterdir() if path.name not in ("__pycache__", "py.typed")}
    assert sorted(rooms) == sorted(ORDER)


def test_exceptions_are_needed():
    """One that is not used any more would hide the next fault."""
    for file, what in EXCEPTIONS:
        assert what in {use.what for use in uses(SOURCE / file)}, f"{file} does not name {what}: remove the exception"


def test_the_manual_lists_the_rooms_in_this_order():
    table = MANUAL.read_text(encoding="utf-8").partition("* - room\n")[2].partition("\nTests are in folders")[0]
    rows = re.findall(r"^   \* - (.*)$", table, re.M)
    named = [name for row in rows for name in re.findall(r"``([\w/.]+)``", row)]
    places = [ORDER.index(name.rpartition(".p")[0] or name.rstrip("/")) for name in named]
    assert places == sorted(places), f"{named} is not the order {ORDER}"
    assert {room for room in ORDER if room.startswith("_")} <= {ORDER[place] for place in places}


@pytest.mark.parametrize(
    "file, text, line",
    [
        ("_runtime/a.py", "import sys\nfrom coro import groups\n", 2),
        ("_runtime/a.py", "def f():\n    import coro.groups\n", 2),
        ("_runtime/a.pyi", "from coro.groups import group\n", 1),
        ("_runtime/a.py", "import sys\nx = sys.modules['coro.groups']\n", 2),
        ("_runtime/a.py", "import coro\n", 1),
        ("_runtime/a.py", "from coro import spawn\n", 1),
        ("_runtime/a.pyx", '"""\nimport coro.groups\n"""\ncimport coro.groups\n', 4),
        ("_runtime/a.pyx", "cdef f():\n    from coro.groups import (a,\n        b)\n", 2),
        ("_runtime/a.pxd", "from coro.groups cimport a, b as c\n", 1),
        ("_runtime/a.pxi", 'include "groups/part.pxi"\n', 1),
        ("_runtime/a.pyx", 'cdef extern from "groups/c.h" nogil:\n    int x\n', 1),
        ("_runtime/a.pyx", 'cdef extern from *:\n    """\n    #include "groups/c.h"\n    """\n', 3),
        ("_runtime/a.c", '#include <stdio.h>\n#include "groups/c.h"\n', 2),
    ],
)
def test_what_goes_up_is_found(tmp_path, file, text, line):
    (tmp_path / "groups").mkdir()
    path = tmp_path / file
    path.parent.mkdir()
    path.write_text(text)
    found = faults(tmp_path)
    assert found and all(fault.startswith(f"{file}:{line}: ") and "stands before it" in fault for fault in found), found


def test_a_room_without_a_place_is_found(tmp_path):
    (tmp_path / "attic.py").write_text("from coro import groups\n")
    (tmp_path / "groups.py").write_text("import coro.exceptions, sys\n")
    (tmp_path / "exceptions.py").write_text("")
    assert [fault.split(": ")[:3] for fault in faults(tmp_path)] == [
        ["attic.py:1", "coro.groups", "ORDER does not know the room 'attic'"]
    ]
