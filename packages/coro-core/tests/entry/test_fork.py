"""Forking: what goes on in the child, depending on where the fork happened. What becomes of descriptors, signals and
memory is in test_fork_resources.py, multiprocessing in test_fork_multiprocessing.py.

Each program forks in a process of its own, and its parent goes on afterwards to show that it took no harm.
"""

import re
import textwrap
import warnings
from pathlib import Path

import pytest
from support import ok, program

from coro._entry import fork

pytestmark = pytest.mark.poller

#: Python 3.12 and later warn of forks beside other OS threads, and on a busy machine a fork takes its time.
QUIET = (
    "import warnings; warnings.simplefilter('ignore', DeprecationWarning)\nimport coro; coro.set_latency_warning(0)\n"
)

#: Ends the child, and has the parent wait for it and print its exit code.
REAP = """
import os
def reap(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def forking(source):
    """The output of a program that may use ``reap``."""
    return ok(QUIET + REAP + textwrap.dedent(source))


CHILD_IN_THREAD = """
    import coro, os
    def main():
        a, b = coro.socketpair()
        log = []
        def reader():
            log.append(a.recv(10))
        t = coro.spawn(reader)
        coro.yield_slice()
        pid = os.fork()
        if pid == 0:
            {child}
            os._exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        b.send(b"still")  # the parent's registrations are intact
        t.join()
        coro.sleep_relative(0.002)
        print(log)
    coro.run(main)
"""


@pytest.mark.parametrize(
    "child",
    [
        "pass",
        "coro.sleep_relative(0.002)",
        "coro.yield_slice()",
        "coro.spawn(int, '3').join()",
        "x, y = coro.socketpair(); coro.spawn(y.send, b'x'); assert x.recv(1) == b'x'",
        "assert len(coro.all_threads) == 1 and t.dead",
        "assert coro.in_thread(int, '5') == 5",
    ],
)
def test_fork_in_a_thread_leaves_the_child_this_thread_alone(child):
    assert forking(CHILD_IN_THREAD.format(child=child)) == ["7", "[b'still']"]


def test_timers_of_the_parent_do_not_fire_in_the_child():
    lines = forking(
        """
        import coro, os
        def late():
            coro.sleep_relative(0.002)
            print("late", flush=True)
        def main():
            t = coro.spawn(late)
            coro.yield_slice()
            pid = os.fork()
            if pid == 0:
                coro.sleep_relative(0.02)
                os._exit(0)
            os.waitpid(pid, 0)
            t.join()
        coro.run(main)
        """
    )
    assert lines == ["late"]


def test_a_time_limit_around_the_fork_holds_in_both():
    lines = forking(
        """
        import coro, os, sys
        def body():
            pid = os.fork()
            try:
                coro._yield()
            finally:
                if pid:
                    os.waitpid(pid, 0)
        def main():
            try:
                coro.with_timeout(0.002, body)
            except coro.TimeoutError:
                print("timeout", flush=True)
        coro.run(main)
        """
    )
    assert lines == ["timeout", "timeout"]


def test_fork_before_and_after_a_loop():
    lines = forking(
        """
        import coro, os
        def both():
            pid = os.fork()
            if pid:
                os.waitpid(pid, 0)
            print(coro.run(lambda: (coro.sleep_relative(0.001), "ran")[1]), flush=True)
            if pid == 0:
                os._exit(0)
        both()
        both()
        """
    )
    assert lines == ["ran"] * 4


def test_fork_from_another_os_thread_leaves_the_child_without_a_loop():
    lines = forking(
        """
        import coro, os, threading, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 warns of forks beside other OS threads
        def other():
            pid = os.fork()
            if pid == 0:
                print(coro.coro_is_running(), len(coro.all_threads), coro.current().id, flush=True)
                try:
                    coro.post(int)
                except coro.LoopError:
                    print("LoopError", flush=True)
                print(coro.run(lambda: (coro.sleep_relative(0.001), "a loop of its own")[1]), flush=True)
                os._exit(0)
            os.waitpid(pid, 0)
        def main():
            t = threading.Thread(target=other)
            t.start()
            while t.is_alive():
                coro.sleep_relative(0.002)
            print("parent")
        coro.run(main)
        """
    )
    assert lines == ["False 0 -1", "LoopError", "a loop of its own", "parent"]


def test_no_warnings_here():
    """Python warns of a fork beside other OS threads; coro starts none of its own accord."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source = "import coro, os; coro.run(int); pid = os.fork(); pid or os._exit(0); os.waitpid(pid, 0)"
        assert ok(source, "-Werror") == []


