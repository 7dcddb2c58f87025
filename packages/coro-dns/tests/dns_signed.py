"""A signed name space beside that of `dns_tree.py`: a root, `test` below it, and zones below that, each in a way of its
own: other algorithms, NSEC and NSEC3, not signed, signed wrongly. Keys and signatures are made by BIND's tools; nsd
serves them, and an unbound that validates says what is right."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dns_tree import SOA, Nsd, Unbound
from real_programs import find_program, missing

LEAF = """
$TTL 3600
@ NS ns
ns A {net}.2
www A 192.0.2.10
www AAAA 2001:db8::10
alias CNAME www
outside CNAME www.plain.test.
tobogus CNAME www.bogus.test.
*.wild A 192.0.2.30
fixed.wild A 192.0.2.31
a.b.c.d A 192.0.2.40
dname DNAME ecdsa.test.
text TXT "{long}"
sub NS ns.sub
ns.sub A {net}.2
x.y.*.deep A 192.0.2.60
*.cn CNAME www
"""
#: zone -> (algorithm, more options of dnssec-signzone)
SIGNED = {
    "ecdsa.test": ("ECDSAP256SHA256", []),
    "ecdsa3.test": ("ECDSAP256SHA256", ["-3", "-", "-H", "0"]),
    "p384.test": ("ECDSAP384SHA384", []),
    "rsa.test": ("RSASHA256", ["-3", "abcd", "-H", "5"]),
    "rsa512.test": ("RSASHA512", []),
    "ed.test": ("ED25519", ["-3", "ab", "-H", "1", "-A"]),
    "ed448.test": ("ED448", []),
    "expired.test": ("ECDSAP256SHA256", ["-s", "20200101000000", "-e", "20200201000000"]),
    "future.test": ("ECDSAP256SHA256", ["-s", "20600101000000", "-e", "20610201000000"]),
    "rounds.test": ("ECDSAP256SHA256", ["-3", "ab", "-H", "150"]),
    "bogus.test": ("ECDSAP256SHA256", []),
    "stripped.test": ("ECDSAP256SHA256", []),
    "badds.test": ("ECDSAP256SHA256", []),
}


class Signer:
    """Signs zones in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keygen = find_program("dnssec-keygen", "bind9-utils")
        self.signzone = find_program("dnssec-signzone", "bind9-utils")

    def run(self, *command: str) -> None:
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True, timeout=300)

    def sign(self, zone: str, text: str, algorithm: str, more: list[str]) -> tuple[str, str]:
        """The signed zone, and its DS records."""
        size = ["-b", "2048"] if algorithm.startswith("RSA") else []
        for kind in (["-f", "KSK"], []):
            self.run(self.keygen, "-q", "-K", ".", "-a", algorithm, *size, *kind, zone)
        (self.folder / "zone").write_text(SOA + text)
        self.run(self.signzone, "-q", "-P", "-S", "-K", ".", "-o", zone, "-f", "signed", *more, "zone")
        ds = (self.folder / f"dsset-{zone.removesuffix('.')}.").read_text()
        return (self.folder / "signed").read_text(), ds


class ValidatingUnbound(Unbound):
    """unbound that validates, with this trust anchor."""

    def __init__(self, address: str, root: str, anchor: str) -> None:
        self.anchor = anchor
        super().__init__(address, root)

    def command(self) -> list[str]:
        command = super().command()
        path = self.folder / "unbound.conf"
        (self.folder / "anchor").write_text(self.anchor)
        text = path.read_text().replace('"iterator"', f'"validator iterator"\n trust-anchor-file: {self.folder}/anchor')
        path.write_text(text.replace("minimal-responses: yes", "minimal-responses: yes\n val-log-level: 0"))
        return command


class SignedTree:
    """Addresses, and the trust anchor."""

    def __init__(self, net: str, anchor: str) -> None:
        self.root = f"{net}.1"
        self.unbound = f"{net}.100"
        self.anchor = anchor


def zones(net: str, folder: Path) -> tuple[dict[int, dict[str, str]], str]:
    """Server -> zone -> text, and the anchor."""
    signer = Signer(folder)
    leaves: dict[str, str] = {}
    test = f"$TTL 3600\n@ NS ns\nns A {net}.2\nhere A 192.0.2.1\n"
    leaf = LEAF.format(net=net, long="x" * 200)
    small = SOA + f"$TTL 3600\n@ NS ns\nns A {net}.2\nwww A 192.0.2.50\n"
    for zone, (algorithm, more) in SIGNED.items():
        leaves[zone], ds = signer.sign(zone, leaf, algorithm, more)
        leaves[f"sub.{zone}"] = small
        if zone == "badds.test":
            ds = re.sub(r"[0-9A-F]{8}\n", "00000000\n", ds)
        test += f"{zone}. NS ns\n{ds}\n"
    leaves["bogus.test"] = leaves["bogus.test"].replace("192.0.2.10", "192.0.2.66")
    leaves["stripped.test"] = SOA + leaf
    leaves["plain.test"] = SOA + leaf
    leaves["sub.plain.test"] = small
    test += "plain NS ns\n"
    leaves["test"], ds = signer.sign("test", test, "ECDSAP256SHA256", ["-3", "-", "-H", "0"])
    root = f"$TTL 3600\n@ NS a.root.\na.root. A {net}.1\ntest. NS ns.test.\nns.test. A {net}.2\n{ds}"
    text, anchor = signer.sign(".", root, "RSASHA256", [])
    return {1: {".": text}, 2: leaves}, anchor


@contextmanager
def signed_tree(folder: Path, oracle: bool = True) -> Iterator[SignedTree]:
    """All servers; skips where they cannot be run."""
    if not sys.platform.startswith("linux"):
        missing("needs all of 127.0.0.0/8 to be local, as Linux has it", required=False)
    if os.geteuid() != 0:
        missing("port 53 is for root only: run the tests as root", required=False)
    net = f"127.53.{random.randrange(1, 255)}"
    texts, anchor = zones(net, folder)
    tree = SignedTree(net, anchor)
    with ExitStack() as stack:
        for number, some in texts.items():
            stack.enter_context(Nsd(f"{net}.{number}", some))
        if oracle:
            stack.enter_context(ValidatingUnbound(tree.unbound, tree.root, anchor))
        yield tree
