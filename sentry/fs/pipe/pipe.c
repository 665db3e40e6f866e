/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pipes: a ring of slots of one page each, as in Linux, so that capacity, merging of small writes,
 * atomicity up to PIPE_BUF and packet mode (O_DIRECT) agree with it. Runs on fibers. Bytes are the guest's
 * and are only moved.
 *
 * Locks: pipe->mutex → wait queues. g_pipes.lock (short) protects inode->pipe and pipe->files.
 */
#include "sentry/fs/pipe/pipe_internal.h"

#include "abi/restart.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#define PIPEFS_MAGIC 0x50495045

void (*g_broken_pipe_hook)(void);

static struct {
    struct lock lock;
    bool is_ready;
    struct superblock sb;
    _Atomic uint64_t next_ino;
} g_pipes = {.lock = LOCK_INITIALIZER, .next_ino = 1};

/* ---- the ring ----------------------------------------------------------------------------------- */

struct pipe_slot *pipe_slot_at(struct pipe *p, unsigned n)
{
    return &p->slots[(p->first + n) % p->slot_count];
}

uint8_t *pipe_page_new(struct pipe *p)
{
    uint8_t *page = p->spare_page;
    p->spare_page = NULL;
    return page ? page : malloc(PAGE_SIZE);
}

void pipe_page_free(struct pipe *p, uint8_t *page)
{
    if (p->spare_page)
        free(page);
    else
        p->spare_page = page;
}

void pipe_drop_first(struct pipe *p)
{
    struct pipe_slot *s = pipe_slot_at(p, 0);
    if (s->page)
        pipe_page_free(p, s->page);
    s->page = NULL;
    p->first = (p->first + 1) % p->slot_count;
    p->used--;
}

static struct pipe *pipe_alloc(void)
{
    struct pipe *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->slot_count = PIPE_DEFAULT_SIZE / PAGE_SIZE;
    p->slots = calloc(p->slot_count, sizeof(*p->slots));
    if (!p->slots) {
        free(p);
        return NULL;
    }
    fmutex_init(&p->mutex);
    wait_queue_init(&p->read_wait);
    wait_queue_init(&p->write_wait);
    return p;
}

static void pipe_free(struct pipe *p)
{
    if (!p)
        return;
    while (p->used)
        pipe_drop_first(p);
    free(p->spare_page);
    free(p->slots);
    fmutex_fini(&p->mutex);
    wait_queue_fini(&p->read_wait);
    wait_queue_fini(&p->write_wait);
    free(p);
}

/* ---- read --------------------------------------------------------------------------------------- */

static bool may_read(void *arg)
{
    struct pipe *p = arg;
    return p->used || !p->writers;
}

static int wait_until(struct wait_queue *q, bool (*condition)(void *arg), struct pipe *p, bool non_block)
{
    if (condition(p))
        return 0;
    if (non_block)
        return -EAGAIN;
    if (wait_queue_sleep(q, condition, p, FIBER_INTERRUPTIBLE, FIBER_NO_DEADLINE) < 0)
        return -ERESTARTSYS;
    return 0;
}

int pipe_wait_readable(struct pipe *p, bool non_block)
{
    return wait_until(&p->read_wait, may_read, p, non_block);
}

/* Moves what is there, under the mutex. Bytes, or -EFAULT if none could be moved. */
static ssize_t take_bytes(struct pipe *p, struct io *io)
{
    ssize_t done = 0;
    while (p->used && io->remaining) {
        struct pipe_slot *s = pipe_slot_at(p, 0);
        size_t want = s->size < io->remaining ? s->size : io->remaining;
        ssize_t moved = io_put(io, s->page + s->offset, want);
        if (moved < 0)
            return done ? done : moved;
        done += moved;
        s->offset += (uint32_t)moved;
        s->size -= (uint32_t)moved;
        bool is_packet = s->is_packet;
        if (s->size == 0 || is_packet)
            pipe_drop_first(p);
        if (is_packet || (size_t)moved < want)
            break;
    }
    return done;
}

static ssize_t pipe_read(struct file *f, struct io *io, int64_t *pos)
{
    (void)pos;
    struct pipe *p = f->private_data;
    if (io->remaining == 0)
        return 0;
    for (;;) {
        fmutex_lock(&p->mutex);
        bool is_empty = p->used == 0;
        ssize_t done = is_empty ? 0 : take_bytes(p, io);
        bool has_writers = p->writers;
        fmutex_unlock(&p->mutex);
        if (!is_empty) {
            wait_queue_wake(&p->write_wait, WRITABLE);
            return done;
        }
        if (!has_writers)
            return 0;
        int r = pipe_wait_readable(p, f->flags & O_NONBLOCK);
        if (r < 0)
            return r;
    }
}

