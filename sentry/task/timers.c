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
#include <sys/time.h>
#include <time.h>

#define POSIX_TIMERS_MAX 32768 /* of a process, whatever its RLIMIT_SIGPENDING says */

struct posix_timer {
    TAILQ_ENTRY(posix_timer) entry;
    struct timer timer;
    struct thread_group *group; /* borrowed: the group cancels its timers before it goes */
    struct posix_timer_config config;
    int id;
    unsigned users; /* timers_lock: fibers that cancel it without the lock; the last frees a deleted one */
    bool is_deleted; /* timers_lock: off the list */
    uint64_t interval_ns;
    uint64_t cpu_deadline_ns; /* CPU clocks */
    bool signal_pending;
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

/* ---- interval timers ----------------------------------------------------------------------------- */

/* A CPU timer looks again when the process could have used up its time at the earliest. */
#define CPU_LOOK_NS 1000000u

static uint64_t cpu_wait_ns(uint64_t left)
{
    uint64_t wait = left / g_sandbox.cpu_count;
    return wait > CPU_LOOK_NS ? wait : CPU_LOOK_NS;
}

static void send_itimer_signal(struct thread_group *g, int which)
{
    static const int signals[] = {
        [ITIMER_REAL] = SIGALRM, [ITIMER_VIRTUAL] = SIGVTALRM, [ITIMER_PROF] = SIGPROF};
    struct linux_siginfo info;
    signal_info_kernel(&info, signals[which], SI_KERNEL);
    (void)signal_send_group(g, &info);
}

static void real_fire(struct timer *timer)
{
    struct itimer_state *state = container_of(timer, struct itimer_state, timer);
    struct thread_group *g = state->group;
    send_itimer_signal(g, ITIMER_REAL);
    lock_acquire(&g->timers_lock);
    if (state->interval_ns != 0) {
        int missed;
        timer_arm(timer, next_deadline(timer->deadline_ns, state->interval_ns, host_monotonic_ns(),
                                       &missed));
    }
    lock_release(&g->timers_lock);
}

static void cpu_fire(struct timer *timer)
{
    struct itimer_state *state = container_of(timer, struct itimer_state, timer);
    struct thread_group *g = state->group;
    uint64_t used = group_cpu_ns(g);
    bool expired = false;
    lock_acquire(&g->timers_lock);
    if (state->cpu_deadline_ns != 0 && used >= state->cpu_deadline_ns) {
        expired = true;
        state->cpu_deadline_ns = state->interval_ns != 0 ? used + state->interval_ns : 0;
    }
    if (state->cpu_deadline_ns != 0)
        timer_arm(timer, host_monotonic_ns() + cpu_wait_ns(state->cpu_deadline_ns - used));
    lock_release(&g->timers_lock);
    if (expired)
        send_itimer_signal(g, state == &g->itimers[ITIMER_VIRTUAL] ? ITIMER_VIRTUAL : ITIMER_PROF);
}

static uint64_t limit_ns(uint64_t seconds)
{
    return seconds > UINT32_MAX ? UINT64_MAX : seconds * 1000000000u;
}

static void cpu_limit_fire(struct timer *timer)
{
    struct itimer_state *state = container_of(timer, struct itimer_state, timer);
    struct thread_group *g = state->group;
    struct linux_siginfo info;
    uint64_t used = group_cpu_ns(g), hard = limit_ns(g->rlimits[RLIMIT_CPU].hard);
    if (used >= hard) {
        signal_info_kernel(&info, SIGKILL, SI_KERNEL);
        (void)signal_send_group(g, &info);
        return;
    }
    lock_acquire(&g->timers_lock);
    bool warns = used >= state->cpu_deadline_ns;
    if (warns)
        state->cpu_deadline_ns = used + 1000000000u;
    uint64_t next = state->cpu_deadline_ns < hard ? state->cpu_deadline_ns : hard;
    timer_arm(timer, host_monotonic_ns() + cpu_wait_ns(next - used));
    lock_release(&g->timers_lock);
    if (warns) {
        signal_info_kernel(&info, SIGXCPU, SI_KERNEL);
        (void)signal_send_group(g, &info);
    }
}

void cpu_limit_changed(struct thread_group *g)
{
    struct itimer_state *state = &g->itimers[ITIMER_CPU_LIMIT];
    const struct rlimit_pair limit = g->rlimits[RLIMIT_CPU];
    bool is_unlimited = limit.soft == UINT64_MAX && limit.hard == UINT64_MAX;
    lock_acquire(&g->timers_lock);
    if (state->timer.fire == NULL && !is_unlimited) {
        state->group = g;
        timer_init(&state->timer, cpu_limit_fire);
    }
    bool is_used = state->timer.fire != NULL;
    lock_release(&g->timers_lock);
    if (is_used)
        timer_cancel(&state->timer);
    if (is_unlimited)
        return;
    uint64_t used = group_cpu_ns(g), soft = limit_ns(limit.soft);
    lock_acquire(&g->timers_lock);
    state->cpu_deadline_ns = soft;
    if (!g->timers_released) /* prlimit(2) of a zombie */
        timer_arm(&state->timer, host_monotonic_ns() + cpu_wait_ns(soft > used ? soft - used : 0));
    lock_release(&g->timers_lock);
}

/* timers_lock held */
static void itimer_setting(const struct itimer_state *state, int which, uint64_t used,
                           struct timer_setting *ret)
{
    if (which == ITIMER_REAL) {
        setting_of(&state->timer, state->interval_ns, ret);
        return;
    }
    ret->interval_ns = state->interval_ns;
    ret->value_ns = state->cpu_deadline_ns == 0       ? 0
                    : state->cpu_deadline_ns > used ? state->cpu_deadline_ns - used
                                                      : 1;
}

void itimer_set(struct thread_group *g, int which, const struct timer_setting *new_setting,
                struct timer_setting *ret_old)
{
    struct itimer_state *state = &g->itimers[which];
    uint64_t used = which != ITIMER_REAL ? group_cpu_ns(g) : 0;
    lock_acquire(&g->timers_lock);
    if (state->timer.fire == NULL) { /* under the lock: another thread's would be armed by now */
        state->group = g;
        timer_init(&state->timer, which == ITIMER_REAL ? real_fire : cpu_fire);
    }
    itimer_setting(state, which, used, ret_old);
    state->interval_ns = 0; /* a firing under way does not re-arm */
    state->cpu_deadline_ns = 0;
    lock_release(&g->timers_lock);
    timer_cancel(&state->timer);
    lock_acquire(&g->timers_lock);
    state->interval_ns = new_setting->interval_ns;
    uint64_t wait = new_setting->value_ns;
    if (wait != 0 && which != ITIMER_REAL) {
        state->cpu_deadline_ns = used + wait;
        wait = cpu_wait_ns(wait);
    }
    if (wait != 0)
        timer_arm(&state->timer, host_monotonic_ns() + wait);
    lock_release(&g->timers_lock);
}

void itimer_get(struct thread_group *g, int which, struct timer_setting *ret)
{
    uint64_t used = which != ITIMER_REAL ? group_cpu_ns(g) : 0;
    lock_acquire(&g->timers_lock);
    itimer_setting(&g->itimers[which], which, used, ret);
    lock_release(&g->timers_lock);
}

/* ---- POSIX timers ------------------------------------------------------------------------------- */

bool timer_clock_is_cpu(int clock)
{
    /* The C library passes the caller's own clocks as ~0 << 3 | kind (clock_getcpuclockid(3)). */
    return clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_THREAD_CPUTIME_ID ||
           (clock < 0 && clock >= -8);
}

/* timers_lock held. A CPU timer: re-arms; false if its time hasn't come. */
static bool cpu_timer_expired(struct posix_timer *pt, uint64_t used, int *ret_missed)
{
    bool expired = used >= pt->cpu_deadline_ns;
    if (expired && pt->interval_ns != 0)
        pt->cpu_deadline_ns = next_deadline(pt->cpu_deadline_ns, pt->interval_ns, used, ret_missed);
    if (!expired || pt->interval_ns != 0)
        timer_arm(&pt->timer, host_monotonic_ns() + cpu_wait_ns(pt->cpu_deadline_ns - used));
    return expired;
}

static void posix_fire(struct timer *timer)
{
    struct posix_timer *pt = container_of(timer, struct posix_timer, timer);
    struct thread_group *g = pt->group;
    struct linux_siginfo info;
    int missed = 0;
    bool is_cpu = timer_clock_is_cpu(pt->config.clock);
    uint64_t used = is_cpu ? group_cpu_ns(g) : 0;
    lock_acquire(&g->timers_lock);
    if (is_cpu && !cpu_timer_expired(pt, used, &missed)) {
        lock_release(&g->timers_lock);
        return;
    }
    if (!is_cpu && pt->interval_ns != 0)
        timer_arm(timer, next_deadline(timer->deadline_ns, pt->interval_ns, host_monotonic_ns(),
                                       &missed));
    /* One signal of a timer is pending at most; what expires meanwhile is counted. */
    bool counts = pt->signal_pending;
    pt->pending_overrun += counts ? missed + 1 : missed;
    pt->signal_pending = pt->config.notify != SIGEV_NONE;
    struct posix_timer_config config = pt->config;
    int id = pt->id;
    lock_release(&g->timers_lock);
    if (config.notify == SIGEV_NONE || counts)
        return;
    signal_info_kernel(&info, config.signo, SI_TIMER);
    info.timer.tid = id;
    info.timer.value = config.value_is_id ? (uint64_t)id : config.value;
    struct task *t = config.notify == SIGEV_THREAD_ID ? task_find(config.tid) : NULL;
    int r = 0;
    if (t != NULL && t->group == g)
        r = signal_send_task(t, &info);
    else if (config.notify != SIGEV_THREAD_ID)
        r = signal_send_group(g, &info);
    task_put(t);
    if (r != 0) { /* RLIMIT_SIGPENDING: the next expiry tries again. Who deletes `pt` waits for us. */
        lock_acquire(&g->timers_lock);
        pt->signal_pending = false;
        lock_release(&g->timers_lock);
    }
}

static struct posix_timer *find_locked(struct thread_group *g, int id)
{
    struct posix_timer *pt;
    TAILQ_FOREACH(pt, &g->posix_timers, entry)
        if (pt->id == id)
            return pt;
    return NULL;
}

/* timers_lock held */
static void posix_setting(const struct posix_timer *pt, uint64_t used, struct timer_setting *ret)
{
    setting_of(&pt->timer, pt->interval_ns, ret);
    if (timer_clock_is_cpu(pt->config.clock) && ret->value_ns != 0)
        ret->value_ns = pt->cpu_deadline_ns > used ? pt->cpu_deadline_ns - used : 1;
}

void posix_timer_delivered(struct thread_group *g, struct linux_siginfo *info)
{
    lock_acquire(&g->timers_lock);
    struct posix_timer *pt = find_locked(g, info->timer.tid);
    if (pt != NULL) {
        pt->signal_pending = false;
        pt->last_overrun = pt->pending_overrun;
        pt->pending_overrun = 0;
        info->timer.overrun = pt->last_overrun;
    }
    lock_release(&g->timers_lock);
}

int posix_timer_create(struct thread_group *g, const struct posix_timer_config *config)
{
    struct posix_timer *pt = calloc(1, sizeof *pt);
    if (pt == NULL)
        return -EAGAIN;
    pt->group = g;
    pt->config = *config;
    timer_init(&pt->timer, posix_fire);
    int id = -EAGAIN;
    lock_acquire(&g->timers_lock);
    bool has_room = g->posix_timer_count < POSIX_TIMERS_MAX &&
                    g->posix_timer_count < g->rlimits[RLIMIT_SIGPENDING].soft;
    if (has_room) {
        do { /* the numbers wrap, and those in use are passed over */
            id = pt->id = g->next_timer_id;
            g->next_timer_id = g->next_timer_id == INT32_MAX ? 0 : g->next_timer_id + 1;
        } while (find_locked(g, id) != NULL);
        TAILQ_INSERT_TAIL(&g->posix_timers, pt, entry);
        g->posix_timer_count++;
    }
    lock_release(&g->timers_lock);
    if (!has_room)
        free(pt);
    return id;
}

/* Cancels `pt`, which the caller has counted itself a user of; the last one frees a deleted timer. */
static void cancel_and_put(struct thread_group *g, struct posix_timer *pt)
{
    timer_cancel(&pt->timer);
    lock_acquire(&g->timers_lock);
    bool is_last = --pt->users == 0 && pt->is_deleted;
    lock_release(&g->timers_lock);
    if (is_last)
        free(pt);
}

int posix_timer_set(struct thread_group *g, int id, uint64_t deadline_ns, uint64_t interval_ns,
                    struct timer_setting *ret_old)
{
    uint64_t used = group_cpu_ns(g);
    lock_acquire(&g->timers_lock);
    struct posix_timer *pt = find_locked(g, id);
    if (pt == NULL) {
        lock_release(&g->timers_lock);
        return -EINVAL;
    }
    posix_setting(pt, used, ret_old);
    pt->interval_ns = interval_ns;
    pt->last_overrun = pt->pending_overrun = 0;
    pt->signal_pending = false;
    pt->cpu_deadline_ns = deadline_ns;
    if (deadline_ns != 0 && timer_clock_is_cpu(pt->config.clock))
        timer_arm(&pt->timer,
                  host_monotonic_ns() + cpu_wait_ns(deadline_ns > used ? deadline_ns - used : 0));
    else if (deadline_ns != 0)
        timer_arm(&pt->timer, deadline_ns);
    else
        pt->interval_ns = 0;
    bool cancels = deadline_ns == 0;
    pt->users += cancels;
    lock_release(&g->timers_lock);
    if (cancels)
        cancel_and_put(g, pt);
    return 0;
}

int posix_timer_get(struct thread_group *g, int id, struct timer_setting *ret)
{
    uint64_t used = group_cpu_ns(g);
    lock_acquire(&g->timers_lock);
    struct posix_timer *pt = find_locked(g, id);
    if (pt != NULL)
        posix_setting(pt, used, ret);
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
        g->posix_timer_count--;
        pt->interval_ns = 0;
        pt->is_deleted = true;
        pt->users++;
    }
    lock_release(&g->timers_lock);
    if (pt == NULL)
        return -EINVAL;
    cancel_and_put(g, pt);
    return 0;
}

void group_timers_release(struct thread_group *g, bool exec)
{
    struct timer_setting none = {0}, old;
    if (!exec) {
        lock_acquire(&g->timers_lock);
        g->timers_released = true;
        lock_release(&g->timers_lock);
    }
    for (int which = ITIMER_REAL; !exec && which <= ITIMER_PROF; which++) /* execve keeps them */
        if (g->itimers[which].timer.fire != NULL)
            itimer_set(g, which, &none, &old);
    if (!exec && g->itimers[ITIMER_CPU_LIMIT].timer.fire != NULL)
        timer_cancel(&g->itimers[ITIMER_CPU_LIMIT].timer);
    for (;;) {
        lock_acquire(&g->timers_lock);
        struct posix_timer *pt = TAILQ_FIRST(&g->posix_timers);
        int id = pt != NULL ? pt->id : -1;
        lock_release(&g->timers_lock);
        if (pt == NULL || posix_timer_delete(g, id) != 0)
            return;
    }
}
