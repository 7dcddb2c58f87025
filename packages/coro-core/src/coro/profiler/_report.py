"""The report of a profile, or of the difference between two, as one HTML page that needs nothing else.

Everything that comes from the profile is escaped. Columns that are zero everywhere are left out; what waits for the
kernel is not part of any total. Cost: a few hundred bytes for each function and caller, and for the flame graph the
paths that took at least a thousandth of the whole.
"""

from __future__ import annotations

import html
import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from coro.profiler._file import Numbers, Profile, ProfileError, ThreadProfile
from coro.profiler._page import POLICY, SCRIPT, STYLE

WAIT = "<wait>"
PER_CALL = ("ticks", "utime", "stime")
#: Threads with a list of functions and a flame graph of their own: those that took the most.
MOST_DETAILED = 50
MOST_FUNCTIONS = 25
SMALLEST_PART = 0.001

_LINE = re.compile(r":\d+(#\d+)?$")


@dataclass
class Row:
    """One function's values in one table, with what it is called and linked by."""

    function: str
    number: int
    calls: int
    values: Numbers
    per_call: tuple[float, ...]
    waited: int


def _number(value: float) -> str:
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2f}%" if whole else ""


def _cell(value: float, whole: float | None = None) -> str:
    share = _percent(value, whole) if whole is not None else ""
    return f'<td data-v="{value!r}">{_number(value)}{f"<small>{share}</small>" if share else ""}</td>'


def _without_line(name: str) -> str:
    return _LINE.sub("", name)


