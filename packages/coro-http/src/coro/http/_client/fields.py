"""``Headers``: the fields of a request or a response, as a mapping that does not look at the case of names.

A list of pairs in the order of arrival, and an index that is made when somebody asks. Reading by name joins repeated
fields with ", ", as RFC 9110 section 5.3 allows; ``get_list`` gives them singly, which Set-Cookie needs. Whatever is
put in is checked at once (RFC 9110 section 5.5): a line break in a value would be a second header, or a second request.

Beside ``coro.http.header_set``, the classic class of the server, whose subscript gives a list: here a subscript gives
text, as users of requests, httpx and every mapping expect. Cost: a pair for each field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

from coro.http.exceptions import LocalError

__all__ = ["HeaderTypes", "Headers"]

HeaderTypes = Mapping[Any, Any] | Iterable[tuple[Any, Any]]

# RFC 9110 section 5.6.2.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
# RFC 9110 section 5.5: visible characters, blanks and tabs inside, and obs-text.
_VALUE = re.compile(r"(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?\Z")


def _checked_name(name: Any) -> str:
    if isinstance(name, (bytes, bytearray)):
        name = bytes(name).decode("latin-1")
    if not isinstance(name, str):
        raise TypeError(f"expected the name of a header as str or bytes, not {type(name).__name__}: {name!r}")
    if not _TOKEN.match(name):
        raise LocalError(f"expected a header name of the characters of a token (RFC 9110 section 5.6.2), not {name!r}")
    return str(name)


def _checked_value(name: str, value: Any) -> str:
    if isinstance(value, (bytes, bytearray)):
        value = bytes(value).decode("latin-1")
    elif isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    elif not isinstance(value, str):
        raise TypeError(f"expected the value of {name} as str or bytes, not {type(value).__name__}: {value!r}")
    value = str(value).strip(" \t")
    if not _VALUE.match(value):
        bad = next((c for c in value if not _VALUE.match(c) and c not in " \t"), value)
        hint = "encode it as UTF-8 bytes if the server takes that" if ord(bad[0]) > 255 else "take it out"
        raise LocalError(f"the value of the header {name} cannot have the character {bad!r} in it; {hint}")
    return str(value)


class Headers(MutableMapping[str, str]):
    """Header fields::

        headers = Headers({"Accept": "text/html"})
        headers["accept"]                   # 'text/html'
        headers.add("X-Tag", "a")           # beside those of this name that are there
        headers.get_list("Set-Cookie")      # each by itself

    fields: a mapping, or pairs; str or bytes (latin-1), ints as values. TypeError for other types; ``LocalError`` for a
    name that is no token or a value with control characters or characters beyond latin-1.
    """

    __slots__ = ("_fields", "_index", "_version")

    def __init__(self, fields: HeaderTypes | None = None) -> None:
        #: (lower-case name, name as given, value)
        self._fields: list[tuple[str, str, str]] = []
        self._index: dict[str, list[str]] | None = None
        #: Counts changes, for heads that are kept ready.
        self._version = 0
        if fields is not None:
            self.extend(fields)

    @classmethod
    def _trusted(cls, raw: Iterable[tuple[bytes, bytes]]) -> Headers:
        """From fields that the codec has checked."""
        self = cls()
        for name, value in raw:
            text = name.decode("latin-1")
            self._fields.append((text.lower(), text, value.decode("latin-1")))
        return self

    def _changed(self) -> None:
        self._index = None
        self._version += 1

    def _found(self) -> dict[str, list[str]]:
        index = self._index
        if index is None:
            index = self._index = {}
            for lower, _, value in self._fields:
                index.setdefault(lower, []).append(value)
        return index

    def __getitem__(self, name: str) -> str:
        return ", ".join(self._found()[_lower(name)])

    def __setitem__(self, name: str, value: Any) -> None:
        """Put the field in the place of those of its name."""
        name = _checked_name(name)
        field = (name.lower(), name, _checked_value(name, value))
        for place, (lower, _, _) in enumerate(self._fields):
            if lower == field[0]:
                rest = [f for f in self._fields[place + 1 :] if f[0] != lower]
                self._fields[place:] = [field, *rest]
                break
        else:
            self._fields.append(field)
        self._changed()

    def __delitem__(self, name: str) -> None:
        lower = _lower(name)
        kept = [field for field in self._fields if field[0] != lower]
        if len(kept) == len(self._fields):
            raise KeyError(name)
        self._fields = kept
        self._changed()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, (str, bytes)) and _lower(name) in self._found()

    def __iter__(self) -> Iterator[str]:
        return iter(self._found())

    def __len__(self) -> int:
        return len(self._found())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        theirs = other if isinstance(other, Headers) else Headers(other)
        return self._found() == theirs._found()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = [(name, "***" if lower in _SECRET else value) for lower, name, value in self._fields]
        return f"Headers({shown!r})"

    def add(self, name: Any, value: Any) -> None:
        """Add a field beside those of its name. Raises as the class does."""
        name = _checked_name(name)
        self._fields.append((name.lower(), name, _checked_value(name, value)))
        self._changed()

    def extend(self, fields: HeaderTypes) -> None:
        """``add`` each field of a mapping, or of pairs. A value that is a list or tuple stands for several fields."""
        pairs: Any = fields.pairs() if isinstance(fields, Headers) else None
        if pairs is None:
            pairs = fields.items() if isinstance(fields, Mapping) else fields
        for name, value in pairs:
            for one in value if isinstance(value, (list, tuple)) else (value,):
                self.add(name, one)

    def replace(self, fields: HeaderTypes | None) -> None:
        """``extend``, but what was there by these names goes first. A value of None only takes the name out."""
        if not fields:
            return
        pairs: list[tuple[Any, Any]]
        if isinstance(fields, Headers):
            pairs = list(fields.pairs())
        else:
            pairs = list(fields.items() if isinstance(fields, Mapping) else fields)
        names = {_checked_name(name).lower() for name, _ in pairs}
        self._fields = [field for field in self._fields if field[0] not in names]
        self._changed()
        self.extend((name, value) for name, value in pairs if value is not None)

    def discard(self, *names: str) -> None:
        """Take out the fields of these names, if there are any."""
        lower = {_lower(name) for name in names}
        self._fields = [field for field in self._fields if field[0] not in lower]
        self._changed()

    def get_list(self, name: str) -> list[str]:
        """The values of all fields of that name, in the order they came; ``[]`` if there are none."""
        return list(self._found().get(_lower(name), ()))

    def pairs(self) -> Iterator[tuple[str, str]]:
        """(name, value) of each field, as it was written, in order."""
        return ((name, value) for _, name, value in self._fields)

    def copy(self) -> Headers:
        """Another one with the same fields."""
        new = Headers()
        new._fields = self._fields.copy()
        return new

    def _raw(self) -> list[tuple[bytes, bytes]]:
        return [(name.encode("latin-1"), value.encode("latin-1")) for _, name, value in self._fields]


#: Whose values no repr shows.
_SECRET = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "x-auth-token"})


def _lower(name: str | bytes) -> str:
    return name.lower() if isinstance(name, str) else name.decode("latin-1").lower()
