/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The switch between two stacks of one host thread, x86-64.
 *
 * SAFETY: a switch is a function call for the compiler, so only what the ABI makes callee-saved has to
 * survive: rbx, rbp, r12-r15, rsp, the control bits of mxcsr and the x87 control word. Nothing else of
 * one context reaches the other but through memory. Every stack pointer that comes in here was written
 * by this function or by stack_prepare().
 */
    .text

/* void stack_switch(void **save_sp, void *to_sp): saves the caller's context on its stack and the stack
 * pointer in *save_sp; returns in the context that to_sp came from. */
    .globl stack_switch
    .type stack_switch, @function
    .p2align 4
stack_switch:
    .cfi_startproc
    endbr64
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
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    ldmxcsr (%rsp)
    fldcw 4(%rsp)
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %r15
    .cfi_adjust_cfa_offset -8
    popq %r14
    .cfi_adjust_cfa_offset -8
    popq %r13
    .cfi_adjust_cfa_offset -8
    popq %r12
    .cfi_adjust_cfa_offset -8
    popq %rbx
    .cfi_adjust_cfa_offset -8
    popq %rbp
    .cfi_adjust_cfa_offset -8
    /* Not `ret`: the return predictor expects the other stack's caller, and a miss costs more than all of the
     * rest (34 against 9 ns for two switches). notrack: the target is a return address. */
    popq %rcx
    .cfi_adjust_cfa_offset -8
    .cfi_register %rip, %rcx
    notrack jmp *%rcx
    .cfi_endproc
    .size stack_switch, . - stack_switch

/* Where a fresh stack begins: stack_prepare() put the argument of stack_main() into r12. The return
 * address is undefined for unwinders: backtraces end here. */
    .globl stack_begin
    .type stack_begin, @function
    .p2align 4
stack_begin:
    .cfi_startproc
    .cfi_undefined %rip
    endbr64
    xorl %ebp, %ebp
    movq %r12, %rdi
    call stack_main
    ud2
    .cfi_endproc
    .size stack_begin, . - stack_begin

    .section .note.GNU-stack, "", @progbits

/* IBT only: the shadow stack would have to be switched too, so this object does not claim it. */
    .section .note.gnu.property, "a"
    .p2align 3
    .long 4
    .long 16
    .long 5
    .asciz "GNU"
    .long 0xc0000002
    .long 4
    .long 1
    .long 0
