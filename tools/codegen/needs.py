"""What the hand-written part of coro-amqp needs of a description of AMQP.

Its sources name methods as `spec.queue.declare` and give them arguments by their places. So a description without one
of these methods, with another number for it, or with fewer or other arguments would make files that fit each other and
not the rest. What is needed is read from the sources; the arguments are those of the spec.py that is checked in, which
more may follow.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

#: (class, method) in Python -> the value of `id`, and the parameters with their types.
Signatures = dict[tuple[str, str], tuple[str, list[str]]]


def _signatures(text: str) -> Signatures:
    found: Signatures = {}
    for owner in ast.parse(text).body:
        if not isinstance(owner, ast.ClassDef):
            continue
        for method in owner.body:
            if not isinstance(method, ast.ClassDef):
                continue
            number, parameters = "", []
            for each in method.body:
                if isinstance(each, ast.AnnAssign) and ast.unparse(each.target) == "id" and each.value is not None:
                    number = ast.unparse(each.value)
                elif isinstance(each, ast.FunctionDef) and each.name == "__init__":
                    parameters = [ast.unparse(argument) for argument in each.args.args[1:]]
            if number:
                found[owner.name, method.name] = number, parameters
    return found


def missing(made: str, package: Path) -> str | None:
    """What the spec.py `made` lacks for the sources in the folder `package`; None if it has all."""
    named: set[tuple[str, str]] = set()
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.pyx")]):
        if path.name not in ("spec.py", "_spec_codec.pyx"):
            named |= set(re.findall(r"\bspec\.([a-z]\w*)\.([a-z_]\w*)", path.read_text()))
    present, new = _signatures((package / "spec.py").read_text()), _signatures(made)
    for key in sorted(named & present.keys()):
        name = ".".join(key)
        if key not in new:
            return f"expected the method {name}, which coro-amqp uses; the file has none"
        (number, wanted), (got_number, got) = present[key], new[key]
        if number != got_number:
            return f"expected the numbers {number} for {name}, got {got_number}"
        if got[: len(wanted)] != wanted:
            return f"expected the arguments of {name} to begin with ({', '.join(wanted)}), got ({', '.join(got)})"
    return None
