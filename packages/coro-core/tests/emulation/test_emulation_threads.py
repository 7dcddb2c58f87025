"""Emulated threads, locks, queues, thread-local data, and everything that knows owners."""

from __future__ import annotations

import _thread
import sys

import pytest
from emulation_support import emulated
from support import program


def test_threads_are_coro_threads():
    assert emulated("""
        import threading, time

        def work(n):
            gate.wait()
            time.sleep(0.1)  # one after the other would take 100 s
            done.append(n)

        done, gate = [], threading.Event()

        def main():
            began = time.monotonic()
            threads = [threading.Thread(target=work, args=(n,), name=f"t{n}") for n in range(1000)]
            for thread in threads:
                thread.start()
            assert threading.active_count() == 1001
            assert coro.get_thread_by_id(threads[7].ident).name == "t7"
            assert len({thread.native_id for thread in threads}) == 1000
            gate.set()
            for thread in threads:
                thread.join()
            assert sorted(done) == list(range(1000))
            assert threading.enumerate() == [threading.main_thread()]
            assert time.monotonic() - began < 50
            print("done")
    """) == ["done"]


def test_locks():
    emulated("""
        import gc, threading, weakref

        def main():
            lock = threading.Lock()
            assert lock.acquire() and lock.locked() and not lock.acquire(False)
            assert not lock.acquire(timeout=0.001)
            thread = threading.Thread(target=lock.release)  # not the owner
            thread.start()
            with lock:
                pass
            thread.join()
            for wrong, kind in (((False, 1), ValueError), ((True, -2), ValueError), ((True, 1e20), OverflowError),
                                ((True, "1"), TypeError)):
                try:
                    lock.acquire(*wrong)
                except kind:
                    pass
                else:
                    raise AssertionError(wrong)
            try:
                lock.release()
            except RuntimeError:
                pass
            assert weakref.ref(lock)() is lock

            rlock = threading.RLock()
            order = []

            def second():
                with rlock:
                    order.append(2)

            with rlock, rlock:
                thread = threading.Thread(target=second)
                thread.start()
                order.append(1)
                try:
                    other = threading.Thread(target=rlock.release)
                    failed = []
                    threading.excepthook = lambda args: failed.append(args.exc_type)
                    other.start()
                    other.join()
                    assert failed == [RuntimeError]
                finally:
                    threading.excepthook = threading.__excepthook__
            thread.join()
            assert order == [1, 2]
    """)


def test_an_interrupted_waiter_passes_the_lock_on():
    emulated("""
        import threading

        def main():
            lock = threading.Lock()
            lock.acquire()
            got = []

            def wait(name):
                with lock:
                    got.append(name)

            first, second = coro.spawn(wait, "first"), coro.spawn(wait, "second")
            coro.yield_slice()
            first.raise_exception(coro.Shutdown)
            lock.release()  # granted to the first, which is on its way out
            second.join()
            assert got == ["second"] and not lock.locked()

            lock.acquire()
            try:
                coro.with_timeout(0.01, lock.acquire)
            except coro.TimeoutError:
                lock.release()
            assert lock.acquire(False)
    """)


def test_conditions_events_barriers_timers():
    assert (
        emulated("""
        import threading

        def main():
            condition, items = threading.Condition(), []

            def consume():
                with condition:
                    condition.wait_for(lambda: items, timeout=60)
                    print(items.pop())

            consumers = [threading.Thread(target=consume) for _ in range(3)]
            for thread in consumers:
                thread.start()
            for n in range(3):
                with condition:
                    items.append("item")
                    condition.notify()
            for thread in consumers:
                thread.join()
            event = threading.Event()
            threading.Timer(0.01, event.set).start()
            assert event.wait(60) and not threading.Event().wait(0.001)
            barrier = threading.Barrier(4)
            threads = [threading.Thread(target=barrier.wait) for _ in range(3)]
            for thread in threads:
                thread.start()
            barrier.wait()
    """)
        == ["item"] * 3
    )


