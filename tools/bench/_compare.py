"""Two runs side by side: `python -m tools.bench compare OLD.json NEW.json`.

What is compared is each ratio to a peer, because both runs measured that peer on their own machine at their own time;
figures without a peer are compared as they are, which means something only on one machine. A ratio that grew by more
than the threshold, and by more than the spread of both runs, is a regression. Cost: nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ._results import shown

THRESHOLD = 0.10


@dataclass(frozen=True)
class Change:
    """One line of the comparison."""

    name: str
    old: float
    new: float
    clear: bool

    def worse(self, threshold: float) -> bool:
        """Whether this is a regression: beyond the threshold, and the spreads of the runs do not overlap."""
        return self.clear and self.new > self.old * (1 + threshold)

    def better(self, threshold: float) -> bool:
        """Whether it is as clearly an improvement."""
        return self.clear and self.new < self.old / (1 + threshold)


def _lines(run: dict[str, Any]) -> Iterator[tuple[str, dict[str, float]]]:
    for case in run["cases"]:
        for line in case["lines"]:
            spread = line.get("ratio") or line.get("value")
            if spread:
                versus = f" / {line['rival']}" if line["rival"] else f", {case['unit']}"
                yield f"{case['suite']}: {case['case']}: coro{versus}", spread


def changes(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    """What both runs measured, in the order of the newer one.

    old, new: what `as_json` made. Raises ValueError for files of another format.
    """
    for run in (old, new):
        if run.get("format") != 1 or "cases" not in run:
            raise ValueError("expected a file written by `python -m tools.bench run --json`")
    before = dict(_lines(old))
    found = []
    for name, spread in _lines(new):
        if name in before:
            was = before[name]
            apart = spread["least"] > was["greatest"] or spread["greatest"] < was["least"]
            found.append(Change(name, was["median"], spread["median"], apart))
    return found


def report(found: list[Change], threshold: float) -> str:
    """The comparison as text."""
    out = [f"{'ratio to a rival, or own figure':<78} {'old':>10}    {'new':<10} change"]
    for change in found:
        verdict = "WORSE" if change.worse(threshold) else "better" if change.better(threshold) else ""
        percent = (change.new / change.old - 1) * 100 if change.old else 0.0
        figures = f"{shown(change.old):>10} -> {shown(change.new):<10}"
        out.append(f"{change.name:<78} {figures} {percent:+6.1f} %  {verdict}".rstrip())
    return "\n".join(out)
