"""Many threads on one connection: who gets which answer, what an interruption leaves, what happens at the end."""

from __future__ import annotations

import pytest
from ldap_client_support import HANG, Conversation, Scripted, in_loop

import coro
from coro.ldap import Client, ConnectionLost, LDAPTimeout, ProtocolError, StateError, TooMuchBuffered
from coro.ldap._client import link as link_module
from coro.ldap.exceptions import Busy, InvalidCredentials, NoSuchObject, Unavailable
from coro.ldap.protocol import (
    NOTICE_OF_DISCONNECTION,
    AbandonRequest,
    BindRequest,
    Control,
    DelResponse,
    ExtendedResponse,
    IntermediateResponse,
    Message,
    SearchRequest,
    SearchResultDone,
    UnbindRequest,
    encode_entry,
)


@in_loop
def test_answers_find_their_threads_in_any_order() -> None:
    def script(peer: Conversation) -> None:
        requests = [peer.next() for _ in range(100)]
        for request in reversed(requests):
            peer.entry(request, request.op.base)
            peer.answer(request)

    with Scripted(script) as server, server.client() as client:
        threads = [coro.spawn(lambda n=n: [e.dn for e in client.search_iter(f"cn={n}")]) for n in range(100)]
        assert [thread.get() for thread in threads] == [[f"cn={n}"] for n in range(100)]
        assert client.statistics().pending == 0
        assert len(server.conversations) == 1


@in_loop
def test_one_connection_and_nothing_that_was_not_asked_for() -> None:
    with Scripted() as server:
        with server.client() as client:
            client.simple_bind("cn=a", "b")
            for _ in range(3):
                assert len(list(client.search_iter("cn=x"))) == 1
        [peer] = server.conversations
        coro.yield_slice()
        kinds = [type(message.op).__name__ for message in peer.seen]
        assert kinds[:4] == ["BindRequest", "SearchRequest", "SearchRequest", "SearchRequest"]


@in_loop
def test_a_timeout_abandons_and_the_late_answer_is_dropped() -> None:
    def script(peer: Conversation) -> None:
        slow = peer.next()
        abandon = peer.next()
        assert isinstance(abandon.op, AbandonRequest) and abandon.op.message_id == slow.id
        peer.answer(slow)
        peer.serve()

    with Scripted(script) as server, server.client() as client:
        with pytest.raises(LDAPTimeout, match="within 0.01 s"):
            client.delete("cn=x", timeout=0.01)
        client.delete("cn=y")
        found = client.statistics()
        assert (found.late, found.abandoned, found.pending) == (1, 1, 0)


WAITING = {
    "add": lambda c: c.add("cn=x", {"cn": ["x"]}),
    "modify": lambda c: c.modify("cn=x", {"cn": ["x"]}),
    "modify_dn": lambda c: c.modify_dn("cn=x", "cn=y"),
    "delete": lambda c: c.delete("cn=x"),
    "compare": lambda c: c.compare("cn=x", "cn", "x"),
    "whoami": lambda c: c.whoami(),
    "change_password": lambda c: c.change_password("a", "b", "c"),
    "search": lambda c: c.search("cn=x"),
    "search_iter": lambda c: list(c.search_iter("cn=x")),
    "read": lambda c: c.read("cn=x"),
    "send_message": lambda c: c.send_message(SearchRequest()),
}


@pytest.mark.parametrize("name", WAITING)
@pytest.mark.parametrize("how", ["with_timeout", "shutdown", "timeout"])
@in_loop
def test_an_interrupted_call_leaves_the_connection_usable(name: str, how: str) -> None:
    def script(peer: Conversation) -> None:
        request = peer.next()
        if isinstance(request.op, SearchRequest):
            peer.entry(request)
        abandon = peer.next()
        assert isinstance(abandon.op, AbandonRequest) and abandon.op.message_id == request.id
        peer.serve()

    with Scripted(script) as server, server.client() as client:
        if how == "with_timeout":
            with pytest.raises(coro.TimeoutError):
                coro.with_timeout(0.01, WAITING[name], client)
        elif how == "timeout":
            client.default_timeout = 0.01
            with pytest.raises(LDAPTimeout):
                WAITING[name](client)
            client.default_timeout = HANG
        else:
            thread = coro.spawn(WAITING[name], client)
            while not server.conversations or not server.conversations[0].seen:
                coro.yield_slice()
            thread.shutdown()
            thread.join()
        assert client.link.waiting == 0 and client.statistics().pending == 0 and client.statistics().buffered == 0
        with client.exclusive():
            pass
        WAITING[name](client)


