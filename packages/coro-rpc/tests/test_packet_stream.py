"""Connections of packets: matching, races, backpressure, limits, keepalive, ends. All over streams in memory unless a
test is about the kernel."""

from __future__ import annotations

import errno
import gc
import math
import os
import sys
from typing import Any

import pytest
from rpc_support import PEER_PREAMBLE, Raw, pair

import coro
from coro import testing
from coro.rpc import (
    Busy,
    CallCancelled,
    CallTimeout,
    ConnectionLost,
    ForkedError,
    GoingAway,
    LocalError,
    NoSuchMethod,
    PacketTooBig,
    PeerUnresponsive,
    ProtocolError,
    RemoteError,
)
from coro.rpc._wire import frames
from coro.rpc.packet_stream import PacketStream
from coro.testing import coro_test, faults


def reverse(data: bytes) -> bytes:
    return data[::-1]


@coro_test
def test_requests_both_ways() -> None:
    with pair(reverse) as (ours, theirs):
        assert ours.request(b"abc") == b"cba"
        assert ours.request(bytearray(b"abc")) == b"cba"
        assert ours.request(b"") == b""
        with pytest.raises(NoSuchMethod):
            theirs.request(b"x")
        with pytest.raises(TypeError, match="encode"):
            ours.request("x")
        assert ours.ping() >= 0
        assert "open" in repr(ours)


@coro_test
def test_over_a_socket_pair_and_large_packets() -> None:
    with pair(reverse, real=True) as (ours, _):
        data = os.urandom(1 << 20)
        small: list[bytes] = []

        def others() -> None:
            for i in range(50):
                small.append(ours.request(b"%d" % i))

        thread = coro.spawn(others)
        assert ours.request(data) == data[::-1]
        thread.join()
        assert len(small) == 50


@coro_test
def test_small_packets_pass_large_ones() -> None:
    order = []
    with pair(lambda data: data[:1]) as (ours, _):

        def ask(data: bytes) -> None:
            ours.request(data)
            order.append(len(data))

        large = coro.spawn(ask, bytes(8 << 20))
        small = coro.spawn(ask, b"s")
        large.join()
        small.join()
    assert order == [1, 8 << 20]


@coro_test
def test_what_belongs_together_keeps_its_order() -> None:
    """A cancellation does not pass the chunks of the request that it is about."""
    a, b = testing.stream_pair()
    with PacketStream(a) as ours:
        raw = Raw(b)
        call = ours.begin(bytes(1 << 20))
        call.cancel()
        assert raw.receive()[0] == "REQUEST"
        assert raw.receive()[0] == "CANCEL"
        ours.abort()


@coro_test
def test_answers_in_reversed_order() -> None:
    """A thousand threads on one connection; each gets its own answer."""
    held: list[Any] = []
    everybody = coro.latch(1000)

    def handler(data: bytes) -> bytes:
        gate = coro.event()
        held.append(gate)
        everybody.count_down()
        gate.wait()
        return data

    with pair(handler) as (ours, _):
        finished: list[int] = []

        def ask(i: int) -> None:
            assert ours.request(b"%d" % i) == b"%d" % i
            finished.append(i)

        threads = [coro.spawn(ask, i) for i in range(1000)]
        everybody.wait()
        for gate in reversed(held):
            gate.set()
        for thread in threads:
            thread.get()
        assert finished == list(range(999, -1, -1))
        assert ours.dump() == []


@coro_test
def test_who_waits_for_room_goes_on() -> None:
    with pair(reverse, max_outstanding=3) as (ours, _):
        threads = [coro.spawn(ours.request, b"%d" % i) for i in range(50)]
        assert [thread.get() for thread in threads] == [(b"%d" % i)[::-1] for i in range(50)]
        assert not ours.dump()


