/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Identity of the system, limits, usage, prctl and the rest that fits no family. Runs on the calling
 * task's fiber.
 */
#define LOG_MODULE "syscalls"
#include "base/host.h"
#include "sentry/syscalls/rusage.h"
#include "sentry/syscalls/syscalls.h"
#include "sentry/task/futex.h"
#include "sentry/task/host_facts.h"
#include "sentry/task/table.h"
#include "sentry/task/timers.h"
#include "sentry/syscalls/time_convert.h"
#include "sentry/task/restart.h"
#include "sentry/fs/proc/machine.h"
#include "sentry/syscalls/release.h"
#include <asm/prctl.h>
#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <time.h>

#define CAP_SYS_ADMIN_BIT 21
#define CAP_SYS_RESOURCE_BIT 24
#define CAP_SETPCAP_BIT 8

/* ---- uname and kin ------------------------------------------------------------------------------ */

struct linux_utsname {
    char sysname[65], nodename[65], release[65], version[65], machine[65], domainname[65];
};

int64_t sys_uname(struct task *task, guest_addr name)
{
    struct linux_utsname u = {
        .sysname = "Linux", .release = SENTRY_RELEASE, .version = SENTRY_VERSION, .machine = "x86_64"};
    lock_acquire(&g_sandbox.uts_lock);
    memcpy(u.nodename, g_sandbox.hostname, sizeof u.nodename);
    memcpy(u.domainname, g_sandbox.domainname, sizeof u.domainname);
    lock_release(&g_sandbox.uts_lock);
    return copy_out_obj(task->mm, name, &u);
}

static int64_t set_uts_name(struct task *task, char target[65], guest_addr name, int size)
{
    char text[65] = {0};
    if (!creds_capable(task->creds, CAP_SYS_ADMIN_BIT))
        return -EPERM;
    if (size < 0 || size > 64)
        return -EINVAL;
    if (copy_in(task->mm, text, name, (size_t)size) != 0)
        return -EFAULT;
    lock_acquire(&g_sandbox.uts_lock);
    memcpy(target, text, sizeof text);
    lock_release(&g_sandbox.uts_lock);
    return 0;
}

int64_t sys_sethostname(struct task *task, guest_addr name, int size)
{
    return set_uts_name(task, g_sandbox.hostname, name, size);
}

int64_t sys_setdomainname(struct task *task, guest_addr name, int size)
{
    return set_uts_name(task, g_sandbox.domainname, name, size);
}

struct linux_sysinfo {
    int64_t uptime;
    uint64_t loads[3], totalram, freeram, sharedram, bufferram, totalswap, freeswap;
    uint16_t procs, pad;
    uint32_t pad2;
    uint64_t totalhigh, freehigh;
    uint32_t mem_unit, pad3;
};
static_assert(sizeof(struct linux_sysinfo) == 112, "sysinfo");

int64_t sys_sysinfo(struct task *task, guest_addr info)
{
    struct linux_sysinfo s = { /* as /proc/meminfo, uptime and loadavg have it */
        .uptime = (int64_t)(machine_uptime_ns() / 1000000000u),
        .totalram = machine_memory_total(),
        .freeram = machine_memory_free(),
        .sharedram = machine_memory_shared(),
        .procs = (uint16_t)tasks_count(),
        .mem_unit = 1,
    };
    machine_load(s.loads);
    return copy_out_obj(task->mm, info, &s);
}

int64_t sys_getrandom(struct task *task, guest_addr buf, uint64_t count, uint32_t flags)
{
    if (flags & ~7u || (flags & 6u) == 6u)
        return -EINVAL;
    if (count > INT32_MAX)
        count = INT32_MAX;
    uint8_t chunk[256];
    uint64_t done = 0;
    while (done < count) {
        size_t n = count - done < sizeof chunk ? (size_t)(count - done) : sizeof chunk;
        host_random(chunk, n);
        if (copy_out(task->mm, GUEST_ADDR(buf.va + done), chunk, n) != 0)
            return done > 0 ? (int64_t)done : -EFAULT;
        done += n;
        if ((done & 0xffff) == 0) {
            fiber_yield();
            if (signal_is_pending(task))
                break;
        }
    }
    return (int64_t)done;
}

