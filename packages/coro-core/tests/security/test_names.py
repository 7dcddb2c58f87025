"""The names of threads may come from outside: a user's name, the path of a request. Every text and page that shows one
is made here with a name that would change the title of a terminal, clear it, forge a line, and be markup."""

import io
import json
import os
import signal
import warnings

import pytest
from support import program

import coro
from coro import backdoor, debug, microthreads, profiler
from coro._introspection import reports
from coro._runtime import output, scheduler
from coro.profiler import _report
from coro.testing import _leaks, _runner

NAME = "u\x1b]0;owned\x07\x1b[2J\r\nforged: line\u2028\u202e\x9b31m<b onload=x>&\"'"


def spawned(function=coro.sleep, *args):
    return coro.spawn(function, *(args or (1000,)), thread_name=NAME, daemon=True)


def told(function, *args):
    """What the library has written to stderr meanwhile."""
    saved, output.saved_stderr = output.saved_stderr, io.StringIO()
    try:
        function(*args)
        return output.saved_stderr.getvalue()
    finally:
        output.saved_stderr = saved


def raised(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except (Exception, coro.Interrupted) as exc:
        return str(exc)
    raise AssertionError("nothing was raised")


def in_named(function):
    """What a function returns that runs in a thread of that name."""
    return coro.spawn(function, thread_name=NAME).get()


def text_repr():
    return repr(spawned())


def text_state_of_one_that_joins():
    joins = coro.spawn(spawned().join, daemon=True)
    coro.yield_slice()
    return f"{joins!r} {reports.describe_wait(joins)}"


def text_back_door():
    spawned()
    coro.spawn(spawned().join, daemon=True, thread_name=NAME)
    coro.yield_slice()
    path = f"/tmp/coro-names-{os.getpid()}"
    server = backdoor.start(unix_path=path)
    try:
        with coro.unix_sock() as s:
            s.connect(path)
            s.sendall(b"threads()\ncoro.all_threads\ncoro.where_all()\nprint(memory())\nexit()\n")
            got = b""
            while data := s.recv(65536):
                got += data
    finally:
        server.close()
    return got.decode().replace("\r\n", "\n")


def text_memory():
    spawned()
    return str(coro.memory())


def text_deadlock():
    holder = coro.mutex()

    def first():
        holder.lock()
        spawned().join()

    coro.spawn(first, thread_name=NAME, daemon=False)
    waits = coro.spawn(holder.lock, thread_name=NAME)
    coro.yield_slice()
    text = str(reports.deadlock(False))
    waits.shutdown()
    return text


def text_wait_graph():
    lock = coro.mutex()
    in_named(lock.lock)
    coro.spawn(lock.lock, thread_name=NAME, daemon=True)
    coro.yield_slice()
    return coro.wait_graph().to_dot()


def text_exception_notifier():
    return told(coro.spawn(int, "x", thread_name=NAME).join)


def text_failing_notifier():
    def fails():
        raise ValueError

    fails.__qualname__ = NAME
    before = coro.set_exception_notifier(fails)
    try:
        return told(coro.spawn(int, "x", thread_name=NAME).join)
    finally:
        coro.set_exception_notifier(before)


def text_latency():
    return told(reports.latency, spawned(), 1.0)


def text_limit():
    def waits():
        with coro.timeout(0):
            coro.sleep(10)

    return in_named(lambda: raised(waits)) + in_named(lambda: raised(coro.event().wait, timeout=0))


def text_given_up():
    thread = spawned()
    coro.yield_slice()
    before = scheduler._take_refused
    scheduler._take_refused = lambda: [(thread, thread.get_frame())]
    try:
        return told(reports.report_refused)
    finally:
        scheduler._take_refused = before


def text_debugger():
    spawned()
    spawned()
    return raised(debug.find_thread, "none of these") + raised(debug.find_thread, NAME)


def text_signal():
    def look():
        restore = coro.signal_handler.print_running_thread(signal.SIGUSR2)
        try:
            signal.raise_signal(signal.SIGUSR2)
        finally:
            restore()

    return told(in_named, look)


def text_group():
    def inside():
        with coro.group() as group:
            return repr(group) + repr(group.spawn(int, thread_name=NAME))

    return in_named(inside)


def text_locks():
    lock, rw = coro.mutex(), coro.rw_lock()
    in_named(lock.lock)
    in_named(rw.write_lock)
    return repr(lock) + repr(rw) + raised(lock.unlock) + raised(rw.write_unlock)


def text_dead_owner():
    lock = coro.mutex()
    in_named(lock.lock)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        lock.trylock()
        with coro.move_on_after(0):
            lock.lock()
    return "".join(str(w.message) for w in found)


def text_lock_cycle():
    a, b = coro.mutex(), coro.mutex()

    def crosses(first, second):
        first.lock()
        coro.yield_slice()
        second.lock()

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for pair in ((a, b), (b, a)):
            coro.spawn(crosses, *pair, thread_name=NAME, daemon=True)
        for _ in range(4):
            coro.yield_slice()
    assert found
    return "".join(str(w.message) for w in found)


def text_closed_by():
    ours, theirs = coro.socketpair()
    reads = coro.spawn(lambda: raised(ours.recv, 1))
    coro.yield_slice()
    in_named(ours.close)
    theirs.close()
    return reads.get()


def text_simultaneous():
    ours, theirs = coro.socketpair()
    coro.spawn(ours.recv, 1, thread_name=NAME, daemon=True)
    coro.yield_slice()
    try:
        return raised(ours.recv, 1)
    finally:
        theirs.close()


def text_cancelled():
    thread = spawned()
    thread.shutdown()
    return raised(thread.get)


def text_leaks():
    before = _leaks.census()
    spawned()
    coro.yield_slice()
    return "\n".join(_leaks.differences(before, _leaks.census()))


def text_crash_in_a_test():
    checks = _runner.Watch.__new__(_runner.Watch)
    checks.crashes = []
    before = coro.set_exception_notifier(checks._note_crash)
    try:
        coro.spawn(int, "x", thread_name=NAME).join()
    finally:
        coro.set_exception_notifier(before)
    return checks.describe_crashes()


def text_microthread():
    def fails():
        raise ValueError("x")

    fails.__qualname__ = NAME
    started = microthreads.start_in_parallel(fails)
    while not started.done:
        coro.yield_slice()
    return repr(started) + told(started._outcome.__del__)


def text_select():
    case = coro.case.join(spawned())
    return repr(case)


TEXTS = {name.removeprefix("text_"): value for name, value in list(globals().items()) if name.startswith("text_")}


@pytest.fixture
def profile():
    p = coro.new_profiler(coro.bench)
    p.start()
    try:
        coro.run(lambda: in_named(lambda: sum(range(10))))
    finally:
        p.stop()
    found = p.profile()
    assert NAME in [thread.name for thread in found.threads]
    # What else comes from a file that somebody has sent.
    found.names[0] = found.bench = NAME
    found.functions[NAME] = next(iter(found.functions.values()))
    found.calls[NAME] = [(NAME, 1)]
    return found


def check(text):
    assert text
    for line in text.split("\n"):
        assert line.replace("\t", "").isprintable(), ascii(line)
        assert not line.lstrip().startswith("forged"), ascii(text)


@pytest.mark.parametrize("what", TEXTS)
def test_texts(what):
    check(coro.run(TEXTS[what]))


def test_the_page_of_a_profile(profile):
    page = "".join(_report.report(profile))
    check(page)
    assert "<b onload" not in page and "&lt;b onload=x&gt;" in page


def test_a_profile_for_speedscope(profile, tmp_path):
    profiler.to_speedscope(profile, tmp_path / "profile.json")
    text = (tmp_path / "profile.json").read_text()
    check(text)
    assert any(NAME in view["name"] for view in json.loads(text)["profiles"])


@pytest.mark.slow
def test_the_watchdog():
    outcome = program(
        f"""
import coro, time

def spin():
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        pass

def main():
    coro.set_watchdog(0.1)
    coro.spawn(spin, thread_name={NAME!r}).join()

coro.run(main)
"""
    )
    assert outcome.code == 0 and "has run for" in outcome.err
    check(outcome.err)
