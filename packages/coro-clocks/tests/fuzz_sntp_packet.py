"""Fuzz target for NTP packets: `python packages/coro-clocks/tests/fuzz_sntp_packet.py [libFuzzer options]`.

Needs atheris (PyPI).  Whatever the bytes are, decoding gives a packet that encodes to the same header, or PeerError;
and looking at it as an answer gives True, False or PeerError.  `-runs=300000 -max_len=128` takes some
seconds.
"""

from __future__ import annotations

import sys


def one_input(data: bytes) -> None:
    """What the fuzzer calls."""
    from coro.clocks import sntp
    from coro.clocks.sntp_packet import PeerError, decode, encode, to_posix_ns

    try:
        packet = decode(data)
    except PeerError:
        return
    assert encode(packet) == data[:48]
    to_posix_ns(packet.transmit, 0)
    try:
        if sntp.check(packet, packet.originate):
            sntp._sample(("fuzz", 123), packet, 0, 1_000_000)
    except PeerError:
        return


if __name__ == "__main__":
    import atheris

    with atheris.instrument_imports(include=["coro.clocks"]):
        from coro.clocks import sntp  # noqa: F401 - what is imported here reports its branches
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
