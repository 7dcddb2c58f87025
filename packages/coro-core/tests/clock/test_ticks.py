"""The tick counter: conversions against exact integers, the rate, loss of trust, the virtual clock.

What changes the process's clock for good runs in a subprocess (`in_child`).
"""

import os
import pickle
import random
import subprocess
import sys
import textwrap
import time

import pytest

from coro._clock import ticks as _ticks

SATURATED = 2**62 - 1
RATES = [10**9, 999_999_999, 2_596_138_198, 4_999_999_999, 24_000_000, 62_500_000, 10**6, 1_000_003]


def in_child(code, **env):
    """Run code in a fresh interpreter; its assertions fail the test, its output is returned."""
    code = "from coro._clock import ticks as _ticks\nimport time\n" + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def virtual():
    """A virtual clock at 10**12 ns."""
    _ticks.install_virtual(10**12)
    yield
    if _ticks.virtual_is_installed():
        _ticks.remove_virtual()


@pytest.fixture
def restore_rate():
    old = _ticks.describe()
    yield
    _ticks._set_hz(old.ticks_per_sec, old.error_ppb)


# ---- conversions


@pytest.mark.parametrize("hz", RATES)
def test_conversions_are_exact(hz, restore_rate):
    _ticks._set_hz(hz)
    rng = random.Random(hz)
    numbers = [0, 1, -1, 2, 999, 10**9, -(10**9), 10**9 + 1, 86_400 * 10**9]
    numbers += [rng.getrandbits(rng.randrange(1, 48)) * rng.choice((1, -1)) for _ in range(2000)]
    for x in numbers:
        assert _ticks._convert("from_ns", x) == -(-x * hz // 10**9)
        assert _ticks._convert("to_ns", x) == x * 10**9 // hz
        assert _ticks._convert("to_ns_up", x) == -(-x * 10**9 // hz)


@pytest.mark.parametrize("hz", RATES)
def test_long_durations_saturate(hz, restore_rate):
    _ticks._set_hz(hz)
    big = 2**63 - 1
    if hz >= 10**9:
        assert _ticks._convert("from_ns", big) == SATURATED
        assert _ticks._convert("from_ns", -big) == -SATURATED
    if hz < 10**9:
        assert _ticks._convert("to_ns", big) == big
        assert _ticks._convert("to_ns", -big) == -big
    assert abs(_ticks._convert("from_ns", -(2**63))) <= SATURATED
    for x in (float("inf"), 1e300, SATURATED / hz * 1.001):
        assert _ticks._convert("from_seconds", x) == SATURATED
        assert _ticks._convert("from_seconds", -x) == -SATURATED


@pytest.mark.parametrize("hz", RATES)
def test_a_converted_wait_is_never_too_short(hz, restore_rate):
    _ticks._set_hz(hz)
    rng = random.Random(hz)
    for _ in range(1000):
        ns = rng.randrange(10**12)
        assert _ticks._convert("to_ns", _ticks._convert("from_ns", ns)) >= ns
        ticks = rng.randrange(10**12)
        assert _ticks._convert("from_ns", _ticks._convert("to_ns_up", ticks)) >= ticks


def test_seconds(restore_rate):
    _ticks._set_hz(2_596_138_198)
    assert _ticks.from_duration(1) == 2_596_138_198
    assert _ticks.from_duration(0.5) == 1_298_069_099
    assert _ticks.from_duration(-0.5) == -1_298_069_099
    assert _ticks.to_duration(2_596_138_198) == 1.0
    assert _ticks.from_duration(float("inf")) == SATURATED
    with pytest.raises(ValueError, match="NaN"):
        _ticks.from_duration(float("nan"))
    with pytest.raises(TypeError):
        _ticks.from_duration("1")


@pytest.mark.parametrize("hz", RATES)
def test_posix_microseconds_survive_the_round_trip(hz, restore_rate):
    _ticks._set_hz(hz)
    rng = random.Random(hz)
    for u in [0, 1, -1, 10**15, -(10**15), 10**25, *(rng.randrange(-(10**16), 10**17) for _ in range(500))]:
        assert _ticks.ticks_to_usec(_ticks.usec_to_ticks(u)) == u
    for s in (0, 1, -1, 1_700_000_000, 10**12):
        assert _ticks.ticks_to_sec(_ticks.sec_to_ticks(s)) == s
    assert _ticks.ticks_to_fsec(_ticks.fsec_to_ticks(1234.25)) == 1234.25


def test_safe_variants_keep_zero():
    assert _ticks.usec_to_ticks_safe(0) == 0
    assert _ticks.ticks_to_usec_safe(0) == 0
    assert _ticks.usec_to_ticks_safe(5) == _ticks.usec_to_ticks(5) != 0
    assert _ticks.ticks_to_usec_safe(5) == _ticks.ticks_to_usec(5) != 0
    for function in (_ticks.usec_to_ticks_safe, _ticks.ticks_to_usec_safe):
        with pytest.raises(TypeError, match="int"):
            function(0.0)


@pytest.mark.parametrize(
    "name",
    "usec_to_ticks ticks_to_usec sec_to_ticks ticks_to_sec ticks_to_fsec ctime_ticks ctime_usec".split(),
)
@pytest.mark.parametrize("bad", [1.5, "1", None, b"", []])
def test_integer_functions_refuse_other_types(name, bad):
    with pytest.raises(TypeError, match="as an int, got"):
        getattr(_ticks, name)(bad)


def test_fsec_refuses_what_is_not_finite():
    with pytest.raises(OverflowError):
        _ticks.fsec_to_ticks(float("inf"))
    with pytest.raises(ValueError):
        _ticks.fsec_to_ticks(float("nan"))


def test_old_names():
    assert _ticks.get_now is _ticks.rdtsc
    assert _ticks.absolute_time_to_ticks is _ticks.usec_to_ticks
    assert _ticks.ticks_to_absolute_time is _ticks.ticks_to_usec
    assert _ticks.absolute_time_to_ticks_safe is _ticks.usec_to_ticks_safe
    assert _ticks.ticks_to_absolute_time_safe is _ticks.ticks_to_usec_safe
    assert _ticks.absolute_secs_to_ticks is _ticks.sec_to_ticks
    assert _ticks.ticks_to_absolute_secs is _ticks.ticks_to_sec
    assert _ticks.microseconds == 1_000_000
    assert _ticks.ticks_per_usec == _ticks.ticks_per_sec // 1_000_000
    assert _ticks.ticks_to_usec(_ticks.relative_tsc_time) == _ticks.relative_usec_time
    assert _ticks.relative_sec_time == _ticks.relative_usec_time // 1_000_000
    with pytest.raises(AttributeError, match="no_such_name"):
        _ticks.no_such_name  # noqa: B018


def test_ctime():
    assert _ticks.ctime_usec(10**15) == time.ctime(10**9)
    assert _ticks.ctime_ticks(_ticks.sec_to_ticks(10**9)) == time.ctime(10**9)
    assert len(_ticks.ctime_ticks(_ticks.rdtsc())) == 24
    with pytest.raises((OverflowError, OSError, ValueError)):
        _ticks.ctime_usec(10**30)


# ---- the clock


def test_ticks_ascend_and_agree_with_the_monotonic_clock():
    _ticks.recalibrate()
    before = time.monotonic_ns()
    t0 = _ticks.rdtsc()
    mid = time.monotonic_ns()
    last = t0
    while time.monotonic_ns() < mid + 20_000_000:
        t = _ticks.rdtsc()
        assert t >= last - 1000  # the counter instruction is not fenced
        last = t
    start = time.monotonic_ns()
    t1 = _ticks.rdtsc()
    end = time.monotonic_ns()
    took = _ticks._convert("to_ns", t1 - t0)
    assert (start - mid) * 0.99 <= took <= (end - before) * 1.01


def test_posix_time_agrees_with_the_system():
    _ticks.update_time_relation()
    before = time.time_ns() // 1000
    usec = _ticks.get_usec()
    after = time.time_ns() // 1000
    assert before - 2000 <= usec <= after + 2000
    usec = _ticks._convert("posix_usec", _ticks.rdtsc())
    assert before - 1_000_000 < usec < time.time_ns() // 1000 + 1_000_000


def test_describe():
    info = _ticks.describe()
    assert info.source in ("tsc", "cntvct", "monotonic")
    assert info.ticks_per_sec == _ticks.ticks_per_sec >= 1_000_000
    assert info.why
    assert info.jumps >= 0
    assert tuple(pickle.loads(pickle.dumps(info))) == tuple(info)


@pytest.mark.slow
def test_the_rate_is_good_to_a_microsecond_a_second():
    # the second measurement is independent of the first: another window, taken with Python's own clock
    code = """
    def pair():
        best = None
        for _ in range(50):
            a = time.monotonic_ns(); t = _ticks.rdtsc(); b = time.monotonic_ns()
            if best is None or b - a < best[0]:
                best = b - a, (a + b) // 2, t
        return best
    time.sleep(0.15)
    trusted = _ticks.recalibrate()
    assert _ticks.describe().error_ppb < 5000, _ticks.describe()
    time.sleep(1)
    _ticks.recalibrate()
    info = _ticks.describe()
    assert info.error_ppb < 1000, info
    w0, n0, t0 = pair()
    time.sleep(1)
    w1, n1, t1 = pair()
    error = abs(_ticks._convert("to_ns", t1 - t0) - (n1 - n0)) / (n1 - n0) * 1e9
    assert error <= info.error_ppb + 1000 + (w0 + w1) / 2, (error, info)
    """
    in_child(code)


# ---- loss of trust


def test_the_environment_can_ask_for_the_monotonic_clock():
    code = """
    info = _ticks.describe()
    assert info.source == "monotonic" and "CORO_CLOCK" in info.why, info
    assert _ticks.ticks_per_sec == 10**9 and info.error_ppb == 0
    a = time.monotonic_ns(); t = _ticks.rdtsc(); b = time.monotonic_ns()
    assert a <= t <= b
    assert _ticks.monotonic_ns() >= t
    assert _ticks.recalibrate() is False
    for x in (0, 1, -5, 2**62 - 1):
        for which in ("from_ns", "to_ns", "to_ns_up"):
            assert _ticks._convert(which, x) == x
    assert _ticks._convert("from_ns", 2**62) == 2**62 - 1
    """
    in_child(code, CORO_CLOCK="monotonic")


def test_a_wrong_wish_is_told():
    done = subprocess.run(
        [sys.executable, "-c", "from coro._clock import ticks as _ticks"],
        env={**os.environ, "CORO_CLOCK": "sundial"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    assert "CORO_CLOCK is 'sundial'" in done.stderr


FALLBACK = """
import os, tempfile
if _ticks.describe().source == "monotonic":
    print("skip"); raise SystemExit
rate = _ticks.ticks_per_sec
"""


def check_skip(out):
    if "skip" in out:
        pytest.skip("this machine's counter is not used by its kernel")


def test_when_the_kernel_drops_the_counter_ticks_go_on():
    code = FALLBACK + textwrap.dedent("""
    with tempfile.NamedTemporaryFile("w") as f:
        f.write("hpet\\n"); f.flush()
        _ticks.CLOCKSOURCE_FILE = f.name
        assert _ticks.recalibrate() is False
    before = _ticks.rdtsc()
    _ticks.CLOCKSOURCE_FILE = "/nonexistent"
    info = _ticks.describe()
    assert info.source == "monotonic" and "hpet" in info.why, info
    assert abs(info.ticks_per_sec - rate) < rate / 1000
    last = before
    for _ in range(1000):
        t = _ticks.rdtsc()
        assert t >= last
        last = t
    m0 = time.monotonic_ns(); t0 = _ticks.rdtsc()
    time.sleep(0.02)
    t1 = _ticks.rdtsc(); m1 = time.monotonic_ns()
    assert 0.02e9 * 0.99 < _ticks._convert("to_ns", t1 - t0) <= m1 - m0 + 1
    assert _ticks.recalibrate() is False   # for good
    """)
    check_skip(in_child(code))


def test_no_jump_at_the_fallback():
    code = FALLBACK + textwrap.dedent("""
    _ticks.recalibrate()
    with tempfile.NamedTemporaryFile("w") as f:
        f.write("acpi_pm\\n"); f.flush()
        _ticks.CLOCKSOURCE_FILE = f.name
        m0 = time.monotonic_ns(); t0 = _ticks.rdtsc()
        assert _ticks.recalibrate() is False
        t1 = _ticks.rdtsc(); m1 = time.monotonic_ns()
    assert 0 <= _ticks._convert("to_ns", t1 - t0) <= m1 - m0 + 100_000
    """)
    check_skip(in_child(code))


def test_a_counter_that_goes_back_is_left():
    code = FALLBACK + textwrap.dedent("""
    t0 = _ticks.rdtsc()
    _ticks._shift_pairs(3600 * rate)      # an hour less than at the last comparison
    assert _ticks._convert("due", _ticks.rdtsc() - 10 * rate)   # a step back makes the comparison due
    assert _ticks.recalibrate() is False
    info = _ticks.describe()
    assert info.source == "monotonic" and "went back" in info.why, info
    assert _ticks.rdtsc() > t0 + 3599 * rate      # goes on from the last good reading
    """)
    check_skip(in_child(code))


def test_a_counter_that_ran_ahead_is_kept():
    code = FALLBACK + textwrap.dedent("""
    _ticks._shift_pairs(-3600 * rate)     # as after a suspend of an hour
    assert _ticks.recalibrate() is True
    info = _ticks.describe()
    assert info.jumps == 1 and abs(info.ticks_per_sec - rate) < rate / 1000, info
    time.sleep(0.01)
    assert _ticks.recalibrate() is True
    assert abs(_ticks.ticks_per_sec - rate) < rate / 1000
    assert _ticks.describe().jumps == 1
    """)
    check_skip(in_child(code))


def test_a_wrong_first_rate_is_corrected():
    code = FALLBACK + textwrap.dedent("""
    _ticks._set_hz(rate + rate // 100, 20_000_000)      # one percent off, known to be rough
    time.sleep(0.02)
    assert _ticks.recalibrate() is True
    assert abs(_ticks.ticks_per_sec - rate) < rate / 5000, (rate, _ticks.ticks_per_sec)
    """)
    check_skip(in_child(code))


def test_tend_is_due_seldom():
    code = FALLBACK + textwrap.dedent("""
    begin = _ticks.rdtsc()
    found = []
    for ms in range(10, 6000):           # told, not waited for
        t = begin + ms * rate // 1000
        if _ticks._convert("due", t):
            found.append(ms)
            _ticks._convert("tend", t)
    pauses = [b - a for a, b in zip(found, found[1:])]
    expected = [20, 40, 80, 160, 320, 640, 1000, 1000]
    assert found[0] == 10 and all(e <= p <= e + 1 for p, e in zip(pauses, expected)), found
    """)
    check_skip(in_child(code))


def test_the_relation_to_the_time_of_day_is_renewed_once_an_hour():
    """The original had a thread for it; here the loop's look after the clock does it, also with the monotonic clock."""
    for source in ("", "monotonic"):
        in_child(
            """
            before = _ticks.relative_tsc_time
            for seconds in (0, 1, 3500):
                _ticks._convert("tend", before + seconds * _ticks.ticks_per_sec)
                assert _ticks.relative_tsc_time == before
            _ticks._convert("tend", before + 3700 * _ticks.ticks_per_sec)
            assert _ticks.relative_tsc_time > before
            assert abs(_ticks.relative_usec_time - time.time() * 1e6) < 60e6
            """,
            CORO_CLOCK=source,
        )


# ---- the virtual clock


def test_the_virtual_clock_stands_until_moved(virtual):
    t0 = _ticks.rdtsc()
    assert t0 == _ticks.rdtsc() == _ticks._convert("from_ns", 10**12)
    usec = _ticks.get_usec()
    assert _ticks.advance_virtual(1_500_000_000) == 1_001_500_000_000
    assert abs(_ticks.to_duration(_ticks.rdtsc() - t0) - 1.5) < 1e-8
    assert 1_499_999 <= _ticks.get_usec() - usec <= 1_500_000
    assert _ticks.describe().source.startswith("virtual over ")
    assert _ticks.recalibrate() is False
    relation = _ticks.relative_tsc_time
    _ticks.update_time_relation()
    assert _ticks.relative_tsc_time == relation


def test_waiting_the_rounded_up_time_reaches_the_deadline(virtual):
    rng = random.Random(7)
    for _ in range(500):
        deadline = _ticks.rdtsc() + rng.randrange(1, 10**7)
        _ticks.advance_virtual(_ticks._convert("to_ns_up", deadline - _ticks.rdtsc()))
        assert deadline <= _ticks.rdtsc() <= deadline + 2 * _ticks.ticks_per_sec // 10**9 + 2


def test_going_on_from_the_present():
    before, real = _ticks.rdtsc(), time.time_ns() // 1000
    _ticks.install_virtual()
    try:
        t = _ticks.rdtsc()
        assert before - 1000 <= t
        assert _ticks.rdtsc() == t
        assert real - 2_000_000 < _ticks.get_usec() < time.time_ns() // 1000 + 2_000_000
    finally:
        _ticks.remove_virtual()
    assert _ticks.rdtsc() > t
    real = time.time_ns() // 1000
    assert real - 100_000 < _ticks.get_usec() < time.time_ns() // 1000 + 100_000


def test_misuse_of_the_virtual_clock(virtual):
    with pytest.raises(RuntimeError, match="already installed"):
        _ticks.install_virtual()
    with pytest.raises(ValueError, match="never go back"):
        _ticks.advance_virtual(-1)
    with pytest.raises(TypeError):
        _ticks.advance_virtual(1.0)
    with pytest.raises(OverflowError, match="smaller steps"):
        _ticks.advance_virtual(2**63)
    assert _ticks.advance_virtual(0) == 10**12
    _ticks.remove_virtual()
    with pytest.raises(RuntimeError, match="no virtual clock"):
        _ticks.remove_virtual()
    with pytest.raises(RuntimeError, match="no virtual clock"):
        _ticks.advance_virtual(1)
    for bad in (-1, 2**63):
        with pytest.raises(ValueError, match="between 0"):
            _ticks.install_virtual(bad)
    with pytest.raises(TypeError):
        _ticks.install_virtual("now")
    assert not _ticks.virtual_is_installed()


# ---- the time of day


def test_a_correction_moves_the_time_of_day_and_nothing_else():
    code = """
    import coro
    ticks = _ticks.rdtsc()
    def ahead(least, most):
        # the real time is read before and after: it may be long between the two
        before = time.time_ns() // 1000
        told = [_ticks.get_usec(), coro.get_usec()]
        after = time.time_ns() // 1000
        return all(before + least < usec < after + most for usec in told)
    _ticks.set_correction(5_000_000)
    assert _ticks.correction == 5_000_000
    assert ahead(4e6, 6e6)
    _ticks.update_time_relation()
    assert ahead(4e6, 6e6)
    assert _ticks.rdtsc() >= ticks and _ticks.rdtsc() - ticks < _ticks.from_duration(60)
    _ticks.install_virtual()
    usec = _ticks.get_usec()
    _ticks.set_correction(-1)
    assert _ticks.get_usec() == usec - 5_000_001
    _ticks.remove_virtual()
    assert ahead(-1e6, 1e6)
    """
    in_child(code)
    for bad in (1.5, "1", None):
        with pytest.raises(TypeError):
            _ticks.set_correction(bad)
    for bad in (2**61, -(2**61)):
        with pytest.raises(OverflowError):
            _ticks.set_correction(bad)


def test_after_a_suspend_the_relation_is_renewed():
    for source in ("", "monotonic"):
        in_child(
            """
            _ticks._convert("tend", _ticks.rdtsc())
            before, count = _ticks.relative_tsc_time, _ticks.suspends
            _ticks._convert("tend", _ticks.rdtsc())
            assert (_ticks.relative_tsc_time, _ticks.suspends) == (before, count)
            _ticks._pretend_suspend(10**9)
            _ticks._convert("tend", _ticks.rdtsc())
            assert _ticks.relative_tsc_time > before and _ticks.suspends == count + 1
            assert _ticks._convert("due", _ticks.rdtsc() + 2 * _ticks.ticks_per_sec)
            """,
            CORO_CLOCK=source,
        )
