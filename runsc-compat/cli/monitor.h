/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The monitor: a small process that does nothing but wait for the CLI's death. If that comes without
 * monitor_end(), it kills what the CLI started, puts the terminal's settings back, removes the cgroups and
 * logs the reason. The CLI watches it in turn.
 */
#pragma once

#include "runsc-compat/cli/cgroup.h"
#include "runsc-compat/cli/err.h"
#include "runsc-compat/cli/terminal.h"

struct monitor {
    pid_t pid;
    int pidfd; /* readable when it died; -1 = not running */
    int sock;
};

/* Starts it: before anything that it has to clean up exists. `log_hfd` is borrowed. */
MUST_CHECK int monitor_start(const struct cgroup *cg, struct terminal *terminal, int log_hfd,
                             struct monitor *ret, struct err *err);
/* It kills and awaits this process, too. */
MUST_CHECK int monitor_watch(const struct monitor *m, int pidfd, struct err *err);
/* Everything is cleaned up: ends it. Idempotent. */
void monitor_end(struct monitor *m);
