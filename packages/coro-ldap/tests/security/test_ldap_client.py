"""A server, or somebody on the way, that harms a client: floods, halves, endless answers, injected bytes and names.

Memory stays bounded, every thread ends, and no connection is left between two states.
"""

from __future__ import annotations

import gc
import random
import socket
import threading
import tracemalloc

import pytest
from ldap_client_support import HANG, Conversation, Scripted, in_loop

import coro
from coro.ldap import Client, ConnectionLost, LDAPError, LDAPTimeout, LocalError, ProtocolError, TooMuchBuffered
from coro.ldap._client.link import Link
from coro.ldap.dn import DN, escape_dn_value
from coro.ldap.filters import And, Equal, escape_filter_value
from coro.ldap.protocol import (
    AbandonRequest,
    BindRequest,
    BindResponse,
    DelResponse,
    ExtendedRequest,
    ExtendedResponse,
    IntermediateResponse,
    Message,
    SearchRequest,
    SearchResultDone,
    SearchResultReference,
    UnbindRequest,
    encode,
    encode_entry,
)
from coro.ldap.query import parse_query

NASTY = [
    "*",
    "(",
    ")",
    "\\",
    "\0",
    "a)(uid=*",
    "*)(|(cn=*",
    "\\2a",
    "é",
    ",",
    "+",
    '"',
    ";",
    "<",
    ">",
    "#x",
    " x ",
    "=",
    "\n",
]


def until(done) -> None:
    while not done():
        coro.sleep_relative(0)


# ---- memory


@in_loop
def test_a_message_in_pieces_counts_as_a_whole() -> None:
    """What counts is what is kept, not what the last read from the socket brought."""
    client: Client

    def script(peer: Conversation) -> None:
        request = peer.next()
        entry = encode_entry(request.id, "cn=x", {"photo": [b"x" * 50_000]})
        for end in (-1, None):
            before = client.statistics().bytes_in
            piece = entry[:end] if end else entry[-1:]
            peer.send(piece)
            wanted = before + len(piece)
            until(lambda wanted=wanted: client.statistics().bytes_in == wanted)
        peer.answer(request)

    with Scripted(script) as server, server.client() as client:
        pending = client.link.start(SearchRequest())
        until(lambda pending=pending: pending.done)
        assert client.statistics().buffered > 50_000
        assert pending.next(HANG)[0] == 4
        assert client.statistics().buffered == 0


@pytest.mark.parametrize("what", ["entries", "references", "values"])
@in_loop
def test_small_results_count_with_their_objects(what: str) -> None:
    """Many small results cost more memory than they have bytes: the limit is for the memory."""

    def script(peer: Conversation) -> None:
        request = peer.next()
        one = {
            "entries": encode_entry(request.id, "", {}),
            "references": encode(Message(request.id, SearchResultReference(("",)))),
            "values": encode_entry(request.id, "", {f"{n:x}": [] for n in range(50)}),
        }[what]
        for _ in range(20):
            peer.send(one * 200)
            coro.yield_slice()
        peer.answer(request)

    with Scripted(script) as server, server.client() as client:
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            pending = client.link.start(SearchRequest())
            until(lambda: pending.done or client.link.statistics().buffered > 1 << 20)
            used = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert client.statistics().buffered > used / 3
        pending.give_up()
        assert client.statistics().buffered == 0


@in_loop
def test_many_searches_share_one_limit() -> None:
    """Each below the limit, together above it: the largest is given up, and no other."""
    client: Client

    def script(peer: Conversation) -> None:
        requests = [peer.next() for _ in range(11)]
        for turn in range(10):
            for place, request in enumerate(requests[1:]):
                peer.entry(request, photo=[b"x" * (20_000 if place == 3 else 10_000)])
            until(lambda turn=turn: client.statistics().late or client.statistics().buffered > turn * 100_000)
        peer.answer(requests[0])
        peer.serve()

    with Scripted(script) as server, server.client(max_outstanding=20) as client:
        client.link._limit = 1_000_000
        # Somebody waits for an answer, so reading does not stop.
        waiting = coro.spawn(client.delete, "cn=x")
        coro.yield_slice()
        searches = [client.link.start(SearchRequest()) for _ in range(10)]
        waiting.get()
        assert client.statistics().buffered < 1_100_000
        assert isinstance(searches[3].error, TooMuchBuffered)
        assert [one.error for one in searches[:3]] == [None] * 3
        for one in searches:
            one.give_up()
        assert client.statistics().buffered == 0


