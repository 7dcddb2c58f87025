"""What a forked child can do with queues, pools and rate limiters that other threads of its parent were using."""

import textwrap

import pytest
from support import ok

pytestmark = pytest.mark.poller

#: The child prints nothing: its exit code says how it went.
FRAME = """
    import warnings; warnings.simplefilter("ignore", DeprecationWarning)
    import coro, os, sys, traceback
    coro.set_latency_warning(0)

    def forked(child):
        pid = os.fork()
        if pid == 0:
            try:
                child()
                os._exit(7)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        print(os.waitstatus_to_exitcode(coro.waitpid(pid)[1]))

    def main():
"""


def run(text):
    return ok(textwrap.dedent(FRAME) + textwrap.indent(textwrap.dedent(text), "    ") + "\ncoro.run(main)\n")


@pytest.mark.parametrize("kind", ["queue", "lifo_queue", "priority_queue"])
def test_a_queue_whose_value_and_room_others_had_been_granted(kind):
    assert run(f"""
        q, full = coro.{kind}(), coro.{kind}(1)
        full.put(1)
        getter = coro.spawn(q.get)
        putter = coro.spawn(full.put, 2)
        coro.yield_slice()
        q.put("value")
        assert full.get() == 1      # both have what they wait for, and have not run
        def child():
            assert q.get(timeout=5) == "value"
            full.put(3, timeout=5)
            assert full.get(timeout=5) == 3
            assert q.statistics()[:4] == (0, 0, 0, 0)
        forked(child)
        assert getter.get() == "value"
        putter.join()
        assert full.get() == 2
        print("parent")
    """) == ["7", "parent"]


def test_a_pool_whose_calls_are_gone():
    assert run("""
        pool, gate = coro.pool(2), coro.event()
        running = [pool.spawn(gate.wait), pool.spawn(gate.wait)]
        waiting = coro.spawn(pool.spawn, gate.wait)
        unborn = coro.pool(2)
        coro.yield_slice()
        unborn.spawn(gate.wait)
        def child():
            pool.join(timeout=5)
            unborn.join(timeout=5)
            assert (len(pool), pool.free, pool.threads, len(unborn), unborn.free) == (0, 2, [], 0, 2)
            assert pool.map(str, range(5)) == unborn.map(str, range(5)) == list("01234")
            import gc
            running.clear()
            gc.collect()
            assert (pool.free, unborn.free) == (2, 2)
        forked(child)
        assert len(pool) == 2
        gate.set()
        pool.join()
        waiting.get().join()
        assert (len(pool), pool.free) == (0, 2)
        print("parent")
    """) == ["7", "parent"]


def test_a_pool_one_of_whose_calls_forks():
    assert run("""
        pool, gate = coro.pool(3), coro.event()
        pool.spawn(gate.wait)
        def child():
            assert (len(pool), pool.free, pool.threads) == (1, 2, [coro.current()])
        pool.apply(forked, child)
        gate.set()
        pool.join()
        print(pool.free)
    """) == ["7", "3"]


def test_a_rate_limiter_that_another_thread_waits_for():
    assert run("""
        limiter = coro.rate_limiter(1, per=3600)
        limiter.acquire()
        first, second = coro.spawn(limiter.acquire), coro.spawn(limiter.acquire)
        coro.sleep(0.001)
        assert limiter.statistics().waiting == 2
        def child():
            warnings.simplefilter("error")
            assert limiter.statistics().waiting == 0
            assert limiter.acquire(blocking=False) is False
            limiter._tokens = 1.0           # an hour later
            assert limiter.acquire(blocking=False) is True
            try:
                limiter.acquire(timeout=0.001)
            except coro.TimeoutError:
                pass
            assert limiter.statistics().waiting == 0
        forked(child)
        print(limiter.statistics().waiting)
        first.shutdown()
        second.shutdown()
    """) == ["7", "2"]
