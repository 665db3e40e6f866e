/* SPDX-License-Identifier: Apache-2.0 */
/* read(2), write(2) and their vector and positional forms, lseek(2), close(2), dup(2). */
#include "sentry/mm/uaccess.h"
#include "sentry/syscalls/path_args.h"
#include "sentry/syscalls/syscalls.h"
#include "sentry/task/restart.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAX_RW_COUNT 0x7ffff000UL
#define ADDRESS_END  UINT64_C(0x800000000000)

/* rw_verify_area() and access_ok(): a length that is negative, a buffer that no guest can have. */
static int init_buffer(struct io *io, struct task *task, guest_addr buf, uint64_t count)
{
    guest_addr end;
    if (count > INT64_MAX)
        return -EINVAL;
    if (!guest_addr_add(buf, count, &end) || end.va > ADDRESS_END)
        return -EFAULT;
    io_init_guest(io, task->mm, buf, count < MAX_RW_COUNT ? count : MAX_RW_COUNT);
    return 0;
}

/* Where a write goes, as far as RLIMIT_FSIZE has to know. */
static int64_t write_position(const struct file *f, int64_t pos)
{
    if (atomic_load_explicit(&f->flags, memory_order_relaxed) & O_APPEND)
        return (int64_t)atomic_load_explicit(&f->inode->size, memory_order_relaxed);
    return pos >= 0 ? pos : f->pos;
}

/* pos -1: at the file's own position. */
static ssize_t write_io(struct task *task, struct file *f, struct io *io, int64_t pos)
{
    if (unlikely(task_rlimit(task, RLIMIT_FSIZE) != RLIM_INFINITY && f->inode)) {
        int64_t allowed = file_size_allowed(task, f, write_position(f, pos), io->remaining);
        if (allowed < 0)
            return allowed;
        io->remaining = (uint64_t)allowed;
    }
    return pos == -1 ? vfs_write(f, io) : vfs_pwrite(f, io, pos);
}

int64_t sys_read(struct task *task, int fd, guest_addr buf, uint64_t count)
{
    AUTO_FILE f = fd_table_get_file(task->fds, fd);
    if (!f)
        return -EBADF;
    struct io io;
    int r = init_buffer(&io, task, buf, count);
    return r < 0 ? r : vfs_read(f, &io);
}

int64_t sys_write(struct task *task, int fd, guest_addr buf, uint64_t count)
{
    AUTO_FILE f = fd_table_get_file(task->fds, fd);
    if (!f)
        return -EBADF;
    struct io io;
    int r = init_buffer(&io, task, buf, count);
    return r < 0 ? r : write_io(task, f, &io, -1);
}

int64_t sys_pread64(struct task *task, int fd, guest_addr buf, uint64_t count, int64_t offset)
{
    if (offset < 0)
        return -EINVAL;
    AUTO_FILE f = fd_table_get_file(task->fds, fd);
    if (!f)
        return -EBADF;
    struct io io;
    int r = init_buffer(&io, task, buf, count);
    return r < 0 ? r : vfs_pread(f, &io, offset);
}

int64_t sys_pwrite64(struct task *task, int fd, guest_addr buf, uint64_t count, int64_t offset)
{
    if (offset < 0)
        return -EINVAL;
    AUTO_FILE f = fd_table_get_file(task->fds, fd);
    if (!f)
        return -EBADF;
    struct io io;
    int r = init_buffer(&io, task, buf, count);
    return r < 0 ? r : write_io(task, f, &io, offset);
}

/* ---- vectors ------------------------------------------------------------------------------------
 */

#define RWF_KNOWN (RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND)

static int check_rwf(const struct file *f, int flags)
{
    if (flags & ~RWF_KNOWN)
        return -EOPNOTSUPP;
    if ((flags & RWF_NOWAIT) && !(f->inode && S_ISREG(f->inode->mode)))
        return -EOPNOTSUPP;
    return 0;
}

static int64_t read_vector(struct task *task, int fd, guest_addr iov, uint64_t count, int64_t pos,
                           int flags)
{
    AUTO_FILE f = fd_table_get_file(task->fds, fd);
    if (!f)
        return -EBADF;
    int r = check_rwf(f, flags & ~RWF_APPEND);
    if (r < 0)
        return r;
    AUTO_IO io;
    r = io_init_iovec(&io, task->mm, iov, count);
    if (r < 0)
        return r;
    return pos == -1 ? vfs_read(f, &io) : vfs_pread(f, &io, pos);
}

static int64_t write_vector(struct task *task, int fd, guest_addr iov, uint64_t count, int64_t pos,
                            int flags)
{
    AUTO_FILE f = fd_table_get_file(task->fds, fd);
    if (!f)
        return -EBADF;
    int r = check_rwf(f, flags);
    if (r < 0)
        return r;
    AUTO_IO io;
    r = io_init_iovec(&io, task->mm, iov, count);
    if (r < 0)
        return r;
    if ((flags & RWF_APPEND) && f->inode && f->ops->lseek)
        pos = (int64_t)atomic_load_explicit(&f->inode->size, memory_order_relaxed);
    ssize_t n = write_io(task, f, &io, pos);
    if (n > 0 && (flags & (RWF_DSYNC | RWF_SYNC)) && f->ops->fsync) {
        r = f->ops->fsync(f, !(flags & RWF_SYNC));
        if (r < 0)
            return r;
    }
    return n;
}

