/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open(2), openat2(2): from a path to an open file description.
 */
#include "sentry/vfs/vfs_internal.h"

#include "sentry/vfs/namei.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/mount.h>
#include <sys/stat.h>

/* Kernel values; the libc's O_LARGEFILE is 0 on x86-64, and its O_TMPFILE and O_SYNC are the
 * kernel's. */
#define O_LARGEFILE_KERNEL 0100000U
#define O_KEPT_BY_PATH     (O_DIRECTORY | O_NOFOLLOW | O_PATH | O_CLOEXEC)
/* What a description remembers: the rest matters at open only. */
#define O_NOT_KEPT (O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_CLOEXEC)

static uint32_t access_mask(uint32_t open_flags)
{
    static const uint32_t masks[] = {MAY_READ, MAY_WRITE, MAY_READ | MAY_WRITE,
                                     MAY_READ | MAY_WRITE};
    uint32_t mask = masks[open_flags & O_ACCMODE];
    return open_flags & O_TRUNC ? mask | MAY_WRITE : mask;
}

static int check_kind(const struct path *p, const struct inode *inode, uint32_t open_flags)
{
    switch (inode->mode & S_IFMT) {
    case S_IFLNK:
        return -ELOOP;
    case S_IFDIR:
        return access_mask(open_flags) & MAY_WRITE ? -EISDIR : 0;
    case S_IFCHR:
    case S_IFBLK:
        return p->mount && (p->mount->flags & MS_NODEV) ? -EACCES : 0;
    case S_IFSOCK:
        return -ENXIO;
    default:
        return 0;
    }
}

static int check_access(const struct walk_context *ctx, const struct path *p, uint32_t open_flags)
{
    struct inode *inode = dentry_inode(p->dentry);
    int r = check_kind(p, inode, open_flags);
    if (r == 0)
        r = vfs_path_permission(ctx->creds, p, access_mask(open_flags));
    if (r == 0 && (open_flags & O_NOATIME) && ctx->creds->fsuid != inode->uid &&
        !creds_capable(ctx->creds, CAP_FOWNER))
        r = -EPERM;
    return r;
}

/* Fills file->ops by what the inode is. */
static int open_inode(struct inode *inode, struct file *f)
{
    if (S_ISFIFO(inode->mode))
        return g_vfs_hooks.open_fifo ? g_vfs_hooks.open_fifo(inode, f) : -ENXIO;
    if (inode->ops->open)
        return inode->ops->open(inode, f);
    if (S_ISCHR(inode->mode) || S_ISBLK(inode->mode))
        return g_vfs_hooks.open_device ? g_vfs_hooks.open_device(inode, f) : -ENXIO;
    return 0;
}

static const struct file_ops no_ops;

/* Permissions are checked. */
static int open_checked(const struct walk_context *ctx, const struct path *p, uint32_t open_flags,
                        struct file **ret)
{
    struct inode *inode = dentry_inode(p->dentry);
    AUTO_FILE f = NULL;
    uint32_t kept = (open_flags & ~(uint32_t)O_NOT_KEPT) | O_LARGEFILE_KERNEL;
    if (open_flags & O_PATH) {
        int r =
            file_new(p, ctx->creds, open_flags & (O_KEPT_BY_PATH & ~O_CLOEXEC), &no_ops, NULL, &f);
        if (r < 0)
            return r;
        *ret = f;
        f = NULL;
        return 0;
    }
    /* The open op sees all flags (O_NOCTTY). */
    int r = file_new(p, ctx->creds, open_flags | O_LARGEFILE_KERNEL, &no_ops, NULL, &f);
    if (r < 0)
        return r;
    bool writes = (open_flags & O_ACCMODE) != O_RDONLY && S_ISREG(inode->mode);
    if (writes) {
        r = inode_get_write_access(inode);
        if (r < 0)
            return r;
        f->has_write_access = true;
    }
    if ((open_flags & O_TRUNC) && S_ISREG(inode->mode)) {
        struct iattr attr = {.valid = ATTR_SIZE | ATTR_OPEN_FILE};
        if (!writes) {
            r = inode_get_write_access(inode);
            if (r < 0)
                return r;
        }
        r = vfs_setattr(ctx->creds, p, &attr);
        if (!writes)
            inode_put_write_access(inode);
        if (r < 0)
            return r;
    }
    r = open_inode(inode, f);
    if (r < 0) {
        f->ops = &no_ops; /* nothing to release */
        return r;
    }
    atomic_store_explicit(&f->flags, kept, memory_order_relaxed);
    *ret = f;
    f = NULL;
    return 0;
}

