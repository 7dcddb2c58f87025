"""What the kernel says may be more than what was asked for: lengths and sizes that nobody may take at their word.

With MSG_TRUNC recv(2) returns a datagram's real length whatever the buffer holds, and on a TCP socket a number of bytes
that it threw away; SO_GET_FILTER counts in instructions.  The results have the standard library's lengths, but none of
what other connections received, or memory held, before.
"""

import ctypes
import socket
import struct
import sys

import pytest
from sockets_support import tcp_pair
from support import in_loop, ok

import coro

TRUNC, PEEK, DONTWAIT = coro.MSG.TRUNC, coro.MSG.PEEK, coro.MSG.DONTWAIT
SECRET = b"secret of another connection " * 2000
LENGTH = 1000
FILTER = 26  # SO_ATTACH_FILTER and SO_GET_FILTER, for which Python has no name

pytestmark = pytest.mark.skipif(not hasattr(coro.MSG, "TRUNC"), reason="the system has no MSG_TRUNC")


def spill():
    """Have somebody's data lie where small reads arrive."""
    a, b = coro.socketpair()
    b.setsockopt(coro.SOL.SOCKET, coro.SO.SNDBUF, 200_000)
    b.send(SECRET)
    assert a.recv(65536) == SECRET
    a.close()
    b.close()


def datagrams(family, length=LENGTH):
    """A sock in whose queue a datagram waits, and its sender."""
    if family == "udp":
        a, b = coro.udp_sock(), coro.udp_sock()
        a.bind(("127.0.0.1", 0))
        b.connect_addr(a.getsockname())
    else:
        a, b = coro.socketpair(coro.AF.UNIX, coro.SOCK.DGRAM)
        b.setsockopt(coro.SOL.SOCKET, coro.SO.SNDBUF, 400_000)
    b.send(b"d" * length)
    return a, b


