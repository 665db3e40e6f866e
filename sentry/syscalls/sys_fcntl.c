/* SPDX-License-Identifier: Apache-2.0 */
/* fcntl(2), flock(2), ioctl(2) as far as it doesn't depend on the kind of file. */
#include "abi/fcntl.h"
#include "sentry/fs/pipe/pipe.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/mm/uaccess.h"
#include "sentry/syscalls/path_args.h"
#include "sentry/syscalls/syscalls.h"
#include "sentry/task/restart.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define FLAGS_SETTABLE (O_APPEND | O_NONBLOCK | O_NOATIME | O_DIRECT | O_ASYNC)
#define SIGNAL_MAX     64

/* ---- record locks -------------------------------------------------------------------------------
 */

/* Which bytes a struct flock means; -EINVAL, -EOVERFLOW. */
static int lock_range(struct file *f, const struct linux_flock *in, struct posix_lock *ret)
{
    int64_t base = 0;
    if (in->whence == SEEK_CUR)
        base = f->pos;
    else if (in->whence == SEEK_END)
        base = (int64_t)atomic_load_explicit(&f->inode->size, memory_order_relaxed);
    else if (in->whence != SEEK_SET)
        return -EINVAL;
    int64_t start;
    int64_t end = INT64_MAX;
    if (__builtin_add_overflow(base, in->start, &start))
        return -EOVERFLOW;
    if (in->len > 0 && __builtin_add_overflow(start, in->len - 1, &end))
        return -EOVERFLOW;
    if (in->len < 0) {
        end = start - 1;
        if (__builtin_add_overflow(start, in->len, &start))
            return -EINVAL;
    }
    if (start < 0)
        return -EINVAL;
    ret->start = start;
    ret->end = end;
    return 0;
}

static int make_lock(struct task *task, struct file *f, const struct linux_flock *in, bool is_ofd,
                     struct posix_lock *ret)
{
    if (in->type != F_RDLCK && in->type != F_WRLCK && in->type != F_UNLCK)
        return -EINVAL;
    if (is_ofd && in->pid != 0)
        return -EINVAL;
    ret->type = in->type;
    ret->owner = is_ofd ? (const void *)f : (const void *)task->fds;
    ret->pid = is_ofd ? -1 : task->group->tgid;
    return lock_range(f, in, ret);
}

static int64_t get_lock(struct task *task, struct file *f, guest_addr addr, bool is_ofd)
{
    struct linux_flock flock;
    struct posix_lock l = {0};
    int r = copy_in_obj(task->mm, &flock, addr);
    if (r == 0)
        r = make_lock(task, f, &flock, is_ofd, &l);
    if (r == 0 && !is_ofd && l.type == F_UNLCK)
        r = -EINVAL;
    if (r == 0)
        r = posix_lock_get(f, &l);
    if (r < 0)
        return r;
    flock.type = (int16_t)l.type;
    if (l.type != F_UNLCK) {
        flock.whence = SEEK_SET;
        flock.start = l.start;
        flock.len = l.end == INT64_MAX ? 0 : l.end - l.start + 1;
        flock.pid = l.pid;
    }
    return copy_out_obj(task->mm, addr, &flock);
}

static int64_t set_lock(struct task *task, struct file *f, guest_addr addr, bool is_ofd, bool wait)
{
    struct linux_flock flock;
    struct posix_lock l = {0};
    int r = copy_in_obj(task->mm, &flock, addr);
    if (r == 0)
        r = make_lock(task, f, &flock, is_ofd, &l);
    if (r < 0)
        return r;
    uint32_t access = atomic_load_explicit(&f->flags, memory_order_relaxed) & O_ACCMODE;
    if ((l.type == F_RDLCK && access == O_WRONLY) || (l.type == F_WRLCK && access == O_RDONLY))
        return -EBADF;
    r = posix_lock_set(f, &l, wait);
    return r == -EINTR ? -ERESTARTSYS : r;
}

