/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tmpfs: superblock and directories. Any fiber; directory operations run with dir->lock held.
 *
 * A directory entry refers to its inode, so an inode lives while it has a name, whatever the dcache
 * forgets. Every inode is charged to the sandbox's limit, for names are memory as well.
 */
#include "sentry/fs/tmpfs/tmpfs_internal.h"

#include <errno.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TMPFS_MAGIC   0x01021994
#define DIRENT_SIZE   20 /* what Linux's tmpfs counts for an entry */
#define LINK_MAX_OURS 0x7fffffffU

static const struct inode_ops dir_inode_ops;
static const struct inode_ops symlink_inode_ops;
static const struct inode_ops special_inode_ops;

/* ---- inodes -------------------------------------------------------------------------------------
 */

static const struct inode_ops *ops_of(uint32_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR:
        return &dir_inode_ops;
    case S_IFREG:
        return &tmpfs_regular_inode_ops;
    case S_IFLNK:
        return &symlink_inode_ops;
    default:
        return &special_inode_ops;
    }
}

int tmpfs_inode_new(struct superblock *sb, uint32_t mode, uint64_t rdev, uint32_t uid, uint32_t gid,
                    struct inode **ret)
{
    struct tmpfs_super *super = tmpfs_super(sb);
    if (!tmpfs_charge(TMPFS_INODE_COST))
        return -ENOSPC;
    struct tmpfs_node *node = calloc(1, sizeof(*node));
    uint64_t ino = atomic_fetch_add_explicit(&super->next_ino, 1, memory_order_relaxed);
    struct inode *inode = node ? inode_new(sb, ops_of(mode), ino, mode, uid, gid) : NULL;
    if (!inode) {
        free(node);
        tmpfs_uncharge(TMPFS_INODE_COST);
        return -ENOMEM;
    }
    xattr_list_init(&node->xattrs);
    if (S_ISDIR(mode)) {
        name_table_init(&node->names);
        atomic_store_explicit(&inode->nlink, 2, memory_order_relaxed);
    } else if (S_ISREG(mode)) {
        tmpfs_data_init(&node->data);
    }
    inode->rdev = rdev;
    inode->private_data = node;
    atomic_fetch_add_explicit(&super->inode_count, 1, memory_order_relaxed);
    *ret = inode;
    return 0;
}

int tmpfs_regular_new(struct superblock *sb, uint32_t mode, uint32_t uid, uint32_t gid,
                      struct inode **ret)
{
    return tmpfs_inode_new(sb, (mode & 07777) | S_IFREG, 0, uid, gid, ret);
}

static struct name_table *table_of(struct inode *inode)
{
    return S_ISDIR(inode->mode) ? &tmpfs_node(inode)->names : NULL;
}

void tmpfs_destroy(struct inode *inode)
{
    struct tmpfs_node *node = tmpfs_node(inode);
    if (S_ISDIR(inode->mode))
        tmpfs_uncharge(name_table_fini(&node->names, table_of) * TMPFS_NAME_COST);
    else if (S_ISREG(inode->mode))
        tmpfs_data_fini(inode);
    else if (S_ISLNK(inode->mode) && node->target) {
        tmpfs_uncharge(strlen(node->target));
        free(node->target);
    }
    tmpfs_xattr_fini(&node->xattrs);
    free(node);
    atomic_fetch_sub_explicit(&tmpfs_super(inode->sb)->inode_count, 1, memory_order_relaxed);
    tmpfs_uncharge(TMPFS_INODE_COST);
}

ssize_t tmpfs_getxattr(struct inode *inode, const char *name, void *value, size_t size)
{
    return xattr_list_get(&tmpfs_node(inode)->xattrs, name, value, size);
}

int tmpfs_setxattr(struct inode *inode, const char *name, const void *value, size_t size, int flags)
{
    return tmpfs_xattr_set(&tmpfs_node(inode)->xattrs, name, value, size, flags);
}

ssize_t tmpfs_listxattr(struct inode *inode, char *list, size_t size)
{
    return xattr_list_names(&tmpfs_node(inode)->xattrs, list, size);
}

int tmpfs_removexattr(struct inode *inode, const char *name)
{
    return tmpfs_xattr_remove(&tmpfs_node(inode)->xattrs, name);
}