int vfs_open_path(const struct walk_context *ctx, const struct path *p, uint32_t open_flags,
                  struct file **ret_file)
{
    struct inode *inode = dentry_inode(p->dentry);
    if ((open_flags & O_DIRECTORY) && !S_ISDIR(inode->mode))
        return -ENOTDIR;
    if (!(open_flags & O_PATH)) {
        int r = check_access(ctx, p, open_flags);
        if (r < 0)
            return r;
    }
    return open_checked(ctx, p, open_flags, ret_file);
}

int vfs_open_exec(const struct walk_context *ctx, const struct path *p, struct file **ret_file)
{
    struct inode *inode = dentry_inode(p->dentry);
    if (!S_ISREG(inode->mode))
        return -EACCES;
    AUTO_FILE f = NULL;
    int r = vfs_path_permission(ctx->creds, p, MAY_EXEC);
    if (r == 0)
        r = open_checked(ctx, p, O_RDONLY, &f);
    if (r == 0)
        r = inode_deny_write(inode);
    if (r < 0)
        return r;
    f->denies_write = true;
    *ret_file = f;
    f = NULL;
    return 0;
}

int file_open_inode(struct inode *inode, const struct creds *creds, uint32_t flags,
                    struct file **ret)
{
    AUTO_FILE f = NULL;
    int r = file_new(NULL, creds, flags, &no_ops, NULL, &f);
    if (r < 0)
        return r;
    inode_get(inode);
    f->inode = inode;
    r = inode->ops->open ? inode->ops->open(inode, f) : -ENXIO;
    if (r < 0) {
        f->ops = &no_ops;
        return r;
    }
    *ret = f;
    f = NULL;
    return 0;
}

static int open_tmpfile(const struct walk_context *ctx, const struct path *base, const char *path,
                        uint32_t open_flags, uint32_t mode, uint32_t walk_flags,
                        struct file **ret_file)
{
    AUTO_PATH dir = {0};
    if ((open_flags & O_ACCMODE) == O_RDONLY)
        return -EINVAL;
    int r = vfs_walk(ctx, base, path, walk_flags | WALK_DIRECTORY, &dir);
    if (r < 0)
        return r;
    r = vfs_path_permission(ctx->creds, &dir, MAY_WRITE | MAY_EXEC);
    if (r < 0)
        return r;
    struct inode *parent = dentry_inode(dir.dentry);
    if (!parent->ops->tmpfile)
        return -EOPNOTSUPP;
    struct owner o = namei_owner(ctx->creds, parent, (mode & 07777) | S_IFREG);
    struct inode *inode;
    fmutex_lock(&parent->lock);
    r = parent->ops->tmpfile(parent, o.mode, o.uid, o.gid, &inode);
    fmutex_unlock(&parent->lock);
    if (r < 0)
        return r;
    inode->is_linkable = !(open_flags & O_EXCL);
    struct path place = {.mount = dir.mount, .dentry = dcache_new_tmpfile(dir.dentry, inode)};
    inode_put(inode);
    if (!place.dentry)
        return -ENOMEM;
    r = open_checked(ctx, &place, open_flags & ~(uint32_t)(O_TRUNC | O_DIRECTORY), ret_file);
    dentry_put(place.dentry);
    return r;
}

