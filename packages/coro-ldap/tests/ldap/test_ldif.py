"""LDIF: RFC 2849 both ways, record by record."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coro.ldap import LDIFError
from coro.ldap.ldif import Add, Control, Delete, Entry, Modify, ModifyDN, Record, read, write


def records(text: str, **options: object) -> list[Record]:
    return list(read(io.BytesIO(text.encode()), **options))  # type: ignore[arg-type]


def test_entries() -> None:
    text = """\
version: 1
# A comment that
  goes on
dn: cn=Barbara Jensen, ou=Product Development,
  dc=airius, dc=com
objectclass: top
objectclass: person
cn: Barbara Jensen
CN: Babs
description:: V2hhdCBhIGNhcmVmdWwgcmVhZGVyIHlvdSBhcmU=
title:
sn:    blanks before


dn:: Y249w6k=\r
cn;lang-de:: w6k=\r
"""
    assert records(text) == [
        Entry(
            "cn=Barbara Jensen, ou=Product Development, dc=airius, dc=com",
            {
                "objectclass": [b"top", b"person"],
                "cn": [b"Barbara Jensen", b"Babs"],
                "description": [b"What a careful reader you are"],
                "title": [b""],
                "sn": [b"blanks before"],
            },
        ),
        Entry("cn=é", {"cn;lang-de": ["é".encode()]}),
    ]


def test_changes() -> None:
    text = """\
dn: cn=a
control: 1.2.840.113556.1.4.805 true
control: 1.2.3 false: value
control: 1.2.4:: AP8=
changetype: delete

dn: cn=b
changetype: modify
add: mail
mail: x@y
mail: z
-
delete: fax
-
replace: sn
-
increment: uidNumber
uidNumber: 1

dn: cn=c
changetype: modrdn
newrdn: cn=d
deleteoldrdn: 0
newsuperior: dc=x

dn: cn=e
changetype: moddn
newrdn: cn=f
deleteoldrdn: 1

dn: cn=g
changetype: add
cn: g
"""
    assert records(text) == [
        Delete(
            "cn=a",
            (
                Control("1.2.840.113556.1.4.805", True),
                Control("1.2.3", False, b"value"),
                Control("1.2.4", False, b"\0\xff"),
            ),
        ),
        Modify(
            "cn=b",
            [
                ("add", "mail", [b"x@y", b"z"]),
                ("delete", "fax", []),
                ("replace", "sn", []),
                ("increment", "uidNumber", [b"1"]),
            ],
        ),
        ModifyDN("cn=c", "cn=d", False, "dc=x"),
        ModifyDN("cn=e", "cn=f", True, None),
        Add("cn=g", {"cn": [b"g"]}),
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("version: 2\n", 1),
        ("cn: a\n", 1),
        (" cn: a\n", 1),
        ("dn: a\nx: y\n\ndn: b\ncn a\n", 5),
        ("dn: a\ncn:: !!\n", 2),
        ("dn: a\ncn:< file:///etc/passwd\n", 2),
        ("dn: a\nc n: x\n", 2),
        ("dn: a\n", 1),
        ("dn:: /w==\ncn: a\n", 1),
        ("dn: a\nchangetype: explode\n", 2),
        ("dn: a\nchangetype: delete\ncn: x\n", 3),
        ("dn: a\nchangetype: modify\nfix: x\n", 3),
        ("dn: a\nchangetype: modify\nadd: x\ny: 1\n", 4),
        ("dn: a\nchangetype: modrdn\ncn: x\n", 3),
        ("dn: a\nchangetype: modrdn\nnewrdn: x\ndeleteoldrdn: 2\n", 4),
        ("dn: a\nchangetype: modrdn\nnewrdn: x\ndeleteoldrdn: 1\ncn: x\n", 5),
        ("dn: a\ncontrol: 1.2\ncn: x\n", 3),
        ("dn: a\ncontrol: x\nchangetype: delete\n", 2),
        ("dn: a\ncn: \0\n", 2),
    ],
)
def test_wrong(text: str, line: int) -> None:
    with pytest.raises(LDIFError, match="expected") as caught:
        records(text)
    assert caught.value.line == line
    assert str(caught.value).startswith(f"line {line}: ")


def test_addresses_and_limits() -> None:
    text = "dn: a\njpegPhoto:< file:///x\n"
    assert records(text, open_url=lambda url: url.encode()) == [Entry("a", {"jpegPhoto": [b"file:///x"]})]
    with pytest.raises(LDIFError, match="at most 100 bytes"):
        records("dn: a\n" + " x\n" * 100, max_record=100)
    assert records("") == records("version: 1\n") == records("# nothing\n\n\n") == []


def test_lines_are_folded_and_safe() -> None:
    out = io.StringIO()
    write(out, [Entry("cn=a", {"x": [b"y" * 500, b" blank", b"blank ", b":", b"<", b"a\nb", "é".encode(), b"a:b<c"]})])
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) == 76
    assert "x:: IGJsYW5r" in lines and "x: a:b<c" in lines
    with pytest.raises(LDIFError, match="name of an attribute"):
        write(io.StringIO(), [Entry("cn=a", {"a b": [b""]})])
    with pytest.raises(LDIFError, match="add, delete"):
        write(io.StringIO(), [Modify("cn=a", [("explode", "x", [])])])


names = st.sampled_from(["cn", "objectClass", "sn;binary", "1.2.3"])
attributes = st.dictionaries(names, st.lists(st.binary(max_size=100), min_size=1, max_size=3), min_size=1)
dns = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
controls = st.lists(
    st.builds(Control, st.just("1.2.3"), st.booleans(), st.none() | st.binary(max_size=9)), max_size=2
).map(tuple)
changes = st.lists(
    st.tuples(st.sampled_from(["add", "delete", "replace"]), names, st.lists(st.binary(max_size=9), max_size=3)),
    min_size=1,
)
some_records = st.one_of(
    st.builds(Entry, dns, attributes),
    st.builds(Add, dns, attributes, controls),
    st.builds(Delete, dns, controls),
    st.builds(Modify, dns, changes, controls),
    st.builds(ModifyDN, dns, dns, st.booleans(), st.none() | dns, controls),
)


@pytest.mark.slow
@given(st.lists(some_records, max_size=4))
def test_round_trip(given_records: list[Record]) -> None:
    out = io.StringIO()
    write(out, given_records)
    assert records(out.getvalue()) == given_records
    assert out.getvalue().isascii()
