"""Programs written for blocking sockets and OS threads, run unchanged on coro threads.

    import coro

    coro.install_thread_emulation()
    coro.run(program)

Attributes of the standard library's own modules are replaced (`threading`, `socket`, `time.sleep` and so on, one file
of `_modules` each), so whatever was imported before keeps working on the same classes. `_install.py` says how; the
manual's chapter on emulation says what a program may rely on. Importing this package replaces nothing, and loads the
modules to be replaced only when they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from coro.emulation._blockers import Blocker, check
from coro.emulation._warning import EmulationWarning

__all__ = [
    "Blocker",
    "EmulationWarning",
    "check",
    "inherit_by_children",
    "install",
    "installed",
    "is_installed",
    "offload",
    "original",
    "uninstall",
]

_ever = False


def install() -> None:
    """From now on, let blocking calls of the standard library suspend only the calling coro thread.

    Covered: threads and locks (`threading`, `_thread`, `queue`, `concurrent.futures`, locks of imports and of
    `logging`), `socket` and `ssl`, `select` and `selectors`, `time.sleep`, children (`subprocess`, ``os.wait*``),
    pipes and files over them, signal handlers, and the resolution of names. Calls from OS threads without a loop do
    what they always did. May be called before or inside `coro.run`, best before other modules are imported. A second
    call does nothing.

    Warns with EmulationWarning about things that exist and cannot be changed, and, now and at later imports, once about
    each C library that is known to block all threads (see check()). WrongThreadError while a loop runs in
    another OS thread.
    """
    global _ever
    from coro.emulation import _install

    _ever = True
    _install.install()


def uninstall() -> None:
    """Undo install(). Running threads continue, and objects that were made meanwhile still work. Does nothing when the
    emulation is not installed. WrongThreadError while a loop runs in another OS thread."""
    if _ever:
        from coro.emulation import _install

        _install.uninstall()


def is_installed() -> bool:
    """Whether the emulation is installed."""
    if not _ever:
        return False
    from coro.emulation import _install

    return _install.is_installed()


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """``with coro.emulation.installed():`` installs the emulation for a block. Inside another such block, or if the
    emulation is already installed, it does nothing. Warnings and errors as for install() and uninstall()."""
    if is_installed():
        yield
        return
    install()
    try:
        yield
    finally:
        uninstall()


def inherit_by_children() -> None:
    """Have children that run ``sys.executable`` run their program as ``python -m coro --emulate`` does, from the next
    install() on.

    That command calls it for its program. It concerns `subprocess`, the start methods of `multiprocessing`, and
    ``os.exec*``, ``os.spawn*`` and ``os.posix_spawn*``. Forked children without another program are emulated in any
    case.
    """
    from coro.emulation import _children

    _children.inherit()


def offload(name: str, *, when: Callable[..., bool] | None = None) -> None:
    """Send the calls of a function or method to worker OS threads, wherever coro threads make them.

        coro.emulation.offload("driver.Cursor.execute")

    name: the module, the class if there is one, and the function, with dots between them. What is not loaded yet is
    replaced when it is. A class in C that cannot be changed is replaced by one that is derived from it; objects that
    exist already stay what they are.

    when: called with the arguments of each call, says whether this one may wait. Others are made as ever.

    It holds while the emulation is installed, be it before or after this call, and for calls from coro threads. Each
    such call has a worker of its own: coro.offload.set_max_workers() does not bound them. If the caller is interrupted
    it leaves at once, and the call runs to its end.

    Calls of mysqlclient, confluent-kafka and pyzmq that wait, and those of pyarrow that read files, are sent to workers
    without being named. ValueError for a name without a dot, or that is none; TypeError for another type, and for a
    class in C that cannot be derived from.
    """
    from coro.emulation import _offloaded

    _offloaded.add(name, when)


def original(name: str) -> Any:
    """A module of the standard library as it was before the emulation: ``original("threading").Thread`` is a real OS
    thread, ``original("time").sleep`` blocks the whole OS thread.

    name: any importable module; one that the emulation does not change is returned as it is. Methods of classes that
    are changed in place (``socket.socket``, ``ssl.SSLSocket``) are emulated here, too, when a coro thread calls them.
    In an OS thread without a loop they do what they always did. ImportError when there is no such module; TypeError
    unless a str.
    """
    from coro.emulation import _originals

    return _originals.original(name)