@pytest.mark.parametrize("extra", [0, PEEK, DONTWAIT], ids=["", "peek", "dontwait"])
@pytest.mark.parametrize("asked", [0, 1, 10, LENGTH - 1, LENGTH, LENGTH + 1, 70_000])
@pytest.mark.parametrize("family", ["udp", "unix"])
@in_loop
def test_a_cut_datagram(family, asked, extra):
    flags = TRUNC | extra
    there = min(asked, LENGTH)
    expected = b"d" * there + bytes(LENGTH - there)

    def ask(call):
        a, b = datagrams(family)
        spill()
        with a, b:
            return call(a)

    assert ask(lambda a: a.recv(asked, flags)) == expected
    assert ask(lambda a: a.recvfrom(asked, flags)[0]) == expected
    data, _, message_flags, _ = ask(lambda a: a.recvmsg(asked, 0, flags))
    assert data == expected[:asked]
    assert bool(message_flags & TRUNC) == (asked < LENGTH)
    if asked == 0:
        return  # which means all of the buffer
    for into in (
        lambda a, view: a.recv_into(view, asked, flags),
        lambda a, view: a.recvfrom_into(view, asked, flags)[0],
        lambda a, view: a.recvmsg_into([view[: asked // 2], view[asked // 2 : asked]], 0, flags)[0],
    ):
        memory = bytearray(b"-" * (asked + 100))
        assert ask(lambda a, into=into, memory=memory: into(a, memoryview(memory))) == LENGTH
        assert memory == b"d" * there + b"-" * (asked + 100 - there)


@in_loop
def test_a_buffer_of_the_size_asked_for_is_not_left():
    a, b = datagrams("udp", 60_000)
    spill()
    buffers = [bytearray(16) for _ in range(50)]  # side by side in memory
    for buffer in buffers[::2]:
        assert a.recvfrom_into(buffer, 0, TRUNC | PEEK)[0] == 60_000
        assert a.recv_into(buffer, 0, TRUNC | PEEK) == 60_000
        assert a.recvmsg_into([buffer], 0, TRUNC | PEEK)[0] == 60_000
    assert buffers == [bytearray(b"d" * 16), bytearray(16)] * 25
    a.close()
    b.close()


@in_loop
def test_a_datagram_longer_than_the_static_buffer():
    a, b = datagrams("unix", 150_000)
    with a, b:
        for asked in (10, 65536, 70_000):
            expected = b"d" * asked + bytes(150_000 - asked)
            assert a.recv(asked, TRUNC | PEEK) == expected
            assert a.recvfrom(asked, TRUNC | PEEK)[0] == expected


@in_loop
def test_what_tcp_throws_away():
    """tcp(7): with MSG_TRUNC the bytes are discarded, not passed back."""
    for asked in (5, 20_000, 80_000):
        for call in (
            lambda a, n: a.recv(n, TRUNC),
            lambda a, n: a.recvfrom(n, TRUNC)[0],
            lambda a, n: a.recvmsg(n, 0, TRUNC)[0],
        ):
            a, b = tcp_pair()
            b.send(b"t" * asked + b"rest")
            spill()
            got = call(a, asked)
            assert got == bytes(len(got))
            left = asked - len(got)
            assert a.recv_exact(left + 4) == b"t" * left + b"rest"
            a.close()
            b.close()
        a, b = tcp_pair()
        b.send(b"t" * asked + b"rest")
        memory = bytearray(b"-" * asked)
        left = asked - a.recv_into(memory, 0, TRUNC)
        assert memory == b"-" * asked
        assert a.recv_exact(left + 4) == b"t" * left + b"rest"
        a.close()
        b.close()


@in_loop
def test_the_lengths_are_those_of_the_standard_library():
    def ask(pair, call):
        a, b = pair(int(coro.AF.UNIX), int(coro.SOCK.DGRAM))
        with a, b:
            b.send(b"d" * LENGTH)
            return call(a)

    for call in (
        lambda a: len(a.recv(10, TRUNC)),
        lambda a: len(a.recvfrom(10, TRUNC)[0]),
        lambda a: a.recv_into(bytearray(10), 0, TRUNC),
        lambda a: a.recvfrom_into(bytearray(10), 0, TRUNC)[0],
        lambda a: len(a.recvmsg(10, 0, TRUNC)[0]),
        lambda a: a.recvmsg_into([bytearray(10)], 0, TRUNC)[0],
    ):
        try:
            expected = ask(socket.socketpair, call)
        except ValueError:
            continue  # from 3.15 on it cannot make a result longer than asked for
        assert ask(coro.socketpair, call) == expected


@pytest.mark.skipif(sys.platform != "linux", reason="socket filters of this kind are Linux's")
@in_loop
def test_an_option_that_counts_in_other_units():
    """SO_GET_FILTER writes as many instructions as it says, of 8 bytes each: far more than an int."""
    instructions = struct.pack("HBBI", 0x06, 0, 0, 0xFFFFFFFF) * 4  # "accept the whole packet"
    program = ctypes.create_string_buffer(instructions, len(instructions))
    spill()
    with coro.udp_sock() as s:
        s.setsockopt(coro.SOL.SOCKET, FILTER, struct.pack("HP", 4, ctypes.addressof(program)))
        assert isinstance(s.getsockopt(coro.SOL.SOCKET, FILTER), int)
        for size in (4, 8, 32, 1024):
            assert s.getsockopt(coro.SOL.SOCKET, FILTER, size) == instructions[:4]


@in_loop
def test_an_option_reads_nothing_of_what_others_received():
    with coro.tcp_sock() as s:
        spill()
        for size in (4, 64, 1024):
            assert b"secret" not in s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
        with pytest.raises(ValueError, match="1024"):
            s.getsockopt(coro.SOL.SOCKET, coro.SO.RCVBUF, 1025)
        with pytest.raises(ValueError, match="1024"):
            s.getsockopt(coro.SOL.SOCKET, coro.SO.RCVBUF, -1)


def test_cut_datagrams_under_emulation():
    assert ok("""
        import coro, socket
        coro.install_thread_emulation()

        def main():
            a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            for flags in (socket.MSG_TRUNC, socket.MSG_TRUNC | socket.MSG_WAITALL):
                b.send(b"d" * 1000)
                assert a.recv(10, flags) == b"d" * 10 + bytes(990)
                b.send(b"d" * 1000)
                memory = bytearray(20)
                assert a.recv_into(memory, 10, flags) == 1000
                assert memory == b"d" * 10 + bytes(10), memory
            try:
                a.recv(10, socket.MSG_ERRQUEUE)  # a UNIX socket has no such queue; this would hold up the process
            except BlockingIOError:
                pass
            try:
                a.recv_into(memory, 21, socket.MSG_WAITALL)
            except ValueError:
                print("refused")

        coro.run(main)
    """) == ["refused"]
