"""coro.testing: random order of threads, and orders that are forced."""

import itertools

import pytest

import coro
from coro import testing


@pytest.fixture(autouse=True)
def clean(leaves_nothing, monkeypatch):
    monkeypatch.delenv("CORO_TEST_SEED", raising=False)
    yield


def trace(seed, threads=5, steps=6):
    """The order in which threads take their steps."""
    log = []

    def worker(name):
        for _ in range(steps):
            log.append(name)
            coro.yield_slice()

    def main():
        for name in range(threads):
            coro.spawn(worker, name)
        testing.wait_all_blocked()

    if seed is None:
        coro.run(main)
    else:
        with testing.random_order(seed):
            coro.run(main)
    return log


def test_the_same_seed_gives_the_same_order_and_others_do_not():
    traces = [trace(seed) for seed in range(20)]
    assert traces == [trace(seed) for seed in range(20)]
    assert len({tuple(t) for t in traces}) > 15
    assert trace(None) == list(range(5)) * 6
    for t in traces:
        assert sorted(t) == sorted(list(range(5)) * 6)


def test_the_order_of_a_seed_is_fixed_for_all_machines():
    assert trace(12345, threads=4, steps=2) == ORDER_OF_12345


def test_every_order_of_three_threads_comes_up():
    found = {tuple(trace(seed, threads=3, steps=1)) for seed in range(100)}
    assert found == set(itertools.permutations(range(3)))


def test_threads_that_keep_waking_each_other_do_not_starve_others():
    def main():
        turns = []

        def partner():
            while True:
                value = coro._yield()
                value.schedule(coro.current())

        def other():
            turns.append(len(counted))

        def one():
            for _ in range(1000):
                counted.append(0)
                p.schedule(coro.current())
                coro._yield()

        counted = []
        p = coro.spawn(partner, daemon=True)
        testing.wait_all_blocked()
        t = coro.spawn(one)
        coro.spawn(other)
        t.join()
        assert turns and turns[0] < 100

    for seed in range(20):
        with testing.random_order(seed):
            coro.run(main)


def test_a_race_is_found_and_its_seed_told():
    """Two threads that rely on who runs first: some order breaks it, and the note says which."""

    def main():
        shared = []
        writer = coro.spawn(shared.append, 1)
        reader = coro.spawn(lambda: shared.pop())
        writer.join()
        reader.join()
        if reader.exception is not None:
            raise reader.exception

    def failing():
        for seed in range(100):
            try:
                with testing.random_order(seed):
                    coro.run(main)
            except IndexError as e:
                yield seed, e

    notifier = coro.set_exception_notifier(lambda: None)
    try:
        seed, error = next(failing())
        assert any(f"coro.testing.random_order({seed})" in note for note in error.__notes__)
        with pytest.raises(IndexError), testing.random_order(seed):
            coro.run(main)
        coro.run(main)
    finally:
        coro.set_exception_notifier(notifier)


def test_blocks_nest_and_may_begin_inside_a_loop():
    def main():
        with testing.random_order(1) as outer:
            with testing.random_order() as inner:
                assert inner.seed != outer.seed
                coro.yield_slice()
            coro.yield_slice()
        log = []
        for i in range(10):
            coro.spawn(log.append, i)
        testing.wait_all_blocked()
        assert log == list(range(10))

    coro.run(main)


def test_the_environment_may_give_the_seed(monkeypatch):
    monkeypatch.setenv("CORO_TEST_SEED", "77")
    assert testing.random_order().seed == 77
    assert testing.random_order(3).seed == 3
    monkeypatch.setenv("CORO_TEST_SEED", "many")
    with pytest.raises(ValueError, match="CORO_TEST_SEED"):
        testing.random_order()
    with pytest.raises(TypeError, match="seed as an int"):
        testing.random_order("1")


def test_timers_and_interruptions_work_in_any_order():
    def main():
        with testing.virtual_clock(autojump=True):
            done = []

            def worker(i):
                with pytest.raises(coro.TimeoutError):
                    coro.with_timeout(i, coro.sleep_relative, 1000)
                done.append(i)

            threads = [coro.spawn(worker, i) for i in range(1, 30)]
            stuck = [coro.spawn(coro._yield) for _ in range(10)]
            for t in threads:
                t.join()
            for t in stuck:
                t.shutdown()
                t.join()
            assert sorted(done) == list(range(1, 30))

    for seed in range(10):
        with testing.random_order(seed):
            coro.run(main)


# -- the sequencer


@pytest.mark.parametrize("seed", range(5))
def test_a_sequencer_forces_the_order(seed):
    log = []

    def worker(seq, numbers):
        for n in numbers:
            with seq(n):
                log.append(n)
                coro.yield_slice()
                log.append(n)

    def main():
        seq = testing.sequencer()
        threads = [coro.spawn(worker, seq, n) for n in ((5, 6), (1, 3), (0, 4), (2, 7))]
        for t in threads:
            t.join()

    with testing.random_order(seed):
        coro.run(main)
    assert log == sorted([*range(8)] * 2)


def test_numbers_are_used_once():
    def main():
        seq = testing.sequencer()
        with seq(0):
            pass
        with pytest.raises(RuntimeError, match="used before"), seq(0):
            pass
        with pytest.raises(ValueError, match="at least 0"), seq(-1):
            pass
        assert "turn of 1" in repr(seq)

    coro.run(main)


def test_a_broken_sequence_ends_everybody():
    outcomes = []

    def worker(seq, n):
        try:
            with seq(n):
                outcomes.append(n)
        except testing.BrokenSequence as e:
            outcomes.append(str(e))

    def main():
        seq = testing.sequencer()
        victim = coro.spawn(worker, seq, 1)
        for n in (2, 3):
            coro.spawn(worker, seq, n)
        testing.wait_all_blocked()
        victim.shutdown()
        testing.wait_all_blocked()
        with pytest.raises(testing.BrokenSequence, match="number 1 was left by Shutdown"), seq(0):
            pass
        with pytest.raises(testing.BrokenSequence), seq(4):
            pass

    coro.run(main)
    assert len(outcomes) == 2 and all("number 1" in o for o in outcomes)


def test_a_block_that_fails_breaks_the_sequence():
    def main():
        seq = testing.sequencer()
        with pytest.raises(KeyError), seq(0):
            raise KeyError
        with pytest.raises(testing.BrokenSequence, match="left by KeyError"), seq(1):
            pass

    coro.run(main)


ORDER_OF_12345 = [3, 1, 0, 2, 2, 1, 0, 3]
