"""Attributes of ``coro`` that nothing has bound: what is imported when first asked for, and errors that help.

``coro/__init__.py`` asks here when it does not know a name. A public module (``coro.debug``) is imported, and is an
ordinary attribute from then on. A name from another library (``gather``, ``Lock``, ``patch_all``) gives an error that
says what to use here. The file also knows which names ``dir(coro)`` leaves out.

Cost: nothing for `import coro`, which does not read this file; an attribute that does not exist costs a search for a
module of that name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dis import opmap
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from types import FrameType, ModuleType

__all__ = ["attribute", "shown"]

#: Public names that are imported when first asked for, and the module each is in.
LATE = {"Stream": "coro._net.stream"}

#: Names that were kept from the original coro, or belong to the insides: programs go on using them, and people who look
#: for something to use are better off without. Each has a better one in the reference.
NOT_SHOWN = frozenset(
    """
    EFILT FAILURE MAX_AIO_SIZE MAX_LIO P SUCCESS UNAME W _yield absolute_secs_to_ticks absolute_time_to_ticks
    absolute_time_to_ticks_safe aio_stats bench compact_traceback coro_fd ctime_ticks ctime_usec
    default_exception_notifier dummy_resolver event_key event_loop_is_running exception_notifier get_live_sockets
    get_module_name get_now get_refcnt get_the_profiler get_usec install_signal_handlers lio_listio_error make_socket
    many_lio_reads many_lio_writes microseconds new_profiler now_usec pack_blocks_for_write py_event rusage rusage_bench
    saved_stderr set_print_exit_string signalfd_handler sigterm_handler tick_update_interval tick_updater
    ticks_per_usec ticks_to_absolute_secs ticks_to_absolute_time ticks_to_absolute_time_safe traceback_data tsc_time
    uninstall_thread_emulation update_time_relation
    """.split()
)

_GROUP = "with coro.group() as g: g.spawn(function, ...)"
_MUTEX = "coro.mutex(), which also works as `with lock:`; the thread that holds it may lock it again"
_EMULATION = "coro.install_thread_emulation() makes the standard library's blocking calls cooperative"
_EXECUTOR = "coro.in_thread(function, ...) for calls that block, coro.pool(size) for threads with a bound"
_CANCEL = "thread.shutdown() to end a thread, thread.raise_exception(error) to interrupt it"
_SHUTDOWN = "coro.Shutdown, which thread.shutdown() raises in a thread"
_LIMIT = (
    "coro.timeout(seconds) as a block, coro.move_on_after(seconds) for one without an error, or the parameter timeout= "
    "of a call that waits"
)
_LOOP = "coro.run(function, ...), which makes a loop, runs the function as a thread in it and returns its result"
_SERVE = "coro.serve(handler, address), or coro.Server(handler, address) for one beside others"
_CONNECT = "coro.connect((host, port)), which returns a connected coro.sock"
_SUBPROCESS = "coro.process.run(command), or coro.process.CoroProcess(...) to talk to a child"
_CHANNEL = "coro.channel(capacity), which has put, get and close"
_LOCAL = "coro.ThreadLocal()"
_BRIDGE = "coro.asyncio_bridge to run asyncio code and coro threads in one program"
_SPAWN = "coro.spawn(function, ...), which returns the new thread"
_CURRENT = "coro.current()"
_NURSERY = f"coro.group(): {_GROUP}"
_SPAWN_LATER = "coro.spawn of a function that sleeps first with coro.sleep(seconds)"
_ALL = "coro.all_threads, a mapping of ids to threads"
_CLOSED = "coro.ClosedError"

#: What people type who come from asyncio, gevent, threading, trio, Go and the like, and what to use here. None of these
#: is the name of something there is.
HINTS = {
    # threads
    "Thread": _SPAWN, "Greenlet": _SPAWN, "greenlet": _SPAWN, "go": _SPAWN, "tasklet": _SPAWN,
    "create_task": _SPAWN, "ensure_future": _SPAWN, "start_soon": _SPAWN, "spawn_n": _SPAWN, "spawn_raw": _SPAWN,
    "start_new_thread": _SPAWN, "start": _SPAWN, "thread": _SPAWN, "call_soon": _SPAWN,
    "spawn_later": _SPAWN_LATER, "spawn_after": _SPAWN_LATER, "call_later": _SPAWN_LATER, "Timer": _SPAWN_LATER,
    "Task": "coro.coro, the class of the threads that coro.spawn returns",
    "Future": "the thread that coro.spawn returns, and its get(); for a value from elsewhere coro.channel()",
    "AsyncResult": "coro.channel(), or get() of the thread that coro.spawn returns",
    "current_task": _CURRENT, "current_thread": _CURRENT, "getcurrent": _CURRENT, "get_current": _CURRENT,
    "get_ident": "coro.current().id",
    "all_tasks": _ALL, "enumerate": _ALL,
    "active_count": "len(coro.all_threads)",
    # several at once
    "gather": f"coro.in_parallel([(function, arguments), ...]), coro.parallel_map(function, values), or {_GROUP}",
    "joinall": f"coro.wait(threads), or {_GROUP}", "iwait": "coro.as_completed(threads)",
    "join": f"thread.join(), or {_GROUP}",
    "killall": "the shutdown method of a coro.group()",
    "nursery": _NURSERY, "Nursery": _NURSERY, "open_nursery": _NURSERY, "TaskGroup": _NURSERY,
    "create_task_group": _NURSERY, "Group": _NURSERY, "WaitGroup": f"{_GROUP}, or coro.latch(count)",
    "Pool": _EXECUTOR, "GreenPool": "coro.pool(size)", "GreenPile": "coro.parallel_map(function, values)",
    "ThreadPool": _EXECUTOR, "threadpool": _EXECUTOR, "ThreadPoolExecutor": _EXECUTOR, "Executor": _EXECUTOR,
    "run_in_executor": _EXECUTOR, "map": "coro.parallel_map(function, values, limit=8)",
    # ending and limits
    "kill": _CANCEL, "cancel": _CANCEL, "terminate": _CANCEL, "throw": "thread.raise_exception(error)",
    "Cancelled": _SHUTDOWN, "GreenletExit": _SHUTDOWN, "TaskletExit": _SHUTDOWN,
    "get_cancelled_exc_class": _SHUTDOWN,
    "ignore_after": "with coro.move_on_after(seconds) as scope",
    "Timeout": _LIMIT, "timeout_at": _LIMIT, "fail_after": _LIMIT, "CancelScope": _LIMIT,
    "TooSlowError": "coro.TimeoutError",
    "exit": "coro.set_exit(code)", "quit": "coro.set_exit(code)", "stop": "coro.set_exit(code)",
    "shutdown": "thread.shutdown() to end a thread, coro.set_exit(code) to end the loop",
    # locks and queues
    "Lock": _MUTEX, "RLock": _MUTEX, "Mutex": _MUTEX, "lock": _MUTEX,
    "RWLock": "coro.rw_lock()",
    "Event": "coro.event()",
    "Condition": "coro.condition_variable()",
    "Semaphore": "coro.semaphore(value)", "BoundedSemaphore": "coro.semaphore(value)",
    "CapacityLimiter": "coro.pool(size), coro.semaphore(value), or coro.group(limit=8)",
    "RateLimiter": "coro.rate_limiter(rate)", "Limiter": "coro.rate_limiter(rate)",
    "Barrier": "coro.barrier(parties)", "CountDownLatch": "coro.latch(count)",
    "Queue": "coro.queue(maxsize); coro.fifo(maxsize) and coro.channel(capacity) are faster",
    "SimpleQueue": "coro.fifo()", "JoinableQueue": "coro.queue()", "deque": "coro.fifo()",
    "PriorityQueue": "coro.priority_queue()", "LifoQueue": "coro.lifo_queue()",
    "UnboundQueue": "coro.fifo()", "LightQueue": "coro.fifo()", "ShutDown": "coro.QueueShutDown",
    "Channel": _CHANNEL, "chan": _CHANNEL, "open_memory_channel": _CHANNEL,
    "EndOfChannel": "coro.ChannelClosed",
    "QueueEmpty": "IndexError, which pop_nowait raises",
    "local": _LOCAL, "threading_local": _LOCAL, "Local": _LOCAL,
    # the loop
    "get_event_loop": _LOOP, "get_running_loop": _LOOP, "new_event_loop": _LOOP, "run_until_complete": _LOOP,
    "run_forever": _LOOP, "Runner": _LOOP, "get_hub": _LOOP, "hub": _LOOP, "start_event_loop": _LOOP,
    "to_thread": "coro.in_thread(function, ...)", "run_sync": "coro.in_thread(function, ...)",
    "tpool": "coro.in_thread(function, ...)",
    "call_soon_threadsafe": "coro.post(function, ...)", "from_thread": "coro.post(function, ...)",
    "run_coroutine_threadsafe": "coro.post(function, ...)",
    "checkpoint": "coro.yield_slice()", "idle": "coro.yield_slice()", "switch": "coro.yield_slice()",
    "yield_": "coro.yield_slice()",
    "iscoroutinefunction": _BRIDGE, "iscoroutine": _BRIDGE, "async_run": _BRIDGE, "asyncio": _BRIDGE,
    "monkey": _EMULATION, "patch_all": _EMULATION, "monkey_patch": _EMULATION, "patch": _EMULATION,
    "patch_socket": _EMULATION, "patch_thread": _EMULATION, "patcher": _EMULATION,
    "Hub": _LOOP, "reinit": "coro.fork()",
    # network and processes
    "socket": "coro.tcp_sock(), coro.udp_sock(), coro.unix_sock(), or coro.connect((host, port))",
    "Socket": "coro.sock; coro.tcp_sock() makes one",
    "create_connection": _CONNECT, "open_connection": _CONNECT, "open_tcp_stream": _CONNECT,
    "start_server": _SERVE, "create_server": _SERVE, "serve_tcp": _SERVE, "StreamServer": _SERVE, "TCPServer": _SERVE,
    "listen": _SERVE,
    "StreamReader": "coro.read_stream.sock_stream(conn)", "StreamWriter": "the send method of a coro.sock",
    "getaddrinfo": "coro.get_resolver()", "gethostbyname": "coro.get_resolver()",
    "ClosedResourceError": _CLOSED, "BrokenResourceError": _CLOSED,
    "BusyResourceError": "coro.SimultaneousError",
    "subprocess": _SUBPROCESS, "Popen": _SUBPROCESS, "create_subprocess_exec": _SUBPROCESS,
    "create_subprocess_shell": _SUBPROCESS, "run_process": _SUBPROCESS, "Process": _SUBPROCESS,
    "signal": "coro.signal_handler.register(signum, handler)",
    "add_signal_handler": "coro.signal_handler.register(signum, handler)",
    "add_reader": "coro.wait_for(kevent), or coro.set_handler for a call each time",
}  # fmt: skip

#: Modules that are in other distributions, and which.
ELSEWHERE = {"clocks": "coro-clocks", "tsc_time": "coro-clocks"}


def attribute(package: ModuleType, name: str) -> object:
    """What ``coro.NAME`` is, for a name that the package does not have.

    Raises AttributeError, or ImportError for ``from coro import NAME``, with what to use instead where that is known.
    """
    if name in LATE:
        value = getattr(import_module(LATE[name]), name)
        setattr(package, name, value)
        return value
    full = f"{package.__name__}.{name}"
    if isinstance(made := sys.modules.get(full), ModuleType):  # by hand, perhaps without a spec to find it by
        return made
    if name == "tsc_time" and find_spec(f"{package.__name__}.clocks"):  # where the original had it
        return import_module(f"{package.__name__}.clocks.tsc_time")
    if name.isidentifier() and not name.startswith("_") and name not in HINTS and find_spec(full):
        return import_module(full)
    text = f"module {package.__name__!r} has no attribute {name!r}"
    if name in HINTS:
        text += f": use {HINTS[name]}"
    elif name in ELSEWHERE:
        text += f": it is in the distribution {ELSEWHERE[name]}; install that"
    if name not in HINTS and name not in ELSEWHERE:
        raise AttributeError(text, name=name, obj=package)  # Python adds which name is like it
    if _is_from_import(sys._getframe(1).f_back):
        # For an AttributeError the interpreter would put a text of its own, without what to use.
        raise ImportError(f"cannot import {name!r}: {text}", name=package.__name__, path=package.__file__)
    # Without the name, from which Python would make "Did you mean: 'sock'?" for `coro.Lock`. It puts the name in if the
    # object is missing as well.
    raise AttributeError(text, obj=package)


def _is_from_import(frame: FrameType | None) -> bool:
    """Is the frame at the `from coro import name` that asks for the attribute?"""
    if frame is None:
        return False
    code = frame.f_code.co_code
    return 0 <= frame.f_lasti < len(code) and code[frame.f_lasti] == opmap["IMPORT_FROM"]


def shown(package: ModuleType, more: Iterable[str]) -> list[str]:
    """The names for ``dir(coro)``: what there is and ``more``, with all public modules, without NOT_SHOWN."""
    names = {name for name in vars(package) if not name.startswith("_") or name.endswith("__")}
    names |= {module.name for module in iter_modules(package.__path__) if not module.name.startswith("_")}
    return sorted((names | set(more) | set(LATE)) - NOT_SHOWN - {"annotations"})
