/* SPDX-License-Identifier: Apache-2.0 */
/*
 * splice(2), tee(2) and vmsplice(2) on pipes. Runs on fibers. Pages move from pipe to pipe; what goes to
 * another kind of file is taken out of the pipe first, for its write may sleep for long and the pipe's other
 * users must not wait for that; what was not written goes back to the front.
 *
 * Locks: the mutexes of two pipes by address.
 */
#include "sentry/fs/pipe/pipe_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define DRAIN_SLOTS 16u /* taken out at once */

static int check_reader(const struct file *f)
{
    if (!file_is_pipe(f))
        return -EINVAL;
    return pipe_is_reader(f) ? 0 : -EBADF;
}

static int check_writer(const struct file *f)
{
    if (!file_is_pipe(f))
        return -EINVAL;
    return pipe_is_writer(f) ? 0 : -EBADF;
}

/* ---- from pipe to pipe --------------------------------------------------------------------------- */

/* Under both mutexes: copies slots, and with `consume` takes them out of `in`. */
static ssize_t copy_slots(struct pipe *in, struct pipe *out, uint64_t size, bool consume)
{
    ssize_t done = 0;
    unsigned next = 0;
    while (next < in->used && size && out->used < out->slot_count) {
        struct pipe_slot *from = pipe_slot_at(in, next);
        uint8_t *page = pipe_page_new(out);
        if (!page)
            return done ? done : -ENOMEM;
        uint32_t count = from->size < size ? from->size : (uint32_t)size;
        memcpy(page, from->page + from->offset, count);
        *pipe_slot_at(out, out->used) =
            (struct pipe_slot){.page = page, .size = count, .is_packet = from->is_packet};
        out->used++;
        size -= count;
        done += count;
        if (!consume) {
            next++;
            continue;
        }
        from->offset += count;
        from->size -= count;
        if (!from->size)
            pipe_drop_first(in);
    }
    return done;
}

static ssize_t move_between(struct file *in_file, struct file *out_file, uint64_t size, bool non_block,
                            bool consume)
{
    int r = check_reader(in_file);
    if (r == 0)
        r = check_writer(out_file);
    if (r < 0)
        return r;
    struct pipe *in = in_file->private_data;
    struct pipe *out = out_file->private_data;
    if (in == out)
        return -EINVAL;
    non_block = non_block || ((in_file->flags | out_file->flags) & O_NONBLOCK);
    struct pipe *low = (uintptr_t)in < (uintptr_t)out ? in : out;
    struct pipe *high = low == in ? out : in;
    for (;;) {
        fmutex_lock(&low->mutex);
        fmutex_lock(&high->mutex);
        bool is_broken = !out->readers;
        bool is_empty = !in->used;
        bool is_ended = is_empty && !in->writers;
        ssize_t done = is_broken ? 0 : copy_slots(in, out, size, consume);
        fmutex_unlock(&high->mutex);
        fmutex_unlock(&low->mutex);
        if (is_broken)
            return pipe_broken(0);
        if (done > 0)
            wait_queue_wake(&out->read_wait, READABLE);
        if (done > 0 && consume)
            wait_queue_wake(&in->write_wait, WRITABLE);
        if (done || is_ended)
            return done;
        r = is_empty ? pipe_wait_readable(in, non_block) : pipe_wait_writable(out, non_block);
        if (r < 0)
            return r;
    }
}

ssize_t pipe_splice(struct file *in, struct file *out, uint64_t size, bool non_block)
{
    return move_between(in, out, size, non_block, true);
}

ssize_t pipe_tee(struct file *in, struct file *out, uint64_t size, bool non_block)
{
    return move_between(in, out, size, non_block, false);
}

/* ---- from a pipe to something else ----------------------------------------------------------------- */

struct taken {
    struct pipe_slot slots[DRAIN_SLOTS];
    unsigned count;
};

/* Whole slots, under the mutex: the last one may reach beyond `size`. */
static void take_slots(struct pipe *p, uint64_t size, struct taken *t)
{
    uint64_t total = 0;
    while (p->used && t->count < DRAIN_SLOTS && total < size) {
        struct pipe_slot *s = pipe_slot_at(p, 0);
        total += s->size;
        t->slots[t->count++] = *s;
        s->page = NULL;
        pipe_drop_first(p);
    }
}

