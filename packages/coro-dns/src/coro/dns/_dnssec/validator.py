"""From a trust anchor to an answer (RFC 4035, section 5).

`Validator.check` says of an entry of the cache whether it is secure, insecure (its zone is not signed, and that is
shown) or bogus. For that it goes down from the anchor: each DS record, signed by the zone above, names a key that
signs the keys of the zone below. What was found about a zone is kept for as long as the records say. An entry is
checked once; the result stays with it.

Without a signature on an answer it has to be shown that there is an unsigned zone between the anchor and the name. So a
forger cannot just leave signatures out.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from coro.dns import _wire
from coro.dns._dnssec.denial import DS, INSECURE, NS, NSEC, NSEC3, SOA, Denial
from coro.dns._dnssec.signatures import Budget, Key, RRset, Signature, Spent, check, digest_matches, is_supported
from coro.dns._recursive.store import Entry, Signed
from coro.dns._wire import below, labels, parent, to_text
from coro.dns.exceptions import DNS_Bogus_Error

if TYPE_CHECKING:
    from coro.dns._recursive.recursor import Recursor, Work

__all__ = ["Validator", "anchors_of"]

DNSKEY = 48
KEPT = 10_000  # zones and names that are none
KEPT_FOR = 3600.0
DS_MOST = 12  # records of one zone
BOGUS_FOR = 60.0


class _Zone(NamedTuple):
    """What was found at a name: a zone with keys; an unsigned one (no keys); or no zone at all."""

    expires: float
    is_zone: bool
    keys: tuple[Key, ...]


class _Bogus(Exception):
    """It is wrong; the text says what."""


class Validator:
    """Checks what a `Recursor` finds. `anchors`: zone -> data of its DS records."""

    def __init__(self, recursor: Recursor, anchors: dict[bytes, list[bytes]]) -> None:
        self.recursor = recursor
        self.anchors = anchors
        self.zones: dict[bytes, _Zone] = {}
        self.bogus = 0

    def check(self, entry: Entry, owner: bytes, rtype: int, name: bytes, work: Work) -> bool:
        """Is the entry secure? False: it is insecure. `owner` and `rtype` are those of its records, `name` is what was
        asked (they differ for DNAME). Raises DNS_Bogus_Error, and DNS_Soft_Error if servers do not answer."""
        signed = entry.signed
        if signed is None:  # pinned, or from before
            return False
        if signed.secure is None:
            if signed.wrong and signed.until > time.monotonic():
                raise DNS_Bogus_Error(to_text(name), str(rtype), "", signed.wrong)
            try:
                budget = work.budget
                if budget is None:
                    budget = work.budget = Budget()
                if entry.data:
                    signed.secure = self._positive(entry, signed, owner, rtype, work, budget)
                else:
                    signed.secure = self._negative(entry, signed, owner, rtype, work, budget)
            except (_Bogus, Spent) as e:
                self.bogus += 1
                signed.wrong = f"validation failed: {e}"
                signed.until = time.monotonic() + BOGUS_FOR
                entry.expires = min(entry.expires, signed.until)  # then it is asked for again
                raise DNS_Bogus_Error(to_text(name), str(rtype), "", signed.wrong) from None
        return signed.secure

    # -- answers

    def _positive(self, entry: Entry, signed: Signed, owner: bytes, rtype: int, work: Work, budget: Budget) -> bool:
        above = parent(owner) if rtype == DS and len(owner) > 1 else owner
        signer = self._signer(signed.signatures, above)
        zone, keys = self._keys(signer or above, work, budget)
        if not keys:
            return False
        if not signer:
            raise _Bogus(f"{to_text(owner)} has no signature, but its zone {to_text(zone)} is signed")
        rrset = RRset(owner, rtype, entry.ttl, entry.data, signed.signatures)
        good = self._verified(rrset, zone, keys, entry, budget)
        count = labels(owner) - (owner[:2] == b"\1*")
        if good.labels < count:
            proofs = self._proofs(signed, zone, keys, budget)
            shown = Denial(zone, proofs, budget).no_closer(owner, good.labels)
            if not shown:
                raise _Bogus(f"{to_text(owner)} is made of a wildcard, and it is not shown that it does not exist")
            return shown != INSECURE
        return True

    def _negative(self, entry: Entry, signed: Signed, name: bytes, rtype: int, work: Work, budget: Budget) -> bool:
        above = parent(name) if rtype == DS and len(name) > 1 else name
        found = b""
        for one in signed.proof:
            if one.rtype in (NSEC, NSEC3, SOA):
                found = self._signer(one.signatures, above) or found
        zone, keys = self._keys(found or above, work, budget)
        if not keys:
            return False
        if not found:
            raise _Bogus(f"nothing shows that {to_text(name)} has no such records, but {to_text(zone)} is signed")
        shown = self._denied(entry, signed, name, rtype, zone, keys, budget)
        if not shown:
            raise _Bogus(f"the proof of {to_text(zone)} does not show that {to_text(name)} has no such records")
        return shown != INSECURE

    def _denied(
        self, entry: Entry, signed: Signed, name: bytes, rtype: int, zone: bytes, keys: tuple[Key, ...], budget: Budget
    ) -> str:
        denial = Denial(zone, self._proofs(signed, zone, keys, budget, entry), budget)
        return denial.no_name(name) if entry.hard else denial.no_data(name, rtype)

    def _proofs(
        self, signed: Signed, zone: bytes, keys: tuple[Key, ...], budget: Budget, entry: Entry | None = None
    ) -> list[RRset]:
        """The NSEC and NSEC3 records of a reply, each with a valid signature."""
        out = []
        for one in signed.proof:
            if one.rtype in (NSEC, NSEC3) and below(one.owner, zone):
                good = self._verified(one, zone, keys, entry, budget)
                if good.labels == labels(one.owner) - (one.owner[:2] == b"\1*"):
                    out.append(one)
        return out

    @staticmethod
    def _signer(signatures: Iterable[bytes], name: bytes) -> bytes:
        """The zone that signed: at or above the name. Empty if there is none."""
        for data in signatures:
            one = Signature.read(data)
            if one is not None and below(name, one.signer):
                return one.signer
        return b""

    @staticmethod
    def _verified(rrset: RRset, zone: bytes, keys: tuple[Key, ...], entry: Entry | None, budget: Budget) -> Signature:
        now = int(time.time())
        good, why = check(rrset, zone, keys, now & 0xFFFFFFFF, budget)
        if good is None:
            if entry is not None:
                entry.expires = min(entry.expires, time.monotonic() + BOGUS_FOR)
            raise _Bogus(f"{to_text(rrset.owner)} type {rrset.rtype} in {to_text(zone)}: {why}")
        if entry is not None:  # RFC 4035, section 5.3.3: no longer than the signature
            left = min(good.ttl, (good.until - now) & 0xFFFFFFFF)
            entry.expires = min(entry.expires, time.monotonic() + left)
        return good

    # -- the chain

    def _keys(self, name: bytes, work: Work, budget: Budget) -> tuple[bytes, tuple[Key, ...]]:
        """The deepest zone at or above a name, and its keys; none if it is not signed."""
        zone = name
        while zone not in self.anchors:
            if len(zone) == 1:
                return name, ()  # below no anchor
            zone = parent(zone)
        keys = self._anchored(zone, work, budget)
        below_it = labels(name) - labels(zone)
        for i in range(below_it - 1, -1, -1):
            at = name
            for _ in range(i):
                at = parent(at)
            found = self.zones.get(at)
            if found is None or found.expires < time.monotonic():
                found = self._step(zone, keys, at, work, budget)
                if len(self.zones) >= KEPT:
                    self.zones.clear()
                self.zones[at] = found
            if found.is_zone:
                zone, keys = at, found.keys
                if not keys:
                    break
        return zone, keys

    def _fetch(self, name: bytes, rtype: int, work: Work) -> tuple[Entry, int, bytes]:
        found = self.recursor.fetch(name, rtype, work)
        return found.entry, found.rtype, found.owner

    def _anchored(self, zone: bytes, work: Work, budget: Budget) -> tuple[Key, ...]:
        found = self.zones.get(zone)
        if found is None or found.expires < time.monotonic():
            keys, expires = self._zone_keys(zone, self.anchors[zone], work, budget)
            found = self.zones[zone] = _Zone(expires, True, keys)
        return found.keys

    def _step(self, zone: bytes, keys: tuple[Key, ...], name: bytes, work: Work, budget: Budget) -> _Zone:
        """What is at a name below a signed zone."""
        entry, rtype, owner = self._fetch(name, DS, work)
        expires = min(entry.expires, time.monotonic() + KEPT_FOR)
        signed = entry.signed or Signed((), ())
        if entry.data:
            rrset = RRset(owner, rtype, entry.ttl, entry.data, signed.signatures)
            self._verified(rrset, zone, keys, entry, budget)
            if rtype != DS:
                return _Zone(expires, False, ())  # an alias
            if not any(len(ds) > 4 and is_supported(ds[2], ds[3]) for ds in entry.data):
                return _Zone(expires, True, ())
            its, until = self._zone_keys(name, list(entry.data), work, budget)
            return _Zone(min(expires, until), True, its)
        denial = Denial(zone, self._proofs(signed, zone, keys, budget, entry), budget)
        shown = denial.no_name(name) if entry.hard else denial.no_data(name, DS)
        if not shown:
            raise _Bogus(f"the proof of {to_text(zone)} does not show that {to_text(name)} has no DS records")
        if shown == INSECURE:
            return _Zone(expires, True, ())
        types = None if entry.hard else denial.types_at(name)
        return _Zone(expires, types is not None and NS in types and SOA not in types, ())

    def _zone_keys(self, zone: bytes, all_ds: list[bytes], work: Work, budget: Budget) -> tuple[tuple[Key, ...], float]:
        """The keys of a zone, signed by one that a DS record names; and until when."""
        entry, rtype, _ = self._fetch(zone, DNSKEY, work)
        if rtype != DNSKEY or not entry.data or entry.signed is None:
            raise _Bogus(f"{to_text(zone)} has no keys, but a DS record")
        keys = [key for key in map(Key.read, entry.data) if key is not None]
        usable = [ds for ds in all_ds if len(ds) > 4 and is_supported(ds[2], ds[3])]
        if any(ds[3] != 1 for ds in usable):
            usable = [ds for ds in usable if ds[3] != 1]  # RFC 4509, section 3
        if len(usable) > DS_MOST:
            raise _Bogus(f"{to_text(zone)} has {len(usable)} DS records")
        named = [key for key in keys if any(digest_matches(zone, key, ds) for ds in usable)]
        rrset = RRset(zone, DNSKEY, entry.ttl, entry.data, entry.signed.signatures)
        self._verified(rrset, zone, tuple(named), entry, budget)
        entry.signed.secure = True
        return tuple(keys), min(entry.expires, time.monotonic() + KEPT_FOR)


def anchors_of(texts: Iterable[str]) -> dict[bytes, list[bytes]]:
    """Trust anchors out of lines like ``. DS 20326 8 2 E06D...`` (what stands between the name and DS does not matter).
    Raises ValueError."""
    from coro.dns.packet import TYPE, PackError, rdata_from_text

    out: dict[bytes, list[bytes]] = {}
    for text in texts:
        words = text.split()
        place = next((i for i, word in enumerate(words) if word.upper() in ("DS", "DNSKEY")), 0)
        try:
            if not place:
                raise PackError("there is no DS and no DNSKEY in it")
            zone = _wire.from_text(words[0])
            data = rdata_from_text(getattr(TYPE, words[place].upper()), words[place + 1 :])
        except PackError as e:
            raise ValueError(f"expected a trust anchor like '. DS 20326 8 2 E06D...', not {text!r}: {e}") from None
        if words[place].upper() == "DNSKEY":
            import hashlib

            key = Key.read(data)
            if key is None:
                raise ValueError(f"expected a key that signs zones (flags 256 or 257, protocol 3), not {text!r}")
            data = key.tag.to_bytes(2, "big") + bytes((key.algorithm, 2)) + hashlib.sha256(zone + data).digest()
        out.setdefault(zone, []).append(data)
    return out
