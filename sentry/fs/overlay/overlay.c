/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Overlay: superblock, inodes and their attributes. Theory of operation: overlay_internal.h.
 */
#include "sentry/fs/overlay/overlay_internal.h"

#define LOG_MODULE "overlay"
#include "base/log.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define OVERLAY_MAGIC 0x794c7630
#define NEW_INO_FIRST (UINT64_C(1) << 36) /* above what file systems of ordinary size give out */

static const struct inode_ops symlink_inode_ops;
static const struct inode_ops special_inode_ops;

static const struct inode_ops *ops_of(uint32_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR:
        return &overlay_dir_inode_ops;
    case S_IFREG:
        return &overlay_regular_inode_ops;
    case S_IFLNK:
        return &symlink_inode_ops;
    default:
        return &special_inode_ops;
    }
}

/* ---- inodes -------------------------------------------------------------------------------------
 */

static struct inode *make_inode(struct superblock *sb, uint64_t ino, uint32_t mode, uint32_t uid,
                                uint32_t gid)
{
    struct overlay_node *node = calloc(1, sizeof(*node));
    struct inode *inode = node ? inode_new(sb, ops_of(mode), ino, mode, uid, gid) : NULL;
    if (!inode) {
        free(node);
        return NULL;
    }
    node->inode = inode;
    xattr_list_init(&node->xattrs);
    name_table_init(&node->names);
    inode->private_data = node;
    return inode;
}

static struct overlay_bucket *bucket_of(struct overlay_super *super, const struct inode *lower)
{
    uint64_t mix = ((uint64_t)(uintptr_t)lower >> 4) * UINT64_C(0x9e3779b97f4a7c15);
    return &super->by_lower[(mix >> 40) % OVERLAY_BUCKETS];
}

/* A reference unless the last one has just gone. */
static bool get_if_alive(struct inode *inode)
{
    uint32_t refs = atomic_load_explicit(&inode->refs, memory_order_relaxed);
    do {
        if (refs == 0)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&inode->refs, &refs, refs + 1,
                                                    memory_order_acquire, memory_order_relaxed));
    return true;
}

/* With sb.inodes_lock held: a reference or NULL. */
static struct inode *find_by_lower(struct overlay_super *super, const struct inode *lower)
{
    struct overlay_node *node;
    LIST_FOREACH(node, bucket_of(super, lower), entry)
    {
        if (node->lower == lower && get_if_alive(node->inode))
            return node->inode;
    }
    return NULL;
}

static struct inode *make_from_lower(struct superblock *sb, struct inode *lower,
                                     const struct kstat *st)
{
    struct inode *inode = make_inode(sb, st->ino, st->mode, st->uid, st->gid);
    if (!inode)
        return NULL;
    struct overlay_node *node = overlay_node(inode);
    inode_get(lower);
    node->lower = lower;
    node->lower_blocks = st->blocks;
    inode->rdev = st->rdev;
    inode->atime = st->atime;
    inode->mtime = st->mtime;
    inode->ctime = st->ctime;
    inode->btime = st->has_btime ? st->btime : st->ctime;
    atomic_store_explicit(&inode->nlink, (uint32_t)st->nlink, memory_order_relaxed);
    atomic_store_explicit(&inode->size, st->size, memory_order_relaxed);
    return inode;
}

int overlay_inode_of_lower(struct superblock *sb, struct inode *lower, struct inode **ret)
{
    struct overlay_super *super = overlay_super(sb);
    lock_acquire(&sb->inodes_lock);
    struct inode *found = find_by_lower(super, lower);
    lock_release(&sb->inodes_lock);
    if (found) {
        *ret = found;
        return 0;
    }
    struct kstat st;
    int r = inode_getattr(lower, &st);
    if (r < 0)
        return r;
    struct inode *fresh = make_from_lower(sb, lower, &st);
    if (!fresh)
        return -ENOMEM;
    lock_acquire(&sb->inodes_lock);
    found = find_by_lower(super, lower); /* another name of the same file, at the same time */
    if (!found)
        LIST_INSERT_HEAD(bucket_of(super, lower), overlay_node(fresh), entry);
    lock_release(&sb->inodes_lock);
    *ret = found ? found : fresh;
    if (found)
        inode_put(fresh);
    return 0;
}