@in_loop
def test_results_that_were_forgotten_count_no_longer() -> None:
    with Scripted() as server, server.client() as client:
        for _ in range(50):
            pending = client.link.start(SearchRequest())
            until(lambda pending=pending: pending.done)
            del pending
        assert client.statistics().buffered == 0


@in_loop
def test_a_search_that_was_forgotten_is_abandoned() -> None:
    abandoned = coro.event()

    def script(peer: Conversation) -> None:
        request = peer.next()
        peer.entry(request)
        abandon = peer.next()
        assert isinstance(abandon.op, AbandonRequest) and abandon.op.message_id == request.id
        abandoned.set()
        peer.serve()

    with Scripted(script) as server, server.client() as client:
        search = client.stream(SearchRequest())
        assert search.ready(HANG)
        del search
        abandoned.wait()
        assert client.statistics()[1:3] == (0, 1) and client.statistics().buffered == 0
        client.delete("cn=x")


def test_a_flood_does_not_starve_other_threads() -> None:
    """A process that sends without end: others run in the same time."""
    near, far = socket.socketpair()
    stop = threading.Event()
    flood = encode(Message(7, SearchResultDone(0, "", ""))) * 5000

    def send() -> None:
        try:
            while not stop.is_set():
                far.sendall(flood)
        except OSError:
            pass

    def main() -> None:
        sock = coro.sock(fd=near.detach())
        link = Link(sock, name="flood")
        turns = 0
        while link.statistics().late < 200_000:
            coro.sleep_relative(0)
            turns += 1
        assert turns > 100
        link.end(ConnectionLost("enough"))

    thread = threading.Thread(target=send)
    thread.start()
    try:
        coro.run(coro.with_timeout, HANG, main)
    finally:
        stop.set()
        far.close()
        thread.join(HANG)


# ---- time


@in_loop
def test_intermediate_responses_do_not_move_the_deadline() -> None:
    def script(peer: Conversation) -> None:
        request = peer.next()
        note = encode(Message(request.id, IntermediateResponse("1.2.3", b"x")))
        while True:
            peer.send(note)
            coro.sleep_relative(0)

    for call in (
        lambda client: client.delete("cn=x"),
        lambda client: client.simple_bind("cn=x", "y"),
        lambda client: client.send_message(ExtendedRequest("1.2.3")),
    ):
        with Scripted(script) as server:
            client = server.client()
            client.default_timeout = 0.3
            with pytest.raises(LDAPTimeout):
                call(client)
            client.link.end(ConnectionLost("enough"))


@in_loop
def test_bytes_that_come_one_by_one_do_not_move_the_deadline() -> None:
    def script(peer: Conversation) -> None:
        request = peer.next()
        for byte in encode(Message(request.id, DelResponse(0, "", "x" * 5000))):
            peer.send(bytes([byte]))
            coro.sleep_relative(0.002)

    with Scripted(script) as server, server.client() as client:
        with pytest.raises(LDAPTimeout):
            client.delete("cn=x", timeout=0.05)


# ---- what is no answer


@in_loop
def test_what_follows_an_answer_ends_the_connection_at_once() -> None:
    """The bad message is in the same packet as a good one, and nothing follows: nobody waits for more."""

    def script(peer: Conversation) -> None:
        first = peer.next()
        peer.next()
        peer.send(encode(Message(first.id, DelResponse(0, "", ""))) + b"\x00no LDAP")
        peer.next()

    with Scripted(script) as server:
        client = server.client()
        one, two = coro.spawn(client.delete, "cn=x"), coro.spawn(client.delete, "cn=y", timeout=None)
        one.get()
        with pytest.raises(ProtocolError):
            two.get()
        assert not client.alive


@in_loop
def test_bytes_of_tls_behind_the_answer_to_starttls_are_refused() -> None:
    """They are no LDAP, so they wait in no buffer; they were there before the handshake all the same."""

    def script(peer: Conversation) -> None:
        request = peer.next()
        peer.send(encode(Message(request.id, ExtendedResponse(0, "", ""))) + b"\x16\x03\x03\x00\x02\x01\x00")
        while peer.sock.recv(1000):
            pass

    with Scripted(script) as server:
        client = server.client(connect_timeout=HANG)
        with pytest.raises((ProtocolError, ConnectionLost), match="before the handshake"):
            client.starttls()
        assert not client.alive and not client.secure


