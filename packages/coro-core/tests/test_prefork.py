"""coro.prefork: workers behind one address, and what happens when they, or their parent, die.

The supervisor runs in a process of its own, started by Supervised, and prints its events, which the tests wait for;
nothing sleeps to let things happen. Workers that are meant to hang do so until they are killed.

Longer than most files here: every kind of end of a worker is tried with both ways to share the address, by the same few
helpers.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections import Counter
from functools import partial

import pytest
from support import ok

import coro
from coro import oserrors
from coro.prefork import Prefork, PreforkError

pytestmark = pytest.mark.usefixtures("leaves_nothing")

LIMIT = 60  # seconds; for a machine that is busy with other things

PROGRAM = """
import coro, os, signal, sys, time
from coro.prefork import Prefork

def say(*words):
    # in one piece, also where several processes write
    os.write(1, ("|".join(map(str, words)) + "\\n").encode())

def tell(e):
    say(*e)

def handler(conn, address):
    # the first line says who serves; the rest is an echo
    conn.sendall(b"%d\\n" % os.getpid())
    while data := conn.recv(1000):
        conn.sendall(data)

def serve(worker):
    worker.serve(handler)

options = dict(on_event=tell, drain_timeout=60)
workers = 2
address = ("127.0.0.1", 0)
{}
p = Prefork(workers, serve, address, **options)
reachable = bool(p.addresses) and isinstance(p.addresses[0], tuple)
say("listens", p.addresses[0][1] if reachable else 0)
try:
    say("end", p.run())
except Exception as e:
    say("error", type(e).__name__, e)
"""


class Supervised:
    """A running supervisor; with `own_group` in a process group of its own, whose number is its pid."""

    def __init__(self, source="", workers=2, own_group=False):
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(textwrap.dedent(source))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0 if own_group else None,
        )
        self.events = []
        self.port = int(self.event("listens")[1])
        self.pids = [int(self.event("ready")[2]) for _ in range(workers)]

    def event(self, *kinds):
        """The next event of one of these kinds."""
        while True:
            line = self.process.stdout.readline().rstrip("\n").split("|")
            if line == [""]:
                _, err = self.process.communicate()
                pytest.fail(f"the supervisor ended while {kinds} was expected: {self.events} {err}")
            self.events.append(line)
            if line[0] in kinds:
                return line

    def all(self, kind, number):
        """The events of a kind since the start, once there are so many; for those that come in any order."""
        while sum(e[0] == kind for e in self.events) < number:
            self.event(kind)
        return [e for e in self.events if e[0] == kind]

    def send(self, signum):
        self.process.send_signal(signum)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT)

    def ask(self):
        """Which process serves a new connection?"""
        with self.connect() as s:
            return first_line(s)

    def end(self, signum=signal.SIGTERM):
        """Its last line."""
        if signum is not None:
            self.send(signum)
        last = self.event("end", "error")
        assert self.process.wait(LIMIT) == 0
        return last

    def __enter__(self):
        return self

    def __exit__(self, kind, exc, traceback):
        self.process.kill()
        _, err = self.process.communicate(timeout=LIMIT)
        if kind is None:
            self.stderr = err


def first_line(s):
    """The number in the first line that comes from a socket."""
    with s.makefile() as f:
        return int(f.readline())


def gone(pid):
    """Has it ended? It may be a zombie: orphans are reaped by whoever adopted them, at his leisure."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def until(condition):
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def stop_process(pid):
    """Stop it, and wait until it is."""
    os.kill(pid, signal.SIGSTOP)

    def stopped():
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] == "T"

    until(stopped)


MODES = pytest.mark.parametrize("mode", ["", "options['reuse_port'] = True"], ids=["shared", "reuse_port"])


# -- the ordinary life


@MODES
def test_workers_serve_and_end_with_sigterm(mode):
    with Supervised(mode) as p:
        seen = set()
        until(lambda: seen.add(p.ask()) or len(seen) == 2 or not mode and len(seen) == 1)
        assert seen <= set(p.pids)
        last = p.end()
        assert "processes=0, ready=0, started=2, failed=0, killed=0, reloads=0" in last[1]
        assert all(gone(pid) for pid in p.pids)
        with pytest.raises(ConnectionRefusedError):
            p.connect()
    assert p.stderr == ""


