"""Pictures of a run, for README and manual: `python -m tools.bench plot RUN.json --into FOLDER`, one SVG per suite.

Each case is a group of horizontal bars, ours first, the shorter the better. Cases next to one another share an axis
where they have the same unit and their longest bars are of one order; others have an axis of their own. An axis ends at
a round tick, and its steps are 1, 2 or 5 times a power of ten.

The background is transparent, and a style sheet in the picture has colours for light pages and for dark ones. Whoever
takes part has the same colour in all pictures. Widths of text are estimated, on the large side, because each reader's
machine has fonts of its own. Written by hand: an SVG of rectangles and text needs no library, and the files stay small
and change only where the figures do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from ._captions import Unit, caption, case_name, conditions, median, medians, number, peer_name, peers, unit_for

WIDTH, MARGIN = 760, 8
ROW, BAR, LINE = 20, 14, 17  # pixels from bar to bar, of a bar, and from one line of text to the next
BETWEEN = 8  # pixels between a label and its bar, and between a bar and its figure
SIZE, SMALL, LARGE = 13, 11, 17
SHARED = 5.0  # The longest bars of cases on one axis differ by no more than this factor.
TICKS = 6  # No axis has more steps.

# For light pages and for dark ones. Coro and its own variants are green and strong; all others are paler.
COLOURS = {
    "coro": ("#1f6f5c", "#63c7ae"),
    "self": ("#85b5a7", "#3d7868"),
    "c": ("#7b858d", "#98a3ab"),
    "greenlet": ("#9a7cc0", "#a78bd0"),
    "gevent": ("#c58a2b", "#cf9a45"),
    "uvloop": ("#4f87c2", "#6c9fd6"),
    "uvloop-protocol": ("#4f87c2", "#6c9fd6"),
    "uvloop-streams": ("#6fa3d8", "#4c7db3"),
    "asyncio": ("#c8687d", "#d58497"),
    "trio": ("#8f9a3c", "#a9b454"),
    "threads": ("#a07657", "#b48d70"),
    "other": ("#8b979d", "#7d898f"),
}
PAGE = {"text": ("#1d2326", "#e4e8ea"), "faint": ("#59656b", "#a3adb2"), "grid": ("#d5dbde", "#3d464b")}


def _style() -> str:
    """The style sheet of a picture."""

    def rules(which: int) -> str:
        bars = "".join(f".{name}{{fill:{pair[which]}}}" for name, pair in COLOURS.items())
        text, faint, grid = (PAGE[name][which] for name in ("text", "faint", "grid"))
        return f"text{{fill:{text}}}.faint{{fill:{faint}}}.grid{{stroke:{grid}}}.base{{stroke:{faint}}}{bars}"

    return f"<style>{rules(0)}@media(prefers-color-scheme:dark){{{rules(1)}}}</style>"


def _colour(case: dict[str, Any], peer: str) -> str:
    if peer in COLOURS:
        return peer
    # Coro under other conditions is named after it, or has a name of its own in the caption of the suite.
    return "self" if peer.startswith("coro,") or peer in caption(case["suite"]).names else "other"


def text_width(text: str, size: float, bold: bool = False) -> float:
    """How wide a text may be, in pixels, in the widest of the usual fonts."""
    ems = 0.0
    for letter in text:
        if letter in "ijlI.,:;'|! \N{NO-BREAK SPACE}":
            ems += 0.35
        elif letter in "frt()[]-/":
            ems += 0.43
        elif letter in "mwMW%@–−":
            ems += 0.99
        elif letter.isupper():
            ems += 0.74
        else:
            ems += 0.64
    return ems * size * (1.1 if bold else 1.0)


def wrapped(text: str, size: float, width: float, bold: bool = False) -> list[str]:
    """The text in lines that are not wider than `width`, unless a single word is."""
    lines: list[str] = []
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size, bold) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def ticks(greatest: float) -> list[float]:
    """Round numbers from 0 to the first that is not below `greatest`, in steps of 1, 2 or 5 times a power of ten.

    None where nothing is above 0.
    """
    if greatest <= 0:
        return []
    power = 10.0 ** math.floor(math.log10(greatest / TICKS))
    step = next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power * TICKS >= greatest * (1 - 1e-9))
    return [float(f"{i * step:.12g}") for i in range(math.ceil(greatest / step * (1 - 1e-9)) + 1)]


def _tick_text(value: float) -> str:
    return number(value) if value >= 1000 else f"{value:g}"


def _panels(cases: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The cases in the groups that share an axis."""
    found: list[list[dict[str, Any]]] = []
    for case in cases:
        if found and found[-1][0]["unit"] == case["unit"]:
            longest = [max([*medians(each), 0.0]) for each in [*found[-1], case]]
            if max(longest) <= SHARED * min(longest):
                found[-1].append(case)
                continue
        found.append([case])
    return found


