"""A zone in memory (RFC 1034, section 4.2; RFC 2181, section 5): names -> sets of records, all in wire form.

A name is bytes in lower case, as in `_wire`. `nodes` has each name that exists: those with records, and those that only
have names below them (empty non-terminals, RFC 8020), so one look-up says whether a name exists. A node is a dictionary
from a key to a set, `(ttl, (data, ...))`. The key is the type; signatures have one for each type that they cover, since
they share its TTL (RFC 4034, section 3): SIGNED + that type. No node and no set is ever changed: a change puts new ones
in their place. So a transfer that takes minutes goes on from a copy of the list of nodes: 16 bytes for each name.

Records of NSEC3 (RFC 5155) are kept apart, in `hashes`: their names do not exist for those who ask.

Each change is remembered as its removed and added records, until there are more than `history` of them; IXFR
(RFC 1995) sends these.

Cost: about 600 bytes for a name with one address. Rejected: a tree of labels, which needs a step for each label where a
dictionary needs one for most questions; an immutable zone with a copy for each change.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from coro.dns import _wire
from coro.dns._packet.codec import UnpackError, canonical, value_of
from coro.dns._packet.numbers import type_text
from coro.dns.exceptions import DNS_Zone_Error

__all__ = [
    "Builder", "Change", "Data", "Edit", "Node", "RRset", "Record", "is_newer", "key_of", "order_of", "serial_of",
    "text_of", "type_of",
]  # fmt: skip

#: (owner, type, class, ttl, data)
Record: TypeAlias = tuple[bytes, int, int, int, bytes]
RRset: TypeAlias = tuple[int, tuple[bytes, ...]]
Node: TypeAlias = dict[int, RRset]

A, NS, CNAME, SOA, AAAA, DNAME, OPT, RRSIG, NSEC, DNSKEY, NSEC3, NSEC3PARAM = 1, 2, 5, 6, 28, 39, 41, 46, 47, 48, 50, 51
SIGNED = RRSIG << 16
#: May stand beside a CNAME, as its signatures may (RFC 4034, section 2.5; SIG, KEY and NXT are those of RFC 2535).
BESIDE_ALIAS = frozenset((CNAME, NSEC, 24, 25, 30))
#: Records that changes are remembered in, by default.
HISTORY = 100_000


def text_of(name: bytes) -> str:
    """A name as text, for people: with a dot at its end."""
    return _wire.to_text(name).rstrip(".") + "."


def serial_of(soa: bytes) -> int:
    """The serial of a SOA record's data."""
    return int.from_bytes(soa[-20:-16], "big")


def is_newer(serial: int, other: int) -> bool:
    """Is a serial newer than another one? (RFC 1982; a distance of exactly half the circle is not.)"""
    return 0 < (serial - other) & 0xFFFFFFFF < 0x80000000


def order_of(name: bytes) -> tuple[bytes, ...]:
    """What names are sorted by in the canonical order (RFC 4034, section 6.1): labels from the last to the first."""
    labels = []
    at = 0
    while size := name[at]:
        labels.append(name[at + 1 : at + 1 + size])
        at += size + 1
    return tuple(labels[::-1])


def key_of(rtype: int, data: bytes) -> int:
    """The key of a record's set."""
    return SIGNED + int.from_bytes(data[:2], "big") if rtype == RRSIG else rtype


def type_of(key: int) -> int:
    """The type of the records in a set with that key."""
    return RRSIG if key >= SIGNED else key


class Change(NamedTuple):
    """What one serial has that the one before had not."""

    old: Record
    removed: list[Record]
    new: Record
    added: list[Record]


def _same(rtype: int, one: bytes, other: bytes) -> bool:
    return one == other or len(one) == len(other) and canonical(rtype, one) == canonical(rtype, other)


def _distinct(rtype: int, datas: list[bytes]) -> tuple[bytes, ...]:
    """Without repetitions (RFC 2181, section 5); names in data count as equal whatever their letters are."""
    if len(datas) == 1:
        return (datas[0],)
    return tuple({canonical(rtype, data): data for data in reversed(datas)}.values())[::-1]


