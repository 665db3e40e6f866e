/* SPDX-License-Identifier: Apache-2.0 */
/* Option values and the command line's grammar. */
#include "runsc-compat/cli/options.h"
#include "runsc-compat/cli/values.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static uint64_t size_of(const char *text)
{
    uint64_t value = 0;
    struct err err = {0};
    return value_size("--memory", text, &value, &err) == 0 ? value : UINT64_MAX;
}

Test(values, sizes)
{
    cr_assert_eq(size_of("1048576"), 1048576);
    cr_assert_eq(size_of("2g"), 2ull << 30);
    cr_assert_eq(size_of("1.5G"), 3ull << 29);
    cr_assert_eq(size_of("64MiB"), 64ull << 20);
    static const char *const bad[] = {"", "g", "-1", "1x", "1.", "0x10", " 1", "1 g", "99999999999999999999t"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_assert_eq(size_of(bad[i]), UINT64_MAX, "%s", bad[i]);
}

Test(values, durations_and_cpus)
{
    struct err err = {0};
    uint64_t ns;
    uint32_t millis;
    cr_assert_eq(value_duration("--timeout", "1.5", &ns, &err), 0);
    cr_assert_eq(ns, 1500000000);
    cr_assert_eq(value_duration("--timeout", "500ms", &ns, &err), 0);
    cr_assert_eq(ns, 500000000);
    cr_assert_eq(value_cpus("--cpus", "0.5", &millis, &err), 0);
    cr_assert_eq(millis, 500);
    cr_assert_eq(value_duration("--timeout", "0", &ns, &err), -1);
    cr_assert_neq(err.text[0], '\0');
    err.text[0] = '\0';
    cr_assert_eq(value_cpus("--cpus", "0", &millis, &err), -1);
}

Test(values, users)
{
    struct err err = {0};
    struct value_user user;
    cr_assert_eq(value_user("--user", "1000", &user, &err), 0);
    cr_assert_eq(user.uid, 1000);
    cr_assert_eq(user.gid, 1000);
    cr_assert_eq(value_user("--user", "5:6", &user, &err), 0);
    cr_assert_eq(user.gid, 6);
    cr_assert_eq(value_user("--user", "nobody", &user, &err), 0);
    cr_assert_str_eq(user.name, "nobody");
    cr_assert_eq(value_user("--user", "4294967295", &user, &err), -1);
    cr_assert_eq(value_user("--user", "nobody:5", &user, &err), -1);
    cr_assert_eq(value_user("--user", "", &user, &err), -1);
}

Test(values, mounts)
{
    struct err err = {0};
    static struct value_mount mount;
    cr_assert_eq(value_mount("--mount", "a/b:/x/./y//z/../w", &mount, &err), 0);
    cr_assert_str_eq(mount.src, "a/b");
    cr_assert_str_eq(mount.dst, "/x/y/w");
    cr_assert_not(mount.writable);
    cr_assert_eq(value_mount("--mount", "/a:/b:rw", &mount, &err), 0);
    cr_assert(mount.writable);
    static const char *const bad[] = {"", "/a", "/a:", ":/b", "/a:b", "/a:/", "/a:/..", "/a:/b:wr", "/a:/b:rw:x"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_assert_eq(value_mount("--mount", bad[i], &mount, &err), -1, "%s", bad[i]);
}

Test(values, errors_cannot_drive_a_terminal)
{
    struct err err = {0};
    uint64_t size;
    cr_assert_eq(value_size("--memory", "\x1b[2J\n", &size, &err), -1);
    for (const char *p = err.text; *p; p++)
        cr_assert(*p >= 0x20 && *p < 0x7f);
}

static int parse(struct options *options, struct err *err, ...)
{
    static char *argv[32];
    size_t count = 0;
    va_list args;
    memset(err, 0, sizeof(*err));
    argv[count++] = "bailey";
    va_start(args, err);
    while ((argv[count] = va_arg(args, char *)) != NULL)
        count++;
    va_end(args);
    return options_parse(argv, options, err);
}

Test(options, global_ones_stand_before_or_after_the_command)
{
    struct options o;
    struct err err;
    cr_assert_eq(parse(&o, &err, "--platform=ptrace", "do", "--debug", "--cwd", "/x", "--", "ls", "-l", NULL), 0);
    cr_assert_eq(o.command, COMMAND_DO);
    cr_assert_str_eq(o.global.platform, "ptrace");
    cr_assert(o.global.debug);
    cr_assert_str_eq(o.run.cwd, "/x");
    cr_assert_str_eq(o.run.command[0], "ls");
    cr_assert_str_eq(o.run.command[1], "-l");
}

Test(options, the_command_starts_at_the_first_word_that_is_no_option)
{
    struct options o;
    struct err err;
    cr_assert_eq(parse(&o, &err, "do", "-e", "A=B", "echo", "--debug", NULL), 0);
    cr_assert_str_eq(o.run.command[0], "echo");
    cr_assert_not(o.global.debug);
    cr_assert_str_eq(o.run.envs[0], "A=B");
    options_fini(&o);
}

Test(options, mistakes_are_errors)
{
    struct options o;
    struct err err;
    cr_assert_eq(parse(&o, &err, "frobnicate", NULL), -1);
    cr_assert_eq(parse(&o, &err, "do", "--frobnicate", NULL), -1);
    cr_assert_eq(parse(&o, &err, "--cwd", "/", "do", "x", NULL), -1);
    cr_assert_eq(parse(&o, &err, "do", "--debug=1", "x", NULL), -1);
    cr_assert_eq(parse(&o, &err, "do", "--memory", NULL), -1);
    cr_assert_eq(parse(&o, &err, "do", "--memory", "1k", "x", NULL), -1);
    cr_assert_eq(parse(&o, &err, "do", "--env", "=x", "x", NULL), -1);
    cr_assert_neq(err.text[0], '\0');
}
