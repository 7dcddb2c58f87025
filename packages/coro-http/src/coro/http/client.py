"""The HTTP client.

    from coro.http.client import Client

    with Client() as client:
        print(client.get("https://example.org/").text)

``Client`` is for programs: connections that are kept, redirects, cookies, credentials, proxies, limits. ``client`` is
the classic interface: one connection, pipelined requests. This file holds names, and one call each for programs that
ask once. The rooms are in `coro.http._client`.
"""

from __future__ import annotations

from typing import Any

from coro.http._client.auth import Auth, BasicAuth, BearerAuth, DigestAuth
from coro.http._client.fields import Headers
from coro.http._client.limits import Limits, Retries, Timeout
from coro.http._client.messages import Request, Response
from coro.http._client.pipelined import client, request, response_file
from coro.http._client.pool import PoolStatistics
from coro.http._client.session import SENSITIVE, UNSET, Client
from coro.http._client.urls import URL
from coro.http.cookie_jar import Cookie, CookieJar
from coro.http.exceptions import RemoteError

#: The classic name of what a malformed response raises.
Bad_Response = RemoteError

__all__ = [
    "SENSITIVE",
    "URL",
    "Auth",
    "Bad_Response",
    "BasicAuth",
    "BearerAuth",
    "Client",
    "Cookie",
    "CookieJar",
    "DigestAuth",
    "Headers",
    "Limits",
    "PoolStatistics",
    "Request",
    "Response",
    "Retries",
    "Timeout",
    "client",
    "delete",
    "fetch",
    "get",
    "head",
    "patch",
    "post",
    "put",
    "request",
    "response_file",
]

#: What is an argument of ``Client`` and not of ``Client.request``.
_OF_CLIENT = ("proxy", "tls", "unix", "source_address", "limits", "max_redirects", "decompress")


def fetch(method: str, url: str | URL, **options: Any) -> Response:
    """Send one request with a client of its own, and return the response with its body. The arguments are those of
    ``Client.request``, and proxy, tls, unix, source_address, limits, max_redirects and decompress of ``Client``. A
    program that asks more than once keeps a ``Client``, and with it the connections."""
    of_client = {name: options.pop(name) for name in _OF_CLIENT if name in options}
    with Client(**of_client) as one:
        return one.request(method, url, **options)


def get(url: str | URL, **options: Any) -> Response:
    """``fetch("GET", url, **options)``."""
    return fetch("GET", url, **options)


def head(url: str | URL, **options: Any) -> Response:
    """``fetch("HEAD", url, **options)``."""
    return fetch("HEAD", url, **options)


def post(url: str | URL, content: Any = None, *, json: Any = UNSET, **options: Any) -> Response:
    """``fetch("POST", url, content=content, **options)``."""
    return fetch("POST", url, content=content, json=json, **options)


def put(url: str | URL, content: Any = None, *, json: Any = UNSET, **options: Any) -> Response:
    """``fetch("PUT", url, content=content, **options)``."""
    return fetch("PUT", url, content=content, json=json, **options)


def patch(url: str | URL, content: Any = None, *, json: Any = UNSET, **options: Any) -> Response:
    """``fetch("PATCH", url, content=content, **options)``."""
    return fetch("PATCH", url, content=content, json=json, **options)


def delete(url: str | URL, **options: Any) -> Response:
    """``fetch("DELETE", url, **options)``."""
    return fetch("DELETE", url, **options)
