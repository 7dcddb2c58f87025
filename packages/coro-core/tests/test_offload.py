"""Blocking functions in worker OS threads."""

import contextlib
import contextvars
import gc
import opcode
import os
import random
import subprocess
import sys
import threading
import time
import weakref

import pytest
from support import in_loop, ok, until

import coro
from coro import offload, testing
from coro._runtime import scheduler


def run_program(text):
    result = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    return result.returncode, result.stdout.split(), result.stderr


@in_loop
def test_results_and_arguments():
    assert coro.in_thread(lambda: 5) == 5
    assert coro.in_thread(divmod, 17, 5) == (3, 2)
    assert coro.in_thread(dict, a=1, function=2, self=3) == {"a": 1, "function": 2, "self": 3}
    assert coro.in_thread(threading.get_ident) != threading.get_ident()


@in_loop
def test_exceptions():
    def fail(e):
        raise e

    for error in (ValueError("x"), KeyboardInterrupt(), SystemExit(3), coro.Shutdown(), GeneratorExit()):
        with pytest.raises(type(error)) as e:
            coro.in_thread(fail, error)
        assert e.value is error
        names = [entry.name for entry in e.traceback]
        assert "fail" in names


@in_loop
def test_other_threads_go_on():
    gate = threading.Event()
    t = coro.spawn(coro.in_thread, gate.wait)
    turns = 0
    for _ in range(10):
        coro.yield_slice()
        turns += 1
    assert not t.dead
    gate.set()
    t.join()
    assert turns == 10


@in_loop
def test_many_at_once():
    """More jobs than workers: they queue, and the bound holds."""
    running = most = 0
    lock = threading.Lock()

    def job(i):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        with lock:
            running -= 1
        return i * i

    results = {}

    def caller(i):
        results[i] = coro.in_thread(job, i)

    old = coro.offload.set_max_workers(3)
    try:
        threads = [coro.spawn(caller, i) for i in range(100)]
        for t in threads:
            t.join()
        assert results == {i: i * i for i in range(100)}
        assert most <= 3
    finally:
        assert coro.offload.set_max_workers(old) == 3


@in_loop
def test_the_bound():
    gate = threading.Event()
    old = offload.set_max_workers(2)
    try:
        assert offload.get_max_workers() == 2
        jobs = [coro.spawn(coro.in_thread, gate.wait) for _ in range(5)]
        while offload.statistics()["busy"] < 2:
            coro.sleep_relative(0.001)
        coro.yield_slice()
        s = offload.statistics()
        assert (s["busy"], s["queued"], s["most"]) == (2, 3, 2)
        gate.set()
        for t in jobs:
            t.join()
        assert offload.statistics()["queued"] == 0
    finally:
        offload.set_max_workers(old)


@in_loop
def test_a_lower_bound_loses_no_job_to_a_surplus_worker():
    both = threading.Barrier(2)
    for t in [coro.spawn(coro.in_thread, both.wait) for _ in range(2)]:
        t.join()
    while offload.statistics()["idle"] < 2:
        coro.sleep_relative(0.001)
    old = offload.set_max_workers(1)
    try:
        assert coro.in_thread(int) == 0
        assert offload.statistics()["workers"] == 1
    finally:
        offload.set_max_workers(old)


@pytest.mark.parametrize("seed", range(4))
@in_loop
def test_no_job_is_lost_while_the_bound_changes(seed):
    """Nor when callers are interrupted. Each round ends quietly, so that no later job wakes a worker for a lost one;
    what nobody comes for is ended by the limit of the test."""
    chance = random.Random(seed)
    ended = []

    def caller():
        with contextlib.suppress(coro.TimeoutError), coro.timeout(chance.choice([0.0005, 60, 60])):
            coro.in_thread(time.sleep, chance.random() / 1000)
        ended.append(1)

    old = offload.get_max_workers()
    try:
        for _ in range(30):
            threads = [coro.spawn(caller) for _ in range(chance.randint(1, 5))]
            coro.yield_slice()
            offload.set_max_workers(chance.randint(1, 4))
            for t in threads:
                t.join()
            assert len(ended) == len(threads)
            ended.clear()
    finally:
        offload.set_max_workers(old)
    assert offload.statistics()["queued"] == 0


@in_loop
def test_workers_are_used_again_and_end_when_idle(monkeypatch):
    monkeypatch.setattr(offload, "IDLE_SECONDS", 0.001)
    while offload.statistics()["workers"]:
        coro.in_thread(int)  # the old ones sleep for the old time: give them work
        coro.sleep_relative(0.005)
    monkeypatch.setattr(offload, "IDLE_SECONDS", 30)
    idents = {coro.in_thread(threading.get_ident) for _ in range(20)}
    assert len(idents) == 1
    assert offload.statistics()["workers"] == 1
    monkeypatch.setattr(offload, "IDLE_SECONDS", 0.001)
    coro.in_thread(int)
    while offload.statistics()["workers"]:
        coro.sleep_relative(0.001)
    assert coro.in_thread(int) == 0


