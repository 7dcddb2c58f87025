"""SIDs, and who may do what with an entry of Active Directory: values of nTSecurityDescriptor ([MS-DTYP] 2.4.6).

A descriptor has an owner, a group, and two lists: of who may do what, and of what is written to the log.  Reading gives
plain objects; writing lays them out anew, so bytes may differ although the meaning is the same.  Kinds of rules that
are not known here keep their bytes.  Each offset and each size is checked against what is there.
"""

from __future__ import annotations

import enum
import re
import struct
from dataclasses import dataclass, field
from typing import Final, Self
from uuid import UUID

from coro.ldap.exceptions import LocalError

__all__ = ["AccessRight", "AccessRule", "RuleFlag", "RuleKind", "SecurityDescriptor", "sid_bytes", "sid_text"]

_SID = re.compile(r"S-1-(0x[0-9a-fA-F]{1,12}|[0-9]{1,15})((?:-[0-9]{1,10}){0,15})", re.ASCII)
_HEADER: Final = struct.Struct("<BBHIIII")
_LIST: Final = struct.Struct("<BBHHH")
_RULE: Final = struct.Struct("<BBH")
#: Control ([MS-DTYP] 2.4.6): the lists are there; offsets count from the beginning.
_DACL, _SACL, _RELATIVE = 0x4, 0x10, 0x8000


def sid_text(value: bytes) -> str:
    """A value of objectSid as text, such as ``S-1-5-32-544``.  Raises LocalError if it is none."""
    if len(value) < 8 or value[0] != 1 or value[1] > 15 or len(value) != 8 + 4 * value[1]:
        raise LocalError(f"expected a SID of revision 1 with up to 15 parts of four bytes, got {value[:80]!r}")
    authority = int.from_bytes(value[2:8], "big")
    parts = struct.unpack(f"<{value[1]}I", value[8:])
    return "-".join(["S-1", f"0x{authority:012x}" if authority >> 32 else str(authority), *map(str, parts)])


def sid_bytes(text: str) -> bytes:
    """The value of objectSid for a text, for filters.  Raises LocalError if it is no SID."""
    match = _SID.fullmatch(text)
    if match is not None:
        authority = int(match[1], 0) if match[1].startswith("0x") else int(match[1])
        parts = [int(part) for part in match[2].split("-")[1:]]
        if authority < 1 << 48 and all(part < 1 << 32 for part in parts):
            return bytes([1, len(parts)]) + authority.to_bytes(6, "big") + struct.pack(f"<{len(parts)}I", *parts)
    raise LocalError(f"expected a SID such as S-1-5-32-544, got {text!r:.80}")


class RuleKind(enum.IntEnum):
    """Kinds of rules ([MS-DTYP] 2.4.4.1) that are read here."""

    ALLOW = 0
    DENY = 1
    AUDIT = 2
    ALLOW_OBJECT = 5
    DENY_OBJECT = 6
    AUDIT_OBJECT = 7


_KNOWN: Final = frozenset(map(int, RuleKind))


class RuleFlag(enum.IntFlag):
    """What a rule is inherited by ([MS-DTYP] 2.4.4.1)."""

    OBJECT_INHERIT = 0x1
    CONTAINER_INHERIT = 0x2
    NO_PROPAGATE_INHERIT = 0x4
    INHERIT_ONLY = 0x8
    INHERITED = 0x10
    SUCCESSFUL_ACCESS = 0x40
    FAILED_ACCESS = 0x80


class AccessRight(enum.IntFlag):
    """What may be done with an entry ([MS-ADTS] 5.1.3.2)."""

    CREATE_CHILD = 0x1
    DELETE_CHILD = 0x2
    LIST_CONTENTS = 0x4
    WRITE_PROPERTY_EXTENDED = 0x8
    READ_PROPERTY = 0x10
    WRITE_PROPERTY = 0x20
    DELETE_TREE = 0x40
    LIST_OBJECT = 0x80
    CONTROL_ACCESS = 0x100
    DELETE = 0x10000
    READ_CONTROL = 0x20000
    WRITE_DAC = 0x40000
    WRITE_OWNER = 0x80000
    GENERIC_ALL = 0x10000000
    GENERIC_EXECUTE = 0x20000000
    GENERIC_WRITE = 0x40000000
    GENERIC_READ = 0x80000000


