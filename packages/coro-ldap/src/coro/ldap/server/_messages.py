"""Requests as the server reads them, and its answers (RFC 4511, 4.2 to 4.14), without any input or output.

Whatever bytes come give a request or a `ProtocolError`.  A request is a small object with the fields of the RFC in the
order of the RFC; names are text, values bytes.  Filters become the objects of `coro.ldap.filters`, with limits for
their depth and their number of parts.

Cost: one generic decoding of the message, about 10 µs for a search; entries of results, of which there are many, do not
pass here but through the compiled `_wire`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from coro.asn1 import ber
from coro.asn1.exceptions import DecodeError
from coro.ldap import filters
from coro.ldap.exceptions import LocalError, ProtocolError

STARTTLS = "1.3.6.1.4.1.1466.20037"
NOTICE = "1.3.6.1.4.1.1466.20036"
WHOAMI = "1.3.6.1.4.1.4203.1.11.3"
PASSWORD_MODIFY = "1.3.6.1.4.1.4203.1.11.1"
CANCEL = "1.3.6.1.1.8"
PAGED = "1.2.840.113556.1.4.319"
ASSERTION = "1.3.6.1.1.12"
PRE_READ = "1.3.6.1.1.13.1"
POST_READ = "1.3.6.1.1.13.2"
MANAGE_DSA_IT = "2.16.840.1.113730.3.4.2"
TREE_DELETE = "1.2.840.113556.1.4.805"

# Tags of operations (RFC 4511, appendix B); an answer has the number behind its request, except for entries.
BIND, UNBIND, SEARCH, MODIFY, ADD, DELETE, MODIFY_DN, COMPARE, ABANDON, EXTENDED = 0, 2, 3, 6, 8, 10, 12, 14, 16, 23
ANSWERS = {BIND: 1, SEARCH: 5, MODIFY: 7, ADD: 9, DELETE: 11, MODIFY_DN: 13, COMPARE: 15, EXTENDED: 24}


@dataclass(slots=True)
class Control:
    """A control of a request."""

    oid: str
    critical: bool
    value: bytes | None


@dataclass(slots=True)
class Bind:
    version: int
    name: str
    #: None for a simple login.
    mechanism: str | None
    credentials: bytes | None


@dataclass(slots=True)
class Search:
    base: str
    scope: int
    deref: int
    size_limit: int
    time_limit: int
    types_only: bool
    filter: filters.Filter
    attributes: tuple[str, ...]


@dataclass(slots=True)
class Modify:
    name: str
    #: (0 add, 1 delete, 2 replace, 3 increment; attribute; values)
    changes: list[tuple[int, str, list[bytes]]]


@dataclass(slots=True)
class Add:
    name: str
    attributes: list[tuple[str, list[bytes]]]


@dataclass(slots=True)
class Delete:
    name: str


@dataclass(slots=True)
class ModifyDN:
    name: str
    new_rdn: str
    delete_old: bool
    new_superior: str | None


@dataclass(slots=True)
class Compare:
    name: str
    attribute: str
    value: bytes


@dataclass(slots=True)
class Abandon:
    message_id: int


@dataclass(slots=True)
class Unbind:
    pass


@dataclass(slots=True)
class Extended:
    oid: str
    value: bytes | None


Request = Bind | Search | Modify | Add | Delete | ModifyDN | Compare | Abandon | Unbind | Extended


def _wrong(expected: str, got: object) -> ProtocolError:
    return ProtocolError(f"expected {expected}, got {got!r:.60}")


def _bytes(value: Any, what: str) -> bytes:
    if type(value) is not bytes:
        raise _wrong(f"{what}, an OCTET STRING", value)
    return value


def _text(value: Any, what: str) -> str:
    try:
        return _bytes(value, what).decode("utf-8")
    except UnicodeDecodeError:
        raise _wrong(f"{what} in UTF-8", value) from None


def _number(value: Any, what: str, most: int = 0x7FFFFFFF) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise _wrong(f"{what}, a number from 0 to {most}", value)
    return value


def _flag(value: Any, what: str) -> bool:
    if type(value) is not bool:
        raise _wrong(f"{what}, a BOOLEAN", value)
    return value


def _list(value: Any, what: str, least: int = 0, most: int | None = None) -> list[Any]:
    if type(value) is not list or len(value) < least or (most is not None and len(value) > most):
        raise _wrong(what, value)
    return value


def _values(value: Any) -> list[bytes]:
    return [_bytes(one, "a value") for one in _list(value, "values, a SET")]


class Decoder:
    """Reads requests.  depth, parts: how deep filters may be nested, and how many parts one may have."""

    def __init__(self, depth: int, parts: int) -> None:
        self.depth = depth
        self.parts = parts
        self._left = parts

    def request(self, message: bytes) -> tuple[Request, list[Control]]:
        """The request of a whole message, and its controls.  Raises ProtocolError."""
        try:
            content, _ = ber.decode(message)
        except DecodeError as exc:
            raise ProtocolError(f"no LDAP message: {exc}") from exc
        content = _list(content, "a message of an id, an operation and perhaps controls", 2, 3)
        controls = [] if len(content) < 3 else self.controls(content[2])
        op = content[1]
        if type(op) is not tuple or len(op) != 3 or op[0] != "application":
            raise _wrong("an operation", op)
        method = _READERS.get(op[1])
        if method is None:
            raise ProtocolError(f"expected a request, got the operation {op[1]}", tag=op[1])
        try:
            request: Request = method(self, op[2])
        except (LocalError, ValueError) as exc:
            raise ProtocolError(str(exc), tag=op[1]) from None
        except ProtocolError as exc:
            exc.tag = op[1]
            raise
        return request, controls

    def controls(self, content: Any) -> list[Control]:
        if type(content) is not tuple or content[:2] != ("context", 0):
            raise _wrong("controls", content)
        found = []
        for one in _list(content[2], "a list of controls", 0, 100):
            fields = list(_list(one, "a control", 1, 3))
            oid = _text(fields.pop(0), "the name of a control")
            critical = fields.pop(0) if fields and type(fields[0]) is bool else False
            value = _bytes(fields.pop(0), "the value of a control") if fields else None
            if fields:
                raise _wrong("a control", one)
            found.append(Control(oid, critical, value))
        return found

    def _bind(self, content: Any) -> Bind:
        version, name, login = _list(content, "a bind request of three parts", 3, 3)
        _number(version, "a version", 127)
        name = _text(name, "a name")
        if type(login) is not tuple or login[0] != "context":
            raise _wrong("a way to log in", login)
        if login[1] == 0:
            return Bind(version, name, None, _bytes(login[2], "a password"))
        if login[1] == 3:
            parts = _list(login[2], "a mechanism and perhaps credentials", 1, 2)
            credentials = _bytes(parts[1], "credentials") if len(parts) > 1 else None
            return Bind(version, name, _text(parts[0], "a mechanism"), credentials)
        return Bind(version, name, f"[{login[1]}]", None)

    def _unbind(self, content: Any) -> Unbind:
        return Unbind()

    def _search(self, content: Any) -> Search:
        base, scope, deref, size, time, types, text, attributes = _list(content, "a search of eight parts", 8, 8)
        self._left = self.parts
        return Search(
            _text(base, "a base"),
            _number(scope, "a scope", 3),
            _number(deref, "what to do with aliases", 3),
            _number(size, "a limit of entries"),
            _number(time, "a limit of seconds"),
            _flag(types, "typesOnly"),
            self.filter(text),
            tuple(_text(one, "an attribute") for one in _list(attributes, "attributes", 0, 10_000)),
        )

    def _modify(self, content: Any) -> Modify:
        name, changes = _list(content, "a modify request of two parts", 2, 2)
        found = []
        for change in _list(changes, "changes"):
            kind, attribute = _list(change, "a change of two parts", 2, 2)
            attribute, values = _list(attribute, "an attribute and values", 2, 2)
            found.append((_number(kind, "a kind of change", 127), _text(attribute, "an attribute"), _values(values)))
        return Modify(_text(name, "a name"), found)

    def _add(self, content: Any) -> Add:
        name, attributes = _list(content, "an add request of two parts", 2, 2)
        found = []
        for one in _list(attributes, "attributes"):
            attribute, values = _list(one, "an attribute and values", 2, 2)
            found.append((_text(attribute, "an attribute"), _values(values)))
        return Add(_text(name, "a name"), found)

    def _delete(self, content: Any) -> Delete:
        return Delete(_text(content, "a name"))

    def _modify_dn(self, content: Any) -> ModifyDN:
        parts = _list(content, "a modify DN request of three or four parts", 3, 4)
        superior = None
        if len(parts) == 4:
            if type(parts[3]) is not tuple or parts[3][:2] != ("context", 0):
                raise _wrong("a new superior", parts[3])
            superior = _text(parts[3][2], "a new superior")
        return ModifyDN(
            _text(parts[0], "a name"), _text(parts[1], "a relative name"), _flag(parts[2], "deleteoldrdn"), superior
        )

    def _compare(self, content: Any) -> Compare:
        name, assertion = _list(content, "a compare request of two parts", 2, 2)
        attribute, value = _list(assertion, "an attribute and a value", 2, 2)
        return Compare(_text(name, "a name"), _text(attribute, "an attribute"), _bytes(value, "a value"))

    def _abandon(self, content: Any) -> Abandon:
        data = _bytes(content, "the id of a message")
        if not 1 <= len(data) <= 5:
            raise _wrong("the id of a message", data)
        return Abandon(int.from_bytes(data, "big"))

    def _extended(self, content: Any) -> Extended:
        oid = value = None
        for part in _list(content, "an extended request", 1, 2):
            if type(part) is not tuple or part[0] != "context" or part[1] not in (0, 1):
                raise _wrong("the name or the value of an extended request", part)
            if part[1] == 0:
                oid = _text(part[2], "the name of an operation")
            else:
                value = _bytes(part[2], "the value of an operation")
        if oid is None:
            raise _wrong("the name of an operation", content)
        return Extended(oid, value)

    # -- filters

    def only_filter(self, data: bytes) -> filters.Filter:
        """The filter that these bytes are.  Raises ProtocolError."""
        self._left = self.parts
        try:
            return self.filter(ber.decode(data)[0])
        except (LocalError, DecodeError) as exc:
            raise ProtocolError(f"no filter: {exc}") from None

    def filter(self, content: Any, depth: int = 1) -> filters.Filter:
        self._left -= 1
        if depth > self.depth:
            raise ProtocolError(f"expected a filter nested at most {self.depth} deep, got a deeper one")
        if self._left < 0:
            raise ProtocolError(f"expected a filter of at most {self.parts} parts, got more")
        if type(content) is not tuple or content[0] != "context":
            raise _wrong("a filter", content)
        tag, value = content[1], content[2]
        if tag in (0, 1):
            # An empty list has no content that would show that it is one.
            parts = [] if value == b"" else _list(value, "a list of filters")
            return (filters.Or if tag else filters.And)(*(self.filter(part, depth + 1) for part in parts))
        if tag == 2:
            (part,) = _list(value, "one filter", 1, 1)
            return filters.Not(self.filter(part, depth + 1))
        if tag in _ASSERTIONS:
            attribute, assertion = _list(value, "an attribute and a value", 2, 2)
            kind: type[filters.Equal] = _ASSERTIONS[tag]
            return kind(_bytes(attribute, "an attribute"), _bytes(assertion, "a value"))
        if tag == 7:
            return filters.Present(_bytes(value, "an attribute"))
        if tag == 4:
            attribute, pieces = _list(value, "an attribute and pieces", 2, 2)
            return self._substrings(_bytes(attribute, "an attribute"), _list(pieces, "pieces", 1))
        if tag == 9:
            return self._extensible(_list(value, "an extensible match", 1, 4))
        raise ProtocolError(f"expected a filter with a tag from 0 to 9, got {tag}")

    def _substrings(self, attribute: bytes, pieces: list[Any]) -> filters.Filter:
        initial = final = None
        middle = []
        self._left -= len(pieces)
        if self._left < 0:
            raise ProtocolError(f"expected a filter of at most {self.parts} parts, got more")
        for at, piece in enumerate(pieces):
            if type(piece) is not tuple or piece[0] != "context":
                raise _wrong("a piece", piece)
            data = _bytes(piece[2], "a piece")
            if piece[1] == 0 and at == 0:
                initial = data
            elif piece[1] == 1:
                middle.append(data)
            elif piece[1] == 2 and at == len(pieces) - 1:
                final = data
            else:
                raise _wrong("initial first, final last, and any in between", piece)
        return filters.Substrings(attribute, initial, middle, final)

    def _extensible(self, parts: list[Any]) -> filters.Filter:
        found: dict[int, bytes] = {}
        for part in parts:
            if type(part) is not tuple or part[0] != "context" or part[1] not in (1, 2, 3, 4):
                raise _wrong("a part of an extensible match", part)
            found[part[1]] = _bytes(part[2], "a part of an extensible match")
        if 3 not in found:
            raise _wrong("a value to match", parts)
        return filters.Extensible(found.get(2), found[3], found.get(1), found.get(4, b"\0") != b"\0")


_ASSERTIONS: dict[int, Any] = {
    3: filters.Equal,
    5: filters.GreaterOrEqual,
    6: filters.LessOrEqual,
    8: filters.Approximate,
}

_READERS: dict[int, Any] = {
    BIND: Decoder._bind,
    UNBIND: Decoder._unbind,
    SEARCH: Decoder._search,
    MODIFY: Decoder._modify,
    ADD: Decoder._add,
    DELETE: Decoder._delete,
    MODIFY_DN: Decoder._modify_dn,
    COMPARE: Decoder._compare,
    ABANDON: Decoder._abandon,
    EXTENDED: Decoder._extended,
}


# ---- answers


def result(
    tag: int, code: int = 0, matched: str = "", diagnostic: str = "", referrals: Iterable[str] = (), *more: bytes
) -> bytes:
    """An answer that is an LDAPResult (RFC 4511, 4.1.9), with what the operation adds behind it."""
    urls = [ber.OCTET_STRING(url.encode("utf-8")) for url in referrals]
    return ber.APPLICATION(
        tag,
        True,
        b"".join(
            (
                ber.ENUMERATED(code),
                ber.OCTET_STRING(matched.encode("utf-8")),
                ber.OCTET_STRING(diagnostic.encode("utf-8", "replace")),
                ber.CONTEXT(3, True, b"".join(urls)) if urls else b"",
                *more,
            )
        ),
    )


def bind_answer(code: int, diagnostic: str = "", credentials: bytes | None = None) -> bytes:
    """A BindResponse, with the server's SASL credentials if there are any."""
    more = () if credentials is None else (ber.CONTEXT(7, False, credentials),)
    return result(1, code, "", diagnostic, (), *more)


def extended_answer(code: int, diagnostic: str = "", oid: str | None = None, value: bytes | None = None) -> bytes:
    """An ExtendedResponse."""
    more = []
    if oid is not None:
        more.append(ber.CONTEXT(10, False, oid.encode("ascii")))
    if value is not None:
        more.append(ber.CONTEXT(11, False, value))
    return result(24, code, "", diagnostic, (), *more)


def encode_controls(controls: Iterable[tuple[str, bytes]]) -> bytes:
    """The controls of an answer: pairs of an object identifier and a value."""
    found = [ber.SEQUENCE(ber.OCTET_STRING(oid.encode("ascii")), ber.OCTET_STRING(value)) for oid, value in controls]
    return ber.CONTEXT(0, True, b"".join(found)) if found else b""
