"""Attacks on decoders of ASN.1, each after its advisory: none takes long, goes deep, or raises anything else."""

from __future__ import annotations

import os
import random
import tracemalloc

import pytest
from asn1_values import damaged

from coro.asn1 import DecodeError, IncrementalDecoder, Node, ber, dump, python

OID = ("oid", [1, 2, 840, 1 << 70])
VALUE = [1, -(1 << 70), b"octets", "text", 1.5, None, True, OID, ("context", 3, [("bitstring", (3, b"\xf8"))])]


def everything(data: bytes) -> None:
    """All that reads bytes of a stranger."""
    readers = (
        lambda: ber.decode(data),
        lambda: ber.decode(data, strict=True, text=True, times=True),
        lambda: ber.decode(data, indefinite=True, text=True),
        lambda: python.decode(data),
        lambda: [node.value for node in Node.parse(data)],
        lambda: read_stream(data),
    )
    for reader in readers:
        try:
            reader()
        except DecodeError:
            pass
    dump(data)


def read_stream(data: bytes) -> None:
    decoder = IncrementalDecoder()
    decoder.feed(data)
    decoder.next_value()


@pytest.mark.slow
def test_damaged_values() -> None:
    choice = random.Random(7)
    plain = python.encode([1, "two", b"three", 4.0, (5, {6: 7}), {8}, frozenset([9]), None, True])
    for data in (ber.encode(VALUE), plain):
        for copy in damaged(data, choice, int(os.environ.get("CORO_LDAP_DAMAGED", "1500"))):
            everything(copy)


def test_continuation_bytes_of_an_arc_without_end() -> None:
    """pyasn1, CVE-2026-23490: an OBJECT IDENTIFIER of continuation bytes made it compute a huge number."""
    for size in (21, 1000, 100_000):
        content = b"\x2a" + b"\xff" * size + b"\x7f"
        with pytest.raises(DecodeError, match="at most 20 bytes"):
            ber.decode(ber.TLV(6, 0, content))


def test_nesting_without_end() -> None:
    """pyasn1, CVE-2026-30922: nested elements used up the stack."""
    deep = b""
    for _ in range(10_000):
        deep = ber.TLV(16, ber.FLAGS_STRUCTURED, deep)
    segments = b"a"
    for _ in range(10_000):
        segments = ber.TLV(4, ber.FLAGS_STRUCTURED, segments)
    tuples = b""
    for _ in range(10_000):
        tuples = ber.TLV(0, ber.FLAGS_CONTEXT | ber.FLAGS_STRUCTURED, tuples)
    for data in (deep, segments, tuples, b"\x30\x80" * 10_000, b"\x24\x80" * 10_000, b"\x28\x80" * 10_000):
        with pytest.raises(DecodeError):
            ber.decode(data, indefinite=True)
        everything(data)


def test_exponent_of_gigabytes() -> None:
    """pyasn1, CVE-2026-59886: a REAL with a huge exponent made it compute a number of gigabytes."""
    long = b"\x83\xff\x7f" + b"\xff" * 254 + b"\x01"
    for content in (b"\x83\x04\x7f\xff\xff\xff\x01", long, b"\x031E999999999"):
        with pytest.raises(DecodeError):
            ber.decode(ber.TLV(9, 0, content))
    assert ber.decode(ber.TLV(9, 0, b"\x83\x04\x80\x00\x00\x00\x01"))[0] == 0.0


def test_announced_lengths_allocate_nothing() -> None:
    """RabbitMQ's Java client, CVE-2026-69219, and others: memory was taken by an announced length."""
    stream = IncrementalDecoder(max_element=1 << 30)
    tracemalloc.start()
    try:
        for head in (b"\x04\x84\x7f\xff\xff\xff", b"\x30\x84\x3f\xff\xff\xff", b"\x02\x84\x3f\xff\xff\xff"):
            for read in (ber.decode, python.decode):
                with pytest.raises(DecodeError):
                    read(head + b"x")
        stream.feed(b"\x04\x84\x3f\x00\x00\x00")
        assert repr(stream.next_value()) == "NEED_DATA"
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_plain_values_run_no_code() -> None:
    """Unlike pickle (rpyc, CVE-2024-27758): a name in the data finds what was registered, and nothing else."""
    for name in ("os.system", "builtins.eval", "__reduce__", "object"):
        data = ber.TLV(8, ber.FLAGS_CONTEXT | ber.FLAGS_STRUCTURED, python.encode(name) + python.encode(["id"]))
        with pytest.raises(python.DecodingError, match="registered"):
            python.decode(data, registry=python.Registry())
