/* SPDX-License-Identifier: Apache-2.0 */
/* Path arguments of system calls; see the header. */
#include "sentry/syscalls/path_args.h"

#include "sentry/mm/uaccess.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

/* hot: nobody but the calling fiber can change an fs_context that isn't shared, so it needs no
 * references. */
static void begin_context(struct path_arg *p, struct task *task)
{
    struct fs_context *fs = task->fs;
    p->holds_context = atomic_load_explicit(&fs->refs, memory_order_acquire) > 1;
    if (p->holds_context)
        task_walk_begin(task, &p->ctx);
    else
        p->ctx = (struct walk_context){
            .ns = fs->ns, .creds = task->creds, .root = fs->root, .cwd = fs->cwd};
}

static int init(struct path_arg *p, struct task *task, int dirfd, guest_addr path, bool allow_empty,
                bool is_scoped)
{
    *p = (struct path_arg){0};
    int r = copy_in_path(task->mm, path, allow_empty, &p->path);
    if (r < 0) {
        p->path = NULL;
        return r;
    }
    if (dirfd != AT_FDCWD && (is_scoped || p->path[0] != '/')) {
        p->dir = fd_table_get_any(task->fds, dirfd);
        if (!p->dir || !p->dir->path.dentry) {
            path_arg_fini(p);
            return -EBADF;
        }
    }
    begin_context(p, task);
    p->base = p->dir ? p->dir->path : p->ctx.cwd;
    return 0;
}

int path_arg_init(struct path_arg *p, struct task *task, int dirfd, guest_addr path,
                  bool allow_empty)
{
    return init(p, task, dirfd, path, allow_empty, false);
}

int path_arg_init_scoped(struct path_arg *p, struct task *task, int dirfd, guest_addr path)
{
    return init(p, task, dirfd, path, false, true);
}

void path_arg_fini(struct path_arg *p)
{
    file_put(p->dir);
    free(p->path);
    if (p->holds_context)
        task_walk_end(&p->ctx);
    *p = (struct path_arg){0};
}

int path_arg_walk(struct path_arg *p, uint32_t walk_flags, struct path *ret)
{
    return vfs_walk(&p->ctx, &p->base, p->path, walk_flags, ret);
}

int path_walk_flags(int at_flags, int allowed, uint32_t *ret)
{
    if (at_flags & ~allowed)
        return -EINVAL;
    uint32_t flags = at_flags & AT_SYMLINK_NOFOLLOW ? 0 : WALK_FOLLOW;
    if (at_flags & AT_EMPTY_PATH)
        flags |= WALK_EMPTY;
    *ret = flags;
    return 0;
}

uint32_t path_new_mode(struct task *task, uint32_t mode)
{
    return mode & ~__atomic_load_n(&task->fs->umask, __ATOMIC_RELAXED);
}

int64_t file_size_allowed(struct task *task, const struct file *f, int64_t pos, uint64_t size)
{
    uint64_t limit = task_rlimit(task, RLIMIT_FSIZE);
    if (likely(limit == RLIM_INFINITY) || !f->inode || !S_ISREG(f->inode->mode) || pos < 0)
        return size > INT64_MAX ? INT64_MAX : (int64_t)size;
    if ((uint64_t)pos >= limit && size) {
        struct linux_siginfo info;
        signal_info_kernel(&info, SIGXFSZ, SI_KERNEL);
        (void)signal_send_task(task, &info);
        return -EFBIG;
    }
    uint64_t room = limit - (uint64_t)pos;
    return (int64_t)(size < room ? size : room);
}
