/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credentials: built once, then shared read-only between tasks and open files. Any thread.
 */
#include "sentry/vfs/creds.h"

#include <stdlib.h>
#include <string.h>

#define LOG_MODULE "vfs"
#include "base/log.h"
#include <linux/capability.h>

#define CAP_BIT(c) (UINT64_C(1) << (c))

/* What container engines leave to root. */
#define CONTAINER_CAPS                                                                             \
    (CAP_BIT(CAP_CHOWN) | CAP_BIT(CAP_DAC_OVERRIDE) | CAP_BIT(CAP_FSETID) | CAP_BIT(CAP_FOWNER) |  \
     CAP_BIT(CAP_MKNOD) | CAP_BIT(CAP_NET_RAW) | CAP_BIT(CAP_SETGID) | CAP_BIT(CAP_SETUID) |       \
     CAP_BIT(CAP_SETFCAP) | CAP_BIT(CAP_SETPCAP) | CAP_BIT(CAP_NET_BIND_SERVICE) |                 \
     CAP_BIT(CAP_SYS_CHROOT) | CAP_BIT(CAP_KILL) | CAP_BIT(CAP_AUDIT_WRITE))

static int compare_groups(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static struct creds *alloc_creds(const uint32_t *groups, size_t group_count)
{
    if (group_count > CREDS_GROUPS_MAX)
        return NULL;
    struct creds *c = calloc(1, sizeof(*c) + group_count * sizeof(uint32_t));
    if (!c)
        return NULL;
    atomic_init(&c->refs, 1);
    c->group_count = group_count;
    if (group_count) {
        memcpy(c->groups, groups, group_count * sizeof(uint32_t));
        qsort(c->groups, group_count, sizeof(uint32_t), compare_groups);
    }
    return c;
}

struct creds *creds_copy(const struct creds *old, const uint32_t *groups, size_t group_count)
{
    if (!groups) {
        groups = old->groups;
        group_count = old->group_count;
    }
    struct creds *c = alloc_creds(groups, group_count);
    if (!c)
        return NULL;
    c->uid = old->uid;
    c->euid = old->euid;
    c->suid = old->suid;
    c->fsuid = old->fsuid;
    c->gid = old->gid;
    c->egid = old->egid;
    c->sgid = old->sgid;
    c->fsgid = old->fsgid;
    c->cap_permitted = old->cap_permitted;
    c->cap_effective = old->cap_effective;
    c->cap_inheritable = old->cap_inheritable;
    c->cap_bounding = old->cap_bounding;
    c->cap_ambient = old->cap_ambient;
    c->securebits = old->securebits;
    c->no_new_privs = old->no_new_privs;
    return c;
}

struct creds *creds_new(uint32_t uid, uint32_t gid, const uint32_t *groups, size_t group_count)
{
    struct creds *c = alloc_creds(groups, group_count);
    if (!c)
        return NULL;
    c->uid = c->euid = c->suid = c->fsuid = uid;
    c->gid = c->egid = c->sgid = c->fsgid = gid;
    c->cap_bounding = CONTAINER_CAPS;
    if (uid == 0)
        c->cap_permitted = c->cap_effective = CONTAINER_CAPS;
    return c;
}

struct creds *creds_get(struct creds *c)
{
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    return c;
}

void creds_put(struct creds *c)
{
    if (c && atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) == 1)
        free(c);
}

bool creds_in_group(const struct creds *c, uint32_t gid)
{
    if (c->fsgid == gid)
        return true;
    return c->group_count &&
           bsearch(&gid, c->groups, c->group_count, sizeof(uint32_t), compare_groups) != NULL;
}

bool creds_capable(const struct creds *c, int cap)
{
    return cap >= 0 && cap < 64 && (c->cap_effective & CAP_BIT(cap));
}
