/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between files, and about their storage: sendfile(2), copy_file_range(2), fsync(2), fallocate(2),
 * posix_fadvise(2), readahead(2), sync_file_range(2).
 */
#include "base/host.h"
#include "sentry/mm/uaccess.h"
#include "sentry/syscalls/path_args.h"
#include "sentry/syscalls/syscalls.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK        KIB(128)
#define MAX_RW_COUNT 0x7ffff000UL

/* One end of a copy: a position of its own (the call's offset argument) or the file's. */
struct end {
    struct file *f; /* borrowed */
    bool has_offset;
    int64_t pos;
};

static int copy_in_offset(struct task *task, guest_addr addr, struct end *e)
{
    e->has_offset = !guest_addr_is_null(addr);
    if (!e->has_offset) {
        e->pos = __atomic_load_n(&e->f->pos, __ATOMIC_RELAXED);
        return 0;
    }
    int r = copy_in_obj(task->mm, &e->pos, addr);
    return r == 0 && e->pos < 0 ? -EINVAL : r;
}

static int finish_offset(struct task *task, guest_addr addr, struct end *e)
{
    if (e->has_offset)
        return copy_out_obj(task->mm, addr, &e->pos);
    int64_t r = vfs_lseek(e->f, e->pos, SEEK_SET);
    return r < 0 ? (int)r : 0;
}

/* Writes at the end's position, or into a stream; advances by what was written. */
static ssize_t write_end(struct task *task, struct end *to, void *bytes, size_t size)
{
    struct io io;
    bool is_stream = !to->f->ops->lseek;
    int64_t allowed = file_size_allowed(task, to->f, to->pos, size);
    if (allowed < 0)
        return allowed;
    io_init_kernel(&io, bytes, (size_t)allowed);
    ssize_t n = is_stream ? vfs_write(to->f, &io) : vfs_pwrite(to->f, &io, to->pos);
    if (n > 0 && !is_stream)
        to->pos += n;
    return n;
}

/* Up to `count` bytes; what was copied, or the first error if nothing was. */
static int64_t copy_between(struct task *task, struct end *from, struct end *to, uint64_t count)
{
    size_t chunk = count < CHUNK ? (size_t)count : CHUNK;
    AUTO_FREE uint8_t *buffer = malloc(chunk ? chunk : 1);
    if (!buffer)
        return -ENOMEM;
    uint64_t done = 0;
    while (done < count) {
        struct io io;
        size_t want = count - done < chunk ? (size_t)(count - done) : chunk;
        io_init_kernel(&io, buffer, want);
        ssize_t got = vfs_pread(from->f, &io, from->pos);
        if (got == 0)
            break;
        ssize_t put = got < 0 ? got : write_end(task, to, buffer, (size_t)got);
        if (put < 0)
            return done ? (int64_t)done : put;
        from->pos += put;
        done += (uint64_t)put;
        if (put < got)
            break;
    }
    return (int64_t)done;
}

static uint32_t access_of(const struct file *f)
{
    return atomic_load_explicit(&f->flags, memory_order_relaxed) & O_ACCMODE;
}

static bool is_append(const struct file *f)
{
    return atomic_load_explicit(&f->flags, memory_order_relaxed) & O_APPEND;
}

int64_t sys_sendfile(struct task *task, int out_fd, int in_fd, guest_addr offset, uint64_t count)
{
    AUTO_FILE in = fd_table_get_file(task->fds, in_fd);
    if (!in || access_of(in) == O_WRONLY)
        return -EBADF;
    AUTO_FILE out = fd_table_get_file(task->fds, out_fd);
    if (!out || access_of(out) == O_RDONLY)
        return -EBADF;
    if (!in->ops->lseek)
        return guest_addr_is_null(offset) ? -EINVAL : -ESPIPE;
    if (!in->ops->read || !out->ops->write || count > INT64_MAX || is_append(out))
        return -EINVAL;
    struct end from = {.f = in};
    struct end to = {.f = out, .pos = __atomic_load_n(&out->pos, __ATOMIC_RELAXED)};
    int r = copy_in_offset(task, offset, &from);
    if (r < 0)
        return r;
    int64_t n = copy_between(task, &from, &to, count < MAX_RW_COUNT ? count : MAX_RW_COUNT);
    if (n <= 0)
        return n;
    r = finish_offset(task, offset, &from);
    if (r == 0 && out->ops->lseek)
        r = finish_offset(task, GUEST_NULL, &to);
    return r < 0 ? r : n;
}

static int check_copy(const struct file *in, const struct file *out)
{
    if (S_ISDIR(in->inode->mode) || S_ISDIR(out->inode->mode))
        return -EISDIR;
    if (!S_ISREG(in->inode->mode) || !S_ISREG(out->inode->mode))
        return -EINVAL;
    if (access_of(in) == O_WRONLY || access_of(out) == O_RDONLY || is_append(out))
        return -EBADF;
    return 0;
}

int64_t sys_copy_file_range(struct task *task, int fd_in, guest_addr off_in, int fd_out, guest_addr off_out,
                            uint64_t size, uint32_t flags)
{
    AUTO_FILE in = fd_table_get_file(task->fds, fd_in);
    AUTO_FILE out = fd_table_get_file(task->fds, fd_out);
    if (!in || !out)
        return -EBADF;
    struct end from = {.f = in};
    struct end to = {.f = out};
    int r = copy_in_offset(task, off_in, &from);
    if (r == 0)
        r = copy_in_offset(task, off_out, &to);
    if (r == 0 && flags)
        r = -EINVAL;
    if (r == 0)
        r = check_copy(in, out);
    if (r < 0)
        return r;
    if (size > MAX_RW_COUNT)
        size = MAX_RW_COUNT;
    int64_t end;
    if (__builtin_add_overflow(from.pos, (int64_t)size, &end) ||
        __builtin_add_overflow(to.pos, (int64_t)size, &end))
        return -EOVERFLOW;
    if (in->inode == out->inode && from.pos < to.pos + (int64_t)size && to.pos < from.pos + (int64_t)size)
        return -EINVAL;
    int64_t n = copy_between(task, &from, &to, size);
    if (n <= 0)
        return n;
    r = finish_offset(task, off_in, &from);
    if (r == 0)
        r = finish_offset(task, off_out, &to);
    return r < 0 ? r : n;
}

/* ---- storage ------------------------------------------------------------------------------------ */

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
