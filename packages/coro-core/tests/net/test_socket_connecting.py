"""The class sock accepting and connecting: with names, without descriptors, refused, interrupted."""

import contextlib
import errno
import os
import resource
import socket
import struct

import pytest
from sockets_support import listener
from support import in_loop

import coro
from coro import oserrors

pytestmark = pytest.mark.poller


# -- accepting


@in_loop
def test_accept_skips_the_aborted():
    with listener() as s:
        aborted = socket.create_connection(s.getsockname())
        aborted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        aborted.close()
        fine = socket.create_connection(s.getsockname())
        seen = []
        while fine.getsockname() not in seen:
            conn, address = s.accept()
            seen.append(address)
            conn.close()
        fine.close()


@in_loop
def test_accept_many():
    with listener() as s:
        clients = [socket.create_connection(s.getsockname()) for _ in range(5)]
        first = s.accept_many(2)
        assert len(first) == 2
        rest = s.accept_many()
        assert len(rest) == 3
        assert {a for _, a in first + rest} == {c.getsockname() for c in clients}
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.001, s.accept_many)
        t = coro.spawn(s.accept_many)
        coro.yield_slice()
        clients.append(socket.create_connection(s.getsockname()))
        t.join()
        for c in clients:
            c.close()
        for conn, _ in first + rest:
            conn.close()


@in_loop
def test_accept_many_serves_three_clients():
    served = []
    with listener() as s:

        def client(i):
            with coro.tcp_sock() as c:
                c.connect(s.getsockname())
                c.send(b"%d" % i)
                served.append(c.recv(10))

        threads = [coro.spawn(client, i) for i in range(3)]
        n = 0
        while n < 3:
            for conn, _ in s.accept_many():
                conn.send(conn.recv(10) * 2)
                conn.close()
                n += 1
        for t in threads:
            t.join()
    assert sorted(served) == [b"00", b"11", b"22"]


@contextlib.contextmanager
def no_descriptors_left():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = os.open(os.devnull, os.O_RDONLY)
    os.close(spare)
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("method", ["accept", "accept_many"])
@in_loop
def test_accept_without_descriptors_left(method, monkeypatch):
    from coro._runtime import output

    said = []
    monkeypatch.setattr(output, "print_stderr", said.append)
    with listener() as s:
        clients = [socket.create_connection(s.getsockname()) for _ in range(2)]
        conns = []
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.001, listener().accept)                   # the poller has its descriptors now

        def take():
            while len(conns) < 2:
                got = getattr(s, method)()
                conns.extend(got if method == "accept_many" else [got])

        polls = coro.statistics().polls
        with no_descriptors_left():
            t = coro.spawn(take)
            turns = 0
            for _ in range(20):
                coro.sleep_relative(0.01)                 # the others go on
                turns += 1
            assert conns == []
            with pytest.raises(coro.SimultaneousError):
                s.accept()
        polls = coro.statistics().polls - polls
        t.join()
        assert turns == 20
        assert len(conns) == 2
        assert len(said) == 1
        assert os.strerror(errno.EMFILE) in said[0]
        assert polls < 200      # some for each turn; a loop that spins makes thousands
        for c in clients:
            c.close()
        for conn, _ in conns:
            conn.close()


@in_loop
def test_accept_many_keeps_an_error_for_the_next_call():
    with listener() as s, listener() as other:
        client = socket.create_connection(s.getsockname())
        s.wait_for_read()
        ((conn, _),) = s.accept_many()
        conn.close()
        client.close()
        with pytest.raises(oserrors.EINVAL):
            coro.tcp_sock().accept()
        assert other.fd >= 0


# -- connecting


def unused_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@in_loop
def test_refused():
    with coro.tcp_sock() as s:
        for _ in range(2):
            with pytest.raises(oserrors.ECONNREFUSED) as e:
                s.connect(("127.0.0.1", unused_port()))
            assert isinstance(e.value, ConnectionRefusedError)
        with listener() as server:                       # the same sock may try again
            s.connect(server.getsockname())
            conn, _ = server.accept()
            conn.send(b"ok")
            assert s.recv(10) == b"ok"
            conn.close()


@in_loop
def test_refused_unix(tmp_path):
    with coro.unix_sock() as s:
        with pytest.raises(oserrors.ENOENT):
            s.connect(tmp_path / "nothing")
        with coro.unix_sock() as dead:
            dead.bind(tmp_path / "dead")
        with pytest.raises(oserrors.ECONNREFUSED):
            s.connect(tmp_path / "dead")


