"""Logins by SASL: the examples of the RFCs, servers that lie, and which mechanism is chosen."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from coro.ldap import LocalError, SASLError, TLSRequired, sasl
from coro.ldap.exceptions import LDAPError
from coro.ldap.sasl import Scram, choose, mechanism, saslprep


def scram(name: str, nonce: str, **options) -> Scram:
    found = Scram(name, "user", "pencil", **options)
    found._nonce = nonce
    return found


def test_scram_sha_1_as_rfc_5802_has_it() -> None:
    login = scram("SCRAM-SHA-1", "fyko+d2lbbFgONRv9qkxdawL")
    assert login.start() == b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL"
    proof = login.step(b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096")
    assert proof == b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    assert not login.done
    assert login.step(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=") is None
    assert login.done


def test_scram_sha_256_as_rfc_7677_has_it() -> None:
    login = scram("SCRAM-SHA-256", "rOprNGfwEbeRWgbNEkqO")
    assert login.start() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    proof = login.step(b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    assert proof == b"c=biws,r=" + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    login.step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert login.done


def test_the_binding_is_part_of_what_is_proved() -> None:
    login = Scram(
        "SCRAM-SHA-256-PLUS", "a,b=c", "pencil", binding=("tls-server-end-point", b"\1\2"), authorization="u:x"
    )
    first = login.start()
    assert first.startswith(b"p=tls-server-end-point,a=u:x,n=a=2Cb=3Dc,r=")
    nonce = first.rpartition(b"r=")[2] + b"more"
    last = login.step(b"r=" + nonce + b",s=AAAA,i=4096")
    carried = base64.b64decode(last.split(b",")[0][2:])
    assert carried == b"p=tls-server-end-point,a=u:x,\1\2"


def test_a_client_that_could_bind_says_so_in_what_is_signed() -> None:
    assert Scram("SCRAM-SHA-256", "u", "p", supported=True).start().startswith(b"y,,")
    assert Scram("SCRAM-SHA-256", "u", "p").start().startswith(b"n,,")


@pytest.mark.parametrize(
    ("challenge", "about"),
    [
        (b"r=other,s=AAAA,i=4096", "nonce"),
        (b"r=mine,s=AAAA,i=4096", "nonce"),
        (b"r=minetheirs,s=AAAA,i=1", "rounds"),
        (b"r=minetheirs,s=AAAA,i=4095", "rounds"),
        (b"r=minetheirs,s=AAAA,i=2000000000", "rounds"),
        (b"r=minetheirs,s=AAAA,i=99999999999999", "challenge"),
        (b"r=minetheirs,s=AAAA,i=-1", "challenge"),
        (b"r=minetheirs,s=A,i=4096", "base64"),
        (b"m=x,r=minetheirs,s=AAAA,i=4096", "challenge"),
        (b"v=AAAA", "challenge"),
        (b"\xff", "UTF-8"),
        (b"", "challenge"),
        (b"x" * 100_000, "bytes"),
    ],
)
def test_scram_refuses_challenges_of_a_liar(challenge: bytes, about: str) -> None:
    login = scram("SCRAM-SHA-256", "mine")
    login.start()
    with pytest.raises(SASLError, match=about):
        login.step(challenge)
    with pytest.raises(SASLError):
        login.step(b"r=minetheirs,s=AAAA,i=4096")
    assert not login.done


@pytest.mark.parametrize("final", [b"v=AAAA", b"v=", b"e=invalid-proof", b"", b"v=" + b"A" * 43 + b"="])
def test_scram_refuses_a_server_that_does_not_know_the_password(final: bytes) -> None:
    login = scram("SCRAM-SHA-256", "mine")
    login.start()
    login.step(b"r=minetheirs,s=AAAA,i=4096")
    with pytest.raises(SASLError):
        login.step(final)
    assert not login.done


def test_no_secret_is_shown() -> None:
    for name in ("SCRAM-SHA-256", "DIGEST-MD5", "PLAIN", "CRAM-MD5"):
        assert "pencil" not in repr(mechanism(name, user="user", password="pencil"))


@pytest.mark.parametrize(
    ("text", "prepared"),
    [("I\u00adX", "IX"), ("user", "user"), ("USER", "USER"), ("\u00aa", "a"), ("\u2168", "IX"), ("a\u00a0b", "a b")],
)
def test_saslprep_as_rfc_4013_has_it(text: str, prepared: str) -> None:
    assert saslprep(text) == prepared


@pytest.mark.parametrize("text", ["\x07", "\u06271", "a\u0627", "\u0221", "\ud800", "a\0"])
def test_saslprep_refuses(text: str) -> None:
    with pytest.raises(LocalError):
        saslprep(text)


def test_plain_as_rfc_4616_has_it() -> None:
    login = mechanism("PLAIN", user="tim", password="tanstaaftanstaaf")
    assert login.start() == b"\0tim\0tanstaaftanstaaf"
    assert login.done
    assert (
        mechanism("PLAIN", user="Kurt", password="xipj3plmq", authorization="Ursel").start()
        == b"Ursel\0Kurt\0xipj3plmq"
    )


def test_cram_md5_as_rfc_2195_has_it() -> None:
    login = mechanism("CRAM-MD5", user="tim", password="tanstaaftanstaaf")
    assert login.start() is None
    assert login.step(b"<1896.697170952@postoffice.reston.mci.net>") == b"tim b913a602c7eda7a495b4e6e7334d3890"
    assert login.done
    with pytest.raises(SASLError):
        login.step(b"<once@more>")


CHALLENGE = b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'


def digest(**options):
    login = mechanism(
        "DIGEST-MD5", user="chris", password="secret", service="imap", host="elwood.innosoft.com", **options
    )
    login._inner.chosen_cnonce = b"OA6MHXh6VqTrRk"
    return login


def test_digest_md5_as_rfc_2831_has_it() -> None:
    login = digest()
    assert login.start() is None
    answer = login.step(CHALLENGE)
    fields = dict(part.split(b"=", 1) for part in answer.split(b","))
    assert fields[b"response"] == b"d388dad90d4bbd760a152321f2143af7"
    assert fields[b"digest-uri"] == b'"imap/elwood.innosoft.com"'
    assert fields[b"charset"] == b"utf-8" and fields[b"nc"] == b"00000001"
    assert not login.done
    assert login.step(b"rspauth=ea40f60335c427b5527b84dbabcdfffd") is None
    assert login.done


@pytest.mark.parametrize(
    "challenges",
    [
        [b"rspauth=ea40f60335c427b5527b84dbabcdfffd"],  # the proof instead of a challenge
        [CHALLENGE + b",rspauth=ea40f60335c427b5527b84dbabcdfffd"],
        [CHALLENGE, CHALLENGE],
        [CHALLENGE, b"rspauth=ea40f60335c427b5527b84dbabcdfffe"],
        [CHALLENGE, b""],
        [b'realm="x",qop="auth",algorithm=md5-sess'],
        [b'nonce="x",qop="auth"'],
        [b'nonce="x",qop="auth-conf",algorithm=md5-sess'],
        [b'nonce="x",qop="auth",algorithm=md5-sess,charset=latin-1'],
        [b"\xff\xfe"],
        [b"\xff=1"],
        [b"x" * 10_000],
        [b""],
    ],
)
def test_digest_md5_refuses_a_liar(challenges: list[bytes]) -> None:
    login = digest()
    with pytest.raises(SASLError):
        for one in challenges:
            login.step(one)
    assert not login.done


def test_random_numbers_of_digest_md5_are_long_and_differ() -> None:
    found = set()
    for _ in range(20):
        login = mechanism("DIGEST-MD5", user="chris", password="secret", host="x")
        answer = login.step(CHALLENGE)
        found.add(answer.partition(b'cnonce="')[2].partition(b'"')[0])
    assert len(found) == 20 and min(map(len, found)) >= 32


def test_digest_md5_hashes_names_in_latin_1_where_that_is_possible() -> None:
    login = mechanism("DIGEST-MD5", user="jürgen", password="sécret", host="h")
    login._inner.chosen_cnonce = b"c"
    fields = dict(part.split(b"=", 1) for part in login.step(CHALLENGE).split(b","))
    assert fields[b"username"] == '"jürgen"'.encode()

    def hexed(data: bytes) -> bytes:
        return hashlib.md5(data).hexdigest().encode()

    key = hashlib.md5("jürgen:elwood.innosoft.com:sécret".encode("latin-1")).digest()
    first = hexed(key + b":OA6MG9tEQGm2hh:c")
    wanted = hexed(first + b":OA6MG9tEQGm2hh:00000001:c:auth:" + hexed(b"AUTHENTICATE:ldap/h"))
    assert hmac.compare_digest(fields[b"response"], wanted)


def test_external() -> None:
    login = mechanism("EXTERNAL", authorization="dn:cn=x")
    assert login.start() == b"dn:cn=x" and login.done
    with pytest.raises(SASLError):
        login.step(b"what?")


def test_gssapi_says_what_is_missing() -> None:
    from puresasl import mechanisms

    if not mechanisms.have_kerberos:
        with pytest.raises(LocalError, match="kerberos"):
            mechanism("GSSAPI", host="x")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("NTLM", {"user": "u", "password": "p"}),
        ("PLAIN", {"user": "u"}),
        ("PLAIN", {"user": "u\0v", "password": "p"}),
        ("SCRAM-SHA-256", {"password": "p"}),
        ("SCRAM-SHA-256-PLUS", {"user": "u", "password": "p"}),
        ("SCRAM-SHA-256", {"user": "u", "password": "p", "binding": ("tls-exporter", b"x")}),
    ],
)
def test_mistakes_of_the_caller(name: str, options: dict) -> None:
    with pytest.raises(LDAPError):
        mechanism(name, **options)


def test_the_best_mechanism_is_chosen() -> None:
    offered = [
        "PLAIN",
        "cram-md5",
        "DIGEST-MD5",
        "SCRAM-SHA-1",
        "SCRAM-SHA-256",
        "SCRAM-SHA-256-PLUS",
        "GSSAPI",
        "NTLM",
    ]
    login = {"user": "u", "password": "p"}
    assert choose(offered, secure=True, bindable=True, **login) == "SCRAM-SHA-256-PLUS"
    assert choose(offered, secure=True, **login) == "SCRAM-SHA-256"
    assert choose(offered[:4], secure=False, **login) == "SCRAM-SHA-1"
    assert choose(offered[:2], secure=False, **login) == "CRAM-MD5"
    assert choose(["PLAIN"], secure=True, **login) == "PLAIN"
    assert choose([], secure=True) == "EXTERNAL"
    with pytest.raises(TLSRequired):
        choose(["PLAIN", "NTLM"], secure=False, **login)
    with pytest.raises(SASLError, match="NTLM"):
        choose(["NTLM"], secure=True, **login)


def test_no_channel_binding_without_tls() -> None:
    assert sasl.channel_binding(None) is None
    assert sasl.end_point(b"no certificate") is None