int64_t sys_bpf(struct task *task, int cmd, guest_addr attr, uint32_t size)
{
    (void)task, (void)cmd, (void)attr, (void)size;
    return -EPERM;
}

int64_t sys_personality(struct task *task, uint64_t persona)
{
    int64_t old = task->personality;
    if ((uint32_t)persona == UINT32_MAX)
        return old;
    if (persona & ~0x0040000ULL) /* ADDR_NO_RANDOMIZE */
        return -EINVAL;
    task->personality = (uint32_t)persona;
    return old;
}

/* ---- limits ------------------------------------------------------------------------------------- */

static int64_t change_limit(struct task *caller, struct thread_group *g, uint32_t resource,
                            const struct rlimit_pair *new_limit, struct rlimit_pair *ret_old)
{
    if (resource >= RLIM_NLIMITS)
        return -EINVAL;
    if (new_limit != NULL && new_limit->soft > new_limit->hard)
        return -EINVAL;
    if (new_limit != NULL && resource == RLIMIT_NOFILE && new_limit->hard > FD_TABLE_MAX)
        return -EPERM;
    int64_t r = 0;
    tasks_lock();
    *ret_old = g->rlimits[resource];
    if (new_limit != NULL) {
        if (new_limit->hard > g->rlimits[resource].hard &&
            !creds_capable(caller->creds, CAP_SYS_RESOURCE_BIT))
            r = -EPERM;
        else
            g->rlimits[resource] = *new_limit;
    }
    tasks_unlock();
    if (r == 0 && new_limit != NULL && resource == RLIMIT_CPU)
        cpu_limit_changed(g);
    return r;
}

int64_t sys_prlimit64(struct task *task, int pid, uint32_t resource, guest_addr new_limit,
                      guest_addr old_limit)
{
    struct rlimit_pair given, old;
    bool sets = !guest_addr_is_null(new_limit);
    if (sets && copy_in_obj(task->mm, &given, new_limit) != 0)
        return -EFAULT;
    struct task *t = pid == 0 ? NULL : task_find(pid);
    if (pid != 0 && t == NULL)
        return -ESRCH;
    struct thread_group *g = t != NULL ? t->group : task->group;
    int64_t r = 0;
    if (t != NULL && g != task->group && !creds_capable(task->creds, CAP_SYS_RESOURCE_BIT)) {
        struct task_ids ids = task_get_ids(t);
        const struct creds *c = task->creds;
        if (ids.uid != c->uid || ids.euid != c->uid || ids.suid != c->uid || ids.gid != c->gid ||
            ids.egid != c->gid || ids.sgid != c->gid)
            r = -EPERM;
    }
    if (r == 0)
        r = change_limit(task, g, resource, sets ? &given : NULL, &old);
    if (r == 0 && sets && resource == RLIMIT_STACK && g == task->group && given.soft < old.soft)
        mm_stack_limit_changed(task->mm, task->pt, given.soft, platform_thread_regs(task->pt)->rsp);
    task_put(t);
    if (r == 0 && !guest_addr_is_null(old_limit) && copy_out_obj(task->mm, old_limit, &old) != 0)
        return -EFAULT;
    return r;
}

int64_t sys_getrlimit(struct task *task, uint32_t resource, guest_addr rlim)
{
    return sys_prlimit64(task, 0, resource, GUEST_NULL, rlim);
}

int64_t sys_setrlimit(struct task *task, uint32_t resource, guest_addr rlim)
{
    return guest_addr_is_null(rlim) ? -EFAULT : sys_prlimit64(task, 0, resource, rlim, GUEST_NULL);
}

/* ---- usage -------------------------------------------------------------------------------------- */

int64_t sys_getrusage(struct task *task, int who, guest_addr usage)
{
    struct thread_group *g = task->group;
    struct linux_rusage u = {0};
    if (who == RUSAGE_CHILDREN)
        rusage_set_times(&u, g->child_utime_ns, g->child_stime_ns);
    else if (who == RUSAGE_SELF || who == 1 /* RUSAGE_THREAD */)
        rusage_set_times(&u, group_cpu_ns(g), g->stime_ns);
    else
        return -EINVAL;
    struct mm_counts counts;
    mm_get_counts(task->mm, &counts);
    u.maxrss = (int64_t)(counts.data / 1024); /* an upper bound: the host knows what is resident */
    return copy_out_obj(task->mm, usage, &u);
}

