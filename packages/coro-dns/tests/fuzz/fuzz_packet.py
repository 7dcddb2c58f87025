"""Fuzz target for what reads bytes in coro.dns: `python packages/coro-dns/tests/fuzz/fuzz_packet.py [options]`.

Needs atheris (PyPI). Whatever the bytes are, a message gives its values or UnpackError; what was read can be written,
and reads the same.
"""

from __future__ import annotations

import sys


def one_input(data: bytes) -> None:
    """What the fuzzer calls."""
    from coro.dns import packet

    try:
        unpacker = packet.Unpacker(data)
        _, questions, *sections = unpacker.unpack()
    except packet.UnpackError:
        return
    p = packet.Packer()
    for question in questions:
        p.addQuestion(*question)
    for section in sections:
        for owner, rtype, klass, ttl, value in section:
            if rtype != "OPT":
                p.addRR(owner, rtype, klass, ttl, value)
    again = packet.Unpacker(p.getbuf())
    for question in questions:
        assert again.getQuestion() == question
    for section in sections:
        for record in section:
            if record[1] != "OPT":
                assert again.getRR() == record


if __name__ == "__main__":
    import atheris

    with atheris.instrument_imports(include=["coro.dns"]):
        from coro.dns import packet  # noqa: F401 - what is imported here reports its branches
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
