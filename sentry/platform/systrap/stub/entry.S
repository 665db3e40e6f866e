/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stub: what runs in a guest's process besides the guest. Signal handlers, the loop that executes
 * orders, the first steps of a new task, the template's loop, and the seccomp filter.
 *
 * Everything here works with registers only; it uses no stack and writes no memory at all, so a stack
 * pointer, flags or memory that a guest forged do no harm. It runs with every host signal blocked; a
 * fault in it therefore kills the process, which is the wanted end.
 *
 * SAFETY: a guest can jump to any byte of this with any registers. Nothing here is authority: the
 * sentry compares each notified call with its own copy of what it ordered, and identifies the thread
 * by the pid that the kernel puts into the notification.
 */
#include "stub_abi.h"
#include <asm/unistd_64.h>

/* Those headers have C in them. */
#define AUDIT_ARCH_X86_64 0xc000003e
#define SECCOMP_RET_KILL_PROCESS 0x80000000
#define SECCOMP_RET_TRAP 0x00030000
#define SECCOMP_RET_USER_NOTIF 0x7fc00000
#define SECCOMP_RET_ALLOW 0x7fff0000

    .text
    .globl stub_table, _start
stub_table:
    .quad STUB_TABLE_MAGIC
    .quad after_sigreturn
    .quad stub_cmpxchg
    .quad stub_cmpxchg_end
    .quad after_call
    .quad after_template_clone
    .quad text_start
    .quad text_end

/* ---- the filter: invariant I1 ------------------------------------------------------------------ */

#define LD_W_ABS 0x20
#define JEQ 0x15
#define JGE 0x35
#define JGT 0x25
#define RET 0x06
#define OFF_NR 0
#define OFF_ARCH 4
#define OFF_IP 8
#define OFF_ARG(n) (16 + 8 * (n))

/* One instruction; `t` and `f` are labels as in classic BPF: where to go if true, if false. */
.macro BPF code, k, t=0, f=0
    .short \code
    .byte \t
    .byte \f
    .long \k
.endm
.macro LOAD offset
    BPF LD_W_ABS, \offset
.endm
/* Jump offsets count instructions after the next one. */
.macro JUMP code, k, t, f
100:
    .short \code
    .byte (\t - 100b - 8) / 8
    .byte (\f - 100b - 8) / 8
    .long \k
.endm
.macro RETURN action
    BPF RET, \action
.endm

/* The low word of an address in this section, as a constant: the image is linked at STUB_CODE. */
#define LOW(address) ((STUB_CODE & 0xffffffff) + ((address) - stub_table))

/* Three filters. The plain one traps every call of a guest. With `light`, a guest's call is notified
 * instead, which spares the signal, except for calls that need all registers or work on the thread
 * itself; it takes a kernel with WAIT_KILLABLE_RECV. `open` adds the drill's hole before the last trap. */
.macro FILTER open, light
0:  LOAD OFF_ARCH
    JUMP JEQ, AUDIT_ARCH_X86_64, 1f, 90f
1:  LOAD OFF_NR
    JUMP JGE, 0x40000000, 92f, 2f
2:  JUMP JEQ, __NR_rt_sigreturn, 20f, 3f
3:  JUMP JEQ, STUB_DOORBELL, 30f, 4f
4:  JUMP JEQ, __NR_mmap, 30f, 5f
5:  JUMP JEQ, __NR_munmap, 30f, 6f
6:  JUMP JEQ, __NR_mprotect, 30f, 7f
7:  JUMP JEQ, __NR_mremap, 30f, 8f
8:  JUMP JEQ, __NR_madvise, 30f, 14f
14: JUMP JEQ, __NR_mincore, 30f, 9f
9:  JUMP JEQ, __NR_close, 33f, 10f
10: JUMP JEQ, __NR_clone, 30f, 11f
11: JUMP JEQ, __NR_exit, 30f, 12f
12: JUMP JEQ, __NR_futex, 40f, 13f
13: JUMP JEQ, __NR_sched_yield, 93f, 50f

    /* rt_sigreturn from its one address. */
20: LOAD OFF_IP + 4
    JUMP JEQ, STUB_HIGH_WORD, 21f, 92f
21: LOAD OFF_IP
    JUMP JEQ, LOW_SIGRETURN, 93f, 92f

    /* Doorbell and orders from the stub's text. */
30: LOAD OFF_IP + 4
    JUMP JEQ, STUB_HIGH_WORD, 31f, 92f
31: LOAD OFF_IP
    JUMP JGE, LOW_TEXT_START, 32f, 92f
