"""What peers and the line between can do to a connection of either back end: cut it anywhere, hold it, change it. Each
has a typed error for its end, and leaves the rest alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
import tls_peers
from ssl_support import THOROUGH

import coro
from coro import testing
from coro.ssl import CertificateError, HandshakeError, ProtocolError, TLSError, TruncatedError

VERSIONS = ("TLSv1.2", "TLSv1.3")
both = pytest.mark.parametrize("backend", tls_peers.BACKENDS)
versions = pytest.mark.parametrize("version", VERSIONS)


@cache
def contexts(backend: str, version: str) -> tuple[Any, Any]:
    return tls_peers.server(backend, highest=version), tls_peers.client(backend, highest=version)


class Line:
    """A line between two socks that can be cut: passes on bytes one way or the other, and counts them."""

    def __init__(self, cut_after: int = -1, upwards: bool = True) -> None:
        self.client, self._a = coro.socketpair()
        self.server, self._b = coro.socketpair()
        self.passed = {True: 0, False: 0}
        self._cut, self._upwards = cut_after, upwards
        self.threads = [coro.spawn(self._pass, self._a, self._b, True), coro.spawn(self._pass, self._b, self._a, False)]

    def _pass(self, source: Any, target: Any, upwards: bool) -> None:
        try:
            while data := source.recv(65536):
                if upwards == self._upwards and self._cut >= 0:
                    data = data[: self._cut - self.passed[upwards]]
                    self.passed[upwards] += len(data)
                    if data:
                        target.send(data)
                    if self.passed[upwards] >= self._cut:
                        break
                    continue
                self.passed[upwards] += len(data)
                target.send(data)
        except OSError:
            pass
        finally:
            self._a.close()
            self._b.close()


class AlertLine(Line):
    """A line on which an alert in the clear comes before one of the records that go one way."""

    def __init__(self, number: int, alert: bytes, upwards: bool) -> None:
        self._left, self._alert, self._way = number, alert, upwards
        self.done = False
        super().__init__()

    def _pass(self, source: Any, target: Any, upwards: bool) -> None:
        try:
            while head := source.recv_exact(5):
                if upwards == self._way and not self.done:
                    self.done = self._left == 0
                    self._left -= 1
                    if self.done:
                        target.send(b"\x15\3\3\0\2" + self._alert)
                target.send(head + source.recv_exact(int.from_bytes(head[3:], "big")))
        except (OSError, EOFError):
            pass
        finally:
            self._a.close()
            self._b.close()


def talk(client: Any, server: Any, line: Line) -> tuple[list[BaseException], list[str]]:
    """A handshake, an echo, an orderly end. What went wrong on either side, and what was said."""
    errors: list[BaseException] = []
    said: list[str] = []

    def serve() -> None:
        try:
            with server.wrap(line.server, True, handshake_timeout=None) as stream:
                said.append("server shook hands")
                while data := stream.recv(100):
                    stream.sendall(data)
                said.append("server saw the end")
                stream.shutdown(coro.SHUT.WR)
        except (OSError, EOFError) as e:
            errors.append(e)

    def call() -> None:
        try:
            with client.wrap(line.client, server_hostname="localhost", handshake_timeout=None) as stream:
                said.append("client shook hands")
                stream.sendall(b"hello")
                assert stream.recv_exact(5) == b"hello"
                stream.shutdown(coro.SHUT.WR)
                assert stream.recv(1) == b""
                said.append("client saw the end")
        except (OSError, EOFError) as e:
            errors.append(e)

    threads = [coro.spawn(serve), coro.spawn(call)]
    for thread in threads:
        thread.join(tls_peers.LIMIT)
        thread.get()
    for thread in line.threads:
        thread.join(tls_peers.LIMIT)
    return errors, said


@both
@versions
@pytest.mark.parametrize("upwards", [True, False], ids=["from the client", "from the server"])
@pytest.mark.slow
def test_the_line_is_cut_at_every_byte(backend: str, version: str, upwards: bool) -> None:
    """Cut anywhere, both sides get a typed error, or had everything; never a clean end that is none."""

    def main() -> None:
        server, client = contexts(backend, version)
        client.forget_sessions()
        whole = Line(upwards=upwards)
        assert (
            talk(client, server, whole)
            == (
                [],
                ["client shook hands", "server shook hands", "server saw the end", "client saw the end"],
            )
            or version == "TLSv1.2"
        )
        total = whole.passed[upwards]
        steps = range(0, total, 1 if backend == "openssl" or THOROUGH else 37)
        for cut in steps:
            client.forget_sessions()
            errors, said = talk(client, server, Line(cut, upwards))
            if cut >= total - 8 and not errors:
                continue  # signatures are some bytes longer or shorter each time: nothing was cut
            assert errors, (cut, said)
            for error in errors:
                assert isinstance(error, (TLSError, ConnectionError, EOFError)), (cut, error)
                assert not isinstance(error, CertificateError), (cut, error)
            # who sent everything may have seen a clean end; who was cut off may not
            assert ("server saw the end" if upwards else "client saw the end") not in said, (cut, said)

    with testing.no_leaks():
        coro.run(main)


@both
@versions
@pytest.mark.slow
@pytest.mark.parametrize("upwards", [True, False], ids=["to the server", "to the client"])
def test_an_alert_in_the_clear_before_every_record(backend: str, version: str, upwards: bool) -> None:
    """Handshake, data, end: who gets it has an error, never a clean end; the other side has a typed one."""

    def main() -> None:
        server, client = contexts(backend, version)
        for alert in (b"\2\x28", b"\1\0", b"\2\xff"):
            for number in range(20):
                client.forget_sessions()
                line = AlertLine(number, alert, upwards)
                errors, said = talk(client, server, line)
                if not line.done:
                    break  # there are no more records
                for error in errors:
                    assert isinstance(error, (TLSError, ConnectionError, EOFError)), (number, error)
                    assert not isinstance(error, CertificateError), (number, error)
                assert errors, (number, said)
                assert ("server saw the end" if upwards else "client saw the end") not in said, (number, said)
            assert number >= 4

    with testing.no_leaks():
        coro.run(main)


@both
@versions
def test_a_cut_behind_the_handshake_is_no_end(backend: str, version: str) -> None:
    def main() -> None:
        server, client = contexts(backend, version)
        ours, theirs = coro.socketpair()
        thread = coro.spawn(server.wrap, theirs, True)
        stream = client.wrap(ours, server_hostname="localhost")
        stream.sendall(b"all of it?")
        other = thread.get()
        assert other.recv(100) == b"all of it?"
        stream.sock.shutdown(coro.SHUT.WR)
        with pytest.raises(TruncatedError):
            other.recv(100)
        with pytest.raises(TruncatedError):  # and stays one
            other.recv(100)
        other.close()
        stream.close()

    with testing.no_leaks():
        coro.run(main)


@both
def test_an_end_in_the_clear_is_no_end(backend: str) -> None:
    """Somebody on the way puts an alert in the clear behind the handshake, which TLS 1.3 encrypts: close_notify would
    cut the stream unnoticed."""

    def main() -> None:
        server, client = contexts(backend, "TLSv1.3")
        for description in (0, 40, 90):
            ours, theirs = coro.socketpair()
            thread = coro.spawn(server.wrap, theirs, True)
            stream = client.wrap(ours, server_hostname="localhost")
            other = thread.get()
            stream.sock.send(bytes([21, 3, 3, 0, 2, 1, description]))
            with pytest.raises(ProtocolError):
                other.recv(100)
            other.close()
            stream.close()

    with testing.no_leaks():
        coro.run(main)


@both
@versions
@pytest.mark.slow
def test_every_changed_byte_is_noticed(backend: str, version: str) -> None:
    """One bit of each byte of a record is changed on its way."""

    def main() -> None:
        server, client = contexts(backend, version)
        length = 5 + 5 + 17 + (7 if version == "TLSv1.2" else 0)
        for at in range(0, length, 1 if backend == "openssl" or THOROUGH else 4):
            ours, theirs = coro.socketpair()
            middle, last = coro.socketpair()
            thread = coro.spawn(server.wrap, last, True)
            pump = [coro.spawn(_copy, theirs, middle), coro.spawn(_copy, middle, theirs)]
            stream = client.wrap(ours, server_hostname="localhost")
            other = thread.get()
            testing.wait_all_blocked()
            for one in pump:
                one.shutdown()
            testing.wait_all_blocked()
            stream.sendall(b"hello")
            data = bytearray(theirs.recv(1000))
            at_most = min(at, len(data) - 1)
            data[at_most] ^= 1
            middle.send(data)
            middle.shutdown(coro.SHUT.WR)
            if (backend, version) == ("tlslite", "TLSv1.2") and at in (1, 2):
                # the version in the head of a record, which tlslite-ng does not look at; what it signs has its own
                assert other.recv(100) == b"hello"
            else:
                with pytest.raises((ProtocolError, TruncatedError)):
                    other.recv(100)
            for one in (stream, other, theirs, middle):
                one.close()

    with testing.no_leaks():
        coro.run(main)


def _copy(source: Any, target: Any) -> None:
    while data := source.recv(65536):
        target.send(data)


def _outcome(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except BaseException as e:
        return e


@both
@versions
@pytest.mark.slow
def test_both_directions_under_stress(backend: str, version: str) -> None:
    """Two threads write and two read on one connection, in pieces of all sizes
    (https://github.com/python/cpython/issues/151508)."""
    size = 60_000 if backend == "tlslite" else 3_000_000

    def main() -> None:
        server, client = contexts(backend, version)
        ours, theirs = coro.socketpair()
        thread = coro.spawn(server.wrap, theirs, True)
        stream = client.wrap(ours, server_hostname="localhost")
        other = thread.get()
        up, down = random.Random(1).randbytes(size), random.Random(2).randbytes(size)
        readers = [coro.spawn(_read_all, other, 3), coro.spawn(_read_all, stream, 4)]
        writers = [coro.spawn(_write_all, stream, up, 5), coro.spawn(_write_all, other, down, 6)]
        for one in writers:
            one.get()
        assert readers[0].get() == up
        assert readers[1].get() == down
        stream.close()
        other.close()

    with testing.no_leaks():
        coro.run(main)


def _write_all(stream: Any, data: bytes, seed: int) -> None:
    rng = random.Random(seed)
    at = 0
    while at < len(data):
        size = rng.choice((1, 2, 100, 5000, 16384, 16385, 70000))
        stream.sendall(data[at : at + size])
        at += size
    stream.shutdown(coro.SHUT.WR)


def _read_all(stream: Any, seed: int) -> bytes:
    rng = random.Random(seed)
    parts = []
    while part := stream.recv(rng.choice((1, 7, 1000, 16384, 65536))):
        parts.append(part)
    return b"".join(parts)


@both
@versions
def test_who_says_all_and_leaves_is_heard(backend: str, version: str) -> None:
    """A client sends and closes before the server has sent its tickets: they find nobody, and the data counts."""

    def main() -> None:
        server, client = contexts(backend, version)
        client.forget_sessions()
        ours, theirs = coro.socketpair()
        thread = coro.spawn(_outcome, lambda: server.wrap(theirs, True, handshake_timeout=None))
        stream = client.wrap(ours, server_hostname="localhost", handshake_timeout=None)
        if version == "TLSv1.2":
            thread.join(tls_peers.LIMIT)
        stream.sendall(b"all I have to say")
        stream.close()
        other = thread.get()
        assert not isinstance(other, BaseException), other
        assert other.recv_exact(17) == b"all I have to say"
        assert other.recv(1) == b""
        other.close()

    with testing.no_leaks():
        coro.run(main)


@both
def test_a_peer_that_never_says_goodbye(backend: str) -> None:
    """close() sends close_notify and does not wait for an answer (https://github.com/aio-libs/aiohttp/issues/11091); a
    peer that does not even read cannot hold it for longer than its limit."""

    def main() -> None:
        server, client = contexts(backend, "TLSv1.3")
        ours, theirs = coro.socketpair()
        thread = coro.spawn(server.wrap, theirs, True)
        stream = client.wrap(ours, server_hostname="localhost")
        other = thread.get()
        stream.close()
        assert stream.closed
        stream.close()
        assert other.recv(1) == b""
        other.close()
        with testing.virtual_clock(autojump=True):
            ours, theirs = coro.socketpair()
            thread = coro.spawn(server.wrap, theirs, True)
            stream = client.wrap(ours, server_hostname="localhost")
            other = thread.get()
            blocked = coro.spawn(_outcome, lambda: stream.sendall(bytes(10_000_000)) if backend == "openssl" else None)
            coro.sleep_relative(0.1)
            began = coro.now_usec
            stream.close()
            assert coro.now_usec - began <= 1_500_000
            assert stream.closed
            blocked.join(tls_peers.LIMIT)
            other.close()

    with testing.no_leaks():
        coro.run(main)


def _silent(count: int) -> Iterator[tuple[Any, Any]]:
    for _ in range(count):
        yield coro.socketpair()


@both
def test_who_is_silent_in_the_handshake_is_cut_and_holds_nobody(backend: str) -> None:
    """https://github.com/MagicStack/uvloop/issues/161"""

    def main() -> None:
        server, client = contexts(backend, "TLSv1.3")
        mute = list(_silent(50))
        waiting = [
            coro.spawn(_outcome, lambda sock=theirs: server.wrap(sock, True, handshake_timeout=600))
            for _, theirs in mute
        ]
        testing.wait_all_blocked()
        ours, theirs = coro.socketpair()
        thread = coro.spawn(server.wrap, theirs, True, handshake_timeout=None)
        stream = client.wrap(ours, server_hostname="localhost", handshake_timeout=None)
        thread.get().close()
        stream.close()
        assert not any(one.dead for one in waiting)
        with testing.virtual_clock(autojump=True):
            for one in waiting:
                error = one.get()
                assert isinstance(error, HandshakeError) and isinstance(error, TimeoutError)
        for ours, theirs in mute:
            assert theirs.closed
            ours.close()

    with testing.no_leaks():
        coro.run(main)
