/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations that change a directory: mkdir, mknod, symlink, link, unlink, rmdir. Each walks to the
 * directory, locks it, looks the name up, checks, lets the file system act and tells the dcache.
 */
#include "sentry/vfs/vfs_internal.h"

#include "sentry/vfs/namei.h"
#include <errno.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/stat.h>

int namei_may_create(const struct creds *creds, struct inode *dir)
{
    if (atomic_load_explicit(&dir->nlink, memory_order_relaxed) == 0)
        return -ENOENT; /* removed while somebody stood in it */
    return vfs_permission(creds, dir, MAY_WRITE | MAY_EXEC);
}

int namei_may_delete(const struct creds *creds, struct inode *dir, struct inode *victim)
{
    int r = vfs_permission(creds, dir, MAY_WRITE | MAY_EXEC);
    if (r < 0)
        return r;
    if ((dir->mode & S_ISVTX) && creds->fsuid != victim->uid && creds->fsuid != dir->uid &&
        !creds_capable(creds, CAP_FOWNER))
        return -EPERM;
    return 0;
}

struct owner namei_owner(const struct creds *creds, const struct inode *dir, uint32_t mode)
{
    struct owner o = {.mode = mode, .uid = creds->fsuid, .gid = creds->fsgid};
    if (dir->mode & S_ISGID) {
        o.gid = dir->gid;
        if (S_ISDIR(mode))
            o.mode |= S_ISGID;
        else if ((mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) &&
                 !creds_in_group(creds, o.gid) && !creds_capable(creds, CAP_FSETID))
            o.mode &= ~(uint32_t)S_ISGID;
    }
    return o;
}

/* A walk to a directory, which is then locked until create_end(). */
struct change {
    struct path dir;
    struct inode *inode;  /* borrowed from dir */
    struct dentry *child; /* ref */
    bool trailing_slash;
    char name[VFS_NAME_MAX + 1];
};

static int change_begin(struct change *c, const struct walk_context *ctx, const struct path *base,
                        const char *path, int special_errno) NO_LOCK_ANALYSIS
{
    bool is_special;
    *c = (struct change){0};
    int r = vfs_walk_parent(ctx, base, path, 0, &c->dir, c->name, &c->trailing_slash, &is_special);
    if (r < 0)
        return r;
    if (is_special) {
        path_put(&c->dir);
        return special_errno;
    }
    c->inode = dentry_inode(c->dir.dentry);
    fmutex_lock(&c->inode->lock);
    r = lookup_child_locked(c->dir.dentry, c->name, &c->child);
    if (r < 0) {
        fmutex_unlock(&c->inode->lock);
        path_put(&c->dir);
    }
    return r;
}

static void change_end(struct change *c) NO_LOCK_ANALYSIS
{
    fmutex_unlock(&c->inode->lock);
    dentry_put(c->child);
    path_put(&c->dir);
}

/* The checks that come before anything is created at `c`. */
static int check_create(const struct change *c, const struct creds *creds, bool is_directory)
{
    if (dentry_inode(c->child))
        return -EEXIST;
    if (c->trailing_slash && !is_directory)
        return -ENOENT;
    int r = mount_writable(c->dir.mount);
    if (r < 0)
        return r;
    return namei_may_create(creds, c->inode);
}

/* The file system made `inode` (reference taken over) at `c`. */
static void created(struct change *c, struct inode *inode)
{
    dentry_put(dcache_add(c->dir.dentry, c->name, inode));
    inode_put(inode);
}

int vfs_mkdir(const struct walk_context *ctx, const struct path *base, const char *path,
              uint32_t mode)
{
    struct change c;
    int r = change_begin(&c, ctx, base, path, -EEXIST);
    if (r < 0)
        return r;
    r = check_create(&c, ctx->creds, true);
    if (r == 0 && !c.inode->ops->mkdir)
        r = -EPERM;
    if (r == 0) {
        struct inode *inode;
        struct owner o = namei_owner(ctx->creds, c.inode, (mode & 01777) | S_IFDIR);
        r = c.inode->ops->mkdir(c.inode, c.name, o.mode, o.uid, o.gid, &inode);
        if (r == 0)
            created(&c, inode);
    }
    change_end(&c);
    return r;
}

static int check_mknod(const struct creds *creds, uint32_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
    case S_IFIFO:
    case S_IFSOCK:
        return 0;
    case S_IFCHR:
    case S_IFBLK:
        return creds_capable(creds, CAP_MKNOD) ? 0 : -EPERM;
    case S_IFDIR:
        return -EPERM;
    default:
        return -EINVAL;
    }
}

int vfs_mknod(const struct walk_context *ctx, const struct path *base, const char *path,
              uint32_t mode, uint64_t rdev)
{
    if (!(mode & S_IFMT))
        mode |= S_IFREG;
    struct change c;
    int r = change_begin(&c, ctx, base, path, -EEXIST);
    if (r < 0)
        return r;
    r = check_create(&c, ctx->creds, false);
    if (r == 0)
        r = check_mknod(ctx->creds, mode);
    if (r == 0) {
        struct inode *inode = NULL;
        struct owner o = namei_owner(ctx->creds, c.inode, mode);
        const struct inode_ops *ops = c.inode->ops;
        if (S_ISREG(mode))
            r = ops->create ? ops->create(c.inode, c.name, o.mode, o.uid, o.gid, &inode) : -EPERM;
        else
            r = ops->mknod ? ops->mknod(c.inode, c.name, o.mode, rdev, o.uid, o.gid, &inode)
                           : -EPERM;
        if (r == 0)
            created(&c, inode);
    }
    change_end(&c);
    return r;
}

