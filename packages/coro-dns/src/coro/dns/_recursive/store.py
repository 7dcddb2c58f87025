"""What the recursive resolver remembers: sets of records, that there are none, and delegations, in bounded memory.

A store has two generations of nearly half the size. New and used entries are in the young one; when it is full, it
becomes the old one and what was in the old one goes. So an entry goes after it has not been used for as long as it
takes so many others to come. Cost: a look-up in each generation, in the young one alone for what was used lately; no
links between the entries. Rejected: a list in the order of use (two pointers for each entry), which a million entries
would pay for.

Whoever has a domain can have names without end looked up in it, to push out what others use (the CacheFlush attack,
Afek and others, 2024). So a *domain*, the last two labels of a name, gets a quarter of a generation. What it has beyond
that goes to the *crowd*, two more generations that are as large as the others leave room, an eighth of the size at
least. There nobody suffers but domains that are beyond their share themselves. A store that serves a single domain
holds as much as ever: the others leave room. Cuts of zones do not count, because an attacker has as many as he likes.
Below an ending like `co.uk` everybody has a domain, so there it is the last three labels, and all of such an ending
together get half of a generation: it may also be the name of somebody who has as many domains as he likes below it.
Domains are counted in a table of fixed size, by a hash that nobody can foresee: two that share a place have one share
together. Cost: 16 KiB, and half a microsecond for a new entry.

An entry stays after its time: a *stale* one is better than none while the servers of a zone are down (RFC 8767).
"""

from __future__ import annotations

import math
from array import array
from itertools import islice
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from coro.dns._dnssec.signatures import RRset

__all__ = ["Delegation", "Entry", "Found", "Signed", "Store"]

_E = TypeVar("_E")
#: Places to count domains in: one of 4096 domains suffers with one that has used up its share.
PLACES = 4096


class Signed:
    """What DNSSEC has about an entry."""

    __slots__ = ("better", "proof", "secure", "server", "signatures", "until", "wrong")

    def __init__(
        self, signatures: tuple[bytes, ...], proof: tuple[RRset, ...], server: tuple[str, int] | None = None
    ) -> None:
        self.signatures = signatures  # of its records
        self.proof = proof  # SOA, NSEC and NSEC3 records that came with it, with their signatures
        self.secure: bool | None = None  # None: not checked yet, or wrong
        self.wrong = ""  # why, and until when it is not checked again
        self.until = 0.0
        self.server = server  # who said so
        #: A question, and what another server said to it, which was right.
        self.better: tuple[tuple[bytes, int], Found] | None = None


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


class Found(NamedTuple):
    """One step of an answer: the entry, of this type (the one asked for, CNAME or DNAME), with this owner."""

    entry: Entry
    rtype: int
    owner: bytes
    stale: bool = False


class Delegation:
    """A zone's servers, as its parent names them: with that parent's time limit, which no answer of the zone's own
    servers can prolong. Beside it there may be the zone's DS records, or the proof that there are none."""

    __slots__ = ("addresses", "ds", "expires", "glue", "names", "zone")

    def __init__(
        self,
        zone: bytes,
        expires: float,
        names: tuple[bytes, ...],
        addresses: dict[bytes, tuple[str, ...]],
        ds: Entry | None = None,
    ) -> None:
        self.zone = zone
        self.expires = expires
        self.names = names
        self.glue = frozenset(addresses)  # servers whose addresses came with it
        self.addresses = addresses  # and addresses: good for asking the servers, and for nothing else
        self.ds = ds  # for the validator alone: the parent's servers answer a question with more


def domain_of(key: bytes) -> bytes:
    """Whose share an entry is part of: the last two labels of the name in wire form that the key begins with.

    That a name does not exist (two zeros follow it) is part of what is known of the name above it: nobody has to own
    names that do not exist to have many of them looked up.
    """
    at = first = last = second = 0
    while length := key[at]:
        second, last = last, at
        at += length + 1
        first = first or at
    if key[at + 1 :] == b"\0\0":
        second = max(second, first)
    return key[second : at + 1]


