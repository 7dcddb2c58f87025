"""``python -m coro.dns serve`` is a resolver for this machine or network, ``python -m coro.dns query NAME [TYPE]`` asks
a question as dig(1) does, and ``python -m coro.dns cache`` shows what a running ``serve`` has in its cache."""

from __future__ import annotations

import argparse
import functools
import json
import secrets
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import coro
from coro import signal_handler
from coro.dns import DNS_Error, DNS_Hard_Error, _ask
from coro.dns._dnssec.anchors import anchors_of
from coro.dns._values import type_name
from coro.dns._zone.settings import load, split
from coro.dns.cache import dns_cache, root_anchors
from coro.dns.exceptions import DNS_Zone_Error
from coro.dns.server import Server
from coro.dns.zone import Primary, Secondary, Zone
from coro.prefork import Worker

__all__ = ["main"]


def _address(text: str) -> tuple[str, int]:
    """``127.0.0.1``, ``127.0.0.1:5353``, ``::1``, ``[::1]:5353``."""
    try:
        return split(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from None


def _forward(text: str) -> tuple[str, list[tuple[str, int]]]:
    zone, equals, servers = text.rpartition("=")
    return (zone if equals else "").strip("."), [_address(one) for one in servers.split(",")]


def _anchors(path: str) -> list[str]:
    """The text of a file with trust anchors."""
    try:
        text = Path(path).read_text()
        anchors_of([text])
    except (OSError, ValueError) as e:
        raise argparse.ArgumentTypeError(str(e)) from None
    return [text]


def _count(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, not {text!r}")
    return number


def _above_zero(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e9:
        raise argparse.ArgumentTypeError(f"expected a number above 0, not {text!r}")
    return number


def _rate(text: str) -> float | None:
    """A number above 0; ``none``: no limit."""
    return None if text == "none" else _above_zero(text)


#: Options for parameters of `Server`, what they take, what holds without them, and what they say.
_LIMITS: tuple[tuple[str, Callable[[str], Any], float | None, str], ...] = (
    ("--most", _count, 2000, "look-ups at a time; a network of clients has a share"),
    ("--connections", _count, 1000, "TCP connections at a time; an address has a share"),
    ("--idle", _above_zero, 10.0, "seconds for which a connection may be silent"),
    ("--limit", _above_zero, 8.0, "seconds that a question may take"),
    ("--max-responses-per-second", _rate, None, "responses over UDP to a network of clients, or none"),
    (
        "--max-client-work",
        _rate,
        1000.0,
        "datagrams and signatures a second that a network of clients may cause, or none",
    ),
)


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
    both.add_argument(
        "--validate",
        action="store_true",
        help="check signatures (DNSSEC) from the root's keys down; needs the extra coro-dns[dnssec]",
    )
    both.add_argument(
        "--anchor",
        type=_anchors,
        metavar="FILE",
        help="check signatures from the DS or DNSKEY records in this zone file down",
    )
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
    serve.add_argument(
        "--require-cookies",
        action="store_true",
        help="over UDP answer only questions with a cookie of this server (RFC 7873), others ask again over TCP",
    )
    for option, kind, default, about in _LIMITS:
        said = f"{about} ({'no limit' if default is None else f'{default:g}'})"
        serve.add_argument(option, type=kind, default=default, metavar="N", help=said)
    serve.add_argument("--zones", type=Path, metavar="FILE", help="zones of its own: a TOML file, see the manual")
    serve.add_argument("--no-cache", action="store_true", help="answer from --zones only, and look nothing up")
    _ask.options(commands.add_parser("query", parents=[both], help="ask a question"))
    cache = commands.add_parser("cache", help="look into the cache of a running resolver, or clean it")
    cache.add_argument("name", nargs="?", default="", help="only this name and those below it")
    cache.add_argument(
        "--at", type=_address, default=("127.0.0.1", 9153), metavar="ADDRESS", help="its --metrics (127.0.0.1:9153)"
    )
    cache.add_argument("--forget", action="store_true", help="drop what is kept about the name and those below it")
    cache.add_argument("--counters", action="store_true", help="show the counters")
    return parser


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options. In "query" words may stand between options, which argparse itself does not allow."""
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    if rest and (options.command != "query" or any(word.startswith("-") for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        options.words += rest
    return options


def _cache(options: argparse.Namespace, size: int) -> dns_cache:
    anchors = options.anchor or (root_anchors if options.validate else [])
    return dns_cache(
        size,
        roots=options.root,
        forward=dict(options.forward),
        ipv6=options.ipv6,
        loopback=options.loopback,
        trust_anchors=anchors,
    )


def _blocked(path: Path | None) -> list[str]:
    """The names in a file: one on a line, or lines of a hosts file."""
    if path is None:
        return []
    lines = (line.partition("#")[0].split() for line in path.read_text().splitlines())
    return [name for line in lines for name in (line[1:] or line)]


def _page(server: Server, request: bytes) -> str:
    """What a request gets: the counters, or the cache. Only our own command may clean it: no page in a browser can send
    its header to another site unasked."""
    words = request.split(b"\r\n", 1)[0].split()
    kind, _, name = (words[1] if len(words) > 1 else b"").decode("ascii", "replace").partition("?")
    cache = server.cache
    if kind == "/forget" and cache is not None and words[0] == b"POST" and b"\r\nCoro-Dns: forget\r\n" in request:
        dropped = cache.forget(name, True)
        server.forget(name, True)
        return f"{dropped}\n"
    if kind == "/cache" and cache is not None:
        return "".join(
            f"{owner}\t{left}\t{rtype}\t{json.dumps(_plain(data))}\n"
            for owner, rtype, left, data in cache.dump()
            if not name or owner == name or owner.endswith("." + name)
        )
    return server.metrics()


def _metrics(listener: coro.sock, server: Server) -> None:
    while True:
        try:
            sock, _ = listener.accept()
        except coro.ClosedError:
            return
        try:
            with sock, coro.timeout(5):
                text = _page(server, sock.recv(4096)).encode()
                head = f"HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(text)}"
                sock.send(head.encode() + b"\r\n\r\n" + text)
        except (OSError, coro.TimeoutError):
            pass  # whoever asked has gone


def _zones(options: argparse.Namespace) -> list[Primary | Secondary]:
    """The server's own zones. Raises DNS_Zone_Error, OSError."""
    zones = load(options.zones) if options.zones else []
    if options.workers > 1 and any(isinstance(zone, Secondary) or zone.may_update for zone in zones):
        raise DNS_Zone_Error("zones that are copied or updated belong to one process: leave --workers away")
    if options.no_cache and not zones:
        raise DNS_Zone_Error("--no-cache needs --zones with at least one zone: nothing else could be answered")
    return zones


def _reload(options: argparse.Namespace, zones: list[Primary | Secondary]) -> None:
    """Read the files of zones again, all but those that updates change. Serials have to grow."""
    own = {zone.origin: zone for zone in zones}
    try:
        found = _zones(options)
    except (OSError, DNS_Zone_Error) as e:
        print(f"coro.dns: nothing is read again: {e}", file=sys.stderr)
        return
    for new in found:
        old = own.pop(new.origin, None)
        if type(old) is not type(new):
            print(f"coro.dns: {new.name}: new zones, and those of another kind, need a new start", file=sys.stderr)
        elif isinstance(old, Primary) and isinstance(new, Primary) and not old.may_update:
            before = old.data.serial
            try:
                Zone(old.data).replace(Zone(new.data))
            except DNS_Zone_Error as e:
                print(f"coro.dns: {old.name}: {e}", file=sys.stderr)
            else:
                print(f"zone {old.name}: serial {before} -> {old.data.serial}", flush=True)
    for old in own.values():
        print(f"coro.dns: {old.name}: it goes on, since only a new start takes zones away", file=sys.stderr)


def _serve(options: argparse.Namespace, worker: Worker | None = None) -> int:
    """One process's part: without a `worker` until it is interrupted."""
    listen = options.listen or [("127.0.0.1", 53)]
    zones = _zones(options)
    server = Server(
        None if options.no_cache else _cache(options, options.cache_size),
        listen,
        zones=zones,
        allow=options.allow,
        block=_blocked(options.block),
        reuse_port=worker is not None,
        require_cookies=options.require_cookies,
        cookie_secrets=options.cookie_secrets,
        **{name: getattr(options, name) for name in (one[0][2:].replace("-", "_") for one in _LIMITS)},
    )
    with server, coro.tcp6_sock() if options.metrics and ":" in options.metrics[0] else coro.tcp_sock() as listener:
        lines = ["listening on " + ", ".join(f"{host}:{port}" for host, port in server.addresses)]
        lines += [f"zone {zone.name}" for zone in zones]
        if options.metrics:
            host, port = options.metrics
            listener.bind((host, port + worker.index if worker and port else port))
            listener.listen()
            lines.append("counters on http://{}:{}/".format(*listener.getsockname()[:2]))
            coro.spawn(_metrics, listener, server)
        signal_handler.register(signal.SIGHUP, lambda signum: _reload(options, zones))
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


def _look(options: argparse.Namespace) -> int:
    """The command "cache"."""
    name = options.name.strip(".").lower()
    path = "" if options.counters else f"forget?{name}" if options.forget else f"cache?{name}"
    request = f"{'POST' if options.forget else 'GET'} /{path} HTTP/1.0\r\nCoro-Dns: forget\r\n\r\n"
    try:
        with coro.timeout(10), coro.connect(*options.at) as sock:
            sock.send(request.encode())
            reply = b"".join(iter(lambda: sock.recv(65536), b""))
    except OSError as e:
        print(f"coro.dns: {e}; is there a `serve` with --metrics?", file=sys.stderr)
        return 2
    text = reply.partition(b"\r\n\r\n")[2].decode()
    print(f"entries dropped: {text}" if options.forget else text, end="")
    return 0


def _query(options: argparse.Namespace) -> int:
    if not (options.root or options.forward or options.recurse):
        return _ask.ask(options)
    try:
        _, name, rtype = _ask._words(options)
        options.name, options.type = name, rtype
    except ValueError as e:
        print(f"coro.dns: {e}", file=sys.stderr)
        return 2
    try:
        found = _cache(options, 10_000).answer(options.name, options.type, options.timeout)
    except (DNS_Hard_Error, DNS_Error) as e:
        print(f"coro.dns: {e}", file=sys.stderr)
        return 2
    records = [(ttl, _ask.shown(options.type, data)) for ttl, data in found.chosen(options.type)]
    if options.short:
        print("".join(f"{data}\n" for _, data in records), end="")
    elif options.json:
        print(json.dumps({"rcode": found.rcode, "records": [{"ttl": ttl, "data": data} for ttl, data in records]}))
    else:
        for ttl, data in records:
            print(f"{options.name}\t{ttl}\t{type_name(options.type)}\t{data}")
        if not records:
            said = "the name does not exist" if found.rcode == 3 else f"no records of type {type_name(options.type)}"
            print(f"coro.dns: {options.name}: {said}", file=sys.stderr)
    return 0 if records else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the status: 0, 1 without records, 2 if nobody can tell."""
    options = _parsed(arguments)
    options.cookie_secrets = [secrets.token_bytes(16)]  # one for all workers: they share their addresses
    if options.command == "serve":
        try:
            _zones(options)
        except (OSError, DNS_Zone_Error) as e:
            print(f"coro.dns: {e}", file=sys.stderr)
            return 2
    if options.command == "serve" and options.workers > 1:
        if any(not port for _, port in options.listen or ()):
            print("coro.dns: several workers share their addresses, so --listen needs a port", file=sys.stderr)
            return 2
        return 1 if coro.prefork(options.workers, functools.partial(_serve, options)).failed else 0
    command = {"serve": _serve, "query": _query, "cache": _look}[options.command]
    return int(coro.run(command, options))


if __name__ == "__main__":
    sys.exit(main())
