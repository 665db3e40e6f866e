/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding names: one call of the gofer walks many components, and what lies ahead is remembered. Any fiber;
 * `dir->lock` is held by the caller where vfs says so.
 */
#include "sentry/fs/gofer/node.h"

#include "base/host.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A walk's reply that is being read step by step. */
struct walk_reader {
    struct gofer_walk_reply reply;
    struct wire_reader r;
    uint32_t left;
};

/* The next step; the reply was decoded as a whole, its steps are checked here. 0 or -EIO. */
static int next_step(struct walk_reader *w, struct gofer_step *ret)
{
    if (w->left == 0)
        return -EIO;
    gofer_get_step(&w->r, ret);
    if (w->r.failed)
        return -EIO;
    w->left--;
    /* Only a directory has something beneath it. */
    if (w->left > 0 && !S_ISDIR(ret->stat.mode))
        return -EIO;
    if (ret->handle && !S_ISDIR(ret->stat.mode))
        return -EIO;
    return 0;
}

/* Walks `path` beneath `dir`. The steps down to `dir` itself, if it had no handle, are consumed: it has one
 * afterwards, and *ret_stop_early says that the walk didn't get to it. */
static int walk_from(struct gofer_rpc *rpc, struct inode *dir, const char *path, struct walk_reader *w,
                     bool *ret_stop_early)
{
    struct gofer_fs *fs = fs_of(dir);
    struct gofer_walk_request req = {.at_path = rpc->path[0]};
    uint32_t depth;
    int error = node_path(fs, node_of(dir), path, rpc->path[0], &req.at, &depth);
    if (!error)
        error = gofer_rpc_walk(rpc, &req, &w->reply);
    if (error)
        return error;
    wire_reader_init(&w->r, w->reply.steps, w->reply.steps_size);
    w->left = w->reply.count;
    *ret_stop_early = w->left < depth;
    for (uint32_t i = 0; i < depth && w->left; i++) {
        struct gofer_step step;
        error = next_step(w, &step);
        if (error)
            return error;
        if (i + 1 == depth && step.handle)
            node_set_handle(fs, node_of(dir), step.handle);
        else
            fs_close_later(fs, step.handle);
    }
    return 0;
}

/* The inode of a step; a symlink brings its target along. */
static int make_inode(struct inode *dir, const char *name, const struct gofer_step *step, const char *target,
                      struct inode **ret)
{
    struct inode *inode = node_get(fs_of(dir), &step->stat, step->handle, dir, name);
    if (!inode)
        return -ENOMEM;
    if (S_ISLNK(inode->mode) && target && *target && !fs_of(dir)->shared) {
        char *copy = strdup(target);
        char *none = NULL;
        if (copy && !atomic_compare_exchange_strong(&inode->link_target, &none, copy))
            free(copy);
    }
    *ret = inode;
    return 0;
}

static int error_of_stop(uint32_t stop)
{
    switch (stop) {
    case GOFER_WALK_MISSING:
        return 0;
    case GOFER_WALK_NOT_DIR:
        return -ENOTDIR;
    case GOFER_WALK_DENIED:
        return -EACCES;
    default:
        return -EIO;
    }
}

/* Asks the gofer about one name: 0 with an inode or NULL, or -errno. */
static int ask(struct inode *dir, const char *name, struct inode **ret)
{
    struct gofer_fs *fs = fs_of(dir);
    AUTO_RPC rpc = {0};
    gofer_rpc_begin(fs->client, &rpc, fs->shared);
    struct walk_reader w;
    bool stopped_early;
    int error = walk_from(&rpc, dir, name, &w, &stopped_early);
    if (error)
        return error;
    *ret = NULL;
    if (stopped_early || w.left == 0)
        return error_of_stop(w.reply.stop);
    struct gofer_step step;
    error = next_step(&w, &step);
    return error ? error : make_inode(dir, name, &step, w.reply.target, ret);
}

int gofer_lookup(struct inode *dir, const char *name, struct inode **ret)
{
    struct gofer_fs *fs = fs_of(dir);
    struct gofer_step step;
    AUTO_FREE char *target = NULL;
    int found = cache_find(fs, dir, name, &step, &target);
    int error = 0;
    if (found == 0)
        *ret = NULL;
    else if (found > 0)
        error = make_inode(dir, name, &step, target, ret);
    else
        error = ask(dir, name, ret);
    fs_flush_closing(fs, CLOSING_FLUSH);
    return error;
}

