"""`coro.tls`: contexts, and the stream over all kinds of streams, in order and out of it."""

from __future__ import annotations

import gc
import os
import socket
import ssl

import pytest
import tls_support
from support import in_jumping_loop, in_loop, ok, until

import coro
from coro import testing, tls
from coro.testing import faults

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


def contexts(version=None):
    client, server = tls_support.client_context(), tls_support.server_context()
    if version is not None:
        for one in (client, server):
            one.minimum_version = one.maximum_version = version
    return tls.context(client), tls.context(server)


def wrapped(here, there, version=None, client=None, server=None):
    """A client and a server, after the handshake."""
    usual = contexts(version)
    client, server = client or usual[0], server or usual[1]
    thread = coro.spawn(server.wrap, there, server_side=True)
    first = client.wrap(here, server_hostname="localhost")
    return first, thread.get()


def memory_pair():
    return testing.stream_pair()


def byte_by_byte():
    left, right = testing.stream_pair()
    return faults.faulty_stream(left, faults.short(1)), right


def in_a_tunnel():
    return wrapped(*coro.socketpair())


PAIRS = [coro.socketpair, memory_pair, byte_by_byte, in_a_tunnel]


# -- contexts


def test_an_object_with_wrap_is_a_context():
    class Mine:
        def wrap(self, sock, server_side=False, server_hostname=None):
            return sock

    mine = Mine()
    assert tls.context(mine) is mine


@pytest.mark.parametrize("wrong", [None, "cert.pem", object(), ssl.SSLContext])
def test_other_things_are_no_context(wrong):
    with pytest.raises(TypeError, match=r"expected an ssl\.SSLContext, or a context with wrap"):
        tls.context(wrong)


def test_ssl_is_not_imported_for_a_context():
    lines = ok(
        """
        import sys
        from coro import tls

        class Mine:
            def wrap(self, sock, server_side=False, server_hostname=None):
                return sock

        tls.context(Mine())
        try:
            tls.context(1)
        except TypeError:
            print("ssl" in sys.modules)
        """
    )
    assert lines == ["False"]


@in_loop
def test_a_context_is_for_one_side():
    client, server = contexts()
    here, there = coro.socketpair()
    with here, there:
        with pytest.raises(ValueError, match="cannot be used on the client's side"):
            server.wrap(here)
        with pytest.raises(ValueError, match="server"):
            client.wrap(there, server_side=True)
        with pytest.raises(ValueError, match="check_hostname"):
            client.wrap(here)
        assert not here.closed


@in_loop
def test_a_socket_that_blocks_is_refused():
    client, _ = contexts()
    with socket.socket() as plain, pytest.raises(TypeError, match=r"coro\.fd_sock"):
        client.wrap(plain, server_hostname="localhost")
    with pytest.raises(TypeError, match="not int: 7"):
        client.wrap(7, server_hostname="localhost")


# -- what a stream does


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("pair", PAIRS)
@in_loop
def test_bytes_in_both_directions(pair, version):
    here, there = wrapped(*pair(), version)
    with here, there:
        assert here.version() == there.version() == version.name.replace("_", ".")
        assert here.cipher()[0] == there.cipher()[0]
        assert here.send(b"one") == 3
        assert there.recv(2) == b"on"
        assert there.recv(100) == b"e"
        assert there.writev([b"two", bytearray(b"three"), memoryview(b"four")]) == 12
        assert here.readv([3, 5, 4]) == (b"two", b"three", b"four")
        buffer = bytearray(8)
        assert here.sendall(bytearray(b"fivesix")) == 7
        assert there.recv_into(buffer, 4) == 4
        assert there.recv_into(memoryview(buffer)[4:]) == 3
        assert buffer == b"fivesix\0"
        assert here.write(memoryview(b"seven")) == 5
        assert there.wait_for_read() == 5 == there.pending()
        assert there.read(5) == b"seven"
        assert here.send(b"") == 0
        assert isinstance(here, coro.Stream)


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
def test_both_directions_at_once(version):
    here, there = wrapped(*coro.socketpair(), version)
    data = os.urandom(300_001)
    with here, there:
        sender = coro.spawn(here.sendall, data)
        other = coro.spawn(there.sendall, memoryview(data))
        reader = coro.spawn(there.recv_exact, len(data))
        assert here.recv_exact(len(data)) == data == reader.get()
        assert sender.get() == len(data) == other.get()


