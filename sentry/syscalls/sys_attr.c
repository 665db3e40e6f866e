/* SPDX-License-Identifier: Apache-2.0 */
/* chmod(2), chown(2), utimensat(2), truncate(2). */
#include "abi/stat.h"
#include "sentry/mm/uaccess.h"
#include "sentry/syscalls/path_args.h"
#include "sentry/syscalls/syscalls.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

/* One attribute change by path. */
static int64_t change_path(struct task *task, int dirfd, guest_addr path, int at_flags, int allowed,
                           struct iattr *attr)
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
    return r < 0 ? r : vfs_setattr(task->creds, &found, attr);
}

static int64_t change_fd(struct task *task, int fd, struct iattr *attr)
{
    AUTO_FILE f = fd_table_get_file(task->fds, fd);
    if (!f || !f->path.dentry)
        return -EBADF;
    return vfs_setattr(task->creds, &f->path, attr);
}

int64_t sys_fchmodat2(struct task *task, int dirfd, guest_addr path, uint32_t mode, int flags)
{
    struct iattr attr = {.valid = ATTR_MODE, .mode = mode & 07777};
    return change_path(task, dirfd, path, flags, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH, &attr);
}

int64_t sys_fchmodat(struct task *task, int dirfd, guest_addr path, uint32_t mode)
{
    return sys_fchmodat2(task, dirfd, path, mode, 0);
}

int64_t sys_chmod(struct task *task, guest_addr path, uint32_t mode)
{
    return sys_fchmodat2(task, AT_FDCWD, path, mode, 0);
}

int64_t sys_fchmod(struct task *task, int fd, uint32_t mode)
{
    struct iattr attr = {.valid = ATTR_MODE, .mode = mode & 07777};
    return change_fd(task, fd, &attr);
}

/* An id of -1 stays as it is. */
static struct iattr owner_attr(uint32_t uid, uint32_t gid)
{
    return (struct iattr){.valid = ATTR_OWNER_CALL | (uid != UINT32_MAX ? ATTR_UID : 0) |
                                   (gid != UINT32_MAX ? ATTR_GID : 0),
                          .uid = uid,
                          .gid = gid};
}

int64_t sys_fchownat(struct task *task, int dirfd, guest_addr path, uint32_t uid, uint32_t gid,
                     int flags)
{
    struct iattr attr = owner_attr(uid, gid);
    return change_path(task, dirfd, path, flags, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH, &attr);
}

int64_t sys_chown(struct task *task, guest_addr path, uint32_t uid, uint32_t gid)
{
    return sys_fchownat(task, AT_FDCWD, path, uid, gid, 0);
}

int64_t sys_lchown(struct task *task, guest_addr path, uint32_t uid, uint32_t gid)
{
    return sys_fchownat(task, AT_FDCWD, path, uid, gid, AT_SYMLINK_NOFOLLOW);
}

int64_t sys_fchown(struct task *task, int fd, uint32_t uid, uint32_t gid)
{
    struct iattr attr = owner_attr(uid, gid);
    return change_fd(task, fd, &attr);
}

/* ---- times --------------------------------------------------------------------------------------
 */

/* Two times, either of which may be UTIME_NOW or UTIME_OMIT. 1: both omitted. */
static int times_attr(const struct linux_timespec times[2], struct iattr *ret)
{
    struct iattr attr = {.valid = ATTR_ATIME | ATTR_MTIME, .atime = times[0], .mtime = times[1]};
    bool both_now = true;
    for (int i = 0; i < 2; i++) {
        struct linux_timespec *t = i ? &attr.mtime : &attr.atime;
        if (t->nsec == UTIME_NOW) {
            *t = vfs_now();
            continue;
        }
        both_now = false;
        if (t->nsec == UTIME_OMIT)
            attr.valid &= ~(i ? ATTR_MTIME : ATTR_ATIME);
        else if (t->nsec < 0 || t->nsec > 999999999)
            return -EINVAL;
    }
    if (!(attr.valid & (ATTR_ATIME | ATTR_MTIME)))
        return 1;
    if (!both_now)
        attr.valid |= ATTR_TIMES_SET;
    *ret = attr;
    return 0;
}

