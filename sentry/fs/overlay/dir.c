/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories of an overlay: lookup, changes, reading. dir->lock is held in every operation but
 * open.
 */
#include "sentry/fs/overlay/overlay_internal.h"

#include <errno.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Positions: 0 and 1 the dots, then the lower's names in their order, then what is new here by
 * cookie. */
#define POS_LOWER 2
#define POS_NEW   (INT64_C(1) << 40)

static struct name_table *names_of(struct inode *dir)
{
    return &overlay_node(dir)->names;
}

static int dir_lookup(struct inode *dir, const char *name, struct inode **ret)
{
    struct overlay_node *node = overlay_node(dir);
    struct name_entry *e = name_table_find(&node->names, name);
    *ret = NULL;
    if (e) {
        if (e->inode)
            inode_get(e->inode);
        *ret = e->inode;
        return 0;
    }
    if (!node->lower)
        return 0;
    struct inode *lower = NULL;
    fmutex_lock(&node->lower->lock);
    int r = node->lower->ops->lookup(node->lower, name, &lower);
    fmutex_unlock(&node->lower->lock);
    if (r < 0 || !lower)
        return r;
    r = overlay_inode_of_lower(dir->sb, lower, ret);
    inode_put(lower);
    return r;
}

/* A walk goes on below: the lower may fetch all of it at once. */
static void dir_lookup_ahead(struct inode *dir, struct dentry *dentry UNUSED, const char *rest)
{
    struct overlay_node *node = overlay_node(dir);
    if (!node->lower || !node->lower->ops->lookup_ahead)
        return;
    if (node->names.count) {
        char name[VFS_NAME_MAX + 1];
        size_t size = strcspn(rest, "/");
        if (size > VFS_NAME_MAX)
            return;
        memcpy(name, rest, size);
        name[size] = '\0';
        if (name_table_find(&node->names, name))
            return;
    }
    fmutex_lock(&node->lower->lock);
    node->lower->ops->lookup_ahead(node->lower, NULL, rest);
    fmutex_unlock(&node->lower->lock);
}

/* ---- changes ------------------------------------------------------------------------------------
 */

static void dir_changed(struct inode *dir)
{
    inode_touch(dir, ATTR_MTIME | ATTR_CTIME);
}

/* File systems that don't count subdirectories report 1 for every directory. */
static void add_dir_links(struct inode *dir, int change)
{
    if (atomic_load_explicit(&dir->nlink, memory_order_relaxed) >= 2)
        atomic_fetch_add_explicit(&dir->nlink, (uint32_t)change, memory_order_relaxed);
}

/* The entry of `name`, which is made if there is none: the lower's name then counts no more. */
static int own_entry(struct inode *dir, const char *name, bool hides_lower, struct name_entry **ret)
{
    struct name_entry *e = name_table_find(names_of(dir), name);
    if (!e) {
        int r = overlay_pin(dir);
        if (r < 0)
            return r;
        if (!tmpfs_charge(OVERLAY_NAME_COST))
            return -ENOSPC;
        e = name_table_insert(names_of(dir), name, NULL);
        if (!e) {
            tmpfs_uncharge(OVERLAY_NAME_COST);
            return -ENOMEM;
        }
        e->hides_lower = hides_lower;
    }
    *ret = e;
    return 0;
}

/* Points an entry at `inode` (its own reference) or makes it a whiteout. */
static void set_entry(struct name_entry *e, struct inode *inode)
{
    struct inode *old = e->inode;
    if (inode)
        inode_get(inode);
    e->inode = inode;
    inode_put(old);
}

/* The name is gone: a whiteout where the lower has it, nothing otherwise. */
static void clear_entry(struct inode *dir, struct name_entry *e)
{
    if (e->hides_lower) {
        set_entry(e, NULL);
        return;
    }
    name_table_remove(names_of(dir), e);
    tmpfs_uncharge(OVERLAY_NAME_COST);
}

