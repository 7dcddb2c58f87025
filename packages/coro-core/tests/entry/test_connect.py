"""coro.connect: which address is tried when, what the errors say, and that nothing stays open.

Addresses are on the loopback network only: 127.0.0.1 to 127.0.0.9 can be told apart, and IPv6 has ::1. An address that
does not answer is a listener whose queue is full: the kernel ignores further connections to it, as a dead host would.
"""

from __future__ import annotations

import socket

import pytest
from sockets_support import needs_six
from support import advance, in_loop, virtual_clock

import coro
from coro import oserrors
from coro.exceptions import ResolverNameError

pytestmark = pytest.mark.usefixtures("leaves_nothing")

FOUR, SIX = coro.AF.INET, coro.AF.INET6


def settle():
    """Until every other thread waits for something."""
    me = coro.current()
    while any(t.waiting_for is None for t in coro.all_threads.values() if t is not me):
        coro.yield_slice()
    coro.yield_slice()


class Names:
    """A resolver that answers when told to."""

    def __init__(self, four=(), six=(), hold=()):
        self.answers = {FOUR: list(four), SIX: list(six)}
        self.gates = {family: coro.event() for family in (FOUR, SIX)}
        for family in (FOUR, SIX):
            if family not in hold:
                self.gates[family].set()
        self.asked = []

    def resolve_all(self, name, family):
        self.asked.append(family)
        self.gates[family].wait()
        if not self.answers[family]:
            raise ResolverNameError(f"{name} has no address here")
        return list(self.answers[family])

    def resolve_ipv4(self, name):
        return self.resolve_all(name, FOUR)[0]

    def resolve_ipv6(self, name):
        return self.resolve_all(name, SIX)[0]


@pytest.fixture
def names():
    before = coro.get_resolver()

    def install(*args, **kwargs):
        resolver = Names(*args, **kwargs)
        coro.set_resolver(resolver)
        return resolver

    yield install
    coro.set_resolver(before)


class Peers:
    """Loopback addresses that share one port number: some listen, some refuse, some do not answer."""

    def __init__(self):
        self.sockets = []
        self.port = 0

    def _bind(self, host, backlog):
        s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        s.bind((host, self.port))
        self.port = s.getsockname()[1]
        if backlog is not None:
            s.listen(backlog)
        self.sockets.append(s)
        return s

    def listens(self, host):
        return self._bind(host, 100)

    def refuses(self, host):
        return self._bind(host, None)

    def is_silent(self, host):
        s = self._bind(host, 0)
        while True:
            filler = socket.socket(s.family)
            self.sockets.append(filler)
            filler.settimeout(0.05)
            try:
                filler.connect((host, self.port))
            except TimeoutError:
                self.sockets.remove(filler)
                filler.close()
                return s

    def close(self):
        for s in self.sockets:
            s.close()


@pytest.fixture
def peers():
    p = Peers()
    yield p
    p.close()


# -- one address


@in_loop
def test_a_literal_address(peers):
    listener = peers.listens("127.0.0.1")
    s = coro.connect("127.0.0.1", peers.port)
    conn, address = listener.accept()
    assert s.getsockname() == address
    assert s.getpeername() == ("127.0.0.1", peers.port)
    assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    s.sendall(b"x")
    assert conn.recv(1) == b"x"
    conn.close()
    with s:
        pass
    with coro.connect(("127.0.0.1", peers.port), nodelay=False, timeout=60) as s:
        assert not s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@needs_six
@in_loop
def test_ipv6_address_forms(peers):
    peers.listens("::1")
    for arguments in (("::1", peers.port), (("::1", peers.port),), (("::1", peers.port, 0, 0),)):
        with coro.connect(*arguments) as s:
            assert s.family == SIX