def test_queues():
    assert emulated("""
        import queue, threading

        def main():
            for kind in (queue.SimpleQueue, queue.Queue, lambda: queue.Queue(3)):
                q = kind()
                try:
                    q.get(timeout=0.001)
                except queue.Empty:
                    pass
                got = []

                def consume():
                    while (item := q.get()) is not None:
                        got.append(item)

                threads = [threading.Thread(target=consume) for _ in range(5)]
                for thread in threads:
                    thread.start()
                for n in range(500):
                    q.put(n)
                for _ in threads:
                    q.put(None)
                for thread in threads:
                    thread.join()
                assert sorted(got) == list(range(500))
            print(queue.SimpleQueue[int].__origin__ is queue.SimpleQueue)
    """) == ["True"]


def test_whoever_asks_again_and_again_lets_others_run():
    assert emulated("""
        import queue, select, socket, threading

        def main():
            q = queue.Queue()
            threading.Thread(target=lambda: q.put("item")).start()
            while True:
                try:
                    print(q.get_nowait())
                    break
                except queue.Empty:
                    pass
            lock = threading.Lock()
            lock.acquire()
            threading.Thread(target=lock.release).start()
            while not lock.acquire(blocking=False):
                pass
            a, b = socket.socketpair()
            with a, b:
                threading.Thread(target=b.send, args=(b"x",)).start()
                while not select.select([a], [], [], 0)[0]:
                    pass
    """) == ["item"]


def test_thread_local_data():
    emulated("""
        import threading

        class Counter(threading.local):
            start = 5

            def __init__(self, by):
                self.value = self.start + by

        def main():
            data, counter = threading.local(), Counter(2)
            data.x = "main"
            counter.value += 1

            def work():
                assert not hasattr(data, "x") and counter.value == 7
                data.x = "thread"

            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            assert data.x == "main" and counter.value == 8
            assert coro.in_thread(lambda: hasattr(data, "x")) is False
    """)


def test_context_is_not_inherited_by_threads():
    emulated("""
        import contextvars, sys, threading

        def main():
            variable = contextvars.ContextVar("v", default="default")
            variable.set("mine")
            seen = []
            thread = threading.Thread(target=lambda: seen.append(variable.get()))
            thread.start()
            thread.join()
            inherits = getattr(sys.flags, "thread_inherit_context", False)
            assert seen == ["mine" if inherits else "default"], seen
    """)


def test_executors():
    assert emulated("""
        import concurrent.futures, threading, time

        def main():
            with concurrent.futures.ThreadPoolExecutor(20) as executor:
                together = threading.Barrier(20)  # nobody passes before there are 20
                futures = [executor.submit(together.wait) for _ in range(100)]
                concurrent.futures.wait(futures)
                assert sorted(future.result() for future in futures) == sorted(5 * list(range(20)))
                print(sum(executor.map(int, "123")))
    """) == ["6"]


def test_a_module_is_imported_by_one_thread_at_a_time():
    assert emulated("""
        import sys, threading
        from pathlib import Path

        def main():
            Path("slowly.py").write_text("import time\\nhalf = 1\\ntime.sleep(0.05)\\nwhole = 1\\nprint('once')\\n")
            sys.path.insert(0, ".")
            seen = []

            def work():
                import slowly
                seen.append(slowly.whole)

            threads = [threading.Thread(target=work) for _ in range(10)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert seen == [1] * 10
    """) == ["once"]


def test_logging_from_many_threads():
    emulated("""
        import io, logging, threading, time

        class Slow(io.StringIO):
            def write(self, text):
                for letter in text:
                    super().write(letter)
                time.sleep(0.001)  # others run, and want to log, too

        def main():
            stream = Slow()
            logging.basicConfig(stream=stream, format="%(threadName)s says %(message)s")
            threads = [threading.Thread(target=logging.warning, args=("hello",), name=f"t{n}") for n in range(20)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(stream.getvalue().splitlines()) == sorted(f"t{n} says hello" for n in range(20))
    """)


