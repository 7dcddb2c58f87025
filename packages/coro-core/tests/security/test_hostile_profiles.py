"""A profile may come from elsewhere: a few bytes must not keep ``load`` or ``print_profile`` busy, nor run code."""

import os
import pickle
import pickletools
import random
import struct
import subprocess
import sys

import pytest
from support import LIMIT

from coro import profiler
from coro.profiler import _file, _report
from coro.profiler._file import MAGIC
from coro.profiler._pickles import Damaged, read_pickle

REST = {
    "ticks_per_second": 1e9, "elapsed": 10, "values": ("ticks",), "names": ["a", "b"],
    "places": [("a.py", 1, "a"), ("b.py", 2, "b")], "threads": [(1, "t", True, 1, [(0, 0, 1, 0, 5), (1, 1, 1, 0, 2)])],
    "waited": {"a": (1, 2)}, "dropped": 0,
}  # fmt: skip
PARTS = [("bench", ("ticks",), 1.0), {"a": (1, (5,), (5,)), "b": (1, (2,), (2,))}, {"a": [("b", 1)]}, REST]


def packed(*parts, protocol=4):
    return MAGIC + b"".join(pickle.dumps(part, protocol) for part in parts)


def doubled(seed, times=60, kind=list):
    """An object of 2**times items that takes three bytes for each doubling."""
    value = seed
    for _ in range(times):
        value = kind((value, value))
    return value


def with_rest(**changes):
    return packed(*PARTS[:3], REST | changes)


LONG = "x" * 100_000
MANY = [(0, 0, 1, 0, 5)] * 1000
DEEP = [(depth, 0, 1, 0, 5) for depth in range(20_000)]
EMPTY_PARTS = pickle.dumps({}) * 2

BOMBS = {
    "shared lists as a heading": MAGIC + pickle.dumps(("b", [doubled("x" * 100)], 0.0)) + EMPTY_PARTS,
    "shared lists as a name": MAGIC + pickle.dumps((doubled("x"), [], 0.0)) + EMPTY_PARTS,
    "shared lists as numbers": packed(PARTS[0], {"a": (1, doubled(1), (1,))}, {}),
    "a key that is a tuple of tuples": MAGIC + pickle.dumps(PARTS[0]) + b"\x80\x04}("
    + pickle.dumps(doubled((), 40, tuple), 2)[2:-1] + b"K\x01u.",
    "a memo of 2**32 entries": MAGIC + b"\x80\x02K\x01r\xff\xff\xff\xff.",
    "a text of 2**63 bytes": MAGIC + b"\x80\x04\x8d" + struct.pack("<Q", 1 << 63) + b"x",
    "a frame of 2**63 bytes": MAGIC + b"\x80\x04\x95" + struct.pack("<Q", 1 << 63) + b"K\x01.",
    "a number of a million digits": MAGIC + pickle.dumps(("b", [], 10**1_000_000)) + EMPTY_PARTS,
    "depth": MAGIC + b"\x80\x02" + b"(" * 500_000 + b"t" * 500_000 + b".",
    "lists in lists": MAGIC + b"\x80\x02" + b"](" * 200_000 + b"e" * 200_000 + b".",
    "one list in many threads": with_rest(threads=[(n, "t", True, 1, MANY) for n in range(1000)]),
    "a long name many times": packed(PARTS[0], PARTS[1], {LONG: [(LONG, 1)] * 10_000}),
    "a deep tree": with_rest(threads=[(1, "t", True, 1, DEEP)]),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("what", BOMBS)
def test_a_bomb_is_refused_with_little_work(what, tmp_path):
    path = tmp_path / "bomb"
    path.write_bytes(BOMBS[what])
    limits = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30,) * 2); "
    limits += f"resource.setrlimit(resource.RLIMIT_CPU, (30, 30)); import sys; sys.argv[1:] = [{str(path)!r}]; "
    code = limits + "import runpy; runpy.run_module('coro.print_profile', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=LIMIT
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("print_profile: ") and done.stderr.count("\n") == 1 and len(done.stderr) < 1000