# -- without a loop


def test_what_was_made_before_the_loop_is_there_in_both():
    """Sockets, threads and posted calls; nothing of it has begun, so nothing is lost."""
    lines = forking(
        """
        import coro
        listener = coro.tcp_sock()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = listener.getsockname()
        def serve():
            conn, _ = listener.accept()
            conn.sendall(b"served")
            conn.close()
        def ask():
            s = coro.tcp_sock()
            s.connect(address)
            print(s.recv_exact(6), flush=True)
        coro.spawn(serve)
        coro.post(ask)
        pid = os.fork()
        if pid:
            print(reap(pid), flush=True)
        coro.set_print_exit_string(False)
        coro.event_loop()
        if not pid:
            os._exit(5)
        """
    )
    assert lines == ["b'served'", "5", "b'served'"]


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_worker_process_forked_by_a_main_without_loop(where):
    """The plain way of servers with several processes: a listener, forks, a loop in each, signals handled in each."""
    lines = forking(
        f"""
        import coro, signal
        from coro import signal_handler
        where = {where!r}
        if where == "after":
            coro.run(coro.sleep_relative, 0.001)
        listener = coro.tcp_sock()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        signal_handler.register(signal.SIGHUP, print)  # makes the poller's kernel objects
        def worker():
            got = coro.channel(1)
            signal_handler.register(signal.SIGHUP, got.put)
            os.write(w, b"!")
            got.get()
            conn, _ = listener.accept()
            conn.sendall(b"%d" % os.getpid())
            conn.close()
        pids = []
        for i in range(3):
            r, w = os.pipe()
            pid = os.fork()
            if pid == 0:
                coro.run(worker)
                os._exit(9)
            pids.append(pid)
            os.read(r, 1)
        def master():
            for pid in pids:
                os.kill(pid, signal.SIGHUP)
            seen = set()
            for _ in pids:
                s = coro.tcp_sock()
                s.connect(listener.getsockname())
                seen.add(int(s.recv(100)))
                s.close()
            assert seen == set(pids), (seen, pids)
            print([os.waitstatus_to_exitcode(coro.waitpid(pid)[1]) for pid in pids])
        coro.run(master)
        """
    )
    assert lines == ["[9, 9, 9]"]


# -- who goes on in the child, and how it ends


ENDS = """
    import coro, sys
    def forker():
        pid = coro.fork()
        if pid:
            print("child:", coro.in_thread(reap, pid), flush=True)
        else:
            coro.sleep_relative(0.001)
            {child}
    def main():
        t = coro.spawn(forker)
        t.join()
        coro.sleep_relative(0.001)
        return "main's"
    result = coro.run(main)
    print("run:", result, flush=True)
    {end}
"""


@pytest.mark.parametrize(
    ("child", "expected"),
    [
        ("return 'child of a thread'", ["run: child of a thread", "child: 0", "run: main's"]),
        ("sys.exit(7)", ["child: 7", "run: main's"]),
        ("os._exit(8)", ["child: 8", "run: main's"]),
        ("coro.set_exit(6)", ["child: 6", "run: main's"]),
        (
            "coro.spawn(coro.sleep_relative, 60); return 'others shut down'",
            ["run: others shut down", "child: 0", "run: main's"],
        ),
    ],
)
def test_in_the_child_the_forking_thread_takes_the_place_of_main(child, expected):
    assert forking(ENDS.format(child=child, end="sys.exit()")) == expected


def test_an_exception_of_the_forking_thread_leaves_run_in_the_child():
    done = program(QUIET + REAP + textwrap.dedent(ENDS.format(child="raise KeyError('oops')", end="")))
    assert done.code == 0
    assert done.lines == ["child: 1", "run: main's"]
    assert "KeyError: 'oops'" in done.err
    assert ", in run" in done.err  # it left the child's run(), and was not told by the notifier as well
    assert done.err.count("KeyError: 'oops'") == 1


