"""Search filters as objects: what a filter means, its text (RFC 4515) and its encoding (RFC 4511, 4.5.1.7).

    from coro.ldap.filters import Equal, Present

    f = Equal("objectClass", "person") & ~Present("loginDisabled") & Equal("cn", whatever_the_user_typed)
    client.search(base, filter=f)

A value is a value here and never part of a text, so nothing in it can change the filter: injection is impossible.
`str(f)` escapes what has to be; `parse(text)` of `coro.ldap.query` gives the objects back.

Cost: a Python object for each part, about a microsecond each to make and to encode.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable

from coro.asn1 import ber
from coro.ldap.exceptions import LocalError

__all__ = [
    "FALSE",
    "MAX_DEPTH",
    "TRUE",
    "And",
    "Approximate",
    "Equal",
    "Extensible",
    "Filter",
    "GreaterOrEqual",
    "LessOrEqual",
    "Not",
    "Or",
    "Present",
    "Substrings",
    "escape_filter_value",
]

#: Levels of filters within filters.  OpenLDAP ends at 1000, Active Directory at 512; no program needs fifty.
MAX_DEPTH = 50

# RFC 4512, 1.4 and 2.5: a name or a numeric object identifier, with options behind it.
_NAME = r"(?:[A-Za-z][A-Za-z0-9-]*|(?:0|[1-9][0-9]*)(?:\.(?:0|[1-9][0-9]*))+)"
_DESCRIPTION = re.compile(_NAME + r"(?:;[A-Za-z0-9-]+)*", re.ASCII)
_OID = re.compile(_NAME, re.ASCII)

# RFC 4515, 3: these five cannot stand for themselves.
_MUST_ESCAPE = re.compile(rb"[\0()*\\]")

Value = str | bytes | bytearray | memoryview | int


def _octets(value: Value) -> bytes:
    """The bytes of an assertion value: text as UTF-8, a number in decimal digits, a bool as RFC 4517, 3.3.3, has it."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return value.encode("utf-8")
        except UnicodeEncodeError as exc:
            raise LocalError(f"expected text that UTF-8 can express: {exc}") from None
    if isinstance(value, bool):
        return b"TRUE" if value else b"FALSE"
    if isinstance(value, int):
        return str(value).encode("ascii")
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"expected a str, bytes, int or bool to compare with, not {type(value).__name__}: {value!r:.60}")


def _attribute(name: str | bytes) -> bytes:
    text = name.decode("ascii", "backslashreplace") if isinstance(name, bytes) else name
    if not isinstance(text, str):
        raise TypeError(f"expected the name of an attribute as str, not {type(name).__name__}: {name!r:.60}")
    if _DESCRIPTION.fullmatch(text) is None:
        raise LocalError(f"expected the name of an attribute (RFC 4512, 2.5) such as 'cn;lang-en', got {text!r:.60}")
    return text.encode("ascii")


def escape_filter_value(value: Value) -> str:
    """The text of a value for a filter: NUL, parentheses, stars and backslashes become a backslash and two
    digits (RFC 4515, 3).

    Bytes that are no UTF-8 are escaped, too, so every value has a text.  Raises TypeError for other types than str,
    bytes, int and bool.
    """
    raw = _MUST_ESCAPE.sub(lambda match: b"\\%02x" % match[0][0], _octets(value))
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return "".join(chr(byte) if byte < 0x80 else f"\\{byte:02x}" for byte in raw)


class Filter(ABC):
    """What all filters have.  They never change, are equal if they mean the same in the same words, and combine by
    `&`, `|` and `~`."""

    __slots__ = ()

    @abstractmethod
    def __str__(self) -> str:
        """The text of RFC 4515."""

    @abstractmethod
    def _encoded(self, depth: int) -> bytes: ...

    @abstractmethod
    def _key(self) -> tuple[object, ...]: ...

    def encode(self) -> bytes:
        """The BER of RFC 4511, 4.5.1.7.  Raises LocalError for filters nested deeper than 50."""
        return self._encoded(0)

    def __and__(self, other: Filter) -> And:
        if not isinstance(other, Filter):
            return NotImplemented
        return And(*_parts(And, self), *_parts(And, other))

    def __or__(self, other: Filter) -> Or:
        if not isinstance(other, Filter):
            return NotImplemented
        return Or(*_parts(Or, self), *_parts(Or, other))

    def __invert__(self) -> Not:
        return Not(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Filter):
            return NotImplemented
        return type(self) is type(other) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self), self._key()))

    def __repr__(self) -> str:
        return f"<Filter {str(self):.200}>"


