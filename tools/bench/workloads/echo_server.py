"""Echo servers, one for each peer: `python echo_server.py PEER CASE`, prints the port and serves until
killed.

Each is what its library's users write: a straight line for coro and gevent, the stream pair for asyncio's
readers and writers (with `drain`, as its documentation shows, because the straight-line servers' send
blocks, too), and a Protocol, the fastest form uvloop has. All take up to 64 KiB at a time, except where the
peer decides for itself.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from typing import Any

BACKLOG = 4096
AT_ONCE = 65536


def announce(port: int) -> None:
    print(port, flush=True)


def coro(address: str) -> None:
    import coro

    def session(connection: coro.sock) -> None:
        while data := connection.recv(AT_ONCE):
            connection.send(data)
        connection.close()

    def serve() -> None:
        listener = coro.tcp_sock()
        listener.bind((address, 0))
        listener.listen(BACKLOG)
        announce(listener.getsockname()[1])
        while True:
            connection, _ = listener.accept()
            coro.spawn(session, connection)

    coro.run(serve)


def gevent(address: str) -> None:
    from gevent.server import StreamServer

    def session(connection: gevent.socket.socket, _peer: Any) -> None:
        while data := connection.recv(AT_ONCE):
            connection.sendall(data)
        connection.close()

    server = StreamServer((address, 0), session, backlog=BACKLOG)
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

    server = await asyncio.get_running_loop().create_server(Echo, address, 0, backlog=BACKLOG)
    announce(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def _serve_streams(address: str) -> None:
    import asyncio

    async def session(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(AT_ONCE):
            writer.write(data)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(session, address, 0, backlog=BACKLOG)
    announce(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def uvloop_protocol(address: str) -> None:
    import uvloop

    uvloop.run(_serve_protocol(address))


def uvloop_streams(address: str) -> None:
    import uvloop

    uvloop.run(_serve_streams(address))


def asyncio_protocol(address: str) -> None:
    import asyncio

    asyncio.run(_serve_protocol(address))


PEERS: dict[str, Callable[..., None]] = {
    "coro": coro,
    "gevent": gevent,
    "uvloop-protocol": uvloop_protocol,
    "uvloop-streams": uvloop_streams,
    "asyncio-protocol": asyncio_protocol,
}

if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    PEERS[sys.argv[1]](**json.loads(sys.argv[2]))
