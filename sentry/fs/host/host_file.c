/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files over donated host descriptors. Reads and writes of pipes and sockets are tried without blocking
 * (RWF_NOWAIT, MSG_DONTWAIT) and wait in the event thread's epoll, so that a silent peer holds no host
 * thread; the descriptor's own O_NONBLOCK is left as it was found, because others may share it.
 */
#define LOG_MODULE "host_file"
#include "sentry/fs/host/host_file.h"
#include "base/host.h"
#include "base/log.h"
#include "sentry/sched/sched.h"
#include "sentry/task/restart.h"
#include "sentry/vfs/vfs.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

struct host_file {
    int hfd; /* owned */
    uint32_t type; /* S_IFMT bits */
    bool is_watched;
    struct event_source source;
    struct wait_queue wait;
};

static void became_ready(struct event_source *source, uint32_t events)
{
    struct host_file *h = container_of(source, struct host_file, source);
    wait_queue_wake_all(&h->wait, events | EPOLLHUP | EPOLLERR);
}

/* What the host says now. */
static uint32_t ready_now(struct host_file *h)
{
    struct pollfd p = {.fd = h->hfd, .events = POLLIN | POLLOUT | POLLPRI | POLLRDHUP};
    struct timespec zero = {0};
    /* #syscalls ppoll: readiness of donated standard streams */
    long r = host_call5(SYS_ppoll, &p, 1, &zero, 0, 0);
    return r > 0 ? (uint32_t)(uint16_t)p.revents : 0;
}

static uint32_t host_poll(struct file *f, struct poll_table *table)
{
    struct host_file *h = f->private_data;
    if (!h->is_watched)
        return EPOLLIN | EPOLLOUT | EPOLLRDNORM | EPOLLWRNORM;
    poll_wait(table, &h->wait);
    uint32_t events = ready_now(h);
    if (events & EPOLLIN)
        events |= EPOLLRDNORM;
    if (events & EPOLLOUT)
        events |= EPOLLWRNORM;
    return events;
}

/* Parks until one of `events`, an error or hang-up is there. */
static int wait_ready(struct file *f, struct host_file *h, uint32_t events)
{
    struct waiter w;
    int r = 0;
    if (f->flags & O_NONBLOCK)
        return -EAGAIN;
    waiter_init(&w);
    wait_queue_add(&h->wait, &w);
    while (r == 0 && !(ready_now(h) & (events | EPOLLHUP | EPOLLERR)))
        r = fiber_park(FIBER_INTERRUPTIBLE, FIBER_NO_DEADLINE);
    wait_queue_remove(&w);
    return r == -EINTR ? -ERESTARTSYS : r;
}

/* One attempt on a stream: at most 64 KiB through a buffer of the sentry's. */
static ssize_t stream_read_once(struct host_file *h, struct io *io)
{
    size_t size = io->remaining < KIB(64) ? (size_t)io->remaining : KIB(64);
    uint8_t small[1024], *buffer = size <= sizeof small ? small : malloc(size);
    if (buffer == NULL)
        return -ENOMEM;
    /* #syscalls read: standard input, after it was found readable */
    ssize_t n = ready_now(h) & (POLLIN | POLLHUP | POLLERR) ? host_call3(SYS_read, h->hfd, buffer, size)
                                                            : -EAGAIN;
    if (n > 0) {
        ssize_t put = io_put(io, buffer, (size_t)n);
        n = put < 0 ? put : n;
    }
    if (buffer != small)
        free(buffer);
    return n;
}

static ssize_t host_read(struct file *f, struct io *io, int64_t *pos)
{
    struct host_file *h = f->private_data;
    if (h->type == S_IFREG) {
        (void)pos; /* shared with the caller's other programs: the descriptor's own position */
        return io_host_read(io, h->hfd, -1, true);
    }
    if (!h->is_watched)
        return io_host_read(io, h->hfd, -1, true);
    for (;;) {
        ssize_t n = stream_read_once(h, io);
        if (n != -EAGAIN)
            return n;
        int r = wait_ready(f, h, EPOLLIN);
        if (r != 0)
            return r;
    }
}

/* Pipes take PIPE_BUF whenever they're writable, so a write of at most that never blocks. */
static ssize_t stream_write_once(struct host_file *h, struct io *io)
{
    size_t room = h->type == S_IFIFO ? 4096 : KIB(64);
    size_t size = io->remaining < room ? (size_t)io->remaining : room;
    uint8_t small[1024], *buffer = size <= sizeof small ? small : malloc(size);
    if (buffer == NULL)
        return -ENOMEM;
    ssize_t n = io_get(io, buffer, size);
    if (n > 0) {
        size_t taken = (size_t)n;
        if (!(ready_now(h) & (POLLOUT | POLLERR | POLLHUP)))
            n = -EAGAIN;
        else if (h->type == S_IFSOCK) /* #syscalls sendto: standard output that is a socket */
            n = host_call6(SYS_sendto, h->hfd, buffer, taken, 0x4040 /* DONTWAIT NOSIGNAL */, 0, 0);
        else /* #syscalls write: standard output, after it was found writable */
            n = host_call3(SYS_write, h->hfd, buffer, taken);
        size_t used = n > 0 ? (size_t)n : 0;
        io_rewind(io, taken - used);
    }
    if (buffer != small)
        free(buffer);
    return n;
}

