"""A name with an underscore is not the one with a hyphen (eventlet #959, CVE-2015-0219): in the environ of WSGI both
would become HTTP_X_FORWARDED_FOR, and only one of them was checked by the proxy in front."""

from __future__ import annotations

from typing import Any

import pytest
from http_support import in_loop, messages, serving, talk

from coro.http.wsgi import WSGIHandler

FORGED = ["X_Forwarded_For", "X-Forwarded_For", "x_forwarded-for", "X_FORWARDED_FOR", "_X-Forwarded-For"]


def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    names = sorted(name for name in environ if "FORWARDED" in name)
    return [",".join(f"{name}={environ[name]}" for name in names).encode() + b"|" + environ["REMOTE_ADDR"].encode()]


def ask(server: Any, *lines: str) -> str:
    head = "".join(f"{line}\r\n" for line in ("GET / HTTP/1.1", "Host: a", *lines, ""))
    return str(messages(talk(server, head.encode()))[0][2].decode())


@pytest.mark.parametrize("name", FORGED)
def test_an_underscore_is_no_hyphen(name: str) -> None:
    @in_loop
    def run() -> None:
        forged = f"{name}: 6.6.6.6"
        for settings in ({}, {"trusted_proxies": ["127.0.0.0/8"]}):
            with serving(WSGIHandler(app), **settings) as server:  # type: ignore[arg-type]
                client = "1.2.3.4" if settings else "127.0.0.1"
                assert ask(server, forged) == "|127.0.0.1"
                # and what is known of a name from one request does not serve another
                for lines in ((forged, "X-Forwarded-For: 1.2.3.4"), ("X-Forwarded-For: 1.2.3.4", forged)):
                    assert ask(server, *lines) == f"HTTP_X_FORWARDED_FOR=1.2.3.4|{client}"

    run()


@in_loop
def test_other_names_that_are_made_up() -> None:
    def names(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [",".join(sorted(k for k in environ if k.startswith(("HTTP_", "CONTENT", "REMOTE", "wsgi")))).encode()]

    with serving(WSGIHandler(names)) as server:
        plain = ask(server)
        forged = (
            "Content_Length: 5",
            "Content_Type: x",
            "Proxy: http://evil.example",
            "Wsgi_Input: x",
            "Remote_Addr: x",
        )
        assert ask(server, *forged) == plain
        assert "HTTP_REMOTE_USER" in ask(server, "Remote-User: root") and "HTTP_REMOTE_USER" not in plain