@in_loop
def test_senders_take_turns():
    here, there = wrapped(*memory_pair())
    pieces = [bytes([i]) * 200_000 for i in range(5)]
    with here, there:
        threads = [coro.spawn(here.send, piece) for piece in pieces]
        threads.append(coro.spawn(here.writev, [b"x" * 100_000, b"x" * 100_000]))
        until(lambda: here.statistics().senders == 5)
        for piece in (*pieces, b"x" * 200_000):
            assert there.recv_exact(200_000) == piece
        coro.wait(threads)


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
def test_one_side_ends(version):
    here, there = wrapped(*coro.socketpair(), version)
    with here, there:
        there.send(b"before")
        assert here.recv(3) == b"bef"
        here.shutdown(coro.SHUT.WR)
        assert "open to receive" in repr(here)
        with pytest.raises(BrokenPipeError, match="shutdown"):
            here.send(b"more")
        assert there.recv(10) == b"" == there.recv(10)
        assert there.recv_into(bytearray(1)) == 0
        assert "open to send" in repr(there)
        with pytest.raises(EOFError):
            there.recv_exact(1)
        there.send(b"after")
        assert here.recv_exact(8) == b"oreafter"
        there.close()
        assert here.recv(10) == b""


@in_loop
def test_an_end_that_is_no_end():
    for method in ("recv", "recv_exact", "wait_for_read"):
        here, there = wrapped(*memory_pair())
        here.send(b"half")
        there.recv(4)
        here.sock.close()
        with pytest.raises(tls.TruncatedError, match="without close_notify") as caught:
            getattr(there, method)(*[] if method == "wait_for_read" else [10])
        assert isinstance(caught.value, ConnectionError) and not isinstance(caught.value, EOFError)
        with pytest.raises(tls.TruncatedError):
            there.recv(10)
        with pytest.raises(tls.TruncatedError):
            there.send(b"more")
        there.close()
        there.close()
        with pytest.raises(coro.ClosedError):
            there.recv(1)


@in_loop
def test_shutdown_of_everything_is_a_clean_end():
    here, there = wrapped(*coro.socketpair())
    with here, there:
        reader = coro.spawn(here.recv, 10)
        testing.wait_all_blocked()
        here.shutdown(coro.SHUT.RDWR)
        assert reader.get() == b"" == here.recv_exact(0)
        assert there.recv(1) == b""


@in_loop
def test_closing_wakes_the_reader():
    here, there = wrapped(*coro.socketpair())
    reader = coro.spawn(here.recv, 10)
    testing.wait_all_blocked()
    here.close()
    with pytest.raises(coro.ClosedError):
        reader.get()
    assert there.recv(1) == b""
    there.close()
    assert "closed" in repr(there)


@in_loop
def test_tls_ends_and_the_connection_goes_on():
    here, there = wrapped(*coro.socketpair())

    def answer():
        assert there.recv(1) == b""
        plain = there.unwrap()
        plain.send(b"clear")
        return plain

    thread = coro.spawn(answer)
    plain = here.unwrap()
    with plain, thread.get():
        assert plain.recv(10) == b"clear"
        with pytest.raises(coro.ClosedError, match="unwrap"):
            here.send(b"more")
    assert here.closed
    here.close()


@in_jumping_loop
def test_a_closed_stream_has_nothing_more_to_receive():
    """Neither the peer's end, nor what an interrupted call had gathered."""
    for ended in (True, False):
        here, there = wrapped(*coro.socketpair())
        there.send(b"abc")
        with coro.move_on_after(0.001):
            here.recv_exact(10)
        if ended:
            there.close()
            assert here.recv_exact(3) == b"abc" and here.recv(10) == b""
        here.close()
        for receive, argument in ((here.recv, 1), (here.recv_into, bytearray(1)), (here.recv_exact, 1)):
            with pytest.raises(coro.ClosedError):
                receive(argument)
        there.close()


