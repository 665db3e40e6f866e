/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of tasks, processes, process groups and sessions; their creation, lookup and references.
 * Runs on any fiber and on the event thread (signals of timers).
 */
#define LOG_MODULE "task"
#include "base/log.h"
#include "sentry/task/table.h"
#include "base/host.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct sandbox g_sandbox;
struct lock g_tasks_lock = LOCK_INITIALIZER;

static struct pid_entry g_pids[TASK_PID_MAX + 1]; /* tasks lock */
static int g_next_pid = 1;                        /* tasks lock */
static unsigned g_task_count;                     /* tasks lock */
static uint64_t g_forks_total;                    /* tasks lock */

/* ---- table -------------------------------------------------------------------------------------- */

struct pid_entry *pid_entry(int id)
{
    if (id < 1 || id > TASK_PID_MAX)
        return NULL;
    return &g_pids[id];
}

static bool pid_is_free(int id)
{
    const struct pid_entry *e = &g_pids[id];
    return !e->is_reserved && e->task == NULL && e->group == NULL && e->pgrp == NULL && e->session == NULL;
}

void pid_release_locked(int id)
{
    g_pids[id].is_reserved = false;
}

int pid_alloc_locked(void)
{
    if (g_sandbox.pids_limit != 0 && g_task_count >= g_sandbox.pids_limit)
        return -EAGAIN;
    for (int tries = 0; tries < TASK_PID_MAX; tries++) {
        int id = g_next_pid;
        g_next_pid = id == TASK_PID_MAX ? 300 : id + 1; /* as Linux: RESERVED_PIDS on wrap */
        if (pid_is_free(id)) {
            g_pids[id].is_reserved = true;
            g_forks_total++;
            return id;
        }
    }
    return -EAGAIN;
}

void tasks_count_add_locked(int difference)
{
    g_task_count = (unsigned)((int)g_task_count + difference);
}

unsigned tasks_count(void)
{
    tasks_lock();
    unsigned count = g_task_count;
    tasks_unlock();
    return count;
}

uint64_t tasks_forks_total(void)
{
    tasks_lock();
    uint64_t total = g_forks_total;
    tasks_unlock();
    return total;
}

/* ---- sessions and process groups ---------------------------------------------------------------- */

struct session *session_new_locked(int sid)
{
    struct session *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->refs = 1;
    s->sid = sid;
    g_pids[sid].session = s;
    return s;
}

void session_put_locked(struct session *s)
{
    if (atomic_fetch_sub(&s->refs, 1) != 1)
        return;
    g_pids[s->sid].session = NULL;
    free(s);
}

struct process_group *pgrp_new_locked(int pgid, struct session *session)
{
    struct process_group *pg = calloc(1, sizeof *pg);
    if (pg == NULL)
        return NULL;
    pg->pgid = pgid;
    pg->session = session;
    atomic_fetch_add(&session->refs, 1);
    TAILQ_INIT(&pg->members);
    g_pids[pgid].pgrp = pg;
    return pg;
}

void pgrp_leave_locked(struct thread_group *g)
{
    struct process_group *pg = g->pgrp;
    if (pg == NULL)
        return;
    TAILQ_REMOVE(&pg->members, g, pgrp_entry);
    g->pgrp = NULL;
    if (atomic_fetch_sub(&pg->refs, 1) != 1)
        return;
    g_pids[pg->pgid].pgrp = NULL;
    session_put_locked(pg->session);
    free(pg);
}

void pgrp_join_locked(struct process_group *pg, struct thread_group *g)
{
    atomic_fetch_add(&pg->refs, 1);
    pgrp_leave_locked(g);
    g->pgrp = pg;
    TAILQ_INSERT_TAIL(&pg->members, g, pgrp_entry);
}

bool pgrp_is_orphaned_locked(struct process_group *pg, const struct thread_group *ignoring)
{
    struct thread_group *g;
    TAILQ_FOREACH(g, &pg->members, pgrp_entry)
    {
        if (g == ignoring || g->state != GROUP_ALIVE || g->parent == NULL)
            continue;
        if (g->is_first)
            return false;
        if (g->parent->is_init)
            continue;
        if (g->parent->pgrp != pg && g->parent->pgrp->session == pg->session)
            return false;
    }
    return true;
}

/* ---- references ---------------------------------------------------------------------------------- */

struct thread_group *group_new(struct sighand *sighand)
{
    struct thread_group *g = calloc(1, sizeof *g);
    if (g == NULL)
        return NULL;
    g->refs = 1;
    TAILQ_INIT(&g->threads);
    TAILQ_INIT(&g->children);
    TAILQ_INIT(&g->posix_timers);
    lock_init(&g->timers_lock);
    signal_queue_init(&g->pending);
    wait_queue_init(&g->child_wait);
    wait_queue_init(&g->exit_wait);
    wait_queue_init(&g->stop_wait);
    g->sighand = sighand;
    g->start_ns = host_monotonic_ns();
    g->dumpable = true;
    return g;
}

