"""Libraries that keep account of the stack of each OS thread: greenlet, pybind11. And those that do not."""

from __future__ import annotations

import sys

import pybind11_support
import pytest
from emulation_support import emulated
from support import ok, program

needs_pybind11 = pytest.mark.skipif(bool(pybind11_support.missing()), reason=pybind11_support.missing() or "it is here")

#: Takes a free lock again and again for longer than a thread may have the CPU.
BUSY = """
        import threading, time
        from coro import NoSwitchError
        lock = threading.Lock()

        def busy():
            end = time.perf_counter() + 0.012
            while time.perf_counter() < end:
                with lock:
                    pass

        def together(function, count=4):
            threads = [threading.Thread(target=function, args=(n,)) for n in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
"""


@pytest.fixture(scope="module")
def with_pybind11():
    """The beginning of a program that can import the module."""
    return f"""
        import sys
        sys.path.insert(0, {pybind11_support.folder()!r})
        {BUSY}"""


def test_no_thread_gives_way_inside_a_greenlet():
    pytest.importorskip("greenlet")
    assert emulated(
        BUSY
        + """
        import greenlet
        running, mixed, results = [], [], []

        def inner(n):
            running.append(n)
            busy()
            if running != [n]:
                mixed.append(list(running))
            running.remove(n)
            time.sleep(0)               # waits for nothing
            back = greenlet.getcurrent().parent.switch(n)
            busy()
            return back

        def work(n):
            for _ in range(3):
                g = greenlet.greenlet(inner)
                assert g.switch(n) == n
                time.sleep(0.001)       # in the main greenlet
                results.append(g.switch(n + 1) - n)

        def main():
            together(work)
            print(mixed, results)
    """
    ) == ["[] [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]


def test_a_wait_inside_a_greenlet_is_refused_and_a_worker_takes_it():
    pytest.importorskip("greenlet")
    assert emulated(
        BUSY
        + """
        import greenlet, queue, socket
        refusals, done = [], []

        def wait(how):
            try:
                how()
            except NoSwitchError as exc:
                refusals.append(str(exc))

        def work(n):
            taken = threading.Lock()
            taken.acquire()
            one, other = socket.socketpair()
            with one, other:
                for how in (lambda: time.sleep(0.001), taken.acquire, queue.Queue().get, lambda: one.recv(1),
                            threading.Event().wait, lambda: coro.sleep_relative(0.001)):
                    greenlet.greenlet(lambda: wait(how)).switch()
                one.send(b"x")
                assert greenlet.greenlet(lambda: other.recv(1)).switch() == b"x"
            sleeper = lambda: greenlet.greenlet(lambda: time.sleep(0.001) or n).switch()
            done.append(coro.in_thread(sleeper))

        def main():
            together(work)
            assert len(refusals) == 24 and len(set(refusals)) == 1
            print("greenlet" in refusals[0], "coro.in_thread(" in refusals[0], sorted(done))
    """
    ) == ["True True [0, 1, 2, 3]"]


def test_greenlet_may_be_imported_after_the_loop_has_begun_and_without_emulation():
    pytest.importorskip("greenlet")
    ending = """
        import greenlet
        def inner():
            try:
                coro.sleep_relative(0)
            except coro.NoSwitchError:
                return "refused"
            return "slept"
    """
    source = "def main():\n" + "\n".join(line[4:] for line in ending.splitlines())
    source += "\n    print(greenlet.greenlet(inner).switch())\n    coro.sleep_relative(0.001)"
    assert emulated(source) == ["refused"]
    assert ok(
        "import coro\n"
        + "\n".join(line[8:] for line in ending.splitlines())
        + """
def main():
    print(greenlet.greenlet(inner).switch())
    coro.sleep_relative(0.001)

coro.run(main)
# A loop that runs inside a greenlet is at home there, and its threads may wait.
greenlet.greenlet(lambda: coro.run(coro.sleep_relative, 0.001)).switch()
greenlet.greenlet(lambda: coro.run(main)).switch()
"""
    ) == ["refused", "refused"]


def test_asyncio_with_greenlets_in_many_threads():
    """What SQLAlchemy's asyncio extension does: code in a greenlet, and the wait in the main one."""
    pytest.importorskip("greenlet")
    assert emulated(
        BUSY
        + """
        import asyncio, greenlet
        done = []

        def wait(awaitable):
            return greenlet.getcurrent().parent.switch(awaitable)

        async def spawn(function, *args):
            inside = greenlet.greenlet(function)
            result = inside.switch(*args)
            while not inside.dead:
                result = inside.switch(await result)
            return result

        def query(n):
            with lock:
                first = wait(asyncio.sleep(0.001, n))
            second = wait(asyncio.sleep(0.001 * (n % 3), first + 1))
            return second

        async def several(n):
            return [await spawn(query, n) for _ in range(5)]

        def work(n):
            done.append((n, asyncio.run(several(n))))

        def main():
            together(work, 50)
            print(all(result == [n + 1] * 5 for n, result in done), len(done))
    """.replace("with lock:", "if True:")
    ) == ["True 50"]


@needs_pybind11
def test_no_thread_gives_way_below_a_call_of_pybind11s(with_pybind11):
    assert emulated(
        with_pybind11
        + """
        import coro_pybind11_test as pb
        running, mixed, sums = [], [], []

        def callback(k):
            busy()
            if running != [threading.get_ident()]:
                mixed.append(list(running))
            time.sleep(0)               # waits for nothing
            return k

        def work(n):
            running.append(threading.get_ident())
            sums.append(pb.each(callback, 3 + n))
            running.clear()

        def main():
            together(work)
            print(mixed, sorted(sums))
    """
    ) == ["[] [3, 6, 10, 15]"]


@needs_pybind11
def test_a_wait_below_a_call_of_pybind11s_is_refused_and_a_worker_takes_it(with_pybind11):
    assert emulated(
        with_pybind11
        + """
        import coro_pybind11_test as pb
        refused = set()
        done = []

        def wait():
            time.sleep(0.001)
            return 1

        def caught():
            try:
                return wait()
            except NoSwitchError:
                return 2

        def work(n):
            ways = {
                "each": lambda: pb.each(lambda k: wait(), 2), "apply": lambda: pb.apply(wait),
                "without a Python function": lambda: pb.apply(taken.acquire),
                "a method": lambda: pb.Caller(lambda text: wait()).call("x"), "a constructor": lambda: pb.Number(wait),
                "a submodule": lambda: pb.inner.apply(wait),
                "a function of a function": lambda: pb.maker()(wait),
                "a call in a call": lambda: pb.apply(lambda: pb.each(lambda k: k, 1) or pb.apply(wait)),
                "through map and sorted": lambda: pb.apply(lambda: sorted(map(lambda n: wait(), [1, 2]))),
            }
            for name, way in ways.items():
                try:
                    way()
                except NoSwitchError as exc:
                    assert "coro_pybind11_test" in str(exc) and "coro.in_thread(" in str(exc), exc
                    refused.add((n, name))
                pb.plain(n)
                wait()                  # what the calls have left on the stack is no call
            try:
                pb.value(wait)          # pybind11 drops what a conversion raises
            except TypeError:
                pass
            assert pb.value(lambda: 5) == 5 and pb.each(lambda k: caught(), 3) == 6
            done.append(coro.in_thread(pb.each, lambda k: wait(), 2))

        taken = threading.Lock()
        taken.acquire()

        def main():
            together(work)
            print(len(refused), done)
    """
    ) == ["36 [2, 2, 2, 2]"]


@needs_pybind11
def test_check_names_them(with_pybind11):
    pytest.importorskip("greenlet")
    assert emulated(
        with_pybind11
        + """
        def main():
            print(coro.emulation.check())
            import coro_pybind11_test, greenlet
            for blocker in coro.emulation.check():
                print(blocker)
    """
    ) == [
        "[]",
        "pybind11 (coro_pybind11_test) lets no thread of the loop wait in Python code that a call into it runs; "
        "call it with coro.in_thread()",
        "greenlet (greenlet._greenlet) lets no thread of the loop wait in a greenlet other than the main one; "
        "wait in the main greenlet, or run it in coro.in_thread()",
    ]


@needs_pybind11
def test_modules_are_found_that_were_imported_before_the_loop_and_before_the_emulation(with_pybind11):
    start = "\n".join(line[8:] for line in with_pybind11.splitlines())
    ending = """
import coro_pybind11_test as pb
def wait():
    try:
        coro.sleep_relative(0)
    except coro.NoSwitchError:
        return "refused"
    return "slept"
"""
    assert ok("import coro\n" + start + ending + "coro.run(lambda: print(pb.apply(wait)))") == ["refused"]
    later = "coro.install_thread_emulation()\ncoro.run(lambda: print(pb.apply(wait)))"
    assert ok("import coro\n" + start + ending + later) == ["refused"]


def test_callbacks_of_other_c_code_may_wait():
    pytest.importorskip("cffi")
    assert emulated(
        BUSY
        + """
        import cffi, contextlib, ctypes, sqlite3
        ffi = cffi.FFI()
        ffi.cdef("void qsort(void *, size_t, size_t, int (*)(const void *, const void *));")
        by_cffi = ffi.dlopen(None)
        by_ctypes = ctypes.CDLL(None)
        compares = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
        done = []

        @ffi.callback("int(const void *, const void *)")
        def compare(a, b):
            time.sleep(0.0001)
            return ffi.cast("int *", a)[0] - ffi.cast("int *", b)[0]

        @compares
        def compare_too(a, b):
            time.sleep(0.0001)
            return a[0] - b[0]

        def work(n):
            numbers = [(n * 7 + k * 5) % 31 for k in range(12)]
            array = ffi.new("int[]", numbers)
            by_cffi.qsort(array, len(numbers), 4, compare)
            assert list(array) == sorted(numbers)
            array = (ctypes.c_int * len(numbers))(*numbers)
            by_ctypes.qsort(array, len(numbers), 4, compare_too)
            assert list(array) == sorted(numbers)
            with contextlib.closing(sqlite3.connect(":memory:")) as connection:
                connection.create_function("slow", 1, lambda n: time.sleep(0.0001) or n + 1)
                assert connection.execute("select slow(?)", (n,)).fetchone() == (n + 1,)
            assert sorted(numbers, key=lambda n: time.sleep(0.0001) or n) == sorted(numbers)
            done.append(n)

        def main():
            together(work, 20)
            print(len(done))
    """
    ) == ["20"]


@needs_pybind11
@pytest.mark.parametrize("first", [True, False])
def test_classes_that_say_they_are_another_modules_are_found(with_pybind11, first):
    """As extensions do that hide behind a package. The module is there when the loop begins, or is imported later."""
    imports = "import coro_pybind11_renamed as module"
    assert emulated(
        with_pybind11
        + f"""
        {imports if first else ""}

        def main():
            {"" if first else imports}
            outcome = []
            def work(n):
                try:
                    module.Caller(lambda: time.sleep(0.001)).call()
                except NoSwitchError as e:
                    outcome.append("C++ code of coro_pybind11_renamed calls" in str(e))
            together(work, 3)
            print(outcome, coro.emulation.check())
    """
    )[0].startswith("[True, True, True]")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks proc(5) where stacks are")
def test_a_fault_far_from_the_threads_own_stack_is_not_called_an_overflow():
    source = """
        import coro, ctypes, faulthandler
        faulthandler.disable()
        coro.set_stack_slots(4, 1 << 20)
        {imports}

        def main():
            closed = [line.split()[0].split("-") for line in open("/proc/self/maps") if "---p" in line]
            zones = sorted((int(begin, 16), int(end, 16)) for begin, end in closed)
            of_slots = [end for (_, end), (begin, _) in zip(zones, zones[1:]) if begin - end == 1 << 20]
            with open("/proc/thread-self/syscall") as call:
                pointer = int(call.read().split()[-2], 16)
            ctypes.memset([end for end in of_slots if not end <= pointer < end + (1 << 20)][0] - 8, 0, 1)

        coro.run(main)
    """
    outcome = program(source.format(imports=""))
    assert outcome.code < 0
    assert "coro thread #1 'main' reached beyond the stack of another thread" in outcome.err
    assert "overflowed" not in outcome.err and "greenlet" not in outcome.err and "in main" in outcome.err
    pytest.importorskip("greenlet")
    assert "greenlet is loaded." in program(source.format(imports="import greenlet")).err
