"""Clients that want all of a server: connections that say nothing, look-ups that cost much, floods whose replies go to
others. The others are still served."""

from __future__ import annotations

import threading
import time

import pytest
from dns_support import fakes, in_loop, name, record, reply

import coro
from coro.dns import _clients, _prepared, _wire
from coro.dns._clients import Clients, Streams, packed
from coro.dns._prepared import RateLimit
from coro.dns.cache import dns_cache
from coro.dns.server import Server
from coro.dns.zone import Primary, Zone

ZONE = "$TTL 300\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 127.0.0.1\nh1 TXT x\nh2 TXT y\n"
KEY = bytes(range(16))


def query(text="h1.big.example", rtype=16, ident=7, options=()):
    return _wire.build(ident, 0x100, name(text), rtype, 1, udp_size=1232, options=options)


def of_zone(**settings):
    return Server(None, [("127.0.0.1", 0)], zones=[Primary(Zone.from_text(ZONE, "big.example"))], **settings)


def ask_over(sock, message):
    sock.send(len(message).to_bytes(2, "big") + message)
    return _wire.parse(sock.recv_exact(int.from_bytes(sock.recv_exact(2), "big")))


def connected(server, source=""):
    sock = coro.tcp_sock()
    if source:
        sock.bind((source, 0))
    sock.connect(server.addresses[0])
    return sock


# -- connections


@in_loop
def test_silent_connections_make_room():
    """Of one address or of many: one more is served, and so are those that say something."""
    for sources in (["127.0.0.1"], [f"127.0.9.{i}" for i in range(1, 9)]):
        with of_zone(connections=16, idle=60) as server:
            silent = [connected(server, sources[i % len(sources)]) for i in range(20)]
            late = connected(server)
            assert ask_over(late, query()).answer
            assert ask_over(late, query("h2.big.example")).answer
            said = server.statistics()
            assert said.connections <= 16 and said.evicted >= 4
            for sock in (*silent, late):
                sock.close()


@in_loop
def test_a_connection_with_an_open_question_stays():
    bell = coro.event()

    def slow(question):
        bell.wait()
        return reply(question, [record("www", 1, "192.0.2.1")])

    with fakes({1: slow}) as servers:
        cache = dns_cache(roots=[servers.root], port=servers.port, loopback=True)
        with Server(cache, [("127.0.0.1", 0)], connections=8, idle=60) as server:
            first = connected(server)
            message = query("www", 1)
            first.send(len(message).to_bytes(2, "big") + message)
            while not servers.asked:
                coro.yield_slice()
            more = [connected(server) for _ in range(20)]
            while server.statistics().evicted < 10:
                coro.yield_slice()
            bell.set()
            assert _wire.parse(first.recv_exact(int.from_bytes(first.recv_exact(2), "big"))).answer
            for sock in (first, *more):
                sock.close()


class FakeSock:
    closed = False

    def close(self):
        self.closed = True


def test_whose_connection_goes():
    streams = Streams(8, 10.0)
    of_many = [streams.enter(FakeSock(), "192.0.2.1") for _ in range(4)]
    others = [streams.enter(FakeSock(), f"198.51.100.{i}") for i in range(4)]
    assert len(streams) == 8 and all(of_many) and all(others)
    for stream in (of_many[0], others[0]):
        streams.begin(stream)
    streams.begin(of_many[1])
    streams.end(of_many[1])  # silent again, for the shortest time
    assert streams.enter(FakeSock(), "203.0.113.1") is not None
    assert [one.sock.closed for one in of_many] == [False, False, True, False]
    assert streams.enter(FakeSock(), "192.0.2.1") is not None, "which takes one of its own"
    assert [one.sock.closed for one in of_many] == [False, False, True, True]
    assert not any(one.sock.closed for one in others)
    assert len(streams) == 8 == sum(map(len, streams.of.values()))
    for stream in of_many[2:]:
        streams.leave(stream)  # as its thread does afterwards
    assert len(streams) == 8
    everybody = [stream for some in streams.of.values() for stream in some]
    for stream in everybody:
        streams.begin(stream)
    assert streams.enter(FakeSock(), "203.0.113.9") is None, "all of them work"
    for stream in everybody:
        streams.end(stream)
        streams.leave(stream)
    assert len(streams) == 0 and not streams.of


