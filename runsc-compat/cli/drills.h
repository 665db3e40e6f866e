/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drills: a CLI of test builds (BAILEY_DRILLS) takes the number of a hostile act, and the protections that
 * its control run leaves out, from the environment variable BAILEY_DRILL. No other build looks at it.
 */
#pragma once

#include "sentry/control/drill.h"
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#ifdef BAILEY_DRILLS
static inline uint64_t drill_wanted(void)
{
    const char *text = getenv("BAILEY_DRILL");
    return text ? strtoull(text, NULL, 0) : 0;
}
static inline bool drill_leaves_out(uint64_t drill, enum drill_hole hole)
{
    return (drill & hole) != 0;
}
#else
static inline uint64_t drill_wanted(void)
{
    return 0;
}
static inline bool drill_leaves_out(uint64_t drill, enum drill_hole hole)
{
    (void)drill, (void)hole;
    return false;
}
#endif

/* Namespaces that the process shares with the caller: none but in a control run. */
static inline uint64_t drill_shared_namespaces(uint64_t drill)
{
    return (drill_leaves_out(drill, DRILL_HOLE_PIDNS) ? CLONE_NEWPID : 0u) |
           (drill_leaves_out(drill, DRILL_HOLE_NETNS) ? CLONE_NEWNET : 0u) |
           (drill_leaves_out(drill, DRILL_HOLE_IPCNS) ? CLONE_NEWIPC : 0u) |
           (drill_leaves_out(drill, DRILL_HOLE_USER) ? CLONE_NEWUSER : 0u);
}
