"""The schema of a server: object classes, attribute types, matching rules and syntaxes (RFC 4512, section 4).

    from coro.ldap import schema

    known = schema.read(directory)
    known.attribute_types["cn"].single_value
    required, allowed = known.attributes_of(["inetOrgPerson"])

Definitions are texts of parentheses, keywords and quoted strings.  One regular expression, whose alternatives begin
with different characters, cuts such a text into words, so reading takes time in proportion to the length.  Names are
found without regard to case, and by OID.  A keyword that is not in the RFC is kept in `extensions` with its values, as
OpenLDAP and Active Directory have some of their own.

Cost: about a kilobyte for each definition.  The schema of a server is read only when a program asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from coro.ldap.exceptions import LocalError, RemoteError

if TYPE_CHECKING:
    import coro.ldap.client
    from coro.ldap.protocol import Entry

__all__ = ["AttributeType", "Definition", "MatchingRule", "ObjectClass", "Schema", "Syntax", "Table", "parse", "read"]

#: Characters of one definition.  The longest of OpenLDAP, 389 and Active Directory have some 10 000.
MAX_DEFINITION: Final = 1 << 20

_WORD = re.compile(r"\s*(?:([()$])|'([^']*)'|([^\s()$']+))", re.ASCII)
_ESCAPE = re.compile(r"\\(27|5[cC])", re.ASCII)
_LENGTH = re.compile(r"([^{}]+)\{([0-9]{1,9})\}", re.ASCII)
_KINDS: Final = frozenset({"ABSTRACT", "STRUCTURAL", "AUXILIARY"})
#: Keywords without a value (RFC 4512, 4.1).
_FLAGS: Final = frozenset({"OBSOLETE", "SINGLE-VALUE", "COLLECTIVE", "NO-USER-MODIFICATION"}) | _KINDS


@dataclass(frozen=True)
class Definition:
    """What all definitions have.  `text` is the definition as the server gave it."""

    oid: str
    names: tuple[str, ...] = ()
    description: str = ""
    obsolete: bool = False
    extensions: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    text: str = field(default="", repr=False, compare=False)

    @property
    def name(self) -> str:
        """The first name, or the OID where there is none."""
        return self.names[0] if self.names else self.oid


@dataclass(frozen=True)
class ObjectClass(Definition):
    """An object class (RFC 4512, 4.1.1): `kind` is ABSTRACT, STRUCTURAL or AUXILIARY."""

    superiors: tuple[str, ...] = ()
    kind: str = "STRUCTURAL"
    must: tuple[str, ...] = ()
    may: tuple[str, ...] = ()


@dataclass(frozen=True)
class AttributeType(Definition):
    """An attribute type (RFC 4512, 4.1.2).  `length` is the least upper bound that values may have, or None."""

    superior: str | None = None
    equality: str | None = None
    ordering: str | None = None
    substring: str | None = None
    syntax: str | None = None
    length: int | None = None
    single_value: bool = False
    collective: bool = False
    user_modifiable: bool = True
    usage: str = "userApplications"


@dataclass(frozen=True)
class MatchingRule(Definition):
    """A matching rule (RFC 4512, 4.1.3): `syntax` is that of the value in a filter."""

    syntax: str | None = None


@dataclass(frozen=True)
class Syntax(Definition):
    """A syntax of values (RFC 4512, 4.1.5).  It has no names."""


D = TypeVar("D", bound=Definition)


class Table(Mapping[str, D], Generic[D]):
    """Definitions by name, in any case, and by OID.  Iteration gives each OID once."""

    def __init__(self, definitions: Iterable[D] = ()) -> None:
        self._all: dict[str, D] = {}
        self._found: dict[str, D] = {}
        for one in definitions:
            self._all.setdefault(one.oid, one)
            for name in (one.oid, *one.names):
                self._found.setdefault(name.lower(), one)

    def __getitem__(self, name: str) -> D:
        return self._found[name.lower()]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)


def _words(text: str) -> tuple[str, dict[str, tuple[str, ...]]]:
    """The OID, and the values of each keyword."""
    if len(text) > MAX_DEFINITION:
        raise LocalError(f"expected a definition of at most {MAX_DEFINITION} characters, got {len(text)}")
    words: list[tuple[str, str]] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _WORD.match(text, position)
        if match is None:
            raise LocalError(
                f"a quote is not closed, or a character is unknown, at position {position} of {text!r:.200}"
            )
        mark, quoted, bare = match.groups()
        if mark is not None:
            words.append((mark, ""))
        elif bare is not None:
            words.append(("word", bare))
        else:
            words.append(("text", _ESCAPE.sub(lambda found: chr(int(found[1], 16)), quoted)))
        position = match.end()
    if len(words) < 3 or words[0][0] != "(" or words[-1][0] != ")" or words[1][0] not in ("word", "text"):
        raise LocalError(f"expected '( OID ... )', got {text!r:.200}")
    found: dict[str, tuple[str, ...]] = {}
    at, last = 2, len(words) - 1
    while at < last:
        kind, keyword = words[at]
        keyword = keyword.upper()
        at += 1
        if kind != "word":
            raise LocalError(
                f"expected a keyword, got {kind if kind in '()$' else words[at - 1][1]!r} in {text!r:.200}"
            )
        if keyword in found:
            raise LocalError(f"{keyword} stands twice in {text!r:.200}")
        if keyword in _FLAGS:
            found[keyword] = ()
        elif words[at][0] == "(":
            values = []
            at += 1
            while at < last and words[at][0] != ")":
                if words[at][0] == "(":
                    raise LocalError(f"a list within a list behind {keyword} in {text!r:.200}")
                if words[at][0] != "$":
                    values.append(words[at][1])
                at += 1
            if at >= last:
                raise LocalError(f"the list behind {keyword} is not closed in {text!r:.200}")
            found[keyword] = tuple(values)
            at += 1
        elif at < last and words[at][0] in ("word", "text"):
            found[keyword] = (words[at][1],)
            at += 1
        else:
            raise LocalError(f"expected a value behind {keyword} in {text!r:.200}")
    return words[1][1], found


def parse(kind: type[D], text: str | bytes) -> D:
    """Read one definition.

    `kind` is `ObjectClass`, `AttributeType`, `MatchingRule` or `Syntax`; `text` is a value of the attribute of the
    subschema.  The result is an object of that class.  Raises LocalError if the text is no such definition.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise LocalError(f"expected a definition in UTF-8, got {text!r:.200}") from error
    oid, found = _words(text)

    def one(keyword: str) -> str | None:
        values = found.pop(keyword, None)
        if values is None:
            return None
        if len(values) != 1:
            raise LocalError(f"expected one value behind {keyword}, got {len(values)} in {text!r:.200}")
        return values[0]

    more: dict[str, object] = {}
    names = found.pop("NAME", ())
    description = one("DESC") or ""
    obsolete = found.pop("OBSOLETE", None) is not None
    if kind is ObjectClass:
        kinds = [word for word in found if word in _KINDS]
        if len(kinds) > 1:
            raise LocalError(f"expected one of {', '.join(sorted(_KINDS))}, got {len(kinds)} in {text!r:.200}")
        for word in kinds:
            del found[word]
        more = {"superiors": found.pop("SUP", ()), "kind": kinds[0] if kinds else "STRUCTURAL"}
        more |= {"must": found.pop("MUST", ()), "may": found.pop("MAY", ())}
    elif kind is AttributeType:
        syntax, length = one("SYNTAX"), None
        if syntax is not None and (match := _LENGTH.fullmatch(syntax)):
            syntax, length = match[1], int(match[2])
        more = {"superior": one("SUP"), "equality": one("EQUALITY"), "ordering": one("ORDERING")}
        more |= {"substring": one("SUBSTR"), "syntax": syntax, "length": length}
        more |= {"single_value": found.pop("SINGLE-VALUE", None) is not None}
        more |= {"collective": found.pop("COLLECTIVE", None) is not None}
        more |= {"user_modifiable": found.pop("NO-USER-MODIFICATION", None) is None}
        more |= {"usage": one("USAGE") or "userApplications"}
    elif kind is MatchingRule:
        more = {"syntax": one("SYNTAX")}
    return kind(oid, names, description, obsolete, found, text, **more)


