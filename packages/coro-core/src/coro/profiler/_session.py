"""A profiling session: takes the interpreter's hooks, tells the core what runs already, and gives the hooks back.

From Python 3.12 on calls and returns come from ``sys.monitoring``, which is the whole process's, and those of coro's
own primitives from themselves; up to 3.11 from the interpreter's profile function, which the scheduler puts into every
thread. Events of other OS threads are ignored. Cost of a start: about a microsecond for each frame of a thread that
runs already; of a stop, a tuple for each path of calls.
The core is loaded by the first session, because `import coro` should not have to.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

from coro._clock import ticks as _ticks
from coro._runtime import scheduler
from coro._sync import conditions, locks, queues
from coro.profiler._accounts import settle
from coro.profiler._benches import USAGE, bench, rusage_bench
from coro.profiler._file import FunctionPlace, Profile, ThreadProfile

MAIN = "<main>"
WAIT = "<wait>"

#: Paths of calls that are told apart, all threads together; what is called beyond is charged to its caller.
MOST_NODES = 1_000_000
#: Threads that ended and keep an account of their own; the later ones are added up.
MOST_ENDED = 1_000
#: Seconds after which a call or return has the process's usage asked for, too.
SAMPLE_EVERY = 20e-6

#: What a program calls about as often as it switches, and therefore reports itself from Python 3.12 on: what takes less
#: time than to look at the clock, and is only counted; what parks the caller and does nothing else; the others. On 3.11
#: the first two save looks at the clock.
COUNTED = (scheduler.schedule, scheduler.coro.schedule)
PARKING = (scheduler._yield, scheduler.coro._yield, scheduler.yield_slice)
TIMED = (
    scheduler.sleep,
    scheduler.sleep_relative,
    conditions.condition_variable.wait,
    conditions.condition_variable.wake_one,
    conditions.event.wait,
    conditions.event.set,
    locks.mutex.lock,
    locks.mutex.unlock,
    locks.semaphore.acquire,
    locks.semaphore.release,
    queues.fifo.push,
    queues.fifo.pop,
    queues.channel.put,
    queues.channel.send,
    queues.channel.get,
    queues.channel.receive,
)

_the_profiler: Profiler | None = None


def python_name(code: CodeType) -> str:
    """dir/file.py:function:line of a Python function."""
    folder, file = os.path.split(code.co_filename)
    folder = os.path.basename(folder)
    return (
        f"{folder}/{file}:{code.co_qualname}:{code.co_firstlineno}"
        if folder
        else (f"{file}:{code.co_qualname}:{code.co_firstlineno}")
    )


def _path(frame: FrameType | None) -> list[CodeType]:
    codes = []
    while frame is not None:
        codes.append(frame.f_code)
        frame = frame.f_back
    codes.reverse()
    return codes


def _parked(running: Any) -> Iterator[tuple[scheduler.coro, list[CodeType]]]:
    """Threads that have begun, but the running one, with what is active in them."""
    for thread in scheduler._all_threads():
        if thread is not running and thread.started and not thread.dead:
            yield thread, _path(thread.get_frame())


class _Monitoring:
    """The hooks of Python 3.12 and newer."""

    def __init__(self) -> None:
        self.monitoring: Any = getattr(sys, "monitoring", None)
        self.tool = -1
        self.events = 0

    def take(self) -> None:
        from coro.profiler._core import accounting

        monitoring = self.monitoring
        for tool in (monitoring.PROFILER_ID, 3, 4):
            if monitoring.get_tool(tool) is None:
                break
        else:
            raise RuntimeError(
                f"another profiler ({monitoring.get_tool(monitoring.PROFILER_ID)}) has the interpreter's hooks "
                "(sys.monitoring), and no other place is free; stop it first"
            )
        monitoring.use_tool_id(tool, "coro.profiler")
        self.tool = tool
        events = monitoring.events
        receivers = (
            (events.PY_START,),
            (events.PY_RESUME, events.PY_THROW),
            (events.PY_RETURN, events.PY_YIELD, events.PY_UNWIND),
            (events.CALL,),
            (events.C_RETURN, events.C_RAISE),
        )
        for i, kinds in enumerate(receivers):
            receiver = accounting.callback(i)
            for event in kinds:
                monitoring.register_callback(tool, event, receiver)
                self.events |= event

    def open(self, parked: set[CodeType]) -> None:
        self.monitoring.set_events(self.tool, self.events)
        # Places where an earlier session needed no events are still known as such otherwise.
        self.monitoring.restart_events()
        self._refresh(parked)

    def shut(self, parked: set[CodeType]) -> None:
        self.monitoring.set_events(self.tool, 0)
        self._refresh(parked)

    def _refresh(self, parked: set[CodeType]) -> None:
        """The interpreter puts events into code when it is entered next, and into what runs now, which it finds by the
        frames of the OS threads: those of parked threads are none of them. Changing a local event does it at once."""
        for code in parked:
            self.monitoring.set_local_events(self.tool, code, self.monitoring.events.LINE)
            self.monitoring.set_local_events(self.tool, code, 0)

    def release(self) -> None:
        if self.tool >= 0:
            self.monitoring.free_tool_id(self.tool)
            self.tool = -1


class _ProfileFunction:
    """The hooks of Python 3.11: the scheduler's affair but for the question whether they are free."""

    def take(self) -> None:
        if sys.getprofile() is not None:
            raise RuntimeError("another profiler has the interpreter's hook (sys.setprofile); stop it first")

    def open(self, parked: set[CodeType]) -> None:
        pass

    def shut(self, parked: set[CodeType]) -> None:
        pass

    def release(self) -> None:
        pass


