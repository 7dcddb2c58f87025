"""Child processes: waiting for them, their pipes, and time limits.

Children are told through pipes what to do; nothing depends on how long something takes, but for upper bounds that are
far away.
"""

from __future__ import annotations

import concurrent.futures
import fcntl
import gc
import inspect
import os
import signal
import statistics
import subprocess
import sys
import time

import pytest
from support import advance, in_loop, ok, virtual_clock

import coro
from coro import oserrors, process
from coro._poll.children import handlers_held
from coro._poll.descriptors import kevent_key
from coro.groups import group
from coro.process import (
    DEV_NULL,
    PIPE,
    STDOUT,
    CoroProcess,
    ProcessTimeout,
    capture,
    capture_with_stderr,
    run,
    spawn_job_bg,
    waitpid,
)

pytestmark = [
    pytest.mark.poller,
    pytest.mark.usefixtures("leaves_nothing"),
    # A test process has other OS threads now and then; the children of these tests do next to nothing.
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


def gone(pid):
    """Is there no such process (any more), nor a zombie of it?"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def dead(pid):
    """Has it ended? It may be a zombie: orphans are reaped by whoever adopted them, at his leisure."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def until(condition):
    while not condition():
        coro.sleep_relative(0.001)


def child_that(code):
    """Fork a child that ends with the code when the returned descriptor is closed."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(w)
        os.read(r, 1)
        os._exit(code)
    os.close(r)
    return pid, w


# -- waitpid


@in_loop
def test_waitpid_is_prompt_and_right():
    """Also for status 0, which is not the same as still running."""
    for code in (0, 3):
        pid, w = child_that(code)
        t = coro.spawn(waitpid, pid)
        coro.yield_slice()
        assert not t.dead
        polls = coro.statistics().polls
        os.close(w)
        t.join()
        assert coro.statistics().polls - polls < 20       # woken by the end, not by looking again and again
        assert t.result == (pid, code << 8)
        assert gone(pid)


@in_loop
def test_waitpid_for_a_dead_child_returns_at_once():
    for code in (0, 7):
        pid, w = child_that(code)
        os.close(w)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        others = []
        coro.spawn(others.append, 1)
        assert waitpid(pid) == (pid, code << 8)
        assert others == []  # not even a switch


@in_loop
def test_waitpid_tells_signals():
    pid, w = child_that(0)
    os.kill(pid, signal.SIGKILL)
    assert waitpid(pid) == (pid, signal.SIGKILL)
    os.close(w)


@in_loop
def test_waitpid_for_what_is_no_child():
    pid, w = child_that(0)
    os.close(w)
    assert waitpid(pid)[0] == pid
    for other in (pid, os.getppid(), 2**22 + 1):  # reaped already, not ours, not there
        with pytest.raises(oserrors.ECHILD) as e:
            waitpid(other)
        assert e.value.errno == oserrors.ECHILD().errno
    for other in (0, -1, -pid):
        with pytest.raises(ValueError, match="one child"):
            waitpid(other)
    with pytest.raises(TypeError, match="int"):
        waitpid("1")


@in_loop
def test_second_waiter():
    pid, w = child_that(0)
    t = coro.spawn(waitpid, pid)
    coro.yield_slice()
    with pytest.raises(coro.SimultaneousError) as e:
        waitpid(pid)
    assert (e.value.co, e.value.other) == (coro.current(), t)
    assert e.value.event == kevent_key(coro.EVFILT.PROC, pid)
    os.close(w)
    # Ended, but the first waiter has not run yet: still its child.
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(coro.SimultaneousError):
        waitpid(pid)
    t.join()
    assert t.result == (pid, 0)


@in_loop
def test_interrupted_waitpid_can_be_repeated():
    pid, w = child_that(4)
    for _ in range(2):
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.002, waitpid, pid)
    os.close(w)
    assert waitpid(pid) == (pid, 4 << 8)


@in_loop
def test_child_reaped_by_somebody_else():
    pid, w = child_that(0)
    t = coro.spawn(waitpid, pid)
    coro.set_exception_notifier(lambda: None)
    coro.yield_slice()
    os.close(w)
    os.waitpid(pid, 0)
    t.join()
    coro.set_exception_notifier(None)
    assert isinstance(t.exception, oserrors.ECHILD)


def test_waitpid_outside_a_thread():
    with pytest.raises(coro.YieldFromMain):
        waitpid(1)


def reap(number):
    """Start that many children and let them end one by one; the delays between an end and its news, in seconds."""
    delays = []

    def parent(n, pid, r):
        found, status = waitpid(pid)
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        assert (found, os.waitstatus_to_exitcode(status)) == (pid, n % 256)
        delays.append((now - int(os.read(r, 40))) / 1e9)
        os.close(r)

    with group(limit=20) as g:
        for n in range(number):
            g.wait_for_room()
            # As its last act the child writes the time of its end, on a clock that all processes share.
            r, w = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.write(w, str(time.clock_gettime_ns(time.CLOCK_MONOTONIC)).encode())
                os._exit(n % 256)
            os.close(w)
            g.spawn(parent, n, pid, r)
            coro.yield_slice()  # forking holds up the loop: let it look after every one
    assert len(delays) == number
    return delays


# How long it takes is measured, not judged, here: what the limit would notice is a wait that looks at intervals.
PROMPT = 1.0


@in_loop
def test_children_are_reaped():
    assert statistics.median(reap(40)) < PROMPT


@pytest.mark.slow
def test_a_thousand_children_are_reaped():
    """In a process of its own: forking one that has all of these tests loaded takes ten times as long."""
    program = f"""
import os
import statistics
import time
import coro
from coro import testing
from coro.groups import group
from coro.process import waitpid

{inspect.getsource(reap)}
with testing.no_leaks(strict=True):
    print(statistics.median(coro.run(reap, 1000)))
"""
    (median,) = ok(program)
    assert float(median) < PROMPT


# -- jobs


@in_loop
def test_streaming_pipes():
    with spawn_job_bg("cat", stdin=PIPE, stdout=PIPE) as p:
        assert isinstance(p, CoroProcess) and p.stderr is None
        for word in (b"one", b"two"):
            p.stdin.sendall(word)
            assert p.stdout.recv_exact(3) == word
        assert "running" in repr(p) and p.returncode is None
        p.stdin.close()
        assert p.stdout.recv(10) == b""  # the end of a pipe is news, too
        assert p.wait() == 0
    assert p.returncode == 0 and "ended with 0" in repr(p)
    assert p.wait() == 0


@in_loop
def test_waiting_for_output_suspends_one_thread_only():
    turns = 0
    with spawn_job_bg("cat", stdin=PIPE, stdout=PIPE) as p:
        t = coro.spawn(p.stdout.recv, 10)
        for _ in range(10):
            coro.yield_slice()
            turns += 1
        assert not t.dead
        p.stdin.sendall(b"x")
        t.join()
        assert t.result == b"x"


@in_loop
def test_makefile_on_a_pipe():
    with spawn_job_bg(["printf", "a\\nb\\n"], stdout=PIPE) as p, p.stdout.makefile("r") as f:
        assert list(f) == ["a\n", "b\n"]


@in_loop
def test_several_wait_for_one_process():
    p = spawn_job_bg("cat", stdin=PIPE)
    threads = [coro.spawn(p.wait) for _ in range(4)]
    coro.yield_slice()
    threads[0].shutdown()  # the one that does the waiting
    coro.yield_slice()
    p.close()
    for t in threads:
        t.join()
    assert [t.result for t in threads] == [None, 0, 0, 0]


@in_loop
def test_command_forms_and_environment(tmp_path):
    assert capture("sh -c 'echo \"$A\"; pwd'", env={"A": "x y", "PATH": os.environ["PATH"]}, cwd=tmp_path) == (
        0,
        f"x y\n{tmp_path}\n".encode(),
    )
    assert capture(["echo", "$HOME  '"]) == (0, b"$HOME  '\n")
    for nothing in ("", []):
        with pytest.raises(ValueError, match="empty command"):
            capture(nothing)


@in_loop
def test_program_that_does_not_exist():
    with pytest.raises(FileNotFoundError):
        spawn_job_bg("no-such-program-here", stdin=PIPE, stdout=PIPE, stderr=PIPE)
    with pytest.raises(OSError):
        spawn_job_bg("true", stdin=PIPE, stdout=987654)


@in_loop
def test_descriptors_of_the_child():
    """Three, and what is passed on purpose."""
    r, w = os.pipe()
    os.set_inheritable(w, True)
    command = [sys.executable, "-c", "import os; print(*os.listdir('/proc/self/fd'))"]
    plain = set(map(int, capture(command)[1].split()))
    assert len(plain) == 4 and {0, 1, 2} < plain  # the fourth is the folder being listed
    high = fcntl.fcntl(r, fcntl.F_DUPFD_CLOEXEC, 100)
    with spawn_job_bg(command, stdout=PIPE, fd_except=[high]) as p, p.stdout.makefile("rb") as f:
        assert set(map(int, f.read().split())) == plain | {high}
    for fd in (r, w, high):
        os.close(fd)


@in_loop
def test_process_groups():
    own, new = os.getpgrp(), spawn_job_bg("cat", stdin=PIPE)
    same = spawn_job_bg("cat", stdin=PIPE, pgrp=-1)
    joined = spawn_job_bg("cat", stdin=PIPE, pgrp=new.pgrp)
    assert os.getpgid(new.pid) == new.pid == new.pgrp
    assert os.getpgid(same.pid) == own and same.pgrp is None
    assert os.getpgid(joined.pid) == new.pid
    same.killpg()  # not all of us
    new.killpg(signal.SIGTERM)
    assert (same.wait(), new.wait(), joined.wait()) == (signal.SIGKILL, signal.SIGTERM, signal.SIGTERM)
    assert new.returncode == -signal.SIGTERM
    new.killpg()  # nothing happens any more
    new.kill()
    for p in (new, same, joined):
        p.close()
    with pytest.raises(ValueError, match="pgrp"):
        spawn_job_bg("true", pgrp=-2)


@in_loop
def test_leaving_the_block_with_an_exception_kills():
    with pytest.raises(KeyError), spawn_job_bg("cat", stdin=PIPE) as p:
        raise KeyError
    assert p.wait() == signal.SIGKILL
    with pytest.raises(coro.TimeoutError), coro.timeout(0.01), spawn_job_bg("sleep 1000") as p:
        pass
    assert p.wait() == signal.SIGKILL


@in_loop
def test_reaped_behind_our_back():
    p = spawn_job_bg("true")
    os.waitpid(p.pid, 0)
    with pytest.raises(oserrors.ECHILD):
        p.wait()


# -- capture and run


@in_loop
def test_capture():
    script = ["sh", "-c", "echo out; echo err >&2; exit 3"]
    assert capture(script) == (3 << 8, b"out\nerr\n")
    assert capture(script, tie_out_err=False) == (3 << 8, b"out\n")
    assert capture_with_stderr(script) == (3 << 8, b"out\n", b"err\n")
    assert capture("cat") == (0, b"")  # its input is empty
    assert capture("true", timeout=10) == (0, b"")


@in_loop
def test_more_than_a_pipe_holds():
    """In all three directions at once."""
    data = bytes(range(256)) * 2000
    status, out, err = capture_with_stderr(["sh", "-c", "tee /dev/stderr"], input=data)
    assert (status, out == data, err == data) == (0, True, True)
    assert capture("cat", input=data) == (0, data)


@in_loop
def test_program_that_does_not_read_its_input():
    assert capture("true", input=bytes(10**6)) == (0, b"")


@in_loop
def test_run():
    done = run("cat", input=b"x")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"x", b"")
    assert run("false").returncode == 1
    with pytest.raises(subprocess.CalledProcessError) as e:
        run(["sh", "-c", "echo no >&2; exit 5"], check=True)
    assert (e.value.returncode, e.value.stderr) == (5, b"no\n")
    with pytest.raises(ProcessTimeout):
        run("sleep 1000", timeout=0.01)


@pytest.mark.parametrize("apart", [False, True])
@in_loop
def test_timeout_kills_the_group_and_tells_the_output(apart, tmp_path):
    """The first process has ended by then; its child holds the pipe."""
    note = tmp_path / "pid"
    script = f"echo out; echo err >&2; sleep 1000 & echo $! >{note}.new; mv {note}.new {note}"
    call = capture_with_stderr if apart else capture

    def clock():
        while not note.exists() or any(t.waiting_for is None for t in coro.all_threads.values() if t is not me):
            coro.yield_slice()
        advance(15)

    with virtual_clock():
        me = coro.spawn(clock)
        with pytest.raises(ProcessTimeout) as e:
            call(["sh", "-c", script], timeout=14)
    assert e.value.stdout_output == (b"out\n" if apart else b"out\nerr\n")
    assert e.value.stderr_output == (b"err\n" if apart else b"")
    assert "was killed" in str(e.value)
    pid = int(note.read_text())
    while not dead(pid):
        coro.yield_slice()


@in_loop
def test_outer_timeout_and_shutdown_kill_too():
    with pytest.raises(coro.TimeoutError):
        coro.with_timeout(0.02, capture, "sleep 1000", timeout=100)
    t = coro.spawn(capture_with_stderr, "sleep 1000")
    coro.yield_slice()
    t.shutdown()
    t.join()
    assert isinstance(t.exception, coro.Shutdown)
    until(lambda: len(coro.all_threads) == 1)  # reaped in the background
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_end_of_the_loop_leaves_no_process():
    lines = ok(
        """
        import os
        import coro
        from coro.process import capture

        def main():
            coro.spawn(capture, "sleep 1000")
            coro.yield_slice()
            coro.set_exit(0)

        try:
            coro.run(main)
        except SystemExit:
            pass
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            print("none left")
        """
    )
    assert lines == ["none left"]


class Boom(Exception):
    """What the signal handler raises."""


def raising_at(step, call):
    """Call a function with a signal whose handler raises at a certain step of the calling thread. The steps are those
    at which the interpreter looks for signals, in this module and subprocess: a Python function begins, a C function
    has returned. Returns what it returned, Boom if it raised that, None where it has no such step."""
    me, left = coro.current(), step

    def count(frame, event, arg):
        nonlocal left
        if event not in ("call", "c_return") or coro.current() is not me or left < 0:
            return
        if frame.f_code.co_filename in (process.__file__, subprocess.__file__) and not in_finaliser(frame):
            left -= 1
            if left < 0:
                signal.raise_signal(signal.SIGUSR1)

    def handler(signum, frame):
        raise Boom

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        try:
            sys.setprofile(count)
            found = call()
        finally:
            sys.setprofile(None)
    except Boom:
        return Boom
    finally:
        signal.signal(signal.SIGUSR1, before)
    return None if left >= 0 else found


def in_finaliser(frame):
    """What is raised there goes nowhere."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


def no_children():
    """Wait until all are reaped by whoever is to reap them."""
    with coro.timeout(20):
        while True:
            try:
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return True
            coro.sleep_relative(0.001)


def a_job():
    job = spawn_job_bg(["echo", "x"], stdout=PIPE)
    try:
        assert job.stdout.recv(10) == b"x\n"
        job.close()
        return job.wait()
    except BaseException:
        job.abandon()
        raise


def a_job_that_is_left():
    job = spawn_job_bg(["sleep", "1000"], stdin=PIPE, stdout=PIPE)
    try:
        job.abandon()
    except BaseException:
        job.abandon()
        raise
    return True


def a_limit():
    try:
        capture(["sleep", "1000"], timeout=0.0001)
    except ProcessTimeout:
        return True


@pytest.mark.slow
@pytest.mark.each_python
@pytest.mark.parametrize("call", [a_job, a_job_that_is_left, lambda: capture(["echo", "x"]), a_limit])
def test_a_signal_handler_that_raises_anywhere_leaves_nothing_behind(call):
    """No child, no descriptor; and none is closed or reaped twice, which would raise something else."""

    def test():
        call()
        assert no_children()
        before = sorted(os.listdir("/proc/self/fd"))
        step = raised = 0
        while (outcome := raising_at(step, call)) is not None:
            raised += outcome is Boom
            assert no_children(), step
            gc.collect()
            assert sorted(os.listdir("/proc/self/fd")) == before, step
            step += 1
        assert raised > 20

    coro.run(coro.with_timeout, 120, test)


@in_loop
def test_handlers_that_are_held_run_once_each_at_the_end():
    seen = []

    def handler(signum, frame):
        seen.append((signum, frame.f_code.co_name))
        if signum == signal.SIGUSR1:
            raise Boom

    before = [signal.signal(number, handler) for number in (signal.SIGUSR1, signal.SIGUSR2)]
    signal.siginterrupt(signal.SIGUSR2, False)
    try:
        with pytest.raises(Boom), handlers_held():
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGUSR2)
            assert seen == []
            assert signal.getsignal(signal.SIGUSR1) is not handler
        name = "test_handlers_that_are_held_run_once_each_at_the_end"
        assert seen == [(signal.SIGUSR1, name), (signal.SIGUSR2, name)]
        assert signal.getsignal(signal.SIGUSR1) is signal.getsignal(signal.SIGUSR2) is handler
        with pytest.raises(KeyError), handlers_held():
            raise KeyError
        with handlers_held():
            signal.raise_signal(signal.SIGUSR2)
        assert len(seen) == 3
    finally:
        for number, was in zip((signal.SIGUSR1, signal.SIGUSR2), before, strict=True):
            signal.signal(number, was)


def test_handlers_are_not_held_beside_the_main_os_thread():
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: handlers_held().__enter__().__exit__(None, None, None)).result()


def test_constants():
    assert (DEV_NULL, PIPE, STDOUT) == (subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT)
    with pytest.raises(coro.YieldFromMain):
        capture("true")
