/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes: which inode a host file is, and how the gofer is told about it. Any fiber. What the gofer says about
 * a file is only believed as far as it can't confuse us: types of one number that differ are two files.
 */
#include "sentry/fs/gofer/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define STORE(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)
#define LOAD(field)         __atomic_load_n(&(field), __ATOMIC_RELAXED)

static unsigned bucket_of(uint32_t dev_index, uint64_t ino)
{
    uint64_t h = (ino ^ (uint64_t)dev_index << 56) * UINT64_C(0x9e3779b97f4a7c15);
    return (unsigned)(h >> (64 - NODE_BUCKET_BITS));
}

static void set_time(struct linux_timespec *t, uint64_t sec, uint32_t nsec)
{
    STORE(t->sec, (int64_t)sec);
    STORE(t->nsec, (int64_t)nsec);
}

void node_apply_stat(struct node *node, const struct gofer_stat *stat)
{
    struct inode *inode = node->inode;
    atomic_store_explicit(&inode->mode, (inode->mode & S_IFMT) | (stat->mode & 07777), memory_order_relaxed);
    atomic_store_explicit(&inode->uid, stat->uid, memory_order_relaxed);
    atomic_store_explicit(&inode->gid, stat->gid, memory_order_relaxed);
    atomic_store_explicit(&inode->nlink, stat->nlink, memory_order_relaxed);
    atomic_store_explicit(&inode->size, stat->size, memory_order_relaxed);
    STORE(node->blocks, stat->blocks);
    set_time(&inode->atime, stat->atime, stat->atime_nsec);
    set_time(&inode->mtime, stat->mtime, stat->mtime_nsec);
    set_time(&inode->ctime, stat->ctime, stat->ctime_nsec);
}

static const struct inode_ops *ops_of(uint32_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR:
        return &gofer_dir_inode_ops;
    case S_IFREG:
        return &gofer_file_inode_ops;
    case S_IFLNK:
        return &gofer_symlink_inode_ops;
    default:
        return &gofer_other_inode_ops;
    }
}

static struct inode *make(struct gofer_fs *fs, const struct gofer_stat *stat)
{
    struct node *node = calloc(1, sizeof(*node));
    struct inode *inode =
        node ? inode_new(&fs->sb, ops_of(stat->mode), stat->ino, stat->mode, stat->uid, stat->gid) : NULL;
    if (!inode) {
        free(node);
        return NULL;
    }
    inode->private_data = node;
    inode->rdev = stat->rdev;
    inode->btime = (struct linux_timespec){.sec = (int64_t)stat->btime, .nsec = stat->btime_nsec};
    node->inode = inode;
    node->dev_index = stat->dev_index;
    node->blksize = stat->blksize;
    node->has_btime = stat->flags & GOFER_STAT_BTIME;
    node_init_fds(node);
    SLIST_INIT(&node->batches);
    node_apply_stat(node, stat);
    return inode;
}

/* A reference, unless the last one has just gone. */
static bool get_unless_dead(struct inode *inode)
{
    uint32_t refs = atomic_load_explicit(&inode->refs, memory_order_relaxed);
    do {
        if (refs == 0)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&inode->refs, &refs, refs + 1, memory_order_acquire,
                                                    memory_order_relaxed));
    return true;
}

/* Not the same type, or born at another time: the number was given to another file meanwhile. */
static bool is_same(const struct node *node, const struct gofer_stat *stat)
{
    const struct inode *inode = node->inode;
    if ((atomic_load_explicit(&inode->mode, memory_order_relaxed) ^ stat->mode) & S_IFMT)
        return false;
    return !node->has_btime || !(stat->flags & GOFER_STAT_BTIME) ||
           (inode->btime.sec == (int64_t)stat->btime && inode->btime.nsec == stat->btime_nsec);
}

/* fs->lock held. A reference or NULL. */
static struct inode *find_locked(struct gofer_fs *fs, const struct gofer_stat *stat)
{
    struct node *node;
    struct node *next;
    for (node = LIST_FIRST(&fs->buckets[bucket_of(stat->dev_index, stat->ino)]); node; node = next) {
        next = LIST_NEXT(node, bucket);
        if (node->inode->ino != stat->ino || node->dev_index != stat->dev_index)
            continue;
        if (is_same(node, stat)) {
            if (get_unless_dead(node->inode))
                return node->inode;
            continue;
        }
        LIST_REMOVE(node, bucket);
        node->is_known = false;
    }
    return NULL;
}

