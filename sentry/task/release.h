/* SPDX-License-Identifier: Apache-2.0 */
/* What uname(2) and /proc/version say. Libraries check the release, so it names a Linux that serves what
 * we serve. */
#pragma once

#define SENTRY_RELEASE "6.12.0"
#define SENTRY_VERSION "#1 SMP PREEMPT_DYNAMIC bailey"