def test_sigint_to_the_group_ends_it_in_order():
    with Supervised(own_group=True) as p:
        with p.connect() as s, s.makefile() as f:
            f.readline()
            os.killpg(p.process.pid, signal.SIGINT)
            p.event("stopping")
            s.sendall(b"still served")
            assert s.recv(100) == b"still served"
        p.end(None)
    assert p.stderr == ""


def test_workers_know_who_they_are_and_hold_nothing_of_the_parent():
    source = """
        def handler(conn, address):
            fds = os.listdir("/proc/self/fd")
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
            conn.sendall(f"{os.getppid()} {who.index} {who.generation} {len(fds)} {len(mask)}".encode())
        def serve(worker):
            global who
            who = worker
            worker.serve(handler)
        """
    with Supervised(source) as p:
        seen = set()
        while len(seen) < 2:
            # stop the others one after the other: which worker answers is the kernel's choice
            for pid in p.pids:
                stop_process(pid)
                with p.connect() as s, s.makefile() as f:
                    parent, *rest = map(int, f.read().split())
                os.kill(pid, signal.SIGCONT)
                assert parent == p.process.pid
                seen.add(tuple(rest))
        assert [who[:2] for who in sorted(seen)] == [(0, 0), (1, 0)]
        assert len({who[2:] for who in seen}) == 1  # the second worker inherited no more than the first
        assert {who[3] for who in seen} == {0}
        p.end()


def test_no_address():
    """Workers that do something else. They are ready at once, and are told to end by an event."""
    source = """
        address = None
        def serve(worker):
            worker.stopping.wait()
            say("told")
        """
    with Supervised(source) as p:
        p.send(signal.SIGTERM)
        p.all("told", 2)
        p.end(None)


def test_unix_path(tmp_path):
    path = tmp_path / "s"
    with Supervised(f"address = {str(path)!r}") as p:
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(path))
            assert first_line(s) in p.pids
        os.kill(p.pids[0], signal.SIGKILL)
        p.event("ready")
        assert path.exists()
        p.end()
    assert not path.exists()


def test_other_servers_of_a_worker_drain_too():
    source = """
        def serve(worker):
            admin = coro.Server(handler, ("127.0.0.1", 0)).start()
            if worker.index == 0:
                say("admin", admin.addresses[0][1])
            coro.serve(handler, worker.listeners, max_connections=10)
            admin.wait()
        """
    with Supervised(source) as p:
        port = int(p.all("admin", 1)[0][1])
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as s:
            assert s.recv(100)
            p.send(signal.SIGTERM)
            p.event("exited")  # the worker without a connection
            s.sendall(b"x")
            assert s.recv(1) == b"x"
        p.end(None)


# -- ends of workers


@MODES
def test_a_killed_worker_is_replaced(mode):
    with Supervised(mode) as p:
        with p.connect() as s:
            victim = first_line(s)
            os.kill(victim, signal.SIGKILL)
            failed = p.event("failed")
            assert int(failed[2]) == victim and "signal 9" in failed[3]
            ready = p.event("ready")
            assert ready[1] == failed[1] and int(ready[2]) not in p.pids
        assert p.ask() in {*p.pids, int(ready[2])} - {victim}
        assert "failed=1" in p.end()[1]


def test_a_worker_that_returns_is_replaced():
    """A way to have fresh processes; this one takes no time, which counts, but for less than what is allowed."""
    source = """
        def serve(worker):
            if worker.generation == 0:
                worker.ready()
            else:
                worker.serve(handler)
        """
    with Supervised(source) as p:
        p.all("ready", 4)
        exits = p.all("exited", 2)
        assert len(exits) == 2 and all("status 0" in e[3] for e in exits)
        p.end()


def test_a_crash_loop_is_given_up():
    source = """
        options["restart_limit"] = 2
        def serve(worker):
            raise RuntimeError("no configuration")
        """
    with Supervised(source, workers=0) as p:
        last = p.end(None)
        assert last[1] == "PreforkError" and "ended by themselves 5 times" in last[2] and "status 70" in last[2]
        assert sum(e[0] == "started" for e in p.events) >= 4
    assert p.stderr.count("RuntimeError: no configuration") >= 5


