/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extended attributes: who may (xattr(7)), and a list in memory for file systems that keep their
 * own.
 */
#include "sentry/vfs/xattr_list.h"

#include "sentry/vfs/vfs_internal.h"
#include <errno.h>
#include <linux/capability.h>
#include <linux/xattr.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool has_prefix(const char *name, const char *prefix)
{
    size_t size = strlen(prefix);
    return strncmp(name, prefix, size) == 0 && name[size];
}

/* The rules of each namespace; `writes` decides between EPERM and ENODATA. */
static int check_name(const struct creds *creds, struct inode *inode, const char *name, bool writes)
{
    if (strcmp(name, XATTR_USER_PREFIX) == 0 || strcmp(name, XATTR_TRUSTED_PREFIX) == 0 ||
        strcmp(name, XATTR_SECURITY_PREFIX) == 0)
        return -EINVAL;
    if (has_prefix(name, XATTR_USER_PREFIX)) {
        if (!S_ISREG(inode->mode) && !S_ISDIR(inode->mode))
            return writes ? -EPERM : -ENODATA;
        if (writes && S_ISDIR(inode->mode) && (inode->mode & S_ISVTX) &&
            creds->fsuid != inode->uid && !creds_capable(creds, CAP_FOWNER))
            return -EPERM;
        if (inode->sb->no_xattr_user)
            return -EOPNOTSUPP;
        return vfs_permission(creds, inode, writes ? MAY_WRITE : MAY_READ);
    }
    if (has_prefix(name, XATTR_TRUSTED_PREFIX)) {
        if (creds_capable(creds, CAP_SYS_ADMIN))
            return 0;
        return writes ? -EPERM : -ENODATA;
    }
    if (has_prefix(name, XATTR_SECURITY_PREFIX)) {
        if (!writes)
            return 0;
        if (strcmp(name, "security.capability") == 0)
            return creds_capable(creds, CAP_SETFCAP) ? 0 : -EPERM;
        return creds_capable(creds, CAP_SYS_ADMIN) ? 0 : -EPERM;
    }
    return -EOPNOTSUPP; /* system.posix_acl_* too: there are no ACLs */
}

ssize_t vfs_getxattr(const struct creds *creds, const struct path *p, const char *name, void *value,
                     size_t size)
{
    struct inode *inode = dentry_inode(p->dentry);
    int r = check_name(creds, inode, name, false);
    if (r < 0)
        return r;
    return inode->ops->getxattr ? inode->ops->getxattr(inode, name, value, size) : -EOPNOTSUPP;
}

int vfs_setxattr(const struct creds *creds, const struct path *p, const char *name,
                 const void *value, size_t size, int flags)
{
    struct inode *inode = dentry_inode(p->dentry);
    int r = mount_writable(p->mount);
    if (r == 0)
        r = check_name(creds, inode, name, true);
    if (r < 0)
        return r;
    if (!inode->ops->setxattr)
        return -EOPNOTSUPP;
    fmutex_lock(&inode->lock);
    r = inode->ops->setxattr(inode, name, value, size, flags);
    if (r == 0)
        inode_touch(inode, ATTR_CTIME);
    fmutex_unlock(&inode->lock);
    return r;
}

/* Names that the caller may not see are left out. */
static ssize_t filter_list(const struct creds *creds, char *list, size_t size)
{
    bool sees_trusted = creds_capable(creds, CAP_SYS_ADMIN);
    size_t out = 0;
    for (size_t in = 0; in < size;) {
        size_t one = strnlen(list + in, size - in) + 1;
        if (sees_trusted || !has_prefix(list + in, XATTR_TRUSTED_PREFIX)) {
            memmove(list + out, list + in, one);
            out += one;
        }
        in += one;
    }
    return (ssize_t)out;
}

ssize_t vfs_listxattr(const struct creds *creds, const struct path *p, char *list, size_t size)
{
    struct inode *inode = dentry_inode(p->dentry);
    if (!inode->ops->listxattr)
        return -EOPNOTSUPP;
    ssize_t n = inode->ops->listxattr(inode, list, size);
    return n > 0 && size ? filter_list(creds, list, (size_t)n) : n;
}

