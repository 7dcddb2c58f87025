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
from ._suites import METRICS, Case, Rival

# No bar asks for less than this times what the floor of the case needs.
FLOOR_MARGIN = 1.1


def figure(case: Case, figures: Figures) -> float:
    """The number of a measurement that is compared, in the unit of the case's metric."""
    metric = METRICS[case.metric]
    return figures[metric.key] * metric.scale / (1 if metric.whole else figures["count"])


def shown(value: float) -> str:
    """A figure as people read it: three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


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
        if self.case.own_bar is not None:
            found.append(Line(self.case, None, Spread.of(ours) if ours else None, self.case.own_bar))
        for rival in self.case.rivals:
            theirs = self.values(rival.peer)
            ratios = [a / b for a, b in zip(ours, theirs, strict=False)]
            least = [a / b for a, b in zip(self.values(self.case.floor), theirs, strict=False)]
            floor = statistics.median(least) if least and rival.peer != self.case.floor else None
            found.append(Line(self.case, rival, Spread.of(ratios) if ratios else None, rival.bar, floor))
        return found


@dataclass
class Line:
    """One verdict: a ratio to a rival, or (rival None) our own figure, against a bar.

    floor: the ratio to the rival that the case's floor reached in the same rounds, if it has one.
    """

    case: Case
    rival: Rival | None
    spread: Spread | None
    bar: float | None
    floor: float | None = None

    @property
    def raised(self) -> float | None:
        """What takes the bar's place where the bar asks for less than a tenth above the floor; None elsewhere."""
        if self.bar is None or self.floor is None or FLOOR_MARGIN * self.floor <= self.bar:
            return None
        return FLOOR_MARGIN * self.floor

    @property
    def holds(self) -> bool | None:
        """Whether the median keeps the bar; None: there is no bar. What was not measured keeps none."""
        if self.bar is None:
            return None
        return self.spread is not None and self.spread.median <= (self.raised or self.bar)

    def text(self) -> str:
        """The line as printed."""
        what = f"coro / {self.rival.peer}" if self.rival else f"coro, {METRICS[self.case.metric].unit}"
        number = "{:.2f}".format if self.rival else shown
        if self.spread is None:
            measured = "not measured"
        else:
            s = self.spread
            measured = f"{number(s.median)}  ({number(s.least)} .. {number(s.greatest)})"
        line = f"    {what:<24} {measured:<24}"
        if self.bar is not None:
            verdict = "unknown" if self.spread is None else "holds" if self.holds else "DOES NOT HOLD"
            line += f"  bar {number(self.bar)}"
            if self.floor is not None and self.raised is not None:
                line += f", but {self.case.floor} {number(self.floor)}, so {number(self.raised)}"
            line += f": {verdict}"
        return line.rstrip()


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
                f"    {peer:<24} {shown(s.median)} {METRICS[case.metric].unit}"
                f"  ({shown(s.least)} .. {shown(s.greatest)}){note}"
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
                "unit": METRICS[case.metric].unit,
                "figures": {peer: spread(Spread.of(record.values(peer))) for peer in record.rounds},
                "lines": [
                    {
                        "rival": line.rival.peer if line.rival else None,
                        "ratio" if line.rival else "value": spread(line.spread),
                        "bar": line.bar,
                        "raised": line.raised,
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
