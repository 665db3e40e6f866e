/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first process of a sandbox: made without a parent to copy from. Runs on a fiber at start.
 */
#define LOG_MODULE "task"
#include "base/log.h"
#include "sentry/task/table.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static const char *env_get(const struct exec_strings *envp, const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < envp->count; i++)
        if (strncmp(envp->strings[i], name, len) == 0 && envp->strings[i][len] == '=')
            return envp->strings[i] + len + 1;
    return NULL;
}

static int try_path(const struct walk_context *ctx, const char *path, struct file **ret)
{
    struct path p = {0};
    int r = vfs_walk(ctx, &ctx->cwd, path, WALK_FOLLOW, &p);
    if (r == 0)
        r = exec_open_path(ctx, &p, ret);
    path_put(&p);
    return r;
}

/* execvp(3)'s search: EACCES is remembered, the next directory tried. *ret_path is malloc'ed. */
static int find_command(const struct walk_context *ctx, const char *name,
                        const struct exec_strings *envp, char **ret_path, struct file **ret)
{
    if (strchr(name, '/') != NULL) {
        int r = try_path(ctx, name, ret);
        if (r == 0)
            *ret_path = strdup(name);
        return r;
    }
    const char *dirs = env_get(envp, "PATH");
    int result = -ENOENT;
    for (const char *at = dirs != NULL ? dirs : DEFAULT_PATH;;) {
        size_t size = strcspn(at, ":");
        char *path;
        if (asprintf(&path, "%.*s%s%s", (int)size, at, size > 0 ? "/" : "", name) < 0)
            return -ENOMEM;
        int r = try_path(ctx, path, ret);
        if (r == 0) {
            *ret_path = path;
            return 0;
        }
        free(path);
        if (r == -EACCES)
            result = r;
        if (at[size] == '\0')
            return result;
        at += size + 1;
    }
}

static struct task *make_task(const struct task_first *first)
{
    struct sighand *sh = sighand_new();
    struct thread_group *g = sh != NULL ? group_new(sh) : NULL;
    struct task *t = g != NULL ? task_new(g, sched_pick_worker()) : NULL;
    if (t == NULL)
        return NULL;
    group_put(g);
    memcpy(g->rlimits, g_sandbox.init_group->rlimits, sizeof g->rlimits);
    g->exit_signal = SIGCHLD;
    g->is_first = true;
    t->fds = first->fds;
    t->creds = creds_new(first->uid, first->gid, &first->gid, 1);
    if (t->creds != NULL && first->uid == 0) /* root of its own world: the sentry honours them, not the host */
        t->creds->cap_permitted = t->creds->cap_effective = t->creds->cap_bounding = (1ULL << 41) - 1;
    struct path root = {g_sandbox.ns->root, g_sandbox.ns->root->root};
    t->fs = fs_context_new(g_sandbox.ns, &root, first->cwd);
    unsigned cpus = g_sandbox.cpu_count;
    t->cpu_mask = cpus >= 64 ? UINT64_MAX : (1ULL << cpus) - 1;
    return t->creds != NULL && t->fs != NULL ? t : NULL;
}

static int link_first(struct task *t, bool own_session)
{
    struct thread_group *g = t->group, *init = g_sandbox.init_group;
    int r = 0;
    tasks_lock();
    t->tid = pid_alloc_locked();
    if (t->tid < 0) {
        tasks_unlock();
        return -EAGAIN;
    }
    task_link_locked(t);
    g->parent = init;
    TAILQ_INSERT_TAIL(&init->children, g, sibling);
    if (own_session) {
        struct session *s = session_new_locked(t->tid);
        struct process_group *pg = s != NULL ? pgrp_new_locked(t->tid, s) : NULL;
        if (pg != NULL)
            pgrp_join_locked(pg, g);
        else
            r = -ENOMEM;
        if (s != NULL)
            session_put_locked(s);
    } else {
        pgrp_join_locked(init->pgrp, g);
    }
    tasks_unlock();
    return r;
}

int task_start_first(const struct task_first *first, struct thread_group **ret_group)
{
    struct task *t = make_task(first);
    if (t == NULL)
        return -ENOMEM;
    struct walk_context ctx;
    struct file *file = NULL;
    char *path = NULL;
    task_walk_begin(t, &ctx);
    int r = find_command(&ctx, first->path_or_name, first->envp, &path, &file);
    task_walk_end(&ctx);
    if (r == 0)
        r = link_first(t, first->own_session);
    if (r == 0)
        r = task_exec(t, file, path, false, first->argv, first->envp);
    if (file != NULL)
        file_put(file);
    free(path);
    if (r != 0)
        return r; /* the sandbox ends: nobody cleans up behind a first process that never was */
    *ret_group = t->group;
    group_get(t->group);
    fiber_start(&t->fiber, task_first_entry, t);
    return 0;
}
