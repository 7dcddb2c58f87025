"""The stub resolver against servers made of functions: what it asks, believes, keeps, and tells."""

from __future__ import annotations

import contextlib
import os
import random
import time

import pytest
from dns_support import NET, fakes, in_loop, name, record, reply, soa
from stub_support import CNAME, RA, A, address, over_tcp, resolver, silent

import coro
from coro.dns import DNS_Hard_Error, DNS_Malformed_Qname_Error, _wire
from coro.dns.stub_resolver import QueryFailed, stub_resolver


@in_loop
def test_records():
    def server(query):
        full = _wire.to_text(query.qname)
        if full == "missing.test":
            return reply(query, authority=[soa("test")], aa=False, rcode=3, flags=RA)
        data = {
            A: [record(full, A, "192.0.2.1"), record(full, A, "192.0.2.2")],
            15: [record(full, 15, b"\0\x0a" + name("mail.test"))],
            16: [record(full, 16, b"\3one\3two")],
        }
        return reply(query, data.get(query.qtype, []), aa=False, flags=RA)

    with fakes({1: server}) as servers:
        r = resolver(servers)
        assert r.query("www.test", "A") == [(300, "192.0.2.1"), (300, "192.0.2.2")]
        assert r.query("www.test.", "MX") == [(300, (10, "mail.test"))]
        assert r.txt("www.test") == [b"onetwo"]
        assert r.query("www.test", "AAAA") == []
        with pytest.raises(DNS_Hard_Error) as caught:
            r.query("missing.test")
        assert caught.value.dnsrcode == 3
        for wrong in ("a..test", "a" * 64, ".".join(["a" * 60] * 5)):
            with pytest.raises(DNS_Malformed_Qname_Error):
                r.query(wrong)
        with pytest.raises(ValueError, match="record type"):
            r.query("www.test", "NONE")
        header, questions, answers, authority, additional = r.lookup("www.test", A)
        assert (header.qr, header.rd, header.ra, header.ancount) == (1, 0, 1, 2)
        assert questions == [("www.test", A, 1)] and answers[0] == ("www.test", "A", "IN", 300, "192.0.2.1")
        assert authority == additional == []


@in_loop
def test_aliases_are_followed_within_the_answer():
    def server(query):
        return reply(
            query,
            [
                record("a.test", CNAME, "b.test", ttl=50),
                record("b.test", CNAME, "c.test"),
                record("c.test", A, "192.0.2.3"),
                record("other.test", A, "6.6.6.6"),
            ],
            aa=False,
            flags=RA,
        )

    with fakes({1: server}) as servers:
        r = resolver(servers)
        assert r.query("a.test") == [(300, "192.0.2.3")]
        answer = r.answer("a.test")
        assert answer.aliases == (name("b.test"), name("c.test")) and answer.name == name("c.test")
        assert answer.expires - answer.came == 50
        assert r.query("other.test") == [(300, "6.6.6.6")], "it was asked for, not taken from the reply above"


@in_loop
def test_cache_by_ttl_and_negative():
    def server(query):
        full = _wire.to_text(query.qname)
        if full == "none.test":
            return reply(query, authority=[soa("test", ttl=100, minimum=7)], aa=False, rcode=3, flags=RA)
        ttl = {"zero.test": 0, "short.test": 5, "long.test": 0x7FFFFFFF}[full]
        return reply(query, [record(full, A, "192.0.2.1", ttl=ttl)], aa=False, flags=RA)

    with fakes({1: server}) as servers:
        r = resolver(servers)
        for _ in range(2):
            for one in ("zero.test", "short.test", "long.test"):
                r.query(one)
            with pytest.raises(DNS_Hard_Error):
                r.query("none.test")
        assert [one for _, one, _ in servers.asked].count("zero.test") == 2
        assert len(servers.asked) == 5
        kept = {one: left for one, _, left, _ in r.dump()}
        assert 3 <= kept["short.test"] <= 5 and 5 <= kept["none.test"] <= 7 and kept["long.test"] <= 7 * 86400
        assert ("none.test", "NXDOMAIN") in [one[:2] for one in r.dump()]
        assert r.forget("test", subtree=True) == 3
        statistics = r.statistics()
        assert (statistics.hits, statistics.negative_hits, statistics.entries, statistics.bytes) == (3, 1, 0, 0)
        r.query("short.test", no_cache=True)
        r.query("short.test", no_cache=True)
        assert len(servers.asked) == 7


@in_loop
def test_the_cache_has_a_size():
    def server(query):
        return reply(query, [record(_wire.to_text(query.qname), 16, 200 * b"x")], aa=False, flags=RA)

    with fakes({1: server}) as servers:
        r = resolver(servers, cache_size=100_000)
        for i in range(300):
            r.answer(f"n{i}.test", 16)
            r.answer("used.test", 16)
            assert r.statistics().bytes <= 100_000
        assert 20 < r.statistics().entries < 100
        assert [one for _, one, _ in servers.asked].count("used.test") == 1


