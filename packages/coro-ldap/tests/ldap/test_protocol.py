"""Messages of LDAP: vectors, round trips, pieces of a stream, hostile bytes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coro.asn1 import ber
from coro.ldap import exceptions, filters, protocol
from coro.ldap._wire import encode_simple_bind
from coro.ldap.exceptions import Error, LocalError, NoSuchObject, ProtocolError, error_for, result_string
from coro.ldap.protocol import (
    ADD,
    INCREMENT,
    REPLACE,
    STARTTLS,
    AbandonRequest,
    AddRequest,
    AddResponse,
    BindRequest,
    BindResponse,
    Change,
    CompareRequest,
    CompareResponse,
    Control,
    Decoder,
    DelRequest,
    DelResponse,
    Entry,
    ExtendedRequest,
    ExtendedResponse,
    Framer,
    IntermediateResponse,
    Message,
    ModifyDNRequest,
    ModifyDNResponse,
    ModifyRequest,
    ModifyResponse,
    Result,
    SASLCredentials,
    SearchRequest,
    SearchResultDone,
    SearchResultEntry,
    SearchResultReference,
    UnbindRequest,
    decode,
    decode_controls,
    decode_filter,
    encode,
    encode_attributes,
    encode_controls,
    encode_entry,
    encode_message,
    encode_op,
)
from coro.ldap.query import parse

VECTORS = [
    (Message(1, BindRequest()), "300c020101600702010304008000"),
    (Message(2, UnbindRequest()), "30050201024200"),
    (
        Message(1, ExtendedRequest(STARTTLS)),
        "301d020101771880 16".replace(" ", "") + b"1.3.6.1.4.1.1466.20037".hex(),
    ),
    (
        Message(2, SearchRequest("dc=example,dc=com", filter="(objectClass=*)")),
        "30360201026331041164633d6578616d706c652c64633d636f6d0a01020a0100020100020100010100870b6f626a656374436c617373"
        "3000",
    ),
    (Message(6, DelRequest("dc=example,dc=com")), "30160201064a11" + b"dc=example,dc=com".hex()),
    (Message(6, AbandonRequest(5)), "3006020106500105"),
    (Message(7, AbandonRequest(128)), "300702010750020080"),
    (Message(1, BindResponse(0)), "300c02010161070a010004000400"),
    (Message(3, CompareResponse(6)), "300c0201036f070a010604000400"),
]


@pytest.mark.parametrize(("message", "data"), VECTORS)
def test_vectors(message: Message, data: str) -> None:
    assert encode(message).hex() == data
    assert encode(decode(bytes.fromhex(data))).hex() == data


CONTROLS = (
    Control("1.2.840.113556.1.4.319", True, b"\x30\x05\x02\x01\x64\x04\x00"),
    Control("2.16.840.1.113730.3.4.2"),
)
LONG_FILTER = "(&(cn=a*b*c)(!(x>=1))(|(y<=2)(z~=3))(a:dn:2.5.13.2:=v)(b=*))"
EVERY: list[Any] = [
    BindRequest("cn=x", b"secret"),
    BindRequest("", SASLCredentials("PLAIN", b"\0u\0p")),
    BindRequest("", SASLCredentials("CRAM-MD5")),
    BindResponse(14, "", "more", credentials=b"challenge"),
    BindResponse(49, "", "no"),
    UnbindRequest(),
    SearchRequest("dc=x", 1, parse(LONG_FILTER), ["cn", "+"], 3, 9, 8, True),
    SearchResultEntry(Entry("cn=\u00e9", {"cn": [b"\xff", b""], "jpegPhoto": []})),
    SearchResultDone(32, "dc=x", "not there", ("ldap://a/", "ldap://b/")),
    SearchResultReference(("ldap://other/dc=x??sub",)),
    ModifyRequest("cn=x", [Change(ADD, "a", [b"1"]), Change(REPLACE, "b", []), Change(INCREMENT, "c", [b"5"])]),
    ModifyResponse(0),
    AddRequest("cn=x", {"objectClass": [b"top", b"person"], "cn": [b"x"]}),
    AddResponse(68),
    DelRequest("cn=x"),
    DelResponse(66),
    ModifyDNRequest("cn=x", "cn=y", False, "dc=z"),
    ModifyDNRequest("cn=x", "cn=y"),
    ModifyDNResponse(0),
    CompareRequest("cn=x", "cn", b"x"),
    CompareResponse(5),
    AbandonRequest(2147483647),
    ExtendedRequest("1.3.6.1.4.1.4203.1.11.3"),
    ExtendedRequest("1.2.3", b"value"),
    ExtendedResponse(0, name="1.2.3", value=b"value"),
    ExtendedResponse(2),
    IntermediateResponse("1.2.3", b"v"),
    IntermediateResponse(),
]


@pytest.mark.parametrize("op", EVERY, ids=lambda op: type(op).__name__)
@pytest.mark.parametrize("controls", [(), CONTROLS], ids=["bare", "controls"])
def test_each_message_comes_back(op: Any, controls: tuple[Control, ...]) -> None:
    data = encode(Message(77, op, controls))
    back = decode(data)
    if isinstance(op, Result):
        assert back.op.controls == controls  # type: ignore[union-attr]
        back.op.controls = ()  # type: ignore[union-attr]
    assert back == Message(77, op, controls)
    # At every boundary, and several in one piece.
    for cut in range(len(data)):
        decoder = Decoder()
        decoder.feed(data[:cut])
        assert decoder.next_message() is None
        decoder.feed(data[cut:] + data)
        assert decoder.next_message() is not None
        assert decoder.next_message() is not None
        assert decoder.next_message() is None
        decoder.close()


def test_no_secret_in_a_repr() -> None:
    for op in (BindRequest("cn=x", b"s3cret"), BindRequest("", SASLCredentials("PLAIN", b"s3cret"))):
        assert "s3cret" not in repr(Message(1, op))
    assert "s3cret" not in repr(ExtendedRequest("1.2.3", b"s3cret"))


NAMES = st.sampled_from(["cn", "sn", "mail", "cn;lang-de", "1.2.3"])
ENTRIES = st.dictionaries(NAMES, st.lists(st.binary(max_size=200), max_size=5))


@settings(max_examples=30)
@given(st.text(max_size=300), ENTRIES, st.lists(st.integers(0, 400), max_size=4))
def test_entries_in_c_and_in_python(dn: str, attributes: dict[str, list[bytes]], cuts: list[int]) -> None:
    data = encode_entry(9, dn.encode("utf-8", "surrogatepass"), attributes)
    slow = decode(data).op
    assert isinstance(slow, SearchResultEntry) and slow.entry.attributes == attributes
    framer = Framer()
    found: list[Any] = []
    stream = data * 3
    places = [0, *sorted(cuts), len(stream)]
    for begin, end in zip(places, places[1:], strict=False):
        for number, tag, payload in framer.receive(stream[begin:end]):
            assert (number, tag) == (9, 4)
            found += payload
    assert found == [slow.entry] * 3
    assert framer.buffered == 0


def test_entry_is_a_mapping_without_case() -> None:
    entry = Entry("cn=x", {"cn": [b"x", b"y"], "cn;lang-de": [b"z"], "objectGUID": [b"\xff"]})
    assert entry["CN"] == entry.get("Cn") == [b"x", b"y"]
    assert entry.text("CN") == "x" and entry.texts("cn") == ["x", "y"] and entry.texts("none") == []
    assert entry.first("objectguid") == b"\xff" and entry.first("none") is None and entry.get("none", 5) == 5
    assert "objectGuid" in entry and "none" not in entry and 5 not in entry
    assert list(entry) == list(entry.keys()) == ["cn", "cn;lang-de", "objectGUID"] and len(entry) == 3
    assert entry.with_options("CN") == {"cn": [b"x", b"y"], "cn;lang-de": [b"z"]}
    with pytest.raises(KeyError):
        entry["none"]
    with pytest.raises(UnicodeDecodeError):
        entry.text("objectGUID")


def test_an_attribute_that_is_there_twice_loses_nothing() -> None:
    data = encode_entry(1, "cn=x", [("a", [b"1"]), ("b", [b"2"]), ("a", [b"3"])])
    [(_, _, [entry])] = Framer().receive(data)
    assert entry.attributes == {"a": [b"1", b"3"], "b": [b"2"]}


def test_controls_of_an_entry() -> None:
    data = encode_entry(1, "cn=x", {}, controls=encode_controls(CONTROLS))
    [(_, _, [entry])] = Framer().receive(data)
    assert decode_controls(entry.controls) == CONTROLS
    assert decode_controls(b"") == ()


@pytest.mark.parametrize("message_id", [-1, 2147483648])
def test_ids_that_cannot_be_sent(message_id: int) -> None:
    with pytest.raises(LocalError):
        encode(Message(message_id, UnbindRequest()))


@pytest.mark.parametrize(
    "op",
    [
        SearchRequest(scope=4),
        SearchRequest(deref=4),
        SearchRequest(size_limit=-1),
        SearchRequest(filter="(cn="),
        BindRequest(version=0),
        ModifyRequest("cn=x", [Change(4, "a", [])]),
    ],
)
def test_values_that_cannot_be_sent(op: Any) -> None:
    with pytest.raises(LocalError):
        encode(Message(1, op))


@pytest.mark.parametrize(
    "op",
    [AddRequest("cn=x", {"cn": "x"}), SearchRequest(attributes="cn"), ModifyRequest("x", [Change(0, "a", b"v")]), 5],
)
def test_types_that_cannot_be_sent(op: Any) -> None:
    with pytest.raises(TypeError):
        encode(Message(1, op))


def test_unknown_elements_at_the_end_are_skipped() -> None:
    # RFC 4511, 4: implementations ignore elements that they do not know, where the grammar has an ellipsis.
    result = ber.ENUMERATED(0) + ber.OCTET_STRING(b"") * 2 + ber.CONTEXT(30, False, b"new")
    assert decode(encode_message(1, ber.APPLICATION(7, True, result))).op == ModifyResponse(0)
    extended = ber.APPLICATION(23, True, ber.CONTEXT(0, False, b"1.2") + ber.CONTEXT(9, False, b"?"))
    assert decode(encode_message(1, extended)).op == ExtendedRequest("1.2")


BAD = [
    "",
    "0401",
    "3000",
    "30050401024200",
    "3005020102a200",
    "3005020102ff00",
    "3006020102420101",
    "300602010260010a",
    "3005020102" + "6300",
    "300b020101600702010304008100",
    "30090201015804deadbeef",
    "30050201016400",
    "300502010164003000",
    "30800201014200",
]


@pytest.mark.parametrize("data", BAD)
def test_what_is_no_message(data: str) -> None:
    with pytest.raises(ProtocolError):
        decode(bytes.fromhex(data))


def test_an_error_says_which_message_it_was() -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(encode_message(77, ber.APPLICATION(3, True, b"")))
    assert (caught.value.message_id, caught.value.tag) == (77, 3)


def test_a_long_message_is_refused_before_it_comes() -> None:
    framer = Framer(max_message=1000)
    with pytest.raises(ProtocolError, match="at most 1000 bytes"):
        framer.receive(bytes.fromhex("308203e8"))
    with pytest.raises(ProtocolError):
        framer.receive(b"more")


def test_a_message_in_single_bytes_is_not_copied_each_time() -> None:
    data = encode_entry(1, "cn=x", {"a": [b"v" * 900_000]})
    framer = Framer()
    found: list[Any] = []
    for at in range(0, len(data), 16):
        found += framer.receive(data[at : at + 16])
    assert len(found) == 1 and framer.buffered == 0


def test_good_messages_before_a_bad_one_are_given_first() -> None:
    framer = Framer()
    good = encode(Message(1, UnbindRequest()))
    assert len(framer.receive(good + b"HTTP/1.1 400")) == 1
    with pytest.raises(ProtocolError, match="is the peer an LDAP server"):
        framer.receive(b"")


def test_the_end_within_a_message() -> None:
    framer = Framer()
    framer.receive(b"\x30\x05\x02")
    with pytest.raises(ProtocolError, match="ended within"):
        framer.close()


def test_damaged_messages_raise_only_protocol_errors() -> None:
    chance = random.Random(5)
    whole = [encode(Message(3, op, CONTROLS)) for op in EVERY]
    whole.append(encode_entry(3, "cn=x", {"cn": [b"x"], "sn": [b"y", b"z"]}, controls=encode_controls(CONTROLS)))
    for _ in range(4000):
        data = bytearray(chance.choice(whole))
        for _ in range(chance.randint(1, 4)):
            what = chance.randrange(3)
            at = chance.randrange(len(data))
            if what == 0:
                data[at] = chance.randrange(256)
            elif what == 1:
                del data[at : at + chance.randint(1, 3)]
            else:
                data[at:at] = chance.randbytes(2)
            if not data:
                break
        for read in (lambda d: Framer().receive(d), decode):
            try:
                read(bytes(data))
            except ProtocolError:
                pass


FILTERS = ["(cn=x)", "(&)", "(|)", "(!(a=b))", "(a=x*y*z)", "(a=*y)", "(a:=v)", "(:dn:2.5.13.2:=v)", "(a=*)", "(a~=b)"]


@pytest.mark.parametrize("text", FILTERS)
def test_filters_come_back(text: str) -> None:
    assert str(decode_filter(parse(text).encode())) == text


def test_nested_filters_of_a_peer_end() -> None:
    data = filters.Present("x").encode()
    for _ in range(60):
        data = ber.CONTEXT(2, True, data)
    with pytest.raises(ProtocolError):
        decode_filter(data)


@pytest.mark.parametrize("data", ["a000ff", "a3020400", "a40704017830020400", "8a0178", "a900", "a2040401780401"])
def test_what_is_no_filter(data: str) -> None:
    with pytest.raises(ProtocolError):
        decode_filter(bytes.fromhex(data))


def test_each_result_code_has_an_exception() -> None:
    error = error_for(Result(32, "dc=example", "not there"))
    assert type(error) is NoSuchObject and (error.code, error.name) == (32, "noSuchObject")
    assert str(error) == "noSuchObject (32): not there; matched 'dc=example'" and error.error_string == "not there"
    assert str(error_for(Result(10, referrals=("ldap://x/",)))) == "referral (10); try ldap://x/"
    assert type(error_for(Result(9999))) is Error
    assert [result_string(code) for code in (0, 2, 6, 49, 71, 80, 9999)] == [
        "success",
        "protocolError",
        "compareTrue",
        "invalidCredentials",
        "affectsMultipleDSAs",
        "other",
        "unknown (9999)",
    ]
    kinds = [getattr(exceptions, name) for name in exceptions.__all__]
    codes = [kind.code for kind in kinds if isinstance(kind, type) and issubclass(kind, Error) and kind is not Error]
    assert len(set(codes)) == len(codes) == 46


def test_an_error_of_a_raw_answer() -> None:
    error = Error(("application", 5, [32, b"dc=x", b"gone"]))
    assert (error.code, error.result.matched_dn, error.error_string) == (32, "dc=x", "gone")
    with pytest.raises(ProtocolError):
        Error(("context", 5, []))


def test_attributes_alone() -> None:
    assert encode_attributes({"a": ["x"]}) == bytes.fromhex("300a3008040161310304") + b"\x01x"
    assert encode_attributes({"a": ["x"]}, types_only=True) == bytes.fromhex("30073005040161310 0".replace(" ", ""))


@pytest.mark.slow
def test_the_short_way_to_a_result_says_what_the_complete_one_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most answers are a result and nothing else, which is read in C; every damage has to be seen there, too."""

    def read(data: bytes) -> Message | str:
        try:
            return decode(data)
        except ProtocolError as exc:
            return f"{exc} {exc.message_id} {exc.tag}"

    kinds = (BindResponse, SearchResultDone, ModifyResponse, AddResponse, DelResponse, CompareResponse)
    whole = [encode(Message(n * 77, kind(n * 13))) for n, kind in enumerate(kinds)]
    whole += [
        encode(Message(0x7FFFFFFF, BindResponse(0x7FFFFFFF, "dc=é", "no\udcff"))),
        encode(Message(5, BindResponse(14, credentials=b"x"))),
        encode(Message(5, ExtendedResponse(0, "", "x" * 300, name="1.2", value=b""))),
        encode(Message(5, SearchResultDone(10, "", "", ("ldap://a",)))),
        encode(Message(5, SearchResultDone(), (Control("1.2"),))),
        encode(Message(5, DelRequest("cn=x"))),
    ]
    chance = random.Random(7)
    damaged = list(whole)
    for data in whole:
        for place in range(min(len(data), 24)):
            damaged += [data[:place] + bytes([value]) + data[place + 1 :] for value in range(256)]
            damaged += [data[:place] + data[place + 1 :], data[:place], data[:place] + b"\0" + data[place:]]
        for _ in range(300):
            changed = bytearray(data)
            for _ in range(chance.randrange(1, 4)):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            damaged.append(bytes(changed))
    short = [read(data) for data in damaged]
    read_in_c = sum(protocol.plain_result(data) is not None for data in damaged)
    assert read_in_c > 1000
    monkeypatch.setattr(protocol, "plain_result", lambda data: None)
    for data, found in zip(damaged, short, strict=True):
        assert read(data) == found, data.hex()


def test_a_login_as_the_complete_writer_has_it() -> None:
    for version, name, password in [(3, "cn=é", "pä"), (1, "", ""), (127, b"\xff", b"\0" * 300), (3, "x" * 200, "y")]:
        assert encode_simple_bind(version, name, password) == encode_op(
            BindRequest(
                name if isinstance(name, str) else name.decode("utf-8", "surrogateescape"),
                password if isinstance(password, bytes) else password.encode(),
                version,
            )
        )
    for wrong in (0, 128, -1):
        with pytest.raises(LocalError, match="from 1 to 127"):
            encode_simple_bind(wrong, "", "")
    with pytest.raises(TypeError):
        encode_simple_bind(3, 1, "")
