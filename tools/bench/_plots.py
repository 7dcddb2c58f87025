"""Pictures of a run, for README and manual: `python -m tools.bench plot RUN.json --into FOLDER`, one SVG per suite.

Each case is a group of horizontal bars, ours first, the shorter the better; the bars of a group are scaled to the
longest of that group, because the cases of a suite differ by orders of magnitude. Written by hand: an SVG of rectangles
and text needs no library, and the files stay small and change only where the figures do.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from ._results import shown

WIDTH, LABEL, VALUE, ROW, GAP, HEAD = 760, 190, 110, 18, 14, 34
OURS, THEIRS = "#1f6f5c", "#b9c4c9"


def _text(x: float, y: float, text: str, extra: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" {extra}>{escape(text)}</text>'


def _group(case: dict[str, Any], top: float) -> tuple[list[str], float]:
    figures = {peer: spread["median"] for peer, spread in case["figures"].items() if spread}
    greatest = max(figures.values())
    parts = [_text(0, top + 13, case["case"], 'font-weight="bold"')]
    y = top + 20
    for peer, value in figures.items():
        length = max(1.0, (WIDTH - LABEL - VALUE) * value / greatest) if greatest else 1.0
        colour = OURS if peer == "coro" else THEIRS
        parts.append(_text(LABEL - 8, y + 13, peer, 'text-anchor="end"'))
        parts.append(f'<rect x="{LABEL}" y="{y + 2:g}" width="{length:.1f}" height="{ROW - 4}" fill="{colour}"/>')
        parts.append(_text(LABEL + length + 6, y + 13, f"{shown(value)} {case['unit']}"))
        y += ROW
    return parts, y + GAP


def picture(suite: str, cases: list[dict[str, Any]], run: dict[str, Any]) -> str:
    """The SVG text for one suite of a run."""
    where = f"Python {run['python']}, {run['machine']}; medians of {run['rounds']} rounds; shorter is better"
    body = [_text(0, 20, suite, 'font-size="16" font-weight="bold"'), _text(120, 20, where, 'fill="#555"')]
    y = float(HEAD)
    for case in cases:
        if any(case["figures"].values()):
            parts, y = _group(case, y)
            body += parts
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 0 {WIDTH + 16} {y:g}" '
        f'width="{WIDTH + 16}" height="{y:g}" '
        'font-family="sans-serif" font-size="12">\n'
        f'<rect x="-8" y="0" width="{WIDTH + 16}" height="{y:g}" fill="white"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def write(run: dict[str, Any], folder: Path) -> list[Path]:
    """Write a picture for every suite of the run into `folder` and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for suite in dict.fromkeys(case["suite"] for case in run["cases"]):
        path = folder / f"{suite}.svg"
        path.write_text(picture(suite, [case for case in run["cases"] if case["suite"] == suite], run))
        written.append(path)
    return written
