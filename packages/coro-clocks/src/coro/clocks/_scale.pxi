# A time scale: raw readings, conversions and Time objects over one counter.  Included by tsc_time.pyx,
# posix_time.pyx and mach_time.pyx, so that each has the whole interface at C speed and classes of its own.
#
# The including file has defined, for its counter:
#     cdef int64_t scale_read() except? -1                        the present tick
#     cdef int scale_rate(uint64_t *num, uint64_t *den) except -1       num / den ticks a second, >= 10**6
#     cdef int scale_relation(int64_t *tick, int64_t *usec) except -1   this tick is this POSIX microsecond
#
# Exactness.  POSIX microseconds become ticks rounded up, ticks become microseconds rounded down, both in integers of
# any size; with a million ticks a second or more the way there and back gives the same microsecond.  Only the short
# way of now_raw_posix_usec() computes in 64 bits, in the range where that is exact.
#
# Time objects.  The rate is refined while the process runs and the relation to POSIX time is renewed, so a tick far
# from now means another date from one minute to the next.  An object therefore fixes both sides when it is made: the
# tick in `tsc`, and the POSIX microsecond it falls into with the number of ticks into that microsecond (`sub`).
# (usec, sub) is what all four classes are ordered and hashed by: what is written on a calendar never changes.
#
# One file, a little long, because what it defines refers to itself throughout and is compiled three times as one.
#
# Cost: an object is about 60 bytes and its integers; a conversion one multiplication and one division of Python ints.
# Rejected: ticks alone, as the original had it (a correction of the rate by 1e-6 moves 1970 by half an hour);
# comparison in the unit of the left operand (then a == b and b == c do not give a == c, and no hash fits).

from libc.stdint cimport int64_t, uint64_t

import time as _time
from operator import index as _index

from coro._clock import ticks as _core
from coro.clocks import _wall

cdef enum:
    MICRO = 1000000


cdef object to_usec(object tick):
    """A tick as POSIX microseconds, rounded down."""
    cdef int64_t base_tick, base_usec
    cdef uint64_t num, den
    scale_relation(&base_tick, &base_usec)
    scale_rate(&num, &den)
    return base_usec + (tick - base_tick) * (<object> den * MICRO) // num


cdef object to_ticks(object usec):
    """POSIX microseconds as a tick, rounded up."""
    cdef int64_t base_tick, base_usec
    cdef uint64_t num, den
    scale_relation(&base_tick, &base_usec)
    scale_rate(&num, &den)
    return base_tick - (base_usec - usec) * num // (<object> den * MICRO)


cdef object present_usec():
    """The present POSIX microsecond."""
    cdef int64_t base_tick, base_usec, passed
    cdef uint64_t num, den
    passed = scale_read()
    scale_relation(&base_tick, &base_usec)
    scale_rate(&num, &den)
    if den == 1:
        if -9000000000000 < passed - base_tick < 9000000000000:
            return base_usec + (passed - base_tick) * MICRO // <int64_t> num
    return base_usec + (<object> passed - base_tick) * (<object> den * MICRO) // num


cdef object whole(object x, str what):
    try:
        return _index(x)
    except TypeError:
        raise TypeError(
            f"expected {what} as an int, got {type(x).__name__}; convert it with int() first") from None


cdef object nearest_usec(object seconds):
    """Seconds (int or float) as microseconds, to the nearest, ties to even; exact."""
    cdef double s
    if isinstance(seconds, int):
        return seconds * MICRO
    try:
        s = seconds
    except TypeError:
        raise TypeError(f"expected seconds as an int or a float, got {type(seconds).__name__}") from None
    if s != s:
        raise ValueError("expected a number of seconds, got NaN")
    num, den = s.as_integer_ratio()
    quotient, rest = divmod(2 * MICRO * num + den, 2 * den)
    return quotient - 1 if rest == 0 and quotient & 1 else quotient


cdef bint is_number(object x):
    return isinstance(x, (int, float))


cdef object ticks_of(object n):
    """A number of ticks that may be a float: to the nearest."""
    return n if isinstance(n, int) else round(n)


# ---- raw readings ------------------------------------------------------------------------------------------

def now_raw_tsc() -> int:
    """The present tick of this scale.  Also called `rdtsc`.  `ticks_per_sec` says how many make a second."""
    return scale_read()


