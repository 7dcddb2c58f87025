/* The tick counter: one cheap, monotonic 64-bit clock for the scheduler, the timers and the accounting.
 *
 * Idea.  A tick is one step of the CPU's own counter where that counter can be trusted (x86: the time stamp
 * counter when the kernel itself keeps time by it and CPUID calls it invariant; aarch64: the virtual counter
 * cntvct_el0), and one nanosecond of CLOCK_MONOTONIC everywhere else.  The state is one struct, owned by the
 * extension coro._clock.ticks; other extensions fetch its address once (`clock()` in _clock/ticks.pxd) and read the
 * time with the inline functions below.
 *
 * Cost.  A reading is one load, one predictable branch and the counter instruction (6-20 ns on x86, mostly
 * the instruction); the fallback is a vDSO call (about 25 ns).  A conversion is two multiplications, no
 * division, and exact. No memory besides the struct.
 *
 * Order.  The counter instruction is not fenced: it may be executed a few dozen cycles early or late
 * relative to its neighbours.  Code that subtracts readings taken at different places must bear a difference
 * slightly below zero.
 *
 * Exactness.  The rate is a whole number of ticks a second.  x * num / den is estimated by a 64 x 64 -> 128
 * bit multiplication with a reciprocal normalised to 64 significant bits, which is at most one too small for
 * every input that passes the range check; the remainder, computed modulo 2**64, says whether to add that
 * one.
 *
 * Rejected: RDTSCP or LFENCE before RDTSC (doubles the cost, and the order is not needed); a division per
 * conversion (40 ns on i386); floating point (loses nanoseconds after three months of uptime); one copy of
 * the state per extension.
 */
#ifndef CORO_TICKS_H
#define CORO_TICKS_H

#include <stdint.h>
#include <time.h>

#define CORO_CLOCK_ABI 1                       /* raise it when the layout of coro_clock changes */
#define CORO_TICKS_FOREVER (INT64_MAX / 2)     /* longest duration: now + this does not overflow */

enum {                                         /* coro_clock.mode */
    CORO_CLOCK_COUNTER = 0,                    /* the CPU's counter, unchanged */
    CORO_CLOCK_MONOTONIC = 1,                  /* CLOCK_MONOTONIC, scaled to the tick rate */
    CORO_CLOCK_VIRTUAL = 2                     /* stands still until somebody advances it (tests) */
};

typedef struct {                               /* one direction of conversion: result = x * num / den */
    uint64_t num, den;
    uint64_t mult;                             /* floor(num / den * 2**shift), highest bit set */
    uint64_t limit;                            /* greatest x that is converted; more saturates */
    uint32_t shift;
} coro_scale;

typedef struct {
    volatile int32_t mode;                     /* first: the only word the hot path looks at */
    uint32_t abi;
    int64_t checked_at;                        /* tick of the last look after the rate: coro_clock_due() */
    uint64_t check_every;                      /* ticks until the next one */
    volatile uint32_t seq;                     /* odd while a writer is at work; guards everything below */
    coro_scale to_ticks;                       /* nanoseconds -> ticks */
    coro_scale to_nsec;                        /* ticks -> nanoseconds */
    uint64_t hz;                               /* ticks a second */
    int64_t base_tick[3], base_ns[3];          /* by mode: the tick that belongs to a reading in ns */
    int64_t virtual_ns;
} coro_clock;

#if defined(__GNUC__)
#  define CORO_TICKS_LIKELY(x) __builtin_expect(!!(x), 1)
#  define CORO_TICKS_COLD __attribute__((noinline, cold, unused))
#  define CORO_TICKS_FENCE() __atomic_thread_fence(__ATOMIC_ACQ_REL)
#else
#  error "coro._clock.ticks needs GCC or Clang (inline assembly, __atomic builtins)"
#endif

/* ---- raw sources --------------------------------------------------------------------------------------- */

#if defined(__x86_64__) || defined(__i386__)
#  define CORO_HAVE_COUNTER 1
static inline uint64_t coro_counter(void) { return __builtin_ia32_rdtsc(); }
#elif defined(__aarch64__)
#  define CORO_HAVE_COUNTER 1
static inline uint64_t coro_counter(void)
{
    uint64_t v;
    __asm__ __volatile__("mrs %0, cntvct_el0" : "=r"(v));
    return v;
}
#else
#  define CORO_HAVE_COUNTER 0
static inline uint64_t coro_counter(void) { return 0; }
#endif

static inline int64_t coro_monotonic_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* ---- 128-bit arithmetic -------------------------------------------------------------------------------- */

