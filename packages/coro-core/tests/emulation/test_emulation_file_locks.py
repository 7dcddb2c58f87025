"""Calls that wait in the kernel for another thread of the same process, or for another process: locks of files and the
other ends of FIFOs. Each of them hung, or kept all threads waiting."""

from __future__ import annotations

import os
import signal

import pytest
from emulation_support import emulated

HELPERS = """
    import atexit, fcntl, os, shutil, subprocess, sys, tempfile, threading, time
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    name = os.path.join(folder, "file")

    def os_threads():
        return len(os.listdir("/proc/self/task")) if os.path.exists("/proc/self/task") else 1

    def other_process(take):
        # It has the lock until it is told to go.
        code = f"import fcntl, os, sys; f = open({name!r}, 'a+'); {take}; print('has', flush=True); sys.stdin.read(1)"
        other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert other.stdout.readline() == b"has\\n"
        return other

    def let_go(other):
        other.communicate(b"x")

    def raises_no_error(call):
        try:
            call()
        except BlockingIOError:
            return False
        return True
"""


def test_flock_held_by_another_thread():
    assert emulated(
        HELPERS
        + """
    from coro.testing import wait_all_blocked

    def main():
        order = []
        def work(number):
            with open(name, "a") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                order.append(number)
                time.sleep(0.001)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(100)]
        with open(name, "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            for thread in threads:
                thread.start()
                wait_all_blocked()                           # it stands in line before the next one comes
        most = 0
        while any(thread.is_alive() for thread in threads):
            most = max(most, os_threads())
            time.sleep(0.002)
        print(order == list(range(100)), most <= 2, len(os.listdir("/proc/self/fd")) < 20)
    """
    ) == ["True True True"]


def test_shared_locks_are_had_together_and_exclusive_ones_are_not():
    assert emulated(
        HELPERS
        + """
    def main():
        inside, most, wrong = [0, 0], [0, 0], []
        def work(exclusive):
            with open(name, "a") as file:
                for _ in range(5):
                    fcntl.flock(file.fileno(), fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
                    inside[exclusive] += 1
                    most[exclusive] = max(most[exclusive], inside[exclusive])
                    if inside[True] > 1 or (inside[True] and inside[False]):
                        wrong.append(list(inside))
                    time.sleep(0.001)
                    inside[exclusive] -= 1
                    fcntl.flock(file, fcntl.LOCK_UN)
        threads = [threading.Thread(target=work, args=(number % 4 == 0,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(wrong, most[True], most[False] > 1)
    """
    ) == ["[] 1 True"]


TAKES = {
    "flock": ("fcntl.flock(f, fcntl.LOCK_EX)", "fcntl.flock(file, fcntl.LOCK_EX)"),
    "lockf": ("fcntl.lockf(f, fcntl.LOCK_EX)", "fcntl.lockf(file, fcntl.LOCK_SH, 10, 5, os.SEEK_SET)"),
    "os.lockf": ("os.lockf(f.fileno(), os.F_LOCK, 0)", "os.lockf(file.fileno(), os.F_LOCK, 0)"),
    "fcntl": (
        "fcntl.lockf(f, fcntl.LOCK_EX)",
        "fcntl.fcntl(file, fcntl.F_SETLKW, _kernel_waits.lock_of(fcntl.F_WRLCK, 0, 0, 0))",
    ),
    "open file": (
        "fcntl.lockf(f, fcntl.LOCK_EX)",
        "fcntl.fcntl(file, fcntl.F_OFD_SETLKW, _kernel_waits.lock_of(fcntl.F_WRLCK, 0, 0, 0))",
    ),
}


@pytest.mark.parametrize("kind", TAKES)
def test_a_lock_of_another_process(kind):
    theirs, ours = TAKES[kind]
    assert emulated(
        HELPERS
        + f"""
    from coro.emulation import _kernel_waits

    def main():
        other = other_process({theirs!r})
        had = threading.Event()
        def take():
            with open(name, "a+") as file:
                {ours}
                had.set()
        before = os_threads()
        thread = threading.Thread(target=take)
        thread.start()
        while os_threads() == before:                      # it waits in the kernel
            time.sleep(0.001)
        assert not had.is_set()
        let_go(other)
        thread.join()
        print(had.is_set(), os_threads() == before)
    """
    ) == ["True True"]


