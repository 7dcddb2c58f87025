"""``coro.wait_graph()``: who waits for what, and which threads hold that. As data, and as a picture for Graphviz.

What a suspended thread waits for is known to the scheduler, and who holds a thing is known to the thing (its ``owner``,
``owners`` or ``threads``); so nothing is recorded while a program runs, and the graph is put together when somebody
asks. The report of a deadlock is made from it, therefore nothing here trusts the objects of users: a ``repr`` that
raises must not hide the report.

Cost: one look at each registered thread and its stack; cycles are found in time proportional to the edges (Tarjan's
algorithm for strongly connected components, SIAM J. Comput. 1 (1972), without recursion).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from coro import tb
from coro._runtime import scheduler

__all__ = ["WaitEdge", "WaitGraph", "WaitTarget", "WaitingThread", "describe_wait", "wait_graph"]

#: Cases of a select that a sentence names one by one.
_MOST_NAMED = 10


@dataclass(frozen=True)
class WaitTarget:
    """One thing that a thread waits for.

    ``kind`` is the first part of ``thread.waiting_for`` (``'join'``, ``'read'``, ``'object'``, ``'sleep'``...), or, in
    a select, the kind of the case. ``what`` is the object or descriptor number, or None. ``words`` is the same as text.
    ``owners`` are the threads that are known to hold it; for a join, the thread whose end is awaited."""

    kind: str
    what: Any
    words: str
    owners: tuple[Any, ...]


@dataclass(frozen=True)
class WaitingThread:
    """A thread at the moment of the call.

    ``state`` is ``'running'``, ``'runnable'`` or ``'waiting'``. ``targets`` is what a waiting thread waits for: one
    thing, or several in a ``coro.select``, of which one is enough. ``words`` is the same as part of a sentence.
    ``where`` is its stack in one line."""

    thread: Any
    id: int
    name: str
    daemon: bool
    state: str
    targets: tuple[WaitTarget, ...]
    words: str
    where: str


@dataclass(frozen=True)
class WaitEdge:
    """``waiter`` waits for something that ``owner`` holds, or for the end of ``owner``. ``only`` is true if the waiter
    waits for nothing else, and false for one of several cases of a select."""

    waiter: Any
    owner: Any
    target: WaitTarget
    only: bool


@dataclass(frozen=True)
class WaitGraph:
    """The registered threads in order of their ids, the edges from threads that wait to threads that hold, and the
    cycles.

    Each of ``cycles`` is a tuple of threads. Each of them waits for the next, and the last waits for the first. The
    oldest thread comes first. Only edges count whose ``only`` is true. If threads are in several cycles, the shortest
    one through the oldest thread is given."""

    threads: tuple[WaitingThread, ...]
    edges: tuple[WaitEdge, ...]
    cycles: tuple[tuple[Any, ...], ...]

    def to_dot(self) -> str:
        """The graph in the language of Graphviz: threads are boxes, what they wait for is round, cycles are red, and
        cases of a select are dashed. ``dot -Tsvg`` draws it."""
        return _Drawing(self).text()


def wait_graph() -> WaitGraph:
    """Which thread waits for what now, and which threads hold that. WrongThreadError in another OS thread than the
    loop's."""
    running = scheduler.current()
    threads = tuple(_look_at(t, running) for t in scheduler._all_threads())
    edges = tuple(
        WaitEdge(t.thread, owner, target, len(t.targets) == 1)
        for t in threads
        for target in t.targets
        for owner in target.owners
    )
    return WaitGraph(threads, edges, _cycles(edges))


def describe_wait(t: Any) -> str:
    """What a suspended thread waits for, in words."""
    waits = t.waiting_for
    return "runnable" if waits is None else _in_words(waits[0], _targets(*waits))


def _look_at(t: Any, running: Any) -> WaitingThread:
    waits = t.waiting_for
    if t is running:
        state = "running"
    elif waits is None or waits[0] == "slice":
        state = "runnable"
    else:
        state = "waiting"
    targets: tuple[WaitTarget, ...] = ()
    words = state
    if waits is not None and state == "waiting":
        targets = _targets(*waits)
        words = _in_words(waits[0], targets)
    frame = t.get_frame()
    while frame is not None and t is running and frame.f_globals is globals():
        frame = frame.f_back
    where = "[]" if frame is None else tb.stack_string(frame)
    return WaitingThread(t, t.id, t.name, t.daemon, state, targets, words, where)