static int add_new(struct inode *dir, const char *name, uint32_t mode, uint64_t rdev, uint32_t uid,
                   uint32_t gid, struct inode **ret)
{
    struct inode *inode;
    int r = overlay_inode_new(dir->sb, mode, rdev, uid, gid, &inode);
    if (r < 0)
        return r;
    struct name_entry *e;
    r = own_entry(dir, name, false, &e);
    if (r < 0) {
        inode_put(inode);
        return r;
    }
    set_entry(e, inode);
    dir_changed(dir);
    *ret = inode;
    return 0;
}

static int dir_create(struct inode *dir, const char *name, uint32_t mode, uint32_t uid,
                      uint32_t gid, struct inode **ret)
{
    return add_new(dir, name, (mode & 07777) | S_IFREG, 0, uid, gid, ret);
}

static int dir_mkdir(struct inode *dir, const char *name, uint32_t mode, uint32_t uid, uint32_t gid,
                     struct inode **ret)
{
    int r = add_new(dir, name, (mode & 07777) | S_IFDIR, 0, uid, gid, ret);
    if (r == 0)
        add_dir_links(dir, 1);
    return r;
}

static int dir_mknod(struct inode *dir, const char *name, uint32_t mode, uint64_t rdev,
                     uint32_t uid, uint32_t gid, struct inode **ret)
{
    return add_new(dir, name, mode, rdev, uid, gid, ret);
}

static int dir_symlink(struct inode *dir, const char *name, const char *target, uint32_t uid,
                       uint32_t gid, struct inode **ret)
{
    if (!tmpfs_charge(strlen(target)))
        return -ENOSPC;
    char *text = strdup(target);
    int r = text ? add_new(dir, name, S_IFLNK | 0777, 0, uid, gid, ret) : -ENOMEM;
    if (r < 0) {
        tmpfs_uncharge(strlen(target));
        free(text);
        return r;
    }
    overlay_node(*ret)->target = text;
    atomic_store_explicit(&(*ret)->size, strlen(text), memory_order_relaxed);
    return 0;
}

static int dir_link(struct inode *dir, const char *name, struct inode *inode)
{
    struct name_entry *e;
    int r = own_entry(dir, name, false, &e);
    if (r < 0)
        return r;
    set_entry(e, inode);
    atomic_fetch_add_explicit(&inode->nlink, 1, memory_order_relaxed);
    inode_touch(inode, ATTR_CTIME);
    dir_changed(dir);
    return 0;
}

/* One name less. What has names left elsewhere must remember it. */
static void drop_link(struct inode *inode)
{
    inode_touch(inode, ATTR_CTIME);
    if (S_ISDIR(inode->mode))
        atomic_store_explicit(&inode->nlink, 0, memory_order_relaxed);
    else if (atomic_load_explicit(&inode->nlink, memory_order_relaxed) > 0)
        atomic_fetch_sub_explicit(&inode->nlink, 1, memory_order_relaxed);
    if (atomic_load_explicit(&inode->nlink, memory_order_relaxed) == 0)
        overlay_unpin(inode);
    else if (overlay_pin(inode) < 0)
        return; /* without memory for it the count may be read anew from the lower */
}

static int remove_name(struct inode *dir, const char *name, struct inode *inode)
{
    struct name_entry *e;
    int r = own_entry(dir, name, true, &e);
    if (r < 0)
        return r;
    clear_entry(dir, e);
    drop_link(inode);
    dir_changed(dir);
    return 0;
}

static int dir_unlink(struct inode *dir, const char *name, struct inode *inode)
{
    return remove_name(dir, name, inode);
}

