"""The cookie jar: RFC 6265, and that no host gets what is another's."""

import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coro.http import cookie_jar
from coro.http.cookie_jar import Cookie, CookieJar, PublicSuffixes
from coro.http.exceptions import LocalError

SUFFIXES = PublicSuffixes(
    ["// comment", "com", "uk", "co.uk", "github.io", "*.ck", "!www.ck", "公司.cn  // a remark", ""]
)


class Clock:
    now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def jar(clock):
    return CookieJar(suffixes=SUFFIXES, clock=clock)


def test_a_cookie_goes_back_to_its_host_only(jar):
    jar.extract("http://a.example.com/", ["x=1"])
    assert jar.header("http://a.example.com/y") == "x=1"
    assert jar.header("http://example.com/") == ""
    assert jar.header("http://b.a.example.com/") == ""
    assert jar.header("http://xa.example.com/") == ""


def test_domain_widens_to_hosts_below(jar):
    jar.extract("http://a.example.com/", ["x=1; Domain=.Example.COM"])
    assert jar.header("http://example.com/") == "x=1"
    assert jar.header("http://b.example.com/") == "x=1"
    assert jar.header("http://badexample.com/") == ""


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("a.example.com", "com"),
        ("a.example.co.uk", "co.uk"),
        ("me.github.io", "github.io"),
        ("a.b.ck", "b.ck"),
        ("a.example.com", "other.com"),
        ("example.com", "a.example.com"),
        ("127.0.0.1", "0.0.1"),
        ("127.0.0.1", "1"),
        ("x.公司.cn".encode("idna").decode(), "公司.cn"),
    ],
)
def test_domains_that_are_not_the_hosts_to_give(jar, host, domain):
    jar.extract(f"http://{host}/", [f"x=1; Domain={domain}"])
    assert len(jar) == 0


def test_a_public_suffix_may_set_cookies_for_itself(jar):
    jar.extract("http://github.io/", ["x=1; Domain=github.io"])
    assert jar.header("http://github.io/") == "x=1"
    assert jar.header("http://me.github.io/") == ""


def test_an_exception_of_the_list(jar):
    jar.extract("http://a.www.ck/", ["x=1; Domain=www.ck"])
    assert jar.header("http://www.ck/") == "x=1"


def test_without_a_list_no_cookie_is_widened(monkeypatch):
    monkeypatch.setattr(cookie_jar, "SUFFIX_FILES", ("/nonexistent/list",))
    jar = CookieJar()
    jar.extract("http://me.github.io/", ["x=1; Domain=github.io"])
    assert jar.header("http://me.github.io/") == "x=1"
    assert jar.header("http://you.github.io/") == ""


def test_the_systems_list_is_used(monkeypatch, tmp_path):
    path = tmp_path / "list"
    path.write_text("com\n")
    monkeypatch.setattr(cookie_jar, "SUFFIX_FILES", ("/nonexistent/list", str(path)))
    jar = CookieJar()
    jar.extract("http://a.example.com/", ["x=1; Domain=example.com"])
    assert jar.header("http://b.example.com/") == "x=1"


def test_addresses_have_no_subdomains(jar):
    jar.extract("http://127.0.0.1/", ["x=1; Domain=127.0.0.1"])
    assert jar.header("http://127.0.0.1/") == "x=1"
    assert jar.header("http://1.127.0.0.1/") == ""


def test_ports_are_not_told_apart(jar):
    # RFC 6265 section 8.5: "Cookies do not provide isolation by port."
    jar.extract("http://a.example.com:81/", ["x=1"])
    assert jar.header("http://a.example.com:82/") == "x=1"


def test_secure_cookies_go_over_tls_only(jar):
    jar.extract("https://a.example.com/", ["x=1; Secure"])
    assert jar.header("http://a.example.com/") == ""
    assert jar.header("https://a.example.com/") == "x=1"


