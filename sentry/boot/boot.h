/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a configuration to a running first process: the mount tree, standard streams, and the session with
 * the CLI. Used by the sentry's main alone.
 */
#pragma once

#include "base/compiler.h"
#include "sentry/control/control.h"

struct gofer_client;

/* Before lockdown: registers file systems, devices and hooks, and sets the sandbox's facts. */
void boot_init(const struct control_config *config);
/* Starts listening to the CLI on CONTROL_FD; after GO a fiber builds everything and starts the command.
 * Call right before sched_run(). 0 or -errno. */
MUST_CHECK int session_start(const struct control_config *config, struct control_fds *fds,
                             struct gofer_client *client); /* all borrowed for the process's life */
/* Sends EXIT (once) and ends the scheduler. Any host thread. */
void session_exit(int status, const char *text);

/* Runs on the boot fiber: 0, or an exit status (125, 126, 127) with one line in `text`. */
MUST_CHECK int boot_run(const struct control_config *config, struct control_fds *fds,
                        struct gofer_client *client, char text[CONTROL_TEXT_MAX + 1]);
/* The first process, once it was started (borrowed), else NULL. */
struct thread_group *boot_first_group(void);
