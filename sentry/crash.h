/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sentry that crashes leaves behind: a line with the reason and its own backtrace in the log.
 */
#pragma once

/* Handlers for SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP and SIGABRT on the alternate stacks that sched gives
 * its host threads. Before sched_init(), which puts its own report of fiber overflows in front. */
void crash_init(void);
