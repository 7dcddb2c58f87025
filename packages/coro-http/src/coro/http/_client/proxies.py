"""Through a proxy: CONNECT (RFC 9110 section 9.3.6), SOCKS5 (RFC 1928, RFC 1929), and which proxy is used for what.

``connect_through`` is given a stream to the proxy and leaves it as one to the target. Its answers are read byte by byte
as far as their grammar says and no further: what comes behind belongs to the target's TLS. A tunnel is for https and
for any target of SOCKS; plain http goes to an HTTP proxy as a request with an absolute target.

The names of hosts are looked up here for ``socks5://`` and by the proxy for ``socks5h://``, as curl has it. The
credentials in a proxy's URL are for the proxy alone.
"""

from __future__ import annotations

import os
from _socket import AF_INET, AF_INET6, inet_pton
from base64 import b64encode
from typing import Any

from coro.http import h1
from coro.http._client.urls import URL, parse
from coro.http.exceptions import LocalError, ProxyError, RemoteError, UnsupportedURL
from coro.resolver import addresses

__all__ = ["Proxies", "connect_through", "proxy_fields"]

SCHEMES = ("http", "https", "socks5", "socks5h")

#: RFC 1928 section 6.
_REPLIES = {
    1: "general failure",
    2: "the connection is not allowed by its rules",
    3: "the network is unreachable",
    4: "the host is unreachable",
    5: "the connection was refused",
    6: "the time to live expired",
    7: "it does not know the command",
    8: "it does not know this type of address",
}


class Proxies:
    """Which proxy is used for which URL.

    given: None for none; a URL for all requests; "env" for the usual variables of the environment (``http_proxy``,
    ``https_proxy``, ``all_proxy``, ``no_proxy``, in capitals as well); a mapping from "http", "https", "all", or one of
    the first two with a host ("https://internal.example.org"), to a URL or None. UnsupportedURL for what is no proxy.
    """

    def __init__(self, given: Any = None) -> None:
        self._by: dict[str, URL | None] = {}
        self._not: list[str] = []
        if given is None:
            return
        if given == "env":
            given = self._environment()
        if isinstance(given, (str, URL)):
            given = {"all": given}
        for name, url in given.items():
            self._by[name.lower().removesuffix("://")] = None if url is None else parse(url, SCHEMES)

    def _environment(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for scheme in ("http", "https", "all"):
            name = f"{scheme}_proxy"
            # HTTP_PROXY in capitals is what a CGI program gets from a header "Proxy:" (CVE-2016-5385).
            value = os.environ.get(name) or (
                os.environ.get(name.upper()) if scheme != "http" or "REQUEST_METHOD" not in os.environ else None
            )
            if value:
                found[scheme] = value if "://" in value else f"http://{value}"
        exceptions = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
        self._not = [one.strip().lower().lstrip(".") for one in exceptions.split(",") if one.strip()]
        return found

    def __bool__(self) -> bool:
        return bool(self._by)

    def of(self, url: URL) -> URL | None:
        """The proxy for a request to ``url``, None to connect directly."""
        if not self._by:
            return None
        for exception in self._not:
            name, _, port = exception.partition(":") if exception.count(":") == 1 else (exception, "", "")
            matches = exception == "*" or url.host == name or url.host.endswith("." + name)
            if matches and (not port or port == str(url.port)):
                return None
        for name in (f"{url.scheme}://{url.host}", url.scheme, f"all://{url.host}", "all"):
            if name in self._by:
                return self._by[name]
        return None


def proxy_fields(proxy: URL) -> list[tuple[bytes, bytes]]:
    """The fields that show a proxy's credentials, [] if its URL has none."""
    if proxy.userinfo is None:
        return []
    user, password = proxy.userinfo
    if ":" in user:
        raise LocalError("the user's name for a proxy cannot have a colon in it (RFC 7617 section 2)")
    return [(b"Proxy-Authorization", b"Basic " + b64encode(f"{user}:{password}".encode()))]


def connect_through(stream: Any, proxy: URL, host: str, port: int) -> None:
    """Make the stream to the proxy one to host and port. ProxyError when the proxy refuses or does not speak its
    protocol; OSError from the connection."""
    try:
        if proxy.scheme in ("http", "https"):
            _connect(stream, proxy, host, port)
        elif proxy.scheme in ("socks5", "socks5h"):
            _socks(stream, proxy, host, port)
        else:
            raise UnsupportedURL(f"expected a proxy that begins with http://, https:// or socks5://, not {proxy}")
    except RemoteError as e:
        raise ProxyError(f"the proxy {proxy.authority} does not speak HTTP: {e}") from e
    except EOFError:
        raise ProxyError(f"the proxy {proxy.authority} closed the connection before it had answered") from None


def _connect(stream: Any, proxy: URL, host: str, port: int) -> None:
    target = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}").encode("ascii")
    codec = h1.Connection(h1.CLIENT)
    fields = [(b"Host", target), *proxy_fields(proxy)]
    stream.send(codec.request(b"CONNECT", target, fields) + codec.end())
    while True:
        event = codec.next_event()
        if event is h1.NEED_DATA:
            # One byte at a time: what follows the empty line is the target's, and there is no way to put it back.
            # The answer is some hundred bytes, once for a connection.
            data = stream.recv(1)
            if not data:
                raise EOFError
            codec.feed(data)
        elif isinstance(event, h1.InformationalResponse):
            continue
        elif isinstance(event, h1.Response):
            if 200 <= event.status < 300:
                return
            reason = bytes(event.reason).decode("latin-1")
            hint = "; give user and password in the proxy's URL" if event.status == 407 else ""
            raise ProxyError(
                f"the proxy {proxy.authority} refused to connect to {host}:{port}: {event.status} {reason}{hint}"
            )
        else:
            raise EOFError


