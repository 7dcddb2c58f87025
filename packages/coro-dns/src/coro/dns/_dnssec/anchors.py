"""Trust anchors out of the text of zone files: comments, parentheses and several lines are read as there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from coro.dns import _wire
from coro.dns._dnssec.signatures import Key
from coro.dns._zone.master import entries
from coro.dns.packet import TYPE, PackError, rdata_from_text

__all__ = ["anchors_of"]


def anchors_of(texts: Iterable[str]) -> dict[bytes, list[bytes]]:
    """Trust anchors out of records like ``. DS 20326 8 2 E06D...``: zone -> data of DS records. What stands between the
    name and DS or DNSKEY does not matter. Raises ValueError."""
    out: dict[bytes, list[bytes]] = {}
    for text in texts:
        try:
            found = [_anchor(entry.words) for entry in entries(text.splitlines(), "<anchor>")]
            if not found:
                raise PackError("there is no DS and no DNSKEY in it")
        except (PackError, ValueError) as e:
            raise ValueError(f"expected a trust anchor like '. DS 20326 8 2 E06D...', not {text!r}: {e}") from None
        for zone, data in found:
            out.setdefault(zone, []).append(data)
    return out


def _anchor(words: list[str]) -> tuple[bytes, bytes]:
    place = next((i for i, word in enumerate(words) if word.upper() in ("DS", "DNSKEY")), 0)
    if not place:
        raise PackError("there is no DS and no DNSKEY in it")
    zone = _wire.from_text(words[0])
    data = rdata_from_text(getattr(TYPE, words[place].upper()), words[place + 1 :])
    if words[place].upper() == "DS":
        return zone, data
    key = Key.read(data)
    if key is None:
        raise PackError("a key that signs zones has the flags 256 or 257, and protocol 3")
    return zone, key.tag.to_bytes(2, "big") + bytes((key.algorithm, 2)) + hashlib.sha256(zone + data).digest()