class Profiler:
    """One profiling session, made by ``coro.new_profiler()``. ``start()`` and ``stop()`` may be called once each.

    After the stop: ``charges`` ({function: bench}), ``call_counts`` ({caller: {callee: count}}), ``func_cache`` ({code
    object of a Python function: its name}), ``elapsed`` (ticks) and ``profile()``, which is what can be saved.
    ``bench_class`` is the class it was made with."""

    def __init__(self, bench_class: type[bench]) -> None:
        self.bench_class = bench_class
        self.charges: dict[str, bench] = {}
        self.call_counts: dict[str, dict[str, int]] = {}
        self.func_cache: dict[CodeType, str] = {}
        self.elapsed = 0
        self._profile: Profile | None = None
        self._used = False
        self._hooks: _Monitoring | _ProfileFunction = (
            _Monitoring() if sys.version_info >= (3, 12) else _ProfileFunction()
        )

    def start(self) -> None:
        """Account from here on. SystemError when a profiler is active or this one was started before, RuntimeError
        when another profiler has the interpreter's hooks."""
        global _the_profiler
        if _the_profiler is not None:
            raise SystemError("a profiler is active already; stop it first with coro.get_the_profiler().stop()")
        if self._used:
            raise SystemError("this profiler has run already; make another one with coro.new_profiler()")
        from coro.profiler._core import accounting

        running = scheduler.current() if scheduler.coro_is_running() else None
        self._hooks.take()
        try:
            width = accounting.RUSAGE if self.bench_class.usage else accounting.TICKS
            accounting.begin(width, MOST_NODES, MOST_ENDED, SAMPLE_EVERY)
            parked = set()
            for thread, path in _parked(running):
                parked.update(path)
                accounting.adopt(thread, path, False)
            self._used = True
            _the_profiler = self
            own = running if isinstance(running, scheduler.coro) else None
            accounting.adopt(own, _path(sys._getframe()), True)
            accounting.switch_on(COUNTED, PARKING, TIMED)
            self._hooks.open(parked)
        except BaseException:
            _the_profiler = None
            accounting.abandon()
            self._hooks.release()
            raise

    def stop(self) -> int:
        """Stop accounting; calls that are active are charged up to now. Returns the ticks since the start. RuntimeError
        when it is not active or was started in another OS thread."""
        global _the_profiler
        from coro.profiler._core import accounting

        if _the_profiler is not self:
            raise RuntimeError("this profiler is not active; start() it first")
        if not accounting.is_ours():
            raise RuntimeError("the profiler was started in another OS thread; stop it there")
        running = scheduler.current() if scheduler.coro_is_running() else None
        self._hooks.shut({code for _, path in _parked(running) for code in path})
        self.elapsed = accounting.switch_off()
        self._hooks.release()
        _the_profiler = None
        self._settle(*accounting.take())
        return self.elapsed

    def profile(self) -> Profile:
        """What was accounted, to be saved or exported. RuntimeError before stop()."""
        if self._profile is None:
            raise RuntimeError("there is no profile before the profiler has been stopped; call stop() first")
        return self._profile

    def _settle(
        self,
        functions: list[CodeType | str | None],
        threads: list[tuple[Any, ...]],
        main: tuple[Any, ...],
        others: tuple[Any, ...],
        wait: list[tuple[int, ...]],
        dropped: int,
    ) -> None:
        from coro.profiler._core import accounting

        names, places = self._names(functions)
        kept = [_thread_profile(thread) for thread in sorted(threads)]
        kept.insert(0, ThreadProfile(0, MAIN, False, 0, main[4]))
        if others[2]:
            kept.append(ThreadProfile(-1, f"({others[2]} more threads that ended)", True, others[3], others[4]))
        width = 1 + (accounting.RUSAGE if self.bench_class.usage else accounting.TICKS)
        accounts, pairs = settle([thread.nodes for thread in kept] + [wait], width)
        for number, account in accounts.items():
            self.charges[names[number]] = self.bench_class(
                account.calls,
                self._values(account.own),
                self._values(account.aggregate),
                account.own[0],
                account.aggregate[0],
            )
        for (caller, callee), account in pairs.items():
            self.call_counts.setdefault(names[caller], {})[names[callee]] = account.calls
        self._profile = Profile(
            bench=self.bench_class.__name__,
            headings=tuple(self.bench_class.get_headings()),
            time=time.time(),
            functions={name: filled.get_data() for name, filled in self.charges.items()},
            calls={
                caller: sorted(callees.items(), key=lambda pair: (pair[1], pair[0]))
                for caller, callees in self.call_counts.items()
            },
            ticks_per_second=_ticks.ticks_per_sec,
            elapsed=self.elapsed,
            values=("ticks", *USAGE) if self.bench_class.usage else ("ticks",),
            names=names,
            places=places,
            threads=kept,
            waited={name: (filled.waited, filled.aggregate_waited) for name, filled in self.charges.items()},
            dropped=dropped,
        )

    def _names(self, functions: list[CodeType | str | None]) -> tuple[list[str], list[FunctionPlace]]:
        """Names of all functions, each a different one, and where they stand."""
        names: list[str] = []
        places: list[FunctionPlace] = []
        taken: dict[str, int] = {}
        for i, function in enumerate(functions):
            if isinstance(function, CodeType):
                name = python_name(function)
                places.append((function.co_filename, function.co_firstlineno, function.co_qualname))
            else:
                name = function or ((MAIN, WAIT)[i] if i < 2 else "<unknown>")
                places.append(("~", 0, name))
            taken[name] = again = taken.get(name, 0) + 1
            if again > 1:
                name = f"{name}#{again}"
            if isinstance(function, CodeType):
                self.func_cache[function] = name
            names.append(name)
        return names, places

    @staticmethod
    def _values(numbers: list[int]) -> tuple[int | float, ...]:
        """As users see them: without the ticks waited, seconds for microseconds."""
        return (*numbers[1:2], *(n / 1e6 for n in numbers[2:4]), *numbers[4:])


def _thread_profile(thread: tuple[Any, ...]) -> ThreadProfile:
    number, name, ended, slices, nodes = thread
    if name is None:
        alive = scheduler.get_thread_by_id(number)
        name = alive.name if alive is not None else f"coro {number}"
    return ThreadProfile(number, name, bool(ended), slices, nodes)


def new_profiler(bench_class: type[bench] = rusage_bench) -> Profiler:
    """Make a profiler that measures what ``bench_class`` says: ``coro.bench``, ``coro.rusage_bench`` or a subclass of
    one of them. It does nothing before its ``start()``. SystemError when one is active, TypeError for another class."""
    if not isinstance(bench_class, type) or not issubclass(bench_class, bench):
        raise TypeError(f"expected coro.bench, coro.rusage_bench or a subclass of one of them, not {bench_class!r}")
    if _the_profiler is not None:
        raise SystemError("a profiler is active already; stop it first with coro.get_the_profiler().stop()")
    return Profiler(bench_class)


def get_the_profiler() -> Profiler | None:
    """The active profiler, or None."""
    return _the_profiler
