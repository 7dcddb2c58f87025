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


CALLBACKS = """
import random, sys
import coro
import coro.profiler._core.accounting as core
chance = random.Random(int(sys.argv[1]))
def function(): pass
values = [function.__code__, function, 0, 8, -1, 1 << 70, True, None, "x", b"x", (), len, [].append, object(), int, 1.5]
on = [False]

def main():
    values.append(coro.current())
    callbacks = [core.callback(i) for i in range(5)]
    for _ in range(5000):
        if chance.random() < 0.02:
            core.abandon()
            on[0] = not on[0]
            if on[0]:
                core.begin(core.TICKS, 1000, 10, 0.01)
                core.adopt(coro.current(), [], True)
                core.switch_on((), (), ())
        call = chance.choice(callbacks)
        arguments = [chance.choice(values) for _ in range(chance.randrange(5))]
        try:
            call(*arguments, **({"x": 1} if chance.random() < 0.05 else {}))
        except (Exception, coro.Interrupted):
            pass
        else:
            assert arguments, call
    for call in callbacks:
        try:
            call()
        except TypeError as e:
            assert "sys.monitoring" in str(e)
        else:
            raise AssertionError(call)
    core.abandon()

coro.run(main)
print("whole")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info < (3, 12), reason="there is no sys.monitoring")
def test_receivers_of_events_called_with_anything():
    seed = int(os.environ.get("CORO_FUZZ_SEED", random.randrange(1 << 30)))
    print(f"CORO_FUZZ_SEED={seed}")
    for i in range(5):
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", CALLBACKS, str(seed + i)],
            env={**os.environ, "PYTHONMALLOC": "debug"}, capture_output=True, text=True, timeout=LIMIT,
        )  # fmt: skip
        assert done.stdout == "whole\n", done.stderr
