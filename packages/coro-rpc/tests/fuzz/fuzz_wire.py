"""Fuzz target for frames and values: `python packages/coro-rpc/tests/fuzz/fuzz_wire.py
packages/coro-rpc/tests/fuzz/corpus`.

Needs atheris (PyPI). Whatever the bytes are: frames give packets or ProtocolError, however they are cut; values give a
value or DecodeError, and what the check of pickles lets pass, the interpreter loads without looking up a name.
"""

from __future__ import annotations

import sys


def one_input(data: bytes) -> None:
    """What the fuzzer calls; the first byte says what the rest is."""
    from coro.rpc import DecodeError, ProtocolError
    from coro.rpc._wire import frames
    from coro.rpc.codecs import JSON, MessagePack, Pickle

    if not data:
        return
    kind, rest = data[0] % 5, data[1:]
    if kind == 0:
        whole, pieces = frames.FrameReader(max_packet=1000), frames.FrameReader(max_packet=1000)
        got: list[list[object]] = [[], []]
        for reader, step, out in ((whole, len(rest) or 1, got[0]), (pieces, 1 + data[0] // 5, got[1])):
            try:
                out += reader.feed(frames.preamble())
                for at in range(0, len(rest), step):
                    out += reader.feed(rest[at : at + step])
            except ProtocolError:
                out.append("refused")
        # A reader that is fed at once does not say what came before the mistake.
        assert got[0] == got[1] or "refused" in got[0], (got, rest)
    else:
        codec = (Pickle(max_memory=1 << 20), Pickle([complex], max_memory=1 << 20), JSON(), MessagePack())[kind - 1]
        try:
            codec.decode(rest, [])
        except DecodeError:
            return


if __name__ == "__main__":
    import atheris

    with atheris.instrument_imports(include=["coro.rpc"]):
        from coro.rpc import codecs  # noqa: F401 - what is imported here reports its branches
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
