"""Name resolution of emulated sockets: numbers at once, names by the resolver of the loop.

With the resolver that coro-core comes with (see coro.resolver) a name goes to the original function in a worker OS
thread, so every answer is what the program would have got without emulation: that resolver would ask the same function.
With another one (`coro.set_resolver`), that one is asked, and the original only turns numeric addresses into answers.
Where that one has a method with the name of the function (`getaddrinfo`, say), the method answers instead.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

from coro.emulation import _blocking
from coro.emulation._plan import Plan
from coro.exceptions import ResolverNameError

__all__ = ["numeric_address", "plan"]

_getaddrinfo: Any = socket.getaddrinfo
_raw_getaddrinfo: Any = socket._socket.getaddrinfo  # type: ignore[attr-defined]
_original: dict[str, Any] = {
    name: getattr(socket, name) for name in ("gethostbyname", "gethostbyname_ex", "gethostbyaddr", "getnameinfo")
}
_FAMILIES = (socket.AF_INET, socket.AF_INET6)


def _is_number(host: Any) -> bool:
    """Is it an address, or nothing that would be looked up?"""
    if host is None or host in ("", b"", "<broadcast>"):
        return True
    if isinstance(host, (bytes, bytearray)):
        try:
            host = bytes(host).decode("ascii")
        except UnicodeDecodeError:
            return False
    if not isinstance(host, str):
        return True  # the original says what is wrong with it
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _resolver() -> Any:
    """A resolver that the program has installed, or None."""
    from coro import resolver

    installed = resolver.get_resolver()
    return None if type(installed) is resolver.dummy_resolver else resolver


def _own(function: str) -> Any:
    """The method of this name of a resolver that the program has installed, or None."""
    resolver = _resolver()
    return None if resolver is None else getattr(resolver.get_resolver(), function, None)


def _in_thread(function: Any, *args: Any) -> Any:
    from coro.offload import in_thread

    return in_thread(function, *args)


def _look_up(host: str | bytes, family: int) -> list[tuple[int, str]]:
    """Addresses from the program's resolver, with their families. gaierror when there are none: EAI_AGAIN if a
    resolver's NameError says that it is `temporary`."""
    name = host.decode("ascii") if isinstance(host, bytes) else host
    found: list[tuple[int, str]] = []
    temporary = False
    resolver = _resolver()
    for wanted in _FAMILIES if family == socket.AF_UNSPEC else (family,):
        try:
            found += [(wanted, address) for address in resolver.addresses(name, wanted)]
        except ResolverNameError as e:
            temporary = temporary or getattr(e, "temporary", False)
    if not found and temporary:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    if not found:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return found


def getaddrinfo(
    host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
) -> list[tuple[Any, ...]]:
    """Resolve host and port into list of address info entries; see socket.getaddrinfo. Suspends only the calling coro
    thread."""
    if not _blocking.in_thread_of_loop() or (_is_number(host) and not isinstance(port, str)):
        return _getaddrinfo(host, port, family, type, proto, flags)  # type: ignore[no-any-return]
    own = _own("getaddrinfo")
    if own is not None:
        return own(host, port, family, type, proto, flags)  # type: ignore[no-any-return]
    if _is_number(host) or _resolver() is None or family not in (socket.AF_UNSPEC, *_FAMILIES):
        return _in_thread(_getaddrinfo, host, port, family, type, proto, flags)  # type: ignore[no-any-return]
    answers: list[tuple[Any, ...]] = []
    plain = (flags | socket.AI_NUMERICHOST) & ~(socket.AI_CANONNAME | socket.AI_ADDRCONFIG | socket.AI_V4MAPPED)
    for found_family, address in _look_up(host, family):
        answers += _getaddrinfo(address, port, found_family, type, proto, plain)
    if flags & socket.AI_CANONNAME and answers:
        answers[0] = (*answers[0][:3], host if isinstance(host, str) else host.decode("ascii"), answers[0][4])
    return answers


def gethostbyname(host: Any, /) -> str:
    """The IPv4 address of a host; see socket.gethostbyname."""
    if not _blocking.in_thread_of_loop() or _is_number(host):
        return _original["gethostbyname"](host)  # type: ignore[no-any-return]
    if _resolver() is None:
        return _in_thread(_original["gethostbyname"], host)  # type: ignore[no-any-return]
    return _look_up(host, socket.AF_INET)[0][1]


def gethostbyname_ex(host: Any, /) -> tuple[str, list[str], list[str]]:
    """Name, aliases and IPv4 addresses of a host; see socket.gethostbyname_ex."""
    if not _blocking.in_thread_of_loop() or _is_number(host):
        return _original["gethostbyname_ex"](host)  # type: ignore[no-any-return]
    if _resolver() is None:
        return _in_thread(_original["gethostbyname_ex"], host)  # type: ignore[no-any-return]
    own = _own("gethostbyname_ex")
    if own is not None and isinstance(host, str):
        return own(host)  # type: ignore[no-any-return]
    return host, [], [address for _, address in _look_up(host, socket.AF_INET)]


def gethostbyaddr(host: Any, /) -> tuple[str, list[str], list[str]]:
    """Name, aliases and addresses of a host; see socket.gethostbyaddr."""
    if not _blocking.in_thread_of_loop():
        return _original["gethostbyaddr"](host)  # type: ignore[no-any-return]
    own = _own("gethostbyaddr")
    if own is not None and isinstance(host, str):
        return own(host)  # type: ignore[no-any-return]
    return _in_thread(_original["gethostbyaddr"], host)  # type: ignore[no-any-return]


def getnameinfo(sockaddr: Any, flags: Any, /) -> tuple[str, str]:
    """The host and port of an address as text; see socket.getnameinfo."""
    if not _blocking.in_thread_of_loop() or not isinstance(sockaddr, tuple) or _is_numeric(flags):
        try:
            return _original["getnameinfo"](sockaddr, flags)  # type: ignore[no-any-return]
        finally:
            del sockaddr  # the traceback of the original keeps no argument alive
    own = _own("getnameinfo")
    if own is not None:
        return own(sockaddr, flags)  # type: ignore[no-any-return]
    return _in_thread(_original["getnameinfo"], sockaddr, flags)  # type: ignore[no-any-return]


def _is_numeric(flags: Any) -> bool:
    numeric = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
    return not isinstance(flags, int) or flags & numeric == numeric


def numeric_address(sock: Any, address: Any) -> Any:
    """An address for connect() or bind() in which a name has become a number, so that the original looks nothing up."""
    if sock.family not in _FAMILIES or not isinstance(address, tuple) or len(address) < 2 or _is_number(address[0]):
        return address
    if not isinstance(address[0], (str, bytes, bytearray)) or not isinstance(address[1], int):
        return address
    host = bytes(address[0]) if isinstance(address[0], bytearray) else address[0]
    if _resolver() is not None:
        number: Any = _look_up(host, sock.family)[0][1]
    else:
        number = _in_thread(_raw_getaddrinfo, host, None, sock.family, socket.SOCK_DGRAM)[0][4][0]
    return (number, *address[1:])


def plan(p: Plan) -> None:
    """What to replace."""
    for function in (getaddrinfo, gethostbyname, gethostbyname_ex, gethostbyaddr, getnameinfo):
        p.replace(socket, function.__name__, function)
