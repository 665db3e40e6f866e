/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unix socketpairs. Runs on fibers. Both ends live in one struct, freed when both files are closed. Bytes
 * are copied from the guest before any lock is taken, and to the guest under the receiver's mutex only.
 *
 * Locks: receive_mutex → pair->lock (short) ; wait queues are woken without pair->lock.
 */
#include "sentry/fs/anon/socket_internal.h"

#include "abi/restart.h"
#include "base/host.h"
#include "sentry/fs/pipe/pipe.h"
#include "sentry/mm/uaccess.h"
#include "sentry/vfs/vfs.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define SOCKFS_MAGIC        0x534f434b
#define DEFAULT_BUFFER_SIZE 212992
#define STREAM_CHUNK        32768
#define READABLE            ((uint32_t)(EPOLLIN | EPOLLRDNORM))
#define WRITABLE            ((uint32_t)(EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND))

void (*g_sender_creds_hook)(struct linux_ucred *ret);

static const struct file_ops socket_ops;

bool file_is_socket(const struct file *f)
{
    return f->ops == &socket_ops;
}

static bool is_connection(const struct socket_end *s)
{
    return s->pair->type != SOCK_DGRAM;
}

/* ---- state, all under pair->lock ----------------------------------------------------------------- */

static bool is_ended_locked(const struct socket_end *s)
{
    return s->is_read_shut || s->peer->is_write_shut || (s->peer->is_closed && is_connection(s));
}

/* 0: may queue a message; -EAGAIN: the peer's queue is full. */
static int may_send_locked(struct socket_end *s)
{
    if (s->is_write_shut)
        return -EPIPE;
    if (s->peer->is_closed) {
        if (is_connection(s))
            return -EPIPE;
        int r = s->is_refused ? -ENOTCONN : -ECONNREFUSED;
        s->is_refused = true;
        return r;
    }
    if (s->peer->is_read_shut)
        return -EPIPE;
    return s->peer->queued < s->send_size ? 0 : -EAGAIN;
}

static bool send_may_go_on(void *arg)
{
    struct socket_end *s = arg;
    lock_acquire(&s->pair->lock);
    bool is_full = !s->is_write_shut && !s->peer->is_closed && !s->peer->is_read_shut &&
                   s->peer->queued >= s->send_size;
    lock_release(&s->pair->lock);
    return !is_full;
}

static bool receive_may_go_on(void *arg)
{
    struct socket_end *s = arg;
    lock_acquire(&s->pair->lock);
    bool may = !TAILQ_EMPTY(&s->queue) || s->error || is_ended_locked(s);
    lock_release(&s->pair->lock);
    return may;
}

/* Sleeps until `condition`, as blocking socket calls do: with a time-out they are not restarted. */
static int wait_for(struct socket_end *s, bool (*condition)(void *arg), uint64_t timeout_ns)
{
    uint64_t deadline = timeout_ns ? host_monotonic_ns() + timeout_ns : FIBER_NO_DEADLINE;
    int r = wait_queue_sleep(&s->wait, condition, s, FIBER_INTERRUPTIBLE, deadline);
    if (r == -ETIMEDOUT)
        return -EAGAIN;
    if (r == -EINTR)
        return timeout_ns ? -EINTR : -ERESTARTSYS;
    return r;
}

/* ---- send ---------------------------------------------------------------------------------------- */

static void fill_creds(const struct socket_end *s, const struct socket_control *control,
                       struct linux_ucred *ret)
{
    if (control && control->has_creds)
        *ret = control->creds;
    else if (g_sender_creds_hook)
        g_sender_creds_hook(ret);
    else
        *ret = s->owner;
}

static int message_from(struct io *io, size_t size, struct socket_message **ret)
{
    struct socket_message *m = socket_message_new(size);
    if (!m)
        return -ENOMEM;
    ssize_t moved = size ? io_get(io, m->bytes, size) : 0;
    if (moved < 0 || (size_t)moved < size) {
        socket_message_free(m);
        return -EFAULT;
    }
    *ret = m;
    return 0;
}

