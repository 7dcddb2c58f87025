"""Fuzz target for the WebSocket codec: `python packages/coro-http/tests/fuzz/fuzz_ws.py [libFuzzer options]`.

Needs atheris (PyPI). Whatever the bytes are, and however they are cut, both roles report the same events, and nothing
but WebSocketProtocolError leaves the codec. The first byte of the input says role, deflate and assembling.
"""

from __future__ import annotations

import sys


def one_input(data: bytes) -> None:
    """What the fuzzer calls."""
    from coro.http._ws_handshake import Deflate
    from coro.http.exceptions import WebSocketProtocolError
    from coro.http.ws import Codec

    if len(data) < 2:
        return
    options, cut, wire = data[0], data[1], data[2:]
    outcomes = []
    for pieces in ([wire], [wire[:cut], wire[cut:]], [wire[i : i + 1] for i in range(len(wire))]):
        codec = Codec(
            "client" if options & 1 else "server",
            deflate=Deflate() if options & 2 else None,
            assemble=bool(options & 6),
            max_inflated=100_000,
        )
        seen: list[str] = []
        try:
            for piece in pieces:
                codec.feed(piece)
                seen += map(repr, codec.events())
        except WebSocketProtocolError as e:
            seen.append(str(e.code))
        outcomes.append(seen)
    assert outcomes[0] == outcomes[1] == outcomes[2], outcomes


if __name__ == "__main__":
    import atheris

    with atheris.instrument_imports(include=["coro.http"]):
        from coro.http import ws  # noqa: F401 - what is imported here reports its branches
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
