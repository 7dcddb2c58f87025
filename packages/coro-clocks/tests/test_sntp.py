"""The SNTP client against a decent server, a real one, and servers that do everything wrong."""

from __future__ import annotations

import socket
import time

import ntp_support
import pytest
from ntp_support import AHEAD, Server, honest, replaced, server
from real_programs import Chronyd

import coro
from coro import testing
from coro._clock import ticks
from coro.clocks import _wall, describe, sleeping, sntp, tsc_time
from coro.clocks.sntp_packet import Packet, PeerError, decode, encode

pytestmark = pytest.mark.usefixtures("leaves_nothing")

SECOND = 10**9


def ask(address, timeout=60.0):
    return coro.run(lambda: sntp.query(address, timeout=timeout))


def near(sample, ahead=AHEAD):
    """The offset is right to within what the sample says of itself, and a busy machine."""
    return abs(sample.offset_ns - ahead * SECOND) <= sample.error_ns + 2_000_000


# ---- one question


def test_a_decent_server():
    with server() as s:
        sample = ask(s.address)
        assert near(sample) and sample.server == s.address
        assert sample.stratum == 2 and sample.leap == 0 and sample.delay_ns >= 0
        assert ask(("localhost", s.address[1])).server[0] == "localhost"
        assert ticks.correction == 0  # asking changes nothing
    first, second = s.questions
    assert first.mode == 3 and first.version == 4
    # the transmit timestamp is random, and nothing else tells the local time
    assert first.transmit != second.transmit
    assert replaced(first, transmit=0) == Packet()


def test_the_offset_is_that_of_the_middle_of_the_way():
    def slow(question):
        now = honest(question)
        time.sleep(0.05)
        return [replaced(now, transmit=honest(question).transmit)]

    with Server(slow) as s:
        sample = ask(s.address)
    assert near(sample) and sample.delay_ns < 50_000_000


def wrong(question, s):
    """Everything that is to be ignored, each packet with another time."""
    lie = honest(question, ahead=1000)
    yield replaced(lie, originate=question.transmit ^ 1)
    yield replaced(lie, originate=0)
    yield replaced(lie, originate=0, stratum=0, reference_id=b"DENY")  # a kiss of death that anybody may have sent
    yield replaced(lie, mode=3)
    yield replaced(lie, mode=5)
    yield encode(lie)[:47]
    yield b""
    yield encode(lie) + b"x"
    yield encode(lie) + bytes(2000)
    yield encode(replaced(lie, version=7))
    yield s.other, lie


def test_what_is_no_answer_does_not_hide_the_answer():
    s = Server(lambda question: [*wrong(question, s), honest(question)])
    with s:
        assert near(ask(s.address))


def test_what_is_no_answer_is_none():
    s = Server(lambda question: wrong(question, s))
    with s, pytest.raises(PeerError, match="no usable answer"):
        ask(s.address, 0.3)


def test_an_answer_from_another_port_is_refused():
    s = Server(lambda question: [(s.other, honest(question))])
    with s, pytest.raises(PeerError, match="no usable answer"):
        ask(s.address, 0.2)


def test_an_answer_to_an_older_question_is_refused():
    old = []

    def stale(question):
        old.append(honest(question))
        return old[:1]

    with Server(stale) as s:
        assert near(ask(s.address))
        with pytest.raises(PeerError, match="no usable answer"):
            ask(s.address, 0.2)


def test_a_flood_of_wrong_answers_ends():
    with (
        Server(lambda question: [replaced(honest(question), originate=1)] * 150) as s,
        pytest.raises(PeerError, match="none was an answer|no usable answer"),
    ):
        ask(s.address, 2)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"stratum": 0, "reference_id": b"RATE"}, "'RATE'"),
        ({"stratum": 0, "reference_id": b"\0\0\0\0"}, "refused"),
        ({"stratum": 16}, "stratum"),
        ({"stratum": 255}, "stratum"),
        ({"leap": 3}, "not synchronised"),
        ({"transmit": 0}, "no time"),
        ({"receive": 0}, "no time"),
        ({"root_delay": 4 << 16}, "wrong by 2.0"),
        ({"root_delay": -(4 << 16)}, "wrong by 2.0"),
        ({"root_dispersion": 2**32 - 1}, "wrong by"),
    ],
)
def test_answers_that_cannot_be_used(changes, what):
    with server(**changes) as s, pytest.raises(PeerError, match=what) as caught:
        ask(s.address)
    assert caught.value.kiss == ("RATE" if what == "'RATE'" else "" if what == "refused" else None)


def test_times_in_the_wrong_order():
    def backwards(question):
        p = honest(question)
        return [replaced(p, receive=p.transmit + (1 << 32))]

    def too_long(question):
        p = honest(question)
        return [replaced(p, receive=p.transmit - (10 << 32))]

    for answer, what in ((backwards, "before it was asked"), (too_long, "to answer")):
        with Server(answer) as s, pytest.raises(PeerError, match=what):
            ask(s.address)


