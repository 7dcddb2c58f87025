"""`coro.ssl.new_ctx`: what a context is told, and what it does with it. Connections are those of both back ends."""

from __future__ import annotations

import gc
import hashlib
import os
import ssl
import warnings
from functools import partial
from pathlib import Path

import pytest
from ssl_support import both_fail, in_jumping_loop, in_loop, wrapped

import coro
from coro.ssl import CertificateError, HandshakeError, TLSError, UnsupportedError, new_ctx, testing

VERSIONS = ["TLSv1.2", "TLSv1.3"]


@pytest.fixture(scope="module")
def issued(authority):
    return authority.issue("localhost")


@pytest.fixture
def folder(authority, issued, tmp_path):
    """ca.pem, server.pem and server.key."""
    authority.write(tmp_path)
    issued.write(tmp_path)
    return tmp_path


# -- arguments


def test_what_certificates_may_be(folder, authority, issued):
    both = folder / "both.pem"
    both.write_bytes(issued.pem)
    for cert, key in (
        (str(folder / "server.pem"), folder / "server.key"),
        (issued.cert_pem, issued.key_pem),
        (issued.cert_pem.decode(), issued.key_pem.decode()),
        (issued.cert, issued.key),
        (both, None),
        (os.fsencode(both), None),
    ):
        context = new_ctx(cert, key=key, ca=authority.cert)
        assert context.backend == "openssl" and "openssl" in repr(context)
    assert new_ctx(ca=folder).statistics().handshakes == 0
    assert new_ctx(ca=[authority.pem, folder / "ca.pem"]).ssl_context.verify_mode == ssl.CERT_REQUIRED


def test_what_is_refused(folder, authority, issued):
    other = authority.issue("localhost")
    empty = folder / "empty"
    empty.mkdir()
    for wrong, message in (
        (lambda: new_ctx(issued.cert_pem, key=other.key_pem), "does not accept"),
        (lambda: new_ctx(issued.cert_pem), "pass key="),
        (lambda: new_ctx(key=issued.key_pem), "pass cert"),
        (lambda: new_ctx(sni={"a": issued.pem}), "pass cert"),
        (lambda: new_ctx(b"-----BEGIN NONSENSE", key=issued.key_pem), "does not accept|no certificate"),
        (lambda: new_ctx(ca=empty), "expected certificates"),
        (lambda: new_ctx(ciphers="NONE-SUCH"), "cipher"),
        (lambda: new_ctx(minimum_version="TLSv1"), "TLSv1.2, TLSv1.3"),
        (lambda: new_ctx(minimum_version="TLSv1.3", maximum_version="TLSv1.2"), "above"),
        (lambda: new_ctx(proto="tls9"), "as proto"),
        (lambda: new_ctx(auto_ecdh=False), "auto_ecdh"),
        (lambda: new_ctx(tickets=-1), "tickets"),
        (lambda: new_ctx(tickets=1 << 70), "tickets as an int from 0 to 255"),
        (lambda: new_ctx(minimum_version=None), "TLSv1.2, TLSv1.3"),
        (lambda: new_ctx(handshake_timeout=-1), "handshake_timeout is at least 0"),
        (lambda: new_ctx(alpn=["\xe9"]), "ASCII"),
        (lambda: new_ctx(alpn=["x" * 255] * 256), "do not fit"),
        (lambda: new_ctx(ca=issued.key_pem, backend="tlslite"), "authority's certificate in PEM"),
        (lambda: new_ctx(issued.pem, sni={"\xfc" * 70: issued.pem}), "a key of sni, is no host name"),
        (lambda: new_ctx(issued.pem, crl=issued.cert_pem), "list of revoked certificates in PEM"),
        (lambda: new_ctx(alpn=["x" * 256]), "1 to 255"),
        (lambda: new_ctx(client_auth="maybe"), "client_auth"),
        (lambda: new_ctx(issued.pem, client_auth="required"), "client_ca"),
        (lambda: new_ctx(backend="nss"), "openssl"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong()
    with pytest.raises(FileNotFoundError):
        new_ctx(folder / "missing.pem")
    for arguments, message in (
        ({"cert": 7}, "the certificate as a path, PEM"),
        ({"alpn": "h2"}, r"a list of protocols, not one: pass \['h2'\]"),
        ({"next_protos": b"h2"}, "a list of protocols"),
        ({"alpn": [5]}, "the name of a protocol"),
        ({"cert": issued.pem, "sni": {5: issued.pem}}, "host names as keys of sni"),
        ({"password": 5}, "password as text"),
        ({"ciphers": 5}, "as ciphers"),
        ({"tickets": 1.5}, "tickets as an int"),
        ({"handshake_timeout": "1"}, "a number of seconds"),
    ):
        with pytest.raises(TypeError, match=message):
            new_ctx(**arguments)
    with pytest.raises(UnsupportedError, match="stapling"):
        new_ctx(ocsp=True)


def test_an_encrypted_key(issued, tmp_path):
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(issued.key_pem, None)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"word")
    )
    new_ctx(issued.cert_pem, key=secret, password="word")
    for password in (None, "wrong"):
        with pytest.raises(ValueError):  # and nobody is asked at the terminal
            new_ctx(issued.cert_pem, key=secret, password=password)


