/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Path arguments of system calls: a directory descriptor and a path in guest memory become what vfs
 * walks from. On the calling task's fiber.
 */
#pragma once

#include "abi/guest_addr.h"
#include "sentry/vfs/vfs.h"

struct task;
struct fs_context;

/* One path argument. `ctx.creds` are the task's, borrowed: they change by its own fiber only. */
struct path_arg {
    struct walk_context ctx; /* root and cwd: referenced by `holds_context`, else borrowed */
    struct path base;        /* borrowed: cwd's or dir's */
    struct file *dir;        /* ref or NULL */
    char *path;              /* owned */
    bool holds_context;
};
/* 0, -EBADF, -EFAULT, -ENOENT (empty, unless allowed), -ENAMETOOLONG; on failure nothing is held.
 */
MUST_CHECK int path_arg_init(struct path_arg *p, struct task *task, int dirfd, guest_addr path,
                             bool allow_empty);
/* openat2(2) with RESOLVE_IN_ROOT or RESOLVE_BENEATH: absolute paths start at the directory, too.
 */
MUST_CHECK int path_arg_init_scoped(struct path_arg *p, struct task *task, int dirfd,
                                    guest_addr path);
void path_arg_fini(struct path_arg *p);
#define AUTO_PATH_ARG CLEANUP(path_arg_fini) struct path_arg

/* Walks it: *ret is owned by the caller. */
MUST_CHECK int path_arg_walk(struct path_arg *p, uint32_t walk_flags, struct path *ret);
/* What AT_* flags and `allowed` ones mean: WALK_FOLLOW unless AT_SYMLINK_NOFOLLOW, WALK_EMPTY by
 * AT_EMPTY_PATH. -EINVAL for others. */
MUST_CHECK int path_walk_flags(int at_flags, int allowed, uint32_t *ret);

/* The mode of something new: the task's umask is applied. */
uint32_t path_new_mode(struct task *task, uint32_t mode);
/* RLIMIT_FSIZE: how much of `size` bytes at `pos` may be written; -EFBIG with SIGXFSZ sent. */
MUST_CHECK int64_t file_size_allowed(struct task *task, const struct file *f, int64_t pos,
                                     uint64_t size);
