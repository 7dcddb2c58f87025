"""Whole objects of the compiled classes that need arguments, for what is done to all of them (test_half_made.py)."""

from __future__ import annotations

from collections.abc import Callable

from coro.dns import _prepared, _wire
from coro.dns._packet import codec
from coro.dns._stub import engine

NAME = _wire.from_text("www.example")
QUESTION = NAME + b"\0\1\0\1"
RECORD = b"\xc0\x0c\0\1\0\1\0\0\1\0\0\4\x7f\0\0\1"
MESSAGE = b"\0\1\x84\0\0\1\0\1\0\0\0\0" + QUESTION + RECORD


def packer() -> codec.Packer:
    made = codec.Packer()
    made.addname("www.example")
    return made


def answer() -> engine.Answer:
    return engine.understood(_wire.parse(MESSAGE, False), MESSAGE, NAME, 1, False)


def cache() -> engine.Cache:
    made = engine.Cache(100000)
    made.put(b"x", answer())
    return made


def answers() -> _prepared.Answers:
    made = _prepared.Answers(10)
    made.put(NAME, 1, False, MESSAGE, 100)
    return made


SAMPLES: dict[str, Callable[[], object]] = {
    "coro.dns._packet.codec.Packer": packer,
    "coro.dns._packet.codec.Unpacker": lambda: codec.Unpacker(MESSAGE),
    "coro.dns._prepared.Answers": answers,
    "coro.dns._prepared.RateLimit": lambda: _prepared.RateLimit(10, 10, bytes(16)),
    "coro.dns._stub.engine.Answer": answer,
    "coro.dns._stub.engine.Cache": cache,
    "coro.dns._stub.engine.Server": lambda: engine.Server(("127.0.0.1", 53)),
    "coro.dns._wire.Message": lambda: _wire.parse(MESSAGE, False),
}
