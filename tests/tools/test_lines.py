"""Lines that are too long in what ruff does not read."""

import subprocess

import pytest

from tools.dev import lines


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\nline-length = 20\n")
    (tmp_path / ".gitignore").write_text("build\n")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


def test_each_long_line_is_named(checkout):
    (checkout / "package").mkdir()
    text = "\n".join(["x" * 20, "\u00e9" * 20, "x" * 21, ""])
    (checkout / "package" / "a.pyx").write_text(text, encoding="utf-8")
    (checkout / "b.h").write_text("/*" + "x" * 30)
    assert lines.too_long(checkout) == [
        "b.h:1: 32 characters, and 20 are allowed",
        "package/a.pyx:3: 21 characters, and 20 are allowed",
    ]


def test_other_files_and_what_git_ignores_are_left_alone(checkout):
    (checkout / "build").mkdir()
    (checkout / "build" / "a.c").write_text("x" * 30)
    (checkout / "a.py").write_text("x" * 30)
    assert lines.too_long(checkout) == []


def test_a_file_that_was_deleted(checkout):
    path = checkout / "a.c"
    path.write_text("x" * 30)
    subprocess.run(["git", "-C", str(checkout), "add", "a.c"], check=True)
    path.unlink()
    assert lines.too_long(checkout) == []