/* Queues `m` at the peer, waiting for room. On failure `m` stays the caller's. */
static int queue_message(struct socket_end *s, struct socket_message *m, bool non_block)
{
    for (;;) {
        lock_acquire(&s->pair->lock);
        int r = may_send_locked(s);
        uint64_t timeout_ns = s->send_timeout_ns;
        if (r == 0) {
            TAILQ_INSERT_TAIL(&s->peer->queue, m, entry);
            s->peer->queued += m->size + MESSAGE_OVERHEAD;
            s->peer->queued_bytes += m->size;
        }
        lock_release(&s->pair->lock);
        if (r == 0) {
            wait_queue_wake(&s->peer->wait, READABLE);
            return 0;
        }
        if (r != -EAGAIN || non_block)
            return r;
        r = wait_for(s, send_may_go_on, timeout_ns);
        if (r < 0)
            return r;
    }
}

/* Moves the files of `control` into `m`. */
static int attach_files(struct socket_message *m, struct socket_control *control)
{
    if (!control || !control->file_count)
        return 0;
    if (!socket_in_flight_add(control->file_count))
        return -ETOOMANYREFS;
    m->control.files = control->files;
    m->control.file_count = control->file_count;
    control->files = NULL;
    control->file_count = 0;
    return 0;
}

static void detach_files(struct socket_message *m, struct socket_control *control)
{
    if (!m->control.file_count)
        return;
    socket_in_flight_remove(m->control.file_count);
    control->files = m->control.files;
    control->file_count = m->control.file_count;
    m->control.files = NULL;
    m->control.file_count = 0;
}

static int send_one(struct socket_end *s, struct io *io, size_t size, struct socket_control *control,
                    int flags, bool non_block)
{
    struct socket_message *m;
    int r = message_from(io, size, &m);
    if (r < 0)
        return r;
    fill_creds(s, control, &m->control.creds);
    m->is_end_of_record = flags & MSG_EOR;
    r = attach_files(m, control);
    if (r == 0)
        r = queue_message(s, m, non_block);
    if (r < 0) {
        detach_files(m, control);
        socket_message_free(m);
    }
    return r;
}

static ssize_t send_stream(struct socket_end *s, struct io *io, struct socket_control *control, int flags,
                           bool non_block)
{
    ssize_t done = 0;
    while (io->remaining) {
        size_t size = io->remaining < STREAM_CHUNK ? io->remaining : STREAM_CHUNK;
        int r = send_one(s, io, size, control, flags, non_block);
        if (r == -EPIPE && !(flags & MSG_NOSIGNAL) && g_broken_pipe_hook)
            g_broken_pipe_hook();
        if (r < 0)
            return done ? done : r;
        done += (ssize_t)size;
    }
    return done;
}

ssize_t socket_send(struct file *f, struct io *io, struct socket_control *control, int flags)
{
    struct socket_end *s = f->private_data;
    if (flags & MSG_OOB)
        return -EOPNOTSUPP;
    bool non_block = (flags & MSG_DONTWAIT) || (f->flags & O_NONBLOCK);
    if (s->pair->type == SOCK_STREAM)
        return send_stream(s, io, control, flags, non_block);
    size_t size = io->remaining;
    if (size > s->send_size - 32)
        return -EMSGSIZE;
    int r = send_one(s, io, size, control, flags, non_block);
    return r < 0 ? r : (ssize_t)size;
}

/* ---- receive: under receive_mutex ------------------------------------------------------------------ */

static struct socket_message *first_message(struct socket_end *s)
{
    lock_acquire(&s->pair->lock);
    struct socket_message *m = TAILQ_FIRST(&s->queue);
    lock_release(&s->pair->lock);
    return m;
}

/* `size` bytes of the first message are done with; `drop`: so is the whole message. */
static void consume(struct socket_end *s, struct socket_message *m, size_t size, bool drop)
{
    lock_acquire(&s->pair->lock);
    m->consumed += size;
    size_t left = drop ? m->size - m->consumed : 0;
    s->queued_bytes -= size + left;
    if (drop) {
        TAILQ_REMOVE(&s->queue, m, entry);
        s->queued -= m->size + MESSAGE_OVERHEAD;
    }
    lock_release(&s->pair->lock);
    if (drop) {
        socket_message_free(m);
        wait_queue_wake(&s->peer->wait, WRITABLE);
    }
}

static void take_creds(const struct socket_end *s, const struct socket_message *m, struct socket_control *ret)
{
    ret->has_creds = s->pass_creds;
    ret->creds = m->control.creds;
}

