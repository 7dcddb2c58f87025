"""DNS cookies (RFC 7873, RFC 9018): of the server, and of the resolver that asks servers."""

from __future__ import annotations

import dns.edns
import dns.flags
import dns.message
import dns.rcode
import pytest
from dns_support import NET, fakes, in_loop, record, reply
from server_support import run, running

import coro
import coro.testing
from coro.dns import _wire
from coro.dns._cookies import Cookies
from coro.dns._prepared import siphash
from coro.dns._recursive import network

CLIENT = bytes.fromhex("2464c4abcf10c957")
SECRET = bytes.fromhex("e5e973e5a6b2a43f48e7dc849e37bfcf")


def test_hash():
    """The first and the last vector of the paper's appendix A: the data is 0, 1, 2 ..."""
    key = bytes(range(16))
    assert siphash(key, b"").hex() == "310e0edd47db6f72"
    assert siphash(key, bytes(range(15))).hex() == "e545be4961ca29a1"
    with pytest.raises(ValueError, match="16 bytes"):
        siphash(b"short", b"")


def test_examples_of_the_rfc():
    """RFC 9018, appendix A."""
    made = Cookies([SECRET]).made(CLIENT, "198.51.100.100", 1559731985)
    assert made.hex() == "2464c4abcf10c957010000005cf79f111f8130c3eee29480"
    client = bytes.fromhex("fc93fc62807ddb86")
    made = Cookies([SECRET]).made(client, "203.0.113.203", 1559734700)
    assert made.hex() == "fc93fc62807ddb86010000005cf7a9acf73a7810aca2381e"
    after = Cookies(map(bytes.fromhex, ("445536bcd2513298075a5d379663c962", "dd3bdf9344b678b185a6f5cb60fca715")))
    old = bytes.fromhex("22681ab97d52c298010000005cf7c57926556bd0934c72f8")
    new = bytes.fromhex("22681ab97d52c298010000005cf7c609a6bb79d16625507a")
    assert after.checked(old, "2001:db8:220:1:59de:d0f4:8769:82b8", 1559741961) == (True, new)


def test_what_is_good():
    cookies = Cookies([SECRET])
    one = cookies.made(CLIENT, "192.0.2.1", 10_000)
    assert cookies.checked(one, "192.0.2.1", 10_000 + 1800) == (True, one)
    good, new = cookies.checked(one, "192.0.2.1", 10_000 + 1801)
    assert good and new == cookies.made(CLIENT, "192.0.2.1", 10_000 + 1801)
    assert not cookies.checked(one, "192.0.2.1", 10_000 + 3601)[0]
    assert cookies.checked(one, "192.0.2.1", 10_000 - 300)[0] and not cookies.checked(one, "192.0.2.1", 10_000 - 301)[0]
    assert not cookies.checked(one, "192.0.2.2", 10_000)[0]
    assert not cookies.checked(one[:-1] + b"x", "192.0.2.1", 10_000)[0]
    assert not cookies.checked(one[:16], "192.0.2.1", 10_000)[0]
    after = Cookies([b"n" * 16, SECRET])
    good, new = after.checked(one, "192.0.2.1", 10_000)
    assert good and new != one, "good, but it is replaced by one of the new secret"
    for wrong in (b"", bytes(7), bytes(9), bytes(15), bytes(41)):
        with pytest.raises(ValueError, match="bytes"):
            cookies.checked(wrong, "192.0.2.1")
    for wrong in ([], [b"short"]):
        with pytest.raises(ValueError, match="16 bytes"):
            Cookies(wrong)


def cookie_of(answer):
    return next((option.to_wire() for option in answer.options if option.otype == 10), None)


def asked(cookie, *names):
    return [dns.message.make_query(name, "A", options=[dns.edns.GenericOption(10, cookie)]) for name in names]


@in_loop
def test_server_gives_cookies():
    with running() as server:

        def answer(query):
            return dns.message.from_wire(server.raw(query.to_wire()))

        (query,) = asked(CLIENT, "www.test.")
        first = answer(query)
        cookie = cookie_of(first)
        assert first.answer and cookie[:8] == CLIENT and len(cookie) == 24
        assert cookie_of(answer(asked(cookie, "www.test.")[0])) == cookie, "also for what is prepared"
        assert cookie_of(server.ask("www.test.")) is None
        assert answer(asked(b"short", "www.test.")[0]).rcode() == dns.rcode.FORMERR
        query.question.clear()
        alone = answer(query)
        assert alone.rcode() == 0 and cookie_of(alone)[:8] == CLIENT, "a question for a cookie alone"


@in_loop
def test_required_cookies():
    with running(require_cookies=True, cookie_secrets=[SECRET]) as server:

        def answer(query):
            return dns.message.from_wire(server.raw(query.to_wire()))

        for _ in range(2):
            assert answer(dns.message.make_query("www.test.", "A")).flags & dns.flags.TC
            bad = answer(asked(CLIENT, "www.test.")[0])
            assert bad.rcode() == dns.rcode.BADCOOKIE and not bad.answer
            good = answer(asked(cookie_of(bad), "www.test.")[0])
            assert good.rcode() == 0 and good.answer
            forged = asked(Cookies([b"x" * 16]).made(CLIENT, "127.0.0.1"), "www.test.")[0]
            assert answer(forged).rcode() == dns.rcode.BADCOOKIE
        with coro.tcp_sock() as sock:
            sock.connect_addr(server.address)
            query = dns.message.make_query("www.test.", "A").to_wire()
            sock.send(len(query).to_bytes(2, "big") + query)
            reply = dns.message.from_wire(sock.recv_exact(int.from_bytes(sock.recv_exact(2), "big")))
            assert reply.answer, "who speaks TCP is who he says he is"


