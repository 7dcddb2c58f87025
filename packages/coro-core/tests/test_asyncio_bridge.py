"""asyncio in a thread of coro: results, interruptions, both loops at work side by side, and the end of both."""

import asyncio
import contextlib
import contextvars
import time

import pytest
from support import ok

import coro
from coro import asyncio_bridge

pytestmark = pytest.mark.usefixtures("leaves_nothing")


class Sentinel(Exception):
    """Raised by coroutines under test."""


async def double(x):
    await asyncio.sleep(0)
    return 2 * x


async def fail():
    await asyncio.sleep(0)
    raise Sentinel("failed")


def test_the_result_of_a_coroutine():
    assert coro.run(lambda: [asyncio_bridge.run(double(n)) for n in range(5)]) == [0, 2, 4, 6, 8]


def test_what_a_coroutine_raises():
    def main():
        for _ in range(2):
            with pytest.raises(Sentinel) as caught:
                asyncio_bridge.run(fail())
            assert caught.traceback[-1].name == "fail"

    coro.run(main)


def test_threads_run_while_asyncio_waits_and_the_other_way_round():
    log = []

    async def ticks():
        for _ in range(3):
            await asyncio.sleep(0.01)
            log.append("asyncio")

    def tocks():
        for _ in range(3):
            coro.sleep_relative(0.01)
            log.append("coro")

    def main():
        thread = coro.spawn(tocks)
        asyncio_bridge.run(ticks())
        thread.join()

    coro.run(main)
    assert sorted(log) == ["asyncio"] * 3 + ["coro"] * 3
    assert log[:3].count("asyncio") < 3


def test_an_idle_bridge_costs_nothing():
    def main():
        asyncio_bridge.run(double(1))
        before = coro.statistics().switches
        coro.sleep_relative(0.05)
        assert coro.statistics().switches - before < 10

    coro.run(main)


def test_streams_of_asyncio_talk_to_sockets_of_coro():
    async def ask(port, text):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(text)
        answer = await reader.readexactly(len(text))
        writer.close()
        await writer.wait_closed()
        return answer

    def main():
        listener = coro.tcp_sock()
        listener.bind(("127.0.0.1", 0))
        listener.listen(100)
        port = listener.getsockname()[1]

        def serve():
            while True:
                connection, _ = listener.accept()
                coro.spawn(echo, connection)

        def echo(connection):
            with connection:
                while data := connection.recv(1000):
                    connection.sendall(data)

        server = coro.spawn(serve)
        texts = [b"%d" % n * 100 for n in range(50)]
        assert coro.parallel_map(lambda text: asyncio_bridge.run(ask(port, text)), texts) == texts
        server.shutdown()
        server.join()
        listener.close()

    coro.run(main)


def test_each_call_has_the_context_of_its_thread():
    variable = contextvars.ContextVar("variable")

    async def look():
        await asyncio.sleep(0)
        value = variable.get()
        variable.set("changed")
        return value

    def thread(value):
        variable.set(value)
        assert asyncio_bridge.run(look()) == value
        assert variable.get() == value

    coro.run(lambda: coro.parallel_map(thread, range(5)))


def test_an_interrupted_thread_leaves_at_once_and_the_task_is_cancelled():
    log = []

    async def slow():
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            log.append("cancelled")
            raise
        finally:
            await asyncio.sleep(0)
            log.append("cleaned up")

    def main():
        begun = time.monotonic()
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.02, asyncio_bridge.run, slow())
        assert time.monotonic() - begun < 10
        asyncio_bridge.run(double(1))
        asyncio_bridge.run(double(1))
        assert log == ["cancelled", "cleaned up"]

    coro.run(main)


def test_an_interruption_before_asyncio_had_its_turn():
    started = []

    async def note():
        started.append(1)

    def main():
        asyncio_bridge.run(double(1))

        def ask():
            # asyncio's thread stands behind the one that interrupts
            stopper.schedule()
            asyncio_bridge.run(note())

        def stop():
            coro._yield()
            asking.shutdown()

        stopper = coro.spawn(stop)
        coro.yield_slice()
        asking = coro.spawn(ask)
        asking.join()
        asyncio_bridge.run(double(1))

    coro.run(main)
    assert started == []


