"""What is asked of a server, and what is raised if it does not help."""

from __future__ import annotations

__all__ = ["Query", "Refusal"]


class Refusal(Exception):
    """This server does not help; the text says why."""


class Query:
    """What is asked: `name` in wire form and lower case. `size`: of the largest reply over UDP, 0 for no EDNS."""

    __slots__ = ("dnssec", "name", "rtype", "size", "source", "trust", "use_tcp")

    def __init__(
        self, name: bytes, rtype: int, size: int, dnssec: bool, trust: bool, use_tcp: bool, source: str | None
    ) -> None:
        self.name = name
        self.rtype = rtype
        self.size = size
        self.dnssec = dnssec
        self.trust = trust
        self.use_tcp = use_tcp
        self.source = source
