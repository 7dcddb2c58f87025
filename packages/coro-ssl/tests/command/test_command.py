"""``python -m coro.ssl probe`` and ``dev-cert``: against servers of both back ends and `openssl s_server`."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import tls_peers

import coro
from coro.ssl import _probe, new_ctx, testing
from coro.ssl.__main__ import main


def run(*arguments: str, limit: float = tls_peers.LIMIT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "coro.ssl", *arguments], capture_output=True, text=True, timeout=limit, check=False
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("example.org", ("example.org", 443)),
        ("example.org:8443", ("example.org", 8443)),
        ("[::1]:443", ("::1", 443)),
        ("[::1]", ("::1", 443)),
        ("::1", ("::1", 443)),
        ("192.0.2.1:1", ("192.0.2.1", 1)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert _probe.address(text) == expected


@pytest.mark.parametrize("text", ["", ":443", "host:", "host:x", "host:0", "host:65536"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="expected HOST:PORT"):
        _probe.address(text)


def probed(context: Any, **options: Any) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        with tls_peers.echo_server(context) as echo:
            ca = str(tls_peers.folder() / "ca.pem")
            return _probe.probe("127.0.0.1", echo.port, ca=ca, protocols=["h2", "http/1.1"], **options)

    return coro.run(look)


def test_a_missing_file_of_authorities_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "missing.pem")
    assert main(["probe", "127.0.0.1:1", "--ca", missing]) == 2
    assert missing in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
def test_probe(backend: str) -> None:
    found = probed(tls_peers.server(backend, alpn=("http/1.1",)), timeout=tls_peers.LIMIT)
    assert found["trusted"] is True and found["why_not"] is None
    assert found["versions"] == {"TLSv1.3": True, "TLSv1.2": True, "TLSv1.1": False, "TLSv1.0": False, "SSLv3": False}
    assert found["alpn"] == "http/1.1"
    assert found["resumption"] is True
    assert {"X25519", "prime256v1"} <= set(found["groups"])
    assert all("ECDHE" in c and ("GCM" in c or "CHACHA20" in c) for c in found["ciphers"]["TLSv1.2"])
    assert found["warnings"] == ["the certificate ends in 8 days"]
    first = found["certificates"][0]
    assert first["hosts"] == ["localhost", "127.0.0.1"]
    assert "CN" not in first["subject"] and "commonName=localhost" in first["subject"]
    shown = _probe.text(found)
    assert "TLSv1.3 yes, TLSv1.2 yes, TLSv1.1 no" in shown and "trusted      yes" in shown


def test_a_name_that_the_certificate_has_not() -> None:
    found = probed(tls_peers.server("openssl"), name="other.test", timeout=tls_peers.LIMIT)
    assert found["trusted"] is False
    assert "other.test" in found["why_not"]


def test_old_versions_are_seen() -> None:
    """A server that answers as old ones do."""

    def answer(conn: Any, address: Any) -> None:
        hello = conn.recv(1000)
        if hello[9:11] in (b"\3\1", b"\3\0") and hello[5] == 1:
            conn.send(b"\x16\3\1\0\x2a\2\0\0\x26" + hello[9:11] + bytes(36))

    def look() -> dict[str, bool]:
        with coro.Server(answer, ("127.0.0.1", 0)) as server:

            def connect() -> Any:
                return coro.connect(server.addresses[0])

            return {
                v: _probe._speaks_old(connect, "x.test", n, tls_peers.LIMIT) for v, n in _probe.OLD_VERSIONS.items()
            }

    assert coro.run(look) == {"TLSv1.1": False, "TLSv1.0": True, "SSLv3": True}


@pytest.mark.slow
def test_nobody_there() -> None:
    port = coro.run(_closed_port)
    done = run("probe", f"127.0.0.1:{port}")
    assert done.returncode == 1
    assert done.stderr.startswith(f"python -m coro.ssl probe: 127.0.0.1:{port}: ")


def test_mistakes_in_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["127.0.0.1:nothing"], ["127.0.0.1:1", "--alpn", "\xe9"], ["127.0.0.1:1", "--alpn", "x" * 256]):
        assert main(["probe", *arguments]) == 2
        assert "expected" in capsys.readouterr().err


def _closed_port() -> int:
    sock = coro.tcp_sock()
    sock.bind(("127.0.0.1", 0))
    port: int = sock.getsockname()[1]
    sock.close()
    return port


def test_the_program() -> None:
    """As a program, with a server in this process."""
    context = tls_peers.server("openssl")

    def look() -> Any:
        with tls_peers.echo_server(context) as echo:
            ca = str(tls_peers.folder() / "ca.pem")
            return coro.in_thread(run, "probe", f"127.0.0.1:{echo.port}", "--ca", ca, "--json")

    done = coro.run(look)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trusted"] is True


@pytest.mark.parametrize(
    ("protocol", "dialogue"),
    [
        ("smtp", [b"220 hi\r\n", b"EHLO coro.test\r\n", b"250-x\r\n250 STARTTLS\r\n", b"STARTTLS\r\n", b"220 go\r\n"]),
        ("imap", [b"* OK hi\r\n", b"a STARTTLS\r\n", b"* CAPABILITY x\r\na OK go\r\n"]),
        ("pop3", [b"+OK hi\r\n", b"STLS\r\n", b"+OK go\r\n"]),
        ("postgres", [b"", b"\0\0\0\x08\x04\xd2\x16\x2f", b"S"]),
        (
            "ldap",
            [
                b"",
                b"\x30\x1d\2\1\1\x77\x18\x80\x161.3.6.1.4.1.1466.20037",
                b"\x30\x0c\2\1\1\x78\7\x0a\1\0\4\0\4\0",
            ],
        ),
    ],
)
def test_starttls(protocol: str, dialogue: list[bytes]) -> None:
    context = tls_peers.server("openssl")

    def serve(conn: Any, address: Any) -> None:
        conn.send(dialogue[0]) if dialogue[0] else None
        for asked, answer in zip(dialogue[1::2], dialogue[2::2], strict=True):
            assert conn.recv_exact(len(asked)) == asked
            conn.send(answer)
        context.wrap(conn, server_side=True).close()

    def look() -> Any:
        with coro.Server(serve, ("127.0.0.1", 0)) as server:
            sock = coro.connect(server.addresses[0])
            _probe._STARTTLS[protocol](sock)
            with tls_peers.client("openssl").wrap(sock, server_hostname="localhost") as stream:
                return stream.version()

    assert coro.run(look) == "TLSv1.3"


@pytest.mark.parametrize("said", [None, b"", b"220 hi\r\n250-x"])
def test_servers_that_never_come_to_tls(said: bytes | None, capsys: pytest.CaptureFixture[str]) -> None:
    """The program says so, whether they are silent (None) or close the connection in the middle."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def serve() -> None:
        conn, _ = listener.accept()
        with conn:
            if said is not None:
                conn.send(said)
                conn.shutdown(socket.SHUT_WR)
            while conn.recv(100):  # until the client gives up
                pass

    with listener:
        thread = threading.Thread(target=serve)
        thread.start()
        timeout = "0.05" if said is None else str(tls_peers.LIMIT)
        assert main(["probe", f"127.0.0.1:{port}", "--starttls", "smtp", "--timeout", timeout]) == 1
        thread.join()
    what = "did not begin TLS within 0.05 seconds" if said is None else "closed the connection before TLS could begin"
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"python -m coro.ssl probe: 127.0.0.1:{port}: ") and what in line


