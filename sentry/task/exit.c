/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of tasks and processes: exit, exit_group, de-threading for execve, reparenting, and what a
 * parent is told. Runs on the ending task's fiber.
 */
#define LOG_MODULE "task"
#include "base/log.h"
#include "base/host.h"
#include "sentry/task/table.h"
#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>

group_exit_hook g_first_exit_hook;

/* ---- CPU time ----------------------------------------------------------------------------------- */

/* The clock of a host process: clock_getcpuclockid(3)'s encoding. */
static uint64_t host_process_cpu_ns(pid_t pid)
{
    struct timespec ts;
    clockid_t clock = (clockid_t)((~(unsigned)pid << 3) | 2u);
    if (pid <= 0 || clock_gettime(clock, &ts) != 0) /* #syscalls clock_gettime: CPU time of stubs */
        return 0;
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t group_cpu_ns(struct thread_group *g)
{
    uint64_t ns = g->utime_ns;
    struct task *t = group_next_task(g, 0);
    if (t == NULL)
        return ns;
    struct mm *mm = task_get_mm(t);
    if (mm != NULL) {
        ns += host_process_cpu_ns(platform_space_host_pid(mm_space(mm)));
        mm_put(mm);
    }
    task_put(t);
    return ns;
}

/* ---- telling the parent ------------------------------------------------------------------------- */

/* tasks lock held; takes the parent's sighand lock inside (signal_send_group's order). */
void group_notify_parent_locked(struct thread_group *g, int code, int status)
{
    struct thread_group *parent = g->parent;
    if (parent == NULL || parent->is_init)
        return;
    bool is_exit = code == CLD_EXITED || code == CLD_KILLED || code == CLD_DUMPED;
    int signo = is_exit ? g->exit_signal : SIGCHLD;
    if (signo > 0 && signo <= LINUX_NSIG) { /* clone(2) takes numbers up to 255 and sends none beyond */
        struct linux_siginfo info;
        signal_info_kernel(&info, signo, code);
        info.chld.pid = g->tgid;
        info.chld.status = status;
        info.chld.uid = g->leader != NULL ? task_get_ids(g->leader).uid : 0;
        bool wanted = is_exit || !(parent->sighand->actions[SIGCHLD - 1].flags & SA_NOCLDSTOP);
        if (wanted)
            (void)signal_send_group(parent, &info);
    }
    wait_queue_wake_all(&parent->child_wait, 0);
}

static bool parent_ignores_children(const struct thread_group *parent)
{
    const struct linux_sigaction *a = &parent->sighand->actions[SIGCHLD - 1];
    return a->handler == (uint64_t)(uintptr_t)SIG_IGN || (a->flags & SA_NOCLDWAIT);
}

/* ---- reparenting -------------------------------------------------------------------------------- */

static struct thread_group *new_parent_locked(const struct thread_group *dying)
{
    for (struct thread_group *g = dying->parent; g != NULL; g = g->parent)
        if (g->is_init || (g->is_subreaper && g->state == GROUP_ALIVE))
            return g;
    return g_sandbox.init_group;
}

/* Zombies that nobody will wait for are put on `dead` (linked by sibling). */
TAILQ_HEAD(group_list, thread_group);

/* Stopped process groups that lost their last link to the session: they get SIGHUP and SIGCONT. */
struct orphans {
    size_t count;
    int pgids[16];
};

static void signal_orphans(const struct orphans *orphans)
{
    for (size_t i = 0; i < orphans->count; i++) {
        struct linux_siginfo info;
        signal_info_kernel(&info, SIGHUP, SI_KERNEL);
        (void)signal_send_pgrp(orphans->pgids[i], &info);
        signal_info_kernel(&info, SIGCONT, SI_KERNEL);
        (void)signal_send_pgrp(orphans->pgids[i], &info);
    }
}

static void reparent_children_locked(struct thread_group *g, struct group_list *dead,
                                     struct orphans *orphans)
{
    struct thread_group *heir = new_parent_locked(g), *child;
    while ((child = TAILQ_FIRST(&g->children)) != NULL) {
        struct process_group *pg = child->pgrp;
        bool was_orphaned = pgrp_is_orphaned_locked(pg, NULL);
        TAILQ_REMOVE(&g->children, child, sibling);
        child->parent = heir;
        TAILQ_INSERT_TAIL(&heir->children, child, sibling);
        struct task *t;
        TAILQ_FOREACH(t, &child->threads, thread_entry)
        {
            if (t->pdeath_signal != 0) {
                struct linux_siginfo info;
                signal_info_kernel(&info, t->pdeath_signal, SI_USER);
                (void)signal_send_task(t, &info);
            }
        }
        if (child->state == GROUP_ZOMBIE) {
            if (heir->is_init || parent_ignores_children(heir)) {
                group_unlink_locked(child);
                TAILQ_INSERT_TAIL(dead, child, sibling);
            } else {
                child->exit_signal = SIGCHLD;
                group_notify_parent_locked(child, CLD_EXITED, 0);
            }
        } else if (!was_orphaned && pgrp_is_orphaned_locked(pg, NULL)) {
            struct thread_group *member;
            bool has_stopped = false;
            TAILQ_FOREACH(member, &pg->members, pgrp_entry)
                has_stopped |= member->stopped;
            if (has_stopped && orphans->count < ARRAY_COUNT(orphans->pgids))
                orphans->pgids[orphans->count++] = pg->pgid;
        }
    }
}

void group_reap_finish(struct thread_group *g)
{
    task_put(g->reaped_leader);
    g->reaped_leader = NULL;
    group_put(g);
}

/* ---- exit --------------------------------------------------------------------------------------- */

void group_exit(struct thread_group *g, int wait_status)
{
    struct sighand *sh = g->sighand;
    struct task *t;
    lock_acquire(&sh->lock);
    if (!g->group_exiting) {
        g->group_exiting = true;
        g->exit_code = wait_status;
    }
    TAILQ_FOREACH(t, &g->threads, thread_entry)
        task_interrupt_locked(t, true);
    g->stopped = false;
    lock_release(&sh->lock);
    wait_queue_wake_all(&g->stop_wait, 0);
}

int group_kill_others(struct task *t)
{
    struct thread_group *g = t->group;
    struct sighand *sh = g->sighand;
    struct task *other;
    lock_acquire(&sh->lock);
    if (g->group_exiting || g->exec_task != NULL) {
        lock_release(&sh->lock);
        return -EINTR;
    }
    g->exec_task = t;
    TAILQ_FOREACH(other, &g->threads, thread_entry)
        if (other != t)
            task_interrupt_locked(other, true);
    lock_release(&sh->lock);

    struct waiter w;
    waiter_init(&w);
    wait_queue_add(&g->stop_wait, &w);
    for (;;) {
        tasks_lock();
        unsigned live = g->live_count;
        tasks_unlock();
        if (live == 1 || fiber_park(FIBER_KILLABLE, FIBER_NO_DEADLINE) != 0)
            break;
    }
    wait_queue_remove(&w);
    lock_acquire(&sh->lock);
    g->exec_task = NULL;
    bool killed = g->group_exiting;
    lock_release(&sh->lock);
    return killed ? -EINTR : 0;
}

static void release_resources(struct task *t)
{
    lock_acquire(&t->state_lock);
    struct fd_table *fds = t->fds;
    struct fs_context *fs = t->fs;
    t->fds = NULL;
    t->fs = NULL;
    lock_release(&t->state_lock);
    fd_table_put(fds);
    fs_context_put(fs);
}

/* Gives up the host thread and the memory. */
static void release_memory(struct task *t)
{
    struct mm *mm = t->mm;
    if (t->pt != NULL) {
        struct platform_thread *pt = t->pt;
        task_set_pt(t, NULL);
        platform_thread_free(pt);
    }
    lock_acquire(&t->state_lock);
    t->mm = NULL;
    lock_release(&t->state_lock);
    if (mm == NULL)
        return;
    if (!t->mm_borrowed)
        mm_thread_removed(mm);
    mm_put(mm);
}

/* The last thread of a process: it becomes a zombie, and its parent hears of it. */
static void finish_group_locked(struct thread_group *g, int status, struct group_list *dead,
                                struct orphans *orphans)
{
    if (!g->group_exiting)
        g->exit_code = status;
    g->state = GROUP_ZOMBIE;
    if (g->leader != NULL)
        g->leader->state = 'Z';
    reparent_children_locked(g, dead, orphans);
    bool reaped = g->parent->is_init || (g->exit_signal == SIGCHLD && parent_ignores_children(g->parent));
    int code = WIFSIGNALED(g->exit_code) ? CLD_KILLED : CLD_EXITED;
    int value = WIFSIGNALED(g->exit_code) ? WTERMSIG(g->exit_code) : WEXITSTATUS(g->exit_code);
    struct thread_group *parent = g->parent;
    group_notify_parent_locked(g, code, value);
    if (reaped && g->state == GROUP_ZOMBIE) {
        parent->child_utime_ns += g->utime_ns + g->child_utime_ns;
        group_unlink_locked(g);
        TAILQ_INSERT_TAIL(dead, g, sibling);
    }
}

/* Controlling terminal of a session whose leader dies: declared by the pty layer. */
void (*g_session_leader_exit_hook)(struct thread_group *g);

static void task_last_put(void *arg)
{
    task_put(arg);
}

void task_exit(struct task *t, int wait_status)
{
    struct thread_group *g = t->group;
    tasks_lock();
    ASSERT(!t->exiting);
    lock_acquire(&g->sighand->lock);
    t->exiting = true;
    lock_release(&g->sighand->lock);
    /* The last to begin: of those that began before it some may still be under way, and `live_count` only
     * falls at their end. What is to be done once must not wait for a thread that sees itself alone. */
    bool is_last = true;
    struct task *other;
    TAILQ_FOREACH(other, &g->threads, thread_entry)
    {
        if (!other->exiting) {
            is_last = false;
            break;
        }
    }
    bool leads_session = is_last && g->pgrp != NULL && g->pgrp->session->sid == g->tgid;
    tasks_unlock();
    atomic_store(&t->fiber.killed, true);

    if (t->mm != NULL && t->pt != NULL)
        futex_exit(t);
    if (is_last) {
        group_timers_release(g, false);
        g->utime_ns = group_cpu_ns(g);
    }
    if (leads_session && g_session_leader_exit_hook != NULL)
        g_session_leader_exit_hook(g);
    (void)task_vfork_release(t);
    release_resources(t);
    release_memory(t);

    struct group_list dead = TAILQ_HEAD_INITIALIZER(dead);
    struct orphans orphans = {0};
    tasks_lock();
    g->live_count--;
    is_last = g->live_count == 0;
    bool is_leader = g->leader == t;
    t->exit_code = wait_status;
    t->state = is_leader ? 'Z' : 'X';
    if (!is_leader)
        task_unlink_locked(t);
    bool is_first = false;
    if (is_last) {
        is_first = g->is_first;
        finish_group_locked(g, wait_status, &dead, &orphans);
    }
    int final_code = g->exit_code;
    tasks_unlock();

    wait_queue_wake_all(&g->stop_wait, 0); /* execve of another thread counts the living */
    if (is_last) {
        wait_queue_wake_all(&g->exit_wait, EPOLLIN);
        if (is_first && g_first_exit_hook != NULL)
            g_first_exit_hook(g, final_code);
    }
    struct thread_group *zombie, *next;
    TAILQ_FOREACH_SAFE(zombie, &dead, sibling, next)
    {
        TAILQ_REMOVE(&dead, zombie, sibling);
        group_reap_finish(zombie);
    }
    signal_orphans(&orphans);
    if (!is_leader)
        task_put(t); /* the table's */
    fiber_set_epilogue(task_last_put, t);
}
