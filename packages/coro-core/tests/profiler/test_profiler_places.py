"""What calls without events of the interpreter: functions that report themselves, and the places that call them.

From Python 3.12 on a place in the program that calls what is told of anyway gets no events after a while; what it calls
must be counted all the same. On 3.11 every call has its events, and the counts must be the same ones.
"""

import functools
import sys

import pytest
from profiler_support import callers, charge, names, pass_time, profiled, seconds
from support import virtual_clock

import coro
from coro._clock import ticks
from coro.profiler._core import accounting

pytestmark = pytest.mark.usefixtures("leaves_nothing", "leaves_no_profiler")

#: More calls than a place has events for.
MANY = 3 * accounting.OFTEN

with_monitoring = pytest.mark.skipif(sys.version_info < (3, 12), reason="there is no sys.monitoring before Python 3.12")


@pytest.fixture
def calls_seen():
    """The CALL events of `_yield` that another tool has been given: what is disabled for one is not for others."""
    seen = []

    def count(code, offset, function, first):
        if function is coro._yield:
            seen.append(offset)

    monitoring = sys.monitoring
    monitoring.use_tool_id(4, "test")
    monitoring.register_callback(4, monitoring.events.CALL, count)
    monitoring.set_events(4, monitoring.events.CALL)
    yield seen
    monitoring.set_events(4, 0)
    monitoring.register_callback(4, monitoring.events.CALL, None)
    monitoring.free_tool_id(4)


def ring(turns, *, step=None, threads=5):
    """Threads that wake one another, `turns` times each."""
    members = []

    def member(number):
        wake = members[(number + 1) % threads].schedule
        _yield = coro._yield
        _yield()
        for _ in range(turns):
            if step is not None:
                step(number)
            wake()
            _yield()

    def main():
        members.extend(coro.new(member, n) for n in range(threads))
        for t in members:
            t.start()
        coro.yield_slice()
        coro.schedule(members[0])
        members[0].join()
        for t in members[1:]:
            t.shutdown()
            t.join()

    return main


def test_primitives_are_counted_at_places_without_events():
    turns = MANY // 5
    p = profiled(ring(turns))
    (member,) = names(p, "member")
    assert p.call_counts[member] == {
        "coro:_yield": turns * 5 + 5,
        "coro:coro.schedule": turns * 5,
        **({"builtins:range": 5} if sys.version_info >= (3, 12) else {}),
    }
    assert callers(p, "coro:_yield") == [member]
    assert p.charges["coro:schedule"].calls == 1
    assert p.charges["coro:yield_slice"].calls == 1
    assert sum(filled.own[0] for filled in p.charges.values()) == p.elapsed
    assert all(own >= 0 for filled in p.charges.values() for own in filled.own)


def test_python_functions_are_counted_at_places_without_events():
    def step(number):
        abs(number)

    turns = MANY // 5
    p = profiled(ring(turns, step=step))
    (member,), (stepped,) = names(p, "member"), names(p, "step")
    assert p.call_counts[member][stepped] == turns * 5
    assert p.call_counts[stepped] == {"builtins:abs": turns * 5}


def test_all_kinds_of_calls_are_counted_at_places_without_events():
    class Base:
        def method(self, *args, **kwargs):
            return abs(-1)

    class Derived(Base):
        def method(self, *args, **kwargs):
            return super().method(*args, **kwargs)

    def plain(x=0):
        return x

    def main():
        derived, bound, partial = Derived(), Derived().method, functools.partial(plain, x=1)
        named = {"x": 2}
        for _ in range(MANY):
            plain(x=1)
            plain(*(1,))
            plain(**named)
            derived.method(1, x=2)
            bound()
            partial()
            len("")

    p = profiled(main)
    (caller,) = names(p, "main")
    counts = p.call_counts[caller]
    # Called from C on 3.12, which tells of the partial object, and from main() on 3.11, which does not.
    assert charge(p, "plain").calls == 4 * MANY
    assert counts[names(p, "plain")[0]] >= 3 * MANY
    assert counts[names(p, "Derived.method")[0]] == 2 * MANY
    assert counts["builtins:len"] == MANY
    assert charge(p, "Base.method").calls == 2 * MANY
    assert p.charges["builtins:abs"].calls == 2 * MANY


@with_monitoring
def test_a_place_without_events_has_them_for_others(calls_seen):
    turns = MANY // 5
    p = profiled(ring(turns))
    assert p.charges["coro:_yield"].calls == turns * 5 + 5
    assert len(calls_seen) == turns * 5 + 5