static int peek_files(const struct socket_message *m, struct socket_control *ret)
{
    if (!m->control.file_count)
        return 0;
    ret->files = calloc(m->control.file_count, sizeof(struct file *));
    if (!ret->files)
        return -ENOMEM;
    for (size_t i = 0; i < m->control.file_count; i++) {
        ret->files[i] = m->control.files[i];
        file_get(ret->files[i]);
    }
    ret->file_count = m->control.file_count;
    return 0;
}

static int move_control(const struct socket_end *s, struct socket_message *m, bool peek,
                        struct socket_control *ret)
{
    take_creds(s, m, ret);
    if (peek)
        return peek_files(m, ret);
    detach_files(m, ret);
    return 0;
}

/* Why there is nothing: 0 at the end, or -errno. */
static int nothing_to_receive(struct socket_end *s)
{
    lock_acquire(&s->pair->lock);
    int error = s->error;
    s->error = 0;
    bool is_ended = is_ended_locked(s);
    lock_release(&s->pair->lock);
    if (error)
        return -error;
    return is_ended ? 0 : -EAGAIN;
}

static bool is_same_sender(const struct linux_ucred *a, const struct linux_ucred *b)
{
    return a->pid == b->pid && a->uid == b->uid && a->gid == b->gid;
}

/* What the queue holds, up to a change of sender (with SO_PASSCRED) or after files. */
static ssize_t take_stream(struct socket_end *s, struct io *io, bool peek, ssize_t before,
                           struct socket_control *ret)
{
    ssize_t done = 0;
    struct socket_message *m = first_message(s);
    while (m && io->remaining) {
        if ((before || done) && (ret->file_count || (s->pass_creds && !is_same_sender(&ret->creds, &m->control.creds))))
            break;
        size_t left = m->size - m->consumed;
        size_t want = left < io->remaining ? left : io->remaining;
        ssize_t moved = io_put(io, m->bytes + m->consumed, want);
        if (moved < 0)
            return done ? done : moved;
        int r = move_control(s, m, peek, ret);
        if (r < 0)
            return r;
        done += moved;
        if ((size_t)moved < want)
            io->remaining = 0; /* a bad page: no more */
        if (peek) {
            lock_acquire(&s->pair->lock);
            m = TAILQ_NEXT(m, entry);
            lock_release(&s->pair->lock);
            continue;
        }
        consume(s, m, (size_t)moved, (size_t)moved == left);
        m = first_message(s);
    }
    return done;
}

static ssize_t receive_stream(struct socket_end *s, struct io *io, int flags, bool non_block,
                              struct socket_control *control)
{
    ssize_t done = 0;
    size_t wanted = flags & MSG_WAITALL ? io->remaining : 1;
    if (io->remaining == 0)
        return 0;
    for (;;) {
        fmutex_lock(&s->receive_mutex);
        ssize_t moved = take_stream(s, io, flags & MSG_PEEK, done, control);
        fmutex_unlock(&s->receive_mutex);
        if (moved < 0)
            return done ? done : moved;
        done += moved;
        if ((size_t)done >= wanted || (done && (control->file_count || (flags & MSG_PEEK) || !io->remaining)))
            return done;
        int r = nothing_to_receive(s);
        if (r != -EAGAIN || non_block)
            return done ? done : r;
        r = wait_for(s, receive_may_go_on, s->receive_timeout_ns);
        if (r < 0)
            return done ? done : r;
    }
}

static ssize_t take_packet(struct socket_end *s, struct io *io, int flags, struct socket_control *control,
                           int *ret_flags)
{
    struct socket_message *m = first_message(s);
    if (!m)
        return -EAGAIN;
    size_t want = m->size < io->remaining ? m->size : io->remaining;
    ssize_t moved = want ? io_put(io, m->bytes, want) : 0;
    if (moved >= 0 && (size_t)moved < want)
        moved = -EFAULT;
    int r = moved < 0 ? (int)moved : move_control(s, m, flags & MSG_PEEK, control);
    if (m->size > want)
        *ret_flags |= MSG_TRUNC;
    if (m->is_end_of_record)
        *ret_flags |= MSG_EOR;
    ssize_t result = r < 0 ? r : (ssize_t)(flags & MSG_TRUNC ? m->size : want);
    if (!(flags & MSG_PEEK))
        consume(s, m, 0, true); /* a packet whose copy failed is lost, as in Linux */
    return result;
}

