"""What Active Directory does in its own way: SIDs, GUIDs, times, account flags, rights, passwords, long lists, changes.

    from coro.ldap import ad

    ad.sid_text(entry.first("objectSid"))           # "S-1-5-21-..."
    ad.all_values(directory, group, "member")       # more than the 1500 that the server gives at once
    ad.set_password(directory, user, new)

The forms are those of [MS-DTYP] 2.4.2 (SID) and 2.3.4 (GUID), and of [MS-ADTS].  Nothing here keeps anything.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from coro.ldap import controls
from coro.ldap._descriptor import AccessRight, AccessRule, RuleFlag, RuleKind, SecurityDescriptor, sid_bytes, sid_text
from coro.ldap.exceptions import LocalError, RemoteError
from coro.ldap.filters import Extensible, Filter
from coro.ldap.protocol import Entry, SearchRequest

if TYPE_CHECKING:
    from coro.ldap.client import client

__all__ = [
    "AccessRight",
    "AccessRule",
    "AccountControl",
    "Changes",
    "RuleFlag",
    "RuleKind",
    "SecurityDescriptor",
    "all_values",
    "change_password",
    "encode_password",
    "from_filetime",
    "guid",
    "guid_bytes",
    "has_flags",
    "in_chain",
    "set_password",
    "sid_bytes",
    "sid_text",
    "to_filetime",
    "unlock",
]

#: Matching rules of [MS-ADTS] 3.1.1.3.4.4.
BIT_AND: Final = "1.2.840.113556.1.4.803"
IN_CHAIN: Final = "1.2.840.113556.1.4.1941"

_RANGE = re.compile(r"range=([0-9]{1,10})-([0-9]{1,10}|\*)", re.ASCII | re.IGNORECASE)
_EPOCH = datetime(1601, 1, 1, tzinfo=UTC)
_NEVER = 0x7FFFFFFFFFFFFFFF


class AccountControl(enum.IntFlag):
    """Bits of userAccountControl ([MS-ADTS] 2.2.16)."""

    SCRIPT = 0x1
    ACCOUNT_DISABLED = 0x2
    HOME_FOLDER_REQUIRED = 0x8
    LOCKED_OUT = 0x10
    PASSWORD_NOT_REQUIRED = 0x20
    PASSWORD_CANNOT_CHANGE = 0x40
    REVERSIBLE_PASSWORD_ALLOWED = 0x80
    NORMAL_ACCOUNT = 0x200
    INTERDOMAIN_TRUST_ACCOUNT = 0x800
    WORKSTATION_TRUST_ACCOUNT = 0x1000
    SERVER_TRUST_ACCOUNT = 0x2000
    PASSWORD_DOES_NOT_EXPIRE = 0x10000
    SMARTCARD_REQUIRED = 0x40000
    TRUSTED_FOR_DELEGATION = 0x80000
    NOT_DELEGATED = 0x100000
    USE_DES_KEY_ONLY = 0x200000
    PREAUTHENTICATION_NOT_REQUIRED = 0x400000
    PASSWORD_EXPIRED = 0x800000
    TRUSTED_TO_AUTHENTICATE_FOR_DELEGATION = 0x1000000
    READ_ONLY_DOMAIN_CONTROLLER = 0x4000000


def guid(value: bytes) -> UUID:
    """A value of objectGUID.  Raises LocalError unless it has 16 bytes."""
    if len(value) != 16:
        raise LocalError(f"expected the 16 bytes of a GUID, got {len(value)}")
    return UUID(bytes_le=value)


def guid_bytes(value: UUID | str) -> bytes:
    """The value of objectGUID, for filters.  Raises LocalError for a text that is no GUID."""
    try:
        return (value if isinstance(value, UUID) else UUID(value)).bytes_le
    except ValueError:
        raise LocalError(f"expected a GUID, got {value!r:.80}") from None


def from_filetime(value: bytes | str | int) -> datetime | None:
    """A time such as lastLogon or accountExpires; None for 0 and the largest number, which mean never.

    value: tenths of microseconds since 1601.  Raises LocalError if it is no such number, or later than Python knows.
    """
    try:
        number = int(value)
        if number in (0, _NEVER):
            return None
        if number < 0:
            raise ValueError
        return _EPOCH + timedelta(microseconds=number // 10)
    except (ValueError, OverflowError):
        raise LocalError(f"expected tenths of microseconds since 1601, got {value!r:.60}") from None


def to_filetime(value: datetime | None) -> int:
    """The number for a time; the largest one for None, which is never.

    Raises LocalError for a time without a zone or before 1601.
    """
    if value is None:
        return _NEVER
    if value.tzinfo is None or value < _EPOCH:
        raise LocalError(f"expected a time with its zone, from 1601 on, got {value}")
    return (value - _EPOCH) // timedelta(microseconds=1) * 10


def encode_password(password: str) -> bytes:
    """The value of unicodePwd for a password ([MS-ADTS] 3.1.1.3.1.5).  Needs TLS, which the server insists on."""
    return f'"{password}"'.encode("utf-16-le")


def set_password(directory: client, dn: str, new: str) -> None:
    """Give somebody another password, as an administrator.

    directory: a client with TLS.  dn: whose.  Raises TLSRequired, and results: UnwillingToPerform for a password that
    the rules of the domain do not allow, InsufficientAccessRights.
    """
    directory.check_secret()
    directory.modify(dn, {"unicodePwd": [encode_password(new)]})


def change_password(directory: client, dn: str, old: str, new: str) -> None:
    """Change a password as the one whose it is.

    directory: a client with TLS.  dn: whose.  Raises TLSRequired, and results: ConstraintViolation for a wrong old
    password, or a new one that the rules of the domain do not allow.
    """
    directory.check_secret()
    values = [encode_password(old)], [encode_password(new)]
    directory.modify(dn, [("delete", "unicodePwd", values[0]), ("add", "unicodePwd", values[1])])


def unlock(directory: client, dn: str) -> None:
    """Let somebody in again who was locked out after wrong passwords ([MS-ADA1], lockoutTime).  Raises results."""
    directory.modify(dn, {"lockoutTime": ["0"]})


def in_chain(attribute: str, dn: str) -> Extensible:
    """The filter for entries that lead to `dn`, also through others: ``in_chain("memberOf", group)``."""
    return Extensible(attribute, dn, rule=IN_CHAIN)


def has_flags(attribute: str, bits: int) -> Extensible:
    """The filter for entries where all of `bits` are set: ``has_flags("userAccountControl", 2)``."""
    return Extensible(attribute, str(int(bits)), rule=BIT_AND)


def all_values(directory: client, dn: str, attribute: str, limit: int = 10_000_000) -> list[bytes]:
    """All values of an attribute, of which Active Directory gives 1500 at once ([MS-ADTS] 3.1.1.3.1.3.3).

    directory: a client.  dn: of the entry.  limit: how many values at most.  Raises NoSuchObject and other results;
    RemoteError if the server's ranges do not follow each other, or above the limit.
    """
    found: list[bytes] = []
    wanted = attribute
    while True:
        [entry, *_] = list(directory.search_iter(dn, 0, attributes=[wanted], page_size=0)) or [None]
        if entry is None:
            return found
        ranged = _ranged(entry.with_options(attribute))
        if ranged is None:
            return found or list(entry.get(attribute, []))
        first, last, values = ranged
        if first != len(found) or (last is not None and (not values or last != first + len(values) - 1)):
            raise RemoteError(
                f"expected values of {attribute} from number {len(found)} on, got {len(values)} as {first} to {last}"
            )
        found += values
        if len(found) > limit:
            raise RemoteError(f"expected at most {limit} values of {attribute}")
        if last is None:
            return found
        wanted = f"{attribute};range={len(found)}-*"


def _ranged(attributes: dict[str, list[bytes]]) -> tuple[int, int | None, list[bytes]] | None:
    """The first number, the last one, None if there are no more, and the values; None without a range."""
    for name, values in attributes.items():
        for option in name.split(";")[1:]:
            match = _RANGE.fullmatch(option)
            if match is not None:
                return int(match[1]), None if match[2] == "*" else int(match[2]), values
    return None


class Changes:
    """Changes(directory, base, filter="(objectClass=*)", attributes=None, *, cookie=b"", flags=0, size=1048576)

    What has changed in a domain since a cookie ([MS-ADTS] 3.1.1.3.4.1.3).  Iterating gives each entry that has, with
    the attributes that have; all entries without a cookie.  Deleted ones come with ``isDeleted``.

    directory: a client.  base: the name of the domain or another naming context, no other.  filter, attributes: as in a
    search.  cookie: that of the last time.  flags: those of `controls.DirSync`, such as 1 to see only what the user may
    read; without it the user has to have the right to replicate.  size: bytes of an answer at most.

    `cookie` says where the last answer ended; keep it when the loop is over.  Iterating again gives what has changed
    since.  Raises results, and RemoteError if an answer has no cookie.
    """

    def __init__(
        self,
        directory: client,
        base: str,
        filter: Filter | str = "(objectClass=*)",
        attributes: Iterable[str] | None = None,
        *,
        cookie: bytes = b"",
        flags: int = 0,
        size: int = 1 << 20,
    ) -> None:
        self._directory = directory
        self._request = SearchRequest(base, 2, filter, tuple(attributes or ()))
        self._flags = flags
        self._size = size
        #: Where the last answer ended.
        self.cookie = cookie

    def __repr__(self) -> str:
        return f"<Changes of {self._request.base!r:.100}>"

    def __iter__(self) -> Iterator[Entry]:
        more = True
        while more:
            control = controls.DirSync(self._flags, self._size, self.cookie)
            with self._directory.stream(self._request, [control]) as answer:
                for batch in answer.batches():
                    for one in batch:
                        if isinstance(one, Entry):
                            yield one
            found = None if answer.result is None else controls.find(answer.result, controls.DirSync)
            if found is None:
                raise RemoteError("expected a DirSync control with the answer, got none: is the base a naming context?")
            if found.flags and found.cookie == self.cookie:
                raise RemoteError("expected another cookie with each answer, got the same one again")
            self.cookie = found.cookie
            more = bool(found.flags)