@pytest.mark.parametrize("proto", ["sslv2", "sslv3", "tlsv1", "sslv2sslv3", "sslv3tlsv1", "sslv2sslv3tlsv1"])
def test_classic_versions_mean_what_is_safe(proto):
    with pytest.warns(DeprecationWarning, match=r"TLS 1\.2 or newer"):
        context = new_ctx(proto=proto).ssl_context
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_the_classic_name_of_tls_1_2():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert new_ctx(proto="tlsv2").ssl_context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_defaults_are_safe(issued):
    context = new_ctx().ssl_context
    assert context.verify_mode == ssl.CERT_REQUIRED and context.check_hostname
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    for option in (ssl.OP_NO_COMPRESSION, ssl.OP_NO_RENEGOTIATION):
        assert context.options & option
        assert new_ctx(issued.pem).ssl_context.options & option
    old = [one["name"] for one in context.get_ciphers() if one["protocol"] != "TLSv1.3"]
    assert old and all(name.startswith("ECDHE-") and ("GCM" in name or "CHACHA" in name) for name in old)


def test_no_secret_is_shown(issued):
    context = new_ctx(issued.cert_pem, key=issued.key_pem, password="word")
    assert "word" not in repr(context) and "PRIVATE" not in repr(context)


# -- connections


@pytest.fixture(params=["openssl", pytest.param("tlslite", marks=pytest.mark.slow)])
def made(request):
    """``new_ctx`` for each of the back ends."""
    return partial(new_ctx, backend=request.param)


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
def test_a_connection(made, authority, issued, version):
    server = made(issued.pem, alpn=["http/1.1"], maximum_version=version)
    client = made(ca=authority.pem, next_protos=[b"h2", b"http/1.1"], minimum_version="TLSv1.2")
    here, there = wrapped(client, server)
    with here, there:
        assert here.version() == there.version() == version
        assert here.selected_alpn_protocol() == there.selected_alpn_protocol() == "http/1.1"
        here.send(b"hello")
        assert there.recv_exact(5) == b"hello"
        there.send(b"and back")  # what comes with TLS 1.3's tickets
        assert here.recv_exact(8) == b"and back"
        assert here.context is client and there.context is server
        assert here.peer_chain()[0] == issued.der
    for context in (client, server):
        assert context.statistics()[:4] == (1, 0, 0, 0)
    assert client.statistics().sessions == 1


