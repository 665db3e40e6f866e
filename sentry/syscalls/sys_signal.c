/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signal system calls. Handlers run on the calling task's fiber.
 */
#define LOG_MODULE "syscalls"
#include "sentry/syscalls/syscalls.h"
#include "sentry/syscalls/time_convert.h"
#include "sentry/task/pidfd.h"
#include "sentry/task/restart.h"
#include "sentry/task/table.h"
#include <errno.h>
#include <signal.h>
#include <string.h>

#define SIGSET_SIZE 8

static bool is_valid_signal(int signo)
{
    return signo >= 1 && signo <= LINUX_NSIG;
}

/* ---- dispositions and masks --------------------------------------------------------------------- */

int64_t sys_rt_sigaction(struct task *task, int signo, guest_addr act, guest_addr oldact,
                         uint64_t sigsetsize)
{
    struct linux_sigaction new_action, old;
    if (sigsetsize != SIGSET_SIZE || !is_valid_signal(signo))
        return -EINVAL;
    bool sets = !guest_addr_is_null(act);
    if (sets && (signo == SIGKILL || signo == SIGSTOP))
        return -EINVAL;
    if (sets && copy_in_obj(task->mm, &new_action, act) != 0)
        return -EFAULT;
    struct sighand *sh = task->group->sighand;
    lock_acquire(&sh->lock);
    old = sh->actions[signo - 1];
    if (sets) {
        new_action.mask &= ~SIGSET_UNMASKABLE;
        new_action.flags &= 0xdc000807u; /* unknown bits are cleared, as since Linux 5.11 */
        sh->actions[signo - 1] = new_action;
        bool ignores = new_action.handler == 1 ||
                       (new_action.handler == 0 && (signo == SIGCHLD || signo == SIGCONT ||
                                                    signo == SIGURG || signo == SIGWINCH));
        if (ignores) /* POSIX: pending ones are discarded */
            signal_drop_ignored_locked(task->group, signo);
    }
    lock_release(&sh->lock);
    if (!guest_addr_is_null(oldact) && copy_out_obj(task->mm, oldact, &old) != 0)
        return -EFAULT;
    return 0;
}

int64_t sys_rt_sigprocmask(struct task *task, int how, guest_addr set, guest_addr oldset,
                           uint64_t sigsetsize)
{
    signal_set old = task->signals.blocked, given;
    if (sigsetsize != SIGSET_SIZE)
        return -EINVAL;
    if (!guest_addr_is_null(set)) {
        if (copy_in_obj(task->mm, &given, set) != 0)
            return -EFAULT;
        if (how == SIG_BLOCK)
            given |= old;
        else if (how == SIG_UNBLOCK)
            given = old & ~given;
        else if (how != SIG_SETMASK)
            return -EINVAL;
        signal_set_blocked(task, given);
    }
    if (!guest_addr_is_null(oldset) && copy_out_obj(task->mm, oldset, &old) != 0)
        return -EFAULT;
    return 0;
}

int64_t sys_rt_sigpending(struct task *task, guest_addr set, uint64_t sigsetsize)
{
    if (sigsetsize > SIGSET_SIZE)
        return -EINVAL;
    signal_set pending = signal_pending_set(task) & task->signals.blocked;
    return copy_out(task->mm, set, &pending, sigsetsize);
}

int64_t sys_rt_sigreturn(struct task *task)
{
    return signal_return(task);
}

/* SS_AUTODISARM of the ABI, which the libc's headers write as an unsigned constant. */
#define SS_AUTODISARM_BIT ((int)(1u << 31))

int64_t sys_sigaltstack(struct task *task, guest_addr ss, guest_addr old_ss)
{
    struct linux_stack *current = &task->signals.altstack, given, old = *current;
    uint64_t sp = platform_thread_regs(task->pt)->rsp;
    bool on_it = !(old.flags & SS_AUTODISARM_BIT) && old.size != 0 && sp > old.sp && sp - old.sp <= old.size;
    if (old.size == 0)
        old.flags = SS_DISABLE;
    else if (on_it)
        old.flags |= SS_ONSTACK;
    if (!guest_addr_is_null(ss)) {
        if (copy_in_obj(task->mm, &given, ss) != 0)
            return -EFAULT;
        int mode = given.flags & ~SS_AUTODISARM_BIT;
        if (on_it)
            return -EPERM;
        if (mode != 0 && mode != SS_ONSTACK && mode != SS_DISABLE)
            return -EINVAL;
        if (mode == SS_DISABLE)
            given = (struct linux_stack){.flags = SS_DISABLE};
        else if (given.size < 2048) /* MINSIGSTKSZ of the ABI */
            return -ENOMEM;
        given.flags &= ~SS_ONSTACK;
        *current = given;
    }
    if (!guest_addr_is_null(old_ss) && copy_out_obj(task->mm, old_ss, &old) != 0)
        return -EFAULT;
    return 0;
}

