"""Threads parked in every kind of frame, and every way to observe them: a program for test_observers.py.

    python parked_kinds.py OBSERVER SLOTS

Each kind of frame is a function that parks somewhere inside. It is called until its bytecode is specialised, then
parked, and woken stop by stop, either to go on or to raise an exception that unwinds all of its frames. What comes of
that without an observer has to come of it when an observer is switched on or off meanwhile, too."""

import contextlib
import contextvars
import ctypes
import functools
import os
import re
import sys
import threading
import weakref

import coro
from coro import profiler
from coro._runtime import scheduler

WARM = 40  # calls after which every version has specialised what it specialises


class Wanted(Exception):
    pass


stopping = set()


def stop():
    "Park, in a thread that has warmed up; what it is woken with says whether to raise."
    if coro.current().id in stopping and coro._yield() == "raise":
        raise Wanted


kinds = []


def kind(function):
    kinds.append(function)
    return function


class Plain:
    def __init__(self, x):
        stop()
        self.x = x


@kind
def init():
    return Plain(3).x


class Derived(Plain):
    def __init__(self, x):
        super().__init__(x + 1)
        self.x += 1


@kind
def init_of_a_derived_class():
    return Derived(3).x


class Nested:
    def __init__(self, n):
        self.inner = Nested(n - 1) if n else Plain(7)


@kind
def init_in_init():
    found = Nested(4)
    while hasattr(found, "inner"):
        found = found.inner
    return found.x


class Slotted:
    __slots__ = ("x",)

    def __init__(self):
        self.x = [stop() for _ in range(2)]


@kind
def init_with_a_comprehension():
    return len(Slotted().x)


class Made:
    def __new__(cls):
        stop()
        return object.__new__(cls)


@kind
def new():
    return type(Made()).__name__


class Meta(type):
    def __call__(cls, *args):
        stop()
        return super().__call__(*args)


class OfMeta(metaclass=Meta):
    def __init__(self, x):
        stop()
        self.x = x


@kind
def call_of_a_metaclass():
    return OfMeta(5).x


@kind
def class_body():
    class C:
        stop()
        y = 4

    return C.y


class Watching:
    def __init_subclass__(cls):
        stop()


@kind
def init_subclass():
    class C(Watching):
        pass

    return C.__name__


class Named:
    def __set_name__(self, owner, name):
        stop()
        self.name = name


@kind
def set_name():
    class C:
        attribute = Named()

    return C.__dict__["attribute"].name


def numbers(n):
    for i in range(n):
        stop()
        yield i


@kind
def generator():
    return sum(numbers(3))


@kind
def generator_in_a_for_loop():
    total = 0
    for n in numbers(3):
        total += n
    return total


def delegating():
    yield from numbers(3)
    return (yield 5)


@kind
def yield_from():
    return list(delegating())


def cleans():
    try:
        yield 1
    finally:
        stop()


@kind
def generator_that_is_closed():
    g = cleans()
    next(g)
    g.close()
    return "closed"


def catches():
    try:
        yield 1
    except KeyError:
        stop()
        yield 2


@kind
def generator_that_is_thrown_at():
    g = catches()
    return next(g) + g.throw(KeyError())


async def awaited(n):
    if n:
        return await awaited(n - 1) + 1
    stop()
    return 0


def drive(coroutine):
    try:
        coroutine.send(None)
    except StopIteration as exc:
        return exc.value


@kind
def coroutine():
    return drive(awaited(3))


async def asynchronous_numbers():
    for i in range(3):
        stop()
        yield i


async def consumes():
    return [i async for i in asynchronous_numbers() if stop() is None]


@kind
def asynchronous_generator():
    return drive(consumes())


class Asynchronous:
    async def __aenter__(self):
        stop()
        return 2

    async def __aexit__(self, *exc):
        stop()


async def manages():
    async with Asynchronous() as n:
        return n


@kind
def asynchronous_with():
    return drive(manages())


@kind
def comprehensions():
    return [[stop(), i][1] for i in range(2)], {i: stop() for i in range(2)}, {(stop(), i)[1] for i in range(2)}


@kind
def generator_expression():
    return sum((stop() or i) for i in range(3))


@kind
def sort_key():
    return sorted([2, 1], key=lambda x: stop() or x)


@kind
def nested_sort_keys():
    return sorted([2, 1], key=lambda x: sorted([x, x], key=lambda y: Plain(y).x)[0])


@kind
def mapped():
    return list(map(lambda x: stop() or x, [1, 2]))  # noqa: C417 - a call from C


@kind
def reduced():
    return functools.reduce(lambda a, b: stop() or a + b, [1, 2, 3])


@kind
def substitution():
    return re.sub("a", lambda m: stop() or "b", "banana")


@kind
def partial():
    return functools.partial(lambda x: stop() or x, 3)()


