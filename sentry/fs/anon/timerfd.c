/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timerfd_create(2). Like Linux's, a periodic timer that nobody reads stands still: it fires once, and the
 * read counts the periods that have passed and arms it again. So an idle guest wakes nobody.
 *
 * Locks: timerfd->lock (short) → the timer lock. fire() runs on the event thread and takes it too, so
 * timer_cancel() is never called under it.
 */
#include "sentry/fs/anon/timerfd.h"

#include "abi/restart.h"
#include "base/host.h"
#include "base/lock.h"
#include "sentry/mm/uaccess.h"
#include "sentry/sched/sched.h"
#include "sentry/sched/wait_queue.h"
#include "sentry/vfs/vfs.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>

#define NS_PER_SECOND 1000000000u
/* Far enough: 146 years; keeps sums within 63 bits. */
#define NS_MAX (INT64_MAX / 2)

struct timerfd {
    struct timer timer;
    int clock; /* immutable */
    struct lock lock;
    /* lock: */
    uint64_t next_ns;     /* the next expiry not yet counted; 0: disarmed. CLOCK_MONOTONIC */
    uint64_t interval_ns; /* 0: once */
    bool is_expired;      /* next_ns has passed, and the timer does not run */
    struct wait_queue wait;
};

static uint64_t to_ns(const struct linux_timespec *t)
{
    if (t->sec >= NS_MAX / NS_PER_SECOND)
        return NS_MAX;
    return (uint64_t)t->sec * NS_PER_SECOND + (uint64_t)t->nsec;
}

static struct linux_timespec from_ns(uint64_t ns)
{
    return (struct linux_timespec){.sec = (int64_t)(ns / NS_PER_SECOND), .nsec = (int64_t)(ns % NS_PER_SECOND)};
}

/* How much `clock` is ahead of CLOCK_MONOTONIC now. */
static int64_t clock_offset(int clock)
{
    if (clock == CLOCK_REALTIME)
        return host_realtime_ns() - (int64_t)host_monotonic_ns();
    if (clock == CLOCK_BOOTTIME) {
        struct timespec now = {0};
        clock_gettime(CLOCK_BOOTTIME, &now);
        return (int64_t)now.tv_sec * NS_PER_SECOND + now.tv_nsec - (int64_t)host_monotonic_ns();
    }
    return 0;
}

static void timerfd_fire(struct timer *timer)
{
    struct timerfd *t = container_of(timer, struct timerfd, timer);
    lock_acquire(&t->lock);
    bool is_due = t->next_ns && t->next_ns <= host_monotonic_ns();
    if (is_due)
        t->is_expired = true;
    else if (t->next_ns) /* set anew while this was on its way */
        timer_arm(&t->timer, t->next_ns);
    lock_release(&t->lock);
    if (is_due)
        wait_queue_wake(&t->wait, EPOLLIN);
}

/* A due time counts even when the event thread has not come to it yet. */
static bool is_expired_locked(struct timerfd *t)
{
    if (!t->is_expired && t->next_ns && t->next_ns <= host_monotonic_ns())
        t->is_expired = true;
    return t->is_expired;
}

/* Expiries up to now, which are thereby counted. */
static uint64_t take_expiries_locked(struct timerfd *t)
{
    if (!is_expired_locked(t))
        return 0;
    t->is_expired = false;
    if (!t->interval_ns) {
        t->next_ns = 0;
        return 1;
    }
    uint64_t now = host_monotonic_ns();
    uint64_t count = 1;
    if (now > t->next_ns)
        count += (now - t->next_ns) / t->interval_ns;
    t->next_ns += count * t->interval_ns;
    timer_arm(&t->timer, t->next_ns);
    return count;
}

struct attempt {
    struct timerfd *timerfd;
    uint64_t count;
};

static bool try_take(void *arg)
{
    struct attempt *a = arg;
    lock_acquire(&a->timerfd->lock);
    a->count = take_expiries_locked(a->timerfd);
    lock_release(&a->timerfd->lock);
    return a->count != 0;
}

