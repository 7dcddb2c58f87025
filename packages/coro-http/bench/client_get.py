"""GETs over kept connections with several clients, from a server in another process.

The server sends the same bytes whenever something comes, so that what is measured is the client's.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from _common import Figures, Stopwatch, main

SERVER = """
import coro

ANSWER = b"HTTP/1.1 200 OK\\r\\nServer: x\\r\\nDate: Sun, 06 Nov 1994 08:49:37 GMT\\r\\n" \
    b"Content-Type: text/plain\\r\\nContent-Length: 12\\r\\nConnection: keep-alive\\r\\n\\r\\nhello, world"

def handle(conn, address):
    while conn.recv(65536):
        conn.send(ANSWER)

def main():
    with coro.Server(handle, ("127.0.0.1", 0)) as server:
        print(server.addresses[0][1], flush=True)
        server.wait()

coro.run(main)
"""


@contextmanager
def served() -> Iterator[str]:
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}/hello"
        server.kill()


def coro(connections: int, count: int) -> Figures:
    import coro as coro_core
    from coro.http.client import Client

    watch = Stopwatch()

    def work(client: Client, url: str, times: int) -> None:
        for _ in range(times):
            assert client.get(url).content == b"hello, world"

    def run(url: str) -> None:
        def all_of(times: int) -> None:
            threads = [coro_core.spawn(work, client, url, times) for _ in range(connections)]
            for thread in threads:
                thread.get()

        with Client() as client:
            all_of(5)
            watch.start()
            all_of(count // connections)
            watch.stop()

    with served() as url:
        coro_core.run(run, url)
    return watch.figures(count)


def aiohttp(connections: int, count: int) -> Figures:
    import asyncio

    return _aiohttp(asyncio.run, connections, count)


def aiohttp_on_uvloop(connections: int, count: int) -> Figures:
    import uvloop

    return _aiohttp(uvloop.run, connections, count)


def _aiohttp(run_loop: Callable[[Coroutine[Any, Any, None]], None], connections: int, count: int) -> Figures:
    import asyncio

    import aiohttp as library

    watch = Stopwatch()

    async def run(url: str) -> None:
        async with library.ClientSession(connector=library.TCPConnector(limit=connections)) as session:

            async def work(times: int) -> None:
                for _ in range(times):
                    async with session.get(url) as response:
                        assert await response.read() == b"hello, world"

            await asyncio.gather(*(work(5) for _ in range(connections)))
            watch.start()
            await asyncio.gather(*(work(count // connections) for _ in range(connections)))
            watch.stop()

    with served() as url:
        run_loop(run(url))
    return watch.figures(count)


def httpx(connections: int, count: int) -> Figures:
    import httpx as library

    watch = Stopwatch()
    count = max(connections, count // 20)  # enough to be exact, and it is slow

    def one_by_one(url: str) -> None:
        with library.Client() as client:
            for _ in range(20):
                client.get(url)
            watch.start()
            for _ in range(count):
                assert client.get(url).content == b"hello, world"
            watch.stop()

    async def many(url: str) -> None:
        import asyncio

        async with library.AsyncClient() as client:

            async def work(times: int) -> None:
                for _ in range(times):
                    assert (await client.get(url)).content == b"hello, world"

            await asyncio.gather(*(work(1) for _ in range(connections)))
            watch.start()
            await asyncio.gather(*(work(count // connections) for _ in range(connections)))
            watch.stop()

    with served() as url:
        if connections == 1:
            one_by_one(url)
        else:
            import asyncio

            asyncio.run(many(url))
    return watch.figures(count)


def _blocking(get: Any, count: int) -> Figures:
    watch = Stopwatch()
    for _ in range(20):
        get()
    watch.start()
    for _ in range(count):
        assert get() == b"hello, world"
    watch.stop()
    return watch.figures(count)


def requests(connections: int, count: int) -> Figures:
    import requests as library

    with served() as url, library.Session() as session:
        return _blocking(lambda: session.get(url).content, count // 10)


def http_client(connections: int, count: int) -> Figures:
    import http.client
    from urllib.parse import urlsplit

    with served() as url:
        where = urlsplit(url)
        assert where.hostname is not None
        connection = http.client.HTTPConnection(where.hostname, where.port)

        def get() -> bytes:
            connection.request("GET", where.path)
            return connection.getresponse().read()

        return _blocking(get, count)


if __name__ == "__main__":
    main(
        {
            "coro": coro,
            "aiohttp": aiohttp,
            "aiohttp on uvloop": aiohttp_on_uvloop,
            "httpx": httpx,
            "requests": requests,
            "http.client": http_client,
        }
    )
