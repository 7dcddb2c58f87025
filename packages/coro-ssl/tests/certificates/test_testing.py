"""``coro.ssl.testing``: its certificates pass the strictest checks of OpenSSL and of Python's `ssl`."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from real_programs import find_program

from coro.ssl import openssl, testing


def verified(ca: testing.CA, issued: testing.Issued, tmp_path: Path, *options: str) -> str:
    """What `openssl verify` says in its strictest mode."""
    chain, _ = issued.write(tmp_path)
    command = [find_program("openssl", "openssl"), "verify", "-x509_strict", "-CAfile", ca.write(tmp_path)]
    done = subprocess.run([*command, "-untrusted", chain, *options, chain], capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", testing._KINDS)
def test_every_kind_of_key_is_strictly_right(kind: str, tmp_path: Path) -> None:
    """https://github.com/python-trio/trustme/pull/642: Python 3.13 checks key identifiers."""
    ca = testing.CA(key="ec" if kind.startswith("rsa") else kind)
    issued = ca.intermediate().issue("a.test", "192.0.2.1", key=kind)
    assert verified(ca, issued, tmp_path, "-purpose", "sslserver", "-verify_hostname", "a.test").endswith(": OK\n")
    assert verified(ca, issued, tmp_path, "-purpose", "sslclient", "-verify_ip", "192.0.2.1").endswith(": OK\n")
    text = subprocess.run(
        [find_program("openssl", "openssl"), "x509", "-noout", "-text"], input=issued.cert_pem, capture_output=True
    ).stdout
    for extension in (b"Authority Key Identifier", b"Subject Key Identifier", b"Key Usage: critical"):
        assert extension in text
    assert b"Basic Constraints: critical" in text


def test_pythons_strict_mode(tmp_path: Path) -> None:
    ca = testing.CA()
    client = ssl.create_default_context(cadata=ca.pem.decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*ca.intermediate().issue("a.test").write(tmp_path))
    a, b, c, d = (ssl.MemoryBIO() for _ in range(4))
    ours, theirs = client.wrap_bio(a, b, server_hostname="a.test"), server.wrap_bio(c, d, server_side=True)
    for _ in range(3):
        for one, source, target in ((ours, b, c), (theirs, d, a)):
            try:
                one.do_handshake()
            except ssl.SSLWantReadError:
                pass
            target.write(source.read())
    assert ours.version() == "TLSv1.3"


def test_times(tmp_path: Path) -> None:
    ca = testing.CA()
    assert "expired" in verified(ca, ca.issue("a.test", starts_in=-10, days=5), tmp_path)
    assert "not yet valid" in verified(ca, ca.issue("a.test", starts_in=2), tmp_path)


def test_purposes(tmp_path: Path) -> None:
    ca = testing.CA()
    assert "purpose" in verified(ca, ca.issue("a.test", server=False), tmp_path, "-purpose", "sslserver")
    assert "purpose" in verified(ca, ca.issue("a.test", client=False), tmp_path, "-purpose", "sslclient")


def test_limits_of_cas(tmp_path: Path) -> None:
    ca = testing.CA()
    limited = ca.intermediate(permitted=["a.test"])
    assert verified(ca, limited.issue("x.a.test"), tmp_path).endswith(": OK\n")
    assert "permitted" in verified(ca, limited.issue("b.test"), tmp_path)
    last = ca.intermediate("last", path_length=0)
    assert "path length" in verified(ca, last.intermediate("too deep").issue("a.test"), tmp_path)
    with_limits = testing.CA(permitted=["a.test"])
    assert "permitted" in verified(with_limits, with_limits.issue("b.test"), tmp_path)


def test_revocation(tmp_path: Path) -> None:
    ca = testing.CA()
    good, bad = ca.issue("a.test"), ca.issue("b.test")
    ca.revoke(bad)
    (tmp_path / "crl").write_bytes(ca.crl_pem())
    options = ["-crl_check", "-CRLfile", str(tmp_path / "crl")]
    assert verified(ca, good, tmp_path, *options).endswith(": OK\n")
    assert "revoked" in verified(ca, bad, tmp_path, *options)


def test_files(tmp_path: Path) -> None:
    issued = testing.CA().intermediate().issue("a.test")
    cert, key = issued.write(tmp_path, "mine")
    assert Path(cert).read_bytes() == issued.chain_pem and Path(cert).name == "mine.pem"
    assert Path(key).read_bytes() == issued.key_pem
    assert os.stat(key).st_mode & 0o777 == 0o600
    assert issued.chain_pem.count(b"BEGIN CERTIFICATE") == 2
    assert issued.pem == issued.chain_pem + issued.key_pem
    got_key, got, others = openssl.pkcs12(issued.pkcs12("geheim")).parse("geheim")
    assert (got_key, got, len(others)) == (issued.key, issued.cert, 1)


def test_a_ca_is_loaded_again() -> None:
    ca = testing.CA()
    again = testing.CA.load(ca.pem, ca.key_pem)
    assert again.issue("a.test").cert.is_signed_by(ca.cert)
    leaf = ca.issue("a.test")
    with pytest.raises(ValueError, match="no CA"):
        testing.CA.load(leaf.cert_pem, leaf.key_pem)
    with pytest.raises(ValueError, match="no CA"):
        testing.CA.load(ca.pem, testing.CA().key_pem)
    with pytest.raises(ValueError, match="no CA"):
        testing.CA.load(b"nonsense", ca.key_pem)


@pytest.mark.parametrize("host", ["", "two words", "a/b", "a.test\n"])
def test_what_is_no_host(host: str) -> None:
    with pytest.raises(ValueError, match="host"):
        testing.CA().issue(host)


def test_unknown_kinds_of_keys() -> None:
    with pytest.raises(ValueError, match="a kind of key is one of"):
        testing.CA(key="dsa")


def test_international_names() -> None:
    assert testing.CA().issue("bücher.test").cert.get_hosts() == ["xn--bcher-kva.test"]


def test_without_cryptography_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['cryptography'] = None\nfrom coro.ssl import testing\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert 'pip install "coro-ssl[certificates]"' in done.stderr
