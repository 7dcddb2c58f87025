"""The warning about the older distribution that has the name of our import package."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from coro._entry import other_distribution


@pytest.mark.parametrize("name", ["coro-1.0.5.dist-info", "coro-1.0.5-py2.7.egg-info", "coro.egg-info", "Coro-1.egg"])
def test_it_is_named_with_what_to_do(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.warns(RuntimeWarning, match="pip uninstall coro && pip install --force-reinstall coro-core") as found:
        other_distribution.warn([str(tmp_path / "coro"), str(tmp_path / "coro")])
    assert len(found) == 1
    assert f"({name} in {tmp_path})" in str(found[0].message)


def test_our_own_and_those_of_others_are_not_meant(tmp_path: Path) -> None:
    for name in ("coro_core-0.1.0.dist-info", "coro_clocks-0.1.0.dist-info", "coroutine-1.0.egg-info", "coro"):
        (tmp_path / name).mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other_distribution.warn([str(tmp_path / "coro"), str(tmp_path / "archive.zip" / "coro")])


def test_importing_says_so_where_the_program_imports(tmp_path: Path) -> None:
    """One that is further behind on sys.path is found, too: its modules would be taken for ours."""
    (tmp_path / "coro").mkdir()
    (tmp_path / "coro" / "__init__.py").write_text("print 'for Python 2'")
    (tmp_path / "coro-1.0.5.dist-info").mkdir()
    code = f"import sys; sys.path.append({str(tmp_path)!r})\nimport coro"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith('<string>:2: RuntimeWarning: the distribution "coro" (coro-1.0.5.dist-info in ')
