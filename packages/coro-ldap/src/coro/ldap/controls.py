"""Controls of LDAP as objects, for clients and servers: what a request adds and what an answer brings.

    directory.search_iter(base, controls=[ServerSideSort(SortKey("sn"))])
    directory.modify(dn, changes, controls=[PostRead(["modifyTimestamp"])])

`control()` of each makes the `Control` that is sent; `decode` of its class reads one.  `find(result, PostReadResponse)`
takes one out of a result or an entry, `parse` makes objects of all controls that are known.  Which class belongs to an
identifier depends on the role: PreRead is a list of names in a request and an entry in an answer.

Longer than most files here because there are so many; none is more than its fields and its encoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol, Self, TypeVar
from uuid import UUID

from coro.asn1 import ber
from coro.asn1.exceptions import DecodeError
from coro.ldap import filters
from coro.ldap._wire import Entry, encode_attributes
from coro.ldap.exceptions import LocalError, ProtocolError
from coro.ldap.filters import Filter
from coro.ldap.protocol import Control, as_filter, decode_controls, decode_filter

__all__ = [
    "AccountUsability",
    "AccountUsabilityResponse",
    "Assertion",
    "AuthorizationIdentity",
    "AuthorizationIdentityResponse",
    "Dereference",
    "DereferenceResponse",
    "Dereferenced",
    "DirSync",
    "DomainScope",
    "DontUseCopy",
    "EntryChange",
    "ExtendedDN",
    "LazyCommit",
    "ManageDsaIT",
    "MatchedValues",
    "Notification",
    "PagedResults",
    "PasswordExpired",
    "PasswordExpiring",
    "PasswordPolicy",
    "PasswordPolicyResponse",
    "PermissiveModify",
    "PersistentSearch",
    "PolicyHints",
    "PostRead",
    "PostReadResponse",
    "PreRead",
    "PreReadResponse",
    "ProxiedAuthorization",
    "RelaxRules",
    "SDFlags",
    "SearchOptions",
    "ServerSideSort",
    "SessionTracking",
    "ShowDeactivatedLink",
    "ShowDeleted",
    "ShowRecycled",
    "SortKey",
    "SortResponse",
    "Subentries",
    "SyncDone",
    "SyncInfo",
    "SyncRequest",
    "SyncState",
    "TreeDelete",
    "TypedControl",
    "VirtualListView",
    "VirtualListViewResponse",
    "find",
    "parse",
]

PAGED_RESULTS: Final = "1.2.840.113556.1.4.319"
SORT_REQUEST: Final = "1.2.840.113556.1.4.473"
SORT_RESPONSE: Final = "1.2.840.113556.1.4.474"
VLV_REQUEST: Final = "2.16.840.1.113730.3.4.9"
VLV_RESPONSE: Final = "2.16.840.1.113730.3.4.10"
PRE_READ: Final = "1.3.6.1.1.13.1"
POST_READ: Final = "1.3.6.1.1.13.2"
ASSERTION: Final = "1.3.6.1.1.12"
MATCHED_VALUES: Final = "1.2.826.0.1.3344810.2.3"
MANAGE_DSA_IT: Final = "2.16.840.1.113730.3.4.2"
PROXIED_AUTHORIZATION: Final = "2.16.840.1.113730.3.4.18"
SUBENTRIES: Final = "1.3.6.1.4.1.4203.1.10.1"
DONT_USE_COPY: Final = "1.3.6.1.1.22"
PERSISTENT_SEARCH: Final = "2.16.840.1.113730.3.4.3"
ENTRY_CHANGE: Final = "2.16.840.1.113730.3.4.7"
SYNC_REQUEST: Final = "1.3.6.1.4.1.4203.1.9.1.1"
SYNC_STATE: Final = "1.3.6.1.4.1.4203.1.9.1.2"
SYNC_DONE: Final = "1.3.6.1.4.1.4203.1.9.1.3"
SYNC_INFO: Final = "1.3.6.1.4.1.4203.1.9.1.4"
PASSWORD_POLICY: Final = "1.3.6.1.4.1.42.2.27.8.5.1"
ACCOUNT_USABILITY: Final = "1.3.6.1.4.1.42.2.27.9.5.8"
PASSWORD_EXPIRED: Final = "2.16.840.1.113730.3.4.4"
PASSWORD_EXPIRING: Final = "2.16.840.1.113730.3.4.5"
AUTHORIZATION_IDENTITY: Final = "2.16.840.1.113730.3.4.16"
AUTHORIZATION_IDENTITY_RESPONSE: Final = "2.16.840.1.113730.3.4.15"
SESSION_TRACKING: Final = "1.3.6.1.4.1.21008.108.63.1"
DEREFERENCE: Final = "1.3.6.1.4.1.4203.666.5.16"
RELAX_RULES: Final = "1.3.6.1.4.1.4203.666.5.12"
TREE_DELETE: Final = "1.2.840.113556.1.4.805"
SHOW_DELETED: Final = "1.2.840.113556.1.4.417"
SHOW_RECYCLED: Final = "1.2.840.113556.1.4.2064"
SHOW_DEACTIVATED_LINK: Final = "1.2.840.113556.1.4.2065"
EXTENDED_DN: Final = "1.2.840.113556.1.4.529"
DIR_SYNC: Final = "1.2.840.113556.1.4.841"
LAZY_COMMIT: Final = "1.2.840.113556.1.4.619"
PERMISSIVE_MODIFY: Final = "1.2.840.113556.1.4.1413"
DOMAIN_SCOPE: Final = "1.2.840.113556.1.4.1339"
SEARCH_OPTIONS: Final = "1.2.840.113556.1.4.1340"
SD_FLAGS: Final = "1.2.840.113556.1.4.801"
NOTIFICATION: Final = "1.2.840.113556.1.4.528"
POLICY_HINTS: Final = "1.2.840.113556.1.4.2239"


class _Made(Protocol):
    def control(self) -> Control: ...


AnyControl = Control | _Made


class TypedControl:
    """The base of the controls: `oid`, `critical`, and what each has of its own."""

    oid: ClassVar[str]
    critical: bool

    def encoded(self) -> bytes | None:
        """The value of the control, None if it has none."""
        return None

    def control(self) -> Control:
        """The control as it is sent.  Raises LocalError for fields that cannot be."""
        return Control(self.oid, self.critical, self.encoded())

    @classmethod
    def decode(cls, value: bytes | None, critical: bool = False) -> Self:
        """The control of its value.  Raises ProtocolError."""
        try:
            made = cls._read(value)
        except (DecodeError, LocalError, ValueError, TypeError, IndexError) as exc:
            raise ProtocolError(f"expected the value of a control {cls.__name__}, got another one: {exc}") from exc
        object.__setattr__(made, "critical", critical)
        return made

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        if value is not None:
            raise ValueError(f"{len(value)} bytes where there are none")
        return cls()


_T = TypeVar("_T", bound=TypedControl)


def parse(controls: Iterable[Control] | bytes, request: bool = False) -> list[Any]:
    """Objects for the controls that are known; the others as they are.

    controls: those of a result, or the encoded ones of an `Entry`.  request: whether they came with a request, for a
    server.  Raises ProtocolError for one with a bad value.
    """
    plain = decode_controls(controls) if isinstance(controls, bytes) else controls
    known = _REQUESTS if request else _RESPONSES
    return [known[one.oid].decode(one.value, one.critical) if one.oid in known else one for one in plain]


def find(source: Any, kind: type[_T]) -> _T | None:
    """The control of a class that came with a result, an `Entry` or a `Search`; None if there is none.

    Raises ProtocolError if its value is bad.
    """
    controls = source.controls
    for one in decode_controls(controls) if isinstance(controls, bytes) else controls:
        if one.oid == kind.oid:
            return kind.decode(one.value, one.critical)
    return None


# ---- reading and writing


def _whole(value: bytes | None) -> Any:
    if value is None:
        raise ValueError("no value")
    found, end = ber.decode(value, max_element=len(value) + 1)
    if end != len(value):
        raise ValueError("something behind the value")
    return found


def _items(value: Any, least: int = 0, most: int = 1 << 30) -> list[Any]:
    if type(value) is not list or not least <= len(value) <= most:
        raise ValueError(f"a sequence of {least} to {most} elements, got {value!r:.60}")
    return value


def _octets(value: Any) -> bytes:
    if type(value) is not bytes:
        raise ValueError(f"an OCTET STRING, got {value!r:.60}")
    return value


def _name(value: Any) -> str:
    return _octets(value).decode("utf-8", "surrogateescape")


def _number(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"a number, got {value!r:.60}")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"a BOOLEAN, got {value!r:.60}")
    return value


def _tagged(parts: Iterable[Any]) -> dict[int, Any]:
    """What elements with context tags hold, by tag."""
    found: dict[int, Any] = {}
    for one in parts:
        if type(one) is not tuple or one[0] != "context":
            raise ValueError(f"an element with a context tag, got {one!r:.60}")
        found[one[1]] = one[2]
    return found


def _unsigned(value: Any) -> int:
    return int.from_bytes(_octets(value), "big", signed=True)


def _text(value: str | bytes) -> bytes:
    return ber.OCTET_STRING(value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value)


def _names(value: Sequence[str]) -> bytes:
    if isinstance(value, (str, bytes)):
        raise LocalError(f"expected a list of names of attributes, got {value!r:.60}; write [{value!r:.60}]")
    return ber.SEQUENCE(*[_text(name) for name in value])


def _attributes(value: Any) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for pair in _items(value):
        name, values = _items(pair, 2, 2)
        found.setdefault(_name(name), []).extend(_octets(one) for one in _items(values))
    return found


def _entry(value: bytes | None) -> Entry:
    """A SearchResultEntry, whose application tag some servers leave out (RFC 4527, 3.1)."""
    found = _whole(value)
    if type(found) is tuple:
        if found[:2] != ("application", 4):
            raise ValueError(f"an entry, got {found!r:.60}")
        found = found[2]
    dn, attributes = _items(found, 2, 2)
    return Entry(_name(dn), _attributes(attributes))


# ---- RFC 2696, RFC 2891, VLV


@dataclass(frozen=True)
class PagedResults(TypedControl):
    """Paged results (RFC 2696), both ways.

    size: entries of a page; in an answer the server's guess of all, 0 if it has none.  cookie: of the page before;
    empty in an answer if that was the last.
    """

    oid = PAGED_RESULTS
    size: int = 0
    cookie: bytes = b""
    critical: bool = False

    def encoded(self) -> bytes:
        """SEQUENCE { size INTEGER, cookie OCTET STRING }"""
        return ber.SEQUENCE(ber.INTEGER(self.size), ber.OCTET_STRING(self.cookie))

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        size, cookie = _items(_whole(value), 2, 2)
        return cls(_number(size), _octets(cookie))


@dataclass(frozen=True)
class SortKey:
    """What to sort by: an attribute, the ordering rule or None for the attribute's own, and whether backwards."""

    attribute: str
    rule: str | None = None
    reverse: bool = False


