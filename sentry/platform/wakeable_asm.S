/* SPDX-License-Identifier: Apache-2.0 */
/*
 * long wakeable_enter(const _Atomic uint32_t *woken, long nr, long a0, long a1, long a2, long a3)
 *
 * SAFETY: plain System V function that makes the system call it is told; wakeable.c is its only caller.
 * From wakeable_window up to, not including, wakeable_window_end nothing has happened yet, so the
 * signal handler may send the thread to wakeable_cancelled from any instruction there.
 */
    .text
    .globl wakeable_enter, wakeable_window, wakeable_window_end, wakeable_cancelled
    .hidden wakeable_enter, wakeable_window, wakeable_window_end, wakeable_cancelled
    .type wakeable_enter, @function
wakeable_enter:
    .cfi_startproc
    endbr64
    mov %rdi, %r11
    mov %rsi, %rax
    mov %rdx, %rdi
    mov %rcx, %rsi
    mov %r8, %rdx
    mov %r9, %r10
wakeable_window:
    cmpl $0, (%r11)
    jne wakeable_cancelled
    syscall
wakeable_window_end:
    ret
wakeable_cancelled:
    mov $-4, %rax /* -EINTR */
    ret
    .cfi_endproc
    .size wakeable_enter, . - wakeable_enter

    .section .note.GNU-stack, "", @progbits