/* (a * b) >> shift for 0 < shift < 128; the caller knows that the result fits. */
static inline uint64_t coro_mul_shift(uint64_t a, uint64_t b, uint32_t shift)
{
#if defined(__SIZEOF_INT128__) && !defined(CORO_NO_INT128)
    return (uint64_t)(((unsigned __int128)a * b) >> shift);
#else                                           /* 32-bit machines: four halves, carried by hand */
    uint64_t al = (uint32_t)a, ah = a >> 32, bl = (uint32_t)b, bh = b >> 32;
    uint64_t ll = al * bl, lh = al * bh, hl = ah * bl, hh = ah * bh;
    uint64_t mid = (ll >> 32) + (uint32_t)lh + (uint32_t)hl;
    uint64_t lo = (mid << 32) | (uint32_t)ll;
    uint64_t hi = hh + (lh >> 32) + (hl >> 32) + (mid >> 32);
    return shift == 64 ? hi : shift > 64 ? hi >> (shift - 64) : (hi << (64 - shift)) | (lo >> shift);
#endif
}

/* floor(x * num / den), and the remainder; x <= s->limit. */
static inline uint64_t coro_scale_div(const coro_scale *s, uint64_t x, uint64_t *rest)
{
    uint64_t q = coro_mul_shift(x, s->mult, s->shift);
    uint64_t r = x * s->num - q * s->den;      /* modulo 2**64: the true value is below 2 * den */
    if (r >= s->den) {
        q++;
        r -= s->den;
    }
    *rest = r;
    return q;
}

/* x * num / den rounded up (up != 0) or down, towards +-infinity; beyond the limit: +-top. */
static inline int64_t coro_scale_apply(const coro_scale *s, int64_t x, int up, int64_t top)
{
    uint64_t m, q, rest;
    if (x < 0) {                               /* down for a negative number is up for its magnitude */
        m = 0 - (uint64_t)x;
        up = !up;
    } else
        m = (uint64_t)x;
    if (m > s->limit)
        return x < 0 ? -top : top;
    q = coro_scale_div(s, m, &rest);
    if (up && rest)
        q++;
    return x < 0 ? -(int64_t)q : (int64_t)q;
}

/* ---- consistent reads of the guarded part: the writer holds the GIL, a reader need not ----------------- */

#define CORO_CLOCK_READ(c, statement)                                     \
    do {                                                                  \
        uint32_t seq_;                                                    \
        do {                                                              \
            seq_ = (c)->seq;                                              \
            CORO_TICKS_FENCE();                                           \
            statement;                                                    \
            CORO_TICKS_FENCE();                                           \
        } while (!CORO_TICKS_LIKELY(!(seq_ & 1) && seq_ == (c)->seq));    \
    } while (0)

/* ---- what the rest of coro uses ------------------------------------------------------------------------ */

static CORO_TICKS_COLD int64_t coro_now_slow(const coro_clock *c)
{
    int64_t t = 0;
    CORO_CLOCK_READ(c, {
        int mode = c->mode;
        if (mode == CORO_CLOCK_COUNTER)        /* changed since the caller looked */
            t = (int64_t)coro_counter();
        else {
            int64_t ns = mode == CORO_CLOCK_VIRTUAL ? c->virtual_ns : coro_monotonic_ns();
            ns -= c->base_ns[mode];
            if (c->to_ticks.num != c->to_ticks.den)
                ns = coro_scale_apply(&c->to_ticks, ns, 0, CORO_TICKS_FOREVER);
            t = c->base_tick[mode] + ns;
        }
    });
    return t;
}

/* The present tick. */
static inline int64_t coro_now(const coro_clock *c)
{
    if (CORO_TICKS_LIKELY(c->mode == CORO_CLOCK_COUNTER))
        return (int64_t)coro_counter();
    return coro_now_slow(c);
}

/* A duration in ns as ticks, rounded up: a wait is never shortened.  Saturates at +-CORO_TICKS_FOREVER. */
static inline int64_t coro_from_ns(const coro_clock *c, int64_t ns)
{
    int64_t r;
    CORO_CLOCK_READ(c, r = coro_scale_apply(&c->to_ticks, ns, 1, CORO_TICKS_FOREVER));
    return r;
}

/* Ticks as ns, rounded down: for reports.  Saturates at +-INT64_MAX. */
static inline int64_t coro_to_ns(const coro_clock *c, int64_t ticks)
{
    int64_t r;
    CORO_CLOCK_READ(c, r = coro_scale_apply(&c->to_nsec, ticks, 0, INT64_MAX));
    return r;
}

/* Ticks as ns, rounded up: for poll timeouts.  now() is at least t after waiting coro_to_ns_up(t - now()). */
static inline int64_t coro_to_ns_up(const coro_clock *c, int64_t ticks)
{
    int64_t r;
    CORO_CLOCK_READ(c, r = coro_scale_apply(&c->to_nsec, ticks, 1, INT64_MAX));
    return r;
}

