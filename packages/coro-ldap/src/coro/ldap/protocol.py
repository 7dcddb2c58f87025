"""The messages of LDAP (RFC 4511): objects for each of them, and their encoding both ways, for clients and servers.

    decoder = Decoder()
    decoder.feed(sock.recv(65536))
    while (message := decoder.next_message()) is not None:
        match message.op:
            case SearchRequest(base=base, filter=filter): ...

    sock.sendall(encode(Message(1, SearchRequest("dc=example,dc=org", filter=Present("cn")))))

No sockets and no clock here.  What a peer sends and is no LDAP raises ProtocolError; what the caller wants to send and
cannot be sent raises LocalError.  Lengths are limited by `max_message`, nesting by that of `coro.asn1.ber`.

Cost: some microseconds for each message, of which an object with a slot for each field is the greater part.  Entries of
search results, of which there may be millions, are read and written in C (_wire.pyx).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NoReturn

from coro.asn1 import ber
from coro.asn1.exceptions import DecodeError
from coro.ldap import filters
from coro.ldap._wire import MAX_MESSAGE, Entry, Framer, encode_attributes, encode_entry, encode_message, plain_result
from coro.ldap.exceptions import LocalError, ProtocolError
from coro.ldap.filters import Filter
from coro.ldap.query import parse

__all__ = [
    "ADD",
    "DELETE",
    "INCREMENT",
    "MAX_MESSAGE",
    "NOTICE_OF_DISCONNECTION",
    "REPLACE",
    "STARTTLS",
    "AbandonRequest",
    "AddRequest",
    "AddResponse",
    "BindRequest",
    "BindResponse",
    "Change",
    "CompareRequest",
    "CompareResponse",
    "Control",
    "Decoder",
    "DelRequest",
    "DelResponse",
    "Entry",
    "ExtendedRequest",
    "ExtendedResponse",
    "Framer",
    "IntermediateResponse",
    "Message",
    "ModifyDNRequest",
    "ModifyDNResponse",
    "ModifyRequest",
    "ModifyResponse",
    "Operation",
    "Result",
    "SASLCredentials",
    "SearchRequest",
    "SearchResultDone",
    "SearchResultEntry",
    "SearchResultReference",
    "UnbindRequest",
    "decode",
    "decode_controls",
    "decode_filter",
    "encode",
    "encode_attributes",
    "encode_controls",
    "encode_entry",
    "encode_message",
    "result_of_answer",
]

#: Operations of a `Change` (RFC 4511, 4.6; RFC 4525 for the last).
ADD: Final = 0
DELETE: Final = 1
REPLACE: Final = 2
INCREMENT: Final = 3

#: Object identifiers of RFC 4511, 4.14.1 and 4.4.1.
STARTTLS: Final = "1.3.6.1.4.1.1466.20037"
NOTICE_OF_DISCONNECTION: Final = "1.3.6.1.4.1.1466.20036"

#: RFC 4511, 4.1.1.1, and for limits of searches.
_MAX_INT = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Control:
    """A control (RFC 4511, 4.1.11): object identifier, criticality, and value or None.

    value: bytes; what they mean depends on the identifier.
    """

    oid: str
    critical: bool = False
    value: bytes | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.oid, str):
            raise TypeError(f"expected the object identifier as str, not {type(self.oid).__name__}: {self.oid!r:.60}")


@dataclass(frozen=True, slots=True)
class SASLCredentials:
    """What a bind by SASL carries (RFC 4511, 4.2): the mechanism, and its data or None."""

    mechanism: str
    credentials: bytes | None = field(default=None, repr=False)


@dataclass(slots=True)
class BindRequest:
    """RFC 4511, 4.2.  authentication: a password as bytes, or `SASLCredentials`.  The password is in no repr."""

    name: str = ""
    authentication: bytes | SASLCredentials = field(default=b"", repr=False)
    version: int = 3


@dataclass(slots=True)
class UnbindRequest:
    """RFC 4511, 4.3."""


@dataclass(slots=True)
class SearchRequest:
    """RFC 4511, 4.5.1.

    scope: 0 base, 1 one level, 2 subtree, 3 all below.  deref: aliases, 0 never, 1 searching, 2 finding, 3 always.
    size_limit in entries, time_limit in seconds, 0 for none.  filter: a `Filter`, or its text.  attributes: names; none
    means all that are not operational, "*" the same among others, "+" the operational ones, "1.1" nothing.
    """

    base: str = ""
    scope: int = 2
    filter: Filter | str = field(default_factory=lambda: filters.Present("objectClass"))
    attributes: Sequence[str] = ()
    deref: int = 0
    size_limit: int = 0
    time_limit: int = 0
    types_only: bool = False


@dataclass(slots=True)
class SearchResultEntry:
    """RFC 4511, 4.5.2."""

    entry: Entry


@dataclass(slots=True)
class SearchResultReference:
    """RFC 4511, 4.5.3: the search goes on at these URLs, which are equivalent."""

    urls: tuple[str, ...]


@dataclass(slots=True)
class Result:
    """LDAPResult (RFC 4511, 4.1.9): code, name of the lowest entry that was found, the server's words, other servers.

    controls: those that came with it; a client sets them.
    """

    code: int = 0
    matched_dn: str = ""
    diagnostic: str = ""
    referrals: tuple[str, ...] = ()
    controls: tuple[Control, ...] = field(default=(), kw_only=True)


@dataclass(slots=True)
class BindResponse(Result):
    """RFC 4511, 4.2.2.  credentials: what the mechanism of SASL needs, or None."""

    credentials: bytes | None = field(default=None, repr=False)


@dataclass(slots=True)
class SearchResultDone(Result):
    """RFC 4511, 4.5.2: the end of a search."""


@dataclass(slots=True)
class Change:
    """One change of an entry: ADD, DELETE, REPLACE or INCREMENT, the attribute, its values."""

    operation: int
    attribute: str
    values: Sequence[bytes | str] = ()


@dataclass(slots=True)
class ModifyRequest:
    """RFC 4511, 4.6.  The changes are made in this order, all or none."""

    dn: str
    changes: Sequence[Change]


@dataclass(slots=True)
class ModifyResponse(Result):
    """RFC 4511, 4.6."""


@dataclass(slots=True)
class AddRequest:
    """RFC 4511, 4.7."""

    dn: str
    attributes: Mapping[str, Sequence[bytes | str]]


@dataclass(slots=True)
class AddResponse(Result):
    """RFC 4511, 4.7."""


@dataclass(slots=True)
class DelRequest:
    """RFC 4511, 4.8."""

    dn: str


@dataclass(slots=True)
class DelResponse(Result):
    """RFC 4511, 4.8."""


@dataclass(slots=True)
class ModifyDNRequest:
    """RFC 4511, 4.9.  new_superior: None if the entry stays where it is."""

    dn: str
    newrdn: str
    delete_old: bool = True
    new_superior: str | None = None


@dataclass(slots=True)
class ModifyDNResponse(Result):
    """RFC 4511, 4.9."""


@dataclass(slots=True)
class CompareRequest:
    """RFC 4511, 4.10."""

    dn: str
    attribute: str
    value: bytes | str


@dataclass(slots=True)
class CompareResponse(Result):
    """RFC 4511, 4.10: code 6 for true, 5 for false."""


@dataclass(slots=True)
class AbandonRequest:
    """RFC 4511, 4.11."""

    message_id: int


@dataclass(slots=True)
class ExtendedRequest:
    """RFC 4511, 4.12."""

    name: str
    value: bytes | None = field(default=None, repr=False)


@dataclass(slots=True)
class ExtendedResponse(Result):
    """RFC 4511, 4.12, with message id 0 also an unsolicited notification (4.4)."""

    name: str | None = None
    value: bytes | None = field(default=None, repr=False)


@dataclass(slots=True)
class IntermediateResponse:
    """RFC 4511, 4.13."""

    name: str | None = None
    value: bytes | None = None


Operation = (
    BindRequest
    | BindResponse
    | UnbindRequest
    | SearchRequest
    | SearchResultEntry
    | SearchResultDone
    | ModifyRequest
    | ModifyResponse
    | AddRequest
    | AddResponse
    | DelRequest
    | DelResponse
    | ModifyDNRequest
    | ModifyDNResponse
    | CompareRequest
    | CompareResponse
    | AbandonRequest
    | SearchResultReference
    | ExtendedRequest
    | ExtendedResponse
    | IntermediateResponse
)


@dataclass(slots=True)
class Message:
    """LDAPMessage (RFC 4511, 4.1.1): its id, the operation, the controls."""

    id: int
    op: Operation
    controls: tuple[Control, ...] = ()


# ---- writing


def _text(text: str | bytes, what: str) -> bytes:
    if isinstance(text, bytes):
        return text
    if not isinstance(text, str):
        raise TypeError(f"expected {what} as str, not {type(text).__name__}: {text!r:.60}")
    return text.encode("utf-8", "surrogateescape")


def octets(value: bytes | str | int) -> bytes:
    """The bytes of a value of an attribute; text as UTF-8, numbers in digits, bool as RFC 4517 has it."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, bool):
        return b"TRUE" if value else b"FALSE"
    if isinstance(value, int):
        return b"%d" % value
    raise TypeError(f"expected a value as bytes, str or int, not {type(value).__name__}: {value!r:.60}")


