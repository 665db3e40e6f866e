/* SPDX-License-Identifier: Apache-2.0 */
/* Signal structures of x86-64. Sources: asm/signal.h, asm/siginfo.h, asm/sigcontext.h, asm/ucontext.h. */
#pragma once

#include <assert.h>
#include <stdint.h>

#define LINUX_NSIG 64
#define LINUX_SA_RESTORER 0x04000000U
#define LINUX_SIGRTMIN 32

struct linux_sigaction {
    uint64_t handler; /* guest address, 0 SIG_DFL, 1 SIG_IGN */
    uint64_t flags;
    uint64_t restorer;
    uint64_t mask;
};
static_assert(sizeof(struct linux_sigaction) == 32, "sigaction");

struct linux_stack {
    uint64_t sp;
    int32_t flags;
    uint32_t pad;
    uint64_t size;
};
static_assert(sizeof(struct linux_stack) == 24, "stack_t");

struct linux_siginfo {
    int32_t signo, error, code, pad;
    union {
        struct {
            int32_t pid;
            uint32_t uid;
            uint64_t value;
        } rt; /* kill, sigqueue */
        struct {
            int32_t tid, overrun;
            uint64_t value;
        } timer;
        struct {
            int32_t pid;
            uint32_t uid;
            int32_t status, pad;
            int64_t utime, stime;
        } chld;
        struct {
            uint64_t addr;
        } fault;
        struct {
            int64_t band;
            int32_t fd;
        } poll;
        uint8_t bytes[112];
    };
};
static_assert(sizeof(struct linux_siginfo) == 128, "siginfo");

struct linux_sigcontext {
    uint64_t r8, r9, r10, r11, r12, r13, r14, r15;
    uint64_t rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags;
    uint16_t cs, gs, fs, ss;
    uint64_t err, trapno, oldmask, cr2;
    uint64_t fpstate; /* guest address */
    uint64_t reserved[8];
};
static_assert(sizeof(struct linux_sigcontext) == 256, "sigcontext");

struct linux_ucontext {
    uint64_t flags;
    uint64_t link;
    struct linux_stack stack;
    struct linux_sigcontext mcontext;
    uint64_t sigmask;
};
static_assert(sizeof(struct linux_ucontext) == 304, "ucontext");

#define LINUX_UC_FP_XSTATE 1U
#define LINUX_UC_SIGCONTEXT_SS 2U
#define LINUX_UC_STRICT_RESTORE_SS 4U

struct linux_rt_sigframe {
    uint64_t pretcode; /* restorer */
    struct linux_ucontext uc;
    struct linux_siginfo info;
};
