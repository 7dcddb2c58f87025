"""The interpreter state that belongs to a thread stays with it: exceptions, context, tracing, recursion depth."""

import asyncio
import contextvars
import ctypes
import ctypes.util
import json
import pickle
import sys
import traceback
from pathlib import Path

import pytest
from support import ok, program

import coro

pytestmark = pytest.mark.usefixtures("leaves_nothing")

VAR = contextvars.ContextVar("VAR", default="default")


def together(*functions):
    """Run functions as threads at the same time; their exceptions fail the test."""

    def main():
        threads = [coro.spawn(f) for f in functions]
        for thread in threads:
            thread.join()
        for thread in threads:
            if thread.exception is not None:
                raise thread.exception
        return [thread.result for thread in threads]

    notifier = coro.set_exception_notifier(lambda: None)
    try:
        return coro.run(main)
    finally:
        coro.set_exception_notifier(notifier)


# -- exceptions


def test_handled_exceptions_do_not_mix():
    def handles(error):
        def run():
            for _ in range(3):
                assert sys.exc_info() == (None, None, None)
                coro.yield_slice()
                try:
                    raise error
                except Exception as exc:
                    coro.yield_slice()
                    assert sys.exc_info()[1] is exc is error
                    try:
                        coro.yield_slice()
                        raise KeyError
                    except KeyError as inner:
                        coro.yield_slice()
                        assert inner.__context__ is error
                    coro.yield_slice()
                    assert sys.exc_info()[1] is error
                coro.yield_slice()
            assert sys.exc_info() == (None, None, None)

        return run

    together(handles(ValueError("a")), handles(OSError("b")), handles(TypeError("c")))


def test_bare_raise_after_a_switch():
    def reraises(error):
        def run():
            try:
                try:
                    raise error
                except Exception:
                    coro.yield_slice()
                    raise
            except Exception as exc:
                assert exc is error
                assert [f.name for f in traceback.extract_tb(exc.__traceback__)] == ["run"]

        return run

    together(reraises(ValueError()), reraises(OSError()))


def test_a_bare_raise_has_nothing_of_another_thread():
    def handles():
        try:
            raise ValueError
        except ValueError:
            for _ in range(3):
                coro.yield_slice()

    def has_none():
        coro.yield_slice()
        with pytest.raises(RuntimeError, match="No active exception"):
            raise

    together(handles, has_none)


def test_a_thread_begins_without_the_exception_its_parent_handles():
    def child():
        assert sys.exc_info() == (None, None, None)
        try:
            raise KeyError
        except KeyError as exc:
            assert exc.__context__ is None

    def main():
        try:
            raise ValueError
        except ValueError:
            coro.spawn(child).join()
            thread = coro.spawn(child)
            coro.yield_slice()
            assert thread.dead and thread.exception is None
            assert isinstance(sys.exc_info()[1], ValueError)

    coro.run(main)


def test_generators_carry_their_exception():
    def numbers(error):
        try:
            raise error
        except Exception:
            for i in range(4):
                coro.yield_slice()
                yield i
                assert sys.exc_info()[1] is error

    def consumes(error, outer):
        def run():
            try:
                raise outer
            except Exception:
                for _ in numbers(error):
                    assert sys.exc_info()[1] is outer
                    coro.yield_slice()
                    assert sys.exc_info()[1] is outer

        return run

    together(consumes(ValueError(), KeyError()), consumes(OSError(), TypeError()))


def test_an_exception_survives_a_finaliser_that_switches():
    class Blocks:
        def __del__(self):
            try:
                raise KeyError
            except KeyError:
                coro.yield_slice()

    def fails():
        thing = Blocks()  # noqa: F841
        raise ValueError(1)

    def run():
        for _ in range(3):
            try:
                fails()
            except ValueError as exc:
                exc.__traceback__ = None  # here the finaliser runs
                assert exc.args == (1,) and exc.__context__ is None

    together(run, run, run)


