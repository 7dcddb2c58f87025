"""Who the client is when a proxy stands in between: the PROXY protocol, ``Forwarded``, ``X-Forwarded-*``.

Anybody can send these fields, so they count only from peers whose networks were named as trusted, and of a list of
proxies only as far as each is trusted: it is read from the right, and the first address that is no trusted proxy is the
client (RFC 7239 5.2, 8.1). The PROXY header comes before the first byte of HTTP or TLS and cannot be told from data, so
it is either required or not looked at.

Cost: 30 us for a request with such fields, nothing else.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from coro.http.exceptions import RemoteError

__all__ = ["Trusted", "read_proxy_header"]

#: Addresses of a list that are looked at.
MOST_PROXIES = 32
#: The PROXY protocol, version 2: its signature, and the most bytes of addresses and extensions.
V2 = b"\r\n\r\n\x00\r\nQUIT\n"
V2_MOST = 4096
#: The longest line of version 1.
V1_MOST = 107

_PAIR = re.compile(r'\s*([A-Za-z-]+)=("(?:[^"\\]|\\.){0,200}"|[^";,\s]{0,200})\s*(;|,|$)')
_HOST = re.compile(r"[A-Za-z0-9._:\[\]-]{1,255}\Z")


@lru_cache(maxsize=4096)
def _address(text: str) -> Any:
    """An address as it stands in these fields, with or without a port; None if it is none."""
    text = text.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


class Trusted:
    """The proxies that are believed. ``networks``: addresses and networks as text, ``"unix"`` for peers on UNIX
    sockets, ``"*"`` for everybody. ValueError for something else."""

    def __init__(self, networks: Iterable[str]) -> None:
        names = [networks] if isinstance(networks, str) else list(networks)
        self.everybody = "*" in names
        self.unix = "unix" in names or self.everybody
        self.networks = [ipaddress.ip_network(name) for name in names if name not in ("*", "unix")]

    def trusts(self, address: Any) -> bool:
        """Whether this address, as in ``request.peer``, is one of them."""
        if not isinstance(address, tuple):
            return self.unix
        found = _address(f"[{address[0]}]" if ":" in address[0] else address[0])
        return self._has(found)

    def _has(self, found: Any) -> bool:
        if self.everybody:
            return True
        return found is not None and any(found.version == n.version and found in n for n in self.networks)

    def client(self, chain: list[str]) -> str | None:
        """The client, out of a list of addresses of which each hop has added one at the end."""
        client = None
        for text in reversed(chain[-MOST_PROXIES:]):
            found = _address(text)
            if found is None:
                return client
            client = str(found)
            if not self._has(found):
                return client
        return client

    def apply(self, request: Any) -> None:
        """Set ``remote``, ``is_tls`` and the Host of a request from its fields, if they are to be believed."""
        connection = request.connection
        if not self.trusts(connection.peer):
            return
        headers = request.headers
        chain: list[str] = []
        proto = host = None
        forwarded = headers.get_one("forwarded")
        if forwarded:
            for element in _elements(forwarded):
                chain.append(element.get("for", "unknown"))
                proto, host = element.get("proto", proto), element.get("host", host)
        else:
            listed = headers.get_one("x-forwarded-for")
            chain = listed.split(",") if listed else []
            proto = (headers.get("x-forwarded-proto") or "").rpartition(",")[2].strip().lower() or None
            host = (headers.get("x-forwarded-host") or "").rpartition(",")[2].strip() or None
        client = self.client(chain)
        connection.remote = connection.peer if client is None else (client, 0)
        if proto in ("http", "https"):
            connection.is_tls = proto == "https"
        if host and _HOST.match(host):
            headers.set_one("host", host)


def _elements(text: str) -> list[dict[str, str]]:
    """Forwarded, RFC 7239 4: a list of pairs; what is not understood ends it."""
    found: list[dict[str, str]] = [{}]
    at = 0
    while at < len(text) and len(found) <= MOST_PROXIES:
        pair = _PAIR.match(text, at)
        if pair is None:
            return []
        found[-1][pair[1].lower()] = re.sub(r"\\(.)", r"\1", pair[2].strip('"'))
        at = pair.end()
        if pair[3] == ",":
            found.append({})
    return found


def read_proxy_header(conn: Any) -> Any:
    """Read the header of the PROXY protocol, version 1 or 2, from a stream; returns the client's address, None for a
    connection of the proxy itself. RemoteError if there is none."""
    start = conn.recv_exact(len(V2))
    if start == V2:
        return _version_2(conn)
    if not start.startswith(b"PROXY "):
        raise RemoteError("expected a PROXY header at the beginning of the connection, and found none")
    line = bytearray(start)
    # byte by byte, for what follows belongs to somebody else
    while not line.endswith(b"\r\n"):
        if len(line) >= V1_MOST:
            raise RemoteError(f"the PROXY header is longer than {V1_MOST} bytes")
        line += conn.recv_exact(1)
    words = line[:-2].decode("latin-1").split(" ")
    if words[1] == "UNKNOWN":
        return None
    if len(words) != 6 or words[1] not in ("TCP4", "TCP6"):
        raise RemoteError("expected 'PROXY TCP4 source destination port port' in the PROXY header")
    found = _address(f"[{words[2]}]" if words[1] == "TCP6" else words[2])
    port = words[4]
    if found is None or not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise RemoteError("the PROXY header has no valid address of the client")
    return (str(found), int(port))


def _version_2(conn: Any) -> Any:
    kind, family, size = struct.unpack("!BBH", conn.recv_exact(4))
    if kind >> 4 != 2 or kind & 15 > 1:
        raise RemoteError("expected version 2 and the command LOCAL or PROXY in the binary PROXY header")
    if size > V2_MOST:
        raise RemoteError(f"the PROXY header is longer than {V2_MOST} bytes")
    data = conn.recv_exact(size) if size else b""
    if kind & 15 == 0:
        return None
    if family == 0x11 and size >= 12:
        return (str(ipaddress.IPv4Address(data[:4])), int.from_bytes(data[8:10], "big"))
    if family == 0x21 and size >= 36:
        return (str(ipaddress.IPv6Address(data[:16])), int.from_bytes(data[32:34], "big"))
    if family in (0x00, 0x31):
        return None
    raise RemoteError("the binary PROXY header has a family or length that is not known")