static int node_getattr(struct inode *inode, struct kstat *ret)
{
    inode_fill_kstat(inode, ret);
    ret->has_btime = true;
    return 0;
}

/* ---- directories --------------------------------------------------------------------------------
 */

static void dir_changed(struct inode *dir)
{
    atomic_store_explicit(&dir->size, tmpfs_node(dir)->names.count * DIRENT_SIZE,
                          memory_order_relaxed);
    inode_touch(dir, ATTR_MTIME | ATTR_CTIME);
}

static void add_links(struct inode *inode, int change)
{
    atomic_fetch_add_explicit(&inode->nlink, (uint32_t)change, memory_order_relaxed);
}

static int dir_lookup(struct inode *dir, const char *name, struct inode **ret)
{
    struct name_entry *e = name_table_find(&tmpfs_node(dir)->names, name);
    *ret = e ? e->inode : NULL;
    if (e)
        inode_get(e->inode);
    return 0;
}

/* 0, -ENOSPC or -ENOMEM. */
static int insert_name(struct inode *dir, const char *name, struct inode *inode)
{
    if (!tmpfs_charge(TMPFS_NAME_COST))
        return -ENOSPC;
    if (name_table_insert(&tmpfs_node(dir)->names, name, inode))
        return 0;
    tmpfs_uncharge(TMPFS_NAME_COST);
    return -ENOMEM;
}

/* Makes an inode and its name. */
static int add_new(struct inode *dir, const char *name, uint32_t mode, uint64_t rdev, uint32_t uid,
                   uint32_t gid, struct inode **ret)
{
    struct inode *inode;
    int r = tmpfs_inode_new(dir->sb, mode, rdev, uid, gid, &inode);
    if (r < 0)
        return r;
    r = insert_name(dir, name, inode);
    if (r < 0) {
        inode_put(inode);
        return r;
    }
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
        add_links(dir, 1);
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
    tmpfs_node(*ret)->target = text;
    atomic_store_explicit(&(*ret)->size, strlen(text), memory_order_relaxed);
    return 0;
}

static int dir_link(struct inode *dir, const char *name, struct inode *inode)
{
    if (atomic_load_explicit(&inode->nlink, memory_order_relaxed) >= LINK_MAX_OURS)
        return -EMLINK;
    int r = insert_name(dir, name, inode);
    if (r < 0)
        return r;
    add_links(inode, 1);
    inode_touch(inode, ATTR_CTIME);
    dir_changed(dir);
    return 0;
}

static void remove_entry(struct inode *dir, struct name_entry *e)
{
    name_table_remove(&tmpfs_node(dir)->names, e);
    tmpfs_uncharge(TMPFS_NAME_COST);
    dir_changed(dir);
}

static int dir_unlink(struct inode *dir, const char *name, struct inode *inode)
{
    struct name_entry *e = name_table_find(&tmpfs_node(dir)->names, name);
    if (!e || e->inode != inode)
        return -ENOENT;
    add_links(inode, -1);
    inode_touch(inode, ATTR_CTIME);
    remove_entry(dir, e);
    return 0;
}

/* victim->lock held. */
static int dir_rmdir(struct inode *dir, const char *name, struct inode *victim)
{
    struct name_entry *e = name_table_find(&tmpfs_node(dir)->names, name);
    if (!e || e->inode != victim)
        return -ENOENT;
    if (tmpfs_node(victim)->names.count)
        return -ENOTEMPTY;
    atomic_store_explicit(&victim->nlink, 0, memory_order_relaxed);
    add_links(dir, -1);
    remove_entry(dir, e);
    return 0;
}

static void exchange(struct inode *a_dir, struct name_entry *a, struct inode *b_dir,
                     struct name_entry *b)
{
    struct inode *was = a->inode;
    a->inode = b->inode;
    b->inode = was;
    int change = S_ISDIR(a->inode->mode) - S_ISDIR(b->inode->mode); /* for a_dir */
    add_links(a_dir, change);
    add_links(b_dir, -change);
    inode_touch(a->inode, ATTR_CTIME);
    inode_touch(b->inode, ATTR_CTIME);
    dir_changed(a_dir);
    dir_changed(b_dir);
}

