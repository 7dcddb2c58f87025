"""What programs written for the original Shrapnel find under `coro.`: every name, and what came with importing it.

The original replaced `time.time`, installed its DNS cache, and leaked `os`, `sys` and internal classes through a star
import that hid the built-in TimeoutError and NameError.
"""

import builtins
import sys

import pytest
from support import ok, program

import coro
from coro import signal_handler

NAMES = """
coro new spawn current schedule _yield yield_slice all_threads get_thread_by_id get_live_coros where where_all
event_loop set_exit set_print_exit_string coro_is_running event_loop_is_running install_signal_handlers sigterm_handler
fork waitpid with_timeout sleep_relative sleep_absolute now now_usec get_now get_usec ticks_per_sec ticks_per_usec
microseconds absolute_time_to_ticks ticks_to_absolute_time absolute_time_to_ticks_safe ticks_to_absolute_time_safe
absolute_secs_to_ticks ticks_to_absolute_secs ctime_ticks ctime_usec update_time_relation tick_updater
tick_update_interval set_latency_warning set_selfishness in_parallel InParallelError SUCCESS FAILURE Interrupted
TimeoutError Shutdown ScheduleError DeadCoroutine NotStartedError YieldFromMain SimultaneousError ClosedError WakeUp
LockError NameError set_exception_notifier default_exception_notifier exception_notifier compact_traceback
traceback_data print_stderr P write_stderr W saved_stderr wait_for set_handler event_map EV EVFILT NOTE py_kevent
kevent_key kevent_target EFILT py_event event_key signalfd_handler sock file_sock coro_fd fd_sock tcp_sock udp_sock
tcp6_sock udp6_sock unix_sock make_socket socketpair has_ipv6 get_live_sockets set_resolver get_resolver dummy_resolver
AF PF SOCK SHUT SOL SO aio_read aio_write aio_stats many_lio_reads many_lio_writes pack_blocks_for_write
lio_listio_error MAX_LIO MAX_AIO_SIZE semaphore inverted_semaphore mutex rw_lock condition_variable fifo ThreadLocal
get_refcnt get_module_name UNAME __versions__ event_queue oserrors lru optional read_stream signal_handler
""".split()

