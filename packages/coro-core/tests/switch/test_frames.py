"""What others see of suspended threads: f_back, where(), faulthandler, gdb. With one slot every suspended thread but
one is copied away, so a chain of frames that led across the C stack would end in somebody else's bytes."""

import faulthandler
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time

import pytest
from support import ok

import coro

pytestmark = pytest.mark.usefixtures("leaves_nothing")

PARKED = """
import functools, re, sys, weakref
import coro
coro.set_stack_slots({slots})
coro.set_latency_warning(0)

def names(thread):
    found, frame = [], thread.get_frame()
    while frame is not None:
        found.append(frame.f_code.co_name)
        frame = frame.f_back
    return found

def plain():
    coro._yield()

def inner(n):
    if n:
        return inner(n - 1)
    coro._yield()

def recursive():
    inner(3)

def in_key():
    def key(x):
        return key2(x)
    def key2(x):
        return sorted([x], key=key3)[0]
    def key3(x):
        coro._yield()
        return x
    sorted([1, 2], key=key)

class Del:
    def __del__(self):
        coro._yield()

def in_del():
    def keeps():
        d = Del()
        d = None
    keeps()

def in_del_at_return():
    def keeps(x):
        d = Del()
        return x
    sorted([1, 2], key=keeps)

def in_generator():
    def numbers():
        yield 1
        coro._yield()
        yield 2
    sum(numbers())

def in_map():
    list(map(lambda x: coro._yield(), [1]))

def in_reduce():
    functools.reduce(lambda a, b: coro._yield(), [1, 2])

def in_sub():
    re.sub("a", lambda m: coro._yield() or "b", "a")

def in_timeout():
    def limited():
        with coro.timeout(500):
            coro._yield()
    coro.with_timeout(500, limited)

async def awaits():
    coro._yield()

def in_coroutine():
    try:
        awaits().send(None)
    except StopIteration:
        pass

def in_except():
    try:
        raise ValueError
    except ValueError:
        coro._yield()

def in_weakref_callback():
    class C:
        pass
    o = C()
    def gone(_):
        coro._yield()
    r = weakref.ref(o, gone)
    del o

EXPECTED = dict(
    plain=[], recursive=["inner"] * 4, in_key=["key3", "key2", "key"], in_del=["__del__", "keeps"],
    in_generator=["numbers"], in_map=["<lambda>"], in_reduce=["<lambda>"], in_timeout=["limited"],
    in_coroutine=["awaits"], in_except=[], in_weakref_callback=["gone"],
)
expected_of = {{name: found + [name] for name, found in EXPECTED.items()}}
# re.sub is a Python function of its own, which may or may not be inlined into the caller's frame
expected_of["in_sub"] = ["<lambda>", "sub", "in_sub"]
# the returning function has been popped already
expected_of["in_del_at_return"] = ["__del__", "in_del_at_return"]
FUNCTIONS = [globals()[name] for name in expected_of]
"""


@pytest.mark.parametrize("slots", [1, 3, 64])
def test_f_back_walks_every_suspended_thread_to_its_base(slots):
    lines = ok(
        PARKED.format(slots=slots)
        + """
def main():
    threads = [coro.spawn(f) for f in FUNCTIONS for _ in range(3)]
    coro.yield_slice()
    for _ in range(2):
        for t in threads:
            assert names(t) == expected_of[t.name], (t.name, names(t))
        # frame objects that were taken earlier keep working while the threads are moved about
        frames = [t.get_frame() for t in threads]
        for t in threads[::2]:
            coro.compress(t)
        for t in threads[::3]:
            t.schedule()
        coro.yield_slice()
        for t, frame in zip(threads, frames):
            found = []
            while frame is not None:
                found.append(frame.f_code.co_name)
                frame = frame.f_back
            assert len(found) >= 1 and found[-1] in (t.name, "__del__", "awaits") or t.dead, (t.name, found)
        threads = [t for t in threads if not t.dead and names(t) == expected_of[t.name]]
        assert len(threads) > 10
    print(len(threads) > 10)
    for t in threads:
        if not t.dead:
            t.shutdown()

sys.unraisablehook = lambda u: None
coro.run(main)
print(coro.get_live_coros())
"""
    )
    assert lines == ["True", "0"]