@dataclass(frozen=True, init=False)
class ServerSideSort(TypedControl):
    """Have the server sort (RFC 2891).  keys: `SortKey` objects, or names of attributes, `-name` for backwards."""

    oid = SORT_REQUEST
    keys: tuple[SortKey, ...]
    critical: bool = False

    def __init__(self, *keys: SortKey | str, critical: bool = False) -> None:
        made = tuple(
            SortKey(key.removeprefix("-"), None, key.startswith("-")) if isinstance(key, str) else key for key in keys
        )
        if not made:
            raise LocalError("expected a key to sort by")
        object.__setattr__(self, "keys", made)
        object.__setattr__(self, "critical", critical)

    def encoded(self) -> bytes:
        """SEQUENCE OF SEQUENCE { attributeType, orderingRule [0] OPTIONAL, reverseOrder [1] BOOLEAN DEFAULT FALSE }"""
        return ber.SEQUENCE(
            *[
                ber.SEQUENCE(
                    _text(key.attribute),
                    b"" if key.rule is None else ber.CONTEXT(0, False, key.rule.encode()),
                    ber.CONTEXT(1, False, b"\xff") if key.reverse else b"",
                )
                for key in self.keys
            ]
        )

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        keys = []
        for one in _items(_whole(value), 1):
            attribute, *rest = _items(one, 1, 3)
            more = _tagged(rest)
            rule = _name(more[0]) if 0 in more else None
            keys.append(SortKey(_name(attribute), rule, any(_octets(more.get(1, b"")))))
        return cls(*keys)


