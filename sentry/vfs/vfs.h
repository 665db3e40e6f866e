/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The virtual file system: inodes, dentries, mounts, path walk, open file descriptions. Shaped after
 * Linux's own (Documentation/filesystems/vfs.rst), because that is what its readers know.
 *
 * Who calls whom: syscalls → vfs_*() (permission checks, dentries, mounts) → inode_ops/file_ops of a
 * file system. An op runs on the calling task's fiber and may sleep; what is held is said at each op.
 *
 * Locks (order): inode->lock (fiber mutex: directory contents, file size) parent before child, two
 * directories by address → rename lock of the superblock → dcache lock (short) → wait queues.
 * A file system's own short locks come last.
 */
#pragma once

#include "abi/stat.h"
#include "base/lock.h"
#include "sentry/mm/mm.h"
#include "sentry/mm/uaccess.h"
#include "sentry/sched/wait_queue.h"
#include "sentry/vfs/creds.h"
#include <bsd/sys/queue.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct inode;
struct dentry;
struct mount;
struct superblock;
struct file;
struct kstat;
struct path;
struct poll_table;
struct epoll_links;

#define VFS_NAME_MAX 255
#define VFS_PATH_MAX 4096
#define VFS_SYMLINKS_MAX 40

/* ---- attributes --------------------------------------------------------------------------------- */

struct kstat {
    uint64_t dev, ino, nlink, rdev;
    uint32_t mode, uid, gid; /* mode with the S_IFMT bits */
    uint64_t size, blocks;   /* blocks of 512 bytes */
    uint32_t blksize;
    struct linux_timespec atime, mtime, ctime, btime;
    bool has_btime;
};

#define ATTR_MODE 0x01U
#define ATTR_UID 0x02U
#define ATTR_GID 0x04U
#define ATTR_SIZE 0x08U
#define ATTR_ATIME 0x10U
#define ATTR_MTIME 0x20U
#define ATTR_CTIME 0x40U
#define ATTR_TIMES_SET 0x80U /* explicit times: only the owner may; otherwise they're "now" */
#define ATTR_OWNER_CALL 0x200U /* chown(2), even if neither id changes: set-id bits go */
#define ATTR_OPEN_FILE 0x100U /* ftruncate(2): write permission came with the open file */
struct iattr {
    uint32_t valid; /* ATTR_* */
    uint32_t mode, uid, gid;
    uint64_t size;
    struct linux_timespec atime, mtime, ctime;
};

/* ---- superblock and inode ------------------------------------------------------------------------ */

struct superblock_ops {
    int (*statfs)(struct superblock *sb, struct linux_statfs *ret);
    int (*sync)(struct superblock *sb);          /* NULL: nothing to do */
    void (*destroy)(struct superblock *sb);      /* last reference */
};
struct superblock {
    const struct superblock_ops *ops;
    const char *type_name; /* "tmpfs", "proc"…; static storage */
    uint64_t dev;          /* st_dev */
    _Atomic uint32_t refs;
    uint32_t magic;
    bool revalidate;       /* dentries must be revalidated on each walk (proc, shared gofer mounts) */
    bool no_xattr_user;
    struct lock inodes_lock;
    struct fmutex rename_lock;
    void *private_data;    /* file system's */
};
void superblock_init(struct superblock *sb, const struct superblock_ops *ops, const char *type_name,
                     uint32_t magic); /* picks a fresh dev; one reference */
void superblock_get(struct superblock *sb);
void superblock_put(struct superblock *sb);

struct dir_context; /* see file_ops.iterate */

/* All run without a short lock held. `dir` operations run with dir->lock held (lookup: shared use is
 * not distinguished); names are VFS_NAME_MAX bytes at most, without '/' or NUL, never "." or "..".
 * A NULL op answers: lookup -ENOTDIR; create/mkdir/… -EPERM; readlink -EINVAL; xattr -EOPNOTSUPP;
 * getattr: generic from the inode's fields; setattr: generic into the inode's fields. */
