"""Tab completion over a namespace: names, and attributes along dots.

``rlcompleter`` of the standard library is not used in the server: importing it imports ``readline``, which takes over
the terminal of the program, and installs its own completer there.

Properties before the last dot are evaluated (there is no other way to see what they give); the last name is only
looked up in ``dir()``.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["complete"]

#: More are not useful to look at, and an object may have any number of attributes.
MOST = 500


def complete(text: str, namespace: Mapping[str, Any]) -> list[str]:
    """What ``text``, the word before the cursor, may become, sorted; nothing for what is no dotted name.

    Exceptions of the objects looked at (``__dir__``, properties) mean "no completion".
    """
    if not re.fullmatch(r"[\w.]*", text):
        return []
    path, _, prefix = text.rpartition(".")
    if not path:
        names = {*namespace, *dir(builtins), *keyword.kwlist}
        return _sorted(names, prefix, "")
    found: Any = None
    try:
        for position, name in enumerate(path.split(".")):
            if position:
                found = getattr(found, name)
            elif name in namespace:
                found = namespace[name]
            else:
                found = getattr(builtins, name)
        return _sorted(set(dir(found)), prefix, path + ".")
    except Exception:
        return []


def _sorted(names: set[Any], prefix: str, before: str) -> list[str]:
    fit = [n for n in names if isinstance(n, str) and n.startswith(prefix) and (prefix or not n.startswith("_"))]
    return [before + n for n in sorted(fit)[:MOST]]
