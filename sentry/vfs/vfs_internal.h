/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of sentry/vfs share and nobody else needs.
 *
 * The dcache lock is one short lock for the shape of the tree: hash chains, parents, names,
 * children, negative dentries becoming positive, and the lists of mounts. A walk over cached
 * components takes it once and counts no reference on the way; it lets go only where a file system
 * must be asked.
 */
#pragma once

#include "sentry/vfs/vfs.h"

extern struct lock g_dcache_lock;

#define LOAD_RELAXED(x)     __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define STORE_RELAXED(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELAXED)

uint32_t dcache_hash(const char *name, size_t size);
/* Borrowed under the lock; NULL if not cached. */
struct dentry *dcache_find_locked(struct dentry *parent, const char *name, size_t size,
                                  uint32_t hash) REQUIRES(&g_dcache_lock);
/* The inode of a dentry; NULL when negative. Any context in which `d` is pinned. */
static inline struct inode *dentry_inode(const struct dentry *d)
{
    return __atomic_load_n(&d->inode, __ATOMIC_ACQUIRE);
}
/* After the file system renamed: `d` becomes new_parent/new_name, with RENAME_EXCHANGE (`other`)
 * the other way round as well. What was cached there is dropped. The caller holds both directories'
 * locks. 0 or -ENOMEM (then everything was dropped from the cache instead). */
void dcache_move(struct dentry *d, struct dentry *new_parent, const char *new_name,
                 struct dentry *other);
bool dcache_is_ancestor(struct dentry *ancestor, struct dentry *d); /* or the same */
void dcache_drop_subtree(struct dentry *d); /* everything below that nobody holds */
/* Tests only: entries above which the cache forgets; 0 = the default. Number cached now. */
void dcache_set_limit(size_t limit);
size_t dcache_count(void);
/* A dentry that is in no cache, its own parent; takes its own reference to inode. NULL without
 * memory. */
struct dentry *dentry_new_detached(const char *name, size_t size, struct inode *inode);

/* An unhashed child "#<ino>" of `parent`, for O_TMPFILE. A reference, or NULL without memory. */
struct dentry *dcache_new_tmpfile(struct dentry *parent, struct inode *inode);

/* mount.c. The mount on top of (mount, dentry), borrowed, or NULL. */
struct mount *mount_find_locked(const struct mount_namespace *ns, const struct mount *parent,
                                const struct dentry *d) REQUIRES(&g_dcache_lock);
struct mount *mount_anon(void); /* borrowed; where anonymous files live */
void mount_put(struct mount *m);

/* permission.c: the mode bits and capabilities alone. Never sleeps. */
bool mode_permits(const struct creds *creds, const struct inode *inode, uint32_t mask);
int mount_writable(const struct mount *m); /* 0 or -EROFS */

/* walk.c: all of a walk for open and the like: the directory of the last component, its name, and
 * the dentry of that name, which may be negative (ret_child->dentry->inode NULL). When the path
 * ends in "/",
 * "." or "..", *ret_name is empty and ret_dir is too. Symlinks at the end are followed by
 * WALK_FOLLOW. */
struct walk_result {
    struct path dir;   /* ref, or empty */
    struct path child; /* ref */
    bool trailing_slash;
    char name[VFS_NAME_MAX + 1];
};
MUST_CHECK int walk_to_child(const struct walk_context *ctx, const struct path *base,
                             const char *path, uint32_t flags, struct walk_result *ret);
void walk_result_fini(struct walk_result *r);
/* The child of a directory: cached, or asked of the file system with dir's lock held already. */
MUST_CHECK int lookup_child_locked(struct dentry *dir, const char *name, struct dentry **ret);

/* attr.c: vfs_setattr() on a bare inode; `mount` may be NULL. */
MUST_CHECK int inode_setattr(const struct creds *creds, struct inode *inode,
                             const struct mount *mount, struct iattr *attr);

extern struct vfs_hooks g_vfs_hooks;

/* flock.c: everything that `f` holds, at its last reference. */
void file_locks_release(struct file *f);
void flock_state_free(struct flock_state *s);
