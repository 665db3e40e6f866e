/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clocks, sleeping, interval and POSIX timers. Handlers run on the calling task's fiber.
 */
#define LOG_MODULE "syscalls"
#include "base/host.h"
#include "sentry/syscalls/rusage.h"
#include "sentry/syscalls/syscalls.h"
#include "sentry/syscalls/time_convert.h"
#include "sentry/task/host_facts.h"
#include "sentry/task/restart.h"
#include "sentry/task/table.h"
#include "sentry/task/timers.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#define NSEC 1000000000u

/* ---- conversions -------------------------------------------------------------------------------- */

int timespec_to_ns(const struct linux_timespec *ts, uint64_t *ret_ns)
{
    if (ts->sec < 0 || ts->nsec < 0 || ts->nsec >= NSEC)
        return -EINVAL;
    uint64_t ns;
    if (__builtin_mul_overflow((uint64_t)ts->sec, (uint64_t)NSEC, &ns) ||
        __builtin_add_overflow(ns, (uint64_t)ts->nsec, &ns) || ns > INT64_MAX)
        ns = INT64_MAX;
    *ret_ns = ns;
    return 0;
}

void ns_to_timespec(uint64_t ns, struct linux_timespec *ret)
{
    *ret = (struct linux_timespec){(int64_t)(ns / NSEC), (int64_t)(ns % NSEC)};
}

int timespec_copy_in(struct mm *mm, guest_addr addr, uint64_t *ret_ns)
{
    struct linux_timespec ts;
    if (copy_in_obj(mm, &ts, addr) != 0)
        return -EFAULT;
    return timespec_to_ns(&ts, ret_ns);
}

uint64_t deadline_after(uint64_t timeout_ns)
{
    uint64_t deadline;
    if (__builtin_add_overflow(host_monotonic_ns(), timeout_ns, &deadline))
        return FIBER_NO_DEADLINE - 1;
    return deadline;
}

int timeout_copy_in(struct mm *mm, guest_addr addr, uint64_t *ret_deadline_ns)
{
    uint64_t ns;
    int r = timespec_copy_in(mm, addr, &ns);
    if (r == 0)
        *ret_deadline_ns = deadline_after(ns);
    return r;
}

int deadline_of_clock(int clock, uint64_t time_ns, uint64_t *ret_deadline_ns)
{
    uint64_t now;
    switch (clock) {
    case CLOCK_MONOTONIC:
        *ret_deadline_ns = time_ns;
        return 0;
    case CLOCK_BOOTTIME:
    case CLOCK_BOOTTIME_ALARM:
        now = host_monotonic_ns() + host_facts()->boot_ns;
        break;
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_ALARM:
    case CLOCK_TAI:
        now = (uint64_t)host_realtime_ns();
        break;
    default:
        return -EINVAL;
    }
    *ret_deadline_ns = time_ns > now ? deadline_after(time_ns - now) : 0;
    return 0;
}

int clock_now(struct task *task, int clock, struct linux_timespec *ret)
{
    struct timespec ts;
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_REALTIME_COARSE:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_BOOTTIME:
    case CLOCK_REALTIME_ALARM:
    case CLOCK_BOOTTIME_ALARM:
    case CLOCK_TAI:
        if (clock_gettime(clock, &ts) != 0) /* #syscalls clock_gettime: clocks without a vDSO */
            return -EINVAL;
        *ret = (struct linux_timespec){ts.tv_sec, ts.tv_nsec};
        return 0;
    case CLOCK_PROCESS_CPUTIME_ID:
    case CLOCK_THREAD_CPUTIME_ID:
        ns_to_timespec(group_cpu_ns(task->group), ret);
        return 0;
    default:
        break;
    }
    if (clock >= 0)
        return -EINVAL;
    /* A process's or thread's CPU clock: ~id << 3 | kind. */
    int id = ~(clock >> 3);
    struct task *t = id == 0 ? NULL : task_find(id);
    if (id != 0 && t == NULL)
        return -EINVAL;
    ns_to_timespec(group_cpu_ns(t != NULL ? t->group : task->group), ret);
    task_put(t);
    return 0;
}

