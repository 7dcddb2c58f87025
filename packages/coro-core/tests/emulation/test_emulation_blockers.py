"""C libraries that block the OS thread are named: at their import under emulation, and when somebody asks."""

import re

import pytest
from support import ok, program

import coro.emulation
from coro.emulation import _blockers

START = """
import sys, warnings
sys.path.insert(0, {folder!r})
import coro
"""


@pytest.fixture
def start(tmp_path):
    """The beginning of a program that finds modules by the names of two blocking ones."""
    (tmp_path / "pyodbc.py").write_text("name = __name__\n")
    (tmp_path / "mariadb").mkdir()
    (tmp_path / "mariadb" / "__init__.py").write_text("from . import _mariadb\n")
    (tmp_path / "mariadb" / "_mariadb.py").write_text("")
    return START.format(folder=str(tmp_path))


def test_the_import_warns_once_and_names_the_line(start):
    outcome = program(
        start
        + """
coro.install_thread_emulation()
import pyodbc
print(pyodbc.name, type(pyodbc.__loader__).__name__)
del sys.modules["pyodbc"]
import pyodbc
"""
    )
    assert outcome.lines == ["pyodbc SourceFileLoader"]
    assert re.fullmatch(
        r"<string>:8: EmulationWarning: pyodbc \(pyodbc\) blocks all threads of the loop while a query runs; "
        r"call it with coro\.in_thread\(\)",
        outcome.err.splitlines()[0],
    )
    assert outcome.err.count("EmulationWarning") == 1


def test_what_is_loaded_before_is_named_by_the_installation(start):
    outcome = program(
        start
        + """
import mariadb
print([blocker.library for blocker in coro.emulation.check()])
coro.install_thread_emulation()
"""
    )
    assert outcome.lines == ["['mariadb']"]
    assert outcome.err.startswith("<string>:9: EmulationWarning: mariadb (mariadb._mariadb) blocks")


def test_without_emulation_nobody_warns(start):
    outcome = program(start + "import mariadb, pyodbc\nprint(len(coro.emulation.check()))\n")
    assert outcome.lines == ["2"] and outcome.err == ""
    outcome = program(
        start
        + """
coro.install_thread_emulation()
coro.uninstall_thread_emulation()
import pyodbc
"""
    )
    assert outcome.err == ""


def test_a_warning_that_is_an_error_stops_the_import(start):
    assert ok(
        start
        + """
coro.install_thread_emulation()
warnings.simplefilter("error")
try:
    import pyodbc
except coro.emulation.EmulationWarning as error:
    print(str(error)[:6], "pyodbc" in sys.modules)
"""
    ) == ["pyodbc False"]


def test_each_row_says_what_to_do():
    assert coro.emulation.check() == [b for b in coro.emulation.check() if b.module in _blockers.KNOWN]
    for name, blocker in _blockers.KNOWN.items():
        assert name == blocker.module and str(blocker).count(";") >= 1
        assert re.search(r"use |call |leave |run that|keep ", blocker.instead), blocker
        assert all(blocker)
