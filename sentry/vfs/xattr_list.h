/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extended attributes of one inode in the sentry's memory; for tmpfs and overlay. Any thread.
 */
#pragma once

#include "base/lock.h"
#include <stddef.h>
#include <sys/types.h>

struct xattr;
struct xattr_list {
    struct lock lock;
    struct xattr *first; /* lock */
    size_t bytes;        /* lock */
};
#define XATTR_LIST_BYTES_MAX 131072

void xattr_list_init(struct xattr_list *l);
void xattr_list_fini(struct xattr_list *l);
/* As the system calls: `size` 0 asks for the size. -ENODATA, -ERANGE. */
ssize_t xattr_list_get(struct xattr_list *l, const char *name, void *value, size_t size);
ssize_t xattr_list_names(struct xattr_list *l, char *list, size_t size);
/* XATTR_CREATE, XATTR_REPLACE. -EEXIST, -ENODATA, -E2BIG, -ENOSPC, -ENOMEM. */
int xattr_list_set(struct xattr_list *l, const char *name, const void *value, size_t size,
                   int flags);
int xattr_list_remove(struct xattr_list *l, const char *name);
