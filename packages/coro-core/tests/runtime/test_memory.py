"""Memory stays where it is: short-lived threads, deallocations inside threads, copies of stacks, abandoned threads.

Resident memory is read from /proc/self/statm, so these tests run on Linux only; each in a process of its own, because
what other tests left in the allocator would hide a small leak.
"""

import sys

import pytest
from support import ok, program

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/statm"),
    pytest.mark.usefixtures("leaves_nothing"),
]

HEAD = """
import gc, os, sys
import coro
from coro._runtime import scheduler

coro.set_latency_warning(0)
PAGE = os.sysconf("SC_PAGE_SIZE")

def rss():
    with open("/proc/self/statm", "rb", buffering=0) as file:
        return int(file.read().split()[1]) * PAGE

def flat(samples, slack=256 << 10):
    '''The last tenth is within 2 % (or a quarter of a MiB) of the second.'''
    tenth = len(samples) // 10
    early = sum(samples[tenth:2 * tenth]) / tenth
    late = sum(samples[-tenth:]) / tenth
    assert late <= early * 1.02 + slack, (early, late, samples[::tenth])
    return True
"""


@pytest.mark.slow
@pytest.mark.each_python
@pytest.mark.parametrize("slots", [1, 3, 64])
def test_short_lived_threads_leave_nothing(slots):
    lines = ok(f"{HEAD}\ncoro.set_stack_slots({slots})" + """
def inner(n):
    if n:
        return sorted([n], key=lambda x: inner(n - 1) or x)
    coro.yield_slice()

def work(n):
    inner(n % 4)
    return [n]

def fails(n):
    coro.yield_slice()
    raise ValueError(n)

def main():
    samples = []
    for i in range(200):
        threads = [coro.spawn(work if n % 3 else fails, n) for n in range(100)]
        for t in threads:
            t.join()
        del t, threads
        samples.append(rss())
    print(flat(samples))

coro.set_exception_notifier(lambda: None)
coro.run(main)
gc.collect()
print(coro.get_live_coros(), any(scheduler._slot_owners()))
""")
    assert lines == ["True", "0 False"]


@pytest.mark.slow
@pytest.mark.each_python
def test_long_lived_threads_that_swap_for_ever_leave_nothing():
    lines = ok(HEAD + """
coro.set_stack_slots(3)
def swings(n):
    def key(x):
        coro.yield_slice()
        return x
    while True:
        sorted(range(n % 7 + 1), key=key)

def main():
    samples = []
    threads = [coro.spawn(swings, n, daemon=True) for n in range(50)]
    for t in threads[::10]:
        t.compress = True
    for i in range(150):
        for _ in range(10):
            coro.yield_slice()
        samples.append(rss())
    print(flat(samples))
    print(coro.statistics().restorations > 5000)

coro.run(main)
""")
    assert lines == ["True", "True"]


@pytest.mark.slow
@pytest.mark.each_python
@pytest.mark.parametrize("slots", [1, 64])
def test_a_million_nested_deallocations_inside_threads(slots):
    """CPython 3.14 and newer decide by the stack pointer whether a deallocation is postponed; told nothing about the
    slots it would postpone all of them for ever."""
    lines = ok(f"{HEAD}\ncoro.set_stack_slots({slots})" + """
def work():
    for _ in range(125):
        for _ in range(100):
            x = [([{1: ([],)}],)]
        x = None
        coro.yield_slice()

def main():
    samples = []
    for i in range(20):
        threads = [coro.spawn(work) for _ in range(4)]
        for t in threads:
            t.join()
        samples.append(rss())
    print(flat(samples))

coro.run(main)
""")
    assert lines == ["True"]


@pytest.mark.slow
@pytest.mark.each_python
def test_deep_containers_are_taken_apart_inside_threads():
    lines = ok(HEAD + """
def work():
    value = []
    for i in range(5000):
        value = (value,) if i % 2 else [value]
    coro.yield_slice()
    value = None
    coro.yield_slice()

def main():
    samples = []
    for i in range(40):
        threads = [coro.spawn(work) for _ in range(5)]
        for t in threads:
            t.join()
        samples.append(rss())
    print(flat(samples))

coro.run(main)
""")
    assert lines == ["True"]


