/* SPDX-License-Identifier: Apache-2.0 */
/* Private to pipe.c and pipe_splice.c. */
#pragma once

#include "base/compiler.h"
#include "sentry/fs/pipe/pipe.h"
#include "sentry/mm/uaccess.h"
#include "sentry/sched/wait_queue.h"
#include "sentry/vfs/vfs.h"
#include <stdatomic.h>
#include <sys/epoll.h>

#define READABLE ((uint32_t)(EPOLLIN | EPOLLRDNORM))
#define WRITABLE ((uint32_t)(EPOLLOUT | EPOLLWRNORM))

struct pipe_slot {
    uint8_t *page; /* owned */
    uint32_t offset, size;
    bool is_packet; /* a read takes it whole and nothing else */
};

struct pipe {
    struct fmutex mutex;
    /* Written under mutex; the atomic ones are read without it by poll and by those who wait. */
    struct pipe_slot *slots; /* owned; a ring */
    unsigned first;
    _Atomic unsigned slot_count, used;
    _Atomic unsigned readers, writers;
    _Atomic unsigned reader_opens, writer_opens; /* ever: what an open of the other end waits for */
    uint8_t *spare_page;                         /* owned, may be NULL */
    struct wait_queue read_wait, write_wait;     /* of who waits to read, to write */
    unsigned files;                              /* g_pipes.lock */
};

/* All with pipe->mutex held but the last three. */
struct pipe_slot *pipe_slot_at(struct pipe *p, unsigned n);
uint8_t *pipe_page_new(struct pipe *p); /* NULL without memory */
void pipe_page_free(struct pipe *p, uint8_t *page);
void pipe_drop_first(struct pipe *p); /* frees its page, unless it was taken (NULL) */
int64_t pipe_resize_locked(struct pipe *p, unsigned slot_count); /* bytes; -EBUSY, -ENOMEM */
/* Puts in what there is room for. -EAGAIN: the rest has to wait, -EPIPE, -EFAULT, -ENOMEM. 0: done. */
int pipe_put_bytes(struct pipe *p, struct io *io, bool is_packet, ssize_t *done);
/* Sleep until there is something to read or the end; until there is room or no reader. 0 or -EAGAIN (with
 * `non_block`), -ERESTARTSYS. */
int pipe_wait_readable(struct pipe *p, bool non_block);
int pipe_wait_writable(struct pipe *p, bool non_block);
ssize_t pipe_broken(ssize_t done); /* SIGPIPE; `done`, or -EPIPE if that is 0 */
bool pipe_is_reader(const struct file *f);
bool pipe_is_writer(const struct file *f);
