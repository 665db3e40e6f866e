/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait4 and waitid on decoded arguments. Runs on the caller's fiber.
 */
#define LOG_MODULE "task"
#include "sentry/task/wait.h"
#include "sentry/task/restart.h"
#include "sentry/task/table.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

static bool matches_locked(const struct thread_group *g, const struct wait_request *w)
{
    bool is_clone = g->exit_signal != SIGCHLD;
    if (!(w->options & __WALL) && is_clone != (((unsigned)w->options & (unsigned)__WCLONE) != 0))
        return false;
    switch (w->which) {
    case WAIT_FOR_ANY:
        return true;
    case WAIT_FOR_PID:
        return g->tgid == w->id;
    case WAIT_FOR_PGRP:
        return g->pgrp != NULL && g->pgrp->pgid == w->id;
    }
    return false;
}

static void describe_locked(const struct thread_group *g, int code, int status, int wait_status,
                            struct wait_result *ret)
{
    ret->pid = g->tgid;
    ret->uid = g->leader != NULL ? task_get_ids(g->leader).uid : 0;
    ret->code = code;
    ret->status = status;
    ret->wait_status = wait_status;
    ret->utime_ns = g->utime_ns + g->child_utime_ns;
    ret->stime_ns = g->stime_ns + g->child_stime_ns;
}

/* Is there something to report about `g`? Fills *ret and, unless WNOWAIT, consumes it; a zombie that was
 * consumed is handed out in *ret_zombie. */
static bool consume_locked(struct thread_group *g, const struct wait_request *w,
                           struct wait_result *ret, struct thread_group **ret_zombie)
{
    bool keep = (w->options & WNOWAIT) != 0;
    if (g->state == GROUP_ZOMBIE && (w->options & WEXITED)) {
        int status = g->exit_code;
        if (WIFSIGNALED(status))
            describe_locked(g, WCOREDUMP(status) ? CLD_DUMPED : CLD_KILLED, WTERMSIG(status), status,
                            ret);
        else
            describe_locked(g, CLD_EXITED, WEXITSTATUS(status), status, ret);
        if (!keep) {
            struct thread_group *parent = g->parent;
            parent->child_utime_ns += g->utime_ns + g->child_utime_ns;
            parent->child_stime_ns += g->stime_ns + g->child_stime_ns;
            group_unlink_locked(g);
            *ret_zombie = g;
        }
        return true;
    }
    if (g->state != GROUP_ALIVE)
        return false;
    if (g->stopped && !g->stop_reported && (w->options & WSTOPPED)) {
        describe_locked(g, CLD_STOPPED, g->stop_signal, W_STOPCODE(g->stop_signal), ret);
        if (!keep)
            g->stop_reported = true;
        return true;
    }
    if (g->continued_pending && (w->options & WCONTINUED)) {
        describe_locked(g, CLD_CONTINUED, SIGCONT, 0xffff, ret);
        if (!keep)
            g->continued_pending = false;
        return true;
    }
    return false;
}

/* 1: found; 0: nothing yet; -ECHILD. */
static int scan(struct thread_group *parent, const struct wait_request *w, struct wait_result *ret)
{
    struct thread_group *g, *zombie = NULL;
    int r = -ECHILD;
    tasks_lock();
    TAILQ_FOREACH(g, &parent->children, sibling)
    {
        if (!matches_locked(g, w))
            continue;
        r = 0;
        if (consume_locked(g, w, ret, &zombie)) {
            r = 1;
            break;
        }
    }
    tasks_unlock();
    if (zombie != NULL)
        group_reap_finish(zombie);
    return r;
}

int task_wait(struct task *t, const struct wait_request *request, struct wait_result *ret)
{
    struct thread_group *g = t->group;
    struct waiter w;
    memset(ret, 0, sizeof *ret);
    int r = scan(g, request, ret);
    if (r != 0 || (request->options & WNOHANG))
        return r;
    waiter_init(&w);
    wait_queue_add(&g->child_wait, &w);
    t->state = 'S';
    for (;;) {
        r = scan(g, request, ret);
        if (r != 0)
            break;
        if (fiber_park(FIBER_INTERRUPTIBLE, FIBER_NO_DEADLINE) == -EINTR) {
            r = scan(g, request, ret); /* a child that ended with the signal wins */
            if (r == 0)
                r = -ERESTARTSYS;
            break;
        }
    }
    t->state = 'R';
    wait_queue_remove(&w);
    return r;
}