@dataclass(frozen=True)
class AccessRule:
    """One rule ([MS-DTYP] 2.4.4).

    kind: a `RuleKind`, or a number for others.  rights: what it is about.  sid: of whom, as text; "" for a kind that is
    not known.  flags: how it is inherited.  object_type: the attribute, class or right that it is about, None for all.
    inherited_object_type: the class of entries that inherit it, None for all.  data: what stands behind, or all of a
    rule of an unknown kind.
    """

    kind: int
    rights: AccessRight = AccessRight(0)
    sid: str = ""
    flags: RuleFlag = RuleFlag(0)
    object_type: UUID | None = None
    inherited_object_type: UUID | None = None
    data: bytes = field(default=b"", repr=False)

    def encode(self) -> bytes:
        """The rule as bytes.  Raises LocalError for a SID that is none, or a type of object where none may be."""
        body = self.data
        if self.kind in _KNOWN:
            types = b""
            if self.kind >= RuleKind.ALLOW_OBJECT:
                there = [one for one in (self.object_type, self.inherited_object_type) if one is not None]
                present = (self.object_type is not None) | (self.inherited_object_type is not None) << 1
                types = struct.pack("<I", present) + b"".join(one.bytes_le for one in there)
            elif self.object_type is not None or self.inherited_object_type is not None:
                raise LocalError("expected a kind of rule for objects (5 to 7) with a type of object")
            body = struct.pack("<I", self.rights) + types + sid_bytes(self.sid) + body
        body += bytes(-len(body) % 4)
        if len(body) > 0xFFFF - 4:
            raise LocalError(f"expected a rule of at most 65535 bytes, got {len(body) + 4}")
        return _RULE.pack(self.kind, self.flags, len(body) + 4) + body

    @classmethod
    def _read(cls, kind: int, flags: int, body: bytes) -> Self:
        if kind not in _KNOWN:
            return cls(kind, flags=RuleFlag(flags), data=body)
        (rights,) = _unpack(struct.Struct("<I"), body, 0, "the rights of a rule")
        place = 4
        types: list[UUID | None] = [None, None]
        if kind >= RuleKind.ALLOW_OBJECT:
            (present,) = _unpack(struct.Struct("<I"), body, place, "the flags of a rule")
            place += 4
            for number in (0, 1):
                if present >> number & 1:
                    types[number] = UUID(bytes_le=_part(body, place, 16, "a type of object"))
                    place += 16
        sid = _sid(body, place)
        rest = body[place + len(sid) :]
        return cls(RuleKind(kind), AccessRight(rights), sid_text(sid), RuleFlag(flags), types[0], types[1], rest)


@dataclass(frozen=True)
class SecurityDescriptor:
    """A value of nTSecurityDescriptor.  Ask for it with the control `controls.SDFlags`, and send that when changing it.

    owner, group: SIDs as text, or None.  rules: who may do what, in this order; None for no list, which allows
    everything, unlike an empty one.  audit: what is logged, or None.  control: further bits, such as 0x1000 for rules
    that are not inherited.
    """

    owner: str | None = None
    group: str | None = None
    rules: tuple[AccessRule, ...] | None = None
    audit: tuple[AccessRule, ...] | None = None
    control: int = 0

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """The descriptor of its bytes.  Raises LocalError if they are none."""
        revision, _, control, owner, group, sacl, dacl = _unpack(_HEADER, value, 0, "the head of a security descriptor")
        if revision != 1 or not control & _RELATIVE:
            raise LocalError(f"expected a self-relative security descriptor of revision 1, got {value[:20]!r}")
        return cls(
            sid_text(_sid(value, owner)) if owner else None,
            sid_text(_sid(value, group)) if group else None,
            _rules(value, dacl) if control & _DACL and dacl else None,
            _rules(value, sacl) if control & _SACL and sacl else None,
            control & ~(_DACL | _SACL | _RELATIVE),
        )

    def encode(self) -> bytes:
        """The value as bytes.  Raises LocalError for what cannot be expressed."""
        parts: list[bytes] = []
        place = _HEADER.size

        def add(part: bytes | None) -> int:
            nonlocal place
            if part is None:
                return 0
            at, place = place, place + len(part)
            parts.append(part)
            return at

        control = self.control & ~(_DACL | _SACL) | _RELATIVE
        control |= _DACL * (self.rules is not None) | _SACL * (self.audit is not None)
        sacl = add(None if self.audit is None else _list(self.audit))
        dacl = add(None if self.rules is None else _list(self.rules))
        owner = add(None if self.owner is None else sid_bytes(self.owner))
        group = add(None if self.group is None else sid_bytes(self.group))
        if not 0 <= control <= 0xFFFF:
            raise LocalError(f"expected bits of control from 0 to 0xffff, got {self.control:#x}")
        return _HEADER.pack(1, 0, control, owner, group, sacl, dacl) + b"".join(parts)


def _part(value: bytes, place: int, size: int, what: str) -> bytes:
    if place + size > len(value):
        raise LocalError(f"expected {what} of {size} bytes at {place}, got {len(value)} bytes altogether")
    return value[place : place + size]


def _unpack(form: struct.Struct, value: bytes, place: int, what: str) -> tuple[int, ...]:
    return form.unpack(_part(value, place, form.size, what))


def _sid(value: bytes, place: int) -> bytes:
    head = _part(value, place, 8, "a SID")
    return _part(value, place, 8 + 4 * head[1], "a SID")


def _rules(value: bytes, place: int) -> tuple[AccessRule, ...]:
    _, _, size, count, _ = _unpack(_LIST, value, place, "a list of rules")
    content = _part(value, place, max(size, _LIST.size), "a list of rules")
    found = []
    at = _LIST.size
    for _ in range(count):
        kind, flags, length = _unpack(_RULE, content, at, "a rule")
        if length < _RULE.size:
            raise LocalError(f"expected a rule of at least {_RULE.size} bytes, got {length}")
        body = _part(content, at + _RULE.size, length - _RULE.size, "a rule")
        found.append(AccessRule._read(kind, flags, body))
        at += length
    return tuple(found)


def _list(rules: tuple[AccessRule, ...]) -> bytes:
    """Revision 4 is for rules about objects ([MS-DTYP] 2.4.5)."""
    content = b"".join(rule.encode() for rule in rules)
    size = _LIST.size + len(content)
    if size > 0xFFFF:
        raise LocalError(f"expected a list of rules of at most 65535 bytes, got {size}")
    objects = any(RuleKind.ALLOW_OBJECT <= rule.kind <= RuleKind.AUDIT_OBJECT for rule in rules)
    return _LIST.pack(4 if objects else 2, 0, size, len(rules), 0) + content