WRONG = {
    "a heading that is no str": packed(("b", [1], 1.0), *PARTS[1:]),
    "a subclass": packed(("b", ("ticks",), True), *PARTS[1:]),
    "a time out of range": packed(("b", ("ticks",), 1e300), *PARTS[1:]),
    "no time": packed(("b", ("ticks",), float("nan")), *PARTS[1:]),
    "other values than headings": packed(PARTS[0], {"a": (1, (5, 6), (5,))}, {}),
    "a value that is not finite": packed(PARTS[0], {"a": (1, (float("inf"),), (5,))}, {}),
    "no root": with_rest(threads=[(1, "t", True, 1, [])]),
    "ticks of no length": with_rest(ticks_per_second=0.0),
    "fewer places than names": with_rest(places=[]),
    "a string for a list": with_rest(names="ab"),
}


@pytest.mark.parametrize("what", WRONG)
def test_values_of_other_types_are_refused(what, tmp_path):
    (tmp_path / "wrong").write_bytes(WRONG[what])
    with pytest.raises(profiler.ProfileError, match="not laid out"):
        profiler.load(tmp_path / "wrong")


@pytest.mark.parametrize("protocol", range(1, 6))
def test_plain_data_is_read_as_pickle_reads_it(protocol):
    values = [
        0, -1, 255, 256, 65536, 2**31 - 1, -(2**31), 2**40, -(2**62), 1.5, "", "é\u2028", "x" * 300, True, False, None,
        (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], [1], ["a", "a"], list(range(3000)), {}, {"a": [1]},
        {str(n): (n, n) for n in range(2000)}, PARTS,
    ]  # fmt: skip
    for value in values:
        data = b"before" + pickle.dumps(value, protocol)
        if protocol == 1 and any(op.name in ("INT", "LONG") for op, _, _ in pickletools.genops(data[6:])):
            continue  # texts of the first protocol, which no profile was written with
        assert read_pickle(data + b"after", 6) == (value, len(data))


def test_a_file_of_python_2():
    # Strings of Python 2 have opcodes of their own; the profiler there wrote protocol 2.
    data = b"\x80\x02U\x05benchq\x01]q\x02U\x05ticksaG?\xf0\x00\x00\x00\x00\x00\x00\x87."
    assert read_pickle(data, 0) == (("bench", ["ticks"], 1.0), len(data))


@pytest.mark.slow
def test_whatever_is_done_to_a_file(tmp_path):
    """Bytes exchanged, cut out, put in: it is read and shown, or refused with ProfileError."""
    seed = int(os.environ.get("CORO_FUZZ_SEED", random.randrange(1 << 30)))
    print(f"CORO_FUZZ_SEED={seed}")
    chance = random.Random(seed)
    good = [packed(*PARTS, protocol=protocol) for protocol in (2, 4)]
    path = tmp_path / "fuzzed"
    shown = 0
    for _ in range(3000):
        data = bytearray(chance.choice(good))
        for _ in range(chance.choice((1, 1, 2, 5))):
            at = chance.randrange(len(MAGIC), len(data))
            what = chance.randrange(4)
            if what == 0:
                data[at] = chance.randrange(256)
            elif what == 1:
                data[at] = chance.choice(b"(t]}uea.qrhjKMJ\x85\x86\x87\x94\x8cGs\x8a")
            elif what == 2:
                del data[at : at + chance.randrange(1, 9)]
                data += b"."
            else:
                piece = chance.randrange(len(MAGIC), len(data))
                data[at:at] = data[piece : piece + chance.randrange(1, 30)]
        path.write_bytes(data)
        try:
            found = profiler.load(path)
        except profiler.ProfileError:
            continue
        shown += 1
        "".join(_report.report(found))
        if found.threads:
            profiler.to_speedscope(found, tmp_path / "out")
            profiler.to_pstats(found, tmp_path / "out")
    assert shown > 100  # many changes are to names and numbers only


def test_a_file_that_is_too_large(monkeypatch, tmp_path):
    (tmp_path / "large").write_bytes(packed(*PARTS))
    monkeypatch.setattr(_file, "MAX_SIZE", 100)
    with pytest.raises(profiler.ProfileError, match="larger than 100 bytes"):
        profiler.load(tmp_path / "large")


@pytest.mark.parametrize("opcode", [bytes([n]) for n in range(256)])
def test_each_opcode_alone(opcode):
    for before in (b"", b"(", b"K\x01", b"]", b"}", b"(K\x01K\x02", b"K\x01K\x02K\x03", b"](", b"}("):
        try:
            read_pickle(before + opcode + b"\x00" * 9 + b".", 0)
        except Damaged:
            pass
