"""A server that has zones, asked over sockets and by the programs of others."""

from __future__ import annotations

import shutil

import dns.edns
import dns.flags
import dns.message
import dns.rcode
import pytest
from dns_support import fakes, in_loop
from real_programs import HOST, find_program
from server_support import answers, run
from zone_servers import plain

import coro
from coro.dns import _wire
from coro.dns.cache import dns_cache
from coro.dns.server import Server
from coro.dns.tsig import Key
from coro.dns.zone import Primary, Zone


class served:
    """A server with some zones."""

    def __init__(self, *zones, **settings):
        self.server = Server(zones=zones, addresses=[(HOST, 0)], **settings)

    def __enter__(self):
        self.server.start()
        self.port = self.server.addresses[0][1]
        return self

    def __exit__(self, *error):
        self.server.stop()

    def raw(self, data):
        with coro.udp_sock() as sock, coro.timeout(30):
            sock.connect((HOST, self.port))
            sock.send(data)
            return sock.recv(65535)

    def stream(self, data):
        with coro.tcp_sock() as sock, coro.timeout(30):
            sock.connect((HOST, self.port))
            sock.send(len(data).to_bytes(2, "big") + data)
            return sock.recv_exact(int.from_bytes(sock.recv_exact(2), "big"))

    def ask(self, name, rtype="A", tcp=False, flags=0, **settings):
        query = dns.message.make_query(name, rtype, flags=flags, **settings)
        reply = dns.message.from_wire((self.stream if tcp else self.raw)(query.to_wire()))
        assert query.is_response(reply)
        return reply


def zone(text="", origin="example.test"):
    return Zone.from_text(f"$TTL 300\n@ SOA ns admin 1 3600 900 86400 300\n@ NS ns\nns A 192.0.2.1\n{text}", origin)


@in_loop
def test_answers_and_their_flags():
    with served(zone("www A 192.0.2.2\n")) as s:
        for tcp in (False, True):
            for _ in range(2):  # found, and prepared
                for flags in (0, dns.flags.RD):
                    reply = s.ask("wWw.example.test", tcp=tcp, flags=flags)
                    assert reply.flags == dns.flags.QR | dns.flags.AA | flags
                    assert [str(one) for one in reply.answer[0]] == ["192.0.2.2"] and reply.answer[0].ttl == 300
                    assert str(reply.question[0].name) == "wWw.example.test."
        assert s.ask("no.example.test").rcode() == dns.rcode.NXDOMAIN
        assert s.ask("www.example.test", use_edns=0).edns == 0
        assert s.ask("www.example.test", use_edns=1).rcode() == dns.rcode.BADVERS
        reply = s.ask("www.elsewhere.test", use_edns=0)
        assert reply.rcode() == dns.rcode.REFUSED and reply.options[0].code == 20
        assert s.ask("www.example.test", rdclass="CH").rcode() == dns.rcode.REFUSED
        assert s.ask("www.example.test", "MAILA").rcode() == dns.rcode.REFUSED
        assert s.server.statistics().hits == 8 and s.server.statistics().zone_answers == 2


@in_loop
def test_truncation():
    """A reply that is too long has TC; over TCP all of it comes. RFC 9471: so has a delegation whose glue does not
    fit."""
    glue = "".join(f"sub NS ns{i}.sub\nns{i}.sub A 192.0.2.{i}\nns{i}.sub AAAA 2001:db8::{i}\n" for i in range(13))
    far = "".join(f"far NS a-rather-long-name-of-a-server-{i}\na-rather-long-name-of-a-server-{i} A 192.0.2.{i}\n"
                  for i in range(13))  # fmt: skip
    with served(zone("".join(f"many A 192.0.2.{i}\n" for i in range(100)) + glue + far)) as s:
        for _ in range(2):
            reply = s.ask("many.example.test")
            assert reply.flags & dns.flags.TC and len(reply.to_wire()) <= 512
            assert not s.ask("many.example.test", tcp=True).flags & dns.flags.TC
            assert len(s.ask("many.example.test", tcp=True).answer[0]) == 100
            assert s.ask("x.sub.example.test").flags & dns.flags.TC
            assert not s.ask("x.sub.example.test", use_edns=0, payload=1232).flags & dns.flags.TC
            # these servers are not below the delegation, so their addresses can be asked for
            reply = s.ask("x.far.example.test", use_edns=0, payload=800)
            assert not reply.flags & dns.flags.TC and len(reply.authority[0]) == 13


