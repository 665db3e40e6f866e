/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The initial stack of a program (System V ABI AMD64, 3.4.1), laid out as Linux does, from the top:
 * 8 zero bytes, execfn, environment, arguments, padding, platform name, random bytes, padding,
 * auxv, envp[], argv[], argc. Runs in the sentry. The strings are the guest's own; their sizes are
 * bounded by loader_stack_size() before anything is allocated.
 */
#include "loader/loader.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#define ARG_MAX_LEN     KIB(128) /* MAX_ARG_STRLEN and the least ARG_MAX */
#define AUXV_OWN_COUNT  4        /* RANDOM, EXECFN, PLATFORM, NULL */
#define END_MARKER_SIZE 8
#define STACK_ALIGN     16UL
#define RANDOM_SIZE     16

static const char platform_name[] = "x86_64";

/* execve(2) with an empty argv: Linux 5.18 makes it one empty string. */
static const char *const empty_argv[] = {"", NULL};

/* Where everything lies, as offsets from the image's end. */
struct plan {
    const char *const *argv;
    size_t argc;
    uint64_t execfn, env, args, platform, random, auxv, total;
};

static uint64_t align_up(uint64_t offset)
{
    return (offset + STACK_ALIGN - 1) & ~(STACK_ALIGN - 1);
}

/* Adds the strings' sizes to `*offset`: -E2BIG beyond `limit` or when one is too long. */
static int add_strings(const char *const *strings, size_t count, uint64_t limit, uint64_t *offset)
{
    for (size_t i = 0; i < count; i++) {
        size_t len = strnlen(strings[i], ARG_MAX_LEN);
        if (len >= ARG_MAX_LEN)
            return -E2BIG;
        *offset += len + 1;
        if (*offset > limit)
            return -E2BIG;
    }
    return 0;
}

static int make_plan(const struct loader_stack_input *in, uint64_t limit, struct plan *ret)
{
    struct plan plan = {.argv = in->argc ? in->argv : empty_argv, .argc = in->argc ? in->argc : 1};
    if (in->auxv_count > LOADER_AUXV_MAX - AUXV_OWN_COUNT)
        return -EINVAL;
    if (limit > INT64_MAX) /* so that no sum below can wrap */
        limit = INT64_MAX;
    if (plan.argc > limit / 8 || in->envc > limit / 8 || (plan.argc + in->envc) * 8 >= limit)
        return -E2BIG;
    limit += END_MARKER_SIZE - (plan.argc + in->envc) * 8;

    uint64_t offset = END_MARKER_SIZE;
    int err = add_strings(&in->execfn, 1, limit, &offset);
    plan.execfn = offset;
    if (err == 0)
        err = add_strings(in->envp, in->envc, limit, &offset);
    plan.env = offset;
    if (err == 0)
        err = add_strings(plan.argv, plan.argc, limit, &offset);
    plan.args = offset;
    if (err < 0)
        return err;

    offset = plan.platform = align_up(offset) + sizeof(platform_name);
    offset = plan.random = offset + RANDOM_SIZE;
    offset += (in->auxv_count + AUXV_OWN_COUNT) * sizeof(struct loader_auxv);
    plan.auxv = offset;
    plan.total = align_up(offset + (1 + plan.argc + 1 + in->envc + 1) * 8);
    /* argc must lie at the 16-byte aligned start and the auxv right behind envp: the padding goes
     * between the auxv's end and the random bytes. */
    plan.auxv = plan.total - (1 + plan.argc + 1 + in->envc + 1) * 8;
    *ret = plan;
    return 0;
}

uint64_t loader_stack_limit(uint64_t rlimit_stack)
{
    uint64_t limit = rlimit_stack / 4;
    if (limit > MIB(6))
        limit = MIB(6);
    return limit < ARG_MAX_LEN ? ARG_MAX_LEN : limit;
}

int loader_stack_size(const struct loader_stack_input *in, uint64_t limit, uint64_t *ret)
{
    struct plan plan;
    int err = make_plan(in, limit, &plan);
    if (err < 0)
        return err;
    *ret = plan.total;
    return 0;
}

/* The image while it's written: `at` is the next byte for words. */
struct writer {
    uint8_t *image;
    uint64_t size, base; /* base: guest address of image[0] */
    uint64_t at;
};

static uint64_t address(const struct writer *w, uint64_t offset_from_end)
{
    return w->base + w->size - offset_from_end;
}

static void put_word(struct writer *w, uint64_t value)
{
    memcpy(w->image + w->at, &value, sizeof(value));
    w->at += sizeof(value);
}

static void put_auxv(struct writer *w, uint64_t type, uint64_t value)
{
    put_word(w, type);
    put_word(w, value);
}

/* Copies the strings upwards from the place and writes their pointers and a null pointer. */
static void put_strings(struct writer *w, const char *const *strings, size_t count,
                        uint64_t offset_from_end)
{
    uint64_t at = w->size - offset_from_end;
    for (size_t i = 0; i < count; i++) {
        size_t size = strlen(strings[i]) + 1;
        memcpy(w->image + at, strings[i], size);
        put_word(w, w->base + at);
        at += size;
    }
    put_word(w, 0);
}

void loader_build_stack(const struct loader_stack_input *in, uint8_t *image, uint64_t size,
                        struct loader_stack_layout *ret)
{
    struct plan plan;
    if (make_plan(in, UINT64_MAX, &plan) < 0 || plan.total != size)
        __builtin_trap(); /* our caller's bug: loader_stack_size() accepted the same input */

    struct writer w = {.image = image, .size = size, .base = in->top - size};
    memset(image, 0, size);
    put_word(&w, plan.argc);
    put_strings(&w, plan.argv, plan.argc, plan.args);
    put_strings(&w, in->envp, in->envc, plan.env);
    for (size_t i = 0; i < in->auxv_count; i++)
        put_auxv(&w, in->auxv[i].type, in->auxv[i].value);
    put_auxv(&w, AT_RANDOM, address(&w, plan.random));
    put_auxv(&w, AT_EXECFN, address(&w, plan.execfn));
    put_auxv(&w, AT_PLATFORM, address(&w, plan.platform));
    put_auxv(&w, AT_NULL, 0);

    memcpy(image + size - plan.random, in->random, RANDOM_SIZE);
    memcpy(image + size - plan.platform, platform_name, sizeof(platform_name));
    memcpy(image + size - plan.execfn, in->execfn, strlen(in->execfn) + 1);
    *ret = (struct loader_stack_layout){
        .sp = w.base,
        .arg_start = address(&w, plan.args),
        .arg_end = address(&w, plan.env),
        .env_start = address(&w, plan.env),
        .env_end = address(&w, plan.execfn),
        .auxv_start = address(&w, plan.auxv),
        .auxv_size = (in->auxv_count + AUXV_OWN_COUNT) * sizeof(struct loader_auxv),
    };
}
