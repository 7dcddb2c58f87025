"""Path validation in pure Python, compared with OpenSSL's judgement of the same chains."""

from __future__ import annotations

import datetime
import ssl
import time
from collections.abc import Callable
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier
from hypothesis import given, settings
from hypothesis import strategies as st

from coro.ssl import testing
from coro.ssl._tlslite import der, paths
from coro.ssl._tlslite.certificate import Certificate, pem_blocks

ROOT = testing.CA("root")
HOUR = datetime.timedelta(hours=1)


def leaf(
    ca: testing.CA = ROOT,
    hosts: tuple[str, ...] = ("a.test",),
    *more: x509.ExtensionType,
    critical: bool = True,
    key: Any = None,
    usage: bool = True,
    days: float = 1,
    starts: float = -1,
    hash: Any = None,
    pss: bool = False,
    name: str | None = None,
    eku: Any = ExtendedKeyUsageOID.SERVER_AUTH,
) -> testing.Issued:
    """A certificate that ``testing.CA`` would not make."""
    secret = key or ec.generate_private_key(ec.SECP256R1())
    begin = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=starts)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name or "leaf")])
    builder = (
        x509.CertificateBuilder(ca._cert.subject, subject, secret.public_key(), x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=days) + HOUR)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca._key.public_key()), False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(secret.public_key()), False)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName(testing.general_names(hosts)), False)
    if not any(isinstance(e, x509.BasicConstraints) for e in more):
        builder = builder.add_extension(x509.BasicConstraints(False, None), True)
    if usage:
        builder = builder.add_extension(testing._usage(digital_signature=True), True)
    if eku is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([eku]), False)
    for extension in more:
        builder = builder.add_extension(extension, critical)
    extra: dict[str, Any] = {}
    if pss:
        extra["rsa_padding"] = padding.PSS(padding.MGF1(hashes.SHA256()), 32)
    cert = builder.sign(ca._key, hash or testing._hash(ca._key), **extra)
    return testing.Issued(cert, secret, ca._chain())


def blocks(pem: bytes) -> list[bytes]:
    return pem_blocks(pem, "CERTIFICATE")


def judge(
    chain: list[bytes], ca: bytes = ROOT.pem, host: str | None = "a.test", purpose: str = "server", crl: bytes = b""
) -> int:
    """0, or OpenSSL's number of what is wrong."""
    try:
        for step in paths.validate(chain, paths.Trust(ca, crl), purpose, host, time.time()):
            assert step == 1
    except paths.Refused as e:
        assert str(e)
        return e.reason.code
    return 0


def openssl_accepts(chain: list[bytes], key_pem: bytes, ca: bytes, host: str, tmp_path: Any) -> bool:
    """A handshake in memory with an ordinary client that is as strict as Python 3.13's."""
    path = tmp_path / "chain.pem"
    path.write_text("".join(ssl.DER_cert_to_PEM_cert(one) for one in chain) + key_pem.decode())
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cadata=ca.decode())
    server.load_cert_chain(path)
    client.hostname_checks_common_name = False
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    a, b, c, d = (ssl.MemoryBIO() for _ in range(4))
    ours, theirs = client.wrap_bio(a, b, server_hostname=host), server.wrap_bio(c, d, server_side=True)
    for _ in range(4):
        try:
            ours.do_handshake()
            return True
        except ssl.SSLWantReadError:
            c.write(b.read())
        except ssl.SSLCertVerificationError:
            return False
        try:
            theirs.do_handshake()
        except ssl.SSLWantReadError:
            pass
        a.write(d.read())
    raise AssertionError("no end")


def via(*makers: Callable[[testing.CA], testing.CA]) -> testing.CA:
    ca = ROOT
    for make in makers:
        ca = make(ca)
    return ca


INTER = ROOT.intermediate("inter")
UNKNOWN = ObjectIdentifier("1.3.6.1.4.1.99999.1")

