/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hostile sentry: in test builds (BAILEY_DRILLS) it does, after lockdown, what an attacker who owns it
 * would try. In every other build both functions do nothing.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef BAILEY_DRILLS
bool drill_opens_filter(uint64_t drill); /* the control run of the filter test: a stub without one */
void drill_run(uint64_t drill);          /* 0: nothing */
#else
static inline bool drill_opens_filter(uint64_t drill)
{
    (void)drill;
    return false;
}
static inline void drill_run(uint64_t drill)
{
    (void)drill;
}
#endif