class Builder:
    """Collects the records of a zone."""

    def __init__(self, origin: bytes, klass: int = 1) -> None:
        self.origin = origin
        self.klass = klass
        self.count = 0
        self._sets: dict[bytes, dict[int, tuple[list[int], list[bytes]]]] = {}

    def add(self, name: bytes, rtype: int, ttl: int, data: bytes) -> None:
        """A record. Raises DNS_Zone_Error if it cannot be in this zone."""
        if not _wire.below(name, self.origin):
            raise DNS_Zone_Error(f"{text_of(name)} is not in the zone {text_of(self.origin)}")
        if rtype == OPT or rtype == 0 or 128 <= rtype <= 255:
            raise DNS_Zone_Error(f"a record of the type {type_text(rtype)} cannot be in a zone")
        if rtype == SOA and name != self.origin:
            raise DNS_Zone_Error(f"a SOA record at {text_of(name)}: it belongs to {text_of(self.origin)}")
        node = self._sets.get(name)
        if node is None:
            node = self._sets[name] = {}
        key = key_of(rtype, data)
        known = node.get(key)
        if known is None:
            node[key] = ([ttl], [data])
        else:
            known[1].append(data)
            if ttl < known[0][0]:
                known[0][0] = ttl  # RFC 2181, section 5.2: all of a set have one TTL
        self.count += 1

    def finish(self, history: int = HISTORY) -> Data:
        """The zone. Raises DNS_Zone_Error if it cannot be one."""
        zone = Data(self.origin, self.klass, history)
        for name, sets in self._sets.items():
            node: Node = {key: (ttl[0], _distinct(type_of(key), datas)) for key, (ttl, datas) in sets.items()}
            zone.check(name, node)
            zone.put(name, node)
        self._sets.clear()
        if SOA not in zone.nodes.get(zone.origin, {}):
            raise DNS_Zone_Error(f"expected a SOA record for {text_of(self.origin)}, found none")
        return zone


