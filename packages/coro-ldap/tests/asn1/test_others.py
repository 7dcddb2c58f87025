"""Our codec beside pyasn1, cryptography and openssl: equal encodings, equal values, equal refusals."""

from __future__ import annotations

import datetime
import importlib.util
import random
import re
import ssl
from pathlib import Path

import pytest
from asn1_values import damaged, pyasn1_writes_short
from hypothesis import assume, given
from hypothesis import strategies as st
from pyasn1.codec.ber import decoder as ber_decoder
from pyasn1.codec.der import decoder as der_decoder
from pyasn1.codec.der import encoder as der_encoder
from pyasn1.type import char, univ

from coro.asn1 import DecodeError, Node, ber

values = st.one_of(
    st.integers(-(1 << 100), 1 << 100).filter(pyasn1_writes_short).map(lambda n: (ber.INTEGER(n), univ.Integer(n))),
    st.integers(-(1 << 40), 1 << 40).filter(pyasn1_writes_short).map(lambda n: (ber.ENUMERATED(n), univ.Enumerated(n))),
    st.booleans().map(lambda b: (ber.BOOLEAN(b), univ.Boolean(b))),
    st.binary(max_size=300).map(lambda b: (ber.OCTET_STRING(b), univ.OctetString(b))),
    st.text(st.characters(exclude_categories=("Cs",))).map(lambda s: (ber.UTF8_STRING(s), char.UTF8String(s))),
    st.lists(st.integers(0, 1 << 60), max_size=5).map(
        lambda a: (ber.OBJID([1, 3, *a]), univ.ObjectIdentifier((1, 3, *a)))
    ),
    st.binary(min_size=1, max_size=9).map(lambda b: (ber.BITSTRING(0, b), univ.BitString(hexValue=b.hex()))),
    st.just((ber.NULL(), univ.Null(""))),
)


@given(st.lists(values, max_size=6))
def test_der_is_that_of_pyasn1(items: list[tuple[bytes, object]]) -> None:
    theirs = univ.Sequence()
    for place, (_, item) in enumerate(items):
        theirs.setComponentByPosition(place, item)
    data = ber.SEQUENCE(*[ours for ours, _ in items])
    if items:
        assert data == der_encoder.encode(theirs)
        assert len(der_decoder.decode(data)[0]) == len(items)


def test_the_least_number_of_a_size_is_written_short() -> None:
    """X.690, 8.3.2: the first nine bits are not all alike.  pyasn1 writes 0202ff80 for -128, and reads both."""
    for size in range(1, 20):
        number = -(1 << (8 * size - 1))
        data = ber.INTEGER(number)
        assert data == bytes((2, size)) + number.to_bytes(size, "big", signed=True)
        assert int(der_decoder.decode(data)[0]) == number == ber.decode(data, strict=True)[0]
        assert not pyasn1_writes_short(number) and pyasn1_writes_short(number + 1) and pyasn1_writes_short(-number)


@given(st.floats(allow_nan=False))
def test_reals_are_read_by_pyasn1(number: float) -> None:
    # It reads the value 43, minus zero, as minus infinity.
    assume(number != 0)
    assert float(ber_decoder.decode(ber.encode_double(number))[0]) == number


