"""The report of a profile, or of the difference between two, as one HTML page that needs nothing else.

Times are milliseconds, and microseconds for a call. Everything that comes from the profile is escaped. Columns that
are zero everywhere are left out; what waits for the kernel is not part of any total. Threads whose names differ in
numbers only are shown together. Cost: a few hundred bytes for each function and caller, and for the flame graph the
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

from coro._runtime.output import one_line
from coro.profiler._file import Numbers, Profile, ProfileError, ThreadProfile
from coro.profiler._page import POLICY, SCRIPT, STYLE
from coro.profiler._words import CORO, LIBRARY, OWN, Column, columns, groups, owners, parts_of

WAIT = "<wait>"
#: Groups of threads with a list of functions and a flame graph of their own: those that took the most.
MOST_DETAILED = 50
MOST_FUNCTIONS = 25
SMALLEST_PART = 0.001
#: The column that a table is sorted by when it comes.
SORTED = ' aria-sort="descending"'

_LINE = re.compile(r":\d+(#\d+)?$")

#: Whose code it is, as the report says it.
OWNER_WORDS = {OWN: "this program", CORO: "coro", LIBRARY: "Python and libraries"}


@dataclass
class Row:
    """One function's values in one table, with what it is linked by."""

    function: str
    number: int
    calls: int
    values: Numbers
    waited: int


def _escaped(text: str) -> str:
    """For the page, which may be printed on a terminal, too."""
    return html.escape(one_line(text))


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}%" if whole else ""


