"""Fuzz target for everything of coro.asn1 that reads bytes: `python packages/coro-ldap/tests/fuzz/fuzz_ber.py [options]`.

Needs atheris (PyPI).  Whatever the bytes are, each reader gives a value or DecodeError; a value of strict DER that has
neither SET, ENUMERATED nor text of other types is written again as the same bytes.
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