def test_a_pending_exception_survives_a_finaliser_that_switches_while_unwinding():
    order = []

    class Blocks:
        def __del__(self):
            coro.yield_slice()
            order.append("del")

    def iterates():
        try:
            # the list iterator's item is released while the exception is on its way
            [1 // x for x, _ in ((i, Blocks()) for i in (2, 1, 0))]
        except ZeroDivisionError as exc:
            coro.yield_slice()
            assert sys.exc_info()[1] is exc
            del exc
        return "done"

    assert together(iterates, iterates) == ["done", "done"]
    assert order.count("del") == 6


def test_tracebacks_name_the_frames_of_one_thread():
    def innermost(error):
        coro.yield_slice()
        raise error

    def middle(x, error):
        sorted([x], key=lambda _: innermost(error))

    def names(error):
        def run():
            try:
                middle(1, error)
            except Exception as exc:
                return [f.name for f in traceback.extract_tb(exc.__traceback__)]

        return run

    found = together(names(ValueError()), names(OSError()), names(KeyError()))
    assert found == [["run", "middle", "<lambda>", "innermost"]] * 3


# -- context variables


def test_context_variables_belong_to_a_thread_and_are_inherited():
    def child(expected):
        assert VAR.get() == expected
        VAR.set("child")
        coro.yield_slice()
        assert VAR.get() == "child"

    def main():
        assert VAR.get() == "outside"
        for value in ("one", "two"):
            VAR.set(value)
            coro.spawn(child, value)
        VAR.set("three")
        coro.yield_slice()
        coro.yield_slice()
        assert VAR.get() == "three"

    token = VAR.set("outside")
    try:
        together(main)
        assert VAR.get() == "outside"
    finally:
        VAR.reset(token)


def test_context_run_across_switches():
    def changes(value):
        def inside():
            VAR.set(value)
            for _ in range(3):
                coro.yield_slice()
                assert VAR.get() == value

        def run():
            for _ in range(3):
                contextvars.copy_context().run(inside)
                assert VAR.get() == "default"
                coro.yield_slice()

        return run

    together(*(changes(n) for n in range(4)))


def test_a_context_that_one_thread_is_in_cannot_be_entered_by_another():
    context = contextvars.copy_context()

    def inside():
        context.run(coro.yield_slice)

    def enters_too():
        with pytest.raises(RuntimeError, match="already entered"):
            context.run(int)

    together(inside, enters_too)


# -- tracing


@pytest.mark.parametrize("which", ["trace", "profile"])
def test_tracing_belongs_to_a_thread(which):
    get, set_ = getattr(sys, f"get{which}"), getattr(sys, f"set{which}")
    seen = {1: [], 2: []}

    def helper():
        coro.yield_slice()

    def untraced():
        for _ in range(6):
            assert get() is None
            coro.yield_slice()

    def traced(number):
        def tracer(frame, event, arg):
            if event == "call":
                seen[number].append((frame.f_code.co_name, coro.current()))
            return tracer

        def run():
            me = coro.current()
            set_(tracer)
            try:
                for _ in range(3):
                    helper()
                    coro.yield_slice()
                    assert get() is tracer
            finally:
                set_(None)
            helper()
            calls = [name for name, thread in seen[number] if thread is me]
            assert calls == ["helper"] * 3
            assert len(calls) == len(seen[number]) or {n for n, _ in seen[number]} <= {"helper"}
            seen[number].clear()

        return run

    before = get()
    set_(None)
    try:
        together(untraced, traced(1), untraced, traced(2))
        assert get() is None
    finally:
        set_(before)


@pytest.mark.parametrize("which", ["trace", "profile"])
def test_threads_inherit_the_tracing_of_main_and_may_end_traced(which):
    lines = ok(f"""
        import coro, sys
        coro.set_latency_warning(0)
        calls = []
        def tracer(frame, event, arg):
            if event == "call" and frame.f_code.co_name in ("helper", "child"):
                calls.append((coro.current().name, frame.f_code.co_name))
            return tracer
        def helper():
            coro.yield_slice()
        def child():
            helper()
        def quiet():
            sys.set{which}(None)
            helper()
        def main():
            threads = [coro.spawn(child), coro.spawn(quiet), coro.spawn(child)]
            for t in threads:
                t.join()
        sys.set{which}(tracer)
        coro.run(main)
        assert sys.get{which}() is tracer
        sys.set{which}(None)
        print(calls)
        print(coro.get_live_coros())
    """)
    expected = [("child", "child"), ("child", "helper")] * 2
    assert lines == [str(expected), "0"]


def test_a_trace_function_may_switch():
    seen = []

    def target():
        return 5

    def run():
        def tracer(frame, event, arg):
            if frame.f_code is target.__code__:
                coro.yield_slice()
                seen.append(event)
                return tracer
            return None

        sys.settrace(tracer)
        try:
            assert target() == 5
        finally:
            sys.settrace(None)

    before = sys.gettrace()
    sys.settrace(None)
    try:
        together(run, run)
    finally:
        sys.settrace(before)
    assert sorted(seen) == sorted(["call", "line", "return"] * 2)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in 3.12")
def test_monitoring_sees_every_thread_and_may_switch():
    tool, events, seen = 4, sys.monitoring.events, []

    def target():
        coro.yield_slice()

    def on_start(code, offset):
        if code is target.__code__:
            coro.yield_slice()
            seen.append(coro.current().name)

    sys.monitoring.use_tool_id(tool, "test")
    try:
        sys.monitoring.register_callback(tool, events.PY_START, on_start)
        sys.monitoring.set_events(tool, events.PY_START)
        together(target, target, target)
    finally:
        sys.monitoring.set_events(tool, 0)
        sys.monitoring.register_callback(tool, events.PY_START, None)
        sys.monitoring.free_tool_id(tool)
    assert seen == [target.__qualname__] * 3


# -- floating point


def test_floating_point_exception_flags_belong_to_a_thread():
    # numpy's errstate clears them, calls back and looks at them; here libm's functions, which it uses for that
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    invalid = 1  # FE_INVALID of all processors
    for name in ("fetestexcept", "feraiseexcept", "feclearexcept"):
        getattr(libm, name).argtypes = [ctypes.c_int]

    def raises():
        for _ in range(3):
            assert libm.fetestexcept(invalid) == 0
            libm.feraiseexcept(invalid)
            for _ in range(3):
                coro.yield_slice()
                assert libm.fetestexcept(invalid) == invalid
            libm.feclearexcept(invalid)
            coro.yield_slice()

    def does_not():
        for _ in range(12):
            assert libm.fetestexcept(invalid) == 0
            coro.spawn(does_not_either).join()
            coro.yield_slice()

    def does_not_either():
        assert libm.fetestexcept(invalid) == 0

    before = libm.fetestexcept(invalid)
    libm.feraiseexcept(invalid)
    try:
        together(does_not, raises, does_not, raises)
        assert libm.fetestexcept(invalid) == invalid
    finally:
        if not before:
            libm.feclearexcept(invalid)


# -- recursion


def endless(n=0):
    return endless(n + 1) + 1


def endless_keys(x):
    return sorted([x], key=endless_keys)


class EndlessRepr:
    def __repr__(self):
        return repr(self)


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def exhausts(what, depth):
    if what == "python":
        return endless()
    if what == "sorted keys":
        return endless_keys(1)
    if what == "method":
        return repr(EndlessRepr())
    return {"repr": repr, "json": json.dumps, "pickle": pickle.dumps}[what](nested(depth))


EXHAUSTING = ["python", "sorted keys", "method", "repr", "json", "pickle"]


@pytest.mark.parametrize("what", EXHAUSTING)
def test_endless_recursion_is_a_recursion_error(what):
    def run():
        for _ in range(2):
            coro.yield_slice()
            with pytest.raises(RecursionError):
                exhausts(what, 100_000)
            coro.yield_slice()

    together(run, run)


@pytest.mark.slow
@pytest.mark.each_python
@pytest.mark.parametrize("what", EXHAUSTING)
@pytest.mark.parametrize("slots", ["1", "3"])
def test_endless_recursion_with_an_enormous_limit(what, slots):
    """The limit of Python calls may be anything; the C stack of a slot is what ends a recursion through C."""
    lines = ok(f"""
        import sys; sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}
        import coro
        coro.set_stack_slots({slots})
        coro.set_latency_warning(0)
        from test_interp_state import exhausts
        sys.setrecursionlimit(100_000)
        ended = []
        def run():
            for _ in range(2):
                coro.yield_slice()
                try:
                    exhausts({what!r}, 100_000)
                except RecursionError:
                    ended.append(1)
                coro.yield_slice()
        def main():
            threads = [coro.spawn(run) for _ in range(3)]
            for t in threads:
                t.join()
                assert t.exception is None, t.exception
        coro.run(main)
        print(len(ended))
    """)
    assert lines == ["6"]


@pytest.mark.slow
@pytest.mark.each_python
def test_a_limit_raised_inside_a_thread_is_safe_from_its_next_slice_on():
    outcome = program("""
        import coro, sys
        coro.set_latency_warning(0)
        def main():
            sys.setrecursionlimit(100_000)
            coro.yield_slice()
            def keys(x):
                return sorted([x], key=keys)
            try:
                keys(1)
            except RecursionError:
                print("RecursionError")
        coro.run(main)
    """)
    assert outcome.code == 0 and outcome.out == "RecursionError\n", outcome


def test_recursion_depth_is_counted_per_thread():
    depth = sys.getrecursionlimit() * 6 // 10

    def down(n):
        if n == 0:
            coro.yield_slice()
            return 0
        return down(n - 1) + 1

    def run():
        for _ in range(3):
            assert down(depth) == depth

    together(run, run, run)


def test_a_changed_limit_acts_on_suspended_threads():
    def down(n):
        return 0 if n == 0 else down(n - 1) + 1

    def waits():
        coro._yield()
        with pytest.raises(RecursionError):
            down(300)
        coro._yield()
        assert down(300) == 300

    def main():
        thread = coro.spawn(waits)
        coro.yield_slice()
        before = sys.getrecursionlimit()
        try:
            sys.setrecursionlimit(200)
            thread.schedule()
            coro.yield_slice()
        finally:
            sys.setrecursionlimit(before)
        thread.schedule()
        thread.join()
        assert thread.exception is None, thread.exception

    coro.run(main)


def test_a_finaliser_that_switches_inside_nested_deallocation():
    order = []

    class Last:
        def __del__(self):
            coro.yield_slice()
            order.append(coro.current().id)

    def run():
        for _ in range(3):
            value = Last()
            for i in range(3000):
                value = (value,) if i % 2 else [value]
            del value
            coro.yield_slice()

    together(run, run, run)
    assert len(order) == 9


# -- asyncio


def test_asyncio_runs_inside_a_thread():
    async def work(n):
        await asyncio.sleep(0)
        return n

    def run():
        return asyncio.run(work(7))

    assert together(run, run) == [7, 7]


@pytest.mark.skipif(sys.version_info < (3, 14), reason="before 3.14 asyncio keeps its running loop out of reach")
def test_the_running_loop_of_asyncio_belongs_to_a_thread():
    async def work(n):
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        for _ in range(3):
            coro.yield_slice()
            assert asyncio.get_running_loop() is loop
            assert asyncio.current_task() is task
            await asyncio.sleep(0)
        return n

    def outside():
        for _ in range(5):
            with pytest.raises(RuntimeError):
                asyncio.get_running_loop()
            coro.yield_slice()

    assert together(lambda: asyncio.run(work(1)), outside, lambda: asyncio.run(work(2))) == [1, None, 2]


@pytest.mark.skipif(sys.version_info < (3, 14), reason="before 3.14 asyncio refuses a second loop in the OS thread")
def test_the_hooks_of_an_asyncio_loop_belong_to_its_thread():
    """Each loop puts back the hooks that it has found, here in the order in which they began."""
    before = sys.get_asyncgen_hooks()
    ended = []

    async def numbers():
        yield 1
        yield 2

    async def work(turns):
        loop = asyncio.get_running_loop()
        for _ in range(turns):
            hooks = sys.get_asyncgen_hooks()
            assert hooks.firstiter.__self__ is hooks.finalizer.__self__ is loop
            left = numbers()
            assert await anext(left) == 1
            coro.yield_slice()
        ended.append(turns)

    def outside():
        while len(ended) < 2:
            assert sys.get_asyncgen_hooks() == before
            coro.yield_slice()

    together(lambda: asyncio.run(work(3)), outside, lambda: asyncio.run(work(6)))
    assert ended == [3, 6]
    assert sys.get_asyncgen_hooks() == before
