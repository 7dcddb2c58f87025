"""Reading a browser's request and collecting its fields: `python parse.py PEER CASE`."""

from __future__ import annotations

import json
import sys
import time

REQUEST = (
    b"GET /wiki/Coroutine?action=view HTTP/1.1\r\nHost: en.example.org\r\n"
    b"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n"
    b"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n"
    b"Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nConnection: keep-alive\r\n"
    b"Cookie: session=0123456789abcdef; theme=dark\r\nUpgrade-Insecure-Requests: 1\r\nCache-Control: max-age=0\r\n\r\n"
)


def coro(count: int) -> None:
    from coro.http import h1

    for _ in range(count):
        c = h1.Connection(h1.SERVER)
        c.feed(REQUEST)
        request = c.next_event()
        assert isinstance(request, h1.Request)
        found = (request.method, request.target, request.raw_headers)
        c.next_event()
    assert len(found[2]) == 9


class Collected:
    def on_url(self, url: bytes) -> None:
        self.url = url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value))

    def on_message_begin(self) -> None:
        self.fields: list[tuple[bytes, bytes]] = []


def httptools(count: int) -> None:
    from httptools import HttpRequestParser

    for _ in range(count):
        collected = Collected()
        parser = HttpRequestParser(collected)
        parser.feed_data(REQUEST)
        found = (parser.get_method(), collected.url, collected.fields)
    assert len(found[2]) == 9


if __name__ == "__main__":
    peer, case = sys.argv[1], json.loads(sys.argv[2])
    function = globals()[peer]
    function(1000)
    wall, cpu = time.perf_counter(), time.process_time()
    function(case["count"])
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print(json.dumps({"count": case["count"], "cpu": cpu, "wall": wall}))