def _in_words(kind: str, targets: tuple[WaitTarget, ...]) -> str:
    if kind != "select":
        return targets[0].words
    named = [target.words for target in targets[:_MOST_NAMED]]
    if len(targets) > _MOST_NAMED:
        named.append(f"and {len(targets) - _MOST_NAMED} more")
    return "in a select, for the first of: " + "; ".join(named)


def _targets(kind: str, what: Any) -> tuple[WaitTarget, ...]:
    if kind != "select":
        return (_target(kind, what),)
    return tuple(
        WaitTarget(case.kind, case.what, _with_owners(_safely(case._words), owners), owners)
        for case in what
        for owners in [() if case.kind in ("get", "put") else _owners_of(case.what)]
    )


def _target(kind: str, what: Any) -> WaitTarget:
    if kind == "yield":
        return WaitTarget(kind, what, "in coro._yield(), until somebody schedules it", ())
    if kind == "join":
        return WaitTarget(kind, what, f"for the end of {_safe_repr(what)}", _owners_of(what))
    if kind in ("read", "write"):
        return WaitTarget(kind, what, f"to {kind} descriptor {what}", ())
    if kind == "in_thread":
        return WaitTarget(kind, what, "for a function in a worker OS thread", ())
    if what is None:
        return WaitTarget(kind, what, f"in a {kind}", ())
    owners = _owners_of(what)
    return WaitTarget(kind, what, _with_owners(f"for {_safe_repr(what)}", owners), owners)


def _with_owners(words: str, owners: tuple[Any, ...]) -> str:
    if not owners or words.startswith("for the end of"):
        return words
    return f"{words}, which {' and '.join(_safe_repr(owner) for owner in owners)} owns"


def _owners_of(what: Any) -> tuple[Any, ...]:
    """The threads that hold what can be waited for: of a thread that is alive, itself; else what the object says in
    ``owners`` or ``owner``, or in ``threads`` (a group); () when it says nothing."""
    if isinstance(what, scheduler.coro):
        return () if what.dead else (what,)
    for name in ("owners", "owner", "threads"):
        try:
            found = getattr(what, name, None)
        except Exception:
            continue
        if found is None:
            continue
        if name == "owner":
            return (found,)
        if isinstance(found, Iterable) and not isinstance(found, (str, bytes, Mapping)):
            return tuple(found)
    return ()


def _safe_repr(what: Any) -> str:
    return _safely(repr, what)


def _safely(function: Any, *args: Any) -> str:
    try:
        return str(function(*args))
    except Exception as e:
        named = args[0] if args else function
        return f"<{type(named).__name__} at {id(named):#x}, whose repr raised {type(e).__name__}>"


# ------------------------------------------------------------------------------------------------ cycles


def _cycles(edges: Iterable[WaitEdge]) -> tuple[tuple[Any, ...], ...]:
    after: dict[int, dict[int, None]] = {}
    by_id: dict[int, Any] = {}
    for edge in edges:
        if edge.only and isinstance(edge.owner, scheduler.coro) and not edge.owner.dead:
            after.setdefault(edge.waiter.id, {})[edge.owner.id] = None
            by_id[edge.waiter.id] = edge.waiter
            by_id[edge.owner.id] = edge.owner
    cycles = []
    for knot in _knots(after):
        oldest = min(knot)
        cycles.append((oldest, _shortest(after, knot, oldest)))
    return tuple(tuple(by_id[n] for n in path) for _, path in sorted(cycles))


