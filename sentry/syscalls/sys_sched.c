/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scheduling attributes. The host schedules: policies and priorities are checked, remembered and told,
 * as sched(7) has them; affinity agrees with the sandbox's CPU count. Runs on the calling task's fiber.
 */
#define LOG_MODULE "syscalls"
#include "sentry/syscalls/syscalls.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>

#define CAP_SYS_NICE_BIT 23

/* A reference to the task named by `pid` (0 = the caller), or NULL. */
static struct task *find(struct task *task, int pid)
{
    if (pid != 0)
        return task_find(pid);
    task_get(task);
    return task;
}

/* cap_safe_nice() of Linux: nobody changes a task that may more than he. */
static bool is_covered(const struct task *task, struct task *t)
{
    struct creds *theirs = task_get_creds(t);
    bool covers = (theirs->cap_permitted & ~task->creds->cap_permitted) == 0;
    creds_put(theirs);
    return covers || creds_capable(task->creds, CAP_SYS_NICE_BIT);
}

/* The same, and check_same_owner(). */
static bool may_schedule(const struct task *task, struct task *t)
{
    struct task_ids ids = task_get_ids(t);
    const struct creds *c = task->creds;
    bool owns = c->euid == ids.uid || c->euid == ids.euid || creds_capable(c, CAP_SYS_NICE_BIT);
    return owns && is_covered(task, t);
}

int64_t sys_sched_yield(struct task *task)
{
    (void)task;
    fiber_yield();
    return 0;
}

int64_t sys_sched_getaffinity(struct task *task, int pid, uint64_t size, guest_addr mask)
{
    if (size < sizeof(uint64_t) || (size & 7))
        return -EINVAL;
    struct task *t = find(task, pid);
    if (t == NULL)
        return -ESRCH;
    uint64_t value = t->cpu_mask;
    task_put(t);
    if (copy_out_obj(task->mm, mask, &value) != 0)
        return -EFAULT;
    return sizeof value;
}

int64_t sys_sched_setaffinity(struct task *task, int pid, uint64_t size, guest_addr mask)
{
    uint64_t value = 0;
    unsigned cpus = g_sandbox.cpu_count;
    uint64_t all = cpus >= 64 ? UINT64_MAX : (1ULL << cpus) - 1;
    if (copy_in(task->mm, &value, mask, size < sizeof value ? size : sizeof value) != 0)
        return -EFAULT;
    struct task *t = find(task, pid);
    if (t == NULL)
        return -ESRCH;
    int64_t r = !may_schedule(task, t) ? -EPERM : (value & all) != 0 ? 0 : -EINVAL;
    if (r == 0) {
        t->cpu_mask = value & all;
        atomic_store(&t->affinity_changed, true);
        if (t != task)
            task_nudge(t);
    }
    task_put(t);
    return r;
}

int64_t sys_getcpu(struct task *task, guest_addr cpu, guest_addr node, guest_addr unused)
{
    (void)unused;
    uint32_t zero = 0, current = (uint32_t)__builtin_ctzll(task->cpu_mask | (1ULL << 63));
    if (!guest_addr_is_null(cpu) && copy_out_obj(task->mm, cpu, &current) != 0)
        return -EFAULT;
    if (!guest_addr_is_null(node) && copy_out_obj(task->mm, node, &zero) != 0)
        return -EFAULT;
    return 0;
}

/* ---- policies ----------------------------------------------------------------------------------- */

static bool is_realtime(int policy)
{
    return policy == SCHED_FIFO || policy == SCHED_RR;
}

static bool is_known(int policy)
{
    return is_realtime(policy) || policy == SCHED_OTHER || policy == SCHED_BATCH || policy == SCHED_IDLE;
}

