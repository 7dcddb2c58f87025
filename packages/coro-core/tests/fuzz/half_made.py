"""Objects that `__new__` made and `__init__` never saw: `python half_made.py [class ...]`.

Anybody can have one: by `cls.__new__(cls)`, by a subclass that forgets `super().__init__()`, by an `__init__` that
raised. Everything such an object can be asked has to work or to raise; nothing may crash the process or fail inside of
the interpreter. Each class has a process of its own, forked from this one, in which each attribute meets a fresh
object. One line for each class: its name, and `ok` or what went wrong.
"""

from __future__ import annotations

import copy
import faulthandler
import gc
import importlib
import os
import pkgutil
import signal
import sys
import traceback
import weakref

import coro

#: Not for programs: the pollers are the inside of the loop, and to call them is to be the loop.
INSIDE = {"EpollPoller", "KqueuePoller", "EventPoller", "FdPoller", "Poller"}
SKIPPED = {"__class__", "__new__", "__init_subclass__", "__subclasshook__", "__class_getitem__", "__getattribute__"}
CASES = ("get", "put", "wait", "acquire", "lock", "join", "read", "write")
#: Seconds for all that is done with one class.
LIMIT = 60


def classes() -> dict[str, type]:
    """All classes of compiled modules, by their full names."""
    found = {}
    for info in pkgutil.walk_packages(coro.__path__, "coro."):
        spec = None if info.name.endswith("__main__") else importlib.util.find_spec(info.name)
        if spec is not None and not str(spec.origin).endswith(".py"):
            for name, value in vars(importlib.import_module(info.name)).items():
                if isinstance(value, type) and value.__module__ == info.name and value.__name__ == name not in INSIDE:
                    found[f"{info.name}.{name}"] = value
    return found


def make(cls: type) -> object:
    """One that `__init__` never saw; None where even `__new__` insists on its arguments."""
    for arguments in ((), (1,), (coro.rw_lock(), True), (coro.fifo(),)):
        try:
            return cls.__new__(cls, *arguments)
        except TypeError:
            continue
    return None


def expect(what: str, function, *arguments) -> None:
    """The call works, or raises what a program can understand; it does not wait."""
    try:
        coro.with_timeout(0, function, *arguments)
    except SystemError:
        print(what, traceback.format_exc())
        raise
    except (Exception, coro.Interrupted):
        pass


def use(cls: type, name: str) -> None:
    expect(name, getattr, make(cls), name)
    expect(f"{name} = None", setattr, make(cls), name, None)
    expect(f"del {name}", delattr, make(cls), name)
    values = (None, 1, -1, b"x", "x", 1 << 70, make(cls), coro.current(), len)
    for arguments in ((), *((v,) for v in values), *((v, v) for v in values), *((v, v, v) for v in values)):
        if name == "__init__" and len(arguments) > 0:
            continue  # a number is a descriptor, and it may be one of ours
        thing = make(cls)
        try:
            method = getattr(thing, name)
        except Exception:
            return
        if callable(method):
            # Not the arguments' own text: one of them is half made.
            expect(f"{name} of {[type(a).__name__ for a in arguments]}", method, *arguments)
        del thing, method


def use_whole(cls: type) -> None:
    def in_block(thing):
        with thing:
            coro.yield_slice()

    plain = (repr, str, hash, bool, len, iter, next, list, dir, copy.copy, copy.deepcopy, weakref.ref, gc.get_referents)
    own = (coro.spawn, in_block, coro.select, lambda x: x == make(cls), lambda x: x in x, lambda x: x[0])
    for function in plain + own:
        expect(str(function), function, make(cls))
    for name in CASES:
        for timeout in (0, None):
            expect(f"select({name})", select, name, make(cls), timeout)
            expect(f"select({name})", select, name, make(cls), timeout, 1)


def select(name: str, thing: object, timeout: float | None, *more: object) -> None:
    coro.select(getattr(coro.case, name)(thing, *more), timeout=timeout)


def main(cls: type) -> None:
    if make(cls) is None:
        return
    for name in dir(cls):
        if name not in SKIPPED:
            use(cls, name)
    use_whole(cls)
    gc.collect()


def in_a_process(cls: type) -> str:
    """How it went: `ok`, or how the process ended."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(LIMIT)
            coro.set_exception_notifier(lambda *about: None)
            coro.run(main, cls)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return "ok" if code == 0 else f"status {code}"


if __name__ == "__main__":
    faulthandler.enable()
    for full_name, found in classes().items():
        if not sys.argv[1:] or full_name in sys.argv[1:]:
            print(full_name, in_a_process(found))
