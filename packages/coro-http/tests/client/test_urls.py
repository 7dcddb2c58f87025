"""URLs of the client: what is taken, what is refused, and relative references."""

import pytest

from coro.http._client import urls
from coro.http.exceptions import UnsupportedURL


@pytest.mark.parametrize(
    ("text", "host", "port", "target"),
    [
        ("http://EXAMPLE.com", "example.com", 80, "/"),
        ("https://example.com", "example.com", 443, "/"),
        ("http://a?x=1", "a", 80, "/?x=1"),
        ("http://a:/b", "a", 80, "/b"),
        ("http://a:8080/b?c#d", "a", 8080, "/b?c"),
        ("http://[::1]:81/x", "::1", 81, "/x"),
        ("http://bücher.de/", "xn--bcher-kva.de", 80, "/"),
        ("http://a/b c/ü?q=ä d", "a", 80, "/b%20c/%C3%BC?q=%C3%A4%20d"),
        ("http://a/%41%zz%", "a", 80, "/%41%25zz%25"),
        ("http://a/?q=[1]{2}", "a", 80, "/?q=[1]%7B2%7D"),
        ("http://u:p@a/x", "a", 80, "/x"),
    ],
)
def test_parts(text, host, port, target):
    url = urls.parse(text)
    assert (url.host, url.port, url.target) == (host, port, target)


def test_user_and_password_are_no_part_of_the_text():
    url = urls.parse("http://us%65r:p%40ss@a/x#f")
    assert url.userinfo == ("user", "p@ss")
    assert str(url) == "http://a/x#f"
    assert "ss" not in repr(url)


@pytest.mark.parametrize(
    ("text", "authority"),
    [
        ("http://a:80", "a"),
        ("https://a:80", "a:80"),
        ("http://[::1]", "[::1]"),
        ("http://[fe80::1%25eth0]:8080", "[fe80::1]:8080"),
    ],
)
def test_host_header(text, authority):
    assert urls.parse(text).authority == authority


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/x",
        "//a/x",
        "http:",
        "http:/x",
        "http://",
        "http:///x",
        "ftp://a/",
        "javascript:alert(1)",
        "http://a b/",
        "http://a:0/",
        "http://a:65536/",
        "http://a:-1/",
        "http://a:+80/",
        "http://a:8_0/",
        "http://a:８０/",
        "http://[::1/",
        "http://[::1]x/",
        "http://[v1.x]/",
        "http://[fe80::1%25]/",
        "http://a%2fb/",
        "http://a,b/",
        "http://-/",
        "http://good.example\\@evil.example/",
        "http://a\\b/",
        "http://ex\u2100mple\u3000com/",
        "http://" + "a" * 70000,
        "http://a/\ud800",
    ],
)
def test_refused(text):
    with pytest.raises(UnsupportedURL):
        urls.parse(text)


@pytest.mark.parametrize("control", ["\r", "\n", "\t", "\0", "\x7f", "\x1f"])
@pytest.mark.parametrize("template", ["http://a{}b/", "http://a/b{}c", "http://a/?b{}", "{}http://a/", "http://u{}@a/"])
def test_control_characters_are_refused_everywhere(control, template):
    with pytest.raises(UnsupportedURL, match="control characters"):
        urls.parse(template.format(control))
    with pytest.raises(UnsupportedURL):
        urls.join(urls.parse("http://a/"), template.format(control))


def test_other_types_are_refused():
    with pytest.raises(TypeError, match="expected a URL as a str, not bytes"):
        urls.parse(b"http://a/")


# RFC 3986 section 5.4.
EXAMPLES = {
    "g": "http://a/b/c/g",
    "./g": "http://a/b/c/g",
    "g/": "http://a/b/c/g/",
    "/g": "http://a/g",
    "//g": "http://g/",
    "?y": "http://a/b/c/d;p?y",
    "g?y": "http://a/b/c/g?y",
    "#s": "http://a/b/c/d;p?q#s",
    "g#s": "http://a/b/c/g#s",
    "g?y#s": "http://a/b/c/g?y#s",
    ";x": "http://a/b/c/;x",
    "g;x": "http://a/b/c/g;x",
    "": "http://a/b/c/d;p?q",
    ".": "http://a/b/c/",
    "./": "http://a/b/c/",
    "..": "http://a/b/",
    "../": "http://a/b/",
    "../g": "http://a/b/g",
    "../..": "http://a/",
    "../../g": "http://a/g",
    "../../../g": "http://a/g",
    "../../../../g": "http://a/g",
    "/./g": "http://a/g",
    "/../g": "http://a/g",
    "g.": "http://a/b/c/g.",
    ".g": "http://a/b/c/.g",
    "g..": "http://a/b/c/g..",
    "..g": "http://a/b/c/..g",
    "./../g": "http://a/b/g",
    "./g/.": "http://a/b/c/g/",
    "g/./h": "http://a/b/c/g/h",
    "g/../h": "http://a/b/c/h",
    "g;x=1/./y": "http://a/b/c/g;x=1/y",
    "g;x=1/../y": "http://a/b/c/y",
    "g?y/./x": "http://a/b/c/g?y/./x",
    "g#s/../x": "http://a/b/c/g#s/../x",
    "%2e%2E/g": "http://a/b/g",
    "https://b/x": "https://b/x",
}


@pytest.mark.parametrize("reference", EXAMPLES)
def test_references(reference):
    assert str(urls.join(urls.parse("http://a/b/c/d;p?q"), reference)) == EXAMPLES[reference]


def test_a_reference_inherits_the_fragment():
    assert str(urls.join(urls.parse("http://a/b#here"), "/c")) == "http://a/c#here"
    assert str(urls.join(urls.parse("http://a/b#here"), "/c#there")) == "http://a/c#there"


def test_params():
    url = urls.parse("http://a/b?x=1")
    more = urls.with_params(url, {"y": [2, "ä b"], "z": None, "t": True, "f": False})
    assert more.target == "/b?x=1&y=2&y=%C3%A4+b&t=true&f=false"
    assert urls.with_params(urls.parse("http://a/"), [("a", 1), ("a", 2)]).target == "/?a=1&a=2"
    assert urls.with_params(urls.parse("http://a/"), "?q=a b").target == "/?q=a%20b"
    assert urls.with_params(url, None) is url


def test_a_line_break_in_params_is_encoded_or_refused():
    assert "\n" not in urls.with_params(urls.parse("http://a/"), {"a": "b\r\nHost: c"}).target
    with pytest.raises(UnsupportedURL):
        urls.with_params(urls.parse("http://a/"), "a=b\r\nHost: c")


def test_the_memory_of_urls_is_bounded():
    for number in range(urls.REMEMBERED + 50):
        urls.parse(f"http://host-{number}/")
    assert len(urls._known) <= urls.REMEMBERED
    assert urls.parse("http://host-1/") == "http://host-1/"


def test_another_scheme_is_refused_for_a_url_that_is_remembered():
    assert urls.parse("socks5://a:1", ("socks5",)).port == 1
    with pytest.raises(UnsupportedURL):
        urls.parse("socks5://a:1")
    with pytest.raises(UnsupportedURL):
        urls.parse(urls.parse("socks5://a:1", ("socks5",)))
