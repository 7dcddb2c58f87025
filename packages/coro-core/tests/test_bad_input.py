"""Misuse of every public name: whatever is passed, and from wherever, the answer is a typed error that says something.

One program calls every public function and every method of threads and sockets with arguments that cannot be right,
in each of the situations in which a program may find itself: in a thread, in main without a loop, in another OS
thread, inside no_switch(), in a callback of the cyclic collector. It reports each answer that is not an error of an
expected class with a text, and it runs in a process of its own, so that a crash or a hang would show.
"""

import re

import pytest
from support import in_loop, ok

import coro
from coro import asyncio_bridge, debug, files, limits, process, profiler
from coro._poll.descriptors import kevent_key
from coro.log import asn1
from coro.read_stream import buffered_stream

#: Public names that are not called: what they would do to the program, or why there is nothing to misuse.
NOT_CALLED = {
    "set_exit": "ends the loop, whatever the code; its grace period is checked in test_ending.py",
    "fork": "takes no arguments, and without any it forks",
    "oserrors": "a module",
    "event_map": "a mapping",
    "all_threads": "a mapping",
    "saved_stderr": "a stream",
    "microseconds": "a number",
    "ticks_per_sec": "a number",
    "ticks_per_usec": "a number",
    "MAX_AIO_SIZE": "a number",
    "MAX_LIO": "a number",
    "SUCCESS": "a string",
    "FAILURE": "a string",
    "ALL_COMPLETED": "a string",
    "FIRST_COMPLETED": "a string",
    "FIRST_EXCEPTION": "a string",
    "UNAME": "a string",
    "tick_update_interval": "a number",
    "sigterm_handler": "ends the loop, whatever the arguments",
    "exception_notifier": "the default notifier under its old name",
    "install_thread_emulation": "replaces the standard library that the sweep itself uses",
}

