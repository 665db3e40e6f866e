/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regular files of tmpfs: the operations on an inode and on an open file. Any fiber.
 */
#include "sentry/fs/tmpfs/tmpfs_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/memfd.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEALS_OF_WRITING (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)

static ssize_t file_read(struct file *f, struct io *io, int64_t *pos)
{
    ssize_t n = tmpfs_data_read(f->inode, io, *pos);
    if (n > 0)
        *pos += n;
    file_accessed(f);
    return n;
}

/* inode->lock held. */
static int check_seals(struct inode *inode, uint64_t pos, uint64_t bytes)
{
    uint32_t seals = tmpfs_node(inode)->data.seals;
    if (likely(seals == F_SEAL_SEAL))
        return 0;
    if (seals & SEALS_OF_WRITING)
        return -EPERM;
    uint64_t size = atomic_load_explicit(&inode->size, memory_order_relaxed);
    return (seals & F_SEAL_GROW) && pos + bytes > size ? -EPERM : 0;
}

static ssize_t file_write(struct file *f, struct io *io, int64_t *pos)
{
    struct inode *inode = f->inode;
    fmutex_lock(&inode->lock);
    if (atomic_load_explicit(&f->flags, memory_order_relaxed) & O_APPEND)
        *pos = (int64_t)atomic_load_explicit(&inode->size, memory_order_relaxed);
    ssize_t n = check_seals(inode, (uint64_t)*pos, io->remaining);
    if (n == 0)
        n = tmpfs_data_write(inode, io, *pos);
    if (n > 0) {
        *pos += n;
        file_modified(f);
    }
    fmutex_unlock(&inode->lock);
    return n;
}

static int64_t file_lseek(struct file *f, int64_t offset, int whence)
{
    struct inode *inode = f->inode;
    if (whence != SEEK_DATA && whence != SEEK_HOLE)
        return file_lseek_sized(f, offset, whence,
                                atomic_load_explicit(&inode->size, memory_order_relaxed));
    fmutex_lock(&inode->lock);
    int64_t r = tmpfs_data_seek(inode, offset, whence);
    fmutex_unlock(&inode->lock);
    if (r >= 0)
        f->pos = r;
    return r;
}

static int file_fsync(struct file *f UNUSED, bool data_only UNUSED)
{
    return 0;
}

static int allocate_locked(struct inode *inode, int mode, uint64_t offset, uint64_t size)
{
    uint32_t seals = tmpfs_node(inode)->data.seals;
    uint64_t old = atomic_load_explicit(&inode->size, memory_order_relaxed);
    if ((mode & FALLOC_FL_PUNCH_HOLE) && (seals & SEALS_OF_WRITING))
        return -EPERM;
    if (!(mode & FALLOC_FL_KEEP_SIZE) && (seals & F_SEAL_GROW) && offset + size > old)
        return -EPERM;
    return tmpfs_data_allocate(inode, mode, offset, size);
}

static int file_fallocate(struct file *f, int mode, int64_t offset, int64_t size)
{
    if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE))
        return -EOPNOTSUPP;
    fmutex_lock(&f->inode->lock);
    int r = allocate_locked(f->inode, mode, (uint64_t)offset, (uint64_t)size);
    if (r == 0)
        file_modified(f);
    fmutex_unlock(&f->inode->lock);
    return r;
}

static int file_map(struct file *f, uint64_t offset, uint64_t size UNUSED, int prot, int flags,
                    int *ret_hfd, uint64_t *ret_host_offset)
{
    struct inode *inode = f->inode;
    int r = 0;
    fmutex_lock(&inode->lock);
    if ((flags & MAP_SHARED) && (prot & PROT_WRITE) &&
        (tmpfs_node(inode)->data.seals & SEALS_OF_WRITING))
        r = -EPERM;
    if (r == 0)
        r = tmpfs_data_hfd(inode, ret_hfd);
    fmutex_unlock(&inode->lock);
    if (r == 0)
        *ret_host_offset = offset;
    file_accessed(f);
    return r;
}

static const struct file_ops regular_file_ops = {
    .read = file_read,
    .write = file_write,
    .lseek = file_lseek,
    .fsync = file_fsync,
    .fallocate = file_fallocate,
    .map = file_map,
};

static int regular_open(struct inode *inode UNUSED, struct file *f)
{
    f->ops = &regular_file_ops;
    return 0;
}

static int regular_getattr(struct inode *inode, struct kstat *ret)
{
    inode_fill_kstat(inode, ret);
    ret->blocks = tmpfs_data_blocks(inode);
    ret->has_btime = true;
    return 0;
}

static int regular_setattr(struct inode *inode, const struct iattr *attr)
{
    uint32_t seals = tmpfs_node(inode)->data.seals;
    if ((attr->valid & ATTR_MODE) && (seals & F_SEAL_EXEC_OURS) &&
        ((attr->mode ^ inode->mode) & 0111))
        return -EPERM;
    if (attr->valid & ATTR_SIZE) {
        uint64_t size = atomic_load_explicit(&inode->size, memory_order_relaxed);
        if ((attr->size < size && (seals & F_SEAL_SHRINK)) ||
            (attr->size > size && (seals & F_SEAL_GROW)))
            return -EPERM;
        int r = tmpfs_data_truncate(inode, attr->size);
        if (r < 0)
            return r;
    }
    inode_apply_iattr(inode, attr);
    return 0;
}

