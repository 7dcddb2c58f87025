"""Schemas: the forms of RFC 4512, what a server inherits, and slapd's own schema beside ldap3's reader."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ldap_client_support import in_loop
from ldap_server_support import Slapd, entries
from real_programs.running import HOST

from coro.ldap import Client, LocalError, RemoteError
from coro.ldap.schema import AttributeType, MatchingRule, ObjectClass, Schema, Syntax, parse, read

NAME = (
    "( 2.5.4.41 NAME 'name' EQUALITY caseIgnoreMatch SUBSTR caseIgnoreSubstringsMatch "
    "SYNTAX 1.3.6.1.4.1.1466.115.121.1.15{32768} )"
)
CN = "( 2.5.4.3 NAME ( 'cn' 'commonName' ) DESC 'it\\27s \\5c' SUP name X-ORIGIN ( 'a' 'b' ) )"
TOP = "( 2.5.6.0 NAME 'top' ABSTRACT MUST objectClass )"
PERSON = "(2.5.6.6 NAME 'person' SUP top STRUCTURAL MUST (sn$commonName) MAY ( description $ seeAlso ))"


def test_attribute_type() -> None:
    name, cn = parse(AttributeType, NAME), parse(AttributeType, CN.encode())
    assert (name.oid, name.syntax, name.length) == ("2.5.4.41", "1.3.6.1.4.1.1466.115.121.1.15", 32768)
    assert cn.names == ("cn", "commonName") and cn.superior == "name" and cn.description == "it's \\"
    assert cn.extensions == {"X-ORIGIN": ("a", "b")} and cn.text == CN and cn.user_modifiable


def test_lookups_and_inheritance() -> None:
    schema = Schema({"attributeTypes": [NAME, CN], "objectClasses": [TOP, PERSON]})
    assert schema.attribute_types["CommonName"] is schema.attribute_types["2.5.4.3"]
    assert schema.resolved("cn;lang-en").equality == "caseIgnoreMatch" and schema.resolved("cn").length == 32768
    assert [one.name for one in schema.superclasses("PERSON")] == ["person", "top"]
    assert schema.attributes_of(["person"]) == ({"objectClass", "sn", "cn"}, {"description", "seeAlso"})
    with pytest.raises(KeyError):
        schema.attribute_types["nothing"]


def test_circles_end() -> None:
    schema = Schema(
        {
            "attributeTypes": ["( 1.1 NAME 'a' SUP b )", "( 1.2 NAME 'b' SUP a )"],
            "objectClasses": ["( 1.3 NAME 'c' SUP c )"],
        }
    )
    assert schema.resolved("a").syntax is None
    assert len(schema.superclasses("c")) == 1


@pytest.mark.parametrize("text", [
    "", "()", "( )", "1.2", "( 1.2", "( 1.2 NAME )", "( 1.2 NAME ( 'a' )", "( 1.2 NAME 'a )",
    "( 1.2 NAME 'a' NAME 'b' )",
    "( 1.2 ( 'a' ) )", "( 1.2 DESC ( 'a' 'b' ) )", "( 1.2 NAME ( ( 'a' ) ) )", "( 1.2 'NAME' 'a' )",
    b"( 1.2 DESC '\xff' )",
    "( 1.2 ABSTRACT AUXILIARY )", "( 1.2 ) )",
])  # fmt: skip
def test_refused(text: str | bytes) -> None:
    with pytest.raises(LocalError):
        parse(ObjectClass, text)


def test_a_server_with_a_broken_schema() -> None:
    with pytest.raises(RemoteError, match="objectclasses"):
        Schema({"objectClasses": ["( 1.2 NAME"]})


@settings(deadline=None)
@given(st.text(alphabet="( )$'\\ 1.2NAMESUPx", max_size=60))
def test_nothing_else_is_raised(text: str) -> None:
    for kind in (ObjectClass, AttributeType, MatchingRule, Syntax):
        try:
            parse(kind, text)
        except LocalError:
            pass


@pytest.fixture(scope="module")
def slapd() -> Iterator[Slapd]:
    with Slapd(entries(2)) as running:
        yield running


@pytest.mark.slow
@in_loop
def test_slapd_beside_ldap3(slapd: Slapd) -> None:
    ldap3 = pytest.importorskip("ldap3")
    with Client(f"ldap://{HOST}:{slapd.port}") as directory:
        schema = read(directory)
        assert schema.syntaxes and schema.matching_rules["caseIgnoreMatch"].syntax
        must, may = schema.attributes_of(["inetOrgPerson"])
        assert must == {"objectClass", "sn", "cn"} and {"mail", "uid", "userPassword"} <= may
        for table, kind in (
            (schema.attribute_types, ldap3.protocol.rfc4512.AttributeTypeInfo),
            (schema.object_classes, ldap3.protocol.rfc4512.ObjectClassInfo),
        ):
            theirs = kind.from_definition([one.text for one in table.values()])
            for one in table.values():
                other = theirs[one.name]
                assert (other.oid, tuple(other.name or ())) == (one.oid, one.names)
                assert (other.description or "") == one.description
                if isinstance(one, ObjectClass):
                    assert [tuple(x or ()) for x in (other.superior, other.must_contain, other.may_contain)] == [
                        one.superiors, one.must, one.may]  # fmt: skip
                else:
                    assert bool(other.single_value) == one.single_value
                    assert ([other.equality] if isinstance(other.equality, str) else list(other.equality or ())) == [
                        rule for rule in (one.equality,) if rule]  # fmt: skip