/* ---- clocks ------------------------------------------------------------------------------------- */

int64_t sys_clock_gettime(struct task *task, int clock, guest_addr tp)
{
    struct linux_timespec ts;
    int r = clock_now(task, clock, &ts);
    return r != 0 ? r : copy_out_obj(task->mm, tp, &ts);
}

int64_t sys_clock_getres(struct task *task, int clock, guest_addr tp)
{
    struct linux_timespec ts;
    int r = clock_now(task, clock, &ts);
    if (r != 0)
        return r;
    bool coarse = clock == CLOCK_REALTIME_COARSE || clock == CLOCK_MONOTONIC_COARSE;
    ts = (struct linux_timespec){0, coarse ? 4000000 : 1};
    return guest_addr_is_null(tp) ? 0 : copy_out_obj(task->mm, tp, &ts);
}

int64_t sys_clock_settime(struct task *task, int clock, guest_addr tp)
{
    struct linux_timespec ts;
    if (copy_in_obj(task->mm, &ts, tp) != 0)
        return -EFAULT;
    return clock == CLOCK_REALTIME ? -EPERM : -EINVAL;
}

int64_t sys_gettimeofday(struct task *task, guest_addr tv, guest_addr tz)
{
    int64_t now = host_realtime_ns();
    struct linux_timeval value = {now / NSEC, now % NSEC / 1000};
    int32_t zone[2] = {0, 0};
    if (!guest_addr_is_null(tv) && copy_out_obj(task->mm, tv, &value) != 0)
        return -EFAULT;
    if (!guest_addr_is_null(tz) && copy_out(task->mm, tz, zone, sizeof zone) != 0)
        return -EFAULT;
    return 0;
}

int64_t sys_time(struct task *task, guest_addr tloc)
{
    int64_t now = host_realtime_ns() / NSEC;
    if (!guest_addr_is_null(tloc) && copy_out_obj(task->mm, tloc, &now) != 0)
        return -EFAULT;
    return now;
}

/* ---- sleeping ----------------------------------------------------------------------------------- */

/* 0 or -EINTR. */
static int sleep_until(struct task *task, uint64_t deadline)
{
    int r;
    task->state = 'S';
    do
        r = fiber_park(FIBER_INTERRUPTIBLE, deadline);
    while (r == 0);
    task->state = 'R';
    return r == -ETIMEDOUT ? 0 : r;
}

static int64_t nanosleep_restart(struct task *task)
{
    uint64_t deadline = task->restart.args[0];
    if (sleep_until(task, deadline) == 0)
        return 0;
    uint64_t now = host_monotonic_ns();
    struct linux_timespec left;
    ns_to_timespec(deadline > now ? deadline - now : 0, &left);
    if (!guest_addr_is_null(task->restart.addr) &&
        copy_out_obj(task->mm, task->restart.addr, &left) != 0)
        return -EFAULT;
    return -ERESTART_RESTARTBLOCK;
}

static int64_t sleep_relative(struct task *task, uint64_t ns, guest_addr rem)
{
    task->restart.fn = nanosleep_restart;
    task->restart.args[0] = deadline_after(ns);
    task->restart.addr = rem;
    return nanosleep_restart(task);
}

int64_t sys_nanosleep(struct task *task, guest_addr req, guest_addr rem)
{
    uint64_t ns;
    int r = timespec_copy_in(task->mm, req, &ns);
    return r != 0 ? r : sleep_relative(task, ns, rem);
}

