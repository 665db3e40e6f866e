/* SPDX-License-Identifier: Apache-2.0 */
/* Where paths start, and what is mounted: chdir(2), chroot(2), getcwd(2), umask(2), mount(2),
 * sync(2). */
#include "base/host.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/mm/uaccess.h"
#include "sentry/syscalls/path_args.h"
#include "sentry/syscalls/syscalls.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

/* Swaps a path of the task's fs context; `p` keeps what is to be put. */
static void swap_path(struct task *task, struct path *field, struct path *p)
{
    lock_acquire(&task->fs->lock);
    struct path old = *field;
    *field = *p;
    *p = old;
    lock_release(&task->fs->lock);
}

static int change_directory(struct task *task, struct path *p)
{
    if (!S_ISDIR(p->dentry->inode->mode))
        return -ENOTDIR;
    int r = vfs_path_permission(task->creds, p, MAY_EXEC);
    if (r == 0)
        swap_path(task, &task->fs->cwd, p);
    return r;
}

int64_t sys_chdir(struct task *task, guest_addr path)
{
    AUTO_PATH found = {0}; /* put last: it holds the old cwd, which `p` may borrow */
    AUTO_PATH_ARG p;
    int r = path_arg_init(&p, task, AT_FDCWD, path, false);
    if (r == 0)
        r = path_arg_walk(&p, WALK_FOLLOW | WALK_DIRECTORY, &found);
    return r < 0 ? r : change_directory(task, &found);
}

int64_t sys_fchdir(struct task *task, int fd)
{
    AUTO_FILE f = fd_table_get_any(task->fds, fd);
    if (!f || !f->path.dentry)
        return -EBADF;
    AUTO_PATH p = f->path;
    path_get(&p);
    return change_directory(task, &p);
}

int64_t sys_chroot(struct task *task, guest_addr path)
{
    AUTO_PATH found = {0};
    AUTO_PATH_ARG p;
    int r = path_arg_init(&p, task, AT_FDCWD, path, false);
    if (r == 0)
        r = path_arg_walk(&p, WALK_FOLLOW | WALK_DIRECTORY, &found);
    if (r == 0)
        r = vfs_path_permission(task->creds, &found, MAY_EXEC);
    if (r < 0)
        return r;
    if (!creds_capable(task->creds, CAP_SYS_CHROOT))
        return -EPERM;
    swap_path(task, &task->fs->root, &found);
    return 0;
}

int64_t sys_getcwd(struct task *task, guest_addr buf, uint64_t size)
{
    struct path root;
    struct path cwd;
    lock_acquire(&task->fs->lock);
    root = task->fs->root;
    cwd = task->fs->cwd;
    path_get(&root);
    path_get(&cwd);
    lock_release(&task->fs->lock);
    AUTO_FREE char *text = NULL;
    int r = cwd.dentry->unhashed ? -ENOENT : vfs_path_text(&cwd, &root, &text);
    path_put(&root);
    path_put(&cwd);
    if (r < 0) {
        text = NULL;
        return r;
    }
    size_t needed = strlen(text) + 1;
    if (needed > size)
        return -ERANGE;
    r = copy_out(task->mm, buf, text, needed);
    return r < 0 ? r : (int64_t)needed;
}

int64_t sys_umask(struct task *task, uint32_t mask)
{
    return __atomic_exchange_n(&task->fs->umask, mask & 0777, __ATOMIC_RELAXED);
}

/* ---- mounts -------------------------------------------------------------------------------------
 */

#define OPTIONS_MAX 4096
#define MOUNT_FLAGS_KEPT                                                                           \
    (MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME | MS_NODIRATIME | MS_RELATIME)

/* A string argument that may be null: then "". */
static int copy_in_option(struct task *task, guest_addr addr, char **ret)
{
    char *text = malloc(OPTIONS_MAX);
    if (!text)
        return -ENOMEM;
    text[0] = '\0';
    ssize_t n = guest_addr_is_null(addr) ? 0 : copy_in_str(task->mm, text, OPTIONS_MAX, addr);
    if (n < 0) {
        free(text);
        return n == -ENAMETOOLONG ? -EINVAL : (int)n;
    }
    *ret = text;
    return 0;
}