def test_pauses_between_restarts_double():
    source = """
        workers = 1
        options["restart_limit"] = 4
        at = []
        def tell(e):
            if e.kind == "started":
                at.append(time.monotonic())
        options["on_event"] = tell
        sys.modules["coro.prefork._supervisor"].BACKOFF_FIRST = 0.02
        def serve(worker):
            os._exit(3)
        import atexit
        atexit.register(lambda: say("pauses", *(round(b - a, 3) for a, b in zip(at, at[1:]))))
        """
    with Supervised(source, workers=0) as p:
        assert p.event("error")[1] == "PreforkError"
        pauses = [float(x) for x in p.event("pauses")[1:]]
    assert len(pauses) == 4
    for pause, least in zip(pauses, (0, 0.02, 0.04, 0.08), strict=True):
        assert pause >= least


def test_without_descriptors_the_workers_stay_and_it_is_tried_again():
    source = """
        import resource, socket
        sys.modules["coro.prefork._supervisor"].BACKOFF_FIRST = 0.02
        hogs, limits = [], resource.getrlimit(resource.RLIMIT_NOFILE)
        tries, refused = [], 0
        def socketpair(*args, real=socket.socketpair):      # what each attempt to start a worker begins with
            tries.append(time.monotonic())
            return real(*args)
        socket.socketpair = socketpair
        def tell(e):
            global refused
            say(*e)
            if e.kind == "ready" and not hogs and len(p.pids) == 2 and p.statistics().ready == 2:
                limit = max(map(int, os.listdir("/proc/self/fd"))) + 3
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limits[1]))
                try:
                    while True:
                        hogs.append(os.dup(0))
                except OSError:
                    pass
                os.kill(p.pids[0], signal.SIGKILL)          # its own descriptor comes back, one is not enough
            if e.kind == "failed" and e.pid is None:
                refused += 1
                if refused == 4:
                    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
                    for fd in hogs:
                        os.close(fd)
                    say("pauses", *(b - a for a, b in zip(tries[-4:], tries[-3:])))
        options["on_event"] = tell
        """
    with Supervised(source, workers=2) as p:
        assert "signal 9" in p.event("failed")[3]
        refused = [p.event("failed") for _ in range(4)]
        assert all(e[1:3] == ["0", "None"] and "cannot be started" in e[3] for e in refused)
        # From the begin of an attempt, which is before the pause is decided on, to that of the next.
        pauses = [float(x) for x in p.event("pauses")[1:]]
        assert all(pause >= least for pause, least in zip(pauses, (0.02, 0.04, 0.08), strict=True)), pauses
        p.event("ready")
        assert str(p.ask()) in [e[2] for e in p.events if e[0] == "ready"]
        last = p.end()
    assert last[0] == "end" and not any(e[0] == "killed" for e in p.events)
    assert sum(e[0] == "exited" for e in p.events) == 2


def test_a_reload_that_finds_no_descriptors_leaves_the_old_workers():
    source = """
        import resource
        workers = 1
        hogs, limits = [], resource.getrlimit(resource.RLIMIT_NOFILE)
        def tell(e):
            say(*e)
            if e.kind == "reloading":
                limit = max(map(int, os.listdir("/proc/self/fd"))) + 3
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limits[1]))
                try:
                    while True:
                        hogs.append(os.dup(0))
                except OSError:
                    pass
            if e.kind == "reload failed":
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
                for fd in hogs:
                    os.close(fd)
        options["on_event"] = tell
        """
    with Supervised(source, workers=1) as p:
        p.send(signal.SIGHUP)
        assert "cannot be started" in p.event("reload failed")[3]
        assert p.ask() == p.pids[0]
        p.end()


@pytest.mark.slow
def test_a_worker_that_is_never_ready_is_killed():
    source = """
        workers = 1
        options.update(start_timeout=0.3, restart_limit=0)
        def serve(worker):
            coro.sleep_relative(1000)
        """
    with Supervised(source, workers=0) as p:
        assert "ready()" in p.event("killed")[3]
        assert p.event("error")[1] == "PreforkError"


def test_exit_codes():
    source = """
        workers = 1
        options["restart_limit"] = 0
        def serve(worker):
            worker.ready()
            sys.exit(5)
        """
    with Supervised(source, workers=1) as p:
        assert "status 5" in p.event("failed")[3]
        p.event("error")


# -- draining


