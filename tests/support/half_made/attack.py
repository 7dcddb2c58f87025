"""Uses objects of compiled classes as no program should: `python attack.py DISTRIBUTION [SAMPLES [CLASS ...]]`.

Half made: objects that `__new__` made and `__init__` never saw, or of which it refused the arguments. Anybody can have
one: by `cls.__new__(cls)`, by a subclass that forgets `super().__init__()`, by an `__init__` that raised. Whole: those
that SAMPLES, a file of Python with a table of functions by the names of classes, makes, or `cls()`. Everything they can
be asked has to work or to raise; nothing may crash the process or fail inside of the interpreter:

- each attribute is read, set, deleted, and called with arguments of all sorts, each on a fresh object;
- arguments call the object back, from within whatever looks at them;
- all is called on one object, one after the other, while its attributes are set to None;
- `__init__` is called again;
- objects are copied and pickled, compared, iterated, selected, and left to the collector in cycles.

One line for each class: `==`, its name, and `ok` or what went wrong.
"""

from __future__ import annotations

import copy
import faulthandler
import gc
import os
import pickle
import runpy
import signal
import sys
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
import coro
import half_made

#: Not for programs: the pollers are the inside of the loop, and to call them is to be the loop.
INSIDE = {"EpollPoller", "KqueuePoller", "EventPoller", "FdPoller", "Poller"}
SKIPPED = {"__class__", "__new__", "__init_subclass__", "__subclasshook__", "__class_getitem__", "__getattribute__"}
CASES = ("get", "put", "wait", "acquire", "lock", "join", "read", "write")
ROLES = ("server", "client")
#: Seconds for all that is done with one class.
LIMIT = 60


class Refused:
    """A class none of whose objects can be had without the right arguments."""


def half(cls: type) -> object:
    """One that `__init__` never saw; `Refused` where even `__new__` insists on its arguments."""
    for arguments in ((), (1,), (coro.rw_lock(), True), (coro.fifo(),), *((role,) for role in ROLES)):
        try:
            return cls.__new__(cls, *arguments)
        except (TypeError, ValueError):
            continue
    return Refused


#: How many calls lie within one another: arguments call back.
depth = 0


def expect(what: str, function: Callable[..., object], *arguments: object) -> object:
    """The call works, or raises what a program can understand; it does not wait."""
    global depth
    depth += 1
    try:
        return coro.with_timeout(0, function, *arguments)
    except SystemError:
        print(what, traceback.format_exc())
        raise
    except (Exception, coro.TimeoutError):
        return None
    except coro.Interrupted:
        if depth > 1:
            raise  # it may be the limit of a call around this one
        return None
    finally:
        depth -= 1


class CallsBack:
    """An argument that calls the object back, once, when it is looked at for the so-manieth time."""

    def __init__(self, thing: object, looks: int) -> None:
        self.thing = thing
        self.looks = looks

    def back(self, result: object) -> object:
        self.looks -= 1
        if self.looks == 0:
            use_all(self.thing)
        return result

    def __index__(self) -> int:
        return self.back(1)

    def __int__(self) -> int:
        return self.back(1)

    def __float__(self) -> float:
        return self.back(1.0)

    def __bool__(self) -> bool:
        return self.back(True)

    def __str__(self) -> str:
        return self.back("x")

    def __repr__(self) -> str:
        return self.back("x")

    def __len__(self) -> int:
        return self.back(1)

    def __bytes__(self) -> bytes:
        return self.back(b"x")

    def __buffer__(self, flags: int) -> memoryview:
        return memoryview(self.back(b"x"))

    def __iter__(self) -> object:
        return iter(self.back([("x", "y")]))

    def __getitem__(self, key: object) -> object:
        return self.back("x")

    def __hash__(self) -> int:
        return self.back(1)

    def __eq__(self, other: object) -> bool:
        return self.back(False)

    def __lt__(self, other: object) -> bool:
        return self.back(False)

    def __gt__(self, other: object) -> bool:
        return self.back(False)

    def __le__(self, other: object) -> bool:
        return self.back(True)

    def __ge__(self, other: object) -> bool:
        return self.back(True)

    def __call__(self, *arguments: object) -> object:
        return self.back(None)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.back(self)

    @property
    def __class__(self) -> type:
        return self.back(CallsBack)


class Text(str):
    """A str, and yet code of a program runs when it is asked."""

    def __new__(cls, thing: object, looks: int) -> Text:
        text = super().__new__(cls, "x")
        text.caller = CallsBack(thing, looks)
        return text

    def encode(self, *arguments: object) -> bytes:
        return self.caller.back(b"x")

    def __str__(self) -> str:
        return self.caller.back("x")

    def lower(self) -> str:
        return self.caller.back("x")


def call(thing: object, name: str, *arguments: object) -> object:
    found = getattr(thing, name)
    return found(*arguments) if callable(found) else found


def public(cls: type) -> list[str]:
    """The attributes that are tried."""
    return [name for name in dir(cls) if name not in SKIPPED]


