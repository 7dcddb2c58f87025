"""Calls on descriptors whose other end a thread of the same process has: what moves bytes, raw files, standard streams,
counters, and signals that are waited for."""

from __future__ import annotations

import pytest
from emulation_support import emulated
from support import ok

HELPERS = """
    import io, os, select, signal, socket, subprocess, sys, tempfile, threading, time

    def later(function, *args):
        # Once everybody else waits.
        def run():
            for _ in range(3):
                time.sleep(0.001)
            function(*args)
        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def read_all(fd, pieces):
        while piece := os.read(fd, 65536):
            pieces.append(piece)
"""


def test_bytes_between_two_descriptors():
    assert emulated(
        HELPERS
        + """
    def main():
        data = os.urandom(1000) * 4000
        with tempfile.TemporaryFile() as file:
            file.write(data)
            file.flush()
            for offset, family in ((0, socket.AF_UNIX), (100, socket.AF_UNIX), (None, socket.AF_UNIX)):
                os.lseek(file.fileno(), 0, os.SEEK_SET)
                a, b = socket.socketpair()
                pieces = []
                thread = threading.Thread(target=read_all, args=(b.fileno(), pieces))
                thread.start()
                sent = os.sendfile(a.fileno(), file.fileno(), offset, len(data))
                print(sent == len(data) - (offset or 0), os.get_blocking(a.fileno()))
                a.close()
                thread.join()
                print(b"".join(pieces) == data[offset or 0:])
                b.close()
        r, w = os.pipe()
        r2, w2 = os.pipe()
        thread = later(os.write, w, b"abc")
        print(os.splice(r, w2, 3), os.read(r2, 3))
        thread.join()
        a, b = socket.socketpair()
        thread = later(a.sendall, b"from a socket")
        print(os.splice(b.fileno(), w2, 100), os.read(r2, 100))
        thread.join()
        a.close()
        b.close()
        # The target is full until somebody reads it.
        os.set_blocking(w2, False)
        try:
            while True:
                os.write(w2, b"y" * 4096)
        except BlockingIOError:
            os.set_blocking(w2, True)
        os.write(w, b"z" * 4096)
        thread = later(os.read, r2, 8192)
        print(os.splice(r, w2, 4096))
        thread.join()
        for fd in (r, w, r2, w2):
            assert os.get_blocking(fd)
        try:
            os.splice(r, w2, 10, flags=os.SPLICE_F_NONBLOCK)
        except BlockingIOError:
            print("as told")
        os.set_blocking(r, False)
        try:
            os.splice(r, w2, 10)
        except BlockingIOError:
            print("as the program has it")
        for wrong in (("1", 2, 3), (1000, 1001, 3)):
            for call in (os.splice, lambda out, into, count: os.sendfile(out, into, 0, count)):
                try:
                    call(*wrong)
                except (OSError, TypeError) as error:
                    print(type(error).__name__)
    """
        if hasattr(__import__("os"), "splice")
        else HELPERS + "    def main(): pass"
    ) == [
        *["True True", "True"] * 3,
        "3 b'abc'",
        "13 b'from a socket'",
        "4096",
        "as told",
        "as the program has it",
        *["TypeError"] * 2,
        *["OSError"] * 2,
    ]


def test_several_readers_of_one_pipe():
    """One of those who were woken may find nothing any more."""
    assert emulated(
        HELPERS
        + """
    def main():
        for read in (lambda: os.read(r, 1), lambda: file.read(1), lambda: (os.readv(r, [one := bytearray(1)]), one)[1]):
            r, w = os.pipe()
            file = io.FileIO(r, closefd=False)
            got = []
            threads = [threading.Thread(target=lambda: got.append(bytes(read()))) for _ in range(5)]
            for thread in threads:
                thread.start()
            for number in range(5):
                time.sleep(0.001)
                os.write(w, b"%d" % number)
            for thread in threads:
                thread.join()
            print(sorted(got))
            os.close(r)
            os.close(w)
    """
    ) == ["[b'0', b'1', b'2', b'3', b'4']"] * 3