int64_t sys_flock(struct task *task, int fd, int operation)
{
    AUTO_FILE f = fd_table_get_file(task->fds, fd);
    if (!f)
        return -EBADF;
    int r = flock_set(f, operation);
    return r == -EINTR ? -ERESTARTSYS : r;
}

/* ---- fcntl --------------------------------------------------------------------------------------
 */

static int64_t dup_above(struct task *task, struct file *f, uint64_t min, bool cloexec)
{
    uint64_t limit = task_rlimit(task, RLIMIT_NOFILE);
    if (min >= limit || min > INT32_MAX)
        return -EINVAL;
    file_get(f);
    int r = fd_table_install(task->fds, f, (int)min, limit, cloexec);
    if (r < 0)
        file_put(f);
    return r;
}

static int set_status_flags(struct file *f, uint32_t wanted)
{
    uint32_t old = atomic_load_explicit(&f->flags, memory_order_relaxed);
    uint32_t flags = (old & ~(uint32_t)FLAGS_SETTABLE) | (wanted & FLAGS_SETTABLE);
    int r = f->ops->set_flags ? f->ops->set_flags(f, flags) : 0;
    if (r == 0)
        atomic_store_explicit(&f->flags, flags, memory_order_relaxed);
    return r;
}

static int64_t get_owner_ex(struct task *task, struct file *f, guest_addr addr)
{
    int32_t pid = (int32_t)atomic_load_explicit(&f->owner_pid, memory_order_relaxed);
    const struct linux_f_owner_ex owner = {.type = pid < 0 ? F_OWNER_PGRP : F_OWNER_PID,
                                           .pid = pid < 0 ? -pid : pid};
    return copy_out_obj(task->mm, addr, &owner);
}

static int64_t set_owner_ex(struct task *task, struct file *f, guest_addr addr)
{
    struct linux_f_owner_ex owner;
    int r = copy_in_obj(task->mm, &owner, addr);
    if (r < 0)
        return r;
    if (owner.type != F_OWNER_PID && owner.type != F_OWNER_PGRP && owner.type != F_OWNER_TID)
        return -EINVAL;
    int32_t pid = owner.type == F_OWNER_PGRP ? -owner.pid : owner.pid;
    atomic_store_explicit(&f->owner_pid, (uint32_t)pid, memory_order_relaxed);
    return 0;
}

/* Locks, owners, pipes, seals: what an O_PATH descriptor doesn't have. */
static int64_t fcntl_open_file(struct task *task, struct file *f, uint32_t cmd, uint64_t arg)
{
    switch (cmd) {
    case F_SETFL:
        return set_status_flags(f, (uint32_t)arg);
    case F_GETLK:
    case F_OFD_GETLK:
        return get_lock(task, f, GUEST_ADDR(arg), cmd == F_OFD_GETLK);
    case F_SETLK:
    case F_SETLKW:
        return set_lock(task, f, GUEST_ADDR(arg), false, cmd == F_SETLKW);
    case F_OFD_SETLK:
    case F_OFD_SETLKW:
        return set_lock(task, f, GUEST_ADDR(arg), true, cmd == F_OFD_SETLKW);
    case F_GETOWN:
        return (int32_t)atomic_load_explicit(&f->owner_pid, memory_order_relaxed);
    case F_SETOWN:
        atomic_store_explicit(&f->owner_pid, (uint32_t)arg, memory_order_relaxed);
        return 0;
    case F_GETOWN_EX:
        return get_owner_ex(task, f, GUEST_ADDR(arg));
    case F_SETOWN_EX:
        return set_owner_ex(task, f, GUEST_ADDR(arg));
    case F_GETSIG:
        return atomic_load_explicit(&f->owner_sig, memory_order_relaxed);
    case F_SETSIG:
        if (arg > SIGNAL_MAX)
            return -EINVAL;
        atomic_store_explicit(&f->owner_sig, (int32_t)arg, memory_order_relaxed);
        return 0;
    case F_GETPIPE_SZ:
        return pipe_get_size(f);
    case F_SETPIPE_SZ:
        return pipe_set_size(f, arg);
    case F_ADD_SEALS:
        return tmpfs_add_seals(f, (uint32_t)arg);
    case F_GET_SEALS:
        return tmpfs_get_seals(f);
    case F_GETLEASE:
        return F_UNLCK;
    case F_SETLEASE: /* no leases: what a file system without them answers */
    default:
        return -EINVAL;
    }
}

