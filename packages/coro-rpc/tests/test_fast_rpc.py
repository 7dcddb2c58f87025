"""Calls: forms, values, failures, deadlines, streams, callbacks, limits, order, life of a server."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Protocol

import pytest
from rpc_support import methods, served

import coro
from coro import testing
from coro.rpc import (
    BadArguments,
    Busy,
    CallCancelled,
    CallTimeout,
    ConnectionLost,
    EncodeError,
    GoingAway,
    LocalError,
    NoSuchMethod,
    NotPermitted,
    PacketTooBig,
    RemoteError,
    UploadError,
    fast_rpc,
)
from coro.testing import coro_test


@coro_test
def test_forms_of_a_call() -> None:
    with served() as (server, connect):
        conn = connect(name="a test")
        assert conn.call("add", 1) == 3 and conn.call("add", 1, b=5) == 6
        assert conn.remote.add(1, 1) == 2
        assert conn.call_with("add", [1], {"b": 1}) == 2
        handle = conn.call_async("add", 2, 2)
        assert handle.wait() == 4 == handle.wait() and handle.done
        assert conn.batch([("add", 1, 1), ("echo", "x")]) == [2, "x"]
        got = conn.batch([("fail",), ("add", 1)], return_exceptions=True)
        assert isinstance(got[0], RemoteError) and got[1] == 3
        with pytest.raises(RemoteError):
            conn.batch([("fail",), ("sleep", 1000)])
        assert conn.ping() >= 0
        assert "open" in repr(conn) and conn.peer["build"].startswith("coro-rpc")
        assert [c.peer["name"] for c in server.connections] == ["a test"]


@coro_test
def test_casts() -> None:
    got: list[Any] = []
    done = coro.event()
    registry = fast_rpc.Registry()

    @registry.export
    def note(value: Any) -> None:
        got.append(value)
        if value == "last":
            done.set()

    with served(registry) as (_, connect):
        conn = connect()
        for i in range(3):
            conn.cast("note", i)
        conn.cast("nothing")
        conn.cast("note", value="last")
        done.wait()
        assert sorted(got, key=str) == [0, 1, 2, "last"]


@pytest.mark.parametrize("codec", [fast_rpc.Pickle(), fast_rpc.JSON(), fast_rpc.MessagePack()], ids=lambda c: c.name)
def test_codecs(codec: fast_rpc.Codec) -> None:
    @coro_test
    def run() -> None:
        with served(codecs=[fast_rpc.Pickle(), fast_rpc.JSON(), fast_rpc.MessagePack()]) as (_, connect):
            conn = connect(codecs=[codec])
            value = [None, True, -1, 1.5, "text", {"a": [1, 2]}]
            assert conn.call("echo", value) == value
            assert list(conn.stream("count", 3)) == [0, 1, 2]
            assert conn.call("total", iter([1, 2]), scale=2) == 6
            with pytest.raises(EncodeError):
                conn.call("echo", object())
            assert conn.call("echo", 1) == 1

    run()


@coro_test
def test_large_values() -> None:
    with served() as (_, connect):
        conn = connect()
        big = bytes(range(256)) * 4096
        value = [big, {"a": big, "b": bytearray(big)}, (big, "x")]
        got = conn.call("echo", value)
        assert got == value and type(got[0]) is bytes and type(got[1]["b"]) is bytearray
        rows = [(i, f"row {i}", i / 2) for i in range(20_000)]
        before = conn.statistics().packets_received
        assert conn.call("echo", rows) == rows
        assert conn.statistics().packets_received == before + 1
        with pytest.raises(PacketTooBig, match="as a stream"):
            conn.call("echo", bytes(17 << 20))
        assert conn.call("echo", 1) == 1


@coro_test
def test_failures() -> None:
    failures: list[Any] = []
    with served(on_error=lambda call, e: failures.append((call.name, e))) as (_, connect):
        conn = connect(errors=[KeyError])
        with pytest.raises(RemoteError, match="^ValueError: .*text") as caught:
            conn.call("fail", "ValueError", "text", 3)
        e = caught.value
        assert (e.type, e.details, e.remote_traceback) == ("ValueError", ("text", 3), None)
        with pytest.raises(KeyError, match="lost"):
            conn.call("fail", "KeyError", "lost")
        with pytest.raises(NoSuchMethod, match="'nothing'"):
            conn.call("nothing")
        with pytest.raises(BadArguments, match="missing 1 required"):
            conn.call("add")
        with pytest.raises(BadArguments, match="use stream"):
            conn.call("count", 1)
        with pytest.raises(BadArguments, match="use call"):
            list(conn.stream("add", 1))
        assert [name for name, _ in failures][:2] == ["fail", "fail"]
    with served(tracebacks=True) as (_, connect):
        with pytest.raises(RemoteError, match="Remote traceback") as caught:
            connect().call("fail")
        assert "rpc_support.py" in str(caught.value.remote_traceback)


@coro_test
def test_results_that_cannot_be_sent() -> None:
    registry = fast_rpc.Registry()
    registry.export(lambda: object(), "thing")
    registry.export(lambda: bytes(20 << 20), "huge")

    @registry.export
    def bad_item() -> Iterator[Any]:
        yield 1
        yield object()

    with served(registry) as (_, connect):
        conn = connect()
        with pytest.raises(RemoteError, match="result of thing cannot be sent"):
            conn.call("thing")
        with pytest.raises(RemoteError, match="at most"):
            conn.call("huge")
        stream = conn.stream("bad_item")
        assert next(stream) == 1
        with pytest.raises(RemoteError, match="plain values"):
            next(stream)


@coro_test
def test_the_deadline_travels_and_stops_the_handler() -> None:
    seen: list[float] = []
    stopped = coro.event()
    registry = methods()

    @registry.export
    def work() -> None:
        call = fast_rpc.current_call()
        assert call is not None
        seen.append(call.remaining)
        try:
            coro.sleep_relative(1000)
        except coro.Shutdown:
            assert call.cancelled or call.expired
            stopped.set()
            raise

    with served(registry) as (server, connect):
        conn = connect()
        with pytest.raises(CallTimeout, match="work within 0.05 seconds|time for work was over"):
            conn.call("work", timeout=0.05)
        stopped.wait()
        assert 0 < seen[0] <= 0.06
        conn.ping()
        assert server.running == 0


@coro_test
def test_the_deadline_is_passed_on() -> None:
    """A calls B with a limit, B calls C with none of its own: C sees what is left."""
    far = methods()
    seen: list[float] = []

    @far.export
    def look() -> None:
        call = fast_rpc.current_call()
        assert call is not None
        seen.append(call.remaining)

    with served(far) as (_, connect_far):
        behind = connect_far(options={"timeout": None})
        near = fast_rpc.Registry()
        near.export(lambda: behind.call("look"), "ask")
        with served(near) as (_, connect):
            connect().call("ask", timeout=30)
            connect(options={"timeout": None}).call("ask")
    assert 0 < seen[0] <= 30.01 and seen[1] == math.inf


@coro_test
def test_cancelling_reaches_the_handler_within_a_round_trip() -> None:
    with served() as (server, connect):
        conn = connect()
        handle = conn.call_async("sleep", 1000)
        conn.ping()
        assert server.running == 1
        handle.cancel()
        conn.ping()
        coro.yield_slice()
        assert server.running == 0 and not conn.dump()


@coro_test
def test_killing_the_caller_cancels() -> None:
    """A limit around the call, or a shutdown of the thread, frees the thread and tells the server."""
    with served() as (server, connect):
        conn = connect()
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.02, conn.call, "sleep", 1000)
        thread = coro.spawn(conn.call, "sleep", 1000)
        conn.ping()
        thread.shutdown()
        thread.join()
        conn.ping()
        coro.yield_slice()
        assert server.running == 0 and not conn.dump()


@coro_test
def test_a_handler_may_be_shielded() -> None:
    done = coro.event()
    registry = fast_rpc.Registry()

    @registry.export
    def careful() -> None:
        with coro.shield(10):
            coro.sleep_relative(0.03)
            done.set()
        coro.sleep_relative(1000)

    with served(registry) as (server, connect):
        with pytest.raises(CallTimeout):
            connect().call("careful", timeout=0.01)
        done.wait(10)


@coro_test
def test_max_time_of_a_method() -> None:
    registry = fast_rpc.Registry()
    registry.export(lambda: coro.sleep_relative(1000), "long", max_time=0.02)
    with served(registry) as (_, connect):
        with pytest.raises(CallTimeout, match="time for long was over"):
            connect().call("long")


# -- streams


@coro_test
def test_streams_down() -> None:
    with served() as (server, connect):
        conn = connect()
        stream = conn.stream("count", 30_000)
        assert sum(stream) == sum(range(30_000)) and stream.result == "end" and stream.done
        assert list(stream) == []
        assert not conn.dump()


@coro_test
def test_a_stream_waits_for_its_reader() -> None:
    made: list[int] = []
    registry = fast_rpc.Registry()

    @registry.export
    def blocks() -> Iterator[bytes]:
        for i in range(1000):
            made.append(i)
            yield bytes(1000)

    with served(registry) as (_, connect):
        conn = connect(options={"window": 10_000})
        with conn.stream("blocks") as stream:
            next(stream)
            for _ in range(10):
                conn.ping()
            assert 9 < len(made) < 30
            assert sum(1 for _ in stream) == 999


@coro_test
def test_closing_a_stream_stops_the_method() -> None:
    ended = coro.event()
    registry = fast_rpc.Registry()

    @registry.export
    def forever() -> Iterator[int]:
        try:
            i = 0
            while True:
                yield i
                i += 1
        finally:
            ended.set()

    with served(registry) as (server, connect):
        conn = connect()
        with conn.stream("forever") as stream:
            assert next(stream) == 0
        ended.wait()
        ended.clear()
        dropped = conn.stream("forever")
        next(dropped)
        del dropped
        ended.wait()
        ended.clear()
        stopped = conn.stream("forever", timeout=0.05)
        with pytest.raises(CallTimeout):
            for _ in stopped:
                pass
        ended.wait()


@coro_test
def test_a_stream_that_fails_after_items() -> None:
    registry = fast_rpc.Registry()

    @registry.export
    def broken() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("at three")

    with served(registry) as (_, connect):
        stream = connect().stream("broken")
        assert next(stream) == 1 and next(stream) == 2
        with pytest.raises(RemoteError, match="at three"):
            next(stream)


@coro_test
def test_streams_up() -> None:
    with served() as (_, connect):
        conn = connect(options={"window": 5000})
        assert conn.call("total", iter(range(20_000))) == sum(range(20_000))
        assert conn.call("total", iter([]), 3) == 0

        def broken() -> Iterator[int]:
            yield 1
            raise ValueError("no more")

        with pytest.raises(RemoteError, match="UploadError.*no more"):
            conn.call("total", broken())
        with pytest.raises(LocalError, match="at most one iterator"):
            conn.call("total", iter([1]), iter([2]))
        assert issubclass(UploadError, RemoteError)


@coro_test
def test_an_upload_that_nobody_reads_to_its_end() -> None:
    registry = fast_rpc.Registry()
    registry.export(lambda items: next(items), "first")
    closed = coro.event()

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 7
        finally:
            closed.set()

    with served(registry) as (_, connect):
        conn = connect()
        assert conn.call("first", endless()) == 7
        closed.wait()
        assert conn.call("first", iter([8])) == 8


@coro_test
def test_both_ways_at_once() -> None:
    registry = fast_rpc.Registry()

    @registry.export
    def double(items: Iterator[int]) -> Iterator[int]:
        for item in items:
            yield item * 2

    with served(registry) as (_, connect):
        assert list(connect().stream("double", iter(range(3000)))) == [2 * i for i in range(3000)]


# -- callbacks, order, limits


@coro_test
def test_callbacks_to_any_depth() -> None:
    registry = methods()
    with served(registry) as (_, connect):
        conn = connect(registry)
        assert conn.call("back", 100) == 100


@coro_test
def test_results_come_out_of_order_unless_asked() -> None:
    order: list[int] = []
    registry = fast_rpc.Registry()

    def slow(i: int) -> int:
        coro.sleep_relative(0.02 if i == 0 else 0)
        order.append(i)
        return i

    registry.export(slow, "free")
    registry.export(slow, "serial", serial="method")
    registry.export(slow, "per_client", serial="client")
    with served(registry) as (_, connect):
        conn = connect()
        for name, wanted in (("free", [1, 2, 0]), ("serial", [0, 1, 2]), ("per_client", [0, 1, 2])):
            order.clear()
            assert conn.batch([(name, i) for i in range(3)]) == [0, 1, 2]
            assert order == wanted, name
    with served(registry, in_order=True) as (_, connect):
        order.clear()
        connect().batch([("free", i) for i in range(3)])
        assert order == [0, 1, 2]


@coro_test
def test_cancelled_in_the_queue_of_a_serial_method() -> None:
    gate = coro.event()
    ran: list[int] = []
    registry = fast_rpc.Registry()

    @registry.export(serial="method")
    def one(i: int) -> int:
        gate.wait()
        ran.append(i)
        return i

    with served(registry) as (_, connect):
        conn = connect()
        calls = [conn.call_async("one", i) for i in range(3)]
        conn.ping()
        calls[1].cancel()
        conn.ping()
        gate.set()
        assert calls[0].wait() == 0 and calls[2].wait() == 2
        assert ran == [0, 2]


@coro_test
def test_limits() -> None:
    gate = coro.event()
    registry = fast_rpc.Registry()
    registry.export(gate.wait, "wait")
    registry.export(lambda: gate.wait(), "one", limit=1)
    with served(registry, max_running=3, max_per_connection=2) as (server, connect):
        first, second = connect(), connect()
        held = [first.call_async("one")]
        first.ping()
        with pytest.raises(Busy, match="1 calls of one"):
            second.call("one")
        held.append(first.call_async("wait"))
        first.ping()
        with pytest.raises(Busy, match="2 calls run on this connection"):
            first.call("wait")
        held.append(second.call_async("wait"))
        second.ping()
        assert server.running == 3
        with pytest.raises(Busy, match="server executes 3 calls"):
            second.call("wait")
        gate.set()
        for one in held:
            one.wait()
        assert server.running == 0


@coro_test
def test_hooks_and_metadata() -> None:
    registry = methods()
    seen: list[Any] = []
    slow: list[Any] = []

    @registry.before
    def before(call: fast_rpc.IncomingCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        call.note = call.metadata.get("traceparent")
        if args == (13,):
            raise NotPermitted("not thirteen")

    @registry.after
    def after(call: fast_rpc.IncomingCall, result: Any) -> None:
        seen.append((call.name, call.note, result))

    with served(registry, slow=0.01, on_slow=lambda call, seconds: slow.append(call.name)) as (_, connect):
        conn = connect()
        assert conn.call("echo", 1, metadata={"traceparent": "00-abc"}) == 1
        with pytest.raises(NotPermitted, match="not thirteen"):
            conn.call("echo", 13)
        conn.call("sleep", 0.02)
        assert seen == [("echo", "00-abc", 1), ("sleep", None, 0.02)] and slow == ["sleep"]


# -- registry and proxies


class Calculator(Protocol):
    def add(self, a: int, b: int = 0) -> int: ...

    def numbers(self, n: int) -> Iterator[int]:
        """Numbers below n."""
        ...


class Good:
    def add(self, a: int, b: int = 0) -> int:
        return a + b

    def numbers(self, n: int) -> Iterator[int]:
        yield from range(n)

    def secret(self) -> str:
        return "not exported"


@coro_test
def test_services_and_typed_proxies() -> None:
    registry = fast_rpc.Registry()
    registry.export_service(Good(), Calculator, "calc", idempotent=True)
    assert list(registry) == ["calc.add", "calc.numbers"] and "calc.add" in registry and len(registry) == 2
    with served(registry) as (_, connect):
        conn = connect()
        calc = conn.proxy(Calculator, "calc")
        assert calc.add(1, b=2) == 3 and list(calc.numbers(3)) == [0, 1, 2]
        with pytest.raises(NoSuchMethod):
            conn.call("calc.secret")
        assert "Numbers" not in (conn.call("rpc.describe", "calc.add")["doc"])


def test_a_service_that_does_not_fit() -> None:
    class Bad:
        def add(self, x: int, b: int) -> int:
            return x + b

    with pytest.raises(fast_rpc.ServiceError) as caught:
        fast_rpc.Registry().export_service(Bad(), Calculator)
    text = str(caught.value)
    assert "numbers() is missing" in text and "expected 'a' as parameter 1, got 'x'" in text
    assert "'b' needs a default" in text


@pytest.mark.parametrize("name", ["_private", "a._b", "rpc.ping", "rpc", "", "a b", "a..b", "__import__"])
def test_names_that_are_not_allowed(name: str) -> None:
    with pytest.raises(LocalError, match="expected a name"):
        fast_rpc.Registry().export(len, name)


def test_registry_refuses_mistakes() -> None:
    registry = fast_rpc.Registry()
    registry.export(len)
    with pytest.raises(LocalError, match="exported already"):
        registry.export(len)
    with pytest.raises(TypeError):
        registry.export(3)  # type: ignore[call-overload]
    for options in ({"serial": "x"}, {"limit": 0}, {"max_time": 0}):
        with pytest.raises(ValueError, match="expected"):
            registry.export(len, "other", **options)  # type: ignore[call-overload]
    with pytest.raises(KeyError):
        registry.describe("nothing")


@coro_test
def test_builtin_methods() -> None:
    with served(name="the server", introspection=True) as (server, connect):
        conn = connect()
        assert conn.call("rpc.ping", 5) == 5
        assert "add" in conn.call("rpc.list")
        about = conn.call("rpc.describe", "add")
        assert about["signature"].startswith("(a: ") and about["doc"] == "Add two numbers." and not about["stream"]
        held = conn.call_async("sleep", 1000)
        conn.call("add", 1)
        stats = conn.call("rpc.stats")
        assert stats["name"] == "the server" and stats["running"] == 2
        assert {m["name"]: m["calls"] for m in stats["methods"]}["add"] == 1
        assert [c["method"] for c in conn.call("rpc.calls")] == ["sleep"]
        held.cancel()
        with pytest.raises(RemoteError, match="LookupError"):
            conn.call("rpc.describe", "nothing")
    with served() as (_, connect):
        with pytest.raises(NotPermitted, match="stranger"):
            connect().call("rpc.stats")


# -- life


@coro_test
def test_a_server_drains() -> None:
    registry = methods()
    with served(registry) as (server, connect):
        conn = connect()
        handle = conn.call_async("sleep", 0.05)
        conn.ping()
        draining = coro.spawn(server.drain, 10)
        coro.yield_slice()
        while not conn.closing:
            coro.yield_slice()
        with pytest.raises(GoingAway):
            conn.call("add", 1)
        assert handle.wait() == 0.05
        assert draining.get() is True
        conn.wait_closed()


@coro_test
def test_a_server_that_is_closed_fails_all_calls() -> None:
    with served() as (server, connect):
        conn = connect()
        calls = [conn.call_async("sleep", 1000) for _ in range(5)]
        conn.ping()
        server.close()
        for one in calls:
            with pytest.raises(ConnectionLost):
                one.wait()


@coro_test
def test_a_connection_serves_both_sides_without_a_server() -> None:
    a, b = testing.stream_pair()
    left = fast_rpc.Connection(a, methods(), server_side=True)
    right = fast_rpc.Connection(b, methods())
    starting = coro.spawn(left.start)
    with right:
        starting.get()
        assert right.call("add", 1) == 3 and left.call("add", 2) == 4
        left.abort()


@coro_test
def test_a_thousand_threads_on_one_connection() -> None:
    """Each is woken for its own answer and no other's, in any order."""
    with served() as (_, connect):
        conn = connect()

        def ask(i: int) -> int:
            return sum(conn.call("echo", i) for _ in range(5))

        threads = [coro.spawn(ask, i) for i in range(1000)]
        assert [thread.get() for thread in threads] == [5 * i for i in range(1000)]


