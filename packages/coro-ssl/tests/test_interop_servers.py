"""Servers of both back ends, with programs as clients: openssl, gnutls, curl, stunnel, and Python's blocking ssl."""

from __future__ import annotations

import socket
import ssl
import subprocess

import pytest
import tls_peers
from real_programs import find_program, free_port
from ssl_support import in_loop

import coro
from coro.ssl import HandshakeError, TruncatedError

pytestmark = pytest.mark.slow

VERSIONS = {"TLSv1.2": "1_2", "TLSv1.3": "1_3"}


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@pytest.mark.parametrize("version", VERSIONS)
@in_loop
def test_openssl_s_client(backend, version):
    context = tls_peers.server(backend, alpn=("h2", "http/1.1"), more=(("other.example",),))
    with tls_peers.echo_server(context) as echo:
        names = ("-servername", "other.example", "-verify_hostname", "other.example", "-verify_return_error")
        more = ("-alpn", "http/1.1", f"-tls{VERSIONS[version]}", "-quiet", "-no_ign_eof")
        command = tls_peers.s_client(echo.port, *names, *more)
        found = coro.in_thread(tls_peers.said, command, b"Hello there\n")
        assert found.endswith(b"Hello there\n"), (found, echo.errors)
        stream = echo.stream_of(b"Hello there\n")
        assert stream.version() == version
        assert stream.selected_alpn_protocol() == "http/1.1"


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@pytest.mark.parametrize("version", VERSIONS)
@in_loop
def test_openssl_s_client_resumes(backend, version, tmp_path):
    """It offers a protocol that the server has not, and names an address, which is not allowed: both is overlooked."""
    context = tls_peers.server(backend)
    kept = str(tmp_path / "session")
    with tls_peers.echo_server(context) as echo:
        for option in ("-sess_out", "-sess_in"):
            odd = ("-alpn", "h2", "-servername", "127.0.0.1")
            command = tls_peers.s_client(echo.port, option, kept, f"-tls{VERSIONS[version]}", *odd)
            found = coro.in_thread(tls_peers.said, command, b"Hello there\n")
            assert f"{'Reused' if option == '-sess_in' else 'New'}, {version}".encode() in found, (found, echo.errors)
    assert context.statistics().resumed == 1


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@pytest.mark.parametrize("version", VERSIONS)
@in_loop
def test_openssl_s_client_with_and_without_a_certificate(backend, version):
    folder = tls_peers.folder()
    with tls_peers.echo_server(tls_peers.server(backend, client_auth="required")) as echo:
        command = tls_peers.s_client(echo.port, f"-tls{VERSIONS[version]}")
        shown = ["-cert", str(folder / "client.pem"), "-key", str(folder / "client.key"), "-cert_chain"]
        found = coro.in_thread(tls_peers.said, [*command, *shown, str(folder / "client.pem")], b"Hello there\n")
        assert found.endswith(b"Hello there\n"), (found, echo.errors)
        assert echo.stream_of(b"Hello there\n").getpeercert()["subjectAltName"] == (("DNS", "client"),)
        assert echo.ended.pop() is None
        found = coro.in_thread(tls_peers.said, command, b"Hello there\n")
        assert b"alert certificate required" in found or b"alert handshake failure" in found, found
        assert type(echo.ended.pop()) is HandshakeError


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@in_loop
def test_openssl_s_client_changes_its_keys(backend):
    """A K on a line of its own makes it send a KeyUpdate that asks for one (RFC 8446 section 4.6.3)."""
    with tls_peers.echo_server(tls_peers.server(backend)) as echo:
        command = tls_peers.s_client(echo.port)

        def talk():
            with subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            ) as child:
                seen = b""
                for line, answer in ((b"K\n", b"KEYUPDATE"), (b"Hello\n", b"Hello\n"), (b"k\n", b"KEYUPDATE")) * 3:
                    child.stdin.write(line)
                    child.stdin.flush()
                    while answer not in seen and (more := child.stdout.readline()):
                        seen += more
                    assert answer in seen, seen
                    seen = seen.partition(answer)[2]
                child.stdin.close()

        coro.in_thread(talk)
        assert echo.ended.pop() is None


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@in_loop
def test_renegotiation_is_refused(backend):
    """Upstream attack: CVE-2011-1473. An R on a line of its own makes s_client ask for it."""
    with tls_peers.echo_server(tls_peers.server(backend, highest="TLSv1.2")) as echo:
        done = tls_peers.run_program(*tls_peers.s_client(echo.port, "-tls1_2"), data=b"R\n")
        assert b"RENEGOTIATING" in done.stdout
        assert b"no renegotiation" in done.stdout or b"handshake failure" in done.stdout, done.stdout


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@pytest.mark.parametrize("version", ["1.2", "1.3"])
@in_loop
def test_gnutls_cli(backend, version):
    gnutls = tls_peers.gnutls_cli()
    with tls_peers.echo_server(tls_peers.server(backend, alpn=("x",))) as echo:
        done = tls_peers.run_program(
            gnutls, "--x509cafile", tls_peers.files()[0], "--port", str(echo.port), "--verify-hostname", "localhost",
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
            gnutls, "--x509cafile", tls_peers.files()[0], "--port", str(echo.port), "--sni-hostname", "other.example",
            "--verify-hostname", "other.example", "--x509certfile", str(folder / "client.pem"), "--x509keyfile",
            str(folder / "client.key"), "--priority", f"NORMAL:-VERS-ALL:+VERS-TLS{version}", "--resume",
            "--waitresumption", "127.0.0.1", data=b"Hello there\n",
        )  # fmt: skip
        assert b"This is a resumed session" in done.stdout, done.stdout
        assert b"Hello there" in done.stdout, done.stdout
        assert echo.stream_of(b"Hello there\n").getpeercert(True) is not None
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
            gnutls, "--x509cafile", tls_peers.files()[0], "--port", str(running.addresses[0][1]), "--verify-hostname",
            "localhost", "--priority", f"NORMAL:-VERS-ALL:+VERS-TLS{version}", "127.0.0.1", data=b"x" * 5000,
        )  # fmt: skip
    assert b"5000 bytes have come, and then the end" in done.stdout, done.stdout


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@pytest.mark.parametrize("version", VERSIONS)
@in_loop
def test_a_killed_openssl_s_client_is_a_truncated_stream(backend, version):
    def talk(port):
        command = tls_peers.s_client(port, f"-tls{VERSIONS[version]}", "-quiet")
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
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
            curl, "-sS", "--cacert", tls_peers.files()[0], "--connect-to", "::127.0.0.1:", url, "-o", "/dev/null",
            "-w", "%{http_code} %{size_download} %{ssl_verify_result}",
        )  # fmt: skip
        assert done.stdout == b"200 200000 0", done.stdout
        done = tls_peers.run_program(curl, "-sS", "--connect-to", "::127.0.0.1:", url)
        assert done.returncode == 60, done.stdout  # not trusted


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@pytest.mark.parametrize("version", VERSIONS)
@in_loop
def test_curl_with_a_client_certificate(backend, version):
    """Two requests, each on a connection of its own: the second resumes the session of the first. In TLS 1.2 curl takes
    no tickets, and the tlslite back end gives nothing else."""
    curl = find_program("curl", "curl")
    folder = tls_peers.folder()
    context = tls_peers.server(backend, client_auth="required", highest=version)

    def handle(conn, address):
        with context.accept(conn) as stream:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += stream.recv(1000)
            [(_, name)] = stream.getpeercert()["subjectAltName"]
            stream.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n<%s>" % name.encode())

    with coro.Server(handle, ("127.0.0.1", 0)) as running:
        url = f"https://localhost:{running.addresses[0][1]}/"
        command = [curl, "-sS", "--cacert", tls_peers.files()[0], "--connect-to", "::127.0.0.1:", url]
        shown = ["--cert", str(folder / "client.pem"), "--key", str(folder / "client.key")]
        done = tls_peers.run_program(*command, url, *shown)
        assert done.stdout == b"<client><client>"
        assert context.statistics().resumed == (0 if (backend, version) == ("tlslite", "TLSv1.2") else 1)
        done = tls_peers.run_program(*command)
        assert done.returncode in (35, 56), done.stdout  # in TLS 1.3 it learns of it when it reads
        assert b"alert" in done.stdout


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@in_loop
def test_stunnel_as_a_client_with_starttls(backend, tmp_path):
    """stunnel speaks SMTP's STARTTLS to our server, for a program that knows nothing of TLS."""
    stunnel = find_program("stunnel4", "stunnel4")
    context = tls_peers.server(backend)
    port = free_port()
    commands = []

    def smtp(conn, address):
        lines = coro.read_stream.sock_stream(conn)
        conn.send(b"220 localhost ESMTP\r\n")
        while True:
            line = lines.read_line()
            commands.append(line[:4])
            if line[:4] == b"EHLO":
                conn.send(b"250-localhost\r\n250 STARTTLS\r\n")
            else:
                assert line == b"STARTTLS\r\n" and not lines.flush()
                conn.send(b"220 go ahead\r\n")
                break
        with context.accept(conn) as stream:
            while data := stream.recv(1000):
                stream.sendall(b"250 " + data)
            stream.shutdown(coro.SHUT.WR)

    with coro.Server(smtp, ("127.0.0.1", 0)) as server:
        (tmp_path / "stunnel.conf").write_text(
            f"foreground = yes\npid =\n[smtp]\nclient = yes\naccept = 127.0.0.1:{port}\nprotocol = smtp\n"
            f"connect = 127.0.0.1:{server.addresses[0][1]}\nCAfile = {tls_peers.files()[0]}\nverifyChain = yes\n"
            "checkHost = localhost\n"
        )
        with tls_peers.program(stunnel, str(tmp_path / "stunnel.conf"), port=port, folder=tmp_path):
            with coro.connect(("127.0.0.1", port)) as sock:
                assert sock.recv(1000).startswith(b"220 ")
                sock.send(b"HELLO\r\n")
                answer = b""
                while not answer.endswith(b"250 HELLO\r\n"):
                    answer += sock.recv(1000)
                sock.shutdown(coro.SHUT.WR)
                assert sock.recv(1000) == b""
            assert set(commands) == {b"EHLO", b"STAR"}


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
@in_loop
def test_blocking_ssl_as_client(backend):
    context = tls_peers.server(backend, client_auth="optional")
    ca, _, _ = tls_peers.files()
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