def test_main_itself_forks_and_run_returns_in_both():
    lines = forking(
        """
        import coro
        def main():
            pid = coro.fork()
            if pid:
                return "parent", reap(pid)
            coro.sleep_relative(0.001)
            return "child", 0
        print(coro.run(main), flush=True)
        """
    )
    assert lines == ["('child', 0)", "('parent', 0)"]


def test_event_loop_goes_on_with_the_forking_thread_and_its_own():
    lines = forking(
        """
        import coro
        coro.set_print_exit_string(False)
        def other():
            coro.sleep_relative(0.01)
            print("other", os.getpid() == parent, flush=True)
        def late():
            coro.sleep_relative(0.002)
            print("late", os.getpid() == parent, flush=True)
        def forker():
            pid = coro.fork()
            if pid:
                reap(pid)
            else:
                coro.spawn(late)
        parent = os.getpid()
        coro.spawn(other)
        coro.spawn(forker)
        coro.event_loop()
        print("end", flush=True)
        """
    )
    assert lines == ["late False", "end", "other True", "end"]


# -- from where it can happen


def test_from_a_handler():
    """A handler is a thread like any other; the registration itself stays with the parent."""
    lines = forking(
        """
        import coro
        done = coro.event()
        def tick(event):
            pid = os.fork()
            if pid == 0:
                coro.sleep_relative(0.01)
                assert len(coro.event_map) == 0
                os._exit(3)
            print(reap(pid))
            done.set()
        def main():
            coro.set_handler((1, coro.EVFILT.TIMER), tick, data=1)
            done.wait()
        coro.run(main)
        """
    )
    assert lines == ["3"]


@pytest.mark.parametrize("end", ["os._exit(4)", "return"])
def test_from_a_signal_handler_of_python_that_interrupts_the_loop(end):
    """It may run in main, outside any thread: then no thread goes on in the child, and its loop ends."""
    lines = forking(
        f"""
        import coro, signal, sys
        pids = []
        def handler(signum, frame):
            assert coro.current().id == -1
            pid = os.fork()
            if pid == 0:
                {end}
            pids.append(pid)
        signal.signal(signal.SIGUSR1, handler)
        def main():
            coro._runtime.scheduler._post_internal(signal.raise_signal, signal.SIGUSR1)  # in main
            coro.sleep_relative(0.001)
            print(reap(pids[0]))
            return "main"
        result = coro.run(main)
        if not pids:
            sys.exit(4 if result is None else 5)
        """
    )
    assert lines == ["4"]


@pytest.mark.parametrize("load", ["idle", "busy"])
def test_from_another_os_thread(load):
    """Whatever the loop was doing then. With a busy one a thread of it is caught in the middle of its work."""
    lines = forking(
        f"load = {load!r}"
        + """
import coro, threading
stop = False
def spin(n):
    while not stop:
        coro.yield_slice() if n % 2 else sorted(range(50), key=lambda x: -x)
        coro.sleep_relative(0)
def child():
    import gc
    assert not coro.coro_is_running() and not coro.event_loop_is_running() and coro.all_threads == {}
    assert not [c for c in gc.callbacks if "note_collection" in repr(c)]
    gc.collect()
    def deep(n):
        coro.sleep_relative(0.001)
        return n and deep(n - 1)
    def main():
        with coro.group() as g:
            for _ in range(100):
                g.spawn(deep, 3)
        return coro.in_thread(int, "7")
    assert coro.run(main) == 7
    assert coro.run(main) == 7
def forks():
    codes = []
    for _ in range(10):
        pid = os.fork()
        if pid == 0:
            try:
                child()
                os._exit(3)
            finally:
                os._exit(1)
        codes.append(reap(pid))
    print(codes)
def main():
    global stop
    if load == "busy":
        for n in range(20):
            coro.spawn(spin, n)
    t = threading.Thread(target=forks)
    t.start()
    while t.is_alive():
        coro.sleep_relative(0.002)
    stop = True
coro.run(main)
"""
    )
    assert lines == [str([3] * 10)]


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("return 'unheard'", 0),
        ("raise SystemExit(5)", 5),
        ("raise SystemExit('words')", 1),
        ("raise KeyError", 1),
        ("os._exit(6)", 6),
    ],
)
def test_in_a_worker_of_in_thread(end, code):
    done = program(
        QUIET
        + REAP
        + f"""
import coro
def job():
    pid = os.fork()
    if pid:
        return pid
    assert coro.run(lambda: coro.in_thread(coro.offload.statistics)["workers"]) == 1
    print("from the child")
    {"import sys; sys.stdout.flush()" if "_exit" in end else ""}
    {end}
def main():
    pid = coro.in_thread(job)
    print(coro.in_thread(reap, pid), coro.offload.statistics()["busy"])
coro.run(main)
"""
    )
    assert (done.code, done.lines) == (0, ["from the child", f"{code} 0"])
    assert done.err.splitlines()[-1:] == (["words"] if "words" in end else ["KeyError"] if "KeyError" in end else [])