int64_t sys_times(struct task *task, guest_addr buf)
{
    struct thread_group *g = task->group;
    const uint64_t tick = 10000000; /* 100 Hz */
    int64_t t[4] = {(int64_t)(group_cpu_ns(g) / tick), (int64_t)(g->stime_ns / tick),
                    (int64_t)(g->child_utime_ns / tick), (int64_t)(g->child_stime_ns / tick)};
    if (!guest_addr_is_null(buf) && copy_out(task->mm, buf, t, sizeof t) != 0)
        return -EFAULT;
    return (int64_t)(host_monotonic_ns() / tick);
}

/* ---- prctl -------------------------------------------------------------------------------------- */

static int64_t prctl_name(struct task *task, bool set, guest_addr addr)
{
    char name[TASK_COMM_SIZE] = {0};
    if (!set)
        return copy_out(task->mm, addr, task->comm, TASK_COMM_SIZE);
    ssize_t len = copy_in_str(task->mm, name, sizeof name, addr);
    if (len == -ENAMETOOLONG) { /* cut, not refused */
        memset(name, 0, sizeof name);
        if (copy_in(task->mm, name, addr, sizeof name - 1) != 0)
            return -EFAULT;
    } else if (len < 0) {
        return len;
    }
    lock_acquire(&task->state_lock);
    memcpy(task->comm, name, sizeof name);
    lock_release(&task->state_lock);
    return 0;
}

static struct creds *creds_edit(struct task *task)
{
    return creds_copy(task->creds, NULL, 0);
}

static void creds_publish(struct task *task, struct creds *c)
{
    lock_acquire(&task->state_lock);
    struct creds *old = task->creds;
    task->creds = c;
    lock_release(&task->state_lock);
    creds_put(old);
}

static int64_t prctl_caps(struct task *task, int option, uint64_t arg2, uint64_t arg3)
{
    uint64_t bit = arg3 < 64 ? 1ULL << arg3 : 0;
    struct creds *c;
    if (option == PR_CAPBSET_READ)
        return arg2 > 40 ? -EINVAL : (int64_t)((task->creds->cap_bounding >> arg2) & 1);
    if (option == PR_CAPBSET_DROP) {
        if (!creds_capable(task->creds, CAP_SETPCAP_BIT))
            return -EPERM;
        if (arg2 > 40)
            return -EINVAL;
        c = creds_edit(task);
        if (c == NULL)
            return -ENOMEM;
        c->cap_bounding &= ~(1ULL << arg2);
        creds_publish(task, c);
        return 0;
    }
    /* PR_CAP_AMBIENT */
    if (arg2 == PR_CAP_AMBIENT_IS_SET)
        return arg3 > 40 ? -EINVAL : (task->creds->cap_ambient & bit) != 0;
    if (arg2 != PR_CAP_AMBIENT_CLEAR_ALL && arg3 > 40)
        return -EINVAL;
    if (arg2 == PR_CAP_AMBIENT_RAISE &&
        (!(task->creds->cap_permitted & bit) || !(task->creds->cap_inheritable & bit)))
        return -EPERM;
    c = creds_edit(task);
    if (c == NULL)
        return -ENOMEM;
    if (arg2 == PR_CAP_AMBIENT_CLEAR_ALL)
        c->cap_ambient = 0;
    else if (arg2 == PR_CAP_AMBIENT_RAISE)
        c->cap_ambient |= bit;
    else
        c->cap_ambient &= ~bit;
    creds_publish(task, c);
    return 0;
}

static int64_t prctl_securebits(struct task *task, uint32_t bits)
{
    if (!creds_capable(task->creds, CAP_SETPCAP_BIT))
        return -EPERM;
    struct creds *c = creds_edit(task);
    if (c == NULL)
        return -ENOMEM;
    c->securebits = bits;
    creds_publish(task, c);
    return 0;
}

static int64_t prctl_no_new_privs(struct task *task)
{
    struct creds *c = creds_edit(task);
    if (c == NULL)
        return -ENOMEM;
    c->no_new_privs = true;
    task->no_new_privs = true;
    creds_publish(task, c);
    return 0;
}