@in_loop
def test_identical_questions_share_one_query():
    gate = coro.event()

    def server(query):
        gate.wait()
        return address(query)

    with fakes({1: server}) as servers:
        r = resolver(servers, cache_size=0)
        with coro.group() as askers:
            threads = [askers.spawn(r.query, "a.test") for _ in range(50)]
            coro.yield_slice()
            gate.set()
        assert all(thread.get() == [(300, "192.0.2.1")] for thread in threads)
        assert len(servers.asked) == 1 and r.statistics().shared == 49
        # the first one gives up: another one asks
        gate.clear()
        with coro.group() as askers:
            first = askers.spawn(r.query, "b.test", thread_name="first")
            coro.yield_slice()
            second = askers.spawn(r.query, "b.test")
            coro.yield_slice()
            first.shutdown()
            coro.yield_slice()
            gate.set()
        assert second.get() == [(300, "192.0.2.1")]
        assert not r._flights.table


@in_loop
def test_the_next_server_is_asked():
    def refuses(query):
        return reply(query, rcode=5, aa=False, flags=RA)

    def fails(query):
        return reply(query, rcode=2, aa=False, flags=RA)

    def refers(query):
        return reply(query, authority=[record("test", 2, "ns.test")], aa=False)

    with fakes({1: refuses, 2: fails, 3: refers, 4: address}) as servers:
        r = resolver(servers)
        assert r.query("a.test") == [(300, "192.0.2.1")]
        assert [number for number, _, _ in servers.asked] == [1, 2, 3, 4]
    with fakes({1: refuses, 2: fails}) as servers:
        r = resolver(servers, attempts=1)
        with pytest.raises(QueryFailed, match="REFUSED.*SERVFAIL"):
            r.query("a.test")
        with pytest.raises(coro.NameError):
            r.resolve_ipv4("a.test")


@in_loop
def test_a_silent_server_comes_last_for_a_while():
    with fakes({1: silent, 2: address}) as servers:
        r = resolver(servers, attempt_timeout=0.3)
        for i in range(3):
            r.query(f"n{i}.test")
        assert [number for number, _, _ in servers.asked] == [1, 2, 2, 2]
        rotating = resolver(servers, rotate=True)
        for one in rotating._transports:
            one.server.failed_at = 0.0
        assert {rotating._order(rotating._settings)[0].server.text for _ in range(4)} == {
            f"{NET}.{number}:{servers.port}" for number in (1, 2)
        }


@in_loop
def test_one_deadline_for_all():
    with fakes({1: silent, 2: silent, 3: silent}) as servers:
        r = resolver(servers)
        with pytest.raises(QueryFailed):
            r.query("a.test", timeout=0.45)
        assert {number for number, _, _ in servers.asked} == {1, 2, 3}
        # the time of a server that wants TCP, and is silent there, is the same time
        with fakes({4: lambda query: reply(query, aa=False, flags=RA | 0x0200)}) as others:
            with over_tcp(others, {4: silent}), pytest.raises(QueryFailed):
                resolver(others, attempts=1).query("a.test", timeout=0.2)
        with pytest.raises(coro.TimeoutError), coro.timeout(0.05):
            r.query("b.test")
        assert r.statistics().failed == 1


@in_loop
def test_interrupted_anywhere_nothing_is_left():
    def slow(query):
        return None

    def truncated(query):
        return reply(query, aa=False, flags=RA | 0x0200)

    with fakes({1: address}) as servers:
        resolver(servers).query("a.test")  # now the loop has the descriptors of its own
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with fakes({1: slow, 2: truncated}) as servers, over_tcp(servers, {2: silent}):
        r = resolver(servers, attempt_timeout=0.02, inflight=2)
        for _ in range(10):
            threads = [coro.spawn(r.query, f"n{i}.test") for i in range(8)]
            for _ in range(random.randrange(1, 20)):
                coro.yield_slice()
            for thread in threads:
                thread.shutdown()
            for thread in threads:
                with contextlib.suppress(coro.CancelledError, QueryFailed):
                    thread.get()
        assert not r._flights.table
        r.close()
    for _ in range(20):
        coro.yield_slice()
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before