int64_t sys_clock_nanosleep(struct task *task, int clock, int flags, guest_addr req, guest_addr rem)
{
    uint64_t ns, deadline;
    if (clock == CLOCK_THREAD_CPUTIME_ID)
        return -EINVAL;
    if (clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_MONOTONIC_RAW)
        return -EOPNOTSUPP;
    int r = deadline_of_clock(clock, 0, &deadline);
    if (r == 0)
        r = timespec_copy_in(task->mm, req, &ns);
    if (r != 0)
        return r;
    if (!(flags & TIMER_ABSTIME))
        return sleep_relative(task, ns, rem);
    r = deadline_of_clock(clock, ns, &deadline);
    if (r == 0)
        r = sleep_until(task, deadline);
    return r == -EINTR ? -ERESTARTNOHAND : r;
}

int64_t sys_restart_syscall(struct task *task)
{
    int64_t (*fn)(struct task *) = task->restart.fn;
    task->restart.fn = NULL;
    if (fn == NULL)
        return -EINTR;
    int64_t r = fn(task);
    if (r == -ERESTART_RESTARTBLOCK)
        task->restart.fn = fn;
    return r;
}

/* ---- interval timers ---------------------------------------------------------------------------- */

struct linux_itimerval {
    struct linux_timeval interval, value;
};
struct linux_itimerspec {
    struct linux_timespec interval, value;
};

static int timeval_to_ns(const struct linux_timeval *tv, uint64_t *ret)
{
    if (tv->sec < 0 || tv->usec < 0 || tv->usec >= 1000000)
        return -EINVAL;
    struct linux_timespec ts = {tv->sec, tv->usec * 1000};
    return timespec_to_ns(&ts, ret);
}

static void setting_to_itimerval(const struct timer_setting *s, struct linux_itimerval *ret)
{
    uint64_t value = (s->value_ns + 999) / 1000, interval = s->interval_ns / 1000;
    ret->value = (struct linux_timeval){(int64_t)(value / 1000000), (int64_t)(value % 1000000)};
    ret->interval =
        (struct linux_timeval){(int64_t)(interval / 1000000), (int64_t)(interval % 1000000)};
}

int64_t sys_getitimer(struct task *task, int which, guest_addr value)
{
    struct timer_setting setting = {0};
    struct linux_itimerval out;
    if (which < ITIMER_REAL || which > ITIMER_PROF)
        return -EINVAL;
    itimer_get(task->group, which, &setting);
    setting_to_itimerval(&setting, &out);
    return copy_out_obj(task->mm, value, &out);
}

int64_t sys_setitimer(struct task *task, int which, guest_addr value, guest_addr old)
{
    struct timer_setting setting = {0}, previous = {0};
    struct linux_itimerval in = {0}, out;
    if (which != ITIMER_REAL && which != ITIMER_VIRTUAL && which != ITIMER_PROF)
        return -EINVAL;
    if (!guest_addr_is_null(value) && copy_in_obj(task->mm, &in, value) != 0)
        return -EFAULT;
    if (timeval_to_ns(&in.value, &setting.value_ns) != 0 ||
        timeval_to_ns(&in.interval, &setting.interval_ns) != 0)
        return -EINVAL;
    itimer_set(task->group, which, &setting, &previous);
    setting_to_itimerval(&previous, &out);
    if (!guest_addr_is_null(old) && copy_out_obj(task->mm, old, &out) != 0)
        return -EFAULT;
    return 0;
}

int64_t sys_alarm(struct task *task, uint32_t seconds)
{
    struct timer_setting setting = {.value_ns = (uint64_t)seconds * NSEC}, old;
    itimer_set(task->group, ITIMER_REAL, &setting, &old);
    if (old.value_ns == 0)
        return 0;
    uint64_t left = (old.value_ns + NSEC / 2) / NSEC;
    return left > 0 ? (int64_t)left : 1;
}

struct linux_sigevent {
    uint64_t value;
    int32_t signo, notify, tid;
    uint8_t pad[44];
};
static_assert(sizeof(struct linux_sigevent) == 64, "sigevent");