def test_an_eventfd():
    emulated(
        HELPERS
        + """
    def main():
        if not hasattr(os, "eventfd"):
            return
        fd = os.eventfd(0)
        thread = later(os.eventfd_write, fd, 5)
        assert os.eventfd_read(fd) == 5
        thread.join()
        got = []
        threads = [threading.Thread(target=lambda: got.append(os.eventfd_read(fd))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in (1, 2, 3):
            time.sleep(0.001)
            os.eventfd_write(fd, number)
        for thread in threads:
            thread.join()
        assert sum(got) == 6, got
    """
    )


def test_writev_of_more_than_a_pipe_takes():
    emulated(
        HELPERS
        + """
    def main():
        r, w = os.pipe()
        pieces = []
        thread = threading.Thread(target=read_all, args=(r, pieces))
        thread.start()
        parts = [b"a" * 100000, bytearray(b"b" * 100000), memoryview(b"c" * 3)]
        assert os.writev(w, parts) == 200003
        os.close(w)
        thread.join()
        assert b"".join(pieces) == b"".join(parts)
    """
    )


def test_raw_files_over_what_waits():
    assert emulated(
        HELPERS
        + """
    def main():
        r, w = os.pipe()
        with io.FileIO(r) as file:
            thread = later(os.write, w, b"x")
            print(file.read(1), isinstance(file, io.FileIO), issubclass(type(file), io.RawIOBase))
            thread.join()
            os.close(w)
            print(file.read())
        r, w = os.pipe()
        with open("x", "rb", buffering=0, opener=lambda path, flags: r) as file:
            thread = later(os.write, w, b"y")
            print(file.read(1))
            thread.join()
        with open("x", "w", opener=lambda path, flags: w) as file:
            print(type(file).__name__, file.name)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "file")
            with open(path, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                with open(os.devnull, "rb", buffering=0) as null:
                    print(type(file.buffer.raw) is type(null))
            with io.FileIO(path, "w", opener=lambda path, flags: os.open(path, flags)) as file:
                print(file.write(b"z" * 100000), isinstance(file, io.FileIO))
            fifo = os.path.join(folder, "fifo")
            os.mkfifo(fifo)

            def write():
                with io.FileIO(fifo, "w") as file:
                    file.write(b"f" * 200000)

            thread = threading.Thread(target=write)
            thread.start()
            with io.FileIO(fifo) as file:
                print(len(file.readall()))
            thread.join()

        class Mine(io.FileIO):
            pass

        r, w = os.pipe()
        with Mine(r, closefd=True) as file:
            thread = later(os.write, w, b"mine")
            print(type(file).__name__, file.read(4))
            thread.join()
        for wrong in ((-1,), (object(),), ("/nowhere",), (0, "q")):
            try:
                io.FileIO(*wrong)
            except (OSError, TypeError, ValueError) as error:
                print(type(error).__name__)
    """
    ) == [
        "b'x' True True",
        "b''",
        "b'y'",
        "TextIOWrapper x",
        "True",
        "100000 True",
        "200000",
        "Mine b'mine'",
        "ValueError",
        "TypeError",
        "FileNotFoundError",
        "ValueError",
    ]


def test_print_waits_for_a_slow_reader_in_the_same_process():
    assert emulated(
        HELPERS
        + """
    def main():
        r, w = os.pipe()
        kept = os.dup(1)
        before = sys.stdout
        os.dup2(w, 1)
        os.close(w)
        pieces = []
        thread = later(read_all, r, pieces)
        writers = [threading.Thread(target=print, args=(letter * 100000,), kwargs={"flush": True}) for letter in "ab"]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        os.dup2(kept, 1)
        thread.join()
        text = b"".join(pieces)
        print(text.count(b"a"), text.count(b"b"), text.count(b"\\n"), sys.stdout is before is sys.__stdout__)
    """
    ) == ["100000 100000 2 True"]


def test_standard_streams_are_what_they_were():
    assert ok("""
        import coro, sys
        print("before", end=" ")
        streams = sys.stdout, sys.stderr
        def look():
            return [(s.name, s.encoding, s.errors, s.mode, s.line_buffering, s.write_through, s.fileno(), repr(s))
                    for s in streams]
        plain = look()
        coro.install_thread_emulation()
        assert look() == plain, (look(), plain)
        coro.run(lambda: print("with", end=" "))
        print("in the OS thread", end=" ")
        coro.uninstall_thread_emulation()
        print("after", end=" ")
        assert look() == plain
        coro.install_thread_emulation()
        assert streams == (sys.stdout, sys.stderr)

        class Late:
            def __del__(self):
                print("at the very end")

        late = Late()
        sys.modules["late"] = late
    """) == ["before with in the OS thread after at the very end"]


