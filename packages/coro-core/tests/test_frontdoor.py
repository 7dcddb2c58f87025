"""The program's own terminal, played by a pseudo terminal."""

import errno
import fcntl
import os
import pty
import sys
import termios

import pytest
from support import ok

import coro
from coro import frontdoor


@pytest.fixture
def terminal(leaves_nothing):
    outside, inside = pty.openpty()
    yield outside, inside
    os.close(outside)
    os.close(inside)


def test_keys_one_by_one_and_the_mode_comes_back(terminal):
    outside, inside = terminal
    before = termios.tcgetattr(inside)

    def main():
        with frontdoor.stdin(inside, interrupt=b"") as keys:
            mode = termios.tcgetattr(inside)
            assert not mode[3] & (termios.ICANON | termios.ECHO) and not mode[0] & termios.IXON
            os.write(outside, b"a")
            assert keys.read(10) == b"a"
            os.write(outside, b"\x03\x13\r")
            assert keys.read(10) == b"\x03\x13\r"
            assert keys.write(b"shown") == 5
            keys.writelines([b"", b" and", b" more"])
            keys.writelines([])
            assert not fcntl.fcntl(inside, fcntl.F_GETFL) & os.O_NONBLOCK
            with pytest.raises(coro.TimeoutError):
                coro.with_timeout(0.001, keys.read, 1)
        keys.restore()
        assert os.read(outside, 100) == b"shown and more"

    coro.run(main)
    assert termios.tcgetattr(inside) == before


def test_what_is_no_terminal():
    r, w = os.pipe()
    with pytest.raises(OSError) as caught:
        frontdoor.stdin(r)
    assert caught.value.errno == errno.ENOTTY
    with pytest.raises(OSError):
        frontdoor.interact(fd=r)
    os.close(r)
    os.close(w)


def test_the_mode_comes_back_at_exit():
    assert ok(
        """
        import atexit, os, pty, termios
        outside, inside = pty.openpty()
        before = termios.tcgetattr(inside)
        atexit.register(lambda: print(termios.tcgetattr(inside) == before))
        from coro import frontdoor
        keys = frontdoor.stdin(inside)
        print(termios.tcgetattr(inside) == before)
        """
    ) == ["False", "True"]


def test_a_prompt(terminal):
    outside, inside = terminal
    got = b""

    def until(mark):
        nonlocal got
        far = coro.fd_sock(os.dup(outside))
        while mark not in got:
            got += far.read(1000)
        far.close()
        text, _, got = got.partition(mark)
        return text

    def main():
        session = coro.spawn(frontdoor.interact, {"x": 5}, "welcome", fd=inside)
        assert b"welcome\r\n" in until(b">>> ")
        os.write(outside, b"print(x + 1)\n")
        assert until(b">>> ") == b"print(x + 1)\r\n6\r\n"
        os.write(outside, b"\x04")
        session.join()

    stdout = sys.stdout
    coro.run(lambda: coro.with_timeout(60, main))
    assert sys.stdout is stdout
