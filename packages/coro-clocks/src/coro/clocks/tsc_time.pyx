# cython: language_level=3, binding=False, embedsignature=True, embedsignature.format=clinic
"""The time scale of the processor's counter: what coro itself counts by.

A tick is one step of the counter (x86: the time stamp counter, where CPUID calls it invariant and the kernel keeps its
own time by it; aarch64: the virtual counter).  Where it cannot be trusted, ticks are those that coro-core counts
instead, from CLOCK_MONOTONIC; `describe()` says which it is and why.

The counter is read through coro-core's header, and rate and relation are coro-core's, so this module and `coro.now`,
`coro.get_usec()` and the other names of coro-core always agree.  The rate is measured against CLOCK_MONOTONIC: after
0.1 s the error is below 1 us a second, after 1 s below 0.1 us; `describe().error_ppb` has the present bound.  It is
refined about once a second by a running loop, by the functions here that read the time of day, and by
`update_time_relation()`.  A suspend of the machine is noticed by CLOCK_BOOTTIME, which goes on meanwhile, and renews
the relation to POSIX time.

Cost: a reading from C is one branch and the counter instruction; from Python the call and the int come on top.
"""

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