/* ---- write -------------------------------------------------------------------------------------- */

static bool may_write(void *arg)
{
    struct pipe *p = arg;
    return p->used < p->slot_count || !p->readers;
}

int pipe_wait_writable(struct pipe *p, bool non_block)
{
    return wait_until(&p->write_wait, may_write, p, non_block);
}

/* A small rest of the write goes into the last page if it fits as a whole. */
static ssize_t merge_bytes(struct pipe *p, struct io *io)
{
    size_t rest = io->remaining & (PAGE_SIZE - 1);
    if (!rest || !p->used)
        return 0;
    struct pipe_slot *s = pipe_slot_at(p, p->used - 1);
    if (s->is_packet || s->offset + s->size + rest > PAGE_SIZE)
        return 0;
    ssize_t moved = io_get(io, s->page + s->offset + s->size, rest);
    if (moved > 0)
        s->size += (uint32_t)moved;
    return moved;
}

static ssize_t add_slot(struct pipe *p, struct io *io, bool is_packet)
{
    uint8_t *page = pipe_page_new(p);
    if (!page)
        return -ENOMEM;
    size_t want = io->remaining < PAGE_SIZE ? io->remaining : PAGE_SIZE;
    ssize_t moved = io_get(io, page, want);
    if (moved <= 0) {
        pipe_page_free(p, page);
        return moved < 0 ? moved : -EFAULT;
    }
    *pipe_slot_at(p, p->used) = (struct pipe_slot){.page = page, .size = (uint32_t)moved, .is_packet = is_packet};
    p->used++;
    return moved;
}

int pipe_put_bytes(struct pipe *p, struct io *io, bool is_packet, ssize_t *done)
{
    ssize_t moved = is_packet || *done ? 0 : merge_bytes(p, io);
    if (moved < 0)
        return (int)moved;
    *done += moved;
    while (io->remaining) {
        if (!p->readers)
            return -EPIPE;
        if (p->used == p->slot_count)
            return -EAGAIN;
        moved = add_slot(p, io, is_packet);
        if (moved < 0)
            return (int)moved;
        *done += moved;
    }
    return 0;
}

ssize_t pipe_broken(ssize_t done)
{
    if (g_broken_pipe_hook)
        g_broken_pipe_hook();
    return done ? done : -EPIPE;
}

static ssize_t pipe_write(struct file *f, struct io *io, int64_t *pos)
{
    (void)pos;
    struct pipe *p = f->private_data;
    ssize_t done = 0;
    if (io->remaining == 0)
        return 0;
    for (;;) {
        fmutex_lock(&p->mutex);
        int r = p->readers ? pipe_put_bytes(p, io, f->flags & O_DIRECT, &done) : -EPIPE;
        fmutex_unlock(&p->mutex);
        if (done)
            wait_queue_wake(&p->read_wait, READABLE);
        if (r == 0)
            return done;
        if (r == -EPIPE)
            return pipe_broken(done);
        if (r == -EAGAIN)
            r = pipe_wait_writable(p, f->flags & O_NONBLOCK);
        if (r < 0)
            return done ? done : r;
    }
}

/* ---- the rest of the file ------------------------------------------------------------------------ */

bool pipe_is_reader(const struct file *f)
{
    return (f->flags & O_ACCMODE) != O_WRONLY;
}

bool pipe_is_writer(const struct file *f)
{
    return (f->flags & O_ACCMODE) != O_RDONLY;
}

/* ra_pos of a FIFO's reader: the count of writer opens at its own open, when there was no writer: until
 * one comes there is nothing to hang up. */
static uint32_t pipe_poll(struct file *f, struct poll_table *table)
{
    struct pipe *p = f->private_data;
    uint32_t events = 0;
    if (pipe_is_reader(f)) {
        poll_wait(table, &p->read_wait);
        if (p->used)
            events |= READABLE;
        if (!p->writers && f->ra_pos != p->writer_opens)
            events |= EPOLLHUP;
    }
    if (pipe_is_writer(f)) {
        poll_wait(table, &p->write_wait);
        if (p->used < p->slot_count)
            events |= WRITABLE;
        if (!p->readers)
            events |= EPOLLERR;
    }
    return events;
}