#: Name -> certificate, host, the code that we give.
CASES: dict[str, tuple[Callable[[], testing.Issued], str, int]] = {
    "from the root": (lambda: leaf(), "a.test", 0),
    "through one": (lambda: leaf(INTER), "a.test", 0),
    "through three": (lambda: leaf(INTER.intermediate("b").intermediate("c")), "a.test", 0),
    "rsa": (lambda: testing.CA.issue(ROOT, "a.test", key="rsa"), "a.test", 0),
    "ed25519": (lambda: testing.CA.issue(ROOT, "a.test", key="ed25519"), "a.test", 0),
    "p-384 from p-384": (lambda: leaf(ROOT.intermediate("p384", key="ec384")), "a.test", 0),
    "through ed25519": (lambda: leaf(ROOT.intermediate("ed", key="ed25519")), "a.test", 0),
    "through rsa": (lambda: leaf(ROOT.intermediate("rsa", key="rsa")), "a.test", 0),
    "through rsa with pss": (lambda: leaf(ROOT.intermediate("rsa", key="rsa"), pss=True), "a.test", 0),
    "expired": (lambda: leaf(starts=-5), "a.test", 10),
    "not yet": (lambda: leaf(starts=1), "a.test", 9),
    "through one that has expired": (lambda: leaf(ROOT.intermediate("old", days=-0.5)), "a.test", 10),
    "another host": (lambda: leaf(), "b.test", 62),
    "a name below": (lambda: leaf(), "x.a.test", 62),
    "the name in the subject only": (lambda: leaf(hosts=(), name="a.test"), "a.test", 62),
    "a star": (lambda: leaf(hosts=("*.a.test",)), "x.a.test", 0),
    "a star for nothing": (lambda: leaf(hosts=("*.a.test",)), "a.test", 62),
    "a star for two labels": (lambda: leaf(hosts=("*.a.test",)), "x.y.a.test", 62),
    "capitals": (lambda: leaf(hosts=("A.Test",)), "a.tEST", 0),
    "an address": (lambda: leaf(hosts=("192.0.2.1",)), "192.0.2.1", 0),
    "an IPv6 address": (lambda: leaf(hosts=("2001:db8::1",)), "2001:db8:0:0::1", 0),
    "another address": (lambda: leaf(hosts=("192.0.2.1",)), "192.0.2.2", 64),
    "an address as a name": (lambda: leaf(hosts=("a.test",)), "192.0.2.1", 64),
    "for clients": (lambda: leaf(eku=ExtendedKeyUsageOID.CLIENT_AUTH), "a.test", 26),
    "for anything": (lambda: leaf(eku=ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE), "a.test", 26),
    "for nothing in particular": (lambda: leaf(eku=None), "a.test", 0),
    "no usage": (lambda: leaf(usage=False), "a.test", 0),
    "an unknown critical extension": (
        lambda: leaf(ROOT, ("a.test",), x509.UnrecognizedExtension(UNKNOWN, b"\5\0")),
        "a.test",
        34,
    ),
    "an unknown extension": (
        lambda: leaf(ROOT, ("a.test",), x509.UnrecognizedExtension(UNKNOWN, b"\5\0"), critical=False),
        "a.test",
        0,
    ),
    "no CA issued it": (lambda: _from_leaf(), "a.test", 24),
    "too deep": (lambda: leaf(ROOT.intermediate("no more", path_length=0).intermediate("one more")), "a.test", 25),
    "as deep as allowed": (lambda: leaf(ROOT.intermediate("one", path_length=1).intermediate("two")), "a.test", 0),
    "permitted": (lambda: leaf(ROOT.intermediate("limited", permitted=["a.test"])), "a.test", 0),
    "permitted below": (lambda: leaf(ROOT.intermediate("limited", permitted=["a.test"]), ("x.a.test",)), "x.a.test", 0),
    "not permitted": (lambda: leaf(ROOT.intermediate("limited", permitted=["b.test"])), "a.test", 47),
    "one of two not permitted": (
        lambda: leaf(ROOT.intermediate("limited", permitted=["a.test"]), ("a.test", "b.test")),
        "a.test",
        47,
    ),
    "not permitted above": (
        lambda: leaf(ROOT.intermediate("limited", permitted=["b.test"]).intermediate("below")),
        "a.test",
        47,
    ),
    "another root": (lambda: leaf(testing.CA("root")), "a.test", 20),
    "self-signed": (lambda: _self_signed(), "a.test", 18),
    "signature damaged": (lambda: _damaged(), "a.test", 7),
}


def _from_leaf() -> testing.Issued:
    """Signed with the key of a certificate that is no CA's."""
    middle = leaf(name="middle")
    false = testing.CA.__new__(testing.CA)
    false._issuer, false._cert, false._key = ROOT, middle.cert._signed, middle.key._private
    return leaf(false)