@MODES
def test_connections_are_finished_before_the_end(mode):
    with Supervised(mode) as p:
        with p.connect() as s, s.makefile() as f:
            f.readline()
            p.send(signal.SIGTERM)
            p.event("exited")  # the other one
            s.sendall(b"take your time")
            assert s.recv(100) == b"take your time"
        p.end(None)


@MODES
def test_clients_that_wait_to_be_accepted_are_served_and_later_ones_refused(mode):
    with Supervised(mode) as p:
        for pid in p.pids:
            stop_process(pid)
        clients = [p.connect() for _ in range(10)]
        p.send(signal.SIGTERM)
        p.event("stopping")
        for pid in p.pids:
            os.kill(pid, signal.SIGCONT)
        for c in clients:
            assert first_line(c) in p.pids

        def refused():
            try:
                p.connect().close()
            except ConnectionError:
                return True

        until(refused)
        for c in clients:
            c.close()
        p.end(None)


def test_late_handlers_get_shutdown():
    source = """
        workers = 1
        options["drain_timeout"] = 0.1
        def handler(conn, address):
            try:
                conn.sendall(b"begun")
                coro.sleep_relative(1000)
            finally:
                conn.sendall(b"ended")
        """
    with Supervised(source, workers=1) as p, p.connect() as s:
        assert s.recv(5) == b"begun"
        p.send(signal.SIGTERM)
        assert s.recv(5) == b"ended"
        assert "killed=0" in p.end(None)[1]


def test_a_second_signal_means_now():
    source = """
        workers = 1
        def serve(worker):
            worker.ready()
            while True:
                time.sleep(1000)
        """
    with Supervised(source, workers=1) as p:
        p.send(signal.SIGTERM)
        p.event("stopping")
        p.send(signal.SIGTERM)
        p.event("killed")
        assert "killed=1" in p.end(None)[1]


@pytest.mark.slow
def test_a_worker_that_hangs_is_killed_in_the_end():
    source = """
        workers = 1
        options["drain_timeout"] = 0
        def serve(worker):
            worker.ready()
            while True:
                try:
                    while True:
                        pass
                except coro.Shutdown:
                    pass
        """
    with Supervised(source, workers=1) as p:
        p.send(signal.SIGTERM)
        assert "in time" in p.event("killed")[3]
        p.end(None)


@pytest.mark.slow
def test_a_worker_that_ignores_its_end_is_ended_by_its_loop():
    source = """
        workers = 1
        options["drain_timeout"] = 0
        def serve(worker):
            worker.ready()
            coro.sleep_relative(1000)
        """
    with Supervised(source, workers=1) as p:
        assert "killed=0" in p.end()[1]


# -- reload


def answered_by(p, pids, lost):
    """Does one of these processes answer? An exception of the class `lost` is no answer."""
    try:
        return p.ask() in pids
    except lost:
        return False


@MODES
def test_reload(mode):
    with Supervised(mode) as p:
        with p.connect() as s, s.makefile() as f:
            old = int(f.readline())
            p.send(signal.SIGHUP)
            fresh = {int(p.event("ready")[2]) for _ in range(2)}
            p.event("reloaded")
            assert not fresh & set(p.pids)
            # The last of the old ones may not have looked yet. With a listener of its own, it then resets who is in its
            # queue as it closes; the one listener of all loses nobody.
            lost = ConnectionResetError if mode else ()
            until(lambda: answered_by(p, fresh, lost))
            s.sendall(b"an old connection goes on")
            assert s.recv(100) == b"an old connection goes on"
        p.all("exited", 2)
        assert gone(old)
        assert "reloads=1" in p.end()[1]


def test_reload_that_fails_leaves_the_old_workers():
    source = """
        def serve(worker):
            if worker.generation:
                raise RuntimeError("the new configuration is wrong")
            worker.serve(handler)
        """
    with Supervised(source) as p:
        p.send(signal.SIGHUP)
        assert "before it was ready" in p.event("reload failed")[3]
        assert p.ask() in p.pids
        last = p.end()
        assert "reloads=0" in last[1] and "failed=1" in last[1]
    assert "the new configuration is wrong" in p.stderr


def test_reload_during_a_reload():
    with Supervised() as p:
        p.send(signal.SIGHUP)
        p.event("reloading")
        p.send(signal.SIGHUP)
        p.event("reloaded")
        p.event("reloaded")
        assert "reloads=2" in p.end()[1]