@in_loop
def test_unix_path(tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        for form in (path, str(path), bytes(path)):
            with coro.connect(form, timeout=60) as s:
                assert s.family == coro.AF.UNIX
    with pytest.raises(oserrors.ECONNREFUSED, match=str(path)):
        coro.connect(path)
    path.unlink()
    with pytest.raises(FileNotFoundError) as e:
        coro.connect(path)
    assert e.value.errno == oserrors.ENOENT().errno
    assert e.value.attempts[0][0] == path


@in_loop
def test_refused(peers):
    peers.refuses("127.0.0.1")
    with pytest.raises(ConnectionRefusedError) as e:
        coro.connect("127.0.0.1", peers.port)
    assert isinstance(e.value, oserrors.ECONNREFUSED)
    assert f"127.0.0.1:{peers.port}" in str(e.value)
    [(address, error)] = e.value.attempts
    assert address == ("127.0.0.1", peers.port) and isinstance(error, ConnectionRefusedError)


@in_loop
def test_source_address(peers):
    listener = peers.listens("127.0.0.1")
    for source in ("127.0.0.5", ("127.0.0.5", 0)):
        with coro.connect("127.0.0.1", peers.port, source_address=source):
            conn, address = listener.accept()
            assert address[0] == "127.0.0.5"
            conn.close()


@in_loop
def test_source_address_chooses_the_family(peers, names):
    peers.listens("127.0.0.1")
    resolver = names(["127.0.0.1"], ["::1"])
    with coro.connect("a.example", peers.port, source_address="127.0.0.7") as s:
        assert s.getsockname()[0] == "127.0.0.7"
    assert resolver.asked == [FOUR]
    with pytest.raises(oserrors.EADDRNOTAVAIL, match=r"192\.0\.2\.1|127\.0\.0\.1"):
        coro.connect("a.example", peers.port, source_address="192.0.2.1")


# -- several


@needs_six
@in_loop
def test_ipv6_first(peers, names):
    peers.listens("127.0.0.1")
    peers.listens("::1")
    names(["127.0.0.1"], ["::1"])
    with coro.connect("a.example", peers.port) as s:
        assert s.family == SIX
    for family in (FOUR, SIX):
        with coro.connect("a.example", peers.port, family=family) as s:
            assert s.family == family


@in_loop
def test_a_resolver_of_its_own(peers, names):
    peers.listens("127.0.0.1")
    installed = names()
    mine = Names(["127.0.0.1"])
    with coro.connect("a.example", peers.port, resolver=mine) as s:
        assert s.family == FOUR
    assert sorted(mine.asked) == sorted((FOUR, SIX)) and not installed.asked


@needs_six
@in_loop
def test_after_a_failure_the_next_one_begins_at_once(peers, names):
    """No clock is moved: it stands still."""
    peers.refuses("::1")
    peers.refuses("127.0.0.2")
    peers.listens("127.0.0.3")
    names(["127.0.0.2", "127.0.0.3"], ["::1"])
    with virtual_clock(), coro.connect("a.example", peers.port) as s:
        assert s.getpeername()[0] == "127.0.0.3"


@in_loop
def test_a_silent_address_costs_a_quarter_of_a_second(peers, names):
    peers.is_silent("127.0.0.2")
    peers.listens("127.0.0.3")
    names(["127.0.0.2", "127.0.0.3"])
    with virtual_clock():
        t = coro.spawn(coro.connect, "a.example", peers.port)
        settle()
        advance(0.24)
        settle()
        assert not t.dead
        advance(0.011)
        t.join()
    assert t.result.getpeername()[0] == "127.0.0.3"
    t.result.close()


@pytest.mark.slow  # the kernel repeats a request after a second
@in_loop
def test_an_earlier_attempt_may_still_win(peers, names):
    """The second attempt is under way when room appears in the first peer's queue."""
    first = peers.is_silent("127.0.0.2")
    peers.is_silent("127.0.0.3")
    names(["127.0.0.2", "127.0.0.3"])
    t = coro.spawn(coro.connect, "a.example", peers.port, attempt_delay=0.02)
    coro.sleep_relative(0.1)
    taken = first.accept()[0]
    t.join()
    assert t.result.getpeername()[0] == "127.0.0.2"
    t.result.close()
    taken.close()


@needs_six
@in_loop
def test_families_take_turns(names, monkeypatch):
    tried = []

    def attempt(family, address, source, nodelay):
        tried.append(address[0])
        raise oserrors.ECONNREFUSED

    monkeypatch.setattr("coro._entry.connect._attempt", attempt)
    names(["127.0.0.1", "127.0.0.2", "127.0.0.3"], ["::1", "::2"])
    with pytest.raises(ConnectionRefusedError) as e:
        coro.connect("a.example", 9)
    assert tried == ["::1", "127.0.0.1", "::2", "127.0.0.2", "127.0.0.3"]
    assert [address[0] for address, _ in e.value.attempts] == tried


@in_loop
def test_a_late_ipv6_answer_is_waited_for_a_moment(peers, names):
    peers.listens("127.0.0.1")
    resolver = names(["127.0.0.1"], hold=[SIX])
    with virtual_clock():
        t = coro.spawn(coro.connect, "a.example", peers.port)
        settle()
        advance(0.049)
        settle()
        assert not t.dead and len(coro.all_threads) > 1
        advance(0.002)
        t.join()
    assert resolver.asked == [SIX, FOUR]
    t.result.close()


@in_loop
def test_no_ipv6_answer_is_no_reason_to_wait(peers, names):
    peers.listens("127.0.0.1")
    names(["127.0.0.1"])
    with virtual_clock():
        coro.connect("a.example", peers.port).close()


@in_loop
def test_a_late_answer_is_used_too(peers, names):
    """The answers for IPv4 come when the IPv6 address has failed already."""
    peers.listens("127.0.0.1")
    resolver = names(["127.0.0.1"], ["::1"], hold=[FOUR])
    t = coro.spawn(coro.connect, "a.example", peers.port)
    settle()
    assert not t.dead
    resolver.gates[FOUR].set()
    t.join()
    assert t.result.family == FOUR
    t.result.close()


@in_loop
def test_all_fail(peers, names):
    peers.refuses("127.0.0.1")
    peers.refuses("127.0.0.2")
    names(["127.0.0.1", "127.0.0.2"])
    with pytest.raises(oserrors.ECONNREFUSED) as e:
        coro.connect("a.example", peers.port)
    for text in ("a.example", f"127.0.0.1:{peers.port}", f"127.0.0.2:{peers.port}", "refused"):
        assert text in str(e.value)
    assert len(e.value.attempts) == 2


@in_loop
def test_the_error_is_the_most_telling_one(names, monkeypatch):
    """That this machine has no IPv6 says little about the peer."""

    def attempt(family, address, source, nodelay):
        raise oserrors.ENETUNREACH if family == SIX else oserrors.ECONNREFUSED

    monkeypatch.setattr("coro._entry.connect._attempt", attempt)
    names(["127.0.0.1"], ["::1"])
    with pytest.raises(oserrors.ECONNREFUSED, match="unreachable"):
        coro.connect("a.example", 9)


@in_loop
def test_unknown_name(names):
    names()
    with pytest.raises(coro.NameError, match=r"a\.example"):
        coro.connect("a.example", 9, timeout=5)


@in_loop
def test_a_resolver_that_fails_otherwise(names):
    names([7], [])
    with pytest.raises(TypeError):
        coro.connect("a.example", 9)
    resolver = names()
    resolver.resolve_all = lambda name, family: 1 // 0
    with pytest.raises(ZeroDivisionError):
        coro.connect("a.example", 9)


# -- limits and interruptions


@in_loop
def test_timeout_is_an_oserror_that_names_the_addresses(peers, names):
    peers.is_silent("127.0.0.2")
    peers.refuses("127.0.0.3")
    names(["127.0.0.2", "127.0.0.3"])
    with virtual_clock():

        def clock():
            for _ in range(4):
                settle()
                advance(0.3)

        coro.spawn(clock)
        with pytest.raises(TimeoutError) as e:
            coro.connect("a.example", peers.port, timeout=1)
    assert isinstance(e.value, oserrors.ETIMEDOUT)
    text = str(e.value)
    assert "in 1 seconds" in text and "127.0.0.2" in text and "no answer yet" in text and "refused" in text


@in_loop
def test_timeout_of_a_literal_and_of_a_lookup(peers, names):
    peers.is_silent("127.0.0.2")
    with pytest.raises(oserrors.ETIMEDOUT, match=r"127\.0\.0\.2"):
        coro.connect("127.0.0.2", peers.port, timeout=0.01)
    names(hold=[FOUR, SIX])
    with pytest.raises(oserrors.ETIMEDOUT, match="looked up"):
        coro.connect("a.example", 9, timeout=0.01)


@in_loop
def test_an_outer_limit_stays_one(peers):
    peers.is_silent("127.0.0.2")
    with pytest.raises(coro.TimeoutError):
        coro.with_timeout(0.01, coro.connect, "127.0.0.2", peers.port, timeout=100)


@in_loop
def test_interrupted_at_any_moment(peers, names):
    """Shutdown after each possible number of turns; the fixture counts what is left."""
    peers.is_silent("127.0.0.2")
    peers.listens("127.0.0.3")
    ended = set()
    for turns in range(30):
        names(["127.0.0.2", "127.0.0.3"], ["::1"])
        with virtual_clock():
            t = coro.spawn(coro.connect, "a.example", peers.port)
            for _ in range(turns):
                coro.yield_slice()
                advance(0.03)
            if not t.dead:
                t.shutdown()
            t.join()
        ended.add(type(t.exception))
        if t.exception is None and t.result is not None:
            t.result.close()
        assert len(coro.all_threads) == 1
    assert ended == {coro.Shutdown, type(None)}


@in_loop
def test_losers_are_closed(peers, names):
    """Both peers answer in the same turn of the loop."""
    listeners = [peers.listens("127.0.0.2"), peers.listens("127.0.0.3")]
    before = coro.get_live_sockets()
    names(["127.0.0.2", "127.0.0.3"])
    both = coro.event()
    from coro._entry import connect

    real = connect._attempt

    def attempt(*args):
        s = real(*args)
        if args[1][0] == "127.0.0.3":
            both.set()
        both.wait()
        return s

    connect._attempt = attempt
    try:
        s = coro.connect("a.example", peers.port, attempt_delay=0.01)
    finally:
        connect._attempt = real
    assert coro.get_live_sockets() == before + 1
    conns = [listener.accept()[0] for listener in listeners]
    loser = conns[1] if s.getpeername()[0] == "127.0.0.2" else conns[0]
    assert loser.recv(1) == b""
    for c in (s, *conns):
        c.close()


# -- misuse


@pytest.mark.parametrize(
    "arguments, options, error",
    [
        ((), {}, TypeError),
        ((5, 80), {}, TypeError),
        ((b"a", 80), {}, TypeError),
        (("127.0.0.1", "80"), {}, TypeError),
        (("127.0.0.1", True), {}, TypeError),
        (("127.0.0.1", 70000), {}, OverflowError),
        ((("127.0.0.1",),), {}, TypeError),
        ((3.5,), {}, TypeError),
        (("127.0.0.1", 80), {"family": coro.AF.UNIX}, ValueError),
        (("127.0.0.1", 80), {"family": SIX}, ValueError),
        (("::1", 80), {"source_address": "127.0.0.1"}, ValueError),
        (("127.0.0.1", 80), {"source_address": "name"}, ValueError),
        (("127.0.0.1", 80), {"source_address": 3}, TypeError),
        (("127.0.0.1", 80), {"timeout": True}, TypeError),
        (("127.0.0.1", 80), {"timeout": float("nan")}, ValueError),
        (("127.0.0.1", 80), {"timeout": "1"}, TypeError),
        (("a.example", 80), {"attempt_delay": 0}, ValueError),
        (("/a/path",), {"source_address": "127.0.0.1"}, ValueError),
        (("127.1", 80), {}, coro.NameError),
    ],
)
@in_loop
def test_misuse(arguments, options, error):
    with pytest.raises(error) as e:
        coro.connect(*arguments, **options)
    assert str(e.value)


def test_outside_a_thread():
    with pytest.raises(coro.YieldFromMain):
        coro.connect("127.0.0.1", 9)
