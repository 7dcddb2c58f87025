"""The profiler's accounts: who is charged for what, exactly.

The clock is virtual, so that time passes where a test says so and nowhere else, and calls are counted one by one.
"""

import contextlib
import functools
import random
import sys
import threading

import pytest
from profiler_support import callers, charge, names, pass_time, profiled, seconds
from support import advance, virtual_clock

import coro
from coro._clock import ticks
from coro._runtime import scheduler
from coro.profiler import _session

pytestmark = pytest.mark.usefixtures("leaves_nothing", "leaves_no_profiler")


# ---------------------------------------------------------------------------------------------- calls


def test_calls_of_python_and_c_functions_are_counted():
    def counted(values):
        values.append(1)
        len(values)

    def main():
        values = []
        for _ in range(7):
            counted(values)
        str.upper("a")

    p = profiled(main)
    assert charge(p, "counted").calls == 7
    assert p.charges["builtins:list.append"].calls >= 7
    (caller,) = names(p, "counted")
    assert p.call_counts[caller] == {"builtins:list.append": 7, "builtins:len": 7}
    (caller,) = names(p, "main")
    assert p.call_counts[caller]["builtins:str.upper"] == 1


def test_a_python_function_is_named_by_folder_file_name_and_line():
    def main():
        pass

    p = profiled(main)
    name = p.func_cache[main.__code__]
    assert name == f"profiler/test_profiler.py:{main.__qualname__}:{main.__code__.co_firstlineno}"
    assert p.charges[name].calls == 1


def test_two_functions_of_one_name_and_line_are_told_apart():
    sources = ["def twin(): pass\ntwin()"] * 2

    def main():
        for source in sources:
            exec(compile(source, "made/up.py", "exec"), {})

    p = profiled(main)
    assert {n for n in p.charges if "twin" in n} == {"made/up.py:twin:1", "made/up.py:twin:1#2"}


def test_generators_count_once_and_stay_balanced():
    def numbers(n):
        yield from range(n)

    def given_up():
        try:
            yield 1
            yield 2
        finally:
            advance(0.5)

    def main():
        for _ in range(3):
            assert sum(numbers(10)) == 45
        g = given_up()
        next(g)
        g.close()
        g = given_up()
        next(g)
        with pytest.raises(KeyError):
            g.throw(KeyError)
        after()

    def after():
        advance(1)

    with virtual_clock():
        p = profiled(main)
    assert charge(p, "numbers").calls == 3
    assert charge(p, "given_up").calls == 2
    assert seconds(charge(p, "given_up").aggregate[0]) == 1
    assert callers(p, "after") == names(p, "main")


def test_exceptions_unwind():
    def deep(n):
        if n == 0:
            advance(1)
            int("no number")
        deep(n - 1)

    def after():
        advance(2)

    def main():
        for _ in range(3):
            with pytest.raises(ValueError):
                deep(20)
            after()

    with virtual_clock():
        p = profiled(main)
    assert charge(p, "deep").calls == 63
    assert seconds(charge(p, "deep").aggregate[0]) == 3
    assert charge(p, "after").calls == 3
    assert callers(p, "after") == names(p, "main")


def test_a_coroutine_that_awaits_is_followed():
    class Once:
        def __await__(self):
            yield 1

    async def inner():
        await Once()
        advance(1)

    async def outer():
        await inner()

    def main():
        c = outer()
        c.send(None)
        with pytest.raises(StopIteration):
            c.send(None)

    with virtual_clock():
        p = profiled(main)
    assert charge(p, "inner").calls == charge(p, "outer").calls == 1
    assert seconds(charge(p, "outer").aggregate[0]) == 1


def test_classes_methods_and_objects_that_are_called_have_names():
    class Called:
        def __init__(self):
            self.n = 1

        def method(self):
            return self.n

        def __call__(self):
            return 2

    def main():
        Called().method()
        Called()()
        [].extend([1])
        dict.fromkeys("ab")
        (1).__add__(2)
        sys.intern("x")

    p = profiled(main)
    assert charge(p, "Called.__init__").calls == 2
    assert charge(p, "Called.method").calls == 1
    assert charge(p, "Called.__call__").calls == 1
    assert p.charges["builtins:dict.fromkeys"].calls == 1
    assert p.charges["sys:intern"].calls == 1


# ---------------------------------------------------------------------------------------------- time


def test_own_and_aggregate():
    def leaf():
        pass_time(2)

    def branch():
        leaf()
        pass_time(3)
        leaf()

    with virtual_clock():
        p = profiled(branch)
    assert seconds(charge(p, "leaf").aggregate[0]) == 4
    assert seconds(charge(p, "branch").aggregate[0]) == 7
    assert seconds(charge(p, "branch").own[0]) == 0
    assert seconds(charge(p, "coro._clock.ticks:advance_virtual").own[0]) == 7
    assert seconds(p.elapsed) == 7
    assert charge(p, "branch").get_data() == (1, charge(p, "branch").own, charge(p, "branch").aggregate)


