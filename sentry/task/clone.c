/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork, vfork, clone, clone3: one function on decoded arguments. Runs on the parent's fiber.
 *
 * A vfork child (CLONE_VM | CLONE_VFORK without CLONE_THREAD) makes no host task: it borrows the
 * suspended parent's host thread until it executes something or exits.
 */
#define LOG_MODULE "task"
#include "base/log.h"
#include "sentry/task/pidfd.h"
#include "sentry/task/restart.h"
#include "sentry/task/table.h"
#include "sentry/task/timers.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ULL
#endif
#define CLONE_NEW_ANY                                                                              \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |  \
     CLONE_NEWNET | 0x80ULL /* CLONE_NEWTIME */)

static int check_flags(const struct task_clone_args *a)
{
    uint64_t f = a->flags;
    if ((f & CLONE_THREAD) && !(f & CLONE_SIGHAND))
        return -EINVAL;
    if ((f & CLONE_SIGHAND) && !(f & CLONE_VM))
        return -EINVAL;
    if ((f & CLONE_SIGHAND) && (f & CLONE_CLEAR_SIGHAND))
        return -EINVAL;
    if ((f & CLONE_FS) && (f & CLONE_NEWNS))
        return -EINVAL;
    if ((f & CLONE_PIDFD) && (f & (CLONE_DETACHED | CLONE_THREAD)))
        return -EINVAL;
    if (f & CLONE_NEW_ANY)
        return -EPERM; /* namespaces inside come later: what an unprivileged caller is told */
    return 0;
}

/* ---- what the child takes over ------------------------------------------------------------------ */

static int share_or_copy(struct task *parent, struct task *child, uint64_t flags)
{
    if (flags & CLONE_FILES) {
        fd_table_get(parent->fds);
        child->fds = parent->fds;
    } else {
        child->fds = fd_table_copy(parent->fds);
    }
    if (flags & CLONE_FS) {
        atomic_fetch_add(&parent->fs->refs, 1);
        child->fs = parent->fs;
    } else {
        child->fs = fs_context_copy(parent->fs);
    }
    child->creds = creds_get(parent->creds);
    memcpy(child->comm, parent->comm, sizeof child->comm);
    child->signals.blocked = parent->signals.blocked;
    if (!(flags & CLONE_VM) || (flags & CLONE_VFORK))
        child->signals.altstack = parent->signals.altstack;
    child->personality = parent->personality;
    child->cpu_mask = parent->cpu_mask;
    child->nice = parent->nice;
    child->sched_policy = parent->sched_policy;
    child->sched_priority = parent->sched_priority;
    child->ioprio = parent->ioprio;
    child->timer_slack_ns = parent->timer_slack_ns;
    return child->fds != NULL && child->fs != NULL ? 0 : -ENOMEM;
}

static struct sighand *child_sighand(struct task *parent, uint64_t flags)
{
    struct sighand *old = parent->group->sighand;
    if (flags & CLONE_SIGHAND) {
        atomic_fetch_add(&old->refs, 1);
        return old;
    }
    struct sighand *sh = sighand_copy(old);
    if (sh != NULL && (flags & CLONE_CLEAR_SIGHAND)) {
        for (int i = 0; i < LINUX_NSIG; i++)
            if (sh->actions[i].handler != (uint64_t)(uintptr_t)SIG_IGN)
                sh->actions[i] = (struct linux_sigaction){0};
    }
    return sh;
}

static struct thread_group *child_group(struct task *parent, const struct task_clone_args *args)
{
    struct thread_group *pg = parent->group;
    if (args->flags & CLONE_THREAD) {
        group_get(pg);
        return pg;
    }
    struct sighand *sh = child_sighand(parent, args->flags);
    struct thread_group *g = sh != NULL ? group_new(sh) : NULL;
    if (g == NULL) {
        sighand_put(sh);
        return NULL;
    }
    g->exit_signal = args->exit_signal;
    tasks_lock();
    memcpy(g->rlimits, pg->rlimits, sizeof g->rlimits);
    g->exe = pg->exe;
    if (g->exe != NULL)
        file_get(g->exe);
    g->oom_score_adj = pg->oom_score_adj;
    g->dumpable = pg->dumpable;
    tasks_unlock();
    return g;
}

/* ---- host threads ------------------------------------------------------------------------------- */

