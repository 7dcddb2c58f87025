"""with_timeout and sleep_relative without a loop: SIGALRM and a plain sleep, from coro and from coro.optional."""

import signal
import threading
import time

import pytest
from support import ok

import coro
from coro import optional

BOTH = pytest.mark.parametrize("module", [coro, optional], ids=["coro", "optional"])


@pytest.fixture(autouse=True)
def alarm_unchanged():
    before = signal.getsignal(signal.SIGALRM)
    yield
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@BOTH
def test_results_and_arguments(module):
    assert module.with_timeout(5, lambda *a, **k: (a, k), 1, timeout=2) == ((1,), {"timeout": 2})
    with pytest.raises(KeyError):
        module.with_timeout(5, {}.__getitem__, 1)


@BOTH
def test_expiry(module):
    before = time.monotonic()
    with pytest.raises(coro.TimeoutError) as info:
        module.with_timeout(0.005, time.sleep, 100)
    assert time.monotonic() - before < 10
    assert info.value.__suppress_context__


@BOTH
@pytest.mark.parametrize("delta", [0, -1, -1e300])
def test_no_time_at_all(module, delta):
    with pytest.raises(coro.TimeoutError):
        module.with_timeout(delta, time.sleep, 100)


@BOTH
def test_all_the_time_in_the_world(module):
    assert module.with_timeout(float("inf"), int, "3") == 3
    assert module.with_timeout(1e300, int, "3") == 3


@BOTH
def test_nested(module):
    def body():
        with pytest.raises(coro.TimeoutError):
            module.with_timeout(0.005, time.sleep, 100)
        time.sleep(100)

    with pytest.raises(coro.TimeoutError):
        module.with_timeout(0.015, body)

    def inner():
        module.with_timeout(100, time.sleep, 100)

    with pytest.raises(coro.TimeoutError):
        module.with_timeout(0.005, inner)


@BOTH
def test_sleep(module):
    before = time.monotonic()
    assert module.sleep_relative(0.005) is None
    assert time.monotonic() - before >= 0.004
    for delta in (0, -1, -1e300):
        assert module.sleep_relative(delta) is None


@BOTH
def test_wrong_arguments(module):
    for wrong in ("1", None, [], object()):
        with pytest.raises(TypeError, match="number of seconds"):
            module.with_timeout(wrong, int)
        with pytest.raises(TypeError, match="number of seconds"):
            module.sleep_relative(wrong)
    with pytest.raises(ValueError, match="NaN"):
        module.with_timeout(float("nan"), int)
    with pytest.raises(ValueError, match="NaN"):
        module.sleep_relative(float("nan"))


@BOTH
def test_without_a_loop_and_outside_the_main_os_thread(module):
    box = []

    def body():
        try:
            module.with_timeout(1, int)
        except coro.YieldFromMain as exc:
            box.append(str(exc))
        box.append(module.sleep_relative(0.001))

    t = threading.Thread(target=body)
    t.start()
    t.join()
    assert "main OS thread" in box[0]
    assert box[1] is None


@BOTH
def test_inside_a_loop_the_scheduler_does_the_work(module):
    log = []

    def main():
        coro.spawn(log.append, 1)
        with pytest.raises(coro.TimeoutError):
            module.with_timeout(0.001, module.sleep_relative, 100)
        assert log == [1]

    coro.run(main)


def test_in_main_beside_a_running_loop_they_are_refused():
    """A signal handler or a callback that the loop runs itself must not block the loop."""
    lines = ok(
        """
        import coro, os, signal
        def handler(number, frame):
            for call in (lambda: coro.with_timeout(1, int), lambda: coro.sleep_relative(1), coro.yield_slice):
                try:
                    call()
                except coro.YieldFromMain:
                    print("YieldFromMain")
        def main():
            import threading
            signal.signal(signal.SIGUSR1, handler)
            t = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
            t.start()
            coro.sleep_relative(0.2)
            t.join()
        coro.run(main)
        """
    )
    assert lines == ["YieldFromMain"] * 3