NESTED = """
import functools, random, sys
import coro
coro.set_stack_slots({slots})
coro.set_latency_warning(0)
seed = {seed}
print("seed", seed)
choose = random.Random(seed)

def straight(plan):
    go(plan)

def key(plan):
    sorted([plan], key=go)

def mapped(plan):
    list(map(go, [plan]))

def partial(plan):
    functools.partial(go, plan)()

def numbers(plan):
    go(plan)
    yield

def generated(plan):
    for _ in numbers(plan):
        pass

def driven(plan):
    next(numbers(plan))

class Item:
    def __init__(self, plan):
        go(plan)

def made(plan):
    Item(plan)

class Dropped:
    def __del__(self):
        go(self.plan)

def dropped(plan):
    d = Dropped()
    d.plan = plan
    d = None

EXTRA = {{generated: ["numbers"], driven: ["numbers"], made: ["__init__"], dropped: ["__del__"]}}
STEPS = [straight] * 12 + [key, mapped, partial, generated, driven, made, dropped]

def go(plan):
    if plan:
        plan[0](plan[1:])
    else:
        coro._yield()

def expected(plan, base):
    found = base + ["go"]
    for step in plan:
        found += [step.__name__, *EXTRA.get(step, ()), "go"]
    return found[::-1]

def names(thread):
    found, frame = [], thread.get_frame()
    while frame is not None:
        found.append(frame.f_code.co_name)
        frame = frame.f_back
    return found

def body(plan):
    # twice: the second time at other depths of the same stack
    go(plan)
    go(plan[: len(plan) // 2])

def main():
    plans = [[choose.choice(STEPS) for _ in range(choose.randrange(40))] for _ in range(60)]
    threads = [coro.spawn(body, plan) for plan in plans]
    # whose outermost frame is no function's: the interpreter is entered from C alone
    bare = [coro.spawn(list, map(go, [plan])) for plan in plans[:10]]
    coro.yield_slice()
    for t, plan in zip(threads + bare, plans + plans[:10]):
        assert names(t) == expected(plan, ["body"] if t in threads else []), (plan, names(t))
    for t in threads:
        t.schedule()
    coro.yield_slice()
    for t, plan in zip(threads, plans):
        assert names(t) == expected(plan[: len(plan) // 2], ["body"]), (plan, names(t))
    for t in threads + bare:
        t.schedule()
    coro.yield_slice()
    assert all(t.dead for t in threads + bare)
    print("done")

coro.run(main)
"""


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_f_back_after_any_nesting_of_python_and_c(slots, seed):
    assert ok(NESTED.format(slots=slots, seed=seed)) == [f"seed {seed}", "done"]


def test_where_all_names_every_thread_and_place():
    lines = ok(
        PARKED.format(slots=1)
        + """
def main():
    threads = [coro.spawn(f, thread_name="T" + f.__name__) for f in FUNCTIONS]
    coro.yield_slice()
    found = coro.where_all()
    assert set(found) == {t.id for t in threads} | {coro.current().id}
    for t in threads:
        name, thread, where = found[t.id]
        assert name == t.name and thread is t
        at = -1
        for function in expected_of[t.name[1:]]:
            assert function in where[at + 1:], (function, where)
            at = where.index(function, at + 1)
        assert where == coro.where(t)
    print("main" in found[coro.current().id][2])
    for t in threads:
        t.shutdown()

sys.unraisablehook = lambda u: None
coro.run(main)
"""
    )
    assert lines == ["True"]


