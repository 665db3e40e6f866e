/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sending and dequeuing of signals. Any fiber, and the event thread (timers). All state is under the
 * sighand's lock; what it wakes are fibers and kicks, both allowed under short locks.
 */
#define LOG_MODULE "signal"
#include "sentry/task/table.h"
#include "sentry/task/timers.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define STOP_SIGNALS                                                                               \
    (SIGSET_BIT(SIGSTOP) | SIGSET_BIT(SIGTSTP) | SIGSET_BIT(SIGTTIN) | SIGSET_BIT(SIGTTOU))
#define IGNORED_BY_DEFAULT                                                                         \
    (SIGSET_BIT(SIGCHLD) | SIGSET_BIT(SIGCONT) | SIGSET_BIT(SIGURG) | SIGSET_BIT(SIGWINCH))
/* Faults come before others: the handler's frame must show where it happened. */
#define SYNCHRONOUS                                                                                \
    (SIGSET_BIT(SIGSEGV) | SIGSET_BIT(SIGBUS) | SIGSET_BIT(SIGILL) | SIGSET_BIT(SIGTRAP) |         \
     SIGSET_BIT(SIGFPE) | SIGSET_BIT(SIGSYS))

/* ---- queues and sighands ------------------------------------------------------------------------ */

void signal_queue_init(struct signal_queue *q)
{
    q->mask = 0;
    q->count = 0;
    TAILQ_INIT(&q->queue);
}

void signal_queue_flush(struct signal_queue *q)
{
    struct queued_signal *e, *next;
    TAILQ_FOREACH_SAFE(e, &q->queue, entry, next)
    {
        TAILQ_REMOVE(&q->queue, e, entry);
        free(e);
    }
    q->count = 0;
    q->mask = 0;
}

static void queue_drop(struct signal_queue *q, signal_set which)
{
    struct queued_signal *e, *next;
    if ((q->mask & which) == 0)
        return;
    TAILQ_FOREACH_SAFE(e, &q->queue, entry, next)
    {
        if (which & SIGSET_BIT(e->info.signo)) {
            TAILQ_REMOVE(&q->queue, e, entry);
            q->count--;
            free(e);
        }
    }
    q->mask &= ~which;
}

struct sighand *sighand_new(void)
{
    struct sighand *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->refs = 1;
    lock_init(&s->lock);
    wait_queue_init(&s->signalfd_wait);
    return s;
}

struct sighand *sighand_copy(struct sighand *old)
{
    struct sighand *s = sighand_new();
    if (s == NULL)
        return NULL;
    lock_acquire(&old->lock);
    memcpy(s->actions, old->actions, sizeof s->actions);
    lock_release(&old->lock);
    return s;
}

static void sighand_free(struct sighand *s)
{
    wait_queue_fini(&s->signalfd_wait);
    lock_fini(&s->lock);
    free(s);
}

void sighand_put(struct sighand *s)
{
    while (s != NULL && atomic_fetch_sub(&s->refs, 1) == 1) {
        struct sighand *replaced = s->replaced;
        sighand_free(s);
        s = replaced;
    }
}

struct sighand *group_lock_sighand(struct thread_group *g) NO_LOCK_ANALYSIS
{
    for (;;) {
        struct sighand *sh = __atomic_load_n(&g->sighand, __ATOMIC_ACQUIRE);
        lock_acquire(&sh->lock);
        if (sh == __atomic_load_n(&g->sighand, __ATOMIC_ACQUIRE))
            return sh;
        lock_release(&sh->lock);
    }
}

void signal_info_kernel(struct linux_siginfo *info, int signo, int code)
{
    memset(info, 0, sizeof *info);
    info->signo = signo;
    info->code = code;
}

/* ---- who has to do something -------------------------------------------------------------------- */

void task_interrupt_locked(struct task *t, bool kill)
{
    if (kill)
        atomic_store(&t->fiber.killed, true);
    atomic_store(&t->fiber.interrupted, true);
    if (fiber_current() == &t->fiber)
        return; /* looks at it on its own way back */
    fiber_wake(&t->fiber);
    if (t->pt != NULL)
        platform_thread_kick(t->pt);
}