@in_loop
def test_interruption_is_immediate_and_late_results_are_dropped():
    begun, gate, done = (threading.Event() for _ in range(3))
    dropped_in = []

    class Result:
        def __del__(self):
            dropped_in.append(threading.get_ident())
            done.set()

    def job():
        begun.set()
        gate.wait()
        return Result()

    def caller():
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(10, coro.in_thread, job)
        return "interrupted"

    with testing.virtual_clock() as clock:
        t = coro.spawn(caller)
        while not begun.is_set():
            coro.yield_slice()
        clock.advance(10)
        t.join()
    assert t.result == "interrupted"
    t = coro.spawn(coro.in_thread, lambda: gate.wait() and None)
    coro.yield_slice()
    t.shutdown()
    t.join()
    gate.set()
    coro.in_thread(done.wait)
    assert dropped_in[0] != threading.get_ident()


@in_loop
def test_an_interruption_in_the_moment_of_completion():
    """The waiter is woken with a result, and interrupted before it runs: its own thread drops the result."""
    for _ in range(50):
        result = {"alive"}

        class Result(set):
            pass

        made = []

        def job(made=made, Result=Result):
            made.append(weakref.ref(r := Result()))
            return r

        t = coro.spawn(coro.in_thread, job)
        while not made:
            coro.yield_slice()
        t.shutdown()
        t.join()
        del t  # it has the result if it came before the interruption
        while made[0]() is not None:
            gc.collect()
            coro.sleep_relative(0.0001)
        assert result


@in_loop
def test_a_job_nobody_began_is_taken_back():
    gate = threading.Event()
    called = []
    old = offload.set_max_workers(max(1, offload.statistics()["workers"]))
    try:
        blockers = [coro.spawn(coro.in_thread, gate.wait) for _ in range(offload.get_max_workers())]
        while offload.statistics()["busy"] < len(blockers):
            coro.sleep_relative(0.001)
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.001, coro.in_thread, called.append, 1)
        assert offload.statistics()["queued"] == 0
        gate.set()
        for t in blockers:
            t.join()
        assert called == []
    finally:
        offload.set_max_workers(old)


@in_loop
def test_spurious_wake_ups():
    gate = threading.Event()
    box = []
    t = coro.spawn(lambda: box.append(coro.in_thread(gate.wait)))
    coro.yield_slice()
    for _ in range(3):
        t.schedule("not yet")
        coro.yield_slice()
    assert box == []
    gate.set()
    t.join()
    assert box == [True]


@in_loop
def test_context_variables():
    var = contextvars.ContextVar("var", default="none")
    var.set("caller's")

    def job():
        before = var.get()
        var.set("worker's")
        return before

    assert coro.in_thread(job) == "caller's"
    assert var.get() == "caller's"
    assert coro.in_thread(var.get) == "caller's"


def test_a_job_names_what_it_calls_and_keeps_only_that():
    class Call:
        def __call__(self):
            return 1

        def __str__(self):
            raise AssertionError("a report calls nothing of the program's")

    call = Call()
    alive = weakref.ref(call)
    job = offload._Job(call, (), {}, None, None)
    assert repr(job).endswith("Call>")
    job.call = call = None
    assert alive() is None


@in_loop
def test_posting_from_a_worker():
    got = []
    coro.in_thread(coro.post, got.append, 1)
    while not got:
        coro.yield_slice()


@in_loop
def test_the_scheduler_is_not_for_workers():
    for function in (coro.yield_slice, lambda: coro.sleep_relative(0), lambda: coro.in_thread(int)):
        with pytest.raises(coro.WrongThreadError):
            coro.in_thread(function)


def test_misuse():
    with pytest.raises(coro.YieldFromMain):
        coro.in_thread(int)

    def main():
        for bad in (None, 5, "x"):
            with pytest.raises(TypeError, match="call"):
                coro.in_thread(bad)
        with pytest.raises(TypeError):
            coro.in_thread()
        with coro.no_switch(), pytest.raises(coro.NoSwitchError):
            coro.in_thread(int)
        assert offload.statistics()["queued"] == 0

    coro.run(main)
    with pytest.raises(ValueError, match="at least one"):
        offload.set_max_workers(0)
    with pytest.raises(TypeError, match="int"):
        offload.set_max_workers("many")


def test_a_job_alone_is_no_deadlock():
    gate = threading.Event()

    def main():
        threading.Timer(0.02, gate.set).start()
        return coro.in_thread(gate.wait)

    assert coro.run(main) is True


def test_idle_workers_do_not_hide_a_deadlock():
    """In a process of its own: the OS thread that watches over this one might post."""
    program = """
import coro
def main():
    coro.in_thread(int)
    coro._yield()
try:
    coro.run(main)
except coro.DeadlockError:
    print("deadlock")
"""
    assert run_program(program) == (0, ["deadlock"], "")


def test_no_cycles_are_left():
    def fail():
        raise ValueError("x")

    def main():
        gc.collect()
        gc.disable()
        try:

            class Marker:
                pass

            marker = Marker()
            ref = weakref.ref(marker)

            def call(marker=marker):
                local = marker
                try:
                    coro.in_thread(fail)
                except ValueError:
                    pass
                return local is not None

            call()
            del call, marker
            assert ref() is None
        finally:
            gc.enable()

    coro.run(main)