def certificates() -> list[bytes]:
    """A certificate of each kind of key, made here: nothing depends on what this system trusts."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    made = []
    for key in (
        ec.generate_private_key(ec.SECP256R1()),
        ed25519.Ed25519PrivateKey.generate(),
        rsa.generate_private_key(65537, 2048),
    ):
        name = x509.Name(
            [
                x509.NameAttribute(x509.NameOID.COUNTRY_NAME, "DE"),
                x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "Föö & Söhne"),
                x509.NameAttribute(x509.NameOID.COMMON_NAME, "ldap.example.org"),
            ]
        )
        digest = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(datetime.datetime(2020, 1, 1)).not_valid_after(datetime.datetime(2060, 1, 1))
        alternatives = [x509.DNSName("ldap.example.org"), x509.RFC822Name("a@example.org")]
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=3), critical=True)
        made.append(builder.sign(key, digest).public_bytes(serialization.Encoding.DER))
    return made


@pytest.fixture(scope="module")
def corpus() -> list[bytes]:
    pytest.importorskip("cryptography", reason="pip install cryptography to compare certificates")
    return certificates()


@pytest.mark.slow
def test_certificates(corpus: list[bytes]) -> None:
    from cryptography import x509

    for der in corpus:
        theirs = x509.load_der_x509_certificate(der)
        value, end = ber.decode(der, strict=True, text=True, times=True)
        assert end == len(der)
        body = value[0]
        assert body[0] == ("context", 0, [2])
        assert body[1] == theirs.serial_number
        assert body[4] == [theirs.not_valid_before_utc, theirs.not_valid_after_utc]
        assert [pair[0][1] for pair in body[5]] == ["DE", "Föö & Söhne", "ldap.example.org"]
        assert ber.decode(body[-1][2][0][-1][-1])[0] in (True, 3, [True, 3]) or body[-1][1] == 3
        node = Node.parse(der)
        assert node.children[0].encode() == theirs.tbs_certificate_bytes
        assert node.encode() == der


def authorities() -> list[bytes]:
    """Certificates that were made by others over thirty years: those that this system and pip trust."""
    found = []
    for path in (ssl.get_default_verify_paths().cafile, "/etc/ssl/certs/ca-certificates.crt", certificates_of_pip()):
        if path is not None and Path(path).is_file():
            text = Path(path).read_text(encoding="utf-8")
            found += re.findall("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", text, re.DOTALL)
    return sorted({ssl.PEM_cert_to_DER_cert(one) for one in found})


def certificates_of_pip() -> str | None:
    spec = importlib.util.find_spec("pip")
    if spec is None or spec.origin is None:
        return None
    return str(Path(spec.origin).parent / "_vendor" / "certifi" / "cacert.pem")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what cryptography has to say about them
def test_certificates_of_real_authorities() -> None:
    """All are DER, have the values that cryptography and pyasn1 see, and can be taken apart and put together."""
    x509 = pytest.importorskip("cryptography.x509", reason="pip install cryptography to compare certificates")
    corpus = authorities()
    if not corpus:
        pytest.skip("needs certificates: install the Debian package ca-certificates")
    assert len(corpus) > 50
    for number, der in enumerate(corpus):
        theirs = x509.load_der_x509_certificate(der)
        value, end = ber.decode(der, strict=True, text=True, times=True)
        assert end == len(der)
        # Version 1 has no element for the version.
        body = value[0] if value[0][0] == ("context", 0, [2]) else [None, *value[0]]
        assert body[1] == theirs.serial_number
        assert body[4] == [theirs.not_valid_before_utc, theirs.not_valid_after_utc]
        assert [part[1] for pairs in body[5] for part in pairs] == [part.value for part in theirs.subject]
        node = Node.parse(der)
        assert node.encode() == der and node.children[0].encode() == theirs.tbs_certificate_bytes
        if number % 20 == 0:  # it takes long
            assert der_encoder.encode(der_decoder.decode(der)[0]) == der


# Where we refuse what pyasn1 reads, on purpose: the words of our error.
STRICTER = (
    "indefinite",  # its codec reads open lengths; ours only when asked
    "UTF-8",  # it leaves the bytes unread until somebody asks for the text
    "unused bits",
    "leading zeros",  # padded tags and arcs
    "below 31",
    "BOOLEAN",  # it takes any number of bytes
    "NULL",
    "primitive",  # a constructed INTEGER and the like
    "constructed",
    "arcs",
    "segment",
    "REAL",
    "reserved",
)


@pytest.mark.slow
def test_damaged_certificates(corpus: list[bytes]) -> None:
    """Both accept and see the same end, or the difference is one of those written down here."""
    choice = random.Random(20)
    both = 0
    for data in damaged(corpus[0], choice, 1_000):
        try:
            end = ber.decode(data)[1]
            ours = ""
        except DecodeError as exc:
            ours = str(exc)
        try:
            theirs = ber_decoder.decode(data)[1]
        except Exception:
            # Without a schema it cannot guess what other classes and rare types are.
            assert ours or unknown_without_schema(data[:end]), data.hex()
            continue
        if ours:
            assert any(words in ours for words in STRICTER), (ours, data.hex())
        else:
            both += 1
            assert len(data) - len(theirs) == end
    assert both > 50


def unknown_without_schema(data: bytes) -> bool:
    """Whether there is a type of another class, one that pyasn1 has no decoder for, or one without content."""
    known = (1, 2, 3, 4, 5, 6, 9, 10, 12, 16, 17, *range(18, 29), 30)
    stack = [Node.parse(data)]
    while stack:
        node = stack.pop()
        empty = not node.content and node.tag in (1, 2, 3, 10)
        if node.flags & 0xC0 or node.tag not in known or empty:
            return True
        stack += node.children
    return False
