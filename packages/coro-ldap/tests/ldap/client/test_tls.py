"""TLS of the LDAP client: StartTLS that nobody can talk into, certificates that do not fit, and deadlines."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from ldap_client_support import HANG, Conversation, Scripted, certificate, in_loop
from real_programs.running import HOST

import coro
from coro.ldap import Client, ConnectionLost, LDAPTimeout, ProtocolError, StateError, TLSRequired
from coro.ldap.exceptions import Unavailable
from coro.ldap.protocol import STARTTLS, ExtendedRequest, ExtendedResponse, Message, encode

pytestmark = pytest.mark.slow  # making keys takes programs of their own


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("tls")
    certificate(found, "server")
    certificate(found, "other")
    certificate(found, "elsewhere", "127.0.0.9")
    return found


def of_server(folder: Path, name: str = "server") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return context


def trusting(folder: Path, name: str = "server") -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(folder / f"{name}.pem"))


class Tap:
    """A stream that keeps what went through it in clear text."""

    def __init__(self, sock) -> None:
        self._sock = sock
        self.received = b""

    def recv(self, size: int) -> bytes:
        data = self._sock.recv(size)
        self.received += data
        return data

    def __getattr__(self, name: str):
        return getattr(self._sock, name)


def starttls(folder: Path, name: str = "server"):
    def script(peer: Conversation) -> None:
        request = peer.next()
        assert isinstance(request.op, ExtendedRequest) and request.op.name == STARTTLS
        peer.answer(request)
        peer.sock = coro.tls.context(of_server(folder, name)).wrap(peer.sock, server_side=True)
        peer.serve()

    return script


@pytest.mark.parametrize("at_once", [False, True])
def test_starttls_encrypts(folder: Path, at_once: bool) -> None:
    taps: list[Tap] = []

    def tap(sock):
        taps.append(Tap(sock))
        return taps[-1]

    @in_loop
    def run() -> None:
        with (
            Scripted(starttls(folder), tap) as server,
            server.client(tls=trusting(folder), starttls=at_once) as client,
        ):
            if not at_once:
                assert not client.secure
                client.starttls()
            assert client.secure and client.tls_object.version() == "TLSv1.3"
            client.simple_bind("cn=somebody", "very-secret")
            assert [entry.dn for entry in client.search_iter("cn=x")] == ["cn=x"]
            with pytest.raises(StateError, match="already"):
                client.starttls()
        sent = taps[0].received
        assert STARTTLS.encode() in sent and b"somebody" not in sent and b"very-secret" not in sent

    run()


@pytest.mark.parametrize("name", ["other", "elsewhere"])
@pytest.mark.parametrize("how", ["ldaps", "starttls"])
def test_wrong_certificates_are_refused(folder: Path, name: str, how: str) -> None:
    """Signed by somebody else, or for another host; also without any context, so verification is not an option."""

    @in_loop
    def run() -> None:
        context = of_server(folder, name)
        trusted = trusting(folder) if name == "other" else trusting(folder, name)
        for tls in (trusted, None):
            if how == "ldaps":
                with (
                    Scripted(wrap=coro.tls.context(context).accept) as server,
                    pytest.raises(coro.tls.CertificateError),
                ):
                    Client(f"ldaps://{HOST}:{server.port}", tls=tls, timeout=HANG)
            else:
                with Scripted(starttls(folder, name)) as server:
                    client = server.client(tls=tls)
                    with pytest.raises(coro.tls.CertificateError):
                        client.starttls()
                    assert not client.alive
                    with pytest.raises(ConnectionLost):
                        client.whoami()

    run()


def test_ldaps(folder: Path) -> None:
    @in_loop
    def run() -> None:
        with (
            Scripted(wrap=coro.tls.context(of_server(folder)).accept) as server,
            Client(f"ldaps://{HOST}:{server.port}", tls=trusting(folder), timeout=HANG) as client,
        ):
            assert client.secure
            assert len(client.search("cn=x")) == 1

    run()


@pytest.mark.parametrize("apart", [False, True])
@in_loop
def test_clear_text_behind_the_answer_to_starttls_is_refused(apart: bool) -> None:
    injected = encode(Message(2, ExtendedResponse(0, name="1.3.6.1.4.1.4203.1.11.3", value=b"dn:cn=admin")))

    def script(peer: Conversation) -> None:
        answer = encode(Message(peer.next().id, ExtendedResponse(0)))
        peer.send(answer + (injected[:5] if apart else injected))
        while peer.sock.recv(1000):
            pass

    with Scripted(script) as server:
        client = server.client()
        with pytest.raises(ProtocolError, match="clear text"):
            client.starttls()
        assert not client.alive and not client.secure


@in_loop
def test_a_server_that_refuses_starttls() -> None:
    def script(peer: Conversation) -> None:
        peer.answer(peer.next(), 52, "no certificate")
        peer.serve()

    with Scripted(script) as server, server.client() as client:
        with pytest.raises(Unavailable, match="no certificate"):
            client.starttls()
        assert not client.secure
        client.delete("cn=x")
    with Scripted(script) as server, pytest.raises(Unavailable):
        server.client(starttls=True)


@pytest.mark.parametrize("how", ["timeout", "with_timeout"])
@pytest.mark.parametrize("step", ["answer", "handshake", "bind", "search"])
def test_a_frozen_server_is_left_at_the_deadline(folder: Path, step: str, how: str) -> None:
    def script(peer: Conversation) -> None:
        request = peer.next()
        if step != "answer":
            peer.answer(request)
        if step in ("bind", "search"):
            peer.sock = coro.tls.context(of_server(folder)).wrap(peer.sock, server_side=True)
        if step == "search":
            peer.answer(peer.next())
        while peer.sock.recv(10_000):
            pass

    def steps(client: Client) -> None:
        client.starttls()
        client.default_timeout = 0.05 if how == "timeout" else HANG
        client.simple_bind("cn=a", "b", timeout=HANG if step == "search" else "default")
        list(client.search_iter("cn=x"))

    @in_loop
    def run() -> None:
        with Scripted(script) as server:
            early = how == "timeout" and step in ("answer", "handshake")
            client = server.client(tls=trusting(folder), timeout=0.05 if early else HANG)
            if how == "timeout":
                with pytest.raises((LDAPTimeout, coro.tls.HandshakeError)):
                    steps(client)
            else:
                with pytest.raises(coro.TimeoutError):
                    coro.with_timeout(0.2, steps, client)
            assert client.alive == (step == "search")
            client.close()

    run()


@in_loop
def test_a_mute_server_of_ldaps_is_left_at_the_deadline() -> None:
    def script(peer: Conversation) -> None:
        while peer.sock.recv(10_000):
            pass

    with Scripted(script) as server, pytest.raises((LDAPTimeout, coro.tls.HandshakeError)):
        Client(f"ldaps://{HOST}:{server.port}", connect_timeout=0.05)


@in_loop
def test_passwords_in_clear_text() -> None:
    with Scripted() as server:
        with server.client() as client:
            client._loopback = False  # as if the server were elsewhere
            with pytest.raises(TLSRequired, match="starttls"):
                client.simple_bind("cn=a", "b")
            with pytest.raises(TLSRequired):
                client.change_password("a", "b", "c")
            client.simple_bind()
            with pytest.raises(TLSRequired, match="PLAIN"):
                client.sasl_bind("", "PLAIN", b"\0a\0b")
        with server.client(cleartext_passwords=True) as client:
            client._loopback = False
            client.simple_bind("cn=a", "b")
        assert [type(m.op).__name__ for m in server.conversations[0].seen] == ["BindRequest", "UnbindRequest"]