@coro_test
def test_too_many_requests_are_refused_at_once() -> None:
    gate = coro.event()

    def handler(data: bytes) -> bytes:
        gate.wait()
        return data

    with testing.virtual_clock(autojump=False):
        a, b = testing.stream_pair()
        ours = PacketStream(a).start()
        theirs = PacketStream(b, handler=handler, max_running=2).start()
        calls = [ours.begin(b"x") for _ in range(2)]
        with pytest.raises(Busy, match="2 calls run"):
            ours.request(b"y")
        gate.set()
        assert [call.wait() for call in calls] == [b"x", b"x"]
        assert ours.request(b"z") == b"z"
        assert theirs.statistics().refused == 1
        ours.abort()
        theirs.abort()
        theirs.wait_closed()


@coro_test
def test_time_limit() -> None:
    cancelled = coro.event()

    def handler(data: bytes) -> bytes:
        try:
            coro.sleep_relative(1000)
        except coro.Shutdown:
            cancelled.set()
            raise
        return data

    with testing.virtual_clock(autojump=True), pair(handler, keepalive=None) as (ours, theirs):
        with pytest.raises(CallTimeout, match="within 5 seconds") as caught:
            ours.request(b"x", timeout=5)
        assert caught.value.seconds == 5
        cancelled.wait()
        with pytest.raises(CallTimeout):
            ours.request(b"x")
        assert ours.statistics().timeouts == 2 and not ours.dump()
        with pytest.raises(ValueError, match="above 0"):
            ours.request(b"x", timeout=0)


@coro_test
def test_an_interruption_leaves_nothing_behind() -> None:
    with testing.virtual_clock(autojump=True), pair(lambda data: coro.sleep_relative(100) or data) as (ours, theirs):
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(1, ours.request, b"x")
        thread = coro.spawn(ours.request, b"y")
        coro.sleep_relative(1)
        thread.shutdown()
        thread.join()
        coro.sleep_relative(1)
        assert not ours.dump() and not theirs.dump()
        assert ours.statistics().cancelled == 2
        assert ours.ping() >= 0


@coro_test
def test_handles() -> None:
    gate = coro.event()

    def handler(data: bytes) -> bytes:
        gate.wait()
        return data

    with pair(handler) as (ours, _):
        one, other = ours.begin(b"1"), ours.begin(b"2")
        with pytest.raises(coro.TimeoutError):
            one.wait(timeout=0.001)
        assert not one.done and "waiting" in repr(one)
        other.cancel()
        with pytest.raises(CallCancelled):
            other.wait()
        gate.set()
        assert one.wait() == b"1" == one.wait() and one.done


@coro_test
def test_late_unknown_and_repeated_answers() -> None:
    a, b = testing.stream_pair()
    with PacketStream(a) as ours:
        raw = Raw(b)
        call = ours.begin(b"x")
        assert raw.receive() == ("REQUEST", 1, b"x")
        call.cancel()
        raw.send("REPLY", 1, b"late")
        raw.send("REPLY", 1, b"later")
        raw.send("FAIL", 77, b"\1never asked")
        second = ours.begin(b"y")
        raw.send("REPLY", 2, b"right")
        assert second.wait() == b"right"
        s = ours.statistics()
        assert (s.late_replies, s.unknown_replies) == (2, 1)
        ours.abort()


@coro_test
def test_ids_wrap() -> None:
    a, b = testing.stream_pair()
    with PacketStream(a) as ours:
        raw = Raw(b)
        first = ours.begin(b"first")
        raw.receive()
        ours._set_next_id(2**64 - 1)
        later = [ours.begin(b"x") for _ in range(2)]
        assert [raw.receive()[1] for _ in later] == [2**64 - 1, 2]
        for number in (1, 2, 2**64 - 1):
            raw.send("REPLY", number, b"%d" % number)
        assert first.wait() == b"1" and later[0].wait() == b"%d" % (2**64 - 1)
        ours.abort()


@coro_test
def test_handler_that_fails() -> None:
    def handler(data: bytes) -> Any:
        if data == b"text":
            return "no bytes"
        raise ValueError("a secret text")

    with pair(handler) as (ours, _):
        with pytest.raises(RemoteError, match="^ValueError$"):
            ours.request(b"x")
        with pytest.raises(RemoteError, match="TypeError"):
            ours.request(b"text")
    a, b = testing.stream_pair()
    with PacketStream(a) as ours, PacketStream(b, handler=handler, tell_errors=True):
        with pytest.raises(RemoteError, match="a secret text"):
            ours.request(b"x")


