"""The three time scales: conversions, the relation to the time of day, moments and their arithmetic.

The counter of mach_time is that of a table of functions, so that everything runs on any system.  One long file, since
most tests run on each of the three scales.
"""

from __future__ import annotations

import faulthandler
import math
import os
import pickle
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coro
from coro import testing
from coro._clock import ticks as _ticks
from coro.clocks import best, describe, mach_time, posix_time, tsc_time

SCALES = [tsc_time, posix_time, mach_time]
CLASSES = ["TSC", "Posix", "uPosix", "fPosix"]
KINDS = ["ticks", "posix_sec", "posix_usec", "posix_fsec"]
INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture(params=SCALES, ids=lambda m: m.__name__.rpartition(".")[2])
def scale(request):
    if request.param is mach_time:
        # a tick of 125/3 ns, as Apple's own processors have it
        mach_time.install(lambda: time.monotonic_ns() * 3 // 125, lambda: (125, 3))
    return request.param


def make(scale, cls, kind, value):
    return getattr(scale, f"{cls}_from_{kind}")(value)


def in_one_relation(scale, check):
    """Ticks are related to the time of day anew from time to time: what is promised of two conversions, one there and
    one back, holds as long as the relation stays."""
    while True:
        before = scale.usec_to_ticks(0), scale.usec_to_ticks(2**60)
        try:
            return check(scale)
        except AssertionError:
            if before == (scale.usec_to_ticks(0), scale.usec_to_ticks(2**60)):
                raise


# ---- numbers


@settings(max_examples=300)
@given(INT64)
def test_every_microsecond_of_64_bits_survives_the_way_to_ticks_and_back(u):
    def check(scale):
        assert scale.ticks_to_usec(scale.usec_to_ticks(u)) == u
        assert scale.ticks_to_sec(scale.sec_to_ticks(u)) == u
        assert scale.uPosix_from_ticks(scale.usec_to_ticks(u)).as_posix_usec() == u
        # the tick is the first of its microsecond
        assert scale.ticks_to_usec(scale.usec_to_ticks(u) - 1) == u - 1

    for scale in (tsc_time, posix_time):
        in_one_relation(scale, check)


@settings(max_examples=300)
@given(INT64)
def test_every_tick_of_64_bits_lies_in_its_microsecond(t):
    def check(scale):
        u = scale.ticks_to_usec(t)
        assert scale.usec_to_ticks(u) <= t < scale.usec_to_ticks(u + 1)
        assert scale.TSC_from_ticks(t).tsc == t

    for scale in (tsc_time, posix_time):
        in_one_relation(scale, check)


@given(INT64, st.sampled_from([(1, 1), (125, 3), (1000, 1), (999_999_937, 4_294_967_291)]))
def test_a_rate_that_is_no_whole_number_is_exact_too(u, base):
    mach_time.install(time.monotonic_ns, lambda: base)
    assert mach_time.ticks_to_usec(mach_time.usec_to_ticks(u)) == u
    assert mach_time.ticks_to_usec(mach_time.usec_to_ticks(u) - 1) == u - 1


@given(st.floats(-1e12, 1e12))
def test_float_seconds_become_the_nearest_microsecond(f):
    from fractions import Fraction

    def check(scale):
        got = scale.fPosix_from_posix_fsec(f).as_posix_usec()
        assert abs(Fraction(f) * 10**6 - got) <= Fraction(1, 2)
        assert scale.ticks_to_usec(scale.fsec_to_ticks(f)) == got

    in_one_relation(tsc_time, check)


def test_conversions(scale):
    u = 1_700_000_000_123_456
    t = scale.usec_to_ticks(u)
    assert scale.ticks_to_sec(t) == 1_700_000_000
    assert scale.ticks_to_fsec(t) == 1_700_000_000.123456
    assert scale.fsec_to_ticks(1_700_000_000.123456) == t
    assert scale.sec_to_ticks(1_700_000_000) == scale.usec_to_ticks(1_700_000_000_000_000)
    assert scale.ticks_to_usec_safe(0) == scale.usec_to_ticks_safe(0) == 0
    assert scale.usec_to_ticks_safe(u) == t and scale.ticks_to_usec_safe(t) == u


@pytest.mark.parametrize("bad", [1.5, "1", None, b""])
@pytest.mark.parametrize(
    "name", ["usec_to_ticks", "ticks_to_usec", "sec_to_ticks", "ticks_to_sec", "ticks_to_fsec", "uPosix_from_ticks"]
)
def test_what_is_no_int_is_refused(scale, name, bad):
    with pytest.raises(TypeError, match="as an int, got"):
        getattr(scale, name)(bad)


def test_what_is_no_finite_number_is_refused(scale):
    for function in (scale.fsec_to_ticks, scale.Posix_from_posix_fsec, scale.set_time, scale.step_time):
        with pytest.raises(OverflowError):
            function(math.inf)
        with pytest.raises(ValueError, match="NaN"):
            function(math.nan)
        with pytest.raises(TypeError, match="expected seconds as an int or a float, got str"):
            function("1")


def test_values_of_the_module(scale):
    rate = scale.ticks_per_sec
    assert rate == {tsc_time: _ticks.ticks_per_sec, posix_time: 10**9, mach_time: 24_000_000}[scale]
    assert scale.ticks_per_usec == rate // 10**6
    assert scale.ticks_to_usec(scale.relative_tsc_time) == scale.relative_usec_time
    assert scale.relative_sec_time == scale.relative_usec_time // 10**6
    with pytest.raises(AttributeError, match="no_such_name"):
        scale.no_such_name  # noqa: B018


def test_readings_agree_with_each_other_and_the_system(scale):
    scale.update_time_relation()
    assert scale.rdtsc is scale.now_raw_tsc or scale.rdtsc() - scale.now_raw_tsc() < scale.ticks_per_sec
    for _ in range(5):  # the machine may be busy: one undisturbed try is enough
        before = time.time_ns() // 1000
        ours = scale.now_raw_posix_usec()
        kernel = scale.get_kernel_usec()
        after = time.time_ns() // 1000
        if before - 100 <= ours <= after + 100 and before <= kernel <= after:
            break
    else:
        pytest.fail(f"{before=} {ours=} {kernel=} {after=}")
    before = time.time()
    sec, fsec = scale.now_raw_posix_sec(), scale.now_raw_posix_fsec()
    after = time.time()
    assert before - 2 < sec < after + 2 and before - 1 < fsec < after + 1
    assert abs(scale.ticks_to_usec(scale.now_raw_tsc()) - scale.now_raw_posix_usec()) < 10**6


# ---- agreement with coro-core


def test_the_counter_scale_and_the_core_are_one():
    with testing.virtual_clock(start=1000):
        assert tsc_time.now_raw_tsc() == coro.get_now()
        assert tsc_time.now_raw_posix_usec() == coro.get_usec()
        assert tsc_time.ticks_per_sec == coro.ticks_per_sec
        t = tsc_time.now_raw_tsc() + 12345
        for ours, theirs in (
            (tsc_time.ticks_to_usec, coro.ticks_to_absolute_time),
            (tsc_time.ticks_to_sec, coro.ticks_to_absolute_secs),
            (tsc_time.ticks_to_usec_safe, coro.ticks_to_absolute_time_safe),
            (tsc_time.usec_to_ticks, coro.absolute_time_to_ticks),
            (tsc_time.sec_to_ticks, coro.absolute_secs_to_ticks),
            (tsc_time.usec_to_ticks_safe, coro.absolute_time_to_ticks_safe),
        ):
            for x in (0, t, -t, 10**18):
                assert ours(x) == theirs(x)
        assert tsc_time.TSC_from_ticks(t).ctime() == coro.ctime_ticks(t)


def test_the_loops_own_time_agrees(leaves_nothing):
    def main():
        with testing.virtual_clock(start=1000):
            coro.sleep_relative(0)
            assert coro.now <= tsc_time.now_raw_tsc()
            assert coro.now_usec == tsc_time.ticks_to_usec(coro.now)
            tsc_time.step_time(3600)
            assert coro.now_usec == tsc_time.ticks_to_usec(coro.now)
            assert abs(posix_time.now_raw_posix_usec() - coro.get_usec()) <= 1

    coro.run(main)


def test_all_scales_show_the_same_time_of_day():
    mach_time.install(time.monotonic_ns, lambda: (1, 1))
    for _ in range(5):
        first = tsc_time.now_raw_posix_usec()
        others = [posix_time.now_raw_posix_usec(), mach_time.now_raw_posix_usec()]
        last = tsc_time.now_raw_posix_usec()
        if all(first - 20 <= u <= last + 20 for u in others):
            return
    pytest.fail(f"{first=} {others=} {last=}")


#: How long the counter is looked at. CORO_SOAK_SECONDS=60 makes a minute of it.
LOOK = int(os.environ.get("CORO_SOAK_SECONDS", "3"))


@pytest.mark.slow
@pytest.mark.timeout(LOOK + 60)
def test_the_counter_against_the_systems_clock():
    """The error stays below a microsecond for each second, from the time at which the rate was first looked after."""

    def pair():
        found = []
        for _ in range(200):
            before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            tick = tsc_time.now_raw_tsc()
            after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            found.append((after - before, tick, (before + after) // 2))
        return min(found)

    faulthandler.cancel_dump_traceback_later()  # a minute of it is what pytest takes for a hang
    time.sleep(0.2)
    tsc_time.update_time_relation()
    _, tick, ns = pair()
    for second in range(1, LOOK + 1):
        time.sleep(max(0, (ns + second * 10**9 - time.monotonic_ns()) / 1e9))
        width, t, n = pair()
        error = (t - tick) * 10**9 // tsc_time.ticks_per_sec - (n - ns)
        assert abs(error) < 1000 * second + width, f"{error} ns after {second} s"


# ---- simulation


def test_a_simulated_time_is_the_time_of_everybody(scale):
    ticks = coro.get_now()
    scale.set_time(1_000_000_000)
    for usec in (
        *(m.now_raw_posix_usec() for m in (tsc_time, posix_time, scale)),
        *(coro.get_usec(), scale.now_posix_usec().as_posix_usec()),
    ):
        assert 10**15 <= usec < 10**15 + 10**7
    assert scale.ticks_to_sec(scale.now_raw_tsc()) // 10 == 10**8
    assert coro.absolute_secs_to_ticks(1_000_000_000) <= coro.get_now()
    assert 0 <= coro.get_now() - ticks < 10 * coro.ticks_per_sec  # ticks go on
    assert abs(scale.get_kernel_usec() - time.time_ns() // 1000) < 10**7
    scale.step_time(-3600.5)
    assert 0 <= scale.now_raw_posix_usec() - (10**15 - 3_600_500_000) < 10**7
    scale.update_time_relation()  # does not end it
    assert 0 <= scale.now_raw_posix_usec() - (10**15 - 3_600_500_000) < 10**7
    scale.set_time(0)
    assert abs(scale.now_raw_posix_usec() - time.time_ns() // 1000) < 10**7


def test_a_simulation_too_far_away_changes_nothing(scale):
    with pytest.raises(OverflowError):
        scale.step_time(10**40)
    assert _ticks.correction == 0
    scale.step_time(1)
    assert _ticks.correction == 10**6


def test_under_a_virtual_clock_time_moves_when_told(leaves_nothing):
    with testing.virtual_clock(start=5) as clock:
        assert posix_time.now_raw_tsc() == 5 * 10**9
        before = [m.now_raw_posix_usec() for m in (tsc_time, posix_time)]
        clock.advance(2)
        after = [m.now_raw_posix_usec() for m in (tsc_time, posix_time)]
        assert all(abs(b - a - 2_000_000) <= 1 for a, b in zip(before, after, strict=True))
        tsc_time.step_time(100)
        assert abs(tsc_time.now_raw_posix_usec() - after[0] - 100_000_000) <= 1
        assert describe(posix_time).source == "virtual over monotonic"


# ---- moments


@pytest.mark.parametrize("cls", CLASSES)
def test_the_sixteen_constructors(scale, cls):
    u = 1_234_567_890_000_000
    values = {
        "ticks": scale.usec_to_ticks(u),
        "posix_sec": u // 10**6,
        "posix_usec": u,
        "posix_fsec": u / 10**6,
    }
    made = [make(scale, cls, kind, values[kind]) for kind in KINDS]
    for t in made:
        assert type(t) is getattr(scale, cls) and isinstance(t, scale.Time)
        assert t == made[0] and hash(t) == hash(made[0])
        assert (t.as_posix_sec(), t.as_posix_usec(), t.as_posix_fsec()) == (1_234_567_890, u, 1_234_567_890.0)
        assert t.tsc == scale.usec_to_ticks(u)
        assert int(t) == {"TSC": t.tsc, "uPosix": u}.get(cls, 1_234_567_890)
        assert float(t) == float(int(t))
        with pytest.raises(AttributeError):
            t.tsc = 1


def test_now_and_texts(scale):
    for name, cls in (("tsc", "TSC"), ("posix_sec", "Posix"), ("posix_usec", "uPosix"), ("posix_fsec", "fPosix")):
        t = getattr(scale, f"now_{name}")()
        assert type(t) is getattr(scale, cls)
        assert abs(t.as_posix_fsec() - time.time()) < 10
        assert repr(t) == f"<{cls}: {t.ctime()}>" and len(t.ctime()) == 24
        again = getattr(scale, f"mktime_{name}")(t.localtime())
        assert again.as_posix_sec() == t.as_posix_sec() and type(again) is type(t)
        assert getattr(scale, f"mktime_{name}")(tuple(t.localtime())) == again
    t = scale.Posix_from_posix_sec(10**9)
    assert t.gmtime()[:6] == (2001, 9, 9, 1, 46, 40)
    assert t.mkstr_utc("%Y-%m-%d %H:%M:%S") == "2001-09-09 01:46:40"
    assert t.mkstr_local("%c") == time.strftime("%c", time.localtime(10**9))
    assert t.ctime() == time.ctime(10**9)


def test_the_text_follows_the_time_zone(monkeypatch):
    t = tsc_time.Posix_from_posix_sec(0)
    try:
        for zone, hour in (("UTC0", "00"), ("EAST-5", "05"), ("UTC0", "00")):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            assert t.ctime() == f"Thu Jan  1 {hour}:00:00 1970"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_moment_beyond_all_calendars_still_has_a_repr(scale):
    t = scale.uPosix_from_posix_usec(2**80)
    assert repr(t) == f"<uPosix: {2**80} us since 1970>"
    with pytest.raises((OverflowError, OSError, ValueError)):
        t.ctime()


def test_mktime_refuses_what_is_no_local_time(scale):
    for cls in ("tsc", "posix_sec", "posix_usec", "posix_fsec"):
        function = getattr(scale, f"mktime_{cls}")
        for bad in (None, 1, "2020", [2020] * 9):
            with pytest.raises(TypeError):
                function(bad)
        with pytest.raises(ValueError, match="9 fields"):
            function((2020, 1, 1))
        with pytest.raises(ValueError, match="1900"):
            function((99, 1, 1, 0, 0, 0, 0, 1, 0))


def test_moments_are_made_by_functions_only(scale):
    for cls in (scale.Time, scale.TSC, scale.Posix, scale.uPosix, scale.fPosix):
        with pytest.raises(TypeError, match="made by functions"):
            cls(5)


@given(st.lists(st.tuples(st.sampled_from(CLASSES), st.integers(-(2**70), 2**70)), min_size=2, max_size=6))
def test_order_and_hash_agree_across_the_classes(specs):
    moments = [make(tsc_time, cls, "posix_usec", u) for cls, u in specs]
    for a, (_, u) in zip(moments, specs, strict=True):
        for b, (_, v) in zip(moments, specs, strict=True):
            assert (a < b, a <= b, a == b, a != b, a > b, a >= b) == (u < v, u <= v, u == v, u != v, u > v, u >= v)
            if a == b:
                assert hash(a) == hash(b)
    assert [t.as_posix_usec() for t in sorted(moments)] == sorted(u for _, u in specs)


@given(st.lists(st.tuples(st.sampled_from(CLASSES), st.integers(-(10**4), 10**4)), min_size=2, max_size=6))
def test_order_and_hash_agree_by_ticks(specs):
    base = tsc_time.now_raw_tsc()
    moments = [make(tsc_time, cls, "ticks", base + t) for cls, t in specs]
    for a, (_, u) in zip(moments, specs, strict=True):
        for b, (_, v) in zip(moments, specs, strict=True):
            assert (a < b, a == b, a > b) == (u < v, u == v, u > v)
            assert (hash(a) == hash(b)) or a != b


@given(st.sampled_from(CLASSES), INT64, st.integers(-(2**70), 2**70), st.integers(-(2**70), 2**70))
def test_laws_of_arithmetic(cls, start, n, m):
    t = make(tsc_time, cls, "posix_usec", start)
    assert t + 0 == t == t - 0 == 0 + t
    assert (t + n) + m == t + (n + m) == n + t + m
    assert (t + n) - n == t
    assert type(t + n) is type(t - n) is type(n - t) is type(t)
    if cls == "TSC":
        assert int(n - t) == n - int(t)
    else:
        assert (n - t).as_posix_usec() == n * (1 if cls == "uPosix" else 10**6) - start
    if cls != "fPosix":
        assert (t + n) - t == n and t - (t + n) == -n
        assert int(t + n) == int(t) + n
    assert (t < t + 1) and (t - 1 < t)


def test_differences_and_sums(scale):
    a, b = scale.uPosix_from_posix_usec(5_000_007), scale.uPosix_from_posix_usec(3_000_000)
    assert a - b == 2_000_007 and b - a == -2_000_007
    assert type(a + b) is scale.uPosix and int(a + b) == 8_000_007
    p, q = scale.Posix_from_posix_usec(5_900_000), scale.Posix_from_posix_sec(3)
    assert p - q == 2 and q - p == -2 and type(p - q) is int
    assert int(p + q) == 8 and type(p + a) is scale.Posix and (p + a).as_posix_usec() == 10_900_007
    f = scale.fPosix_from_posix_fsec(1.5)
    assert f - q == -1.5 and (f + 0.25).as_posix_usec() == 1_750_000
    assert float(f) == 1.5 and int(f) == 1
    t = scale.TSC_from_ticks(1000)
    assert t - scale.TSC_from_ticks(400) == 600 and (t + t).tsc == 2000
    assert (t + 0.6).tsc == 1001 and (q + 0.5).as_posix_usec() == 3_500_000


def test_a_number_minus_a_moment(scale):
    """The original computed the negative of it."""
    assert int(5 - scale.Posix_from_posix_sec(3)) == 2
    assert int(5 - scale.uPosix_from_posix_usec(7)) == -2
    assert float(1.0 - scale.fPosix_from_posix_fsec(0.25)) == 0.75
    assert (5 - scale.TSC_from_ticks(3)).tsc == 2


def test_comparison_with_numbers(scale):
    p = scale.Posix_from_posix_usec(5_900_000)
    assert p == 5 and p != 6 and p < 6 and p >= 5 and 6 > p and 5.0 == p
    assert scale.uPosix_from_posix_usec(7) == 7 and scale.fPosix_from_posix_fsec(2.5) == 2.5
    assert scale.TSC_from_ticks(12) == 12 < scale.TSC_from_ticks(13)
    assert not (p == math.nan) and not (p < math.nan)


def test_unrelated_objects_are_unequal_and_have_no_order(scale):
    t = scale.now_posix_sec()
    for other in ("x", None, (1,), [], object(), 1j):
        assert t != other and not (t == other) and other != t
        for attempt in (
            lambda o: t < o,
            lambda o: o >= t,
            lambda o: t + o,
            lambda o: o + t,
            lambda o: t - o,
            lambda o: o - t,
        ):
            with pytest.raises(TypeError):
                attempt(other)


def test_bool_is_a_number(scale):
    assert scale.Posix_from_posix_sec(1) == True  # noqa: E712
    assert int(scale.Posix_from_posix_sec(1) + True) == 2
    assert int(True - scale.uPosix_from_posix_usec(1)) == 0


def test_a_calendar_date_does_not_change_when_the_rate_does():
    t = tsc_time.uPosix_from_posix_usec(0)
    key = {t: "epoch"}
    info = _ticks.describe()
    _ticks._set_hz(info.ticks_per_sec + info.ticks_per_sec // 1000)
    try:
        assert int(t) == 0 and t == tsc_time.uPosix_from_posix_usec(0)
        assert key[tsc_time.Posix_from_posix_sec(0)] == "epoch"
    finally:
        _ticks._set_hz(info.ticks_per_sec, info.error_ppb)


def test_moments_travel_to_other_processes_by_the_calendar(scale):
    for cls in CLASSES:
        t = make(scale, cls, "posix_usec", 1_700_000_000_123_456)
        again = pickle.loads(pickle.dumps(t))
        assert again == t and type(again) is type(t)


def test_moments_of_different_scales_do_not_mix():
    assert tsc_time.uPosix_from_posix_usec(5) != posix_time.uPosix_from_posix_usec(5)
    with pytest.raises(TypeError):
        tsc_time.now_tsc() - posix_time.now_tsc()


# ---- choice


def test_the_best_scale_is_the_counter_where_it_is_trusted():
    trusted = _ticks.describe().source in ("tsc", "cntvct")
    assert best() is (tsc_time if trusted else mach_time if mach_time.available() else posix_time)
    d = describe()
    assert d.scale == best().__name__.rpartition(".")[2]
    assert d.ticks_per_sec == best().ticks_per_sec and d.resolution_ns == 1e9 / d.ticks_per_sec
    assert d.cost_ns > 0 and d.why and d.correction_usec == 0
    assert abs(d.drift_ppb) < 25_000_000
    tsc_time.step_time(5)
    assert describe().correction_usec == 0  # a simulation is not a correction
    with pytest.raises(TypeError):
        describe(math)


def in_child(code, **env):
    import os

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_a_trusted_counter_everything_works_and_says_so():
    in_child(
        """
        import time
        from coro import clocks
        assert clocks.best() is not clocks.tsc_time
        d = clocks.describe()
        assert d.source == "monotonic" and "CORO_CLOCK" in d.why, d
        t = clocks.tsc_time
        assert t.describe().source == "monotonic" and t.ticks_per_sec == 10**9
        a = time.monotonic_ns(); tick = t.now_raw_tsc(); b = time.monotonic_ns()
        assert a <= tick <= b
        assert int(t.uPosix_from_posix_usec(2**63 - 1)) == 2**63 - 1
        """,
        CORO_CLOCK="monotonic",
    )


def test_a_counter_that_is_left_while_the_program_runs():
    in_child(
        """
        import time
        from coro import clocks
        from coro._clock import ticks as _ticks
        t = clocks.tsc_time
        before = t.now_tsc()
        _ticks._shift_pairs(10 * _ticks.ticks_per_sec)       # as if the counter had gone back
        t.update_time_relation()
        assert t.describe().source == "monotonic"
        assert t.now_tsc() > before
        assert clocks.best() is not t
        real, usec = time.time_ns() // 1000, t.now_raw_posix_usec()
        assert real - 10**6 < usec < time.time_ns() // 1000 + 10**6
        """
    )


def test_a_suspend_is_noticed_and_the_time_of_day_taken_over_anew():
    for source in ("", "monotonic"):
        in_child(
            """
            import time
            from coro import clocks
            from coro._clock import ticks as _ticks
            tsc = clocks.tsc_time
            tsc.now_raw_posix_usec()
            before, count = tsc.relative_tsc_time, clocks.describe().suspends
            _ticks._pretend_suspend(3600 * 10**9)
            _ticks._convert("tend", _ticks.rdtsc())
            assert tsc.relative_tsc_time > before
            assert clocks.describe().suspends == count + 1
            real, usec = time.time_ns() // 1000, clocks.posix_time.now_raw_posix_usec()
            assert real - 10**6 < usec < time.time_ns() // 1000 + 10**6
            """,
            CORO_CLOCK=source,
        )


def test_importing_has_no_side_effects():
    in_child(
        """
        import os, threading
        before = os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd") else []
        import coro.clocks.sntp
        assert threading.active_count() == 1
        if before:
            assert os.listdir("/proc/self/fd") == before
        """
    )


@pytest.mark.slow
def test_a_reading_costs_at_most_half_of_the_standard_librarys():
    """From C, and only where the counter is used: the benchmark decides."""
    program = Path(__file__).resolve().parents[1] / "bench" / "reading.py"
    done = subprocess.run([sys.executable, program, "--check"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


# ---- mach_time


def test_mach_time_takes_its_counter_from_a_table():
    ticks = [24_000_000]
    mach_time.install(lambda: ticks[0], lambda: (125, 3))
    assert mach_time.available() and describe(mach_time).source == "mach"
    assert mach_time.ticks_per_sec == 24_000_000 and mach_time.ticks_per_usec == 24
    u = mach_time.now_raw_posix_usec()
    ticks[0] += 24_000_000 * 3 + 1
    assert mach_time.now_raw_posix_usec() - u == 3_000_000
    assert mach_time.now_tsc().tsc == ticks[0]


def test_mach_time_refuses_a_table_it_cannot_count_by():
    for base in ((0, 1), (1, 0), (-1, 1), (1001, 1), (2**32, 2**31)):
        with pytest.raises(ValueError, match="time base"):
            mach_time.install(time.monotonic_ns, lambda base=base: base)
    with pytest.raises(TypeError, match="both"):
        mach_time.install(time.monotonic_ns)


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has this clock")
def test_mach_time_elsewhere_says_that_it_is_missing():
    assert not mach_time.available()
    for function in (mach_time.now_raw_tsc, mach_time.now_posix_usec, mach_time.describe):
        with pytest.raises(OSError, match="macOS only"):
            function()


def test_stubs_name_what_the_modules_have():
    import ast

    folder = Path(tsc_time.__file__).parent
    shared = ast.literal_eval(
        next(
            n.value
            for n in ast.parse((folder / "_scale.pyi").read_text()).body
            if isinstance(n, ast.Assign) and n.targets[0].id == "__all__"
        )
    )
    mach_time.install(time.monotonic_ns, lambda: (1, 1))
    for module in SCALES:
        for name in shared:
            assert hasattr(module, name), (module, name)
        public = {n for n, v in vars(module).items() if not n.startswith("_") and (callable(v) or isinstance(v, type))}
        extra = {tsc_time: set(), posix_time: set(), mach_time: {"install", "available"}}[module]
        assert public - set(shared) - {"describe", "require_abi"} == extra
