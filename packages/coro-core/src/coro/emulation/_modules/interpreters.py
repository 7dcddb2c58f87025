"""Emulated subinterpreters: what they execute waits outside the loop's OS thread.

Code in another interpreter sees other modules than those that the emulation has changed, and coro cannot be imported
there. Its blocking calls block the OS thread, so a thread that has another interpreter read what a second thread is to
write would wait for ever. So every call that executes something in an interpreter gets an OS thread for as long as it
lasts. Threads that such code starts are OS threads, too.

Up to 3.12 nothing is changed. `threading` takes the OS thread in which it was imported for the interpreter's main
thread there, and to end the interpreter in another one waits for ever, with and without emulation.

Cost: an OS thread per call, 0.1 ms, where making an interpreter takes 10 ms or more. Interpreters with a GIL of their
own run at the same time as the loop.

Rejected: the workers of in_thread(), of which there are 16; more interpreters than that may wait for one another.
"""

from __future__ import annotations

from typing import Any

from coro._runtime import scheduler
from coro.emulation import _blocking, _originals
from coro.emulation._plan import Plan

__all__ = ["plan"]

#: Those that execute something. The last one runs what an interpreter does at its end, which waits for its threads.
_FUNCTIONS = ("exec", "run_string", "run_func", "call", "destroy")


def _elsewhere(own: Any) -> Any:
    """The same function, called in an OS thread when it is called in a thread of the loop."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if not _blocking.in_thread_of_loop():
            return own(*args, **kwargs)
        outcome: list[Any] = []
        over = _blocking.Lock()
        over.acquire()

        def work() -> None:
            try:
                outcome.append(own(*args, **kwargs))
            except BaseException as error:
                outcome.extend((None, error))
            finally:
                over.release()

        name = scheduler.current().name
        _originals.original("threading").Thread(target=work, name=name, daemon=True).start()
        over.acquire()
        result, *error = outcome
        if error:
            try:
                raise error[0]
            finally:
                del error, outcome  # they lead to the traceback, which leads here
        return result

    call.__name__ = call.__qualname__ = own.__name__
    call.__doc__ = own.__doc__
    return call


def _replacement(name: str) -> Any:
    return lambda module: _elsewhere(vars(module)[name])


def plan(p: Plan) -> None:
    """What to replace."""
    for name in _FUNCTIONS:
        p.replace_in_each("_interpreters", name, _replacement(name))