@dataclass(frozen=True)
class SortResponse(TypedControl):
    """Whether the entries are sorted (RFC 2891, 1.2).  code: a result code.  attribute: the one that is to blame."""

    oid = SORT_RESPONSE
    code: int = 0
    attribute: str | None = None
    critical: bool = False

    def encoded(self) -> bytes:
        """SEQUENCE { sortResult ENUMERATED, attributeType [0] OPTIONAL }"""
        blame = b"" if self.attribute is None else ber.CONTEXT(0, False, self.attribute.encode())
        return ber.SEQUENCE(ber.ENUMERATED(self.code), blame)

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        code, *rest = _items(_whole(value), 1, 2)
        more = _tagged(rest)
        return cls(_number(code), _name(more[0]) if 0 in more else None)


@dataclass(frozen=True)
class VirtualListView(TypedControl):
    """A piece of a sorted list (draft-ietf-ldapext-ldapv3-vlv-09); needs `ServerSideSort` beside it.

    before, after: entries around the target.  offset: the target, counted from 1.  count: how long the client believes
    the list is, 0 if it does not know.  value: the target is the first entry that is not below this one, instead of an
    offset.  context: from the answer before.
    """

    oid = VLV_REQUEST
    before: int = 0
    after: int = 0
    offset: int = 1
    count: int = 0
    value: bytes | None = None
    context: bytes | None = None
    critical: bool = True

    def encoded(self) -> bytes:
        """SEQUENCE { beforeCount, afterCount, CHOICE { byOffset [0], greaterThanOrEqual [1] }, contextID OPTIONAL }"""
        if self.value is None:
            target = ber.CONTEXT(0, True, ber.INTEGER(self.offset) + ber.INTEGER(self.count))
        else:
            target = ber.CONTEXT(1, False, self.value)
        context = b"" if self.context is None else ber.OCTET_STRING(self.context)
        return ber.SEQUENCE(ber.INTEGER(self.before), ber.INTEGER(self.after), target, context)

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        before, after, target, *rest = _items(_whole(value), 3, 4)
        found = _tagged([target])
        context = _octets(rest[0]) if rest else None
        if 1 in found:
            return cls(_number(before), _number(after), 1, 0, _octets(found[1]), context)
        offset, count = _items(found.get(0), 2, 2)
        return cls(_number(before), _number(after), _number(offset), _number(count), None, context)