def test_idle_times_shrink_as_the_places_fill():
    streams = Streams(100, 10.0)
    waits = []
    for i in range(100):
        waits.append(streams.patience())
        streams.enter(FakeSock(), f"198.51.100.{i}")
    assert waits[0] == waits[49] == 10.0
    assert waits == sorted(waits, reverse=True) and waits[75] == pytest.approx(5.0)
    assert streams.patience() == 0.2
    assert Streams(0, 0.05).patience() == 0.05


def test_a_client_of_ipv6_has_a_network():
    streams = Streams(16, 10.0)
    for i in range(30):
        streams.enter(FakeSock(), f"2001:db8::{i:x}")
    assert len(streams) == 8 and len(streams.of) == 1
    streams.enter(FakeSock(), "2001:db8:0:100::1")
    assert len(streams.of) == 2
    assert packed("::ffff:192.0.2.1") == bytes((192, 0, 2, 1)) and packed("fe80::1%lo")[0] == 0xFE


# -- look-ups


@in_loop
def test_names_without_end_at_a_silent_server():
    """Their look-ups last long, and take no places from which others are asked: of those that the cache has, one client
    gets half."""

    def server(question):
        return None if question.qname.endswith(name("silent")) else reply(question, [record("www", 1, "192.0.2.1")])

    with fakes({1: server}) as servers:
        cache = dns_cache(roots=[servers.root], port=servers.port, loopback=True, max_outstanding=16)
        assert cache.max_outstanding == 16
        with Server(cache, [("127.0.0.1", 0)], most=2000, limit=2) as own, coro.udp_sock() as flood:
            flood.bind(("127.0.9.1", 0))
            for i in range(200):
                flood.sendto(query(f"n{i}.silent", 1), own.addresses[0])
            while own.statistics().misses < 200:
                coro.yield_slice()
            assert own.statistics().open == 8 and own.statistics().dropped == 192
            with coro.udp_sock() as other:
                other.bind(("127.0.8.1", 0))
                other.connect(own.addresses[0])
                other.send(query("www", 1))
                assert _wire.parse(other.recv(4096)).answer
                assert own.statistics().open == 8, "while all of them still wait"


def test_shares_of_look_ups():
    clients = Clients(16, None)
    one, other = packed("192.0.2.1"), packed("198.51.100.1")
    assert [clients.enter(one) for _ in range(10)] == [True] * 8 + [False] * 2, "half of the places are for anybody"
    assert not clients.enter(packed("192.0.2.200")), "of the same network"
    assert [clients.enter(other) for _ in range(6)] == [True] * 4 + [False] * 2
    for _ in range(8):
        clients.leave(one)
    for _ in range(4):
        clients.leave(other)
    assert not clients.open and not clients.of


def test_a_network_that_has_caused_much_work_waits():
    clients = Clients(16, 1.0)
    one, other = packed("192.0.2.1"), packed("198.51.100.1")
    clients.charge(one, 100)
    assert [clients.enter(one) for _ in range(5)] == [True] * 4 + [False], "only while there is much to do"
    assert clients.enter(other)


@in_loop
def test_what_a_question_costs_is_charged():
    """Also if there is no answer: datagrams, and signatures checked."""
    charged = []
    with fakes({1: lambda question: reply(question, rcode=2)}) as servers:
        cache = dns_cache(roots=[servers.root], port=servers.port, loopback=True)
        with pytest.raises(coro.dns.DNS_Soft_Error):
            cache.answer("a.b.c.d", "A", charge=charged.append)
        assert charged == [len(servers.asked)] and charged[0] >= 2
    with fakes({1: lambda question: reply(question, [record("www", 1, "192.0.2.1")])}) as servers:
        cache = dns_cache(roots=[servers.root], port=servers.port, loopback=True)
        for cost in (1, 0):
            cache.answer("www", "A", charge=charged.append)
            assert charged.pop() == cost


@in_loop
def test_a_flood_of_costly_questions_leaves_room_for_others():
    """All of one network's questions hang; another network's are answered."""

    def server(question):
        if question.qname.endswith(name("evil")):
            return None
        return reply(question, [record(_wire.to_text(question.qname), 1, "192.0.2.1")])

    with fakes({1: server}) as servers:
        cache = dns_cache(roots=[servers.root], port=servers.port, loopback=True)
        with Server(cache, [("127.0.0.1", 0)], most=16, limit=60) as own:
            at = own.addresses[0]
            with coro.udp_sock() as evil, coro.udp_sock() as good:
                evil.bind(("127.0.1.1", 0))
                good.bind(("127.0.2.1", 0))
                for i in range(100):
                    evil.sendto(query(f"n{i}.evil", 1), at)
                while own.statistics().dropped < 92:
                    coro.yield_slice()
                assert own.statistics().open == 8
                good.sendto(query("www.good", 1), at)
                assert _wire.parse(good.recv(4096)).answer