@in_loop
def test_interrupted_while_a_login_holds_others_back() -> None:
    gate = coro.event()

    def script(peer: Conversation) -> None:
        bind = peer.next()
        gate.wait()
        peer.answer(bind)
        peer.serve()

    with Scripted(script) as server, server.client() as client:
        login = coro.spawn(client.simple_bind, "cn=a", "b")
        while not server.conversations or not server.conversations[0].seen:
            coro.yield_slice()
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.01, client.delete, "cn=x")
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.01, client.simple_bind, "cn=x", "y")
        with pytest.raises(LDAPTimeout, match="login"):
            client.delete("cn=x", timeout=0.01)
        others = [coro.spawn(client.delete, "cn=y") for _ in range(5)]
        others += [coro.spawn(client.simple_bind, "cn=y", "z") for _ in range(5)]
        gate.set()
        login.get()
        for other in others:
            other.get()
        client.delete("cn=x")
        [peer] = server.conversations
        assert len([m for m in peer.seen if isinstance(m.op, BindRequest)]) == 6


@in_loop
def test_a_login_waits_for_the_others_and_is_alone() -> None:
    """RFC 4511, 4.2.1: nothing is sent between a bind and its answer, and nothing is under way."""
    outstanding: set[int] = set()
    worst = []

    def script(peer: Conversation) -> None:
        waiting: list[Message] = []
        while (request := peer.next()) is not None:
            if isinstance(request.op, UnbindRequest):
                return
            if isinstance(request.op, BindRequest):
                worst.append(len(outstanding))
                coro.yield_slice()
                peer.answer(request)
                continue
            outstanding.add(request.id)
            waiting.append(request)
            if peer.decoder._found:
                continue
            for one in waiting:
                outstanding.discard(one.id)
                peer.answer(one)
            waiting.clear()

    with Scripted(script) as server, server.client() as client:
        threads = []
        for n in range(60):
            call = client.simple_bind if n % 3 == 0 else client.compare
            threads.append(coro.spawn(call, *(("cn=a", "b") if n % 3 == 0 else ("cn=a", "b", "c"))))
        for thread in threads:
            thread.get()
        assert worst == [0] * 20


@in_loop
def test_interrupted_while_a_login_waits_for_the_others() -> None:
    def script(peer: Conversation) -> None:
        search = peer.next()
        peer.entry(search)
        peer.serve()

    with Scripted(script) as server, server.client() as client, client.stream(SearchRequest()) as search:
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.01, client.simple_bind, "cn=a", "b")
        with pytest.raises(LDAPTimeout, match="alone"):
            client.simple_bind("cn=a", "b", timeout=0.01)
        client.delete("cn=x")
        search.close()
        client.simple_bind("cn=a", "b")


@in_loop
def test_a_broken_off_login_closes_the_connection() -> None:
    def script(peer: Conversation) -> None:
        while peer.next() is not None:
            pass

    with Scripted(script) as server:
        client = server.client()
        with pytest.raises(LDAPTimeout):
            client.simple_bind("cn=a", "b", timeout=0.01)
        assert not client.alive
        with pytest.raises(ConnectionLost, match="broken off"):
            client.delete("cn=x")
        client = server.client()
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.01, client.simple_bind, "cn=a", "b")
        assert not client.alive and client.link._owner is None


@in_loop
def test_ids_begin_again_at_one_and_skip_those_in_use() -> None:
    def script(peer: Conversation) -> None:
        first = peer.next()
        peer.serve()
        peer.answer(first)

    with Scripted(script) as server, server.client() as client, client.stream(SearchRequest()) as search:
        assert search.message_id == 1
        client.link._last_id = 0x7FFFFFFE
        for _ in range(3):
            client.delete("cn=x")
        [peer] = server.conversations
        assert [message.id for message in peer.seen] == [1, 0x7FFFFFFF, 2, 3]


@in_loop
def test_no_more_operations_under_way_than_allowed() -> None:
    worst = []

    def script(peer: Conversation) -> None:
        waiting: list[Message] = []
        while (request := peer.next()) is not None:
            if isinstance(request.op, UnbindRequest):
                return
            waiting.append(request)
            if peer.decoder._found:
                continue
            worst.append(len(waiting))
            for one in reversed(waiting):
                peer.answer(one)
            waiting.clear()

    with Scripted(script) as server, server.client(max_outstanding=7) as client:
        order = []

        def call(n: int) -> None:
            if n % 10 == 3:
                client.simple_bind("cn=a", "b")
            else:
                client.compare("cn=a", "b", "c")
            order.append(n)

        threads = [coro.spawn(call, n) for n in range(60)]
        for thread in threads:
            thread.get()
        assert max(worst) == 7 and client.statistics().pending == 0
        # Nobody is overtaken: what a login had to wait for was asked before it, what waits for it was asked later.
        for n in range(3, 60, 10):
            assert set(order[: order.index(n)]) == set(range(n))