rdtsc = now_raw_tsc


def now_raw_posix_usec() -> int:
    """The present POSIX time in whole microseconds, by this scale."""
    return present_usec()


def now_raw_posix_sec() -> int:
    """The present POSIX time in whole seconds, by this scale."""
    return present_usec() // MICRO


def now_raw_posix_fsec() -> float:
    """The present POSIX time in seconds, a float good to a microsecond, by this scale."""
    return present_usec() / MICRO


def get_kernel_usec() -> int:
    """The system's own time of day in POSIX microseconds, asked of the kernel: without corrections or simulation."""
    return _time.time_ns() // 1000


# ---- raw conversions ---------------------------------------------------------------------------------------

def usec_to_ticks(usec) -> int:
    """POSIX time in microseconds (int of any size) as an absolute tick, rounded up.

    Exact: `ticks_to_usec` gives the same microsecond back.  TypeError if not an int.
    """
    return to_ticks(whole(usec, "microseconds"))


def ticks_to_usec(ticks) -> int:
    """An absolute tick (int of any size) as POSIX time in microseconds, rounded down.  TypeError if not an int."""
    return to_usec(whole(ticks, "ticks"))


def sec_to_ticks(sec) -> int:
    """POSIX time in whole seconds (int) as an absolute tick, rounded up.  TypeError if not an int."""
    return to_ticks(whole(sec, "seconds") * MICRO)


def ticks_to_sec(ticks) -> int:
    """An absolute tick (int) as POSIX time in whole seconds, rounded down.  TypeError if not an int."""
    return to_usec(whole(ticks, "ticks")) // MICRO


def fsec_to_ticks(sec) -> int:
    """POSIX time in seconds (float or int) as an absolute tick: that of the nearest microsecond.

    Raises OverflowError for an infinity, ValueError for NaN, TypeError for what is not a number.
    """
    return to_ticks(nearest_usec(sec))


def ticks_to_fsec(ticks) -> float:
    """An absolute tick (int) as POSIX time in seconds, a float good to a microsecond.  TypeError if not an int."""
    return to_usec(whole(ticks, "ticks")) / MICRO


def usec_to_ticks_safe(usec) -> int:
    """As `usec_to_ticks`, but 0, meaning "no time", stays 0.  TypeError if not an int."""
    u = whole(usec, "microseconds")
    return to_ticks(u) if u else 0


def ticks_to_usec_safe(ticks) -> int:
    """As `ticks_to_usec`, but 0, meaning "no time", stays 0.  TypeError if not an int."""
    t = whole(ticks, "ticks")
    return to_usec(t) if t else 0


# ---- relation to POSIX time --------------------------------------------------------------------------------

def update_time_relation() -> None:
    """Read the counter and the system's time of day anew and link them; correct the rate by what was measured.

    Call it after the system's clock was set by hand.  A running loop does it once an hour and after a suspend; so do
    the functions here that read the time of day.  Under a virtual clock nothing happens.
    """
    _wall.renew()


def set_time(posix_seconds) -> None:
    """Simulate another time of day: from now on it is `posix_seconds` (int or float) and goes on from there.

    The whole process follows: all scales of coro.clocks, `coro.get_usec()`, `coro.now_usec`, threads in `sleep_until`.
    Ticks, sleeps and timeouts by duration do not change, and the system's clock is not touched.  0 ends the
    simulation.  Raises TypeError for what is not a number, ValueError for NaN, OverflowError for what is too large.
    """
    _wall.set_time(nearest_usec(posix_seconds))


def step_time(delta_seconds) -> None:
    """Simulate a step of the time of day by `delta_seconds` (int or float, negative: back).  See `set_time`."""
    _wall.step_time(nearest_usec(delta_seconds))


# ---- time objects ------------------------------------------------------------------------------------------

cdef object ctime_key = None                        # the latest second formatted, and the zone it was formatted for
cdef str ctime_text = None


cdef str local_text(object sec):
    global ctime_key, ctime_text
    key = (sec, _time.timezone, _time.tzname)
    if key != ctime_key:
        ctime_text = _time.ctime(sec)
        ctime_key = key
    return ctime_text


