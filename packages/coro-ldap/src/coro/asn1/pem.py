"""PEM, the textual form of certificates and keys (RFC 7468).

Text around the blocks is skipped, as RFC 7468, section 2, wants it; within a block only base64 is accepted.
"""

from __future__ import annotations

import base64
import binascii
import re

from coro.asn1.exceptions import DecodeError

__all__ = ["pem_decode", "pem_encode"]

# RFC 7468, section 3: a label has no hyphen at its ends, and printable characters otherwise.
_LABEL = r"(?:[\x21-\x2c\x2e-\x7e](?:[- ]?[\x21-\x2c\x2e-\x7e])*)?"
_LABEL_PATTERN = re.compile(_LABEL)
_BEGIN = re.compile(r"^-----BEGIN (" + _LABEL + r")-----[ \t]*\r?$", re.MULTILINE)


def pem_encode(label: str, data: bytes) -> str:
    """The text of a block.

    label: such as "CERTIFICATE".  Raises ValueError for a label that RFC 7468 does not allow.
    """
    if _LABEL_PATTERN.fullmatch(label) is None:
        raise ValueError(f"expected a label such as 'CERTIFICATE', got {label!r:.60}")
    text = base64.b64encode(data).decode("ascii")
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])


def pem_decode(text: str | bytes) -> list[tuple[str, bytes]]:
    """The blocks in a text, in order: (label, bytes).

    Raises DecodeError if a block has no end, ends with another label, or has anything but base64 in it.
    """
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    found = []
    at = 0
    while begin := _BEGIN.search(text, at):
        label = begin[1]
        mark = f"-----END {label}-----"
        end = text.find("-----END ", begin.end())
        if end < 0 or not text.startswith(mark, end):
            raise DecodeError(f"expected {mark!r} behind {begin[0].strip()!r}, got none or another label")
        body = "".join(text[begin.end() : end].split())
        try:
            found.append((label, base64.b64decode(body, validate=True)))
        except binascii.Error as exc:
            raise DecodeError(f"expected base64 in the block {label!r}: {exc}") from None
        at = end + len(mark)
    return found
