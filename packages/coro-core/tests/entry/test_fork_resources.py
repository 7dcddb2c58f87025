"""What a fork does to descriptors, signals, timers, stacks and counters: the child gets its own or none, and the parent
loses nothing. Who goes on in the child is in test_fork.py.
"""

import os
import textwrap

import pytest
from support import ok, program

pytestmark = pytest.mark.skipif(
    not os.path.isdir("/proc/self/fdinfo"), reason="looks into /proc/self, which only Linux has"
)

TOOLS = """
import warnings; warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: of forks beside other OS threads
import coro, gc, os, signal, sys
coro.set_latency_warning(0)  # on a busy machine a fork takes its time
def print(*values, flush=True):
    "A whole line at once: no buffer that a child would write again, no mixing of two processes."
    os.write(1, (" ".join(map(str, values)) + "\\n").encode())
def reap(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
def kinds():
    "What the descriptors of this process are, sockets and files left out."
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink("/proc/self/fd/" + fd)
        except OSError:
            continue  # that of the directory itself
        if name.startswith("anon_inode:"):
            found.append(name[11:].strip("[]"))
    return sorted(found)
def is_open(fd):
    return os.path.lexists(f"/proc/self/fd/{fd}")
def epoll_targets():
    "The parent's registrations, as the kernel tells them."
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            if "eventpoll" in os.readlink("/proc/self/fd/" + fd):
                with open("/proc/self/fdinfo/" + fd) as f:
                    found |= {" ".join(line.split()[:4]) for line in f if line.startswith("tfd")}
        except OSError:
            pass
    return found
def in_child(function, *args):
    "Fork; the exit code of the child, which is what the function returns, or 99 and a traceback."
    pid = os.fork()
    if pid:
        return coro.waitpid(pid)[1] >> 8 if coro._runtime.scheduler._in_loop_os_thread() else reap(pid)
    code = 99
    try:
        code = function(*args) or 0
    except BaseException:
        import traceback
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(code)
"""


def forking(source, *options):
    return ok(TOOLS + textwrap.dedent(source), *options)


# -- descriptors of the poller


def test_the_child_drops_the_poller_and_makes_its_own_when_needed():
    lines = forking(
        """
        def child():
            assert kinds() == [], kinds()
            coro.sleep_relative(0.001)
            assert kinds() == ["eventfd", "eventpoll", "timerfd"], kinds()
        def main():
            job = coro.process.spawn_job_bg(["sleep", "60"])
            coro.spawn(job.wait)                                # a pidfd
            a, b = coro.socketpair()
            coro.spawn(a.recv, 1)
            file = open(__import__("tempfile").mkstemp()[0])
            coro.spawn(coro.wait_for, file.fileno(), coro.EVFILT.VNODE, coro.NOTE.WRITE)  # inotify
            coro.sleep_relative(0.001)
            before = kinds()
            assert len(before) >= 5, before
            print(in_child(child))
            coro.sleep_relative(0.001)
            assert kinds() == before
            job.kill()
        coro.run(main)
        """
    )
    assert lines == ["0"]


def test_the_parents_registrations_stay_and_the_child_adds_none():
    """Whatever the child does with the same sockets: wait for them, close them."""
    lines = forking(
        """
        def child(pairs):
            assert pairs[0][0].closed and not pairs[0][1].closed
            for a, b in pairs:
                if not a.closed:
                    try:
                        coro.with_timeout(0.001, coro.wait_for, a.fileno(), coro.EVFILT.READ)
                    except coro.TimeoutError:
                        pass
                    a.close()
                b.close()
            x, y = coro.socketpair()
            coro.spawn(y.send, b"x")
            assert x.recv(1) == b"x"
        def main():
            pairs = [coro.socketpair() for _ in range(20)]
            got = []
            def reader(s):
                while data := s.recv(1):
                    got.append(data)
            readers = [coro.spawn(reader, a) for a, b in pairs[:10]]
            for a, b in pairs:
                b.send(b"1")
            coro.sleep_relative(0.001)
            before = epoll_targets()
            assert len(before) >= 10
            for _ in range(3):
                assert in_child(child, pairs) == 0
                assert epoll_targets() >= before
                for a, b in pairs:
                    b.send(b"2")
            for a, b in pairs:
                b.close()
            for t in readers:
                t.join()
            print(len(got), len(pairs[15][0].recv(100)))
        coro.run(main)
        """
    )
    assert lines == ["40 4"]