def test_plain_http_sets_and_overwrites_no_secure_cookie(jar):
    jar.extract("http://a.example.com/", ["y=1; Secure"])
    assert len(jar) == 0
    jar.extract("https://a.example.com/", ["x=1; Secure; Path=/"])
    jar.extract("http://a.example.com/", ["x=evil; Path=/"])
    jar.extract("http://b.example.com/", ["x=evil; Domain=example.com; Path=/"])
    assert jar.header("https://a.example.com/") == "x=1"


@pytest.mark.parametrize(
    ("line", "taken"),
    [
        ("__Host-x=1; Secure; Path=/", True),
        ("__Host-x=1; Path=/", False),
        ("__Host-x=1; Secure", False),
        ("__host-x=1; Secure; Path=/; Domain=a.example.com", False),
        ("__Secure-x=1; Secure", True),
        ("__Secure-x=1", False),
        ("=__Host-x=1", False),
        ("novalue", False),
    ],
)
def test_prefixes(jar, line, taken):
    jar.extract("https://a.example.com/", [line])
    assert len(jar) == taken


@pytest.mark.parametrize(
    ("set_at", "attribute", "asked", "sent"),
    [
        ("/a/b", "", "/a/c", True),
        ("/a/b", "", "/a", True),
        ("/a/b", "", "/ab", False),
        ("/a", "", "/b", True),
        ("/", "; Path=/x", "/x", True),
        ("/", "; Path=/x", "/x/y", True),
        ("/", "; Path=/x", "/xy", False),
        ("/", "; Path=/x/", "/x", False),
        ("/a/b", "; Path=relative", "/a/c", True),
        ("/a/b", "; Path=", "/a/c", True),
    ],
)
def test_paths(jar, set_at, attribute, asked, sent):
    jar.extract(f"http://a.example.com{set_at}", [f"x=1{attribute}"])
    assert bool(jar.header(f"http://a.example.com{asked}")) is sent


def test_order_is_longest_path_first_then_oldest(jar, clock):
    for name, path in (("a", "/"), ("b", "/x"), ("c", "/"), ("d", "/x")):
        clock.now += 1
        jar.extract("http://h.example.com/", [f"{name}=1; Path={path}"])
    clock.now += 1
    jar.extract("http://h.example.com/", ["a=2; Path=/"])
    assert jar.header("http://h.example.com/x") == "b=1; d=1; a=2; c=1"


def test_expiry(jar, clock):
    jar.extract("http://a.example.com/", ["x=1; Max-Age=10", "y=2; Expires=Wed, 09 Jun 2100 10:18:14 GMT", "z=3"])
    assert jar.header("http://a.example.com/") == "x=1; y=2; z=3"
    clock.now += 11
    assert jar.header("http://a.example.com/") == "y=2; z=3"
    jar.end_session()
    assert jar.header("http://a.example.com/") == "y=2"
    clock.now += 401 * 86400
    assert jar.header("http://a.example.com/") == ""


@pytest.mark.parametrize("gone", ["Max-Age=0", "Max-Age=-5", "Expires=Thu, 01 Jan 1970 00:00:00 GMT"])
def test_a_cookie_is_taken_back(jar, gone):
    jar.extract("http://a.example.com/", ["x=1"])
    jar.extract("http://a.example.com/", [f"x=; {gone}"])
    assert len(jar) == 0
    assert jar._hosts == {}


def test_max_age_counts_before_expires(jar):
    jar.extract("http://a.example.com/", ["x=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT; Max-Age=10"])
    assert len(jar) == 1


@pytest.mark.parametrize("age", ["1e3", "+5", "0x5", "５", "ten", ""])
def test_a_malformed_max_age_is_ignored(jar, age):
    jar.extract("http://a.example.com/", [f"x=1; Max-Age={age}"])
    assert next(iter(jar)).expires is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Sun, 06 Nov 1994 08:49:37 GMT", 784111777),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 784111777),
        ("Sun Nov  6 08:49:37 1994", 784111777),
        ("06 nov 94 8:49:37", 784111777),
        ("Sun, 06 Nov 2094 08:49:37 GMT", 3939871777),
        ("1 Jan 69 00:00:00", 3124224000),
        ("32 Jan 2000 00:00:00", None),
        ("1 Jan 2000 24:00:00", None),
        ("1 Jan 1600 00:00:00", None),
        ("1 Foo 2000 00:00:00", None),
        ("", None),
    ],
)
def test_dates(text, seconds):
    assert cookie_jar.parse_date(text) == seconds


