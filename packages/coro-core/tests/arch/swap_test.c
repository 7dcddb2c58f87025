/* Test of the stack swap alone, without Python, so that it runs for any processor that has a cross compiler and an
   emulator. Checked: a new stack gets its function, its argument and an aligned stack pointer; every
   callee-saved register survives a swap; each stack keeps its own rounding mode and its own exception flags; a parked
   stack may be copied away, its memory used by another, and be copied back; an unwinder started on a swapped stack ends
   at its base. run.py compiles it at several optimisation levels, because what lives in which register changes with
   them.

   Prints one line and returns 0, or names the failed check and returns 1. */
#include <fenv.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unwind.h>

#include "_switch/swap.h"

#define STACK_SIZE (256 * 1024)
#define ROUNDS 1000

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            printf("line %d: failed: %s\n", __LINE__, #condition);              \
            fflush(stdout);                                                     \
            _Exit(1);                                                           \
        }                                                                       \
    } while (0)

struct thread {
    void *sp;           /* where it is parked */
    unsigned seed;
    int done;
    unsigned long sum;
    int frames;         /* seen by the unwinder */
    char *saved;        /* copy of its stack while evacuated */
    size_t saved_size;
};

static void *main_sp;
static volatile unsigned opaque = 1; /* keeps the compiler from computing the result beforehand */

/* One third as the present rounding mode has it. Through memory: an x87 register holds more digits than a double. */
static double
third(void)
{
    volatile double one = 1.0, three = 3.0, result;
    result = one / three;
    return result;
}

/* Raise an exception flag by arithmetic, which needs no help from a library that may use another unit for it. */
static void
raise_flag(int flag)
{
    volatile double zero = 0.0, large = 1e308, result;
    result = flag == FE_DIVBYZERO ? 1.0 / zero : flag == FE_INVALID ? zero / zero : large * large;
    (void)result;
}

/* Those of the flags that this test raises; "inexact" comes and goes with any arithmetic. */
static int
flags(void)
{
    return fetestexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW);
}

static void
park(struct thread *t)
{
    coro_swap(&t->sp, main_sp);
}

static void
resume(struct thread *t)
{
    coro_swap(&main_sp, t->sp);
}

/* As coro_swap, loading the callee-saved registers from the first half of `values` before and storing them in the
   second half afterwards; see swap_probe.S. */
extern void coro_probe(void **save_sp, void *load_sp, uintptr_t *values);

#if defined(__aarch64__)
#define REGISTERS 19
#elif defined(__i386__)
#define REGISTERS 4
#else
#define REGISTERS 6
#endif

/* Every callee-saved register across a swap, and values the compiler keeps where it likes. */
static unsigned long
registers(struct thread *t, unsigned seed)
{
    uintptr_t values[2 * REGISTERS];
    unsigned long a = seed, b = a + 1, c = a + 2;
    double p = seed * 0.5 * opaque, q = p + 1, r = p + 2;
    int n;
    for (n = 0; n < REGISTERS; n++) {
        values[n] = (uintptr_t)(seed * 2654435761u + (unsigned)n * 40503u);
    }
    coro_probe(&t->sp, main_sp, values);
    for (n = 0; n < REGISTERS; n++) {
        CHECK(values[n] == (uintptr_t)(seed * 2654435761u + (unsigned)n * 40503u));
        CHECK(values[n] == values[n + REGISTERS]);
    }
    CHECK(b == a + 1 && c == a + 2 && a == seed && q == p + 1 && r == p + 2 && p == seed * 0.5);
    return a + b + c + (unsigned long)(p + q + r);
}

/* A swap at some depth of C calls, with bytes in each frame that must come back. */
static unsigned long
deep(struct thread *t, int depth, unsigned seed)
{
    unsigned char bytes[200];
    unsigned long sum = 0;
    size_t n;
    memset(bytes, (int)((seed + (unsigned)depth) & 0xff), sizeof bytes);
    sum = depth ? deep(t, depth - 1, seed) : registers(t, seed);
    for (n = 0; n < sizeof bytes; n++) {
        CHECK(bytes[n] == ((seed + (unsigned)depth) & 0xff));
    }
    return sum + bytes[0];
}

