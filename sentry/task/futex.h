/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Futexes: futex(2) without the PI operations, robust lists. All run on the calling task's fiber.
 */
#pragma once

#include "abi/guest_addr.h"
#include "base/compiler.h"
#include <stdbool.h>
#include <stdint.h>

struct task;

/* 0 woken; -EAGAIN (value differs), -ETIMEDOUT, -EINTR, -EFAULT. `deadline_ns` CLOCK_MONOTONIC. */
MUST_CHECK int futex_wait(struct task *t, guest_addr addr, bool is_private, uint32_t expected,
                          uint32_t bitset, uint64_t deadline_ns);
/* How many were woken, or -EFAULT, -EINVAL. */
int64_t futex_wake(struct task *t, guest_addr addr, bool is_private, uint32_t count, uint32_t bitset);
/* FUTEX_REQUEUE and (with `compare`) FUTEX_CMP_REQUEUE: woken plus requeued. */
int64_t futex_requeue(struct task *t, guest_addr from, guest_addr to, bool is_private, uint32_t wake,
                      uint32_t requeue, bool compare, uint32_t expected);
int64_t futex_wake_op(struct task *t, guest_addr addr, guest_addr addr2, bool is_private, uint32_t wake,
                      uint32_t wake2, uint32_t op);
