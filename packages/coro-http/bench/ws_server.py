"""WebSocket echo servers, one for each peer: `python ws_server.py PEER CASE` prints the port and serves."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any


def coro(address: str) -> None:
    from coro import http
    from coro.http import websocket

    def echo(request: http.http_request) -> None:
        with websocket.accept(request) as ws:
            for message in ws:
                ws.send(message)

    http.serve(echo, (address, 0), started=lambda server: print(server.port, flush=True))


def websockets(address: str) -> None:
    from websockets.asyncio.server import serve

    async def echo(ws: Any) -> None:
        async for message in ws:
            await ws.send(message)

    async def main() -> None:
        async with serve(echo, address, 0, compression=None) as server:
            print(server.sockets[0].getsockname()[1], flush=True)
            await asyncio.Future()

    asyncio.run(main())


def picows(address: str) -> None:
    import uvloop
    from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_create_server

    class Echo(WSListener):  # type: ignore[misc, unused-ignore]
        def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
            if frame.msg_type == WSMsgType.CLOSE:
                transport.disconnect()
            else:
                transport.send(frame.msg_type, frame.get_payload_as_memoryview())

    async def main() -> None:
        server = await ws_create_server(lambda request: Echo(), address, 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    uvloop.run(main())


if __name__ == "__main__":
    globals()[sys.argv[1]](json.loads(sys.argv[2])["address"])
