"""Installing the emulation, what it reaches in place, and what is left after uninstalling.

Each program runs in a process of its own: what is replaced here is the standard library.
"""

from __future__ import annotations

import pytest
from support import ok, program

from coro import emulation


def test_installs_and_puts_everything_back():
    lines = ok("""
        import _thread, builtins, io, os, queue, select, signal, socket, ssl, subprocess, sys, threading, time
        import coro

        finders = list(sys.meta_path)
        modules = (_thread, builtins, io, os, queue, select, signal, socket, ssl, subprocess, threading, time)
        watched = [vars(module) for module in modules] + [vars(socket.socket), vars(ssl.SSLSocket)]
        before = [dict(names) for names in watched]
        locks = {"_active_limbo_lock", "_shutdown_locks_lock", "_thread_local_info", "__builtins__"}

        assert not coro.emulation.is_installed()
        coro.install_thread_emulation()
        coro.install_thread_emulation()  # again: nothing happens
        assert coro.emulation.is_installed()
        assert time.sleep is not before[-3]["sleep"]
        coro.uninstall_thread_emulation()
        coro.uninstall_thread_emulation()
        assert not coro.emulation.is_installed()
        for names, old in zip(watched, before):
            changed = {name for name in old if names.get(name) is not old[name]} | (set(names) - set(old))
            assert changed <= locks, changed
        assert sys.meta_path == finders
        thread = threading.Thread(target=print, args=("an OS thread",))
        thread.start()
        thread.join()
    """)
    assert lines == ["an OS thread"]


def test_reaches_what_was_imported_before():
    lines = ok("""
        import sys, types
        from socket import create_connection, socket
        from threading import Lock, get_ident
        from time import sleep
        import coro, logging, selectors

        class Mine(socket):
            pause = sleep

        lock = Lock()
        kept = types.SimpleNamespace(lock=Lock())
        listed = [Lock()]

        def inner(lock=None):
            return lambda: closed

        closed = Lock()
        handler = logging.StreamHandler()
        old = (sleep,)
        coro.install_thread_emulation()
        from coro.emulation._blocking import Lock as Emulated, RLock
        assert sleep is not old[0] and Mine.pause is sleep, "names and class attributes"
        assert type(lock) is type(kept.lock) is type(listed[0]) is type(closed) is Emulated
        assert type(handler.lock) is RLock
        assert Lock is Emulated and isinstance(Lock(), type(lock))

        def other():
            sleep(0)
            order.append("other")

        def main():
            thread = coro.spawn(other)
            with socket() as listener, Mine() as mine:
                listener.bind(("127.0.0.1", 0))
                listener.settimeout(0.05)
                listener.listen()
                try:
                    listener.accept()
                except TimeoutError:
                    order.append("accept")
            assert get_ident() != thread.id

        order = []
        coro.run(main)
        print(*order)
    """)
    assert lines == ["other accept"]


def test_a_c_module_loaded_afresh_is_emulated_too():
    assert ok("""
        import _queue, importlib, select, sys, threading, time
        import coro

        class AsksAll:
            def find_spec(self, name, path, target=None):
                for finder in sys.meta_path:
                    if finder is not self and name in wanted:
                        return finder.find_spec(name, path, target)

        wanted = ("_queue", "select", "time", "queue")
        coro.install_thread_emulation()
        sys.meta_path.insert(0, AsksAll())
        fresh = {}
        for name in wanted:
            old = sys.modules.pop(name, None)
            fresh[name] = module = importlib.import_module(name)
            assert module is not old
            assert type(module.__loader__) is not type(sys.meta_path[1]), "it is no loader"
            assert "coro" not in repr(module.__loader__) + repr(module.__spec__.loader), module.__loader__
            if old is not None:
                sys.modules[name] = old
        assert fresh["_queue"].SimpleQueue is fresh["queue"].SimpleQueue is _queue.SimpleQueue
        assert fresh["_queue"].Empty is fresh["queue"].Empty is _queue.Empty, "what a SimpleQueue raises"
        assert fresh["time"].sleep is time.sleep and fresh["select"].select is select.select

        def main():
            queue = fresh["queue"].SimpleQueue()
            thread = threading.Thread(target=lambda: print(queue.get()))
            thread.start()
            fresh["time"].sleep(0)
            queue.put("got it")
            thread.join()

        coro.run(main)
        coro.uninstall_thread_emulation()
        assert fresh["_queue"].SimpleQueue.__module__ == "_queue"
        assert fresh["_queue"].Empty is not _queue.Empty, "each copy has its own again"
        assert type(fresh["time"].sleep) is type(fresh["select"].select) is type(time.time)
    """) == ["got it"]


def test_context_manager_nests():
    ok("""
        import time
        import coro
        from coro.emulation import installed, is_installed

        native = (time.sleep,)  # a module's own name for it would follow
        with installed():
            with installed():
                assert is_installed()
            assert is_installed() and time.sleep is not native[0]
        assert time.sleep is native[0]
        try:
            with installed():
                raise KeyError
        except KeyError:
            assert not is_installed()
    """)