static ssize_t receive_packet(struct socket_end *s, struct io *io, int flags, bool non_block,
                              struct socket_control *control, int *ret_flags)
{
    for (;;) {
        fmutex_lock(&s->receive_mutex);
        ssize_t done = take_packet(s, io, flags, control, ret_flags);
        fmutex_unlock(&s->receive_mutex);
        if (done != -EAGAIN)
            return done;
        int r = nothing_to_receive(s);
        if (r != -EAGAIN || non_block)
            return r;
        r = wait_for(s, receive_may_go_on, s->receive_timeout_ns);
        if (r < 0)
            return r;
    }
}

ssize_t socket_receive(struct file *f, struct io *io, int flags, struct socket_control *ret_control,
                       int *ret_flags)
{
    struct socket_end *s = f->private_data;
    struct socket_control control = {0};
    *ret_flags = 0;
    if (flags & MSG_OOB)
        return -EOPNOTSUPP;
    bool non_block = (flags & MSG_DONTWAIT) || (f->flags & O_NONBLOCK);
    ssize_t r = s->pair->type == SOCK_STREAM ? receive_stream(s, io, flags, non_block, &control)
                                             : receive_packet(s, io, flags, non_block, &control, ret_flags);
    if (r >= 0 && ret_control)
        *ret_control = control;
    else
        socket_control_fini(&control);
    return r;
}

/* ---- the rest -------------------------------------------------------------------------------------- */

static ssize_t socket_read(struct file *f, struct io *io, int64_t *pos)
{
    (void)pos;
    int flags;
    return socket_receive(f, io, 0, NULL, &flags);
}

static ssize_t socket_write(struct file *f, struct io *io, int64_t *pos)
{
    (void)pos;
    return socket_send(f, io, NULL, 0);
}

static uint32_t socket_poll(struct file *f, struct poll_table *table)
{
    struct socket_end *s = f->private_data;
    uint32_t events = 0;
    poll_wait(table, &s->wait);
    lock_acquire(&s->pair->lock);
    if (!TAILQ_EMPTY(&s->queue))
        events |= READABLE;
    if (is_ended_locked(s))
        events |= READABLE | EPOLLRDHUP;
    bool peer_gone = s->peer->is_closed && is_connection(s);
    if (peer_gone || (s->is_read_shut && s->is_write_shut))
        events |= EPOLLHUP;
    if (s->error)
        events |= EPOLLERR;
    if (s->peer->queued * 4 <= s->send_size)
        events |= WRITABLE;
    lock_release(&s->pair->lock);
    return events;
}

int socket_shutdown(struct file *f, int how)
{
    struct socket_end *s = f->private_data;
    if (how < SHUT_RD || how > SHUT_RDWR)
        return -EINVAL;
    lock_acquire(&s->pair->lock);
    if (how != SHUT_WR)
        s->is_read_shut = true;
    if (how != SHUT_RD)
        s->is_write_shut = true;
    lock_release(&s->pair->lock);
    wait_queue_wake_all(&s->wait, 0);
    wait_queue_wake_all(&s->peer->wait, 0);
    return 0;
}

static int64_t socket_ioctl(struct file *f, struct mm *mm, uint32_t cmd, uint64_t arg)
{
    struct socket_end *s = f->private_data;
    if (cmd != SIOCINQ && cmd != SIOCOUTQ)
        return -ENOTTY;
    lock_acquire(&s->pair->lock);
    const struct socket_message *first = TAILQ_FIRST(&s->queue);
    size_t size = cmd == SIOCOUTQ                 ? s->peer->queued
                  : s->pair->type == SOCK_STREAM ? s->queued_bytes
                                                 : (first ? first->size : 0);
    lock_release(&s->pair->lock);
    int32_t value = (int32_t)size;
    return copy_out_obj(mm, GUEST_ADDR(arg), &value);
}

static void pair_free(struct socket_pair *pair)
{
    for (unsigned i = 0; i < 2; i++) {
        fmutex_fini(&pair->ends[i].receive_mutex);
        wait_queue_fini(&pair->ends[i].wait);
    }
    lock_fini(&pair->lock);
    free(pair);
}

