"""Stack slots: laying them out, copying stacks away and back, compressing copies, and the guard zone."""

import sys

import pytest
from support import ok, program

import coro

pytestmark = pytest.mark.usefixtures("leaves_nothing")

PARKED = """
import sys
import coro
from coro._runtime import scheduler

coro.set_stack_slots({slots})
coro.set_latency_warning(0)
woken = []

def parked(depth, number):
    def key(x):
        return -sorted([x], key=key2)[0]
    def key2(x):
        if depth > 1:
            return parked(depth - 2, number) or x
        woken.append(coro._yield())
        return x
    if depth == 0:
        woken.append(coro._yield())
    else:
        assert sorted([1, 2], key=key)[0] == 2
    return None
"""


@pytest.mark.parametrize(
    ("number", "size"),
    [(0, None), (-1, None), (65537, None), (4, 1000), (4, 0), (4, -5), (4, 2 << 30), (65536, 1 << 30), (1 << 80, None),
     (4, 1 << 80)],
)  # fmt: skip
def test_slots_that_cannot_be_had(number, size):
    lines = ok(f"""
        import coro
        before = coro.get_stack_slots()
        try:
            coro.set_stack_slots({number}, {size})
        except coro.StackSlotError as exc:
            print(exc)
        assert coro.get_stack_slots() == before
        assert coro.run(lambda: 5) == 5
    """)
    assert len(lines) == 1 and len(lines[0]) > 20


@pytest.mark.parametrize("arguments", [("4",), (4.0,), (True,), (None,), (4, "1"), (4, 1e6), (4, True)])
def test_slots_are_counted_in_ints(arguments):
    with pytest.raises(TypeError, match="int"):
        coro.set_stack_slots(*arguments)


def test_slots_are_fixed_once_a_thread_ran():
    coro.run(lambda: None)
    before = coro.get_stack_slots()
    with pytest.raises(coro.StackSlotError, match="before the first thread"):
        coro.set_stack_slots(3)
    assert coro.get_stack_slots() == before


def test_slots_may_be_changed_before_the_first_thread():
    assert ok("""
        import coro
        coro.set_stack_slots(2)
        coro.set_stack_slots(5, 1 << 20)
        t = coro.spawn(lambda: None)
        coro.set_stack_slots(7, 300_000)
        print(*coro.get_stack_slots())
        coro.event_loop()
        print(t.dead, len(coro._runtime.scheduler._slot_owners()))
    """.replace("coro.event_loop()", "coro.set_print_exit_string(False); coro.event_loop()")) == ["7 300000", "True 7"]


@pytest.mark.parametrize("slots", [1, 3, 64])
def test_parked_stacks_come_back_as_they_were(slots):
    lines = ok(PARKED.format(slots=slots) + """
def main():
    threads = [coro.spawn(parked, n % 5, n) for n in range(60)]
    coro.yield_slice()
    print(sum(scheduler._slot_owners()), max(scheduler._slot_owners()) - min(scheduler._slot_owners()))
    while any(not t.dead for t in threads):
        for t in threads:
            if not t.dead and not t.scheduled:
                t.schedule("woken")
        coro.yield_slice()
    assert all(t.exception is None for t in threads), [t.exception for t in threads]
    print(set(woken))

coro.run(main)
counted = coro.statistics()
print(counted.restorations > 0, counted.evacuations >= counted.restorations)
assert counted.restorations == 0 or counted.restored_bytes / counted.restorations < 65536
print(any(scheduler._slot_owners()), coro.get_live_coros())
""")
    # 61 threads in 64 slots: one each, and nothing is copied
    bound, difference = map(int, lines[0].split())
    assert bound == 61 and difference <= (1 if slots == 64 else 10)
    assert lines[1] == "{'woken'}"
    assert lines[2] == ("False True" if slots == 64 else "True True")
    assert lines[3] == "False 0"


def test_threads_that_have_a_slot_each_are_never_copied():
    def swing():
        for _ in range(50):
            coro.yield_slice()

    def main():
        for _ in range(20):
            coro.spawn(swing)
        for _ in range(60):
            coro.yield_slice()

    before = coro.statistics().evacuations
    coro.run(main)
    if coro.get_stack_slots()[0] >= 21:
        assert coro.statistics().evacuations == before