static int64_t pipe_ioctl(struct file *f, struct mm *mm, uint32_t cmd, uint64_t arg)
{
    struct pipe *p = f->private_data;
    if (cmd != FIONREAD)
        return -ENOTTY;
    int32_t count = 0;
    fmutex_lock(&p->mutex);
    for (unsigned i = 0; i < p->used; i++)
        count += (int32_t)pipe_slot_at(p, i)->size;
    fmutex_unlock(&p->mutex);
    return copy_out_obj(mm, GUEST_ADDR(arg), &count);
}

static void wake_both(struct pipe *p)
{
    wait_queue_wake_all(&p->read_wait, 0);
    wait_queue_wake_all(&p->write_wait, 0);
}

static void pipe_detach(struct inode *inode, struct pipe *p)
{
    lock_acquire(&g_pipes.lock);
    bool is_last = --p->files == 0;
    if (is_last)
        inode->pipe = NULL;
    lock_release(&g_pipes.lock);
    if (is_last)
        pipe_free(p);
}

static void close_ends(struct file *f, struct pipe *p)
{
    fmutex_lock(&p->mutex);
    if (pipe_is_reader(f))
        p->readers--;
    if (pipe_is_writer(f))
        p->writers--;
    bool has_lost_an_end = !p->readers || !p->writers;
    fmutex_unlock(&p->mutex);
    if (has_lost_an_end)
        wake_both(p);
}

static void pipe_release(struct file *f)
{
    close_ends(f, f->private_data);
    pipe_detach(f->inode, f->private_data);
}

static const struct file_ops pipe_ops = {
    .read = pipe_read,
    .write = pipe_write,
    .poll = pipe_poll,
    .ioctl = pipe_ioctl,
    .release = pipe_release,
};

bool file_is_pipe(const struct file *f)
{
    return f->ops == &pipe_ops;
}

/* ---- open --------------------------------------------------------------------------------------- */

/* The inode's pipe, made if there is none; the caller's file counts. */
static int pipe_attach(struct inode *inode, struct pipe **ret)
{
    struct pipe *fresh = NULL;
    for (;;) {
        lock_acquire(&g_pipes.lock);
        struct pipe *p = inode->pipe ? inode->pipe : fresh;
        if (p) {
            inode->pipe = p;
            p->files++;
        }
        lock_release(&g_pipes.lock);
        if (p) {
            if (p != fresh)
                pipe_free(fresh);
            *ret = p;
            return 0;
        }
        fresh = pipe_alloc();
        if (!fresh)
            return -ENOMEM;
    }
}

static void open_ends(struct file *f, struct pipe *p)
{
    fmutex_lock(&p->mutex);
    if (pipe_is_reader(f)) {
        p->readers++;
        p->reader_opens++;
    }
    if (pipe_is_writer(f)) {
        p->writers++;
        p->writer_opens++;
    }
    fmutex_unlock(&p->mutex);
    wake_both(p);
}

struct partner {
    _Atomic unsigned *opens;
    unsigned seen; /* before our own open: who opens after it may have gone again when we look */
};

static bool partner_has_come(void *arg)
{
    struct partner *partner = arg;
    return *partner->opens != partner->seen;
}

static int wait_for_partner(struct pipe *p, const struct file *f, struct partner *partner)
{
    if (pipe_is_reader(f) ? p->writers : p->readers)
        return 0;
    struct wait_queue *q = pipe_is_reader(f) ? &p->read_wait : &p->write_wait;
    if (wait_queue_sleep(q, partner_has_come, partner, FIBER_INTERRUPTIBLE, FIBER_NO_DEADLINE) < 0)
        return -ERESTARTSYS;
    return 0;
}

static int open_fifo_end(struct file *f, struct pipe *p)
{
    bool non_block = f->flags & O_NONBLOCK;
    if (!pipe_is_reader(f) && non_block && !p->readers)
        return -ENXIO;
    if (pipe_is_reader(f) && !pipe_is_writer(f) && non_block && !p->writers)
        f->ra_pos = p->writer_opens;
    struct partner partner = {.opens = pipe_is_reader(f) ? &p->writer_opens : &p->reader_opens};
    partner.seen = *partner.opens;
    open_ends(f, p);
    if (non_block || (pipe_is_reader(f) && pipe_is_writer(f)))
        return 0;
    int r = wait_for_partner(p, f, &partner);
    if (r < 0)
        close_ends(f, p);
    return r;
}

