/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registers of a guest thread (x86-64). The order of the first 23 is that of the kernel's sigcontext
 * `gregs`, so a signal frame's copy is one memcpy. Source: arch/x86/include/uapi/asm/sigcontext.h.
 */
#pragma once

#include <stdint.h>

struct guest_regs {
    uint64_t r8, r9, r10, r11, r12, r13, r14, r15;
    uint64_t rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags;
    uint64_t csgsfs, err, trapno, oldmask, cr2; /* meaningful after a fault only */
    uint64_t fs_base, gs_base;
};

/* The extended state (XSAVE area) as the host lays it out in a signal frame, FP_XSTATE_MAGIC2 and all.
 * AMX is not given to guests, so this bound holds on every CPU that the platform accepts. */
#define GUEST_XSTATE_MAX 4096
