"""The table of rules in the manual names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parents[2] / "docs" / "packages" / "http_conformance.rst"


def test_each_rule_has_its_test() -> None:
    found = re.findall(r"``([\w/]+\.py)``: ``(test_\w+)``", PAGE.read_text("utf-8"))
    assert len(found) > 100
    missing = [
        f"{file}: {name}"
        for file, name in found
        if not re.search(rf"^ *def {name}\(", (TESTS / file).read_text("utf-8"), re.MULTILINE)
    ]
    assert missing == []
