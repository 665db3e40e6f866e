/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cursor over guest buffers that bulk data passes through, and host descriptors read and
 * written by it. Any fiber. Each byte of the guest is fetched once; segments were copied and
 * checked when the cursor was made.
 */
#include "sentry/mm/uaccess.h"

#include "base/host.h"
#include "sentry/mm/mm_private.h"
#include "sentry/mm/uaccess_private.h"
#include "sentry/sched/sched.h"
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define MAX_RW_COUNT 0x7ffff000UL
#define BOUNCE_SMALL 1024
#define BOUNCE_LARGE KIB(256)

#ifndef RWF_NOWAIT
#define RWF_NOWAIT 8
#endif

struct linux_iovec {
    uint64_t base, size;
};
static_assert(sizeof(struct linux_iovec) == 16, "guest ABI");

/* ---- the cursor ---------------------------------------------------------------------------------
 */

void io_init_guest(struct io *io, struct mm *mm, guest_addr addr, uint64_t size)
{
    *io = (struct io){.mm = mm, .segment_count = 1, .remaining = size};
    io->inline_segments[0] = (struct io_segment){.addr = addr, .size = size};
    io->segments = io->inline_segments;
}

void io_init_kernel(struct io *io, void *buffer, size_t size)
{
    *io = (struct io){.kernel = buffer, .segment_count = 1, .remaining = size};
    io->inline_segments[0] = (struct io_segment){.addr = GUEST_NULL, .size = size};
    io->segments = io->inline_segments;
}

static int copy_segments(struct io *io, guest_addr iov, size_t count)
{
    struct linux_iovec some[16];
    for (size_t i = 0; i < count;) {
        size_t n = count - i < ARRAY_COUNT(some) ? count - i : ARRAY_COUNT(some);
        int r = copy_in(io->mm, some, iov, n * sizeof(some[0]));
        if (r < 0)
            return r;
        iov.va += n * sizeof(some[0]);
        for (size_t j = 0; j < n; j++, i++)
            io->segments[i] = (struct io_segment){GUEST_ADDR(some[j].base), some[j].size};
    }
    return 0;
}

/* The sum stays within MAX_RW_COUNT: what is beyond is cut off. -EFAULT for an address no guest can
 * have. */
static int check_segments(struct io *io)
{
    uint64_t total = 0;
    for (size_t i = 0; i < io->segment_count; i++) {
        struct io_segment *s = &io->segments[i];
        if (s->size > SSIZE_MAX)
            return -EINVAL;
        uint64_t end;
        if (__builtin_add_overflow(s->addr.va, s->size, &end) ||
            (s->size != 0 && end > MM_TASK_SIZE + PAGE_SIZE))
            return -EFAULT;
        if (s->size > MAX_RW_COUNT - total)
            s->size = MAX_RW_COUNT - total;
        total += s->size;
    }
    io->remaining = total;
    return 0;
}

int io_init_iovec(struct io *io, struct mm *mm, guest_addr iov, uint64_t count)
{
    io_init_guest(io, mm, GUEST_NULL, 0);
    if (count > IOV_MAX)
        return -EINVAL;
    io->segment_count = count;
    if (count > IO_INLINE_SEGMENTS) {
        io->segments = calloc(count, sizeof(*io->segments));
        if (io->segments == NULL) {
            io->segments = io->inline_segments;
            return -ENOMEM;
        }
    }
    int r = copy_segments(io, iov, count);
    if (r == 0)
        r = check_segments(io);
    if (r < 0)
        io_fini(io);
    return r;
}

void io_fini(struct io *io)
{
    if (io->segments != io->inline_segments)
        free(io->segments);
    io->segments = io->inline_segments;
    io->segment_count = 0;
    io->remaining = 0;
}

static void advance(struct io *io, uint64_t size)
{
    io->offset += size;
    io->remaining -= size;
    while (io->segment < io->segment_count && io->offset >= io->segments[io->segment].size &&
           io->segment + 1 < io->segment_count) {
        io->offset -= io->segments[io->segment].size;
        io->segment++;
    }
}

