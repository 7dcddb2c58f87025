"""Fuzz target for the codec: `python fuzz_protocol.py corpus` in this folder.

Needs atheris (PyPI); options of libFuzzer may follow. The first byte of an input chooses the role, the state, and where
the rest is cut in two. Whatever the rest is: the result is events or a ProtocolError, the same events wherever it was
cut, and no body above the limit. `one_input` runs without atheris, on the corpus and on random bytes, in
test_fuzz_corpus.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

LIMIT = 4096


def one_input(data: bytes) -> None:
    """What the fuzzer calls."""
    from protocol_support import Pair

    from coro.amqp import ProtocolError, wire

    if not data:
        return
    choice, data = data[0], data[1:]
    limits = {"max_body": LIMIT, "max_table_depth": 4}

    def run(pieces: list[bytes]) -> tuple[list[str], bool]:
        pair = Pair(client=limits, server=limits, opened=bool(choice & 2))
        if choice & 2:
            pair.open(1)
        end = pair.server if choice & 1 else pair.client
        if end.state == "header" and not choice & 1:
            end.send_header()
        found: list[str] = []
        try:
            for piece in pieces:
                for number, what in end.receive(piece):
                    if isinstance(what, wire.Message):
                        assert len(what.body) <= LIMIT
                        found.append(f"{number} {what!r}")
                        dict(what.properties)
                    else:
                        found.append(f"{number} {what!r}")
            end.receive(b"")
        except ProtocolError:
            return found, True
        return found, False

    cut = len(data) * (choice >> 2) // 64
    whole, failed = run([data])
    parts, also = run([data[:cut], data[cut:]])
    # Properties are only decoded when asked for, so where the stream is cut may decide how far a broken one is read.
    assert failed == also and (failed or whole == parts), (whole, parts)


if __name__ == "__main__":
    import atheris

    with atheris.instrument_imports(include=["coro.amqp"]):
        from coro.amqp import wire  # noqa: F401 - what is imported here reports its branches
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
