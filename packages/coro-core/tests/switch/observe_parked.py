"""Threads parked in every kind of frame while an observer is switched: a program for test_observers.py.

    python observe_parked.py OBSERVER SLOTS

Threads are parked and woken stop by stop, either to go on or to raise an exception that unwinds all of their frames.
What comes of that without an observer has to come of it when one is switched on or off meanwhile, too."""

import contextlib
import ctypes
import functools
import os
import sys
import threading

from parked_kinds import kinds, on_a_thread

import coro
from coro import profiler
from coro._runtime import scheduler


def park_all():
    threads = [coro.spawn(on_a_thread, function) for function in kinds]
    coro.yield_slice()
    for thread, function in zip(threads, kinds, strict=True):
        assert not thread.dead and thread.exception is None, (function.__name__, thread.exception)
    return threads


def finish(threads, how, between=lambda number: None):
    """Wake parked threads until all have ended; what they tell."""
    for number in range(100):
        if all(thread.dead for thread in threads):
            break
        for thread in threads:
            if not thread.dead:
                thread.schedule(how)
        coro.yield_slice()
        between(number)
    for thread, function in zip(threads, kinds, strict=True):
        assert thread.dead and thread.exception is None, (function.__name__, thread.exception)
    return [thread.result for thread in threads]


def scenarios(on, off, how):
    """Where the observer is switched while threads are parked, and what came of each."""
    threads = park_all()
    on(threads)
    yield "on while parked", finish(threads, how)
    threads = park_all()
    off()
    yield "off while parked", finish(threads, how)
    threads = park_all()
    on(threads)
    off()
    yield "on and off while parked", finish(threads, how)
    on([])
    threads = park_all()
    off()
    on(threads)
    yield "off and on while parked", finish(threads, how)
    off()
    threads = park_all()
    yield "switched at every stop", finish(threads, how, lambda number: off() if number % 2 else on(threads))
    off()


def compare(on, off):
    for how in ("go", "raise"):
        expected = finish(park_all(), how)
        for name, found in scenarios(on, off, how):
            for function, right, result in zip(kinds, expected, found, strict=True):
                assert right == result, (name, how, function.__name__, right, result)


# -- observers: each a pair of functions that switch it on (told which threads are parked) and off

seen = [0]


def counts(*_):
    seen[0] += 1


def tracer(*_):
    seen[0] += 1
    return tracer


def called():
    """Something to be observed in this thread."""


def by_settrace():
    def on(_):
        sys.settrace(tracer)
        called()

    return on, lambda: sys.settrace(None)


def by_setprofile():
    def on(_):
        sys.setprofile(counts)
        called()

    return on, lambda: sys.setprofile(None)


def by_all_threads():
    def on(_):
        threading.settrace_all_threads(tracer)
        threading.setprofile_all_threads(counts)
        called()

    def off():
        threading.settrace_all_threads(None)
        threading.setprofile_all_threads(None)

    return on, off


def by_cprofile():
    import cProfile

    present = []

    def on(_):
        present.append(cProfile.Profile())
        present[-1].enable()
        called()

    def off():
        while present:
            ended = present.pop()
            ended.disable()
            seen[0] += len(ended.getstats())

    return on, off


def by_tracer_in_c():
    """As coverage's: a C function, set through the C interface."""
    set_trace = ctypes.pythonapi.PyEval_SetTrace
    set_trace.argtypes = [ctypes.c_void_p, ctypes.py_object]
    prototype = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)

    @prototype
    def function(*_):
        seen[0] += 1
        return 0

    def on(_):
        set_trace(ctypes.cast(function, ctypes.c_void_p), None)
        called()

    return on, lambda: set_trace(None, None)


def by_tracing_parked_threads():
    """As coro.debug does it: a parked thread is given a trace function."""

    def on(threads):
        for thread in threads:
            if not thread.dead:
                with contextlib.suppress(RuntimeError):  # it is traced already
                    scheduler._trace_thread(thread, sys.settrace, tracer)

    return on, lambda: None


def by_profiler():
    def on(_):
        profiler.start()

    def off():
        if profiler.get_the_profiler() is not None:
            seen[0] += len(profiler.stop("profile").threads)

    return on, off


def monitoring(*names, answer=None):
    tool, events = 3, sys.monitoring.events

    def event(*_):
        seen[0] += 1
        return answer

    sys.monitoring.use_tool_id(tool, "test")
    for name in names:
        sys.monitoring.register_callback(tool, getattr(events, name), event)
    wanted = functools.reduce(int.__or__, (getattr(events, name) for name in names))

    def on(_):
        sys.monitoring.set_events(tool, wanted)
        sys.monitoring.restart_events()
        called()
        with contextlib.suppress(KeyError):
            raise KeyError

    return on, lambda: sys.monitoring.set_events(tool, 0)


RAISING = ("RAISE", "RERAISE", "PY_UNWIND", "PY_THROW", "EXCEPTION_HANDLED")
RUNNING = ("PY_START", "PY_RESUME", "PY_RETURN", "PY_YIELD", "CALL", "LINE", "INSTRUCTION", "JUMP", "STOP_ITERATION")


def by_monitoring():
    branches = ("BRANCH_LEFT", "BRANCH_RIGHT") if sys.version_info >= (3, 14) else ("BRANCH",)
    return monitoring(*RUNNING, *RAISING, *branches)


def by_monitoring_exceptions():
    return monitoring(*RAISING)


def by_monitoring_once():
    """Every event disables itself at its place."""
    return monitoring("PY_START", "PY_RETURN", "CALL", "LINE", answer=sys.monitoring.DISABLE)


def by_remote_script():
    """sys.remote_exec(): the interpreter runs a file where Python code runs next, in whichever thread."""
    done = []
    sys.observer, sys.observer_done = tracer, done.append

    def run(source):
        before = len(done)
        path = os.path.abspath(f"script{before}.py")
        with open(path, "w") as file:
            file.write(f"import coro, sys\n{source}\nsys.observer_done(1)\n")
        sys.remote_exec(os.getpid(), path)
        for _ in range(1000):
            if len(done) > before:
                return
            called()
        raise AssertionError("the script was not run")

    def on(_):
        run("sys.settrace(sys.observer)\ncoro.spawn(int).join()")
        called()

    return on, lambda: run("sys.settrace(None)\ncoro.yield_slice()")


def main(observer, slots):
    coro.set_stack_slots(slots)
    coro.set_latency_warning(0)
    coro.set_exception_notifier(lambda: None)
    sys.unraisablehook = lambda unraisable: None
    coro.run(compare, *globals()[observer]())
    assert seen[0] > 0, "nothing was observed"
    print(len(kinds), "kinds of frames")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
