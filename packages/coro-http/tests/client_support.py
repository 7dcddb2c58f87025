"""Servers for the tests of the client: one that answers by a function, and one that sends exactly what a test wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import coro
from coro import tls

Answer = tuple[int, list[tuple[str, str]], bytes]


@dataclass
class Seen:
    """A request as it came."""

    method: str
    target: str
    fields: list[tuple[str, str]]
    body: bytes
    connection: int

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.fields if key.lower() == name.lower()]

    def get(self, name: str) -> str | None:
        values = self.all(name)
        assert len(values) < 2, f"{name} came {len(values)} times"
        return values[0] if values else None


def read_head(conn: Any) -> tuple[str, list[tuple[str, str]]] | None:
    """The request line and the fields; None when the client has closed."""
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        byte = conn.recv(1)
        if not byte:
            return None
        data += byte
    line, *rest = data[:-4].decode("latin-1").split("\r\n")
    assert len(line.split(" ")) == 3, line
    fields = []
    for one in rest:
        name, colon, value = one.partition(": ")
        assert colon and name, one
        fields.append((name, value))
    return line, fields


def read_body(conn: Any, fields: list[tuple[str, str]]) -> bytes:
    found = {name.lower(): value for name, value in fields}
    if found.get("transfer-encoding") == "chunked":
        assert "content-length" not in found
        body = b""
        while True:
            line = b""
            while not line.endswith(b"\r\n"):
                line += conn.recv_exact(1)
            size = int(line, 16)
            piece = conn.recv_exact(size + 2)
            assert piece.endswith(b"\r\n")
            if size == 0:
                return body
            body += piece[:-2]
    return conn.recv_exact(int(found.get("content-length", "0")))


def response(status: int, fields: list[tuple[str, str]], body: bytes, head_only: bool = False) -> bytes:
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in fields)]
    names = {name.lower() for name, _ in fields}
    if "content-length" not in names and "transfer-encoding" not in names and status not in (204, 304):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (b"" if head_only else body)


@dataclass
class Site:
    """A server that runs."""

    port: int
    server: Any
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def site(answer: Callable[[Seen], Answer | bytes | None], wrap: Any = None, host: str = "127.0.0.1") -> Iterator[Site]:
    """A server with keep-alive that answers each request with what ``answer`` returns: (status, fields, body); bytes,
    after which it closes; None to close at once."""

    def handle(conn: Any, address: Any) -> None:
        here.connections += 1
        try:
            serve(conn, here.connections)
        except tls.TLSError:
            return  # a client that was ended says no farewell

    def serve(conn: Any, number: int) -> None:
        while (head := read_head(conn)) is not None:
            method, target, _ = head[0].split(" ")
            seen = Seen(method, target, head[1], read_body(conn, head[1]), number)
            here.seen.append(seen)
            answered = answer(seen)
            if not isinstance(answered, tuple):
                if answered is not None:
                    conn.send(answered)
                return
            conn.send(response(*answered, head_only=method == "HEAD"))
            if any(name.lower() == "connection" and value == "close" for name, value in answered[1]):
                return

    with coro.Server(handle, (host, 0), wrap=wrap) as server:
        here = Site(server.addresses[0][1], server)
        yield here


@contextmanager
def raw(*scripts: Callable[[Any], object] | bytes) -> Iterator[Site]:
    """A server whose n-th connection runs the n-th script, the last one for all that follow. Bytes are sent as they are
    after a request has come, and then the connection is closed."""

    def handle(conn: Any, address: Any) -> None:
        here.connections += 1
        script = scripts[min(here.connections, len(scripts)) - 1]
        if isinstance(script, bytes):
            head = read_head(conn)
            if head is not None:
                conn.send(script)
                conn.shutdown(coro.SHUT.WR)
                while conn.recv(65536):
                    pass
        else:
            script(conn)

    with coro.Server(handle, ("127.0.0.1", 0)) as server:
        here = Site(server.addresses[0][1], server)
        yield here


def hello(seen: Seen) -> Answer:
    return 200, [("Content-Type", "text/plain")], b"hello"


def forever(conn: Any) -> None:
    """Reads and never answers."""
    while conn.recv(65536):
        pass
