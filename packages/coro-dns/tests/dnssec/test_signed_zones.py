"""Answers out of signed zones, and out of zones that are signed wrongly: ours are unbound's (response code, records, AD
bit), and delv, which validates by itself, is content with what our server hands on."""

from __future__ import annotations

import socket
import subprocess

import dns.flags
import dns.message
import dns.rcode
import pytest
from dns_signed import SIGNED, signed_tree
from dns_support import in_loop
from real_programs import find_program

import coro
from coro.dns import DNS_Bogus_Error
from coro.dns import __main__ as command
from coro.dns.cache import dns_cache
from coro.dns.server import Server

pytestmark = pytest.mark.slow
NAMES = [
    ("www", "A"), ("www", "AAAA"), ("www", "MX"), ("", "SOA"), ("", "NS"), ("", "MX"), ("", "DNSKEY"), ("", "DS"),
    ("alias", "A"), ("alias", "TXT"), ("outside", "A"), ("tobogus", "A"), ("missing", "A"), ("x.missing", "A"),
    ("x.wild", "A"), ("y.x.wild", "A"), ("x.wild", "MX"), ("fixed.wild", "A"), ("x.fixed.wild", "A"), ("wild", "A"),
    ("c.d", "A"), ("x.c.d", "A"), ("a.b.c.d", "A"), ("www.dname", "A"), ("missing.dname", "A"), ("text", "TXT"),
    ("www.sub", "A"), ("sub", "NS"), ("sub", "DS"), ("missing.sub", "A"), ("zzz", "A"), ("0", "A"),
    ("q.deep", "A"), ("*.deep", "A"), ("x.q.deep", "MX"), ("y.*.deep", "A"), ("a.b.cn", "A"), ("a.cn", "DS"),
    ("www", "RRSIG"), ("x.wild", "DS"), ("q.deep", "DS"),
]  # fmt: skip


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    with signed_tree(tmp_path_factory.mktemp("signed")) as tree:
        yield tree


def questions():
    zones = [*SIGNED, "plain.test"]
    return [
        *((f"{name}.{zone}".lstrip("."), rtype) for zone in zones for name, rtype in NAMES),
        ("here.test", "A"), ("missing.test", "A"), ("test", "DS"), ("test", "DNSKEY"), ("nothing", "A"), ("", "DNSKEY"),
    ]  # fmt: skip


def ask_unbound(address, name, rtype):
    query = dns.message.make_query(name + ".", rtype, want_dnssec=True)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.settimeout(60)
        sock.connect((address, 53))
        wire = query.to_wire()
        sock.sendall(len(wire).to_bytes(2, "big") + wire)
        data = sock.makefile("rb")
        reply = dns.message.from_wire(data.read(int.from_bytes(data.read(2), "big")))
    return shape(reply)


def shape(reply):
    records = sorted(
        (str(rrset.name).lower(), rrset.rdtype, str(one).lower())
        for rrset in reply.answer
        for one in rrset
        if rrset.rdtype != dns.rdatatype.RRSIG
    )
    return reply.rcode(), records if reply.rcode() != dns.rcode.SERVFAIL else [], bool(reply.flags & dns.flags.AD)


def test_the_same_as_unbound(tree):
    def ours():
        cache = dns_cache(roots=[tree.root], loopback=True, trust_anchors=tree.anchor.splitlines())
        out = {}
        with Server(cache, [("127.0.0.1", 0)]) as server:
            for name, rtype in questions():
                query = dns.message.make_query(name + ".", rtype, want_dnssec=True)
                out[name, rtype] = shape(dns.message.from_wire(server.respond(query.to_wire(), "127.0.0.1", False)))
        return out

    found = coro.run(ours)
    wrong = []
    for (name, rtype), one in found.items():
        expected = ask_unbound(tree.unbound, name, rtype)
        if one != expected:
            wrong.append((name, rtype, one, expected))
    assert not wrong, f"{len(wrong)} of {len(found)}:\n" + "\n".join(map(str, wrong[:40]))
    assert len(found) > 400


@in_loop
def test_answers_say_whether_they_are_authentic(tree):
    cache = dns_cache(roots=[tree.root], loopback=True, trust_anchors=tree.anchor.splitlines())
    assert cache.validates and not dns_cache().validates
    assert cache.answer("www.ecdsa.test", "A").authenticated
    assert not cache.answer("www.plain.test", "A").authenticated
    for _ in range(2):
        with pytest.raises(DNS_Bogus_Error, match="a wrong signature"):
            cache.query("www.bogus.test", "A")
    assert cache.answer("www.bogus.test", "A", check=False).chosen(1)[0][1] == b"\xc0\0\2\x42"
    with Server(cache, [("127.0.0.1", 0)]) as server:

        def ask(name, cd=False, **settings):
            query = dns.message.make_query(name, "A", **settings)
            query.flags |= dns.flags.CD if cd else 0
            with coro.udp_sock() as sock:
                sock.connect(server.addresses[0])
                sock.send(query.to_wire())
                return dns.message.from_wire(sock.recv(65535))

        for _ in range(2):
            bad = ask("www.bogus.test.", use_edns=0)
            assert bad.rcode() == dns.rcode.SERVFAIL and int(bad.options[0].code) == 6
            assert ask("www.bogus.test.", cd=True).answer
            assert not ask("www.ecdsa.test.").flags & dns.flags.AD
            assert ask("www.ecdsa.test.", flags=dns.flags.RD | dns.flags.AD).flags & dns.flags.AD
            signed = ask("www.ecdsa.test.", want_dnssec=True)
            assert signed.flags & dns.flags.AD and len(signed.answer) == 2
            assert not ask("www.plain.test.", want_dnssec=True).flags & dns.flags.AD


def test_the_command(tree, tmp_path, capsys):
    anchor = tmp_path / "anchor"
    anchor.write_text("; of the tests\n" + tree.anchor)
    options = ["query", "--root", tree.root, "--loopback", "--anchor", str(anchor), "--short"]
    assert command.main([*options, "www.ecdsa.test"]) == 0
    assert capsys.readouterr().out == "192.0.2.10\n"
    assert command.main([*options, "www.bogus.test"]) == 2
    assert "validation failed" in capsys.readouterr().err


@in_loop
def test_delv(tree, tmp_path):
    """delv asks our server for everything that it needs to validate."""
    words = tree.anchor.splitlines()[0].split()
    anchor = tmp_path / "anchor"
    anchor.write_text(f'trust-anchors {{ . static-ds {words[3]} {words[4]} {words[5]} "{"".join(words[6:])}"; }};\n')
    cache = dns_cache(roots=[tree.root], loopback=True, trust_anchors=tree.anchor.splitlines())
    delv = find_program("delv", "bind9-dnsutils")
    with Server(cache, [("127.0.0.1", 0)]) as server:
        host, port = server.addresses[0]
        for name, rtype, said in (
            ("www.ecdsa.test", "A", "; fully validated"),
            ("www.ecdsa3.test", "MX", "; negative response, fully validated"),
            ("missing.rsa.test", "A", "; negative response, fully validated"),
            ("x.wild.p384.test", "A", "; fully validated"),
            ("www.plain.test", "A", "; unsigned answer"),
            ("www.bogus.test", "A", "resolution failed"),
        ):
            command = [delv, f"@{host}", "-p", str(port), "-a", str(anchor), "+root=.", name, rtype]
            done = coro.in_thread(lambda c: subprocess.run(c, capture_output=True, text=True, timeout=50), command)
            assert said in done.stdout + done.stderr, f"{name}: {done.stdout}{done.stderr}"
