"""Queues of work as cases of coro.select: one operation, in turn with everybody else, and nothing lost."""

import pytest
from support import in_jumping_run, in_loop

import coro
from coro import case, select

KINDS = [coro.queue, coro.lifo_queue, coro.priority_queue]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@each_kind
@in_loop
def test_what_need_not_wait(kind):
    q = kind()
    taken, put = case.get(q), case.put(q, 5)
    assert select(taken, timeout=0) is None
    assert select(put) is put and put.value is None and len(q) == q.unfinished_tasks == 1
    assert select(taken) is taken and taken.value == 5 and len(q) == 0
    assert (taken.kind, put.kind, taken.what) == ("get", "put", q)
    q.task_done()
    q.join(timeout=0)


@each_kind
@in_loop
def test_waiting_for_a_value_and_for_room(kind):
    q, other = kind(1), coro.fifo()
    t = coro.spawn(lambda: select(case.get(other), case.get(q)).value)
    coro.yield_slice()
    assert q.statistics().getters_waiting == 1
    q.put(1)
    assert t.get() == 1
    q.put(2)
    t = coro.spawn(select, case.put(q, 3), case.get(other))
    coro.yield_slice()
    assert q.statistics().putters_waiting == 1
    assert q.get() == 2
    assert t.get().kind == "put" and q.get() == 3
    assert other.statistics().takers_waiting == 0


@each_kind
@in_loop
def test_in_turn_with_others(kind):
    q, log = kind(), []
    for name in "abc":
        if name == "b":
            coro.spawn(lambda: log.append(("b", select(case.get(q), case.get(coro.fifo())).value)))
        else:
            coro.spawn(lambda name=name: log.append((name, q.get())))
    coro.yield_slice()
    for number in range(3):
        q.put(number)
        coro.yield_slice()
    assert log == [("a", 0), ("b", 1), ("c", 2)]


@each_kind
@in_jumping_run
def test_an_interruption_at_the_last_moment_gives_the_value_to_the_next(kind):
    q = kind()
    chosen = coro.spawn(select, case.get(q), case.get(coro.fifo()))
    patient = coro.spawn(q.get)
    coro.yield_slice()
    q.put("value")
    chosen.shutdown()
    assert patient.get() == "value"
    with pytest.raises(coro.CancelledError):
        chosen.get()
    assert select(case.get(q), timeout=3) is None
    q = kind(1)
    q.put(1)
    chosen = coro.spawn(select, case.put(q, 2), case.get(coro.fifo()))
    patient = coro.spawn(q.put, 3)
    coro.yield_slice()
    assert q.get() == 1
    chosen.shutdown()
    patient.join()
    assert q.get() == 3 and q.unfinished_tasks == 2


@each_kind
@pytest.mark.parametrize("immediate", [False, True])
@in_loop
def test_the_end_of_a_queue(kind, immediate):
    q = kind(1)
    taker = coro.spawn(select, case.get(q), case.get(coro.fifo()))
    coro.yield_slice()
    q.shutdown(immediate)
    with pytest.raises(coro.QueueShutDown):
        taker.get()
    for one in (case.get(q), case.put(q, 1)):
        with pytest.raises(coro.QueueShutDown):
            select(one)
    q = kind(1)
    q.put(1)
    giver = coro.spawn(select, case.put(q, 2), case.get(coro.fifo()))
    coro.yield_slice()
    q.shutdown(immediate)
    with pytest.raises(coro.QueueShutDown):
        giver.get()
    if not immediate:
        assert select(case.get(q)).value == 1


@in_loop
def test_a_comparison_that_fails_puts_nothing():
    q = coro.priority_queue(2)
    q.put(1)
    with pytest.raises(TypeError, match="not supported"):
        select(case.put(q, "text"))
    assert q.statistics()[:2] == (1, 2) and q.unfinished_tasks == 1
    q.put(0)
    assert (q.get(), q.get()) == (0, 1)


@in_loop
def test_what_can_only_be_waited_for_alone():
    for other in (coro.pool(1), coro.rate_limiter(1)):
        with pytest.raises(TypeError, match=r"spawn a thread that waits and use coro\.case\.join"):
            case.acquire(other)
    with pytest.raises(TypeError, match=r"coro\.queue to get"):
        case.get(coro.mutex())
    with pytest.raises(TypeError, match=r"coro\.queue to put"):
        case.put([], 1)


@in_loop
def test_reports_name_the_queue():
    q = coro.queue()
    t = coro.spawn(select, case.get(q), case.get(coro.fifo()))
    coro.yield_slice()
    assert "to get from <queue with 0 values" in str(coro.wait_graph())
    t.shutdown()
