/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the calls that wait for readiness have in common: a time-out in one of three shapes and a signal mask
 * for the time of the wait. On the calling task's fiber.
 */
#pragma once

#include "abi/guest_addr.h"
#include "abi/stat.h"
#include "base/compiler.h"
#include <stdbool.h>
#include <stdint.h>

struct task;

/* Deadlines: CLOCK_MONOTONIC ns; 0 = only look, FIBER_NO_DEADLINE = wait for ever. */
uint64_t deadline_from_ms(int timeout_ms); /* negative: for ever */
/* -EINVAL unless the parts are in range. */
MUST_CHECK int deadline_from_timespec(const struct linux_timespec *t, uint64_t *ret);

enum wait_timeout_shape { WAIT_TIMESPEC, WAIT_TIMEVAL };

struct wait_arguments {
    uint64_t deadline_ns;
    guest_addr timeout; /* where the time that is left goes; null: nowhere */
    enum wait_timeout_shape shape;
    bool has_mask;
    uint64_t mask;
};
/* Reads a time-out (null: for ever) and a mask (null: none). -EFAULT, -EINVAL. */
MUST_CHECK int wait_arguments_read(struct task *task, guest_addr timeout, enum wait_timeout_shape shape,
                                   guest_addr sigmask, uint64_t sigsetsize, struct wait_arguments *ret);
void wait_arguments_set_mask(struct task *task, const struct wait_arguments *w);
/* A guest whose time-out cannot be written keeps it as it is, as in Linux. */
void wait_arguments_write_left(struct task *task, const struct wait_arguments *w);
