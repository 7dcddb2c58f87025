"""Reading everything that a codec has to say, by pieces of any size; messages that are made and damaged by a seed."""

from __future__ import annotations

import random
from collections.abc import Iterable

from coro.http import h1
from coro.http.exceptions import RemoteError

Message = tuple[object, ...]


def server_messages(pieces: Iterable[bytes], **limits: int) -> tuple[list[Message], RemoteError | None]:
    """What a server reads of these pieces, with each request answered at once: (method, target, fields, body,
    trailers), and the error that ended it."""
    c = h1.Connection(h1.SERVER, **limits)
    found: list[Message] = []
    request: h1.Request | None = None
    body = bytearray()
    try:
        for piece in [*pieces, b""]:
            c.feed(piece)
            while True:
                event = c.next_event()
                if isinstance(event, h1.Request):
                    request, body = event, bytearray()
                elif isinstance(event, h1.Data):
                    body += event.data
                elif isinstance(event, h1.EndOfMessage):
                    assert request is not None
                    fields = [(name.lower(), value) for name, value in request.raw_headers]
                    trailers = event.trailers.items()
                    found.append((request.method, request.target, fields, bytes(body), trailers))
                elif event is h1.PAUSED:
                    if c.switched:
                        return found, None
                    c.response(200, [("content-length", "0")])
                    c.end()
                else:
                    break
    except RemoteError as e:
        return found, e
    return found, None


def client_messages(
    pieces: Iterable[bytes], methods: Iterable[str] = ("GET",)
) -> tuple[list[Message], RemoteError | None]:
    """What a client reads of these pieces as answers to these requests: (status, reason, fields, body)."""
    c = h1.Connection(h1.CLIENT)
    for method in methods:
        c.request(method, "/", [("host", "example.org"), ("upgrade", "x"), ("connection", "upgrade")])
    found: list[Message] = []
    response: h1.Response | None = None
    body = bytearray()
    try:
        for piece in [*pieces, b""]:
            c.feed(piece)
            while True:
                event = c.next_event()
                if isinstance(event, h1.InformationalResponse):
                    found.append((event.status,))
                elif isinstance(event, h1.Response):
                    response, body = event, bytearray()
                    if c.switched:
                        return [*found, (event.status, c.trailing_data)], None
                elif isinstance(event, h1.Data):
                    body += event.data
                elif isinstance(event, h1.EndOfMessage):
                    assert response is not None
                    fields = [(name.lower(), value) for name, value in response.raw_headers]
                    found.append((response.status, response.reason, fields, bytes(body)))
                else:
                    break
    except RemoteError as e:
        return found, e
    return found, None


