/* Stack swap for AArch64, procedure call standard AAPCS64 (section 6.1): x19-x30, the lower halves of v8-v15 and FPCR
   belong to the caller. See swap.h for the interface, and for why FPSR travels, too.

   Parked layout, 176 bytes from the stack pointer up: x19 ... x28, x29, x30, d8 ... d15, FPCR, FPSR. */
#if defined(__aarch64__)

#if defined(__APPLE__)
#define SYMBOL(name) _##name
#define HIDDEN(name) .private_extern SYMBOL(name)
#define TYPE(name)
#define SIZE(name)
#else
#define SYMBOL(name) name
#define HIDDEN(name) .hidden name
#define TYPE(name) .type name, %function
#define SIZE(name) .size name, .-name
#endif

    .text
    .globl SYMBOL(coro_swap)
    HIDDEN(coro_swap)
    TYPE(coro_swap)
    .p2align 4
SYMBOL(coro_swap):
    .cfi_startproc
    hint #34                    /* bti c: a landing pad where branch targets are enforced, else a no-op */
    sub sp, sp, #176
    .cfi_adjust_cfa_offset 176
    stp x19, x20, [sp, #0]
    .cfi_rel_offset x19, 0
    .cfi_rel_offset x20, 8
    stp x21, x22, [sp, #16]
    .cfi_rel_offset x21, 16
    .cfi_rel_offset x22, 24
    stp x23, x24, [sp, #32]
    .cfi_rel_offset x23, 32
    .cfi_rel_offset x24, 40
    stp x25, x26, [sp, #48]
    .cfi_rel_offset x25, 48
    .cfi_rel_offset x26, 56
    stp x27, x28, [sp, #64]
    .cfi_rel_offset x27, 64
    .cfi_rel_offset x28, 72
    stp x29, x30, [sp, #80]
    .cfi_rel_offset x29, 80
    .cfi_rel_offset x30, 88
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mrs x9, fpcr
    mrs x11, fpsr
    stp x9, x11, [sp, #160]
    mov x10, sp
    str x10, [x0]
    mov sp, x1
    ldp x10, x12, [sp, #160]
    cmp x9, x10
    b.eq 1f
    msr fpcr, x10
1:
    cmp x11, x12
    b.eq 2f
    msr fpsr, x12
2:
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #176
    .cfi_adjust_cfa_offset -176
    .cfi_restore x19
    .cfi_restore x20
    .cfi_restore x21
    .cfi_restore x22
    .cfi_restore x23
    .cfi_restore x24
    .cfi_restore x25
    .cfi_restore x26
    .cfi_restore x27
    .cfi_restore x28
    .cfi_restore x29
    .cfi_restore x30
    ret
    .cfi_endproc
    SIZE(coro_swap)

    .globl SYMBOL(coro_swap_entry)
    HIDDEN(coro_swap_entry)
    TYPE(coro_swap_entry)
    .p2align 4
SYMBOL(coro_swap_entry):
    .cfi_startproc
    .cfi_undefined x30
    hint #36                    /* bti j */
    mov x0, x20
    blr x19
    brk #1
    .cfi_endproc
    SIZE(coro_swap_entry)

#if defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
#elif defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
