# cython: language_level=3, binding=False, embedsignature=True, embedsignature.format=clinic
"""The tick counter: which clock the process counts by, its rate, and conversions to other times.

The idea is in _clock/ticks.h: a tick is one step of the CPU's counter where it can be trusted, else a nanosecond of
CLOCK_MONOTONIC.  This module owns the one state struct and does what is not on the hot path:

* Start.  The counter is used when the hardware calls it steady *and* the kernel keeps its own time by it.
  The first rate is the one the hardware or the hypervisor announces; where nothing is announced the import
  spends one millisecond measuring.
* Care.  `tend()` (by the loop, about once a second) and `recalibrate()` compare the counter with
  CLOCK_MONOTONIC since the import (since one to two hours ago in a process that lives longer).  The rate is
  replaced when the new measurement is twice as good, or differs by more than both may err.  After 0.1 s the
  error is below 1 us a second, after 1 s below 0.1 us.  A new rate moves deadlines that were already
  computed by (time left) x (change of the rate): less than 1 us for each second left once the first 0.1 s
  are over; before, as much as the first rate was wrong (measured: some 20 us, announced: up to 200 us a
  second; the nominal frequency of old processors up to 20 ms).
* Loss of trust.  When the kernel has dropped the counter, or the counter has gone back or stalled, ticks go
  on from CLOCK_MONOTONIC at the same rate and without a jump, for good.  A counter that ran ahead (it may
  count through a suspend, during which CLOCK_MONOTONIC stands still) is kept; only the measurement starts
  again.
* POSIX time is linked to ticks by one pair, renewed by `update_time_relation()`, which the loop calls when it
  starts, and by `tend()` once an hour, because the time of day may be set while the process runs, and after a
  suspend, which CLOCK_BOOTTIME counts and CLOCK_MONOTONIC does not.  Who knows the time better than the system
  (coro.clocks asks time servers) says by how much it is wrong: `set_correction()`.
* A virtual clock for tests: `install_virtual()`, `advance_virtual()`, `remove_virtual()`.

Cost: one struct of about 250 bytes; `tend()` about 1 us a second; `recalibrate()` about 20 us (it reads a
file of sysfs).

Rejected: measuring for 50 ms or more at import (scripts would feel it); the "cpu MHz" of /proc/cpuinfo (it
is the present core frequency, not the counter's); trusting CPUID alone (virtual machines announce what they
emulate, the kernel knows better).

All functions need the GIL except the C-level readers and conversions.
"""

cdef extern from *:
    """
    #define CORO_TICKS_IMPLEMENTATION
    #include "_clock/ticks.h"
    """

from libc.stdint cimport INT64_MAX
from libc.string cimport memset
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, clockid_t, timespec

import os as _os
import time as _time
from operator import index as _index
from typing import NamedTuple as _NamedTuple

cdef extern from "_clock/ticks.h" nogil:
    ctypedef struct coro_pair:
        int64_t tick
        int64_t ns
        int64_t width
    enum:
        CORO_HAVE_COUNTER
        CORO_CLOCK_ABI
    int64_t coro_counter()
    int64_t coro_monotonic_ns()
    uint64_t coro_mul_div(uint64_t, uint64_t, uint64_t)
    void coro_clock_write_begin(coro_clock *)
    void coro_clock_write_end(coro_clock *)
    void coro_clock_set_hz(coro_clock *, uint64_t)
    void coro_take_pair(coro_pair *, clockid_t)
    uint64_t coro_pair_hz(const coro_pair *, const coro_pair *, int64_t *)
    int coro_counter_probe(uint64_t *, int64_t *, const char **)
    int coro_sysctl_source(char *, size_t)

cdef extern from *:
    """
    #ifdef CLOCK_BOOTTIME
    #define CORO_BOOTTIME CLOCK_BOOTTIME
    #else                                      /* then a suspend is not noticed this way */
    #define CORO_BOOTTIME CLOCK_MONOTONIC
    #endif
    """
    clockid_t CORO_BOOTTIME