static int dir_rename(struct inode *old_dir, const char *old_name, struct inode *old_inode,
                      struct inode *new_dir, const char *new_name, struct inode *new_inode,
                      uint32_t flags)
{
    struct name_entry *from = name_table_find(&tmpfs_node(old_dir)->names, old_name);
    struct name_entry *to = name_table_find(&tmpfs_node(new_dir)->names, new_name);
    if (!from || from->inode != old_inode || (to ? to->inode : NULL) != new_inode)
        return -ENOENT;
    if (flags & RENAME_EXCHANGE) {
        exchange(old_dir, from, new_dir, to);
        return 0;
    }
    bool is_dir = S_ISDIR(old_inode->mode);
    if (to) { /* keeps its place in readdir */
        if (is_dir && tmpfs_node(new_inode)->names.count)
            return -ENOTEMPTY;
        if (is_dir) {
            atomic_store_explicit(&new_inode->nlink, 0, memory_order_relaxed);
            add_links(new_dir, -1);
        } else {
            add_links(new_inode, -1);
            inode_touch(new_inode, ATTR_CTIME);
        }
        inode_get(old_inode);
        to->inode = old_inode;
        inode_put(new_inode); /* the entry's; the caller has its own */
    } else {
        int r = insert_name(new_dir, new_name, old_inode);
        if (r < 0)
            return r;
    }
    if (is_dir) {
        add_links(old_dir, -1);
        add_links(new_dir, 1);
    }
    remove_entry(old_dir, from);
    dir_changed(new_dir);
    inode_touch(old_inode, ATTR_CTIME);
    return 0;
}

static int dir_tmpfile(struct inode *dir, uint32_t mode, uint32_t uid, uint32_t gid,
                       struct inode **ret)
{
    int r = tmpfs_regular_new(dir->sb, mode, uid, gid, ret);
    if (r == 0)
        atomic_store_explicit(&(*ret)->nlink, 0, memory_order_relaxed);
    return r;
}

static int dir_iterate(struct file *f, struct dir_context *ctx)
{
    struct name_table *names = &tmpfs_node(f->inode)->names;
    if (!dir_emit_dots(f, ctx))
        return 0;
    struct name_entry *e;
    while ((e = name_table_next(names, (uint64_t)ctx->pos))) {
        int64_t next = (int64_t)e->cookie + 1;
        if (!ctx->emit(ctx, e->name, e->name_size, e->inode->ino, (uint8_t)(e->inode->mode >> 12),
                       next))
            break;
        ctx->pos = next;
    }
    return 0;
}

static int dir_fsync(struct file *f UNUSED, bool data_only UNUSED)
{
    return 0;
}

static const struct file_ops dir_file_ops = {
    .iterate = dir_iterate,
    .lseek = file_lseek_dir,
    .fsync = dir_fsync,
};

static int dir_open(struct inode *inode UNUSED, struct file *f)
{
    f->ops = &dir_file_ops;
    return 0;
}

static const struct inode_ops dir_inode_ops = {
    .lookup = dir_lookup,
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
    .getattr = node_getattr,
    .getxattr = tmpfs_getxattr,
    .setxattr = tmpfs_setxattr,
    .listxattr = tmpfs_listxattr,
    .removexattr = tmpfs_removexattr,
    .destroy = tmpfs_destroy,
};

static int symlink_readlink(struct inode *inode, char **ret)
{
    *ret = strdup(tmpfs_node(inode)->target);
    return *ret ? 0 : -ENOMEM;
}

static const struct inode_ops symlink_inode_ops = {
    .readlink = symlink_readlink,
    .getattr = node_getattr,
    .getxattr = tmpfs_getxattr,
    .setxattr = tmpfs_setxattr,
    .listxattr = tmpfs_listxattr,
    .removexattr = tmpfs_removexattr,
    .destroy = tmpfs_destroy,
};

static const struct inode_ops special_inode_ops = {
    .getattr = node_getattr,
    .getxattr = tmpfs_getxattr,
    .setxattr = tmpfs_setxattr,
    .listxattr = tmpfs_listxattr,
    .removexattr = tmpfs_removexattr,
    .destroy = tmpfs_destroy,
};