@in_loop
def test_interrupted_while_too_many_operations_are_under_way() -> None:
    gate = coro.event()

    def script(peer: Conversation) -> None:
        requests = [peer.next(), peer.next()]
        gate.wait()
        for request in requests:
            peer.answer(request)
        peer.serve()

    with Scripted(script) as server, server.client(max_outstanding=2) as client:
        first = [coro.spawn(client.delete, "cn=x") for _ in range(2)]
        coro.yield_slice()
        with pytest.raises(LDAPTimeout, match="one of 2 operations"):
            client.delete("cn=x", timeout=0.01)
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.01, client.delete, "cn=x")
        others = [coro.spawn(client.delete, "cn=x") for _ in range(9)]
        login = coro.spawn(client.simple_bind, "cn=x", "y")
        coro.yield_slice()
        for other in others[:3]:
            other.shutdown()
        gate.set()
        for thread in [*first, *others[3:], login]:
            thread.get()
        client.delete("cn=x")
        assert client.statistics().abandoned == 0
        with pytest.raises(ValueError, match="at least one"):
            server.client(max_outstanding=0)


@in_loop
def test_whoever_stands_in_line_hears_of_the_end() -> None:
    def script(peer: Conversation) -> None:
        peer.next()

    with Scripted(script) as server, server.client(max_outstanding=1) as client:
        for error in fails(client):
            assert isinstance(error, ConnectionLost)


@in_loop
def test_a_request_that_the_kernel_takes_in_pieces() -> None:
    received = []

    def script(peer: Conversation) -> None:
        gate.wait()
        request = peer.next()
        received.append(request.op.attributes["cn"][0])
        peer.answer(request)
        peer.serve()

    gate = coro.event()
    value = b"x" * 8_000_000
    with Scripted(script) as server:
        server.max_message = 1 << 24
        with server.client() as client:
            large = coro.spawn(client.add, "cn=x", {"cn": [value]})
            small = coro.spawn(client.delete, "cn=y")
            coro.yield_slice()
            gate.set()
            large.get()
            small.get()
    assert received == [value]


@in_loop
def test_one_thread_waits_for_one_operation() -> None:
    def script(peer: Conversation) -> None:
        peer.next()
        peer.serve()

    with Scripted(script) as server, server.client() as client:
        pending = client.link.start(SearchRequest())
        waiting = coro.spawn(pending.next, HANG)
        coro.yield_slice()
        with pytest.raises(coro.SimultaneousError):
            pending.next(1)
        pending.give_up()
        with pytest.raises(StateError):
            waiting.get()


@in_loop
def test_nothing_is_behind_the_last_answer() -> None:
    with Scripted() as server, server.client() as client:
        with client.stream(SearchRequest()) as search:
            assert len(list(search)) == 1
        assert list(search) == []
        pending = client.link.start(SearchRequest())
        assert [pending.next(HANG)[0], pending.next(HANG)[0]] == [4, 5]
        for _ in range(2):
            with pytest.raises(StateError, match="no other"):
                pending.next(HANG)
        assert client.link.waiting == 0


def fails(client) -> list[BaseException]:
    """What twenty threads get that wait."""
    threads = [coro.spawn(client.delete, "cn=x") for _ in range(20)]
    found = []
    for thread in threads:
        with pytest.raises(BaseException) as caught:
            thread.get()
        found.append(caught.value)
    return found


@in_loop
def test_everybody_gets_the_notice_of_disconnection() -> None:
    notices = []

    def script(peer: Conversation) -> None:
        peer.next()
        peer.send(Message(0, ExtendedResponse(52, "", "going down", name=NOTICE_OF_DISCONNECTION)))

    with Scripted(script) as server, server.client(on_notice=notices.append) as client:
        for error in fails(client):
            assert isinstance(error, ConnectionLost) and "going down" in str(error)
            assert isinstance(error.__cause__, Unavailable)
        assert [notice.diagnostic for notice in notices] == ["going down"]
        with pytest.raises(ConnectionLost):
            client.whoami()


@in_loop
def test_other_notices_change_nothing() -> None:
    def script(peer: Conversation) -> None:
        request = peer.next()
        peer.send(Message(0, ExtendedResponse(0, name="1.2.3"), (Control("1.2.4"),)))
        peer.answer(request, controls=(Control("1.2.5", False, b"x"),))

    def broken(notice: object) -> None:
        raise ValueError("a mistake of the program")

    with Scripted(script) as server, server.client(on_notice=broken) as client:
        assert client.delete("cn=x").controls == (Control("1.2.5", False, b"x"),)


