/* SPDX-License-Identifier: Apache-2.0 */
/* eventfd(2). Fibers. */
#pragma once

#include "base/compiler.h"
#include <stdbool.h>
#include <stdint.h>

struct creds;
struct file;

/* `flags`: O_NONBLOCK. One reference. */
MUST_CHECK int eventfd_new(const struct creds *creds, uint64_t count, bool is_semaphore, uint32_t flags,
                           struct file **ret);