/* Seconds as ticks, to the nearest; too much or infinite becomes +-CORO_TICKS_FOREVER; NaN (callers
 * refuse it) 0. */
static inline int64_t coro_from_seconds(const coro_clock *c, double seconds)
{
    double x, hz;
    CORO_CLOCK_READ(c, hz = (double)c->hz);
    x = seconds * hz;
    if (x >= (double)CORO_TICKS_FOREVER)
        return CORO_TICKS_FOREVER;
    if (x <= -(double)CORO_TICKS_FOREVER)
        return -CORO_TICKS_FOREVER;
    if (x != x)
        return 0;
    return (int64_t)(x < 0 ? x - 0.5 : x + 0.5);
}

/* Ticks as seconds. */
static inline double coro_to_seconds(const coro_clock *c, int64_t ticks)
{
    double hz;
    CORO_CLOCK_READ(c, hz = (double)c->hz);
    return (double)ticks / hz;
}

/* Is it time to look after the rate?  Also when the counter went back: the difference is unsigned. */
static inline int coro_clock_due(const coro_clock *c, int64_t now)
{
    return (uint64_t)now - (uint64_t)c->checked_at >= c->check_every;
}

#endif /* CORO_TICKS_H */

/* ---- only for _clock/ticks.pyx: finding the counter, measuring its rate -------------------------------------- */

#if defined(CORO_TICKS_IMPLEMENTATION) && !defined(CORO_TICKS_IMPLEMENTED)
#define CORO_TICKS_IMPLEMENTED

#if defined(__x86_64__) || defined(__i386__)
#  include <cpuid.h>
#endif
#if defined(__FreeBSD__)
#  include <sys/types.h>
#  include <sys/sysctl.h>
#endif

/* a * b / c to the nearest, 128 bits between; the caller knows that the result fits and that c < 2**63. */
static uint64_t coro_mul_div(uint64_t a, uint64_t b, uint64_t c)
{
#if defined(__SIZEOF_INT128__) && !defined(CORO_NO_INT128)
    return (uint64_t)(((unsigned __int128)a * b + c / 2) / c);
#else                                           /* binary long division; runs a few times a minute at most */
    uint64_t q = 0, r = 0;
    int i;
    for (i = 63; i >= 0; i--) {                 /* invariant: q * c + r == (a >> i) * b, r < c */
        uint64_t add = (a >> i) & 1 ? b : 0;
        r <<= 1;
        q = (q << 1) + r / c;
        r %= c;
        q += add / c;
        r += add % c;
        q += r / c;
        r %= c;
    }
    return q + (r >= c - c / 2);
#endif
}

/* Prepare the conversion num / den.  1 <= num, den < 2**40. */
static void coro_scale_set(coro_scale *s, uint64_t num, uint64_t den, uint64_t top)
{
    uint64_t mult = num / den, rest = num % den;
    uint32_t shift = 0;
    s->num = num;
    s->den = den;
    while (!(mult >> 63)) {
        rest <<= 1;
        mult <<= 1;
        shift++;
        if (rest >= den) {
            rest -= den;
            mult |= 1;
        }
    }
    s->mult = mult;
    s->shift = shift;
    /* floor(top * den / num), kept below 2**63; one less than the rounded quotient is safe */
    if (num < den && top / num >= INT64_MAX / den)
        s->limit = INT64_MAX;
    else
        s->limit = coro_mul_div(top, den, num) - 1;
}

static void coro_clock_write_begin(coro_clock *c) { c->seq++; CORO_TICKS_FENCE(); }
static void coro_clock_write_end(coro_clock *c) { CORO_TICKS_FENCE(); c->seq++; }

/* Set the rate.  The caller brackets it with write_begin/write_end. */
static void coro_clock_set_hz(coro_clock *c, uint64_t hz)
{
    c->hz = hz;
    coro_scale_set(&c->to_ticks, hz, 1000000000, CORO_TICKS_FOREVER);
    coro_scale_set(&c->to_nsec, 1000000000, hz, INT64_MAX);
}

typedef struct {                                /* the counter and CLOCK_MONOTONIC at one moment */
    int64_t tick, ns;
    int64_t width;                              /* ticks between the readings around it: twice the error */
} coro_pair;

