"""coro.wait_graph: who waits for what and for whom, as data and as a picture."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import threading

import pytest
from support import ok
from sync_names import channel, event, fifo, in_loop, mutex, rw_lock, settle, start

import coro
from coro._runtime import scheduler as _scheduler

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def quoted_strings_and_rest(text):
    """The strings of a DOT text, and the text with each replaced by a mark. Fails when a quote is left open."""
    strings = []

    def take(match):
        strings.append(match[1])
        return f"<{len(strings) - 1}>"

    rest = re.sub(r'"((?:[^"\\\n]|\\[^\n])*)"', take, text)
    assert '"' not in rest and "\\" not in rest
    return strings, rest


def parsed(text):
    """(labels of the nodes by name, edges as (from, to, label)) in a picture; checked by Graphviz if there."""
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tplain"], input=text, text=True, check=True, capture_output=True, timeout=60)
    strings, rest = quoted_strings_and_rest(text)
    lines = rest.splitlines()
    assert lines[0] == "digraph wait_graph {" and lines[-1] == "}"
    nodes, edges = {}, []
    for line in lines[1:-1]:
        if re.fullmatch(r"  (rankdir=LR|node \[fontname=<\d+>\]);", line):
            continue
        node = re.fullmatch(r"  ([tow]\d+) \[shape=(?:box|ellipse), label=<(\d+)>((?:, \w+=<\d+>)*)\];", line)
        edge = re.fullmatch(r"  ([tow]\d+) -> ([tow]\d+) \[label=<(\d+)>((?:, \w+=<\d+>)*)\];", line)
        assert node or edge, line
        if node:
            assert node[1] not in nodes
            nodes[node[1]] = strings[int(node[2])]
        else:
            edges.append((edge[1], edge[2], strings[int(edge[3])]))
    assert {end for a, b, _ in edges for end in (a, b)} <= set(nodes)
    return nodes, edges


def entry(graph, thread):
    return next(t for t in graph.threads if t.thread is thread)


@in_loop
def test_what_each_thread_does():
    f, log = fifo(), []
    a, b = coro.socketpair()
    waiting = start(log, "f", f.pop)
    sleeping = start(log, "sleep", lambda: coro.sleep_relative(100))
    joining = start(log, "join", sleeping.join)
    reading = start(log, "read", lambda: a.recv(1))
    parked = coro.spawn(coro._yield, daemon=True, thread_name="parked")
    settle()
    new = coro.spawn(int)
    graph = coro.wait_graph()
    assert [t.id for t in graph.threads] == sorted(coro.all_threads)
    me = entry(graph, coro.current())
    assert me.state == me.words == "running" and me.targets == ()
    assert "test_wait_graph.py test_what_each_thread_does" in me.where
    assert "_introspection/wait_graph.py wait_graph" not in me.where
    assert entry(graph, new).state == "runnable" and entry(graph, new).where == "[]"
    one = entry(graph, waiting)
    assert (one.id, one.name, one.daemon, one.state) == (waiting.id, waiting.name, False, "waiting")
    (target,) = one.targets
    assert target.kind == "object" and target.what is f and target.words == one.words == f"for {f!r}"
    assert target.owners == ()
    assert entry(graph, sleeping).targets[0].kind == "sleep" and entry(graph, sleeping).words == "in a sleep"
    assert entry(graph, joining).targets[0].owners == (sleeping,)
    assert entry(graph, reading).targets[0].what == a.fileno()
    assert entry(graph, parked).daemon and "coro._yield()" in entry(graph, parked).words
    (edge,) = graph.edges
    assert (edge.waiter, edge.owner, edge.only) == (joining, sleeping, True) and graph.cycles == ()
    nodes, edges = parsed(graph.to_dot())
    assert (f"t{joining.id}", f"t{sleeping.id}", "join") in edges
    assert f"descriptor {a.fileno()}" in nodes.values()
    for t in (waiting, sleeping, joining, reading, parked):
        t.shutdown()
    settle()
    a.close()
    b.close()


@in_loop
def test_locks_and_their_owners():
    m, lock, log = mutex(), rw_lock(), []
    holder = start(log, "holder", m.lock, lock.read_lock, coro._yield)
    settle()
    second = start(log, "second", m.lock)
    writer = start(log, "writer", lock.write_lock)
    settle()
    graph = coro.wait_graph()
    found = {(edge.waiter, edge.owner, edge.target.what) for edge in graph.edges}
    assert found == {(second, holder, m), (writer, holder, lock)}
    assert "which <coro" in entry(graph, second).words and graph.cycles == ()
    nodes, edges = parsed(graph.to_dot())
    (name,) = [name for name, label in nodes.items() if label.startswith("<mutex")]
    assert (f"t{second.id}", name, "object") in edges and (name, f"t{holder.id}", "held by") in edges
    for t in (holder, second, writer):
        t.shutdown()
    settle()


@in_loop
@pytest.mark.filterwarnings("ignore::coro.LockCycleWarning")
def test_circles():
    one, two, three, log = mutex(), mutex(), mutex(), []

    def pair(first, then):
        return start(log, "t", first.lock, coro.yield_slice, then.lock)

    a, b, c = pair(one, two), pair(two, three), pair(three, one)
    outside = start(log, "outside", coro.yield_slice, one.lock)
    settle()
    graph = coro.wait_graph()
    assert graph.cycles == ((a, b, c),)
    assert {(e.waiter, e.owner) for e in graph.edges} == {(a, b), (b, c), (c, a), (outside, a)}
    text = graph.to_dot()
    assert text.count('color="red"') == 6
    parsed(text)
    for t in (outside, a, b, c):
        t.shutdown()
    settle()


@in_loop
@pytest.mark.filterwarnings("ignore::coro.LockCycleWarning")
def test_a_case_of_a_select_closes_no_circle():
    one, two, log = mutex(), mutex(), []
    a = start(log, "a", one.lock, coro.yield_slice, two.lock)
    b = start(
        log,
        "b",
        two.lock,
        coro.yield_slice,
        lambda: coro.select(coro.case.lock(one), coro.case.get(fifo()), coro.case.put(channel(0), 1)),
    )
    settle()
    graph = coro.wait_graph()
    assert [t.kind for t in entry(graph, b).targets] == ["lock", "get", "put"]
    assert {(e.waiter, e.owner, e.only) for e in graph.edges} == {(a, b, True), (b, a, False)}
    assert graph.cycles == ()
    nodes, edges = parsed(graph.to_dot())
    assert 'style="dashed"' in graph.to_dot() and len(edges) == 6
    a.shutdown()
    b.shutdown()
    settle()


def holds(*owners):
    class Thing:
        pass

    thing = Thing()
    thing.owners = owners
    return thing


@in_loop
def test_knots_are_told_apart():
    """Two circles that share a thread, a thread that waits for itself, and a way that leads nowhere."""
    log, things = [], [holds() for _ in range(6)]
    ts = [start(log, n, lambda thing=thing: _scheduler._suspend(thing)) for n, thing in enumerate(things)]
    settle()
    things[0].owners = (ts[1], ts[2])
    things[1].owners = (ts[2],)
    things[2].owners = (ts[0], ts[5])
    things[3].owners = (ts[3], ts[5])
    things[4].owners = (ts[0],)
    assert coro.wait_graph().cycles == ((ts[0], ts[2]), (ts[3],))
    parsed(coro.wait_graph().to_dot())
    for t in ts:
        t.shutdown()
    settle()


@pytest.mark.slow
@in_loop
def test_a_circle_of_many_needs_no_recursion():
    log, things = [], [holds() for _ in range(5000)]
    ts = [start(log, n, lambda thing=thing: _scheduler._suspend(thing)) for n, thing in enumerate(things)]
    settle()
    for n, thing in enumerate(things):
        thing.owners = (ts[(n + 1) % len(ts)],)
    assert coro.wait_graph().cycles == (tuple(ts),)
    for t in ts:
        t.shutdown()
    settle()


NASTY = ['"', "\\", '\\"', "\n", "\\N", "}", "];", "<b>", "\0", "\x7f", "\ud800", "ü→", "\r\n\t", "a\\\nb", "%s{0}", ""]


@in_loop
def test_names_cannot_break_the_picture():
    log = []

    class Thing:
        def __init__(self, text):
            self.text = text
            self.owner = text

        def __repr__(self):
            return self.text

    ts = [
        start(log, n, lambda text=text: _scheduler._suspend(Thing(text))).set_name(text) for n, text in enumerate(NASTY)
    ]
    settle()
    text = coro.wait_graph().to_dot()
    text.encode()
    nodes, _ = parsed(text)
    assert nodes[f"t{ts[1].id}"] == f"{ts[1].id} \\\\" and nodes[f"t{ts[0].id}"] == f'{ts[0].id} \\"'
    for t in ts:
        t.shutdown()
    settle()


@in_loop
def test_objects_that_misbehave():
    class Thing:
        @property
        def owners(self):
            raise RuntimeError("no owners")

        @property
        def owner(self):
            raise ValueError("no owner")

        def __repr__(self):
            raise KeyError("no repr")

    class Odd:
        owners = "text"
        owner = None
        threads = 5

    log = []
    ts = [start(log, 0, lambda: _scheduler._suspend(Thing())), start(log, 1, lambda: _scheduler._suspend(Odd()))]
    settle()
    graph = coro.wait_graph()
    assert "whose repr raised KeyError" in entry(graph, ts[0]).words
    assert graph.edges == ()
    parsed(graph.to_dot())
    for t in ts:
        t.shutdown()
    settle()


def test_a_group_is_held_by_its_children():
    def main():
        log = []

        def body():
            with coro.group() as g:
                log.append(g.spawn(coro._yield))
                log.append(g.spawn(coro._yield))

        t = coro.spawn(body)
        settle()
        graph = coro.wait_graph()
        assert {(e.waiter, e.owner) for e in graph.edges} == {(t, log[0]), (t, log[1])}
        t.shutdown()
        t.join()

    coro.run(main)


def test_main_can_own_a_lock():
    m = mutex()
    m.lock()

    def main():
        log = []
        t = start(log, "t", m.lock)
        settle()
        graph = coro.wait_graph()
        assert graph.edges[0].owner.name == "main/scheduler" and graph.cycles == ()
        assert "<coro main/scheduler>" in parsed(graph.to_dot())[0].values()
        t.shutdown()
        settle()

    coro.run(main)
    m.unlock()


def test_without_a_loop_and_from_another_os_thread():
    assert coro.wait_graph() == coro.WaitGraph((), (), ())
    assert parsed(coro.wait_graph().to_dot()) == ({}, [])
    errors = []

    def foreign():
        try:
            coro.wait_graph()
        except coro.WrongThreadError:
            errors.append("wrong thread")

    def main():
        t = threading.Thread(target=foreign)
        t.start()
        while t.is_alive():
            coro.yield_slice()

    coro.run(main)
    assert errors == ["wrong thread"]


@in_loop
def test_the_answer_is_data_and_does_not_change():
    e, log = event(), []
    t = start(log, "t", e.wait)
    settle()
    graph, again = coro.wait_graph(), coro.wait_graph()
    assert graph == again and entry(graph, t).words == f"for {e!r}"
    before = entry(graph, t).words
    e.set()
    t.join()
    assert entry(graph, t).words == before and entry(graph, t).state == "waiting"
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph.threads = ()
    parsed(graph.to_dot())


def test_the_report_of_a_deadlock_names_the_circle():
    source = """
        import coro
        coro.set_lock_cycle_warning(False)
        a, b = coro.mutex(), coro.mutex()
        def pair(first, then):
            with first:
                coro.yield_slice()
                then.lock()
        def main():
            x = coro.spawn(pair, a, b, thread_name="x")
            y = coro.spawn(pair, b, a, thread_name="y")
            x.join()
        try:
            coro.run(main)
        except coro.DeadlockError as e:
            print(str(e).splitlines()[-1])
            print(len(e.threads), [t.name for t, words in e.threads])
        """
    assert ok(source) == ["  these wait for one another: #2 x -> #3 y -> #2 x", "3 ['main', 'x', 'y']"]