def test_a_place_that_calls_other_functions_keeps_its_events():
    order = [coro._yield if i % 7 else len for i in range(MANY)]
    arguments = [() if function is coro._yield else ("",) for function in order]

    def mixed():
        for function, given in zip(order, arguments, strict=True):
            function(*given)

    def main():
        t = coro.spawn(mixed)
        coro.yield_slice()
        while not t.dead:
            t.schedule()
            coro.yield_slice()

    p = profiled(main)
    (caller,) = names(p, "mixed")
    counts = p.call_counts[caller]
    assert counts["builtins:len"] == order.count(len)
    assert counts["coro:_yield"] == order.count(coro._yield)


def test_a_place_that_called_another_function_once_keeps_its_events():
    functions = [len] + [lambda x: x] * MANY + [len]

    def caller():
        for function in functions:
            function("")

    p = profiled(caller)
    (name,) = names(p, "caller")
    assert p.call_counts[name]["builtins:len"] == 2
    assert sum(count for f, count in p.call_counts[name].items() if "<lambda>" in f) == MANY


def test_a_call_that_blocks_ends_where_others_call_something_else():
    """A thread is inside a C function that events tell of when others have called others there often enough."""
    offered = coro.channel(1)

    def call(function, *given):
        function(*given)
        afterwards()

    def afterwards():
        pass

    def other():
        pass

    def main():
        t = coro.spawn(call, next, iter(offered.receive, None))
        coro.yield_slice()
        for _ in range(MANY):
            call(other)
        offered.send(1)
        t.join()

    p = profiled(main)
    assert charge(p, "afterwards").calls == MANY + 1
    assert callers(p, "afterwards") == names(p, "call")


@with_monitoring
def test_what_else_a_place_without_events_calls_is_charged_to_the_caller():
    functions = [lambda x: x] * MANY + [ticks.advance_virtual]

    def caller():
        for function in functions:
            function(3 * 10**9)

    with virtual_clock():
        p = profiled(caller)
    assert seconds(charge(p, "caller").own[0]) == 3
    assert "coro._clock.ticks:advance_virtual" not in p.charges


def test_a_later_session_has_all_events_again():
    functions = [lambda x: x] * MANY
    last = []

    def caller():
        for function in functions + last:
            function("")

    profiled(caller)
    last.append(len)
    del functions[3:]
    p = profiled(caller)
    (name,) = names(p, "caller")
    assert p.call_counts[name]["builtins:len"] == 1
    assert sum(count for f, count in p.call_counts[name].items() if "<lambda>" in f) == 3


def test_a_later_session_has_all_events_of_parked_threads_again():
    calls = [lambda x: x] * MANY
    p = coro.new_profiler(coro.bench)

    def caller():
        for function in calls:
            function("")
        while True:
            coro._yield()
            for function in calls:
                function("")

    def main():
        first = coro.new_profiler(coro.bench)
        first.start()
        t = coro.spawn(caller)
        coro.yield_slice()
        t.schedule()
        coro.yield_slice()
        first.stop()
        calls[:] = [len] * 3
        p.start()
        t.schedule()
        coro.yield_slice()
        p.stop()
        t.shutdown()
        t.join()

    coro.run(main)
    (name,) = names(p, "caller")
    assert p.call_counts[name] == {"builtins:len": 3, "coro:_yield": 1}


@pytest.mark.parametrize("bench", [coro.bench, coro.rusage_bench])
def test_exceptions_out_of_primitives_end_their_calls(bench):
    turns = MANY // 5
    raised = []

    def waiter():
        for i in range(turns):
            try:
                coro._yield()
            except LookupError:
                raised.append(i)
            after()

    def after():
        pass

    def main():
        threads = [coro.spawn(waiter) for _ in range(5)]
        coro.yield_slice()
        for i in range(turns):
            for t in threads:
                if i % 3:
                    t.schedule()
                else:
                    t.raise_exception(LookupError)
            coro.yield_slice()
        for t in threads:
            t.join()

    p = profiled(main, bench=bench)
    (name,) = names(p, "waiter")
    assert len(raised) == 5 * len(range(0, turns, 3))
    assert p.call_counts[name]["coro:_yield"] == 5 * turns
    assert callers(p, "after") == [name]
    assert charge(p, "after").calls == 5 * turns