/* ---- superblock ---------------------------------------------------------------------------------
 */

static int super_statfs(struct superblock *sb, struct linux_statfs *ret)
{
    const struct tmpfs_super *super = tmpfs_super(sb);
    uint64_t max = super->max_bytes ? super->max_bytes : tmpfs_limit();
    uint64_t used = atomic_load_explicit(&super->used_bytes, memory_order_relaxed);
    if (max == UINT64_MAX)
        return 0; /* no limit: Linux reports zeros */
    uint64_t free_bytes = used < max ? max - used : 0;
    uint64_t inodes = atomic_load_explicit(&super->inode_count, memory_order_relaxed);
    ret->blocks = max / PAGE_SIZE;
    ret->bfree = ret->bavail = free_bytes / PAGE_SIZE;
    ret->files = max / TMPFS_INODE_COST;
    ret->ffree = inodes < ret->files ? ret->files - inodes : 0;
    return 0;
}

static void super_destroy(struct superblock *sb)
{
    free(tmpfs_super(sb));
}

static const struct superblock_ops super_ops = {
    .statfs = super_statfs,
    .destroy = super_destroy,
};

int tmpfs_new(uint32_t mode, uint32_t uid, uint32_t gid, uint64_t max_bytes,
              struct superblock **ret_sb, struct inode **ret_root)
{
    struct tmpfs_super *super = calloc(1, sizeof(*super));
    if (!super)
        return -ENOMEM;
    superblock_init(&super->sb, &super_ops, "tmpfs", TMPFS_MAGIC);
    super->sb.private_data = super;
    super->max_bytes = max_bytes;
    atomic_init(&super->next_ino, 1);
    int r = tmpfs_inode_new(&super->sb, (mode & 07777) | S_IFDIR, 0, uid, gid, ret_root);
    if (r < 0) {
        superblock_put(&super->sb);
        return r;
    }
    *ret_sb = &super->sb;
    return 0;
}

/* Digits in `base`, then perhaps a unit; false if anything else follows. */
static bool parse_number(const char *s, size_t size, unsigned base, uint64_t *ret)
{
    uint64_t n = 0;
    size_t i = 0;
    for (; i < size && s[i] >= '0' && s[i] < (char)('0' + base); i++) {
        if (__builtin_mul_overflow(n, base, &n) ||
            __builtin_add_overflow(n, (uint64_t)(s[i] - '0'), &n))
            return false;
    }
    if (i == 0)
        return false;
    if (i + 1 == size) {
        static const char units[] = "kmg";
        const char *unit = strchr(units, s[i] | 0x20);
        if (!unit || !*unit ||
            __builtin_mul_overflow(n, UINT64_C(1) << (10 * (unit - units + 1)), &n))
            return false;
        i++;
    }
    *ret = n;
    return i == size;
}

int tmpfs_new_from_options(const char *options, const struct creds *creds,
                           struct superblock **ret_sb, struct inode **ret_root)
{
    uint64_t mode = 01777;
    uint64_t size = 0;
    uint64_t uid = creds->fsuid;
    uint64_t gid = creds->fsgid;
    uint64_t ignored;
    const struct {
        const char *key;
        unsigned base;
        uint64_t *value;
    } known[] = {{"size=", 10, &size}, {"mode=", 8, &mode},          {"uid=", 10, &uid},
                 {"gid=", 10, &gid},   {"nr_inodes=", 10, &ignored}, {"nr_blocks=", 10, &ignored}};
    for (const char *s = options; *s;) {
        size_t len = strcspn(s, ",");
        bool found = len == 0;
        for (size_t i = 0; i < ARRAY_COUNT(known) && !found; i++) {
            size_t key = strlen(known[i].key);
            found = len > key && strncmp(s, known[i].key, key) == 0 &&
                    parse_number(s + key, len - key, known[i].base, known[i].value);
        }
        if (!found)
            return -EINVAL;
        s += len + (s[len] == ',');
    }
    if (uid > UINT32_MAX || gid > UINT32_MAX)
        return -EINVAL;
    return tmpfs_new((uint32_t)mode & 07777, (uint32_t)uid, (uint32_t)gid, size, ret_sb, ret_root);
}
