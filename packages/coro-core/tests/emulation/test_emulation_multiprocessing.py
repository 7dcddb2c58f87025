"""The locks of `multiprocessing` under emulation, whose originals block the OS thread and are owned by one."""

from __future__ import annotations

import pytest
from emulation_support import emulated
from support import ok

# 3.12 warns of forks beside other OS threads; the one of a lock holds nothing that a child needs.
QUIET = 'import warnings; warnings.simplefilter("ignore", DeprecationWarning)\n'


def test_a_lock_held_over_a_sleep():
    assert emulated("""
        import multiprocessing, threading, time

        def main():
            lock, log = multiprocessing.Lock(), []

            def work(n):
                with lock:
                    log.append(n)
                    time.sleep(0.001)
                    log.append(n)

            threads = [threading.Thread(target=work, args=(n,)) for n in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert log == [n for n in range(5) for _ in range(2)], log
            print("done")
    """) == ["done"]


def test_a_recursive_lock_has_a_thread_as_its_owner():
    emulated("""
        import multiprocessing, threading, time

        def main():
            lock, inside, most = multiprocessing.RLock(), [], []

            def work():
                with lock, lock:
                    inside.append(1)
                    most.append(len(inside))
                    time.sleep(0.001)
                    inside.pop()

            with lock:
                assert lock.acquire(False)
                lock.release()
                thread = threading.Thread(target=lambda: most.append(lock.acquire(False)))
                thread.start()
                thread.join()
                assert most.pop() is False
                wrong = []

                def release():
                    try:
                        lock.release()
                    except AssertionError as e:
                        wrong.append(str(e))

                thread = threading.Thread(target=release)
                thread.start()
                thread.join()
                assert "not owned by thread" in wrong[0]
            threads = [threading.Thread(target=work) for n in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert most == [1] * 5, most
    """)


def test_what_a_semaphore_tells():
    emulated("""
        import multiprocessing, pickle

        def raised(kind, function, *args):
            try:
                function(*args)
            except kind as e:
                return str(e)
            raise AssertionError("nothing was raised")

        def main():
            lock = multiprocessing.Lock()
            assert "too many times" in raised(ValueError, lock.release)
            assert lock.acquire() and not lock.acquire(block=False) and not lock.acquire(timeout=0.001)
            assert not lock.acquire(timeout=-1)
            assert "owner=MainProcess" in repr(lock)
            lock.release()
            assert "owner=None" in repr(lock)
            semaphore = multiprocessing.BoundedSemaphore(2)
            with semaphore:
                assert semaphore.get_value() == 1
                with semaphore:
                    assert semaphore._semlock._is_zero() and semaphore._semlock._count() == 2
            assert "too many times" in raised(ValueError, semaphore.release)
            assert multiprocessing.synchronize.SEM_VALUE_MAX > 1000
            assert "inheritance" in raised(RuntimeError, pickle.dumps, lock)
    """)


def test_interrupted_waits_leave_the_lock_whole():
    emulated("""
        import multiprocessing, threading, time

        def main():
            lock = multiprocessing.Lock()
            for pause in (0, 0.0005, 0.002, 0.004):      # before and after an OS thread listens
                lock.acquire()
                log = []

                def wait(n):
                    try:
                        with coro.timeout(pause):
                            with lock:
                                log.append(n)
                    except coro.TimeoutError:
                        pass

                threads = [threading.Thread(target=wait, args=(n,)) for n in range(3)]
                for thread in threads:
                    thread.start()
                time.sleep(pause)
                lock.release()
                for thread in threads:
                    thread.join()
                with lock:
                    assert lock._semlock._get_value() == 0
                while lock._semlock._listening:      # the OS thread may get it for nobody, and puts it back
                    time.sleep(0.001)
                assert lock._semlock._get_value() == 1 and lock._semlock._count() == 0, (pause, log)
    """)


def test_a_child_waits_for_its_threads():
    assert ok(QUIET + """
import coro
coro.install_thread_emulation()
import multiprocessing, threading, time

def child(queue):
    def late():
        time.sleep(0.02)
        queue.put("late")
    threading.Thread(target=late).start()
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()

def main():
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    process.join()
    print(process.exitcode, queue.empty() or queue.get())

coro.run(main)
""") == ["0 late"]


