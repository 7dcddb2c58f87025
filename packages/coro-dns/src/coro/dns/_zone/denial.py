"""Proofs, from a signed zone, that a name or a type is not there (RFC 4035, section 3.1.3; RFC 5155, section 7.2).

The zone is signed elsewhere; here the right NSEC or NSEC3 records are picked. Each function returns names whose records
prove it; the caller adds these with their signatures, each once.

Cost: the lists of names are sorted when they are first needed after a change. A hash costs a microsecond for each
round; a zone with more than ROUNDS rounds is answered without proofs (RFC 9276: such zones count as not signed).
"""

from __future__ import annotations

import base64
import hashlib

from coro.dns import _wire
from coro.dns._zone.data import NSEC3, NSEC3PARAM, Data

__all__ = ["hash_of", "no_data", "no_delegation_signer", "no_name", "wildcard_answer", "wildcard_no_data"]

ROUNDS = 150


def hash_of(zone: Data, name: bytes) -> bytes | None:
    """The name below the zone's that is the hash of `name`; None if the zone has no NSEC3 chain that can be used."""
    known = zone.nodes[zone.origin].get(NSEC3PARAM)
    if known is None or not zone.hashes:
        return None
    parameters = next((one for one in known[1] if one[0] == 1 and one[1] == 0), None)
    if parameters is None:
        return None
    rounds = int.from_bytes(parameters[2:4], "big")
    if rounds > ROUNDS:
        return None
    salt = parameters[5:]
    digest = hashlib.sha1(name + salt, usedforsecurity=False).digest()
    for _ in range(rounds):
        digest = hashlib.sha1(digest + salt, usedforsecurity=False).digest()
    return b"\x20" + base64.b32hexencode(digest).lower() + zone.origin


def _matching(zone: Data, name: bytes) -> bytes | None:
    hashed = hash_of(zone, name)
    return hashed if hashed in zone.hashes else None


def _covering(zone: Data, name: bytes) -> bytes | None:
    hashed = hash_of(zone, name)
    return None if hashed is None else zone.hash_before(hashed)


def _one_below(name: bytes, encloser: bytes) -> bytes:
    """The ancestor of `name` that is one label longer than `encloser` ("next closer")."""
    while (above := _wire.parent(name)) != encloser:
        name = above
    return name


def _closest(zone: Data, name: bytes, encloser: bytes) -> tuple[list[bytes | None], bytes]:
    """The proof of a closest encloser, and the encloser: with opt-out, names without a hash are skipped."""
    found = _matching(zone, encloser)
    while found is None and encloser != zone.origin:
        encloser = _wire.parent(encloser)
        found = _matching(zone, encloser)
    return [found, _covering(zone, _one_below(name, encloser))], encloser


def no_data(zone: Data, name: bytes) -> list[bytes | None]:
    """The name exists, without records of the type."""
    if not zone.hashes:
        return [zone.before(name)]
    found = _matching(zone, name)
    if found is None and name != zone.origin:
        return _closest(zone, name, _wire.parent(name))[0]  # an empty name that exists because of opted-out ones
    return [found]


no_delegation_signer = no_data


def no_name(zone: Data, name: bytes, encloser: bytes) -> list[bytes | None]:
    """Neither the name exists nor the wildcard of its closest encloser."""
    if not zone.hashes:
        return [zone.before(name), zone.before(b"\1*" + encloser)]
    proof, encloser = _closest(zone, name, encloser)
    return [*proof, _covering(zone, b"\1*" + encloser)]


def wildcard_answer(zone: Data, name: bytes, encloser: bytes) -> list[bytes | None]:
    """The name does not exist, so the wildcard is the answer."""
    if not zone.hashes:
        return [zone.before(name)]
    return [_covering(zone, _one_below(name, encloser))]


def wildcard_no_data(zone: Data, name: bytes, encloser: bytes) -> list[bytes | None]:
    """The name does not exist, and the wildcard has no records of the type."""
    if not zone.hashes:
        return [zone.before(name), zone.before(b"\1*" + encloser)]
    return [*_closest(zone, name, encloser)[0], _matching(zone, b"\1*" + encloser)]


def records_at(zone: Data, name: bytes) -> int:
    """The type of the proof at a name: NSEC3 or NSEC."""
    return NSEC3 if zone.hashes else 47
