# C-level face of the tick counter: cimport the functions below, or fetch `clock()` once and use the inline
# readers (`coro_now(clock)` is one branch and the counter instruction).  See _clock/ticks.h for what a tick is and
# what it costs.
# cython: language_level=3
from libc.stdint cimport int64_t, int32_t, uint32_t, uint64_t


cdef extern from "_clock/ticks.h" nogil:
    int64_t CORO_TICKS_FOREVER
    int32_t CORO_CLOCK_COUNTER
    int32_t CORO_CLOCK_MONOTONIC
    int32_t CORO_CLOCK_VIRTUAL
    ctypedef struct coro_scale:
        pass
    ctypedef struct coro_clock:
        int32_t mode
        uint32_t abi
        int64_t checked_at
        uint64_t check_every
        uint32_t seq
        coro_scale to_ticks
        coro_scale to_nsec
        uint64_t hz
        int64_t base_tick[3]
        int64_t base_ns[3]
        int64_t virtual_ns
    int64_t coro_now(const coro_clock *)                       # the present tick
    int64_t coro_from_ns(const coro_clock *, int64_t)          # rounded up, saturates at CORO_TICKS_FOREVER
    int64_t coro_to_ns(const coro_clock *, int64_t)            # rounded down
    int64_t coro_to_ns_up(const coro_clock *, int64_t)         # rounded up: for poll timeouts
    int64_t coro_from_seconds(const coro_clock *, double)      # nearest; saturates; NaN gives 0
    double coro_to_seconds(const coro_clock *, int64_t)
    bint coro_clock_due(const coro_clock *, int64_t)           # is tend() due at this tick?


cdef coro_clock *clock() noexcept nogil                        # the one state; the address is good for ever
cdef int64_t now() noexcept nogil
cdef int64_t from_ns(int64_t ns) noexcept nogil
cdef int64_t to_ns(int64_t ticks) noexcept nogil
cdef int64_t to_ns_up(int64_t ticks) noexcept nogil
cdef int64_t from_seconds(double seconds) noexcept nogil
cdef double to_seconds(int64_t ticks) noexcept nogil
cdef int64_t posix_usec(int64_t ticks) noexcept                # an absolute tick as POSIX microseconds
cdef uint64_t relation(int64_t *tick, int64_t *usec) noexcept nogil    # the pair behind it; returns its number
cdef void tend(int64_t now) noexcept                           # refine the rate; call when coro_clock_due()
