"""Search filters as text (RFC 4515): parsed, encoded, escaped.

    parse_query("(&(objectClass=person)(cn=Fr*))")          # the BER that a search request holds
    parse("(cn=Fred)")                                      # Equal("cn", "Fred"), of `coro.ldap.filters`
    format_filter("(&(cn={name})(mail={mail}))", name=typed, mail=typed_too)

The grammar is RFC 4515, section 3, without the blanks that some libraries allow between filters:

    filter      = "(" ( "&" *filter / "|" *filter / "!" filter / item ) ")"
    item        = attr ( "=" / "~=" / ">=" / "<=" ) value
                / attr "=*"
                / attr "=" [value] "*" *( value "*" ) [value]
                / attr [":dn"] [":" rule] ":=" value
                / [":dn"] ":" rule ":=" value
    value       = UTF-8 without NUL ( ) * backslash, which are a backslash and two hexadecimal digits

`(&)` and `(|)` are true and false (RFC 4526).  Nesting ends at 50 levels; names and values are shorter than 4096 bytes.

Cost: one pass; each byte is looked at once or twice.
"""

from __future__ import annotations

import re
import string
from typing import NoReturn

from coro.ldap import filters
from coro.ldap.exceptions import LocalError, QuerySyntaxError
from coro.ldap.filters import Filter, Value, escape_filter_value

__all__ = ["MAX_LENGTH", "QuerySyntaxError", "format_filter", "parse", "parse_query", "query_escape", "ue"]

#: Names and values have fewer bytes.
MAX_LENGTH = 4096

_ITEM = re.compile(rb"([^=~<>:()*\\\0]*)(:=|[~<>]?=|:)")
_EXTENSIBLE = re.compile(rb"(:[Dd][Nn](?=:))?(?::([^:=()*\\\0]+))?:=")
_VALUE = re.compile(rb"[^()\0]*")
_BAD_ESCAPE = re.compile(rb"\\(?![0-9A-Fa-f]{2})")
_ESCAPE = re.compile(rb"\\([0-9A-Fa-f]{2})")
_TO_ESCAPE = re.compile(rb"[\0\\()=<>~*]")

_OPERATORS: dict[bytes, type[filters.Equal | filters.Approximate | filters.GreaterOrEqual | filters.LessOrEqual]] = {
    b"=": filters.Equal,
    b"~=": filters.Approximate,
    b">=": filters.GreaterOrEqual,
    b"<=": filters.LessOrEqual,
}


def query_escape(value: str | bytes) -> bytes:
    """The value with each of NUL and `\\ ( ) = < > ~ *` as a backslash and two lower-case hexadecimal digits."""
    if isinstance(value, str):
        value = value.encode("utf-8")
    return _TO_ESCAPE.sub(lambda match: b"\\%02x" % match[0][0], value)


def ue(value: str | bytes) -> bytes:
    """The value with its escapes undone.  Raises QuerySyntaxError for a backslash without two hexadecimal digits."""
    if isinstance(value, str):
        value = value.encode("utf-8")
    if bad := _BAD_ESCAPE.search(value):
        raise QuerySyntaxError(value, bad.start() + 1, "expected two hexadecimal digits behind the backslash")
    return _ESCAPE.sub(lambda match: bytes((int(match[1], 16),)), value)


def parse_query(text: str | bytes, pos: int = 0) -> bytes:
    """The BER of the filter that begins at pos and goes to the end of the text.

    Raises QuerySyntaxError.
    """
    return parse(text, pos).encode()


def parse(text: str | bytes, pos: int = 0) -> Filter:
    """The filter that begins at pos and goes to the end of the text.  Raises QuerySyntaxError."""
    if not isinstance(text, (str, bytes)):
        raise TypeError(f"expected a filter as str or bytes, not {type(text).__name__}: {text!r:.60}")
    parser = _Parser(text, pos)
    found = parser.filter(1)
    if parser.at != len(parser.data):
        parser.wrong("expected the end behind the filter")
    return found


def format_filter(template: str, /, **values: Value) -> Filter:
    """The filter of a template in which names in braces stand for values.

    Values are escaped and cannot change the filter.  A field has a plain name, without attributes, indexes, conversions
    and formats, and stands where a value may stand.

    Raises LocalError for another kind of field, KeyError for one without a value, and QuerySyntaxError.
    """
    parts = []
    for literal, name, spec, conversion in string.Formatter().parse(template):
        parts.append(literal)
        if name is None:
            continue
        if not name.isidentifier() or spec or conversion:
            raise LocalError(
                f"expected fields such as {{name}} in a filter, got {{{name}}} with a format or conversion"
            )
        # Outside a value, before its "=", an escaped value could still be the name of an attribute.
        behind = "".join(parts).rpartition("(")[2]
        if "=" not in behind:
            raise LocalError(
                f"expected {{{name}}} behind an operator, where a value may stand; build other filters with "
                "coro.ldap.filters"
            )
        parts.append(escape_filter_value(values[name]))
    return parse("".join(parts))


