"""Active Directory's own forms, and a group of 5000 members, which it gives in pieces."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ldap_client_support import Conversation, Scripted, in_loop

from coro.ldap import LocalError, RemoteError, TLSRequired, ad, controls
from coro.ldap.ad import AccessRight, AccessRule, RuleFlag, RuleKind, SecurityDescriptor
from coro.ldap.controls import DirSync
from coro.ldap.protocol import ADD, DELETE, REPLACE, Change, Message, SearchRequest, SearchResultReference

SID = bytes.fromhex("01020000000000052000000020020000")


def test_sid() -> None:
    assert ad.sid_text(SID) == "S-1-5-32-544"
    assert ad.sid_bytes("S-1-5-32-544") == SID
    for wrong in (b"", SID[:-1], SID + b"\0", b"\2" + SID[1:], b"\1\x10" + bytes(6 + 64)):
        with pytest.raises(LocalError):
            ad.sid_text(wrong)
    for text in ("", "S-1", "S-2-5", "S-1-5-4294967296", "S-1-5-32-544 ", "S-1-5" + "-1" * 16, "S-1-999999999999999"):
        with pytest.raises(LocalError):
            ad.sid_bytes(text)


@given(st.integers(0, 2**48 - 1), st.lists(st.integers(0, 2**32 - 1), max_size=15))
def test_sid_round_trip(authority: int, parts: list[int]) -> None:
    data = bytes([1, len(parts)]) + authority.to_bytes(6, "big") + b"".join(p.to_bytes(4, "little") for p in parts)
    assert ad.sid_bytes(ad.sid_text(data)) == data


def test_guid() -> None:
    value = bytes.fromhex("33221100554477668899aabbccddeeff")
    assert ad.guid(value) == UUID("00112233-4455-6677-8899-aabbccddeeff")
    assert ad.guid_bytes("00112233-4455-6677-8899-aabbccddeeff") == value == ad.guid_bytes(ad.guid(value))
    for wrong in (lambda: ad.guid(b"x"), lambda: ad.guid_bytes("x")):
        with pytest.raises(LocalError):
            wrong()


def test_times() -> None:
    assert ad.from_filetime(b"116444736000000000") == datetime(1970, 1, 1, tzinfo=UTC)
    assert ad.from_filetime("0") is None and ad.from_filetime(2**63 - 1) is None
    assert ad.to_filetime(None) == 2**63 - 1
    for wrong in (b"x", -1, 2**63 - 2):
        with pytest.raises(LocalError):
            ad.from_filetime(wrong)
    for late in (datetime(2000, 1, 1), datetime(1600, 1, 1, tzinfo=UTC)):
        with pytest.raises(LocalError):
            ad.to_filetime(late)


@given(st.integers(1, 10**17))
def test_times_round_trip(microseconds: int) -> None:
    moment = datetime(1601, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    assert ad.from_filetime(ad.to_filetime(moment)) == moment


def test_passwords_and_filters() -> None:
    assert ad.encode_password("ü") == b'"\0\xfc\0"\0'
    assert str(ad.has_flags("userAccountControl", ad.AccountControl.ACCOUNT_DISABLED)) == (
        "(userAccountControl:1.2.840.113556.1.4.803:=2)"
    )
    assert str(ad.in_chain("memberOf", "cn=a)(b")) == "(memberOf:1.2.840.113556.1.4.1941:=cn=a\\29\\28b)"


def served(members: list[bytes], step: int):
    def script(peer: Conversation) -> None:
        while (request := peer.next()) is not None and isinstance(request.op, SearchRequest):
            [name] = request.op.attributes
            first = int(name.partition("range=")[2].partition("-")[0] or 0)
            part = members[first : first + step]
            last = "*" if first + step >= len(members) else str(first + step - 1)
            peer.entry(request, "cn=g", **{"member": [], f"member;range={first}-{last}": part})
            peer.answer(request)

    return script


@in_loop
def test_five_thousand_members() -> None:
    members = [b"cn=%d" % number for number in range(5000)]
    with Scripted(served(members, 1500)) as server, server.client() as directory:
        assert ad.all_values(directory, "cn=g", "member") == members
        with pytest.raises(RemoteError, match="at most 2000"):
            ad.all_values(directory, "cn=g", "member", limit=2000)


@in_loop
def test_a_short_list() -> None:
    def script(peer: Conversation) -> None:
        while (request := peer.next()) is not None and isinstance(request.op, SearchRequest):
            peer.entry(request, "cn=g", member=[b"cn=1", b"cn=2"])
            peer.answer(request)

    with Scripted(script) as server, server.client() as directory:
        assert ad.all_values(directory, "cn=g", "member") == [b"cn=1", b"cn=2"]


@pytest.mark.parametrize("name", ["member;range=0-1", "member;range=5-*", "member;range=0-0"])
def test_ranges_that_do_not_follow(name: str) -> None:
    """Among them a server that gives the same piece for ever."""

    def script(peer: Conversation) -> None:
        while (request := peer.next()) is not None and isinstance(request.op, SearchRequest):
            peer.entry(request, "cn=g", **{name: [b"cn=1"]})
            peer.answer(request)

    @in_loop
    def run() -> None:
        with Scripted(script) as server, server.client() as directory, pytest.raises(RemoteError, match="number"):
            ad.all_values(directory, "cn=g", "member")

    run()


@in_loop
def test_passwords() -> None:
    old, new = b'"\0o\0"\0', b'"\0n\0"\0'
    with Scripted() as server, server.client() as directory:
        ad.set_password(directory, "cn=x", "n")
        ad.change_password(directory, "cn=x", "o", "n")
        ad.unlock(directory, "cn=x")
        assert [one.op.changes for one in server.conversations[0].seen] == [
            [Change(REPLACE, "unicodePwd", [new])],
            [Change(DELETE, "unicodePwd", [old]), Change(ADD, "unicodePwd", [new])],
            [Change(REPLACE, "lockoutTime", [b"0"])],
        ]
        directory._loopback = False
        for refused in (
            lambda: ad.set_password(directory, "cn=x", "n"),
            lambda: ad.change_password(directory, "", "", ""),
        ):
            with pytest.raises(TLSRequired):
                refused()


@in_loop
def test_changes_since_a_cookie() -> None:
    asked = []

    def script(peer: Conversation) -> None:
        while (request := peer.next()) is not None:
            if not isinstance(request.op, SearchRequest):
                continue
            [control] = controls.parse(request.controls, request=True)
            asked.append(control)
            number = int(control.cookie or b"0") + 1
            peer.entry(request, f"cn={number}")
            peer.send(Message(request.id, SearchResultReference(("ldap://elsewhere",)), ()))
            # The cookie is in the answer, and whether there is more.
            peer.answer(request, controls=(DirSync(number % 3, 0, b"%d" % number).control(),))

    with Scripted(script) as server, server.client() as directory:
        changes = ad.Changes(directory, "dc=x", attributes=["cn"], flags=1, size=500)
        assert [entry.dn for entry in changes] == ["cn=1", "cn=2", "cn=3"] and changes.cookie == b"3"
        assert asked == [DirSync(1, 500), DirSync(1, 500, b"1"), DirSync(1, 500, b"2")]
        # A loop that is left early keeps the last whole answer.
        for entry in changes:
            if entry.dn == "cn=5":
                break
        assert changes.cookie == b"4" and repr(changes) == "<Changes of 'dc=x'>"
        assert [entry.dn for entry in changes] == ["cn=5", "cn=6"]


@pytest.mark.parametrize("answer", [(), (DirSync(1, 0, b"same").control(),)], ids=["none", "the same"])
def test_changes_without_an_end(answer: tuple) -> None:
    def script(peer: Conversation) -> None:
        while (request := peer.next()) is not None and isinstance(request.op, SearchRequest):
            peer.answer(request, controls=answer)

    @in_loop
    def run() -> None:
        with (
            Scripted(script) as server,
            server.client() as directory,
            pytest.raises(RemoteError, match="cookie|DirSync"),
        ):
            list(ad.Changes(directory, "dc=x"))

    run()


# ---- rights

#: Self-relative, the rules are there; offsets of owner 0x14, group 0x24, rules 0x34: laid out by hand from [MS-DTYP].
DESCRIPTOR = bytes.fromhex(
    "0100048014000000240000000000000034000000"
    "01020000000000052000000020020000"  # S-1-5-32-544
    "01020000000000052000000021020000"  # S-1-5-32-545
    "0400540002000000"
    "00021400ff010f000101000000000005 12000000"  # allow, inherited by containers, all, S-1-5-18
    "06003800000100000300000033221100554477668899aabbccddeeff000102030405060708090a0b0c0d0e0f"
    "010100000000000501000000".replace(" ", "")
)


def test_a_security_descriptor() -> None:
    rules = (
        AccessRule(
            RuleKind.ALLOW, AccessRight(0xF01FF), "S-1-5-18", RuleFlag.CONTAINER_INHERIT
        ),
        AccessRule(
            RuleKind.DENY_OBJECT, AccessRight.CONTROL_ACCESS, "S-1-5-1", RuleFlag(0),
            UUID("00112233-4455-6677-8899-aabbccddeeff"), UUID("03020100-0504-0706-0809-0a0b0c0d0e0f"),
        ),
    )  # fmt: skip
    found = SecurityDescriptor.decode(DESCRIPTOR)
    assert found == SecurityDescriptor("S-1-5-32-544", "S-1-5-32-545", rules)
    assert SecurityDescriptor.decode(found.encode()) == found
    assert SecurityDescriptor.decode(SecurityDescriptor().encode()) == SecurityDescriptor()
    # No list allows everything, an empty one nothing.
    assert SecurityDescriptor.decode(SecurityDescriptor(rules=()).encode()).rules == ()


SIDS = st.lists(st.integers(0, 2**32 - 1), max_size=15).map(lambda parts: "-".join(["S-1-5", *map(str, parts)]))
RULES = st.one_of(
    st.builds(
        AccessRule,
        st.sampled_from([RuleKind.ALLOW, RuleKind.DENY, RuleKind.AUDIT]),
        st.integers(0, 2**32 - 1).map(AccessRight),
        SIDS,
        st.integers(0, 255).map(RuleFlag),
    ),
    st.builds(
        AccessRule,
        st.sampled_from([RuleKind.ALLOW_OBJECT, RuleKind.DENY_OBJECT, RuleKind.AUDIT_OBJECT]),
        st.integers(0, 2**32 - 1).map(AccessRight),
        SIDS,
        st.integers(0, 255).map(RuleFlag),
        st.none() | st.uuids(),
        st.none() | st.uuids(),
    ),
    st.builds(
        AccessRule,
        st.integers(8, 255),
        flags=st.integers(0, 255).map(RuleFlag),
        data=st.binary(max_size=40).map(lambda data: data + bytes(-len(data) % 4)),
    ),
)
LISTS = st.none() | st.lists(RULES, max_size=5).map(tuple)


@given(st.none() | SIDS, st.none() | SIDS, LISTS, LISTS, st.sampled_from([0, 0x1000, 0x2400, 0x3]))
def test_descriptors_round_trip(owner: str, group: str, rules: tuple, audit: tuple, control: int) -> None:
    one = SecurityDescriptor(owner, group, rules, audit, control)
    assert SecurityDescriptor.decode(one.encode()) == one


@given(st.data())
def test_damaged_descriptors(data: st.DataObject) -> None:
    """Whatever the bytes: a descriptor, or the documented error."""
    value = bytearray(DESCRIPTOR)
    for _ in range(data.draw(st.integers(1, 4))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(value[: data.draw(st.integers(0, len(value)))])
    try:
        SecurityDescriptor.decode(cut)
    except LocalError:
        pass


def test_what_cannot_be_a_descriptor() -> None:
    rule = AccessRule(RuleKind.ALLOW, sid="S-1-5-18")
    for wrong in (
        SecurityDescriptor(owner="nobody"),
        SecurityDescriptor(control=0x10000),
        SecurityDescriptor(rules=(rule,) * 4000),
        SecurityDescriptor(rules=(AccessRule(RuleKind.ALLOW, sid="S-1-5-18", object_type=UUID(int=1)),)),
        SecurityDescriptor(rules=(AccessRule(99, data=bytes(70_000)),)),
    ):
        with pytest.raises(LocalError):
            wrong.encode()
    for size in range(len(DESCRIPTOR)):
        with pytest.raises(LocalError):
            SecurityDescriptor.decode(DESCRIPTOR[:size])