def test_a_warning_names_what_stays():
    outcome = program("""
        import threading, warnings
        import coro

        held = threading.Lock()
        held.acquire()
        class Data(threading.local):
            pass
        data = Data()
        stop = threading.Event()
        thread = threading.Thread(target=stop.wait, name="early bird")
        thread.start()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            coro.install_thread_emulation()
        (warning,) = caught
        assert warning.category is coro.emulation.EmulationWarning, warning
        print(warning.message)
        print(warning.filename)
        stop.set()
        thread.join()
    """)
    assert outcome.code == 0, outcome.err
    assert "a lock in use in __main__" in outcome.out
    assert "the class __main__.Data" in outcome.out
    assert "'early bird'" in outcome.out


def test_silent_when_nothing_is_in_the_way():
    assert ok("import coro, http.server, concurrent.futures, asyncio\ncoro.install_thread_emulation()", "-Werror") == []


def test_originals_stay_within_reach():
    lines = ok("""
        import time
        import coro
        from coro.emulation import original

        before = (time.sleep,)
        coro.install_thread_emulation()
        real = original("threading")
        assert original("time").sleep is before[0]
        assert original("json") is __import__("json")
        for wrong in (None, 3):
            try:
                original(wrong)
            except TypeError as exc:
                assert "the name of a module" in str(exc)
        seen = []

        def main():
            thread = real.Thread(target=lambda: seen.append(real.get_ident()))
            thread.start()
            thread.join()
            assert seen[0] != real.get_ident()
            import threading
            native = coro.in_thread(threading.get_ident)
            assert native != threading.get_ident() and native != real.get_ident()
            print("both")

        coro.run(main)
    """)
    assert lines == ["both"]


def test_other_os_threads_get_the_native_behaviour():
    lines = ok("""
        import queue, socket, threading, time
        import coro

        coro.install_thread_emulation()

        # no loop at all
        lock = threading.Lock()
        thread = threading.Thread(target=lock.acquire)
        thread.start()
        thread.join()
        assert lock.locked() and not lock.acquire(timeout=0.01)
        assert thread.ident > 1 << 20, "an OS thread's"

        def main():
            jobs, answers = queue.SimpleQueue(), queue.Queue()
            shared = threading.RLock()

            def foreign():
                # in an OS thread: blocks it, not the loop
                while (job := jobs.get()) is not None:
                    with shared:
                        answers.put(job * 2)

            worker = coro.emulation.original("threading").Thread(target=foreign)
            worker.start()
            with shared:
                jobs.put(21)
                time.sleep(0.01)
                assert answers.empty(), "waits for the lock that a coro thread holds"
            print(answers.get())
            a, b = socket.socketpair()
            with a, b:
                reader = coro.spawn(a.recv, 10)
                coro.in_thread(b.send, b"native")
                reader.join()
                print(reader.result)
            jobs.put(None)
            coro.in_thread(worker.join)

        coro.run(main)
    """)
    assert lines == ["42", "b'native'"]


def test_the_main_thread_is_who_it_was():
    ok("""
        import threading
        import coro

        ident = threading.get_ident()
        coro.install_thread_emulation()

        def main():
            assert threading.current_thread() is threading.main_thread()
            assert threading.get_ident() == ident
            seen = []
            thread = threading.Thread(target=lambda: seen.append(threading.current_thread()))
            thread.start()
            thread.join()
            assert seen == [thread] and thread.ident != ident
            assert isinstance(coro.spawn(threading.current_thread), coro.coro)

        coro.run(main)
        coro.run(main)
        coro.uninstall_thread_emulation()

        def inside():
            with coro.emulation.installed():
                main()

        coro.run(inside)
    """)


def test_waits_for_threads_that_are_no_daemons():
    lines = ok("""
        import threading, time
        from concurrent.futures import ThreadPoolExecutor
        import coro

        coro.install_thread_emulation()

        def late(text):
            time.sleep(0.05)
            print(text)

        def main():
            threading.Thread(target=late, args=("thread",)).start()
            threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
            executor = ThreadPoolExecutor(1)
            executor.submit(late, "job")
            executor.submit(late, "another")
            print("main")

        coro.run(main)
        coro.run(lambda: ThreadPoolExecutor(1).submit(print, "again").result())
    """)
    assert sorted(lines) == ["again", "another", "job", "main", "thread"] and lines[0] == "main"


def test_refuses_while_a_loop_runs_in_another_os_thread():
    ok("""
        import threading
        import coro

        begun, done = threading.Event(), threading.Event()

        def loop():
            coro.run(lambda: (begun.set(), coro.in_thread(done.wait)))

        thread = threading.Thread(target=loop)
        thread.start()
        begun.wait()
        try:
            coro.install_thread_emulation()
        except coro.WrongThreadError:
            pass
        else:
            raise AssertionError
        finally:
            done.set()
            thread.join()
    """)


@pytest.mark.parametrize("name", ["no_such_module_anywhere", "os.nothing"])
def test_original_of_nothing(name):
    with pytest.raises(ImportError):
        emulation.original(name)