void io_skip(struct io *io, size_t size)
{
    advance(io, size < io->remaining ? size : io->remaining);
}

void io_rewind(struct io *io, size_t size)
{
    io->remaining += size;
    while (size > io->offset && io->segment > 0) {
        size -= io->offset;
        io->segment--;
        io->offset = io->segments[io->segment].size;
    }
    io->offset -= size < io->offset ? size : io->offset;
}

/* One piece at the cursor; `local` NULL: zeros. Bytes moved. */
static size_t move_piece(struct io *io, void *local, size_t size, bool to_buffer)
{
    if (io->mm == NULL) {
        uint8_t *at = io->kernel + io->offset;
        if (!to_buffer)
            memcpy(local, at, size);
        else if (local != NULL)
            memcpy(at, local, size);
        else
            memset(at, 0, size);
        return size;
    }
    uint64_t guest = io->segments[io->segment].addr.va + io->offset;
    if (!to_buffer)
        return uaccess_read(io->mm, guest, local, size);
    return local != NULL ? uaccess_write(io->mm, guest, local, size)
                         : uaccess_clear(io->mm, guest, size);
}

static ssize_t move(struct io *io, void *local, size_t size, bool to_buffer)
{
    size_t done = 0;
    size = size < io->remaining ? size : (size_t)io->remaining;
    while (done < size) {
        uint64_t room = io->segments[io->segment].size - io->offset;
        if (room == 0) {
            advance(io, 0);
            continue;
        }
        size_t piece = size - done < room ? size - done : (size_t)room;
        size_t moved =
            move_piece(io, local != NULL ? (uint8_t *)local + done : NULL, piece, to_buffer);
        done += moved;
        advance(io, moved);
        if (moved < piece)
            return done != 0 ? (ssize_t)done : -EFAULT;
    }
    return (ssize_t)done;
}

ssize_t io_put(struct io *io, const void *src, size_t size)
{
    union {
        const void *in;
        void *out;
    } local = {.in = src}; /* only read: see move_piece() */
    return move(io, local.out, size, true);
}

ssize_t io_get(struct io *io, void *dst, size_t size)
{
    return move(io, dst, size, false);
}

ssize_t io_put_zero(struct io *io, size_t size)
{
    return move(io, NULL, size, true);
}

/* ---- host descriptors ---------------------------------------------------------------------------
 */

/* #syscalls read,write,pread64,pwrite64,preadv2: bulk data of files whose descriptor the sentry
 * holds */

static ssize_t read_once(int hfd, void *buffer, size_t size, int64_t offset)
{
    long r;
    do
        r = offset < 0 ? host_call3(SYS_read, hfd, buffer, size)
                       : host_call4(SYS_pread64, hfd, buffer, size, offset);
    while (r == -EINTR);
    return r;
}

static ssize_t write_once(int hfd, const void *buffer, size_t size, int64_t offset)
{
    long r;
    do
        r = offset < 0 ? host_call3(SYS_write, hfd, buffer, size)
                       : host_call4(SYS_pwrite64, hfd, buffer, size, offset);
    while (r == -EINTR);
    return r;
}

/* What is in the host's cache comes without leaving the leadership. */
static ssize_t read_host(int hfd, void *buffer, size_t size, int64_t offset, bool may_block)
{
    if (!may_block)
        return read_once(hfd, buffer, size, offset);
    if (offset >= 0) {
        const struct iovec iov = {.iov_base = buffer, .iov_len = size};
        long r = host_call6(SYS_preadv2, hfd, &iov, 1, offset, 0, RWF_NOWAIT);
        if (r > 0)
            return r;
    }
    sched_blocking_begin();
    ssize_t r = read_once(hfd, buffer, size, offset);
    sched_blocking_end();
    return r;
}

