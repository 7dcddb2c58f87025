"""From a trust anchor to an answer (RFC 4035, section 5).

`Validator.settle` says of what was found whether it is secure, insecure (its zone is not signed, and that is
shown) or bogus. For that it goes down from the anchor: each DS record, signed by the zone above, names a key that
signs the keys of the zone below. What was found about a zone is kept for as long as the records say. An entry is
checked once; the result stays with it.

One server of several may have an old copy of a zone, or none of its signatures, and one datagram may be forged. So what
fails is asked of each other server, at most RESTARTS times, keys and DS records included, and of the only server
once more over TCP, before anything is bogus. Where servers disagree, that is believed for a short time only.

Without a signature on an answer it has to be shown that there is an unsigned zone between the anchor and the name. So a
forger cannot just leave signatures out.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import coro
from coro.dns._dnssec.denial import DS, INSECURE, NS, NSEC, NSEC3, PROVEN, SOA, Denial
from coro.dns._dnssec.signatures import Budget, Key, RRset, Signature, Spent, check, is_supported, named_keys
from coro.dns._recursive.store import Entry, Found, Signed
from coro.dns._wire import below, labels, parent, to_text
from coro.dns.exceptions import DNS_Bogus_Error, DNS_Runaway_Query_Error, DNS_Soft_Error

if TYPE_CHECKING:
    from coro.dns._recursive.recursor import Recursor, Work

__all__ = ["Validator"]

_T = TypeVar("_T")
ROOT = b"\0"
RRSIG, DNSKEY = 46, 48
KEPT = 10_000  # zones and names that are none
KEPT_FOR = 3600.0
DS_MOST = 12  # records of one zone
BOGUS_FOR = 60.0
DISAGREE_FOR = 5.0  # if the servers said different things
RESTARTS = 5


class _Zone(NamedTuple):
    """What was found at a name: a zone with keys; an unsigned one (no keys); no zone at all; something wrong."""

    expires: float
    is_zone: bool
    keys: tuple[Key, ...]
    wrong: str = ""  # why nobody can tell


class _Bogus(Exception):
    """It is wrong; the text says what. `final`: no other server can have anything better; `seconds`: for how long that
    is believed."""

    def __init__(self, text: str, final: bool = False, seconds: float = BOGUS_FOR) -> None:
        super().__init__(text)
        self.final = final
        self.seconds = seconds


def _count(owner: bytes) -> int:
    """How many labels a signature of a name says if the name is not made of a wildcard."""
    return labels(owner) - (owner[:2] == b"\1*")


def _is_any_supported(all_ds: Iterable[bytes]) -> bool:
    """Is there one DS record that we can tell something from? If not, the zone counts as not signed."""
    return any(len(ds) > 4 and is_supported(ds[2], ds[3]) for ds in all_ds)


def _is_same(a: Entry, b: Entry) -> bool:
    """Do two servers say the same, signatures included?"""
    if a is b:
        return True
    if set(a.data) != set(b.data) or a.hard != b.hard or a.signed is None or b.signed is None:
        return False
    proofs = [{(one.owner, one.rtype, one.data, one.signatures) for one in s.signed.proof} for s in (a, b) if s.signed]
    return set(a.signed.signatures) == set(b.signed.signatures) and proofs[0] == proofs[1]


class Validator:
    """Checks what a `Recursor` finds. `anchors`: zone -> data of its DS records."""

    def __init__(self, recursor: Recursor, anchors: dict[bytes, list[bytes]]) -> None:
        self.recursor = recursor
        self.anchors = anchors
        self.zones: dict[bytes, _Zone] = {}
        self.running: dict[bytes, coro.event] = {}  # names that a thread finds out about
        self.checking: dict[Signed, coro.event] = {}  # and what it checks
        self.bogus = 0

    def settle(self, found: Found, name: bytes, rtype: int, work: Work) -> tuple[Found, bool]:
        """What holds as the answer to a question, and whether it is secure; False: it is insecure. That is what was
        found, or what another server says. Raises DNS_Bogus_Error, and DNS_Soft_Error if servers do not answer."""
        while True:
            signed = found.entry.signed
            if signed is None or (found.rtype == RRSIG and found.entry.data):
                return found, False  # pinned, or from before; nobody signs signatures
            if signed.better is not None and signed.better[0] == (name, rtype):
                found = signed.better[1]
            elif signed.secure is not None:
                return found, signed.secure
            elif signed.wrong and signed.until > time.monotonic():
                raise DNS_Bogus_Error(to_text(name), str(rtype), "", signed.wrong)
            elif signed in self.checking:  # by another thread; what is checked once costs once
                self._wait(self.checking[signed], name, work)
            else:
                bell = self.checking[signed] = coro.event()
                try:
                    found = self._settle(found, signed, name, rtype, work)
                finally:
                    self.checking.pop(signed, None)
                    bell.set()

    def _settle(self, found: Found, signed: Signed, name: bytes, rtype: int, work: Work) -> Found:
        fresh = work.budget is None
        budget = work.budget
        if budget is None:
            budget = work.budget = Budget()
        failed: list[Entry] = []

        def judge(one: Found) -> Found:
            failed.append(one.entry)
            assert one.entry.signed is not None
            how = one.entry, one.entry.signed, one.owner, one.rtype, work, budget
            one.entry.signed.secure = self._positive(*how) if one.entry.data else self._negative(rtype, name, *how)
            return one

        try:
            good = self._persist(found, name, rtype, work, judge)
        except (_Bogus, Spent) as e:
            self.bogus += 1
            wrong = f"validation failed: {e}"
            if fresh or not isinstance(e, Spent):  # else an alias may have led here from where the work was caused
                until = time.monotonic() + (e.seconds if isinstance(e, _Bogus) else BOGUS_FOR)
                for entry in failed:
                    assert entry.signed is not None
                    entry.signed.wrong = wrong
                    entry.signed.until = until
                    entry.expires = min(entry.expires, until)  # then it is asked for again
            raise DNS_Bogus_Error(to_text(name), str(rtype), "", wrong) from None
        if good is not found:
            # That a name does not exist is an entry for all names below it, but what is right belongs to this question.
            signed.better = (name, rtype), good
            found.entry.expires = min(found.entry.expires, time.monotonic())
        return good

    def _persist(self, found: Found, name: bytes, rtype: int, work: Work, judge: Callable[[Found], _T]) -> _T:
        """What `judge` makes of the answer to a question: of the one that was found, or of the next server's. Raises
        _Bogus if no server has one that it takes."""
        first: _Bogus | None = None
        disagree = False
        current: Found | None = found
        restarts = RESTARTS
        while current is not None:
            disagree = disagree or not _is_same(current.entry, found.entry)
            try:
                return judge(current)
            except _Bogus as e:
                if e.final:
                    raise
                first = first or e
            current = self.recursor.fetch_elsewhere(current.entry, name, rtype, work) if restarts else None
            restarts -= 1
        assert first is not None
        raise _Bogus(str(first), True, min(first.seconds, DISAGREE_FOR) if disagree else first.seconds)

    def after_fork(self) -> None:
        """In the child: nobody checks anything."""
        self.running.clear()
        self.checking.clear()

    @staticmethod
    def _wait(bell: coro.event, name: bytes, work: Work) -> None:
        try:
            bell.wait(max(work.left(), 0))
        except coro.TimeoutError:
            raise DNS_Soft_Error(to_text(name), "", "", "no time is left") from None

    # -- answers

    def _positive(self, entry: Entry, signed: Signed, owner: bytes, rtype: int, work: Work, budget: Budget) -> bool:
        above = parent(owner) if rtype == DS and len(owner) > 1 else owner
        signer = self._signer(signed.signatures, above)
        zone, keys = self._keys_above(signer, above, work, budget)
        if not keys:
            return False
        if not signer:
            raise _Bogus(f"{to_text(owner)} has no signature, but its zone {to_text(zone)} is signed")
        rrset = RRset(owner, rtype, entry.ttl, entry.data, signed.signatures)
        good = self._verified(rrset, zone, keys, entry, budget)
        if good.labels < _count(owner):
            proofs = self._proofs(signed, zone, keys, budget, entry)
            signed.proof = tuple(proofs)
            return self._no_closer(owner, good, Denial(zone, proofs, budget)) != INSECURE
        signed.proof = ()
        return True

    @staticmethod
    def _no_closer(owner: bytes, good: Signature, denial: Denial) -> str:
        shown = denial.no_closer(owner, good.labels)
        if not shown:
            raise _Bogus(f"{to_text(owner)} is made of a wildcard, and it is not shown that it does not exist")
        return shown

    def _negative(
        self, rtype: int, asked: bytes, entry: Entry, signed: Signed, name: bytes, _: int, work: Work, budget: Budget
    ) -> bool:
        above = parent(name) if rtype == DS and len(name) > 1 else name
        found = b""
        for one in signed.proof:
            if one.rtype in (NSEC, NSEC3, SOA):
                found = self._signer(one.signatures, above) or found
        zone, keys = self._keys_above(found, above, work, budget)
        if not keys:
            return False
        if not found:
            raise _Bogus(f"nothing shows that {to_text(name)} has no such records, but {to_text(zone)} is signed")
        proofs = self._proofs(signed, zone, keys, budget, entry)
        denial = Denial(zone, proofs, budget)
        shown = denial.no_name(name) if entry.hard else denial.no_data(name, rtype)
        if entry.hard and not shown and name == asked and denial.no_data(name, rtype) == PROVEN:
            shown = PROVEN  # some servers deny names that only have others below them
            self.recursor.soften(entry, name, rtype)
        if not shown:
            raise _Bogus(f"the proof of {to_text(zone)} does not show that {to_text(name)} has no such records")
        # RFC 4035, section 3.2.3: what is handed on as authentic was all checked
        signed.proof = (*proofs, *self._its_soa(entry, signed, zone, keys, budget))
        return shown != INSECURE

    def _its_soa(
        self, entry: Entry, signed: Signed, zone: bytes, keys: tuple[Key, ...], budget: Budget
    ) -> Iterable[RRset]:
        """The SOA record of a negative answer, checked; nothing if there is none."""
        if entry.soa is None:
            return ()
        one = next((one for one in signed.proof if one.rtype == SOA and one.owner == zone), None)
        if one is None or entry.soa != (zone, one.data[0]):
            raise _Bogus(f"the SOA record is not that of {to_text(zone)}")
        self._verified(one, zone, keys, entry, budget)
        return (one,)

    def _proofs(self, signed: Signed, zone: bytes, keys: tuple[Key, ...], budget: Budget, entry: Entry) -> list[RRset]:
        """The NSEC and NSEC3 records of a reply that the zone has signed, each with a valid signature."""
        out = []
        for one in signed.proof:
            if one.rtype in (NSEC, NSEC3) and self._signer(one.signatures, one.owner) == zone:
                good = self._verified(one, zone, keys, entry, budget)
                if good.labels == _count(one.owner):
                    out.append(one)
        return out

    def _anchor(self, name: bytes) -> bytes:
        """The deepest zone at or above a name that has a trust anchor. Empty if there is none."""
        while name not in self.anchors:
            if len(name) == 1:
                return b""
            name = parent(name)
        return name

    def _signer(self, signatures: Iterable[bytes], name: bytes) -> bytes:
        """The zone that signed: at or above the name. Empty if there is none. Zones above its trust anchor do not
        count: one of them may be unsigned, and a signature in its name would make the name so."""
        anchor = self._anchor(name)
        for data in signatures:
            one = Signature.read(data)
            if one is not None and below(name, one.signer) and below(one.signer, anchor or ROOT):
                return one.signer
        return b""

    @staticmethod
    def _verified(rrset: RRset, zone: bytes, keys: tuple[Key, ...], entry: Entry, budget: Budget) -> Signature:
        now = int(time.time())
        good, why = check(rrset, zone, keys, now & 0xFFFFFFFF, budget)
        if good is None:
            raise _Bogus(f"{to_text(rrset.owner)} type {rrset.rtype} in {to_text(zone)}: {why}")
        # RFC 4035, section 5.3.3: no longer than the signature
        left = min(good.ttl, (good.until - now) & 0xFFFFFFFF)
        entry.expires = min(entry.expires, time.monotonic() + left)
        return good

    # -- the chain

    def _keys_above(self, signer: bytes, name: bytes, work: Work, budget: Budget) -> tuple[bytes, tuple[Key, ...]]:
        """The zone that has signed, or else the deepest one at or above the name, and its keys. If that cannot be found
        out because servers fail, another server may still have signatures."""
        if signer:
            return self._keys(signer, work, budget)
        try:
            return self._keys(name, work, budget)
        except DNS_Runaway_Query_Error:
            raise
        except DNS_Soft_Error as e:
            raise _Bogus(f"there is no signature, and nobody can tell whether one has to be: {e}", False, 0.0) from None

    def _keys(self, name: bytes, work: Work, budget: Budget) -> tuple[bytes, tuple[Key, ...]]:
        """The deepest zone at or above a name, and its keys; none if it is not signed."""
        zone = self._anchor(name)
        if not zone:
            return name, ()
        keys = self._anchored(zone, work, budget)
        if not keys:
            return zone, ()
        below_it = labels(name) - labels(zone)
        for i in range(below_it - 1, -1, -1):
            at = name
            for _ in range(i):
                at = parent(at)
            found = self._known(at, work, functools.partial(self._step, zone, keys, at, work, budget))
            if found.is_zone:
                zone, keys = at, found.keys
                if not keys:
                    break
        return zone, keys

    def _known(self, name: bytes, work: Work, find: Callable[[], _Zone]) -> _Zone:
        """What is at a name: remembered, found out by `find`, or by another thread that is just doing that."""
        while True:
            found = self.zones.get(name)
            if found is not None and found.expires >= time.monotonic():
                if found.wrong:
                    raise _Bogus(found.wrong, True)
                return found
            if name not in self.running:
                break
            self._wait(self.running[name], name, work)
        bell = self.running[name] = coro.event()
        found = None
        try:
            found = find()
        except _Bogus as e:
            found = _Zone(time.monotonic() + e.seconds, False, (), str(e))
            raise
        finally:
            if found is not None:
                if len(self.zones) >= KEPT:
                    self.zones.clear()
                self.zones[name] = found
            self.running.pop(name, None)
            bell.set()
        return found

    def _anchored(self, zone: bytes, work: Work, budget: Budget) -> tuple[Key, ...]:
        def find() -> _Zone:
            if not _is_any_supported(self.anchors[zone]):
                return _Zone(time.monotonic() + KEPT_FOR, True, ())
            keys, expires = self._zone_keys(zone, self.anchors[zone], work, budget)
            return _Zone(expires, True, keys)

        return self._known(zone, work, find).keys

    def _step(self, zone: bytes, keys: tuple[Key, ...], name: bytes, work: Work, budget: Budget) -> _Zone:
        """What is at a name below a signed zone."""

        def judge(found: Found) -> _Zone:
            try:
                return self._below(zone, keys, name, found, work, budget)
            except _Bogus:
                found.entry.expires = min(found.entry.expires, time.monotonic() + BOGUS_FOR)  # it may be better then
                raise

        return self._persist(self.recursor.fetch(name, DS, work), name, DS, work, judge)

    def _below(
        self, zone: bytes, keys: tuple[Key, ...], name: bytes, found: Found, work: Work, budget: Budget
    ) -> _Zone:
        entry, rtype, owner = found.entry, found.rtype, found.owner
        signed = entry.signed or Signed((), ())
        if entry.data:
            rrset = RRset(owner, rtype, entry.ttl, entry.data, signed.signatures)
            good = self._verified(rrset, zone, keys, entry, budget)
            expires = min(entry.expires, time.monotonic() + KEPT_FOR)
            if good.labels < _count(owner):
                if rtype == DS:
                    raise _Bogus(f"the DS records of {to_text(name)} are made of a wildcard")
                proofs = self._proofs(signed, zone, keys, budget, entry)
                self._no_closer(owner, good, Denial(zone, proofs, budget))
            if rtype != DS:
                return _Zone(expires, False, ())  # an alias
            if not _is_any_supported(entry.data):
                return _Zone(expires, True, ())
            its, until = self._zone_keys(name, list(entry.data), work, budget)
            return _Zone(min(expires, until), True, its)
        denial = Denial(zone, self._proofs(signed, zone, keys, budget, entry), budget)
        expires = min(entry.expires, time.monotonic() + KEPT_FOR)
        shown = denial.no_name(owner) if entry.hard else denial.no_data(name, DS)
        if not shown:
            raise _Bogus(f"the proof of {to_text(zone)} does not show that {to_text(name)} has no DS records")
        if shown == INSECURE:
            return _Zone(expires, True, ())
        types = None if entry.hard else denial.types_at(name)
        return _Zone(expires, types is not None and NS in types and SOA not in types, ())

    def _zone_keys(self, zone: bytes, all_ds: list[bytes], work: Work, budget: Budget) -> tuple[tuple[Key, ...], float]:
        """The keys of a zone, signed by one that a DS record names; and until when."""

        def judge(found: Found) -> tuple[tuple[Key, ...], float]:
            try:
                return self._keys_in(zone, all_ds, found.entry, found.rtype, budget)
            except _Bogus:
                found.entry.expires = min(found.entry.expires, time.monotonic() + BOGUS_FOR)
                raise

        return self._persist(self.recursor.fetch(zone, DNSKEY, work), zone, DNSKEY, work, judge)

    def _keys_in(
        self, zone: bytes, all_ds: list[bytes], entry: Entry, rtype: int, budget: Budget
    ) -> tuple[tuple[Key, ...], float]:
        if rtype != DNSKEY or not entry.data or entry.signed is None:
            raise _Bogus(f"{to_text(zone)} has no keys, but a DS record")
        keys = [key for key in map(Key.read, entry.data) if key is not None]
        usable = [ds for ds in all_ds if len(ds) > 4 and is_supported(ds[2], ds[3])]
        if any(ds[3] != 1 for ds in usable):
            usable = [ds for ds in usable if ds[3] != 1]  # RFC 4509, section 3
        if len(usable) > DS_MOST:
            raise _Bogus(f"{to_text(zone)} has {len(usable)} DS records")
        named = named_keys(zone, keys, usable)
        if named is None:
            raise _Bogus(f"{to_text(zone)} has too many keys with one tag")
        rrset = RRset(zone, DNSKEY, entry.ttl, entry.data, entry.signed.signatures)
        if self._verified(rrset, zone, tuple(named), entry, budget).labels < _count(zone):
            raise _Bogus(f"the keys of {to_text(zone)} are made of a wildcard")
        entry.signed.secure = True
        entry.signed.proof = ()
        return tuple(keys), min(entry.expires, time.monotonic() + KEPT_FOR)
