"""What one client can take of the LDAP server: memory, time of the processor, connections, and what it can learn."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ldap_server_support import ADMIN, BASE, PASSWORD, bind_request, search_request

import coro
from coro.ldap import query
from coro.ldap._wire import Framer, encode_message
from coro.ldap.server import Directory, Limits, Refused, Rule, Server, hash_password
from coro.ldap.server._hashing import Hashing, Pace
from coro.ldap.server._operations import Turns
from coro.ldap.server._places import Place, Places, client_of
from coro.ldap.server.access import Level
from coro.ldap.server.matching import UNITS, Matcher, Work

LIMIT = 30.0


def people(count: int, size: int = 1000) -> Directory:
    directory = Directory(BASE)
    directory.add(BASE, {"objectClass": ["domain"], "dc": ["example"]})
    for number in range(count):
        directory.add(f"uid=u{number},{BASE}", {"objectClass": ["account"], "description": ["a" * size]})
    return directory


class Client:
    """A client in a thread of the server's loop, which sends any operation."""

    def __init__(self, server: Server) -> None:
        self.sock: Any = coro.tcp_sock()
        self.sock.connect(server.addresses[0])
        self._framer = Framer(entries=False)
        self._messages: list[Any] = []
        self._last = 0

    def send(self, op: bytes) -> None:
        self._last += 1
        self.sock.sendall(encode_message(self._last, op))

    def receive(self) -> tuple[int, int]:
        """The id and the tag of the next message.  EOFError at the end."""
        while not self._messages:
            data = coro.with_timeout(LIMIT, self.sock.recv, 65536)
            if not data:
                raise EOFError
            self._messages += self._framer.receive(data)
        identity, tag, _ = self._messages.pop(0)
        return identity, tag

    def ended(self) -> bool:
        """Wait for the end; whether there was a notice of disconnection before."""
        noticed = False
        try:
            while True:
                noticed = self.receive() == (0, 24) or noticed
        except (EOFError, ConnectionResetError):
            return noticed


def running(function: Callable[[Server], object], directory: Directory | None = None, **options: Any) -> None:
    def main() -> None:
        with (
            coro.timeout(LIMIT),
            Server(directory or people(0), ("127.0.0.1", 0), admins={ADMIN: PASSWORD}, **options) as server,
        ):
            function(server)

    coro.run(main)


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        coro.sleep_relative(0.005)


# -- results that nobody takes


@pytest.mark.slow
def test_one_search_of_a_connection_goes_on() -> None:
    """The others of a client that does not read wait as the bytes that came."""

    def attack(server: Server) -> None:
        client = Client(server)
        client.send(bind_request(ADMIN, PASSWORD))
        assert client.receive() == (1, 1)
        for _ in range(6):
            client.send(search_request())
        until(lambda: server.pending == 6 and server.unsent > 0)
        assert server.statistics()["search"] == 1
        assert server.unsent <= server.chunk + 2000
        done = []
        while len(done) < 6:
            identity, tag = client.receive()
            if tag == 5:
                done.append(identity)
        assert done == list(range(2, 8))
        until(lambda: server.pending == server.queued == server.unsent == 0)

    # Enough that it does not fit into the buffers of the kernel.
    running(attack, people(6000))


@pytest.mark.slow
def test_who_takes_nothing_for_longest_is_cut_off() -> None:
    def attack(server: Server) -> None:
        clients = []
        for number in range(4):
            client = Client(server)
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.send(bind_request(ADMIN, PASSWORD))
            assert client.receive() == (1, 1)
            client.send(search_request())
            clients.append(client)
            until(lambda number=number: server.counted["search"] == number + 1 and server.unsent > 0)
        until(lambda: server.counted["cut off"] > 0)
        assert not server.unsent > 4 * server.limits.unsent
        client = Client(server)
        client.send(bind_request(ADMIN, PASSWORD))
        assert client.receive() == (1, 1)

    running(attack, people(6000), limits=Limits(unsent=10_000))


