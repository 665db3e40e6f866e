/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changing attributes, with the rules of chmod(2), chown(2), utimensat(2), truncate(2); readlink,
 * statfs.
 */
#include "sentry/vfs/vfs_internal.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_owner(const struct creds *creds, const struct inode *inode)
{
    return creds->fsuid == inode->uid || creds_capable(creds, CAP_FOWNER);
}

static int check_owner_change(const struct creds *creds, const struct inode *inode,
                              const struct iattr *attr)
{
    bool may_chown = creds_capable(creds, CAP_CHOWN);
    if ((attr->valid & ATTR_UID) && !may_chown &&
        (creds->fsuid != inode->uid || attr->uid != inode->uid))
        return -EPERM;
    if ((attr->valid & ATTR_GID) && !may_chown &&
        (creds->fsuid != inode->uid ||
         (attr->gid != inode->gid && !creds_in_group(creds, attr->gid))))
        return -EPERM;
    return 0;
}

static int check_times(const struct creds *creds, struct inode *inode, const struct iattr *attr)
{
    if (!(attr->valid & (ATTR_ATIME | ATTR_MTIME)) || (attr->valid & (ATTR_SIZE | ATTR_OPEN_FILE)))
        return 0;
    if (is_owner(creds, inode))
        return 0;
    if (attr->valid & ATTR_TIMES_SET)
        return -EPERM;
    return vfs_permission(creds, inode, MAY_WRITE);
}

static int check_size(const struct creds *creds, struct inode *inode, const struct iattr *attr)
{
    if (!(attr->valid & ATTR_SIZE))
        return 0;
    if (S_ISDIR(inode->mode))
        return -EISDIR;
    if (!S_ISREG(inode->mode))
        return -EINVAL;
    return attr->valid & ATTR_OPEN_FILE ? 0 : vfs_permission(creds, inode, MAY_WRITE);
}

/* Set-id bits fall when the owner or the content changes. lock held. */
static void drop_set_ids(const struct creds *creds, const struct inode *inode, struct iattr *attr)
{
    uint32_t mode = attr->valid & ATTR_MODE ? attr->mode : inode->mode;
    if (attr->valid & ATTR_MODE) {
        uint32_t gid = attr->valid & ATTR_GID ? attr->gid : inode->gid;
        if (!creds_in_group(creds, gid) && !creds_capable(creds, CAP_FSETID))
            mode &= ~(uint32_t)S_ISGID;
        attr->mode = mode;
    }
    bool content = (attr->valid & ATTR_SIZE) && !creds_capable(creds, CAP_FSETID);
    if (S_ISDIR(inode->mode) ||
        !((attr->valid & (ATTR_UID | ATTR_GID | ATTR_OWNER_CALL)) || content))
        return;
    uint32_t kept = mode & ~(uint32_t)S_ISUID;
    if (kept & S_IXGRP)
        kept &= ~(uint32_t)S_ISGID;
    if (kept != mode) {
        attr->mode = kept;
        attr->valid |= ATTR_MODE;
    }
}

static int apply(const struct creds *creds, struct inode *inode, struct iattr *attr)
{
    fmutex_lock(&inode->lock);
    drop_set_ids(creds, inode, attr);
    int r = 0;
    if (inode->ops->setattr)
        r = inode->ops->setattr(inode, attr);
    else if (attr->valid & ATTR_SIZE)
        r = 0; /* device-like files have no size to change: O_TRUNC on them is fine */
    if (r == 0 && !inode->ops->setattr)
        inode_apply_iattr(inode, attr);
    fmutex_unlock(&inode->lock);
    return r;
}

int vfs_setattr(const struct creds *creds, const struct path *p, struct iattr *attr)
{
    return inode_setattr(creds, dentry_inode(p->dentry), p->mount, attr);
}

int inode_setattr(const struct creds *creds, struct inode *inode, const struct mount *mount,
                  struct iattr *attr)
{
    int r = attr->valid & ATTR_OPEN_FILE ? 0 : mount_writable(mount);
    if (r < 0)
        return r;
    if ((attr->valid & ATTR_MODE) && !is_owner(creds, inode))
        return -EPERM;
    if ((attr->valid & ATTR_MODE) && S_ISLNK(inode->mode))
        return -EOPNOTSUPP;
    r = check_owner_change(creds, inode, attr);
    if (r == 0)
        r = check_times(creds, inode, attr);
    if (r == 0)
        r = check_size(creds, inode, attr);
    if (r < 0)
        return r;

    struct linux_timespec now = vfs_now();
    if (!(attr->valid & ATTR_TIMES_SET)) {
        attr->atime = now;
        attr->mtime = now;
    }
    if (attr->valid & ATTR_SIZE) {
        attr->valid |= ATTR_MTIME;
        attr->mtime = now;
    }
    attr->valid |= ATTR_CTIME;
    attr->ctime = now;

    bool needs_access = (attr->valid & ATTR_SIZE) && !(attr->valid & ATTR_OPEN_FILE);
    if (needs_access) {
        r = inode_get_write_access(inode);
        if (r < 0)
            return r;
    }
    r = apply(creds, inode, attr);
    if (needs_access)
        inode_put_write_access(inode);
    return r;
}

int vfs_readlink(const struct path *p, char **ret_target)
{
    struct inode *inode = dentry_inode(p->dentry);
    if (!S_ISLNK(inode->mode))
        return -EINVAL;
    const char *cached = atomic_load_explicit(&inode->link_target, memory_order_acquire);
    if (cached) {
        *ret_target = strdup(cached);
        return *ret_target ? 0 : -ENOMEM;
    }
    return inode->ops->readlink ? inode->ops->readlink(inode, ret_target) : -EINVAL;
}

int vfs_statfs(const struct path *p, struct linux_statfs *ret)
{
    struct superblock *sb = dentry_inode(p->dentry)->sb;
    *ret = (struct linux_statfs){
        .type = sb->magic, .bsize = PAGE_SIZE, .frsize = PAGE_SIZE, .namelen = VFS_NAME_MAX};
    ret->fsid[0] = (int32_t)sb->dev;
    int r = sb->ops->statfs ? sb->ops->statfs(sb, ret) : 0;
    if (r == 0)
        ret->flags = 0x20 /* ST_VALID */ | (p->mount ? (int64_t)(p->mount->flags & 0xfffU) : 0);
    return r;
}
