/* SPDX-License-Identifier: Apache-2.0 */
/* What uname(2) says: the same as /proc/version, which stands in a lower layer. */
#pragma once

#include "sentry/task/release.h"
