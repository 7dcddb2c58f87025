"""Real name servers that have zones, on free ports of this machine: nsd, knotd and named, with keys, transfers and
notifications; and zones to compare what they answer with."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import dns.message
from real_programs import HOST, Server, find_program

import coro
from coro.dns.tsig import Key

ORIGIN = "example.test"
SECRET = "bXkgc2VjcmV0IGlzIG5vdCBhIHNlY3JldCBhdCBhbGw="

KEY = Key("key.test", SECRET)

PLAIN = """
$ORIGIN example.test.
$TTL 1h
@ SOA ns hostmaster 7 1h 15m 2w 5m
@ NS ns
@ NS ns.sub
@ MX 10 mail
@ MX 20 mail.example.org.
@ TXT "hello" "world"
ns A 192.0.2.1
ns AAAA 2001:db8::1
www A 192.0.2.10
www A 192.0.2.11
www 60 AAAA 2001:db8::10
mail A 192.0.2.20
alias CNAME www
outside CNAME www.example.org.
nothing CNAME missing
chain1 CNAME chain2
chain2 CNAME chain3
chain3 CNAME www
toself CNAME toself
ring1 CNAME ring2
ring2 CNAME ring1
towild CNAME some.wild
tosub CNAME www.sub
todname CNAME www.dname
_sip._tcp SRV 1 2 5060 www
_sip._tcp SRV 2 2 5060 host.sub
odd TYPE65280 \\# 4 01020304
a.b.c.d.e.f A 192.0.2.77
*.wild A 192.0.2.30
*.wild TXT "anything"
fixed.wild A 192.0.2.31
below.fixed.wild A 192.0.2.32
deep.empty.wild A 192.0.2.33
*.aliased CNAME www
*.deep.aliased CNAME nowhere
*.text TXT "only"
dname DNAME other
www.other A 192.0.2.60
outdname DNAME example.org.
longdname DNAME {long}.{long}.{long}.{long}.example.org.
sub NS ns.sub
sub NS ns2.sub
sub NS ns
ns.sub A 192.0.2.40
ns2.sub AAAA 2001:db8::40
www.sub A 192.0.2.41
deep.er.sub A 192.0.2.42
far NS ns.example.org.
big TXT {big}
many A 192.0.2.1
"""


def plain(records: int = 30) -> str:
    """A zone with one of everything."""
    big = " ".join(f'"{i:03d}{"x" * 200}"' for i in range(8))
    return PLAIN.replace("{big}", big).replace("{long}", "abcde" * 11) + "".join(
        f"many A 198.51.100.{i}\n" for i in range(records)
    )


class Named(Server):
    """Something that has zones: their names and texts."""

    def __init__(self, zones: dict[str, str], more: str = "", zone_more: str = "") -> None:
        self.zones = zones
        self.more = more
        self.zone_more = zone_more
        super().__init__()

    def paths(self) -> list[tuple[str, Path]]:
        found = []
        for number, (zone, text) in enumerate(self.zones.items()):
            path = self.folder / f"{number}.zone"
            if text and not path.exists():
                path.write_text(text)
            found.append((zone, path))
        return found

    def reload(self, zone: str, text: str) -> None:
        """New contents of a zone."""
        dict(self.paths())[zone].write_text(text)

    def answers(self) -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(1)
            sock.connect((HOST, self.port))
            sock.send(dns.message.make_query(next(iter(self.zones)), "SOA").to_wire())
            sock.recv(65535)
            return True


class Nsd(Named):
    """nsd."""

    name: ClassVar[str] = "nsd"

    def find(self) -> None:
        self._program = find_program("nsd", "nsd")

    def command(self) -> list[str]:
        folder = self.folder
        text = (
            f'server:\n ip-address: {HOST}@{self.port}\n username: ""\n zonesdir: "{folder}"\n database: ""\n'
            f' pidfile: "{folder}/pid"\n zonelistfile: "{folder}/list"\n xfrdfile: "{folder}/xfrd"\n'
            f" xfrdir: {folder}\n server-count: 1\n rrl-ratelimit: 0\n refuse-any: no\n minimal-responses: yes\n"
            f' verbosity: 2\nremote-control:\n control-enable: no\nkey:\n name: "key.test"\n algorithm: hmac-sha256\n'
            f' secret: "{SECRET}"\n{self.more}'
        )
        for zone, path in self.paths():
            text += f"zone:\n name: {zone}\n zonefile: {path}\n{self.zone_more}"
        (folder / "nsd.conf").write_text(text)
        return [self._program, "-d", "-c", str(folder / "nsd.conf")]


class Knot(Named):
    """knotd."""

    name: ClassVar[str] = "knotd"

    def find(self) -> None:
        self._program = find_program("knotd", "knot")

    def command(self) -> list[str]:
        folder = self.folder
        text = (
            f"server:\n  rundir: {folder}\n  listen: {HOST}@{self.port}\n  udp-workers: 1\n  tcp-workers: 1\n"
            f"  background-workers: 1\ndatabase:\n  storage: {folder}\n"
            f"log:\n  - target: stderr\n    any: info\n"
            f"key:\n  - id: key.test\n    algorithm: hmac-sha256\n    secret: {SECRET}\n{self.more}zone:\n"
        )
        for zone, path in self.paths():
            text += f'  - domain: "{zone}"\n    file: "{path}"\n{self.zone_more}'
        (folder / "knot.conf").write_text(text)
        return [self._program, "-c", str(folder / "knot.conf")]


class Bind(Named):
    """named."""

    name: ClassVar[str] = "named"
    kind = "primary"

    def find(self) -> None:
        self._program = find_program("named", "bind9")

    def command(self) -> list[str]:
        folder = self.folder
        text = (
            f'options {{ directory "{folder}"; listen-on port {self.port} {{ {HOST}; }}; listen-on-v6 {{ none; }};\n'
            f' pid-file "{folder}/pid"; session-keyfile "{folder}/session"; recursion no; dnssec-validation no;\n'
            f" minimal-responses yes; notify explicit; {self.more} }};\ncontrols {{ }};\n"
            f'key "key.test" {{ algorithm hmac-sha256; secret "{SECRET}"; }};\n'
        )
        for zone, path in self.paths():
            text += f'zone "{zone}" {{ type {self.kind}; file "{path}"; {self.zone_more} }};\n'
        (folder / "named.conf").write_text(text)
        return [self._program, "-g", "-n", "1", "-c", str(folder / "named.conf")]


def knot_acl(key: Key | None, remotes: str = "") -> str:
    """Whoever has the key, or everybody on this machine, may do everything at a Knot."""
    signed = "    key: key.test\n" if key else ""
    return remotes + f"acl:\n  - id: all\n    address: {HOST}\n{signed}    action: [transfer, notify, update]\n"


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context with a certificate of its own for this name, and a client's that trusts it alone."""
    files = [str(folder / "key.pem"), str(folder / "cert.pem")]
    make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost".split()
    make += ["-addext", f"subjectAltName={name}", "-addext", "keyUsage=critical,digitalSignature,keyCertSign"]
    command = [find_program("openssl", "openssl"), *make, "-keyout", files[0], "-out", files[1]]
    coro.in_thread(lambda: subprocess.run(command, check=True, capture_output=True))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files[1], files[0])
    return server, ssl.create_default_context(cafile=files[1])


def until(condition: Callable[[], Any]) -> None:
    """Wait for something that another program does."""
    while not condition():
        coro.sleep_relative(0.02)
