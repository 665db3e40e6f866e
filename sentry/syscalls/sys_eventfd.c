/* SPDX-License-Identifier: Apache-2.0 */
/* pipe(2), eventfd(2), timerfd_create(2) and kin. On the calling task's fiber. */
#define LOG_MODULE "syscalls"
#include "abi/poll.h"
#include "sentry/fs/anon/eventfd.h"
#include "sentry/fs/anon/timerfd.h"
#include "sentry/fs/pipe/pipe.h"
#include "sentry/mm/uaccess.h"
#include "sentry/syscalls/syscalls.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>

#define NOTIFICATION_PIPE 0200 /* O_NOTIFICATION_PIPE = O_EXCL */

static int64_t install(struct task *task, struct file **f, bool cloexec)
{
    int r = fd_table_install(task->fds, *f, 0, task_rlimit(task, RLIMIT_NOFILE), cloexec);
    if (r >= 0)
        *f = NULL;
    return r;
}

/* ---- pipe ---------------------------------------------------------------------------------------- */

int64_t sys_pipe2(struct task *task, guest_addr fds, int flags)
{
    if (flags & ~(O_CLOEXEC | O_NONBLOCK | O_DIRECT | NOTIFICATION_PIPE))
        return -EINVAL;
    if (flags & NOTIFICATION_PIPE)
        return -ENOPKG;
    AUTO_FILE reader = NULL;
    AUTO_FILE writer = NULL;
    int r = pipe_new(task->creds, (uint32_t)flags & (O_NONBLOCK | O_DIRECT), &reader, &writer);
    if (r < 0)
        return r;
    int32_t numbers[2];
    int64_t fd = install(task, &reader, flags & O_CLOEXEC);
    if (fd < 0)
        return fd;
    numbers[0] = (int32_t)fd;
    fd = install(task, &writer, flags & O_CLOEXEC);
    if (fd < 0) {
        (void)fd_table_close(task->fds, numbers[0]);
        return fd;
    }
    numbers[1] = (int32_t)fd;
    r = copy_out_obj(task->mm, fds, &numbers);
    if (r < 0) {
        (void)fd_table_close(task->fds, numbers[0]);
        (void)fd_table_close(task->fds, numbers[1]);
    }
    return r;
}

int64_t sys_pipe(struct task *task, guest_addr fds)
{
    return sys_pipe2(task, fds, 0);
}

/* ---- eventfd ------------------------------------------------------------------------------------- */

int64_t sys_eventfd2(struct task *task, uint32_t count, int flags)
{
    if (flags & ~(EFD_SEMAPHORE | EFD_CLOEXEC | EFD_NONBLOCK))
        return -EINVAL;
    AUTO_FILE f = NULL;
    int r = eventfd_new(task->creds, count, flags & EFD_SEMAPHORE, (uint32_t)flags & O_NONBLOCK, &f);
    return r < 0 ? r : install(task, &f, flags & EFD_CLOEXEC);
}

int64_t sys_eventfd(struct task *task, uint32_t count)
{
    return sys_eventfd2(task, count, 0);
}

/* ---- timerfd ------------------------------------------------------------------------------------- */

/* The clock that counts for `clock`, or -errno. */
static int timerfd_clock(const struct task *task, int clock)
{
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_MONOTONIC:
    case CLOCK_BOOTTIME:
        return clock;
    case CLOCK_REALTIME_ALARM:
    case CLOCK_BOOTTIME_ALARM:
        if (!creds_capable(task->creds, CAP_WAKE_ALARM))
            return -EPERM;
        return clock == CLOCK_REALTIME_ALARM ? CLOCK_REALTIME : CLOCK_BOOTTIME;
    }
    return -EINVAL;
}

int64_t sys_timerfd_create(struct task *task, int clock, int flags)
{
    if (flags & ~(TFD_CLOEXEC | TFD_NONBLOCK))
        return -EINVAL;
    int counted = timerfd_clock(task, clock);
    if (counted < 0)
        return counted;
    AUTO_FILE f = NULL;
    int r = timerfd_new(task->creds, counted, (uint32_t)flags & O_NONBLOCK, &f);
    return r < 0 ? r : install(task, &f, flags & TFD_CLOEXEC);
}

static bool is_valid_time(const struct linux_timespec *t)
{
    return t->sec >= 0 && t->nsec >= 0 && t->nsec < 1000000000;
}

int64_t sys_timerfd_settime(struct task *task, int fd, int flags, guest_addr value, guest_addr old)
{
    struct linux_itimerspec new_value, old_value;
    if (copy_in_obj(task->mm, &new_value, value) < 0)
        return -EFAULT;
    if (flags & ~(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET))
        return -EINVAL;
    if (!is_valid_time(&new_value.value) || !is_valid_time(&new_value.interval))
        return -EINVAL;
    AUTO_FILE f = fd_table_get_file(task->fds, fd);
    if (!f)
        return -EBADF;
    int r = timerfd_set(f, flags & TFD_TIMER_ABSTIME, &new_value, &old_value);
    if (r < 0 || guest_addr_is_null(old))
        return r;
    return copy_out_obj(task->mm, old, &old_value);
}

int64_t sys_timerfd_gettime(struct task *task, int fd, guest_addr value)
{
    AUTO_FILE f = fd_table_get_file(task->fds, fd);
    if (!f)
        return -EBADF;
    struct linux_itimerspec now;
    int r = timerfd_get(f, &now);
    return r < 0 ? r : copy_out_obj(task->mm, value, &now);
}
