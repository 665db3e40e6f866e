/* SPDX-License-Identifier: Apache-2.0 */
/* Names: mkdir(2), mknod(2), link(2), symlink(2), unlink(2), rename(2); getdents(2). */
#include "abi/fcntl.h"
#include "base/host.h"
#include "sentry/mm/uaccess.h"
#include "sentry/syscalls/path_args.h"
#include "sentry/syscalls/syscalls.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int64_t sys_mkdirat(struct task *task, int dirfd, guest_addr path, uint32_t mode)
{
    AUTO_PATH_ARG p;
    int r = path_arg_init(&p, task, dirfd, path, false);
    return r < 0 ? r : vfs_mkdir(&p.ctx, &p.base, p.path, path_new_mode(task, mode & 01777));
}

int64_t sys_mkdir(struct task *task, guest_addr path, uint32_t mode)
{
    return sys_mkdirat(task, AT_FDCWD, path, mode);
}

int64_t sys_mknodat(struct task *task, int dirfd, guest_addr path, uint32_t mode, uint64_t dev)
{
    AUTO_PATH_ARG p;
    int r = path_arg_init(&p, task, dirfd, path, false);
    if (r < 0)
        return r;
    uint32_t kind = mode & S_IFMT;
    uint64_t rdev = kind == S_IFCHR || kind == S_IFBLK ? (uint32_t)dev : 0;
    return vfs_mknod(&p.ctx, &p.base, p.path, kind | path_new_mode(task, mode & 07777), rdev);
}

int64_t sys_mknod(struct task *task, guest_addr path, uint32_t mode, uint64_t dev)
{
    return sys_mknodat(task, AT_FDCWD, path, mode, dev);
}

int64_t sys_symlinkat(struct task *task, guest_addr target, int dirfd, guest_addr linkpath)
{
    AUTO_FREE char *text = NULL;
    int r = copy_in_path(task->mm, target, false, &text);
    if (r < 0) {
        text = NULL;
        return r;
    }
    AUTO_PATH_ARG p;
    r = path_arg_init(&p, task, dirfd, linkpath, false);
    return r < 0 ? r : vfs_symlink(&p.ctx, &p.base, p.path, text);
}

int64_t sys_symlink(struct task *task, guest_addr target, guest_addr linkpath)
{
    return sys_symlinkat(task, target, AT_FDCWD, linkpath);
}

int64_t sys_linkat(struct task *task, int olddirfd, guest_addr oldpath, int newdirfd,
                   guest_addr newpath, int flags)
{
    if (flags & ~(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH))
        return -EINVAL;
    uint32_t walk_flags = flags & AT_SYMLINK_FOLLOW ? WALK_FOLLOW : 0;
    if (flags & AT_EMPTY_PATH)
        walk_flags |= WALK_EMPTY;
    AUTO_PATH_ARG from;
    int r = path_arg_init(&from, task, olddirfd, oldpath, flags & AT_EMPTY_PATH);
    if (r < 0)
        return r;
    if (!from.path[0] && from.dir && from.dir->creds != task->creds &&
        !creds_capable(task->creds, CAP_DAC_READ_SEARCH))
        return -ENOENT;
    AUTO_PATH_ARG to;
    r = path_arg_init(&to, task, newdirfd, newpath, false);
    if (r < 0)
        return r;
    AUTO_PATH old = {0};
    r = path_arg_walk(&from, walk_flags, &old);
    return r < 0 ? r : vfs_link(&to.ctx, &old, &to.base, to.path);
}

int64_t sys_link(struct task *task, guest_addr oldpath, guest_addr newpath)
{
    return sys_linkat(task, AT_FDCWD, oldpath, AT_FDCWD, newpath, 0);
}

static int64_t remove_path(struct task *task, int dirfd, guest_addr path, bool is_dir)
{
    AUTO_PATH_ARG p;
    int r = path_arg_init(&p, task, dirfd, path, false);
    if (r < 0)
        return r;
    return is_dir ? vfs_rmdir(&p.ctx, &p.base, p.path) : vfs_unlink(&p.ctx, &p.base, p.path);
}

