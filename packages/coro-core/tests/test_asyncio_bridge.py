"""asyncio in a thread of coro: results, interruptions, both loops at work side by side, and the end of both."""

import asyncio
import contextlib
import contextvars
import sys
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


# -- start_task: tasks that begin in the thread that starts them

at_once = pytest.mark.skipif(sys.version_info < (3, 12), reason="CPython 3.11 has no tasks that begin at once")


def refuse(task):
    raise AssertionError(f"{task} did not begin at once")


@at_once
def test_a_task_begins_in_the_thread_that_starts_it():
    async def work(value):
        assert asyncio.get_running_loop() is asyncio_bridge.get_loop()
        assert asyncio.current_task() is not None
        threads.append(coro.current())
        if value:
            await asyncio.sleep(0)
            threads.append(coro.current())
        return value

    def main():
        asyncio_bridge.run(double(1))
        ended = asyncio_bridge.start_task(work(0), refuse)
        assert (ended.done(), ended.result()) == (True, 0)
        waits = asyncio_bridge.start_task(work(1), refuse)
        assert not waits.done()
        assert asyncio_bridge.run(waits) == 1
        assert [thread is coro.current() for thread in threads] == [True, True, False]
        assert asyncio._get_running_loop() is None

    threads = []
    coro.run(main)


def test_a_task_that_cannot_begin_at_once_is_created_in_its_turn():
    """The loop has not begun."""

    def main():
        created = coro.fifo()
        assert asyncio_bridge.start_task(double(4), created.push) is None
        assert asyncio_bridge.run(created.pop()) == 8

    coro.run(main)


def test_a_thread_in_the_middle_of_a_step_keeps_all_others_from_stepping():
    """In asyncio's own thread, and in one that begins a task."""

    async def step(own):
        for _ in range(3):
            assert own not in log
            log.append(own)
            go_on.wait()  # nothing of asyncio's may run meanwhile
            go_on.clear()
            assert log[-1] == own, log
            log.clear()
            assert asyncio.get_running_loop() is asyncio_bridge.get_loop()
            assert asyncio.current_task().get_name() == own
            await asyncio.sleep(0)

    async def named(own):
        asyncio.current_task().set_name(own)
        await step(own)

    def thread(own):
        ended = coro.event()

        def created(task):
            task.add_done_callback(lambda _: ended.set())
            tasks.append(task)

        task = asyncio_bridge.start_task(named(own), created)
        if task is not None:
            created(task)
        ended.wait()

    def lets_go():
        while True:
            for _ in range(5):
                assert asyncio._get_running_loop() is None
                coro.yield_slice()
            go_on.set()

    def main():
        nonlocal go_on
        go_on = coro.event()
        asyncio_bridge.run(double(1))
        goes = coro.spawn(lets_go, daemon=True)
        for each in [coro.spawn(thread, f"task {n}") for n in range(5)]:
            each.join()
        goes.shutdown()
        for task in tasks:
            task.result()
        assert len(tasks) == 5

    log, tasks, go_on = [], [], None
    coro.run(main)


@at_once
def test_an_interruption_in_the_middle_of_a_step_is_the_threads():
    async def waits():
        coro.sleep_relative(3600)

    def main():
        asyncio_bridge.run(double(1))
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.001, asyncio_bridge.start_task, waits(), refuse)
        assert asyncio_bridge.run(double(2)) == 4

    coro.run(main)


@at_once
def test_a_generator_of_a_task_that_begins_at_once_is_closed_by_its_loop():
    closed = []

    async def numbers():
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            closed.append(True)

    async def gives_up():
        async for _ in numbers():
            break

    def main():
        asyncio_bridge.run(double(1))
        asyncio_bridge.start_task(gives_up(), refuse)
        for _ in range(3):
            asyncio_bridge.run(double(1))
        assert closed == [True]

    coro.run(main)


def test_start_task_refuses_what_it_cannot_run():
    async def inside():
        asyncio_bridge.start_task(double(1), refuse)

    def main():
        with pytest.raises(TypeError, match="expected a coroutine, not int"):
            asyncio_bridge.start_task(7, refuse)
        with pytest.raises(RuntimeError, match="asyncio.create_task"):
            asyncio_bridge.run(inside())

    coro.run(main)
    with pytest.raises(coro.YieldFromMain):
        asyncio_bridge.start_task(double(1), refuse)


# -- loops of threads


def test_threads_that_call_asyncio_run_have_a_loop_each():
    async def work():
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        for _ in range(5):
            await asyncio.sleep(0)
            coro.yield_slice()  # others run, with loops of their own and without one
            assert asyncio.get_running_loop() is loop
            assert asyncio.current_task() is task
            assert asyncio.Future().get_loop() is loop

    def thread():
        for _ in range(5):
            assert asyncio._get_running_loop() is None
            assert sys.get_asyncgen_hooks() == (None, None)
            asyncio.run(work())

    def main():
        for each in [coro.spawn(thread) for _ in range(6)]:
            each.join()

    coro.run(main)


def test_a_loop_around_coros_loop_is_seen_by_no_thread_and_is_there_again():
    async def around():
        coro.run(main)
        return asyncio.get_running_loop()

    def main():
        assert asyncio._get_running_loop() is None
        coro.yield_slice()
        asyncio.run(double(1))

    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(around()) is loop
    loop.close()


def test_a_thread_that_ends_with_a_running_loop_leaves_it_to_none():
    loop = asyncio.new_event_loop()

    def main():
        coro.spawn(asyncio._set_running_loop, loop).join()
        assert asyncio._get_running_loop() is None

    coro.run(main)
    assert asyncio._get_running_loop() is None
    loop.close()