def test_nothing_is_shared_where_the_poller_was_made_before_the_fork_without_a_loop():
    lines = forking(
        """
        coro.set_handler((signal.SIGUSR1, coro.EVFILT.SIGNAL), print, coro.EV.ADD)
        before = kinds(), epoll_targets()
        def child():
            assert kinds() == [] and len(coro.event_map) == 0
            assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
            assert signal.set_wakeup_fd(-1) == -1
            coro.run(coro.sleep_relative, 0.001)
        print(in_child(child), (kinds(), epoll_targets()) == before, len(coro.event_map))
        """
    )
    assert lines == ["0 True 1"]


# -- sockets


def test_which_sockets_the_child_closes():
    """Those that another thread was just using: receiving, accepting, sending, or queued to send. No others."""
    lines = forking(
        """
        def main():
            listener = coro.tcp_sock()
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            shared = listener.dup()
            reading, peer_r = coro.socketpair()
            writing, peer_w = coro.socketpair()
            idle, peer_i = coro.socketpair()
            mine, peer_m = coro.socketpair()
            r, w = os.pipe()
            pipe, end = coro.fd_sock(r), coro.fd_sock(w)
            r, w = os.pipe()
            file = os.fdopen(r, "rb")
            of_file, other_end = coro.file_sock(file), coro.fd_sock(w)
            coro.spawn(listener.accept)
            coro.spawn(reading.recv, 1)
            coro.spawn(writing.sendall, bytes(10_000_000))
            coro.spawn(writing.sendall, bytes(10_000_000))
            coro.spawn(pipe.recv, 1)
            coro.spawn(of_file.recv, 1)
            coro.sleep_relative(0.001)
            theirs, others = (listener, reading, writing, pipe), (shared, idle, mine, of_file, end, peer_r)
            numbers = [s.fileno() for s in theirs]
            def child():
                assert all(s.closed for s in theirs)
                assert not any(is_open(n) for n in numbers)
                assert not any(s.closed for s in others)
                for s in theirs:
                    try:
                        s.recv(1)
                    except coro.ClosedError:
                        pass
                mine.send(b"m")
                assert peer_m.recv(1) == b"m"
                for wait in (of_file.recv, 1), (shared.accept,):      # nobody is in the way
                    try:
                        coro.with_timeout(0.001, *wait)
                    except coro.TimeoutError:
                        pass
            print(in_child(child))
            assert not any(s.closed for s in theirs + others)
            peer_r.send(b"r")
            coro.yield_slice()
        coro.run(main)
        """
    )
    assert lines == ["0"]


def test_a_peer_sees_the_parent_close_while_the_child_lives():
    lines = forking(
        """
        def main():
            a, b = coro.socketpair()
            def receive():
                try:
                    a.recv(1)
                except coro.ClosedError:
                    pass
            coro.spawn(receive)
            coro.yield_slice()
            pid = os.fork()
            if pid == 0:
                coro.sleep_relative(60)
                os._exit(1)
            a.close()
            print(b.recv(1))
            os.kill(pid, signal.SIGKILL)
            coro.waitpid(pid)
        coro.run(main)
        """
    )
    assert lines == ["b''"]


def test_from_another_os_thread_all_sockets_in_use_are_closed():
    lines = forking(
        """
        def main():
            a, b = coro.socketpair()
            coro.spawn(a.recv, 1)
            coro.yield_slice()
            def child():
                assert a.closed and not b.closed
                b.close()
            def forks():
                return in_child(child)
            print(coro.in_thread(forks))
            b.send(b"x")
        coro.run(main)
        """
    )
    assert lines == ["0"]


# -- signals


@pytest.mark.slow
def test_signals_of_the_child_never_reach_the_parents_handlers():
    """Not even those that come while it is being born, when the parent's signal pipe is still its own."""
    lines = forking(
        """
        from coro import signal_handler
        got = []
        def main():
            signal_handler.register(signal.SIGUSR1, got.append)
            coro.sleep_relative(0.001)
            codes = set()
            for _ in range(100):
                pid = os.fork()
                if pid == 0:
                    signal.pause()
                    os._exit(0)
                os.kill(pid, signal.SIGUSR1)
                codes.add(os.waitstatus_to_exitcode(coro.waitpid(pid)[1]))
            assert codes == {-signal.SIGUSR1}, codes
            assert got == []
            assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
            os.kill(os.getpid(), signal.SIGUSR1)
            while not got:
                coro.sleep_relative(0.001)
            print(got == [signal.SIGUSR1])
        coro.run(main)
        """
    )
    assert lines == ["True"]


