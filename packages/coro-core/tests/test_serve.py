"""coro.serve and coro.Server: connections come and go, limits hold, and the end is in order.

Clients are plain coro threads in the same loop. Nothing waits for time to pass, except where a pause of the server is
the point; those run on the virtual clock.
"""

from __future__ import annotations

import errno
import signal
import socket
import stat
import struct
import subprocess
import sys
import textwrap
import traceback

import pytest
from sockets_support import needs_six
from support import advance, in_loop, ok, until, virtual_clock

import coro
from coro import oserrors
from coro._net.listeners import open_listeners
from coro.servers import Server, ServerError

pytestmark = pytest.mark.usefixtures("leaves_nothing")

ANY = ("127.0.0.1", 0)


@pytest.fixture
def told():
    """What the exception notifier heard."""
    heard = []
    before = coro.set_exception_notifier(lambda: heard.append(sys.exc_info()[1]))
    yield heard
    heard.clear()
    coro.set_exception_notifier(before)


def echo(conn, address):
    while data := conn.recv(1000):
        conn.sendall(data)


def ask(address, data=b"hello"):
    with coro.connect(address) as s:
        s.sendall(data)
        return s.recv_exact(len(data))


class Gate:
    """A handler that lets its connections wait until told, and counts."""

    def __init__(self):
        self.open = coro.event()
        self.running = self.most = self.done = 0

    def __call__(self, conn, address):
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            self.open.wait()
            conn.sendall(b"done")
            self.done += 1
        finally:
            self.running -= 1


# -- serving


@in_loop
def test_echo():
    with Server(echo, ANY) as server:
        [address] = server.addresses
        assert ask(address) == b"hello"
        t = coro.in_parallel([(ask, (address, bytes([n]) * 1000)) for n in range(20)])
        assert t == [bytes([n]) * 1000 for n in range(20)]
        until(lambda: server.statistics().active == 0)
        s = server.statistics()
        assert (s.accepted, s.finished, s.failed, s.accepting) == (21, 21, 0, True)
        assert "accepting" in repr(server)
    assert not server.statistics().accepting
    with pytest.raises(oserrors.ECONNREFUSED):
        coro.connect(address)


@in_loop
def test_handlers_get_the_address_of_the_peer_and_nodelay():
    seen = []

    def handler(conn, address):
        seen.append((address, conn.getpeername(), conn.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))

    for nodelay in (True, False):
        with Server(handler, ANY, nodelay=nodelay) as server, coro.connect(server.addresses[0]) as s:
            assert s.recv(1) == b""
            mine = s.getsockname()
        address, peer, option = seen.pop()
        assert address == peer == mine and bool(option) is nodelay


@needs_six
@in_loop
def test_every_address_of_the_machine():
    for host in (None, ""):
        with Server(echo, (host, 0)) as server:
            [(_, port, *_)] = server.addresses
            for address in (("127.0.0.1", port), ("::1", port)):
                assert ask(address) == b"hello"


@needs_six
@in_loop
def test_a_name_with_addresses_of_both_families(monkeypatch):
    """They share a port, also a free one."""
    resolver = coro.dummy_resolver()
    resolver.resolve_all = lambda name, family: ["127.0.0.1"] if family == coro.AF.INET else ["::1"]
    before = coro.set_resolver(resolver)
    try:
        with Server(echo, ("both.example", 0)) as server:
            assert [a[0] for a in server.addresses] == ["127.0.0.1", "::1"]
            assert len({a[1] for a in server.addresses}) == 1
            assert ask(server.addresses[0]) == ask(server.addresses[1]) == b"hello"
    finally:
        coro.set_resolver(before)


@in_loop
def test_several_addresses(tmp_path):
    path = tmp_path / "s"
    with Server(echo, [ANY, ("127.0.0.2", 0), path]) as server:
        assert len(server.addresses) == 3
        for address in server.addresses:
            assert ask(address) == b"hello"


