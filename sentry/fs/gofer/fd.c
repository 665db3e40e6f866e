/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Donated host descriptors: kept with the inode, counted by the open files that use them, closed when
 * nobody has for long. Any fiber; counts and numbers under fs->lock.
 */
#include "sentry/fs/gofer/node.h"

#include "base/host.h"
#include <errno.h>
#include <fcntl.h>

static uint32_t access_of(int kind)
{
    return (uint32_t)kind + 1; /* GOFER_OPEN_* */
}

void node_init_fds(struct node *node)
{
    for (int i = 0; i < FD_KINDS; i++)
        node->fds[i] = (struct donated){.hfd = -1};
}

/* Kinds that do for an access mode, the wished one first. */
static const int *kinds_for(uint32_t flags)
{
    static const int reading[] = {FD_READ, FD_BOTH, -1};
    static const int writing[] = {FD_BOTH, FD_WRITE, -1};
    static const int both[] = {FD_BOTH, -1};
    switch (flags & O_ACCMODE) {
    case O_RDONLY:
        return reading;
    case O_WRONLY:
        return writing;
    default:
        return both;
    }
}

static void set_idle_locked(struct gofer_fs *fs, struct node *node)
{
    bool has_fd = false;
    bool in_use = false;
    for (int i = 0; i < FD_KINDS; i++) {
        has_fd |= node->fds[i].hfd >= 0;
        in_use |= node->fds[i].opens > 0;
    }
    bool idle = has_fd && !in_use;
    if (idle == node->is_idle)
        return;
    node->is_idle = idle;
    if (idle) {
        TAILQ_INSERT_TAIL(&fs->idle, node, idle_lru);
        fs->idle_count++;
    } else {
        TAILQ_REMOVE(&fs->idle, node, idle_lru);
        fs->idle_count--;
    }
}

/* Takes the descriptors that nobody uses out of `node`. fs->lock held. */
static void take_unused_locked(struct gofer_fs *fs, struct node *node, int hfds[FD_KINDS])
{
    for (int i = 0; i < FD_KINDS; i++) {
        hfds[i] = node->fds[i].opens ? -1 : node->fds[i].hfd;
        if (hfds[i] >= 0)
            node->fds[i].hfd = -1;
    }
    set_idle_locked(fs, node);
}

static void close_all(const int hfds[FD_KINDS])
{
    for (int i = 0; i < FD_KINDS; i++)
        host_close(hfds[i]);
}

/* Closes what the inode that has been idle for longest holds, if more than `above` are. False: nothing to do. */
static bool trim_one(struct gofer_fs *fs, uint32_t above)
{
    int hfds[FD_KINDS] = {-1, -1, -1};
    lock_acquire(&fs->lock);
    bool found = fs->idle_count > above;
    if (found)
        take_unused_locked(fs, TAILQ_FIRST(&fs->idle), hfds);
    lock_release(&fs->lock);
    close_all(hfds);
    return found;
}

static void trim_idle(struct gofer_fs *fs)
{
    (void)trim_one(fs, IDLE_FDS_MAX);
}

static bool take_present(struct gofer_fs *fs, struct node *node, const int *kinds, int *ret_kind,
                         int *ret_hfd)
{
    bool found = false;
    lock_acquire(&fs->lock);
    for (; *kinds >= 0 && !found; kinds++) {
        struct donated *d = &node->fds[*kinds];
        if (d->hfd < 0)
            continue;
        d->opens++;
        *ret_kind = *kinds;
        *ret_hfd = d->hfd;
        found = true;
    }
    if (found)
        set_idle_locked(fs, node);
    lock_release(&fs->lock);
    return found;
}