def test_a_server_without_tls() -> None:
    def look() -> Any:
        def answer(conn: Any, address: Any) -> None:
            conn.recv(1000)
            conn.send(b"HTTP/1.0 400 Bad Request\r\n\r\n")

        with coro.Server(answer, ("127.0.0.1", 0)) as server:
            return _probe.probe(*server.addresses[0][:2], timeout=tls_peers.LIMIT)

    found = coro.run(look)
    assert found["trusted"] is False and not any(found["versions"].values())
    [warning] = found["warnings"]
    assert "no TLS is offered" in warning and warning in _probe.text(found)


def test_a_limit_of_another_is_not_taken_for_silence() -> None:
    def look() -> None:
        with coro.Server(lambda conn, address: conn.recv(1), ("127.0.0.1", 0)) as server:
            host, port = server.addresses[0][:2]
            with coro.timeout(0.01):
                _probe.probe(host, port, starttls="smtp")

    with pytest.raises(coro.TimeoutError):
        coro.run(look)


class TestDevCert:
    def test_a_new_ca_and_its_certificate(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        folder = tmp_path / "certs"
        assert main(["dev-cert", "--folder", str(folder)]) == 0
        out = capsys.readouterr().out
        assert "certificate for localhost, 127.0.0.1, ::1" in out
        assert sorted(p.name for p in folder.iterdir()) == ["ca.key", "ca.pem", "server.key", "server.pem"]
        assert all(os.stat(folder / name).st_mode & 0o77 == 0 for name in ("ca.key", "server.key"))
        server = new_ctx(folder / "server.pem", key=folder / "server.key")
        client = new_ctx(ca=folder / "ca.pem")

        def connect() -> str:
            ours, theirs = coro.socketpair()
            coro.spawn(server.wrap, theirs, True)
            with client.wrap(ours, server_hostname="127.0.0.1") as stream:
                return str(stream.version())

        assert coro.run(connect) == "TLSv1.3"

    def test_the_ca_stays(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["dev-cert", "--folder", str(tmp_path), "a.test"]) == 0
        ca = (tmp_path / "ca.pem").read_bytes()
        assert main(["dev-cert", "--folder", str(tmp_path), "b.test", "--name", "b", "--key", "rsa", "--json"]) == 0
        text = capsys.readouterr().out
        made = json.loads(text[text.index("{") :])
        assert made["hosts"] == ["b.test"] and made["new_ca"] is False
        assert (tmp_path / "ca.pem").read_bytes() == ca
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        assert len(context.get_ca_certs()) == 1

    def test_nothing_is_replaced(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["dev-cert", "--folder", str(tmp_path)]) == 0
        before = (tmp_path / "server.key").read_bytes()
        assert main(["dev-cert", "--folder", str(tmp_path)]) == 1
        assert "is there already" in capsys.readouterr().err
        assert (tmp_path / "server.key").read_bytes() == before
        assert main(["dev-cert", "--folder", str(tmp_path), "--force"]) == 0
        assert (tmp_path / "server.key").read_bytes() != before

    @pytest.mark.parametrize(
        "arguments",
        [["not a host"], ["--days", "0"], ["--days", "1e9"], ["--key", "dsa"], ["--name", "../x"], ["--name", "ca"]],
    )
    def test_mistakes(self, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["dev-cert", "--folder", str(tmp_path), *arguments]) == 1
        assert capsys.readouterr().err.startswith("python -m coro.ssl dev-cert: ")
        assert list(tmp_path.iterdir()) == []

    def test_a_ca_that_ends_before(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A certificate that is valid for longer would fail earlier than it says."""
        assert main(["dev-cert", "--folder", str(tmp_path), "--days", "730"]) == 0
        ca = testing.CA(days=60)
        ca.write(tmp_path)
        (tmp_path / "ca.key").write_bytes(ca.key_pem)
        assert main(["dev-cert", "--folder", str(tmp_path), "--name", "b"]) == 1
        assert "is valid until" in capsys.readouterr().err
        assert main(["dev-cert", "--folder", str(tmp_path), "--name", "b", "--days", "59"]) == 0
        (tmp_path / "ca.pem").unlink()
        assert main(["dev-cert", "--folder", str(tmp_path), "--name", "c"]) == 1
        assert "ca.key is there without" in capsys.readouterr().err


def test_help() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "probe" in done.stdout and "dev-cert" in done.stdout
