"""Hashes of passwords, and the server's side of SCRAM."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os

import pytest

from coro.ldap.server import Refused, check_password, hash_password, scram_password
from coro.ldap.server.passwords import scram_keys
from coro.ldap.server.sasl import Keys, Scram, keys_of_password, parse_keys

SCHEMES = ("SSHA", "SSHA256", "SSHA384", "SSHA512", "PBKDF2-SHA1", "PBKDF2-SHA256", "PBKDF2-SHA512", "CLEARTEXT")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_round_trip(scheme: str) -> None:
    stored = hash_password("pässword", scheme, rounds=10)
    assert check_password(stored, "pässword".encode())
    assert not check_password(stored, b"password")
    assert not check_password(stored, b"")


@pytest.mark.parametrize(
    "stored",
    [
        # printf secret | openssl dgst -sha1 -binary | base64, and so on.
        b"{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=",
        b"{MD5}Xr4ilOzQ4PCOq3aQ0qbuaQ==",
        b"{ssha}" + base64.b64encode(hashlib.sha1(b"secretsalt").digest() + b"salt"),
        b"{PBKDF2}1$c2FsdA$" + base64.b64encode(hashlib.pbkdf2_hmac("sha1", b"secret", b"salt", 1)).rstrip(b"="),
    ],
)
def test_values_of_others(stored: bytes) -> None:
    assert check_password(stored, b"secret")
    assert not check_password(stored, b"Secret")


def test_crypt() -> None:
    # openssl passwd -5 -salt saltstring "Hello world!"
    stored = b"{CRYPT}$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5"
    from coro.ldap.server.passwords import _libcrypt

    if _libcrypt() is None:
        pytest.skip("needs crypt(3)")
    assert check_password(stored, b"Hello world!")
    assert not check_password(stored, b"Hello world")


@pytest.mark.parametrize(
    "stored",
    [b"{SSHA}", b"{SSHA}!!", b"{PBKDF2-SHA256}x$y$z", b"{PBKDF2-SHA256}99999999999$c2FsdA$c2FsdA", b"{PBKDF2}1$$",
     b"{ARGON2}x", b"{CRYPT}", b"{", b"{SHA}"],
)  # fmt: skip
def test_malformed_values_fit_nothing(stored: bytes) -> None:
    assert not check_password(stored, b"x")
    assert not check_password(stored, b"")


def client_final(mechanism: str, password: bytes, first: str, challenge: bytes) -> bytes:
    name = {"SCRAM-SHA-1": "sha1", "SCRAM-SHA-256": "sha256"}[mechanism]
    fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
    salted = hashlib.pbkdf2_hmac(name, password, base64.b64decode(fields["s"]), int(fields["i"]))
    key = hmac.digest(salted, b"Client Key", name)
    bare = f"c=biws,r={fields['r']}"
    signed = f"{first.removeprefix('n,,')},{challenge.decode()},{bare}".encode()
    signature = hmac.digest(hashlib.new(name, key).digest(), signed, name)
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    return f"{bare},p={base64.b64encode(proof).decode()}".encode()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1", "SCRAM-SHA-256"])
def test_scram(mechanism: str) -> None:
    stored = parse_keys(mechanism, scram_password("pencil", mechanism))
    for keys in (stored, keys_of_password(mechanism, "fred", b"pencil")):
        first = "n,,n=fred,r=abc"
        exchange = Scram(mechanism, lambda user, keys=keys: keys if user == "fred" else None)
        challenge = exchange.step(first.encode())
        assert exchange.step(client_final(mechanism, b"pencil", first, challenge)).startswith(b"v=")
        assert exchange.done and exchange.user == "fred"
        exchange = Scram(mechanism, lambda user, keys=keys: keys)
        challenge = exchange.step(first.encode())
        with pytest.raises(Refused):
            exchange.step(client_final(mechanism, b"pen", first, challenge))
        assert not exchange.done


def test_the_keys_of_rfc_7677() -> None:
    """Its example, section 3: the password "pencil"."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    stored, server = scram_keys(b"pencil", "SCRAM-SHA-256", salt, 4096)
    signed = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    assert base64.b64encode(hmac.digest(server, signed, "sha256")) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    key = bytes(a ^ b for a, b in zip(proof, hmac.digest(stored, signed, "sha256"), strict=True))
    assert hashlib.sha256(key).digest() == stored


def test_unknown_users_get_the_same_salt_each_time() -> None:
    salts = set()
    for _ in range(3):
        exchange = Scram("SCRAM-SHA-256", lambda user: None)
        challenge = exchange.step(b"n,,n=nobody,r=abc")
        salts.add(challenge.split(b",")[1])
        with pytest.raises(Refused):
            exchange.step(client_final("SCRAM-SHA-256", b"x", "n,,n=nobody,r=abc", challenge))
    assert len(salts) == 1


@pytest.mark.parametrize(
    "first, last",
    [
        (b"", None), (b"\xff", None), (b"p=tls-unique,,n=fred,r=abc", None), (b"n,,n=fred", None),
        (b"n,,n=fr=ed,r=abc", None), (b"n,,n=fred,r=abc", b"c=biws,r=other,p=AAAA"), (b"n,,n=fred,r=abc", b"junk"),
        (b"n,,n=fred,r=abc", b"\xff"),
    ],
)  # fmt: skip
def test_malformed_messages(first: bytes, last: bytes | None) -> None:
    exchange = Scram("SCRAM-SHA-256", lambda user: Keys(b"salt", 4096, os.urandom(32), os.urandom(32)))
    with pytest.raises(Refused):
        exchange.step(first)
        assert last is not None
        exchange.step(last)