@coro_test
def test_pushes_arrive_in_order() -> None:
    got: list[bytes] = []
    done = coro.event()

    def push(data: bytes) -> None:
        got.append(data)
        if data == b"end":
            done.set()

    with pair(push_handler=push, window=2000) as (ours, theirs):
        for i in range(500):
            ours.push(b"%d" % i)
        ours.push(b"end")
        done.wait()
        assert got == [b"%d" % i for i in range(500)] + [b"end"]
        theirs.push(b"nobody handles this")
        assert theirs.ping() >= 0


@coro_test
def test_pushes_wait_for_the_handler() -> None:
    gate = coro.event()
    with pair(push_handler=lambda data: gate.wait(), window=1000) as (ours, _):
        sent = []

        def push_all() -> None:
            for i in range(20):
                ours.push(bytes(100))
                sent.append(i)

        thread = coro.spawn(push_all)
        testing.wait_all_blocked()
        assert 5 < len(sent) < 15
        gate.set()
        thread.get()
        assert len(sent) == 20


@coro_test
def test_a_push_waits_no_longer_than_the_limit() -> None:
    gate = coro.event()
    stalled = lambda data: gate.wait()  # noqa: E731
    with testing.virtual_clock(autojump=True), pair(push_handler=stalled, window=1000, timeout=5) as (ours, _):
        sent = 0
        with pytest.raises(CallTimeout, match=r"within 5 seconds, .* nothing was sent") as told:
            while True:
                ours.push(bytes(100))
                sent += 1
        assert 5 < sent < 15 and told.value.seconds == 5
        gate.set()
        ours.push(bytes(100))  # the connection is as good as before


@coro_test
def test_a_slow_reader_stops_writers_and_memory_stays_bounded() -> None:
    a, b = testing.stream_pair()
    with PacketStream(a, max_queued=10_000, write_timeout=None, keepalive=None) as ours:
        raw = Raw(b)
        sent = []

        def send() -> None:
            while True:
                sent.append(ours.begin(bytes(1000)))

        thread = coro.spawn(send)
        testing.wait_all_blocked()
        before = len(sent)
        assert before < 2000
        thread.shutdown()
        thread.join()
        ours.abort()
        del raw


@coro_test
def test_too_big() -> None:
    with pair(lambda data: bytes(200), max_packet=100) as (ours, _):
        with pytest.raises(PacketTooBig, match="at most 100 bytes, got 101") as caught:
            ours.request(bytes(101))
        assert caught.value.limit == 100
        with pytest.raises(RemoteError, match="at most 100"):
            ours.request(bytes(100))
    a, b = testing.stream_pair()
    with PacketStream(a) as ours, PacketStream(b, handler=reverse, max_packet=50):
        ours.ping()
        with pytest.raises(PacketTooBig, match="at most 50"):
            ours.request(bytes(51))
        assert ours.request(b"ab") == b"ba"


@coro_test
def test_silence_is_noticed() -> None:
    with testing.virtual_clock(autojump=True):
        a, b = testing.stream_pair()
        ours = PacketStream(a, keepalive=10, keepalive_timeout=5, timeout=math.inf).start()
        raw = Raw(b)
        call = ours.begin(b"x")
        assert raw.receive()[0] == "REQUEST"
        with pytest.raises(PeerUnresponsive, match="nothing came from the other side"):
            call.wait()
        assert raw.receive()[0] == "PING"
        ours.wait_closed()


@coro_test
def test_long_work_keeps_the_connection() -> None:
    """A handler that works for a minute and gives way does not lose its client."""
    with testing.virtual_clock(autojump=True):
        with pair(lambda data: coro.sleep_relative(600) or data, keepalive=5, keepalive_timeout=5, timeout=1000) as (
            o,
            _,
        ):
            assert o.request(b"x") == b"x"