/* ---- waiting for signals ------------------------------------------------------------------------- */

static int64_t sleep_until_signal(struct task *task)
{
    task->state = 'S';
    while (fiber_park(FIBER_INTERRUPTIBLE, FIBER_NO_DEADLINE) == 0)
        ;
    task->state = 'R';
    return -ERESTARTNOHAND;
}

int64_t sys_pause(struct task *task)
{
    return sleep_until_signal(task);
}

int64_t sys_rt_sigsuspend(struct task *task, guest_addr set, uint64_t sigsetsize)
{
    signal_set mask;
    if (sigsetsize != SIGSET_SIZE)
        return -EINVAL;
    if (copy_in_obj(task->mm, &mask, set) != 0)
        return -EFAULT;
    signal_mask_set_temporary(task, mask);
    return sleep_until_signal(task);
}

int64_t sys_rt_sigtimedwait(struct task *task, guest_addr set, guest_addr info, guest_addr timeout,
                            uint64_t sigsetsize)
{
    signal_set wanted;
    uint64_t deadline = FIBER_NO_DEADLINE;
    if (sigsetsize != SIGSET_SIZE)
        return -EINVAL;
    if (copy_in_obj(task->mm, &wanted, set) != 0)
        return -EFAULT;
    if (!guest_addr_is_null(timeout)) {
        int r = timeout_copy_in(task->mm, timeout, &deadline);
        if (r != 0)
            return r;
    }
    wanted &= ~SIGSET_UNMASKABLE;
    struct linux_siginfo si;
    struct sighand *sh = task->group->sighand;
    int r = 0, signo = signal_dequeue(task, wanted, &si);
    while (signo == 0 && r == 0) {
        lock_acquire(&sh->lock);
        task->signals.waited = wanted;
        lock_release(&sh->lock);
        signo = signal_dequeue(task, wanted, &si);
        if (signo != 0)
            break;
        task->state = 'S';
        r = fiber_park(FIBER_INTERRUPTIBLE, deadline);
        task->state = 'R';
        signo = signal_dequeue(task, wanted, &si);
    }
    lock_acquire(&sh->lock);
    task->signals.waited = 0;
    lock_release(&sh->lock);
    if (signo == 0)
        return r == -ETIMEDOUT ? -EAGAIN : r;
    if (!guest_addr_is_null(info) && copy_out_obj(task->mm, info, &si) != 0)
        return -EFAULT;
    return signo;
}

/* ---- sending ------------------------------------------------------------------------------------ */

/* kill(2): the sender's real or effective uid is the target's real or saved one; SIGCONT within the
 * session. */
static bool may_signal(struct task *task, struct thread_group *g, int signo)
{
    const struct creds *c = task->creds;
    if (creds_capable(c, 5 /* CAP_KILL */) || g == task->group)
        return true;
    tasks_lock();
    bool same_session = g->pgrp != NULL && task->group->pgrp != NULL &&
                        g->pgrp->session == task->group->pgrp->session;
    struct task *leader = g->leader;
    if (leader != NULL)
        task_get(leader);
    tasks_unlock();
    if (leader == NULL)
        return false;
    struct creds *other = task_get_creds(leader);
    bool ok = c->euid == other->suid || c->euid == other->uid || c->uid == other->suid ||
              c->uid == other->uid || (signo == SIGCONT && same_session);
    creds_put(other);
    task_put(leader);
    return ok;
}

static void info_from_user(struct task *task, struct linux_siginfo *info, int signo, int code)
{
    signal_info_kernel(info, signo, code);
    info->rt.pid = task->group->tgid;
    info->rt.uid = task->creds->uid;
}

static int64_t kill_one(struct task *task, struct thread_group *g, const struct linux_siginfo *info)
{
    if (g->is_init)
        return info->signo == 0 || task->creds->euid == 0 ? 0 : -EPERM;
    if (!may_signal(task, g, info->signo))
        return -EPERM;
    return signal_send_group(g, info);
}

/* pid 0, -pgid, -1: at least one success is success. */
static int64_t kill_many(struct task *task, int pgid, const struct linux_siginfo *info)
{
    int64_t result = -ESRCH;
    for (int next = 2;;) {
        struct thread_group *g = group_next(next);
        if (g == NULL)
            return result;
        next = g->tgid + 1;
        tasks_lock();
        bool hit = pgid == -1 ? g != task->group : g->pgrp != NULL && g->pgrp->pgid == pgid;
        tasks_unlock();
        if (hit) {
            int64_t r = kill_one(task, g, info);
            if (r == 0 || result == -ESRCH)
                result = r;
        }
        group_put(g);
    }
}

