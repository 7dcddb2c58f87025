"""`coro.ssl.sock`: the classic socket."""

from __future__ import annotations

import pytest
from ssl_support import in_loop

import coro
from coro.ssl import CertificateError, TLSStream, new_ctx, sock


@pytest.fixture
def contexts(authority):
    issued = authority.issue("localhost", "127.0.0.1")
    return new_ctx(issued.pem), new_ctx(ca=authority.pem)


def listening(context):
    listener = sock(context)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener


@in_loop
def test_a_connection_in_the_classic_way(contexts):
    server, client = contexts
    with listening(server) as listener:

        def serve():
            conn, address = listener.accept()
            assert conn.ssl is None and address[0] == "127.0.0.1"
            with conn:
                while data := conn.recv(100):
                    conn.send(data.upper())

        thread = coro.spawn(serve)
        with sock(client) as conn:
            conn.connect(listener.getsockname())
            assert isinstance(conn.ssl, TLSStream) and conn.ctx is client
            assert conn.getProtocol() == "TLSv1.3" and conn.getCipher().startswith("TLS_")
            assert conn.writev([b"one", b"two"]) == 6
            assert conn.recv_exact(6) == b"ONETWO"
            assert conn.write(b"x") == conn.sendall(b"y") == 1
            assert conn.read(1) == b"X"
            buffer = bytearray(4)
            assert conn.recv_into(buffer) == 1
            assert conn.getpeercert()["subjectAltName"] == (("DNS", "localhost"), ("IP Address", "127.0.0.1"))
            assert conn.selected_alpn_protocol() is None
            assert "TLSStream" in repr(conn)
            conn.shutdown()
            assert conn.recv(1) == b""
            with pytest.raises(EOFError):
                conn.recv_exact(1)
            with pytest.raises(NotImplementedError):
                conn.readv([1])
            for call in (lambda: conn.recvfrom(1), lambda: conn.sendto(b"", ())):
                with pytest.raises(SystemError, match="stream"):
                    call()
            with pytest.raises(AttributeError):
                conn._nonsense  # noqa: B018
        thread.get()
        assert conn.closed
        conn.shutdown()


@in_loop
def test_accepting_waits_for_no_handshake(contexts):
    server, client = contexts
    with listening(server) as listener:
        silent = [coro.connect(listener.getsockname()) for _ in range(3)]
        accepted = [listener.accept()[0] for _ in silent]
        thread = coro.spawn(lambda: listener.accept()[0].recv(5))
        with sock(client, server_hostname="localhost") as conn:
            conn.connect(listener.getsockname())
            conn.send(b"hello")
            assert thread.get() == b"hello"
        for one in silent + accepted:
            one.close()


@in_loop
def test_a_live_socket_is_upgraded(contexts):
    server, client = contexts
    here, there = coro.socketpair()
    here.send(b"STARTTLS\r\n")
    assert there.recv(100) == b"STARTTLS\r\n"
    upper, lower = sock(client, here.detach()), sock(server, there.detach())
    with upper, lower:
        thread = coro.spawn(lower.ssl_accept)
        upper.ssl_connect("localhost")
        thread.get()
        upper.send(b"secret")
        assert lower.recv(100) == b"secret"


@in_loop
def test_which_side_it_is(contexts):
    server, client = contexts
    here, there = coro.socketpair()
    with sock(server, there.detach()) as lower, sock(client, here.detach(), server_hostname="localhost") as upper:
        with pytest.raises(ValueError, match="which side"):
            lower.recv(1)
        lower.set_accept_state()
        upper.set_connect_state()
        thread = coro.spawn(lower.recv, 1)
        upper.send(b"x")
        assert thread.get() == b"x"


@in_loop
def test_the_certificate_is_compared_with_the_address(authority):
    server = new_ctx(authority.issue("localhost").pem)
    with listening(server) as listener:

        def serve():
            try:
                listener.accept()[0].recv(1)
            except OSError:
                return

        thread = coro.spawn(serve)
        with sock(new_ctx(ca=authority.pem)) as conn, pytest.raises(CertificateError, match=r"127\.0\.0\.1"):
            conn.connect(listener.getsockname())
        thread.get()


def test_verification_is_up_to_the_context():
    with pytest.raises(ValueError, match="up to the context"):
        sock(new_ctx(), verify=False)


@in_loop
def test_nothing_bypasses_tls(contexts):
    """Methods of the socket below that move data are not to be reached: they would send in the clear."""
    server, client = contexts
    here, there = coro.socketpair()
    harmless = {"bind", "detach", "domain", "family", "fd", "fileno", "get_fileno", "getpeername", "getsockname"}
    harmless |= {"getsockopt", "listen", "orig_fd", "set_reuse_addr", "setsockopt", "stype", "type", "wait_for_write"}
    below = {name for name in dir(coro.sock) if not name.startswith("_")}
    with sock(client, here.detach(), server_hostname="localhost") as upper, sock(server, there.detach()) as lower:
        for handshake_done in (False, True):
            for name in below - set(dir(sock)):
                assert hasattr(upper, name) == (name in harmless), (name, handshake_done)
            if not handshake_done:
                thread = coro.spawn(lower.ssl_accept)
                upper.ssl_connect()
                thread.get()
        for name in ("sendfile", "sendmsg", "dup"):
            with pytest.raises(AttributeError, match="bypass TLS"):
                getattr(upper, name)
        upper.send(b"hello")
        assert lower.wait_for_read() == 5
        assert lower.recv(10) == b"hello"


@in_loop
def test_a_listening_socket_is_waited_for(contexts):
    server, _ = contexts
    with listening(server) as listener:
        thread = coro.spawn(listener.wait_for_read)
        with coro.connect(listener.getsockname()):
            thread.get()
