"""os.fork inside programs that use coro. Only the plainest promises: the child may end at once, may run a loop of its
own, and disturbs its parent's loop in no way.
"""

import warnings

import pytest
from support import ok

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
    assert ok(CHILD_IN_THREAD.format(child=child)) == ["7", "[b'still']"]


def test_timers_of_the_parent_do_not_fire_in_the_child():
    lines = ok(
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
    lines = ok(
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
    lines = ok(
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
    lines = ok(
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


def test_multiprocessing_by_fork():
    lines = ok(
        """
        import coro, multiprocessing
        def child(queue):
            queue.put(coro.coro_is_running())
        def main():
            context = multiprocessing.get_context("fork")
            reader, writer = context.Pipe(False)
            p = context.Process(target=child_main, args=(writer,))
            p.start()
            p.join()
            print(reader.recv(), p.exitcode)
        def child_main(writer):
            writer.send("from the child")
        coro.run(main)
        """
    )
    assert lines == ["from the child 0"]


def test_no_warnings_here():
    """Python warns of a fork beside other OS threads; coro starts none of its own accord."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source = "import coro, os; coro.run(int); pid = os.fork(); pid or os._exit(0); os.waitpid(pid, 0)"
        assert ok(source, "-Werror") == []
