"""Host names to addresses: who is asked, and the resolver that works without any other package.

``sock.connect`` calls addresses(), which asks the installed resolver.  The default one answers literals and
the hosts file (hosts(5)) at once and leaves everything else to getaddrinfo(3) in a worker OS thread, since
that call blocks.  coro-dns installs a better one with ``set_resolver``.

A resolver is any object with ``resolve_ipv4(name)`` and ``resolve_ipv6(name)``, each returning one numeric
address; with ``resolve_all(name, family)`` as well, returning a list in the order of preference, connections
try them all.  With ``getaddrinfo``, ``gethostbyname_ex``, ``gethostbyaddr`` or ``getnameinfo`` it answers these
calls of an emulated ``socket`` itself.

Names that inet_aton(3) would take for an IPv4 address in an old notation ("123", "127.1", "0x7f.1") are
refused: getaddrinfo turns them into addresses nobody meant.  Cost: one stat(2) of the hosts file a lookup;
the file is parsed again only when it changed.
"""

from __future__ import annotations

import _socket
import os
from typing import Any

from coro.exceptions import ResolverNameError

__all__ = ["addresses", "dummy_resolver", "get_resolver", "set_resolver"]

HOSTS_FILE = "/etc/hosts"
#: A larger hosts file is a mistake (or an attack on the memory of everybody who reads it).
HOSTS_MOST_BYTES = 64 * 1024 * 1024
#: RFC 1035 section 2.3.4, in presentation form without the final dot.
NAME_MOST_CHARACTERS = 253

_AF_INET = int(_socket.AF_INET)
_AF_INET6 = int(_socket.AF_INET6)


def _family_name(family: int) -> str:
    return "IPv4" if family == _AF_INET else "IPv6"


def _literal(name: str, family: int) -> str | None:
    """The name itself, if it is an address of this family."""
    try:
        _socket.inet_pton(family, name.partition("%")[0] if family == _AF_INET6 else name)
    except (OSError, ValueError):
        return None
    return name


