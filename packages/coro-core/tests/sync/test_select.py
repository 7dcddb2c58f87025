"""coro.select: exactly one thing happens, whoever interrupts whom, and nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import threading

import pytest
from sync_names import (
    Stop,
    barrier,
    channel,
    condition_variable,
    event,
    fifo,
    in_loop,
    inverted_semaphore,
    latch,
    mutex,
    rw_lock,
    semaphore,
    settle,
    start,
)

import coro
from coro._sync.select import case, select

pytestmark = [pytest.mark.usefixtures("leaves_nothing"), pytest.mark.poller]


# ------------------------------------------------------------------------------------------------- what there is


@in_loop
def test_each_operation_when_nothing_has_to_be_waited_for():
    f, c = fifo(), channel(1)
    f.push("value")
    got = case.get(f)
    assert select(got) is got and got.value == "value" and len(f) == 0
    put = case.put(c, "other")
    assert select(put) is put and put.value is None and c.get() == "other"
    e, opened, zero = event(), latch(0), inverted_semaphore()
    e.set()
    for what in (e, opened, zero):
        first = case.wait(what)
        assert select(first) is first and first.value is None
    s = semaphore(3)
    first = case.acquire(s, 2)
    assert select(first) is first and s.avail == 1
    m = mutex()
    first = case.lock(m)
    assert select(first) is first and select(first) is first and m.owner is coro.current()
    m.unlock()
    m.unlock()
    t = coro.spawn(lambda: 5)
    first = case.join(t)
    assert select(first) is first and first.value is t and t.result == 5
    assert [x.kind for x in (got, put, first)] == ["get", "put", "join"] and got.what is f


@in_loop
def test_each_operation_when_it_has_to_be_waited_for():
    f, full, e, gate, cv = fifo(), channel(1), event(), latch(2), condition_variable()
    zero, s, m = inverted_semaphore(1), semaphore(0), mutex()
    full.put("before")
    m.lock()
    sleeper = coro.spawn(coro._yield)
    cases = {
        "get": (case.get(f), lambda: f.push("late"), "late"),
        "put": (case.put(full, "after"), full.get, None),
        "event": (case.wait(e), e.set, None),
        "latch": (case.wait(gate), lambda: gate.count_down(2), None),
        "condition": (case.wait(cv), lambda: cv.wake_one(("args",)), ("args",)),
        "zero": (case.wait(zero), zero.release, None),
        "acquire": (case.acquire(s, 2), lambda: s.release(3), None),
        "lock": (case.lock(m), m.unlock, None),
        "join": (case.join(sleeper), sleeper.schedule, sleeper),
    }
    done = []

    def body():
        left = {which: entry[0] for which, entry in cases.items()}
        while left:
            first = select(*left.values())
            done.append(next(which for which, one in left.items() if one is first))
            del left[done[-1]]
        assert m.owner is coro.current()

    t = coro.spawn(body)
    for which, (one, make_it_happen, value) in cases.items():
        settle()
        assert not t.dead
        make_it_happen()
        settle()
        assert done[-1] == which and one.value == value
    t.join()
    assert t.exception is None
    assert full.get_nowait() == "after"
    assert s.avail == 1
    for primitive in (f, full, e, gate, cv, zero, s, m):
        assert primitive.waiting == ()


@in_loop
def test_descriptors():
    a, b = coro.socketpair()
    r, w = os.pipe()
    readable, writable, pipe = case.read(a), case.write(b), case.read(r)
    assert select(readable, pipe, timeout=0) is None
    assert select(readable, pipe, writable) is writable
    log = []

    def body():
        log.append(select(readable, pipe))
        log.append(a.recv(10))
        log.append(select(readable, pipe))
        log.append(os.read(r, 10))

    t = coro.spawn(body)
    settle()
    b.send(b"one")
    while len(log) < 2:
        coro.yield_slice()
    os.write(w, b"two")
    t.join()
    assert log == [readable, b"one", pipe, b"two"]
    b.close()
    assert select(readable, pipe) is readable and a.recv(1) == b""
    # Objects of the standard library have a fileno() as well.
    with open(r, "rb", buffering=0) as file:
        os.write(w, b"x")
        assert select(case.read(file)).what is file
    a.close()
    os.close(w)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs os.pidfd_open: Linux 5.3 or later")
@in_loop
def test_the_end_of_a_child_process():
    r, w = os.pipe()
    child = subprocess.Popen(["cat"], stdin=r)
    number, log = os.pidfd_open(child.pid), []
    t = start(log, "t", lambda: select(case.read(number), case.get(fifo()), timeout=60).kind)
    os.close(r)
    settle()
    assert log == []
    os.close(w)
    t.join()
    assert log == [("t", "read")] and child.wait() == 0
    os.close(number)


@in_loop
def test_what_recv_exact_gave_back_is_readable():
    a, b = coro.socketpair()
    with pytest.raises(coro.TimeoutError):
        b.send(b"abc")
        coro.with_timeout(0.001, a.recv_exact, 10)
    first = case.read(a)
    assert select(first, timeout=0) is first and select(first) is first
    assert a.recv(10) == b"abc"
    a.close()
    b.close()


def test_what_need_not_wait_works_outside_threads():
    f, r = fifo(), os.pipe()
    f.push(1)
    first = case.get(f)
    assert select(first) is first and first.value == 1
    assert select(first, timeout=0) is None and first.value is None
    assert select(first, timeout=-5) is None
    os.write(r[1], b"x")
    assert select(case.read(r[0])).kind == "read"
    m = mutex()
    assert select(case.lock(m)).what is m and m.locked()
    m.unlock()
    with pytest.raises(coro.YieldFromMain):
        select(first)
    with pytest.raises(coro.YieldFromMain):
        select(first, timeout=1)
    assert f.waiting == ()
    for fd in r:
        os.close(fd)


@in_loop
def test_inside_no_switch():
    f = fifo()
    first = case.get(f)
    with coro.no_switch():
        assert select(first, timeout=0) is None
        with pytest.raises(coro.NoSwitchError):
            select(first)
        f.push(1)
        assert select(first) is first
    assert f.waiting == ()


def test_in_another_os_thread():
    errors, first = [], case.get(fifo())

    def foreign():
        try:
            select(first, timeout=0)
        except BaseException as e:
            errors.append(type(e))

    def main():
        t = threading.Thread(target=foreign)
        t.start()
        while t.is_alive():
            coro.yield_slice()
        assert select(first, timeout=0) is None  # it is not in use

    coro.run(main)
    assert errors == [coro.WrongThreadError]


def test_misuse():
    f = fifo()
    with pytest.raises(ValueError, match="at least one case"):
        select()
    with pytest.raises(ValueError, match="at least one case"):
        select(timeout=1)
    for wrong in (None, f, 5, "text", case):
        with pytest.raises(TypeError, match="expected cases made by"):
            select(case.get(f), wrong)
    with pytest.raises(TypeError, match="made by coro.case.get"):
        case()
    for make, wrong in [
        (case.get, [1]),
        (case.get, semaphore(1)),
        (case.acquire, mutex()),
        (case.lock, rw_lock()),
        (case.wait, barrier(2)),
        (case.join, 5),
        (case.join, None),
        (case.read, None),
        (case.read, True),
        (case.write, "text"),
    ]:
        with pytest.raises(TypeError, match="expected"):
            make(wrong)
    with pytest.raises(TypeError, match="expected a coro.fifo"):
        case.put([], 1)
    for wrong in (-1, 2**40):
        with pytest.raises(ValueError, match="from 0 to"):
            case.read(wrong)
    with pytest.raises(ValueError):
        case.acquire(semaphore(1), -1)
    with pytest.raises(TypeError):
        select(case.get(f), timeout="1")
    with pytest.raises(ValueError):
        select(case.get(f), timeout=float("nan"))

    class Odd:
        def fileno(self):
            return "five"

    with pytest.raises(TypeError, match="fileno"):
        select(case.read(Odd()), timeout=0)


def test_a_case_is_in_one_select_once():
    def main():
        f, log = fifo(), []
        first = case.get(f)
        with pytest.raises(RuntimeError, match="in use already"):
            select(first, first)
        t = start(log, "t", lambda: select(first).value)
        settle()
        with pytest.raises(RuntimeError, match="in use already"):
            select(case.get(fifo()), first)
        f.push(1)
        t.join()
        assert log == [("t", 1)]
        f.push(2)
        assert select(first) is first and first.value == 2

    coro.run(main)


@in_loop
def test_the_same_object_twice():
    f, e, m, cv, log = fifo(), event(), mutex(), condition_variable(), []
    a, b = coro.socketpair()
    m.lock()
    both = [one for _ in range(2) for one in (case.get(f), case.wait(e), case.lock(m), case.wait(cv), case.read(a))]
    for make_it_happen, kinds in [
        (lambda: f.push("x"), {"get"}),
        (e.set, {"wait"}),
        (m.unlock, {"lock"}),
        (lambda: cv.wake_all("all"), {"wait"}),
        (lambda: b.send(b"x"), {"read"}),
    ]:
        t = start(log, "t", lambda both=both: select(*both).kind)
        settle()
        make_it_happen()
        t.join()
        assert log[-1][1] in kinds
        e.clear()
        m._locked or m.lock()
        assert f.waiting == e.waiting == cv.waiting == ()
        if m.owner is not coro.current():
            m = mutex()
            m.lock()
            both = [case.wait(e), case.wait(cv), case.wait(cv), case.read(a), case.read(a)]
    t = start(log, "t", lambda: select(case.wait(cv), case.wait(cv)))
    settle()
    cv.raise_all(Stop)
    t.join()
    assert log[-1] == ("t", Stop)
    a.close()
    b.close()


# ------------------------------------------------------------------------------------------------- one thing only


@in_loop
def test_two_grants_before_the_thread_runs():
    """The second value stays where it is, to be had at once by anybody."""
    one, two, log = fifo(), channel(1), []
    cases = case.get(one), case.get(two)
    t = start(log, "t", lambda: select(*cases).value)
    settle()
    one.push(1)
    assert two.waiting == ()
    two.put(2)
    assert two.get_nowait() == 2
    t.join()
    assert log == [("t", 1)] and cases[1].value is None


@in_loop
def test_first_come_first_served_among_selects_and_ordinary_waiters():
    f, other, log = fifo(), fifo(), []
    threads = [
        start(log, "a", f.pop),
        start(log, "b", lambda: select(case.get(other), case.get(f)).value),
        start(log, "c", f.pop),
        start(log, "d", lambda: select(case.get(f), case.get(other)).value),
    ]
    settle()
    assert f.waiting == tuple(threads)
    for n in range(4):
        f.push(n)
    settle()
    assert log == [("a", 0), ("b", 1), ("c", 2), ("d", 3)] and other.waiting == ()


@in_loop
def test_interrupted_after_the_grant_it_goes_to_the_next():
    f, s, m, cv, full = fifo(), semaphore(0), mutex(), condition_variable(), fifo(1)
    m.lock()
    full.push("full")
    for make, give, wait in [
        (lambda: case.get(f), lambda: f.push("x"), f.pop),
        (lambda: case.acquire(s), s.release, s.acquire),
        (lambda: case.lock(m), m.unlock, m.lock),
        (lambda: case.wait(cv), lambda: cv.wake_one("x"), cv.wait),
        (lambda: case.put(full, "y"), full.pop, lambda: full.push("z")),
    ]:
        log = []
        threads = [start(log, n, lambda make=make: select(make(), case.get(fifo()))) for n in range(3)]
        settle()
        last = start(log, "last", wait)
        settle()
        threads[0].raise_exception(Stop)  # before the grant
        give()
        threads[1].raise_exception(Stop)  # after it
        threads[2].shutdown()
        settle()
        assert last.dead and log[-1][0] == "last" and log[-1][1] not in (Stop, coro.Shutdown)
        assert sorted(log[:-1], key=str) == [(0, Stop), (1, Stop), (2, coro.Shutdown)]
    assert full.pop() == "z"


@in_loop
def test_a_departure_lets_others_in():
    """A select that wanted much and leaves makes room for who wants little."""
    s, e, log = semaphore(1), event(), []
    t = start(log, "much", lambda: select(case.acquire(s, 5), case.wait(e)).kind)
    settle()
    start(log, "little", s.acquire)
    settle()
    assert log == []
    e.set()
    t.join()
    settle()
    assert log == [("much", "wait"), ("little", True)]


@in_loop
def test_woken_for_no_reason():
    f, log = fifo(), []
    t = start(log, "t", lambda: select(case.get(f), case.get(fifo())).value)
    for _ in range(3):
        settle()
        t.schedule("for no reason")
    settle()
    assert f.waiting == (t,)
    f.push(1)
    t.join()
    assert log == [("t", 1)]


# ------------------------------------------------------------------------------------------------- rendezvous


@in_loop
def test_two_selects_meet_in_a_channel_without_capacity():
    c, log = channel(0), []
    start(log, "taker", lambda: select(case.get(c), case.get(fifo())).value)
    settle()
    start(log, "giver", lambda: select(case.put(c, "value"), case.get(fifo())).kind)
    settle()
    assert sorted(log) == [("giver", "put"), ("taker", "value")] and len(c) == 0 and c.waiting == ()


@in_loop
def test_nobody_meets_himself():
    c, log = channel(0), []
    t = start(log, "t", lambda: select(case.get(c), case.put(c, "mine")).kind)
    settle()
    assert log == [] and c.waiting == (t, t)
    # Another one that offers both exchanges with the first.
    other = start(log, "other", lambda: select(case.put(c, "yours"), case.get(c)).kind)
    settle()
    assert t.dead and other.dead and sorted(kind for _, kind in log) == ["get", "put"]
    assert len(c) == 0 and c.waiting == ()
    # An ordinary giver is not held up by a select that waits for a partner.
    t = start(log, "t", lambda: select(case.get(c), case.put(c, "mine")).kind)
    settle()
    assert c.try_put("from outside") is False
    t.join()
    assert log[-1] == ("t", "get")
    t = start(log, "t", lambda: select(case.get(c), case.put(c, "mine")).kind)
    settle()
    assert c.get() == "mine"
    t.join()
    assert log[-1] == ("t", "put")


@in_loop
def test_the_taker_goes_elsewhere_after_the_giver_was_told_to_come():
    c, other, log = channel(0), fifo(), []
    giver = start(log, "giver", lambda: select(case.put(c, "value"), case.get(fifo())).kind)
    settle()
    taker = start(log, "taker", lambda: select(case.get(c), case.get(other)).value)
    # Runs after the taker has come and before the giver, which is told of that.
    coro.spawn(other.push, "elsewhere")
    settle()
    assert taker.dead and c.waiting == (giver,) and log == [("taker", "elsewhere")]
    assert c.get() == "value"
    giver.join()
    assert log[-1] == ("giver", "put")