/* Drops what was only borrowed for the comparison: refs of old parents are put outside of the lock. */
static void adopt(struct gofer_fs *fs, struct inode *inode, const struct gofer_stat *stat, uint64_t handle,
                  struct inode *parent, const char *name)
{
    struct node *node = node_of(inode);
    lock_acquire(&fs->lock);
    bool has_place = node->parent || node == fs->root_node;
    lock_release(&fs->lock);
    if (parent && (!has_place || fs->shared) && node != fs->root_node)
        node_set_place(fs, node, parent, name);
    if (handle)
        node_set_handle(fs, node, handle);
    if (fs->shared)
        node_apply_stat(node, stat);
}

struct inode *node_get(struct gofer_fs *fs, const struct gofer_stat *stat, uint64_t handle,
                       struct inode *parent, const char *name)
{
    lock_acquire(&fs->lock);
    struct inode *inode = find_locked(fs, stat);
    lock_release(&fs->lock);
    if (!inode) {
        struct inode *fresh = make(fs, stat);
        if (!fresh) {
            fs_close_later(fs, handle);
            return NULL;
        }
        lock_acquire(&fs->lock);
        inode = find_locked(fs, stat);
        if (!inode) {
            struct node *node = node_of(fresh);
            LIST_INSERT_HEAD(&fs->buckets[bucket_of(stat->dev_index, stat->ino)], node, bucket);
            node->is_known = true;
            inode = fresh;
            fresh = NULL;
        }
        lock_release(&fs->lock);
        inode_put(fresh);
    }
    adopt(fs, inode, stat, handle, parent, name);
    return inode;
}

void node_forget(struct gofer_fs *fs, struct node *node)
{
    lock_acquire(&fs->lock);
    if (node->is_known)
        LIST_REMOVE(node, bucket);
    node->is_known = false;
    lock_release(&fs->lock);
}

/* Is `node` the place of `below` or above it? Ends, for circles are never made. fs->lock held. */
static bool is_above_locked(const struct node *node, const struct inode *below)
{
    while (below && node_of(below) != node)
        below = node_of(below)->parent;
    return below != NULL;
}

void node_set_place(struct gofer_fs *fs, struct node *node, struct inode *parent, const char *name)
{
    char *copy = parent ? strdup(name) : NULL;
    if (parent && !copy)
        parent = NULL; /* nameless from now on: some calls will answer ESTALE */
    if (parent)
        inode_get(parent);
    lock_acquire(&fs->lock);
    struct inode *old_parent = node->parent;
    char *old_name = node->name;
    if (parent && is_above_locked(node, parent)) { /* no host has such a tree: the gofer makes it up */
        old_parent = parent;
        old_name = copy;
    } else {
        node->parent = parent;
        node->name = copy;
    }
    lock_release(&fs->lock);
    free(old_name);
    inode_put(old_parent);
}

/* ---- handles ------------------------------------------------------------------------------------- */

/* fs->lock held. */
static void close_later_locked(struct gofer_fs *fs, uint64_t handle)
{
    /* Full only if nobody gets to flush: then the gofer keeps it until the end. */
    if (handle && fs->closing_count < CLOSING_MAX)
        fs->closing[fs->closing_count++] = handle;
}

void fs_close_later(struct gofer_fs *fs, uint64_t handle)
{
    if (!handle)
        return;
    lock_acquire(&fs->lock);
    close_later_locked(fs, handle);
    lock_release(&fs->lock);
}

void fs_flush_closing(struct gofer_fs *fs, uint32_t above)
{
    if (LOAD(fs->closing_count) <= above)
        return;
    AUTO_RPC rpc = {0};
    gofer_rpc_begin(fs->client, &rpc, fs->shared);
    uint8_t *bytes = (uint8_t *)rpc.path[0];
    static_assert(CLOSING_MAX * sizeof(uint64_t) <= GOFER_RPC_PATH_SIZE, "fits the scratch space");
    lock_acquire(&fs->lock);
    uint32_t count = fs->closing_count;
    for (uint32_t i = 0; i < count; i++) {
        for (unsigned b = 0; b < 8; b++)
            bytes[8 * i + b] = (uint8_t)(fs->closing[i] >> (8 * b));
    }
    fs->closing_count = 0;
    lock_release(&fs->lock);
    if (!count)
        return;
    struct gofer_close_request req = {.handles = bytes, .handles_size = count * 8};
    struct gofer_close_reply reply;
    (void)!gofer_rpc_close(&rpc, &req, &reply); /* a dead client is reported by the next real call */
}

