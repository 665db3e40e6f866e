/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may do what: mode bits, capabilities, mount flags. path_resolution(7), capabilities(7).
 */
#include "sentry/vfs/vfs_internal.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/mount.h>
#include <sys/stat.h>

/* hot */
bool mode_permits(const struct creds *creds, const struct inode *inode, uint32_t mask)
{
    uint32_t mode = atomic_load_explicit(&inode->mode, memory_order_relaxed);
    uint32_t bits = mode;
    if (creds->fsuid == atomic_load_explicit(&inode->uid, memory_order_relaxed))
        bits >>= 6;
    else if (((bits >> 3 ^ bits) & mask) &&
             creds_in_group(creds, atomic_load_explicit(&inode->gid, memory_order_relaxed)))
        bits >>= 3;
    if (likely((mask & ~bits & 7) == 0))
        return true;
    if (S_ISDIR(mode))
        return creds_capable(creds, CAP_DAC_OVERRIDE) ||
               (!(mask & MAY_WRITE) && creds_capable(creds, CAP_DAC_READ_SEARCH));
    if (mask == MAY_READ && creds_capable(creds, CAP_DAC_READ_SEARCH))
        return true;
    return (!(mask & MAY_EXEC) || (mode & 0111)) && creds_capable(creds, CAP_DAC_OVERRIDE);
}

int vfs_permission(const struct creds *creds, struct inode *inode, uint32_t mask)
{
    if (!mode_permits(creds, inode, mask))
        return -EACCES;
    if (inode->ops->permission)
        return inode->ops->permission(inode, creds, mask);
    return 0;
}

int mount_writable(const struct mount *m)
{
    return m && (m->flags & MS_RDONLY) ? -EROFS : 0;
}

int vfs_path_permission(const struct creds *creds, const struct path *p, uint32_t mask)
{
    struct inode *inode = dentry_inode(p->dentry);
    uint32_t mode = atomic_load_explicit(&inode->mode, memory_order_relaxed);
    /* Devices, pipes and sockets may be written on a read-only mount: it is not the mount that
     * changes. */
    if ((mask & MAY_WRITE) && (S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode))) {
        int r = mount_writable(p->mount);
        if (r < 0)
            return r;
    }
    if ((mask & MAY_EXEC) && S_ISREG(mode) && p->mount && (p->mount->flags & MS_NOEXEC))
        return -EACCES;
    return vfs_permission(creds, inode, mask);
}
