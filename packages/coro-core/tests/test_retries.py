"""coro.retry: its three forms, when it gives up, which exceptions it holds back, and its pauses."""

import contextlib
import gc
import weakref

import pytest
from support import in_jumping_loop

import coro


class Flaky:
    """Fails so many times before it succeeds."""

    def __init__(self, failures, error=OSError):
        self.failures, self.error, self.calls, self.at = failures, error, 0, []

    def __call__(self, value="done"):
        self.calls += 1
        self.at.append(coro.get_now() / coro.ticks_per_sec)
        if self.calls <= self.failures:
            raise self.error("not yet")
        return value


def steady(**more):
    return coro.retry(**{"on": OSError, "wait_jitter": 0, **more})


@in_jumping_loop
def test_the_three_forms():
    assert steady().call(Flaky(3), "a") == "a"
    flaky = Flaky(2)

    @steady()
    def fetch(value):
        """Documented."""
        return flaky(value)

    assert fetch("b") == "b" and fetch.__doc__ == "Documented." and fetch.__name__ == "fetch"
    flaky, numbers = Flaky(2), []
    for attempt in steady():
        numbers.append(attempt.number)
        with attempt:
            flaky()
    assert numbers == [1, 2, 3] and flaky.calls == 3 and attempt.exception is None


@in_jumping_loop
def test_pauses_grow():
    flaky = Flaky(7)
    steady(wait_initial=1, wait_max=9, budget=None).call(flaky)
    pauses = [round(after - before) for before, after in zip(flaky.at, flaky.at[1:], strict=False)]
    assert pauses == [1, 2, 4, 8, 9, 9, 9]
    rule = steady(wait_jitter=2, random=lambda: 0.25, wait_initial=1)
    assert [rule.pause_after(n) for n in (1, 2, 5000)] == [1.5, 2.5, 5.0]


@in_jumping_loop
def test_giving_up():
    flaky = Flaky(9)
    with pytest.raises(OSError, match="not yet") as info:
        steady(attempts=3).call(flaky)
    assert flaky.calls == 3
    assert "3 attempts" in info.value.__notes__[0]
    flaky = Flaky(100)
    with pytest.raises(OSError, match="not yet"):
        steady(attempts=None, budget=20, wait_initial=3, wait_max=3).call(flaky)
    assert flaky.calls == 7  # at 0, 3, ... 18 s; the next would be at 21
    flaky = Flaky(1)
    with pytest.raises(OSError, match="not yet"):
        steady(budget=0).call(flaky)
    assert flaky.calls == 1


@in_jumping_loop
def test_which_exceptions():
    flaky = Flaky(1, KeyError)
    with pytest.raises(KeyError):
        steady().call(flaky)
    assert flaky.calls == 1
    assert steady(on=(OSError, KeyError)).call(Flaky(1, KeyError)) == "done"
    assert steady(on=lambda e: "yet" in str(e)).call(Flaky(1, ValueError)) == "done"
    with pytest.raises(ValueError):
        steady(on=lambda e: False).call(Flaky(1, ValueError))
    for error in (SystemExit, coro.Shutdown, coro.Interrupted):
        with pytest.raises(error):
            steady(on=BaseException).call(Flaky(1, error))


@in_jumping_loop
def test_limits_of_attempts_and_of_all():
    calls = []
    for attempt in steady(on=coro.TimeoutError):
        with attempt, coro.timeout(1):
            calls.append(attempt.number)
            if len(calls) < 3:
                coro.sleep(9)
    assert calls == [1, 2, 3]
    with coro.move_on_after(5) as scope:  # strikes in a pause
        steady(on=BaseException, wait_initial=3).call(Flaky(9))
    assert scope.expired
    with coro.move_on_after(5) as scope:  # and in an attempt
        steady(on=BaseException).call(coro.sleep, 9)
    assert scope.expired


def test_without_a_loop():
    assert steady(wait_initial=0).call(Flaky(3)) == "done"


def test_what_is_refused():
    for wrong in (3, "OSError", (OSError, 3), OSError(), int):
        with pytest.raises(TypeError, match="exception classes"):
            coro.retry(on=wrong)
    for name, wrong, error in (
        ("attempts", 0, ValueError),
        ("attempts", 1.5, TypeError),
        ("budget", -1, ValueError),
        ("budget", "1", TypeError),
        ("wait_initial", None, TypeError),
        ("wait_exp_base", 0.5, ValueError),
        ("wait_exp_base", "2", TypeError),
    ):
        with pytest.raises(error, match=name):
            coro.retry(on=OSError, **{name: wrong})
    with pytest.raises(TypeError, match="decorate"):
        steady()(3)
    with pytest.raises(TypeError):
        coro.retry()
    assert "OSError" in repr(steady())


@in_jumping_loop
def test_no_cycle_keeps_a_failed_call():
    class Value:
        pass

    def fail(value):
        raise OSError("no")

    value = Value()
    gone = weakref.ref(value)
    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(OSError):
            steady(attempts=2).call(fail, value)
        del value
        assert gone() is None
    finally:
        gc.enable()