def test_a_task_cancelled_by_others():
    async def cancel_oneself():
        asyncio.current_task().cancel()
        await asyncio.sleep(1)

    def main():
        with pytest.raises(asyncio.CancelledError):
            asyncio_bridge.run(cancel_oneself())

    coro.run(main)


def test_asyncio_runs_nowhere_as_far_as_others_can_see():
    def main():
        asyncio_bridge.run(double(1))
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        # even a whole asyncio.run() in another thread
        assert asyncio.run(double(4)) == 8
        assert asyncio_bridge.run(double(2)) == 4

    coro.run(main)


def test_blocking_inside_asyncio_code_is_refused():
    async def wrong():
        asyncio_bridge.run(double(1))

    def main():
        with pytest.raises(RuntimeError, match="await it"):
            asyncio_bridge.run(wrong())

    coro.run(main)


def test_asyncio_code_calls_blocking_functions():
    def blocking(x):
        coro.sleep_relative(0.001)
        if x is None:
            raise Sentinel
        return x + 1

    async def caller():
        assert await asyncio.gather(*[asyncio_bridge.call(blocking, n) for n in range(10)]) == list(range(1, 11))
        with pytest.raises(Sentinel):
            await asyncio_bridge.call(blocking, None)
        with pytest.raises(asyncio.TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio_bridge.call(coro.sleep_relative, 3600)
        return "done"

    assert coro.run(lambda: asyncio_bridge.run(caller())) == "done"


def test_call_outside_the_bridge():
    with pytest.raises(RuntimeError, match="event loop of"):
        asyncio.run(asyncio_bridge.call(int))


def test_iterating():
    closed = []

    async def numbers():
        try:
            for n in range(5):
                await asyncio.sleep(0)
                yield n
        finally:
            closed.append(True)

    def main():
        assert list(asyncio_bridge.iterate(numbers())) == list(range(5))
        some = asyncio_bridge.iterate(numbers())
        assert next(some) == 0
        some.close()
        assert closed == [True, True]

    coro.run(main)


def test_context_managers():
    log = []

    @contextlib.asynccontextmanager
    async def manager(swallow):
        log.append("enter")
        try:
            yield 5
        except Sentinel:
            log.append("error")
            if not swallow:
                raise
        finally:
            log.append("exit")

    def main():
        with asyncio_bridge.entered(manager(False)) as value:
            assert value == 5
        with asyncio_bridge.entered(manager(True)):
            raise Sentinel
        with pytest.raises(Sentinel), asyncio_bridge.entered(manager(False)):
            raise Sentinel

    coro.run(main)
    assert log == ["enter", "exit", "enter", "error", "exit", "enter", "error", "exit"]


def test_misuse():
    with pytest.raises(TypeError, match="expected a coroutine"):
        asyncio_bridge.run(5)
    with pytest.raises(coro.YieldFromMain):
        asyncio_bridge.run(double(1))
    with pytest.raises(coro.YieldFromMain):
        asyncio_bridge.get_loop()


def test_the_end_of_the_loop_cancels_what_is_left():
    log = []

    async def forever():
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            log.append("cleaned up")

    def main():
        coro.spawn(asyncio_bridge.run, forever())
        coro.yield_slice()
        coro.yield_slice()
        loop = asyncio_bridge.get_loop()
        return loop

    loop = coro.run(main)
    assert log == ["cleaned up"]
    assert loop.is_closed()


def test_the_same_in_a_second_loop_and_in_a_forked_child():
    lines = ok("""
    import asyncio, os, warnings
    warnings.simplefilter("error")
    import coro
    from coro import asyncio_bridge

    async def double(x):
        await asyncio.sleep(0.001)
        return 2 * x

    def main():
        first = asyncio_bridge.run(double(1))
        pid = os.fork()
        if pid == 0:
            code = 0 if asyncio_bridge.run(double(3)) == 6 else 1
            os._exit(code)
        _, status = coro.waitpid(pid)
        return first, status, asyncio_bridge.run(double(2))

    for _ in range(2):
        print(coro.run(main))
    """)
    assert lines == ["(2, 0, 4)"] * 2