def test_inside_no_switch():
    lines = forking(
        """
        import coro
        def main():
            with coro.no_switch():
                pid = os.fork()
                if pid == 0:
                    try:
                        coro.sleep_relative(0.001)
                    except coro.NoSwitchError:
                        print("refused", flush=True)
            if pid == 0:
                coro.sleep_relative(0.001)
                os._exit(2)
            print(reap(pid))
        coro.run(main)
        """
    )
    assert lines == ["refused", "2"]


def test_nested_forks():
    lines = forking(
        """
        import coro, threading
        def sleeper():
            coro.sleep_relative(60)
        def level(n):
            a, b = coro.socketpair()
            coro.spawn(a.recv, 1)
            coro.spawn(sleeper)
            coro.sleep_relative(0.001)
            if n == 0:
                os._exit(10)
            pid = os.fork()
            if pid == 0:
                coro.spawn(level, n - 1) if n % 2 else level(n - 1)
                coro._yield()
            code = reap(pid)
            coro.sleep_relative(0.001)
            if n < 6:
                os._exit(code + 1)
            print(code)
        coro.run(level, 6)
        """
    )
    assert lines == ["15"]


def test_alternating_forks_in_the_loop_and_beside_it():
    lines = forking(
        """
        import coro, threading
        def level(n):
            coro.spawn(coro.sleep_relative, 60)
            coro.yield_slice()
            if n == 0:
                os._exit(20)
            codes = []
            def beside():
                pid = os.fork()
                if pid == 0:
                    level(n - 1) if coro.coro_is_running() else coro.run(level, n - 1)
                codes.append(reap(pid))
            if n % 2:
                beside()
            else:
                coro.in_thread(beside)
            if n < 5:
                os._exit(codes[0] + 1)
            print(codes)
        coro.run(level, 5)
        """
    )
    assert lines == ["[24]"]


@pytest.mark.parametrize("grace", ["5.0", "0"])
def test_while_the_loop_ends(grace):
    lines = forking(
        f"""
        import coro, sys
        def victim():
            try:
                coro.sleep_relative(60)
            finally:
                pid = os.fork()
                if pid:
                    print("reaped", reap(pid), flush=True)
                else:
                    try:
                        with coro.shield(1):
                            coro.sleep_relative(0.001)
                    except coro.Shutdown:
                        pass
                    print("child cleaned up", flush=True)
        def bystander():
            try:
                coro.sleep_relative(60)
            finally:
                print("bystander", flush=True)
        def main():
            coro.spawn(victim)
            coro.spawn(bystander)
            coro.yield_slice()
            coro.set_exit(3, grace={grace})
            coro.sleep_relative(60)
        try:
            coro.run(main)
        except SystemExit as e:
            print("exit", e.code, flush=True)
        """
    )
    assert sorted(lines) == sorted(["child cleaned up", "exit 3", "reaped 0", "bystander", "exit 3"])


