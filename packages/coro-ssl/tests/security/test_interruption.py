"""Threads that are interrupted wherever they wait: in the handshake, in reading, in writing, in ending. The
interruption leaves as itself, nothing is lost or doubled, and the other direction does not notice."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
import tls_peers

import coro
from coro import testing
from coro.ssl import TLSError

VERSIONS = ("TLSv1.2", "TLSv1.3")
both = pytest.mark.parametrize("backend", tls_peers.BACKENDS)
versions = pytest.mark.parametrize("version", VERSIONS)
ways = pytest.mark.parametrize("way", ["exception", "shutdown", "timeout"])


@cache
def contexts(backend: str, version: str) -> tuple[Any, Any]:
    return tls_peers.server(backend, highest=version), tls_peers.client(backend, highest=version)


def connected(backend: str, version: str) -> tuple[Any, Any]:
    """A client's stream and the server's, over a pair of sockets whose buffers are small."""
    server, client = contexts(backend, version)
    ours, theirs = coro.socketpair()
    for sock in (ours, theirs):
        sock.setsockopt(coro.SOL.SOCKET, coro.SO.SNDBUF, 4096)
        sock.setsockopt(coro.SOL.SOCKET, coro.SO.RCVBUF, 4096)
    thread = coro.spawn(server.wrap, theirs, True)
    return client.wrap(ours, server_hostname="localhost"), thread.get()


class _Stop(Exception):
    """The interruption of a test."""


def _stop(thread: Any) -> None:
    thread.raise_exception(_Stop)


def interrupted(action: Callable[[], Any], step: int, interrupt: Callable[[Any], object] = _stop) -> tuple[Any, bool]:
    """Run ``action`` in a thread, and interrupt it the ``step``-th time that everybody waits. What it did, and whether
    it was interrupted."""
    thread = coro.spawn(_outcome, action)
    for _ in range(step):
        testing.wait_all_blocked()
        if thread.dead:
            break
    if thread.dead:
        return thread.get(), False
    interrupt(thread)
    testing.wait_all_blocked()
    return thread.get(), True


def _outcome(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except BaseException as e:
        return e


def slow_pipe() -> tuple[Any, Any, list[Any], tuple[Any, Any]]:
    """Two socks with a thread between, which passes on a few bytes each time that everybody waits."""
    ours, a = coro.socketpair()
    theirs, b = coro.socketpair()

    def drip(source: Any, target: Any) -> None:
        try:
            while data := source.recv(211):
                testing.wait_all_blocked()
                target.send(data)
        except OSError:
            pass  # one side has closed with bytes unread
        with contextlib.suppress(OSError):
            target.shutdown(coro.SHUT.WR)

    return ours, theirs, [coro.spawn(drip, a, b), coro.spawn(drip, b, a)], (a, b)


@both
@versions
@ways
@pytest.mark.parametrize("side", ["client", "server"])
@pytest.mark.slow
def test_a_handshake_is_interrupted_at_every_wait(backend: str, version: str, side: str, way: str) -> None:
    """The interruption leaves as itself, the sock is closed, the other side has a typed error."""

    def main() -> None:
        with testing.virtual_clock() as clock:  # it stands still: only the test makes time run out
            steps(lambda thread: clock.advance(60))

    def steps(run_out: Callable[[Any], object]) -> None:
        interrupt = {"exception": _stop, "shutdown": lambda thread: thread.shutdown(), "timeout": run_out}[way]
        kinds = {"exception": _Stop, "shutdown": coro.Shutdown, "timeout": coro.TimeoutError}
        server, client = contexts(backend, version)
        for step in range(1, 60):
            client.forget_sessions()
            ours, theirs, drips, ends = slow_pipe()
            actions = {
                "client": lambda sock=ours: client.wrap(sock, server_hostname="localhost", handshake_timeout=None),
                "server": lambda sock=theirs: server.wrap(sock, True, handshake_timeout=None),
            }
            mine, other = (ours, theirs) if side == "client" else (theirs, ours)
            thread = coro.spawn(_outcome, actions["server" if side == "client" else "client"])
            outcome, stopped = interrupted(partial(coro.with_timeout, 60, actions[side]), step, interrupt)
            if way == "timeout" and not isinstance(outcome, BaseException):
                stopped = False  # the last bytes came in the same moment
            if not stopped:
                assert not isinstance(outcome, BaseException)
                assert step > 5
                outcome.close()
            else:
                assert type(outcome) is kinds[way], outcome
                assert mine.closed
            thread.join(tls_peers.LIMIT)
            seen = thread.get()
            assert not isinstance(seen, BaseException) or isinstance(seen, (TLSError, ConnectionError)), seen
            if not isinstance(seen, BaseException):
                seen.close()
            for sock in (mine, other, *ends):
                sock.close()
            for drip in drips:
                drip.shutdown() if not drip.dead else None
                drip.join(tls_peers.LIMIT)
            if not stopped:
                return
        raise AssertionError("the handshake has no end")

    with testing.no_leaks():
        coro.run(main)


@both
@versions
def test_a_read_that_is_interrupted_anywhere_loses_nothing(backend: str, version: str) -> None:
    """The stream drips in; the reader is interrupted at every wait, and has every byte in the end."""
    data = random.Random(5).randbytes(3000)

    def main() -> None:
        server, client = contexts(backend, version)
        ours, theirs = coro.socketpair()
        thread = coro.spawn(server.wrap, theirs, True)
        stream = client.wrap(ours, server_hostname="localhost")
        other = thread.get()
        ours2, theirs2 = coro.socketpair()
        cipher = _records(other, theirs2, data)
        got = b""
        feeding = coro.spawn(_feed, theirs, cipher)
        interruptions = 0
        while len(got) < len(data):
            part, stopped = interrupted(partial(stream.recv_exact, len(data) - len(got)), 1)
            if stopped:
                assert isinstance(part, _Stop)
                interruptions += 1
                part = stream.recv(100) if stream.pending() else b""
            got += part
        assert got == data and interruptions > 3
        feeding.join(tls_peers.LIMIT)
        for one in (ours2, theirs2, stream, other):
            one.close()

    with testing.no_leaks():
        coro.run(main)


def _records(stream: Any, instead: Any, data: bytes) -> bytes:
    """The ciphertext for ``data``, taken from the stream before it is sent."""
    engine = stream.engine
    left = memoryview(data)
    while left:
        left = left[engine.tls.write(left) :]
    out: bytes = engine.outgoing.read()
    return out


def _feed(sock: Any, data: bytes) -> None:
    for i in range(0, len(data), 97):
        testing.wait_all_blocked()
        sock.send(data[i : i + 97])


@both
@versions
def test_a_write_that_is_interrupted_is_completed(backend: str, version: str) -> None:
    """A peer that does not read: the writer is interrupted; later the rest of the records leaves first, each byte once
    (https://github.com/gevent/gevent/issues/317)."""
    chunk = random.Random(1).randbytes(40000 if backend == "tlslite" else 400000)

    def main() -> None:
        server, client = contexts(backend, version)
        ours, theirs = coro.socketpair()
        for sock in (ours, theirs):
            sock.setsockopt(coro.SOL.SOCKET, coro.SO.SNDBUF, 4096)
            sock.setsockopt(coro.SOL.SOCKET, coro.SO.RCVBUF, 4096)
        thread = coro.spawn(server.wrap, theirs, True)
        stream = client.wrap(ours, server_hostname="localhost")
        other = thread.get()
        sent = 0
        for _ in range(3):
            outcome, stopped = interrupted(lambda: stream.sendall(chunk), 1)
            assert stopped and isinstance(outcome, _Stop)
            assert 0 <= outcome.bytes_sent < len(chunk)  # type: ignore[attr-defined]
            sent += outcome.bytes_sent  # type: ignore[attr-defined]
        last = b"and this is the end"
        writer = coro.spawn(lambda: (stream.sendall(last), stream.shutdown(coro.SHUT.WR)))
        got = b""
        while part := other.recv(65536):
            got += part
        writer.join(tls_peers.LIMIT)
        assert got.endswith(last)
        assert len(got) == sent + len(last)
        for one in (stream, other):
            one.close()

    with testing.no_leaks():
        coro.run(main)


def started(action: Callable[[], Any], way: str) -> Any:
    """A thread that runs ``action`` and waits somewhere in it."""
    if way == "timeout":
        thread = coro.spawn(_outcome, partial(coro.with_timeout, 0.01, action))
    else:
        thread = coro.spawn(_outcome, action)
    testing.wait_all_blocked()
    return thread


def ended(thread: Any, way: str) -> Any:
    """Interrupt it; the interruption, as it came out."""
    if way == "exception":
        thread.raise_exception(_Stop)
    elif way == "shutdown":
        thread.shutdown()
    found = thread.get()
    assert isinstance(found, (_Stop, coro.Shutdown, coro.TimeoutError)), found
    return found


def _much(backend: str) -> bytes:
    """More than the buffers of sockets take."""
    return random.Random(1).randbytes(40_000 if backend == "tlslite" else 400_000)


@both
@versions
@ways
def test_a_writer_is_interrupted_and_the_reader_goes_on(backend: str, version: str, way: str) -> None:
    data = random.Random(2).randbytes(6000)

    def main() -> None:
        stream, other = connected(backend, version)
        reader = coro.spawn(stream.recv_exact, len(data))
        other.sendall(data[:3000])
        writer = started(lambda: stream.sendall(_much(backend)), way)
        sent = ended(writer, way).bytes_sent
        assert not reader.dead
        other.sendall(data[3000:])
        assert reader.get() == data
        more = coro.spawn(stream.sendall, b"more")
        assert other.recv_exact(sent) == _much(backend)[:sent]
        assert other.recv_exact(4) == b"more"
        more.get()
        stream.close()
        other.close()

    with testing.no_leaks():
        coro.run(main)


@both
@versions
@ways
def test_a_reader_is_interrupted_and_the_writer_goes_on(backend: str, version: str, way: str) -> None:
    def main() -> None:
        stream, other = connected(backend, version)
        writer = coro.spawn(stream.sendall, _much(backend))
        other.sendall(b"half")
        ended(started(lambda: stream.recv_exact(8), way), way)
        assert not writer.dead
        assert other.recv_exact(len(_much(backend))) == _much(backend)
        writer.get()
        other.sendall(b"rest")
        assert stream.recv_exact(8) == b"halfrest"
        stream.close()
        other.close()

    with testing.no_leaks():
        coro.run(main)


@both
@versions
@ways
def test_an_end_that_is_interrupted_is_said_by_the_next_call(backend: str, version: str, way: str) -> None:
    """A peer that does not read: shutdown() waits behind what is not sent yet. The other direction is open."""

    def main() -> None:
        stream, other = connected(backend, version)
        # not by time, which could be over before the buffers are full
        sent = ended(started(lambda: stream.sendall(_much(backend)), "exception"), "exception").bytes_sent
        for _ in range(2):
            ended(started(lambda: stream.shutdown(coro.SHUT.WR), way), way)
        other.sendall(b"still open")
        assert stream.recv_exact(10) == b"still open"
        ending = coro.spawn(stream.shutdown, coro.SHUT.WR)
        got = b""
        while part := other.recv(65536):
            got += part
        assert got == _much(backend)[:sent]
        ending.get()
        stream.close()
        other.close()

    with testing.no_leaks():
        coro.run(main)


@both
@versions
@ways
def test_a_close_that_is_interrupted_has_closed(backend: str, version: str, way: str) -> None:
    """It waits until its farewell is sent, or a second is over; who waited in the stream is told."""

    def main() -> None:
        stream, other = connected(backend, version)
        writer = coro.spawn(_outcome, lambda: stream.sendall(_much(backend)))
        reader = coro.spawn(_outcome, lambda: stream.recv(1))
        testing.wait_all_blocked()
        ended(started(stream.close, way), way)
        assert stream.closed
        assert isinstance(writer.get(), coro.ClosedError)
        assert isinstance(reader.get(), coro.ClosedError)
        stream.close()
        found = _outcome(lambda: other.recv_exact(len(_much(backend)) + 1))
        assert isinstance(found, (TLSError, ConnectionError)), found
        other.close()

    with testing.no_leaks():
        coro.run(main)


@both
@versions
@ways
def test_an_unwrap_that_is_interrupted_is_completed_by_the_next(backend: str, version: str, way: str) -> None:
    def main() -> None:
        stream, other = connected(backend, version)
        for _ in range(2):
            ended(started(lambda: stream.unwrap(None), way), way)
        assert other.recv(1) == b""
        answering = coro.spawn(other.unwrap)
        below, above = stream.unwrap(), answering.get()
        below.send(b"in the clear")
        assert above.recv_exact(12) == b"in the clear"
        below.close()
        above.close()

    with testing.no_leaks():
        coro.run(main)