@in_loop
def test_full_unix_backlog(tmp_path):
    server = coro.unix_sock()
    server.bind(tmp_path / "s")
    server.listen(0)
    connected = []

    def client():
        s = coro.unix_sock()
        s.connect(tmp_path / "s")
        s.send(b"here")
        connected.append(s)

    threads = [coro.spawn(client) for _ in range(5)]
    for _ in range(20):
        coro.yield_slice()
    assert len(connected) < 5
    for _ in range(5):
        conn, _ = server.accept()
        assert conn.recv(10) == b"here"
        conn.close()
    for t in threads:
        t.join()
    for s in [*connected, server]:
        s.close()


@in_loop
def test_interrupted_connects():
    """A listener whose queue is full does not answer: the call waits, and can be interrupted."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        fillers = []
        for _ in range(4):
            f = socket.socket()
            f.setblocking(False)
            f.connect_ex(server.getsockname())
            fillers.append(f)
        with coro.tcp_sock() as s:
            with pytest.raises(coro.TimeoutError):
                coro.with_timeout(0.01, s.connect, server.getsockname())
        t = coro.spawn(lambda: coro.tcp_sock().connect(server.getsockname()))
        coro.yield_slice()
        t.shutdown()
        t.join()
        for f in fillers:
            f.close()


class Fixed:
    """A resolver with fixed answers."""

    def __init__(self, **names):
        self.names = names
        self.asked = []

    def resolve_all(self, name, family):
        self.asked.append((name, family))
        if name not in self.names:
            raise coro.NameError(name)
        return self.names[name]

    def resolve_ipv4(self, name):
        return self.resolve_all(name, socket.AF_INET)[0]

    resolve_ipv6 = resolve_ipv4


@contextlib.contextmanager
def resolver(r):
    old = coro.set_resolver(r)
    try:
        yield r
    finally:
        assert coro.set_resolver(old) is r


@in_loop
def test_connect_tries_all_addresses():
    fixed = Fixed(many=["127.0.0.1", "127.0.0.2", "127.0.0.3"])
    with listener(address=("127.0.0.3", 0)) as server, resolver(fixed) as r:
        port = server.getsockname()[1]
        with coro.tcp_sock() as s:
            s.connect(("many", port))
            assert s.getpeername() == ("127.0.0.3", port)
            s.send(b"x")
            conn, _ = server.accept()
            assert conn.recv(1) == b"x"
            conn.close()
        assert r.asked == [("many", socket.AF_INET)]
        with coro.tcp_sock() as s, pytest.raises(oserrors.ECONNREFUSED):
            s.connect(("many", unused_port()))
        with coro.tcp_sock() as s, pytest.raises(coro.NameError):
            s.connect(("nothing", 1))


@in_loop
def test_connect_with_a_plain_resolver():
    class Plain:
        def resolve_ipv4(self, name):
            coro.yield_slice()
            return "127.0.0.1"

        def resolve_ipv6(self, name):
            return "::1"

    with resolver(Plain()), listener() as four, listener(coro.tcp6_sock, ("::1", 0)) as six:
        with coro.tcp_sock() as s:
            s.connect(("x", four.getsockname()[1]))
        with coro.tcp6_sock() as s:
            s.connect(("x", six.getsockname()[1], 0, 0))
        with coro.tcp_sock() as s:
            s.connect_addr(("x", four.getsockname()[1]), True)
        with coro.tcp_sock() as s, pytest.raises(ValueError, match="numeric"):
            s.connect_addr(("x", four.getsockname()[1]))


@in_loop
def test_closed_while_resolving():
    class Slow:
        def resolve_ipv4(self, name):
            coro.yield_slice()
            return "127.0.0.1"

        resolve_ipv6 = resolve_ipv4

    with resolver(Slow()):
        s = coro.tcp_sock()
        coro.spawn(s.close)
        with pytest.raises(coro.ClosedError):
            s.connect(("x", 1))


@in_loop
def test_numbers_are_no_names():
    with coro.tcp_sock() as s:
        with pytest.raises(coro.NameError):
            s.connect(("123", 80))
        with pytest.raises(ValueError, match="numeric"):
            s.connect_addr(("123", 80), False)
        with pytest.raises(TypeError):
            s.connect((123, 80))
