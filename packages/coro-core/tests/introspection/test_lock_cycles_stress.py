"""Many threads lock at random, with time limits and interruptions: every warning of a cycle is true, and none is given
where the order of the locks excludes one.

Whether a warning is true is decided here without the code that gives it: its text names the threads and the locks, and
each thread but the first, which is about to wait, must wait for a lock that the next one holds.

The random choices are repeated by CORO_MODEL_SEED.
"""

import os
import random
import re
import warnings

import pytest

import coro
from coro import testing
from coro._introspection import lock_cycles

THREADS = 40
ROUNDS = 50
LINE = re.compile(r"  thread (\d+) .*waits for (mutex|rw_lock) at (0x[0-9a-f]+)$")


@pytest.fixture(autouse=True)
def nothing_told():
    lock_cycles._told.clear()


@pytest.fixture
def chance():
    seed = int(os.environ.get("CORO_MODEL_SEED") or random.randrange(1 << 32))
    print(f"CORO_MODEL_SEED={seed}")
    return random.Random(seed)


def holders(lock):
    return lock.owners if isinstance(lock, coro.rw_lock) else (lock.owner,)


class Judge:
    """Stands in for ``warnings.showwarning``: counts the true warnings, and keeps the others."""

    def __init__(self, locks):
        self.locks = {f"{id(lock):#x}": lock for lock in locks}
        self.true = 0
        self.false = []

    def __call__(self, message, category, *where, **more):
        text = str(message)
        if category is coro.LockCycleWarning and self.is_true(text):
            self.true += 1
        else:
            self.false.append(text)

    def is_true(self, text):
        steps = [m.groups() for m in map(LINE.match, text.split("\n")) if m]
        if len(steps) < 2 or int(steps[0][0]) != coro.current().id:
            return False
        for (number, _, address), (following, _, _) in zip(steps, steps[1:] + steps[:1], strict=True):
            thread, lock = coro.get_thread_by_id(int(number)), self.locks[address]
            if thread is not coro.current() and thread.waiting_for != ("object", lock):
                return False
            if coro.get_thread_by_id(int(following)) not in holders(lock):
                return False
        return True


def take(chance, lock):
    """A context manager that takes the lock in some way."""
    if isinstance(lock, coro.rw_lock):
        return lock.read() if chance.random() < 0.6 else lock.write()
    return lock


def lock_at_random(chance, locks, in_order):
    """Body of a thread: several locks at a time, for some time, with time limits; interruptions end a round."""
    for _ in range(ROUNDS):
        wanted = sorted(chance.sample(range(len(locks)), chance.randrange(1, 5)))
        if not in_order:
            chance.shuffle(wanted)
        try:
            with coro.timeout(chance.choice([0.002, 0.01, 0.05])):
                nest(chance, [locks[n] for n in wanted])
        except (coro.TimeoutError, coro.WakeUp):
            pass


def nest(chance, locks):
    if not locks:
        coro.sleep_relative(chance.random() * 0.003)
        return
    with take(chance, locks[0]):
        if chance.random() < 0.5:
            coro.yield_slice()
        nest(chance, locks[1:])


def stir(chance, threads):
    """Interrupt threads that wait, until all have ended."""
    while alive := [t for t in threads if not t.dead]:
        coro.sleep_relative(chance.random() * 0.004)
        victim = chance.choice(alive)
        if victim.waiting_for is not None:
            victim.raise_exception(coro.WakeUp)


def run(function, *args):
    """Run it in a loop whose clock jumps at once when all threads wait: nothing comes from outside here."""
    with testing.virtual_clock(autojump=0.0001):
        return coro.run(function, *args)


def stress(chance, in_order):
    locks = [coro.mutex() if n % 3 else coro.rw_lock() for n in range(9)]
    judge = Judge(locks)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = judge
        threads = [coro.spawn(lock_at_random, chance, locks, in_order) for _ in range(THREADS)]
        stir(chance, threads)
        for t in threads:
            t.join()
    assert [t.exception for t in threads if t.exception is not None] == []
    assert judge.false == []
    for lock in locks:
        assert not [t for t in holders(lock) if t is not None]
        assert not (lock.waiting if isinstance(lock, coro.rw_lock) else len(lock))
    return judge.true


@pytest.mark.slow
@pytest.mark.each_python
def test_every_warning_is_true(chance):
    run(stress, chance, False)


@pytest.mark.slow
@pytest.mark.each_python
def test_threads_that_keep_an_order_are_not_warned(chance):
    assert run(stress, chance, True) == 0


def test_the_judge_knows_a_cycle_when_it_sees_one():
    run(two_opposite_threads)


def two_opposite_threads():
    locks = [coro.mutex(), coro.mutex()]
    judge = Judge(locks)

    def opposite(first, second):
        with first:
            coro.yield_slice()
            with second:
                pass

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = judge
        threads = [coro.spawn(opposite, *locks), coro.spawn(opposite, *locks[::-1])]
        for _ in range(3):
            coro.yield_slice()
        a, b = (f"{id(lock):#x}" for lock in locks)
        judge(f"  thread {coro.current().id} 'x' waits for mutex at {a}\n", coro.LockCycleWarning)
        judge(f"  thread {threads[0].id} 'x' waits for mutex at {b}\n" * 2, coro.LockCycleWarning)
        for t in threads:
            t.shutdown()
            t.join()
    assert judge.true == 1 and len(judge.false) == 2
