"""Micro-threads and micro-pipes: results, pipes, pipelines, and what becomes of either end when the other one goes."""

import gc

import pytest

import coro
from coro import microthreads as mt

pytestmark = pytest.mark.usefixtures("leaves_nothing")


@pytest.fixture
def notes():
    """What the exception notifier was told, as types."""
    import sys

    told = []
    before = coro.set_exception_notifier(lambda: told.append(sys.exc_info()[0]))
    yield told
    coro.set_exception_notifier(before)


class Sentinel(Exception):
    """Raised by functions under test."""


def fail(*args, **kws):
    raise Sentinel("failed")


# -- threads


def test_forgotten_functions_run_and_their_failures_reach_the_handler(notes):
    seen = []

    def main():
        mt.start_and_forget(lambda a, b=0: seen.append((a, b)), 1, b=2)
        mt.start_and_forget(fail, exception_handler=lambda error: seen.append(type(error)))
        mt.start_and_forget(fail)
        mt.start_and_forget(fail, exception_handler=fail)
        mt.start_and_forget(coro._yield, exception_handler=seen.append)
        coro.yield_slice()
        list(coro.all_threads.values())[-1].shutdown()
        coro.yield_slice()

    coro.run(main)
    assert seen == [(1, 2), Sentinel]
    assert notes == [Sentinel, Sentinel]


def test_keywords_of_the_function_are_its_own():
    seen = []

    def main():
        mt.start_and_forget(lambda **kws: seen.append(kws), thread_name="x", function=1, args=2)
        thread = mt.start_in_parallel(lambda **kws: kws, thread_name="x", function=1, self=3)
        assert thread.wait() == {"thread_name": "x", "function": 1, "self": 3}
        assert list(mt.generate(lambda **kws: mt.put(kws), self=1, function=2)) == [{"self": 1, "function": 2}]

    coro.run(main)
    assert seen == [{"thread_name": "x", "function": 1, "args": 2}]


def test_wait_returns_the_result_again_and_again():
    def main():
        thread = mt.start_in_parallel(lambda x: x * 2, 21)
        assert not thread.done
        assert thread.wait() == 42
        assert thread.done
        assert thread.wait() == 42
        assert "done" in repr(thread)

    coro.run(main)


def test_wait_raises_what_the_function_raised_with_its_traceback():
    def main():
        thread = mt.start_in_parallel(fail)
        lengths = []
        for _ in range(3):
            with pytest.raises(Sentinel) as caught:
                thread.wait()
            lengths.append(len(caught.traceback))
            assert caught.traceback[-1].name == "fail"
        assert len(set(lengths)) == 1

    coro.run(main)


@pytest.mark.parametrize("started", [True, False])
def test_wait_for_a_thread_that_was_shut_down(started):
    def main():
        thread = mt.start_in_parallel(coro._yield)
        if started:
            coro.yield_slice()
        thread.thread.shutdown()
        with pytest.raises(mt.ThreadEnded, match="_yield"):
            thread.wait()

    coro.run(main)


def test_a_failure_nobody_waits_for_is_reported(capsys, monkeypatch):
    told = []
    monkeypatch.setattr("coro.microthreads._threads.print_stderr", told.append)

    def main():
        mt.start_in_parallel(fail)
        asked = mt.start_in_parallel(fail)
        coro.yield_slice()
        with pytest.raises(Sentinel):
            asked.wait()

    coro.run(main)
    gc.collect()
    assert len(told) == 1
    assert "fail failed, and nobody has waited for it" in told[0]
    assert "Sentinel" in told[0]


def test_what_cannot_be_called():
    def main():
        for start in (mt.start_and_forget, mt.start_in_parallel, mt.generate, mt.micro_pipe().feed):
            with pytest.raises(TypeError, match="expected a function"):
                start(5)
        with pytest.raises(TypeError, match="expected a function"):
            mt.start_and_forget(print, exception_handler=5)

    coro.run(main)


# -- pipes


def odd(n):
    mt.take_from(range(1, n, 2))


def even(n):
    mt.take_from(range(2, n, 2))


def odd_even(n):
    odd(n)
    even(n)


def test_a_generating_function_delegates_by_calling():
    assert coro.run(lambda: list(mt.generate(odd_even, 10))) == [1, 3, 5, 7, 9, 2, 4, 6, 8]


def test_a_producer_waits_for_its_reader():
    put = []

    def numbers():
        for n in range(100):
            mt.put(n)
            put.append(n)

    def main():
        pipe = mt.generate(numbers)
        coro.yield_slice()
        assert 0 < len(put) < 20
        assert next(pipe) == 0
        assert list(pipe) == list(range(1, 100))
        with pytest.raises(StopIteration):
            next(pipe)

    coro.run(main)


def test_a_failure_comes_after_the_values_and_once():
    def numbers():
        mt.put(1)
        mt.put(2)
        fail()

    def main():
        pipe = mt.generate(numbers)
        assert next(pipe) == 1
        assert next(pipe) == 2
        with pytest.raises(Sentinel) as caught:
            next(pipe)
        assert caught.traceback[-1].name == "fail"
        with pytest.raises(StopIteration):
            next(pipe)

    coro.run(main)


def test_a_put_after_close_ends_the_producer_silently(notes):
    log = []

    def numbers():
        try:
            for n in range(100):
                mt.put(n)
        except Exception:
            log.append("caught")
        finally:
            log.append("finally")
        log.append("after")

    def main():
        pipe = mt.generate(numbers)
        assert next(pipe) == 0
        pipe.close()
        coro.yield_slice()
        assert log == ["finally"]
        return list(pipe)

    assert len(coro.run(main)) < 20
    assert notes == []