NAMES = [b"Accept", b"X-One", b"Cookie", b"User-Agent", b"x", b"Via", b"Content-Type", b"If-None-Match"]
VALUES = [b"a", b"text/html, */*;q=0.8", b"a=b; c=d", b"", b"caf\xc3\xa9", b"x" * 200, b"a\tb", b'"etag"']
CORPUS = [
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /x?y=z HTTP/1.1\r\nHost: a:80\r\nAccept: */*\r\n\r\n",
    b"POST /f HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3;q=1\r\nabc\r\n0\r\nT: v\r\n\r\n",
    b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.0\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost:\r\nConnection: close, x\r\n\r\n",
    b"GET http://a/b HTTP/1.1\r\nhost: a\r\nExpect: 100-continue\r\n\r\n",
    b"PUT /" + b"p" * 300 + b" HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nX: " + b"v" * 1000 + b"\r\n\r\n",
]


def request(rng: random.Random) -> bytes:
    """A request that is right in form."""
    lines = [
        b"%s %s HTTP/1.%d"
        % (
            rng.choice([b"GET", b"POST", b"PUT", b"DELETE", b"X-Y"]),
            rng.choice([b"/", b"/a/b?c=d", b"*", b"/%41", b"http://h/p"]),
            rng.choice([1, 1, 1, 0]),
        ),
        b"Host: example.org",
    ]
    for _ in range(rng.randrange(5)):
        lines.append(rng.choice(NAMES) + b":" + rng.choice([b" ", b"", b"\t "]) + rng.choice(VALUES))
    body = bytes(rng.randrange(256) for _ in range(rng.randrange(40)))
    kind = rng.randrange(4)
    if kind == 0:
        lines.append(b"Content-Length: %d" % len(body))
    elif kind == 1 and b"HTTP/1.1" in lines[0]:
        lines.append(b"Transfer-Encoding: chunked")
        body = chunked(rng, body)
    else:
        body = b""
    if rng.random() < 0.2:
        lines.append(b"Connection: " + rng.choice([b"close", b"keep-alive", b"Close, x"]))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def response(rng: random.Random) -> bytes:
    """A response that is right in form."""
    status = rng.choice([200, 200, 200, 404, 500, 204, 304, 100, 103])
    lines = [b"HTTP/1.%d %d%s" % (rng.choice([1, 1, 0]), status, rng.choice([b" OK", b" ", b" Not so good"]))]
    for _ in range(rng.randrange(5)):
        lines.append(rng.choice(NAMES) + b": " + rng.choice(VALUES))
    body = bytes(rng.randrange(256) for _ in range(rng.randrange(40)))
    kind = rng.randrange(3)
    if status in (204, 304, 100, 103):
        body = b""
    elif kind == 0:
        lines.append(b"Content-Length: %d" % len(body))
    elif kind == 1 and b"HTTP/1.1" in lines[0]:
        lines.append(b"Transfer-Encoding: chunked")
        body = chunked(rng, body)
    data = b"\r\n".join(lines) + b"\r\n\r\n" + body
    return data if status >= 200 else data + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def chunked(rng: random.Random, body: bytes) -> bytes:
    out = b""
    while body:
        n = rng.randrange(1, len(body) + 1)
        out += b"%x" % n + rng.choice([b"", b";a=b", b";q"]) + b"\r\n" + body[:n] + b"\r\n"
        body = body[n:]
    return out + b"0\r\n" + rng.choice([b"", b"T: v\r\n"]) + b"\r\n"


FRAGMENTS = [
    b"\r",
    b"\n",
    b"\r\n",
    b"\0",
    b" ",
    b"\t",
    b":",
    b"0",
    b"-",
    b"+1",
    b"0x5",
    b"_",
    b"\x0b",
    b"\x80",
    b"\xb2",
    b";",
    b"Content-Length: 3\r\n",
    b"Content-Length: 3, 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: identity\r\n",
    b"transfer-encoding : chunked\r\n",
    b"Host: b\r\n",
    b"Content-Length:+5\r\n",
    b"X: a\r\n b\r\n",
    b"HTTP/1.1",
    b"HTTP/2.0",
    b"HTTP/1.9",
    b"5\r\nhello\r\n",
    b"0\r\n\r\n",
    b"\r\n\r\n",
    b"GET / HTTP/1.1\r\n",
]


def damaged(rng: random.Random, data: bytes) -> bytes:
    """The message with one to three changes."""
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(6)
        if kind == 0:
            data = data[:at] + rng.choice(FRAGMENTS) + data[at:]
        elif kind == 1:
            data = data[:at] + data[at + rng.randrange(1, 4) :]
        elif kind == 2 and at < len(data):
            data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
        elif kind == 3:
            lines = data.split(b"\r\n")
            lines.insert(rng.randrange(len(lines)), rng.choice(lines))
            data = b"\r\n".join(lines)
        elif kind == 4:
            data = data[:at]
        else:
            end = data.find(b"\r\n") + 2
            data = data[:end] + rng.choice(FRAGMENTS) + data[end:]
    return data or b"\r"


def pieces(rng: random.Random, data: bytes) -> list[bytes]:
    """The data cut at random places."""
    cuts = sorted({0, len(data), *(rng.randrange(len(data) + 1) for _ in range(rng.randrange(4)))})
    return [data[a:b] for a, b in zip(cuts, cuts[1:], strict=False) if a < b]
