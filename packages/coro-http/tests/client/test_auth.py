"""Digest, Basic and Bearer authentication: the examples of RFC 7616, and an own strict server."""

from __future__ import annotations

import hashlib

import pytest
from client_support import site

from coro.http._client import auth, urls
from coro.http._client.messages import Request, Response
from coro.http.client import BasicAuth, BearerAuth, Client, DigestAuth
from coro.http.exceptions import LocalError, RemoteError
from coro.testing import coro_test

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def fields(line):
    scheme, _, rest = line.partition(" ")
    return scheme, dict(auth._parameters(rest))


# RFC 7616 section 3.9.1
RFC_NONCE = "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v"
RFC_CNONCE = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ"


@pytest.mark.parametrize(
    ("algorithm", "answer"),
    [
        ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
        ("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
    ],
)
def test_the_example_of_the_rfc(algorithm, answer, monkeypatch):
    monkeypatch.setattr(auth.secrets, "token_hex", lambda n: RFC_CNONCE)
    request = Request("GET", urls.parse("http://www.example.org/dir/index.html"))
    line = (
        f'Digest realm="http-auth@example.org", qop="auth, auth-int", algorithm={algorithm}, nonce="{RFC_NONCE}", '
        'opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"'
    )
    digest = DigestAuth("Mufasa", "Circle of Life")
    assert digest.challenge(request, Response(401, {"WWW-Authenticate": line}))
    scheme, got = fields(request.headers["Authorization"])
    assert scheme == "Digest" and got["response"] == answer
    assert (got["nc"], got["qop"], got["username"], got["uri"]) == ("00000001", "auth", "Mufasa", "/dir/index.html")
    assert got["opaque"] == "FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"


def test_the_example_with_a_hashed_name(monkeypatch):
    # RFC 7616 section 3.9.2, with the response that erratum 4897 corrects.
    cnonce = "NTg6RKcb9boFIAS3KrFK9BGeh+iDa/sm6jUMp2wds69v"
    monkeypatch.setattr(auth.secrets, "token_hex", lambda n: cnonce)
    request = Request("GET", urls.parse("http://api.example.org/doe.json"))
    line = (
        'Digest realm="api@example.org", qop="auth", algorithm=SHA-512-256, '
        'nonce="5TsQWLVdgBdmrQ0XsxbDODV+57QdFR34I9HAbC/RVvkK", opaque="HRPCssKJSGjCrkzDg8OhwpzCiGPChXYjwrI2QmXDnsOS", '
        "charset=UTF-8, userhash=true"
    )
    digest = DigestAuth("J\u00e4s\u00f8n Doe", "Secret, or not?")
    assert digest.challenge(request, Response(401, {"WWW-Authenticate": line}))
    _, got = fields(request.headers["Authorization"])
    assert got["username"] == "793263caabb707a56211940d90411ea4a575adeccb7e360aeb624ed06ece9b0b"
    assert got["response"] == "3798d4131c277846293534c3edc11bd8a5e4cdcbff78b05db9d95eeb1cec68a5"


class Strict:
    """A server's side of Digest: each nonce count once, the URI that was asked for, a nonce that gets old."""

    def __init__(self, name="SHA-256", qop='"auth"', sess=False, uses=100):
        self.name, self.qop, self.uses = name, qop, uses
        self.hash = {"SHA-256": hashlib.sha256, "MD5": hashlib.md5}[name]
        self.algorithm = name + ("-sess" if sess else "")
        self.number = 0
        self.counts = set()

    def h(self, text):
        return self.hash(text.encode() if isinstance(text, str) else text).hexdigest()

    def challenge(self, stale=False):
        self.number += 1
        self.counts = set()
        qop = f", qop={self.qop}" if self.qop else ""
        more = ", stale=true" if stale else ""
        line = f'Digest realm="a \\"b\\"", nonce="n{self.number}", algorithm={self.algorithm}{qop}{more}'
        return 401, [("WWW-Authenticate", 'Basic realm="x", ' + line)], b"who?"

    def __call__(self, seen):
        line = seen.get("authorization")
        if line is None:
            return self.challenge()
        _, got = fields(line)
        if got["nonce"] != f"n{self.number}" or len(self.counts) >= self.uses:
            return self.challenge(stale=True)
        assert got["uri"] == seen.target
        a1 = self.h('us"er:a "b":pass')
        if self.algorithm.endswith("-sess"):
            a1 = self.h(f"{a1}:{got['nonce']}:{got['cnonce']}")
        a2 = f"{seen.method}:{got['uri']}"
        if got.get("qop") == "auth-int":
            a2 += ":" + self.h(seen.body)
        if self.qop:
            assert got["nc"] not in self.counts
            self.counts.add(got["nc"])
            want = self.h(f"{a1}:{got['nonce']}:{got['nc']}:{got['cnonce']}:{got['qop']}:{self.h(a2)}")
            proof = self.h(f"{a1}:{got['nonce']}:{got['nc']}:{got['cnonce']}:{got['qop']}:{self.h(':' + got['uri'])}")
        else:
            want, proof = self.h(f"{a1}:{got['nonce']}:{self.h(a2)}"), ""
        if got["response"] != want:
            return self.challenge()
        info = f'rspauth="{proof}", cnonce="{got.get("cnonce", "")}", qop={got.get("qop", "auth")}'
        return 200, [("Authentication-Info", info)] if self.qop and got["qop"] == "auth" else [], b"in"


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "server", [Strict(), Strict("MD5"), Strict(sess=True), Strict(qop='"auth-int"'), Strict("MD5", qop="")]
)
@coro_test
def test_digest_with_a_server(server, method):
    with site(server) as here, Client(auth=DigestAuth('us"er', "pass")) as client:
        for _ in range(3):
            assert client.request(method, here.url + "/x?y=z", content=b"b" if method == "POST" else None).text == "in"
        assert len(here.seen) == 4  # one challenge
        assert client.statistics().made == 1