struct inode_ops {
    /* *ret_inode = a new reference, or NULL and return 0 for "does not exist" (negative dentry).  */
    int (*lookup)(struct inode *dir, const char *name, struct inode **ret_inode);
    /* Optional: the walk is about to look up these components one below the other; the file system may
     * add what it learns to the dcache with dcache_add(). Errors are ignored. */
    void (*lookup_ahead)(struct inode *dir, struct dentry *dentry, const char *rest);
    /* A cached dentry of a `revalidate` superblock: still true? 1 yes, 0 no (dropped). May sleep. */
    int (*revalidate)(struct inode *dir, const char *name, struct inode *inode_or_null);
    /* mode: permission bits with umask applied plus S_IFMT. Owner from `creds` (setgid dir rule by vfs:
     * pass uid/gid as given). */
    int (*create)(struct inode *dir, const char *name, uint32_t mode, uint32_t uid, uint32_t gid,
                  struct inode **ret);
    int (*mkdir)(struct inode *dir, const char *name, uint32_t mode, uint32_t uid, uint32_t gid,
                 struct inode **ret);
    int (*mknod)(struct inode *dir, const char *name, uint32_t mode, uint64_t rdev, uint32_t uid,
                 uint32_t gid, struct inode **ret);
    int (*symlink)(struct inode *dir, const char *name, const char *target, uint32_t uid, uint32_t gid,
                   struct inode **ret);
    int (*link)(struct inode *dir, const char *name, struct inode *inode);
    int (*unlink)(struct inode *dir, const char *name, struct inode *inode);
    int (*rmdir)(struct inode *dir, const char *name, struct inode *inode);
    /* Both directories locked. `flags` RENAME_NOREPLACE (checked by vfs) and RENAME_EXCHANGE. */
    int (*rename)(struct inode *old_dir, const char *old_name, struct inode *old_inode,
                  struct inode *new_dir, const char *new_name, struct inode *new_inode_or_null,
                  uint32_t flags);
    int (*tmpfile)(struct inode *dir, uint32_t mode, uint32_t uid, uint32_t gid, struct inode **ret);
    /* The target, malloc'ed. */
    int (*readlink)(struct inode *inode, char **ret_target);
    /* "Magic links" of proc: where it leads, a reference to a path; NULL op = ordinary symlink. */
    int (*follow)(struct inode *inode, struct path *ret_path);
    int (*getattr)(struct inode *inode, struct kstat *ret);
    int (*setattr)(struct inode *inode, const struct iattr *attr); /* inode->lock held */
    /* Fills file->ops, file->private_data. O_TRUNC was done through setattr before. */
    int (*open)(struct inode *inode, struct file *file);
    ssize_t (*getxattr)(struct inode *inode, const char *name, void *value, size_t size);
    int (*setxattr)(struct inode *inode, const char *name, const void *value, size_t size, int flags);
    ssize_t (*listxattr)(struct inode *inode, char *list, size_t size);
    int (*removexattr)(struct inode *inode, const char *name);
    /* Extra permission rule after the mode bits said yes; NULL = none. `mask` MAY_*. */
    int (*permission)(struct inode *inode, const struct creds *creds, uint32_t mask);
    void (*destroy)(struct inode *inode); /* last reference: free private data (not the inode) */
};

struct flock_state; /* POSIX, OFD and flock locks of an inode: vfs/flock.c, made on demand */
struct pipe;        /* FIFO's pipe, made at the first open */