@in_loop
def test_the_server_is_verified(made, authority, issued):
    server = made(issued.pem)
    stranger = testing.CA("somebody else")
    for client, name in (
        (made(ca=stranger.pem), "localhost"),
        (made(), "localhost"),
        (made(ca=authority.pem), "example.org"),
    ):
        mine, theirs = both_fail(client, server, name)
        assert isinstance(mine, CertificateError) and isinstance(theirs, TLSError)
        assert theirs.alert_name in ("unknown_ca", "bad_certificate")
        assert client.statistics().failed == 1
    with pytest.raises(ValueError, match="server_hostname"):
        wrapped(made(ca=authority.pem), server, None)
    here, there = wrapped(made(verify=False), server, None)
    here.close()
    there.close()
    here, there = wrapped(made(ca=authority.pem, check_hostname=False), server, None)
    here.close()
    there.close()


@pytest.mark.parametrize("kind", ["expired", "not yet", "wrong use"])
@in_loop
def test_certificates_that_are_not_accepted(made, authority, kind):
    refused = {
        "expired": lambda: authority.issue("localhost", starts_in=-10, days=5),
        "not yet": lambda: authority.issue("localhost", starts_in=5),
        "wrong use": lambda: authority.issue("localhost", server=False),
    }[kind]()
    mine, theirs = both_fail(made(ca=authority.pem), made(refused.pem))
    assert isinstance(mine, CertificateError) and mine.verify_code
    assert theirs.alert_name in ("certificate_expired", "bad_certificate", "unsupported_certificate")


@in_loop
def test_a_chain_and_an_authority_with_limits(made, authority):
    middle = authority.intermediate(permitted=["example.org"])
    good, bad = middle.issue("www.example.org"), middle.issue("www.example.com")
    client = made(ca=authority.pem)
    here, there = wrapped(client, made(good.cert_pem, [middle.cert], good.key), "www.example.org")
    with here, there:
        chain = here.peer_chain()
        assert chain[0] == good.der and (len(chain) == 1 or chain[1] == middle.der)
    mine, _ = both_fail(client, made(bad.pem), "www.example.com")
    assert isinstance(mine, CertificateError)


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
def test_clients_show_certificates(made, authority, issued, version):
    friend = authority.issue("friend", server=False)
    stranger = testing.CA("somebody else").issue("friend", server=False)
    server = made(issued.pem, client_ca=authority.pem, maximum_version=version)
    here, there = wrapped(made(friend.pem, ca=authority.pem), server)
    with here, there:
        assert there.getpeercert(True) == friend.der
        assert dict(one[0] for one in there.getpeercert()["subject"])["commonName"] == "friend"
    for client, alerts in (
        (made(ca=authority.pem), ("certificate_required", "handshake_failure")),
        (made(stranger.pem, ca=authority.pem), ("unknown_ca",)),
    ):
        mine, theirs = both_fail(client, server)
        assert isinstance(theirs, HandshakeError) and mine.alert_name in alerts
    optional = made(issued.pem, client_ca=authority.pem, client_auth="optional", maximum_version=version)
    here, there = wrapped(made(ca=authority.pem), optional)
    with here, there:
        assert there.getpeercert() is None


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
def test_several_certificates(made, authority, issued, version):
    hosts = {host: authority.issue(host) for host in ("a.example.org", "*.example.com", "b\xfccher.example")}
    server = made(
        issued.pem,
        sni={
            "A.example.org.": hosts["a.example.org"].pem,
            "*.example.com": tuple(_pair(hosts["*.example.com"])),
            "B\xfccher.example": hosts["b\xfccher.example"].pem,
        },
        alpn=["x"],
        maximum_version=version,
    )
    client = made(ca=authority.pem, check_hostname=False, alpn=["x"])
    for name, shown in (
        ("a.example.org", hosts["a.example.org"]),
        ("b.example.com", hosts["*.example.com"]),
        ("b\xfccher.example", hosts["b\xfccher.example"]),
        ("a.b.example.com", issued),
        ("elsewhere.net", issued),
        (None, issued),
    ):
        here, there = wrapped(client, server, name)
        with here, there:
            assert here.getpeercert(True) == shown.der
            assert here.selected_alpn_protocol() == "x"
            kind = "tls-server-end-point"
            assert here.get_channel_binding(kind) == there.get_channel_binding(kind)
            assert here.get_channel_binding(kind) == hashlib.sha256(shown.der).digest()


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
def test_a_host_name_with_underscores(made, authority, issued, version):
    """Those of containers often have some. Each back end as the client of both."""
    host = authority.issue("web_1.my_service")
    server = made(issued.pem, sni={"web_1.my_service": host.pem}, maximum_version=version)
    for backend in ("openssl", "tlslite"):
        client = new_ctx(ca=authority.pem, backend=backend)
        for resumed in (False, True):
            here, there = wrapped(client, server, "web_1.my_service")
            with here, there:
                there.send(b"x")
                assert here.recv(1) == b"x"
                assert here.getpeercert(True) == host.der
                assert there.session_reused is resumed


