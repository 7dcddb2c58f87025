"""Texts that make careless expressions try for ever (waitress 1.4.2, a regular expression for a header): whatever reads
a field of a request or of a response takes a time that grows with the length, not with its square or worse.

There is no clock in these tests. The texts are so long that what is worse than linear passes the limit of each test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coro.http import (
    _content,
    _ws_handshake,
    cookie_jar,
    cookies,
    forms,
    forwarded,
    handlers,
    http_date,
    static,
)
from coro.http._client import auth, urls
from coro.http.exceptions import HTTPError
from coro.http.websocket import Deflate

pytestmark = pytest.mark.slow

LENGTH = 200_000
#: What such an expression would go back over, and how the text may begin.
PIECES = [
    " ",
    "a",
    ";a",
    ";a=",
    ",",
    "; ",
    '"',
    '\\"',
    'a="\\',
    'a="b',
    "a=b,",
    "W/",
    "%4",
    "/../",
    "a.",
    "1",
    "[:",
    "q=0.",
]
BEGINNINGS = ["", 'a="']

READERS: dict[str, Callable[[str], Any]] = {
    "Content-Type": forms.parameters,
    "Cookie": cookies.parse_cookie,
    "Set-Cookie": lambda text: cookie_jar.CookieJar().extract(
        "http://h/", [text, "a=b; expires=" + text, "a=b; domain=" + text, "a=b; path=" + text]
    ),
    "Date": http_date.parse_http_date,
    "Forwarded": forwarded._elements,
    "Connection": lambda text: _ws_handshake.tokens([text]),
    "Sec-WebSocket-Extensions": lambda text: _ws_handshake.agree_deflate(Deflate(), [text]),
    "If-None-Match": lambda text: static.etag_matches(text, '"x"', True),
    "Range": lambda text: static.byte_range(text, 1000),
    "Accept-Encoding": _content.choose,
    "Authorization": lambda text: handlers.auth_handler({}, None).parse_authorization("Digest " + text),
    "WWW-Authenticate": lambda text: auth.parse_challenges(["Digest " + text]),
    "Location": lambda text: urls.parse("http://h/" + text, ("http", "https")),
    "Location, its host": lambda text: urls.parse("http://" + text, ("http", "https")),
}


@pytest.mark.parametrize("field", READERS)
def test_the_time_grows_with_the_length(field: str) -> None:
    for beginning in BEGINNINGS:
        for piece in PIECES:
            text = beginning + piece * (LENGTH // len(piece)) + "!"
            try:
                READERS[field](text)
            except (HTTPError, ValueError):
                continue