@in_loop
def test_programs():
    with served(Zone.from_text(plain(), "example.test")) as s:
        port = str(s.port)
        for more in ([], ["+tcp"], ["+noedns"], ["+dnssec"], ["+cookie"]):
            out = run("dig", "bind9-dnsutils", f"@{HOST}", "-p", port, "alias.example.test", *more)
            assert "status: NOERROR" in out and "192.0.2.10" in out and " aa " in out.replace(";", " ")
            out = run("kdig", "knot-dnsutils", f"@{HOST}", "-p", port, "many.example.test", *more)
            assert out.count("IN") > 30
        assert "192.0.2.77" in run("drill", "ldnsutils", "-p", port, "a.b.c.d.e.f.example.test", f"@{HOST}")
        out = run("dig", "bind9-dnsutils", f"@{HOST}", "-p", port, "example.test", "AXFR")
        assert "Transfer failed" in out  # nobody may


@in_loop
def test_changes_show_at_once():
    first = zone("www A 192.0.2.2\n")
    with served(first) as s:
        for _ in range(3):
            assert "192.0.2.2" in str(s.ask("www.example.test"))
        with first.edit() as edit:
            edit.remove("www")
            edit.add("other", "A", "192.0.2.3", 60)
        assert s.ask("www.example.test").rcode() == dns.rcode.NXDOMAIN
        assert "192.0.2.3" in str(s.ask("other.example.test"))


@in_loop
def test_the_longest_zone_answers():
    """Below a zone of ours there may be another one; only the key records of its delegation are those of the upper
    zone."""
    parent = zone(f"sub NS ns.sub\nns.sub A 192.0.2.9\nsub DS 1 13 2 {'ab' * 32}\n")
    with served(parent, zone("www A 192.0.2.5\n", "sub.example.test")) as s:
        reply = s.ask("www.sub.example.test")
        assert reply.flags & dns.flags.AA and "192.0.2.5" in str(reply)
        reply = s.ask("sub.example.test", "DS")
        assert reply.flags & dns.flags.AA and " DS 1 13 2" in str(reply)
        assert s.ask("xsub.example.test").rcode() == dns.rcode.NXDOMAIN


@in_loop
def test_the_root_zone():
    root = Zone.from_text(". 5 SOA ns. admin. 1 2 3 4 5\n. 5 NS ns.\nns. 5 A 192.0.2.1\ntest. 5 NS ns.test.\n", ".")
    with served(root) as s:
        assert "192.0.2.1" in str(s.ask("ns."))
        assert s.ask("x.test.").authority[0].rdtype == 2
        assert s.ask(".", "SOA").answer
        assert s.ask("nothing.").rcode() == dns.rcode.NXDOMAIN


@in_loop
def test_who_may_ask():
    """Everybody may ask about zones, unless they say who; `allow` is about the cache."""
    key = Key.generate("ask.test")
    secret = Primary(zone("www A 192.0.2.2\n", "secret.test"), ask=[key])
    with served(zone("www A 192.0.2.2\n"), secret, allow=[]) as s:
        assert s.ask("www.example.test").rcode() == 0
        for _ in range(2):
            assert s.ask("www.secret.test").rcode() == dns.rcode.REFUSED
        query = dns.message.make_query("www.secret.test", "A")
        query.use_tsig(_keyring(key))
        reply = dns.message.from_wire(s.raw(query.to_wire()), keyring=_keyring(key), request_mac=query.mac)
        assert reply.answer and reply.had_tsig
        assert s.ask("www.secret.test").rcode() == dns.rcode.REFUSED


def _keyring(key):
    import dns.name
    import dns.tsig

    name = dns.name.from_text(key.name)
    return {name: dns.tsig.Key(name, key._secret, key.algorithm + ".")}


