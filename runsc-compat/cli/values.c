/* SPDX-License-Identifier: Apache-2.0 */
/* Parsers of option values. The text may be anything; nothing is allocated. */
#include "runsc-compat/cli/values.h"

#include <string.h>

__extension__ typedef unsigned __int128 wide;

struct unit {
    const char *suffix;
    uint64_t factor;
};

/* A decimal number with up to nine decimal places times the factor of its unit. */
static int parse_scaled(const char *text, const struct unit *units, uint64_t *ret)
{
    wide whole = 0;
    uint64_t fraction = 0;
    uint64_t divisor = 1;
    const char *p = text;
    for (; *p >= '0' && *p <= '9'; p++) {
        whole = whole * 10 + (unsigned)(*p - '0');
        if (whole > UINT64_MAX)
            return -1;
    }
    if (p == text)
        return -1;
    if (*p == '.') {
        const char *first = ++p;
        for (; *p >= '0' && *p <= '9' && divisor < 1000000000; p++) {
            fraction = fraction * 10 + (uint64_t)(*p - '0');
            divisor *= 10;
        }
        if (p == first)
            return -1;
    }
    for (const struct unit *u = units; u->suffix; u++) {
        if (strcasecmp(p, u->suffix) != 0)
            continue;
        wide value = whole * u->factor;
        value += (wide)fraction * u->factor / divisor;
        if (value > INT64_MAX)
            return -1;
        *ret = (uint64_t)value;
        return 0;
    }
    return -1;
}

int value_size(const char *option, const char *text, uint64_t *ret, struct err *err)
{
    static const struct unit units[] = {
        {"", 1},           {"b", 1},           {"k", 1ull << 10},   {"kb", 1ull << 10}, {"kib", 1ull << 10},
        {"m", 1ull << 20}, {"mb", 1ull << 20}, {"mib", 1ull << 20}, {"g", 1ull << 30},  {"gb", 1ull << 30},
        {"gib", 1ull << 30}, {"t", 1ull << 40}, {"tb", 1ull << 40}, {"tib", 1ull << 40}, {NULL, 0}};
    if (parse_scaled(text, units, ret) == 0)
        return 0;
    return err_set(err, "%s: \"%s\" is not a size; write bytes or a number with k, m, g or t, like 512m",
                   option, text);
}

int value_cpus(const char *option, const char *text, uint32_t *ret, struct err *err)
{
    static const struct unit units[] = {{"", 1000}, {NULL, 0}};
    uint64_t millis;
    if (parse_scaled(text, units, &millis) < 0)
        return err_set(err, "%s: \"%s\" is not a number of CPUs; write it like 2 or 0.5", option, text);
    if (millis < 10 || millis > 4096000)
        return err_set(err, "%s: \"%s\" is out of range; 0.01 to 4096 CPUs are possible", option, text);
    *ret = (uint32_t)millis;
    return 0;
}

int value_duration(const char *option, const char *text, uint64_t *ret_ns, struct err *err)
{
    static const struct unit units[] = {{"", 1000000000},        {"s", 1000000000},
                                        {"ms", 1000000},         {"m", 60000000000},
                                        {"h", 3600000000000},    {NULL, 0}};
    if (parse_scaled(text, units, ret_ns) == 0 && *ret_ns)
        return 0;
    return err_set(err, "%s: \"%s\" is not a duration above 0; write it like 500ms, 60s, 5m or 1h", option,
                   text);
}

static int parse_u32(const char *text, size_t len, uint32_t *ret)
{
    uint64_t value = 0;
    if (len == 0 || len > 10)
        return -1;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    if (value > UINT32_MAX)
        return -1;
    *ret = (uint32_t)value;
    return 0;
}

int value_u32(const char *option, const char *text, uint32_t min, uint32_t max, uint32_t *ret,
              struct err *err)
{
    uint32_t value;
    if (parse_u32(text, strlen(text), &value) < 0 || value < min || value > max)
        return err_set(err, "%s: \"%s\" is not a whole number from %u to %u", option, text, min, max);
    *ret = value;
    return 0;
}

