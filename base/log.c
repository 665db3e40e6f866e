/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines: built in one buffer on the stack, written with one write(2). Any thread or fiber of any
 * process. It distrusts what is logged: control bytes of a message never reach the descriptor, so
 * that nobody can forge a record or drive a terminal, even through a caller that forgot log_escape.
 */
#include "base/log.h"

#include "base/host.h"
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* #syscalls write: log lines
 * #syscalls tgkill,getpid,gettid: abort after a failed assertion */

#define MESSAGE_MAX 448
#define LINE_MAX_SIZE 1000

struct line {
    char bytes[LINE_MAX_SIZE];
    size_t len;
};

static struct {
    int hfd;
    enum log_format format;
    enum log_level max_level;
    const char *name;
} g_log = {.hfd = STDERR_FILENO, .format = LOG_FORMAT_TEXT, .max_level = LOG_LEVEL_WARN, .name = "bailey"};

static const char *const level_names[] = {"error", "warn", "info", "debug"};
_Static_assert(ARRAY_COUNT(level_names) == LOG_LEVEL_COUNT, "one name for each level");

static const char hex_digits[] = "0123456789abcdef";

void log_init(int hfd, enum log_format format, enum log_level max_level, const char *name)
{
    g_log.hfd = hfd;
    g_log.format = format;
    g_log.max_level = max_level;
    g_log.name = name;
}

bool log_enabled(enum log_level level)
{
    return level <= g_log.max_level;
}

/* The last byte stays free for the newline. */
static void put_char(struct line *line, char c)
{
    if (line->len < sizeof(line->bytes) - 1)
        line->bytes[line->len++] = c;
}

static void put_str(struct line *line, const char *s)
{
    while (*s)
        put_char(line, *s++);
}

static void put_digits(struct line *line, uint64_t value, int width)
{
    char digits[20];
    int count = 0;
    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    while (width-- > count)
        put_char(line, '0');
    while (count)
        put_char(line, digits[--count]);
}

/* UTC by hand: gmtime_r may read the time zone files. (Days to civil date: shift the year's start to
 * March, so that the leap day is the last one.) */
static void put_time(struct line *line)
{
    int64_t now = host_realtime_ns();
    uint64_t seconds = now > 0 ? (uint64_t)now / 1000000000u : 0;
    uint64_t micros = now > 0 ? (uint64_t)now % 1000000000u / 1000 : 0;
    uint64_t days = seconds / 86400 + 719468;
    uint64_t era = days / 146097;
    uint64_t day_of_era = days % 146097;
    uint64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    uint64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    uint64_t month_index = (5 * day_of_year + 2) / 153;
    uint64_t day = day_of_year - (153 * month_index + 2) / 5 + 1;
    uint64_t month = month_index < 10 ? month_index + 3 : month_index - 9;
    uint64_t year = year_of_era + era * 400 + (month <= 2);

    put_digits(line, year, 4);
    put_char(line, '-');
    put_digits(line, month, 2);
    put_char(line, '-');
    put_digits(line, day, 2);
    put_char(line, 'T');
    put_digits(line, seconds / 3600 % 24, 2);
    put_char(line, ':');
    put_digits(line, seconds / 60 % 60, 2);
    put_char(line, ':');
    put_digits(line, seconds % 60, 2);
    put_char(line, '.');
    put_digits(line, micros, 6);
    put_char(line, 'Z');
}

/* Anything but printable ASCII becomes \xHH in text and \u00HH in JSON. A backslash stays in text (a
 * caller's log_escape has put it there); in JSON it and the quote are escaped once more. */
static void put_message(struct line *line, const char *message)
{
    bool json = g_log.format == LOG_FORMAT_JSON;
    size_t reserve = 8; /* room for one escape and the end of the object */
    for (const char *p = message; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (line->len + reserve + 6 >= sizeof(line->bytes))
            return;
        if (c < 0x20 || c > 0x7e) {
            put_str(line, json ? "\\u00" : "\\x");
            put_char(line, hex_digits[c >> 4]);
            put_char(line, hex_digits[c & 15]);
            continue;
        }
        if (json && (c == '\\' || c == '"'))
            put_char(line, '\\');
        put_char(line, (char)c);
    }
}

static void put_record(struct line *line, enum log_level level, const char *module,
                       const char *message)
{
    if (g_log.format == LOG_FORMAT_TEXT) {
        put_time(line);
        put_char(line, ' ');
        put_str(line, level_names[level]);
        put_char(line, ' ');
        put_str(line, g_log.name);
        put_char(line, '/');
        put_str(line, module);
        put_str(line, ": ");
        put_message(line, message);
        return;
    }
    put_str(line, "{\"time\":\"");
    put_time(line);
    put_str(line, "\",\"level\":\"");
    put_str(line, level_names[level]);
    put_str(line, "\",\"role\":\"");
    put_str(line, g_log.name);
    put_str(line, "\",\"module\":\"");
    put_str(line, module);
    put_str(line, "\",\"msg\":\"");
    put_message(line, message);
    put_str(line, "\"}");
}

static void emit(enum log_level level, const char *module, const char *message)
{
    struct line line;
    line.len = 0;
    put_record(&line, level, module, message);
    line.bytes[line.len++] = '\n';
    (void)host_call3(SYS_write, g_log.hfd, line.bytes, line.len);
}

void log_write(enum log_level level, const char *module, const char *fmt, ...)
{
    if (!log_enabled(level))
        return;
    char message[MESSAGE_MAX];
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    if (len < 0)
        message[0] = '\0';
    else if ((size_t)len >= sizeof(message))
        memcpy(message + sizeof(message) - 4, "...", 4);
    emit(level, module, message);
}

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x7f && c != '\\' && c != '"';
}

const char *log_escape(char *out, size_t out_size, const void *bytes, size_t size)
{
    const unsigned char *in = bytes;
    if (!out_size)
        return "";
    /* Bounded by the buffer, not by `size`: untrusted input may be long. */
    size_t total = 1;
    for (size_t i = 0; i < size && total <= out_size; i++)
        total += is_plain(in[i]) ? 1 : 4;
    size_t tail = total <= out_size ? 1 : 4; /* what must stay free: the end, or "..." and the end */

    size_t len = 0;
    for (size_t i = 0; i < size; i++) {
        if (len + (is_plain(in[i]) ? 1 : 4) + tail > out_size) {
            for (int dot = 0; dot < 3 && len + 1 < out_size; dot++)
                out[len++] = '.';
            break;
        }
        if (is_plain(in[i])) {
            out[len++] = (char)in[i];
            continue;
        }
        out[len++] = '\\';
        out[len++] = 'x';
        out[len++] = hex_digits[in[i] >> 4];
        out[len++] = hex_digits[in[i] & 15];
    }
    out[len] = '\0';
    return out;
}

void log_assert_failed(const char *file, int line, const char *expression)
{
    log_write(LOG_LEVEL_ERR, "assert", "%s:%d: assertion failed: %s", file, line, expression);
    /* abort() takes a lock and may use errno; the crash hook gets its SIGABRT from this as well. */
    long pid = host_call0(SYS_getpid);
    long tid = host_call0(SYS_gettid);
    (void)host_call3(SYS_tgkill, pid, tid, SIGABRT);
    for (;;)
        __builtin_trap();
}
