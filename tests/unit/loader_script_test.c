/* SPDX-License-Identifier: Apache-2.0 */
/* loader/script.c: the `#!` line as binfmt_script.c of Linux reads it. */
#include "loader/loader.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <string.h>

static struct loader_script script;

static int parse(const char *line)
{
    return loader_parse_script((const uint8_t *)line, strlen(line), &script);
}

static void expect(const char *line, char *interpreter, char *argument)
{
    cr_assert(eq(int, parse(line), 0), "%s", line);
    cr_expect(eq(str, script.interpreter, interpreter), "%s", line);
    cr_expect(eq(int, script.has_argument, argument != NULL), "%s", line);
    cr_expect(eq(str, script.argument, argument ? argument : ""), "%s", line);
}

Test(loader_script, splits_interpreter_and_argument)
{
    expect("#!/bin/sh\n", "/bin/sh", NULL);
    expect("#!/bin/sh", "/bin/sh", NULL);
    expect("#! \t/bin/sh \t\necho", "/bin/sh", NULL);
    expect("#!/usr/bin/env -S a  b \t \nrest", "/usr/bin/env", "-S a  b");
    expect("#!/bin/sh -e", "/bin/sh", "-e");
    expect("#!/bin/sh -e  ", "/bin/sh", "-e  "); /* no newline: blanks stay, as on Linux */
    expect("#!/bin/sh ", "/bin/sh", "");         /* no newline: an empty argument, as on Linux */
    expect("#!sh\n", "sh", NULL);
}

Test(loader_script, refuses_a_line_without_interpreter)
{
    cr_expect(eq(int, parse(""), -ENOEXEC));
    cr_expect(eq(int, parse("#"), -ENOEXEC));
    cr_expect(eq(int, parse("!#/bin/sh\n"), -ENOEXEC));
    cr_expect(eq(int, parse("#!\n"), -ENOEXEC));
    cr_expect(eq(int, parse("#! \t \n/bin/sh\n"), -ENOEXEC));
}

Test(loader_script, nul_ends_the_line)
{
    const uint8_t line[] = "#!/bin/sh\0-e\n";
    cr_assert(eq(int, loader_parse_script(line, sizeof(line), &script), 0));
    cr_expect(eq(str, script.interpreter, "/bin/sh"));
    cr_expect(not(script.has_argument));
    expect("#!", "", NULL); /* Linux opens the working directory then: EACCES */
}

Test(loader_script, long_lines_may_lose_argument_bytes_but_not_interpreter_bytes)
{
    char line[512];
    memset(line, 'a', sizeof(line));
    memcpy(line, "#!/", 3);
    cr_expect(eq(int, loader_parse_script((uint8_t *)line, 512, &script), -ENOEXEC));
    line[255] = '\n';
    cr_assert(eq(int, loader_parse_script((uint8_t *)line, 512, &script), 0));
    cr_expect(eq(sz, strlen(script.interpreter), 253));
    line[255] = 'a';
    line[100] = ' ';
    cr_assert(eq(int, loader_parse_script((uint8_t *)line, 512, &script), 0));
    cr_expect(eq(sz, strlen(script.interpreter), 98));
    cr_expect(eq(sz, strlen(script.argument), 154));
    memset(line + 2, ' ', 510);
    cr_expect(eq(int, loader_parse_script((uint8_t *)line, 512, &script), -ENOEXEC));
}

Test(loader_script, identifies_files_by_their_first_bytes)
{
    enum loader_kind kind = LOADER_ELF;
    cr_assert(eq(int, loader_identify((const uint8_t *)"#!", 2, &kind), 0));
    cr_expect(eq(int, (int)kind, LOADER_SCRIPT));
    cr_assert(eq(int, loader_identify((const uint8_t *)"\177ELF", 4, &kind), 0));
    cr_expect(eq(int, (int)kind, LOADER_ELF));
    cr_expect(eq(int, loader_identify((const uint8_t *)"\177EL", 3, &kind), -ENOEXEC));
    cr_expect(eq(int, loader_identify((const uint8_t *)"echo hi\n", 8, &kind), -ENOEXEC));
    cr_expect(eq(int, loader_identify((const uint8_t *)"", 0, &kind), -ENOEXEC));
}
