"""What is special about the back end over tlslite-ng: limits, fairness, tickets, sessions, keys, key updates."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import tls_peers
from real_programs import find_program
from tlslite.messages import ApplicationData

import coro
from coro import testing
from coro.ssl import HandshakeError, ProtocolError, UnsupportedError, new_ctx
from coro.ssl._tlslite import connection, context
from coro.ssl._tlslite.engine import Again, Engine, Want

VERSIONS = ("TLSv1.2", "TLSv1.3")
versions = pytest.mark.parametrize("version", VERSIONS)


def engines(server: Any, client: Any, **options: Any) -> tuple[Engine, Engine]:
    """The engines of both sides, without streams."""
    return (
        client._backend.engine(False, "localhost", options.get("session"), context=client._backend),
        server._backend.engine(True, None, None, context=server._backend),
    )


def step(engine: Engine) -> bool:
    """Go on with the handshake; whether it is done."""
    while True:
        try:
            engine.do_handshake()
        except Again:
            continue
        except Want:
            return False
        return True


def shake(a: Engine, b: Engine, size: int = 0) -> None:
    """The handshake of two engines, in pieces of ``size`` bytes."""
    for _ in range(100_000):
        done = step(a), step(b)
        for one, other in ((a, b), (b, a)):
            data = one.outgoing.read()
            for i in range(0, len(data), size or len(data) or 1):
                other.incoming.write(data[i : i + (size or len(data))])
                if size and not all(done):
                    step(other)
        if all(done) and not a.outgoing.pending and not b.outgoing.pending:
            return
    raise AssertionError("the handshake has no end")


def pump(a: Engine, b: Engine) -> None:
    b.incoming.write(a.outgoing.read())
    a.incoming.write(b.outgoing.read())


def read(engine: Engine) -> bytes:
    try:
        return bytes(engine.read(16384))
    except Want:
        return b""


@versions
def test_one_byte_at_a_time(version: str) -> None:
    a, b = engines(tls_peers.server("tlslite", highest=version), tls_peers.client("tlslite"))
    shake(a, b, 1)
    assert a.version() == b.version() == version
    a.write(b"hello")
    got = b""
    for byte in a.outgoing.read():
        b.incoming.write(bytes([byte]))
        got += read(b)
    assert got == b"hello"


def test_a_handshake_lets_others_run() -> None:
    """Between two pieces of work of a handshake other threads have their turn."""
    server, client = tls_peers.server("tlslite", key="rsa"), tls_peers.client("tlslite")

    def main() -> None:
        turns = 0

        def count() -> None:
            nonlocal turns
            while True:
                coro.yield_slice()
                turns += 1

        counting = coro.spawn(count)
        ours, theirs = coro.socketpair()
        thread = coro.spawn(server.wrap, theirs, True)
        stream = client.wrap(ours, server_hostname="localhost")
        thread.get().close()
        stream.close()
        counting.shutdown()
        counting.join()
        assert turns >= 10

    coro.run(main)


def test_large_writes_let_others_run() -> None:
    a, b = engines(tls_peers.server("tlslite"), tls_peers.client("tlslite"))
    shake(a, b)
    assert a.write(bytes(100_000)) == 16384


def test_long_messages_are_refused_by_their_length() -> None:
    """tlslite-ng would gather 16 MiB for a hello."""
    _, server = engines(tls_peers.server("tlslite"), tls_peers.client("tlslite"))
    server.incoming.write(b"\x16\3\1\0\4" + b"\1" + (connection.MESSAGE_MOST + 1).to_bytes(3, "big"))
    with pytest.raises(Exception, match="a message of 102401 bytes") as caught:
        step(server)
    assert isinstance(server.error(caught.value, "handshake"), HandshakeError)
    assert server.outgoing.read()[-2:] == b"\2\x2f"  # illegal_parameter


def test_many_messages_without_data_are_refused() -> None:
    a, b = engines(tls_peers.server("tlslite", highest="TLSv1.3"), tls_peers.client("tlslite"))
    shake(a, b)
    for _ in range(connection.IDLE_MOST + 2):
        for _ in a._connection._sendMsg(ApplicationData().create(bytearray())):
            pass
    b.incoming.write(a.outgoing.read())
    read(b)  # empty records are passed over by the library
    for _ in range(connection.IDLE_MOST + 2):
        for _ in a._connection.send_keyupdate_request(0):
            pass
    b.incoming.write(a.outgoing.read())
    with pytest.raises(Exception, match="messages without data") as caught:
        b.read(1)
    assert isinstance(b.error(caught.value, "read"), ProtocolError)


@pytest.mark.parametrize("answer", [0, 1], ids=["alone", "and the other side, too"])
def test_keys_are_changed(answer: int) -> None:
    a, b = engines(tls_peers.server("tlslite", highest="TLSv1.3"), tls_peers.client("tlslite"))
    shake(a, b)
    for one, other in ((a, b), (b, a)):
        for _ in one._connection.send_keyupdate_request(answer):
            pass
        one.write(b"under new keys")
        other.incoming.write(one.outgoing.read())
        assert read(other) == b"under new keys"
        other.write(b"and back")
        one.incoming.write(other.outgoing.read())
        assert read(one) == b"and back"


class TestSessions:
    @versions
    def test_a_ticket_is_used_once_and_for_its_host(self, version: str) -> None:
        server = tls_peers.server("tlslite", highest=version, hosts=("localhost", "b.test"))
        client = tls_peers.client("tlslite")
        a, b = engines(server, client)
        shake(a, b)
        b.write(b"x")  # what comes with TLS 1.3's tickets
        pump(a, b)
        read(a)
        session = a.session
        assert session is not None and "localhost" in repr(session)
        again, other = engines(server, client, session=session)
        shake(again, other)
        assert again.session_reused and other.session_reused
        assert again.getpeercert(True) == a.getpeercert(True)
        elsewhere = client._backend.engine(False, "b.test", session, context=client._backend)
        third = server._backend.engine(True, None, None, context=server._backend)
        shake(elsewhere, third)
        assert not elsewhere.session_reused
        stranger = tls_peers.client("tlslite")
        with pytest.raises(ValueError, match="another context"):
            stranger._backend.engine(False, "localhost", session, context=stranger._backend)
        with pytest.raises(TypeError, match="session of an earlier stream"):
            client._backend.engine(False, "localhost", object(), context=client._backend)

    @versions
    def test_a_server_that_does_not_take_the_ticket(self, version: str) -> None:
        """tlslite-ng would believe that it does, in TLS 1.2, and fail."""
        client = tls_peers.client("tlslite")
        a, b = engines(tls_peers.server("tlslite", highest=version), client)
        shake(a, b)
        b.write(b"x")
        pump(a, b)
        read(a)
        other = tls_peers.server("tlslite", highest=version)
        again, fresh = engines(other, client, session=a.session)
        shake(again, fresh)
        assert not again.session_reused and not fresh.session_reused

    def test_keys_of_tickets_are_replaced(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = 1000.0
        monkeypatch.setattr(context.time, "monotonic", lambda: now)
        backend = tls_peers.server("tlslite")._backend
        first = list(backend._with_tickets().ticketKeys)
        now += context.TICKET_KEY_LIFE - 1
        assert backend._with_tickets().ticketKeys == first
        now += 2
        second = list(backend._with_tickets().ticketKeys)
        assert len(second) == 2 and second[1] == first[0] != second[0]
        now += 2 * context.TICKET_KEY_LIFE + 1
        assert len(backend._with_tickets().ticketKeys) == 1


class TestContexts:
    def test_what_it_cannot_do_it_says(self, tmp_path: Any) -> None:
        own = tls_peers.issued()
        with pytest.raises(UnsupportedError, match="key log"):
            new_ctx(own.chain_pem, key=own.key_pem, backend="tlslite", keylog=tmp_path / "keys")
        with pytest.raises(UnsupportedError, match="ciphers are"):
            new_ctx(backend="tlslite", ciphers="AES128-SHA")
        with pytest.raises(UnsupportedError, match="groups"):
            new_ctx(backend="tlslite", groups="X448")
        with pytest.raises(UnsupportedError, match="ssl.SSLContext"):
            _ = new_ctx(backend="tlslite").ssl_context

    @pytest.mark.parametrize("name", ["aes128gcm", "ECDHE-RSA-AES256-GCM-SHA384", "TLS_CHACHA20_POLY1305_SHA256"])
    @versions
    def test_ciphers(self, name: str, version: str) -> None:
        own = tls_peers.issued()
        server = new_ctx(own.chain_pem, key=own.key_pem, backend="tlslite", ciphers=name, maximum_version=version)
        a, b = engines(server, tls_peers.client("tlslite"))
        shake(a, b)
        found = a.cipher()
        assert found is not None and found == b.cipher()
        wanted = {"aes128gcm": "AES_128_GCM", "ECDHE-RSA-AES256-GCM-SHA384": "AES_256_GCM"}.get(name, "CHACHA20")
        assert wanted in found[0] and found[1] == version and found[2] == (128 if "128" in wanted else 256)

    @pytest.mark.parametrize("group", ["X25519", "P-256", "P-384", "P-521"])
    def test_groups(self, group: str) -> None:
        own = tls_peers.issued()
        server = new_ctx(own.chain_pem, key=own.key_pem, backend="tlslite", groups=group)
        a, b = engines(server, tls_peers.client("tlslite"))
        shake(a, b)
        assert a.version() == "TLSv1.3"

    @pytest.mark.slow
    @pytest.mark.parametrize("key", ["ec", "ec384", "ec521", "rsa", "rsa3072", "ed25519", "ed448"])
    @versions
    def test_kinds_of_keys(self, key: str, version: str) -> None:
        one = tls_peers.issued(key=key)
        server = new_ctx(one.chain_pem, key=one.key_pem, backend="tlslite", maximum_version=version)
        a, b = engines(server, tls_peers.client("tlslite"))
        shake(a, b)
        assert a.getpeercert()["subjectAltName"] == (("DNS", "localhost"), ("IP Address", "127.0.0.1"))

    def test_an_encrypted_key(self) -> None:
        own = tls_peers.issued()
        program = find_program("openssl", "openssl")
        command = [program, "pkcs8", "-topk8", "-v2", "aes-256-cbc", "-passout", "pass:geheim"]
        pem = subprocess.run(command, input=own.key_pem, capture_output=True, check=True, timeout=60).stdout
        assert b"ENCRYPTED" in pem
        new_ctx(own.chain_pem, key=pem, password="geheim", backend="tlslite")
        with pytest.raises(Exception, match="private key"):
            new_ctx(own.chain_pem, key=pem, password="wrong", backend="tlslite")

    def test_mistakes(self) -> None:
        own, other = tls_peers.issued(), tls_peers.issued("other.test")
        with pytest.raises(ValueError, match="not that of the certificate"):
            new_ctx(own.chain_pem, key=other.key_pem, backend="tlslite")
        with pytest.raises(ValueError, match="certificate"):
            new_ctx(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" + own.key_pem, backend="tlslite")
        client = tls_peers.client("tlslite")
        with pytest.raises(ValueError, match="needs a certificate"):
            client._backend.engine(True, None, None)
        with pytest.raises(ValueError, match="server_hostname"):
            client._backend.engine(False, None, None)

    def test_it_needs_no_ssl_module(self) -> None:
        """For Pythons without OpenSSL: nothing on the way imports `ssl`, or cryptography."""
        code = (
            "import sys\n"
            "for name in ('ssl', '_ssl', 'cryptography'): sys.modules[name] = None\n"
            "from coro.ssl import new_ctx\n"
            "import coro\n"
            "server = new_ctx(sys.argv[1], key=sys.argv[2], backend='tlslite')\n"
            "client = new_ctx(ca=sys.argv[3], backend='tlslite')\n"
            "def main():\n"
            "    a, b = coro.socketpair()\n"
            "    thread = coro.spawn(server.wrap, a, True)\n"
            "    stream = client.wrap(b, server_hostname='localhost')\n"
            "    other = thread.get()\n"
            "    stream.sendall(b'pure')\n"
            "    print(other.recv(10).decode(), stream.version())\n"
            "coro.run(main)\n"
        )
        folder = tls_peers.folder()
        files = [str(folder / name) for name in ("server.pem", "server.key", "ca.pem")]
        done = subprocess.run([sys.executable, "-c", code, *files], capture_output=True, text=True, timeout=60)
        assert done.stdout == "pure TLSv1.3\n", done.stderr


def test_an_error_of_the_library_is_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a parser stumbles over, the peer is told and the caller gets an error of TLS."""
    _, server = engines(tls_peers.server("tlslite"), tls_peers.client("tlslite"))

    def broken(*args: object) -> None:
        raise ZeroDivisionError("a fault in the library")

    # it is called when the hello has come
    monkeypatch.setattr(server._connection, "_server_select_certificate", broken)
    client = tls_peers.client("tlslite")._backend.engine(False, "localhost", None)
    step(client)
    server.incoming.write(client.outgoing.read())
    with pytest.raises(ZeroDivisionError) as caught:
        step(server)
    assert isinstance(server.error(caught.value, "handshake"), HandshakeError)
    assert server.outgoing.read()[-2:] == b"\2\x50"


def test_nothing_is_left() -> None:
    server, client = tls_peers.server("tlslite"), tls_peers.client("tlslite")

    def main() -> None:
        ours, theirs = coro.socketpair()
        thread = coro.spawn(server.wrap, theirs, True)
        with client.wrap(ours, server_hostname="localhost") as stream, thread.get() as other:
            stream.sendall(b"x")
            assert other.recv(1) == b"x"

    with testing.no_leaks(strict=True):
        coro.run(main)
