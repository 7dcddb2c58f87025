"""asyncio, trio and anyio in emulated threads: each has a running loop of its own."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
from emulation_support import emulated

LIMIT = 60  # seconds, for a hang only


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


def test_a_service_of_asyncio_with_clients_ends_in_order():
    """Told by SIGTERM, which it handles, and by SIGINT, which asyncio.run() makes a cancelled task of."""
    assert emulated("""
        import asyncio, os, signal, socket, threading

        async def talk(reader, writer):
            while line := await reader.readline():
                writer.write(line.upper())
                await writer.drain()
            writer.close()

        async def service(ready, stop):
            server = await asyncio.start_server(talk, "127.0.0.1", 0)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
            ready.append(server.sockets[0].getsockname()[1])
            try:
                await stop.wait()
                print("told")
            except asyncio.CancelledError:
                print("cancelled")
                raise
            finally:
                server.close()
                asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)

        def client(ready, answers, signum):
            while not ready:
                coro.yield_slice()
            with socket.create_connection(("127.0.0.1", ready[0])) as connection, connection.makefile("rwb") as file:
                for _ in range(3):
                    file.write(b"hello\\n")
                    file.flush()
                    answers.append(file.readline())
            os.kill(os.getpid(), signum)

        def main():
            for signum in (signal.SIGTERM, signal.SIGINT):
                ready, answers = [], []
                thread = threading.Thread(target=client, args=(ready, answers, signum))
                thread.start()
                try:
                    asyncio.run(service(ready, asyncio.Event()))
                except KeyboardInterrupt:
                    print("interrupted")
                thread.join()
                assert answers == [b"HELLO\\n"] * 3
    """) == ["told", "cancelled", "interrupted"]


@pytest.mark.slow
def test_a_service_in_a_child_process_is_told_to_end(tmp_path):
    path = tmp_path / "service.py"
    path.write_text(f"""
import asyncio, multiprocessing, os, signal, sys
import coro
coro.install_thread_emulation()

async def service(ready):
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    ready.set()
    await stop.wait()

def child(ready):
    asyncio.run(service(ready))
    os._exit(7)

def main():
    for method in multiprocessing.get_all_start_methods():
        context = multiprocessing.get_context(method)
        ready = context.Event()
        process = context.Process(target=child, args=(ready,))
        process.start()
        assert ready.wait({LIMIT})
        process.terminate()
        process.join({LIMIT})
        print(method, process.exitcode)

if __name__ == "__main__":
    coro.run(main)
""")
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=4 * LIMIT, check=False)
    assert not done.returncode, done.stderr
    assert {line.split()[1] for line in done.stdout.splitlines()} == {"7"}, done.stdout + done.stderr