@pytest.mark.parametrize(("slots", "shared"), [(40, 40), (100, 64), (200, 100)])
def test_threads_beyond_the_slots_share_a_part_of_them(slots, shared):
    lines = ok(PARKED.format(slots=slots) + f"""
def main():
    threads = [coro.spawn(parked, 0, n) for n in range({slots} + 10 * {shared} - 1)]
    coro.yield_slice()
    owners = scheduler._slot_owners()
    print(set(owners[:{shared}]), set(owners[{shared}:]))
    for t in threads:
        t.schedule()
    coro.yield_slice()

coro.run(main)
print(set(woken), any(scheduler._slot_owners()))
""")
    assert lines == [f"{{11}} {'set()' if slots == shared else '{1}'}", "{None} False"]


def test_a_slot_that_was_emptied_is_the_next_to_be_used():
    lines = ok(PARKED.format(slots=8) + """
def main():
    threads = [coro.spawn(parked, 0, n) for n in range(5)]
    coro.yield_slice()
    print(scheduler._slot_owners())
    for number in (1, 3):
        threads[number].schedule()
    coro.yield_slice()
    print(scheduler._slot_owners())
    threads += [coro.spawn(parked, 0, n) for n in range(3)]
    coro.yield_slice()
    print(scheduler._slot_owners())
    for t in threads:
        if not t.dead:
            t.schedule()
    coro.yield_slice()

coro.run(main)
""")
    assert lines == ["[1, 1, 1, 1, 1, 1, 0, 0]", "[1, 1, 0, 1, 0, 1, 0, 0]", "[1, 1, 1, 1, 1, 1, 1, 0]"]


def test_a_large_slice_keeps_its_slot_to_itself():
    lines = ok(PARKED.format(slots=2) + """
def main():
    # main has slot 0, the deep one slot 1
    deep = coro.spawn(parked, 60, 0)
    coro.yield_slice()
    coro.compress(deep)  # copies it away, by which its size is known
    print(deep.stack_size[0] > 16384)
    for n in range(6):
        coro.spawn(parked, 0, n, daemon=True)
    coro.yield_slice()
    print(scheduler._slot_owners())
    deep.shutdown()

coro.run(main)
""")
    assert lines == ["True", "[7, 1]"]


def test_compression():
    size = []

    def deep(n):
        if n:
            return sorted([n], key=lambda x: deep(n - 1))[0]
        return coro._yield()

    def main():
        thread = coro.spawn(deep, 10)
        coro.yield_slice()
        before, after = coro.compress(thread)
        size.extend((before, after))
        assert thread.stack_size == (before, after)
        assert coro.compress(thread) == (after, after)
        assert "deep" in coro.where(thread)
        thread.schedule(0)
        thread.join()
        assert thread.exception is None and thread.result == 10
        assert thread.stack_size == (0, 0)

    coro.run(main)
    assert 0 < size[1] < size[0]


def test_compression_on_every_evacuation():
    lines = ok(PARKED.format(slots=1) + """
def main():
    threads = [coro.spawn(parked, 4, n) for n in range(6)]
    for t in threads:
        t.compress = True
    coro.yield_slice()
    print([t.stack_size[0] > t.stack_size[1] > 0 for t in threads])
    for t in threads:
        assert "parked" in coro.where(t), coro.where(t)
        t.schedule("x")
    coro.yield_slice()
    for t in threads:
        t.compress = False
    while any(not t.dead for t in threads):
        for t in threads:
            if not t.dead and not t.scheduled:
                t.schedule("woken")
        coro.yield_slice()
    print([t.exception for t in threads])

coro.run(main)
""")
    assert lines == [str([True] * 6), str([None] * 6)]


def test_what_cannot_be_compressed():
    def main():
        with pytest.raises(coro.ScheduleError):
            coro.compress(coro.current())
        fresh = coro.new(main)
        with pytest.raises(coro.ScheduleError):
            coro.compress(fresh)
        dead = coro.spawn(int)
        dead.join()
        with pytest.raises(coro.DeadCoroutine):
            coro.compress(dead)
        with pytest.raises(TypeError, match="thread"):
            coro.compress("x")

    coro.run(main)


def test_an_excursion_gives_its_pages_back():
    lines = ok("""
        import coro
        def deep(n):
            # sorted() keeps some 5 KiB on the C stack
            return sorted([n], key=lambda x: deep(n - 1)) if n else 0
        def main():
            before = coro.statistics().stack_trims
            deep(100)
            coro.sleep_relative(0.001)
            coro.sleep_relative(0.001)
            first = coro.statistics().stack_trims
            coro.sleep_relative(0.001)
            print(first - before, coro.statistics().stack_trims - first)
        coro.set_stack_slots(2)
        coro.set_latency_warning(0)
        coro.run(main)
    """)
    assert lines == ["1 0"]


