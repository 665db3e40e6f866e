/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of sentry/fs/overlay share.
 *
 * Theory of operation. An overlay inode stands for a lower inode, or for something new, or for
 * both: the lower one whose content has been copied up. Attributes live in the overlay inode itself
 * from the start (copied from the lower one), so changing them needs no copy of content, and st_ino
 * never changes.
 *
 * A directory has a table of the names that differ from the lower directory: a name with an inode
 * is something new, moved here or replaced; one without is a whiteout. All other names are the
 * lower's. A directory that is renamed takes its lower directory along: no copying, no EXDEV.
 *
 * Overlay inodes of lower ones are found by the lower inode (so all names of a hard-linked lower
 * file are one inode here). The table is weak: an unchanged inode may be forgotten and made anew. A
 * changed one is *pinned* by a reference of the table's own until its last name goes.
 *
 * Locks: overlay inode->lock → lower inode->lock, upper inode->lock → sb.inodes_lock (short).
 */
#pragma once

#include "sentry/fs/overlay/overlay.h"
#include "sentry/fs/tmpfs/name_table.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/vfs/xattr_list.h"

#define OVERLAY_BUCKETS 4096
/* What the sentry's memory pays for a changed inode and for a whiteout, about. */
#define OVERLAY_INODE_COST 1024
#define OVERLAY_NAME_COST  256

LIST_HEAD(overlay_bucket, overlay_node);

struct overlay_super {
    struct superblock sb;
    struct inode *lower_root;                        /* ref */
    struct superblock *upper_sb;                     /* ref: a tmpfs that is mounted nowhere */
    _Atomic uint64_t next_ino;                       /* of what is new */
    struct overlay_bucket by_lower[OVERLAY_BUCKETS]; /* sb.inodes_lock */
};

/* The lower directory's names, read once for all who have the directory open. */
struct lower_name {
    uint64_t ino;
    uint32_t name_at; /* in `names` */
    uint16_t name_size;
    uint8_t type;
};
struct lower_listing {
    struct lower_name *entries; /* owned */
    size_t count, capacity;
    char *names; /* owned; terminated */
    size_t names_size, names_capacity;
    uint64_t charged;
};

struct overlay_node {
    LIST_ENTRY(overlay_node) entry; /* sb.inodes_lock */
    struct inode *inode;            /* borrowed: the inode that owns this */
    struct inode *lower;            /* ref; immutable; NULL: new */
    _Atomic(struct inode *) upper; /* ref; regular files: a tmpfs file with the content; set once */
    uint64_t lower_blocks;         /* immutable */
    bool is_pinned;                /* sb.inodes_lock */
    /* The rest under inode->lock. */
    bool is_charged;
    bool has_own_xattrs; /* the lower's don't count any more */
    struct xattr_list xattrs;
    struct name_table names;       /* directories */
    struct lower_listing *listing; /* owned; while open_count > 0 and somebody read it */
    unsigned open_count;
    char *target; /* new symlinks; owned */
};

static inline struct overlay_node *overlay_node(const struct inode *inode)
{
    return inode->private_data;
}
static inline struct overlay_super *overlay_super(const struct superblock *sb)
{
    return sb->private_data;
}

/* overlay.c */
extern const struct inode_ops overlay_dir_inode_ops;     /* dir.c */
extern const struct inode_ops overlay_regular_inode_ops; /* regular.c */
/* The inode of a lower one, a reference. */
MUST_CHECK int overlay_inode_of_lower(struct superblock *sb, struct inode *lower,
                                      struct inode **ret);
/* Something new; regular files get their (empty) upper. */
MUST_CHECK int overlay_inode_new(struct superblock *sb, uint32_t mode, uint64_t rdev, uint32_t uid,
                                 uint32_t gid, struct inode **ret);
/* It differs from its lower now: keep it. -ENOSPC. inode->lock held. */
MUST_CHECK int overlay_pin(struct inode *inode);
void overlay_unpin(struct inode *inode); /* its last name is gone */

int overlay_getattr(struct inode *inode, struct kstat *ret);
int overlay_setattr(struct inode *inode, const struct iattr *attr);
ssize_t overlay_getxattr(struct inode *inode, const char *name, void *value, size_t size);
int overlay_setxattr(struct inode *inode, const char *name, const void *value, size_t size,
                     int flags);
ssize_t overlay_listxattr(struct inode *inode, char *list, size_t size);
int overlay_removexattr(struct inode *inode, const char *name);
void overlay_destroy(struct inode *inode);

/* copy_up.c: gives a regular file its upper, with at most `size` bytes of the lower's content.
 * No-op when there is one. inode->lock held. */
MUST_CHECK int overlay_copy_up(struct inode *inode, uint64_t size);

/* listing.c; dir->lock held. */
MUST_CHECK int overlay_listing_get(struct inode *dir, struct lower_listing **ret);
void overlay_listing_free(struct lower_listing *l);