class _Report:
    def __init__(self, profile: Profile, other: Profile | None) -> None:
        if other is not None and (profile.bench, profile.headings) != (other.bench, other.headings):
            raise ProfileError(
                f"the profiles cannot be compared: one was made with {profile.bench} ({', '.join(profile.headings)}), "
                f"the other with {other.bench} ({', '.join(other.headings)}); make both with the same bench"
            )
        self.profile = profile
        self.other = other
        self.shown = profile if other is None else other
        self.functions = self._functions()
        self.numbers = {function: i for i, function in enumerate(sorted(self.functions))}

    def _functions(self) -> dict[str, tuple[int, Numbers, Numbers, tuple[int, int]]]:
        """{function: (calls, own, aggregate, waited)} for the tables: differences when there are two profiles."""
        first = {f: (*values, self.profile.waited.get(f, (0, 0))) for f, values in self.profile.functions.items()}
        if self.other is None:
            return first
        width = len(self.profile.headings)
        sums = [_by_name(profile) for profile in (self.profile, self.other)]
        result = {}
        for name in sums[0].keys() | sums[1].keys():
            before, after = (s.get(name) or _Sum(width) for s in sums)
            result[name] = (
                after.calls - before.calls,
                tuple(b - a for a, b in zip(before.own, after.own, strict=True)),
                tuple(b - a for a, b in zip(before.aggregate, after.aggregate, strict=True)),
                (after.waited[0] - before.waited[0], after.waited[1] - before.waited[1]),
            )
        return result

    # -- the two tables

    def _rows(self, aggregate: bool) -> list[Row]:
        rows = []
        headings = self.profile.headings
        for function, (calls, own, whole, waited) in self.functions.items():
            values = whole if aggregate else own
            per_call = tuple(
                value / calls if calls else 0.0
                for heading, value in zip(headings, values, strict=True)
                if heading in PER_CALL
            )
            rows.append(Row(function, self.numbers[function], calls, values, per_call, waited[aggregate]))
        rows.sort(key=lambda row: row.values[0] if row.values else 0, reverse=True)
        return rows

    def _table(self, aggregate: bool) -> Iterator[str]:
        headings = self.profile.headings
        rows = self._rows(aggregate)
        own = [values for function, (_, values, _, _) in self.functions.items() if function != WAIT]
        wholes = [sum(values[i] for values in own) for i in range(len(headings))]
        used = [any(row.values[i] for row in rows) for i in range(len(headings))]
        waits = any(row.waited for row in rows)
        calls = sum(row.calls for row in rows if row.function != WAIT)
        name = "aggregate" if aggregate else "own"
        heads = ["<th>calls</th>"]
        for heading, shown in zip(headings, used, strict=True):
            if shown:
                heads.append(f"<th>{html.escape(heading)}</th>")
                if heading in PER_CALL:
                    heads.append(f"<th>{html.escape(heading)}/call</th>")
        if waits:
            heads.append('<th title="ticks that threads were parked in it">waited</th>')
        heads.append('<th data-kind="text">function</th>')
        yield f'<div class="scroll"><table class="sortable" id="{name}"><thead><tr>{"".join(heads)}</tr></thead>'
        yield "<tbody>\n"
        for row in rows:
            kernel = row.function == WAIT
            cells = [_cell(row.calls, None if kernel else calls)]
            per_call = iter(row.per_call)
            for heading, value, whole, shown in zip(headings, row.values, wholes, used, strict=True):
                each = next(per_call) if heading in PER_CALL else 0.0
                if shown:
                    cells.append(_cell(value, None if kernel else whole))
                    if heading in PER_CALL:
                        cells.append(f'<td data-v="{each!r}">{each:.6f}</td>')
            if waits:
                cells.append(_cell(row.waited))
            text = html.escape(row.function)
            link = f'<a href="#graph-{row.number}">{text}</a>'
            cells.append(f'<td data-v="{text}">{link}</td>')
            yield f'<tr id="{name}-{row.number}">{"".join(cells)}</tr>\n'
        yield "</tbody></table></div>\n"

    # -- who calls whom

    def _graph(self) -> Iterator[str]:
        """Of the profile that is shown: of the second one, when there are two."""
        calls = self.shown.calls
        callers: dict[str, list[tuple[str, int]]] = {}
        for caller, callees in calls.items():
            for callee, count in callees:
                callers.setdefault(callee, []).append((caller, count))
        for function in sorted(self.shown.functions):
            count, own, _ = self.shown.functions[function]
            known = _without_line(function) if self.other is not None else function
            number = self.numbers.get(known)
            anchor = f' id="graph-{number}"' if number is not None else ""
            yield f'<div class="node"{anchor}>'
            values = [
                f"{html.escape(heading)} {_number(value)}"
                for heading, value in zip(self.shown.headings, own, strict=True)
                if value
            ]
            yield f'<div class="muted">{", ".join(values) or "nothing of its own"}</div>'
            for caller, times in sorted(callers.get(function, ()), key=lambda pair: (pair[1], pair[0])):
                yield f"<div>{times}/{count} ({_percent(times, count) or '0%'}) {self._link(caller)}</div>"
            yield f"<div><b>{count}</b> <b>{html.escape(function)}</b>"
            if number is not None:
                yield f' <a href="#own-{number}">own</a> <a href="#aggregate-{number}">aggregate</a>'
            yield "</div>"
            for callee, times in sorted(calls.get(function, ()), key=lambda pair: (pair[1], pair[0])):
                total = self.shown.functions[callee][0] if callee in self.shown.functions else 0
                share = _percent(times, total) or "0%"
                yield f"<div>&emsp;{times}/{total} ({share}) {self._link(callee)}</div>"
            yield "</div>\n"

    def _link(self, function: str) -> str:
        number = self.numbers.get(_without_line(function) if self.other is not None else function)
        text = html.escape(function)
        return text if number is None else f'<a href="#graph-{number}">{text}</a>'

    # -- threads

    def _threads(self) -> Iterator[str]:
        threads = self.shown.threads
        if not threads:
            yield "<p>The profile does not tell threads apart.</p>"
            return
        taken = {id(t): sum(node[4] for node in t.nodes) for t in threads}
        whole = sum(taken.values())
        yield (
            '<div class="scroll"><table class="sortable" id="threads-table"><thead><tr><th>thread</th><th>slices</th>'
            '<th>calls</th><th>ticks</th><th>waited</th><th data-kind="text">state</th><th data-kind="text">name</th>'
            "</tr></thead><tbody>\n"
        )
        for t in sorted(threads, key=lambda t: taken[id(t)], reverse=True):
            calls, waited = sum(node[2] for node in t.nodes), sum(node[3] for node in t.nodes)
            state = "ended" if t.ended else "alive"
            yield (
                f"<tr>{_cell(t.number)}{_cell(t.slices)}{_cell(calls)}{_cell(taken[id(t)], whole)}{_cell(waited)}"
                f"<td>{state}</td><td>{html.escape(t.name)}</td></tr>\n"
            )
        yield "</tbody></table></div>\n"
        for t in sorted(threads, key=lambda t: taken[id(t)], reverse=True)[:MOST_DETAILED]:
            yield f"<details><summary>{html.escape(_thread_title(t))}</summary>"
            yield from self._functions_of(t)
            yield "</details>\n"

    def _functions_of(self, thread: ThreadProfile) -> Iterator[str]:
        sums: dict[int, list[int]] = {}
        for node in thread.nodes:
            mine = sums.setdefault(node[1], [0, 0, 0])
            mine[0] += node[2]
            mine[1] += node[4]
            mine[2] += node[3]
        whole = sum(mine[1] for mine in sums.values())
        heads = '<th>calls</th><th>ticks</th><th>waited</th><th data-kind="text">function</th>'
        yield f'<table class="sortable"><thead><tr>{heads}</tr></thead><tbody>'
        order = sorted(sums, key=lambda f: (sums[f][1], sums[f][2]), reverse=True)[:MOST_FUNCTIONS]
        for function in order:
            calls, ticks, waited = sums[function]
            name = self._link(self.shown.names[function])
            yield f"<tr>{_cell(calls)}{_cell(ticks, whole)}{_cell(waited)}<td>{name}</td></tr>"
        yield "</tbody></table>"

    # -- flame graph

    def _trees(self) -> str:
        """The trees for the script, as JSON that cannot end the element it stands in."""
        threads = self.shown.threads
        order = sorted(threads, key=lambda t: sum(node[4] for node in t.nodes), reverse=True)[:MOST_DETAILED]
        parts: list[dict[str, Any]] = []
        if threads:
            parts.append({"name": "all threads", "nodes": _merged([t.nodes for t in threads])})
            parts += [{"name": _thread_title(t), "nodes": _merged([t.nodes])} for t in order]
        data = {"names": self.shown.names, "second": self.shown.ticks_per_second, "threads": parts}
        return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e")

    # -- the page

    def page(self) -> Iterator[str]:
        title = "Profile" if self.other is None else "Comparison of two profiles"
        yield (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{title}</title><style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n"
            '<nav><a href="#own-values">Own</a><a href="#aggregate-values">Aggregate</a>'
            '<a href="#flame-graph">Flame graph</a><a href="#threads">Threads</a><a href="#call-graph">Call graph</a>'
            "</nav>\n"
        )
        if self.other is not None:
            yield (
                "<p>Values in the two tables are the second profile's less the first one's; functions are matched by "
                "name, without line numbers. What follows the tables is the second profile.</p>\n"
            )
        if self.shown.dropped:
            yield (
                f"<p>{self.shown.dropped} calls had too many different paths to be told apart: what they took stands "
                "with their callers.</p>\n"
            )
        yield '<h2 id="own-values">Own: without what was called</h2>\n'
        yield from self._table(False)
        yield '<h2 id="aggregate-values">Aggregate: with everything that was called</h2>\n'
        yield from self._table(True)
        yield (
            '<h2 id="flame-graph">Flame graph</h2>\n<p><select id="whose" aria-label="thread"></select> '
            '<select id="what" aria-label="measure"><option value="own">ticks used</option>'
            '<option value="waited">ticks waited</option></select></p>\n'
            '<div id="told" class="muted"></div><div id="flame"></div>\n'
        )
        yield '<h2 id="threads">Threads</h2>\n'
        yield from self._threads()
        yield (
            '<h2 id="call-graph">Call graph</h2>\n<p class="muted">For each function: what it used itself; its '
            "callers, with how many of its calls came from each; its name and calls; indented, what it called, with "
            "how many of the callee's calls came from here.</p>\n"
        )
        yield from self._graph()
        made = " and ".join(_time(p.time) for p in (self.profile, self.other) if p is not None)
        yield (
            f'<footer><p class="muted">Collected {made} with {html.escape(self.profile.bench)}; report made '
            f'{_time(time.time())}.</p></footer>\n<script type="application/json" id="trees">{self._trees()}</script>\n'
            f"<script>{SCRIPT}</script>\n</body></html>\n"
        )


