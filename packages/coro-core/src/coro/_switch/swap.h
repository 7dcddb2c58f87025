/* The switch of machine stacks: one function per architecture, written in assembly beside this file.

   coro_swap(&mine, theirs) pushes the callee-saved registers on the present stack, stores the stack pointer in
   *mine, makes `theirs` the stack pointer, pops the registers found there and returns into whoever parked there.
   Everything else is caller-saved by the platform's calling convention, so a call to coro_swap looks to the
   compiler like any other call. Cost: 7 pushes, 7 pops and one mispredicted return.

   The floating-point control words (MXCSR and the x87 control word, FPCR on AArch64) are callee-saved too by the
   System V and AAPCS64 conventions. They are saved always and loaded only when they differ, because loading them
   stalls the pipeline and they differ only where a program changes its rounding mode.

   The exception flags (overflow, division by zero and so on) are nobody's by those conventions: a call may leave any of
   them. They travel all the same, because libraries clear them, call back and look at them afterwards (numpy's errstate
   does), and would blame one thread for what another has computed. A new thread begins with none.
     MXCSR     holds flags and control bits, so saving costs nothing. Comparing all of it takes 2 instructions less per
               swap than comparing its control bits; where flags differ, ldmxcsr makes it as many as before. Measured in
               ticks of 2.7 GHz: a swap 28 either way, ldmxcsr 4 where it stands alone, ldmxcsr at every swap +2.
     x87       fnstsw takes 1 tick, but flags can only be loaded with fldenv, 145 ticks, and comparing them is 4
               instructions per swap. On i386 they travel, as all arithmetic may be x87's there. On x86-64, where only
               long double sets them, they do not.
     FPSR      2 instructions to save, 2 to compare; written only when it differs. Not timed.

   A stack that has never run is prepared by coro_swap_prepare(): the first swap to it "returns" into
   coro_swap_entry, which calls function(argument). Both travel in callee-saved registers, because where a compiled
   function would look for its arguments on a fresh stack is the compiler's business. The function must never return.
   coro_swap_entry declares its own return address undefined, which is where debuggers and unwinders stop. */
#ifndef CORO_SWAP_H
#define CORO_SWAP_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

/* Park the running stack, storing its stack pointer in *save_sp, and continue the stack parked at load_sp. */
extern void coro_swap(void **save_sp, void *load_sp);

/* Assembly label; never called from C. */
extern void coro_swap_entry(void);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

enum { CORO_SWAP_MXCSR_FLAGS = 0x3f };

/* Lay out the first frame below `top` so that the first swap to the returned stack pointer calls
   function(argument). */
static inline void *
coro_swap_prepare(void *top, void (*function)(void *), void *argument)
{
    uintptr_t t = (uintptr_t)top & ~(uintptr_t)15;
#if defined(__x86_64__) && !defined(__ILP32__)
    uint64_t *sp = (uint64_t *)t - 2; /* two zero words: a frame that has no caller */
    uint32_t mxcsr;
    uint16_t x87;
    sp[0] = sp[1] = 0;
    sp -= 8;
    __asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(mxcsr), "=m"(x87));
    sp[0] = (uint64_t)(mxcsr & ~(uint32_t)CORO_SWAP_MXCSR_FLAGS) | ((uint64_t)x87 << 32);
    sp[1] = 0;                              /* r15 */
    sp[2] = 0;                              /* r14 */
    sp[3] = (uint64_t)(uintptr_t)argument;  /* r13 */
    sp[4] = (uint64_t)(uintptr_t)function;  /* r12 */
    sp[5] = 0;                              /* rbx */
    sp[6] = 0;                              /* rbp */
    sp[7] = (uint64_t)(uintptr_t)&coro_swap_entry;
    return sp;
#elif defined(__i386__)
    uint32_t *sp = (uint32_t *)t - 4;
    uint16_t x87;
    sp[0] = sp[1] = sp[2] = sp[3] = 0;
    sp -= 7;
    __asm__ volatile("fnstcw %0" : "=m"(x87));
#if defined(__SSE__)
    {
        uint32_t mxcsr;
        __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
        sp[0] = mxcsr & ~(uint32_t)CORO_SWAP_MXCSR_FLAGS;
    }
#else
    sp[0] = 0;
#endif
    sp[1] = x87;                            /* and a status word without flags */
    sp[2] = (uint32_t)(uintptr_t)argument;  /* edi */
    sp[3] = (uint32_t)(uintptr_t)function;  /* esi */
    sp[4] = 0;                              /* ebx */
    sp[5] = 0;                              /* ebp */
    sp[6] = (uint32_t)(uintptr_t)&coro_swap_entry;
    return sp;
#elif defined(__aarch64__)
    uint64_t *sp = (uint64_t *)t - 22; /* 176 bytes, see swap_aarch64.S */
    uint64_t fpcr;
    int i;
    for (i = 0; i < 22; i++) {
        sp[i] = 0;
    }
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    sp[0] = (uint64_t)(uintptr_t)function; /* x19 */
    sp[1] = (uint64_t)(uintptr_t)argument; /* x20 */
    sp[11] = (uint64_t)(uintptr_t)&coro_swap_entry; /* x30 */
    sp[20] = fpcr;                          /* and after it an FPSR without flags */
    return sp;
#else
#error "coro-core switches stacks on x86-64, i386 and aarch64 only; this processor needs a swap_<name>.S of its own"
#endif
}

#endif
