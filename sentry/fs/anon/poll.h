/* SPDX-License-Identifier: Apache-2.0 */
/* The wait of poll(2) and select(2). Runs on the calling fiber. */
#pragma once

#include "base/compiler.h"
#include <stddef.h>
#include <stdint.h>

struct file;

struct poll_entry {
    struct file *file; /* borrowed, stays open meanwhile; NULL: never ready */
    uint32_t events;   /* wanted EPOLL* bits, EPOLLERR and EPOLLHUP only if named; not 0 */
    uint32_t revents;  /* out */
};

/* Waits until an entry is ready or the deadline (CLOCK_MONOTONIC ns; 0: only looks). The number of ready
 * entries, 0 after the deadline, -EINTR, -ENOMEM. */
MUST_CHECK int64_t poll_files(struct poll_entry *entries, size_t count, uint64_t deadline_ns);