def test_in_a_finaliser_that_the_collector_runs():
    lines = forking(
        """
        import coro, gc
        class Cycle:
            def __init__(self):
                self.me = self
            def __del__(self):
                self.pid = os.fork()
                pids.append(self.pid)
        pids = []
        def main():
            Cycle()
            gc.collect()
            if pids[0] == 0:
                coro.sleep_relative(0.001)
                gc.collect()
                os._exit(3)
            print(reap(pids[0]))
        coro.run(main)
        """
    )
    assert lines == ["3"]


def test_a_preexec_fn_of_subprocess():
    lines = forking(
        """
        import coro, subprocess
        def main():
            a, b = coro.socketpair()
            t = coro.spawn(a.recv, 5)
            coro.yield_slice()
            print(subprocess.run(["echo", "x"], preexec_fn=lambda: coro.sleep_relative(0.001)).returncode, flush=True)
            b.send(b"alive")
            t.join()
            print(t.result)
        coro.run(main)
        """
    )
    assert lines == ["x", "0", "b'alive'"]


def test_a_barrier_counts_nobody_who_is_lost():
    """Two of three had come before the fork; in the child it takes three again, and nobody dead is among them."""
    assert ok("""
        import os, coro
        def main():
            barrier, places = coro.barrier(3), []
            come = lambda: places.append(barrier.wait())
            waiters = [coro.spawn(come) for _ in range(2)]
            coro.yield_slice()
            pid = os.fork()
            if pid == 0:
                print(barrier.statistics().waiting, barrier.waiting)
                threads = [coro.spawn(come) for _ in range(2)]
                coro.yield_slice()
                print(places, barrier.statistics().waiting)
                threads.append(coro.spawn(come))
                for t in threads:
                    t.join()
                print(sorted(places), barrier.statistics().waiting, flush=True)
                os._exit(0)
            assert coro.waitpid(pid)[1] == 0
            come()
            for t in waiters:
                t.join()
            print(sorted(places))
        coro.run(main)
    """) == ["0 ()", "[] 2", "[0, 1, 2] 0", "[0, 1, 2]"]


def test_every_hook_of_a_room_stands_in_the_one_list():
    """And nobody else registers one, but for the emulation, which encloses those of the program."""
    source = Path(__file__).parents[2] / "src" / "coro"
    with_hooks, registering = set(), set()
    for path in sorted(path for kind in ("py", "pyx", "pxi") for path in source.rglob(f"*.{kind}")):
        file, text = path.relative_to(source), path.read_text(encoding="utf-8")
        if "def _after_fork_in_child(" in text:
            with_hooks.add(".".join(("coro", *file.with_suffix("").parts)))
        if re.search(r"register_at_fork\(\s*(?:before|after_)", text):
            registering.add(file.as_posix())
    named_there = {"coro._runtime.parts.fork", "coro._net.sock", "coro._entry.fork"}
    assert with_hooks == {*fork._TABLES, *named_there}
    assert registering == {"_entry/fork.py", "emulation/_modules/os.py"}


def test_a_signal_handler_that_raises_between_the_hooks_leaves_the_parent_in_order():
    """The signal trips just before fork(2), so that its handler runs at the first bytecode afterwards."""
    lines = ok(
        """
        import ctypes, functools, os, signal, subprocess, sys
        trip = functools.partial(ctypes.PyDLL(None)["raise"], int(signal.SIGUSR1))
        os.register_at_fork(before=trip)
        import coro

        class Raised(Exception):
            pass

        def handler(signum, frame):
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            raise Raised

        SHOW = "import signal; print(len(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"

        def main():
            other = coro.spawn(coro.sleep_relative, 1000)
            coro.yield_slice()
            parent = os.getpid()
            signal.signal(signal.SIGUSR1, handler)
            try:
                os.fork()
            except Raised:
                pass
            if os.getpid() != parent:
                os._exit(not other.dead)
            print(os.waitpid(-1, 0)[1], other.dead)
            other.shutdown()
            # A real fork(2), not vfork: the program inherits the mask of this OS thread.
            started = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, user=os.getuid())
            print(started.stdout.strip())

        coro.run(main)
        """,
        "-Wignore",
    )
    assert lines == ["0 False", "0"]