static int64_t set_policy(struct task *task, int pid, int policy, int priority)
{
    if (pid < 0 || !is_known(policy))
        return -EINVAL;
    bool in_range = is_realtime(policy) ? priority >= 1 && priority <= 99 : priority == 0;
    if (!in_range)
        return -EINVAL;
    struct task *t = find(task, pid);
    if (t == NULL)
        return -ESRCH;
    int64_t r = may_schedule(task, t) ? 0 : -EPERM;
    if (is_realtime(policy) && !creds_capable(task->creds, CAP_SYS_NICE_BIT) &&
        (uint64_t)priority > task_rlimit(t, RLIMIT_RTPRIO))
        r = -EPERM;
    if (r == 0) {
        t->sched_policy = policy;
        t->sched_priority = priority;
    }
    task_put(t);
    return r;
}

int64_t sys_sched_setscheduler(struct task *task, int pid, int policy, guest_addr param)
{
    int32_t priority;
    if (copy_in_obj(task->mm, &priority, param) != 0)
        return -EFAULT;
    return set_policy(task, pid, policy & ~SCHED_RESET_ON_FORK, priority);
}

int64_t sys_sched_setparam(struct task *task, int pid, guest_addr param)
{
    int32_t priority;
    if (pid < 0)
        return -EINVAL;
    if (copy_in_obj(task->mm, &priority, param) != 0)
        return -EFAULT;
    struct task *t = find(task, pid);
    if (t == NULL)
        return -ESRCH;
    int policy = t->sched_policy;
    task_put(t);
    return set_policy(task, pid, policy, priority);
}

int64_t sys_sched_getscheduler(struct task *task, int pid)
{
    struct task *t = pid < 0 ? NULL : find(task, pid);
    if (t == NULL)
        return pid < 0 ? -EINVAL : -ESRCH;
    int policy = t->sched_policy;
    task_put(t);
    return policy;
}

int64_t sys_sched_getparam(struct task *task, int pid, guest_addr param)
{
    struct task *t = pid < 0 ? NULL : find(task, pid);
    if (t == NULL)
        return pid < 0 ? -EINVAL : -ESRCH;
    int32_t priority = t->sched_priority;
    task_put(t);
    return copy_out_obj(task->mm, param, &priority);
}

int64_t sys_sched_get_priority_max(struct task *task, int policy)
{
    (void)task;
    return !is_known(policy) ? -EINVAL : is_realtime(policy) ? 99 : 0;
}

int64_t sys_sched_get_priority_min(struct task *task, int policy)
{
    (void)task;
    return !is_known(policy) ? -EINVAL : is_realtime(policy) ? 1 : 0;
}

int64_t sys_sched_rr_get_interval(struct task *task, int pid, guest_addr interval)
{
    struct task *t = pid < 0 ? NULL : find(task, pid);
    if (t == NULL)
        return pid < 0 ? -EINVAL : -ESRCH;
    struct linux_timespec ts = {0, t->sched_policy == SCHED_RR ? 100000000 : 3000000};
    task_put(t);
    return copy_out_obj(task->mm, interval, &ts);
}

struct linux_sched_attr {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};
static_assert(sizeof(struct linux_sched_attr) == 48, "sched_attr");

int64_t sys_sched_setattr(struct task *task, int pid, guest_addr addr, uint32_t flags)
{
    struct linux_sched_attr a;
    if (flags != 0)
        return -EINVAL;
    if (copy_in_obj(task->mm, &a, addr) != 0)
        return -EFAULT;
    if (a.size < sizeof a && a.size != 0)
        return -E2BIG;
    int64_t r = set_policy(task, pid, (int)a.policy, (int)a.priority);
    if (r == 0 && !is_realtime((int)a.policy))
        r = sys_setpriority(task, PRIO_PROCESS, pid, a.nice);
    return r;
}

int64_t sys_sched_getattr(struct task *task, int pid, guest_addr addr, uint32_t size, uint32_t flags)
{
    if (flags != 0 || pid < 0 || size < sizeof(struct linux_sched_attr))
        return -EINVAL;
    struct task *t = find(task, pid);
    if (t == NULL)
        return -ESRCH;
    struct linux_sched_attr a = {
        .size = sizeof a,
        .policy = (uint32_t)t->sched_policy,
        .nice = is_realtime(t->sched_policy) ? 0 : t->nice,
        .priority = (uint32_t)t->sched_priority,
    };
    task_put(t);
    return copy_out_obj(task->mm, addr, &a);
}

