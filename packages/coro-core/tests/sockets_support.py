"""What the tests of sockets share: connected pairs, raw peers of our servers, blocking functions beside the loop."""

import contextlib
import socket
import threading

import pytest

import coro


@contextlib.contextmanager
def os_thread(function, *args):
    """Run a blocking function beside the loop; its failure is the test's."""
    failed = []

    def body():
        try:
            function(*args)
        except BaseException as e:
            failed.append(e)

    t = threading.Thread(target=body)
    t.start()
    yield
    coro.in_thread(t.join)
    if failed:
        raise failed[0]


def listener(make=coro.tcp_sock, address=("127.0.0.1", 0)):
    """A listening sock of ours, by default on a free port of 127.0.0.1."""
    s = make()
    s.bind(address)
    s.listen()
    return s


def tcp_pair():
    """Two socks of ours, connected over TCP."""
    with listener() as server:
        a = coro.tcp_sock()
        a.connect(server.getsockname())
        b, address = server.accept()
        assert address == a.getsockname()
        return a, b


def tcp_and_standard():
    """A sock of ours and a blocking one of the standard library."""
    with listener() as server:
        theirs = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
        theirs.settimeout(60)
        return ours, theirs


def small_buffers(*socks):
    """Let the kernel keep as little as it can, so that a sender has to wait."""
    for s in socks:
        s.setsockopt(coro.SOL.SOCKET, coro.SO.SNDBUF, 1)
        s.setsockopt(coro.SOL.SOCKET, coro.SO.RCVBUF, 1)


def pattern(n):
    """So many bytes, with a period that no buffer has."""
    return bytes(range(251)) * (n // 251) + bytes(range(n % 251))


class RawPeer:
    """A connection to a server of ours, by its ``address``, that sees every byte: what nc would do."""

    def __init__(self, server):
        self.sock = coro.unix_sock() if isinstance(server.address, str) else coro.tcp_sock()
        self.sock.connect(server.address)
        self.got = b""

    def until(self, mark):
        """What comes before the mark, as bytes; EOFError if it does not come."""
        while mark not in self.got:
            data = self.sock.recv(65536)
            if not data:
                raise EOFError(self.got)
            self.got += data
        text, _, self.got = self.got.partition(mark)
        return text


def _has_six():
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_six = pytest.mark.skipif(not _has_six(), reason="needs ::1; enable IPv6 on the loopback interface")
