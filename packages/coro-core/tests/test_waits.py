"""Every public call that waits: its ``timeout=``, and what may interrupt it. One table, so that what holds for all is
tested for all; a call that is missing in it fails the last test. And every number of seconds that anybody takes.

What is special to one primitive (its order, what counts in the last moment) is in sync/test_time_limits.py.
"""

import contextlib
import functools
import inspect
import re
import signal
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from support import in_jumping_run, in_loop

import coro
from coro import locksmith, optional, prefork, process, testing
from coro._entry import loop

FOREVER = 1e9


def sleeper():
    return coro.spawn(coro.sleep, FOREVER, thread_name="sleeper")


def held(lock, call):
    """The lock, which another thread takes by that call and keeps."""

    def body():
        getattr(lock, call)()
        coro.sleep(FOREVER)

    coro.spawn(body)
    coro.yield_slice()
    return lock


def full(what, put="put"):
    getattr(what, put)("first")
    return what


def calls(what, *names, args=()):
    return [(what, functools.partial(getattr(what, name), *args)) for name in names]


class Processes:
    """Children that run until the end of the test."""

    def __init__(self):
        self.running = []

    def start(self):
        self.running.append(process.spawn_job_bg(["sleep", "1000"]))
        return self.running[-1]

    def end(self):
        for one in self.running:
            one.killpg(signal.SIGKILL)
            one.wait()


processes = Processes()
connections = []


class Started:
    """As much of a multiprocessing.Process as process.join() wants."""

    def __init__(self):
        self.pid = processes.start().pid
        self.sentinel = -1
        self.exitcode = None

    def join(self):
        raise AssertionError("it runs")


def full_group(then):
    with coro.group(1) as g:
        g.spawn(coro.sleep, FOREVER)
        try:
            then(g)
        except Exception as e:
            failure = e  # which would leave in a group of exceptions
        finally:
            g.shutdown()
    raise failure


def full_pool():
    p = coro.pool(1)
    p.spawn(coro.sleep, FOREVER)
    return p


def empty_limiter():
    limiter = coro.rate_limiter(1, per=FOREVER)
    limiter.acquire()
    return limiter


def running_server():
    return coro.Server(lambda conn, address: None, ("127.0.0.1", 0)).start()


def taken_smith():
    smith = locksmith.MutexLockSmith()
    held(smith, "lock_global")
    return smith


def named_smith():
    smith = locksmith.MutexLockSmith()
    coro.spawn(lambda: (smith.lock("key"), coro.sleep(FOREVER)))
    coro.yield_slice()
    return smith


def hold(smith, **limit):
    with smith.holding("key", **limit):
        raise AssertionError("it is another's")


def with_an_unfinished_job(q):
    q.put(1)
    q.get()
    return q


