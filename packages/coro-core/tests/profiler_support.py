"""What the tests of the profiler share: a profiled loop, and looking for functions in its accounts."""

from support import advance

import coro


def profiled(function, *args, bench=coro.bench):
    """Run a function as a thread of a loop under the profiler; the stopped profiler."""
    p = coro.new_profiler(bench)
    p.start()
    try:
        coro.run(function, *args)
    finally:
        p.stop()
    return p


def names(p, name):
    """Functions by their full name, or Python functions by the name they were defined by in the test."""
    local = [f for f in p.charges if f.count(":") == 2 and f.split(":")[1].split("<locals>.")[-1] == name]
    return [name] if name in p.charges else local


def charge(p, name):
    """The bench of the only function of that name."""
    (found,) = names(p, name)
    return p.charges[found]


def callers(p, name):
    (callee,) = names(p, name)
    return [caller for caller, callees in p.call_counts.items() if callee in callees]


def seconds(ticks):
    return round(ticks / coro.ticks_per_sec, 6)


def pass_time(amount):
    advance(amount)
