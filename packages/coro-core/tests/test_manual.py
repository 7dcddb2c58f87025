"""The code blocks of the READMEs and of the manual run as they stand there; see tests/support/manual_blocks.

Those of other packages are run by the tests of the package.
"""

from __future__ import annotations

import importlib
import re
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

import manual_blocks
import pytest
from manual_blocks import commands, reading, running

import coro


@pytest.mark.slow
@pytest.mark.parametrize("page", manual_blocks.pages("coro-core"))
def test_page(page: str) -> None:
    manual_blocks.check(page)


def blocks(folder: Path, text: str, name: str = "page.rst") -> list[reading.Block]:
    (folder / name).write_text(text, encoding="utf-8")
    return reading.read(folder, name)


def test_notes_belong_to_the_next_block_and_what_comes_after_to_the_last(tmp_path: Path) -> None:
    found = blocks(
        tmp_path,
        "Text.\n\n.. block: before\n\n   a = 1\n\n.. block: raises ValueError\n.. code-block:: python\n"
        "   :emphasize-lines: 1\n\n   if a:\n       raise ValueError\n\n   b = 2\n\n.. block: after\n\n   assert a\n\n"
        "1. Item\n\n   .. code-block:: text\n\n      out\n",
    )
    assert [(block.language, block.line, block.code) for block in found] == [
        ("python", 11, "if a:\n    raise ValueError\n\nb = 2\n"),
        ("text", 24, "out\n"),
    ]
    assert [(note.word, note.text, note.code) for note in found[0].notes] == [
        ("before", "", "a = 1\n"),
        ("raises", "ValueError", ""),
        ("after", "", "assert a\n"),
    ]


def test_notes_in_markdown(tmp_path: Path) -> None:
    text = "# A\n\n<!-- block: port 80 -->\n<!-- block: after\nassert b\n-->\n"
    with pytest.raises(reading.PageError, match=r"page\.md:5: expected a code block right before"):
        blocks(tmp_path, text, "page.md")
    (found,) = blocks(tmp_path, "<!-- block: port 80 -->\n```python\nb = 80\n```\n", "page.md")
    assert (found.line, found.code, found.get("port")) == (3, "b = 80\n", "80")


@pytest.mark.parametrize(
    "text, message",
    [
        ("Do this::\n\n   code\n", r"page\.rst:1: expected `.. code-block:: LANGUAGE`"),
        (".. code:: python\n\n   code\n", r"page\.rst:1: expected `.. code-block:: LANGUAGE`"),
        (".. block: never\n", r"page\.rst:1: expected one of the notes"),
        (".. block: raises\n\n.. code-block:: python\n\n   pass\n", r"page\.rst:\d: the note 'raises': .* text"),
        (".. block: fresh\n", r"page\.rst:\d: expected a code block after this note"),
    ],
)
def test_what_is_not_understood_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(reading.PageError, match=message):
        blocks(tmp_path, text)


@pytest.mark.parametrize(
    "command, message",
    [
        ("python -m coro.backdoor --nonsense", "does not name the option '--nonsense'"),
        ("python -m coro.no_such_module", "--help ended with 1"),
        ("python no_such_program.py", "there is no program 'no_such_program.py'"),
        ("frobnicate 1", "expected a program of ours or one of FOREIGN"),
    ],
)
def test_wrong_commands_are_refused(tmp_path: Path, command: str, message: str) -> None:
    found = blocks(tmp_path, f".. code-block:: console\n\n   $ {command}\n   output\n")
    with pytest.raises(AssertionError, match=message):
        commands.check(manual_blocks.ROOT, found)


@pytest.mark.parametrize(
    "code, message",
    [
        ("[Unit]\nDescription=x\n[Service]\nTyp=exec\nExecStart=/srv/env/bin/python x.py\n", "Typ"),
        ("[Service]\nKillMode=some\nExecStart=/srv/env/bin/python x.py\n", "some"),
    ],
)
def test_wrong_units_are_refused(tmp_path: Path, code: str, message: str) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze, from the Debian package systemd")
    text = ".. code-block:: ini\n\n" + textwrap.indent(code, "   ")
    with pytest.raises(reading.PageError, match=message):
        commands.check(manual_blocks.ROOT, blocks(tmp_path, text))
    commands.check(manual_blocks.ROOT, blocks(tmp_path, text.replace("Typ=", "Type=").replace("some", "mixed")))


