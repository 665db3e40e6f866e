/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dispatch of system calls: typed adapters made from syscalls.def. Runs on the calling task's fiber;
 * numbers and arguments are the guest's and are taken as they come.
 */
#define LOG_MODULE "syscalls"
#include "sentry/syscalls/syscalls.h"
#include "base/log.h"
#include "sentry/syscalls/strace.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <stdatomic.h>

/* Registers are 64 bits; each argument type says how much of one counts. */
#define ARG_int(x) ((int)(uint32_t)(x))
#define ARG_uint32_t(x) ((uint32_t)(x))
#define ARG_uint64_t(x) (x)
#define ARG_int64_t(x) ((int64_t)(x))
#define ARG_guest_addr(x) GUEST_ADDR(x)

#define ADAPTER(name) static int64_t adapt_##name(struct task *task, const uint64_t a[6])
#define SYSCALL0(nr, name, support)                                                                \
    ADAPTER(name)                                                                                  \
    {                                                                                              \
        (void)a;                                                                                   \
        return sys_##name(task);                                                                   \
    }
#define SYSCALL1(nr, name, support, t1, a1)                                                        \
    ADAPTER(name)                                                                                  \
    {                                                                                              \
        return sys_##name(task, ARG_##t1(a[0]));                                                   \
    }
#define SYSCALL2(nr, name, support, t1, a1, t2, a2)                                                \
    ADAPTER(name)                                                                                  \
    {                                                                                              \
        return sys_##name(task, ARG_##t1(a[0]), ARG_##t2(a[1]));                                   \
    }
#define SYSCALL3(nr, name, support, t1, a1, t2, a2, t3, a3)                                        \
    ADAPTER(name)                                                                                  \
    {                                                                                              \
        return sys_##name(task, ARG_##t1(a[0]), ARG_##t2(a[1]), ARG_##t3(a[2]));                   \
    }
#define SYSCALL4(nr, name, support, t1, a1, t2, a2, t3, a3, t4, a4)                                \
    ADAPTER(name)                                                                                  \
    {                                                                                              \
        return sys_##name(task, ARG_##t1(a[0]), ARG_##t2(a[1]), ARG_##t3(a[2]), ARG_##t4(a[3]));   \
    }
#define SYSCALL5(nr, name, support, t1, a1, t2, a2, t3, a3, t4, a4, t5, a5)                        \
    ADAPTER(name)                                                                                  \
    {                                                                                              \
        return sys_##name(task, ARG_##t1(a[0]), ARG_##t2(a[1]), ARG_##t3(a[2]), ARG_##t4(a[3]),    \
                          ARG_##t5(a[4]));                                                         \
    }
#define SYSCALL6(nr, name, support, t1, a1, t2, a2, t3, a3, t4, a4, t5, a5, t6, a6)                \
    ADAPTER(name)                                                                                  \
    {                                                                                              \
        return sys_##name(task, ARG_##t1(a[0]), ARG_##t2(a[1]), ARG_##t3(a[2]), ARG_##t4(a[3]),    \
                          ARG_##t5(a[4]), ARG_##t6(a[5]));                                         \
    }
#include "sentry/syscalls/syscalls.def"
#undef SYSCALL0
#undef SYSCALL1
#undef SYSCALL2
#undef SYSCALL3
#undef SYSCALL4
#undef SYSCALL5
#undef SYSCALL6

struct syscall_entry {
    const char *name;
    int64_t (*call)(struct task *task, const uint64_t args[6]);
};
#define ENTRY(nr, name) [nr] = {#name, adapt_##name},
#define SYSCALL0(nr, name, ...) ENTRY(nr, name)
#define SYSCALL1(nr, name, ...) ENTRY(nr, name)
#define SYSCALL2(nr, name, ...) ENTRY(nr, name)
#define SYSCALL3(nr, name, ...) ENTRY(nr, name)
#define SYSCALL4(nr, name, ...) ENTRY(nr, name)
#define SYSCALL5(nr, name, ...) ENTRY(nr, name)
#define SYSCALL6(nr, name, ...) ENTRY(nr, name)
static const struct syscall_entry syscall_table[SYSCALL_COUNT] = {
#include "sentry/syscalls/syscalls.def"
};

/* Absent numbers are logged once each. */
static _Atomic bool absent_logged[SYSCALL_COUNT];

const char *syscall_name(uint64_t nr)
{
    return nr < SYSCALL_COUNT ? syscall_table[nr].name : NULL;
}

static int64_t syscall_absent(uint64_t nr)
{
    if (nr < SYSCALL_COUNT && !atomic_exchange_explicit(&absent_logged[nr], true, memory_order_relaxed))
        log_info("system call %lu isn't served: ENOSYS", (unsigned long)nr);
    return -ENOSYS;
}

int64_t syscall_dispatch(struct task *task, uint64_t nr, const uint64_t args[6])
{
    if (unlikely(nr >= SYSCALL_COUNT || syscall_table[nr].call == NULL))
        return syscall_absent(nr);
    if (likely(!g_sandbox.strace))
        return syscall_table[nr].call(task, args);
    strace_enter(task, nr, args);
    int64_t result = syscall_table[nr].call(task, args);
    strace_exit(task, nr, args, result);
    return result;
}