static ssize_t timerfd_read(struct file *f, struct io *io, int64_t *pos)
{
    (void)pos;
    struct attempt a = {.timerfd = f->private_data};
    if (io->remaining < sizeof(a.count))
        return -EINVAL;
    if (!try_take(&a)) {
        if (f->flags & O_NONBLOCK)
            return -EAGAIN;
        if (wait_queue_sleep(&a.timerfd->wait, try_take, &a, FIBER_INTERRUPTIBLE, FIBER_NO_DEADLINE) < 0)
            return -ERESTARTSYS;
    }
    ssize_t moved = io_put(io, &a.count, sizeof(a.count));
    return moved == (ssize_t)sizeof(a.count) ? moved : -EFAULT;
}

static uint32_t timerfd_poll(struct file *f, struct poll_table *table)
{
    struct timerfd *t = f->private_data;
    poll_wait(table, &t->wait);
    lock_acquire(&t->lock);
    bool is_expired = is_expired_locked(t);
    lock_release(&t->lock);
    return is_expired ? EPOLLIN : 0;
}

static void timerfd_free(struct timerfd *t)
{
    timer_cancel(&t->timer);
    wait_queue_fini(&t->wait);
    lock_fini(&t->lock);
    free(t);
}

static void timerfd_release(struct file *f)
{
    timerfd_free(f->private_data);
}

static const struct file_ops timerfd_ops = {
    .read = timerfd_read,
    .poll = timerfd_poll,
    .release = timerfd_release,
    .lseek_is_noop = true,
};

int timerfd_new(const struct creds *creds, int clock, uint32_t flags, struct file **ret)
{
    struct timerfd *t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    timer_init(&t->timer, timerfd_fire);
    lock_init(&t->lock);
    wait_queue_init(&t->wait);
    t->clock = clock;
    int r = anon_file_new("anon_inode:[timerfd]", NULL, 0600, creds, O_RDWR | flags, &timerfd_ops, t, ret);
    if (r < 0)
        timerfd_free(t);
    return r;
}

/* Remaining time and interval; the remaining time of a periodic timer that stands still is what it would
 * be if it ran. */
static void get_locked(const struct timerfd *t, struct linux_itimerspec *ret)
{
    uint64_t now = host_monotonic_ns();
    uint64_t left = 0;
    if (t->next_ns > now)
        left = t->next_ns - now;
    else if (t->next_ns && t->interval_ns)
        left = t->interval_ns - (now - t->next_ns) % t->interval_ns;
    else if (t->next_ns && !t->is_expired)
        left = 1;
    *ret = (struct linux_itimerspec){.interval = from_ns(t->interval_ns), .value = from_ns(left)};
}

static uint64_t first_expiry(const struct timerfd *t, bool is_absolute, const struct linux_timespec *value)
{
    uint64_t ns = to_ns(value);
    if (ns == 0)
        return 0;
    if (!is_absolute)
        return host_monotonic_ns() + ns;
    int64_t at = (int64_t)ns - clock_offset(t->clock);
    return at > 0 ? (uint64_t)at : 1;
}

int timerfd_set(struct file *f, bool is_absolute, const struct linux_itimerspec *value,
                    struct linux_itimerspec *ret_old)
{
    if (f->ops != &timerfd_ops)
        return -EINVAL;
    struct timerfd *t = f->private_data;
    lock_acquire(&t->lock);
    get_locked(t, ret_old);
    t->is_expired = false;
    t->interval_ns = to_ns(&value->interval);
    t->next_ns = first_expiry(t, is_absolute, &value->value);
    timer_arm(&t->timer, t->next_ns ? t->next_ns : FIBER_NO_DEADLINE);
    lock_release(&t->lock);
    return 0;
}

int timerfd_get(struct file *f, struct linux_itimerspec *ret)
{
    if (f->ops != &timerfd_ops)
        return -EINVAL;
    struct timerfd *t = f->private_data;
    lock_acquire(&t->lock);
    get_locked(t, ret);
    lock_release(&t->lock);
    return 0;
}
