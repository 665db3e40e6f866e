/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Superblocks and inodes: reference counts, times, generic attributes. Any fiber or thread.
 */
#include "sentry/vfs/vfs_internal.h"

#include "base/host.h"
#define LOG_MODULE "vfs"
#include "base/log.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct vfs_hooks g_vfs_hooks;

void vfs_set_hooks(const struct vfs_hooks *hooks)
{
    if (hooks->open_fifo)
        g_vfs_hooks.open_fifo = hooks->open_fifo;
    if (hooks->open_device)
        g_vfs_hooks.open_device = hooks->open_device;
    if (hooks->free_pipe)
        g_vfs_hooks.free_pipe = hooks->free_pipe;
    if (hooks->current_creds)
        g_vfs_hooks.current_creds = hooks->current_creds;
    if (hooks->file_released)
        g_vfs_hooks.file_released = hooks->file_released;
}

void superblock_init(struct superblock *sb, const struct superblock_ops *ops, const char *type_name,
                     uint32_t magic)
{
    static _Atomic uint64_t next_minor = 32; /* anonymous devices have major 0 */
    sb->ops = ops;
    sb->type_name = type_name;
    uint64_t minor = atomic_fetch_add_explicit(&next_minor, 1, memory_order_relaxed);
    sb->dev = (minor & 0xff) | (minor & ~UINT64_C(0xff)) << 12; /* st_dev's encoding */
    atomic_init(&sb->refs, 1);
    sb->magic = magic;
    lock_init(&sb->inodes_lock);
    fmutex_init(&sb->rename_lock);
}

void superblock_get(struct superblock *sb)
{
    atomic_fetch_add_explicit(&sb->refs, 1, memory_order_relaxed);
}

void superblock_put(struct superblock *sb)
{
    if (!sb || atomic_fetch_sub_explicit(&sb->refs, 1, memory_order_acq_rel) != 1)
        return;
    fmutex_fini(&sb->rename_lock);
    lock_fini(&sb->inodes_lock);
    if (sb->ops->destroy)
        sb->ops->destroy(sb);
}

struct inode *inode_new(struct superblock *sb, const struct inode_ops *ops, uint64_t ino,
                        uint32_t mode, uint32_t uid, uint32_t gid)
{
    struct inode *inode = calloc(1, sizeof(*inode));
    if (!inode)
        return NULL;
    inode->ops = ops;
    inode->sb = sb;
    superblock_get(sb);
    atomic_init(&inode->refs, 1);
    inode->ino = ino;
    fmutex_init(&inode->lock);
    inode->mode = mode;
    inode->uid = uid;
    inode->gid = gid;
    atomic_init(&inode->nlink, 1);
    inode->atime = inode->mtime = inode->ctime = inode->btime = vfs_now();
    return inode;
}

void inode_get(struct inode *inode)
{
    atomic_fetch_add_explicit(&inode->refs, 1, memory_order_relaxed);
}