def test_a_reader_that_goes_away_ends_the_producer(notes):
    log = []

    def numbers():
        try:
            n = 0
            while True:
                mt.put(n)
                n += 1
        finally:
            log.append("ended")

    def main():
        for n in mt.generate(numbers):
            if n == 50:
                break
        coro.yield_slice()
        assert log == ["ended"]

    coro.run(main)
    assert notes == []


def test_a_failure_after_the_reader_has_gone_is_reported(notes):
    def numbers():
        try:
            while True:
                mt.put(1)
        finally:
            fail()

    def main():
        next(mt.generate(numbers))
        coro.yield_slice()

    coro.run(main)
    assert notes == [Sentinel]


@pytest.mark.parametrize("started", [True, False])
def test_a_producer_that_was_shut_down_is_no_normal_end(started):
    def numbers():
        mt.put(1)
        coro._yield()

    def main():
        before = set(coro.all_threads)
        pipe = mt.generate(numbers)
        (producer,) = set(coro.all_threads) - before
        if started:
            coro.yield_slice()
        coro.get_thread_by_id(producer).shutdown()
        if started:
            assert next(pipe) == 1
        with pytest.raises(mt.ProducerEnded, match="numbers"):
            next(pipe)

    coro.run(main)


def test_pipelines():
    def numbers():
        mt.take_from(range(20))

    def square():
        for n in mt.iter():
            mt.put(n * n)

    def only_even():
        while True:
            try:
                n = mt.next()
            except StopIteration:
                return
            if n % 2 == 0:
                mt.put(n)

    def main():
        assert list(mt.pipeline(numbers, square, only_even)) == [n * n for n in range(0, 20, 2)]
        first = mt.pipeline(numbers, square, only_even, capacity=0)
        assert next(first) == 0

    coro.run(main)


def test_the_end_of_a_reader_ends_the_whole_pipeline(notes):
    ended = []

    def source():
        try:
            while True:
                mt.put(1)
        finally:
            ended.append("source")

    def stage():
        try:
            for n in mt.iter():
                mt.put(n)
        finally:
            ended.append("stage")

    def main():
        with mt.pipeline(source, stage, stage) as pipe:
            assert next(pipe) == 1
        for _ in range(50):
            coro.yield_slice()

    coro.run(main)
    assert ended == ["stage", "stage", "source"]
    assert notes == []


def test_a_failing_stage_is_seen_at_the_end_and_ends_those_before(notes):
    ended = []

    def source():
        try:
            while True:
                mt.put(1)
        finally:
            ended.append("source")

    def stage():
        mt.put(mt.next())
        fail()

    def main():
        pipe = mt.pipeline(source, stage)
        assert next(pipe) == 1
        with pytest.raises(Sentinel):
            next(pipe)
        coro.yield_slice()

    coro.run(main)
    assert ended == ["source"]
    assert notes == []


def test_several_producers_feed_one_pipe():
    def main():
        pipe = mt.micro_pipe(2)
        pipe.feed(odd, 10).feed(even, 10)
        assert sorted(pipe) == list(range(1, 10))
        with pytest.raises(mt.PipeClosed):
            pipe.feed(odd, 10)

    coro.run(main)


def test_a_pipe_in_two_hands():
    def main():
        pipe = mt.micro_pipe(0)
        assert not pipe.closed

        def writer():
            pipe.put(1)
            pipe.take_from([2, 3])
            pipe.close()

        thread = coro.spawn(writer)
        assert list(pipe) == [1, 2, 3]
        assert pipe.closed
        assert "closed" in repr(pipe)
        pipe.close()
        thread.join()

    coro.run(main)


def test_without_pipes():
    def main():
        for call in (lambda: mt.put(1), lambda: mt.take_from([]), mt.iter, mt.next):
            with pytest.raises(LookupError, match="no standard"):
                call()
        assert list(mt.iter([1, 2])) == [1, 2]
        assert mt.next(iter([5])) == 5
        assert mt.next(iter([]), 6) == 6
        assert list(mt.iter(iter([1, 2, 0]).__next__, 0)) == [1, 2]

    coro.run(main)


def test_threads_started_by_a_producer_have_no_pipes_of_it():
    def inner():
        with pytest.raises(LookupError):
            mt.put(1)
        return True

    def numbers():
        mt.put(mt.start_in_parallel(inner).wait())

    assert coro.run(lambda: list(mt.generate(numbers))) == [True]


@pytest.mark.parametrize("value", [-1, 1.5, None, "x"])
def test_impossible_capacities(value):
    with pytest.raises((TypeError, ValueError)):
        mt.micro_pipe(value)


def test_interrupting_either_side_at_each_wait_loses_and_leaves_nothing():
    def main():
        for at in range(6):
            got = []
            pipe = mt.micro_pipe(1)
            pipe.feed(mt.take_from, range(5))

            def read(pipe=pipe, got=got):
                for item in pipe:
                    got.append(item)

            reader = coro.spawn(read)
            for _ in range(at):
                coro.yield_slice()
            if not reader.dead:
                reader.shutdown()
            reader.join()
            got.extend(pipe)
            assert got == list(range(5))

    coro.run(main)


def test_parallel_map_is_the_one_of_coro():
    assert coro.run(lambda: list(mt.parallel_map(lambda x: x + 1, range(3)))) == [1, 2, 3]