def test_many_operations_leave_a_share_for_others() -> None:
    def shares(server: Server) -> None:
        class Some:
            def __init__(self, operations: int, queued: int = 0) -> None:
                self.operations = range(operations)
                self.queued = queued

        room: Callable[..., bool] = server.has_room
        for number in range(4):
            server.connections[number] = None  # type: ignore[index]
        assert room(Some(7), 1) and not room(Some(8), 1)
        assert room(Some(1, 50), 40) and not room(Some(1, 50), 60)
        server.pending = 8
        assert room(Some(1), 1) and not room(Some(2), 1)
        server.pending, server.queued = 0, 800
        assert not room(Some(1, 100), 101)
        # What comes first is always taken: nobody is locked out.
        assert room(Some(0), 1000)
        server.connections.clear()
        server.pending = server.queued = 0

    running(shares, limits=Limits(pending=8, operations=16, queued=1600))


# -- searches that cost much


class Counting(Work):
    """Counts the rests; the most that was spent before one."""

    def __init__(self) -> None:
        super().__init__()
        self.rests = self.most = 0

    def rest(self) -> None:
        self.rests += 1
        self.most = max(self.most, self.spent)
        self.spent = 0


@pytest.mark.parametrize(
    "part, units",
    [
        ("(description=*aab%d*)", 15),
        ("(description=zz%d)", 1),
        ("(description:caseExactMatch:=zz%d)", 60),
        ("(:caseExactMatch:=zz%d)", 1),
        ("(ou:dn:=zz%d)", 20),
    ],
)
@pytest.mark.parametrize("joined", ["(|%s)", "(!(|%s))"])
def test_long_filters_rest_by_the_work_they_do(part: str, units: int, joined: str) -> None:
    directory = people(1)
    node = directory.node(f"uid=u0,{BASE}")
    work = Counting()
    matches = Matcher(directory.schema, work).compile(
        query.parse(joined % "".join(part % number for number in range(600)))
    )
    assert work.rests > 0
    work.rests = 0
    assert bool(matches(node, ())) is joined.startswith("(!")
    assert work.rests >= 600 * units // (UNITS + units + 40)
    assert work.most < UNITS + 200


def test_extensible_filters_of_all_attributes_stay_small() -> None:
    """A part is one function, however many attributes the rule is for."""
    directory = people(1)
    matcher = Matcher(directory.schema)
    matches = matcher.compile(query.parse("(:caseExactMatch:=x)"))
    assert matches(directory.node(f"uid=u0,{BASE}"), ()) is False
    assert matches(directory.node(f"uid=u0,{BASE}"), ("ref",)) is None
    assert "ref" in matcher.attributes


def test_indexes_do_not_put_everything_together(monkeypatch: pytest.MonkeyPatch) -> None:
    from coro.ldap.server import tree

    directory = people(20)
    many = query.parse(f"(|{'(objectClass=account)' * 10})")
    found = directory.candidates(many)
    assert found is not None and len(found) == 20
    monkeypatch.setattr(tree, "_CANDIDATES", 199)
    assert directory.candidates(many) is None
    assert len(list(directory.search(BASE, many))) == 20


