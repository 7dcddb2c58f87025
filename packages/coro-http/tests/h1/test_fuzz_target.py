"""The fuzz target of the codec on a corpus of its own, damaged by a seed: what a fuzzer does longer."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

import h1_support

TARGET = Path(__file__).parent.parent / "fuzz" / "fuzz_h1.py"


def test_the_target_on_its_corpus() -> None:
    spec = importlib.util.spec_from_file_location("fuzz_h1", TARGET)
    assert spec is not None and spec.loader is not None
    target = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(target)
    target.one_input(b"")
    for number in range(1500):
        rng = random.Random(number)
        make = h1_support.response if number & 1 else h1_support.request
        data = rng.choice(h1_support.CORPUS) if number % 5 == 0 else make(rng)
        target.one_input(bytes([rng.randrange(256)]) + h1_support.damaged(rng, data))
