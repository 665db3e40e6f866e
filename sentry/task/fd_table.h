/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File descriptor tables: guest descriptor numbers to open files. Shared by CLONE_FILES. Any fiber.
 */
#pragma once

#include "base/compiler.h"
#include "base/lock.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct file;
struct fd_table;

#define FD_TABLE_MAX 1048576 /* nr_open */

struct fd_table *fd_table_new(void); /* NULL without memory */
struct fd_table *fd_table_copy(struct fd_table *old); /* fork: takes references; NULL without memory */
void fd_table_get(struct fd_table *t);
void fd_table_put(struct fd_table *t); /* the last one closes everything; may sleep */
bool fd_table_is_shared(const struct fd_table *t);

/* The open file with a reference, or NULL (EBADF). O_PATH files too: callers that may not use those take
 * fd_table_get_file(). */
MUST_CHECK struct file *fd_table_get_any(struct fd_table *t, int fd);
MUST_CHECK struct file *fd_table_get_file(struct fd_table *t, int fd); /* NULL for O_PATH files */
/* Installs `f` (takes over the caller's reference on success) at the lowest free number >= min, below
 * `limit` (RLIMIT_NOFILE): the number, -EMFILE, -EINVAL (min >= limit), -ENOMEM. */
MUST_CHECK int fd_table_install(struct fd_table *t, struct file *f, int min, uint64_t limit, bool cloexec);
/* dup2: at exactly `fd`, closing what was there (its file is put after the lock). -EBADF beyond limit. */
MUST_CHECK int fd_table_install_at(struct fd_table *t, struct file *f, int fd, uint64_t limit, bool cloexec);
int fd_table_close(struct fd_table *t, int fd); /* 0, -EBADF, or flush's error; may sleep */
/* close_range(2) for [first, last]; with `cloexec_only` marks them instead. */
int fd_table_close_range(struct fd_table *t, unsigned first, unsigned last, bool cloexec_only);
void fd_table_close_on_exec(struct fd_table *t);
int fd_table_get_cloexec(struct fd_table *t, int fd); /* 0, 1 or -EBADF */
int fd_table_set_cloexec(struct fd_table *t, int fd, bool cloexec);
/* /proc/PID/fd: the lowest used number >= `from`, or -1. */
int fd_table_next(struct fd_table *t, int from);
unsigned fd_table_count(struct fd_table *t);
