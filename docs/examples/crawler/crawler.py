"""A crawler: fetches a page and all pages it can reach from there on the same hosts.

    python crawler.py http://127.0.0.1:8000/ --deadline 60

Each page has a thread of its own. Semaphores say how many work at once, altogether and for each host. A rate limiter
says how many requests a host gets in a second. A page that fails is tried again, later each time.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from urllib.parse import urldefrag, urljoin, urlsplit

import coro
from coro.read_stream import LimitError, sock_stream

LARGEST_PAGE = 1 << 20  # bytes
LINK = re.compile(r"""<a\s[^>]*href=["']?([^"'\s>]+)""", re.IGNORECASE)


class Trouble(Exception):
    """A page cannot be had, for the reason in the text; perhaps later."""


def fetch(url: str) -> tuple[int, str]:
    """A small client for HTTP/1.0: the status and the text of a page."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 80
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    with coro.connect(host, port) as conn:
        conn.send(f"GET {path} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n".encode())
        stream = sock_stream(conn, limit=8192)
        version, status, *_ = stream.read_line().decode("latin-1").split(None, 2) + ["", ""]
        if not version.startswith("HTTP/") or not status.isdecimal():
            raise Trouble("no HTTP")
        while stream.read_line().strip():
            pass  # the headers
        page = bytearray()
        for block in stream.read_all():
            page += block
            if len(page) > LARGEST_PAGE:
                raise Trouble("the page is too large")
    if int(status) >= 500:
        raise Trouble(f"status {status}")
    return int(status), page.decode(errors="replace")


class Host:
    """The limits for one host."""

    def __init__(self, at_once: int, rate: float) -> None:
        self.places = coro.semaphore(at_once)
        self.rate = coro.rate_limiter(rate, burst=1)


@dataclasses.dataclass
class Limits:
    at_once: int = 50  # requests under way
    per_host: int = 2  # the same for one host
    rate: float = 10  # requests to one host in a second
    patience: float = 10  # seconds for one request
    attempts: int = 3
    back_off: float = 1  # seconds before the second attempt; twice as long before each further one
    deadline: float = 60  # seconds for everything


class Crawler:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.places = coro.semaphore(limits.at_once)
        self.again = coro.retry(
            on=Trouble,
            attempts=limits.attempts,
            budget=None,
            wait_initial=limits.back_off,
            wait_jitter=limits.back_off / 10,
            wait_max=60,
        )
        self.hosts: dict[str, Host] = {}
        self.seen: set[str] = set()
        self.found: dict[str, int] = {}  # address -> status
        self.failed: dict[str, str] = {}  # address -> what went wrong
        self.under_way = 0

    def crawl(self, start: str) -> bool:
        """Fetch `start` and what it leads to. Returns whether that was done within the deadline."""
        self.hosts[urlsplit(start).netloc] = Host(self.limits.per_host, self.limits.rate)
        with coro.move_on_after(self.limits.deadline) as scope, coro.group() as pages:
            self.add(start, pages)
        return not scope.expired

    def add(self, url: str, pages: coro.group) -> None:
        url = urldefrag(url).url
        if url not in self.seen and urlsplit(url).netloc in self.hosts:
            self.seen.add(url)
            pages.spawn(self.visit, url, pages)

    def visit(self, url: str, pages: coro.group) -> None:
        try:
            self.found[url], text = self.again.call(self.fetch_in_turn, url)
        except Trouble as e:
            self.failed[url] = str(e)
        else:
            for link in LINK.findall(text):
                self.add(urljoin(url, link), pages)

    def fetch_in_turn(self, url: str) -> tuple[int, str]:
        host = self.hosts[urlsplit(url).netloc]
        with host.places, self.places, host.rate:
            self.under_way += 1
            try:
                with coro.timeout(self.limits.patience):
                    return fetch(url)
            except coro.TimeoutError:
                raise Trouble(f"no answer within {self.limits.patience:g} s") from None
            except (OSError, coro.NameError, LimitError) as e:
                raise Trouble(str(e)) from e
            finally:
                self.under_way -= 1

    def progress(self) -> str:
        done = len(self.found) + len(self.failed)
        waiting = len(self.seen) - done - self.under_way
        return f"{done} done, {len(self.failed)} failed, {self.under_way} under way, {waiting} waiting"


def show_progress(crawler: Crawler) -> None:
    while True:
        print(f"\r{crawler.progress()}\033[K", end="", file=sys.stderr, flush=True)
        coro.sleep(0.1)


def main(start: str, limits: Limits) -> int:
    crawler = Crawler(limits)
    with coro.group() as threads:
        line = threads.spawn(show_progress, crawler)
        in_time = crawler.crawl(start)
        line.shutdown()
    print(f"\r{crawler.progress()}\033[K", file=sys.stderr)
    for url, status in sorted(crawler.found.items()):
        print(status, url)
    for url, reason in sorted(crawler.failed.items()):
        print("---", url, f"({reason})")
    if not in_time:
        print(f"not all was seen within {limits.deadline:g} s", file=sys.stderr)
    return 0 if in_time and not crawler.failed else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fetch a page and what it leads to on the same host.")
    parser.add_argument("start", help="where to begin, http://...")
    for field in dataclasses.fields(Limits):
        name = f"--{field.name.replace('_', '-')}"
        parser.add_argument(name, type=type(field.default), default=field.default, help=f"(default {field.default})")
    options = vars(parser.parse_args())
    sys.exit(coro.run(main, options.pop("start"), Limits(**options)))
