/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credentials: immutable once published, reference-counted. credentials(7), capabilities(7).
 */
#pragma once

#include "base/compiler.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CREDS_GROUPS_MAX 65536 /* NGROUPS_MAX */

struct creds {
    _Atomic uint32_t refs;
    uint32_t uid, euid, suid, fsuid;
    uint32_t gid, egid, sgid, fsgid;
    uint64_t cap_permitted, cap_effective, cap_inheritable, cap_bounding, cap_ambient;
    uint32_t securebits;
    bool no_new_privs;
    size_t group_count;
    uint32_t groups[]; /* sorted */
};

/* A copy with one reference, to be changed before it's published; NULL without memory. `groups` NULL:
 * keep the old ones. */
struct creds *creds_copy(const struct creds *old, const uint32_t *groups, size_t group_count);
/* Fresh ones: every capability for uid 0 within the default container set, none otherwise. */
struct creds *creds_new(uint32_t uid, uint32_t gid, const uint32_t *groups, size_t group_count);
struct creds *creds_get(struct creds *c);
void creds_put(struct creds *c); /* NULL is fine */
bool creds_in_group(const struct creds *c, uint32_t gid); /* fsgid or a supplementary group */
bool creds_capable(const struct creds *c, int cap);       /* in the effective set */
