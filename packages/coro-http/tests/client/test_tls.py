"""https: verified by default, kept open, cut streams noticed, through proxies, and ended in time."""

from __future__ import annotations

import ssl

import client_support
import client_tls
import pytest
from client_support import hello, raw, site

import coro
from coro import testing, tls
from coro.http.client import Client, Timeout
from coro.http.exceptions import ConnectError, ConnectTimeout, DeadlineExceeded, ReadError, RemoteError
from coro.testing import coro_test

pytestmark = pytest.mark.usefixtures("leaves_nothing")


@pytest.fixture
def wrap(tmp_path):
    context = tls.context(client_tls.server_context(tmp_path))
    return lambda conn: context.wrap(conn, server_side=True)


def https(server, name="127.0.0.1"):
    return f"https://{name}:{server.port}/"


@coro_test
def test_connections_are_kept(wrap):
    with site(hello, wrap=wrap) as server, Client(tls=client_tls.client_context()) as client:
        for _ in range(5):
            assert client.get(https(server)).text == "hello"
        assert client.post(https(server), b"x" * 300_000).text == "hello"
        with client.stream("GET", https(server)) as streamed:
            assert streamed.read() == b"hello"
        assert client.statistics().made == 1


@coro_test
def test_strangers_are_refused(wrap):
    with site(hello, wrap=wrap, host="0.0.0.0") as server:
        with Client() as client, pytest.raises(ConnectError, match="certificate"):
            client.get(https(server))
        with Client(tls=client_tls.client_context()) as client:
            with pytest.raises(ConnectError, match="certificate"):
                client.get(https(server, "127.0.0.2"))
            assert client.get(https(server, "localhost")).text == "hello"
            assert client.statistics().used == 0
        assert all(seen.get("host") == f"localhost:{server.port}" for seen in server.seen)
        unchecked = ssl.create_default_context()
        unchecked.check_hostname = False
        unchecked.verify_mode = ssl.CERT_NONE
        with Client(tls=unchecked) as client:
            assert client.get(https(server, "127.0.0.2")).text == "hello"


@coro_test
def test_http_to_https_is_another_origin(wrap):
    with site(hello, wrap=wrap) as secure, Client(tls=client_tls.client_context()) as client:
        with site(lambda s: (302, [("Location", https(secure))], b"")) as plain:
            client.get(plain.url, auth=("u", "p"))
            assert plain.seen[0].get("authorization") and not secure.seen[0].get("authorization")


@coro_test
def test_a_secure_cookie(wrap):
    with site(lambda s: (200, [("Set-Cookie", "a=b; Secure")], b""), wrap=wrap) as secure, site(hello) as plain:
        with Client(tls=client_tls.client_context()) as client:
            for _ in range(2):
                client.get(https(secure))
            client.get(plain.url)
    assert secure.seen[1].get("cookie") == "a=b" and plain.seen[0].get("cookie") is None


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf of", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of"],
)
@coro_test
def test_a_stream_that_ends_without_a_farewell_is_cut(wrap, answer):
    """Whoever can close the connection below could otherwise shorten every body that ends with the connection."""

    def handle(conn, address):
        stream = wrap(conn)
        client_support.read_head(stream)
        stream.send(answer)
        conn.close()

    with coro.Server(handle, ("127.0.0.1", 0)) as server, Client(tls=client_tls.client_context()) as client:
        with pytest.raises((ReadError, RemoteError)):
            client.get(f"https://127.0.0.1:{server.addresses[0][1]}/")
        assert client.statistics()[:2] == (0, 0)


@coro_test
def test_a_server_that_does_not_shake_hands():
    with testing.virtual_clock(autojump=True), raw(client_support.forever) as server:
        with Client(timeout=Timeout(tls=3)) as client, pytest.raises((ConnectTimeout, ConnectError)):
            client.get(https(server))
        with Client(timeout=2) as client:
            with pytest.raises(DeadlineExceeded):
                client.get(https(server))
            assert client.statistics().used == 0


@coro_test
def test_a_server_without_tls():
    def plain(conn):
        conn.recv(1)
        conn.send(b"HTTP/1.1 400 This is no TLS\r\n\r\n")

    with raw(plain) as server, Client() as client:
        with pytest.raises(ConnectError):
            client.get(https(server))
        assert client.statistics().used == 0


@pytest.mark.parametrize("scheme", ["http", "https", "socks5h"])
@coro_test
def test_through_a_proxy(wrap, scheme):
    asked = []

    def pump(a, b):
        try:
            while data := a.recv(65536):
                b.send(data)
            b.shutdown(coro.SHUT.WR)
        except OSError:
            pass

    def handle(conn, address):
        if scheme == "socks5h":
            conn.recv_exact(3)
            conn.send(b"\x05\x00")
            host = conn.recv_exact(5)[4]
            asked.append(conn.recv_exact(host))
            port = int.from_bytes(conn.recv_exact(2), "big")
            conn.send(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
        else:
            line, _ = client_support.read_head(conn)
            asked.append(line)
            port = int(line.split()[1].rpartition(":")[2])
            conn.send(b"HTTP/1.1 200 OK\r\n\r\n")
        with coro.connect("127.0.0.1", port) as other, coro.group() as both:
            both.spawn(pump, conn, other)
            both.spawn(pump, other, conn)

    of_proxy = wrap if scheme == "https" else None
    with site(hello, wrap=wrap) as server, coro.Server(handle, ("127.0.0.1", 0), wrap=of_proxy) as proxy:
        where = f"{scheme}://localhost:{proxy.addresses[0][1]}"
        with Client(proxy=where, tls=client_tls.client_context()) as client:
            for _ in range(3):
                assert client.get(https(server, "localhost")).text == "hello"
            assert client.statistics().made == 1
    assert asked == [b"localhost" if scheme == "socks5h" else f"CONNECT localhost:{server.port} HTTP/1.1"]


@coro_test
def test_ended_at_every_turn_of_a_handshake(wrap):
    with site(hello, wrap=wrap) as server, Client(tls=client_tls.client_context()) as client:
        for turns in range(40):
            thread = coro.spawn(client.get, https(server, "localhost"))
            for _ in range(turns):
                coro.yield_slice()
            done = thread.dead
            thread.shutdown()
            thread.join()
            assert client.statistics().used == 0
            client.pool.close()
            client.pool._closed = False
            if done:
                break
        assert client.get(https(server)).text == "hello"
