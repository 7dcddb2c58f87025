"""Requests as the server reads them: its limits, what is no request, and text that is no UTF-8."""

from __future__ import annotations

import pytest

from coro.asn1 import ber
from coro.ldap import ProtocolError
from coro.ldap._wire import encode_message
from coro.ldap.filters import And, Equal, Filter, Not, Present, Substrings
from coro.ldap.protocol import (
    AddRequest,
    BindRequest,
    BindResponse,
    Change,
    CompareRequest,
    Control,
    DelRequest,
    ExtendedRequest,
    ExtendedResponse,
    Message,
    ModifyDNRequest,
    ModifyRequest,
    SASLCredentials,
    SearchRequest,
    SearchResultDone,
    decode,
    encode,
    encode_op,
)
from coro.ldap.server import _messages as wire

LATIN = "caf\udce9"  # as a name is kept whose bytes are no UTF-8


@pytest.fixture
def decoder() -> wire.Decoder:
    return wire.Decoder(4, 10)


@pytest.mark.parametrize(
    "op",
    [
        BindRequest(LATIN),
        BindRequest("", SASLCredentials(LATIN)),
        SearchRequest(LATIN),
        SearchRequest("", attributes=[LATIN]),
        ModifyRequest(LATIN, []),
        ModifyRequest("", [Change(0, LATIN, [b"x"])]),
        AddRequest(LATIN, {}),
        AddRequest("", {LATIN: [b"x"]}),
        DelRequest(LATIN),
        ModifyDNRequest(LATIN, "cn=x"),
        ModifyDNRequest("", LATIN),
        ModifyDNRequest("", "cn=x", True, LATIN),
        CompareRequest(LATIN, "cn", b""),
        CompareRequest("", LATIN, b""),
        ExtendedRequest(LATIN),
    ],
    ids=repr,
)
def test_names_have_to_be_utf8(decoder: wire.Decoder, op) -> None:
    with pytest.raises(ProtocolError, match="UTF-8") as caught:
        decoder.request(encode(Message(7, op)))
    assert caught.value.message_id == 7 and caught.value.tag in wire.ANSWERS


def test_values_may_be_anything(decoder: wire.Decoder) -> None:
    op = AddRequest("cn=x", {"cn": [b"caf\xe9"]})
    assert decoder.request(encode(Message(1, op))) == (op, ())
    # Names in answers are kept, whatever a server sends.
    assert decode(encode(Message(1, SearchResultDone(0, LATIN)))).op.matched_dn == LATIN


def test_a_login_of_another_kind(decoder: wire.Decoder) -> None:
    """RFC 4511, 4.2: such a choice is for authMethodNotSupported, not for protocolError."""
    op = ber.APPLICATION(0, True, ber.INTEGER(3) + ber.OCTET_STRING(b"cn=x") + ber.CONTEXT(9, False, b"ticket"))
    request, _ = decoder.request(encode_message(1, op))
    assert isinstance(request, BindRequest) and isinstance(request.authentication, SASLCredentials)


@pytest.mark.parametrize("op", [SearchResultDone(), BindResponse(), ExtendedResponse()], ids=repr)
def test_an_answer_is_no_request(decoder: wire.Decoder, op) -> None:
    with pytest.raises(ProtocolError, match="expected a request"):
        decoder.request(encode(Message(1, op)))


GOOD: list[Filter] = [
    Not(Not(Not(Present("cn")))),
    And(*[Present("cn")] * 9),
    Substrings("cn", "a", ["b"] * 7, "c"),
]
BAD: list[Filter] = [
    Not(Not(Not(Not(Present("cn"))))),
    And(*[Equal("cn", "x")] * 10),
    Substrings("cn", "a", ["b"] * 8, "c"),
    And(Substrings("cn", "a", ["b"] * 7, "c")),
]


@pytest.mark.parametrize("filter", GOOD, ids=str)
def test_filters_within_the_limits(decoder: wire.Decoder, filter: Filter) -> None:
    for _ in range(2):  # the second one begins anew
        assert decoder.request(encode(Message(1, SearchRequest("", filter=filter))))[0].filter == filter
        assert decoder.only_filter(filter.encode()) == filter


@pytest.mark.parametrize("filter", BAD, ids=str)
def test_filters_above_the_limits(decoder: wire.Decoder, filter: Filter) -> None:
    with pytest.raises(ProtocolError, match="at most"):
        decoder.request(encode(Message(1, SearchRequest("", filter=filter))))
    with pytest.raises(ProtocolError, match="at most"):
        decoder.only_filter(filter.encode())


def test_many_names_and_controls(decoder: wire.Decoder) -> None:
    decoder.request(encode(Message(1, SearchRequest("", attributes=["cn"] * 10_000), (Control("1.2"),) * 100)))
    with pytest.raises(ProtocolError, match="10000 attributes") as caught:
        decoder.request(encode(Message(1, SearchRequest("", attributes=["cn"] * 10_001))))
    assert caught.value.tag == 3
    with pytest.raises(ProtocolError, match="100 controls"):
        decoder.request(encode(Message(1, DelRequest("cn=x"), (Control("1.2"),) * 101)))


def test_answers() -> None:
    assert wire.result(5) == encode_op(SearchResultDone()) and wire.bind_answer(0) == encode_op(BindResponse())
    assert wire.result(5, 32, "dc=x", "no") == encode_op(SearchResultDone(32, "dc=x", "no"))
    assert wire.bind_answer(14, "", b"x") == encode_op(BindResponse(14, credentials=b"x"))
    assert wire.extended_answer(0, "", "1.2", b"v") == encode_op(ExtendedResponse(name="1.2", value=b"v"))
    for tag in wire.ANSWERS.values():
        message = decode(encode_message(1, wire.result(tag)))
        assert (message.op.code, message.op.diagnostic) == (0, "")
