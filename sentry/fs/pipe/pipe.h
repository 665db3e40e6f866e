/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pipes and FIFOs: pipe(7), fifo(7). A pipe belongs to an inode (inode->pipe) while files of it are open.
 * Everything runs on fibers and may sleep.
 */
#pragma once

#include "base/compiler.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct creds;
struct file;
struct io;

#define PIPE_ATOMIC_SIZE  4096U    /* PIPE_BUF */
#define PIPE_DEFAULT_SIZE 65536U
#define PIPE_SIZE_MAX     1048576U /* /proc/sys/fs/pipe-max-size */

/* pipe2(2): both ends, one reference each. `flags`: O_NONBLOCK, O_DIRECT. */
MUST_CHECK int pipe_new(const struct creds *creds, uint32_t flags, struct file **ret_read,
                        struct file **ret_write);
void pipe_init(void); /* at start: opens of FIFOs, by vfs's hook, wait for the other end as fifo(7) says */

bool file_is_pipe(const struct file *f);
/* fcntl(2) F_GETPIPE_SZ, F_SETPIPE_SZ: bytes, or -EBADF if it is no pipe, -EBUSY, -EPERM, -ENOMEM. */
int64_t pipe_get_size(struct file *f);
int64_t pipe_set_size(struct file *f, uint64_t size);
/* What splice(2), tee(2) and vmsplice(2) do with pipes. Sleep until at least something can be moved, unless
 * `non_block` (-EAGAIN); bytes moved, 0 at the end of the stream, -EPIPE, -ERESTARTSYS. -EINVAL if a file is
 * no pipe or both are the same one, -EBADF if it is not open in that direction. */
MUST_CHECK ssize_t pipe_splice(struct file *in, struct file *out, uint64_t size, bool non_block);
MUST_CHECK ssize_t pipe_tee(struct file *in, struct file *out, uint64_t size, bool non_block);
/* Hands up to `size` bytes to write(arg, io), which returns how many it took. */
typedef ssize_t (*pipe_sink)(void *arg, struct io *io);
MUST_CHECK ssize_t pipe_drain(struct file *in, uint64_t size, bool non_block, pipe_sink write, void *arg);
/* Waits for room: bytes that fit now. */
MUST_CHECK ssize_t pipe_wait_room(struct file *out, bool non_block);
/* As write(2), but puts in only what fits without waiting a second time. */
MUST_CHECK ssize_t pipe_fill(struct file *out, struct io *io, bool non_block);

/* The calling task wrote to something that nobody reads: sends it SIGPIPE. Set at start by the layer
 * that knows tasks; NULL: nothing. */
extern void (*g_broken_pipe_hook)(void);