def _parts(kind: type[And] | type[Or], part: Filter) -> tuple[Filter, ...]:
    return part.filters if type(part) is kind else (part,)


def _deeper(depth: int) -> int:
    if depth >= MAX_DEPTH:
        raise LocalError(f"expected filters nested at most {MAX_DEPTH} deep, got deeper ones; join them with & and |")
    return depth + 1


class _List(Filter):
    """And, Or: any number of filters, also none (RFC 4526)."""

    __slots__ = ("filters",)
    filters: tuple[Filter, ...]
    _tag: int
    _sign: str

    def __init__(self, *filters: Filter) -> None:
        for part in filters:
            if not isinstance(part, Filter):
                raise TypeError(
                    f"expected filters, not {type(part).__name__}: {part!r:.60}; "
                    "coro.ldap.query.parse() makes one of a text"
                )
        self.filters = filters

    def _encoded(self, depth: int) -> bytes:
        depth = _deeper(depth)
        return ber.CONTEXT(self._tag, True, b"".join([part._encoded(depth) for part in self.filters]))

    def __str__(self) -> str:
        return f"({self._sign}{''.join(map(str, self.filters))})"

    def _key(self) -> tuple[object, ...]:
        return self.filters


class And(_List):
    """All of these; And() is always true (RFC 4526)."""

    __slots__ = ()
    _tag = 0
    _sign = "&"


class Or(_List):
    """Any of these; Or() is always false (RFC 4526)."""

    __slots__ = ()
    _tag = 1
    _sign = "|"


#: Matches every entry, and none.
TRUE = And()
FALSE = Or()


class Not(Filter):
    """The opposite of a filter; "undefined" stays undefined."""

    __slots__ = ("filter",)

    def __init__(self, filter: Filter) -> None:
        if not isinstance(filter, Filter):
            raise TypeError(f"expected a filter, not {type(filter).__name__}: {filter!r:.60}")
        self.filter = filter

    def _encoded(self, depth: int) -> bytes:
        return ber.CONTEXT(2, True, self.filter._encoded(_deeper(depth)))

    def __str__(self) -> str:
        return f"(!{self.filter})"

    def _key(self) -> tuple[object, ...]:
        return (self.filter,)


class _Assertion(Filter):
    """An attribute compared with a value: two octet strings in a context tag."""

    __slots__ = ("attribute", "value")
    attribute: str
    value: bytes
    _tag: int
    _sign: str

    def __init__(self, attribute: str | bytes, value: Value) -> None:
        self.attribute = _attribute(attribute).decode("ascii")
        self.value = _octets(value)

    def _encoded(self, depth: int) -> bytes:
        _deeper(depth)
        name = ber.OCTET_STRING(self.attribute.encode("ascii"))
        return ber.CONTEXT(self._tag, True, name + ber.OCTET_STRING(self.value))

    def __str__(self) -> str:
        return f"({self.attribute}{self._sign}{escape_filter_value(self.value)})"

    def _key(self) -> tuple[object, ...]:
        return (self.attribute.lower(), self.value)


class Equal(_Assertion):
    """The attribute has this value, by its equality rule."""

    __slots__ = ()
    _tag = 3
    _sign = "="


class GreaterOrEqual(_Assertion):
    """The attribute has a value that is not before this one."""

    __slots__ = ()
    _tag = 5
    _sign = ">="


class LessOrEqual(_Assertion):
    """The attribute has a value that is not behind this one."""

    __slots__ = ()
    _tag = 6
    _sign = "<="


class Approximate(_Assertion):
    """The attribute has a value that is about this one; servers differ in what that means."""

    __slots__ = ()
    _tag = 8
    _sign = "~="