SWEEP = """
import faulthandler, gc, sys, threading, warnings
faulthandler.dump_traceback_later(40, exit=True)
warnings.simplefilter("ignore")
import coro
from coro import optional
coro._runtime.output.saved_stderr = type("Null", (), {"write": lambda self, text: None, "flush": lambda self: None})()
coro.set_exception_notifier(lambda: None)
coro.set_print_exit_string(False)

EXPECTED = (
    TypeError, ValueError, OverflowError, KeyError, OSError, AssertionError, BufferError,
    coro.Interrupted, coro.ScheduleError, coro.YieldFromMain, coro.WrongThreadError, coro.NoSwitchError, coro.LoopError,
    coro.ClosedError, coro.SimultaneousError, coro.StackSlotError, coro.NameError, coro.CancelledError,
    coro.lio_listio_error, ExceptionGroup,
)
SILENT = (coro.Interrupted, coro.ClosedError)  # may come without a text
skip = set(SKIP)
bad = []
# Made here, because in another OS thread they cannot be.
sockets = [(make.__name__, make()) for make in (coro.tcp_sock, coro.udp6_sock, coro.unix_sock)]
sockets += zip(("pair", "peer"), coro.socketpair())
closed = coro.tcp_sock()
closed.close()
sockets.append(("closed", closed))


def values():
    return [None, -1, -10**20, 10**20, 10**6, 0.001, float("nan"), "text", b"bytes", "\\ud800", "nul\\0",
            (), [], {}, object(), ("host",), ("127.0.0.1", -1), (-1, -1), (0, 99), closed, dead, fresh, ValueError, int]


def targets():
    yield from ((name, getattr(coro, name)) for name in coro.__all__ if name not in skip)
    yield "optional.with_timeout", optional.with_timeout
    yield "optional.sleep_relative", optional.sleep_relative
    for kind, thing in [("thread", t) for t in (dead, fresh, parked) if t is not None] + sockets:
        for name in dir(type(thing)):
            attribute = getattr(type(thing), name)
            if callable(attribute) and not name.startswith("__") and (
                kind == "closed" or name not in ("close", "detach")
            ):
                yield kind + "." + name, getattr(thing, name)


def attempt(name, function, args, limit):
    global bad
    try:
        if limit:
            coro.with_timeout(limit, function, *args)
        else:
            function(*args)
    except EXPECTED as exc:
        text = str(exc)
        if not text and not isinstance(exc, SILENT):
            bad.append(f"{name}{args!r:.100}: {type(exc).__name__} without a text")
    except BaseException as exc:
        bad.append(f"{name}{args!r:.100}: {type(exc).__name__}: {exc}")


def sweep(limit):
    for name, function in list(targets()):
        attempt(name, function, (), limit)
        for value in values():
            for count in (1, 2, 3):
                attempt(name, function, (value,) * count, limit)


dead = fresh = parked = None


def prepare():
    global dead, fresh, parked
    dead = coro.spawn(int)
    fresh = coro.new(coro._yield)
    parked = coro.spawn(coro._yield)


def in_a_thread():
    prepare()
    coro.yield_slice()
    sweep(0.0005)
    for t in list(coro.all_threads.values()):
        if t is not coro.current():
            t.shutdown()


def inside_no_switch():
    prepare()
    coro.yield_slice()
    with coro.no_switch():
        sweep(0)
    for t in list(coro.all_threads.values()):
        if t is not coro.current():
            t.shutdown()


def in_another_os_thread():
    prepare()
    coro.yield_slice()
    other = threading.Thread(target=sweep, args=(False,))
    other.start()
    while other.is_alive():
        coro.sleep_relative(0.01)
    parked.shutdown()


def in_main():
    sweep(0.01)  # by SIGALRM: sleep_relative does sleep here
    coro.run(prepare)
    sweep(0.01)


def in_a_collector_callback():
    prepare()
    coro.yield_slice()
    once = []

    def callback(phase, info):
        if phase == "start" and not once:
            once.append(1)
            sweep(0)

    gc.callbacks.append(callback)
    gc.collect()
    gc.callbacks.remove(callback)
    for t in list(coro.all_threads.values()):
        if t is not coro.current():
            t.shutdown()


situation = SITUATION
if situation == "in_main":
    in_main()
else:
    # Threads that the sweep spawned by accident are of no interest.
    coro.run(globals()[situation])
print(coro.run(lambda: (coro.sleep_relative(0.001), "works")[1]))
for line in sorted(set(bad))[:40]:
    print(line)
faulthandler.cancel_dump_traceback_later()
"""


@pytest.mark.slow
@pytest.mark.each_python
@pytest.mark.parametrize(
    "situation", ["in_a_thread", "in_main", "in_another_os_thread", "inside_no_switch", "in_a_collector_callback"]
)
def test_sweep(situation):
    skip = set(NOT_CALLED)
    assert ok(SWEEP.replace("SKIP", repr(sorted(skip))).replace("SITUATION", repr(situation))) == ["works"]


def test_the_sweep_knows_every_public_name():
    assert set(NOT_CALLED) <= set(coro.__all__)
    for name in set(coro.__all__) - set(NOT_CALLED):
        assert callable(getattr(coro, name)), name


BLOCKING = {
    "_yield": lambda s: coro._yield(),
    "yield_slice": lambda s: coro.yield_slice(),
    "sleep_relative": lambda s: coro.sleep_relative(0),
    "sleep_absolute": lambda s: coro.sleep_absolute(0),
    "with_timeout": lambda s: coro.with_timeout(1, coro.yield_slice),
    "join": lambda s: coro.new(int).join(),
    "in_thread": lambda s: coro.in_thread(int),
    "wait_for": lambda s: coro.wait_for(s, coro.EVFILT.READ),
    "recv": lambda s: s.recv(1),
    "accept": lambda s: s.accept(),
    "connect": lambda s: coro.tcp_sock().connect(("127.0.0.1", 1)),
    "wait_for_read": lambda s: s.wait_for_read(),
    "select": lambda s: coro.select(coro.case.read(s)),
}