@coro_test
def test_nobody_uses_it() -> None:
    with testing.virtual_clock(autojump=True):
        with pair(reverse, idle_timeout=30) as (ours, theirs):
            assert ours.request(b"x") == b"x"
            ours.wait_closed()
            with pytest.raises(ConnectionLost):
                ours.request(b"x")


@coro_test
def test_the_other_side_goes() -> None:
    with pair(lambda data: coro.event().wait()) as (ours, theirs):
        calls = [ours.begin(b"x") for _ in range(3)]
        theirs_thread = coro.spawn(theirs.abort)
        errors = []
        for call in calls:
            with pytest.raises(ConnectionLost, match="closed the connection") as caught:
                call.wait()
            errors.append(caught.value)
        assert len({id(e) for e in errors}) == 3 and len({str(e) for e in errors}) == 1
        theirs_thread.join()
        ours.wait_closed()
        with pytest.raises(ConnectionLost):
            ours.push(b"x")
        with pytest.raises(ConnectionLost):
            ours.ping()
        assert ours.closed and isinstance(ours.error, ConnectionLost)


@coro_test
def test_the_cause_of_a_loss_is_chained() -> None:
    a, b = testing.stream_pair()
    broken = faults.faulty_stream(a, faults.cut(after=60, how="reset", side="recv"))
    with PacketStream(broken) as ours, PacketStream(b, handler=reverse):
        with pytest.raises(ConnectionLost) as caught:
            for _ in range(10):
                ours.request(b"0123456789")
        assert isinstance(caught.value.__cause__, ConnectionResetError)
        ours.abort()


@coro_test
def test_orderly_close() -> None:
    gate = coro.event()

    def handler(data: bytes) -> bytes:
        gate.wait()
        return data

    with testing.virtual_clock(autojump=True), pair(handler) as (ours, theirs):
        call = ours.begin(b"x")
        ours.ping()
        closing = coro.spawn(theirs.close)
        coro.sleep_relative(1)
        with pytest.raises(GoingAway):
            ours.request(b"new")
        gate.set()
        assert closing.get() is True
        assert call.wait() == b"x"
        assert theirs.close() is True


@coro_test
def test_close_has_a_deadline() -> None:
    with testing.virtual_clock(autojump=True), pair(lambda data: coro.event().wait()) as (ours, theirs):
        call = ours.begin(b"x")
        ours.ping()
        assert theirs.close(timeout=3) is False
        with pytest.raises(ConnectionLost):
            call.wait()


@coro_test
def test_close_before_start_and_twice() -> None:
    a, b = testing.stream_pair()
    packets = PacketStream(a)
    with pytest.raises(LocalError, match="start"):
        packets.request(b"x")
    assert packets.close() and packets.close() and a.closed
    with pytest.raises(LocalError, match="started once"):
        packets.start()
    b.close()


@coro_test
def test_garbage_ends_it_with_a_goodbye() -> None:
    a, b = testing.stream_pair()
    ours = PacketStream(a).start()
    raw = Raw(b)
    call = ours.begin(b"x")
    assert raw.receive()[0] == "REQUEST"
    b.send(b"\xff" * 100)
    with pytest.raises(ConnectionLost, match="broke the protocol") as caught:
        call.wait()
    assert isinstance(caught.value.__cause__, ProtocolError)
    kind, _, payload = raw.receive()
    assert kind == "GOODBYE" and payload[:2] == b"\0\1" and b"expected" in payload
    with pytest.raises(EOFError):
        raw.receive()


@coro_test
def test_a_goodbye_tells_why() -> None:
    a, b = testing.stream_pair()
    ours = PacketStream(a).start()
    Raw(b).send("GOODBYE", 0, b"\0\2you talk too much")
    ours.wait_closed()
    with pytest.raises(ConnectionLost, match="limit exceeded.*you talk too much"):
        ours.request(b"x")


