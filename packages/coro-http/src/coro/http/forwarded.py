"""Who the client is when a proxy stands in between: the PROXY protocol, ``Forwarded``, ``X-Forwarded-*``.

Anybody can send these fields, so they count only from peers whose networks were named as trusted, and of a list of
proxies only as far as each is trusted: it is read from the right, and the first address that is no trusted proxy is the
client (RFC 7239 5.2, 8.1). A proxy passes on the fields it does not know, as the client has sent them. So only those
count that were named, too: by default the two that nearly all proxies set. The PROXY header comes before the first byte
of HTTP or TLS and cannot be told from data, so it is either required or not looked at; whom it names is the one who has
sent the fields.

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

#: The fields that can be believed, and those that are unless told otherwise.
KNOWN = ("x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded")
USUAL = KNOWN[:2]
#: Addresses of a list that are looked at.
MOST_PROXIES = 32
#: Characters of an address, with port and brackets.
MOST_ADDRESS = 64
#: The PROXY protocol, version 2: its signature, and the most bytes of addresses and extensions.
V2 = b"\r\n\r\n\x00\r\nQUIT\n"
V2_MOST = 4096
#: The longest line of version 1.
V1_MOST = 107

_PAIR = re.compile(r'\s*([A-Za-z-]+)=("(?:[^"\\]|\\.){0,200}"|[^";\s]{0,200})\s*(;|$)')
_HOST = re.compile(r"[A-Za-z0-9._:\[\]-]{1,255}\Z")


def _address(text: str) -> Any:
    """An address as it stands in these fields, with or without a port; None if it is none."""
    return _address_of(text) if len(text) <= MOST_ADDRESS else None


@lru_cache(maxsize=4096)
def _address_of(text: str) -> Any:
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
    sockets, ``"*"`` for everybody. ``headers``: names of the fields that these proxies set or remove, of
    ``x-forwarded-for``, ``x-forwarded-proto``, ``x-forwarded-host`` and ``forwarded``, which goes before the others.
    ValueError for something else."""

    def __init__(self, networks: Iterable[str], headers: Iterable[str] = USUAL) -> None:
        names = [networks] if isinstance(networks, str) else list(networks)
        self.everybody = "*" in names
        self.unix = "unix" in names or self.everybody
        self.networks = [ipaddress.ip_network(name) for name in names if name not in ("*", "unix")]
        fields = [headers] if isinstance(headers, str) else list(headers)
        self.headers = frozenset(name.lower() for name in fields)
        if not self.headers <= frozenset(KNOWN):
            raise ValueError(f"expected the headers of proxies as names out of {', '.join(KNOWN)}, not {fields}")

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
        return self._hop(chain)[0]

    def _hop(self, chain: list[str]) -> tuple[str | None, int]:
        """The client, and where in the list it is; its length if there is none."""
        client, place = None, len(chain)
        for text in reversed(chain[-MOST_PROXIES:]):
            found = _address(text)
            if found is None:
                break
            client, place = str(found), place - 1
            if not self._has(found):
                break
        return client, place

    def apply(self, request: Any) -> None:
        """Set ``remote``, ``is_tls`` and the Host of a request from its fields, if they are to be believed."""
        connection = request.connection
        near = getattr(connection, "proxied", None)  # whom the PROXY header has named
        if near is None:
            near = connection.peer
        if not self.trusts(near):
            return
        client = proto = host = None
        fields = request.headers
        forwarded = fields.get_one("forwarded") if "forwarded" in self.headers else None
        if forwarded:
            elements = _elements(forwarded)
            client, place = self._hop([element.get("for", "unknown") for element in elements])
            # What stands left of the client's element is the client's.
            for element in elements[place:]:
                proto, host = proto or element.get("proto"), host or element.get("host")
        else:
            client = self.client((self._list(fields, "x-forwarded-for") or "").split(","))
            proto = (self._list(fields, "x-forwarded-proto") or "").rpartition(",")[2]
            host = (self._list(fields, "x-forwarded-host") or "").rpartition(",")[2]
        remote = near if client is None else (client, 0)
        if connection.remote != remote:
            connection.remote = remote
        proto = proto.strip().lower() if proto else ""
        connection.is_tls = proto == "https" if proto in ("http", "https") else connection.over_tls
        host = host.strip() if host else ""
        if host and _HOST.match(host):
            fields.set_one("host", host)

    def _list(self, fields: Any, name: str) -> str | None:
        """The value of a field that is believed."""
        found: str | None = fields.get_one(name) if name in self.headers else None
        return found


def _elements(text: str) -> list[dict[str, str]]:
    """Forwarded, RFC 7239 4: the elements of its list, each as a dict. Those left of one that is not understood are
    left out: nobody knows where the proxies' part begins."""
    found: list[dict[str, str]] = []
    for part in reversed(text.rsplit(",", MOST_PROXIES)[-MOST_PROXIES:]):
        element: dict[str, str] | None = {}
        at = 0
        while element is not None and at < len(part):
            pair = _PAIR.match(part, at)
            if pair is None:
                element = None
            else:
                element[pair[1].lower()] = re.sub(r"\\(.)", r"\1", pair[2].strip('"'))
                at = pair.end()
        if element is None:
            break
        found.append(element)
    return found[::-1]


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
