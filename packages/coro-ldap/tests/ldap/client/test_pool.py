"""The pool: fail-over, turns, one search for all who want the same, logins apart, and a server that restarts."""

from __future__ import annotations

import pytest
from ldap_client_support import HANG, Conversation, Scripted, in_loop
from ldap_server_support import ADMIN, BASE, PASSWORD, Ours, entries

import coro
from coro.ldap import ConnectionLost, LDAPTimeout, LocalError, Pool, StateError
from coro.ldap import pool as groups
from coro.ldap.exceptions import InvalidCredentials
from coro.ldap.protocol import BindRequest, SearchRequest, UnbindRequest

CLOSED = "ldap://127.0.0.1:1"
#: A name that cannot be one, so nobody is asked: no highest domain is a number.
NAMELESS = "ldap://directory.1"


def pool(*servers: Scripted | str, **options) -> Pool:
    urls = [one if isinstance(one, str) else one.url for one in servers]
    return Pool(urls, **{"timeout": HANG, "wait": HANG, **options})


def searches(server: Scripted) -> int:
    return sum(isinstance(one.op, SearchRequest) for peer in server.conversations for one in peer.seen)


@in_loop
def test_one_connection_for_many_searches_one_after_the_other() -> None:
    with Scripted() as server, pool(server) as directory:
        for number in range(5):
            assert len(directory.search(f"cn={number}")) == 1
        assert len(server.conversations) == 1
        assert directory.statistics()[:3] == (0, 1, 1)


@in_loop
def test_the_first_server_is_used_whenever_it_is_up() -> None:
    with Scripted() as one, Scripted() as two, pool(one, two, retry=0) as directory:
        directory.search("cn=1")
        for peer in one.conversations:
            peer.sock.close()
        port = one.port
        one.close()
        directory.search("cn=2")
        directory.search("cn=3")
        assert (searches(one), searches(two)) == (1, 2)
        again = coro.tcp_sock()
        again.bind(("127.0.0.1", port))
        again.listen()
        one.listener = again
        one._threads.append(coro.spawn(one._accept, daemon=True))
        directory.search("cn=4")
        assert (searches(one), searches(two)) == (2, 2)


@in_loop
def test_a_server_that_is_down_is_left_alone_for_a_while() -> None:
    with Scripted() as server, pool(CLOSED, server, retry=1000.0) as directory:
        for number in range(3):
            directory.search(f"cn={number}")
        found = directory.statistics()
        assert found.failed == 1 and found.down == (CLOSED,)


@in_loop
def test_a_server_whose_name_is_not_known_is_as_one_that_is_down() -> None:
    with Scripted() as server, pool(NAMELESS, server, retry=1000.0) as directory:
        for number in range(3):
            assert directory.search(f"cn={number}")
        assert directory.check_password("cn=x", "y")
        found = directory.statistics()
        assert found.failed == 1 and found.down == (NAMELESS,)
    with pool(NAMELESS) as directory, pytest.raises(coro.NameError, match="directory.1"):
        directory.search("cn=x")
    with pool(NAMELESS, CLOSED) as directory, pytest.raises(ConnectionLost, match="directory.1"):
        directory.search("cn=x")


@in_loop
def test_turns() -> None:
    with Scripted() as one, Scripted() as two, pool(one, two, balance=True) as directory:
        for number in range(10):
            directory.search(f"cn={number}")
        assert searches(one) == searches(two) == 5


@in_loop
def test_equal_searches_go_out_once() -> None:
    go = coro.event()

    def script(peer: Conversation) -> None:
        while (request := peer.next()) is not None and not isinstance(request.op, UnbindRequest):
            go.wait()
            peer.entry(request)
            peer.answer(request)

    with Scripted(script) as server, pool(server) as directory:
        with coro.group() as group:
            threads = [group.spawn(directory.search, "cn=x", 2, "(cn=a)") for _ in range(50)]
            while directory.statistics().shared < 49:
                coro.sleep_relative(0)
            go.set()
        assert len(threads) == 50
        assert searches(server) == 1
        directory.search("cn=x", 2, "(cn=a)")  # nothing is kept without ttl
        assert searches(server) == 2


@in_loop
def test_results_are_kept_for_a_while() -> None:
    def script(peer: Conversation) -> None:
        while (request := peer.next()) is not None and not isinstance(request.op, UnbindRequest):
            peer.answer(request, 32)

    with Scripted(script) as server, pool(server, ttl=1000.0, cache_size=2) as directory:
        for name in ("a", "a", "b", "a", "c", "b"):
            assert directory.search(name) == []  # "no such object" is a result, too
        assert searches(server) == 4
        directory.search("b", refresh=True)
        directory.clear()
        directory.search("b")
        assert searches(server) == 6


