"""Every kind of frame that a thread can be parked in, for programs that park threads in all of them.

Each is a function in `kinds` that parks somewhere inside, once or several times, and returns something definite. All of
them in one file, so that what is missing is seen; that makes it long. `on_a_thread` calls one until its bytecode is
specialised, then once with the parking."""

import contextlib
import contextvars
import ctypes
import functools
import re
import sys
import weakref

import coro

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
