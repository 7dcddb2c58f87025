"""The code blocks of a page, with the notes that say how they are run.

Notes are comments, which the page does not show: `.. block: raises ValueError` in reStructuredText, and
`<!-- block: raises ValueError -->` in Markdown. A note belongs to the next block, only one that begins with "after"
belongs to the block before. Nothing else is known of either language than code blocks, their options and notes, so a
page is read in a millisecond.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import re
import textwrap
from collections.abc import Callable
from pathlib import Path

#: The first words of notes: whether a text follows on the same line, and whether code follows below.
NOTES = {
    "before": (False, True),
    "after": (False, True),
    "raises": (True, False),
    "port": (True, False),
    "replace": (True, False),
    "file": (True, False),
    "fresh": (False, False),
    "output": (False, False),
    "threads fail": (False, False),
    "virtual clock": (False, False),
    "no loop": (False, False),
    "run": (None, False),
    "not run:": (True, False),
}


class PageError(AssertionError):
    """A page is not written as authors are asked to; the text names page and line."""


@dataclasses.dataclass
class Note:
    """What a comment says: its first words, the text behind them, and the code below."""

    word: str
    text: str
    code: str
    line: int


@dataclasses.dataclass
class Block:
    """Code that a page shows. `line` is that of the first line of code, counted from 1."""

    page: str
    line: int
    language: str
    code: str
    notes: list[Note]
    whole: bool = False
    """Has it to be a program that a reader can paste into a file: one that imports all it uses and starts its loop?"""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    def all(self, word: str) -> list[Note]:
        return [note for note in self.notes if note.word == word]

    def get(self, word: str) -> str | None:
        """The text of a note, "" if it has none, or None if there is no such note."""
        found = self.all(word)
        return found[-1].text if found else None

    @property
    def runs(self) -> bool:
        """Whether a process is needed for it."""
        if self.get("not run:") is not None:
            return False
        wanted = [self.get(word) for word in ("run", "output", "file")]
        return self.language in ("python", "pycon") or any(word is not None for word in wanted)


def note(page: str, line: int, words: str, code: str) -> Note:
    """Read a note. Raises PageError if it is not one of NOTES."""
    words = words.strip()
    for word, (text_follows, code_follows) in NOTES.items():
        if words == word or words.startswith(word + " "):
            text = words[len(word) :].strip()
            wrong = "" if text_follows is None or bool(text) == text_follows else "text behind it"
            wrong = wrong or ("" if bool(code.strip()) == code_follows else "code below it")
            if wrong:
                raise PageError(f"{page}:{line}: the note {word!r}: look again at the {wrong}, got {words!r}")
            return Note(word, text, code if code.strip() else "", line)
    raise PageError(f"{page}:{line}: expected one of the notes {', '.join(NOTES)}; got {words!r}")


class _Page:
    """The lines of a page, and what has been found so far."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.lines = text.split("\n")
        self.at = 0  # the next line, from 0
        self.blocks: list[Block] = []
        self.waiting: list[Note] = []  # notes for the next block

    def add_note(self, line: int, words: str, code: str) -> None:
        found = note(self.name, line, words, code)
        if found.word != "after":
            self.waiting.append(found)
        elif not self.blocks or self.waiting:
            raise PageError(f"{self.name}:{line}: expected a code block right before this note")
        else:
            self.blocks[-1].notes.append(found)

    def add_block(self, line: int, language: str, code: str) -> None:
        self.blocks.append(Block(self.name, line, language, code, self.waiting))
        self.waiting = []

    def indented(self, depth: int) -> tuple[int, str]:
        """Take the lines that are indented deeper than `depth`: the number of the first, from 1, and all, dedented."""
        while self.at < len(self.lines) and not self.lines[self.at].strip():
            self.at += 1
        first = self.at
        end = first
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.strip():
                if len(line) - len(line.lstrip()) <= depth:
                    break
                end = self.at + 1
            self.at += 1
        self.at = end
        return first + 1, textwrap.dedent("\n".join(self.lines[first:end]) + "\n")


