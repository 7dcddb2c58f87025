"""Cooperative threads: code that reads like plain blocking code, a million threads in one process.

    import coro

    def main():
        listener = coro.tcp_sock()
        listener.bind(("127.0.0.1", 7777))
        listener.listen()
        while True:
            conn, address = listener.accept()
            coro.spawn(serve, conn)

    coro.run(main)

This file holds names only. Importing it starts no thread, opens no descriptor and replaces nothing. Other distributions
(coro-dns, coro-http, ...) add subpackages to this one.
"""

from __future__ import annotations

import sys as _sys
import typing as _typing
from pkgutil import extend_path as _extend_path

__path__ = _extend_path(__path__, __name__)
__version__ = "0.1.0"

from coro._entry import main_interpreter as _main_interpreter  # noqa: F401  # before any compiled module

# isort: split
from coro import oserrors
from coro._clock import ticks as _ticks
from coro._clock.ticks import (
    absolute_secs_to_ticks,
    absolute_time_to_ticks,
    absolute_time_to_ticks_safe,
    ctime_ticks,
    ctime_usec,
    get_now,
    get_usec,
    microseconds,
    tick_update_interval,
    ticks_to_absolute_secs,
    ticks_to_absolute_time,
    ticks_to_absolute_time_safe,
    update_time_relation,
)
from coro._entry import classic as _classic
from coro._entry import other_distribution as _other_distribution
from coro._entry.classic import UNAME, get_module_name, get_refcnt, signalfd_handler, sigterm_handler, tick_updater
from coro._entry.connect import connect
from coro._entry.fork import fork
from coro._entry.loop import event_loop, event_loop_is_running, run, set_print_exit_string
from coro._introspection.failures import compact_exception_notifier, default_exception_notifier
from coro._introspection.lock_cycles import set_lock_cycle_warning
from coro._introspection.memory import Memory, ThreadMemory, memory
from coro._introspection.reports import all_threads, where, where_all
from coro._introspection.statistics import Statistics, statistics
from coro._introspection.wait_graph import WaitEdge, WaitGraph, WaitingThread, WaitTarget, wait_graph
from coro._introspection.watchdog import set_watchdog
from coro._net.sock import (
    AF,
    MSG,
    PF,
    SHUT,
    SO,
    SOCK,
    SOL,
    coro_fd,
    fd_sock,
    file_sock,
    get_live_sockets,
    has_ipv6,
    make_socket,
    sock,
    socketpair,
    tcp6_sock,
    tcp_sock,
    udp6_sock,
    udp_sock,
    unix_sock,
)
from coro._poll import choose as _choose_poller
from coro._poll.descriptors import kevent_key, kevent_target, py_event, py_kevent
from coro._poll.events import event_map, remove_handler, set_handler, wait_for
from coro._poll.filters import EFILT, EV, EVFILT, NOTE
from coro._runtime import scheduler as _scheduler
from coro._runtime.output import print_stderr, saved_stderr, write_stderr
from coro._runtime.scheduler import (
    _yield,
    compress,
    coro,
    coro_is_running,
    current,
    get_live_coros,
    get_stack_slots,
    get_thread_by_id,
    move_on_after,
    new,
    no_switch,
    post,
    schedule,
    set_deadlock,
    set_exception_notifier,
    set_exit,
    set_latency_warning,
    set_selfishness,
    set_stack_slots,
    shield,
    sleep,
    sleep_absolute,
    sleep_relative,
    spawn,
    timeout,
    with_timeout,
    yield_slice,
)
from coro._sync.conditions import barrier, condition_variable, event, inverted_semaphore, latch
from coro._sync.local import ThreadLocal
from coro._sync.locks import mutex, rw_lock, semaphore
from coro._sync.queues import channel, fifo
from coro._sync.select import case, select
from coro.emulation import install as install_thread_emulation
from coro.emulation import uninstall as uninstall_thread_emulation
from coro.event_queue import event_queue
from coro.exceptions import (
    CancelledError,
    ChannelClosed,
    ClosedError,
    DeadCoroutine,
    DeadlockError,
    Interrupted,
    LockCycleWarning,
    LockError,
    LoopError,
    NoSwitchError,
    NotStartedError,
    QueueShutDown,
    ScheduleError,
    Shutdown,
    SimultaneousError,
    StackSlotError,
    WakeUp,
    WrongThreadError,
    YieldFromMain,
)
from coro.exceptions import ResolverNameError as _ResolverNameError
from coro.exceptions import TimeoutError as TimeoutError
from coro.file_watcher import watch
from coro.files import (
    MAX_AIO_SIZE,
    MAX_LIO,
    aio_read,
    aio_stats,
    aio_write,
    lio_listio_error,
    many_lio_reads,
    many_lio_writes,
    pack_blocks_for_write,
)
from coro.groups import group
from coro.offload import in_thread
from coro.outcomes import ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION, WaitResult, as_completed, wait
from coro.parallel import FAILURE, SUCCESS, InParallelError, in_parallel, parallel_map
from coro.pools import pool
from coro.prefork import prefork
from coro.process import waitpid
from coro.profiler._benches import bench, rusage, rusage_bench
from coro.profiler._session import get_the_profiler, new_profiler
from coro.rates import rate_limiter
from coro.resolver import dummy_resolver, get_resolver, set_resolver
from coro.retries import retry
from coro.servers import Server, serve
from coro.task_queues import lifo_queue, priority_queue, queue
from coro.tb import traceback_data
from coro.tb import traceback_string as compact_traceback

