"""Servers that lose datagrams, refuse questions, are no authority, or leave something out: the resolver still finds
what others of the field find. Servers are functions; pauses are made short, and no test depends on how long they
are."""

from __future__ import annotations

import collections

import pytest
from dns_support import NET, fakes, in_loop, name, record, reply, soa

import coro
from coro.dns import DNS_Lame_Error, DNS_Soft_Error, _wire
from coro.dns._recursive import network
from coro.dns._recursive.recursor import Recursor, key_of

A, NS, CNAME, HINFO, AAAA, DNAME = 1, 2, 5, 13, 28, 39


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(network, "FIRST", 0.02)
    monkeypatch.setattr(network, "LEAST", 0.01)


def recursor(servers, **settings):
    return Recursor([servers.root], port=servers.port, **settings)


def refer(query, zone, *numbers, ttl=300, glue=True):
    hosts = [(f"ns{number}.{zone}", number) for number in numbers]
    return reply(
        query,
        authority=[record(zone, NS, host, ttl) for host, _ in hosts],
        additional=[record(host, A, f"{NET}.{number}") for host, number in hosts] if glue else (),
        aa=False,
    )


def answers(query, address="192.0.2.1", **settings):
    return reply(query, [record(_wire.to_text(query.qname), A, address)], **settings)


def found(recursor, text, rtype=A, **settings):
    answer = recursor.resolve(name(text), rtype, **settings)
    return answer.rcode, [data for _, data in answer.chosen(rtype)]


HERE = (0, [bytes((192, 0, 2, 1))])


@pytest.mark.parametrize("lost", range(5))
@in_loop
def test_lost_datagrams_are_sent_again(lost):
    seen = collections.Counter()

    def server(query):
        seen[query.qname] += 1
        return None if seen[query.qname] <= lost else answers(query)

    with fakes({1: server}) as servers:
        assert found(recursor(servers), "www") == HERE
        assert seen == {name("www"): lost + 1}


@in_loop
def test_the_waits_for_one_question_grow():
    memory = network.ServerMemory()
    waits = [memory.limit(tries) for tries in range(5)]
    assert waits == sorted(waits) and waits[4] == 16 * waits[0]
    for _ in range(10):
        memory.failed()
    assert memory.limit() == 4 * waits[0], "other questions leave time for many tries"
    memory.rtt = 10.0
    assert memory.limit(4) == network.MOST


@in_loop
def test_a_path_that_loses_all_datagrams():
    """The fourth try goes over TCP."""
    with fakes({1: lambda query: None}) as servers:
        listener = coro.tcp_sock()
        listener.bind(servers.root)
        listener.listen()

        def serve():
            sock, _ = listener.accept()
            query = _wire.parse(sock.recv_exact(int.from_bytes(sock.recv_exact(2), "big")))
            message = answers(query)
            sock.send(len(message).to_bytes(2, "big") + message)
            sock.close()

        thread = coro.spawn(serve)
        assert found(recursor(servers), "www") == HERE
        assert len(servers.asked) == 3
        thread.join()
        listener.close()


@in_loop
def test_the_other_server_is_asked_before_the_silent_one_again():
    with fakes({1: lambda query: refer(query, "test", 2, 3), 2: lambda query: None, 3: answers}) as servers:
        r = recursor(servers)
        for i in range(4):
            assert found(r, f"n{i}.test") == HERE
        counted = collections.Counter(number for number, text, _ in servers.asked if text != "test")
        assert counted[3] == 4 and counted[2] <= 4


@in_loop
def test_time_bounds_the_tries():
    with fakes({1: lambda query: None}) as servers:
        with pytest.raises(DNS_Soft_Error):
            recursor(servers).resolve(name("www"), A, seconds=0.1)
        assert 1 < len(servers.asked) <= 8


@in_loop
def test_one_refused_question_says_nothing_about_others():
    """Neither a type nor a name that a server refuses takes its zone away."""

    def server(query):
        if query.qtype == HINFO or query.qname == name("bad"):
            return reply(query, rcode=5)
        return answers(query)

    with fakes({1: server}) as servers:
        r = recursor(servers)
        with pytest.raises(DNS_Lame_Error):
            r.resolve(name("good"), HINFO)
        with pytest.raises(DNS_Lame_Error):
            r.resolve(name("bad"), A)
        assert found(r, "other") == HERE


@in_loop
def test_the_last_server_is_asked_however_lame_it_has_been():
    lame = []

    def zone(query):
        if lame:
            lame.pop()
            return reply(query, authority=[record(".", NS, "a.root")], aa=False)
        return answers(query)

    with fakes({1: lambda query: refer(query, "test", 2), 2: zone}) as servers:
        r = recursor(servers)
        assert found(r, "a.test") == HERE
        lame.append(True)
        with pytest.raises(DNS_Lame_Error):
            r.resolve(name("b.test"), A)
        assert r.lame
        assert found(r, "c.test") == HERE


