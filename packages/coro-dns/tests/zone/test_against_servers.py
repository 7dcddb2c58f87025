"""The same zones on nsd, on knotd and here, and thousands of questions: answers have to be equal.

Where nsd and knotd differ from each other, ours has to be one of the two. Of truncated replies only the flags are
compared, since each server leaves out something else.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from dns_support import in_loop
from real_programs import HOST, find_program
from zone_servers import Knot, Nsd, plain

import coro
from coro.dns import _wire
from coro.dns.packet import TYPE
from coro.dns.server import Server
from coro.dns.zone import Zone

TYPES = (TYPE.A, TYPE.AAAA, TYPE.NS, TYPE.CNAME, TYPE.SOA, TYPE.MX, TYPE.TXT, TYPE.SRV, TYPE.DS, TYPE.DNAME, 65280)
#: A delegation with keys and one without, below a name that has nothing else.
MORE = f"""
signedsub NS ns.signedsub
ns.signedsub A 192.0.2.5
signedsub DS 12345 13 2 {"ab" * 32}
u1.u2.ent NS ns.example.org.
"""


def signed(folder: Path, *options: str) -> str:
    """The zone, signed by BIND's tools."""
    keygen = find_program("dnssec-keygen", "bind9-utils")
    signzone = find_program("dnssec-signzone", "bind9-utils")
    (folder / "zone").write_text(plain(3) + MORE)
    for command in (
        [keygen, "-q", "-a", "ECDSAP256SHA256", "-f", "KSK", "example.test"],
        [keygen, "-q", "-a", "ECDSAP256SHA256", "example.test"],
        [signzone, "-q", "-P", "-S", "-o", "example.test", "-f", "signed", *options, "zone"],
    ):
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)
    return (folder / "signed").read_text()


def shown(data: bytes) -> Any:
    """What of a reply has to be equal: flags, and the records of answer and authority without their order."""
    message = _wire.parse(data, bool(data[2] & 2))
    flags = message.rcode, message.authoritative, message.truncated
    if message.truncated:
        return flags
    records = ([(o, t, ttl, d.lower() if t != 16 else d) for o, t, _, ttl, d in section]
               for section in (message.answer, message.authority))  # fmt: skip
    return (*flags, *map(sorted, records))


def replies(port: int, queries: list[bytes]) -> list[Any]:
    """What a server replies, asked over one socket, some at a time."""
    found: dict[int, Any] = {}
    with coro.udp_sock() as sock:
        sock.connect((HOST, port))
        for at in range(0, len(queries), 20):
            some = queries[at : at + 20]
            for query in some:
                sock.send(query)
            for _ in some:
                reply = sock.recv(65535)
                found[int.from_bytes(reply[:2], "big")] = shown(reply)
    return [found[i] for i in range(len(queries))]


def compared(text: str, dnssec: tuple[bool, ...]) -> int:
    """How many questions were asked."""
    zone = Zone.from_text(text, "example.test")
    names = {b"\1x\4test\0", _wire.from_text("example.test")}
    for name in zone._data.nodes:
        names |= {name, b"\1x" + name, b"\1*" + name, b"\2zz\2yy" + name}
    asked = [(name, rtype, do) for name in sorted(names) if len(name) < 255 for rtype in TYPES for do in dnssec]
    queries = [
        _wire.build(i, 0, name, rtype, 1, udp_size=1232, dnssec_ok=do) for i, (name, rtype, do) in enumerate(asked)
    ]
    with Nsd({"example.test": text}) as nsd, Knot({"example.test": text}) as knot:
        with Server(zones=[zone], addresses=[(HOST, 0)]) as server:
            port = server.addresses[0][1]
            ours = replies(port, queries)
            assert replies(port, queries) == ours  # from prepared bytes
        others = replies(nsd.port, queries), replies(knot.port, queries)
    for question, one, *some in zip(asked, ours, *others, strict=True):
        if one not in some and _wire.below(question[0], zone._data.origin):
            raise AssertionError(
                f"{_wire.to_text(question[0])} {question[1:]}\nours {one}\nnsd  {some[0]}\nknot {some[1]}"
            )
    same = sum(one == other for one, other in zip(ours, others[1], strict=True))
    assert same > 0.99 * len(asked)
    return len(asked)


@pytest.mark.slow
@in_loop
def test_a_plain_zone():
    assert compared(plain(), (False,)) > 2000


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-3", "abcd", "-H", "2"), ("-3", "-", "-H", "0", "-A")], ids=str)
def test_signed_zones(options, tmp_path):
    """With NSEC, with NSEC3, and with NSEC3 and opt-out."""

    @in_loop
    def test():
        assert compared(coro.in_thread(signed, tmp_path, *options), (False, True)) > 4000

    test()
