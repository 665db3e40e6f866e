/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stub's program as data: an ELF executable of one page, written out by hand so that it needs
 * neither linker script nor second build. The tracer drives it instruction by instruction.
 *
 * SAFETY: nothing in it runs by itself. A guest may jump to any byte of it: its system calls are caught
 * there as anywhere else, and the rest does what the guest could do with code of its own.
 */
#include "sentry/platform/stub_range.h"

    .section .rodata
    .globl ptrace_stub_image, ptrace_stub_image_end
    .globl ptrace_stub_call, ptrace_stub_cmpxchg, ptrace_stub_load, ptrace_stub_store
    .globl ptrace_stub_load8, ptrace_stub_store8
    .hidden ptrace_stub_load8, ptrace_stub_store8
    .hidden ptrace_stub_image, ptrace_stub_image_end
    .hidden ptrace_stub_call, ptrace_stub_cmpxchg, ptrace_stub_load, ptrace_stub_store
    .balign 64
ptrace_stub_image:
    .byte 0x7f, 'E', 'L', 'F', 2, 1, 1, 0 /* 64 bit, little-endian */
    .zero 8
    .short 2, 62 /* ET_EXEC, x86-64 */
    .long 1
    .quad STUB_CODE + (ptrace_stub_call - ptrace_stub_image)
    .quad 64 /* program headers */
    .quad 0
    .long 0
    .short 64, 56, 2, 0, 0, 0
    /* PT_LOAD, readable and executable: this page */
    .long 1, 5
    .quad 0, STUB_CODE, STUB_CODE
    .quad ptrace_stub_image_end - ptrace_stub_image
    .quad ptrace_stub_image_end - ptrace_stub_image
    .quad 4096
    /* PT_GNU_STACK, readable and writable */
    .long 0x6474e551, 6
    .quad 0, 0, 0, 0, 0, 16

    .balign 64
ptrace_stub_call: /* an order: registers as the kernel wants them */
    syscall
    int3
ptrace_stub_cmpxchg: /* rdi = address, eax = expected, ecx = desired; eax = what was there */
    lock cmpxchg %ecx, (%rdi)
    int3
ptrace_stub_load8: /* rax = the 8 bytes at rdi */
    mov (%rdi), %rax
    int3
ptrace_stub_store8: /* the 8 bytes at rdi = rax */
    mov %rax, (%rdi)
    int3
ptrace_stub_load: /* al = the byte at rdi */
    movb (%rdi), %al
    int3
ptrace_stub_store: /* the byte at rdi = al */
    movb %al, (%rdi)
    int3
    .balign 16
ptrace_stub_image_end:

    .section .note.GNU-stack, "", @progbits
