/* SPDX-License-Identifier: Apache-2.0 */
/* Process descriptors: pidfd_open(2). Any fiber. */
#pragma once

#include "base/compiler.h"
#include <stdint.h>

struct creds;
struct file;
struct thread_group;

/* A file that stands for process `g` (takes its own reference); `flags` O_NONBLOCK. 0 or -ENOMEM. */
MUST_CHECK int pidfd_new(struct thread_group *g, struct creds *creds, uint32_t flags, struct file **ret);
/* The process of a pidfd with a reference, or NULL if `f` is something else. */
struct thread_group *pidfd_group(struct file *f);
