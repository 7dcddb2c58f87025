"""coro.select: what is closed, time limits, fairness, reports, the end of a loop, and what is left behind (nothing)."""

from __future__ import annotations

import gc
import sys
import weakref
from collections import Counter

import pytest
from support import advance, ok, program, virtual_clock
from sync_names import ChannelClosed, Stop, channel, condition_variable, event, fifo, in_loop, settle, start

import coro
from coro._sync import select as _select
from coro._sync.select import case, select

pytestmark = pytest.mark.usefixtures("leaves_nothing")


# ------------------------------------------------------------------------------------------------- ends


@in_loop
def test_closed_channels():
    c, log = channel(2), []
    c.put(1)
    c.close()
    got = case.get(c)
    assert select(got).value == 1
    with pytest.raises(ChannelClosed) as info:
        select(got)
    assert info.value.args[1] is c
    with pytest.raises(ChannelClosed):
        select(case.put(c, 1), timeout=0)
    # Closed while it waits.
    c, full = channel(1), channel(1)
    full.put(1)
    for one in (case.get(c), case.put(full, 2)):
        t = start(log, one.kind, lambda one=one: select(one, case.get(fifo())))
        settle()
        one.what.close()
        t.join()
    assert log == [("get", ChannelClosed), ("put", ChannelClosed)]
    assert c.waiting == full.waiting == () and full.get() == 1


@in_loop
def test_closed_sockets():
    a, b = coro.socketpair()
    log = []
    t = start(log, "t", lambda: select(case.read(a), case.get(fifo())))
    settle()
    a.close()
    t.join()
    assert log == [("t", coro.ClosedError)]
    with pytest.raises(coro.ClosedError):
        select(case.read(a), timeout=0)
    with pytest.raises(OSError, match="descriptor"):
        select(case.read(b.fileno() + 500), timeout=0)
    b.close()


@in_loop
def test_closed_after_another_case_has_happened():
    a, b = coro.socketpair()
    f, log = fifo(), []
    t = start(log, "t", lambda: select(case.read(a), case.get(f)).value)
    settle()
    f.push("value")
    a.close()
    t.join()
    assert log == [("t", "value")]
    # The other way round the value is not lost.
    t = start(log, "t", lambda: select(case.read(b), case.get(f)).value)
    settle()
    if not t.dead:
        b.close()
        f.push("value")
        t.join()
        assert log[-1] == ("t", coro.ClosedError) and f.pop_nowait() == "value"
    b.close()


@in_loop
def test_two_threads_cannot_wait_for_the_same_descriptor():
    a, b = coro.socketpair()
    log = []
    t = start(log, "recv", lambda: a.recv(1))
    settle()
    with pytest.raises(coro.SimultaneousError):
        select(case.read(a))
    f = fifo()
    with pytest.raises(coro.SimultaneousError):
        select(case.get(f), case.read(a))
    assert f.waiting == ()
    b.send(b"x")
    t.join()
    t = start(log, "select", lambda: select(case.read(a)).kind)
    settle()
    with pytest.raises(coro.SimultaneousError):
        a.recv(1)
    b.send(b"y")
    t.join()
    assert log == [("recv", b"x"), ("select", "read")] and a.recv(1) == b"y"
    a.close()
    b.close()


@in_loop
def test_reading_goes_on_as_usual_after_a_select():
    """What the poller knows of the descriptor is as true after a select as before, ready or interrupted."""
    a, b = coro.socketpair()
    for n in range(20):
        log = []
        t = start(log, "select", lambda: select(case.read(a), case.get(fifo())))
        settle()
        if n % 2:
            t.raise_exception(Stop)
        b.send(b"x")
        t.join()
        assert a.recv(10) == b"x"
        reader = start(log, "recv", lambda: a.recv(10))
        settle()
        b.send(b"y")
        reader.join()
        assert log[-1] == ("recv", b"y")
    a.close()
    b.close()


