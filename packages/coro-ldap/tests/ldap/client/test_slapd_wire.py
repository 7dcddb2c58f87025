"""StartTLS between the client and OpenLDAP's server, as somebody on the way sees it, who may also add something."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ldap_client_support import HANG, certificate, in_loop
from ldap_server_support import BASE, Full, entries
from real_programs.running import HOST

import coro
from coro.ldap import Client, ConnectionLost, Error, LDAPTimeout, ProtocolError
from coro.ldap._wire import Framer
from coro.ldap.protocol import (
    STARTTLS,
    BindResponse,
    ExtendedRequest,
    ExtendedResponse,
    Message,
    decode,
    encode,
)

pytestmark = pytest.mark.slow  # real servers
USER = f"uid=u1,ou=people,{BASE}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("tls")
    certificate(found, "server")
    return found


@pytest.fixture(scope="module")
def slapd(folder: Path) -> Iterator[Full]:
    with Full(entries(3), folder) as running:
        yield running


class Recorder:
    """Between a client and a server: keeps all bytes of both, and lets `change(to_client, data)` replace them."""

    def __init__(self, port: int, change: Callable[[bool, bytes], bytes] | None = None) -> None:
        self.port = port
        self.change = change
        self.sent = b""
        self.received = b""
        self.listener = coro.tcp_sock()
        self.listener.bind((HOST, 0))
        self.listener.listen()
        self.url = f"ldap://{HOST}:{self.listener.getsockname()[1]}"
        self._socks = [self.listener]
        coro.spawn(self._accept, daemon=True)

    def _accept(self) -> None:
        try:
            while True:
                near, _ = self.listener.accept()
                far = coro.connect(HOST, self.port)
                self._socks += [near, far]
                coro.spawn(self._copy, near, far, False, daemon=True)
                coro.spawn(self._copy, far, near, True, daemon=True)
        except (OSError, coro.ClosedError):
            pass

    def _copy(self, source, target, to_client: bool) -> None:
        try:
            while data := source.recv(65536):
                if to_client:
                    self.received += data
                else:
                    self.sent += data
                target.sendall(data if self.change is None else self.change(to_client, data))
        except (OSError, coro.ClosedError):
            pass
        finally:
            target.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *exc: object) -> None:
        for one in self._socks:
            one.close()


def records(data: bytes) -> list[int]:
    """The kinds of the TLS records that the bytes consist of (RFC 8446, 5.1), and of nothing else."""
    kinds = []
    while data:
        kind, length = data[0], int.from_bytes(data[3:5], "big")
        assert 20 <= kind <= 23 and data[1] == 3 and length <= (1 << 14) + 256, data[:20]
        assert len(data) >= 5 + length, "the last record is cut off"
        kinds.append(kind)
        data = data[5 + length :]
    return kinds


def first_message(data: bytes) -> tuple[Message, bytes]:
    size = 2 + data[1]
    [(_, _, payload)] = Framer(entries=False).receive(data[:size])
    return decode(payload), data[size:]


def trusting(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(folder / "server.pem"))


@pytest.mark.parametrize("at_once", [False, True])
def test_nothing_is_in_the_clear_after_starttls(slapd: Full, folder: Path, at_once: bool) -> None:
    @in_loop
    def run() -> None:
        with Recorder(slapd.port) as wire:
            with Client(wire.url, tls=trusting(folder), starttls=at_once, timeout=HANG) as client:
                if not at_once:
                    client.starttls()
                client.simple_bind(USER, "pw1")
                assert client.whoami() == f"dn:{USER}"
                assert client.read(USER).text("mail") == "u1@example.org"
            request, sent = first_message(wire.sent)
            answer, received = first_message(wire.received)
            assert isinstance(request.op, ExtendedRequest) and request.op.name == STARTTLS
            assert isinstance(answer.op, ExtendedResponse) and answer.op.code == 0
            # A handshake, and then application data only; the farewell, too.
            assert records(sent)[0] == records(received)[0] == 22
            assert set(records(sent)[3:]) == {23} and 23 in records(received)
            for secret in (b"pw1", b"uid=u1", b"people", b"example", b"mail"):
                assert secret not in wire.sent and secret not in wire.received

    run()


ADMIN = encode(Message(2, BindResponse(0)))


@pytest.mark.parametrize("where", ["with the answer", "before the answer", "instead of the handshake"])
def test_what_somebody_adds_before_tls_is_refused(slapd: Full, folder: Path, where: str) -> None:
    """CVE-2011-0411 in other protocols: what was injected in clear text counted as said within TLS."""
    state = []

    def change(to_client: bool, data: bytes) -> bytes:
        if not to_client:
            return data
        state.append(data)
        if len(state) == 1 and where == "with the answer":
            return data + ADMIN
        if len(state) == 1 and where == "before the answer":
            return ADMIN + data
        if len(state) == 2 and where == "instead of the handshake":
            return ADMIN + data
        return data

    @in_loop
    def run() -> None:
        with Recorder(slapd.port, change) as wire:
            client = Client(wire.url, tls=trusting(folder), timeout=HANG)
            if where == "before the answer":
                # An answer to a request that was never made: it is dropped, and counts for nothing afterwards.
                client.starttls()
                assert client.statistics().late == 1 and client.bound_as == ""
                assert client.whoami() == ""
                client.close()
                return
            kinds = (ProtocolError, coro.tls.HandshakeError, coro.tls.TLSError, ConnectionLost, LDAPTimeout)
            with pytest.raises(kinds) as caught:
                client.starttls()
            if where == "with the answer":
                assert isinstance(caught.value, ProtocolError) and "clear text" in str(caught.value)
            assert not client.alive and not client.secure
            with pytest.raises((ConnectionLost, ProtocolError)):
                client.simple_bind(USER, "pw1")
            assert b"pw1" not in wire.sent

    run()


def test_who_removes_starttls_gets_no_password(slapd: Full, folder: Path) -> None:
    """Somebody on the way refuses StartTLS in the name of the server: the login does not go on without."""
    refused = encode(Message(1, ExtendedResponse(2, "", "unsupported extended operation")))

    @in_loop
    def run() -> None:
        with Recorder(slapd.port, lambda to_client, data: refused if to_client else data) as wire:
            with pytest.raises(Error, match="unsupported"):
                Client(wire.url, tls=trusting(folder), starttls=True, timeout=HANG)
            assert b"pw1" not in wire.sent and len(wire.sent) < 60

    run()
