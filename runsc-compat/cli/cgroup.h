/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resource limits by cgroup v1, v2 or a mixture, whatever this host has. One sandbox has a directory for
 * each hierarchy, with the guest's part beneath it:
 *     bailey-<pid>/         memory: limit plus a reserve for sentry and gofer; cpu: the limit, for all
 *     bailey-<pid>/guest/   memory, pids: the limit; stubs live here (and the sentry until it has made them)
 *     bailey-<pid>/core/    v2 only: sentry and gofer
 */
#pragma once

#include "runsc-compat/cli/err.h"
#include "sentry/control/control.h"
#include <stddef.h>
#include <sys/types.h>

#define CGROUP_DIRS_MAX 16

/* Plain data, so that the monitor's copy of it can clean up. */
struct cgroup {
    size_t dir_count;
    struct cgroup_dir {
        char path[512];
        bool for_guest; /* stubs, and the sentry at first */
        bool for_core;  /* gofer, and the sentry after cgroup_move_core */
    } dirs[CGROUP_DIRS_MAX]; /* parents before children */
    size_t setting_count;
    struct cgroup_setting {
        size_t dir;
        char file[48];
        char value[48];
        bool optional; /* not on every kernel (swap accounting) */
    } settings[CGROUP_DIRS_MAX];
    char enable[CGROUP_DIRS_MAX][512]; /* v2: subtree_control files that must name `controllers` */
    size_t enable_count;
    char controllers[64];
    bool created;
};

/* Finds where directories go; creates nothing. No limits: an empty plan. -1 with `err` if a limit that was
 * asked for has no hierarchy here. */
MUST_CHECK int cgroup_plan(const struct control_limits *limits, struct cgroup *ret, struct err *err);
/* Creates the directories and sets the limits; removes what it made on failure. */
MUST_CHECK int cgroup_create(struct cgroup *cg, struct err *err);
MUST_CHECK int cgroup_add_guest(const struct cgroup *cg, pid_t pid, struct err *err);
MUST_CHECK int cgroup_add_core(const struct cgroup *cg, pid_t pid, struct err *err);
/* Removes the directories; waits a little for the last processes to leave. Idempotent, needs no memory. */
void cgroup_remove(const struct cgroup *cg);