/* dir->lock held. 0 or -ENOTEMPTY. */
static int check_empty(struct inode *dir)
{
    struct name_table *names = names_of(dir);
    size_t whiteouts = 0;
    struct name_entry *e = NULL;
    for (uint64_t at = 0; (e = name_table_next(names, at)); at = e->cookie + 1) {
        if (e->inode)
            return -ENOTEMPTY;
        whiteouts++;
    }
    struct lower_listing *l;
    bool was_open = overlay_node(dir)->listing != NULL;
    int r = overlay_listing_get(dir, &l);
    if (r < 0)
        return r;
    size_t shown =
        0; /* a whiteout hides a lower name each, but names may be hidden from the listing */
    for (size_t i = 0; i < l->count && !shown; i++)
        shown = !name_table_find(names, l->names + l->entries[i].name_at);
    if (!was_open) {
        overlay_listing_free(l);
        overlay_node(dir)->listing = NULL;
    }
    return shown ? -ENOTEMPTY : 0;
}

static int dir_rmdir(struct inode *dir, const char *name, struct inode *victim)
{
    int r = check_empty(victim);
    if (r == 0)
        r = remove_name(dir, name, victim);
    if (r == 0)
        add_dir_links(dir, -1);
    return r;
}

static int exchange(struct inode *a_dir, const char *a_name, struct inode *a, struct inode *b_dir,
                    const char *b_name, struct inode *b)
{
    struct name_entry *a_entry;
    struct name_entry *b_entry;
    int r = own_entry(a_dir, a_name, true, &a_entry);
    if (r < 0)
        return r;
    bool was_lower = !a_entry->inode; /* just made: the lower's name, until set_entry below */
    r = own_entry(b_dir, b_name, true, &b_entry);
    if (r < 0) {
        if (was_lower) {
            name_table_remove(names_of(a_dir), a_entry);
            tmpfs_uncharge(OVERLAY_NAME_COST);
        }
        return r;
    }
    set_entry(a_entry, b);
    set_entry(b_entry, a);
    int change = S_ISDIR(b->mode) - S_ISDIR(a->mode); /* for a_dir */
    add_dir_links(a_dir, change);
    add_dir_links(b_dir, -change);
    inode_touch(a, ATTR_CTIME);
    inode_touch(b, ATTR_CTIME);
    dir_changed(a_dir);
    dir_changed(b_dir);
    return 0;
}

static int dir_rename(struct inode *old_dir, const char *old_name, struct inode *old_inode,
                      struct inode *new_dir, const char *new_name, struct inode *new_inode,
                      uint32_t flags)
{
    if (flags & RENAME_EXCHANGE)
        return exchange(old_dir, old_name, old_inode, new_dir, new_name, new_inode);
    bool is_dir = S_ISDIR(old_inode->mode);
    int r = is_dir && new_inode ? check_empty(new_inode) : 0;
    if (r < 0)
        return r;
    struct name_entry *from;
    struct name_entry *to;
    bool had_entry = name_table_find(names_of(old_dir), old_name) != NULL;
    r = own_entry(old_dir, old_name, true, &from);
    if (r < 0)
        return r;
    r = own_entry(new_dir, new_name, new_inode != NULL, &to);
    if (r < 0) {
        if (!had_entry) {
            name_table_remove(names_of(old_dir), from);
            tmpfs_uncharge(OVERLAY_NAME_COST);
        }
        return r;
    }
    set_entry(to, old_inode);
    clear_entry(old_dir, from);
    if (new_inode) {
        drop_link(new_inode);
        if (is_dir)
            add_dir_links(new_dir, -1);
    }
    if (is_dir) {
        add_dir_links(old_dir, -1);
        add_dir_links(new_dir, 1);
    }
    inode_touch(old_inode, ATTR_CTIME);
    dir_changed(old_dir);
    dir_changed(new_dir);
    return 0;
}

static int dir_tmpfile(struct inode *dir, uint32_t mode, uint32_t uid, uint32_t gid,
                       struct inode **ret)
{
    int r = overlay_inode_new(dir->sb, (mode & 07777) | S_IFREG, 0, uid, gid, ret);
    if (r == 0)
        atomic_store_explicit(&(*ret)->nlink, 0, memory_order_relaxed);
    return r;
}

