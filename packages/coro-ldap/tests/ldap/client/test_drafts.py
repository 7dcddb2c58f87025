"""Changes of an entry that are made as on a dict, and what is sent of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ldap_client_support import HANG, Scripted, in_loop

from coro.ldap import Client, Draft, LocalError, controls
from coro.ldap.exceptions import AssertionFailed
from coro.ldap.filters import Equal
from coro.ldap.protocol import ADD, DELETE, REPLACE, Change, Entry, ModifyRequest
from coro.ldap.server import Directory, Server

ENTRY = {"objectClass": [b"inetOrgPerson"], "cn": [b"Fred"], "Mail": [b"a@x", b"b@x"], "title": [b"Boss"]}


def draft(directory=None) -> Draft:
    return Draft(directory, Entry("cn=Fred", {name: list(values) for name, values in ENTRY.items()}))


def test_reading() -> None:
    one = draft()
    assert dict(one) == ENTRY and len(one) == 4 and one["mail"] == ENTRY["Mail"] and "MAIL" in one and 5 not in one
    assert list(one) == list(ENTRY) and one.get("sn") is None and one.changes() == []
    assert repr(one) == "<Draft of 'cn=Fred', 0 changes>"
    with pytest.raises(KeyError):
        one["sn"]
    with pytest.raises(KeyError):
        del one["sn"]


def test_what_is_sent() -> None:
    one = draft()
    one.add("mail", "b@x", "c@x")
    one["TITLE"] = "Clerk"
    one["sn"] = [b"Smith", "Smith"]
    del one["cn"]
    assert one.changes() == [
        Change(DELETE, "cn", ()),
        Change(ADD, "Mail", [b"c@x"]),
        Change(REPLACE, "title", [b"Clerk"]),
        Change(ADD, "sn", [b"Smith"]),
    ]
    one.discard()
    assert one.changes() == []
    one.remove("mail", "a@x", "none")
    assert one.changes() == [Change(DELETE, "Mail", [b"a@x"])]
    one.remove("mail", b"b@x")
    one["title"] = []
    assert one.changes() == [Change(DELETE, "Mail", ()), Change(DELETE, "title", ())]
    one["mail"] = ["b@x", "a@x"]
    one["title"] = b"Boss"
    assert one.changes() == []
    for wrong in ([1], [None], 7):
        with pytest.raises((LocalError, TypeError)):
            one["cn"] = wrong


NAMES = st.sampled_from(["a", "B", "c"])
VALUES = st.lists(st.sampled_from([b"1", b"2", b"3"]), max_size=3, unique=True)


@given(st.dictionaries(NAMES, VALUES.filter(bool)), st.dictionaries(NAMES, VALUES))
def test_the_changes_make_the_one_the_other(before: dict, after: dict) -> None:
    one = Draft(None, Entry("cn=x", {name: list(values) for name, values in before.items()}))
    for name, values in after.items():
        one[name.lower()] = values
    made = {name: set(values) for name, values in before.items()}
    for change in one.changes():
        held = made.setdefault(change.attribute, set())
        given_values = set(change.values)
        if change.operation == ADD:
            assert not held & given_values
            held |= given_values
        elif change.operation == REPLACE:
            held.clear()
            held |= given_values
        else:
            assert given_values <= held
            held -= given_values or set(held)
    wanted = {name.lower(): set(values) for name, values in {**before, **after}.items() if values}
    assert {name.lower(): values for name, values in made.items() if values} == wanted


@in_loop
def test_saving() -> None:
    with Scripted() as server, server.client() as directory:
        with draft(directory) as one:
            one["title"] = "Clerk"
        assert one.changes() == [] and one.save() is None
        with pytest.raises(ZeroDivisionError), one:
            one["title"] = "None"
            raise ZeroDivisionError
        assert len(one.changes()) == 1
        [request] = server.conversations[0].seen
        assert request.op == ModifyRequest("cn=Fred", [Change(REPLACE, "title", [b"Clerk"])])


@in_loop
def test_with_a_server() -> None:
    data = Directory("dc=x")
    data.add("dc=x", {"objectClass": ["domain"], "dc": ["x"]})
    data.add("cn=Fred,dc=x", {"objectClass": ["person"], "cn": ["Fred"], "sn": ["S"], "description": ["a", "b"]})
    with Server(data, ("127.0.0.1", 0), admins={"cn=admin": "secret"}) as server:
        with Client(server.addresses[0], timeout=HANG) as directory:
            directory.simple_bind("cn=admin", "secret")
            one, two = (Draft(directory, directory.read("cn=Fred,dc=x")) for _ in range(2))
            one.add("description", "c")
            two.remove("description", "a")
            two["telephoneNumber"] = "1"
            one.save()
            two.save()
            found = directory.read("cn=Fred,dc=x")
            assert sorted(found["description"]) == [b"b", b"c"] and found.text("telephoneNumber") == "1"
            two["sn"] = "T"
            with pytest.raises(AssertionFailed):
                two.save(controls=[controls.Assertion(Equal("description", "a"))])
            two.save(controls=[controls.Assertion(Equal("sn", "S"))])
            assert directory.read("cn=Fred,dc=x").text("sn") == "T"
