/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file's storage: fsync(2), fallocate(2), posix_fadvise(2), readahead(2), sync_file_range(2). Copies between
 * files are in sys_splice.c.
 */
#include "sentry/syscalls/path_args.h"
#include "sentry/syscalls/syscalls.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

static uint32_t access_of(const struct file *f)
{
    return atomic_load_explicit(&f->flags, memory_order_relaxed) & O_ACCMODE;
}

static int64_t do_fsync(struct task *task, int fd, bool data_only)
{
    AUTO_FILE f = fd_table_get_file(task->fds, fd);
    if (!f)
        return -EBADF;
    return f->ops->fsync ? f->ops->fsync(f, data_only) : -EINVAL;
}

int64_t sys_fsync(struct task *task, int fd)
{
    return do_fsync(task, fd, false);
}

int64_t sys_fdatasync(struct task *task, int fd)
{
    return do_fsync(task, fd, true);
}

int64_t sys_sync_file_range(struct task *task, int fd, int64_t offset, int64_t size, uint32_t flags)
{
    AUTO_FILE f = fd_table_get_file(task->fds, fd);
    if (!f)
        return -EBADF;
    int64_t end;
    if (offset < 0 || size < 0 || __builtin_add_overflow(offset, size, &end) ||
        flags & ~(uint32_t)(SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER))
        return -EINVAL;
    if (!S_ISREG(f->inode->mode) && !S_ISBLK(f->inode->mode) && !S_ISDIR(f->inode->mode))
        return -ESPIPE;
    return f->ops->fsync ? f->ops->fsync(f, true) : 0;
}

int64_t sys_fallocate(struct task *task, int fd, int mode, int64_t offset, int64_t size)
{
    AUTO_FILE f = fd_table_get_file(task->fds, fd);
    if (!f)
        return -EBADF;
    int64_t end;
    if (offset < 0 || size <= 0)
        return -EINVAL;
    if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_COLLAPSE_RANGE |
                 FALLOC_FL_ZERO_RANGE | FALLOC_FL_INSERT_RANGE | FALLOC_FL_UNSHARE_RANGE) ||
        ((mode & FALLOC_FL_PUNCH_HOLE) && !(mode & FALLOC_FL_KEEP_SIZE)))
        return -EOPNOTSUPP;
    if (access_of(f) == O_RDONLY)
        return -EBADF;
    if (S_ISFIFO(f->inode->mode))
        return -ESPIPE;
    if (S_ISDIR(f->inode->mode))
        return -EISDIR;
    if (!S_ISREG(f->inode->mode))
        return -ENODEV;
    if (__builtin_add_overflow(offset, size, &end))
        return -EFBIG;
    if (!(mode & FALLOC_FL_KEEP_SIZE)) {
        int64_t allowed = file_size_allowed(task, f, offset, (uint64_t)size);
        if (allowed < size)
            return -EFBIG;
    }
    return f->ops->fallocate ? f->ops->fallocate(f, mode, offset, size) : -EOPNOTSUPP;
}

int64_t sys_fadvise64(struct task *task, int fd, int64_t offset, int64_t size, int advice)
{
    (void)offset;
    AUTO_FILE f = fd_table_get_file(task->fds, fd);
    if (!f)
        return -EBADF;
    if (S_ISFIFO(f->inode->mode))
        return -ESPIPE;
    return size < 0 || advice < POSIX_FADV_NORMAL || advice > POSIX_FADV_NOREUSE ? -EINVAL : 0;
}

int64_t sys_readahead(struct task *task, int fd, int64_t offset, uint64_t size)
{
    (void)offset, (void)size;
    AUTO_FILE f = fd_table_get_file(task->fds, fd);
    if (!f || access_of(f) == O_WRONLY)
        return -EBADF;
    return S_ISREG(f->inode->mode) || S_ISBLK(f->inode->mode) ? 0 : -EINVAL;
}
