"""The entries in memory: changes, the codes of refusals, filters, and indexes that agree with a walk."""

from __future__ import annotations

import random

import pytest
from ldap_server_support import BASE, entries

from coro.ldap.filters import Not
from coro.ldap.query import parse
from coro.ldap.server import Directory, Refused
from coro.ldap.server.matching import Matcher

PEOPLE = f"ou=people,{BASE}"


@pytest.fixture
def directory() -> Directory:
    found = Directory(BASE)
    found.load(entries(12).encode().splitlines(keepends=True))
    return found


def names(directory: Directory, filter: str, base: str = BASE, scope: int = 2) -> list[str]:
    return sorted(entry.dn.partition(",")[0] for entry in directory.search(base, filter, scope))


@pytest.mark.parametrize(
    "filter, expected",
    [
        ("(uid=u3)", ["uid=u3"]),
        ("(UID=U3)", ["uid=u3"]),
        ("(userid=u3)", ["uid=u3"]),
        ("(0.9.2342.19200300.100.1.1=u3)", ["uid=u3"]),
        ("(cn=user  3)", ["uid=u3"]),
        ("(name=user 3)", ["uid=u3"]),
        ("(cn;lang-de=benutzer 3)", ["uid=u3"]),
        ("(cn=benutzer 3)", ["uid=u3"]),
        ("(&(sn=sur0)(title=boss))", ["uid=u0"]),
        ("(|(uid=u1)(uid=u2))", ["uid=u1", "uid=u2"]),
        ("(mail=u1*)", ["uid=u1", "uid=u10", "uid=u11"]),
        ("(mail=*1@*)", ["uid=u1", "uid=u11"]),
        ("(mail=*@example.com)", []),
        ("(telephonenumber=+4930000003)", ["uid=u3"]),
        (f"(manager=UID=u5, ou=People,{BASE})", ["uid=u10", "uid=u11"]),
        ("(&)", None),
        ("(|)", []),
        ("(unknown=x)", []),
        ("(!(unknown=x))", []),
        ("(cn>=a)", []),
        ("(uid:caseExactMatch:=U3)", []),
        ("(uid:caseExactMatch:=u3)", ["uid=u3"]),
        ("(ou:dn:=groups)", ["cn=g0", "cn=g10", "ou=groups"]),
        ("(:caseExactMatch:=x)", []),
        ("(uid:2.5.13.2:=U3)", ["uid=u3"]),
        ("(uid:noSuchRule:=u3)", []),
        ("(description=the person with number 3)", ["uid=u3"]),
        ("(hasSubordinates=FALSE)", None),
        ("(createTimestamp>=20200101000000Z)", None),
        ("(createTimestamp<=20200101000000Z)", []),
    ],
)
def test_filters(directory: Directory, filter: str, expected: list[str] | None) -> None:
    found = names(directory, filter)
    if expected is None:
        assert len(found) >= 12
    else:
        assert found == expected


def test_scopes(directory: Directory) -> None:
    assert names(directory, "(objectClass=*)", BASE, 0) == ["dc=example"]
    assert names(directory, "(objectClass=*)", BASE, 1) == ["ou=groups", "ou=people"]
    assert len(names(directory, "(objectClass=*)", PEOPLE, 2)) == 13
    assert len(names(directory, "(objectClass=*)", PEOPLE, 3)) == 12


def refused(code: int) -> pytest.RaisesExc[Refused]:
    return pytest.raises(Refused, check=lambda exc: exc.code == code)