struct inode {
    const struct inode_ops *ops;     /* immutable after init */
    struct superblock *sb;           /* ref */
    _Atomic uint32_t refs;
    uint64_t ino;                    /* immutable */
    struct fmutex lock;
    _Atomic uint32_t mode, uid, gid; /* changed under the lock, read without it */
    _Atomic uint32_t nlink;
    uint64_t rdev;
    _Atomic uint64_t size;
    struct linux_timespec atime, mtime, ctime, btime; /* lock */
    _Atomic int32_t writers;         /* > 0: open for writing; < 0: deny write (being executed) */
    _Atomic int32_t shared_writes;   /* shared writable mappings */
    _Atomic(struct flock_state *) locks; /* owned; made on demand */
    _Atomic(char *) link_target;     /* owned; of a symlink once read, unless its superblock revalidates */
    bool is_linkable;                /* O_TMPFILE without O_EXCL: linkat() may give it its first name */
    struct pipe *pipe;               /* S_IFIFO only */
    void *private_data;
};
/* malloc'ed with one reference. `mode` with S_IFMT. */
struct inode *inode_new(struct superblock *sb, const struct inode_ops *ops, uint64_t ino, uint32_t mode,
                        uint32_t uid, uint32_t gid);
void inode_get(struct inode *inode);
void inode_put(struct inode *inode); /* may sleep */
struct linux_timespec vfs_now(void); /* CLOCK_REALTIME_COARSE, what Linux stamps files with */
void inode_touch(struct inode *inode, uint32_t attr_times); /* ATTR_ATIME|MTIME|CTIME := now */
/* Writers and executions exclude each other: 0 or -ETXTBSY; each success is undone once. vfs_open_path()
 * does it for O_WRONLY and O_RDWR, exec calls inode_deny_write(). */
MUST_CHECK int inode_get_write_access(struct inode *inode);
void inode_put_write_access(struct inode *inode);
MUST_CHECK int inode_deny_write(struct inode *inode);
void inode_allow_write(struct inode *inode);
/* A fresh inode number for file systems without numbers of their own. */
uint64_t vfs_next_ino(void);
struct superblock *vfs_anon_superblock(void); /* borrowed; of pipes, sockets, eventfds… */
/* The generic halves of getattr and setattr: from and into the fields of the inode. */
void inode_fill_kstat(const struct inode *inode, struct kstat *ret);
void inode_apply_iattr(struct inode *inode, const struct iattr *attr); /* not the size; lock held */

/* ---- dentries and mounts ------------------------------------------------------------------------ */

struct dentry {
    struct dentry *parent;   /* ref; root: itself. Changes under the dcache lock (rename) */
    struct inode *inode;     /* ref; NULL = negative */
    _Atomic uint32_t refs;
    uint32_t hash;
    bool unhashed;           /* unlinked: " (deleted)" */
    bool is_mountpoint;
    bool is_recent;          /* seen since the cache's last look at it */
    LIST_ENTRY(dentry) hash_entry;
    TAILQ_ENTRY(dentry) lru;
    LIST_HEAD(, dentry) children;
    LIST_ENTRY(dentry) sibling;
    uint16_t name_size;
    uint16_t name_capacity;  /* of inline_name */
    const char *name;        /* terminated; inline_name, or owned after a rename to a longer one. Read under
                                the dcache lock, or with the parent's inode->lock held */
    char inline_name[];
};
/* A hashed dentry has one reference of the cache's own; the cache forgets those that nobody else holds,
 * least recently used first, above its limit. */
void dentry_get(struct dentry *d);
void dentry_put(struct dentry *d); /* may sleep; NULL is fine */
/* Adds (or finds) a child in the cache; takes its own reference to inode. Returns a reference, NULL without
 * memory. A cached positive child wins over the one given, except in `revalidate` superblocks. The caller
 * holds the directory's inode->lock, so that what it adds is still true. */
struct dentry *dcache_add(struct dentry *parent, const char *name, struct inode *inode_or_null);
struct dentry *dcache_lookup(struct dentry *parent, const char *name, size_t size); /* ref or NULL */
void dcache_drop(struct dentry *d);          /* unhash: the next walk asks the file system again */
struct dentry *dentry_new_root(struct inode *inode); /* takes its own reference to inode */

