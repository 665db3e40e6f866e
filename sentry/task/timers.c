/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interval timers and POSIX timers. Set on fibers, fired on the event thread; timers_lock of the group
 * protects the list and settings, and is never held while timer_cancel() waits for a firing.
 */
#include "sentry/task/timers.h"
#include "base/host.h"
#include "sentry/task/table.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

struct posix_timer {
    TAILQ_ENTRY(posix_timer) entry;
    struct timer timer;
    struct thread_group *group; /* borrowed: the group cancels its timers before it goes */
    struct posix_timer_config config;
    int id;
    uint64_t interval_ns;
    int pending_overrun, last_overrun;
};

/* How many whole intervals passed since `deadline`, and the next deadline after `now`. */
static uint64_t next_deadline(uint64_t deadline, uint64_t interval, uint64_t now, int *ret_missed)
{
    uint64_t missed = now > deadline ? (now - deadline) / interval : 0;
    *ret_missed = missed > INT32_MAX ? INT32_MAX : (int)missed;
    return deadline + (missed + 1) * interval;
}

static void setting_of(const struct timer *timer, uint64_t interval, struct timer_setting *ret)
{
    uint64_t now = host_monotonic_ns();
    ret->interval_ns = interval;
    ret->value_ns = 0;
    if (timer->armed)
        ret->value_ns = timer->deadline_ns > now ? timer->deadline_ns - now : 1;
}

/* ---- ITIMER_REAL -------------------------------------------------------------------------------- */

static void itimer_fire(struct timer *timer)
{
    struct itimer_state *state = container_of(timer, struct itimer_state, timer);
    struct thread_group *g = state->group;
    struct linux_siginfo info;
    signal_info_kernel(&info, SIGALRM, SI_KERNEL);
    (void)signal_send_group(g, &info);
    lock_acquire(&g->timers_lock);
    if (state->interval_ns != 0) {
        int missed;
        timer_arm(timer, next_deadline(timer->deadline_ns, state->interval_ns, host_monotonic_ns(),
                                       &missed));
    }
    lock_release(&g->timers_lock);
}

void itimer_real_set(struct thread_group *g, const struct timer_setting *new_setting,
                     struct timer_setting *ret_old)
{
    struct itimer_state *state = &g->itimer_real;
    if (state->timer.fire == NULL)
        timer_init(&state->timer, itimer_fire);
    lock_acquire(&g->timers_lock);
    setting_of(&state->timer, state->interval_ns, ret_old);
    state->interval_ns = 0; /* a firing under way does not re-arm */
    lock_release(&g->timers_lock);
    timer_cancel(&state->timer);
    lock_acquire(&g->timers_lock);
    state->interval_ns = new_setting->interval_ns;
    if (new_setting->value_ns != 0)
        timer_arm(&state->timer, host_monotonic_ns() + new_setting->value_ns);
    lock_release(&g->timers_lock);
}

void itimer_real_get(struct thread_group *g, struct timer_setting *ret)
{
    lock_acquire(&g->timers_lock);
    setting_of(&g->itimer_real.timer, g->itimer_real.interval_ns, ret);
    lock_release(&g->timers_lock);
}

/* ---- POSIX timers ------------------------------------------------------------------------------- */

static void posix_fire(struct timer *timer)
{
    struct posix_timer *pt = container_of(timer, struct posix_timer, timer);
    struct thread_group *g = pt->group;
    struct linux_siginfo info;
    int missed = 0;
    lock_acquire(&g->timers_lock);
    if (pt->interval_ns != 0)
        timer_arm(timer, next_deadline(timer->deadline_ns, pt->interval_ns, host_monotonic_ns(),
                                       &missed));
    pt->last_overrun = missed;
    struct posix_timer_config config = pt->config;
    int id = pt->id;
    lock_release(&g->timers_lock);
    if (config.notify == SIGEV_NONE)
        return;
    signal_info_kernel(&info, config.signo, SI_TIMER);
    info.timer.tid = id;
    info.timer.overrun = missed;
    info.timer.value = config.value_is_id ? (uint64_t)id : config.value;
    struct task *t = config.notify == SIGEV_THREAD_ID ? task_find(config.tid) : NULL;
    if (t != NULL && t->group == g)
        (void)signal_send_task(t, &info);
    else if (config.notify != SIGEV_THREAD_ID)
        (void)signal_send_group(g, &info);
    task_put(t);
}