def test_searches_work_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two turns of other threads one search works, whatever their number."""
    from coro.ldap.server import _operations

    now = [0.0]
    monkeypatch.setattr(_operations.time, "perf_counter", lambda: now[0])
    steps: list[str] = []

    class Op:
        def go_on(self) -> None:
            coro.yield_slice()

        def check(self) -> None:
            pass

    def main() -> None:
        turn = coro.mutex()

        def search(name: str) -> None:
            with Turns(Op(), turn, None) as work:  # type: ignore[arg-type]
                for _ in range(5):
                    now[0] += 1.0
                    steps.append(name)
                    work.rest()

        def other() -> None:
            for _ in range(60):
                steps.append("-")
                coro.yield_slice()

        with coro.group() as group:
            for number in range(10):
                group.spawn(search, str(number))
            group.spawn(other)
        assert not turn.locked()

    coro.run(main)
    # The first, short step needs no turn.
    assert max(map(len, "".join(steps[11:]).split("-"))) <= 2
    assert len(steps) == 110


@pytest.mark.slow
def test_a_search_that_costs_much_can_be_abandoned() -> None:
    def attack(server: Server) -> None:
        client = Client(server)
        client.send(bind_request(ADMIN, PASSWORD))
        assert client.receive() == (1, 1)
        client.send(search_request(f"(|{''.join(f'(description=*aab{number}*aac*)' for number in range(600))})"))
        until(lambda: server.pending == 1)
        client.send(b"\x50\x01\x02")
        client.send(search_request(scope=0))
        assert client.receive() == (4, 4)
        assert client.receive() == (4, 5)

    running(attack, people(3000, 5000))


# -- connections


def test_silent_strangers_go_when_the_server_is_full() -> None:
    def attack(server: Server) -> None:
        known = Client(server)
        known.send(bind_request(ADMIN, PASSWORD))
        assert known.receive() == (1, 1)
        silent = [Client(server) for _ in range(7)]
        until(lambda: len(server.places) == 8)
        new = Client(server)
        new.send(bind_request(ADMIN, PASSWORD))
        assert new.receive() == (1, 1)
        # The first stranger has gone, not the one who is logged in and has been silent for longer.
        assert silent[0].ended()
        known.send(search_request(scope=0))
        assert known.receive() == (2, 4)
        assert server.statistics()["evicted"] == 1

    running(attack, limits=Limits(connections=8, per_address=8))


def test_one_address_has_a_share() -> None:
    def attack(server: Server) -> None:
        silent = [Client(server) for _ in range(20)]
        until(lambda: server.statistics()["evicted"] == 12)
        assert len(server.places) == 8
        assert all(client.ended() for client in silent[:12])
        client = Client(server)
        client.send(bind_request(ADMIN, PASSWORD))
        assert client.receive() == (1, 1)

    running(attack, limits=Limits(connections=16))


def test_strangers_have_a_few_seconds() -> None:
    def attack(server: Server) -> None:
        silent, greeted = Client(server), Client(server)
        greeted.send(search_request(base="", scope=0))
        greeted.receive()
        assert silent.ended()
        greeted.receive()
        greeted.send(search_request(base="", scope=0))
        assert greeted.receive() == (2, 4)

    running(attack, limits=Limits(login=0.2))


def test_places() -> None:
    gone: list[str] = []

    def place(name: str, address: Any, silent: bool = True, known: bool = False) -> Place:
        made = Place(client_of(address), lambda: gone.append(name))
        made.is_silent, made.is_known = (lambda: silent), (lambda: known)
        return made

    places = Places(8, None)
    first = place("a0", ("192.0.2.1", 1))
    assert places.enter(first)
    for number in range(1, 4):
        assert places.enter(place(f"a{number}", ("192.0.2.1", 1)))
    places.touch(first)
    assert places.enter(place("a4", ("::ffff:192.0.2.1", 1, 0, 0)))
    assert gone == ["a1"]
    for number in range(4):
        assert places.enter(place(f"b{number}", f"/socket{number}", silent=False))
    assert places.enter(place("c", ("2001:db8::1", 1, 0, 0), silent=False)) and gone[1:] == ["a2"]
    for name in ("a3", "a0", "a4"):
        assert places.enter(place("d" + name, (f"192.0.2.{len(gone)}", 1), silent=False)) and gone[-1] == name
    assert not places.enter(place("e", ("192.0.2.77", 1)))
    assert len(places) == 8 and places.evicted == 5
    places.leave(first)  # it had to go
    assert len(places) == 8
    assert client_of(("2001:db8::1%eth0", 1)) == client_of(("2001:db8::2", 1)) != client_of(("2001:db8:0:1::1", 1))


# -- logins


def test_a_failed_login_rests_for_what_the_dearest_takes() -> None:
    pace = Pace()
    assert pace.rest(0.05) == pytest.approx(0.005)
    assert pace.rest(0.0) == pytest.approx(0.055)
    assert pace.rest(0.02) == pytest.approx(0.035)
    pace.rest(100.0)
    assert pace.rest(0.0) == 2.0


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, float]]]:
    """What failed logins do: checks in the OS threads, and seconds of rest, where one check takes a second."""
    done: list[tuple[str, float]] = []

    def run(self: Hashing, client: object, function: Callable[..., Any], *args: Any) -> tuple[Any, float]:
        done.append((function.__name__, 1.0))
        return function(*args), 1.0

    monkeypatch.setattr(Hashing, "run", run)
    monkeypatch.setattr(Pace, "rest", lambda self, spent: done.append(("rest", spent)) or 0.0)
    yield done


@pytest.mark.parametrize("scheme", ["CLEARTEXT", "SSHA", "SSHA256", "SSHA512", "PBKDF2-SHA1", "PBKDF2-SHA256", None])
def test_each_failed_login_does_the_same(scheme: str | None, checks: list[tuple[str, float]]) -> None:
    directory = people(1)
    if scheme is not None:
        stored = hash_password("right", scheme, rounds=10)
        directory.modify(f"uid=u0,{BASE}", [("add", "userPassword", [stored])])

    def attack(server: Server) -> None:
        client = Client(server)
        for name in (f"uid=u0,{BASE}", f"uid=nobody,{BASE}", ADMIN, "cn=nobody"):
            client.send(bind_request(name, "wrong"))
            client.receive()
            assert checks == [("check_password", 1.0), ("rest", 1.0)]
            checks.clear()

    running(attack, directory, rules=[Rule("anyone", Level.WRITE)])


@pytest.mark.parametrize("kind", ["CLEARTEXT", "SSHA", None])
def test_scram_computes_keys_for_everybody(kind: str | None, checks: list[tuple[str, float]]) -> None:
    from coro.ldap.server._connection import Connection

    directory = people(1)
    if kind is not None:
        directory.modify(f"uid=u0,{BASE}", [("add", "userPassword", [hash_password("right", kind)])])

    def attack(server: Server) -> None:
        connection = Connection(server, None, False, False, Place(None, lambda: None))
        for user in ("u0", "nobody"):
            found = connection._keys("SCRAM-SHA-256", user)
            assert (found is not None) == (user == "u0" and kind == "CLEARTEXT")
            assert checks == [("keys_of_password", 1.0)]
            checks.clear()

    running(attack, directory)


def test_addresses_take_turns_where_passwords_are_checked() -> None:
    order: list[str] = []
    gate = threading.Event()

    def check(name: str) -> None:
        gate.wait(LIMIT)
        order.append(name)
        assert threading.current_thread().name == "LDAP passwords"

    def main() -> None:
        hashing = Hashing(1)
        with coro.group() as group:
            for number in range(4):
                group.spawn(hashing.run, "guesser", check, f"g{number}")
            coro.yield_slice()
            leaver = group.spawn(hashing.run, "leaver", check, "never")
            group.spawn(hashing.run, "user", check, "u")
            coro.yield_slice()
            leaver.shutdown()
            coro.yield_slice()
            gate.set()
        with pytest.raises(ZeroDivisionError):
            hashing.run("user", lambda: 1 // 0)
        hashing.close()

    coro.run(main)
    assert order == ["g0", "g1", "u", "g2", "g3"]


def test_nobody_acts_for_another() -> None:
    from coro.ldap.server._connection import Connection

    def attack(server: Server) -> None:
        connection = Connection(server, None, True, False, Place(None, lambda: None))
        connection._same("u:u0", f"uid=u0,{BASE}")
        for other in ("u:u1", f"dn:uid=u1,{BASE}", "u:nobody"):
            with pytest.raises(Refused) as caught:
                connection._same(other, f"uid=u0,{BASE}")
            assert caught.value.code == 50

    running(attack, people(2))