static ssize_t host_write(struct file *f, struct io *io, int64_t *pos)
{
    struct host_file *h = f->private_data;
    (void)pos;
    if (h->type == S_IFREG || !h->is_watched)
        return io_host_write(io, h->hfd, -1, true);
    ssize_t done = 0;
    while (io->remaining > 0) {
        ssize_t n = stream_write_once(h, io);
        if (n == -EAGAIN) {
            int r = wait_ready(f, h, EPOLLOUT);
            if (r != 0)
                return done > 0 ? done : r;
            continue;
        }
        if (n == -EPIPE && g_host_broken_pipe_hook != NULL)
            g_host_broken_pipe_hook();
        if (n <= 0)
            return done > 0 ? done : n;
        done += n;
    }
    return done;
}

static int64_t host_lseek(struct file *f, int64_t offset, int whence)
{
    struct host_file *h = f->private_data;
    if (h->type != S_IFREG)
        return -ESPIPE;
    /* #syscalls lseek: standard streams that are regular files */
    return host_call3(SYS_lseek, h->hfd, offset, whence);
}

static int host_map(struct file *f, uint64_t offset, uint64_t size, int prot, int flags, int *ret_hfd,
                    uint64_t *ret_host_offset)
{
    struct host_file *h = f->private_data;
    (void)size, (void)prot;
    if (h->type != S_IFREG || (flags & 0x01 /* MAP_SHARED */))
        return -ENODEV;
    *ret_hfd = h->hfd;
    *ret_host_offset = offset;
    return 0;
}

static void host_release(struct file *f)
{
    struct host_file *h = f->private_data;
    if (h->is_watched)
        event_source_remove(&h->source);
    wait_queue_fini(&h->wait);
    host_close(h->hfd);
    free(h);
}

static const struct file_ops host_file_ops = {
    .read = host_read,
    .write = host_write,
    .lseek = host_lseek,
    .poll = host_poll,
    .map = host_map,
    .release = host_release,
};

void (*g_host_broken_pipe_hook)(void);

static int host_getattr(struct inode *inode, struct kstat *ret)
{
    struct stat st;
    int hfd = (int)(intptr_t)inode->private_data;
    /* #syscalls fstat: standard streams */
    long r = host_call2(SYS_fstat, hfd, &st);
    if (r != 0)
        return (int)r;
    *ret = (struct kstat){
        .dev = inode->sb->dev,
        .ino = inode->ino,
        .nlink = 1,
        .mode = st.st_mode,
        .uid = inode->uid,
        .gid = inode->gid,
        .rdev = S_ISCHR(st.st_mode) ? st.st_rdev : 0,
        .size = (uint64_t)st.st_size,
        .blocks = (uint64_t)st.st_blocks,
        .blksize = 4096,
        .atime = {st.st_atim.tv_sec, st.st_atim.tv_nsec},
        .mtime = {st.st_mtim.tv_sec, st.st_mtim.tv_nsec},
        .ctime = {st.st_ctim.tv_sec, st.st_ctim.tv_nsec},
    };
    return 0;
}

static const struct inode_ops host_inode_ops = {.getattr = host_getattr};

int host_file_new(int hfd, const struct creds *creds, struct file **ret)
{
    struct stat st;
    long r = host_call2(SYS_fstat, hfd, &st);
    if (r != 0)
        return (int)r;
    /* #syscalls fcntl: access mode of donated descriptors (F_GETFL) */
    long flags = host_call2(SYS_fcntl, hfd, F_GETFL);
    if (flags < 0 || S_ISDIR(st.st_mode))
        return -EINVAL;
    struct host_file *h = calloc(1, sizeof *h);
    if (h == NULL)
        return -ENOMEM;
    h->hfd = hfd;
    h->type = st.st_mode & S_IFMT;
    wait_queue_init(&h->wait);
    h->source = (struct event_source){
        .hfd = hfd, .ready = became_ready, .interest = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI};
    h->is_watched = h->type != S_IFREG && event_source_add(&h->source) == 0;
    const char *name = h->type == S_IFIFO ? "pipe:[1]" : h->type == S_IFSOCK ? "socket:[1]" : "/dev/host";
    if (S_ISCHR(st.st_mode))
        name = "/dev/null";
    struct inode *inode = inode_new(vfs_anon_superblock(), &host_inode_ops, vfs_next_ino(),
                                    h->type | 0600, creds->fsuid, creds->fsgid);
    int error = inode != NULL ? 0 : -ENOMEM;
    if (error == 0) {
        inode->private_data = (void *)(intptr_t)hfd;
        error = anon_file_new(name, inode, 0600, creds,
                              (uint32_t)flags & (O_ACCMODE | O_APPEND | O_NONBLOCK), &host_file_ops, h,
                              ret);
        inode_put(inode);
    }
    if (error != 0) {
        if (h->is_watched)
            event_source_remove(&h->source);
        wait_queue_fini(&h->wait);
        free(h);
    }
    return error;
}
