"""Primitives and containers where the original Shrapnel did something else: what is not part of the tests of one
primitive."""

import pytest
from support import ok

import coro

#: How each primitive is made so that the call would wait.
WOULD_WAIT = {
    "mutex.lock": "m = coro.mutex(); coro.run(m.lock); call = m.lock",
    "rw_lock.read_lock": "m = coro.rw_lock(); coro.run(m.write_lock); call = m.read_lock",
    "rw_lock.write_lock": "m = coro.rw_lock(); coro.run(m.read_lock); call = m.write_lock",
    "semaphore.acquire": "m = coro.semaphore(1); coro.run(m.acquire); call = m.acquire",
    "inverted_semaphore.block_till_zero": "m = coro.inverted_semaphore(1); call = m.block_till_zero",
    "condition_variable.wait": "call = coro.condition_variable().wait",
    "event.wait": "call = coro.event().wait",
    "latch.wait": "call = coro.latch().wait",
    "barrier.wait": "call = coro.barrier(2).wait",
    "fifo.pop": "call = coro.fifo().pop",
    "fifo.pop_all": "call = coro.fifo().pop_all",
    "fifo.push": "m = coro.fifo(1); m.push(1); call = lambda: m.push(2)",
    "channel.receive": "call = coro.channel(1).receive",
    "channel.send": "m = coro.channel(1); m.send(1); call = lambda: m.send(2)",
}


@pytest.mark.parametrize("name", WOULD_WAIT)
def test_waiting_in_main_is_an_error_before_and_after_a_loop(name):
    """After a loop, the original crashed the process."""
    lines = ok(
        f"""
        import coro, warnings
        warnings.simplefilter("ignore")
        {WOULD_WAIT[name]}
        for _ in range(2):
            try:
                call()
            except coro.YieldFromMain:
                print("error")
            coro.run(coro.spawn, int)
        """
    )
    assert lines == ["error", "error"]


def test_a_reader_may_read_again_while_a_writer_waits():
    """It deadlocked with that writer."""
    lock, log = coro.rw_lock(), []

    def read():
        with lock.read():
            coro.yield_slice()
            coro.yield_slice()
            with lock.read():
                log.append("read again")

    def write():
        with lock.write():
            log.append("written")

    def main():
        threads = [coro.spawn(read), coro.spawn(write), coro.spawn(read)]
        for t in threads:
            t.join()

    coro.run(main)
    assert log == ["read again", "written", "read again"]


def test_an_upgrade_from_reader_to_writer_is_refused_at_once():
    def main():
        lock = coro.rw_lock()
        with lock.read(), pytest.raises(coro.LockError):
            lock.write_lock()
        lock.write_lock()
        lock.write_unlock()

    coro.run(main)


def test_try_methods_say_true_when_they_fail():
    def main():
        mutex, lock, semaphore = coro.mutex(), coro.rw_lock(), coro.semaphore(0)
        assert mutex.trylock() is False and lock.try_write_lock() is False
        t = coro.spawn(lambda: (mutex.trylock(), lock.try_read_lock(), lock.try_write_lock(), semaphore.try_acquire(1)))
        t.join()
        assert t.result == (True, True, True, True)
        semaphore.release(1)
        assert semaphore.try_acquire(1) is False

    coro.run(main)


def test_a_wake_with_nobody_waiting_is_lost():
    def main():
        condition = coro.condition_variable()
        assert condition.wake_one("early") is False
        assert condition.wake_n(5) == 0
        assert condition.wake_all() is None
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.001, condition.wait)

    coro.run(main)


def test_an_empty_event_queue():
    queue = coro.event_queue()
    for call in (queue.top, queue.pop, lambda: queue.remove(1, None)):
        with pytest.raises(IndexError):
            call()
    value = object()
    queue.insert(2**63, value)
    assert queue.remove(2**63, value) == 0
    with pytest.raises(IndexError):
        queue.pop()
    assert len(queue) == 0
