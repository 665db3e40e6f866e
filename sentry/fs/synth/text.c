/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growing texts. Any fiber. What goes in is the sentry's own wording or guest's names. A guest may
 * hold a text for each descriptor that it has, so their memory is bounded: all of them together get
 * a budget of the sentry's, and what is beyond it is charged to the sandbox like the content of
 * tmpfs. (Not all at once: /proc must be readable in a sandbox whose /tmp is full.)
 */
#include "sentry/fs/synth/text.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUDGET MIB(32)

static _Atomic size_t g_budgeted; /* of all texts; relaxed: a bound, nothing depends on its order */

void text_fini(struct text *t)
{
    if (t->charged != 0)
        tmpfs_uncharge(t->charged);
    if (t->budgeted != 0)
        atomic_fetch_sub_explicit(&g_budgeted, t->budgeted, memory_order_relaxed);
    free(t->bytes);
    *t = (struct text){0};
}

static bool pay(struct text *t, size_t more)
{
    size_t before = atomic_fetch_add_explicit(&g_budgeted, more, memory_order_relaxed);
    if (before + more <= BUDGET) {
        t->budgeted += more;
        return true;
    }
    atomic_fetch_sub_explicit(&g_budgeted, more, memory_order_relaxed);
    if (!tmpfs_charge(more))
        return false;
    t->charged += more;
    return true;
}

static bool make_room(struct text *t, size_t more)
{
    if (t->error != 0)
        return false;
    if (more <= t->capacity - t->size)
        return true;
    size_t wanted = t->capacity != 0 ? t->capacity * 2 : 512;
    while (wanted - t->size < more && wanted < TEXT_SIZE_MAX)
        wanted *= 2;
    t->error = -ENOMEM;
    if (wanted > TEXT_SIZE_MAX || wanted - t->size < more)
        return false;
    if (!pay(t, wanted - t->budgeted - t->charged))
        return false;
    char *bytes = realloc(t->bytes, wanted);
    if (bytes == NULL)
        return false;
    t->bytes = bytes;
    t->capacity = wanted;
    t->error = 0;
    return true;
}

void text_append(struct text *t, const void *bytes, size_t size)
{
    if (size == 0 || !make_room(t, size))
        return;
    memcpy(t->bytes + t->size, bytes, size);
    t->size += size;
}

void text_put(struct text *t, const char *string)
{
    text_append(t, string, strlen(string));
}

void text_printf(struct text *t, const char *fmt, ...)
{
    if (!make_room(t, 1))
        return;
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(t->bytes + t->size, t->capacity - t->size, fmt, args);
    va_end(args);
    if (len < 0)
        return;
    if ((size_t)len >= t->capacity - t->size) {
        if (!make_room(t, (size_t)len + 1))
            return;
        va_start(args, fmt);
        len = vsnprintf(t->bytes + t->size, t->capacity - t->size, fmt, args);
        va_end(args);
    }
    t->size += (size_t)len;
}

void text_put_escaped(struct text *t, const char *string, const char *set)
{
    for (const char *c = string; *c != '\0'; c++) {
        if (*c == '\\' || strchr(set, *c) != NULL)
            text_printf(t, "\\%03o", (unsigned)(unsigned char)*c);
        else
            text_append(t, c, 1);
    }
}

void text_pad(struct text *t, size_t line_start, size_t column)
{
    while (t->error == 0 && t->size - line_start < column)
        text_append(t, " ", 1);
}

void text_put_cpu_list(struct text *t, uint64_t mask)
{
    const char *comma = "";
    for (unsigned first = 0; first < 64; first++) {
        if (!(mask >> first & 1))
            continue;
        unsigned last = first;
        while (last < 63 && (mask >> (last + 1) & 1))
            last++;
        if (first == last)
            text_printf(t, "%s%u", comma, first);
        else
            text_printf(t, "%s%u-%u", comma, first, last);
        comma = ",";
        first = last;
    }
}

void text_put_cpu_mask(struct text *t, uint64_t mask, unsigned cpu_count)
{
    if (cpu_count > 32)
        text_printf(t, "%0*x,%08x", (int)(cpu_count - 32 + 3) / 4, (unsigned)(mask >> 32),
                    (unsigned)mask);
    else
        text_printf(t, "%0*x", (int)(cpu_count + 3) / 4, (unsigned)mask);
}