# -- responses


def test_a_rate_for_each_network():
    limit = RateLimit(0.001, 5.0, KEY)  # the next one is for free after a quarter of an hour
    one = packed("192.0.2.1")
    assert [limit.response(one) for _ in range(5)] == [0] * 5
    assert limit.response(one) == 0
    said = [limit.response(packed(f"192.0.2.{i}")) for i in range(2, 22)]
    assert said == [2, 1] * 10 and limit.truncated == limit.dropped == 10
    assert limit.response(packed("192.0.3.1")) == 0
    six = packed("2001:db8::1")
    for _ in range(30):
        limit.response(six)
    assert limit.response(packed("2001:db8:0:ff::1")) and not limit.response(packed("2001:db8:0:100::1"))
    assert limit.response(packed("::ffff:192.0.2.7")), "the network of an IPv4 address"
    for wrong in ((0, 1, KEY), (1, 0, KEY), (float("nan"), 1, KEY), (1, 1, b"short")):
        with pytest.raises(ValueError, match="expected a rate"):
            RateLimit(*wrong)
    for method in (limit.response, limit.is_spent):
        with pytest.raises(ValueError, match="4 or 16 bytes"):
            method(b"abc")


def test_work_is_paid_for_as_time_passes(monkeypatch):
    limit = RateLimit(1000.0, 10.0, KEY)
    one = packed("192.0.2.1")
    limit.charge(one, 9)
    assert not limit.is_spent(one)
    limit.charge(one, 41)
    assert limit.is_spent(one)
    until = time.monotonic() + 60
    while limit.is_spent(one) and time.monotonic() < until:
        threading.Event().wait(0.01)
    assert not limit.is_spent(one)


def test_truncated_replies():
    question = query("www.example", 1)
    full = _wire.build(7, 0x8400, name("www.example"), 1, 1, [record("www.example", 1, "192.0.2.1")], udp_size=1232)
    short = _wire.parse(_prepared.truncated(full))
    assert short.truncated and not short.answer and short.qname == _wire.parse(question).qname and short.id == 7
    for damaged in (b"", full[:5], full[:12], full[:20]):
        assert len(_prepared.truncated(damaged)) == len(damaged)


@pytest.mark.parametrize("kept", [True, False], ids=["prepared", "made"])
@in_loop
def test_a_flood_from_one_network_is_answered_at_its_rate(kept):
    """Some are dropped and some truncated; over TCP, with a cookie and from elsewhere there are answers."""
    with of_zone(max_responses_per_second=5) as server, coro.udp_sock() as sock, coro.udp_sock() as other:
        sock.bind(("127.0.1.1", 0))
        other.bind(("127.0.2.1", 0))
        at = server.addresses[0]
        for i in range(60):
            sock.sendto(query("h1.big.example" if kept else f"n{i}.big.example", ident=i), at)
        while True:
            said = server.statistics()
            if said.hits + said.misses >= 60:
                break
            coro.yield_slice()
        assert said.rate_dropped + said.rate_truncated >= 40 and abs(said.rate_dropped - said.rate_truncated) <= 1
        replies = [_wire.parse(sock.recv(4096)) for _ in range(60 - said.rate_dropped)]
        assert sum(one.truncated for one in replies) == said.rate_truncated
        other.sendto(query(), at)
        assert _wire.parse(other.recv(4096)).answer
        with connected(server, "127.0.1.1") as stream:
            for _ in range(20):
                assert ask_over(stream, query()).answer
            cookie = next(data for number, data in ask_over(stream, query(options=[(10, bytes(8))])).options)
        for _ in range(20):
            sock.sendto(query(options=[(10, cookie)]), at)
            assert _wire.parse(sock.recv(4096)).answer


def test_rates_that_are_none():
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="expected a rate"):
            of_zone(max_responses_per_second=wrong)
        with pytest.raises(ValueError, match="expected a rate"):
            of_zone(max_client_work=wrong)
    assert of_zone(max_client_work=None)._clients.work is None
    assert _clients.SHARE == 4