def test_a_buffered_file_of_several_threads():
    emulated("""
        import socket, threading

        def main():
            a, b = socket.socketpair()
            with a, b, a.makefile("rwb") as file, b.makefile("rwb") as peer:
                got = []
                readers = [threading.Thread(target=lambda: got.append(file.readline())) for _ in range(5)]
                for thread in readers:
                    thread.start()
                for n in range(5):
                    peer.write(b"line %d\\n" % n)
                    peer.flush()
                for thread in readers:
                    thread.join()
                assert sorted(got) == [b"line %d\\n" % n for n in range(5)]

                def write(n):
                    for _ in range(20):
                        file.write(b"%d" % n * 10000 + b"\\n")
                    file.flush()

                writers = [threading.Thread(target=write, args=(n,)) for n in range(5)]
                for thread in writers:
                    thread.start()
                lines = [peer.readline() for _ in range(100)]
                for thread in writers:
                    thread.join()
                assert all(len(line) == 10001 and len(set(line)) == 2 for line in lines)
    """)


def test_start_new_thread():
    outcome = emulated("""
        import _thread, sys, threading

        def main():
            caught = []
            sys.unraisablehook = caught.append
            done = threading.Event()

            def fail():
                done.set()
                raise KeyError("lost")

            def leave():
                _thread.exit()

            before = _thread._count()
            ident = _thread.start_new_thread(fail, ())
            assert coro.get_thread_by_id(ident) and _thread._count() == before + 1
            done.wait()
            coro.yield_slice()
            assert caught[0].exc_type is KeyError
            _thread.start_new_thread(leave, ())
            coro.yield_slice()
            assert len(caught) == 1 and _thread._count() == before
            for wrong in ((1, ()), (leave, []), (leave, (), [])):
                try:
                    _thread.start_new_thread(*wrong)
                except TypeError:
                    pass
                else:
                    raise AssertionError(wrong)
            sys.unraisablehook = sys.__unraisablehook__
            print("ok")
    """)
    assert outcome == ["ok"]


def test_two_threads_join_one():
    assert (
        emulated("""
        import threading

        def main():
            for _ in range(3):
                stop, joined = threading.Event(), []
                one = threading.Thread(target=stop.wait)
                one.start()

                def join():
                    one.join()
                    assert not one.is_alive()
                    joined.append(1)

                others = [threading.Thread(target=join) for _ in range(4)]
                late = threading.Thread(target=lambda: (one.join(0.001), joined.append(one.is_alive())))
                late.start()
                for other in others:
                    other.start()
                late.join()
                assert joined == [True]
                stop.set()
                one.join()
                for other in others:
                    other.join()
                one.join()
                print(joined)
    """)
        == ["[True, 1, 1, 1, 1]"] * 3
    )


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="about the locks that tell of a thread's end before 3.13")
def test_a_coro_thread_and_an_os_thread_join_one():
    assert emulated("""
        import threading

        def main():
            stop, joined = threading.Event(), []
            one = threading.Thread(target=stop.wait)
            one.start()
            real = coro.emulation.original("threading")
            outside = real.Thread(target=lambda: (one.join(), joined.append("outside")))
            outside.start()
            inside = threading.Thread(target=lambda: (one.join(), joined.append("inside")))
            inside.start()
            coro.yield_slice()
            stop.set()
            inside.join()
            while outside.is_alive():
                coro.sleep_relative(0.001)
            outside.join()  # a moment: what it leaves is gone only then
            print(sorted(joined))
    """) == ["['inside', 'outside']"]


@pytest.mark.skipif(not hasattr(_thread, "set_name"), reason="3.14 is the first Python with names of OS threads")
def test_names_are_cut_for_the_system_only():
    emulated("""
        import _thread, threading

        def main():
            long = "reader of the queue of orders"
            for name in (long, "a\\0b", "namé"):
                whole, kept = [], []

                def look():
                    whole.append(coro.current().name)
                    kept.append(_thread._get_name())

                thread = threading.Thread(target=look, name=name)
                thread.start()
                thread.join()
                _thread.set_name(name)  # the main thread is an OS thread: that is what the system makes of it
                assert (whole, kept) == ([name], [_thread._get_name()])
    """)