@pytest.mark.parametrize("kind", TAKES)
def test_an_interrupted_wait_leaves_nothing(kind):
    theirs, ours = TAKES[kind]
    assert emulated(
        HELPERS
        + f"""
    from coro.emulation import _kernel_waits

    def main():
        other = other_process({theirs!r})
        time.sleep(0.001)                                # the loop has its own descriptors from now on
        before = os_threads(), len(os.listdir("/proc/self/fd"))
        with open(name, "a+") as file:
            for _ in range(20):
                try:
                    with coro.timeout(0.001):
                        {ours}
                except coro.TimeoutError:
                    continue
                raise AssertionError
            assert (os_threads(), len(os.listdir("/proc/self/fd")) - 1) == before
            let_go(other)
            # Nobody takes the lock any more for the one who gave up: another process gets it.
            check = f"import fcntl; f = open({{name!r}}, 'a+'); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB); "
            check += "fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)"
            print(subprocess.run([sys.executable, "-c", check]).returncode)
            {ours}
            print(subprocess.run([sys.executable, "-c", check], stderr=subprocess.DEVNULL).returncode)
    """
    ) == ["0", "1"]


def test_errors_are_those_of_the_system():
    assert emulated(
        HELPERS
        + """
    def main():
        r, w = os.pipe()
        for call in (
            lambda: fcntl.flock(1000, fcntl.LOCK_EX),
            lambda: fcntl.flock("file", fcntl.LOCK_EX),
            lambda: fcntl.lockf(r, fcntl.LOCK_EX),
            lambda: fcntl.lockf(r, 1000),
            lambda: os.lockf(1000, os.F_LOCK, 0),
            lambda: fcntl.fcntl(r, fcntl.F_SETLKW, b"short"),
            lambda: os.open("/nowhere/at/all", os.O_RDONLY),
            lambda: os.open(b"nowhere", os.O_RDONLY, dir_fd=1000),
        ):
            try:
                call()
            except Exception as error:
                print(type(error).__name__, getattr(error, "filename", None))
            else:
                print("no error")
        with open(name, "a") as a, open(name, "a") as b:
            fcntl.flock(a, fcntl.LOCK_EX)
            print(raises_no_error(lambda: fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB)))
            fcntl.flock(a, fcntl.LOCK_UN)
            print(raises_no_error(lambda: fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB)))
    """
    ) == [
        "OSError None",
        "TypeError None",
        "OSError None",
        "ValueError None",
        "OSError None",
        "OSError None",
        "FileNotFoundError /nowhere/at/all",
        "OSError b'nowhere'",
        "False",
        "True",
    ]


def test_many_fifos_more_than_there_are_workers():
    assert emulated(
        HELPERS
        + """
    def main():
        coro.offload.set_max_workers(1)
        got = []
        def read(path, how):
            if how:
                with open(path, "rb") as file:
                    got.append(file.read())
            else:
                fd = os.open(path, os.O_RDONLY)
                got.append(os.read(fd, 100))
                os.close(fd)
        paths = [f"{name}{number}" for number in range(40)]
        for path in paths:
            os.mkfifo(path)
        threads = [threading.Thread(target=read, args=(path, number % 2)) for number, path in enumerate(paths)]
        for thread in threads:
            thread.start()
        time.sleep(0.001)
        for number, path in enumerate(paths):
            file = open(path, "wb", buffering=0) if number % 3 else open(os.open(path, os.O_WRONLY), "wb", buffering=0)
            with file:
                file.write(path.encode())
        for thread in threads:
            thread.join()
        print(sorted(got) == sorted(map(os.fsencode, paths)))
    """
    ) == ["True"]


def test_an_interrupted_opening_leaves_nothing():
    assert emulated(
        HELPERS
        + """
    import stat

    def main():
        os.mkfifo(name)
        time.sleep(0.001)                                # the loop has its own descriptors from now on
        before = os_threads(), len(os.listdir("/proc/self/fd"))
        for call in (lambda: os.open(name, os.O_RDONLY), lambda: open(name), lambda: os.open(name, os.O_WRONLY)) * 10:
            try:
                with coro.timeout(0.001):
                    call()
            except coro.TimeoutError:
                continue
            raise AssertionError
        print((os_threads(), len(os.listdir("/proc/self/fd"))) == before)
        both = os.open(name, os.O_RDWR)                  # which never waits for another
        reader = os.open(name, os.O_RDONLY)
        print(stat.S_ISFIFO(os.fstat(reader).st_mode), os.get_inheritable(reader))
    """
    ) == ["True", "True False"]


def test_a_signal_handler_that_raises_ends_the_wait():
    assert emulated(
        HELPERS
        + """
    import signal

    class Stop(Exception):
        pass

    def main():
        other = other_process("fcntl.flock(f, fcntl.LOCK_EX)")
        heard = []
        def handle(signum, frame):
            heard.append(signum)
            if len(heard) == 2:
                raise Stop
        signal.signal(signal.SIGUSR1, handle)
        before = os_threads()
        def send():
            for _ in range(2):
                count = len(heard)
                while os_threads() == before:
                    time.sleep(0.001)
                os.kill(os.getpid(), signal.SIGUSR1)
                while len(heard) == count:
                    time.sleep(0.001)
        thread = threading.Thread(target=send)
        thread.start()
        with open(name, "a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
            except Stop:
                print("stopped", len(heard))
        thread.join()
        let_go(other)
    """
    ) == ["stopped 2"]