@dataclass(frozen=True)
class VirtualListViewResponse(TypedControl):
    """Where the piece is: position from 1, length of the list, result code, context for the next request."""

    oid = VLV_RESPONSE
    position: int = 0
    count: int = 0
    code: int = 0
    context: bytes | None = None
    critical: bool = False

    def encoded(self) -> bytes:
        """SEQUENCE { targetPosition, contentCount, virtualListViewResult ENUMERATED, contextID OPTIONAL }"""
        context = b"" if self.context is None else ber.OCTET_STRING(self.context)
        return ber.SEQUENCE(ber.INTEGER(self.position), ber.INTEGER(self.count), ber.ENUMERATED(self.code), context)

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        position, count, code, *rest = _items(_whole(value), 3, 4)
        return cls(_number(position), _number(count), _number(code), _octets(rest[0]) if rest else None)


# ---- RFC 4527, RFC 4528, RFC 3876


@dataclass(frozen=True)
class PreRead(TypedControl):
    """Have the entry as it was before the change (RFC 4527).  attributes: which; none for all user attributes."""

    oid = PRE_READ
    attributes: Sequence[str] = ()
    critical: bool = False

    def encoded(self) -> bytes:
        """AttributeSelection"""
        return _names(self.attributes)

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        return cls([_name(one) for one in _items(_whole(value))])


@dataclass(frozen=True)
class PostRead(PreRead):
    """Have the entry as it is after the change (RFC 4527)."""

    oid = POST_READ


@dataclass(frozen=True)
class PreReadResponse(TypedControl):
    """The entry as it was before the change (RFC 4527)."""

    oid = PRE_READ
    entry: Entry = field(default_factory=lambda: Entry(""))
    critical: bool = False

    def encoded(self) -> bytes:
        """SearchResultEntry"""
        return ber.APPLICATION(4, True, _text(self.entry.dn) + encode_attributes(self.entry))

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        return cls(_entry(value))


@dataclass(frozen=True)
class PostReadResponse(PreReadResponse):
    """The entry as it is after the change (RFC 4527)."""

    oid = POST_READ


@dataclass(frozen=True)
class Assertion(TypedControl):
    """Do it only if the entry matches (RFC 4528); the server answers `AssertionFailed` otherwise.  filter: or text."""

    oid = ASSERTION
    filter: Filter | str = "(objectClass=*)"
    critical: bool = True

    def encoded(self) -> bytes:
        """Filter"""
        return as_filter(self.filter).encode()

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        if value is None:
            raise ValueError("no value")
        return cls(decode_filter(value))


@dataclass(frozen=True, init=False)
class MatchedValues(TypedControl):
    """Have only the values that match one of these filters (RFC 3876).  None of them may be and, or, not."""

    oid = MATCHED_VALUES
    filters: tuple[Filter, ...]
    critical: bool = False

    def __init__(self, *wanted: Filter | str, critical: bool = False) -> None:
        made = tuple(as_filter(one) for one in wanted)
        if not made or any(isinstance(one, (filters.And, filters.Or, filters.Not)) for one in made):
            raise LocalError(f"expected filters without and, or and not (RFC 3876, 2), got {wanted!r:.200}")
        object.__setattr__(self, "filters", made)
        object.__setattr__(self, "critical", critical)

    def encoded(self) -> bytes:
        """SEQUENCE OF SimpleFilterItem"""
        return ber.SEQUENCE(*[one.encode() for one in self.filters])

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        _items(_whole(value), 1)
        assert value is not None
        made = []
        rest = _content(value)
        while rest:
            end = ber.decode(rest, max_element=len(rest) + 1)[1]
            made.append(decode_filter(rest[:end]))
            rest = rest[end:]
        return cls(*made)


# ---- without a value, or with a simple one


@dataclass(frozen=True)
class ManageDsaIT(TypedControl):
    """Treat referrals as ordinary entries (RFC 3296)."""

    oid = MANAGE_DSA_IT
    critical: bool = False


@dataclass(frozen=True)
class ProxiedAuthorization(TypedControl):
    """Do it as somebody else (RFC 4370).  who: "dn:..." or "u:...", "" for nobody."""

    oid = PROXIED_AUTHORIZATION
    who: str = ""
    critical: bool = True

    def encoded(self) -> bytes:
        """authzId"""
        return self.who.encode("utf-8", "surrogateescape")

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        return cls(_name(value))


@dataclass(frozen=True)
class Subentries(TypedControl):
    """Have subentries only, or none (RFC 3672)."""

    oid = SUBENTRIES
    visible: bool = True
    critical: bool = True

    def encoded(self) -> bytes:
        """BOOLEAN"""
        return ber.BOOLEAN(self.visible)

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        return cls(_flag(_whole(value)))


@dataclass(frozen=True)
class DontUseCopy(TypedControl):
    """Answer from the master, not from a copy (RFC 6171)."""

    oid = DONT_USE_COPY
    critical: bool = True


@dataclass(frozen=True)
class TreeDelete(TypedControl):
    """Delete an entry with all below it (draft-armijo-ldap-treedelete)."""

    oid = TREE_DELETE
    critical: bool = True


@dataclass(frozen=True)
class RelaxRules(TypedControl):
    """Let changes break rules of the schema, as administrators may (draft-zeilenga-ldap-relax)."""

    oid = RELAX_RULES
    critical: bool = True