static int mount_new_tmpfs(struct task *task, const struct path *at, const char *source,
                           uint32_t flags, guest_addr data)
{
    AUTO_FREE char *options = NULL;
    int r = copy_in_option(task, data, &options);
    if (r < 0) {
        options = NULL;
        return r;
    }
    struct superblock *sb;
    struct inode *root;
    r = tmpfs_new_from_options(options, task->creds, &sb, &root);
    if (r < 0)
        return r;
    r = vfs_mount(task->fs->ns, at, sb, root, flags | MOUNT_BY_GUEST, source);
    inode_put(root);
    superblock_put(sb);
    return r;
}

static int bind_mount(struct task *task, const struct path *at, guest_addr source)
{
    AUTO_PATH_ARG p;
    int r = path_arg_init(&p, task, AT_FDCWD, source, false);
    if (r < 0)
        return r;
    AUTO_PATH from = {0};
    r = path_arg_walk(&p, WALK_FOLLOW, &from);
    if (r < 0)
        return r;
    if (S_ISDIR(from.dentry->inode->mode) != S_ISDIR(at->dentry->inode->mode))
        return -ENOTDIR;
    return vfs_bind(task->fs->ns, at, &from);
}

/* tmpfs and binds; other file systems of the guest's are made at start. */
int64_t sys_mount(struct task *task, guest_addr source, guest_addr target, guest_addr type,
                  uint64_t flags, guest_addr data)
{
    if (!creds_capable(task->creds, CAP_SYS_ADMIN))
        return -EPERM;
    AUTO_PATH_ARG p;
    int r = path_arg_init(&p, task, AT_FDCWD, target, false);
    if (r < 0)
        return r;
    AUTO_PATH at = {0};
    r = path_arg_walk(&p, WALK_FOLLOW, &at);
    if (r < 0)
        return r;
    uint32_t kept = (uint32_t)flags & MOUNT_FLAGS_KEPT;
    if (flags & MS_REMOUNT)
        return vfs_remount(task->fs->ns, &at, kept);
    if (flags & (MS_SHARED | MS_PRIVATE | MS_SLAVE | MS_UNBINDABLE))
        return 0; /* one namespace: nothing is propagated anywhere */
    if (flags & MS_BIND)
        return bind_mount(task, &at, source);
    if (flags & MS_MOVE)
        return -EINVAL;
    AUTO_FREE char *type_name = NULL;
    AUTO_FREE char *source_name = NULL;
    r = copy_in_option(task, type, &type_name);
    if (r == 0)
        r = copy_in_option(task, source, &source_name);
    if (r < 0)
        return r;
    if (strcmp(type_name, "tmpfs") != 0 && strcmp(type_name, "ramfs") != 0)
        return -ENODEV;
    return mount_new_tmpfs(task, &at, source_name, kept, data);
}

int64_t sys_umount2(struct task *task, guest_addr target, int flags)
{
    if (!creds_capable(task->creds, CAP_SYS_ADMIN))
        return -EPERM;
    if (flags & ~(MNT_FORCE | MNT_DETACH | MNT_EXPIRE | UMOUNT_NOFOLLOW))
        return -EINVAL;
    AUTO_PATH_ARG p;
    int r = path_arg_init(&p, task, AT_FDCWD, target, false);
    if (r < 0)
        return r;
    AUTO_PATH at = {0};
    r = path_arg_walk(&p, flags & UMOUNT_NOFOLLOW ? 0 : WALK_FOLLOW, &at);
    return r < 0 ? r : vfs_umount(task->fs->ns, &at, flags);
}

int64_t sys_sync(struct task *task)
{
    return vfs_sync(task->fs->ns);
}

int64_t sys_syncfs(struct task *task, int fd)
{
    AUTO_FILE f = fd_table_get_file(task->fds, fd);
    if (!f)
        return -EBADF;
    struct superblock *sb = f->inode->sb;
    return sb->ops->sync ? sb->ops->sync(sb) : 0;
}
