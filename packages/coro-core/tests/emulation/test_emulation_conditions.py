"""threading.Condition and threading.Event, whose methods are compiled under emulation: everybody else's locks and
methods, interruption at each wait, threads of both kinds."""

from __future__ import annotations

from emulation_support import emulated


def test_the_locks_and_methods_of_others_are_respected():
    assert emulated("""
        import threading

        class Loud(threading.Condition):
            def wait(self, timeout=None):
                print("wait", timeout)
                return super().wait(timeout)

            def notify(self, n=1):
                print("notify", n)
                super().notify(n)

        class Foreign:
            # nothing but what a lock must have
            def __init__(self):
                self.lock = threading.Lock()

            def acquire(self, *args):
                return self.lock.acquire(*args)

            def release(self):
                self.lock.release()

            def locked(self):  # asked for since 3.14
                return self.lock.locked()

            def __enter__(self):
                print("enter")
                return self.acquire()

            def __exit__(self, *exc):
                print("exit", exc)
                self.release()

        def meet(condition):
            came = []

            def other():
                with condition:
                    came.append(condition.wait(60))

            thread = threading.Thread(target=other)
            thread.start()
            while not condition._waiters:
                coro.yield_slice()
            with condition:
                condition.notify_all()
            thread.join()
            assert came == [True]

        def main():
            meet(threading.Condition())
            meet(threading.Condition(threading.Lock()))
            meet(Loud())
            meet(threading.Condition(Foreign()))
    """) == ["wait 60", "notify 1", "enter", "enter", "exit (None, None, None)", "exit (None, None, None)"]


def test_arguments_and_errors_are_those_of_the_original():
    emulated("""
        import threading

        def fails(kind, call, *args):
            try:
                call(*args)
            except kind as exc:
                return str(exc)
            raise AssertionError(f"no {kind}")

        def main():
            for lock in (None, threading.Lock(), threading.RLock()):
                condition = threading.Condition(lock)
                assert fails(RuntimeError, condition.wait) == "cannot wait on un-acquired lock"
                assert fails(RuntimeError, condition.notify) == "cannot notify on un-acquired lock"
                assert fails(RuntimeError, condition.notify_all) == "cannot notify on un-acquired lock"
                with condition:
                    assert condition.wait(0) is False
                    assert condition.wait(-1) is False
                    assert condition.wait(timeout=0.001) is False
                    fails(TypeError, condition.wait, "1")
                    fails(OverflowError, condition.wait, 1e20)
                    fails(ValueError, condition.wait, float("nan"))
                    condition.notify()
                    condition.notify(n=10 ** 6)
                    assert not condition._waiters
                try:
                    with condition:
                        raise KeyError
                except KeyError:
                    pass
                assert condition.acquire(False)
                condition.release()
            event = threading.Event()
            assert event.wait(0) is False and event.wait(timeout=0.001) is False
            event.set()
            assert event.is_set() and event.wait() is True
            event.clear()
            assert not event.is_set()
            fails(TypeError, event.wait, "1")
            assert event._cond.acquire(False)
    """)


def test_a_recursive_lock_is_released_wholly_and_taken_as_often_again():
    emulated("""
        import threading

        def main():
            condition = threading.Condition()
            done = []

            def other():
                with condition, condition, condition:
                    condition.wait()
                    assert condition._lock._recursion_count() == 3
                done.append(condition._lock._is_owned())

            thread = threading.Thread(target=other)
            thread.start()
            while not condition._waiters:
                coro.yield_slice()
            with condition, condition:
                condition.notify()
                coro.yield_slice()
                assert not done
            thread.join()
            assert done == [False] and condition.acquire(False)
    """)


