/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host futexes on which idle host threads sleep. Private to sentry/sched; fibers park instead.
 */
#pragma once

#include "base/host.h"
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>

/* #syscalls futex: idle host threads of the scheduler */

/* Sleeps while *word == expected; returns early for any reason. `timeout` may be NULL. */
static inline void futex_wait(_Atomic uint32_t *word, uint32_t expected, const struct timespec *timeout)
{
    (void)host_call4(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, timeout);
}

static inline void futex_wake(_Atomic uint32_t *word, int count)
{
    (void)host_call3(SYS_futex, word, FUTEX_WAKE_PRIVATE, count);
}
