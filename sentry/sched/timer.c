/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers: a tree by deadline and one host timerfd, which is set only when an earlier deadline than the
 * one it is set to comes. A cancelled earliest timer leaves it set: one wake-up for nothing costs less
 * than a host call for each cancelled time-out. Armed and cancelled by any thread, fired by the event
 * thread.
 */
#include "sentry/sched/sched.h"

#include "base/host.h"
#include "base/lock.h"
#include "sentry/sched/quiesce.h"
#include "sentry/sched/worker.h"
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>

/* #syscalls timerfd_settime: the one timer of the event thread (timerfd_create comes before lockdown) */

#define FIRE_MAX 64 /* callbacks between two looks at the other events */

static int timer_compare(const struct timer *a, const struct timer *b)
{
    if (a->deadline_ns != b->deadline_ns)
        return a->deadline_ns < b->deadline_ns ? -1 : 1;
    return (uintptr_t)a < (uintptr_t)b ? -1 : (uintptr_t)a > (uintptr_t)b;
}

RB_HEAD(timer_tree, timer);
RB_GENERATE_INTERNAL(timer_tree, timer, node, timer_compare, static UNUSED)

static struct {
    int hfd; /* immutable after init */
    struct lock lock;
    /* protected by lock: */
    struct timer_tree tree;
    struct quiesce quiesce;
    uint64_t set_to_ns; /* what the timerfd is set to; UINT64_MAX: not */
} g_timers = {.hfd = -1, .lock = LOCK_INITIALIZER, .set_to_ns = UINT64_MAX};

int timers_init(int *ret_timerfd)
{
    long r = host_call2(SYS_timerfd_create, CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (r < 0)
        return (int)r;
    g_timers.hfd = (int)r;
    *ret_timerfd = (int)r;
    return 0;
}

static void set_timerfd_locked(uint64_t deadline_ns) REQUIRES(&g_timers.lock)
{
    g_timers.set_to_ns = deadline_ns;
    if (deadline_ns == 0)
        deadline_ns = 1; /* 0 would disarm it */
    struct itimerspec at = {.it_value = {.tv_sec = (time_t)(deadline_ns / 1000000000u),
                                         .tv_nsec = (long)(deadline_ns % 1000000000u)}};
    (void)host_call4(SYS_timerfd_settime, g_timers.hfd, TFD_TIMER_ABSTIME, &at, NULL);
}

void timer_init(struct timer *t, void (*fire)(struct timer *t))
{
    *t = (struct timer){.fire = fire};
}

void timer_arm(struct timer *t, uint64_t deadline_ns)
{
    lock_acquire(&g_timers.lock);
    if (t->armed)
        RB_REMOVE(timer_tree, &g_timers.tree, t);
    t->deadline_ns = deadline_ns;
    t->armed = true;
    RB_INSERT(timer_tree, &g_timers.tree, t);
    if (deadline_ns < g_timers.set_to_ns)
        set_timerfd_locked(deadline_ns);
    lock_release(&g_timers.lock);
}

void timer_cancel(struct timer *t)
{
    lock_acquire(&g_timers.lock);
    for (;;) {
        if (t->armed) {
            RB_REMOVE(timer_tree, &g_timers.tree, t);
            t->armed = false;
        }
        if (g_timers.quiesce.running != t)
            break;
        quiesce_wait_locked(&g_timers.quiesce, &g_timers.lock, t);
        /* fire() may have armed it again */
    }
    lock_release(&g_timers.lock);
}

void timers_run(void)
{
    uint64_t now = host_monotonic_ns();
    lock_acquire(&g_timers.lock);
    g_timers.set_to_ns = UINT64_MAX;
    for (int n = 0; n < FIRE_MAX; n++) {
        struct timer *t = RB_MIN(timer_tree, &g_timers.tree);
        if (!t || t->deadline_ns > now)
            break;
        RB_REMOVE(timer_tree, &g_timers.tree, t);
        t->armed = false;
        g_timers.quiesce.running = t;
        lock_release(&g_timers.lock);
        t->fire(t); /* may free it */
        lock_acquire(&g_timers.lock);
        quiesce_end_locked(&g_timers.quiesce);
    }
    struct timer *next = RB_MIN(timer_tree, &g_timers.tree);
    if (next && next->deadline_ns < g_timers.set_to_ns)
        set_timerfd_locked(next->deadline_ns);
    lock_release(&g_timers.lock);
}
