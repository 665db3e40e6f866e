/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another process's memory: process_vm_readv(2), process_vm_writev(2), process_madvise(2). Handlers
 * run on the calling task's fiber; both address spaces are guests'.
 */
#define LOG_MODULE "syscalls"
#include "sentry/syscalls/syscalls.h"
#include "sentry/task/pidfd.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define CAP_SYS_PTRACE_BIT 19
#define PIECE_SIZE         KIB(64)

#ifndef MADV_COLD
#define MADV_COLD    20
#define MADV_PAGEOUT 21
#endif

/* PTRACE_MODE_ATTACH_REALCREDS of ptrace(2), without namespaces. */
bool task_may_attach(struct task *task, struct task *target)
{
    if (task->group == target->group)
        return true;
    if (creds_capable(task->creds, CAP_SYS_PTRACE_BIT))
        return true;
    struct creds *theirs = task_get_creds(target);
    const struct creds *ours = task->creds;
    bool same = ours->uid == theirs->euid && ours->uid == theirs->suid &&
                ours->uid == theirs->uid && ours->gid == theirs->egid &&
                ours->gid == theirs->sgid && ours->gid == theirs->gid;
    bool covers = (theirs->cap_permitted & ~ours->cap_permitted) == 0;
    creds_put(theirs);
    return same && covers && target->group->dumpable;
}

/* The other side's memory with a reference: 0, -ESRCH, -EPERM. */
static int open_memory(struct task *task, int pid, struct mm **ret)
{
    struct task *target = task_find(pid);
    if (target == NULL)
        return -ESRCH;
    int r = -ESRCH;
    struct mm *mm = task_get_mm(target);
    if (mm != NULL)
        r = task_may_attach(task, target) ? 0 : -EPERM;
    task_put(target);
    if (r == 0)
        *ret = mm;
    else
        mm_put(mm);
    return r;
}

/* Copies until one side ends or refuses: bytes moved, or -errno if none. */
static ssize_t transfer(struct io *from, struct io *to)
{
    uint8_t *piece = malloc(PIECE_SIZE);
    if (piece == NULL)
        return -ENOMEM;
    ssize_t done = 0, r = 0;
    while (from->remaining != 0 && to->remaining != 0) {
        size_t wanted = to->remaining < PIECE_SIZE ? (size_t)to->remaining : PIECE_SIZE;
        ssize_t got = r = io_get(from, piece, wanted);
        if (got <= 0)
            break;
        ssize_t put = r = io_put(to, piece, (size_t)got);
        if (put <= 0)
            break;
        done += put;
        if (put < got)
            break;
    }
    free(piece);
    return done != 0 ? done : r;
}

static int64_t process_vm(struct task *task, int pid, guest_addr local, uint64_t local_count,
                          guest_addr remote, uint64_t remote_count, uint64_t flags, bool is_write)
{
    if (flags != 0)
        return -EINVAL;
    AUTO_IO ours = {0};
    AUTO_IO theirs = {0};
    io_init_kernel(&ours, NULL, 0);
    io_init_kernel(&theirs, NULL, 0);
    int r = io_init_iovec(&ours, task->mm, local, local_count);
    if (r < 0)
        return r;
    if (ours.remaining == 0)
        return 0;
    r = io_init_iovec(&theirs, task->mm, remote, remote_count);
    if (r < 0)
        return r;
    struct mm *mm;
    r = open_memory(task, pid, &mm);
    if (r < 0)
        return r;
    theirs.mm = mm;
    ssize_t done = is_write ? transfer(&ours, &theirs) : transfer(&theirs, &ours);
    mm_put(mm);
    return done;
}

int64_t sys_process_vm_readv(struct task *task, int pid, guest_addr local, uint64_t local_count,
                             guest_addr remote, uint64_t remote_count, uint64_t flags)
{
    return process_vm(task, pid, local, local_count, remote, remote_count, flags, false);
}

int64_t sys_process_vm_writev(struct task *task, int pid, guest_addr local, uint64_t local_count,
                              guest_addr remote, uint64_t remote_count, uint64_t flags)
{
    return process_vm(task, pid, local, local_count, remote, remote_count, flags, true);
}

/* Advice about another process's pages is a hint: accepted and left to the host's own reclaim. */
int64_t sys_process_madvise(struct task *task, int pidfd, guest_addr iov, uint64_t count,
                            int advice, uint32_t flags)
{
    if (flags != 0)
        return -EINVAL;
    AUTO_IO ranges = {0};
    io_init_kernel(&ranges, NULL, 0);
    int r = io_init_iovec(&ranges, task->mm, iov, count);
    if (r < 0)
        return r;
    AUTO_FILE f = fd_table_get_file(task->fds, pidfd);
    struct thread_group *g = f != NULL ? pidfd_group(f) : NULL;
    if (g == NULL)
        return -EBADF;
    group_put(g);
    if (advice != MADV_COLD && advice != MADV_PAGEOUT && advice != MADV_WILLNEED)
        return -EINVAL;
    return (int64_t)ranges.remaining;
}