/* ---- reading ------------------------------------------------------------------------------------
 */

static bool emit_inode(struct dir_context *ctx, const struct name_entry *e, int64_t next)
{
    return ctx->emit(ctx, e->name, e->name_size, e->inode->ino, (uint8_t)(e->inode->mode >> 12),
                     next);
}

/* False when the buffer is full. */
static bool emit_lower(struct name_table *names, const struct lower_listing *l,
                       struct dir_context *ctx)
{
    for (size_t i = (size_t)(ctx->pos - POS_LOWER); i < l->count; i++) {
        const struct lower_name *n = &l->entries[i];
        const char *name = l->names + n->name_at;
        const struct name_entry *e = names->count ? name_table_find(names, name) : NULL;
        int64_t next = POS_LOWER + (int64_t)i + 1;
        if (e && (!e->inode || !e->hides_lower))
            continue; /* the latter: the lower lists what its lookup denies; it comes with the new
                         ones */
        if (e ? !emit_inode(ctx, e, next)
              : !ctx->emit(ctx, name, n->name_size, n->ino, n->type, next))
            return false;
        ctx->pos = next;
    }
    return true;
}

static int dir_iterate(struct file *f, struct dir_context *ctx)
{
    struct name_table *names = names_of(f->inode);
    if (!dir_emit_dots(f, ctx))
        return 0;
    if (ctx->pos < POS_NEW) {
        struct lower_listing *l;
        int r = overlay_listing_get(f->inode, &l);
        if (r < 0)
            return r;
        if (!emit_lower(names, l, ctx))
            return 0;
        ctx->pos = POS_NEW;
    }
    struct name_entry *e;
    for (uint64_t at = (uint64_t)(ctx->pos - POS_NEW); (e = name_table_next(names, at));
         at = e->cookie + 1) {
        int64_t next = POS_NEW + (int64_t)e->cookie + 1;
        if (!e->inode || e->hides_lower)
            continue;
        if (!emit_inode(ctx, e, next))
            return 0;
        ctx->pos = next;
    }
    return 0;
}

static void dir_release(struct file *f)
{
    struct overlay_node *node = overlay_node(f->inode);
    struct lower_listing *unused = NULL;
    fmutex_lock(&f->inode->lock);
    if (--node->open_count == 0) {
        unused = node->listing;
        node->listing = NULL;
    }
    fmutex_unlock(&f->inode->lock);
    overlay_listing_free(unused);
}

static int dir_fsync(struct file *f UNUSED, bool data_only UNUSED)
{
    return 0;
}

static const struct file_ops dir_file_ops = {
    .iterate = dir_iterate,
    .lseek = file_lseek_dir,
    .fsync = dir_fsync,
    .release = dir_release,
};

static int dir_open(struct inode *inode, struct file *f)
{
    fmutex_lock(&inode->lock);
    overlay_node(inode)->open_count++;
    fmutex_unlock(&inode->lock);
    f->ops = &dir_file_ops;
    return 0;
}

const struct inode_ops overlay_dir_inode_ops = {
    .lookup = dir_lookup,
    .lookup_ahead = dir_lookup_ahead,
    .create = dir_create,
    .mkdir = dir_mkdir,
    .mknod = dir_mknod,
    .symlink = dir_symlink,
    .link = dir_link,
    .unlink = dir_unlink,
    .rmdir = dir_rmdir,
    .rename = dir_rename,
    .tmpfile = dir_tmpfile,
    .open = dir_open,
    .getattr = overlay_getattr,
    .setattr = overlay_setattr,
    .getxattr = overlay_getxattr,
    .setxattr = overlay_setxattr,
    .listxattr = overlay_listxattr,
    .removexattr = overlay_removexattr,
    .destroy = overlay_destroy,
};