struct mount {
    _Atomic uint32_t refs;
    int id;
    struct superblock *sb;      /* ref */
    struct dentry *root;        /* ref */
    struct mount *parent;       /* ref; NULL for the root mount */
    struct dentry *mountpoint;  /* ref, in parent */
    _Atomic uint32_t flags;     /* MS_RDONLY MS_NOSUID MS_NODEV MS_NOEXEC MS_NOATIME */
    const char *source;         /* owned, for /proc/mounts */
    bool is_permanent;          /* the sandbox's own: the guest can't unmount it */
    bool is_locked;             /* it or what it's bound from: the guest can't take protections from it */
    TAILQ_ENTRY(mount) entry;
};
struct mount_namespace {
    struct lock lock;
    TAILQ_HEAD(, mount) mounts;
    unsigned count;
    struct mount *root;
    _Atomic uint32_t refs;
};
struct mount_namespace *mount_namespace_new(struct superblock *root_sb, struct inode *root_inode,
                                            uint32_t flags, const char *source);

struct path {
    struct mount *mount;   /* ref */
    struct dentry *dentry; /* ref */
};
void path_get(const struct path *p);
void path_put(struct path *p); /* clears it; fine on an empty one */
#define AUTO_PATH CLEANUP(path_put) struct path
#define MOUNTS_MAX 10000
#define MOUNT_BY_GUEST 0x80000000U /* in vfs_mount()'s flags: not locked */
/* Mounts `sb` on `at`. 0, -EBUSY, -ENOSPC (too many)… */
MUST_CHECK int vfs_mount(struct mount_namespace *ns, const struct path *at, struct superblock *sb,
                         struct inode *root, uint32_t flags, const char *source);
/* mount(2) with MS_BIND: what is at `from` appears at `at` as well. */
MUST_CHECK int vfs_bind(struct mount_namespace *ns, const struct path *at, const struct path *from);
/* MS_REMOUNT: new flags for the mount that `at` is the root of; -EINVAL. */
MUST_CHECK int vfs_remount(struct mount_namespace *ns, const struct path *at, uint32_t flags);
int vfs_sync(struct mount_namespace *ns); /* sync(2) */
MUST_CHECK int vfs_umount(struct mount_namespace *ns, const struct path *at, int flags);

/* ---- walking ------------------------------------------------------------------------------------ */

/* What a walk starts from: the task's view, all borrowed. */
struct walk_context {
    struct mount_namespace *ns;
    const struct creds *creds;
    struct path root;
    struct path cwd;
};
#define WALK_FOLLOW 0x01U        /* follow a symlink in the last component */
#define WALK_DIRECTORY 0x02U     /* must be a directory: -ENOTDIR */
#define WALK_EMPTY 0x04U         /* "" means `base` */
#define WALK_NO_SYMLINKS 0x08U   /* RESOLVE_NO_SYMLINKS → -ELOOP */
#define WALK_NO_MAGICLINKS 0x10U
#define WALK_NO_XDEV 0x20U       /* -EXDEV */
#define WALK_BENEATH 0x40U       /* -EXDEV */
#define WALK_IN_ROOT 0x80U
#define WALK_PARENT 0x100U       /* used by vfs_walk_parent */

/* `base`: where a relative path starts (a dirfd's path or the cwd). `*ret` owned by the caller. */
MUST_CHECK int vfs_walk(const struct walk_context *ctx, const struct path *base, const char *path,
                        uint32_t flags, struct path *ret);
/* The directory of the last component and its name (VFS_NAME_MAX + 1 bytes). A trailing slash sets
 * *ret_trailing_slash. -EEXIST/-EINVAL rules for "." and ".." are the caller's: *ret_is_special. */
MUST_CHECK int vfs_walk_parent(const struct walk_context *ctx, const struct path *base,
                               const char *path, uint32_t flags, struct path *ret_dir, char *ret_name,
                               bool *ret_trailing_slash, bool *ret_is_special);
/* The path as text as seen from `root`, malloc'ed: "/a/b", "(unreachable)/…", " (deleted)" appended. */
MUST_CHECK int vfs_path_text(const struct path *path, const struct path *root, char **ret);