/* The rest goes back to the front, under the mutex; the ring grows if others filled it meanwhile. */
static void put_back(struct pipe *p, const struct taken *t, unsigned first)
{
    unsigned count = t->count - first;
    if (p->used + count > p->slot_count && pipe_resize_locked(p, p->used + count) < 0)
        count = p->slot_count - p->used; /* no memory: the last ones are lost */
    for (unsigned i = first + count; i < t->count; i++)
        pipe_page_free(p, t->slots[i].page);
    for (unsigned i = first + count; i > first; i--) {
        p->first = (p->first + p->slot_count - 1) % p->slot_count;
        p->used++;
        *pipe_slot_at(p, 0) = t->slots[i - 1];
    }
}

/* Hands the taken slots to the sink; `*ret_first` is the first that is not written as a whole. */
static ssize_t write_slots(struct taken *t, uint64_t size, pipe_sink write, void *arg, unsigned *ret_first)
{
    ssize_t done = 0;
    unsigned i = 0;
    while (i < t->count && size) {
        struct pipe_slot *s = &t->slots[i];
        size_t want = s->size < size ? s->size : size;
        struct io io;
        io_init_kernel(&io, s->page + s->offset, want);
        ssize_t n = write(arg, &io);
        if (n < 0 && !done)
            done = n;
        if (n <= 0)
            break;
        done += n;
        size -= (uint64_t)n;
        s->offset += (uint32_t)n;
        s->size -= (uint32_t)n;
        if (s->size)
            break;
        i++;
    }
    *ret_first = i;
    return done;
}

static ssize_t drain_once(struct pipe *p, uint64_t size, pipe_sink write, void *arg)
{
    struct taken *t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    unsigned first;
    fmutex_lock(&p->mutex);
    take_slots(p, size, t);
    fmutex_unlock(&p->mutex);
    ssize_t done = write_slots(t, size, write, arg, &first);
    fmutex_lock(&p->mutex);
    for (unsigned i = 0; i < first; i++)
        pipe_page_free(p, t->slots[i].page);
    put_back(p, t, first);
    fmutex_unlock(&p->mutex);
    wait_queue_wake(&p->write_wait, WRITABLE);
    if (first < t->count)
        wait_queue_wake(&p->read_wait, READABLE);
    free(t);
    return done;
}

ssize_t pipe_drain(struct file *in, uint64_t size, bool non_block, pipe_sink write, void *arg)
{
    int r = check_reader(in);
    if (r < 0)
        return r;
    struct pipe *p = in->private_data;
    ssize_t done = 0;
    while (size) {
        if (!p->used && (done || !p->writers))
            break;
        r = pipe_wait_readable(p, non_block);
        if (r < 0)
            return done ? done : r;
        uint64_t step = size;
        ssize_t n = drain_once(p, step, write, arg);
        if (n < 0)
            return done ? done : n;
        if (n == 0 && p->used)
            break; /* the sink takes no more */
        done += n;
        size -= (uint64_t)n;
    }
    return done;
}

/* ---- from something else to a pipe ----------------------------------------------------------------- */

ssize_t pipe_wait_room(struct file *out, bool non_block)
{
    int r = check_writer(out);
    if (r < 0)
        return r;
    struct pipe *p = out->private_data;
    r = pipe_wait_writable(p, non_block);
    if (r < 0)
        return r;
    if (!p->readers)
        return pipe_broken(0);
    unsigned used = p->used;
    unsigned slot_count = p->slot_count;
    return used < slot_count ? (ssize_t)((slot_count - used) * PAGE_SIZE) : (ssize_t)PAGE_SIZE;
}

ssize_t pipe_fill(struct file *out, struct io *io, bool non_block)
{
    struct pipe *p = out->private_data;
    for (;;) {
        ssize_t room = pipe_wait_room(out, non_block);
        if (room < 0)
            return room;
        ssize_t done = 0;
        fmutex_lock(&p->mutex);
        int r = pipe_put_bytes(p, io, false, &done);
        fmutex_unlock(&p->mutex);
        if (done) {
            wait_queue_wake(&p->read_wait, READABLE);
            return done;
        }
        if (r == -EPIPE)
            return pipe_broken(0);
        if (r != -EAGAIN)
            return r;
    }
}