def _string(text: str | bytes, what: str) -> bytes:
    return ber.OCTET_STRING(_text(text, what))


def _limit(number: int, what: str, most: int = _MAX_INT) -> int:
    if not isinstance(number, int) or not 0 <= number <= most:
        raise LocalError(f"expected {what} from 0 to {most}, got {number!r:.60}")
    return number


def as_filter(filter: Filter | str | bytes) -> Filter:
    """The filter itself, or the one of a text."""
    return filter if isinstance(filter, Filter) else parse(filter)


def _encoded_filter(filter: Filter | str | bytes) -> bytes:
    # Most programs have a handful of texts, and each is as good as the next time.
    if type(filter) is str and len(filter) <= 100:
        return _encoded_text(filter)
    return as_filter(filter).encode()


@lru_cache(64)
def _encoded_text(filter: str) -> bytes:
    return parse(filter).encode()


def _bind_request(op: BindRequest) -> bytes:
    if not 1 <= _limit(op.version, "the version", 127):
        raise LocalError("expected a version from 1 to 127, got 0 (RFC 4511, 4.2)")
    how = op.authentication
    if isinstance(how, SASLCredentials):
        login = ber.CONTEXT(
            3,
            True,
            _string(how.mechanism, "the mechanism")
            + (b"" if how.credentials is None else ber.OCTET_STRING(how.credentials)),
        )
    else:
        login = ber.CONTEXT(0, False, _text(how, "the password"))
    return ber.APPLICATION(0, True, ber.INTEGER(op.version) + _string(op.name, "the name") + login)