/* Copies the components of `rest` that a walk can be asked about, one slash between them: up to ".", "..", a
 * name that is too long, or the end of `size` bytes. Their number. */
static uint32_t copy_components(const char *rest, char *path, size_t size)
{
    size_t at = 0;
    uint32_t count = 0;
    for (;;) {
        rest += strspn(rest, "/");
        size_t len = strcspn(rest, "/");
        if (!gofer_name_is_valid(rest, len) || at + len + 2 > size || count == GOFER_STEPS_MAX / 2)
            break;
        if (count)
            path[at++] = '/';
        memcpy(path + at, rest, len);
        at += len;
        rest += len;
        count++;
    }
    path[at] = '\0';
    return count;
}

/* Takes the first component off `path`, and returns the rest. */
static char *cut(char *path)
{
    char *slash = strchr(path, '/');
    if (!slash)
        return path + strlen(path);
    *slash = '\0';
    return slash + 1;
}

/* Remembers the steps of a walk over the components of `path` beneath `at`. */
static void remember(struct gofer_fs *fs, struct walk_reader *w, struct gofer_stat at, char *path,
                     uint64_t changes)
{
    while (*path) {
        char *name = path;
        path = cut(path);
        struct gofer_step step;
        if (w->left == 0) {
            if (w->reply.stop == GOFER_WALK_MISSING)
                cache_put_walked(fs, &at, name, changes, NULL, NULL);
            return;
        }
        if (next_step(w, &step))
            return;
        bool is_last = w->left == 0;
        cache_put_walked(fs, &at, name, changes, &step, is_last ? w->reply.target : NULL);
        at = step.stat;
    }
}

void gofer_lookup_ahead(struct inode *dir, struct dentry *dentry, const char *rest)
{
    (void)dentry;
    struct gofer_fs *fs = fs_of(dir);
    if (fs->shared || !S_ISDIR(dir->mode))
        return;
    uint64_t changes = atomic_load(&fs->changes);
    AUTO_RPC rpc = {0}; /* its scratch space is used even if no call follows */
    gofer_rpc_begin(fs->client, &rpc, false);
    char *components = rpc.path[1];
    if (copy_components(rest, components, GOFER_RPC_PATH_SIZE) < 2)
        return; /* the lookup itself will ask */
    char *first = rpc.path[0];
    size_t len = strcspn(components, "/");
    memcpy(first, components, len);
    first[len] = '\0';
    if (cache_knows(fs, dir, first))
        return;
    struct walk_reader w;
    bool stopped_early;
    if (walk_from(&rpc, dir, components, &w, &stopped_early) || stopped_early)
        return;
    struct gofer_stat at = {.ino = dir->ino, .dev_index = node_of(dir)->dev_index};
    remember(fs, &w, at, components, changes);
}

int gofer_revalidate(struct inode *dir, const char *name, struct inode *inode)
{
    if (!fs_of(dir)->shared)
        return 1;
    struct inode *now = NULL;
    int error = ask(dir, name, &now);
    fs_flush_closing(fs_of(dir), CLOSING_FLUSH);
    if (error)
        return error == -EIO ? error : 0;
    bool is_same = now == inode;
    inode_put(now);
    return is_same;
}

int gofer_readlink(struct inode *inode, char **ret_target)
{
    struct gofer_fs *fs = fs_of(inode);
    const char *known = atomic_load_explicit(&inode->link_target, memory_order_acquire);
    if (known) { /* the walk that found it brought it along */
        *ret_target = strdup(known);
        return *ret_target ? 0 : -ENOMEM;
    }
    AUTO_RPC rpc = {0};
    gofer_rpc_begin(fs->client, &rpc, fs->shared);
    struct gofer_readlink_request req = {.at_path = rpc.path[0]};
    struct gofer_readlink_reply reply;
    int error = node_path(fs, node_of(inode), NULL, rpc.path[0], &req.at, NULL);
    if (!error)
        error = gofer_rpc_readlink(&rpc, &req, &reply);
    if (error)
        return error;
    *ret_target = strdup(reply.target);
    return *ret_target ? 0 : -ENOMEM;
}
