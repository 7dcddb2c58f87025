"""Host names to addresses and back, by whatever can answer questions: what coro-core's sockets and the emulated
`socket` ask of a resolver, and the shapes of the standard library.

Names go this way: an address is its own; the hosts file; ``localhost`` (RFC 6761, section 6.3); then questions, with
the search list for short names. Below ``.local`` multicast DNS is the system's affair: if nsswitch.conf has it,
getaddrinfo of the C library is asked in a worker OS thread, for these names only. Both families are asked at the same
time.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterator
from typing import Any

import coro
from coro.dns import _wire
from coro.dns._stub.destinations import in_order, reachable
from coro.dns._stub.system import File, Hosts, hosts_of, literal, mdns_of
from coro.dns.exceptions import DNS_Error, DNS_Soft_Error

__all__ = ["HostNames", "LookupFailed", "put_in", "take_out"]

_A, _PTR, _AAAA = 1, 12, 28
_INET, _INET6 = int(socket.AF_INET), int(socket.AF_INET6)
_DNS_NAMES = {4: _A, 6: _AAAA}
_GETADDRINFO: Callable[..., list[tuple[Any, ...]]] = socket._socket.getaddrinfo  # type: ignore[attr-defined]
_GETNAMEINFO: Callable[..., tuple[str, str]] = socket._socket.getnameinfo  # type: ignore[attr-defined]
#: What a chain of names may bring; more is an attack or a mistake.
ADDRESSES_MOST = 1000


class LookupFailed(DNS_Soft_Error, coro.NameError):
    """No server gave a usable reply, so nobody can tell whether there is an address; trying later may help. Functions
    of the emulated ``socket`` module raise ``gaierror`` with EAI_AGAIN for it."""

    #: What coro-core asks of a NameError.
    temporary = True


Found = tuple[str, list[str], str]  # the full name, addresses, the canonical name


class HostNames:
    """The methods of a resolver. A subclass has `_find`, which returns data of records and the canonical name, both
    empty if there are none, and raises DNS_Soft_Error if nobody can tell; and `_names`, the names to try for one."""

    def __init__(self, hosts: str, nsswitch: str = "/etc/nsswitch.conf") -> None:
        self._hosts: File[Hosts] = File(hosts, hosts_of)
        self._nsswitch: File[bool] = File(nsswitch, mdns_of)

    def _find(self, name: str, rtype: int) -> tuple[list[bytes], str]:
        raise NotImplementedError

    def _names(self, name: str) -> Iterator[str]:
        yield name

    # -- for coro-core

    def resolve_ipv4(self, name: str) -> str:
        """One IPv4 address of a name, the best. Raises coro.NameError if there is none."""
        return self.resolve_all(name, _INET)[0]

    def resolve_ipv6(self, name: str) -> str:
        """One IPv6 address of a name, the best. Raises coro.NameError if there is none."""
        return self.resolve_all(name, _INET6)[0]

    def resolve_all(self, name: str, family: int) -> list[str]:
        """All addresses of a name in one family (``coro.AF.INET`` or ``coro.AF.INET6``), in the order in which to try
        them (:rfc:`6724`). Never empty: raises coro.NameError, and of that LookupFailed if nobody can tell."""
        if family not in (_INET, _INET6):
            raise ValueError(f"names have addresses of AF.INET and AF.INET6, not of family {family!r}")
        version = 4 if family == _INET else 6
        addresses = self._addresses(name, version)[1]
        if not addresses:
            raise coro.NameError(f"no IPv{version} address for {name!r}")
        return in_order(addresses)

    # -- the way of a name

    def _addresses(self, name: str, version: int) -> Found:
        """The addresses of one version, in no order; [] if there are none."""
        if not isinstance(name, str):
            raise TypeError(f"a host name is a str, not {type(name).__name__}: {name!r}")
        is_address = literal(name.partition("%")[0])
        if is_address:
            return name, [name] if is_address == version else [], name
        bare = name.removesuffix(".")
        _check(name, bare)
        hosts = self._hosts.now()
        found = hosts.find(bare, version)
        if found:
            return bare, list(found), hosts.of(found[0])[0]
        last = bare.rpartition(".")[2].lower()
        if hosts.knows(bare) and last != "localhost":
            return bare, [], bare  # the file is right for both families, as for getaddrinfo(3)
        if last == "localhost":
            return bare, ["127.0.0.1" if version == 4 else "::1"], bare
        if last == "onion":
            raise coro.NameError(f"{name!r} is a name of Tor's, which is never looked up (RFC 7686)")
        if last == "local" and self._nsswitch.now():
            return self._ask_system(bare, version)
        try:
            encoded = name if name.isascii() else name.encode("idna").decode()
        except UnicodeError as e:
            raise coro.NameError(f"{name!r} is not a host name: {e}") from None
        failure: DNS_Soft_Error | None = None
        for full in self._names(encoded):
            try:
                data, canonical = self._find(full, _DNS_NAMES[version])
            except DNS_Soft_Error as e:
                failure = e
                continue
            except DNS_Error as e:
                raise coro.NameError(f"{name!r} is not a host name: {e}") from e
            if canonical:
                return full, [str(ipaddress.ip_address(one)) for one in data[:ADDRESSES_MOST]], canonical
        if failure is not None:
            raise LookupFailed(*failure.args) from failure
        return encoded, [], ""

    @staticmethod
    def _ask_system(name: str, version: int) -> Found:
        family = _INET if version == 4 else _INET6
        try:
            answers = coro.in_thread(_GETADDRINFO, name, None, family, socket.SOCK_STREAM)
        except OSError as e:
            if e.errno == socket.EAI_AGAIN:
                raise LookupFailed(name, "", "", e.strerror or str(e)) from e
            raise coro.NameError(f"no IPv{version} address for {name!r}: {e.strerror or e}") from e
        return name, list(dict.fromkeys(str(answer[4][0]) for answer in answers)), name

    def _both(self, name: str, versions: tuple[int, ...]) -> tuple[list[str], str]:
        """Addresses of several versions, asked for side by side: all of them, the best first, and the canonical name.
        Raises what the lookups raise if none has brought an address."""
        found: dict[int, Found] = {}
        errors: list[Exception] = []

        def look_up(version: int) -> None:
            try:
                found[version] = self._addresses(name, version)
            except (coro.NameError, DNS_Error) as e:
                errors.append(e)

        if len(versions) == 1:
            look_up(versions[0])
        else:
            with coro.group() as both:
                for version in versions:
                    both.spawn(look_up, version)
        addresses = [address for version in versions if version in found for address in found[version][1]]
        if not addresses:
            if errors:
                raise errors[0]
            exists = any(one[2] for one in found.values())
            raise coro.NameError(f"no address for {name!r}" if exists else f"the name {name!r} does not exist")
        canonical = next(one[2] for one in found.values() if one[1])
        return in_order(addresses), canonical

    # -- the shapes of the standard library

    def getaddrinfo(
        self, host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> list[tuple[Any, ...]]:
        """Like ``socket.getaddrinfo``: ``(family, type, proto, canonical name, address)`` for each address of ``host``
        and each kind of socket, the best addresses first (:rfc:`6724`).

        ``host`` is a name, an address, or None; ``port`` a number, the name of a service, or None. Only the calling
        thread waits. Raises ``socket.gaierror``: EAI_NONAME if there is no address, EAI_AGAIN if nobody can tell.
        """
        name = host.decode("ascii") if isinstance(host, (bytes, bytearray)) else host
        numeric = not name or literal(name.partition("%")[0]) or name == "<broadcast>"
        if numeric or flags & socket.AI_NUMERICHOST or family not in (0, _INET, _INET6):
            return _GETADDRINFO(host, port, family, type, proto, flags)
        versions: tuple[int, ...] = (6, 4) if family == 0 else (4,) if family == _INET else (6,)
        if flags & socket.AI_ADDRCONFIG and family == 0:
            # RFC 3493, section 6.1: no questions whose answers could not be used
            versions = tuple(version for version in versions if reachable(version)) or versions
        try:
            try:
                addresses, canonical = self._both(name, versions)
            except coro.NameError:
                if family != _INET6 or not flags & socket.AI_V4MAPPED:
                    raise
                addresses, canonical = self._both(name, (4,))
                addresses = [f"::ffff:{address}" for address in addresses]
        except DNS_Soft_Error as e:
            raise socket.gaierror(socket.EAI_AGAIN, f"Temporary failure in name resolution: {e}") from e
        except coro.NameError as e:
            raise socket.gaierror(socket.EAI_NONAME, f"Name or service not known: {e}") from e
        plain = (flags | socket.AI_NUMERICHOST) & ~(socket.AI_CANONNAME | socket.AI_ADDRCONFIG | socket.AI_V4MAPPED)
        answers: list[tuple[Any, ...]] = []
        for address in addresses:
            answers += _GETADDRINFO(address, port, 0, type, proto, plain)
        if flags & socket.AI_CANONNAME and answers:
            answers[0] = (*answers[0][:3], canonical, answers[0][4])
        return answers

    def gethostbyname_ex(self, name: str) -> tuple[str, list[str], list[str]]:
        """Like ``socket.gethostbyname_ex``: the canonical name, the other names, and the IPv4 addresses. Raises
        ``socket.gaierror``."""
        try:
            addresses, canonical = self._both(name, (4,))
        except DNS_Soft_Error as e:
            raise socket.gaierror(socket.EAI_AGAIN, f"Temporary failure in name resolution: {e}") from e
        except coro.NameError as e:
            raise socket.gaierror(socket.EAI_NONAME, f"Name or service not known: {e}") from e
        others = [] if canonical == name.removesuffix(".").lower() or literal(name) else [name]
        return canonical, others, addresses

    def gethostbyaddr(self, host: str) -> tuple[str, list[str], list[str]]:
        """Like ``socket.gethostbyaddr``: the name of an address (or of a host's first address), other names, and the
        address. Raises ``socket.herror`` if it has none, ``socket.gaierror`` if nobody can tell."""
        address = host if literal(host.partition("%")[0]) else self.getaddrinfo(host, None)[0][4][0]
        try:
            names = self.reverse(address)
        except DNS_Soft_Error as e:
            raise socket.gaierror(socket.EAI_AGAIN, f"Temporary failure in name resolution: {e}") from e
        except coro.NameError as e:
            raise socket.herror(1, f"Unknown host: {e}") from e
        return names[0], names[1:], [address]

    def getnameinfo(self, sockaddr: tuple[Any, ...], flags: int = 0) -> tuple[str, str]:
        """Like ``socket.getnameinfo``: the name and the service of a numeric address. Raises ``socket.gaierror``."""
        host, port = _GETNAMEINFO(sockaddr, flags | socket.NI_NUMERICHOST)
        if flags & socket.NI_NUMERICHOST:
            return host, port
        try:
            return self.reverse(sockaddr[0])[0], port
        except DNS_Soft_Error as e:
            raise socket.gaierror(socket.EAI_AGAIN, f"Temporary failure in name resolution: {e}") from e
        except coro.NameError as e:
            if flags & socket.NI_NAMEREQD:
                raise socket.gaierror(socket.EAI_NONAME, f"Name or service not known: {e}") from e
            return host, port

    def reverse(self, address: str) -> list[str]:
        """The names of an address, from the hosts file or PTR records. Raises coro.NameError if it has none, and of
        that LookupFailed if nobody can tell; ValueError if it is no address."""
        parsed = ipaddress.ip_address(address.partition("%")[0])
        known = self._hosts.now().of(address)
        if known:
            return list(known)
        try:
            data, _ = self._find(parsed.reverse_pointer, _PTR)
        except DNS_Soft_Error as e:
            raise LookupFailed(*e.args) from e
        if not data:
            raise coro.NameError(f"no name for the address {address}")
        return [_wire.to_text(_wire.lower(one)) for one in data]


def _check(name: str, bare: str) -> None:
    if not bare or "\0" in bare or any(c.isspace() for c in bare):
        raise coro.NameError(f"{name!r} is not a host name: it is empty, or has blanks or NULs in it")
    last = bare.rpartition(".")[2].lower()
    hexadecimal = last.startswith("0x") and all(c in "0123456789abcdef" for c in last[2:])
    if ":" in bare or hexadecimal or (last.isascii() and last.isdigit()):
        raise coro.NameError(f"{name!r} is neither a host name nor an address")  # RFC 3696, section 2


# Resolvers of coro-core that one of ours has replaced, the first one first.
_before: list[Any] = []


def put_in(resolver: HostNames) -> Any:
    """Install it; returns the resolver before."""
    before = coro.set_resolver(resolver)
    if not isinstance(before, HostNames):
        _before[:] = [before]
    return before


def take_out() -> None:
    """Install what was there before the first of ours, unless somebody else has installed something since."""
    if _before and isinstance(coro.get_resolver(), HostNames):
        coro.set_resolver(_before.pop())
