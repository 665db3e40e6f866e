/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System call handlers and their dispatch. A handler `sys_<name>(task, arguments…)` runs on the calling
 * task's fiber: it decodes (copies in, looks objects up), calls one subsystem function on host values,
 * copies out, releases. It returns the guest's result: a value, or -errno, or one of the restart codes
 * of sentry/task/restart.h.
 */
#pragma once

#include "abi/guest_addr.h"
#include <stdbool.h>
#include <stdint.h>

struct task;

#define SYSCALL0(nr, name, support) int64_t sys_##name(struct task *task);
#define SYSCALL1(nr, name, support, t1, a1) int64_t sys_##name(struct task *task, t1 a1);
#define SYSCALL2(nr, name, support, t1, a1, t2, a2)                                                \
    int64_t sys_##name(struct task *task, t1 a1, t2 a2);
#define SYSCALL3(nr, name, support, t1, a1, t2, a2, t3, a3)                                        \
    int64_t sys_##name(struct task *task, t1 a1, t2 a2, t3 a3);
#define SYSCALL4(nr, name, support, t1, a1, t2, a2, t3, a3, t4, a4)                                \
    int64_t sys_##name(struct task *task, t1 a1, t2 a2, t3 a3, t4 a4);
#define SYSCALL5(nr, name, support, t1, a1, t2, a2, t3, a3, t4, a4, t5, a5)                        \
    int64_t sys_##name(struct task *task, t1 a1, t2 a2, t3 a3, t4 a4, t5 a5);
#define SYSCALL6(nr, name, support, t1, a1, t2, a2, t3, a3, t4, a4, t5, a5, t6, a6)                \
    int64_t sys_##name(struct task *task, t1 a1, t2 a2, t3 a3, t4 a4, t5 a5, t6 a6);
#include "sentry/syscalls/syscalls.def"
#undef SYSCALL0
#undef SYSCALL1
#undef SYSCALL2
#undef SYSCALL3
#undef SYSCALL4
#undef SYSCALL5
#undef SYSCALL6

#define SYSCALL_COUNT 512

/* Runs the call that `task`'s registers ask for: the result for rax. */
int64_t syscall_dispatch(struct task *task, uint64_t nr, const uint64_t args[6]);
/* PTRACE_MODE_ATTACH_REALCREDS of ptrace(2): whether `task` may have what is `target`'s own. */
bool task_may_attach(struct task *task, struct task *target);
/* "read", or NULL for a number that isn't served. */
const char *syscall_name(uint64_t nr);
