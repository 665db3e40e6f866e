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
/* tee(2): copies up to `size` bytes without consuming them. `non_block`: SPLICE_F_NONBLOCK. */
ssize_t pipe_tee(struct file *in, struct file *out, uint64_t size, bool non_block);

/* The calling task wrote to something that nobody reads: sends it SIGPIPE. Set at start by the layer
 * that knows tasks; NULL: nothing. */
extern void (*g_broken_pipe_hook)(void);