int64_t sys_unlinkat(struct task *task, int dirfd, guest_addr path, int flags)
{
    return flags & ~AT_REMOVEDIR ? -EINVAL : remove_path(task, dirfd, path, flags & AT_REMOVEDIR);
}

int64_t sys_unlink(struct task *task, guest_addr path)
{
    return remove_path(task, AT_FDCWD, path, false);
}

int64_t sys_rmdir(struct task *task, guest_addr path)
{
    return remove_path(task, AT_FDCWD, path, true);
}

int64_t sys_renameat2(struct task *task, int olddirfd, guest_addr oldpath, int newdirfd,
                      guest_addr newpath, uint32_t flags)
{
    AUTO_PATH_ARG from;
    int r = path_arg_init(&from, task, olddirfd, oldpath, false);
    if (r < 0)
        return r;
    AUTO_PATH_ARG to;
    r = path_arg_init(&to, task, newdirfd, newpath, false);
    return r < 0 ? r : vfs_rename(&from.ctx, &from.base, from.path, &to.base, to.path, flags);
}

int64_t sys_renameat(struct task *task, int olddirfd, guest_addr oldpath, int newdirfd,
                     guest_addr newpath)
{
    return sys_renameat2(task, olddirfd, oldpath, newdirfd, newpath, 0);
}

int64_t sys_rename(struct task *task, guest_addr oldpath, guest_addr newpath)
{
    return sys_renameat2(task, AT_FDCWD, oldpath, AT_FDCWD, newpath, 0);
}

/* ---- getdents -----------------------------------------------------------------------------------
 */

#define DIRENTS_AT_ONCE KIB(64)

struct dirents {
    struct dir_context ctx;
    uint8_t *buffer; /* owned */
    size_t size, used;
    bool is_old;  /* getdents(2): the type stands at the record's end */
    bool no_room; /* the first entry is larger than the buffer */
    size_t last;  /* offset of the last record */
};

static bool emit_dirent(struct dir_context *ctx, const char *name, size_t name_size, uint64_t ino,
                        uint8_t type, int64_t next_pos)
{
    struct dirents *d = container_of(ctx, struct dirents, ctx);
    size_t head =
        d->is_old ? offsetof(struct linux_dirent, name) : offsetof(struct linux_dirent64, name);
    size_t reclen = (head + name_size + 1 + d->is_old + 7) & ~(size_t)7;
    if (d->size - d->used < reclen) {
        d->no_room = d->used == 0;
        return false;
    }
    uint8_t *at = d->buffer + d->used;
    memset(at, 0, reclen);
    const struct linux_dirent64 record = {
        .ino = ino, .off = next_pos, .reclen = (uint16_t)reclen, .type = type};
    memcpy(at, &record, d->is_old ? offsetof(struct linux_dirent, name) : head);
    memcpy(at + head, name, name_size);
    if (d->is_old)
        at[reclen - 1] = type;
    d->used += reclen;
    ctx->pos = next_pos;
    return true;
}

static int64_t do_getdents(struct task *task, int fd, guest_addr to, uint32_t count, bool is_old)
{
    AUTO_FILE f = fd_table_get_file(task->fds, fd);
    if (!f)
        return -EBADF;
    struct dirents d = {.ctx.emit = emit_dirent,
                        .is_old = is_old,
                        .size = count < DIRENTS_AT_ONCE ? count : DIRENTS_AT_ONCE};
    AUTO_FREE uint8_t *buffer = malloc(d.size ? d.size : 1);
    if (!buffer)
        return -ENOMEM;
    d.buffer = buffer;
    int r = vfs_iterate(f, &d.ctx);
    if (r < 0)
        return r;
    if (!d.used)
        return d.no_room ? -EINVAL : 0;
    r = copy_out(task->mm, to, d.buffer, d.used);
    return r < 0 ? r : (int64_t)d.used;
}

int64_t sys_getdents64(struct task *task, int fd, guest_addr dirents, uint32_t count)
{
    return do_getdents(task, fd, dirents, count, false);
}

int64_t sys_getdents(struct task *task, int fd, guest_addr dirents, uint32_t count)
{
    return do_getdents(task, fd, dirents, count, true);
}