@given(st.text(max_size=80))
def test_any_date_gives_a_number_or_nothing(text):
    assert cookie_jar.parse_date(text) is None or isinstance(cookie_jar.parse_date(text), float)


@given(st.lists(st.text(max_size=120), max_size=5))
def test_no_line_breaks_the_jar_or_the_header(lines):
    jar = CookieJar(suffixes=SUFFIXES)
    jar.extract("https://a.example.com/", lines)
    header = jar.header("https://a.example.com/")
    assert not any(c in header for c in "\r\n\0")


@pytest.mark.parametrize("line", ["x=1\r\nSet-Cookie: y=2", "x=\n", "x=1; Path=/\0", "x=\x7f"])
def test_control_characters_are_refused(jar, line):
    jar.extract("http://a.example.com/", [line])
    assert len(jar) == 0


def test_sizes_and_numbers_are_bounded(jar):
    jar.extract("http://a.example.com/", ["x=" + "a" * 5000])
    assert len(jar) == 0
    for number in range(60):
        jar.extract("http://a.example.com/", [f"c{number}=1"])
    assert len(jar) == cookie_jar.MOST_PER_HOST
    assert "c59=1" in jar.header("http://a.example.com/")
    for host in range(70):
        jar.extract(f"http://h{host}.example.com/", [f"c{n}=1" for n in range(50)])
    assert len(jar) <= cookie_jar.MOST_COOKIES
    jar.clear()
    jar.extract("http://a.example.com/", [f"c{n}=1" for n in range(1000)])
    assert len(jar) <= cookie_jar.MOST_FIELDS


def test_by_hand(jar):
    jar.set("a", "b", host="EXAMPLE.com", secure=True)
    assert jar.get("a") == jar.get("a", "example.com") == "b"
    assert jar.get("a", "other.com") is None
    assert jar.header("http://example.com/") == ""
    assert jar.header("https://example.com/") == "a=b"
    jar.delete("a", "example.com")
    assert jar.get("a", default="none") == "none"


@pytest.mark.parametrize(("name", "value"), [("a", "b\r\nX: y"), ("a;b", "c"), ("a", "b; c"), ("", "x"), ("a=b", "c")])
def test_injection_by_hand_is_refused(jar, name, value):
    with pytest.raises(LocalError):
        jar.set(name, value, host="example.com")


def test_saved_and_loaded(jar, clock, tmp_path):
    jar.extract(
        "https://a.example.com/", ["x=1; Domain=example.com; Secure; HttpOnly; SameSite=Lax; Max-Age=100", "y=2"]
    )
    path = tmp_path / "jar.json"
    jar.save(path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    other = CookieJar(clock=clock)
    other.load(path)
    assert sorted(other, key=lambda c: c.name) == sorted(jar, key=lambda c: c.name)
    assert other.header("https://b.example.com/") == "x=1"
    assert os.listdir(tmp_path) == ["jar.json"]


@pytest.mark.parametrize(
    "text",
    ["[]", "{}", '{"cookies": [{"nome": "x"}]}', '{"cookies": [{"name": "x\\r\\n", "value": "", "host": "a"}]}', "x"],
)
def test_another_file_is_refused(jar, tmp_path, text):
    path = tmp_path / "jar.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"."):
        jar.load(path)
    assert len(jar) == 0


def test_a_repr_shows_no_value(jar):
    jar.set("session", "secret", host="example.com")
    assert "secret" not in repr(jar) + repr(next(iter(jar)))
    assert repr(Cookie("a", "b", "h", widened=True)) == "<Cookie a for .h/>"