@in_loop
def test_a_select_is_not_told_of_what_others_have_read():
    a, b = coro.socketpair()
    log = []
    b.send(b"x")
    coro.yield_slice()
    assert a.recv(1) == b"x"
    t = start(log, "t", lambda: select(case.read(a), timeout=0.005))
    t.join()
    assert log == [("t", None)]
    a.close()
    b.close()


# ------------------------------------------------------------------------------------------------- time


def test_time_limits():
    def main():
        f, log = fifo(), []
        t = start(log, "t", lambda: select(case.get(f), case.get(fifo()), timeout=5))
        settle()
        advance(4.9)
        settle()
        assert log == []
        advance(0.2)
        settle()
        assert log == [("t", None)] and t.dead and f.waiting == ()
        start(log, "t", lambda: select(case.get(f), timeout=5).value)
        settle()
        f.push("in time")
        settle()
        assert log[-1] == ("t", "in time")
        # What was granted before the thread noticed that its time is over is what happened.
        start(log, "t", lambda: select(case.get(f), timeout=5).value)
        settle()
        f.push("just in time")
        advance(6)
        settle()
        assert log[-1] == ("t", "just in time")
        assert coro.statistics().timers == 0
        with pytest.raises(coro.TimeoutError):
            start(log, "wake", lambda: advance(2))
            coro.with_timeout(1, select, case.get(f), timeout=100)
        assert coro.statistics().timers == 0 and f.waiting == ()
        t = start(log, "t", lambda: select(case.get(f), timeout=5))
        settle()
        t.shutdown()
        settle()
        assert log[-1] == ("t", coro.Shutdown) and coro.statistics().timers == 0

    with virtual_clock():
        coro.run(main)


# ------------------------------------------------------------------------------------------------- fairness


@in_loop
def test_each_of_several_ready_cases_is_chosen():
    _select._seed(7)
    queues = [fifo() for _ in range(10)]
    for q in queues:
        for n in range(400):
            q.push(n)
    cases = [case.get(q) for q in queues]
    chosen = Counter(id(select(*cases)) for _ in range(1000))
    assert len(chosen) == 10 and min(chosen.values()) > 50


@in_loop
def test_one_that_is_always_ready_starves_nobody():
    e, f = event(), fifo()
    e.set()
    f.push(1)
    cases = [case.wait(e) for _ in range(9)] + [case.get(f)]
    for _ in range(1000):
        if select(*cases) is cases[-1]:
            return
    raise AssertionError("never chosen")


# ------------------------------------------------------------------------------------------------- reports


def test_a_deadlock_lists_all_that_a_select_waits_for():
    source = """
        import coro
        def main():
            m = coro.mutex()
            holder = coro.spawn(lambda: (m.lock(), coro._yield()), thread_name="holder")
            coro.yield_slice()
            coro.select(coro.case.get(coro.fifo()), coro.case.lock(m), coro.case.join(holder), *more)
        more = [coro.case.wait(coro.event()) for _ in range(20)]
        try:
            coro.run(main)
        except coro.DeadlockError as e:
            words = e.threads[0][1]
            print(words.startswith("in a select, for the first of: to get from <fifo"))
            print("for <mutex" in words, "holder" in words, "for the end of <coro" in words, "and 13 more" in words)
        """
    assert ok(source) == ["True", "True True True True"]


@in_loop
def test_waiting_for_names_the_cases():
    f, log = fifo(), []
    one = case.get(f)
    t = start(log, "t", lambda: select(one))
    settle()
    assert t.waiting_for == ("select", (one,)) and repr(one).startswith("<case get <fifo")
    f.push(1)
    t.join()