static int64_t copy_out_int(struct task *task, uint64_t addr, int value)
{
    int32_t out = value;
    return copy_out_obj(task->mm, GUEST_ADDR(addr), &out);
}

int64_t sys_prctl(struct task *task, int option, uint64_t arg2, uint64_t arg3, uint64_t arg4,
                  uint64_t arg5)
{
    struct thread_group *g = task->group;
    switch (option) {
    case PR_SET_NAME:
    case PR_GET_NAME:
        return prctl_name(task, option == PR_SET_NAME, GUEST_ADDR(arg2));
    case PR_SET_PDEATHSIG:
        if (arg2 > LINUX_NSIG)
            return -EINVAL;
        task->pdeath_signal = (int)arg2;
        return 0;
    case PR_GET_PDEATHSIG:
        return copy_out_int(task, arg2, task->pdeath_signal);
    case PR_SET_DUMPABLE:
        if (arg2 > 1)
            return -EINVAL;
        g->dumpable = arg2 == 1;
        return 0;
    case PR_GET_DUMPABLE:
        return g->dumpable;
    case PR_SET_CHILD_SUBREAPER:
        tasks_lock();
        g->is_subreaper = arg2 != 0;
        tasks_unlock();
        return 0;
    case PR_GET_CHILD_SUBREAPER:
        return copy_out_int(task, arg2, g->is_subreaper);
    case PR_SET_NO_NEW_PRIVS:
        return arg2 != 1 || arg3 || arg4 || arg5 ? -EINVAL : prctl_no_new_privs(task);
    case PR_GET_NO_NEW_PRIVS:
        return arg2 || arg3 || arg4 || arg5 ? -EINVAL : task->creds->no_new_privs;
    case PR_GET_KEEPCAPS:
        return (task->creds->securebits >> 4) & 1;
    case PR_SET_KEEPCAPS: {
        struct creds *c = arg2 <= 1 ? creds_edit(task) : NULL;
        if (c == NULL)
            return arg2 <= 1 ? -ENOMEM : -EINVAL;
        c->securebits = (c->securebits & ~(1u << 4)) | (uint32_t)arg2 << 4;
        creds_publish(task, c);
        return 0;
    }
    case PR_GET_SECUREBITS:
        return task->creds->securebits;
    case PR_SET_SECUREBITS:
        return prctl_securebits(task, (uint32_t)arg2);
    case PR_CAPBSET_READ:
    case PR_CAPBSET_DROP:
    case PR_CAP_AMBIENT:
        return prctl_caps(task, option, arg2, arg3);
    case PR_SET_TIMERSLACK:
        task->timer_slack_ns = arg2 != 0 ? arg2 : 50000;
        return 0;
    case PR_GET_TIMERSLACK:
        return (int64_t)task->timer_slack_ns;
    case PR_GET_SECCOMP:
        return 0;
    case PR_SET_THP_DISABLE:
        return arg3 || arg4 || arg5 ? -EINVAL : 0;
    case PR_GET_THP_DISABLE:
        return 0;
    case PR_GET_TID_ADDRESS:
        return copy_out_obj(task->mm, GUEST_ADDR(arg2), &task->clear_child_tid.va);
    case PR_SET_VMA: /* names of anonymous memory: shown by nobody, asked for by allocators */
        return -EINVAL;
    case PR_MCE_KILL:
        return 0;
    default:
        return -EINVAL;
    }
}

int64_t sys_arch_prctl(struct task *task, int code, guest_addr addr)
{
    struct guest_regs *regs = platform_thread_regs(task->pt);
    bool is_user = addr.va < g_sandbox.info->max_addr.va;
    switch (code) {
    case ARCH_SET_FS:
        if (!is_user)
            return -EPERM;
        regs->fs_base = addr.va;
        return 0;
    case ARCH_SET_GS:
        if (!is_user)
            return -EPERM;
        regs->gs_base = addr.va;
        return 0;
    case ARCH_GET_FS:
        return copy_out_obj(task->mm, addr, &regs->fs_base);
    case ARCH_GET_GS:
        return copy_out_obj(task->mm, addr, &regs->gs_base);
    case ARCH_GET_CPUID:
        return 1;
    default:
        return -EINVAL;
    }
}

/* ---- futex -------------------------------------------------------------------------------------- */

