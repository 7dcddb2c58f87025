"""Which files of tests `-k` can select, told from their text: so nothing is built for tests that will not run.

pytest knows what it selects when it has imported the tests, and for that everything has to be built. A word of `-k` is
part of a name: of a file or folder, a class, a test, a mark, or of a parameter. All but the last stand in the text.
Parameters are taken from short strings and names in decorators and in the file's own statements. What is computed
elsewhere is not found, so the caller says what is left out, and that a path selects it all the same.

An expression with `not` may select tests without any word; it narrows nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

#: The longest string that is taken for a parameter; what is longer is text.
LONGEST = 60


def words_of(options: Sequence[str]) -> list[str]:
    """The words of the last `-k` among pytest's options, one of which a test needs; none where all may be selected."""
    expression = ""
    for before, option in zip(["", *options], options, strict=False):
        if before == "-k":
            expression = option
        elif option.startswith("-k") and option != "-k":
            expression = option[2:].removeprefix("=")
    words = re.findall(r"[^\s()]+", expression.lower())
    return [] if "not" in words else [word for word in words if word not in ("and", "or")]


def names_in(tree: ast.Module) -> Iterator[str]:
    """Every name in a file of tests that `-k` may mean."""
    pending: list[ast.AST] = []
    blocks: list[ast.Module | ast.ClassDef] = [tree]
    while blocks:
        for node in blocks.pop().body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield node.name
                pending += node.decorator_list
                if isinstance(node, ast.ClassDef):
                    blocks.append(node)
            elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                pending.append(node)
    for one in pending:
        for part in ast.walk(one):
            if isinstance(part, ast.Constant) and isinstance(part.value, str) and len(part.value) <= LONGEST:
                yield part.value
            elif isinstance(part, ast.Name):
                yield part.id
            elif isinstance(part, ast.Attribute):
                yield part.attr


def selects(words: Sequence[str], files: Sequence[Path], root: Path) -> bool:
    """Can a test of these files have one of the words in its name?"""
    for file in files:
        place = str(file.relative_to(root)).lower()
        if any(word in place for word in words):
            return True
        text = file.read_text(encoding="utf-8")
        # Most files do not have the word at all, and are not parsed.
        if any(word in text.lower() for word in words):
            names = [name.lower() for name in names_in(ast.parse(text))]
            if any(word in name for word in words for name in names):
                return True
    return False
