/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the gofer file system share; private to sentry/fs/gofer.
 *
 * A *node* is the private part of an inode: which place on the gofer's side it is (nearest directory with a
 * handle, and a path from there), and the donated descriptors. Nodes are found by (device, inode number),
 * so hard links share one.
 *
 * Locks: inode->lock → fs->lock (short; everything marked so, no call under it). `changes` counts what we
 * did to the tree: what was learnt before the last change is not trusted afterwards.
 */
#pragma once

#include "base/lock.h"
#include "gofer/protocol.h"
#include "sentry/fs/gofer/client.h"
#include "sentry/vfs/vfs.h"
#include <bsd/sys/queue.h>
#include <stdatomic.h>

#define NODE_BUCKET_BITS  14
#define HANDLES_LIVE_MAX  8192u /* the gofer's own limit is 20,000 for all attach points */
#define CLOSING_MAX       512u
#define CLOSING_FLUSH     64u
#define IDLE_FDS_MAX      2048u /* donated descriptors that no open file uses */
#define WALK_CACHE_SIZE   512u
#define BATCH_BYTES_MAX   MIB(20) /* a directory of 100,000 is listed as a whole, then looked at */
#define BATCH_SECONDS     2       /* others than the newest go when they're older */

struct node;
struct batch;

/* Donated descriptors by access: GOFER_OPEN_* - 1. */
enum { FD_READ, FD_WRITE, FD_BOTH, FD_KINDS };

struct donated {
    int hfd;        /* owned; -1 = none. Stays the same while opens > 0 */
    uint32_t opens; /* open files that use it */
};

struct node {
    struct inode *inode; /* the inode that this is a part of */
    uint32_t dev_index;  /* immutable */
    uint64_t blocks;     /* racily read */
    uint32_t blksize;
    bool has_btime;
    atomic_bool is_stale; /* attributes changed by writing: ask again */
    /* fs->lock: */
    LIST_ENTRY(node) bucket;
    bool is_known;        /* in the table */
    struct inode *parent; /* ref; NULL: the root, or no name is known any more */
    char *name;           /* owned; in parent */
    uint64_t handle;      /* directories; 0 = none */
    TAILQ_ENTRY(node) handle_lru;
    struct donated fds[FD_KINDS];
    bool is_idle;         /* in idle_lru: has descriptors, none in use */
    TAILQ_ENTRY(node) idle_lru;
    SLIST_HEAD(, batch) batches; /* what reading this directory brought */
    struct batch *recent;        /* where the last name was found: the next one is likely there */
};

/* Entry of the walk cache: what a walk that went further learnt. */
struct walked {
    uint32_t dir_dev_index;
    uint64_t dir_ino;
    uint64_t changes;
    bool exists;
    struct gofer_step step; /* its handle is given to whoever uses the entry */
    char *target;           /* owned; of a symlink */
    char *name;             /* owned; NULL = free entry */
};

struct batch_slot {
    uint32_t hash;
    uint32_t offset; /* + 1; 0 = free */
};

/* A batch of directory entries as the gofer sent it, decodable, with an index by name. */
struct batch {
    _Atomic uint32_t refs;
    uint64_t changes;
    int64_t made; /* seconds */
    uint32_t size, count;
    bool is_end;
    uint64_t next_cookie;
    uint32_t mask;            /* of the index */
    struct batch_slot *index; /* owned: by hash of the name, open addressing */
    struct node *owner; /* fs->lock; NULL: not in the cache any more */
    SLIST_ENTRY(batch) of_dir;
    TAILQ_ENTRY(batch) fifo;
    uint8_t bytes[];
};

struct gofer_fs {
    struct superblock sb;
    struct gofer_client *client; /* borrowed: outlives us */
    bool shared, read_only;      /* immutable */
    uint64_t root_handle;        /* immutable; never closed before the end */
    struct node *root_node;      /* borrowed; immutable once set */
    _Atomic uint64_t changes;
    struct lock lock;
    LIST_HEAD(, node) buckets[1u << NODE_BUCKET_BITS]; /* zeroed is empty: pages that nobody uses cost nothing */
    LIST_HEAD(, node) orphans; /* nodes without an inode that still hold their parent */
    bool is_draining;
    TAILQ_HEAD(, node) handles; /* least recently used first */
    uint32_t handle_count;
    TAILQ_HEAD(, node) idle;
    uint32_t idle_count;
    uint64_t closing[CLOSING_MAX];
    uint32_t closing_count;
    struct walked walked[WALK_CACHE_SIZE];
    TAILQ_HEAD(, batch) batches; /* oldest first */
    size_t batch_bytes;
};

static inline struct node *node_of(const struct inode *inode)
{
    return inode->private_data;
}

static inline struct gofer_fs *fs_of(const struct inode *inode)
{
    return inode->sb->private_data;
}

/* node.c */

/* The inode of what the gofer told about: the known one or a new one; a reference. Takes `handle` over (also
 * on failure). `parent` and `name` (borrowed): where it was found. NULL without memory. */
struct inode *node_get(struct gofer_fs *fs, const struct gofer_stat *stat, uint64_t handle,
                       struct inode *parent_or_null, const char *name);
void node_destroy(struct inode *inode); /* inode_ops.destroy */
/* Writes the path of `node` (and of `name` beneath it, unless NULL) from the nearest handle into `path`
 * (GOFER_RPC_PATH_SIZE). -ESTALE: it has no name; -ENAMETOOLONG. *ret_depth: components of the node's own
 * path; may be NULL. */
