/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same operations on an overlay and on a plain tmpfs with the same tree at the start: results,
 * listings and contents must be equal, whatever the dentry cache forgets meanwhile, and the lower
 * must not change. Each input byte pair is one operation on one of a few names.
 */
#include "base/log.h"
#include "sentry/fs/overlay/overlay.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/vfs/vfs_internal.h"
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define OPS_MAX 200

static const char *const g_paths[] = {
    "/a", "/b",   "/d",   "/d/a",   "/d/b", "/d/e", "/d/e/a", "/d/e/b",
    "/n", "/n/a", "/n/e", "/n/e/a", "/s",   "/h",   "/n/b",   "/d/s",
};
#define PATHS (sizeof(g_paths) / sizeof(g_paths[0]))

struct world {
    struct superblock *sb;
    struct inode *root;
    struct mount_namespace *ns;
    struct walk_context ctx;
};

static void world_mount(struct world *w, const struct creds *creds)
{
    w->ns = mount_namespace_new(w->sb, w->root, 0, "fuzz");
    ASSERT(w->ns);
    w->ctx = (struct walk_context){
        .ns = w->ns, .creds = creds, .root = {w->ns->root, w->ns->root->root}};
    w->ctx.cwd = w->ctx.root;
}

static void world_fini(struct world *w)
{
    mount_put(w->ns->root);
    lock_fini(&w->ns->lock);
    free(w->ns);
    inode_put(w->root);
    superblock_put(w->sb);
}

static int write_file(struct world *w, const char *path, int flags, uint8_t byte, int64_t pos)
{
    struct file *f;
    int r = vfs_open(&w->ctx, &w->ctx.cwd, path, (uint32_t)(O_RDWR | flags), 0644, 0, &f);
    if (r < 0)
        return r;
    struct io io;
    io_init_kernel(&io, &byte, 1);
    r = (int)vfs_pwrite(f, &io, pos);
    file_put(f);
    return r;
}

static void plant(struct world *w)
{
    ASSERT(vfs_mkdir(&w->ctx, &w->ctx.cwd, "/d", 0755) == 0);
    ASSERT(vfs_mkdir(&w->ctx, &w->ctx.cwd, "/d/e", 0755) == 0);
    ASSERT(write_file(w, "/a", O_CREAT, 'a', 0) == 1);
    ASSERT(write_file(w, "/d/a", O_CREAT, 'd', 9000) == 1);
    ASSERT(write_file(w, "/d/e/a", O_CREAT, 'e', 2) == 1);
    ASSERT(vfs_symlink(&w->ctx, &w->ctx.cwd, "/s", "d/e") == 0);
    struct path p = {0};
    ASSERT(vfs_walk(&w->ctx, &w->ctx.cwd, "/d/e/a", 0, &p) == 0);
    ASSERT(vfs_link(&w->ctx, &p, &w->ctx.cwd, "/h") == 0);
    path_put(&p);
}

static int link_paths(struct world *w, const char *from, const char *to)
{
    struct path p = {0};
    int r = vfs_walk(&w->ctx, &w->ctx.cwd, from, 0, &p);
    if (r == 0)
        r = vfs_link(&w->ctx, &p, &w->ctx.cwd, to);
    path_put(&p);
    return r;
}

static int change(struct world *w, const char *path, uint8_t how)
{
    struct path p = {0};
    struct iattr attr = {.valid = ATTR_MODE, .mode = 0600U | (how & 077)};
    if (how & 0x40)
        attr = (struct iattr){.valid = ATTR_SIZE, .size = how & 0xf};
    int r = vfs_walk(&w->ctx, &w->ctx.cwd, path, WALK_FOLLOW, &p);
    if (r == 0)
        r = vfs_setattr(w->ctx.creds, &p, &attr);
    path_put(&p);
    return r;
}

static int run_op(struct world *w, uint8_t op, uint8_t what)
{
    const char *a = g_paths[what % PATHS];
    const char *b = g_paths[what / PATHS % PATHS];
    const struct path *cwd = &w->ctx.cwd;
    switch (op % 12) {
    case 0:
        return vfs_mkdir(&w->ctx, cwd, a, 0755);
    case 1:
        return vfs_rmdir(&w->ctx, cwd, a);
    case 2:
        return vfs_unlink(&w->ctx, cwd, a);
    case 3:
    case 4:
        return vfs_rename(&w->ctx, cwd, a, cwd, b, 0);
    case 5:
        return vfs_rename(&w->ctx, cwd, a, cwd, b, RENAME_EXCHANGE);
    case 6:
        return link_paths(w, a, b);
    case 7:
        return write_file(w, a, O_CREAT, op, op);
    case 8:
        return write_file(w, a, O_TRUNC, op, 0);
    case 9:
        return write_file(w, a, O_APPEND, op, 0);
    case 10:
        return change(w, a, op);
    default:
        return vfs_symlink(&w->ctx, cwd, a, b + 1);
    }
}