/* The pair is freed under nobody's feet: who closes last has no peer that could still be used. */
static void end_close(struct socket_end *s)
{
    struct socket_pair *pair = s->pair;
    struct socket_messages unread = TAILQ_HEAD_INITIALIZER(unread);
    lock_acquire(&pair->lock);
    s->is_closed = true;
    if (!TAILQ_EMPTY(&s->queue) && is_connection(s))
        s->peer->error = ECONNRESET;
    TAILQ_CONCAT(&unread, &s->queue, entry);
    s->queued = s->queued_bytes = 0;
    lock_release(&pair->lock);
    wait_queue_wake_all(&s->peer->wait, 0);
    socket_messages_free(&unread);

    lock_acquire(&pair->lock);
    bool is_last = --pair->open_count == 0;
    lock_release(&pair->lock);
    if (is_last)
        pair_free(pair);
}

static void socket_release(struct file *f)
{
    end_close(f->private_data);
}

static const struct file_ops socket_ops = {
    .read = socket_read,
    .write = socket_write,
    .poll = socket_poll,
    .ioctl = socket_ioctl,
    .release = socket_release,
};

/* ---- making one ------------------------------------------------------------------------------------ */

static int no_reopen(struct inode *inode, struct file *file)
{
    (void)inode;
    (void)file;
    return -ENXIO;
}

static const struct inode_ops socket_inode_ops = {.open = no_reopen};
static const struct superblock_ops sockfs_ops = {0};
static struct {
    struct lock lock;
    bool is_ready;
    struct superblock sb;
    _Atomic uint64_t next_ino;
} g_sockfs = {.lock = LOCK_INITIALIZER, .next_ino = 1};

static struct superblock *sockfs(void)
{
    lock_acquire(&g_sockfs.lock);
    if (!g_sockfs.is_ready)
        superblock_init(&g_sockfs.sb, &sockfs_ops, "sockfs", SOCKFS_MAGIC);
    g_sockfs.is_ready = true;
    lock_release(&g_sockfs.lock);
    return &g_sockfs.sb;
}

static int end_file_new(struct socket_end *s, const struct creds *creds, uint32_t flags, struct file **ret)
{
    uint64_t ino = g_sockfs.next_ino++;
    struct inode *inode =
        inode_new(sockfs(), &socket_inode_ops, ino, S_IFSOCK | 0777, creds->fsuid, creds->fsgid);
    if (!inode)
        return -ENOMEM;
    char name[32];
    (void)snprintf(name, sizeof(name), "socket:[%lu]", (unsigned long)ino);
    int r = anon_file_new(name, inode, 0, creds, O_RDWR | (flags & O_NONBLOCK), &socket_ops, s, ret);
    inode_put(inode);
    return r;
}

static struct socket_pair *pair_alloc(int type, const struct linux_ucred *owner)
{
    struct socket_pair *pair = calloc(1, sizeof(*pair));
    if (!pair)
        return NULL;
    lock_init(&pair->lock);
    pair->type = type;
    pair->open_count = 2;
    for (unsigned i = 0; i < 2; i++) {
        struct socket_end *s = &pair->ends[i];
        s->pair = pair;
        s->peer = &pair->ends[!i];
        s->owner = *owner;
        s->send_size = s->receive_size = DEFAULT_BUFFER_SIZE;
        fmutex_init(&s->receive_mutex);
        wait_queue_init(&s->wait);
        TAILQ_INIT(&s->queue);
    }
    return pair;
}

int socket_pair_new(const struct creds *creds, int type, uint32_t flags, const struct linux_ucred *owner,
                    struct file **ret_a, struct file **ret_b)
{
    struct socket_pair *pair = pair_alloc(type, owner);
    if (!pair)
        return -ENOMEM;
    struct file *a;
    int r = end_file_new(&pair->ends[0], creds, flags, &a);
    if (r < 0) {
        pair_free(pair);
        return r;
    }
    r = end_file_new(&pair->ends[1], creds, flags, ret_b);
    if (r < 0) {
        end_close(&pair->ends[1]);
        file_put(a);
        return r;
    }
    *ret_a = a;
    return 0;
}