@in_loop
def test_who_finds_no_free_connection_is_told() -> None:
    with Scripted() as server, pool(server, size=1, wait=0.01) as directory, directory.connection():
        with pytest.raises(LDAPTimeout, match="size"):
            directory.search("cn=x")


@in_loop
def test_errors_reach_the_caller() -> None:
    with pool(CLOSED) as directory, pytest.raises(ConnectionRefusedError):
        directory.search("")
    with pool(CLOSED, CLOSED) as directory, pytest.raises(ConnectionLost, match="127.0.0.1:1.*127.0.0.1:1"):
        directory.search("")

    def script(peer: Conversation) -> None:
        peer.answer(peer.next(), 49)
        peer.serve()

    login = lambda one: one.simple_bind("cn=x", "wrong")  # noqa: E731
    with Scripted(script) as server, pool(server, bind=login) as directory:
        for _ in range(20):  # more often than there are connections: none is lost
            with pytest.raises(InvalidCredentials):
                directory.search("")
    with pytest.raises(LocalError):
        Pool([])


@in_loop
def test_the_login_of_a_user_stays_apart() -> None:
    with Scripted() as server, pool(server, bind=lambda one: one.simple_bind("cn=reader", "x")) as directory:
        with directory.connection() as one:
            assert directory.check_password("cn=user", "y")
            assert one.bound_as == "cn=reader"
            assert not directory.check_password("cn=user", "")
        with directory.connection() as one:
            one.simple_bind("cn=user", "y")
        with directory.connection() as one:  # not the one on which a user has logged in
            assert one.bound_as == "cn=reader"
    names = [[m.op.name for m in peer.seen if isinstance(m.op, BindRequest)] for peer in server.conversations]
    assert names == [["cn=reader", "cn=user"], ["cn=user"], ["cn=reader"]]


LOGINS = {
    "sasl_bind": lambda one: one.sasl_bind("", "EXTERNAL"),
    "simple_bind": lambda one: one.simple_bind("cn=admin", "x"),
    "the same name": lambda one: one.simple_bind("", ""),
    "send_message": lambda one: one.send_message(BindRequest("cn=admin", b"x")),
    "operation": lambda one: one.link.request(BindRequest("cn=admin", b"x"), (), HANG),
}


@pytest.mark.parametrize("how", LOGINS)
@in_loop
def test_nobody_inherits_the_login_of_another(how: str) -> None:
    """A pool without a login: who comes next is nobody, whatever way the one before has logged in."""
    with Scripted() as server, pool(server, size=1) as directory:
        with directory.connection() as one:
            LOGINS[how](one)
        with directory.connection() as two:
            assert two is not one and two.bound_as == ""
        assert not one.alive


@in_loop
def test_nobody_inherits_a_login_that_was_interrupted() -> None:
    """The server says success, the thread is interrupted in the same moment: it is logged in all the same."""
    client: list = []

    def script(peer: Conversation) -> None:
        request = peer.next()
        if isinstance(request.op, BindRequest):
            peer.answer(request)
            until_done(client[0].link._pending.get(request.id))
            threads[0].shutdown()
        peer.serve()

    def until_done(pending) -> None:
        while not pending.done:
            coro.yield_slice()

    def login(directory: Pool) -> None:
        with directory.connection() as one:
            client.append(one)
            one.simple_bind("cn=admin", "x")

    with Scripted(script) as server, pool(server, size=1) as directory:
        threads = [coro.spawn(login, directory)]
        threads[0].join()
        with directory.connection() as two:
            assert two is not client[0]


@in_loop
def test_what_a_block_has_left_under_way_is_closed_with_its_connection() -> None:
    def script(peer: Conversation) -> None:
        peer.entry(peer.next())
        peer.serve()

    with Scripted(script) as server, pool(server, size=1) as directory:
        with directory.connection() as one:
            search = one.stream(SearchRequest())
        with directory.connection() as two:
            assert two is not one and not one.alive
        search.close()


@in_loop
def test_everybody_hears_of_one_failure() -> None:
    """A server that is down is tried once for all who want the same, not by each of them in turn."""
    go = coro.event()

    def login(one) -> None:
        go.wait()
        raise ConnectionResetError("gone")

    with Scripted() as server, pool(server, bind=login, retry=0) as directory:
        threads = [coro.spawn(directory.search, "cn=x") for _ in range(50)]
        while directory.statistics().shared < 49:
            coro.yield_slice()
        coro.spawn(go.set)
        errors = []
        for thread in threads:
            with pytest.raises(ConnectionResetError) as caught:
                thread.get()
            errors.append(caught.value)
        assert directory.statistics().failed == 1
        assert len({id(error) for error in errors}) == 50