@coro_test
def test_the_last_word_says_what_was_not_executed() -> None:
    """A request that crosses the other side's farewell, and one that cannot even be sent any more."""
    a, b = testing.stream_pair()
    ours = PacketStream(a).start()
    raw = Raw(b)
    call = ours.begin(b"x")
    assert raw.receive()[0] == "REQUEST"
    raw.send("GOODBYE", 0, b"\0\0")
    raw.send("GOODBYE", 0, b"\0\5")
    with pytest.raises(GoingAway, match="did not execute"):
        call.wait()
    with pytest.raises(GoingAway):
        ours.request(b"y")


@coro_test
def test_the_last_word_is_read_although_sending_fails() -> None:
    """The other side has closed: writing is refused before what it has sent was read."""

    class Reset:
        closed = False

        def __init__(self) -> None:
            self.refused = coro.event()
            self.greeted = False

        def recv(self, size: int) -> bytes:
            if not self.greeted:
                self.greeted = True
                return PEER_PREAMBLE
            self.refused.wait()
            return frames.encode(frames.KINDS["GOODBYE"], 0, b"\0\5")

        def sendall(self, data: bytes) -> None:
            if b"payload" in data:
                self.refused.set()
                raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")

        def close(self) -> None:
            self.closed = True

    stream = Reset()
    ours = PacketStream(stream, name="peer").start()
    call = ours.begin(b"payload")
    with pytest.raises(GoingAway):
        call.wait()
    ours.wait_closed()
    assert stream.closed


@coro_test
def test_the_last_word_comes_after_all_answers() -> None:
    a, b = testing.stream_pair()
    gate = coro.event()
    ours = PacketStream(a, handler=lambda data: (gate.wait(), data)[1]).start()
    raw = Raw(b)
    raw.send("REQUEST", 1, b"x")
    while not ours.statistics().running:
        coro.yield_slice()
    closing = coro.spawn(ours.close)
    assert raw.receive() == ("GOODBYE", 0, b"\0\0")
    raw.send("REQUEST", 2, b"y")
    assert raw.receive()[:2] == ("FAIL", 2)
    gate.set()
    assert raw.receive()[:2] == ("REPLY", 1)
    kind, _, payload = raw.receive()
    assert kind == "GOODBYE" and payload[:2] == b"\0\5"
    b.close()
    assert closing.get() is True


@coro_test
def test_nested_requests_in_both_directions() -> None:
    a, b = testing.stream_pair()
    ends: list[PacketStream] = []

    def handler(me: int) -> Any:
        def answer(data: bytes) -> bytes:
            n = int(data)
            return b"0" if n == 0 else b"%d" % (int(ends[me].request(b"%d" % (n - 1))) + 1)

        return answer

    ends.append(PacketStream(a, handler=handler(0)).start())
    ends.append(PacketStream(b, handler=handler(1)).start())
    assert ends[0].request(b"200") == b"200"
    for one in ends:
        one.abort()
        one.wait_closed()


@coro_test
def test_a_finaliser_may_say_something() -> None:
    """The collector may run anywhere, also where a lock would be held: what it says is put into a buffer."""

    class Cycle:
        def __init__(self, call: Any) -> None:
            self.me, self.call = self, call

        def __del__(self) -> None:
            self.call.cancel()

    with pair(lambda data: coro.event().wait()) as (ours, theirs):
        Cycle(ours.begin(b"x"))
        ours.ping()
        assert len(theirs.dump()) == 1
        gc.collect()
        ours.ping()
        theirs.ping()
        assert not ours.dump() and not theirs.dump()


@coro_test
def test_on_close() -> None:
    told = coro.event()
    a, b = testing.stream_pair()
    ours = PacketStream(a, on_close=lambda packets: told.set()).start()
    b.close()
    told.wait()
    assert ours.closed


