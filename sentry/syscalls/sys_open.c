/* SPDX-License-Identifier: Apache-2.0 */
/* open(2), openat2(2), creat(2). */
#include "abi/fcntl.h"
#include "sentry/mm/uaccess.h"
#include "sentry/syscalls/path_args.h"
#include "sentry/syscalls/syscalls.h"
#include "sentry/task/restart.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>

#define O_LARGEFILE_KERNEL 0100000
#define O_KNOWN                                                                                    \
    (O_ACCMODE | O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_APPEND | O_NONBLOCK | O_SYNC |          \
     O_ASYNC | O_DIRECT | O_LARGEFILE_KERNEL | O_DIRECTORY | O_NOFOLLOW | O_NOATIME | O_CLOEXEC |  \
     O_PATH | O_TMPFILE)

static int check_flags(uint64_t flags)
{
    if ((flags & O_TMPFILE) == O_TMPFILE)
        return flags & O_CREAT || (flags & O_ACCMODE) == O_RDONLY ? -EINVAL : 0;
    if (flags & (O_TMPFILE & ~O_DIRECTORY))
        return -EINVAL; /* half of O_TMPFILE */
    if ((flags & O_CREAT) && (flags & O_DIRECTORY))
        return -EINVAL;
    return 0;
}

static int64_t do_open(struct task *task, int dirfd, guest_addr path, uint32_t flags, uint32_t mode,
                       uint32_t resolve)
{
    if (flags & O_PATH)
        flags &= O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int r = check_flags(flags);
    if (r < 0)
        return r;
    AUTO_PATH_ARG p;
    r = resolve & (WALK_BENEATH | WALK_IN_ROOT) ? path_arg_init_scoped(&p, task, dirfd, path)
                                                : path_arg_init(&p, task, dirfd, path, false);
    if (r < 0)
        return r;
    AUTO_FILE f = NULL;
    r = vfs_open(&p.ctx, &p.base, p.path, flags, path_new_mode(task, mode & 07777), resolve, &f);
    if (r < 0)
        return r == -EINTR ? -ERESTARTSYS : r;
    r = fd_table_install(task->fds, f, 0, task_rlimit(task, RLIMIT_NOFILE), flags & O_CLOEXEC);
    if (r >= 0)
        f = NULL;
    return r == -EINVAL ? -EMFILE : r;
}

int64_t sys_openat(struct task *task, int dirfd, guest_addr path, int flags, uint32_t mode)
{
    return do_open(task, dirfd, path, (uint32_t)flags & O_KNOWN, mode, 0);
}

int64_t sys_open(struct task *task, guest_addr path, int flags, uint32_t mode)
{
    return sys_openat(task, AT_FDCWD, path, flags, mode);
}

int64_t sys_creat(struct task *task, guest_addr path, uint32_t mode)
{
    return sys_openat(task, AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

/* copy_struct_from_user(): a larger struct is fine when what we don't know is zero. */
static int copy_in_how(struct task *task, guest_addr addr, uint64_t size,
                       struct linux_open_how *ret)
{
    if (size < sizeof(*ret))
        return -EINVAL;
    if (size > PAGE_SIZE)
        return -E2BIG;
    int r = copy_in_obj(task->mm, ret, addr);
    for (uint64_t at = sizeof(*ret); r == 0 && at < size; at += sizeof(uint64_t)) {
        uint64_t word = 0;
        uint64_t left = size - at < sizeof(word) ? size - at : sizeof(word);
        r = copy_in(task->mm, &word, GUEST_ADDR(addr.va + at), left);
        if (r == 0 && word)
            r = -E2BIG;
    }
    return r;
}

static int convert_resolve(uint64_t resolve, uint32_t *ret)
{
    static const struct {
        uint64_t bit;
        uint32_t walk;
    } bits[] = {
        {RESOLVE_NO_XDEV, WALK_NO_XDEV},
        {RESOLVE_NO_MAGICLINKS, WALK_NO_MAGICLINKS},
        {RESOLVE_NO_SYMLINKS, WALK_NO_SYMLINKS | WALK_NO_MAGICLINKS},
        {RESOLVE_BENEATH, WALK_BENEATH},
        {RESOLVE_IN_ROOT, WALK_IN_ROOT},
    };
    uint32_t walk = 0;
    for (size_t i = 0; i < ARRAY_COUNT(bits); i++) {
        if (resolve & bits[i].bit)
            walk |= bits[i].walk;
        resolve &= ~bits[i].bit;
    }
    if (resolve & RESOLVE_CACHED)
        return -EAGAIN; /* we can't tell beforehand: callers then try without it */
    if (resolve || (walk & (WALK_BENEATH | WALK_IN_ROOT)) == (WALK_BENEATH | WALK_IN_ROOT))
        return -EINVAL;
    *ret = walk;
    return 0;
}

int64_t sys_openat2(struct task *task, int dirfd, guest_addr path, guest_addr how_addr,
                    uint64_t size)
{
    struct linux_open_how how;
    int r = copy_in_how(task, how_addr, size, &how);
    if (r < 0)
        return r;
    uint32_t resolve;
    if (how.flags & ~(uint64_t)O_KNOWN)
        return -EINVAL;
    bool creates = (how.flags & O_CREAT) || (how.flags & O_TMPFILE) == O_TMPFILE;
    if (creates ? how.mode & ~UINT64_C(07777) : how.mode)
        return -EINVAL;
    if ((how.flags & O_PATH) &&
        (how.flags & ~(uint64_t)(O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)))
        return -EINVAL;
    r = convert_resolve(how.resolve, &resolve);
    if (r < 0)
        return r;
    return do_open(task, dirfd, path, (uint32_t)how.flags, (uint32_t)how.mode, resolve);
}