static struct posix_timer *find_locked(struct thread_group *g, int id)
{
    struct posix_timer *pt;
    TAILQ_FOREACH(pt, &g->posix_timers, entry)
        if (pt->id == id)
            return pt;
    return NULL;
}

int posix_timer_create(struct thread_group *g, const struct posix_timer_config *config)
{
    struct posix_timer *pt = calloc(1, sizeof *pt);
    if (pt == NULL)
        return -EAGAIN;
    pt->group = g;
    pt->config = *config;
    timer_init(&pt->timer, posix_fire);
    lock_acquire(&g->timers_lock);
    pt->id = g->next_timer_id++;
    TAILQ_INSERT_TAIL(&g->posix_timers, pt, entry);
    int id = pt->id;
    lock_release(&g->timers_lock);
    return id;
}

int posix_timer_set(struct thread_group *g, int id, uint64_t deadline_ns, uint64_t interval_ns,
                    struct timer_setting *ret_old)
{
    lock_acquire(&g->timers_lock);
    struct posix_timer *pt = find_locked(g, id);
    if (pt == NULL) {
        lock_release(&g->timers_lock);
        return -EINVAL;
    }
    setting_of(&pt->timer, pt->interval_ns, ret_old);
    pt->interval_ns = interval_ns;
    pt->last_overrun = 0;
    if (deadline_ns != 0)
        timer_arm(&pt->timer, deadline_ns);
    else
        pt->interval_ns = 0;
    lock_release(&g->timers_lock);
    if (deadline_ns == 0) /* the timer stays in the list: only its own group's threads delete it */
        timer_cancel(&pt->timer);
    return 0;
}

int posix_timer_get(struct thread_group *g, int id, struct timer_setting *ret)
{
    lock_acquire(&g->timers_lock);
    struct posix_timer *pt = find_locked(g, id);
    if (pt != NULL)
        setting_of(&pt->timer, pt->interval_ns, ret);
    lock_release(&g->timers_lock);
    return pt != NULL ? 0 : -EINVAL;
}

int posix_timer_clock(struct thread_group *g, int id)
{
    lock_acquire(&g->timers_lock);
    struct posix_timer *pt = find_locked(g, id);
    int clock = pt != NULL ? pt->config.clock : -EINVAL;
    lock_release(&g->timers_lock);
    return clock;
}

int posix_timer_overrun(struct thread_group *g, int id)
{
    lock_acquire(&g->timers_lock);
    struct posix_timer *pt = find_locked(g, id);
    int overrun = pt != NULL ? pt->last_overrun : -EINVAL;
    lock_release(&g->timers_lock);
    return overrun;
}

int posix_timer_delete(struct thread_group *g, int id)
{
    lock_acquire(&g->timers_lock);
    struct posix_timer *pt = find_locked(g, id);
    if (pt != NULL) {
        TAILQ_REMOVE(&g->posix_timers, pt, entry);
        pt->interval_ns = 0;
    }
    lock_release(&g->timers_lock);
    if (pt == NULL)
        return -EINVAL;
    timer_cancel(&pt->timer);
    free(pt);
    return 0;
}

void group_timers_release(struct thread_group *g, bool exec)
{
    struct timer_setting none = {0}, old;
    if (!exec && g->itimer_real.timer.fire != NULL) /* execve keeps ITIMER_REAL */
        itimer_real_set(g, &none, &old);
    for (;;) {
        lock_acquire(&g->timers_lock);
        struct posix_timer *pt = TAILQ_FIRST(&g->posix_timers);
        int id = pt != NULL ? pt->id : -1;
        lock_release(&g->timers_lock);
        if (pt == NULL || posix_timer_delete(g, id) != 0)
            return;
    }
}