#: name -> what makes (the object, the call that waits for ever, to be given a timeout).
WAITS = {
    "thread.join": lambda: (None, sleeper().join),
    "thread.get": lambda: (None, sleeper().get),
    "as_completed": lambda: (None, lambda **limit: list(coro.as_completed([sleeper()], **limit))),
    "mutex.lock": lambda: calls(held(coro.mutex(), "lock"), "lock")[0],
    "mutex.acquire": lambda: calls(held(coro.mutex(), "lock"), "acquire")[0],
    "rw_lock.read_lock": lambda: calls(held(coro.rw_lock(), "write_lock"), "read_lock")[0],
    "rw_lock.write_lock": lambda: calls(held(coro.rw_lock(), "read_lock"), "write_lock")[0],
    "semaphore.acquire": lambda: calls(coro.semaphore(0), "acquire")[0],
    "inverted_semaphore.block_till_zero": lambda: calls(coro.inverted_semaphore(1), "block_till_zero")[0],
    "condition_variable.wait": lambda: calls(coro.condition_variable(), "wait")[0],
    "event.wait": lambda: calls(coro.event(), "wait")[0],
    "latch.wait": lambda: calls(coro.latch(), "wait")[0],
    "barrier.wait": lambda: calls(coro.barrier(2), "wait")[0],
    "fifo.pop": lambda: calls(coro.fifo(), "pop")[0],
    "fifo.pop_all": lambda: calls(coro.fifo(), "pop_all")[0],
    "fifo.push": lambda: calls(full(coro.fifo(1), "push"), "push", args=("x",))[0],
    "fifo.push_front": lambda: calls(full(coro.fifo(1), "push"), "push_front", args=("x",))[0],
    "channel.get": lambda: calls(coro.channel(), "get")[0],
    "channel.receive": lambda: calls(coro.channel(), "receive")[0],
    "channel.put": lambda: calls(full(coro.channel()), "put", args=("x",))[0],
    "channel.send": lambda: calls(full(coro.channel()), "send", args=("x",))[0],
    "queue.get": lambda: calls(coro.queue(), "get")[0],
    "queue.put": lambda: calls(full(coro.queue(1)), "put", args=("x",))[0],
    "queue.join": lambda: calls(with_an_unfinished_job(coro.queue()), "join")[0],
    "lifo_queue.get": lambda: calls(coro.lifo_queue(), "get")[0],
    "lifo_queue.put": lambda: calls(full(coro.lifo_queue(1)), "put", args=("x",))[0],
    "lifo_queue.join": lambda: calls(with_an_unfinished_job(coro.lifo_queue()), "join")[0],
    "priority_queue.get": lambda: calls(coro.priority_queue(), "get")[0],
    "priority_queue.put": lambda: calls(full(coro.priority_queue(1)), "put", args=("x",))[0],
    "priority_queue.join": lambda: calls(with_an_unfinished_job(coro.priority_queue()), "join")[0],
    "pool.wait_for_room": lambda: calls(full_pool(), "wait_for_room")[0],
    "pool.join": lambda: calls(full_pool(), "join")[0],
    "rate_limiter.acquire": lambda: calls(empty_limiter(), "acquire")[0],
    "group.wait_for_room": lambda: (None, lambda **limit: full_group(lambda g: g.wait_for_room(**limit))),
    "Server.wait": lambda: calls(running_server(), "wait")[0],
    "MutexLockSmith.lock": lambda: calls(named_smith(), "lock", args=("key",))[0],
    "MutexLockSmith.lock, held back": lambda: calls(taken_smith(), "lock", args=("key",))[0],
    "MutexLockSmith.holding": lambda: (smith := named_smith(), functools.partial(hold, smith)),
    "MutexLockSmith.lock_global": lambda: calls(named_smith(), "lock_global")[0],
    "MutexLockSmith.lock_global, twice": lambda: calls(taken_smith(), "lock_global")[0],
    "waitpid": lambda: (None, functools.partial(coro.waitpid, processes.start().pid)),
    "wait_for": lambda: (None, functools.partial(coro.wait_for, 77, coro.EVFILT.TIMER, 0, 10**9)),
    "process.join": lambda: (None, functools.partial(process.join, Started())),
    "CoroProcess.wait": lambda: (None, processes.start().wait),
    "in_parallel": lambda: (None, functools.partial(coro.in_parallel, [(coro.sleep, (FOREVER,))], shutdown=True)),
    "parallel_map": lambda: (None, functools.partial(coro.parallel_map, coro.sleep, [FOREVER])),
}  # fmt: skip

#: Calls with a timeout that is over with something else than coro.TimeoutError.
OTHERS = {
    "wait": lambda: (None, functools.partial(coro.wait, [sleeper()])),
    "select": lambda: (None, functools.partial(coro.select, coro.case.get(coro.fifo()))),
    "Server.drain": lambda: (None, busy_server().drain),
    "process.run": lambda: (None, functools.partial(process.run, ["sleep", "1000"])),
}


def busy_server():
    server = coro.Server(lambda conn, address: coro.sleep(FOREVER), ("127.0.0.1", 0)).start()
    connections.append(coro.connect(server.addresses[0]))
    coro.yield_slice()
    return server


def in_table(*tables):
    return pytest.mark.parametrize("name", [name for table in tables for name in table])


