"""Clients of both back ends, with programs as servers: openssl, gnutls, stunnel, and Python's blocking ssl; and the
back ends with each other."""

from __future__ import annotations

import socket
import ssl
import threading

import pytest
import tls_peers
from real_programs import find_program, free_port
from ssl_support import in_loop, outcome

import coro
from coro.ssl import HandshakeError, ProtocolError, TruncatedError

pytestmark = pytest.mark.slow

VERSIONS = {"TLSv1.2": "1_2", "TLSv1.3": "1_3"}


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@pytest.mark.parametrize("version", VERSIONS)
@in_loop
def test_openssl_s_server(backend, version):
    openssl = tls_peers.openssl()
    ca, cert, key = tls_peers.files()
    port = free_port()
    with tls_peers.program(
        openssl, "s_server", "-accept", f"127.0.0.1:{port}", "-cert", cert, "-key", key, "-cert_chain", cert,
        f"-tls{VERSIONS[version]}", "-rev", "-Verify", "2", "-CAfile", ca, "-alpn", "y,x", port=port,
    ):  # fmt: skip
        context = tls_peers.client(backend, alpn=("x",), with_certificate=True)
        for turn in range(2):
            with context.wrap(coro.connect(("127.0.0.1", port)), server_hostname="localhost") as conn:
                assert conn.version() == version and conn.selected_alpn_protocol() == "x"
                conn.send(b"abc\n")
                assert conn.recv_exact(4) == b"cba\n"
                assert conn.session_reused is bool(turn)
        plain = tls_peers.client(backend)

        def without():
            with plain.wrap(coro.connect(("127.0.0.1", port)), server_hostname="localhost") as conn:
                conn.recv(1)

        error = outcome(without)
        assert isinstance(error, (HandshakeError, ProtocolError)) and error.alert_name in (
            "certificate_required",
            "handshake_failure",
        )


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@in_loop
def test_renegotiation_is_refused_to_openssl_s_server(backend):
    """An r on a line of its own makes it ask for a new handshake; it has to do without, and gives up."""
    _, cert, key = tls_peers.files()
    port = free_port()
    with tls_peers.program(
        tls_peers.openssl(), "s_server", "-accept", f"127.0.0.1:{port}", "-cert", cert, "-key", key, "-cert_chain",
        cert, "-tls1_2", port=port,
    ) as server:  # fmt: skip
        context = tls_peers.client(backend)
        with context.wrap(coro.connect(("127.0.0.1", port)), server_hostname="localhost") as conn:
            server.type(b"Hello\n")
            assert conn.recv_exact(6) == b"Hello\n"
            server.type(b"r\n")
            error = outcome(conn.recv, 1)
            assert isinstance(error, (ProtocolError, TruncatedError)), error
        assert b"no renegotiation" in server.output(b"no renegotiation")


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@in_loop
def test_openssl_s_server_changes_its_keys(backend):
    _, cert, key = tls_peers.files()
    port = free_port()
    with tls_peers.program(
        tls_peers.openssl(), "s_server", "-accept", f"127.0.0.1:{port}", "-cert", cert, "-key", key, "-cert_chain",
        cert, "-tls1_3", port=port,
    ) as server:  # fmt: skip
        context = tls_peers.client(backend)
        with context.wrap(coro.connect(("127.0.0.1", port)), server_hostname="localhost") as conn:
            for number in range(6):
                server.type(b"kK"[number % 2 :][:1] + b"\n")
                line = b"number %d\n" % number
                conn.send(line)
                server.output(line)  # so it has seen the command, too
                server.type(b"Hello\n")
                assert conn.recv_exact(6) == b"Hello\n"


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@in_loop
def test_gnutls_serv(backend):
    gnutls = find_program("gnutls-serv", "gnutls-bin")
    _, cert, key = tls_peers.files()
    port = free_port()
    command = (gnutls, "--echo", "--port", str(port), "--x509certfile", cert, "--x509keyfile", key, "-q")
    with tls_peers.program(*command, port=port):
        context = tls_peers.client(backend)
        with context.wrap(coro.connect(("127.0.0.1", port)), server_hostname="localhost") as conn:
            conn.send(b"Hello there\n")
            assert conn.recv_exact(12) == b"Hello there\n"


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@pytest.mark.parametrize("version", ["1.2", "1.3"])
@in_loop
def test_gnutls_serv_that_wants_a_certificate(backend, version):
    gnutls = find_program("gnutls-serv", "gnutls-bin")
    ca, cert, key = tls_peers.files()
    port = free_port()
    with tls_peers.program(
        gnutls, "--echo", "--port", str(port), "--x509certfile", cert, "--x509keyfile", key, "--x509cafile", ca,
        "--require-client-cert", "--verify-client-cert", "--alpn", "x", "--priority",
        f"NORMAL:-VERS-ALL:+VERS-TLS{version}", "-q", port=port,
    ):  # fmt: skip
        context = tls_peers.client(backend, alpn=("y", "x"), with_certificate=True)
        for turn in range(2):
            with context.wrap(coro.connect(("127.0.0.1", port)), server_hostname="localhost") as conn:
                assert conn.version() == f"TLSv{version}" and conn.selected_alpn_protocol() == "x"
                conn.send(b"Hello there\n")
                assert conn.recv_exact(12) == b"Hello there\n"
                assert conn.session_reused is bool(turn)
        plain = tls_peers.client(backend)

        def without():
            with plain.wrap(coro.connect(("127.0.0.1", port)), server_hostname="localhost") as conn:
                conn.recv(1)

        assert isinstance(outcome(without), (HandshakeError, ProtocolError))


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@in_loop
def test_stunnel_as_a_front_with_starttls(backend, tmp_path):
    """stunnel speaks SMTP's STARTTLS on its TLS side; the plain server behind it is ours."""
    stunnel = find_program("stunnel4", "stunnel4")
    _, cert, key = tls_peers.files()
    port = free_port()

    def plain_smtp(conn, address):
        conn.send(b"220 localhost ESMTP\r\n")
        while data := conn.recv(1000):
            conn.send(b"250 " + data)

    with coro.Server(plain_smtp, ("127.0.0.1", 0)) as behind:
        (tmp_path / "stunnel.conf").write_text(
            f"foreground = yes\npid =\n[smtp]\naccept = 127.0.0.1:{port}\nprotocol = smtp\n"
            f"connect = 127.0.0.1:{behind.addresses[0][1]}\ncert = {cert}\nkey = {key}\n"
        )
        with tls_peers.program(stunnel, str(tmp_path / "stunnel.conf"), port=port, folder=tmp_path):
            sock = coro.connect(("127.0.0.1", port))
            assert sock.recv(1000).startswith(b"220 ")
            sock.send(b"EHLO me\r\n")
            answer = b""
            while b"STARTTLS" not in answer or not answer.endswith(b"\r\n"):
                answer += sock.recv(1000)
            sock.send(b"STARTTLS\r\n")
            assert sock.recv(1000).startswith(b"220 ")
            context = tls_peers.client(backend)
            with context.wrap(sock, server_hostname="localhost") as conn:
                conn.send(b"HELLO\r\n")
                answer = b""
                while b"250 HELLO\r\n" not in answer:
                    answer += conn.recv(1000)


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@in_loop
def test_blocking_ssl_as_server(backend):
    _, cert, key = tls_peers.files()
    listener = socket.create_server(("127.0.0.1", 0))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    ends = []

    def serve():
        for number in range(3):
            plain, _ = listener.accept()
            with plain, context.wrap_socket(plain, server_side=True, suppress_ragged_eofs=False) as conn:
                while True:
                    try:
                        data = conn.recv(65536)
                    except ssl.SSLEOFError:
                        ends.append("cut")
                        break
                    if not data:
                        ends.append("clean")
                        break
                    conn.sendall(data)
                if number == 1:
                    conn.unwrap()

    thread = threading.Thread(target=serve)
    thread.start()
    client = tls_peers.client(backend)
    address = listener.getsockname()
    try:
        with client.wrap(coro.connect(address), server_hostname="localhost") as conn:
            conn.send(b"x" * 100_000)
            assert conn.recv_exact(100_000) == b"x" * 100_000
            conn.shutdown(coro.SHUT.WR)
            with pytest.raises(TruncatedError):  # it closes without a farewell
                conn.recv(1)
        with client.wrap(coro.connect(address), server_hostname="localhost") as conn:
            conn.send(b"x")
            assert conn.recv(1) == b"x"
            conn.shutdown(coro.SHUT.WR)
            assert conn.recv(1) == b""
        conn = client.wrap(coro.connect(address), server_hostname="localhost")
        conn.send(b"x")
        conn.recv(1)
        conn.sock.close()
    finally:
        coro.in_thread(thread.join, 60)
        listener.close()
    assert ends == ["clean", "clean", "cut"]


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@pytest.mark.parametrize("version", VERSIONS)
@in_loop
def test_blocking_ssl_answers_behind_our_end(backend, version):
    """Half-close: the server reads to our close_notify, and then says how much that was."""
    _, cert, key = tls_peers.files()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)

    def serve():
        plain, _ = listener.accept()
        with plain, context.wrap_socket(plain, server_side=True, suppress_ragged_eofs=False) as conn:
            total = 0
            while data := conn.recv(65536):
                total += len(data)
            conn.sendall(b"%d bytes" % total * 1000)
            conn.unwrap()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            client = tls_peers.client(backend, highest=version)
            with client.wrap(coro.connect(listener.getsockname()), server_hostname="localhost") as conn:
                conn.send(b"x" * 50_000)
                conn.shutdown(coro.SHUT.WR)
                assert conn.recv_exact(11_000) == b"50000 bytes" * 1000
                assert conn.recv(1) == b""
        finally:
            coro.in_thread(thread.join, 60)


@pytest.mark.parametrize("ours", tls_peers.BACKENDS)
@pytest.mark.parametrize("theirs", tls_peers.BACKENDS)
@in_loop
def test_the_back_ends_with_each_other(ours, theirs):
    server = tls_peers.server(theirs, alpn=("x",), client_auth="required")
    client = tls_peers.client(ours, alpn=("x",), with_certificate=True)
    with tls_peers.echo_server(server) as echo:
        for turn in range(2):
            with client.wrap(coro.connect(("127.0.0.1", echo.port)), server_hostname="localhost") as conn:
                conn.send(b"x" * 30_000)
                assert conn.recv_exact(30_000) == b"x" * 30_000
                assert conn.session_reused is bool(turn)
                kind = "tls-server-end-point"
                assert conn.get_channel_binding(kind) == echo.streams[turn].get_channel_binding(kind)
                conn.shutdown(coro.SHUT.WR)
                assert conn.recv(1) == b""
            assert echo.ended.pop() is None
    assert echo.errors == []
