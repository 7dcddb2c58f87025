"""A small private name space on addresses 127.53.x.y: a root, two zones below it and leaves, on nsd and knot, with much
that is broken; and unbound, which resolves from the same root and says what is right.

Servers are found by their addresses alone, so all have port 53, which only root may use. `x` is chosen at random: two
runs on one machine do not meet. One server starts in 0.1 s.
"""

from __future__ import annotations

import os
import random
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import dns.message
import dns.rcode
from real_programs import Server, find_program, missing

SOA = "@ 3600 IN SOA ns hostmaster 1 3600 900 86400 300\n"

ROOT = """
$TTL 3600
. 3600 IN SOA a.root. nobody. 1 3600 900 86400 300
. NS a.root.
a.root. A {net}.1
test. NS ns1.test.
test. NS ns2.test.
ns1.test. A {net}.2
ns2.test. A {net}.12
org. NS ns.org.
ns.org. A {net}.2
nowhere. NS ns.nowhere.
ns.nowhere. A {net}.250
"""

TEST = """
$ORIGIN test.
$TTL 3600
@ SOA ns1 hostmaster 1 3600 900 86400 300
@ NS ns1
@ NS ns2
ns1 A {net}.2
ns2 A {net}.12
here A 192.0.2.1
one.two.three.here A 192.0.2.2
example NS ns.example
ns.example A {net}.3
; every server without the zone
lame NS ns.lame
ns.lame A {net}.5
; one of two
halflame NS ns1.halflame
halflame NS ns2.halflame
ns1.halflame A {net}.5
ns2.halflame A {net}.3
; nobody at the address
dead NS ns.dead
ns.dead A {net}.250
; one of three answers
halfdead NS ns1.halfdead
halfdead NS ns2.halfdead
halfdead NS ns3.halfdead
ns1.halfdead A {net}.250
ns2.halfdead A {net}.3
ns3.halfdead A {net}.251
; servers in another zone
glueless NS ns.example.org.
glueless2 NS ns.glueless.test.
; two zones whose servers are in each other
loop1 NS ns.loop2
loop2 NS ns.loop1
self NS ns.self.loop3
loop3 NS ns.self
; servers that do not exist, or have no address
noname NS ns.missing.test.
noaddress NS text.example.test.
; a server that is an alias
aliased NS alias.example.test.
knotted NS ns.knotted
ns.knotted A {net}.4
"""

ORG = """
$ORIGIN org.
$TTL 3600
@ SOA ns hostmaster 1 3600 900 86400 300
@ NS ns
ns A {net}.2
example NS ns.example
ns.example A {net}.3
"""

EXAMPLE = """
$ORIGIN example.test.
$TTL 3600
@ SOA ns hostmaster 1 3600 900 86400 300
@ NS ns
@ MX 10 mail
@ MX 20 mail.example.org.
@ TXT "hello" "world"
@ CAA 0 issue "ca.example.test"
ns A {net}.3
www A 192.0.2.10
www A 192.0.2.11
www AAAA 2001:db8::10
mail A 192.0.2.20
six AAAA 2001:db8::6
text TXT "only text"
zero 0 A 192.0.2.99
alias CNAME www
outside CNAME www.example.org.
nothing CNAME missing
elsewhere CNAME missing.example.org.
toself CNAME toself
ring1 CNAME ring2
ring2 CNAME ring1
todead CNAME www.dead.test.
tolame CNAME www.lame.test.
_sip._tcp SRV 1 2 5060 www
_443._tcp.www TLSA 3 1 1 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
svc HTTPS 1 . alpn=h2 ipv4hint=192.0.2.10
odd TYPE65280 \\# 4 01020304
a.b.c.d.e.f A 192.0.2.77
*.wild A 192.0.2.30
*.wild TXT "anything"
fixed.wild A 192.0.2.31
below.fixed.wild A 192.0.2.32
dname DNAME example.org.
inner DNAME wild
loc LOC 52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000m 10m
naptr NAPTR 100 10 "u" "sip+E2U" "!^.*$!sip:info@example.test!" .
host HINFO "vax" "vms"
ssh SSHFP 1 1 0123456789abcdef0123456789abcdef01234567
rp RP admin.example.test. text
ptr PTR www
sub NS ns.sub
ns.sub A {net}.4
chain0 A 192.0.2.40
"""

ORG_EXAMPLE = """
$ORIGIN example.org.
$TTL 600
@ SOA ns hostmaster 1 3600 900 86400 60
@ NS ns
ns A {net}.3
www A 198.51.100.10
mail A 198.51.100.20
back CNAME alias.example.test.
"""

SMALL = """
$TTL 3600
@ SOA ns hostmaster 1 3600 900 86400 300
@ NS {ns}
www A 192.0.2.50
alias CNAME www
"""