int64_t sys_fcntl(struct task *task, int fd, uint32_t cmd, uint64_t arg)
{
    AUTO_FILE f = fd_table_get_any(task->fds, fd);
    if (!f)
        return -EBADF;
    uint32_t flags = atomic_load_explicit(&f->flags, memory_order_relaxed);
    switch (cmd) {
    case F_DUPFD:
    case F_DUPFD_CLOEXEC:
        return dup_above(task, f, (uint32_t)arg, cmd == F_DUPFD_CLOEXEC);
    case F_GETFD: {
        int r = fd_table_get_cloexec(task->fds, fd);
        return r < 0 ? r : r ? FD_CLOEXEC : 0;
    }
    case F_SETFD:
        return fd_table_set_cloexec(task->fds, fd, arg & FD_CLOEXEC);
    case F_GETFL:
        return flags;
    default:
        return flags & O_PATH ? -EBADF : fcntl_open_file(task, f, cmd, arg);
    }
}

/* ---- ioctl --------------------------------------------------------------------------------------
 */

static int64_t set_flag_by_ioctl(struct task *task, struct file *f, guest_addr addr, uint32_t flag)
{
    int32_t on;
    int r = copy_in_obj(task->mm, &on, addr);
    if (r < 0)
        return r;
    uint32_t flags = atomic_load_explicit(&f->flags, memory_order_relaxed);
    return set_status_flags(f, on ? flags | flag : flags & ~flag);
}

static int64_t bytes_left(struct task *task, struct file *f, guest_addr addr)
{
    struct kstat st;
    int r = inode_getattr(f->inode, &st);
    if (r < 0)
        return r;
    int64_t left = (int64_t)st.size - f->pos;
    int32_t out = (int32_t)left;
    return copy_out_obj(task->mm, addr, &out);
}

static int64_t block_size(struct task *task, struct file *f, guest_addr addr)
{
    struct kstat st;
    int r = inode_getattr(f->inode, &st);
    if (r < 0)
        return r;
    int32_t size = (int32_t)st.blksize;
    return copy_out_obj(task->mm, addr, &size);
}

int64_t sys_ioctl(struct task *task, int fd, uint32_t cmd, uint64_t arg)
{
    AUTO_FILE f = fd_table_get_file(task->fds, fd);
    if (!f)
        return -EBADF;
    bool is_regular = f->inode && S_ISREG(f->inode->mode);
    bool is_dir = f->inode && S_ISDIR(f->inode->mode);
    switch (cmd) {
    case FIOCLEX:
    case FIONCLEX:
        return fd_table_set_cloexec(task->fds, fd, cmd == FIOCLEX);
    case FIONBIO:
        return set_flag_by_ioctl(task, f, GUEST_ADDR(arg), O_NONBLOCK);
    case FIOASYNC:
        return set_flag_by_ioctl(task, f, GUEST_ADDR(arg), O_ASYNC);
    case FIONREAD:
        if (is_regular)
            return bytes_left(task, f, GUEST_ADDR(arg));
        break;
    case FIGETBSZ:
        if (is_regular || is_dir)
            return block_size(task, f, GUEST_ADDR(arg));
        break;
    case FICLONE:
    case FICLONERANGE:
    case FIDEDUPERANGE:
    case FS_IOC_FIEMAP:
        if (is_regular)
            return -EOPNOTSUPP;
        break;
    default:
        break;
    }
    return f->ops->ioctl ? f->ops->ioctl(f, task->mm, cmd, arg) : -ENOTTY;
}
