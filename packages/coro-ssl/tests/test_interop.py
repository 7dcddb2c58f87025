"""Both back ends against programs: openssl, gnutls, curl, stunnel, and Python's own blocking ssl, in both roles."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest
import tls_peers
from real_programs import find_program
from ssl_support import in_loop, outcome

import coro
from coro.ssl import HandshakeError, ProtocolError, TruncatedError

pytestmark = pytest.mark.slow

VERSIONS = {"TLSv1.2": "1_2", "TLSv1.3": "1_3"}


def free_port() -> int:
    """A port below the range that the kernel gives away by itself."""
    for port in range(24000, 32000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) and not outcome(probe.bind, ("127.0.0.1", port)):
                return port
    raise AssertionError("no free port")


class program:
    """A server program that runs during a block and listens at ``port``."""

    def __init__(self, *command: str, port: int, folder: Path | None = None) -> None:
        self.command, self.port, self.folder = command, port, folder

    def __enter__(self) -> program:
        self.child = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=self.folder
        )
        while True:
            assert self.child.poll() is None, self.child.communicate()[0]
            try:
                coro.connect(("127.0.0.1", self.port)).close()
                return self
            except ConnectionRefusedError:
                coro.sleep(0.01)

    def __exit__(self, *exc: object) -> None:
        self.child.kill()
        self.child.communicate()


def said(command: list[str], line: bytes) -> bytes:
    """What a program says until ``line``, which it is sent, comes back; then its input ends, and so does it."""
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with child:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(line)
        child.stdin.flush()
        found = b""
        while line not in found:
            more = child.stdout.readline()
            if not more:
                break
            found += more
        child.stdin.close()
    return found


def files() -> tuple[str, str, str]:
    folder = tls_peers.folder()
    return str(folder / "ca.pem"), str(folder / "server.pem"), str(folder / "server.key")


# -- our servers


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@pytest.mark.parametrize("version", VERSIONS)
@in_loop
def test_openssl_s_client(backend, version):
    openssl = tls_peers.openssl()
    context = tls_peers.server(backend, alpn=("h2", "http/1.1"), more=(("other.example",),))
    with tls_peers.echo_server(context) as echo:
        command = [
            openssl, "s_client", "-connect", f"127.0.0.1:{echo.port}", "-CAfile", files()[0], "-verify_return_error",
            "-servername", "other.example", "-verify_hostname", "other.example", "-alpn", "http/1.1",
            f"-tls{VERSIONS[version]}", "-quiet", "-no_ign_eof",
        ]  # fmt: skip
        found = coro.in_thread(said, command, b"Hello there\n")
        assert found.endswith(b"Hello there\n"), found
        assert echo.streams[0].version() == version
        assert echo.streams[0].selected_alpn_protocol() == "http/1.1"


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@in_loop
def test_openssl_s_client_resumes(backend, tmp_path):
    openssl = tls_peers.openssl()
    context = tls_peers.server(backend)
    kept = str(tmp_path / "session")
    with tls_peers.echo_server(context) as echo:
        for option in ("-sess_out", "-sess_in"):
            done = tls_peers.run_program(
                openssl, "s_client", "-connect", f"127.0.0.1:{echo.port}", "-CAfile", files()[0], option, kept,
                "-tls1_2", data=b"Q\n",
            )  # fmt: skip
            assert (b"Reused, TLSv1.2" in done.stdout) is (option == "-sess_in"), done.stdout
    assert context.statistics().resumed == 1


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@in_loop
def test_renegotiation_is_refused(backend):
    """Upstream attack: CVE-2011-1473. An R on a line of its own makes s_client ask for it."""
    openssl = tls_peers.openssl()
    with tls_peers.echo_server(tls_peers.server(backend, highest="TLSv1.2")) as echo:
        done = tls_peers.run_program(
            openssl, "s_client", "-connect", f"127.0.0.1:{echo.port}", "-CAfile", files()[0], "-tls1_2", data=b"R\n"
        )
        assert b"RENEGOTIATING" in done.stdout
        assert b"no renegotiation" in done.stdout or b"handshake failure" in done.stdout, done.stdout


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@pytest.mark.parametrize("version", ["1.2", "1.3"])
@in_loop
def test_gnutls_cli(backend, version):
    gnutls = tls_peers.gnutls_cli()
    with tls_peers.echo_server(tls_peers.server(backend, alpn=("x",))) as echo:
        done = tls_peers.run_program(
            gnutls, "--x509cafile", files()[0], "--port", str(echo.port), "--verify-hostname", "localhost",
            "--priority", f"NORMAL:-VERS-ALL:+VERS-TLS{version}", "--alpn", "x", "127.0.0.1", data=b"Hello there\n",
        )  # fmt: skip
        assert b"Hello there" in done.stdout and b"Handshake was completed" in done.stdout, done.stdout
        assert echo.ended.pop() is None


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@pytest.mark.parametrize("version", ["1.2", "1.3"])
@in_loop
def test_gnutls_cli_with_a_certificate_a_name_and_a_second_connection(backend, version):
    gnutls = tls_peers.gnutls_cli()
    folder = tls_peers.folder()
    context = tls_peers.server(backend, more=(("other.example",),), client_auth="required")
    with tls_peers.echo_server(context) as echo:
        done = tls_peers.run_program(
            gnutls, "--x509cafile", files()[0], "--port", str(echo.port), "--sni-hostname", "other.example",
            "--verify-hostname", "other.example", "--x509certfile", str(folder / "client.pem"), "--x509keyfile",
            str(folder / "client.key"), "--priority", f"NORMAL:-VERS-ALL:+VERS-TLS{version}", "--resume",
            "--waitresumption", "127.0.0.1", data=b"Hello there\n",
        )  # fmt: skip
        assert b"This is a resumed session" in done.stdout, done.stdout
        assert b"Hello there" in done.stdout, done.stdout
        assert echo.streams[0].getpeercert(True) is not None
    assert context.statistics().resumed == 1


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@pytest.mark.parametrize("version", ["1.2", "1.3"])
@in_loop
def test_gnutls_cli_receives_what_is_sent_behind_its_end(backend, version):
    """Half-close: it says close_notify at the end of its input, and goes on reading."""
    gnutls = tls_peers.gnutls_cli()
    context = tls_peers.server(backend)

    def handle(conn, address):
        with context.accept(conn) as stream:
            received = b""
            while data := stream.recv(1000):
                received += data
            stream.sendall(b"%d bytes have come, and then the end" % len(received))

    with coro.Server(handle, ("127.0.0.1", 0)) as running:
        done = tls_peers.run_program(
            gnutls, "--x509cafile", files()[0], "--port", str(running.addresses[0][1]), "--verify-hostname",
            "localhost", "--priority", f"NORMAL:-VERS-ALL:+VERS-TLS{version}", "127.0.0.1", data=b"x" * 5000,
        )  # fmt: skip
    assert b"5000 bytes have come, and then the end" in done.stdout, done.stdout


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@pytest.mark.parametrize("version", VERSIONS)
@in_loop
def test_a_killed_openssl_s_client_is_a_truncated_stream(backend, version):
    command = [
        tls_peers.openssl(), "s_client", "-CAfile", files()[0], f"-tls{VERSIONS[version]}", "-quiet", "-connect",
    ]  # fmt: skip

    def talk(port):
        with subprocess.Popen(
            [*command, f"127.0.0.1:{port}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as child:
            child.stdin.write(b"Hello there\n")
            child.stdin.flush()
            assert child.stdout.readline() == b"Hello there\n"
            child.kill()

    with tls_peers.echo_server(tls_peers.server(backend)) as echo:
        coro.in_thread(talk, echo.port)
        assert type(echo.ended.pop()) is TruncatedError


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@in_loop
def test_curl(backend):
    curl = find_program("curl", "curl")
    context = tls_peers.server(backend, alpn=("http/1.1",))

    def handle(conn, address):
        with context.accept(conn) as stream:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += stream.recv(1000)
            stream.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + bytes(200_000))

    with coro.Server(handle, ("127.0.0.1", 0)) as running:
        url = f"https://localhost:{running.addresses[0][1]}/"
        done = tls_peers.run_program(
            curl, "-sS", "--cacert", files()[0], "--connect-to", "::127.0.0.1:", url, "-o", "/dev/null",
            "-w", "%{http_code} %{size_download} %{ssl_verify_result}",
        )  # fmt: skip
        assert done.stdout == b"200 200000 0", done.stdout
        done = tls_peers.run_program(curl, "-sS", "--connect-to", "::127.0.0.1:", url)
        assert done.returncode == 60, done.stdout  # not trusted


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@in_loop
def test_blocking_ssl_as_client(backend):
    context = tls_peers.server(backend, client_auth="optional")
    ca, _, _ = files()
    folder = tls_peers.folder()

    def talk(port):
        trusted = ssl.create_default_context(cafile=ca)
        trusted.load_cert_chain(folder / "client.pem", folder / "client.key")
        session = None
        reused = []
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", port)) as plain:
                with trusted.wrap_socket(plain, server_hostname="localhost", session=session) as conn:
                    conn.sendall(b"x" * 100_000)
                    left = 100_000
                    while left:
                        left -= len(conn.recv(left))
                    reused.append(conn.session_reused)
                    session = conn.session
                    conn.unwrap()
        with socket.create_connection(("127.0.0.1", port)) as plain:
            with trusted.wrap_socket(plain, server_hostname="localhost") as conn:
                conn.sendall(b"cut")
                conn.recv(3)
        return reused

    with tls_peers.echo_server(context) as echo:
        assert coro.in_thread(talk, echo.port) == [False, True]
        assert [type(echo.ended.pop()) for _ in range(3)] == [type(None), type(None), TruncatedError]
        assert echo.streams[0].getpeercert(True) is not None


# -- our clients


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@pytest.mark.parametrize("version", VERSIONS)
@in_loop
def test_openssl_s_server(backend, version):
    openssl = tls_peers.openssl()
    ca, cert, key = files()
    port = free_port()
    with program(
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
def test_gnutls_serv(backend):
    gnutls = find_program("gnutls-serv", "gnutls-bin")
    _, cert, key = files()
    port = free_port()
    command = (gnutls, "--echo", "--port", str(port), "--x509certfile", cert, "--x509keyfile", key, "-q")
    with program(*command, port=port):
        context = tls_peers.client(backend)
        with context.wrap(coro.connect(("127.0.0.1", port)), server_hostname="localhost") as conn:
            conn.send(b"Hello there\n")
            assert conn.recv_exact(12) == b"Hello there\n"


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@pytest.mark.parametrize("version", ["1.2", "1.3"])
@in_loop
def test_gnutls_serv_that_wants_a_certificate(backend, version):
    gnutls = find_program("gnutls-serv", "gnutls-bin")
    ca, cert, key = files()
    port = free_port()
    with program(
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
    _, cert, key = files()
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
        with program(stunnel, str(tmp_path / "stunnel.conf"), port=port, folder=tmp_path):
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
    _, cert, key = files()
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
