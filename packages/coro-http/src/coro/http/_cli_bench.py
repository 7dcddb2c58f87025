"""``python -m coro.http bench URL``: a load generator.

So many threads each send one request after another over a connection of their own, for so many seconds or requests.
Latencies are counted in buckets that grow by a hundredth, so a run of any length takes the same memory and percentiles
are right to one per cent (the idea of HdrHistogram).

With ``--rate`` requests begin at fixed times, and latency is counted from the time at which a request was due, not from
the time at which it could be sent: a server that stalls is charged with those that had to wait ("coordinated
omission").
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from typing import Any

import coro
from coro._clock import ticks
from coro.http import _cli_get
from coro.http.client import Client, Limits
from coro.http.exceptions import HTTPError

__all__ = ["Histogram", "add_arguments", "run"]

PERCENTILES = (50, 75, 90, 95, 99, 99.9, 100)
#: Seconds between two progress lines.
SHOWN_EVERY = 0.5


class Histogram:
    """Counts durations in buckets a hundredth wide."""

    _WIDTH = math.log(1.01)

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.least = math.inf
        self.most = 0.0
        self._buckets: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        """Count one."""
        self.count += 1
        self.total += seconds
        self.least = min(self.least, seconds)
        self.most = max(self.most, seconds)
        self._buckets[int(math.log(max(seconds, 1e-7)) / self._WIDTH)] += 1

    def percentile(self, percent: float) -> float:
        """Seconds within which so many per cent were done; 0.0 if there were none."""
        if not self.count:
            return 0.0
        left = math.ceil(self.count * percent / 100)
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 0:
                return min(self.most, max(self.least, math.exp(bucket * self._WIDTH)))
        return self.most


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("url", help="where to ask; http:// is assumed")
    _cli_get.client_arguments(parser)
    parser.add_argument("-c", "--connections", type=int, default=50, metavar="N", help="requests at a time (50)")
    parser.add_argument("-n", "--requests", type=int, metavar="N", help="stop after so many requests")
    parser.add_argument("-s", "--seconds", type=float, metavar="S", help="stop after so many seconds (10)")
    parser.add_argument(
        "-r", "--rate", type=float, metavar="R", help="requests a second, in place of as many as possible"
    )
    parser.add_argument("--close", action="store_true", help="a new connection for each request")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress line")


class _Run:
    def __init__(self, args: argparse.Namespace, client: Client) -> None:
        self.args = args
        self.client = client
        self.url = _cli_get.url_of(args)
        self.body = _cli_get.body_of(args)
        self.method = args.method or ("GET" if self.body is None else "POST")
        self.headers = _cli_get.pairs(args.header)
        if args.close:
            self.headers.append(("Connection", "close"))
        self.latencies = Histogram()
        self.statuses: Counter[int] = Counter()
        self.errors: Counter[str] = Counter()
        self.bytes = 0
        self.begun = 0
        self.began = ticks.get_now()
        self.stopping = False

    def elapsed(self) -> float:
        return float(ticks.get_now() - self.began) / ticks.ticks_per_sec

    def may_begin(self) -> bool:
        if self.stopping or (self.args.requests is not None and self.begun >= self.args.requests):
            return False
        self.begun += 1
        return True

    def work(self) -> None:
        """One thread."""
        plain = self.method == "GET" and self.body is None and not self.headers
        rate = self.args.rate
        while self.may_begin():
            due = self.elapsed()
            if rate:
                due = (self.begun - 1) / rate
                if due > self.elapsed():
                    coro.sleep_relative(due - self.elapsed())
                if self.stopping:
                    return
            try:
                if plain:
                    response = self.client.get(self.url)
                else:
                    response = self.client.request(self.method, self.url, content=self.body, headers=self.headers)
            except HTTPError as e:
                self.errors[f"{type(e).__name__}: {e}"] += 1
                coro.sleep_relative(0.01)  # whoever refuses connections is not to be asked all the time
                continue
            self.latencies.add(self.elapsed() - due)
            self.statuses[response.status] += 1
            self.bytes += len(response.content)

    def show_progress(self) -> None:
        before, then = 0, self.elapsed()
        while True:
            coro.sleep_relative(SHOWN_EVERY)
            count, now = self.latencies.count, self.elapsed()
            speed = (count - before) / max(now - then, 1e-9)
            before, then = count, now
            failed = f", {sum(self.errors.values())} failed" if self.errors else ""
            line = f"{now:5.1f} s  {count} done{failed}  {speed:.0f}/s  p99 {_short(self.latencies.percentile(99))}"
            print(f"\r{line:<70}", end="", file=sys.stderr, flush=True)

    def result(self, seconds: float) -> dict[str, Any]:
        """All figures."""
        h = self.latencies
        return {
            "url": self.url,
            "connections": self.args.connections,
            "seconds": round(seconds, 3),
            "requests": h.count,
            "requests_per_second": round(h.count / seconds, 1) if seconds else 0.0,
            "bytes": self.bytes,
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "errors": dict(self.errors.most_common(10)),
            "latency_seconds": {
                "mean": round(h.total / h.count, 6) if h.count else 0.0,
                **{f"p{percent:g}": round(h.percentile(percent), 6) for percent in PERCENTILES},
            },
        }


def run(args: argparse.Namespace) -> int:
    """Put the server under load; 1 if no request was answered."""
    if args.connections < 1:
        raise SystemExit("expected at least one connection")
    if args.rate is not None and not args.rate > 0:
        raise SystemExit("expected a rate above 0")
    code: list[int] = []
    coro.run(lambda: code.append(_bench(args)))
    return code[0] if code else 1


def _bench(args: argparse.Namespace) -> int:
    seconds = args.seconds
    if seconds is None and args.requests is None:
        seconds = 10.0
    limits = Limits(connections=args.connections, idle=args.connections)
    try:
        client = _cli_get.client_of(args, limits=limits, cookies=False)
    except (HTTPError, ValueError, OSError) as e:
        print(f"{args.url}: {e}", file=sys.stderr)
        return 2
    with client:
        # One request first: a wrong URL is told at once, and once.
        going = _Run(args, client)
        try:
            client.request(going.method, going.url, content=going.body, headers=going.headers)
        except (HTTPError, ValueError) as e:
            print(f"{going.method} {going.url}: {e}", file=sys.stderr)
            return 2
        going.began = ticks.get_now()
        progress = None
        if not args.quiet and not args.json and sys.stderr.isatty():
            progress = coro.spawn(going.show_progress, daemon=True)
        workers = [coro.spawn(going.work) for _ in range(args.connections)]
        with coro.move_on_after(1e9 if seconds is None else seconds):
            for worker in workers:
                worker.join()
        going.stopping = True
        took = going.elapsed()
        for worker in workers:
            if not worker.dead:
                worker.shutdown()
            worker.join()
        if progress is not None:
            progress.shutdown()
            print("\r" + " " * 70 + "\r", end="", file=sys.stderr, flush=True)
    result = going.result(took)
    print(json.dumps(result, indent=1) if args.json else _told(result))
    return 0 if going.latencies.count else 1


def _short(seconds: float) -> str:
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _told(result: dict[str, Any]) -> str:
    latency = result["latency_seconds"]
    lines = [
        f"{result['requests']} requests in {result['seconds']:.2f} s over {result['connections']} connections: "
        f"{result['requests_per_second']:.0f}/s, {result['bytes'] / max(result['seconds'], 1e-9) / 1e6:.2f} MB/s",
        "latency: " + ", ".join(f"{name} {_short(value)}" for name, value in latency.items()),
        "statuses: " + (", ".join(f"{s}: {n}" for s, n in result["statuses"].items()) or "none"),
    ]
    lines += [f"failed {count} times: {what}" for what, count in result["errors"].items()]
    return "\n".join(lines)