@dataclass(frozen=True)
class SessionTracking(TypedControl):
    """Who this is for, for the server's log (draft-wahl-ldap-session).  format: the identifier of what `name` is."""

    oid = SESSION_TRACKING
    address: str = ""
    host: str = ""
    format: str = "1.3.6.1.4.1.21008.108.63.1.3"
    name: str = ""
    critical: bool = False

    def encoded(self) -> bytes:
        """SEQUENCE { sessionSourceIp, sessionSourceName, formatOID, sessionTrackingIdentifier }"""
        return ber.SEQUENCE(_text(self.address), _text(self.host), _text(self.format), _text(self.name))

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        address, host, format, name = _items(_whole(value), 4, 4)
        return cls(_name(address), _name(host), _name(format), _name(name))


# ---- who is logged in


@dataclass(frozen=True)
class AuthorizationIdentity(TypedControl):
    """Have a bind say who is logged in then (RFC 3829)."""

    oid = AUTHORIZATION_IDENTITY
    critical: bool = False


@dataclass(frozen=True)
class AuthorizationIdentityResponse(TypedControl):
    """Who is logged in (RFC 3829): "dn:...", "u:...", or ""."""

    oid = AUTHORIZATION_IDENTITY_RESPONSE
    who: str = ""
    critical: bool = False

    def encoded(self) -> bytes:
        """authzId"""
        return self.who.encode("utf-8", "surrogateescape")

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        return cls(_name(value))


@dataclass(frozen=True)
class PasswordPolicy(TypedControl):
    """Have the state of the password (draft-behera-ldap-password-policy)."""

    oid = PASSWORD_POLICY
    critical: bool = False


@dataclass(frozen=True)
class PasswordPolicyResponse(TypedControl):
    """The state of the password (draft-behera-ldap-password-policy).

    expires: in so many seconds.  grace: logins left with the old one.  error: a number, whose meaning `reason` says.
    """

    oid = PASSWORD_POLICY
    expires: int | None = None
    grace: int | None = None
    error: int | None = None
    critical: bool = False

    REASONS: ClassVar[tuple[str, ...]] = (
        "passwordExpired",
        "accountLocked",
        "changeAfterReset",
        "passwordModNotAllowed",
        "mustSupplyOldPassword",
        "insufficientPasswordQuality",
        "passwordTooShort",
        "passwordTooYoung",
        "passwordInHistory",
        "passwordTooLong",
    )

    @property
    def reason(self) -> str:
        """The name of the error; "" for none."""
        if self.error is None:
            return ""
        return self.REASONS[self.error] if 0 <= self.error < len(self.REASONS) else f"unknown ({self.error})"

    def encoded(self) -> bytes:
        """SEQUENCE { warning [0] CHOICE { timeBeforeExpiration [0], graceAuthNsRemaining [1] } OPTIONAL, error [1] }"""
        warning = b""
        if self.expires is not None:
            warning = ber.CONTEXT(0, True, ber.CONTEXT(0, False, _bare(self.expires)))
        elif self.grace is not None:
            warning = ber.CONTEXT(0, True, ber.CONTEXT(1, False, _bare(self.grace)))
        error = b"" if self.error is None else ber.CONTEXT(1, False, _bare(self.error))
        return ber.SEQUENCE(warning, error)

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        parts = _tagged(_items(_whole(value), 0, 2))
        warning = _tagged(_items(parts.get(0, []), 0, 1))
        expires, grace, error = (
            _unsigned(found[number]) if number in found else None
            for found, number in ((warning, 0), (warning, 1), (parts, 1))
        )
        return cls(expires, grace, error)


def _bare(number: int) -> bytes:
    """The content of an INTEGER."""
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


@dataclass(frozen=True)
class PasswordExpired(TypedControl):
    """The password has to be changed first (draft-vchu-ldap-pwd-policy)."""

    oid = PASSWORD_EXPIRED
    critical: bool = False

    def encoded(self) -> bytes:
        """ "0" """
        return b"0"

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        return cls()


@dataclass(frozen=True)
class PasswordExpiring(TypedControl):
    """The password expires in so many seconds (draft-vchu-ldap-pwd-policy)."""

    oid = PASSWORD_EXPIRING
    seconds: int = 0
    critical: bool = False

    def encoded(self) -> bytes:
        """Digits"""
        return b"%d" % self.seconds

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        digits = _octets(value)
        if not digits.isdigit() or len(digits) > 20:
            raise ValueError(f"digits, got {digits!r:.60}")
        return cls(int(digits))


# ---- changes as they happen


@dataclass(frozen=True)
class AccountUsability(TypedControl):
    """Have with each entry whether one can log in with it (a control of Sun's and OpenLDAP's servers)."""

    oid = ACCOUNT_USABILITY
    critical: bool = False