def _knots(after: Mapping[int, Mapping[int, None]]) -> list[set[int]]:
    """Sets of nodes that all lead to one another, single nodes only if they lead to themselves."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    found = []
    for start in after:
        if start in index:
            continue
        index[start] = low[start] = len(index)
        path.append(start)
        on_path.add(start)
        work = [(start, iter(after[start]))]
        while work:
            node, rest = work[-1]
            following = next(rest, None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    knot = {path.pop()}
                    while node not in knot:
                        knot.add(path.pop())
                    on_path -= knot
                    if len(knot) > 1 or node in after.get(node, ()):
                        found.append(knot)
            elif following not in index:
                index[following] = low[following] = len(index)
                path.append(following)
                on_path.add(following)
                work.append((following, iter(after.get(following, {}))))
            elif following in on_path:
                low[node] = min(low[node], index[following])
    return found


def _shortest(after: Mapping[int, Mapping[int, None]], knot: set[int], start: int) -> list[int]:
    """The shortest way from a node of the knot back to itself."""
    came_from: dict[int, int] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for following in after[node]:
            if following == start:
                path = [node]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return path[::-1]
            if following in knot and following not in came_from:
                came_from[following] = node
                queue.append(following)
    raise AssertionError("a node of a knot leads back to itself")


# ------------------------------------------------------------------------------------------------ drawing


def _quoted(text: str) -> str:
    """A string of the DOT language that shows exactly this text; what cannot be shown becomes an escape as in repr."""
    shown = "".join(c if c.isprintable() else "\n" if c == "\n" else repr(c)[1:-1] for c in text)
    return '"' + shown.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


class _Drawing:
    def __init__(self, graph: WaitGraph) -> None:
        self.graph = graph
        self.nodes: dict[Any, str] = {}
        self.drawn = {t.id for t in graph.threads}
        self.lines: list[str] = []
        self.tangled = {
            (a.id, b.id) for cycle in graph.cycles for a, b in zip(cycle, cycle[1:] + cycle[:1], strict=True)
        }

    def text(self) -> str:
        self.lines = ["digraph wait_graph {", "  rankdir=LR;", '  node [fontname="monospace"];']
        red = {t for pair in self.tangled for t in pair}
        for t in self.graph.threads:
            label = f"{t.id} {t.name}"
            if t.state != "waiting" or all(target.what is None for target in t.targets):
                label += "\n" + t.words
            style = ', color="red"' if t.id in red else ', style="dashed"' if t.daemon else ""
            self.lines.append(f"  t{t.id} [shape=box, label={_quoted(label)}, tooltip={_quoted(t.where)}{style}];")
        for t in self.graph.threads:
            for target in t.targets:
                self.draw(t, target)
        return "\n".join([*self.lines, "}", ""])

    def draw(self, t: WaitingThread, target: WaitTarget) -> None:
        if target.what is None:
            return
        dashed = "" if len(t.targets) == 1 else ', style="dashed"'
        tangled = not dashed and any((t.id, getattr(owner, "id", None)) in self.tangled for owner in target.owners)
        colour = ', color="red"' if tangled else ""
        to = self.thread(target.what) if isinstance(target.what, scheduler.coro) else self.thing(target)
        self.lines.append(f"  t{t.id} -> {to} [label={_quoted(target.kind)}{dashed}{colour}];")

    def thing(self, target: WaitTarget) -> str:
        what = target.what
        key = ("descriptor", what) if isinstance(what, int) else id(what)
        name = self.nodes.get(key)
        if name is None:
            name = self.nodes[key] = f"o{len(self.nodes)}"
            label = f"descriptor {what}" if isinstance(what, int) else _safe_repr(what)
            self.lines.append(f"  {name} [shape=ellipse, label={_quoted(label)}];")
            for owner in target.owners:
                self.lines.append(f'  {name} -> {self.thread(owner)} [label="held by"];')
        return name

    def thread(self, t: Any) -> str:
        """The node of somebody who holds something: a thread, main, or something else that is called an owner."""
        if isinstance(t, scheduler.coro):
            if t.id not in self.drawn:
                self.drawn.add(t.id)
                self.lines.append(f"  t{t.id} [shape=box, label={_quoted(f'{t.id} {t.name}')}];")
            return f"t{t.id}"
        name = self.nodes.get(("owner", id(t)))
        if name is None:
            name = self.nodes["owner", id(t)] = f"w{len(self.nodes)}"
            self.lines.append(f"  {name} [shape=box, label={_quoted(_safe_repr(t))}];")
        return name