_scheduler.set_poller_factory(_choose_poller.choose())
_other_distribution.warn(__path__)

# Set to False before event_loop() to leave SIGINT and SIGTERM alone.
install_signal_handlers = True
exception_notifier = default_exception_notifier
# An assignment, because type checkers take an import under another name for a private one.
NameError = _ResolverNameError
event_key = kevent_key
P = print_stderr
W = write_stderr


def get_include() -> str:
    """The folder with the C headers that extension modules need which ``cimport`` from coro-core."""
    import os

    return os.path.dirname(os.path.abspath(__file__))


if _typing.TYPE_CHECKING:
    # What __getattr__ makes when it is first asked for. A checker that saw __getattr__ would take any name.
    from coro import asyncio_bridge as asyncio_bridge
    from coro import backdoor as backdoor
    from coro import debug as debug
    from coro import demo as demo
    from coro import emulation as emulation
    from coro import exceptions as exceptions
    from coro import file_watcher as file_watcher
    from coro import files as files
    from coro import frontdoor as frontdoor
    from coro import gc_monitor as gc_monitor
    from coro import groups as groups
    from coro import limits as limits
    from coro import locksmith as locksmith
    from coro import log as log
    from coro import lru as lru
    from coro import microthreads as microthreads
    from coro import offload as offload
    from coro import optional as optional
    from coro import outcomes as outcomes
    from coro import parallel as parallel
    from coro import pools as pools
    from coro import print_profile as print_profile
    from coro import process as process
    from coro import profiler as profiler
    from coro import rates as rates
    from coro import read_stream as read_stream
    from coro import resolver as resolver
    from coro import retries as retries
    from coro import servers as servers
    from coro import signal_handler as signal_handler
    from coro import task_queues as task_queues
    from coro import tb as tb
    from coro import test as test
    from coro import testing as testing
    from coro import tls as tls
    from coro._net.stream import Stream as Stream

    now: int
    now_usec: int
    ticks_per_sec: int
    ticks_per_usec: int
    __versions__: dict[str, str]
else:

    def __getattr__(name: str) -> object:
        # Read at each access: `from coro import now` would freeze them.
        if name == "now":
            return _scheduler._loop_now()
        if name in ("ticks_per_sec", "ticks_per_usec"):
            return getattr(_ticks, name)
        if name == "now_usec":
            return _ticks.ticks_to_absolute_time(_scheduler._loop_now())
        if name == "__versions__":
            return _classic.versions()
        from coro._entry import missing

        return missing.attribute(_sys.modules[__name__], name)

    def __dir__() -> list[str]:
        from coro._entry import missing

        return missing.shown(_sys.modules[__name__], ("now", "ticks_per_sec", "__versions__"))