cdef class Time:
    """A moment: the base of `TSC` (ticks), `Posix` (seconds), `uPosix` (microseconds) and `fPosix` (float seconds).

    The classes differ in the unit that `int()`, `float()`, arithmetic and comparison with numbers use.  Moments of any
    of the four compare, and hash, by where they are in time.  `t + n` and `t - n` move by a number of units and give
    the same class; `n - t` is the moment as far from `n` as `n` is after 0; `t1 + t2` adds the other's value; `t1 - t2`
    is the number of units between them.  A number equals a moment that has this value in its unit, but hashes
    otherwise: do not mix both as keys of one dictionary.

    tsc: the tick, fixed when the object is made.

    Objects are made by the functions of the module, and compare with those of the same module only.
    """

    cdef readonly object tsc
    cdef object usec
    cdef object sub

    def __init__(self, *args, **kwargs):
        raise TypeError(f"{type(self).__name__} objects are made by functions: now_posix_usec(), "
                        f"{type(self).__name__}_from_posix_usec(n) and their like")

    cdef object value(self):
        """In the unit of the class."""
        raise TypeError("Time itself has no unit")

    cdef Time moved(self, object by):
        """As many units later."""
        raise TypeError("Time itself has no unit")

    cdef object after(self, Time other):
        """Units since `other`."""
        raise TypeError("Time itself has no unit")

    cdef object negated(self):
        """As many units before 0 as this is after it."""
        return made(type(self), -self.usec)

    def as_posix_sec(self) -> int:
        """POSIX time in whole seconds, rounded down."""
        return self.usec // MICRO

    def as_posix_usec(self) -> int:
        """POSIX time in whole microseconds, rounded down."""
        return self.usec

    def as_posix_fsec(self) -> float:
        """POSIX time in seconds, a float of the microsecond."""
        return self.usec / MICRO

    def ctime(self) -> str:
        """Local time in 24 characters such as 'Thu Jan  1 00:00:00 1970'.

        OverflowError, OSError or ValueError for years that the C library cannot express.
        """
        return local_text(self.usec // MICRO)

    def localtime(self) -> _time.struct_time:
        """Local time as `time.localtime` has it; raises as `ctime`."""
        return _time.localtime(self.usec // MICRO)

    def gmtime(self) -> _time.struct_time:
        """UTC as `time.gmtime` has it; raises as `ctime`."""
        return _time.gmtime(self.usec // MICRO)

    def mkstr_local(self, format) -> str:
        """Local time by a format of `time.strftime`; raises as `ctime`, and TypeError when the format is no text."""
        return _time.strftime(format, _time.localtime(self.usec // MICRO))

    def mkstr_utc(self, format) -> str:
        """UTC by a format of `time.strftime`; raises as `mkstr_local`."""
        return _time.strftime(format, _time.gmtime(self.usec // MICRO))

    def __repr__(self):
        try:
            text = local_text(self.usec // MICRO)
        except (OverflowError, OSError, ValueError):    # no calendar reaches so far
            text = f"{self.usec} us since 1970"
        return f"<{type(self).__name__}: {text}>"

    def __int__(self):
        return int(self.value())

    def __float__(self):
        return float(self.value())

    def __hash__(self):
        return hash((self.usec, self.sub))

    def __richcmp__(self, other, int op):
        cdef Time t
        if isinstance(other, Time):
            t = <Time> other
            mine, theirs = (self.usec, self.sub), (t.usec, t.sub)
        elif is_number(other):
            mine, theirs = self.value(), other
        else:
            return NotImplemented
        if op == 0:
            return mine < theirs
        if op == 1:
            return mine <= theirs
        if op == 2:
            return mine == theirs
        if op == 3:
            return mine != theirs
        if op == 4:
            return mine > theirs
        return mine >= theirs

    def __add__(self, other):
        if isinstance(other, Time):
            if isinstance(self, TSC):
                return self.moved((<Time> other).tsc)
            return made(type(self), self.usec + (<Time> other).usec, self.sub)
        return self.moved(other) if is_number(other) else NotImplemented

    def __radd__(self, other):
        return self.moved(other) if is_number(other) else NotImplemented

    def __sub__(self, other):
        if isinstance(other, Time):
            return self.after(other)
        return self.moved(-other) if is_number(other) else NotImplemented

    def __rsub__(self, other):
        if not is_number(other):
            return NotImplemented
        return (<Time> self.negated()).moved(other)

    def __reduce__(self):
        # Ticks mean nothing to another process.
        return _restored, (type(self).__name__, self.usec)


cdef class TSC(Time):
    """A moment in the unit of ticks.  See `Time`."""

    cdef object value(self):
        return self.tsc

    cdef Time moved(self, object by):
        return made_at(TSC, self.tsc + ticks_of(by))

    cdef object after(self, Time other):
        return self.tsc - other.tsc

    cdef object negated(self):
        return made_at(TSC, -self.tsc)


cdef class Posix(Time):
    """A moment in the unit of POSIX seconds; `int()`, `float()` and differences are whole.  See `Time`."""

    cdef object value(self):
        return self.usec // MICRO

    cdef Time moved(self, object by):
        return made(Posix, self.usec + nearest_usec(by), self.sub)

    cdef object after(self, Time other):
        return self.usec // MICRO - other.usec // MICRO


cdef class uPosix(Time):
    """A moment in the unit of POSIX microseconds.  See `Time`."""

    cdef object value(self):
        return self.usec

    cdef Time moved(self, object by):
        return made(uPosix, self.usec + ticks_of(by), self.sub)

    cdef object after(self, Time other):
        return self.usec - other.usec


cdef class fPosix(Time):
    """A moment in the unit of POSIX seconds as floats; `int()` is the whole seconds.  See `Time`."""

    cdef object value(self):
        return self.usec / MICRO

    cdef Time moved(self, object by):
        return made(fPosix, self.usec + nearest_usec(by), self.sub)

    cdef object after(self, Time other):
        return (self.usec - other.usec) / MICRO

    def __int__(self):
        return self.usec // MICRO


cdef Time made(type cls, object usec, object sub=0):
    """An object for a POSIX microsecond, `sub` ticks into it."""
    cdef Time t = cls.__new__(cls)
    t.usec = usec
    t.sub = sub
    t.tsc = to_ticks(usec) + sub
    return t


cdef Time made_at(type cls, object tick):
    """An object for a tick."""
    cdef Time t = cls.__new__(cls)
    t.tsc = tick
    t.usec = to_usec(tick)
    t.sub = tick - to_ticks(t.usec)
    return t


def _restored(str name, usec):
    """For pickle."""
    return made({"TSC": TSC, "Posix": Posix, "uPosix": uPosix, "fPosix": fPosix}[name], whole(usec, "microseconds"))


# ---- constructors: now -------------------------------------------------------------------------------------

def now_tsc() -> TSC:
    """Now, as a `TSC`."""
    return made_at(TSC, scale_read())


def now_posix_sec() -> Posix:
    """Now, as a `Posix`."""
    return made_at(Posix, scale_read())


def now_posix_usec() -> uPosix:
    """Now, as a `uPosix`."""
    return made_at(uPosix, scale_read())


def now_posix_fsec() -> fPosix:
    """Now, as an `fPosix`."""
    return made_at(fPosix, scale_read())


# ---- constructors: from a local time -----------------------------------------------------------------------

cdef object from_tuple(object t):
    if not isinstance(t, tuple):
        raise TypeError(f"expected a tuple of 9 or a struct_time, got {type(t).__name__}; see time.localtime()")
    if len(t) != 9:
        raise ValueError(f"expected 9 fields as in time.struct_time, got {len(t)}; fill in the missing ones with 0")
    if whole(t[0], "the year") < 1900:
        raise ValueError(f"expected a year from 1900 on, with its century, got {t[0]}")
    return int(_time.mktime(tuple(t))) * MICRO


def mktime_tsc(time_tuple) -> TSC:
    """A local time, a `struct_time` or tuple of its 9 fields, as a `TSC`.

    Raises TypeError for other types, ValueError for another length or a year before 1900, OverflowError for a time that
    the C library cannot express.
    """
    return made(TSC, from_tuple(time_tuple))


def mktime_posix_sec(time_tuple) -> Posix:
    """A local time as a `Posix`; otherwise as `mktime_tsc`."""
    return made(Posix, from_tuple(time_tuple))


def mktime_posix_usec(time_tuple) -> uPosix:
    """A local time as a `uPosix`; otherwise as `mktime_tsc`."""
    return made(uPosix, from_tuple(time_tuple))


def mktime_posix_fsec(time_tuple) -> fPosix:
    """A local time as an `fPosix`; otherwise as `mktime_tsc`."""
    return made(fPosix, from_tuple(time_tuple))


# ---- constructors: from numbers ----------------------------------------------------------------------------
# Of ticks, seconds and microseconds: ints of any size, TypeError otherwise.  Of float seconds: floats or ints, taken
# to the nearest microsecond; OverflowError for an infinity, ValueError for NaN.

def TSC_from_ticks(ticks) -> TSC:
    """A `TSC` from a tick.  TypeError if not an int."""
    return made_at(TSC, whole(ticks, "ticks"))


def TSC_from_posix_sec(seconds) -> TSC:
    """A `TSC` from POSIX seconds.  TypeError if not an int."""
    return made(TSC, whole(seconds, "seconds") * MICRO)


def TSC_from_posix_usec(usec) -> TSC:
    """A `TSC` from POSIX microseconds.  TypeError if not an int."""
    return made(TSC, whole(usec, "microseconds"))


def TSC_from_posix_fsec(seconds) -> TSC:
    """A `TSC` from POSIX seconds as a float.  OverflowError for an infinity, ValueError for NaN, TypeError for what is
    no number."""
    return made(TSC, nearest_usec(seconds))


def Posix_from_ticks(ticks) -> Posix:
    """A `Posix` from a tick.  TypeError if not an int."""
    return made_at(Posix, whole(ticks, "ticks"))


def Posix_from_posix_sec(seconds) -> Posix:
    """A `Posix` from POSIX seconds.  TypeError if not an int."""
    return made(Posix, whole(seconds, "seconds") * MICRO)


def Posix_from_posix_usec(usec) -> Posix:
    """A `Posix` from POSIX microseconds.  TypeError if not an int."""
    return made(Posix, whole(usec, "microseconds"))


def Posix_from_posix_fsec(seconds) -> Posix:
    """A `Posix` from POSIX seconds as a float.  OverflowError for an infinity, ValueError for NaN, TypeError for what
    is no number."""
    return made(Posix, nearest_usec(seconds))


def uPosix_from_ticks(ticks) -> uPosix:
    """A `uPosix` from a tick.  TypeError if not an int."""
    return made_at(uPosix, whole(ticks, "ticks"))


def uPosix_from_posix_sec(seconds) -> uPosix:
    """A `uPosix` from POSIX seconds.  TypeError if not an int."""
    return made(uPosix, whole(seconds, "seconds") * MICRO)


def uPosix_from_posix_usec(usec) -> uPosix:
    """A `uPosix` from POSIX microseconds.  TypeError if not an int."""
    return made(uPosix, whole(usec, "microseconds"))


def uPosix_from_posix_fsec(seconds) -> uPosix:
    """A `uPosix` from POSIX seconds as a float.  OverflowError for an infinity, ValueError for NaN, TypeError for what
    is no number."""
    return made(uPosix, nearest_usec(seconds))


def fPosix_from_ticks(ticks) -> fPosix:
    """An `fPosix` from a tick.  TypeError if not an int."""
    return made_at(fPosix, whole(ticks, "ticks"))


def fPosix_from_posix_sec(seconds) -> fPosix:
    """An `fPosix` from POSIX seconds.  TypeError if not an int."""
    return made(fPosix, whole(seconds, "seconds") * MICRO)


def fPosix_from_posix_usec(usec) -> fPosix:
    """An `fPosix` from POSIX microseconds.  TypeError if not an int."""
    return made(fPosix, whole(usec, "microseconds"))


def fPosix_from_posix_fsec(seconds) -> fPosix:
    """An `fPosix` from POSIX seconds as a float.  OverflowError for an infinity, ValueError for NaN, TypeError for what
    is no number."""
    return made(fPosix, nearest_usec(seconds))


def _cost(long count) -> float:
    """Nanoseconds a reading from C takes, the mean of `count`."""
    cdef long i
    begin = _time.perf_counter_ns()
    for i in range(count):
        scale_read()
    return (_time.perf_counter_ns() - begin) / count
