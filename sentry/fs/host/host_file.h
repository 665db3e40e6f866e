/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors that the CLI donated as the command's standard streams: pipes, sockets, regular files,
 * /dev/null. Never a terminal. Any fiber.
 */
#pragma once

#include "base/compiler.h"

struct creds;
struct file;

/* `hfd` becomes the file's on success. -EINVAL for directories and terminals. */
MUST_CHECK int host_file_new(int hfd, const struct creds *creds, struct file **ret);
/* Writing to a stream that nobody reads: sends the calling task SIGPIPE. Set at start. */
extern void (*g_host_broken_pipe_hook)(void);
