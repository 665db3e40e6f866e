/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of options: strict parsers without side effects (tested and fuzzed). 0, or -1 with a sentence in
 * `err` that names the option.
 */
#pragma once

#include "runsc-compat/cli/err.h"
#include <stdbool.h>
#include <stdint.h>

/* "512m", "2g", "1.5g", "1048576", "64MiB": bytes, powers of 1024. */
MUST_CHECK int value_size(const char *option, const char *text, uint64_t *ret, struct err *err);
/* "1.5": thousandths of a CPU, 10 at least. */
MUST_CHECK int value_cpus(const char *option, const char *text, uint32_t *ret, struct err *err);
/* "60s", "1.5", "500ms", "2m", "1h": nanoseconds, more than 0. */
MUST_CHECK int value_duration(const char *option, const char *text, uint64_t *ret_ns, struct err *err);
MUST_CHECK int value_u32(const char *option, const char *text, uint32_t min, uint32_t max, uint32_t *ret,
                         struct err *err);

struct value_user {
    char name[256]; /* "" if numeric */
    uint32_t uid;
    uint32_t gid;
};
/* UID, UID:GID or NAME. A lone UID means the group of the same number. */
MUST_CHECK int value_user(const char *option, const char *text, struct value_user *ret, struct err *err);

struct value_mount {
    char src[4096]; /* as given */
    char dst[4096]; /* absolute, lexically clean */
    bool writable;
};
/* src:dst[:ro|rw] */
MUST_CHECK int value_mount(const char *option, const char *text, struct value_mount *ret,
                           struct err *err);
MUST_CHECK int value_hostname(const char *option, const char *text, struct err *err);

/* Cleans an absolute path lexically ("." "//" and ".." at any depth) into `out`; false if it isn't
 * absolute or doesn't fit. */
MUST_CHECK bool path_clean(const char *path, char *out, size_t size);
/* True if `path` is `dir` or lies beneath it (both clean). */
bool path_is_beneath(const char *path, const char *dir);
