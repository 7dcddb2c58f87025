"""Controls: bytes that other implementations agree on, both ways, and values that are none."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coro.ldap import LocalError, ProtocolError, controls
from coro.ldap.controls import (
    AccountUsability,
    AccountUsabilityResponse,
    Assertion,
    AuthorizationIdentity,
    AuthorizationIdentityResponse,
    Dereference,
    Dereferenced,
    DereferenceResponse,
    DirSync,
    DomainScope,
    DontUseCopy,
    EntryChange,
    ExtendedDN,
    LazyCommit,
    ManageDsaIT,
    MatchedValues,
    Notification,
    PagedResults,
    PasswordExpired,
    PasswordExpiring,
    PasswordPolicy,
    PasswordPolicyResponse,
    PermissiveModify,
    PersistentSearch,
    PolicyHints,
    PostRead,
    PostReadResponse,
    PreRead,
    PreReadResponse,
    ProxiedAuthorization,
    RelaxRules,
    SDFlags,
    SearchOptions,
    ServerSideSort,
    SessionTracking,
    ShowDeactivatedLink,
    ShowDeleted,
    ShowRecycled,
    SortKey,
    SortResponse,
    Subentries,
    SyncDone,
    SyncInfo,
    SyncRequest,
    SyncState,
    TreeDelete,
    VirtualListView,
    VirtualListViewResponse,
)
from coro.ldap.protocol import Control, Entry, SearchResultDone, encode_controls
from coro.ldap.query import parse

UUIDS = (UUID(int=1), UUID(int=2))
REQUESTS = [
    PagedResults(100, b"abc"),
    ServerSideSort("cn", "-sn", SortKey("uid", "2.5.13.3", True)),
    VirtualListView(1, 2, 3, 4, None, b"ctx"),
    VirtualListView(1, 2, value=b"Smith"),
    PreRead(["cn", "sn"]),
    PostRead([]),
    Assertion(parse("(cn=x)")),
    MatchedValues("(cn=x*)", "(sn:dn:2.5.13.3:=y)"),
    ManageDsaIT(True),
    ProxiedAuthorization("dn:cn=x"),
    Subentries(False),
    DontUseCopy(),
    TreeDelete(),
    RelaxRules(),
    SessionTracking("192.0.2.1", "host", name="fred"),
    AuthorizationIdentity(),
    PasswordPolicy(),
    PersistentSearch(5, False, True),
    SyncRequest(3, b"cookie", True),
    SyncRequest(1),
    Dereference({"member": ["cn", "uid"]}),
    ShowDeleted(),
    ShowRecycled(),
    ShowDeactivatedLink(),
    LazyCommit(),
    PermissiveModify(),
    DomainScope(),
    Notification(),
    ExtendedDN(),
    SearchOptions(2),
    SDFlags(7),
    PolicyHints(),
    AccountUsability(),
    DirSync(0x80000001, 1000, b"c"),
]
RESPONSES = [
    PagedResults(0, b""),
    SortResponse(16, "cn"),
    SortResponse(),
    VirtualListViewResponse(1, 2, 0, b"ctx"),
    VirtualListViewResponse(1, 2, 61),
    PreReadResponse(Entry("cn=x", {"cn": [b"x"]})),
    PostReadResponse(Entry("cn=x", {})),
    AuthorizationIdentityResponse("u:fred"),
    AccountUsabilityResponse(3600),
    AccountUsabilityResponse(-1),
    AccountUsabilityResponse(None, True, False, True, 2, 300),
    AccountUsabilityResponse(),
    PasswordPolicyResponse(expires=3600),
    PasswordPolicyResponse(grace=200, error=1),
    PasswordPolicyResponse(),
    PasswordExpired(),
    PasswordExpiring(77),
    EntryChange(8, "cn=old", 12),
    EntryChange(1, None, 12),
    EntryChange(2),
    SyncState(1, UUIDS[0], b"c"),
    SyncState(3, UUIDS[0]),
    SyncDone(b"c", True),
    SyncDone(),
    SyncInfo("cookie", b"c"),
    SyncInfo("delete", b"c", False),
    SyncInfo("present", None, True),
    SyncInfo("ids", b"c", True, True, UUIDS),
    SyncInfo("ids", None, True, False, ()),
    DereferenceResponse((Dereferenced("member", "cn=x", {"cn": [b"x"]}), Dereferenced("member", "cn=y", {}))),
    DirSync(0, 0, b"c"),
]


@pytest.mark.parametrize("one", REQUESTS, ids=lambda one: type(one).__name__)
def test_requests_both_ways(one) -> None:
    control = one.control()
    assert control.oid == one.oid and control.critical == one.critical
    assert controls.parse([control], request=True) == [one]


@pytest.mark.parametrize("one", RESPONSES, ids=lambda one: type(one).__name__)
def test_responses_both_ways(one) -> None:
    assert controls.parse([one.control()]) == [one]
    assert controls.parse(encode_controls([one.control()])) == [one]


# Encodings of ldap3's and OpenLDAP's encoders, and the example of RFC 2696's grammar.
BYTES = {
    PagedResults(100, b""): "300502016404 00",
    ServerSideSort("cn"): "30063004 0402636e",
    ServerSideSort("-cn"): "30093007 0402636e 8101ff",
    Assertion(parse("(cn=x)")): "a307 0402636e 040178",
    SyncRequest(3): "3003 0a0103",
    SDFlags(7): "3003 020107",
    Subentries(True): "0101ff",
    VirtualListView(0, 2, 1, 0): "300e 020100 020102 a006 020101 020100".replace("300e", "300e"),
    PasswordPolicyResponse(expires=1): "3005 a003 800101",
    PasswordPolicyResponse(error=1): "3003 810101",
    SyncInfo("cookie", b"c"): "800163",
}


@pytest.mark.parametrize("one", BYTES, ids=lambda one: type(one).__name__)
def test_bytes(one) -> None:
    assert one.encoded() == bytes.fromhex(BYTES[one])


def test_an_entry_without_its_application_tag() -> None:
    """OpenLDAP's answer to PreRead has it, that of others has not."""
    whole = PreReadResponse(Entry("cn=x", {"cn": [b"x"]})).encoded()
    assert whole[0] == 0x64
    assert PreReadResponse.decode(b"\x30" + whole[1:]).entry == Entry("cn=x", {"cn": [b"x"]})