static ssize_t write_host(int hfd, const void *buffer, size_t size, int64_t offset, bool may_block)
{
    if (!may_block)
        return write_once(hfd, buffer, size, offset);
    sched_blocking_begin();
    ssize_t r = write_once(hfd, buffer, size, offset);
    sched_blocking_end();
    return r;
}

struct bounce {
    uint8_t *bytes;
    size_t size;
    uint8_t *owned;
    uint8_t small[BOUNCE_SMALL];
};

static int bounce_init(struct bounce *b, uint64_t wanted)
{
    b->bytes = b->small;
    b->size = sizeof(b->small);
    b->owned = NULL;
    if (wanted <= sizeof(b->small))
        return 0;
    b->size = wanted < BOUNCE_LARGE ? (size_t)wanted : BOUNCE_LARGE;
    b->owned = b->bytes = malloc(b->size);
    return b->owned != NULL ? 0 : -ENOMEM;
}

static void bounce_fini(struct bounce *b)
{
    free(b->owned);
}

/* Straight into or out of a buffer of the sentry. */
static ssize_t transfer_kernel(struct io *io, int hfd, int64_t offset, bool may_block, bool is_read)
{
    uint8_t *at = io->kernel + io->offset;
    ssize_t r = is_read ? read_host(hfd, at, io->remaining, offset, may_block)
                        : write_host(hfd, at, io->remaining, offset, may_block);
    if (r > 0)
        io_skip(io, (size_t)r);
    return r;
}

/* One round of io_host_read(): bytes moved into the cursor, or -errno; *ret_is_last: stop
 * afterwards. */
static ssize_t read_round(struct io *io, struct bounce *b, int hfd, int64_t offset, bool may_block,
                          bool *ret_is_last)
{
    size_t wanted = io->remaining < b->size ? (size_t)io->remaining : b->size;
    ssize_t got = read_host(hfd, b->bytes, wanted, offset, may_block);
    *ret_is_last = true;
    if (got <= 0)
        return got;
    ssize_t put = io_put(io, b->bytes, (size_t)got);
    /* A stream's next read could wait for bytes that nobody promised. */
    *ret_is_last = put < got || (size_t)got < wanted || offset < 0;
    return put;
}

ssize_t io_host_read(struct io *io, int hfd, int64_t offset, bool may_block)
{
    if (io->remaining == 0)
        return 0;
    if (io->mm == NULL)
        return transfer_kernel(io, hfd, offset, may_block, true);
    struct bounce b;
    ssize_t done = 0, r = bounce_init(&b, io->remaining);
    bool is_last = r < 0;
    while (!is_last && io->remaining != 0) {
        r = read_round(io, &b, hfd, offset < 0 ? -1 : offset + done, may_block, &is_last);
        if (r > 0)
            done += r;
    }
    bounce_fini(&b);
    return done != 0 ? done : r;
}

static ssize_t write_round(struct io *io, struct bounce *b, int hfd, int64_t offset, bool may_block,
                           bool *ret_is_last)
{
    size_t wanted = io->remaining < b->size ? (size_t)io->remaining : b->size;
    *ret_is_last = true;
    ssize_t got = io_get(io, b->bytes, wanted);
    if (got <= 0)
        return got;
    ssize_t written = write_host(hfd, b->bytes, (size_t)got, offset, may_block);
    if (written < got)
        io_rewind(io, (size_t)(got - (written > 0 ? written : 0)));
    *ret_is_last = written < got || (size_t)got < wanted;
    return written;
}

ssize_t io_host_write(struct io *io, int hfd, int64_t offset, bool may_block)
{
    if (io->mm == NULL)
        return transfer_kernel(io, hfd, offset, may_block, false);
    struct bounce b;
    ssize_t done = 0, r = bounce_init(&b, io->remaining);
    bool is_last = r < 0;
    while (!is_last && io->remaining != 0) {
        r = write_round(io, &b, hfd, offset < 0 ? -1 : offset + done, may_block, &is_last);
        if (r > 0)
            done += r;
    }
    bounce_fini(&b);
    return done != 0 ? done : r;
}