void group_get(struct thread_group *g)
{
    atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
}

void group_put(struct thread_group *g)
{
    if (g == NULL || atomic_fetch_sub(&g->refs, 1) != 1)
        return;
    signal_queue_flush(&g->pending);
    sighand_put(g->sighand);
    if (g->exe != NULL)
        file_put(g->exe);
    wait_queue_fini(&g->child_wait);
    wait_queue_fini(&g->exit_wait);
    wait_queue_fini(&g->stop_wait);
    lock_fini(&g->timers_lock);
    free(g);
}

struct task *task_new(struct thread_group *group, unsigned worker)
{
    struct task *t = calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    t->refs = 1;
    t->group = group;
    group_get(group);
    fiber_init(&t->fiber, worker, "task");
    lock_init(&t->state_lock);
    signal_queue_init(&t->signals.pending);
    wait_queue_init(&t->vfork_wait);
    t->syscall_nr = -1;
    t->state = 'R';
    t->timer_slack_ns = 50000;
    t->start_ns = host_monotonic_ns();
    t->signals.altstack.flags = 2; /* SS_DISABLE */
    return t;
}

void task_get(struct task *t)
{
    atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
}

void task_put(struct task *t)
{
    if (t == NULL || atomic_fetch_sub(&t->refs, 1) != 1)
        return;
    ASSERT(t->pt == NULL);
    signal_queue_flush(&t->signals.pending);
    creds_put(t->creds);
    group_put(t->group);
    fiber_fini(&t->fiber);
    wait_queue_fini(&t->vfork_wait);
    lock_fini(&t->state_lock);
    free(t->xstate_buffer);
    free(t->vfork_xstate);
    free(t);
}

void task_set_pt(struct task *t, struct platform_thread *pt)
{
    struct sighand *sh = t->group->sighand;
    lock_acquire(&sh->lock);
    t->pt = pt;
    lock_release(&sh->lock);
    if (pt != NULL)
        platform_thread_set_owner(pt, t);
}

void task_link_locked(struct task *t)
{
    struct pid_entry *e = pid_entry(t->tid);
    ASSERT(e != NULL && e->task == NULL);
    e->task = t;
    e->is_reserved = false;
    task_get(t);
    struct thread_group *g = t->group;
    lock_acquire(&g->sighand->lock);
    TAILQ_INSERT_TAIL(&g->threads, t, thread_entry);
    lock_release(&g->sighand->lock);
    g->live_count++;
    g_task_count++;
    if (g->leader == NULL) {
        g->leader = t;
        g->tgid = t->tid;
        e->group = g;
        group_get(g);
    }
}

void task_unlink_locked(struct task *t)
{
    struct pid_entry *e = pid_entry(t->tid);
    ASSERT(e != NULL && e->task == t);
    e->task = NULL;
    struct sighand *sh = t->group->sighand;
    lock_acquire(&sh->lock);
    TAILQ_REMOVE(&t->group->threads, t, thread_entry);
    lock_release(&sh->lock);
    g_task_count--;
}

void group_unlink_locked(struct thread_group *g)
{
    ASSERT(g->state == GROUP_ZOMBIE);
    g->state = GROUP_DEAD;
    if (g->parent != NULL)
        TAILQ_REMOVE(&g->parent->children, g, sibling);
    g->parent = NULL;
    pgrp_leave_locked(g);
    struct task *leader = g->leader;
    if (leader != NULL) {
        task_unlink_locked(leader);
        g->leader = NULL;
        g->reaped_leader = leader;
    }
    pid_entry(g->tgid)->group = NULL;
}

/* ---- lookup ------------------------------------------------------------------------------------- */

struct task *task_find_locked(int tid)
{
    struct pid_entry *e = pid_entry(tid);
    return e != NULL ? e->task : NULL;
}

struct thread_group *group_find_locked(int tgid)
{
    struct pid_entry *e = pid_entry(tgid);
    return e != NULL ? e->group : NULL;
}

struct process_group *pgrp_find_locked(int pgid)
{
    struct pid_entry *e = pid_entry(pgid);
    return e != NULL ? e->pgrp : NULL;
}

struct task *task_find(int tid)
{
    tasks_lock();
    struct task *t = task_find_locked(tid);
    if (t != NULL)
        task_get(t);
    tasks_unlock();
    return t;
}

