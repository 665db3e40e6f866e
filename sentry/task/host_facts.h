/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the sentry knows of the host's CPU and memory, read once before lockdown, when files can still be
 * opened. Immutable after host_facts_init(); any thread.
 */
#pragma once

#include "base/compiler.h"
#include <stddef.h>
#include <stdint.h>

struct host_facts {
    uint64_t hwcap, hwcap2, min_sigstack_size;
    uint64_t memory_total; /* bytes */
    uint64_t boot_ns;      /* CLOCK_BOOTTIME at init minus CLOCK_MONOTONIC at init */
    char *cpuinfo;         /* the host's /proc/cpuinfo, one processor's block; "" if unreadable */
    unsigned cpu_count;    /* host CPUs online that we may use */
};
void host_facts_init(void);
const struct host_facts *host_facts(void);
/* getrandom(2), never fails after init; any size. */
void host_random(void *bytes, size_t size);