@dataclass(frozen=True)
class AccountUsabilityResponse(TypedControl):
    """Whether one can log in with an entry: `expires` is None if not, and then the rest says why.

    expires: seconds until the password does, -1 for never.  inactive: the account was locked or switched off.  reset:
    the password has to be changed first.  expired: it has.  grace: logins left with it.  unlocked_in: seconds until
    the account is no longer locked, 0 or less for never by itself.
    """

    oid = ACCOUNT_USABILITY
    expires: int | None = None
    inactive: bool = False
    reset: bool = False
    expired: bool = False
    grace: int | None = None
    unlocked_in: int | None = None
    critical: bool = False

    @property
    def usable(self) -> bool:
        """Whether one can log in."""
        return self.expires is not None

    def encoded(self) -> bytes:
        """CHOICE { available [0] INTEGER, not available [1] SEQUENCE { inactive [0], reset [1], expired [2] BOOLEAN,
        remaining grace [3], seconds before unlock [4] INTEGER OPTIONAL } }"""
        if self.expires is not None:
            return ber.CONTEXT(0, False, _bare(self.expires))
        flags = (self.inactive, self.reset, self.expired)
        parts = [ber.CONTEXT(number, False, b"\xff" if flag else b"\0") for number, flag in enumerate(flags)]
        for number, value in ((3, self.grace), (4, self.unlocked_in)):
            if value is not None:
                parts.append(ber.CONTEXT(number, False, _bare(value)))
        return ber.CONTEXT(1, True, b"".join(parts))

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        parts = _tagged([_whole(value)])
        if 0 in parts:
            return cls(_unsigned(parts[0]))
        found = _tagged(_items(parts[1] if 1 in parts else None))
        inactive, reset, expired = (any(_octets(found.get(number, b""))) for number in (0, 1, 2))
        grace, unlocked = (_unsigned(found[number]) if number in found else None for number in (3, 4))
        return cls(None, inactive, reset, expired, grace, unlocked)


@dataclass(frozen=True)
class PersistentSearch(TypedControl):
    """Have changes as they happen (draft-ietf-ldapext-psearch).

    changes: 1 add, 2 delete, 4 modify, 8 modifyDN, added up.  changes_only: not what is there already.  notes: have an
    `EntryChange` with each entry.
    """

    oid = PERSISTENT_SEARCH
    changes: int = 15
    changes_only: bool = True
    notes: bool = True
    critical: bool = True

    def encoded(self) -> bytes:
        """SEQUENCE { changeTypes INTEGER, changesOnly BOOLEAN, returnECs BOOLEAN }"""
        return ber.SEQUENCE(ber.INTEGER(self.changes), ber.BOOLEAN(self.changes_only), ber.BOOLEAN(self.notes))

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        changes, only, notes = _items(_whole(value), 3, 3)
        return cls(_number(changes), _flag(only), _flag(notes))


@dataclass(frozen=True)
class EntryChange(TypedControl):
    """What has happened to an entry: 1 add, 2 delete, 4 modify, 8 modifyDN; its name before; the change's number."""

    oid = ENTRY_CHANGE
    change: int = 1
    previous: str | None = None
    number: int | None = None
    critical: bool = False

    def encoded(self) -> bytes:
        """SEQUENCE { changeType ENUMERATED, previousDN OPTIONAL, changeNumber INTEGER OPTIONAL }"""
        previous = b"" if self.previous is None else _text(self.previous)
        number = b"" if self.number is None else ber.INTEGER(self.number)
        return ber.SEQUENCE(ber.ENUMERATED(self.change), previous, number)

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        change, *rest = _items(_whole(value), 1, 3)
        previous = _name(rest.pop(0)) if rest and type(rest[0]) is bytes else None
        return cls(_number(change), previous, _number(rest[0]) if rest else None)


@dataclass(frozen=True)
class SyncRequest(TypedControl):
    """Synchronise a copy (RFC 4533).  mode: 1 once, 3 and go on.  cookie: where the copy is, None for nowhere.

    reload: may everything be sent again, if the cookie is too old.
    """

    oid = SYNC_REQUEST
    mode: int = 3
    cookie: bytes | None = None
    reload: bool = False
    critical: bool = True

    def encoded(self) -> bytes:
        """SEQUENCE { mode ENUMERATED, cookie OPTIONAL, reloadHint BOOLEAN DEFAULT FALSE }"""
        cookie = b"" if self.cookie is None else ber.OCTET_STRING(self.cookie)
        return ber.SEQUENCE(ber.ENUMERATED(self.mode), cookie, ber.BOOLEAN(True) if self.reload else b"")

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        mode, *rest = _items(_whole(value), 1, 3)
        cookie = _octets(rest.pop(0)) if rest and type(rest[0]) is bytes else None
        return cls(_number(mode), cookie, _flag(rest[0]) if rest else False)


@dataclass(frozen=True)
class SyncState(TypedControl):
    """What an entry of a synchronisation is (RFC 4533): 0 present, 1 add, 2 modify, 3 delete; its UUID; the cookie."""

    oid = SYNC_STATE
    state: int = 0
    uuid: UUID = UUID(int=0)
    cookie: bytes | None = None
    critical: bool = False

    def encoded(self) -> bytes:
        """SEQUENCE { state ENUMERATED, entryUUID OCTET STRING (16), cookie OPTIONAL }"""
        cookie = b"" if self.cookie is None else ber.OCTET_STRING(self.cookie)
        return ber.SEQUENCE(ber.ENUMERATED(self.state), ber.OCTET_STRING(self.uuid.bytes), cookie)

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        state, uuid, *rest = _items(_whole(value), 2, 3)
        return cls(_number(state), UUID(bytes=_octets(uuid)), _octets(rest[0]) if rest else None)