void task_nudge(struct task *t)
{
    struct sighand *sh = group_lock_sighand(t->group);
    if (t->pt != NULL)
        platform_thread_kick(t->pt);
    lock_release(&sh->lock);
}

static bool is_ignored_locked(struct task *t, int signo)
{
    struct sighand *sh = t->group->sighand;
    uint64_t handler = sh->actions[signo - 1].handler;
    if (handler == (uint64_t)(uintptr_t)SIG_IGN)
        return true;
    if (handler != (uint64_t)(uintptr_t)SIG_DFL)
        return false;
    if (t->group->tgid == 1 && signo != SIGKILL && signo != SIGSTOP)
        return true; /* `run`'s pid 1: only what it has handlers for */
    return (SIGSET_BIT(signo) & IGNORED_BY_DEFAULT) != 0;
}

static bool wants_locked(const struct task *t, int signo)
{
    if (t->exiting)
        return false;
    return (t->signals.blocked & SIGSET_BIT(signo)) == 0 || (t->signals.waited & SIGSET_BIT(signo));
}

/* Wakes the thread that will take `signo`: `only`, or the best of the group. */
static void wake_taker_locked(struct thread_group *g, struct task *only, int signo)
{
    struct task *taker = NULL, *t;
    if (only != NULL) {
        taker = wants_locked(only, signo) ? only : NULL;
    } else {
        TAILQ_FOREACH(t, &g->threads, thread_entry)
        {
            if (!wants_locked(t, signo))
                continue;
            if (taker == NULL)
                taker = t;
            if (fiber_current() == &t->fiber) {
                taker = t; /* kill(getpid()) is delivered before kill returns */
                break;
            }
        }
    }
    if (signo == SIGKILL) {
        if (!g->group_exiting) {
            g->group_exiting = true;
            g->exit_code = SIGKILL;
        }
        TAILQ_FOREACH(t, &g->threads, thread_entry)
            task_interrupt_locked(t, true);
        g->stopped = false;
        wait_queue_wake_all(&g->stop_wait, 0);
        return;
    }
    if (taker != NULL)
        task_interrupt_locked(taker, false);
    wait_queue_wake_all(&g->sighand->signalfd_wait, EPOLLIN);
}

/* SIGCONT ends a stop and takes pending stop signals away, even if it's ignored or blocked; a stop
 * signal takes pending SIGCONTs away. */
static void prepare_locked(struct thread_group *g, int signo)
{
    struct task *t;
    signal_set drop = 0;
    if (signo == SIGCONT)
        drop = STOP_SIGNALS;
    else if (STOP_SIGNALS & SIGSET_BIT(signo))
        drop = SIGSET_BIT(SIGCONT);
    else
        return;
    queue_drop(&g->pending, drop);
    TAILQ_FOREACH(t, &g->threads, thread_entry)
        queue_drop(&t->signals.pending, drop);
    if (signo == SIGCONT && g->stopped) {
        g->stopped = false;
        g->continued_pending = true;
        g->stop_reported = false;
        wait_queue_wake_all(&g->stop_wait, 0);
    }
}

static int send_locked(struct thread_group *g, struct task *only, const struct linux_siginfo *info)
{
    int signo = info->signo;
    struct task *sample = only != NULL ? only : TAILQ_FIRST(&g->threads);
    if (sample == NULL || g->state != GROUP_ALIVE)
        return 0; /* a zombie accepts everything and does nothing */
    prepare_locked(g, signo);
    struct signal_queue *q = only != NULL ? &only->signals.pending : &g->pending;
    bool blocked = (sample->signals.blocked & SIGSET_BIT(signo)) != 0;
    if (!blocked && !(sample->signals.waited & SIGSET_BIT(signo)) && is_ignored_locked(sample, signo))
        return 0;
    if (signo < LINUX_SIGRTMIN && (q->mask & SIGSET_BIT(signo)))
        return 0;
    if (signo >= LINUX_SIGRTMIN &&
        (uint64_t)q->count + g->pending.count >= g->rlimits[RLIMIT_SIGPENDING].soft)
        return -EAGAIN;
    struct queued_signal *e = malloc(sizeof *e);
    if (e == NULL)
        return -EAGAIN;
    e->info = *info;
    TAILQ_INSERT_TAIL(&q->queue, e, entry);
    q->count++;
    q->mask |= SIGSET_BIT(signo);
    wake_taker_locked(g, only, signo);
    return 0;
}