def test_the_end_of_the_loop_is_no_error_of_threads():
    assert emulated("""
        import threading

        def main():
            threading.Thread(target=threading.Event().wait, daemon=True).start()
            print("main")
    """) == ["main"]


def test_fork_in_a_thread():
    assert emulated("""
        import os, threading, time, warnings

        def main():
            warnings.simplefilter("ignore")
            lock = threading.Lock()
            lock.acquire()
            other = threading.Thread(target=lock.acquire, daemon=True)
            other.start()
            codes = []

            def work():
                pid = os.fork()
                if pid == 0:
                    time.sleep(0.01)  # the child has a loop of its own
                    alive = threading.current_thread().is_alive() and not other.is_alive()
                    os._exit(7 if alive and threading.main_thread() is threading.current_thread() else 1)
                codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

            for daemon in (False, True):
                thread = threading.Thread(target=work, daemon=daemon)
                thread.start()
                thread.join()
            print(codes)
            lock.release()
    """) == ["[7, 7]"]


def test_threads_spawned_without_threading_leave_nothing_there():
    emulated("""
        import gc, threading

        def main():
            def work():
                assert threading.current_thread() is threading.current_thread()
                assert threading.current_thread().ident == coro.current().id

            for _ in range(100):
                coro.spawn(work)
            while coro.get_live_coros() > 1:
                coro.sleep_relative(0.001)
                gc.collect()
            assert threading.enumerate() == [threading.main_thread()]
    """)


def test_where_a_thread_must_not_be_parked():
    emulated("""
        import gc, threading

        class Cycle:
            def __init__(self):
                self.me = self

            def __del__(self):
                with free:
                    done.append("free")
                try:
                    held.acquire()
                except coro.NoSwitchError:
                    done.append("refused")

        def main():
            gc.disable()
            held.acquire()
            with coro.no_switch():
                with free:
                    pass
                try:
                    held.acquire()
                except coro.NoSwitchError:
                    done.append("refused")
            Cycle()
            gc.collect()
            assert done == ["refused", "free", "refused"], done
            assert not held.acquire(False) and not free.locked()

        free, held, done = threading.Lock(), threading.Lock(), []
    """)


def test_how_long_a_thread_may_have_the_cpu():
    assert emulated("""
        import sys, threading, time

        def busy(lock, seconds):
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                with lock:
                    pass

        def count_turns(interval):
            sys.setswitchinterval(interval)
            assert abs(sys.getswitchinterval() - interval) < 1e-6
            lock, turns, stop = threading.Lock(), [], []

            def other():
                while not stop:
                    turns.append(1)
                    coro.yield_slice()

            thread = threading.Thread(target=other)
            thread.start()
            busy(lock, 0.02)
            stop.append(1)
            found = len(turns)
            thread.join()
            return found

        def main():
            print(count_turns(3600.0) <= 1, count_turns(0.0001) > 5)
            try:
                sys.setswitchinterval(-1)
            except ValueError as e:
                print(e)
    """) == ["True True", "switch interval must be strictly positive"]


def test_thread_local_data_has_no_name_that_a_program_may_want():
    emulated("""
        import threading

        def main():
            local = threading.local()
            assert not hasattr(local, "statistics")
            local.statistics = {}
            assert local.statistics == {}
    """)


def test_executors_of_processes_that_nobody_shuts_down_end_with_the_program():
    """That of the standard library, and one that registers itself as others do (loky's)."""
    assert emulated("""
        import concurrent.futures, multiprocessing, threading

        kept, told = [], threading.Event()

        def main():
            context = multiprocessing.get_context("fork")
            kept.append(concurrent.futures.ProcessPoolExecutor(1, mp_context=context))
            assert kept[0].submit(pow, 2, 3).result(60) == 8
            threading._register_atexit(told.set)
            threading.Thread(target=told.wait).start()
            print("main is over")
    """) == ["main is over"]