def prepared(function):
    """Run the test in a loop of its own with a clock that jumps; children and servers end with it."""

    @in_jumping_run
    def test(name):
        try:
            function(*(WAITS | OTHERS)[name]())
        finally:
            processes.end()
            processes.running.clear()
            while connections:
                connections.pop().close()
            for server in list(coro.servers._live):
                server.close()

    def plain(name):
        test(name=name)

    plain.__name__ = function.__name__
    return plain


def figures(what):
    """The statistics, but for what counts waits."""
    if what is None:
        return None
    found = what.statistics()._asdict()
    return {key: value for key, value in found.items() if key not in ("contended", "tokens")}


@in_table(WAITS)
@prepared
def test_the_time_is_over(what, call):
    before, began = figures(what), coro.get_now()
    with pytest.raises(coro.TimeoutError, match="timeout of 2 s"):
        call(timeout=2)
    assert 2 <= (coro.get_now() - began) / coro.ticks_per_sec < 3
    assert figures(what) == before


@in_table(WAITS)
@prepared
def test_nothing_is_waited_for(what, call):
    before = figures(what)
    for number in (0, -1.5, -(10**400), Decimal("-1e400"), -float("inf")):
        with pytest.raises(coro.TimeoutError):
            call(timeout=number)
    assert figures(what) == before


@in_table(WAITS, OTHERS)
@prepared
def test_what_is_no_number_of_seconds(what, call):
    before = figures(what)
    for wrong in ("1", b"1", [], True, 1j, coro):
        with pytest.raises(TypeError, match="number of seconds"):
            call(timeout=wrong)
    with pytest.raises(ValueError, match="number of seconds"):
        call(timeout=float("nan"))
    with pytest.raises(ValueError, match="number of seconds"):
        call(timeout=Decimal("nan"))
    assert figures(what) == before


@in_table(WAITS, OTHERS)
@prepared
def test_numbers_that_are_too_large_are_for_ever(what, call):
    for large in (10**400, float("inf"), Decimal("1e400"), Fraction(10**400)):
        t = coro.spawn(call, timeout=large)
        coro.sleep(1e4)
        assert not t.dead, t.exception
        t.shutdown()
        coro.wait([t], 100)
        assert isinstance(t.exception, coro.Shutdown)


@in_table(WAITS, OTHERS)
@prepared
def test_the_timeout_error_of_somebody_else_passes(what, call):
    before = figures(what)
    for limit in (None, 1e7):
        t = coro.spawn(call, timeout=limit)
        coro.sleep(1)
        foreign = coro.TimeoutError("somebody else's")
        t.raise_exception(foreign)
        coro.wait([t], 100)
        assert t.exception is foreign and str(foreign) == "somebody else's"
    assert figures(what) == before


@in_table(WAITS, OTHERS)
@prepared
def test_the_limit_of_a_block_outside_passes(what, call):
    before = figures(what)
    for limit in (None, 50):
        with coro.move_on_after(1) as scope:
            call(timeout=limit)
        assert scope.expired
    assert figures(what) == before


@in_table(WAITS, OTHERS)
@prepared
def test_shutdown_leaves_no_damage(what, call):
    before = figures(what)
    for limit in (None, 50):
        t = coro.spawn(call, timeout=limit)
        coro.sleep(1)
        t.shutdown()
        coro.wait([t], 100)
        assert isinstance(t.exception, coro.Shutdown)
    assert figures(what) == before


# ----------------------------------------------------------------------------------------- all that take seconds


def retry(**options):
    return coro.retry(on=OSError, **options)


def server(**options):
    coro.Server(int, ("127.0.0.1", 0), **options).close()


def supervisor(**options):
    prefork.Prefork(1, int, **options)


def advance(value):
    with testing.virtual_clock() as clock:
        clock.advance(value)


def run_for(value):
    with testing.virtual_clock() as clock:
        clock.run_for(value)