def _self_signed() -> testing.Issued:
    own = testing.CA("leaf")
    return testing.Issued(_resigned(own), own._key)


def _resigned(own: testing.CA) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "leaf")])
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder(name, name, own._key.public_key(), 77, now - HOUR, now + HOUR)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("a.test")]), False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(own._key.public_key()), False)
        .sign(own._key, hashes.SHA256())
    )


def _damaged() -> testing.Issued:
    good = leaf()
    raw = good.der[:-1] + bytes([good.der[-1] ^ 1])
    return testing.Issued(x509.load_der_x509_certificate(raw), good.key._private)


@pytest.mark.parametrize("name", list(CASES))
def test_our_judgement_and_openssls(name: str, tmp_path: Any) -> None:
    make, host, code = CASES[name]
    issued = make()
    chain = blocks(issued.chain_pem)
    assert judge(chain, host=host) == code
    assert openssl_accepts(chain, issued.key_pem, ROOT.pem, host, tmp_path) == (code == 0)


def test_the_order_of_a_chain_and_what_does_not_belong_to_it() -> None:
    deep = INTER.intermediate("b").intermediate("c")
    own, *others = blocks(leaf(deep).chain_pem)
    assert judge([own, *reversed(others)]) == 0
    assert judge([own, testing.CA("stranger").der, *others, ROOT.der]) == 0
    assert judge([own, *others[:-1]]) == 20
    assert judge([]) == 20


def test_purposes() -> None:
    client = ROOT.issue("me", server=False)
    assert judge([client.der], host=None, purpose="client") == 0
    assert judge([client.der], host="me", purpose="server") == 26
    server = ROOT.issue("a.test", client=False)
    assert judge([server.der], host=None, purpose="client") == 26


def test_a_certificate_that_is_itself_trusted() -> None:
    own = testing.Issued(_resigned(testing.CA("x")), ec.generate_private_key(ec.SECP256R1()))
    assert judge([own.der], ca=own.cert_pem) == 0
    assert judge([own.der], ca=own.cert_pem, host="b.test") == 62


def test_weak_keys() -> None:
    weak = rsa.generate_private_key(65537, 1024)
    assert judge([leaf(key=weak).der]) == 66
    odd = ec.generate_private_key(ec.SECP256K1())
    assert judge([leaf(key=odd).der]) == 66


def test_weak_hashes() -> None:
    """A root's own signature does not count; any other with SHA-224 or SHA-1 is refused."""
    assert judge([leaf(hash=hashes.SHA224()).der]) == 7


def test_revocation() -> None:
    ca = testing.CA("with a list")
    good, bad = ca.issue("a.test"), ca.issue("a.test")
    ca.revoke(bad)
    assert judge([good.der], ca=ca.pem, crl=ca.crl_pem()) == 0
    assert judge([bad.der], ca=ca.pem, crl=ca.crl_pem()) == 23
    assert judge([bad.der], ca=ca.pem) == 0
    assert judge([good.der], ca=ca.pem, crl=ca.crl_pem(days=-0.5)) == 12
    other = testing.CA("with a list")
    assert judge([good.der], ca=ca.pem, crl=other.crl_pem()) == 12  # the list is not this CA's
    assert judge([ROOT.issue("a.test").der], crl=ca.crl_pem()) == 12


def test_work_is_bounded() -> None:
    """Ten CAs with one name, each of which could have signed each other."""
    name = "one of many"
    many = [testing.CA(name) for _ in range(9)]
    lost = leaf(testing.CA(name))
    steps = 0
    chain = [lost.der, *(_unkeyed(ca) for ca in many)]
    with pytest.raises(paths.Refused):
        for _ in paths.validate(chain, paths.Trust(ROOT.pem), "server", None, time.time()):
            steps += 1
    assert steps <= paths.SIGNATURES_MOST + 1
    with pytest.raises(paths.Refused, match="more than 10 certificates"):
        list(paths.validate([lost.der] * 11, paths.Trust(ROOT.pem), "server", None, time.time()))


def _unkeyed(ca: testing.CA) -> bytes:
    """The CA's certificate without key identifiers, which would tell that it did not sign."""
    now = datetime.datetime.now(datetime.UTC)
    cert = (
        x509.CertificateBuilder(ca._cert.subject, ca._cert.subject, ca._key.public_key(), 5, now - HOUR, now + HOUR)
        .add_extension(x509.BasicConstraints(True, None), True)
        .sign(ca._key, hashes.SHA256())
    )
    return cert.public_bytes(serialization.Encoding.DER)


