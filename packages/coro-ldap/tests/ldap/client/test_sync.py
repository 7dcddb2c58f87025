"""The listener against a server that does what a test says: phases, cookies, refusals, losses, interruptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

import pytest
from ldap_client_support import HANG, Conversation, Scripted, in_loop

import coro
from coro.ldap import ConnectionLost, LDAPTimeout, LocalError, ProtocolError, StateError, controls, sync
from coro.ldap.controls import SyncDone, SyncInfo, SyncRequest, SyncState
from coro.ldap.exceptions import InvalidCredentials, NoSuchObject, SyncRefreshRequired
from coro.ldap.protocol import (
    AbandonRequest,
    BindRequest,
    Entry,
    IntermediateResponse,
    Message,
    SearchRequest,
    SearchResultReference,
    UnbindRequest,
    encode_controls,
    encode_entry,
)
from coro.ldap.sync import (
    Changed,
    Copy,
    Deleted,
    Event,
    Listener,
    Lost,
    NewCookie,
    Present,
    Reference,
    Refreshed,
    Refreshing,
)

PRESENT, ADD, MODIFY, DELETE = range(4)


def uuid(number: int) -> UUID:
    return UUID(int=number)


class Provider:
    """What a server of synchronisations sends."""

    def __init__(self, peer: Conversation) -> None:
        self.peer = peer

    def search(self) -> SyncRequest:
        """The next synchronisation that is asked for; other questions are answered."""
        while True:
            message = self.peer.next()
            if message is None or isinstance(message.op, UnbindRequest):
                raise EOFError
            if isinstance(message.op, BindRequest):
                self.peer.answer(message)
                continue
            if isinstance(message.op, AbandonRequest):
                continue
            assert isinstance(message.op, SearchRequest)
            found = [one for one in controls.parse(message.controls, request=True) if isinstance(one, SyncRequest)]
            if found:
                self.request = message
                return found[0]
            self.peer.entry(message, "")
            self.peer.answer(message)

    def entry(self, number: int, state: int = ADD, cookie: bytes | None = None, dn: str | None = None) -> None:
        attributes = {} if state in (PRESENT, DELETE) else {"cn": [b"%d" % number]}
        more = encode_controls([SyncState(state, uuid(number), cookie).control()])
        self.peer.send(encode_entry(self.request.id, f"cn={number}" if dn is None else dn, attributes, controls=more))

    def reference(self, number: int, state: int = ADD, *urls: str) -> None:
        more = (SyncState(state, uuid(number)).control(),)
        self.peer.send(Message(self.request.id, SearchResultReference(urls), more))

    def info(self, kind: str, cookie: bytes | None = None, done: bool = True, deletes: bool = False, *ids: int) -> None:
        value = SyncInfo(kind, cookie, done, deletes, tuple(map(uuid, ids))).encoded()
        self.peer.send(Message(self.request.id, IntermediateResponse(SyncInfo.oid, value), ()))

    def done(self, cookie: bytes | None = None, deletes: bool = False, code: int = 0) -> None:
        self.peer.answer(self.request, code, controls=(SyncDone(cookie, deletes).control(),))

    def until_gone(self) -> None:
        while True:
            self.search()


def provided(script: Callable[[Provider], object]) -> Scripted:
    def serve(peer: Conversation) -> None:
        script(Provider(peer))

    return Scripted(serve)


def listener(server: Scripted | str, **options) -> Listener:
    url = server if isinstance(server, str) else server.url
    return Listener(url, "dc=x", **{"timeout": HANG, "retry": (0, 0), **options})


def all_gone(server: Scripted) -> None:
    """Wait until the server has seen the end of each connection."""
    for thread in server._threads[1:]:
        thread.join()


def take(source: Iterator[Event], number: int) -> list[Event]:
    return [next(source) for _ in range(number)]


def shown(events: list[Event]) -> list[tuple]:
    """Events in short: the kind, numbers, the cookie."""
    found = []
    for one in events:
        match one:
            case Changed() | Reference():
                found.append((type(one).__name__, one.uuid.int, one.state, one.cookie))
            case Present() | Deleted():
                found.append((type(one).__name__, *[u.int for u in one.uuids], one.cookie))
            case Refreshing():
                found.append(("Refreshing", one.full))
            case Refreshed():
                found.append(("Refreshed", one.complete, one.cookie))
            case Lost():
                found.append(("Lost", type(one.error).__name__))
            case NewCookie():
                found.append(("NewCookie", one.cookie))
    return found


@in_loop
def test_once() -> None:
    """refreshOnly: the first content, then a poll with present and delete phases (RFC 4533, 3.3)."""
    asked = []

    def script(server: Provider) -> None:
        asked.append(server.search())
        if asked[-1].cookie is None:
            server.entry(1)
            server.entry(2)
            server.reference(3, ADD, "ldap://other/dc=x")
            server.done(b"first")
        else:
            server.entry(4)
            server.info("ids", b"early", True, False, 2, 5)
            server.entry(6, PRESENT)
            server.info("present", b"half", False)
            server.info("ids", None, True, True, 5)
            server.entry(6, DELETE)
            server.reference(3, DELETE)
            server.done(b"second", True)
        server.until_gone()

    with provided(script) as server:
        first = list(listener(server, persist=False))
        assert shown(first) == [
            ("Refreshing", True),
            ("Changed", 1, "add", None),
            ("Changed", 2, "add", None),
            ("Reference", 3, "add", None),
            ("Refreshed", True, b"first"),
        ]
        assert first[1].entry == Entry("cn=1", {"cn": [b"1"]}) and first[3].urls == ("ldap://other/dc=x",)
        one = listener(server, persist=False, cookie=b"first")
        second = list(one)
        assert shown(second) == [
            ("Refreshing", False),
            ("Changed", 4, "add", None),
            ("Present", 2, 5, None),
            ("Present", 6, None),
            ("Deleted", 5, None),
            ("Deleted", 6, None),
            ("Deleted", 3, None),
            ("Refreshed", True, b"second"),
        ]
        assert second[5].dn == "cn=6"
        assert one.cookie == b"second" and list(one) == [] and "closed" in repr(one)
        assert one.statistics() == (1, 0, 8, 1, 0)
        assert asked == [SyncRequest(1), SyncRequest(1, b"first", True)]


@pytest.mark.parametrize("deletes", [False, True])
@in_loop
def test_what_is_gone_after_a_poll(deletes: bool) -> None:
    """Behind a delete phase only what was named is gone; behind a present phase, all that was not."""

    def script(server: Provider) -> None:
        server.search()
        server.entry(2, ADD)
        server.done(b"new", deletes)
        server.until_gone()

    before = {uuid(n): Entry(f"cn={n}", {}) for n in (1, 2, 3)}
    with provided(script) as server:
        copy = Copy(before.items(), b"old")
        changes = [
            change for event in listener(server, persist=False, cookie=copy.cookie) for change in copy.apply(event)
        ]
        assert sorted(one.int for one in copy) == ([1, 2, 3] if deletes else [2])
        assert copy.cookie == b"new" and len(changes) == (1 if deletes else 3)


@in_loop
def test_going_on() -> None:
    """refreshAndPersist: the end of the refresh, then changes with cookies (RFC 4533, 3.4)."""

    def script(server: Provider) -> None:
        assert server.search() == SyncRequest(3)
        server.entry(1, cookie=b"not yet")
        server.info("cookie", b"nor this")
        server.info("present")
        server.entry(1, MODIFY, b"2")
        server.entry(7, ADD, b"3")
        server.info("cookie", b"4")
        server.info("ids", b"5", True, True, 1, 7)
        server.entry(8, DELETE, None, "")
        server.reference(9, MODIFY, "ldap://a")
        server.peer.send(Message(server.request.id, IntermediateResponse("1.2.3", b"of somebody else"), ()))
        server.info("cookie", b"6")
        server.until_gone()

    with provided(script) as server, listener(server) as one:
        seen = []
        for event in one:
            seen.append(event)
            assert one.cookie == (event.cookie or one.cookie)
            if event.cookie == b"6":
                break
        assert shown(seen) == [
            ("Refreshing", True),
            ("Changed", 1, "add", None),
            ("Refreshed", True, b"nor this"),
            ("Changed", 1, "modify", b"2"),
            ("Changed", 7, "add", b"3"),
            ("NewCookie", b"4"),
            ("Deleted", 1, 7, b"5"),
            ("Deleted", 8, None),
            ("Reference", 9, "modify", None),
            ("NewCookie", b"6"),
        ]
        assert "following" in repr(one)


@in_loop
def test_reconnects_with_the_last_cookie() -> None:
    asked = []

    def script(server: Provider) -> None:
        asked.append(server.search())
        if len(asked) == 1:
            server.entry(1)
            server.info("delete", b"1")
            server.entry(2, ADD, b"2")
            server.entry(3, ADD)
        elif len(asked) == 2:
            # Lost in the middle of a refresh: what came with it is no place to begin.
            server.entry(3, cookie=b"no")
            server.info("ids", b"no", True, False, 1, 2)
        elif len(asked) == 3:
            server.entry(3)
            server.info("present", b"3")
            server.until_gone()
        server.peer.sock.close()

    with provided(script) as server, listener(server, bind=lambda c: c.simple_bind("cn=a", "b")) as one:
        seen = take(one, 13)
        assert shown(seen) == [
            ("Refreshing", True),
            ("Changed", 1, "add", None),
            ("Refreshed", True, b"1"),
            ("Changed", 2, "add", b"2"),
            ("Changed", 3, "add", None),
            ("Lost", "ConnectionLost"),
            ("Refreshing", False),
            ("Changed", 3, "add", None),
            ("Present", 1, 2, None),
            ("Lost", "ConnectionLost"),
            ("Refreshing", False),
            ("Changed", 3, "add", None),
            ("Refreshed", True, b"3"),
        ]
        assert [request.cookie for request in asked] == [None, b"2", b"2"]
        assert one.statistics() == (3, 2, 13, 2, 1)


@in_loop
def test_a_name_that_is_not_found_is_looked_up_again() -> None:
    """It may be that the server of names is restarted, too."""
    with listener("ldap://directory.1") as one:
        assert shown(take(one, 3)) == [("Lost", "ResolverNameError")] * 3
    with listener("ldap://directory.1", retry=None) as one, pytest.raises(coro.NameError):
        next(one)


@in_loop
def test_cookies_without_a_state() -> None:
    """slapd sends "rid=000" with some changes; to begin with that would leave deleted entries behind."""
    asked = []

    def script(server: Provider) -> None:
        asked.append(server.search())
        server.entry(1)
        server.info("delete", b"rid=000,csn=1" if len(asked) < 3 else b"rid=001,sid=0a1")
        server.entry(2, ADD, b"rid=000")
        server.info("cookie", b"rid=000,sid=001")
        server.entry(3, DELETE, None)
        server.peer.sock.close()

    with provided(script) as server, listener(server) as one:
        seen = take(one, 9)
        assert [event.cookie for event in seen if event.cookie] == [b"rid=000,csn=1"] * 2
        assert shown(seen)[5:9] == [
            ("Lost", "ConnectionLost"),
            ("Refreshing", False),
            ("Changed", 1, "add", None),
            ("Refreshed", False, b"rid=000,csn=1"),
        ]
    # Programs begin with such a one to tell the server who they are: that is no state.
    with provided(script) as server, listener(server, cookie=b"rid=123") as one:
        assert shown(take(one, 3)) == [
            ("Refreshing", True),
            ("Changed", 1, "add", None),
            ("Refreshed", True, None),
        ]
    assert [request.cookie for request in asked] == [None, b"rid=000,csn=1", b"rid=123"]


@in_loop
def test_pauses_grow_and_a_refresh_makes_them_short_again() -> None:
    with Listener("ldap://127.0.0.1:1", "dc=x", retry=(0.001, 0.004)) as one:
        seen = take(one, 4)
        assert [type(event) for event in seen] == [Lost] * 4
        assert [event.pause for event in seen] == [0.001, 0.002, 0.004, 0.004]
        assert isinstance(seen[0].error, OSError)
    with Listener("ldap://127.0.0.1:1", "dc=x", retry=None) as one:
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                next(one)


@pytest.mark.parametrize("code", [51, 52])
@in_loop
def test_a_busy_server_is_asked_again(code: int) -> None:
    asked = []

    def script(server: Provider) -> None:
        asked.append(server.search())
        if len(asked) == 1:
            server.done(code=code)
        else:
            server.done(b"1")
        server.until_gone()

    with provided(script) as server:
        seen = shown(list(listener(server, persist=False)))
        assert [one[0] for one in seen] == ["Refreshing", "Lost", "Refreshing", "Refreshed"]


# ---- the server cannot go on from the cookie (RFC 4533, 3.8)


@in_loop
def test_a_stale_cookie_leads_to_everything() -> None:
    asked = []

    def script(server: Provider) -> None:
        while True:
            asked.append(server.search())
            if asked[-1].cookie is None:
                server.entry(2)
                server.info("present", b"new")
            else:
                server.entry(9, PRESENT)  # RFC 4533, 3.8: some may come before
                server.peer.answer(server.request, 4096)

    with provided(script) as server, listener(server, cookie=b"stale") as one:
        copy = Copy({uuid(1): Entry("cn=1"), uuid(2): Entry("cn=2")}.items(), b"stale")
        seen = take(one, 5)
        assert shown(seen) == [
            ("Refreshing", False),
            ("Present", 9, None),
            ("Refreshing", True),
            ("Changed", 2, "add", None),
            ("Refreshed", True, b"new"),
        ]
        for event in seen:
            copy.apply(event)
        assert list(copy) == [uuid(2)] and copy.cookie == b"new"
        assert asked == [SyncRequest(3, b"stale", True), SyncRequest(3)]
        assert one.statistics().connected == 1 and one.statistics().full == 1


@in_loop
def test_a_stale_cookie_is_an_error_if_wanted() -> None:
    asked = []

    def script(server: Provider) -> None:
        while True:
            asked.append(server.search())
            server.peer.answer(server.request, 4096, "too old")

    with provided(script) as server, listener(server, cookie=b"stale", reload=False) as one:
        assert shown(take(one, 1)) == [("Refreshing", False)]
        with pytest.raises(SyncRefreshRequired, match="too old"):
            next(one)
        assert one.cookie == b"stale" and asked == [SyncRequest(3, b"stale", False)]
    # Without a cookie there is nothing to fall back to.
    with provided(script) as server, listener(server) as one:
        next(one)
        with pytest.raises(SyncRefreshRequired):
            next(one)


@in_loop
def test_a_refusal_while_changes_come_may_bring_a_cookie() -> None:
    asked = []

    def script(server: Provider) -> None:
        while True:
            asked.append(server.search().cookie)
            if len(asked) == 1:
                server.info("delete", b"1")
                server.done(b"from here", code=4096)
            elif len(asked) == 2:
                server.info("delete", b"2")
                server.done(code=4096)
            else:
                server.info("present", b"3")

    with provided(script) as server, listener(server) as one:
        assert [type(event) for event in take(one, 6)] == [Refreshing, Refreshed] * 3
        assert asked == [None, b"from here", None]


@in_loop
def test_a_server_that_refuses_for_ever_is_not_asked_in_a_circle() -> None:
    """Two refusals one after the other count as a loss, with its pause."""

    def script(server: Provider) -> None:
        while True:
            server.search()
            server.done(b"another", code=4096)

    with provided(script) as server, listener(server, cookie=b"x", retry=(0.001, 0.004)) as one:
        kinds = [one[0] for one in shown(take(one, 8))]
        assert kinds == ["Refreshing", "Refreshing", "Lost"] + ["Refreshing", "Lost"] * 2 + ["Refreshing"]


# ---- what is no synchronisation


def no_control(server: Provider) -> None:
    server.search()
    server.peer.entry(server.request)


def bad_state(server: Provider) -> None:
    server.search()
    server.entry(1, 4)


def short_uuid(server: Provider) -> None:
    server.search()
    value = SyncState(1, uuid(1)).encoded().replace(b"\x04\x10" + bytes(15), b"\x04\x0f" + bytes(14))
    value = value[:1] + bytes([value[1] - 1]) + value[2:]
    more = encode_controls([controls.Control(SyncState.oid, False, value)])
    server.peer.send(encode_entry(server.request.id, "cn=1", {}, controls=more))


def plain_reference(server: Provider) -> None:
    server.search()
    server.peer.send(Message(server.request.id, SearchResultReference(("ldap://a",)), ()))


def bad_info(server: Provider) -> None:
    server.search()
    server.peer.send(Message(server.request.id, IntermediateResponse(SyncInfo.oid, b"\xa7\x00"), ()))


def no_info(server: Provider) -> None:
    server.search()
    server.peer.send(Message(server.request.id, IntermediateResponse(SyncInfo.oid, None), ()))


def no_done(server: Provider) -> None:
    server.search()
    server.peer.answer(server.request)


def bad_done(server: Provider) -> None:
    server.search()
    server.peer.answer(server.request, controls=(controls.Control(SyncDone.oid, False, b"junk"),))


def no_ldap(server: Provider) -> None:
    server.search()
    server.peer.send(b"HTTP/1.0 400 Bad request\r\n\r\n")


def twice(server: Provider) -> None:
    server.search()
    server.info("present", b"1")
    server.info("present", b"2")


WRONG = [no_control, bad_state, short_uuid, plain_reference, bad_info, no_info, no_done, bad_done, no_ldap, twice]


@pytest.mark.parametrize("script", WRONG, ids=lambda one: one.__name__)
@in_loop
def test_no_synchronisation(script: Callable[[Provider], None]) -> None:
    def serve(server: Provider) -> None:
        script(server)
        server.until_gone()

    with provided(serve) as server, listener(server) as one:
        with pytest.raises(ProtocolError):
            for event in one:
                assert isinstance(event, (Refreshing, Refreshed))
        # The next one begins again.
        assert next(one) == Refreshing(one.cookie is None)
        assert one.statistics().connected == 2
        one.close()
        all_gone(server)


@in_loop
def test_other_results_are_raised() -> None:
    def script(server: Provider) -> None:
        server.search()
        server.peer.answer(server.request, 32, "no base")
        server.until_gone()

    with provided(script) as server, listener(server) as one:
        next(one)
        with pytest.raises(NoSuchObject, match="no base"):
            next(one)


@in_loop
def test_a_server_that_ends_what_was_to_go_on() -> None:
    asked = []

    def script(server: Provider) -> None:
        while True:
            asked.append(server.search().cookie)
            if len(asked) == 1:
                server.info("present", b"1")
                server.done(b"2")
            else:
                server.info("delete")

    with provided(script) as server, listener(server) as one:
        assert shown(take(one, 6)) == [
            ("Refreshing", True),
            ("Refreshed", True, b"1"),
            ("NewCookie", b"2"),
            ("Lost", "ConnectionLost"),
            ("Refreshing", False),
            ("Refreshed", False, None),
        ]
        assert asked == [None, b"2"]


@in_loop
def test_a_login_that_is_refused_is_raised() -> None:
    def script(peer: Conversation) -> None:
        peer.answer(peer.next(), 49, "wrong")
        peer.serve()

    with Scripted(script) as server:
        one = listener(server, bind=lambda c: c.simple_bind("cn=a", "b"))
        with pytest.raises(InvalidCredentials):
            next(one)
        assert one.statistics().connected == 0
        all_gone(server)


# ---- waiting, interruptions, the end


def listen(server: Provider) -> None:
    while server.peer.next() is not None:
        pass


def stuck_refresh(server: Provider) -> None:
    server.search()
    server.entry(1)
    listen(server)


def stuck_later(server: Provider) -> None:
    server.search()
    server.info("present", b"1")
    listen(server)


BLOCKING = {
    "login": listen,
    "refresh": stuck_refresh,
    "persist": stuck_later,
    "probe": stuck_later,
    "pause": None,
}


def stuck(where: str) -> tuple[Scripted | None, Listener, Callable[[], bool]]:
    """A listener whose next event does not come, and how to see that it waits there."""
    script = BLOCKING[where]
    if script is None:
        one = Listener("ldap://127.0.0.1:1", "dc=x", retry=(1000.0, 1000.0))
        take(one, 1)
        return None, one, lambda: True
    server = provided(script)
    bind = (lambda c: c.simple_bind("cn=a", "b")) if where == "login" else None
    one = listener(server, bind=bind, probe=0.0 if where == "probe" else 1000.0)
    take(one, {"login": 0, "refresh": 2, "persist": 2, "probe": 2}[where])

    def waits() -> bool:
        [peer] = server.conversations or [None]
        return peer is not None and len(peer.seen) >= 1

    return server, one, waits


@pytest.mark.parametrize("how", ["with_timeout", "shutdown", "close"])
@pytest.mark.parametrize("where", BLOCKING)
@in_loop
def test_interrupted(where: str, how: str) -> None:
    server, one, waits = stuck(where)
    result = []

    def ask() -> None:
        result.append(next(one, "the end"))

    if how == "with_timeout":
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.01, next, one)
    else:
        thread = coro.spawn(ask)
        while not (waits() and one._asking):
            coro.yield_slice()
        for _ in range(3):
            coro.yield_slice()
        if how == "shutdown":
            thread.shutdown()
            thread.join()
            assert result == []
        else:
            one.close()
            thread.get()
            assert result == ["the end"]
    # Nobody waits, and it may be asked again or closed.
    assert not one._asking
    one.close()
    one.close()
    assert list(one) == []
    if server is not None:
        all_gone(server)
        server.close()


@in_loop
def test_nothing_is_lost_by_asking_with_a_limit() -> None:
    """An interrupted `next` does not end the search: changes go on from there, on the same connection."""
    gate = coro.event()

    def script(server: Provider) -> None:
        server.search()
        server.info("present", b"0")
        for number in range(1, 4):
            gate.wait()
            gate.clear()
            server.entry(number, ADD, b"%d" % number)
        server.until_gone()

    with provided(script) as server, listener(server) as one:
        take(one, 2)
        for number in range(1, 4):
            with pytest.raises(coro.TimeoutError):
                coro.with_timeout(0.001, next, one)
            gate.set()
            assert shown([next(one)]) == [("Changed", number, "add", b"%d" % number)]
        assert one.statistics()[:2] == (1, 0)
        assert one._client.statistics().abandoned == 0


@in_loop
def test_one_thread_at_a_time() -> None:
    server, one, _ = stuck("persist")
    thread = coro.spawn(next, one, None)
    while not one._asking:
        coro.yield_slice()
    with pytest.raises(StateError, match="one thread"):
        next(one)
    one.close()
    thread.get()
    server.close()


@in_loop
def test_a_silent_server_is_asked_whether_it_is_there() -> None:
    """It answers, so the search goes on; it does not, so there is a new connection."""
    probes = []
    frozen = False

    def script(server: Provider) -> None:
        server.search()
        server.info("present", b"1")
        while True:
            message = server.peer.next()
            if message is None or frozen:
                coro.event().wait(HANG)
            if isinstance(message.op, SearchRequest):
                probes.append(message.op)
                server.peer.answer(message, 32 if len(probes) == 2 else 0)
                if len(probes) == 3:
                    server.entry(1, ADD, b"2")

    with provided(script) as server, listener(server, probe=0.001) as one:
        assert shown(take(one, 3))[2] == ("Changed", 1, "add", b"2")
        assert len(probes) >= 3 and (probes[0].base, probes[0].scope) == ("", 0)
        assert one.statistics().connected == 1
        frozen = True
        one._client.default_timeout = 0.01
        [lost] = take(one, 1)
        assert isinstance(lost, Lost) and isinstance(lost.error, LDAPTimeout)
        assert take(one, 2)[1].cookie == b"1"


@pytest.mark.parametrize("step", range(1, 12))
@in_loop
def test_cut_behind_each_message(step: int) -> None:
    """Wherever the connection breaks, the copy becomes what the server has, without a doubt about what is gone."""
    sent = 0

    def script(server: Provider) -> None:
        first = True

        def count(call: Callable[..., None], *args) -> None:
            nonlocal sent
            sent += 1
            if sent == step:
                server.peer.sock.close()
                raise EOFError
            call(*args)

        cookie = server.search().cookie
        if cookie is None:
            for number in (1, 2, 3):
                count(server.entry, number)
            count(server.info, "present", b"a")
        if cookie in (None, b"a"):
            if cookie is None:
                first = False
            if first:
                count(server.info, "ids", None, True, False, 1, 2, 3)
                count(server.info, "present", b"a")
            count(server.entry, 4, ADD)
            count(server.entry, 1, DELETE, b"b")
        if cookie == b"b":
            count(server.info, "ids", None, True, False, 2, 3, 4)
            count(server.info, "present", b"b")
        count(server.entry, 5, ADD, b"c")
        server.until_gone()

    with provided(script) as server, listener(server) as one:
        copy = Copy()
        for event in one:
            copy.apply(event)
            if event.cookie == b"c":
                break
        assert sorted(found.int for found in copy) == [2, 3, 4, 5] and copy.cookie == b"c"


@pytest.mark.parametrize("options", [{"retry": (2, 1)}, {"retry": (-1, 1)}])
def test_wrong_arguments(options: dict) -> None:
    with pytest.raises(LocalError):
        Listener("ldap://a", **options)
    with pytest.raises(TypeError):
        Listener("ldap://a", cookie="text")
    with pytest.raises(LocalError):
        Listener("ldap://a", filter="(a=")


def test_no_password_of_a_url_is_shown() -> None:
    one = Listener("ldap://host/dc=x????bindname=cn=a,X-BINDPW=geheim")
    assert repr(one) == "<Listener of ldap://host:389, not connected>"
    assert "geheim" not in repr(Listener(("127.0.0.1", 389)))


# ---- the copy


def changed(number: int, dn: str, state: str = "modify") -> Changed:
    return Changed(uuid(number), Entry(dn, {}), state)


def names(copy: Copy) -> dict[int, str]:
    return {one.int: entry.dn for one, entry in copy.items()}


def test_a_rename_takes_along_what_is_below() -> None:
    tree = {1: "ou=a,dc=x", 2: "cn=p,ou=A,dc=x", 3: "cn=q,cn=p,ou=a,dc=x", 4: "cn=p,ou=aa,dc=x", 5: "dc=x"}
    copy = Copy((uuid(number), Entry(dn, {})) for number, dn in tree.items())
    changes = copy.apply(changed(1, "ou=b,dc=y"))
    assert names(copy) == {1: "ou=b,dc=y", 2: "cn=p,ou=b,dc=y", 3: "cn=q,cn=p,ou=b,dc=y", 4: tree[4], 5: tree[5]}
    assert [(one.uuid.int, one.before.dn, one.after.dn) for one in changes] == [
        (number, tree[number], names(copy)[number]) for number in (1, 2, 3)
    ]
    assert copy.apply(changed(1, "ou=b,dc=y")) == []


def test_names_that_were_exchanged_in_one_refresh() -> None:
    tree = {1: "ou=a", 2: "ou=b", 3: "cn=p,ou=a", 4: "cn=p,ou=b", 5: "cn=q,cn=p,ou=a"}
    copy = Copy((uuid(number), Entry(dn, {})) for number, dn in tree.items())
    copy.apply(Refreshing(False))
    for number, dn in ((1, "ou=b"), (2, "ou=a"), (4, "cn=r,ou=a")):
        copy.apply(changed(number, dn, "add"))
    copy.apply(Refreshed(False, cookie=b"1"))
    assert names(copy) == {1: "ou=b", 2: "ou=a", 3: "cn=p,ou=b", 4: "cn=r,ou=a", 5: "cn=q,cn=p,ou=b"}
    assert copy.cookie == b"1" and len(copy) == 5 and copy[uuid(2)].dn == "ou=a"


def test_an_entry_that_becomes_a_reference_leaves_the_copy() -> None:
    copy = Copy([(uuid(1), Entry("cn=1"))])
    [change] = copy.apply(Reference(uuid(1), ("ldap://a",), "modify"))
    assert change.after is None and not copy
    assert repr(copy) == "<Copy of 0 entries>"
    assert copy.apply(Lost(ConnectionLost("x"), 1.0)) == copy.apply(Deleted((uuid(5),))) == []


def test_all_names() -> None:
    assert all(hasattr(sync, name) for name in sync.__all__)
