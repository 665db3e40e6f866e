/* SPDX-License-Identifier: Apache-2.0 */
/* Time-outs and temporary signal masks of poll, select and epoll. On the calling task's fiber. */
#include "sentry/syscalls/deadline.h"

#include "abi/socket.h"
#include "base/host.h"
#include "sentry/mm/uaccess.h"
#include "sentry/sched/fiber.h"
#include "sentry/task/task.h"
#include <errno.h>

#define NS_PER_SECOND 1000000000u

/* Saturates below FIBER_NO_DEADLINE; nothing to wait for is 0. */
static uint64_t deadline_after(uint64_t ns)
{
    if (ns == 0)
        return 0;
    uint64_t now = host_monotonic_ns();
    return ns >= INT64_MAX - now ? INT64_MAX : now + ns;
}

uint64_t deadline_from_ms(int timeout_ms)
{
    if (timeout_ms < 0)
        return FIBER_NO_DEADLINE;
    return deadline_after((uint64_t)timeout_ms * 1000000u);
}

static uint64_t saturated_ns(int64_t seconds, int64_t ns)
{
    if (seconds >= INT64_MAX / NS_PER_SECOND)
        return INT64_MAX;
    return (uint64_t)seconds * NS_PER_SECOND + (uint64_t)ns;
}

int deadline_from_timespec(const struct linux_timespec *t, uint64_t *ret)
{
    if (t->sec < 0 || t->nsec < 0 || t->nsec >= NS_PER_SECOND)
        return -EINVAL;
    *ret = deadline_after(saturated_ns(t->sec, t->nsec));
    return 0;
}

/* select's microseconds may exceed a second. */
static int deadline_from_timeval(const struct linux_timeval *t, uint64_t *ret)
{
    if (t->sec < 0 || t->usec < 0)
        return -EINVAL;
    int64_t seconds;
    if (__builtin_add_overflow(t->sec, t->usec / 1000000, &seconds))
        seconds = INT64_MAX;
    *ret = deadline_after(saturated_ns(seconds, t->usec % 1000000 * 1000));
    return 0;
}

static int read_timeout(struct task *task, struct wait_arguments *w)
{
    w->deadline_ns = FIBER_NO_DEADLINE;
    if (guest_addr_is_null(w->timeout))
        return 0;
    if (w->shape == WAIT_TIMEVAL) {
        struct linux_timeval t;
        if (copy_in_obj(task->mm, &t, w->timeout) < 0)
            return -EFAULT;
        return deadline_from_timeval(&t, &w->deadline_ns);
    }
    struct linux_timespec t;
    if (copy_in_obj(task->mm, &t, w->timeout) < 0)
        return -EFAULT;
    return deadline_from_timespec(&t, &w->deadline_ns);
}

int wait_arguments_read(struct task *task, guest_addr timeout, enum wait_timeout_shape shape,
                        guest_addr sigmask, uint64_t sigsetsize, struct wait_arguments *ret)
{
    struct wait_arguments w = {.timeout = timeout, .shape = shape};
    int r = read_timeout(task, &w);
    if (r < 0)
        return r;
    if (!guest_addr_is_null(sigmask)) {
        if (sigsetsize != sizeof(w.mask))
            return -EINVAL;
        if (copy_in_obj(task->mm, &w.mask, sigmask) < 0)
            return -EFAULT;
        w.has_mask = true;
    }
    *ret = w;
    return 0;
}

void wait_arguments_set_mask(struct task *task, const struct wait_arguments *w)
{
    if (w->has_mask)
        signal_mask_set_temporary(task, w->mask);
}

static uint64_t time_left(uint64_t deadline_ns)
{
    uint64_t now = host_monotonic_ns();
    return deadline_ns > now ? deadline_ns - now : 0;
}

void wait_arguments_write_left(struct task *task, const struct wait_arguments *w)
{
    if (guest_addr_is_null(w->timeout))
        return;
    uint64_t left = time_left(w->deadline_ns);
    int r;
    if (w->shape == WAIT_TIMEVAL) {
        struct linux_timeval t = {.sec = (int64_t)(left / NS_PER_SECOND),
                                  .usec = (int64_t)(left % NS_PER_SECOND / 1000)};
        r = copy_out_obj(task->mm, w->timeout, &t);
    } else {
        struct linux_timespec t = {.sec = (int64_t)(left / NS_PER_SECOND),
                                   .nsec = (int64_t)(left % NS_PER_SECOND)};
        r = copy_out_obj(task->mm, w->timeout, &t);
    }
    (void)r;
}