def test_recursion_counts_its_aggregate_once():
    def down(n):
        pass_time(1)
        if n:
            again(n - 1)

    def again(n):
        down(n)

    with virtual_clock():
        p = profiled(down, 4)
    assert seconds(charge(p, "down").aggregate[0]) == 5
    assert seconds(charge(p, "again").aggregate[0]) == 4
    assert charge(p, "down").calls == 5


def test_waiting_is_told_apart():
    done = coro.event()

    def waiter():
        done.wait()

    def main():
        t = coro.spawn(waiter)
        coro.yield_slice()
        pass_time(5)
        done.set()
        t.join()

    with virtual_clock():
        p = profiled(main)
    waiter_account = charge(p, "waiter")
    assert seconds(waiter_account.aggregate_waited) == 5
    assert seconds(waiter_account.aggregate[0]) == 0
    assert seconds(charge(p, "coro:event.wait").waited) == 5
    assert seconds(charge(p, "pass_time").aggregate[0]) == 5


@pytest.mark.parametrize("sleep", [coro.sleep, coro.sleep_relative])
def test_waiting_for_the_kernel_is_charged_to_nobody(sleep):
    p = profiled(sleep, 0.05)
    waited = p.charges["<wait>"].own[0] / coro.ticks_per_sec
    assert 0.04 <= waited <= p.elapsed / coro.ticks_per_sec
    rest = sum(filled.own[0] for name, filled in p.charges.items() if name != "<wait>")
    assert rest + p.charges["<wait>"].own[0] == p.elapsed


