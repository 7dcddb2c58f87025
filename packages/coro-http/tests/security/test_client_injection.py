"""Line breaks and other control characters in what a program passes on do not become headers or requests."""

import pytest
from client_support import hello, site

from coro.http.client import BasicAuth, BearerAuth, Client, DigestAuth
from coro.http.exceptions import LocalError, RemoteError, UnsupportedURL
from coro.testing import coro_test

pytestmark = pytest.mark.usefixtures("leaves_nothing")

BREAKS = ["\r\nX-Evil: 1", "\nX-Evil: 1", "\rX-Evil: 1", "\0", "\x0b", "\x7f", "\r\n\r\nGET /evil HTTP/1.1\r\n"]


@pytest.mark.parametrize("text", BREAKS)
@coro_test
def test_nothing_is_injected(text):
    with site(hello) as server, Client() as client:
        for call in (
            lambda: client.get(server.url, headers={"X": "a" + text + "b"}),
            lambda: client.get(server.url, headers={"X" + text: "a"}),
            lambda: client.get(server.url, headers={"Host": "a" + text + "b"}),
            lambda: client.request("GET" + text, server.url),
            lambda: client.request("GET /x HTTP/1.1" + text, server.url),
            lambda: client.get(server.url, cookies={"a": "b" + text + "c"}),
            lambda: client.get(server.url, cookies={"a" + text: "b"}),
            lambda: client.get(server.url, auth=("a" + text, "b")),
            lambda: client.get(server.url, auth=BearerAuth("a" + text)),
            lambda: client.get(server.url, auth=DigestAuth("a", "b" + text)),
            lambda: client.post(server.url, files={"a": ("n", b"x", "text/plain" + text)}),
        ):
            with pytest.raises(LocalError):
                call()
        for url in (server.url + "/a" + text + "b", server.url.replace("127", "1" + text + "27"), text + server.url):
            with pytest.raises(UnsupportedURL):
                client.get(url)
        with pytest.raises(UnsupportedURL):
            client.get(server.url, params="a=" + text + "b")
        assert BasicAuth("a", "b")
        client.get(server.url, params={"a": text, text: "b"})
        client.post(server.url, data={"a": "b"}, files={"f": (f"name{text}".replace("\0", ""), b"x")})
        assert client.statistics().used == 0
    assert [len(server.seen), server.seen[0].get("x-evil"), server.seen[1].get("x-evil")] == [2, None, None]
    body = server.seen[1].body.replace(b"\n", b"\r").split(b"\r")
    assert not any(line.startswith((b"X-Evil", b"GET")) for line in body)


@pytest.mark.parametrize("method", ["", " ", "GET ", " GET", "G(T", "GÉT", "CONNECT"])
def test_methods_that_are_none(method):
    with pytest.raises(LocalError):
        Client().build(method, "http://a/")


@coro_test
def test_own_methods_are_sent_as_written():
    with site(hello) as server, Client() as client:
        client.request("propfind", server.url)
        client.request("get", server.url)
    assert [seen.method for seen in server.seen] == ["propfind", "GET"]


@coro_test
def test_framing_is_not_the_callers():
    with site(hello) as server, Client() as client:
        for headers in (
            {"Transfer-Encoding": "chunked"},
            {"Transfer-Encoding": "gzip"},
            {"Content-Length": "5"},
            {"Content-Length": "x"},
        ):
            with pytest.raises(LocalError):
                client.get(server.url, headers=headers)
        with pytest.raises(LocalError):
            client.post(server.url, [b"x"], headers={"Transfer-Encoding": "chunked", "Content-Length": "1"})
        assert client.post(server.url, [b"x"], headers={"Transfer-Encoding": "chunked"}).ok
        assert client.statistics().used == 0


@coro_test
def test_a_cookie_of_a_server_breaks_no_header():
    fields = [("Set-Cookie", "a=b\tc; Path=/"), ("Set-Cookie", "d=\xff\x80")]
    with site(lambda s: (200, fields, b"")) as server, Client() as client:
        for _ in range(3):
            client.get(server.url)
    assert server.seen[-1].get("cookie") == "a=b\tc; d=\xff\x80"
    with site(lambda s: (200, [("Set-Cookie", "d=\x01")], b"")) as server, Client() as client:
        with pytest.raises(RemoteError):
            client.get(server.url)
