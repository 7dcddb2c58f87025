# cython: language_level=3, nonecheck=True, binding=False, embedsignature=True, embedsignature.format=clinic
"""The time scale of mach_absolute_time, the counter that macOS keeps its time by.

It has the interface of `coro.clocks.tsc_time`.  A tick lasts numer / denom nanoseconds by mach_timebase_info (Apple's
Technical Q&A QA1398), so its rate is exact.  The counter stops while the machine sleeps.  The time of day is that of
coro-core, to within a microsecond.  On other systems every reading raises OSError.  `install()` replaces the two
functions of macOS, so that the arithmetic can be tested on systems that lack them.
"""
# Cost of a reading: a function call, about 10 ns on macOS. The relation is renewed when coro-core's is.

from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t

from coro.capi cimport (
    coro_clock, coro_clock_due, coro_now, require_abi, ticks_clock, ticks_posix_usec, ticks_relation, ticks_tend,
)

cdef extern from *:
    """
    #ifdef __APPLE__
    #include <mach/mach_time.h>
    static int coro_mach_read(uint64_t *t) { *t = mach_absolute_time(); return 1; }
    static int coro_mach_base(uint32_t *numer, uint32_t *denom)
    {
        mach_timebase_info_data_t info;
        if (mach_timebase_info(&info) != 0)
            return 0;
        *numer = info.numer;
        *denom = info.denom;
        return 1;
    }
    #else
    static int coro_mach_read(uint64_t *t) { *t = 0; return 0; }
    static int coro_mach_base(uint32_t *numer, uint32_t *denom) { *numer = *denom = 0; return 0; }
    #endif
    """
    int coro_mach_read(uint64_t *)
    int coro_mach_base(uint32_t *, uint32_t *)

require_abi()

cdef coro_clock *core = ticks_clock()
cdef uint64_t taken = 0                          # number of coro-core's relation that ours was taken from
cdef int64_t relation_tick = 0
cdef int64_t relation_usec = 0
cdef uint32_t numer = 0                          # a tick lasts numer / denom nanoseconds; 0: not known yet
cdef uint32_t denom = 0
cdef object read_function = None                 # of an installed table; None: the system's


cdef int missing() except -1:
    raise OSError("mach_absolute_time exists on macOS only; coro.clocks.best() chooses a scale that works here")


cdef int64_t scale_read() except? -1:
    cdef uint64_t t
    if read_function is not None:
        return read_function()
    if not coro_mach_read(&t):
        missing()
    return <int64_t> t


cdef int scale_rate(uint64_t *num, uint64_t *den) except -1:
    global numer, denom
    if numer == 0 and (not coro_mach_base(&numer, &denom) or numer == 0 or denom == 0):
        numer = 0
        missing()
    num[0] = <uint64_t> denom * 1000000000
    den[0] = numer
    return 0


include "_relation.pxi"
include "_scale.pxi"


def install(absolute_time=None, timebase=None) -> None:
    """Take the counter from other functions than the system's.  For tests; without arguments the system's are back.

    absolute_time: called without arguments, returns the counter, an int below 2**63.
    timebase: called once without arguments, returns (numer, denom): a tick lasts numer / denom nanoseconds.

    Raises TypeError when only one is given, ValueError for a time base whose tick is longer than a microsecond.
    """
    global read_function, numer, denom, taken
    if (absolute_time is None) != (timebase is None):
        raise TypeError("expected both functions or none: a counter is of no use without its rate")
    if absolute_time is None:
        read_function, numer, denom, taken = None, 0, 0, 0
        return
    n, d = timebase()
    if not (0 < n < 1 << 32 and 0 < d < 1 << 32 and n <= 1000 * d):
        raise ValueError(f"expected a time base of 32-bit numbers with numer / denom up to 1000 ns, got {n} / {d}")
    read_function, numer, denom, taken = absolute_time, n, d, 0


def available() -> bool:
    """Can this scale be read: is this macOS, or is a table installed?"""
    cdef uint64_t t
    return read_function is not None or coro_mach_read(&t) != 0


def describe():
    """Which clock the ticks come from, their rate, its possible error and why: a `coro._clock.ticks.ClockInfo`.

    OSError where there is no such clock.
    """
    cdef uint64_t num, den
    scale_rate(&num, &den)
    return _core.ClockInfo("mach", num // den, 0, "mach_absolute_time is what macOS keeps its time by", 0)


def __getattr__(name):
    return scale_attribute("mach_time", name)
