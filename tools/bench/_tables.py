"""A run as tables for the manual, in reStructuredText: `python -m tools.bench table RUN.json --into FILE`.

One table for each suite, a row for each comparison: the case, our figure, the rival and its figure, the ratio of the
two with its spread, and the bar with the verdict. A case that has a bar for our own figure has a row for that. What
the row above says already is not said again. Above the table is the picture that `plot` drew, where `--pictures` says
in which folder the manual has them. Written from the run and never by hand, so that what the manual says was measured.
Cost: nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._captions import Unit, caption, case_name, conditions, limit, median, medians, peer_name, ratio, unit_for

HEAD = ["What", "coro", "Rival", "Its figure", "Ratio coro / rival", "Bar, at most"]
WIDTHS = "28 13 16 13 17 13"


def _spread(spread: dict[str, float], written: Callable[[float], str]) -> str:
    """The least and the greatest of the rounds, where there is a difference to be seen."""
    ends = [written(spread[end]) for end in ("least", "greatest")]
    return "" if ends[0] == ends[1] else f" ({ends[0]} – {ends[1]})"


def _verdict(line: dict[str, Any], written: Callable[[float], str]) -> str:
    if line["bar"] is None:
        return ""
    measured = line.get("ratio") or line.get("value")
    verdict = "not measured" if not measured else "held" if line["holds"] else "**not held**"
    # Runs that were written before there were floors have no such key.
    raised = line.get("raised")
    instead = f", but a tenth above C: {written(raised)}" if raised else ""
    return f"{written(line['bar'])}{instead}: {verdict}"


def _figure(case: dict[str, Any], peer: str, unit: Unit) -> str:
    value = median(case, peer)
    return "not measured" if value is None else unit.show(value)


def _rows(case: dict[str, Any]) -> list[list[str]]:
    """The rows of a case: for each comparison, and for our own figure where it has a bar or no rival."""
    unit = unit_for(case["unit"], medians(case))
    rows = []
    for line in case["lines"]:
        rival, spread = line["rival"], line.get("ratio")
        if rival:
            measured = f"**{ratio(spread['median'])}**{_spread(spread, ratio)}" if spread else "not measured"
            rows.append([peer_name(case, rival), _figure(case, rival, unit), measured, _verdict(line, limit)])
        else:
            rows.append(["", "", "", _verdict(line, unit.show_limit)])
    ours = _figure(case, "coro", unit)
    own = case["figures"].get("coro")
    if own and all(line["rival"] is None for line in case["lines"]):
        ours = f"**{ours}**{_spread(own, unit.show)}"
    named = peer_name(case, "coro")
    if named != "coro":
        ours = f"{ours}, {named}"
    first = [[case_name(case), ours]]
    return [start + row for start, row in zip(first + [["", ""]] * len(rows), rows or [[""] * 4], strict=False)]


def _table(rows: list[list[str]]) -> list[str]:
    out = [".. list-table::", "   :header-rows: 1", f"   :widths: {WIDTHS}", ""]
    for row in [HEAD, *rows]:
        for i, cell in enumerate(row):
            out.append(f"   {' ' if i else '*'} - {cell}".rstrip())
    return [*out, ""]


def text(run: dict[str, Any], pictures: str | None = None) -> str:
    """The tables of a run, each under its heading, with a first paragraph that says where it was.

    pictures: the folder of the pictures, as seen from the manual's page; None leaves them out.
    """
    out = [conditions(run), ""]
    for suite in dict.fromkeys(case["suite"] for case in run["cases"]):
        about = caption(suite)
        rows = [row for case in run["cases"] if case["suite"] == suite for row in _rows(case)]
        out += [about.title, "-" * len(about.title), ""]
        if pictures:
            alt = f"{about.title}. {about.measured} The table below has the figures."
            out += [f".. image:: {pictures}/{suite}.svg", "   :class: chart", f"   :alt: {alt}", ""]
        elif about.measured:
            out += [about.measured, ""]
        out += _table(rows)
    return "\n".join(out)
