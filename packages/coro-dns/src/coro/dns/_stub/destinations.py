"""Addresses in the order in which to try them: RFC 6724, section 6.

For each address the system says from which of its own it would send there: a UDP socket that is connected tells, and
sends nothing. The rules that need what the system does not tell (deprecated and home addresses, native transport) are
left out, as the C library on most systems has it. Cost: three system calls an address; a list of one is left alone.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from functools import cmp_to_key

__all__ = ["in_order", "reachable"]

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# RFC 6724, section 2.1: prefix, precedence, label
_POLICY = [
    (ipaddress.IPv6Network(prefix), precedence, label)
    for prefix, precedence, label in (
        ("::1/128", 50, 0), ("::ffff:0:0/96", 35, 4), ("2002::/16", 30, 2), ("2001::/32", 5, 5), ("fc00::/7", 3, 13),
        ("::/96", 1, 3), ("fec0::/10", 1, 11), ("3ffe::/16", 1, 12), ("::/0", 40, 1),
    )
]  # fmt: skip


def _six(address: _Address) -> ipaddress.IPv6Address:
    if isinstance(address, ipaddress.IPv6Address):
        return address
    return ipaddress.IPv6Address((0xFFFF << 32) | int(address))


def _policy(address: _Address) -> tuple[int, int]:
    six = _six(address)
    return next((precedence, label) for network, precedence, label in _POLICY if six in network)


def _scope(address: _Address) -> int:
    """Section 3.1 and 3.2: 2 link-local, 5 site-local, 14 global; of a multicast address what it says."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.is_multicast:
            return int(address.packed[1] & 15)
        if address.is_site_local:
            return 5
    return 2 if address.is_loopback or address.is_link_local else 14


def _common(one: _Address, other: _Address) -> int:
    """The length of the common prefix, of the first 64 bits (section 2.2)."""
    differ = (int(_six(one)) ^ int(_six(other))) >> 64
    return 64 - differ.bit_length()


def _source(address: str) -> _Address | None:
    """From where the system would send to it; None if it cannot."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect((address, 9))
            return ipaddress.ip_address(sock.getsockname()[0].partition("%")[0])
    except OSError:
        return None


def reachable(version: int) -> bool:
    """Has the system a way to the world with IPv4 or IPv6? (Documentation addresses: nobody is asked.)"""
    return _source("192.0.2.1" if version == 4 else "2001:db8::1") is not None


def in_order(addresses: Sequence[str], sources: dict[str, str] | None = None) -> list[str]:
    """The addresses, the best first; the order among equals stays. `sources`: instead of what the system says."""
    if len(addresses) < 2:
        return list(addresses)
    known: dict[str, tuple[_Address, _Address | None]] = {}
    for text in addresses:
        source: _Address | None
        if sources is None:
            source = _source(text)
        else:
            source = ipaddress.ip_address(sources[text]) if text in sources else None
        known[text] = ipaddress.ip_address(text.partition("%")[0]), source

    def compare(one: str, other: str) -> int:
        (a, a_from), (b, b_from) = known[one], known[other]
        if a_from is None or b_from is None:  # rule 1
            return (a_from is None) - (b_from is None)
        by_scope = (_scope(a) != _scope(a_from)) - (_scope(b) != _scope(b_from))  # rule 2
        (a_precedence, a_label), (b_precedence, b_label) = _policy(a), _policy(b)
        by_label = (a_label != _policy(a_from)[1]) - (b_label != _policy(b_from)[1])  # rule 5
        by_precedence = b_precedence - a_precedence  # rule 6
        by_size = _scope(a) - _scope(b)  # rule 8
        by_prefix = 0
        if a.version == b.version == 6:  # rule 9; for IPv4 it would undo what servers mix on purpose
            by_prefix = _common(b, b_from) - _common(a, a_from)
        return by_scope or by_label or by_precedence or by_size or by_prefix

    return sorted(addresses, key=cmp_to_key(compare))
