"""What an interruption leaves behind on a sock: bytes that recv_exact() and readv() put back, and attempts to connect
that go on in the kernel."""

import os
import socket

import pytest
from sockets_support import listener, tcp_pair
from support import in_loop, ok

import coro
from coro import oserrors


def with_kept(data, pair=coro.socketpair):
    """A pair of socks, the first with bytes that an interrupted call put back."""
    a, b = pair()
    b.send(data)
    with pytest.raises(coro.TimeoutError):
        coro.with_timeout(0.001, a.recv_exact, len(data) + 100)
    return a, b


def into(a, n):
    memory = bytearray(n)
    return bytes(memory[: a.recv_into(memory)])


def from_into(a, n):
    memory = bytearray(n)
    return bytes(memory[: a.recvfrom_into(memory)[0]])


def message_into(a, n):
    memory = bytearray(n)
    return bytes(memory[: a.recvmsg_into([memory])[0]])


def peek(a, n):
    seen = a.recv(n, coro.MSG.PEEK)
    assert seen == a.recv(n)
    return seen


CALLS = {
    "recv": lambda a, n: a.recv(n),
    "read": lambda a, n: a.read(n),
    "recv_into": into,
    "recvfrom": lambda a, n: a.recvfrom(n)[0],
    "recvfrom_into": from_into,
    "recvmsg": lambda a, n: a.recvmsg(n)[0],
    "recvmsg_into": message_into,
    "recvmmsg": lambda a, n: a.recvmmsg(n, 1)[0][0],
    "recv_exact": lambda a, n: a.recv_exact(n),
    "readv": lambda a, n: b"".join(a.readv([n])),
    "peek": peek,
    "wait_for_read": lambda a, n: a.recv(min(n, a.wait_for_read() or n)),
}


@pytest.mark.parametrize("pair", [coro.socketpair, tcp_pair], ids=["unix", "tcp"])
@pytest.mark.parametrize("selfish", [1, 2, 4, 100])
@pytest.mark.parametrize("name", CALLS)
@in_loop
def test_no_byte_overtakes_those_put_back(name, selfish, pair):
    a, b = with_kept(b"0123456789", pair)
    with a, b:
        coro.current().set_max_selfish_acts(selfish)
        b.send(b"ABCDEFGHIJ")
        assert b"".join(CALLS[name](a, 1) for _ in range(20)) == b"0123456789ABCDEFGHIJ"


@pytest.mark.parametrize("selfish", [1, 2, 4, 100])
@pytest.mark.parametrize("name", CALLS)
@in_loop
def test_nobody_waits_beside_bytes_put_back(name, selfish):
    a, b = with_kept(b"0123456789")
    with a, b, coro.timeout(10):
        coro.current().set_max_selfish_acts(selfish)
        assert b"".join(CALLS[name](a, 1) for _ in range(10)) == b"0123456789"


@pytest.mark.parametrize("mode", ["rb", "rwb", "rb unbuffered", "r"])
@in_loop
def test_a_file_begins_with_the_bytes_put_back(mode):
    a, b = with_kept(b"abc")
    b.send(b"def\n")
    b.shutdown(coro.SHUT.WR)
    coro.current().set_max_selfish_acts(1)
    mode, _, unbuffered = mode.partition(" ")
    with a, b, a.makefile(mode, 0 if unbuffered else None) as file:
        assert file.read() == (b"abcdef\n" if "b" in mode else "abcdef\n")
        assert a.recv(10) == b""


@in_loop
def test_a_file_for_writing_leaves_the_bytes_put_back():
    a, b = with_kept(b"abc")
    with a, b:
        a.makefile("wb").close()
        assert a.recv(10) == b"abc"


@in_loop
def test_a_file_that_cannot_be_made_leaves_the_bytes_put_back():
    a, b = with_kept(b"abc")
    with a, b:
        with pytest.raises(LookupError):
            a.makefile("r", encoding="no such encoding")
        assert a.recv(10) == b"abc"


@in_loop
def test_a_duplicate_begins_behind_the_bytes_put_back():
    a, b = with_kept(b"abc")
    with a, b, a.dup() as d:
        b.send(b"DEF")
        assert d.recv(10) == b"DEF"
        assert a.recv(10) == b"abc"


@in_loop
def test_detaching_loses_no_bytes_put_back():
    a, b = with_kept(b"abc")
    with b:
        b.send(b"def")
        with pytest.raises(ValueError, match=r"recv\(3\)"):
            a.detach()
        assert a.recv(a.wait_for_read()) == b"abc"
        with socket.socket(fileno=a.detach()) as s:
            assert s.recv(10) == b"def"