@pytest.mark.parametrize("seed", range(60))
def test_a_time_limit_races_with_the_answer(seed: int) -> None:
    """Chance decides what runs next; the limit is over at the moment of the answer. There is one outcome, and no
    trace."""

    @coro_test
    def run() -> None:
        with testing.virtual_clock(autojump=True), testing.random_order(seed):
            with pair(lambda data: coro.sleep_relative(1) or data, keepalive=None) as (ours, theirs):

                def ask(i: int) -> str:
                    try:
                        if i % 3 == 0:
                            ours.request(b"x", timeout=1)
                        elif i % 3 == 1:
                            coro.with_timeout(1, ours.request, b"x")
                        else:
                            call = ours.begin(b"x")
                            coro.sleep_relative(1)
                            call.cancel()
                            call.wait()
                    except CallTimeout:
                        return "limit"
                    except coro.TimeoutError:
                        return "block"
                    except CallCancelled:
                        return "cancelled"
                    return "answer"

                threads = [coro.spawn(ask, i) for i in range(12)]
                for i, thread in enumerate(threads):
                    assert thread.get() in ("answer", ("limit", "block", "cancelled")[i % 3])
                coro.sleep_relative(2)
                assert not ours.dump() and not theirs.dump()
                assert ours.request(b"still works", timeout=5) == b"still works"

    run()


@pytest.mark.parametrize("seed", range(40))
def test_faults_at_any_byte(seed: int) -> None:
    """Bytes come in pieces, late, damaged, or not at all: each call ends, one way or another, and so does the
    connection."""

    @coro_test
    def run() -> None:
        with testing.virtual_clock(autojump=True), testing.random_order(seed):
            a, b = testing.stream_pair()
            what = [
                faults.cut(after=seed * 37 + 1, how="reset" if seed % 2 else "eof"),
                faults.corrupt(at=(seed * 29 + 20,)),
                faults.stall(after=seed * 31 + 1),
            ][seed % 3]
            faulty = faults.faulty_stream(a, faults.short(7, vary=True), what, seed=seed)
            ours = PacketStream(faulty, keepalive=5, keepalive_timeout=5, timeout=20).start()
            theirs = PacketStream(b, handler=reverse, keepalive=5, keepalive_timeout=5, timeout=20).start()
            ends = []

            def ask(i: int) -> None:
                try:
                    ours.request(bytes([i]) * i * 20)
                    ends.append("answer")
                except (ConnectionLost, CallTimeout, RemoteError):
                    ends.append("error")

            threads = [coro.spawn(ask, i) for i in range(20)]
            for thread in threads:
                thread.get()
            assert len(ends) == 20 and not ours.dump()
            ours.abort()
            theirs.abort()
            ours.wait_closed()
            theirs.wait_closed()

    run()


@pytest.mark.slow
@coro_test(timeout=250)
def test_no_call_is_left_after_many() -> None:
    """100 000 calls, each tenth cancelled at some moment."""
    with pair(reverse, real=True, max_running=100_000) as (ours, theirs):

        def work(me: int) -> None:
            for i in range(1000):
                if i % 10 == me % 10:
                    call = ours.begin(b"cancel me")
                    if i % 20 < 10:
                        coro.yield_slice()
                    call.cancel()
                else:
                    assert ours.request(b"abc") == b"cba"

        threads = [coro.spawn(work, i) for i in range(100)]
        for thread in threads:
            thread.get()
        ours.ping()
        theirs.ping()
        assert not ours.dump() and not theirs.dump()
        s = ours.statistics()
        assert s.calls == 100_000 and s.queued_bytes == 0 and s.outstanding == 0


# coro_test watches over the time from an OS thread of its own.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@coro_test
def test_after_a_fork() -> None:
    with pair(reverse, real=True) as (ours, _):
        assert ours.request(b"ab") == b"ba"
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                ours.request(b"x")
            except ForkedError:
                status = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            os._exit(status)
        assert coro.waitpid(pid)[1] == 0
        assert ours.request(b"ab") == b"ba"


@pytest.mark.parametrize(
    "options, error",
    [
        ({"max_packet": 0}, ValueError),
        ({"window": "x"}, ValueError),
        ({"timeout": -1}, ValueError),
        ({"keepalive": 0}, ValueError),
        ({"handler": 3}, TypeError),
    ],
)
@coro_test
def test_malformed_arguments(options: dict[str, Any], error: type[Exception]) -> None:
    a, b = testing.stream_pair()
    with pytest.raises(error, match="expected"):
        PacketStream(a, **options)
    a.close()
    b.close()
