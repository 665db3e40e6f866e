/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signalfd(2). Runs on the calling task's fiber: whoever reads or polls the file sees its own signals. The
 * file is here and not in fs/anon, because it needs tasks.
 */
#define LOG_MODULE "syscalls"
#include "abi/poll.h"
#include "base/lock.h"
#include "sentry/mm/uaccess.h"
#include "sentry/syscalls/hooks.h"
#include "sentry/syscalls/syscalls.h"
#include "sentry/task/restart.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>

/* A wait queue must live as long as the file, and signals wake the queue of a process: so the file keeps
 * those of all processes that polled it. */
struct held_sighand {
    SLIST_ENTRY(held_sighand) entry;
    struct sighand *sighand; /* ref */
};

struct signalfd {
    _Atomic uint64_t mask;
    struct lock lock;
    SLIST_HEAD(, held_sighand) held; /* lock */
};

SLIST_HEAD(held_list, held_sighand);

/* Of processes that are gone, with nobody in their queue: only this file has them left. */
static void take_unused_locked(struct signalfd *s, struct held_list *out)
{
    struct held_sighand *h, *next;
    SLIST_FOREACH_SAFE(h, &s->held, entry, next)
    {
        if (atomic_load(&h->sighand->refs) != 1 || atomic_load(&h->sighand->signalfd_wait.count) != 0)
            continue;
        SLIST_REMOVE(&s->held, h, held_sighand, entry);
        SLIST_INSERT_HEAD(out, h, entry);
    }
}

static void put_held(struct held_list *list)
{
    struct held_sighand *h;
    while ((h = SLIST_FIRST(list)) != NULL) {
        SLIST_REMOVE_HEAD(list, entry);
        sighand_put(h->sighand);
        free(h);
    }
}

/* False without memory. */
static bool hold_sighand(struct signalfd *s, struct sighand *sighand)
{
    struct held_list unused = SLIST_HEAD_INITIALIZER(unused);
    struct held_sighand *fresh = malloc(sizeof(*fresh));
    struct held_sighand *h;
    bool is_held = false;
    lock_acquire(&s->lock);
    SLIST_FOREACH(h, &s->held, entry)
    {
        is_held = is_held || h->sighand == sighand;
    }
    if (!is_held && fresh) {
        take_unused_locked(s, &unused);
        atomic_fetch_add(&sighand->refs, 1);
        fresh->sighand = sighand;
        SLIST_INSERT_HEAD(&s->held, fresh, entry);
        is_held = true;
        fresh = NULL;
    }
    lock_release(&s->lock);
    free(fresh);
    put_held(&unused);
    return is_held;
}

static void fill_by_code(const struct linux_siginfo *info, struct linux_signalfd_siginfo *ret)
{
    if (info->code == SI_TIMER) {
        ret->tid = (uint32_t)info->timer.tid;
        ret->overrun = (uint32_t)info->timer.overrun;
        ret->value_ptr = info->timer.value;
        ret->value_int = (int32_t)info->timer.value;
        return;
    }
    ret->pid = (uint32_t)info->rt.pid;
    ret->uid = info->rt.uid;
    if (info->signo == SIGCHLD && info->code > 0) {
        ret->status = info->chld.status;
        ret->utime = (uint64_t)info->chld.utime;
        ret->stime = (uint64_t)info->chld.stime;
        return;
    }
    ret->value_ptr = info->rt.value;
    ret->value_int = (int32_t)info->rt.value;
}

static void fill(const struct linux_siginfo *info, struct linux_signalfd_siginfo *ret)
{
    *ret = (struct linux_signalfd_siginfo){
        .signo = (uint32_t)info->signo, .error = info->error, .code = info->code};
    if (info->code > 0 && info->code != SI_KERNEL &&
        (info->signo == SIGSEGV || info->signo == SIGBUS || info->signo == SIGILL || info->signo == SIGFPE ||
         info->signo == SIGTRAP)) {
        ret->addr = info->fault.addr;
    } else if (info->code > 0 && info->code != SI_KERNEL && info->signo == SIGIO) {
        ret->band = (uint32_t)info->poll.band;
        ret->fd = info->poll.fd;
    } else {
        fill_by_code(info, ret);
    }
}

struct attempt {
    struct task *task;
    uint64_t mask;
};

