"""``timeout=`` of everything that threads wait for: one meaning everywhere, and no damage when it strikes.

The kinds are in one table, so that what holds for all is tested for all. Interleavings by chance are in
test_sync_model.py.
"""

import queue

import pytest
from support import in_jumping_run
from sync_names import (
    barrier,
    channel,
    condition_variable,
    event,
    fifo,
    inverted_semaphore,
    latch,
    mutex,
    rw_lock,
    semaphore,
    settle,
)

import coro


class Kind:
    """One call that waits: on what, how it is made to wait, and what ends the wait of one thread."""

    def __init__(self, name, make, call, give, text, **more):
        self.name, self.make, self.call, self.give, self.text = name, make, call, give, text
        #: What holds it back is given up again by the thread that waited: locks.
        self.undo = more.get("undo", lambda what: None)
        #: Does one give() let everybody go?
        self.for_all = more.get("for_all", False)
        #: A state in which the call need not wait; None: there is none.
        self.ready = more.get("ready")


#: Who holds a lock, until let_go().
lock_of = {}


def hold_mutex():
    m = mutex()

    def body():
        with m:
            coro._yield()

    lock_of[id(m)] = coro.spawn(body)
    coro.yield_slice()
    return m


def hold_rw(side):
    lock = rw_lock()

    def body():
        with getattr(lock, side)():
            coro._yield()

    lock_of[id(lock)] = coro.spawn(body)
    coro.yield_slice()
    return lock


def let_go(lock):
    lock_of.pop(id(lock)).schedule()


def full(make, put):
    q = make()
    getattr(q, put)("first")
    return q


KINDS = [
    Kind("mutex", hold_mutex, "lock", let_go, "mutex.lock()", undo=mutex.unlock, ready=mutex),
    Kind("mutex by acquire", hold_mutex, "acquire", let_go, "mutex.lock()", undo=mutex.release, ready=mutex),
    Kind(
        "reader", lambda: hold_rw("write"), "read_lock", let_go, "rw_lock.read_lock()", undo=rw_lock.read_unlock,
        ready=rw_lock, for_all=True,
    ),
    Kind(
        "writer", lambda: hold_rw("read"), "write_lock", let_go, "rw_lock.write_lock()", undo=rw_lock.write_unlock,
        ready=rw_lock,
    ),
    Kind(
        "semaphore", lambda: semaphore(0), "acquire", lambda s: s.release(), "semaphore.acquire()",
        ready=lambda: semaphore(1),
    ),
    Kind(
        "zero", lambda: inverted_semaphore(1), "block_till_zero", lambda s: s.release(),
        "inverted_semaphore.block_till_zero()", for_all=True, ready=inverted_semaphore,
    ),
    Kind("condition", condition_variable, "wait", lambda c: c.wake_one(), "condition_variable.wait()"),
    Kind("event", event, "wait", lambda e: e.set(), "event.wait()", for_all=True),
    Kind("latch", latch, "wait", lambda c: c.count_down(), "latch.wait()", for_all=True, ready=lambda: latch(0)),
    Kind("barrier", lambda: barrier(2), "wait", None, "barrier.wait()", ready=None),
    Kind("pop", fifo, "pop", lambda q: q.push(1), "fifo.pop()", ready=lambda: full(fifo, "push")),
    Kind("pop_all", fifo, "pop_all", lambda q: q.push(1), "fifo.pop()", ready=lambda: full(fifo, "push")),
    Kind("get", channel, "get", lambda q: q.put(1), "channel.get()", ready=lambda: full(channel, "put")),
    Kind("receive", channel, "receive", lambda q: q.put(1), "channel.get()"),
    Kind(
        "push", lambda: full(lambda: fifo(1), "push"), ("push", "x"), lambda q: q.pop(), "fifo.push()",
        ready=lambda: fifo(1),
    ),
    Kind(
        "push_front", lambda: full(lambda: fifo(1), "push"), ("push_front", "x"), lambda q: q.pop(), "fifo.push()",
        ready=fifo,
    ),
    Kind("put", lambda: full(channel, "put"), ("put", "x"), lambda q: q.get(), "channel.put()", ready=channel),
    Kind("send", lambda: full(channel, "put"), ("send", "x"), lambda q: q.get(), "channel.put()"),
    Kind("rendezvous", lambda: channel(0), ("put", "x"), lambda q: q.get(), "channel.put()"),
]  # fmt: skip

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def caller(kind, what):
    """The call with everything but its timeout."""
    name, *arguments = (kind.call,) if isinstance(kind.call, str) else kind.call
    return lambda **limit: getattr(what, name)(*arguments, **limit)


