/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of directory changes that namei.c, rename.c and open.c share. Directories are locked.
 */
#pragma once

#include "sentry/vfs/vfs.h"

struct owner { /* of a new inode */
    uint32_t mode, uid, gid;
};
/* `mode` with S_IFMT; applies the rules of a set-group-id directory. */
struct owner namei_owner(const struct creds *creds, const struct inode *dir, uint32_t mode);
MUST_CHECK int namei_may_create(const struct creds *creds, struct inode *dir);
MUST_CHECK int namei_may_delete(const struct creds *creds, struct inode *dir, struct inode *victim);
