/* Stack swap for i386, System V calling convention: ebx, ebp, esi, edi, the x87 control word and the MXCSR control
   bits belong to the caller; arguments lie on the stack. See swap.h for the interface.

   Parked layout, from the stack pointer up: MXCSR (0 without SSE), x87 control word and status word, edi, esi, ebx,
   ebp, return address. */
#if defined(__i386__)

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
    endbr32
#endif
    movl 4(%esp), %eax
    movl 8(%esp), %ecx
    pushl %ebp
    .cfi_adjust_cfa_offset 4
    .cfi_rel_offset %ebp, 0
    pushl %ebx
    .cfi_adjust_cfa_offset 4
    .cfi_rel_offset %ebx, 0
    pushl %esi
    .cfi_adjust_cfa_offset 4
    .cfi_rel_offset %esi, 0
    pushl %edi
    .cfi_adjust_cfa_offset 4
    .cfi_rel_offset %edi, 0
    subl $8, %esp
    .cfi_adjust_cfa_offset 8
    fnstcw 4(%esp)
    fnstsw 6(%esp)
#if defined(__SSE__)
    stmxcsr (%esp)
#else
    movl $0, (%esp)
#endif
    movl (%esp), %edx
    movzwl 4(%esp), %ebx
    movl %esp, (%eax)
    movl %ecx, %esp
#if defined(__SSE__)
    cmpl (%esp), %edx
    jne 3f
1:
#endif
    cmpw 4(%esp), %bx
    jne 4f
    fnstsw %ax
    xorb 6(%esp), %al
    testb $0x7f, %al            /* the exception flags; the rest is the last comparison's and the register stack's */
    jne 4f
2:
    addl $8, %esp
    .cfi_adjust_cfa_offset -8
    popl %edi
    .cfi_adjust_cfa_offset -4
    .cfi_restore %edi
    popl %esi
    .cfi_adjust_cfa_offset -4
    .cfi_restore %esi
    popl %ebx
    .cfi_adjust_cfa_offset -4
    .cfi_restore %ebx
    popl %ebp
    .cfi_adjust_cfa_offset -4
    .cfi_restore %ebp
    ret
    .cfi_adjust_cfa_offset 24
    .cfi_rel_offset %ebp, 20
    .cfi_rel_offset %ebx, 16
    .cfi_rel_offset %esi, 12
    .cfi_rel_offset %edi, 8
#if defined(__SSE__)
3:
    ldmxcsr (%esp)
    jmp 1b
#endif
4:
    /* The status word can only be loaded with the whole environment. With its own control word at once: flags of one
       thread under the masks of another would be an exception. */
    subl $28, %esp
    .cfi_adjust_cfa_offset 28
    fnstenv (%esp)
    movw 32(%esp), %ax
    movw %ax, (%esp)
    movb 34(%esp), %al
    andb $0x7f, %al
    movb %al, 4(%esp)
    fldenv (%esp)
    addl $28, %esp
    .cfi_adjust_cfa_offset -28
    jmp 2b
    .cfi_endproc
    SIZE(coro_swap)

    .globl SYMBOL(coro_swap_entry)
    HIDDEN(coro_swap_entry)
    TYPE(coro_swap_entry)
    .p2align 4
SYMBOL(coro_swap_entry):
    .cfi_startproc
    .cfi_undefined %eip
#if defined(__CET__)
    endbr32
#endif
    /* Sixteen zero bytes lie at esp: the argument takes their first word, so esp is 16-aligned at the call. */
    movl %edi, (%esp)
    call *%esi
    ud2
    .cfi_endproc
    SIZE(coro_swap_entry)

#if defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
#elif defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
