"""Emulated `threading`: the primitives that its classes are made of.

Thread, Condition, Event, Semaphore, Barrier, Timer and the rest are Python code on top of a few names of `_thread`;
with those replaced in the module's own namespace, the classes themselves stay what they were, subclasses and all. The
methods of Condition and Event are compiled ones meanwhile, because all others are made of these two.
"""

from __future__ import annotations

import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

from coro._runtime import scheduler
from coro._sync.local import LocalValues
from coro.emulation import _blocking
from coro.emulation._modules import thread as _thread
from coro.emulation._plan import Plan
from coro.exceptions import Shutdown

__all__ = ["give_back_main", "join_threads", "plan", "take_over_main"]

_module: Any = threading
_make_hook: Any = _module._make_invoke_excepthook
_shutdown_natively: Any = _module._shutdown


def make_invoke_excepthook() -> Callable[[threading.Thread], None]:
    """As the original, but the end of a loop is no error of the threads that it ends."""
    invoke = _make_hook()

    def invoke_excepthook(thread: threading.Thread) -> None:
        kind = sys.exc_info()[0]
        if kind is None or not issubclass(kind, Shutdown):
            invoke(thread)

    return invoke_excepthook


def shutdown() -> None:
    """Wait for the threads that are no daemons. A coro thread calls it at the end of a child of `multiprocessing`. At
    the end of the interpreter no coro thread runs any more: nobody must wait for one."""
    if _blocking.in_thread_of_loop():
        join_threads()
    _thread.end_dead()
    _shutdown_natively()


def join_threads() -> None:
    """What the end of a program does: let executors finish, wait for threads that are no daemons."""
    executors = sys.modules.get("concurrent.futures.thread")
    workers: list[Any] = []
    if executors is not None:
        with executors._global_shutdown_lock:
            vars(executors)["_shutdown"] = True
        workers = [pair for pair in executors._threads_queues.items() if _is_ours(pair[0])]
        for _, queue in workers:
            queue.put(None)
    asked = False
    try:
        while True:
            waiting = _thread.not_daemons()
            if not waiting:
                return
            if not asked:
                asked = True
                _end_what_waits_for_the_end()
            for record in waiting:
                record.wait()
    finally:
        if executors is not None:
            vars(executors)["_shutdown"] = False


def _end_what_waits_for_the_end() -> None:
    """Call what was registered for the time before threads are joined: executors of processes, also those of other
    libraries, end their threads there. They note that the program ends; after a loop it may go on, so the note is taken
    back, and they stay registered. What leaves no such note is called once."""
    for call in reversed(vars(threading)["_threading_atexits"][:]):
        # A partial object, or (from 3.13 on) a function around the one that was registered.
        code, cells = getattr(call, "__code__", None), getattr(call, "__closure__", None) or ()
        within = {name: cell.cell_contents for name, cell in zip(code.co_freevars, cells, strict=False)} if code else {}
        space = getattr(getattr(call, "func", within.get("func", call)), "__globals__", {})
        if space.get("__name__") == "concurrent.futures.thread":
            continue
        if "_global_shutdown" not in space:
            vars(threading)["_threading_atexits"].remove(call)
        try:
            call()
        finally:
            if "_global_shutdown" in space:
                space["_global_shutdown"] = False


def _is_ours(thread: threading.Thread) -> bool:
    return thread.ident is not None and thread.ident in _thread._records


_initialise_dummy: Any = _module._DummyThread.__init__
_dummies: dict[int, weakref.ref[Any]] = {}


def initialise_dummy(self: Any) -> None:
    """The object for a coro thread that was spawned without `threading` goes with that thread: idents of coro threads,
    unlike those of OS threads, are never used again, and the objects would add up."""
    _initialise_dummy(self)
    if _blocking.in_thread_of_loop():
        thread: Any = scheduler.current()
        ident = _blocking.get_ident()

        def gone(_: object) -> None:
            _dummies.pop(ident, None)
            _module._active.pop(ident, None)

        _dummies[ident] = weakref.ref(thread, gone)


_HANDLE = next((name for name in ("_os_thread_handle", "_handle") if hasattr(threading.main_thread(), name)), None)


def take_over_main(p: Plan) -> None:
    """join() on the main thread must suspend a coro thread only."""
    main = threading.main_thread()
    if _HANDLE is not None:
        handle = getattr(main, _HANDLE)
        if type(handle) is not _thread.ThreadHandle and not handle.is_done():
            new = _thread.make_thread_handle(handle.ident)
            p.set(main, _HANDLE, new)
    elif getattr(main, "_tstate_lock", None) is not None:
        lock = _blocking.Sentinel()
        lock.acquire()
        _swap_in_shutdown(_module._main_thread._tstate_lock, lock)
        p.set(main, "_tstate_lock", lock)


def give_back_main(p: Plan) -> None:
    """The plan puts the lock of the main thread back; what waits for it at the end has to know, too."""
    for owner, name, old, new in p.done:
        if name == "_tstate_lock" and getattr(owner, name) is new:
            _swap_in_shutdown(new, old)


def _swap_in_shutdown(old: Any, new: Any) -> None:
    if old in _module._shutdown_locks:
        _module._shutdown_locks.discard(old)
        _module._shutdown_locks.add(new)


def plan(p: Plan) -> None:
    """What to replace."""
    names: dict[str, Any] = {
        "_start_new_thread": _thread.start_thread_object,
        "_start_joinable_thread": _thread.start_joinable_thread,
        "_allocate_lock": _blocking.Lock,
        "_LockType": _blocking.Lock,
        "Lock": _blocking.Lock,
        "_CRLock": _blocking.RLock,
        "_set_sentinel": _thread.set_sentinel,
        "get_ident": _blocking.get_ident,
        "get_native_id": _thread.get_native_id,
        "local": LocalValues,
        "_ThreadHandle": _thread.ThreadHandle,
        "_make_thread_handle": _thread.make_thread_handle,
        "_set_name": _thread.set_name,
        "_make_invoke_excepthook": make_invoke_excepthook,
        "_shutdown": shutdown,
    }
    if not hasattr(threading, "_DeleteDummyThreadOnDel"):  # 3.12 and newer see to that by thread-local data
        p.replace(_module._DummyThread, "__init__", initialise_dummy)
    _blocking.know_condition(threading.Condition)
    for name in ("enter", "exit", "wait", "notify", "notify_all"):
        method = f"__{name}__" if name in ("enter", "exit") else name
        p.replace(threading.Condition, method, getattr(_blocking, f"condition_{name}"))
    for name in ("set", "clear", "wait"):
        p.replace(threading.Event, name, getattr(_blocking, f"event_{name}"))
    module: types.ModuleType = threading
    for name, new in names.items():
        p.replace(module, name, new)
