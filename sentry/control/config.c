/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sentry's configuration as a blob: encode (CLI) and decode (sentry, before lockdown). The order of
 * fields is the wire format. The decoder bounds every length and count and every enum.
 */
#include "sentry/control/control.h"

#include "base/log.h"
#include "base/wire.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_LEN 255u

static void free_strings(char **strings, size_t count)
{
    for (size_t i = 0; strings && i < count; i++)
        free(strings[i]);
    free(strings);
}

void control_config_fini(struct control_config *config)
{
    free(config->platform);
    free_strings(config->argv, config->argc);
    free_strings(config->envp, config->envc);
    free(config->cwd);
    free(config->hostname);
    free(config->user);
    for (size_t i = 0; config->mounts && i < config->mount_count; i++)
        free(config->mounts[i].dst);
    free(config->mounts);
    *config = (struct control_config){0};
}

static void put_strings(struct wire_writer *w, char **strings, size_t count)
{
    wire_put_u32(w, (uint32_t)count);
    for (size_t i = 0; i < count; i++)
        wire_put_str(w, strings[i]);
}

void control_config_encode(const struct control_config *config, struct wire_writer *w)
{
    wire_put_u32(w, CONTROL_VERSION);
    wire_put_u32(w, config->mode);
    wire_put_str(w, config->platform);
    wire_put_u32(w, config->strace);
    wire_put_u32(w, config->log_level);
    wire_put_u32(w, config->log_format);
    put_strings(w, config->argv, config->argc);
    put_strings(w, config->envp, config->envc);
    wire_put_str(w, config->cwd);
    wire_put_u32(w, config->cwd_optional);
    wire_put_str(w, config->hostname);
    wire_put_str(w, config->user);
    wire_put_u32(w, config->uid);
    wire_put_u32(w, config->gid);
    wire_put_u64(w, config->limits.memory_bytes);
    wire_put_u32(w, config->limits.cpu_millis);
    wire_put_u32(w, config->limits.cpu_count);
    wire_put_u32(w, config->limits.pids);
    wire_put_u32(w, (uint32_t)config->mount_count);
    for (size_t i = 0; i < config->mount_count; i++) {
        const struct control_mount *m = &config->mounts[i];
        wire_put_u32(w, m->kind);
        wire_put_u32(w, m->attach);
        wire_put_u32(w, m->read_only);
        wire_put_u32(w, m->shared);
        wire_put_str(w, m->dst);
    }
    wire_put_u32(w, config->tty_mask);
    wire_put_u32(w, config->winsize.rows);
    wire_put_u32(w, config->winsize.cols);
    wire_put_u32(w, config->winsize.xpixel);
    wire_put_u32(w, config->winsize.ypixel);
    wire_put_u64(w, config->drill);
}

static bool get_bool(struct wire_reader *r)
{
    return wire_get_count(r, 1) != 0;
}

/* An enum value below `count`. */
static uint32_t get_enum(struct wire_reader *r, uint32_t count)
{
    return wire_get_count(r, count - 1);
}

static void get_strings(struct wire_reader *r, char ***ret, size_t *ret_count)
{
    uint32_t count = wire_get_count(r, CONTROL_ARGS_MAX);
    /* Each string takes four bytes at least: a count beyond that is a lie, and allocates nothing. */
    if (count > r->left / 4) {
        r->failed = true;
        return;
    }
    char **strings = calloc((size_t)count + 1, sizeof(*strings));
    if (!strings) {
        r->failed = true;
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        strings[i] = wire_get_str(r, CONTROL_STR_MAX);
    *ret = strings;
    *ret_count = count;
}

/* Absolute, no empty, "." or ".." components, no slash at the end except for "/" itself. */
static bool is_clean_path(const char *path)
{
    if (!path || path[0] != '/')
        return false;
    if (!path[1])
        return true;
    for (const char *at = path; *at;) {
        const char *name = at + 1;
        size_t len = strcspn(name, "/");
        if (len == 0 || len > NAME_MAX_LEN || (len == 1 && name[0] == '.') ||
            (len == 2 && name[0] == '.' && name[1] == '.'))
            return false;
        at = name + len;
    }
    return true;
}

static void get_mounts(struct wire_reader *r, struct control_config *config)
{
    uint32_t count = wire_get_count(r, CONTROL_MOUNTS_MAX);
    config->mounts = calloc((size_t)count + 1, sizeof(*config->mounts));
    if (!config->mounts) {
        r->failed = true;
        return;
    }
    config->mount_count = count;
    for (uint32_t i = 0; i < count && !r->failed; i++) {
        struct control_mount *m = &config->mounts[i];
        m->kind = get_enum(r, CONTROL_MOUNT_COUNT);
        m->attach = get_enum(r, CONTROL_MOUNTS_MAX);
        m->read_only = get_bool(r);
        m->shared = get_bool(r);
        m->dst = wire_get_str(r, CONTROL_PATH_MAX);
        if (!is_clean_path(m->dst))
            r->failed = true;
    }
}

static bool is_usable(const struct control_config *config)
{
    if (config->mode != CONTROL_MODE_RUN)
        return true;
    return config->argc >= 1 && config->mount_count >= 1 && strcmp(config->mounts[0].dst, "/") == 0 &&
           config->cwd[0] == '/' && config->limits.cpu_count >= 1;
}

int control_config_decode(const void *bytes, size_t size, struct control_config *ret)
{
    struct wire_reader r;
    struct control_config c = {0};
    wire_reader_init(&r, bytes, size);
    if (wire_get_u32(&r) != CONTROL_VERSION)
        return -EPROTO;
    c.mode = get_enum(&r, CONTROL_MODE_COUNT);
    c.platform = wire_get_str(&r, NAME_MAX_LEN);
    c.strace = get_bool(&r);
    c.log_level = get_enum(&r, LOG_LEVEL_COUNT);
    c.log_format = get_enum(&r, LOG_FORMAT_JSON + 1);
    get_strings(&r, &c.argv, &c.argc);
    get_strings(&r, &c.envp, &c.envc);
    c.cwd = wire_get_str(&r, CONTROL_PATH_MAX);
    c.cwd_optional = get_bool(&r);
    c.hostname = wire_get_str(&r, 64);
    c.user = wire_get_str(&r, NAME_MAX_LEN);
    c.uid = wire_get_u32(&r);
    c.gid = wire_get_u32(&r);
    c.limits.memory_bytes = wire_get_u64(&r);
    c.limits.cpu_millis = wire_get_u32(&r);
    c.limits.cpu_count = wire_get_u32(&r);
    c.limits.pids = wire_get_u32(&r);
    get_mounts(&r, &c);
    c.tty_mask = wire_get_count(&r, 7);
    c.winsize.rows = (uint16_t)wire_get_count(&r, UINT16_MAX);
    c.winsize.cols = (uint16_t)wire_get_count(&r, UINT16_MAX);
    c.winsize.xpixel = (uint16_t)wire_get_count(&r, UINT16_MAX);
    c.winsize.ypixel = (uint16_t)wire_get_count(&r, UINT16_MAX);
    c.drill = wire_get_u64(&r);
    if (!wire_reader_done(&r) || !is_usable(&c)) {
        control_config_fini(&c);
        return -EPROTO;
    }
    *ret = c;
    return 0;
}
