/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What control_config.drill means in test builds (BAILEY_DRILLS): the hostile act in the low byte, and above
 * it the protections that are left out in this run, so that a control run shows the act succeeding. The
 * CLI leaves out the ones of the process's start, the sentry (sentry/drills.h) the others.
 */
#pragma once

#include <stdint.h>

#define DRILL_ACT(drill) ((uint32_t)(drill) & 0xff)

enum drill_hole {
    DRILL_HOLE_FILTER = 1 << 8,      /* the sentry's system call filter allows everything */
    DRILL_HOLE_ROOT = 1 << 9,        /* it keeps the host's root */
    DRILL_HOLE_LANDLOCK = 1 << 10,
    DRILL_HOLE_CAPS = 1 << 11,       /* it keeps its capabilities */
    DRILL_HOLE_DIRFD = 1 << 12,      /* a directory of the host stays open */
    DRILL_HOLE_STUB_FILTER = 1 << 13, /* a stub's calls with the magic argument run on the host */
    DRILL_HOLE_PIDNS = 1 << 16,      /* CLI: the sentry stays in the caller's pid namespace */
    DRILL_HOLE_NETNS = 1 << 17,
    DRILL_HOLE_IPCNS = 1 << 18,
    DRILL_HOLE_USER = 1 << 19,       /* CLI: no user namespace and no uid of its own */
    DRILL_HOLE_TTY = 1 << 20,        /* CLI: the caller's standard input stays open in the sentry */
};