class Schema:
    """The definitions of a server.

    Made of the entry of the subschema: `Schema(entry)`, or of a mapping of attribute names to lists of values.  Raises
    RemoteError if a definition cannot be read.
    """

    def __init__(self, entry: Entry | Mapping[str, Iterable[bytes | str]]) -> None:
        values = {name.lower(): tuple(held) for name, held in entry.items()}

        def table(attribute: str, kind: type[D]) -> Table[D]:
            try:
                return Table([parse(kind, text) for text in values.get(attribute, ())])
            except LocalError as error:
                raise RemoteError(f"a value of {attribute} in the schema cannot be read: {error}") from error

        #: Tables by name and OID.
        self.object_classes: Table[ObjectClass] = table("objectclasses", ObjectClass)
        self.attribute_types: Table[AttributeType] = table("attributetypes", AttributeType)
        self.matching_rules: Table[MatchingRule] = table("matchingrules", MatchingRule)
        self.syntaxes: Table[Syntax] = table("ldapsyntaxes", Syntax)

    def __repr__(self) -> str:
        return f"<Schema: {len(self.object_classes)} object classes, {len(self.attribute_types)} attribute types>"

    def superclasses(self, name: str) -> tuple[ObjectClass, ...]:
        """The class `name` and all that it is derived from, each once.  Raises KeyError if one is unknown."""
        found: dict[str, ObjectClass] = {}
        left = [name]
        while left:
            one = self.object_classes[left.pop()]
            if one.oid not in found:
                found[one.oid] = one
                left += reversed(one.superiors)
        return tuple(found.values())

    def attributes_of(self, classes: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
        """What an entry of these object classes must have, and what it may have beside that.

        Both are sets of first names of attribute types.  Raises KeyError if a class is unknown.
        """
        every = [one for name in classes for one in self.superclasses(name)]
        must = frozenset(self._shown(name) for one in every for name in one.must)
        return must, frozenset(self._shown(name) for one in every for name in one.may) - must

    def _shown(self, name: str) -> str:
        known = self.attribute_types.get(name)
        return name if known is None else known.name

    def resolved(self, name: str) -> AttributeType:
        """An attribute type with the syntax and the matching rules that it inherits (RFC 4512, 2.5.1).

        Options behind a semicolon are left out.  Raises KeyError if the type, or one above it, is unknown.
        """
        base = self.attribute_types[name.partition(";")[0]]
        keys = ("equality", "ordering", "substring", "syntax", "length")
        values = {key: getattr(base, key) for key in keys}
        above, seen = base, {base.oid}
        while above.superior is not None and (above := self.attribute_types[above.superior]).oid not in seen:
            seen.add(above.oid)
            if values["syntax"] is None:
                values["length"] = above.length
            values = {
                key: getattr(above, key) if values[key] is None and key != "length" else values[key] for key in keys
            }
        return AttributeType(**(vars(base) | values))


def read(client: coro.ldap.client.client, dn: str | None = None) -> Schema:
    """The schema of the server.

    `dn` names an entry whose schema is meant; without it, the one that the root DSE names.  Two searches.  Raises
    RemoteError if the server names no subschema or a definition cannot be read, and what `client.read` raises.
    """
    place = client.read("" if dn is None else dn, ["subschemaSubentry"]).text("subschemaSubentry")
    if not place:
        raise RemoteError(f"expected subschemaSubentry in {dn or 'the root DSE'!r}, got none; may this user read it?")
    return Schema(client.read(place, ["objectClasses", "attributeTypes", "matchingRules", "ldapSyntaxes"]))