@in_jumping_loop
def test_close_waits_a_second_for_a_peer_that_does_not_receive():
    here, there = wrapped(*memory_pair())
    with there:
        sender = coro.spawn(outcome, here.send, bytes(1_000_000))
        testing.wait_all_blocked()
        begin = coro.get_now()
        here.close()
        assert 0.9 < (coro.get_now() - begin) / coro.ticks_per_sec < 1.5
        assert isinstance(sender.get(), coro.ClosedError)


@in_loop
def test_what_is_asked_for_wrongly():
    here, there = wrapped(*memory_pair())
    with here, there:
        for call in (lambda: here.recv(1, coro.MSG.PEEK), lambda: here.recv_into(bytearray(1), 0, coro.MSG.PEEK)):
            with pytest.raises(coro.oserrors.EOPNOTSUPP, match="no flags"):
                call()
        with pytest.raises(coro.oserrors.EOPNOTSUPP):
            here.send(b"x", coro.MSG.OOB)
        for call in (lambda: here.recv(-1), lambda: here.recv_exact(-1), lambda: here.readv([-1])):
            with pytest.raises(ValueError, match="negative"):
                call()
        with pytest.raises(ValueError, match="pass a larger one"):
            here.recv_into(bytearray(1), 2)
        with pytest.raises(BufferError):
            here.recv_into(memoryview(b"x"))
        with pytest.raises(TypeError, match="encode 'text' first"):
            here.send("text")
        with pytest.raises(TypeError, match="a sequence"):
            here.writev(b"x")
        with pytest.raises(ValueError, match=r"SHUT\.RD"):
            here.shutdown(7)
        with pytest.raises(tls.UnsupportedError, match="tls-nonsense"):
            here.get_channel_binding("tls-nonsense")
        assert here.recv(0) == b"" == there.recv_exact(0)


# -- interruption


@in_loop
def test_an_interrupted_read_loses_nothing():
    here, there = wrapped(*memory_pair())
    with here, there:
        reader = coro.spawn(there.recv_exact, 10)
        here.send(b"12345")
        testing.wait_all_blocked()
        reader.raise_exception(KeyError("enough"))
        with pytest.raises(KeyError):
            reader.get()
        here.send(b"67890")
        assert there.recv(3) == b"123"
        assert there.recv_exact(7) == b"4567890"


@pytest.mark.parametrize("pair", [coro.socketpair, memory_pair])
@in_loop
def test_an_interrupted_write_is_completed_by_the_next(pair):
    here, there = wrapped(*pair())
    with here, there:
        sender = coro.spawn(here.send, bytes(3_000_000))
        testing.wait_all_blocked()
        sender.raise_exception(KeyError("enough"))
        with pytest.raises(KeyError) as caught:
            sender.get()
        sent = caught.value.bytes_sent
        assert 0 < sent < 3_000_000
        assert here.statistics().unsent > 0
        after = coro.spawn(here.send, b"after")
        assert there.recv_exact(sent) == bytes(sent)
        assert there.recv_exact(5) == b"after"
        assert after.get() == 5
        assert here.statistics().unsent == 0


@in_loop
def test_the_next_sender_goes_on_when_the_first_is_interrupted():
    here, there = wrapped(*memory_pair())
    with here, there:
        first = coro.spawn(here.send, bytes(1_000_000))
        second = coro.spawn(here.send, b"second")
        testing.wait_all_blocked()
        first.shutdown()
        with pytest.raises(coro.CancelledError) as caught:
            first.get()
        sent = caught.value.__cause__.bytes_sent
        assert there.recv_exact(sent + 6) == bytes(sent) + b"second"
        assert second.get() == 6


