"""Fuzz target for the codec of HTTP/1.1: `python packages/coro-http/tests/fuzz/fuzz_h1.py [libFuzzer options]`.

Needs atheris (PyPI). The first byte says which role reads, and where the rest is cut. Whatever the bytes are, nothing
but RemoteError is raised, and the messages are the same wherever they are cut.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def one_input(data: bytes) -> None:
    """What the fuzzer calls."""
    import h1_support

    if not data:
        return
    read = h1_support.client_messages if data[0] & 1 else h1_support.server_messages
    rest = data[1:]
    size = 1 + (data[0] >> 1)
    whole, error = read([rest] if rest else [])
    cut, cut_error = read([rest[i : i + size] for i in range(0, len(rest), size)])
    assert whole == cut
    assert type(error) is type(cut_error)


if __name__ == "__main__":
    import atheris

    with atheris.instrument_imports(include=["coro.http"]):
        from coro.http import h1  # noqa: F401 - what is imported here reports its branches
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
