/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine that the sandbox pretends to be, for those who report about it elsewhere (/sys,
 * sysinfo(2)): the same numbers as /proc/meminfo and /proc/stat, at most a tenth of a second old.
 * Any fiber.
 */
#pragma once

#include <stdint.h>

uint64_t machine_memory_total(void); /* bytes, as all of them */
uint64_t machine_memory_free(void);
uint64_t machine_memory_shared(void); /* in tmpfs, memfds and shared anonymous memory */
uint64_t machine_cpu_ns(void);        /* used by all processes that ever were */
uint64_t machine_uptime_ns(void);
void machine_load(uint64_t ret_load[3]); /* times 65536, as sysinfo(2) gives it */
