/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An error that a person reads: one sentence that says what, where and what to do, and the exit status
 * that it means. runsc-compat only; one thread.
 */
#pragma once

#include "base/compiler.h"

#define STATUS_TIMEOUT 124
#define STATUS_FAILED 125

struct err {
    int status;
    char text[512]; /* "" = no error; bytes of others in it are already escaped */
};

/* Sets the sentence (status 125) unless one is set already, and returns -1. */
int err_set(struct err *err, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Like err_set with ": " and the text of errno value `code` (positive) at the end. */
int err_errno(struct err *err, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* "bailey: <sentence>" on descriptor 2. */
void err_print(const struct err *err);
