/* Stack swap for x86-64, System V calling convention (AMD64 ABI supplement, section 3.2.1): rbx, rbp, r12-r15, the
   MXCSR control bits and the x87 control word belong to the caller. See swap.h for the interface, and for why the whole
   MXCSR travels.

   Parked layout, from the stack pointer up: control words, r15, r14, r13, r12, rbx, rbp, return address. */
#if defined(__x86_64__) && !defined(__ILP32__)

#if defined(__APPLE__)
#define SYMBOL(name) _##name
#define HIDDEN(name) .private_extern SYMBOL(name)
#define TYPE(name)
#define SIZE(name)
#else
#define SYMBOL(name) name
#define HIDDEN(name) .hidden name
#define TYPE(name) .type name, @function
#define SIZE(name) .size name, .-name
#endif

    .text
    .globl SYMBOL(coro_swap)
    HIDDEN(coro_swap)
    TYPE(coro_swap)
    .p2align 4
SYMBOL(coro_swap):
    .cfi_startproc
#if defined(__CET__)
    endbr64
#endif
    pushq %rbp
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %rbp, 0
    pushq %rbx
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %rbx, 0
    pushq %r12
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %r12, 0
    pushq %r13
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %r13, 0
    pushq %r14
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %r14, 0
    pushq %r15
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %r15, 0
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    stmxcsr (%rsp)
    fnstcw 4(%rsp)
    /* Each read back by itself: a load that spans two stores waits until both have left the store buffer. */
    movl (%rsp), %eax
    movzwl 4(%rsp), %edx
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    cmpl (%rsp), %eax
    jne 3f
1:
    cmpw 4(%rsp), %dx
    jne 4f
2:
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %r15
    .cfi_adjust_cfa_offset -8
    .cfi_restore %r15
    popq %r14
    .cfi_adjust_cfa_offset -8
    .cfi_restore %r14
    popq %r13
    .cfi_adjust_cfa_offset -8
    .cfi_restore %r13
    popq %r12
    .cfi_adjust_cfa_offset -8
    .cfi_restore %r12
    popq %rbx
    .cfi_adjust_cfa_offset -8
    .cfi_restore %rbx
    popq %rbp
    .cfi_adjust_cfa_offset -8
    .cfi_restore %rbp
    ret
    .cfi_adjust_cfa_offset 56
    .cfi_rel_offset %rbp, 48
    .cfi_rel_offset %rbx, 40
    .cfi_rel_offset %r12, 32
    .cfi_rel_offset %r13, 24
    .cfi_rel_offset %r14, 16
    .cfi_rel_offset %r15, 8
3:
    ldmxcsr (%rsp)
    jmp 1b
4:
    fldcw 4(%rsp)
    jmp 2b
    .cfi_endproc
    SIZE(coro_swap)

    .globl SYMBOL(coro_swap_entry)
    HIDDEN(coro_swap_entry)
    TYPE(coro_swap_entry)
    .p2align 4
SYMBOL(coro_swap_entry):
    .cfi_startproc
    .cfi_undefined %rip
#if defined(__CET__)
    endbr64
#endif
    movq %r13, %rdi
    call *%r12
    ud2
    .cfi_endproc
    SIZE(coro_swap_entry)

#if defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
#elif defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