def test_frames_of_threads_that_have_not_run_or_have_ended():
    def main():
        fresh = coro.new(int)
        assert fresh.get_frame() is None
        assert coro.where(fresh) == "[]"
        done = coro.spawn(int)
        done.join()
        assert done.get_frame() is None
        builtin = coro.spawn(coro._yield)
        coro.yield_slice()
        assert builtin.get_frame() is None
        builtin.schedule()
        assert coro.current().get_frame().f_code.co_name == "main"

    coro.run(main)


def test_a_frame_outlives_its_thread():
    def parked(value):
        coro._yield()

    def main():
        thread = coro.spawn(parked, 17)
        coro.yield_slice()
        frame = thread.get_frame()
        thread.schedule()
        thread.join()
        assert frame.f_locals["value"] == 17
        assert frame.f_back is None
        frame.clear()

    coro.run(main)


def test_the_running_thread_sees_only_its_own_frames():
    found = []

    def main():
        frame = sys._getframe()
        while frame is not None:
            found.append(frame.f_code.co_name)
            frame = frame.f_back

    coro.run(main)
    assert found == ["main"]


def dumped():
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=False)
        file.seek(0)
        return [line.split(" in ")[-1].strip() for line in file if " in " in line]


def test_faulthandler_dumps_the_running_thread():
    found = []

    def key(x):
        found.append(dumped())
        return x

    def main():
        sorted([1], key=key)

    coro.run(main)
    assert found == [["dumped", "key", "main"]]


def test_faulthandler_dumps_where_a_thread_holds_up_everybody():
    def holds():
        time.sleep(0.15)

    def main():
        with tempfile.TemporaryFile("w+") as file:
            faulthandler.dump_traceback_later(0.05, file=file)
            try:
                holds()
            finally:
                faulthandler.cancel_dump_traceback_later()
            file.seek(0)
            return file.read()

    text = coro.run(main)
    section = next(part for part in text.split("\n\n") if "in holds" in part)
    at = [line.split(" in ")[-1].strip() for line in section.splitlines() if " in " in line]
    assert at == ["holds", "main"]


def test_a_lock_of_the_operating_system_held_over_a_switch_is_visible_in_a_dump():
    """A deadlock of the whole process, by design; the dump names the line that waits."""
    from support import program

    outcome = program("""
        import coro, faulthandler, threading
        lock = threading.Lock()
        def holder():
            with lock:
                coro._yield()
        def waits_for_the_lock():
            lock.acquire()
        def main():
            coro.spawn(holder)
            coro.spawn(waits_for_the_lock)
            coro.yield_slice()
        faulthandler.dump_traceback_later(0.3, exit=True)
        coro.run(main)
    """)
    assert outcome.code == 1
    assert "line 9 in waits_for_the_lock" in outcome.err


@pytest.mark.slow
@pytest.mark.each_python
@pytest.mark.skipif(
    shutil.which("gdb") is None and not os.environ.get("CORO_REQUIRE_SERVERS"), reason="needs gdb: install it"
)
def test_gdb_unwinds_a_thread_to_its_base():
    source = textwrap.dedent("""
        import coro, os, signal
        def key(x):
            os.kill(os.getpid(), signal.SIGTRAP)
            return x
        def main():
            sorted([1], key=key)
        coro.run(main)
    """)
    done = subprocess.run(
        ["gdb", "-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "handle SIGTRAP stop", "-ex", "run",
         "-ex", "bt", "--args", sys.executable, "-c", source],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    if "SIGTRAP" not in done.stdout:
        pytest.skip("gdb may not trace processes here")
    frames = [line for line in done.stdout.splitlines() if line.startswith("#")]
    names = [line.split(" in ")[-1].split(" ")[0] for line in frames]
    if any("_PyEval" in name for name in names):  # an interpreter without symbols shows addresses there
        assert any("sort" in name for name in names), done.stdout
    assert names[-1] == "coro_swap_entry", done.stdout
    assert "corrupt" not in done.stdout
