/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of sentry/fs/tmpfs share. */
#pragma once

#include "sentry/fs/tmpfs/name_table.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/vfs/xattr_list.h"

struct tmpfs_super {
    struct superblock sb;
    uint64_t max_bytes;          /* 0: none of its own */
    _Atomic uint64_t used_bytes; /* file content */
    _Atomic uint64_t inode_count;
    _Atomic uint64_t next_ino;
};

/* Content of a regular file. inode->lock protects all; hfd only ever changes from -1 to a
 * descriptor, which lives as long as the inode, so readers may use it without the lock. */
struct tmpfs_data {
    uint8_t *heap; /* owned; bytes beyond `capacity` up to the size are zeros */
    size_t capacity;
    _Atomic int hfd;  /* owned; -1: content is in the heap */
    uint64_t charged; /* bytes accounted for */
    bool is_dense;    /* memfd: every page up to the size is accounted for */
    bool was_mapped;  /* memfd: a guest may have touched pages that nobody counted */
    uint32_t seals;   /* F_SEAL_* */
};

struct tmpfs_node {
    struct xattr_list xattrs;
    union {
        struct name_table names; /* directory */
        struct tmpfs_data data;  /* regular file */
        char *target;            /* symlink; owned */
    };
};

static inline struct tmpfs_node *tmpfs_node(const struct inode *inode)
{
    return inode->private_data;
}
static inline struct tmpfs_super *tmpfs_super(const struct superblock *sb)
{
    return sb->private_data;
}

/* What an inode and its dentry, and what a name cost the sentry, about. */
#define TMPFS_INODE_COST 768
#define TMPFS_NAME_COST  256

/* data.c: inode->lock held unless said otherwise. */
void tmpfs_data_init(struct tmpfs_data *d);
void tmpfs_data_fini(struct inode *inode);
int tmpfs_data_truncate(struct inode *inode, uint64_t size);
ssize_t tmpfs_data_read(struct inode *inode, struct io *io,
                        int64_t pos); /* takes the lock if need be */
ssize_t tmpfs_data_write(struct inode *inode, struct io *io, int64_t pos);
int tmpfs_data_allocate(struct inode *inode, int mode, uint64_t offset, uint64_t size);
int64_t tmpfs_data_seek(struct inode *inode, int64_t offset, int whence); /* SEEK_DATA, SEEK_HOLE */
/* The memfd, made if there was none: borrowed. */
int tmpfs_data_hfd(struct inode *inode, int *ret_hfd);
uint64_t tmpfs_data_blocks(struct inode *inode); /* without the lock */

/* Newer than the libc's headers. */
#define F_SEAL_EXEC_OURS     0x0020U
#define MFD_NOEXEC_SEAL_OURS 0x0008U
#define O_LARGEFILE_OURS     0100000U

/* tmpfs.c: operations that all kinds of inodes share. */
int tmpfs_setxattr(struct inode *inode, const char *name, const void *value, size_t size,
                   int flags);
ssize_t tmpfs_getxattr(struct inode *inode, const char *name, void *value, size_t size);
ssize_t tmpfs_listxattr(struct inode *inode, char *list, size_t size);
int tmpfs_removexattr(struct inode *inode, const char *name);
void tmpfs_destroy(struct inode *inode);
/* A node for any kind of file; mode with S_IFMT. nlink 1 (directories 2). */
int tmpfs_inode_new(struct superblock *sb, uint32_t mode, uint64_t rdev, uint32_t uid, uint32_t gid,
                    struct inode **ret);
/* regular.c */
extern const struct inode_ops tmpfs_regular_inode_ops;