def test_a_lock_that_nobody_waits_for_any_more_is_free():
    emulated("""
        import multiprocessing, threading, time

        def main():
            lock = multiprocessing.Lock()
            for _ in range(30):
                lock.acquire()
                assert not lock.acquire(timeout=0.004)      # an OS thread listens now, and for a while longer
                lock.release()
                end = time.perf_counter() + 0.001
                while time.perf_counter() < end:
                    assert lock.acquire(False)
                    lock.release()
    """)


def test_a_lock_in_two_processes():
    assert ok(QUIET + """
import coro
coro.install_thread_emulation()
import multiprocessing, os, threading, time

def child(lock, value, other):
    for n in range(200):
        with lock:
            seen = value.value
            if n % 20 == 0:
                time.sleep(0.0005)
            value.value = seen + 1
    other.release()

def main():
    context = multiprocessing.get_context("fork")
    lock, value, other = context.Lock(), context.Value("i", 0, lock=False), context.Semaphore(0)
    process = context.Process(target=child, args=(lock, value, other))
    threads = [threading.Thread(target=child, args=(lock, value, other)) for _ in range(3)]
    process.start()
    for thread in threads:
        thread.start()
    for _ in range(4):
        other.acquire()
    for thread in threads:
        thread.join()
    process.join()
    print(value.value, process.exitcode)

coro.run(main)
""") == ["800 0"]


@pytest.mark.slow
@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_pools_queues_and_managers(start, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        QUIET
        + f"""
import coro
coro.install_thread_emulation()
import multiprocessing, threading, time

def square(n):
    return n * n

def pass_on(inbox, outbox, barrier):
    barrier.wait()
    for item in iter(inbox.get, None):
        outbox.put(item + 1)

def main():
    context = multiprocessing.get_context({start!r})
    with context.Pool(2) as pool:
        assert pool.map(square, range(100), chunksize=7) == [n * n for n in range(100)]
        assert sorted(pool.imap_unordered(square, range(20))) == [n * n for n in range(20)]
    inbox, outbox, barrier = context.Queue(), context.Queue(), context.Barrier(3)
    processes = [context.Process(target=pass_on, args=(inbox, outbox, barrier)) for _ in range(2)]
    for process in processes:
        process.start()
    got = []
    readers = [threading.Thread(target=lambda: got.extend(outbox.get() for _ in range(10))) for _ in range(5)]
    for reader in readers:
        reader.start()
    barrier.wait()
    for n in range(50):
        inbox.put(n)
    for reader in readers:
        reader.join()
    assert sorted(got) == list(range(1, 51)), got
    for _ in processes:
        inbox.put(None)
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    with context.Manager() as manager:
        shared = manager.dict(a=1)
        event = manager.Event()
        thread = threading.Thread(target=event.wait)
        thread.start()
        shared["b"] = 2
        event.set()
        thread.join()
        assert dict(shared) == {{"a": 1, "b": 2}}
    condition, done = context.Condition(), []

    def wait():
        with condition:
            condition.wait()
            done.append(1)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    while condition._sleeping_count._semlock._get_value() < 3:
        time.sleep(0)
    with condition:
        condition.notify_all()
    for thread in threads:
        thread.join()
    assert done == [1, 1, 1]
    print("done")

if __name__ == "__main__":
    coro.run(main)
"""
    )
    assert ok(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')", "-Wignore") == ["done"]


def test_locks_made_before_the_emulation():
    assert ok(QUIET + """
import multiprocessing
lock, condition, held = multiprocessing.Lock(), multiprocessing.Condition(), multiprocessing.Lock()
held.acquire()
import coro, threading, time, warnings
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    coro.install_thread_emulation()
assert len(told) == 1 and "a lock in use" in str(told[0].message), [str(w.message) for w in told]

def main():
    log = []

    def work():
        with lock, condition:
            log.append(0)
            time.sleep(0.001)
            log.append(1)

    threads = [threading.Thread(target=work) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(log)

coro.run(main)
""") == ["[0, 1, 0, 1, 0, 1]"]