static int open_attached(struct inode *inode, struct file *f, bool is_fifo)
{
    struct pipe *p;
    int r = pipe_attach(inode, &p);
    if (r < 0)
        return r;
    f->ops = &pipe_ops;
    f->private_data = p;
    if (is_fifo)
        r = open_fifo_end(f, p);
    else
        open_ends(f, p);
    if (r < 0) {
        f->private_data = NULL;
        pipe_detach(inode, p);
    }
    return r;
}

/* All inodes of pipefs; what they are is known by it. */
static const struct inode_ops pipe_inode_ops;

/* /proc/PID/fd/N of a pipe, opened, does not wait. */
static int fifo_open(struct inode *inode, struct file *file)
{
    file->ra_pos = UINT64_MAX;
    return open_attached(inode, file, inode->ops != &pipe_inode_ops);
}

void pipe_init(void)
{
    struct vfs_hooks hooks = {.open_fifo = fifo_open};
    vfs_set_hooks(&hooks);
}

static const struct superblock_ops pipefs_ops = {0};

static struct superblock *pipefs(void)
{
    lock_acquire(&g_pipes.lock);
    if (!g_pipes.is_ready)
        superblock_init(&g_pipes.sb, &pipefs_ops, "pipefs", PIPEFS_MAGIC);
    g_pipes.is_ready = true;
    lock_release(&g_pipes.lock);
    return &g_pipes.sb;
}

static int pipe_new_end(struct inode *inode, const struct creds *creds, uint32_t flags, struct file **ret)
{
    char name[32];
    (void)snprintf(name, sizeof(name), "pipe:[%lu]", (unsigned long)inode->ino);
    struct pipe *p;
    int r = pipe_attach(inode, &p);
    if (r < 0)
        return r;
    r = anon_file_new(name, inode, 0, creds, flags, &pipe_ops, p, ret);
    if (r < 0) {
        pipe_detach(inode, p);
        return r;
    }
    (*ret)->ra_pos = UINT64_MAX;
    open_ends(*ret, p);
    return 0;
}

int pipe_new(const struct creds *creds, uint32_t flags, struct file **ret_read, struct file **ret_write)
{
    uint64_t ino = g_pipes.next_ino++;
    struct inode *inode =
        inode_new(pipefs(), &pipe_inode_ops, ino, S_IFIFO | 0600, creds->fsuid, creds->fsgid);
    if (!inode)
        return -ENOMEM;
    struct file *reader;
    int r = pipe_new_end(inode, creds, O_RDONLY | (flags & O_NONBLOCK), &reader);
    if (r == 0) {
        r = pipe_new_end(inode, creds, O_WRONLY | (flags & (O_NONBLOCK | O_DIRECT)), ret_write);
        if (r < 0)
            file_put(reader);
        else
            *ret_read = reader;
    }
    inode_put(inode);
    return r;
}

/* ---- size ------------------------------------------------------------------------------- */

int64_t pipe_get_size(struct file *f)
{
    if (!file_is_pipe(f))
        return -EBADF;
    const struct pipe *p = f->private_data;
    return (int64_t)p->slot_count * (int64_t)PAGE_SIZE;
}

int64_t pipe_resize_locked(struct pipe *p, unsigned count)
{
    if (p->used > count)
        return -EBUSY;
    struct pipe_slot *slots = calloc(count, sizeof(*slots));
    if (!slots)
        return -ENOMEM;
    for (unsigned i = 0; i < p->used; i++)
        slots[i] = *pipe_slot_at(p, i);
    free(p->slots);
    p->slots = slots;
    p->first = 0;
    p->slot_count = count;
    return (int64_t)count * (int64_t)PAGE_SIZE;
}

int64_t pipe_set_size(struct file *f, uint64_t size)
{
    if (!file_is_pipe(f))
        return -EBADF;
    if (size > INT32_MAX)
        return -EINVAL;
    if (size > PIPE_SIZE_MAX)
        return -EPERM;
    unsigned count = 1;
    while (count * PAGE_SIZE < size)
        count *= 2;
    struct pipe *p = f->private_data;
    fmutex_lock(&p->mutex);
    int64_t r = pipe_resize_locked(p, count);
    fmutex_unlock(&p->mutex);
    if (r > 0)
        wait_queue_wake(&p->write_wait, WRITABLE);
    return r;
}
