"""Distinguished names: their text (RFC 4514) both ways, comparison, and building them from values.

    dn = DN.parse("uid=fred,ou=People,dc=example,dc=org")
    dn.parent                                           # ou=People,dc=example,dc=org
    dn.is_below(DN.parse("DC=Example, DC=org"))         # True
    DN.parse(base).child(cn=whatever_the_user_typed)    # its commas and signs are data

A name is a tuple of relative names, the lowest first; each of those is a tuple of pairs (attribute, value).  Values are
str, or bytes where the text had the form `#` and hexadecimal BER.

Equality folds case and runs of blanks, as the matching rules of nearly all naming attributes do (RFC 4517, 4.2.11); the
order of the pairs of one relative name has no meaning.  A server may know better: exactly equal texts aside, equality
is an assumption about the schema, and `str()` always gives what was there.

Cost: one pass over the text with a compiled pattern for each pair, about two microseconds for each.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from coro.ldap.exceptions import DNError

__all__ = ["DN", "escape_dn_value", "match_leaf", "normalize_dn"]

#: Bytes of a text and number of relative names that `DN.parse` takes.
MAX_LENGTH = 64 * 1024
MAX_NAMES = 1024

_TYPE = re.compile(r" *([A-Za-z][A-Za-z0-9-]*|(?:[Oo][Ii][Dd]\.)?(?:0|[1-9][0-9]*)(?:\.(?:0|[1-9][0-9]*))+) *=")
_HEX = re.compile(r" *#((?:[0-9A-Fa-f]{2})+) *")
# RFC 4514, 3: pairs of a backslash and a special character or two digits; anything but the specials stands for itself.
_STRING = re.compile(r"((?:[^\\\",+;<>\0]|\\(?:[ \"#+,;<=>\\]|[0-9A-Fa-f]{2}))*)")
_PAIR = re.compile(r"\\([0-9A-Fa-f]{2}|.)", re.DOTALL)
_TO_ESCAPE = re.compile(r"[\"+,;<>\\\0]")
_ATTRIBUTE = re.compile(r"[A-Za-z][A-Za-z0-9-]*|(?:0|[1-9][0-9]*)(?:\.(?:0|[1-9][0-9]*))+", re.ASCII)

# The short names that every implementation has to know (RFC 4514, 3), and two more of RFC 4519.
_NUMBERS = {
    "2.5.4.3": "cn",
    "2.5.4.7": "l",
    "2.5.4.8": "st",
    "2.5.4.10": "o",
    "2.5.4.11": "ou",
    "2.5.4.6": "c",
    "2.5.4.9": "street",
    "0.9.2342.19200300.100.1.25": "dc",
    "0.9.2342.19200300.100.1.1": "uid",
    "2.5.4.4": "sn",
    "2.5.4.5": "serialnumber",
}
_LONG = {
    "commonname": "cn",
    "localityname": "l",
    "stateorprovincename": "st",
    "organizationname": "o",
    "organizationalunitname": "ou",
    "countryname": "c",
    "streetaddress": "street",
    "domaincomponent": "dc",
    "userid": "uid",
    "surname": "sn",
}

Pair = tuple[str, str | bytes]


def escape_dn_value(value: str) -> str:
    """The text of a value in a distinguished name (RFC 4514, 2.4).

    NUL is written as \\00.  Raises TypeError if the value is no str.
    """
    if not isinstance(value, str):
        raise TypeError(f"expected the value as str, not {type(value).__name__}: {value!r:.60}")
    text = _TO_ESCAPE.sub(lambda match: "\\00" if match[0] == "\0" else "\\" + match[0], value)
    if text.startswith((" ", "#")):
        text = "\\" + text
    if text.endswith(" ") and text != "\\ ":
        text = text[:-1] + "\\ "
    return text


def _value(raw: str, text: str, at: int) -> str:
    """The value of an escaped string; blanks around it that are not escaped do not belong to it."""
    raw = raw.lstrip(" ")
    stripped = raw.rstrip(" ")
    # A backslash before the last blank: an escaped one, unless the backslash itself is escaped.
    if stripped != raw and (len(stripped) - len(stripped.rstrip("\\"))) % 2:
        stripped += " "
    if "\\" not in stripped:
        return stripped
    out = bytearray()
    last = 0
    for match in _PAIR.finditer(stripped):
        out += stripped[last : match.start()].encode("utf-8", "surrogatepass")
        out += bytes((int(match[1], 16),)) if len(match[1]) == 2 else match[1].encode("utf-8")
        last = match.end()
    out += stripped[last:].encode("utf-8", "surrogatepass")
    try:
        return out.decode("utf-8")
    except UnicodeDecodeError:
        raise DNError(
            f"expected UTF-8 in the value at position {at} of {text!r:.200}; write other bytes as #hex"
        ) from None


def _folded(attribute: str, value: str | bytes) -> tuple[str, str | bytes]:
    name = attribute.lower()
    name = _NUMBERS.get(name) or _LONG.get(name) or name
    if isinstance(value, bytes):
        return name, value
    # RFC 4518, 2: mapping, normalisation, and insignificant blanks, as far as naming attributes need it.
    return name, " ".join(unicodedata.normalize("NFKC", value).casefold().split())


class DN:
    """A distinguished name: a sequence of relative names, the lowest first.  It never changes."""

    __slots__ = ("_folded", "rdns")

    rdns: tuple[tuple[Pair, ...], ...]

    def __init__(self, *rdns: tuple[Pair, ...] | Pair) -> None:
        """A name of relative names, the lowest first.

        rdns: a pair (attribute, value), or a tuple of such pairs.  Raises DNError for a name that is no attribute, an
        empty relative name, and for an attribute that is in one relative name twice.
        """
        checked = []
        for rdn in rdns:
            pairs: tuple[Pair, ...] = (rdn,) if rdn and isinstance(rdn[0], str) else rdn
            if not pairs:
                raise DNError("expected one pair of attribute and value at least in a relative name, got none")
            for attribute, value in pairs:
                if _ATTRIBUTE.fullmatch(attribute) is None:
                    raise DNError(f"expected the name of an attribute, got {attribute!r:.60}")
                if not isinstance(value, (str, bytes)):
                    raise TypeError(f"expected a str, or bytes of BER, not {type(value).__name__}: {value!r:.60}")
            if len({_folded(attribute, "")[0] for attribute, _ in pairs}) != len(pairs):
                raise DNError(f"expected different attributes in a relative name, got {pairs!r:.120}")
            checked.append(tuple(pairs))
        self.rdns = tuple(checked)
        self._folded: tuple[frozenset[tuple[str, str | bytes]], ...] | None = None

    @classmethod
    def parse(cls, text: str | bytes) -> DN:
        """The name of a text of RFC 4514; blanks around separators and `;` for `,` are accepted (RFC 2253, 4).

        Raises DNError.
        """
        if isinstance(text, bytes):
            try:
                text = text.decode("utf-8")
            except UnicodeDecodeError as exc:
                raise DNError(f"expected UTF-8 in a distinguished name: {exc}") from None
        if len(text) > MAX_LENGTH:
            raise DNError(f"expected a name of at most {MAX_LENGTH} characters, got {len(text)}")
        if not text.strip(" "):
            return cls()
        rdns: list[tuple[Pair, ...]] = []
        pairs: list[Pair] = []
        at = 0
        while True:
            match = _TYPE.match(text, at)
            if match is None:
                raise DNError(f"expected an attribute and '=' at position {at} of {text!r:.200}")
            attribute = match[1].removeprefix("OID.").removeprefix("oid.")
            at = match.end()
            value: str | bytes
            if hexadecimal := _HEX.match(text, at):
                value = bytes.fromhex(hexadecimal[1])
                end = hexadecimal.end()
            else:
                string = _STRING.match(text, at)
                assert string is not None  # it matches nothing, too
                end = string.end()
                if string[1].lstrip(" ").startswith("#"):
                    raise DNError(f"expected pairs of hexadecimal digits behind '#' at position {at} of {text!r:.200}")
                value = _value(string[1], text, at)
            pairs.append((attribute, value))
            if end < len(text) and text[end] not in "+,;":
                raise DNError(
                    f"expected ',', '+' or the end, or a backslash before this character, at position {end} "
                    f"of {text!r:.200}"
                )
            if end == len(text) or text[end] in ",;":
                rdns.append(tuple(pairs))
                pairs = []
                if len(rdns) > MAX_NAMES:
                    raise DNError(f"expected at most {MAX_NAMES} relative names, got more")
            if end == len(text):
                return cls(*rdns)
            at = end + 1

    # -- its text

    def __str__(self) -> str:
        return ",".join(
            "+".join(
                f"{attribute}=" + (f"#{value.hex()}" if isinstance(value, bytes) else escape_dn_value(value))
                for attribute, value in rdn
            )
            for rdn in self.rdns
        )

    def __repr__(self) -> str:
        return f"DN.parse({str(self)!r})"

    # -- comparison

    @property
    def normalized(self) -> tuple[frozenset[tuple[str, str | bytes]], ...]:
        """What is compared: for each relative name the set of its pairs, with names and case folded."""
        if self._folded is None:
            self._folded = tuple(frozenset(_folded(*pair) for pair in rdn) for rdn in self.rdns)
        return self._folded

    def __eq__(self, other: object) -> bool:
        return self.normalized == other.normalized if isinstance(other, DN) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.normalized)

    def is_below(self, other: DN) -> bool:
        """Whether the entry is under the other one, at any depth; not for the same name."""
        above = other.normalized
        mine = self.normalized
        return len(mine) > len(above) and mine[len(mine) - len(above) :] == above

    # -- its parts

    def __len__(self) -> int:
        return len(self.rdns)

    def __bool__(self) -> bool:
        return bool(self.rdns)

    def __iter__(self) -> Iterator[tuple[Pair, ...]]:
        return iter(self.rdns)

    @property
    def parent(self) -> DN:
        """The name above.  Raises DNError for the empty name, which has none."""
        if not self.rdns:
            raise DNError("expected a name with a parent, got the empty one")
        return DN(*self.rdns[1:])

    @property
    def rdn(self) -> str:
        """The text of the lowest relative name."""
        return str(DN(*self.rdns[:1]))

    def child(self, *pairs: Pair, **attributes: str) -> DN:
        """The name of an entry below: child(cn="Fred"), or child(("cn", "Fred"), ("uid", "1")) for several pairs."""
        return DN((*pairs, *attributes.items()), *self.rdns)

    def __add__(self, base: DN) -> DN:
        return DN(*self.rdns, *base.rdns) if isinstance(base, DN) else NotImplemented


def normalize_dn(dn: str) -> str:
    """The text of a name with attributes in lower case, case folded, and without needless blanks and escapes.

    Equal names have equal texts.  Raises DNError.
    """
    parts = (sorted(rdn, key=lambda pair: pair[0]) for rdn in DN.parse(dn).normalized)
    return str(DN(*(tuple(pairs) for pairs in parts)))


def match_leaf(path: str, scope: int, leaf: str, base: str) -> bool:
    """Whether the name `path` is the entry `leaf` within a search of `base` with this scope (0 base, 1 one level, 2
    subtree).

    leaf: the lowest relative name, or "" for any.  Raises DNError.
    """
    name, above = DN.parse(path), DN.parse(base)
    if leaf and (not name or DN(*name.rdns[:1]) != DN.parse(leaf)):
        return False
    if scope == 0:
        return name == above
    if scope == 1:
        return bool(name) and name.parent == above
    return name == above or name.is_below(above)
