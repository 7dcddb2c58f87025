"""What the system says about names: resolv.conf(5), hosts(5), and whether nsswitch.conf(5) knows of multicast DNS.

Each file is looked at with stat(2) before each use and read again when it has changed, so an edit is seen by the next
question. An unreadable file is an empty one, a line that makes no sense is skipped, as the C library does. Cost: one
stat, about 1 us.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

__all__ = ["File", "Hosts", "Settings", "hosts_of", "literal", "mdns_of", "settings_of"]

_T = TypeVar("_T")
#: A larger file is a mistake.
MOST_BYTES = 64 * 1024 * 1024
#: Most of each in resolv.conf; the C library takes 3 servers.
SERVERS_MOST = 8
SEARCH_MOST = 32


class File(Generic[_T]):
    """A file that is parsed when it has changed."""

    def __init__(self, path: str | os.PathLike[str], parse: Callable[[str], _T]) -> None:
        self.path = os.fspath(path)
        self.parse = parse
        self.stamp: tuple[int, int, int] | None = None
        self.value = parse("")

    def now(self) -> _T:
        """What it says now."""
        try:
            st = os.stat(self.path)
            stamp = (st.st_mtime_ns, st.st_size, st.st_ino)
            if stamp != self.stamp:
                self.value = self.parse(self._text(st.st_size))
                self.stamp = stamp
        except OSError:
            if self.stamp is not None:
                self.stamp = None
                self.value = self.parse("")
        return self.value

    def _text(self, size: int) -> str:
        if size > MOST_BYTES:
            return ""
        with open(self.path, encoding="utf-8", errors="replace") as file:
            return file.read()


def literal(text: str) -> int:
    """4 or 6 for an address, 0 for everything else."""
    try:
        return ipaddress.ip_address(text).version
    except ValueError:
        return 0


@dataclass(frozen=True)
class Settings:
    """resolv.conf(5). `timeout` is in seconds, for one attempt; `attempts` is how often all servers are asked."""

    nameservers: tuple[str, ...] = ()
    search: tuple[str, ...] = ()
    ndots: int = 1
    timeout: float = 5.0
    attempts: int = 2
    rotate: bool = False
    edns: bool = True
    use_tcp: bool = False
    trust_ad: bool = False
    no_aaaa: bool = False
    prefer_ipv6: bool = field(default=False)


def _options(words: Iterable[str], settings: Settings) -> Settings:
    # The caps are resolv.conf(5)'s.
    for word in words:
        name, _, text = word.partition(":")
        number = int(text) if text.isascii() and text.isdigit() else -1
        if name == "ndots" and number >= 0:
            settings = replace(settings, ndots=min(number, 15))
        elif name == "timeout" and number > 0:
            settings = replace(settings, timeout=float(min(number, 30)))
        elif name == "attempts" and number > 0:
            settings = replace(settings, attempts=min(number, 5))
        elif name == "rotate":
            settings = replace(settings, rotate=True)
        elif name == "use-vc":
            settings = replace(settings, use_tcp=True)
        elif name == "trust-ad":
            settings = replace(settings, trust_ad=True)
        elif name == "no-aaaa":
            settings = replace(settings, no_aaaa=True)
        elif name == "inet6":
            settings = replace(settings, prefer_ipv6=True)
        # edns0 is always on; what else there is concerns how the C library works inside
    return settings


def settings_of(text: str) -> Settings:
    """Read resolv.conf. LOCALDOMAIN and RES_OPTIONS of the environment come on top, as for the C library."""
    servers: list[str] = []
    search: list[str] | None = None
    options: list[str] = []
    for line in text.splitlines():
        if line[:1] in "#;":
            continue
        words = line.split()
        if not words:
            continue
        if words[0] == "nameserver" and len(words) > 1:
            if literal(words[1]) and words[1] not in servers and len(servers) < SERVERS_MOST:
                servers.append(words[1])
        elif words[0] in ("search", "domain"):
            search = words[1:] if words[0] == "search" else words[1:2]
        elif words[0] == "options":
            options += words[1:]
    if os.environ.get("LOCALDOMAIN"):
        search = os.environ["LOCALDOMAIN"].split()
    if search is None:
        search = [socket.gethostname().partition(".")[2]]
    names = dict.fromkeys(one.strip(".").lower() for one in search)
    options += os.environ.get("RES_OPTIONS", "").split()
    settings = Settings(tuple(servers) or ("127.0.0.1",), tuple(filter(None, names))[:SEARCH_MOST])
    return _options(options, settings)


@dataclass
class Hosts:
    """hosts(5): name in lower case -> IP version -> addresses, and address -> names."""

    addresses: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)

    def find(self, name: str, version: int) -> list[str]:
        """The addresses of a name, [] if it has none of this version here."""
        return self.addresses.get(name.lower(), {}).get(version, [])

    def knows(self, name: str) -> bool:
        """Is the name in the file?"""
        return name.lower() in self.addresses

    def of(self, address: str) -> list[str]:
        """The names of an address; the first is the canonical one."""
        return self.names.get(str(ipaddress.ip_address(address.partition("%")[0])), [])


def hosts_of(text: str) -> Hosts:
    """Read a hosts file."""
    hosts = Hosts()
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        version = literal(words[0]) if words else 0
        if not version or len(words) < 2:
            continue
        names = [word.rstrip(".").lower() for word in words[1:]]
        for name in names:
            found = hosts.addresses.setdefault(name, {}).setdefault(version, [])
            if words[0] not in found:
                found.append(words[0])
        known = hosts.names.setdefault(str(ipaddress.ip_address(words[0].partition("%")[0])), [])
        known += [name for name in names if name not in known]
    return hosts


def mdns_of(text: str) -> bool:
    """Does nsswitch.conf have multicast DNS among the sources of host names?"""
    for line in text.splitlines():
        what, _, sources = line.partition("#")[0].partition(":")
        if what.strip() == "hosts":
            return any(word.startswith("mdns") for word in sources.split())
    return False
