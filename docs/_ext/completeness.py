"""Fails the build when a public name of `coro`, or of another package, is missing from the reference.

Public is what stands in `__all__`; for `coro` itself together with the two names that are kept out of it so that a star
import does not hide built-in exceptions. The opposite needs no code: autodoc warns about a name that is gone. Each
package also has a page of text and one in the reference, named after it.

It fails, too, where a public docstring has what only maintainers need: invariants, and designs that were rejected.
These belong into comments.
"""

from __future__ import annotations

import importlib
from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

import coro
from tools.dev import packages

# Attributes that are modules, or bound to other names of this list and described with them.
ELSEWHERE = {"coro.oserrors"}
logger = logging.getLogger(__name__)


def public() -> set[str]:
    """The full names that have to be described."""
    found = {f"coro.{name}" for name in {*coro.__all__, "TimeoutError", "NameError"}} - ELSEWHERE
    for package in packages.others():
        for top in packages.import_names(package):
            module = importlib.import_module(top)
            found |= {f"{top}.{name}" for name in module.__all__}
    return found


def check(app: Sphinx, env: BuildEnvironment) -> None:
    domain = env.domains["py"]
    described = {*domain.objects, *domain.modules}  # type: ignore[attr-defined]
    missing = sorted(public() - described)
    if missing:
        logger.warning("docs/reference describes all public names but: %s", ", ".join(missing))
    for package in packages.others():
        for page in packages.pages(package):
            if page not in env.found_docs:
                logger.warning("expected the page docs/%s.rst for the package %s, found none", page, package.name)


def for_maintainers(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    for line in lines:
        if line.strip().startswith(("Invariant:", "Invariants:")) or "Rejected:" in line:
            logger.warning("%s: expected a docstring for users, got %r; make that a comment", name, line.strip())


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("env-check-consistency", check)
    app.connect("autodoc-process-docstring", for_maintainers)
    return {"parallel_read_safe": True}