def _checked(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a host name is a str, not {type(name).__name__}: {name!r}")
    bare = name[:-1] if name.endswith(".") else name
    if not bare or "\0" in bare or any(c.isspace() for c in bare):
        raise ResolverNameError(f"{name!r} is not a host name: it is empty, or has blanks or NULs in it")
    if len(bare) > NAME_MOST_CHARACTERS:
        raise ResolverNameError(f"a host name has at most {NAME_MOST_CHARACTERS} characters, not {len(bare)}")
    return bare


def _is_old_number(name: str) -> bool:
    # RFC 3696 section 2: the last label of a name is never all digits
    last = name.rpartition(".")[2].lower()
    if last.startswith("0x"):
        return all(c in "0123456789abcdef" for c in last[2:])
    return last.isascii() and last.isdigit()


class _Hosts:
    """The hosts file: name in lower case -> family -> addresses."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.stamp: tuple[int, int, int] | None = None
        self.names: dict[str, dict[int, list[str]]] = {}

    def look_up(self, name: str, family: int) -> list[str]:
        """The addresses of a name, [] if it has none here.  An unreadable file is an empty one."""
        try:
            st = os.stat(self.path)
            stamp = (st.st_mtime_ns, st.st_size, st.st_ino)
            if stamp != self.stamp:
                self.names = self._parse(st.st_size)
                self.stamp = stamp
        except OSError:
            self.stamp = None
            self.names = {}
        return self.names.get(name.lower(), {}).get(family, [])

    def _parse(self, size: int) -> dict[str, dict[int, list[str]]]:
        names: dict[str, dict[int, list[str]]] = {}
        if size > HOSTS_MOST_BYTES:
            return names
        with open(self.path, encoding="utf-8", errors="replace") as file:
            for line in file:
                fields = line.partition("#")[0].split()
                if len(fields) < 2:
                    continue
                for family in (_AF_INET, _AF_INET6):
                    if _literal(fields[0], family):
                        for name in fields[1:]:
                            found = names.setdefault(name.lower().rstrip("."), {}).setdefault(family, [])
                            if fields[0] not in found:
                                found.append(fields[0])
        return names


class dummy_resolver:
    """Finds addresses: a numeric name is its own, then ``hosts_file`` is read, then getaddrinfo(3) is asked in a worker
    OS thread. ``hosts_file`` is the path of a file like /etc/hosts."""

    def __init__(self, hosts_file: str | os.PathLike[str] = HOSTS_FILE) -> None:
        """``hosts_file``: what to read instead of /etc/hosts."""
        self._hosts = _Hosts(os.fspath(hosts_file))

    def resolve_ipv4(self, name: str) -> str:
        """The first IPv4 address of a name.  Raises coro.NameError, and TypeError unless it is a str."""
        return self.resolve_all(name, _AF_INET)[0]

    def resolve_ipv6(self, name: str) -> str:
        """The first IPv6 address of a name.  Raises as resolve_ipv4()."""
        return self.resolve_all(name, _AF_INET6)[0]

    def resolve_all(self, name: str, family: int) -> list[str]:
        """All addresses of a name in one family (AF.INET or AF.INET6), the best first; never empty.

        Blocks the calling thread only.  Raises coro.NameError when there are none, TypeError unless the name
        is a str, ValueError for another family.
        """
        if family not in (_AF_INET, _AF_INET6):
            raise ValueError(f"names have addresses of AF.INET and AF.INET6, not of family {family!r}")
        bare = _checked(name)
        found = _literal(bare, family)
        if found:
            return [found]
        if _is_old_number(bare) or ":" in bare:
            raise ResolverNameError(f"{name!r} is neither a host name nor an {_family_name(family)} address")
        known = self._hosts.look_up(bare, family)
        if known:
            return list(known)
        if bare.lower() == "localhost" or bare.lower().endswith(".localhost"):
            return ["127.0.0.1" if family == _AF_INET else "::1"]  # RFC 6761 section 6.3
        return self._ask_system(bare, family)

    def _ask_system(self, name: str, family: int) -> list[str]:
        from coro.offload import in_thread

        try:
            encoded = name.encode("idna")
        except UnicodeError as e:
            raise ResolverNameError(f"{name!r} is not a host name: {e}") from None
        try:
            answers = in_thread(_socket.getaddrinfo, encoded, None, family, _socket.SOCK_STREAM)
        except _socket.gaierror as e:
            why = e.strerror or e
            raise ResolverNameError(f"no {_family_name(family)} address for {name!r}: {why}") from e
        found: dict[str, None] = {}
        for answer in answers:
            address = answer[4]
            host = str(address[0])
            if len(address) == 4 and address[3] and "%" not in host:
                host += f"%{address[3]}"  # the scope id would be lost otherwise (RFC 4007 section 11)
            found[host] = None
        if not found:
            raise ResolverNameError(f"no {_family_name(family)} address for {name!r}")
        return list(found)


_resolver: Any = dummy_resolver()


def set_resolver(resolver: Any) -> Any:
    """Install ``resolver``, an object with ``resolve_ipv4(name)`` and ``resolve_ipv6(name)``. Returns the one before.

    Raises TypeError if it lacks one of them.
    """
    global _resolver
    for method in ("resolve_ipv4", "resolve_ipv6"):
        if not callable(getattr(resolver, method, None)):
            raise TypeError(
                f"a resolver has the methods resolve_ipv4(name) and resolve_ipv6(name); {resolver!r} lacks {method}"
            )
    old, _resolver = _resolver, resolver
    return old


def get_resolver() -> Any:
    """The installed resolver."""
    return _resolver


def addresses(name: str, family: int, resolver: Any = None) -> list[str]:
    """The numeric addresses of ``name``, at least one, by ``resolver``; None is the installed one. ``family`` is
    ``coro.AF.INET`` or ``coro.AF.INET6``. Raises what the resolver raises."""
    if resolver is None:
        resolver = _resolver
    if hasattr(resolver, "resolve_all"):
        found = list(resolver.resolve_all(name, family))
        if not found:
            raise ResolverNameError(f"no {_family_name(family)} address for {name!r}")
        return found
    return [resolver.resolve_ipv4(name) if family == _AF_INET else resolver.resolve_ipv6(name)]