class Data:
    """One zone. Its name is `origin`; `changed` counts changes."""

    def __init__(self, origin: bytes, klass: int = 1, history: int = HISTORY) -> None:
        self.origin = origin
        self.klass = klass
        self.nodes: dict[bytes, Node] = {origin: {}}
        self.hashes: dict[bytes, Node] = {}
        #: Names with names directly below them -> how many.
        self.children: dict[bytes, int] = {}
        #: Names at which answers change: delegations and DNAME.
        self.cuts: set[bytes] = set()
        self.changed = 0
        #: Called after each change.
        self.watchers: list[Callable[[], object]] = []
        self.history = history
        self.changes: deque[Change] = deque()
        self._remembered = 0
        self._sorted: list[tuple[tuple[bytes, ...], bytes]] | None = None
        self._sorted_hashes: list[bytes] | None = None

    # -- looking

    @property
    def soa(self) -> RRset:
        """The SOA record."""
        return self.nodes[self.origin][SOA]

    @property
    def soa_record(self) -> Record:
        """The same as a record."""
        ttl, datas = self.soa
        return self.origin, SOA, self.klass, ttl, datas[0]

    @property
    def serial(self) -> int:
        """The serial of the zone."""
        return serial_of(self.soa[1][0])

    @property
    def is_signed(self) -> bool:
        """Is there a key and a signature at its top?"""
        top = self.nodes[self.origin]
        return DNSKEY in top and SIGNED + SOA in top

    def timers(self) -> tuple[int, int, int, int]:
        """Refresh, retry, expire and minimum, in seconds."""
        numbers = self.soa[1][0][-16:]
        refresh, retry, expire, minimum = (int.from_bytes(numbers[i : i + 4], "big") for i in (0, 4, 8, 12))
        return refresh, retry, expire, minimum

    def __len__(self) -> int:
        """How many records there are."""
        return sum(len(datas) for node in self.all_nodes() for _, datas in node[1].values())

    def all_nodes(self) -> list[tuple[bytes, Node]]:
        """Names and their sets, as they are now: later changes do not show."""
        return [*self.nodes.items(), *self.hashes.items()]

    def records(self) -> Iterator[Record]:
        """All records, the SOA record first."""
        nodes = self.all_nodes()
        yield self.soa_record
        for name, node in nodes:
            for key, (ttl, datas) in node.items():
                if key != SOA:
                    for data in datas:
                        yield name, type_of(key), self.klass, ttl, data

    def before(self, name: bytes) -> bytes | None:
        """The last name that has an NSEC record and is not behind `name` in the canonical order."""
        if self._sorted is None:
            self._sorted = sorted((order_of(one), one) for one, node in self.nodes.items() if NSEC in node)
        if not self._sorted:
            return None
        at = bisect_right(self._sorted, (order_of(name), name))
        return self._sorted[at - 1][1]

    def hash_before(self, name: bytes) -> bytes | None:
        """The last name of an NSEC3 record that is not behind `name`, a hash below the origin; around the circle if
        there is none."""
        if self._sorted_hashes is None:
            self._sorted_hashes = sorted(self.hashes)  # their first labels are equally long
        if not self._sorted_hashes:
            return None
        return self._sorted_hashes[bisect_right(self._sorted_hashes, name) - 1]

    # -- changing

    def check(self, name: bytes, node: Node) -> None:
        """Raises DNS_Zone_Error if a name cannot have these sets."""
        alias = node.get(CNAME)
        if alias is not None:
            if len(alias[1]) > 1:
                raise DNS_Zone_Error(f"{text_of(name)} has {len(alias[1])} CNAME records: one is all it can have")
            other = [key for key in node if key not in BESIDE_ALIAS and key < SIGNED]
            if other:
                raise DNS_Zone_Error(f"{text_of(name)} has a CNAME record and others: {type_text(other[0])}")
        if DNAME in node and len(node[DNAME][1]) > 1:
            raise DNS_Zone_Error(f"{text_of(name)} has {len(node[DNAME][1])} DNAME records: one is all it can have")
        soa = node.get(SOA)
        if soa is not None:
            if len(soa[1]) > 1:
                raise DNS_Zone_Error(f"{text_of(name)} has {len(soa[1])} SOA records: one is all it can have")
            try:
                value_of(SOA, soa[1][0])
            except UnpackError as e:
                raise DNS_Zone_Error(f"the SOA record of {text_of(name)}: {e}") from None

    def put(self, name: bytes, node: Node) -> None:
        """Set what a name has; nothing (an empty node) removes it, and the names above that exist for it alone."""
        if NSEC3 in node or name in self.hashes:
            node = self._put_hashes(name, node)
        known = self.nodes.get(name)
        if known is None:
            if not node:
                return
            self._make_above(name)
            known = {}
        if NSEC in node or NSEC in known:
            self._sorted = None
        self.nodes[name] = node
        if DNAME in node or NS in node and name != self.origin:
            self.cuts.add(name)
        else:
            self.cuts.discard(name)
        while not self.nodes[name] and name not in self.children and name != self.origin:
            del self.nodes[name]
            name = _wire.parent(name)
            self.children[name] -= 1
            if not self.children[name]:
                del self.children[name]

    def _put_hashes(self, name: bytes, node: Node) -> Node:
        """Keep its NSEC3 records with their signatures apart; returns the rest."""
        self._sorted_hashes = None
        if NSEC3 not in node:
            self.hashes.pop(name, None)
            return node
        hashed = {key: rrset for key, rrset in node.items() if key in (NSEC3, SIGNED + NSEC3)}
        rest = {key: rrset for key, rrset in node.items() if key not in hashed}
        self.hashes[name] = hashed
        return rest

    def _make_above(self, name: bytes) -> None:
        while name != self.origin:
            name = _wire.parent(name)
            self.children[name] = self.children.get(name, 0) + 1
            if name in self.nodes:
                return
            self.nodes[name] = {}

    def node(self, name: bytes) -> Node:
        """What a name has, NSEC3 included."""
        node = self.nodes.get(name, {})
        hashed = self.hashes.get(name)
        if hashed is None:
            return node
        return {**node, **hashed}

    def commit(self, plan: dict[bytes, Node]) -> Change:
        """Put new nodes in the place of old ones, all at once, and remember what that changes. Raises DNS_Zone_Error,
        with nothing changed, if the zone cannot be like that."""
        for name, node in plan.items():
            self.check(name, node)
        if SOA not in plan.get(self.origin, {SOA: None}):
            raise DNS_Zone_Error(f"the SOA record of {text_of(self.origin)} cannot be removed")
        old = self.soa_record
        removed: list[Record] = []
        added: list[Record] = []
        for name, node in plan.items():
            self._differences(name, self.node(name), node, removed, added)
        for name, node in plan.items():
            self.put(name, node)
        self.changed += 1
        change = Change(old, removed, self.soa_record, added)
        self._remember(change)
        for watcher in list(self.watchers):
            watcher()
        return change

    def _differences(self, name: bytes, old: Node, new: Node, removed: list[Record], added: list[Record]) -> None:
        for key in {*old, *new} - {SOA}:
            before, after = old.get(key), new.get(key)
            if before == after:
                continue
            keep: frozenset[bytes] = frozenset()
            if before and after and before[0] == after[0]:
                keep = frozenset(before[1]) & frozenset(after[1])
            for rrset, out in ((before, removed), (after, added)):
                if rrset:
                    out += [(name, type_of(key), self.klass, rrset[0], data) for data in rrset[1] if data not in keep]

    def _remember(self, change: Change) -> None:
        if change.old[4] == change.new[4] or not is_newer(serial_of(change.new[4]), serial_of(change.old[4])):
            self.changes.clear()  # those before lead nowhere
            self._remembered = 0
            return
        self.changes.append(change)
        self._remembered += len(change.removed) + len(change.added) + 2
        while self.changes and self._remembered > self.history:
            gone = self.changes.popleft()
            self._remembered -= len(gone.removed) + len(gone.added) + 2

    def since(self, serial: int) -> list[Change] | None:
        """The changes after that serial; None if they are not known."""
        out: list[Change] = []
        for change in reversed(self.changes):
            out.append(change)
            if serial_of(change.old[4]) == serial:
                return out[::-1]
        return None


