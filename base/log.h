/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines of every bailey process. One write(2) for a line, no stdio, no allocation, no locks:
 * callable from any thread or fiber, before and after lockdown, not from signal handlers.
 *
 * Library code returns errors; the outermost caller logs once. Never guest bytes unescaped (use
 * log_escape), never secrets. Guest-triggered lines are log_dbg or rate-limited.
 */
#pragma once

#include "base/compiler.h"
#include <stdbool.h>
#include <stddef.h>

enum log_level { LOG_LEVEL_ERR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DBG, LOG_LEVEL_COUNT };
enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };

/* Lines go to `hfd` (borrowed) from now on; `name` (static storage) is the process's role. Before the
 * first call they go to descriptor 2 as text, level warn. Call before the second thread starts. */
void log_init(int hfd, enum log_format format, enum log_level max_level, const char *name);
bool log_enabled(enum log_level level);
void log_write(enum log_level level, const char *module, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Escapes `size` untrusted bytes into `out` (always terminated; truncated with "..." when too long):
 * printable ASCII except backslash and quote stays, the rest becomes \xHH. Returns `out`. */
const char *log_escape(char *out, size_t out_size, const void *bytes, size_t size);

/* Each .c file defines LOG_MODULE before it includes this header or gets its directory-less default. */
#ifndef LOG_MODULE
#define LOG_MODULE "bailey"
#endif
#define log_err(...) log_write(LOG_LEVEL_ERR, LOG_MODULE, __VA_ARGS__)
#define log_warn(...) log_write(LOG_LEVEL_WARN, LOG_MODULE, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, LOG_MODULE, __VA_ARGS__)
#define log_dbg(...)                                                                               \
    do {                                                                                           \
        if (unlikely(log_enabled(LOG_LEVEL_DBG)))                                                  \
            log_write(LOG_LEVEL_DBG, LOG_MODULE, __VA_ARGS__);                                     \
    } while (0)

/* Our own bug: logs file and line with a backtrace where the process installed a crash hook, and
 * aborts. Nothing that a guest, file or peer sends may reach one. Stays on in release builds. */
NORETURN void log_assert_failed(const char *file, int line, const char *expression);
#define ASSERT(e)                                                                                  \
    do {                                                                                           \
        if (unlikely(!(e)))                                                                        \
            log_assert_failed(__FILE__, __LINE__, #e);                                             \
    } while (0)