@in_loop
def test_unix_path(tmp_path):
    path = tmp_path / "s"
    with Server(echo, path):
        assert stat.S_ISSOCK(path.stat().st_mode)
        assert ask(str(path)) == b"hello"
        with pytest.raises(oserrors.EADDRINUSE, match=str(path)):
            Server(echo, path)  # somebody listens
    assert not path.exists()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with Server(echo, str(path)):  # nobody does
        assert ask(path) == b"hello"
    path.write_text("a file of somebody")
    with pytest.raises(oserrors.EADDRINUSE):
        Server(echo, path)
    assert path.read_text() == "a file of somebody"
    path.unlink()
    with Server(echo, path):
        path.unlink()
        path.write_text("another file")
    assert path.read_text() == "another file"


@in_loop
def test_a_socket_that_listens_already():
    with coro.tcp_sock() as mine:
        mine.bind(ANY)
        with pytest.raises(ValueError, match="listen"):
            Server(echo, mine)
        mine.listen()
        for _ in range(2):
            with Server(echo, mine) as server:
                assert ask(server.addresses[0]) == b"hello"
        assert not mine.closed
    with socket.create_server(ANY) as theirs:
        with Server(echo, theirs) as server:
            assert ask(server.addresses[0]) == b"hello"
        assert theirs.fileno() >= 0


@in_loop
def test_reuse_port():
    with Server(echo, ANY, reuse_port=True) as a, Server(echo, a.addresses[0], reuse_port=True) as b:
        assert a.addresses == b.addresses
        assert ask(a.addresses[0]) == b"hello"
    with Server(echo, ANY) as a, pytest.raises(oserrors.EADDRINUSE, match=r"127\.0\.0\.1"):
        Server(echo, a.addresses[0])


@in_loop
def test_unknown_host_and_address_of_another_machine():
    with pytest.raises(oserrors.EADDRNOTAVAIL, match=r"192\.0\.2\.1"):
        Server(echo, ("192.0.2.1", 0))
    with pytest.raises(coro.NameError):
        Server(echo, ("not a name", 0))


# -- failures of connections


@in_loop
def test_errors_of_a_handler_are_told_and_change_nothing(told):
    def handler(conn, address):
        what = conn.recv(1)
        if what == b"x":
            raise SystemExit(3)
        raise KeyError(what)

    with Server(handler, ANY) as server:
        for what in (b"a", b"x", b"b"):
            with coro.connect(server.addresses[0]) as s:
                s.sendall(what)
                assert s.recv(1) == b""  # closed
        assert server.statistics().failed == 3
    assert [type(e) for e in told] == [KeyError, SystemExit, KeyError]


def reset_by(conn):
    """Close so that the peer gets a reset."""
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    conn.close()


def ended_by_reset(told, handler, **options):
    """Statistics after a connection whose client has reset it."""
    with Server(handler, ANY, **options) as server:
        client = coro.connect(server.addresses[0])
        client.sendall(b"x")
        until(lambda: server.statistics().active == 1)
        reset_by(client)
        until(lambda: server.statistics().finished == 1)
        return server.statistics()


def read_on(conn, address):
    while True:
        conn.recv_exact(1)


def write_on(conn, address):
    while True:
        conn.sendall(b"x" * 1000)


@in_loop
def test_a_client_that_goes_away_is_no_failure(told):
    def in_a_group(conn, address):
        with coro.group() as g:
            g.spawn(read_on, conn, address)

    def closes_itself(conn, address):
        with conn:
            read_on(conn, address)

    for handler in (read_on, write_on, in_a_group, closes_itself):
        s = ended_by_reset(told, handler)
        assert (s.failed, s.resets) == (0, 1)
    assert told == []


@in_loop
def test_a_client_that_goes_away_is_told_where_asked(told):
    s = ended_by_reset(told, read_on, report_resets=True)
    assert (s.failed, s.resets) == (0, 1)
    assert [type(e) for e in told] == [oserrors.ECONNRESET]