@in_loop
def test_host_names(made, authority, issued):
    """A dot at the end, for the root of DNS, does not count; what is no name is refused before anything is sent."""
    server, client = made(issued.pem), made(ca=authority.pem)
    here, there = wrapped(client, server, "LOCALHOST.")
    with here, there:
        assert here.getpeercert(True) == issued.der
    here, there = coro.socketpair()
    with here, there:
        for name, error in (("a b", ValueError), ("local\0host", ValueError), (b"localhost", TypeError)):
            with pytest.raises(error, match="host"):
                client.wrap(here, server_hostname=name)
        here.send(b"still open")
        assert there.recv_exact(10) == b"still open"


@in_loop
def test_any_time_for_a_handshake(made, issued):
    server = made(issued.pem, handshake_timeout=None)
    here, there = coro.socketpair()
    with here, pytest.raises(coro.TimeoutError), coro.timeout(0.01):
        server.accept(there)
    assert server.statistics()[:4] == (0, 0, 0, 0)


def _pair(issued):
    return issued.cert_pem, issued.key_pem


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
def test_sessions_are_resumed(made, authority, issued, version):
    server = made(issued.pem, maximum_version=version)
    client = made(ca=authority.pem)
    for turn in range(3):
        here, there = wrapped(client, server)
        with here, there:
            there.send(b"x")
            assert here.recv(1) == b"x"
            assert here.session_reused is there.session_reused is (turn > 0)
    assert client.statistics().resumed == server.statistics().resumed == 2
    # a session is for one name, and is found while its connection is open
    here, there = wrapped(client, server)
    there.send(b"x")
    here.recv(1)
    more, other = wrapped(client, server)
    assert more.session_reused is True
    for one in (here, there, more, other):
        one.close()
    client.forget_sessions()
    here, there = wrapped(client, server)
    assert here.session_reused is False
    here.close()
    there.close()


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
def test_sessions_with_an_address_are_resumed(made, authority, version):
    """No name is sent then (RFC 6066 section 3), and the session is found again all the same."""
    server = made(authority.issue("127.0.0.1", "::1").pem, maximum_version=version)
    client = made(ca=authority.pem)
    for name, resumed in (("127.0.0.1", False), ("127.0.0.1", True), ("::1", False), ("[::1]", True)):
        here, there = wrapped(client, server, name)
        with here, there:
            there.send(b"x")
            assert here.recv(1) == b"x"
            assert here.session_reused is there.session_reused is resumed


@in_loop
def test_many_open_connections_make_no_connection_slow(authority, issued, monkeypatch):
    """What is remembered of each open one is not looked through for each new one."""
    monkeypatch.setattr("coro.ssl._context.SESSIONS", 2)
    server, client = new_ctx(issued.pem), new_ctx(ca=authority.pem, check_hostname=False)
    client._latest_most = 2
    kept, tables = [], []
    for number in range(40):
        kept.append(wrapped(client, server, f"host{number}.example.org"))
        if not any(client._latest is table for table in tables):
            tables.append(client._latest)
    assert len(tables) <= 6 and len(client._latest) == 40
    for ends in kept[1:]:
        for one in ends:
            one.close()
    del ends, one, kept[1:]
    for number in range(80):
        for one in wrapped(client, server, f"other{number}.example.org"):
            one.close()
    assert len(client._latest) <= 80
    for one in kept[0]:
        one.close()


