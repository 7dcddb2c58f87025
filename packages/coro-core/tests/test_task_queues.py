"""coro.queue, lifo_queue, priority_queue: the methods of queue.Queue, interruptions, shutting down, and a model."""

import os
import queue as standard
import random
import sys

import pytest
from support import in_jumping_run

import coro

KINDS = [coro.queue, coro.lifo_queue, coro.priority_queue]
each_kind = pytest.mark.parametrize("kind", KINDS)


def waiting(call, *args, **kwargs):
    """A thread that waits in the call."""
    t = coro.spawn(call, *args, **kwargs)
    coro.yield_slice()
    assert not t.dead
    return t


@pytest.mark.parametrize("kind, out", [(KINDS[0], [3, 1, 2, 1]), (KINDS[1], [1, 2, 1, 3]), (KINDS[2], [1, 1, 2, 3])])
def test_order(kind, out):
    q = kind()
    assert q.empty() and not q.full() and len(q) == q.qsize() == 0 and q
    for n in (3, 1, 2, 1):
        q.put(n)
    assert len(q) == 4 and "4 values" in repr(q)
    assert [q.get() for _ in out] == out
    with pytest.raises(standard.Empty, match="no value"):
        q.get_nowait()
    with pytest.raises(coro.TimeoutError):
        q.get(timeout=0)
    with pytest.raises(coro.YieldFromMain):
        q.get()


def test_equal_ranks_keep_their_order_and_failed_comparisons_put_nothing():
    class Job:
        def __init__(self, rank, name):
            self.rank, self.name = rank, name

        def __lt__(self, other):
            return self.rank < other.rank

    q = coro.priority_queue(maxsize=7)
    for rank, name in ((1, "b"), (0, "a"), (1, "c"), (2, "e"), (1, "d")):
        q.put(Job(rank, name))
    with pytest.raises(TypeError):
        q.put(3)
    q.put(Job(3, "f"))
    assert "".join(q.get().name for _ in range(6)) == "abcdef"
    q.put(1)
    with pytest.raises(TypeError):
        q.put("1")
    for _ in range(6):
        q.put_nowait(2)
    with pytest.raises(standard.Full):
        q.put_nowait(2)


@in_jumping_run
def test_comparisons_that_switch_or_use_the_queue_leave_it_whole():
    class Job:
        does = staticmethod(lambda: None)

        def __init__(self, rank):
            self.rank = rank

        def __lt__(self, other):
            self.does()
            return self.rank < other.rank

    class Odd(Job):
        """Its comparisons do something, the first of them only."""

        def __init__(self, rank, does):
            super().__init__(rank)
            self.once = does

        def does(self):
            once, self.once = self.once, lambda: None
            once()

    def more():
        q.put(Job(0))
        q.get()
        q.get()

    q = coro.priority_queue(maxsize=5)
    for rank in (1, 2, 3):
        q.put(Job(rank))
    with pytest.raises(coro.NoSwitchError):
        q.put(Odd(2, coro.yield_slice))
    assert len(q) == q.unfinished_tasks == 3 and not q.full()
    q.put(Odd(1, more))
    q.put(Odd(4, lambda: q.put(Job(5))))
    assert [q.get().rank for _ in range(len(q))] == [1, 2, 3, 4, 5]
    assert q.unfinished_tasks == 7
    q.put(Job(1))
    with pytest.raises(coro.QueueShutDown):
        q.put(Odd(2, lambda: q.shutdown(immediate=True)))
    assert len(q) == 0 and q.unfinished_tasks == 7


@each_kind
@in_jumping_run
def test_other_os_threads_change_nothing(kind):
    q = kind()
    q.put(1)
    for call in (lambda: q.put(2), q.get, q.task_done, q.shutdown, lambda: q.shutdown(immediate=True)):
        with pytest.raises(coro.WrongThreadError):
            coro.in_thread(call)
    assert q.statistics() == (1, 0, 0, 0, 1, False)
    q.put(3)
    assert sorted([q.get(), q.get()]) == [1, 3]


@each_kind
@in_jumping_run
def test_limits_and_interruptions(kind):
    q = kind(1)
    for call, args in ((q.get, ()), (q.put, (2,))):
        victim, patient = waiting(call, *args), waiting(call, *args)
        name = call.__name__
        with pytest.raises(coro.TimeoutError, match=rf"queue\.{name}\(\).*2 s"):
            call(*args, timeout=2)
        victim.shutdown()
        if call == q.get:
            q.put(1)
            assert patient.get() == 1
            q.put(1)
        else:
            assert q.get() == 1
            patient.join()
            assert q.get() == 2
    assert q.statistics() == (0, 1, 0, 0, 3, False)
    with pytest.raises(TypeError, match="number of seconds"):
        q.get(timeout="1")


