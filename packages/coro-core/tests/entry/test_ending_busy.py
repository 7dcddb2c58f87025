"""Ctrl-C and SIGTERM end a program whose running thread never waits: the second one interrupts it, and so does the end
of the grace period; the third one ends the process. Programs that give way notice nothing.

Each runs in a process of its own, which says where it is on stdout. The tests wait for these words, not for a time."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest
from support import LIMIT

# Each waits for limits of real time to pass; and what is interrupted is the interpreter.
pytestmark = [pytest.mark.slow, pytest.mark.each_python]

START = """
import coro, os, signal, sys, time
from coro._runtime import escalation
def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
def spin():
    try:
        say("spins")
        while True:
            pass
    finally:
        say("finally")
def serve(function):
    try:
        function()
    except BaseException as exc:
        say(type(exc).__name__, getattr(exc, "code", ""))
        raise
"""
ALONE = """
def main():
    coro.spawn(spin)
    try:
        coro.sleep(1000)
    finally:
        say("main's finally")
serve(lambda: coro.run(main))
"""


class Program:
    def __init__(self, source, **more):
        self.process = subprocess.Popen(
            [sys.executable, "-c", START + textwrap.dedent(source)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, **more,
        )  # fmt: skip
        self.pid = self.process.pid

    def expect(self, *lines):
        for line in lines:
            found = self.process.stdout.readline()
            assert found == line + "\n", (found, self.process.stderr.read() if not found else "")

    def send(self, signum):
        self.process.send_signal(signum)

    def ended(self):
        out, err = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, out, "".join(
            line for line in err.splitlines(keepends=True) if " High Latency: (" not in line
        )

    def kill(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def start():
    programs = []

    def begin(source, **more):
        programs.append(Program(source, **more))
        return programs[-1]

    yield begin
    for one in programs:
        one.kill()


def noted(program):
    """Wait until the program's Python has handled a signal: its handler starts an OS thread."""
    while len(os.listdir(f"/proc/{program.pid}/task")) < 2:
        assert program.process.poll() is None


linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells when a signal was handled")


@linux
@pytest.mark.parametrize(
    ("signum", "raised", "code"), [("SIGINT", "KeyboardInterrupt ", -2), ("SIGTERM", "SystemExit 0", 0)]
)
def test_the_second_signal_interrupts_the_running_thread(start, signum, raised, code):
    program = start(ALONE)
    program.expect("spins")
    program.send(signal.Signals[signum])
    noted(program)
    program.send(signal.Signals[signum])
    program.expect("finally", "main's finally", raised)
    assert program.ended()[0] == code


def test_the_end_of_the_grace_period_does_so_too(start):
    program = start("from coro._entry import loop; loop.GRACE = 0.2" + ALONE)
    program.expect("spins")
    program.send(signal.SIGTERM)
    program.expect("finally", "main's finally", "SystemExit 0")
    assert program.ended() == (0, "", "")


def test_each_thread_is_interrupted_once_and_in_its_turn(start):
    program = start(
        """
        from coro._entry import loop; loop.GRACE = 0.2
        def stubborn():
            try:
                say("spins")
                while True: pass
            except coro.Shutdown:
                say("clean-up")
                end = time.monotonic() + 2.5
                while time.monotonic() < end: pass      # is left alone
                say("done")
        def main():
            coro.spawn(stubborn)
            coro.spawn(stubborn)
            coro.sleep(1000)
        serve(lambda: coro.run(main))
        """
    )
    program.expect("spins")
    program.send(signal.SIGINT)
    program.expect("clean-up", "done", "spins", "clean-up", "done", "KeyboardInterrupt ")


@linux
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_the_third_signal_ends_the_process(start, signum):
    program = start(
        """
        def forever():
            while True: pass
        def spin():
            say("spins")
            while True:
                try:
                    forever()
                except BaseException:
                    say("swallowed")
        def main():
            coro.spawn(spin, thread_name="x\\x1b[2J")
            coro.sleep(1000)
        serve(lambda: coro.run(main))
        """
    )
    program.expect("spins")
    program.send(signum)
    noted(program)
    program.send(signum)
    program.expect("swallowed")
    program.send(signum)
    code, _, err = program.ended()
    assert code == -signum
    assert err == f"{signum.name} for the third time: the process ends at once, while thread 2 (x\\x1b[2J) runs\n"


