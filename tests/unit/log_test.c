/* SPDX-License-Identifier: Apache-2.0 */
/* base/log: nothing that is logged can forge a second record or break out of a JSON string. */
#include "base/log.h"

#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

static char g_out[4096];

/* Logs one message through a pipe in `format`; what arrived is in g_out. */
static void log_through_pipe(enum log_format format, const char *message)
{
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    log_init(ends[1], format, LOG_LEVEL_INFO, "test");
    log_info("%s", message);
    log_init(2, LOG_FORMAT_TEXT, LOG_LEVEL_WARN, "test");
    close(ends[1]);
    ssize_t got = read(ends[0], g_out, sizeof(g_out) - 1);
    cr_assert_gt(got, 0);
    g_out[got] = '\0';
    close(ends[0]);
}

static size_t count_char(const char *s, char c)
{
    size_t count = 0;
    for (; *s; s++)
        count += *s == c;
    return count;
}

Test(log_escape, keeps_printable_ascii)
{
    char out[32];
    cr_assert_str_eq(log_escape(out, sizeof(out), "a b~!", 5), "a b~!");
}

Test(log_escape, escapes_quote_backslash_controls_and_high_bytes)
{
    char out[64];
    cr_assert_str_eq(log_escape(out, sizeof(out), "\"\\\n\x1b\x7f\xff\0", 7),
                     "\\x22\\x5c\\x0a\\x1b\\x7f\\xff\\x00");
}

Test(log_escape, marks_truncation_and_never_overruns)
{
    char out[16];
    memset(out, 'X', sizeof(out));
    log_escape(out, 8, "abcdefghijkl", 12);
    cr_assert_str_eq(out, "abcd...");
    cr_assert_eq(out[8], 'X');
    for (size_t size = 1; size < sizeof(out); size++) {
        memset(out, 'X', sizeof(out));
        log_escape(out, size, "\n\n\n\n\n\n", 6);
        cr_assert_lt(strnlen(out, sizeof(out)), size);
        cr_assert_eq(out[size], 'X', "size %zu", size);
    }
}

Test(log_escape, fills_the_buffer_exactly_when_it_fits)
{
    char out[5];
    cr_assert_str_eq(log_escape(out, sizeof(out), "abcd", 4), "abcd");
}

Test(log_write, text_line_has_time_level_role_and_module)
{
    log_through_pipe(LOG_FORMAT_TEXT, "hello");
    cr_assert(strstr(g_out, " info test/bailey: hello\n") != NULL, "got: %s", g_out);
    cr_assert_eq(g_out[4], '-');
    cr_assert_eq(g_out[10], 'T');
}

Test(log_write, newline_in_a_message_forges_no_record)
{
    log_through_pipe(LOG_FORMAT_TEXT, "x\n2026-01-01T00:00:00.000000Z error test/x: forged\r\x1b[2J");
    cr_assert_eq(count_char(g_out, '\n'), 1, "got: %s", g_out);
    cr_assert_eq(count_char(g_out, '\r'), 0);
    cr_assert_eq(count_char(g_out, '\x1b'), 0);
}

Test(log_write, json_string_cannot_be_left)
{
    log_through_pipe(LOG_FORMAT_JSON, "a\",\"level\":\"error\\\n");
    cr_assert(strstr(g_out, "\"msg\":\"a\\\",\\\"level\\\":\\\"error\\\\\\u000a\"}\n") != NULL, "got: %s",
              g_out);
}

Test(log_write, long_messages_stay_one_complete_json_object)
{
    char long_message[3000];
    memset(long_message, '\x01', sizeof(long_message));
    long_message[sizeof(long_message) - 1] = '\0';
    log_through_pipe(LOG_FORMAT_JSON, long_message);
    size_t len = strlen(g_out);
    cr_assert_gt(len, 3);
    cr_assert_str_eq(g_out + len - 3, "\"}\n");
    cr_assert_eq(count_char(g_out, '\n'), 1);
}