/* ---- sending ------------------------------------------------------------------------------------ */

int signal_send_task(struct task *t, const struct linux_siginfo *info)
{
    if (info->signo == 0)
        return 0;
    struct sighand *sh = group_lock_sighand(t->group);
    int r = t->exiting ? 0 : send_locked(t->group, t, info);
    lock_release(&sh->lock);
    return r;
}

int signal_send_group(struct thread_group *g, const struct linux_siginfo *info)
{
    if (info->signo == 0 || g->is_init)
        return 0;
    struct sighand *sh = group_lock_sighand(g);
    bool was_stopped = g->stopped;
    int r = send_locked(g, NULL, info);
    bool continued = was_stopped && !g->stopped && info->signo == SIGCONT;
    lock_release(&sh->lock);
    if (continued) {
        tasks_lock();
        group_notify_parent_locked(g, CLD_CONTINUED, SIGCONT);
        tasks_unlock();
    }
    return r;
}

int signal_send_pgrp(int pgid, const struct linux_siginfo *info)
{
    enum { BATCH = 32 };
    struct thread_group *batch[BATCH];
    int sent = 0, last_tgid = 0;
    for (;;) { /* in batches: sending takes locks that come after the tasks lock, but may call back */
        size_t count = 0;
        struct thread_group *g;
        tasks_lock();
        struct process_group *pg = pgrp_find_locked(pgid);
        if (pg != NULL) {
            TAILQ_FOREACH(g, &pg->members, pgrp_entry)
            {
                if (g->tgid <= last_tgid || g->state != GROUP_ALIVE)
                    continue;
                size_t at = count < BATCH ? count++ : BATCH;
                while (at > 0 && batch[at - 1]->tgid > g->tgid) { /* insertion by tgid */
                    if (at < BATCH)
                        batch[at] = batch[at - 1];
                    at--;
                }
                if (at < BATCH)
                    batch[at] = g;
            }
        }
        for (size_t i = 0; i < count; i++)
            group_get(batch[i]);
        tasks_unlock();
        for (size_t i = 0; i < count; i++) {
            last_tgid = batch[i]->tgid;
            if (signal_send_group(batch[i], info) == 0)
                sent++;
            group_put(batch[i]);
        }
        if (count < BATCH)
            return sent;
    }
}

void signal_force(struct task *t, const struct linux_siginfo *info)
{
    struct sighand *sh = t->group->sighand;
    int signo = info->signo;
    lock_acquire(&sh->lock);
    struct linux_sigaction *action = &sh->actions[signo - 1];
    bool blocked = (t->signals.blocked & SIGSET_BIT(signo)) != 0;
    if (blocked || action->handler == (uint64_t)(uintptr_t)SIG_IGN) {
        action->handler = (uint64_t)(uintptr_t)SIG_DFL;
        atomic_store(&t->signals.blocked, t->signals.blocked & ~SIGSET_BIT(signo));
    }
    struct queued_signal *e = malloc(sizeof *e);
    if (e == NULL) { /* no memory to say why: the process dies of it all the same */
        t->group->group_exiting = true;
        t->group->exit_code = signo;
    } else {
        queue_drop(&t->signals.pending, SIGSET_BIT(signo));
        e->info = *info;
        TAILQ_INSERT_HEAD(&t->signals.pending.queue, e, entry);
        t->signals.pending.count++;
        t->signals.pending.mask |= SIGSET_BIT(signo);
    }
    atomic_store(&t->fiber.interrupted, true);
    lock_release(&sh->lock);
}