void inode_put(struct inode *inode)
{
    if (!inode || atomic_fetch_sub_explicit(&inode->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (inode->pipe && g_vfs_hooks.free_pipe)
        g_vfs_hooks.free_pipe(inode);
    if (inode->ops->destroy)
        inode->ops->destroy(inode);
    flock_state_free(atomic_load_explicit(&inode->locks, memory_order_relaxed));
    free(atomic_load_explicit(&inode->link_target, memory_order_relaxed));
    fmutex_fini(&inode->lock);
    struct superblock *sb = inode->sb;
    free(inode);
    superblock_put(sb);
}

/* The vDSO answers this clock without a system call. */
struct linux_timespec vfs_now(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return (struct linux_timespec){.sec = now.tv_sec, .nsec = now.tv_nsec};
}

static void set_time(struct linux_timespec *t, struct linux_timespec value)
{
    STORE_RELAXED(t->sec, value.sec);
    STORE_RELAXED(t->nsec, value.nsec);
}

static struct linux_timespec get_time(const struct linux_timespec *t)
{
    return (struct linux_timespec){.sec = LOAD_RELAXED(t->sec), .nsec = LOAD_RELAXED(t->nsec)};
}

void inode_touch(struct inode *inode, uint32_t attr_times)
{
    struct linux_timespec now = vfs_now();
    if (attr_times & ATTR_ATIME)
        set_time(&inode->atime, now);
    if (attr_times & ATTR_MTIME)
        set_time(&inode->mtime, now);
    if (attr_times & ATTR_CTIME)
        set_time(&inode->ctime, now);
}

/* > 0 counts writers, < 0 those who forbid it; each side adds its sign unless the other one holds
 * it. */
static int add_signed(_Atomic int32_t *counter, int32_t sign)
{
    int32_t old = atomic_load_explicit(counter, memory_order_relaxed);
    do {
        if (sign > 0 ? old < 0 : old > 0)
            return -ETXTBSY;
    } while (!atomic_compare_exchange_weak_explicit(counter, &old, old + sign, memory_order_acquire,
                                                    memory_order_relaxed));
    return 0;
}

int inode_get_write_access(struct inode *inode)
{
    return add_signed(&inode->writers, 1);
}

void inode_put_write_access(struct inode *inode)
{
    atomic_fetch_sub_explicit(&inode->writers, 1, memory_order_release);
}

int inode_deny_write(struct inode *inode)
{
    return add_signed(&inode->writers, -1);
}

void inode_allow_write(struct inode *inode)
{
    atomic_fetch_add_explicit(&inode->writers, 1, memory_order_release);
}

uint64_t vfs_next_ino(void)
{
    static _Atomic uint64_t next = 1;
    return atomic_fetch_add_explicit(&next, 1, memory_order_relaxed);
}

static const struct superblock_ops anon_sb_ops;

struct superblock *vfs_anon_superblock(void)
{
    static struct superblock sb;
    static struct lock init_lock = LOCK_INITIALIZER;
    static _Atomic bool is_ready;
    if (atomic_load_explicit(&is_ready, memory_order_acquire))
        return &sb;
    lock_acquire(&init_lock);
    if (!atomic_load_explicit(&is_ready, memory_order_relaxed)) {
        superblock_init(&sb, &anon_sb_ops, "anon_inodefs", 0x09041934);
        atomic_store_explicit(&is_ready, true, memory_order_release);
    }
    lock_release(&init_lock);
    return &sb;
}

void inode_fill_kstat(const struct inode *inode, struct kstat *ret)
{
    uint64_t size = atomic_load_explicit(&inode->size, memory_order_relaxed);
    *ret = (struct kstat){
        .dev = inode->sb->dev,
        .ino = inode->ino,
        .nlink = atomic_load_explicit(&inode->nlink, memory_order_relaxed),
        .rdev = inode->rdev,
        .mode = atomic_load_explicit(&inode->mode, memory_order_relaxed),
        .uid = atomic_load_explicit(&inode->uid, memory_order_relaxed),
        .gid = atomic_load_explicit(&inode->gid, memory_order_relaxed),
        .size = size,
        .blocks = S_ISREG(inode->mode) ? PAGE_UP(size) / 512 : 0,
        .blksize = PAGE_SIZE,
        .atime = get_time(&inode->atime),
        .mtime = get_time(&inode->mtime),
        .ctime = get_time(&inode->ctime),
        .btime = inode->btime,
    };
}

void inode_apply_iattr(struct inode *inode, const struct iattr *attr)
{
    if (attr->valid & ATTR_MODE)
        atomic_store_explicit(&inode->mode, (inode->mode & S_IFMT) | (attr->mode & 07777),
                              memory_order_relaxed);
    if (attr->valid & ATTR_UID)
        atomic_store_explicit(&inode->uid, attr->uid, memory_order_relaxed);
    if (attr->valid & ATTR_GID)
        atomic_store_explicit(&inode->gid, attr->gid, memory_order_relaxed);
    if (attr->valid & ATTR_ATIME)
        set_time(&inode->atime, attr->atime);
    if (attr->valid & ATTR_MTIME)
        set_time(&inode->mtime, attr->mtime);
    if (attr->valid & ATTR_CTIME)
        set_time(&inode->ctime, attr->ctime);
}

int inode_getattr(struct inode *inode, struct kstat *ret)
{
    if (inode->ops->getattr)
        return inode->ops->getattr(inode, ret);
    inode_fill_kstat(inode, ret);
    return 0;
}

int vfs_getattr(const struct path *p, struct kstat *ret)
{
    return inode_getattr(dentry_inode(p->dentry), ret);
}
