"""A client behind a trusted proxy chooses neither its address, nor the scheme, nor the host: proxies pass on the fields
they do not know, and add to those they know (RFC 7239 8.1)."""

from __future__ import annotations

from typing import Any

import pytest
from http_support import in_loop, messages, serving, talk

from coro.http.forwarded import KNOWN, Trusted, _elements

NEAR = {"trusted_proxies": ["127.0.0.0/8"]}
ALL = {**NEAR, "trusted_headers": KNOWN}
PROXY = b"PROXY TCP4 %b 5.6.7.8 99 80\r\n"


def who(request: Any) -> str:
    return f"{request.remote[0]} {request.scheme} {request.host}"


def ask(*lines: str) -> bytes:
    return "".join(f"{line}\r\n" for line in ("GET / HTTP/1.1", "Host: a", *lines, "")).encode()


def told(settings: dict[str, Any], *lines: str, before: bytes = b"") -> str:
    with serving(who, **settings) as server:
        return str(messages(talk(server, before + ask(*lines)))[0][2].decode())


@in_loop
def test_a_field_that_the_proxy_does_not_set_is_not_believed() -> None:
    theirs = "X-Forwarded-For: 6.6.6.6, 1.2.3.4"
    assert told(NEAR, "Forwarded: for=6.6.6.6;proto=https;host=evil", theirs) == "1.2.3.4 http a"
    assert told(NEAR, "X-Forwarded-Host: evil", theirs) == "1.2.3.4 http a"
    assert told({**NEAR, "trusted_headers": ["forwarded"]}, "Forwarded: for=6.6.6.6, for=1.2.3.4",
                "X-Forwarded-For: 6.6.6.6", "X-Forwarded-Proto: https") == "1.2.3.4 http a"  # fmt: skip
    with pytest.raises(ValueError, match="x-forwarded-for"):
        Trusted(["127.0.0.1"], ["x-real-ip"])


@pytest.mark.parametrize("junk", ["for=", 'for="', 'for="a, ', "for=6.6.6.6;", "=", ";;;", '"', "for=6.6.6.6;host=e v"])
@in_loop
def test_what_the_client_put_before_does_not_hide_what_the_proxy_says(junk: str) -> None:
    """Above all it does not make the client look like the proxy, whose address may be one of the house."""
    assert told(ALL, f"Forwarded: {junk}, for=1.2.3.4;proto=https") == "1.2.3.4 https a"
    assert told(ALL, f"Forwarded: {junk}", "Forwarded: for=1.2.3.4;proto=https") == "1.2.3.4 https a"


@in_loop
def test_only_what_trusted_proxies_say_of_scheme_and_host() -> None:
    assert told(ALL, "Forwarded: for=6.6.6.6;proto=https;host=evil, for=1.2.3.4") == "1.2.3.4 http a"
    assert told(ALL, "Forwarded: for=1.2.3.4;proto=https;host=b, for=127.0.0.2;proto=http") == "1.2.3.4 https b"
    assert told(NEAR, "X-Forwarded-For: 1.2.3.4", "X-Forwarded-Proto: https", "X-Forwarded-Proto: http").endswith(
        "http a"
    )


@in_loop
def test_each_request_of_a_proxy_s_connection_speaks_for_itself() -> None:
    """Proxies send requests of many clients over one connection."""
    several = [
        ask("X-Forwarded-For: 1.2.3.4", "X-Forwarded-Proto: https"),
        ask("X-Forwarded-For: 1.2.3.5"),
        ask("X-Forwarded-Proto: https"),
        ask(),
    ]
    with serving(who, **NEAR) as server:
        answers = [body.decode() for _, _, body in messages(talk(server, b"".join(several)))]
    assert answers == ["1.2.3.4 https a", "1.2.3.5 http a", "127.0.0.1 https a", "127.0.0.1 http a"]


@in_loop
def test_who_connects_through_a_proxy_of_connections_is_not_that_proxy() -> None:
    """What speaks the PROXY protocol does not look at the fields: they are the client's, who is not to be trusted."""
    settings = {**NEAR, "proxy_protocol": True}
    assert told(settings, "X-Forwarded-For: 6.6.6.6", before=PROXY % b"9.9.9.9") == "9.9.9.9 http a"
    assert told(settings, before=PROXY % b"9.9.9.9") == "9.9.9.9 http a"
    # Behind both: the PROXY header names the proxy of requests, which is trusted.
    assert told(settings, "X-Forwarded-For: 6.6.6.6, 1.2.3.4", before=PROXY % b"127.0.0.3") == "1.2.3.4 http a"
    assert told(settings, before=PROXY % b"127.0.0.3") == "127.0.0.3 http a"


def test_long_values_are_not_remembered() -> None:
    trusted = Trusted(["10.0.0.0/8"])
    assert trusted.client(["1.2.3.4", "x" * 10_000]) is None
    assert trusted.client(["1.2.3.4"] * 1000 + ["10.0.0.1"] * 40) == "10.0.0.1"
    assert len(_elements(",".join(["for=1.2.3.4"] * 1000))) == 32