@in_loop
def test_zones_beside_a_cache():
    """Names of our zones are answered from them, all others by the cache; an alias that leads out of our zones is
    followed for those who may ask the cache."""
    own = zone("www A 192.0.2.77\nout CNAME www.example.\nnone CNAME no.example.\nfails CNAME bad.example.\n")
    with fakes({1: answers}) as root:
        cache = dns_cache(roots=[root.root], port=root.port, loopback=True)
        with served(own, cache=cache) as s:
            for _ in range(3):
                reply = s.ask("www.example.test", flags=dns.flags.RD)
                assert reply.flags & dns.flags.AA and reply.flags & dns.flags.RA and "192.0.2.77" in str(reply)
                reply = s.ask("www.other", flags=dns.flags.RD)
                assert not reply.flags & dns.flags.AA and "192.0.2.1" in str(reply)
                reply = s.ask("out.example.test", flags=dns.flags.RD)
                assert "CNAME www.example." in str(reply) and "A 192.0.2.1" in str(reply)
                assert s.ask("none.example.test", flags=dns.flags.RD).rcode() == dns.rcode.NXDOMAIN
                assert s.ask("fails.example.test", flags=dns.flags.RD).rcode() == dns.rcode.SERVFAIL
                reply = s.ask("out.example.test")  # without RD
                assert len(reply.answer) == 1 and reply.rcode() == 0
                assert s.ask("www.other").rcode() == dns.rcode.REFUSED
        with served(own, cache=cache, allow=["192.0.2.0/24"]) as s:
            assert len(s.ask("out.example.test", flags=dns.flags.RD).answer) == 1
            assert s.ask("www.other", flags=dns.flags.RD).rcode() == dns.rcode.REFUSED


@in_loop
def test_cookies_for_zones():
    """With `require_cookies` nobody gets an answer over UDP without one, and none larger than the question."""
    with served(zone("www A 192.0.2.2\n"), require_cookies=True, allow=[]) as s:
        for _ in range(2):
            reply = s.ask("www.example.test")
            assert reply.flags & dns.flags.TC and not reply.answer
            assert s.ask("www.example.test", tcp=True).answer
        cookie = dns.edns.GenericOption(10, b"12345678")
        reply = s.ask("www.example.test", use_edns=0, options=[cookie])
        assert reply.rcode() == 23 and not reply.answer
        given = dns.edns.GenericOption(10, reply.options[0].to_wire())
        assert s.ask("www.example.test", use_edns=0, options=[given]).answer


def test_mistakes():
    with pytest.raises(ValueError, match="expected a cache or zones"):
        Server()
    with pytest.raises(ValueError, match=r"the zone example\.test is there twice"):
        Server(zones=[zone(), zone()])
    with pytest.raises(TypeError, match="updates are allowed to keys only"):
        Primary(zone(), update=["127.0.0.1"])
    with pytest.raises(ValueError, match=r"two keys have the name key\.test"):
        Server(zones=[Primary(zone(), transfer=[Key.generate("key.test"), Key.generate("key.test")])])


@in_loop
def test_other_messages():
    """What is no question is refused, and nothing is answered twice."""
    with served(zone()) as s:
        name = _wire.from_text("example.test")
        for opcode, code in ((1, 4), (2, 4), (3, 4), (4, 5), (5, 5), (6, 4)):
            reply = _wire.parse(s.raw(_wire.build(7, opcode << 11, name, 6, 1)))
            assert (reply.rcode, reply.opcode, reply.id) == (code, opcode, 7), opcode
        assert _wire.parse(s.raw(_wire.build(7, 0, None, 0, 0))).rcode == 1
        other = _wire.from_text("elsewhere.test")
        for opcode in (4, 5):
            assert _wire.parse(s.raw(_wire.build(7, opcode << 11, other, 6, 1))).rcode == 9
            assert _wire.parse(s.raw(_wire.build(7, opcode << 11, name, 1, 1))).rcode == 1
        assert s.server.respond(_wire.build(7, 0x8000, name, 6, 1), HOST) is None


@pytest.mark.slow
@in_loop
def test_dnsperf(tmp_path):
    """A thousand names at full speed: every answer comes, and nearly all are prepared."""
    find_program("dnsperf", "dnsperf")
    hosts = "".join(f"n{i} A 192.0.2.{i % 250}\n" for i in range(1000))
    (tmp_path / "names").write_text("".join(f"n{i}.example.test A\n" for i in range(1000)))
    with served(zone(hosts)) as s:
        out = run("dnsperf", "dnsperf", "-s", HOST, "-p", str(s.port), "-d", str(tmp_path / "names"), "-n", "20", "-q",
                  "50")  # fmt: skip
        assert "Queries completed:    20000" in out and "NOERROR 20000" in out
        assert s.server.statistics().hits >= 19000
    assert shutil.which("dnsperf")
