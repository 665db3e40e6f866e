/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open file descriptions: life, reading and writing with Linux's checks, directory reading,
 * polling. Any fiber. A file without an lseek op is a stream: it has no position and takes no
 * position lock, so that a reader that sleeps doesn't stop a writer.
 */
#include "sentry/vfs/vfs_internal.h"

#define LOG_MODULE "vfs"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct mappable_ops file_mappable_ops;

/* A guest's open files are the sentry's memory. */
static _Atomic uint32_t g_file_count;

int file_new(const struct path *path, const struct creds *creds, uint32_t flags,
             const struct file_ops *ops, void *private_data, struct file **ret)
{
    if (atomic_fetch_add_explicit(&g_file_count, 1, memory_order_relaxed) >= FILES_MAX) {
        atomic_fetch_sub_explicit(&g_file_count, 1, memory_order_relaxed);
        return -ENFILE;
    }
    struct file *f = calloc(1, sizeof(*f));
    if (!f) {
        atomic_fetch_sub_explicit(&g_file_count, 1, memory_order_relaxed);
        return -ENOMEM;
    }
    f->ops = ops;
    f->mappable.ops = &file_mappable_ops;
    atomic_init(&f->refs, 1);
    if (path) {
        f->path = *path;
        path_get(&f->path);
        f->inode = dentry_inode(path->dentry);
        inode_get(f->inode);
    }
    struct creds *shared = (struct creds *)(uintptr_t)creds; /* immutable but for its count */
    f->creds = creds_get(shared);
    atomic_init(&f->flags, flags);
    fmutex_init(&f->pos_lock);
    lock_init(&f->epolls_lock);
    f->private_data = private_data;
    *ret = f;
    return 0;
}

int anon_file_new(const char *name, struct inode *inode, uint32_t mode, const struct creds *creds,
                  uint32_t flags, const struct file_ops *ops, void *private_data, struct file **ret)
{
    static const struct inode_ops anon_inode_ops;
    if (inode)
        inode_get(inode);
    else
        inode = inode_new(vfs_anon_superblock(), &anon_inode_ops, vfs_next_ino(), mode,
                          creds->fsuid, creds->fsgid);
    struct path p = {.mount = mount_anon()};
    size_t size = strnlen(name, VFS_PATH_MAX);
    if (inode && p.mount)
        p.dentry = dentry_new_detached(name, size, inode);
    inode_put(inode);
    if (!p.dentry)
        return -ENOMEM;
    int r = file_new(&p, creds, flags, ops, private_data, ret);
    dentry_put(p.dentry);
    return r;
}

void file_get(struct file *f)
{
    atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
}