def test_a_lock_that_comes_while_nobody_wants_it_any_more_is_given_back():
    """The exception and the lock arrive in the same turn of the loop."""
    assert emulated(
        HELPERS
        + """
    def main():
        wanted = 0
        for _ in range(50):
            with open(name, "a") as a, open(name, "a") as b:
                fcntl.flock(a, fcntl.LOCK_EX)
                outcome = []
                def take():
                    try:
                        fcntl.flock(b, fcntl.LOCK_EX)
                        outcome.append("has")
                    except KeyError:
                        outcome.append("gave up")
                thread = threading.Thread(target=take)
                before = os_threads()
                thread.start()
                while os_threads() == before:
                    time.sleep(0)
                fcntl.flock(a, fcntl.LOCK_UN)
                coro.get_thread_by_id(thread.ident).raise_exception(KeyError)
                thread.join()
                free = raises_no_error(lambda: fcntl.flock(a, fcntl.LOCK_EX | fcntl.LOCK_NB))
                assert free == (outcome == ["gave up"]), (free, outcome)
        print("done")
    """
    ) == ["done"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_wait_ends_while_a_child_lives_that_was_forked_meanwhile():
    """The child has all descriptors that the waiting threads have."""
    assert emulated(
        HELPERS
        + """
    import socket, warnings
    warnings.simplefilter("ignore", DeprecationWarning)     # of fork() with OS threads
    def main():
        fifo = os.path.join(folder, "fifo")
        os.mkfifo(fifo)
        ours, childs = socket.socketpair()
        outcome = []
        with open(name, "a") as a:
            fcntl.flock(a, fcntl.LOCK_EX)
            def take():
                with open(name, "a") as b:
                    fcntl.flock(b, fcntl.LOCK_EX)
                    outcome.append("has")
            def read():
                with open(fifo) as f:
                    outcome.append(f.read())
            threads = [threading.Thread(target=take), threading.Thread(target=read)]
            before = os_threads()
            for thread in threads:
                thread.start()
            while os_threads() < before + 2:
                time.sleep(0)
            child = os.fork()
            if child == 0:
                ours.close()
                a.close()
                childs.recv(1)
                os._exit(0)
            childs.close()
            with open(fifo, "w") as f:
                f.write("text")
            fcntl.flock(a, fcntl.LOCK_UN)
        for thread in threads:
            thread.join()
        print(sorted(outcome), os.waitpid(child, os.WNOHANG)[0])
        ours.close()
        print(os.waitpid(child, 0) == (child, 0))
    """
    ) == ["['has', 'text'] 0", "True"]


@pytest.mark.skipif(not hasattr(signal, "SIGRTMAX"), reason="needs signals of real time")
def test_signals_that_a_program_uses_are_left_to_it():
    """An OS thread that waits is taken out of the kernel by a signal."""
    assert emulated(
        HELPERS
        + """
    import signal
    NUMBER = signal.SIGRTMAX - 2
    heard = []

    def give_up_while_locked(meanwhile):
        outcome = []
        with open(name, "a") as a:
            fcntl.flock(a, fcntl.LOCK_EX)
            def take():
                with open(name, "a") as b:
                    try:
                        fcntl.flock(b, fcntl.LOCK_EX)
                    except KeyError:
                        outcome.append("gave up")
            thread = threading.Thread(target=take)
            before = os_threads()
            thread.start()
            while os_threads() == before:
                time.sleep(0)
            meanwhile()
            coro.get_thread_by_id(thread.ident).raise_exception(KeyError)
            thread.join()
        while os_threads() > before:        # an OS thread that got no signal has the lock now, and gives it back
            time.sleep(0.001)
        with open(name, "a") as a:
            fcntl.flock(a, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return outcome

    def hear():
        os.kill(os.getpid(), NUMBER)
        while not heard:
            time.sleep(0)
        return heard.pop()

    def main():
        handler = lambda number, frame: heard.append(number == NUMBER)
        signal.signal(NUMBER, handler)
        print(give_up_while_locked(hear), hear())
        signal.signal(NUMBER, signal.SIG_DFL)
        print(give_up_while_locked(lambda: None))
        for theirs in (handler, signal.SIG_IGN, signal.SIG_DFL):
            for number in range(signal.SIGRTMIN, NUMBER + 1):
                signal.signal(number, signal.SIG_DFL)
            def use_all():
                for number in range(signal.SIGRTMIN, NUMBER + 1):
                    signal.signal(number, theirs)
            print(give_up_while_locked(use_all), heard)
    """
    ) == ["['gave up'] True", "['gave up']", *(["['gave up'] []"] * 3)]
