"""Forking: ``coro.fork()``, and what has to happen in a child whichever way it was forked.

Everything hangs on ``os.register_at_fork``, so ``os.fork``, ``multiprocessing`` and ``subprocess`` with a
``preexec_fn`` are served as well; what cannot wait for the interpreter's hooks hangs on pthread_atfork(3): the signal
pipe (``_poll/events.pyx``), the state of OS threads that are gone (``_runtime/parts/fork.pxi``), and the emulation's
count of forks (``emulation/_blocking.pyx``).

A child keeps the thread that forked and nothing else that runs. The order is that of who needs what:

1. The scheduler leaves the parent's epoll or kqueue descriptor and marks the other threads as lost.
2. Their sockets can be told from others now, and are closed.
3. Where the loop itself was lost, its signal handlers and callbacks go.
4. Tables of who waits, of workers and the like are emptied: ``_TABLES``.
5. Signals are let through.

Signals are blocked from just before fork(2), in the child until the handlers are in order: one that comes early is
neither lost there nor seen by the parent. The parent's threads do not run in the child before 1: nothing may block
there until then.

Cost: for the child O(threads + sockets); for the parent two changes of the signal mask while a loop runs.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from coro._entry import loop
from coro._net import sock
from coro._poll import events
from coro._runtime import scheduler

__all__ = ["fork"]


def fork() -> int:
    """The same as ``os.fork()``: 0 in the child, the child's process number in the parent.

    In the child all other threads are dead, and none of them has run any clean-up. The loop goes on with the thread
    that forked. A child that was forked in another OS thread than the loop's has no loop, and may start one. See the
    page on processes. OSError when the system refuses.
    """
    return os.fork()


#: Rooms with something that belongs to the parent, in the order in which their ``_after_fork_in_child()`` is called.
#: One that was not imported has nothing. The emulation is last: it may start a thread.
_TABLES = (
    "coro._runtime.escalation",
    "coro.offload",
    "coro._poll.children",
    "coro._introspection.watchdog",
    "coro._introspection.failures",
    "coro.files",
    "coro.task_queues",
    "coro.pools",
    "coro.servers",
    "coro.asyncio_bridge",
    "coro.file_watcher._watcher",
    "coro.emulation._modules.thread",
)


def _after_fork_in_child() -> None:
    try:
        try:
            if scheduler._after_fork_in_child():
                sock._after_fork_in_child()
                if not scheduler.coro_is_running():
                    loop._clean_up()
        finally:
            _empty_tables()
    finally:
        events._after_fork()


def _empty_tables() -> None:
    failed = None
    for name in _TABLES:
        room: Any = sys.modules.get(name)
        if room is not None:
            try:
                room._after_fork_in_child()
            except BaseException as e:  # the others have to be emptied all the same
                failed = failed or e
    if failed is not None:
        raise failed


# Compiled functions, registered as they are: a signal handler that raises at the first step of a Python function around
# them would take the rest with it. What is registered later comes earlier before a fork, and later after it.
os.register_at_fork(before=events._before_fork, after_in_parent=events._after_fork)
os.register_at_fork(before=scheduler._before_fork, after_in_parent=scheduler._after_fork_in_parent)
# In the child signals are still blocked.
os.register_at_fork(after_in_child=_after_fork_in_child)
