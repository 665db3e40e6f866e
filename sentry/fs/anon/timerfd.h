/* SPDX-License-Identifier: Apache-2.0 */
/* timerfd_create(2). Fibers. */
#pragma once

#include "abi/poll.h"
#include "base/compiler.h"
#include <stdbool.h>
#include <stdint.h>

struct creds;
struct file;

/* `clock`: CLOCK_MONOTONIC, CLOCK_BOOTTIME or CLOCK_REALTIME. `flags`: O_NONBLOCK. */
MUST_CHECK int timerfd_new(const struct creds *creds, int clock, uint32_t flags, struct file **ret);
/* -EINVAL if `f` is no timerfd. `value` was checked: nanoseconds in range, nothing negative. */
MUST_CHECK int timerfd_set(struct file *f, bool is_absolute, const struct linux_itimerspec *value,
                               struct linux_itimerspec *ret_old);
MUST_CHECK int timerfd_get(struct file *f, struct linux_itimerspec *ret);
