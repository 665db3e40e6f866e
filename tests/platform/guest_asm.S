/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the platform test runs as a guest: position-independent, copied to GUEST_CODE. Data page in
 * %r12 by convention (the test sets it). Each routine is entered by its label's offset.
 */
    .section .rodata, "a", @progbits
    .balign 4096
    .globl guest_code, guest_code_end
guest_code:

#define ROUTINE(name) .balign 64; .globl name; name:

/* getpid with recognisable registers; the answer goes on in rax to a second call. */
ROUTINE(guest_getpid)
    mov $39, %eax
    mov $0x1111, %edi
    mov $0x2222, %esi
    mov $0x3333, %edx
    mov $0x4444, %r10d
    mov $0x5555, %r8d
    mov $0x6666, %r9d
    syscall
    mov %rax, %rdi
    mov $60, %eax
    syscall
    ud2

/* getpid for ever. */
ROUTINE(guest_getpid_loop)
    mov $39, %eax
    syscall
    jmp guest_getpid_loop

ROUTINE(guest_spin)
    jmp guest_spin

/* Writes rsi to rdi for ever. */
ROUTINE(guest_scribble)
    mov %rsi, (%rdi)
    jmp guest_scribble

/* Reads and writes memory: rdi = address. */
ROUTINE(guest_load)
    mov (%rdi), %rax
    mov $1000, %eax
    syscall
    ud2
ROUTINE(guest_store)
    movl $77, (%rdi)
    mov $1001, %eax
    syscall
    ud2
ROUTINE(guest_jump)
    jmp *%rdi

/* Fills every general register and xmm0, makes a call, and stores what it finds afterwards. */
ROUTINE(guest_registers)
    movq %rdi, %xmm0
    mov $1, %rbx
    mov $2, %rbp
    mov $3, %r13
    mov $4, %r14
    mov $5, %r15
    mov $39, %eax
    syscall
    movq %xmm0, %rax
    syscall
    ud2

/* fs base: reads the word at %fs:0. */
ROUTINE(guest_fs)
    mov %fs:0, %rdi
    mov $1002, %eax
    syscall
    ud2

ROUTINE(guest_x32)
    mov $0x40000027, %eax
    syscall
    mov $1003, %eax
    syscall
    ud2

ROUTINE(guest_int80)
    mov $20, %eax
    int $0x80
    mov $1004, %eax
    syscall
    ud2

/* A host call that a guest must not get through: rax.. r9 as the test set them. */
ROUTINE(guest_raw)
    syscall
    mov %rax, %rdi
    mov $1005, %eax
    syscall
    ud2

/* Jumps to r11 (an address in the stub) with the registers as the test set them. */
ROUTINE(guest_jump_r11)
    jmp *%r11

/* rt_sigreturn from here. */
ROUTINE(guest_sigreturn)
    mov $15, %eax
    syscall
    mov $1006, %eax
    syscall
    ud2

/* Unaligned access with AC, direction flag set, then a call. */
ROUTINE(guest_flags)
    pushfq
    orq $0x40400, (%rsp)
    popfq
    mov $1007, %eax
    syscall
    pushfq
    andq $~0x40400, (%rsp)
    popfq
    mov $1008, %eax
    syscall
    ud2

    .balign 4096
guest_code_end:
    .section .note.GNU-stack, "", @progbits