def below_ending(key: bytes, ending: bytes) -> bytes:
    """The domain below an ending like `co.uk`, with the label before it; empty if `ending` is none, or has none before.

    An ending has two labels, at most three letters and the two of a country.
    """
    above = ending[ending[0] + 1 :] if ending[0] else b""
    if ending[0] > 3 or above[:1] != b"\2":
        return b""
    at = count = third = second = last = 0
    while length := key[at]:  # no search for the first zero: labels may have some
        third, second, last = second, last, at
        at += length + 1
        count += 1
    return key[third : at + 1] if count > 2 else b""


class Store(Generic[_E]):
    """A dictionary with at most `size` entries, at least 8, of keys that begin with a name in wire form."""

    def __init__(self, size: int) -> None:
        size = max(size, 8)
        self.size = size
        self.least = size // 8  # for the crowd, whoever else is there
        self.half = (size - self.least) // 2
        self.share = max(self.half // 4, 1)
        self.young: dict[bytes, _E] = {}
        self.old: dict[bytes, _E] = {}
        self.crowd: dict[bytes, _E] = {}
        self.old_crowd: dict[bytes, _E] = {}
        self._counts = array("I", [0]) * PLACES

    def peek(self, key: bytes) -> _E | None:
        """The entry of `key`, None if there is none, and no use of it."""
        for some in (self.young, self.old, self.crowd, self.old_crowd):
            entry = some.get(key)
            if entry is not None:
                return entry
        return None

    def get(self, key: bytes) -> _E | None:
        """The entry of `key`, None if there is none."""
        entry = self.young.get(key)
        if entry is not None:
            return entry
        entry = self.old.pop(key, None)
        if entry is None:
            entry = self.crowd.get(key)
            if entry is not None:
                return entry
            entry = self.old_crowd.pop(key, None)
        if entry is not None:
            self.put(key, entry)
        return entry

    def put(self, key: bytes, entry: _E) -> None:
        """Keep an entry; others may go."""
        if key in self.young:
            self.young[key] = entry
            return
        if key in self.crowd:
            self.crowd[key] = entry
            return
        self.old.pop(key, None)
        self.old_crowd.pop(key, None)
        if len(self.young) >= self.half:
            self.old = self.young
            self.young = {}
            self._counts = array("I", [0]) * PLACES
        domain = domain_of(key)
        place = hash(domain) % PLACES
        share = self.share
        below = below_ending(key, domain)
        if below:
            ending, place = place, hash(below) % PLACES
            if self._counts[ending] >= 2 * self.share:
                share = 0
            elif self._counts[place] < share:
                self._counts[ending] += 1
        if self._counts[place] < share:
            self._counts[place] += 1
            self.young[key] = entry
        else:
            self.crowd[key] = entry
        self._make_room()

    def _make_room(self) -> None:
        """Let those of the crowd go for which the others leave no room."""
        room = self.size - len(self.young) - len(self.old)
        if len(self.crowd) >= room // 2:
            self.old_crowd = self.crowd
            self.crowd = {}
        much = len(self.crowd) + len(self.old_crowd) - room
        if much > 0:
            # Half of them, so that this is seldom, and those that came first.
            kept = len(self.old_crowd) - max(much, len(self.old_crowd) // 2)
            self.old_crowd = dict(islice(self.old_crowd.items(), len(self.old_crowd) - kept, None)) if kept > 0 else {}

    def drop(self, key: bytes) -> bool:
        """Forget an entry. Was there one?"""
        return any(some.pop(key, None) is not None for some in (self.young, self.old, self.crowd, self.old_crowd))

    def keys(self) -> list[bytes]:
        """All keys, those unused for long first."""
        return [*self.old_crowd, *self.old, *self.crowd, *self.young]

    def __len__(self) -> int:
        return len(self.young) + len(self.old) + len(self.crowd) + len(self.old_crowd)

    def clear(self) -> None:
        """Forget everything."""
        self.young, self.old, self.crowd, self.old_crowd = {}, {}, {}, {}
        self._counts = array("I", [0]) * PLACES