def test_time_limits_that_end_primitives():
    never = coro.event()

    def after():
        pass_time(1)

    def waiter():
        for _ in range(4):
            with pytest.raises(coro.TimeoutError), coro.timeout(2):
                never.wait()
            after()

    def main():
        t = coro.spawn(waiter)
        for _ in range(4):
            coro.yield_slice()
            pass_time(2)
        t.join()

    with virtual_clock():
        p = profiled(main)
    assert p.charges["coro:event.wait"].calls == 4
    assert seconds(p.charges["coro:event.wait"].waited) == 8
    assert callers(p, "after") == names(p, "waiter")
    assert seconds(charge(p, "after").aggregate[0]) == 4


def test_misused_primitives_end_their_calls():
    def main():
        for _ in range(3):
            with pytest.raises(coro.ScheduleError):
                coro.current().schedule()
            with pytest.raises(TypeError):
                coro.schedule(1, 2, 3)
            with coro.no_switch(), pytest.raises(coro.NoSwitchError):
                coro.yield_slice()
        after()

    def after():
        pass

    p = profiled(main)
    assert p.charges["coro:coro.schedule"].calls == 3
    assert p.charges["coro:schedule"].calls == 3
    assert p.charges["coro:yield_slice"].calls == 3
    assert callers(p, "after") == names(p, "main")


@with_monitoring
def test_primitives_called_from_c_are_counted():
    queue = coro.fifo()

    def main():
        list(map(queue.push, range(10)))
        pop = functools.partial(queue.pop)
        assert [pop() for _ in range(10)] == list(range(10))

    p = profiled(main)
    assert callers(p, "coro:fifo.push") == ["builtins:list"]
    assert callers(p, "coro:fifo.pop") == ["functools:partial"]
    assert p.charges["coro:fifo.push"].calls == p.charges["coro:fifo.pop"].calls == 10


@pytest.mark.parametrize("bench", [coro.bench, coro.rusage_bench])
def test_sessions_that_begin_and_end_inside_primitives(bench):
    """Threads are parked in functions that report themselves, since before the session, in it or in an earlier one."""
    sessions = [coro.new_profiler(bench)]
    gate = coro.event()

    def waiter():
        gate.wait()
        gate.wait()
        after()

    def after():
        pass

    def main():
        before = coro.spawn(waiter, thread_name="before")
        coro.yield_slice()
        sessions[0].start()
        during = coro.spawn(waiter, thread_name="during")
        coro.yield_slice()
        sessions[0].stop()
        between = coro.spawn(waiter, thread_name="between")
        coro.yield_slice()
        sessions.append(coro.new_profiler(bench))
        sessions[1].start()
        gate.set()
        for t in (before, during, between):
            t.join()
        after()
        sessions[1].stop()

    coro.run(main)
    first, second = sessions
    assert first.charges["coro:event.wait"].calls == 1
    assert not [f for f in first.charges if f.endswith("after")]
    assert second.charges["coro:event.wait"].calls == 3
    assert charge(second, "after").calls == 4
    assert sorted(callers(second, "after")) == sorted(names(second, "waiter") + names(second, "main"))
    for p in sessions:
        assert sum(filled.own[0] for filled in p.charges.values()) == p.elapsed


def test_a_thread_that_ends_inside_a_primitive():
    def stuck():
        coro._yield()

    def main():
        threads = [coro.spawn(stuck) for _ in range(3)]
        coro.yield_slice()
        for t in threads:
            t.shutdown()
            t.join()

    p = profiled(main)
    assert all(t.ended for t in p.profile().threads if t.number > 0)
    assert p.call_counts[names(p, "stuck")[0]] == {"coro:_yield": 3}


def test_what_waiting_takes_is_told_apart_at_places_without_events():
    turns = MANY // 2

    def waiter():
        for _ in range(turns):
            coro._yield()

    def main():
        t = coro.spawn(waiter)
        coro.yield_slice()
        for _ in range(turns):
            pass_time(0.001)
            t.schedule()
            coro.yield_slice()
        t.join()

    with virtual_clock():
        p = profiled(main)
    waited = p.charges["coro:_yield"].waited
    assert waited == pytest.approx(turns * 0.001 * coro.ticks_per_sec, rel=1e-3)
    assert seconds(charge(p, "waiter").aggregate[0]) == 0


def test_nothing_reports_itself_without_a_profiler():
    calls = []

    def main():
        queue = coro.fifo()
        profiled_later = functools.partial(queue.push, 1)
        profiled_later()
        calls.append(queue.pop())
        coro.yield_slice()

    profiled(main)
    coro.run(main)
    p = profiled(coro.yield_slice)
    assert calls == [1, 1]
    assert "coro:fifo.push" not in p.charges