@in_jumping_run
def test_work_that_is_done():
    q = coro.queue()
    q.join(timeout=0)
    q.put(1)
    q.put(2)
    joiner = waiting(q.join)
    for _ in range(2):
        q.get()
        with pytest.raises(coro.TimeoutError, match=r"queue\.join"):
            q.join(timeout=1)
        q.task_done()
    joiner.join()
    with pytest.raises(ValueError, match="more often"):
        q.task_done()


@each_kind
@in_jumping_run
def test_shutting_down(kind):
    q = kind(2)
    getter = waiting(q.get)
    q.shutdown()
    with pytest.raises(coro.QueueShutDown, match="no value left"):
        getter.get()
    q = kind(2)
    q.put(1)
    q.put(2)
    putter = waiting(q.put, 3)
    joiner = waiting(q.join)
    q.shutdown()
    assert q.is_shutdown
    for _ in range(2):
        with pytest.raises(coro.QueueShutDown, match="nothing can be put"):
            putter.get()
        with pytest.raises(coro.QueueShutDown, match="nothing can be put"):
            q.put(3)
    assert sorted((q.get(), q.get_nowait())) == [1, 2]
    for call in (q.get, q.get_nowait):
        with pytest.raises(coro.QueueShutDown):
            call()
    q.task_done()
    assert not joiner.dead
    q.task_done()
    joiner.join()


@in_jumping_run
def test_shutting_down_at_once():
    q = coro.queue()
    q.put(1)
    q.put(2)
    q.get()
    joiner = waiting(q.join)
    q.shutdown(immediate=True)
    assert len(q) == 0 and q.unfinished_tasks == 1
    q.task_done()
    joiner.join()
    with pytest.raises(coro.QueueShutDown):
        q.get()


@in_jumping_run
def test_who_was_promised_a_value_when_it_is_dropped():
    q = coro.queue()
    getters = [waiting(q.get) for _ in range(2)]
    q.put(1)  # promised to the first
    q.shutdown(immediate=True)
    for t in getters:
        with pytest.raises(coro.QueueShutDown):
            t.get()


@in_jumping_run
def test_the_last_value_goes_to_a_promise_and_the_others_hear_of_the_end():
    q = coro.queue()
    getters = [waiting(q.get) for _ in range(3)]
    q.put(1)
    q.shutdown()
    assert getters[0].get() == 1
    for t in getters[1:]:
        with pytest.raises(coro.QueueShutDown):
            t.get(timeout=5)


def test_what_is_refused():
    for wrong in ("1", 1.5, True, None):
        with pytest.raises(TypeError, match="maxsize"):
            coro.queue(wrong)
    assert coro.queue(-1).statistics().maxsize == 0
    q = coro.queue()
    q.shutdown()
    if sys.version_info >= (3, 13):
        with pytest.raises(standard.ShutDown):
            q.put(1)


def test_a_model_with_interruptions():
    """Every value comes out once and in order, whatever happens to those who wait; room and values are not lost."""
    seed = int(os.environ.get("CORO_MODEL_SEED") or random.randrange(2**32))
    chance = random.Random(seed)

    def main():
        for kind in KINDS * 3:
            play(kind(chance.choice([0, 1, 3])), chance)

    try:
        coro.run(main)
    except AssertionError as exc:
        raise AssertionError(f"{exc}; CORO_MODEL_SEED={seed} repeats it") from exc


def play(q, chance):
    given, taken, serial = [], [], 0

    def get():
        taken.append(q.get(timeout=1e-9 if chance.random() < 0.2 else None))

    def put(value):
        q.put(value, timeout=1e-9 if chance.random() < 0.2 else None)
        given.append(value)

    threads = []
    for _ in range(600):
        action = chance.random()
        if action < 0.35:
            threads.append(quiet(get))
        elif action < 0.7:
            serial += 1
            threads.append(quiet(put, serial))
        elif action < 0.85 and threads:
            victim = chance.choice(threads)
            victim.shutdown()
        else:
            coro.yield_slice()
        threads = [t for t in threads if not t.dead]
    for _ in range(10):
        coro.yield_slice()
    getters, putters = q.statistics().getters_waiting, q.statistics().putters_waiting
    assert not (getters and len(q)), "a value and somebody who waits for one"
    assert not (putters and not q.full()), "room and somebody who waits for it"
    for t in threads:
        t.shutdown()
    coro.wait(threads)
    while len(q):
        taken.append(q.get_nowait())
    assert sorted(taken) == sorted(given) and len(set(taken)) == len(taken)
    if type(q) is coro.queue:
        assert taken == given


def quiet(function, *args):
    def body():
        try:
            function(*args)
        except coro.TimeoutError:
            pass

    return coro.spawn(body)
