"""What the torture test does: workers that mix everything which has ever confused libraries that switch C stacks.

A worker performs random steps, and steps may nest in one another inside C callbacks. Around every suspension it
compares what belongs to it (handled exception, context variable, trace function, frame, locals) with what it finds
afterwards, and each step checks its own result; the first difference fails the whole run with the seed. All
randomness comes from one generator per worker, so a worker's own sequence of steps depends on nothing but the
seed and its number.

The cost is in the number of threads: about 50 us a step. Used by run.py (many threads) and script.py (one thread, whose
every suspension is once its last).
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import functools
import gc
import itertools
import json
import pickle
import random
import re
import sys
import traceback
import weakref

import coro

VAR = contextvars.ContextVar("torture", default=None)
MARK = re.compile(r"[a-z]")


class Wrong(BaseException):
    """An invariant does not hold. Not an Exception, so that no step takes it for one of its own."""


class Planned(Exception):
    """Raised by steps and expected by them."""


def check(condition, what, *details):
    if not condition:
        raise Wrong(what, *details)


class World:
    """What the workers of a run share."""

    def __init__(self, seed, may_trace=True, costly=True):
        self.seed = seed
        self.parked = []  # workers in _yield() that any other may schedule
        self.workers = {}  # living, by thread id
        self.may_trace = may_trace
        self.costly = costly
        self.scopes = 0  # entered and not left
        self.refused = 0  # blocking calls that the collector's finalisers were refused
        self.finalisers = 0
        self.steps = 0
        self.suspensions = 0
        self.by_step = {}

    def wake_one(self, rng):
        if self.parked:
            worker = self.parked.pop(rng.randrange(len(self.parked)))
            if not worker.thread.dead and not worker.thread.scheduled:
                worker.thread.schedule(worker.number)


class Cyclic:
    """Part of a reference cycle; its finaliser tries to block, which the collector must forbid. Released by reference
    count it may block."""

    def __init__(self, worker):
        self.world = worker.world
        self.me = self

    def __del__(self):
        self.world.finalisers += 1
        try:
            coro.yield_slice()
        except (coro.NoSwitchError, coro.YieldFromMain):  # the collector may run in the loop itself
            self.world.refused += 1


class SwitchingDel:
    """Switches when its reference count falls to zero."""

    def __init__(self, worker, log):
        self.worker = worker
        self.log = log

    def __del__(self):
        try:
            self.worker.pause()
        finally:
            self.log.append("del")


class Odd:
    """A value whose comparison, hash, text and reduction all switch."""

    def __init__(self, worker, number):
        self.worker = worker
        self.number = number

    def __eq__(self, other):
        self.worker.pause()
        return self.number == other.number

    def __lt__(self, other):
        self.worker.pause()
        return self.number < other.number

    def __hash__(self):
        self.worker.pause()
        return self.number % 3

    def __str__(self):
        self.worker.pause()
        return f"<{self.number}>"

    __repr__ = __str__

    def __format__(self, spec):
        self.worker.pause()
        return spec + str(self.number)

    def __reduce__(self):
        self.worker.pause()
        return (int, (self.number,))

    def __deepcopy__(self, memo):
        self.worker.pause()
        return Odd(self.worker, self.number)


class Worker:
    """One thread of the torture."""

    def __init__(self, world, number, steps=6):
        self.world = world
        self.number = number
        self.rng = random.Random(f"{world.seed}/{number}")
        self.steps = steps
        self.thread = None
        self.trace = None
        self.pauses = 0
        self.quick = False

    # -- the run

    def __call__(self):
        self.thread = coro.current()
        self.world.workers[self.thread.id] = self
        try:
            VAR.set(self.number)
            for _ in range(self.steps):
                self.step(2)
            check(VAR.get() == self.number, "context variable at the end", VAR.get())
            check(sys.exc_info()[1] is None, "exception at the end", sys.exc_info())
            return self.number
        finally:
            del self.world.workers[self.thread.id]

    def step(self, depth):
        names = STEPS if depth > 0 else LEAVES
        name = self.rng.choice(names)
        # They cost a thousand times as much as the others: some fifty of each are enough for a run of 1500 threads.
        if name in COSTLY and (not self.world.costly or self.rng.random() < 0.93):
            name = "python_recursion"
        if name in TRACING and (not self.world.may_trace or self.rng.random() < 0.5):
            name = "map_reduce"
        self.world.steps += 1
        self.world.by_step[name] = self.world.by_step.get(name, 0) + 1
        return getattr(self, name)(depth - 1)

    def inner(self, depth):
        """Another step inside this one, or just a suspension."""
        if depth > 0 and self.rng.random() < 0.3:
            self.step(depth)
        else:
            self.pause()

    @contextlib.contextmanager
    def scope(self):
        self.world.scopes += 1
        try:
            yield
        finally:
            self.world.scopes -= 1

    # -- suspending

    def pause(self):
        """Suspend in a random manner and compare before with after."""
        exc, var, trace = sys.exc_info()[1], VAR.get(), sys.gettrace()
        frame = sys._getframe()
        back = frame.f_back
        local = [self.number, self.pauses]
        self.pauses += 1
        self.world.suspensions += 1
        try:
            self.suspend()
            check(sys._getframe() is frame and frame.f_back is back, "frame")
        finally:
            del frame, back  # a frame that refers to itself would keep its callers' locals alive
        check(coro.current() is self.thread, "current thread", coro.current(), self.thread)
        check(sys.exc_info()[1] is exc, "handled exception", sys.exc_info()[1], exc)
        check(VAR.get() is var, "context variable", VAR.get(), var)
        check(sys.gettrace() is trace, "trace function", sys.gettrace(), trace)
        check(local[0] == self.number, "locals", local)

    def suspend(self):
        kind = self.rng.randrange(8)
        if self.world.parked and self.rng.random() < 0.5:
            self.world.wake_one(self.rng)
        if kind < 3:
            coro.yield_slice()
        elif kind < 5 or self.quick:
            coro.sleep_relative(self.rng.random() * 0.0004)
        elif kind < 7:
            self.world.parked.append(self)
            try:
                value = coro._yield()
            finally:
                if self in self.world.parked:
                    self.world.parked.remove(self)
            check(value == self.number, "value of _yield", value)
        else:
            try:
                coro.with_timeout(self.rng.random() * 0.0003, coro.sleep_relative, 60)
            except coro.TimeoutError:
                pass
            else:
                check(False, "a minute has gone by")

    # -- steps

    def python_recursion(self, depth):
        goal = self.rng.randrange(1, 60)
        stops = {self.rng.randrange(goal + 1) for _ in range(2)}

        def down(n):
            here = n * 3
            if n in stops:
                self.pause()
            result = 0 if n == goal else down(n + 1)
            check(here == n * 3, "local after recursion")
            return result + n

        if depth > 0 and self.rng.random() < 0.2:
            self.step(depth)
        check(down(0) == goal * (goal + 1) // 2, "sum of the recursion")

    def sorted_keys(self, depth):
        items = [self.rng.randrange(100) for _ in range(4)]

        def key(item):
            with self.scope():
                self.inner(depth)
            return -item

        check(sorted(items, key=key) == sorted(items, reverse=True), "order", items)
        check(min(items, key=key) == max(items), "minimum", items)

    def odd_values(self, depth):
        values = [Odd(self, n) for n in (3, 1, 2)]
        table = {value: value.number for value in values}
        check(table[Odd(self, 2)] == 2, "dictionary of odd values")
        check(f"{values[0]:x}" == "x3" and str(values[1]) == "<1>", "text of odd values")
        check(repr([values]) == "[[<3>, <1>, <2>]]", "repr of odd values")
        check([v.number for v in sorted(values)] == [1, 2, 3], "order of odd values")
        check([v.number for v in copy.deepcopy(values)] == [3, 1, 2], "copy of odd values")
        check(pickle.loads(pickle.dumps(values)) == [3, 1, 2], "pickle of odd values")
        check(json.dumps(values, default=lambda v: self.inner(depth) or v.number) == "[3, 1, 2]", "json")

    def map_reduce(self, depth):
        def add(a, b):
            self.inner(depth)
            return a + b

        def one(x):
            self.pause()
            return x + 1

        check(functools.reduce(add, range(4)) == 6, "reduce")
        check(list(map(one, filter(one, range(3)))) == [1, 2, 3], "map and filter")
        check(list(itertools.accumulate([1, 2, 3], add)) == [1, 3, 6], "accumulate")
        check(MARK.sub(lambda m: self.inner(depth) or m[0].upper(), "ab-c") == "AB-C", "re.sub")

    def generators(self, depth):
        def numbers(n):
            try:
                for i in range(n):
                    try:
                        raise Planned(i)
                    except Planned as exc:
                        self.pause()
                        yield exc.args[0]
                        self.inner(depth)
                        check(sys.exc_info()[1] is exc, "exception inside a generator", sys.exc_info())
            finally:
                self.pause()

        def relay(n):
            yield from numbers(n)

        async def awaits():
            self.pause()
            return 5

        check(sum(relay(3)) == 3, "generator")
        g = numbers(5)
        with self.scope():
            check(next(g) == 0, "first of the generator")
            check(sys.exc_info()[1] is None or isinstance(sys.exc_info()[1], Exception), "after next()")
            self.pause()
        g.close()
        c = awaits()
        try:
            c.send(None)
        except StopIteration as exc:
            check(exc.value == 5, "coroutine's value", exc.value)

    def finaliser_by_count(self, depth):
        log = []
        outer = sys.exc_info()[1]

        def local():
            held = SwitchingDel(self, log)
            log.append("local")
            return held and 1

        check(local() == 1 and log == ["local", "del"], "order of finalisation", log)
        nested = SwitchingDel(self, log)
        for _ in range(200):
            nested = [(nested,)]
        del nested
        check(log == ["local", "del", "del"], "nested finalisation", log)
        watched = SwitchingDel(self, log)

        def gone(_):
            try:
                self.pause()
            finally:
                log.append("ref")

        ref = weakref.ref(watched, gone)
        del watched
        check(sorted(log[3:]) == ["del", "ref"] and ref() is None, "weak reference's callback", log)
        check(sys.exc_info()[1] is outer, "exception after a finaliser")

    def exceptions(self, depth):
        outer = sys.exc_info()[1]
        first = second = None
        try:
            try:
                raise Planned("first")
            except Planned as exc:
                first = exc
                self.pause()
                try:
                    self.failing("second")
                except Planned as exc2:
                    second = exc2
                    check(exc2.__context__ is first, "context of the second", exc2.__context__)
                    self.inner(depth)
                    check(sys.exc_info()[1] is second, "second being handled", sys.exc_info())
                check(sys.exc_info()[1] is first, "first again", sys.exc_info())
                self.pause()
                raise
        except Planned as exc:
            check(exc is first, "bare raise", exc)
            check(first.__context__ is outer, "context of the first", first.__context__, outer)
            names = [f.name for f in traceback.extract_tb(second.__traceback__)]
            check(names == ["exceptions", "failing", "fail_inside"], "traceback", names)
        check(sys.exc_info()[1] is outer, "exception afterwards")
        with self.scope(), contextlib.ExitStack() as stack:
            stack.callback(self.pause)
            with contextlib.suppress(Planned):
                self.failing("suppressed")

    def failing(self, what):
        self.pause()
        self.fail_inside(what)

    def fail_inside(self, what):
        try:
            raise Planned(what)
        finally:
            self.pause()

    def endless_python(self, depth):
        def down(n):
            if n % 150 == 149:
                coro.yield_slice()
            return down(n + 1) + 1

        try:
            down(0)
        except RecursionError as exc:
            caught = exc
            self.pause()
            check(sys.exc_info()[1] is caught, "RecursionError being handled")
        else:
            check(False, "endless recursion ended")

    def endless_c(self, depth):
        kind = self.rng.randrange(4)
        if kind == 0:

            def key(x):
                return sorted([x, x], key=key)

            work = functools.partial(key, 1)
        else:
            nested = []
            for _ in range(120_000 if kind == 1 else 30_000):
                nested = [nested]
            work = functools.partial((repr, json.dumps, pickle.dumps)[kind - 1], nested)
        try:
            work()
        except RecursionError:
            self.pause()
        else:
            check(kind, "endless recursion of sorted ended")
        # Taking 30 000 levels apart must not recurse either.
        del work

    def collector(self, depth):
        for _ in range(3):
            Cyclic(self)
        if self.rng.random() < 0.3:
            before = self.world.refused
            gc.collect()
            check(self.world.refused >= before, "refusals")
        self.pause()

    def tracing(self, depth):
        seen = []
        thread = self.thread
        profile = self.rng.random() < 0.5

        def tracer(frame, event, arg):
            if coro.current() is not thread:
                seen.append(("foreign", coro.current(), frame.f_code.co_name))
            elif event == "call":
                seen.append(frame.f_code.co_name)
            return tracer

        def traced_one():
            self.pause()

        before = sys.getprofile() if profile else sys.gettrace()
        (sys.setprofile if profile else sys.settrace)(tracer)
        try:
            traced_one()
            self.pause()
        finally:
            (sys.setprofile if profile else sys.settrace)(before)
        check(seen.count("traced_one") == 1, "traced calls", seen)
        check(not any(isinstance(s, tuple) for s in seen), "traced other threads' calls", seen)

    def monitoring(self, depth):
        if sys.version_info < (3, 12):
            return
        tool = self.number % 2 + 3
        counted = []
        if sys.monitoring.get_tool(tool) is not None:
            self.pause()
            return

        def monitored_one():
            self.pause()

        def on_start(code, offset):
            if code is monitored_one.__code__:
                counted.append(coro.current())

        events = sys.monitoring.events
        sys.monitoring.use_tool_id(tool, "torture")
        try:
            sys.monitoring.register_callback(tool, events.PY_START, on_start)
            sys.monitoring.set_events(tool, events.PY_START)
            monitored_one()
        finally:
            sys.monitoring.set_events(tool, 0)
            sys.monitoring.register_callback(tool, events.PY_START, None)
            sys.monitoring.free_tool_id(tool)
        check(counted.count(self.thread) == 1, "monitored calls", counted)

    def context_variables(self, depth):
        before = VAR.get()
        token = VAR.set(("inner", self.number))

        def inside():
            mine = object()
            VAR.set(mine)
            self.inner(depth)
            check(VAR.get() is mine, "variable in a context of its own")

        contextvars.copy_context().run(inside)
        self.pause()
        check(VAR.get() == ("inner", self.number), "variable after Context.run", VAR.get())
        VAR.reset(token)
        check(VAR.get() is before, "variable after reset", VAR.get())

    def children(self, depth):
        def good(a, *, b):
            self_var = VAR.get()
            coro.yield_slice()
            check(VAR.get() is self_var, "a child's context variable")
            return a + b

        def bad():
            coro.yield_slice()
            raise Planned("child")

        def waits():
            try:
                coro._yield()
            except Planned as exc:
                coro.yield_slice()
                return ("got", exc.args)

        kids = [coro.spawn(good, 1, b=2), coro.spawn(bad), coro.spawn(waits)]
        self.pause()
        coro.yield_slice()
        if not kids[2].started:
            coro.yield_slice()
        if kids[2].started:
            kids[2].raise_exception(Planned("sent"))
        else:
            kids[2].shutdown()
        for kid in kids:
            coro.coro.join(kid)
        check(kids[0].result == 3, "child's result", kids[0].result)
        check(isinstance(kids[1].exception, Planned), "child's exception", kids[1].exception)
        check(kids[2].result in (("got", ("sent",)), None), "interrupted child", kids[2].result)

    def timeouts(self, depth):
        def outlives():
            with coro.timeout(50):
                with coro.timeout(0.0002):
                    coro.sleep_relative(40)

        try:
            coro.with_timeout(30, outlives)
        except coro.TimeoutError as exc:
            names = [f.name for f in traceback.extract_tb(exc.__traceback__)]
            check("outlives" in names, "traceback of a timeout", names)
        else:
            check(False, "no timeout")
        try:
            coro.with_timeout(0.0003, self.sorted_forever)
        except coro.TimeoutError:
            pass

    def sorted_forever(self):
        def key(x):
            coro.sleep_relative(20)

        sorted([1, 2], key=key)

    def look_at_others(self, depth):
        threads = list(coro.all_threads.values())
        for thread in self.rng.sample(threads, min(3, len(threads))):
            if thread.dead or not thread.started:
                continue
            frame = thread.get_frame()
            names = []
            while frame is not None:
                check(frame.f_lineno is None or frame.f_lineno > 0, "line number", frame)
                names.append(frame.f_code.co_name)
                frame = frame.f_back
            if thread.id in self.world.workers:
                check("__call__" in names[-2:], "names of a parked thread's frames", names)
            check(isinstance(coro.where(thread), str), "where")
        self.pause()

    def containers(self, depth):
        log = []
        nested = SwitchingDel(self, log) if self.rng.random() < 0.5 else None
        for i in range(self.rng.randrange(5000)):
            nested = (nested,) if i % 3 else [nested]
        local = nested
        del nested, local
        self.pause()

    def compression(self, depth):
        self.thread.compress = not self.thread.compress
        for other in self.rng.sample(list(self.world.workers.values()), min(2, len(self.world.workers))):
            if other is not self and other.thread.started and not other.thread.dead:
                before, after = coro.compress(other.thread)
                check(after <= before, "compressed size", before, after)
        self.pause()


LEAVES = ["python_recursion", "map_reduce", "finaliser_by_count", "context_variables", "containers"]
COSTLY = {"endless_python", "endless_c", "collector"}
TRACING = {"tracing", "monitoring"}
STEPS = LEAVES + [
    "sorted_keys", "odd_values", "generators", "exceptions", "endless_python", "endless_c", "collector", "tracing",
    "monitoring", "children", "timeouts", "look_at_others", "compression",
]  # fmt: skip
