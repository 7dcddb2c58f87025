"""Through proxies: CONNECT, SOCKS5, absolute requests, and which proxy is taken; the proxies are strict ones of our
own."""

from __future__ import annotations

import socket
from base64 import b64encode
from contextlib import contextmanager

import client_support
import pytest
from client_support import hello, site

import coro
from coro.http._client import urls
from coro.http._client.proxies import Proxies
from coro.http.client import Client
from coro.http.exceptions import ConnectError, ProxyError, UnsupportedURL
from coro.testing import coro_test

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def pump(a, b):
    try:
        while data := a.recv(65536):
            b.send(data)
        b.shutdown(coro.SHUT.WR)
    except OSError:
        pass


def tunnel(conn, port):
    with coro.connect("127.0.0.1", port) as other, coro.group() as both:
        both.spawn(pump, conn, other)
        both.spawn(pump, other, conn)


@contextmanager
def proxy(handle):
    log = []
    with coro.Server(lambda conn, address: handle(conn, log), ("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.addresses[0][1]}", log


def connecting(conn, log):
    line, fields = client_support.read_head(conn)
    log.append((line, dict(fields)))
    method, target, _ = line.split(" ")
    assert method == "CONNECT"
    if (
        dict(fields).get("Proxy-Authorization", dict(fields).get("proxy-authorization"))
        != "Basic " + b64encode(b"u:p@").decode()
    ):
        conn.send(b"HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n")
        return
    # The answer and the first bytes of the tunnel in one: they must not be mixed up.
    conn.send(b"HTTP/1.1 200 Connection established\r\nX: y\r\n\r\n")
    tunnel(conn, int(target.rpartition(":")[2]))


def forwarding(conn, log):
    while (head := client_support.read_head(conn)) is not None:
        line, fields = head
        log.append((line, dict(fields)))
        conn.send(client_support.response(200, [], b"through the proxy"))


def socks(conn, log, *, reply=0, want=None):
    version, count = conn.recv_exact(2)
    methods = conn.recv_exact(count)
    assert version == 5
    if want is None:
        assert 0 in methods
        conn.send(b"\x05\x00")
    else:
        if 2 not in methods:
            conn.send(b"\x05\xff")
            return
        conn.send(b"\x05\x02")
        assert conn.recv_exact(1) == b"\x01"
        user = conn.recv_exact(conn.recv_exact(1)[0])
        password = conn.recv_exact(conn.recv_exact(1)[0])
        good = (user, password) == want
        conn.send(b"\x01" + (b"\x00" if good else b"\x01"))
        if not good:
            return
    assert conn.recv_exact(3) == b"\x05\x01\x00"
    kind = conn.recv_exact(1)[0]
    if kind == 3:
        host = conn.recv_exact(conn.recv_exact(1)[0]).decode()
    else:
        family = socket.AF_INET if kind == 1 else socket.AF_INET6
        host = socket.inet_ntop(family, conn.recv_exact(4 if kind == 1 else 16))
    port = int.from_bytes(conn.recv_exact(2), "big")
    log.append((kind, host, port))
    conn.send(b"\x05" + bytes([reply]) + b"\x00\x03\x05bound\x00\x50")
    if not reply:
        tunnel(conn, port)


@coro_test
def test_plain_requests_go_to_the_proxy_with_an_absolute_target():
    with proxy(forwarding) as (where, log), Client(proxy=f"http://u:p%40@{where}") as client:
        for _ in range(2):
            assert client.get("http://name.test:81/a?b", auth=("x", "y")).content == b"through the proxy"
        client.get("http://other.test/")
        assert client.statistics().made == 1
    line, fields = log[0]
    lower = {name.lower(): value for name, value in fields.items()}
    assert line == "GET http://name.test:81/a?b HTTP/1.1" and lower["host"] == "name.test:81"
    assert lower["proxy-authorization"] == "Basic dTpwQA==" and lower["authorization"] == "Basic eDp5"
    assert log[2][0] == "GET http://other.test/ HTTP/1.1"


@coro_test
def test_the_proxys_credentials_go_to_the_proxy_alone():
    with site(hello) as server, proxy(socks) as (where, _), Client(proxy=f"socks5h://{where}") as client:
        client.get(server.url, headers={"X": "y"})
        assert server.seen[0].get("proxy-authorization") is None


@pytest.mark.parametrize("scheme", ["socks5", "socks5h"])
@coro_test
def test_socks(scheme):
    with site(hello) as server, proxy(socks) as (where, log), Client(proxy=f"{scheme}://{where}") as client:
        for _ in range(3):
            assert client.get(f"http://localhost:{server.port}/").text == "hello"
        assert client.get(server.url).text == "hello"
        assert client.statistics().made == 2
    assert log == [
        (3, "localhost", server.port) if scheme == "socks5h" else (1, "127.0.0.1", server.port),
        (1, "127.0.0.1", server.port),
    ]


@coro_test
def test_socks_with_a_password():
    handle = lambda conn, log: socks(conn, log, want=(b"u", b"p"))  # noqa: E731
    with site(hello) as server, proxy(handle) as (where, _):
        with Client(proxy=f"socks5h://u:p@{where}") as client:
            assert client.get(server.url).text == "hello"
        for userinfo, text in (("u:x@", "does not accept"), ("", "no way to authenticate")):
            with Client(proxy=f"socks5h://{userinfo}{where}") as client, pytest.raises(ProxyError, match=text):
                client.get(server.url)
        assert client.statistics().used == 0


@pytest.mark.parametrize(("reply", "text"), [(5, "was refused"), (2, "not allowed"), (99, "error 99")])
@coro_test
def test_socks_refused(reply, text):
    with proxy(lambda conn, log: socks(conn, log, reply=reply)) as (where, _):
        with Client(proxy=f"socks5h://{where}") as client, pytest.raises(ProxyError, match=text):
            client.get("http://name.test/")
        assert client.statistics().used == 0


@pytest.mark.parametrize("answer", [b"", b"\x04\x00", b"HTTP/1.1 400 X\r\n\r\n", b"\x05\x00\x05\x00\x00\x09\x00"])
@pytest.mark.parametrize("scheme", ["socks5h", "http"])
@coro_test
def test_proxies_that_do_not_speak_their_protocol(scheme, answer):
    def handle(conn, log):
        conn.recv(1)
        conn.send(answer)
        conn.shutdown(coro.SHUT.WR)
        while conn.recv(65536):
            pass

    with proxy(handle) as (where, _), Client(proxy=f"{scheme}://{where}") as client:
        with pytest.raises(ConnectError):
            client.get("https://name.test/")
        assert client.statistics()[:2] == (0, 0)


@coro_test
def test_a_tunnel_is_refused():
    with proxy(connecting) as (where, log), Client(proxy=f"http://u:wrong@{where}") as client:
        with pytest.raises(ProxyError, match="407 Who; give user and password"):
            client.get("https://name.test/")
    assert log[0][0] == "CONNECT name.test:443 HTTP/1.1"


@coro_test
def test_a_head_of_a_proxy_that_does_not_end():
    def endless(conn, log):
        client_support.read_head(conn)
        conn.send(b"HTTP/1.1 200 OK\r\n")
        while True:
            conn.send(b"X: y\r\n" * 100)
            coro.yield_slice()

    with proxy(endless) as (where, _), Client(proxy=f"http://{where}") as client:
        with pytest.raises(ConnectError):
            client.get("https://name.test/")
        assert client.statistics()[:2] == (0, 0)


def test_which_proxy(monkeypatch):
    for name in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name.upper()}_PROXY", raising=False)
    of = lambda given, url: Proxies(given).of(urls.parse(url))  # noqa: E731
    assert of(None, "http://a/") is None
    assert str(of("http://p:1", "https://a/")) == "http://p:1/"
    table = {"https": "http://s:1", "http://a": None, "all": "socks5://q"}
    assert of(table, "http://a/") is None
    assert of(table, "http://b/").port == 1080 and of(table, "https://a/").host == "s"
    with pytest.raises(UnsupportedURL):
        Proxies("ftp://x")
    assert not Proxies("env")
    monkeypatch.setenv("http_proxy", "p:3128")
    monkeypatch.setenv("HTTPS_PROXY", "http://t:1")
    monkeypatch.setenv("no_proxy", "localhost, .internal.test,10.0.0.1:81")
    assert of("env", "http://a/").port == 3128 and of("env", "https://a/").host == "t"
    for url in ("http://localhost/", "http://x.internal.test/", "http://internal.test/", "http://10.0.0.1:81/"):
        assert of("env", url) is None
    assert of("env", "http://10.0.0.1/") is not None and of("env", "http://xinternal.test/") is not None
    monkeypatch.setenv("no_proxy", "*")
    assert of("env", "http://a/") is None


def test_a_header_of_a_cgi_request_names_no_proxy(monkeypatch):
    # CVE-2016-5385: a CGI program gets the header "Proxy:" of its client as HTTP_PROXY.
    monkeypatch.delenv("http_proxy", raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://evil.test:1")
    assert Proxies("env").of(urls.parse("http://a/")) is not None
    monkeypatch.setenv("REQUEST_METHOD", "GET")
    assert Proxies("env").of(urls.parse("http://a/")) is None