/* ---- nice and I/O priorities -------------------------------------------------------------------- */

/* Calls `act` for every thread that (which, who) of getpriority(2) names; -ESRCH if there's none. */
static int64_t for_each_of(struct task *task, int which, int who,
                           int64_t (*act)(struct task *caller, struct task *t, int value), int value)
{
    int64_t r = -ESRCH;
    if (which == PRIO_PROCESS) {
        struct task *t = find(task, who);
        if (t == NULL)
            return -ESRCH;
        r = act(task, t, value);
        task_put(t);
        return r;
    }
    tasks_lock();
    if (which == PRIO_PGRP && who == 0)
        who = task->group->pgrp->pgid;
    tasks_unlock();
    uint32_t uid = who == 0 && which == PRIO_USER ? task->creds->uid : (uint32_t)who;
    for (struct thread_group *g = group_next(2), *next; g != NULL; g = next) {
        struct task *t = group_next_task(g, 0);
        tasks_lock();
        bool hit = which == PRIO_PGRP ? g->pgrp != NULL && g->pgrp->pgid == who
                                      : t != NULL && task_get_ids(t).uid == uid;
        tasks_unlock();
        if (hit && t != NULL) {
            int64_t one = act(task, t, value);
            if (r == -ESRCH || one < 0 || (one > r && r >= 0))
                r = one;
        }
        task_put(t);
        next = group_next(g->tgid + 1);
        group_put(g);
    }
    return r;
}

static int64_t nice_get(struct task *caller, struct task *t, int value)
{
    (void)caller;
    (void)value;
    return 20 - t->nice; /* the system call's own form: 40 … 1 */
}

static int64_t nice_set(struct task *caller, struct task *t, int value)
{
    bool privileged = creds_capable(caller->creds, CAP_SYS_NICE_BIT);
    struct task_ids ids = task_get_ids(t);
    if (!privileged && caller->creds->euid != ids.uid && caller->creds->euid != ids.euid)
        return -EPERM;
    if (!is_covered(caller, t))
        return -EPERM;
    if (value < t->nice && !privileged && (uint64_t)(20 - value) > task_rlimit(t, RLIMIT_NICE))
        return -EACCES;
    t->nice = value;
    return 0;
}

int64_t sys_getpriority(struct task *task, int which, int who)
{
    if (which < PRIO_PROCESS || which > PRIO_USER)
        return -EINVAL;
    return for_each_of(task, which, who, nice_get, 0);
}

int64_t sys_setpriority(struct task *task, int which, int who, int prio)
{
    if (which < PRIO_PROCESS || which > PRIO_USER)
        return -EINVAL;
    int value = prio < -20 ? -20 : prio > 19 ? 19 : prio;
    return for_each_of(task, which, who, nice_set, value);
}

int64_t sys_ioprio_get(struct task *task, int which, int who)
{
    struct task *t = which == 1 ? find(task, who) : NULL;
    if (t == NULL)
        return which >= 1 && which <= 3 ? -ESRCH : -EINVAL;
    int64_t value = t->ioprio;
    task_put(t);
    return value;
}

int64_t sys_ioprio_set(struct task *task, int which, int who, int prio)
{
    int class = prio >> 13;
    if (class < 0 || class > 3)
        return -EINVAL;
    if (class == 1 && !creds_capable(task->creds, CAP_SYS_NICE_BIT) &&
        !creds_capable(task->creds, 21 /* CAP_SYS_ADMIN */))
        return -EPERM;
    struct task *t = which == 1 ? find(task, who) : NULL;
    if (t == NULL)
        return which >= 1 && which <= 3 ? -ESRCH : -EINVAL;
    struct task_ids ids = task_get_ids(t);
    const struct creds *c = task->creds;
    bool owns = ids.uid == c->euid || ids.uid == c->uid || creds_capable(c, CAP_SYS_NICE_BIT);
    bool allowed = owns && is_covered(task, t);
    if (allowed)
        t->ioprio = prio;
    task_put(t);
    return allowed ? 0 : -EPERM;
}