@coro_test
def test_a_nonce_that_got_old():
    with site(Strict(uses=2)) as here, Client(auth=DigestAuth('us"er', "pass")) as client:
        for _ in range(5):
            assert client.get(here.url).text == "in"


@coro_test
def test_a_wrong_password_is_sent_once():
    with site(Strict()) as here, Client(auth=DigestAuth('us"er', "wrong")) as client:
        assert client.get(here.url).status == 401
        assert len(here.seen) == 2


@coro_test
def test_algorithms_that_are_not_wanted():
    with site(Strict("MD5")) as here, Client(auth=DigestAuth('us"er', "pass", algorithms=["SHA-256"])) as client:
        assert client.get(here.url).status == 401
        assert len(here.seen) == 1
    with pytest.raises(ValueError, match="expected algorithms of"):
        DigestAuth("a", "b", algorithms=["CRC32"])


@coro_test
def test_a_server_that_does_not_know_the_password():
    def liar(seen):
        if seen.get("authorization") is None:
            return 401, [("WWW-Authenticate", 'Digest realm="r", nonce="n", qop="auth"')], b""
        cnonce = fields(seen.get("authorization"))[1]["cnonce"]
        return 200, [("Authentication-Info", f'rspauth="{"0" * 32}", cnonce="{cnonce}", qop=auth')], b"in"

    with site(liar) as here, Client(auth=DigestAuth("u", "p")) as client:
        with pytest.raises(RemoteError, match="does not know the password"):
            client.get(here.url)


@pytest.mark.parametrize(
    "line",
    ["Digest", "Digest realm=x", "Digest nonce=x", "Digest realm=x, nonce=y, algorithm=FOO", 'Digest realm="', ",,,"],
)
@coro_test
def test_malformed_challenges(line):
    with site(lambda s: (401, [("WWW-Authenticate", line)], b"")) as here, Client(auth=DigestAuth("u", "p")) as client:
        assert client.get(here.url).status == 401
        assert len(here.seen) == 1


def test_challenges_are_told_apart():
    lines = [
        'Newauth realm="apps", type=1, title="Login to \\"apps\\"", Basic realm="simple"',
        "Negotiate abc==, Bearer",
    ]
    assert auth.parse_challenges(lines) == [
        ("newauth", {"realm": "apps", "type": "1", "title": 'Login to "apps"'}),
        ("basic", {"realm": "simple"}),
        ("negotiate", {}),
        ("bearer", {}),
    ]
    assert len(auth.parse_challenges(["a, " * 1000])) <= auth.MOST_CHALLENGES


def test_secrets_are_in_no_repr():
    for one in (BasicAuth("u", "geheim"), BearerAuth("geheim"), DigestAuth("u", "geheim")):
        assert "geheim" not in repr(one)
    with pytest.raises(LocalError, match="colon"):
        BasicAuth("a:b", "c")
    with pytest.raises(TypeError, match="auth is an Auth"):
        Client(auth=5)