int value_user(const char *option, const char *text, struct value_user *ret, struct err *err)
{
    struct value_user user = {.name = ""};
    size_t len = strcspn(text, ":");
    const char *group = text[len] ? text + len + 1 : NULL;
    if (parse_u32(text, len, &user.uid) == 0 && user.uid != UINT32_MAX) {
        user.gid = user.uid;
        if (group && (parse_u32(group, strlen(group), &user.gid) < 0 || user.gid == UINT32_MAX))
            return err_set(err, "%s: \"%s\": the group after the colon must be a number", option, text);
        *ret = user;
        return 0;
    }
    bool numeric = text[0] >= '0' && text[0] <= '9';
    if (numeric || group || len == 0 || len >= sizeof(user.name))
        return err_set(err, "%s: \"%s\" is not a user; write UID, UID:GID or a name", option, text);
    memcpy(user.name, text, len + 1);
    *ret = user;
    return 0;
}

bool path_clean(const char *path, char *out, size_t size)
{
    size_t len = 0;
    if (path[0] != '/' || size < 2)
        return false;
    while (*path) {
        path += strspn(path, "/");
        size_t name = strcspn(path, "/");
        if (name == 2 && path[0] == '.' && path[1] == '.') {
            while (len > 0 && out[--len] != '/')
                ;
        } else if (name > 1 || (name == 1 && path[0] != '.')) {
            if (len + 1 + name + 1 > size)
                return false;
            out[len++] = '/';
            memcpy(out + len, path, name);
            len += name;
        }
        path += name;
    }
    if (len == 0)
        out[len++] = '/';
    out[len] = '\0';
    return true;
}

bool path_is_beneath(const char *path, const char *dir)
{
    size_t len = strlen(dir);
    if (len == 1) /* "/" */
        return true;
    return strncmp(path, dir, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

int value_mount(const char *option, const char *text, struct value_mount *ret, struct err *err)
{
    size_t src = strcspn(text, ":");
    const char *dst = text[src] ? text + src + 1 : "";
    size_t dst_len = strcspn(dst, ":");
    const char *mode = dst[dst_len] ? dst + dst_len + 1 : "ro";
    char raw[sizeof(ret->dst)];
    if (src == 0 || dst_len == 0)
        return err_set(err, "%s: \"%s\": write it as SOURCE:DESTINATION or SOURCE:DESTINATION:rw", option,
                       text);
    if (src >= sizeof(ret->src) || dst_len >= sizeof(raw))
        return err_set(err, "%s: a path is longer than 4095 bytes", option);
    memcpy(ret->src, text, src);
    ret->src[src] = '\0';
    memcpy(raw, dst, dst_len);
    raw[dst_len] = '\0';
    if (!path_clean(raw, ret->dst, sizeof(ret->dst)))
        return err_set(err, "%s: \"%s\": the destination must be an absolute path", option, text);
    if (ret->dst[1] == '\0')
        return err_set(err, "%s: \"%s\": the destination can't be /; use --root", option, text);
    for (const char *p = ret->dst; *p; p += strcspn(p, "/")) {
        if (strcspn(++p, "/") > 255)
            return err_set(err, "%s: a name in the destination is longer than 255 bytes", option);
    }
    if (strcmp(mode, "ro") != 0 && strcmp(mode, "rw") != 0)
        return err_set(err, "%s: \"%s\": the part after the destination must be ro or rw", option, text);
    ret->writable = mode[1] == 'w';
    return 0;
}

int value_hostname(const char *option, const char *text, struct err *err)
{
    size_t len = strlen(text);
    for (const char *p = text; *p; p++) {
        bool fine = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
                    *p == '-' || *p == '.' || *p == '_';
        if (!fine)
            return err_set(err, "%s: \"%s\": letters, digits, '-', '.' and '_' are possible", option, text);
    }
    if (len == 0 || len > 64)
        return err_set(err, "%s: a host name has 1 to 64 characters", option);
    return 0;
}
