"""asyncio, trio and anyio in emulated threads: each has a running loop of its own."""

from __future__ import annotations

import importlib.util

import pytest
from emulation_support import emulated


def test_each_thread_has_a_loop_of_its_own():
    emulated("""
        import asyncio, threading, time

        async def numbers():
            yield 1
            await asyncio.sleep(0)
            yield 2

        async def work(n, log):
            loop = asyncio.get_running_loop()
            for i in range(20):
                await asyncio.sleep(0)
                if i % 5 == 0:
                    time.sleep(0.0005)                  # others run, with loops of theirs
                assert asyncio.get_running_loop() is loop
                assert asyncio.Future().get_loop() is loop
                assert asyncio.current_task().get_loop() is loop
                assert [number async for number in numbers()] == [1, 2]
            log.append(n)

        def main():
            log = []
            threads = [threading.Thread(target=lambda n=n: asyncio.run(work(n, log))) for n in range(10)]
            for thread in threads:
                thread.start()
            while len(log) < 10:
                time.sleep(0.001)
                try:
                    asyncio.get_running_loop()
                except RuntimeError:
                    pass
                else:
                    raise AssertionError("a loop runs where none does")
                asyncio.run(asyncio.sleep(0))
            for thread in threads:
                thread.join()
            assert sorted(log) == list(range(10))
    """)


def test_a_loop_within_a_loop_is_refused():
    assert emulated("""
        import asyncio

        async def inner():
            pass

        async def outer():
            try:
                asyncio.run(coroutine := inner())
            except RuntimeError as e:
                coroutine.close()
                return str(e)

        def main():
            print(asyncio.run(outer()))
    """) == ["asyncio.run() cannot be called from a running event loop"]


def test_what_was_set_without_the_emulation_is_seen_with_it():
    assert emulated("""
        import asyncio, asyncio.events, threading

        def main():
            # The functions of the module, as imported before and after.
            loop = asyncio.new_event_loop()
            asyncio.events._set_running_loop(loop)
            seen = []

            def look():
                seen.append(asyncio._get_running_loop())

            thread = threading.Thread(target=look)
            thread.start()
            thread.join()
            assert asyncio._get_running_loop() is loop
            coro.uninstall_thread_emulation()
            assert asyncio._get_running_loop() is loop
            asyncio.events._set_running_loop(None)
            coro.sleep(0)
            assert asyncio._get_running_loop() is None
            loop.close()
            print(seen)
    """) == ["[None]"]


@pytest.mark.skipif(importlib.util.find_spec("trio") is None, reason="trio is not installed: pip install trio")
def test_trio():
    assert emulated("""
        import threading, trio

        async def work(n, log):
            await trio.sleep(0.001)
            log.append(await trio.to_thread.run_sync(lambda: n))

        def main():
            log = []
            threads = [threading.Thread(target=trio.run, args=(work, n, log)) for n in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            print(sorted(log))
    """) == ["[0, 1, 2, 3, 4]"]


@pytest.mark.skipif(importlib.util.find_spec("anyio") is None, reason="anyio is not installed: pip install anyio")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_anyio(backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed: pip install {backend}")
    assert emulated(f"""
        import anyio, threading

        async def work(log):
            async with anyio.create_task_group() as group:
                for n in range(3):
                    group.start_soon(one, n, log)

        async def one(n, log):
            await anyio.sleep(0.001)
            log.append(await anyio.to_thread.run_sync(lambda: n))

        def main():
            log = []
            threads = [threading.Thread(target=lambda: anyio.run(work, log, backend="{backend}")) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            print(sorted(log))
    """) == ["[0, 0, 0, 1, 1, 1, 2, 2, 2]"]