@in_loop
def test_a_reset_of_another_connection_is_a_failure(told):
    def handler(conn, address):
        conn.recv(1)
        raise ConnectionResetError("by the data base")

    with Server(handler, ANY) as server:
        with coro.connect(server.addresses[0]) as client:
            client.sendall(b"x")
            assert client.recv(1) == b""
        until(lambda: server.statistics().finished == 1)
        assert (server.statistics().failed, server.statistics().resets) == (1, 0)
    assert [str(e) for e in told] == ["by the data base"]


@in_loop
def test_connections_that_are_closed_while_the_server_ends_are_no_failures(told):
    conns = []

    def handler(conn, address):
        conns.append(conn)
        conn.recv(1)

    with Server(handler, ANY) as server, coro.connect(server.addresses[0]):
        until(lambda: conns)
        server.stop()
        conns[0].close()
        until(lambda: server.statistics().finished == 1)
        assert (server.statistics().failed, server.statistics().resets) == (0, 1)
    assert told == []


@in_loop
def test_a_connection_that_the_program_closes_is_a_failure_of_the_handler(told):
    conns = []

    def handler(conn, address):
        conns.append(conn)
        conn.recv(1)

    with Server(handler, ANY) as server, coro.connect(server.addresses[0]):
        until(lambda: conns)
        conns[0].close()
        until(lambda: server.statistics().finished == 1)
        assert server.statistics().failed == 1
    assert [type(e) for e in told] == [coro.ClosedError]


@in_loop
def test_a_listener_that_is_closed_behind_the_servers_back_ends_it(told):
    listener = coro.tcp_sock()
    listener.bind(ANY)
    listener.listen(5)
    server = Server(echo, listener).start()
    coro.yield_slice()
    listener.close()
    with pytest.raises(coro.ClosedError):
        server.wait()


@in_loop
def test_a_failure_is_told_from_the_handler_on(told):
    def handler(conn, address):
        raise ValueError("mine")

    def short(conn):
        """Takes too few."""

    for one in (handler, short):
        with Server(one, ANY) as server, coro.connect(server.addresses[0]) as client:
            assert client.recv(1) == b""
    names = [[f.name for f in traceback.extract_tb(e.__traceback__)] for e in told]
    assert names == [["handler"], []]


@in_loop
def test_nothing_of_the_server_is_below_a_handler_that_waits():
    """Each of ten thousand connections would keep it."""
    frames = []
    gate = coro.event()

    def handler(conn, address):
        frames.append(sys._getframe())
        gate.wait()

    with Server(handler, ANY) as server, coro.connect(server.addresses[0]):
        until(lambda: frames)
        assert frames.pop().f_back is None
        gate.set()


