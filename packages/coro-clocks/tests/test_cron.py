"""Schedules in the notation of cron: which moments they mean, also where the clocks change, against a slow model."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coro import clocks
from coro.clocks import CronError, cron, tsc_time

BERLIN = "Europe/Berlin"


def zone(name):
    try:
        return ZoneInfo(name)
    except ZoneInfoNotFoundError:
        pytest.skip(f"no time zone {name}: install tzdata")


def utc(*fields):
    return int(datetime(*fields, tzinfo=UTC).timestamp())


def local_times(expression, start, count, tz):
    found = itertools.islice(cron(expression, start=start, zone=tz), count)
    return [datetime.fromtimestamp(t, tz).strftime("%m-%d %H:%M%z") for t in found]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*/20 * * * *", ["01-01 00:20", "01-01 00:40", "01-01 01:00"]),
        ("5 4 * * *", ["01-01 04:05", "01-02 04:05", "01-03 04:05"]),
        ("0 0 1 * *", ["02-01 00:00", "03-01 00:00", "04-01 00:00"]),
        ("0 0 29 2 *", ["02-29 00:00", "02-29 00:00"]),
        ("0 12 * * sun", ["01-05 12:00", "01-12 12:00"]),
        ("0 12 * * 7", ["01-05 12:00", "01-12 12:00"]),
        ("0 12 * * MON-wed", ["01-01 12:00", "01-06 12:00", "01-07 12:00"]),
        ("0 12 13 * fri", ["01-03 12:00", "01-10 12:00", "01-13 12:00"]),
        ("0 12 */2 * fri", ["01-03 12:00", "01-17 12:00"]),
        ("1-5/2,58 23 31 jan,dec *", ["01-31 23:01", "01-31 23:03", "01-31 23:05", "01-31 23:58", "12-31 23:01"]),
        ("50/5 1 * * *", ["01-01 01:50", "01-01 01:55", "01-02 01:50"]),
        ("@hourly", ["01-01 01:00", "01-01 02:00"]),
        ("@Daily", ["01-02 00:00"]),
        ("@weekly", ["01-05 00:00"]),
        ("@monthly", ["02-01 00:00"]),
        ("@yearly", ["01-01 00:00"]),
    ],
)
def test_notation(expression, expected):
    assert local_times(expression, utc(2025, 1, 1), len(expected), UTC) == [e + "+0000" for e in expected]


def test_a_skipped_hour():
    """Berlin, 30 March 2025: 01:59 is followed by 03:00."""
    tz, start = zone(BERLIN), utc(2025, 3, 29, 12)
    assert local_times("30 2 * * *", start, 2, tz) == ["03-30 03:00+0200", "03-31 02:30+0200"]
    assert local_times("*/10 2 * * *", start, 2, tz) == ["03-30 03:00+0200", "03-31 02:00+0200"]
    assert local_times("0 2,3 * * *", start, 2, tz) == ["03-30 03:00+0200", "03-31 02:00+0200"]
    assert local_times("30 * * * *", utc(2025, 3, 30, 0), 3, tz) == [
        "03-30 01:30+0100",
        "03-30 03:30+0200",
        "03-30 04:30+0200",
    ]


def test_an_hour_that_comes_twice():
    """Berlin, 26 October 2025: after 02:59 it is 02:00 again."""
    tz, start = zone(BERLIN), utc(2025, 10, 25, 12)
    assert local_times("30 2 * * *", start, 2, tz) == ["10-26 02:30+0200", "10-27 02:30+0100"]
    assert local_times("30 */2 * * *", utc(2025, 10, 25, 23), 3, tz) == [
        "10-26 02:30+0200",
        "10-26 02:30+0100",
        "10-26 04:30+0100",
    ]
    minutes = list(itertools.islice(cron("* * * * *", start=start, zone=tz), 24 * 60 * 2))
    assert {b - a for a, b in itertools.pairwise(minutes)} == {60}


def test_a_change_by_half_an_hour():
    """Lord Howe Island changes by 30 minutes: on 5 October 2025 02:00 becomes 02:30."""
    tz = zone("Australia/Lord_Howe")
    assert local_times("15 2 * * *", utc(2025, 10, 4), 2, tz) == ["10-05 02:30+1100", "10-06 02:15+1100"]


def test_a_day_that_was_left_out():
    """Samoa had no 30 December 2011."""
    tz = zone("Pacific/Apia")
    found = local_times("0 12 * * *", utc(2011, 12, 29), 3, tz)
    assert found == ["12-29 12:00-1000", "12-31 00:00+1400", "12-31 12:00+1400"]


def test_the_processs_own_zone(monkeypatch):
    import time

    try:
        monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        found = list(itertools.islice(cron("30 2 * * *", start=utc(2025, 3, 29, 12)), 2))
        assert found == [utc(2025, 3, 30, 1), utc(2025, 3, 31, 0, 30)]
    finally:
        monkeypatch.undo()
        time.tzset()


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "UTC"]),
    st.integers(utc(2024, 1, 1), utc(2026, 1, 1)),
    st.sets(st.integers(0, 59), min_size=1, max_size=3),
    st.sets(st.integers(0, 23), min_size=1, max_size=3),
)
def test_against_a_walk_through_all_minutes(name, start, minutes, hours):
    """Local times that exist happen, each at its first coming; each gap in which some fell has one at its end."""
    tz = zone(name)
    expression = f"{','.join(map(str, minutes))} {','.join(map(str, hours))} * * *"
    end = start + 2 * 86400
    found = list(itertools.takewhile(lambda t: t < end, cron(expression, start=start, zone=tz)))
    assert found == sorted(set(found)) and all(t > start for t in found)
    expected = set()
    begin = start - start % 60 - 2 * 86400
    seen, before = set(), None
    for t in range(begin, end, 60):
        here = datetime.fromtimestamp(t, tz)
        naive = here.replace(tzinfo=None, fold=0)
        if before is not None and naive - before > timedelta(minutes=1):
            step = before + timedelta(minutes=1)
            while step < naive:
                if step.minute in minutes and step.hour in hours:
                    expected.add(t)
                step += timedelta(minutes=1)
        before = naive
        if here.minute in minutes and here.hour in hours and naive not in seen:
            expected.add(t)
        seen.add(naive)
    assert found == sorted(t for t in expected if start < t < end)


def test_it_starts_now_and_follows_the_process():
    tsc_time.set_time(utc(2030, 6, 1, 11, 59))
    assert next(cron("0 12 * * *", zone=UTC)) == utc(2030, 6, 1, 12)


def test_after_leaves_the_iterator_alone():
    schedule = cron("0 0 * * *", start=utc(2025, 1, 1), zone=UTC)
    assert schedule.after(utc(2027, 5, 5)) == utc(2027, 5, 6)
    assert schedule.after(utc(2027, 5, 5) - 0.5) == utc(2027, 5, 5)
    assert next(schedule) == utc(2025, 1, 2)
    assert iter(schedule) is schedule
    assert repr(schedule) == "<cron '0 0 * * *'>"


def test_the_end_of_the_calendar():
    assert list(cron("@yearly", start=utc(9998, 6, 1), zone=UTC)) == [utc(9999, 1, 1)]
    schedule = cron("@yearly", start=0, zone=UTC)
    for moment in (1e30, float("inf"), -1e30):
        with pytest.raises(OverflowError):
            schedule.after(moment)
    with pytest.raises(ValueError, match="NaN"):
        schedule.after(float("nan"))


@pytest.mark.parametrize(
    "bad",
    [
        *("", "*", "* * * *", "* * * * * *", "@reboot", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *"),
        *(
            "* * * 13 *",
            "* * * 0 *",
            "* * * * 8",
            "* * * foo *",
            "-1 * * * *",
            "5-1 * * * *",
            "*/0 * * * *",
            "/5 * * * *",
        ),
        *("1, * * * *", "1-2-3 * * * *", "* * * * mo", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "\u0661 * * * *"),
        *("1" * 2000, "9" * 900 + " * * * *", "*/" + "9" * 900 + " * * * *", "* * * * fri-tue", "jan * * * *"),
    ],
)
def test_what_is_no_schedule_is_refused(bad):
    with pytest.raises(CronError):
        cron(bad, start=0, zone=UTC)


def test_arguments_of_other_types():
    with pytest.raises(TypeError, match="text"):
        cron(5)
    with pytest.raises(TypeError, match="tzinfo"):
        cron("@daily", zone="UTC")
    assert issubclass(clocks.CronError, ValueError)


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("0123456789*/,- @adefhlnrmuwy\n\t\0é"), max_size=30))
def test_any_text_is_a_schedule_or_refused(text):
    try:
        schedule = cron(text, start=0, zone=UTC)
    except CronError:
        return
    assert next(schedule) > 0


def test_a_datetime_gives_datetimes_of_the_zone_of_the_schedule() -> None:
    start = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    schedule = cron("30 2 * * *", start=start, zone=zone(BERLIN))
    first = next(schedule)
    assert first == datetime(2026, 3, 2, 1, 30, tzinfo=UTC) and str(first.tzinfo) == BERLIN and first.hour == 2
    assert next(schedule) - first == timedelta(days=1)
    plus_five = timezone(timedelta(hours=5))
    found = schedule.after(start.astimezone(plus_five))
    assert found == first and str(found.tzinfo) == BERLIN
    # the zone of the moment, where the schedule has none of its own
    assert cron("0 0 * * *", start=0).after(start.astimezone(plus_five)).tzinfo is plus_five
    assert schedule.after(start.timestamp()) == int(first.timestamp())


@pytest.mark.parametrize("module", [clocks.tsc_time, clocks.posix_time])
@pytest.mark.parametrize("kind", ["TSC", "Posix", "uPosix", "fPosix"])
def test_times_of_the_package_give_times_of_the_same_class(module, kind: str) -> None:
    make = getattr(module, f"{kind}_from_posix_sec")
    start = utc(2026, 3, 1, 12, 0)
    schedule = cron("0 * * * *", start=make(start), zone=UTC)
    for moment in (next(schedule), next(schedule), schedule.after(make(start + 1))):
        assert type(moment) is type(make(start))
    # (a TSC counts ticks: its seconds are those of the present relation)
    assert abs(schedule.after(make(start)).as_posix_fsec() - (start + 3600)) < 1e-3
    clocks.sleep_until(schedule.after(make(start)))  # it has come already


@pytest.mark.parametrize("wrong", ["2026-01-01", None, b"1", True, 1j])
def test_what_is_no_moment(wrong) -> None:
    with pytest.raises(TypeError, match="expected POSIX seconds, a Time object or a datetime"):
        cron("* * * * *", start=0).after(wrong)
    with pytest.raises(ValueError, match="with a time zone"):
        cron("* * * * *", start=datetime(2026, 1, 1))
    with pytest.raises(ValueError, match="with a time zone"):
        cron("* * * * *", start=0).after(datetime(2026, 1, 1))


def test_iteration_over_datetimes_ends_with_the_calendar() -> None:
    last = datetime(9999, 12, 31, 23, 58, tzinfo=UTC)
    assert list(cron("* * * * *", start=last, zone=UTC)) == [last + timedelta(minutes=1)]