def test_wrong_images_are_refused(tmp_path: Path) -> None:
    text = ".. code-block:: dockerfile\n\n   FROM python:3.13\n   COPY nothing /src\n"
    with pytest.raises(reading.PageError, match="there is no 'nothing'"):
        commands.check(manual_blocks.ROOT, blocks(tmp_path, text))
    if sys.version_info[:2] == (3, 12) and shutil.which("hadolint", path=str(Path(sys.executable).parent)):
        with pytest.raises(reading.PageError, match="hadolint"):
            commands.check(manual_blocks.ROOT, blocks(tmp_path, text.replace("COPY nothing", "CP README.md")))
    commands.check(manual_blocks.ROOT, blocks(tmp_path, text.replace("nothing", "README.md")))


def test_what_a_loop_of_its_own_is() -> None:
    assert running.starts_a_loop("import coro\n\ncoro.run(main)\n")
    assert running.starts_a_loop("if True:\n    coro.profiler.go(coro.run, main)\n")
    assert not running.starts_a_loop("def child():\n    coro.run(main)\n")


def test_the_first_program_of_a_page_defines_what_it_uses(tmp_path: Path) -> None:
    text = "```python\nimport os\n\n\ndef f(a, *, b=os):\n    with a as c:\n        print(c, b, password)\n```\n"
    with pytest.raises(reading.PageError, match=r"README\.md:2: expected a whole program.* define password$"):
        blocks(tmp_path, text, "README.md")
    (found,) = blocks(tmp_path, text.replace("password", "f"), "README.md")
    assert found.whole
    (fragment,) = blocks(tmp_path, text, "OTHER.md")
    assert not fragment.whole


@pytest.mark.slow
def test_the_first_program_of_a_page_has_no_loop_around_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FRONT_DOORS", re.compile(".*"))
    program = "import coro\n\n\ndef main():\n    with coro.timeout(1):\n        return 3\n\n\nprint(main)\n"
    block, later = blocks(tmp_path, f"```python\n{program}```\n\n```python\nassert main() == 3\n```\n", "page.md")
    code = block.code
    part = running.Part()
    block.code = code.replace("print(main)", "print(main())")
    with pytest.raises(coro.YieldFromMain, match=r"no loop runs"):
        part.python(block)
    block.code = code.replace("print(main)", "print(coro.run(main))")
    part.python(block)
    assert part.last == "3\n"
    part.python(later)  # which has its names, and a loop


@pytest.mark.slow
@pytest.mark.parametrize(
    "code, message",
    [
        ("1 / 0", r"page\.rst.*line 5"),
        ("coro.spawn(int, 'x')\n   coro.yield_slice()", "ValueError"),
        ("print(1)\n\n.. block: output\n.. code-block:: text\n\n   2", "expected this output"),
        ("coro.sleep_relative(100_000)\n\n.. block: after\n\n   assert 0", "AssertionError"),
    ],
)
def test_a_block_that_fails(tmp_path: Path, code: str, message: str) -> None:
    (tmp_path / "page.rst").write_text(f".. block: virtual clock\n\n.. code-block:: python\n\n   {code}\n")
    with pytest.raises(AssertionError, match=message):
        manual_blocks.check(str(tmp_path / "page.rst"))


#: Names that pages speak of though coro does not have them: placeholders, what Cython alone sees, and
#: what the classic coro had.
NOT_HERE = re.compile(r"coro\.(NAME|second|http|dns|ssl|capi|zebra|bin)\b|coro\.name\b")


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one, or an attribute of such an attribute."""
    words = name.split(".")
    for length in range(len(words), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(words[:length]))
        except ImportError:
            continue
        for word in words[length:]:
            if not hasattr(found, word):
                return word in getattr(found, "__annotations__", ())
            found = getattr(found, word)
        return True
    return False


@pytest.mark.slow
def test_every_name_of_coro_in_the_manual_exists() -> None:
    wrong = []
    for page in manual_blocks.pages("coro-core"):
        if page == "docs/changes.rst":
            continue
        for number, line in enumerate((manual_blocks.ROOT / page).read_text("utf-8").splitlines(), 1):
            for name in re.findall(r"``(coro\.[A-Za-z_][\w.]*\w)", line):
                if not NOT_HERE.match(name) and not exists(name):
                    wrong.append(f"{page}:{number}: {name}")
    assert wrong == []
