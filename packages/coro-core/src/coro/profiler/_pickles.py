"""Reads pickles of plain data from anywhere: numbers, strings, tuples, lists, dictionaries with strings as keys.

`pickle.Unpickler` can be told to name no class, and yet a few bytes keep it busy: a memo of 2**31 entries, a number of
a gigabyte, a key that is a tuple of tuples, each twice the one before. So the opcodes that such data needs are carried
out here, each with work that its own bytes pay for (pickletools.opcodes describes them). Any other opcode is refused.

What is read may have the same list in it many times: whoever goes through it needs a budget, as `_file` has.

Cost: about a microsecond an opcode, ten times that of `pickle`.
"""

from __future__ import annotations

import struct
from typing import Any

__all__ = ["Damaged", "TooShort", "read_pickle"]

_MARK = object()
_CONSTANTS = {b"N": None, b"\x88": True, b"\x89": False}
#: Opcodes with an integer of so many bytes behind them, little-endian: BININT1, BININT2, BININT.
_INTEGERS = {b"K": 1, b"M": 2, b"J": 4}
#: Strings, with the size of their length: SHORT_BINUNICODE, BINUNICODE, BINUNICODE8, and those of Python 2.
_STRINGS = {b"\x8c": 1, b"X": 4, b"\x8d": 8, b"U": 1, b"T": 4}
#: Opcodes that name a class, a function or something outside of the file.
_FOREIGN = frozenset(b"ciopPQRb\x81\x82\x83\x84\x92\x93")


class Damaged(ValueError):
    """The data is no pickle, or one of something else than plain data."""


class TooShort(Damaged):
    """The data ends before the pickle does."""


def read_pickle(data: bytes, at: int) -> tuple[Any, int]:
    """The value of the pickle that begins at ``data[at]``, and where it ends. Damaged when there is none."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    try:
        while True:
            opcode = data[at : at + 1]
            at += 1
            size = _INTEGERS.get(opcode)
            if size is not None:
                stack.append(int.from_bytes(_bytes(data, at, size), "little", signed=opcode == b"J"))
                at += size
            elif opcode == b"\x94":  # MEMOIZE
                memo[len(memo)] = stack[-1]
            elif opcode == b"(":
                stack.append(_MARK)
            elif opcode in b"t\x85\x86\x87" and opcode:  # TUPLE, and those of one to three items
                items = _after_mark(stack) if opcode == b"t" else _last(stack, opcode[0] - 0x84)
                stack.append(tuple(items))
            elif opcode in _STRINGS:
                size = _STRINGS[opcode]
                length = int.from_bytes(_bytes(data, at, size), "little")
                at += size
                text = _bytes(data, at, length)
                stack.append(text.decode("ascii") if opcode in (b"U", b"T") else text.decode("utf-8", "surrogatepass"))
                at += length
            elif opcode in (b"h", b"j"):  # BINGET, LONG_BINGET
                size = 1 if opcode == b"h" else 4
                stack.append(memo[int.from_bytes(_bytes(data, at, size), "little")])
                at += size
            elif opcode in (b"q", b"r"):  # BINPUT, LONG_BINPUT
                size = 1 if opcode == b"q" else 4
                memo[int.from_bytes(_bytes(data, at, size), "little")] = stack[-1]
                at += size
            elif opcode == b"\x8a":  # LONG1
                length = _bytes(data, at, 1)[0]
                if length > 8:
                    raise Damaged(f"expected numbers of at most 8 bytes, not {length}")
                stack.append(int.from_bytes(_bytes(data, at + 1, length), "little", signed=True))
                at += 1 + length
            elif opcode == b"G":
                stack.append(struct.unpack(">d", _bytes(data, at, 8))[0])
                at += 8
            elif opcode in (b"]", b"}", b")"):
                stack.append([] if opcode == b"]" else {} if opcode == b"}" else ())
            elif opcode in (b"a", b"e"):  # APPEND, APPENDS
                items = _after_mark(stack) if opcode == b"e" else _last(stack, 1)
                _list(stack).extend(items)
            elif opcode in (b"s", b"u"):  # SETITEM, SETITEMS
                items = _after_mark(stack) if opcode == b"u" else _last(stack, 2)
                _dict(stack).update(_pairs(items))
            elif opcode == b"l":
                stack.append(list(_after_mark(stack)))
            elif opcode == b"d":
                stack.append(dict(_pairs(_after_mark(stack))))
            elif opcode in _CONSTANTS:
                stack.append(_CONSTANTS[opcode])
            elif opcode == b"\x80":
                at += 1  # PROTOCOL: the opcodes say it all
            elif opcode == b"\x95":
                at += 8  # FRAME: so much may be read at once
            elif opcode == b".":
                (value,) = stack
                if value is _MARK:
                    raise Damaged("a mark is all there is")
                return value, at
            elif not opcode:
                raise TooShort("it ends too early")
            elif opcode[0] in _FOREIGN:
                raise Damaged("it names a class, a function or something outside of the file")
            else:
                raise Damaged(f"it has the opcode {opcode!r}, which no plain data needs")
    except (IndexError, KeyError, ValueError) as e:
        if isinstance(e, Damaged):
            raise
        raise Damaged(f"the pickle is not well-formed before byte {at}: {type(e).__name__}") from None


def _bytes(data: bytes, at: int, size: int) -> bytes:
    found = data[at : at + size]
    if len(found) != size:
        raise TooShort("it ends too early")
    return found


def _after_mark(stack: list[Any]) -> list[Any]:
    """Take what stands above the last mark, and the mark."""
    items = []
    while (item := stack.pop()) is not _MARK:
        items.append(item)
    items.reverse()
    return items


def _last(stack: list[Any], count: int) -> list[Any]:
    items = stack[-count:]
    del stack[-count:]
    if len(items) != count or any(item is _MARK for item in items):
        raise Damaged("items are missing")
    return items


def _list(stack: list[Any]) -> list[Any]:
    if type(stack[-1]) is not list:
        raise Damaged("it appends to something else than a list")
    found: list[Any] = stack[-1]
    return found


def _dict(stack: list[Any]) -> dict[str, Any]:
    if type(stack[-1]) is not dict:
        raise Damaged("it sets items of something else than a dictionary")
    found: dict[str, Any] = stack[-1]
    return found


def _pairs(items: list[Any]) -> list[tuple[str, Any]]:
    if len(items) % 2 or not all(type(key) is str for key in items[::2]):
        raise Damaged("the keys of a dictionary are not all strings")
    return list(zip(items[::2], items[1::2], strict=True))