@pytest.mark.slow
@pytest.mark.each_python
def test_deep_python_recursion_gives_its_data_stack_back():
    lines = ok(HEAD + """
def down(n):
    if n:
        return down(n - 1)
    coro.yield_slice()

def main():
    samples = []
    for i in range(60):
        threads = [coro.spawn(down, n * 17 % 700) for n in range(50)]
        for t in threads:
            t.join()
        samples.append(rss())
    print(flat(samples))

coro.run(main)
""")
    assert lines == ["True"]


def test_a_parked_thread_is_small():
    lines = ok(HEAD + """
coro.set_stack_slots(8)
def parked():
    coro._yield()

def main():
    first = [coro.spawn(parked) for _ in range(2000)]
    coro.yield_slice()
    coro.yield_slice()
    before = rss()
    more = [coro.spawn(parked) for _ in range(10000)]
    coro.yield_slice()
    coro.yield_slice()
    assert all(t.started for t in more)
    size = (rss() - before) / len(more)
    print(size < 1946, size)
    for t in first + more:
        t.schedule()

coro.run(main)
""")
    assert lines[0].startswith("True"), lines


def test_abandoned_threads_disturb_nobody():
    """Threads that swallow every Shutdown are given up at the end of a loop: dead, their frames never unwound; another
    loop can run afterwards, in the same slots."""
    outcome = program("""
        import coro, gc
        coro.set_stack_slots(3)
        coro.set_latency_warning(0)
        def refuses(depth):
            def key(x):
                while True:
                    try:
                        coro._yield()
                    except BaseException:
                        pass
            if depth:
                sorted([1, 2], key=key)
            else:
                key(1)
        def main(kept):
            kept.extend(coro.spawn(refuses, n % 3, thread_name=f"r{n}") for n in range(7))
            coro.yield_slice()
            coro.set_exit(3, grace=0)
            coro._yield()
        def swings():
            for _ in range(20):
                sorted(range(3), key=lambda x: coro.yield_slice() or x)
        def again():
            for t in [coro.spawn(swings) for _ in range(9)]:
                t.join()
            return "ran"
        for _ in range(3):
            kept = []
            try:
                coro.run(main, kept)
            except SystemExit as exc:
                code = exc.code
            bound = sum(coro._runtime.scheduler._slot_owners())
            print(code, [t.dead for t in kept] == [True] * 7, bound, coro.run(again))
            assert all(t.get_frame() is None for t in kept)
            try:
                kept[0].schedule()
            except coro.DeadCoroutine:
                pass
            gc.collect()
    """)
    assert outcome.code == 0, outcome.err
    assert outcome.lines == ["3 True 0 ran"] * 3
    for n in range(7):
        assert len([line for line in outcome.err.splitlines() if f"(r{n}) did not end in time" in line]) == 3
    assert len(outcome.err.splitlines()) == 21


def test_frames_of_abandoned_threads_can_still_be_walked():
    outcome = program("""
        import coro, gc
        coro.set_stack_slots(1)
        coro.set_latency_warning(0)
        def refuses():
            def key(x):
                while True:
                    try:
                        coro._yield()
                    except BaseException:
                        pass
            sorted([1, 2], key=key)
        def ends():
            threads = [coro.spawn(refuses) for _ in range(4)]
            coro.yield_slice()
            found.extend(t.get_frame() for t in threads)
            coro.set_exit(0, grace=0)
        found = []
        try:
            coro.run(ends)
        except SystemExit:
            pass
        coro.run(lambda: sorted([3, 2, 1], key=lambda x: coro.yield_slice() or x))
        for frame in found:
            names = []
            while frame is not None:
                names.append(frame.f_code.co_name)
                frame = frame.f_back
            print(names)
        gc.collect()
    """)
    assert outcome.code == 0, outcome.err
    assert outcome.lines == ["['key', 'refuses']"] * 4