@in_loop
def test_a_server_without_tickets(made, authority, issued):
    server, client = made(issued.pem, tickets=0), made(ca=authority.pem)
    for _ in range(2):
        here, there = wrapped(client, server)
        with here, there:
            there.send(b"x")
            here.recv(1)
            assert here.session_reused is False


@in_loop
def test_new_certificates_without_a_restart(made, authority, folder):
    server = made(folder / "server.pem", key=folder / "server.key")
    client = made(ca=folder / "ca.pem")
    old, theirs = wrapped(client, server)
    renewed = authority.issue("localhost")
    renewed.write(folder)
    server.reload()
    with old, theirs:
        here, there = wrapped(client, server)
        with here, there:
            assert here.getpeercert(True) == renewed.der != old.getpeercert(True)
            assert here.session_reused is False
        old.send(b"still here")
        assert theirs.recv_exact(10) == b"still here"
    (folder / "server.key").write_bytes(authority.issue("localhost").key_pem)
    with pytest.raises(ValueError):
        server.reload()
    (folder / "server.key").unlink()
    with pytest.raises(FileNotFoundError):
        server.reload()
    here, there = wrapped(client, server)
    with here, there:
        assert here.getpeercert(True) == renewed.der
    assert server.statistics().reloads == 1


@in_loop
def test_revoked_certificates(made, authority):
    ca = testing.CA("with a list")
    good, bad = ca.issue("localhost"), ca.issue("localhost")
    ca.revoke(bad)
    client = made(ca=ca.pem, crl=ca.crl_pem())
    here, there = wrapped(client, made(good.pem))
    here.close()
    there.close()
    mine, theirs = both_fail(client, made(bad.pem))
    assert isinstance(mine, CertificateError) and "revoked" in mine.verify_message
    assert theirs.alert_name == "certificate_revoked"
    server = made(good.pem, client_ca=ca.pem, crl=ca.crl_pem())
    mine, theirs = both_fail(made(bad.pem, ca=ca.pem), server)
    assert isinstance(theirs, CertificateError) and mine.alert_name == "certificate_revoked"


@in_loop
def test_keys_are_logged_where_it_is_asked_for(authority, issued, tmp_path):
    log = tmp_path / "keys"
    here, there = wrapped(new_ctx(ca=authority.pem, keylog=log), new_ctx(issued.pem))
    here.close()
    there.close()
    assert "CLIENT_TRAFFIC_SECRET_0 " in log.read_text()


@in_loop
def test_channel_bindings(authority, issued):
    client = new_ctx(ca=authority.pem)
    here, there = wrapped(client, new_ctx(issued.pem, maximum_version="TLSv1.2"))
    with here, there:
        assert here.get_channel_binding("tls-unique") == there.get_channel_binding("tls-unique")
        assert len(here.get_channel_binding("tls-unique")) == 12
    here, there = wrapped(client, new_ctx(issued.pem))
    with here, there:
        with pytest.raises(UnsupportedError, match=r"TLS 1\.3"):
            here.get_channel_binding("tls-unique")
        with pytest.raises(UnsupportedError, match="nonsense"):
            here.get_channel_binding("nonsense")
        if hasattr(here.engine.object, "export_keying_material"):
            assert here.get_channel_binding("tls-exporter") == there.get_channel_binding("tls-exporter")
        else:
            with pytest.raises(UnsupportedError, match="tls-server-end-point"):
                here.get_channel_binding("tls-exporter")
    edwards = authority.issue("localhost", key="ed25519")
    here, there = wrapped(client, new_ctx(edwards.pem))
    with here, there:
        assert here.get_channel_binding("tls-server-end-point") == hashlib.sha256(edwards.der).digest()


