"""Elements that stay as they came: a tree of nodes that is written again byte for byte.

`ber.decode` gives values and forgets how they were written.  Signed data must not be written anew: a length in two
bytes where one would do, or a SET in another order, are other bytes.  A node keeps its bytes, and only what is replaced
is encoded again.

    certificate = Node.parse(der)
    serial = certificate.children[0].children[1].value
    assert certificate.encode() == der

Cost: the whole structure is checked once, in C; the nodes of children are made when somebody asks for them, about a
microsecond each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from coro.asn1 import ber
from coro.asn1.exceptions import DecodeError, EncodeError

__all__ = ["Node"]

_CLASS_NAMES = {0x00: "", 0x40: "APPLICATION ", 0x80: "", 0xC0: "PRIVATE "}


class Node:
    """An element: `tag`, `flags` (class and FLAGS_STRUCTURED), its bytes, and its children if it has any.

    A node never changes; `replace` gives another one.  Nodes are equal if their bytes are.
    """

    __slots__ = ("_begin", "_children", "_raw", "flags", "tag")

    tag: int
    flags: int
    _raw: bytes
    _begin: int
    _children: tuple[Node, ...] | None

    def __init__(self, tag: int, flags: int = 0, content: bytes | Sequence[Node] = b"") -> None:
        """A new element of definite length.

        content: bytes, or the children of a constructed one.  Raises as `ber.TLV` does, and DecodeError if the bytes
        for a constructed one are no elements.
        """
        if not isinstance(content, (bytes, bytearray, memoryview)):
            if not flags & ber.FLAGS_STRUCTURED:
                raise EncodeError(f"expected bytes in a primitive element, got children: {content!r:.60}")
            content = b"".join(child.encode() for child in content)
        raw = ber.TLV(tag, flags, bytes(content))
        if flags & ber.FLAGS_STRUCTURED:
            _check(raw, ber.MAX_DEPTH)
        self._set(raw)

    def _set(self, raw: bytes) -> None:
        (self.tag, self.flags, _), self._begin = ber.decode(raw, just_tlv=True)
        self._raw = raw
        self._children = None

    @classmethod
    def _trusted(cls, raw: bytes) -> Node:
        """A node of bytes that were checked."""
        node = object.__new__(cls)
        node._set(raw)
        return node

    @classmethod
    def parse(cls, data: bytes, *, max_depth: int = ber.MAX_DEPTH) -> Node:
        """The node of an element that fills data.

        Raises DecodeError if tags and lengths do not fit together, if there are bytes behind it, or if elements are
        nested deeper than max_depth.  Contents of primitive elements are looked at when `value` is read.
        """
        data = bytes(data)
        end = _check(data, max_depth)
        if end != len(data):
            raise DecodeError(f"expected one element, but {len(data) - end} bytes follow it at byte {end}")
        return cls._trusted(data)

    @property
    def constructed(self) -> bool:
        """Whether it consists of elements."""
        return bool(self.flags & ber.FLAGS_STRUCTURED)

    @property
    def content(self) -> bytes:
        """The bytes behind tag and length."""
        return self._raw[self._begin :]

    @property
    def children(self) -> tuple[Node, ...]:
        """The elements in a constructed one; an empty tuple for a primitive one."""
        if self._children is None:
            self._children = tuple(self._cut()) if self.constructed else ()
        return self._children

    def _cut(self) -> Iterator[Node]:
        at = self._begin
        while at < len(self._raw):
            (_, _, length), begin = ber.decode(self._raw, at, just_tlv=True)
            yield self._trusted(self._raw[at : begin + length])
            at = begin + length

    @property
    def value(self) -> Any:
        """What `ber.decode` gives for it, strings as str and times as datetime.  Raises DecodeError."""
        return ber.decode(self._raw, text=True, times=True, max_element=len(self._raw))[0]

    def encode(self) -> bytes:
        """Its bytes: those it was parsed from, or the shortest encoding if it was made here."""
        return self._raw

    def replace(self, content: bytes | Sequence[Node]) -> Node:
        """The same tag and class with another content: bytes, or children.  Raises as the constructor does."""
        return Node(self.tag, self.flags, content)

    def __getitem__(self, index: int) -> Node:
        return self.children[index]

    def __len__(self) -> int:
        return len(self.children)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.children)

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return self._raw == other._raw if isinstance(other, Node) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._raw)

    def __repr__(self) -> str:
        kind = self.flags & 0xC0
        name = ber.TAG_TABLE.get(self.tag) if kind == 0 else None
        what = name or f"[{_CLASS_NAMES[kind]}{self.tag}]"
        return f"<Node {what}, {len(self._raw) - self._begin} bytes>"


def _check(data: bytes, max_depth: int) -> int:
    """Where the first element ends, when all tags and lengths in it are right.  A stack instead of recursion."""
    ends: list[int] = []
    at = 0
    while True:
        (_, flags, length), begin = ber.decode(data, at, just_tlv=True)
        limit = ends[-1] if ends else len(data)
        if begin + length > limit:
            raise DecodeError(f"the element at byte {at} should end at byte {begin + length}, behind byte {limit}")
        at = begin
        if flags & ber.FLAGS_STRUCTURED:
            if len(ends) >= max_depth:
                raise DecodeError(f"expected elements nested at most {max_depth} deep, got deeper ones at byte {at}")
            ends.append(begin + length)
        else:
            at += length
            if not ends:
                return at
        while ends and at == ends[-1]:
            ends.pop()
            if not ends:
                return at
