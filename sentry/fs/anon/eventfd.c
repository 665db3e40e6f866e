/* SPDX-License-Identifier: Apache-2.0 */
/* eventfd(2): a counter. Runs on fibers; the short lock is never held while bytes move. */
#include "sentry/fs/anon/eventfd.h"

#include "abi/restart.h"
#include "base/lock.h"
#include "sentry/mm/uaccess.h"
#include "sentry/sched/wait_queue.h"
#include "sentry/vfs/vfs.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>

#define COUNT_MAX (UINT64_MAX - 1)

struct eventfd {
    struct lock lock;
    uint64_t count; /* lock */
    bool is_semaphore; /* immutable */
    struct wait_queue wait;
};

static bool take(struct eventfd *e, uint64_t *ret)
{
    lock_acquire(&e->lock);
    uint64_t taken = e->is_semaphore && e->count ? 1 : e->count;
    e->count -= taken;
    lock_release(&e->lock);
    *ret = taken;
    return taken != 0;
}

static bool add(struct eventfd *e, uint64_t value)
{
    lock_acquire(&e->lock);
    bool fits = value <= COUNT_MAX - e->count;
    if (fits)
        e->count += value;
    lock_release(&e->lock);
    return fits;
}

struct attempt {
    struct eventfd *eventfd;
    uint64_t value;
};

static bool try_take(void *arg)
{
    struct attempt *a = arg;
    return take(a->eventfd, &a->value);
}

static bool try_add(void *arg)
{
    struct attempt *a = arg;
    return add(a->eventfd, a->value);
}

static int try_or_wait(struct file *f, bool (*attempt)(void *arg), struct attempt *a)
{
    if (attempt(a))
        return 0;
    if (f->flags & O_NONBLOCK)
        return -EAGAIN;
    if (wait_queue_sleep(&a->eventfd->wait, attempt, a, FIBER_INTERRUPTIBLE, FIBER_NO_DEADLINE) < 0)
        return -ERESTARTSYS;
    return 0;
}

static ssize_t eventfd_read(struct file *f, struct io *io, int64_t *pos)
{
    (void)pos;
    struct attempt a = {.eventfd = f->private_data};
    if (io->remaining < sizeof(a.value))
        return -EINVAL;
    int r = try_or_wait(f, try_take, &a);
    if (r < 0)
        return r;
    wait_queue_wake(&a.eventfd->wait, EPOLLOUT);
    ssize_t moved = io_put(io, &a.value, sizeof(a.value));
    return moved == (ssize_t)sizeof(a.value) ? moved : -EFAULT;
}

static ssize_t eventfd_write(struct file *f, struct io *io, int64_t *pos)
{
    (void)pos;
    struct attempt a = {.eventfd = f->private_data};
    if (io->remaining != sizeof(a.value))
        return -EINVAL;
    if (io_get(io, &a.value, sizeof(a.value)) != (ssize_t)sizeof(a.value))
        return -EFAULT;
    if (a.value == UINT64_MAX)
        return -EINVAL;
    int r = try_or_wait(f, try_add, &a);
    if (r < 0)
        return r;
    wait_queue_wake(&a.eventfd->wait, EPOLLIN);
    return sizeof(a.value);
}

static uint32_t eventfd_poll(struct file *f, struct poll_table *table)
{
    struct eventfd *e = f->private_data;
    poll_wait(table, &e->wait);
    lock_acquire(&e->lock);
    uint64_t count = e->count;
    lock_release(&e->lock);
    return (count > 0 ? (uint32_t)EPOLLIN : 0) | (count < COUNT_MAX ? (uint32_t)EPOLLOUT : 0);
}

static void eventfd_free(struct eventfd *e)
{
    wait_queue_fini(&e->wait);
    lock_fini(&e->lock);
    free(e);
}

static void eventfd_release(struct file *f)
{
    eventfd_free(f->private_data);
}

static const struct file_ops eventfd_ops = {
    .read = eventfd_read,
    .write = eventfd_write,
    .poll = eventfd_poll,
    .release = eventfd_release,
    .lseek_is_noop = true,
};

int eventfd_new(const struct creds *creds, uint64_t count, bool is_semaphore, uint32_t flags, struct file **ret)
{
    struct eventfd *e = calloc(1, sizeof(*e));
    if (!e)
        return -ENOMEM;
    lock_init(&e->lock);
    wait_queue_init(&e->wait);
    e->count = count;
    e->is_semaphore = is_semaphore;
    int r = anon_file_new("anon_inode:[eventfd]", NULL, 0600, creds, O_RDWR | flags, &eventfd_ops, e, ret);
    if (r < 0)
        eventfd_free(e);
    return r;
}
