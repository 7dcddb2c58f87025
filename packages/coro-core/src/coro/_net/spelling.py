"""What somebody meant who wrote an address in another way than coro takes it.

Addresses are ``(host, port)``, as in the standard library's ``socket``; many programs and settings write
``"127.0.0.1:8080"``. Taking that too would be wrong: a str is the path of a UNIX socket here. So the errors say how it
is written. Cost: nothing, but for the two calls that take both a path and a host, which look at a str once.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["host_and_port", "spelled"]

# "host:8080", "[::1]:8080", ":8080", "tcp://host:8080"
_HOST_PORT = re.compile(r"(?:[a-z]+://)?(?:\[([^\[\]/]*)\]|([^/:\0]*)):([0-9]{1,5})/?", re.IGNORECASE)


def host_and_port(given: Any) -> tuple[str, int] | None:
    """The address that was meant by something that is none, None where that is not to be seen."""
    if isinstance(given, (bytes, bytearray)):
        try:
            given = bytes(given).decode("ascii")
        except UnicodeDecodeError:
            return None
    if isinstance(given, str):
        found = _HOST_PORT.fullmatch(given)
        if found is None:
            return None
        host, port = found[1] or found[2] or "", int(found[3])
    elif isinstance(given, list) and len(given) == 2:
        host, port = given
    else:
        host, port = "", given
    if not isinstance(host, str) or not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= 65535:
        return None
    return host, port


def spelled(given: Any) -> str:
    """The end of an error message: how it is written, "" where that cannot be told."""
    meant = host_and_port(given)
    return "" if meant is None else f"; write {meant!r}"