32: JUMP JGT, LOW_TEXT_END, 92f, 91f
    /* close is a frequent call of guests, too. */
33: LOAD OFF_IP + 4
    JUMP JEQ, STUB_HIGH_WORD, 34f, 50f
34: LOAD OFF_IP
    JUMP JGE, LOW_TEXT_START, 35f, 50f
35: JUMP JGT, LOW_TEXT_END, 50f, 91f

    /* The park futex: FUTEX_WAIT without timeout on a word of the mailbox, from its one address. */
40: LOAD OFF_IP + 4
    JUMP JEQ, STUB_HIGH_WORD, 41f, 50f
41: LOAD OFF_IP
    JUMP JEQ, LOW_PARK, 42f, 50f
42: LOAD OFF_ARG(0) + 4
    JUMP JEQ, STUB_HIGH_WORD, 43f, 92f
43: LOAD OFF_ARG(0)
    JUMP JGE, STUB_MAILBOX & 0xffffffff, 44f, 92f
44: JUMP JGE, (STUB_MAILBOX & 0xffffffff) + STUB_MAILBOX_SIZE, 92f, 45f
45: LOAD OFF_ARG(1)
    JUMP JEQ, 0, 46f, 92f
46: LOAD OFF_ARG(1) + 4
    JUMP JEQ, 0, 47f, 92f
47: LOAD OFF_ARG(3)
    JUMP JEQ, 0, 48f, 92f
48: LOAD OFF_ARG(3) + 4
    JUMP JEQ, 0, 93f, 92f

    /* What else a guest calls. */
50:
.if \light
    LOAD OFF_NR
    JUMP JEQ, __NR_fork, 92f, 51f
51: JUMP JEQ, __NR_vfork, 92f, 52f
52: JUMP JEQ, __NR_clone3, 92f, 53f
53: JUMP JEQ, __NR_execve, 92f, 54f
54: JUMP JEQ, __NR_execveat, 92f, 55f
55: JUMP JEQ, __NR_exit_group, 92f, 56f
56: JUMP JEQ, __NR_arch_prctl, 92f, 57f
57: JUMP JEQ, __NR_sigaltstack, 92f, 58f
58: JUMP JEQ, __NR_brk, 92f, 59f
59: JUMP JEQ, __NR_shmat, 92f, 60f
60: JUMP JEQ, __NR_shmdt, 92f, 61f
61: JUMP JEQ, __NR_tkill, 92f, 62f
62: JUMP JEQ, __NR_tgkill, 92f, 63f
63: JUMP JEQ, __NR_rt_sigsuspend, 92f, 64f
64: JUMP JEQ, __NR_ptrace, 92f, 65f
    /* The vsyscall page is emulated and cannot be restarted, so it traps. */
65: LOAD OFF_IP + 4
    JUMP JGT, STUB_HIGH_WORD, 92f, 91f
.else
    JUMP JEQ, 0, 92f, 92f
.endif

90: RETURN SECCOMP_RET_KILL_PROCESS
91: RETURN SECCOMP_RET_USER_NOTIF
.if \open
92: LOAD OFF_ARG(5)
    JUMP JEQ, STUB_OPEN_MAGIC, 93f, 94f
94: RETURN SECCOMP_RET_TRAP
.else
92: RETURN SECCOMP_RET_TRAP
.endif
93: RETURN SECCOMP_RET_ALLOW
.endm

/* ---- signals ----------------------------------------------------------------------------------- */

    .balign 64
_start:
    endbr64
    xor %ebp, %ebp
    mov %rsp, %rdi
    and $-16, %rsp
    call stub_start
    ud2

    .balign 64
text_start:
/* Every handler. rdi = signal, rsp = the frame that the kernel wrote. */
    .globl stub_handler
stub_handler:
    endbr64
    cld
    mov %rsp, %rbx
    movslq %edi, %rsi
    mov %rsp, %rdi
    rdfsbase %rdx
    rdgsbase %r10
ring:
    mov $STUB_DOORBELL, %eax
    syscall
/* rax = reply, rbx = frame. */
dispatch:
    cmp $STUB_REPLY_RESUME, %rax
    jne not_plain_resume
resume:
    lea 8(%rbx), %rsp
    mov $__NR_rt_sigreturn, %eax
    syscall
after_sigreturn:
    ud2