def test_what_starts_threads_may_be_wrapped():
    """Debuggers and profilers pass a callable of their own, from which the thread object cannot be told."""
    assert emulated("""
        import threading

        class Wrapped:
            def __init__(self, function):
                self.function = function

            def __call__(self):
                self.function()

        def main():
            name = "_start_joinable_thread" if hasattr(threading, "_start_joinable_thread") else "_start_new_thread"
            start = getattr(threading, name)
            setattr(threading, name, lambda function, *args, **kwargs: start(Wrapped(function), *args, **kwargs))
            seen = []

            def work():
                me = coro.current()
                seen.append((me.name, me.daemon, threading.current_thread().name))

            for daemon in (False, True):
                thread = threading.Thread(target=work, name=f"worker {daemon}", daemon=daemon)
                thread.start()
                thread.join()
            print(*seen)
            print(coro.current() is coro.get_thread_by_id(coro.current().id))
    """) == ["('worker False', False, 'worker False') ('worker True', True, 'worker True')", "True"]


def test_daemons_end_silently_whatever_they_catch():
    outcome = program("""
        import coro
        coro.install_thread_emulation()
        import logging, sys, threading, time, traceback

        def run(daemon):
            lock.acquire()
            try:
                time.sleep(60)
            except BaseException:
                traceback.print_exc()
                logging.exception("worker failed")
                print("error", file=sys.stderr)
                raise
            finally:
                lock.release()

        def main():
            global lock
            lock = threading.Lock()
            threading.Thread(target=run, args=(True,), daemon=True).start()
            threading.Thread(target=lambda: print("not a daemon", file=sys.stderr)).start()
            time.sleep(0.01)
            print("the end of main", file=sys.stderr)

        coro.run(main)
        print("free again" if lock.acquire(False) else "held", file=sys.stderr)

        def main():
            thread = threading.Thread(target=lambda: print("in the next loop", file=sys.stderr), daemon=True)
            thread.start()
            thread.join()

        coro.run(main)
    """)
    assert outcome.code == 0
    assert outcome.err.splitlines() == ["not a daemon", "the end of main", "free again", "in the next loop"]


def test_the_end_waits_for_threads_that_are_hidden():
    """A debugger keeps its threads out of threading.enumerate(), and has one that is no daemon watch for the end."""
    assert emulated("""
        import threading, time

        def main():
            enumerate_all = threading.enumerate
            hidden = threading.Thread(target=lambda: (time.sleep(0.01), print("the hidden one has ended")))
            hidden.start()
            threading.enumerate = lambda: [thread for thread in enumerate_all() if thread is not hidden]
            print("main has ended")
    """) == ["main has ended", "the hidden one has ended"]


def test_a_thread_gives_way_at_the_first_call_after_its_time():
    assert emulated("""
        import os, queue, select, socket, threading, time

        def main():
            runs, over, lock, event, line = [0], threading.Event(), threading.RLock(), threading.Event(), queue.Queue()
            one, other = socket.socketpair()

            def run():
                while not over.is_set():
                    runs[0] += 1
                    time.sleep(0)

            calls = {
                "lock": lambda: threading.Lock().acquire() and lock.acquire() and lock.release(),
                "a lock that is taken": lambda: taken.acquire(False),
                "event": event.is_set,
                "send": lambda: one.send(b"x"),
                "recv": lambda: other.recv(1),
                "select": lambda: select.select([], [one], [], 0),
                "queue": lambda: line.put(1),
                "poll": lambda: select.poll().poll(0),
            }
            taken = threading.Lock()
            taken.acquire()
            thread = threading.Thread(target=run)
            thread.start()
            time.sleep(0)
            for _ in range(3):
                for name, call in calls.items():
                    before, end = runs[0], time.perf_counter() + 0.006
                    while time.perf_counter() < end:
                        pass
                    call()
                    if runs[0] == before:
                        print(name)
            over.set()
            thread.join()
            one.close()
            other.close()
    """) == ["event"] * 3  # is_set() is a look at a variable, in Python
