"""Measures how far ticks run from CLOCK_MONOTONIC and draws it: `python .../drift_plot.py --seconds 120 --out x.svg`.

Two lines over the same readings: with the rate known at the start, as a program without corrections would count, and
with the rate in use at each reading.  The data stand in the SVG file as a comment, so that the picture can be drawn
again.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from coro.clocks import describe, tsc_time

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 720, 340, 78, 46, 34, 16


def pair() -> tuple[int, int]:
    """A tick and CLOCK_MONOTONIC in ns at one moment: the narrowest of fifty."""
    found = []
    for _ in range(50):
        before = time.monotonic_ns()
        tick = tsc_time.now_raw_tsc()
        after = time.monotonic_ns()
        found.append((after - before, tick, (before + after) // 2))
    return min(found)[1:]


def measure(seconds: float, step: float) -> tuple[list[tuple[float, float, float]], int]:
    """Rows of seconds since the start, error in us with the first rate, error in us with the present one; the first."""
    first_rate = tsc_time.ticks_per_sec
    tick, ns = pair()
    rows = [(0.0, 0.0, 0.0)]
    while rows[-1][0] < seconds:
        time.sleep(step)
        tsc_time.update_time_relation()
        t, n = pair()
        errors = [((t - tick) * 10**9 / rate - (n - ns)) / 1000 for rate in (first_rate, tsc_time.ticks_per_sec)]
        rows.append(((n - ns) / 1e9, errors[0], errors[1]))
    return rows, first_rate


def draw(rows: list[tuple[float, float, float]], title: str) -> str:
    """The SVG text."""
    low = min(min(r[1:]) for r in rows)
    high = max(max(r[1:]) for r in rows)
    margin = (high - low) * 0.05 or 1.0
    low, high, end = low - margin, high + margin, rows[-1][0]

    def x(seconds: float) -> float:
        return LEFT + seconds / end * (WIDTH - LEFT - RIGHT)

    def y(error: float) -> float:
        return HEIGHT - BOTTOM - (error - low) / (high - low) * (HEIGHT - BOTTOM - TOP)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"',
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="13">{title}</text>',
    ]
    for i in range(6):
        value = low + (high - low) * i / 5
        out.append(f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.1f}</text>')
        seconds = end * i / 5
        anchor = "end" if i == 5 else "middle"
        out.append(f'<text x="{x(seconds):.1f}" y="{HEIGHT - 26}" text-anchor="{anchor}">{seconds:.0f}</text>')
    out.append(f'<text x="{(LEFT + WIDTH) // 2}" y="{HEIGHT - 8}" text-anchor="middle">seconds</text>')
    middle = (TOP + HEIGHT - BOTTOM) // 2
    out.append(f'<text transform="translate(16 {middle}) rotate(-90)" text-anchor="middle">microseconds ahead</text>')
    for column, colour, name in ((1, "#c0392b", "rate of the start"), (2, "#2471a3", "rate in use")):
        points = " ".join(f"{x(r[0]):.1f},{y(r[column]):.1f}" for r in rows)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        where = f'x="{WIDTH - RIGHT - 4}" y="{6 + 14 * column}" text-anchor="end"'
        out.append(f'<text {where} fill="{colour}">{name}</text>')
    data = "; ".join(f"{a:.2f} {b:.3f} {c:.3f}" for a, b, c in rows)
    out.append(f"<!-- seconds, us ahead with the rate of the start, with the rate in use: {data} -->")
    return "\n".join([*out, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--step", type=float, default=1)
    parser.add_argument("--out", type=Path, required=True, help="SVG file to write")
    options = parser.parse_args()
    rows, rate = measure(options.seconds, options.step)
    info = describe(tsc_time)
    title = f"Ticks against CLOCK_MONOTONIC: {info.source}, {rate / 1e6:.3f} MHz at the start"
    options.out.write_text(draw(rows, title), encoding="utf-8")
    print(info)
    print(f"at the end {rows[-1][1]:.1f} us with the rate of the start, {rows[-1][2]:.3f} us with the rate in use")


if __name__ == "__main__":
    main()