static int64_t futex_wait_restart(struct task *task)
{
    uint64_t *a = task->restart.args;
    int r = futex_wait(task, task->restart.addr, a[0] != 0, (uint32_t)a[1], (uint32_t)a[2], a[3]);
    return r == -EINTR ? -ERESTART_RESTARTBLOCK : r;
}

static int64_t futex_wait_until(struct task *task, guest_addr uaddr, int op, uint32_t val,
                                guest_addr timeout, uint32_t bitset)
{
    int command = op & FUTEX_CMD_MASK;
    bool is_private = (op & FUTEX_PRIVATE_FLAG) != 0;
    uint64_t deadline = FIBER_NO_DEADLINE, ns;
    if (!guest_addr_is_null(timeout)) {
        int r = timespec_copy_in(task->mm, timeout, &ns);
        if (r != 0)
            return r;
        if (command == FUTEX_WAIT)
            deadline = deadline_after(ns);
        else if (deadline_of_clock((op & FUTEX_CLOCK_REALTIME) ? CLOCK_REALTIME : CLOCK_MONOTONIC, ns,
                                   &deadline) != 0)
            return -EINVAL;
    }
    int r = futex_wait(task, uaddr, is_private, val, bitset, deadline);
    if (r != -EINTR)
        return r;
    if (deadline == FIBER_NO_DEADLINE)
        return -ERESTARTSYS;
    task->restart.fn = futex_wait_restart;
    task->restart.addr = uaddr;
    task->restart.args[0] = is_private;
    task->restart.args[1] = val;
    task->restart.args[2] = bitset;
    task->restart.args[3] = deadline;
    return -ERESTART_RESTARTBLOCK;
}

int64_t sys_futex(struct task *task, guest_addr uaddr, int op, uint32_t val, guest_addr timeout,
                  guest_addr uaddr2, uint32_t val3)
{
    bool is_private = (op & FUTEX_PRIVATE_FLAG) != 0;
    uint32_t val2 = (uint32_t)timeout.va; /* shares the argument: futex(2) */
    if ((op & FUTEX_CLOCK_REALTIME) && (op & FUTEX_CMD_MASK) != FUTEX_WAIT_BITSET &&
        (op & FUTEX_CMD_MASK) != FUTEX_WAIT_REQUEUE_PI && (op & FUTEX_CMD_MASK) != FUTEX_LOCK_PI2)
        return -ENOSYS;
    switch (op & FUTEX_CMD_MASK) {
    case FUTEX_WAIT:
        return futex_wait_until(task, uaddr, op, val, timeout, FUTEX_BITSET_MATCH_ANY);
    case FUTEX_WAIT_BITSET:
        return futex_wait_until(task, uaddr, op, val, timeout, val3);
    case FUTEX_WAKE:
        return futex_wake(task, uaddr, is_private, val, FUTEX_BITSET_MATCH_ANY);
    case FUTEX_WAKE_BITSET:
        return futex_wake(task, uaddr, is_private, val, val3);
    case FUTEX_REQUEUE:
    case FUTEX_CMP_REQUEUE:
        if ((int32_t)val < 0 || (int32_t)val2 < 0)
            return -EINVAL;
        return futex_requeue(task, uaddr, uaddr2, is_private, val, val2,
                             (op & FUTEX_CMD_MASK) == FUTEX_CMP_REQUEUE, val3);
    case FUTEX_WAKE_OP:
        return futex_wake_op(task, uaddr, uaddr2, is_private, val, val2, val3);
    default:
        return -ENOSYS;
    }
}

int64_t sys_set_robust_list(struct task *task, guest_addr head, uint64_t size)
{
    if (size != 24)
        return -EINVAL;
    task->robust_list = head;
    task->robust_list_size = size;
    return 0;
}

int64_t sys_get_robust_list(struct task *task, int pid, guest_addr head, guest_addr size)
{
    struct task *t = pid == 0 ? task : task_find(pid);
    if (t == NULL)
        return -ESRCH;
    uint64_t value = t->robust_list.va, bytes = 24;
    bool allowed = t == task || task_may_attach(task, t);
    if (t != task)
        task_put(t);
    if (!allowed)
        return -EPERM;
    if (copy_out_obj(task->mm, size, &bytes) != 0 || copy_out_obj(task->mm, head, &value) != 0)
        return -EFAULT;
    return 0;
}