static int borrow_thread(struct task *parent, struct task *child)
{
    struct platform_thread *pt = parent->pt;
    size_t size = g_sandbox.info->xstate_size;
    parent->vfork_regs = *platform_thread_regs(pt);
    if (parent->vfork_xstate == NULL)
        parent->vfork_xstate = malloc(size);
    if (parent->vfork_xstate == NULL)
        return -ENOMEM;
    parent->vfork_xstate_size = platform_thread_read_xstate(pt, parent->vfork_xstate, size);
    if (parent->vfork_xstate_size < 0)
        return (int)parent->vfork_xstate_size;
    mm_get(parent->mm);
    child->mm = parent->mm;
    child->vfork_parent = parent;
    child->mm_borrowed = true;
    task_set_pt(parent, NULL);
    task_set_pt(child, pt);
    return 0;
}

static int make_thread(struct task *parent, struct task *child, uint64_t flags)
{
    struct platform_thread *pt = NULL;
    if (flags & CLONE_VM) {
        int r = platform_thread_new(parent->pt, &pt);
        if (r != 0)
            return r;
        mm_get(parent->mm);
        mm_thread_added(parent->mm);
        child->mm = parent->mm;
    } else {
        struct platform_space *space = NULL;
        mm_fork_begin(parent->mm);
        int r = platform_space_fork(parent->pt, &space, &pt);
        if (r == 0) {
            r = mm_fork(parent->mm, space, pt, &child->mm);
            platform_space_put(space);
        }
        mm_fork_end(parent->mm);
        if (r != 0) {
            if (pt != NULL)
                platform_thread_free(pt);
            return r;
        }
    }
    task_set_pt(child, pt);
    return 0;
}

static void set_child_registers(struct task *child, const struct task_clone_args *args)
{
    struct guest_regs *regs = platform_thread_regs(child->pt);
    regs->rax = 0;
    if (!guest_addr_is_null(args->stack))
        regs->rsp = args->stack.va;
    if (args->flags & CLONE_SETTLS)
        regs->fs_base = args->tls;
}

/* ---- linking ------------------------------------------------------------------------------------ */

/* 0 or -errno; afterwards everybody can see and signal the child. */
static int link_child(struct task *parent, struct task *child, uint64_t flags)
{
    struct thread_group *pg = parent->group;
    tasks_lock();
    bool dying = pg->group_exiting || (pg->exec_task != NULL && pg->exec_task != parent);
    int r = dying ? -ERESTARTNOINTR : 0;
    if (r == 0) {
        task_link_locked(child);
        if (!(flags & CLONE_THREAD)) {
            struct thread_group *g = child->group;
            g->parent = (flags & CLONE_PARENT) && pg->parent != NULL ? pg->parent : pg;
            if (flags & CLONE_PARENT)
                g->exit_signal = pg->exit_signal;
            TAILQ_INSERT_TAIL(&g->parent->children, g, sibling);
            pgrp_join_locked(pg->pgrp, g);
        }
    }
    tasks_unlock();
    return r;
}

/* Takes back what make_thread/borrow_thread gave, for a child that was never linked. */
static void undo_thread(struct task *parent, struct task *child)
{
    struct platform_thread *pt = child->pt;
    if (pt == NULL)
        return;
    if (child->vfork_parent != NULL) {
        task_set_pt(child, NULL);
        task_set_pt(parent, pt);
        *platform_thread_regs(pt) = parent->vfork_regs;
        return;
    }
    task_set_pt(child, NULL);
    if (child->mm == parent->mm)
        mm_thread_removed(parent->mm);
    platform_thread_free(pt);
}

static void free_unlinked(struct task *child)
{
    fd_table_put(child->fds);
    fs_context_put(child->fs);
    if (child->mm != NULL)
        mm_put(child->mm);
    child->mm = NULL;
    task_put(child);
}

static int write_ids(struct task *parent, struct task *child, const struct task_clone_args *args)
{
    int32_t tid = child->tid;
    if ((args->flags & CLONE_PARENT_SETTID) && copy_out_obj(parent->mm, args->parent_tid, &tid) != 0)
        return -EFAULT;
    if (args->flags & CLONE_CHILD_SETTID) { /* Linux ignores a fault here */
        int r = copy_out_obj(child->mm, args->child_tid, &tid);
        (void)r;
    }
    return 0;
}

/* CLONE_PIDFD: a descriptor for the child in the parent. */
static int give_pidfd(struct task *parent, struct task *child, guest_addr where)
{
    struct file *f;
    int r = pidfd_new(child->group, parent->creds, 0, &f);
    if (r != 0)
        return r;
    int fd = fd_table_install(parent->fds, f, 0, task_rlimit(parent, RLIMIT_NOFILE), true);
    if (fd < 0) {
        file_put(f);
        return fd;
    }
    int32_t value = fd;
    r = copy_out_obj(parent->mm, where, &value);
    if (r != 0)
        (void)fd_table_close(parent->fds, fd);
    return r;
}

