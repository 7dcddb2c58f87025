"""Logins by SASL at real servers, and at one that lies."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest
from ldap_client_support import HANG, Conversation, Scripted, certificate, in_loop
from ldap_server_support import ADMIN, BASE, PASSWORD, Ours, Slapd, entries
from real_programs.running import HOST, free_port

from coro.ldap import Client, ConnectionLost, Error, SASLError, TLSRequired, sasl
from coro.ldap.exceptions import InvalidCredentials, NoSuchObject
from coro.ldap.protocol import BindRequest, SearchRequest

pytestmark = pytest.mark.slow  # real servers


class SaslSlapd(Slapd):
    """slapd with all mechanisms of Cyrus SASL; names in them are those of people."""

    def __init__(self) -> None:
        super().__init__(entries(5))

    @property
    def socket(self) -> Path:
        return self.folder / "ldapi"

    def prepare(self) -> None:
        super().prepare()
        path = self.folder / "slapd.conf"
        top, database = path.read_text().split("database mdb")
        certificate(self.folder, "server")
        os.system(f"chmod a+r {self.folder}/server.key")
        top += (
            "sasl-host localhost\nsasl-realm localhost\nsasl-secprops none\nsasl-auxprops slapd\n"
            f"TLSCertificateFile {self.folder}/server.pem\nTLSCertificateKeyFile {self.folder}/server.key\n"
            f"authz-regexp ^uid=([^,]*),(cn=[^,]*,)?cn=[^,]*,cn=auth$ uid=$1,ou=people,{BASE}\n"
        )
        path.write_text(top + "database mdb" + database)

    def command(self) -> list[str]:
        found = super().command()
        quoted = str(self.socket).replace("/", "%2f")
        found[found.index("-h") + 1] += f" ldapi://{quoted}"
        return found


class CertificateSlapd(SaslSlapd):
    """slapd that asks clients for a certificate; the common name of one is the uid of a person."""

    def __init__(self) -> None:
        super().__init__()
        self.tls_port = free_port()

    def prepare(self) -> None:
        super().prepare()
        for name in ("u1", "u2"):
            certificate(self.folder, name)
        path = self.folder / "slapd.conf"
        path.write_text(
            f"TLSCACertificateFile {self.folder}/u1.pem\nTLSVerifyClient try\n"
            f"authz-regexp ^cn=([^,]*)$ uid=$1,ou=people,{BASE}\n" + path.read_text()
        )

    def command(self) -> list[str]:
        found = super().command()
        found[found.index("-h") + 1] += f" ldaps://{HOST}:{self.tls_port}"
        return found


@pytest.fixture(scope="module")
def slapd():
    with SaslSlapd() as server:
        yield server


@pytest.mark.parametrize("name", ["SCRAM-SHA-256", "SCRAM-SHA-1", "DIGEST-MD5", "CRAM-MD5", None])
def test_slapd(slapd: SaslSlapd, name: str | None) -> None:
    @in_loop
    def run() -> None:
        with Client(slapd.url, timeout=HANG) as directory:
            used = sasl.bind(directory, name, user="u1", password="pw1", host="localhost")
            assert used == (name or "SCRAM-SHA-256")
            assert directory.whoami() == f"dn:uid=u1,ou=people,{BASE}"
            # Another login on the same connection, and a wrong one, which leaves the connection as it is.
            with pytest.raises((InvalidCredentials, NoSuchObject)):
                sasl.bind(directory, name, user="u1", password="wrong", host="localhost")
            assert directory.whoami() == ""
            sasl.bind(directory, name, user="u2", password="pw2", host="localhost")
            assert directory.whoami() == f"dn:uid=u2,ou=people,{BASE}"

    run()


def test_external_over_a_unix_socket(slapd: SaslSlapd) -> None:
    @in_loop
    def run() -> None:
        with Client(str(slapd.socket), timeout=HANG) as directory:
            assert sasl.bind(directory) == "EXTERNAL"
            assert f"uidNumber={os.getuid()}" in directory.whoami()

    run()


def test_external_by_a_certificate() -> None:
    """Over ldaps and StartTLS.  Nobody is logged in by a certificate that the server does not trust, or by none."""
    with CertificateSlapd() as server:

        def context(name: str | None) -> ssl.SSLContext:
            made = ssl.create_default_context(cafile=str(server.folder / "server.pem"))
            if name is not None:
                made.load_cert_chain(server.folder / f"{name}.pem", server.folder / f"{name}.key")
            return made

        @in_loop
        def run() -> None:
            places = ((f"ldaps://{HOST}:{server.tls_port}", False), (server.url, True))
            for url, starttls in places:
                with Client(url, tls=context("u1"), starttls=starttls, timeout=HANG) as directory:
                    assert directory.whoami() == ""
                    assert sasl.bind(directory) == "EXTERNAL"
                    assert directory.whoami() == f"dn:uid=u1,ou=people,{BASE}"
                    # And back to nobody.
                    directory.sasl_bind("", "ANONYMOUS", b"trace")
                    assert directory.whoami() == ""
                for name in ("u2", None):
                    with pytest.raises((Error, OSError, ConnectionLost)):
                        with Client(url, tls=context(name), starttls=starttls, timeout=HANG) as directory:
                            sasl.bind(directory, "EXTERNAL")

        run()


def test_plain_over_tls(tmp_path: Path) -> None:
    certificate(tmp_path, "server")
    options = ("--certificate", str(tmp_path / "server.pem"), "--key", str(tmp_path / "server.key"))
    context = ssl.create_default_context(cafile=str(tmp_path / "server.pem"))
    with Ours(None, None, *options) as server:

        @in_loop
        def run() -> None:
            with Client(server.url, tls=context, starttls=True, timeout=HANG) as directory:
                assert sasl.bind(directory, "PLAIN", user="u1", password="pw1") == "PLAIN"
                assert directory.whoami() == f"dn:uid=u1,ou=people,{BASE}"
                with pytest.raises(InvalidCredentials):
                    sasl.bind(directory, "PLAIN", user="u1", password="pw2")
                assert directory.whoami() == ""

        run()


def test_scram_over_starttls(slapd: SaslSlapd) -> None:
    context = ssl.create_default_context(cafile=str(slapd.folder / "server.pem"))

    @in_loop
    def run() -> None:
        with Client(slapd.url, tls=context, starttls=True, timeout=HANG) as directory:
            kind, data = sasl.channel_binding(directory.tls_object)
            assert (kind == "tls-server-end-point" and len(data) == 32) or kind == "tls-exporter"
            sasl.bind(directory, "SCRAM-SHA-256", user="u1", password="pw1")
            assert directory.whoami() == f"dn:uid=u1,ou=people,{BASE}"

    run()


def test_our_server() -> None:
    with Ours() as server:

        @in_loop
        def run() -> None:
            with Client(server.url, timeout=HANG) as directory:
                assert sasl.bind(directory, user="u1", password="pw1") == "SCRAM-SHA-256"
                assert directory.whoami() == f"dn:uid=u1,ou=people,{BASE}"
                with pytest.raises(InvalidCredentials):
                    sasl.bind(directory, user=f"dn:{ADMIN}", password=PASSWORD + "x")
                with pytest.raises(TLSRequired):
                    sasl.bind(directory, "PLAIN", user=ADMIN, password=PASSWORD)

        run()


@in_loop
def test_success_without_proof_is_no_success() -> None:
    """A server that does not know the password says success at once, or with a proof that is none."""
    for proof in (None, b"v=AAAA"):

        def script(peer: Conversation, proof: bytes | None = proof) -> None:
            request = peer.next()
            assert isinstance(request.op, BindRequest)
            nonce = request.op.authentication.credentials.rpartition(b"r=")[2]
            peer.answer(request, 14, credentials=b"r=" + nonce + b"x,s=AAAA,i=4096")
            peer.answer(peer.next(), 0, credentials=proof)
            peer.serve()

        with Scripted(script) as server, server.client() as directory:
            with pytest.raises(SASLError):
                sasl.bind(directory, "SCRAM-SHA-256", user="u", password="p")
            assert not directory.alive


@in_loop
def test_a_list_without_scram_does_not_get_the_password() -> None:
    """Somebody on the way leaves only PLAIN in the list of mechanisms."""

    def script(peer: Conversation) -> None:
        request = peer.next()
        assert isinstance(request.op, SearchRequest)
        peer.entry(request, "", supportedSASLMechanisms=[b"PLAIN"])
        peer.answer(request)
        peer.serve()

    with Scripted(script) as server, server.client() as directory:
        with pytest.raises(TLSRequired):
            sasl.bind(directory, user="u", password="p")
    [peer] = server.conversations
    assert not any(isinstance(one.op, BindRequest) for one in peer.seen)


@in_loop
def test_a_server_that_wants_ever_more_steps() -> None:
    def script(peer: Conversation) -> None:
        while (request := peer.next()) is not None:
            peer.answer(request, 14, credentials=b"<x>")

    with Scripted(script) as server, server.client() as directory:
        with pytest.raises(SASLError):
            sasl.bind(directory, "CRAM-MD5", user="u", password="p")
        assert not directory.alive
