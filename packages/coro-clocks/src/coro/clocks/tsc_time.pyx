# cython: language_level=3, nonecheck=True, binding=False, embedsignature=True, embedsignature.format=clinic
"""The time scale of the processor's counter: what coro itself counts by.

A tick is one step of the counter: on x86 the time stamp counter, if CPUID calls it invariant and the kernel keeps its
own time by it; on aarch64 the virtual counter.  If the counter cannot be trusted, ticks are those of CLOCK_MONOTONIC
that coro-core counts instead.  `describe()` says which it is and why.

Rate and time of day are those of coro-core, so this module always agrees with `coro.now` and `coro.get_usec()`.  The
rate is measured against CLOCK_MONOTONIC.  Its error is below 1 us per second after 0.1 s, and below 0.1 us per second
after 1 s; `describe().error_ppb` is the present bound.  It is corrected about once a second by a running loop, by the
functions here that read the time of day, and by `update_time_relation()`.  After a suspend of the machine
(CLOCK_BOOTTIME shows it) the relation to POSIX time is renewed.
"""
# Cost of a reading: from C one branch and the counter instruction, by way of coro-core's header; from Python the call
# and the int come on top.

from libc.stdint cimport int64_t, uint64_t

from coro.capi cimport coro_clock, coro_clock_due, coro_now, require_abi, ticks_clock, ticks_relation, ticks_tend

require_abi()

cdef coro_clock *core = ticks_clock()


cdef int64_t scale_read() except? -1:
    return coro_now(core)


cdef int scale_rate(uint64_t *num, uint64_t *den) except -1:
    num[0] = core.hz
    den[0] = 1
    return 0


cdef int scale_relation(int64_t *tick, int64_t *usec) except -1:
    cdef int64_t now = coro_now(core)
    if coro_clock_due(core, now):
        ticks_tend(now)
    ticks_relation(tick, usec)
    return 0


include "_scale.pxi"


def describe():
    """Which clock the ticks come from, their rate, its possible error and why: a `coro._clock.ticks.ClockInfo`."""
    return _core.describe()


def __getattr__(name):
    # read at each access: the rate is refined and the relation renewed while the process runs
    if name in ("ticks_per_sec", "ticks_per_usec", "relative_tsc_time", "relative_usec_time", "relative_sec_time"):
        return getattr(_core, name)
    raise AttributeError(f"module 'coro.clocks.tsc_time' has no attribute {name!r}")