#define MAY_EXEC 1U
#define MAY_WRITE 2U
#define MAY_READ 4U
MUST_CHECK int vfs_permission(const struct creds *creds, struct inode *inode, uint32_t mask);
/* with the mount's flags: MAY_WRITE on a read-only mount is -EROFS */
MUST_CHECK int vfs_path_permission(const struct creds *creds, const struct path *p, uint32_t mask);

/* ---- operations by path: every check done here; base/path as in vfs_walk ------------------------- */

/* open(2)/openat2(2): `how_flags` O_*, `resolve` WALK_* from RESOLVE_*. *ret_file: one reference. */
MUST_CHECK int vfs_open(const struct walk_context *ctx, const struct path *base, const char *path,
                        uint32_t open_flags, uint32_t mode, uint32_t resolve, struct file **ret_file);
MUST_CHECK int vfs_open_path(const struct walk_context *ctx, const struct path *p, uint32_t open_flags,
                             struct file **ret_file); /* already walked; permissions checked */
/* For exec: a regular file that may be executed, readable or not; nobody may open it for writing as long as
 * the open file lives. -EACCES, -ETXTBSY. */
MUST_CHECK int vfs_open_exec(const struct walk_context *ctx, const struct path *p, struct file **ret_file);
int vfs_mkdir(const struct walk_context *ctx, const struct path *base, const char *path, uint32_t mode);
int vfs_mknod(const struct walk_context *ctx, const struct path *base, const char *path, uint32_t mode,
              uint64_t rdev);
int vfs_symlink(const struct walk_context *ctx, const struct path *base, const char *path,
                const char *target);
int vfs_link(const struct walk_context *ctx, const struct path *old_path, const struct path *base,
             const char *path);
int vfs_unlink(const struct walk_context *ctx, const struct path *base, const char *path);
int vfs_rmdir(const struct walk_context *ctx, const struct path *base, const char *path);
int vfs_rename(const struct walk_context *ctx, const struct path *old_base, const char *old_path,
               const struct path *new_base, const char *new_path, uint32_t flags);
/* On an object already walked. */
int vfs_getattr(const struct path *p, struct kstat *ret);
int inode_getattr(struct inode *inode, struct kstat *ret);
int vfs_setattr(const struct creds *creds, const struct path *p, struct iattr *attr); /* chmod chown
                                             truncate utimens: permission rules by what is valid */
int vfs_readlink(const struct path *p, char **ret_target);
int vfs_statfs(const struct path *p, struct linux_statfs *ret);
/* The umask is applied by the caller, in all functions that take a `mode`. O_TMPFILE: see vfs_open. */

/* Extended attributes, with xattr(7)'s rules of who may. `size` 0 asks for the size. -ENODATA, -ERANGE… */
ssize_t vfs_getxattr(const struct creds *creds, const struct path *p, const char *name, void *value,
                     size_t size);
int vfs_setxattr(const struct creds *creds, const struct path *p, const char *name, const void *value,
                 size_t size, int flags);
ssize_t vfs_listxattr(const struct creds *creds, const struct path *p, char *list, size_t size);
int vfs_removexattr(const struct creds *creds, const struct path *p, const char *name);
#define VFS_XATTR_SIZE_MAX 65536
#define VFS_XATTR_LIST_MAX 65536

/* What modules above vfs plug in at start, before the first open; a NULL hook answers -ENXIO (opens) or
 * does nothing. */
struct vfs_hooks {
    int (*open_fifo)(struct inode *inode, struct file *file);   /* fills file->ops, file->private_data */
    int (*open_device)(struct inode *inode, struct file *file); /* by inode->mode and inode->rdev, where
                                                                   the inode has no open op of its own */
    void (*free_pipe)(struct inode *inode); /* inode->pipe is set and the inode's last reference went */
    void (*file_released)(struct file *f);  /* f->epolls is set and f's last reference went */
    /* Who is calling, borrowed; NULL: nobody's system call. What a write does to set-id bits depends on it. */
    const struct creds *(*current_creds)(void);
};
void vfs_set_hooks(const struct vfs_hooks *hooks); /* copies those that are not NULL */