def _search_request(op: SearchRequest) -> bytes:
    if isinstance(op.attributes, (str, bytes)):
        raise TypeError(f"expected a list of names of attributes, got {op.attributes!r:.60}; write [{op.attributes!r}]")
    return ber.APPLICATION(
        3,
        True,
        b"".join(
            (
                _string(op.base, "the base"),
                ber.ENUMERATED(_limit(op.scope, "the scope", 3)),
                ber.ENUMERATED(_limit(op.deref, "deref", 3)),
                ber.INTEGER(_limit(op.size_limit, "the size limit")),
                ber.INTEGER(_limit(op.time_limit, "the time limit")),
                ber.BOOLEAN(op.types_only),
                _encoded_filter(op.filter),
                ber.SEQUENCE(*[_string(name, "the name of an attribute") for name in op.attributes]),
            )
        ),
    )


def _modify_request(op: ModifyRequest) -> bytes:
    changes = [
        ber.SEQUENCE(
            ber.ENUMERATED(_limit(change.operation, "the operation of a change", 3)),
            _partial(change.attribute, change.values),
        )
        for change in op.changes
    ]
    return ber.APPLICATION(6, True, _string(op.dn, "the name of the entry") + ber.SEQUENCE(*changes))


def _partial(attribute: str, values: Sequence[bytes | str]) -> bytes:
    if isinstance(values, (str, bytes)):
        raise TypeError(f"expected a list of values of {attribute!r:.60}, got {values!r:.60}; write [{values!r:.60}]")
    return ber.SEQUENCE(
        _string(attribute, "the name of an attribute"),
        ber.SET(*[ber.OCTET_STRING(octets(value)) for value in values]),
    )


def _add_request(op: AddRequest) -> bytes:
    pairs = [(name, [octets(value) for value in _listed(name, values)]) for name, values in op.attributes.items()]
    return ber.APPLICATION(8, True, _string(op.dn, "the name of the entry") + encode_attributes(pairs))


def _listed(name: str, values: Sequence[bytes | str]) -> Sequence[bytes | str]:
    if isinstance(values, (str, bytes)):
        raise TypeError(f"expected a list of values of {name!r:.60}, got {values!r:.60}; write [{values!r:.60}]")
    return values


def _modify_dn_request(op: ModifyDNRequest) -> bytes:
    return ber.APPLICATION(
        12,
        True,
        _string(op.dn, "the name of the entry")
        + _string(op.newrdn, "the new relative name")
        + ber.BOOLEAN(op.delete_old)
        + (b"" if op.new_superior is None else ber.CONTEXT(0, False, _text(op.new_superior, "the new superior"))),
    )


