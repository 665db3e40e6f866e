/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stub and sentry agree on: addresses, doorbell codes, replies, the layout of a slot. Read by the
 * assembler and by C. Nothing that the stub writes according to this page is believed by the sentry.
 *
 * The stub's range is [STUB_BASE, end of user space); guests may map only below it:
 *     STUB_CODE      the stub's image, one read-only executable segment, sealed
 *     STUB_MAILBOX   the space's mailbox: a memfd of its own, shared with the sentry, not inherited
 *     STUB_VDSO_LOW  the host's vvar and vDSO, at an offset chosen for each sandbox
 *
 * A slot of the mailbox is what one host thread owns: one page of header, then the alternate signal
 * stack on which the kernel builds the signal frame, where the sentry finds the registers.
 */
#pragma once

#include "../../stub_range.h"

#define STUB_MAILBOX 0x7fff90000000
#define STUB_HIGH_WORD 0x7fff /* of every address above */

#define STUB_SLOT_SHIFT 14
#define STUB_SLOT_SIZE (1 << STUB_SLOT_SHIFT)
#define STUB_SLOT_COUNT 8192
#define STUB_MAILBOX_SIZE (STUB_SLOT_COUNT << STUB_SLOT_SHIFT)
#define STUB_STACK_OFFSET 4096

/* Offsets in the header page. */
#define STUB_HDR_FS 0
#define STUB_HDR_GS 8
#define STUB_HDR_PARK 64
#define STUB_HDR_CALLS 128
#define STUB_CALL_SIZE 64
#define STUB_CALLS_MAX 60 /* without the end mark */
/* A call: nr, six arguments, flags. The end mark has nr STUB_CALL_END and the mode as argument 0. */
#define STUB_CALL_FLAGS 56
#define STUB_CALL_ALWAYS 1 /* run it even after an earlier one failed (close) */
#define STUB_CALL_END -1
#define STUB_MODE_STOP 0
#define STUB_MODE_RESUME 1

/* The doorbell: a number that no kernel has. rdi = frame, rsi = code, the rest as the code says. */
#define STUB_DOORBELL 0x0ba11e70
/* Codes 1..64 are host signals: rdx = fs base, r10 = gs base. */
#define STUB_CODE_CHILD 100    /* rdx = nonce: first sign of life of a new task */
#define STUB_CODE_READY 101    /* a new task has its mailbox, or a parked one was woken */
#define STUB_CODE_DONE 102     /* rdx = calls done, r10 = 0 or the error of the next, r8 = last value */
/* The template waits for work: rdx = result of the last clone. The first time: rdx = findings (below),
 * r10 = bytes of vvar, r8 = bytes of the vDSO, r9 = 1 if the kernel lacks WAIT_KILLABLE_RECV. */
#define STUB_CODE_TEMPLATE 103
#define STUB_FOUND_OOM_SCORE 1 /* oom_score_adj is +1000 */

/* Replies: what the stopped thread does next. Anything else, ENOSYS included, is ud2. */
#define STUB_REPLY_RESUME 1
#define STUB_REPLY_RESUME_BASES 2 /* loads fs and gs from the header first */
#define STUB_REPLY_CALLS 3
#define STUB_REPLY_PARK 4
#define STUB_REPLY_EXIT 5
/* The reply to CHILD is the task's frame; bit 0: thread of the same space, the mailbox is there. */
#define STUB_REPLY_CHILD_THREAD 1

#define STUB_KICK_SIGNAL 10 /* SIGUSR1 */

/* The table at STUB_CODE, in 8-byte words: how the sentry learns addresses in the image. */
#define STUB_TABLE_MAGIC 0x3162757473796562
#define STUB_TABLE_SIGRETURN 1
#define STUB_TABLE_CMPXCHG 2
#define STUB_TABLE_CMPXCHG_END 3
#define STUB_TABLE_CALL_IP 4
#define STUB_TABLE_CLONE_IP 5
#define STUB_TABLE_TEXT_START 6
#define STUB_TABLE_TEXT_END 7
#define STUB_TABLE_WORDS 8

#ifndef __ASSEMBLER__
#include <stdint.h>

struct stub_call {
    uint64_t nr;
    uint64_t args[6];
    uint64_t flags;
};
_Static_assert(sizeof(struct stub_call) == STUB_CALL_SIZE, "entry.S walks the list");

/* What the template reads from descriptor 0 at its start. */
struct stub_params {
    uint64_t vdso_target; /* where vvar and vDSO go, lowest byte */
    uint64_t open_filter; /* drills only: what would trap is allowed if argument 5 is STUB_OPEN_MAGIC */
    uint64_t findings;    /* STUB_FOUND_*: handed back in the first doorbell */
};
#endif
