"""`python -m coro.rpc ping|call|list|top ADDRESS`: look at a live server, and call it.

ADDRESS is HOST:PORT, [HOST]:PORT for IPv6, or the path of a UNIX socket. A secret is taken from a file, never from the
command line, which others can read.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import time
from pathlib import Path
from typing import Any

import coro
from coro.rpc import fast_rpc
from coro.rpc.exceptions import RpcError


def address_of(text: str) -> Any:
    """An address as it is typed."""
    if "/" in text or ":" not in text:
        return text
    host, _, port = text.rpartition(":")
    if not port.isdigit():
        raise argparse.ArgumentTypeError(f"expected HOST:PORT or the path of a UNIX socket, got {text!r}")
    return (host.strip("[]") or "127.0.0.1", int(port))


def value_of(text: str) -> Any:
    """An argument of a call: a Python literal, or the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m coro.rpc", description="Look at a server of fast_rpc, and call it.")
    commands = top.add_subparsers(dest="command", required=True)

    def command(name: str, about: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=about, description=about)
        one.add_argument("address", type=address_of, metavar="ADDRESS", help="HOST:PORT or the path of a UNIX socket")
        one.add_argument("--timeout", type=float, default=10.0, metavar="SECONDS", help="for each call (default: 10)")
        one.add_argument("--secret-file", type=Path, metavar="FILE", help="the shared secret, without its last newline")
        one.add_argument("--user", help="who we are, where the server has a secret for each user")
        one.add_argument("--tls", action="store_true", help="over TLS; the certificate is checked")
        one.add_argument("--ca", metavar="FILE", help="the certificate authority (default: the system's)")
        one.add_argument("--cert", metavar="FILE", help="our certificate and key, for a server that asks for one")
        one.add_argument("--json", action="store_true", help="output for programs, one object a line")
        return one

    ping = command("ping", "measure round trips")
    ping.add_argument("--count", type=int, default=4, help="how many (default: 4)")
    ping.add_argument("--interval", type=float, default=0.2, metavar="SECONDS", help="between two (default: 0.2)")
    call = command("call", "call a method and print its result, or the items of its stream")
    call.add_argument("method", metavar="METHOD")
    call.add_argument(
        "arguments", nargs="*", metavar="ARGUMENT", help="a Python literal, else text; NAME=VALUE by name"
    )
    call.add_argument("--stream", action="store_true", help="the method answers with a stream")
    command("list", "list the methods with their signatures")
    show = command("top", "show calls under way and the latencies of methods")
    show.add_argument(
        "--interval", type=float, default=2.0, metavar="SECONDS", help="between two pictures (default: 2)"
    )
    show.add_argument(
        "--count", type=int, default=0, help="pictures (default: until interrupted; 1 when not a terminal)"
    )
    return top


def context(options: argparse.Namespace) -> Any:
    """The TLS context, or None."""
    if not options.tls and not options.ca and not options.cert:
        return None
    import ssl

    made = ssl.create_default_context(cafile=options.ca)
    if options.cert:
        made.load_cert_chain(options.cert)
    return made


def do_ping(conn: fast_rpc.Connection, options: argparse.Namespace) -> int:
    """Round trips."""
    times = []
    for i in range(options.count):
        if i:
            coro.sleep_relative(options.interval)
        seconds = conn.ping(options.timeout)
        times.append(seconds)
        if options.json:
            print(json.dumps({"seconds": seconds}), flush=True)
        else:
            print(f"answer {i + 1}: {seconds * 1000:.3f} ms", flush=True)
    if times and not options.json:
        print(
            f"{len(times)} answers, {min(times) * 1000:.3f} ms at best, "
            f"{sum(times) / len(times) * 1000:.3f} ms on average"
        )
    return 0


def do_call(conn: fast_rpc.Connection, options: argparse.Namespace) -> int:
    """One call."""
    args, kwargs = [], {}
    for text in options.arguments:
        name, equals, value = text.partition("=")
        if equals and name.isidentifier():
            kwargs[name] = value_of(value)
        else:
            args.append(value_of(text))

    def show(value: Any) -> None:
        print(json.dumps(value, default=repr) if options.json else repr(value), flush=True)

    stream = options.stream
    if not stream:
        try:
            stream = bool(conn.call("rpc.describe", options.method, timeout=options.timeout)["stream"])
        except RpcError:
            stream = False  # unknown, or not described: the call itself says what is wrong
    if stream:
        for item in conn._connection().open_stream(options.method, tuple(args), kwargs):
            show(item)
    else:
        show(conn.call_with(options.method, args, kwargs, timeout=options.timeout))
    return 0