/* ---- open file descriptions --------------------------------------------------------------------- */

typedef bool (*dir_emit_fn)(struct dir_context *ctx, const char *name, size_t name_size, uint64_t ino,
                            uint8_t type, int64_t next_pos);
struct dir_context {
    dir_emit_fn emit; /* false: buffer full, stop; the entry was not taken */
    int64_t pos;      /* where to go on; iterate sets it to next_pos after each entry taken, emit doesn't */
};

/* Ops of an open file. NULL: read/write -EINVAL, lseek -ESPIPE, poll always EPOLLIN|EPOLLOUT, ioctl
 * -ENOTTY, map -ENODEV, fsync -EINVAL, iterate -ENOTDIR, fallocate -EOPNOTSUPP. All may sleep. */
struct file_ops {
    /* *pos: position to use and advance (a private copy for pread). Short reads as Linux. -EAGAIN with
     * O_NONBLOCK. On -EINTR/-ERESTARTSYS see sentry/task/restart.h. */
    ssize_t (*read)(struct file *f, struct io *io, int64_t *pos);
    ssize_t (*write)(struct file *f, struct io *io, int64_t *pos); /* O_APPEND: by the file system under
                                                                      inode->lock, *pos is set */
    int64_t (*lseek)(struct file *f, int64_t offset, int whence);
    bool lseek_is_noop; /* lseek NULL: lseek(2) answers 0 instead of -ESPIPE, as for eventfd and kin */
    /* EPOLL* bits now; if `w` is not NULL also adds it to the wait queue(s) whose wake-up tells of a
     * change (poll_wait_add). */
    uint32_t (*poll)(struct file *f, struct poll_table *table);
    int64_t (*ioctl)(struct file *f, struct mm *mm, uint32_t cmd, uint64_t arg);
    int (*iterate)(struct file *f, struct dir_context *ctx); /* inode->lock held */
    int (*fsync)(struct file *f, bool data_only);
    int (*fallocate)(struct file *f, int mode, int64_t offset, int64_t size);
    int (*map)(struct file *f, uint64_t offset, uint64_t size, int prot, int flags, int *ret_hfd,
               uint64_t *ret_host_offset);
    int (*flush)(struct file *f);    /* each close(2) of a descriptor */
    int (*set_flags)(struct file *f, uint32_t flags); /* fcntl(F_SETFL), after vfs's checks */
    void (*release)(struct file *f); /* last reference */
};

struct file {
    const struct file_ops *ops;
    struct mappable mappable;   /* ops by vfs: goes on to file_ops.map */
    _Atomic uint32_t refs;
    struct path path;           /* ref */
    struct inode *inode;        /* ref (through path's dentry or its own for anonymous ones) */
    struct creds *creds;        /* ref: who opened it */
    _Atomic uint32_t flags;     /* O_ACCMODE | O_APPEND | O_NONBLOCK | O_DIRECT | O_PATH … */
    struct fmutex pos_lock;     /* for files with a position that are shared */
    int64_t pos;                /* pos_lock */
    struct epoll_links *epolls; /* epoll sets that watch it: sentry/fs/anon/epoll.c */
    struct lock epolls_lock;
    _Atomic uint32_t owner_pid; /* F_SETOWN */
    _Atomic int32_t owner_sig;
    uint64_t ra_pos;            /* file system's read-ahead hint */
    bool has_write_access;      /* counted in inode->writers */
    bool denies_write;          /* the same, on the other side */
    void *private_data;
};
/* One reference; takes its own references on path and creds. `path` of anonymous files: an anon-inode
 * dentry made by anon_file_new(). */
#define FILES_MAX 400000 /* open files of the sandbox, those beneath others included: -ENFILE */
MUST_CHECK int file_new(const struct path *path, const struct creds *creds, uint32_t flags,
                        const struct file_ops *ops, void *private_data, struct file **ret);
