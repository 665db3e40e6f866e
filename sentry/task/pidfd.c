/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Process descriptors. Readable once the process is a zombie. Any fiber.
 */
#include "sentry/task/pidfd.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>

static uint32_t pidfd_poll(struct file *f, struct poll_table *table)
{
    struct thread_group *g = f->private_data;
    poll_wait(table, &g->exit_wait);
    tasks_lock();
    bool is_alive = g->state == GROUP_ALIVE;
    tasks_unlock();
    return is_alive ? 0 : EPOLLIN | EPOLLRDNORM;
}

static void pidfd_release(struct file *f)
{
    group_put(f->private_data);
}

static const struct file_ops pidfd_ops = {
    .poll = pidfd_poll,
    .release = pidfd_release,
};

int pidfd_new(struct thread_group *g, struct creds *creds, uint32_t flags, struct file **ret)
{
    group_get(g);
    int r = anon_file_new("anon_inode:[pidfd]", NULL, 0600, creds, O_RDWR | flags, &pidfd_ops, g, ret);
    if (r != 0)
        group_put(g);
    return r;
}

struct thread_group *pidfd_group(struct file *f)
{
    if (f->ops != &pidfd_ops)
        return NULL;
    struct thread_group *g = f->private_data;
    group_get(g);
    return g;
}
