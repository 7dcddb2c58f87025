"""WebSockets with others at the other end: Node's ws and picows, as clients and as servers, with and without
compression. (websockets is in test_frameworks.py, Autobahn's suite and Chromium in the folder `websocket`.)"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from http_support import in_loop, serving
from real_programs import find_program, missing, require_library

import coro
from coro.http import websocket

pytestmark = pytest.mark.slow

#: Where Debian has the module `ws`, for a Node of another origin, too.
MODULES = "/usr/share/nodejs"

#: It sends these, and checks that each comes back: empty, the lengths at which the header of a frame grows, beyond
#: ASCII, and more than one reads at a time.
NODE_CLIENT = """
    const {WebSocket} = require('ws'), crypto = require('crypto');
    const [url, deflate] = process.argv.slice(1);
    const ws = new WebSocket(url, ['one', 'two'], {perMessageDeflate: deflate === 'true'});
    const sent = ['', 'a', 'ü€😀'.repeat(100), ...[125, 126, 65535, 65536, 700000].map(n => crypto.randomBytes(n)),
                  'x'.repeat(500000)];
    let got = 0, pongs = 0;
    ws.on('open', () => { ws.ping('p'); for (const m of sent) ws.send(m); });
    ws.on('pong', data => { pongs += data.toString() === 'p'; });
    ws.on('message', (data, binary) => {
        const m = sent[got++];
        if (binary === (typeof m === 'string') || !Buffer.from(m).equals(data)) throw new Error('message ' + got);
        if (got === sent.length) ws.close(3001, 'enough');
    });
    ws.on('close', (code, reason) =>
        console.log(got, pongs, code, reason.toString(), ws.protocol, ws.extensions.length > 0));
"""

NODE_SERVER = """
    const {WebSocketServer} = require('ws');
    const server = new WebSocketServer({host: '127.0.0.1', port: 0, perMessageDeflate: true, maxPayload: 1 << 24},
        () => console.log(server.address().port));
    server.on('connection', ws => {
        ws.ping('from the server');
        ws.on('message', (data, binary) => data.toString() === 'close' ? ws.close(4000, 'asked')
                                                             : ws.send(data, {binary}));
    });
"""

#: picows hands frames up as they come, and leaves it to the program to join them.
PICOWS_CLIENT = """
    import asyncio, os, sys
    from picows import WSCloseCode, WSListener, WSMsgType, ws_connect

    SENT = [b"", b"a", *map(os.urandom, (125, 126, 65535, 65536, 700000))]

    class Client(WSListener):
        def __init__(self):
            self.got, self.parts, self.over = [], b"", asyncio.get_running_loop().create_future()
        def on_ws_connected(self, transport):
            transport.send_ping(b"p")
            for data in SENT:
                transport.send(WSMsgType.BINARY, data)
        def on_ws_frame(self, transport, frame):
            if frame.msg_type in (WSMsgType.BINARY, WSMsgType.CONTINUATION):
                self.parts += frame.get_payload_as_bytes()
                if frame.fin:
                    self.got.append(self.parts)
                    self.parts = b""
                if len(self.got) == len(SENT):
                    transport.send_close(WSCloseCode.OK, b"enough")
            elif frame.msg_type == WSMsgType.CLOSE:
                self.code = int(frame.get_close_code())
                transport.disconnect()
        def on_ws_disconnected(self, transport):
            self.over.set_result(None)

    async def main():
        _, client = await ws_connect(Client, sys.argv[1])
        await client.over
        print(client.got == SENT, client.code)

    asyncio.run(main())
"""

PICOWS_SERVER = """
    import asyncio
    from picows import WSListener, WSMsgType, ws_create_server

    class Echo(WSListener):
        def on_ws_frame(self, transport, frame):
            if frame.msg_type == WSMsgType.CLOSE:
                transport.send_close(frame.get_close_code(), frame.get_close_message())
                transport.disconnect()
            elif frame.msg_type in (WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.CONTINUATION):
                transport.send(frame.msg_type, frame.get_payload_as_bytes(), frame.fin)

    async def main():
        server = await ws_create_server(lambda request: Echo(), "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    asyncio.run(main())
"""


def node() -> str:
    if not Path(MODULES, "ws").exists():
        missing("needs the module ws of Node: install the Debian package node-ws")
    return find_program("node", "nodejs")


def environment() -> dict[str, str]:
    return {**os.environ, "NODE_PATH": MODULES}


def output(*command: str) -> str:
    """What a program prints, while the loop goes on."""
    done = coro.in_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=60, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr[-1000:]
    return str(done.stdout).strip()


@contextmanager
def started(*command: str) -> Iterator[str]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as program:
        assert program.stdout is not None
        try:
            yield f"ws://127.0.0.1:{int(program.stdout.readline())}/"
        finally:
            program.kill()


def echo(ws: Any) -> None:
    for message in ws:
        ws.send(message)


@pytest.mark.parametrize("deflate", [True, False])
@in_loop
def test_a_client_of_node(deflate: bool) -> None:
    handler = websocket.endpoint(echo, deflate=deflate, subprotocols=["two"], max_message=1 << 20, origins=None)
    program = node()
    with serving(handler) as server:
        url = f"ws://127.0.0.1:{server.port}/"
        said = output(program, "-e", textwrap.dedent(NODE_CLIENT), url, str(deflate).lower())
    assert said == f"9 1 3001  two {str(deflate).lower()}"


@pytest.mark.parametrize("deflate", [True, None])
@in_loop
def test_a_server_of_node(deflate: bool | None) -> None:
    with started(node(), "-e", textwrap.dedent(NODE_SERVER)) as url:
        with websocket.connect(url, deflate=deflate, max_message=1 << 24) as ws:
            exchange(ws)
            ws.send("close")
            with pytest.raises(websocket.WebSocketClosed) as caught:
                ws.receive()
            assert (caught.value.code, caught.value.reason) == (4000, "asked")


@in_loop
def test_a_client_of_picows() -> None:
    require_library("picows")
    handler = websocket.endpoint(echo, max_message=1 << 20, origins=None)
    with serving(handler) as server:
        said = output(sys.executable, "-c", textwrap.dedent(PICOWS_CLIENT), f"ws://127.0.0.1:{server.port}/")
    assert said == "True 1000"


@in_loop
def test_a_server_of_picows() -> None:
    require_library("picows")
    with started(sys.executable, "-c", textwrap.dedent(PICOWS_SERVER)) as url:
        with websocket.connect(url, max_message=1 << 24) as ws:
            exchange(ws)
            ws.close(3001, "enough")


def exchange(ws: Any) -> None:
    large = hashlib.sha256(b"seed").digest() * 30_000
    for message in ("", "a", "ü€😀" * 100, "x" * 500_000, b"", *(large[:n] for n in (125, 126, 65535, 65536)), large):
        ws.send(message)
        assert ws.receive() == message