class Edit:
    """Changes to a zone that are being collected: `zone.commit(edit.plan())` makes them."""

    def __init__(self, zone: Data) -> None:
        self.zone = zone
        self._nodes: dict[bytes, Node] = {}

    def node(self, name: bytes) -> Node:
        """What a name has with the changes so far."""
        node = self._nodes.get(name)
        return self.zone.node(name) if node is None else node

    def _mine(self, name: bytes) -> Node:
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = dict(self.zone.node(name))
        return node

    def add(self, name: bytes, rtype: int, ttl: int, data: bytes) -> None:
        """A record. Its TTL becomes that of the whole set."""
        node = self._mine(name)
        key = key_of(rtype, data)
        datas = node[key][1] if key in node else ()
        if any(_same(rtype, data, one) for one in datas):
            node[key] = (ttl, tuple(data if _same(rtype, data, one) else one for one in datas))
        else:
            node[key] = (ttl, (*datas, data))

    def replace(self, name: bytes, rtype: int, ttl: int, data: bytes) -> None:
        """A record that is the only one of its set."""
        self._mine(name)[rtype] = (ttl, (data,))

    def remove(self, name: bytes, rtype: int, data: bytes) -> bool:
        """A record. Was it there?"""
        node = self.node(name)
        key = key_of(rtype, data)
        if key not in node:
            return False
        ttl, datas = node[key]
        left = tuple(one for one in datas if not _same(rtype, data, one))
        if len(left) == len(datas):
            return False
        if left:
            self._mine(name)[key] = (ttl, left)
        else:
            del self._mine(name)[key]
        return True

    def remove_set(self, name: bytes, rtype: int) -> bool:
        """A whole set. Was it there?"""
        return rtype in self.node(name) and self._mine(name).pop(rtype, None) is not None

    def plan(self) -> dict[bytes, Node]:
        """Name -> all that it has, for names that differ."""
        return {name: node for name, node in self._nodes.items() if node != self.zone.node(name)}