/* The last component doesn't exist (as seen without the lock): makes it, unless somebody was
 * faster. */
static int create_child(const struct walk_context *ctx, struct walk_result *w, uint32_t open_flags,
                        uint32_t mode, bool *ret_is_new)
{
    struct inode *dir = dentry_inode(w->dir.dentry);
    struct dentry *child;
    fmutex_lock(&dir->lock);
    int r = lookup_child_locked(w->dir.dentry, w->name, &child);
    if (r == 0 && !dentry_inode(child)) {
        struct inode *inode = NULL;
        struct owner o = namei_owner(ctx->creds, dir, (mode & 07777) | S_IFREG);
        r = mount_writable(w->dir.mount);
        if (r == 0)
            r = namei_may_create(ctx->creds, dir);
        if (r == 0)
            r = dir->ops->create ? dir->ops->create(dir, w->name, o.mode, o.uid, o.gid, &inode)
                                 : -EACCES;
        dentry_put(child);
        child = NULL;
        if (r == 0) {
            child = dcache_add(w->dir.dentry, w->name, inode);
            inode_put(inode);
            r = child ? 0 : -ENOMEM;
            *ret_is_new = true;
        }
    } else if (r == 0 && (open_flags & O_EXCL)) {
        r = -EEXIST;
    }
    fmutex_unlock(&dir->lock);
    if (r < 0) {
        dentry_put(child);
        return r;
    }
    dentry_put(w->child.dentry);
    w->child.dentry = child;
    return 0;
}

static int open_created(const struct walk_context *ctx, struct walk_result *w, uint32_t open_flags,
                        uint32_t mode, struct file **ret_file)
{
    bool is_new = false;
    if (!dentry_inode(w->child.dentry)) {
        if (w->trailing_slash)
            return -EISDIR;
        int r = create_child(ctx, w, open_flags, mode, &is_new);
        if (r < 0)
            return r;
    } else if (open_flags & O_EXCL) {
        return -EEXIST;
    }
    struct inode *inode = dentry_inode(w->child.dentry);
    if (is_new) /* its mode may forbid what this open asks for */
        return open_checked(ctx, &w->child, open_flags & ~(uint32_t)O_TRUNC, ret_file);
    if (S_ISDIR(inode->mode))
        return -EISDIR;
    if (w->trailing_slash)
        return -ENOTDIR;
    return vfs_open_path(ctx, &w->child, open_flags, ret_file);
}

int vfs_open(const struct walk_context *ctx, const struct path *base, const char *path,
             uint32_t open_flags, uint32_t mode, uint32_t resolve, struct file **ret_file)
{
    uint32_t walk_flags = resolve;
    bool no_follow = (open_flags & O_NOFOLLOW) || ((open_flags & O_CREAT) && (open_flags & O_EXCL));
    if (open_flags & O_PATH) {
        open_flags &= O_KEPT_BY_PATH;
        no_follow = open_flags & O_NOFOLLOW;
    }
    if (!no_follow)
        walk_flags |= WALK_FOLLOW;
    if ((open_flags & O_TMPFILE) == O_TMPFILE)
        return open_tmpfile(ctx, base, path, open_flags, mode, walk_flags, ret_file);
    if (open_flags & O_CREAT) {
        struct walk_result w = {0};
        int r = walk_to_child(ctx, base, path, walk_flags, &w);
        if (r == 0)
            r = open_created(ctx, &w, open_flags, mode, ret_file);
        walk_result_fini(&w);
        return r;
    }
    if (open_flags & O_DIRECTORY)
        walk_flags |= WALK_DIRECTORY;
    AUTO_PATH p = {0};
    int r = vfs_walk(ctx, base, path, walk_flags, &p);
    if (r < 0)
        return r;
    return vfs_open_path(ctx, &p, open_flags, ret_file);
}