@dataclass
class _Paper:
    """The parts of a picture, drawn from top to bottom; `y` is the lower end of what is there."""

    parts: list[str]
    y: float = 0.0

    def text(self, x: float, y: float, text: str, size: int = SIZE, extra: str = "") -> None:
        self.parts.append(f'<text x="{x:.4g}" y="{y:.5g}" font-size="{size}"{extra}>{escape(text)}</text>')

    def paragraph(self, text: str, size: int = SIZE, extra: str = "", bold: bool = False) -> None:
        for line in wrapped(text, size, WIDTH, bold):
            self.y += LINE if size <= SIZE else LINE + 5
            self.text(0, self.y - 4, line, size, extra + (' font-weight="bold"' if bold else ""))


def _bars(paper: _Paper, case: dict[str, Any], left: float, scale: float, unit: Unit) -> None:
    """The bars of a case; `scale` pixels are one of the measured unit."""
    for peer in peers(case):
        value = median(case, peer)
        paper.text(left - BETWEEN, paper.y + 13, peer_name(case, peer), SIZE, ' text-anchor="end"')
        if value is None:
            paper.text(left + BETWEEN, paper.y + 13, "not measured", SIZE, ' class="faint"')
        else:
            length = max(1.0, value * scale)
            box = f'x="{left:.4g}" y="{paper.y + 2:.5g}" width="{length:.1f}" height="{BAR}" rx="1.5"'
            paper.parts.append(f'<rect class="{_colour(case, peer)}" {box}/>')
            paper.text(left + length + BETWEEN, paper.y + 13, unit.show(value))
        paper.y += ROW


def _panel(paper: _Paper, cases: list[dict[str, Any]], left: float) -> None:
    """Cases that share an axis, and the axis below them, with lines up through the bars."""
    values = [value for case in cases for value in medians(case)]
    unit = unit_for(cases[0]["unit"], values)
    marks = ticks(max([*values, 0.0]) / unit.size)
    # The figure of the longest bar stands beside it, within the picture.
    room = max([text_width(unit.show(value), SIZE) for value in values] + [text_width(unit.name, SMALL)])
    scale = (WIDTH - left - BETWEEN - room) / marks[-1] if marks else 0.0
    grid = len(paper.parts)  # The lines are drawn first, and so lie under the bars.
    lines: list[str] = []
    for case in cases:
        paper.paragraph(case_name(case), bold=True)
        top = paper.y
        _bars(paper, case, left, scale / unit.size, unit)
        for mark in marks:
            x, kind = left + mark * scale, "grid" if mark else "base"
            lines.append(f'<path class="{kind}" d="M{x:.5g} {top:.5g}V{paper.y + 2:.5g}"/>')
        paper.y += BETWEEN
    paper.parts[grid:grid] = lines
    if marks:
        for mark in marks:
            middle = ' text-anchor="middle" class="faint"'
            paper.text(left + mark * scale, paper.y + 7, _tick_text(mark), SMALL, middle)
        paper.text(left + marks[-1] * scale / 2, paper.y + 22, unit.words, SMALL, middle)
        paper.y += 30
    paper.y += BETWEEN


def picture(suite: str, cases: list[dict[str, Any]], run: dict[str, Any]) -> str:
    """The SVG text for one suite of a run."""
    about, shown = caption(suite), [case for case in cases if peers(case)]
    paper = _Paper([])
    paper.paragraph(about.title, LARGE, bold=True)
    paper.paragraph(f"{about.measured} Shorter is better.".strip())
    paper.y += BETWEEN
    labels = [text_width(peer_name(case, peer), SIZE) for case in shown for peer in peers(case)]
    left = max([*labels, 60.0]) + BETWEEN
    for cases_of_one_axis in _panels(shown):
        _panel(paper, cases_of_one_axis, left)
    paper.paragraph(conditions(run, shown), SMALL, ' class="faint"')
    height = paper.y + MARGIN
    size = f'viewBox="{-MARGIN} {-MARGIN} {WIDTH + 2 * MARGIN} {height + MARGIN:.0f}"'
    fonts = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} width="{WIDTH + 2 * MARGIN}" height="{height + MARGIN:.0f}" '
        f'role="img" font-family="{fonts}">'
    )
    title = f"<title>{escape(about.title)}</title><desc>{escape(_described(about.measured, shown))}</desc>"
    return "\n".join([head, title, _style(), *paper.parts, "</svg>", ""])


def _described(measured: str, cases: Iterable[dict[str, Any]]) -> str:
    """The picture in words, for those who do not see it."""
    said = [measured] if measured else []
    for case in cases:
        unit = unit_for(case["unit"], medians(case))
        figures = [(peer_name(case, peer), median(case, peer)) for peer in peers(case)]
        listed = ", ".join(f"{name} {'not measured' if value is None else unit.show(value)}" for name, value in figures)
        said.append(f"{case_name(case)}: {listed}.")
    return " ".join(said)


def write(run: dict[str, Any], folder: Path) -> list[Path]:
    """Write a picture for every suite of the run into `folder` and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for suite in dict.fromkeys(case["suite"] for case in run["cases"]):
        path = folder / f"{suite}.svg"
        text = picture(suite, [case for case in run["cases"] if case["suite"] == suite], run)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written
