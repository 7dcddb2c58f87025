"""multiprocessing and concurrent.futures in programs that use coro, with every start method: what blocks goes through
``coro.in_thread``, children may run loops of their own, and ``coro.process.join`` waits for them.

The programs are files: children that are not forked import their main module again.
"""

import subprocess
import sys
import textwrap

import pytest
from support import LIMIT, ok

pytestmark = [pytest.mark.slow, pytest.mark.newest]  # a start method other than fork starts interpreters

HEAD = """
import warnings; warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: of forks beside other OS threads
import coro, multiprocessing, os, signal, sys, time
from coro import oserrors, process
METHOD = sys.argv[1]
coro.set_latency_warning(0)  # on a busy machine a fork takes its time

def in_a_loop(function, *args):
    "What children run: a loop of their own."
    assert not coro.coro_is_running()
    return coro.run(function, *args)

def sleeps(seconds):
    coro.sleep_relative(seconds)
    return "slept"

def echo(connection):
    "Answers through a loop: the connection is a socket or pipe like any other."
    def main():
        while True:
            coro.wait_for(connection.fileno(), coro.EVFILT.READ)
            it = connection.recv()
            if it is None:
                return
            connection.send((it, os.getpid()))
    coro.run(main)

def square(n):
    return coro.run(lambda: (coro.sleep_relative(0.001), n * n)[1])

def worker(tasks, results):
    while (n := tasks.get()) is not None:
        results.put(square(n))

def fails():
    raise SystemExit(5)

class Ticker:
    "Counts how often the loop came round; a blocked loop does not."
    def __enter__(self):
        self.n = 0
        def tick():
            while True:
                coro.sleep_relative(0.002)
                self.n += 1
        self.thread = coro.spawn(tick)
        return self
    def __exit__(self, *exc):
        self.thread.shutdown()
"""

TAIL = """
if __name__ == "__main__":
    context = multiprocessing.get_context(METHOD)
    coro.run(main)
    sys.stdout.flush()
"""

METHODS = pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])


def run(folder, method, source):
    path = folder / "program.py"
    path.write_text(HEAD + textwrap.dedent(source) + TAIL)
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(path), method],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        cwd=folder,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()


@METHODS
def test_a_process_with_a_loop_and_a_pipe(method, tmp_path):
    lines = run(
        tmp_path,
        method,
        """
        def main():
            ours, theirs = context.Pipe()
            p = context.Process(target=echo, args=(theirs,))
            with Ticker() as ticker:
                coro.in_thread(p.start)
                ours.send("hello")
                coro.wait_for(ours.fileno(), coro.EVFILT.READ)
                text, pid = ours.recv()
                assert pid == p.pid
                ours.send(None)
                print(text, process.join(p), process.join(p), p.exitcode, ticker.n >= 0)
        """,
    )
    assert lines == ["hello 0 0 0 True"]


@METHODS
def test_queues(method, tmp_path):
    lines = run(
        tmp_path,
        method,
        """
        def main():
            tasks, results = context.Queue(), context.Queue()
            workers = [context.Process(target=worker, args=(tasks, results)) for _ in range(2)]
            for p in workers:
                coro.in_thread(p.start)
            for n in range(10):
                tasks.put(n)  # never blocks: a queue without bound has an OS thread of its own that writes
            print(sorted(coro.in_thread(results.get) for _ in range(10)))
            for p in workers:
                tasks.put(None)
            print([process.join(p) for p in workers])
        """,
    )
    assert lines == [str([n * n for n in range(10)]), "[0, 0]"]


@METHODS
def test_pools(method, tmp_path):
    lines = run(
        tmp_path,
        method,
        """
        from concurrent.futures import ProcessPoolExecutor
        def main():
            pool = coro.in_thread(context.Pool, 2)
            print(coro.in_thread(pool.map, square, range(5)))
            pool.close()
            coro.in_thread(pool.join)
            executor = ProcessPoolExecutor(2, mp_context=context)
            def call(n):
                return executor.submit(square, n).result()  # submit() may start a process
            print(list(coro.parallel_map(lambda n: coro.in_thread(call, n), range(5))))
            coro.in_thread(executor.shutdown)
        """,
    )
    assert lines == [str([0, 1, 4, 9, 16])] * 2


@METHODS
def test_join_suspends_one_thread_only(method, tmp_path):
    lines = run(
        tmp_path,
        method,
        """
        def main():
            p = context.Process(target=time.sleep, args=(60,))
            try:
                process.join(p)
            except ValueError:
                pass
            coro.in_thread(p.start)
            with Ticker() as ticker:
                try:
                    coro.with_timeout(0.05, process.join, p)
                except coro.TimeoutError:
                    print(ticker.n > 2)
                p.terminate()
                print(process.join(p))
            p = context.Process(target=fails)
            coro.in_thread(p.start)
            print(process.join(p))
            p = context.Process(target=in_a_loop, args=(sleeps, 0.001))
            coro.in_thread(p.start)
            print(coro.in_thread(p.join), p.exitcode)
        """,
    )
    assert lines == ["True", "-15", "5", "None 0"]


def test_a_process_forked_in_a_thread_may_go_on_with_its_loop():
    """multiprocessing calls the function where it forked: in a thread, whose loop goes on in the child."""
    lines = ok(
        """
        import coro, multiprocessing
        from coro import process
        coro.set_latency_warning(0)
        def child(writer, other):
            assert coro.coro_is_running() and other.dead
            coro.sleep_relative(0.001)
            writer.send(coro.in_thread(int, "5"))
        def main():
            context = multiprocessing.get_context("fork")
            reader, writer = context.Pipe(False)
            other = coro.spawn(coro.sleep_relative, 0.05)
            p = context.Process(target=child, args=(writer, other))
            p.start()
            print(process.join(p), reader.recv())
            other.join()
        coro.run(main)
        """
    )
    assert lines == ["0 5"]


def test_the_process_of_a_parent_is_not_the_childs_to_join():
    lines = ok(
        """
        import coro, multiprocessing, os, time
        from coro import oserrors, process
        coro.set_latency_warning(0)
        def main():
            p = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
            p.start()
            pid = os.fork()
            if pid == 0:
                try:
                    process.join(p)
                except oserrors.ECHILD:
                    os._exit(3)
                os._exit(4)
            print(coro.waitpid(pid)[1] >> 8)
            p.kill()
            print(process.join(p))
        coro.run(main)
        """
    )
    assert lines == ["3", "-9"]