class Present(Filter):
    """The attribute has a value."""

    __slots__ = ("attribute",)

    def __init__(self, attribute: str | bytes) -> None:
        self.attribute = _attribute(attribute).decode("ascii")

    def _encoded(self, depth: int) -> bytes:
        _deeper(depth)
        return ber.CONTEXT(7, False, self.attribute.encode("ascii"))

    def __str__(self) -> str:
        return f"({self.attribute}=*)"

    def _key(self) -> tuple[object, ...]:
        return (self.attribute.lower(),)


class Substrings(Filter):
    """A value begins with `initial`, ends with `final`, and has `any` in between, in this order and apart."""

    __slots__ = ("any", "attribute", "final", "initial")

    def __init__(
        self,
        attribute: str | bytes,
        initial: Value | None = None,
        any: Iterable[Value] = (),
        final: Value | None = None,
    ) -> None:
        """Raises LocalError if all are missing, or one is empty (RFC 4511, 4.5.1.7.2)."""
        self.attribute = _attribute(attribute).decode("ascii")
        self.initial = None if initial is None else _octets(initial)
        if isinstance(any, (str, bytes)):
            raise TypeError(f"expected a list of pieces for `any`, not {type(any).__name__}: {any!r:.60}")
        self.any = tuple(_octets(piece) for piece in any)
        self.final = None if final is None else _octets(final)
        if b"" in (self.initial, self.final, *self.any):
            raise LocalError("expected pieces that are not empty (RFC 4511, 4.5.1.7.2); leave them out")
        if self.initial is None and self.final is None and not self.any:
            raise LocalError("expected one piece at least; Present() asks for any value")

    def _encoded(self, depth: int) -> bytes:
        _deeper(depth)
        pieces = [ber.CONTEXT(1, False, piece) for piece in self.any]
        if self.initial is not None:
            pieces.insert(0, ber.CONTEXT(0, False, self.initial))
        if self.final is not None:
            pieces.append(ber.CONTEXT(2, False, self.final))
        return ber.CONTEXT(4, True, ber.OCTET_STRING(self.attribute.encode("ascii")) + ber.SEQUENCE(*pieces))

    def __str__(self) -> str:
        pieces = (b"" if self.initial is None else self.initial, *self.any, b"" if self.final is None else self.final)
        return f"({self.attribute}={'*'.join(map(escape_filter_value, pieces))})"

    def _key(self) -> tuple[object, ...]:
        return (self.attribute.lower(), self.initial, self.any, self.final)


class Extensible(Filter):
    """A value is compared by a rule that is named (RFC 4511, 4.5.1.7.7).

    attribute: which one; None means all that the rule fits.  rule: name or object identifier of a matching rule; None
    means the attribute's own.  dn: the attributes of the entry's name are looked at, too.
    """

    __slots__ = ("attribute", "dn", "rule", "value")

    def __init__(
        self, attribute: str | bytes | None, value: Value, rule: str | bytes | None = None, dn: bool = False
    ) -> None:
        self.attribute = None if attribute is None else _attribute(attribute).decode("ascii")
        text = rule.decode("ascii", "backslashreplace") if isinstance(rule, bytes) else rule
        if text is not None and _OID.fullmatch(text) is None:
            raise LocalError(f"expected the name or object identifier of a matching rule, got {text!r:.60}")
        if self.attribute is None and text is None:
            raise LocalError("expected an attribute or a matching rule, or both, got neither")
        self.rule = text
        self.value = _octets(value)
        self.dn = bool(dn)

    def _encoded(self, depth: int) -> bytes:
        _deeper(depth)
        parts = []
        if self.rule is not None:
            parts.append(ber.CONTEXT(1, False, self.rule.encode("ascii")))
        if self.attribute is not None:
            parts.append(ber.CONTEXT(2, False, self.attribute.encode("ascii")))
        parts.append(ber.CONTEXT(3, False, self.value))
        if self.dn:
            parts.append(ber.CONTEXT(4, False, b"\xff"))
        return ber.CONTEXT(9, True, b"".join(parts))

    def __str__(self) -> str:
        rule = "" if self.rule is None else f":{self.rule}"
        return f"({self.attribute or ''}{':dn' if self.dn else ''}{rule}:={escape_filter_value(self.value)})"

    def _key(self) -> tuple[object, ...]:
        return (self.attribute and self.attribute.lower(), self.rule and self.rule.lower(), self.dn, self.value)
