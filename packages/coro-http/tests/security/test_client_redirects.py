"""What belongs to one origin is not sent to another (CVE-2018-18074, CVE-2023-32681, CVE-2024-37891 of other clients),
and redirects lead to HTTP servers only, and to an end."""

import pytest
from client_support import hello, site

from coro.http.client import BasicAuth, BearerAuth, Client, CookieJar, DigestAuth
from coro.http.exceptions import RequestError, TooManyRedirects, UnsupportedURL
from coro.testing import coro_test

pytestmark = pytest.mark.usefixtures("leaves_nothing")

SECRETS = ("authorization", "cookie", "proxy-authorization", "x-api-key", "x-auth-token")


def secrets(seen):
    return {name.lower(): value for name, value in seen.fields if name.lower() in SECRETS}


def leading_to(place):
    return lambda seen: (302, [("Location", place())], b"") if seen.target == "/from" else hello(seen)


@pytest.mark.parametrize(
    "how",
    [
        {"auth": ("u", "p")},
        {"auth": BearerAuth("t")},
        {"headers": {"Authorization": "x"}},
        {"headers": {"Cookie": "a=b"}},
        {"headers": {"PROXY-authorization": "x"}},
        {"headers": {"X-API-Key": "x", "X-Auth-Token": "y"}},
        {"cookies": {"a": "b"}},
    ],
)
@coro_test
def test_another_port_is_another_origin(how):
    with site(hello) as other, site(leading_to(lambda: other.url + "/to")) as first, Client(cookies=False) as client:
        client.get(first.url + "/from", **how)
        assert secrets(first.seen[0])
        assert secrets(other.seen[0]) == {}


@pytest.mark.parametrize(
    "how", [{"auth": ("u", "p")}, {"headers": {"Authorization": "x", "X-Api-Key": "y"}}, {"headers": {"Cookie": "a=b"}}]
)
@coro_test
def test_what_the_whole_client_has_does_not_leak_either(how):
    with site(hello) as other, site(leading_to(lambda: other.url + "/to")) as first:
        with Client(cookies=False, **how) as client:
            for _ in range(2):
                client.get(first.url + "/from")
        assert secrets(first.seen[0])
        assert [secrets(seen) for seen in other.seen] == [{}, {}]
        with Client(cookies=False, base_url=first.url, **how) as client:
            client.get(other.url + "/direct")
            client.get("/x")
        assert secrets(other.seen[2]) == {} and secrets(first.seen[2])


@coro_test
def test_another_name_of_the_same_address_is_another_origin():
    with site(hello) as other, site(leading_to(lambda: f"http://localhost:{other.port}/to")) as first:
        with Client() as client:
            client.get(first.url + "/from", auth=("u", "p"))
        assert secrets(other.seen[0]) == {} and other.seen[0].get("host") == f"localhost:{other.port}"


@coro_test
def test_a_redirect_back_home_brings_nothing_back():
    with site(lambda s: (302, [("Location", first.url + "/home")], b"")) as other:
        with site(leading_to(lambda: other.url)) as first, Client() as client:
            client.get(first.url + "/from", auth=("u", "p"), headers={"X-Api-Key": "k"})
            assert [bool(secrets(s)) for s in first.seen] == [True, False]
            assert secrets(other.seen[0]) == {}


@coro_test
def test_credentials_stay_within_one_origin():
    with site(leading_to(lambda: "/to")) as first, Client() as client:
        client.get(first.url + "/from", auth=("u", "p"), headers={"X-Api-Key": "k"})
        assert secrets(first.seen[0]) == secrets(first.seen[1]) != {}


@coro_test
def test_another_server_s_challenge_is_not_answered():
    challenge = [
        ("WWW-Authenticate", 'Digest realm="r", nonce="n", qop="auth"'),
        ("WWW-Authenticate", 'Basic realm="r"'),
    ]
    with site(lambda s: (401, challenge, b"")) as other, site(leading_to(lambda: other.url)) as first:
        for auth in (DigestAuth("u", "p"), BasicAuth("u", "p")):
            with Client(auth=auth) as client:
                assert client.get(first.url + "/from").status == 401
        assert [secrets(s) for s in other.seen] == [{}, {}]


@coro_test
def test_user_and_password_in_a_location_are_not_used():
    with site(hello) as other, site(leading_to(lambda: other.url.replace("//", "//u:p@"))) as first, Client() as client:
        assert client.get(first.url + "/from").status == 200
        assert secrets(other.seen[0]) == {}


@coro_test
def test_cookies_of_a_jar_follow_their_host():
    jar = CookieJar()
    with site(hello) as other, site(leading_to(lambda: f"http://localhost:{other.port}/")) as first:
        jar.set("session", "secret", host="127.0.0.1")
        jar.set("theirs", "1", host="localhost")
        with Client(cookies=jar) as client:
            client.get(first.url + "/from")
        assert first.seen[0].get("cookie") == "session=secret"
        assert other.seen[0].get("cookie") == "theirs=1"


@pytest.mark.parametrize(
    "location",
    [
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        "javascript:alert(1)",
        "gopher://127.0.0.1/",
        "http://",
        "http:/etc",
        "//",
        "http://good\\@127.0.0.1/",
        "http://127.0.0.1:99999/",
        "http://a b/",
        "/\tx",
    ],
)
@coro_test
def test_locations_that_are_refused(location):
    with site(leading_to(lambda: location)) as first, Client() as client:
        with pytest.raises(UnsupportedURL):
            client.get(first.url + "/from")
        assert client.statistics().used == 0


@coro_test
def test_two_locations_are_refused():
    answer = (302, [("Location", "/a"), ("Location", "/b")], b"")
    with site(lambda s: answer if s.target == "/from" else hello(s)) as first, Client() as client:
        with pytest.raises(RequestError, match="expected one Location"):
            client.get(first.url + "/from")


@coro_test
def test_a_loop_ends():
    with site(lambda s: (301, [("Location", "/")], b"")) as first, Client() as client:
        for _ in range(2):
            with pytest.raises(TooManyRedirects):
                client.get(first.url)
        assert len(first.seen) == 22