int overlay_inode_new(struct superblock *sb, uint32_t mode, uint64_t rdev, uint32_t uid,
                      uint32_t gid, struct inode **ret)
{
    struct overlay_super *super = overlay_super(sb);
    if (!tmpfs_charge(OVERLAY_INODE_COST))
        return -ENOSPC;
    uint64_t ino = atomic_fetch_add_explicit(&super->next_ino, 1, memory_order_relaxed);
    struct inode *inode = make_inode(sb, ino, mode, uid, gid);
    if (!inode) {
        tmpfs_uncharge(OVERLAY_INODE_COST);
        return -ENOMEM;
    }
    struct overlay_node *node = overlay_node(inode);
    node->is_charged = true;
    node->has_own_xattrs = true;
    inode->rdev = rdev;
    if (S_ISDIR(mode)) {
        atomic_store_explicit(&inode->nlink, 2, memory_order_relaxed);
        atomic_store_explicit(&inode->size, PAGE_SIZE, memory_order_relaxed);
    }
    if (S_ISREG(mode)) {
        struct inode *upper;
        int r = tmpfs_regular_new(super->upper_sb, mode, uid, gid, &upper);
        if (r < 0) {
            inode_put(inode);
            return r;
        }
        atomic_store_explicit(&node->upper, upper, memory_order_release);
    }
    *ret = inode;
    return 0;
}

int overlay_pin(struct inode *inode)
{
    struct overlay_node *node = overlay_node(inode);
    if (!node->lower)
        return 0;
    if (!node->is_charged && !tmpfs_charge(OVERLAY_INODE_COST))
        return -ENOSPC;
    node->is_charged = true;
    lock_acquire(&inode->sb->inodes_lock);
    if (!node->is_pinned) {
        node->is_pinned = true;
        inode_get(inode);
    }
    lock_release(&inode->sb->inodes_lock);
    return 0;
}

void overlay_unpin(struct inode *inode)
{
    struct overlay_node *node = overlay_node(inode);
    lock_acquire(&inode->sb->inodes_lock);
    bool was_pinned = node->is_pinned;
    node->is_pinned = false;
    lock_release(&inode->sb->inodes_lock);
    if (was_pinned)
        inode_put(inode);
}

void overlay_shut_down(struct superblock *sb)
{
    struct overlay_super *super = overlay_super(sb);
    for (size_t i = 0; i < OVERLAY_BUCKETS; i++) {
        struct overlay_node *node;
        do {
            lock_acquire(&sb->inodes_lock);
            LIST_FOREACH(node, &super->by_lower[i], entry)
            {
                if (node->is_pinned)
                    break;
            }
            lock_release(&sb->inodes_lock);
            if (node)
                overlay_unpin(node->inode);
        } while (node);
    }
}

static struct name_table *table_of(struct inode *inode)
{
    return S_ISDIR(inode->mode) ? &overlay_node(inode)->names : NULL;
}

void overlay_destroy(struct inode *inode)
{
    struct overlay_node *node = overlay_node(inode);
    if (node->lower) {
        lock_acquire(&inode->sb->inodes_lock);
        if (node->entry.le_prev)
            LIST_REMOVE(node, entry);
        lock_release(&inode->sb->inodes_lock);
    }
    tmpfs_uncharge(name_table_fini(&node->names, table_of) * OVERLAY_NAME_COST);
    overlay_listing_free(node->listing);
    inode_put(atomic_load_explicit(&node->upper, memory_order_relaxed));
    inode_put(node->lower);
    tmpfs_xattr_fini(&node->xattrs);
    if (node->target)
        tmpfs_uncharge(strlen(node->target));
    free(node->target);
    if (node->is_charged)
        tmpfs_uncharge(OVERLAY_INODE_COST);
    free(node);
}