@in_loop
def test_what_was_under_way_before_clear_is_not_kept() -> None:
    go = coro.event()

    def script(peer: Conversation) -> None:
        while (request := peer.next()) is not None and not isinstance(request.op, UnbindRequest):
            go.wait()
            peer.answer(request)

    with Scripted(script) as server, pool(server, ttl=1000.0) as directory:
        old = coro.spawn(directory.search, "cn=x")
        while not searches(server):
            coro.yield_slice()
        directory.clear()
        new = coro.spawn(directory.search, "cn=x")  # does not get what was asked before
        while searches(server) < 2:
            coro.yield_slice()
        go.set()
        assert old.get() == new.get() == []
        directory.search("cn=x")
        assert searches(server) == 2  # the second result was kept


@in_loop
def test_no_password_of_a_url_is_shown() -> None:
    url = "ldap://127.0.0.1:1/dc=x????bindname=cn=x,X-BINDPW=secret"
    with pool(url, url, retry=1000.0) as directory:
        with pytest.raises(ConnectionLost) as caught:
            directory.search("")
        assert "secret" not in f"{caught.value}{directory.statistics()}{directory!r}"
        assert directory.statistics().down == ("ldap://127.0.0.1:1",) * 2


@in_loop
def test_a_closed_pool() -> None:
    with Scripted() as server:
        directory = pool(server)
        with directory.connection() as one:
            directory.close()
            assert not one.alive
        directory.close()
        with pytest.raises(StateError):
            directory.search("")
        assert directory.statistics()[:2] == (0, 0)


@in_loop
def test_an_interrupted_thread_gives_its_place_back() -> None:
    with Scripted(lambda peer: peer.next() and peer.next()) as server, pool(server, size=1) as directory:
        for _ in range(3):
            with coro.move_on_after(0.01):
                directory.search("cn=x")
        assert directory.statistics().lent == 0


@pytest.mark.slow
def test_a_server_restarts_below_a_hundred_threads() -> None:
    with Ours(entries(20)) as first, Ours(entries(20)) as second:
        found: list[int] = []

        @in_loop
        def run() -> None:
            killed = coro.event()

            def search(number: int, directory: Pool) -> None:
                for turn in range(10):
                    if number == 0 and turn == 5:
                        first.kill()
                        killed.set()
                    elif turn == 5:
                        killed.wait()
                    found.append(len(directory.search(BASE, 2, f"(uid=u{(number + turn) % 20})")))

            with pool(first.url, second.url, size=20, bind=lambda one: one.simple_bind(ADMIN, PASSWORD)) as directory:
                with coro.group() as group:
                    for number in range(100):
                        group.spawn(search, number, directory)
                assert first.url in directory.statistics().down

        run()
        assert found == [1] * 1000


@in_loop
def test_groups_of_servers_by_their_names() -> None:
    with Scripted() as server:
        try:
            made = groups.create_server_group("people", [server.url], timeout=HANG, ttl=1000.0)
            other = groups.create_server_group("hosts", [server.url], timeout=HANG)
            assert groups.get_server_group("people") is made
            assert groups.server_groups() == {"people": made, "hosts": other}
            with pytest.raises(StateError, match="no server group has, 'people' is <Pool of 1 LDAP servers"):
                groups.create_server_group("people", [server.url])
            with pytest.raises(LocalError, match=r"\(hosts, people\), got 'printers'"):
                groups.get_server_group("printers")
            for _ in range(3):
                made.search("cn=1")
            assert searches(server) == 1
            groups.clear_all_caches()
            made.search("cn=1")
            assert searches(server) == 2
            groups.remove_server_group("people")
            with pytest.raises(StateError):
                made.search("cn=1")
            groups.create_server_group("people", [server.url])
        finally:
            groups.remove_all_server_groups()
        assert groups.server_groups() == {}
        with pytest.raises(LocalError, match=r"\(none\)"):
            groups.remove_server_group("people")


@in_loop
def test_an_empty_password_is_no_login() -> None:
    """Servers take it for nobody and answer with success (RFC 4513, 5.1.2), so it is never sent."""
    with Scripted() as server, pool(server) as directory:
        for empty in ("", b""):
            assert not directory.check_password("cn=somebody", empty)
            with directory.connection() as link, pytest.raises(LocalError, match="let everybody in"):
                link.simple_bind("cn=somebody", empty)
        assert not any(isinstance(one.op, BindRequest) for peer in server.conversations for one in peer.seen)
