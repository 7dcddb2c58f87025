/* coro_probe(save, load, values): coro_swap(save, load) with every callee-saved register loaded from values[0 ...]
   before and stored to values[N ...] afterwards, where N is the number of such registers. A test in C can only hope
   that the compiler uses them all. The registers of the caller itself are kept, as the calling convention demands. */
#if defined(__x86_64__)

    .text
    .globl coro_probe
    .type coro_probe, @function
coro_probe:
    .cfi_startproc
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    pushq %rdx
    .cfi_adjust_cfa_offset 56
    movq 0(%rdx), %rbx
    movq 8(%rdx), %rbp
    movq 16(%rdx), %r12
    movq 24(%rdx), %r13
    movq 32(%rdx), %r14
    movq 40(%rdx), %r15
    call coro_swap
    popq %rdx
    .cfi_adjust_cfa_offset -8
    movq %rbx, 48(%rdx)
    movq %rbp, 56(%rdx)
    movq %r12, 64(%rdx)
    movq %r13, 72(%rdx)
    movq %r14, 80(%rdx)
    movq %r15, 88(%rdx)
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    .cfi_adjust_cfa_offset -48
    ret
    .cfi_endproc
    .size coro_probe, .-coro_probe

#elif defined(__i386__)

    .text
    .globl coro_probe
    .type coro_probe, @function
coro_probe:
    .cfi_startproc
    pushl %ebp
    pushl %ebx
    pushl %esi
    pushl %edi
    movl 28(%esp), %eax         /* values */
    movl 24(%esp), %ecx         /* load */
    movl 20(%esp), %edx         /* save */
    pushl %eax
    pushl %ecx
    pushl %edx
    .cfi_adjust_cfa_offset 28
    movl 0(%eax), %ebx
    movl 4(%eax), %ebp
    movl 8(%eax), %esi
    movl 12(%eax), %edi
    call coro_swap
    addl $8, %esp
    popl %edx
    .cfi_adjust_cfa_offset -12
    movl %ebx, 16(%edx)
    movl %ebp, 20(%edx)
    movl %esi, 24(%edx)
    movl %edi, 28(%edx)
    popl %edi
    popl %esi
    popl %ebx
    popl %ebp
    .cfi_adjust_cfa_offset -16
    ret
    .cfi_endproc
    .size coro_probe, .-coro_probe

#elif defined(__aarch64__)

    .text
    .globl coro_probe
    .type coro_probe, %function
coro_probe:
    .cfi_startproc
    hint #34                    /* bti c */
    sub sp, sp, #176
    .cfi_adjust_cfa_offset 176
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    .cfi_rel_offset x29, 80
    .cfi_rel_offset x30, 88
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    str x2, [sp, #160]
    ldp x19, x20, [x2, #0]
    ldp x21, x22, [x2, #16]
    ldp x23, x24, [x2, #32]
    ldp x25, x26, [x2, #48]
    ldp x27, x28, [x2, #64]
    ldr x29, [x2, #80]
    ldp d8, d9, [x2, #88]
    ldp d10, d11, [x2, #104]
    ldp d12, d13, [x2, #120]
    ldp d14, d15, [x2, #136]
    bl coro_swap
    ldr x2, [sp, #160]
    stp x19, x20, [x2, #152]
    stp x21, x22, [x2, #168]
    stp x23, x24, [x2, #184]
    stp x25, x26, [x2, #200]
    stp x27, x28, [x2, #216]
    str x29, [x2, #232]
    stp d8, d9, [x2, #240]
    stp d10, d11, [x2, #256]
    stp d12, d13, [x2, #272]
    stp d14, d15, [x2, #288]
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
    .cfi_restore x29
    .cfi_restore x30
    ret
    .cfi_endproc
    .size coro_probe, .-coro_probe

#endif

#if defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