/* ---- masks -------------------------------------------------------------------------------------- */

static signal_set pending_locked(const struct task *t)
{
    return t->signals.pending.mask | t->group->pending.mask;
}

static void recalculate_locked(struct task *t)
{
    struct thread_group *g = t->group;
    bool must_look = (pending_locked(t) & ~t->signals.blocked) != 0 || g->group_exiting ||
                     g->stopped || (g->exec_task != NULL && g->exec_task != t);
    atomic_store(&t->fiber.interrupted, must_look);
}

void signal_set_blocked(struct task *t, signal_set blocked)
{
    struct sighand *sh = t->group->sighand;
    blocked &= ~SIGSET_UNMASKABLE;
    lock_acquire(&sh->lock);
    signal_set newly = blocked & ~t->signals.blocked;
    atomic_store(&t->signals.blocked, blocked);
    recalculate_locked(t);
    /* A process signal that this thread would have taken goes to another one. */
    signal_set handed_on = newly & t->group->pending.mask;
    for (int signo = 1; handed_on != 0 && signo <= LINUX_NSIG; signo++)
        if (handed_on & SIGSET_BIT(signo))
            wake_taker_locked(t->group, NULL, signo);
    lock_release(&sh->lock);
}

bool signal_is_pending(struct task *t)
{
    return atomic_load(&t->fiber.interrupted);
}

signal_set signal_pending_set(struct task *t)
{
    struct sighand *sh = t->group->sighand;
    lock_acquire(&sh->lock);
    signal_set pending = pending_locked(t);
    lock_release(&sh->lock);
    return pending;
}

void signal_mask_set_temporary(struct task *t, signal_set mask)
{
    t->signals.saved_mask = t->signals.blocked;
    t->signals.restore_saved_mask = true;
    signal_set_blocked(t, mask);
}

void signal_mask_restore(struct task *t)
{
    if (!t->signals.restore_saved_mask)
        return;
    t->signals.restore_saved_mask = false;
    signal_set_blocked(t, t->signals.saved_mask);
}

/* ---- dequeuing ---------------------------------------------------------------------------------- */

static int dequeue_from(struct signal_queue *q, signal_set set, struct linux_siginfo *ret)
{
    signal_set ready = q->mask & set;
    if (ready == 0)
        return 0;
    if (ready & SYNCHRONOUS)
        ready &= SYNCHRONOUS;
    int signo = __builtin_ctzll(ready) + 1; /* lowest first, real-time ones in the order sent */
    struct queued_signal *e, *found = NULL;
    bool more = false;
    TAILQ_FOREACH(e, &q->queue, entry)
    {
        if (e->info.signo != signo)
            continue;
        if (found != NULL) {
            more = true;
            break;
        }
        found = e;
    }
    if (!more)
        q->mask &= ~SIGSET_BIT(signo);
    TAILQ_REMOVE(&q->queue, found, entry);
    q->count--;
    *ret = found->info;
    free(found);
    return signo;
}

/* sighand->lock held */
int signal_dequeue_locked(struct task *t, signal_set set, struct linux_siginfo *ret)
{
    int signo = dequeue_from(&t->signals.pending, set, ret);
    if (signo == 0)
        signo = dequeue_from(&t->group->pending, set, ret);
    if (signo != 0 && ret->code == SI_TIMER)
        posix_timer_delivered(t->group, ret);
    recalculate_locked(t);
    return signo;
}

int signal_dequeue(struct task *t, signal_set set, struct linux_siginfo *ret)
{
    struct sighand *sh = t->group->sighand;
    lock_acquire(&sh->lock);
    int signo = signal_dequeue_locked(t, set, ret);
    lock_release(&sh->lock);
    return signo;
}

void signal_drop_ignored_locked(struct thread_group *g, int signo)
{
    struct task *t;
    queue_drop(&g->pending, SIGSET_BIT(signo));
    TAILQ_FOREACH(t, &g->threads, thread_entry)
        queue_drop(&t->signals.pending, SIGSET_BIT(signo));
}
