"""``python -m coro.dns serve`` is a resolver for this machine or network, ``python -m coro.dns query NAME [TYPE]`` asks
the root and whom it names, or the resolvers given with ``--forward``."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import coro
from coro.dns import DNS_Error, DNS_Hard_Error
from coro.dns._values import number_of, type_name, value_of
from coro.dns.cache import dns_cache
from coro.dns.server import Server
from coro.prefork import Worker

__all__ = ["main"]


def _address(text: str) -> tuple[str, int]:
    """``127.0.0.1``, ``127.0.0.1:5353``, ``::1``, ``[::1]:5353``."""
    host, port = text, ""
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        port = port.removeprefix(":")
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    try:
        return host, int(port or 53)
    except ValueError:
        said = f"expected an address such as 127.0.0.1:5353 or [::1]:53, not {text!r}"
        raise argparse.ArgumentTypeError(said) from None


def _forward(text: str) -> tuple[str, list[tuple[str, int]]]:
    zone, equals, servers = text.rpartition("=")
    return (zone if equals else "").strip("."), [_address(one) for one in servers.split(",")]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m coro.dns", description="DNS: a resolver with a cache.")
    commands = parser.add_subparsers(dest="command", required=True)
    both = argparse.ArgumentParser(add_help=False)
    both.add_argument("--root", type=_address, action="append", help="ask this root server instead of the usual ones")
    both.add_argument(
        "--forward",
        type=_forward,
        action="append",
        default=[],
        metavar="[ZONE=]ADDRESS,...",
        help="ask these resolvers, for names in ZONE or for all",
    )
    both.add_argument("--ipv6", action="store_true", help="ask servers over IPv6, too")
    both.add_argument("--loopback", action="store_true", help="follow delegations to addresses of this machine")
    serve = commands.add_parser("serve", parents=[both], help="answer questions over UDP and TCP")
    serve.add_argument("--listen", type=_address, action="append", help="where (127.0.0.1:53)")
    serve.add_argument("--allow", action="append", metavar="NETWORK", help="who may ask (private networks)")
    serve.add_argument("--block", type=Path, metavar="FILE", help="a file of names that do not exist, one on a line")
    serve.add_argument("--cache-size", type=int, default=100_000, metavar="N", help="entries to keep (100000)")
    serve.add_argument(
        "--metrics",
        type=_address,
        metavar="ADDRESS",
        help="counters as text over HTTP here; each worker on a port more",
    )
    serve.add_argument(
        "--workers", type=int, default=1, metavar="N", help="processes, each with a cache of its own (1)"
    )
    query = commands.add_parser("query", parents=[both], help="ask a question")
    query.add_argument("name")
    query.add_argument("type", nargs="?", default="A", type=number_of, help="A, MX, TXT, TYPE65280 ... (A)")
    query.add_argument("--timeout", type=float, default=10.0, metavar="SECONDS", help="for everything (10)")
    query.add_argument("--json", action="store_true", help="one JSON object")
    return parser


def _cache(options: argparse.Namespace, size: int) -> dns_cache:
    return dns_cache(
        size, roots=options.root, forward=dict(options.forward), ipv6=options.ipv6, loopback=options.loopback
    )


def _blocked(path: Path | None) -> list[str]:
    """The names in a file: one on a line, or lines of a hosts file."""
    if path is None:
        return []
    lines = (line.partition("#")[0].split() for line in path.read_text().splitlines())
    return [name for line in lines for name in (line[1:] or line)]


def _metrics(listener: coro.sock, server: Server) -> None:
    while True:
        try:
            sock, _ = listener.accept()
        except coro.ClosedError:
            return
        try:
            with sock, coro.timeout(5):
                sock.recv(4096)
                text = server.metrics().encode()
                head = f"HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(text)}"
                sock.send(head.encode() + b"\r\n\r\n" + text)
        except (OSError, coro.TimeoutError):
            pass  # whoever asked has gone


def _serve(options: argparse.Namespace, worker: Worker | None = None) -> int:
    """One process's part: without a `worker` until it is interrupted."""
    listen = options.listen or [("127.0.0.1", 53)]
    server = Server(
        _cache(options, options.cache_size),
        listen,
        allow=options.allow,
        block=_blocked(options.block),
        reuse_port=worker is not None,
    )
    with server, coro.tcp6_sock() if options.metrics and ":" in options.metrics[0] else coro.tcp_sock() as listener:
        lines = ["listening on " + ", ".join(f"{host}:{port}" for host, port in server.addresses)]
        if options.metrics:
            host, port = options.metrics
            listener.bind((host, port + worker.index if worker and port else port))
            listener.listen()
            lines.append("counters on http://{}:{}/".format(*listener.getsockname()[:2]))
            coro.spawn(_metrics, listener, server)
        print("\n".join(lines), flush=True)
        if worker is None:
            coro.event().wait()
        else:
            worker.ready()
            worker.stopping.wait()
    return 0


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("latin-1") if value.isascii() else value.hex()
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def _query(options: argparse.Namespace) -> int:
    try:
        found = _cache(options, 10_000).answer(options.name, options.type, options.timeout)
    except (DNS_Hard_Error, DNS_Error) as e:
        print(f"coro.dns: {e}", file=sys.stderr)
        return 2
    records = [(ttl, _plain(value_of(options.type, data))) for ttl, data in found.chosen(options.type)]
    if options.json:
        print(json.dumps({"rcode": found.rcode, "records": [{"ttl": ttl, "data": data} for ttl, data in records]}))
    else:
        for ttl, data in records:
            text = " ".join(map(str, data)) if isinstance(data, list) else data
            print(f"{options.name}\t{ttl}\t{type_name(options.type)}\t{text}")
        if not records:
            said = "the name does not exist" if found.rcode == 3 else f"no records of type {type_name(options.type)}"
            print(f"coro.dns: {options.name}: {said}", file=sys.stderr)
    return 0 if records else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the status: 0, 1 without records, 2 if nobody can tell."""
    options = _parser().parse_args(arguments)
    if options.command == "serve" and options.workers > 1:
        if any(not port for _, port in options.listen or ()):
            print("coro.dns: several workers share their addresses, so --listen needs a port", file=sys.stderr)
            return 2
        return 1 if coro.prefork(options.workers, functools.partial(_serve, options)).failed else 0
    return int(coro.run(_serve if options.command == "serve" else _query, options))


if __name__ == "__main__":
    sys.exit(main())