@in_loop
def test_a_pipe_puts_back_too():
    read, write = os.pipe()
    with coro.fd_sock(read) as a, coro.fd_sock(write) as b:
        b.write(b"abc")
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.001, a.recv_exact, 10)
        coro.current().set_max_selfish_acts(1)
        b.write(b"def")
        assert [a.read(1) for _ in range(6)] == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_memory_that_runs_out_loses_nothing_that_was_put_back():
    pytest.importorskip("_testcapi")
    assert ok("""
        import _testcapi, coro

        def main():
            a, b = coro.socketpair()
            b.send(b"abc")
            try:
                coro.with_timeout(0.001, a.recv_exact, 10)
            except coro.TimeoutError:
                pass
            receive, restore = a.recv_exact, _testcapi.remove_mem_hooks
            _testcapi.set_nomemory(0, 0)
            try:
                receive(10)
            except MemoryError:
                restore()
                print("refused")
            print(a.recv(10))

        coro.run(main)
    """) == ["refused", "b'abc'"]


# -- connecting


class Silent:
    """A listener whose queue is full: it answers nobody."""

    def __init__(self):
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen(0)
        self.address = self.socket.getsockname()
        self.fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(self.address)
            self.fillers.append(filler)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for s in (*self.fillers, self.socket):
            s.close()

    def accept_until(self, address):
        """Accept as the system does it in its own time, until that client stands."""
        self.socket.setblocking(False)
        while True:
            coro.wait_for(self.socket.fileno(), coro.EVFILT.READ)
            try:
                client, found = self.socket.accept()
            except BlockingIOError:
                continue
            self.fillers.append(client)
            if found == address:
                return


def interrupted_connect(silent):
    s = coro.tcp_sock()
    with pytest.raises(coro.TimeoutError):
        coro.with_timeout(0.01, s.connect, silent.address)
    return s


@in_loop
def test_an_attempt_under_way_is_given_up_for_another_address():
    with Silent() as silent, listener() as other, interrupted_connect(silent) as s:
        s.connect(other.getsockname())
        assert s.getpeername() == other.getsockname()
        s.send(b"hello")
        peer, address = other.accept()
        assert address == s.getsockname()
        assert peer.recv_exact(5) == b"hello"
        peer.close()
        with pytest.raises(oserrors.EISCONN):
            s.connect(silent.address)


@in_loop
def test_an_attempt_given_up_does_not_spoil_the_next_one():
    with Silent() as silent, listener() as other, interrupted_connect(silent) as s:
        nobody = coro.tcp_sock()
        nobody.bind(("127.0.0.1", 0))
        for _ in range(2):
            with pytest.raises(oserrors.ECONNREFUSED):
                s.connect(nobody.getsockname())
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.01, s.connect, silent.address)
        s.connect(other.getsockname())
        assert s.getpeername() == other.getsockname()
        nobody.close()


@in_loop
def test_an_attempt_under_way_goes_on_for_the_same_address():
    with Silent() as silent, interrupted_connect(silent) as s:
        port = s.getsockname()
        for _ in range(3):
            with pytest.raises(coro.TimeoutError):
                coro.with_timeout(0.01, s.connect, silent.address)
        assert s.getsockname() == port


@pytest.mark.slow
@pytest.mark.parametrize("same", [False, True])
@in_loop
def test_an_attempt_that_succeeded_unseen(same):
    """The kernel tries again after a second, and reports the success to the next connect(2), whatever its address."""
    with Silent() as silent, listener() as other, interrupted_connect(silent) as s:
        silent.accept_until(s.getsockname())
        wanted = silent.address if same else other.getsockname()
        s.connect(wanted)
        assert s.getpeername() == wanted


@in_loop
def test_an_attempt_that_others_began():
    with Silent() as silent, listener() as other, socket.socket() as theirs:
        theirs.setblocking(False)
        theirs.connect_ex(silent.address)
        with coro.fd_sock(theirs.detach()) as s, pytest.raises(oserrors.EALREADY):
            s.connect(other.getsockname())


def test_an_emulated_attempt_under_way():
    """As the standard library has it: the kernel's EALREADY, not the first attempt's success."""
    assert ok("""
        import coro, socket
        coro.install_thread_emulation()

        def main():
            silent, other, s = socket.socket(), socket.socket(), socket.socket()
            silent.bind(("127.0.0.1", 0))
            silent.listen(0)
            fillers = [socket.socket() for _ in range(4)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(silent.getsockname())
            other.bind(("127.0.0.1", 0))
            other.listen()
            s.settimeout(0.01)
            for address in (silent.getsockname(), other.getsockname()):
                try:
                    s.connect(address)
                except (TimeoutError, BlockingIOError) as exc:
                    print(type(exc).__name__)

        coro.run(main)
    """) == ["TimeoutError", "BlockingIOError"]
