"""The client that connects anew, and the pool."""

from __future__ import annotations

import collections
import functools
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rpc_support import methods

import coro
from coro import testing
from coro.rpc import (
    Busy,
    CallTimeout,
    ConnectionLost,
    ForkedError,
    GoingAway,
    LocalError,
    PeerUnresponsive,
    RpcError,
    fast_rpc,
)
from coro.testing import coro_test

PROGRAM = Path(__file__).parent / "serving.py"


class Process:
    """A server in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, PROGRAM, *arguments], stdout=subprocess.PIPE, text=True, cwd=PROGRAM.parent
        )
        assert self.child.stdout is not None
        self.port = int(coro.in_thread(self.child.stdout.readline))

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exc: object) -> None:
        self.child.kill()
        coro.in_thread(self.child.wait)
        assert self.child.stdout is not None
        self.child.stdout.close()

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.port)


@coro_test
def test_it_connects_when_it_is_needed_and_anew() -> None:
    connected: list[Any] = []
    with fast_rpc.Server(methods(), ("127.0.0.1", 0)) as server:
        with fast_rpc.Client(server.addresses[0], on_connect=connected.append) as client:
            assert not client.statistics().connected
            assert client.call("add", 1) == 3 and client.remote.add(2) == 4
            assert client.call_async("add", 3).wait() == 5 and list(client.stream("count", 2)) == [0, 1]
            client.cast("add", 1)
            server.connections[0].abort()
            client.connection().wait_closed()
            assert client.call("add", 1) == 3
            assert client.statistics().connects == 2 and len(connected) == 2
            assert client.proxy(int, "add") is not None and "Client of" in repr(client)
        with pytest.raises(GoingAway, match="closed"):
            client.call("add", 1)


@coro_test
def test_nobody_listens() -> None:
    probe = coro.tcp_sock()
    probe.bind(("127.0.0.1", 0))
    address = probe.getsockname()
    with fast_rpc.Client(address, retry_connect=0.2) as client:
        with pytest.raises(OSError):
            client.call("add", 1)
        assert client.statistics().failures > 1
    probe.close()


@coro_test
def test_many_threads_make_one_connection() -> None:
    with fast_rpc.Server(methods(), ("127.0.0.1", 0)) as server, fast_rpc.Client(server.addresses[0]) as client:
        threads = [coro.spawn(client.call, "echo", i) for i in range(1000)]
        assert [thread.get() for thread in threads] == list(range(1000))
        assert client.statistics().connects == 1


@coro_test
def test_what_may_be_repeated() -> None:
    registry = fast_rpc.Registry()
    runs: list[str] = []
    servers: list[fast_rpc.Server] = []

    @registry.export
    def breaks(how: str) -> str:
        runs.append(how)
        if len(runs) == 1:
            servers[0].connections[0].abort()
            coro.sleep_relative(1000)
        return how

    with fast_rpc.Server(registry, ("127.0.0.1", 0)) as server:
        servers.append(server)
        with fast_rpc.Client(server.addresses[0]) as client:
            with pytest.raises(ConnectionLost):
                client.call("breaks", "once")
            assert runs == ["once"]
            runs.clear()
            assert client.call("breaks", "twice", idempotent=True) == "twice"
            assert runs == ["twice", "twice"] and client.statistics().repeated == 1


@coro_test
def test_busy_is_repeated_only_on_request() -> None:
    registry = fast_rpc.Registry()
    registry.export(lambda: coro.sleep_relative(0.05), "one", limit=1)
    with fast_rpc.Server(registry, ("127.0.0.1", 0)) as server, fast_rpc.Client(server.addresses[0]) as client:
        held = client.call_async("one")
        client.ping()
        with pytest.raises(Busy):
            client.call("one")
        client.call("one", idempotent=True)
        held.wait()


# coro_test watches over the time from an OS thread of its own.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@coro_test
def test_after_a_fork() -> None:
    with fast_rpc.Server(methods(), ("127.0.0.1", 0)) as server, fast_rpc.Client(server.addresses[0]) as client:
        client.call("add", 1)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                client.call("add", 1)
            except ForkedError:
                try:
                    client.connection()
                except ForkedError:
                    status = 0
            finally:
                os._exit(status)
        assert coro.waitpid(pid)[1] == 0
        assert client.call("add", 1) == 3
        done = coro.in_thread(subprocess.run, [sys.executable, "-c", "print(5)"], capture_output=True)
        assert done.stdout == b"5\n" and client.call("add", 1) == 3


@pytest.mark.slow
@coro_test
def test_kill_minus_nine_of_the_server_under_load() -> None:
    """Every caller gets an error, none hangs."""
    with Process() as server, fast_rpc.connect(server.address) as conn:
        ended: list[str] = []

        def work() -> None:
            try:
                while True:
                    conn.call("echo", b"x" * 1000)
            except ConnectionLost:
                ended.append("lost")

        threads = [coro.spawn(work) for _ in range(100)]
        while conn.statistics().packets_received < 1000:
            coro.sleep_relative(0.01)
        server.child.send_signal(signal.SIGKILL)
        for thread in threads:
            thread.get()
        assert len(ended) == 100 and not conn.dump()
        conn.wait_closed()


@pytest.mark.slow
@coro_test
def test_a_handler_that_blocks_its_loop_is_named() -> None:
    """Nothing answers, not even to a ping: the error says what may be the reason."""
    options = {"keepalive": 2, "keepalive_timeout": 1}
    with Process() as server, fast_rpc.connect(server.address, options=options) as conn:
        with pytest.raises(PeerUnresponsive, match="a function blocks its loop"):
            conn.call("block", 1000)


@pytest.mark.slow
@coro_test
def test_kill_minus_nine_of_a_client_under_load() -> None:
    """The server stops what nobody waits for, and goes on."""
    registry = methods()
    with fast_rpc.Server(registry, ("127.0.0.1", 0)) as server:
        host, port = server.addresses[0]
        child = subprocess.Popen([sys.executable, PROGRAM, "--load", str(port)], cwd=PROGRAM.parent)
        while server.running < 50:
            coro.sleep_relative(0.01)
        child.kill()
        coro.in_thread(child.wait)
        while server.running or server.connections:
            coro.sleep_relative(0.01)
        with fast_rpc.connect(server.addresses[0]) as conn:
            assert conn.call("add", 1) == 3


@pytest.mark.slow
@coro_test
def test_a_pool() -> None:
    with Process() as one, Process() as other:
        with fast_rpc.Pool([one.address, other.address], check_every=0.05) as pool:
            # A server to which the connection is still being made gets no calls while another one is free.
            while not all(m.statistics.connected for m in pool.members()):
                coro.sleep_relative(0.01)
            pids = {pool.call("pid") for _ in range(50)}
            assert pids == {one.child.pid, other.child.pid}
            held = [pool.call_async("sleep", 1000) for _ in range(10)]
            assert sorted(m.outstanding for m in pool.members()) == [5, 5]
            for call in held:
                call.cancel()
            one.child.kill()
            coro.in_thread(one.child.wait)
            for _ in range(20):
                assert pool.call("pid", idempotent=True) == other.child.pid
            while all(m.healthy for m in pool.members()):
                coro.sleep_relative(0.01)
            assert [m.healthy for m in pool.members()] == [False, True] and "1 healthy" in repr(pool)
            assert pool.remote.pid() == other.child.pid
            other.child.kill()
            coro.in_thread(other.child.wait)
            with pytest.raises((OSError, RpcError)):
                pool.call("pid", idempotent=True)
        with pytest.raises(GoingAway):
            pool.call("pid")


@pytest.mark.slow
@coro_test
def test_prefork() -> None:
    """Two processes behind one address; SIGHUP replaces them, and a client that connects anew notices nothing else."""
    with Process("--prefork") as server:
        with fast_rpc.Client(server.address) as client:
            first = client.call("pid")
            assert first != server.child.pid
            server.child.send_signal(signal.SIGHUP)
            seen = {first}
            while len(seen) < 2:
                seen.add(client.call("pid", idempotent=True))
                coro.sleep_relative(0.02)
        server.child.send_signal(signal.SIGTERM)
        assert coro.in_thread(server.child.wait) == 0


@pytest.mark.slow
@coro_test
def test_sigterm_drains() -> None:
    with Process() as server:
        with fast_rpc.connect(server.address) as conn:
            held = conn.call_async("sleep", 0.3)
            conn.ping()
            server.child.send_signal(signal.SIGTERM)
            assert held.wait() == 0.3
            conn.wait_closed()
        assert coro.in_thread(server.child.wait) == 0


@coro_test
def test_arguments() -> None:
    with pytest.raises(ValueError, match="at least 1 attempt"):
        fast_rpc.Client(("127.0.0.1", 1), attempts=0)
    with pytest.raises(ValueError, match="at least one address"):
        fast_rpc.Pool([])


@contextmanager
def mute() -> Iterator[Any]:
    """An address that accepts connections (the kernel does) where nobody ever says anything."""
    sock = coro.tcp_sock()
    sock.bind(("127.0.0.1", 0))
    sock.listen(64)
    try:
        yield sock.getsockname()
    finally:
        sock.close()


@pytest.mark.parametrize("kind", ["Client", "Pool"])
@coro_test
def test_the_limit_of_a_call_covers_connecting(kind: str) -> None:
    """Each caller waits its own limit and no longer, however many wait at a server that says nothing."""
    with mute() as address:
        client: Any = fast_rpc.Client(address) if kind == "Client" else fast_rpc.Pool([address, address])
        ended: list[tuple[float, float]] = []

        def call(seconds: float) -> None:
            began = coro.get_now()
            with pytest.raises(CallTimeout) as caught:
                client.call("add", 1, timeout=seconds)
            assert caught.value.seconds == seconds and "connecting" in str(caught.value)
            ended.append((seconds, (coro.get_now() - began) / coro.ticks_per_sec))

        coro.in_parallel([(call, (0.02 * (1 + i % 5),)) for i in range(20)])
        # Far below the ten seconds that an attempt to connect may take.
        assert len(ended) == 20 and all(seconds <= took < 5 for seconds, took in ended)
        assert client.statistics().outstanding == 0 if kind == "Client" else True
        client.close(0.1)


@coro_test
def test_all_who_wait_for_one_attempt_share_its_outcome() -> None:
    with mute() as address:
        client = fast_rpc.Client(address, connect_timeout=0.1, retry_connect=0)
        errors: list[Exception] = []

        def call() -> None:
            try:
                client.call("add", 1)
            except CallTimeout as e:
                errors.append(e)

        coro.in_parallel([(call, ())] * 10)
        assert client.statistics().failures == 1
        assert len({id(e) for e in errors}) == 10 and len({str(e) for e in errors}) == 1
        client.close()


@coro_test
def test_a_client_that_is_closed_while_it_connects() -> None:
    with mute() as address:
        client = fast_rpc.Client(address)

        def call() -> None:
            with pytest.raises(GoingAway, match="closed"):
                client.call("add", 1)

        waiting = coro.spawn(call)
        while not client.statistics().outstanding:
            coro.yield_slice()
        client.close()
        waiting.get()


@coro_test
def test_one_limit_for_all_repetitions() -> None:
    """Each attempt gets what the ones before have left."""
    with testing.virtual_clock(autojump=True):
        registry = fast_rpc.Registry()

        @registry.export
        def drop() -> None:
            coro.sleep_relative(1.5)
            call = fast_rpc.current_call()
            assert call is not None
            call.connection.abort()

        with fast_rpc.Server(registry, ("127.0.0.1", 0)) as server:
            address = server.addresses[0]
            for make in (fast_rpc.Client, lambda one: fast_rpc.Pool([one] * 3)):
                client: Any = make(address)
                began = coro.get_now()
                with pytest.raises(CallTimeout) as caught:
                    client.call("drop", timeout=2, idempotent=True)
                assert caught.value.seconds == 2 and "within 2 seconds" in str(caught.value)
                assert 1.9 < (coro.get_now() - began) / coro.ticks_per_sec < 2.2
                client.close()


def endless() -> Iterator[int]:
    yield from range(1000)


@coro_test
def test_a_call_whose_iterator_was_used_is_not_repeated() -> None:
    """What is left of an iterator is another argument: the result would be wrong."""
    registry = fast_rpc.Registry()
    gate = coro.event()

    @registry.export(limit=1)
    def total(items: Iterator[int]) -> int:
        gate.wait()
        return sum(items)

    with (
        fast_rpc.Server(registry, ("127.0.0.1", 0)) as full,
        fast_rpc.Server(methods(), ("127.0.0.1", 0)) as free,
        fast_rpc.connect(full.addresses[0]) as holder,
    ):
        held = holder.call_async("total", endless())
        holder.ping()
        with fast_rpc.Pool([full.addresses[0], free.addresses[0]]) as pool:
            right = used = 0
            while not (right and used):
                try:
                    assert pool.call("total", endless()) == 499500
                    right += 1
                except Busy as e:
                    assert "iterator" in str(e) and "Items" in str(e)
                    used += 1
            for _ in range(20):
                assert pool.call("total", fast_rpc.Items(endless)) == 499500
        gate.set()
        assert held.wait() == 499500
        with fast_rpc.Client(free.addresses[0]) as client:
            assert client.call("total", endless()) == 499500
            assert client.call("total", fast_rpc.Items(lambda: [1, 2])) == 3
            assert client.call_async("total", fast_rpc.Items(endless)).wait() == 499500
            with pytest.raises(LocalError, match="iterable"):
                client.call("total", fast_rpc.Items(lambda: 5))  # type: ignore[arg-type,return-value]
    with pytest.raises(TypeError, match="function"):
        fast_rpc.Items([1])  # type: ignore[arg-type]


@pytest.mark.slow
@coro_test
def test_rolling_restarts_under_calls_with_iterators() -> None:
    """Right results, or errors that say what happened; no wrong ones."""
    outcomes: collections.Counter[str] = collections.Counter()
    first = [Process(), Process()]
    ports = [one.port for one in first]
    stop: list[int] = []
    with fast_rpc.Pool([one.address for one in first], check_every=0.2) as pool:

        def work(seed: int) -> None:
            chance = random.Random(seed)
            while not stop:
                n = chance.randrange(50, 3000)
                items: Any = iter(range(n)) if chance.random() < 0.5 else fast_rpc.Items(functools.partial(range, n))
                try:
                    got = pool.call("total", items, timeout=30)
                    outcomes["right" if got == n * (n - 1) // 2 else "wrong"] += 1
                except (RpcError, OSError) as e:
                    outcomes[type(e).__name__] += 1

        threads = [coro.spawn(work, seed) for seed in range(30)]
        for i in range(4):
            before = outcomes["right"]
            while outcomes["right"] < before + 50:
                coro.sleep_relative(0.01)
            first[i % 2].child.terminate()
            coro.in_thread(first[i % 2].child.wait)
            first[i % 2].__exit__()
            first[i % 2] = Process("--port", str(ports[i % 2]))
        stop.append(1)
        for thread in threads:
            thread.get()
        assert outcomes["right"] >= 200 and not outcomes["wrong"], outcomes
    for one in first:
        one.__exit__()