/* Best of eight: an interrupt or a busy hypervisor between the readings shows as a wide bracket. */
static void coro_take_pair(coro_pair *p, clockid_t id)
{
    int i;
    p->width = INT64_MAX;
    for (i = 0; i < 8; i++) {
        struct timespec ts;
        int64_t a = (int64_t)coro_counter(), b;
        clock_gettime(id, &ts);
        b = (int64_t)coro_counter();
        if (b >= a && b - a < p->width) {
            p->width = b - a;
            p->tick = a + (b - a) / 2;
            p->ns = (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
        }
    }
    if (p->width == INT64_MAX) {            /* the counter runs backwards: the caller's checks refuse it */
        p->tick = (int64_t)coro_counter();
        p->ns = coro_monotonic_ns();
    }
}

/* Ticks a second between two pairs (0: not measurable), and the possible error in parts per 10**9. */
static uint64_t coro_pair_hz(const coro_pair *a, const coro_pair *b, int64_t *error_ppb)
{
    int64_t dt = b->tick - a->tick, dn = b->ns - a->ns, w;
    uint64_t hz;
    if (dt <= 0 || dn <= 0 || dt >> 30 >= dn || a->width == INT64_MAX || b->width == INT64_MAX)
        return 0;
    w = (a->width + b->width) / 2 + 1;
    hz = coro_mul_div((uint64_t)dt, 1000000000, (uint64_t)dn);
    *error_ppb = (int64_t)coro_mul_div((uint64_t)w, 1000000000, (uint64_t)dt) + 1;
    return hz;
}

/* What the hardware says about its counter.  Returns 0 when it must not be used, with the reason in *why;
 * else 1, and *hz is the announced rate (0: none) with its possible error.  Sources: Intel SDM volume 2A
 * "CPUID" (leaves 15H, 16H, 80000007H), AMD APM volume 3 (8000_0007h), Linux arch/x86/kernel/cpu/vmware.c
 * and arch/x86/kvm (timing leaf 40000010H of hypervisors, kHz), Arm ARM (CNTFRQ_EL0). */
static int coro_counter_probe(uint64_t *hz, int64_t *error_ppb, const char **why)
{
    *hz = 0;
    *error_ppb = 0;
#if defined(__x86_64__) || defined(__i386__)
    unsigned a, b, c, d, top;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(d & (1u << 4))) {
        *why = "the processor has no time stamp counter";
        return 0;
    }
    top = __get_cpuid_max(0, 0);
    int hypervisor = (c >> 31) & 1;
    if (__get_cpuid_max(0x80000000u, 0) < 0x80000007u) {
        *why = "CPUID does not say whether the time stamp counter is invariant";
        return 0;
    }
    __cpuid(0x80000007u, a, b, c, d);
    if (!(d & (1u << 8))) {
        *why = "CPUID says that the time stamp counter is not invariant";
        return 0;
    }
    *why = "invariant time stamp counter";
    if (hypervisor) {
        __cpuid(0x40000000u, a, b, c, d);
        int known = (b == 0x4b4d564bu && c == 0x564b4d56u)      /* "KVMKVMKVM" */
                 || (b == 0x61774d56u && c == 0x4d566572u);     /* "VMwareVMware" */
        if (known && a >= 0x40000010u && a < 0x40010000u) {
            __cpuid(0x40000010u, a, b, c, d);
            *hz = (uint64_t)a * 1000;
            *error_ppb = 200000;
        }
    }
    if (!*hz && top >= 0x15) {
        __cpuid_count(0x15, 0, a, b, c, d);
        if (a && b && c) {
            *hz = (uint64_t)c * b / a;
            *error_ppb = 200000;
        } else if (a && b && top >= 0x16) {         /* crystal unknown: the nominal base frequency */
            __cpuid_count(0x16, 0, a, b, c, d);
            *hz = (uint64_t)(a & 0xffff) * 1000000;
            *error_ppb = 20000000;
        }
    }
    if (*hz < 100000000u || *hz > 20000000000u)                 /* nonsense counts as "not announced" */
        *hz = 0;
    return 1;
#elif defined(__aarch64__)
    uint64_t f;
    __asm__ __volatile__("mrs %0, cntfrq_el0" : "=r"(f));
    f &= 0xffffffffu;
    *why = "virtual counter of the generic timer";
    if (f >= 1000000) {
        *hz = f;
        *error_ppb = 200000;
    }
    return 1;
#else
    *why = "no counter is known for this processor";
    return 0;
#endif
}

/* The kernel's own clock source where the system tells it by sysctl; "" elsewhere. */
static int coro_sysctl_source(char *buf, size_t size)
{
    buf[0] = 0;
#if defined(__FreeBSD__)
    size_t n = size - 1;
    if (sysctlbyname("kern.timecounter.hardware", buf, &n, NULL, 0) != 0)
        n = 0;
    buf[n] = 0;
#endif
    return size > 0;
}
#endif /* implementation */