def outcome(function, *args, **kwargs):
    """What a thread ends with, as a value: errors of its own are what is looked for."""
    try:
        return function(*args, **kwargs)
    except (OSError, EOFError) as e:
        return e


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
def test_a_handshake_is_interrupted_anywhere(version):
    client, server = contexts(version)
    for after in range(0, 2000, 97):
        for side in (0, 1):
            left, right = testing.stream_pair()
            ends = [faults.faulty_stream(left, faults.stall(after=after)), right]
            threads = [
                coro.spawn(outcome, client.wrap, ends[side], server_hostname="localhost"),
                coro.spawn(outcome, server.wrap, ends[1 - side], server_side=True),
            ]
            testing.wait_all_blocked()
            for thread in threads:
                if not thread.dead:
                    thread.shutdown()
            coro.wait(threads)
            for thread in threads:
                if isinstance(thread.exception, coro.Shutdown):
                    continue
                if not isinstance(thread.get(), tls.HandshakeError):
                    thread.get().close()
            assert left.closed and right.closed


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
def test_a_handshake_is_cut_anywhere(version):
    client, server = contexts(version)
    seen = []

    def serve(end):
        with end, server.wrap(end, server_side=True) as conn:
            conn.send(b"x")

    for after in range(0, 2400, 53):
        for side in ("recv", "send"):
            left, right = testing.stream_pair()
            cut = faults.faulty_stream(left, faults.cut(after=after, side=side))
            thread = coro.spawn(outcome, serve, right)
            with cut:
                try:
                    with client.wrap(cut, server_hostname="localhost") as conn:
                        assert conn.recv(1) == b"x"
                except (tls.HandshakeError, tls.TruncatedError, BrokenPipeError) as e:
                    seen.append(type(e))
            assert thread.get() is None or isinstance(thread.get(), (tls.TLSError, BrokenPipeError))
            assert left.closed and right.closed
    assert len(seen) > 20 and tls.HandshakeError in seen


# -- what peers do


def raises_both(kind, here, there, client=None, server=None, server_hostname="localhost"):
    """The errors of the client and of the server."""
    usual = contexts()
    thread = coro.spawn((server or usual[1]).wrap, there, server_side=True)
    with pytest.raises(kind) as mine:
        with (client or usual[0]).wrap(here, server_hostname=server_hostname) as conn:
            conn.recv(1)
    try:
        with thread.get() as conn:
            conn.recv(1)
    except (OSError, EOFError) as e:
        assert here.closed and there.closed
        return mine.value, e
    raise AssertionError("the server has seen no error")


@in_loop
def test_the_wrong_name():
    mine, theirs = raises_both(tls.CertificateError, *coro.socketpair(), server_hostname="example.org")
    assert "example.org" in mine.verify_message and mine.verify_code
    assert isinstance(mine.__cause__, ssl.SSLCertVerificationError)
    assert theirs.alert_name == "bad_certificate" and theirs.alert == 42


@pytest.mark.parametrize("pair", [coro.socketpair, memory_pair])
@in_loop
def test_an_unknown_authority(pair):
    client = tls.context(ssl.create_default_context())
    mine, theirs = raises_both(tls.CertificateError, *pair(), client)
    assert "self-signed" in str(mine) or "self signed" in str(mine)
    assert theirs.alert_name == "unknown_ca"
    assert "the peer sent the alert unknown_ca" in str(theirs)


@in_loop
def test_no_version_in_common():
    old, new = tls_support.client_context(), tls_support.server_context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    new.minimum_version = ssl.TLSVersion.TLSv1_3
    mine, theirs = raises_both(tls.HandshakeError, *coro.socketpair(), tls.context(old), tls.context(new))
    assert mine.alert_name == "protocol_version"
    assert theirs.alert is None and "handshake failed" in str(theirs)


@in_loop
def test_a_peer_without_tls():
    _, server = contexts()
    for text in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(4000), b"\x16\x03\x01\xff\xff" + bytes(70000)):
        here, there = coro.socketpair()
        with here:
            here.setsockopt(coro.SOL.SOCKET, coro.SO.SNDBUF, 200_000)
            here.send(text)
            with pytest.raises(tls.HandshakeError):
                server.wrap(there, server_side=True)
            assert there.closed


