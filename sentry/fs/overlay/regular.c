/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regular files of an overlay: an open file stands on an open lower file, an open upper one, or
 * both. One that was opened for reading before the copy-up reads the upper from then on; mappings
 * made before keep showing the lower, as Linux's overlayfs documents.
 */
#include "sentry/fs/overlay/overlay_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct overlay_file {
    struct file *lower;           /* ref; immutable; NULL when it was opened on the upper */
    _Atomic(struct file *) upper; /* ref; set once */
};

static int open_upper(struct file *f, struct file **ret)
{
    struct overlay_file *of = f->private_data;
    struct inode *upper =
        atomic_load_explicit(&overlay_node(f->inode)->upper, memory_order_acquire);
    struct file *fresh;
    uint32_t flags = atomic_load_explicit(&f->flags, memory_order_relaxed);
    int r = file_open_inode(upper, f->creds, flags & O_ACCMODE, &fresh);
    if (r < 0)
        return r;
    struct file *expected = NULL;
    if (!atomic_compare_exchange_strong_explicit(&of->upper, &expected, fresh, memory_order_acq_rel,
                                                 memory_order_acquire)) {
        file_put(fresh);
        fresh = expected;
    }
    *ret = fresh;
    return 0;
}

/* hot: the file beneath, borrowed while `f` is referenced. */
static int real_file(struct file *f, struct file **ret)
{
    struct overlay_file *of = f->private_data;
    *ret = atomic_load_explicit(&of->upper, memory_order_acquire);
    if (*ret)
        return 0;
    if (unlikely(atomic_load_explicit(&overlay_node(f->inode)->upper, memory_order_acquire) !=
                 NULL))
        return open_upper(f, ret);
    *ret = of->lower;
    return 0;
}

static ssize_t file_read(struct file *f, struct io *io, int64_t *pos)
{
    struct file *real;
    int r = real_file(f, &real);
    if (r < 0)
        return r;
    ssize_t n = real->ops->read ? real->ops->read(real, io, pos) : -EINVAL;
    if (n >= 0)
        file_accessed(f);
    return n;
}

static ssize_t file_write(struct file *f, struct io *io, int64_t *pos)
{
    struct file *real;
    int r = real_file(f, &real);
    if (r < 0)
        return r;
    struct inode *inode = f->inode;
    fmutex_lock(&inode->lock);
    if (atomic_load_explicit(&f->flags, memory_order_relaxed) & O_APPEND)
        *pos = (int64_t)atomic_load_explicit(&real->inode->size, memory_order_relaxed);
    ssize_t n = real->ops->write ? real->ops->write(real, io, pos) : -EBADF;
    if (n > 0) {
        atomic_store_explicit(&inode->size,
                              atomic_load_explicit(&real->inode->size, memory_order_relaxed),
                              memory_order_relaxed);
        file_modified(f);
    }
    fmutex_unlock(&inode->lock);
    return n;
}

static int64_t file_lseek(struct file *f, int64_t offset, int whence)
{
    struct file *real;
    if (whence != SEEK_DATA && whence != SEEK_HOLE)
        return file_lseek_sized(f, offset, whence,
                                atomic_load_explicit(&f->inode->size, memory_order_relaxed));
    int r = real_file(f, &real);
    if (r < 0)
        return r;
    int64_t to = vfs_lseek(real, offset, whence);
    if (to >= 0)
        f->pos = to;
    return to;
}

static int file_fsync(struct file *f UNUSED, bool data_only UNUSED)
{
    return 0; /* the upper is memory, the lower is never changed */
}

static int file_fallocate(struct file *f, int mode, int64_t offset, int64_t size)
{
    struct file *real;
    int r = real_file(f, &real);
    if (r < 0)
        return r;
    if (!real->ops->fallocate)
        return -EOPNOTSUPP;
    fmutex_lock(&f->inode->lock);
    r = real->ops->fallocate(real, mode, offset, size);
    if (r == 0) {
        atomic_store_explicit(&f->inode->size,
                              atomic_load_explicit(&real->inode->size, memory_order_relaxed),
                              memory_order_relaxed);
        file_modified(f);
    }
    fmutex_unlock(&f->inode->lock);
    return r;
}

static int file_map(struct file *f, uint64_t offset, uint64_t size, int prot, int flags,
                    int *ret_hfd, uint64_t *ret_host_offset)
{
    struct file *real;
    int r = real_file(f, &real);
    if (r < 0)
        return r;
    file_accessed(f);
    return real->ops->map
               ? real->ops->map(real, offset, size, prot, flags, ret_hfd, ret_host_offset)
               : -ENODEV;
}

static void file_release(struct file *f)
{
    struct overlay_file *of = f->private_data;
    file_put(of->lower);
    file_put(atomic_load_explicit(&of->upper, memory_order_relaxed));
    free(of);
}

static const struct file_ops regular_file_ops = {
    .read = file_read,
    .write = file_write,
    .lseek = file_lseek,
    .fsync = file_fsync,
    .fallocate = file_fallocate,
    .map = file_map,
    .release = file_release,
};

static int regular_open(struct inode *inode, struct file *f)
{
    struct overlay_node *node = overlay_node(inode);
    uint32_t access = atomic_load_explicit(&f->flags, memory_order_relaxed) & O_ACCMODE;
    int r = 0;
    if (access != O_RDONLY && !atomic_load_explicit(&node->upper, memory_order_acquire)) {
        fmutex_lock(&inode->lock);
        r = overlay_copy_up(inode, UINT64_MAX);
        fmutex_unlock(&inode->lock);
        if (r < 0)
            return r;
    }
    struct overlay_file *of = calloc(1, sizeof(*of));
    if (!of)
        return -ENOMEM;
    struct inode *upper = atomic_load_explicit(&node->upper, memory_order_acquire);
    struct file *real;
    r = file_open_inode(upper ? upper : node->lower, f->creds, access, &real);
    if (r < 0) {
        free(of);
        return r;
    }
    if (upper)
        atomic_store_explicit(&of->upper, real, memory_order_relaxed);
    else
        of->lower = real;
    f->ops = &regular_file_ops;
    f->private_data = of;
    return 0;
}

const struct inode_ops overlay_regular_inode_ops = {
    .open = regular_open,
    .getattr = overlay_getattr,
    .setattr = overlay_setattr,
    .getxattr = overlay_getxattr,
    .setxattr = overlay_setxattr,
    .listxattr = overlay_listxattr,
    .removexattr = overlay_removexattr,
    .destroy = overlay_destroy,
};