@in_loop
def test_a_lame_server_is_asked_last():
    def lame(query):
        return reply(query, authority=[record(".", NS, "a.root")], aa=False)

    with fakes({1: lambda query: refer(query, "test", 2, 3), 2: lame, 3: answers}) as servers:
        r = recursor(servers)
        for i in range(20):
            assert found(r, f"n{i}.test") == HERE
        assert [number for number, _, _ in servers.asked].count(2) <= 1


@pytest.mark.parametrize("rcode", [1, 2, 4, 5, 9, "silent", "sent away"])
@in_loop
def test_names_in_between_that_a_server_does_not_like(rcode):
    """RFC 9156, section 2.3: then the full name is asked for."""

    def server(query):
        if _wire.labels(query.qname) == 3:
            return answers(query)
        if rcode == "silent":
            return None
        if rcode == "sent away":
            return reply(query, authority=[record(".", NS, "a.root")], aa=False)
        return reply(query, rcode=rcode)

    with fakes({1: server}) as servers:
        r = recursor(servers)
        for text in ("www.a.example", "www.b.example"):
            assert found(r, text) == HERE


@in_loop
def test_errors_for_the_full_name_are_errors():
    with fakes({1: lambda query: reply(query, rcode=2)}) as servers:
        with pytest.raises(DNS_Soft_Error, match="response code 2"):
            recursor(servers).resolve(name("www.a.example"), A)
        assert len(servers.asked) == 2


@in_loop
def test_answers_of_servers_that_are_no_authority():
    """They are taken: the records, that a name does not exist, that it has no such records."""

    def server(query):
        text = _wire.to_text(query.qname)
        if text == "missing":
            return reply(query, authority=[soa(".")], aa=False, rcode=3)
        if text == "empty":
            return reply(query, authority=[soa(".")], aa=False)
        if text == "alias":
            return reply(query, [record(text, CNAME, "www")], aa=False)
        if text == "nothing":
            return reply(query, aa=False)
        return answers(query, aa=False)

    with fakes({1: server}) as servers:
        r = recursor(servers)
        assert found(r, "www") == found(r, "alias") == HERE
        assert found(r, "missing") == (3, []) and found(r, "empty") == (0, [])
        assert found(r, "nothing") == (0, [])
        assert r.entries.get(key_of(name("nothing"), A)) is None, "which nobody remembers"


@in_loop
def test_an_empty_reply_is_believed_if_no_server_has_a_better_one():
    for flags in (0, 0x80):  # of a server that recurses, but not for us, never

        def empty(query, flags=flags):
            return reply(query, aa=False, flags=flags)

        with fakes({1: lambda query: refer(query, "test", 2, 3), 2: empty, 3: answers}) as servers:
            r = recursor(servers)
            for i in range(10):
                assert found(r, f"n{i}.test") == HERE
    with fakes({1: empty}) as servers, pytest.raises(DNS_Lame_Error):
        recursor(servers).resolve(name("www"), A)


@in_loop
def test_authorities_are_believed_first():
    def other(query):
        return answers(query, "192.0.2.66", aa=False)

    with fakes({1: lambda query: refer(query, "test", 2, 3), 2: other, 3: answers}) as servers:
        r = recursor(servers)
        for i in range(10):
            assert found(r, f"n{i}.test") == HERE


@in_loop
def test_what_is_believed_of_no_authority_is_in_its_zone():
    def zone(query):
        return reply(query, [record("www.bank", A, "6.6.6.6")], [soa("bank")], aa=False)

    with fakes({1: lambda query: refer(query, "evil", 2), 2: zone}) as servers:
        r = recursor(servers)
        with pytest.raises(DNS_Soft_Error):
            r.resolve(name("www.evil"), A)
        assert r.entries.keys() == []


@pytest.mark.parametrize("first", [A, CNAME])
@in_loop
def test_the_alias_below_a_dname_as_the_question(first):
    """The answer are DNAME and CNAME (RFC 6672, section 3.2), whatever was asked before; it is not followed."""

    def server(query):
        text = _wire.to_text(query.qname)
        if text == "q.dn":
            return reply(query, [record("dn", DNAME, "www"), record("q.dn", CNAME, "q.www")])
        if text == "q.www":
            return reply(query, authority=[soa(".")], rcode=3)
        return reply(query, authority=[soa(".")])

    with fakes({1: server}) as servers:
        r = recursor(servers)
        r.resolve(name("q.dn"), first)
        answer = r.resolve(name("q.dn"), CNAME)
        assert answer.rcode == 0 and [record[1] for record in answer.answer] == [DNAME, CNAME]
        assert r.resolve(name("q.dn"), A).rcode == 3


@in_loop
def test_an_alias_that_is_too_long():
    """YXDOMAIN of a server is handed on (RFC 6672, section 2.2), if there is a DNAME for it."""
    target = ".".join(["x" * 60] * 3 + ["y" * 50])

    def server(query):
        if _wire.labels(query.qname) < 3:
            return reply(query, authority=[soa(".")])
        with_it = [record("long.test", DNAME, target)] if query.qname.endswith(name("long.test")) else []
        return reply(query, with_it, rcode=6)

    with fakes({1: server}) as servers:
        r = recursor(servers)
        answer = r.resolve(name("q" * 60 + ".long.test"), A)
        assert answer.rcode == 6 and [record[1] for record in answer.answer] == [DNAME]
        with pytest.raises(DNS_Soft_Error, match="response code 6"):
            r.resolve(name("a.other.test"), A)