def _socks(stream: Any, proxy: URL, host: str, port: int) -> None:
    where = f"the proxy {proxy.authority}"
    methods = b"\x00\x02" if proxy.userinfo is not None else b"\x00"
    stream.send(b"\x05" + bytes([len(methods)]) + methods)
    version, method = stream.recv_exact(2)
    if version != 5:
        raise ProxyError(f"{where} does not speak SOCKS5: its answer begins with {version}")
    if method == 2 and proxy.userinfo is not None:
        user, password = (part.encode("utf-8") for part in proxy.userinfo)
        if not 1 <= len(user) <= 255 or not 1 <= len(password) <= 255:
            raise LocalError("user and password for a SOCKS5 proxy have 1 to 255 bytes each (RFC 1929 section 2)")
        stream.send(b"\x01" + bytes([len(user)]) + user + bytes([len(password)]) + password)
        if stream.recv_exact(2)[1] != 0:
            raise ProxyError(f"{where} does not accept the user and password of its URL")
    elif method != 0:
        raise ProxyError(f"{where} accepts no way to authenticate that we have; give user and password in its URL")
    stream.send(b"\x05\x01\x00" + _socks_address(proxy, host) + port.to_bytes(2, "big"))
    version, reply, _, kind = stream.recv_exact(4)
    if version != 5:
        raise ProxyError(f"{where} does not speak SOCKS5: its answer begins with {version}")
    if reply:
        why = _REPLIES.get(reply, f"error {reply}")
        raise ProxyError(f"{where} could not connect to {host}:{port}: {why}")
    # The address it connected from, which nobody needs, has to be read.
    length = {1: 4, 4: 16}.get(kind)
    if kind == 3:
        length = stream.recv_exact(1)[0]
    if length is None:
        raise ProxyError(f"{where} answered with an unknown type of address: {kind}")
    stream.recv_exact(length + 2)


def _socks_address(proxy: URL, host: str) -> bytes:
    for family, kind in ((AF_INET, b"\x01"), (AF_INET6, b"\x04")):
        try:
            return kind + inet_pton(family, host)
        except OSError:
            continue
    if proxy.scheme == "socks5":
        try:
            return b"\x01" + inet_pton(AF_INET, addresses(host, AF_INET)[0])
        except Exception as no_ipv4:
            try:
                return b"\x04" + inet_pton(AF_INET6, addresses(host, AF_INET6)[0])
            except Exception:
                raise no_ipv4 from None
    name = host.encode("ascii")
    if len(name) > 255:
        raise LocalError(f"a host name for a SOCKS5 proxy has at most 255 bytes, not {len(name)}")
    return b"\x03" + bytes([len(name)]) + name
