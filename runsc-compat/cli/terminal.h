/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The caller's terminal. The sandbox has a terminal of its own; the CLI keeps the real one, puts it into
 * raw mode and relays bytes. Whatever happens, its settings are put back: by the CLI on every way out, by
 * the monitor if the CLI is killed.
 */
#pragma once

#include "base/compiler.h"
#include "sentry/control/control.h"
#include <stdbool.h>
#include <termios.h>

/* In memory shared with the monitor. */
struct terminal_shared {
    bool raw; /* the settings are changed at this moment */
    struct termios saved;
};

struct terminal {
    int in;        /* descriptor that is read, or -1; borrowed: 0..2 */
    int out;       /* descriptor that is written, or -1 */
    uint32_t mask; /* which of 0..2 are terminals */
    struct terminal_shared *shared; /* NULL without a terminal */
};

/* Looks at descriptors 0..2. */
MUST_CHECK int terminal_init(struct terminal *t);
/* Raw mode if we have a terminal to read and are in its foreground; else nothing happens (and a later
 * SIGCONT may try again). True if it's raw now. */
bool terminal_enter_raw(struct terminal *t);
/* Puts the settings back if they are changed. Idempotent. */
void terminal_restore(struct terminal *t);
/* The monitor's: only if they still are what terminal_enter_raw() set. A shell that waited for the killed
 * CLI may have put its own back by now. */
void terminal_restore_abandoned(struct terminal *t);
struct control_winsize terminal_winsize(const struct terminal *t);