/* ---- vfork's wait ------------------------------------------------------------------------------- */

bool task_vfork_release(struct task *t)
{
    struct platform_thread *pt = NULL;
    tasks_lock();
    struct task *parent = t->vfork_parent;
    t->vfork_parent = NULL;
    if (parent != NULL) {
        task_get(parent);
        if (t->pt != NULL && parent->pt == NULL) {
            pt = t->pt;
            task_set_pt(t, NULL);
            task_set_pt(parent, pt);
        }
        parent->vfork_done = true;
    }
    tasks_unlock();
    if (parent == NULL)
        return false;
    wait_queue_wake_all(&parent->vfork_wait, 0);
    task_put(parent);
    return pt != NULL;
}

static bool is_vfork_done(void *arg)
{
    struct task *parent = arg;
    tasks_lock();
    bool done = parent->vfork_done;
    tasks_unlock();
    return done;
}

/* The parent sleeps until the child executes or exits. When it is killed meanwhile the host thread
 * stays the child's. */
static void vfork_wait(struct task *parent, struct task *child)
{
    parent->state = 'D';
    int r = wait_queue_sleep(&parent->vfork_wait, is_vfork_done, parent, FIBER_KILLABLE,
                             FIBER_NO_DEADLINE);
    parent->state = 'R';
    if (r != 0) {
        tasks_lock();
        if (!parent->vfork_done)
            child->vfork_parent = NULL;
        tasks_unlock();
    }
    parent->vfork_done = false;
    if (parent->pt == NULL || parent->vfork_xstate == NULL)
        return;
    *platform_thread_regs(parent->pt) = parent->vfork_regs;
    r = platform_thread_write_xstate(parent->pt, parent->vfork_xstate,
                                     (size_t)parent->vfork_xstate_size);
    if (r != 0)
        log_dbg("extended state of a vfork parent wasn't restored: %d", r);
}

/* ---- clone -------------------------------------------------------------------------------------- */

static int build_child(struct task *parent, struct task *child, const struct task_clone_args *args)
{
    uint64_t flags = args->flags;
    bool borrows = (flags & CLONE_VM) && (flags & CLONE_VFORK) && !(flags & CLONE_THREAD);
    int r = share_or_copy(parent, child, flags);
    if (r == 0) {
        tasks_lock();
        r = pid_alloc_locked();
        tasks_unlock();
    }
    if (r < 0)
        return r;
    child->tid = r;
    r = borrows ? borrow_thread(parent, child) : make_thread(parent, child, flags);
    if (r != 0)
        return r;
    child->fiber.worker = platform_thread_worker(child->pt);
    if (flags & CLONE_CHILD_CLEARTID)
        child->clear_child_tid = args->child_tid;
    r = write_ids(parent, child, args);
    if (r == 0 && (flags & CLONE_PIDFD)) {
        if (child->group->tgid == 0)
            child->group->tgid = child->tid;
        r = give_pidfd(parent, child, args->pidfd);
    }
    set_child_registers(child, args);
    return r;
}

int64_t task_clone(struct task *parent, const struct task_clone_args *args)
{
    int r = check_flags(args);
    if (r != 0)
        return r;
    struct thread_group *group = child_group(parent, args);
    if (group == NULL)
        return -ENOMEM;
    struct task *child = task_new(group, parent->fiber.worker);
    group_put(group);
    if (child == NULL)
        return -ENOMEM;
    r = build_child(parent, child, args);
    if (r == 0)
        r = link_child(parent, child, args->flags);
    if (r != 0) {
        undo_thread(parent, child);
        if (child->tid > 0) {
            tasks_lock();
            pid_release_locked(child->tid);
            tasks_unlock();
        }
        free_unlinked(child);
        return r;
    }
    int tid = child->tid;
    task_get(child); /* ours, for the wait below */
    struct task *waiting_for = child;
    bool is_vfork = (args->flags & CLONE_VFORK) != 0;
    if (is_vfork && waiting_for->vfork_parent == NULL) {
        tasks_lock();
        child->vfork_parent = parent;
        tasks_unlock();
        free(parent->vfork_xstate);
        parent->vfork_xstate = NULL;
    }
    if (!(args->flags & CLONE_THREAD))
        cpu_limit_changed(child->group);
    fiber_start(&child->fiber, task_first_entry, child);
    if (is_vfork)
        vfork_wait(parent, child);
    task_put(child);
    return tid;
}