def test_the_process_ends_although_a_job_hangs():
    program = """
import coro, threading
def main():
    try:
        coro.with_timeout(0.01, coro.in_thread, threading.Event().wait)
    except coro.TimeoutError:
        print("left")
coro.run(main)
print("ended")
"""
    assert run_program(program) == (0, ["left", "ended"], "")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_starts_afresh():
    coro.run(coro.in_thread, int)
    pid = os.fork()
    if pid == 0:
        try:
            ok = offload.statistics()["workers"] == 0 and coro.run(coro.in_thread, int) == 0
        finally:
            os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.fixture
def pool(monkeypatch):
    """A pool without workers, and none left of it."""
    new = offload._Pool()
    monkeypatch.setattr(offload, "_pool", new)
    monkeypatch.setattr(offload, "IDLE_SECONDS", 0.01)
    yield new
    while new.counted:
        time.sleep(0.001)


class Raised(BaseException):
    """What a signal handler raises."""


@pytest.mark.parametrize("error", [Raised, RuntimeError])
@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("others", [False, True])
@in_loop
def test_a_signal_handler_that_raises_while_a_worker_is_started(error, started, others, pool, monkeypatch):
    """It is not lost, whether or not another worker or the new one has taken the job; and no worker is miscounted."""
    gate, ran = threading.Event(), threading.Event()
    if others:
        waiting = coro.spawn(coro.in_thread, gate.wait)
        coro.yield_slice()
    before = offload.statistics()["workers"]
    assert before == others
    real = threading.Thread.start

    def start(thread):
        if started:
            real(thread)
            ran.wait()
        raise error("from a signal handler")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(error, match="from a signal handler"):
            coro.in_thread(ran.set)
    assert offload.statistics()["queued"] == 0
    assert offload.statistics()["workers"] == before + started
    gate.set()
    if others:
        waiting.join()
    assert coro.in_thread(int) == 0


@in_loop
def test_no_os_thread_to_be_had(pool, monkeypatch):
    """An error if there is none at all; otherwise the job waits for another worker."""
    gate = threading.Event()
    waiting = coro.spawn(coro.in_thread, gate.wait)
    coro.yield_slice()
    name = "_start_joinable_thread" if hasattr(threading, "_start_joinable_thread") else "_start_new_thread"

    def refuse(*args, **kwargs):
        raise RuntimeError("can't start new thread")

    # The real function is written in C and has no frame; this one has that of the module threading.
    with monkeypatch.context() as patch:
        patch.setattr(threading, name, type(refuse)(refuse.__code__, vars(threading)))
        job = coro.spawn(coro.in_thread, int)
        coro.yield_slice()
    assert offload.statistics()["queued"] == 1
    gate.set()
    job.join()
    assert job.result == 0
    waiting.join()


@in_loop
def test_a_signal_handler_may_raise_anywhere_in_the_callers_part(pool):
    """A trace function stands for it, and raises before each single instruction. Nothing is left over: no lock taken,
    no wait counted, no job queued, no worker miscounted."""

    def raises_at(instruction):
        left = 1_000_000

        def trace(frame, event, argument):
            if frame.f_globals is not vars(offload):
                return None
            frame.f_trace_opcodes = True
            return look

        def look(frame, event, argument):
            nonlocal left
            # No signal is looked for at a NOT_TAKEN (3.14 and newer), which blocks with exception handlers leave out.
            if event == "opcode" and frame.f_code.co_code[frame.f_lasti] != opcode.opmap.get("NOT_TAKEN"):
                if left == 0:
                    sys.settrace(None)
                    raise Raised
                left -= 1
            return look

        sys._getframe().f_trace_opcodes = True  # Python 3.12 looks whether anybody wants them when tracing is set
        try:
            sys.settrace(trace)
            coro.in_thread(int)  # from Python 3.13 on a function is traced by instruction from its second call on
            left = instruction
            coro.in_thread(int)
        except Raised:
            return True
        finally:
            sys.settrace(None)
        return False

    n = 0
    while raises_at(n):
        n += 1
        assert scheduler._idle_facts()[2] == offload.statistics()["queued"] == 0
        assert coro.in_thread(int) == 0
    assert n > 50
    until(lambda: not pool.counted)
    assert offload.statistics()["workers"] == offload.statistics()["idle"] == 0
    assert pool.lock.acquire(False)


def test_a_worker_that_dies_leaves_its_place_to_another():
    """As one that has no memory for the lock by which it would be woken."""
    lines = ok("""
        import threading
        import coro
        from coro import offload

        died = []
        threading.excepthook = lambda told: died.append(told.exc_type)
        sleep = offload._Pool.sleep

        def no_memory(pool):
            offload._Pool.sleep = sleep
            raise MemoryError

        def main():
            offload.set_max_workers(1)
            offload._Pool.sleep = no_memory
            print(coro.in_thread(abs, -1))
            while not died:
                coro.yield_slice()
            print(coro.in_thread(abs, -2), died[0].__name__)

        coro.run(main)
    """)
    assert lines == ["1", "2 MemoryError"]