@linux
def test_code_in_c_has_to_return(start):
    program = start(
        """
        def computes():
            say("spins")
            while True:
                sum(range(30_000_000))
        def main():
            coro.spawn(computes)
            coro.sleep(1000)
        serve(lambda: coro.run(main))
        """
    )
    program.expect("spins")
    program.send(signal.SIGINT)
    noted(program)
    program.send(signal.SIGINT)
    program.expect("KeyboardInterrupt ")


def test_threads_that_give_way_are_not_interrupted(start):
    # Nothing but the usual Shutdown at a wait, although each works on for as long as it likes in its clean-up.
    program = start(
        """
        from coro._entry import loop; loop.GRACE = 30.0
        def works():
            try:
                coro.sleep(1000)
            except coro.Shutdown:
                end = time.monotonic() + 1.5
                while time.monotonic() < end:
                    sum(range(100_000))
                say("worked")
        def main():
            coro.spawn(works)
            coro.yield_slice()
            say("ready")
            coro.sleep(1000)
        serve(lambda: coro.run(main))
        """
    )
    program.expect("ready")
    program.send(signal.SIGTERM)
    program.expect("worked", "SystemExit 0")
    assert program.ended() == (0, "", "")


@linux
@pytest.mark.parametrize("signals", [1, 2])
def test_a_server_that_drains(start, signals):
    program = start(
        f"""
        def handler(conn, address):
            spin()
        def client():
            with coro.tcp_sock() as s:
                s.connect(addresses[0])
                s.recv(1)
        addresses = []
        def started(server):
            addresses.extend(server.addresses)
            coro.spawn(client)
        def main():
            coro.serve(handler, ("127.0.0.1", 0), drain_timeout={0.2 if signals == 1 else 60.0}, started=started)
            say("served", signal.getsignal(signal.SIGTERM) == coro._entry.loop._installed._handle)
        serve(lambda: coro.run(main))
        """
    )
    program.expect("spins")
    program.send(signal.SIGTERM)
    if signals == 2:
        noted(program)
        program.send(signal.SIGTERM)
    program.expect("finally", "served True")
    assert program.ended()[0] == 0


def test_a_prefork_worker_runs_its_clean_up(start):
    program = start(
        """
        def work(worker):
            worker.ready()
            spin()
        try:
            coro.prefork(1, work, drain_timeout=0.2)
        except BaseException as exc:
            say(repr(exc))
        say("parent", "ended")
        """
    )
    program.expect("spins")
    program.send(signal.SIGTERM)
    program.expect("finally", "parent ended")


def interrupt(pid, *options, **more):
    return subprocess.run(
        [sys.executable, "-m", "coro.debug", "--interrupt", str(pid), *options],
        capture_output=True, text=True, timeout=LIMIT, **more,
    )  # fmt: skip


@linux
def test_the_command_interrupts(start, tmp_path):
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    program = start(ALONE, env=environment)
    program.expect("spins")
    done = interrupt(program.pid, env=environment)
    assert done.returncode == 0, done.stderr
    program.expect("finally", "main's finally", "KeyboardInterrupt ")
    assert os.listdir(tmp_path / "coro") == []


@linux
def test_the_command_interrupts_nobody_else(start, tmp_path):
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    sleeper = subprocess.Popen(["sleep", "1000"])
    try:
        done = interrupt(sleeper.pid, env=environment)
        assert done.returncode == 1 and "has not imported coro" in done.stderr
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()
    program = start("signal.signal(signal.SIGINT, lambda *a: say('own')); say('ready'); sys.stdin.read()",
                    env=environment, stdin=subprocess.PIPE)  # fmt: skip
    program.expect("ready")
    done = interrupt(program.pid, "--wait", "0.3", env=environment)
    assert done.returncode == 1 and "coro did not take it within 0.3 s" in done.stderr
    program.expect("own")
    assert os.listdir(tmp_path / "coro") == []
    done = interrupt("x", env=environment)
    assert done.returncode == 2
    if os.getuid() == 0:
        other = subprocess.Popen(["sleep", "1000"], user=65534)
        try:
            done = interrupt(other.pid, env=environment)
            assert done.returncode == 1 and "belongs to user 65534" in done.stderr
            assert other.poll() is None
        finally:
            other.kill()
            other.wait()
