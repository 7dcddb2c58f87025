"""python -m pytest -p coro.testing.pytest_plugin test_crawler.py

The web server is in the same process and the clock is virtual, so no test waits for the time to pass.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from crawler import Crawler, Limits

import coro
from coro import testing
from coro.read_stream import sock_stream

PAGES = {
    "/": '<a href="/a">a</a> <a class="x" href=b#part>b</a> <a href="http://elsewhere.example/">no</a>',
    "/a": "<a href='/'>back</a> <a href='/a/deep'>further</a> <a href='/missing'>gone</a>",
    "/a/deep": "no links",
    "/b": "<A HREF=/a>a</A>",
}


class Web:
    """A web server that counts, and that can be told to be bad."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.broken: dict[str, int] = {}  # path -> how often it fails
        self.delay = 0.0
        self.now = self.most = 0

    def serve(self, conn: coro.sock, address: object) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            self.answer(conn)
        finally:
            self.now -= 1

    def answer(self, conn: coro.sock) -> None:
        stream = sock_stream(conn, limit=1000)
        path = stream.read_line().split()[1].decode()
        while stream.read_line().strip():
            pass
        self.requests.append(path)
        coro.sleep(self.delay)
        if self.broken.get(path, 0) > 0:
            self.broken[path] -= 1
            conn.send(b"HTTP/1.0 503 Later\r\n\r\n")
        elif path in PAGES:
            conn.send(b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n" + PAGES[path].encode())
        else:
            conn.send(b"HTTP/1.0 404 Not Found\r\n\r\n")


@pytest.fixture
def web() -> Web:
    return Web()


@pytest.fixture
def start(web: Web) -> Iterator[str]:
    with coro.Server(web.serve, ("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.addresses[0][1]}/"


@pytest.mark.coro
def test_every_page_is_fetched_once(web: Web, start: str, coro_autojump_clock: testing.virtual_clock) -> None:
    crawler = Crawler(Limits())
    assert crawler.crawl(start)
    assert sorted(web.requests) == ["/", "/a", "/a/deep", "/b", "/missing"]
    assert crawler.found == {
        start: 200,
        f"{start}a": 200,
        f"{start}a/deep": 200,
        f"{start}b": 200,
        f"{start}missing": 404,
    }
    assert crawler.progress() == "5 done, 0 failed, 0 under way, 0 waiting"
    # five requests, ten a second, the first at once
    assert coro_autojump_clock.elapsed == pytest.approx(0.4)


@pytest.mark.coro
def test_a_host_is_not_asked_too_much_at_once(web: Web, start: str, coro_autojump_clock: testing.virtual_clock) -> None:
    web.delay = 5
    assert Crawler(Limits(per_host=2, rate=1000)).crawl(start)
    assert web.most == 2


@pytest.mark.coro
def test_it_tries_again_and_gives_up(web: Web, start: str, coro_autojump_clock: testing.virtual_clock) -> None:
    web.broken = {"/a": 2, "/b": 100}
    crawler = Crawler(Limits(attempts=3, back_off=1))
    assert crawler.crawl(start)
    assert web.requests.count("/a") == web.requests.count("/b") == 3
    assert crawler.found[f"{start}a"] == 200
    assert crawler.failed == {f"{start}b": "status 503"}
    assert 3 < coro_autojump_clock.elapsed < 4.5  # pauses of 1 s and 2 s, and a tenth by chance


@pytest.mark.coro
def test_a_server_that_does_not_answer(web: Web, start: str, coro_autojump_clock: testing.virtual_clock) -> None:
    web.delay = 3600
    crawler = Crawler(Limits(patience=10, attempts=1))
    assert crawler.crawl(start)
    assert crawler.failed == {start: "no answer within 10 s"}
    assert coro_autojump_clock.elapsed == pytest.approx(10)


@pytest.mark.coro
def test_the_deadline(web: Web, start: str, coro_autojump_clock: testing.virtual_clock) -> None:
    web.delay = 8
    crawler = Crawler(Limits(deadline=10))
    assert not crawler.crawl(start)
    assert crawler.found == {start: 200}
    assert crawler.under_way == 0
    assert coro_autojump_clock.elapsed == pytest.approx(10)


@pytest.mark.coro
def test_nobody_is_there() -> None:
    with coro.tcp_sock() as reserved:
        reserved.bind(("127.0.0.1", 0))  # and does not listen
        start = f"http://127.0.0.1:{reserved.getsockname()[1]}/"
        crawler = Crawler(Limits(attempts=1))
        assert crawler.crawl(start)
    assert "Connection refused" in crawler.failed[start]
