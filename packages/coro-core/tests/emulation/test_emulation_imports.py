"""The import lock, forks beside imports, where all threads are, and what functions say of themselves."""

from support import ok

QUIET = "import coro; coro.set_latency_warning(0); coro.install_thread_emulation()\n"


def test_a_fork_waits_for_the_thread_that_has_the_import_lock():
    assert ok(
        QUIET
        + """
import _imp, os, sys, threading, time

def importer(started):
    _imp.acquire_lock()
    _imp.acquire_lock()
    sys.modules["half"] = "not yet"
    started.set()
    time.sleep(0.01)
    _imp.release_lock()
    sys.modules["half"] = "whole"
    _imp.release_lock()

def main():
    started = threading.Event()
    thread = threading.Thread(target=importer, args=(started,))
    thread.start()
    started.wait()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if __import__("half") == "whole" and not _imp.lock_held() else 1)
    thread.join()
    print(os.waitpid(pid, 0)[1])
    for _ in range(2):
        try:
            _imp.release_lock()
        except RuntimeError:
            print("not held")

coro.run(main)
"""
    ) == ["0", "not held", "not held"]


def test_one_thread_at_a_time_has_the_import_lock():
    assert ok(
        QUIET
        + """
import _imp, threading, time
inside = []

def use(n):
    with_lock(n)
    try:
        with coro.timeout(0.001):
            with_lock(n)
    except coro.TimeoutError:
        pass

def with_lock(n):
    _imp.acquire_lock()
    try:
        inside.append(n)
        import colorsys                     # the owner may import, and so may the others once it is their turn
        time.sleep(0.002)
        assert inside == [n], inside
    finally:
        inside.remove(n)
        _imp.release_lock()

def main():
    threads = [threading.Thread(target=use, args=(n,)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not _imp.lock_held()
    import wave
    print("done")

coro.run(main)
"""
    ) == ["done"]


def test_the_frames_of_all_threads():
    assert ok(
        QUIET
        + """
import sys, threading, time

def waits():
    try:
        raise ValueError(threading.current_thread().name)
    except ValueError:
        started.release()
        ended.wait()

def looks():
    frames = sys._current_frames()
    found = []
    for thread in threading.enumerate():
        frame = frames[thread.ident]
        while frame.f_back is not None and not frame.f_code.co_name in ("waits", "looks", "main"):
            frame = frame.f_back
        found.append((thread.name, frame.f_code.co_name))
    print(sorted(found))

def main():
    threads = [threading.Thread(target=waits, name=f"waits {n}") for n in range(2)]
    threads.append(threading.Thread(target=looks, name="looks"))
    for thread in threads[:2]:
        thread.start()
        started.acquire()
    threads[2].start()
    threads[2].join()
    found = sys._current_exceptions()
    handled = [found[thread.ident] for thread in threads[:2]]
    print([str(one[1] if isinstance(one, tuple) else one) for one in handled])
    print(found[threading.get_ident()] in (None, (None,) * 3))
    frame = sys._current_frames()[threading.get_ident()]
    print(frame.f_code.co_name)
    ended.set()

started = threading.Semaphore(0)
ended = threading.Event()
coro.run(main)
print(len(sys._current_frames()))
"""
    ) == [
        "[('MainThread', 'main'), ('looks', 'looks'), ('waits 0', 'waits'), ('waits 1', 'waits')]",
        "['waits 0', 'waits 1']",
        "True",
        "main",
        "1",
    ]


def test_functions_are_pickled_as_what_they_stand_for():
    assert ok(
        QUIET
        + """
import os, pickle, signal, time
for function in (time.sleep, os.read, os.fork, signal.signal):
    assert pickle.loads(pickle.dumps(function)) is function
print(pickle.dumps(time.sleep, 0))
"""
    ) == [r"b'ctime\nsleep\np0\n.'"]