def do_list(conn: fast_rpc.Connection, options: argparse.Namespace) -> int:
    """The methods."""
    for name in conn.call("rpc.list", timeout=options.timeout):
        about = conn.call("rpc.describe", name, timeout=options.timeout)
        if options.json:
            print(json.dumps(about))
        else:
            notes = [word for word in ("stream", "idempotent") if about[word]]
            first = about["doc"].partition("\n")[0]
            print(f"{name}{about['signature']}{'  [' + ', '.join(notes) + ']' if notes else ''}")
            if first:
                print(f"    {first}")
    return 0


def do_top(conn: fast_rpc.Connection, options: argparse.Namespace) -> int:
    """Pictures."""
    screen = sys.stdout.isatty() and not options.json
    count = options.count or (0 if screen else 1)
    shown = 0
    before: dict[str, int] = {}
    while True:
        stats = conn.call("rpc.stats", timeout=options.timeout)
        calls = conn.call("rpc.calls", timeout=options.timeout)
        if options.json:
            print(json.dumps({"stats": stats, "calls": calls}), flush=True)
        else:
            lines = picture(stats, calls, before, options.interval if shown else None)
            print(("\x1b[H\x1b[2J" if screen else "") + "\n".join(lines), flush=True)
        before = {m["name"]: m["calls"] for m in stats["methods"]}
        shown += 1
        if count and shown >= count:
            return 0
        coro.sleep_relative(options.interval)


def percentile(latencies: list[int], part: float) -> str:
    """Below which time so many of the calls were, from a histogram by powers of two."""
    left = sum(latencies) * part
    for bit, n in enumerate(latencies):
        left -= n
        if n and left <= 0:
            micro = 2**bit
            return f"{micro} us" if micro < 1000 else f"{micro / 1e3:.0f} ms" if micro < 1e6 else f"{micro / 1e6:.0f} s"
    return "-"


def picture(
    stats: dict[str, Any], calls: list[dict[str, Any]], before: dict[str, int], interval: float | None
) -> list[str]:
    """The lines of a picture."""
    lines = [
        f"{stats['name'] or 'server'} (process {stats['pid']}, {stats['build']}), up {stats['uptime']:.0f} s, "
        f"{time.strftime('%H:%M:%S')}",
        f"{stats['connections']} connections ({stats['accepted']} accepted, {stats['refused']} refused), "
        f"{stats['running']} calls under way",
        "",
        f"{'METHOD':30} {'CALLS':>10} {'PER S':>8} {'FAILED':>8} {'NOW':>5} {'50 %':>8} {'99 %':>8}",
    ]
    for m in sorted(stats["methods"], key=lambda m: (-m["running"], -m["calls"], m["name"])):
        rate = "" if interval is None else f"{(m['calls'] - before.get(m['name'], 0)) / interval:.1f}"
        lines.append(
            f"{m['name'][:30]:30} {m['calls']:>10} {rate:>8} {m['failures']:>8} {m['running']:>5} "
            f"{percentile(m['latencies'], 0.5):>8} {percentile(m['latencies'], 0.99):>8}"
        )
    if calls:
        lines += ["", f"{'AGE':>9}  {'METHOD':30} {'FROM':24} IDENTITY"]
        for one in sorted(calls, key=lambda one: -one["age"])[:20]:
            lines.append(
                f"{one['age']:8.2f}s  {one['method'][:30]:30} {one['peer'][:24]:24} {one['identity'] or 'stranger'}"
            )
    return lines


COMMANDS = {"ping": do_ping, "call": do_call, "list": do_list, "top": do_top}


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, 1 when the call failed, 2 when there is no server."""
    options = parser().parse_args(arguments)

    def run() -> int:
        secret = options.secret_file.read_bytes().rstrip(b"\n") if options.secret_file else None
        try:
            conn = fast_rpc.connect(
                options.address,
                timeout=options.timeout,
                tls=context(options),
                secret=secret,
                user=options.user,
                name="coro.rpc command",
            )
        except (OSError, RpcError, ValueError) as e:
            print(f"cannot connect to {options.address}: {e}", file=sys.stderr)
            return 2
        with conn:
            try:
                return COMMANDS[options.command](conn, options)
            except RpcError as e:
                print(f"{type(e).__name__}: {e}", file=sys.stderr)
                return 1

    try:
        return int(coro.run(run))
    except KeyboardInterrupt:
        return 130
    except OSError as e:
        print(e, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