def test_nothing_is_blocked_and_the_wakeup_descriptor_is_as_before_the_loop():
    lines = forking(
        """
        r, w = os.pipe()
        os.set_blocking(w, False)
        signal.set_wakeup_fd(w, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
        def child():
            assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == {signal.SIGUSR2}
            assert signal.set_wakeup_fd(-1) == w
        def main():
            coro.sleep_relative(0.001)
            print(in_child(child), coro.in_thread(in_child, child))
            assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == {signal.SIGUSR2}
        coro.run(main)
        print(signal.set_wakeup_fd(-1) == w)
        """
    )
    assert lines == ["0 0", "True"]


def test_sigterm_ends_the_loop_that_a_child_has_and_the_process_where_it_has_none():
    lines = forking(
        """
        def ready_then_killed(body):
            r, w = os.pipe()
            pid = os.fork()
            if pid == 0:
                body(w)
                os._exit(9)
            os.read(r, 1)
            os.kill(pid, signal.SIGTERM)
            return reap(pid)
        def sleeps_in_loop(w):
            os.write(w, b"!")
            try:
                coro.sleep_relative(60)
            except coro.Shutdown:
                print("in order", flush=True)
                raise
        def sleeps_without(w):
            import time
            os.write(w, b"!")
            time.sleep(60)
        def main():
            coro.sleep_relative(0.001)
            print(coro.in_thread(ready_then_killed, sleeps_without), flush=True)
            print(ready_then_killed(sleeps_in_loop), flush=True)
            coro.sleep_relative(0.001)
            return "parent lives"
        print(coro.run(main))
        """
    )
    assert lines == ["-15", "in order", "0", "parent lives"]


# -- what other threads had


def test_no_clean_up_of_other_threads_ever_runs_in_the_child():
    """Neither finally blocks nor finalisers of what their stacks hold, through collections, the end of the loop and of
    the interpreter."""
    lines = forking(
        """
        parent = os.getpid()
        class Speaks:
            def __del__(self):
                print("finaliser", os.getpid() == parent, flush=True)
        def generator(it):
            try:
                yield it
            finally:
                print("generator", os.getpid() == parent, flush=True)
        def victim(n):
            it = Speaks()
            cycle = [it]
            cycle.append(cycle)
            g = generator(Speaks())
            next(g)
            try:
                try:
                    1 / 0
                except ZeroDivisionError:
                    coro.sleep_relative(0.01) if n else coro._yield()
            finally:
                print("finally", os.getpid() == parent, flush=True)
        def never_runs(it):
            print("ran", os.getpid() == parent, flush=True)
        def churn(n):
            x = [bytes(100)] * 50
            return n and churn(n - 1)
        def main():
            waiting = coro.spawn(victim, 0)
            sleeping = coro.spawn(victim, 1)
            coro.yield_slice()
            fresh = coro.spawn(never_runs, Speaks())
            pid = os.fork()
            if pid == 0:
                assert waiting.dead and sleeping.dead and fresh.dead
                assert waiting.exception is None and waiting.waiting_for is None and waiting.get_frame() is None
                repr(waiting), coro.where_all()
                del waiting, sleeping, fresh
                gc.collect()
                for _ in range(200):
                    coro.spawn(churn, 30)
                coro.sleep_relative(0.02)
                gc.collect()
                for frame in [f for f in gc.get_objects() if type(f).__name__ == "frame"]:
                    while frame is not None:
                        frame.f_lineno, frame.f_locals
                        frame = frame.f_back
                return 0
            print("child", coro.waitpid(pid)[1], flush=True)
            waiting.schedule()
            sleeping.join()
            waiting.join()
        coro.run(main)
        """
    )
    expected = ["finaliser True"] * 5 + ["finally True"] * 2 + ["generator True"] * 2 + ["ran True"]
    assert sorted(lines) == ["child 0", *expected]


@pytest.mark.parametrize("slots", [1, 3, 64])
def test_stacks_of_the_child_are_sound(slots):
    lines = forking(
        f"coro.set_stack_slots({slots})\n"
        + textwrap.dedent(
            """
            def deep(n, total=0):
                x = [n] * 10
                if n == 0:
                    coro.sleep_relative(0.001)
                    return total
                result = deep(n - 1, total + n)
                assert x == [n] * 10
                return result
            def parked(n):
                def inner():
                    yield coro._yield()
                return next(inner())
            def child(threads):
                assert all(t.dead for t in threads)
                with coro.group() as g:
                    mine = [g.spawn(deep, n % 40) for n in range(150)]
                assert [t.result for t in mine] == [n % 40 * (n % 40 + 1) // 2 for n in range(150)]
                assert sum(coro._runtime.scheduler._slot_owners()) == 1
            def main():
                threads = [coro.spawn(parked, n) for n in range(100)]
                threads[3].compress = True
                coro.yield_slice()
                coro.compress(threads[7])
                print(in_child(child, threads))
                print(coro.in_thread(in_child, coro.run, child, []))
                for t in threads:
                    t.schedule(t.id)
                for t in threads:
                    t.join()
                print([t.result for t in threads] == [t.id for t in threads])
            coro.run(main)
            """
        )
    )
    assert lines == ["0", "0", "True"]