def _compare_request(op: CompareRequest) -> bytes:
    pair = ber.SEQUENCE(_string(op.attribute, "the name of an attribute"), ber.OCTET_STRING(octets(op.value)))
    return ber.APPLICATION(14, True, _string(op.dn, "the name of the entry") + pair)


def _extended_request(op: ExtendedRequest) -> bytes:
    value = b"" if op.value is None else ber.CONTEXT(1, False, op.value)
    return ber.APPLICATION(23, True, ber.CONTEXT(0, False, _text(op.name, "the object identifier")) + value)


def _result(op: Result) -> bytes:
    referrals = b""
    if op.referrals:
        urls = b"".join([_string(url, "a URL") for url in op.referrals])
        referrals = ber.CONTEXT(3, True, urls)
    return b"".join(
        (
            ber.ENUMERATED(_limit(op.code, "the result code")),
            _string(op.matched_dn, "the matched name"),
            _string(op.diagnostic, "the diagnostic message"),
            referrals,
        )
    )


def _result_writer(tag: int) -> Callable[[Any], bytes]:
    return lambda op: ber.APPLICATION(tag, True, _result(op))


def _bind_response(op: BindResponse) -> bytes:
    more = b"" if op.credentials is None else ber.CONTEXT(7, False, op.credentials)
    return ber.APPLICATION(1, True, _result(op) + more)


def _extended_response(op: ExtendedResponse) -> bytes:
    name = b"" if op.name is None else ber.CONTEXT(10, False, _text(op.name, "the object identifier"))
    value = b"" if op.value is None else ber.CONTEXT(11, False, op.value)
    return ber.APPLICATION(24, True, _result(op) + name + value)


def _intermediate(op: IntermediateResponse) -> bytes:
    name = b"" if op.name is None else ber.CONTEXT(0, False, _text(op.name, "the object identifier"))
    value = b"" if op.value is None else ber.CONTEXT(1, False, op.value)
    return ber.APPLICATION(25, True, name + value)


def _entry(op: SearchResultEntry) -> bytes:
    content = _string(op.entry.dn, "the name of an entry") + encode_attributes(op.entry)
    return ber.APPLICATION(4, True, content)


def _reference(op: SearchResultReference) -> bytes:
    return ber.APPLICATION(19, True, b"".join([_string(url, "a URL") for url in op.urls]))


_WRITERS: dict[type, Callable[[Any], bytes]] = {
    BindRequest: _bind_request,
    BindResponse: _bind_response,
    UnbindRequest: lambda op: ber.APPLICATION(2, False, b""),
    SearchRequest: _search_request,
    SearchResultEntry: _entry,
    SearchResultDone: _result_writer(5),
    ModifyRequest: _modify_request,
    ModifyResponse: _result_writer(7),
    AddRequest: _add_request,
    AddResponse: _result_writer(9),
    DelRequest: lambda op: ber.APPLICATION(10, False, _text(op.dn, "the name of the entry")),
    DelResponse: _result_writer(11),
    ModifyDNRequest: _modify_dn_request,
    ModifyDNResponse: _result_writer(13),
    CompareRequest: _compare_request,
    CompareResponse: _result_writer(15),
    AbandonRequest: lambda op: ber.APPLICATION(16, False, ber.INTEGER(_limit(op.message_id, "the id"))[2:]),
    SearchResultReference: _reference,
    ExtendedRequest: _extended_request,
    ExtendedResponse: _extended_response,
    IntermediateResponse: _intermediate,
}


def encode_op(op: Operation) -> bytes:
    """The encoded operation, without the message around it.  Raises LocalError or TypeError."""
    writer = _WRITERS.get(type(op))
    if writer is None:
        raise TypeError(f"expected an operation of coro.ldap.protocol, not {type(op).__name__}: {op!r:.60}")
    return writer(op)


def encode_controls(controls: Iterable[Control]) -> bytes:
    """The [0] element of a message (RFC 4511, 4.1.11), or nothing if there are no controls."""
    parts = [
        ber.SEQUENCE(
            _string(control.oid, "the object identifier"),
            ber.BOOLEAN(True) if control.critical else b"",
            b"" if control.value is None else ber.OCTET_STRING(control.value),
        )
        for control in controls
    ]
    return ber.CONTEXT(0, True, b"".join(parts)) if parts else b""


def encode(message: Message) -> bytes:
    """A whole message as bytes.  Raises LocalError for values that LDAP cannot express, TypeError for wrong types."""
    return encode_message(message.id, encode_op(message.op), encode_controls(message.controls))


