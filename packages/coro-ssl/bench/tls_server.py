"""TLS echo servers, one for each peer: `python tls_server.py PEER CASE`, prints the port and serves until killed.

Each is what its library's users write, as in tools/bench/workloads/echo_server.py. "tuned": the allocator is told to
keep large blocks, which otherwise are mapped and unmapped for each read of uvloop's and asyncio's.
"""

from __future__ import annotations

import ctypes
import json
import resource
import ssl
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

CERTIFICATE = str(Path(__file__).parent / "certificate.pem")
BACKLOG = 4096
AT_ONCE = 65536


def announce(port: int) -> None:
    print(port, flush=True)


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


def coro(address: str) -> None:
    import coro
    from coro.ssl import new_ctx

    context = new_ctx(CERTIFICATE)

    def session(conn: Any, _peer: Any) -> None:
        while data := conn.recv(AT_ONCE):
            conn.send(data)
            del data  # an idle connection is not charged with what its handler keeps

    coro.run(
        coro.serve,
        session,
        (address, 0),
        wrap=context.accept,
        started=lambda server: announce(server.addresses[0][1]),
    )


def listening(address: str) -> Any:
    import socket

    listener = socket.create_server((address, 0), backlog=BACKLOG)
    announce(listener.getsockname()[1])
    return listener


def blocking(address: str) -> None:
    """A thread for each connection."""
    import socket

    context = server_context()

    def session(plain: socket.socket) -> None:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with plain, context.wrap_socket(plain, server_side=True) as conn:
            while data := conn.recv(AT_ONCE):
                conn.sendall(data)

    threading.stack_size(128 * 1024)
    listener = listening(address)
    while True:
        plain, _ = listener.accept()
        threading.Thread(target=session, args=(plain,), daemon=True).start()


def blocking_idle(address: str) -> None:
    """One thread for all connections, which answers each once: for the memory of a connection without that of its
    thread. What comes after the first request of each is answered one by one."""
    import select

    context = server_context()
    listener = listening(address)
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    kept: dict[int, Any] = {}
    while True:
        for fd, _ in poll.poll():
            if fd == listener.fileno():
                plain, _ = listener.accept()
                conn = context.wrap_socket(plain, server_side=True)
                kept[conn.fileno()] = conn
                poll.register(conn, select.EPOLLIN)
            else:
                kept[fd].sendall(kept[fd].recv(AT_ONCE))


def gevent(address: str) -> None:
    import socket

    import gevent.ssl
    from gevent.server import StreamServer

    context = gevent.ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)

    def session(conn: Any, _peer: Any) -> None:
        # Otherwise Nagle's algorithm holds the first answer until the client has acknowledged the tickets: 45 ms for
        # each handshake, in which the load says nothing.
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := conn.recv(AT_ONCE):
            conn.sendall(data)
            del data
        conn.close()

    server = StreamServer((address, 0), session, backlog=BACKLOG, ssl_context=context)
    server.start()
    announce(server.server_port)
    server.serve_forever()


async def _serve_protocol(address: str) -> None:
    import asyncio

    class Echo(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.transport.write(data)

    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, address, 0, backlog=BACKLOG, ssl=server_context())
    announce(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _tune() -> None:
    libc = ctypes.CDLL(None)
    libc.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
    libc.mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD


def uvloop_protocol(address: str) -> None:
    import uvloop

    uvloop.run(_serve_protocol(address))


def uvloop_tuned(address: str) -> None:
    _tune()
    uvloop_protocol(address)


def asyncio_protocol(address: str) -> None:
    import asyncio

    _tune()
    asyncio.run(_serve_protocol(address))


PEERS: dict[str, Callable[..., None]] = {
    "coro": coro,
    "blocking": blocking,
    "blocking-idle": blocking_idle,
    "gevent": gevent,
    "uvloop-protocol": uvloop_protocol,
    "uvloop-tuned": uvloop_tuned,
    "asyncio-tuned": asyncio_protocol,
}

if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    PEERS[sys.argv[1]](**json.loads(sys.argv[2]))