@each_kind
@in_jumping_run
def test_nothing_is_waited_for_with_0(kind):
    what = kind.make()
    call, before, log = caller(kind, what), coro.get_now(), []
    coro.spawn(log.append, "somebody else ran")
    for seconds in (0, -3, 0.0):
        with pytest.raises(coro.TimeoutError) as info:
            call(timeout=seconds)
        assert kind.text in str(info.value)
    assert log == [] and coro.get_now() == before
    assert what.waiting == ()


@each_kind
@in_jumping_run
def test_the_time_is_over(kind):
    what = kind.make()
    call, before = caller(kind, what), coro.get_now()
    with pytest.raises(coro.TimeoutError) as info:
        call(timeout=2)
    assert kind.text in str(info.value) and "2 s" in str(info.value)
    assert 2 <= (coro.get_now() - before) / coro.ticks_per_sec < 2.5
    assert what.waiting == ()
    coro.sleep(5)  # and it does not strike later


@each_kind
@in_jumping_run
def test_given_in_time(kind):
    def waiter():
        result = call(timeout=2)
        kind.undo(what)
        return result

    what = kind.make()
    call = caller(kind, what)
    t = coro.spawn(waiter)
    coro.sleep(1)
    plain = coro.spawn(call)
    coro.yield_slice()
    if kind.give is None:
        assert (t.get(), plain.get()) == (0, 1)  # a barrier
        return
    kind.give(what)
    result = t.get()
    if kind.for_all or kind.name == "condition":
        if not kind.for_all:
            kind.give(what)
        assert plain.get() == result
    coro.sleep(5)


@each_kind
@in_jumping_run
def test_the_limit_of_a_block_outside_is_another(kind):
    what = kind.make()
    call = caller(kind, what)
    with coro.move_on_after(1) as scope:
        call(timeout=2)
    assert scope.expired
    with coro.move_on_after(2) as scope, pytest.raises(coro.TimeoutError, match="timeout of 1 s"):
        call(timeout=1)
    assert not scope.expired
    assert what.waiting == ()


@pytest.mark.parametrize("kind", [k for k in KINDS if k.give], ids=lambda kind: kind.name)
@in_jumping_run
def test_others_keep_their_places(kind):
    log, what = [], kind.make()
    call = caller(kind, what)

    def waiter(name, **limit):
        try:
            call(**limit)
        except coro.TimeoutError:
            log.append(f"{name} gave up")
        else:
            log.append(name)
            kind.undo(what)

    threads = [coro.spawn(waiter, "a"), coro.spawn(waiter, "b", timeout=1), coro.spawn(waiter, "c", timeout=9)]
    coro.sleep(2)
    assert log == ["b gave up"]
    assert what.waiting == (threads[0], threads[2])
    kind.give(what)
    settle()
    if not kind.for_all and not lockish(kind):
        assert log == ["b gave up", "a"]
        kind.give(what)
        settle()
    assert log == ["b gave up", "a", "c"]


def lockish(kind):
    return kind.give is let_go


@pytest.mark.parametrize("kind", [k for k in KINDS if k.give], ids=lambda kind: kind.name)
@in_jumping_run
def test_what_is_given_in_the_last_moment_counts(kind):
    def waiter():
        call(timeout=1)
        kind.undo(what)
        return "had it"

    what = kind.make()
    call = caller(kind, what)
    t = coro.spawn(waiter)
    coro.sleep(0.5)
    giver = coro.spawn(kind.give, what)
    coro.sleep(0.5)  # both are due by now
    giver.join()
    assert t.get() == "had it"


