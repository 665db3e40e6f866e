/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks a user up in the bytes of the guest's /etc/passwd. The file is the guest's: lines that don't
 * parse are skipped, nothing is allocated.
 */
#include "sentry/control/control.h"

#include <errno.h>
#include <string.h>

struct field {
    const char *at;
    size_t len;
};

/* Splits "name:pw:uid:gid:gecos:home:shell" into seven fields; false if there are fewer than six. */
static bool split(const char *line, size_t len, struct field fields[7])
{
    size_t count = 0;
    const char *end = line + len;
    for (const char *at = line; count < 7; count++) {
        const char *colon = memchr(at, ':', (size_t)(end - at));
        fields[count] = (struct field){at, (size_t)((colon ? colon : end) - at)};
        if (!colon)
            return count + 1 >= 6;
        at = colon + 1;
    }
    return true;
}

static bool parse_id(struct field f, uint32_t *ret)
{
    uint64_t value = 0;
    if (f.len == 0 || f.len > 10)
        return false;
    for (size_t i = 0; i < f.len; i++) {
        if (f.at[i] < '0' || f.at[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(f.at[i] - '0');
    }
    if (value >= UINT32_MAX) /* (uid_t)-1 is no uid */
        return false;
    *ret = (uint32_t)value;
    return true;
}

static bool parse_line(const char *line, size_t len, const char *name, uint32_t uid,
                       struct control_user *ret)
{
    struct field fields[7];
    struct control_user user = {.home = "/"};
    if (!split(line, len, fields) || !parse_id(fields[2], &user.uid) || !parse_id(fields[3], &user.gid))
        return false;
    if (name ? fields[0].len != strlen(name) || memcmp(fields[0].at, name, fields[0].len) != 0
             : user.uid != uid)
        return false;
    struct field home = fields[5];
    if (home.len && home.len < sizeof(user.home) && home.at[0] == '/' && !memchr(home.at, 0, home.len)) {
        memcpy(user.home, home.at, home.len);
        user.home[home.len] = '\0';
    }
    *ret = user;
    return true;
}

int control_find_user(const char *bytes, size_t size, const char *name, uint32_t uid,
                      struct control_user *ret)
{
    while (size) {
        const char *newline = memchr(bytes, '\n', size);
        size_t len = newline ? (size_t)(newline - bytes) : size;
        if (parse_line(bytes, len, name, uid, ret))
            return 0;
        size_t used = newline ? len + 1 : len;
        bytes += used;
        size -= used;
    }
    return -ENOENT;
}