def test_everything_that_passed_is_charged_to_somebody():
    def worker(n):
        for i in range(n):
            if i % 3 == 0:
                coro.yield_slice()
            sorted(range(i))

    def main():
        for t in [coro.spawn(worker, n) for n in range(40)]:
            t.join()

    p = profiled(main)
    assert sum(filled.own[0] for filled in p.charges.values()) == p.elapsed
    assert charge(p, "worker").calls == 40
    assert charge(p, "coro:yield_slice").calls == sum((n + 2) // 3 for n in range(40))
    assert all(filled.aggregate[0] <= p.elapsed for filled in p.charges.values())


# ---------------------------------------------------------------------------------------------- threads


def test_threads_have_accounts_of_their_own():
    def worker(n):
        for _ in range(n):
            pass_time(1)
            coro.yield_slice()

    def main():
        for n in (1, 2, 3):
            coro.spawn(worker, n, thread_name=f"worker {n}")
        coro.spawn(coro.event().wait, thread_name="stuck", daemon=True)

    with virtual_clock():
        p = coro.new_profiler(coro.bench)
        p.start()
        coro.spawn(main)
        coro.event_loop()
        p.stop()
    threads = {t.name: t for t in p.profile().threads}
    for n in (1, 2, 3):
        t = threads[f"worker {n}"]
        assert t.ended
        assert t.slices == n + 1
        assert seconds(sum(node[4] for node in t.nodes)) == n
    assert threads["<main>"].number == 0


def test_a_thread_that_is_alive_at_the_end_is_flushed():
    p = coro.new_profiler(coro.bench)
    release = coro.event()

    def parked():
        pass_time(3)
        release.wait()

    def main():
        t = coro.spawn(parked, thread_name="alive")
        coro.yield_slice()
        pass_time(2)
        p.stop()
        release.set()
        t.join()

    with virtual_clock():
        p.start()
        coro.run(main)
    account = charge(p, "parked")
    assert seconds(account.aggregate[0]) == 3
    assert seconds(account.aggregate_waited) == 2
    (alive,) = [t for t in p.profile().threads if t.name == "alive"]
    assert not alive.ended
    assert seconds(charge(p, "main").aggregate[0]) == 2


def test_a_session_that_begins_in_the_middle_knows_who_runs():
    gates = [coro.event() for _ in range(2)]
    p = coro.new_profiler(coro.bench)

    def outer(gate):
        inner(gate)
        pass_time(10)

    def inner(gate):
        gate.wait()
        pass_time(1)

    def main():
        threads = [coro.spawn(outer, gate) for gate in gates]
        coro.yield_slice()
        begin()
        for gate in gates:
            gate.set()
        for t in threads:
            t.join()
        pass_time(4)
        p.stop()

    def begin():
        p.start()

    with virtual_clock():
        coro.run(main)
    assert charge(p, "outer").calls == 0
    assert seconds(charge(p, "inner").aggregate[0]) == 2
    assert seconds(charge(p, "outer").aggregate[0]) == 22
    assert seconds(charge(p, "main").aggregate[0]) == 4


def test_threads_that_ended_and_are_too_many_are_added_up(monkeypatch):
    monkeypatch.setattr(_session, "MOST_ENDED", 3)

    def worker(n):
        for _ in range(n):
            len("x")
        if n % 2:
            sorted([n])

    def main():
        for n in range(20):
            coro.spawn(worker, n).join()

    p = profiled(main)
    threads = p.profile().threads
    assert [t.number for t in threads][:2] == [0, threads[1].number]
    assert len(threads) == 5  # main, three, and the rest
    assert threads[-1].number == -1
    assert threads[-1].name == "(18 more threads that ended)"
    assert charge(p, "worker").calls == 20
    counts = p.call_counts[names(p, "worker")[0]]
    counts.pop("builtins:range", None)  # 3.11 does not tell of classes that are called
    assert counts == {
        "builtins:len": sum(range(20)),
        "builtins:sorted": 10,
    }
    assert sum(filled.own[0] for filled in p.charges.values()) == p.elapsed


def test_too_many_paths_are_charged_to_their_callers(monkeypatch):
    monkeypatch.setattr(_session, "MOST_NODES", 200)

    def down(n):
        if n:
            coro.yield_slice()
            down(n - 1)
        else:
            pass_time(1)

    def main():
        for t in [coro.spawn(down, 50) for _ in range(3)]:
            t.join()
        pass_time(2)

    with virtual_clock():
        p = profiled(main)
    assert p.profile().dropped > 0
    assert seconds(sum(filled.own[0] for filled in p.charges.values())) == 5
    assert seconds(p.charges["<main>"].aggregate[0]) == 5
    assert seconds(charge(p, "main").aggregate[0]) == 2


def test_a_function_with_many_callees():
    callees = [eval(f"lambda: {n}") for n in range(300)]

    def main():
        for _ in range(3):
            for callee in callees:
                callee()

    p = profiled(main)
    (caller,) = names(p, "main")
    counts = [count for callee, count in p.call_counts[caller].items() if "<lambda>" in callee]
    assert counts == [3] * 300


@pytest.mark.parametrize("clock", [contextlib.nullcontext, virtual_clock])
def test_calls_in_no_order_are_counted(clock):
    """With few callees, as most functions have, with the processor's counter and without."""
    # A comprehension would be a callee of its own on 3.11.
    callees = [len, abs, str.upper, [].count, *map(eval, ["lambda x: 1", "lambda x: 2"])]
    arguments = ["", 0, "", 0, 0, 0]
    order = random.Random(1).choices(range(6), (10, 10, 5, 5, 2, 1), k=2000)

    def caller():
        for i in order:
            callees[i](arguments[i])

    def main():
        other = coro.spawn(caller)
        caller()
        other.join()

    with clock():
        p = profiled(main)
    (name,) = names(p, "caller")
    counts = p.call_counts[name]
    found = [counts[f"builtins:{f}"] for f in ("len", "abs", "str.upper", "list.count")]
    found += sorted((count for callee, count in counts.items() if "<lambda>" in callee), reverse=True)
    assert found == [2 * order.count(i) for i in range(6)]
    assert charge(p, "caller").calls == 2


def test_what_main_does_between_slices_is_not_charged_to_the_next_thread():
    # Made of C functions only, of which main's events tell nothing.
    second = functools.partial(ticks.advance_virtual, 10**9)
    poll = functools.partial(next, iter(second, object()))

    def main():
        scheduler._set_poll_hook(poll)
        for _ in range(5):
            coro.yield_slice()
        scheduler._set_poll_hook(None)

    with virtual_clock():
        p = profiled(main)
    assert seconds(p.elapsed) == seconds(p.charges["<main>"].own[0]) == 5
    assert seconds(p.charges["coro:yield_slice"].waited) == 5
    assert seconds(charge(p, "main").aggregate[0]) == 0


def test_other_os_threads_are_ignored():
    def elsewhere():
        return len("abc")

    def main():
        other = threading.Thread(target=elsewhere)
        other.start()
        coro.in_thread(other.join)

    p = profiled(main)
    assert not [name for name in p.charges if "elsewhere" in name]


def test_a_thread_that_fails_or_is_shut_down_ends_its_account():
    def failing():
        pass_time(1)
        raise ValueError("expected")

    def shut():
        coro.event().wait()

    def main():
        coro.set_exception_notifier(lambda: None)
        t = coro.spawn(failing)
        s = coro.spawn(shut)
        coro.yield_slice()
        s.shutdown()
        s.join()
        t.join()
        coro.set_exception_notifier(None)

    with virtual_clock():
        p = profiled(main)
    assert all(t.ended for t in p.profile().threads if t.number > 0)
    assert seconds(charge(p, "failing").aggregate[0]) == 1
