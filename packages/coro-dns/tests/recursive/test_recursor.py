"""What the recursive resolver remembers, and for how long, and how it asks; with servers made of functions. Times are
moved, not waited for."""

from __future__ import annotations

import os
import time

import pytest
from dns_support import fakes, in_loop, name, record, reply, soa

import coro
from coro.dns import DNS_Error, DNS_Hard_Error, DNS_Many_Errors_Soft, DNS_Soft_Error, _wire
from coro.dns._recursive.recursor import FAILED_FOR, STALE_TTL, Recursor, key_of
from coro.dns._recursive.store import Entry, Store
from coro.dns.cache import dns_cache, domain_suffix

A, TXT = 1, 16


def cached(servers, **settings):
    return dns_cache(roots=[servers.root], port=servers.port, loopback=True, **settings)


def address(query, ttl=300):
    return reply(query, [record(_wire.to_text(query.qname), A, "192.0.2.1", ttl)])


def age(cache, text, rtype, seconds):
    """Let time pass for an entry."""
    entry = cache._recursor.entries.get(key_of(name(text), rtype))
    entry.expires -= seconds
    return entry


def test_generations() -> None:
    store: Store[Entry] = Store(100)
    entry = Entry(0, 0, ())
    keys = [name(f"www.n{i}") + b"\0\1" for i in range(1000)]
    for key in keys:
        store.put(key, entry)
        assert store.get(keys[0]) is entry  # used all the time, so it stays
        assert len(store) <= 100
    assert store.get(keys[500]) is None
    assert store.drop(keys[0]) and not store.drop(keys[0])
    assert keys[0] not in store.keys()
    store.clear()
    assert len(store) == 0


@in_loop
def test_times_to_live():
    with fakes({1: lambda query: address(query, 100)}) as servers:
        cache = cached(servers)
        assert cache.query("www", "A") == [(100, "192.0.2.1")]
        age(cache, "www", A, 60)
        assert cache.query("www", "A")[0][0] in (39, 40)
        assert cache.statistics().sent == 1
        age(cache, "www", A, 60)
        assert cache.query("www", "A") == [(100, "192.0.2.1")]
        assert cache.statistics().sent == 2 and cache.statistics().expired >= 1


@in_loop
def test_a_ttl_of_nought_is_used_once():
    with fakes({1: lambda query: address(query, 0)}) as servers:
        cache = cached(servers)
        for count in (1, 2, 3):
            assert cache.query("www", "A") == [(0, "192.0.2.1")]
            assert cache.statistics().sent == count


@in_loop
def test_a_least_and_a_greatest_ttl():
    with fakes({1: lambda query: address(query, 5)}) as servers:
        assert cached(servers, ttl_min=60).query("www", "A") == [(60, "192.0.2.1")]
    with fakes({1: lambda query: address(query, 0x7FFFFFFF)}) as servers:
        assert cached(servers).query("www", "A") == [(7 * 86400, "192.0.2.1")]
    with fakes({1: lambda query: address(query, 0x80000000)}) as servers:
        assert cached(servers).query("www", "A") == [(0, "192.0.2.1")]


@in_loop
def test_how_long_nothing_is_remembered():
    """The lesser of the SOA record's TTL and its last field (RFC 2308, section 5)."""
    with fakes({1: lambda query: reply(query, authority=[soa(".", 300, 50)], rcode=3)}) as servers:
        cache = cached(servers)
        with pytest.raises(DNS_Hard_Error):
            cache.query("www", "A")
        assert cache._recursor.entries.get(key_of(name("www"), 0)).ttl == 50
        assert cache.answer("www", "TXT").authority[0][3] in (49, 50)


@in_loop
def test_old_answers_are_better_than_none():
    """RFC 8767: while the servers fail, what was known is used, for a day."""
    broken = []
    with fakes({1: lambda query: reply(query, rcode=2) if broken else address(query, 100)}) as servers:
        cache = cached(servers)
        cache.query("www", "A")
        broken.append(True)
        age(cache, "www", A, 200)
        answer = cache.answer("www", "A")
        assert answer.stale and answer.answer[0][3] == STALE_TTL
        sent = cache.statistics().sent
        assert cache.query("www", "A") == [(STALE_TTL, "192.0.2.1")]
        assert cache.statistics().sent == sent  # the failure is remembered, too
        assert cache.statistics().served_stale == 2
        age(cache, "www", A, 90_000)
        with pytest.raises(DNS_Soft_Error):
            cache.query("www", "A")


@in_loop
def test_failures_are_remembered_for_a_moment():
    """RFC 9520."""
    with fakes({1: lambda query: reply(query, rcode=2)}) as servers:
        cache = cached(servers)
        for _ in range(5):
            with pytest.raises(DNS_Soft_Error):
                cache.query("www", "A")
        assert len(servers.asked) == 1
        failed = cache._recursor.failed
        assert failed[key_of(name("www"), A)] <= time.monotonic() + FAILED_FOR
        failed[key_of(name("www"), A)] = 0
        with pytest.raises(DNS_Soft_Error):
            cache.query("www", "A")
        assert len(servers.asked) == 2


