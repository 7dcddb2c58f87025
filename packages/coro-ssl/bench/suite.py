"""What `python -m tools.bench run --suite tls` measures of coro-ssl: echo servers over TLS 1.3, one for each peer.

The C peer is what one writes with OpenSSL and epoll. "blocking" is Python's ssl with a thread for each connection,
"uvloop-tuned" a Protocol with an allocator that keeps large blocks.
"""

from __future__ import annotations

from typing import Any

from tools.bench._captions import Caption
from tools.bench._suites import Case, Rival

CAPTIONS = {"tls": Caption("TLS", "Processor time of a server for a request, a handshake, or 64 KiB of an echo.")}

#: 1.1 times what a blocking socket takes, and 2 KiB for a thread that waits: of the 14.7 KB that it takes here.
IDLE = 1.1 + 2048 / 14_700


def _case(name: str, rivals: tuple[Rival, ...], load: dict[str, int], **more: Any) -> Case:
    settings: dict[str, Any] = {"kind": "server", "client": "tls_load", **more}
    return Case(
        "tls",
        name,
        "tls_server.py",
        {},
        rivals,
        load=load,
        c_server="tls_server",
        c_files=("certificate.pem",),
        **settings,
    )


def _echo(connections: int) -> Case:
    return _case(
        f"1 KiB, {connections} connections",
        (
            Rival("c", 1.25),
            Rival("blocking", 0.75),
            Rival("uvloop-tuned", 1.1),
            Rival("gevent"),
            Rival("asyncio-tuned"),
            Rival("uvloop-protocol"),
        ),
        {"connections": connections, "size": 1024, "requests": 40_000},
    )


def _handshakes(name: str, kind: int) -> Case:
    return _case(
        f"handshake, {name}",
        (Rival("blocking", 1 / 0.95), Rival("c"), Rival("gevent"), Rival("uvloop-tuned")),
        {"connections": 1, "size": kind, "requests": 1_000},
        client="tls_handshakes",
    )


CASES = (
    _echo(100),
    _echo(1_000),
    _case(
        "bulk, echo of 64 KiB, 10 connections",
        (Rival("blocking", 1.0), Rival("gevent", 1.0), Rival("c", 1 / 0.87), Rival("uvloop-tuned")),
        {"connections": 10, "size": 65_536, "requests": 6_000},
    ),
    _handshakes("full", 1),
    _handshakes("resumed", 2),
    _case(
        "idle connection",
        (Rival("blocking-idle", IDLE), Rival("gevent"), Rival("uvloop-tuned"), Rival("c")),
        # So many that what a process has once, such as 1.3 MB of stack slots, is little of each.
        {"connections": 4_000, "size": 1024, "requests": 4_000},
        metric="bytes",
    ),
)

DISTRIBUTIONS = {"uvloop-tuned": "uvloop"}