@kind
def cached():
    return functools.lru_cache(None)(lambda x: stop() or x)(3)


@kind
def run_in_a_context():
    return contextvars.copy_context().run(lambda: stop() or 4)


callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)


@kind
def ctypes_callback():
    callback(lambda x: stop() or x)(6)  # what is returned is nothing definite where an exception was raised
    return "called"


@kind
def evaluated():
    return eval("[stop(), 4][1]")


text = compile("stop()\nn = Plain(2).x", "<text>", "exec")


@kind
def executed():
    names = {"stop": stop, "Plain": Plain}
    exec(text, names)
    return names["n"]


class Dropped:
    def __del__(self):
        stop()


@kind
def finaliser():
    d = Dropped()
    d = None  # noqa: F841 - its finaliser is the point
    return "dropped"


def returns_with_finaliser(x):
    d = Dropped()  # noqa: F841 - its finaliser is the point
    return x


@kind
def finaliser_at_a_return():
    return returns_with_finaliser(4)


class Keeps:
    def __init__(self):
        d = Dropped()  # noqa: F841 - its finaliser is the point


@kind
def finaliser_at_the_end_of_init():
    return type(Keeps()).__name__


class Referred:
    pass


@kind
def weakref_callback():
    o = Referred()
    r = weakref.ref(o, lambda _: stop())
    o = None
    return r()


def decorating(function):
    stop()

    @functools.wraps(function)
    def wrapper(*args):
        stop()
        return function(*args)

    return wrapper


@kind
def decorator():
    @decorating
    def decorated(x):
        return x

    return decorated(9)


class Manager:
    def __enter__(self):
        stop()
        return 1

    def __exit__(self, *exc):
        stop()


@kind
def with_statement():
    with Manager() as n:
        stop()
        return n


@contextlib.contextmanager
def managed():
    stop()
    yield 2
    stop()


@kind
def context_manager_of_a_generator():
    with managed() as n:
        return n


@kind
def exception_handlers():
    try:
        raise KeyError
    except KeyError:
        stop()
    finally:
        stop()
    return sys.exc_info()


class Special:
    def __getattr__(self, name):
        stop()
        return name

    @property
    def computed(self):
        stop()
        return 8

    def __getitem__(self, i):
        stop()
        return i

    def __call__(self, x):
        stop()
        return x

    def __eq__(self, other):
        stop()
        return True

    def __hash__(self):
        stop()
        return 1

    def __bool__(self):
        stop()
        return True

    def __add__(self, other):
        stop()
        return 5

    def __format__(self, how):
        stop()
        return "formatted"

    def __len__(self):
        stop()
        return 2

    def __contains__(self, x):
        stop()
        return True

    def __iter__(self):
        stop()
        return iter([1])


@kind
def special_methods():
    s = Special()
    return (s.missing, s.computed, s[3], s(4), s == 1, {s: 1}[s], not s, s + 1, f"{s}", len(s), 7 in s, [*s])


@kind
def matching():
    match Special():
        case Special(computed=8):
            return "eight"


@kind
def deep():
    def down(n):
        return down(n - 1) if n else Plain(1).x

    return down(40)


def on_a_thread(function):
    "Warm up, park, and tell what came of it."
    me = coro.current().id
    for _ in range(WARM):
        function()
    stopping.add(me)
    try:
        found = function()
    except Exception as exc:  # Wanted, or what the interpreter makes of it
        found = type(exc)
    stopping.discard(me)
    return repr(found), repr(function())


def park_all():
    threads = [coro.spawn(on_a_thread, function) for function in kinds]
    coro.yield_slice()
    for thread, function in zip(threads, kinds, strict=True):
        assert not thread.dead and thread.exception is None, (function.__name__, thread.exception)
    return threads


def finish(threads, how, between=lambda number: None):
    """Wake parked threads until all have ended; what they tell."""
    for number in range(100):
        if all(thread.dead for thread in threads):
            break
        for thread in threads:
            if not thread.dead:
                thread.schedule(how)
        coro.yield_slice()
        between(number)
    for thread, function in zip(threads, kinds, strict=True):
        assert thread.dead and thread.exception is None, (function.__name__, thread.exception)
    return [thread.result for thread in threads]


def scenarios(on, off, how):
    """Where the observer is switched while threads are parked, and what came of each."""
    threads = park_all()
    on(threads)
    yield "on while parked", finish(threads, how)
    threads = park_all()
    off()
    yield "off while parked", finish(threads, how)
    threads = park_all()
    on(threads)
    off()
    yield "on and off while parked", finish(threads, how)
    on([])
    threads = park_all()
    off()
    on(threads)
    yield "off and on while parked", finish(threads, how)
    off()
    threads = park_all()
    yield "switched at every stop", finish(threads, how, lambda number: off() if number % 2 else on(threads))
    off()


