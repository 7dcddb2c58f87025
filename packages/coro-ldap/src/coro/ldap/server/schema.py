"""The attributes that the server knows, and how their values are compared (RFC 4517, 4519, 4524, 2798).

A matching rule is a function that makes of a value what is compared: two values are equal if these are.  So
equality, an index and "is this value there already" are one thing: the key of a dict.  Substrings are looked for in the
same form, in which runs of blanks are one blank (RFC 4518, 2.6.1, without its double blanks); ordering compares them.

Light: an attribute that is not in the table is taken with caseIgnoreMatch as soon as an entry has it; object classes
are stored, not enforced.  What a syntax forbids is refused where comparing needs it: a number that is none, a name
that is none.

Rejected: reading OpenLDAP's schema files.  Their grammar is as large as this file, and a program that needs another
attribute adds it in one line.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from coro.ldap.dn import DN
from coro.ldap.exceptions import DNError

__all__ = ["MATCHING_RULES", "AttributeType", "MatchingRule", "Schema"]

Normalize = Callable[[bytes], Any]


def _folded(value: bytes) -> str:
    if value.isascii():
        text = value.decode("ascii").lower()
    else:
        text = unicodedata.normalize("NFKC", value.decode("utf-8")).casefold()
    if "  " in text or text[:1] in " \t\n\r" or text[-1:] in " \t\n\r":
        text = " ".join(text.split())
    return text


def _exact(value: bytes) -> str:
    return " ".join(unicodedata.normalize("NFKC", value.decode("utf-8")).split())


def _telephone(value: bytes) -> str:
    return _folded(value).replace(" ", "").replace("-", "")


def _numeric(value: bytes) -> str:
    return value.decode("ascii").replace(" ", "")


_INTEGER = re.compile(rb"-?[0-9]{1,4000}")


def _integer(value: bytes) -> int:
    if _INTEGER.fullmatch(value) is None:
        raise ValueError(f"expected an integer, got {value!r:.60}")
    return int(value)


def _boolean(value: bytes) -> bool:
    if value.upper() not in (b"TRUE", b"FALSE"):
        raise ValueError(f"expected TRUE or FALSE, got {value!r:.60}")
    return value.upper() == b"TRUE"


def _name(value: bytes) -> Any:
    try:
        return DN.parse(value).normalized
    except DNError as exc:
        raise ValueError(str(exc)) from None


_TIME = re.compile(
    r"([0-9]{4})([0-9]{2})([0-9]{2})([0-9]{2})(?:([0-9]{2})([0-9]{2})?)?"
    r"(?:[.,]([0-9]{1,9}))?(Z|[+-][0-9]{2}(?:[0-9]{2})?)"
)


def _time(value: bytes) -> datetime:
    """GeneralizedTime (RFC 4517, 3.3.13): the fraction belongs to the smallest part that is there."""
    match = _TIME.fullmatch(value.decode("ascii"))
    if match is None:
        raise ValueError(f"expected a time such as 20260102030405Z, got {value!r:.60}")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    when = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=timezone.utc)  # noqa: UP017
    unit = 1 if match[6] else 60 if match[5] else 3600
    when += timedelta(seconds=max(0, second - 59) + (float("0." + match[7]) * unit if match[7] else 0))
    zone = match[8]
    if zone != "Z":
        offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:5] or 0))
        when = when - offset if zone[0] == "+" else when + offset
    return when


def _octets(value: bytes) -> bytes:
    return value


@dataclass(frozen=True, slots=True)
class MatchingRule:
    """A matching rule: its name, its object identifier, what it compares, and what it can do.

    normalize: makes of a value what is compared; raises ValueError for one that the syntax forbids.  kind: "equality",
    "ordering", "substrings" or "words".
    """

    name: str
    oid: str
    normalize: Normalize
    kind: str = "equality"

    def definition(self) -> str:
        """The text in the subschema (RFC 4512, 4.1.3)."""
        return f"( {self.oid} NAME '{self.name}' SYNTAX {_ASSERTED[self.name]} )"


MATCHING_RULES: tuple[MatchingRule, ...] = (
    MatchingRule("objectIdentifierMatch", "2.5.13.0", _folded),
    MatchingRule("distinguishedNameMatch", "2.5.13.1", _name),
    MatchingRule("caseIgnoreMatch", "2.5.13.2", _folded),
    MatchingRule("caseIgnoreOrderingMatch", "2.5.13.3", _folded, "ordering"),
    MatchingRule("caseIgnoreSubstringsMatch", "2.5.13.4", _folded, "substrings"),
    MatchingRule("caseExactMatch", "2.5.13.5", _exact),
    MatchingRule("caseExactOrderingMatch", "2.5.13.6", _exact, "ordering"),
    MatchingRule("caseExactSubstringsMatch", "2.5.13.7", _exact, "substrings"),
    MatchingRule("numericStringMatch", "2.5.13.8", _numeric),
    MatchingRule("caseIgnoreListMatch", "2.5.13.11", _folded),
    MatchingRule("booleanMatch", "2.5.13.13", _boolean),
    MatchingRule("integerMatch", "2.5.13.14", _integer),
    MatchingRule("integerOrderingMatch", "2.5.13.15", _integer, "ordering"),
    MatchingRule("octetStringMatch", "2.5.13.17", _octets),
    MatchingRule("octetStringOrderingMatch", "2.5.13.18", _octets, "ordering"),
    MatchingRule("telephoneNumberMatch", "2.5.13.20", _telephone),
    MatchingRule("telephoneNumberSubstringsMatch", "2.5.13.21", _telephone, "substrings"),
    MatchingRule("uniqueMemberMatch", "2.5.13.23", _name),
    MatchingRule("generalizedTimeMatch", "2.5.13.27", _time),
    MatchingRule("generalizedTimeOrderingMatch", "2.5.13.28", _time, "ordering"),
    MatchingRule("caseExactIA5Match", "1.3.6.1.4.1.1466.109.114.1", _exact),
    MatchingRule("caseIgnoreIA5Match", "1.3.6.1.4.1.1466.109.114.2", _folded),
    MatchingRule("caseIgnoreIA5SubstringsMatch", "1.3.6.1.4.1.1466.109.114.3", _folded, "substrings"),
    MatchingRule("UUIDMatch", "1.3.6.1.1.16.2", _folded),
    MatchingRule("wordMatch", "2.5.13.32", _folded, "words"),
)

_SYNTAX = "1.3.6.1.4.1.1466.115.121.1."
#: The syntaxes that the attributes and the matching rules have (RFC 4517, 3.3; RFC 4530, 2.1).
_SYNTAXES = {
    f"{_SYNTAX}5": "Binary",
    f"{_SYNTAX}7": "Boolean",
    f"{_SYNTAX}12": "DN",
    f"{_SYNTAX}15": "Directory String",
    f"{_SYNTAX}24": "Generalized Time",
    f"{_SYNTAX}26": "IA5 String",
    f"{_SYNTAX}27": "INTEGER",
    f"{_SYNTAX}34": "Name And Optional UID",
    f"{_SYNTAX}36": "Numeric String",
    f"{_SYNTAX}38": "OID",
    f"{_SYNTAX}40": "Octet String",
    f"{_SYNTAX}41": "Postal Address",
    f"{_SYNTAX}50": "Telephone Number",
    f"{_SYNTAX}58": "Substring Assertion",
    "1.3.6.1.1.16.1": "UUID",
}
#: The syntax of what is compared, for each matching rule (RFC 4517, 4.2).
_ASSERTED = {
    name: number if "." in number else _SYNTAX + number
    for number, names in {
        "38": "objectIdentifierMatch",
        "12": "distinguishedNameMatch",
        "15": "caseIgnoreMatch caseIgnoreOrderingMatch caseExactMatch caseExactOrderingMatch wordMatch",
        "58": "caseIgnoreSubstringsMatch caseExactSubstringsMatch telephoneNumberSubstringsMatch"
        " caseIgnoreIA5SubstringsMatch",
        "36": "numericStringMatch",
        "41": "caseIgnoreListMatch",
        "7": "booleanMatch",
        "27": "integerMatch integerOrderingMatch",
        "40": "octetStringMatch octetStringOrderingMatch",
        "50": "telephoneNumberMatch",
        "34": "uniqueMemberMatch",
        "24": "generalizedTimeMatch generalizedTimeOrderingMatch",
        "26": "caseExactIA5Match caseIgnoreIA5Match",
        "1.3.6.1.1.16.1": "UUIDMatch",
    }.items()
    for name in names.split()
}

_RULES = {rule.name.lower(): rule for rule in MATCHING_RULES} | {rule.oid: rule for rule in MATCHING_RULES}

# Short words for the columns of the table below: equality rule, syntax (RFC 4517, 3.3), whether pieces are looked for,
# whether there is an order.
_KINDS: dict[str, tuple[str | None, str, bool, bool]] = {
    "text": ("caseIgnoreMatch", "1.3.6.1.4.1.1466.115.121.1.15", True, False),
    "exact": ("caseExactMatch", "1.3.6.1.4.1.1466.115.121.1.15", True, False),
    "ia5": ("caseIgnoreIA5Match", "1.3.6.1.4.1.1466.115.121.1.26", True, False),
    "ia5exact": ("caseExactIA5Match", "1.3.6.1.4.1.1466.115.121.1.26", True, False),
    "phone": ("telephoneNumberMatch", "1.3.6.1.4.1.1466.115.121.1.50", True, False),
    "number": ("integerMatch", "1.3.6.1.4.1.1466.115.121.1.27", False, True),
    "numeric": ("numericStringMatch", "1.3.6.1.4.1.1466.115.121.1.36", True, False),
    "dn": ("distinguishedNameMatch", "1.3.6.1.4.1.1466.115.121.1.12", False, False),
    "time": ("generalizedTimeMatch", "1.3.6.1.4.1.1466.115.121.1.24", False, True),
    "octets": ("octetStringMatch", "1.3.6.1.4.1.1466.115.121.1.40", False, False),
    "blob": (None, "1.3.6.1.4.1.1466.115.121.1.5", False, False),
    "list": ("caseIgnoreListMatch", "1.3.6.1.4.1.1466.115.121.1.41", True, False),
    "oid": ("objectIdentifierMatch", "1.3.6.1.4.1.1466.115.121.1.38", False, False),
    "boolean": ("booleanMatch", "1.3.6.1.4.1.1466.115.121.1.7", False, False),
    "uuid": ("UUIDMatch", "1.3.6.1.1.16.1", False, True),
}

# oid; names; kind; flags: 1 single value, ! operational, < and the type above.
_TABLE = """
2.5.4.0 objectClass oid
2.5.4.1 aliasedObjectName,aliasedEntryName dn 1
2.5.4.41 name text
2.5.4.3 cn,commonName text <name
2.5.4.4 sn,surname text <name
2.5.4.42 givenName,gn text <name
2.5.4.43 initials text <name
2.5.4.44 generationQualifier text <name
2.5.4.12 title text <name
2.5.4.7 l,localityName text <name
2.5.4.8 st,stateOrProvinceName text <name
2.5.4.10 o,organizationName text <name
2.5.4.11 ou,organizationalUnitName text <name
2.5.4.6 c,countryName text 1<name
2.5.4.65 pseudonym text <name
2.5.4.49 distinguishedName dn
2.5.4.31 member dn <distinguishedName
2.5.4.32 owner dn <distinguishedName
2.5.4.33 roleOccupant dn <distinguishedName
2.5.4.34 seeAlso dn <distinguishedName
2.5.4.50 uniqueMember dn
2.5.4.5 serialNumber text
2.5.4.9 street,streetAddress text
2.5.4.13 description text
2.5.4.14 searchGuide octets
2.5.4.15 businessCategory text
2.5.4.16 postalAddress list
2.5.4.17 postalCode text
2.5.4.18 postOfficeBox text
2.5.4.19 physicalDeliveryOfficeName text
2.5.4.20 telephoneNumber phone
2.5.4.23 facsimileTelephoneNumber,fax phone
2.5.4.24 x121Address numeric
2.5.4.25 internationaliSDNNumber numeric
2.5.4.26 registeredAddress list
2.5.4.27 destinationIndicator text
2.5.4.28 preferredDeliveryMethod text 1
2.5.4.35 userPassword octets
2.5.4.36 userCertificate blob
2.5.4.37 cACertificate blob
2.5.4.45 x500UniqueIdentifier octets
2.5.4.46 dnQualifier text
2.5.4.51 houseIdentifier text
0.9.2342.19200300.100.1.25 dc,domainComponent ia5 1
0.9.2342.19200300.100.1.1 uid,userid text
0.9.2342.19200300.100.1.2 textEncodedORAddress text
0.9.2342.19200300.100.1.3 mail,rfc822Mailbox ia5
0.9.2342.19200300.100.1.4 info text
0.9.2342.19200300.100.1.5 drink,favouriteDrink text
0.9.2342.19200300.100.1.6 roomNumber text
0.9.2342.19200300.100.1.7 photo blob
0.9.2342.19200300.100.1.8 userClass text
0.9.2342.19200300.100.1.9 host text
0.9.2342.19200300.100.1.10 manager dn
0.9.2342.19200300.100.1.11 documentIdentifier text
0.9.2342.19200300.100.1.12 documentTitle text
0.9.2342.19200300.100.1.13 documentVersion text
0.9.2342.19200300.100.1.14 documentAuthor dn
0.9.2342.19200300.100.1.15 documentLocation text
0.9.2342.19200300.100.1.20 homePhone,homeTelephoneNumber phone
0.9.2342.19200300.100.1.21 secretary dn
0.9.2342.19200300.100.1.37 associatedDomain ia5
0.9.2342.19200300.100.1.38 associatedName dn
0.9.2342.19200300.100.1.39 homePostalAddress list
0.9.2342.19200300.100.1.40 personalTitle text
0.9.2342.19200300.100.1.41 mobile,mobileTelephoneNumber phone
0.9.2342.19200300.100.1.42 pager,pagerTelephoneNumber phone
0.9.2342.19200300.100.1.43 co,friendlyCountryName text
0.9.2342.19200300.100.1.44 uniqueIdentifier text
0.9.2342.19200300.100.1.45 organizationalStatus text
0.9.2342.19200300.100.1.48 buildingName text
0.9.2342.19200300.100.1.54 audio blob
0.9.2342.19200300.100.1.60 jpegPhoto blob
1.3.6.1.4.1.250.1.57 labeledURI exact
2.16.840.1.113730.3.1.1 carLicense text
2.16.840.1.113730.3.1.2 departmentNumber text
2.16.840.1.113730.3.1.3 employeeNumber text 1
2.16.840.1.113730.3.1.4 employeeType text
2.16.840.1.113730.3.1.39 preferredLanguage text 1
2.16.840.1.113730.3.1.40 userSMIMECertificate blob
2.16.840.1.113730.3.1.216 userPKCS12 blob
2.16.840.1.113730.3.1.241 displayName text 1
2.16.840.1.113730.3.1.34 ref exact
1.3.6.1.1.1.1.0 uidNumber number 1
1.3.6.1.1.1.1.1 gidNumber number 1
1.3.6.1.1.1.1.2 gecos ia5 1
1.3.6.1.1.1.1.3 homeDirectory ia5exact 1
1.3.6.1.1.1.1.4 loginShell ia5exact 1
1.3.6.1.1.1.1.12 memberUid ia5exact
1.3.6.1.4.1.4203.1.3.4 authPassword exact
2.5.18.1 createTimestamp time 1!
2.5.18.2 modifyTimestamp time 1!
2.5.18.3 creatorsName dn 1!
2.5.18.4 modifiersName dn 1!
2.5.18.9 hasSubordinates boolean 1!
2.5.18.10 subschemaSubentry dn 1!
2.5.21.9 structuralObjectClass oid 1!
1.3.6.1.1.16.4 entryUUID uuid 1!
1.3.6.1.1.20 entryDN dn 1!
2.5.21.4 matchingRules exact !
2.5.21.5 attributeTypes exact !
2.5.21.6 objectClasses exact !
2.5.21.8 matchingRuleUse exact !
1.3.6.1.4.1.1466.101.120.16 ldapSyntaxes exact !
1.3.6.1.4.1.1466.101.120.5 namingContexts dn !
1.3.6.1.4.1.1466.101.120.7 supportedExtension oid !
1.3.6.1.4.1.1466.101.120.13 supportedControl oid !
1.3.6.1.4.1.1466.101.120.14 supportedSASLMechanisms text !
1.3.6.1.4.1.1466.101.120.15 supportedLDAPVersion number !
1.3.6.1.4.1.4203.1.3.5 supportedFeatures oid !
1.3.6.1.1.4 vendorName exact 1!
"""


@dataclass(frozen=True, slots=True)
class AttributeType:
    """An attribute: its names, the first of which is used, and how its values are compared.

    equality: the rule, None if values cannot be compared.  substrings, ordering: whether pieces and an order mean
    something.  single: one value at most.  operational: kept by the server, and sent only if asked for.  above: the
    type that this one is a kind of.
    """

    names: tuple[str, ...]
    oid: str = ""
    equality: MatchingRule | None = _RULES["caseignorematch"]
    syntax: str = "1.3.6.1.4.1.1466.115.121.1.15"
    substrings: bool = True
    ordering: bool = True
    single: bool = False
    operational: bool = False
    above: str | None = None

    @property
    def key(self) -> str:
        """The name under which the server keeps it: the first one in lower case."""
        return self.names[0].lower()

    def normalize(self, value: bytes) -> Any:
        """What is compared of a value; the bytes themselves where no rule says how.  Raises ValueError."""
        return value if self.equality is None else self.equality.normalize(value)

    def definition(self) -> str:
        """The text in the subschema (RFC 4512, 4.1.2)."""
        names = f"'{self.names[0]}'" if len(self.names) == 1 else f"( {' '.join(repr(name) for name in self.names)} )"
        return (
            f"( {self.oid} NAME {names}"
            + (f" SUP {self.above}" if self.above else "")
            + (f" EQUALITY {self.equality.name}" if self.equality else "")
            + f" SYNTAX {self.syntax}"
            + (" SINGLE-VALUE" if self.single else "")
            + (" NO-USER-MODIFICATION USAGE directoryOperation" if self.operational else "")
            + " )"
        )


class Schema:
    """The attributes that a directory knows.  `add` puts more in; unknown ones compare without case."""

    def __init__(self) -> None:
        self.types: dict[str, AttributeType] = {}
        self._names: dict[str, AttributeType] = {}
        self._kinds: dict[str, frozenset[str]] = {}
        self._shown: dict[str, str] = {}
        for line in _TABLE.strip().splitlines():
            oid, names, kind, *rest = line.split(" ")
            equality, syntax, substrings, ordering = _KINDS[kind]
            flags, _, above = (rest[0] if rest else "").partition("<")
            self.add(
                AttributeType(
                    tuple(names.split(",")),
                    oid,
                    None if equality is None else _RULES[equality.lower()],
                    syntax,
                    substrings,
                    ordering,
                    "1" in flags,
                    "!" in flags,
                    above or None,
                )
            )

    def add(self, type: AttributeType) -> None:
        """Make an attribute known; one of the same name is replaced."""
        self.types[type.key] = type
        for name in (*type.names, type.oid):
            if name:
                self._names[name.lower()] = type
        self._kinds.clear()
        self._shown.clear()

    def find(self, name: str) -> AttributeType | None:
        """The attribute of a name or object identifier, without options; None if it is not known."""
        return self._names.get(name) or self._names.get(name.lower())

    def learn(self, name: str) -> AttributeType:
        """The attribute of a name; an unknown one is known from now on."""
        found = self.find(name)
        if found is None:
            found = AttributeType((name,), name if name[0].isdigit() else f"{name}-oid")
            self.add(found)
        return found

    def split(self, description: str) -> tuple[str, tuple[str, ...]]:
        """The key of the type, and the options in lower case and in order, of a description such as `cn;lang-de`."""
        name, *options = description.split(";")
        found = self.find(name)
        return (found.key if found is not None else name.lower()), tuple(sorted(option.lower() for option in options))

    def key(self, description: str) -> str:
        """A description as it is kept: the first name of the type and the options, in lower case."""
        found = self._names.get(description)
        if found is not None:
            return found.key
        name, options = self.split(description)
        return ";".join((name, *options))

    def shown(self, key: str) -> str:
        """The spelling in which an attribute is sent."""
        found = self._shown.get(key)
        if found is None:
            name, semicolon, options = key.partition(";")
            type = self.types.get(name)
            found = self._shown[key] = (name if type is None else type.names[0]) + semicolon + options
        return found

    def kinds(self, key: str) -> frozenset[str]:
        """The keys of the type and of all types below it."""
        found = self._kinds.get(key)
        if found is None:
            below = {key}
            grown = True
            while grown:
                more = {
                    one.key
                    for one in self.types.values()
                    if one.above and one.above.lower() in below and one.key not in below
                }
                below |= more
                grown = bool(more)
            found = self._kinds[key] = frozenset(below)
        return found

    def rule(self, name: str) -> MatchingRule | None:
        """The matching rule of a name or object identifier."""
        return _RULES.get(name.lower())

    def _uses(self) -> Iterator[str]:
        """Which attributes each rule can be used for in an extensible filter (RFC 4512, 4.1.4)."""
        for rule in MATCHING_RULES:
            names = [one.names[0] for one in self.types.values() if one.equality is rule]
            if names:
                applies = names[0] if len(names) == 1 else f"( {' $ '.join(names)} )"
                yield f"( {rule.oid} NAME '{rule.name}' APPLIES {applies} )"

    def subschema(self, classes: Iterable[str] = ()) -> dict[str, list[bytes]]:
        """The attributes of the subschema subentry (RFC 4512, 4.2)."""
        return {
            "objectClass": [b"top", b"subentry", b"subschema", b"extensibleObject"],
            "cn": [b"Subschema"],
            "attributeTypes": [one.definition().encode() for one in self.types.values()],
            "matchingRules": [rule.definition().encode() for rule in MATCHING_RULES],
            "matchingRuleUse": [use.encode() for use in self._uses()],
            "ldapSyntaxes": [f"( {oid} DESC '{name}' )".encode() for oid, name in _SYNTAXES.items()],
            "objectClasses": [definition.encode() for definition in (*_CLASSES, *classes)],
        }


#: The classes that the subschema shows, for programs that read it; none is enforced.
_CLASSES = (
    "( 2.5.6.0 NAME 'top' ABSTRACT MUST objectClass )",
    "( 1.3.6.1.4.1.1466.101.120.111 NAME 'extensibleObject' SUP top AUXILIARY )",
    "( 2.5.6.1 NAME 'alias' SUP top STRUCTURAL MUST aliasedObjectName )",
    "( 2.5.6.2 NAME 'country' SUP top STRUCTURAL MUST c MAY ( searchGuide $ description ) )",
    "( 2.5.6.3 NAME 'locality' SUP top STRUCTURAL MAY ( street $ seeAlso $ searchGuide $ st $ l $ description ) )",
    "( 2.5.6.4 NAME 'organization' SUP top STRUCTURAL MUST o MAY ( userPassword $ seeAlso $ businessCategory $ street $"
    " postalCode $ postalAddress $ telephoneNumber $ st $ l $ description ) )",
    "( 2.5.6.5 NAME 'organizationalUnit' SUP top STRUCTURAL MUST ou MAY ( userPassword $ seeAlso $ businessCategory $"
    " street $ postalCode $ postalAddress $ telephoneNumber $ st $ l $ description ) )",
    "( 2.5.6.6 NAME 'person' SUP top STRUCTURAL MUST ( sn $ cn ) MAY ( userPassword $ telephoneNumber $ seeAlso $"
    " description ) )",
    "( 2.5.6.7 NAME 'organizationalPerson' SUP person STRUCTURAL MAY ( title $ street $ postalCode $ postalAddress $"
    " facsimileTelephoneNumber $ ou $ st $ l ) )",
    "( 2.5.6.8 NAME 'organizationalRole' SUP top STRUCTURAL MUST cn MAY ( telephoneNumber $ seeAlso $ roleOccupant $"
    " ou $ st $ l $ description ) )",
    "( 2.5.6.9 NAME 'groupOfNames' SUP top STRUCTURAL MUST ( member $ cn ) MAY ( businessCategory $ seeAlso $ owner $"
    " ou $ o $ description ) )",
    "( 2.5.6.17 NAME 'groupOfUniqueNames' SUP top STRUCTURAL MUST ( uniqueMember $ cn ) MAY ( businessCategory $"
    " seeAlso $ owner $ ou $ o $ description ) )",
    "( 0.9.2342.19200300.100.4.5 NAME 'account' SUP top STRUCTURAL MUST uid MAY ( description $ seeAlso $ l $ o $ ou $"
    " host ) )",
    "( 0.9.2342.19200300.100.4.13 NAME 'domain' SUP top STRUCTURAL MUST dc MAY ( description $ o $ l $ st ) )",
    "( 0.9.2342.19200300.100.4.19 NAME 'simpleSecurityObject' SUP top AUXILIARY MUST userPassword )",
    "( 1.3.6.1.4.1.1466.344 NAME 'dcObject' SUP top AUXILIARY MUST dc )",
    "( 1.3.6.1.1.3.1 NAME 'uidObject' SUP top AUXILIARY MUST uid )",
    "( 2.5.17.0 NAME 'subentry' SUP top STRUCTURAL MUST cn )",
    "( 2.5.20.1 NAME 'subschema' AUXILIARY MAY ( attributeTypes $ objectClasses $ matchingRules $ matchingRuleUse ) )",
    "( 2.16.840.1.113730.3.2.6 NAME 'referral' SUP top STRUCTURAL MUST ref )",
    "( 2.16.840.1.113730.3.2.2 NAME 'inetOrgPerson' SUP organizationalPerson STRUCTURAL MAY ( audio $"
    " businessCategory $ carLicense $ departmentNumber $ displayName $ employeeNumber $ employeeType $ givenName $"
    " homePhone $ homePostalAddress $ initials $ jpegPhoto $ labeledURI $ mail $ manager $ mobile $ o $ pager $ photo $"
    " roomNumber $ secretary $ uid $ userCertificate $ x500UniqueIdentifier $ preferredLanguage ) )",
)
