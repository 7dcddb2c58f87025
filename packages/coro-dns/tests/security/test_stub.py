"""Hostile servers and forgers against the stub resolver: each test is named after what is tried."""

from __future__ import annotations

import pytest
from dns_support import fakes, in_loop, name, record, reply
from stub_support import CNAME, RA, A, address, over_tcp, resolver, silent

import coro
from coro.dns import _wire
from coro.dns._stub import engine
from coro.dns.stub_resolver import QueryFailed

RIGHT = [(300, "192.0.2.1")]


def forged(query, **settings):
    return reply(query, [record(_wire.to_text(query.qname), A, "6.6.6.6")], aa=False, flags=RA, **settings)


@in_loop
def test_spoofed_ids_wrong_questions_and_letters():
    """None of them is taken, and none ends the wait (TuDoor, CVE-2023-29483)."""

    def server(query):
        other = _wire.build(query.id, 0x8180, name("other.test"), A, 1, [record("other.test", A, "6.6.6.6")])
        another_type = _wire.build(query.id, 0x8180, query.question, 28, 1)
        swapped = query.question.swapcase()
        letters = _wire.build(query.id, 0x8180, swapped, A, 1, [record("a.test", A, "6.6.6.6")])
        wrong_id = forged(query, ident=query.id ^ 1)
        no_reply = _wire.build(query.id, 0x0100, query.question, A, 1)
        notify = _wire.build(query.id, 0xA180, query.question, A, 1)
        garbage = forged(query)[:-3]
        bomb = forged(query)[:12] + b"\xc0\x0c" + forged(query)[12:]
        return [
            b"", b"\0", other, another_type, letters, wrong_id, no_reply, notify, garbage, bomb, address(query)
        ]  # fmt: skip

    with fakes({1: server}) as servers:
        r = resolver(servers)
        assert r.query("a.test") == RIGHT
        assert r.statistics().forged == 10
        assert r.statistics().sent == 1


@in_loop
def test_forged_packets_beside_a_truncated_reply():
    """A correction against forging must not swallow the reply that says "ask over TCP"."""

    def server(query):
        return [forged(query, ident=query.id ^ 1), forged(query)[:-1], reply(query, aa=False, flags=RA | 0x0200)]

    def cut(query):  # truncated in the middle of a record, as some servers do it
        whole = bytearray(address(query))
        whole[2] |= 2
        return [bytes(whole[:-2])]

    for kind in (server, cut):
        with fakes({1: kind}) as servers, over_tcp(servers, {1: address}):
            r = resolver(servers)
            assert r.query("a.test") == RIGHT
            assert r.statistics().truncated == 1
            r.close()


@in_loop
def test_truncated_over_tcp_again_does_not_loop():
    def truncated(query):
        return reply(query, aa=False, flags=RA | 0x0200)

    with fakes({1: truncated}) as servers, over_tcp(servers, {1: truncated}):
        r = resolver(servers, attempts=2, attempt_timeout=0.1)
        with pytest.raises(QueryFailed, match="over TCP: no reply"):
            r.query("a.test", timeout=1)
        assert len(servers.asked) <= 8
        r.close()


@in_loop
def test_ids_ports_and_letters_are_different_each_time():
    seen = []

    def server(query):
        seen.append((query.id, query.question))
        return address(query)

    with fakes({1: server}) as servers:
        r = resolver(servers, cache_size=0)
        for _ in range(60):
            r.query("www.a-long-name.example")
        assert len({ident for ident, _ in seen}) >= 57
        assert len(set(servers.ports)) >= 50
        assert len({question for _, question in seen}) >= 50


@in_loop
def test_a_server_that_loses_the_letters_decides_over_tcp():
    """Over UDP anybody could have sent it; over TCP it is the server, which is remembered."""

    def lower(query):
        return _wire.build(query.id, 0x8180, query.qname, A, 1, [record(_wire.to_text(query.qname), A, "192.0.2.1")])

    with fakes({1: lower}) as servers, over_tcp(servers, {1: lower}) as connections:
        r = resolver(servers, attempt_timeout=0.3)
        assert r.query("www.a-long-name.example") == RIGHT
        assert r.query("www.other-long-name.example") == RIGHT
        assert len(connections) == 1 and [kind for _, _, kind in servers.asked].count(A) == 3
        r.close()


@in_loop
def test_chains_of_aliases():
    """Long ones and circles cost one reply, and are refused."""

    def long(query):
        links = [record(f"n{i}.test", CNAME, f"n{i + 1}.test") for i in range(100)]
        return reply(query, [*links, record("n100.test", A, "6.6.6.6")], aa=False, flags=RA)

    def circle(query):
        return reply(
            query, [record("n0.test", CNAME, "b.test"), record("b.test", CNAME, "n0.test")], aa=False, flags=RA
        )

    for server in (long, circle):
        with fakes({1: server}) as servers:
            r = resolver(servers, attempts=1)
            with pytest.raises(QueryFailed, match="aliases"):
                r.query("n0.test")
            assert len(servers.asked) == 1


@in_loop
def test_poisoned_additional_and_unasked_records():
    def server(query):
        full = _wire.to_text(query.qname)
        bank = record("bank.test", A, "6.6.6.6")
        if full == "bank.test":
            return address(query)
        return reply(
            query, [record(full, A, "192.0.2.1"), bank], [record("test", 2, "ns.evil")], [bank], aa=False, flags=RA
        )

    with fakes({1: server}) as servers:
        r = resolver(servers)
        assert r.query("a.test") == RIGHT
        assert r.query("bank.test") == RIGHT
        assert len(servers.asked) == 2


@in_loop
def test_slow_tcp():
    """A byte now and then does not prolong the deadline."""

    def truncated(query):
        return reply(query, aa=False, flags=RA | 0x0200)

    with fakes({1: truncated}) as servers:
        listener = coro.tcp_sock()
        listener.set_reuse_addr()
        listener.bind(servers.socks[0].getsockname())
        listener.listen()

        def drip():
            conn, _ = listener.accept()
            with conn:
                try:
                    conn.send(b"\xff")
                    while True:
                        coro.sleep_relative(0.02)
                        conn.send(b"\xff")
                except OSError:
                    pass

        thread = coro.spawn(drip)
        r = resolver(servers, attempts=1)
        with pytest.raises(QueryFailed):
            r.query("a.test", timeout=0.3)
        r.close()
        listener.close()
        thread.shutdown()


@in_loop
def test_addresses_of_a_wrong_length():
    def server(query):
        return reply(query, [record("a.test", A, b"\1\2\3")], aa=False, flags=RA)

    with fakes({1: server}) as servers, pytest.raises(QueryFailed, match="3 bytes"):
        resolver(servers, attempts=1).query("a.test")


@in_loop
def test_an_icmp_error_goes_on_with_the_next_server():
    with fakes({1: silent, 2: address}) as servers:
        servers.socks[0].close()
        assert resolver(servers).query("a.test") == RIGHT


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # workers of tests before
def test_a_forked_child_has_random_bits_of_its_own():
    import os

    server = engine.Server(("192.0.2.1", 53))
    engine.query(name("www.example"), A, server, 1232, False, False)
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(write, engine.query(name("www.example"), A, server, 1232, False, False))
        os._exit(0)
    mine = engine.query(name("www.example"), A, server, 1232, False, False)
    theirs = os.read(read, 1000)
    os.waitpid(pid, 0)
    os.close(read)
    os.close(write)
    assert mine[:40] != theirs[:40] and mine[2:12] == theirs[2:12]