#: Where Linux names its clock source; without the file only aarch64 hardware is taken at its word.
CLOCKSOURCE_FILE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"

#: Microseconds in a second (kept from the original package).
microseconds = 1000000

#: Seconds between renewals of the relation to POSIX time.  A fact: setting it changes nothing.
tick_update_interval = RELATE_EVERY

cdef enum:
    SECOND = 1000000000                  # in ns
    WINDOW = 3600                        # s between moves of the window and looks at the kernel's choice
    RELATE_EVERY = 3600                  # s between renewals of the relation to POSIX time
    SLEW_PPM = 1000                      # NTP slews CLOCK_MONOTONIC by up to 500 ppm (adjtimex(2))

cdef coro_clock state                    # the one copy
cdef coro_pair anchor                    # start of the measuring window
cdef coro_pair later                     # start of the next one
cdef coro_pair last                      # the latest pair, for jumps
cdef int64_t rate_error = 0              # of the rate in use, ppb
cdef int64_t looked_ns = 0               # CLOCK_MONOTONIC of the last look at the kernel's choice
cdef int real_mode = CORO_CLOCK_MONOTONIC    # what runs behind a virtual clock
cdef int jumps = 0
cdef int64_t relation_tick = 0           # this tick ...
cdef int64_t relation_usec = 0           # ... is this POSIX time in microseconds
cdef uint64_t relation_number = 0        # how often the two were changed
cdef int64_t correction = 0              # us to add to the system's time of day
cdef int64_t asleep_ns = 0               # suspended so far: CLOCK_BOOTTIME - CLOCK_MONOTONIC
cdef int suspends = 0
cdef object reason = None                # why this source
cdef object source_name = None


class ClockInfo(_NamedTuple):
    """What `describe()` returns.

    source: "tsc", "cntvct" or "monotonic", or "virtual" over one of them.
    ticks_per_sec: the rate, whole ticks a second.
    error_ppb: possible error of the rate against CLOCK_MONOTONIC in parts per 10**9 (1000 = 1 us a second).
    why: why this source and not another.
    jumps: how often the counter ran ahead of CLOCK_MONOTONIC (suspends).
    """

    source: str
    ticks_per_sec: int
    error_ppb: int
    why: str
    jumps: int


# ---- C level -----------------------------------------------------------------------------------------------

cdef coro_clock *clock() noexcept nogil:
    return &state


cdef int64_t now() noexcept nogil:
    return coro_now(&state)


cdef int64_t from_ns(int64_t ns) noexcept nogil:
    return coro_from_ns(&state, ns)


cdef int64_t to_ns(int64_t ticks) noexcept nogil:
    return coro_to_ns(&state, ticks)


cdef int64_t to_ns_up(int64_t ticks) noexcept nogil:
    return coro_to_ns_up(&state, ticks)


cdef int64_t from_seconds(double seconds) noexcept nogil:
    return coro_from_seconds(&state, seconds)


cdef double to_seconds(int64_t ticks) noexcept nogil:
    return coro_to_seconds(&state, ticks)


cdef int64_t posix_usec(int64_t ticks) noexcept:
    cdef int64_t ns = coro_to_ns(&state, ticks - relation_tick)
    return relation_usec + ns // 1000


cdef uint64_t relation(int64_t *tick, int64_t *usec) noexcept nogil:
    tick[0] = relation_tick
    usec[0] = relation_usec
    return relation_number


# ---- the source --------------------------------------------------------------------------------------------

