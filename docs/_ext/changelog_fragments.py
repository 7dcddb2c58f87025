"""A directive that shows the changelog fragments of a distribution: `.. changelog-fragments:: FOLDER`.

The fragments (TOPIC.TYPE.md, see the README beside them) are what changed since the last release. They are
plain paragraphs with `code` in backticks, which reads the same in Markdown and, with "literal" as default
role, in reStructuredText; so they are handed to the parser as they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

HEADINGS = {
    "breaking": "Changes that break programs",
    "feature": "New",
    "fix": "Fixed",
    "doc": "Manual",
    "deprecated": "Deprecated",
    "removed": "Removed",
    "misc": "Also",
}


class ChangelogFragments(SphinxDirective):
    """Headings by type, a list item per fragment in the order of the topics."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        folder = Path(self.env.srcdir) / self.arguments[0]
        found: dict[str, list[Path]] = {kind: [] for kind in HEADINGS}
        for path in sorted(folder.glob("*.*.md")):
            kind = path.name.split(".")[-2]
            if kind not in found:
                raise self.error(f"{path.name}: expected one of {', '.join(HEADINGS)} before .md, got {kind!r}")
            found[kind].append(path)
        lines = StringList()
        for kind, paths in found.items():
            if not paths:
                continue
            lines.append(f".. rubric:: {HEADINGS[kind]}", str(folder))
            lines.append("", str(folder))
            for path in paths:
                self.env.note_dependency(str(path))
                for number, line in enumerate(path.read_text(encoding="utf-8").strip().splitlines()):
                    lines.append(("* " if number == 0 else "  ") + line, str(path), number)
                lines.append("", str(path))
        if not lines:
            return [nodes.paragraph(text="Nothing yet.")]
        return self.parse_text_to_nodes("\n".join(lines))


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("changelog-fragments", ChangelogFragments)
    return {"parallel_read_safe": True}