def test_a_program_without_standard_output():
    assert (
        ok("""
        import os, subprocess, sys
        code = "import coro; coro.install_thread_emulation(); coro.run(lambda: None); print(1)"
        for close in (lambda: os.close(1), lambda: (os.close(1), os.close(2))):
            assert subprocess.run([sys.executable, "-c", code], preexec_fn=close, stderr=2).returncode == 0
        unbuffered = subprocess.run([sys.executable, "-u", "-c", code], stdout=subprocess.PIPE)
        print(unbuffered.stdout)
    """)
        == ["b'1\\n'"]
    )


@pytest.mark.parametrize("where", ["the main thread", "another thread"])
def test_waiting_for_signals(where):
    assert emulated(
        HELPERS
        + f"""
    def main():
        def wait():
            wanted = [signal.SIGUSR1, signal.SIGUSR2]
            send = lambda number: os.kill(os.getpid(), number)
            thread = later(send, signal.SIGUSR1)
            print(repr(signal.sigwait(wanted)))
            thread.join()
            thread = later(send, signal.SIGUSR2)
            found = signal.sigwaitinfo(wanted)
            print(found.si_signo, found.si_pid == os.getpid())
            thread.join()
            thread = later(signal.raise_signal, signal.SIGUSR1)
            print(signal.sigtimedwait(wanted, 60).si_signo)
            thread.join()
            print(signal.sigtimedwait(wanted, 0.001), signal.sigtimedwait(wanted, 0))
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        if {where!r} == "the main thread":
            wait()
        else:
            thread = threading.Thread(target=wait)
            thread.start()
            thread.join()
        print(signal.pthread_sigmask(signal.SIG_BLOCK, []) == before == {{signal.SIGUSR1}})
    """
    ) == ["<Signals.SIGUSR1: 10>", "12 True", "10", "None None", "True"]


def test_the_mask_while_somebody_waits_for_a_signal():
    emulated(
        HELPERS
        + """
    def main():
        got = []
        threads = [threading.Thread(target=lambda: got.append(signal.sigwait([signal.SIGUSR1]))) for _ in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(0.001)
        mask = signal.pthread_sigmask
        assert mask(signal.SIG_BLOCK, []) == set()
        assert mask(signal.SIG_SETMASK, []) == set()          # they wait on
        assert mask(signal.SIG_UNBLOCK, [signal.SIGUSR1]) == set()
        os.kill(os.getpid(), signal.SIGUSR1)
        while len(got) < 1:
            time.sleep(0.001)
        assert mask(signal.SIG_BLOCK, [signal.SIGUSR1]) == set()
        os.kill(os.getpid(), signal.SIGUSR1)
        for thread in threads:
            thread.join()
        assert mask(signal.SIG_BLOCK, []) == {signal.SIGUSR1}
        assert got == [signal.SIGUSR1] * 2
        try:
            with coro.timeout(0.001):
                signal.sigwait([signal.SIGUSR1, signal.SIGUSR2])
        except coro.TimeoutError:
            pass
        assert mask(signal.SIG_BLOCK, []) == {signal.SIGUSR1}
        for wrong, error in (([0], ValueError), (["x"], TypeError), ([1000], ValueError)):
            try:
                signal.sigwait(wrong)
            except error:
                continue
            raise AssertionError(wrong)
    """
    )


def test_what_asks_about_the_functions_of_os():
    assert emulated(
        HELPERS
        + """
    import shutil

    def main():
        print(os.open in os.supports_dir_fd, shutil.rmtree.avoids_symlink_attacks)
        for wrong in (2**40, -(2**40)):
            try:
                io.FileIO(wrong)
            except TypeError:
                print("TypeError")
        r, w = os.pipe()
        os.close(w)
        try:
            io.FileIO(r, opener=None, mode="q")
        except ValueError:
            print("ValueError")
        with io.FileIO(mode="r", file=r) as file:
            print(file.read(), repr(file) == f"<_io.FileIO name={r} mode='rb' closefd=True>")
    """
    ) == ["True True", "TypeError", "TypeError", "ValueError", "b'' True"]