not_plain_resume:
    mov %rbx, %r12
    and $-STUB_SLOT_SIZE, %r12
    cmp $STUB_REPLY_RESUME_BASES, %rax
    je resume_bases
    cmp $STUB_REPLY_CALLS, %rax
    je calls
    cmp $STUB_REPLY_PARK, %rax
    je park
    cmp $STUB_REPLY_EXIT, %rax
    je leave
    ud2

resume_bases:
    mov STUB_HDR_FS(%r12), %rax
    wrfsbase %rax
    mov STUB_HDR_GS(%r12), %rax
    wrgsbase %rax
    jmp resume

/* Until its word is not 0, which for a leader without a guest thread is never. */
park:
    lea STUB_HDR_PARK(%r12), %rdi
    xor %esi, %esi
    xor %edx, %edx
    xor %r10d, %r10d
    mov $__NR_futex, %eax
    syscall
after_park:
    cmpl $0, STUB_HDR_PARK(%r12)
    je park
    jmp ready

leave:
    xor %edi, %edi
    mov $__NR_exit, %eax
    syscall
    ud2

/* ---- orders ------------------------------------------------------------------------------------ */

/* r14 = next call, r15 = calls done, rbp = first error, r13 = calls done before it. */
calls:
    lea STUB_HDR_CALLS(%r12), %r14
    xor %r15d, %r15d
    xor %ebp, %ebp
    xor %r13d, %r13d
next_call:
    mov (%r14), %r12
    cmp $STUB_CALL_END, %r12
    je calls_end
    test %rbp, %rbp
    jz run_call
    testb $STUB_CALL_ALWAYS, STUB_CALL_FLAGS(%r14)
    jz skip_call
run_call:
    mov %r12, %rax
    mov 8(%r14), %rdi
    mov 16(%r14), %rsi
    mov 24(%r14), %rdx
    mov 32(%r14), %r10
    mov 40(%r14), %r8
    mov 48(%r14), %r9
    syscall
after_call:
    test %rax, %rax
    jz maybe_child
call_returned:
    cmp $-4095, %rax
    jb call_done
    test %rbp, %rbp
    jnz skip_call
    mov %rax, %rbp
    mov %r15, %r13
    jmp skip_call
call_done:
    inc %r15
skip_call:
    add $STUB_CALL_SIZE, %r14
    jmp next_call
maybe_child:
    cmp $__NR_clone, %r12
    je child
    jmp call_returned
calls_end:
    mov %rbp, %r10
    test %rbp, %rbp
    jnz calls_failed
    cmpq $STUB_MODE_RESUME, 8(%r14)
    jne calls_report
    /* The bases were written into the header by the sentry whatever they are. */
    mov %rbx, %r12
    and $-STUB_SLOT_SIZE, %r12
    jmp resume_bases
calls_failed:
    mov %r13, %r15
calls_report:
    mov %r15, %rdx
    mov %rbx, %rdi
    mov $STUB_CODE_DONE, %esi
    mov %rax, %r8
    jmp ring

/* ---- a new task: r9 = nonce, no mailbox yet unless it is a thread ------------------------------- */

child:
    xor %edi, %edi
    mov $STUB_CODE_CHILD, %esi
    mov %r9, %rdx
    mov $STUB_DOORBELL, %eax
    syscall
    test %rax, %rax
    jle broken
    mov %rax, %rbx
    and $-8, %rbx
    test $STUB_REPLY_CHILD_THREAD, %al
    jnz ready
    movabs $STUB_MAILBOX, %rdi
    mov $STUB_MAILBOX_SIZE, %esi
    mov $3, %edx       /* PROT_READ | PROT_WRITE */
    mov $0x11, %r10d   /* MAP_SHARED | MAP_FIXED */
    xor %r8d, %r8d
    xor %r9d, %r9d
    mov $__NR_mmap, %eax
    syscall
    cmp %rax, %rdi
    jne broken
    xor %edi, %edi
    mov $__NR_close, %eax
    syscall
    movabs $STUB_MAILBOX, %rdi
    mov $STUB_MAILBOX_SIZE, %esi
    mov $10, %edx      /* MADV_DONTFORK */
    mov $__NR_madvise, %eax
    syscall
    test %rax, %rax
    jnz broken
ready:
    mov %rbx, %rdi
    mov $STUB_CODE_READY, %esi
    xor %edx, %edx
    xor %r10d, %r10d
    xor %r8d, %r8d
    jmp ring
broken:
    ud2

/* ---- the template: rdx, r10, r8 = what start.c reports; close the listener, then clone on demand -- */

    .globl stub_template
