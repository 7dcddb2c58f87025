"""Faults that other TLS libraries have had, one test each, with the report in which they were described."""

from __future__ import annotations

import builtins
import subprocess
import sys
from typing import Any

import pytest
import tls_peers
from ssl_support import in_loop, outcome
from tlslite.constants import KeyUpdateMessageType

import coro
from coro.ssl import HandshakeError, ProtocolError, TLSError, new_ctx, sock
from coro.testing import wait_all_blocked

#: What is no greeting: plain text, a greeting without contents, an alert.
WRONG = (b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", b"\x15\x03\x03\x00\x02\x02\x28")
both = pytest.mark.parametrize("backend", tls_peers.BACKENDS)


@both
@in_loop
def test_a_failed_peer_never_breaks_a_healthy_one(backend: str) -> None:
    """OpenSSL's queue of errors belongs to the OS thread, so to all our threads (python/cpython#148594). What one
    connection leaves there must not be taken for the next one's."""
    server, client = tls_peers.server(backend), tls_peers.client(backend)
    good, there = coro.socketpair()
    accepting = coro.spawn(server.wrap, there, server_side=True)
    healthy = client.wrap(good, server_hostname="localhost")
    other = accepting.get()
    for number in range(9):
        bad, end = coro.socketpair()
        bad.send(WRONG[number % 3])
        failing = coro.spawn(outcome, server.wrap, end, server_side=True)
        sending = coro.spawn(healthy.send, b"x" * 500)  # while the other handshake fails
        assert other.recv_exact(500) == b"x" * 500
        assert isinstance(failing.get(), HandshakeError)
        sending.get()
        other.send(b"y")
        assert healthy.recv(10) == b"y"
        bad.close()
    healthy.close()
    assert other.recv(1) == b""  # a clean end, not an old error
    other.close()


@both
@in_loop
def test_what_came_in_the_clear_is_never_taken_for_protected(backend: str) -> None:
    """CVE-2023-40217: a peer sends bytes in the clear and ends the connection before the handshake; a wrapped socket
    gave them out as if they had come through TLS."""
    for server_side, context in ((True, tls_peers.server(backend)), (False, tls_peers.client(backend))):
        for reset in (False, True):
            listener = coro.sock(coro.AF.INET, coro.SOCK.STREAM)
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
            attacker = coro.connect(listener.getsockname())
            victim, _ = listener.accept()
            attacker.send(b"DELETE /data HTTP/1.0\r\n\r\n")
            if reset:
                attacker.setsockopt(coro.SOL.SOCKET, coro.SO.LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            attacker.close()
            name = None if server_side else "localhost"
            conn = sock(context, victim.detach(), server_hostname=name)
            (conn.set_accept_state if server_side else conn.set_connect_state)()
            for _ in range(2):  # it stays refused
                found = outcome(conn.recv, 100)
                assert isinstance(found, OSError), found
            assert conn.ssl is None
            conn.close()
            listener.close()


@in_loop
def test_the_authorities_are_read_once(authority: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries that make a context for each connection parse some hundred certificates each time (urllib3#3623,
    python/cpython#95031)."""
    path = tmp_path / "ca.pem"
    path.write_bytes(authority.pem)
    server = new_ctx(authority.issue("localhost").pem)
    reads: list[str] = []
    real = builtins.open

    def counting(file: Any, *args: Any, **kwargs: Any) -> Any:
        if str(file) == str(path):
            reads.append(str(file))
        return real(file, *args, **kwargs)

    monkeypatch.setattr(builtins, "open", counting)
    client = new_ctx(ca=path)
    for _ in range(10):
        here, there = coro.socketpair()
        accepting = coro.spawn(server.wrap, there, server_side=True)
        conn = client.wrap(here, server_hostname="localhost")
        assert conn.engine.object.context is client.ssl_context  # type: ignore[attr-defined]
        conn.close()
        accepting.get().close()
    assert len(reads) == 1


@both
@in_loop
def test_silent_clients_leave_no_descriptors(backend: str) -> None:
    """Handshakes that never come keep descriptors in servers whose limit is fixed (python/asyncio#483,
    MagicStack/uvloop#161). The limit is ours to set, for each context and for each connection."""
    context = tls_peers.server(backend)
    ends = []
    for _ in range(20):
        silent, end = coro.socketpair()
        found = outcome(context.wrap, end, server_side=True, handshake_timeout=0.001)
        assert isinstance(found, TLSError) and isinstance(found, TimeoutError), found
        assert end.closed
        ends.append(silent)
    assert context.statistics().timeouts == 20
    for silent in ends:
        silent.close()


@both
@in_loop
def test_a_peer_that_does_not_read_costs_no_memory(backend: str) -> None:
    """CVE-2024-12254: what was written to a slow peer was kept without limit. Here each of twenty senders waits, and
    what is encrypted ahead are four records."""
    stream, other = _connected(backend, "openssl")
    senders = [coro.spawn(outcome, stream.send, bytes(1_000_000)) for _ in range(20)]
    wait_all_blocked()
    assert stream.statistics().senders == 19
    assert stream.statistics().unsent <= 4 * (16384 + 64)
    stream.sock.close()
    assert all(isinstance(sender.get(), (coro.ClosedError, ConnectionError)) for sender in senders)
    other.close()


@both
@in_loop
def test_answers_that_nobody_takes_are_limited(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer asks for new keys again and again, sends data between, and receives none of the answers."""
    monkeypatch.setattr("coro.tls._stream.ANSWERS_MOST", 3000)
    other, stream = _connected("tlslite", backend)

    def read() -> None:
        while stream.recv(1):
            pass

    reader = coro.spawn(outcome, read)
    connection = other.engine._connection  # type: ignore[attr-defined]
    most = 0
    for _ in range(400):
        for _ in connection.send_keyupdate_request(KeyUpdateMessageType.update_requested):
            pass
        connection.send_data(b"x")
        other.sock.send(bytes(other.engine.outgoing.read()))
        wait_all_blocked()
        most = max(most, stream.statistics().unsent)
        if reader.dead:
            break
    assert most <= 3100
    assert isinstance(reader.get(), ProtocolError)
    assert "provoked 3000 bytes of answers" in str(reader.get())
    stream.close()
    other.close()


def _connected(client: str, server: str) -> tuple[Any, Any]:
    """Streams of two back ends over sockets that keep little."""
    here, there = coro.socketpair()
    for end in (here, there):
        end.setsockopt(coro.SOL.SOCKET, coro.SO.SNDBUF, 4096)
    accepting = coro.spawn(tls_peers.server(server).wrap, there, server_side=True)
    return tls_peers.client(client).wrap(here, server_hostname="localhost"), accepting.get()


@pytest.mark.slow
def test_it_works_beside_emulation_and_without() -> None:
    """Replaced classes of `ssl` made setters of SSLContext call themselves for ever (gevent#1777,
    sethmlarson/truststore#214). Nothing is replaced for this package; where a program asks for emulation, before or
    behind the import, contexts are made all the same."""
    code = (
        "import coro{0}\ncoro.install_thread_emulation(){1}\n"
        "from coro.ssl import new_ctx\nimport ssl\n"
        "context = new_ctx().ssl_context\n"
        "context.minimum_version = ssl.TLSVersion.TLSv1_3\ncontext.options |= ssl.OP_NO_TICKET\n"
        "context.verify_flags |= ssl.VERIFY_X509_STRICT\ncontext.verify_mode = ssl.CERT_REQUIRED\nprint('good')\n"
    )
    for imports in (("", ""), ("\nimport ssl, coro.ssl", "")):
        program = code.format(*imports)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout == "good\n", done.stderr