int vfs_symlink(const struct walk_context *ctx, const struct path *base, const char *path,
                const char *target)
{
    struct change c;
    int r = change_begin(&c, ctx, base, path, -EEXIST);
    if (r < 0)
        return r;
    r = check_create(&c, ctx->creds, false);
    if (r == 0 && !c.inode->ops->symlink)
        r = -EPERM;
    if (r == 0) {
        struct inode *inode;
        struct owner o = namei_owner(ctx->creds, c.inode, S_IFLNK | 0777);
        r = c.inode->ops->symlink(c.inode, c.name, target, o.uid, o.gid, &inode);
        if (r == 0)
            created(&c, inode);
    }
    change_end(&c);
    return r;
}

/* fs.protected_hardlinks = 1, as every distribution has it. */
static int check_link_source(const struct creds *creds, struct inode *inode)
{
    if (creds->fsuid == inode->uid || creds_capable(creds, CAP_FOWNER))
        return 0;
    if (!S_ISREG(inode->mode) || (inode->mode & S_ISUID) ||
        (inode->mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP))
        return -EPERM;
    return vfs_permission(creds, inode, MAY_READ | MAY_WRITE) < 0 ? -EPERM : 0;
}

int vfs_link(const struct walk_context *ctx, const struct path *old_path, const struct path *base,
             const char *path)
{
    struct inode *inode = dentry_inode(old_path->dentry);
    struct change c;
    int r = change_begin(&c, ctx, base, path, -EEXIST);
    if (r < 0)
        return r;
    if (old_path->mount != c.dir.mount)
        r = dentry_inode(c.child) ? -EEXIST : -EXDEV;
    if (r == 0)
        r = check_create(&c, ctx->creds, false);
    if (r == 0)
        r = check_link_source(ctx->creds, inode);
    if (r == 0 && (S_ISDIR(inode->mode) || !c.inode->ops->link))
        r = -EPERM;
    if (r == 0 && inode->sb != c.inode->sb)
        r = -EXDEV;
    if (r == 0 && atomic_load_explicit(&inode->nlink, memory_order_relaxed) == 0 &&
        !inode->is_linkable)
        r = -ENOENT;
    if (r == 0)
        r = c.inode->ops->link(c.inode, c.name, inode);
    if (r == 0)
        dentry_put(dcache_add(c.dir.dentry, c.name, inode));
    change_end(&c);
    return r;
}

int vfs_unlink(const struct walk_context *ctx, const struct path *base, const char *path)
{
    struct change c;
    int r = change_begin(&c, ctx, base, path, -EISDIR);
    if (r < 0)
        return r;
    struct inode *victim = dentry_inode(c.child);
    if (!victim)
        r = -ENOENT;
    else if (c.trailing_slash)
        r = S_ISDIR(victim->mode) ? -EISDIR : -ENOTDIR;
    if (r == 0)
        r = mount_writable(c.dir.mount);
    if (r == 0)
        r = namei_may_delete(ctx->creds, c.inode, victim);
    if (r == 0 && S_ISDIR(victim->mode))
        r = -EISDIR;
    if (r == 0 && c.child->is_mountpoint)
        r = -EBUSY;
    if (r == 0)
        r = c.inode->ops->unlink ? c.inode->ops->unlink(c.inode, c.name, victim) : -EPERM;
    if (r == 0)
        dcache_drop(c.child);
    change_end(&c);
    return r;
}

static int remove_directory(struct change *c, struct inode *victim)
{
    if (!S_ISDIR(victim->mode))
        return -ENOTDIR;
    if (c->child->is_mountpoint)
        return -EBUSY;
    if (!c->inode->ops->rmdir)
        return -EPERM;
    fmutex_lock(&victim->lock);
    int r = c->inode->ops->rmdir(c->inode, c->name, victim);
    fmutex_unlock(&victim->lock);
    return r;
}

int vfs_rmdir(const struct walk_context *ctx, const struct path *base, const char *path)
{
    struct change c;
    int r = change_begin(&c, ctx, base, path, -ENOTEMPTY);
    if (r == -ENOTEMPTY) {
        /* Which special name decides between three answers. */
        size_t len = strlen(path);
        while (len && path[len - 1] == '/')
            len--;
        if (len == 0)
            return -EBUSY;
        bool is_dotdot = len >= 2 && path[len - 1] == '.' && path[len - 2] == '.';
        return is_dotdot ? -ENOTEMPTY : -EINVAL;
    }
    if (r < 0)
        return r;
    struct inode *victim = dentry_inode(c.child);
    if (!victim)
        r = -ENOENT;
    if (r == 0)
        r = mount_writable(c.dir.mount);
    if (r == 0)
        r = namei_may_delete(ctx->creds, c.inode, victim);
    if (r == 0)
        r = remove_directory(&c, victim);
    if (r == 0)
        dcache_drop(c.child);
    change_end(&c);
    return r;
}