int64_t sys_timer_create(struct task *task, int clock, guest_addr sevp, guest_addr timerid)
{
    struct posix_timer_config config = {.clock = clock, .notify = SIGEV_SIGNAL, .signo = SIGALRM};
    uint64_t unused;
    int r = timer_clock_is_cpu(clock) ? 0 : deadline_of_clock(clock, 0, &unused);
    if (r != 0)
        return r;
    if (clock < 0)
        config.clock = (clock & 4) ? CLOCK_THREAD_CPUTIME_ID : CLOCK_PROCESS_CPUTIME_ID;
    config.value_is_id = guest_addr_is_null(sevp);
    if (!config.value_is_id) {
        struct linux_sigevent event;
        if (copy_in_obj(task->mm, &event, sevp) != 0)
            return -EFAULT;
        config.notify = event.notify;
        config.signo = event.signo;
        config.tid = event.tid;
        config.value = event.value;
        bool sends = event.notify == SIGEV_SIGNAL || event.notify == SIGEV_THREAD_ID;
        if (!sends && event.notify != SIGEV_NONE)
            return -EINVAL;
        if (sends && (event.signo < 1 || event.signo > LINUX_NSIG))
            return -EINVAL;
        if (event.notify == SIGEV_THREAD_ID) {
            struct task *t = task_find(event.tid);
            bool ok = t != NULL && t->group == task->group;
            task_put(t);
            if (!ok)
                return -EINVAL;
        }
    }
    int id = posix_timer_create(task->group, &config);
    if (id < 0)
        return id;
    int32_t out = id;
    r = copy_out_obj(task->mm, timerid, &out);
    if (r != 0 && posix_timer_delete(task->group, id) != 0)
        return -EFAULT;
    return r;
}

static void setting_to_itimerspec(const struct timer_setting *s, struct linux_itimerspec *ret)
{
    ns_to_timespec(s->value_ns, &ret->value);
    ns_to_timespec(s->interval_ns, &ret->interval);
}

int64_t sys_timer_settime(struct task *task, int timerid, int flags, guest_addr value, guest_addr old)
{
    struct linux_itimerspec in, out;
    uint64_t value_ns, interval_ns, deadline = 0;
    struct timer_setting previous;
    if (guest_addr_is_null(value))
        return -EINVAL;
    if (copy_in_obj(task->mm, &in, value) != 0)
        return -EFAULT;
    if (timespec_to_ns(&in.value, &value_ns) != 0 || timespec_to_ns(&in.interval, &interval_ns) != 0)
        return -EINVAL;
    int clock = posix_timer_clock(task->group, timerid);
    if (clock < 0)
        return -EINVAL;
    int r = 0;
    bool is_absolute = (flags & TIMER_ABSTIME) != 0;
    if (value_ns != 0 && timer_clock_is_cpu(clock))
        deadline = is_absolute ? value_ns : group_cpu_ns(task->group) + value_ns;
    else if (value_ns != 0 && is_absolute)
        r = deadline_of_clock(clock, value_ns, &deadline);
    else if (value_ns != 0)
        deadline = deadline_after(value_ns);
    if (value_ns != 0 && deadline == 0)
        deadline = 1; /* in the past: fires at once */
    if (r == 0)
        r = posix_timer_set(task->group, timerid, deadline, interval_ns, &previous);
    if (r != 0)
        return r;
    setting_to_itimerspec(&previous, &out);
    return guest_addr_is_null(old) ? 0 : copy_out_obj(task->mm, old, &out);
}

int64_t sys_timer_gettime(struct task *task, int timerid, guest_addr value)
{
    struct timer_setting setting;
    struct linux_itimerspec out;
    int r = posix_timer_get(task->group, timerid, &setting);
    if (r != 0)
        return r;
    setting_to_itimerspec(&setting, &out);
    return copy_out_obj(task->mm, value, &out);
}

int64_t sys_timer_getoverrun(struct task *task, int timerid)
{
    return posix_timer_overrun(task->group, timerid);
}

int64_t sys_timer_delete(struct task *task, int timerid)
{
    return posix_timer_delete(task->group, timerid);
}