@pytest.mark.parametrize("name", BLOCKING)
def test_blocking_calls_in_main(name):
    """Before any loop, and after one, alike; with_timeout and sleep_relative have another life there."""
    s, peer = coro.socketpair()
    if name not in ("with_timeout", "sleep_relative"):
        for _ in range(2):
            with pytest.raises(coro.YieldFromMain, match="thread"):
                BLOCKING[name](s)
            coro.run(int)
    s.close()
    peer.close()


@pytest.mark.parametrize("name", BLOCKING)
def test_blocking_calls_inside_no_switch(name):
    s, peer = coro.socketpair()

    def main():
        with coro.no_switch(), pytest.raises(coro.NoSwitchError, match="no_switch"):
            BLOCKING[name](s)
        coro.yield_slice()

    coro.run(main)
    s.close()
    peer.close()


@pytest.mark.parametrize("name", BLOCKING)
def test_blocking_calls_under_the_cyclic_collector(name):
    lines = ok(
        f"""
        import sys; sys.path.insert(0, {__file__.rpartition("/")[0]!r})
        import coro, gc
        from test_bad_input import BLOCKING
        s, peer = coro.socketpair()
        class Node:
            def __del__(self):
                try:
                    BLOCKING[{name!r}](s)
                except coro.NoSwitchError as exc:
                    print(exc)
        def main():
            node = Node()
            node.self = node
            del node
            gc.collect()
            coro.yield_slice()
        gc.disable()
        coro.run(main)
        """
    )
    assert len(lines) == 1
    assert "garbage collector" in lines[0]


#: Calls whose argument goes through several hands before anybody would trip over it: the first of them says so.
WRONG = [
    (lambda: coro.wait_for(None, None), TypeError, "one of EVFILT, for instance EVFILT.READ, not NoneType: None"),
    (lambda: coro.wait_for(3, 1.5), TypeError, "not float: 1.5"),
    (lambda: coro.set_handler((3, "READ"), print), TypeError, "not str: 'READ'"),
    (lambda: coro.Server(print, ("", 0), max_connections=0), ValueError, "max_connections is the number"),
    (lambda: coro.in_parallel(3), TypeError, "expected a list of pairs"),
    (lambda: coro.parallel_map(print, [1], limit=0), ValueError, "limit is the number of threads"),
    (lambda: files.pack_blocks_for_write([b""], "x"), TypeError, "in bytes as an int of at least 1, not str: 'x'"),
    (lambda: limits.raise_open_files("x"), TypeError, "descriptors, or None, as an int of at least 1, not str: 'x'"),
    (lambda: process.capture(3), TypeError, "expected a command as one str or a sequence of arguments, not int: 3"),
    (lambda: process.capture(b"ls -l"), TypeError, "not bytes: b'ls -l'"),
    (lambda: process.run("cat", input="text"), TypeError, "expected bytes as input, not str"),
    (lambda: process.join(3), TypeError, "expected a multiprocessing.Process, not int: 3"),
    (lambda: asyncio_bridge.entered(3).__enter__(), TypeError, "expected an asynchronous context manager, not int: 3"),
    (lambda: buffered_stream(bytes).read_exact("x"), TypeError, "expected a number of bytes as an int, not str: 'x'"),
    (lambda: list(asn1.gen_log(3)), TypeError, "expected a file opened for reading bytes, not int: 3"),
    (lambda: debug.start(("192.0.2.1", 0)), ValueError, "in this process; listen at 127.0.0.1"),
    (lambda: coro.socketpair(1.5), TypeError, "'float' object cannot be interpreted as an integer"),
    (lambda: kevent_key(2.5, 3), TypeError, "one of EVFILT, for instance EVFILT.READ, not float: 2.5"),
    (lambda: profiler.go(3), TypeError, "expected a function to profile, not int: 3"),
    (lambda: profiler.save(3, "/nowhere"), TypeError, "expected a Profile, as stop() and load() return, not int: 3"),
]


@pytest.mark.parametrize(("call", "error", "words"), WRONG, ids=[words for _, _, words in WRONG])
@in_loop
def test_what_was_expected_and_what_came(call, error, words):
    with pytest.raises(error, match=re.escape(words)):
        call()
