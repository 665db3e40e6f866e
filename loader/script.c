/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `#!` scripts and the decision which kind a file is. Behaves as fs/binfmt_script.c of Linux,
 * quirks included: a NUL ends the line, the argument is everything after the interpreter in one
 * string, and may be truncated while the interpreter may not. Runs in the sentry; the bytes are
 * hostile.
 */
#include "loader/loader.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* First position in [from, to] that is not blank, or `to` + 1. */
static size_t skip_blanks(const char *line, size_t from, size_t to)
{
    while (from <= to && is_blank(line[from]))
        from++;
    return from;
}

/* First position in [from, to] that ends a word (blank or NUL), or `to` + 1. */
static size_t skip_word(const char *line, size_t from, size_t to)
{
    while (from <= to && !is_blank(line[from]) && line[from] != '\0')
        from++;
    return from;
}

/* Where the line ends: its newline, or the last byte when the interpreter is certainly whole. */
static int find_line_end(const char *line, size_t *ret_end)
{
    const size_t last = LOADER_HEAD_SIZE - 1;
    for (size_t i = 0; i <= last && line[i] != '\0'; i++) {
        if (line[i] == '\n') {
            *ret_end = i;
            return 0;
        }
    }
    size_t name = skip_blanks(line, 2, last);
    if (name > last || skip_word(line, name, last) > last)
        return -ENOEXEC;
    *ret_end = last;
    return 0;
}

int loader_identify(const uint8_t *head, size_t size, enum loader_kind *ret_kind)
{
    if (size >= 2 && head[0] == '#' && head[1] == '!') {
        *ret_kind = LOADER_SCRIPT;
        return 0;
    }
    if (size >= SELFMAG && memcmp(head, ELFMAG, SELFMAG) == 0) {
        *ret_kind = LOADER_ELF;
        return 0;
    }
    return -ENOEXEC;
}

int loader_parse_script(const uint8_t *head, size_t size, struct loader_script *ret)
{
    char line[LOADER_HEAD_SIZE] = {0};
    memcpy(line, head, size < sizeof(line) ? size : sizeof(line));
    if (line[0] != '#' || line[1] != '!')
        return -ENOEXEC;

    size_t end;
    int err = find_line_end(line, &end);
    if (err < 0)
        return err;
    while (is_blank(line[end - 1])) /* stops at the '!' at the latest */
        end--;
    size_t name = skip_blanks(line, 2, end);
    if (name >= end)
        return -ENOEXEC;

    size_t name_end = skip_word(line, name, end);
    size_t argument = 0;
    if (name_end <= end && line[name_end] != '\0')
        argument = skip_blanks(line, name_end, end);
    line[end] = '\0';
    if (argument != 0)
        line[name_end] = '\0';

    *ret = (struct loader_script){.has_argument = argument != 0 && argument < end};
    memcpy(ret->interpreter, line + name, strlen(line + name));
    if (ret->has_argument)
        memcpy(ret->argument, line + argument, strlen(line + argument));
    return 0;
}