@dataclass(frozen=True)
class SyncDone(TypedControl):
    """The end of a synchronisation (RFC 4533).  deletes: what was not named is unchanged, and deletions were sent."""

    oid = SYNC_DONE
    cookie: bytes | None = None
    deletes: bool = False
    critical: bool = False

    def encoded(self) -> bytes:
        """SEQUENCE { cookie OPTIONAL, refreshDeletes BOOLEAN DEFAULT FALSE }"""
        cookie = b"" if self.cookie is None else ber.OCTET_STRING(self.cookie)
        return ber.SEQUENCE(cookie, ber.BOOLEAN(True) if self.deletes else b"")

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        rest = list(_items(_whole(value), 0, 2))
        cookie = _octets(rest.pop(0)) if rest and type(rest[0]) is bytes else None
        return cls(cookie, _flag(rest[0]) if rest else False)


@dataclass(frozen=True)
class SyncInfo(TypedControl):
    """The value of the intermediate response of a synchronisation (RFC 4533); not a control, but read as one.

    kind: "cookie", "delete" or "present" for the end of that phase, "ids" for a set of UUIDs.  done: whether the first
    filling is over.  deletes: the entries of the set are gone; otherwise they are there.
    """

    oid = SYNC_INFO
    kind: str = "cookie"
    cookie: bytes | None = None
    done: bool = True
    deletes: bool = False
    uuids: tuple[UUID, ...] = ()
    critical: bool = False

    def encoded(self) -> bytes:
        """CHOICE { newcookie [0], refreshDelete [1], refreshPresent [2], syncIdSet [3] }"""
        cookie = b"" if self.cookie is None else ber.OCTET_STRING(self.cookie)
        if self.kind == "cookie":
            return ber.CONTEXT(0, False, self.cookie or b"")
        if self.kind == "ids":
            ids = ber.SET(*[ber.OCTET_STRING(one.bytes) for one in self.uuids])
            return ber.CONTEXT(3, True, cookie + (ber.BOOLEAN(True) if self.deletes else b"") + ids)
        if self.kind not in ("delete", "present"):
            raise LocalError(f'expected "cookie", "delete", "present" or "ids", got {self.kind!r:.60}')
        done = b"" if self.done else ber.BOOLEAN(False)
        return ber.CONTEXT(1 if self.kind == "delete" else 2, True, cookie + done)

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        [(tag, content)] = _tagged([_whole(value)]).items()
        if tag == 0:
            return cls("cookie", _octets(content))
        rest = list(_items(content, 0, 3))
        cookie = _octets(rest.pop(0)) if rest and type(rest[0]) is bytes else None
        if tag == 3:
            deletes = _flag(rest.pop(0)) if rest and type(rest[0]) is bool else False
            uuids = tuple(UUID(bytes=_octets(one)) for one in _items(rest[0]))
            return cls("ids", cookie, True, deletes, uuids)
        if tag not in (1, 2):
            raise ValueError(f"a tag from 0 to 3, got {tag}")
        return cls("delete" if tag == 1 else "present", cookie, _flag(rest[0]) if rest else True)


# ---- OpenLDAP


@dataclass(frozen=True)
class Dereference(TypedControl):
    """Have attributes of the entries that an attribute names (draft-masarati-ldap-deref).

    attributes: for each attribute with names, those to have of the entries behind it.
    """

    oid = DEREFERENCE
    attributes: dict[str, Sequence[str]] = field(default_factory=dict)
    critical: bool = False

    def encoded(self) -> bytes:
        """SEQUENCE OF SEQUENCE { derefAttr, attributes }"""
        return ber.SEQUENCE(*[ber.SEQUENCE(_text(name), _names(wanted)) for name, wanted in self.attributes.items()])

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        found: dict[str, Sequence[str]] = {}
        for one in _items(_whole(value)):
            name, wanted = _items(one, 2, 2)
            found[_name(name)] = [_name(part) for part in _items(wanted)]
        return cls(found)


@dataclass(frozen=True)
class Dereferenced:
    """One value of such an attribute: the attribute, the name in it, and what that entry has."""

    attribute: str
    dn: str
    attributes: dict[str, list[bytes]]


@dataclass(frozen=True)
class DereferenceResponse(TypedControl):
    """What comes with an entry for `Dereference`."""

    oid = DEREFERENCE
    values: tuple[Dereferenced, ...] = ()
    critical: bool = False

    def encoded(self) -> bytes:
        """SEQUENCE OF SEQUENCE { derefAttr, derefVal, attrVals [0] PartialAttributeList OPTIONAL }"""
        return ber.SEQUENCE(
            *[
                ber.SEQUENCE(
                    _text(one.attribute),
                    _text(one.dn),
                    ber.CONTEXT(0, True, _content(encode_attributes(one.attributes))) if one.attributes else b"",
                )
                for one in self.values
            ]
        )

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        found = []
        for one in _items(_whole(value)):
            name, dn, *rest = _items(one, 2, 3)
            more = _tagged(rest)
            found.append(Dereferenced(_name(name), _name(dn), _attributes(more.get(0, []))))
        return cls(tuple(found))


