"""Our answers on the tree of dns_tree.py are unbound's: response code and all records, for some 500 questions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import dns.rdata
import dns.rdatatype
import pytest
from dns_questions import questions
from dns_support import in_loop
from dns_tree import Tree, running_tree

import coro
from coro.dns import DNS_Hard_Error, DNS_Soft_Error
from coro.dns.cache import dns_cache, resolver
from coro.dns.server import Server
from coro.dns.stub_resolver import QueryFailed, stub_resolver

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tree() -> Iterator[Tree]:
    with running_tree() as running:
        yield running


def ask(where: tuple[str, int], name: str, rtype: str) -> dns.message.Message:
    """The answer of a server, over TCP if it does not fit."""
    query = dns.message.make_query(name, rtype, use_edns=0, payload=1232)
    wire = query.to_wire()
    with coro.udp_sock() as sock, coro.timeout(55):
        sock.connect(where)
        sock.send(wire)
        answer = dns.message.from_wire(sock.recv(65535))
    assert query.is_response(answer)
    if answer.flags & dns.flags.TC:
        with coro.tcp_sock() as sock, coro.timeout(55):
            sock.connect(where)
            sock.send(len(wire).to_bytes(2, "big") + wire)
            answer = dns.message.from_wire(sock.recv_exact(int.from_bytes(sock.recv_exact(2), "big")))
    return answer


def content(message: dns.message.Message) -> tuple[str, list[tuple[str, str, str]]]:
    """What has to be equal. (The records beside SERVFAIL mean nothing.)"""
    code = dns.rcode.to_text(message.rcode())
    if code == "SERVFAIL":
        return code, []
    return code, sorted(
        (str(s.name).lower(), dns.rdatatype.to_text(s.rdtype), r.to_text().lower()) for s in message.answer for r in s
    )


def data(cache: dns_cache, name: str, rtype: str) -> list[Any]:
    """The records without their TTLs."""
    return [value for _, value in cache.query(name, rtype)]


@in_loop
def test_each_answer_is_unbounds(tree: Tree) -> None:
    differ = []
    assert len(questions()) >= 300
    with Server(dns_cache(roots=[tree.root], loopback=True), [(f"{tree.net}.101", 0)]) as server:
        for name, rtype in questions():
            ours, right = ask(server.addresses[0], name, rtype), ask((tree.unbound, 53), name, rtype)
            if content(ours) != content(right):
                differ.append((name, rtype, content(ours), content(right)))
            again = ask(server.addresses[0], name.swapcase(), rtype)  # from prepared bytes
            if content(again) != content(right):
                differ.append((name, rtype, content(again), "the second time"))
        assert server.statistics().hits > 300
    assert not differ


@in_loop
def test_the_stub_resolver_understands_unbound(tree: Tree) -> None:
    """The records that another library finds in the same reply: through aliases, over TCP where it is long."""
    stub = stub_resolver([(tree.unbound, 53)], hosts="/nonexistent", attempts=1)
    differ = []
    for name, rtype in questions():
        right = ask((tree.unbound, 53), name, rtype)
        code = dns.rcode.to_text(right.rcode())
        wanted = sorted(
            r.to_digestable() for s in right.answer if s.rdtype == dns.rdatatype.from_text(rtype) for r in s
        )  # fmt: skip
        try:
            answer = stub.answer(name, rtype)
        except QueryFailed:
            found = "SERVFAIL", []
        else:
            # names within the data in lower case, as the other library has them for comparing
            found = ("NXDOMAIN" if answer.rcode else "NOERROR"), sorted(
                dns.rdata.from_wire("IN", rtype, data, 0, len(data)).to_digestable() for _, data in answer.left()
            )  # fmt: skip
        if found != (code, wanted if code != "SERVFAIL" else []):
            differ.append((name, rtype, found, code, wanted))
    assert stub.statistics().truncated > 0
    assert not differ
    stub.close()


@in_loop
def test_servers_that_are_not_there(tree: Tree) -> None:
    cache = dns_cache(roots=[tree.root], loopback=True)
    assert data(cache, "www.halfdead.test", "A") == ["192.0.2.50"]
    with pytest.raises(DNS_Soft_Error, match="all servers of dead.test failed"):
        cache.query("www.dead.test", "A")
    sent = cache.statistics().sent
    with pytest.raises(DNS_Soft_Error, match="a moment ago"):
        cache.query("www.dead.test", "A")
    assert cache.statistics().sent == sent


@in_loop
def test_values(tree: Tree) -> None:
    cache = dns_cache(roots=[tree.root], loopback=True)
    ttl = cache.query("www.example.test", "A")[0][0]
    assert 3500 < ttl <= 3600
    assert sorted(data(cache, "alias.example.test.", "A")) == ["192.0.2.10", "192.0.2.11"]
    assert data(cache, "www.example.test", "AAAA") == ["2001:db8::10"]
    assert sorted(data(cache, "example.test", "MX")) == [(10, "mail.example.test"), (20, "mail.example.org")]
    assert data(cache, "example.test", "TXT") == [[b"hello", b"world"]]
    assert data(cache, "_sip._tcp.example.test", "SRV") == [(1, 2, 5060, "www.example.test")]
    assert data(cache, "host.example.test", "HINFO") == [(b"vax", b"vms")]
    assert data(cache, "example.org", "SOA")[0][:3] == ("ns.example.org", "hostmaster.example.org", 1)
    assert len(b"".join(cache.query("big.example.test", "TXT")[0][1])) == 20 * 203  # over TCP
    assert len(cache.query("many.example.test", "A")) == 199
    assert cache.query("www.example.test", "MX") == []
    with pytest.raises(DNS_Hard_Error) as raised:
        cache.query("missing.example.test", "A")
    assert raised.value.dnsrcode == 3
    sent = cache.statistics().sent
    assert cache.query("www.example.test", "MX") == []
    with pytest.raises(DNS_Hard_Error):
        cache.query("below.missing.example.test", "TXT")  # nothing is below what does not exist (RFC 8020)
    assert cache.statistics().sent == sent
    assert ("missing.example.test", "NXDOMAIN") in [line[:2] for line in cache.dump()]
    assert cache.forget("example.test", subtree=True) > 5
    assert cache.query("www.example.test", "MX") == []
    assert cache.statistics().sent > sent


@in_loop
def test_a_forwarder(tree: Tree) -> None:
    cache = dns_cache(roots=[], forward={"": [(tree.unbound, 53)]}, loopback=True)
    assert data(cache, "outside.example.test", "A") == ["198.51.100.10"]
    assert cache.statistics().sent == 1
    with pytest.raises(DNS_Hard_Error):
        cache.query("x.nosuchtld", "A")


@in_loop
def test_sockets_use_it(tree: Tree) -> None:
    names = resolver(dns_cache(roots=[tree.root], loopback=True))
    assert names.resolve_ipv4("mail.example.org") == "198.51.100.20"
    assert sorted(names.resolve_all("www.example.test", coro.AF.INET)) == ["192.0.2.10", "192.0.2.11"]
    assert names.resolve_ipv6("localhost") == "::1"
    assert names.resolve_ipv4("192.0.2.1") == "192.0.2.1"
    with pytest.raises(coro.NameError, match="no IPv4 address"):
        names.resolve_ipv4("six.example.test")
    before = coro.set_resolver(names)
    try:
        with coro.udp_sock() as sock:
            sock.connect(("ns.example.test", 53))
            assert sock.getpeername() == (f"{tree.net}.3", 53)
    finally:
        coro.set_resolver(before)