KINDS = [*{type(one): one for one in (*REQUESTS, *RESPONSES)}]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(value=st.none() | st.binary(max_size=40))
def test_values_that_are_none(kind, value) -> None:
    try:
        kind.decode(value)
    except ProtocolError:
        pass


@given(st.sampled_from([*REQUESTS, *RESPONSES]), st.data())
def test_damaged_values(one, data) -> None:
    value = bytearray(one.encoded() or b"\0")
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    try:
        type(one).decode(bytes(value))
    except ProtocolError:
        pass


def test_find_and_unknown_ones() -> None:
    unknown = Control("1.2.3", False, b"x")
    result = SearchResultDone(controls=(unknown, PagedResults(5, b"c").control()))
    assert controls.find(result, PagedResults) == PagedResults(5, b"c")
    assert controls.find(result, SortResponse) is None
    assert controls.parse(result.controls) == [unknown, PagedResults(5, b"c")]
    assert PasswordPolicyResponse(error=8).reason == "passwordInHistory"
    assert PasswordPolicyResponse().reason == "" and "99" in PasswordPolicyResponse(error=99).reason


def test_mistakes() -> None:
    for wrong in (
        lambda: ServerSideSort(),
        lambda: MatchedValues("(&(a=b))"),
        lambda: PreRead("cn").control(),
        lambda: SyncInfo("other").encoded(),
    ):
        with pytest.raises(LocalError):
            wrong()