stub_template:
    xor %edi, %edi
    mov $STUB_CODE_TEMPLATE, %esi
    mov $STUB_DOORBELL, %eax
    syscall
    test %rax, %rax
    js broken
    xor %edi, %edi
    mov $__NR_close, %eax /* the listener: descriptor 0 */
    syscall
    xor %edx, %edx
template_loop:
    xor %edi, %edi
    mov $STUB_CODE_TEMPLATE, %esi
    mov $STUB_DOORBELL, %eax
    syscall
    test %rax, %rax
    jle broken
    mov %rax, %r9
    mov $0x8011, %edi /* CLONE_PARENT | SIGCHLD */
    xor %esi, %esi
    xor %edx, %edx
    xor %r10d, %r10d
    xor %r8d, %r8d
    mov $__NR_clone, %eax
    syscall
after_template_clone:
    test %rax, %rax
    jz child
    mov %rax, %rdx
    jmp template_loop

/* The last steps of start.c, for which the stack goes away: rdi = the lowest byte of vvar, rsi = the
 * filter's sock_fprog, rdx = findings to report, rcx = bytes of vvar, r8 = bytes of the vDSO. */
    .globl stub_finish
stub_finish:
    mov %rdx, %r13
    mov %rcx, %r14
    mov %r8, %r15
    mov %rsi, %rbp
    mov %rdi, %rbx
    /* [end of the vDSO, end of user space): the stack is in it. */
    lea (%rbx,%r15), %rdi
    add %r14, %rdi
    movabs $STUB_USER_END, %rsi
    sub %rdi, %rsi
    mov $__NR_munmap, %eax
    syscall
    test %rax, %rax
    jnz broken
    /* [end of the image, vvar) */
    lea image_end(%rip), %rdi
    mov %rbx, %rsi
    sub %rdi, %rsi
    mov $__NR_munmap, %eax
    syscall
    test %rax, %rax
    jnz broken
    /* [0, image) */
    lea stub_table(%rip), %rsi
    xor %edi, %edi
    mov $__NR_munmap, %eax
    syscall
    test %rax, %rax
    jnz broken
    /* mseal(image) and, where the kernel has it, that is all; errors are ignored. */
    lea stub_table(%rip), %rdi
    lea image_end(%rip), %rsi
    sub %rdi, %rsi
    xor %edx, %edx
    mov $462, %eax
    syscall
    /* The wanted filter, with WAIT_KILLABLE_RECV (32) and NEW_LISTENER (8); the plain one without the
     * former if the kernel does not have it. */
    mov $1, %edi       /* SECCOMP_SET_MODE_FILTER */
    mov $40, %esi
    mov %rbp, %rdx
    mov $__NR_seccomp, %eax
    syscall
    test %rax, %rax
    jz filtered
    mov $1, %edi
    mov $8, %esi
    mov %rbp, %rdx
    lea stub_light_filter(%rip), %rax
    cmp %rax, %rbp
    jne 1f
    lea stub_filter(%rip), %rdx
1:  mov $__NR_seccomp, %eax
    syscall
    test %rax, %rax    /* RLIMIT_NOFILE is 1: the listener is descriptor 0 */
    jnz broken
    mov $1, %r9d       /* without WAIT_KILLABLE_RECV */
    jmp 1f
filtered:
    xor %r9d, %r9d
1:  mov %r13, %rdx
    mov %r14, %r10
    mov %r15, %r8
    jmp stub_template

/* ---- the atomic operation that the sentry asks for: entered by a resume ------------------------- */

/* rdi = guest address, eax = expected, esi = desired. Ends in SIGILL, or faults at its first byte. */
stub_cmpxchg:
    lock cmpxchg %esi, (%rdi)
stub_cmpxchg_end:
    ud2
text_end:

    .set LOW_SIGRETURN, LOW(after_sigreturn)
    .set LOW_PARK, LOW(after_park)
    .set LOW_TEXT_START, LOW(text_start)
    .set LOW_TEXT_END, LOW(text_end)

    .balign 8
filter:
    FILTER 0, 0
filter_end:
light_filter:
    FILTER 0, 1
light_filter_end:
open_filter:
    FILTER 1, 0
open_filter_end:

    .section .rodata, "a", @progbits
    .balign 8
    .globl stub_filter, stub_light_filter, stub_open_filter
stub_filter:
    .quad (filter_end - filter) / 8
    .quad filter
stub_light_filter:
    .quad (light_filter_end - light_filter) / 8
    .quad light_filter
stub_open_filter:
    .quad (open_filter_end - open_filter) / 8
    .quad open_filter

    .section .note.GNU-stack, "", @progbits