def _content(element: bytes) -> bytes:
    """What is behind the header of an element."""
    return element[2 if element[1] < 0x80 else 2 + (element[1] & 0x7F) :]


# ---- Active Directory ([MS-ADTS], 3.1.1.3.4.1)


@dataclass(frozen=True)
class ShowDeleted(TypedControl):
    """Find deleted objects, too."""

    oid = SHOW_DELETED
    critical: bool = True


@dataclass(frozen=True)
class ShowRecycled(TypedControl):
    """Find recycled objects, too."""

    oid = SHOW_RECYCLED
    critical: bool = True


@dataclass(frozen=True)
class ShowDeactivatedLink(TypedControl):
    """Have values that point to deleted objects, too."""

    oid = SHOW_DEACTIVATED_LINK
    critical: bool = True


@dataclass(frozen=True)
class LazyCommit(TypedControl):
    """The change may be on the disk later."""

    oid = LAZY_COMMIT
    critical: bool = False


@dataclass(frozen=True)
class PermissiveModify(TypedControl):
    """Adding a value that is there, or deleting one that is not, is no error."""

    oid = PERMISSIVE_MODIFY
    critical: bool = True


@dataclass(frozen=True)
class DomainScope(TypedControl):
    """No references to other domains."""

    oid = DOMAIN_SCOPE
    critical: bool = False


@dataclass(frozen=True)
class Notification(TypedControl):
    """Have an object each time it changes."""

    oid = NOTIFICATION
    critical: bool = True


@dataclass(frozen=True)
class _Number(TypedControl):
    """SEQUENCE { INTEGER }"""

    number: int = 0
    critical: bool = True

    def encoded(self) -> bytes:
        """SEQUENCE { INTEGER }"""
        return ber.SEQUENCE(ber.INTEGER(self.number))

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        [number] = _items(_whole(value), 1, 1)
        return cls(_number(number))


@dataclass(frozen=True)
class ExtendedDN(_Number):
    """Have names with GUID and SID.  number: 0 hexadecimal, 1 as text."""

    oid = EXTENDED_DN
    number: int = 1


@dataclass(frozen=True)
class SearchOptions(_Number):
    """number: 1 not beyond the domain, 2 in all partitions of the server."""

    oid = SEARCH_OPTIONS
    number: int = 1


@dataclass(frozen=True)
class SDFlags(_Number):
    """Which parts of a security descriptor are meant.  number: 1 owner, 2 group, 4 DACL, 8 SACL, added up."""

    oid = SD_FLAGS
    number: int = 7


@dataclass(frozen=True)
class PolicyHints(_Number):
    """A password that an administrator sets has to obey the history, too.  number: 1 for that."""

    oid = POLICY_HINTS
    number: int = 1


@dataclass(frozen=True)
class DirSync(TypedControl):
    """Have what has changed since the cookie, both ways.

    flags: 1 only what the user may read, 2048 parents first, 8192 public data, 2**31 changed values only; in an answer,
    not 0 if there is more.  size: bytes of an answer at most.
    """

    oid = DIR_SYNC
    flags: int = 0
    size: int = 1 << 20
    cookie: bytes = b""
    critical: bool = True

    def encoded(self) -> bytes:
        """SEQUENCE { flags INTEGER, maxBytes INTEGER, cookie OCTET STRING }"""
        flags = self.flags - (1 << 32) if self.flags >= 1 << 31 else self.flags
        return ber.SEQUENCE(ber.INTEGER(flags), ber.INTEGER(self.size), ber.OCTET_STRING(self.cookie))

    @classmethod
    def _read(cls, value: bytes | None) -> Self:
        flags, size, cookie = _items(_whole(value), 3, 3)
        return cls(_number(flags) & 0xFFFFFFFF, _number(size), _octets(cookie))


def _table(*kinds: type[TypedControl]) -> dict[str, type[TypedControl]]:
    return {kind.oid: kind for kind in kinds}


_REQUESTS = _table(
    PagedResults, ServerSideSort, VirtualListView, PreRead, PostRead, Assertion, MatchedValues, ManageDsaIT,
    ProxiedAuthorization, Subentries, DontUseCopy, TreeDelete, RelaxRules, SessionTracking, AuthorizationIdentity,
    AccountUsability, PasswordPolicy, PersistentSearch, SyncRequest, Dereference, ShowDeleted, ShowRecycled,
    ShowDeactivatedLink, LazyCommit, PermissiveModify, DomainScope, Notification, ExtendedDN, SearchOptions, SDFlags,
    PolicyHints, DirSync,
)  # fmt: skip
_RESPONSES = _table(
    PagedResults, SortResponse, VirtualListViewResponse, PreReadResponse, PostReadResponse, AccountUsabilityResponse,
    AuthorizationIdentityResponse, PasswordPolicyResponse, PasswordExpired, PasswordExpiring, EntryChange, SyncState,
    SyncDone, SyncInfo, DereferenceResponse, DirSync,
)  # fmt: skip