@in_loop
def test_a_notifier_that_fails(told):
    coro.set_exception_notifier(lambda: 1 // 0)
    with Server(lambda conn, address: [][1], ANY) as server:
        for _ in range(2):
            with coro.connect(server.addresses[0]) as s:
                assert s.recv(1) == b""


@in_loop
def test_a_handler_that_gives_its_connection_away():
    kept = []
    with Server(lambda conn, address: kept.append(coro.fd_sock(conn.detach())), ANY) as server:
        with coro.connect(server.addresses[0]) as s:
            until(lambda: kept)
            kept[0].sendall(b"still here")
            assert s.recv(100) == b"still here"
        kept[0].close()


class Flaky:
    """A listening sock whose accept fails first."""

    def __init__(self, real, errors):
        self.real = real
        self.errors = errors
        self.calls = 0

    def accept_many(self, most):
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.real.accept_many(most)

    def __getattr__(self, name):
        return getattr(self.real, name)


@in_loop
def test_errors_of_accept_are_followed_by_a_pause():
    """They may be about one connection, or a packet filter's: the server goes on."""
    server = Server(echo, ANY)
    flaky = Flaky(server._listeners[0].sock, [oserrors.EPERM(), oserrors.ENETDOWN(), oserrors.EHOSTUNREACH()])
    server._listeners[0].sock = flaky
    with virtual_clock(), server:
        t = coro.spawn(ask, server.addresses[0])
        for n in range(1, 4):
            until(lambda n=n: flaky.calls == n)
            for _ in range(5):
                coro.yield_slice()
            assert flaky.calls == n and not t.dead
            advance(0.06)
        t.join()
        assert t.result == b"hello"
        assert server.statistics().accept_errors == 3


@in_loop
def test_a_listener_that_is_no_good_ends_the_server():
    server = Server(echo, ANY)
    server._listeners[0].sock = Flaky(server._listeners[0].sock, [oserrors.EINVAL()])
    with server, pytest.raises(oserrors.EINVAL):
        server.wait()
    with coro.tcp_sock() as mine:
        mine.bind(ANY)
        mine.listen()
        with Server(echo, mine) as server:
            coro.yield_slice()
            mine.close()
            with pytest.raises(coro.ClosedError):
                server.wait()


@pytest.mark.slow
def test_out_of_descriptors():
    """The server rests, says so once, and serves when there is room again; it does not burn the CPU meanwhile."""
    lines = ok(
        """
        import coro, os, resource, socket, sys, time
        said = []
        from coro._runtime import output
        output.saved_stderr = type("S", (), {"write": lambda s, t: said.append(t), "flush": lambda s: None})()

        def main():
            with coro.Server(lambda conn, address: conn.sendall(b"hello"), ("127.0.0.1", 0)) as server:
                coro.yield_slice()
                client = socket.socket()
                client.setblocking(False)
                hogs = []
                resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
                try:
                    while True:
                        hogs.append(os.open("/dev/null", os.O_RDONLY))
                except OSError:
                    pass
                client.connect_ex(server.addresses[0])
                cpu = time.process_time()
                coro.sleep_relative(0.6)
                cpu = time.process_time() - cpu
                print(server.statistics().accepted, len(said), "accept" in said[0], cpu < 0.3)
                for fd in hogs:
                    os.close(fd)
                mine = coro.fd_sock(client.detach())
                print(mine.recv_exact(5))
                mine.close()

        coro.run(main)
        """
    )
    assert lines == ["0 1 True True", "b'hello'"]


# -- max_connections


@in_loop
def test_max_connections_holds_and_the_others_wait_in_the_kernel():
    gate = Gate()
    with Server(gate, ANY, max_connections=3) as server:
        clients = [coro.connect(server.addresses[0]) for _ in range(10)]
        until(lambda: gate.running == 3)
        for _ in range(10):
            coro.yield_slice()
        s = server.statistics()
        assert (s.active, s.accepted, s.queued, s.max_connections) == (3, 3, 0, 3)
        gate.open.set()
        for c in clients:
            assert c.recv_exact(4) == b"done"  # nobody was turned away
            c.close()
        assert (gate.most, gate.done) == (3, 10)


@in_loop
def test_max_connections_over_several_listeners():
    gate = Gate()
    with Server(gate, [ANY, ("127.0.0.2", 0), ("127.0.0.3", 0)], max_connections=2) as server:
        clients = [coro.connect(a) for _ in range(4) for a in server.addresses]
        until(lambda: gate.running == 2)
        for _ in range(10):
            coro.yield_slice()
        assert gate.running == 2 and server.statistics().accepted <= 4  # one too many a listener but the first
        gate.open.set()
        for c in clients:
            assert c.recv_exact(4) == b"done"
            c.close()
        assert (gate.most, gate.done) == (2, 12)


# -- wrap


class Wrapped:
    """A stream over a connection, as a TLS layer would make."""

    def __init__(self, conn):
        self.conn = conn
        self.closed = False
        assert conn.recv_exact(2) == b"hi"

    def recv(self, n):
        return self.conn.recv(n)[::-1]

    def close(self):
        self.closed = True
        self.conn.sendall(b"bye")


@in_loop
def test_wrap():
    seen = []

    def handler(stream, address):
        seen.append((stream, stream.recv(10)))

    with Server(handler, ANY, wrap=Wrapped) as server, coro.connect(server.addresses[0]) as s:
        s.sendall(b"hi")
        coro.yield_slice()
        s.sendall(b"abc")
        assert s.recv_exact(3) == b"bye"
        assert s.recv(1) == b""
    [(stream, data)] = seen
    assert data == b"cba" and stream.closed and stream.conn.closed


@in_loop
def test_a_handshake_holds_up_nobody_and_has_a_limit(told):
    with virtual_clock(), Server(echo, ANY, wrap=lambda conn: (conn.recv_exact(1), conn)[1], wrap_timeout=5) as server:
        with coro.connect(server.addresses[0]) as silent:
            with coro.connect(server.addresses[0]) as s:
                s.sendall(b"!x")
                assert s.recv(1) == b"x"
            until(lambda: server.statistics().active == 1)
            advance(5.1)
            assert silent.recv(1) == b""
        assert server.statistics().wrap_failures == 1
        with coro.connect(server.addresses[0]) as s:
            s.shutdown(coro.SHUT.WR)  # EOFError in wrap
            assert s.recv(1) == b""
        until(lambda: server.statistics().wrap_failures == 2)
    assert told == []


@in_loop
def test_mistakes_in_wrap_are_told(told):
    with Server(echo, ANY, wrap=lambda conn: 1 // 0) as server:
        with coro.connect(server.addresses[0]) as s:
            assert s.recv(1) == b""
        assert server.statistics().wrap_failures == 1
    assert [type(e) for e in told] == [ZeroDivisionError]


@in_loop
def test_a_stream_that_does_not_close(told):
    class Stuck:
        def __init__(self, conn):
            pass

        def close(self):
            coro._yield()

    with virtual_clock(), Server(lambda stream, address: None, ANY, wrap=Stuck) as server:
        with coro.connect(server.addresses[0]) as s:
            until(lambda: server.statistics().active == 1)
            for _ in range(5):
                coro.yield_slice()
            advance(1.1)
            assert s.recv(1) == b""
    assert told == []


# -- ending


@in_loop
def test_drain_lets_handlers_finish():
    gate = Gate()
    with Server(gate, ANY) as server:
        s = coro.connect(server.addresses[0])
        until(lambda: gate.running == 1)
        t = coro.spawn(server.drain)
        until(lambda: server._listeners[0].sock.closed)
        with pytest.raises(oserrors.ECONNREFUSED):
            coro.connect(server.addresses[0])
        assert not t.dead
        gate.open.set()
        t.join()
        assert t.result is True
        assert s.recv_exact(4) == b"done"
        s.close()
        server.wait()
        assert server.drain(0) is True
        assert "ended" in repr(server)


@in_loop
def test_drain_shuts_down_who_is_late():
    gate = Gate()
    with virtual_clock(), Server(gate, ANY) as server:
        s = coro.connect(server.addresses[0])
        until(lambda: gate.running == 1)
        t = coro.spawn(server.drain, 10)
        until(lambda: not server.statistics().accepting)
        coro.yield_slice()
        advance(10.1)
        t.join()
        assert t.result is False
        assert s.recv(1) == b"" and gate.done == gate.running == 0
        s.close()


@in_loop
def test_connections_in_the_queue_are_served_by_a_drain():
    """Clients that have connected are not reset because nobody had accepted them yet."""
    server = Server(lambda conn, address: conn.sendall(b"done"), ANY)
    server.start()
    until(lambda: server.statistics().accepting and server._acceptors is not None)
    clients = []
    for _ in range(5):  # without a turn of the loop between the connections and the drain
        c = socket.socket()
        c.connect(server.addresses[0])
        clients.append(c)
    assert server.drain(10) is True
    for c in clients:
        assert c.recv(10) == b"done"
        c.close()
    assert server.statistics().accepted == 5


@in_loop
@pytest.mark.skipif(sys.platform != "linux", reason="the filter is the kernel's of Linux")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1", ""])
def test_a_listener_that_refuses_completes_what_has_begun(host):
    """A SYN is dropped, so the client asks again later; nothing else is, so neither queue nor connections suffer."""
    try:
        (listener,) = open_listeners((host, 0))
    except OSError:
        pytest.skip(f"no address {host!r} here")
    address = (host or "127.0.0.1", listener.sock.getsockname()[1])
    with socket.create_connection(address) as early:
        early.sendall(b"early")
        listener.refuse()
        listener.refuse()
        late = socket.socket(early.family)
        late.setblocking(False)
        # On one machine, a handshake is complete when connect() returns.
        assert late.connect_ex(address) == errno.EINPROGRESS
        late.close()
        conn, _ = listener.sock.accept()
        assert conn.recv(10) == b"early"
        conn.sendall(b"answer")
        assert early.recv(10) == b"answer"
        listener.close()
        early.sendall(b"more")
        assert conn.recv(10) == b"more"
        # A reset has no ACK, and has to reach the connection.
        early.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    with pytest.raises(oserrors.ECONNRESET):
        conn.recv(10)
    conn.close()


@in_loop
def test_sockets_of_others_go_on_where_a_server_ends(tmp_path):
    """A listening socket that was given to us (by systemd, say) goes on in other hands, and takes connections there."""
    given = socket.create_server(("127.0.0.1", 0))
    held = given.dup()
    server = Server(lambda conn, address: None, given)
    server.start()
    until(lambda: server.statistics().accepting)
    assert server.drain(10)
    with socket.create_connection(held.getsockname()) as client:
        held.settimeout(30)
        conn, _ = held.accept()
        client.sendall(b"x")
        assert conn.recv(10) == b"x"
        conn.close()
    given.close()
    held.close()


@in_loop
def test_leaving_the_block_shuts_handlers_down():
    gate = Gate()
    with pytest.raises(KeyError), Server(gate, ANY) as server:
        s = coro.connect(server.addresses[0])
        until(lambda: gate.running == 1)
        raise KeyError
    assert gate.running == 0 and s.recv(1) == b""
    s.close()
    server.close()  # nothing happens


@in_loop
def test_ending_from_a_handler():
    def handler(conn, address):
        for wait in (server.wait, server.drain):
            with pytest.raises(ServerError, match="itself"):
                wait()
        server.stop()
        conn.sendall(b"ok")

    with Server(handler, ANY) as server, coro.connect(server.addresses[0]) as s:
        assert s.recv(2) == b"ok"
        server.wait()
    with Server(lambda conn, address: server.close(), ANY) as server:
        with coro.connect(server.addresses[0]) as s:
            assert s.recv(1) == b""
        server.wait()


@in_loop
def test_never_started_and_started_twice():
    server = Server(echo, ANY)
    assert server.drain() is True
    server.close()
    with pytest.raises(ServerError):
        server.start()
    with Server(echo, ANY) as server:
        with pytest.raises(ServerError):
            server.start()
        server.stop()


@in_loop
def test_stopped_before_its_first_turn():
    server = Server(echo, ANY).start()
    server.stop()
    server.wait()
    assert server.statistics().accepted == 0


@in_loop
def test_serve_blocks_until_it_is_stopped():
    servers = []

    def client():
        until(lambda: servers)
        assert ask(servers[0].addresses[0]) == b"hello"
        servers[0].stop()

    t = coro.spawn(client)
    coro.serve(echo, ANY, started=servers.append)
    t.join()
    assert t.exception is None


@in_loop
def test_serve_is_interrupted_at_any_moment():
    for turns in range(12):
        gate = Gate()
        servers, clients = [], []
        t = coro.spawn(coro.serve, gate, ANY, started=servers.append)
        for _ in range(turns):
            coro.yield_slice()
            if servers and len(clients) < 3:
                c = socket.socket()
                c.connect(servers[0].addresses[0])
                clients.append(c)
        t.shutdown()
        t.join()
        assert t.exception is None or isinstance(t.exception, coro.Shutdown)
        assert len(coro.all_threads) == 1 and gate.running == 0
        for c in clients:
            c.close()


def test_the_end_of_the_loop_ends_servers():
    lines = ok(
        """
        import coro
        def handler(conn, address):
            try:
                conn.recv(1)
            finally:
                print("handler ended")
        def main():
            coro.Server(handler, ("127.0.0.1", 0)).start()
            server = coro.Server(handler, ("127.0.0.1", 0)).start()
            s = coro.connect(server.addresses[0])
            while not server.statistics().active:
                coro.yield_slice()
            coro.yield_slice()
            print("main ends")
        coro.run(main)
        """
    )
    assert lines == ["main ends", "handler ended"]


def test_a_daemon_server_keeps_no_loop_alive():
    lines = ok(
        """
        import coro
        coro.set_print_exit_string(False)
        coro.Server(print, ("127.0.0.1", 0), daemon=True).start()
        coro.spawn(coro.yield_slice)
        coro.event_loop()
        print("ended")
        """
    )
    assert lines == ["ended"]


@pytest.mark.parametrize("of_its_own", [False, True])
def test_sigterm_drains(of_its_own):
    """A handler that is at work when the signal comes finishes; a later client is refused."""
    source = """
        import coro, sys
        def handler(conn, address):
            conn.sendall(b"begun")
            conn.sendall(conn.recv(100))
        def main():
            def started(server):
                print(server.addresses[0][1], flush=True)
            if "own" in sys.argv:
                server = coro.Server(handler, ("127.0.0.1", 0)).start()
                started(server)
                server.serve_until_stopped(60)
            else:
                coro.serve(handler, ("127.0.0.1", 0), drain_timeout=60, started=started)
            print("drained")
        coro.run(main)
        """
    command = [sys.executable, "-c", textwrap.dedent(source), *(["own"] if of_its_own else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as p:
        try:
            port = int(p.stdout.readline())
            with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
                assert s.recv(5) == b"begun"
                p.send_signal(signal.SIGTERM)
                while True:
                    try:
                        socket.create_connection(("127.0.0.1", port), timeout=60).close()
                    except ConnectionRefusedError:
                        break
                    except OSError as e:
                        assert e.errno == errno.ECONNRESET
                s.sendall(b"finished")
                assert s.recv(100) == b"finished"
            assert p.communicate(timeout=60)[0] == "drained\n"
        finally:
            p.kill()
    assert p.returncode == 0


# -- misuse


@pytest.mark.parametrize(
    "arguments, options, error",
    [
        ((), {}, TypeError),
        ((echo,), {}, TypeError),
        ((7, ANY), {}, TypeError),
        ((echo, 80), {}, TypeError),
        ((echo, ("127.0.0.1",)), {}, TypeError),
        ((echo, (5, 5)), {}, TypeError),
        ((echo, ("127.0.0.1", "80")), {}, TypeError),
        ((echo, ("127.0.0.1", 70000)), {}, ValueError),
        ((echo, []), {}, ValueError),
        ((echo, ""), {}, ValueError),
        ((echo, b""), {}, ValueError),
        ((echo, [ANY, 5]), {}, TypeError),
        ((echo, ANY), {"max_connections": 0}, ValueError),
        ((echo, ANY), {"max_connections": "1"}, TypeError),
        ((echo, ANY), {"backlog": None}, TypeError),
        ((echo, ANY), {"backlog": -7}, ValueError),
        ((echo, ANY), {"wrap": 1}, TypeError),
        ((echo, ANY), {"wrap_timeout": "1"}, TypeError),
        ((echo, ANY), {"wrap_timeout": -1}, ValueError),
    ],
)
@in_loop
def test_misuse(arguments, options, error):
    for make in (Server, coro.serve):
        with pytest.raises(error) as e:
            make(*arguments, **options)
        assert str(e.value)


@in_loop
def test_misuse_of_serve_and_drain():
    with pytest.raises(TypeError):
        coro.serve(echo, ANY, started=1)
    with pytest.raises(ValueError):
        coro.serve(echo, ANY, drain_timeout=-1)
    with Server(echo, ANY) as server, pytest.raises(TypeError):
        server.drain("soon")


def test_outside_a_thread():
    with pytest.raises(coro.YieldFromMain):
        coro.serve(echo, ANY)
    server = Server(echo, ANY)  # may be made before the loop
    coro.run(lambda: server.start() and ask(server.addresses[0]))
    assert open_listeners(ANY, backlog=-1)[0].close() is None