@in_loop
def test_a_silent_peer():
    client, server = contexts()
    for wrap in (
        lambda end: client.wrap(end, server_hostname="localhost", handshake_timeout=0.01),
        lambda end: server.wrap(end, server_side=True, handshake_timeout=0.01),
    ):
        here, there = coro.socketpair()
        with here, pytest.raises(tls.HandshakeTimeout, match=r"within 0\.01 seconds") as caught:
            wrap(there)
        assert isinstance(caught.value, TimeoutError) and there.closed


@in_loop
def test_a_limit_of_the_callers_is_the_callers():
    client, _ = contexts()
    here, there = coro.socketpair()
    with here, pytest.raises(coro.TimeoutError):
        with coro.timeout(0.01):
            client.wrap(there, server_hostname="localhost")
    assert there.closed


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
def test_a_record_that_was_changed(version):
    left, right = testing.stream_pair()
    here, there = wrapped(left, right, version)
    with here, there:
        here.send(b"x" * 100)
        pipe = right._in.data if hasattr(right, "_in") else None
        data = bytearray(right.recv(1000)) if pipe is None else pipe
        data[-1] ^= 1
        if pipe is None:
            left.send(data)
        with pytest.raises(tls.ProtocolError, match="TLS failed in read") as first:
            there.recv(100)
        with pytest.raises(tls.ProtocolError) as second:
            there.send(b"more")
        assert first.value is second.value
        with pytest.raises(tls.ProtocolError) as mine:
            here.recv(1)
        assert mine.value.alert_name in ("bad_record_mac", "decryption_failed")


@in_loop
def test_one_call_receives_the_records_that_are_there():
    """The first reading below asks for little, the second for four records; what is left of a fifth has to wait."""
    here, there = wrapped(*coro.socketpair())
    with here, there:
        data = bytes(range(256)) * 320
        here.send(data)
        first = there.recv(100_000)
        assert len(first) == 65536
        assert first + there.recv_exact(16384) == data
        here.send(data)
        assert there.recv(20000) + there.recv_exact(len(data) - 20000) == data
        here.send(b"x" * 16384)
        here.shutdown(coro.SHUT.WR)
        assert there.recv(65536) == b"x" * 16384
        assert there.recv(65536) == there.recv(65536) == b""
        there.send(b"the other direction")
        assert here.recv(100) == b"the other direction"


@in_loop
def test_what_was_there_before_a_changed_record_is_received_first():
    here, there = wrapped(*coro.socketpair())
    with here, there:
        here.send(b"x" * 32768)
        data = bytearray(there.sock.recv_exact(2 * (16384 + 22)))
        data[-1] ^= 1
        here.sock.send(bytes(data))
        assert there.recv(65536) == b"x" * 16384
        with pytest.raises(tls.ProtocolError, match="TLS failed in read") as first:
            there.recv(65536)
        with pytest.raises(tls.ProtocolError) as second:
            there.recv(65536)
        assert first.value is second.value


class _Interrupted:
    """What decrypts, interrupted once behind the first record."""

    def __init__(self, below, raises):
        self.below, self.raises, self.records = below, raises, 0

    def __getattr__(self, name):
        return getattr(self.below, name)

    def read(self, *args):
        if self.records == 1:
            self.records = 2
            raise self.raises
        data = self.below.read(*args)
        self.records += 1
        return data


@pytest.mark.parametrize("raises", [KeyboardInterrupt, MemoryError])
@in_loop
def test_a_signal_between_two_records_loses_nothing(raises):
    here, there = wrapped(*coro.socketpair())
    with here, there:
        data = bytes(range(256)) * 128
        here.send(data)
        there._channel.tls = _Interrupted(there._channel.tls, raises)
        with pytest.raises(raises):
            there.recv(65536)
        assert there.recv_exact(len(data)) == data


@in_loop
def test_errors_of_a_broken_peer_stay_with_it():
    """OpenSSL keeps errors in a queue of the OS thread, where the next connection could find those of another."""
    good = wrapped(*coro.socketpair())
    with good[0], good[1]:
        for _ in range(20):
            bad = wrapped(*memory_pair())
            reader = coro.spawn(good[1].recv_exact, 5)
            bad[0].sock.send(b"\x17\x03\x03\x00\x20" + bytes(32))
            with pytest.raises(tls.ProtocolError):
                bad[1].recv(1)
            good[0].send(b"hello")
            assert reader.get() == b"hello"
            bad[0].close()
            bad[1].close()