cdef object kernel_source():
    """The name of the kernel's own clock source, or None when it does not tell."""
    cdef char buf[64]
    coro_sysctl_source(buf, sizeof(buf))
    if buf[0]:
        return (<bytes> buf).decode("ascii", "replace")
    try:
        fd = _os.open(CLOCKSOURCE_FILE, _os.O_RDONLY | _os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        return _os.read(fd, 63).decode("ascii", "replace").strip() or None
    except OSError:
        return None
    finally:
        _os.close(fd)


cdef object refused_by_kernel():
    """None when the kernel counts by the same counter as we would, else the reason not to use it."""
    name = kernel_source()
    arm = _os.uname().machine in ("aarch64", "arm64")
    if name is None:
        return None if arm else "the kernel does not say which clock source it uses"
    if arm:
        good = name == "arch_sys_counter" or name.startswith("ARM MPCore") or name == "mach_absolute_time"
    else:
        good = name == "tsc" or name.startswith("TSC")
    return None if good else f"the kernel's clock source is {name!r}"


cdef void set_rate(uint64_t hz, int64_t error) noexcept:
    global rate_error
    coro_clock_write_begin(&state)
    coro_clock_set_hz(&state, hz)
    coro_clock_write_end(&state)
    rate_error = error


cdef void use_monotonic(int64_t tick, int64_t ns) noexcept:
    """From now on `ns` of CLOCK_MONOTONIC is `tick`, at the present rate."""
    global real_mode
    real_mode = CORO_CLOCK_MONOTONIC
    coro_clock_write_begin(&state)
    state.base_tick[CORO_CLOCK_MONOTONIC] = tick
    state.base_ns[CORO_CLOCK_MONOTONIC] = ns
    if state.mode == CORO_CLOCK_COUNTER:
        state.mode = CORO_CLOCK_MONOTONIC
    coro_clock_write_end(&state)


cdef int start() except -1:
    """At import: choose the source, take the first pair, get a first rate."""
    global real_mode, reason, source_name, anchor, later, last, looked_ns
    cdef uint64_t hz = 0
    cdef int64_t error = 0
    cdef const char *why = NULL
    cdef coro_pair pair
    memset(&state, 0, sizeof(state))
    state.abi = CORO_CLOCK_ABI
    wish = _os.environ.get("CORO_CLOCK", "")
    refusal = None
    if wish == "monotonic":
        refusal = "CORO_CLOCK=monotonic in the environment"
    elif wish not in ("", "counter"):
        import warnings
        warnings.warn(
            f"CORO_CLOCK is {wish!r}; expected 'monotonic' or 'counter': ignored", RuntimeWarning)
    if refusal is None and not coro_counter_probe(&hz, &error, &why):
        refusal = why.decode("ascii")
    if refusal is None and wish != "counter":
        refusal = refused_by_kernel()
    if refusal is None:
        coro_take_pair(&anchor, CLOCK_MONOTONIC)
        pair = anchor
        if hz == 0:                                # nothing announced: one millisecond of measuring
            while pair.ns - anchor.ns < 1000000:
                coro_take_pair(&pair, CLOCK_MONOTONIC)
            hz = coro_pair_hz(&anchor, &pair, &error)
        if hz < 1000000:
            refusal = "the counter runs slower than 1 MHz or not at all"
    if refusal is None:
        reason = why.decode("ascii")
        reason += ", as chosen by CORO_CLOCK=counter" if wish == "counter" else ", used by the kernel too"
        source_name = "cntvct" if _os.uname().machine in ("aarch64", "arm64") else "tsc"
        set_rate(hz, error)
        real_mode = state.mode = CORO_CLOCK_COUNTER
        later = last = pair
        looked_ns = pair.ns
        state.checked_at = pair.tick
        state.check_every = hz // 100
    else:
        reason = refusal
        source_name = "monotonic"
        set_rate(SECOND, 0)
        real_mode = state.mode = CORO_CLOCK_MONOTONIC
        state.check_every = SECOND                 # for the relation to POSIX time
    slept()
    relate()
    return 0


cdef bint slept() noexcept:
    """Has the machine been suspended since the last call?"""
    global asleep_ns
    cdef timespec boot
    cdef int64_t before = coro_monotonic_ns(), between, asleep
    if clock_gettime(CORO_BOOTTIME, &boot) != 0:
        return False
    between = coro_monotonic_ns() - before
    asleep = <int64_t> boot.tv_sec * SECOND + boot.tv_nsec - before
    if between > SECOND // 100 or asleep - asleep_ns < SECOND // 10:
        return False                               # nothing, or not to be told from a pause of this process
    asleep_ns = asleep
    return True


cdef void relate() noexcept:
    """Renew the pair that links ticks to POSIX time."""
    global relation_tick, relation_usec, relation_number
    cdef coro_pair pair
    cdef int64_t before, after
    if real_mode == CORO_CLOCK_COUNTER:
        coro_take_pair(&pair, CLOCK_REALTIME)
        relation_tick = pair.tick
    else:
        before = coro_now(&state)
        coro_take_pair(&pair, CLOCK_REALTIME)
        after = coro_now(&state)
        relation_tick = before + (after - before) // 2
    relation_usec = pair.ns // 1000 + correction
    relation_number += 1


cdef void distrust(object why, const coro_pair *pair) noexcept:
    """Leave the counter for CLOCK_MONOTONIC, for good; ticks go on where they are."""
    global reason, source_name, rate_error
    cdef int64_t ns = coro_monotonic_ns()
    # where the ticks should be by the last trustworthy pair; a reading already handed out may be a little
    # ahead of that
    cdef int64_t tick = last.tick + coro_from_ns(&state, ns - last.ns)
    cdef int64_t raw = coro_counter()
    if pair == NULL:
        tick = max(tick, raw)
    else:
        tick += coro_from_ns(&state, 1000)    # the counter is wrong: leave room for its last good readings
    use_monotonic(tick, ns)
    state.check_every = state.hz
    reason = why
    source_name = "monotonic"
    rate_error = 0                                 # the rate is now exact by definition


cdef void tend(int64_t now) noexcept:
    """Compare the counter with CLOCK_MONOTONIC: refine the rate, notice jumps.  Renew an old relation to POSIX time.

    For the loop: `if coro_clock_due(clock, t): tend(t)`.  Never fails; about 1 us.
    """
    global anchor, later, last, jumps, looked_ns, suspends
    cdef coro_pair pair
    cdef int64_t error = 0, passed, expected, slack, change
    cdef uint64_t hz
    state.checked_at = now
    if state.mode == CORO_CLOCK_VIRTUAL:
        return    # rate and relation stand still
    if slept():
        suspends += 1
        relate()
    elif now - relation_tick >= RELATE_EVERY * <int64_t> state.hz:
        relate()
    if state.mode != CORO_CLOCK_COUNTER:
        return    # nothing to compare
    coro_take_pair(&pair, CLOCK_MONOTONIC)
    passed = pair.ns - last.ns
    expected = coro_to_ns(&state, pair.tick - last.tick)
    slack = 1000000
    if passed > 0:
        slack += coro_mul_div(passed, <uint64_t> (2 * rate_error + SLEW_PPM * 1000), SECOND)
    if pair.tick < last.tick or expected - passed < -slack:
        distrust("the counter went back or stopped against CLOCK_MONOTONIC", &pair)
        return
    if expected - passed > slack:                  # ran on through a suspend: measure anew from here
        jumps += 1
        anchor = later = last = pair
        return
    last = pair
    if pair.ns - looked_ns >= WINDOW * <int64_t> SECOND:
        look()
        if real_mode != CORO_CLOCK_COUNTER:
            return
    if state.check_every < state.hz:
        state.check_every = min(state.check_every * 2, state.hz)
    hz = coro_pair_hz(&anchor, &pair, &error)
    if hz == 0:
        return
    change = <int64_t> (hz - state.hz) if hz > state.hz else <int64_t> (state.hz - hz)
    change = coro_mul_div(change, SECOND, state.hz)
    if error * 2 <= rate_error or change > error + rate_error:
        set_rate(hz, error)
    if pair.ns - later.ns >= WINDOW * <int64_t> SECOND:    # two hours: the older one is cut off
        anchor = later
        later = pair


cdef void look() noexcept:
    """See whether the kernel still counts by the counter."""
    global looked_ns
    looked_ns = coro_monotonic_ns()
    try:
        if reason.endswith("CORO_CLOCK=counter"):
            return
        refusal = refused_by_kernel()
    except Exception:                              # no memory for a string, say: nothing new is known
        return
    if refusal is not None:
        distrust(refusal, NULL)


# ---- Python level ------------------------------------------------------------------------------------------

def rdtsc() -> int:
    """The present tick.  Also called `get_now`.  `ticks_per_sec` says how many make a second."""
    return coro_now(&state)


get_now = rdtsc


def monotonic_ns() -> int:
    """The present tick as nanoseconds of the tick clock (virtual while a virtual clock is installed)."""
    return coro_to_ns(&state, coro_now(&state))


def from_duration(seconds) -> int:
    """A duration in seconds (int or float) as ticks, to the nearest; too long ones are cut at 2**62.

    Raises ValueError for NaN, TypeError for what is not a number.
    """
    cdef double s = seconds
    if s != s:
        raise ValueError("expected a number of seconds, got NaN; use float('inf') for no limit")
    return coro_from_seconds(&state, s)


def to_duration(ticks) -> float:
    """A number of ticks as seconds."""
    return coro_to_seconds(&state, <int64_t> ticks)


cdef object whole(object x, str what):
    try:
        return _index(x)
    except TypeError:
        raise TypeError(
            f"expected {what} as an int, got {type(x).__name__}; convert it with int() first") from None


def usec_to_ticks(usec) -> int:
    """The POSIX time `usec`, in microseconds (int of any size, may be negative), as an absolute tick, rounded up.

    `ticks_to_absolute_time` gives the same microsecond back. Raises TypeError if it is not an int.
    """
    u = whole(usec, "microseconds")
    return relation_tick - (relation_usec - u) * state.hz // 1000000


def ticks_to_usec(ticks) -> int:
    """The absolute tick `ticks` (int) as POSIX time in microseconds, rounded down.

    The reverse of `absolute_time_to_ticks`. Raises TypeError if it is not an int.
    """
    t = whole(ticks, "ticks")
    return relation_usec + (t - relation_tick) * 1000000 // state.hz


def sec_to_ticks(sec) -> int:
    """The POSIX time `sec`, in whole seconds (int, may be negative), as an absolute tick, rounded up.

    `absolute_time_to_ticks` does the same for microseconds. Raises TypeError if it is not an int.
    """
    return usec_to_ticks(whole(sec, "seconds") * 1000000)


def ticks_to_sec(ticks) -> int:
    """The absolute tick `ticks` (int) as POSIX time in whole seconds, rounded down.

    The reverse of `absolute_secs_to_ticks`. Raises TypeError if it is not an int.
    """
    return ticks_to_usec(ticks) // 1000000


def fsec_to_ticks(sec) -> int:
    """POSIX time in seconds (float) as an absolute tick.

    Raises OverflowError for an infinity, ValueError for NaN, TypeError for what is not a number.
    """
    cdef double s = sec
    return usec_to_ticks(round(s * 1000000))


def ticks_to_fsec(ticks) -> float:
    """An absolute tick as POSIX time in seconds, a float good to a microsecond.  TypeError if not an int."""
    return ticks_to_usec(ticks) / 1000000


def usec_to_ticks_safe(usec) -> int:
    """The POSIX time `usec`, in microseconds (int), as an absolute tick. 0, which means "no time", stays 0. Raises
    TypeError if it is not an int."""
    return usec_to_ticks(usec) if whole(usec, "microseconds") else 0


def ticks_to_usec_safe(ticks) -> int:
    """The absolute tick `ticks` (int) as POSIX time in microseconds. 0, which means "no time", stays 0. Raises
    TypeError if it is not an int."""
    return ticks_to_usec(ticks) if whole(ticks, "ticks") else 0


absolute_time_to_ticks = usec_to_ticks
ticks_to_absolute_time = ticks_to_usec
absolute_time_to_ticks_safe = usec_to_ticks_safe
ticks_to_absolute_time_safe = ticks_to_usec_safe
absolute_secs_to_ticks = sec_to_ticks
ticks_to_absolute_secs = ticks_to_sec


def get_usec() -> int:
    """POSIX time in microseconds by the tick clock: steady, as right as the last `update_time_relation()`."""
    return ticks_to_usec(coro_now(&state))


def ctime_ticks(ticks) -> str:
    """The absolute tick `ticks` as local time, a str of 24 characters such as 'Thu Jan  1 00:00:00 1970'.

    Raises OverflowError or OSError for years that the C library cannot express, TypeError if it is not an int.
    """
    return _time.ctime(ticks_to_sec(ticks))


def ctime_usec(usec) -> str:
    """The POSIX time `usec`, in microseconds, as local time in the form of `ctime_ticks`. Raises what that raises."""
    return _time.ctime(whole(usec, "microseconds") // 1000000)


def update_time_relation() -> None:
    """Read the tick clock and the system's time of day anew and link them.

    Call it after the system's clock was set; the loop does it once an hour.  Also does `recalibrate()`.
    Under a virtual clock nothing happens: there the time of day follows the virtual clock.
    """
    if state.mode == CORO_CLOCK_VIRTUAL:
        return
    recalibrate()
    relate()


def set_correction(usec) -> None:
    """From now on POSIX time is the system's time of day plus `usec` microseconds (int, may be negative).

    Whatever derives the time of day from ticks follows at once; ticks, and with them sleeps and timeouts, do not
    change.  0 goes back to the system's time.  The attribute `correction` has the present value.
    TypeError if not an int, OverflowError beyond +-2**60 (36000 years).
    """
    global correction, relation_usec, relation_number
    u = whole(usec, "microseconds")
    if not -(1 << 60) <= u <= 1 << 60:
        raise OverflowError(f"expected a correction within 2**60 microseconds, got {u}")
    cdef int64_t before = correction
    correction = u
    if state.mode == CORO_CLOCK_VIRTUAL:           # its time of day does not come from the system
        relation_usec += correction - before
        relation_number += 1
    else:
        relate()


def recalibrate() -> bool:
    """Refine the rate, and look whether the counter may still be trusted.

    Returns True while ticks come from the CPU's counter, False when they come from CLOCK_MONOTONIC or a
    virtual clock. The rate changes only if the measurement since the import is better than what is known;
    after 0.1 s its error is below 1 us a second.  Deadlines already computed in ticks shift by the same
    factor.
    """
    if state.mode == CORO_CLOCK_COUNTER:
        tend(coro_now(&state))
    if state.mode == CORO_CLOCK_COUNTER:
        look()
    return state.mode == CORO_CLOCK_COUNTER


def describe() -> ClockInfo:
    """Which clock ticks are read from, at what rate and why: a `ClockInfo`."""
    source = source_name
    if state.mode == CORO_CLOCK_VIRTUAL:
        source = f"virtual over {source}"
    return ClockInfo(source, state.hz, rate_error, reason, jumps)


# ---- virtual clock -----------------------------------------------------------------------------------------

def install_virtual(start_ns=None) -> None:
    """Stop the tick clock; from now on it moves only by `advance_virtual()`.  For tests.

    start_ns: the reading to start from in ns; None goes on from the present tick.  With a number, ticks
    jump: install it before there are deadlines.  The time of day (`get_usec()`) goes on from its present
    value. Raises RuntimeError when a virtual clock is already installed, ValueError for a negative start or
    one beyond 2**61.
    """
    global relation_tick, relation_usec, relation_number
    if state.mode == CORO_CLOCK_VIRTUAL:
        raise RuntimeError("a virtual clock is already installed; call remove_virtual() first")
    cdef int64_t tick = coro_now(&state), ns
    usec = posix_usec(tick)
    if start_ns is None:
        ns = coro_to_ns(&state, tick)
    else:
        n = whole(start_ns, "start_ns")
        if not 0 <= n <= (<int64_t> 1 << 61):
            raise ValueError(f"expected start_ns between 0 and 2**61 ns, got {n}")
        ns = n
        tick = coro_from_ns(&state, ns)
    coro_clock_write_begin(&state)
    state.base_tick[CORO_CLOCK_VIRTUAL] = tick
    state.base_ns[CORO_CLOCK_VIRTUAL] = ns
    state.virtual_ns = ns
    state.mode = CORO_CLOCK_VIRTUAL
    coro_clock_write_end(&state)
    relation_tick = tick
    relation_usec = usec
    relation_number += 1


def advance_virtual(ns) -> int:
    """Move the virtual clock forward by `ns` nanoseconds; returns its new reading in ns.

    Raises RuntimeError when none is installed, ValueError for a negative step (ticks never go back),
    OverflowError past 2**62 ns (146 years).
    """
    if state.mode != CORO_CLOCK_VIRTUAL:
        raise RuntimeError("no virtual clock is installed; call install_virtual() first")
    n = whole(ns, "nanoseconds")
    if n < 0:
        raise ValueError(f"expected a step of at least 0 ns, got {n}: ticks never go back")
    n += state.virtual_ns
    if n > (<int64_t> 1 << 62):
        raise OverflowError(f"expected a virtual time up to 2**62 ns, got {n}; take smaller steps")
    coro_clock_write_begin(&state)
    state.virtual_ns = n
    coro_clock_write_end(&state)
    return n


def remove_virtual() -> None:
    """Go back to the real clock; ticks jump to its reading.

    Raises RuntimeError when no virtual clock is installed.
    """
    if state.mode != CORO_CLOCK_VIRTUAL:
        raise RuntimeError("no virtual clock is installed; nothing to remove")
    coro_clock_write_begin(&state)
    state.mode = real_mode
    coro_clock_write_end(&state)
    relate()


def virtual_is_installed() -> bool:
    """True while a virtual clock is installed."""
    return state.mode == CORO_CLOCK_VIRTUAL


# ---- for tests of this module only -------------------------------------------------------------------------

def _shift_pairs(ticks):
    """Pretend that the counter had been `ticks` further at the last comparison (negative: behind)."""
    last.tick += <int64_t> ticks
    anchor.tick += <int64_t> ticks


def _pretend_suspend(ns):
    """As if the machine had been suspended for so long since the last look."""
    global asleep_ns
    asleep_ns -= <int64_t> ns


def _set_hz(hz, error_ppb=0):
    """Set the rate, as if it had been measured with this error."""
    if not 1000000 <= hz < 1 << 39:
        raise ValueError("rate out of range")
    set_rate(hz, error_ppb)


def _convert(which, x):
    """One of the C conversions: from_ns, to_ns, to_ns_up (int) or from_seconds (float)."""
    if which == "from_ns":
        return from_ns(x)
    if which == "to_ns":
        return to_ns(x)
    if which == "to_ns_up":
        return to_ns_up(x)
    if which == "posix_usec":
        return posix_usec(x)
    if which == "due":
        return coro_clock_due(&state, x)
    if which == "tend":
        return tend(x)
    return from_seconds(x)


def __getattr__(name):
    # values that change with the rate: read them when asked for, not at import
    if name == "ticks_per_sec":
        return state.hz
    if name == "ticks_per_usec":
        return state.hz // 1000000
    if name == "relative_tsc_time":
        return relation_tick
    if name == "relative_usec_time":
        return relation_usec
    if name == "relative_sec_time":
        return relation_usec // 1000000
    if name == "correction":
        return correction
    if name == "suspends":
        return suspends
    raise AttributeError(f"module 'coro._clock.ticks' has no attribute {name!r}")


start()
