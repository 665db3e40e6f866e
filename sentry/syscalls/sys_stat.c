/* SPDX-License-Identifier: Apache-2.0 */
/* stat(2), statx(2), access(2), statfs(2), readlink(2). */
#include "abi/stat.h"
#include "sentry/mm/uaccess.h"
#include "sentry/syscalls/path_args.h"
#include "sentry/syscalls/syscalls.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define AT_SYNC_TYPES 0x6000 /* AT_STATX_SYNC_TYPE: what we know is always current */

static int copy_out_stat(struct task *task, guest_addr to, const struct kstat *st)
{
    const struct linux_stat out = {
        .dev = st->dev,
        .ino = st->ino,
        .nlink = st->nlink,
        .mode = st->mode,
        .uid = st->uid,
        .gid = st->gid,
        .rdev = st->rdev,
        .size = (int64_t)st->size,
        .blksize = st->blksize,
        .blocks = (int64_t)st->blocks,
        .atime = st->atime,
        .mtime = st->mtime,
        .ctime = st->ctime,
    };
    return copy_out_obj(task->mm, to, &out);
}

/* hot */
static int stat_path(struct task *task, int dirfd, guest_addr path, int at_flags, int allowed,
                     struct kstat *ret, int *ret_mount_id)
{
    uint32_t walk_flags;
    int r = path_walk_flags(at_flags, allowed, &walk_flags);
    if (r < 0)
        return r;
    AUTO_PATH_ARG p;
    r = path_arg_init(&p, task, dirfd, path, walk_flags & WALK_EMPTY);
    if (r < 0)
        return r;
    AUTO_PATH found = {0};
    r = path_arg_walk(&p, walk_flags, &found);
    if (r < 0)
        return r;
    *ret_mount_id = found.mount ? found.mount->id : 0;
    return vfs_getattr(&found, ret);
}

static int64_t do_stat(struct task *task, int dirfd, guest_addr path, guest_addr statbuf,
                       int at_flags)
{
    struct kstat st;
    int mount_id;
    int r = stat_path(task, dirfd, path, at_flags,
                      AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_NO_AUTOMOUNT, &st, &mount_id);
    return r < 0 ? r : copy_out_stat(task, statbuf, &st);
}

int64_t sys_stat(struct task *task, guest_addr path, guest_addr statbuf)
{
    return do_stat(task, AT_FDCWD, path, statbuf, 0);
}

int64_t sys_lstat(struct task *task, guest_addr path, guest_addr statbuf)
{
    return do_stat(task, AT_FDCWD, path, statbuf, AT_SYMLINK_NOFOLLOW);
}

int64_t sys_newfstatat(struct task *task, int dirfd, guest_addr path, guest_addr statbuf, int flags)
{
    if ((flags & AT_EMPTY_PATH) && dirfd >= 0 && guest_addr_is_null(path))
        return sys_fstat(task, dirfd, statbuf);
    return do_stat(task, dirfd, path, statbuf, flags);
}

int64_t sys_fstat(struct task *task, int fd, guest_addr statbuf)
{
    AUTO_FILE f = fd_table_get_any(task->fds, fd);
    if (!f)
        return -EBADF;
    struct kstat st;
    int r = inode_getattr(f->inode, &st);
    return r < 0 ? r : copy_out_stat(task, statbuf, &st);
}

static struct linux_statx_timestamp statx_time(struct linux_timespec t)
{
    return (struct linux_statx_timestamp){.sec = t.sec, .nsec = (uint32_t)t.nsec};
}

int64_t sys_statx(struct task *task, int dirfd, guest_addr path, int flags, uint32_t mask,
                  guest_addr to)
{
    if (mask & STATX__RESERVED || (flags & AT_SYNC_TYPES) == AT_SYNC_TYPES)
        return -EINVAL;
    struct kstat st;
    int mount_id = 0;
    int r = stat_path(task, dirfd, path, flags,
                      AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_NO_AUTOMOUNT | AT_SYNC_TYPES, &st,
                      &mount_id);
    if (r < 0)
        return r;
    struct linux_statx out = {
        .mask = STATX_BASIC_STATS | STATX_MNT_ID,
        .blksize = st.blksize,
        .nlink = (uint32_t)st.nlink,
        .uid = st.uid,
        .gid = st.gid,
        .mode = (uint16_t)st.mode,
        .ino = st.ino,
        .size = st.size,
        .blocks = st.blocks,
        .atime = statx_time(st.atime),
        .ctime = statx_time(st.ctime),
        .mtime = statx_time(st.mtime),
        .rdev_major = major(st.rdev),
        .rdev_minor = minor(st.rdev),
        .dev_major = major(st.dev),
        .dev_minor = minor(st.dev),
        .mnt_id = (uint64_t)mount_id,
    };
    if (st.has_btime) {
        out.mask |= STATX_BTIME;
        out.btime = statx_time(st.btime);
    }
    return copy_out_obj(task->mm, to, &out);
}