def test_nobody_there():
    with pytest.raises(OSError):
        ask(("127.0.0.1", ntp_support.free_udp_port()))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        with pytest.raises(PeerError, match=r"within 0\.05 s"):
            ask(silent.getsockname(), 0.05)


def test_the_callers_own_limit_is_not_the_servers_fault():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        with pytest.raises(coro.TimeoutError):
            coro.run(lambda: coro.with_timeout(0.05, sntp.query, silent.getsockname()))


@pytest.mark.parametrize("bad", [5, None, ("host",) * 2, ("host", 1.0), b"host"])
def test_servers_of_other_types(bad):
    with pytest.raises(TypeError, match="expected a server as a host name or a pair"):
        ask(bad)


def test_a_client_tells_what_it_is_and_wants_a_list():
    assert repr(sntp.Client(["one", "two"])) == "<sntp.Client of 2 servers: stopped, 0 rounds>"
    with pytest.raises(TypeError, match="expected a list of servers, got int"):
        sntp.Client(3)


@pytest.mark.parametrize("bad", ["", ("", 123), ("host", 0), ("host", 65536)])
def test_servers_that_cannot_be(bad):
    with pytest.raises(ValueError):
        ask(bad)


# ---- several answers


def sample(offset, error=1.0, name="x"):
    return sntp.Sample((name, 123), round(offset * SECOND), 0, round(error * SECOND), 2, 0)


def test_a_majority_outvotes_the_others():
    good = [sample(5.0, 0.2), sample(5.1, 0.1), sample(4.9, 0.5)]
    assert sntp.agree(good) == good[1]
    assert sntp.agree([*good, sample(-300, 0.001), sample(900, 0.001)]) == good[1]
    assert sntp.agree(good[:1]) == good[0]
    for bad in ([], [sample(0), sample(100)], [*good, sample(50), sample(60), sample(70)]):
        with pytest.raises(sntp.NoAgreement):
            sntp.agree(bad)
    with pytest.raises(sntp.NoAgreement):
        sntp.agree(good[:1], asked=3)


# ---- the client


