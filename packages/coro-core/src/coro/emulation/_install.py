"""Installing and uninstalling the emulation.

In this order: a second copy of `threading` is loaded for whoever needs OS threads; every room says what it replaces,
and that is done, in all modules, and from then on in C modules that are loaded once more; coro's own modules get the
originals; locks that exist already are exchanged; and one coro thread becomes the program's main thread. Uninstalling
undoes it from the end. Exchanged locks stay: they serve OS threads, too.

The main thread is the coro thread that installs or, when no loop runs yet, main of the next `coro.run`, which then also
does at its end what a program does: let executors finish, and wait for threads that are no daemons.
"""

from __future__ import annotations

import importlib
import sys
import threading as _real_threading
import types
import warnings
from collections.abc import Callable
from typing import Any

from coro._runtime import scheduler
from coro.emulation import _blockers, _blocking, _children, _fresh, _instances, _offloaded, _originals
from coro.emulation._modules import (
    buffered,
    extensions,
    file_locks,
    files,
    foreign,
    imports,
    interpreters,
    libraries,
    multiprocessing,
    os,
    printing,
    queue,
    select,
    signal,
    socket,
    sqlite,
    ssl,
    subprocess,
    thread,
    threading,
    time,
)
from coro.emulation._plan import Plan
from coro.emulation._warning import EmulationWarning

__all__ = ["install", "is_installed", "uninstall"]

_ROOMS = (
    *(thread, threading, queue, time, select, socket, ssl, os, buffered, files, file_locks, subprocess),
    *(multiprocessing, imports, extensions, interpreters, foreign, sqlite, libraries, signal, _children),
    printing,
)
#: Modules of coro's own that use OS threads, signals or sleep: loaded before anything is replaced.
_OWN = ("coro.optional", "coro.offload", "coro.process", "coro.signal_handler", "coro.files", "coro.resolver")
#: Where coro's own modules must see the originals.
_OWN_SEES = ("threading", "_thread", "signal", "time", "select", "subprocess", "queue")


class _State:
    def __init__(self) -> None:
        self.plan: Plan | None = None
        self.finder: _fresh.Finder | None = None
        self.own: list[tuple[dict[str, Any], str, Any]] = []
        self.encloses_hooks = False  # hooks of forks stay for good


_state = _State()
_blocking.hand_over(select.wait_many, files.make_open)


def is_installed() -> bool:
    """Is the emulation installed?"""
    return _state.plan is not None


def _keep_originals(plan: Plan) -> None:
    for owner, name, _ in plan.wanted:
        if isinstance(owner, types.ModuleType) and owner is not _real_threading and hasattr(owner, name):
            _originals.keep(owner.__name__, name, getattr(owner, name))


def _show_originals_to_own_modules() -> None:
    views = {id(sys.modules[name]): _originals.ORIGINALS[name] for name in _OWN_SEES if name in _originals.ORIGINALS}
    for module_name, module in list(sys.modules.items()):
        if (module_name != "coro" and not module_name.startswith("coro.")) or module_name.startswith("coro.emulation"):
            continue
        names = vars(module)
        for name, value in list(names.items()):
            view = views.get(id(value))
            if view is not None:
                _state.own.append((names, name, value))
                names[name] = view


def _main_of_run(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any]:
    """The function of coro.run as the main thread of the program, which does in the end what such a thread does."""

    def main() -> Any:
        signal.let_sigterm_end()
        try:
            return function(*args, **kwargs)
        finally:
            if is_installed() and _blocking.get_main() == scheduler.current().id:
                threading.join_threads()
                thread.note_end(True)

    main.__qualname__ = main.__name__ = getattr(function, "__qualname__", type(function).__qualname__)
    return main


def _note_main(main: scheduler.coro) -> None:
    """A loop has begun: its main thread is the program's."""
    thread.note_end(False)
    _blocking.set_main(main.id, _real_threading.main_thread().ident)
    foreign.note_loop()


def install() -> None:
    """See coro.install_thread_emulation."""
    if is_installed():
        return
    if scheduler.coro_is_running() and not scheduler._in_loop_os_thread():
        scheduler._all_threads()  # raises WrongThreadError
    for name in _OWN:
        importlib.import_module(name)
    _originals.take_copies()
    plan = Plan()
    for room in _ROOMS:
        room.plan(plan)
    _keep_originals(plan)
    finder = _fresh.Finder(plan)
    running = [thread.name for thread in _real_threading.enumerate() if _is_foreign(thread)]
    _state.plan = plan
    try:
        plan.apply()
        _state.finder = finder
        finder.put_in_front()
        _show_originals_to_own_modules()
        _offloaded.apply(plan)
        threading.take_over_main(plan)
        files.take_over_standard_streams()
        problems = _instances.exchange()
        if not _state.encloses_hooks:
            os.enclose_hooks()
            _state.encloses_hooks = True
        signal.take_over()
        scheduler._set_main_wrapper(_main_of_run, _note_main)
        if _blocking.in_thread_of_loop():
            _blocking.set_main(scheduler.current().id, _real_threading.main_thread().ident)
            signal.let_sigterm_end()
        problems += [f"the running OS thread {name!r}" for name in running]
        if problems:
            warnings.warn(
                "these existed before the emulation was installed and still block the whole OS thread: "
                + "; ".join(problems)
                + ". Install it earlier, before they are made.",
                EmulationWarning,
                stacklevel=3,
            )
        for blocker in _blockers.check():
            _blockers.warn_of(blocker.module, stacklevel=3)
    except BaseException:  # a warning that is an error, for one
        uninstall()
        raise


def _is_foreign(thread: _real_threading.Thread) -> bool:
    """An OS thread of the program's: neither the main one nor a worker of coro's."""
    return (
        thread is not _real_threading.main_thread()
        and thread is not _real_threading.current_thread()
        and thread.name != "coro worker"
        and not isinstance(thread, _real_threading._DummyThread)
    )


def uninstall() -> None:
    """See coro.uninstall_thread_emulation."""
    plan = _state.plan
    if plan is None:
        return
    if scheduler.coro_is_running() and not scheduler._in_loop_os_thread():
        scheduler._all_threads()
    scheduler._set_main_wrapper(None)
    _blocking.set_main(0, _real_threading.main_thread().ident)
    signal.give_back()
    foreign.undo()
    _offloaded.apply(None)
    if _state.finder is not None:
        _state.finder.take_out()
        _state.finder = None
    threading.give_back_main(plan)
    files.give_back_standard_streams()
    for names, name, value in reversed(_state.own):
        names[name] = value
    _state.own.clear()
    plan.undo()
    _state.plan = None