int64_t sys_readv(struct task *task, int fd, guest_addr iov, uint64_t count)
{
    return read_vector(task, fd, iov, count, -1, 0);
}

int64_t sys_writev(struct task *task, int fd, guest_addr iov, uint64_t count)
{
    return write_vector(task, fd, iov, count, -1, 0);
}

int64_t sys_preadv(struct task *task, int fd, guest_addr iov, uint64_t count, uint64_t pos_low,
                   uint64_t pos_high)
{
    (void)pos_high; /* of 32-bit callers */
    return (int64_t)pos_low < 0 ? -EINVAL : read_vector(task, fd, iov, count, (int64_t)pos_low, 0);
}

int64_t sys_pwritev(struct task *task, int fd, guest_addr iov, uint64_t count, uint64_t pos_low,
                    uint64_t pos_high)
{
    (void)pos_high;
    return (int64_t)pos_low < 0 ? -EINVAL : write_vector(task, fd, iov, count, (int64_t)pos_low, 0);
}

int64_t sys_preadv2(struct task *task, int fd, guest_addr iov, uint64_t count, uint64_t pos_low,
                    uint64_t pos_high, int flags)
{
    (void)pos_high;
    return (int64_t)pos_low < -1 ? -EINVAL
                                 : read_vector(task, fd, iov, count, (int64_t)pos_low, flags);
}

int64_t sys_pwritev2(struct task *task, int fd, guest_addr iov, uint64_t count, uint64_t pos_low,
                     uint64_t pos_high, int flags)
{
    (void)pos_high;
    return (int64_t)pos_low < -1 ? -EINVAL
                                 : write_vector(task, fd, iov, count, (int64_t)pos_low, flags);
}

int64_t sys_lseek(struct task *task, int fd, int64_t offset, int whence)
{
    AUTO_FILE f = fd_table_get_file(task->fds, fd);
    if (!f)
        return -EBADF;
    if (whence < SEEK_SET || whence > SEEK_HOLE)
        return -EINVAL;
    return vfs_lseek(f, offset, whence);
}

/* ---- descriptors --------------------------------------------------------------------------------
 */

int64_t sys_close(struct task *task, int fd)
{
    int r = fd_table_close(task->fds, fd);
    return r == -ERESTARTSYS ? -EINTR : r; /* the descriptor is gone: never restart */
}

#define CLOSE_RANGE_UNSHARE_BIT 2U
#define CLOSE_RANGE_CLOEXEC_BIT 4U

static int unshare_fds(struct task *task)
{
    if (!fd_table_is_shared(task->fds))
        return 0;
    struct fd_table *own = fd_table_copy(task->fds);
    if (!own)
        return -ENOMEM;
    struct fd_table *old = task->fds;
    lock_acquire(&task->state_lock);
    task->fds = own;
    lock_release(&task->state_lock);
    fd_table_put(old);
    return 0;
}

int64_t sys_close_range(struct task *task, uint32_t first, uint32_t last, uint32_t flags)
{
    if (flags & ~(CLOSE_RANGE_UNSHARE_BIT | CLOSE_RANGE_CLOEXEC_BIT) || first > last)
        return -EINVAL;
    int r = flags & CLOSE_RANGE_UNSHARE_BIT ? unshare_fds(task) : 0;
    return r < 0 ? r
                 : fd_table_close_range(task->fds, first, last, flags & CLOSE_RANGE_CLOEXEC_BIT);
}

int64_t sys_dup(struct task *task, int fd)
{
    AUTO_FILE f = fd_table_get_any(task->fds, fd);
    if (!f)
        return -EBADF;
    int r = fd_table_install(task->fds, f, 0, task_rlimit(task, RLIMIT_NOFILE), false);
    if (r >= 0)
        f = NULL;
    return r;
}

static int64_t dup_to(struct task *task, int oldfd, int newfd, bool cloexec)
{
    AUTO_FILE f = fd_table_get_any(task->fds, oldfd);
    if (!f)
        return -EBADF;
    int r = fd_table_install_at(task->fds, f, newfd, task_rlimit(task, RLIMIT_NOFILE), cloexec);
    if (r >= 0)
        f = NULL;
    return r;
}

int64_t sys_dup2(struct task *task, int oldfd, int newfd)
{
    if (oldfd == newfd) {
        int r = fd_table_get_cloexec(task->fds, oldfd);
        return r < 0 ? r : newfd;
    }
    return dup_to(task, oldfd, newfd, false);
}

int64_t sys_dup3(struct task *task, int oldfd, int newfd, int flags)
{
    if ((flags & ~O_CLOEXEC) || oldfd == newfd)
        return -EINVAL;
    return dup_to(task, oldfd, newfd, flags & O_CLOEXEC);
}
