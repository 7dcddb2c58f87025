"""Ten thousand connections on one core of straight-line Python: `python -m coro.demo.c10k`.

Starts an echo server in a process of its own, opens the connections from this one, keeps every one of them
busy for --seconds while a line shows what goes on, and reports throughput, latencies, memory per connection
and what the scheduler did. The message comes back at once and the next one leaves, so the machine is
saturated, and a latency is mostly the turn of all the other connections: about connections divided by
throughput. --pause makes them think in between.

--chaos mixes in clients that reset, half-close and read slowly, and looks for lost bytes, leaked
descriptors and growing memory. Exit status: 0, or 1 when anything went wrong. Cost at the default size:
about 2 x 10 000 descriptors, 100 MB, one to two cores.
"""

from __future__ import annotations

import argparse
import gc
import json
import socket
import subprocess
import sys
import time
from typing import Any

import coro

from ._client import Load, Rate, keep_busy, slow_readers
from ._control import Line
from ._measure import descriptors, ephemeral_ports, growth, in_use, raise_descriptor_limit

SPARE = 100  # descriptors a process needs besides its connections
FLAT = 0.02  # growth of the memory in use, second tenth to last tenth of the run, that still counts as flat
SHORTEST_FLAT = 20.0  # seconds a run must last for its growth to mean anything


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, not {text}")
    return number


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of seconds from 0 up, not {text}")
    return seconds


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m coro.demo.c10k",
        description="Hold thousands of busy connections to an echo server and report.",
    )
    parser.add_argument("--connections", type=_at_least_one, default=10_000, help="how many (default 10000)")
    parser.add_argument(
        "--seconds", type=_seconds, default=10.0, help="how long they are kept busy (default 10)"
    )
    parser.add_argument("--size", type=_at_least_one, default=64, help="bytes of a message (default 64)")
    parser.add_argument(
        "--pause", type=_seconds, default=0.0, help="seconds a connection rests between requests (default 0)"
    )
    parser.add_argument("--chaos", action="store_true", help="mix in resets, half-closes and slow readers")
    parser.add_argument("--seed", type=int, default=1, help="of the random choices of --chaos (default 1)")
    parser.add_argument(
        "--json", action="store_true", help="print the report as JSON (progress goes to stderr)"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress line")
    return parser


def _addresses(connections: int, chaos: bool) -> list[str]:
    """Enough loopback addresses that ports do not run out, ports that rest after a close included.

    The server leaves out those that the system does not have (only Linux has all of 127/8 from the start).
    """
    share = ephemeral_ports() // (8 if chaos else 2)
    return [f"127.0.0.{number}" for number in range(1, min(64, connections // share + 1) + 1)]


class Progress:
    """The live line: rewritten in place on a terminal, a line of its own every two seconds elsewhere."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.live = sys.stderr.isatty()
        self.last = 0.0
        self.requests = 0

    def show(self, text: str, force: bool = False) -> None:
        now = time.perf_counter()
        if self.quiet or (not force and now - self.last < (0.25 if self.live else 2.0)):
            return
        self.last = now
        sys.stderr.write(f"\r\x1b[K{text}" if self.live else f"{text}\n")
        sys.stderr.flush()

    def end(self) -> None:
        if self.live and not self.quiet:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


class Demonstration:
    """One run: the server process, the load, the samples taken on the way, the report."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.progress = Progress(options.quiet)
        self.notes: list[str] = []
        self.sizes: dict[str, list[int]] = {"server": [], "client": []}
        self.spare = SPARE + (slow_readers(options.connections) if options.chaos else 0)
        limit = raise_descriptor_limit(options.connections + self.spare)
        self.connections = self._afforded(options.connections, limit, "this process")

    def _afforded(self, connections: int, limit: int, who: str) -> int:
        most = max(limit - self.spare, 1)
        if connections > most:
            self.notes.append(
                f"{who} may open {limit} descriptors: {most} connections instead of {connections}"
                " (raise the hard limit, `ulimit -Hn`, to have more)"
            )
        return min(connections, most)

    def start_server(self) -> tuple[subprocess.Popen[bytes], int]:
        """The server process and our end of the conversation with it."""
        settings = {
            "addresses": _addresses(self.connections, self.options.chaos),
            "descriptor_limit": self.connections + self.spare,
            # Small enough that a client that does not read blocks the server's send soon.
            "send_buffer": 16384 if self.options.chaos else 0,
        }
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "coro.demo._server", str(theirs.fileno()), json.dumps(settings)]
            server = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        return server, ours.detach()

    def main(self, control_fd: int) -> dict[str, Any]:
        """The whole run, as a thread; returns the report."""
        control = Line(control_fd)
        before = control.ask("report")
        coro.yield_slice()
        self.connections = self._afforded(self.connections, before["limit"], "the server process")
        for note in self.notes:
            print(f"note: {note}", file=sys.stderr)
        gc.collect()
        own_descriptors = descriptors()
        addresses = [(host, port) for host, port in before["addresses"]]
        options = self.options
        load = Load(addresses, options.size, options.chaos, options.pause, options.seed)

        opening = time.perf_counter()
        watcher = coro.spawn(self._watch_opening, load)
        sockets = load.open_all(self.connections)
        opening = time.perf_counter() - opening
        watcher.shutdown()
        opened = control.ask("report")

        tick = max(options.seconds / 100, 0.05)
        self.progress.last, self.progress.requests = time.perf_counter(), 0
        rate = keep_busy(load, sockets, options.seconds, tick, lambda: self._look(control, load))
        during = control.ask("report")
        after = control.ask("drain")
        gc.collect()
        leaks = {
            "server": after["descriptors"] - before["descriptors"],
            "client": descriptors() - own_descriptors,
        }
        control.say({"ask": "quit"})
        control.close()
        self.progress.end()
        return self._report(load, rate, opening, before, opened, during, after, leaks)

    def _watch_opening(self, load: Load) -> None:
        while True:
            self.progress.show(
                f"opening: {load.open:6,} of {self.connections:,} connections, {load.errors} errors"
            )
            coro.sleep_relative(0.25)

    def _look(self, control: Line, load: Load) -> None:
        """A look at both processes while they are busy: two samples of memory, and the line."""
        state = control.ask("report")
        first = not self.sizes["server"]
        self.sizes["server"].append(state["in_use"])
        self.sizes["client"].append(in_use())
        now = time.perf_counter()
        elapsed, requests = now - self.progress.last, load.requests - self.progress.requests
        if first or elapsed >= (0.25 if self.progress.live else 2.0):
            self.progress.requests = load.requests
            self.progress.show(
                f"{load.open:6,} connections open, {requests / elapsed:9,.0f} requests/s,"
                f" server {state['resident'] / 1e6:.0f} MB, {load.errors + state['errors']} errors",
                force=True,
            )

    def _report(
        self,
        load: Load,
        rate: Rate,
        opening: float,
        before: dict[str, Any],
        opened: dict[str, Any],
        during: dict[str, Any],
        after: dict[str, Any],
        leaks: dict[str, int],
    ) -> dict[str, Any]:
        server_errors = after["errors"] + (0 if self.options.chaos else after["resets"])
        problems = [f"client: {text}" for text in load.first_errors]
        problems += [f"server: {text}" for text in after["first_errors"]]
        if server_errors > after["errors"]:
            problems.append(f"server: {after['resets']} connections were reset although no client does that")
        if after["open"]:
            problems.append(
                f"server: {after['open']} connections are still open after all clients have closed theirs"
            )
        for who, leaked in leaks.items():
            if leaked:
                problems.append(f"{who}: {leaked:+d} descriptors between beginning and end")
        growths = {who: growth(samples) for who, samples in self.sizes.items()}
        if self.options.chaos and self.options.seconds >= SHORTEST_FLAT:
            problems += [f"{who}: memory grew by {g:.1%}" for who, g in growths.items() if g > FLAT]
        statistics = {
            name: value - before["statistics"][name] for name, value in during["statistics"].items()
        }
        latency = {f"p{share}": load.latencies.percentile(share / 100) * 1e3 for share in (50, 90, 99)}
        latency["max"] = load.latencies.greatest * 1e3
        return {
            "connections": self.connections,
            "addresses": len(before["addresses"]),
            "opening_seconds": opening,
            "seconds": rate.seconds,
            "requests": rate.requests,
            "requests_per_second": rate.requests / rate.seconds,
            "latency_ms": latency,
            "server_bytes_per_connection": (opened["resident"] - before["resident"]) / self.connections,
            "server_resident": during["resident"],
            "growth": growths,
            "in_use_samples": self.sizes,
            "leaked_descriptors": leaks,
            "server_statistics": statistics,
            "chaos": load.events if self.options.chaos else None,
            "server_accepted": after["accepted"],
            "errors": load.errors + server_errors,
            "problems": problems,
            "notes": self.notes,
        }


def _text(report: dict[str, Any]) -> str:
    latency = report["latency_ms"]
    lines = [
        f"connections       {report['connections']:,}, opened in {report['opening_seconds']:.1f} s"
        f" over {report['addresses']} loopback address(es)",
        f"throughput        {report['requests_per_second']:,.0f} requests/s"
        f" ({report['requests']:,} in {report['seconds']:.1f} s)",
        "latency           "
        + ", ".join(f"{name} {latency[name]:.1f} ms" for name in ("p50", "p90", "p99", "max")),
        f"server memory     {report['server_bytes_per_connection']:,.0f} bytes per connection"
        f" (its own, without the kernel's socket buffers), {report['server_resident'] / 1e6:.1f} MB in all",
        "memory growth     "
        + ", ".join(f"{who} {value:+.2%}" for who, value in report["growth"].items())
        + " (last tenth of the run against the second"
        + ("" if report["seconds"] >= SHORTEST_FLAT else "; the run is too short to mean much")
        + ")",
        "descriptors       "
        + ", ".join(f"{who} {leaked:+d}" for who, leaked in report["leaked_descriptors"].items())
        + " (end against beginning)",
    ]
    if report["chaos"]:
        lines.append(
            "chaos             " + ", ".join(f"{count:,} {what}" for what, count in report["chaos"].items())
        )
    statistics = report["server_statistics"]
    per = report["requests"] or 1
    lines.append("server's scheduler")
    lines += [
        f"    {name:<22}{value:>14,}  ({value / per:.2f} per request)" for name, value in statistics.items()
    ]
    lines.append(f"errors            {report['errors']}")
    lines += [f"    {problem}" for problem in report["problems"]]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's); returns the exit status, 1 for any problem."""
    options = _parser().parse_args(argv)
    demonstration = Demonstration(options)
    server, control_fd = demonstration.start_server()
    try:
        report = coro.run(demonstration.main, control_fd)
    except EOFError as error:
        print(f"c10k: {error}", file=sys.stderr)
        return 1
    finally:
        try:
            # It ends by itself when the conversation does.
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
            print("c10k: the server did not end within 10 s and was killed", file=sys.stderr)
    if server.returncode:
        report["problems"].append(f"the server process ended with status {server.returncode}")
    print(json.dumps(report, indent=1) if options.json else _text(report))
    return 1 if report["errors"] or report["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