@in_loop
def test_starttls_without_an_answer_leaves_no_connection_in_clear_text() -> None:
    """Something else than the answer comes first, the answer when the program goes on without TLS."""

    def script(peer: Conversation) -> None:
        request = peer.next()
        peer.send(Message(request.id, IntermediateResponse("1.2.3", b"x")))
        while peer.next() is not None:
            pass

    with Scripted(script) as server:
        client = server.client()
        with pytest.raises((ProtocolError, ConnectionLost)):
            client.starttls()
        assert not client.alive
        assert client.statistics().pending == 0


ANSWERS = (
    encode_entry(1, "cn=a", {"cn": [b"a", b"b"], "sn": [b"c"]})
    + encode(Message(1, SearchResultReference(("ldap://x/",))))
    + encode(Message(1, IntermediateResponse("1.2.3", b"x")))
    + encode_entry(1, "cn=b", {"cn": [b"x" * 200]})
    + encode(Message(1, SearchResultDone(0, "", "text")))
)


@in_loop
def test_closed_behind_each_byte() -> None:
    for end in range(len(ANSWERS)):

        def script(peer: Conversation, end: int = end) -> None:
            peer.next()
            peer.send(ANSWERS[:end])

        with Scripted(script) as server:
            client = server.client()
            with pytest.raises(ConnectionLost, match="closed|broke"):
                list(client.search_iter("cn=x", page_size=0))
            assert not client.alive and client.statistics().buffered == 0


@in_loop
def test_every_byte_alone() -> None:
    def script(peer: Conversation) -> None:
        peer.next()
        for place in range(len(ANSWERS)):
            peer.send(ANSWERS[place : place + 1])
            coro.yield_slice()

    with Scripted(script) as server, server.client() as client:
        found = [entry.dn for entry in client.search_iter("cn=x", page_size=0)]
        assert found == ["cn=a", "cn=b"]


@pytest.mark.slow
@in_loop
def test_damaged_answers() -> None:
    """Whatever comes, a search ends, and with nothing but the documented errors."""
    chance = random.Random(20)
    for _ in range(1500):
        data = bytearray(ANSWERS)
        for _ in range(chance.randrange(1, 4)):
            place = chance.randrange(len(data))
            what = chance.randrange(3)
            if what == 0:
                data[place] ^= 1 << chance.randrange(8)
            elif what == 1:
                data[place] = chance.choice((0, 0x30, 0x7F, 0x80, 0x84, 0xFF))
            else:
                del data[place : place + chance.randrange(1, 9)]

        def script(peer: Conversation, data: bytes = bytes(data)) -> None:
            peer.next()
            peer.send(data)

        with Scripted(script) as server:
            client = server.client()
            try:
                with client.stream(SearchRequest()) as search:
                    for _ in search:
                        pass
            except LDAPError:
                pass
            client.link.end(ConnectionLost("enough"))
            assert client.statistics().pending == 0 and client.statistics().buffered == 0


LENGTHS = [
    b"\x30\x80",
    b"\x30\x84\xff\xff\xff\xff",
    b"\x30\x85\x01\x00\x00\x00\x00",
    b"\x30\xff",
    b"\x30\x83\x10\x00\x01",
]


@pytest.mark.parametrize("head", LENGTHS, ids=bytes.hex)
@in_loop
def test_lengths_beyond_the_limit(head: bytes) -> None:
    def script(peer: Conversation) -> None:
        peer.next()
        peer.send(head)
        peer.next()

    with Scripted(script) as server:
        client = server.client()
        with pytest.raises(ProtocolError):
            client.delete("cn=x", timeout=None)
        assert not client.alive