#: Names that a star import must not bring along: they would hide built-in exceptions, or change from moment to moment.
NOT_BY_STAR = {
    "TimeoutError", "NameError", "now", "now_usec", "install_signal_handlers", "__versions__", "lru", "optional",
    "read_stream", "signal_handler",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there(name):
    getattr(coro, name)
    assert (name in coro.__all__) is (name not in NOT_BY_STAR)


def test_names_that_are_two_names():
    assert coro.P is coro.print_stderr and coro.W is coro.write_stderr
    assert coro.coro_fd is coro.file_sock
    assert coro.py_event is coro.py_kevent and coro.event_key is coro.kevent_key
    assert coro.EFILT.READ == coro.EVFILT.READ and coro.EFILT.WRITE == coro.EVFILT.WRITE
    assert isinstance(coro.event_queue, type)
    assert (coro.SUCCESS, coro.FAILURE) == ("success", "failure")
    assert signal_handler.register_signal_handler is signal_handler.register


def test_a_star_import_hides_no_built_in_name_and_leaks_nothing():
    scope = {}
    exec("from coro import *", scope)
    del scope["__builtins__"]
    assert set(scope) == set(coro.__all__)
    assert not set(scope) & set(dir(builtins))
    modules = [name for name, value in scope.items() if type(value) is type(sys)]
    assert modules == ["oserrors"]


def test_an_attribute_that_does_not_exist():
    with pytest.raises(AttributeError, match="no attribute 'corutine'"):
        coro.corutine  # noqa: B018


def test_importing_does_nothing_else():
    """No OS thread, no descriptor, no signal handler, nothing replaced, no DNS; nor does a loop replace anything."""
    assert (
        ok(
            """
            import os, signal, sys, threading, time
            def state():
                handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
                return (len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0,
                        threading.active_count(), handlers, signal.set_wakeup_fd(-1), time.time, time.sleep,
                        threading.Lock, sys.stderr, sys.excepthook)
            before = state()
            import coro
            assert state() == before, (before, state())
            assert "coro.dns" not in sys.modules
            seen = []
            coro.run(lambda: seen.append((time.time, time.sleep, threading.Lock)))
            assert seen == [(before[4], before[5], before[6])]
            assert state() == before, (before, state())
            """
        )
        == []
    )


def test_functions_imported_before_the_loop_work_in_it():
    """The original rebound `coro.with_timeout` and `coro.sleep_relative` when a loop began: whoever had imported the
    names before kept versions that blocked the whole process."""
    assert ok(
        """
            from coro import TimeoutError, run, sleep_relative, spawn, with_timeout
            log = []
            sleep_relative(0.001)
            def main():
                spawn(log.append, "went on")
                try:
                    with_timeout(0.001, sleep_relative, 100)
                except TimeoutError:
                    print(log)
            run(main)
            sleep_relative(0.001)
            """
    ) == ["['went on']"]


def test_the_last_pass_is_the_present():
    """`coro.now` and `coro.now_usec` stand still within a pass of the loop and are the same moment."""

    def main():
        first = coro.now, coro.now_usec
        before = coro.get_now()
        while coro.get_now() == before:
            pass
        assert (coro.now, coro.now_usec) == first
        assert coro.ticks_to_absolute_time(coro.now) == coro.now_usec
        assert coro.now <= before
        coro.sleep_relative(0.001)
        assert coro.now > before

    coro.run(main)


def test_writing_to_stderr():
    """With the thread's number and the time in front, a newline added where it is missing, and never an error, not
    even for text that cannot be encoded or a stream that is closed."""
    outcome = program(
        """
        import coro, sys
        sys.stderr = None  # the stream of the time of the import is the one that counts
        coro.print_stderr("from main")
        def main():
            coro.P("from a thread\\n")
            coro.W("plain")
            coro.write_stderr("\\udc80\\n")
        coro.run(main)
        coro.saved_stderr.close()
        coro.print_stderr("nobody hears")
        coro.write_stderr("nor this")
        """
    )
    assert outcome.code == 0
    first, second, third = outcome.err.split("\n", 2)
    number, text = first.split("\t")
    assert (number, text[-9:], len(text)) == ("-1:", "from main", 24 + 1 + 9)
    assert second.startswith("1:\t") and second.endswith(" from a thread")
    assert third.startswith("plain")


def test_small_helpers():
    assert coro.get_module_name("/usr/lib/thing/part.py") == "thing/part.py"
    with pytest.raises(TypeError, match="text"):
        coro.get_module_name(b"part.py")
    thing = object()
    before = coro.get_refcnt(thing)
    more = [thing] * 3
    assert coro.get_refcnt(thing) == before + len(more)
    assert isinstance(coro.UNAME, str) and coro.UNAME
    assert all(name.lower().startswith("coro-") for name in coro.__versions__)


def test_the_handler_of_sigterm_ends_a_loop():
    with pytest.raises(SystemExit) as e:
        coro.run(lambda: (coro.sigterm_handler(15, None), coro.sleep_relative(100)))
    assert e.value.code == 0


def test_signals_under_their_linux_name():
    assert ok(
        """
            import coro, os, signal
            def main():
                me = coro.current()
                coro.signalfd_handler(signal.SIGUSR1, lambda number: (print(number == signal.SIGUSR1), me.schedule()))
                os.kill(os.getpid(), signal.SIGUSR1)
                coro.sleep_relative(100)
            coro.run(main)
            """
    ) == ["True"]


def test_a_thread_that_updates_the_time_relation():
    """Needless now, but old programs spawn it."""
    from coro._clock import ticks

    def main():
        t = coro.spawn(coro.tick_updater)
        coro.yield_slice()
        assert t.waiting_for is not None and not t.dead
        t.shutdown()
        t.join()

    coro.run(main)
    assert coro.tick_update_interval == ticks.tick_update_interval == 3600
    with pytest.raises(coro.YieldFromMain):
        coro.tick_updater()


def test_whether_an_event_loop_runs_is_told_as_a_truth_value_and_by_a_call():
    assert not coro.event_loop_is_running and coro.event_loop_is_running() is False
    running = coro.event_loop_is_running

    def look():
        return bool(coro.event_loop_is_running), coro.event_loop_is_running(), bool(running)

    assert coro.run(look) == (True, True, True)
    assert not running and repr(running) == "<coro.event_loop_is_running: False>"


def test_tsc_time_is_there_with_coro_clocks():
    """Or its absence says where it comes from; importing coro does not import it."""
    try:
        from coro.clocks import tsc_time
    except ModuleNotFoundError:
        with pytest.raises(AttributeError, match="coro-clocks"):
            coro.tsc_time  # noqa: B018
        return
    assert coro.tsc_time is tsc_time
    assert ok("import coro, sys; print('coro.clocks' in sys.modules)") == ["False"]


def test_what_belongs_to_prefork_is_found_at_the_function():
    from coro.prefork import __all__ as names

    module = sys.modules["coro.prefork"]
    assert coro.prefork is module.prefork
    for name in set(names) - {"prefork"}:
        assert getattr(coro.prefork, name) is getattr(module, name)
