# cython: language_level=3, nonecheck=True, binding=False, embedsignature=True, embedsignature.format=clinic
"""The time scale of CLOCK_MONOTONIC: a tick is a nanosecond, on any processor.

It has the interface of `coro.clocks.tsc_time`.  The time of day is that of coro-core, to within a microsecond.  Under a
virtual clock, ticks are virtual nanoseconds.  A reading is a call of clock_gettime(2).
"""
# Cost of a reading: about 25 ns where the kernel has clock_gettime in the vDSO. The relation is taken over from
# coro-core whenever it was renewed there.

from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from coro.capi cimport (
    CORO_CLOCK_VIRTUAL, coro_clock, coro_clock_due, coro_now, require_abi, ticks_clock, ticks_posix_usec,
    ticks_relation, ticks_tend,
)

require_abi()

cdef coro_clock *core = ticks_clock()
cdef uint64_t taken = 0                          # number of coro-core's relation that ours was taken from
cdef int64_t relation_tick = 0
cdef int64_t relation_usec = 0


cdef int64_t scale_read() except? -1:
    cdef timespec now
    if core.mode == CORO_CLOCK_VIRTUAL:
        return core.virtual_ns
    if clock_gettime(CLOCK_MONOTONIC, &now) != 0:
        raise OSError("clock_gettime does not know CLOCK_MONOTONIC")
    return <int64_t> now.tv_sec * 1000000000 + now.tv_nsec


cdef int scale_rate(uint64_t *num, uint64_t *den) except -1:
    num[0] = 1000000000
    den[0] = 1
    return 0


include "_relation.pxi"
include "_scale.pxi"


def describe():
    """Which clock the ticks come from, their rate, its possible error and why: a `coro._clock.ticks.ClockInfo`."""
    source = "virtual over monotonic" if core.mode == CORO_CLOCK_VIRTUAL else "monotonic"
    return _core.ClockInfo(source, 1000000000, 0, "CLOCK_MONOTONIC is on every system", 0)


def __getattr__(name):
    return scale_attribute("posix_time", name)