# ---- many threads


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@in_loop
def test_a_hundred_threads_and_interruptions_at_every_point(seed: int) -> None:
    """Random operations and logins, answered in any order among messages of nobody; threads are interrupted anywhere.

    A login is always alone, nobody gets the answer of another, and nothing is left in the end.
    """
    chance = random.Random(seed)
    broken: list[str] = []

    def script(peer: Conversation) -> None:
        waiting: list[Message] = []
        while (request := peer.next()) is not None:
            if isinstance(request.op, UnbindRequest):
                return
            if isinstance(request.op, AbandonRequest):
                for one in waiting:
                    if one.id == request.op.message_id and chance.random() < 0.7:
                        waiting.remove(one)
                        break
            elif isinstance(request.op, BindRequest):
                # What was abandoned has no answer and may still be here.
                waiting = []
                peer.send(Message(request.id, BindResponse(0, "", "")))
            else:
                waiting.append(request)
            if peer.decoder._found and len(waiting) < 30:
                continue
            chance.shuffle(waiting)
            for _ in range(len(waiting) if chance.random() < 0.8 else len(waiting) // 2):
                one = waiting.pop()
                if chance.random() < 0.2:
                    peer.answer(Message(chance.randrange(1 << 20, 1 << 30), one.op))
                if isinstance(one.op, SearchRequest):
                    for _ in range(chance.randrange(4)):
                        peer.entry(one, one.op.base)
                    peer.answer(one)
                    if chance.random() < 0.1:
                        peer.entry(one, "cn=behind")
                        peer.answer(one)
                else:
                    peer.answer(one, 0, one.op.dn)
            for one in list(waiting):
                # Nobody waits for ever: half of those that were kept are answered with the next request.
                if chance.random() < 0.5:
                    waiting.remove(one)
                    waiting.insert(0, one)

    def call(client: Client, name: str) -> None:
        what = chance.random()
        if what < 0.1:
            client.check_secret()
            with client.exclusive(1.0):
                if len(client.link._pending):
                    broken.append("a login was not alone")
        elif what < 0.55:
            for entry in client.search_iter(name, page_size=0, timeout=0.5):
                if entry.dn != name:
                    broken.append(f"{entry.dn} for {name}")
                if chance.random() < 0.2:
                    break
        else:
            result = client.delete(name, timeout=0.5)
            if result is not None and result.diagnostic != name:
                broken.append(f"{result.diagnostic} for {name}")

    def work(client: Client, number: int) -> None:
        for turn in range(10):
            try:
                if chance.random() < 0.3:
                    with coro.move_on_after(chance.choice((0, 0.0001, 0.001, 0.01))):
                        call(client, f"cn={number}-{turn}")
                else:
                    call(client, f"cn={number}-{turn}")
            except LDAPTimeout:
                pass
            if chance.random() < 0.02:
                gc.collect()

    with Scripted(script) as server, server.client(max_outstanding=40) as client:
        threads = [coro.spawn(work, client, number) for number in range(100)]
        for _ in range(20):
            coro.sleep_relative(0.005)
            victim = chance.choice(threads)
            victim.shutdown()
        for thread in threads:
            thread.join()
        assert broken == []
        assert client.alive, client.link.error
        found = client.statistics()
        assert (found.pending, found.buffered, client.link.waiting, client.link._owner) == (0, 0, 0, None)
        with client.exclusive(HANG):
            pass


# ---- names and filters


@pytest.mark.parametrize("value", NASTY)
def test_filter_injection(value: str) -> None:
    """A value stays a value, whether the filter is built from objects or from escaped text."""
    expected = Equal("uid", value).encode()
    assert parse_query(f"(uid={escape_filter_value(value)})") == expected
    assert value.encode() in expected and expected[0] == 0xA3
    both = And(Equal("objectClass", "person"), Equal("uid", value))
    text = str(both)
    assert parse_query(text) == both.encode()
    assert text.count("(") == 3 and "\0" not in text


@pytest.mark.parametrize("value", NASTY)
def test_dn_injection(value: str) -> None:
    """A value makes no other part of a name, and comes back as it was."""
    for name in (DN.parse(f"cn={escape_dn_value(value)},dc=example"), DN.parse("dc=example").child(cn=value)):
        assert tuple(name) == ((("cn", value),), (("dc", "example"),))
        assert "\0" not in str(name)
        assert tuple(DN.parse(str(name))) == tuple(name)


def test_a_name_without_a_password_is_refused_before_anything_is_sent() -> None:
    """Servers take it for nobody and say success (RFC 4513, 5.1.2): no program may take that for a login."""

    @in_loop
    def run() -> None:
        with Scripted() as server:
            with server.client() as client:
                for name in ("cn=x", b"cn=x"):
                    for password in ("", b""):
                        with pytest.raises(LocalError, match="anonymous"):
                            client.simple_bind(name, password)
                        assert client.check_password(name, password) is False
                client.delete("cn=x")
            assert [type(one.op).__name__ for one in server.conversations[0].seen][:1] == ["DelRequest"]
            assert len(server.conversations) == 1

    run()