@pytest.mark.parametrize("kind", [k for k in KINDS if k.ready], ids=lambda kind: kind.name)
@in_jumping_run
def test_what_need_not_wait_looks_at_the_argument_only(kind):
    for seconds in (None, 0, 1.5, 10**400, float("inf")):
        caller(kind, kind.ready())(timeout=seconds)
    call = caller(kind, kind.ready())
    for wrong, error in (("1", TypeError), (float("nan"), ValueError)):
        with pytest.raises(error, match="number of seconds"):
            call(timeout=wrong)


@each_kind
@in_jumping_run
def test_what_is_no_number(kind):
    what = kind.make()
    call = caller(kind, what)
    for wrong, error in (("1", TypeError), ([], TypeError), (float("nan"), ValueError)):
        with pytest.raises(error, match="number of seconds"):
            call(timeout=wrong)
    assert what.waiting == ()


@pytest.mark.parametrize(
    "what, call", [(fifo(), "pop"), (channel(), "get"), (event(), "wait"), (latch(), "wait"), (semaphore(0), "acquire")]
)
def test_trying_works_without_a_loop(what, call):
    with pytest.raises(coro.TimeoutError):
        getattr(what, call)(timeout=0)
    with pytest.raises(coro.YieldFromMain):
        getattr(what, call)(timeout=1)


@in_jumping_run
def test_units_are_not_lost():
    """A limit that strikes after the grant, and before the thread has run, gives back what was granted."""
    s = semaphore(0)
    limited = [coro.spawn(s.acquire, 1, 1) for _ in range(5)]
    coro.sleep(0.5)
    patient = [coro.spawn(s.acquire) for _ in range(5)]
    coro.sleep(0.499999)
    for _ in range(5):
        s.release()
        coro.yield_slice()
    coro.sleep(2)
    had = sum(t.exception is None for t in limited)
    assert had + sum(t.dead for t in patient) == 5
    assert s.avail == 0
    s.release(had)
    coro.wait(patient)


@in_jumping_run
def test_the_last_at_a_barrier_need_not_wait():
    b = barrier(2)
    first = coro.spawn(b.wait)
    coro.yield_slice()
    assert b.wait(timeout=0) == 1
    assert first.get() == 0
    with pytest.raises(coro.TimeoutError):
        b.wait(timeout=1)  # has not come, then
    other = coro.spawn(b.wait)
    coro.yield_slice()
    assert (b.wait(timeout=5), other.get()) == (1, 0)


@in_jumping_run
def test_the_line_of_a_fifo():
    f = fifo()
    with pytest.raises(coro.TimeoutError):
        f.cv.wait(timeout=1)
    f.push(1)
    f.cv.wait(timeout=0)
    assert f.pop() == 1


# ------------------------------------------------------------------------------------------------- usual polarity


@in_jumping_run
def test_acquire_answers_the_usual_way():
    m = mutex()
    assert m.acquire() is True and m.acquire(blocking=False) is True
    assert coro.spawn(m.acquire, blocking=False).get() is False
    m.release()
    m.release()
    assert m.owner is None
    s = semaphore(1)
    assert s.acquire() is True
    assert s.acquire(blocking=False) is False
    assert s.acquire(0, blocking=False) is True
    lock = rw_lock()
    assert lock.read().acquire() is True and lock.read().acquire(blocking=False) is True
    assert coro.spawn(lock.write().acquire, blocking=False).get() is False
    lock.read().release()
    lock.read().release()
    assert lock.write().acquire(timeout=0) is True
    assert coro.spawn(lock.read().acquire, False).get() is False
    lock.write().release()
    for what in (m, s, lock.read(), lock.write()):
        with pytest.raises(ValueError, match="contradict"):
            what.acquire(blocking=False, timeout=1)
    with pytest.raises(coro.LockError):
        m.release()


@in_jumping_run
def test_putting_without_waiting():
    f = fifo(1)
    f.push_nowait(1)
    with pytest.raises(queue.Full, match="no room"):
        f.push_nowait(2)
    c = channel(1)
    c.put_nowait(1)
    with pytest.raises(queue.Full, match="no room"):
        c.put_nowait(2)
    c.close()
    with pytest.raises(coro.ChannelClosed):
        c.put_nowait(3)
    assert (f.pop(), c.get()) == (1, 1)