@pytest.mark.parametrize(
    "busy", ["coro.sleep_relative, 60", "coro.in_thread, __import__('time').sleep, 0.3", "a.recv, 1", "bomb"]
)
def test_a_standstill_of_the_child_is_found_whatever_others_waited_for(busy):
    lines = forking(
        f"""
        def bomb():
            with coro.timeout(60):
                coro._yield()
        def main():
            a, b = coro.socketpair()
            t = coro.spawn({busy})
            coro.sleep_relative(0.001)
            pid = os.fork()
            if pid == 0:
                assert coro.statistics().timers == 0
                coro._yield()
            print(coro.in_thread(reap, pid), flush=True)
        try:
            coro.run(main)
        except coro.DeadlockError:
            print("DeadlockError", flush=True)
            os._exit(4)
        """
    )
    assert lines == ["DeadlockError", "4"]


def test_time_limits_of_the_forking_thread_stay():
    lines = forking(
        """
        def child():
            try:
                with coro.timeout(0.02):
                    with coro.timeout(60):
                        coro._yield()
            except coro.TimeoutError:
                return 5
        def main():
            with coro.timeout(60):
                print(in_child(child))
                with coro.shield(60):
                    print(in_child(child))
        coro.run(main)
        """
    )
    assert lines == ["5", "5"]


def test_counters_start_again():
    lines = forking(
        """
        def child():
            s = coro.statistics()
            assert (s.switches, s.polls, s.spawned, s.timers, s.posts_waiting) == (0, 0, 0, 0, 0), s
            assert (s.threads, s.counted_threads) == (1, 1), s
            assert coro.get_live_coros() <= 2, coro.get_live_coros()
            coro.spawn(int).join()
            assert coro.statistics().spawned == 1
            assert coro.offload.statistics()["workers"] == 0
        def main():
            for _ in range(50):
                coro.spawn(coro.sleep_relative, 0.02)
            coro.in_thread(int)
            coro.yield_slice()
            print(in_child(child))
        coro.run(main)
        """
    )
    assert lines == ["0"]


def test_posted_calls_run_in_the_parent_only():
    lines = forking(
        """
        def child():
            coro.sleep_relative(0.002)
            coro.post(print, "posted by the child")
            coro.sleep_relative(0.002)
        def main():
            coro.post(print, "once")
            print(in_child(child), flush=True)
            coro.yield_slice()
        coro.run(main)
        """
    )
    assert sorted(lines) == ["0", "once", "posted by the child"]


def test_a_job_of_the_parent_is_not_the_childs_to_kill():
    lines = forking(
        """
        from coro import oserrors, process
        def main():
            with process.spawn_job_bg("cat", process.PIPE, process.PIPE) as job:
                t = coro.spawn(job.wait)
                coro.yield_slice()
                pid = os.fork()
                if pid == 0:
                    for call in job.wait, job.kill, job.killpg:
                        try:
                            call()
                        except oserrors.ECHILD:
                            pass
                        else:
                            os._exit(8)
                    try:
                        with job:
                            raise KeyError
                    except KeyError:
                        assert job.stdin.closed
                        os._exit(7)
                print(coro.in_thread(reap, pid))
                job.stdin.sendall(b"alive")
                print(job.stdout.recv(100))
        coro.run(main)
        """
    )
    assert lines == ["7", "b'alive'"]


def test_a_warning_that_is_an_error_comes_in_the_parent_only():
    """Python 3.12 and later warn of forks beside other OS threads, in the parent, after the fork."""
    done = program(
        """
        import coro, os, sys
        def main():
            coro.in_thread(int)
            try:
                pid = os.fork()
            except DeprecationWarning:
                coro.sleep_relative(0.001)
                print("warned")
                return
            if pid == 0:
                os._exit(0)
            print("not warned")
        coro.run(main)
        """,
        "-Werror",
    )
    assert (done.code, done.err) == (0, "")
    assert done.lines[0] in ("warned", "not warned")