void node_set_handle(struct gofer_fs *fs, struct node *node, uint64_t handle)
{
    lock_acquire(&fs->lock);
    if (node->handle) {
        close_later_locked(fs, handle);
    } else {
        node->handle = handle;
        TAILQ_INSERT_TAIL(&fs->handles, node, handle_lru);
        fs->handle_count++;
    }
    if (fs->handle_count > HANDLES_LIVE_MAX) {
        struct node *oldest = TAILQ_FIRST(&fs->handles);
        TAILQ_REMOVE(&fs->handles, oldest, handle_lru);
        if (oldest == fs->root_node || !oldest->parent) {
            TAILQ_INSERT_TAIL(&fs->handles, oldest, handle_lru);
        } else {
            close_later_locked(fs, oldest->handle);
            oldest->handle = 0;
            fs->handle_count--;
        }
    }
    lock_release(&fs->lock);
}

/* Puts `name` and a slash (if something follows) before what is at path + *at. */
static bool prepend(char *path, size_t *at, const char *name)
{
    size_t len = strlen(name);
    bool needs_slash = *at < GOFER_RPC_PATH_SIZE - 1;
    if (len + needs_slash > *at)
        return false;
    if (needs_slash)
        path[--*at] = '/';
    *at -= len;
    memcpy(path + *at, name, len);
    return true;
}

int node_path(struct gofer_fs *fs, struct node *node, const char *name, char *path, uint64_t *ret_handle,
              uint32_t *ret_depth)
{
    size_t at = GOFER_RPC_PATH_SIZE - 1;
    uint32_t depth = 0;
    int error = 0;
    path[at] = '\0';
    if (name && !prepend(path, &at, name))
        return -ENAMETOOLONG;
    lock_acquire(&fs->lock);
    /* Ends even if the gofer made us believe in a circle: each step takes room in `path`. */
    while (!node->handle && !error) {
        if (!node->parent) {
            error = node == fs->root_node ? 0 : -ESTALE;
            break;
        }
        error = prepend(path, &at, node->name) ? 0 : -ENAMETOOLONG;
        node = node_of(node->parent);
        depth++;
    }
    uint64_t handle = node == fs->root_node ? fs->root_handle : node->handle;
    if (!error && node->handle) {
        TAILQ_REMOVE(&fs->handles, node, handle_lru);
        TAILQ_INSERT_TAIL(&fs->handles, node, handle_lru);
    }
    lock_release(&fs->lock);
    if (error)
        return error;
    memmove(path, path + at, GOFER_RPC_PATH_SIZE - at);
    *ret_handle = handle;
    if (ret_depth)
        *ret_depth = depth;
    return 0;
}

/* ---- the end ------------------------------------------------------------------------------------- */

/* The parent may go with its child, and its own with it: in a loop, for a fiber's stack is small. Frees the
 * node. */
static void put_parent(struct gofer_fs *fs, struct node *node)
{
    if (!node->parent) {
        free(node);
        return;
    }
    lock_acquire(&fs->lock);
    LIST_INSERT_HEAD(&fs->orphans, node, bucket);
    bool is_mine = !fs->is_draining;
    fs->is_draining = true;
    while (is_mine && (node = LIST_FIRST(&fs->orphans))) {
        LIST_REMOVE(node, bucket);
        lock_release(&fs->lock);
        inode_put(node->parent); /* may come here again, and then only adds to the list */
        free(node);
        lock_acquire(&fs->lock);
    }
    if (is_mine)
        fs->is_draining = false;
    lock_release(&fs->lock);
}

void node_destroy(struct inode *inode)
{
    struct gofer_fs *fs = fs_of(inode);
    struct node *node = node_of(inode);
    cache_drop_batches(fs, node);
    fd_close_idle(inode);
    lock_acquire(&fs->lock);
    if (node->is_known)
        LIST_REMOVE(node, bucket);
    if (node->handle) {
        TAILQ_REMOVE(&fs->handles, node, handle_lru);
        fs->handle_count--;
        close_later_locked(fs, node->handle);
    }
    node->is_known = false;
    lock_release(&fs->lock);
    free(node->name);
    put_parent(fs, node);
}

void fs_changed(struct gofer_fs *fs)
{
    atomic_fetch_add(&fs->changes, 1);
}
