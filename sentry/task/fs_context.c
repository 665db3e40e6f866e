/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a task's paths start: root, working directory, umask. Shared by CLONE_FS. Any fiber.
 */
#include "sentry/task/task.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

struct fs_context *fs_context_new(struct mount_namespace *ns, const struct path *root,
                                  const struct path *cwd)
{
    struct fs_context *fs = calloc(1, sizeof *fs);
    if (fs == NULL)
        return NULL;
    fs->refs = 1;
    lock_init(&fs->lock);
    fs->ns = ns;
    atomic_fetch_add(&ns->refs, 1);
    fs->root = *root;
    fs->cwd = *cwd;
    path_get(&fs->root);
    path_get(&fs->cwd);
    fs->umask = 022;
    return fs;
}

struct fs_context *fs_context_copy(struct fs_context *old)
{
    lock_acquire(&old->lock);
    struct path root = old->root, cwd = old->cwd;
    path_get(&root);
    path_get(&cwd);
    uint32_t umask = old->umask;
    lock_release(&old->lock);
    struct fs_context *fs = fs_context_new(old->ns, &root, &cwd);
    if (fs != NULL)
        fs->umask = umask;
    path_put(&root);
    path_put(&cwd);
    return fs;
}

void fs_context_put(struct fs_context *fs)
{
    if (fs == NULL || atomic_fetch_sub(&fs->refs, 1) != 1)
        return;
    path_put(&fs->root);
    path_put(&fs->cwd);
    atomic_fetch_sub(&fs->ns->refs, 1); /* the sandbox itself holds the last one */
    lock_fini(&fs->lock);
    free(fs);
}

void task_walk_begin(struct task *t, struct walk_context *ret)
{
    struct fs_context *fs = t->fs;
    ret->ns = fs->ns;
    ret->creds = t->creds;
    lock_acquire(&fs->lock);
    ret->root = fs->root;
    ret->cwd = fs->cwd;
    path_get(&ret->root);
    path_get(&ret->cwd);
    lock_release(&fs->lock);
}

void task_walk_end(struct walk_context *ctx)
{
    path_put(&ctx->root);
    path_put(&ctx->cwd);
}

int task_at_base(struct task *t, int dirfd, struct path *ret)
{
    if (dirfd == AT_FDCWD) {
        lock_acquire(&t->fs->lock);
        *ret = t->fs->cwd;
        path_get(ret);
        lock_release(&t->fs->lock);
        return 0;
    }
    struct file *f = fd_table_get_any(t->fds, dirfd);
    if (f == NULL)
        return -EBADF;
    *ret = f->path;
    path_get(ret);
    file_put(f);
    return 0;
}