def test_a_descriptor_is_waited_for_at_the_end_of_a_loop():
    """In the grace period a select that waits for a descriptor counts as one that may come to its end."""
    source = """
        import coro
        a, b = coro.socketpair()
        def stubborn():
            try:
                coro._yield()
            except coro.Shutdown:
                print(coro.select(coro.case.read(a), coro.case.get(coro.fifo()), timeout=3).kind)
        def other():
            try:
                coro._yield()
            except coro.Shutdown:
                with coro.shield(1):
                    coro.sleep_relative(0.05)
                b.send(b"x")
        def main():
            coro.spawn(stubborn)
            coro.spawn(other)
            coro.yield_slice()
        coro.run(main)
        """
    assert ok(source) == ["read"]


def test_shut_down_with_the_loop():
    log, f = [], fifo()

    def body():
        try:
            select(case.get(f), case.get(fifo()))
        except coro.Shutdown:
            log.append("shutdown")
            select(case.get(f), timeout=100)

    def main():
        coro.spawn(body)
        settle()

    coro.run(main)
    assert log == ["shutdown"] and f.waiting == () and coro.statistics().timers == 0


# ------------------------------------------------------------------------------------------------- memory


@pytest.mark.slow
def test_ten_thousand_channels():
    def main():
        channels, log = [channel(n % 3) for n in range(10_000)], []
        cases = [case.get(c) for c in channels]
        assert select(*cases, timeout=0) is None
        for n in (0, 9_999, 5_000):
            t = start(log, "t", lambda: select(*cases).what)
            settle()
            channels[n].put("x")
            t.join()
            assert log[-1] == ("t", channels[n])
        t = start(log, "t", lambda: select(*cases))
        settle()
        t.shutdown()
        t.join()
        assert not any(c.waiting for c in channels) and not any(c.statistics().items for c in channels)

    coro.run(main)


@in_loop
def test_nothing_is_kept_alive():
    class Thing:
        pass

    f, things = fifo(), [Thing() for _ in range(3)]
    refs = [weakref.ref(thing) for thing in things]
    cases = case.get(f), case.put(channel(0), things[2])
    f.push(things[0])
    select(*cases)
    f.push(things[1])
    select(*cases)
    things.clear()
    gc.collect()
    assert refs[0]() is None and refs[1]() is cases[0].value and refs[2]() is not None
    select(*cases, timeout=0)
    assert refs[1]() is None
    del cases
    gc.collect()
    assert refs[2]() is None


@in_loop
def test_a_case_in_a_cycle_is_collected():
    f = fifo()
    one = case.get(f)
    f.push([one])
    select(one)
    one.value.append(one)
    ref = weakref.ref(f)
    del f, one
    gc.collect()
    assert ref() is None


@in_loop
def test_references_do_not_grow():
    f, g, e, log = fifo(), fifo(), condition_variable(), []
    cases = case.get(f), case.get(g), case.wait(e)
    marker = object()

    def body():
        for _ in range(50):
            select(*cases)

    for _ in range(2):
        before = sys.getrefcount(marker), sys.getrefcount(f)
        t = start(log, "t", body)
        for n in range(50):
            settle()
            (f.push, g.push, e.wake_all)[n % 3](marker)
        t.join()
        select(*cases, timeout=0)
        assert (sys.getrefcount(marker), sys.getrefcount(f)) == before


def test_a_fork_while_others_select():
    """The dead leave the lines they were in, all of them, and others are served in the child."""
    outcome = program(
        """
        import coro, os, warnings
        warnings.simplefilter("ignore")
        def main():
            f, s, e = coro.fifo(), coro.semaphore(0), coro.event()
            for _ in range(3):
                cases = coro.case.acquire(s, 2), coro.case.get(f), coro.case.get(f), coro.case.wait(e)
                coro.spawn(coro.select, *cases)
            coro.yield_slice()
            pid = os.fork()
            if pid:
                assert os.waitpid(pid, 0)[1] == 0
                coro.set_exit(0)
                return
            f.push("value")
            assert f.pop_nowait() == "value", f
            s.release()
            s.acquire()
            e.set()
            assert f.waiting == s.waiting == e.waiting == ()
            os._exit(0)
        coro.run(main)
        """
    )
    assert outcome.code == 0, outcome.err