def test_stop_and_reload_by_callbacks():
    source = """
        def tell(e):
            global p
            say(*e)
            ready = p.statistics().ready
            if e.kind == "ready" and ready == 2 and not p.statistics().reloads and p.statistics().started == 2:
                p.reload()
            if e.kind == "reloaded":
                p.stop()
            if e.kind == "stopping":
                raise KeyError("a callback that fails")
        options["on_event"] = tell
        """
    with Supervised(source) as p:
        p.event("reloaded")
        assert "reloads=1" in p.end(None)[1]
    assert "a callback that fails" in p.stderr


# -- the death of the parent


def test_workers_do_not_outlive_their_parent():
    """They drain, as after SIGTERM."""
    with Supervised() as p, p.connect() as s:
        old = first_line(s)
        p.process.kill()
        p.process.wait(LIMIT)
        other = next(pid for pid in p.pids if pid != old)
        until(lambda: gone(other))
        s.sendall(b"finished in peace")
        assert s.recv(100) == b"finished in peace"
        s.close()
        until(lambda: gone(old))


@pytest.mark.slow
def test_busy_workers_do_not_outlive_their_parent_either():
    source = """
        options["drain_timeout"] = 0
        def serve(worker):
            worker.ready()
            while True:
                pass
        """
    with Supervised(source) as p:
        p.process.kill()
        p.process.wait(LIMIT)
        until(lambda: all(gone(pid) for pid in p.pids))


# -- nothing is stranded in a shared queue


def test_connections_are_not_left_to_a_worker_that_was_woken_and_does_not_accept():
    """One worker stands still, as if it had been woken and not got any further; then it dies."""
    with Supervised() as p:
        for victim in p.pids:
            stop_process(victim)
            others = {p.ask() for _ in range(20)}
            assert victim not in others
            os.kill(victim, signal.SIGKILL)
            p.event("failed")
            p.pids.append(int(p.event("ready")[2]))
            if len(p.pids) == 4:
                break
        p.end()


# Replacements of dead workers accept nothing.
FIRST_ONES_ONLY = """
def serve(worker):
    if worker.generation == 0:
        worker.serve(handler, max_connections=most)
    worker.stopping.wait()
"""


def test_connections_that_nobody_could_accept_are_found_by_the_survivor():
    """All workers are woken and stand still while clients queue. One of them dies, the other goes on."""
    with Supervised("most = None" + FIRST_ONES_ONLY) as p:
        for pid in p.pids:
            stop_process(pid)
        clients = [p.connect() for _ in range(5)]
        os.kill(p.pids[0], signal.SIGKILL)
        p.event("failed")
        os.kill(p.pids[1], signal.SIGCONT)
        for c in clients:
            assert first_line(c) == p.pids[1]
            c.close()
        p.end()


def test_a_worker_at_its_limit_finds_what_queued_meanwhile():
    """Its wake-up came when it had no room; the other worker dies without accepting."""
    with Supervised("most = 1" + FIRST_ONES_ONLY) as p, p.connect() as a:
        full = first_line(a)
        other = next(pid for pid in p.pids if pid != full)
        stop_process(other)
        with p.connect() as b:
            os.kill(other, signal.SIGKILL)
            p.event("failed")
            a.close()
            assert first_line(b) == full
        p.end()


# -- under load

ANSWERING = """
import sys
sys.modules["coro.prefork._supervisor"].BACKOFF_MOST = 0.05
options["restart_limit"] = 1000
options["restart_window"] = 1.0

def handler(conn, address):
    n = conn.recv(100)
    coro.yield_slice()
    conn.sendall(b"%d\\n" % os.getpid())

def serve(worker):
    worker.serve(handler)
"""


def load(port, number, parallel, disturb, enough):
    """Many short connections, and more until ``enough()``; ``disturb()`` is called again and again meanwhile. What
    became of each client."""
    outcome = Counter()
    lost = []
    begun = itertools.count()

    def client():
        while next(begun) < number or not enough():
            try:
                s = coro.connect("127.0.0.1", port)
            except OSError as e:
                outcome[f"connect: {type(e).__name__}"] += 1
                continue
            with s:
                mine = s.getsockname()[1]
                try:
                    s.sendall(b"x")
                    answer = s.recv(100)
                except (oserrors.ECONNRESET, oserrors.EPIPE):
                    answer = b""
            if answer:
                outcome["served"] += 1
            else:
                outcome["lost"] += 1
                lost.append(mine)

    def disturber():
        while True:
            disturb()

    with coro.group() as g:
        d = coro.spawn(disturber, daemon=True)
        for _ in range(parallel):
            g.spawn(client)
    d.shutdown()
    d.join()
    return outcome, lost


