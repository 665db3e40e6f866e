/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of sentry/fs/sys. */
#pragma once

#include "sentry/fs/synth/synth.h"

extern const struct synth_rows sys_cpu_rows;       /* cpu.c: devices/system/cpu */
extern const struct synth_dynamic sys_cpu_dynamic; /* cpu.c: cpu0, cpu1… in it */
extern const struct synth_rows sys_node_rows;      /* node.c: devices/system/node */
extern const struct synth_rows sys_cgroup_rows;    /* cgroup.c: fs/cgroup */

uint64_t sys_all_cpus(void); /* mask */