NOTE = re.compile(r"( *)\.\. block:(?!:)(.*)")
DIRECTIVE = re.compile(r"( *)\.\. ([\w-]+)::(.*)")
OPTION = re.compile(r" +:[\w-]+:")


def _structured_text(page: _Page) -> None:
    while page.at < len(page.lines):
        line = page.lines[page.at]
        page.at += 1
        number = page.at
        if found := NOTE.fullmatch(line):
            first, code = page.indented(len(found[1]))
            page.add_note(first if code.strip() else number, found[2], code)
        elif found := DIRECTIVE.fullmatch(line):
            depth, name, argument = len(found[1]), found[2], found[3].strip()
            if name in ("code", "sourcecode", "doctest", "testcode", "highlight"):
                raise PageError(f"{page.name}:{number}: expected `.. code-block:: LANGUAGE`, got {line.strip()!r}")
            if name == "literalinclude":
                page.add_block(number, "included", argument)
            elif name == "code-block":
                while page.at < len(page.lines) and OPTION.match(page.lines[page.at]):
                    page.at += 1
                first, code = page.indented(depth)
                page.add_block(first, argument, code)
        elif line.rstrip().endswith("::") and not line.lstrip().startswith(".. "):
            raise PageError(f"{page.name}:{number}: expected `.. code-block:: LANGUAGE`, got a line that ends with ::")


def _markdown(page: _Page) -> None:
    while page.at < len(page.lines):
        line = page.lines[page.at]
        page.at += 1
        number = page.at
        if line.startswith("<!-- block:"):
            while "-->" not in page.lines[page.at - 1]:
                page.at += 1
            whole = "\n".join(page.lines[number - 1 : page.at]).removeprefix("<!-- block:").partition("-->")[0]
            words, _, code = whole.partition("\n")
            page.add_note(number + 1 if code.strip() else number, words, code)
        elif line.startswith("```"):
            end = page.lines.index("```", page.at)
            page.add_block(number + 1, line[3:].strip(), "\n".join(page.lines[page.at : end]) + "\n")
            page.at = end + 1


#: Where the first block of Python is a whole program: it is the first thing that readers try.
FRONT_DOORS = re.compile(r"(.*/)?README\.md|docs/packages/[^/]*\.rst")


def undefined(code: str) -> list[str]:
    """The names that a program uses and nowhere defines, wherever that would be."""
    used: set[str] = set()
    known = set(dir(builtins)) | {"__name__", "__file__"}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else known).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            known.add(node.name)
        elif isinstance(node, ast.arg):
            known.add(node.arg)
        elif isinstance(node, ast.alias):
            known.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            known.add(node.name)
    return sorted(used - known)


def read(root: Path, name: str) -> list[Block]:
    """The code blocks of a page. Raises PageError for a note or a block that is not understood, and for a first program
    that uses what it does not define."""
    page = _Page(name, (root / name).read_text(encoding="utf-8"))
    reader: Callable[[_Page], None] = _markdown if name.endswith(".md") else _structured_text
    reader(page)
    if page.waiting:
        raise PageError(f"{name}:{page.waiting[0].line}: expected a code block after this note")
    for block in page.blocks:
        if not block.language:
            raise PageError(f"{block.place}: expected the name of a language, there is none")
        block.language = {"sh": "console", "shell": "console", "bash": "console", "py": "python"}.get(
            block.language, block.language
        )
    programs = [block for block in page.blocks if block.language == "python"]
    if programs and FRONT_DOORS.fullmatch(name):
        programs[0].whole = True
        if missing := undefined(programs[0].code):
            raise PageError(
                f"{programs[0].place}: expected a whole program, because it is the first of its page; "
                f"it does not define {', '.join(missing)}"
            )
    return page.blocks


def parts(blocks: list[Block]) -> list[list[Block]]:
    """The blocks of a page by the process they run in: a new one where a note says "fresh"."""
    found: list[list[Block]] = [[]]
    for block in blocks:
        if block.get("fresh") is not None and found[-1]:
            found.append([])
        found[-1].append(block)
    return found