MUST_CHECK int node_path(struct gofer_fs *fs, struct node *node, const char *name, char *path,
                         uint64_t *ret_handle, uint32_t *ret_depth);
void node_set_handle(struct gofer_fs *fs, struct node *node, uint64_t handle);
/* The name is gone or another one. */
void node_set_place(struct gofer_fs *fs, struct node *node, struct inode *parent_or_null, const char *name);
void node_forget(struct gofer_fs *fs, struct node *node); /* its number may be used anew: out of the table */
void node_apply_stat(struct node *node, const struct gofer_stat *stat);
void fs_close_later(struct gofer_fs *fs, uint64_t handle); /* any lock but fs->lock may be held */
void fs_flush_closing(struct gofer_fs *fs, uint32_t above); /* a call if more than that are waiting;
                                                                 none may be under way here */
void fs_changed(struct gofer_fs *fs);

/* cache.c */
void cache_put_walked(struct gofer_fs *fs, const struct gofer_stat *dir, const char *name, uint64_t changes,
                      const struct gofer_step *step_or_null, const char *target);
/* What is known about `name` in `dir`: 1 it exists (*ret_step with its handle, *ret_target malloc'ed or
 * NULL), 0 it doesn't exist, -1 nothing is known. */
int cache_find(struct gofer_fs *fs, struct inode *dir, const char *name, struct gofer_step *ret_step,
               char **ret_target);
/* Has an earlier walk been here? */
bool cache_knows(struct gofer_fs *fs, struct inode *dir, const char *name);
void cache_drop_all(struct gofer_fs *fs);
/* A checked private copy of a reply's entries with its index, one reference; NULL: -ENOMEM or -EPROTO in
 * *ret_error. */
struct batch *batch_new(const struct gofer_readdir_reply *reply, uint64_t changes, int *ret_error);
void batch_put(struct batch *b);
/* The entry at *offset, which moves on to the next. */
void batch_entry(const struct batch *b, uint32_t *offset, struct gofer_entry *ret);
void cache_add_batch(struct gofer_fs *fs, struct node *dir, struct batch *b); /* takes a reference */
void cache_drop_batches(struct gofer_fs *fs, struct node *dir);

/* fd.c */
void node_init_fds(struct node *node);
/* A descriptor of `inode` good for `flags` (O_ACCMODE), counted as used by one open file: its kind in
 * *ret_kind, or -errno. */
MUST_CHECK int fd_get(struct inode *inode, uint32_t flags, int *ret_kind, int *ret_hfd);
void fd_put(struct inode *inode, int kind);
/* Adds a descriptor that came by the way (CREATE). Takes it over. */
void fd_add(struct inode *inode, int kind, int hfd);
/* A descriptor that happens to be there, for use while the caller holds inode->lock or the file: counted as
 * fd_get() does; -1 in *ret_hfd if there is none. `writable`: must be. */
void fd_borrow(struct inode *inode, bool writable, int *ret_kind, int *ret_hfd);
void fd_close_idle(struct inode *inode); /* nobody will open it again */

/* lookup.c, file.c, dir.c, attr.c, change.c: the operations */
extern const struct inode_ops gofer_dir_inode_ops;
extern const struct inode_ops gofer_file_inode_ops;
extern const struct inode_ops gofer_symlink_inode_ops;
extern const struct inode_ops gofer_other_inode_ops;

int gofer_lookup(struct inode *dir, const char *name, struct inode **ret);
void gofer_lookup_ahead(struct inode *dir, struct dentry *dentry, const char *rest);
int gofer_revalidate(struct inode *dir, const char *name, struct inode *inode_or_null);
int gofer_open_file(struct inode *inode, struct file *file);
int gofer_open_dir(struct inode *inode, struct file *file);
int gofer_readlink(struct inode *inode, char **ret_target);
int gofer_getattr(struct inode *inode, struct kstat *ret);
int gofer_setattr(struct inode *inode, const struct iattr *attr);
int gofer_refresh(struct inode *inode); /* attributes anew, where they may be out of date */
ssize_t gofer_getxattr(struct inode *inode, const char *name, void *value, size_t size);
int gofer_setxattr(struct inode *inode, const char *name, const void *value, size_t size, int flags);
ssize_t gofer_listxattr(struct inode *inode, char *list, size_t size);
int gofer_removexattr(struct inode *inode, const char *name);
int gofer_statfs(struct superblock *sb, struct linux_statfs *ret);
int gofer_flush(struct inode *inode);
int gofer_create(struct inode *dir, const char *name, uint32_t mode, uint32_t uid, uint32_t gid,
                 struct inode **ret);
int gofer_mkdir(struct inode *dir, const char *name, uint32_t mode, uint32_t uid, uint32_t gid,
                struct inode **ret);
int gofer_symlink(struct inode *dir, const char *name, const char *target, uint32_t uid, uint32_t gid,
                  struct inode **ret);
int gofer_link(struct inode *dir, const char *name, struct inode *inode);
int gofer_unlink(struct inode *dir, const char *name, struct inode *inode);
int gofer_rmdir(struct inode *dir, const char *name, struct inode *inode);
int gofer_rename(struct inode *old_dir, const char *old_name, struct inode *old_inode,
                 struct inode *new_dir, const char *new_name, struct inode *new_inode, uint32_t flags);
