/* SPDX-License-Identifier: Apache-2.0 */
/* epoll(7). Fibers. */
#pragma once

#include "abi/poll.h"
#include "base/compiler.h"
#include <stdbool.h>
#include <stdint.h>

struct creds;
struct file;

void epoll_init(void); /* at start, before the first file */
MUST_CHECK int epoll_new(const struct creds *creds, struct file **ret);
bool file_is_epoll(const struct file *f);
/* epoll_ctl(2) for EPOLL_CTL_* `op`. `fd` is the number under which `target` was named: part of the key.
 * The files are borrowed. */
MUST_CHECK int epoll_control(struct file *epoll, int op, int fd, struct file *target,
                             const struct linux_epoll_event *event);
/* Up to `max` events into `events`: how many, 0 after the deadline (0: only looks), -EINTR. */
MUST_CHECK int epoll_collect(struct file *epoll, struct linux_epoll_event *events, int max,
                             uint64_t deadline_ns);
