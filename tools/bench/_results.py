"""From measurements to verdicts: ratios per round, medians, spread, the printed table, the JSON file.

The ratio of a line is taken within each round, between two measurements made right after one another, and
the median of those is compared with the bar: a machine that is slower for a minute slows both. Cost:
nothing.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from ._measure import Figures
from ._suites import Case, Rival

UNITS = {"cpu": "ns", "bytes": "bytes"}


def figure(case: Case, figures: Figures) -> float:
    """The number of a measurement that is compared: CPU nanoseconds per operation, or bytes per thread."""
    return figures["bytes"] if case.metric == "bytes" else figures["cpu"] / figures["count"] * 1e9


@dataclass
class Spread:
    """Median, least and greatest of some numbers."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


@dataclass
class Record:
    """All rounds of one case: by peer, the figures of each round in order, and the reason of a failure."""

    case: Case
    rounds: dict[str, list[Figures]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def add(self, peer: str, figures: Figures) -> None:
        self.rounds.setdefault(peer, []).append(figures)

    def values(self, peer: str) -> list[float]:
        return [figure(self.case, figures) for figures in self.rounds.get(peer, [])]

    def lines(self) -> list[Line]:
        """One line per comparison with a rival, and one for our own figure where that has a bar or goal."""
        ours = self.values("coro")
        found = []
        if self.case.own_bar is not None or self.case.own_goal is not None:
            found.append(
                Line(self.case, None, Spread.of(ours) if ours else None, self.case.own_bar, self.case.own_goal)
            )
        for rival in self.case.rivals:
            ratios = [a / b for a, b in zip(ours, self.values(rival.peer), strict=False)]
            found.append(Line(self.case, rival, Spread.of(ratios) if ratios else None, rival.bar, rival.goal))
        return found


@dataclass
class Line:
    """One verdict: a ratio to a rival, or (rival None) our own figure, against a bar."""

    case: Case
    rival: Rival | None
    spread: Spread | None
    bar: float | None
    goal: float | None

    def within(self, limit: float | None) -> bool | None:
        """Whether the median keeps the limit; None: there is no limit. What was not measured keeps none."""
        if limit is None:
            return None
        return self.spread is not None and self.spread.median <= limit

    @property
    def holds(self) -> bool | None:
        return self.within(self.bar)

    def text(self) -> str:
        """The line as printed."""
        what = f"coro / {self.rival.peer}" if self.rival else f"coro, {UNITS[self.case.metric]}"
        form = ".2f" if self.rival else ".0f"
        if self.spread is None:
            measured = "not measured"
        else:
            s = self.spread
            measured = f"{s.median:{form}}  ({s.least:{form}} .. {s.greatest:{form}})"
        parts = [f"    {what:<24} {measured:<24}"]
        for name, limit, kept, missed in (
            ("bar", self.bar, "holds", "DOES NOT HOLD"),
            ("goal", self.goal, "reached", "not yet"),
        ):
            if limit is not None:
                verdict = "unknown" if self.spread is None else kept if self.within(limit) else missed
                parts.append(f"{name} {limit:{form}}: {verdict}")
        return "  ".join(parts).rstrip()


def report(records: list[Record]) -> str:
    """The table of all cases, as text."""
    out: list[str] = []
    for record in records:
        case = record.case
        out.append(f"{case.suite}: {case.name}")
        for peer in case.peers:
            values = record.values(peer)
            if peer in record.failures:
                out.append(f"    {peer:<24} {record.failures[peer].splitlines()[0]}")
            if not values:
                continue
            s = Spread.of(values)
            note = ""
            busy = [f["client_busy"] for f in record.rounds[peer] if "client_busy" in f]
            if busy:
                server = statistics.median(f["server_busy"] for f in record.rounds[peer])
                wall = statistics.median(f["count"] / f["wall"] for f in record.rounds[peer])
                note = f"  {wall:,.0f}/s, server {server:.0%}, client {statistics.median(busy):.0%} busy"
            out.append(
                f"    {peer:<24} {s.median:,.0f} {UNITS[case.metric]}  ({s.least:,.0f} .. {s.greatest:,.0f}){note}"
            )
        out.extend(line.text() for line in record.lines())
        out.append("")
    return "\n".join(out)


def as_json(records: list[Record], about: dict[str, Any]) -> dict[str, Any]:
    """Everything that was measured, raw figures included, so that runs can be compared later."""

    def spread(s: Spread | None) -> dict[str, float] | None:
        return None if s is None else {"median": s.median, "least": s.least, "greatest": s.greatest}

    cases = []
    for record in records:
        case = record.case
        cases.append(
            {
                "suite": case.suite,
                "case": case.name,
                "parameters": case.parameters | dict[str, Any](case.load),
                "unit": UNITS[case.metric],
                "figures": {peer: spread(Spread.of(record.values(peer))) for peer in record.rounds},
                "lines": [
                    {
                        "rival": line.rival.peer if line.rival else None,
                        "ratio" if line.rival else "value": spread(line.spread),
                        "bar": line.bar,
                        "goal": line.goal,
                        "holds": line.holds,
                    }
                    for line in record.lines()
                ],
                "failures": record.failures,
                "rounds": record.rounds,
            }
        )
    written: dict[str, Any] = {"format": 1}
    return written | about | {"cases": cases}