@pytest.mark.parametrize("kind, name", [("ec384", "sha384"), ("rsa", "sha256"), ("ed25519", None)])
def test_the_hash_of_an_end_point_is_that_of_the_signature(kind, name):
    from coro.ssl._binding import end_point

    der = testing.CA(key=kind).der
    if name is None:
        with pytest.raises(UnsupportedError, match="no hash function"):
            end_point(der)
    else:
        assert end_point(der) in {hashlib.new(one, der).digest() for one in (name, "sha256")}


@in_loop
def test_one_version_and_cipher(authority, issued):
    server = new_ctx(
        issued.pem, ciphers="ECDHE-ECDSA-CHACHA20-POLY1305", maximum_version="TLSv1.2", groups="prime256v1"
    )
    here, there = wrapped(new_ctx(ca=authority.pem), server)
    with here, there:
        assert here.cipher()[0] == "ECDHE-ECDSA-CHACHA20-POLY1305"
    mine, theirs = both_fail(new_ctx(ca=authority.pem, minimum_version="TLSv1.3"), server)
    assert mine.alert_name == "protocol_version" and isinstance(theirs, HandshakeError)
    assert server.statistics().failed == 1


@in_loop
def test_an_end_point_of_a_context_of_the_programs(authority, issued, tmp_path):
    """Its own callback has chosen another ssl.SSLContext, whose certificate nobody knows."""
    other = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    other.load_cert_chain(*authority.issue("localhost").write(tmp_path))
    server = new_ctx(issued.pem)

    def choose(connection, name, context):
        connection.context = other

    server.ssl_context.sni_callback = choose
    here, there = wrapped(new_ctx(ca=authority.pem), server)
    with here, there:
        assert here.get_channel_binding("tls-server-end-point")
        with pytest.raises(UnsupportedError, match="sni"):
            there.get_channel_binding("tls-server-end-point")


def test_several_groups(issued):
    several = "X25519:prime256v1"
    if hasattr(ssl.SSLContext, "set_groups"):
        new_ctx(issued.pem, groups=several)
    else:
        with pytest.raises(UnsupportedError, match="one group"):
            new_ctx(issued.pem, groups=several)
    new_ctx(issued.pem, groups=several, backend="tlslite")


@in_loop
def test_a_silent_client(made, authority, issued):
    server = made(issued.pem, handshake_timeout=0.01)
    here, there = coro.socketpair()
    with here, pytest.raises(TimeoutError):
        server.accept(there)
    assert server.statistics().timeouts == 1 and server.statistics().failed == 0
    with pytest.raises(ValueError, match="a server needs a certificate"):
        made().wrap(coro.socketpair()[0], server_side=True)


@pytest.mark.parametrize("own, servers, counted", [(2, 5, 1), (5, 2, 0)])
@in_jumping_loop
def test_the_shorter_limit_wins(made, issued, own, servers, counted):
    """That of the context, or that of the server around ``wrap``."""
    context = made(issued.pem, handshake_timeout=own)

    def handler(conn, address):
        raise AssertionError("there was no handshake")

    with coro.Server(handler, ("127.0.0.1", 0), wrap=context.accept, wrap_timeout=servers) as server:
        begin = coro.now
        with coro.connect(server.addresses[0]) as silent:
            assert silent.recv(1) == b""
            assert 2 <= (coro.now - begin) / coro.ticks_per_sec < 4
        assert server.statistics().wrap_failures == 1
    assert context.statistics()[:4] == (0, 0, 0, counted)


@in_loop
def test_nothing_is_left(made, authority, issued):
    server, client = made(issued.pem), made(ca=authority.pem)
    gc.collect()
    before = coro.get_live_sockets()
    for _ in range(5):
        here, there = wrapped(client, server)
        here.close()
        there.close()
        del here, there
    gc.collect()
    assert coro.get_live_sockets() == before
    assert len(os.listdir("/proc/self/fd")) < 100 if Path("/proc/self/fd").exists() else True