struct thread_group *group_find(int tgid)
{
    tasks_lock();
    struct thread_group *g = group_find_locked(tgid);
    if (g != NULL)
        group_get(g);
    tasks_unlock();
    return g;
}

struct thread_group *group_next(int from)
{
    struct thread_group *g = NULL;
    tasks_lock();
    for (int id = from < 1 ? 1 : from; id <= TASK_PID_MAX && g == NULL; id++)
        g = g_pids[id].group;
    if (g != NULL)
        group_get(g);
    tasks_unlock();
    return g;
}

struct task *group_next_task(struct thread_group *g, int from)
{
    struct task *best = NULL, *t;
    tasks_lock();
    TAILQ_FOREACH(t, &g->threads, thread_entry)
    {
        if (t->tid >= from && (best == NULL || t->tid < best->tid))
            best = t;
    }
    if (best != NULL)
        task_get(best);
    tasks_unlock();
    return best;
}

struct mm *task_get_mm(struct task *t)
{
    lock_acquire(&t->state_lock);
    struct mm *mm = t->mm;
    if (mm != NULL)
        mm_get(mm);
    lock_release(&t->state_lock);
    return mm;
}

struct fd_table *task_get_fds(struct task *t)
{
    lock_acquire(&t->state_lock);
    struct fd_table *fds = t->fds;
    if (fds != NULL)
        fd_table_get(fds);
    lock_release(&t->state_lock);
    return fds;
}

struct creds *task_get_creds(struct task *t)
{
    lock_acquire(&t->state_lock);
    struct creds *c = creds_get(t->creds);
    lock_release(&t->state_lock);
    return c;
}

struct task_ids task_get_ids(struct task *t)
{
    lock_acquire(&t->state_lock);
    const struct creds *c = t->creds;
    struct task_ids ids = {c->uid, c->euid, c->suid, c->gid, c->egid, c->sgid};
    lock_release(&t->state_lock);
    return ids;
}

struct file *group_get_exe(struct thread_group *g)
{
    tasks_lock();
    struct file *f = g->exe;
    if (f != NULL)
        file_get(f);
    tasks_unlock();
    return f;
}

uint64_t task_rlimit(const struct task *t, int resource)
{
    return t->group->rlimits[resource].soft;
}

void task_mm_limits(const struct task *t, struct mm_limits *ret)
{
    ret->address_space = task_rlimit(t, RLIMIT_AS);
    ret->data = task_rlimit(t, RLIMIT_DATA);
    ret->stack = task_rlimit(t, RLIMIT_STACK);
    ret->locked = creds_capable(t->creds, 14 /* CAP_IPC_LOCK */) ? UINT64_MAX
                                                                : task_rlimit(t, RLIMIT_MEMLOCK);
}

static void init_rlimits(struct thread_group *g)
{
    for (int i = 0; i < RLIM_NLIMITS; i++)
        g->rlimits[i] = (struct rlimit_pair){UINT64_MAX, UINT64_MAX};
    g->rlimits[RLIMIT_STACK].soft = MIB(8);
    g->rlimits[RLIMIT_CORE].soft = 0;
    g->rlimits[RLIMIT_NOFILE] = (struct rlimit_pair){20000, FD_TABLE_MAX};
    g->rlimits[RLIMIT_MEMLOCK] = (struct rlimit_pair){MIB(8), MIB(8)};
    g->rlimits[RLIMIT_SIGPENDING] = (struct rlimit_pair){32768, 32768};
    g->rlimits[RLIMIT_MSGQUEUE] = (struct rlimit_pair){819200, 819200};
    g->rlimits[RLIMIT_NICE] = (struct rlimit_pair){0, 0};
    g->rlimits[RLIMIT_RTPRIO] = (struct rlimit_pair){0, 0};
    g->rlimits[RLIMIT_NPROC] = (struct rlimit_pair){TASK_PID_MAX, TASK_PID_MAX};
}

/* `do`'s pid 1: a process without tasks that adopts and reaps orphans. */
void tasks_init(void)
{
    lock_init(&g_sandbox.uts_lock);
    struct sighand *sh = sighand_new();
    struct thread_group *init = sh != NULL ? group_new(sh) : NULL;
    ASSERT(init != NULL);
    init->is_init = true;
    init->exit_signal = SIGCHLD;
    init_rlimits(init);
    tasks_lock();
    init->tgid = 1;
    g_next_pid = 2;
    g_pids[1].group = init; /* the table's reference; ours is g_sandbox's */
    group_get(init);
    struct session *s = session_new_locked(1);
    struct process_group *pg = s != NULL ? pgrp_new_locked(1, s) : NULL;
    ASSERT(pg != NULL);
    pgrp_join_locked(pg, init);
    tasks_unlock();
    g_sandbox.init_group = init;
}
