/* SPDX-License-Identifier: Apache-2.0 */
/* loader/stack.c: the image is read back as a program's start code would read it. */
#include "loader/loader.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TOP 0x7ffffffff000UL

static uint8_t *image;
static uint64_t size;
static struct loader_stack_layout layout;

static uint64_t word(uint64_t va)
{
    uint64_t value;
    cr_assert(va >= TOP - size && va <= TOP - 8, "%lx outside the image", va);
    memcpy(&value, image + (va - (TOP - size)), 8);
    return value;
}

static char *string(uint64_t va)
{
    cr_assert(va >= TOP - size && va < TOP, "%lx outside the image", va);
    return (char *)image + (va - (TOP - size));
}

static void build(const struct loader_stack_input *in)
{
    cr_assert(eq(int, loader_stack_size(in, MIB(6), &size), 0));
    image = malloc(size);
    memset(image, 0xee, size);
    loader_build_stack(in, image, size, &layout);
}

Test(loader_stack, holds_everything_in_the_abi_order)
{
    char *argv[] = {"prog", "", "third"};
    char *envp[] = {"A=1", "PATH=/bin"};
    const struct loader_auxv auxv[] = {{AT_PAGESZ, 4096}, {AT_ENTRY, 0x1234}};
    struct loader_stack_input in = {.argv = (const char *const *)argv,
                                    .argc = 3,
                                    .envp = (const char *const *)envp,
                                    .envc = 2,
                                    .execfn = "/bin/prog",
                                    .random = {1, 2, 3, [15] = 16},
                                    .auxv = auxv,
                                    .auxv_count = 2,
                                    .top = TOP};
    build(&in);
    cr_expect(eq(u64, layout.sp % 16, 0));
    cr_expect(eq(u64, layout.sp, TOP - size));
    uint64_t p = layout.sp;
    cr_assert(eq(u64, word(p), 3));
    for (int i = 0; i < 3; i++)
        cr_expect(eq(str, string(word(p + 8 + 8UL * i)), argv[i]));
    cr_expect(eq(u64, word(p + 32), 0));
    cr_expect(eq(str, string(word(p + 40)), "A=1"));
    cr_expect(eq(str, string(word(p + 48)), "PATH=/bin"));
    cr_expect(eq(u64, word(p + 56), 0));
    cr_expect(eq(u64, layout.auxv_start, p + 64));
    cr_expect(eq(u64, layout.auxv_size, 6 * 16));
    cr_expect(eq(u64, word(p + 64), AT_PAGESZ));
    cr_expect(eq(u64, word(p + 72), 4096));
    cr_expect(eq(u64, word(p + 96), AT_RANDOM));
    cr_expect(eq(int, memcmp(string(word(p + 104)), in.random, 16), 0));
    cr_expect(eq(u64, word(p + 112), AT_EXECFN));
    cr_expect(eq(str, string(word(p + 120)), "/bin/prog"));
    cr_expect(eq(u64, word(p + 128), AT_PLATFORM));
    cr_expect(eq(str, string(word(p + 136)), "x86_64"));
    cr_expect(eq(u64, word(p + 144), AT_NULL));
    cr_expect(eq(u64, layout.arg_start, word(p + 8)));
    cr_expect(eq(u64, layout.arg_end - layout.arg_start, sizeof("prog") + 1 + sizeof("third")));
    cr_expect(eq(u64, layout.env_start, layout.arg_end));
    cr_expect(eq(u64, layout.env_start, word(p + 40)));
    cr_expect(eq(u64, layout.env_end - layout.env_start, sizeof("A=1") + sizeof("PATH=/bin")));
    cr_expect(eq(u64, word(p + 120), layout.env_end));
    cr_expect(eq(u64, word(TOP - 8), 0));
    cr_expect(eq(u64, word(p + 120) + sizeof("/bin/prog"), TOP - 8));
    free(image);
}

Test(loader_stack, empty_argv_becomes_one_empty_string)
{
    struct loader_stack_input in = {.execfn = "/x", .top = TOP};
    build(&in);
    cr_expect(eq(u64, word(layout.sp), 1));
    cr_expect(eq(str, string(word(layout.sp + 8)), ""));
    cr_expect(eq(u64, word(layout.sp + 16), 0));
    cr_expect(eq(u64, word(layout.sp + 24), 0));
    cr_expect(eq(u64, layout.arg_end - layout.arg_start, 1));
    free(image);
}

Test(loader_stack, alignment_holds_for_every_count)
{
    const char *argv[] = {"a", "bb", "ccc", "dddd", "e", "f", "g"};
    for (size_t argc = 1; argc <= 7; argc++) {
        struct loader_stack_input in = {
            .argv = (const char *const *)argv, .argc = argc, .execfn = "/x", .top = TOP};
        build(&in);
        cr_expect(eq(u64, layout.sp % 16, 0));
        cr_expect(eq(u64, layout.auxv_start, layout.sp + 8 * (argc + 3)));
        free(image);
    }
}

Test(loader_stack, too_many_bytes_are_e2big)
{
    char *big = malloc(KIB(128) + 1);
    memset(big, 'x', KIB(128));
    big[KIB(128)] = '\0';
    const char *argv[] = {"a", big};
    struct loader_stack_input in = {
        .argv = (const char *const *)argv, .argc = 2, .execfn = "/x", .top = TOP};
    cr_expect(eq(int, loader_stack_size(&in, MIB(6), &size), -E2BIG), "one string too long");
    big[KIB(128) - 1] = '\0';
    cr_expect(eq(int, loader_stack_size(&in, MIB(6), &size), 0));
    /* "a", big, "/x" and two pointers */
    uint64_t exact = 2 + KIB(128) + 3 + 16;
    cr_expect(eq(int, loader_stack_size(&in, exact, &size), 0));
    cr_expect(eq(int, loader_stack_size(&in, exact - 1, &size), -E2BIG));
    in.argc = SIZE_MAX / 8;
    cr_expect(eq(int, loader_stack_size(&in, UINT64_MAX, &size), -E2BIG), "not even read");
    free(big);
}

Test(loader_stack, limit_follows_the_stack_limit)
{
    cr_expect(eq(u64, loader_stack_limit(MIB(8)), MIB(2)));
    cr_expect(eq(u64, loader_stack_limit(UINT64_MAX), MIB(6)));
    cr_expect(eq(u64, loader_stack_limit(0), KIB(128)));
}

Test(loader_stack, refuses_an_auxv_that_leaves_no_room)
{
    struct loader_auxv auxv[LOADER_AUXV_MAX] = {0};
    struct loader_stack_input in = {
        .execfn = "/x", .auxv = auxv, .top = TOP, .auxv_count = LOADER_AUXV_MAX - 4};
    cr_expect(eq(int, loader_stack_size(&in, MIB(6), &size), 0));
    in.auxv_count++;
    cr_expect(eq(int, loader_stack_size(&in, MIB(6), &size), -EINVAL));
}