@in_loop
def test_truncated_replies_go_to_tcp_and_a_refusal_says_so():
    big = b"\xff" + 255 * b"x"

    def truncated(query):
        return reply(query, aa=False, flags=RA | 0x0200)

    def whole(query):
        full = _wire.to_text(query.qname)
        return reply(query, [record(full, 16, big + b"\1" + bytes([i])) for i in range(20)], aa=False, flags=RA)

    with fakes({1: truncated}) as servers:
        with over_tcp(servers, {1: whole}) as connections:
            r = resolver(servers)
            assert len(r.query("a.test", "TXT")) == 20
            assert len(r.query("b.test", "TXT")) == 20
            assert len(connections) == 1, "it is used again"
            assert r.statistics().truncated == 2
            r.close()
        with pytest.raises(QueryFailed, match="too large for UDP, and over TCP.*refused"):
            resolver(servers, attempts=1).query("c.test", "TXT")


@in_loop
def test_pipelining_and_a_connection_that_breaks():
    held = []

    def backwards(query):
        held.append(query)
        if len(held) < 10:
            return []
        out = [address(one, f"192.0.2.{_wire.to_text(one.qname)[1]}") for one in reversed(held)]
        held.clear()
        return out

    with fakes({1: silent}) as servers, over_tcp(servers, {1: backwards}) as connections:
        r = resolver(servers, use_tcp=True)
        for _ in range(2):
            with coro.group() as askers:
                threads = [askers.spawn(r.query, f"n{i}.test", no_cache=True) for i in range(10)]
            assert [thread.get()[0][1] for thread in threads] == [f"192.0.2.{i}" for i in range(10)]
            connections[-1].shutdown(2)
            for _ in range(10):
                coro.yield_slice()
        assert len(connections) == 2
        r.close()


@in_loop
def test_edns_and_servers_without_it():
    seen = []

    def old(query):
        seen.append((query.udp_size, dict(query.options)))
        if query.udp_size:
            return _wire.build(query.id, 0x8081, None, 0, 0)
        return address(query)

    with fakes({1: old}) as servers:
        r = resolver(servers)
        assert r.query("a.test") and r.query("b.test")
        assert [size for size, _ in seen] == [1232, 0, 0]
        assert len(seen[0][1][10]) == 8, "a cookie"


@in_loop
def test_cookies():
    """RFC 7873: the server's comes back with the next query, and a reply without it is somebody else's."""
    seen = []

    def server(query):
        cookie = dict(query.options)[10]
        seen.append(cookie)
        full = _wire.to_text(query.qname)
        forged = reply(query, [record(full, A, "6.6.6.6")], aa=False, flags=RA)
        answer = [record(full, A, "192.0.2.1")]
        right = _wire.build(
            query.id, 0x8180, query.question, query.qtype, 1, answer, udp_size=1232,
            options=[(10, cookie[:8] + b"serverside")],
        )  # fmt: skip
        wrong = _wire.build(
            query.id, 0x8180, query.question, query.qtype, 1, [record(full, A, "6.6.6.6")], udp_size=1232,
            options=[(10, b"somebody" + b"serverside")],
        )  # fmt: skip
        return [wrong, right] if len(seen) == 1 else [wrong, forged, right]

    with fakes({1: server}) as servers:
        r = resolver(servers)
        assert r.query("a.test") == r.query("b.test") == [(300, "192.0.2.1")]
        assert len(seen[0]) == 8 and seen[1] == seen[0] + b"serverside"
        assert r.statistics().forged == 3


@in_loop
def test_forged_formerr_does_not_take_the_cookie():
    """Without EDNS there is no cookie. So from a server that gives them an error without one is not believed; and
    from others it is for a quarter of an hour."""
    seen = []

    def server(query):
        seen.append(query.udp_size)
        forged = _wire.build(query.id, 0x8181, None, 0, 0)
        if with_cookies:
            options = [(10, dict(query.options)[10][:8] + b"serverside")]
            records = [record(_wire.to_text(query.qname), A, "192.0.2.1")]
            right = _wire.build(
                query.id, 0x8180, query.question, query.qtype, 1, records, udp_size=1232, options=options
            )
            return right if len(seen) == 1 else [forged, right]
        return forged if query.udp_size else address(query)

    for with_cookies in (True, False):
        seen.clear()
        with fakes({1: server}) as servers:
            r = resolver(servers)
            assert r.query("a.test") and r.query("b.test") and r.query("c.test")
            assert seen == ([1232] * 3 if with_cookies else [1232, 0, 0, 0])
            known = r._transports[0].server
            assert known.no_edns != with_cookies
            if not with_cookies:
                assert 800 < known.no_edns_until - time.monotonic() <= 900
                known.no_edns_until = time.monotonic() - 1
                assert r.query("d.test") and seen[4:] == [1232, 0]


@in_loop
def test_a_server_that_stops_giving_cookies():
    """TCP decides, once; afterwards it is one without cookies."""
    stopped = []

    def server(query):
        records = [record(_wire.to_text(query.qname), A, "192.0.2.1")]
        cookie = dict(query.options).get(10)
        options = [(10, cookie[:8] + b"serverside")] if cookie and not stopped else []
        return _wire.build(query.id, 0x8180, query.question, query.qtype, 1, records, udp_size=1232, options=options)

    with fakes({1: server}) as servers, over_tcp(servers, {1: server}):
        r = resolver(servers)
        assert r.query("a.test")
        stopped.append(True)
        for owner in ("b.test", "c.test", "d.test"):
            assert r.query(owner, timeout=1.0)
        assert servers.asked == [(1, f"{one}.test", A) for one in "abbcd"]
        r.close()