static bool is_one_pending(void *arg)
{
    const struct attempt *a = arg;
    return signal_pending_set(a->task) & a->mask;
}

/* One signal, waiting for it if `wait`. */
static int take_signal(struct attempt *a, bool wait, struct linux_siginfo *ret)
{
    for (;;) {
        if (signal_dequeue(a->task, a->mask, ret) > 0)
            return 0;
        if (!wait)
            return -EAGAIN;
        struct wait_queue *q = &a->task->group->sighand->signalfd_wait;
        if (wait_queue_sleep(q, is_one_pending, a, FIBER_INTERRUPTIBLE, FIBER_NO_DEADLINE) < 0)
            return -ERESTARTSYS;
    }
}

static ssize_t signalfd_read(struct file *f, struct io *io, int64_t *pos)
{
    (void)pos;
    struct signalfd *s = f->private_data;
    struct attempt a = {.task = calling_task(), .mask = s->mask};
    ssize_t done = 0;
    if (!a.task || io->remaining < sizeof(struct linux_signalfd_siginfo))
        return -EINVAL;
    while (io->remaining >= sizeof(struct linux_signalfd_siginfo)) {
        struct linux_siginfo info;
        int r = take_signal(&a, !done && !(f->flags & O_NONBLOCK), &info);
        if (r < 0)
            return done ? done : r;
        struct linux_signalfd_siginfo out;
        fill(&info, &out);
        if (io_put(io, &out, sizeof(out)) != (ssize_t)sizeof(out))
            return done ? done : -EFAULT;
        done += (ssize_t)sizeof(out);
    }
    return done;
}

static uint32_t signalfd_poll(struct file *f, struct poll_table *table)
{
    struct signalfd *s = f->private_data;
    struct task *task = calling_task();
    if (!task)
        return 0;
    struct sighand *sighand = task->group->sighand;
    if (table && hold_sighand(s, sighand))
        poll_wait(table, &sighand->signalfd_wait);
    return signal_pending_set(task) & s->mask ? EPOLLIN : 0;
}

static void signalfd_free(struct signalfd *s)
{
    struct held_sighand *h;
    while ((h = SLIST_FIRST(&s->held))) {
        SLIST_REMOVE_HEAD(&s->held, entry);
        sighand_put(h->sighand);
        free(h);
    }
    lock_fini(&s->lock);
    free(s);
}

static void signalfd_release(struct file *f)
{
    signalfd_free(f->private_data);
}

static const struct file_ops signalfd_ops = {
    .read = signalfd_read,
    .poll = signalfd_poll,
    .release = signalfd_release,
    .lseek_is_noop = true,
};

static int64_t make_signalfd(struct task *task, uint64_t mask, int flags)
{
    struct signalfd *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    lock_init(&s->lock);
    s->mask = mask;
    AUTO_FILE f = NULL;
    int r = anon_file_new("anon_inode:[signalfd]", NULL, 0600, task->creds,
                          O_RDWR | ((uint32_t)flags & O_NONBLOCK), &signalfd_ops, s, &f);
    if (r < 0) {
        signalfd_free(s);
        return r;
    }
    r = fd_table_install(task->fds, f, 0, task_rlimit(task, RLIMIT_NOFILE), flags & SFD_CLOEXEC);
    if (r >= 0)
        f = NULL;
    return r;
}

int64_t sys_signalfd4(struct task *task, int fd, guest_addr mask, uint64_t sigsetsize, int flags)
{
    uint64_t set;
    if (sigsetsize != sizeof(set) || (flags & ~(SFD_CLOEXEC | SFD_NONBLOCK)))
        return -EINVAL;
    if (copy_in_obj(task->mm, &set, mask) < 0)
        return -EFAULT;
    set &= ~SIGSET_UNMASKABLE;
    if (fd == -1)
        return make_signalfd(task, set, flags);
    AUTO_FILE f = fd_table_get_file(task->fds, fd);
    if (!f)
        return -EBADF;
    if (f->ops != &signalfd_ops)
        return -EINVAL;
    struct signalfd *s = f->private_data;
    s->mask = set;
    wait_queue_wake_all(&task->group->sighand->signalfd_wait, 0);
    return fd;
}

int64_t sys_signalfd(struct task *task, int fd, guest_addr mask, uint64_t sigsetsize)
{
    return sys_signalfd4(task, fd, mask, sigsetsize, 0);
}
