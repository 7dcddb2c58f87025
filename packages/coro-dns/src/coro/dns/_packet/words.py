"""Words of zone files: one after the other, and what numbers, names, hexadecimal digits and base64 among them mean.

What is wrong in a text is a PackError.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

from coro.dns._packet.codec import PackError

__all__ = ["Words", "absolute", "from_base64", "from_hex", "number"]


class Words:
    """Tokens, taken one after the other."""

    def __init__(self, words: Sequence[str], origin: str) -> None:
        self.words = words
        self.at = 0
        self.origin = origin

    def next(self) -> str:
        """The next one. Raises PackError at the end."""
        if self.at >= len(self.words):
            raise PackError("the data of the record ends too early")
        self.at += 1
        return self.words[self.at - 1]

    def peek(self) -> str:
        """The next one, which stays; "" at the end."""
        return self.words[self.at] if self.at < len(self.words) else ""

    def rest(self, most: int = 1 << 30) -> Sequence[str]:
        """Those that are left, `most` of them."""
        out = self.words[self.at : self.at + most]
        self.at += len(out)
        return out


def number(words: Words) -> int:
    """The next word, a number."""
    text = words.next()
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise PackError(f"expected a number, not {text!r}")
    return int(text)


def absolute(text: str, origin: str) -> str:
    """A name as a zone file has it, made absolute: ``@`` is the origin, a name without a dot at its end is below it.
    ``origin`` may end with a dot or not."""
    origin = origin.rstrip(".") if not origin.endswith("\\.") else origin
    if text == "@":
        return origin
    if text == ".":
        return ""
    if text.endswith(".") and (len(text) - len(text[:-1].rstrip("\\")) - 1) % 2 == 0:
        name = text[:-1]
    else:
        name = f"{text}.{origin}" if origin else text
    if not name or name.startswith(".") or ".." in name.replace("\\.", "x"):
        raise PackError(f"a name has no empty labels: {text!r}")
    return name


def from_hex(text: str) -> bytes:
    """The bytes of hexadecimal digits."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise PackError(f"expected hexadecimal digits, not {text[:40]!r}") from None


def from_base64(text: str) -> bytes:
    """The bytes that base64 stands for."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise PackError(f"expected base64, not {text[:40]!r}") from None