int64_t sys_kill(struct task *task, int pid, int signo)
{
    struct linux_siginfo info;
    if (signo < 0 || signo > LINUX_NSIG)
        return -EINVAL;
    info_from_user(task, &info, signo, SI_USER);
    if (pid <= 0) {
        if (pid == INT32_MIN)
            return -ESRCH;
        int pgid = pid == -1 ? -1 : -pid;
        if (pid == 0) {
            tasks_lock();
            pgid = task->group->pgrp->pgid;
            tasks_unlock();
        }
        return kill_many(task, pgid, &info);
    }
    struct thread_group *g = group_find(pid);
    if (g == NULL) { /* kill(2) of a thread's number means its process */
        struct task *t = task_find(pid);
        if (t == NULL)
            return -ESRCH;
        g = t->group;
        group_get(g);
        task_put(t);
    }
    int64_t r = kill_one(task, g, &info);
    group_put(g);
    return r;
}

static int64_t send_to_thread(struct task *task, int tgid, int tid, const struct linux_siginfo *info)
{
    struct task *t = task_find(tid);
    if (t == NULL || (tgid > 0 && t->group->tgid != tgid)) {
        task_put(t);
        return -ESRCH;
    }
    int64_t r = -EPERM;
    if (may_signal(task, t->group, info->signo))
        r = signal_send_task(t, info);
    task_put(t);
    return r;
}

int64_t sys_tgkill(struct task *task, int tgid, int tid, int signo)
{
    struct linux_siginfo info;
    if (tgid <= 0 || tid <= 0 || signo < 0 || signo > LINUX_NSIG)
        return -EINVAL;
    info_from_user(task, &info, signo, SI_TKILL);
    return send_to_thread(task, tgid, tid, &info);
}

int64_t sys_tkill(struct task *task, int tid, int signo)
{
    struct linux_siginfo info;
    if (tid <= 0 || signo < 0 || signo > LINUX_NSIG)
        return -EINVAL;
    info_from_user(task, &info, signo, SI_TKILL);
    return send_to_thread(task, 0, tid, &info);
}

/* Only the kernel may claim a code >= 0 or SI_TKILL, except to oneself. */
static int queueinfo_copy_in(struct task *task, int tgid, int signo, guest_addr addr,
                             struct linux_siginfo *ret)
{
    if (copy_in_obj(task->mm, ret, addr) != 0)
        return -EFAULT;
    ret->signo = signo;
    if ((ret->code >= 0 || ret->code == SI_TKILL) && tgid != task->group->tgid)
        return -EPERM;
    return 0;
}

int64_t sys_rt_sigqueueinfo(struct task *task, int pid, int signo, guest_addr addr)
{
    struct linux_siginfo info;
    int r = queueinfo_copy_in(task, pid, signo, addr, &info);
    if (r != 0)
        return r;
    if (signo < 0 || signo > LINUX_NSIG)
        return -EINVAL;
    struct thread_group *g = group_find(pid);
    if (g == NULL)
        return -ESRCH;
    int64_t result = kill_one(task, g, &info);
    group_put(g);
    return result;
}

int64_t sys_rt_tgsigqueueinfo(struct task *task, int tgid, int tid, int signo, guest_addr addr)
{
    struct linux_siginfo info;
    if (tgid <= 0 || tid <= 0)
        return -EINVAL;
    int r = queueinfo_copy_in(task, tgid, signo, addr, &info);
    if (r != 0)
        return r;
    if (signo < 0 || signo > LINUX_NSIG)
        return -EINVAL;
    return send_to_thread(task, tgid, tid, &info);
}

/* pidfd_send_signal(2): the siginfo must name the same signal. */
static int pidfd_info_copy_in(struct task *task, int tgid, int signo, guest_addr addr,
                              struct linux_siginfo *ret)
{
    if (copy_in_obj(task->mm, ret, addr) != 0)
        return -EFAULT;
    if (ret->signo != signo)
        return -EINVAL;
    if ((ret->code >= 0 || ret->code == SI_TKILL) && tgid != task->group->tgid)
        return -EPERM;
    return 0;
}

int64_t sys_pidfd_send_signal(struct task *task, int pidfd, int signo, guest_addr addr, uint32_t flags)
{
    struct linux_siginfo info;
    if (flags != 0 || signo < 0 || signo > LINUX_NSIG)
        return -EINVAL;
    AUTO_FILE f = fd_table_get_file(task->fds, pidfd);
    struct thread_group *g = f != NULL ? pidfd_group(f) : NULL;
    if (g == NULL)
        return -EBADF;
    int64_t r = 0;
    if (guest_addr_is_null(addr))
        info_from_user(task, &info, signo, SI_USER);
    else
        r = pidfd_info_copy_in(task, g->tgid, signo, addr, &info);
    tasks_lock();
    bool is_gone = g->state == GROUP_DEAD;
    tasks_unlock();
    if (r == 0)
        r = is_gone ? -ESRCH : kill_one(task, g, &info);
    group_put(g);
    return r;
}