#: Limits and pauses: what is negative counts as 0. name -> call with the number.
LIMITS = {
    "timeout": coro.timeout,
    "move_on_after": coro.move_on_after,
    "shield": coro.shield,
    "with_timeout": lambda value: coro.with_timeout(value, int),
    "optional.with_timeout": lambda value: optional.with_timeout(value, int),
    "sleep_relative": lambda value: coro.with_timeout(0.001, coro.sleep_relative, value),
    "optional.sleep_relative": lambda value: coro.with_timeout(0.001, optional.sleep_relative, value),
    "connect": lambda value: coro.connect("127.0.0.1", 1, timeout=value),
    "process.capture": lambda value: process.capture(["true"], timeout=value),
    "process.capture_with_stderr": lambda value: process.capture_with_stderr(["true"], timeout=value),
}

#: Settings: what is negative is refused. name -> call with the number, error of infinity.
SETTINGS = {
    "sleep": (lambda value: coro.with_timeout(0.001, coro.sleep, value), coro.TimeoutError),
    "connect attempt_delay": (
        lambda value: coro.connect("127.0.0.1", 1, attempt_delay=value), coro.oserrors.ECONNREFUSED,
    ),
    "serve drain_timeout": (
        lambda value: coro.with_timeout(0.001, coro.serve, int, ("127.0.0.1", 0), drain_timeout=value),
        coro.TimeoutError,
    ),
    "Server wrap_timeout": (lambda value: server(wrap_timeout=value), None),
    "retry budget": (lambda value: retry(budget=value), None),
    "retry wait_initial": (lambda value: retry(wait_initial=value), None),
    "retry wait_max": (lambda value: retry(wait_max=value), None),
    "retry wait_jitter": (lambda value: retry(wait_jitter=value), None),
    "rate_limiter per": (lambda value: coro.rate_limiter(1, value), ValueError),
    "set_watchdog": (coro.set_watchdog, ValueError),
    "virtual_clock start": (lambda value: testing.virtual_clock(start=value), ValueError),
    "virtual_clock.advance": (advance, ValueError),
    "virtual_clock.run_for": (run_for, ValueError),
    "wait_all_blocked": (lambda value: coro.with_timeout(0.001, testing.wait_all_blocked, value), coro.TimeoutError),
    "coro_test": (lambda value: testing.coro_test(timeout=value), None),
    "faults.delay": (lambda value: testing.faults.delay(value), None),
    "faults.stall": (lambda value: testing.faults.stall(0, value), None),
    "event_loop": (loop._check_timeout, None),
    "prefork drain_timeout": (lambda value: supervisor(drain_timeout=value), None),
    "prefork start_timeout": (lambda value: supervisor(start_timeout=value), None),
    "prefork restart_window": (lambda value: supervisor(restart_window=value), None),
}  # fmt: skip

WRONG = [
    *[(wrong, TypeError) for wrong in ("1", b"1", [], True, 1j, coro)],
    *[(wrong, ValueError) for wrong in (float("nan"), Decimal("nan"))],
]


@pytest.mark.parametrize("name", [*LIMITS, *SETTINGS])
@in_loop
def test_seconds_that_are_none(name):
    call = LIMITS[name] if name in LIMITS else SETTINGS[name][0]
    for wrong, error in WRONG:
        with pytest.raises(error, match="number of seconds"):
            call(wrong)


@pytest.mark.parametrize("name", LIMITS)
@in_loop
def test_negative_seconds_of_a_limit_count_as_0(name):
    for number in (-1, -0.5, -float("inf"), -(10**400), Fraction(-1, 3), Decimal("-1e400")):
        with contextlib.suppress(coro.TimeoutError, coro.process.ProcessTimeout, OSError):
            LIMITS[name](number)


@pytest.mark.parametrize("name", LIMITS)
@in_loop
def test_any_number_of_seconds_is_a_limit(name):
    for number in (60, 60.5, float("inf"), 10**400, Fraction(10**400), Decimal("1e400"), Fraction(121, 2)):
        with contextlib.suppress(coro.TimeoutError, OSError):  # of a sleep that was cut short, of a closed port
            LIMITS[name](number)