def test_a_notification_of_one_who_is_interrupted_goes_to_the_next():
    emulated("""
        import contextlib, threading

        def main():
            for lock in (threading.Lock(), threading.RLock()):
                condition, got = threading.Condition(lock), []

                def wait(name):
                    with contextlib.suppress(coro.Interrupted), condition:
                        condition.wait()
                        got.append(name)

                first, second = coro.spawn(wait, "first"), coro.spawn(wait, "second")
                while len(condition._waiters) < 2:
                    coro.yield_slice()
                with condition:
                    condition.notify()
                    first.raise_exception(coro.Interrupted)
                    # Interrupted, and for the lock it has to wait as well
                    coro.yield_slice()
                first.join()
                second.join()
                assert got == ["second"] and not condition._waiters
                assert condition.acquire(False)
    """)


def test_whoever_is_interrupted_has_the_lock_when_it_hears_of_it():
    emulated("""
        import threading

        def main():
            for lock in (threading.Lock(), threading.RLock()):
                condition, seen = threading.Condition(lock), []

                def wait():
                    with condition:
                        try:
                            condition.wait()
                        except coro.Interrupted:
                            assert owner == [None]
                            seen.append(condition._is_owned())

                thread = coro.spawn(wait)
                while not condition._waiters:
                    coro.yield_slice()
                owner = ["main"]
                with condition:
                    thread.raise_exception(coro.Interrupted)
                    coro.yield_slice()
                    thread.raise_exception(coro.Interrupted)  # while it waits for the lock
                    coro.yield_slice()
                    assert not seen
                    owner[0] = None
                thread.join()
                assert seen == [True] and not condition._waiters
                assert condition.acquire(False)
    """)


def test_one_who_is_told_to_end_releases_nobody_elses_lock():
    emulated("""
        import threading

        def main():
            condition = threading.Condition(threading.Lock())

            def wait():
                with condition:
                    condition.wait()

            thread = coro.spawn(wait)
            while not condition._waiters:
                coro.yield_slice()
            with condition:
                thread.shutdown()
                for _ in range(3):
                    coro.yield_slice()
                assert condition._lock.locked() and not thread.dead
            thread.join()
            assert condition.acquire(False)
    """)


def test_the_end_of_the_loop_ends_who_waits():
    assert emulated("""
        import threading

        def main():
            condition, event = threading.Condition(), threading.Event()

            def wait():
                with condition:
                    condition.wait()

            for _ in range(3):
                threading.Thread(target=wait, daemon=True).start()
                threading.Thread(target=event.wait, daemon=True).start()
            while len(condition._waiters) < 3 or len(event._cond._waiters) < 3:
                coro.yield_slice()
            print("all wait")
    """) == ["all wait"]


def test_threads_of_both_kinds_wait_for_each_other():
    emulated("""
        import threading

        def main():
            condition, there, back = threading.Condition(), threading.Event(), threading.Event()
            turns = []

            def other():
                for n in range(300):
                    there.wait()
                    there.clear()
                    with condition:
                        turns.append(n)
                        condition.notify()
                    back.set()

            def ours():
                for n in range(300):
                    with condition:
                        there.set()
                        assert condition.wait_for(lambda: len(turns) > n, 60)
                    back.wait()
                    back.clear()

            thread = coro.spawn(ours)
            coro.in_thread(other)
            thread.join()
            assert turns == list(range(300))
    """)


def test_objects_from_before_and_after():
    from support import ok

    ok("""
        import queue, threading
        import coro

        early, event, items = threading.Condition(), threading.Event(), queue.Queue(1)
        original = threading.Condition.wait, threading.Event.set

        def main():
            def wait():
                with early:
                    early.wait()
                event.set()
                for n in range(3):
                    items.put(n)

            thread = threading.Thread(target=wait)
            thread.start()
            while not early._waiters:
                coro.yield_slice()
            with early:
                early.notify()
            assert event.wait(60) and [items.get() for _ in range(3)] == [0, 1, 2]
            thread.join()
            with early:
                assert not early.wait(0.001)

        coro.install_thread_emulation()
        coro.run(main)
        coro.uninstall_thread_emulation()
        assert (threading.Condition.wait, threading.Event.set) == original

        # and they go on serving OS threads
        def other():
            with early:
                early.notify()

        with early:
            threading.Thread(target=other).start()
            assert early.wait(60)
    """)
