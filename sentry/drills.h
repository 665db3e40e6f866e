/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hostile sentry: in test builds (BAILEY_DRILLS) it does, after lockdown, what an attacker who owns it
 * would try (tests/drills/drills.c). In every other build these functions do nothing.
 */
#pragma once

#include "sentry/control/drill.h"
#include <stdbool.h>

struct control_config;

#ifdef BAILEY_DRILLS
/* Whether this run is the control that lacks a protection (enum drill_hole). */
static inline bool drill_leaves_out(uint64_t drill, enum drill_hole hole)
{
    return (drill & hole) != 0;
}
/* Before anything is given up: opens what a run with DRILL_HOLE_DIRFD leaves open. */
void drill_prepare(const struct control_config *config);
/* Stands for the filter: everything is allowed but the gofer's call. The listener. */
int drill_open_filter(void);
/* The act; does not return if there is one. `argv` has its parameters: see run_drills.py. */
void drill_run(const struct control_config *config);
#else
static inline bool drill_leaves_out(uint64_t drill, enum drill_hole hole)
{
    (void)drill, (void)hole;
    return false;
}
static inline void drill_prepare(const struct control_config *config)
{
    (void)config;
}
static inline int drill_open_filter(void)
{
    return -1;
}
static inline void drill_run(const struct control_config *config)
{
    (void)config;
}
#endif