# -- with the rest of coro


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
def test_sessions(version):
    client, server = contexts(version)
    session = None
    for turn in range(2):
        left, right = coro.socketpair()
        thread = coro.spawn(server.wrap, right, server_side=True)
        with client.wrap(left, server_hostname="localhost", session=session) as here, thread.get() as there:
            there.send(b"x")
            here.recv(1)
            assert here.session_reused is there.session_reused is bool(turn)
            session = here.session
            assert here.statistics().session_reused is bool(turn)


@in_loop
def test_protocols_names_and_certificates():
    client, server = tls_support.client_context(), tls_support.server_context()
    client.set_alpn_protocols(["h2", "http/1.1"])
    server.set_alpn_protocols(["http/1.1"])
    adapted = tls.context(server)
    here, there = wrapped(*coro.socketpair(), client=tls.context(client), server=adapted)
    with here, there:
        assert here.selected_alpn_protocol() == there.selected_alpn_protocol() == "http/1.1"
        assert here.server_hostname == "localhost"
        assert here.getpeercert()["subject"] == ((("commonName", "localhost"),),)
        assert here.peer_chain()[0] == here.getpeercert(True)
        assert there.peer_chain() == [] and there.getpeercert() is None
        assert there.context is adapted and adapted.ssl_context is server
        assert "SSLContext" in repr(adapted)
        assert here.fileno() == here.sock.fileno() and here.getsockname() == here.sock.getsockname()
        assert here.getpeername() == there.getsockname()
        here.setsockopt(coro.SOL.SOCKET, coro.SO.RCVBUF, 8192)
        assert here.getsockopt(coro.SOL.SOCKET, coro.SO.RCVBUF) >= 8192


@in_loop
def test_a_server():
    client, server = contexts()

    def echo(conn, address):
        while data := conn.recv(100):
            conn.send(data)

    with coro.Server(echo, ("127.0.0.1", 0), wrap=server.accept) as running:
        silent = [coro.connect(running.addresses[0]) for _ in range(20)]
        with coro.connect(running.addresses[0]) as plain:
            plain.send(b"no TLS at all, but some text of more than eleven bytes")
            assert plain.recv(100) == b""
        for _ in range(3):
            with client.wrap(coro.connect(running.addresses[0]), server_hostname="localhost") as conn:
                conn.send(b"hello")
                assert conn.recv(10) == b"hello"
        until(lambda: running.statistics().finished == 4)
        assert running.statistics().wrap_failures == 1 and running.statistics().failed == 0
        for one in silent:
            one.close()
        until(lambda: running.statistics().active == 0)
        assert running.statistics().wrap_failures == 21


@in_loop
def test_a_client_that_goes_without_a_farewell_is_no_failure_of_the_servers():
    client, server = contexts()
    with coro.Server(lambda conn, _: conn.recv(1), ("127.0.0.1", 0), wrap=server.accept) as running:
        conn = client.wrap(coro.connect(running.addresses[0]), server_hostname="localhost")
        conn.sock.close()
        until(lambda: running.statistics().finished)
        assert running.statistics().failed == 0 and running.statistics().resets == 1


@in_loop
def test_renegotiation_is_refused():
    """RFC 5746 makes it safe, and it still lets a client ask for the costly part of a handshake again and again."""
    client, server = contexts(ssl.TLSVersion.TLSv1_2)
    assert client.ssl_context.options & ssl.OP_NO_RENEGOTIATION
    assert server.ssl_context.options & ssl.OP_NO_RENEGOTIATION


@in_loop
def test_nothing_is_left():
    gc.collect()
    before = coro.get_live_sockets()
    for _ in range(3):
        here, there = wrapped(*coro.socketpair())
        here.close()
        there.close()
        del here, there
    gc.collect()
    assert coro.get_live_sockets() == before