static int64_t set_times(struct task *task, int dirfd, guest_addr path,
                         const struct linux_timespec times[2], int flags)
{
    struct iattr attr;
    int r = times_attr(times, &attr);
    if (r != 0)
        return r < 0 ? r : 0;
    if (guest_addr_is_null(path) && dirfd != AT_FDCWD)
        return flags ? -EINVAL : change_fd(task, dirfd, &attr);
    return change_path(task, dirfd, path, flags, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH, &attr);
}

static const struct linux_timespec g_now[2] = {{.nsec = UTIME_NOW}, {.nsec = UTIME_NOW}};

int64_t sys_utimensat(struct task *task, int dirfd, guest_addr path, guest_addr times_addr,
                      int flags)
{
    struct linux_timespec times[2];
    if (guest_addr_is_null(times_addr))
        return set_times(task, dirfd, path, g_now, flags);
    int r = copy_in(task->mm, times, times_addr, sizeof(times));
    return r < 0 ? r : set_times(task, dirfd, path, times, flags);
}

/* The older calls count in microseconds or seconds: pairs of 64-bit numbers. */
static int64_t set_times_us(struct task *task, int dirfd, guest_addr path, guest_addr times_addr)
{
    int64_t tv[4];
    if (guest_addr_is_null(times_addr))
        return set_times(task, dirfd, path, g_now, 0);
    int r = copy_in(task->mm, tv, times_addr, sizeof(tv));
    if (r < 0)
        return r;
    if (tv[1] < 0 || tv[1] > 999999 || tv[3] < 0 || tv[3] > 999999)
        return -EINVAL;
    const struct linux_timespec times[2] = {{.sec = tv[0], .nsec = tv[1] * 1000},
                                            {.sec = tv[2], .nsec = tv[3] * 1000}};
    return set_times(task, dirfd, path, times, 0);
}

int64_t sys_futimesat(struct task *task, int dirfd, guest_addr path, guest_addr times)
{
    return set_times_us(task, dirfd, path, times);
}

int64_t sys_utimes(struct task *task, guest_addr path, guest_addr times)
{
    return set_times_us(task, AT_FDCWD, path, times);
}

int64_t sys_utime(struct task *task, guest_addr path, guest_addr times_addr)
{
    int64_t seconds[2];
    if (guest_addr_is_null(times_addr))
        return set_times(task, AT_FDCWD, path, g_now, 0);
    int r = copy_in(task->mm, seconds, times_addr, sizeof(seconds));
    if (r < 0)
        return r;
    const struct linux_timespec times[2] = {{.sec = seconds[0]}, {.sec = seconds[1]}};
    return set_times(task, AT_FDCWD, path, times, 0);
}

/* ---- size ---------------------------------------------------------------------------------------
 */

/* RLIMIT_FSIZE for a file that is to become `size` bytes long. */
static int check_limit(struct task *task, const struct file *f, int64_t size)
{
    uint64_t limit = task_rlimit(task, RLIMIT_FSIZE);
    if (limit == RLIM_INFINITY || (uint64_t)size <= limit)
        return 0;
    if (!f)
        return -EFBIG;
    int64_t r = file_size_allowed(task, f, size, 1);
    return r < 0 ? (int)r : 0;
}

int64_t sys_truncate(struct task *task, guest_addr path, int64_t length)
{
    if (length < 0)
        return -EINVAL;
    int r = check_limit(task, NULL, length);
    if (r < 0)
        return r;
    struct iattr attr = {.valid = ATTR_SIZE, .size = (uint64_t)length};
    return change_path(task, AT_FDCWD, path, 0, 0, &attr);
}

int64_t sys_ftruncate(struct task *task, int fd, int64_t length)
{
    if (length < 0)
        return -EINVAL;
    AUTO_FILE f = fd_table_get_any(task->fds, fd);
    if (!f)
        return -EBADF;
    int r = check_limit(task, f, length);
    return r < 0 ? r : vfs_ftruncate(f, (uint64_t)length);
}