class UnknownLogin(ProtocolError):
    """A bind by what is neither a password nor SASL; a server answers authMethodNotSupported (RFC 4511, 4.2)."""


# ---- reading: `value` is what `ber.decode` makes of an operation's content


def _bad(expected: str, got: object) -> NoReturn:
    raise ProtocolError(f"expected {expected}, got {got!r:.80}")


def _bytes(value: Any, what: str) -> bytes:
    if type(value) is not bytes:
        _bad(f"{what}, an OCTET STRING", value)
    return value


def _str(value: Any, what: str) -> str:
    if type(value) is not bytes:
        _bad(f"{what}, an OCTET STRING", value)
    return value.decode("utf-8", "surrogateescape")


def _utf8(value: Any, what: str) -> str:
    """Text of a request: a server must not store or compare what is no UTF-8 (RFC 4511, 4.1.2)."""
    try:
        return _bytes(value, what).decode("utf-8")
    except UnicodeDecodeError:
        _bad(f"{what} in UTF-8", value)


def _int(value: Any, what: str, most: int = _MAX_INT) -> int:
    if type(value) is not int or not 0 <= value <= most:
        _bad(f"{what}, from 0 to {most}", value)
    return value


def _bool(value: Any, what: str) -> bool:
    if type(value) is not bool:
        _bad(f"{what}, a BOOLEAN", value)
    return value


def _list(value: Any, what: str, least: int = 0, most: int | None = None) -> list[Any]:
    if type(value) is not list or len(value) < least or (most is not None and len(value) > most):
        _bad(what, value)
    return value


def _tagged(values: Sequence[Any], allowed: Iterable[int], what: str) -> dict[int, Any]:
    """The optional elements at the end of a sequence: context tags, each once.  Unknown ones are skipped, as RFC 4511,
    4, wants it."""
    found: dict[int, Any] = {}
    for value in values:
        if type(value) is not tuple or value[0] != "context":
            _bad(f"optional elements with context tags in {what}", value)
        if value[1] in found:
            _bad(f"each optional element of {what} once", value)
        found[value[1]] = value[2]
    return {tag: found[tag] for tag in allowed if tag in found}


def _read_bind_request(value: Any) -> BindRequest:
    version, name, how = _list(value, "a bind of version, name and login (RFC 4511, 4.2)", 3, 3)
    if type(how) is not tuple or how[0] != "context":
        _bad("a password or SASL credentials (RFC 4511, 4.2)", "something else")
    login: bytes | SASLCredentials
    if how[1] == 0:
        login = _bytes(how[2], "a password")
    elif how[1] == 3:
        parts = _list(how[2], "SASL credentials", 1, 2)
        login = SASLCredentials(
            _utf8(parts[0], "a mechanism"), None if len(parts) < 2 else _bytes(parts[1], "credentials")
        )
    else:
        raise UnknownLogin(f"expected a password (0) or SASL credentials (3) (RFC 4511, 4.2), got the tag {how[1]}")
    return BindRequest(_utf8(name, "a name"), login, _int(version, "a version", 127))


def _read_search_request(value: Any, reader: FilterReader | None = None) -> SearchRequest:
    base, scope, deref, size, time, types, found, names = _list(value, "the 8 parts of a search (4.5.1)", 8, 8)
    return SearchRequest(
        _utf8(base, "a base"),
        _int(scope, "a scope", 3),
        (_FILTERS if reader is None else reader).read(found),
        [_utf8(name, "the name of an attribute") for name in _list(names, "names of attributes, a SEQUENCE")],
        _int(deref, "derefAliases", 3),
        _int(size, "a size limit"),
        _int(time, "a time limit"),
        _bool(types, "typesOnly"),
    )


def _read_attribute(value: Any, text: Callable[[Any, str], str]) -> tuple[str, list[bytes]]:
    name, values = _list(value, "an attribute of name and values (RFC 4511, 4.1.7)", 2, 2)
    return text(name, "the name of an attribute"), [
        _bytes(one, "a value") for one in _list(values, "values of an attribute, a SET")
    ]


def _read_attributes(value: Any, text: Callable[[Any, str], str]) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for one in _list(value, "attributes, a SEQUENCE"):
        name, values = _read_attribute(one, text)
        found.setdefault(name, []).extend(values)
    return found


def _read_modify_request(value: Any) -> ModifyRequest:
    dn, items = _list(value, "a change of name and changes (RFC 4511, 4.6)", 2, 2)
    changes = []
    for item in _list(items, "changes, a SEQUENCE"):
        operation, attribute = _list(item, "a change of operation and attribute (RFC 4511, 4.6)", 2, 2)
        changes.append(Change(_int(operation, "the operation of a change", 3), *_read_attribute(attribute, _utf8)))
    return ModifyRequest(_utf8(dn, "the name of an entry"), changes)


