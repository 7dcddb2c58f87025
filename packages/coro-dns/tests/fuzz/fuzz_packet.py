"""Fuzz target for what reads bytes in coro.dns: `python packages/coro-dns/tests/fuzz/fuzz_packet.py [options]`.

Needs atheris (PyPI) and dnspython. Whatever the bytes are, a message gives its values or UnpackError; what was read can
be written, and reads the same. The same bytes are also tried as data of a record: its text gives the data back.

Compiled code does not tell the fuzzer which branches were taken, so inputs are made of messages by chance, as the
comparison with dnspython has them; the fuzzer watches the Python parts, which read and write texts.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path


def one_input(data: bytes) -> None:
    """What the fuzzer calls."""
    from coro.dns import packet

    try:
        unpacker = packet.Unpacker(data)
        _, questions, *sections = unpacker.unpack()
    except packet.UnpackError:
        return text(data)
    for record in (record for section in sections for record in section):
        if isinstance(record[4], bytes):
            text(record[4])
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


def text(data: bytes) -> None:
    """The text of data of the type that its first two bytes are, and of all types with a text of their own."""
    from coro.dns import packet

    first = int.from_bytes(data[:2], "big")
    for rtype, rdata in (
        (first, data[2:]),
        (data[0] % 66 if data else 0, data[1:]),
        (108, data[-6:]),
        (29, data[-16:]),
    ):
        try:
            written = packet.rdata_to_text(rtype, rdata)
        except packet.UnpackError:
            continue
        assert packet.rdata_from_text(rtype, written) == rdata, (rtype, rdata, written)
    try:
        words = data.decode("latin-1")
        again = packet.rdata_from_text(first, words[2:])
    except packet.PackError:
        return
    assert packet.rdata_from_text(first, packet.rdata_to_text(first, again)) == again, (first, words)


def changed(data: bytes, most: int, seed: int) -> bytes:
    """The next input: a message, one with mistakes, data of a record with its type before, or its text."""
    from packet_messages import message, mutated

    from coro.dns import packet

    r = random.Random(seed)
    whole = message(r)
    what = r.randrange(4)
    if what < 2:
        out = whole.to_wire(max_size=65535)
        return (mutated(r, out) if what else out)[:most]
    some = [rdata for rrset in (*whole.answer, *whole.authority, *whole.additional) for rdata in rrset]
    if not some or not data:
        return r.randbytes(r.randrange(1, 40))
    rdata = r.choice(some)
    wire = rdata.to_wire() or b""
    if what == 2:
        return (rdata.rdtype.to_bytes(2, "big") + (mutated(r, wire) if r.random() < 0.8 else wire))[:most]
    line = packet.rdata_to_text(rdata.rdtype, wire).encode()
    return (rdata.rdtype.to_bytes(2, "big") + mutated(r, line))[:most]


if __name__ == "__main__":
    import atheris

    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

    with atheris.instrument_imports(include=["coro.dns"]):
        from coro.dns import packet  # noqa: F401 - what is imported here reports its branches
    atheris.Setup(sys.argv, one_input, custom_mutator=changed)
    atheris.Fuzz()