class _Sum:
    """Values of all functions of one name."""

    def __init__(self, width: int) -> None:
        self.calls = 0
        self.own: Numbers = (0,) * width
        self.aggregate: Numbers = (0,) * width
        self.waited = (0, 0)


def _by_name(profile: Profile) -> Mapping[str, _Sum]:
    sums: dict[str, _Sum] = {}
    for function, (calls, own, aggregate) in profile.functions.items():
        s = sums.setdefault(_without_line(function), _Sum(len(profile.headings)))
        waited = profile.waited.get(function, (0, 0))
        s.calls += calls
        s.own = tuple(a + b for a, b in zip(s.own, own, strict=True))
        s.aggregate = tuple(a + b for a, b in zip(s.aggregate, aggregate, strict=True))
        s.waited = (s.waited[0] + waited[0], s.waited[1] + waited[1])
    return sums


def _thread_title(thread: ThreadProfile) -> str:
    return f"{thread.name} #{thread.number}" if thread.number > 0 else thread.name


def _time(when: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(when))


def _merged(trees: list[list[tuple[int, ...]]]) -> list[tuple[int, int, int, int]]:
    """Several trees as one: (depth, function, own ticks, ticks waited), without the paths that hardly took anything."""
    root: list[Any] = [0, 0, {}]  # own, waited, callees
    for nodes in trees:
        path: list[list[Any]] = []
        for depth, function, _, waited, own, *_ in nodes:
            del path[depth:]
            if depth == 0:
                here = root
            else:
                here = path[-1][2].get(function)
                if here is None:
                    here = path[-1][2][function] = [0, 0, {}]
            here[0] += own
            here[1] += waited
            path.append(here)
    order: list[tuple[int, int, list[Any]]] = []
    todo = [(0, trees[0][0][1], root)]
    while todo:
        depth, function, node = todo.pop()
        order.append((depth, function, node))
        todo.extend((depth + 1, callee, below) for callee, below in node[2].items())
    sums: dict[int, tuple[int, int]] = {}
    for _, _, node in reversed(order):
        own, waited = node[0], node[1]
        for below in node[2].values():
            own, waited = own + sums[id(below)][0], waited + sums[id(below)][1]
        sums[id(node)] = (own, waited)
    least = [value * SMALLEST_PART for value in sums[id(root)]]
    out = []
    skip = None
    for depth, function, node in order:
        if skip is not None and depth > skip:
            continue
        skip = None
        own, waited = sums[id(node)]
        if depth and own <= least[0] and waited <= least[1]:
            skip = depth
            continue
        out.append((depth, function, node[0], node[1]))
    return out


def report(profile: Profile, other: Profile | None = None) -> Iterator[str]:
    """The parts of the page, in order. ProfileError when two profiles were not made with the same bench."""
    return _Report(profile, other).page()