def _read_add_request(value: Any) -> AddRequest:
    dn, attributes = _list(value, "an entry of name and attributes (RFC 4511, 4.7)", 2, 2)
    return AddRequest(_utf8(dn, "the name of an entry"), _read_attributes(attributes, _utf8))


def _read_modify_dn_request(value: Any) -> ModifyDNRequest:
    dn, newrdn, delete_old, *rest = _list(value, "a change of a name (RFC 4511, 4.9)", 3)
    superior = _tagged(rest, (0,), "a change of a name").get(0)
    return ModifyDNRequest(
        _utf8(dn, "the name of an entry"),
        _utf8(newrdn, "a relative name"),
        _bool(delete_old, "deleteoldrdn"),
        None if superior is None else _utf8(superior, "the new superior"),
    )


def _read_compare_request(value: Any) -> CompareRequest:
    dn, pair = _list(value, "a comparison of name and assertion (RFC 4511, 4.10)", 2, 2)
    attribute, wanted = _list(pair, "an assertion of attribute and value (RFC 4511, 4.10)", 2, 2)
    return CompareRequest(
        _utf8(dn, "the name of an entry"), _utf8(attribute, "the name of an attribute"), _bytes(wanted, "a value")
    )


def _read_abandon(value: Any) -> AbandonRequest:
    raw = _bytes(value, "an id")
    if not 1 <= len(raw) <= 5:
        _bad("the id of a message", raw)
    return AbandonRequest(_int(int.from_bytes(raw, "big", signed=True), "the id of a message"))


def _read_extended_request(value: Any) -> ExtendedRequest:
    found = _tagged(_list(value, "an extended request (RFC 4511, 4.12)", 1), (0, 1), "an extended request")
    if 0 not in found:
        _bad("the object identifier of an extended request (RFC 4511, 4.12)", found)
    return ExtendedRequest(
        _utf8(found[0], "an object identifier"), None if 1 not in found else _bytes(found[1], "the value of a request")
    )


def _urls(value: Any) -> tuple[str, ...]:
    return tuple([_str(url, "a URL") for url in _list(value, "URLs (RFC 4511, 4.1.10)")])


def _read_result(value: Any, kind: Any = Result) -> Any:
    code, matched, diagnostic, *rest = _list(value, "a result of code, name and message (RFC 4511, 4.1.9)", 3)
    result = kind(
        _int(code, "a result code"), _str(matched, "the matched name"), _str(diagnostic, "the diagnostic message")
    )
    if rest:
        more = _tagged(rest, (3, 7, 10, 11), "a result")
        if 3 in more:
            result.referrals = _urls(more[3])
        if kind is BindResponse and 7 in more:
            result.credentials = _bytes(more[7], "credentials of the server")
        elif kind is ExtendedResponse:
            if 10 in more:
                result.name = _str(more[10], "the name of a response")
            if 11 in more:
                result.value = _bytes(more[11], "the value of a response")
    return result


def _result_reader(kind: type[Result]) -> Callable[[Any], Any]:
    return lambda value: _read_result(value, kind)


def _read_entry(value: Any) -> SearchResultEntry:
    dn, attributes = _list(value, "an entry of name and attributes (RFC 4511, 4.5.2)", 2, 2)
    return SearchResultEntry(Entry(_str(dn, "the name of an entry"), _read_attributes(attributes, _str)))


def _read_intermediate(value: Any) -> IntermediateResponse:
    found = _tagged(_list(value, "an intermediate response"), (0, 1), "an intermediate response")
    return IntermediateResponse(
        None if 0 not in found else _str(found[0], "the name of a response"),
        None if 1 not in found else _bytes(found[1], "the value of a response"),
    )


def _read_unbind(value: Any) -> UnbindRequest:
    if value != b"":
        _bad("an unbind without content (RFC 4511, 4.3)", value)
    return UnbindRequest()