static _Unwind_Reason_Code
count_frame(struct _Unwind_Context *context, void *count)
{
    (void)context;
    return ++*(int *)count > 100 ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

static void
body(void *argument)
{
    struct thread *t = argument;
    union {
        double number;
        char text[64];
    } aligned __attribute__((aligned(16)));
    int mode = t->seed % 2 ? FE_UPWARD : FE_DOWNWARD;
    int flag = t->seed % 3 == 0 ? 0 : t->seed % 3 == 1 ? FE_DIVBYZERO : FE_INVALID;
    unsigned n;
    volatile double before;

    CHECK(((uintptr_t)&aligned & 15) == 0);
    CHECK(snprintf(aligned.text, sizeof aligned.text, "%.3f", 0.5 * t->seed) > 0);
    CHECK(fegetround() == FE_TONEAREST);
    CHECK(flags() == 0);
    if (flag) {
        raise_flag(flag);
    }
    _Unwind_Backtrace(count_frame, &t->frames);

    CHECK(fesetround(mode) == 0);
    before = third();
    for (n = 0; n < ROUNDS; n++) {
        t->sum += deep(t, (int)(n % 7), t->seed + n);
        CHECK(fegetround() == mode);
        CHECK(third() == before);
        CHECK(flags() == flag);
    }
    t->done = 1;
    for (;;) {
        park(t); /* a base never returns */
    }
}

/* Two threads, each on a stack of its own. */
static void
two_stacks(void)
{
    static struct thread t[2];
    char *stack[2];
    int n;
    volatile double before = third();

    for (n = 0; n < 2; n++) {
        memset(&t[n], 0, sizeof t[n]);
        t[n].seed = (unsigned)n + 17;
        stack[n] = malloc(STACK_SIZE);
        CHECK(stack[n] != NULL);
        memset(stack[n], 0xA5, STACK_SIZE);
        t[n].sp = coro_swap_prepare(stack[n] + STACK_SIZE, body, &t[n]);
    }
    while (!t[0].done || !t[1].done) {
        for (n = 0; n < 2; n++) {
            resume(&t[n]);
            CHECK((char *)t[n].sp > stack[n] && (char *)t[n].sp < stack[n] + STACK_SIZE);
            CHECK(fegetround() == FE_TONEAREST);
            CHECK(third() == before);
            CHECK(flags() == 0);
        }
    }
    /* The frames are body and the entry, plus count_frame's caller in some unwinders: the base was found. */
    CHECK(t[0].frames >= 1 && t[0].frames <= 4);
    free(stack[0]);
    free(stack[1]);
}

/* Three threads taking turns on one stack; the one that is not running lies in the heap. */
static void
one_stack(void)
{
    static struct thread t[3];
    unsigned long first[3];
    char *stack = malloc(STACK_SIZE), *top = stack + STACK_SIZE;
    int n, running = 3;

    CHECK(stack != NULL);
    for (n = 0; n < 3; n++) {
        memset(&t[n], 0, sizeof t[n]);
        t[n].seed = (unsigned)n + 5;
        t[n].sp = coro_swap_prepare(top, body, &t[n]);
        t[n].saved_size = (size_t)(top - (char *)t[n].sp);
        t[n].saved = malloc(t[n].saved_size);
        CHECK(t[n].saved != NULL);
        memcpy(t[n].saved, t[n].sp, t[n].saved_size);
    }
    while (running) {
        running = 0;
        for (n = 0; n < 3; n++) {
            memcpy(t[n].sp, t[n].saved, t[n].saved_size);
            free(t[n].saved);
            resume(&t[n]);
            CHECK(flags() == FE_OVERFLOW);
            t[n].saved_size = (size_t)(top - (char *)t[n].sp);
            t[n].saved = malloc(t[n].saved_size);
            CHECK(t[n].saved != NULL);
            memcpy(t[n].saved, t[n].sp, t[n].saved_size);
            memset(stack, 0x5A, STACK_SIZE);
            running += !t[n].done;
        }
    }
    for (n = 0; n < 3; n++) {
        first[n] = t[n].sum;
        free(t[n].saved);
    }
    CHECK(first[0] != first[1] && first[1] != first[2]);
    free(stack);
}

int
main(void)
{
    two_stacks();
    raise_flag(FE_OVERFLOW);
    one_stack();
    printf("swap: ok, %d-bit, %d swaps\n", (int)sizeof(void *) * 8, ROUNDS * 10);
    return 0;
}
