"""Requests that two servers in a row could cut in different places, and responses likewise.

Each case is a fact from the advisory that is named; what matters is that nothing is chosen: the message is refused, and
nothing that follows it on the connection is read.
"""

from __future__ import annotations

from typing import Any

import h1_support
import pytest
from http_support import in_loop, serving, statuses, talk

from coro.http import h1
from coro.http.exceptions import RemoteError

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"
INSIDE = b"GET /admin HTTP/1.1\r\nHost: a\r\n\r\n"

REFUSED: list[tuple[str, bytes, int]] = [
    # two ways to delimit the body: waitress GHSA-g2xc-35jw-c63p, gunicorn CVE-2024-1135
    ("length and coding", HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + INSIDE, 400),
    ("coding and length", HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + INSIDE, 400),
    ("two lengths", HEAD + b"Content-Length: 0\r\nContent-Length: 31\r\n\r\n" + INSIDE, 400),
    ("two equal lengths", HEAD + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n" + INSIDE, 400),
    ("a list of lengths", HEAD + b"Content-Length: 0, 0\r\n\r\n" + INSIDE, 400),
    # codings: gunicorn CVE-2024-6827, waitress GHSA-4ppp-gpcr-7qf6, Node CVE-2022-32213
    ("an unknown coding", HEAD + b"Transfer-Encoding: xchunked\r\n\r\n" + INSIDE, 501),
    ("chunked is not last", HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n" + INSIDE, 501),
    ("chunked twice", HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n" + INSIDE, 501),
    ("two codings", HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ("a quoted coding", HEAD + b'Transfer-Encoding: "chunked"\r\n\r\n' + INSIDE, 501),
    ("a vertical tab", HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + INSIDE, 400),
    ("a coding with parameters", HEAD + b"Transfer-Encoding: chunked;q=1\r\n\r\n" + INSIDE, 501),
    ("a coding in HTTP/1.0", b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + INSIDE, 400),
    # numbers: waitress GHSA-4f7p-27jc-3c36, aiohttp CVE-2023-47627
    *(
        (f"the length {text!r}", HEAD + b"Content-Length: " + text + b"\r\n\r\n" + INSIDE, 400)
        for text in (
            b"+0",
            b"-1",
            b"0x1f",
            b"1_0",
            b"1 0",
            b"",
            b"\xb2",
            b"\xd9\xa1",
            b"9" * 20,
            b"9223372036854775808",
            b"1.0",
            b"1e1",
        )
    ),
    *(
        (
            f"the chunk size {text!r}",
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + text + b"\r\nhello\r\n0\r\n\r\n" + INSIDE,
            400,
        )
        for text in (
            b"+5",
            b"-5",
            b"0x5",
            b"5_",
            b" 5",
            b"5 ",
            b"5\t",
            b"",
            b"g",
            b"\xb5",
            b"5 ;x",
            b"5\x00",
            b"5;\x00",
            b"f" * 16,
            b'5;a="\n"',
            b"5\r",
        )
    ),
    # chunk ends: h11 CVE-2025-43859 did not look at the two bytes behind the data
    *(
        (
            f"behind a chunk {text!r}",
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello" + text + b"0\r\n\r\n" + INSIDE,
            400,
        )
        for text in (b"XX", b"\n", b"\r", b"\r\r", b"\n\n", b"\r\n\r\n", b"x\r\n")
    ),
    ("a bare LF ends a chunk line", HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n" + INSIDE, 400),
    # trailers taken for a request: gevent CVE-2023-41419, eventlet CVE-2025-58068, aiohttp CVE-2025-53643
    *(
        (f"trailer {text!r}", HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + text + b"\r\n\r\n", 400)
        for text in (
            b"GET /admin HTTP/1.1",
            b"Content-Length: 5",
            b"Transfer-Encoding: chunked",
            b"Host: b",
            b" x: y",
            b"a b: c",
            b"X:\0",
            b"X: y\nZ: w",
        )
    ),
    # line ends and blanks: waitress GHSA-pg36, GHSA-m5ff, GHSA-968f; aiohttp CVE-2023-37276
    ("bare LF in the head", b"GET / HTTP/1.1\nHost: a\n\n", 400),
    ("bare LF in a value", HEAD + b"X: a\nContent-Length: 5\r\n\r\n", 400),
    ("bare CR in a value", HEAD + b"X: a\rContent-Length: 5\r\n\r\n", 400),
    ("NUL in a value", HEAD + b"X: a\0b\r\n\r\n", 400),
    ("NUL in a name", HEAD + b"X\0: a\r\n\r\n", 400),
    ("DEL in a value", HEAD + b"X: a\x7fb\r\n\r\n", 400),
    ("a blank before the colon", HEAD + b"Content-Length : 5\r\n\r\nhello", 400),
    ("a tab before the colon", HEAD + b"Transfer-Encoding\t: chunked\r\n\r\n", 400),
    ("a continuation line", HEAD + b"X: a\r\n Content-Length: 5\r\n\r\n", 400),
    ("a blank first line of fields", b"GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400),
    ("no colon", HEAD + b"Content-Length 5\r\n\r\n", 400),
    ("no name", HEAD + b": x\r\n\r\n", 400),
    # hosts
    ("two hosts", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    ("two equal hosts", b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
    ("no host", b"GET / HTTP/1.1\r\nX: y\r\n\r\n", 400),
    ("a list of hosts", b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400),
    ("a path in the host", b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
    # RFC 3986 3.2.2 and 3.2.3
    *(
        (f"the host {host!r}", b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % host, 400)
        for host in (
            b"a:b:c",
            b"[::1",
            b"::1",
            b":80",
            b"a:x",
            b"]",
            b"[]",
            b"[::1]x",
            b"[:::]",
            b"[1.2.3.4]",
            b"[::1%25eth0]",
            b"[v.a]",
            b"[v1.]",
            b"[v1]",
            b"[vg.a]",
            b"a:-1",
            b"a:+1",
            b"a: 80",
            b"a:65536",
            b"a:99999999",
            b"a%00b",
            b"a%2fb",
            b"a%4",
            b"a%",
            b"a%zz",
            b"a[b",
            b"a,b",
            b"[" + b"1:" * 40 + b"1]",
            b"[::1][::1]",
            b"a|b",
            b'a"b',
        )  # fmt: skip
    ),
    ("a user in the host", b"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400),
    # request lines: gunicorn #3091, #3364
    ("two blanks", b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("a tab", b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("blanks at the end", b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
    ("a blank in the target", b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("a fragment in the target", b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("a fragment in a whole URL", b"GET http://a/#b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("a target beyond ASCII", b"GET /\xe9 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("HTTP/0.9", b"GET /\r\n\r\n", 400),
    ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    ("a lower-case version", b"GET / http/1.1\r\nHost: a\r\n\r\n", 400),
    ("another version", b"GET / HTTP/1.10\r\nHost: a\r\n\r\n", 400),
    ("two empty lines", b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
]


@pytest.mark.parametrize(("data", "status"), [pytest.param(d, s, id=n) for n, d, s in REFUSED])
def test_refused_however_it_arrives(data: bytes, status: int) -> None:
    for cut in ([data], [data[i : i + 1] for i in range(len(data))]):
        found, error = h1_support.server_messages(cut)
        assert found == [] and isinstance(error, RemoteError)
        assert error.status == status


HOSTS = [
    b"a", b"a:", b"a:0", b"a:80", b"a:65535", b"!$&'()*+=", b"a..b", b"a;b=c", b"A_b", b"~", b"%C3%bc", b"[::1]",
    b"[::1]:80", b"[::1]:", b"[2001:db8::1.2.3.4]:8080", b"[v1.a:b]", b"[vFF.x]:1", b"1.2.3.4", b"999.1.1.1", b"",
]  # fmt: skip


@pytest.mark.parametrize("host", HOSTS)
def test_hosts_that_rfc_3986_allows(host: bytes) -> None:
    found, error = h1_support.server_messages([b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % host])
    assert error is None
    assert [message[2] for message in found] == [[(b"host", host)]]


@in_loop
def test_the_server_answers_and_closes() -> None:
    served: list[str] = []

    def handler(request: Any) -> str:
        request.read()
        served.append(request.path)
        return "served"

    with serving(handler) as server:
        for name, data, status in REFUSED:
            answer = talk(server, data + INSIDE)
            assert statuses(answer) == [status], name
            assert b"connection: close\r\n" in answer
    assert served == []


RESPONSES = [
    ("two lengths", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
    ("length and coding", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("an unknown coding", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    ("a negative length", b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
    ("a bare LF", b"HTTP/1.1 200 OK\nContent-Length: 0\n\n"),
    ("a continuation line", b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n"),
    ("two digits", b"HTTP/1.1 20 OK\r\n\r\n"),
    ("four digits", b"HTTP/1.1 2000 OK\r\n\r\n"),
    ("a status below 100", b"HTTP/1.1 099 OK\r\n\r\n"),
    ("a control in the reason", b"HTTP/1.1 200 O\x01K\r\n\r\n"),
    ("a chunk that is too long", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n"),
]


@pytest.mark.parametrize("data", [pytest.param(d, id=n) for n, d in RESPONSES])
def test_responses_are_refused_too(data: bytes) -> None:
    for cut in ([data], [data[i : i + 1] for i in range(len(data))]):
        found, error = h1_support.client_messages(cut)
        assert found == [] and isinstance(error, RemoteError)


def test_upgrade_with_a_body() -> None:
    """The body of a request that asks for another protocol is not taken for that protocol."""
    c = h1.Connection(h1.SERVER)
    c.feed(HEAD + b"Upgrade: x\r\nConnection: upgrade\r\nContent-Length: 31\r\n\r\n" + INSIDE + b"rest")
    c.next_event()
    assert isinstance(c.next_event(), h1.Data)
    assert isinstance(c.next_event(), h1.EndOfMessage)
    c.response(101, {"upgrade": "x", "connection": "upgrade"})
    assert c.trailing_data == (INSIDE + b"rest")[31:]