_READERS: dict[int, Callable[[Any], Any]] = {
    0: _read_bind_request,
    1: _result_reader(BindResponse),
    2: _read_unbind,
    3: _read_search_request,
    4: _read_entry,
    5: _result_reader(SearchResultDone),
    6: _read_modify_request,
    7: _result_reader(ModifyResponse),
    8: _read_add_request,
    9: _result_reader(AddResponse),
    10: lambda value: DelRequest(_utf8(value, "the name of an entry")),
    11: _result_reader(DelResponse),
    12: _read_modify_dn_request,
    13: _result_reader(ModifyDNResponse),
    14: _read_compare_request,
    15: _result_reader(CompareResponse),
    16: _read_abandon,
    19: lambda value: SearchResultReference(_urls(value)),
    23: _read_extended_request,
    24: _result_reader(ExtendedResponse),
    25: _read_intermediate,
}


#: Answers that are often nothing but a result, by their tags.
_RESULTS: dict[int, Any] = {
    1: BindResponse,
    5: SearchResultDone,
    7: ModifyResponse,
    9: AddResponse,
    11: DelResponse,
    13: ModifyDNResponse,
    15: CompareResponse,
    24: ExtendedResponse,
}


class FilterReader:
    """Reads filters (RFC 4511, 4.5.1.7) of what `ber.decode` makes of them.

    depth: how deep they may be nested.  parts: how many filters and pieces of values one may have, None for any number.
    """

    def __init__(self, depth: int = filters.MAX_DEPTH, parts: int | None = None) -> None:
        self.depth = depth
        self.parts = parts
        self._left = 0

    def read(self, value: Any) -> Filter:
        """The filter.  Raises ProtocolError."""
        if self.parts is not None:
            self._left = self.parts
        return self._filter(value, 0)

    def _take(self, number: int) -> None:
        self._left -= number
        if self._left < 0:
            raise ProtocolError(f"expected a filter of at most {self.parts} parts, got more")

    def _filter(self, value: Any, depth: int) -> Filter:
        if self.parts is not None:
            self._take(1)
        if type(value) is not tuple or value[0] != "context":
            _bad("a filter (RFC 4511, 4.5.1.7)", value)
        if depth >= self.depth:
            raise ProtocolError(f"expected filters nested at most {self.depth} deep, got deeper ones")
        _, tag, content = value
        if tag == 7:
            return filters.Present(_bytes(content, "the name of an attribute"))
        parts = _list(content, "a filter (RFC 4511, 4.5.1.7)")
        if tag in (0, 1):
            kind = filters.And if tag == 0 else filters.Or
            return kind(*[self._filter(part, depth + 1) for part in parts])
        if tag == 2 and len(parts) == 1:
            return filters.Not(self._filter(parts[0], depth + 1))
        if tag in _COMPARISONS and len(parts) == 2:
            return _COMPARISONS[tag](_bytes(parts[0], "the name of an attribute"), _bytes(parts[1], "a value"))
        if tag == 4 and len(parts) == 2:
            pieces = _list(parts[1], "pieces of a value", 1)
            if self.parts is not None:
                self._take(len(pieces))
            return _substrings(_bytes(parts[0], "the name of an attribute"), pieces)
        if tag == 9:
            found = _tagged(parts, (1, 2, 3, 4), "an extensible filter")
            if 3 not in found:
                _bad("a value in an extensible filter (RFC 4511, 4.5.1.7.7)", found)
            rule, attribute = (None if n not in found else _bytes(found[n], "a name") for n in (1, 2))
            dn = any(_bytes(found.get(4, b""), "dnAttributes"))
            return filters.Extensible(attribute, _bytes(found[3], "a value"), rule, dn)
        _bad("a filter (RFC 4511, 4.5.1.7)", value)


_FILTERS: Final = FilterReader()


_COMPARISONS: dict[int, Callable[[bytes, bytes], Filter]] = {
    3: filters.Equal,
    5: filters.GreaterOrEqual,
    6: filters.LessOrEqual,
    8: filters.Approximate,
}


def _substrings(attribute: bytes, pieces: list[Any]) -> Filter:
    initial = final = None
    middle: list[bytes] = []
    for number, piece in enumerate(pieces):
        if type(piece) is not tuple or piece[0] != "context" or piece[1] not in (0, 1, 2):
            _bad("a piece of a value (RFC 4511, 4.5.1.7.2)", piece)
        text = _bytes(piece[2], "a piece of a value")
        if piece[1] == 0 and number == 0:
            initial = text
        elif piece[1] == 2 and number == len(pieces) - 1:
            final = text
        elif piece[1] == 1:
            middle.append(text)
        else:
            _bad("the beginning first and the end last among the pieces of a value (RFC 4511, 4.5.1.7.2)", piece)
    return filters.Substrings(attribute, initial, middle, final)