@pytest.mark.parametrize("name", SETTINGS)
@in_loop
def test_negative_seconds_of_a_setting_are_refused(name):
    for number in (-1, -0.5, -float("inf"), -(10**400), Fraction(-1, 3), Decimal("-1e400")):
        with pytest.raises(ValueError):
            SETTINGS[name][0](number)


@pytest.mark.parametrize("name", SETTINGS)
@in_loop
def test_infinite_seconds_of_a_setting(name):
    call, error = SETTINGS[name]
    for number in (float("inf"), 10**400, Fraction(10**400), Decimal("1e400")):
        with contextlib.nullcontext() if error is None else pytest.raises(error):
            call(number)


def test_without_a_loop():
    for limit in (coro.timeout(1), coro.move_on_after(1), coro.shield(1)):
        with pytest.raises(coro.YieldFromMain, match=r"no loop runs: .*coro\.run\(main\) .*with_timeout"):
            limit.__enter__()
    for wrong, error in WRONG:
        with pytest.raises(error, match="number of seconds"):
            coro.with_timeout(wrong, int)
        with pytest.raises(error, match="number of seconds"):
            coro.sleep(wrong)
    assert coro.with_timeout(10**400, int) == coro.with_timeout(Fraction(10**400), int) == 0
    coro.sleep_relative(-(10**400))
    with pytest.raises(coro.TimeoutError):
        coro.with_timeout(Fraction(1, 1000), coro.sleep, float("inf"))


@in_loop
def test_the_timeout_is_looked_at_where_nothing_is_waited_for():
    calls = [
        functools.partial(coro.queue().put, 1),
        functools.partial(full(coro.queue()).get),
        functools.partial(coro.queue().put, 1, block=False),
        coro.queue().join,
        coro.pool(1).join,
        coro.pool(1).wait_for_room,
        coro.rate_limiter(1).acquire,
        functools.partial(coro.fifo().push, 1),
        functools.partial(coro.in_parallel, []),
        functools.partial(coro.wait, []),
        functools.partial(locksmith.MutexLockSmith().lock, "key"),
        locksmith.MutexLockSmith().lock_global,
    ]
    for call in calls:
        for wrong, error in WRONG:
            with pytest.raises(error, match="number of seconds"):
                call(timeout=wrong)
        call(timeout=0)


# -------------------------------------------------------------------------------------------------- completeness


def takers_of_timeout():
    """Every public call with a parameter of this name: (name, function)."""
    spaces = [(name, getattr(coro, name)) for name in coro.__all__]
    spaces += [(f"process.{name}", getattr(process, name)) for name in process.__all__]
    spaces.append(("MutexLockSmith", locksmith.MutexLockSmith))
    for name, thing in spaces:
        name = {"coro": "thread", "process.CoroProcess": "CoroProcess"}.get(name, name)
        if inspect.isclass(thing):
            for attribute in dir(thing):
                if not attribute.startswith("_") and has_timeout(getattr(thing, attribute)):
                    yield f"{name}.{attribute}"
        elif has_timeout(thing):
            yield name


def has_timeout(function):
    try:
        return "timeout" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


#: Takers of a timeout that are tested elsewhere, and why.
ELSEWHERE = {
    "event_loop": "of a single poll",
    "with_timeout": "whose limit is of its own",
    "connect": "test_connect.py; raises OSError",
    "process.capture": "0 is no limit; as process.run",
    "process.capture_with_stderr": "the same",
    "process.waitpid": "is waitpid",
}


def test_no_call_is_missing_here():
    known = {name.split(",")[0] for name in (*WAITS, *OTHERS)}
    assert sorted(set(takers_of_timeout()) - known - set(ELSEWHERE)) == []


def test_the_manual_lists_them():
    manual = Path(__file__).parents[3] / "docs/basics/waiting.rst"
    if not manual.exists():
        pytest.skip("the tests of an installed package have no manual beside them")
    listed = re.search(r"\.\. list of the calls.*?$(.*)^\.\. end of the list", manual.read_text(), re.M | re.S)
    names = re.findall(r"``([\w.]+)``", listed[1])
    assert sorted(names) == sorted({name.split(",")[0] for name in (*WAITS, *OTHERS)})