/* ---- attributes ---------------------------------------------------------------------------------
 */

int overlay_getattr(struct inode *inode, struct kstat *ret)
{
    struct overlay_node *node = overlay_node(inode);
    inode_fill_kstat(inode, ret);
    ret->has_btime = true;
    ret->blocks = node->lower ? node->lower_blocks : S_ISDIR(inode->mode) ? PAGE_SIZE / 512 : 0;
    struct inode *upper = atomic_load_explicit(&node->upper, memory_order_acquire);
    if (!upper)
        return 0;
    struct kstat st;
    int r = inode_getattr(upper, &st);
    if (r < 0)
        return r;
    ret->blocks = st.blocks;
    ret->size = st.size;
    return 0;
}

static int set_size(struct inode *inode, uint64_t size)
{
    int r = overlay_copy_up(inode, size);
    if (r < 0)
        return r;
    struct inode *upper = atomic_load_explicit(&overlay_node(inode)->upper, memory_order_relaxed);
    const struct iattr attr = {.valid = ATTR_SIZE, .size = size};
    fmutex_lock(&upper->lock);
    r = upper->ops->setattr(upper, &attr);
    fmutex_unlock(&upper->lock);
    if (r == 0)
        atomic_store_explicit(&inode->size, size, memory_order_relaxed);
    return r;
}

int overlay_setattr(struct inode *inode, const struct iattr *attr)
{
    int r = overlay_pin(inode);
    if (r == 0 && (attr->valid & ATTR_SIZE) && S_ISREG(inode->mode))
        r = set_size(inode, attr->size);
    if (r == 0)
        inode_apply_iattr(inode, attr);
    return r;
}

ssize_t overlay_getxattr(struct inode *inode, const char *name, void *value, size_t size)
{
    struct overlay_node *node = overlay_node(inode);
    if (__atomic_load_n(&node->has_own_xattrs, __ATOMIC_ACQUIRE))
        return xattr_list_get(&node->xattrs, name, value, size);
    if (!node->lower->ops->getxattr)
        return -ENODATA;
    return node->lower->ops->getxattr(node->lower, name, value, size);
}

ssize_t overlay_listxattr(struct inode *inode, char *list, size_t size)
{
    struct overlay_node *node = overlay_node(inode);
    if (__atomic_load_n(&node->has_own_xattrs, __ATOMIC_ACQUIRE))
        return xattr_list_names(&node->xattrs, list, size);
    return node->lower->ops->listxattr ? node->lower->ops->listxattr(node->lower, list, size) : 0;
}

static int copy_one_xattr(struct overlay_node *node, const char *name, char *value)
{
    ssize_t size = node->lower->ops->getxattr(node->lower, name, value, VFS_XATTR_SIZE_MAX);
    if (size < 0)
        return size == -ENODATA || size == -EOPNOTSUPP ? 0 : (int)size;
    return tmpfs_xattr_set(&node->xattrs, name, value, (size_t)size, 0);
}

/* From now on the list here is the truth. inode->lock held. */
static int own_xattrs(struct inode *inode)
{
    struct overlay_node *node = overlay_node(inode);
    if (node->has_own_xattrs)
        return 0;
    int r = overlay_pin(inode);
    if (r < 0)
        return r;
    const struct inode_ops *ops = node->lower->ops;
    char *buffer =
        ops->listxattr && ops->getxattr ? malloc(VFS_XATTR_LIST_MAX + VFS_XATTR_SIZE_MAX) : NULL;
    if (buffer) {
        ssize_t size = ops->listxattr(node->lower, buffer, VFS_XATTR_LIST_MAX);
        for (ssize_t at = 0; at < size && r == 0;) {
            size_t len = strnlen(buffer + at, (size_t)(size - at));
            if (at + (ssize_t)len == size)
                break; /* not terminated: not a list */
            r = copy_one_xattr(node, buffer + at, buffer + VFS_XATTR_LIST_MAX);
            at += (ssize_t)len + 1;
        }
        free(buffer);
    } else if (ops->listxattr && ops->getxattr) {
        r = -ENOMEM;
    }
    if (r == 0)
        __atomic_store_n(&node->has_own_xattrs, true, __ATOMIC_RELEASE);
    return r;
}

