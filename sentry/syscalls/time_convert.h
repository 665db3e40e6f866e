/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest time structures to nanoseconds and back, with Linux's checks. Any fiber.
 */
#pragma once

#include "abi/guest_addr.h"
#include "abi/stat.h"
#include "base/compiler.h"
#include <stdint.h>

struct mm;

/* Nanoseconds of a valid timespec (sec >= 0, nsec < 1e9), saturating: 0 or -EINVAL. */
MUST_CHECK int timespec_to_ns(const struct linux_timespec *ts, uint64_t *ret_ns);
void ns_to_timespec(uint64_t ns, struct linux_timespec *ret);
/* A relative timeout in guest memory as a CLOCK_MONOTONIC deadline: 0, -EFAULT, -EINVAL. */
MUST_CHECK int timeout_copy_in(struct mm *mm, guest_addr addr, uint64_t *ret_deadline_ns);
MUST_CHECK int timespec_copy_in(struct mm *mm, guest_addr addr, uint64_t *ret_ns);
/* now + timeout without overflow. */
uint64_t deadline_after(uint64_t timeout_ns);
/* An absolute time of `clock` as a CLOCK_MONOTONIC deadline; -EINVAL for clocks that can't be waited on. */
MUST_CHECK int deadline_of_clock(int clock, uint64_t time_ns, uint64_t *ret_deadline_ns);
/* The clock's present value. `task` for CPU clocks. 0 or -EINVAL. */
struct task;
MUST_CHECK int clock_now(struct task *task, int clock, struct linux_timespec *ret);
