/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One sandbox from start to end: monitor, cgroups, gofer and sentry, then an event loop that relays the
 * terminal, signals and log lines until the sentry reports its end. One thread, the CLI's.
 */
#pragma once

#include "runsc-compat/cli/err.h"
#include "runsc-compat/cli/plan.h"

struct sandbox_config {
    struct plan *plan; /* borrowed; terminal settings are added to it */
    int log_hfd;       /* where log lines go, borrowed */
};

/* Runs it and cleans up. The exit status; a sentence for the caller, if there is one, in `err`. */
int sandbox_run(const struct sandbox_config *config, struct err *err);
