"""Shows the examples in docstrings as code.

A docstring sets an example apart by a blank line and four spaces, which reads well in help(). reStructuredText takes
that for a quotation and flows its lines together, so a directive is put before it here. What Python can parse is
highlighted as Python, anything else (commands, layouts of records) is shown as it is.
"""

from __future__ import annotations

import ast
import textwrap
from typing import Any

from sphinx.application import Sphinx

INDENT = "    "


def language(code: str) -> str:
    """The lexer for an example."""
    try:
        ast.parse(code)
    except SyntaxError:
        return "text"
    return "python"


def mark(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Put a directive before each example. `lines` is the docstring, which is changed in place."""
    out: list[str] = []
    at = 0
    while at < len(lines):
        before = out[-2] if len(out) > 1 and not out[-1] else ""
        if not lines[at].startswith(INDENT) or not before or before.startswith(" ") or before.endswith("::"):
            out.append(lines[at])
            at += 1
            continue
        end = at
        while end < len(lines) and (not lines[end].strip() or lines[end].startswith(INDENT)):
            end += 1
        example = lines[at:end]
        while not example[-1].strip():
            example.pop()
        lexer = language(textwrap.dedent("\n".join(example)))
        out += [f".. code-block:: {lexer}", "", *example, ""]
        at = end
    lines[:] = out


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", mark)
    return {"parallel_read_safe": True}