@coro_test
def test_many_rows_are_one_answer() -> None:
    """150 000 rows cost one request and one packet, as values."""
    registry = fast_rpc.Registry()
    registry.export(lambda: [(i, f"row {i}", i * 0.5) for i in range(150_000)], "rows")
    with served(registry) as (_, connect):
        conn = connect()
        before = conn.statistics().packets_received
        rows = conn.call("rows")
        assert len(rows) == 150_000 and rows[-1] == (149_999, "row 149999", 74_999.5)
        assert conn.statistics().packets_received == before + 1


@coro_test
def test_a_handler_outside_a_call() -> None:
    assert fast_rpc.current_call() is None


@coro_test
def test_every_method_is_answered() -> None:
    """Whatever it ends with, also what ends its thread, and what is too large or cannot be shown."""

    class Strange(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    registry = fast_rpc.Registry()

    @registry.export
    def ends(which: str) -> None:
        raise {
            "KeyboardInterrupt": KeyboardInterrupt,
            "SystemExit": SystemExit(3),
            "Shutdown": coro.Shutdown,
            "GeneratorExit": GeneratorExit,
            "Group": BaseExceptionGroup("several", [SystemExit(1), ValueError(2)]),
            "Large": ValueError("x" * 1_000_000),
            "Strange": Strange(),
            "StopIteration": StopIteration(1),
        }[which]

    seen: list[object] = []
    before = coro.set_exception_notifier(lambda: None)
    with served(registry, max_packet=1000, tracebacks=True, on_error=seen.append) as (server, connect):
        conn = connect(options={"max_packet": 1000, "timeout": 60})
        for which in ("KeyboardInterrupt", "SystemExit", "GeneratorExit", "Group", "Large", "Strange", "StopIteration"):
            with pytest.raises(RemoteError) as caught:
                conn.call("ends", which)
            kind = {"Group": "ExceptionGroup", "Large": "ValueError"}.get(which, which)
            assert kind in str(caught.value)
        # It began, so this must not be GoingAway, which clients repeat.
        with pytest.raises(CallCancelled, match="stopped by the server"):
            conn.call("ends", "Shutdown")
        assert server.running == 0
    coro.set_exception_notifier(before)


@coro_test
def test_nested_calls_deeper_than_the_limit() -> None:
    """The innermost caller must not wait for room that only its own ancestors could make."""
    there, here = fast_rpc.Registry(), fast_rpc.Registry()

    def onward(name: str) -> Any:
        def method(n: int) -> int:
            call = fast_rpc.current_call()
            assert call is not None
            return 0 if n == 0 else call.connection.call(name, n - 1) + 1

        return method

    there.export(onward("here"), "there")
    here.export(onward("there"), "here")
    with served(there, max_outstanding=50) as (_, connect):
        conn = connect(here, options={"max_outstanding": 50})
        assert conn.call("there", 80) == 80
        with pytest.raises((Busy, RemoteError), match="nest"):
            conn.call("there", 500)
        assert conn.call("there", 3) == 3
