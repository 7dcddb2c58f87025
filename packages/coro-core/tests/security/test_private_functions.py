"""The private functions of the profiler's core, called in any order and with anything: they raise or work."""

import os
import random
import subprocess
import sys

import pytest
from support import LIMIT

PROGRAM = """
import random, sys
import coro
import coro.profiler._core.accounting as core
chance = random.Random(int(sys.argv[1]))
code = compile("1", "x", "eval")
values = [0, 1, 2, 3, 4, 5, -1, 1 << 31, 1 << 70, 1.5, float("nan"), None, "x", b"x", (), (len,), (None,), [], [code],
          [1], True, False, code, len, object(), coro.spawn]
names = ["begin", "adopt", "switch_on", "switch_off", "is_ours", "callback", "take", "abandon"]
arities = [4, 3, 3, 0, 0, 1, 0, 0]

def main():
    values.append(coro.current())
    for _ in range(2000):
        i = chance.randrange(len(names))
        if names[i] == "begin" and chance.random() < 0.7:
            arguments = (chance.choice((core.TICKS, core.RUSAGE)), 1000, 10, 0.01)
        else:
            count = arities[i] if chance.random() < 0.9 else chance.randrange(5)
            arguments = [chance.choice(values) for _ in range(count)]
        try:
            getattr(core, names[i])(*arguments)
        except (Exception, coro.Interrupted):
            pass
        coro.yield_slice()
    core.abandon()

coro.run(main)
"""


@pytest.mark.slow
@pytest.mark.each_python
def test_the_core_of_the_profiler():
    seed = int(os.environ.get("CORO_FUZZ_SEED", random.randrange(1 << 30)))
    print(f"CORO_FUZZ_SEED={seed}")
    for i in range(5):
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", PROGRAM, str(seed + i)],
            env={**os.environ, "PYTHONMALLOC": "debug"}, capture_output=True, text=True, timeout=LIMIT,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