/* ---- access -------------------------------------------------------------------------------------
 */

/* access(2) asks for the real ids: credentials with them as the file system ids. A reference. */
static struct creds *real_creds(struct creds *c)
{
    bool is_root = c->uid == 0;
    uint64_t effective = is_root ? c->cap_permitted : 0;
    if (c->fsuid == c->uid && c->fsgid == c->gid && c->cap_effective == effective)
        return creds_get(c);
    struct creds *real = creds_copy(c, NULL, 0);
    if (!real)
        return NULL;
    real->fsuid = c->uid;
    real->fsgid = c->gid;
    real->cap_effective = effective;
    return real;
}

static int64_t do_access(struct task *task, int dirfd, guest_addr path, int mode, int flags)
{
    uint32_t walk_flags;
    int r = path_walk_flags(flags & ~AT_EACCESS, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH, &walk_flags);
    if (r < 0 || (mode & ~(R_OK | W_OK | X_OK)))
        return -EINVAL;
    AUTO_PATH_ARG p;
    r = path_arg_init(&p, task, dirfd, path, walk_flags & WALK_EMPTY);
    if (r < 0)
        return r;
    struct creds *creds = flags & AT_EACCESS ? creds_get(task->creds) : real_creds(task->creds);
    if (!creds)
        return -ENOMEM;
    p.ctx.creds = creds;
    AUTO_PATH found = {0};
    r = path_arg_walk(&p, walk_flags, &found);
    if (r == 0 && mode)
        r = vfs_path_permission(creds, &found, (uint32_t)mode); /* R_OK, W_OK, X_OK are MAY_* */
    creds_put(creds);
    return r;
}

int64_t sys_access(struct task *task, guest_addr path, int mode)
{
    return do_access(task, AT_FDCWD, path, mode, 0);
}

int64_t sys_faccessat(struct task *task, int dirfd, guest_addr path, int mode)
{
    return do_access(task, dirfd, path, mode, 0);
}

int64_t sys_faccessat2(struct task *task, int dirfd, guest_addr path, int mode, int flags)
{
    return do_access(task, dirfd, path, mode, flags);
}

/* ---- readlink, statfs ---------------------------------------------------------------------------
 */

int64_t sys_readlinkat(struct task *task, int dirfd, guest_addr path, guest_addr buf, uint64_t size)
{
    if ((int)size <= 0)
        return -EINVAL;
    size = (uint32_t)size;
    AUTO_PATH_ARG p;
    int r = path_arg_init(&p, task, dirfd, path, true);
    if (r < 0)
        return r;
    bool is_empty = !p.path[0];
    if (is_empty && dirfd == AT_FDCWD)
        return -ENOENT;
    AUTO_PATH found = {0};
    r = path_arg_walk(&p, WALK_EMPTY, &found);
    if (r < 0)
        return r;
    char *target = NULL;
    r = vfs_readlink(&found, &target);
    if (r < 0)
        return is_empty && r == -EINVAL ? -ENOENT : r;
    size_t len = strlen(target);
    if (len > size)
        len = size;
    r = copy_out(task->mm, buf, target, len);
    free(target);
    return r < 0 ? r : (int64_t)len;
}

int64_t sys_readlink(struct task *task, guest_addr path, guest_addr buf, uint64_t size)
{
    return sys_readlinkat(task, AT_FDCWD, path, buf, size);
}

int64_t sys_statfs(struct task *task, guest_addr path, guest_addr to)
{
    AUTO_PATH_ARG p;
    int r = path_arg_init(&p, task, AT_FDCWD, path, false);
    if (r < 0)
        return r;
    AUTO_PATH found = {0};
    r = path_arg_walk(&p, WALK_FOLLOW, &found);
    struct linux_statfs st;
    if (r == 0)
        r = vfs_statfs(&found, &st);
    return r < 0 ? r : copy_out_obj(task->mm, to, &st);
}

int64_t sys_fstatfs(struct task *task, int fd, guest_addr to)
{
    AUTO_FILE f = fd_table_get_any(task->fds, fd);
    if (!f || !f->path.dentry)
        return -EBADF;
    struct linux_statfs st;
    int r = vfs_statfs(&f->path, &st);
    return r < 0 ? r : copy_out_obj(task->mm, to, &st);
}