/* Asks the gofer once. The descriptor or -errno. */
static int ask_once(struct inode *inode, int kind)
{
    struct gofer_fs *fs = fs_of(inode);
    AUTO_RPC rpc = {0};
    gofer_rpc_begin(fs->client, &rpc, fs->shared);
    struct gofer_open_request req = {.access = access_of(kind), .at_path = rpc.path[0]};
    int error = node_path(fs, node_of(inode), NULL, rpc.path[0], &req.at, NULL);
    struct gofer_open_reply reply;
    if (!error)
        error = gofer_rpc_open(&rpc, &req, &reply);
    if (error)
        return error;
    if (rpc.hfd < 0)
        return -EIO;
    /* Another file has this name by now. */
    if (reply.stat.ino != inode->ino || reply.stat.dev_index != node_of(inode)->dev_index)
        return -ESTALE;
    if (fs->shared)
        node_apply_stat(node_of(inode), &reply.stat);
    return take_fd(&rpc.hfd);
}

/* The descriptor or -errno. */
static int ask(struct inode *inode, int kind)
{
    int hfd = ask_once(inode, kind);
    if (hfd != -ENFILE)
        return hfd;
    while (trim_one(fs_of(inode), 0)) /* this process has too many: idle ones are only a cache */
        ;
    return ask_once(inode, kind);
}

int fd_get(struct inode *inode, uint32_t flags, int *ret_kind, int *ret_hfd)
{
    struct gofer_fs *fs = fs_of(inode);
    struct node *node = node_of(inode);
    const int *kinds = kinds_for(flags);
    if (take_present(fs, node, kinds, ret_kind, ret_hfd))
        return 0;
    int kind = kinds[0];
    AUTO_FD hfd = ask(inode, kind);
    if (hfd == -EACCES && (flags & O_ACCMODE) == O_WRONLY) { /* may be written, not read */
        kind = FD_WRITE;
        hfd = ask(inode, kind);
    }
    if (hfd < 0)
        return hfd;
    lock_acquire(&fs->lock);
    struct donated *d = &node->fds[kind];
    if (d->hfd < 0)
        d->hfd = take_fd(&hfd); /* else another fiber was faster, and ours is closed */
    d->opens++;
    *ret_kind = kind;
    *ret_hfd = d->hfd;
    set_idle_locked(fs, node);
    lock_release(&fs->lock);
    return 0;
}

void fd_borrow(struct inode *inode, bool writable, int *ret_kind, int *ret_hfd)
{
    static const int any[] = {FD_READ, FD_BOTH, FD_WRITE, -1};
    static const int writing[] = {FD_BOTH, FD_WRITE, -1};
    if (!take_present(fs_of(inode), node_of(inode), writable ? writing : any, ret_kind, ret_hfd))
        *ret_hfd = -1;
}

void fd_put(struct inode *inode, int kind)
{
    struct gofer_fs *fs = fs_of(inode);
    struct node *node = node_of(inode);
    int unused = -1;
    lock_acquire(&fs->lock);
    struct donated *d = &node->fds[kind];
    d->opens--;
    if (d->opens == 0 && kind != FD_READ) { /* kept open, it would make the host's execve say ETXTBSY */
        unused = d->hfd;
        d->hfd = -1;
    }
    set_idle_locked(fs, node);
    lock_release(&fs->lock);
    host_close(unused);
    if (atomic_load_explicit(&inode->nlink, memory_order_relaxed) == 0)
        fd_close_idle(inode); /* the host frees its blocks with the last descriptor */
    else
        trim_idle(fs);
}

void fd_add(struct inode *inode, int kind, int hfd)
{
    struct gofer_fs *fs = fs_of(inode);
    struct node *node = node_of(inode);
    lock_acquire(&fs->lock);
    if (node->fds[kind].hfd < 0) {
        node->fds[kind].hfd = hfd;
        hfd = -1;
    }
    set_idle_locked(fs, node);
    lock_release(&fs->lock);
    host_close(hfd);
    trim_idle(fs);
}

void fd_close_idle(struct inode *inode)
{
    struct gofer_fs *fs = fs_of(inode);
    int hfds[FD_KINDS];
    lock_acquire(&fs->lock);
    take_unused_locked(fs, node_of(inode), hfds);
    lock_release(&fs->lock);
    close_all(hfds);
}
