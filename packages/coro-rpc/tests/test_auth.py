"""The handshake: secrets, users, UNIX credentials, certificates, codecs, unrestricted pickle."""

from __future__ import annotations

import os
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rpc_support import Raw, methods, served

import coro
from coro import testing
from coro.rpc import (
    AuthenticationError,
    CallTimeout,
    ConnectionLost,
    NotPermitted,
    ProtocolError,
    RpcError,
    _auth,
    fast_rpc,
)
from coro.testing import coro_test

SECRET = b"0123456789abcdef"


@coro_test
def test_a_shared_secret() -> None:
    with served(secret=SECRET) as (server, connect):
        conn = connect(secret=SECRET)
        assert conn.call("add", 1) == 3
        assert server.connections[0].identity == "secret"
        for wrong in (b"another secret of", None):
            with pytest.raises(AuthenticationError, match="secret"):
                connect(secret=wrong)
        assert server.refused >= 1
        assert conn.call("add", 1) == 3


@coro_test
def test_a_secret_for_each_user() -> None:
    registry = methods()
    registry.export(lambda: "done", "admin", allow=["alice"])
    secrets = {"alice": SECRET, "bob": b"bob's own secret, long"}
    with served(registry, secret=secrets) as (server, connect):
        alice, bob = connect(secret=SECRET, user="alice"), connect(secret=secrets["bob"], user="bob")
        assert alice.call("admin") == "done"
        with pytest.raises(NotPermitted, match="bob may not call admin"):
            bob.call("admin")
        assert "admin" in alice.call("rpc.list") and "admin" not in bob.call("rpc.list")
        for user, secret in (("alice", secrets["bob"]), ("carol", SECRET), (None, SECRET)):
            with pytest.raises(AuthenticationError):
                connect(secret=secret, user=user)


@coro_test
def test_a_client_with_a_secret_insists() -> None:
    with served() as (_, connect):
        with pytest.raises(AuthenticationError, match="asks for none"):
            connect(secret=SECRET)


@coro_test
def test_a_server_without_the_secret_is_left() -> None:
    a, b = testing.stream_pair()
    client = fast_rpc.Connection(a, secret=SECRET)

    def start() -> None:
        with pytest.raises(AuthenticationError, match="does not know the secret"):
            client.start()

    starting = coro.spawn(start)
    raw = Raw(b)
    raw.receive()
    raw.send(
        "REPLY",
        1,
        _auth.dump(
            {"rpc": 1, "codec": "pickle5", "name": "", "build": "", "nonce": "00", "auth": "secret", "identity": None}
        ),
    )
    kind, number, _ = raw.receive()
    raw.send("REPLY", number, _auth.dump({"proof": "00" * 32}))
    starting.get()
    b.close()


@pytest.mark.parametrize("secret", ["short", b"short", 5])
def test_a_secret_that_can_be_guessed(secret: Any) -> None:
    with pytest.raises(ValueError, match="at least 16 bytes"):
        _auth.check_secret(secret)


@coro_test
def test_users_of_a_unix_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with fast_rpc.Server(methods(), path, unix_users="same") as server:
        with fast_rpc.connect(path) as conn:
            assert conn.call("add", 1) == 3
            assert server.connections[0].identity == f"uid:{os.geteuid()}"
            assert conn.call("rpc.calls") == []
    with fast_rpc.Server(methods(), path, unix_users={os.geteuid() + 1}):
        with pytest.raises(AuthenticationError, match="may not connect"):
            fast_rpc.connect(path)
    with served(unix_users="same") as (_, connect):
        with pytest.raises(AuthenticationError, match="UNIX socket"):
            connect()


def certificates(folder: Path) -> None:
    """A certificate authority, and a certificate of it for the server and for a client."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder, timeout=60)

    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl(
        "req", "-x509", *new, "-days", "30", "-subj", "/CN=test CA", "-addext", "keyUsage=critical,keyCertSign",
        "-keyout", "ca.key", "-out", "ca.pem",
    )  # fmt: skip
    for name, extra in (("server", "subjectAltName=IP:127.0.0.1"), ("client", "subjectAltName=DNS:client")):
        (folder / "extensions").write_text(f"{extra}\nauthorityKeyIdentifier=keyid\n")
        openssl("req", *new, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30",
            "-extfile", "extensions", "-out", f"{name}.pem",
        )  # fmt: skip


@pytest.mark.slow
def test_mutual_tls(tmp_path: Path) -> None:
    pytest.importorskip("coro.tls", reason="coro-core with coro.tls")
    certificates(tmp_path)

    @coro_test
    def run() -> None:
        server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "ca.pem"))
        server_side.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
        server_side.verify_mode = ssl.CERT_REQUIRED
        known = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        known.load_cert_chain(tmp_path / "client.pem", tmp_path / "client.key")
        stranger = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        registry = methods()
        registry.export(lambda: "done", "for_client", allow=["client"])
        with served(registry, tls=server_side) as (server, connect):
            conn = connect(tls=known)
            assert conn.call("for_client") == "done" and conn.identity == "server"
            big = bytes(3 << 20)
            assert conn.call("echo", big) == big
            with pytest.raises((OSError, RpcError)):
                connect(tls=stranger)
            with pytest.raises((OSError, RpcError)):
                connect(tls=ssl.create_default_context())
            with pytest.raises((OSError, RpcError)):
                connect()
            assert conn.call("add", 1) == 3

    run()


@coro_test
def test_codecs_are_agreed_on() -> None:
    with served(codecs=[fast_rpc.JSON()]) as (_, connect):
        assert connect().call("echo", [1]) == [1]
        with pytest.raises((ProtocolError, ConnectionLost), match="codecs"):
            connect(codecs=[fast_rpc.Pickle()])
        with pytest.raises(ValueError, match="at least one codec"):
            connect(codecs=[])


@coro_test
def test_unrestricted_pickle_needs_proof() -> None:
    codec = fast_rpc.Pickle(unrestricted=True)
    with served(codecs=[codec]) as (_, connect):
        with pytest.raises(AuthenticationError, match="proved"):
            connect(codecs=[codec])
    with served(codecs=[codec], secret=SECRET) as (_, connect):
        conn = connect(codecs=[codec], secret=SECRET)
        assert conn.call("echo", complex(1, 2)) == complex(1, 2)


@coro_test
def test_who_says_nothing_is_cut_off() -> None:
    with served(handshake_timeout=0.05) as (server, _):
        conn = coro.connect(*server.addresses[0])
        raw = Raw(conn)
        kind, _, payload = raw.receive()
        assert kind == "GOODBYE" and b"end of the handshake" in payload
        with pytest.raises(EOFError):
            raw.receive()
        conn.close()
        assert server.refused == 1


@coro_test
def test_a_client_does_not_wait_for_ever() -> None:
    listener = coro.tcp_sock()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    with pytest.raises(CallTimeout):
        fast_rpc.connect(listener.getsockname(), timeout=0.05)
    listener.close()


def test_proofs() -> None:
    """What a client in another language has to compute."""
    assert _auth.proof(SECRET, "client", b"hello\nanswer") == (
        "2d2beba954e6af4efa64e89fbd899011c1de3571f16b4013f69e0abf12de69ce"
    )
    assert not _auth.same("00", "0") and _auth.same("ab", "ab")
