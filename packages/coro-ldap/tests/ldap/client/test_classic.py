"""What programs of the first coro.ldap use: encoders of single requests, numbers by name, raw answers."""

from __future__ import annotations

import pytest
from ldap_client_support import Conversation, Scripted, in_loop

from coro.asn1 import ber
from coro.ldap import Client, LocalError, query
from coro.ldap.client import (
    AUTH,
    DEREF,
    LDAP,
    RESULT,
    SCOPE,
    client,
    encode_abandon,
    encode_bind_request,
    encode_message,
    encode_sasl_bind,
    encode_search_request,
    encode_simple_bind,
    encode_starttls,
    result_string,
)
from coro.ldap.controls import TreeDelete
from coro.ldap.protocol import BindRequest, SASLCredentials, UnbindRequest

ANYTHING = query.parse_query("(objectClass=*)")
BASE = "dc=example,dc=com"


def test_requests_byte_for_byte() -> None:
    assert encode_message(1, encode_simple_bind(3, "", "")).hex() == "300c020101600702010304008000"
    assert encode_message(1, encode_starttls()) == bytes.fromhex("301d02010177188016") + b"1.3.6.1.4.1.1466.20037"
    search = encode_search_request(BASE, SCOPE.SUBTREE, DEREF.NEVER, 0, 0, False, ANYTHING)
    assert encode_message(2, search).hex() == (
        "30360201026331041164633d6578616d706c652c64633d636f6d0a01020a0100020100020100010100870b6f626a656374436c617373"
        "3000"
    )
    assert encode_search_request(BASE, None, 0, 0, 0, False, "(objectClass=*)") == search
    assert encode_abandon(5).hex() == "500105"
    bind = encode_simple_bind(3, "cn=x", "pw")
    assert bind.hex() == "600d 020103 0404636e3d78 80027077".replace(" ", "")
    assert encode_bind_request(3, "cn=x", ber.CONTEXT(AUTH.simple, False, b"pw")) == bind
    for version in (0, 128):
        with pytest.raises(LocalError, match="from 1 to 127"):
            encode_bind_request(version, "", b"\x80\x00")
    assert encode_sasl_bind(3, "", "EXTERNAL").hex() == "6013 020103 0400 a30c 040845585445524e414c 0400".replace(
        " ", ""
    )
    assert encode_sasl_bind(3, "", "EXTERNAL", None).hex() == "6011 020103 0400 a30a 040845585445524e414c".replace(
        " ", ""
    )


def test_which_attributes() -> None:
    """None for all, and an empty list for none, which has to be said."""

    def names(which: list[str] | None, **compatibility: object) -> object:
        request = encode_search_request(BASE, None, 0, 0, 0, False, ANYTHING, which, compatibility)
        return ber.decode(request)[0][2][1], ber.decode(request)[0][2][7]

    assert names(None) == (2, [])
    assert names([]) == (2, [b"1.1"])
    assert names([], no_attr_attr="none", scope=1) == (1, [b"none"])
    assert names(["cn", "sn"]) == (2, [b"cn", b"sn"])
    with pytest.raises(TypeError, match="list of names"):
        encode_search_request(BASE, None, 0, 0, 0, False, ANYTHING, "cn")


def test_numbers() -> None:
    assert [LDAP.BindRequest, LDAP.SearchResultEntry, LDAP.ExtendedResponse, LDAP.IntermediateResponse] == [
        0,
        4,
        24,
        25,
    ]
    assert (SCOPE.BASE, SCOPE.ONELEVEL, SCOPE.SUBTREE) == (0, 1, 2)
    assert (DEREF.NEVER, DEREF.SEARCHING, DEREF.FINDING, DEREF.ALWAYS) == (0, 1, 2, 3)
    assert (AUTH.simple, AUTH.sasl) == (0, 3)
    assert RESULT.strongAuthRequired == RESULT.strongerAuthRequired == 8
    assert RESULT._reverse_map[32] == "noSuchObject" and RESULT._reverse_map[8] == "strongAuthRequired"
    assert result_string(32) == "noSuchObject"


@in_loop
def test_raw_answers() -> None:
    seen = []

    def script(peer: Conversation) -> None:
        while (request := peer.next()) is not None and not isinstance(request.op, UnbindRequest):
            seen.append(request.op)
            peer.answer(request, 32 if len(seen) == 3 else 0, "gone")

    with Scripted(script) as server, server.client() as directory:
        assert directory.ldap_protocol_version == 3
        assert directory.simple_bind("cn=x", "pw") == ("application", 1, [0, b"", b"gone"])
        assert directory.sasl_bind("", "EXTERNAL", b"dn:x") == ("application", 1, [0, b"", b"gone"])
        assert seen == [BindRequest("cn=x", b"pw"), BindRequest("", SASLCredentials("EXTERNAL", b"dn:x"))]
        found = directory.send_message(encode_search_request(BASE, 0, 0, 0, 0, False, ANYTHING))
        assert found == ("application", 5, [32, b"", b"gone"]) and found.result.code == 32
        directory.unbind()
    with Scripted() as server, client(("127.0.0.1", server.port)) as directory:
        assert directory.default_timeout == 10
        found = directory.search(BASE, SCOPE.SUBTREE, DEREF.NEVER, 0, 0, False, ANYTHING)
        assert found == [[b"cn=x", [[b"cn", [b"x"]]]]]


@in_loop
def test_an_address_that_is_no_url() -> None:
    """It would be the path of a UNIX socket; whoever writes this means something else."""
    for address in ("127.0.0.1:389", "ldap.example.org:389", "[::1]:389"):
        with pytest.raises(LocalError, match='write "ldap://') as caught:
            Client(address)
        assert str(caught.value).endswith(f'"ldap://{address}"')
    with pytest.raises(FileNotFoundError):
        Client("./127.0.0.1:389")
    with pytest.raises(LocalError, match="ldap, ldaps or ldapi, got one with 'http'"):
        Client("http://me:secret@127.0.0.1")
    with Scripted() as server, server.client() as directory:
        for wrong in (TreeDelete(), TreeDelete().control(), TreeDelete.oid):
            with pytest.raises(TypeError, match="expected a list of controls, got"):
                directory.delete("cn=x", wrong)