BROKEN = {
    "no LDAP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a length without end": b"\x30\x84\x7f\xff\xff\xff",
    "an id that is no number": b"\x30\x05\x04\x01\x01\x42\x00",
    "another kind of answer": b"\x30\x0c\x02\x01\x01\x69\x07\x0a\x01\x00\x04\x00\x04\x00",
    "an entry for no search": encode_entry(1, "cn=x", {}),
    "a request": b"\x30\x05\x02\x01\x01\x42\x00",
}


@pytest.mark.parametrize("what", BROKEN)
@in_loop
def test_what_is_no_answer_ends_the_connection_for_all(what: str) -> None:
    def script(peer: Conversation) -> None:
        peer.next()
        peer.send(BROKEN[what])
        while peer.next() is not None:
            pass

    with Scripted(script) as server, server.client() as client:
        for error in fails(client):
            assert isinstance(error, ProtocolError)
        assert not client.alive


@pytest.mark.parametrize("sent", [b"", b"\x30\x0c\x02\x01\x01"])
@in_loop
def test_the_end_of_the_stream(sent: bytes) -> None:
    def script(peer: Conversation) -> None:
        peer.next()
        peer.send(sent)

    with Scripted(script) as server, server.client() as client:
        for error in fails(client):
            assert isinstance(error, ConnectionLost)


@in_loop
def test_a_bad_answer_of_one_operation_is_the_trouble_of_that_one() -> None:
    def script(peer: Conversation) -> None:
        request = peer.next()
        peer.send(b"\x30\x07\x02\x01" + bytes([request.id]) + b"\x6b\x02\x04\x00")
        peer.serve()

    with Scripted(script) as server, server.client() as client:
        with pytest.raises(ProtocolError):
            client.delete("cn=x")
        client.delete("cn=x")


@in_loop
def test_a_refusal_is_no_success_whatever_its_text_is() -> None:
    """The answer to a bind is compared as bytes with that of success; a text that others choose must not look so."""
    text = "a\x07\n\x01\x00\x04\x00\x04\x00"

    def script(peer: Conversation) -> None:
        peer.answer(peer.next(), 49, text)
        peer.serve()

    with Scripted(script) as server, server.client() as client:
        with pytest.raises(InvalidCredentials) as caught:
            client.simple_bind("cn=a", "b")
        assert caught.value.error_string == text
        client.simple_bind("cn=a", "b")
        assert client.bound_as == "cn=a"


@in_loop
def test_results_are_exceptions() -> None:
    def script(peer: Conversation) -> None:
        request = peer.next()
        peer.entry(request)
        peer.answer(request, 51, "later")
        peer.answer(peer.next(), 32)
        peer.answer(peer.next(), 6)
        peer.answer(peer.next(), 5)
        peer.serve()

    with Scripted(script) as server, server.client() as client:
        found = []
        with pytest.raises(Busy, match="later"):
            for entry in client.search_iter("cn=x"):
                found.append(entry.dn)
        assert found == ["cn=x"]
        with pytest.raises(NoSuchObject):
            client.search("cn=x")
        assert client.compare("cn=x", "cn", "x")
        assert not client.compare("cn=x", "cn", "x")


@in_loop
def test_leaving_a_search_early_abandons_it() -> None:
    def script(peer: Conversation) -> None:
        request = peer.next()
        peer.entry(request)
        abandon = peer.next()
        assert isinstance(abandon.op, AbandonRequest) and abandon.op.message_id == request.id
        peer.serve()

    with Scripted(script) as server, server.client() as client:
        for _ in client.search_iter("cn=x"):
            break
        client.delete("cn=x")
        assert client.statistics().pending == 0


@in_loop
def test_a_slow_reader_makes_the_server_wait() -> None:
    sent = [0]

    def script(peer: Conversation) -> None:
        request = peer.next()
        data = encode_entry(request.id, "cn=x", {"cn": [b"x" * 1000]})
        for _ in range(40):
            peer.send(data * 1000)
            sent[0] += 1000
        peer.answer(request)
        peer.serve()

    with Scripted(script) as server, server.client() as client, client.stream(SearchRequest()) as search:
        items = iter(search)
        next(items)
        while client.link._buffered <= link_module.HIGH:
            coro.yield_slice()
        for _ in range(100):
            coro.yield_slice()
        # One read of the smallest entries weighs several times as much as it has bytes.
        assert client.link._buffered <= link_module.HIGH + 16 * link_module.RECEIVED
        assert sent[0] < 40_000
        assert sum(1 for _ in items) == 39_999
        assert client.statistics().buffered == 0