@in_loop
def test_ad_only_if_trusted():
    def server(query):
        assert bool(query.flags & 0x20) == trusted
        return reply(query, [record("a.test", A, "192.0.2.1")], aa=False, flags=RA | 0x20)

    for trusted in (False, True):
        with fakes({1: server}) as servers:
            assert resolver(servers, trust_ad=trusted).answer("a.test").authenticated == trusted


@in_loop
def test_mx_srv_ptr():
    def server(query):
        full = _wire.to_text(query.qname)
        data = {
            ("m.test", 15): [b"\0\x14" + name("b.test"), b"\0\x0a" + name("a.test")],
            ("no.test", 15): [b"\0\0\0"],
            ("_s._tcp.m.test", 33): [b"\0\2\0\0\0\x50" + name("z.test"), b"\0\1\0\1\0\x51" + name("x.test"),
                                     b"\0\1\0\1\0\x52" + name("y.test")],
            ("_no._tcp.m.test", 33): [b"\0\0\0\0\0\0\0"],
            ("1.2.0.192.in-addr.arpa", 12): [name("host.test")],
        }.get((full, query.qtype), [])  # fmt: skip
        if full.startswith("_gone"):
            return reply(query, authority=[soa("test")], aa=False, rcode=3, flags=RA)
        return reply(query, [record(full, query.qtype, one) for one in data], aa=False, flags=RA)

    with fakes({1: server}) as servers:
        r = resolver(servers)
        assert r.mx("m.test") == [(10, "a.test"), (20, "b.test")]
        assert r.mx("plain.test") == [(0, "plain.test")] and r.mx("no.test") == []
        found = r.srv("s", "m.test")
        assert {one[0] for one in found[:2]} == {"x.test", "y.test"} and found[2] == ("z.test", 80, 2, 0)
        assert r.srv("no", "m.test") == r.srv("gone", "m.test") == []
        assert r.ptr("192.0.2.1") == ["host.test"]
        with pytest.raises(coro.NameError):
            r.ptr("192.0.2.9")


def test_misuse():
    for wrong in (["name.test"], [("1.2.3", 53)], []):
        with pytest.raises(ValueError, match="name server"):
            stub_resolver(wrong)
    with pytest.raises(ValueError, match="edns_size"):
        stub_resolver(["192.0.2.1"], edns_size=100)
    with pytest.raises(ValueError, match="inflight"):
        stub_resolver(["192.0.2.1"], 0)
    assert "192.0.2.1:53" in repr(stub_resolver(["192.0.2.1"]))


@in_loop
def test_a_big_answer_takes_linear_time():
    """4000 addresses: no more work for each than for a few. Counted, not timed: one pass over the records."""

    def whole(query):
        full = _wire.to_text(query.qname)
        return reply(query, [record(full, A, f"10.0.{i >> 8}.{i & 255}") for i in range(4000)], aa=False, flags=RA)

    def truncated(query):
        return reply(query, aa=False, flags=RA | 0x0200)

    with fakes({1: truncated}) as servers, over_tcp(servers, {1: whole}):
        r = resolver(servers)
        assert len(r.query("a.test")) == 4000
        r.close()


@pytest.mark.slow
@in_loop
def test_many_lookups_with_short_limits_end():
    """Not one hangs, whatever the moment at which its time is over."""

    def server(query):
        for _ in range(random.randrange(3)):
            coro.yield_slice()
        return address(query) if random.random() < 0.7 else None

    with fakes({1: server}) as servers:
        r = resolver(servers, cache_size=0, inflight=50)
        done = failed = 0

        def worker():
            nonlocal done, failed
            for _ in range(100):
                try:
                    r.query(f"n{random.randrange(40)}.test", timeout=random.choice((0.001, 0.01)))
                    done += 1
                except QueryFailed:
                    failed += 1

        with coro.group() as workers:
            for _ in range(100):
                workers.spawn(worker)
        assert done + failed == 10_000 and done and failed
        assert not r._flights.table


@pytest.mark.slow
@in_loop
def test_opening_many_resolvers_leaves_no_descriptors():
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("descriptors are counted in /proc")
    with fakes({1: address}) as servers:
        resolver(servers).query("a.test")
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(300):
            with resolver(servers) as r:
                r.query("a.test")
        for _ in range(10_000):
            resolver(servers).close()
        assert len(os.listdir("/proc/self/fd")) == before
