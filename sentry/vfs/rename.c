/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rename(2), renameat2(2). Locks: the superblock's rename_lock when two directories are involved,
 * so that the tree keeps its shape; then both directories, an ancestor first; then the victim, if
 * it is one.
 */
#include "sentry/vfs/vfs_internal.h"

#include "sentry/vfs/namei.h"
#include <errno.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/stat.h>

struct side {
    struct path dir;
    struct inode *dir_inode; /* borrowed */
    struct dentry *child;    /* ref */
    struct inode *inode;     /* borrowed; NULL when there is none */
    bool trailing_slash;
    char name[VFS_NAME_MAX + 1];
};

static int side_walk(struct side *s, const struct walk_context *ctx, const struct path *base,
                     const char *path)
{
    bool is_special;
    *s = (struct side){0};
    int r = vfs_walk_parent(ctx, base, path, 0, &s->dir, s->name, &s->trailing_slash, &is_special);
    if (r < 0)
        return r;
    s->dir_inode = dentry_inode(s->dir.dentry);
    return is_special ? -EBUSY : 0;
}

static int side_look_up(struct side *s)
{
    int r = lookup_child_locked(s->dir.dentry, s->name, &s->child);
    if (r == 0)
        s->inode = dentry_inode(s->child);
    return r;
}

static void side_fini(struct side *s)
{
    dentry_put(s->child);
    path_put(&s->dir);
}

static void lock_directories(struct side *a, struct side *b) NO_LOCK_ANALYSIS
{
    if (a->dir_inode == b->dir_inode) {
        fmutex_lock(&a->dir_inode->lock);
        return;
    }
    fmutex_lock(&a->dir_inode->sb->rename_lock);
    bool a_first =
        dcache_is_ancestor(a->dir.dentry, b->dir.dentry) ||
        (!dcache_is_ancestor(b->dir.dentry, a->dir.dentry) && a->dir_inode < b->dir_inode);
    fmutex_lock(a_first ? &a->dir_inode->lock : &b->dir_inode->lock);
    fmutex_lock(a_first ? &b->dir_inode->lock : &a->dir_inode->lock);
}

static void unlock_directories(struct side *a, struct side *b) NO_LOCK_ANALYSIS
{
    fmutex_unlock(&a->dir_inode->lock);
    if (a->dir_inode == b->dir_inode)
        return;
    fmutex_unlock(&b->dir_inode->lock);
    fmutex_unlock(&a->dir_inode->sb->rename_lock);
}

static bool is_directory(const struct inode *inode)
{
    return inode && S_ISDIR(inode->mode);
}

/* What doesn't depend on who asks. */
static int check_shape(const struct side *from, const struct side *to, uint32_t flags)
{
    if (!from->inode)
        return -ENOENT;
    if ((flags & RENAME_NOREPLACE) && to->inode)
        return -EEXIST;
    if ((flags & RENAME_EXCHANGE) && !to->inode)
        return -ENOENT;
    if (!is_directory(from->inode)) {
        if (from->trailing_slash || (!(flags & RENAME_EXCHANGE) && to->trailing_slash))
            return -ENOTDIR;
    }
    if ((flags & RENAME_EXCHANGE) && to->trailing_slash && !is_directory(to->inode))
        return -ENOTDIR;
    if (dcache_is_ancestor(from->child, to->dir.dentry))
        return -EINVAL;
    if (to->inode && dcache_is_ancestor(to->child, from->dir.dentry))
        return flags & RENAME_EXCHANGE ? -EINVAL : -ENOTEMPTY;
    return 0;
}

static int check_rights(const struct creds *creds, const struct side *from, const struct side *to,
                        uint32_t flags)
{
    int r = namei_may_delete(creds, from->dir_inode, from->inode);
    if (r < 0)
        return r;
    if (!to->inode) {
        r = namei_may_create(creds, to->dir_inode);
    } else {
        r = namei_may_delete(creds, to->dir_inode, to->inode);
        if (r == 0 && !(flags & RENAME_EXCHANGE)) {
            if (is_directory(from->inode) && !is_directory(to->inode))
                r = -ENOTDIR;
            else if (!is_directory(from->inode) && is_directory(to->inode))
                r = -EISDIR;
        }
    }
    if (r < 0)
        return r;
    /* A directory that gets another parent has its ".." written. */
    if (from->dir_inode != to->dir_inode) {
        if (is_directory(from->inode))
            r = vfs_permission(creds, from->inode, MAY_WRITE);
        if (r == 0 && (flags & RENAME_EXCHANGE) && is_directory(to->inode))
            r = vfs_permission(creds, to->inode, MAY_WRITE);
    }
    if (r == 0 && (from->child->is_mountpoint || (to->inode && to->child->is_mountpoint)))
        r = -EBUSY;
    return r;
}

static int do_rename(struct side *from, struct side *to, uint32_t flags) NO_LOCK_ANALYSIS
{
    const struct inode_ops *ops = from->dir_inode->ops;
    if (!ops->rename)
        return -EPERM;
    bool lock_victim = is_directory(to->inode) && !(flags & RENAME_EXCHANGE);
    if (lock_victim)
        fmutex_lock(&to->inode->lock);
    int r = ops->rename(from->dir_inode, from->name, from->inode, to->dir_inode, to->name,
                        to->inode, flags);
    if (lock_victim)
        fmutex_unlock(&to->inode->lock);
    if (r == 0)
        dcache_move(from->child, to->dir.dentry, to->name,
                    flags & RENAME_EXCHANGE ? to->child : NULL);
    return r;
}

static int rename_sides(const struct walk_context *ctx, struct side *from, struct side *to,
                        uint32_t flags)
{
    if (from->dir.mount != to->dir.mount || from->dir_inode->sb != to->dir_inode->sb)
        return -EXDEV;
    int r = mount_writable(from->dir.mount);
    if (r < 0)
        return r;
    lock_directories(from, to);
    r = side_look_up(from);
    if (r == 0)
        r = side_look_up(to);
    if (r == 0)
        r = check_shape(from, to, flags);
    /* Two names of one file: nothing to do. */
    if (r == 0 && from->inode != to->inode) {
        r = check_rights(ctx->creds, from, to, flags);
        if (r == 0)
            r = do_rename(from, to, flags);
    }
    unlock_directories(from, to);
    return r;
}

int vfs_rename(const struct walk_context *ctx, const struct path *old_base, const char *old_path,
               const struct path *new_base, const char *new_path, uint32_t flags)
{
    if (flags & ~(uint32_t)(RENAME_NOREPLACE | RENAME_EXCHANGE))
        return -EINVAL; /* RENAME_WHITEOUT as well */
    if ((flags & RENAME_NOREPLACE) && (flags & RENAME_EXCHANGE))
        return -EINVAL;
    struct side from;
    struct side to;
    int r = side_walk(&from, ctx, old_base, old_path);
    if (r < 0) {
        side_fini(&from);
        return r;
    }
    r = side_walk(&to, ctx, new_base, new_path);
    if (r == -EBUSY && (flags & RENAME_NOREPLACE))
        r = -EEXIST;
    if (r == 0)
        r = rename_sides(ctx, &from, &to, flags);
    side_fini(&to);
    side_fini(&from);
    return r;
}