/* "anon_inode:[eventpoll]", "pipe:[12]", "socket:[3]", "/memfd:name (deleted)": a file without a place
 * in the tree. `inode` NULL: a fresh one of the anonymous superblock with `mode`. `name` is copied. */
MUST_CHECK int anon_file_new(const char *name, struct inode *inode_or_null, uint32_t mode,
                             const struct creds *creds, uint32_t flags, const struct file_ops *ops,
                             void *private_data, struct file **ret);
void file_get(struct file *f);
void file_put(struct file *f); /* may sleep */
void file_put_auto(struct file **f);
#define AUTO_FILE CLEANUP(file_put_auto) struct file *

/* An open file on a bare inode, without a place in the tree, through inode->ops->open: for file systems that
 * stand on others. No permission check. `file->path` is empty. */
MUST_CHECK int file_open_inode(struct inode *inode, const struct creds *creds, uint32_t flags,
                               struct file **ret);
/* For file_ops.read of file systems that keep an access time in the inode: relatime's rule. */
void file_accessed(struct file *f);
/* For file_ops.write, inode->lock held: mtime and ctime now, set-id bits gone. */
void file_modified(struct file *f);
/* For file_ops.lseek (pos_lock held): SEEK_SET, SEEK_CUR and SEEK_END of a file of `size` bytes. */
int64_t file_lseek_sized(struct file *f, int64_t offset, int whence, uint64_t size);
/* For file_ops.lseek of directories: any position that readdir gave. */
int64_t file_lseek_dir(struct file *f, int64_t offset, int whence);
/* For file_ops.iterate: emits "." and ".." at positions 0 and 1; false when the buffer is full. What
 * follows starts at position 2. */
bool dir_emit_dots(struct file *f, struct dir_context *ctx);

/* read/write with all of Linux's checks (access mode, position, append, RLIMIT_FSIZE left to caller). */
ssize_t vfs_read(struct file *f, struct io *io);                    /* at and advancing f->pos */
ssize_t vfs_write(struct file *f, struct io *io);
ssize_t vfs_pread(struct file *f, struct io *io, int64_t pos);
ssize_t vfs_pwrite(struct file *f, struct io *io, int64_t pos);
int64_t vfs_lseek(struct file *f, int64_t offset, int whence);
int vfs_iterate(struct file *f, struct dir_context *ctx);           /* at f->pos */
int vfs_ftruncate(struct file *f, uint64_t size);
/* For exec and the like: reads exactly into sentry memory; bytes read. */
ssize_t file_read_at(struct file *f, void *buffer, size_t size, int64_t pos);

/* ---- polling ------------------------------------------------------------------------------------ */

/* poll(2), select(2) and epoll hand one of these to file_ops.poll; it calls poll_wait() for each queue
 * it depends on. */
struct poll_table {
    void (*add)(struct poll_table *table, struct wait_queue *queue);
    void *arg;
};
static inline void poll_wait(struct poll_table *table, struct wait_queue *queue)
{
    if (table != NULL)
        table->add(table, queue);
}
uint32_t vfs_poll(struct file *f, struct poll_table *table_or_null);

/* ---- file locks: vfs/flock.c -------------------------------------------------------------------- */

struct posix_lock { /* a fcntl(2) record lock; owner: a task's fd table or a file (OFD) */
    int type;       /* F_RDLCK F_WRLCK F_UNLCK */
    int64_t start, end; /* inclusive; INT64_MAX = to the end */
    const void *owner;
    int pid;        /* for F_GETLK; -1 for OFD */
};
int posix_lock_set(struct file *f, const struct posix_lock *l, bool wait); /* -EAGAIN -EDEADLK -EINTR */
int posix_lock_get(struct file *f, struct posix_lock *l);                  /* F_GETLK: changes *l */
void posix_lock_release_owner(struct inode *inode, const void *owner);     /* close(2) */
int flock_set(struct file *f, int operation);                              /* flock(2): LOCK_* */