# `TimeoutError` and `NameError` are attributes but not in this list: a star import must not hide the built-in ones.
__all__ = [
    "AF",
    "ALL_COMPLETED",
    "EFILT",
    "EV",
    "EVFILT",
    "FAILURE",
    "FIRST_COMPLETED",
    "FIRST_EXCEPTION",
    "MAX_AIO_SIZE",
    "MAX_LIO",
    "MSG",
    "NOTE",
    "P",
    "PF",
    "SHUT",
    "SO",
    "SOCK",
    "SOL",
    "SUCCESS",
    "UNAME",
    "W",
    "CancelledError",
    "ChannelClosed",
    "ClosedError",
    "DeadCoroutine",
    "DeadlockError",
    "InParallelError",
    "Interrupted",
    "LockCycleWarning",
    "LockError",
    "LoopError",
    "Memory",
    "NoSwitchError",
    "NotStartedError",
    "QueueShutDown",
    "ScheduleError",
    "Server",
    "Shutdown",
    "SimultaneousError",
    "StackSlotError",
    "Statistics",
    "Stream",
    "ThreadLocal",
    "ThreadMemory",
    "WaitEdge",
    "WaitGraph",
    "WaitResult",
    "WaitTarget",
    "WaitingThread",
    "WakeUp",
    "WrongThreadError",
    "YieldFromMain",
    "_yield",
    "absolute_secs_to_ticks",
    "absolute_time_to_ticks",
    "absolute_time_to_ticks_safe",
    "aio_read",
    "aio_stats",
    "aio_write",
    "all_threads",
    "as_completed",
    "barrier",
    "bench",
    "case",
    "channel",
    "compact_exception_notifier",
    "compact_traceback",
    "compress",
    "condition_variable",
    "connect",
    "coro",
    "coro_fd",
    "coro_is_running",
    "ctime_ticks",
    "ctime_usec",
    "current",
    "default_exception_notifier",
    "dummy_resolver",
    "event",
    "event_key",
    "event_loop",
    "event_loop_is_running",
    "event_map",
    "event_queue",
    "exception_notifier",
    "fd_sock",
    "fifo",
    "file_sock",
    "fork",
    "get_include",
    "get_live_coros",
    "get_live_sockets",
    "get_module_name",
    "get_now",
    "get_refcnt",
    "get_resolver",
    "get_stack_slots",
    "get_the_profiler",
    "get_thread_by_id",
    "get_usec",
    "group",
    "has_ipv6",
    "in_parallel",
    "in_thread",
    "install_thread_emulation",
    "inverted_semaphore",
    "kevent_key",
    "kevent_target",
    "latch",
    "lifo_queue",
    "lio_listio_error",
    "make_socket",
    "many_lio_reads",
    "many_lio_writes",
    "memory",
    "microseconds",
    "move_on_after",
    "mutex",
    "new",
    "new_profiler",
    "no_switch",
    "oserrors",
    "pack_blocks_for_write",
    "parallel_map",
    "pool",
    "post",
    "prefork",
    "print_stderr",
    "priority_queue",
    "py_event",
    "py_kevent",
    "queue",
    "rate_limiter",
    "remove_handler",
    "retry",
    "run",
    "rusage",
    "rusage_bench",
    "rw_lock",
    "saved_stderr",
    "schedule",
    "select",
    "semaphore",
    "serve",
    "set_deadlock",
    "set_exception_notifier",
    "set_exit",
    "set_handler",
    "set_latency_warning",
    "set_lock_cycle_warning",
    "set_print_exit_string",
    "set_resolver",
    "set_selfishness",
    "set_stack_slots",
    "set_watchdog",
    "shield",
    "signalfd_handler",
    "sigterm_handler",
    "sleep",
    "sleep_absolute",
    "sleep_relative",
    "sock",
    "socketpair",
    "spawn",
    "statistics",
    "tcp6_sock",
    "tcp_sock",
    "tick_update_interval",
    "tick_updater",
    "ticks_per_sec",
    "ticks_per_usec",
    "ticks_to_absolute_secs",
    "ticks_to_absolute_time",
    "ticks_to_absolute_time_safe",
    "timeout",
    "traceback_data",
    "udp6_sock",
    "udp_sock",
    "uninstall_thread_emulation",
    "unix_sock",
    "update_time_relation",
    "wait",
    "wait_for",
    "wait_graph",
    "waitpid",
    "watch",
    "where",
    "where_all",
    "with_timeout",
    "write_stderr",
    "yield_slice",
]
