"""Schedules in the notation of cron: which moments a line such as "30 2 * * mon-fri" means.

The notation is that of crontab(5): minute, hour, day of month, month, day of week; `*`, numbers, ranges `a-b`, steps
`*/n` and `a-b/n`, lists with commas, English names of months and days in three letters, 0 and 7 both Sunday; and
@hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually.  Where both day fields are restricted (do not begin
with `*`), a day that fits either is taken.

Daylight saving time.  A schedule is of local times, and a day with a change has an hour twice or not at all:

* A local time that is skipped happens at the moment of the change, once, however many were skipped; but with `*` or
  `*/n` as the hour it does not happen: such schedules are about intervals, and the interval before is no longer for it.
* A local time that comes twice happens at its first coming only; with `*` or `*/n` as the hour, at both.

Idea: a day at a time.  The moments of a day are computed from its matching local times, sorted, and given out; days
that do not match cost one comparison.  Cost: at most 1440 conversions for a day with matches, which are kept as long as
moments of that day are asked for.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any, Generic, NamedTuple, TypeVar, overload

from coro.clocks import mach_time, posix_time, tsc_time

__all__ = ["CronError", "cron"]

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_SHORT = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_LONGEST_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
#: A longer text is a mistake: every value of every field fits into this.
_MOST_CHARACTERS = 1000
#: Leap days are at most eight years apart; a day that has not come by then never does.
_MOST_DAYS = 9 * 366
#: Days whose moments are kept: yesterday, today and tomorrow, as seen from UTC.
_MOST_KNOWN = 3
_PART = re.compile(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/([0-9]+))?", re.ASCII)


#: What moments may be beside POSIX seconds: a datetime with a time zone, a Time object of this package.
_Moment = TypeVar("_Moment", int, datetime, tsc_time.TSC, tsc_time.Posix, tsc_time.uPosix, tsc_time.fPosix)
_Other = TypeVar("_Other", datetime, tsc_time.TSC, tsc_time.Posix, tsc_time.uPosix, tsc_time.fPosix)


def _taken(moment: Any, zone: tzinfo | None) -> tuple[float, Callable[[int], Any]]:
    """POSIX seconds, and what makes a time of the same type of a whole number of them."""
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise ValueError(f"expected a datetime with a time zone, got {moment!r}; add one with .astimezone()")
        where = zone or moment.tzinfo
        return moment.timestamp(), lambda seconds: datetime.fromtimestamp(seconds, where)
    if isinstance(moment, (tsc_time.Time, posix_time.Time, mach_time.Time)):
        module = sys.modules[type(moment).__module__]
        name = type(moment).__name__
        make = getattr(module, f"{name}_from_posix_sec")
        return moment.as_posix_usec() / 1000000, make
    if isinstance(moment, bool) or not isinstance(moment, (int, float)):
        raise TypeError(f"expected POSIX seconds, a Time object or a datetime, got {type(moment).__name__}")
    return moment, int


class CronError(ValueError):
    """The text is no schedule; the message says which field is wrong and what was expected."""


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, _DAYS),
)


def _number(text: str, field: _Field) -> int:
    if text.lower() in field.names:
        return field.names.index(text.lower()) + field.low
    if not text.isdecimal() or len(text) > 4 or not field.low <= int(text) <= field.high:
        or_name = f" or a name such as {field.names[0]!r}" if field.names else ""
        raise CronError(f"expected a {field.name} from {field.low} to {field.high}{or_name}, got {text!r}")
    return int(text)


def _values(text: str, field: _Field) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise CronError(
                f"expected *, a number, a range a-b, or one of these with /step as {field.name}, got {part!r}"
            )
        star, first, last, step = match.groups()
        if star:
            low, high = field.low, min(field.high, 6) if field.names is _DAYS else field.high
        else:
            low = _number(first, field)
            high = _number(last, field) if last else (field.high if step else low)
        if low > high:
            raise CronError(f"expected a {field.name} range from low to high, got {part!r}; write two ranges instead")
        if step is not None and not 1 <= int(step[:6]) <= 99999:
            raise CronError(f"expected a step from 1 to 99999 in the {field.name}, got {part!r}")
        found.update(range(low, high + 1, int(step[:6]) if step else 1))
    return frozenset(found)


class cron(Generic[_Moment]):
    """The moments that a line in the notation of cron means; an iterator over them.

    expression: the five fields, or a short form such as "@daily"; see the head of the module for the notation.
    start: the first moment is the first one after it; as ``sleep_until`` takes it: POSIX seconds, a ``datetime`` with a
    time zone, or a Time object of ``coro.clocks``. None: the present time of day.
    zone: whose local times these are: a `tzinfo` such as `zoneinfo.ZoneInfo("Europe/Berlin")`; None: the process's.

    Moments are of the type of ``start``: POSIX seconds for a number or None, a ``datetime`` in the zone of the schedule
    (without one, in that of ``start``), or a Time object of the same class.

    The iterator ends at the end of the calendar (year 9999).  It gives moments in ascending order whatever the clock
    does: after a step back none comes twice, after a step forward those passed over come at once; who wants to leave
    them out asks `after(now)` each time instead.

    Raises CronError for a text that is no schedule or means no day at all (`0 0 30 2 *`), TypeError for other types,
    ValueError for a ``datetime`` without a time zone.
    """

    @overload
    def __init__(
        self: cron[int], expression: str, *, start: float | None = None, zone: tzinfo | None = None
    ) -> None: ...

    @overload
    def __init__(self, expression: str, *, start: _Moment, zone: tzinfo | None = None) -> None: ...

    def __init__(self, expression: str, *, start: Any = None, zone: tzinfo | None = None) -> None:
        if not isinstance(expression, str):
            raise TypeError(f"expected a schedule as text, got {type(expression).__name__}")
        if zone is not None and not isinstance(zone, tzinfo):
            raise TypeError(f"expected a tzinfo as zone, got {type(zone).__name__}; zoneinfo.ZoneInfo(name) makes one")
        if len(expression) > _MOST_CHARACTERS:
            raise CronError(f"expected a schedule of at most {_MOST_CHARACTERS} characters, got {len(expression)}")
        text = _SHORT.get(expression.strip().lower(), expression)
        fields = text.split()
        if len(fields) != len(_FIELDS):
            raise CronError(
                f"expected five fields (minute hour day month weekday) or one of {', '.join(_SHORT)}, "
                f"got {expression!r}"
            )
        minutes, hours, days, months, weekdays = (_values(t, f) for t, f in zip(fields, _FIELDS, strict=True))
        self.expression = expression
        self._zone = zone
        self._times = [(h, m) for h in sorted(hours) for m in sorted(minutes)]
        self._intervals = fields[1].startswith("*")
        self._months = months
        self._days = days
        self._weekdays = frozenset(d % 7 for d in weekdays)
        self._either = not fields[2].startswith("*") and not fields[4].startswith("*")
        if not self._either and not any(d <= _LONGEST_MONTH[m - 1] for m in months for d in days):
            raise CronError(f"expected a schedule with a day that exists, got {expression!r}")
        if start is None:
            from coro.clocks.sleeping import wall_usec

            start = wall_usec() / 1000000
        self._last, self._give = _taken(start, zone)
        self._known: dict[date, list[int]] = {}

    def __repr__(self) -> str:
        return f"<cron {self.expression!r}>"

    def __iter__(self) -> Iterator[_Moment]:
        return self

    def __next__(self) -> _Moment:
        try:
            found = self._after(self._last)
            given: _Moment = self._give(found)
        except OverflowError:
            raise StopIteration from None
        self._last = found
        return given

    @overload
    def after(self, moment: float) -> int: ...

    @overload
    def after(self, moment: _Other) -> _Other: ...

    def after(self, moment: Any) -> Any:
        """The first moment after `moment`, which is what ``start`` may be; the result is of the same type.

        Leaves the iterator where it is.  OverflowError behind the end of the calendar, ValueError for NaN and for a
        ``datetime`` without a time zone, TypeError for what is no time.
        """
        seconds, give = _taken(moment, self._zone)
        return give(self._after(seconds))

    def _after(self, moment: float) -> int:
        try:
            day = datetime.fromtimestamp(moment, self._zone or UTC).date() - timedelta(days=1)
            for _ in range(_MOST_DAYS):
                if self._fits(day):
                    moments = self._of_day(day)
                    place = bisect_right(moments, moment)
                    if place < len(moments):
                        return moments[place]
                day += timedelta(days=1)
        except (OSError, OverflowError) as e:
            raise OverflowError(f"expected a moment in the years that the calendar has, got {moment!r}") from e
        except ValueError as e:
            if moment != moment:
                raise ValueError("expected a moment in POSIX seconds, got NaN") from None
            raise OverflowError(f"expected a moment in the years that the calendar has, got {moment!r}") from e
        raise OverflowError(f"{self.expression!r} has no moment within nine years after {moment!r}")

    def _fits(self, day: date) -> bool:
        if day.month not in self._months:
            return False
        in_month, in_week = day.day in self._days, day.isoweekday() % 7 in self._weekdays
        return in_month or in_week if self._either else in_month and in_week

    def _of_day(self, day: date) -> list[int]:
        """As `_moments`, from memory if the day was among the last ones asked for."""
        known = self._known.get(day)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                del self._known[next(iter(self._known))]
            known = self._known[day] = self._moments(day)
        return known

    def _moments(self, day: date) -> list[int]:
        """The moments of one local day, ascending."""
        found: set[int] = set()
        for hour, minute in self._times:
            local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=self._zone)
            first, second = self._posix(local), self._posix(local.replace(fold=1))
            # PEP 495: in a gap the two are the wrong way round, in a fold the right one.
            if first > second:
                if not self._intervals:
                    found.add(self._change(second, first))
            else:
                found.add(first)
                if self._intervals:
                    found.add(second)
        return sorted(found)

    @staticmethod
    def _posix(local: datetime) -> int:
        return int(local.timestamp())

    def _offset(self, moment: int) -> timedelta | None:
        return datetime.fromtimestamp(moment, self._zone).astimezone(self._zone).utcoffset()

    def _change(self, before: int, after: int) -> int:
        """The second in (before, after] from which on the zone has another offset."""
        old = self._offset(before)
        while after - before > 1:
            middle = (before + after) // 2
            if self._offset(middle) == old:
                before = middle
            else:
                after = middle
        return after