int vfs_removexattr(const struct creds *creds, const struct path *p, const char *name)
{
    struct inode *inode = dentry_inode(p->dentry);
    int r = mount_writable(p->mount);
    if (r == 0)
        r = check_name(creds, inode, name, true);
    if (r < 0)
        return r;
    if (!inode->ops->removexattr)
        return -EOPNOTSUPP;
    fmutex_lock(&inode->lock);
    r = inode->ops->removexattr(inode, name);
    if (r == 0)
        inode_touch(inode, ATTR_CTIME);
    fmutex_unlock(&inode->lock);
    return r;
}

/* ---- the list -----------------------------------------------------------------------------------
 */

struct xattr {
    struct xattr *next;
    size_t size;
    char *value; /* owned */
    char name[];
};

static struct xattr **find(struct xattr_list *l, const char *name)
{
    struct xattr **x = &l->first;
    while (*x && strcmp((*x)->name, name) != 0)
        x = &(*x)->next;
    return x;
}

ssize_t xattr_list_get(struct xattr_list *l, const char *name, void *value, size_t size)
{
    lock_acquire(&l->lock);
    const struct xattr *x = *find(l, name);
    ssize_t r = x ? (ssize_t)x->size : -ENODATA;
    if (x && size) {
        if (size < x->size)
            r = -ERANGE;
        else if (x->size)
            memcpy(value, x->value, x->size);
    }
    lock_release(&l->lock);
    return r;
}

static struct xattr *xattr_new(const char *name, const void *value, size_t size)
{
    size_t name_size = strlen(name) + 1;
    struct xattr *x = malloc(sizeof(*x) + name_size);
    char *copy = malloc(size ? size : 1);
    if (!x || !copy) {
        free(x);
        free(copy);
        return NULL;
    }
    memcpy(x->name, name, name_size);
    if (size)
        memcpy(copy, value, size);
    x->value = copy;
    x->size = size;
    x->next = NULL;
    return x;
}

static void xattr_free(struct xattr *x)
{
    if (x)
        free(x->value);
    free(x);
}

static size_t cost(const struct xattr *x)
{
    return x ? sizeof(*x) + strlen(x->name) + 1 + x->size : 0;
}

int xattr_list_set(struct xattr_list *l, const char *name, const void *value, size_t size,
                   int flags)
{
    if (size > VFS_XATTR_SIZE_MAX)
        return -E2BIG;
    struct xattr *fresh = xattr_new(name, value, size);
    if (!fresh)
        return -ENOMEM;
    int r = 0;
    lock_acquire(&l->lock);
    struct xattr **at = find(l, name);
    struct xattr *old = *at;
    if (old && (flags & XATTR_CREATE)) {
        r = -EEXIST;
    } else if (!old && (flags & XATTR_REPLACE)) {
        r = -ENODATA;
    } else if (l->bytes - cost(old) + cost(fresh) > XATTR_LIST_BYTES_MAX) {
        r = -ENOSPC;
    } else {
        l->bytes = l->bytes - cost(old) + cost(fresh);
        fresh->next = old ? old->next : NULL;
        *at = fresh;
        fresh = old;
    }
    lock_release(&l->lock);
    xattr_free(fresh);
    return r;
}

ssize_t xattr_list_names(struct xattr_list *l, char *list, size_t size)
{
    size_t needed = 0;
    ssize_t r = 0;
    lock_acquire(&l->lock);
    for (const struct xattr *x = l->first; x; x = x->next) {
        size_t one = strlen(x->name) + 1;
        if (size && needed + one > size) {
            r = -ERANGE;
            break;
        }
        if (size)
            memcpy(list + needed, x->name, one);
        needed += one;
    }
    lock_release(&l->lock);
    return r < 0 ? r : (ssize_t)needed;
}

int xattr_list_remove(struct xattr_list *l, const char *name)
{
    lock_acquire(&l->lock);
    struct xattr **at = find(l, name);
    struct xattr *old = *at;
    if (old) {
        *at = old->next;
        l->bytes -= cost(old);
    }
    lock_release(&l->lock);
    if (!old)
        return -ENODATA;
    xattr_free(old);
    return 0;
}

void xattr_list_init(struct xattr_list *l)
{
    lock_init(&l->lock);
    l->first = NULL;
    l->bytes = 0;
}

void xattr_list_fini(struct xattr_list *l)
{
    while (l->first) {
        struct xattr *x = l->first;
        l->first = x->next;
        xattr_free(x);
    }
    lock_fini(&l->lock);
}
