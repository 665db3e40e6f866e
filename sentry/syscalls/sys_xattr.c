/* SPDX-License-Identifier: Apache-2.0 */
/* xattr(7): each call in its path, link and descriptor form. */
#include "base/host.h"
#include "sentry/mm/uaccess.h"
#include "sentry/syscalls/path_args.h"
#include "sentry/syscalls/syscalls.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/xattr.h>

#define NAME_SIZE 256

/* What the call is about: by path (`fd` -1) or by descriptor. The path is the caller's. */
static int find_target(struct task *task, int fd, guest_addr path, uint32_t walk_flags,
                       struct path *ret)
{
    if (fd != -1) {
        AUTO_FILE f = fd_table_get_file(task->fds, fd);
        if (!f || !f->path.dentry)
            return -EBADF;
        *ret = f->path;
        path_get(ret);
        return 0;
    }
    AUTO_PATH_ARG p;
    int r = path_arg_init(&p, task, AT_FDCWD, path, false);
    return r < 0 ? r : path_arg_walk(&p, walk_flags, ret);
}

static int copy_in_name(struct task *task, guest_addr addr, char name[NAME_SIZE])
{
    ssize_t n = copy_in_str(task->mm, name, NAME_SIZE, addr);
    if (n == -ENAMETOOLONG || n == 0)
        return -ERANGE;
    return n < 0 ? (int)n : 0;
}

static int64_t set_value(struct task *task, const struct path *p, guest_addr name_addr,
                         guest_addr value, uint64_t size, int flags)
{
    char name[NAME_SIZE];
    if (flags & ~(XATTR_CREATE | XATTR_REPLACE))
        return -EINVAL;
    int r = copy_in_name(task, name_addr, name);
    if (r < 0)
        return r;
    if (size > VFS_XATTR_SIZE_MAX)
        return -E2BIG;
    AUTO_FREE char *buffer = malloc(size ? size : 1);
    if (!buffer)
        return -ENOMEM;
    r = copy_in(task->mm, buffer, value, size);
    return r < 0 ? r : vfs_setxattr(task->creds, p, name, buffer, size, flags);
}

static int64_t get_value(struct task *task, const struct path *p, guest_addr name_addr,
                         guest_addr value, uint64_t size)
{
    char name[NAME_SIZE];
    int r = copy_in_name(task, name_addr, name);
    if (r < 0)
        return r;
    if (size > VFS_XATTR_SIZE_MAX)
        size = VFS_XATTR_SIZE_MAX;
    AUTO_FREE char *buffer = malloc(size ? size : 1);
    if (!buffer)
        return -ENOMEM;
    ssize_t n = vfs_getxattr(task->creds, p, name, buffer, size);
    if (n <= 0 || !size)
        return n;
    r = copy_out(task->mm, value, buffer, (size_t)n);
    return r < 0 ? r : n;
}

static int64_t list_names(struct task *task, const struct path *p, guest_addr list, uint64_t size)
{
    if (size > VFS_XATTR_LIST_MAX)
        size = VFS_XATTR_LIST_MAX;
    AUTO_FREE char *buffer = malloc(size ? size : 1);
    if (!buffer)
        return -ENOMEM;
    ssize_t n = vfs_listxattr(task->creds, p, buffer, size);
    if (n <= 0 || !size)
        return n == -EOPNOTSUPP ? 0 : n;
    int r = copy_out(task->mm, list, buffer, (size_t)n);
    return r < 0 ? r : n;
}

static int64_t remove_name(struct task *task, const struct path *p, guest_addr name_addr)
{
    char name[NAME_SIZE];
    int r = copy_in_name(task, name_addr, name);
    return r < 0 ? r : vfs_removexattr(task->creds, p, name);
}

/* The three forms of a call. */
#define BY_PATH(call, ...)                                                                         \
    AUTO_PATH p = {0};                                                                             \
    int r = find_target(task, -1, path, WALK_FOLLOW, &p);                                          \
    return r < 0 ? r : call(task, &p, __VA_ARGS__)
#define BY_LINK(call, ...)                                                                         \
    AUTO_PATH p = {0};                                                                             \
    int r = find_target(task, -1, path, 0, &p);                                                    \
    return r < 0 ? r : call(task, &p, __VA_ARGS__)
#define BY_FD(call, ...)                                                                           \
    AUTO_PATH p = {0};                                                                             \
    if (fd < 0)                                                                                    \
        return -EBADF;                                                                             \
    int r = find_target(task, fd, GUEST_NULL, 0, &p);                                              \
    return r < 0 ? r : call(task, &p, __VA_ARGS__)

int64_t sys_setxattr(struct task *task, guest_addr path, guest_addr name, guest_addr value,
                     uint64_t size, int flags)
{
    BY_PATH(set_value, name, value, size, flags);
}

int64_t sys_lsetxattr(struct task *task, guest_addr path, guest_addr name, guest_addr value,
                      uint64_t size, int flags)
{
    BY_LINK(set_value, name, value, size, flags);
}

int64_t sys_fsetxattr(struct task *task, int fd, guest_addr name, guest_addr value, uint64_t size,
                      int flags)
{
    BY_FD(set_value, name, value, size, flags);
}

int64_t sys_getxattr(struct task *task, guest_addr path, guest_addr name, guest_addr value,
                     uint64_t size)
{
    BY_PATH(get_value, name, value, size);
}

int64_t sys_lgetxattr(struct task *task, guest_addr path, guest_addr name, guest_addr value,
                      uint64_t size)
{
    BY_LINK(get_value, name, value, size);
}

int64_t sys_fgetxattr(struct task *task, int fd, guest_addr name, guest_addr value, uint64_t size)
{
    BY_FD(get_value, name, value, size);
}

int64_t sys_listxattr(struct task *task, guest_addr path, guest_addr list, uint64_t size)
{
    BY_PATH(list_names, list, size);
}

int64_t sys_llistxattr(struct task *task, guest_addr path, guest_addr list, uint64_t size)
{
    BY_LINK(list_names, list, size);
}

int64_t sys_flistxattr(struct task *task, int fd, guest_addr list, uint64_t size)
{
    BY_FD(list_names, list, size);
}

int64_t sys_removexattr(struct task *task, guest_addr path, guest_addr name)
{
    BY_PATH(remove_name, name);
}

int64_t sys_lremovexattr(struct task *task, guest_addr path, guest_addr name)
{
    BY_LINK(remove_name, name);
}

int64_t sys_fremovexattr(struct task *task, int fd, guest_addr name)
{
    BY_FD(remove_name, name);
}