@in_loop
def test_too_much_that_nobody_fetches() -> None:
    def script(peer: Conversation) -> None:
        request = peer.next()
        data = encode_entry(request.id, "cn=x", {"cn": [b"x" * 1000]})
        other = peer.next()
        for _ in range(20):
            peer.send(data * 100)
        peer.answer(other)
        while not isinstance((abandon := peer.next()).op, AbandonRequest):
            pass
        assert abandon.op.message_id == request.id
        peer.serve()

    with Scripted(script) as server, server.client() as client, client.stream(SearchRequest()) as search:
        client.link._limit = 1 << 20
        client.delete("cn=x")
        with pytest.raises(TooMuchBuffered, match="pages"):
            list(search)
        client.delete("cn=x")
        assert client.statistics().buffered == 0


@in_loop
def test_other_operations_while_results_wait() -> None:
    def script(peer: Conversation) -> None:
        request = peer.next()
        data = encode_entry(request.id, "cn=x", {"cn": [b"x" * 1000]})
        for _ in range(40):
            peer.send(data * 100)
        peer.answer(request)
        peer.serve()

    with Scripted(script) as server, server.client() as client, client.stream(SearchRequest()) as search:
        for number, _ in enumerate(search):
            if number % 500 == 0:
                client.delete("cn=x")
        assert number == 3999


@in_loop
def test_intermediate_responses() -> None:
    def script(peer: Conversation) -> None:
        request = peer.next()
        peer.send(Message(request.id, IntermediateResponse("1.2.3", b"x"), (Control("1.2.4"),)))
        peer.answer(request)
        request = peer.next()
        peer.send(Message(request.id, IntermediateResponse("1.2.3", b"x")))
        peer.answer(request)
        peer.serve()

    with Scripted(script) as server, server.client() as client:
        with client.stream(SearchRequest()) as search:
            assert [(item.name, search.controls[0].oid) for item in search] == [("1.2.3", "1.2.4")]
        assert isinstance(search.result, SearchResultDone)
        assert isinstance(client.delete("cn=x"), DelResponse)


@in_loop
def test_closing_says_goodbye_once() -> None:
    with Scripted() as server:
        client = server.client()
        client.delete("cn=x")
        client.close()
        client.unbind()
        assert not client.alive
        with pytest.raises(StateError, match="closed"):
            client.delete("cn=x")
        [peer] = server.conversations
        while len(peer.seen) < 2:
            coro.yield_slice()
        assert isinstance(peer.seen[-1].op, UnbindRequest)


@in_loop
def test_closing_does_not_wait_for_a_peer_that_does_not_read() -> None:
    def script(peer: Conversation) -> None:
        coro.event().wait(HANG)

    with Scripted(script) as server:
        client = server.client()
        threads = [coro.spawn(client.add, "cn=x", {"cn": [b"x" * 900_000]}) for _ in range(20)]
        coro.yield_slice()
        client.link.close(0.01)
        for thread in threads:
            with pytest.raises(StateError):
                thread.get()


@in_loop
def test_abandon_and_repr() -> None:
    def script(peer: Conversation) -> None:
        peer.next()
        peer.serve()

    with Scripted(script) as server, server.client() as client:
        search = client.stream(SearchRequest())
        client.abandon(search.message_id)
        client.abandon(77)
        client.delete("cn=x")
        [peer] = server.conversations
        assert [m.op.message_id for m in peer.seen if isinstance(m.op, AbandonRequest)] == [1, 77]
        assert "clear text" in repr(client) and "0 pending" in repr(client.link) and repr(search) == "<Search 1>"
    assert "closed" in repr(client)


@in_loop
def test_a_connection_that_nobody_accepts_stalls_no_other_thread() -> None:
    """The kernel drops what comes when the queue of a listener is full, as a firewall would."""
    listener = coro.tcp_sock()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    address = listener.getsockname()
    fillers = []
    try:
        while len(fillers) < 20:
            filler = coro.tcp_sock()
            fillers.append(filler)
            with coro.move_on_after(0.05) as scope:
                filler.connect(address)
            if scope.expired:
                break
        turns = []

        def tick() -> None:
            while True:
                turns.append(None)
                coro.sleep_relative(0.005)

        ticker = coro.spawn(tick, daemon=True)
        with pytest.raises((LDAPTimeout, OSError)):
            Client(address, connect_timeout=0.1)
        assert len(turns) > 2
        ticker.shutdown()
    finally:
        for one in (listener, *fillers):
            one.close()
