/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes between the caller's terminal and the sandbox's, and log lines from gofer and sentry to the log.
 * CLI's thread only.
 */
#pragma once

#include "base/compiler.h"
#include "runsc-compat/cli/terminal.h"
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

struct relay {
    int sock;   /* owned: stream socket to the sentry, -1 = no terminal */
    int in;     /* borrowed; -1 = none (any more) */
    int out;    /* borrowed */
    char pending[4096]; /* read from the terminal, not yet taken by the sandbox */
    size_t pending_size;
};

enum relay_result { RELAY_OK, RELAY_HANGUP /* the caller's terminal is gone */ };

void relay_init(struct relay *r, int sock, const struct terminal *terminal);
void relay_fini(struct relay *r);
/* What to wait for now. Input is read only while `running` and nothing is pending. */
void relay_fill_poll(const struct relay *r, struct pollfd *in, struct pollfd *sock, bool running);
MUST_CHECK enum relay_result relay_move(struct relay *r, const struct pollfd *in, const struct pollfd *sock);
/* Writes out what the sandbox has sent already. */
void relay_drain(struct relay *r);

struct relay_log {
    int pipe; /* owned: read end, -1 = none */
    int out;  /* borrowed */
};
/* `*ret_write` is the caller's. */
MUST_CHECK int relay_log_init(struct relay_log *r, int out, int *ret_write);
/* Forwards what is there; control bytes other than newline become '?'. */
void relay_log_forward(struct relay_log *r);
void relay_log_fini(struct relay_log *r); /* forwards the rest first */