def test_changes_are_whole_or_not_at_all(directory: Directory) -> None:
    dn = f"uid=u1,{PEOPLE}"
    before = directory.get(dn)
    for code, changes in [
        (20, [("add", "title", ["new"]), ("add", "mail", ["U1@example.org"])]),
        (16, [("add", "title", ["new"]), ("delete", "mail", ["nobody@example.org"])]),
        (16, [("delete", "photo", [])]),
        (67, [("replace", "uid", ["other"])]),
        (19, [("replace", "createTimestamp", ["20200101000000Z"])]),
        (19, [("add", "employeeNumber", ["1", "2"])]),
        (21, [("add", "uidNumber", ["seven"])]),
        (21, [("add", "manager", ["no name"])]),
        (65, [("delete", "objectClass", [])]),
        (19, [("increment", "title", ["1"])]),
        (2, [("add", "title", [])]),
        (17, [("add", "ti tle", ["x"])]),
    ]:
        with refused(code):
            directory.modify(dn, changes)
        assert directory.get(dn) == before
    directory.modify(dn, [("add", "uidNumber", ["5"]), ("increment", "uidNumber", ["-7"])])
    assert names(directory, "(uidNumber<=-2)") == ["uid=u1"]


def test_adding_and_deleting(directory: Directory) -> None:
    person = {"objectClass": ["person"], "sn": ["x"], "cn": ["x"]}
    with refused(68):
        directory.add(f"UID=U1,{PEOPLE}", person)
    with pytest.raises(Refused) as caught:
        directory.add(f"cn=x,ou=missing,{BASE}", person)
    assert (caught.value.code, caught.value.matched) == (32, BASE)
    with refused(65):
        directory.add(f"cn=x,{BASE}", {"cn": ["x"]})
    with refused(34):
        directory.add("no name", person)
    directory.add(f"uid=new,{PEOPLE}", person)  # the value of the name is added
    assert names(directory, "(uid=new)") == ["uid=new"]
    with refused(66):
        directory.delete(PEOPLE)
    directory.delete(f"uid=new,{PEOPLE}")
    directory.delete(PEOPLE, tree=True)
    assert names(directory, "(uid=*)") == []
    with refused(32):
        directory.delete(PEOPLE)


def test_renaming_moves_the_subtree(directory: Directory) -> None:
    directory.rename(PEOPLE, "ou=staff", True, f"ou=groups,{BASE}")
    entry = directory.get(f"uid=u1,ou=staff,ou=groups,{BASE}")
    assert entry is not None and entry.dn == f"uid=u1,ou=staff,ou=groups,{BASE}"
    assert directory.get(PEOPLE) is None
    assert names(directory, "(uid=u1)", f"ou=groups,{BASE}") == ["uid=u1"]
    assert names(directory, "(ou=people)") == []
    with refused(53):
        directory.rename(f"ou=groups,{BASE}", "ou=groups", True, f"ou=staff,ou=groups,{BASE}")
    with refused(68):
        directory.rename(f"cn=g0,ou=groups,{BASE}", "cn=g10")
    directory.rename(f"cn=g0,ou=groups,{BASE}", "cn=G0+ou=x", False)
    assert names(directory, "(&(cn=g0)(ou=x))") == ["cn=G0+ou=x"]


def test_indexes_agree_with_a_walk(directory: Directory) -> None:
    """Random changes; then each filter finds by index what looking at all entries finds."""
    random.seed(7)
    for step in range(300):
        dn = random.choice([entry.dn for entry in directory.dump() if "uid=" in entry.dn] or [PEOPLE])
        try:
            match random.randrange(4):
                case 0:
                    directory.add(f"uid=n{step},{PEOPLE}", {"objectClass": ["person"], "cn": [f"C{step % 5}"]})
                case 1:
                    directory.modify(dn, [("replace", "sn", [f"S{step % 4}"]), ("add", "mail", [f"m{step}@x"])])
                case 2:
                    directory.rename(dn, f"uid=r{step % 9}", bool(step % 2))
                case 3:
                    directory.delete(dn)
        except Refused:
            continue
    for text in [*(f"(sn=s{n})" for n in range(4)), *(f"(cn=c{n})" for n in range(5)), "(objectClass=person)"]:
        filter = parse(text)
        by_index = {entry.dn for entry in directory.search(BASE, filter)}
        matches = Matcher(directory.schema).compile(Not(Not(filter)))
        assert by_index == {node.dn for node in directory.nodes.values() if matches(node, ())}
