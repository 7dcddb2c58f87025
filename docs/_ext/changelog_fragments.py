"""A directive that shows the changelog fragments of all distributions: `.. changelog-fragments::`.

Each distribution in `packages/` gets a section, in which its fragments (TOPIC.TYPE.md, see the README beside those of
coro-core) are what changed since the last release. They are plain paragraphs with `code` in backticks, which reads the
same in Markdown and, with "literal" as default role, in reStructuredText; so they are handed to the parser as they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from tools.dev import packages

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
    """Sections by distribution; in them headings by type, and a list item per fragment in the order of the topics."""

    def run(self) -> list[nodes.Node]:
        lines = StringList()
        for package in packages.packages():
            lines.append(package.name, str(package))
            lines.append("~" * len(package.name), str(package))
            lines.append("", str(package))
            self.fragments(package / "newsfragments", lines)
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)

    def fragments(self, folder: Path, lines: StringList) -> None:
        """Add the fragments of one distribution to `lines`."""
        found: dict[str, list[Path]] = {kind: [] for kind in HEADINGS}
        for path in sorted(folder.glob("*.*.md")):
            kind = path.name.split(".")[-2]
            if kind not in found:
                raise self.error(f"{path.name}: expected one of {', '.join(HEADINGS)} before .md, got {kind!r}")
            found[kind].append(path)
        if not any(found.values()):
            lines.append("Nothing yet.", str(folder))
            lines.append("", str(folder))
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


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("changelog-fragments", ChangelogFragments)
    return {"parallel_read_safe": True}
