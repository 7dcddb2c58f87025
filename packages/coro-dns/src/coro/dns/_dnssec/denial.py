"""Proofs that there is nothing: NSEC (RFC 4035, section 5.4) and NSEC3 (RFC 5155, section 8).

All records given here have valid signatures of `zone`. NSEC3 wants hashes of names: those of a question are counted by
its `Budget`, and a zone that wants more than ITERATIONS_MOST rounds for each counts as not signed (RFC 9276, section
3.2), so that a forger cannot have us do his work (CVE-2023-50868).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from coro.dns import _wire
from coro.dns._dnssec.signatures import Budget, RRset
from coro.dns.packet import UnpackError, rdata_value

__all__ = ["INSECURE", "PROVEN", "Denial", "in_order"]

NS, CNAME, SOA, DS, DNAME, NSEC, NSEC3 = 2, 5, 6, 43, 39, 47, 50
ITERATIONS_MOST = 150
#: What a proof shows: what it should; that nobody can tell (opt-out, or more iterations than we take).
PROVEN, INSECURE = "proven", "insecure"


def in_order(name: bytes) -> tuple[bytes, ...]:
    """A name as something that compares in the canonical order (RFC 4034, section 6.1)."""
    out = []
    at = 0
    while name[at]:
        out.append(name[at + 1 : at + 1 + name[at]])
        at += name[at] + 1
    return tuple(reversed(out))


class _Nsec(NamedTuple):
    owner: bytes
    next: bytes
    types: frozenset[int]


class _Nsec3(NamedTuple):
    hashed: bytes
    next: bytes
    types: frozenset[int]
    opt_out: bool


def _types(data: bytes) -> frozenset[int]:
    out: set[int] = set()
    at = 0
    while at + 2 <= len(data):
        window, size = data[at], data[at + 1]
        for i, byte in enumerate(data[at + 2 : at + 2 + size]):
            out.update(window << 8 | i << 3 | bit for bit in range(8) if byte & 128 >> bit)
        at += 2 + size
    return frozenset(out)


class Denial:
    """The proofs of one reply."""

    def __init__(self, zone: bytes, proofs: Sequence[RRset], budget: Budget) -> None:
        self.zone = zone
        self.budget = budget
        self.nsecs: list[_Nsec] = []
        self.nsec3s: list[_Nsec3] = []
        self.too_many_rounds = False
        self.parameters: tuple[int, bytes] | None = None
        self.hashes: dict[bytes, bytes] = {}
        for one in proofs:
            for data in one.data[:1]:
                try:
                    rdata_value(one.rtype, data)
                except UnpackError:
                    continue  # its zone has signed something else under this type
                if one.rtype == NSEC:
                    end = 0
                    while end < len(data) and data[end]:
                        end += data[end] + 1
                    self.nsecs.append(_Nsec(one.owner, _wire.lower(data[: end + 1]), _types(data[end + 1 :])))
                elif one.rtype == NSEC3:
                    self._add_nsec3(one.owner, data)

    def _add_nsec3(self, owner: bytes, data: bytes) -> None:
        algorithm, flags, rounds = data[0], data[1], int.from_bytes(data[2:4], "big")
        if algorithm != 1 or flags > 1 or _wire.parent(owner) != self.zone:
            return  # RFC 5155, section 8.2: as if it was not there
        salt_end = 5 + data[4]
        parameters = rounds, data[5:salt_end]
        if self.parameters not in (None, parameters):
            return  # one set of parameters for one reply
        self.parameters = parameters
        if rounds > ITERATIONS_MOST:
            self.too_many_rounds = True
            return
        next_end = salt_end + 1 + data[salt_end]
        label = owner[1 : 1 + owner[0]]
        hashed = _from_base32(label)
        if hashed is not None:
            types = _types(data[next_end:])
            self.nsec3s.append(_Nsec3(hashed, data[salt_end + 1 : next_end], types, bool(flags & 1)))

    # -- what is shown

    def no_name(self, name: bytes) -> str:
        """Is it shown that the name does not exist, and no wildcard stands in for it? "" if not."""
        if self.too_many_rounds:
            return INSECURE
        if self.nsecs:
            covering = self._covering(name)
            if covering is None or _wire.below(covering.next, name):
                return ""  # or it exists, without records, since names are below it
            closest = self._closest_nsec(name, covering)
            wild = self._covering(b"\1*" + closest)
            return PROVEN if wild is not None and not _wire.below(wild.next, b"\1*" + closest) else ""
        closest, opt_out = self._closest_nsec3(name)
        if not closest:
            return ""
        if self._covering3(b"\1*" + closest) is None:
            return ""
        return INSECURE if opt_out else PROVEN

    def no_data(self, name: bytes, rtype: int) -> str:
        """Is it shown that the name has no records of the type (and no alias)? "" if not."""
        if self.too_many_rounds:
            return INSECURE
        if self.nsecs:
            types = next((one.types for one in self.nsecs if one.owner == name), None)
            if types is not None:
                return PROVEN if self._lacks(types, name, rtype) else ""
            covering = self._covering(name)
            if covering is None:
                return ""
            if _wire.below(covering.next, name):
                return PROVEN  # names are below it, and it has no records at all
            wild = b"\1*" + self._closest_nsec(name, covering)
            types = next((one.types for one in self.nsecs if one.owner == wild), None)
            if types is None:  # RFC 4592, section 2.2.2: a wildcard, too, may be there for names below it only
                covering = self._covering(wild)
                return PROVEN if covering is not None and _wire.below(covering.next, wild) else ""
            return PROVEN if self._lacks(types, wild, rtype) else ""
        match = self._matching3(name)
        if match is not None:
            return PROVEN if self._lacks(match.types, name, rtype) else ""
        closest, opt_out = self._closest_nsec3(name)
        if not closest:
            return ""
        match = self._matching3(b"\1*" + closest)
        if match is None or not self._lacks(match.types, b"\1*" + closest, rtype):
            return INSECURE if opt_out else ""  # RFC 5155, section 8.6
        return INSECURE if opt_out else PROVEN

    def no_closer(self, name: bytes, labels: int) -> str:
        """Is it shown that nothing exists between a wildcard below a name of so many labels and the name that it stands
        in for? RFC 4035, section 5.3.4; RFC 5155, section 8.8."""
        if self.too_many_rounds:
            return INSECURE
        closer = name
        while _wire.labels(closer) > labels + 1:
            closer = _wire.parent(closer)
        if self.nsecs:
            found = self._covering(name)
            if found is None or _wire.below(found.next, name):
                return ""
            # a wildcard further up does not stand in for names below one that exists (RFC 4592, section 3.3.1)
            return PROVEN if _wire.labels(self._closest_nsec(name, found)) <= labels else ""
        covering = self._covering3(closer)
        return "" if covering is None else INSECURE if covering.opt_out else PROVEN

    def types_at(self, name: bytes) -> frozenset[int] | None:
        """The types that a name has, if one of the records is about it."""
        found = next((one.types for one in self.nsecs if one.owner == name), None)
        if found is None and self.nsec3s:
            match = self._matching3(name)
            found = None if match is None else match.types
        return found

    def _lacks(self, types: frozenset[int], name: bytes, rtype: int) -> bool:
        if rtype in types or CNAME in types:
            return False
        if rtype == DS:
            return (
                SOA not in types or name == self.zone == b"\0"
            )  # the child's own record says nothing about its parent
        return NS not in types or SOA in types  # one of the parent's says nothing about the child

    # -- NSEC

    def _covering(self, name: bytes) -> _Nsec | None:
        place = in_order(name)
        for one in self.nsecs:
            begin, end = in_order(one.owner), in_order(one.next)
            last = one.next == self.zone
            if begin < place and (place < end or last) and _wire.below(name, self.zone):
                if one.owner != name and _wire.below(name, one.owner):
                    if DNAME in one.types or (NS in one.types and SOA not in one.types):
                        continue  # RFC 6840, section 4.1: what is below is not of this zone
                return one
        return None

    def _closest_nsec(self, name: bytes, covering: _Nsec) -> bytes:
        """The longest name above `name` that exists, as the record that covers it shows."""
        best = self.zone
        for other in (covering.owner, covering.next):
            above = name
            while not _wire.below(other, above):
                above = _wire.parent(above)
            if _wire.labels(above) > _wire.labels(best):
                best = above
        return best

    # -- NSEC3

    def _hash(self, name: bytes) -> bytes:
        hashed = self.hashes.get(name)
        if hashed is None:
            rounds, salt = self.parameters or (0, b"")
            self.budget.hash()
            hashed = hashlib.sha1(name + salt).digest()
            for _ in range(rounds):
                hashed = hashlib.sha1(hashed + salt).digest()
            self.hashes[name] = hashed
        return hashed

    def _matching3(self, name: bytes) -> _Nsec3 | None:
        if not self.nsec3s:
            return None
        hashed = self._hash(name)
        return next((one for one in self.nsec3s if one.hashed == hashed), None)

    def _covering3(self, name: bytes) -> _Nsec3 | None:
        if not self.nsec3s:
            return None
        hashed = self._hash(name)
        for one in self.nsec3s:
            if one.hashed < one.next:
                if one.hashed < hashed < one.next:
                    return one
            elif hashed > one.hashed or hashed < one.next:
                return one
        return None

    def _closest_nsec3(self, name: bytes) -> tuple[bytes, bool]:
        """The closest name above that exists while the next one does not, and whether that may have been left out;
        empty if it is not shown. RFC 5155, section 8.3."""
        closer = name
        while closer != self.zone and _wire.below(closer, self.zone):
            above = _wire.parent(closer)
            match = self._matching3(above)
            if match is not None:
                if DNAME in match.types or (NS in match.types and SOA not in match.types):
                    return b"", False
                covering = self._covering3(closer)
                return (above, covering.opt_out) if covering is not None else (b"", False)
            closer = above
        return b"", False


def _from_base32(label: bytes) -> bytes | None:
    import base64
    import binascii

    try:
        return base64.b32hexdecode(label.upper() + b"=" * (-len(label) % 8))
    except (binascii.Error, ValueError):
        return None
