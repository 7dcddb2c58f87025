"""Fails the build when a public name of `coro` is missing from the reference.

Public is what stands in `coro.__all__`, together with the two names that are kept out of it so that a star
import does not hide built-in exceptions. The opposite needs no code: autodoc warns about a name that is gone.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

import coro

# Attributes that are modules, or bound to other names of this list and described with them.
ELSEWHERE = {"oserrors"}
logger = logging.getLogger(__name__)


def check(app: Sphinx, env: BuildEnvironment) -> None:
    described = set(env.domains["py"].objects)  # type: ignore[attr-defined]
    public = (set(coro.__all__) | {"TimeoutError", "NameError"}) - ELSEWHERE
    missing = sorted(name for name in public if f"coro.{name}" not in described)
    if missing:
        logger.warning("docs/reference describes all public names but: %s", ", ".join(missing))


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("env-check-consistency", check)
    return {"parallel_read_safe": True}
