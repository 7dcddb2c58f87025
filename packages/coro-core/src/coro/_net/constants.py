"""The name spaces AF, PF, SOCK, SHUT, SOL, SO and MSG: the socket constants of this system under short names.

They are made from the names of the standard library's C module, so that ``SO.REUSEPORT`` exists exactly where
the system has ``SO_REUSEPORT``; members are ints and interchangeable with the standard library's.  AF, SOCK
and SHUT are enumerations, because their members are shown to people; the others, like the standard library's,
are plain numbers, which are thirty times cheaper to make.  Rejected: importing ``socket`` itself, which costs
several milliseconds.
"""

import _socket
from enum import IntEnum
from typing import Any

__all__ = ["AF", "MSG", "PF", "SHUT", "SO", "SOCK", "SOL"]


def _names(prefix: str, **more: int) -> dict[str, int]:
    names = {n[len(prefix) :]: getattr(_socket, n) for n in dir(_socket) if n.startswith(prefix)}
    # names that are no identifiers without their prefix (SO_3...) would need getattr(): there are none today
    return {**more, **{n: v for n, v in names.items() if isinstance(v, int)}}


_families = _names("AF_")
_families["LOCAL"] = _families["UNIX"]

_enum: Any = IntEnum
AF: Any = _enum("AF", _families, module=__name__)
AF.__doc__ = "Address families: ``INET``, ``INET6``, ``UNIX``, and what else the system has. ``PF`` is the same class."
PF: Any = AF
SOCK: Any = _enum("SOCK", _names("SOCK_"), module=__name__)
SOCK.__doc__ = "Types of sockets: ``STREAM``, ``DGRAM``, and whatever else the system has."
SHUT: Any = _enum("SHUT", {"RD": 0, "WR": 1, "RDWR": 2}, module=__name__)
SHUT.__doc__ = "What ``sock.shutdown`` ends: receiving (``RD``), sending (``WR``) or both (``RDWR``)."


class _Names(type):
    def __iter__(cls) -> Any:
        return iter(sorted(n for n in vars(cls) if n.isupper()))

    def __repr__(cls) -> str:
        return f"<constants {cls.__name__}: {' '.join(cls)}>"


SOL: Any = _Names("SOL", (), {"__doc__": "Levels of socket options.", **_names("SOL_")})
SO: Any = _Names("SO", (), {"__doc__": "Socket options of level SOL.SOCKET.", **_names("SO_")})
MSG: Any = _Names("MSG", (), {"__doc__": "Flags of send and receive calls.", **_names("MSG_")})
