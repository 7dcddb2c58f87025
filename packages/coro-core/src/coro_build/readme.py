"""The README as a package index shows it: links that are relative in the repository become absolute ones.

An index shows the README of a distribution far away from the repository, where `../../README.md` leads nowhere.
Writing absolute links into the file would help the index, but would lead a reader of a branch or of a copy out of it.
So the file keeps its relative links, and the metadata of a build has absolute ones.

No import of hatchling here. Reading a README takes a millisecond.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

from .table import BuildError

# The target of an image, ![text](target); of anything inline, [text](target "title"), also around an image, whose own
# target has been seen to by then; of a definition, [name]: target
_IMAGE = re.compile(r"(?P<before>!\[[^\[\]]*\]\(\s*<?)(?P<target>[^)\s>]+)")
_INLINE = re.compile(r"(?P<before>\]\(\s*<?)(?P<target>[^)\s>]+)")
_DEFINITION = re.compile(r"^(?P<before> {0,3}\[[^\]]+\]:\s+<?)(?P<target>[^\s>]+)")
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//|#")


def is_relative(target: str) -> bool:
    """Does a link lead somewhere only in the repository?  One within the page, "#name", leads somewhere everywhere."""
    return _SCHEME.match(target) is None


def _each_target(text: str, replace: Callable[[str, bool], str]) -> str:
    """The text with each target of a link replaced by `replace(target, is_image)`; code is left alone."""
    lines = []
    fence = ""
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        elif not fence:
            line = _IMAGE.sub(lambda m: m["before"] + replace(m["target"], True), line)
            line = _INLINE.sub(lambda m: m["before"] + replace(m["target"], False), line)
            line = _DEFINITION.sub(lambda m: m["before"] + replace(m["target"], False), line)
        lines.append(line)
    return "".join(lines)


def relative_links(text: str) -> list[str]:
    """The targets in a Markdown text that lead somewhere only in the repository, each once."""
    found: list[str] = []

    def keep(target: str, image: bool) -> str:
        if is_relative(target) and target not in found:
            found.append(target)
        return target

    _each_target(text, keep)
    return found


def absolute_links(text: str, repository: str, folder: str) -> str:
    """A Markdown text with its relative links made absolute.

    repository: the address of the repository, such as "https://github.com/OWNER/NAME".
    folder: where the text lies in the repository, such as "packages/coro-NAME".

    Raises BuildError for a link that leads out of the repository.
    """

    def absolute(target: str, image: bool) -> str:
        if not is_relative(target):
            return target
        path, mark, fragment = target.partition("#")
        place = posixpath.normpath(posixpath.join(folder, path))
        if place == ".." or place.startswith(("../", "/")):
            raise BuildError(
                f"expected links in the README that stay in the repository, got {target!r} in the folder {folder!r}; "
                "write the whole address instead"
            )
        return f"{repository.rstrip('/')}/{'raw' if image else 'blob'}/HEAD/{place}{mark}{fragment}"

    return _each_target(text, absolute)
