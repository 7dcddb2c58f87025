"""Many handshakes at the same time, streams beside them, and clients that stay silent."""

from __future__ import annotations

import os

import pytest
from ssl_support import LIMIT, THOROUGH, in_jumping_loop, in_loop, outcome, until

import coro
from coro.ssl import HandshakeTimeout, TLSError, new_ctx
from coro.testing import faults, stream_pair, wait_all_blocked

pytestmark = pytest.mark.slow
both = pytest.mark.parametrize("backend", ["openssl", "tlslite"])


def echo(conn, address):
    while data := conn.recv(65536):
        conn.sendall(data)


@pytest.mark.parametrize(
    ("backend", "handshakes", "streaming"),
    [
        ("openssl", 1000, 100),
        ("tlslite", 1000 if THOROUGH else 60, 100 if THOROUGH else 10),
    ],  # one of tlslite-ng takes as long as twenty of OpenSSL
    ids=["openssl", "tlslite"],
)
@in_loop
def test_a_thousand_handshakes_while_a_hundred_connections_stream(authority, backend, handshakes, streaming):
    server = new_ctx(authority.issue("localhost").pem, backend=backend, handshake_timeout=LIMIT)
    client = new_ctx(ca=authority.pem, handshake_timeout=LIMIT)
    block = os.urandom(10_000 if backend == "openssl" else 100)
    with coro.Server(echo, ("127.0.0.1", 0), wrap=server.accept, wrap_timeout=LIMIT) as running:

        def connected():
            return client.wrap(coro.connect(running.addresses[0]), server_hostname="localhost")

        silent = [coro.connect(running.addresses[0]) for _ in range(streaming)]
        streams = [connected() for _ in range(streaming)]
        done = False
        moved = [0] * streaming

        def stream(number):
            with streams[number] as conn:
                while not done:
                    conn.send(block)
                    assert conn.recv_exact(len(block)) == block
                    moved[number] += 1

        def once():
            with connected() as conn:
                conn.send(b"hello")
                return conn.recv_exact(5)

        threads = [coro.spawn(stream, number) for number in range(streaming)]
        results = [coro.spawn(once) for _ in range(handshakes)]
        assert [thread.get() for thread in results] == [b"hello"] * handshakes
        until(lambda: min(moved) > 0)
        done = True
        for thread in threads:
            thread.get()
        assert server.statistics().handshakes == handshakes + streaming and server.statistics().failed == 0
        for one in silent:
            one.close()
        until(lambda: running.statistics().active == 0)
        assert running.statistics().wrap_failures == streaming and running.statistics().failed == 0


@in_jumping_loop  # time stands still while anybody can go on: a busy machine takes it from no handshake
def test_silent_clients_are_cut_at_the_deadline(authority):
    server = new_ctx(authority.issue("localhost").pem, handshake_timeout=0.2)
    client = new_ctx(ca=authority.pem)
    with coro.Server(echo, ("127.0.0.1", 0), wrap=server.accept) as running:
        silent = [coro.connect(running.addresses[0]) for _ in range(200)]
        half = [coro.connect(running.addresses[0]) for _ in range(20)]
        for one in half:
            one.send(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a ClientHello
        with client.wrap(coro.connect(running.addresses[0]), server_hostname="localhost") as conn:
            conn.send(b"served")
            assert conn.recv_exact(6) == b"served"
        for one in silent + half:
            assert one.recv(100) == b""
            one.close()
        assert server.statistics().timeouts == 220
        here, there = coro.socketpair()
        with here, pytest.raises(HandshakeTimeout):
            server.wrap(there, server_side=True, handshake_timeout=0)


@both
@in_jumping_loop
def test_random_bytes_in_the_place_of_records(authority, backend):
    """Whatever comes, in the handshake and after it: a typed error, and nothing stays open."""
    server = new_ctx(authority.issue("localhost").pem, backend=backend)
    client = new_ctx(ca=authority.pem, backend=backend)
    for seed in range(1000 if THOROUGH else 150 if backend == "openssl" else 30):
        left, right = stream_pair()
        bad = faults.faulty_stream(left, faults.corrupt(probability=0.002 if seed % 2 else 0.05), seed=seed)

        def talk(context, end, server_side):
            with context.wrap(end, server_side, None if server_side else "localhost") as conn:
                with coro.move_on_after(60):  # a length that was changed: both sides wait for more
                    for _ in range(5):
                        conn.send(b"x" * 500)
                        conn.recv_exact(500)

        def served(end=right):
            with end:
                return outcome(talk, server, end, True)

        thread = coro.spawn(served)
        with bad:
            mine = outcome(talk, client, bad, False)
        theirs = thread.get()
        for result in (mine, theirs):
            assert result is None or isinstance(result, (TLSError, EOFError, ConnectionError, coro.ClosedError)), seed
        assert left.closed and right.closed


@both
@in_loop
def test_records_of_every_kind_after_the_handshake(authority, backend):
    """Alerts, handshake messages and huge records in the clear, where only encrypted ones may be."""
    server = new_ctx(authority.issue("localhost").pem, backend=backend)
    client = new_ctx(ca=authority.pem)
    for kind in (0, 20, 21, 22, 23, 24, 255):
        for body in (b"", b"\x01\x00", b"\x02\x28", bytes(100), bytes(18_000)):
            left, right = stream_pair()
            thread = coro.spawn(server.wrap, right, server_side=True)
            here = client.wrap(left, server_hostname="localhost")
            there = thread.get()
            reader = coro.spawn(outcome, there.recv, 10)
            record = bytes([kind, 3, 3]) + len(body).to_bytes(2, "big") + body
            sender = coro.spawn(outcome, left.sendall, record * 50)
            left_over = coro.spawn(outcome, here.recv, 1)
            wait_all_blocked()
            here.sock.close()
            assert isinstance(reader.get(), (TLSError, ConnectionError, coro.ClosedError)), (kind, body[:2])
            there.close()
            sender.get()
            left_over.get()
