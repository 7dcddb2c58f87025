"""What the recursive resolver remembers: sets of records, that there are none, and delegations, in bounded memory.

A store has two generations of half the size. New and used entries are in the young one; when it is full, it becomes the
old one and what was in the old one goes. So an entry goes after it has not been used for as long as it takes half the
size of others to come. Cost: two look-ups for an entry that was not used lately, one otherwise; no links between the
entries. Rejected: a list in the order of use (two pointers for each entry), which a million entries would pay for.

An entry stays after its time: a *stale* one is better than none while the servers of a zone are down (RFC 8767).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from coro.dns._dnssec.signatures import RRset

__all__ = ["Delegation", "Entry", "Signed", "Store"]

_E = TypeVar("_E")


class Signed:
    """What DNSSEC has about an entry."""

    __slots__ = ("proof", "secure", "signatures", "until", "wrong")

    def __init__(self, signatures: tuple[bytes, ...], proof: tuple[RRset, ...]) -> None:
        self.signatures = signatures  # of its records
        self.proof = proof  # SOA, NSEC and NSEC3 records that came with it, with their signatures
        self.secure: bool | None = None  # None: not checked yet, or wrong
        self.wrong = ""  # why, and until when it is not checked again
        self.until = 0.0


class Entry:
    """The records of one name and type, in wire form; none if `soa` says so, or the name does not exist."""

    __slots__ = ("data", "expires", "hard", "signed", "soa", "ttl")

    def __init__(
        self,
        expires: float,
        ttl: int,
        data: tuple[bytes, ...],
        soa: tuple[bytes, bytes] | None = None,
        hard: bool = False,
        signed: Signed | None = None,
    ) -> None:
        self.expires = expires  # of the monotonic clock
        self.ttl = ttl
        self.data = data
        self.soa = soa  # the owner of the SOA record of a negative answer, and its data
        self.hard = hard  # the name does not exist
        self.signed = signed  # None if nobody validates

    def left(self, now: float) -> int:
        """The seconds that it may still be used: the TTL to hand on."""
        return max(math.ceil(self.expires - now), 0) if self.expires < math.inf else self.ttl


class Delegation:
    """A zone's servers, as its parent names them: with that parent's time limit, which no answer of the zone's own
    servers can prolong."""

    __slots__ = ("addresses", "expires", "names", "zone")

    def __init__(
        self, zone: bytes, expires: float, names: tuple[bytes, ...], addresses: dict[bytes, tuple[str, ...]]
    ) -> None:
        self.zone = zone
        self.expires = expires
        self.names = names
        self.addresses = addresses  # the parent's: good for asking the servers, and for nothing else


class Store(Generic[_E]):
    """A dictionary with at most `size` entries of keys that are bytes."""

    def __init__(self, size: int) -> None:
        self.half = max(size // 2, 1)
        self.young: dict[bytes, _E] = {}
        self.old: dict[bytes, _E] = {}

    def get(self, key: bytes) -> _E | None:
        """The entry of `key`, None if there is none."""
        entry = self.young.get(key)
        if entry is None:
            entry = self.old.pop(key, None)
            if entry is not None:
                self.put(key, entry)
        return entry

    def put(self, key: bytes, entry: _E) -> None:
        """Keep an entry; others may go."""
        young = self.young
        if len(young) >= self.half and key not in young:
            self.old = young
            self.young = young = {}
        young[key] = entry
        if self.old:
            self.old.pop(key, None)

    def drop(self, key: bytes) -> bool:
        """Forget an entry. Was there one?"""
        young = self.young.pop(key, None)
        return self.old.pop(key, None) is not None or young is not None

    def keys(self) -> list[bytes]:
        """All keys, those unused for long first."""
        return [*self.old, *self.young]

    def __len__(self) -> int:
        return len(self.young) + len(self.old)

    def clear(self) -> None:
        """Forget everything."""
        self.young = {}
        self.old = {}