def test_running_into_the_guard_zone_names_the_thread_and_where_it_was():
    outcome = program("""
        import coro, ctypes
        compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        strlen = ctypes.CDLL(None).memset
        def tramples():
            here = ctypes.c_char * 1
            # what an overflow does: write just below the slot
            line = [l for l in open("/proc/self/maps")]
            number = SLOT
            strlen(ctypes.c_void_p(number), 0, 1)
        def guard():
            size = coro.get_stack_slots()[1]
            for a, b in zip(lines := open("/proc/self/maps").read().splitlines(), lines[1:]):
                low, high = (int(x, 16) for x in b.split()[0].split("-"))
                if "---p" in a and "rw-p" in b and high - low == size:
                    return low - 8
        coro.set_stack_slots(1, 1 << 20)
        SLOT = guard()
        assert SLOT
        coro.run(lambda: coro.spawn(tramples, thread_name="the 'deep'\\none").join())
    """)
    assert outcome.code < 0, outcome
    assert r"coro thread #2 'the \'deep\'\none' overflowed its stack slot of 1048576 bytes" in outcome.err
    assert "tramples" in outcome.err
    assert "Segmentation fault" in outcome.err  # faulthandler had its say, too


ALTERNATE = """
import ctypes, faulthandler, threading
import coro
faulthandler.disable()

class Stack(ctypes.Structure):
    _fields_ = [("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]

libc = ctypes.CDLL(None, use_errno=True)

def alternate():
    "Where the alternate signal stack of this OS thread begins; None when it has none."
    found = Stack()
    assert libc.sigaltstack(None, ctypes.byref(found)) == 0
    return None if found.flags & 2 else found.start

def set_alternate(block):
    assert libc.sigaltstack(ctypes.byref(Stack(block and ctypes.addressof(block), 0 if block else 2, 65536)), None) == 0

def in_another(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]

def around():
    "Before, within and after a loop."
    return alternate(), coro.run(alternate), alternate()

set_alternate(None)
"""


def test_each_os_thread_has_an_alternate_signal_stack_of_its_own_while_its_loop_runs():
    assert ok(
        ALTERNATE
        + """
for run in (around, lambda: in_another(around), around):
    before, within, after = run()
    assert before is None and within is not None and after is None, (before, within, after)
# an OS thread without a loop has none of ours, also while one runs elsewhere
assert coro.run(coro.in_thread, alternate) is None
mapped = len(open("/proc/self/maps").readlines())
for _ in range(20):
    around()
assert len(open("/proc/self/maps").readlines()) < mapped + 10
"""
    ) == []


def test_an_alternate_signal_stack_of_the_program_stays():
    assert ok(
        ALTERNATE
        + """
own = ctypes.create_string_buffer(65536)
set_alternate(own)
assert around() == (ctypes.addressof(own),) * 3
set_alternate(None)

def within():
    "Set while the loop runs, as faulthandler does, which puts back what it found."
    global found
    found = alternate()
    set_alternate(own)

coro.run(within)
assert alternate() == ctypes.addressof(own)
ctypes.memset(found, 1, 65536)  # still mapped
set_alternate(None)
assert around()[1] is not None
"""
    ) == []


def test_a_fork_while_a_loop_runs_in_another_os_thread():
    assert ok(
        ALTERNATE
        + """
import os, warnings
warnings.simplefilter("ignore")

def loop():
    coro.run(coro.in_thread, fork)

def fork():
    pid = os.fork()
    if pid == 0:
        before, within, after = around()
        os._exit(0 if before is None and within is not None and after is None else 1)
    assert os.waitpid(pid, 0)[1] == 0

loop()
"""
    ) == []


def test_a_segfault_elsewhere_is_not_ours():
    outcome = program("""
        import coro, os, signal
        def main():
            os.kill(os.getpid(), signal.SIGSEGV)
            print("still alive")
        coro.run(main)
    """, "-X", "no_debug_ranges")  # fmt: skip
    assert outcome.code < 0
    assert "still alive" not in outcome.out
    assert "overflowed" not in outcome.err


if sys.platform != "linux":
    # /proc and the trimming of stacks
    test_running_into_the_guard_zone_names_the_thread_and_where_it_was = None
    test_an_excursion_gives_its_pages_back = None


def test_new_threads_that_share_a_slot_are_counted():
    lines = ok("""
        import coro
        def main():
            before = coro.statistics().slot_collisions
            threads = [coro.spawn(coro._yield) for _ in range(5)]
            coro.yield_slice()
            print(coro.statistics().slot_collisions - before)
            for thread in threads:
                thread.schedule()
        coro.set_stack_slots(4)
        coro.run(main)
    """)
    assert lines == ["2"]  # six threads, with main's, in four slots