def test_a_round_corrects_the_time_of_day_of_the_process_alone():
    def main():
        with server() as a, server(ahead=7.001) as b, server(ahead=-500) as liar:
            client = sntp.Client([a.address, b.address, liar.address])
            got = client.round()
            assert near(got)
            before = time.time_ns()
            ahead = coro.get_usec() - before // 1000
            assert 6_900_000 < ahead < 7_200_000 or time.time_ns() - before > SECOND
            assert abs(tsc_time.now_raw_posix_usec() - tsc_time.get_kernel_usec() - 7 * 10**6) < 10**6
            assert describe().correction_usec == ticks.correction == _wall.measured_usec()
            tsc_time.update_time_relation()  # the correction stays
            assert abs(coro.get_usec() - time.time_ns() // 1000 - 7 * 10**6) < 10**6
            again = client.round()  # and is refined
            assert abs(again.offset_ns) <= again.error_ns + 5_000_000
            status = client.status()
            assert (status.rounds, status.failures, status.problem) == (2, 0, None)
            client.forget()
            assert ticks.correction == 0

    coro.run(main)


def test_a_simulation_goes_on_over_a_correction():
    def main():
        with server() as s:
            tsc_time.step_time(10**6)
            sntp.Client([s.address]).round()
            assert abs(coro.get_usec() - time.time_ns() // 1000 - (10**6 + 7) * 10**6) < 10**6

    coro.run(main)


def test_sleepers_see_the_correction():
    def main():
        with server(ahead=500) as s:
            sleeper = coro.spawn(sleeping.sleep_until, time.time() + 400)
            testing.wait_all_blocked()
            sntp.Client([s.address]).round()
            sleeper.join()

    coro.run(coro.with_timeout, 20, main)


def test_a_time_too_far_away_is_refused():
    def main():
        with server(ahead=5000) as s:
            client = sntp.Client([s.address])
            with pytest.raises(sntp.NoAgreement, match="limit"):
                client.round()
            assert ticks.correction == 0
            assert "limit" in client.status().problem
            assert near(sntp.Client([s.address], limit=None).round(), 5000)

    coro.run(main)


def test_no_majority_no_correction():
    def main():
        with server() as a, server(ahead=100) as b:
            client = sntp.Client([a.address, b.address])
            with pytest.raises(sntp.NoAgreement, match="1 of 2"):
                client.round()
            assert ticks.correction == 0

    coro.run(main)


def test_failures_make_the_pause_longer_up_to_a_bound():
    def main():
        client = sntp.Client([("127.0.0.1", ntp_support.free_udp_port())], poll=64)
        pauses = []
        for _ in range(12):
            with pytest.raises(PeerError):
                client.round()
            pauses.append(client.status().pause)
        assert pauses[:3] == [128, 256, 512] and pauses[-1] == sntp.MOST_POLL
        assert client.status().failures == 12
        with server() as s:
            client._servers = [s.address]
            client.round()
        assert client.status().pause == 64 and client.status().problem is None

    coro.run(main)


@pytest.mark.parametrize("code", ["DENY", "RSTR"])
def test_who_does_not_want_to_be_asked_is_not(code):
    def main():
        with server(stratum=0, reference_id=code.encode()) as angry, server() as s:
            client = sntp.Client([angry.address, s.address])
            client.round()
            client.round()
            assert len(angry.questions) == 1 and len(s.questions) == 2
            assert client.status().dropped == (angry.address,)

            alone = sntp.Client([angry.address])
            with pytest.raises(PeerError, match=code):
                alone.round()
            with pytest.raises(RuntimeError, match="every server"):
                alone.start()

    coro.run(main)


def test_who_wants_to_be_asked_less_often_is():
    def main():
        with server(stratum=0, reference_id=b"RATE") as busy, server() as s:
            client = sntp.Client([busy.address, s.address])
            for _ in range(16):
                client.round()
            assert len(busy.questions) == 4  # rounds 1, 3, 7, 15
            assert len(s.questions) == 16

    coro.run(main)


def test_the_thread_asks_again_and_again():
    statuses = []

    def main():
        # the server is an OS thread of its own, so virtual time moves only when told
        with server() as s, testing.virtual_clock(start=1000) as clock:
            done = coro.condition_variable()
            client = sntp.Client([s.address], poll=64, on_round=lambda st: (statuses.append(st), done.wake_all()))
            client.start()
            client.start()  # does nothing
            for _ in range(3):
                testing.wait_all_blocked()
                waiter = coro.spawn(done.wait)
                testing.wait_all_blocked()
                clock.advance(64)
                waiter.join()
            client.stop()
            testing.wait_all_blocked()
            clock.advance(1000)
            testing.wait_all_blocked()
            assert len(statuses) == 3 == len(s.questions)
            assert statuses[-1].rounds == 3

    coro.run(main)
    assert all(st.problem is None for st in statuses), statuses


def test_the_thread_asks_at_once_when_the_systems_clock_was_set(monkeypatch):
    def main():
        with server() as s, testing.virtual_clock(start=1000) as clock:
            done = coro.condition_variable()
            client = sntp.Client([s.address], poll=64, on_round=lambda st: done.wake_all() or 1 / 0)
            client.start()
            testing.wait_all_blocked()
            for _ in range(2):  # a callback that fails ends nothing
                waiter = coro.spawn(done.wait)
                testing.wait_all_blocked()
                clock.advance(64)
                waiter.join()
                testing.wait_all_blocked()
            waiter = coro.spawn(done.wait)
            testing.wait_all_blocked()
            real = sntp._system_ahead
            monkeypatch.setattr(sntp, "_system_ahead", lambda: real() + 3600 * SECOND)
            _wall.notify()  # what the watch does when the kernel tells
            waiter.join()
            assert len(s.questions) == 3
            client.stop()

    reports = []
    monkeypatch.setattr(coro, "default_exception_notifier", lambda: reports.append(1))
    coro.run(coro.with_timeout, 5000, main)
    assert len(reports) == 3


def test_arguments():
    for bad, what in (
        (lambda: sntp.Client("host"), TypeError),
        (lambda: sntp.Client([]), ValueError),
        (lambda: sntp.Client([5]), TypeError),
        (lambda: sntp.Client(["host"], poll=14), ValueError),
        (lambda: sntp.Client(["host"], poll=float("nan")), ValueError),
        (lambda: sntp.Client(["host"], timeout=0), ValueError),
        (lambda: sntp.Client(["host"], limit=-1), ValueError),
    ):
        with pytest.raises(what):
            bad()


# ---- a real server


def test_a_real_server():
    with Chronyd() as chronyd:

        def main():
            got = sntp.query(("127.0.0.1", chronyd.port))
            assert got.stratum == 3 and got.leap == 0
            # it serves this machine's own clock
            assert abs(got.offset_ns) <= got.error_ns + 2_000_000
            client = sntp.Client([("127.0.0.1", chronyd.port)])
            tsc_time.step_time(5)  # a simulation is not what it measures
            assert abs(client.round().offset_ns) <= SECOND

        coro.run(main)


def test_what_a_real_server_sends_is_read_in_full():
    with Chronyd() as chronyd, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(60)
        for version in (1, 2, 3, 4):
            s.sendto(encode(Packet(version=version, transmit=12345)), ("127.0.0.1", chronyd.port))
            data = s.recv(2048)
            packet = decode(data)
            assert encode(packet) == data and packet.originate == 12345 and packet.mode == 4
            assert sntp.check(packet, 12345) and not sntp.check(packet, 12346)
