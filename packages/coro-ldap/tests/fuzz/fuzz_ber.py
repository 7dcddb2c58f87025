"""Fuzz target for what reads bytes in coro.asn1: `python packages/coro-ldap/tests/fuzz/fuzz_ber.py [options]`.

Needs atheris (PyPI).  Whatever the bytes are, each reader gives a value or DecodeError, and a node keeps its bytes.
"""

from __future__ import annotations

import sys


def one_input(data: bytes) -> None:
    """What the fuzzer calls."""
    from coro.asn1 import DecodeError, Node, ber, dump, python

    for options in ({}, {"strict": True}, {"indefinite": True, "text": True, "times": True}):
        try:
            ber.decode(data, **options)  # type: ignore[call-overload]
        except DecodeError:
            pass
    try:
        value, end = python.decode(data)
        assert python.decode(python.encode(value))[1] <= end
    except DecodeError:
        pass
    try:
        node = Node.parse(data)
        assert node.encode() == data
        list(node)
    except DecodeError:
        pass
    dump(data)


if __name__ == "__main__":
    import atheris

    with atheris.instrument_imports(include=["coro.asn1"]):
        from coro.asn1 import ber  # noqa: F401 - what is imported here reports its branches
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
