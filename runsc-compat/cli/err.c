/* SPDX-License-Identifier: Apache-2.0 */
/* Errors for people. The first one set is the cause and stays. */
#include "runsc-compat/cli/err.h"

#include "base/host.h"
#include "base/log.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void set(struct err *err, int code, const char *fmt, va_list args) PRINTF_LIKE(3, 0);
static void set(struct err *err, int code, const char *fmt, va_list args)
{
    char raw[sizeof(err->text) / 2];
    if (err->text[0])
        return;
    int len = vsnprintf(raw, sizeof(raw), fmt, args);
    if (code && len >= 0 && (size_t)len < sizeof(raw))
        snprintf(raw + len, sizeof(raw) - (size_t)len, ": %s", strerror(code));
    /* Names in it may hold anything: nothing that drives a terminal gets through. Quotes may. */
    size_t out = 0;
    for (const char *p = raw; *p && out + 5 < sizeof(err->text); p++) {
        if (*p == '"' || *p == '\\')
            err->text[out++] = *p;
        else
            out += strlen(log_escape(err->text + out, sizeof(err->text) - out, p, 1));
    }
    err->text[out] = '\0';
    err->status = STATUS_FAILED;
}

int err_set(struct err *err, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    set(err, 0, fmt, args);
    va_end(args);
    return -1;
}

int err_errno(struct err *err, int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    set(err, code, fmt, args);
    va_end(args);
    return -1;
}

void err_print(const struct err *err)
{
    char line[sizeof(err->text) + 16];
    int len = snprintf(line, sizeof(line), "bailey: %s\n", err->text);
    if (len > 0)
        (void)!host_write_all(2, line, (size_t)len);
}
