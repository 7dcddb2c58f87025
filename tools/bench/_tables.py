"""A run as tables for the manual, in reStructuredText: `python -m tools.bench table RUN.json --into FILE`.

One table for each suite, a row for each comparison: the case, whom with, our figure, the ratio with its spread, and the
bar; above it the picture that `plot` drew, where `--pictures` says in which folder the manual has them. Written from
the run and never by hand, so that what the manual says was measured. Cost: nothing.
"""

from __future__ import annotations

import re
from typing import Any

from ._results import shown

HEADINGS = {
    "switch": "Switching, around a ring of threads",
    "slice": "Giving way to all others",
    "depth": "Switching deep in calls",
    "spawn": "Starting and ending threads",
    "timeouts": "A timeout around a call",
    "sleepers": "Many sleepers",
    "fifo": "Handing over through a queue",
    "memory": "Memory",
    "million": "A million threads",
    "echo": "Echo, CPU time of the server for each request",
    "bulk": "Large messages",
    "connections": "Short connections",
    "growth": "What grows with the number of threads",
    "timers": "Timers, in quantity",
    "os-threads": "Beside other OS threads",
    "children": "Signals and child processes",
    "profiler": "Programs under the profiler, against themselves without it",
}


def _row(case: dict[str, Any], line: dict[str, Any]) -> list[str]:
    rival, spread, bar = line["rival"], line.get("ratio") or line.get("value"), line["bar"]
    number = "{:.2f}".format if rival else shown
    ours = (case["figures"].get("coro") or {}).get("median")
    if spread is None:
        measured = "not measured"
    else:
        measured = f"**{number(spread['median'])}** ({number(spread['least'])} – {number(spread['greatest'])})"
    verdict = "" if bar is None else f"≤ {number(bar)}" + ("" if line["holds"] else ", not held")
    return [
        case["case"],
        rival or "",
        "" if ours is None else f"{shown(ours)} {case['unit']}",
        measured,
        verdict,
    ]


def _table(rows: list[list[str]]) -> list[str]:
    out = [".. list-table::", "   :header-rows: 1", "   :widths: 34 18 14 22 12", ""]
    for row in [["What", "Against", "coro", "Ratio, or own figure", "Bar"], *rows]:
        for i, cell in enumerate(row):
            out.append(f"   {'*' if i == 0 else ' '} - {cell}".rstrip())
    return [*out, ""]


def text(run: dict[str, Any], pictures: str | None = None) -> str:
    """The tables of a run, each under its heading, with a first paragraph that says where it was.

    pictures: the folder of the pictures, as seen from the manual's page; None leaves them out.
    """
    system = re.sub(r"(\d+\.\d+)\S*", r"\1", run["system"])  # what a kernel was built for tells nobody anything
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items() if version)
    out = [
        f"CPython {run['python']}, {system} on {run['machine']}, {run['cores']} cores; {versions}. Medians of "
        f"{run['rounds']} interleaved rounds, least and greatest in brackets; {run['when'][:10]}.",
        "",
    ]
    for suite in dict.fromkeys(case["suite"] for case in run["cases"]):
        heading = HEADINGS.get(suite, suite)
        rows = [_row(case, line) for case in run["cases"] if case["suite"] == suite for line in case["lines"]]
        out += [heading, "-" * len(heading), ""]
        if pictures:
            out += [f".. image:: {pictures}/{suite}.svg", f"   :alt: {heading}: bars for coro and its peers", ""]
        out += _table(rows)
    return "\n".join(out)
