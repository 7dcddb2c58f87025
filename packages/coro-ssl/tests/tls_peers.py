"""Servers and clients of both back ends for tests, and the programs they talk to: openssl, gnutls, blocking ssl.

`server(backend, ...)` and `client(backend, ...)` make contexts; `echo_server` runs one; `run_program` runs a program in
a worker OS thread, so that the loop goes on, and ends it after a minute at the latest; `said` runs one that talks with
a server; `program` is a server.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from real_programs import find_program

import coro
from coro.ssl import Context, new_ctx, testing

BACKENDS = ("openssl", "tlslite")
#: Seconds that bound a hang.
LIMIT = 60


@cache
def ca() -> testing.CA:
    return testing.CA()


@cache
def issued(*hosts: str, key: str = "ec") -> testing.Issued:
    return ca().intermediate().issue(*(hosts or ("localhost", "127.0.0.1")), key=key)


@cache
def folder() -> Path:
    """Files of the test certificates: ca.pem, server.pem, server.key, client.pem, client.key."""
    keeper = tempfile.TemporaryDirectory(prefix="coro-ssl-")
    folder._keeper = keeper  # type: ignore[attr-defined]
    path = Path(keeper.name)
    ca().write(path)
    issued().write(path)
    issued("client").write(path, "client")
    return path


def files() -> tuple[str, str, str]:
    """Paths of the authority, of the server's certificate and of its key."""
    path = folder()
    return str(path / "ca.pem"), str(path / "server.pem"), str(path / "server.key")


def server(
    backend: str,
    *,
    key: str = "ec",
    hosts: tuple[str, ...] = (),
    alpn: tuple[str, ...] = (),
    highest: str | None = None,
    lowest: str = "TLSv1.2",
    client_auth: Any = "none",
    more: tuple[tuple[str, ...], ...] = (),
    tickets: int = 2,
) -> Context:
    """A server's context; ``more`` are the host names of further certificates."""
    own = issued(*hosts, key=key)
    return new_ctx(
        own.chain_pem,
        key=own.key_pem,
        backend=backend,  # type: ignore[arg-type]
        ca=ca().pem,
        sni={name: (issued(*names).chain_pem, issued(*names).key_pem) for names in more for name in names},
        alpn=alpn,
        minimum_version=lowest,
        maximum_version=highest,
        client_auth=client_auth,
        tickets=tickets,
        handshake_timeout=LIMIT,
    )


def client(
    backend: str,
    *,
    alpn: tuple[str, ...] = (),
    highest: str | None = None,
    lowest: str = "TLSv1.2",
    with_certificate: bool = False,
) -> Context:
    """A client's context, which trusts the test CA."""
    own = issued("client") if with_certificate else None
    return new_ctx(
        own.chain_pem if own else None,
        key=own.key_pem if own else None,
        backend=backend,  # type: ignore[arg-type]
        ca=ca().pem,
        alpn=alpn,
        minimum_version=lowest,
        maximum_version=highest,
        handshake_timeout=LIMIT,
    )


class Echo:
    """A running echo server: what its connections ended with, the streams, the port."""

    def __init__(self) -> None:
        self.streams: list[Any] = []
        self.received: list[tuple[Any, bytes]] = []
        self.errors: list[BaseException] = []
        self.ended = coro.fifo()
        self.port = 0
        self.server: Any = None

    def stream_of(self, data: bytes) -> Any:
        """The connection that ``data`` has come on. Another may come first: whoever expects nobody at this port, which
        was free a moment ago."""
        [stream] = [stream for stream, received in self.received if received == data]
        return stream


@contextlib.contextmanager
def echo_server(context: Any, *, timeout: float = LIMIT) -> Iterator[Echo]:
    """A server that sends back what it gets, with close_notify at the end."""
    echo = Echo()

    def handle(conn: Any, address: Any) -> None:
        try:
            stream = context.wrap(conn, server_side=True, handshake_timeout=timeout)
            echo.streams.append(stream)
            with stream:
                while data := stream.recv(16384):
                    if len(data) < 100:
                        echo.received.append((stream, data))
                    stream.sendall(data)
                stream.shutdown(coro.SHUT.WR)
        except (OSError, EOFError) as e:
            echo.errors.append(e)
            echo.ended.push(e)
        else:
            echo.ended.push(None)

    with coro.Server(handle, ("127.0.0.1", 0)) as running:
        echo.server = running
        echo.port = running.addresses[0][1]
        yield echo


def run_program(*command: str, data: bytes = b"", limit: float = LIMIT) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end in a worker OS thread; its output is standard output and error together."""
    return coro.in_thread(
        subprocess.run,
        list(command),
        input=data,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=limit,
        check=False,
    )


class program:
    """A server program that runs during a block and listens at ``port``."""

    def __init__(self, *command: str, port: int, folder: Path | None = None) -> None:
        self.command, self.port, self.folder = command, port, folder

    def __enter__(self) -> program:
        self.child = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=self.folder
        )
        while True:
            assert self.child.poll() is None, self.child.communicate()[0]
            try:
                coro.connect(("127.0.0.1", self.port)).close()
                return self
            except ConnectionRefusedError:
                coro.sleep(0.01)

    def type(self, line: bytes) -> None:
        """Give it a line of input."""
        assert self.child.stdin is not None
        self.child.stdin.write(line)
        self.child.stdin.flush()

    def output(self, until: bytes) -> bytes:
        """What it has said since the last time, up to a line that has ``until``."""
        assert self.child.stdout is not None
        found = b""
        while until not in found:
            more = coro.in_thread(self.child.stdout.readline)
            assert more, (found, until)
            found += more
        return found

    def __exit__(self, *exc: object) -> None:
        self.child.kill()
        self.child.communicate()


def said(command: list[str], line: bytes) -> bytes:
    """What a program says until ``line``, which it is sent, comes back; then its input ends, and so does it. If it ends
    by itself, how it did is the last line."""
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with child:
        assert child.stdin is not None and child.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # what it says then tells why it has gone
            child.stdin.write(line)
            child.stdin.flush()
        found = b""
        while line not in found:
            more = child.stdout.readline()
            if not more:
                found += b"\n(it ended with status %d)\n" % child.wait()
                break
            found += more
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
    return found


def openssl() -> str:
    return find_program("openssl", "openssl")


def s_client(port: int, *options: str) -> list[str]:
    """The command that connects openssl's client, which trusts the authority."""
    return [openssl(), "s_client", "-connect", f"127.0.0.1:{port}", "-CAfile", files()[0], *options]


def gnutls_cli() -> str:
    return find_program("gnutls-cli", "gnutls-bin")