def zones(net: str) -> dict[int, dict[str, str]]:
    """Server -> zone -> text."""
    chain = "".join(f"chain{i} CNAME chain{i - 1}\n" for i in range(1, 9))
    big = "big TXT " + " ".join(f'"{i:03d}{"x" * 200}"' for i in range(20)) + "\n"
    many = "".join(f"many A 192.0.2.{i}\n" for i in range(1, 200))
    small = {
        zone: SMALL.format(ns=ns)
        for zone, ns in (
            ("halflame.test", "ns2"),
            ("halfdead.test", "ns2"),
            ("glueless.test", "ns.example.org."),
            ("glueless2.test", "ns.glueless.test."),
            ("aliased.test", "alias.example.test."),
        )
    }
    for zone, server in (("halflame.test", "ns2"), ("halfdead.test", "ns2")):
        small[zone] += f"{server} A {net}.3\n"
    small["glueless.test"] += f"ns A {net}.3\n"
    return {
        1: {".": ROOT.format(net=net)},
        2: {"test": TEST.format(net=net), "org": ORG.format(net=net)},
        12: {"test": TEST.format(net=net)},
        3: {
            "example.test": EXAMPLE.format(net=net) + chain + big + many,
            "example.org": ORG_EXAMPLE.format(net=net),
            **small,
        },
        5: {"other.test": SMALL.format(ns="ns")},
    }


class NameServer(Server):
    """A name server on port 53 of an address of its own."""

    def __init__(self, address: str, texts: dict[str, str]) -> None:
        self.address = address
        self.texts = texts
        super().__init__()

    def choose_port(self) -> int:
        return 53

    def files(self) -> list[tuple[str, Path]]:
        found = []
        for number, (zone, text) in enumerate(self.texts.items()):
            path = self.folder / f"{number}.zone"
            path.write_text(text)
            found.append((zone, path))
        return found

    def answers(self) -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(1)
            sock.connect((self.address, 53))
            sock.send(dns.message.make_query(next(iter(self.texts), "."), "SOA").to_wire())
            return dns.message.from_wire(sock.recv(65535)).rcode() == dns.rcode.NOERROR


class Nsd(NameServer):
    """nsd with these zones."""

    name = "nsd"

    def find(self) -> None:
        self._program = find_program("nsd", "nsd")

    def command(self) -> list[str]:
        folder = self.folder
        text = (
            f'server:\n ip-address: {self.address}\n username: ""\n zonesdir: "{folder}"\n database: ""\n'
            f' pidfile: "{folder}/pid"\n zonelistfile: "{folder}/list"\n xfrdfile: "{folder}/xfrd"\n'
            f" xfrdir: {folder}\n server-count: 1\n hide-version: yes\n rrl-ratelimit: 0\n refuse-any: no\n"
            "remote-control:\n control-enable: no\n"
        )
        for zone, path in self.files():
            text += f"zone:\n name: {zone}\n zonefile: {path}\n"
        (folder / "nsd.conf").write_text(text)
        return [self._program, "-d", "-c", str(folder / "nsd.conf")]


class Knot(NameServer):
    """knotd with these zones."""

    name = "knotd"

    def find(self) -> None:
        self._program = find_program("knotd", "knot")

    def command(self) -> list[str]:
        folder = self.folder
        text = (
            f"server:\n  rundir: {folder}\n  listen: {self.address}@53\n  udp-workers: 1\n  tcp-workers: 1\n"
            f"  background-workers: 1\ndatabase:\n  storage: {folder}\n"
            f"log:\n  - target: stderr\n    any: info\nzone:\n"
        )
        for zone, path in self.files():
            text += f'  - domain: "{zone}"\n    file: "{path}"\n    journal-content: none\n'
        (folder / "knot.conf").write_text(text)
        return [self._program, "-c", str(folder / "knot.conf")]


class Unbound(NameServer):
    """unbound, resolving from the given root, without DNSSEC."""

    name = "unbound"

    def __init__(self, address: str, root: str) -> None:
        self.root = root
        super().__init__(address, {})

    def find(self) -> None:
        self._program = find_program("unbound", "unbound")

    def command(self) -> list[str]:
        folder = self.folder
        (folder / "hints").write_text(f". 3600 NS a.root.\na.root. 3600 A {self.root}\n")
        (folder / "unbound.conf").write_text(
            f'server:\n interface: {self.address}\n directory: "{folder}"\n chroot: ""\n username: ""\n pidfile: ""\n'
            f' use-syslog: no\n logfile: ""\n do-not-query-localhost: no\n root-hints: "{folder}/hints"\n'
            f' module-config: "iterator"\n access-control: 127.0.0.0/8 allow\n outgoing-interface: 127.0.0.1\n'
            f" num-threads: 1\n do-ip6: no\n minimal-responses: yes\n unblock-lan-zones: yes\n"
            f' insecure-lan-zones: yes\n local-zone: "test." nodefault\nremote-control:\n control-enable: no\n'
        )
        return [self._program, "-d", "-p", "-c", str(folder / "unbound.conf")]


class Tree:
    """The servers' addresses."""

    def __init__(self, net: str) -> None:
        self.net = net
        self.root = f"{net}.1"
        self.unbound = f"{net}.100"


@contextmanager
def running_tree(oracle: bool = True) -> Iterator[Tree]:
    """All servers; skips where they cannot be run."""
    if not sys.platform.startswith("linux"):
        missing("needs all of 127.0.0.0/8 to be local, as Linux has it", required=False)
    if os.geteuid() != 0:
        missing("port 53 is for root only: run the tests as root", required=False)
    net = f"127.53.{random.randrange(1, 255)}"
    tree = Tree(net)
    with ExitStack() as stack:
        for number, texts in zones(net).items():
            stack.enter_context(Nsd(f"{net}.{number}", texts))
        sub = SMALL.format(ns="ns") + f"ns A {net}.4\n"
        stack.enter_context(Knot(f"{net}.4", {"sub.example.test": sub, "knotted.test": sub}))
        if oracle:
            stack.enter_context(Unbound(tree.unbound, tree.root))
        yield tree