class _Parser:
    """A place in a text, and what may stand there."""

    def __init__(self, text: str | bytes, pos: int) -> None:
        self.text = text
        try:
            self.data = text.encode("utf-8") if isinstance(text, str) else text
        except UnicodeEncodeError as exc:
            raise QuerySyntaxError(text, exc.start, "expected text that UTF-8 can express") from None
        self.at = len(text[:pos].encode("utf-8")) if isinstance(text, str) else pos

    def wrong(self, message: str, at: int | None = None) -> NoReturn:
        """Raise the error; its position counts what the caller gave, characters or bytes."""
        at = self.at if at is None else at
        if isinstance(self.text, str):
            at = len(self.data[:at].decode("utf-8", "replace"))
        raise QuerySyntaxError(self.text, at, message)

    def sees(self, byte: bytes) -> bool:
        if self.data.startswith(byte, self.at):
            self.at += 1
            return True
        return False

    def filter(self, depth: int) -> Filter:
        if not self.sees(b"("):
            self.wrong("expected '('")
        if depth > filters.MAX_DEPTH:
            self.wrong(f"expected filters nested at most {filters.MAX_DEPTH} deep", self.at - 1)
        found: Filter
        if self.sees(b"&"):
            found = filters.And(*self.filters(depth))
        elif self.sees(b"|"):
            found = filters.Or(*self.filters(depth))
        elif self.sees(b"!"):
            found = filters.Not(self.filter(depth + 1))
        else:
            found = self.item()
        if not self.sees(b")"):
            self.wrong("expected ')'")
        return found

    def filters(self, depth: int) -> list[Filter]:
        found = []
        while self.data.startswith(b"(", self.at):
            found.append(self.filter(depth + 1))
        return found

    def item(self) -> Filter:
        begin = self.at
        match = _ITEM.match(self.data, begin)
        if match is None:
            self.at = begin + len(re.match(rb"[^=~<>:()*\\\0]*", self.data[begin:])[0])  # type: ignore[index]
            self.wrong("expected one of = ~= >= <= := behind the attribute")
        name, operator = match[1], match[2]
        if len(name) >= MAX_LENGTH:
            self.wrong(f"expected a name of fewer than {MAX_LENGTH} bytes", begin)
        if operator in (b":", b":="):
            return self.extensible(name or None, begin, match.end(1))
        self.at = match.end()
        raw = self.value()
        pieces = raw.split(b"*")
        try:
            if len(pieces) == 1:
                return _OPERATORS[operator](name, ue(raw))
            if operator != b"=":
                self.wrong("expected a value without a star for this operator", match.end() + len(pieces[0]))
            if raw == b"*":
                return filters.Present(name)
            if b"" in pieces[1:-1]:
                self.wrong("expected something between two stars", match.end() + raw.index(b"**") + 1)
            initial, *middle, final = map(ue, pieces)
            return filters.Substrings(name, initial or None, middle, final or None)
        except QuerySyntaxError:
            raise
        except LocalError as exc:
            raise QuerySyntaxError(self.text, self._position(begin), str(exc)) from None

    def extensible(self, name: bytes | None, begin: int, at: int) -> Filter:
        match = _EXTENSIBLE.match(self.data, at)
        if match is None:
            self.wrong("expected :dn, a matching rule and := behind the attribute", at)
        self.at = match.end()
        raw = self.value()
        if b"*" in raw:
            self.wrong("expected a value without a star for this operator", match.end() + raw.index(b"*"))
        try:
            return filters.Extensible(name, ue(raw), match[2], match[1] is not None)
        except LocalError as exc:
            raise QuerySyntaxError(self.text, self._position(begin), str(exc)) from None

    def value(self) -> bytes:
        """The bytes up to the closing parenthesis, escapes not undone."""
        begin = self.at
        raw = _VALUE.match(self.data, begin)[0]  # type: ignore[index]  # it matches nothing, too
        self.at = begin + len(raw)
        if not self.data.startswith(b")", self.at):
            self.wrong("expected ')' or an escape behind the value")
        if len(raw) >= MAX_LENGTH:
            self.wrong(f"expected a value of fewer than {MAX_LENGTH} bytes", begin)
        if bad := _BAD_ESCAPE.search(raw):
            self.wrong("expected two hexadecimal digits behind the backslash", begin + bad.start() + 1)
        return raw

    def _position(self, at: int) -> int:
        return len(self.data[:at].decode("utf-8", "replace")) if isinstance(self.text, str) else at
