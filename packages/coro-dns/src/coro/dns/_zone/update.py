"""Dynamic updates (RFC 2136): making the changes of a message, all or none.

Nothing here asks who sent it; that is for the caller. Each step is that of section 3 of the RFC, with its response
codes. What a message may add is checked as a zone file is.
"""

from __future__ import annotations

from coro.dns import _wire
from coro.dns._packet.codec import UnpackError, canonical, value_of
from coro.dns._zone.data import BESIDE_ALIAS, CNAME, NS, SIGNED, SOA, Data, Edit, Record, is_newer, key_of, serial_of
from coro.dns._zone.data import type_of as _type_of
from coro.dns.exceptions import DNS_Zone_Error

__all__ = ["bumped", "update"]

NOERROR, FORMERR, SERVFAIL, NXDOMAIN, REFUSED, YXDOMAIN, YXRRSET, NXRRSET, NOTZONE = 0, 1, 2, 3, 5, 6, 7, 8, 10
NONE, ANY = 254, 255  # classes
ANY_TYPE = 255


class _Refused(Exception):
    """`args[0]` is the response code."""


def bumped(soa: bytes) -> bytes:
    """The data of a SOA record with the next serial; 0 is skipped, since some take it for none."""
    serial = serial_of(soa) + 1 & 0xFFFFFFFF or 1
    return soa[:-20] + serial.to_bytes(4, "big") + soa[-16:]


def _is_meta(rtype: int) -> bool:
    return 128 <= rtype <= 255 or rtype in (0, 41)


def _check_prerequisites(zone: Data, records: list[Record]) -> None:
    """Section 3.2."""
    wanted: dict[tuple[bytes, int], set[bytes]] = {}
    for name, rtype, klass, ttl, data in records:
        if ttl:
            raise _Refused(FORMERR)
        if not _wire.below(name, zone.origin):
            raise _Refused(NOTZONE)
        if klass in (ANY, NONE):
            if data or _is_meta(rtype) and rtype != ANY_TYPE:
                raise _Refused(FORMERR)
            node = zone.node(name)
            there = bool(node) if rtype == ANY_TYPE else any(_type_of(key) == rtype for key in node)
            if klass == ANY and not there:
                raise _Refused(NXDOMAIN if rtype == ANY_TYPE else NXRRSET)
            if klass == NONE and there:
                raise _Refused(YXDOMAIN if rtype == ANY_TYPE else YXRRSET)
        elif klass == zone.klass and not _is_meta(rtype):
            wanted.setdefault((name, key_of(rtype, data)), set()).add(canonical(rtype, data))
        else:
            raise _Refused(FORMERR)
    for (name, key), datas in wanted.items():
        found = zone.node(name).get(key)
        if found is None or {canonical(_type_of(key), data) for data in found[1]} != datas:
            raise _Refused(NXRRSET)


def _check(zone: Data, records: list[Record]) -> None:
    """Section 3.4.1."""
    for name, rtype, klass, ttl, data in records:
        if not _wire.below(name, zone.origin):
            raise _Refused(NOTZONE)
        if klass == zone.klass:
            if _is_meta(rtype):
                raise _Refused(FORMERR)
            value_of(rtype, data)
        elif klass == ANY:
            if ttl or data or _is_meta(rtype) and rtype != ANY_TYPE:
                raise _Refused(FORMERR)
        elif klass == NONE:
            if ttl or _is_meta(rtype):
                raise _Refused(FORMERR)
        else:
            raise _Refused(FORMERR)


def _add(edit: Edit, name: bytes, rtype: int, ttl: int, data: bytes) -> None:
    node = edit.node(name)
    if rtype == SOA:
        if name == edit.zone.origin and is_newer(serial_of(data), serial_of(node[SOA][1][0])):
            edit.replace(name, rtype, ttl, data)
    elif rtype == CNAME:
        # an alias is silently not put beside other records, nor these beside it
        if not any(key not in BESIDE_ALIAS and key < SIGNED for key in node):
            edit.replace(name, rtype, ttl, data)
    elif CNAME not in node or rtype in BESIDE_ALIAS:
        edit.add(name, rtype, ttl, data)


def _make(edit: Edit, records: list[Record]) -> None:
    """Section 3.4.2."""
    origin = edit.zone.origin
    for name, rtype, klass, ttl, data in records:
        top = name == origin
        if klass == edit.zone.klass:
            _add(edit, name, rtype, ttl, data)
        elif klass == ANY:
            for key in list(edit.node(name)):
                if (rtype == ANY_TYPE or _type_of(key) == rtype) and not (top and key in (SOA, NS)):
                    edit.remove_set(name, key)
        elif not (rtype == SOA or top and rtype == NS and len(edit.node(name).get(NS, (0, ()))[1]) < 2):
            edit.remove(name, rtype, data)


def update(zone: Data, prerequisites: list[Record], records: list[Record]) -> int:
    """The response code; with 0, all changes have been made, and the serial has grown if there were any."""
    try:
        _check_prerequisites(zone, prerequisites)
        _check(zone, records)
        if zone.is_signed:
            return REFUSED  # the signatures would be wrong afterwards
        edit = Edit(zone)
        _make(edit, records)
        plan = edit.plan()
        if plan:
            ttl, (soa,) = edit.node(zone.origin)[SOA]
            if soa == zone.soa[1][0]:
                edit.replace(zone.origin, SOA, ttl, bumped(soa))
            zone.commit(edit.plan())
    except _Refused as e:
        return int(e.args[0])
    except UnpackError:
        return FORMERR
    except DNS_Zone_Error:
        return REFUSED
    return NOERROR