@in_loop
def test_used_entries_are_renewed_before_their_end():
    with fakes({1: lambda query: address(query, 100)}) as servers:
        cache = cached(servers)
        cache.query("www", "A")
        age(cache, "www", A, 95)
        assert cache.query("www", "A")[0][0] <= 5
        while not cache.statistics().sent == 2 or cache._recursor.running:
            coro.yield_slice()
        assert cache.query("www", "A")[0][0] > 95
        assert cache.statistics().prefetched == 1


@in_loop
def test_equal_questions_at_a_time_are_asked_once():
    with fakes({1: address}) as servers:
        cache = cached(servers)
        threads = [coro.spawn(cache.query, "www", "A") for _ in range(20)]
        for thread in threads:
            thread.join()
        assert len(servers.asked) == 1
        assert cache.statistics().requests == 20


@in_loop
def test_servers_learn_no_more_than_they_need():
    """RFC 9156: one label more than what they serve, and the type A."""
    from dns_support import NET

    def root(query):
        return reply(
            query, authority=[record("org", 2, "ns.org")], additional=[record("ns.org", A, f"{NET}.2")], aa=False
        )

    def org(query):
        if query.qname == name("x.b.a.org"):
            return reply(query, [(query.qname, TXT, 1, 5, b"\2hi")])
        return reply(query, authority=[soa("org")])

    with fakes({1: root, 2: org}) as servers:
        assert cached(servers).query("x.b.a.org", "TXT") == [(5, [b"hi"])]
        assert servers.asked == [(1, "org", A), (2, "a.org", A), (2, "b.a.org", A), (2, "x.b.a.org", TXT)]


@in_loop
def test_a_server_without_edns():
    def server(query):
        return reply(query, rcode=1) if query.udp_size else address(query)

    with fakes({1: server}) as servers:
        cache = cached(servers)
        assert cache.query("www", "A") == [(300, "192.0.2.1")]
        assert cache.query("web", "A") == [(300, "192.0.2.1")]
        assert len(servers.asked) == 3  # it is remembered


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # workers of tests before
@in_loop
def test_a_forked_child_and_its_parent_both_go_on():
    """Who was asking in the parent asks there only: the child does not wait for him, nor for his place."""

    def server(query):
        if held:
            held.pop().wait()
        return reply(query, [record(_wire.to_text(query.qname), A, "192.0.2.1")])

    held = [coro.event()]
    bell = held[0]
    with fakes({1: server}) as servers:
        r = Recursor([servers.root], port=servers.port, most=1)
        waiting = coro.spawn(r.resolve, name("a.test"), A)
        while held:
            coro.yield_slice()
        try:
            pid = coro.fork()
        except BaseException:
            bell.set()  # or the end of the servers is waited for
            raise
        if not pid:
            status = 1
            try:
                r.roots, r.port = [("127.0.0.1", port_of_the_child(server))], 0
                if r.resolve(name("a.test"), A).answer and r.resolve(name("b.test"), A).answer:
                    status = 0
            finally:
                os._exit(status)
        bell.set()
        assert waiting.get().answer and r.resolve(name("c.test"), A).answer
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                break
            coro.sleep_relative(0.01)
        assert status == 0


def port_of_the_child(server):
    """A server of its own, since its copy of the parent's socket would take the parent's queries."""

    def serve():
        while True:
            data, address = sock.recvfrom(4096)
            sock.sendto(server(_wire.parse(data)), address)

    sock = coro.udp_sock()
    sock.bind(("127.0.0.1", 0))
    coro.spawn(serve)
    return sock.getsockname()[1]


@in_loop
def test_an_empty_cache():
    with fakes({1: address}) as servers:
        cache = cached(servers)
        cache.query("www", "A")
        assert cache.dump() == [("www", "A", cache.dump()[0][2], ["192.0.2.1"])]
        cache.empty(pinned_as_well=True)
        assert cache.dump() == [] and cache.query("localhost", "AAAA") == [(0, "::1")]
        assert "1 datagrams sent" in repr(cache)


@in_loop
def test_mistakes():
    cache = dns_cache(roots=[])
    for wrong in ("a..b", "a" * 64, "ä"):
        with pytest.raises(DNS_Hard_Error, match="response code 1"):
            cache.query(wrong, "A")
    with pytest.raises(ValueError, match="record type"):
        cache.query("www", "NONSENSE")
    with pytest.raises(ValueError, match="does not appear to be an IPv4 or IPv6 address"):
        dns_cache(roots=["localhost"])
    with pytest.raises(DNS_Soft_Error, match="no address of any server is known"):
        cache.query("www", "A")
    assert domain_suffix("org", "www.Org.") and domain_suffix("", "org") and not domain_suffix("a.org", "org")


def test_several_errors_as_one() -> None:
    soft = DNS_Soft_Error("a", "A", "192.0.2.1", "no reply")
    hard = DNS_Hard_Error("b", "MX", (3, "no such name"))
    many = DNS_Many_Errors_Soft([hard, soft])
    assert isinstance(many, DNS_Soft_Error) and isinstance(many, DNS_Error)
    assert many.qname == "a\nb" and many.error_string == "no reply\nno such name"
    assert many.dnsrcode == 3 and many.nameserver == "192.0.2.1"
    with pytest.raises(AttributeError):
        many.nothing  # noqa: B018


def test_no_loop_is_needed_to_make_one() -> None:
    assert Recursor([("192.0.2.1", 53)]).entries.size == 10_000
