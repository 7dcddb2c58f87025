"""Values inside certificates: names, times, numbers, object identifiers.

They are thin: a `x509_name` or `asn1_time` of a certificate is the certificate's own, so that changing it changes the
certificate. A changed certificate has no valid signature any more; it has to be signed again. `changed` is how these
objects tell it.

Names of attributes and curves are numbered as in OpenSSL's `obj_mac.h`. Only those that occur in certificates are here.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC
from typing import NamedTuple

from coro.ssl._certs.errors import Error, installed

with installed():
    from cryptography import x509 as _x509
    from cryptography.x509.oid import ObjectIdentifier

__all__ = ["asn1_integer", "asn1_object", "asn1_string", "asn1_time", "bignum", "x509_name", "x509_name_entry"]


class _Known(NamedTuple):
    sn: str
    ln: str
    nid: int
    oid: str


_KNOWN = [
    _Known("CN", "commonName", 13, "2.5.4.3"),
    _Known("C", "countryName", 14, "2.5.4.6"),
    _Known("L", "localityName", 15, "2.5.4.7"),
    _Known("ST", "stateOrProvinceName", 16, "2.5.4.8"),
    _Known("O", "organizationName", 17, "2.5.4.10"),
    _Known("OU", "organizationalUnitName", 18, "2.5.4.11"),
    _Known("emailAddress", "emailAddress", 48, "1.2.840.113549.1.9.1"),
    _Known("GN", "givenName", 99, "2.5.4.42"),
    _Known("SN", "surname", 100, "2.5.4.4"),
    _Known("initials", "initials", 101, "2.5.4.43"),
    _Known("serialNumber", "serialNumber", 105, "2.5.4.5"),
    _Known("title", "title", 106, "2.5.4.12"),
    _Known("dnQualifier", "dnQualifier", 174, "2.5.4.46"),
    _Known("DC", "domainComponent", 391, "0.9.2342.19200300.100.1.25"),
    _Known("UID", "userId", 458, "0.9.2342.19200300.100.1.1"),
    _Known("street", "streetAddress", 660, "2.5.4.9"),
    _Known("postalCode", "postalCode", 661, "2.5.4.17"),
]


class asn1_object:
    """An object identifier. ``sn`` is its short name, ``ln`` the long one, ``nid`` OpenSSL's number for it, ``oid`` its
    dotted numbers. One that is not known by name has the numbers for names and nid 0. Two objects are equal if their
    ``oid`` is; an object is also equal to a text that is its short or long name, or its numbers.

    ``asn1_object("CN")``: ``name`` is any of these. Raises Error for a name that is not known.
    """

    def __init__(self, name: str) -> None:
        for known in _KNOWN:
            if name in (known.sn, known.ln, known.oid):
                self.sn, self.ln, self.nid, self.oid = known
                return
        try:
            ObjectIdentifier(name)
        except ValueError:
            names = ", ".join(known.sn for known in _KNOWN)
            raise Error(0, f"no attribute is called {name!r}; use one of {names}, or dotted numbers") from None
        self.sn = self.ln = self.oid = name
        self.nid = 0

    def __eq__(self, other: object) -> bool:
        if isinstance(other, asn1_object):
            return self.oid == other.oid
        if isinstance(other, str):
            return other in (self.sn, self.ln, self.oid)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.sn)  # so that a dictionary finds it by its short name

    def __str__(self) -> str:
        return self.sn

    def __repr__(self) -> str:
        return f"<asn1_object {self.sn} {self.oid}>"


class asn1_string:
    """A text in a certificate."""

    def __init__(self, value: str = "") -> None:
        self._value = value

    def to_UTF8(self) -> str:
        """The text."""
        return self._value

    def __str__(self) -> str:
        return self._value

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (asn1_string, str)):
            return self._value == str(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return f"<asn1_string {self._value!r}>"


class bignum:
    """A whole number of any size."""

    def __init__(self, value: int = 0) -> None:
        self._value = int(value)

    def __int__(self) -> int:
        return self._value

    __index__ = __int__

    def to_hex(self) -> str:
        """The number in upper-case hexadecimal digits, two for each byte."""
        digits = f"{abs(self._value):X}"
        return ("-" if self._value < 0 else "") + "0" * (len(digits) % 2) + digits

    def __eq__(self, other: object) -> bool:
        return self._value == int(other) if isinstance(other, (int, bignum)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._value}>"


class asn1_integer(bignum):
    """A whole number in a certificate, such as the serial number."""

    def __init__(self, value: int = 0, changed: Callable[[int], object] | None = None) -> None:
        super().__init__(value)
        self._changed = changed

    def get(self) -> int:
        """The number."""
        return self._value

    def set(self, value: int) -> None:
        """Change the number, and that in the certificate it belongs to."""
        if self._changed is not None:
            self._changed(value)
        self._value = int(value)


class asn1_time:
    """A moment in a certificate: whole seconds, UTC.

    ``when`` is an aware datetime, None for now.
    """

    def __init__(
        self, when: datetime.datetime | None = None, changed: Callable[[datetime.datetime], object] | None = None
    ) -> None:
        self._changed = changed
        self._when = (when or datetime.datetime.now(UTC)).replace(microsecond=0)

    @property
    def datetime(self) -> datetime.datetime:
        """The moment as an aware datetime."""
        return self._when

    def to_string(self) -> str:
        """As OpenSSL prints it, ``Jan  2 03:04:05 2030 GMT``."""
        # not strftime, whose names of months follow the locale
        month = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
        t = self._when
        return f"{month[t.month - 1]} {t.day:2} {t:%H:%M:%S} {t.year} GMT"

    def set_now(self) -> None:
        """Make it the present moment."""
        self.gmtime_adj(0)

    def gmtime_adj(self, secs: int) -> None:
        """Make it ``secs`` seconds from now, before now if negative."""
        when = datetime.datetime.now(UTC).replace(microsecond=0) + datetime.timedelta(seconds=secs)
        if self._changed is not None:
            self._changed(when)
        self._when = when

    def cmp_current_time(self) -> int:
        """-1 if the moment is past, 1 if it is to come."""
        return 1 if self._when > datetime.datetime.now(UTC) else -1

    def __str__(self) -> str:
        return self.to_string()

    def __repr__(self) -> str:
        return f"<asn1_time {self.to_string()}>"


class x509_name_entry:
    """One attribute of a name: ``get_object()`` is what it is, ``get_data()`` its value."""

    def __init__(self, kind: asn1_object, value: str) -> None:
        self._kind = kind
        self._value = value

    def get_object(self) -> asn1_object:
        """What the attribute is, an ``asn1_object``."""
        return self._kind

    def get_data(self) -> asn1_string:
        """Its value, an ``asn1_string``."""
        return asn1_string(self._value)

    def __repr__(self) -> str:
        return f"<x509_name_entry {self._kind.sn}={self._value!r}>"


class x509_name:
    """The name of a subject or issuer: attributes in their order. It belongs to a certificate or request, and what is
    added here is added there."""

    def __init__(self, name: _x509.Name | None = None, changed: Callable[[], object] | None = None) -> None:
        self._changed = changed
        self._entries: list[tuple[asn1_object, str]] = []
        self._original = name
        for attribute in name or ():
            value = attribute.value
            text = value if isinstance(value, str) else value.hex()
            self._entries.append((asn1_object(attribute.oid.dotted_string), text))

    def _name(self) -> _x509.Name:
        """As `cryptography` has it. One that was read and not changed is as it was read, its kinds of strings, too."""
        if self._original is not None:
            return self._original
        try:
            return _x509.Name([_x509.NameAttribute(ObjectIdentifier(kind.oid), value) for kind, value in self._entries])
        except ValueError as e:
            raise Error(0, f"the name {self} cannot be encoded: {e}") from e

    def entry_count(self) -> int:
        """How many attributes there are."""
        return len(self._entries)

    def get_entry(self, i: int) -> x509_name_entry:
        """Attribute number ``i``, from 0. IndexError if there is none."""
        if not 0 <= i < len(self._entries):
            raise IndexError(f"the name has {len(self._entries)} entries, numbered from 0; there is no {i}")
        return x509_name_entry(*self._entries[i])

    def get_entries(self) -> dict[str, str]:
        """Short name -> value. Of several attributes with one name it has the last; iterate over the name to get
        all."""
        return {kind.sn: value for kind, value in self._entries}

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter([(kind.sn, value) for kind, value in self._entries])

    def add_entry_by_txt(self, field: str, value: str) -> None:
        """Append an attribute: ``field`` is its short or long name or its numbers. Raises Error for one that is not
        known, or a value that the attribute cannot have (a country is two letters)."""
        kind = asn1_object(field)
        try:
            _x509.NameAttribute(ObjectIdentifier(kind.oid), value)
        except (ValueError, TypeError) as e:
            raise Error(0, f"{kind.ln} cannot be {value!r}: {e}") from e
        self._entries.append((kind, value))
        self._original = None
        if self._changed is not None:
            self._changed()

    def add_entries_by_txt(self, entries: Mapping[str, str]) -> None:
        """Append all attributes of a mapping."""
        for field, value in entries.items():
            self.add_entry_by_txt(field, value)

    def print_ex(self, indent: int = 0) -> str:
        """The name in one line, ``CN=..., O=...``, after ``indent`` spaces."""
        return " " * indent + ", ".join(f"{kind.sn}={value}" for kind, value in self._entries)

    def __str__(self) -> str:
        return self.print_ex()

    def __eq__(self, other: object) -> bool:
        return self._entries == other._entries if isinstance(other, x509_name) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(value for _, value in self._entries))

    def __repr__(self) -> str:
        return f"<x509_name {self.print_ex()}>"