def use(make: Callable[[], object], name: str) -> None:
    """One attribute, on one fresh object after the other."""
    expect(name, getattr, make(), name)
    expect(f"{name} = None", setattr, make(), name, None)
    expect(f"del {name}", delattr, make(), name)
    values = (None, 1, -1, b"x", "x", 1 << 70, make(), coro.current(), len, [("x", "y")], ())
    for arguments in ((), *((v,) for v in values), *((v, v) for v in values), *((v, v, v) for v in values)):
        if name == "__init__" and arguments and type(arguments[0]) is int:
            continue  # a number is a descriptor, and it may be one of ours
        thing = make()
        try:
            method = getattr(thing, name)
        except Exception:
            return
        if callable(method):
            # Not the arguments' own text: one of them is half made.
            expect(f"{name} of {[type(a).__name__ for a in arguments]}", method, *arguments)
        del thing, method
    for looks in (1, 2, 4):
        for count in (1, 2):
            thing = make()
            expect(f"{name}, called back", call, thing, name, *[CallsBack(thing, looks)] * count)
        thing = make()
        expect(f"{name}, called back by text", call, thing, name, *[Text(thing, looks)] * 2)
        pairs = [(Text(thing, looks), CallsBack(thing, looks))]
        expect(f"{name}, called back by a list", call, thing, name, pairs)
        expect(f"{name}, called back by a second list", call, thing, name, 200, pairs)


def use_whole(make: Callable[[], object]) -> None:
    """What functions and statements do with an object."""

    def in_block(thing: object) -> None:
        with thing:
            coro.yield_slice()

    plain = (repr, str, hash, bool, len, iter, next, list, dir, copy.copy, copy.deepcopy, weakref.ref, gc.get_referents)
    own = (coro.spawn, in_block, coro.select, lambda x: x == make(), lambda x: x in x, lambda x: x[0], pickle.dumps)
    for function in plain + own:
        expect(str(function), function, make())
    for copied in (copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
        again = expect("a copy", copied, make())
        if again is not None:
            use_all(again)
    for name in CASES:
        for timeout in (0, None):
            expect(f"select({name})", select, name, make(), timeout)
            expect(f"select({name})", select, name, make(), timeout, 1)


def select(name: str, thing: object, timeout: float | None, *more: object) -> None:
    coro.select(getattr(coro.case, name)(thing, *more), timeout=timeout)


def use_all(thing: object) -> None:
    """Everything, one after the other, on the same object."""
    for name in public(type(thing)):
        if name != "__init__":
            expect(name, call, thing, name)
            expect(name, call, thing, name, b"x")
    expect("repr", repr, thing)


def in_cycles(make: Callable[[], object]) -> None:
    """The collector clears what refers to itself, in any order, and calls what it finds then."""

    class Last:
        def __del__(self) -> None:
            for thing in self.things:
                use_all(thing)

    thing = make()
    cycle: list[object] = [thing]
    cycle.append(cycle)
    last = Last()
    last.things = cycle
    cycle.append(last)
    for name in public(type(thing)):
        expect(f"{name} = the cycle", setattr, thing, name, cycle)
    del thing, cycle, last
    gc.collect()


def again(make: Callable[[], object]) -> None:
    """`__init__` once more, as before and otherwise, and then everything."""
    for arguments in ((), (None,), (1 << 70,), ("server",), (b"x", "x")):
        thing = make()
        expect("__init__ again", type(thing).__init__, thing, *arguments)
        use_all(thing)


def without_attributes(make: Callable[[], object]) -> None:
    """Everything, with the attributes that can be set at None."""
    thing = make()
    for name in public(type(thing)):
        expect(f"{name} = None", setattr, thing, name, None)
    use_all(thing)
    gc.get_referents(thing)


def main(cls: type, sample: Callable[[], object] | None) -> None:
    makers: list[Callable[[], object]] = []
    if half(cls) is not Refused:
        makers.append(lambda: half(cls))
    if sample is not None:
        makers.append(sample)
    else:
        try:
            cls()
        except Exception:
            pass
        else:
            makers.append(cls)
    for make in makers:
        for name in public(cls):
            use(make, name)
        use_whole(make)
        use_all(make())
        without_attributes(make)
        again(make)
        in_cycles(make)
    gc.collect()


def in_a_process(cls: type, sample: Callable[[], object] | None) -> str:
    """How it went: `ok`, or how the process ended."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(LIMIT)
            coro.set_exception_notifier(lambda *about: None)
            coro.run(main, cls, sample)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return "ok" if code == 0 else f"status {code}"


def run(distribution: str, samples: str = "", *wanted: str) -> None:
    faulthandler.enable()
    if samples:
        sys.path.insert(0, str(Path(samples).parent))
    table = runpy.run_path(samples)["SAMPLES"] if samples else {}
    found = half_made.classes(distribution)
    assert set(table) <= set(found), f"no such classes: {sorted(set(table) - set(found))}"
    for name, cls in found.items():
        if cls.__name__ not in INSIDE and (not wanted or name in wanted):
            print("==", name, in_a_process(cls, table.get(name)))


if __name__ == "__main__":
    run(*sys.argv[1:])