def _cell(value: float, text: str, whole: float | None = None) -> str:
    share = _percent(value, whole) if whole is not None and text else ""
    return f'<td data-v="{value!r}">{text}{f"<small>{share}</small>" if share else ""}</td>'


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
        self.columns, self.time, self.waited = columns(self.shown)
        self.owners = owners(self.shown)
        if other is not None:
            self.owners = {_without_line(f): owner for p in (profile, other) for f, owner in owners(p).items()}

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
        rows = [
            Row(function, self.numbers[function], calls, whole if aggregate else own, waited[aggregate])
            for function, (calls, own, whole, waited) in self.functions.items()
        ]
        rows.sort(key=lambda row: row.values[0] if row.values else 0, reverse=True)
        return rows

    def _table(self, aggregate: bool) -> Iterator[str]:
        rows = self._rows(aggregate)
        own = [values for function, (_, values, _, _) in self.functions.items() if function != WAIT]
        wholes = [sum(values[i] for values in own) for i in range(len(self.columns))]
        used = [any(not column.is_zero(row.values[i]) for row in rows) for i, column in enumerate(self.columns)]
        waits = any(not self.waited.is_zero(row.waited) for row in rows)
        name = "aggregate" if aggregate else "own"
        heads = ['<th data-kind="text">function</th>']
        for i, column in enumerate(self.columns):
            if used[i]:
                heads.append(f"<th{SORTED if i == 0 else ''}>{_escaped(column.heading)}</th>")
                if column.per_call:
                    heads.append(f"<th>{_escaped(column.per_call[0])}</th>")
            if i == 0:
                heads.append("<th>calls</th>")
                if waits:
                    words = _escaped(self.waited.heading)
                    heads.append(f'<th title="time that threads were parked in it">{words}</th>')
        yield f'<div class="scroll"><table class="sortable" id="{name}"><thead><tr>{"".join(heads)}</tr></thead>'
        yield "<tbody>\n"
        for row in rows:
            cells = [f'<td data-v="{_escaped(row.function)}">{self._link(row.function)}</td>']
            for i, (column, value, whole) in enumerate(zip(self.columns, row.values, wholes, strict=True)):
                if used[i]:
                    cells += self._cells_of(column, row, value, None if row.function == WAIT else whole)
                if i == 0:
                    cells.append(_cell(row.calls, f"{row.calls:,}" if row.calls else ""))
                    if waits:
                        cells.append(_cell(row.waited, self.waited.text(row.waited)))
            yield f'<tr id="{name}-{row.number}"{self._owner(row.function)}>{"".join(cells)}</tr>\n'
        yield "</tbody></table></div>\n"

    @staticmethod
    def _cells_of(column: Column, row: Row, value: float, whole: float | None) -> Iterator[str]:
        """A value, and where that is of interest what it is for each call."""
        yield _cell(value, column.text(value), whole)
        if column.per_call:
            _, factor, digits = column.per_call
            each = value / row.calls if row.calls else 0.0
            yield _cell(each, f"{each * factor:,.{digits}f}" if row.calls else "")

    def _owner(self, function: str) -> str:
        owner = self.owners.get(function)
        return "" if owner is None else f' data-owner="{owner}"'

    # -- whose code took the time

    def _shares(self) -> Iterator[str]:
        """One bar for the whole: how much of it the program's own code took, coro's, and that of libraries."""
        if not self.owners or not self.columns or self.other is not None:
            return
        time = self.columns[0]
        sums = dict.fromkeys((OWN, CORO, LIBRARY), 0.0)
        for function, (_, own, _, _) in self.functions.items():
            if function != WAIT and function in self.owners:
                sums[self.owners[function]] += own[0]
        whole = sum(sums.values())
        if not whole:
            return
        yield '<div class="shares">'
        for owner, value in sums.items():
            yield f'<span data-owner="{owner}" style="flex-grow:{max(0.0, value / whole):.4f}"></span>'
        yield "</div>\n<p>"
        words = [
            f'<span class="key" data-owner="{owner}"></span>{OWNER_WORDS[owner]} {time.text(value)} '
            f"{_escaped(time.heading)} ({_percent(value, whole)})"
            for owner, value in sums.items()
        ]
        yield ", &nbsp; ".join(words)
        idle = self.functions.get(WAIT)
        if idle is not None and not time.is_zero(idle[1][0]):
            yield f'; nothing could run for {time.text(idle[1][0])} {_escaped(time.heading)}'
        yield (
            '</p>\n<p><label><input type="checkbox" id="only-own"> only functions of this program in the tables'
            "</label></p>\n"
        )

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
                f"{column.text(value)} {_escaped(column.heading)}"
                for column, value in zip(self.columns, own, strict=True)
                if not column.is_zero(value)
            ]
            yield f'<div class="muted">{", ".join(values) or "nothing of its own"}</div>'
            for caller, times in sorted(callers.get(function, ()), key=lambda pair: (pair[1], pair[0])):
                yield f"<div>{times}/{count} ({_percent(times, count) or '0%'}) {self._link(caller)}</div>"
            yield f"<div><b>{count}</b> {_named(function)}"
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
        text = _named(function)
        return text if number is None else f'<a href="#graph-{number}">{text}</a>'

    # -- threads

    def _grouped(self) -> list[tuple[str, list[ThreadProfile], int]]:
        """(title, threads, ticks) of each group, those first that took the most."""
        found = [
            (_title(name, members), members, sum(node[4] for t in members for node in t.nodes))
            for name, members in groups(self.shown.threads)
        ]
        found.sort(key=lambda group: group[2], reverse=True)
        return found

    def _threads(self) -> Iterator[str]:
        found = self._grouped()
        if not found:
            yield "<p>The profile does not tell threads apart.</p>"
            return
        time = self.time
        whole = sum(ticks for _, _, ticks in found)
        many = any(len(members) > 1 for _, members, _ in found)
        waits = any(node[3] for t in self.shown.threads for node in t.nodes)
        yield (
            '<div class="scroll"><table class="sortable" id="threads-table"><thead><tr>'
            '<th data-kind="text">threads called</th>'
            f"{'<th>how many</th>' if many else ''}<th{SORTED}>{time.heading}</th>"
            f"{f'<th>{time.heading}/thread</th>' if many else ''}<th>slices</th><th>calls</th>"
            f"{f'<th>{self.waited.heading}</th>' if waits else ''}"
            '<th data-kind="text">state</th></tr></thead><tbody>\n'
        )
        for title, members, ticks in found:
            n = len(members)
            calls = sum(node[2] for t in members for node in t.nodes)
            waited = sum(node[3] for t in members for node in t.nodes)
            slices = sum(t.slices for t in members)
            ended = sum(t.ended for t in members)
            state = "ended" if ended == n else f"{ended:,} ended" if ended else "alive"
            yield (
                f'<tr><td data-v="{_escaped(title)}">{_escaped(title)}</td>'
                f"{_cell(n, f'{n:,}') if many else ''}{_cell(ticks, time.text(ticks), whole)}"
                f"{_cell(ticks / n, time.text(ticks / n)) if many else ''}"
                f"{_cell(slices, f'{slices:,}')}{_cell(calls, f'{calls:,}')}"
                f"{_cell(waited, self.waited.text(waited)) if waits else ''}<td>{state}</td></tr>\n"
            )
        yield "</tbody></table></div>\n"
        for title, members, _ in found[:MOST_DETAILED]:
            yield f"<details><summary>{_escaped(title)}</summary>"
            yield from self._functions_of(members)
            yield "</details>\n"

    def _functions_of(self, threads: list[ThreadProfile]) -> Iterator[str]:
        sums: dict[int, list[int]] = {}
        for thread in threads:
            for node in thread.nodes:
                mine = sums.setdefault(node[1], [0, 0, 0])
                mine[0] += node[2]
                mine[1] += node[4]
                mine[2] += node[3]
        whole = sum(mine[1] for mine in sums.values())
        waits = any(mine[2] for mine in sums.values())
        time = self.time
        yield (
            f'<table class="sortable"><thead><tr><th data-kind="text">function</th><th{SORTED}>{time.heading}</th>'
            f"<th>calls</th>{f'<th>{self.waited.heading}</th>' if waits else ''}</tr></thead><tbody>"
        )
        order = sorted(sums, key=lambda f: (sums[f][1], sums[f][2]), reverse=True)[:MOST_FUNCTIONS]
        for function in order:
            calls, ticks, waited = sums[function]
            name = self.shown.names[function]
            yield (
                f'<tr{self._owner(name)}><td data-v="{_escaped(name)}">{self._link(name)}</td>'
                f"{_cell(ticks, time.text(ticks), whole)}{_cell(calls, f'{calls:,}')}"
                f"{_cell(waited, self.waited.text(waited)) if waits else ''}</tr>"
            )
        yield "</tbody></table>"

    # -- flame graph

    def _trees(self) -> str:
        """The trees for the script, as JSON that cannot end the element it stands in."""
        threads = self.shown.threads
        parts: list[dict[str, Any]] = []
        if threads:
            parts.append({"name": "all threads", "nodes": _merged([t.nodes for t in threads])})
            for title, members, _ in self._grouped()[:MOST_DETAILED]:
                parts.append({"name": title, "nodes": _merged([t.nodes for t in members])})
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
        yield from self._shares()
        yield '<h2 id="own-values">Own: without what was called</h2>\n'
        yield from self._table(False)
        yield '<h2 id="aggregate-values">Aggregate: with everything that was called</h2>\n'
        yield from self._table(True)
        yield (
            '<h2 id="flame-graph">Flame graph</h2>\n<p><select id="whose" aria-label="thread"></select> '
            '<select id="what" aria-label="measure"><option value="own">time used</option>'
            '<option value="waited">time waited</option></select></p>\n'
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
            f'<footer><p class="muted">Collected {made} with {_escaped(self.profile.bench)}; report made '
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


def _title(name: str, members: list[ThreadProfile]) -> str:
    """What a group of threads is called: one alone with its number."""
    if len(members) > 1:
        return f"{name} ({len(members):,} threads)"
    return f"{name} #{members[0].number}" if members[0].number > 0 else name


def _named(function: str) -> str:
    """A function's name, and where it is in smaller letters."""
    name, place = parts_of(function)
    return f"<b>{_escaped(name)}</b>{f' <small>{_escaped(place)}</small>' if place else ''}"


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
