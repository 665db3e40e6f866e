/* SPDX-License-Identifier: Apache-2.0 */
/* epoll_create(2), epoll_ctl(2), epoll_wait(2) and kin. On the calling task's fiber. */
#define LOG_MODULE "syscalls"
#include "abi/poll.h"
#include "base/host.h"
#include "sentry/fs/anon/epoll.h"
#include "sentry/mm/uaccess.h"
#include "sentry/syscalls/deadline.h"
#include "sentry/syscalls/syscalls.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/epoll.h>

#define EVENTS_ON_STACK 32
#define EVENTS_AT_ONCE  1024 /* more than this are left for the next call */

int64_t sys_epoll_create1(struct task *task, int flags)
{
    if (flags & ~EPOLL_CLOEXEC)
        return -EINVAL;
    AUTO_FILE f = NULL;
    int r = epoll_new(task->creds, &f);
    if (r < 0)
        return r;
    r = fd_table_install(task->fds, f, 0, task_rlimit(task, RLIMIT_NOFILE), flags & EPOLL_CLOEXEC);
    if (r >= 0)
        f = NULL;
    return r;
}

int64_t sys_epoll_create(struct task *task, int size)
{
    return size <= 0 ? -EINVAL : sys_epoll_create1(task, 0);
}

int64_t sys_epoll_ctl(struct task *task, int epfd, int op, int fd, guest_addr event)
{
    struct linux_epoll_event e = {0};
    if (op != EPOLL_CTL_DEL && copy_in_obj(task->mm, &e, event) < 0)
        return -EFAULT;
    AUTO_FILE epoll = fd_table_get_file(task->fds, epfd);
    if (!epoll)
        return -EBADF;
    AUTO_FILE target = fd_table_get_file(task->fds, fd);
    if (!target)
        return -EBADF;
    return epoll_control(epoll, op, fd, target, &e);
}

static int64_t do_epoll_wait(struct task *task, int epfd, guest_addr events, int max, uint64_t deadline_ns)
{
    if (max <= 0 || (size_t)max > INT_MAX / sizeof(struct linux_epoll_event))
        return -EINVAL;
    AUTO_FILE epoll = fd_table_get_file(task->fds, epfd);
    if (!epoll)
        return -EBADF;
    if (!file_is_epoll(epoll))
        return -EINVAL;
    struct linux_epoll_event on_stack[EVENTS_ON_STACK];
    struct linux_epoll_event *found = on_stack;
    AUTO_FREE void *buffer = NULL;
    if (max > EVENTS_ON_STACK) {
        max = max > EVENTS_AT_ONCE ? EVENTS_AT_ONCE : max;
        found = buffer = malloc((size_t)max * sizeof(*found));
        if (!buffer)
            return -ENOMEM;
    }
    int count = epoll_collect(epoll, found, max, deadline_ns);
    if (count <= 0)
        return count;
    int r = copy_out(task->mm, events, found, (size_t)count * sizeof(*found));
    return r < 0 ? r : count;
}

int64_t sys_epoll_wait(struct task *task, int epfd, guest_addr events, int max, int timeout)
{
    return do_epoll_wait(task, epfd, events, max, deadline_from_ms(timeout));
}

static int64_t masked_epoll_wait(struct task *task, int epfd, guest_addr events, int max,
                                 const struct wait_arguments *w)
{
    wait_arguments_set_mask(task, w);
    int64_t r = do_epoll_wait(task, epfd, events, max, w->deadline_ns);
    if (w->has_mask && r != -EINTR)
        signal_mask_restore(task);
    return r;
}

int64_t sys_epoll_pwait(struct task *task, int epfd, guest_addr events, int max, int timeout,
                        guest_addr sigmask, uint64_t sigsetsize)
{
    struct wait_arguments w;
    int r = wait_arguments_read(task, GUEST_NULL, WAIT_TIMESPEC, sigmask, sigsetsize, &w);
    if (r < 0)
        return r;
    w.deadline_ns = deadline_from_ms(timeout);
    return masked_epoll_wait(task, epfd, events, max, &w);
}

int64_t sys_epoll_pwait2(struct task *task, int epfd, guest_addr events, int max, guest_addr timeout,
                         guest_addr sigmask, uint64_t sigsetsize)
{
    struct wait_arguments w;
    int r = wait_arguments_read(task, timeout, WAIT_TIMESPEC, sigmask, sigsetsize, &w);
    if (r < 0)
        return r;
    return masked_epoll_wait(task, epfd, events, max, &w);
}