def under_load(mode, disturb, number=4000):
    """Run the load against a supervisor; outcome, lost clients, pids of workers that failed."""
    with Supervised(mode + ANSWERING) as p:
        signals = []
        outcome, lost = coro.run(load, p.port, number, 30, partial(disturb, p, signals), lambda: len(signals) >= 5)
        p.end()
        failed = [int(e[2]) for e in p.events if e[0] == "failed"]
        reloads = sum(e[0] == "reloaded" for e in p.events)
    return outcome, lost, failed, reloads, p.stderr


def peers_of(pid):
    """The remote ports of all TCP connections that a process has, as the kernel tells it."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            name = os.readlink(f"/proc/{pid}/fd/{fd}")
            if name.startswith("socket:["):
                inodes.add(name[len("socket:[") : -1])
    with open("/proc/net/tcp") as f:
        rows = [line.split() for line in f][1:]
    return {int(row[2].partition(":")[2], 16) for row in rows if row[9] in inodes}


def is_stopped(pid):
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rpartition(")")[2].split()[0] in "tTZX"


def kill_one(p, signals, held=None):
    """kill -9 of a worker; which ones there are is what /proc says. ``held`` gets the ports of the clients that it had
    accepted by then: it is stopped first, so that this is exact."""
    coro.sleep_relative(0.15)
    with open(f"/proc/{p.process.pid}/task/{p.process.pid}/children") as f:
        children = [int(pid) for pid in f.read().split()]
    if children:
        victim = children[len(signals) % len(children)]
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            if held is not None:
                os.kill(victim, signal.SIGSTOP)
                while not is_stopped(victim):
                    coro.sleep_relative(0.001)
                held |= peers_of(victim)
            os.kill(victim, signal.SIGKILL)
        signals.append(victim)


@pytest.mark.slow
def test_killed_workers_lose_what_they_have_accepted_and_nothing_else(tmp_path):
    held = set()
    outcome, lost, failed, _, err = under_load("", partial(kill_one, held=held))
    print(f"shared listener, {len(failed)} workers killed: {dict(outcome)}")
    assert err == ""
    assert len(failed) >= 2
    assert not [what for what in outcome if what.startswith("connect")]
    strangers = set(lost) - held
    assert not strangers, f"{len(strangers)} were lost that no killed worker had accepted"


@pytest.mark.slow
def test_killed_workers_with_reuse_port_lose_their_queue(tmp_path):
    """Counted and printed; what is lost depends on the kernel."""
    outcome, lost, failed, _, _ = under_load("options['reuse_port'] = True\n", kill_one)
    print(f"SO_REUSEPORT, {len(failed)} workers killed: {dict(outcome)}")
    assert len(failed) >= 2
    assert outcome["served"] > 3000


def hang_up(p, signals):
    coro.sleep_relative(0.3)
    p.send(signal.SIGHUP)
    signals.append(signal.SIGHUP)


@pytest.mark.slow
def test_reload_under_load_loses_nothing(tmp_path):
    outcome, _, failed, reloads, err = under_load("", hang_up)
    print(f"shared listener, {reloads} reloads: {dict(outcome)}")
    assert (err, failed) == ("", [])
    assert reloads >= 1  # several signals may come during one
    assert set(outcome) == {"served"}


def end_once(p, signals):
    coro.sleep_relative(0.3)
    if not signals:
        p.send(signal.SIGTERM)
    signals.append(signal.SIGTERM)


@pytest.mark.slow
@MODES
def test_the_end_under_load_loses_nothing(mode):
    """Who is connected is served, who is not is refused. CORO_PREFORK_ENDS: how often."""
    for _ in range(int(os.environ.get("CORO_PREFORK_ENDS", "2"))):
        with Supervised(mode + ANSWERING) as p:
            signals = []
            outcome, _ = coro.run(load, p.port, 2000, 30, partial(end_once, p, signals), partial(any, signals))
            p.end(None)
        print(dict(outcome))
        assert p.stderr == ""
        assert outcome["served"] > 100
        assert set(outcome) <= {"served", "connect: ECONNREFUSED"}


@pytest.mark.slow
def test_reload_with_reuse_port_under_load(tmp_path):
    outcome, _, failed, reloads, _ = under_load("options['reuse_port'] = True\n", hang_up)
    print(f"SO_REUSEPORT, {reloads} reloads: {dict(outcome)}")
    assert reloads >= 1 and failed == []
    assert outcome["served"] > 3900


# -- misuse


def serve_nothing(worker):
    pass


@pytest.mark.parametrize(
    "arguments, options, error",
    [
        ((), {}, TypeError),
        ((0, serve_nothing), {}, ValueError),
        (("2", serve_nothing), {}, TypeError),
        ((True, serve_nothing), {}, TypeError),
        ((1, None), {}, TypeError),
        ((1, serve_nothing, 80), {}, TypeError),
        ((1, serve_nothing), {"on_event": 1}, TypeError),
        ((1, serve_nothing), {"drain_timeout": -1}, ValueError),
        ((1, serve_nothing), {"start_timeout": None}, TypeError),
        ((1, serve_nothing), {"restart_limit": -1}, ValueError),
        ((1, serve_nothing), {"restart_window": "1"}, TypeError),
        ((1, serve_nothing, ("127.0.0.1", 0)), {"backlog": None}, TypeError),
        ((1, serve_nothing, ("not a name", 0)), {}, coro.NameError),
        ((1, serve_nothing, ("192.0.2.1", 0)), {}, oserrors.EADDRNOTAVAIL),
    ],
)
def test_misuse(arguments, options, error):
    with pytest.raises(error) as e:
        coro.prefork(*arguments, **options)
    assert str(e.value)


def test_reuse_port_is_for_tcp(tmp_path):
    with pytest.raises(ValueError, match="UNIX"):
        coro.prefork(1, serve_nothing, tmp_path / "s", reuse_port=True)


def test_closed_without_having_run(tmp_path):
    p = Prefork(1, serve_nothing, ("127.0.0.1", 0))
    p.close()
    p.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(p.addresses[0])
    with pytest.raises(PreforkError, match="close"):
        p.run()
    p.stop()  # nobody is there to hear it
    with pytest.raises(KeyError), Prefork(1, serve_nothing, tmp_path / "s") as p:
        assert (tmp_path / "s").exists()
        raise KeyError
    assert not (tmp_path / "s").exists()


def test_not_closed_while_it_runs():
    with Supervised(
        """
        def tell(e):
            if e.kind == "ready":
                try:
                    p.close()
                except Exception as error:
                    say("close", error)
            say(*e)
        options["on_event"] = tell
        """
    ) as p:
        assert "stop()" in p.all("close", 2)[0][1]
        p.end()


def test_where_it_can_be_called():
    lines = ok(
        """
        import coro, threading
        def attempt():
            try:
                coro.prefork(1, print)
            except Exception as e:
                print(type(e).__name__)
        coro.run(attempt)
        t = threading.Thread(target=attempt)
        t.start()
        t.join()
        """
    )
    assert lines == ["LoopError", "WrongThreadError"]


def test_defaults_and_what_stays_behind():
    """One worker per processor; afterwards signals are handled as before, and a loop can run."""
    lines = ok(
        """
        import coro, os, signal
        from coro.prefork import Prefork
        before = [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)]
        def serve(worker):
            worker.stopping.wait()
        def tell(e):
            if p.statistics().ready == len(os.sched_getaffinity(0)):
                p.stop()
        p = Prefork(None, serve, on_event=tell)
        fds = len(os.listdir("/proc/self/fd"))
        s = p.run()
        print(s.started == len(os.sched_getaffinity(0)), s.failed, s.processes, p.pids)
        print(before == [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)])
        print(signal.set_wakeup_fd(-1), len(os.listdir("/proc/self/fd")) == fds)
        try:
            p.run()
        except Exception as e:
            print(type(e).__name__)
        print(coro.run(lambda: "a loop"))
        """
    )
    assert lines == ["True 0 0 []", "True", "-1 True", "PreforkError", "a loop"]