void file_put(struct file *f)
{
    if (!f || atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (f->epolls && g_vfs_hooks.file_released)
        g_vfs_hooks.file_released(f);
    if (f->inode)
        file_locks_release(f);
    if (f->ops->release)
        f->ops->release(f);
    if (f->has_write_access)
        inode_put_write_access(f->inode);
    if (f->denies_write)
        inode_allow_write(f->inode);
    inode_put(f->inode);
    path_put(&f->path);
    creds_put(f->creds);
    fmutex_fini(&f->pos_lock);
    lock_fini(&f->epolls_lock);
    free(f);
    atomic_fetch_sub_explicit(&g_file_count, 1, memory_order_relaxed);
}

void file_put_auto(struct file **f)
{
    file_put(*f);
}

/* ---- reading and writing ------------------------------------------------------------------------
 */

static int check_read(const struct file *f)
{
    uint32_t flags = atomic_load_explicit(&f->flags, memory_order_relaxed);
    if ((flags & O_PATH) || (flags & O_ACCMODE) == O_WRONLY)
        return -EBADF;
    if (!f->ops->read)
        return S_ISDIR(f->inode->mode) ? -EISDIR : -EINVAL;
    return 0;
}

static int check_write(const struct file *f)
{
    uint32_t flags = atomic_load_explicit(&f->flags, memory_order_relaxed);
    if ((flags & O_PATH) || (flags & O_ACCMODE) == O_RDONLY)
        return -EBADF;
    return f->ops->write ? 0 : -EINVAL;
}

ssize_t vfs_read(struct file *f, struct io *io)
{
    int r = check_read(f);
    if (r < 0)
        return r;
    if (!f->ops->lseek) {
        int64_t none = 0;
        return f->ops->read(f, io, &none);
    }
    fmutex_lock(&f->pos_lock);
    ssize_t n = f->ops->read(f, io, &f->pos);
    fmutex_unlock(&f->pos_lock);
    return n;
}

ssize_t vfs_write(struct file *f, struct io *io)
{
    int r = check_write(f);
    if (r < 0)
        return r;
    if (!f->ops->lseek) {
        int64_t none = 0;
        return f->ops->write(f, io, &none);
    }
    fmutex_lock(&f->pos_lock);
    ssize_t n = f->ops->write(f, io, &f->pos);
    fmutex_unlock(&f->pos_lock);
    return n;
}

static int check_position(const struct file *f, const struct io *io, int64_t pos)
{
    if (pos < 0)
        return -EINVAL;
    if (!f->ops->lseek)
        return -ESPIPE;
    int64_t end;
    return io->remaining > INT64_MAX || __builtin_add_overflow(pos, (int64_t)io->remaining, &end)
               ? -EINVAL
               : 0;
}

ssize_t vfs_pread(struct file *f, struct io *io, int64_t pos)
{
    int r = check_read(f);
    if (r < 0 && r != -EISDIR)
        return r;
    int bad = check_position(f, io, pos);
    if (bad < 0)
        return bad;
    return r < 0 ? r : f->ops->read(f, io, &pos);
}

ssize_t vfs_pwrite(struct file *f, struct io *io, int64_t pos)
{
    int r = check_write(f);
    if (r < 0)
        return r;
    r = check_position(f, io, pos);
    return r < 0 ? r : f->ops->write(f, io, &pos);
}

int64_t vfs_lseek(struct file *f, int64_t offset, int whence)
{
    if (atomic_load_explicit(&f->flags, memory_order_relaxed) & O_PATH)
        return -EBADF;
    if (!f->ops->lseek)
        return f->ops->lseek_is_noop ? 0 : -ESPIPE;
    fmutex_lock(&f->pos_lock);
    int64_t r = f->ops->lseek(f, offset, whence);
    fmutex_unlock(&f->pos_lock);
    return r;
}

int64_t file_lseek_sized(struct file *f, int64_t offset, int whence, uint64_t size)
{
    int64_t from;
    switch (whence) {
    case SEEK_SET:
        from = 0;
        break;
    case SEEK_CUR:
        from = f->pos;
        break;
    case SEEK_END:
        from = (int64_t)size;
        break;
    case SEEK_DATA:
        if (offset < 0 || (uint64_t)offset >= size)
            return -ENXIO;
        from = 0;
        break;
    case SEEK_HOLE:
        if (offset < 0 || (uint64_t)offset >= size)
            return -ENXIO;
        offset = (int64_t)size;
        from = 0;
        break;
    default:
        return -EINVAL;
    }
    int64_t to;
    if (__builtin_add_overflow(from, offset, &to) || to < 0)
        return -EINVAL;
    f->pos = to;
    return to;
}

int64_t file_lseek_dir(struct file *f, int64_t offset, int whence)
{
    return whence == SEEK_SET || whence == SEEK_CUR ? file_lseek_sized(f, offset, whence, 0)
                                                    : -EINVAL;
}

ssize_t file_read_at(struct file *f, void *buffer, size_t size, int64_t pos)
{
    struct io io;
    io_init_kernel(&io, buffer, size);
    size_t done = 0;
    while (done < size) {
        ssize_t n = vfs_pread(f, &io, pos + (int64_t)done);
        if (n < 0)
            return n;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

/* Whose write it is: the caller's, who needn't be who opened the file. */
static const struct creds *writer(const struct file *f)
{
    const struct creds *c = g_vfs_hooks.current_creds ? g_vfs_hooks.current_creds() : NULL;
    return c ? c : f->creds;
}

int vfs_ftruncate(struct file *f, uint64_t size)
{
    uint32_t flags = atomic_load_explicit(&f->flags, memory_order_relaxed);
    if (flags & O_PATH)
        return -EBADF;
    if (!S_ISREG(f->inode->mode) || (flags & O_ACCMODE) == O_RDONLY)
        return -EINVAL;
    struct iattr attr = {.valid = ATTR_SIZE | ATTR_OPEN_FILE, .size = size};
    return inode_setattr(writer(f), f->inode, f->path.mount, &attr);
}

/* ---- times --------------------------------------------------------------------------------------
 */

static bool is_older(const struct linux_timespec *a, const struct linux_timespec *b)
{
    int64_t a_sec = LOAD_RELAXED(a->sec);
    int64_t b_sec = LOAD_RELAXED(b->sec);
    return a_sec < b_sec || (a_sec == b_sec && LOAD_RELAXED(a->nsec) <= LOAD_RELAXED(b->nsec));
}

#define A_DAY 86400

/* hot */
void file_accessed(struct file *f)
{
    struct inode *inode = f->inode;
    if (atomic_load_explicit(&f->flags, memory_order_relaxed) & O_NOATIME)
        return;
    uint32_t mount_flags = f->path.mount ? f->path.mount->flags : 0;
    if (mount_flags & (MS_NOATIME | MS_RDONLY) ||
        ((mount_flags & MS_NODIRATIME) && S_ISDIR(inode->mode)))
        return;
    if (is_older(&inode->atime, &inode->mtime) || is_older(&inode->atime, &inode->ctime) ||
        LOAD_RELAXED(inode->atime.sec) + A_DAY < vfs_now().sec)
        inode_touch(inode, ATTR_ATIME);
}

void file_modified(struct file *f)
{
    struct inode *inode = f->inode;
    uint32_t mode = inode->mode;
    if (unlikely(mode & (S_ISUID | S_ISGID)) && !creds_capable(writer(f), CAP_FSETID)) {
        mode &= ~(uint32_t)S_ISUID;
        if (mode & S_IXGRP)
            mode &= ~(uint32_t)S_ISGID;
        atomic_store_explicit(&inode->mode, mode, memory_order_relaxed);
    }
    inode_touch(inode, ATTR_MTIME | ATTR_CTIME);
}

/* ---- directories --------------------------------------------------------------------------------
 */

int vfs_iterate(struct file *f, struct dir_context *ctx)
{
    if (atomic_load_explicit(&f->flags, memory_order_relaxed) & O_PATH)
        return -EBADF;
    if (!f->ops->iterate)
        return -ENOTDIR;
    fmutex_lock(&f->pos_lock);
    fmutex_lock(&f->inode->lock);
    ctx->pos = f->pos;
    int r = f->inode->nlink ? f->ops->iterate(f, ctx) : -ENOENT;
    f->pos = ctx->pos;
    fmutex_unlock(&f->inode->lock);
    fmutex_unlock(&f->pos_lock);
    if (r == 0)
        file_accessed(f);
    return r;
}

static uint64_t parent_ino(const struct file *f)
{
    struct dentry *d = f->path.dentry;
    if (!d)
        return f->inode->ino;
    lock_acquire(&g_dcache_lock);
    const struct mount *m = f->path.mount;
    if (m && d == m->root && m->parent)
        d = m->mountpoint;
    const struct inode *parent = d->parent->inode;
    uint64_t ino = parent ? parent->ino : f->inode->ino;
    lock_release(&g_dcache_lock);
    return ino;
}

bool dir_emit_dots(struct file *f, struct dir_context *ctx)
{
    if (ctx->pos == 0) {
        if (!ctx->emit(ctx, ".", 1, f->inode->ino, S_IFDIR >> 12, 1))
            return false;
        ctx->pos = 1;
    }
    if (ctx->pos == 1) {
        if (!ctx->emit(ctx, "..", 2, parent_ino(f), S_IFDIR >> 12, 2))
            return false;
        ctx->pos = 2;
    }
    return true;
}

/* ---- polling ------------------------------------------------------------------------------------
 */

uint32_t vfs_poll(struct file *f, struct poll_table *table)
{
    if (f->ops->poll)
        return f->ops->poll(f, table);
    return EPOLLIN | EPOLLOUT | EPOLLRDNORM | EPOLLWRNORM;
}

/* ---- as something that can be mapped ------------------------------------------------------------
 */

static struct file *file_of(struct mappable *m)
{
    return container_of(m, struct file, mappable);
}

static void mappable_get(struct mappable *m)
{
    file_get(file_of(m));
}

static void mappable_put(struct mappable *m)
{
    file_put(file_of(m));
}

static int mappable_map(struct mappable *m, uint64_t offset, uint64_t size, int prot, int flags,
                        int *ret_hfd, uint64_t *ret_host_offset)
{
    struct file *f = file_of(m);
    uint32_t open_flags = atomic_load_explicit(&f->flags, memory_order_relaxed);
    if (open_flags & O_PATH)
        return -EBADF;
    if ((open_flags & O_ACCMODE) == O_WRONLY)
        return -EACCES;
    if ((flags & MAP_SHARED) && (prot & PROT_WRITE) && (open_flags & O_ACCMODE) != O_RDWR)
        return -EACCES;
    if ((prot & PROT_EXEC) && f->path.mount && (f->path.mount->flags & MS_NOEXEC))
        return -EPERM;
    if (!f->ops->map)
        return -ENODEV;
    return f->ops->map(f, offset, size, prot, flags, ret_hfd, ret_host_offset);
}

static void mappable_describe(struct mappable *m, uint64_t *ret_dev, uint64_t *ret_ino,
                              char **ret_path)
{
    struct file *f = file_of(m);
    struct kstat st;
    char *path = NULL;
    if (inode_getattr(f->inode, &st) < 0)
        inode_fill_kstat(f->inode, &st);
    if (vfs_path_text(&f->path, NULL, &path) < 0)
        path = strdup("?");
    *ret_dev = st.dev;
    *ret_ino = st.ino;
    *ret_path = path;
}

static int mappable_sync(struct mappable *m, uint64_t offset UNUSED, uint64_t size UNUSED)
{
    struct file *f = file_of(m);
    return f->ops->fsync ? f->ops->fsync(f, true) : 0;
}

static int mappable_shared_write(struct mappable *m, bool add)
{
    atomic_fetch_add_explicit(&file_of(m)->inode->shared_writes, add ? 1 : -1,
                              memory_order_acq_rel);
    return 0;
}

static uint64_t mappable_identity(struct mappable *m)
{
    return (uint64_t)(uintptr_t)file_of(m)->inode;
}

static const struct mappable_ops file_mappable_ops = {
    .get = mappable_get,
    .put = mappable_put,
    .map = mappable_map,
    .describe = mappable_describe,
    .sync = mappable_sync,
    .shared_write = mappable_shared_write,
    .identity = mappable_identity,
};