def decode_filter(data: bytes, reader: FilterReader | None = None) -> Filter:
    """The filter of its encoding, as `Filter.encode` makes it.  reader: with other limits.  Raises ProtocolError."""
    try:
        value, end = ber.decode(data)
        if end != len(data):
            _bad("nothing behind a filter", data[end:])
        return (_FILTERS if reader is None else reader).read(value)
    except (DecodeError, LocalError) as exc:
        raise ProtocolError(f"no filter: {exc}") from exc


def _controls_of(value: Any) -> tuple[Control, ...]:
    found = []
    for one in _list(value, "controls (RFC 4511, 4.1.11)"):
        oid, *rest = _list(one, "a control (RFC 4511, 4.1.11)", 1, 3)
        critical = bool(rest.pop(0)) if rest and type(rest[0]) is bool else False
        if len(rest) > 1:
            _bad("a control of identifier, criticality and value (RFC 4511, 4.1.11)", rest)
        found.append(Control(_str(oid, "an object identifier"), critical, _bytes(rest[0], "a value") if rest else None))
    return tuple(found)


def decode_controls(data: bytes) -> tuple[Control, ...]:
    """The controls of the element that `encode_controls` makes; none for no bytes.  Raises ProtocolError."""
    if not data:
        return ()
    try:
        value, end = ber.decode(data)
    except DecodeError as exc:
        raise ProtocolError(f"no controls: {exc}") from exc
    # What stands behind is skipped, as RFC 4511, 4, wants it of elements that a later version may add.
    if type(value) is not tuple or value[:2] != ("context", 0):
        return ()
    return _controls_of(value[2])


def decode(data: bytes, reader: FilterReader | None = None) -> Message:
    """The message of its bytes.

    reader: limits for the filters of searches.  Raises ProtocolError, whose `message_id` and `tag` say which one it was
    if that could be read.
    """
    plain = plain_result(data)
    if plain is not None and plain[1] in _RESULTS:
        return Message(plain[0], _RESULTS[plain[1]](plain[2], plain[3], plain[4]))
    number: int | None = None
    tag: int | None = None
    try:
        value, end = ber.decode(data, max_element=len(data) + 1)
        if end != len(data):
            _bad("nothing behind a message", data[end : end + 40])
        number, op, *rest = _list(value, "a message of id and operation (RFC 4511, 4.1.1)", 2)
        number = _int(number, "the id of a message")
        if type(op) is not tuple or op[0] != "application":
            _bad("an operation (RFC 4511, 4.1.1)", op)
        tag = op[1]
        read = _READERS.get(op[1])
        if read is None:
            _bad("an operation of RFC 4511", f"the tag {op[1]}")
        found = read(op[2]) if tag != 3 else _read_search_request(op[2], reader)
        controls: tuple[Control, ...] = ()
        if rest and type(rest[0]) is tuple and rest[0][:2] == ("context", 0):
            controls = _controls_of(rest[0][2])
        if isinstance(found, Result):
            found.controls = controls
        return Message(number, found, controls)
    except (DecodeError, LocalError) as exc:
        raise ProtocolError(f"no LDAP message: {exc}", number, tag) from exc
    except ProtocolError as exc:
        exc.message_id, exc.tag = number, tag
        raise


class Decoder:
    """Messages out of a stream, for either side.

    max_message: bytes of a message at most.  After a ProtocolError of `feed` the place of the next message is unknown;
    one of `next_message` with a `message_id` concerns only that message.
    """

    def __init__(self, max_message: int = MAX_MESSAGE) -> None:
        self._framer = Framer(max_message, False)
        self._found: list[bytes] = []

    def __repr__(self) -> str:
        return f"<Decoder with {len(self._found)} messages and {self._framer.buffered} bytes>"

    def feed(self, data: bytes) -> None:
        """Take what has arrived.  Raises ProtocolError."""
        self._found[:0] = [payload for _, _, payload in reversed(self._framer.receive(data))]

    def next_message(self) -> Message | None:
        """The next message; None if it is not whole.  Raises ProtocolError."""
        return decode(self._found.pop()) if self._found else None

    def close(self) -> None:
        """Say that nothing more comes.  Raises ProtocolError if a message was begun."""
        self._framer.close()


def result_of_answer(answer: tuple[Any, ...]) -> Result:
    """The `Result` of ("application", tag, [code, matched, diagnostic, ...]), as `ber.decode` makes it of an operation.

    Raises ProtocolError if it is none.
    """
    kind, tag, value = answer
    if kind != "application" or tag not in _READERS:
        _bad("the answer to an operation", answer)
    found = _READERS[tag](value)
    if not isinstance(found, Result):
        _bad("a result", answer)
    return found