@in_loop
def test_dig_goes_on_with_the_cookie_it_gets():
    with running(require_cookies=True) as server:
        host, port = server.address
        out = run("dig", "bind9-dnsutils", f"@{host}", "-p", str(port), "www.test", "A", "+tries=1", "+time=20")
        assert "192.0.2.1" in out and "(good)" in out and "Truncated" not in out


def with_cookie(query, cookie, records):
    return _wire.build(
        query.id, 0x8400, query.question, query.qtype, 1, records, udp_size=1232, options=[(10, cookie)]
    )  # fmt: skip


def cookie_in(query):
    return next(data for number, data in query.options if number == 10)


@in_loop
def test_resolver_sends_the_cookie_back_and_ignores_replies_without_it():
    got = []

    def server(query):
        cookie = cookie_in(query)
        got.append(cookie)
        text = _wire.to_text(query.qname)
        right = with_cookie(query, cookie[:8] + b"s" * 8, [record(text, 1, "192.0.2.1")])
        if len(got) == 1:
            return right
        forged = reply(query, [record(text, 1, "6.6.6.6")])
        wrong = with_cookie(query, b"x" * 8 + b"s" * 8, [record(text, 1, "6.6.6.6")])
        return [forged, wrong, right]

    with fakes({1: server}) as servers:
        n = network.Network()
        for i in range(2):
            message = n.ask((f"{NET}.1", servers.port), _wire.from_text("www.test"), 1, False, 5.0)
            assert [r[4] for r in message.answer] == [b"\xc0\0\2\1"], i
        assert len(got[0]) == 8 and got[1] == got[0] + b"s" * 8
        assert n.forged == 2


@in_loop
def test_a_server_that_copies_options_gives_no_cookie():
    """Our 8 bytes alone are what a server sends back that knows nothing of cookies: its reply is good."""
    asked = []

    def server(query):
        asked.append(cookie_in(query))
        return with_cookie(query, cookie_in(query), [record("www.test", 1, "192.0.2.1")])

    with fakes({1: server}) as servers:
        n = network.Network()
        for _ in range(2):
            assert n.ask((f"{NET}.1", servers.port), _wire.from_text("www.test"), 1, False, 5.0).answer
        assert [len(one) for one in asked] == [8, 8] and not n.forged


@in_loop
def test_resolver_asks_again_after_badcookie():
    got = []

    def server(query):
        cookie = cookie_in(query)
        got.append(len(cookie))
        if len(cookie) == 8:
            return _wire.build(query.id, 0x8007, query.question, 1, 1, udp_size=1232, extended=1,
                               options=[(10, cookie + b"s" * 16)])  # fmt: skip
        return with_cookie(query, cookie, [record("www.test", 1, "192.0.2.1")])

    with fakes({1: server}) as servers:
        message = network.Network().ask((f"{NET}.1", servers.port), _wire.from_text("www.test"), 1, False, 5.0)
        assert message.rcode == 0 and message.answer
        assert got == [8, 24]


@in_loop
def test_a_truncated_reply_among_forged_ones_goes_to_tcp_at_once():
    """Ignoring what is forged must not swallow the reply that says "ask over TCP"."""
    stop = coro.event()

    def serve_tcp(listener):
        try:
            while True:
                sock, _ = listener.accept()
                with sock:
                    query = _wire.parse(sock.recv_exact(int.from_bytes(sock.recv_exact(2), "big")))
                    answer = with_cookie(query, cookie_in(query)[:8] + b"s" * 8, [record("www.test", 1, "192.0.2.1")])
                    sock.send(len(answer).to_bytes(2, "big") + answer)
        except (OSError, EOFError):
            stop.set()

    def server(query):
        forged = reply(query, [record("www.test", 1, "6.6.6.6")])
        if not with_known:
            return with_cookie(query, cookie_in(query)[:8] + b"s" * 8, [])
        truncated = reply(query, flags=0x0200)
        return [forged, forged[:2] + b"\x80\0", reply(query, ident=query.id ^ 1), truncated]

    with_known = False
    with fakes({1: server}) as servers, coro.tcp_sock() as listener:
        listener.bind((f"{NET}.1", servers.port))
        listener.listen()
        coro.spawn(serve_tcp, listener)
        n = network.Network()
        at = (f"{NET}.1", servers.port)
        n.ask(at, _wire.from_text("www.test"), 1, False, 5.0)
        assert n.memory(at).server_cookie == b"s" * 8
        with_known = True
        with coro.testing.virtual_clock():  # no time passes, so nothing can wait for its end
            message = n.ask(at, _wire.from_text("www.test"), 1, False, 5.0)
        assert [r[4] for r in message.answer] == [b"\xc0\0\2\1"]
        assert n.forged == 3
        listener.close()
        stop.wait()
