/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A text that grows: what generated files are written into. An error sticks: later appends do
 * nothing, and the caller looks at `error` once, at the end. One fiber at a time.
 */
#pragma once

#include "base/compiler.h"
#include <stddef.h>
#include <stdint.h>

#define TEXT_SIZE_MAX MIB(64)

struct text {
    char *bytes; /* owned */
    size_t size, capacity;
    size_t budgeted, charged; /* who pays for the capacity: see text.c */
    int error;                /* 0 or -ENOMEM */
};

void text_fini(struct text *t); /* leaves it empty, to be used again */
void text_append(struct text *t, const void *bytes, size_t size);
void text_put(struct text *t, const char *string);
void text_printf(struct text *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Characters of `set`, and the backslash, become \ooo. */
void text_put_escaped(struct text *t, const char *string, const char *set);
/* Blanks until the text's last line is `column` characters long. */
void text_pad(struct text *t, size_t line_start, size_t column);
/* A set of processors 0..63 as Linux writes it: "0-3,7" and "ff" (at least `cpu_count` bits wide).
 */
void text_put_cpu_list(struct text *t, uint64_t mask);
void text_put_cpu_mask(struct text *t, uint64_t mask, unsigned cpu_count);