@pytest.mark.parametrize("kind, owner", [(A, "www.test"), (CNAME, "www.test"), (DNAME, "www.test"), (DNAME, "bank")])
@in_loop
def test_records_beside_an_error_are_no_answer(kind, owner):
    """YXDOMAIN is about a DNAME above the name. With anything else it is an error, and nothing of it is kept."""

    def server(query):
        return reply(query, [record(owner, kind, "6.6.6.6" if kind == A else "evil")], rcode=6)

    with fakes({1: lambda query: refer(query, "test", 2), 2: server}) as servers:
        r = recursor(servers)
        with pytest.raises(DNS_Soft_Error, match="response code 6"):
            r.resolve(name("www.test"), A)
        assert r.entries.keys() == []


@pytest.mark.parametrize("flags", [0, 0x80])
@in_loop
def test_a_delegation_with_a_proof_is_followed_at_once(flags):
    """The proof that a zone is not signed makes no denial of its delegation: one of the servers above is asked."""
    proof = record("test", 47, name("z") + b"\0\1\x20")

    def root(query):
        return reply(
            query, (), [record("test", NS, "ns.test"), proof], [record("ns.test", A, f"{NET}.4")], aa=False, flags=flags
        )

    with fakes({1: root, 2: root, 3: root, 4: answers}) as servers:
        r = Recursor([(f"{NET}.{number}", servers.port) for number in (1, 2, 3)], port=servers.port)
        assert found(r, "www.test") == HERE
        assert len([number for number, *_ in servers.asked if number < 4]) == 1


@in_loop
def test_answers_out_of_a_cache_are_taken_last():
    """A server that recurses and is no authority says what others have told it. One whose address has to be looked for
    is better."""

    def root(query):
        if query.qname.endswith(name("other")):
            return refer(query, "other", 3)
        servers_of_test = [record("test", NS, "ns.test"), record("test", NS, "ns.other")]
        return reply(query, (), servers_of_test, [record("ns.test", A, f"{NET}.2")], aa=False)

    def recursing(query):
        return answers(query, "6.6.6.6", aa=False, flags=0x80)

    def other(query):
        return answers(query, f"{NET}.4" if query.qname == name("ns.other") else "6.6.6.6")

    with fakes({1: root, 2: recursing, 3: other, 4: answers}) as servers:
        assert found(recursor(servers), "www.test") == HERE
    with fakes({1: root, 2: recursing, 3: other, 4: lambda query: reply(query, rcode=2)}) as servers:
        assert found(recursor(servers), "www.test") == (0, [bytes((6, 6, 6, 6))]), "if nobody else says anything"


@in_loop
def test_a_delegation_ends_with_the_one_above():
    """The grandchild of a zone that is taken away does not outlive it, however long its own TTL."""

    def root(query):
        return reply(query, authority=[soa(".")], rcode=3) if gone else refer(query, "mid", 2, ttl=5)

    gone = []
    with fakes({1: root, 2: lambda query: refer(query, "sub.mid", 3, ttl=86400), 3: answers}) as servers:
        r = recursor(servers)
        assert found(r, "a.sub.mid") == HERE
        above, below = r.delegations.get(name("mid")), r.delegations.get(name("sub.mid"))
        assert below.expires <= above.expires
        gone.append(True)
        above.expires = below.expires = 0.0
        assert found(r, "b.sub.mid") == (3, [])


@pytest.mark.parametrize("how", ["answer", "referral"])
@in_loop
def test_addresses_that_did_not_come_with_a_delegation(how):
    """The servers above are asked for those of servers below the zone itself, since nobody else can know them."""

    def root(query):
        if query.qname == name("ns2.test"):
            return answers(query, f"{NET}.2", aa=False) if how == "answer" else refer(query, "test", 2)
        return refer(query, "test", 2, glue=False)

    with fakes({1: root, 2: answers}) as servers:
        assert found(recursor(servers), "www.test") == HERE


@in_loop
def test_addresses_that_are_nowhere():
    with fakes({1: lambda query: refer(query, "test", 2, 3, 4, 5, 6, 7, 8, 9, glue=False)}) as servers:
        with pytest.raises(DNS_Soft_Error):
            recursor(servers).resolve(name("www.test"), A)
        assert len(servers.asked) <= 6


@in_loop
def test_an_address_that_only_came_with_the_delegation_of_its_own_zone():
    """The server of `b.test` is in `a.test`, whose servers do not know its address."""

    def root(query):
        if query.qname.endswith(name("b.test")):
            return reply(query, authority=[record("b.test", NS, "ns2.a.test")], aa=False)
        return refer(query, "a.test", 2)

    def server(query):
        return reply(query, rcode=2) if query.qname == name("ns2.a.test") else answers(query)

    with fakes({1: root, 2: server}) as servers:
        r = recursor(servers)
        assert found(r, "www.a.test") == HERE
        assert found(r, "www.b.test") == HERE