/* ---- comparing ----------------------------------------------------------------------------------
 */

struct names {
    struct dir_context ctx;
    char list[32][8];
    unsigned count;
};

static bool take_name(struct dir_context *ctx, const char *name, size_t size, uint64_t ino,
                      uint8_t type, int64_t next_pos)
{
    struct names *n = container_of(ctx, struct names, ctx);
    (void)ino, (void)next_pos;
    ASSERT(n->count < 32 && size < 6);
    snprintf(n->list[n->count++], 8, "%.*s%c", (int)size, name, 'A' + type);
    return true;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int list_dir(struct world *w, const char *path, struct names *ret)
{
    struct file *f;
    int r = vfs_open(&w->ctx, &w->ctx.cwd, path, O_RDONLY | O_DIRECTORY, 0, 0, &f);
    if (r < 0)
        return r;
    *ret = (struct names){.ctx.emit = take_name};
    r = vfs_iterate(f, &ret->ctx);
    file_put(f);
    qsort(ret->list, ret->count, sizeof(ret->list[0]), compare_names);
    return r;
}

static ssize_t read_all(struct world *w, const char *path, uint8_t *bytes, size_t size)
{
    struct file *f;
    int r = vfs_open(&w->ctx, &w->ctx.cwd, path, O_RDONLY, 0, 0, &f);
    if (r < 0)
        return r;
    ssize_t n = file_read_at(f, bytes, size, 0);
    file_put(f);
    return n;
}

static void compare_path(struct world *x, struct world *y, const char *path)
{
    static uint8_t bytes[2][10000];
    static struct names names[2];
    struct path p[2] = {{0}, {0}};
    struct kstat st[2];
    int r = vfs_walk(&x->ctx, &x->ctx.cwd, path, 0, &p[0]);
    ASSERT(r == vfs_walk(&y->ctx, &y->ctx.cwd, path, 0, &p[1]));
    if (r < 0)
        return;
    ASSERT(vfs_getattr(&p[0], &st[0]) == 0 && vfs_getattr(&p[1], &st[1]) == 0);
    path_put(&p[0]);
    path_put(&p[1]);
    ASSERT(st[0].mode == st[1].mode && st[0].nlink == st[1].nlink);
    if (S_ISDIR(st[0].mode)) {
        ASSERT(list_dir(x, path, &names[0]) == 0 && list_dir(y, path, &names[1]) == 0);
        ASSERT(names[0].count == names[1].count);
        ASSERT(memcmp(names[0].list, names[1].list, sizeof(names[0].list)) == 0);
    } else if (S_ISREG(st[0].mode)) {
        ASSERT(st[0].size == st[1].size);
        ssize_t n = read_all(x, path, bytes[0], sizeof(bytes[0]));
        ASSERT(n == read_all(y, path, bytes[1], sizeof(bytes[1])) && n == (ssize_t)st[0].size);
        ASSERT(n <= 0 || memcmp(bytes[0], bytes[1], (size_t)n) == 0);
    }
}

static void compare(struct world *x, struct world *y)
{
    compare_path(x, y, "/");
    for (size_t i = 0; i < PATHS; i++)
        compare_path(x, y, g_paths[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct creds *creds = creds_new(0, 0, NULL, 0);
    struct world lower = {0};
    struct world model = {0};
    struct world untouched = {0};
    struct world overlay = {0};
    ASSERT(creds && tmpfs_new(0755, 0, 0, 0, &lower.sb, &lower.root) == 0);
    ASSERT(tmpfs_new(0755, 0, 0, 0, &model.sb, &model.root) == 0);
    ASSERT(tmpfs_new(0755, 0, 0, 0, &untouched.sb, &untouched.root) == 0);
    world_mount(&lower, creds);
    world_mount(&model, creds);
    world_mount(&untouched, creds);
    plant(&lower);
    plant(&model);
    plant(&untouched);
    ASSERT(overlay_new(lower.root, &overlay.sb, &overlay.root) == 0);
    world_mount(&overlay, creds);
    dcache_set_limit(size && data[0] & 1 ? 4 : 1000);

    for (size_t i = 0; i + 1 < size && i < 2 * OPS_MAX; i += 2) {
        int r = run_op(&overlay, data[i], data[i + 1]);
        ASSERT(r == run_op(&model, data[i], data[i + 1]));
        if (data[i] & 0x80)
            dcache_drop_subtree(overlay.ctx.root.dentry);
        if (data[i] & 0x40)
            compare(&overlay, &model);
    }
    compare(&overlay, &model);
    compare(&lower, &untouched);

    mount_put(overlay.ns->root);
    overlay_shut_down(overlay.sb);
    lock_fini(&overlay.ns->lock);
    free(overlay.ns);
    inode_put(overlay.root);
    superblock_put(overlay.sb);
    world_fini(&lower);
    world_fini(&model);
    world_fini(&untouched);
    creds_put(creds);
    ASSERT(tmpfs_used() == 0);
    return 0;
}
