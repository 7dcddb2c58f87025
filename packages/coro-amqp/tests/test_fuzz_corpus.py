"""The fuzz target on its seed corpus, on damaged forms of it, and on random bytes; a fuzzer goes on from there."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

FOLDER = Path(__file__).parent / "fuzz"


def target():
    spec = importlib.util.spec_from_file_location("fuzz_protocol", FOLDER / "fuzz_protocol.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.one_input


def test_the_corpus_and_its_damaged_forms() -> None:
    one_input = target()
    seeds = [path.read_bytes() for path in sorted(FOLDER.glob("corpus/*"))]
    assert len(seeds) >= 8
    chance = random.Random(7)
    for seed in seeds:
        one_input(seed)
        for _ in range(40):
            damaged = bytearray(seed)
            for _ in range(chance.randrange(1, 4)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            one_input(bytes(damaged))
            one_input(bytes(damaged[: chance.randrange(len(damaged))]))


def test_random_bytes() -> None:
    one_input = target()
    chance = random.Random(8)
    for _ in range(300):
        one_input(chance.randbytes(chance.randrange(60)))
