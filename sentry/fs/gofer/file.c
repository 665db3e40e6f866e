/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open regular files: everything goes to the donated host descriptor, and the gofer isn't involved. Any fiber.
 */
#include "sentry/fs/gofer/node.h"

#include "base/host.h"
#include "sentry/sched/sched.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* #syscalls lseek: holes and data of a host file
 * #syscalls fsync,fdatasync: making a host file durable
 * #syscalls fallocate: space of a host file */

struct open_file {
    int kind; /* FD_*: counted in the node */
    int hfd;  /* borrowed: the node's, which keeps it while we're counted */
};

static const struct open_file *open_of(const struct file *f)
{
    return f->private_data;
}

static ssize_t read_file(struct file *f, struct io *io, int64_t *pos)
{
    ssize_t n = io_host_read(io, open_of(f)->hfd, *pos, true);
    if (n > 0)
        *pos += n;
    if (n >= 0)
        file_accessed(f);
    return n;
}

/* What was written makes the file longer, and its attributes on the host differ from ours. */
static void written(struct file *f, int64_t end)
{
    struct inode *inode = f->inode;
    if ((uint64_t)end > atomic_load_explicit(&inode->size, memory_order_relaxed))
        atomic_store_explicit(&inode->size, (uint64_t)end, memory_order_relaxed);
    file_modified(f);
    atomic_store(&node_of(inode)->is_stale, true);
    fs_changed(fs_of(inode));
}

static int sync_host(int hfd, bool data_only)
{
    sched_blocking_begin();
    long error = host_call1(data_only ? SYS_fdatasync : SYS_fsync, hfd);
    sched_blocking_end();
    return (int)error;
}

/* inode->lock held. */
static ssize_t write_locked(struct file *f, struct io *io, int64_t *pos)
{
    uint32_t flags = atomic_load_explicit(&f->flags, memory_order_relaxed);
    if (flags & O_APPEND) {
        int error = fs_of(f->inode)->shared ? gofer_refresh(f->inode) : 0;
        if (error)
            return error;
        *pos = (int64_t)atomic_load_explicit(&f->inode->size, memory_order_relaxed);
    }
    ssize_t n = io_host_write(io, open_of(f)->hfd, *pos, true);
    if (n <= 0)
        return n;
    *pos += n;
    written(f, *pos);
    if (flags & O_DSYNC) {
        int error = sync_host(open_of(f)->hfd, (flags & O_SYNC) != O_SYNC);
        if (error)
            return error;
    }
    return n;
}

static ssize_t write_file(struct file *f, struct io *io, int64_t *pos)
{
    fmutex_lock(&f->inode->lock);
    ssize_t n = write_locked(f, io, pos);
    fmutex_unlock(&f->inode->lock);
    return n;
}

static int64_t seek(struct file *f, int64_t offset, int whence)
{
    int64_t at = offset;
    int error = 0;
    switch (whence) {
    case SEEK_SET:
        break;
    case SEEK_CUR:
        if (__builtin_add_overflow(f->pos, offset, &at))
            return -EOVERFLOW;
        break;
    case SEEK_END:
        error = fs_of(f->inode)->shared ? gofer_refresh(f->inode) : 0;
        if (error)
            return error;
        if (__builtin_add_overflow((int64_t)atomic_load(&f->inode->size), offset, &at))
            return -EOVERFLOW;
        break;
    case SEEK_DATA:
    case SEEK_HOLE:
        at = host_call3(SYS_lseek, open_of(f)->hfd, offset, whence);
        if (at < 0)
            return at;
        break;
    default:
        return -EINVAL;
    }
    if (at < 0)
        return -EINVAL;
    f->pos = at;
    return at;
}

static int sync_file(struct file *f, bool data_only)
{
    return sync_host(open_of(f)->hfd, data_only);
}

static int allocate(struct file *f, int mode, int64_t offset, int64_t size)
{
    fmutex_lock(&f->inode->lock);
    sched_blocking_begin();
    long error = host_call4(SYS_fallocate, open_of(f)->hfd, mode, offset, size);
    sched_blocking_end();
    if (!error)
        written(f, mode & FALLOC_FL_KEEP_SIZE ? 0 : offset + size);
    if (!error && (mode & (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE)))
        error = gofer_refresh(f->inode);
    fmutex_unlock(&f->inode->lock);
    return (int)error;
}

static int map_file(struct file *f, uint64_t offset, uint64_t size, int prot, int flags, int *ret_hfd,
                    uint64_t *ret_host_offset)
{
    (void)size;
    if (open_of(f)->kind == FD_WRITE) /* vfs refuses files that can't be read; the host would, too */
        return -EACCES;
    if ((flags & MAP_SHARED) && (prot & PROT_WRITE)) {
        if (open_of(f)->kind != FD_BOTH)
            return -EACCES;
        atomic_store(&node_of(f->inode)->is_stale, true);
        fs_changed(fs_of(f->inode));
    }
    *ret_hfd = open_of(f)->hfd;
    *ret_host_offset = offset;
    return 0;
}

static void release(struct file *f)
{
    struct open_file *o = f->private_data;
    if ((atomic_load(&f->flags) & O_ACCMODE) != O_RDONLY)
        fs_changed(fs_of(f->inode)); /* a shared mapping may have written up to now */
    fd_put(f->inode, o->kind);
    free(o);
}

static const struct file_ops ops = {
    .read = read_file,
    .write = write_file,
    .lseek = seek,
    .fsync = sync_file,
    .fallocate = allocate,
    .map = map_file,
    .release = release,
};

int gofer_open_file(struct inode *inode, struct file *file)
{
    struct open_file *o = malloc(sizeof(*o));
    if (!o)
        return -ENOMEM;
    int error = fd_get(inode, atomic_load(&file->flags), &o->kind, &o->hfd);
    if (error) {
        free(o);
        return error;
    }
    file->ops = &ops;
    file->private_data = o;
    return 0;
}