def compare(on, off):
    for how in ("go", "raise"):
        expected = finish(park_all(), how)
        for name, found in scenarios(on, off, how):
            for function, right, result in zip(kinds, expected, found, strict=True):
                assert right == result, (name, how, function.__name__, right, result)


# -- observers: each a pair of functions that switch it on (told which threads are parked) and off

seen = [0]


def counts(*_):
    seen[0] += 1


def tracer(*_):
    seen[0] += 1
    return tracer


def called():
    """Something to be observed in this thread."""


def by_settrace():
    def on(_):
        sys.settrace(tracer)
        called()

    return on, lambda: sys.settrace(None)


def by_setprofile():
    def on(_):
        sys.setprofile(counts)
        called()

    return on, lambda: sys.setprofile(None)


def by_all_threads():
    def on(_):
        threading.settrace_all_threads(tracer)
        threading.setprofile_all_threads(counts)
        called()

    def off():
        threading.settrace_all_threads(None)
        threading.setprofile_all_threads(None)

    return on, off


def by_cprofile():
    import cProfile

    present = []

    def on(_):
        present.append(cProfile.Profile())
        present[-1].enable()
        called()

    def off():
        while present:
            ended = present.pop()
            ended.disable()
            seen[0] += len(ended.getstats())

    return on, off


def by_tracer_in_c():
    """As coverage's: a C function, set through the C interface."""
    set_trace = ctypes.pythonapi.PyEval_SetTrace
    set_trace.argtypes = [ctypes.c_void_p, ctypes.py_object]
    prototype = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)

    @prototype
    def function(*_):
        seen[0] += 1
        return 0

    def on(_):
        set_trace(ctypes.cast(function, ctypes.c_void_p), None)
        called()

    return on, lambda: set_trace(None, None)


def by_tracing_parked_threads():
    """As coro.debug does it: a parked thread is given a trace function."""

    def on(threads):
        for thread in threads:
            if not thread.dead:
                with contextlib.suppress(RuntimeError):  # it is traced already
                    scheduler._trace_thread(thread, sys.settrace, tracer)

    return on, lambda: None


def by_profiler():
    def on(_):
        profiler.start()

    def off():
        if profiler.get_the_profiler() is not None:
            seen[0] += len(profiler.stop("profile").threads)

    return on, off


def monitoring(*names, answer=None):
    tool, events = 3, sys.monitoring.events

    def event(*_):
        seen[0] += 1
        return answer

    sys.monitoring.use_tool_id(tool, "test")
    for name in names:
        sys.monitoring.register_callback(tool, getattr(events, name), event)
    wanted = functools.reduce(int.__or__, (getattr(events, name) for name in names))

    def on(_):
        sys.monitoring.set_events(tool, wanted)
        sys.monitoring.restart_events()
        called()
        with contextlib.suppress(KeyError):
            raise KeyError

    return on, lambda: sys.monitoring.set_events(tool, 0)


RAISING = ("RAISE", "RERAISE", "PY_UNWIND", "PY_THROW", "EXCEPTION_HANDLED")
RUNNING = ("PY_START", "PY_RESUME", "PY_RETURN", "PY_YIELD", "CALL", "LINE", "INSTRUCTION", "JUMP", "STOP_ITERATION")


def by_monitoring():
    branches = ("BRANCH_LEFT", "BRANCH_RIGHT") if sys.version_info >= (3, 14) else ("BRANCH",)
    return monitoring(*RUNNING, *RAISING, *branches)


def by_monitoring_exceptions():
    return monitoring(*RAISING)


def by_monitoring_once():
    """Every event disables itself at its place."""
    return monitoring("PY_START", "PY_RETURN", "CALL", "LINE", answer=sys.monitoring.DISABLE)


def by_remote_script():
    """sys.remote_exec(): the interpreter runs a file where Python code runs next, in whichever thread."""
    done = []
    sys.observer, sys.observer_done = tracer, done.append

    def run(source):
        before = len(done)
        path = os.path.abspath(f"script{before}.py")
        with open(path, "w") as file:
            file.write(f"import coro, sys\n{source}\nsys.observer_done(1)\n")
        sys.remote_exec(os.getpid(), path)
        for _ in range(1000):
            if len(done) > before:
                return
            called()
        raise AssertionError("the script was not run")

    def on(_):
        run("sys.settrace(sys.observer)\ncoro.spawn(int).join()")
        called()

    return on, lambda: run("sys.settrace(None)\ncoro.yield_slice()")


def main(observer, slots):
    coro.set_stack_slots(slots)
    coro.set_latency_warning(0)
    coro.set_exception_notifier(lambda: None)
    sys.unraisablehook = lambda unraisable: None
    coro.run(compare, *globals()[observer]())
    assert seen[0] > 0, "nothing was observed"
    print(len(kinds), "kinds of frames")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