const struct inode_ops tmpfs_regular_inode_ops = {
    .open = regular_open,
    .getattr = regular_getattr,
    .setattr = regular_setattr,
    .getxattr = tmpfs_getxattr,
    .setxattr = tmpfs_setxattr,
    .listxattr = tmpfs_listxattr,
    .removexattr = tmpfs_removexattr,
    .destroy = tmpfs_destroy,
};

/* ---- memfds and seals ---------------------------------------------------------------------------
 */

/* What memfds live in: it is mounted nowhere. Made at the first use, never freed. */
static struct superblock *memfd_superblock(void)
{
    static struct lock init_lock = LOCK_INITIALIZER;
    static _Atomic(struct superblock *) made;
    struct superblock *sb = atomic_load_explicit(&made, memory_order_acquire);
    if (sb)
        return sb;
    lock_acquire(&init_lock);
    sb = atomic_load_explicit(&made, memory_order_relaxed);
    struct inode *root;
    if (!sb && tmpfs_new(0700, 0, 0, 0, &sb, &root) == 0) {
        inode_put(root);
        atomic_store_explicit(&made, sb, memory_order_release);
    }
    lock_release(&init_lock);
    return sb;
}

static int unnamed_new(const char *text, uint32_t mode, uint32_t seals, uint64_t size,
                       const struct creds *creds, struct file **ret)
{
    struct superblock *sb = memfd_superblock();
    struct inode *inode;
    int r = sb ? tmpfs_regular_new(sb, mode, creds->fsuid, creds->fsgid, &inode) : -ENOMEM;
    if (r < 0)
        return r;
    tmpfs_node(inode)->data.seals = seals;
    atomic_store_explicit(&inode->nlink, 0, memory_order_relaxed);
    fmutex_lock(&inode->lock);
    r = size ? tmpfs_data_truncate(inode, size) : 0;
    fmutex_unlock(&inode->lock);
    if (r == 0)
        r = anon_file_new(text, inode, 0, creds, O_RDWR | O_LARGEFILE_OURS, &regular_file_ops, NULL,
                          ret);
    inode_put(inode);
    return r;
}

int tmpfs_memfd_new(const char *name, uint32_t flags, const struct creds *creds, struct file **ret)
{
    static const char prefix[] = "/memfd:";
    static const char suffix[] = " (deleted)";
    char text[sizeof(prefix) + VFS_NAME_MAX + sizeof(suffix)];
    size_t size = strnlen(name, VFS_NAME_MAX);
    memcpy(text, prefix, sizeof(prefix) - 1);
    memcpy(text + sizeof(prefix) - 1, name, size);
    memcpy(text + sizeof(prefix) - 1 + size, suffix, sizeof(suffix));
    uint32_t mode = S_IFREG | 0777;
    uint32_t seals = flags & (MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL_OURS) ? 0 : F_SEAL_SEAL;
    if (flags & MFD_NOEXEC_SEAL_OURS) {
        mode = S_IFREG | 0666;
        seals |= F_SEAL_EXEC_OURS;
    }
    return unnamed_new(text, mode, seals, 0, creds, ret);
}

int tmpfs_shared_anon_new(const char *name, uint64_t size, const struct creds *creds,
                          struct file **ret)
{
    return unnamed_new(name, S_IFREG | 0777, F_SEAL_SEAL, size, creds, ret);
}

/* Files with names have none, as on a host whose /tmp is on a disk. */
static bool may_have_seals(const struct file *f)
{
    return f->inode && f->inode->ops == &tmpfs_regular_inode_ops &&
           f->inode->sb == memfd_superblock();
}

int tmpfs_get_seals(struct file *f)
{
    return may_have_seals(f)
               ? (int)__atomic_load_n(&tmpfs_node(f->inode)->data.seals, __ATOMIC_RELAXED)
               : -EINVAL;
}

int tmpfs_add_seals(struct file *f, uint32_t seals)
{
    if (!may_have_seals(f))
        return -EINVAL;
    if (seals & ~(uint32_t)(F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | SEALS_OF_WRITING |
                            F_SEAL_EXEC_OURS))
        return -EINVAL;
    if ((atomic_load_explicit(&f->flags, memory_order_relaxed) & O_ACCMODE) == O_RDONLY)
        return -EPERM;
    struct tmpfs_data *d = &tmpfs_node(f->inode)->data;
    int r = 0;
    fmutex_lock(&f->inode->lock);
    if (d->seals & F_SEAL_SEAL)
        r = -EPERM;
    else if ((seals & F_SEAL_WRITE) && !(d->seals & F_SEAL_WRITE) &&
             atomic_load_explicit(&f->inode->shared_writes, memory_order_acquire) > 0)
        r = -EBUSY;
    else {
        if ((seals & F_SEAL_EXEC_OURS) && (f->inode->mode & 0111))
            seals |= F_SEAL_SHRINK | F_SEAL_GROW | SEALS_OF_WRITING; /* as Linux does */
        __atomic_store_n(&d->seals, d->seals | seals, __ATOMIC_RELAXED);
    }
    fmutex_unlock(&f->inode->lock);
    return r;
}