@pytest.mark.parametrize(
    ("pattern", "host", "expected"),
    [
        ("a.test", "a.test", True),
        ("a.test", "a.test.", True),
        ("*.a.test", "b.a.test", True),
        ("*.test", "a.test", False),  # OpenSSL allows it; a star for all of a top-level domain is too much
        ("*", "test", False),
        ("w*.a.test", "www.a.test", False),
        ("*.*.test", "a.b.test", False),
        ("a.*.test", "a.b.test", False),
        ("*.a.test", "xn--bcher-kva.a.test", False),
        ("", "a.test", False),
        ("a.test", "", False),
    ],
)
def test_patterns(pattern: str, host: str, expected: bool) -> None:
    assert paths.matches(pattern, host) is expected


def sequence(*inside: Any, tag: int = der.SEQUENCE) -> bytes:
    content = b"".join(one if isinstance(one, bytes) else one.whole for one in inside)
    size = len(content)
    return bytes([tag, *([size] if size < 128 else [0x82, size >> 8, size & 255])]) + content


class TestReading:
    """What is malformed is Malformed, whatever it is."""

    CERT = ROOT.issue("a.test", "192.0.2.1", "x@a.test").der

    def test_as_the_ssl_module_shows_it(self, tmp_path: Any) -> None:
        path = tmp_path / "cert.pem"
        path.write_text(ssl.DER_cert_to_PEM_cert(self.CERT))
        theirs = ssl._ssl._test_decode_cert(str(path))  # type: ignore[attr-defined]
        ours = Certificate(self.CERT).as_dict()
        assert {k: theirs[k] for k in ours} == ours

    @pytest.mark.parametrize("serial", ["00", "01", "7f", "0080", "00ff", "0100", "ff", "80", "fe01"])
    def test_serial_numbers_as_the_ssl_module_shows_them(self, serial: str, tmp_path: Any) -> None:
        """Half of all certificates have one whose first bit is set."""
        tbs, *behind = der.parts(der.only(self.CERT, der.SEQUENCE))
        version, _, *rest = der.parts(tbs.content)
        number = sequence(bytes.fromhex(serial), tag=der.INTEGER)
        changed = sequence(sequence(version.whole + number + b"".join(one.whole for one in rest)), *behind)
        path = tmp_path / "cert.pem"
        path.write_text(ssl.DER_cert_to_PEM_cert(changed))
        theirs = ssl._ssl._test_decode_cert(str(path))  # type: ignore[attr-defined]
        assert Certificate(changed).as_dict()["serialNumber"] == theirs["serialNumber"]

    def test_every_prefix(self) -> None:
        for i in range(len(self.CERT)):
            with pytest.raises(der.Malformed):
                Certificate(self.CERT[:i])

    @settings(max_examples=100, deadline=None)
    @given(st.integers(0, len(CERT) - 1), st.integers(1, 255))
    def test_every_changed_byte_is_refused(self, at: int, change: int) -> None:
        """Nothing but Refused, whichever byte is changed: what still can be read has a signature that is wrong."""
        data = bytearray(self.CERT)
        data[at] ^= change
        assert judge([bytes(data)], host=None) != 0

    @settings(max_examples=100, deadline=None)
    @given(st.binary(max_size=200))
    def test_random_bytes(self, data: bytes) -> None:
        with pytest.raises(der.Malformed):
            Certificate(data)

    @settings(max_examples=80, deadline=None)
    @given(st.integers(0, 10000), st.integers(1, 255))
    def test_changed_revocation_lists(self, at: int, change: int) -> None:
        data = bytearray(blocks(ROOT.crl_pem().replace(b"X509 CRL", b"CERTIFICATE"))[0])
        data[at % len(data)] ^= change
        root = Certificate(ROOT.der)
        try:
            one = paths.RevocationList(bytes(data))
            assert not (one.is_signed_by(root) and one.issuer == root.subject)
        except der.Malformed:
            return


def test_the_systems_certificates_can_be_read() -> None:
    bundle = paths.system_bundle()
    if not bundle:
        pytest.skip("this system has no bundle of certificates: install the Debian package ca-certificates")
    trust = paths.Trust(bundle)
    assert len(trust) >= 0.95 * len(blocks(bundle))