int overlay_setxattr(struct inode *inode, const char *name, const void *value, size_t size,
                     int flags)
{
    int r = own_xattrs(inode);
    return r < 0 ? r : tmpfs_xattr_set(&overlay_node(inode)->xattrs, name, value, size, flags);
}

int overlay_removexattr(struct inode *inode, const char *name)
{
    int r = own_xattrs(inode);
    return r < 0 ? r : tmpfs_xattr_remove(&overlay_node(inode)->xattrs, name);
}

static int symlink_readlink(struct inode *inode, char **ret)
{
    struct overlay_node *node = overlay_node(inode);
    if (!node->target)
        return node->lower->ops->readlink(node->lower, ret);
    *ret = strdup(node->target);
    return *ret ? 0 : -ENOMEM;
}

static const struct inode_ops symlink_inode_ops = {
    .readlink = symlink_readlink,
    .getattr = overlay_getattr,
    .setattr = overlay_setattr,
    .getxattr = overlay_getxattr,
    .setxattr = overlay_setxattr,
    .listxattr = overlay_listxattr,
    .removexattr = overlay_removexattr,
    .destroy = overlay_destroy,
};

static const struct inode_ops special_inode_ops = {
    .getattr = overlay_getattr,
    .setattr = overlay_setattr,
    .getxattr = overlay_getxattr,
    .setxattr = overlay_setxattr,
    .listxattr = overlay_listxattr,
    .removexattr = overlay_removexattr,
    .destroy = overlay_destroy,
};

/* ---- superblock ---------------------------------------------------------------------------------
 */

static int super_statfs(struct superblock *sb, struct linux_statfs *ret)
{
    struct overlay_super *super = overlay_super(sb);
    const struct superblock_ops *upper = super->upper_sb->ops;
    const struct superblock_ops *lower = super->lower_root->sb->ops;
    int64_t type = ret->type;
    int r = 0;
    if (tmpfs_limit() != UINT64_MAX)
        r = upper->statfs(super->upper_sb, ret);
    else if (lower->statfs)
        r = lower->statfs(super->lower_root->sb, ret);
    ret->type = type;
    return r;
}

static void super_destroy(struct superblock *sb)
{
    struct overlay_super *super = overlay_super(sb);
    inode_put(super->lower_root);
    superblock_put(super->upper_sb);
    free(super);
}

static const struct superblock_ops super_ops = {.statfs = super_statfs, .destroy = super_destroy};

int overlay_new(struct inode *lower_root, struct superblock **ret_sb, struct inode **ret_root)
{
    struct overlay_super *super = calloc(1, sizeof(*super));
    if (!super)
        return -ENOMEM;
    struct inode *upper_root;
    int r = tmpfs_new(0700, 0, 0, 0, &super->upper_sb, &upper_root);
    if (r < 0) {
        free(super);
        return r;
    }
    inode_put(upper_root);
    superblock_init(&super->sb, &super_ops, "overlay", OVERLAY_MAGIC);
    super->sb.private_data = super;
    atomic_init(&super->next_ino, NEW_INO_FIRST);
    inode_get(lower_root);
    super->lower_root = lower_root;
    for (size_t i = 0; i < OVERLAY_BUCKETS; i++)
        LIST_INIT(&super->by_lower[i]);
    r = overlay_inode_of_lower(&super->sb, lower_root, ret_root);
    if (r < 0) {
        superblock_put(&super->sb);
        return r;
    }
    *ret_sb = &super->sb;
    return 0;
}
